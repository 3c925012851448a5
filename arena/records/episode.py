"""An episode as a line of `episodes.jsonl`: from the record, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from arena.records.formats import EpisodeLine, SeatLine
from arena.records.metrics import EpisodeRecord, EpisodeRow, SeatRecord, SeatRow
from arena.records.outcome import Ending


def ending_of(row: EpisodeRow) -> Ending:
    """What decides whether the outcomes of a recorded episode hold."""
    round_, match, env, lane, number = row[:5]
    seats = row[9]
    return Ending(
        env,
        (round_, match, lane, number),
        tuple(seat[3] for seat in seats),
        tuple(seat[2] for seat in seats),
        tuple(len(seat[1]) for seat in seats),
        row[11],
        row[10],
    )


def unsettled(rows: Iterable[EpisodeRow]) -> Iterator[Ending]:
    """The recorded episodes, usually few, that may show that their game is not zero-sum."""
    return (ending_of(row) for row in rows if not row[11] and row[9] and row[9][0][3] is None)


def without_winner(row: EpisodeRow) -> EpisodeRow:
    """The same episode without outcomes."""
    seats = tuple((*seat[:3], None, *seat[4:]) for seat in row[9])
    return (*row[:9], seats, *row[10:])


def episode_line(row: EpisodeRow) -> EpisodeLine:
    """The line of `episodes.jsonl` for an episode."""
    return EpisodeLine(*row[:9], tuple(_seat_line(seat) for seat in row[9]), *row[10:])


def _seat_line(seat: SeatRow) -> SeatLine:
    return SeatLine(*seat[:5]) if seat[5] is None else SeatLine(*seat[:5], dict(seat[5]))


def episode_of(line: EpisodeLine) -> EpisodeRecord:
    """The record that a line was written from; a null return is NaN again."""
    seats = tuple(
        SeatRecord(
            policy=seat.policy,
            entities=seat.entities,
            return_=math.nan if seat.return_ is None else seat.return_,
            outcome=seat.outcome,
            idle_ticks=seat.idle_ticks,
            metrics=seat.metrics if isinstance(seat.metrics, dict) else None,
        )
        for seat in line.seats
    )
    return EpisodeRecord(**{**msgspec.structs.asdict(line), "seats": seats})
