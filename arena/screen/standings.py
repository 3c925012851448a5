"""The standings as a table of plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arena.league.standings import Row

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
