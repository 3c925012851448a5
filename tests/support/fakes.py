"""Fakes for algorithms: groups without an arena, and minimal environments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.errors import BudgetReached, GroupError
from arena.game.spaces import row

torch.set_num_threads(1)  # as in every worker

_VECTOR = spaces.Box(-1, 1, (3,), np.float32)
# Spaces of each kind, for algorithms that take all of them
OBSERVATIONS = [
    _VECTOR,
    spaces.Box(0, 255, (12, 12, 3), np.uint8),
    spaces.Discrete(5, start=2),
    spaces.Dict(a=_VECTOR, b=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])])),
]
ACTIONS = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3]], start=[[4, 0]]),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-0.1, 0.1, (2, 1), np.float64),
]


class Moments(NamedTuple):
    mean: float
    std: float
    count: int
    max_count: int


class ThreadGroup:
    """One worker's view of a group whose workers are threads of this process.

    Every collective is a rendezvous: each worker gives its part, and gets those of all. Arguments of
    `log` and `save` are kept in `logged` and `saved`; `called` lists the collectives in order. With `team_size` the
    workers are teams of as many, one after the other.
    """

    def __init__(
        self, meeting: Meeting, rank: int, *, sync: str = "gradients", seed: int = 0, team_size: int = 1
    ) -> None:
        self._meeting = meeting
        self.rank, self.size = rank, meeting.size
        self.sync, self.seed, self.shared_seed = sync, 1000 * seed + rank, seed
        self.policy = "blue"
        self.teams = tuple(tuple(range(first, first + team_size)) for first in range(0, self.size, team_size))
        self.team = self.teams[rank // team_size]
        self.rows: int | None = None  # each worker takes its own number as the maximum
        self.async_samples: Any = None  # every update is a barrier
        self.logged: list[dict[str, float]] = []
        self.saved: list[Any] = []
        self.told: list[str] = []
        self.called: list[str] = []

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    @property
    def is_writer(self) -> bool:
        return self.is_root

    def tell(self, text: str) -> None:
        self.told.append(text)

    def average_gradients(self, parameters: Iterable[torch.Tensor], *, weight: float = 1.0, **scalars: float) -> Any:
        held = list(parameters)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in held]
        parts = self._meet("average", (weight, gradients, scalars))
        total = sum(part[0] for part in parts) or 1.0  # zeros where all weights are 0
        for index, parameter in enumerate(held):
            parameter.grad = (sum(part[1][index].double() * part[0] for part in parts) / total).to(parameter.dtype)
        return {name: sum(part[2][name] * part[0] for part in parts) / total for name in scalars}

    def broadcast(self, module: torch.nn.Module) -> None:
        parts = self._meet("broadcast", {key: value.clone() for key, value in module.state_dict().items()})
        module.load_state_dict(parts[0])

    def broadcast_object(self, value: Any) -> Any:
        return self._meet("broadcast_object", value)[0]

    def gather(self, samples: Any) -> list[Any] | None:
        parts = self._meet("gather", samples)
        return parts if self.is_root else None

    def pool(self, samples: Any) -> list[Any]:
        return self._meet("pool", samples)

    def pool_team(self, samples: Any) -> list[Any]:
        parts = self._meet("pool_team", samples)
        return [parts[rank] for rank in self.team]

    def moments(self, values: NDArray[Any]) -> Moments:
        return self.moments_of(values=values)["values"]

    def moments_of(self, **arrays: NDArray[Any]) -> dict[str, Moments]:
        parts = self._meet("moments", arrays)
        return {name: _moments([np.ravel(part[name]) for part in parts]) for name in arrays}

    def mean(self, value: float, *, weight: float = 1.0) -> float:
        parts = self._meet("mean", (value, weight))
        return sum(part * w for part, w in parts) / sum(w for _, w in parts)

    def maximum(self, value: float) -> float:
        return max(self._meet("maximum", value))

    def check_equal(self, module: torch.nn.Module) -> None:
        states = self._meet("check_equal", [value.clone() for value in module.state_dict().values()])
        if not all(torch.equal(a, b) for state in states for a, b in zip(states[0], state, strict=True)):
            raise GroupError("workers hold different weights")

    def log(self, **values: float) -> None:
        self.logged.append(values)

    def save(self, state: Any) -> None:
        self.saved.append(state)

    def _meet(self, name: str, part: Any) -> list[Any]:
        self.called.append(name)
        return self._meeting.exchange(self.rank, name, part)


def _moments(parts: list[NDArray[Any]]) -> Moments:
    pooled, most = np.concatenate(parts).astype(np.float64), max(part.size for part in parts)
    return Moments(float(pooled.mean()), float(pooled.std()), pooled.size, most) if most else Moments(0.0, 0.0, 0, 0)


class Meeting:
    """The barrier of a group's threads. A failing worker breaks it, so that the others raise instead of waiting."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._parts: list[Any] = [None] * size

    def exchange(self, rank: int, name: str, part: Any) -> list[Any]:
        self._parts[rank] = (name, part)
        self._barrier.wait(600)
        seen = list(self._parts)
        self._barrier.wait(600)
        if len({name for name, _ in seen}) > 1:
            raise GroupError(f"different collectives: {[name for name, _ in seen]}")
        return [part for _, part in seen]

    def abort(self) -> None:
        self._barrier.abort()


def solo_group(*, sync: str = "gradients", seed: int = 0) -> ThreadGroup:
    """A group of one."""
    return ThreadGroup(Meeting(1), 0, sync=sync, seed=seed)


def together(
    size: int, work: Callable[[ThreadGroup], Any], *, sync: str = "gradients", seed: int = 0, team_size: int = 1
) -> list[Any]:
    """Runs `work(group)` in one thread per worker; the results in group order. The first error is raised."""
    meeting = Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            results[rank] = work(ThreadGroup(meeting, rank, sync=sync, seed=seed, team_size=team_size))
        except BaseException as error:
            errors.append(error)
            meeting.abort()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return results


class ScriptedEnv(VectorEnv[Any, Any, Any]):
    """A vector environment of any spaces, whose observations are random and whose episodes are of fixed length.

    Args:
        observation_space: of one row.
        action_space: of one row.
        rows: `num_envs`.
        ticks: the budget; the step after it raises `BudgetReached`.
        length: ticks of an episode, which is then truncated (if `cut`) or terminated.
        reward: a function of (observations, actions), [B]; 0 by default.
        masks: a function from the tick to `infos["action_mask"]`.
        active: a function from the tick to `infos["active"]`.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        rows: int = 4,
        ticks: int = 10_000,
        length: int = 5,
        cut: bool = True,
        seed: int = 0,
        reward: Callable[[Any, Any], NDArray[np.float64]] | None = None,
        masks: Callable[[int], NDArray[np.int8]] | None = None,
        active: Callable[[int], NDArray[np.bool_]] | None = None,
    ) -> None:
        self.num_envs = rows
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, rows)
        self.action_space = batch_space(action_space, rows)
        self.observation_space.seed(seed)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.ticks, self.length, self.cut, self.tick = ticks, length, cut, 0
        self._reward, self._masks, self._active = reward, masks, active
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._seen = self.observation_space.sample()
        return self._seen, self._infos()

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self.tick >= self.ticks:
            raise BudgetReached
        self.tick += 1
        self.actions.append(actions)
        rewards = np.zeros(self.num_envs) if self._reward is None else self._reward(self._seen, actions)
        ended = np.full(self.num_envs, self.tick % self.length == 0)
        never = np.zeros(self.num_envs, np.bool_)
        last, self._seen = self.observation_space.sample(), self.observation_space.sample()
        infos = self._infos()
        if ended.any():
            infos["final_obs"] = np.empty(self.num_envs, object)
            for index in range(self.num_envs):
                infos["final_obs"][index] = row(self.single_observation_space, last, index)
            infos["_final_obs"] = ended
        return self._seen, rewards, never if self.cut else ended, ended if self.cut else never, infos

    def _infos(self) -> dict[str, Any]:
        infos: dict[str, Any] = {"active": np.ones(self.num_envs, np.bool_)}
        if self._active is not None:
            infos["active"] = self._active(self.tick)
        if self._masks is not None:
            infos["action_mask"] = self._masks(self.tick)
        return infos


def hide_idle_rows(env: ScriptedEnv, value: float = np.nan) -> ScriptedEnv:
    """The environment, which observes floats, with a value in place of all that inactive rows observe.

    Learning from nan makes all weights nan.
    """
    step, reset = env.step, env.reset

    def hidden(observations: Any, infos: dict[str, Any]) -> NDArray[np.float32]:
        return np.where(infos["active"][:, None], observations, value).astype(np.float32)

    def hidden_step(actions: Any) -> Any:
        observations, *rest = step(actions)
        return hidden(observations, rest[-1]), *rest

    def hidden_reset(**given: Any) -> Any:
        observations, infos = reset(**given)
        return hidden(observations, infos), infos

    env.step, env.reset = hidden_step, hidden_reset  # type: ignore[method-assign]
    return env


def final_observations(env: ScriptedEnv) -> list[Any]:
    """The `final_obs` of each step of the environment from now on."""
    found: list[Any] = []
    step = env.step

    def watched(actions: Any) -> Any:
        result = step(actions)
        found.append(result[4].get("final_obs"))
        return result

    env.step = watched  # type: ignore[method-assign]
    return found


def random_rewards(seed: int) -> Callable[[Any, Any], NDArray[np.float64]]:
    """Random rewards of a `ScriptedEnv`, independent of observations and actions."""
    rng = np.random.default_rng(seed)
    return lambda observations, actions: rng.normal(size=len(actions))


def flat_weights(module: torch.nn.Module) -> NDArray[np.float32]:
    """All weights of a module, one after the other."""
    return np.concatenate([value.detach().cpu().numpy().ravel() for value in module.parameters()])


def all_equal(left: Mapping[str, Any] | Sequence[Any] | Any, right: Any) -> bool:
    """Whether two nested states are the same to the bit."""
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(all_equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(all_equal(a, b) for a, b in zip(left, right, strict=True))
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))
