"""The standings as a table of plain text, and what has to be known of the numbers in it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path

from arena.errors import pluralize
from arena.league.next_round import Champion
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.intervals import of_share
from arena.league.ratings.standings import ENOUGH, Caution, Curtailed, Row
from arena.league.tournament import Doubt
from arena.terminal.text import elo_words

MOST = 12  # lines
_MOST_PAIRS = 3
APART = (
    "both tables have one scale: a player of the first side scores a half against one of the second with the same Elo; "
    "intervals are of distances within a table"
)
_MOST_SINGLE = 6  # players that have met one opponent


def standings_lines(rows: Sequence[Row], *, most: int | None = None, always: Collection[str] = ()) -> list[str]:
    """A line for each player, below the titles of the columns.

    Args:
        rows: the best first.
        most: of so many rows at most, those of `always` apart; None: all.
        always: players that are shown, however weak they are.
    """
    if not rows:
        return []
    if rows[0].population:
        lines = []
        for title, own in itertools.groupby(rows, key=lambda row: row.population):
            lines += [
                f"{title}:",
                *standings_lines([row._replace(population="") for row in own], most=most, always=always),
            ]
        return [*lines, APART]
    shown = _shown(rows, len(rows) if most is None else most, always)
    cells = [("rank", "player", "Elo", "95 % interval", "games", "score", "95 % interval"), *map(_cells, shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    left_out = len(rows) - len(shown)
    return lines + ([f"and {left_out} more"] if left_out else [])


def prior_lines(*, prior: bool) -> list[str]:
    """That the games alone do not say which strengths are most likely; nothing where they do."""
    if not prior:
        return []
    return [
        "the strengths have a weak prior (a deviation of 400 Elo, about as heavy as one game), as some have won or "
        "lost all of their games against the others, or have not met them"
    ]


def equal_lines(equal: Sequence[Doubt]) -> list[str]:
    """The players that are as good as each other, and why; empty if there are none."""
    if not equal:
        return []
    pairs = ", ".join(f"{doubt.upper} and {doubt.lower}" for doubt in equal)
    return [f"as good as each other, as nearly all of their games are drawn, or won by the same side: {pairs}"]


def caution_lines(found: Caution, run_dir: Path | str) -> list[str]:
    """What the ratings of policies that learn mean, and who has met one opponent only; nothing where neither applies.

    Args:
        found: what the table does not tell.
        run_dir: the run folder.
    """
    lines = []
    if found.learners:
        games = "all of its games"
        if found.window is not None:
            games = "its games of the newest " + (f"{found.window} rounds" if found.window > 1 else "round")
        each = "it is rated as one player" if len(found.learners) == 1 else "each is rated as one player"
        verb = "learns" if len(found.learners) == 1 else "learn"
        lines.append(
            f"{', '.join(found.learners)} {verb}: {each} over {games}, though it changes meanwhile; "
            f"`arena tournament {run_dir}` rates checkpoints"
        )
    if found.single:
        pairs = [f"{player} (only {opponent})" for player, opponent in found.single.items()]
        more = [f"and {len(pairs) - _MOST_SINGLE} more"] if len(pairs) > _MOST_SINGLE else []
        named = ", ".join([*pairs[:_MOST_SINGLE], *more])
        lines.append(f"met a single opponent, so the rating rests on that opponent's: {named}")
    return lines


def outdated_lines(players: Sequence[str]) -> list[str]:
    """Who is not in the table, and why; a line for each."""
    return [f"not rated: {player} (all its games are older than the window)" for player in players]


def champion_lines(champions: Sequence[Champion]) -> list[str]:
    """Who has won each knockout, and by what."""
    return [f"{one.player} has won {one.place}, {_by(one)}" for one in champions]


def _by(won: Champion) -> str:
    final = f"{won.points:g} of {pluralize(won.games, 'point')} in the final against {won.against}"
    if won.by == "points":
        return f"with {final}"
    what = "by the higher rating" if won.by == "rating" else "by a coin, as the ratings are the same"
    return f"{what}, after {final}"


def contradiction_lines(found: Sequence[Contradiction]) -> list[str]:
    """The pairs whose own games contradict the order, their circles, and what says more; nothing without such pairs."""
    if not found:
        return []
    pairs = [
        f"{one.lower} scores {one.score:.1%} [{one.low:.1%}, {one.high:.1%}] against {one.upper}, which stands higher"
        for one in found[:_MOST_PAIRS]
    ]
    circles = {frozenset(one.circle): one.circle for one in reversed(found) if one.circle}
    beaten = [" beats ".join([*circle, circle[0]]) for circle in reversed(circles.values())]
    words = [f"the games of some pairs contradict the order: {'; '.join([*pairs, *_left_out(len(found), 'pair')])}"]
    if beaten:
        shown = "; ".join([*beaten[:_MOST_PAIRS], *_left_out(len(beaten), "circle")])
        words.append(f"no order fits players that beat each other in a circle: {shown}")
    return [*words, "see payoffs and Nash averaging in the report, which need no order"]


def unmet_lines(unmet: Sequence[tuple[str, str]], *, pairs: int) -> list[str]:
    """Which pairs have not met; nothing where all have.

    Args:
        unmet: those that have not.
        pairs: how many there are that can meet.
    """
    if not unmet:
        return []
    named = [f"{one} and {other}" for one, other in unmet[:_MOST_PAIRS]]
    return [
        f"{len(unmet)} of {pluralize(pairs, 'pair')} have not met in a game that counts: "
        f"{', '.join([*named, *_left_out(len(unmet), 'pair')])}"
    ]


def _left_out(count: int, what: str) -> list[str]:
    return [f"and {pluralize(count - _MOST_PAIRS, f'more {what}')}"] if count > _MOST_PAIRS else []


def curtailed_lines(found: Curtailed | None) -> list[str]:
    """That short games count too often, how few there are, and what helps; nothing where it is too little to matter."""
    if found is None:
        return []
    return [
        f"short games count too often, and ratings favor who wins them: with {found.player} a lane finishes about "
        f"{found.games:.3g} games before the end of a {found.by} cuts one; set a larger `{found.key}`, for {ENOUGH} or "
        "more"
    ]


def _shown(rows: Sequence[Row], most: int, always: Collection[str]) -> list[Row]:
    wanted = [row.player for row in rows if row.player in always]
    others = [row.player for row in rows if row.player not in always]
    chosen = {*wanted, *others[: max(0, most - len(wanted))]}
    return [row for row in rows if row.player in chosen]


def _cells(row: Row) -> tuple[str, ...]:
    share, ends = "-", "-"
    if row.share is not None:
        low, high = of_share(row.score.points, row.score.games)
        share, ends = f"{row.share:.1%}", f"[{low:.1%}, {high:.1%}]"
    interval = f"[{elo_words(row.low)}, {elo_words(row.high)}]"
    return str(row.rank), row.player, elo_words(row.elo), interval, str(row.score.games), share, ends


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    rank, player, *numbers = cells
    aligned = [rank.rjust(widths[0]), player.ljust(widths[1])]
    return "  ".join([*aligned, *(cell.rjust(width) for cell, width in zip(numbers, widths[2:], strict=True))]).rstrip()
