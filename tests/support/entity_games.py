"""Games of the published interface for tests: the boards of its documentation, and one with given observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arena.entity_env import (
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)

BOARDS: Sequence[Mapping[str, Any]] = (
    {"mines": [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)], "robots": [(1, 1)], "orbital_cannon": False, "cooldown": 5},
    {"mines": [(2, 1)], "robots": [(2, 0)], "orbital_cannon": True, "cooldown": 0},
    {"mines": [(1, 0), (0, 1), (2, 2)], "robots": [(0, 0), (2, 0)], "orbital_cannon": False, "cooldown": 5},
)
"""Three boards of 3 x 3 cells."""


class BoardGame(Environment):
    """Minesweeper on one of `BOARDS`, which does not change; keeps the actions that it got."""

    def __init__(self, board: Mapping[str, Any]) -> None:
        self.board = board
        self.got: list[Mapping[str, Any]] = []

    def obs_space(self) -> ObsSpace:
        return ObsSpace(
            entities={"Mine": Entity(["x", "y"]), "Robot": Entity(["x", "y"]), "Orbital Cannon": Entity(["cooldown"])}
        )

    def action_space(self) -> dict[str, Any]:
        return {
            "Move": CategoricalActionSpace(["+x", "-x", "+y", "-y", "Defuse Mines"]),
            "Fire Orbital Cannon": SelectEntityActionSpace(),
        }

    def reset(self) -> Observation:  # type: ignore[override]  # the seed may be left out
        return self.observe()

    def act(self, actions: Mapping[str, Any]) -> Observation:
        self.got.append(actions)
        return self.observe()

    def observe(self) -> Observation:
        mines, robots, cooldown = (self.board[name] for name in ("mines", "robots", "cooldown"))
        cannon = ([(cooldown,)], [("Orbital Cannon", 0)]) if self.board["orbital_cannon"] else None
        return Observation(
            entities={
                "Mine": (mines, [("Mine", number) for number in range(len(mines))]),
                "Robot": (robots, [("Robot", number) for number in range(len(robots))]),
                "Orbital Cannon": cannon,
            },
            actions={
                "Move": CategoricalActionMask(
                    actor_types=["Robot"], mask=[[x < 2, x > 0, y < 2, y > 0, True] for x, y in robots]
                ),
                "Fire Orbital Cannon": SelectEntityActionMask(
                    actor_types=["Orbital Cannon"] if cooldown == 0 else [], actee_types=["Mine", "Robot"]
                ),
            },
            done=False,
            reward=0.0,
        )


class Told(Environment):
    """Shows given observations one after the other; keeps the actions that it got.

    Types `A` (x, y), `B` (x) and `C` without features, the global feature `g`; actions `pick` of labels, `aim` at an
    entity, `shoot` at an entity with masks, `end`, a global one.
    """

    def __init__(self, *observations: Any) -> None:
        self.left = list(observations)
        self.got: list[Mapping[str, Any]] = []

    def obs_space(self) -> ObsSpace:
        return ObsSpace(global_features=["g"], entities={"A": Entity(["x", "y"]), "B": Entity(["x"]), "C": Entity([])})

    def action_space(self) -> dict[str, Any]:
        return {
            "pick": CategoricalActionSpace(["one", "two", "three"]),
            "aim": SelectEntityActionSpace(),
            "shoot": SelectEntityActionSpace(masked=True),
            "end": GlobalCategoricalActionSpace(["go on", "stop"]),
        }

    def reset(self) -> Any:  # type: ignore[override]
        return self.left.pop(0)

    def act(self, actions: Any) -> Any:
        self.got.append(actions)
        return self.left.pop(0)


def seen(**given: Any) -> Observation:
    """An observation of `Told`: two A, one B, nothing to do; changed by the arguments."""
    known = {"done": False, "reward": 0.0, "global_features": [0.5]}
    features = {"A": [[1, 2], [3, 4]], "B": [[5]]}
    return Observation(**{**known, "features": features, **given})


PICK, AIM, END = CategoricalActionMask, SelectEntityActionMask, GlobalCategoricalActionMask
