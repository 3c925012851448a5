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

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Frame, Interface, Step
from arena.game.ragged import Ragged
from arena.game.units import Choice, Select, UnitSpace
from envs.common import drawing, options
from envs.common.lanes import LaneStreams
from envs.common.units import STATES, grown, number_of_state, ranks, rows_of_state, spread, states_of

Flags = NDArray[np.bool_]

LABELS: Final = ("+x", "-x", "+y", "-y", "Defuse Mines")
_DEFUSE, _NOT_CHOSEN = 4, 5
_DELTAS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0], [0, 0]], np.int64)  # by choice
MOST_CELLS = 1_000  # of a side of the board

SPACE: Final = UnitSpace(
    {"Mine": ["x", "y"], "Robot": ["x", "y"], "Orbital Cannon": ["cooldown"]},
    actions={"Move": Choice(LABELS), "Fire Orbital Cannon": Select()},
)


class Minesweeper:
    """One player moves all robots; all lanes are computed together.

    Entity: `player`. `reset(options={"states": [...]})` sets a state per lane: `mines` and `robots`, lists of cells
    (x, y), `orbital_cannon`, and `cooldown`, the ticks until it may fire. The public arrays below are these states.

    Args:
        lanes: games that step together.
        width: cells of the board in x.
        height: cells in y.
        mines: at the start.
        robots: at the start.
        orbital_cannon: whether there is a cannon.
        cooldown: ticks between its shots, and before the first one.
        max_steps: ticks after which an undecided game is truncated.

    Raises:
        ConfigError: an option with a value that is not allowed, or more mines and robots than cells.
    """

    batched = True

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
    ) -> None:
        self.lanes = options.count("lanes", lanes)
        self.width = options.count("width", width, most=MOST_CELLS)
        self.height = options.count("height", height, most=MOST_CELLS)
        self._mine_count, self._robot_count = options.count("mines", mines), options.count("robots", robots)
        if mines + robots > width * height:
            raise ConfigError(
                f"got {mines} mines and {robots} robots for {width * height} cells ({width} x {height}); each needs a "
                "cell of its own",
                path="mines",
            )
        self._has_cannon = options.switch("orbital_cannon", orbital_cannon)
        self.period = options.count("cooldown", cooldown, least=0)
        self.max_steps = options.count("max_steps", max_steps)
        self.interface = Interface(("player",), (SPACE,), (SPACE.action_space,), (0,))
        self._streams = LaneStreams(self.lanes)
        self._edge = np.array([self.width - 1, self.height - 1])

        self.mines = np.zeros((self.lanes, mines, 2), np.int64)  # [L, M, 2] cells
        self.mine_there = np.zeros((self.lanes, mines), np.bool_)  # [L, M]
        self.robots = np.zeros((self.lanes, robots, 2), np.int64)  # [L, R, 2]
        self.robot_there = np.zeros((self.lanes, robots), np.bool_)  # [L, R]
        self.orbital_cannon = np.zeros(self.lanes, np.bool_)  # [L]
        self.cooldown = np.zeros(self.lanes, np.int64)  # [L] ticks until the cannon may fire
        self.ticks = np.zeros(self.lanes, np.int64)  # [L] played in this episode
        self._playing = np.zeros(self.lanes, np.bool_)  # [L]

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """Draws the cells of mines and robots in these lanes, or sets the given states."""
        states = states_of(options, self.lanes, needed=("mines", "robots"), allowed=("orbital_cannon", "cooldown"))
        for lane in self._streams.begin(lanes, seeds):
            given = states[lane]
            if given is None:
                cells = self._streams[lane].permutation(self.width * self.height)
                places = np.stack(np.divmod(cells[: self._mine_count + self._robot_count], self.height), axis=1)
                self._put(lane, places[: self._mine_count], places[self._mine_count :], self._has_cannon, self.period)
            else:
                board, path = (self.width, self.height), f"{STATES}[{lane}]"
                self._put(
                    lane,
                    rows_of_state(given["mines"], f"{path}.mines", ("x", "y"), board),
                    rows_of_state(given["robots"], f"{path}.robots", ("x", "y"), board),
                    bool(given.get("orbital_cannon", self._has_cannon)),
                    number_of_state(given.get("cooldown", self.period), f"{path}.cooldown"),
                )
        self.ticks[lanes] = 0
        self._playing |= lanes
        return self._frame()

    def _put(self, lane: int, mines: NDArray[Any], robots: NDArray[Any], cannon: bool, cooldown: int) -> None:
        self.mines, self.mine_there = grown(self.mines, len(mines)), grown(self.mine_there, len(mines))
        self.robots, self.robot_there = grown(self.robots, len(robots)), grown(self.robot_there, len(robots))
        self.mines[lane, : len(mines)], self.robots[lane, : len(robots)] = mines, robots
        self.mine_there[lane] = np.arange(self.mines.shape[1]) < len(mines)
        self.robot_there[lane] = np.arange(self.robots.shape[1]) < len(robots)
        self.orbital_cannon[lane], self.cooldown[lane] = cannon, cooldown

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[0]` has a label per robot and a target per cannon that may fire."""
        played, robots = self._playing, self.robot_there
        moves = spread(actions[0]["Move"], robots & played[:, None], _NOT_CHOSEN)  # [L, R]
        fires = self._may_fire()
        marked = self._shoot(actions[0]["Fire Orbital Cannon"], fires)
        mines = self.mine_there

        defusing = moves == _DEFUSE
        if defusing.any():
            apart = np.abs(self.robots[:, :, None] - self.mines[:, None]).sum(axis=-1)  # [L, R, M]
            self.mine_there = mines = mines & ~((apart <= 1) & defusing[:, :, None]).any(axis=1)
        self.robots = np.clip(self.robots + _DELTAS[moves], 0, self._edge)

        if marked is not None:
            robots = robots & ~marked
        hit = (self.robots[:, :, None] == self.mines[:, None]).all(axis=-1) & mines[:, None]  # [L, R, M]
        self.robot_there = robots = robots & ~(hit.any(axis=-1) & played[:, None])
        self.cooldown = np.where(fires, self.period, np.maximum(self.cooldown - played, 0))

        self.ticks += played
        won = played & ~mines.any(axis=1)
        over = won | (played & ~robots.any(axis=1))
        late = played & ~over & (self.ticks >= self.max_steps)
        self._playing = played & ~over & ~late
        return Step(self._frame(), won.astype(np.float64)[:, None], over[:, None], late[:, None])

    def _may_fire(self) -> Flags:
        """The lanes `[L]` whose cannon is an actor; its targets are mines and robots."""
        able: Flags = self._playing & self.orbital_cannon & (self.cooldown == 0)
        if able.any():
            able &= self.mine_there.any(axis=1) | self.robot_there.any(axis=1)
        return able

    def _shoot(self, targets: Ragged, fires: Flags) -> Flags | None:
        """Removes mines that are shot; returns the robots `[L, R]` that are shot, or None without a shot."""
        if not fires.any():
            return None
        target = spread(targets, fires[:, None], -1)  # [L, 1] an index: the actees are all mines, then all robots
        mine_count = self.mine_there.sum(axis=1, keepdims=True)
        shot_mines = self.mine_there & (ranks(self.mine_there) == target)
        shot_robots: Flags = self.robot_there & (ranks(self.robot_there) + mine_count == target)
        self.mine_there = self.mine_there & ~shot_mines
        return shot_robots

    def _frame(self) -> Frame:
        mines, robots = self.mine_there, self.robot_there
        mine_count, robot_count = mines.sum(axis=1), robots.sum(axis=1)
        places = self.robots[robots]  # [all robots, 2]
        actors = np.arange(robots.shape[1]) + mine_count[:, None]
        acting = robot_count
        chosen, actor = places, (np.arange(robots.shape[1]) < robot_count[:, None])
        if not self._playing.all():
            actor = actor & self._playing[:, None]
            acting = np.where(self._playing, robot_count, 0)
            chosen = self.robots[robots & self._playing[:, None]]
        mask = np.ones((len(chosen), len(LABELS)), np.int8)
        mask[:, 0:4:2], mask[:, 1:4:2] = chosen < self._edge, chosen > 0

        fires = self._may_fire()
        units = mine_count + robot_count
        cannons = self.orbital_cannon
        targets = np.where(fires, units, 0)
        shown = {
            "units": {
                "Mine": Ragged(self.mines[mines].astype(np.float32), mine_count),
                "Robot": Ragged(places.astype(np.float32), robot_count),
                "Orbital Cannon": Ragged(self.cooldown[cannons, None].astype(np.float32), cannons.astype(np.int64)),
            },
            "actions": {
                "Move": {"actors": Ragged(actors[actor], acting), "mask": Ragged(mask, acting)},
                "Fire Orbital Cannon": {
                    "actors": Ragged(units[fires], fires.astype(np.int64)),
                    "actees": _counted(targets),
                },
            },
        }
        return Frame([shown], self._playing[:, None].copy(), (None,))

    def render(self) -> NDArray[np.uint8]:
        """Lane 0 from above, `[height, width, 3]`: mines orange, robots blue; a bar below is the cannon's cooldown."""
        board = drawing.Board(self.width, self.height)
        for x, y in self.mines[0][self.mine_there[0]].tolist():
            board.canvas.disc(*board.middle(x, y), 0.3 * board.cell, drawing.ORANGE)
        for x, y in self.robots[0][self.robot_there[0]].tolist():
            board.canvas.disc(*board.middle(x, y), 0.4 * board.cell, drawing.WHITE)
            board.canvas.disc(*board.middle(x, y), 0.35 * board.cell, drawing.BLUE)
        if self.orbital_cannon[0]:
            board.bar(1 - self.cooldown[0] / max(1, self.period), drawing.RED)
        return board.canvas.pixels

    def close(self) -> None:
        """Nothing to release."""


def _counted(counts: NDArray[np.int64]) -> Ragged:
    """Rows 0, 1, ..., count - 1."""
    if not counts.any():
        return Ragged.empty(len(counts), np.int64)
    total = int(counts.sum())
    return Ragged(np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts), counts)
