"""What a league knows between two rounds, as rules, generators and callbacks of the user's own see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from arena.config.matches import Pair
from arena.league.results import Results, Score

if TYPE_CHECKING:
    from arena.league.ratings.ratings import Rating
    from arena.league.timeline import Timeline


@dataclass(frozen=True)
class LeagueView:
    """A league before one of its rounds."""

    round: int  # the number of the round that is to be made; the first one is 0
    policies: tuple[str, ...]
    """The names that the entry of `matches` lists as its `policies`; for a callback all that may play."""
    players: tuple[str, ...]
    """All players that may be named: policies with their current weights, then snapshots, named as `blue@5000`."""
    snapshots: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Per policy its snapshots in the league, the oldest first."""
    results: Results = field(default_factory=Results)  # all games that count
    learns: frozenset[str] = frozenset()  # the policies that learn
    earlier: tuple[tuple[Pair, ...], ...] = ()
    """Per earlier round the pairings that this entry made, each of two sides; a side is the policy of each seat."""
    planned: tuple[Mapping[str, Any], ...] = ()
    """For a callback, the matches of this round that the configuration makes, as entries of `matches`."""
    timeline: Timeline | None = None
    """The same games with their ticks, by which players that learn are rated; None: as if none learned."""

    @cached_property
    def ratings(self) -> Mapping[str, Rating]:
        """The rating of each player that has played as it is now: `elo`, `low` and `high` (95 %), `games`.

        A policy that learns has its current rating; if it has started over and not played since, it has none.
        """
        if not self.results.players:
            return MappingProxyType({})
        from arena.league.ratings.ratings import fit  # imports scipy

        fitted = fit(self.results if self.timeline is None else self.timeline, coarse=True)  # as built-in rules do
        return MappingProxyType({name: fitted.of(name) for name in fitted.players})

    def elo(self, player: str) -> float:
        """The strength of a player, in Elo around the mean of all; 0 without a game."""
        return self.ratings[player].elo if player in self.ratings else 0.0

    def score(self, player: str, other: str) -> Score:
        """The games of one player against the `other` one: `wins`, `draws`, `losses`, `games`, `points`."""
        return self.results.between(player, other)
