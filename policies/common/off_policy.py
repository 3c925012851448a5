"""The base of algorithms that learn from replay: options, playing a tick, state.

    play     `train_every` ticks with exploring actions; the first ones at random
    learn    as many gradient steps as are due, each on a minibatch of the replay

How it acts and its loss stand in each algorithm's file.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn
from typing_extensions import Self

from arena.errors import ConfigError
from arena.game.infos import fields_of
from arena.game.ragged import Ragged
from arena.group.group import Group
from policies.common.adam import Adam, Optimizer, Target
from policies.common.algorithm import (
    EXPLORING,
    REPLAYING,
    Algorithm,
    Draws,
    Metrics,
    check_autoreset,
    lags_of,
    moved,
    stream,
)
from policies.common.average import AveragePolicy
from policies.common.columns import RaggedTensor, cat
from policies.common.normalization import ObservationNormalizer, joined, pooled
from policies.common.nstep import NStepBatch, NStepBuilder, RowLayout, SequenceLayout
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
    Recurrent,
    Schedule,
    Scheduled,
    Sizes,
    check_idle,
    check_unused,
    wrong,
)
from policies.common.replay import Replay, ReplayRatio, Transitions
from policies.common.sequences import SequenceReplay, Sequences
from policies.exporting import Exported, decoding_of, exported
from policies.extensions import Extension, encoder_of
from policies.networks.actor_critic import Encoder
from policies.networks.heads import Decisions, UnitHead
from policies.networks.units.options import Schema
from policies.networks.units.tokens import unit_inputs

MEMORY = ("recurrent", "hidden_size", "sequence_length", "burn_in")
"""The options of a policy with memory."""

_MINIBATCH = 256  # transitions of the group in a gradient step with `batch_size: auto`,
_LEAST = 64  # but no fewer of each worker


class OffPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any of these algorithms; each redeclares what it has other defaults for."""

    learning_rate: Scheduled = 1e-3  # step size of Adam, or its schedule; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # of a number: constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-8  # Adam's epsilon: weights whose gradients are smaller than this move less
    buffer_size: Count = 1_000_000  # observations that the group's replay holds at most; the oldest go first
    learning_starts: Natural = 1_000  # transitions that the group collects with random actions before it learns
    batch_size: Count | Auto = AUTO  # transitions per worker in one gradient step; auto: 256 / workers, at least 64
    train_every: Count = 1  # ticks between two meetings of the group, at which it learns
    training_intensity: Positive | Auto = AUTO  # replays per sample; auto: round(512 / (group's rows)^0.75), 1 to 256
    gamma: Fraction = 0.99  # discount per transition
    n_step: Count = 1  # rewards that a transition sums before it asks for a value
    prioritized: bool = False  # replay what the values are most wrong about more often
    priority_alpha: Fraction = 0.6  # how much more often: 0 uniform, 1 in proportion to the error
    priority_beta: Fraction = 0.4  # correction of that by importance sampling; rises linearly to 1 over the run
    priority_epsilon: NonNegative = 1e-6  # added to the error, so that everything may be replayed
    tau: PositiveFraction | Auto = 0.005  # how far the target networks move to what is learned; 1: they become a copy
    target_update_interval: Count = 1  # gradient steps between two moves of the target networks
    max_grad_norm: Positive | None = None  # gradients are scaled down to this norm at most; null: never
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    clip_observations: Clip | None = 10.0  # how far from 0 a normalized number may be; null: any distance
    encoder: Extension | None = None  # a torch module of your own for observations; null: the built-in one
    extra_loss: Extension | None = None  # a further loss of your own, whose gradient is added; null: none
    hidden_sizes: Sizes = (256, 256)  # layers of each network
    activation: Activation = "relu"  # tanh or relu
    recurrent: Recurrent | None = None  # lstm or gru: a layer with memory before each network; null: none
    hidden_size: Count = 64  # units of that layer
    sequence_length: Count = 16  # transitions at most that gradients go back through in time
    burn_in: Natural = 8  # observations before them from which a sequence's stored memory is brought up to date
    device: Device = "cpu"  # cpu, cuda, cuda:1, or auto: cuda if there is one
    deterministic: bool = True  # on a GPU: runs repeat to the bit; false: the fastest algorithms, whose sums vary
    log_every: Count = 1_000  # ticks between two lines of metrics, rounded up to a meeting

    # `training_intensity: auto`: the first, divided by a power of the number of the group's rows, at most the last
    INTENSITY: ClassVar[float] = 512.0
    INTENSITY_EXPONENT: ClassVar[float] = 0.75
    LARGEST_INTENSITY: ClassVar[float] = 256.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "clip_observations", normalize_observations=False)
        check_unused(self, *MEMORY[1:], recurrent=None)
        if self.recurrent is not None and self.burn_in >= self.sequence_length:
            least = f"less than sequence_length, {self.sequence_length}: a sequence is burned in by the one before it"
            raise wrong("burn_in", self.burn_in, least)
        for name in ("batch_size", "learning_starts", "n_step"):
            value = getattr(self, name)
            if value != AUTO and value > self.buffer_size:
                raise ConfigError(
                    f"{value} is more than buffer_size, {self.buffer_size}; lower {name}, or raise buffer_size",
                    path=f"options.{name}",
                )
        if self.device == "cpu":
            check_idle(self, "deterministic", where="device is cpu")
        check_unused(self, "priority_alpha", "priority_beta", "priority_epsilon", prioritized=False)
        if self.prioritized and self.priority_epsilon == 0:
            raise wrong("priority_epsilon", 0, "more than 0: what has no error would never be replayed again")
        if self.prioritized and self.priority_alpha == 0:
            raise wrong("priority_alpha", 0, "more than 0 where prioritized is true: else all is replayed as often")

    def settled(self, *, rows: int, workers: int) -> Self:
        """The same options with a number in place of every `auto`; `rows` of the group's worker that has the most."""
        numbers: dict[str, Any] = {}
        if self.batch_size == AUTO:
            numbers["batch_size"] = max(_LEAST, -(-_MINIBATCH // workers))
        if self.training_intensity == AUTO:
            intensity = self.INTENSITY / (rows * workers) ** self.INTENSITY_EXPONENT
            numbers["training_intensity"] = max(1, min(self.LARGEST_INTENSITY, round(intensity)))
        return msgspec.structs.replace(self, **numbers)


class OffPolicy(Algorithm):
    """One worker of an off-policy algorithm.

    A subclass makes its networks and calls `set_up`; it says how it acts, and has a `loss`.

    Attributes:
        export_as: how actions follow from the network's outputs, arguments of `decoding_of`.
        noise: an `ActionNoise`, added to actions while exploring; None: none.
        units: that the seat sees; None: it sees none.
        entities: of the team that learns together; 0: a single entity learns.
        generator: this worker's random stream for exploration.
        intensity: how many gradient steps are due. `training_intensity` is how many transitions the group replays per
            transition that it collects, at any number of workers: more workers learn from more transitions, not longer
            from each. With `sync: gradients` every worker draws `batch_size` transitions of its own.
        experience: of this worker.
        replay: of this worker, or at rank 0 of all; None at the others where rank 0 learns for all.
        gradient_steps: that the group has made.
    """

    Options: ClassVar[type[OffPolicyOptions]]
    acting_parts = ("network", "normalization", "intensity", "gradient_steps")
    export_as: Mapping[str, Any]
    metric_names: tuple[str, ...]
    remedy = "are all observations finite, and of moderate size? If they are, lower learning_rate"
    noise: Any = None
    units: Schema | None = None
    entities = 0

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.options = self.configured.settled(rows=group.rows or env.num_envs, workers=group.size)
        self.generator = stream(group.seed, EXPLORING)
        self._replaying = stream(group.seed, REPLAYING)
        self._history: dict[str, list[float]] = {}  # metrics since the last line of them
        self.gradient_steps = 0
        self.intensity = ReplayRatio(self.options.training_intensity, starts=self.options.learning_starts)

    def set_up(
        self,
        parts: Mapping[str, nn.Module],
        targets: Mapping[str, str],
        *,
        normalizer: type[ObservationNormalizer] = ObservationNormalizer,
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        """Makes what an algorithm learns with, once its networks are there.

        Args:
            parts: of the network, each with an optimizer of its name.
            targets: names of target networks, and of the parts that they follow.
            normalizer: of observations.
            rank, size: of the worker, or of its team, among those with transitions of their own; None: in its group.
        """
        o, group, space = self.options, self.group, self.env.single_observation_space
        self.optimizers: dict[str, Optimizer] = {
            name: Adam(part, epsilon=o.adam_epsilon) for name, part in parts.items()
        }
        self.targets = {name: Target(parts[part], self.optimizers[part]) for name, part in targets.items()}
        inputs = unit_inputs(space, getattr(o, "transformer", None))
        clip, normalizes = o.clip_observations, o.normalize_observations
        self.normalization = normalizer(space, clip=clip, enabled=normalizes, inputs=inputs)
        self.preprocess = self.normalization
        if o.recurrent is not None:
            self.memory_size = self.network.memory_size
        cut = SequenceLayout(o.sequence_length, o.burn_in, o.n_step, self.memory_size) if self.memory_size else None
        self.experience = self.make_experience(n_step=o.n_step, gamma=o.gamma, sequences=cut)
        size, pooled = size or group.size, self.pools_samples
        self.replay: Any = None
        if group.is_root or not pooled:
            kept: dict[str, Any] = {
                "capacity": o.buffer_size if pooled else -(-o.buffer_size // size),
                "workers": size if pooled else 1,
                "alpha": o.priority_alpha if o.prioritized else None,
                "epsilon": o.priority_epsilon,
            }
            layout, sequences = self.experience.layout, self.experience.sequences
            self.replay = Replay(layout, **kept) if sequences is None else SequenceReplay(layout, sequences, **kept)
        self.rank, self.size = group.rank if rank is None else rank, size
        stored = ["network", "targets", "optimizers", "normalization", "intensity"]
        if self.units is not None:
            stored.insert(0, "units")  # checked before the others are loaded
        if getattr(o, "average", False):
            self.average = AveragePolicy(self)
            stored.append("average")
        self.track(*stored, gradient_steps=self, ticks_done=self)

    def layout_of_row(self) -> RowLayout:
        """What one row sees, does and earns."""
        space, actions = self.env.single_observation_space, self.actions
        decides = isinstance(actions, UnitHead)
        return RowLayout(space, actions.shape, actions.dtype, actions.mask_size, double=self.double, decides=decides)

    def make_experience(self, **steps: Any) -> NStepBuilder:
        """What makes transitions of ticks: of each row by itself."""
        return NStepBuilder(self.layout_of_row(), rows=self.env.num_envs, **steps)

    def make_encoder(self, generator: torch.Generator, *, first: int = 0) -> Encoder:
        """The encoder of observations that the options say; with `recurrent` it has a memory, see `encoder_of`."""
        return encoder_of(self.options, self.env.single_observation_space, generator, first=first)

    def make_actor_encoder(self, of_critics: Encoder, generator: torch.Generator) -> Encoder | None:
        """An actor's own encoder beside that of the critics, with the memory behind theirs; None: without memory."""
        memory_size = of_critics.memory_size
        return self.make_encoder(generator, first=memory_size) if memory_size else None

    def made_up_batch(self) -> Transitions:
        leaves, masks, actions = self.made_up()
        observations, rows, cut = tuple(leaves), torch.arange(2), self.experience.sequences
        rewards = torch.ones(2, *self.experience.layout.reward_shape)
        known, others = (observations, masks, actions, rewards), (masks, 0.9 * rewards, torch.ones(2), rows)
        if cut is None:
            return Transitions(*known, observations, *others)
        burn_in = tuple(leaf[:1, None].repeat_interleave(cut.burn_in, 1) for leaf in leaves)
        memories = torch.zeros(1, cut.memory_size)
        return Sequences(*known, (), *others, torch.tensor([2]), rows, rows, memories, rows[:1], burn_in)

    def act_randomly(self, rows: int, mask: Tensor | None) -> Any:
        """Random actions [rows, *shape], as learned from; mask bool [rows, mask_size]."""
        if self.units is None:
            return self.actions.uniform(rows, mask, self.generator)
        leaves = moved(self.normalization(self.experience.leaves), self.device)
        return self.uniform(self.network(leaves), self.generator)

    def uniform(self, decisions: Decisions, generator: torch.Generator) -> RaggedTensor:
        """Decisions [D, 2] of units, all that are allowed equally likely."""
        return decisions.uniform().sample(self.actions.noise(1, len(decisions.lengths), generator)[0])

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        """Actions [N, *shape] to learn from, for leaves [N, ...] on the device; draws from `generator`."""
        return self.act(leaves, mask, self.generator)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions [N, *shape] of `actor()`; generator None: the greedy ones."""
        return self.actions.choose(self.network(leaves), mask, generator)  # type: ignore[no-any-return]

    def run(self) -> None:
        """Plays and learns until the environment raises `BudgetReached`."""
        check_autoreset(self.env, type(self).__name__)
        self.share_weights()
        observations, infos = self.env.reset()
        self.forget_all(infos)
        self.experience.begin(observations, infos)
        while True:
            self.play()
            if self.ticks_done % self.options.train_every == 0:
                self.learn()
                if self.ticks_done % self.options.log_every < self.options.train_every:
                    self.log()

    def forget_all(self, infos: Mapping[str, Any]) -> None:
        """Clears the memory of all rows, before their episodes begin."""
        self._active = fields_of(infos).active
        if self.average is not None:
            self.average.begins[:] = True
        self.memory = self.experience.memory = np.zeros((self.env.num_envs, self.memory_size), np.float32)

    @torch.inference_mode()
    def play(self) -> None:
        experience, leaves = self.experience, list[Any]()
        if self.memory_size:
            leaves = moved([*self.normalization(experience.leaves), torch.from_numpy(self.memory)], self.device)
        elif self.intensity.has_started:
            leaves = moved(self.normalization(experience.leaves), self.device)
        chosen, average = experience.given, self.average
        if self.intensity.has_started:
            mask = moved(experience.mask, self.device)
            found = self.explore(leaves, mask)
            if average is not None:
                noise = moved(average.noise(1, len(found), self.generator)[0], self.device)
                found = average.mixed(found.to(self.device), leaves, mask, noise)
        else:
            found = self.act_randomly(self.env.num_envs, experience.mask)
        actions = found.cpu().numpy()
        if chosen is not None and experience.given_actions is not None and chosen.any():  # by the game itself
            if isinstance(actions, Ragged):
                actions = actions.replaced(self.actions.from_env(experience.given_actions).numpy(), chosen)
            else:
                actions[chosen] = self.actions.from_env(experience.given_actions[chosen]).numpy()
        if average is not None and self.intensity.has_started:
            acts = average.best if self._active is None else average.best & self._active
            acts = acts if chosen is None else acts & ~chosen
            # Random actions are no best responses: the greedy ones are kept, whatever was explored.
            average.keep(experience.leaves, experience.mask, self.act(leaves, mask, None).cpu(), acts)
        step, active = self.env.step(self.actions.to_env(actions)), self._active
        self._active = fields_of(step[4]).active
        if average is not None:
            average.begins |= step[2] | step[3]
        if self.memory_size:
            after = self.network.remember(leaves).cpu().numpy()
            self.memory[:] = after if active is None else np.where(active[:, None], after, self.memory)
            self.memory[step[2] | step[3]] = 0.0
        experience.add(actions, *step)
        if self.noise is not None:
            self.noise.restart(step[2] | step[3])  # terminated or truncated
        self.ticks_done += 1

    def learn(self) -> None:
        """Makes the gradient steps that are due after the last ticks; a collective, unless there is no barrier.

        Raises:
            FloatingPointError: a reward is not finite.
        """
        new, group = self.experience.cut(), self.group
        if not np.isfinite(new.rewards.numpy()).all():
            raise FloatingPointError(
                f"policy {group.policy!r}: a reward that is not finite came within "
                f"{self.options.train_every} ticks before tick {self.ticks_done}; gradient step "
                f"{self.gradient_steps + 1} was not made"
            )
        statistics = self.normalization.describe_new(new)
        decided = {} if self.average is None else self.average.cut()
        if (samples := group.async_samples) is not None:
            fragment = {"worker": self.rank, "fragment": new.to_samples(), "statistics": [*map(tuple, statistics)]}
            fragment |= decided
            slots = self.options.train_every * self.experience.worker_rows  # not transitions: there may be none
            samples.put(fragment, slots)
            for parts in self.parts_without_barrier(samples):
                self._note(lags_of(samples))
                self.normalization.update(joined([part["statistics"] for part in parts], group.policy))
                self._learn_from(parts, workers=group.size)
                samples.publish(self.acting_state())
            return
        self.normalization.update(pooled(group, statistics))
        if not self.pools_samples:
            collected, batch_size = self.replay.extend(new), int(self.options.batch_size)
            if self.average is not None:
                self.average.add([decided], self._replaying)
            each = [self.replay.added] if self.replay.size else []
            added, ready = sum(each), len(each)
            if group.size > 1:  # sums over the group, in which a worker may have an empty replay
                found = group.moments_of(collected=[collected], added=each)
                collected, added = (round(found[name].mean * found[name].count) for name in ("collected", "added"))
                ready = found["added"].count
            for _ in range(self.intensity.due_steps(collected, added=added, minibatch=batch_size * ready)):
                self._step(batch_size)
            return
        gathered, steps = group.gather({"worker": self.rank, "fragment": new.to_samples(), **decided}), 0
        if gathered is not None:
            steps = self._learn_from(gathered, workers=len({part["worker"] for part in gathered}))
        learned = group.broadcast_object({"steps": steps, "intensity": self.intensity.state_dict()})
        if learned is None:  # rank 0 has left: learning has ended
            return
        self.intensity.load_state_dict(learned["intensity"])
        if learned["steps"]:
            self.gradient_steps += 0 if group.is_root else learned["steps"]
            group.broadcast(self.network)

    def _learn_from(self, gathered: Sequence[Mapping[str, Any]], *, workers: int) -> int:
        """Rank 0 adds the experience of some workers and learns for all; returns the number of gradient steps."""
        parts = [(NStepBatch.from_samples(part["fragment"]), int(part["worker"])) for part in gathered]
        collected = sum(self.replay.extend(new, worker) for new, worker in parts)
        if self.average is not None:
            self.average.add(gathered, self._replaying)
        minibatch, added = int(self.options.batch_size) * workers, self.replay.added
        steps = self.intensity.due_steps(collected, added=added, minibatch=minibatch if self.replay.size else 0)
        for _ in range(steps):
            self._step(minibatch)
        return steps

    def _step(self, size: int) -> None:
        """One gradient step on a minibatch of this worker's replay."""
        batch = self.replay.sample(size, self._replaying, beta=self.priority_beta)
        if self.gradient_steps == 0 and not self.normalization.enabled:
            self.check_magnitude(self.experience.layout.space, batch.observations)
        metrics, errors = self.update(self.normalization.minibatch(batch).to(self.device))
        self.gradient_steps += 1
        self.replay.update_priorities(batch.indices, errors.cpu())
        if self.gradient_steps % self.options.target_update_interval == 0:
            for target in self.targets.values():
                target.update(float(self.options.tau))
        self._note(metrics)
        if self.average is not None:
            self._note(self.average.learn(size, self._replaying))

    def _note(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._history.setdefault(name, []).append(value)

    def update(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        """One gradient step of the group: its mean metrics, and this worker's temporal-difference errors [N].

        An empty batch weighs nothing, but its worker takes part.
        """
        errors = torch.zeros(0)

        def backward(batch: Transitions) -> Tensor:
            nonlocal errors
            metrics, errors = self.backward(batch)
            return metrics

        metrics = self.gradient_step(batch, backward, self.metric_names, self.due_optimizers)
        return metrics, errors

    @property
    def label(self) -> str:
        return f"gradient step {self.gradient_steps + 1}"

    @property
    def due_optimizers(self) -> list[Optimizer]:
        """The optimizers of the weights that the next gradient step moves; the same at all workers."""
        return list(self.optimizers.values())

    def backward(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Adds the gradients of all losses to `grad` of the weights; the metrics, and the errors [N]."""
        loss, metrics, errors = self.loss(batch)
        torch.autograd.backward([loss])
        return metrics, errors

    @abstractmethod
    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of all losses, the means of `metric_names`, and the temporal-difference errors [N]."""

    @property
    def priority_beta(self) -> float:
        """How far importance sampling corrects for priorities now (section 3.4 of arXiv 1511.05952)."""
        return float(self.options.priority_beta + (1 - self.options.priority_beta) * self.progress)

    def log(self) -> None:
        """Logs the means of the metrics since the last time, and the schedules; see `record`."""
        if self.group.async_samples is not None and not self.group.is_root:
            return
        means = {name: float(np.mean(values)) for name, values in self._history.items()}
        self._history.clear()
        counts = {"gradient_steps": float(self.gradient_steps), "collected": float(self.intensity.collected)}
        self.record({**means, **self.schedules(), **counts}, check=True)

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: its replay, if it has one, and experience that is not in a replay yet."""
        state: dict[str, Any] = {"experience": self.experience.state_dict()}
        if self.replay is not None:
            state["replay"] = self.replay.state_dict()
        if self.group.async_samples is not None:
            state["fragments"] = self.group.async_samples.state_dict()
        return state

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that, as far as it fits."""
        self.experience.load_state_dict(state["experience"])
        if self.replay is not None and "replay" in state:
            self.replay.load_state_dict(state["replay"])
        if self.group.async_samples is not None and self.group.is_root and "fragments" in state:
            self.group.async_samples.load_state_dict(state["fragments"])

    # --------------------------------------------------------------------------------------- what the arena asks for

    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Tensor, Tensor | None]:
        memory = self.network.remember(leaves) if self.memory_size else None
        if draws is None or isinstance(draws, torch.Generator):
            return self.act(leaves, mask, draws), memory
        each = [slice(row, row + 1) for row in range(len(draws))]
        rows = [  # row by row: a game's draws do not depend on the other games of the batch
            self.act([leaf[row] for leaf in leaves], None if mask is None else mask[row], generator)
            for row, generator in zip(each, draws, strict=True)
        ]
        return cat(rows), memory

    def exported(self) -> Exported:
        """What chooses actions, for `arena export`."""
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, **self.export_as),
            outputs=lambda network, inputs: (
                (network(inputs), network.remember(inputs)) if self.memory_size else network(inputs)
            ),
            normalization=self.normalization,
            memory_size=self.memory_size,
            entities=self.entities,
        )

    @classmethod
    def from_spaces(cls, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> Self:
        """An instance that cannot play, with as small a replay as its options allow."""
        o = cls.Options(**options).settled(rows=group.rows or env.num_envs, workers=group.size)
        room = max(int(o.batch_size), o.learning_starts, o.n_step)
        return super().from_spaces(env, group, ticks=ticks, **{**options, "buffer_size": min(room, o.buffer_size)})

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows, for rows that act on every tick.

        Refuses a run that is too short to learn, and a replay too small for what comes between two meetings. A line of
        metrics covers all gradient steps since the one before, so it is no update.
        """
        o, collected = cls.Options(**options), rows * ticks * workers
        players = f"by {workers} worker{'s' * (workers > 1)} with {rows} row{'s' * (rows > 1)}{' each' * (workers > 1)}"
        if o.learning_starts >= collected:
            raise ConfigError(
                f"{collected} transitions are collected in {ticks} ticks ({players}), and learned from after "
                f"{o.learning_starts}: nothing would be learned; set learning_starts to less, or raise ticks",
                path="options.learning_starts",
            )
        if o.recurrent is not None and o.sequence_length > ticks:
            raise ConfigError(
                f"no episode of a run of {ticks} ticks has {o.sequence_length} transitions; set sequence_length to "
                f"{ticks} or less, or raise ticks",
                path="options.sequence_length",
            )
        kept = o.n_step if o.recurrent is None else o.n_step + o.burn_in + o.sequence_length
        least = 2 * rows * (o.train_every + kept) * workers
        if o.buffer_size < least:
            raise ConfigError(
                f"got {o.buffer_size}, expected at least {least}: that much is seen between two meetings, or while "
                f"transitions are under way ({players}); raise buffer_size, or lower train_every",
                path="options.buffer_size",
            )
        settled = o.settled(rows=rows, workers=workers)
        intensity, minibatch = float(settled.training_intensity), int(settled.batch_size) * workers
        due = intensity * (collected - o.learning_starts)
        return {
            **({"replays per sample": round(intensity)} if o.training_intensity == AUTO else {}),
            "samples per gradient step": minibatch,
            "gradient steps per run": math.floor(due / minibatch),
            "lines of metrics per run": ticks // o.train_every * o.train_every // max(o.log_every, o.train_every),
        }
