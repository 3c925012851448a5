"""Base of all learning algorithms of this package: options, a device, and state that can be saved and loaded.

An algorithm subclasses `Algorithm`, says in `run` how it plays and learns, and names with `track` the attributes that
make up its state.

How the workers of a group learn together: `sync` and `max_lag` of the policy take effect here and in the subclasses.

    sync: gradients            every worker steps on its own minibatches, with the mean gradient of the group
    sync: samples              rank 0 steps on the samples of all workers, then the others take its weights
    sync: samples, max_lag: 2  the same without a barrier: every worker hands its samples over and continues with the
                               newest weights that have arrived, up to `max_lag` updates ahead; rank 0 learns whenever
                               it has samples of every worker

On one full batch the first two are the same. What is decided around a collective (how many minibatches, when to stop)
is decided on values that all workers agree on.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from arena.errors import ConfigError, shorten
from arena.game.batches import batched_space
from arena.game.infos import fields_of
from arena.game.spaces import large_numbers, leaves_of
from arena.game.units import UnitActions, UnitSpace
from arena.group.async_samples import AsyncSamples
from arena.group.group import Group
from policies.common.adam import Optimizer, group_optimizer
from policies.common.columns import RaggedTensor, to_leaves, to_mask
from policies.common.devices import device_of
from policies.common.options import SCHEDULED, Devices, is_schedule, value_at, wrong
from policies.common.tensors import load_weights, to_arrays, to_tensors
from policies.extensions import ExtraLoss, unseeded
from policies.networks.heads import action_head, check_choices


def moved(tensors: Any, device: torch.device) -> Any:
    """A tensor, a list of them or None, on a device; unchanged if they are on it already."""
    if tensors is None or device.type == "cpu":
        return tensors
    return [tensor.to(device) for tensor in tensors] if isinstance(tensors, list) else tensors.to(device)


EXPLORING, ACTING, REPLAYING = range(3)  # what a stream is for: learning, playing without learning, replay


def stream(*key: int) -> torch.Generator:
    """A random stream for every key, such as (group.seed, EXPLORING)."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))


Random = Sequence[np.random.Generator] | None
Draws = torch.Generator | Sequence[torch.Generator] | None
"""Where the randomness of a batch of actions comes from: for all rows, or one for each; None: the best actions."""


class Served(NamedTuple):
    """What `served()` of an algorithm returns.

    Attributes:
        memory_size: numbers that a row remembers; 0: none.
        act: `act(observations, masks, memory, random)`: a batched sample [K, ...], int8 [K, mask_size] or None, float32
            [K, memory_size], and a generator for each row, or None for the best actions; returns the actions as the
            environment takes them [K, ...], and the memory after them.
        entities: of a team, each with an actor of its own; `act` takes also the places of the rows' entities in it,
            int64 [K]. 0: a row is like any other.
    """

    memory_size: int
    act: Callable[..., tuple[Any, NDArray[np.float32]]]
    entities: int = 0


Metrics = dict[str, float]
"""Numbers that describe an update, by name."""

Backward = Callable[[Any], Tensor]
"""Adds the gradient of a minibatch's mean loss to `grad` of the weights; returns the metrics, means over it."""


class Algorithm(ABC):
    """One worker of a policy that learns.

    Args:
        env: a vector environment that resets on the same step; `infos["active"]` marks the rows that act next and
            `infos["action_mask"]` the choices that they have, where the environment gives them.
        group: the workers of this policy.
        ticks: the whole run's budget; all schedules end with it.
        options: the fields of the class's `Options`.

    Attributes:
        configured: the options as they were given, schedules included.
        face: which kind of environment `run` is given.
        schedule: when the workers of a group synchronize, see `arena.plan.deadlock`.
        acting_parts: of the state, without which another worker cannot play as this one does.
        takes_units: plays seats of a `UnitSpace`.
        network: whose weights the group shares; made by the subclass.
        actions: an `ActionHead`, or another class with its shape, dtype, mask_size, `to_env` and `from_env`.
        preprocess: turns leaves [N, ...] on the CPU into those that the network takes.
        memory_size: numbers that a row remembers from tick to tick.
        device: that learns, of the network; `acts_on`: that acts. They differ in rank 0 alone, if `separate_devices`.
        double: whether observations are kept in double precision until they are normalized.
        extra: a further loss, whose gradient is added to each minibatch's; None: there is none.
        average: the mean of the policy's best responses, see `policies.common.average.Averaging`; None: there is none.
        remedy: ends the message about a number that is not finite.

    Raises:
        ConfigError: an option or a space that the algorithm cannot take, or a device that this machine does not have.
    """

    face = "vector"
    schedule = "ticks"
    Options: ClassVar[type[Any]]
    updates: int  # that the policy has made
    acting_parts: ClassVar[tuple[str, ...]]
    takes_units: ClassVar[bool] = False
    network: Any
    actions: Any
    preprocess: Callable[[list[Any]], list[Any]]
    memory_size = 0
    remedy = "are all rewards and observations finite, and of moderate size? If they are, lower learning_rate"
    extra: ExtraLoss | None = None
    average: Any = None
    _scheduled: Sequence[str] = ()  # options that follow a schedule
    _followed: tuple[float, Any] = math.nan, None  # the progress, and the options with their numbers there

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        if torch.get_default_dtype() is not torch.float32:
            raise ConfigError(
                f"torch's default dtype is {torch.get_default_dtype()}, and the algorithms of the arena compute in "
                "float32; a module that this process has imported sets it: give `dtype=` to its tensors instead"
            )
        check_choices(env.single_action_space, "actions")
        self.ticks_done = 0
        self.options = self.Options(**options)
        device = self.options.device
        self.separate_devices = isinstance(device, Devices)
        if self.separate_devices and not self.pools_samples:
            remedy = "`sync: samples` in the policy, with which rank 0 learns for all; or one device for both"
            raise wrong("device", {"act": device.act, "learn": device.learn}, remedy)
        deterministic = getattr(self.options, "deterministic", True)
        self.acts_on = device_of(device.act if self.separate_devices else device, deterministic=deterministic)
        self.device = self.acts_on
        if self.separate_devices and group.is_root:
            self.device = device_of(device.learn, deterministic=deterministic)
        self.double = bool(getattr(self.options, "normalize_observations", False))
        if (extra_loss := getattr(self.options, "extra_loss", None)) is not None:
            spaces = env.single_observation_space, env.single_action_space
            self.extra = ExtraLoss(extra_loss, *spaces, seed=group.seed)
        self._parts: tuple[str, ...] = ()
        self._counters: dict[str, object] = {}

    @classmethod
    def from_spaces(cls, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> Self:
        """An instance that cannot play, made from an environment that has nothing but spaces; it learns nothing."""
        return cls(env, group, ticks=ticks, **options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses a device that this machine does not have; rank 0 looks for one that only it needs when it starts."""
        o = cls.Options(**options)
        device = o.device.act if isinstance(o.device, Devices) else o.device
        device_of(device, deterministic=getattr(o, "deterministic", True))

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Refuses, with a ConfigError, spaces of one entity with which the algorithm cannot play."""
        if cls.takes_units and isinstance(observation_space, UnitSpace) and isinstance(action_space, UnitActions):
            return
        check_no_units(cls.__name__.lower(), observation_space, action_space)
        leaves_of(observation_space)
        cls.check_actions(action_space)

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        """Refuses a space of actions in which the algorithm cannot choose; as `check`."""
        action_head(space)

    @property
    def progress(self) -> float:
        """The part of the whole run that is over, from 0 to 1."""
        return min(1.0, self.ticks_done / self.ticks)

    @property
    def options(self) -> Any:
        """The options, of the class's own type; those that follow a schedule have the numbers of now."""
        if not self._scheduled:
            return self.configured
        progress = self.progress
        if self._followed[0] != progress:
            now = copy.copy(self.configured)
            for name in self._scheduled:  # not by `replace`, which would check each number of a schedule
                msgspec.structs.force_setattr(now, name, value_at(getattr(now, name), progress))
            self._followed = progress, now
        return self._followed[1]

    @options.setter
    def options(self, options: Any) -> None:
        self.configured, self._followed = options, (math.nan, None)
        self._scheduled = [name for name in SCHEDULED if is_schedule(getattr(options, name, None))]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the update that comes next."""
        falls = getattr(self.options, "learning_rate_schedule", "constant") == "linear"
        falls = falls and "learning_rate" not in self._scheduled
        return float(self.options.learning_rate * ((1 - self.progress) if falls else 1))

    def schedules(self) -> Metrics:
        """What is logged beside the metrics of an update: the learning rate, and what else follows a schedule."""
        followed = {name: float(getattr(self.options, name)) for name in self._scheduled}
        return {**followed, "learning_rate": self.learning_rate}

    def layers(self, generator: torch.Generator) -> dict[str, Any]:
        """The layers of perceptrons that the options name, as arguments of `policies.networks.actor_critic.mlp`."""
        o = self.options
        return {"hidden_sizes": o.hidden_sizes, "activation": o.activation, "generator": generator}

    def shape_gradient(self, gradient: Tensor) -> Metrics | None:
        """Changes the group's mean gradient in place, before `max_grad_norm` limits it; does nothing by default.

        It is called at every worker with the same gradient, once per gradient step and optimizer, and must do the same
        everywhere.

        Args:
            gradient: of all weights that the optimizer moves, one vector.

        Returns:
            numbers to be logged with the update; None: nothing.
        """
        return None

    def try_out(self) -> str:
        """Calls a further loss once, before the run, on an instance for nothing else; returns a warning, or ''."""
        batch = None if self.extra is None else self.made_up_batch().to(self.device)
        if self.extra is not None and (fault := self.extra.try_out(self.network, batch)):
            return f"options.extra_loss: {fault} (for a made-up batch)"
        encoder = getattr(self.options, "encoder", None)
        found = [] if encoder is None else unseeded(self.env.single_observation_space, encoder)
        text = "come from torch's global random stream, so each worker and run begins with others: draw them from"
        return f"options.encoder: {shorten(found)} {text} `generator`" if found else ""

    @abstractmethod
    def made_up_batch(self) -> Any:
        """A minibatch of two rows as a further loss gets it, from `made_up`."""

    def made_up(self, rows: int = 2) -> tuple[list[Any], Tensor | None, Any]:
        """Leaves as the network takes them, masks and actions [rows, ...] of samples of the spaces."""
        space = self.env.single_observation_space
        observed, acted = (batched_space(one, rows) for one in (space, self.env.single_action_space))
        for batched in (observed, acted):
            batched.seed(0)
        leaves = to_leaves(space, observed.sample())
        for leaf in leaves:
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                leaf.clamp_(-10, 10)  # a Box may have bounds as far as a float goes
        masked = getattr(self.env, "masked", False) and self.actions.mask_size
        masks = torch.ones(rows, self.actions.mask_size, dtype=torch.bool) if masked else None
        return self.preprocess(leaves), masks, self.actions.from_env(acted.sample())

    @property
    def pools_samples(self) -> bool:
        """Whether rank 0 alone makes gradient steps, on the samples of all workers."""
        return self.group.sync == "samples"

    @property
    def workers_per_batch(self) -> int:
        """How many workers' samples one batch holds."""
        return self.group.size if self.pools_samples else 1

    def share_weights(self) -> None:
        """Gives all workers the weights of rank 0; a collective, unless there is no barrier."""
        if self.group.async_samples is None:
            self.group.broadcast(self.network)
        elif self.group.is_root:
            self.group.async_samples.publish(self.acting_state())

    # ---------------------------------------------------------------------------------------------- learning together

    @property
    def label(self) -> str:
        """The next update in messages."""
        return f"update {self.updates + 1}"

    def mean_gradients(
        self, batch: Any, backward: Backward, names: Sequence[str], optimizers: Sequence[Optimizer]
    ) -> Metrics:
        """Leaves the mean gradient of the group in the optimizers, by one exchange; returns the group's mean metrics.

        An empty minibatch weighs nothing, but its worker takes part. `names` are those of the metrics.

        Raises:
            ConfigError: a value of the further loss is not finite, and the others are.
            FloatingPointError: a metric is not finite.
        """
        steppers = [group_optimizer(optimizer) for optimizer in optimizers]
        for stepper in steppers:
            stepper.zero_grad()
        values = backward(batch) if batch.size else torch.zeros(len(names))
        metrics = dict(zip(names, values.tolist(), strict=True))
        if (extra := self.extra) is not None:
            found = extra.backward(self.network, batch) if batch.size else [0.0] * len(extra.names)
            if (fault := extra.fault(found)) and all(map(math.isfinite, metrics.values())):
                raise ConfigError(f"{fault}, as those of {self.label} are without it", path="options.extra_loss")
            metrics.update(zip(extra.names, found, strict=True))
        if not self.pools_samples:
            vectors = [vector for stepper in steppers for vector in stepper.parameters]
            metrics = self.group.average_gradients(vectors, weight=float(batch.size), **metrics)
        self.check_finite(metrics)
        return metrics

    def optimizer_step(self, optimizers: Sequence[Optimizer]) -> Metrics:
        """Shapes and clips the gradients of the optimizers, each by itself, and steps; returns what shaping measured.

        Raises:
            FloatingPointError: a gradient is not finite; no weight was changed.
        """
        shaped: Metrics = {}
        steppers = [group_optimizer(optimizer) for optimizer in optimizers]
        if type(self).shape_gradient is not Algorithm.shape_gradient:
            for stepper in steppers:
                shaped.update(stepper.shape_gradient(self.shape_gradient) or {})
        longest = self.options.max_grad_norm
        lengths = [stepper.clip_grad_norm(math.inf if longest is None else longest) for stepper in steppers]
        self.check_finite({"gradient_length": math.hypot(*lengths)})
        for stepper in steppers:
            stepper.step(self.learning_rate)
        return shaped

    def gradient_step(
        self, batch: Any, backward: Backward, names: Sequence[str], optimizers: Sequence[Optimizer]
    ) -> Metrics:
        """`mean_gradients`, then a step of the optimizers; the metrics of both."""
        return {**self.mean_gradients(batch, backward, names, optimizers), **self.optimizer_step(optimizers)}

    def check_finite(self, metrics: Metrics) -> None:
        """Stops the run, by a FloatingPointError, before a number that is not finite spreads to the weights."""
        if not all(map(math.isfinite, metrics.values())):
            raise FloatingPointError(f"policy {self.group.policy!r}: {self.label} measured {metrics}; {self.remedy}")

    def check_magnitude(self, space: Space[Any], leaves: Sequence[Any]) -> None:
        """Tells the user where observations [N, ...], not normalized, are far beyond what a network learns from."""
        if not self.group.is_writer:  # only its sentences are shown
            return
        plain = [(leaf.values if isinstance(leaf, RaggedTensor) else leaf).numpy() for leaf in leaves]
        if warning := large_numbers(space, plain):
            self.group.tell(warning)

    def update_at_rank_0(self, update: Callable[[], Metrics]) -> Metrics:
        """One update that rank 0 makes for all: its metrics at every worker; {} if rank 0 has left. A collective."""
        metrics = update() if self.group.is_root else {}
        self.group.broadcast(self.network)
        return self.group.broadcast_object(metrics) or {}

    def acting_state(self) -> dict[str, Any]:
        """What a worker needs to play as this one does, without a barrier: its `acting_parts`."""
        return {name: self._stored(name) for name in self.acting_parts}

    def load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Plays on with the state of another worker, as `acting_state` returns it."""
        for name in self.acting_parts:
            self._load(name, state[name])

    def parts_without_barrier(self, samples: AsyncSamples) -> Iterator[list[Any]]:
        """At rank 0, the fragments of each update that can be made now; the others load the newest weights.

        A worker that is ahead of the group waits, see `AsyncSamples`.
        """
        while True:
            while self.group.is_root and (parts := samples.get()) is not None:
                yield parts
            if not samples.is_ahead:
                break
            samples.sleep()
        if not self.group.is_root and (latest := samples.latest()) is not None:
            self.load_acting_state(latest)

    def record(self, metrics: Metrics, *, check: bool) -> None:
        """Logs the metrics of an update, offers the state for a checkpoint and, if `check`, compares all weights.

        A collective.
        """
        self.group.log(**metrics)
        if check and self.group.async_samples is None:  # without a barrier there are no replicas to compare
            self.group.check_equal(self.network)
        self.group.save(self.state_dict)

    # ------------------------------------------------------------------------------------------------------ the state

    def track(self, *names: str, **counters: object) -> None:
        """Names what makes up the policy's state.

        Names are those of attributes: modules, objects with a `state_dict`, mappings of these; a subclass may replace
        them. Counters are names of whole numbers, each with the object that has it as an attribute.
        """
        self._parts, self._counters = names, counters

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on: weights, optimizers, counters. Its workers draw from new streams."""

        return {name: self._stored(name) for name in (*self._parts, *self._counters)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not this algorithm's, or its networks have other shapes.
        """
        known = [*self._parts, *self._counters]
        if state.keys() != {*known}:
            found, expected = ", ".join(map(str, state)) or "nothing", ", ".join(known)
            raise ConfigError(f"this is no state of {type(self).__name__}: it has {found}; expected {expected}")
        for name in self._parts:
            part = getattr(self, name)
            if isinstance(part, Mapping) and part.keys() != state[name].keys():
                raise ConfigError(
                    f"this is no state of {type(self).__name__} with these options: its {name} are "
                    f"{', '.join(state[name])}; expected {', '.join(part)}"
                )
        for name in known:
            self._load(name, state[name])

    def _stored(self, name: str) -> Any:
        """A part or counter of the state, as arrays and plain values."""
        if name in self._counters:
            return getattr(self._counters[name], name)
        part = getattr(self, name)
        each = part if isinstance(part, Mapping) else {"": part}
        stored = {inner: to_arrays(one.state_dict()) for inner, one in each.items()}
        return stored if isinstance(part, Mapping) else stored[""]

    def _load(self, name: str, stored: Any) -> None:
        if name in self._counters:
            setattr(self._counters[name], name, int(stored))
            return
        part = getattr(self, name)
        pairs = [(one, stored[inner]) for inner, one in part.items()] if isinstance(part, Mapping) else [(part, stored)]
        for one, state in pairs:
            if isinstance(one, nn.Module):
                load_weights(one, state)
            elif isinstance(one, torch.optim.Optimizer):
                if not isinstance(state.get("param_groups"), list):
                    raise ConfigError(f"the stored optimizer is no {type(one).__name__}, as this policy has")
                one.load_state_dict(to_tensors(state))
            else:
                one.load_state_dict(state)

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: samples that no update has learned from yet; empty if there are none."""
        return {}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  (some have no such samples)
        """Continues with these samples, as far as they fit the seat and the options."""

    # -------------------------------------------------------------------------------------- what the arena asks for

    def network_inputs(self, observations: Any, masks: Any) -> tuple[list[Any], Tensor | None]:
        """A batch of observations and their masks as the network takes them: leaves [N, ...], bool [N, mask_size]."""
        leaves = self.preprocess(to_leaves(self.env.single_observation_space, observations, double=self.double))
        return moved(leaves, self.device), moved(to_mask(masks, self.actions.mask_size), self.device)

    @abstractmethod
    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Any, Tensor | None]:
        """Actions [N, *shape] as learned from, for `network_inputs`, and the rows' memory after them."""

    def log_prob(
        self, observations: Any, actions: Any, masks: NDArray[np.int8] | None, memory: Any = None
    ) -> NDArray[np.float64]:
        """Log-probabilities [N] of the actions of one episode; a ConfigError if, as here, none are computed."""
        raise ConfigError(f"{type(self).__name__} computes no probabilities of actions")

    def state_value(self, observations: Any, memory: Any = None) -> NDArray[np.float64] | None:
        """V [N] of a batched sample [N, ...]; None if, as here, it is not known."""
        return None

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], Any]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has a random stream for itself, so that its use changes nothing in a run. Greedy: the best actions, without
        exploration. The function of a recurrent policy plays one environment from its reset on; a row's memory is
        cleared when the infos say that its episode has ended.
        """
        return self.player(None if greedy else stream(self.group.seed, ACTING))

    def player(self, draws: Draws) -> Callable[[Any, Mapping[str, Any]], Any]:
        """The function of `actor`, whose actions are drawn from these streams."""
        memory = torch.zeros(0, self.memory_size)

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> Any:
            nonlocal memory
            fields = fields_of(infos)
            leaves, mask = self.network_inputs(observations, fields.action_mask)
            if self.memory_size:
                memory = memory if len(memory) == len(leaves[0]) else torch.zeros(len(leaves[0]), self.memory_size)
                if fields.ended is not None:
                    memory[torch.from_numpy(np.asarray(fields.ended, np.bool_))] = 0.0
                leaves = [*leaves, moved(memory, self.device)]
            actions, after = self.choose(leaves, mask, draws)
            if after is not None:
                acts = (
                    torch.ones(len(memory), dtype=torch.bool) if fields.active is None else torch.tensor(fields.active)
                )
                memory = torch.where(acts[:, None], after.cpu(), memory)
            return self.actions.to_env(actions.cpu().numpy())

        return act

    def served(self) -> Served:
        """The function that chooses actions for served games, with the current weights."""

        @torch.inference_mode()
        def act(
            observations: Any,
            masks: NDArray[np.int8] | None,
            memory: NDArray[np.float32],
            random: Random,
            *entities: NDArray[np.int64],
        ) -> tuple[Any, NDArray[np.float32]]:
            leaves, mask = self.network_inputs(observations, masks)
            more = [memory, *entities] if self.memory_size else entities
            leaves = [*leaves, *(moved(torch.from_numpy(column), self.device) for column in more)]
            seeds = None if random is None else [int(generator.integers(2**63)) for generator in random]
            draws = None if seeds is None else [torch.Generator().manual_seed(seed) for seed in seeds]
            actions, after = self.choose(leaves, mask, draws)
            return self.actions.to_env(actions.cpu().numpy()), memory if after is None else after.cpu().numpy()

        return Served(self.memory_size, act)


def check_no_units(name: str, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Refuses spaces of units with a ConfigError; `name` is the algorithm's."""
    if isinstance(observation_space, UnitSpace) and isinstance(action_space, UnitActions):
        raise ConfigError(f"{name} cannot take units; ppo, a2c, impala, mappo, dqn, sac, bc, random and scripted do")
    if isinstance(observation_space, UnitSpace) or isinstance(action_space, UnitActions):
        raise ConfigError(
            f"{name} cannot take units on one side alone: observations {observation_space}, actions {action_space}; a "
            "UnitSpace has its own action_space"
        )


def check_autoreset(env: VectorEnv[Any, Any, Any], name: str) -> None:
    """Refuses, for an algorithm of this name, an environment that says that it resets at another time than at once."""
    mode = env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP)
    if mode != AutoresetMode.SAME_STEP:
        raise ConfigError(f"{name} needs a vector environment that resets on the same step, not {mode}")


def lags_of(samples: AsyncSamples) -> Metrics:
    """By how many updates the weights that have played the samples of an update were older; nothing if alone."""
    lags = samples.lags
    return {"lag_mean": float(sum(lags) / len(lags)), "lag_max": float(max(lags))} if len(lags) > 1 else {}
