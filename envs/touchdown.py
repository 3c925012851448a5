"""Touchdown: two teams try to cross the field, each to the other's side.

The field is the square [-1, 1]^2. Blue starts on the line y = +0.9 and wins by reaching y <= -0.9; red starts on
y = -0.9 and wins by reaching y >= +0.9. One tick:

    1. every player moves (0.1 in a direction, or a vector of at most 0.1 per axis) and is clipped to the field;
    2. opponents closer than 0.1 to each other both return to their own start lines, keeping their x; all such pairs
       at once, so one player can send back several;
    3. a team wins if one of its players is across the line: +1 for each of its players, -1 for each opponent, and the
       game is over. If both teams cross on the same tick, it is a draw: 0 for all.

A player that was sent back cannot have crossed. After `max_steps` ticks the game is truncated with 0 for all. The x
of every player's start is drawn uniformly from [-0.9, 0.9].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from envs.common import options
from envs.common.drawing import BLUE, RED, Board, Mark
from envs.common.lanes import MOVE_KEYS, MOVE_NAMES, MOVES, STEP, Lanes

LINE = 0.9  # |y| of the start lines, which are also the lines to cross
NEAR = 0.1  # opponents closer than this return to their start lines
MOST_PLAYERS = 200  # of a team; each observes all others, so memory grows with the square
MOST_NAMED = 4  # players of a team whose observations have names
MARGIN = 1e-6  # sums of 0.1 miss the lines by rounding; nothing in the rules is this small

VIEWS = ("vector", "image")
CONTROLS = ("discrete", "continuous")

IMAGE = 84  # pixels of an image observation, each way
SPRITE = 2  # a player is a square of 2 * SPRITE + 1 pixels
GRAY_LINE, GRAY_OPPONENT, GRAY_MATE, GRAY_SELF = 50, 110, 180, 255


class Touchdown(Lanes):
    """`team_size` against `team_size`, all lanes computed together.

    Entities: `blue_0`, ..., then `red_0`, ... Actions of a team: `discrete`, the five `MOVES`; or `continuous`,
    float32 `[2]` in [-1, 1], scaled to 0.1. Observations of a team:

    - `vector`: float32 `[4 * team_size]`, the (x, y) of all players: the observing player first, then its team mates,
      then the opponents, each in the order of their names.
    - `image`: uint8 `[84, 84, 1]`, the field from above, +y on top; the lines, opponents, team mates and the
      observing player in four grays, from dark to light.

    Args:
        lanes: games that step together.
        team_size: players per team.
        max_steps: ticks after which an undecided game is truncated.
        blue_obs: `vector` or `image`; so is `red_obs`.
        blue_actions: `discrete` or `continuous`; so is `red_actions`.
        mirror: red observes the field rotated by 180 degrees, and its moves are rotated back: it plays as if it were
            blue, so one policy can play both sides. Without it, positions and moves are absolute for both teams.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed.
    """

    def __init__(
        self,
        *,
        lanes: int,
        team_size: int = 1,
        max_steps: int = 1500,
        blue_obs: str = "vector",
        red_obs: str = "vector",
        blue_actions: str = "discrete",
        red_actions: str = "discrete",
        mirror: bool = False,
        render_mode: str = "rgb_array",
    ) -> None:
        super().__init__(lanes, max_steps, render_mode)
        self.team_size = n = options.count("team_size", team_size, most=MOST_PLAYERS)
        views = [options.choice("blue_obs", blue_obs, VIEWS)] * n + [options.choice("red_obs", red_obs, VIEWS)] * n
        controls = [
            *[options.choice("blue_actions", blue_actions, CONTROLS)] * n,
            *[options.choice("red_actions", red_actions, CONTROLS)] * n,
        ]
        points: dict[str, Space[Any]] = {
            "vector": spaces.Box(-1.0, 1.0, (4 * n,), np.float32),
            "image": spaces.Box(0, 255, (IMAGE, IMAGE, 1), np.uint8),
        }
        moves: dict[str, Space[Any]] = {
            "discrete": spaces.Discrete(len(MOVES)),
            "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
        self.interface = Interface(
            entities=tuple(f"{team}_{index}" for team in ("blue", "red") for index in range(n)),
            observation_spaces=tuple(points[view] for view in views),
            action_spaces=tuple(moves[control] for control in controls),
            mask_sizes=(0,) * (2 * n),
            colors=(BLUE,) * n + (RED,) * n,
            outcome="zero_sum",
        )
        self._discrete = [player for player, control in enumerate(controls) if control == "discrete"]
        self._continuous = [player for player, control in enumerate(controls) if control == "continuous"]
        self._side = np.repeat([1.0, -1.0], n)  # [E] sign of the y of the player's start line
        self._orientation = np.where((self._side < 0) & options.switch("mirror", mirror), -1.0, 1.0)  # [E]
        self._mirrored = bool((self._orientation < 0).any())
        blue, red = np.split(np.arange(2 * n), 2)
        teams = [(blue, red)] * n + [(red, blue)] * n
        # [E, E] for each player the indices of all players: itself, its team mates, its opponents.
        self._order = np.array([[me, *team[team != me], *foes] for me, (team, foes) in enumerate(teams)], np.intp)
        names, turned = self.interface.entities, [MOVE_NAMES[number] for number in (0, 2, 1, 4, 3)]
        actions, observations = {}, {}
        for me, (control, view) in enumerate(zip(controls, views, strict=True)):
            sign = "" if self._orientation[me] > 0 else "-"
            moved = turned if sign else MOVE_NAMES  # as it is seen in the picture
            actions[names[me]] = moved if control == "discrete" else [f"{sign}x", f"{sign}y"]
            if view == "vector" and n <= MOST_NAMED:
                observations[names[me]] = [f"{names[one]} {sign}{axis}" for one in self._order[me] for axis in "xy"]
        keys = {names[me]: MOVE_KEYS for me in self._discrete}
        self.metadata = {**self.metadata, "actions": actions, "keys": keys, "observations": observations}
        self._watchers = [player for player, view in enumerate(views) if view == "image"]
        field = np.zeros((IMAGE, IMAGE), np.uint8)  # an image without players
        field[np.rint((1.0 - np.array([LINE, -LINE])) * ((IMAGE - 1) / 2)).astype(np.intp)] = GRAY_LINE
        self._background = field.reshape(-1)
        self._corners = IMAGE**2 * np.arange(len(self._watchers) * self.lanes)[:, None]  # where each image begins
        self.positions = np.zeros((self.lanes, 2 * n, 2))  # [L, E, 2] float64, absolute
        # The moves of all discrete players [players * moves, 2], and where each player's begin [players, 1].
        self._discrete_moves = (MOVES * self._orientation[self._discrete, None, None]).reshape(-1, 2)
        self._first_move = len(MOVES) * np.arange(len(self._discrete))[:, None]
        self._nobody = np.zeros(self.lanes, np.bool_)
        self._nothing = np.zeros((self.lanes, 2 * n))  # the rewards of a tick without a winner
        self._none = np.zeros((self.lanes, 2 * n), np.bool_)  # the rows whose episode ends
        for returned_often in (self._nothing, self._none):
            returned_often.setflags(write=False)

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Puts all players of these lanes on the start lines; `options` are not used."""
        for lane, stream in self.begin(lanes, seeds):
            self.positions[lane, :, 0] = stream.uniform(-LINE, LINE, 2 * self.team_size)
            self.positions[lane, :, 1] = self._side * LINE
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[e]` is int `[L]` or float `[L, 2]`."""
        playing, n = self.playing, self.team_size
        moves: Any = 0.0
        if self._discrete:
            choices = np.array([actions[player] for player in self._discrete]) * playing  # [discrete players, L]
            moves = self._discrete_moves.take(choices + self._first_move, axis=0).swapaxes(0, 1)  # [L, ..., 2]
        if not self._continuous:
            self.positions += moves
        else:
            np.add(self.positions, self._all_moves(moves, actions), out=self.positions, where=playing[:, None, None])
        self.positions.clip(-1.0, 1.0, out=self.positions)

        between = self.positions[:, :n, None] - self.positions[:, None, n:]  # [L, blue, red, 2]
        close = np.einsum("lbrc,lbrc->lbr", between, between) < (NEAR - MARGIN) ** 2
        if np.count_nonzero(close):
            close &= playing[:, None, None]
            back = np.concatenate([close.any(2), close.any(1)], axis=1)  # [L, E]
            self.positions[..., 1] = np.where(back, self._side * LINE, self.positions[..., 1])

        across = self.positions[..., 1] * self._side <= MARGIN - LINE
        if not np.count_nonzero(across):  # the usual case, for which `any` would take long
            blue = red = self._nobody
        else:
            blue, red = across[:, :n].any(1), across[:, n:].any(1)  # [L]
        decided, late = self.end(blue | red)
        if not np.count_nonzero(decided | late):
            return Step(self._frame(), self._nothing, self._none, self._none)
        margin = np.where(decided, blue.astype(np.float64) - red, 0.0)  # [L] +1 blue wins, -1 red wins
        rewards = margin[:, None] * self._side + 0.0  # + 0.0: no negative zeros
        return Step(self._frame(), rewards, self.for_all(decided), self.for_all(late))

    def _all_moves(self, discrete: NDArray[Any], actions: Sequence[Any]) -> NDArray[np.float64]:
        """The moves of a tick [L, E, 2] where some players are continuous."""
        moves = np.zeros(self.positions.shape)
        moves[:, self._discrete] = discrete
        for player in self._continuous:
            moves[:, player] = np.clip(actions[player], -1.0, 1.0) * STEP * self._orientation[player]
        return moves

    def _frame(self) -> Frame:
        points = self.positions.take(self._order, axis=1)  # [L, observing E, observed E, 2]
        if self._mirrored:
            points *= self._orientation[:, None, None]
        points = points.swapaxes(0, 1)  # [observing E, L, observed E, 2]
        numbers = points.reshape(len(points), self.lanes, -1).astype(np.float32)  # [E, L, 2 E]
        observations: list[NDArray[Any]] = list(numbers)
        if self._watchers:
            pixels = np.rint((_TO_PIXELS * points[self._watchers] + 1.0) * ((IMAGE - 1) / 2)).astype(np.intp)
            np.clip(pixels, SPRITE, IMAGE - 1 - SPRITE, out=pixels)
            images = np.empty((len(self._corners), IMAGE * IMAGE), np.uint8)
            images[...] = self._background
            centers = (pixels[..., 1] * IMAGE + pixels[..., 0]).reshape(len(images), -1) + self._corners  # [P * L, E]
            flat, n = images.reshape(-1), self.team_size
            # Later sprites hide earlier ones: the observing player, the first in each row, is drawn last.
            for gray, first, last in ((GRAY_OPPONENT, n, None), (GRAY_MATE, 1, n), (GRAY_SELF, 0, 1)):
                flat[centers[:, first:last, None] + _SPRITE_OFFSETS] = gray
            shaped = images.reshape(len(self._watchers), self.lanes, IMAGE, IMAGE, 1)
            for player, image in zip(self._watchers, shaped, strict=True):
                observations[player] = image
        return Frame(observations, self.for_all(self.playing), (None,) * len(observations))

    def board(self) -> Board:
        """The field in cells of 0.1, with both start lines; discs that touch are as close as opponents may be.

        The number of a player is that of its entity: `b0` is blue_0, which goes down.
        """
        lines = [(x, 10 + side * LINE, color) for side, color in ((10, BLUE), (-10, RED)) for x in range(21)]
        marks = [Mark(*line, "-", shape="box", size=0.1) for line in lines]
        players = zip(self.interface.entities, self.interface.colors, 10 + 10 * self.positions[0], strict=True)
        for name, color, (x, y) in players:
            number = name.partition("_")[2]
            marks.append(Mark(x, y, color, name[0] + number, number, size=0.5))
        return Board(21, 21, marks)


_TO_PIXELS = np.array([1.0, -1.0])  # rows are counted from the top
_AROUND = np.arange(-SPRITE, SPRITE + 1)
_SPRITE_OFFSETS = (_AROUND[:, None] * IMAGE + _AROUND).reshape(-1)  # of a sprite's pixels from its middle
