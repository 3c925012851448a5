"""Rules, generators and callbacks of a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.callbacks import Callback
from arena.league import LeagueView


class Above:
    """Meets the players that are rated just above."""

    def __init__(self, *, elo: float = 1000.0) -> None:
        if elo <= 0:
            raise ValueError(f"elo is {elo}; above 0")
        self.elo = elo

    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Sequence[str]:
        own = league.elo(learner)
        above = [name for name in league.players if own < league.elo(name) <= own + self.elo]
        return list(rng.choice(sorted(above or league.players), count))


class Ladder:
    """Pairs the best player with the second, the third with the fourth, and so on."""

    def pairings(self, league: LeagueView, rng: np.random.Generator) -> Sequence[tuple[str, str]]:
        ranked = sorted(league.policies, key=lambda name: (-league.elo(name), name))
        return list(zip(ranked[::2], ranked[1::2], strict=False))


class Proposes(Callback):
    """Proposes a match of the worst and the best player, or the matches of its option."""

    def __init__(self, *, env: str = "game", lanes: int = 2, matches: Any = None) -> None:
        self.env, self.lanes, self.matches = env, lanes, matches

    def on_next_round(self, league: LeagueView) -> Sequence[Mapping[str, Any]] | None:
        if self.matches is not None:
            found: Sequence[Mapping[str, Any]] = self.matches
            return found
        if not league.ratings:
            return None
        ranked = sorted(league.policies, key=lambda name: (-league.elo(name), name))
        return [{"env": self.env, "seats": [ranked[0], ranked[-1]], "lanes": self.lanes}]
