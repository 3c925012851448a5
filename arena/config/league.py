"""The `league` section: what joins a league from round to round, who takes over from whom, and when it is over."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from arena.config.fields import Count, Keys, ListOf, MapOf, Share, ShortForm

Elo = Annotated[float, Meta(gt=0, le=4000)]
Error = Annotated[float, Meta(gt=0, lt=1)]
Factor = Annotated[float, Meta(gt=0, le=1e6)]
Rating = Annotated[float, Meta(ge=-4000, le=4000)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Half = Annotated[float, Meta(gt=0, le=0.5)]


class Gate(Keys, frozen=True, kw_only=True):
    """What a policy has to prove before a snapshot of it joins: that it is better than its newest one."""

    elo: Elo = 20.0
    """by how much; tested against being no better at all"""
    alpha: Error = 0.05
    """how probable it is that one joins which is no better"""
    beta: Error = 0.05
    """how probable it is that one is kept out which is better by that much"""


class Snapshots(Keys, frozen=True, kw_only=True):
    """Past selves: they join the league as frozen players."""

    every: Count = 1
    """rounds"""
    keep: Count = 20
    """of each policy"""
    keep_by: Literal["count", "spread"] = "count"
    """the newest; or those that differ most in strength"""
    gate: Gate | None = None
    """null: all join"""


class Perturb(ShortForm, frozen=True, kw_only=True):
    """How an option of a fork changes: one of the factors is drawn; `[0.8, 1.25]` is short for them alone."""

    factors: ListOf[Factor]
    """the option is multiplied by one of these, drawn at random"""
    at_least: Finite | None = None
    """null: no bound"""
    at_most: Finite | None = None
    """null: no bound"""
    short: ClassVar[Any] = tuple[Factor, ...]

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        return {"factors": value} if isinstance(value, (list, tuple)) else value

    def bounds(self, value: float) -> tuple[float, float]:
        """The bounds of an option with this value; a whole number of at least 1 stays at least 1."""
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return (max(low, min(value, 1)) if isinstance(value, int) else low), high

    def multiplied(self, value: float, factor: float) -> float:
        """An option multiplied by a factor, within its bounds; whole numbers stay whole."""
        low, high = self.bounds(value)
        changed = min(max(value * factor, low), high)
        if not isinstance(value, int):
            return float(changed)
        whole = round(changed)
        return whole + (whole < low) - (whole > high)


class Evolution(Keys, frozen=True, kw_only=True):
    """Population-based training: the worst become copies of the best, with other options."""

    every: Count = 1
    """rounds"""
    share: Share = 0.25
    """of the population: so many of the worst take over from as many of the best, or all others"""
    keep: Count | None = None
    """so many of the best survive, and all others take over from them; null: `share` says so"""
    by: Literal["return", "rating"] = "return"
    """mean return of the newest round; or the rating"""
    policies: ListOf[str] | None = None
    """the population; null: all that learn"""
    perturb: MapOf[Perturb] = {}
    """by option"""

    def replaced(self, size: int) -> int:
        """How many of a population of this size become copies."""
        if self.keep is not None:
            return max(0, size - self.keep)
        return min(max(1, math.floor(round(self.share * size, 9))), size - 1)  # 0.29 of 100 are 29

    def sources(self, size: int) -> int:
        """How many of the best are copied."""
        replaced = self.replaced(size)
        return size - replaced if self.keep is not None else min(replaced, size - replaced)


class Decided(Keys, frozen=True, kw_only=True):
    """When players that do not learn are ranked well enough."""

    error: Half = 0.05
    """how probable it is that some two of them are in the wrong order"""
    elo: Elo = 20.0
    """differences below this do not count"""


class League(Keys, frozen=True, kw_only=True):
    """What happens between two rounds."""

    snapshots: Snapshots = Snapshots()
    """of learners in `matchmaking`"""
    evolution: Evolution | None = None
    """null: every policy keeps its own weights"""
    decided: Decided | None = None
    """ends the league when the order of all players is; null: plays all rounds"""
    prior: MapOf[Rating] = {}
    """of policies when the league begins, in Elo; counts as much as ten games of each"""
