"""What on-policy algorithms share: a worker that learns from what the current policy has just played, and from it once.

    collect    T ticks with the current policy                                  -> rollout
    judge      log-probabilities, values and advantages (arXiv 1506.02438)      -> batch of transitions
    learn      the algorithm's own part: `optimize`, together with the group's other workers

While collecting only the actor runs: values and log-probabilities of the whole rollout come from one pass after it.
How the group learns is its `sync`:

    gradients  every worker steps on the mean gradient over all workers' minibatches, weighted by their sizes
    samples    the group's root learns from everybody's transitions, then the others take its weights

On one full batch the two are the same. Where the group has `fragments`, samples are pooled without a barrier: each
worker judges what it has played with the weights that it has played with, hands it over and goes on with the newest
weights that it has heard of; the root learns whenever as much has come as all workers play together in a rollout.

What is decided around a collective (how many minibatches, when to stop) is
decided on values that all workers agree on. Where a leg of the run ends in the middle of a rollout, each worker keeps
its part of it as its own state and goes on with it in the next leg.

A recurrent policy (`policies.networks.recurrent`) remembers: what its rows remember is recorded beside what they see,
and it learns from sequences of transitions instead of single ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena.errors import BudgetReached, ConfigError
from policies.common.adam import Adam
from policies.common.algorithm import Average, Figures, Learner, alone, check_autoreset
from policies.common.devices import moved
from policies.common.gae import Advantages, Trajectories, advantages_of
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
from policies.common.rng import ACTING, EXPLORING, stream
from policies.common.rollout import Batch, Rollout, from_samples, to_leaves, to_mask, to_samples
from policies.common.tensors import load_weights, to_arrays, to_tensors
from policies.networks.actor_critic import ActorCritic, Encoder
from policies.networks.heads import BoxHead, action_head
from policies.networks.recurrent import Recollection, RecurrentEncoder, chopped

if TYPE_CHECKING:
    from arena.group.async_samples import AsyncSamples
    from arena.group.group import Group

_ROLLOUT = 2048  # transitions of the group in a rollout with `n_steps: auto`
_SHORTEST = 32  # ticks that such a rollout has at least, however many rows play,
_UPDATES = 8  # unless the run were too short for as many rollouts
_CHUNK = 1024  # transitions judged at once: bounds the memory that images need

MEMORY = ("recurrent", "hidden_size", "sequence_length")
"""The options of a policy that remembers."""

Given = TypeVar("Given", bound="OnPolicyOptions")


class OnPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any on-policy algorithm; each redeclares what it has other defaults for.

    Raises:
        ConfigError: a value of the wrong kind or out of its range.
    """

    learning_rate: NonNegative = 3e-4  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-5  # Adam's epsilon: weights whose gradients are smaller than this move less
    n_steps: Count | Auto = AUTO  # ticks per rollout; auto: 2048 transitions of the group, in at least 32 ticks
    gamma: Fraction = 0.99  # discount per transition
    gae_lambda: Fraction = 0.95  # how far advantages look ahead: 0 one step, 1 to the end
    ent_coef: NonNegative = 0.0  # weight of the entropy bonus
    vf_coef: NonNegative = 0.5  # weight of the value loss
    max_grad_norm: Positive | None = 0.5  # longest gradient that is stepped on; null: any
    normalize_advantage: bool = True  # to mean 0 and deviation 1 over all the group's transitions
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    normalize_rewards: bool = False  # divided by the deviation of the discounted return
    clip_observations: Clip | None = 10.0  # how far from 0 a normalised number may be; null: any distance
    clip_rewards: Clip | None = 10.0  # the same of a normalised reward
    hidden_sizes: Sizes = (64, 64)  # layers of the actor, and of the critic
    activation: Activation = "tanh"  # tanh or relu
    log_std_init: LogStd = 0.0  # initial logarithm of the deviation of Box actions
    recurrent: Recurrent | None = None  # lstm or gru: a layer with memory before actor and critic; null: none
    hidden_size: Count = 64  # units of that layer
    sequence_length: Count = 16  # transitions at most that gradients go back through in time
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


class Sights(NamedTuple):
    """What the network judges of a rollout: leaves as it takes them."""

    played: list[Tensor]  # [T * B, ...] of all ticks, tick by tick
    last: list[Tensor]  # [B, ...] after the last tick
    finals: list[Tensor]  # [K, ...] of episodes that were cut, as `Rollout.final_leaves`; empty where none was


@dataclass(frozen=True)
class Spread:
    """Mean, deviation and number of some values."""

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Spread:
        """Of one worker's, to the bit what `Group.moments_of` finds in a group of one."""
        held = values.double().numpy()
        if not held.size:
            return cls(0.0, 0.0, 0)
        mean = float(held.mean())
        return cls(mean, math.sqrt(float(((held - mean) ** 2).sum()) / held.size), held.size)


class OnPolicy(Learner, ABC, Generic[Given]):
    """One worker of a policy that learns on-policy; an algorithm adds `optimize`, `minibatches` and `backward`.

    Args:
        env: a vector environment that resets on the same step; `infos["active"]` marks the rows that act next and
            `infos["action_mask"]` what they may do, where there is such a thing.
        group: the workers of this policy.
        ticks: the whole run's budget; the learning-rate schedule ends with it.
        options: the fields of the class's `Options`.

    Raises:
        ConfigError: an option or a space that the algorithm cannot take.
    """

    face = "vector"
    schedule = "ticks"  # all workers meet after each rollout, which has a fixed number of ticks
    Options: ClassVar[type[OnPolicyOptions]]
    refused_options: ClassVar[tuple[str, ...]] = ()  # those of `Options` that the algorithm inherits and cannot use
    measured: ClassVar[tuple[str, ...]]  # the names of what `backward` returns
    options: Given

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.options = self.options.settled(rows=group.rows or env.num_envs, workers=group.size, ticks=ticks)
        self.n_steps = int(self.options.n_steps)
        self.head = action_head(env.single_action_space, log_std_init=self.options.log_std_init)
        if not isinstance(self.head, BoxHead):
            check_idle(self.options, "log_std_init", where=f"the actions are {env.single_action_space}")
        self.network = self._network().to(self.device)
        self.optimizer = Adam(self.network, epsilon=self.options.adam_epsilon)
        self.generator = stream(group.seed, EXPLORING)  # all that this worker draws: exploration and shuffling
        self.updates = self.ticks_done = 0
        self.normalization = Normalization(env.single_observation_space, env.num_envs, self.options)
        self.rollout = self._rollout()

    def _rollout(self) -> Rollout:
        size = self.network.encoder.memory_size
        space, rows = self.env.single_observation_space, self.env.num_envs
        return Rollout(space, self.head, ticks=self.n_steps, rows=rows, memory_size=size)

    def _network(self) -> ActorCritic:
        given, generator = self.options, torch.Generator().manual_seed(self.group.shared_seed)
        layers: dict[str, Any] = {
            "hidden_sizes": given.hidden_sizes,
            "activation": given.activation,
            "generator": generator,
        }
        return self.build(self._encoder(generator), layers)

    def build(self, encoder: Encoder, layers: Mapping[str, Any]) -> ActorCritic:
        """What is learnt; layers: the other arguments of `ActorCritic`."""
        return ActorCritic(encoder, self.head, **layers)

    def _encoder(self, generator: torch.Generator) -> Encoder:
        space, given = self.env.single_observation_space, self.options
        if given.recurrent is None:
            return Encoder(space, generator)
        return RecurrentEncoder(space, kind=given.recurrent, hidden_size=given.hidden_size, generator=generator)

    # ---------------------------------------------------------------------------------------------- the whole loop

    def run(self) -> None:
        """Collects and learns until the environment raises `BudgetReached`."""
        check_autoreset(self.env, type(self).__name__)
        _check_budget(self.n_steps, self.ticks)
        self._begin()
        rollout = self.rollout
        rollout.begin(*self.env.reset())
        while True:
            self.collect(rollout)
            done = self.ticks_done + self.n_steps
            for figures in self._updates(rollout):
                self.ticks_done = done
                self.updates += 1
                self.record(figures)
            self.ticks_done = done
            rollout.advance()

    def _begin(self) -> None:
        """All workers begin with the root's weights; but one that goes on with a part of a rollout ends it first."""
        if self.group.async_samples is None:
            self.group.broadcast(self.network)
        elif self.group.is_root:
            self.group.async_samples.publish(self._weights())

    def _updates(self, rollout: Rollout) -> Iterator[Figures]:
        """Learns from a rollout; what was measured in each update: one, or where nobody waits none or several."""
        if self.group.async_samples is not None:
            yield from self._learn_as_it_comes(rollout, self.group.async_samples)
            return
        self.normalization.see(self.group, rollout)
        figures = self.learn(self.judge(rollout))
        self.normalization.advance()
        yield figures

    @torch.inference_mode()
    def collect(self, rollout: Rollout) -> None:
        """Plays the rollout's ticks, those that are left of it, with the current policy."""
        first = rollout.played
        noise = (
            self.head.noise(rollout.ticks - first, rollout.rows, self.generator).to(self.device).unbind()
        )  # per tick
        blocks = getattr(self.env, "blocks", ())  # an environment of the arena may have several
        if len(blocks) > 1:
            self._collect_in_turns(rollout, noise, blocks)
            return
        for t in range(first, rollout.ticks):
            actions = self._choose(rollout, noise[t - first], t)
            rollout.add(t, actions, *self.env.step(self.head.to_env(actions)))
            rollout.played = t + 1

    def _collect_in_turns(self, rollout: Rollout, noise: Sequence[Tensor], blocks: Sequence[Any]) -> None:
        """The same for blocks of rows: while this worker thinks about one, the environment steps the other."""
        actions: list[NDArray[Any]] = [np.empty(0)] * len(blocks)  # of each block, on the tick that is under way
        first = rollout.played

        def take(t: int, index: int) -> None:
            if t >= first:
                rollout.add(t, actions[index], *blocks[index].step_wait(), rows=blocks[index].rows)
            rollout.played = max(rollout.played, t + (index == len(blocks) - 1))

        for t in range(first, rollout.ticks + 1):
            for index, block in enumerate(blocks):
                take(t - 1, index)
                if t == rollout.ticks:
                    continue
                try:
                    actions[index] = self._choose(rollout, noise[t - first][block.rows], t, block.rows)
                    block.step_async(self.head.to_env(actions[index]))
                except BudgetReached:
                    for later in range(index + 1, len(blocks)):  # which have played this tick as well
                        take(t - 1, later)
                    raise

    def _choose(self, rollout: Rollout, noise: Tensor, t: int, rows: slice = slice(None)) -> NDArray[Any]:
        """Actions of some rows on tick `t`, as learnt from. A row's noise is the same however the rows are cut."""
        leaves, mask = self.normalization.observations(rollout.leaves(t, rows)), rollout.mask(t, rows)
        policy, memory = self.network.act(self._here(leaves), self._here(mask))
        if memory is not None:
            rollout.remember(t, memory.cpu(), rows)
        return policy.sample(noise).cpu().numpy()

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> Batch:
        """What the rollout's transitions were worth: a batch on the CPU.

        Raises:
            FloatingPointError: a reward is no finite number.
        """
        _, masks, actions = rollout.flat()
        sights = self.sights(rollout)
        leaves, last, finals = sights
        log_probs, values = self._log_probs_and_values(self.network, leaves, masks, actions)
        all_values = torch.cat([values, self._values(last)]).view(-1, rollout.rows)
        seen = rollout.trajectories(all_values.numpy(), self._values(finals).numpy())
        seen = seen._replace(rewards=self.normalization.rewards(rollout.rewards))
        largest = torch.from_numpy(np.abs(seen.rewards)).max().float()  # what float32 does not hold is not finite
        self._check_finite({"largest_reward": float(largest)})
        found = advantages_of(seen, gamma=self.options.gamma, gae_lambda=self.options.gae_lambda)
        advantages = torch.from_numpy(found.advantages).float().flatten()
        returns = torch.from_numpy(found.returns).float().flatten()
        batch = Batch(tuple(leaves), masks, actions, log_probs, values, advantages, returns)
        return self._complete(self.judge_more(batch, rollout, sights, seen), seen, found)

    def judge_more(self, batch: Batch, rollout: Rollout, sights: Sights, seen: Trajectories) -> Batch:
        """The batch of all ticks' rows, with what an algorithm wants to know beside that."""
        return batch

    def sights(self, rollout: Rollout) -> Sights:
        """What the network judges: all that was seen, normalised."""
        seen = (rollout.flat()[0], rollout.leaves(rollout.ticks), rollout.final_leaves())
        return Sights(*(self.normalization.observations(leaves) if leaves else leaves for leaves in seen))

    def _complete(self, batch: Batch, seen: Trajectories, found: Advantages) -> Batch:
        """The complete transitions of a rollout's ticks; a recurrent policy's as sequences."""
        if self.options.recurrent is not None:
            return chopped(batch, found.valid, seen.terminated | seen.truncated, self.options.sequence_length)
        return batch if found.valid.all() else batch.take(torch.from_numpy(np.flatnonzero(found.valid)))

    def learn(self, batch: Batch) -> Figures:
        """One update of the group's weights from one batch per worker, empty ones included; a collective."""
        found = self.group.moments_of(**{name: values.numpy() for name, values in self.described(batch).items()})
        if found["advantages"].count == 0:
            return {}
        batch = self.normalized(batch, {name: Spread(one.mean, one.std, one.count) for name, one in found.items()})
        most = found["advantages"].most
        by_samples = self.group.sync == "samples"
        figures = self._learn_from_samples(batch) if by_samples else self._learn_from_gradients(batch, most)
        return {**figures, **self._explained(found["advantages"].std, found["returns"].std)}

    def described(self, batch: Batch) -> dict[str, Tensor]:
        """The numbers [N] of a batch whose mean and deviation over all that is learnt from are asked for."""
        return {"advantages": batch.advantages, "returns": batch.returns}

    def normalized(self, batch: Batch, found: Mapping[str, Spread]) -> Batch:
        """The batch as it is learnt from, with what is known of the numbers that are `described`."""
        if not self.options.normalize_advantage:
            return batch
        errors = found["advantages"]
        return batch._replace(advantages=(batch.advantages - errors.mean) / (errors.std + 1e-8))

    def _explained(self, errors: float, spread: float) -> Figures:
        """What share of the returns' variance the values explain: return - value = advantage."""
        explained = 1 - (errors / spread) ** 2 if spread > 0 else math.nan
        return {"explained_variance": explained, "learning_rate": self.learning_rate}

    def record(self, figures: Figures) -> None:
        """Tells the group what this update was like, and checks and saves what it has led to; a collective.

        Where nobody waits for anybody, the root alone has made the update, and there is nothing to be checked.
        """
        self.group.log(**figures)
        if (
            self.group.async_samples is None
            and self.options.check_every
            and self.updates % self.options.check_every == 0
        ):
            self.group.check_equal(self.network)
        self.group.save(self.state_dict)

    # ------------------------------------------------------------------------------------------ learning as a group

    def _learn_from_gradients(self, batch: Batch, largest: int) -> Figures:
        minibatches = self.minibatches(largest)  # of the largest batch: as many at every worker
        return self.optimize(batch.to(self.device), minibatches, self.group.average_gradients)

    def _learn_from_samples(self, batch: Batch) -> Figures:
        gathered = self.group.gather(to_samples(batch))
        figures: Figures = {}
        if gathered is not None:
            pooled = from_samples(gathered)
            minibatches = self.minibatches(pooled.size, workers=self.group.size)
            figures = self.optimize(pooled.to(self.device), minibatches, alone)
        self.group.broadcast(self.network)
        return self.group.share(figures) or {}  # nothing where the root has left: then nobody learns any more

    def _learn_as_it_comes(self, rollout: Rollout, fragments: AsyncSamples) -> Iterator[Figures]:
        """Hands a rollout over; the root learns from all that has come, the others take up its newest weights."""
        slots = self.n_steps * rollout.rows  # counted, as who acts on how many of them differs
        fragments.offer(self._fragment(rollout), slots)
        if not self.group.is_root:
            self._take_up(fragments.latest())
            return
        while (parts := fragments.take(slots * self.group.size)) is not None:
            figures = self._learn_from_fragments(parts)
            fragments.publish(self._weights())
            yield figures

    def _fragment(self, rollout: Rollout) -> dict[str, Any]:
        """What this worker's rollout has to say, as the policy judges it that has played it."""
        found = joined([[tuple(one) for one in self.normalization.describe(rollout)]], self.group.policy)
        with self.normalization.knowing(found):
            batch = self.judge(rollout)
        return {"statistics": [tuple(one) for one in found], "batch": to_samples(batch)}

    def _learn_from_fragments(self, parts: Sequence[Mapping[str, Any]]) -> Figures:
        """The root's update from what several workers, or one several times, have handed over."""
        self.normalization.take_in(joined([part["statistics"] for part in parts], self.group.policy))
        batch = from_samples([part["batch"] for part in parts])
        figures: Figures = {}
        if batch.size:
            found = {name: Spread.of(values) for name, values in self.described(batch).items()}
            batch = self.normalized(batch, found).to(self.device)
            figures = self.optimize(batch, self.minibatches(batch.size, workers=self.group.size), alone)
            figures |= self._explained(found["advantages"].std, found["returns"].std)
        self.normalization.advance()
        return figures

    def _weights(self) -> dict[str, Any]:
        """What a worker needs to play as this one does."""
        return {"network": to_arrays(self.network.state_dict()), "normalization": self.normalization.state_dict()}

    def _take_up(self, weights: Mapping[str, Any] | None) -> None:
        """Plays on with other weights, if there are any."""
        if weights is not None:
            load_weights(self.network, weights["network"])
            self.normalization.load_state_dict(weights["normalization"])

    @abstractmethod
    def minibatches(self, transitions: int, *, workers: int = 1) -> int:
        """Into how many minibatches so many transitions, of one worker or of several, are split."""

    @abstractmethod
    def optimize(self, batch: Batch, minibatches: int, average: Average) -> Figures:
        """The gradient steps of one update, the same number at all workers; what was measured on the way.

        Args:
            batch: of this worker, on the device; with `sync: samples` of all.
            minibatches: how many to split it into; the same at all workers.
            average: makes the workers' gradients and figures one.
        """

    @abstractmethod
    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of a minibatch's loss to `grad` of the weights; returns the `measured` of it."""

    def gradients(self, minibatch: Batch, average: Average) -> Figures:
        """Leaves the group's mean gradient in the optimiser; the group's mean figures.

        Raises:
            FloatingPointError: a figure is no finite number.
        """
        self.optimizer.zero_grad()
        values = self.backward(minibatch) if minibatch.size else torch.zeros(len(self.measured))
        own = dict(zip(self.measured, values.tolist(), strict=True))  # zeros weigh nothing
        figures = average([self.optimizer.vector], weight=float(minibatch.size), **own)
        self._check_finite(figures)
        return figures

    def _check_finite(self, figures: Figures) -> None:
        """Stops before what is no number makes every weight so."""
        if not all(map(math.isfinite, figures.values())):
            raise FloatingPointError(
                f"policy {self.group.policy!r}: update {self.updates + 1} measured {figures}; are all rewards and "
                "observations finite, and of moderate size? If they are, lower learning_rate"
            )

    def step(self) -> None:
        """Moves the weights down the gradient that is in the optimiser, shortened to `max_grad_norm`.

        Raises:
            FloatingPointError: the gradient is no finite number; no weight was touched.
        """
        longest = self.options.max_grad_norm
        length = self.optimizer.clip(math.inf if longest is None else longest)
        self._check_finite({"gradient_length": length})
        self.optimizer.step(self.learning_rate)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the update that comes next."""
        if self.options.learning_rate_schedule == "constant":
            return self.options.learning_rate
        return self.options.learning_rate * max(0.0, 1 - self.ticks_done / self.ticks)

    # --------------------------------------------------------------------------------------- what the network says

    def _log_probs_and_values(
        self, network: ActorCritic, leaves: Sequence[Tensor], masks: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values [N] of all transitions, on the CPU."""
        log_probs, values = [torch.zeros(0)], [torch.zeros(0)]
        for start in range(0, len(actions), _CHUNK):
            part = slice(start, start + _CHUNK)
            mask = None if masks is None else masks[part]
            policy, value = network.policy_and_value(self._here([leaf[part] for leaf in leaves]), self._here(mask))
            log_probs.append(policy.log_prob(self._here(actions[part])).cpu())
            values.append(value.cpu())
        return torch.cat(log_probs), torch.cat(values)

    def _values(self, leaves: list[Tensor]) -> Tensor:
        """V [N] of leaves, on the CPU; of no leaves, nothing."""
        return self.network.value(self._here(leaves)).cpu() if leaves else torch.zeros(0)

    def _here(self, tensors: Any) -> Any:
        """A tensor, a list of them or None, on the device that learns."""
        return moved(tensors, self.device)

    # ------------------------------------------------------------------------------------------ what others ask for

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has its own random stream, so that its use changes nothing in a run. Greedy: the most probable actions.
        One of a recurrent policy plays one environment from its reset on; a row forgets where the infos say that its
        episode has ended.
        """
        generator = stream(self.group.seed, ACTING)
        space, head = self.env.single_observation_space, self.head
        recollection = Recollection(self.network.encoder.memory_size)

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
            leaves, mask = to_leaves(space, observations), to_mask(infos, head.mask_size)
            seen = self.normalization.observations(recollection.beside(leaves, infos))
            policy, memory = self.network.act(self._here(seen), self._here(mask))
            recollection.keep(memory, infos)
            noise = head.noise(1, len(leaves[0]), generator)[0]
            actions = policy.mode() if greedy else policy.sample(self._here(noise))
            return head.to_env(actions.cpu().numpy())

        return act

    @torch.inference_mode()
    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None) -> NDArray[np.float64]:
        """Log-probabilities, or log-densities, [N] of the actions of one episode, in its order, by the current weights.

        A number of a Box action that lies on its bound has the probability of all that is clipped to it.

        Args:
            observations: a batched sample [N, ...]: what was seen.
            actions: [N, ...] as the environment takes them.
            masks: [N, mask_size] what was allowed; None: everything.
        """
        leaves = to_leaves(self.env.single_observation_space, observations)
        mask = to_mask({"action_mask": masks}, self.head.mask_size)
        encoder = self.network.encoder
        if encoder.memory_size:
            leaves.append(torch.zeros(len(leaves[0]), encoder.memory_size))
        leaves = self.normalization.observations(leaves)
        policy = self.network.policy(self._here(leaves), self._here(mask), torch.tensor([len(leaves[0])]))
        log_probs = self.head.env_log_prob(policy, self._here(self.head.from_env(actions)))
        found: NDArray[np.float64] = log_probs.double().cpu().numpy()
        return found

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on: weights, optimiser, counters. Its workers draw from new streams."""
        return {
            "network": to_arrays(self.network.state_dict()),
            "optimizer": to_arrays(self.optimizer.state_dict()),
            "normalization": self.normalization.state_dict(),
            "updates": self.updates,
            "ticks_done": self.ticks_done,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not this algorithm's, its network has another shape, or has learnt from normalised
                observations while this one's are not, or the other way round.
        """
        self.check_state(state, self.state_dict(), optional=["normalization"])
        load_weights(self.network, state["network"])
        self.optimizer.load_state_dict(to_tensors(state["optimizer"]))
        self.normalization.load_state_dict(state.get("normalization", {}))
        self.updates, self.ticks_done = int(state["updates"]), int(state["ticks_done"])

    def worker_state_dict(self) -> dict[str, Any]:
        """What this worker alone has: what nobody has learnt from; empty where there is none.

        That is the part of a rollout and, where nobody waits for anybody, the weights that have played it, and at the
        root what was handed over.
        """
        part, fragments = self.rollout.state_dict(), self.group.async_samples
        own = {**part, "normalization": self.normalization.worker_state_dict()} if part else {}
        if fragments is not None and part and not self.group.is_root:
            own["weights"] = self._weights()
        if fragments is not None and (waiting := fragments.state_dict()):
            own["fragments"] = waiting
        return own

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with that part, if the seat has as many rows, and the rollout at least as many ticks, as it had."""
        if "rewards" in state:
            self.rollout.load_state_dict(state)
        if self.rollout.played:
            self.normalization.load_worker_state_dict(state["normalization"])
        if self.group.async_samples is not None:
            self._take_up(state.get("weights") if self.rollout.played else None)
            self.group.async_samples.load_state_dict(state.get("fragments", ()))

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows: transitions per update when all rows act, updates per run, what `auto` becomes.

        Raises:
            ConfigError: an option that the algorithm cannot take, or a rollout longer than the run.
        """
        given = cls.Options(**options)
        n_steps = int(given.settled(rows=rows, workers=workers, ticks=ticks).n_steps)
        _check_budget(n_steps, ticks)
        sizes = {"samples per update": n_steps * rows * workers, "updates per run": ticks // n_steps}
        return {"ticks per rollout": n_steps, **sizes} if given.n_steps == AUTO else sizes


def _check_budget(n_steps: int, ticks: int) -> None:
    if n_steps > ticks:
        raise ConfigError(
            f"a rollout of {n_steps} ticks does not fit into a run of {ticks}, so nothing would be learnt; "
            f"set n_steps to {ticks} or less, or ticks to {n_steps} or more",
            path="options.n_steps",
        )
