"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena.league.ratings.intervals import half_of_mean, of_share
from arena.terminal.gates import claim_words

if TYPE_CHECKING:
    from arena.plan.plan import MatchPlan, Plan
    from arena.records.scoreboard import Score

_NAMED = 2  # of many names
_SHOWN = 6  # pairings of a round


def pluralize(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def elo_words(value: float) -> str:
    """`+23`, `-7`; what is rounded to nothing is `+0`."""
    return f"{round(value):+d}"


def shorten(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 10 more`: what is not to fill a screen."""
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join(names)


def processes_words(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    words = pluralize(processes, "process", "processes")
    return words if processes >= roles else f"{roles} roles on {words}"


def round_words(plan: Plan) -> str:
    """A round of a league: its number, from 0, and who meets whom in it."""
    games = Counter(_pairing(match) for match in plan.matches)
    shown = [f"{who} x{count}" if count > 1 else who for who, count in games.most_common(_SHOWN)]
    more = [f"and {len(games) - _SHOWN} more"] if len(games) > _SHOWN else []
    return f"round {plan.round} of 0 to {plan.rounds - 1}: {', '.join([*shown, *more])}"


def change_words(line: Mapping[str, Any]) -> list[str]:
    """What has become of whom when a round began: its line of `rounds.jsonl`, in a phrase for each kind of change."""
    joined, dropped, resets = (", ".join(line.get(key, ())) for key in ("snapshots", "dropped", "resets"))
    parts = [
        f"{joined} joined" if joined else "",
        f"{dropped} left" if dropped else "",
        f"{resets} began anew" if resets else "",
        *(_fork_words(policy, fork) for policy, fork in line.get("forks", {}).items()),
        *map(_gate_words, line.get("gates", ())),
    ]
    return [part for part in parts if part]


def _fork_words(policy: str, fork: Mapping[str, Any]) -> str:
    options = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in fork.get("options", {}).items()
    )
    return f"{policy} is a copy of {fork['from']}" + (f" with {options}" if options else "")


def _gate_words(gate: Mapping[str, Any]) -> str:
    claim = claim_words(gate["verdict"], policy=gate["policy"], against=gate["against"])
    return f"{claim} ({pluralize(int(gate['games']), 'game')})"


def _pairing(match: MatchPlan) -> str:
    """`a - b`; a policy that plays against itself is named twice, and once among those of its own side."""
    names = [seat.policy for seat in match.seats]
    sides = [" + ".join(dict.fromkeys(names[seat] for seat in side)) for side in match.sides]
    return " - ".join(sides or dict.fromkeys(names))


def result_words(score: Score) -> str:
    """A result with its 95 % intervals."""
    if score.episodes == 0:
        return "no episode"
    words = [pluralize(score.episodes, "episode"), f"return {_mean_words(score)}", f"length {score.lengths.mean:.1f}"]
    if score.games.count:
        low, high = of_share(score.wins, score.games.count)
        words.insert(1, f"won {score.wins / score.games.count:.1%} [{low:.1%}, {high:.1%}]")
    return ", ".join(words)


def _mean_words(score: Score) -> str:
    """The mean and the half of its interval; of one episode there is none."""
    count = score.returns.count
    mean, half = score.returns.total / count, half_of_mean(count, score.returns.deviation)
    return f"{mean:.2f}" if half is None else f"{mean:.2f} +- {half:.2f}"


def repetition_words(alike: Sequence[Sequence[str]], *, remedy: str) -> list[str]:
    """A line on games that were all alike, if there were any.

    Args:
        alike: who has played them, see `arena.records.identical_games`.
        remedy: what makes them play with chance.
    """
    if not alike:
        return []
    who = f"between {' and '.join(alike[0])}" if len(alike[0]) > 1 else f"of {alike[0][0]} alone"
    more = f", and {pluralize(len(alike) - 1, 'more line-up')}," if len(alike) > 1 else ""
    return [
        f"all games {who}{more} were alike, in each order of seats: where nothing is left to chance, more games say no "
        f"more than the first, and the intervals are too narrow; {remedy} plays with chance"
    ]
