"""Skirmish: two teams of soldiers on a board; a team without soldiers has lost.

The soldiers of a team start on different cells of the three columns at its own edge: blue at x <= 2, red at
x >= width - 3. Each player moves all soldiers of its team, and sees units of the types `Own` and `Enemy` (x, y,
health); red sees the board turned (x -> width - 1 - x, y -> height - 1 - y), so both sides are alike. A soldier with
an enemy within `reach` (|dx| + |dy|) picks one to `Attack`; any other soldier picks a `Move`: stay, +x, -x, +y, -y. So
each soldier decides once per tick. A move off the board is masked; if it is made anyway, the soldier stays. Soldiers
may share a cell.

All moves and attacks of a tick count at once. Each attack takes 1 health; a soldier without health is gone after the
tick. A team without soldiers has lost: terminated, +1 and -1; both at once: a draw, 0. After `max_steps`: truncated, a
draw. Each health point taken pays `damage_reward` to one side and costs the other as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from arena.errors import ConfigError
from arena.game.api import Flags, Frame, Info, Interface, ResetOptions, Seeds, Step
from arena.game.ragged import Ragged
from arena.game.units import Choice, Select, UnitSpace
from envs.common import options
from envs.common.drawing import BLUE, RED, Board, Mark
from envs.common.lanes import Lanes, picked, ranks, spread

LABELS: Final = ("stay", "+x", "-x", "+y", "-y")
_DELTAS = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.int64)  # by label
TEAMS: Final = ("blue", "red")
COLUMNS = 3  # at each edge, where the soldiers start
MOST_CELLS = 1_000  # of a side of the board
MOST_SOLDIERS = 1_000  # of a team; memory grows with the square

SPACE: Final = UnitSpace(
    {"Own": ["x", "y", "health"], "Enemy": ["x", "y", "health"]},
    actions={"Move": Choice(LABELS), "Attack": Select(masked=True)},
)


class Skirmish(Lanes):
    """Two players with `team_size` soldiers each; all lanes are computed together.

    Entities: `blue` and `red`.

    Args:
        lanes: games that step together.
        width: cells of the board in x.
        height: cells in y.
        team_size: soldiers of a team.
        health: of a soldier at the start.
        reach: the largest |dx| + |dy| of an attack.
        max_steps: ticks after which an undecided game is truncated.
        damage_reward: for each health point taken.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed, or a team larger than its columns.
    """

    def __init__(
        self,
        *,
        lanes: int,
        width: int = 12,
        height: int = 12,
        team_size: int = 5,
        health: int = 3,
        reach: int = 2,
        max_steps: int = 100,
        damage_reward: float = 0.02,
        render_mode: str = "rgb_array",
    ) -> None:
        super().__init__(lanes, max_steps, render_mode)
        self.width = options.count("width", width, least=2 * COLUMNS, most=MOST_CELLS)
        self.height = options.count("height", height, most=MOST_CELLS)
        self.team_size = options.count("team_size", team_size, most=MOST_SOLDIERS)
        if team_size > COLUMNS * height:
            raise ConfigError(
                f"got {team_size}, but the {COLUMNS} columns of a team have {COLUMNS * height} cells", path="team_size"
            )
        self.start_health = options.count("health", health)
        self.reach = options.count("reach", reach)
        self.damage_reward = options.number("damage_reward", damage_reward, least=0.0)
        spaces = (SPACE, SPACE), (SPACE.action_space, SPACE.action_space)
        self.interface = Interface(TEAMS, *spaces, (0, 0), (BLUE, RED), outcome="info")
        self.metadata = {**self.metadata, "drawn_with": ["policies", "seen_by"]}
        self.seen_by = 0  # the player from whose side the board is shown
        self._edge = np.array([self.width - 1, self.height - 1])

        self.places = np.zeros((2, self.lanes, self.team_size, 2), np.int64)  # [team, L, T, 2] cells, absolute
        self.health = np.zeros((2, self.lanes, self.team_size), np.int64)  # [team, L, T] 0: gone

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Draws the cells of all soldiers in these lanes; `options` are not used."""
        for lane, stream in self.begin(lanes, seeds):
            for team in (0, 1):
                x, y = np.divmod(stream.permutation(COLUMNS * self.height)[: self.team_size], self.height)
                self.places[team, lane] = np.stack([x + team * (self.width - COLUMNS), y], axis=1)
        self.health[:, lanes] = self.start_health
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One tick; each of the two actions has a label per soldier that moves, and a target per one that attacks."""
        played, alive = self.playing, self.health > 0
        near = self._near()
        taken = np.zeros_like(self.health)  # health points
        places = self.places.copy()
        for team in (0, 1):
            mine = near if team == 0 else near.swapaxes(1, 2)  # [L, own, enemy]
            attackers, targets = mine.any(axis=2), mine.any(axis=1)  # [L, T]
            movers = alive[team] & ~attackers & played[:, None]
            moves = _DELTAS[spread(actions[team]["Move"], movers, 0)]
            places[team] += moves if team == 0 else -moves  # red sees the board turned
            place = spread(actions[team]["Attack"], attackers & played[:, None], -1)  # [L, T] a place in the actees
            lane, soldier = np.nonzero(place >= 0)
            order = np.argsort(~targets, axis=1, kind="stable")  # [L, T] targets first, in their order
            np.add.at(taken[1 - team], (lane, order[lane, place[lane, soldier]]), 1)
        self.places = np.clip(places, 0, self._edge)
        taken = np.minimum(taken, self.health)
        self.health = self.health - taken

        lost: Flags = np.all(self.health <= 0, axis=2)  # [team, L]
        over, late = self.end(lost[0] | lost[1])
        lead = taken[1].sum(axis=1) - taken[0].sum(axis=1)  # [L] health points that red has lost, minus those of blue
        result = np.where(over, lost[1].astype(np.float64) - lost[0], 0.0)  # [L] +1: blue has won
        blue = result + self.damage_reward * lead
        infos: list[list[Info]] | None = None
        if (over | late).any():
            outcomes = {1.0: ("win", "loss"), 0.0: ("draw", "draw"), -1.0: ("loss", "win")}
            infos = [
                [{"outcome": word} for word in outcomes[won]] if ended else [{}, {}]
                for ended, won in zip((over | late).tolist(), result.tolist(), strict=True)
            ]
        rewards = np.stack([blue, -blue], axis=1) + 0.0
        return Step(self._frame()._replace(infos=infos), rewards, self.for_all(over), self.for_all(late))

    def _near(self) -> Flags:
        """Whether a blue and a red soldier, both alive, are within reach of each other: `[L, blue, red]`."""
        distance = np.abs(self.places[0][:, :, None] - self.places[1][:, None]).sum(axis=-1)
        alive = self.health > 0
        return (distance <= self.reach) & alive[0][:, :, None] & alive[1][:, None]  # type: ignore[no-any-return]

    def _frame(self) -> Frame:
        alive, playing, both = self.health > 0, self.playing[:, None], self._near()
        shown = []
        for team in (0, 1):
            near = both if team == 0 else both.swapaxes(1, 2)  # [L, own, enemy]
            cells = self.places if team == 0 else self._edge - self.places
            units = np.concatenate([cells, self.health[..., None]], axis=-1).astype(np.float32)  # [team, L, T, 3]
            mine, enemy = alive[team], alive[1 - team]
            attackers, targets = near.any(axis=2) & playing, near.any(axis=1) & playing
            movers = mine & ~attackers & playing
            index, enemy_index = ranks(mine), ranks(enemy) + mine.sum(axis=1, keepdims=True)
            places = cells[team][movers]
            allowed = np.ones((len(places), len(LABELS)), np.int8)
            allowed[:, 1::2], allowed[:, 2::2] = places < self._edge, places > 0
            pairs = attackers[:, :, None] & targets[:, None]  # [L, own, enemy]
            attack = {
                "actors": picked(index, attackers),
                "actees": picked(enemy_index, targets),
                "mask": Ragged(near[pairs].astype(np.int8), pairs.sum(axis=(1, 2))),
            }
            move = {"actors": picked(index, movers), "mask": Ragged(allowed, movers.sum(axis=1))}
            parts = {"Own": picked(units[team], mine), "Enemy": picked(units[1 - team], enemy)}
            shown.append({"units": parts, "actions": {"Move": move, "Attack": attack}})
        return Frame(shown, np.repeat(playing, 2, axis=1), (None, None))

    def board(self) -> Board:
        """As a player sees it: the number of a soldier is its index as a unit; the more health, the larger it is."""
        marks, me = [], self.seen_by
        for unit, (foe, soldier) in enumerate(np.argwhere(self.health[[me, 1 - me], 0] > 0).tolist()):
            team = foe ^ me
            x, y = np.abs(me * self._edge - self.places[team, 0, soldier]).tolist()
            size = 0.18 + 0.27 * min(1.0, self.health[team, 0, soldier] / self.start_health)
            shift = 0.08 * (2 * team - 1)  # two soldiers on a cell are both seen
            marks.append(Mark(x + shift, y, (BLUE, RED)[team], f"{'br'[team]}{unit}", f"{unit}", size=size))
        return Board(self.width, self.height, marks)
