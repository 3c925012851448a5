"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from arena.intervals import half_of_mean, of_share

if TYPE_CHECKING:
    from arena.plan import MatchPlan, Plan
    from arena.records.scoreboard import Score

_SHOWN = 6  # pairings of a round


def counted(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def processes_words(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    words = counted(processes, "process", "processes")
    return words if processes >= roles else f"{roles} roles on {words}"


def round_words(plan: Plan) -> str:
    """A round of a league: its number, from 0, and who meets whom in it."""
    games = Counter(_pairing(match) for match in plan.matches)
    shown = [f"{who} x{count}" if count > 1 else who for who, count in games.most_common(_SHOWN)]
    more = [f"and {len(games) - _SHOWN} more"] if len(games) > _SHOWN else []
    return f"round {plan.round} of 0 to {plan.rounds - 1}: {', '.join([*shown, *more])}"


def _pairing(match: MatchPlan) -> str:
    """`a - b`; a policy that plays against itself is named twice, and once among those of its own side."""
    names = [seat.policy for seat in match.seats]
    sides = [" + ".join(dict.fromkeys(names[seat] for seat in side)) for side in match.sides]
    return " - ".join(sides or dict.fromkeys(names))


def result_words(score: Score) -> str:
    """A result with its 95 % intervals."""
    if score.episodes == 0:
        return "no episode"
    words = [counted(score.episodes, "episode"), f"return {_mean_words(score)}", f"length {score.lengths.mean:.1f}"]
    if score.games.count:
        low, high = of_share(score.wins, score.games.count)
        words.insert(1, f"won {score.wins / score.games.count:.1%} [{low:.1%}, {high:.1%}]")
    return ", ".join(words)


def _mean_words(score: Score) -> str:
    """The mean and the half of its interval; of one episode there is none."""
    count = score.returns.count
    mean, half = score.returns.total / count, half_of_mean(count, score.returns.deviation)
    return f"{mean:.2f}" if half is None else f"{mean:.2f} +- {half:.2f}"
