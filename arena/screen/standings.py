"""The standings as a table of plain text, and what has to be known of the numbers in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arena.league.standings import ENOUGH, Curtailed, Row

MOST = 12  # lines


def standings_lines(rows: Sequence[Row], *, most: int | None = None, always: Collection[str] = ()) -> list[str]:
    """A line for each player, below the titles of the columns.

    Args:
        rows: the best first.
        most: of so many rows at most, those of `always` apart; None: all.
        always: players that are shown, however weak they are.
    """
    if not rows:
        return []
    shown = _shown(rows, len(rows) if most is None else most, always)
    cells = [("rank", "player", "Elo", "95 % interval", "games", "score"), *map(_cells, shown)]
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


def curtailed_lines(found: Curtailed | None) -> list[str]:
    """That short games count too often, how few there are, and what helps; nothing where it is too little to matter."""
    if found is None:
        return []
    return [
        f"short games count too often, and ratings favour who wins them: with {found.player} a lane finishes about "
        f"{found.games:.3g} games before the end of a {found.by} cuts one; set a larger `{found.key}`, for {ENOUGH} or "
        "more"
    ]


def _shown(rows: Sequence[Row], most: int, always: Collection[str]) -> list[Row]:
    wanted = [row.player for row in rows if row.player in always]
    others = [row.player for row in rows if row.player not in always]
    chosen = {*wanted, *others[: max(0, most - len(wanted))]}
    return [row for row in rows if row.player in chosen]


def _cells(row: Row) -> tuple[str, ...]:
    share = "-" if row.share is None else f"{row.share:.1%}"
    interval = f"[{row.low:+.0f}, {row.high:+.0f}]"
    return str(row.rank), row.player, f"{row.elo:+.0f}", interval, str(row.score.games), share


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    rank, player, *numbers = cells
    aligned = [rank.rjust(widths[0]), player.ljust(widths[1])]
    return "  ".join([*aligned, *(cell.rjust(width) for cell, width in zip(numbers, widths[2:], strict=True))]).rstrip()
