"""Small tasks with units, one class each, in the published interface: examples to read, and tasks for a policy.

| task | what is to be learned | best |
|---|---|---|
| `cherry_pick` | to pick the best of many units | 1.0 |
| `count` | how many units there are, under a mask | 1.0 |
| `xor` | a function of two units and a global feature | 1.0 |
| `not_hotdog` | that a type without features carries information | 1.0 |
| `floor_is_lava` | the positions of units relative to the player | 1.0 |
| `rock_paper_scissors` | that the value function sees a hidden unit, and the policy does not | 1.0; 2.0 with `cheat` |
| `armed_bandit` | a choice without any unit | 1.0 |
| `matching_balls` | to pick units that are alike | 1.0 |

    envs: {game: {make: unit_task, kwargs: {task: count, masked_choices: 2}}}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from envs.adapters.sources import check_call
from envs.common import options
from envs.common.drawing import BLUE, GREEN, PLAYERS, RED, RENDER_MODES, Board, Mark


class Task(Environment):
    """A task with a random stream, `self.rng`, which a seed restarts."""

    metadata: Mapping[str, Any] = {"render_modes": RENDER_MODES}
    render_mode = "rgb_array"
    units: ObsSpace
    actions: Mapping[str, Any]
    rng: np.random.Generator
    shown: Observation  # the last one
    room: int  # units at the start of the episode

    def obs_space(self) -> ObsSpace:
        return self.units

    def action_space(self) -> dict[str, Any]:
        return {**self.actions}

    def reset(self, *, seed: int | None = None) -> Observation:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.shown = self.begin()
        self.room = sum(map(len, self.shown.features.values()))
        return self.shown

    def act(self, actions: Mapping[str, Any]) -> Observation:
        self.shown = self.play(actions)
        return self.shown

    @abstractmethod
    def begin(self) -> Observation:
        """The first observation of an episode."""

    @abstractmethod
    def play(self, actions: Mapping[str, Any]) -> Observation:
        """One tick."""

    def board(self) -> Board:
        """Each unit that the player sees, with its index, and below the global features.

        Of several features those that are not 0 are named; the first of them, such as of a one-hot, colors the cell.
        """
        marks: list[Mark] = []
        rows, index = -(-self.room // 2), 0
        for color, (name, entity) in enumerate(self.units.entities.items()):
            units, names = self.shown.features.get(name, ()), entity.features
            for unit, seen in zip(units, self.shown.visible.get(name, [True] * len(units)), strict=True):
                found = [at for at, value in enumerate(unit) if value]
                texts = [names[at] for at in found] if len(names) > 1 else [f"{value:.3g}" for value in unit]
                filled = PLAYERS[(found[0] if len(names) > 1 and found else color) % len(PLAYERS)]
                text = " ".join([f"{index} {name}", *texts])
                if seen:
                    marks.append(Mark(len(marks) % 2, rows - 1 - len(marks) // 2, filled, text, text, "box", 0.47))
                index += 1
        shared = zip(self.units.global_features, self.shown.global_features, strict=True)
        return Board(2, rows, marks, [f"{name} {value:.3g}" for name, value in shared], (26, 216))

    def render(self) -> NDArray[np.uint8] | str:
        return self.board().render(self.render_mode)


class CherryPick(Task):
    """Each tick the player picks a cherry and gets its quality; half of the cherries can be picked.

    Qualities are normal numbers, shifted so that the better half adds up to 1.
    """

    def __init__(self, cherries: int = 32) -> None:
        self.count = options.count("cherries", cherries, least=2)

    units = ObsSpace(entities={"Cherry": Entity(["quality"]), "Player": Entity([])})
    actions = {"Pick Cherry": SelectEntityActionSpace()}

    def begin(self) -> Observation:
        qualities, picks = self.rng.normal(size=self.count), self.count // 2
        qualities += (1 - np.sort(qualities)[-picks:].sum()) / picks
        self.cherries, self.left = qualities.tolist(), picks
        return self.observe(0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        ((_, number),) = actions["Pick Cherry"].actees
        self.left -= 1
        return self.observe(self.cherries.pop(number))

    def observe(self, reward: float) -> Observation:
        return Observation(
            features={"Cherry": [[quality] for quality in self.cherries], "Player": [[]]},
            actions={"Pick Cherry": SelectEntityActionMask(actor_types=["Player"], actee_types=["Cherry"])},
            reward=reward,
            done=self.left == 0,
        )


class Count(Task):
    """The player says how many beans there are: fewer than `masked_choices`; some of the wrong answers are masked."""

    def __init__(self, masked_choices: int = 10) -> None:
        self.choices = options.count("masked_choices", masked_choices, most=10)

    units = ObsSpace(entities={"Player": Entity([]), "Bean": Entity([])})
    actions = {"count": CategoricalActionSpace([str(number) for number in range(10)])}

    def begin(self) -> Observation:
        self.beans = int(self.rng.integers(self.choices))
        size = self.rng.integers(self.choices + 1)
        allowed = {self.beans, *self.rng.permutation(self.choices)[:size].tolist()}
        self.mask = [[number in allowed for number in range(10)]]
        return self.observe(done=False, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        return self.observe(done=True, reward=float(actions["count"].indices[0] == self.beans))

    def observe(self, *, done: bool, reward: float) -> Observation:
        return Observation(
            features={"Player": [[]], "Bean": [[]] * self.beans},
            actions={"count": CategoricalActionMask(actor_types=["Player"], mask=self.mask)},
            reward=reward,
            done=done,
        )


class Xor(Task):
    """One choice for the whole observation: the exclusive or of two inputs and the global feature `negate`."""

    units = ObsSpace(global_features=["negate"], entities={"Input": Entity(["is_set"])})
    actions = {"output": GlobalCategoricalActionSpace(["0", "1"])}

    def begin(self) -> Observation:
        self.bits = self.rng.integers(2, size=3).tolist()
        return self.observe(done=False, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        return self.observe(done=True, reward=float(actions["output"].index == sum(self.bits) % 2))

    def observe(self, *, done: bool, reward: float) -> Observation:
        first, second, negate = self.bits
        return Observation(
            global_features=[negate],
            features={"Input": [[first], [second]]},
            actions={"output": GlobalCategoricalActionMask()},
            reward=reward,
            done=done,
        )


class NotHotdog(Task):
    """The player says whether the other unit is a hotdog: an `Object` tells by its feature, a `Hotdog` by its type."""

    units = ObsSpace(entities={"Player": Entity(["step"]), "Object": Entity(["is_hotdog"]), "Hotdog": Entity([])})
    actions = {
        "classify": CategoricalActionSpace(["not_hotdog", "hotdog"]),
        "unused": CategoricalActionSpace(["0", "1"]),
    }

    def begin(self) -> Observation:
        self.is_hotdog, self.by_type = self.rng.integers(2, size=2).tolist()
        return self.observe(step=0, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        return self.observe(step=1, reward=float(actions["classify"].indices[0] == self.is_hotdog))

    def observe(self, *, step: int, reward: float) -> Observation:
        other = {"Hotdog": [[]]} if self.is_hotdog and self.by_type else {"Object": [[self.is_hotdog]]}
        return Observation(
            features={"Player": [[step]], **other},
            actions={"classify": CategoricalActionMask(actor_types=["Player"])},
            reward=reward,
            done=step == 1,
        )


class FloorIsLava(Task):
    """The player stands anywhere, and steps onto the one neighboring cell that is not lava."""

    WIDTH = 1000
    STEPS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))

    units = ObsSpace(entities={name: Entity(["x", "y"]) for name in ("Player", "HighGround", "Lava")})
    actions = {"move": CategoricalActionSpace(["n", "ne", "e", "se", "s", "sw", "w", "nw"])}

    def begin(self) -> Observation:
        self.player = self.start = self.rng.integers(-self.WIDTH, self.WIDTH + 1, size=2)
        tiles = self.player + self.rng.permutation(self.STEPS)
        self.high_ground, self.lava = tiles[0], tiles[1 : 1 + self.rng.integers(8)]
        return self.observe(done=False, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        self.player = self.player + self.STEPS[actions["move"].indices[0]]
        return self.observe(done=True, reward=float((self.player == self.high_ground).all()))

    def observe(self, *, done: bool, reward: float) -> Observation:
        return Observation(
            features={"Player": self.player[None], "HighGround": self.high_ground[None], "Lava": self.lava},
            actions={"move": CategoricalActionMask(actor_types=["Player"])},
            reward=reward,
            done=done,
        )

    def board(self) -> Board:
        """The cells around the start: lava `~` is red, the high ground `^` green, the player `P` blue."""
        marks = []
        ground = [(cell, RED, "~") for cell in self.lava]
        for cell, color, text in (*ground, (self.high_ground, GREEN, "^"), (self.player, BLUE, "P")):
            x, y = cell - self.start + 1
            marks.append(Mark(x, y, color, text, shape="disc" if text == "P" else "box", size=0.45))
        return Board(3, 3, marks)


class RockPaperScissors(Task):
    """The player beats an opponent whose throw only the value function sees; with `cheat` the policy sees it too.

    The opponent throws rock, paper, scissors with 50, 30, 20 %; a win pays 2, so always paper is best, with 1.
    """

    def __init__(self, cheat: bool = False) -> None:
        self.cheat = options.switch("cheat", cheat)

    units = ObsSpace(entities={"Player": Entity([]), "Opponent": Entity(["rock", "paper", "scissors"])})
    actions = {"throw": CategoricalActionSpace(["rock", "paper", "scissors"])}

    def begin(self) -> Observation:
        self.throw = int(self.rng.choice(3, p=[0.5, 0.3, 0.2]))
        return self.observe(done=False, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        wins = actions["throw"].indices[0] == (self.throw + 1) % 3
        return self.observe(done=True, reward=2.0 * float(wins))

    def observe(self, *, done: bool, reward: float) -> Observation:
        return Observation(
            features={"Player": [[]], "Opponent": [[float(self.throw == number) for number in range(3)]]},
            visible={"Opponent": [self.cheat]},
            actions={"throw": CategoricalActionMask(actor_types=["Player"])},
            reward=reward,
            done=done,
        )


class ArmedBandit(Task):
    """32 times one of five choices, without any unit; the first pays 1/32."""

    TICKS = 32

    units = ObsSpace(global_features=["step"])
    actions = {"pull": GlobalCategoricalActionSpace(["A", "B", "C", "D", "E"])}

    def begin(self) -> Observation:
        self.step = 0
        return self.observe(0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        self.step += 1
        return self.observe(float(actions["pull"].label == "A") / self.TICKS)

    def observe(self, reward: float) -> Observation:
        return Observation(
            global_features=[self.step],
            actions={"pull": GlobalCategoricalActionMask()},
            reward=reward,
            done=self.step == self.TICKS,
        )


class MatchingBalls(Task):
    """The player picks balls until one has another color than the first, or none is left.

    The reward is then the number of picked balls of the first color, divided by that of the most frequent color.
    """

    COLORS = 6

    def __init__(self, balls: int = 32) -> None:
        self.count = options.count("balls", balls)

    units = ObsSpace(
        entities={"Ball": Entity([*(f"color {number}" for number in range(COLORS)), "selected"]), "Player": Entity([])}
    )
    actions = {"Pick Ball": SelectEntityActionSpace()}

    def begin(self) -> Observation:
        self.colors = self.rng.integers(self.COLORS, size=self.count)
        self.selected = np.zeros(self.count, np.bool_)
        self.first: int | None = None
        return self.observe(done=False, reward=0.0)

    def play(self, actions: Mapping[str, Any]) -> Observation:
        ((_, ball),) = actions["Pick Ball"].actees
        self.selected[ball] = True
        self.first = int(self.colors[ball]) if self.first is None else self.first
        done = self.colors[ball] != self.first or bool(self.selected.all())
        picked = (self.selected & (self.colors == self.first)).sum()
        return self.observe(done=done, reward=float(picked / np.bincount(self.colors).max()) if done else 0.0)

    def observe(self, *, done: bool, reward: float) -> Observation:
        one_hot = np.eye(self.COLORS)[self.colors]
        left = [("Ball", int(ball)) for ball in np.flatnonzero(~self.selected)]
        return Observation(
            features={"Ball": np.column_stack([one_hot, self.selected]), "Player": [[]]},
            actions={"Pick Ball": SelectEntityActionMask(actor_types=["Player"], actee_ids=left)},
            reward=reward,
            done=done,
        )


TASKS: Mapping[str, type[Task]] = {
    "armed_bandit": ArmedBandit,
    "cherry_pick": CherryPick,
    "count": Count,
    "floor_is_lava": FloorIsLava,
    "matching_balls": MatchingBalls,
    "not_hotdog": NotHotdog,
    "rock_paper_scissors": RockPaperScissors,
    "xor": Xor,
}


def unit_task(task: str, render_mode: str = "rgb_array", **kwargs: Any) -> Task:
    """Makes a task; raises `ConfigError`: an unknown task, or arguments that it does not take."""
    made = TASKS[options.choice("task", task, tuple(TASKS))]
    check_call(made, kwargs, name=f"the task {task!r}")
    game = made(**kwargs)
    game.render_mode = options.choice("render_mode", render_mode, RENDER_MODES)
    return game
