"""Matrix games: two players choose at once, and a table gives their rewards. The solutions are known.

| game | played | pays | known |
|---|---|---|---|
| `prisoners_dilemma` | 100 times | (3,3) both cooperate (action 0), (1,1) both defect, 5 and 0 | defecting dominates |
| `rock_paper_scissors` | 10 times | 1, 0, -1, zero-sum | value 0; only equilibrium: a third each |
| `matching_pennies` | 10 times | 1, -1, zero-sum | value 0; only equilibrium: a half each |
| `stag_hunt` | 10 times | (4,4) both hunt stag (action 0), (3,3) both hare, 0 and 3 | both are equilibria; (4,4) best |
| `two_step` | two ticks | shared: 7, or [[0, 1], [1, 8]] | optimum 8 |

The two-step game is the one of Rashid et al. 2018, "QMIX: Monotonic Value Function Factorisation", table 1: on the
first tick, which pays nothing, player 0's action chooses state 2A or 2B; on the second both act again, and both get
7 in 2A, and the table's entry in 2B. Learning each player's action values independently leads to 2A and 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from envs.common import options
from envs.common.drawing import BLUE, INK, RED, WHITE, Board, Mark
from envs.common.lanes import Lanes

Table = NDArray[np.float64]  # [states, actions of player 0, actions of player 1, 2 players]


def _paying(first: Any, second: Any = None) -> Table:
    """One table from the payoffs of each player, `[n_0, n_1]`; without the second: zero-sum."""
    pays = np.asarray(first, np.float64)
    return np.stack([pays, -pays + 0.0 if second is None else np.asarray(second, np.float64)], axis=-1)[None]


_STAGES = [[0, 0], [0, 0]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]  # of the two-step game; both players get the same
GAMES: Final[Mapping[str, tuple[Table, int]]] = {  # tables, and ticks of an episode
    "prisoners_dilemma": (_paying([[3, 0], [5, 1]], [[3, 5], [0, 1]]), 100),
    "rock_paper_scissors": (_paying([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]), 10),
    "matching_pennies": (_paying([[1, -1], [-1, 1]]), 10),
    "stag_hunt": (_paying([[4, 0], [3, 3]], [[4, 3], [0, 3]]), 10),
    "two_step": (np.concatenate([_paying(table, table) for table in _STAGES]), 2),
}
NAMES: Final[Mapping[str, list[str]]] = {  # of the actions of both players
    "prisoners_dilemma": ["cooperate", "defect"],
    "rock_paper_scissors": ["rock", "paper", "scissors"],
    "matching_pennies": ["heads", "tails"],
    "stag_hunt": ["stag", "hare"],
    "two_step": ["A", "B"],
}
DEFAULT_ROUNDS = 10  # of a game given by its payoffs


class Matrix(Lanes):
    """A game for two players, all lanes computed together.

    Entities: `player_0`, `player_1`; actions: Discrete. Repeated games end by truncation after `rounds` ticks;
    the observation is float32 `[n_own + n_other + 1]`: one-hot of the own last action, one-hot of the other's, and a
    flag that is 1 on the first tick, when there are none. The two-step game terminates after its second tick; its
    observation is the one-hot of the state (first, 2A, 2B), float32 `[3]`.

    Args:
        lanes: games that step together.
        game: `prisoners_dilemma` (also if neither this nor `payoffs` is given), `rock_paper_scissors`,
            `matching_pennies`, `stag_hunt` or `two_step`.
        payoffs: a game of one's own: `[n_0][n_1][2]`, or `[n_0][n_1]` for what player 0 gets of player 1.
        rounds: ticks of an episode of a repeated game.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an unknown game, `payoffs` that are no table, `game` and `payoffs`, or `rounds` for `two_step`.
    """

    def __init__(
        self,
        *,
        lanes: int,
        game: str | None = None,
        payoffs: Sequence[Any] | None = None,
        rounds: int | None = None,
        render_mode: str = "rgb_array",
    ) -> None:
        if payoffs is None:
            self.table, default = GAMES[
                options.choice("game", "prisoners_dilemma" if game is None else game, tuple(GAMES))
            ]
        elif game is not None:
            raise ConfigError(f"got the game {game!r} and payoffs; give one of them", path="payoffs")
        else:
            try:
                pays = np.asarray(payoffs, np.float64)
            except (TypeError, ValueError):
                pays = np.empty(0)
            fits = pays.ndim == 2 or (pays.ndim == 3 and pays.shape[2] == 2)
            if not (pays.size and fits and np.isfinite(pays).all()):
                raise ConfigError(
                    f"got {payoffs!r}, expected numbers [n_0][n_1][2] (what each player gets), or [n_0][n_1] for a "
                    "zero-sum game",
                    path="payoffs",
                )
            self.table, default = _paying(pays) if pays.ndim == 2 else pays[None], DEFAULT_ROUNDS
        self._staged = len(self.table) > 1  # player 0's first action chooses the table of the second tick
        if rounds is not None and self._staged:
            raise ConfigError("the two-step game always has two ticks; leave `rounds` out", path="rounds")
        super().__init__(lanes, default if rounds is None else options.count("rounds", rounds), render_mode)
        unpaid = "none" if payoffs is None else None  # who has won where the payoffs do not say it
        states, n_0, n_1, _ = self.table.shape
        length = states if self._staged else n_0 + n_1 + 1
        self.interface = Interface(
            entities=("player_0", "player_1"),
            observation_spaces=(spaces.Box(0.0, 1.0, (length,), np.float32),) * 2,
            action_spaces=(spaces.Discrete(n_0), spaces.Discrete(n_1)),
            mask_sizes=(0, 0),
            colors=(BLUE, RED),
            outcome="zero_sum" if np.allclose(self.table.sum(axis=-1), 0.0) else unpaid,
        )
        names = NAMES.get("prisoners_dilemma" if game is None else game) if payoffs is None else None
        if names:
            who = [*(f"{owner} {word}" for owner in ("own", "other") for word in names), "none yet"]
            seen = ["first", *(f"2{word}" for word in names)] if self._staged else who
            self.metadata = {**self.metadata, "actions": names, "observations": seen}
        self.state = np.zeros(self.lanes, np.int64)  # [L] which table is played
        self.last = np.full((self.lanes, 2), -1, np.int64)  # [L, 2] last actions; -1: none yet

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Clears the last actions of these lanes. Nothing is random: `seeds` and `options` are not used."""
        self.ticks[lanes], self.state[lanes], self.last[lanes] = 0, 0, -1
        self.playing = self.playing | lanes
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; `actions[e]` is int `[L]`."""
        played = self.playing
        self.last = chosen = np.where(played[:, None], np.stack(actions, axis=1), self.last)  # [L, 2]
        paid = self.table[self.state, chosen[:, 0], chosen[:, 1]]  # [L, 2]
        never, over = map(self.for_all, self.end())
        if self._staged:
            self.state = np.where(self.playing, 1 + chosen[:, 0], self.state)
        terminated, truncated = (over, never) if self._staged else (never, over)
        return Step(self._frame(), np.where(played[:, None], paid, 0.0), terminated, truncated)

    def _frame(self) -> Frame:
        if self._staged:
            observations = [np.eye(len(self.table), dtype=np.float32)[self.state]] * 2
        else:
            observations, lanes = [], np.arange(self.lanes)
            for player, count in enumerate(self.table.shape[1:3]):
                mine, other = self.last[:, player], self.last[:, 1 - player]
                one_hot = np.zeros((self.lanes, sum(self.table.shape[1:3]) + 1), np.float32)
                one_hot[lanes, np.where(mine < 0, -1, mine)] = 1.0  # the last item: none yet
                one_hot[lanes, np.where(mine < 0, -1, count + other)] = 1.0
                observations.append(one_hot)
        return Frame(observations, self.for_all(self.playing), (None, None))

    def board(self) -> Board:
        """The table in play, the last choice framed; blue is what player 0 gets, who chooses the row, red player 1."""
        table = self.table[self.state[0]]
        rows, columns = table.shape[:2]
        names = self.metadata.get("actions") or [f"{number}" for number in range(max(rows, columns))]
        labels = [name.center(max(map(len, names))) for name in names]  # all of one size
        marks = [Mark(0, rows, WHITE, " ")]
        marks += [Mark(0, rows - 1 - at, BLUE, names[at], labels[at], "", 0.4) for at in range(rows)]
        marks += [Mark(1 + at, rows, RED, names[at], labels[at], "", 0.4) for at in range(columns)]
        for row, column in np.ndindex(rows, columns):
            x, y, (mine, other) = 1 + column, rows - 1 - row, (f"{pays:.4g}" for pays in table[row, column])
            text = f"{mine}, {other}"
            if self.ticks[0] > self._staged and (row, column) == tuple(self.last[0]):
                text = f"[{text}]"
                marks += [Mark(x, y, INK, shape="box", size=0.48), Mark(x, y, WHITE, shape="box", size=0.45)]
            marks += [Mark(x - 0.22, y, BLUE, "", mine, "", 0.2), Mark(x + 0.22, y, RED, text, other, "", 0.2)]
        return Board(1 + columns, 1 + rows, marks, (), (432 / (1 + rows), 432 / (1 + columns)))
