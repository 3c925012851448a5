"""Who has won an episode, by the rule of its game, and whether that still holds when other episodes are known.

The rule is `envs.<name>.outcome` of the configuration:

    info            what the infos say: `infos["outcome"]` of an entity is `"win"`, `"loss"` or `"draw"`
    zero_sum        the returns, which must be of two sides and add up to zero
    higher_return   the side with the higher return wins
    none            no episode has a winner
    null            the infos where they say anything, else the returns as long as the game is zero-sum

`outcomes` decides one episode. With null the decision may be revoked: a game is zero-sum only if all of its episodes
are. Once an episode is not, no episode of this game, earlier ones included, has a winner unless its infos name one.
`Winners` keeps these games; all code that counts games asks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum

Outcome = Literal["win", "loss", "draw"]

_NAMES: dict[object, Outcome] = {name: name for name in get_args(Outcome)}
_ZERO = 1e-7  # of the sum of magnitudes: the error in sums of float32 rewards that a team shares
_LEAST = 1e-8  # the error in long sums of rewards that cancel
_EQUAL = 1e-9  # of the larger return, or of 1: returns are float64 sums of rewards


class Verdict(NamedTuple):
    """How an episode has ended.

    Args:
        outcomes: per seat; None where it has no winner.
        settled: whether that holds whatever other episodes show: the infos or a rule of the configuration decided.
    """

    outcomes: tuple[Outcome | None, ...]
    settled: bool


def outcomes(
    returns: Sequence[float],
    stated: Sequence[object],
    *,
    entities: Sequence[int],
    rule: OutcomeRule | None = None,
    sides: Sequence[Sequence[int]] = (),
) -> Verdict:
    """How an episode has ended, by the rule of its game.

    Returns decide by zero sum when all of this holds: at least two seats; all returns finite; their sum over all
    entities is zero; and at most two different values among the seats. Then the seats above zero have won and those
    below have lost; if all are zero it is a draw. So `+1 +1 -1 -1` and `+3 -1 -1 -1` have winners; `+2 -1.5 -0.5` and
    rewards that all seats share have none.

    A seat whose return is NaN took no part: it has no outcome, and the others are judged without it.

    Args:
        returns: per seat, the mean over its entities of the sum of rewards.
        stated: per seat, what the infos hold under `"outcome"`, None where they hold nothing. Words other than
            `"win"`, `"loss"` and `"draw"` are ignored, as some games use the key for other purposes.
        entities: per seat, how many entities it drives; the zero sum is over entities, not over seats.
        rule: of the game; None: a seat about which the infos say nothing is filled in from the returns, unless these
            contradict what the infos say of another seat.
        sides: the seats of each side; (): each seat is a side of its own. Only `higher_return` uses it.

    Raises:
        ValueError: the first three do not have the same length.
        NotZeroSum: the rule is `zero_sum`, and the returns are not.
    """
    if not len(returns) == len(stated) == len(entities):
        raise ValueError(
            f"one item per seat expected; got {len(returns)} returns, {len(stated)} stated, {len(entities)} entities"
        )
    taking = [seat for seat, value in enumerate(returns) if not math.isnan(value)]
    if 0 < len(taking) < len(returns):
        places = {seat: place for place, seat in enumerate(taking)}
        verdict = outcomes(
            [returns[seat] for seat in taking],
            [stated[seat] for seat in taking],
            entities=[entities[seat] for seat in taking],
            rule=rule,
            sides=[found for side in sides if (found := [places[seat] for seat in side if seat in places])],
        )
        by_seat = dict(zip(taking, verdict.outcomes, strict=True))
        return Verdict(tuple(by_seat.get(seat) for seat in range(len(returns))), verdict.settled)
    unknown: tuple[Outcome | None, ...] = (None,) * len(returns)
    said = tuple(_NAMES.get(item) if isinstance(item, str) else None for item in stated)
    if rule == "none":
        return Verdict(unknown, settled=True)
    if rule == "info":
        return Verdict(said, settled=True)
    if rule == "higher_return":
        return Verdict(_by_rank(returns, entities, sides), settled=True)
    if rule == "zero_sum":
        if is_not_zero_sum(returns, entities):
            raise NotZeroSum
        return Verdict(_by_returns(tuple(returns), tuple(entities)), settled=True)
    if said == unknown:
        return Verdict(_by_returns(tuple(returns), tuple(entities)), settled=False)
    decided = _by_returns(tuple(returns), tuple(entities))
    if None not in said or any(mine not in (None, other) for mine, other in zip(said, decided, strict=True)):
        return Verdict(said, settled=True)
    return Verdict(decided, settled=True)


def is_not_zero_sum(returns: Sequence[float], entities: Sequence[int]) -> bool:
    """Whether the returns of seats show that a game is not one of two sides that add up to zero.

    One seat alone shows nothing, nor do returns that are not finite; seats whose return is NaN took no part.
    """
    taking = [(value, count) for value, count in zip(returns, entities, strict=True) if not math.isnan(value)]
    known = len(taking) > 1 and all(math.isfinite(value) for value, _ in taking)
    return known and None in _by_returns(*map(tuple, zip(*taking, strict=True)))


def side_returns(returns: Sequence[float], entities: Sequence[int], sides: Sequence[Sequence[int]]) -> list[float]:
    """The mean return of the entities of each side, NaN if none took part; (): each seat is a side of its own."""
    if not sides:
        return [*returns]
    taking = [[seat for seat in side if not math.isnan(returns[seat])] for side in sides]
    return [
        math.fsum(returns[seat] * entities[seat] for seat in side) / sum(entities[seat] for seat in side)
        if side
        else math.nan
        for side in taking
    ]


def compared(first: float, second: float) -> Outcome | None:
    """The outcome of the first of two sides, by their returns; None where one is not finite."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return None
    if abs(first - second) <= _EQUAL * max(1.0, abs(first), abs(second)):
        return "draw"
    return "win" if first > second else "loss"


def _by_rank(
    returns: Sequence[float], entities: Sequence[int], sides: Sequence[Sequence[int]]
) -> tuple[Outcome | None, ...]:
    """The best side wins, and the others lose; where several are the best, they draw."""
    unknown: tuple[Outcome | None, ...] = (None,) * len(returns)
    if len(returns) < 2 or len(sides) == 1 or not all(map(math.isfinite, returns)):
        return unknown
    means = side_returns(returns, entities, sides)
    best = max(means)
    level = [compared(mean, best) == "draw" for mean in means]
    ends: list[Outcome | None] = [*unknown]
    for side, among_best in zip(sides or [(seat,) for seat in range(len(returns))], level, strict=True):
        for seat in side:
            ends[seat] = "loss" if not among_best else "draw" if sum(level) > 1 else "win"
    return tuple(ends)


@lru_cache(maxsize=256)  # most games end in one of a few ways
def _by_returns(returns: tuple[float, ...], entities: tuple[int, ...]) -> tuple[Outcome | None, ...]:
    unknown: tuple[Outcome | None, ...] = (None,) * len(returns)
    if len(returns) < 2 or not all(math.isfinite(value) for value in returns):
        return unknown
    shares = [value * count for value, count in zip(returns, entities, strict=True)]
    slack = max(_LEAST, _ZERO * math.fsum(map(abs, shares)))
    if abs(math.fsum(shares)) > slack or not _two_sided(returns, slack):
        return unknown
    return tuple("win" if value > slack else "loss" if value < -slack else "draw" for value in returns)


def _two_sided(returns: Sequence[float], slack: float) -> bool:
    low, high = min(returns), max(returns)
    return all(value - low <= slack or high - value <= slack for value in returns)


class Ending(NamedTuple):
    """The part of a finished episode that decides whether its outcomes hold.

    Args:
        env: the name of its game.
        place: round, match, lane, and number of the episode.
        outcomes: per seat, as they were decided when the episode was over.
        returns: per seat; not finite where the file has null.
        entities: per seat, the number of entities.
        settled: as in `Verdict`.
        cut: whether the end of a leg has cut it, so that it is no result.
    """

    env: str
    place: tuple[int, int, int, int]
    outcomes: tuple[Outcome | None, ...]
    returns: tuple[float, ...]
    entities: tuple[int, ...]
    settled: bool
    cut: bool


class Winners:
    """Which games have winners, as far as their episodes have shown.

    Attributes:
        without: per game that has no rule and is not zero-sum, the first episode that showed it.
    """

    def __init__(self, without: Mapping[str, Ending] | None = None) -> None:
        self.without: dict[str, Ending] = dict(without or {})

    def see(self, episodes: Iterable[Ending]) -> list[str]:
        """Adds finished episodes; returns the games that are newly found not to be zero-sum."""
        found = []
        for one in episodes:
            shows = not (one.settled or one.cut) and not any(one.outcomes) and one.env not in self.without
            if shows and is_not_zero_sum(one.returns, one.entities):
                self.without[one.env] = one
                found.append(one.env)
        return found

    def holds(self, one: Ending) -> bool:
        """Whether the outcomes of an episode hold."""
        return one.env not in self.without or stands(one)

    def outcomes(self, one: Ending) -> tuple[Outcome | None, ...]:
        """Per seat, the outcome of an episode, by the episodes so far."""
        return one.outcomes if self.holds(one) else (None,) * len(one.outcomes)

    def words(self, rules: Mapping[str, OutcomeRule | None]) -> list[str]:
        """A line for each game without winners: why that is, and what to do.

        Args:
            rules: per game that is played, its rule.
        """
        return [
            *(without_winner_words(self.without[env]) for env, rule in rules.items() if env in self.without),
            *(
                f"no winners in {env!r}: `envs.{env}.outcome` is none, so its games are not rated"
                for env, rule in rules.items()
                if rule == "none"
            ),
        ]


def stands(one: Ending) -> bool:
    """Whether the outcomes of an episode hold even if its game is not zero-sum.

    Records of older versions do not say what decided: outcomes that do not follow from the returns were in the infos.
    """
    by_returns = outcomes(one.returns, (None,) * len(one.returns), entities=one.entities).outcomes
    return one.settled or (any(one.outcomes) and one.outcomes != by_returns)


def without_winner_words(one: Ending) -> str:
    """Why a game has no winners: the episode that showed that it is not zero-sum; and the key that helps."""
    return (
        f"no winners in {one.env!r}: its returns do not add up to zero ({place_words(one.place)}: "
        f"{returns_words(one.returns)}) and its infos name no winner, so its games are not rated; set "
        f"`envs.{one.env}.outcome` to higher_return if the higher return wins, or to none"
    )


def place_words(place: tuple[int, int, int, int]) -> str:
    """`round 0, match 1, lane 2, episode 3`."""
    names = ("round", "match", "lane", "episode")
    return ", ".join(f"{name} {number}" for name, number in zip(names, place, strict=True))


def returns_words(returns: Sequence[float]) -> str:
    """`returns 4.5 and 2`."""
    *others, last = (f"{value:.6g}" for value in returns)
    return f"returns {', '.join(others)} and {last}" if others else f"return {last}"
