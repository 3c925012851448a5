"""Rollouts: preallocated storage of T ticks, their values and advantages, and the batch of transitions made of them.

A *transition* of a row begins on a tick where the row acts and is complete on the next tick where it ends its
episode or may act again; the rewards of the ticks between belong to it. Where every row acts on every tick a
transition is one tick, and `advantages_of` is the textbook estimator (generalized advantage estimation, Schulman et
al. 2016, arXiv 1506.02438). Discounting counts transitions, not ticks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.infos import StepFields, fields_of
from arena.game.spaces import Leaf, flatten
from arena.group.group import Moments
from policies.common.columns import (
    Column,
    Columns,
    RaggedStorage,
    RaggedTensor,
    Storage,
    cat,
    from_plain,
    kept_leaves,
    last_leaves,
    per_transition,
    to_plain,
)
from policies.networks.heads import ActionHead

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


class Trajectories(NamedTuple):
    """What `T` ticks of `B` rows gave. All arrays are [T, B] unless said otherwise."""

    rewards: Floats
    values: Floats  # V(s) when the row acted
    terminated: Flags  # the row's episode ended by the game's rules: nothing comes after
    truncated: Flags  # the row's episode was cut: `final_values` estimates the rest of its return
    final_values: Floats  # V(final observation), read only where truncated and not terminated
    active: Flags  # the row acted on this tick
    last_values: Floats  # [B] V of what the row sees after the last tick
    last_active: Flags  # [B] the row may act after the last tick
    void: Flags | None = None  # the transition that is complete after this tick is not to be learned from; None: none
    given: Flags | None = None  # the action on this tick was not the policy's: no sample of it; None: all were

    @property
    def under_way(self) -> Flags:
        """Which ticks [T, B] belong to an episode that has not ended by the last one."""
        return ~np.logical_or.accumulate((self.terminated | self.truncated)[::-1])[::-1]


class Advantages(NamedTuple):
    """Estimates per transition, stored on the tick where it began; all arrays are [T, B]."""

    advantages: NDArray[np.float64]  # 0 where not valid
    returns: NDArray[np.float64]  # advantage + value: the target of the value function
    valid: Flags  # a complete transition of the policy began on this tick
    open: Flags  # a transition began on this tick and is still incomplete after the last one
    gains: NDArray[np.float64]  # reward + gamma * the next transition's return - value; 0 where not valid


def advantages_of(
    played: Trajectories,
    *,
    gamma: float | Floats,
    gae_lambda: float,
    ratios: Floats | None = None,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> Advantages:
    """Advantages by equations (11) to (16) of arXiv 1506.02438, cut where episodes end.

    A transition that is still incomplete after the last tick is not valid but open: the row has acted, waits for the
    others, and what it will see next is not known yet. The row's earlier transitions look ahead as far as its
    beginning, as they do before a void transition. Estimates run through given actions.

    With `ratios` these are the estimates of V-trace (Espeholt et al. 2018, arXiv 1802.01561): returns are v_s of its
    equation (1), and c_i has the factor lambda of remark 2. Advantages are v_s - V(s): with lambda 1 and equal bounds
    what its section 4.2 multiplies grad log pi by, and with ratios of 1 those of GAE.

    Args:
        played: the trajectories.
        gamma: discount per transition; or, [T, B], of the transition that begins on each tick, if these differ.
        gae_lambda: weight of the longer looks ahead; 0 is one-step, 1 is Monte Carlo minus the value.
        ratios: [T, B] pi(a|s) / mu(a|s) of the policy that learns and the one that acted; None: they are the same.
        rho_bar, c_bar: bounds, 1 or more, of the ratios that weigh a transition's own difference, and what follows it.
    """
    values = played.values.astype(np.float64)
    ended = played.terminated | played.truncated
    cut = played.truncated & ~played.terminated  # terminated wins: nothing is added where the game has ended
    final_values = np.where(cut, played.final_values, 0.0).astype(np.float64)
    external = any(flags is not None and flags.any() for flags in (played.void, played.given))
    if not external and played.active.all() and played.last_active.all():  # usual: all but the recursion at once
        next_values = np.concatenate([values[1:], played.last_values[None].astype(np.float64)])
        next_values = np.where(ended, final_values, next_values)
        deltas = played.rewards + gamma * next_values - values  # eq. (11)
        onward = gamma * ~ended
        weighted, decay = deltas, gae_lambda * onward
        if ratios is not None:
            weighted, decay = np.minimum(ratios, rho_bar) * deltas, np.minimum(ratios, c_bar) * decay
        advantages = np.zeros((len(values) + 1, values.shape[1]))  # 0 after the last tick
        if values.shape[1] == 1:  # the same numbers in a tenth of the time
            steps = zip(weighted[::-1, 0].tolist(), decay[::-1, 0].tolist(), strict=True)
            found = itertools.accumulate(steps, lambda ahead, step: step[0] + step[1] * ahead, initial=0.0)
            advantages[::-1, 0] = list(found)
        else:
            ahead = advantages[-1]
            for t in range(len(values) - 1, -1, -1):
                advantages[t] = ahead = weighted[t] + decay[t] * ahead  # eq. (16) as a recursion
        gains, advantages = deltas + onward * advantages[1:], advantages[:-1]
        return Advantages(advantages, advantages + values, np.ones_like(ended), np.zeros_like(ended), gains)
    # In turns: one backward pass that keeps for each row what comes after its next action.
    gammas = np.broadcast_to(np.asarray(gamma, np.float64), values.shape)
    void = np.zeros_like(ended) if played.void is None else played.void
    chosen = np.ones_like(ended) if played.given is None else ~played.given  # by the policy
    weights = np.where(chosen, 1.0 if ratios is None else ratios, 1.0)  # a given action is part of the game
    rho = np.minimum(weights, rho_bar)
    decay = np.minimum(weights, c_bar) * gammas * gae_lambda
    advantages, gains = np.zeros_like(values), np.zeros_like(values)
    valid, opened = np.zeros_like(ended), np.zeros_like(ended)
    known = played.last_active.copy()  # is it known what follows the row's action?
    spoiled = np.zeros_like(known)  # is the transition that the row's action begins void?
    value, ahead = played.last_values.astype(np.float64), np.zeros(values.shape[1])
    owed = np.zeros(values.shape[1])  # rewards since then, earned by the action before them
    for t in range(len(values) - 1, -1, -1):
        end, acted = ended[t], played.active[t]
        known = known | end
        spoiled = void[t] | (spoiled & ~end)
        value = np.where(end, final_values[t], value)
        ahead = np.where(end, 0.0, ahead)
        owed = np.where(end, 0.0, owed) + played.rewards[t]
        sound = acted & known & ~spoiled
        delta = owed + gammas[t] * value - values[t]
        estimate = np.where(sound, rho[t] * delta + decay[t] * ahead, 0.0)
        valid[t] = sound & chosen[t]
        opened[t] = acted & ~known
        advantages[t] = np.where(valid[t], estimate, 0.0)
        gains[t] = np.where(valid[t], delta + gammas[t] * ahead, 0.0)
        value = np.where(acted, values[t], value)
        ahead = np.where(acted, estimate, ahead)
        owed = np.where(acted, 0.0, owed)
        known = known | acted  # the observation of this action is what follows the one before
        spoiled = spoiled & ~acted
    return Advantages(advantages, np.where(valid, advantages + values, 0.0), valid, opened, gains)


# ---------------------------------------------------------------------------------------------------- asking networks

_CHUNK = 1024  # transitions evaluated at once: bounds the memory that images need
_ITEMS = 16_384  # of all ragged leaves: bounds what transitions of many units need


class StateInputs(NamedTuple):
    """The network's inputs of a rollout: leaves as it takes them."""

    played: list[Any]  # [T * B, ...] of all ticks, tick by tick
    last: list[Any]  # [B, ...] after the last tick
    finals: list[Any]  # [K, ...] of episodes that were cut, as `Rollout.final_leaves`; empty where none was


def evaluate_network(
    network: Any, leaves: Sequence[Any], masks: Tensor | None, actions: Any, device: torch.device
) -> tuple[Any, Tensor]:
    """Log-probabilities and values [N] of transitions, on the CPU; of units, log-probabilities per decision."""
    log_probs, values = [torch.zeros(0, device=device)], [torch.zeros(0, device=device)]
    for part in chunks(leaves):
        inputs = [leaf[part].to(device) for leaf in leaves]
        mask = None if masks is None else masks[part].to(device)
        policy, value = network.policy_and_value(inputs, mask)
        log_probs.append(policy.log_prob(actions[part].to(device)))
        values.append(value)
    found = torch.cat(log_probs).cpu()
    return actions.with_values(found) if isinstance(actions, RaggedTensor) else found, torch.cat(values).cpu()


def values_of(network: Any, leaves: list[Any], device: torch.device) -> Tensor:
    """V [N] of leaves, on the CPU; of no leaves, an empty tensor."""
    parts = chunks(leaves) if leaves else ()
    values = [network.value([leaf[part].to(device) for leaf in leaves]) for part in parts]
    return torch.cat([torch.zeros(0, device=device), *values]).cpu()


def chunks(leaves: Sequence[Any]) -> Iterator[slice]:
    """Runs of rows to evaluate at once: at most `_CHUNK` rows and, of ragged leaves, `_ITEMS` items; at least a row."""
    counts = [leaf.lengths for leaf in leaves if isinstance(leaf, RaggedTensor)]
    ends, start, size = np.cumsum(np.sum(counts, axis=0)) if counts else np.zeros(0), 0, len(leaves[0])
    while start < size:
        stop = start + _CHUNK
        if counts:
            before = ends[start - 1] if start else 0
            stop = min(stop, max(start + 1, int(np.searchsorted(ends, before + _ITEMS, "right"))))
        yield slice(start, stop)
        start = stop


# -------------------------------------------------------------------------------------------------------- transitions

_ALL = slice(None)
Rows = slice | NDArray[np.intp]
"""Some rows of a tick."""

COUNTS = ("units", "decisions")
"""What is counted per transition in games with units; the means are metrics of an update."""


class Batch(Columns, frozen=True):
    """Complete transitions of one worker or of many; `N` of them.

    Transitions of a recurrent policy form sequences, one after the other, which are taken and split as wholes. A
    transition usually has one choice, its action. In games with units it has any number of them, its decisions:
    `actions` and `log_probs` are ragged, and losses are computed per decision.
    """

    actions: Any  # [N, ...]; of units a ragged row of decisions [N]
    log_probs: Any  # [N] of the policy that acted; of units per decision, as actions
    values: Tensor  # [N] when it acted
    advantages: Tensor  # [N]
    returns: Tensor  # [N]
    decisions: Any = None  # [N, 5] of a manager that picks options, see `policies.hppo`
    lengths: Tensor | None = None  # [S], int64, of the sequences; None: every transition for itself
    weights: Tensor | None = None  # [N] of each decision: 1 / (mean number of decisions per transition)
    units: Tensor | None = None  # [N] how many units each saw; None: the game has none

    @property
    def played(self) -> Tensor:
        """The log-probability of each choice by the policy that acted: [N], of units [D]."""
        return self.log_probs.values if isinstance(self.log_probs, RaggedTensor) else self.log_probs

    def per_choice(self, numbers: Tensor) -> Tensor:
        """Numbers [N] of transitions, given to each of their choices: [N], of units [D]."""
        return self.actions.spread(numbers) if isinstance(self.actions, RaggedTensor) else numbers

    def per_transition(self, numbers: Tensor) -> Tensor:
        """Numbers of choices [K, N] or [K, D], added up in each transition by their weights: [K, N]."""
        return per_transition(self.actions, numbers, self.weights)

    def standardizable(self) -> dict[str, Tensor]:
        """The numbers [N] whose mean and deviation over all transitions of an update are needed, by name."""
        numbers = {"advantages": self.advantages, "returns": self.returns, "errors": self.returns - self.values}
        if isinstance(self.actions, RaggedTensor):
            numbers["decisions"] = torch.from_numpy(self.actions.lengths)
        if self.units is not None:
            numbers["units"] = self.units
        if self.decisions is not None:
            numbers["option_advantages"] = self.decisions[self.decisions[:, 0] > 0, 3]
        return numbers

    def weighted(self, moments: Mapping[str, Moments], *, standardize: bool) -> Batch:
        """The batch with the weights of decisions and, if `standardize`, advantages of mean 0 and deviation 1.

        `moments` are those of `standardizable`. A single advantage of the group stays as it is: its deviation from its
        mean, 0, teaches nothing.
        """
        batch = self
        if "decisions" in moments:
            batch = batch.replace(weights=torch.full((self.size,), 1 / (moments["decisions"].mean or 1.0)))
        errors = moments["advantages"]
        if standardize and errors.count > 1:
            batch = batch.replace(advantages=(self.advantages - errors.mean) / (errors.std + 1e-8))
        if standardize and self.decisions is not None and (picks := moments["option_advantages"]).count > 1:
            decisions = self.decisions.clone()
            decisions[:, 3] = (decisions[:, 3] - picks.mean) / (picks.std + 1e-8)
            batch = batch.replace(decisions=decisions)
        return batch

    def minibatches(self, parts: int, *, epochs: int, generator: torch.Generator) -> Iterator[Batch]:
        """Passes over the batch, each cut into `parts` minibatches in a new random order; 1: the batch as it is."""
        for _ in range(epochs):
            if parts == 1:  # its order changes nothing but rounding
                yield self
                continue
            order = torch.randperm(self.pieces, generator=generator)
            yield from self.take(order.to(self.actions.device)).parts(parts)

    @property
    def pieces(self) -> int:
        """The number of sequences, which are taken and split as wholes; without sequences, of transitions."""
        return self.size if self.lengths is None else len(self.lengths)

    def take(self, index: Tensor) -> Batch:
        """The transitions, or sequences, at an int64 index, in its order."""
        if self.lengths is None:
            return super().take(index)
        lengths = self.lengths[index]
        begins = (self.lengths.cumsum(0) - self.lengths)[index]
        shift = begins - (lengths.cumsum(0) - lengths)  # from a transition's new place to its old one
        rows = torch.arange(int(lengths.sum()), device=index.device) + shift.repeat_interleave(lengths)
        return self.replace(lengths=None).take(rows).replace(lengths=lengths)

    def parts(self, count: int) -> list[Batch]:
        """Cuts into `count` runs that differ by one piece at most; some are empty where there is too little."""
        ends = [self.pieces * part // count for part in range(count + 1)]
        sizes = [end - begin for begin, end in itertools.pairwise(ends)]
        if self.lengths is None:
            return self.split(sizes)
        lengths = torch.split(self.lengths, sizes)
        parts = self.replace(lengths=None).split([int(part.sum()) for part in lengths])
        return [part.replace(lengths=one) for part, one in zip(parts, lengths, strict=True)]


class Evaluation(NamedTuple):
    """The evaluated transitions of a rollout: one row of `batch` for every tick and row, tick by tick."""

    batch: Batch  # [T * B]
    valid: Flags  # [T, B] a complete transition began here
    trajectories: Trajectories  # [T, B] what the estimates were made of
    last: list[Any]  # leaves [B, ...] after the last tick
    finals: list[Any]  # leaves [K, ...] of episodes that were cut, tick by tick; empty where none was

    def to_samples(self) -> dict[str, Any]:
        """The nested dict of arrays that a worker sends; the inverse is `from_samples`."""
        batch, valid, trajectories, *leaves = self
        last, finals = ([to_plain(leaf) for leaf in each] for each in leaves)
        samples = {"batch": batch.to_samples(), "valid": valid, "trajectories": tuple(trajectories)}
        return {**samples, "last": last, "finals": finals}

    @classmethod
    def from_samples(cls, samples: Mapping[str, Any]) -> Evaluation:
        """Copies of the tensors, as the arrays of a message are read-only."""
        last, finals = ([from_plain(leaf) for leaf in samples[name]] for name in ("last", "finals"))
        batch, trajectories = Batch.from_samples(samples["batch"]), Trajectories(*samples["trajectories"])
        return cls(batch, samples["valid"], trajectories, last, finals)

    def complete(self, sequence_length: int | None) -> Batch:
        """The complete transitions alone; in sequences of at most `sequence_length`, if it is given."""
        if sequence_length is not None:
            ended = self.trajectories.terminated | self.trajectories.truncated
            return to_sequences(self.batch, self.valid, ended, sequence_length)
        return self.batch if self.valid.all() else self.batch.take(torch.from_numpy(np.flatnonzero(self.valid)))


def to_sequences(batch: Batch, valid: Flags, ended: Flags, length: int) -> Batch:
    """The complete transitions of a rollout [T * B], `valid` [T, B], as sequences of at most `length` transitions.

    They go row by row, in the order of time, and within an episode; `ended` [T, B]: it ended on this tick.
    """
    rows = valid.shape[1]
    row, tick = np.nonzero(valid.T)
    episode: NDArray[np.int64] = np.cumsum(ended, axis=0)[tick, row] - ended[tick, row]  # of the row, counted from 0
    runs = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(episode, prepend=-1))  # where one begins
    within = np.arange(len(row)) - np.repeat(runs, np.diff(runs, append=len(row)))
    begins = np.flatnonzero(within % length == 0)
    lengths = np.diff(begins, append=len(row))
    return batch.take(torch.from_numpy(tick * rows + row)).replace(lengths=torch.from_numpy(lengths))


class OpenTransitions:
    """Transitions that were incomplete when a rollout ended: rows that had acted and waited for the outcome.

    They belong to the next rollout, as a tick before its first one, with the log-probability and the value of the
    policy that has acted. Games in which all rows act on every tick have none. Where only complete episodes are learned
    from, these are all transitions of the episodes that were under way, as K ticks before.
    """

    # Of K ticks of all rows `batch` [K * B], anything where there is none; `active` [K, B], where there is one; the
    # `rewards` since it began; `void` and `given`, whether it is void, and its action was given. Empty: there is none.
    _kept: Mapping[str, Any] = {}

    def prepend(self, batch: Batch, played: Trajectories) -> tuple[Batch, Trajectories]:
        """A rollout [T * B] and its trajectories [T, B], with the open transitions as ticks before."""
        if not (kept := self._kept):
            return batch, played
        none, zeros = np.zeros_like(kept["active"]), np.zeros_like(kept["rewards"])
        first = kept["batch"]
        values = first.values.numpy().reshape(none.shape)
        moved = (leaf.to(new.device) for leaf, new in zip(first.observations, batch.observations, strict=True))
        before = {**kept, "values": values, "terminated": none, "truncated": none, "final_values": zeros}
        longer = {
            name: np.concatenate([before[name], rest])
            for name, rest in played._asdict().items()
            if name in before and rest is not None
        }
        return Batch.cat([first.replace(observations=tuple(moved)), batch]), played._replace(**longer)

    def keep(self, batch: Batch, played: Trajectories, opened: Flags) -> None:
        """Keeps the transitions that are still open [T, B], at most one of each row, instead of those from before."""
        self._kept = {}
        rows: Flags = np.logical_or.reduce(opened, axis=0)
        if not np.count_nonzero(rows):
            return
        begun, columns = opened.argmax(axis=0), np.arange(len(rows))
        since, none = (np.arange(len(opened))[:, None] >= begun) & rows, np.zeros_like(rows)
        self._kept = {
            "batch": batch.take(torch.from_numpy(begun * len(rows) + columns)),
            "active": rows[None],
            "rewards": np.where(since, played.rewards, 0.0).sum(axis=0, keepdims=True),
            "void": none[None] if played.void is None else (played.void & since).any(axis=0, keepdims=True),
            "given": none[None] if played.given is None else played.given[begun, columns][None],
        }

    def keep_episodes(self, batch: Batch, played: Trajectories) -> None:
        """Keeps all ticks of the episodes that are under way, instead of those from before.

        An episode that does not end is kept whole in memory until the leg ends.
        """
        under_way = played.under_way
        longest, (ticks, rows) = int(under_way.sum(axis=0).max()), under_way.shape
        if longest == 0:
            self._kept = {}
            return
        kept = under_way[ticks - longest :]
        none = np.zeros_like(kept)
        flags = {
            name: none if (found := getattr(played, name)) is None else found[ticks - longest :] & kept
            for name in ("active", "void", "given")
        }
        places = torch.arange((ticks - longest) * rows, ticks * rows)
        rewards = np.where(kept, played.rewards[ticks - longest :], 0.0)
        self._kept = {"batch": batch.take(places), "rewards": rewards, **flags}

    def state_dict(self) -> dict[str, Any]:
        return {**self._kept, "batch": self._kept["batch"].to_samples()} if self._kept else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not state:
            self._kept = {}
            return
        arrays = {name: np.atleast_2d(array) for name, array in state.items() if name != "batch"}  # 1 tick: once [B]
        self._kept = {**arrays, "batch": Batch.from_samples(state["batch"])}


class Rollout:
    """Storage of `T` ticks of `B` rows, used again for every rollout.

    rollout.begin(*env.reset())
    for t in range(T):
        rollout.leaves(t), rollout.mask(t)               what the rows see, before they act
        rollout.add(t, actions, *env.step(...))          or rows by rows, with `rows=` here and above
    rollout.flat(), rollout.trajectories(values, final_values)
    rollout.advance()                                    what was seen last is what the next rollout sees first

    Numbers of float64 are kept as such only if `double` says so; see `policies.common.columns`. Where rows have memory,
    it is the last leaf: call `remember` with the memory after tick `t` before `add`.

    Attributes:
        active: the rows that act on each tick, and after the last one [T+1, B].
        rewards: as the environment gave them [T, B].
        given: the rows whose action on a tick was not the learning policy's [T+1, B]: given by an external game, or
            chosen by the average policy; None: there are none.
        played: ticks that are complete; counted by `collect`.
        remembers: whether rows carry anything from tick to tick, also while they do not act.
        open: what was incomplete when the last rollout ended.
    """

    def __init__(
        self, space: Space[Any], head: ActionHead, *, ticks: int, rows: int, memory_size: int = 0, double: bool = False
    ) -> None:
        self.ticks, self.rows, self._double = ticks, rows, double
        self._space, self._mask_size = space, head.mask_size
        memory = [Leaf(("memory",), np.dtype(np.float32), (memory_size,))] if memory_size else []
        self._observed = Storage([*kept_leaves(space, double=double), *memory], head.mask_size, ticks + 1, rows)
        self._memory: Any = self._observed.leaves[-1].zero_() if memory_size else None
        self.remembers = memory_size > 0
        self._actions: Any = (
            RaggedStorage(ticks, rows, np.dtype(np.int64), head.shape)
            if head.decides
            else torch.zeros(ticks, rows, *head.shape, dtype=head.dtype)
        )
        self._action_array: Any = self._actions.numpy() if isinstance(self._actions, Tensor) else self._actions
        self.active = np.ones((ticks + 1, rows), np.bool_)
        self.rewards = np.zeros((ticks, rows), np.float64)
        self._terminated = np.zeros((ticks, rows), np.bool_)
        self._truncated = np.zeros((ticks, rows), np.bool_)
        self._columns: dict[str, Any] = {"actions": self._action_array, "active": self.active}
        self._void: Flags | None = None  # [T, B] of external games
        self.given: Flags | None = None
        self._columns |= {"rewards": self.rewards, "terminated": self._terminated, "truncated": self._truncated}
        self._cut: list[tuple[int, NDArray[np.intp], list[Any]]] = []  # tick, rows, their last leaves
        self.played = 0
        self.open = OpenTransitions()

    def begin(self, observations: Any, infos: Mapping[str, Any]) -> None:
        """Takes what `env.reset` gave: what the rows see before the tick that comes next; they remember nothing."""
        if self._memory is not None:
            self._memory[self.played] = 0.0
        self._observe(self.played, observations, fields_of(infos))

    def advance(self) -> None:
        """Starts the next rollout where this one has ended."""
        self.played = 0
        self._cut.clear()
        self._observed.restart()
        self.active[0] = self.active[-1]
        if self.given is not None:
            self.given[0] = self.given[-1]

    def pin(self) -> None:
        """Moves observations to memory that a GPU reads by itself, see `Storage.pin`."""
        self._observed.pin()
        if self._memory is not None:
            self._memory = self._observed.leaves[-1]

    def add(self, t: int, actions: Any, *step: Any, rows: slice = _ALL) -> None:
        """Takes tick `t` of some rows: actions [B, ...] as learned from, and what `env.step` returned."""
        observations, rewards, terminated, truncated, infos = step
        self._action_array[t, rows] = actions
        self.rewards[t, rows] = rewards
        self._terminated[t, rows] = terminated
        self._truncated[t, rows] = truncated
        fields = fields_of(infos)
        if self._void is not None:
            self._void[t, rows] = False if fields.void is None else fields.void
        if np.count_nonzero(truncated) and len(cut := np.flatnonzero(truncated & ~terminated)):
            final = last_leaves(self._space, fields.final_obs, cut, double=self._double)
            if self._memory is not None:
                final.append(self._memory[t + 1, rows][torch.from_numpy(cut)])
            self._cut.append((t, (rows.start or 0) + cut, final))
        if self._memory is not None:
            self._memory[t + 1, rows][torch.from_numpy(terminated | truncated)] = 0.0
        self._observe(t + 1, observations, fields, rows)

    def remember(self, t: int, memory: Tensor, rows: Rows = _ALL) -> None:
        """Takes the memory [B, memory_size] of rows that have acted on tick `t`; the others' stays as it was."""
        active = torch.from_numpy(self.active[t, rows])
        self._memory[t + 1, rows] = torch.where(active[:, None], memory, self._memory[t, rows])

    def leaves(self, t: int, rows: Rows = _ALL) -> list[Any]:
        """What the rows see before tick `t`, leaves [B, ...]; `t` = T is what they see in the end."""
        leaves = self._observed.tick(t)
        return leaves if isinstance(rows, slice) and rows == _ALL else [leaf[rows] for leaf in leaves]

    @property
    def observed(self) -> Sequence[Any]:
        """What the rows see before each tick, and after the last one: leaves [T+1, B, ...]."""
        return self._observed.leaves

    def mask(self, t: int, rows: Rows = _ALL) -> Tensor | None:
        """What the rows may do on tick `t`, bool [B, mask_size]."""
        return None if self._observed.masks is None else self._observed.masks[t, rows]

    def final_leaves(self) -> list[Any]:
        """The last observations of the episodes that were cut, leaves [K, ...]; empty where none was."""
        return [cat(parts) for parts in zip(*(leaves for _, _, leaves in self._cut), strict=True)]

    def final_places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The ticks and rows [K] of `final_leaves`."""
        places = [(np.full(len(rows), tick), rows) for tick, rows, _ in self._cut]
        none = np.zeros(0, np.intp)
        ticks, rows = zip((none, none), *places, strict=True)
        return np.concatenate(ticks), np.concatenate(rows)

    def flat(self) -> tuple[list[Any], Tensor | None, Column]:
        """Leaves, masks and actions of all ticks [T*B, ...], tick by tick."""
        actions = self._actions
        flat: Column = actions.flat(self.ticks) if isinstance(actions, RaggedStorage) else actions.flatten(0, 1)
        return *self._observed.flat(self.ticks), flat

    @property
    def ended(self) -> NDArray[np.bool_]:
        return self._terminated | self._truncated

    def trajectories(self, values: NDArray[np.float32], final_values: NDArray[np.float32]) -> Trajectories:
        """All that advantages are computed from, with V of what was seen [T+1, B] and V of `final_leaves` [K]."""
        finals = np.zeros_like(self.rewards)
        finals[self.final_places()] = final_values
        return Trajectories(
            rewards=self.rewards,
            values=values[:-1],
            terminated=self._terminated,
            truncated=self._truncated,
            final_values=finals,
            active=self.active[:-1],
            last_values=values[-1],
            last_active=self.active[-1],
            void=self._void,
            given=None if self.given is None else self.given[:-1],
        )

    def state_dict(self) -> dict[str, Any]:
        """The ticks that were played, as arrays [t, B, ...]; empty where there are none."""
        t = self.played
        if t == 0:
            return {}
        cut = [(tick, rows, [to_plain(leaf) for leaf in leaves]) for tick, rows, leaves in self._cut]
        columns = {name: to_plain(storage, t) for name, storage in self._columns.items()}
        return {**columns, **self._observed.state_dict(t), "open": self.open.state_dict(), "cut": cut}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begins with ticks that were played before; with none if they had other rows, or are too many."""
        t, rows = state["rewards"].shape
        if rows != self.rows or t > self.ticks:
            return
        self.played = t
        self._observed.load_state_dict(state)
        self.open.load_state_dict(state.get("open", {}))
        if "void" in state:
            self.note_given()
        for name, storage in self._columns.items():
            storage[:t] = state[name]
        self._cut = [(tick, rows, [from_plain(leaf) for leaf in leaves]) for tick, rows, leaves in state["cut"]]

    def _observe(self, t: int, observations: Any, fields: StepFields, rows: slice = _ALL) -> None:
        mask = fields.action_mask if self._mask_size else None
        self._observed.write((t, rows), flatten(self._space, observations), mask)
        self.active[t, rows] = True if fields.active is None else fields.active
        if fields.given is not None or self.given is not None:
            self.note_given()[t, rows] = False if fields.given is None else fields.given

    def note_given(self) -> Flags:
        """`given`; the columns that few policies have are made when they are needed."""
        if self.given is None:
            self._void = self._columns["void"] = np.zeros((self.ticks, self.rows), np.bool_)
            self.given = self._columns["given"] = np.zeros((self.ticks + 1, self.rows), np.bool_)
        return self.given
