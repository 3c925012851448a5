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
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from arena.game.ragged import Ragged
from arena.game.units import Choice, Select, UnitSpace
from envs.common import drawing, options
from envs.common.lanes import Lanes, picked, ranks, spread

LABELS: Final = ("+x", "-x", "+y", "-y", "Defuse Mines")
_DEFUSE, _NOT_CHOSEN = 4, 5
_DELTAS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0], [0, 0]], np.int64)  # by choice
MOST_CELLS = 1_000  # of a side of the board

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

    def picture(self) -> NDArray[np.uint8]:
        """Lane 0 from above, `[height, width, 3]`; a bar below is the cannon's cooldown.

        Mines are black; the number in another cell is that of the mines around it. Robots have their index as a unit.
        """
        board = drawing.Board(self.width, self.height)
        scale = board.cell // 12
        for (x, y), count in self._around().items():
            if count and scale:
                board.canvas.write(*board.middle(x, y), f"{count}", _NUMBER_COLORS[min(count, 8) - 1], scale)
        for x, y in self.mines[0][self.mine_there[0]].tolist():
            row, column = board.middle(x, y)
            long, thin = 0.38 * board.cell, 0.04 * board.cell
            board.canvas.rectangle(row - long, column - thin, row + long, column + thin, drawing.INK)
            board.canvas.rectangle(row - thin, column - long, row + thin, column + long, drawing.INK)
            board.canvas.disc(row, column, 0.28 * board.cell, drawing.INK)
            board.canvas.disc(row - 0.1 * board.cell, column - 0.1 * board.cell, 0.06 * board.cell, drawing.WHITE)
        for number, (x, y) in enumerate(self.robots[0][self.robot_there[0]].tolist()):
            index = number + int(self.mine_there[0].sum())
            board.canvas.piece(*board.middle(x, y), 0.36 * board.cell, drawing.BLUE, f"{index}")
        if self.orbital_cannon[0]:
            board.bar(1 - self.cooldown[0] / max(1, self.period), drawing.RED)
        return board.canvas.pixels

    def text(self) -> str:
        """Lane 0 as text: mines are `*`, robots `R` with their index as a unit, numbers those of the mines around."""
        counts = {cell: f"{count}" for cell, count in self._around().items() if count}
        mines = dict.fromkeys(map(tuple, self.mines[0][self.mine_there[0]].tolist()), "*")
        robots = enumerate(self.robots[0][self.robot_there[0]].tolist(), int(self.mine_there[0].sum()))
        return drawing.board_text(self.width, self.height, counts | mines | {(x, y): f"R{n}" for n, (x, y) in robots})

    def _around(self) -> Mapping[tuple[int, int], int]:
        """Of lane 0, in each cell next to a mine, also diagonally, the number of such mines."""
        mines = self.mines[0][self.mine_there[0]].tolist()
        cells = ((x + dx, y + dy) for x, y in mines for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)
        inside = (cell for cell in cells if 0 <= cell[0] < self.width and 0 <= cell[1] < self.height)
        return {cell: count for cell, count in Counter(inside).items() if list(cell) not in mines}


_NUMBER_COLORS = (
    (25, 90, 210),
    (30, 130, 50),
    (205, 40, 40),
    (20, 40, 130),
    (130, 30, 40),
    (20, 130, 140),
    drawing.INK,
    drawing.GRAY,
)
