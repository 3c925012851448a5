"""Who won an episode.

A game may say it itself: `infos["outcome"]` of an entity is `"win"`, `"loss"` or `"draw"`. Anything else under that
key is taken as not said, because games of other people use the word for other things. Where a game says nothing, the
returns decide if, and only if, they are those of two sides that play for a zero sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

Outcome = Literal["win", "loss", "draw"]

_NAMES: dict[object, Outcome] = {name: name for name in get_args(Outcome)}
_TOLERANCE = 1e-9  # of the sum of magnitudes: returns are float64 sums of rewards


def outcomes(returns: Sequence[float], stated: Sequence[object], *, entities: Sequence[int]) -> list[Outcome | None]:
    """The outcome of an episode for each seat, None where the game has no winner.

    What the game states counts first. A seat about which it says nothing is filled in from the returns, unless the
    returns contradict something that it did say.

    The returns decide when all of this holds: at least two seats; all returns finite; their sum over all entities is
    zero; and at most two different values among the seats. Then the seats above zero have won and those below have
    lost; if all are zero it is a draw. So `+1 +1 -1 -1` and `+3 -1 -1 -1` have winners, `+2 -1.5 -0.5` and anything
    shared has none. Zero for everybody is a draw even in a game that has no winners in other episodes: one episode
    cannot show the difference, and a game that minds says so itself.

    Args:
        returns: per seat, the mean over its entities of the sum of rewards.
        stated: per seat, what the infos hold under `"outcome"`, None where they hold nothing.
        entities: per seat, how many entities it drives; the zero sum is over entities, not over seats.

    Raises:
        ValueError: the three do not have the same length.
    """
    if not len(returns) == len(stated) == len(entities):
        raise ValueError(
            f"one item per seat expected; got {len(returns)} returns, {len(stated)} stated, {len(entities)} entities"
        )
    said = [_NAMES.get(item) if isinstance(item, str) else None for item in stated]
    if None not in said:
        return said
    decided = _by_returns(tuple(returns), tuple(entities))
    if any(mine is not None and mine != other for mine, other in zip(said, decided, strict=True)):
        return said
    return [*decided]


@lru_cache(maxsize=256)  # most games end in one of a few ways
def _by_returns(returns: tuple[float, ...], entities: tuple[int, ...]) -> tuple[Outcome | None, ...]:
    nobody: tuple[Outcome | None, ...] = (None,) * len(returns)
    if len(returns) < 2 or not all(math.isfinite(value) for value in returns):
        return nobody
    shares = [value * count for value, count in zip(returns, entities, strict=True)]
    slack = _TOLERANCE * math.fsum(map(abs, shares))
    if abs(math.fsum(shares)) > slack or not _two_sided(returns, slack):
        return nobody
    return tuple("win" if value > slack else "loss" if value < -slack else "draw" for value in returns)


def _two_sided(returns: Sequence[float], slack: float) -> bool:
    low, high = min(returns), max(returns)
    return all(value - low <= slack or high - value <= slack for value in returns)
