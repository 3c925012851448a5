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

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from arena.game.batches import batched_space
from arena.game.spaces import large_numbers, leaves_of
from arena.game.units import UnitActions, UnitSpace
from policies.common.adam import Optimizer, held
from policies.common.columns import RaggedTensor, to_leaves
from policies.common.options import wrong
from policies.common.tensors import load_weights, to_arrays, to_tensors
from policies.extensions import ExtraLoss
from policies.networks.heads import action_head, check_choices

if TYPE_CHECKING:
    from arena.group.async_samples import AsyncSamples
    from arena.group.group import Group


def device_of(name: str) -> torch.device:
    """The device that an option `device` names; auto is cuda where there is one.

    If it is a GPU, torch uses deterministic algorithms from then on, in the whole process.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise wrong("device", name, "cpu or auto: torch finds no CUDA device on this machine")
    if name == "cuda":
        # Sums in any order are a little faster, but neither a repeated nor a resumed run would give the same bits.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass has no such variant
    return torch.device(name)


def moved(tensors: Any, device: torch.device) -> Any:
    """A tensor, a list of them or None, on a device; unchanged if they are on it already."""
    if tensors is None or device.type == "cpu":
        return tensors
    return [tensor.to(device) for tensor in tensors] if isinstance(tensors, list) else tensors.to(device)


EXPLORING, ACTING, REPLAYING = range(3)  # what a stream is for: learning, playing without learning, replay


def stream(*key: int) -> torch.Generator:
    """A random stream of its own for every key, such as (group.seed, EXPLORING)."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))


Random = Sequence[np.random.Generator] | None


class Served(NamedTuple):
    """What `served()` of an algorithm returns.

    Attributes:
        memory_size: numbers that a row remembers; 0: none.
        act: `act(observations, masks, memory, random)`: a batched sample [K, ...], int8 [K, mask_size] or None, float32
            [K, memory_size], and a generator for each row, or None for the best actions; returns the actions as the
            environment takes them [K, ...], and the memory after them.
    """

    memory_size: int
    act: Callable[[Any, NDArray[np.int8] | None, NDArray[np.float32], Random], tuple[Any, NDArray[np.float32]]]


def torch_generators(random: Sequence[np.random.Generator]) -> list[torch.Generator]:
    """A torch generator for each, seeded with a number that it draws."""
    return [torch.Generator().manual_seed(int(generator.integers(2**63))) for generator in random]


Kind = TypeVar("Kind", bound="Algorithm")


Metrics = dict[str, float]
"""Numbers that describe an update, by name."""

Backward = Callable[[Any], Tensor]
"""Adds the gradient of a minibatch's mean loss to `grad` of the weights; returns the metrics, means over it."""


class Algorithm(ABC):
    """One worker of a policy that learns.

    Args:
        env: a vector environment.
        group: the workers of this policy.
        ticks: the whole run's budget.
        options: the fields of the class's `Options`.

    Attributes:
        network: whose weights the group shares; made by the subclass.
        remedy: ends the message about a number that is not finite.
        extra: a further loss, whose gradient is added to each minibatch's; None: there is none.
        face: which kind of environment `run` is given.
        schedule: when the workers of a group synchronize, see `arena.plan.deadlock`.

    Raises:
        ConfigError: an option that the algorithm cannot take, or a device that this machine does not have.
    """

    face = "vector"
    schedule = "ticks"
    Options: ClassVar[type[Any]]
    optional_parts: ClassVar[tuple[str, ...]] = ()  # of the state, which earlier versions did not always store
    refused_options: ClassVar[tuple[str, ...]] = ()  # those of `Options` that a subclass cannot use
    takes_units: ClassVar[bool] = False  # plays seats of a `UnitSpace`
    options: Any  # of the class's own type
    network: Any
    remedy = "are all rewards and observations finite, and of moderate size? If they are, lower learning_rate"
    extra: ExtraLoss | None = None

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        if torch.get_default_dtype() is not torch.float32:
            raise ConfigError(
                f"torch's default dtype is {torch.get_default_dtype()}, and the algorithms of the arena compute in "
                "float32; a module that this process has imported sets it: give `dtype=` to its tensors instead"
            )
        check_choices(env.single_action_space, "actions")
        self.options = self.Options(**options)
        self.device = device_of(self.options.device)
        self.ticks_done = 0
        if (given := getattr(self.options, "extra_loss", None)) is not None:
            spaces = env.single_observation_space, env.single_action_space
            self.extra = ExtraLoss(given, *spaces, seed=group.seed)
        self._parts: tuple[str, ...] = ()
        self._counters: dict[str, object] = {}

    @classmethod
    def from_spaces(
        cls: type[Kind], env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any
    ) -> Kind:
        """An instance that cannot play, made from an environment that has nothing but spaces.

        Raises:
            ConfigError: it cannot be made with these options, this seat or this group.
        """
        return cls(env, group, ticks=ticks, **options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Checks that this machine has the device.

        Raises:
            ConfigError: it does not.
        """
        device_of(cls.Options(**options).device)

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Checks that the algorithm can play with one entity's spaces.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        if cls.takes_units and isinstance(observation_space, UnitSpace) and isinstance(action_space, UnitActions):
            return
        check_no_units(cls.__name__.lower(), observation_space, action_space)
        leaves_of(observation_space)
        cls.check_actions(action_space)

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        """Checks that the algorithm can choose in a space of actions.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        action_head(space)

    @property
    def progress(self) -> float:
        """The part of the whole run that is over, from 0 to 1."""
        return min(1.0, self.ticks_done / self.ticks)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the update that comes next."""
        falls = self.options.learning_rate_schedule == "linear"
        return float(self.options.learning_rate * ((1 - self.progress) if falls else 1))

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

    def try_out(self) -> None:
        """Calls a further loss once, before the run, on an instance that is used for nothing else.

        Raises:
            ConfigError: it fails.
        """
        if self.extra is not None and (batch := self.made_up_batch()) is not None:
            self.extra.try_out(self.network, batch.to(self.device))

    def made_up_batch(self) -> Any:
        """A minibatch as a further loss gets it, from `made_up`; None: the algorithm has none to show."""
        return None

    def made_up(self, actions: Any) -> tuple[list[Any], Tensor | None, Any]:
        """Leaves, masks and actions [2, ...] of samples of the spaces; `actions` is their translation."""
        own = self.env.single_observation_space, self.env.single_action_space
        batches = [batched_space(space, 2) for space in own]
        for space in batches:
            space.seed(0)
        leaves = to_leaves(own[0], batches[0].sample())
        for leaf in leaves:
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                leaf.clamp_(-10, 10)  # a Box may have bounds as far as a float goes
        masked = getattr(self.env, "masked", False) and actions.mask_size
        masks = torch.ones(2, actions.mask_size, dtype=torch.bool) if masked else None
        return leaves, masks, actions.from_env(batches[1].sample())

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

    def mean_gradients(
        self, batch: Any, backward: Backward, names: Sequence[str], optimizer: Optimizer, *, label: str
    ) -> Metrics:
        """Leaves the mean gradient of the group in the optimizer; returns the group's mean metrics.

        Args:
            batch: a minibatch; an empty one weighs nothing, but its worker takes part.
            backward: adds the gradient of its loss.
            names: of the metrics.
            optimizer: of all weights.
            label: names the step in the error, as `update 3`.

        Raises:
            FloatingPointError: a metric is not finite.
        """
        held(optimizer).zero_grad()
        values = backward(batch) if batch.size else torch.zeros(len(names))
        measured = {**dict(zip(names, values.tolist(), strict=True)), **self._extra_backward(batch)}
        metrics = self.average([optimizer], float(batch.size), measured)
        self.check_finite(metrics, label)
        return metrics

    def _extra_backward(self, batch: Any) -> Metrics:
        """Adds the gradient of the further loss, if there is one; returns what that has measured."""
        if self.extra is None:
            return {}
        values = self.extra.backward(self.network, batch) if batch.size else [0.0] * len(self.extra.names)
        return dict(zip(self.extra.names, values, strict=True))

    def average(self, optimizers: Sequence[Optimizer], weight: float, metrics: Metrics) -> Metrics:
        """Replaces the gradients by their weighted mean over the workers that step together, in one exchange."""
        if self.pools_samples:
            return metrics
        return self.group.average_gradients(
            [vector for one in optimizers for vector in held(one).parameters], weight=weight, **metrics
        )

    def optimizer_step(self, optimizers: Sequence[Optimizer], rate: float, *, label: str) -> Metrics:
        """Shapes and clips the gradients that the optimizers hold, each by itself, and steps on them.

        Returns:
            what shaping has measured.

        Raises:
            FloatingPointError: a gradient is not finite; no weight was changed.
        """
        shaped: Metrics = {}
        movers = [held(optimizer) for optimizer in optimizers]
        if type(self).shape_gradient is not Algorithm.shape_gradient:
            for mover in movers:
                shaped.update(mover.shape_gradient(self.shape_gradient) or {})
        longest = self.options.max_grad_norm
        lengths = [mover.clip_grad_norm(math.inf if longest is None else longest) for mover in movers]
        self.check_finite({"gradient_length": math.hypot(*lengths)}, label)
        for mover in movers:
            mover.step(rate)
        return shaped

    def check_finite(self, metrics: Metrics, label: str) -> None:
        """Stops the run before a number that is not finite spreads to the weights.

        Raises:
            FloatingPointError: one is not finite.
        """
        if not all(map(math.isfinite, metrics.values())):
            raise FloatingPointError(f"policy {self.group.policy!r}: {label} measured {metrics}; {self.remedy}")

    def check_magnitude(self, space: Space[Any], leaves: Sequence[Any]) -> None:
        """Tells the user where observations [N, ...], not normalized, are far beyond what a network learns from."""
        if not self.group.is_writer:  # only its sentences are shown
            return
        plain = [(leaf.values if isinstance(leaf, RaggedTensor) else leaf).numpy() for leaf in leaves]
        if words := large_numbers(space, plain):
            self.group.tell(words)

    def update_at_rank_0(self, update: Callable[[], Metrics]) -> Metrics:
        """One update that rank 0 makes for all: its metrics at every worker; {} if rank 0 has left. A collective."""
        metrics = update() if self.group.is_root else {}
        self.group.broadcast(self.network)
        return self.group.broadcast_object(metrics) or {}

    @abstractmethod
    def acting_state(self) -> dict[str, Any]:
        """What a worker needs to play as this one does, without a barrier."""

    @abstractmethod
    def load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Plays on with the state of another worker, as `acting_state` returns it."""

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

    def record(self, metrics: Metrics, state: Callable[[], dict[str, Any]], *, check: bool) -> None:
        """Logs the metrics of an update, offers the state for a checkpoint, and compares weights; a collective.

        Args:
            metrics: of the update.
            state: gives the policy's state.
            check: whether to check that all workers hold equal weights. Without a barrier only rank 0 updates, so
                there are no replicas to compare.
        """
        self.group.log(**metrics)
        if check and self.group.async_samples is None:
            self.group.check_equal(self.network)
        self.group.save(state)

    # ------------------------------------------------------------------------------------------------------ the state

    def track(self, *names: str, **counters: object) -> None:
        """Names what makes up the policy's state.

        Args:
            names: attributes of this object: modules, objects with a `state_dict`, mappings of these. A subclass may
                replace them.
            counters: names of whole numbers, each with the object that has it as an attribute.
        """
        self._parts, self._counters = names, counters

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on: weights, optimizers, counters. Its workers draw from new streams."""
        parts = {name: _stored(getattr(self, name)) for name in self._parts}
        counters = {name: getattr(owner, name) for name, owner in self._counters.items()}
        return {**parts, **counters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not this algorithm's, or its networks have other shapes.
        """
        known = {*self._parts, *self._counters}
        if not known - {*self.optional_parts} <= state.keys() <= known:
            found = ", ".join(map(str, state)) or "nothing"
            expected = ", ".join([*self._parts, *self._counters])
            raise ConfigError(f"this is no state of {type(self).__name__}: it has {found}; expected {expected}")
        for name in self._parts:
            part = getattr(self, name)
            if isinstance(part, Mapping) and part.keys() != state[name].keys():
                raise ConfigError(
                    f"this is no state of {type(self).__name__} with these options: its {name} are "
                    f"{', '.join(state[name])}; expected {', '.join(part)}"
                )
        for name in self._parts:
            _load(getattr(self, name), state.get(name, {}))
        for name, owner in self._counters.items():
            setattr(owner, name, int(state[name]))

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: samples that no update has learned from yet; empty if there are none."""
        return {}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  (some have no such samples)
        """Continues with these samples, as far as they fit the seat and the options."""


def _load(part: Any, state: Any) -> None:
    """Loads a part of the state."""
    if isinstance(part, Mapping):
        for name, inner in part.items():
            _load(inner, state[name])
    elif isinstance(part, nn.Module):
        load_weights(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        if not isinstance(state.get("param_groups"), list):
            raise ConfigError(f"the stored optimizer is no {type(part).__name__}, as this policy has")
        part.load_state_dict(to_tensors(state))
    else:
        part.load_state_dict(state)


def _stored(part: Any) -> Any:
    """A part of the state as arrays and plain values."""
    if isinstance(part, Mapping):
        return {name: _stored(inner) for name, inner in part.items()}
    return to_arrays(part.state_dict())


def check_no_units(name: str, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Refuses spaces of units.

    Raises:
        ConfigError: one of the spaces is one.
    """
    if isinstance(observation_space, UnitSpace) and isinstance(action_space, UnitActions):
        raise ConfigError(f"{name} cannot take units; ppo, a2c, bc, random and scripted do")
    if isinstance(observation_space, UnitSpace) or isinstance(action_space, UnitActions):
        raise ConfigError(
            f"{name} cannot take units on one side alone: observations {observation_space}, actions {action_space}; a "
            "UnitSpace has its own action_space"
        )


def check_autoreset(env: VectorEnv[Any, Any, Any], name: str) -> None:
    """Checks that an environment begins the next episode on the tick on which one has ended.

    Args:
        env: a vector environment; without metadata about it, it is taken to do so.
        name: of the algorithm that asks.

    Raises:
        ConfigError: it begins the next episode at another time.
    """
    mode = env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP)
    if mode != AutoresetMode.SAME_STEP:
        raise ConfigError(f"{name} needs a vector environment that resets on the same step, not {mode}")


def lags_of(samples: AsyncSamples) -> Metrics:
    """By how many updates the weights that have played the samples of an update were older; nothing if alone."""
    lags = samples.lags
    return {"lag_mean": float(sum(lags) / len(lags)), "lag_max": float(max(lags))} if len(lags) > 1 else {}
