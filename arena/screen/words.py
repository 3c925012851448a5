"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.plan import Plan
    from arena.records.scoreboard import Score

_SHOWN = 6  # pairings of a round
_Z95 = 1.959964  # the normal distribution's 97.5 % point


def counted(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def processes_words(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    words = counted(processes, "process", "processes")
    return words if processes >= roles else f"{roles} roles on {words}"


def round_words(plan: Plan) -> str:
    """A round of a league: its number, from 0, and who meets whom in it."""
    games = Counter(" - ".join(dict.fromkeys(seat.policy for seat in match.seats)) for match in plan.matches)
    shown = [f"{who} x{count}" if count > 1 else who for who, count in games.most_common(_SHOWN)]
    more = [f"and {len(games) - _SHOWN} more"] if len(games) > _SHOWN else []
    return f"round {plan.round} of 0 to {plan.rounds - 1}: {', '.join([*shown, *more])}"


def result_words(score: Score) -> str:
    """A result with its 95 % intervals."""
    if score.episodes == 0:
        return "no episode"
    words = [f"{score.episodes} episodes", f"return {_mean_words(score)}", f"length {score.lengths.mean:.1f}"]
    if score.games.count:
        low, high = wilson(score.wins, score.games.count)
        words.insert(1, f"won {score.wins / score.games.count:.1%} [{low:.1%}, {high:.1%}]")
    return ", ".join(words)


def _mean_words(score: Score) -> str:
    """The mean and the half of its interval by Student's t; of one episode there is none."""
    count, mean = score.returns.count, score.returns.total / score.returns.count
    if count == 1:
        return f"{mean:.2f}"
    from scipy.special import stdtrit  # takes its time, and most processes say nothing

    half = float(stdtrit(count - 1, 0.975)) * score.returns.deviation / math.sqrt(count)
    return f"{mean:.2f} +- {half:.2f}"


def wilson(wins: float, games: int) -> tuple[float, float]:
    """The 95 % score interval of a win rate.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    rate, z2 = wins / games, _Z95 * _Z95
    center = (rate + z2 / (2 * games)) / (1 + z2 / games)
    half = _Z95 * math.sqrt(rate * (1 - rate) / games + z2 / (4 * games * games)) / (1 + z2 / games)
    return max(0.0, center - half), min(1.0, center + half)
