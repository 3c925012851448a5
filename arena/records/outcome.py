"""Who has won an episode, by the rule that its game or its configuration declares; judged once, when the episode ends.

    info            what the infos say: `infos["outcome"]` of an entity is `"win"`, `"loss"` or `"draw"`
    zero_sum        the returns, which must be of two sides and add up to zero
    higher_return   the side with the higher return wins
    none            no episode has a winner

Without a rule no episode has a winner. The environment role judges; everything else reads the outcome of the record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, get_args

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum, nearest_key, pluralize

Outcome = Literal["win", "loss", "draw"]
WITHOUT_OPPONENT = "`arena evaluate` plays without an opponent, and `arena tournament` compares players of one team"

_NAMES: dict[object, Outcome] = {name: name for name in get_args(Outcome)}
_ZERO = 1e-7  # of the sum of magnitudes: the error in sums of float32 rewards that a team shares
_LEAST = 1e-8  # the error in long sums of rewards that cancel
_EQUAL = 1e-9  # of the larger return, or of 1: returns are float64 sums of rewards


def stated_outcome(info: Mapping[str, Any], rule: OutcomeRule | None) -> str | None:
    """What an entity's last info says of how its episode has ended; None: nothing.

    Raises:
        ValueError: the rule of the game is `info`, and the value is neither `win` nor `loss` nor `draw`. With other
            rules games may use the key for other purposes.
    """
    found = info.get("outcome")
    if isinstance(found, str) and (found in _NAMES or rule != "info"):
        return found
    if rule == "info" and found is not None:
        meant = nearest_key(str(found)[:80], get_args(Outcome))
        raise ValueError(f"the info 'outcome' {found!r:.80}; {meant}, as its game has the rule info")
    return None


def outcomes(
    returns: Sequence[float | None],
    stated: Sequence[str | None],
    *,
    entities: Sequence[int],
    rule: OutcomeRule | None,
    sides: Sequence[Sequence[int]] = (),
) -> tuple[Outcome | None, ...]:
    """Per seat how an episode has ended, by the rule of its game; None: it has no winner for the seat.

    With `zero_sum` the seats above zero have won and those below have lost; if all are zero it is a draw. So `+1 +1 -1
    -1` and `+3 -1 -1 -1` have winners. With `higher_return` the best side wins, and the others lose; several best sides
    draw. A seat that took no part has no outcome, and the others are judged without it; a single seat that took part
    has no outcome by its return.

    Args:
        returns: per seat, the mean over its entities of the sum of rewards; None: it took no part.
        stated: per seat, its `stated_outcome`.
        entities: per seat, how many entities it drives; the zero sum is over entities, not over seats.
        sides: the seats of each side; (): each seat is a side of its own. Only `higher_return` uses it.

    Raises:
        NotZeroSum: the rule is `zero_sum`, and the returns are not.
    """
    if not len(returns) == len(stated) == len(entities):
        raise ValueError(
            f"one item per seat expected; got {len(returns)} returns, {len(stated)} stated, {len(entities)} entities"
        )
    ends: list[Outcome | None] = [None] * len(returns)
    if rule == "info":
        return tuple(None if value is None else _NAMES.get(item) for item, value in zip(stated, returns, strict=True))
    taking = [seat for seat, value in enumerate(returns) if value is not None]
    earned = tuple(value for value in returns if value is not None)
    if rule is None or rule == "none" or len(taking) < 2 or not all(map(math.isfinite, earned)):
        return tuple(ends)
    if rule == "zero_sum":
        for seat, end in zip(taking, _by_sign(earned, tuple(entities[seat] for seat in taking)), strict=True):
            ends[seat] = end
        return tuple(ends)
    all_sides = sides or [(seat,) for seat in taking]
    present = [found for side in all_sides if (found := [seat for seat in side if returns[seat] is not None])]
    means = [mean for mean in side_returns(returns, entities, present) if mean is not None]
    level = [compared(mean, max(means)) == "draw" for mean in means]
    for side, among_best in zip(present, level, strict=True) if len(present) > 1 else ():
        for seat in side:
            ends[seat] = "loss" if not among_best else "draw" if sum(level) > 1 else "win"
    return tuple(ends)


def side_returns(
    returns: Sequence[float | None], entities: Sequence[int], sides: Sequence[Sequence[int]]
) -> list[float | None]:
    """The mean return of the entities of each side, None if none took part; (): each seat is a side of its own."""
    if not sides:
        return [*returns]
    found: list[float | None] = []
    for side in sides:
        taking = [(value, entities[seat]) for seat in side if (value := returns[seat]) is not None]
        total = math.fsum(value * count for value, count in taking)
        found.append(total / sum(count for _, count in taking) if taking else None)
    return found


def compared(first: float | None, second: float | None) -> Outcome | None:
    """The outcome of the first of two sides, by their returns; None where one took no part or is not finite."""
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return None
    if abs(first - second) <= _EQUAL * max(1.0, abs(first), abs(second)):
        return "draw"
    return "win" if first > second else "loss"


@lru_cache(maxsize=256)  # most games end in one of a few ways
def _by_sign(returns: tuple[float, ...], entities: tuple[int, ...]) -> tuple[Outcome, ...]:
    """The seats above zero have won, those below have lost.

    Raises:
        NotZeroSum: the sum over the entities is not zero, or there are more than two values.
    """
    shares = [value * count for value, count in zip(returns, entities, strict=True)]
    slack = max(_LEAST, _ZERO * math.fsum(map(abs, shares)))
    low, high = min(returns), max(returns)
    two_sided = all(value - low <= slack or high - value <= slack for value in returns)
    if abs(math.fsum(shares)) > slack or not two_sided:
        raise NotZeroSum
    return tuple("win" if value > slack else "loss" if value < -slack else "draw" for value in returns)


def suggested(
    episodes: Sequence[tuple[Sequence[float | None], Sequence[object]]],
    *,
    entities: Sequence[int],
    sides: Sequence[Sequence[int]] = (),
) -> OutcomeRule | None:
    """The rule that fits episodes of a game whose rule is not known; None: they were all drawn, and show nothing.

    Per episode there are the returns of the seats, and what the infos say of them, as in `outcomes`.
    """
    if any(_NAMES.get(item) for _, stated in episodes for item in stated if isinstance(item, str)):
        return "info"
    won = 0
    try:
        for returns, _ in episodes:
            won += "win" in outcomes(returns, [None] * len(returns), entities=entities, rule="zero_sum")
    except NotZeroSum:
        ranked = [
            outcomes(returns, [None] * len(returns), entities=entities, rule="higher_return", sides=sides)
            for returns, _ in episodes
        ]
        return "higher_return" if any("win" in ends for ends in ranked) else "none"
    return "zero_sum" if won else None


def without_winner_text(rules: Mapping[str, OutcomeRule | None]) -> list[str]:
    """A line for each game, by its rule of the configuration, in which no episode had a winner: why, and what helps."""
    return [
        f"no winners in {env!r}: `envs.{env}.outcome` is none, so its games are not rated"
        if rule == "none"
        else f"no winners in {env!r}, so its games are not rated: its rule is info, but no episode ended with the key "
        "`outcome` in an info (over HTTP in its end): state win, loss or draw there, or set another rule"
        if rule == "info"
        else f"no winners in {env!r}, so its games are not rated: set `outcome` of the game, or `envs.{env}.outcome`, "
        "to zero_sum, higher_return, info or none"
        for env, rule in rules.items()
    ]


def contradicts(outcomes: Sequence[str | None], sides: Sequence[Sequence[int]]) -> bool:
    """Whether the outcomes of a game of two sides do not fit: both have won or lost, one has none, or seats differ."""
    if len(sides) != 2 or not any(outcomes) or sorted(chain(*sides)) != [*range(len(outcomes))]:
        return False
    found = [{outcomes[seat] for seat in side} for side in sides]
    fit: list[list[set[str | None]]] = [[{"win"}, {"loss"}], [{"loss"}, {"win"}], [{"draw"}, {"draw"}]]
    return found not in fit


def contradicting_text(games: Mapping[str, int]) -> list[str]:
    """A line for each game, by the number of episodes whose outcomes do not fit."""
    return [
        f"not rated: {pluralize(count, 'game')} of {env!r} in which both sides won, both lost, or only one side has an "
        "outcome; state the `outcome` of each side: win and loss, or draw for both"
        for env, count in games.items()
    ]


def place_text(place: tuple[int, int, int, int]) -> str:
    """`round 0, match 1, lane 2, episode 3`."""
    names = ("round", "match", "lane", "episode")
    return ", ".join(f"{name} {number}" for name, number in zip(names, place, strict=True))


def returns_text(returns: Sequence[float]) -> str:
    """`returns 4.5 and 2`."""
    *others, last = (f"{value:.6g}" for value in returns)
    return f"returns {', '.join(others)} and {last}" if others else f"return {last}"
