"""What algorithms do that learn from a replay of what they have seen: a base for one class per algorithm.

    play     `train_every` ticks with exploring actions; the first ones at random      -> experience
    meet     how many transitions has the group collected, how many may it replay?     -> number of gradient steps
    learn    as many steps, each on a minibatch of the replay; targets follow

How the group learns is its `sync`:

    gradients  every worker replays its own transitions and steps on the mean gradient of all workers' minibatches
    samples    the group's root replays everybody's transitions, then the others take its weights

With `gradients` every worker draws `batch_size` transitions, however many it has collected: where seats have unequal
numbers of lanes or entities, what the smaller ones see is replayed more often than what the larger ones do.

`training_intensity` is how many transitions the group replays per transition that it collects, in both and at any
number of workers: more workers learn from more transitions, not longer from each. So a gradient step of N workers has
N times `batch_size` transitions, and `learning_starts` and `buffer_size` count those of the whole group. What is left
of a step stays on the account. All that is decided around a collective is decided on the group's own sums.

Where the group has `fragments`, samples are pooled without a barrier: each worker hands over what it has seen and goes
on with the newest weights that it has heard of; the root learns whenever as much has come as all workers see together
between two meetings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.common.adam import Adam
from policies.common.algorithm import Average, Figures, Learner, alone, check_autoreset
from policies.common.devices import moved
from policies.common.normalization import ObservationNormalizer, Statistics, check_normalization, joined, pooled
from policies.common.nstep import Experience, Fragment
from policies.common.options import (
    AUTO,
    Activation,
    AlgorithmOptions,
    Auto,
    Clip,
    Count,
    Device,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    PositiveFraction,
    Schedule,
    Sizes,
    check_unused,
    wrong,
)
from policies.common.replay import Replay, Transitions
from policies.common.replay_ratio import Intensity
from policies.common.rng import ACTING, EXPLORING, REPLAYING, stream
from policies.common.rollout import to_leaves, to_mask
from policies.common.target import Target
from policies.common.tensors import load_weights, to_arrays, to_tensors

if TYPE_CHECKING:
    from arena.group.async_samples import AsyncSamples
    from arena.group.group import Group

_MINIBATCH = 256  # transitions of the group in a gradient step with `batch_size: auto`,
_LEAST = 64  # but no fewer of each worker

Given = TypeVar("Given", bound="OffPolicyOptions")


class OffPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any of these algorithms; each redeclares what it has other defaults for.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    learning_rate: NonNegative = 3e-4  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-8  # Adam's epsilon: weights whose gradients are smaller than this move less
    buffer_size: Count = 100_000  # observations that the group's replay holds at most; the oldest go first
    learning_starts: Natural = 1_000  # transitions that the group collects with random actions before it learns
    batch_size: Count | Auto = 64  # transitions per worker in one gradient step
    train_every: Count = 4  # ticks between two meetings of the group, at which it learns
    training_intensity: Positive | Auto = AUTO  # transitions that are replayed per transition collected
    gamma: Fraction = 0.99  # discount per transition
    n_step: Count = 1  # rewards that a transition sums before it asks for a value
    prioritized: bool = False  # replay what the values are most wrong about more often
    priority_alpha: Fraction = 0.6  # how much more often: 0 uniform, 1 in proportion to the error
    priority_beta: Fraction = 0.4  # correction of that by importance sampling; rises linearly to 1 over the run
    priority_epsilon: NonNegative = 1e-6  # added to the error, so that everything may be replayed
    tau: PositiveFraction = 1.0  # how far the target networks move to what is learnt; 1: they become a copy
    target_update_interval: Count = 100  # gradient steps between two moves of the target networks
    max_grad_norm: Positive | None = 10.0  # longest gradient that is stepped on; null: any
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    clip_observations: Clip | None = 10.0  # how far from 0 a normalised number may be; null: any distance
    hidden_sizes: Sizes = (64, 64)  # layers of each network
    activation: Activation = "relu"  # tanh or relu
    device: Device = "cpu"  # cpu, cuda, or auto: cuda where there is one
    log_every: Count = 1_000  # ticks between two lines of metrics, rounded up to a meeting

    ALONE: ClassVar[float]  # `training_intensity: auto` of a group with one row
    FALLS: ClassVar[float]  # and the power of the group's rows by which it falls

    def __post_init__(self) -> None:
        super().__post_init__()
        check_normalization(self, "observations")
        for name in ("batch_size", "learning_starts", "n_step"):
            _check_fits(self, name)
        check_unused(self, "priority_alpha", "priority_beta", "priority_epsilon", prioritized=False)
        if self.prioritized and self.priority_epsilon == 0:
            raise wrong("priority_epsilon", 0, "more than 0: what has no error would never be replayed again")
        if self.prioritized and self.priority_alpha == 0:
            raise wrong("priority_alpha", 0, "more than 0 where prioritized is true: else all is replayed as often")

    def settled(self: Given, *, rows: int, workers: int) -> Given:
        """The same options with a number in place of every `auto`.

        Args:
            rows: of the group's worker that has the most.
            workers: of the group.
        """
        numbers: dict[str, Any] = {}
        if self.batch_size == AUTO:
            numbers["batch_size"] = max(_LEAST, -(-_MINIBATCH // workers))
        if self.training_intensity == AUTO:
            numbers["training_intensity"] = max(1, round(self.ALONE / (rows * workers) ** self.FALLS))
        return msgspec.structs.replace(self, **numbers)


class OffPolicy(Learner, ABC):
    """One worker of an off-policy algorithm. A subclass says what is learnt, how it acts and what a step is.

    Args:
        env: a vector environment that resets on the same step; `infos["active"]` marks the rows that act next and
            `infos["action_mask"]` what they may do, where there is such a thing.
        group: the workers of this policy.
        ticks: the whole run's budget; all schedules end with it.
        options: the fields of the class's `Options`.

    Attributes:
        network: all that is learnt, as `build` has made it.
        optimizers: what moves it, by the names under which their states are kept.
        targets: copies that follow, by name.
        generator: this worker's random stream for exploration.
        measured: the names of the figures that every gradient step gives.
        ticks_done: how many ticks of the whole run every match has played.
        gradient_steps: how many the group has made.

    Raises:
        ConfigError: an option or a space that the algorithm cannot take.
    """

    face = "vector"
    schedule = "ticks"  # all workers meet after the same ticks
    Options: ClassVar[type[OffPolicyOptions]]
    measured: ClassVar[tuple[str, ...]]
    options: Any  # of the class's own type

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.options = self.options.settled(rows=group.rows or env.num_envs, workers=group.size)
        self.read_spaces(env.single_observation_space, env.single_action_space)
        self.network = self.build(torch.Generator().manual_seed(group.shared_seed)).to(self.device)
        self.optimizers, self.targets = self.make_optimizers(), {}
        self.targets = self.make_targets()
        self.generator = stream(group.seed, EXPLORING)
        self.ticks_done = self.gradient_steps = 0
        self.intensity = Intensity(self.options.training_intensity, starts=self.options.learning_starts)
        self.normalize = ObservationNormalizer(
            env.single_observation_space,
            clip=self.options.clip_observations,
            enabled=self.options.normalize_observations,
        )
        self.experience = self._experience()
        self.replay = self._replay() if group.sync == "gradients" or group.is_root else None
        self._replaying = stream(group.seed, REPLAYING)
        self._measured: dict[str, list[float]] = {}  # the figures since the last line of metrics

    # ------------------------------------------------------------------------------------- what a subclass says

    action_shape: tuple[int, ...]  # of one action as learnt from
    action_dtype: torch.dtype
    mask_size: int  # of an action mask; 0: the actions have none

    @abstractmethod
    def read_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Sets `action_shape`, `action_dtype`, `mask_size` and what else it wants of the spaces; called first.

        Raises:
            ConfigError: spaces that the algorithm cannot take.
        """

    @abstractmethod
    def build(self, generator: torch.Generator) -> nn.Module:
        """All that is learnt, with the same first weights at every worker."""

    def make_optimizers(self) -> dict[str, Adam]:
        """What moves the parts of `network`; each part has one."""
        return {"optimizer": self.adam(self.network)}

    def adam(self, module: nn.Module) -> Adam:
        """An optimiser as the options say."""
        return Adam(module, epsilon=self.options.adam_epsilon)

    @abstractmethod
    def make_targets(self) -> dict[str, Target[Any]]:
        """The copies that follow parts of `network`; `optimizers` are there already."""

    @abstractmethod
    def act_randomly(self, rows: int, mask: Tensor | None) -> Tensor:
        """Actions [rows, *action_shape] of somebody who has learnt nothing; mask bool [rows, mask_size]."""

    @abstractmethod
    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        """Actions [N, *action_shape] to learn from, for leaves [N, ...] on `device`; draws from `generator`."""

    @abstractmethod
    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions [N, *action_shape] of `actor()`; generator None: the greedy ones."""

    @abstractmethod
    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A batch of actions as the vector environment takes them."""

    @classmethod
    @abstractmethod
    def check_actions(cls, space: Space[Any]) -> None:
        """Whether the algorithm can choose in a space of actions.

        Raises:
            ConfigError: it cannot; the message says why.
        """

    def began(self, rows: NDArray[np.bool_]) -> None:
        """Told after every tick in which rows [B] an episode has ended; noise with a memory forgets it there."""
        return

    def backward(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Adds the gradient of a minibatch's loss to `grad` of the weights, weighted by `batch.weights`.

        Returns:
            what is measured of it, in the order of `measured`, and the temporal-difference errors [N].
        """
        raise NotImplementedError(f"{type(self).__name__} has neither backward() nor gradients() of its own")

    def gradient_step(self, batch: Transitions, average: Average) -> tuple[Figures, Tensor]:
        """One step; the group's mean figures, and this worker's temporal-difference errors [N].

        Every worker has to call `average` equally often (here once, with the vectors of all optimisers), also with an
        empty batch, which weighs 0.
        """
        optimizers = list(self.optimizers.values())
        for optimizer in optimizers:
            optimizer.zero_grad()
        figures, errors = self.gradients(batch)
        figures = average([optimizer.vector for optimizer in optimizers], weight=float(batch.size), **figures)
        self.descend(figures, *optimizers)
        return figures, errors

    def gradients(self, batch: Transitions) -> tuple[Figures, Tensor]:
        """Adds the gradients of all losses to `grad` of the weights; what is measured, and the errors [N].

        An algorithm with one loss says it with `backward`; others have their own `gradients`.
        """
        measured, errors = self.backward(batch) if batch.size else (torch.zeros(len(self.measured)), torch.zeros(0))
        return dict(zip(self.measured, measured.tolist(), strict=True)), errors

    def schedules(self) -> Figures:
        """What is logged beside the figures of the gradient steps."""
        return {"learning_rate": self.learning_rate}

    # ---------------------------------------------------------------------------------------------- the whole loop

    def run(self) -> None:
        """Collects and learns until the environment raises `BudgetReached`."""
        check_autoreset(self.env, type(self).__name__)
        check_budget(self.options, rows=self.transition_rows, ticks=self.ticks, workers=self.learners)
        if self.group.async_samples is None:
            self.group.broadcast(self.network)
        self.experience.begin(*self.env.reset())
        while True:
            self.play()
            if self.ticks_done % self.options.train_every == 0:
                self.meet()

    @property
    def learners(self) -> int:
        """How many of the group have transitions of their own: all workers, where no team of them is one learner."""
        return self.group.size

    @property
    def learner_rank(self) -> int:
        """Which of them this worker is, or belongs to."""
        return self.group.rank

    @property
    def transition_rows(self) -> int:
        """How many transitions one tick gives at most."""
        return self.env.num_envs

    @torch.inference_mode()
    def play(self) -> None:
        """One tick."""
        seen = self.experience
        if self.intensity.begun:
            chosen = self.explore(moved(self.normalize(seen.leaves), self.device), moved(seen.mask, self.device)).cpu()
        else:
            chosen = self.act_randomly(self.env.num_envs, seen.mask)
        actions = chosen.numpy()
        observations, rewards, terminated, truncated, infos = self.env.step(self.to_env(actions))
        seen.add(actions, observations, rewards, terminated, truncated, infos)
        self.began(terminated | truncated)
        self.ticks_done += 1

    def meet(self) -> None:
        """Learns from what has come up to now, and says so from time to time; a collective."""
        fragment = self.experience.cut()
        self._check_rewards(fragment)
        if self.group.async_samples is not None:
            self._learn_as_it_comes(fragment, self.group.async_samples)
        else:
            self.normalize.update(pooled(self.group, self.describe(fragment)))
            learn = self._learn_from_samples if self.group.sync == "samples" else self._learn_from_gradients
            learn(fragment)
        if self.ticks_done % self.options.log_every < self.options.train_every:
            self.record()

    def record(self) -> None:
        """Tells the group what learning was like, and checks and saves what it has led to; a collective.

        Where nobody waits for anybody, the root alone does that, and there is nothing to be checked.
        """
        alone = self.group.async_samples is not None
        if alone and not self.group.is_root:
            return
        figures = {name: float(np.mean(values)) for name, values in self._measured.items()}
        self._measured.clear()
        counts = {"gradient_steps": float(self.gradient_steps), "collected": float(self.intensity.collected)}
        self.group.log(**figures, **self.schedules(), **counts)
        if not alone:
            self.group.check_equal(self.network)
        self.group.save(self.state_dict)

    # ------------------------------------------------------------------------------------------ learning as a group

    def _learn_from_gradients(self, fragment: Fragment) -> None:
        assert self.replay is not None
        collected, held, ready = self._sums(self.replay.extend(fragment))
        minibatch = self.options.batch_size * ready
        for _ in range(self.intensity.book(collected, held=held, minibatch=minibatch)):
            self._step(self.options.batch_size, self.group.average_gradients)

    def _sums(self, collected: int) -> tuple[int, int, int]:
        """Of the group: transitions that are new, transitions that its replays were given, workers that have any."""
        assert self.replay is not None
        added = [self.replay.added] if self.replay.size else []
        if self.group.size == 1:
            return collected, sum(added), len(added)
        found = self.group.moments_of(collected=[collected], added=added)
        new, held = found["collected"], found["added"]
        return round(new.mean * new.count), round(held.mean * held.count), held.count

    def _learn_from_samples(self, fragment: Fragment) -> None:
        gathered = self.group.gather({"worker": self.learner_rank, "fragment": fragment.to_samples()})
        steps = 0
        if gathered is not None:
            steps = self._learn_from_fragments(gathered, workers=len({part["worker"] for part in gathered}))
        told = self.group.share({"steps": steps, "intensity": self.intensity.state_dict()})
        if told is None:  # the root has left: nobody learns any more
            return
        self.intensity.load_state_dict(told["intensity"])
        if told["steps"]:
            self.gradient_steps += 0 if self.group.is_root else told["steps"]
            self.group.broadcast(self.network)

    def _learn_from_fragments(self, gathered: Sequence[Mapping[str, Any]], *, workers: int) -> int:
        """The root's part: takes some workers' fragments and learns for all; the number of gradient steps."""
        assert self.replay is not None
        parts = [(Fragment.from_samples(part["fragment"]), int(part["worker"])) for part in gathered]
        collected = sum(self.replay.extend(fragment, worker) for fragment, worker in parts)
        minibatch = self.options.batch_size * workers
        steps = self.intensity.book(collected, held=self.replay.added, minibatch=minibatch if self.replay.size else 0)
        for _ in range(steps):
            self._step(minibatch, alone)
        return steps

    def _learn_as_it_comes(self, fragment: Fragment, fragments: AsyncSamples) -> None:
        """Hands a fragment over; the root learns from all that has come, the others take up what it has learnt."""
        told = {"worker": self.learner_rank, "fragment": fragment.to_samples()}
        told["statistics"] = [tuple(one) for one in self.describe(fragment)]
        slots = self.options.train_every * self.env.num_envs  # counted, as a fragment may complete no transition
        fragments.offer(told, slots)
        if not self.group.is_root:
            self._take_up(fragments.latest())
            return
        while (parts := fragments.take(slots * self.group.size)) is not None:
            self.normalize.update(joined([part["statistics"] for part in parts], self.group.policy))
            self._learn_from_fragments(parts, workers=self.group.size)
            fragments.publish(self._learnt())

    def _learnt(self) -> dict[str, Any]:
        """What a worker needs to play as this one does."""
        return {
            "network": to_arrays(self.network.state_dict()),
            "normalization": self.normalize.state_dict(),
            "intensity": self.intensity.state_dict(),
            "gradient_steps": self.gradient_steps,
        }

    def _take_up(self, learnt: Mapping[str, Any] | None) -> None:
        """Plays on with what the root has learnt, if anything has come."""
        if learnt is not None:
            load_weights(self.network, learnt["network"])
            self.normalize.load_state_dict(learnt["normalization"])
            self.intensity.load_state_dict(learnt["intensity"])
            self.gradient_steps = int(learnt["gradient_steps"])

    def _step(self, size: int, average: Average) -> None:
        """One gradient step on a minibatch of this worker's replay."""
        assert self.replay is not None
        batch = self.replay.sample(size, self._replaying, beta=self.priority_beta)
        figures, errors = self.gradient_step(self._seen(batch).to(self.device), average)
        self.gradient_steps += 1
        self.replay.update_priorities(batch.indices, errors.cpu())
        if self.gradient_steps % self.options.target_update_interval == 0:
            for target in self.targets.values():
                target.follow(self.options.tau)
        for name, value in figures.items():
            self._measured.setdefault(name, []).append(value)

    def describe(self, fragment: Fragment) -> list[Statistics]:
        """What a fragment says of the observations' scales."""
        return self.normalize.describe(fragment.observations)

    def _seen(self, batch: Transitions) -> Transitions:
        """What was replayed, as the networks see it: by what is known now, not by what was when it was played."""
        now, then = self.normalize(list(batch.observations)), self.normalize(list(batch.next_observations))
        return batch._replace(observations=tuple(now), next_observations=tuple(then))

    def descend(self, figures: Figures, *optimizers: Adam) -> None:
        """Steps down the gradients that the optimisers hold, clipped; all workers see the same ones.

        Raises:
            FloatingPointError: a figure or a gradient is no finite number; no weight was touched.
        """
        longest = self.options.max_grad_norm
        lengths = [optimizer.clip(math.inf if longest is None else longest) for optimizer in optimizers]
        if not all(map(math.isfinite, (*figures.values(), *lengths))):
            raise FloatingPointError(
                f"policy {self.group.policy!r}: gradient step {self.gradient_steps + 1} measured {figures}, with "
                f"gradients of the lengths {lengths}; are all observations finite, and of moderate size? If they are, "
                "lower learning_rate"
            )
        for optimizer in optimizers:
            optimizer.step(self.learning_rate)

    def _check_rewards(self, fragment: Fragment) -> None:
        if not np.isfinite(fragment.rewards.numpy()).all():
            raise FloatingPointError(
                f"policy {self.group.policy!r}: a reward that is no finite number came within "
                f"{self.options.train_every} ticks before tick {self.ticks_done}; gradient step "
                f"{self.gradient_steps + 1} was not made"
            )

    @property
    def learning_rate(self) -> float:
        """The learning rate of the gradient step that comes next."""
        if self.options.learning_rate_schedule == "constant":
            return self.options.learning_rate  # type: ignore[no-any-return]
        return self.options.learning_rate * max(0.0, 1 - self.progress)  # type: ignore[no-any-return]

    @property
    def priority_beta(self) -> float:
        """How far importance sampling makes up for priorities now (section 3.4 of arXiv 1511.05952)."""
        return self.options.priority_beta + (1 - self.options.priority_beta) * self.progress  # type: ignore[no-any-return]

    @property
    def progress(self) -> float:
        """How much of the whole run is over, from 0 to 1."""
        return min(1.0, self.ticks_done / self.ticks)

    def _experience(self) -> Experience:
        return Experience(**self.layout(), rows=self.env.num_envs, n_step=self.options.n_step, gamma=self.options.gamma)

    def layout(self) -> dict[str, Any]:
        """What a transition is made of, as `Experience` and `Replay` ask for it."""
        return {
            "space": self.env.single_observation_space,
            "action_shape": self.action_shape,
            "action_dtype": self.action_dtype,
            "mask_size": self.mask_size,
        }

    def _replay(self) -> Replay:
        """Of this worker's own transitions, or at the root that learns for all, of everybody's."""
        of_all = self.group.sync == "samples"
        return Replay(
            **self.layout(),
            capacity=self.options.buffer_size if of_all else -(-self.options.buffer_size // self.learners),
            workers=self.learners if of_all else 1,
            alpha=self.options.priority_alpha if self.options.prioritized else None,
            epsilon=self.options.priority_epsilon,
        )

    # ------------------------------------------------------------------------------------------ what others ask for

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has its own random stream, so that its use changes nothing in a run. Greedy: without exploration.
        """
        generator = None if greedy else stream(self.group.seed, ACTING)
        space = self.env.single_observation_space

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
            leaves, mask = to_leaves(space, observations), to_mask(infos, self.mask_size)
            actions = self.act(moved(self.normalize(leaves), self.device), moved(mask, self.device), generator)
            return self.to_env(actions.cpu().numpy())

        return act

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on, but what its workers have seen; they draw from new streams."""
        return {
            "network": to_arrays(self.network.state_dict()),
            "targets": {name: to_arrays(target.state_dict()) for name, target in self.targets.items()},
            "optimizers": {name: to_arrays(optimizer.state_dict()) for name, optimizer in self.optimizers.items()},
            "normalization": self.normalize.state_dict(),
            "intensity": self.intensity.state_dict(),
            "gradient_steps": self.gradient_steps,
            "ticks_done": self.ticks_done,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not this algorithm's, or its networks have other shapes.
        """
        self.check_state(state, self.state_dict())
        self._check_parts(state)
        load_weights(self.network, state["network"])
        for name, target in self.targets.items():
            target.load_state_dict(state["targets"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(to_tensors(state["optimizers"][name]))
        self.normalize.load_state_dict(state["normalization"])
        self.intensity.load_state_dict(state["intensity"])
        self.gradient_steps, self.ticks_done = int(state["gradient_steps"]), int(state["ticks_done"])

    def _check_parts(self, state: Mapping[str, Any]) -> None:
        mine = {"targets": set(self.targets), "optimizers": set(self.optimizers)}
        found = {part: set(state[part]) for part in mine}
        if found != mine:
            raise ConfigError(
                f"this is no state of {type(self).__name__} with these options: it has {found}; expected {mine}"
            )

    def worker_state_dict(self) -> dict[str, Any]:
        """What this worker alone has: its replay, where it has one, and what nobody has replayed yet."""
        own: dict[str, Any] = {"experience": self.experience.state_dict()}
        if self.replay is not None:
            own["replay"] = self.replay.state_dict()
        if self.group.async_samples is not None:
            own["fragments"] = self.group.async_samples.state_dict()
        return own

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with that, as far as it fits."""
        self.experience.load_state_dict(state["experience"])
        if self.replay is not None and "replay" in state:
            self.replay.load_state_dict(state["replay"])
        if self.group.async_samples is not None:
            waiting = state.get("fragments", ())
            self.group.async_samples.load_state_dict([one for one in waiting if one[1]["worker"] < self.learners])

    @classmethod
    def from_spaces(cls, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> OffPolicy:
        """One that cannot play, with as small a replay as its options allow.

        Raises:
            ConfigError: it cannot be made with these options, this seat or this group.
        """
        given = cls.Options(**options).settled(rows=group.rows or env.num_envs, workers=group.size)
        room = max(int(given.batch_size), given.learning_starts, given.n_step)
        return cls(env, group, ticks=ticks, **{**options, "buffer_size": min(room, given.buffer_size)})

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows, for rows that act on every tick.

        A line of metrics tells of all gradient steps since the one before, so it is no update.

        Raises:
            ConfigError: an option that the algorithm cannot take, a replay too small for so many rows, or a run that
                ends before it has begun to learn.
        """
        given = cls.Options(**options)
        check_budget(given, rows=rows, ticks=ticks, workers=workers)
        settled = given.settled(rows=rows, workers=workers)
        intensity, minibatch = float(settled.training_intensity), int(settled.batch_size) * workers
        due = intensity * (rows * ticks * workers - given.learning_starts)
        meetings = ticks // given.train_every
        return {
            **({"replays per sample": round(intensity)} if given.training_intensity == AUTO else {}),
            "samples per gradient step": minibatch,
            "gradient steps per run": math.floor(due / minibatch),
            "lines of metrics per run": meetings * given.train_every // max(given.log_every, given.train_every),
        }


def _check_fits(options: OffPolicyOptions, name: str) -> None:
    if getattr(options, name) != AUTO and getattr(options, name) > options.buffer_size:
        raise ConfigError(
            f"{getattr(options, name)} is more than buffer_size, {options.buffer_size}; lower {name}, or raise "
            "buffer_size",
            path=f"options.{name}",
        )


def check_budget(options: OffPolicyOptions, *, rows: int, ticks: int, workers: int) -> None:
    """Whether the run is long enough to learn, and the replay large enough for what comes between two meetings."""
    collected = rows * ticks * workers
    if options.learning_starts >= collected:
        raise ConfigError(
            f"{collected} transitions are collected in {ticks} ticks ({_of(workers, rows)}), and learnt from after "
            f"{options.learning_starts}: nothing would be learnt; set learning_starts to less, or raise ticks",
            path="options.learning_starts",
        )
    least = 2 * rows * (options.train_every + options.n_step) * workers
    if options.buffer_size < least:
        raise ConfigError(
            f"got {options.buffer_size}, expected at least {least}: that much is seen between two meetings, or while "
            f"transitions are under way ({_of(workers, rows)}); raise buffer_size, or lower train_every",
            path="options.buffer_size",
        )


def _of(workers: int, rows: int) -> str:
    return f"by {workers} worker{'s' * (workers > 1)} with {rows} row{'s' * (rows > 1)}{' each' * (workers > 1)}"
