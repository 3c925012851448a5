"""What games that compute all lanes at once have in common: lanes, pictures, moves on [-1, 1]^2, units from flags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Flags, Interface, Seeds
from arena.game.ragged import Ragged
from envs.common import options
from envs.common.drawing import RENDER_MODES, Board

Integers = NDArray[np.int64]

_NAMED = 6  # entities of a policy that a picture names
STEP = 0.1  # length of a move
MOVES = STEP * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)  # by choice, as MOVE_NAMES
MOVE_NAMES = ["stay", "right", "left", "up", "down"]
MOVE_KEYS = {"d": "right", "a": "left", "w": "up", "s": "down", **{name: name for name in MOVE_NAMES[1:]}}


class Lanes(ABC):
    """Random streams and ticks of a game's lanes, and which of them play; its `board` is what is seen of lane 0.

    Attributes:
        metadata: as Gymnasium's, with the names of actions and observations, see `arena.game.labels`.
        render_mode: what `render` gives: `rgb_array` or `ansi`.
        ticks: int64 [L] played in this episode.
        playing: bool [L] lanes whose episode goes on.
        policies: of the entities, in their order; who shows the game sets them, and then pictures name them.
    """

    batched = True
    metadata: Mapping[str, Any] = {"render_modes": RENDER_MODES, "drawn_with": ["policies"]}
    interface: Interface
    policies: Sequence[str] = ()

    def __init__(self, lanes: int, max_steps: int, render_mode: str) -> None:
        self.render_mode = options.choice("render_mode", render_mode, RENDER_MODES)
        self.lanes, self.max_steps = options.count("lanes", lanes), options.count("max_steps", max_steps)
        self.ticks = np.zeros(self.lanes, np.int64)
        self.playing: Flags = np.zeros(self.lanes, np.bool_)
        self._streams = [np.random.default_rng() for _ in range(self.lanes)]  # until a lane is seeded

    def begin(self, lanes: Flags, seeds: Seeds) -> Iterator[tuple[int, np.random.Generator]]:
        """Yields the lanes of a mask and their random streams; they play when all have been yielded, with no ticks."""
        for lane in np.flatnonzero(lanes).tolist():
            if seeds is not None and (seed := seeds[lane]) is not None:
                self._streams[lane] = np.random.default_rng(seed)
            self.ticks[lane] = 0
            yield lane, self._streams[lane]
        self.playing |= lanes

    def end(self, over: Flags | bool = False) -> tuple[Flags, Flags]:
        """Counts a tick of the lanes that play; which of them are `over`, and which are late, each [L]."""
        self.ticks += self.playing
        ended: Flags = self.playing & over
        going = self.playing ^ ended
        late = going & (self.ticks >= self.max_steps)
        self.playing = going ^ late
        return ended, late

    def for_all(self, lanes: NDArray[Any]) -> NDArray[Any]:
        """What holds for lanes [L], for all their entities [L, E]."""
        return lanes[:, None].repeat(len(self.interface.entities), 1)  # without NumPy's function around it

    def render(self) -> NDArray[np.uint8] | str:
        """Lane 0 as a picture `[height, width, 3]`, or as text."""
        board, who = self.board(), dict[str, list[str]]()
        for entity, policy in zip(self.interface.entities, self.policies, strict=False):
            who.setdefault(policy, []).append(entity)
        lines = [f"{name}: {', '.join(mine[:_NAMED])}" + ", ..." * (len(mine) > _NAMED) for name, mine in who.items()]
        return board._replace(lines=[*board.lines, *lines]).render(self.render_mode)

    @abstractmethod
    def board(self) -> Board: ...

    def close(self) -> None:  # noqa: B027 - not every game has something to release
        """Nothing to release."""


def picked(values: NDArray[Any], there: Flags) -> Ragged:
    """The items `[L, N, *shape]` whose flag `[L, N]` is set, as one row per lane."""
    return Ragged(values[there], there.sum(axis=1))


def ranks(there: Flags) -> Integers:
    """`[L, N]` the place of each item whose flag is set among such items of its lane; meaningless for other items."""
    return np.cumsum(there, axis=1) - 1


def spread(choices: Any, actors: Flags, default: int) -> Integers:
    """`Ragged` choices of the actors, int64, as an array `[L, N]`, the default in other places.

    The flags `actors` `[L, N]` say what was shown as an actor, in the order of the choices. A row that has no choices
    for its actors is left at the default: a wrapper has ended the lane. Rows of lanes without actors are not read.
    """
    found = np.full(actors.shape, default, np.int64)
    counts = actors.sum(axis=1)
    if not np.array_equal(choices.lengths, counts):
        complete = (choices.lengths == counts) & (counts > 0)
        actors, choices = actors & complete[:, None], choices[complete]
    found[actors] = choices.values
    return found
