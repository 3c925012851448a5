"""Multi snake: one player moves several snakes on a board; each eats the food of its own color.

Units: `SnakeHead`, `SnakeBody` and `Food`, each (x, y, color), and the global feature `step`. Snake i has color i, and
so has one piece of food. Snakes, of one cell each, and food begin on different cells, drawn evenly. Every head picks a
`move`: up (+y), down, left (-x), right. The snakes move in the order of their colors. One move:

- off the board, or onto a cell that any snake holds at that moment (its own tail included): the episode is over after
  this tick;
- food of the snake's own color, and the snake is shorter than `max_length`: the tail stays, and the reward is
  1 / (max_length - 1) / snakes, so that the best return is 1;
- food of another color: the episode is over after this tick;
- otherwise the tail follows.

When all snakes have moved, eaten food reappears on a free cell; if no cell is free, it waits for one. All snakes at
`max_length`: terminated, as after a crash. After `max_steps`: truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from arena.game.ragged import Ragged
from arena.game.units import Choice, UnitSpace
from envs.common import options
from envs.common.drawing import PLAYERS, WHITE, Board, Mark
from envs.common.lanes import Lanes, spread

LABELS: Final = ("up", "down", "left", "right")
_DELTAS = np.array([[0, 1], [0, -1], [-1, 0], [1, 0]], np.int64)  # by label
MOST_CELLS = 1_000  # of a side of the board

SPACE: Final = UnitSpace(
    {name: ["x", "y", "color"] for name in ("SnakeHead", "SnakeBody", "Food")},
    global_features=["step"],
    actions={"move": Choice(LABELS, masked=False)},
)


class MultiSnake(Lanes):
    """One player moves all snakes; all lanes are computed together.

    Entity: `player`.

    Args:
        lanes: games that step together.
        size: cells of a side of the board.
        snakes: their number.
        max_length: cells of a snake that does not grow any more.
        max_steps: ticks after which the game is truncated.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed, or more snakes and food than cells.
    """

    def __init__(
        self,
        *,
        lanes: int,
        size: int = 10,
        snakes: int = 2,
        max_length: int = 11,
        max_steps: int = 180,
        render_mode: str = "rgb_array",
    ) -> None:
        super().__init__(lanes, max_steps, render_mode)
        self.size = options.count("size", size, most=MOST_CELLS)
        self.snakes = options.count("snakes", snakes)
        if 2 * snakes > size * size:
            raise ConfigError(
                f"got {snakes} snakes, and as many pieces of food, for {size * size} cells ({size} x {size}); each "
                "needs a cell of its own",
                path="snakes",
            )
        self.max_length = options.count("max_length", max_length, least=2)
        self.interface = Interface(("player",), (SPACE,), (SPACE.action_space,), (0,))
        self._payment = 1.0 / (self.max_length - 1) / self.snakes

        room = (self.lanes, self.snakes, self.max_length)
        self.segments = np.zeros((*room, 2), np.int64)  # [L, S, max_length, 2] from tail to head
        self.lengths = np.ones((self.lanes, self.snakes), np.int64)  # [L, S]
        self.food = np.zeros((self.lanes, self.snakes, 2), np.int64)  # [L, S, 2] by color
        self.food_there = np.zeros((self.lanes, self.snakes), np.bool_)  # [L, S]
        self._colors = np.broadcast_to(np.arange(self.snakes)[:, None], room[1:])  # [S, max_length]

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Draws the cells of snakes and food in these lanes; `options` are not used."""
        for lane, stream in self.begin(lanes, seeds):
            cells = stream.permutation(self.size**2)[: 2 * self.snakes]
            places = np.stack(np.divmod(cells, self.size), axis=1)
            self.segments[lane, :, 0], self.food[lane] = places[: self.snakes], places[self.snakes :]
        self.lengths[lanes], self.food_there[lanes] = 1, True
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[0]` has a label per snake."""
        played, lane = self.playing, np.arange(self.lanes)
        acting = np.flatnonzero(played)
        moves = spread(actions[0]["move"], np.repeat(played[:, None], self.snakes, axis=1), 0)  # [L, S]
        crashed = np.zeros(self.lanes, np.bool_)
        grown = np.zeros(self.lanes, np.int64)  # [L] snakes that have grown on this tick
        for snake in range(self.snakes):
            length = self.lengths[:, snake]
            head = self.segments[lane, snake, length - 1] + _DELTAS[moves[:, snake]]  # [L, 2]
            off = ((head < 0) | (head >= self.size)).any(axis=1)
            hit = (self.segments == head[:, None, None]).all(axis=-1) & self._used()  # [L, S, max_length]
            eaten = (self.food == head[:, None]).all(axis=-1) & self.food_there & played[:, None]  # [L, S]
            crashed |= off | hit.any(axis=(1, 2)) | np.delete(eaten, snake, axis=1).any(axis=1)
            grows = eaten[:, snake] & (length < self.max_length)
            grown += grows
            self.food_there &= ~eaten
            follows = played & ~grows
            self.segments[follows, snake, :-1] = self.segments[follows, snake, 1:]
            self.lengths[:, snake] += grows
            self.segments[acting, snake, self.lengths[acting, snake] - 1] = head[acting]
        for hungry in np.flatnonzero(played & ~self.food_there.all(axis=1)).tolist():
            free = np.ones((self.size, self.size), np.bool_)
            snakes = self.segments[hungry][self._used()[hungry]]
            taken = np.concatenate([snakes, self.food[hungry][self.food_there[hungry]]])
            taken = taken[((taken >= 0) & (taken < self.size)).all(axis=1)]  # a head may be off the board
            free[taken[:, 0], taken[:, 1]] = False
            for color in np.flatnonzero(~self.food_there[hungry]).tolist():
                cells = np.argwhere(free)
                if not len(cells):
                    break
                x, y = cells[self._streams[hungry].integers(len(cells))]
                self.food[hungry, color], self.food_there[hungry, color], free[x, y] = (x, y), True, False
        over, late = self.end(crashed | (self.lengths >= self.max_length).all(axis=1))
        rewards = np.where(played, grown * self._payment, 0.0)
        return Step(self._frame(), rewards[:, None], over[:, None], late[:, None])

    def _used(self) -> Flags:
        """Which segments are in use, `[L, S, max_length]`."""
        return np.arange(self.max_length) < self.lengths[..., None]

    def _frame(self) -> Frame:
        def units(cells: NDArray[np.int64], there: Flags) -> Ragged:  # (x, y, color) of the cells [L, S, N, 2]
            found = np.empty((int(there.sum()), 3), np.float32)
            found[:, :2] = cells[there]
            found[:, 2] = np.broadcast_to(self._colors[:, : there.shape[2]], there.shape)[there]
            return Ragged(found, there.sum(axis=(1, 2)))

        place, last = np.arange(self.max_length), self.lengths[..., None] - 1
        acting = np.where(self.playing, self.snakes, 0)
        shown = {
            "globals": self.ticks[:, None].astype(np.float32),
            "units": {
                "SnakeHead": units(self.segments, place == last),
                "SnakeBody": units(self.segments, place < last),
                "Food": units(self.food[:, :, None], self.food_there[:, :, None]),
            },
            "actions": {"move": {"actors": Ragged(np.tile(np.arange(self.snakes), int(self.playing.sum())), acting)}},
        }
        return Frame([shown], self.playing[:, None].copy(), (None,))

    def board(self) -> Board:
        """Snakes and food of a color; heads have eyes. Of the first snake the head is `A`, and its food `*a`."""
        marks = []
        for snake in range(self.snakes):
            color, letter = PLAYERS[snake % len(PLAYERS)], chr(ord("a") + snake % 26)
            if self.food_there[0, snake]:
                x, y = self.food[0, snake].tolist()
                marks.append(Mark(x, y, color, f"*{letter}", size=0.3))
            *body, (x, y) = self.segments[0, snake, : self.lengths[0, snake]].tolist()
            marks += [Mark(at, above, color, letter, shape="box", size=0.4) for at, above in body]
            marks.append(Mark(x, y, color, letter.upper(), shape="box", size=0.48))
            dx, dy = (x - body[-1][0], y - body[-1][1]) if body else (0, 1)  # a short one looks up
            for side in (-0.2, 0.2):
                marks.append(Mark(x + 0.2 * dx + side * dy, y + 0.2 * dy + side * dx, WHITE, size=0.1))
        return Board(self.size, self.size, marks)
