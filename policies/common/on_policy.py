"""The base of algorithms that learn from their newest rollout: options, playing a rollout, evaluating it.

A rollout is T ticks of B rows that the current policy plays (`collect`). While it is played only the actor runs;
log-probabilities and values of the whole rollout come from one pass after it (`evaluate_network`). If a leg of the run
ends in the middle of a rollout, each worker keeps its part as its own state and continues with it in the next leg.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena.errors import BudgetReached, ConfigError
from arena.game.infos import fields_of
from arena.game.ragged import Ragged
from arena.game.units import UnitSpace
from arena.group.group import Moments
from policies.common.adam import Adam
from policies.common.algorithm import (
    ACTING,
    EXPLORING,
    Algorithm,
    Metrics,
    Random,
    Served,
    lags_of,
    moved,
    stream,
    torch_generators,
)
from policies.common.columns import RaggedTensor, to_leaves, to_mask
from policies.common.normalization import Normalization, check_normalization, joined
from policies.common.options import (
    AUTO,
    Activation,
    AlgorithmOptions,
    Auto,
    Clip,
    Count,
    Device,
    Fraction,
    LogStd,
    Natural,
    NonNegative,
    Positive,
    Recurrent,
    Schedule,
    Sizes,
    check_idle,
    check_unused,
)
from policies.common.rollout import COUNTS, Batch, Evaluation, Rollout, Rows, advantages_of
from policies.common.tensors import load_weights, to_arrays
from policies.exporting import Exported, decoding_of, exported, numbers
from policies.extensions import Extension, make_encoder
from policies.networks.actor_critic import ActorCritic, Encoder
from policies.networks.heads import ActionHead, BoxHead, UnitHead, action_head
from policies.networks.recurrent import RecurrentEncoder, RecurrentState
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Schema, Transformer, check_no_transformer
from policies.networks.units.tokens import units_of

if TYPE_CHECKING:
    from arena.group.async_samples import AsyncSamples
    from arena.group.group import Group

_ROLLOUT = 2048  # transitions of the group in a rollout with `n_steps: auto`
_SHORTEST = 32  # ticks that such a rollout has at least, however many rows play,
_UPDATES = 8  # unless the run were too short for as many rollouts
_CHUNK = 1024  # transitions evaluated at once: bounds the memory that images need
_ITEMS = 16_384  # of all ragged leaves: bounds what transitions of many units need

MEMORY = ("recurrent", "hidden_size", "sequence_length")
"""The options of a recurrent policy."""

OWN = ("encoder", "extra_loss")
"""The options that name classes of the user's own."""

ALL = slice(None)

Given = TypeVar("Given", bound="OnPolicyOptions")


class OnPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any on-policy algorithm; each redeclares what it has other defaults for."""

    learning_rate: NonNegative = 3e-4  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-5  # Adam's epsilon: weights whose gradients are smaller than this move less
    n_steps: Count | Auto = AUTO  # ticks per rollout; auto: 2048 transitions of the group, in at least 32 ticks
    gamma: Fraction = 0.99  # discount per transition
    gae_lambda: Fraction = 0.95  # how far advantages look ahead: 0 one step, 1 to the end
    ent_coef: NonNegative = 0.0  # weight of the entropy bonus
    vf_coef: NonNegative = 0.5  # weight of the value loss
    max_grad_norm: Positive | None = 0.5  # gradients are scaled down to this norm at most; null: never
    normalize_advantage: bool = True  # to mean 0 and deviation 1 over all the group's transitions
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    normalize_rewards: bool = False  # divided by the deviation of the discounted return
    clip_observations: Clip | None = 10.0  # how far from 0 a normalized number may be; null: any distance
    clip_rewards: Clip | None = 10.0  # the same of a normalized reward
    hidden_sizes: Sizes = (64, 64)  # layers of the actor, and of the critic
    activation: Activation = "tanh"  # tanh or relu
    log_std_init: LogStd = 0.0  # initial logarithm of the deviation of Box actions, in half widths of their bounds
    encoder: Extension | None = None  # a torch module of your own for observations; null: the built-in one
    extra_loss: Extension | None = None  # a further loss of your own, whose gradient is added; null: none
    recurrent: Recurrent | None = None  # lstm or gru: a layer with memory before actor and critic; null: none
    hidden_size: Count = 64  # units of that layer
    sequence_length: Count = 16  # transitions at most that gradients go back through in time
    transformer: Transformer | None = None  # network of seats that see units; null: its defaults
    device: Device = "cpu"  # cpu, cuda, or auto: cuda where there is one
    check_every: Natural = 100  # updates between checks that all workers hold equal weights; 0: never

    def __post_init__(self) -> None:
        super().__post_init__()
        check_normalization(self, "observations", "rewards")
        check_unused(self, "hidden_size", "sequence_length", recurrent=None)

    def settled(self: Given, *, rows: int, workers: int, ticks: int) -> Given:
        """The same options with a number in place of every `auto`.

        Args:
            rows: of the group's worker that has the most.
            workers: of the group.
            ticks: of the whole run.
        """
        if self.n_steps != AUTO:
            return self
        wanted = max(_SHORTEST, _ROLLOUT // (rows * workers))
        return msgspec.structs.replace(self, n_steps=max(1, min(wanted, ticks // _UPDATES)))


def check_network(options: OnPolicyOptions, space: Space[Any]) -> None:
    """Refuses options of the network that have no effect with observations of this space.

    Raises:
        ConfigError: one is set.
    """
    if isinstance(space, UnitSpace):
        idle = ("hidden_sizes", "activation", *MEMORY, "log_std_init", "encoder", "extra_loss")
        check_idle(options, *idle, where="the seat sees units")
    else:
        check_no_transformer(options.transformer, space)


def check_budget(n_steps: int, ticks: int) -> None:
    """Checks that a run is long enough for one rollout.

    Raises:
        ConfigError: it is not.
    """
    if n_steps > ticks:
        raise ConfigError(
            f"a rollout of {n_steps} ticks does not fit into a run of {ticks}, so nothing would be learned; "
            f"set n_steps to {ticks} or less, or ticks to {n_steps} or more",
            path="options.n_steps",
        )


def rollout_sizes(options: OnPolicyOptions, *, rows: int, ticks: int, workers: int) -> dict[str, int]:
    """What `arena plan` shows of an algorithm that learns from each rollout once.

    Raises:
        ConfigError: a rollout longer than the run.
    """
    n_steps = int(options.settled(rows=rows, workers=workers, ticks=ticks).n_steps)
    check_budget(n_steps, ticks)
    sizes = {"samples per update": n_steps * rows * workers, "updates per run": ticks // n_steps}
    return {"ticks per rollout": n_steps, **sizes} if options.n_steps == AUTO else sizes


# ------------------------------------------------------------------------------------------------------------ playing

Choose = Callable[[int, Tensor, Rows], Any]
"""`act(t, noise, rows)`: the actions of some rows on tick `t`, as learned from, sampled with noise [rows, outputs]."""


@torch.inference_mode()
def collect(env: VectorEnv[Any, Any, Any], head: ActionHead, rollout: Rollout, act: Choose, noise: Tensor) -> None:
    """Plays the ticks that are left of a rollout.

    An environment of the arena may have its rows in several blocks: then the environment steps one block while the
    worker chooses the actions of the other. A row's noise is the same however the rows are cut.

    Args:
        env: a vector environment.
        head: translates actions for the environment.
        rollout: is filled from tick `rollout.played` on.
        act: chooses actions.
        noise: [ticks that are left, B, head.outputs].
    """
    first, per_tick = rollout.played, noise.unbind()
    blocks = getattr(env, "blocks", ())
    if len(blocks) <= 1:
        for t in range(first, rollout.ticks):
            actions = _act_few(rollout, t, act, per_tick[t - first])
            rollout.add(t, actions, *env.step(head.to_env(actions)))
            rollout.played = t + 1
        return
    chosen: list[Any] = [np.empty(0)] * len(blocks)  # of each block, on the tick that is under way

    def receive(t: int, index: int) -> None:
        if t >= first:
            rollout.add(t, chosen[index], *blocks[index].step_wait(), rows=blocks[index].rows)
        rollout.played = max(rollout.played, t + (index == len(blocks) - 1))

    for t in range(first, rollout.ticks + 1):
        for index, block in enumerate(blocks):
            receive(t - 1, index)
            if t == rollout.ticks:
                continue
            try:
                chosen[index] = act(t, per_tick[t - first][block.rows], block.rows)
                block.step_async(head.to_env(chosen[index]))
            except BudgetReached:
                for later in range(index + 1, len(blocks)):  # these have played this tick as well
                    receive(t - 1, later)
                raise


def _act_few(rollout: Rollout, t: int, act: Choose, noise: Tensor) -> Any:
    """Actions of all rows on tick `t`; in external games, if few rows act, only theirs are computed.

    In other games each row is computed in the same batch on every tick, so that a game in turns keeps its bits.
    """
    active = rollout.active[t]
    if rollout.given is None or rollout.remembers or 2 * np.count_nonzero(active) >= len(active) or not active.any():
        return act(t, noise, ALL)
    rows = np.flatnonzero(active)
    few = act(t, noise[torch.from_numpy(rows)], rows)
    if isinstance(few, Ragged):
        lengths = np.zeros(len(active), np.int64)
        lengths[rows] = few.lengths
        return Ragged(few.values, lengths)
    actions = np.zeros((len(active), *few.shape[1:]), few.dtype)
    actions[rows] = few
    return actions


# ---------------------------------------------------------------------------------------------------- asking networks


class StateInputs(NamedTuple):
    """The network's inputs of a rollout: leaves as it takes them."""

    played: list[Any]  # [T * B, ...] of all ticks, tick by tick
    last: list[Any]  # [B, ...] after the last tick
    finals: list[Any]  # [K, ...] of episodes that were cut, as `Rollout.final_leaves`; empty where none was


def evaluate_network(
    network: Any, leaves: Sequence[Any], masks: Tensor | None, actions: Any, device: torch.device
) -> tuple[Any, Tensor]:
    """Log-probabilities and values [N] of transitions, on the CPU; of units, log-probabilities per decision."""
    log_probs, values = [torch.zeros(0)], [torch.zeros(0)]
    for part in chunks(leaves):
        mask = None if masks is None else masks[part]
        policy, value = network.policy_and_value(moved([leaf[part] for leaf in leaves], device), moved(mask, device))
        log_probs.append(policy.log_prob(moved(actions[part], device)).cpu())
        values.append(value.cpu())
    found = torch.cat(log_probs)
    return actions.with_values(found) if isinstance(actions, RaggedTensor) else found, torch.cat(values)


def values_of(network: Any, leaves: list[Any], device: torch.device) -> Tensor:
    """V [N] of leaves, on the CPU; of no leaves, an empty tensor."""
    if not any(isinstance(leaf, RaggedTensor) for leaf in leaves):
        return network.value(moved(leaves, device)).cpu() if leaves else torch.zeros(0)
    parts = [network.value(moved([leaf[part] for leaf in leaves], device)).cpu() for part in chunks(leaves)]
    return torch.cat([torch.zeros(0), *parts])


@torch.no_grad()
def corrected(stale: Evaluation, network: Any, device: torch.device, *, gamma: float, gae_lambda: float) -> Evaluation:
    """Transitions of an older policy, evaluated by the network as it is now, with importance weights: V-trace.

    Log-probabilities are those of the current policy, so that an update is limited relative to it; advantages have the
    weight min(1, pi / mu) of the transition's own action (Hilton et al. 2021, arXiv 2110.00641, decouples both alike).
    """
    batch, seen = stale.batch, stale.trajectories
    log_probs, values = evaluate_network(network, batch.observations, batch.masks, batch.actions, device)
    log_ratios = (log_probs.values if isinstance(log_probs, RaggedTensor) else log_probs) - batch.played
    if isinstance(batch.actions, RaggedTensor):
        log_ratios = batch.actions.sums(log_ratios)
    final_values = np.zeros_like(seen.final_values)
    final_values[seen.truncated & ~seen.terminated] = values_of(network, stale.finals, device).numpy()
    seen = seen._replace(
        values=values.view(seen.values.shape).numpy(),
        final_values=final_values,
        last_values=values_of(network, stale.last, device).numpy(),
    )
    ratios = log_ratios.double().exp().view(seen.values.shape).numpy()
    found = advantages_of(seen, gamma=gamma, gae_lambda=gae_lambda, ratios=ratios)
    advantages, returns = (torch.from_numpy(part).float().flatten() for part in (found.advantages, found.returns))
    batch = batch.replace(log_probs=log_probs, values=values, advantages=advantages, returns=returns)
    return stale._replace(batch=batch, trajectories=seen)


def chunks(leaves: Sequence[Any]) -> Iterator[slice]:
    """Runs of rows to evaluate at once: at most `_CHUNK` rows and, of ragged leaves, `_ITEMS` items; at least a row."""
    counts = [leaf.lengths for leaf in leaves if isinstance(leaf, RaggedTensor)]
    size = len(leaves[0])
    if not counts:
        yield from (slice(start, start + _CHUNK) for start in range(0, size, _CHUNK))
        return
    ends, start = np.cumsum(np.sum(counts, axis=0)), 0
    while start < size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _ITEMS, "right")))
        yield slice(start, min(stop, start + _CHUNK))
        start = min(stop, start + _CHUNK)


# ------------------------------------------------------------------------------------------------- a base of algorithms


class OnPolicy(Algorithm):
    """One worker of an on-policy algorithm: networks, a rollout, and the methods that the arena calls.

    Args:
        env: a vector environment that resets on the same step; `infos["active"]` marks the rows that act next and
            `infos["action_mask"]` the choices that they have, where the environment gives them.
        group: the workers of this policy.
        ticks: the whole run's budget; the learning-rate schedule ends with it.
        options: the fields of the class's `Options`.

    Attributes:
        generator: this worker's random stream, for exploration and shuffling.
        updates: of the policy.
        double: whether observations are kept in double precision until they are normalized.

    Raises:
        ConfigError: an option or a space that the algorithm cannot take.
    """

    Options: ClassVar[type[Any]]
    optional_parts = ("normalization",)

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        o = self.options = self.options.settled(rows=group.rows or env.num_envs, workers=group.size, ticks=ticks)
        self.head = action_head(env.single_action_space, log_std_init=o.log_std_init)
        check_network(o, env.single_observation_space)
        if not isinstance(self.head, BoxHead):
            check_idle(o, "log_std_init", where=f"the actions are {env.single_action_space}")
        self.n_steps = int(o.n_steps)
        self.network = self.make_network(torch.Generator().manual_seed(group.shared_seed)).to(self.device)
        self.optimizer = Adam(self.network, epsilon=o.adam_epsilon)
        self.generator = stream(group.seed, EXPLORING)
        self.double = bool(o.normalize_observations)
        self.normalization = Normalization(env.single_observation_space, env.num_envs, o)
        self.rollout = self.make_rollout()
        self.updates = 0
        self.parts = ["network", "optimizer", "normalization"]  # of the state
        if isinstance(env.single_observation_space, UnitSpace):
            self.units = Schema(env.single_observation_space, o.transformer or Transformer())
            self.parts.insert(0, "units")  # checked before the others are loaded
        self.sequence_length = None if o.recurrent is None else int(o.sequence_length)

    def make_network(self, generator: torch.Generator) -> Any:
        """Actor and critic, with the same initial weights at every worker: an `ActorCritic`, or an equivalent."""
        space, o = self.env.single_observation_space, self.options
        if isinstance(self.head, UnitHead):
            assert isinstance(space, UnitSpace), "a `UnitHead` belongs to one"
            return UnitActorCritic(space, self.head, o.transformer or Transformer(), generator)
        encoder: Encoder
        if o.recurrent is None:
            encoder = make_encoder(space, generator, o.encoder)
        else:
            own = None if o.encoder is None else make_encoder(space, generator, o.encoder)
            memory = {"kind": o.recurrent, "hidden_size": o.hidden_size}
            encoder = RecurrentEncoder(space, **memory, generator=generator, own=own)
        return ActorCritic(encoder, self.head, **self.layers(generator))

    def layers(self, generator: torch.Generator) -> dict[str, Any]:
        """The arguments of `ActorCritic` that the options name."""
        o = self.options
        return {"hidden_sizes": o.hidden_sizes, "activation": o.activation, "generator": generator}

    def make_rollout(self) -> Rollout:
        """Storage of the ticks that one update learns from."""
        space, memory_size = self.env.single_observation_space, self.network.encoder.memory_size
        return Rollout(
            space, self.head, ticks=self.n_steps, rows=self.env.num_envs, memory_size=memory_size, double=self.double
        )

    def made_up_batch(self) -> Batch:
        leaves, masks, actions = self.made_up(self.head)
        if memory_size := self.network.encoder.memory_size:
            leaves.append(torch.zeros(2, memory_size))
        numbers, lengths = torch.tensor([-1.0, 1.0]), torch.tensor([2]) if memory_size else None
        seen = tuple(self.normalization.observations(leaves))
        return Batch(seen, masks, actions, -numbers.abs(), numbers, numbers, numbers, lengths=lengths)

    def draw_noise(self, ticks: int) -> Tensor:
        """Noise for the actions of `ticks` ticks, [ticks, B, outputs]."""
        return self.head.noise(ticks, self.env.num_envs, self.generator).to(self.device)

    def corrected(self, stale: Evaluation) -> Evaluation:
        """The transitions of older weights with importance weights; see `corrected`."""
        return corrected(stale, self.network, self.device, gamma=self.options.gamma, gae_lambda=self.options.gae_lambda)

    @abstractmethod
    def evaluate(self) -> Evaluation:
        """Log-probabilities, values, advantages and returns of the rollout's transitions; called once per rollout."""

    @abstractmethod
    def update(self, batch: Batch, largest: int) -> Metrics:
        """The gradient steps of an update; means of the metrics.

        Args:
            batch: on the device.
            largest: transitions of the worker that has the most, which all workers agree on.
        """

    def learned(self) -> Iterator[Metrics]:
        """Learns from the complete rollout: yields the metrics of each update when it is made, and ends with the last.

        This is one update. Without a barrier rank 0 makes one whenever it has a rollout of each worker, perhaps none
        now or several; the others make none and take the newest weights.
        """
        if (samples := self.group.async_samples) is not None:
            yield from self._learned_without_barrier(samples)
            return
        self.normalization.observe(self.group, self.rollout)
        metrics = self.learn_from(self.evaluate().complete(self.sequence_length))
        self.normalization.advance()
        yield metrics

    def learn_from(self, batch: Batch) -> Metrics:
        """One update of the group's weights from one batch per worker, empty ones included; a collective."""
        moments = self.group.moments_of(**{name: values.numpy() for name, values in batch.standardizable().items()})
        if moments["advantages"].count == 0:
            return {}
        batch = batch.weighted(moments)
        batch = batch.standardized(moments) if self.options.normalize_advantage else batch
        if self.pools_samples:
            if (gathered := self.group.gather(batch.to_samples())) is not None:
                batch = Batch.cat([Batch.from_samples(part) for part in gathered])
            metrics = self.update_at_rank_0(lambda: self.update(batch.to(self.device), batch.size))
        else:
            metrics = self.update(batch.to(self.device), moments["advantages"].max_count)
        return metrics | _described(moments)

    def _learned_without_barrier(self, samples: AsyncSamples) -> Iterator[Metrics]:
        """Hands a rollout over; rank 0 learns from all that has come, the others take its newest weights."""
        rollout, normalization = self.rollout, self.normalization
        own = joined([[tuple(one) for one in normalization.describe(rollout)]], self.group.policy)
        with normalization.with_statistics(own):  # evaluated as the policy that has played it sees it
            evaluation = self.evaluate()
        slots = rollout.ticks * rollout.rows  # not transitions, as the number of rows that act differs
        samples.put({"statistics": [tuple(one) for one in own], **evaluation.to_samples()}, slots)
        for parts in self.parts_without_barrier(samples):
            normalization.update(joined([part["statistics"] for part in parts], self.group.policy))
            found = [Evaluation.from_samples(part) for part in parts]
            found = [self.corrected(one) if lag else one for one, lag in zip(found, samples.lags, strict=True)]
            batch = Batch.cat([one.complete(self.sequence_length) for one in found])
            metrics: Metrics = {}
            if batch.size:
                moments = {name: _moments(values) for name, values in batch.standardizable().items()}
                batch = batch.weighted(moments)
                batch = batch.standardized(moments) if self.options.normalize_advantage else batch
                metrics = self.update(batch.to(self.device), batch.size) | _described(moments)
                metrics.update(lags_of(samples))
            normalization.advance()
            samples.publish(self.acting_state())
            yield metrics

    def acting_state(self) -> dict[str, Any]:
        return {"network": to_arrays(self.network.state_dict()), "normalization": self.normalization.state_dict()}

    def load_acting_state(self, state: Mapping[str, Any]) -> None:
        load_weights(self.network, state["network"])
        self.normalization.load_state_dict(state["normalization"])

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: the part of a rollout that it has played; empty where there is none.

        Without a barrier also the weights that have played it and, at rank 0, the samples that wait.
        """
        own, samples = self.rollout.state_dict(), self.group.async_samples
        if own:
            own["normalization"] = self.normalization.worker_state_dict()
            if samples is not None and not self.group.is_root:
                own["weights"] = self.acting_state()
        if samples is not None and (self.group.is_root or own):
            own["fragments"] = samples.state_dict()
        return own

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that part, if the seat has as many rows, and the rollout at least as many ticks, as it had."""
        rollout = self.rollout
        if "rewards" in state:
            rollout.load_state_dict(state)
        if rollout.played:
            self.normalization.load_worker_state_dict(state["normalization"])
        if self.group.async_samples is not None:
            if rollout.played and "weights" in state:
                self.load_acting_state(state["weights"])
            if "fragments" in state and (self.group.is_root or rollout.played):
                self.group.async_samples.load_state_dict(state["fragments"])

    def has_gradient_by_hand(self, written_for: type[OnPolicy]) -> bool:
        """Whether the derivative in the file of `written_for` is that of this algorithm's loss: the same loss, of plain
        perceptrons, on the CPU. It equals autograd, and a whole run takes 1.6 to 1.9 times less CPU time.
        """
        kind = type(self)
        same = all(getattr(kind, name, None) is getattr(written_for, name, None) for name in ("loss", "losses"))
        return same and not self.network.encoder.learns and self.device.type == "cpu"

    def units_seen(self, leaves: Sequence[Any]) -> Tensor | None:
        """The number of units that transitions [N] saw, from their leaves; None in games without units."""
        space = self.env.single_observation_space
        return units_of(space, leaves) if isinstance(space, UnitSpace) else None

    def inputs(self) -> StateInputs:
        """The network's inputs of the rollout."""
        rollout = self.rollout
        seen = (rollout.flat()[0], rollout.leaves(rollout.ticks), rollout.final_leaves())
        return StateInputs(*(self.normalization.observations(leaves) if leaves else leaves for leaves in seen))

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], Any]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has its own random stream, so that its use changes nothing in a run. Greedy: the most probable actions.
        The function of a recurrent policy plays one environment from its reset on; a row's memory is cleared when the
        infos say that its episode has ended.
        """
        generator = stream(self.group.seed, ACTING)
        space, head = self.env.single_observation_space, self.head
        recollection = RecurrentState(self.network.encoder.memory_size)

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> Any:
            leaves, mask = (
                to_leaves(space, observations, double=self.double),
                to_mask(fields_of(infos).action_mask, head.mask_size),
            )
            seen = self.normalization.observations(recollection.beside(leaves, infos))
            policy, memory = self.network.act(moved(seen, self.device), moved(mask, self.device))
            recollection.keep(memory, infos)
            noise = head.noise(1, len(leaves[0]), generator)[0]
            actions = policy.mode() if greedy else policy.sample(moved(noise, self.device))
            return head.to_env(actions.cpu().numpy())

        return act

    def exported(self) -> Exported:
        """The actor for `arena export`; of a recurrent policy also the memory after a tick."""

        def outputs(network: ActorCritic, inputs: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
            features, memory = network.encoder.ticked(inputs)
            found: Tensor = network.actor(network.encoder.parted(features).actor)
            return found if memory is None else (found, memory)

        head = self.head
        more: dict[str, Any] = (
            {"log_std": numbers(head.log_std.tolist()), **head.scale_words()} if isinstance(head, BoxHead) else {}
        )
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, **more),
            outputs=outputs,
            normalization=self.normalization.observations,
            memory_size=self.network.encoder.memory_size,
        )

    def served(self) -> Served:
        """The function that chooses actions for served games, with the current weights."""
        space, head, size = self.env.single_observation_space, self.head, self.network.encoder.memory_size

        @torch.inference_mode()
        def act(
            observations: Any, masks: NDArray[np.int8] | None, memory: NDArray[np.float32], random: Random
        ) -> tuple[Any, NDArray[np.float32]]:
            leaves, mask = to_leaves(space, observations, double=self.double), to_mask(masks, head.mask_size)
            seen = self.normalization.observations([*leaves, torch.from_numpy(memory)] if size else leaves)
            policy, after = self.network.act(moved(seen, self.device), moved(mask, self.device))
            if random is None:
                actions = policy.mode()
            else:
                noise = torch.cat([head.noise(1, 1, generator)[0] for generator in torch_generators(random)])
                actions = policy.sample(moved(noise, self.device))
            return head.to_env(actions.cpu().numpy()), memory if after is None else after.cpu().numpy()

        return Served(size, act)

    @torch.inference_mode()
    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None) -> NDArray[np.float64]:
        """Log-probabilities, or log-densities, [N] of the actions of one episode, in its order, by the current weights.

        A number of a Box action that lies on its bound has the probability of all that is clipped to it.

        Args:
            observations: a batched sample [N, ...].
            actions: [N, ...] as the environment takes them.
            masks: [N, mask_size] the choices that were allowed; None: all.
        """
        leaves = to_leaves(self.env.single_observation_space, observations, double=self.double)
        mask = to_mask(masks, self.head.mask_size)
        if memory_size := self.network.encoder.memory_size:
            leaves.append(torch.zeros(len(leaves[0]), memory_size))
        seen = moved(self.normalization.observations(leaves), self.device)
        policy = self.network.policy(seen, moved(mask, self.device), torch.tensor([len(leaves[0])]))
        log_probs = self.head.env_log_prob(policy, moved(self.head.from_env(actions), self.device))
        found: NDArray[np.float64] = log_probs.double().cpu().numpy()
        return found

    @torch.inference_mode()
    def state_value(self, observations: Any) -> NDArray[np.float64] | None:
        """V [N] of a batched sample [N, ...] by the current weights; None if the critic sees more than that.

        Of a policy with `normalize_rewards` these are values of normalized rewards.
        """
        encoder = self.network.encoder
        if getattr(encoder, "critic_features", None) is not None or encoder.memory_size:
            return None
        leaves = to_leaves(self.env.single_observation_space, observations, double=self.double)
        values = values_of(self.network, self.normalization.observations(leaves), self.device)
        found: NDArray[np.float64] = values.double().numpy()
        return found


def _moments(values: Tensor) -> Moments:
    """Moments of one worker's values, to the bit those of `Group.moments_of` in a group of one."""
    held = values.double().numpy()
    if not held.size:
        return Moments(0.0, 0.0, 0, 0)
    mean = float(held.mean())
    return Moments(mean, math.sqrt(float(((held - mean) ** 2).sum()) / held.size), held.size, held.size)


def _described(moments: Mapping[str, Moments]) -> Metrics:
    """The share of the returns' variance that the values explain (return - value = advantage); counts of units."""
    errors, returns = moments["advantages"].std, moments["returns"].std
    explained = 1 - (errors / returns) ** 2 if returns > 0 else math.nan
    return {"explained_variance": explained, **{name: moments[name].mean for name in COUNTS if name in moments}}
