"""Hierarchical PPO: a manager picks one of a few options for some ticks; a worker sees the option and acts.

    manager   what a row sees             --> one of `n_options`, whenever the last one is over
    worker    what it sees and the option --> an action, on every tick

An option lasts for `option_ticks` of the row's own actions, or until its episode ends (options of fixed length, Sutton
et al. 1999, doi 10.1016/S0004-3702(99)00052-1). For the manager it is one transition of a slower game, a semi-Markov
decision process. With k, the number of actions that the option has lasted,

    r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1)     is its reward; r_j is what came after its action j
    gamma^k                                         discounts what comes after it

so that the returns of both levels are the same quantity. In terms of `policies.common.rollout` the manager acts where
it decides, and its advantages are those of a game in turns, with `gae_lambda` counted once per option; it does not
learn from an option that is not over at the rollout's end. A rollout should have many options, best a whole number of
them.

Both learn from the same rollout, by the loss of `policies.ppo`, with one optimizer and in one exchange:

    loss = mean of the worker's over N transitions + option_ticks / N * sum of the manager's over its decisions

The second term is a mean over decisions if every option lasts `option_ticks`. Where an option is over and the next one
is not picked yet, the worker's value is the mean over all options, weighted by the manager's probabilities.

With `encoder` or `recurrent` manager and worker have such an encoder, or memory, each. Both memories advance on every
tick on which the row acts, so that the manager remembers also what was seen within an option; in sequences the
manager's gradient goes back through these ticks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from arena.errors import ConfigError
from arena.game.infos import fields_of
from policies import ppo
from policies.common import average
from policies.common.algorithm import ACTING, Metrics, moved, stream
from policies.common.on_policy import drawn
from policies.common.options import Count, Positive, wrong
from policies.common.rollout import (
    Batch,
    Evaluation,
    Flags,
    Floats,
    Rollout,
    Rows,
    StateInputs,
    advantages_of,
    evaluate_network,
    values_of,
)
from policies.networks.actor_critic import ActorCritic, Encoder
from policies.networks.heads import ActionHead, DiscreteHead
from policies.ppo import PPO

UNDECIDED = -1  # no option: the manager picks one when the row acts next


class Options(ppo.Options, frozen=True, kw_only=True):
    """What a configuration may say about hierarchical PPO."""

    n_steps: Count = 128  # ticks per rollout
    minibatch_size: Count = 256  # transitions per worker in one gradient step, at most
    n_epochs: Count = 4  # passes over each rollout
    n_options: Count = 4  # what the manager can pick
    option_ticks: Count = 8  # actions that an option lasts, if the episode does not end before
    target_kl: Positive | None = None  # an update stops when worker's or manager's KL exceeds 1.5 x this; null: never

    REFUSED = {
        "transformer": "its networks see no units; or take ppo",
        "batch_mode": "the manager's decisions are those of one rollout; or take ppo",
        "cuda_graphs": "the number of the manager's decisions varies; or take ppo",
        **dict.fromkeys(average.OPTIONS, "the manager's decisions have no average; or take ppo"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.option_ticks > int(self.n_steps):
            raise wrong("option_ticks", self.option_ticks, f"{self.n_steps} at most: a rollout of n_steps ends before")


# ------------------------------------------------------------------------------------------------- which option it is


class OptionState(NamedTuple):
    """The option that each row is playing, [B] each."""

    options: NDArray[np.int64]  # or UNDECIDED
    ages: NDArray[np.int64]  # actions that the option has lasted

    @classmethod
    def fresh(cls, *shape: int) -> OptionState:
        """The state of rows without an option."""
        return cls(np.full(shape, UNDECIDED), np.zeros(shape, np.int64))

    def after(self, played: NDArray[np.int64], active: Flags, option_ticks: int) -> OptionState:
        """The state after the active rows have acted by the options `played`."""
        ages = self.ages + active
        over = ages >= option_ticks
        options = np.where(active, played, self.options)
        return OptionState(np.where(over, UNDECIDED, options), np.where(over, 0, ages))

    def ended(self, rows: Flags) -> OptionState:
        """The same, without an option in `rows`, whose episodes have ended."""
        return OptionState(np.where(rows, UNDECIDED, self.options), np.where(rows, 0, self.ages))


class OptionRollout(Rollout):
    """A rollout that knows which option each row has played; `decide` on tick `t` comes before `add`."""

    def __init__(
        self, space: Space[Any], head: ActionHead, *, ticks: int, rows: int, option_ticks: int, **others: Any
    ) -> None:
        super().__init__(space, head, ticks=ticks, rows=rows, **others)
        self._option_ticks, self.remembers = option_ticks, True
        self.course = OptionState.fresh(ticks + 1, rows)  # before each tick, and after the last one
        self.options = np.zeros((ticks, rows), np.int64)  # that were played
        self._columns |= {"course": self.course.options, "ages": self.course.ages, "options": self.options}

    def decide(self, t: int, picked: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        """The options [B] that rows play on tick `t`: for undecided rows the picked ones."""
        current = self.course.options[t, rows]
        options: NDArray[np.int64] = np.where(current == UNDECIDED, picked, current)
        self.options[t, rows] = options
        return options

    def add(self, t: int, *step: Any, rows: slice = slice(None)) -> None:
        super().add(t, *step, rows=rows)
        _, _, _, terminated, truncated, _ = step
        now = self._following(t, rows).ended(terminated | truncated)
        self.course.options[t + 1, rows], self.course.ages[t + 1, rows] = now

    def advance(self) -> None:
        super().advance()
        for storage in self.course:
            storage[0] = storage[-1]

    def _following(self, t: Any, rows: Any) -> OptionState:
        before = OptionState(self.course.options[t, rows], self.course.ages[t, rows])
        return before.after(self.options[t, rows], self.active[t, rows], self._option_ticks)

    @property
    def final_options(self) -> NDArray[np.int64]:
        """The options of rows at the end of episodes that were cut, or UNDECIDED, [K] as `final_leaves`."""
        return self._following(*self.final_places()).options

    def discounts(self, gamma: float) -> tuple[Floats, Floats]:
        """The discount of a reward in its option, and of what follows the option that begins on a tick, [T, B] each.

        Both are valid only for options that are over by the rollout's end; the second where these begin.
        """
        acted = self.active[:-1].cumsum(0)  # own actions, up to each tick
        begun = np.maximum.accumulate(np.where(self.decides[:-1], acted, 0))
        over = np.where(self.ended | self.decides[1:], acted, acted[-1])
        over = np.minimum.accumulate(over[::-1])[::-1]  # where the option of each tick is
        return gamma ** (acted - begun), gamma ** (over - acted + 1)

    @property
    def decides(self) -> Flags:
        """Whether the manager decides on each tick, and after the last one [T + 1, B]."""
        return self.active & (self.course.options == UNDECIDED)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------ what is learned


class OptionEncoder(Encoder):
    """Leaves, the last of them the option [N], to features, the last of them a one-hot vector.

    `own` encodes the other leaves.
    """

    def __init__(self, own: Encoder, options: int) -> None:
        nn.Module.__init__(self)
        self.own, self.options, self.learns = own, options, own.learns
        self.features = own.features + options

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        return torch.cat([self.own(leaves[:-1]), functional.one_hot(leaves[-1], self.options)], 1)


class Hierarchy(ActorCritic):
    """The worker, and its manager, which sees the observations alone and whose actions are options.

    The memory, where there is one, is the worker's followed by the manager's.
    """

    def __init__(self, encoder: Encoder, head: ActionHead, manager: ActorCritic, **layers: Any) -> None:
        super().__init__(encoder, head, **layers)
        self.manager, self.memory_size = manager, self.memory_size + manager.memory_size

    def joined(self, leaves: Sequence[Tensor], options: Tensor, memory: Tensor | None = None) -> list[Tensor]:
        """The worker's leaves: those of the manager, with the option [N] after the observations.

        `memory`: in the place of the one in these leaves.
        """
        place = len(leaves) - (self.memory_size > 0)
        return [*leaves[:place], options, *(leaves[place:] if memory is None else [memory])]

    def parted(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """The manager's leaves and the option, the inverse of `joined`."""
        place = len(leaves) - 1 - (self.memory_size > 0)
        return [*leaves[:place], *leaves[place + 1 :]], leaves[place]

    def value(self, leaves: Sequence[Tensor]) -> Tensor:
        """V(s, option) [N]; where it is undecided, the mean over all, weighted by the manager's probabilities."""
        seen, options = self.parted(leaves)
        values = super().value(self.joined(seen, options.clamp(min=0)))
        undecided = options == UNDECIDED
        if undecided.any():
            seen = [leaf[undecided] for leaf in seen]
            count, policy = len(seen[0]), self.manager.policy(seen)
            picks = [torch.full((count,), pick, device=seen[0].device) for pick in range(self.manager.head.outputs)]
            likely = torch.stack([policy.log_prob(pick) for pick in picks]).exp()  # [n_options, N]
            each = torch.stack([super(Hierarchy, self).value(self.joined(seen, pick)) for pick in picks])
            values[undecided] = (likely * each).sum(0)
        return values


class HPPO(PPO):
    """One worker of a hierarchical PPO policy."""

    Options = Options
    takes_units = False
    exported = None  # type: ignore[assignment]  # the option of the manager is sampled before the worker acts
    served = None  # type: ignore[assignment]  # its rows have states that `actor()` keeps
    network: Hierarchy
    rollout: OptionRollout
    metric_names = (
        *PPO.metric_names,
        "option_policy_loss",
        "option_value_loss",
        "option_entropy",
        "option_approx_kl",
        "option_decisions",
    )

    def make_network(self, generator: torch.Generator) -> Hierarchy:
        count, layers = self.options.n_options, self.layers(generator)
        self.manager_head = DiscreteHead(spaces.Discrete(count))
        encoder = self.make_encoder(generator, lambda own: OptionEncoder(own, count))
        manager = ActorCritic(self.make_encoder(generator, first=encoder.memory_size), self.manager_head, **layers)
        return Hierarchy(encoder, self.head, manager, **layers)

    def make_rollout(self) -> OptionRollout:
        space, rows, option_ticks = self.env.single_observation_space, self.env.num_envs, self.options.option_ticks
        sizes: dict[str, Any] = {"ticks": self.n_steps, "rows": rows, "option_ticks": option_ticks}
        return OptionRollout(space, self.head, **sizes, memory_size=self.memory_size, double=self.double)

    def made_up_batch(self) -> Batch:
        batch = super().made_up_batch()
        leaves = self.network.joined(batch.observations, torch.zeros(2, dtype=torch.int64))
        return batch.replace(observations=tuple(leaves), decisions=torch.ones(2, 5))

    def draw_noise(self, ticks: int) -> Tensor:
        """Noise for the actions of `ticks` ticks, [ticks, B, outputs]; keeps noise for the options of the rollout."""
        rollout = self.rollout
        self._picking = self.manager_head.noise(rollout.ticks, rollout.rows, self.generator).to(self.device)
        return super().draw_noise(ticks)

    def act(self, t: int, noise: Tensor, rows: Rows) -> NDArray[Any]:
        """Actions of some rows on tick `t`, as learned from; the manager first picks options where one is over."""
        rollout = self.rollout
        leaves, mask = moved(self.preprocess(rollout.leaves(t, rows)), self.device), rollout.mask(t, rows)
        manager, memory = self.network.manager.act(leaves)
        picked = manager.sample(self._picking[t, rows]).cpu().numpy()
        options = moved(torch.from_numpy(rollout.decide(t, picked, rows)), self.device)
        policy, memory = self.network.act(self.network.joined(leaves, options, memory), moved(mask, self.device))
        if memory is not None:
            rollout.remember(t, memory.cpu(), rows)
        return policy.sample(noise).cpu().numpy()

    def inputs(self) -> StateInputs:
        """The worker's inputs of the rollout: observations and options; the manager's are those of PPO."""
        rollout, (played, last, finals) = self.rollout, super().inputs()
        options = (rollout.options.ravel(), rollout.course.options[-1], rollout.final_options)
        pairs = zip((played, last, finals), map(torch.from_numpy, options), strict=True)
        return StateInputs(*(self.network.joined(leaves, part) if leaves else leaves for leaves, part in pairs))

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """As in PPO for the worker, with `decisions` [N, 5] of the manager.

        Columns: 1 where it made a decision whose option is over, log-probability, value, advantage, return; else 0.
        """
        evaluation, rollout, manager = super().evaluate(), self.rollout, self.network.manager
        inputs, decides = super().inputs(), rollout.decides
        before = evaluation.batch.size - rollout.ticks * rollout.rows  # open transitions of the last rollout come first
        where = torch.from_numpy(np.flatnonzero(decides[:-1]))
        leaves, options = self.network.parted([leaf[before + where] for leaf in evaluation.batch.observations])
        log_probs, values = evaluate_network(manager, leaves, None, options, self.device)
        columns = torch.zeros(5, rollout.ticks * rollout.rows)
        columns[1, where], columns[2, where] = log_probs, values
        known = torch.cat([columns[2], values_of(manager, inputs.last, self.device)]).view(-1, rollout.rows)
        turns = rollout.trajectories(known.numpy(), values_of(manager, inputs.finals, self.device).numpy())
        inside, after = rollout.discounts(self.options.gamma)
        rewards = self.normalization.rewards(rollout.rewards)
        turns = turns._replace(rewards=rewards * inside, active=decides[:-1], last_active=decides[-1])
        gae = advantages_of(turns, gamma=after, gae_lambda=self.options.gae_lambda)
        for row, array in ((0, gae.valid), (3, gae.advantages), (4, gae.returns)):
            columns[row] = torch.from_numpy(array).float().flatten()
        columns = torch.cat([torch.zeros(5, before), columns], 1)
        return evaluation._replace(batch=evaluation.batch.replace(decisions=columns.t().contiguous()))

    def update(self, batch: Batch, largest: int) -> Metrics:
        """As of PPO; the manager's divergence is a mean over decisions."""
        metrics = super().update(batch, largest)
        decisions, divergence = metrics.pop("option_decisions"), metrics["option_approx_kl"]
        return {**metrics, "option_approx_kl": divergence / decisions if decisions else math.nan}

    def diverged(self, metrics: Metrics) -> bool:
        """Whether the KL divergence of the worker or of the manager exceeds 1.5 times `target_kl`."""
        limit, decisions = self.options.target_kl, metrics["option_decisions"]
        too_far = limit is not None and metrics["option_approx_kl"] > 1.5 * limit * decisions
        return super().diverged(metrics) or too_far

    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of both losses to `grad` of the weights; returns the means of `metric_names`."""
        if not self.has_gradient_by_hand(HPPO):
            return super().backward(batch)
        metrics = ppo.add_gradient(self.network, batch, self.options, 1 / batch.size).mean(1)
        decisions, share = self.decisions(batch), self.options.option_ticks / batch.size
        if decisions is None:
            return torch.cat([metrics, torch.zeros(5)])
        return torch.cat(
            [metrics, self.of_manager(ppo.add_gradient(self.network.manager, decisions, self.options, share), batch)]
        )

    # perceptrons on the CPU use `ppo.add_gradient`
    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The worker's loss and the manager's, see above, and the means of `metric_names`."""
        loss, metrics = super().loss(batch)
        decisions = self.decisions(batch)
        if decisions is None:
            return loss, torch.cat([metrics, metrics.new_zeros(5)])
        of_manager = self.of_manager(self.losses(self.network.manager, decisions), batch)
        policy_loss, value_loss, entropy, *_ = of_manager
        loss = loss + policy_loss + self.options.vf_coef * value_loss - self.options.ent_coef * entropy
        return loss, torch.cat([metrics, of_manager])

    def decisions(self, batch: Batch) -> Batch | None:
        """The transitions of the manager's decisions, None if there is none; with memory all, in their sequences."""
        made = batch.decisions[:, 0] > 0
        if not made.any():
            return None
        leaves, options = self.network.parted(batch.observations)
        turns = Batch(tuple(leaves), None, options, *batch.decisions[:, 1:].t().contiguous().unbind())
        return turns.take(made.nonzero().squeeze(1)) if batch.lengths is None else turns.replace(lengths=batch.lengths)

    def of_manager(self, losses: Tensor, batch: Batch) -> Tensor:
        """The manager's metrics [5] of losses [5, N] of its `decisions`: terms as in the sum, divergence, decisions.

        The last two are sums per transition: the mean over the group's decisions is the ratio of their means.
        """
        losses = losses if batch.lengths is None else losses[:, batch.decisions[:, 0] > 0]
        *terms, divergence, _ = losses.sum(1)
        decisions = divergence.new_tensor(losses.shape[1])
        share = self.options.option_ticks / batch.size
        return torch.cat([torch.stack(terms) * share, torch.stack([divergence, decisions]) / batch.size])

    # -------------------------------------------------------------------------------------- what the arena asks for

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
        """As `Algorithm.actor`; the function plays one environment from its reset on."""
        draws = None if greedy else stream(self.group.seed, ACTING)
        course, memory = OptionState.fresh(0), torch.zeros(0, self.memory_size)

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
            nonlocal course, memory
            fields = fields_of(infos)
            leaves, mask = self.network_inputs(observations, fields.action_mask)
            rows = len(leaves[0])
            if len(course.options) != rows:
                course, memory = OptionState.fresh(rows), torch.zeros(rows, self.memory_size)
            if fields.ended is not None:
                ended = np.asarray(fields.ended, np.bool_)
                course, memory[torch.from_numpy(ended)] = course.ended(ended), 0.0
            leaves = [*leaves, moved(memory, self.device)] if self.memory_size else leaves
            manager, after = self.network.manager.act(leaves)
            picked = drawn(self.manager_head, manager, rows, draws, self.device).cpu().numpy()
            options = np.where(course.options == UNDECIDED, picked, course.options)
            joined = self.network.joined(leaves, moved(torch.from_numpy(options), self.device), after)
            policy, after = self.network.act(joined, mask)
            active = np.ones(rows, np.bool_) if fields.active is None else np.asarray(fields.active, np.bool_)
            if after is not None:
                memory = torch.where(torch.from_numpy(active)[:, None], after.cpu(), memory)
            course = course.after(options, active, self.options.option_ticks)
            return self.head.to_env(drawn(self.head, policy, rows, draws, self.device).cpu().numpy())  # type: ignore[no-any-return]

        return act

    def state_value(self, observations: Any, memory: Any = None) -> None:
        """Not known: it depends on the manager's option."""

    def log_prob(
        self, observations: Any, actions: Any, masks: NDArray[np.int8] | None, memory: Any = None
    ) -> NDArray[np.float64]:
        """Refused, as the options that were played are not recorded."""
        raise ConfigError(
            "the probability of an action of hppo depends on the manager's option, which samples do not tell; "
            "importance sampling needs a policy without options, such as ppo"
        )
