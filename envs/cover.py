"""Cover: N players spread over N targets, cooperatively and without communication.

Players and targets are drawn uniformly from the square [-1, 1]^2; targets stay where they are. On each tick every
player stays or moves by 0.1 along an axis, clipped to the square; players may overlap. All of them get the same
reward: minus the distance from a target to its nearest player, averaged over the targets,

    r = -1/N * sum over targets j of  min over players i of  |x_i - z_j|.

Its upper bound 0 is reached when every target is covered. The game never terminates; it is truncated after
`max_steps` ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from envs.common import options
from envs.common.drawing import GREEN, ORANGE, PLAYERS, Board, Mark
from envs.common.lanes import MOVE_KEYS, MOVE_NAMES, MOVES, STEP, Lanes

MOST_NAMED = 8  # players whose observations have names
MOST_PLAYERS = 200  # each observes all others, so memory grows with the square


class Cover(Lanes):
    """`players` players and as many targets, all lanes computed together.

    Entities: `player_0`, ... Actions: one of the five `MOVES`. Observation: float32 `[4 * players]`: the own
    (x, y), then all targets and then the other players, relative to the own position.

    Args:
        lanes: games that step together.
        players: number of players, and of targets.
        max_steps: ticks of an episode.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed.
    """

    def __init__(self, *, lanes: int, players: int = 3, max_steps: int = 300, render_mode: str = "rgb_array") -> None:
        super().__init__(lanes, max_steps, render_mode)
        self.players = options.count("players", players, most=MOST_PLAYERS)
        high = np.full(4 * self.players, 2.0, np.float32)  # two points of the square are at most 2 apart on an axis
        high[:2] = 1.0
        self.interface = Interface(
            entities=tuple(f"player_{index}" for index in range(self.players)),
            observation_spaces=(spaces.Box(-high, high, dtype=np.float32),) * self.players,
            action_spaces=(spaces.Discrete(len(MOVES)),) * self.players,
            mask_sizes=(0,) * self.players,
            colors=tuple(PLAYERS[index % len(PLAYERS)] for index in range(self.players)),
            outcome="none",  # a shared reward
        )
        self.positions = np.zeros((self.lanes, self.players, 2))  # [L, E, 2] float64
        self.targets = np.zeros((self.lanes, self.players, 2))  # [L, E, 2] float64
        indices, names = range(self.players), self.interface.entities
        self.metadata = {**self.metadata, "actions": MOVE_NAMES, "keys": MOVE_KEYS}
        if self.players <= MOST_NAMED:
            targets = [f"target {i}" for i in indices]
            seen = {me: ["own", *targets, *(one for one in names if one != me)] for me in names}
            self.metadata["observations"] = {me: [f"{one} {axis}" for one in seen[me] for axis in "xy"] for me in names}
        others = [[i for i in indices if i != me] for me in indices]
        self._others = np.array(others, np.intp).reshape(self.players, self.players - 1)  # [E, E - 1]

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Draws the positions of players and targets in these lanes; `options` are not used."""
        for lane, stream in self.begin(lanes, seeds):
            self.positions[lane], self.targets[lane] = stream.uniform(-1.0, 1.0, (2, self.players, 2))
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[e]` is int `[L]`."""
        played = self.playing
        chosen = np.where(played, np.stack(actions), 0)  # [E, L]
        self.positions += MOVES[chosen.T] * played[:, None, None]
        np.clip(self.positions, -1.0, 1.0, out=self.positions)
        distances = self.targets[:, :, None] - self.positions[:, None]  # [L, target, player, 2]
        gaps: NDArray[np.float64] = np.sqrt(np.square(distances).sum(-1)).min(-1).mean(-1)  # [L]
        never, late = self.end()
        return Step(self._frame(), *map(self.for_all, (np.where(played, -gaps, 0.0), never, late)))

    def _frame(self) -> Frame:
        me = self.positions[:, :, None]  # [L, E, 1, 2]
        relative = np.concatenate([me, self.targets[:, None] - me, self.positions[:, self._others] - me], axis=2)
        by_player = relative.reshape(self.lanes, self.players, -1).swapaxes(0, 1).astype(np.float32, order="C")
        return Frame(list(by_player), self.for_all(self.playing), (None,) * self.players)

    def board(self) -> Board:
        """The square in cells of 0.1: players, and targets, green where a player is within a move of them."""
        gaps = np.linalg.norm(self.targets[0][:, None] - self.positions[0], axis=-1).min(-1)
        targets = zip(10 + 10 * self.targets[0], (GREEN if gap <= STEP else ORANGE for gap in gaps), strict=True)
        marks = [Mark(x, y, color, "o", size=1) for (x, y), color in targets]
        for player, (x, y) in enumerate(10 + 10 * self.positions[0]):
            marks.append(Mark(x, y, self.interface.colors[player], f"{player}", f"{player}", size=0.5))
        return Board(21, 21, marks)
