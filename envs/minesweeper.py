"""Minesweeper: robots defuse mines on a board, and must not step on them.

Units: `Mine` (x, y), `Robot` (x, y) and, if there is one, `Orbital Cannon` (cooldown). At the start all mines and
robots stand on different cells, drawn evenly. Every robot picks a `Move`: +x, -x, +y, -y, Defuse Mines; a move off
the board is masked; if it is made anyway, the robot stays. A cannon whose cooldown is 0 fires at a mine or a robot.
One tick:

    1. a mine that is shot vanishes; a robot that is shot is marked;
    2. the robots move, or defuse: all mines with |dx| + |dy| <= 1 vanish;
    3. marked robots vanish;
    4. robots on a mine vanish; the mine stays;
    5. a cannon that has fired has its full cooldown again, another one counts down by 1 to 0.

No mine left: terminated, reward 1. Otherwise no robot left: terminated, reward 0. After `max_steps`: truncated. Robots
may share a cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from arena.errors import ConfigError
from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from arena.game.ragged import Ragged
from arena.game.units import Choice, Select, UnitSpace
from envs.common import options
from envs.common.drawing import BLUE, INK, WHITE, Board, Mark
from envs.common.lanes import Lanes, picked, ranks, spread

LABELS: Final = ("+x", "-x", "+y", "-y", "Defuse Mines")
_DEFUSE, _NOT_CHOSEN = 4, 5
_DELTAS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0], [0, 0]], np.int64)  # by choice
MOST_CELLS = 1_000  # of a side of the board
_NUMBER_COLORS = ("#195ad2", "#1e8232", "#cd2829", "#142882", "#821e28", "#14828c", "#2d343c", "#bec4ca")

SPACE: Final = UnitSpace(
    {"Mine": ["x", "y"], "Robot": ["x", "y"], "Orbital Cannon": ["cooldown"]},
    actions={"Move": Choice(LABELS), "Fire Orbital Cannon": Select()},
)


class Minesweeper(Lanes):
    """One player moves all robots; all lanes are computed together.

    Entity: `player`.

    Args:
        lanes: games that step together.
        width: cells of the board in x.
        height: cells in y.
        mines: at the start.
        robots: at the start.
        orbital_cannon: whether there is a cannon.
        cooldown: ticks between its shots, and before the first one.
        max_steps: ticks after which an undecided game is truncated.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed, or more mines and robots than cells.
    """

    def __init__(
        self,
        *,
        lanes: int,
        width: int = 6,
        height: int = 6,
        mines: int = 5,
        robots: int = 2,
        orbital_cannon: bool = False,
        cooldown: int = 5,
        max_steps: int = 200,
        render_mode: str = "rgb_array",
    ) -> None:
        super().__init__(lanes, max_steps, render_mode)
        self.width = options.count("width", width, most=MOST_CELLS)
        self.height = options.count("height", height, most=MOST_CELLS)
        options.count("mines", mines)
        options.count("robots", robots)
        if mines + robots > width * height:
            raise ConfigError(
                f"got {mines} mines and {robots} robots for {width * height} cells ({width} x {height}); each needs a "
                "cell of its own",
                path="mines",
            )
        self.period = options.count("cooldown", cooldown, least=0)
        self.interface = Interface(("player",), (SPACE,), (SPACE.action_space,), (0,))
        self._edge = np.array([self.width - 1, self.height - 1])

        self.mines = np.zeros((self.lanes, mines, 2), np.int64)  # [L, M, 2] cells
        self.mine_there = np.zeros((self.lanes, mines), np.bool_)  # [L, M]
        self.robots = np.zeros((self.lanes, robots, 2), np.int64)  # [L, R, 2]
        self.robot_there = np.zeros((self.lanes, robots), np.bool_)  # [L, R]
        self.orbital_cannon = np.full(self.lanes, options.switch("orbital_cannon", orbital_cannon))  # [L]
        self.cooldown = np.zeros(self.lanes, np.int64)  # [L] ticks until the cannon may fire

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Draws the cells of mines and robots in these lanes; `options` are not used."""
        count = self.mines.shape[1]
        for lane, stream in self.begin(lanes, seeds):
            cells = stream.permutation(self.width * self.height)[: count + self.robots.shape[1]]
            places = np.stack(np.divmod(cells, self.height), axis=1)
            self.mines[lane], self.robots[lane] = places[:count], places[count:]
        self.mine_there[lanes], self.robot_there[lanes], self.cooldown[lanes] = True, True, self.period
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[0]` has a label per robot and a target per cannon that may fire."""
        played, robots, mines = self.playing, self.robot_there, self.mine_there
        moves = spread(actions[0]["Move"], robots & played[:, None], _NOT_CHOSEN)  # [L, R]
        fires, shot = self._may_fire(), None
        if fires.any():
            # [L, 1] an index: the actees are all mines, then all robots
            target = spread(actions[0]["Fire Orbital Cannon"], fires[:, None], -1)
            shot = robots & (ranks(robots) + mines.sum(axis=1, keepdims=True) == target)
            self.mine_there = mines = mines & (ranks(mines) != target)
        defusing = moves == _DEFUSE
        if defusing.any():
            distance = np.abs(self.robots[:, :, None] - self.mines[:, None]).sum(axis=-1)  # [L, R, M]
            self.mine_there = mines = mines & ~((distance <= 1) & defusing[:, :, None]).any(axis=1)
        self.robots = np.clip(self.robots + _DELTAS[moves], 0, self._edge)
        if shot is not None:
            robots = robots & ~shot
        hit = (self.robots[:, :, None] == self.mines[:, None]).all(axis=-1) & mines[:, None]  # [L, R, M]
        self.robot_there = robots = robots & ~(hit.any(axis=-1) & played[:, None])
        self.cooldown = np.where(fires, self.period, np.maximum(self.cooldown - played, 0))

        won = played & ~mines.any(axis=1)
        over, late = self.end(won | ~robots.any(axis=1))
        return Step(self._frame(), won.astype(np.float64)[:, None], over[:, None], late[:, None])

    def _may_fire(self) -> Flags:
        """The lanes `[L]` whose cannon is an actor; its targets are mines and robots."""
        able: Flags = self.playing & self.orbital_cannon & (self.cooldown == 0)
        if able.any():
            able &= self.mine_there.any(axis=1) | self.robot_there.any(axis=1)
        return able

    def _frame(self) -> Frame:
        mines, robots, cannons = self.mine_there, self.robot_there, self.orbital_cannon
        mine_count = mines.sum(axis=1)
        units = mine_count + robots.sum(axis=1)
        movers = robots & self.playing[:, None]
        places = self.robots[movers]
        mask = np.ones((len(places), len(LABELS)), np.int8)
        mask[:, 0:4:2], mask[:, 1:4:2] = places < self._edge, places > 0
        fires = self._may_fire()
        actees = Ragged.empty(self.lanes, np.int64)
        if fires.any():  # at any unit: 0, 1, ..., count - 1
            counts = np.where(fires, units, 0)
            actees = Ragged(np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts), counts)
        shown = {
            "units": {
                "Mine": picked(self.mines.astype(np.float32), mines),
                "Robot": picked(self.robots.astype(np.float32), robots),
                "Orbital Cannon": Ragged(self.cooldown[cannons, None].astype(np.float32), cannons.astype(np.int64)),
            },
            "actions": {
                "Move": {
                    "actors": picked(ranks(robots) + mine_count[:, None], movers),
                    "mask": Ragged(mask, movers.sum(axis=1)),
                },
                "Fire Orbital Cannon": {"actors": Ragged(units[fires], fires.astype(np.int64)), "actees": actees},
            },
        }
        return Frame([shown], self.playing[:, None].copy(), (None,))

    def board(self) -> Board:
        """Mines, robots with their indices as units, and in other cells the numbers of the mines around them."""
        mines, robots = self.mines[0][self.mine_there[0]].tolist(), self.robots[0][self.robot_there[0]].tolist()
        around = Counter((x + dx, y + dy) for x, y in mines for dx in (-1, 0, 1) for dy in (-1, 0, 1))
        marks = [
            Mark(x, y, _NUMBER_COLORS[min(count, 8) - 1], f"{count}", f"{count}", "")
            for (x, y), count in around.items()
            if 0 <= x < self.width and 0 <= y < self.height
        ]
        for x, y in mines:
            marks += [Mark(x + dx, y + dy, INK, size=0.08) for dx, dy in ((0.3, 0), (-0.3, 0), (0, 0.3), (0, -0.3))]
            marks += [Mark(x, y, INK, "*", size=0.28), Mark(x - 0.1, y + 0.1, WHITE, size=0.04)]
        marks += [Mark(x, y, BLUE, f"R{unit}", f"{unit}") for unit, (x, y) in enumerate(robots, len(mines))]
        cannon = [f"cannon: {self.cooldown[0] or 'ready'}"] if self.orbital_cannon[0] else []
        return Board(self.width, self.height, marks, cannon)
