"""Games whose number of units changes from tick to tick; observations are a function of seed, lane and tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena import Choice, Frame, GlobalChoice, Interface, Ragged, Select, Step, UnitSpace
from arena.game.spaces import stack

SPACE = UnitSpace(
    {"Zebra": ["mark", "y"], "Ant": [], "Wolf": ["mark"]},
    ["tick"],
    {
        "walk": Choice(["left", "right", "wait"]),
        "bite": Select(),
        "call": Select(masked=True),
        "end": GlobalChoice(["yes", "no"], masked=False),
    },
    hidden=["Wolf"],
)


def observation(rng: np.random.Generator, most: int, *, mark: float, tick: int) -> dict[str, Any]:
    """A random observation of up to `most` units; all features begin with the mark of the observing entity."""
    counts = {name: int(rng.integers(0, most + 1)) if rng.random() < 0.7 else 0 for name in SPACE.types}
    units = {
        name: np.full((count, len(SPACE.types[name])), mark, np.float32) + rng.random((count, 1), np.float32) / 2
        for name, count in counts.items()
    }
    visible = (rng.random(counts["Wolf"]) < 0.5).astype(np.int8)
    total = sum(counts.values())
    seen = np.concatenate([np.arange(total - len(visible)), total - len(visible) + np.flatnonzero(visible)])
    walkers, biters = (rng.permutation(seen)[: int(rng.integers(0, len(seen) + 1))] for _ in range(2))
    callers, called = rng.permutation(seen)[:3], rng.permutation(seen)[:5]
    called = called if len(callers) else called[:0]
    mask = rng.integers(0, 2, (len(walkers), 3)).astype(np.int8)
    mask[:, 2] = 1
    heard = rng.integers(0, 2, (len(callers), len(called))).astype(np.int8)
    heard[:, :1] = 1
    return {
        "globals": np.array([tick], np.float32),
        "units": units,
        "visible": {"Wolf": visible},
        "actions": {
            "walk": {"actors": walkers, "mask": mask},
            "bite": {"actors": biters, "actees": seen if len(biters) else seen[:0]},
            "call": {"actors": callers, "actees": called, "mask": heard.ravel()},
            "end": {"actors": np.full(int(rng.integers(0, 2)), total)},
        },
    }


class Crowd:
    """Each entity sees its own crowd and is rewarded for its choices; episodes last 3 to 9 ticks.

    Args:
        lanes: that step together.
        players: number of entities.
        most: units of one type.
        turns: the entities act in turn.
        alone: each entity's last episode ticks are its own: the first entity ends a tick before the others.
    """

    batched = True

    def __init__(self, lanes: int, players: int = 2, most: int = 6, turns: bool = False, alone: bool = False) -> None:
        self.lanes, self.most, self.turns, self.alone = lanes, most, turns, alone
        names = tuple(f"p{number}" for number in range(players))
        self.interface = Interface(names, (SPACE,) * players, (SPACE.action_space,) * players, (0,) * players)
        self._rngs = [np.random.default_rng(0) for _ in range(lanes)]
        self._left = np.zeros(lanes, int)
        self._tick = np.zeros(lanes, int)
        self._ended = np.ones((lanes, players), np.bool_)
        self._shown: list[list[Any]] = [[None] * lanes for _ in names]

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        for lane in np.flatnonzero(lanes).tolist():
            if seeds is not None and seeds[lane] is not None:
                self._rngs[lane] = np.random.default_rng(seeds[lane])
            self._left[lane] = self._rngs[lane].integers(3, 10)
            self._tick[lane] = 0
            self._ended[lane] = False
            self._show(lane)
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        shape = self._ended.shape
        rewards, terminated, truncated = np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for lane in range(self.lanes):
            if self._ended[lane].all():
                continue
            active = self._active()[lane]
            for entity in np.flatnonzero(active).tolist():
                rewards[lane, entity] = self._reward(entity, lane, actions[entity])
            self._left[lane] -= 1
            self._tick[lane] += 1
            over = ~self._ended[lane] & (self._left[lane] <= 0)
            if self.alone and self._left[lane] == 1:
                over[0] = not self._ended[lane, 0]
            (truncated if self._tick[lane] % 2 else terminated)[lane] = over
            self._ended[lane] |= over
            self._show(lane)
        return Step(self._frame(), rewards, terminated, truncated)

    def _reward(self, entity: int, lane: int, action: Mapping[str, Ragged]) -> float:
        """Depends on each choice and on its place."""
        total = 0.0
        for number, (name, choices) in enumerate(action.items()):
            row, actors = choices[lane], self._shown[entity][lane]["actions"][name]["actors"]
            if len(row) != len(actors):
                raise AssertionError(f"{len(row)} choices for {len(actors)} actors")
            total += float(((row + 1) * (np.arange(len(row)) % 7 + 1)).sum()) * (number + 1)
        return total % 97 / 97

    def _show(self, lane: int) -> None:
        for entity, of_lane in enumerate(self._shown):
            of_lane[lane] = observation(self._rngs[lane], self.most, mark=entity + 1, tick=int(self._tick[lane]))

    def _active(self) -> NDArray[np.bool_]:
        active = ~self._ended
        if self.turns:
            active &= np.arange(active.shape[1]) == (self._tick % active.shape[1])[:, None]
            stuck = ~self._ended.all(axis=1) & ~active.any(axis=1)
            active[stuck] = ~self._ended[stuck]
        return active

    def _frame(self) -> Frame:
        nothing = SPACE.complete({"globals": [0]})
        batches = [stack(SPACE, [nothing if one is None else one for one in of_lane]) for of_lane in self._shown]
        return Frame(batches, self._active(), (None,) * len(batches))

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass


class FailingCrowd(Crowd):
    """Fails once, after 20 ticks of the process, while all lanes play."""

    failed = False
    _steps = 0

    def step(self, actions: Sequence[Any]) -> Step:
        self._steps += 1
        if self._steps == 20 and not FailingCrowd.failed:
            FailingCrowd.failed = True
            raise RuntimeError("as asked")
        return super().step(actions)


class CrowdEnv(gymnasium.Env[Any, Any]):
    """The same for one entity and one lane, as a `gymnasium.Env`."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, most: int = 6) -> None:
        self.observation_space, self.action_space = SPACE, SPACE.action_space
        self.most, self._ticks, self._left = most, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._ticks, self._left = 0, int(self.np_random.integers(3, 10))
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(sum((choices * np.arange(1, len(choices) + 1)).sum() for choices in action.values()))
        self._ticks, self._left = self._ticks + 1, self._left - 1
        return self._look(), reward, self._left == 0, False, {}

    def _look(self) -> dict[str, Any]:
        return observation(self.np_random, self.most, mark=1.0, tick=self._ticks)


class BesideNumbers(Crowd):
    """The second entity sees a number, and chooses one of two: its seat has no units."""

    def __init__(self, lanes: int, most: int = 6) -> None:
        super().__init__(lanes, most=most)
        number, choice = spaces.Box(0, 100, (1,), np.float32), spaces.Discrete(2)
        self.interface = Interface(self.interface.entities, (SPACE, number), (SPACE.action_space, choice), (0, 0))

    def _frame(self) -> Frame:
        frame = super()._frame()
        return frame._replace(observations=[frame.observations[0], self._tick[:, None].astype(np.float32)])

    def _reward(self, entity: int, lane: int, action: Any) -> float:
        return super()._reward(entity, lane, action) if entity == 0 else float(action[lane])


class OtherActions(Crowd):
    """Its action space is not the one of its observations."""

    def __init__(self, lanes: int, alone: bool = False) -> None:
        super().__init__(lanes)
        other = UnitSpace({"Zebra": []}, actions={"walk": Choice(["left"])}).action_space
        self.interface = Interface(self.interface.entities, (SPACE,) * 2, (other,) * 2, (0, 0))


class WrongEnv(CrowdEnv):
    """Observes something wrong on its second tick."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def _look(self) -> dict[str, Any]:
        seen = {
            "globals": [0],
            "units": {"Zebra": [[0, 0], [0, 0]], "Wolf": [[0]]},
            "visible": {"Wolf": [0]},
            "actions": {"walk": {"actors": [0]}, "bite": {"actors": [1], "actees": [0]}},
        }
        if self._ticks == 2:
            units, walk = seen["units"], seen["actions"]["walk"]  # type: ignore[index,call-overload]
            {
                "type": lambda: units.update(Bear=[]),
                "features": lambda: units.update(Zebra=[[1, 2, 3]]),
                "action": lambda: seen["actions"].update(walks={}),  # type: ignore[attr-defined]
                "hidden": lambda: walk.update(actors=[2]),
                "forbids": lambda: walk.update(mask=[[0, 0, 0]]),
                "mask": lambda: walk.update(mask=[[1, 1]]),
                "nan": lambda: units.update(Zebra=[[np.nan, 0], [0, 0]]),
            }[self.fault]()
        return seen


class ItemsEnv(gymnasium.Env[Any, Any]):
    """No units: observations and actions have any number of items; the reward counts those of the action."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "fixed": spaces.Box(-1, 1, (2,), np.float32),
                "items": spaces.Sequence(spaces.Box(0, 1, (3,), np.float32), stack=True),
            }
        )
        self.action_space = spaces.Tuple(
            (spaces.Discrete(3), spaces.Sequence(spaces.MultiDiscrete([2, 4]), stack=True))
        )
        self._ticks = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._ticks = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._ticks += 1
        kind, items = action
        return self._look(), float(kind) + float(items.sum()), self._ticks == 5, False, {}

    def _look(self) -> dict[str, Any]:
        count = int(self.np_random.integers(0, 5))
        return {
            "fixed": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "items": self.np_random.random((count, 3), np.float32),
        }
