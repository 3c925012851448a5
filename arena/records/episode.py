"""An episode as one JSON object of `episodes.jsonl`: from the record, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from arena.records.metrics import EpisodeRecord, EpisodeRow, SeatRecord
from arena.records.outcome import Ending, Outcome

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Ticks = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]  # as many as the command line takes


# `gc=False`: lines are encoded and gone at once, and hold no cycles; Python need not look for garbage among them.
class SeatLine(msgspec.Struct, gc=False):
    """A `SeatRecord`; `return` is a word of Python's."""

    policy: str
    entities: tuple[int | str, ...]
    return_: float = msgspec.field(name="return")
    outcome: Outcome | None
    idle_ticks: int


class EpisodeLine(msgspec.Struct, gc=False):
    """An `EpisodeRecord`; the keys stand in the file in this order, which is that of the record's items."""

    round: int
    match: int
    env: str
    lane: int
    episode: int
    tick: int
    length: int
    terminated: bool
    truncated: bool
    seats: list[SeatLine]
    cut: bool | msgspec.UnsetType = msgspec.UNSET  # written where it is true
    settled: bool | msgspec.UnsetType = msgspec.UNSET  # likewise


class PlayedSeat(msgspec.Struct, gc=False):
    """A `SeatLine` as it is read; a return that was not finite is null."""

    policy: str
    entities: tuple[int | str, ...]
    return_: float | None = msgspec.field(name="return")
    outcome: Outcome | None


class PlayedEpisode(msgspec.Struct, gc=False):
    """An `EpisodeLine` as it is read."""

    round: _Count
    match: _Count
    env: str
    lane: _Count
    episode: _Ticks
    tick: _Ticks
    length: _Ticks
    terminated: bool
    truncated: bool
    seats: tuple[PlayedSeat, ...]
    cut: bool = False
    settled: bool = False

    @property
    def ending(self) -> Ending:
        """What decides whether its outcomes hold."""
        return Ending(
            self.env,
            (self.round, self.match, self.lane, self.episode),
            tuple(seat.outcome for seat in self.seats),
            tuple(math.nan if seat.return_ is None else seat.return_ for seat in self.seats),
            tuple(len(seat.entities) for seat in self.seats),
            self.settled,
            self.cut,
        )


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
    """Those of recorded episodes that may show that their game is not zero-sum, which few do."""
    return (ending_of(row) for row in rows if not row[11] and row[9] and row[9][0][3] is None)


def without_winner(row: EpisodeRow) -> EpisodeRow:
    """The same episode without outcomes."""
    seats = tuple((policy, entities, gain, None, idle) for policy, entities, gain, _, idle in row[9])
    return (*row[:9], seats, *row[10:])


def episode_line(row: EpisodeRow) -> EpisodeLine:
    """The JSON object of an episode; a return that is not finite will be null."""
    return EpisodeLine(*row[:9], [SeatLine(*seat) for seat in row[9]], *(flag or msgspec.UNSET for flag in row[10:]))


def episode_of(line: Mapping[str, Any]) -> EpisodeRecord:
    """The record that a line of `episodes.jsonl` was written from; a null return is NaN again."""
    seats = tuple(
        SeatRecord(
            policy=seat["policy"],
            entities=tuple(seat["entities"]),
            return_=math.nan if seat["return"] is None else seat["return"],
            outcome=seat["outcome"],
            idle_ticks=seat.get("idle_ticks", 0),
        )
        for seat in line["seats"]
    )
    known = {name: line[name] for name in EpisodeRecord._fields if name not in ("seats", "cut", "settled")}
    return EpisodeRecord(**known, seats=seats, cut=line.get("cut", False), settled=line.get("settled", False))
