"""The rounds of a league: snapshots taken and dropped, forks, resets, and the verdicts of the gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from arena.league.round_text import gate_text
from arena.records.formats import GateRecord, Round


class Snapshot(msgspec.Struct, frozen=True):
    """A frozen copy of a policy; `dropped` is the tick at which it left, None while it may play."""

    name: str
    policy: str
    tick: int
    dropped: int | None
    matches: int


class Fork(msgspec.Struct, frozen=True):
    """A policy went on from another one's weights."""

    tick: int
    policy: str
    source: str
    options: dict[str, Any]


class Reset(msgspec.Struct, frozen=True):
    """A policy started over."""

    tick: int
    policy: str


class Gate(GateRecord, frozen=True, kw_only=True):
    """What the sequential test said when a policy was to be snapshotted."""

    tick: int
    text: str  # the verdict in words


class Meeting(msgspec.Struct, frozen=True):
    """Matches of one round with the same players on the same sides: `a - b`."""

    sides: list[list[str]]
    matches: int


class Lineage(msgspec.Struct, frozen=True):
    """The contents of `rounds.jsonl`."""

    rounds: list[dict[str, int]]
    meetings: list[list[Meeting]]
    snapshots: list[Snapshot]
    forks: list[Fork]
    resets: list[Reset]
    gates: list[Gate]

    @property
    def eventful(self) -> bool:
        """Whether anything has happened beside games."""
        return bool(self.snapshots or self.forks or self.resets or self.gates)

    @property
    def columns(self) -> list[str]:
        """The columns of the table: number, start and matches, and counts that are above 0 in some round."""
        always = ("number", "start", "matches")
        names = self.rounds[0] if self.rounds else ()
        return [name for name in names if name in always or any(row[name] for row in self.rounds)]


def lineage(rounds: Sequence[Round]) -> Lineage:
    """The events of all rounds, in their order."""
    left = {name: line.start for line in rounds for name in line.dropped}
    played: dict[str, int] = {}
    for line in rounds:
        for match in line.planned:
            for name in set(match.players):
                played[name] = played.get(name, 0) + 1
    found = []
    for line in rounds:
        for name in line.snapshots:
            policy, _, tick = name.partition("@")
            found.append(
                Snapshot(name, policy, int(tick) if tick.isdigit() else line.start, left.get(name), played.get(name, 0))
            )
    meetings = []  # of each round, the most frequent first
    for line in rounds:
        met: Counter[tuple[tuple[str, ...], ...]] = Counter()
        for match in line.planned:
            sides = match.sides or tuple((seat,) for seat in range(len(match.players)))
            met[tuple(tuple(dict.fromkeys(match.players[seat] for seat in side)) for side in sides)] += 1
        meetings.append([Meeting([list(side) for side in sides], count) for sides, count in met.most_common()])
    return Lineage(
        rounds=[
            {
                "number": line.number,
                "start": line.start,
                "matches": len(line.planned),
                "snapshots": len(line.snapshots),
                "dropped": len(line.dropped),
                "forks": len(line.forks),
                "resets": len(line.resets),
                "frozen": len(line.players),
            }
            for line in rounds
        ],
        meetings=meetings,
        snapshots=found,
        forks=[
            Fork(line.start, policy, fork.source, fork.options)
            for line in rounds
            for policy, fork in line.forks.items()
        ],
        resets=[Reset(line.start, policy) for line in rounds for policy in line.resets],
        gates=[
            Gate(tick=line.start, text=gate_text(gate.verdict), **msgspec.structs.asdict(gate))
            for line in rounds
            for gate in line.gates
        ],
    )
