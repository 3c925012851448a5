"""The algorithms of Stable-Baselines3 as workers: the library's own classes, which neither know the arena nor a group.

    plays      the library's `learn` steps the seat's lanes and entities (`vec_env`), until the run's ticks are over
    averages   a hook on its optimizers: before each step the gradients become the mean over the group's workers, are
               clipped, and checked to be finite; so all workers make the same steps, each on its own batch
    logs       its callback: what the library has logged goes to the group, averaged; its state is offered
    is saved   weights, optimizers and counters in the library's own format; a replay, or a rollout that the end of a
               leg has interrupted, as the worker's own

The library clips a gradient before the hook sees it, and a mean of clipped gradients is not the clipped mean. So the
library clips nothing, and the hook applies its limit. A worker alone takes the same steps, to the bit, as the library
does without the arena.

As all workers call the same collectives, they have to make equally many steps: they need the same number of rows,
`train_freq` counts ticks, not episodes, and no worker may stop early by itself (`target_kl`).
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import stable_baselines3
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from torch import nn
from torch.optim import Optimizer

from arena.errors import ConfigError
from arena.game.spaces import leaf_spaces
from arena.group.group import Group
from policies.common.algorithm import ACTING, EXPLORING, check_no_units
from policies.common.devices import device_of
from policies.common.tensors import misfit
from policies.networks.heads import check_choices
from policies.sb3.archive import pack, unpack
from policies.sb3.options import check_spaces, made, options_class
from policies.sb3.vec_env import GlobalStreams, Rows, check_counted_from_zero, check_no_masks, masks_refused, to_env

ARCHIVE = "stable_baselines3.zip"
"""The one item of a member's state: uint8 [n], the bytes of a file that the library's `load` opens."""

_COUNTERS = ("_n_updates", "_n_calls", "_episode_num", "_current_progress_remaining", "exploration_rate")
_AS_LEARNED = "load them with the policy_kwargs, the optimizer and the environment's spaces that they were learned with"
_MAKING = 100  # what a random stream is for, beside those of policies.common.algorithm


class Member:
    """One worker of a policy of Stable-Baselines3; each of its algorithms is a subclass.

    It plays a vector environment that resets on the same step, in which all rows act on all ticks. The library's
    schedules end with the whole run's `ticks`.

    Raises:
        ConfigError: an option or a space that the library cannot take; or the policy's `sync` is not `gradients`.
    """

    face = "vector"
    memory_size = 0
    schedule = "ticks"  # all workers learn after the same number of ticks
    library: ClassVar[type[BaseAlgorithm]]
    Options: ClassVar[type[Any]]

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        if group.sync != "gradients":
            raise ConfigError(
                f"got {group.sync!r}, but algorithms of Stable-Baselines3 learn from their own samples: their workers "
                "can average gradients, and no more",
                path="sync",
            )
        if getattr(env, "masked", False):
            raise masks_refused()
        self.env, self.group, self.ticks = env, group, ticks
        self.options = self.Options(**options)
        self.streams = GlobalStreams(group.seed, EXPLORING)
        with GlobalStreams(group.shared_seed, _MAKING):  # the same first weights everywhere
            rows = Rows(env, self.streams)
            self.model = made(self.library, self.options, rows, seed=group.shared_seed % 2**31)
        self.model.set_logger(Logger(None, []))
        self.max_grad_norm: float = getattr(self.model, "max_grad_norm", math.inf)
        self.saved: dict[str, Any] = {"action_space": copy.deepcopy(self.model.action_space)}  # not as it is now
        self.model.action_space.seed(group.seed % 2**31)  # the library draws from it
        if hasattr(self.model, "max_grad_norm"):
            self.saved["max_grad_norm"] = self.max_grad_norm
            self.model.max_grad_norm = math.inf
        for part in (recursive_getattr(self.model, name) for name in self.model.get_parameters()):
            if isinstance(part, Optimizer):
                part.register_step_pre_hook(self.average)
        self.collected = 0  # ticks of the rollout that is under way
        self.restored: Mapping[str, Any] | None = None  # the worker's own state, not in use yet
        self.logged_updates = self.logged_at = 0  # at the last line of metrics
        self.lines = 0  # of the metrics in this leg

    # ---------------------------------------------------------------------------------------------- the whole loop

    def run(self) -> None:
        """Learns until the environment raises `BudgetReached`."""
        rows = float(self.env.num_envs)
        if self.group.size > 1 and self.group.maximum(rows) != -self.group.maximum(-rows):
            raise ConfigError(
                f"the seats of policy {self.group.policy!r} differ in lanes x entities, {rows:g} here; workers of "
                "Stable-Baselines3 would make different numbers of gradient steps: give all seats as many"
            )
        self.group.broadcast(self.model.policy)
        if self.restored is not None:  # the library collects only the missing part of a rollout
            self._set_length(_length(self.model) - self.restored["collected"])
            if isinstance(self.model, OffPolicyAlgorithm):
                _restore(_buffer(self.model), self.restored["buffer"])
        callback = _Callback(self)
        with self.streams:
            while True:  # `learn` returns if the run ends with a rollout; the next step then raises
                left = self.ticks * self.model.n_envs - self.model.num_timesteps
                self.model.learn(max(left, 1), callback=callback, log_interval=sys.maxsize, reset_num_timesteps=False)

    @property
    def ticks_done(self) -> int:
        """Ticks that the policy has played, in all legs."""
        return self.model.num_timesteps // self.model.n_envs

    def average(self, optimizer: Optimizer, *_: Any) -> None:
        """Before a step: the gradients become the group's mean, no longer than allowed; a collective."""
        parameters = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None  # the same ones in all workers
        ]
        with self.streams.left():
            self.group.average_gradients(parameters)
        norm = float(nn.utils.clip_grad_norm_(parameters, self.max_grad_norm))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"policy {self.group.policy!r}: after {self.model._n_updates} updates the gradient of the next one has "
                f"the length {norm}; are all rewards and observations finite, and of moderate size? If they are, "
                "lower learning_rate"
            )

    def begin_rollout(self) -> None:
        """Called before the library collects a rollout, or the rest of one from an earlier leg."""
        updates, ticks, every = self.model._n_updates, self.ticks_done, self.options.log_every
        due = not self.logged_updates or ticks // every > self.logged_at // every
        if due and updates > self.logged_updates:
            self.logged_updates, self.logged_at = updates, ticks
            with self.streams.left():
                self.record()
        self.collected = 0
        if self.restored is not None:  # the library has emptied its buffer, if on-policy
            self.collected = self.restored["collected"]
            self._set_length(_length(self.model) + self.collected)
            if isinstance(self.model, OnPolicyAlgorithm):
                _restore(_buffer(self.model), self.restored["buffer"])
            self.restored = None

    def record(self) -> None:
        """Logs the library's last figures for the group, checks the weights, offers the state; a collective."""
        logged = self.model.logger.name_to_value.items()
        figures = {name: float(value) for name, value in logged if isinstance(value, (int, float, np.number))}
        self.group.log(**self.group.average_gradients([], **figures))
        if self.options.check_every and self.lines % self.options.check_every == 0:
            self.group.check_equal(self.model.policy)
        self.lines += 1
        self.group.save(self.state_dict)

    # -------------------------------------------------------------------------------------- what the arena asks for

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has its own random stream. Greedy: the most probable actions; else sampled, if the policy is stochastic; a
        DQN explores as often as it does now.
        """
        streams, space = GlobalStreams(self.group.seed, ACTING), self.env.single_action_space
        rng = np.random.default_rng([self.group.seed, ACTING])

        def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
            check_no_masks(infos)  # to act in rows that are out of the game does no harm
            with streams:
                actions, _ = self.model.policy.predict(observations, deterministic=greedy)
            rate = 0.0 if greedy else getattr(self.model, "exploration_rate", 0.0)
            if rate:
                random = rng.integers(self.model.action_space.n, size=actions.shape)  # type: ignore[attr-defined]
                actions = np.where(rng.random(len(actions)) < rate, random, actions)
            return to_env(space, actions)

        return act

    def state_dict(self) -> dict[str, Any]:
        """The policy: an archive that the library's `load` opens, see `policies.sb3.archive`."""
        return {ARCHIVE: np.frombuffer(pack(self.model, **self.saved), np.uint8)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a stored state, also one of another worker or another number of workers or rows.

        Of the archive nothing is unpickled: weights, optimizers and counters are taken from it, all else is what the
        options and the seat say. `ConfigError`: it is not of this class, or its networks have another shape.
        """
        if ARCHIVE not in state:
            name = type(self).__name__
            raise ConfigError(f"this is no state of sb3:{name}: it has {', '.join(map(str, state)) or 'nothing'}")
        found = unpack(np.asarray(state[ARCHIVE], np.uint8).tobytes())
        mine = self.model.get_parameters()
        if found.parameters.keys() != mine.keys():
            raise ConfigError(f"the stored state has {', '.join(found.parameters)}, expected {', '.join(mine)}")
        try:
            for name, parameters in found.parameters.items():
                part = recursive_getattr(self.model, name)
                if isinstance(part, Optimizer):  # another kind would fail only at its next step
                    groups = part.param_groups, parameters["param_groups"]
                    here, there = ([{*group} for group in each] for each in groups)
                    if here != there:
                        raise ValueError(f"{type(part).__name__} has other parameters than the stored optimizer")
                elif (differs := misfit(part, parameters)) is not None:
                    raise ConfigError(f"the stored weights do not fit this network: {differs[0]}; {_AS_LEARNED}")
                part.load_state_dict(parameters)
            with torch.no_grad():
                for name, value in found.variables.items():
                    recursive_getattr(self.model, name).copy_(value)
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"the stored weights do not fit this network: {error}; {_AS_LEARNED}") from error
        numbers = found.numbers
        for name in _COUNTERS:
            if name in numbers and hasattr(self.model, name):
                setattr(self.model, name, numbers[name])
        ticks = int(numbers.get("num_timesteps", 0)) // max(int(numbers.get("n_envs", 1)), 1)
        self.model.num_timesteps = ticks * self.model.n_envs
        self.logged_updates, self.logged_at = self.model._n_updates, ticks - 1  # so the leg's first tick counts

    def worker_state_dict(self) -> dict[str, Any]:
        """What this worker alone has: its replay, or the part of a rollout that it has not learned from."""
        if self.restored is not None:
            return dict(self.restored)
        if not self.collected and isinstance(self.model, OnPolicyAlgorithm):
            return {}
        buffer = _buffer(self.model)
        if not buffer.size():
            return {}
        columns = {name: column[: buffer.size()] for name, column in _columns(buffer)}  # views [t, B, ...]
        return {
            "collected": self.collected,
            "buffer": {"pos": buffer.pos, "full": buffer.full, "columns": columns},
        }

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with that, if the buffer has the same columns and rows, and as much room."""
        room = self.options.n_steps if isinstance(self.model, OnPolicyAlgorithm) else self.options.train_freq
        buffer, stored = _buffer(self.model), state["buffer"]
        mine, theirs = dict(_columns(buffer)), stored["columns"]
        same = mine.keys() == theirs.keys() and all(
            mine[name].shape[1:] == theirs[name].shape[1:] and mine[name].dtype == theirs[name].dtype for name in mine
        )
        size = buffer.buffer_size if stored["full"] else stored["pos"]
        fits = 0 <= stored["pos"] < buffer.buffer_size and {len(column) for column in theirs.values()} == {size}
        if state["collected"] < room and same and fits:
            self.restored = state

    @classmethod
    def from_spaces(cls, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> Member:
        """An instance that cannot play, almost without a replay."""
        small = {"buffer_size": env.num_envs * 8} if hasattr(cls.Options, "buffer_size") else {}
        return cls(env, group, ticks=ticks, **{**options, **small})

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses a device that this machine does not have."""
        device_of(cls.Options(**options).device)

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Checks that the library's class can play with one entity's spaces; `ConfigError` says what it says."""
        check_no_units(f"sb3:{cls.__name__}", observation_space, action_space)
        check_counted_from_zero(observation_space)
        check_choices(action_space, "actions")
        for part in leaf_spaces(observation_space):
            check_choices(part, "observations")
        check_spaces(cls.library, observation_space, action_space)

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows of what the workers do together.

        Raises:
            ConfigError: an option that the library cannot take, or not with these workers; or nothing would be learned.
        """
        o = cls.Options(**options)
        if getattr(o, "target_kl", None) is not None and workers > 1:
            raise ConfigError(
                f"got {o.target_kl!r} with {workers} workers, expected null: each would stop at its own time, and "
                "the others wait for its gradients; ppo has one that all workers agree on",
                path="options.target_kl",
            )
        if issubclass(cls.library, OnPolicyAlgorithm):
            if o.n_steps > ticks:
                raise ConfigError(
                    f"a rollout of {o.n_steps} ticks does not fit into a run of {ticks}, so nothing would be "
                    f"learned; set n_steps to {ticks} or less, or ticks to {o.n_steps} or more",
                    path="options.n_steps",
                )
            if getattr(o, "normalize_advantage", False) and o.n_steps * rows == 1:
                raise ConfigError(
                    "got 1 in a seat of one row, expected 2 or more: advantages that are normalized need several; "
                    "raise n_steps or the match's lanes, or set normalize_advantage: false",
                    path="options.n_steps",
                )
            minibatches = math.ceil(o.n_steps * rows / getattr(o, "batch_size", math.inf))
            return {
                "samples per update": o.n_steps * rows * workers,
                "updates per run": ticks // o.n_steps,
                "gradient steps per update": max(minibatches, 1) * getattr(o, "n_epochs", 1),
            }
        collected = o.train_freq * rows  # by one worker between two updates
        updates = ticks // o.train_freq - o.learning_starts // collected
        if updates <= 0:
            raise ConfigError(
                f"each worker collects {ticks * rows} transitions in this run, learning_starts asks for more than "
                f"{o.learning_starts} before it learns, so nothing would be learned; lower it, or train_freq",
                path="options.learning_starts",
            )
        last = ticks // o.train_freq  # the updates are those after rollouts `last` - `updates` + 1 to `last`
        between = max(o.train_freq, o.log_every)
        earlier, newest = ((count * o.train_freq) // between for count in (last - updates + 1, last))
        return {
            "samples per gradient step": o.batch_size * workers,
            "gradient steps per run": updates * (collected if o.gradient_steps < 0 else o.gradient_steps),
            "lines of metrics per run": newest - earlier + 1,
        }

    def _set_length(self, ticks: int) -> None:
        if isinstance(self.model, OnPolicyAlgorithm):
            self.model.n_steps = ticks
        else:
            self.model.train_freq = TrainFreq(ticks, TrainFrequencyUnit.STEP)  # type: ignore[attr-defined]


class _Callback(BaseCallback):
    """The library's callback, which informs a member."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self._member = member

    def _on_rollout_start(self) -> None:
        self._member.begin_rollout()

    def _on_step(self) -> bool:
        self._member.collected += 1
        return True

    def _on_rollout_end(self) -> None:
        self._member.collected = 0


def _buffer(model: Any) -> Any:
    return model.rollout_buffer if isinstance(model, OnPolicyAlgorithm) else model.replay_buffer


def _length(model: Any) -> int:
    """Ticks per rollout."""
    return int(model.n_steps if isinstance(model, OnPolicyAlgorithm) else model.train_freq.frequency)


def _restore(buffer: BaseBuffer, state: Mapping[str, Any]) -> None:
    """Fills a buffer with what `worker_state_dict` has stored."""
    for name, column in _columns(buffer):
        column[: len(state["columns"][name])] = state["columns"][name]
    buffer.pos, buffer.full = state["pos"], state["full"]


def _columns(buffer: BaseBuffer) -> Iterator[tuple[str, NDArray[Any]]]:
    """All columns by name; those of Dict observations as `observations/key`."""
    for name, value in vars(buffer).items():
        if isinstance(value, np.ndarray):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}/{key}", part) for key, part in value.items() if isinstance(part, np.ndarray))


def _member(library: type[BaseAlgorithm]) -> type[Member]:
    name = library.__name__
    described = f"One worker of a policy that is Stable-Baselines3's {name}; see `Member`."
    options = options_class(library)
    return type(name, (Member,), {"__doc__": described, "library": library, "Options": options})


A2C = _member(stable_baselines3.A2C)
DDPG = _member(stable_baselines3.DDPG)
DQN = _member(stable_baselines3.DQN)
PPO = _member(stable_baselines3.PPO)
SAC = _member(stable_baselines3.SAC)
TD3 = _member(stable_baselines3.TD3)
