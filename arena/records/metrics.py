"""What a run writes down: one line per finished episode, one line per update of a policy.

    environment process --EpisodeRow-----> root --Recorder--> episodes.jsonl, tensorboard/<policy>/
    group root          --UpdateRecord---> root --Recorder--> metrics.jsonl,  tensorboard/<policy>/

The root is the only writer. A line is one JSON object and ends with a newline; JSON has no NaN and no infinity, so a
number that is not finite is written as null. A line is complete only with its newline: a killed run may leave a part
of a line at the end, which readers count and skip, and which is cut off before anything is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from arena.records.outcome import Outcome


class SeatRecord(NamedTuple):
    """How one seat fared in one episode.

    Args:
        policy: the policy of its worker.
        entities: the entities that it controlled, by index or by name.
        return_: the mean over these entities of their sum of rewards, not discounted ("return" in the file); NaN if
            none of them took part in the episode.
        outcome: `win`, `loss`, `draw`, or None where the game has no winner.
        idle_ticks: ticks in which the arena played the no-op because the worker had left or was waiting.
        metrics: what the game has reported of these entities, the mean of each; None: nothing.
    """

    policy: str
    entities: tuple[int | str, ...]
    return_: float
    outcome: Outcome | None = None
    idle_ticks: int = 0
    metrics: Mapping[str, float] | None = None


class EpisodeRecord(NamedTuple):
    """One finished episode of one lane of a match.

    Args:
        round: the round of the league, from 0.
        match: the number of the match in the plan.
        env: the name of the environment in the configuration.
        lane: which lane of the match.
        episode: how many episodes this lane had finished before, also before the run was resumed.
        tick: the match's tick that ended the episode, from 1.
        length: ticks from the first to the last of the episode.
        terminated: whether the rules of the game ended it, for at least one entity.
        truncated: whether it was cut from outside, for at least one entity.
        seats: one item per seat of the match, in the plan's order.
        cut: whether only the end of a leg ended it: it has no outcome, and statistics do not count it as a result.
        settled: whether its outcomes hold even if other episodes show that the game is not zero-sum: see `outcome`.
        game: the name that an external game has outside of the arena.
        lost: whether an external game ended without reporting it; such a game is `cut` too.
    """

    round: int
    match: int
    env: str
    lane: int
    episode: int
    tick: int
    length: int
    terminated: bool
    truncated: bool
    seats: tuple[SeatRecord, ...]
    cut: bool = False
    settled: bool = False
    game: str | None = None
    lost: bool = False


SeatRow = tuple[str, tuple[int | str, ...], float, Outcome | None, int, Mapping[str, float] | None]
"""A `SeatRecord`, or the plain tuple of its items."""

EpisodeRow = tuple[int, int, str, int, int, int, int, bool, bool, tuple[SeatRow, ...], bool, bool, str | None, bool]
"""An `EpisodeRecord`, or the plain tuple of its items, which the root reads: thousands may come in a second."""


UPDATE_FIELDS = ("policy", "update", "ticks", "samples", "seconds")


def column(name: str) -> Callable[[EpisodeRow], Any]:
    """Reads one field of an episode, be it a record or a plain row."""
    return itemgetter(EpisodeRecord._fields.index(name))


@dataclass(frozen=True)
class UpdateRecord:
    """What a policy has logged: of one update of its weights, or of all gradient steps since the last time.

    Args:
        policy: which policy.
        update: how often it has logged, including this time; a resumed run counts on from its checkpoint.
        ticks: the ticks that each of its matches had played.
        samples: `ticks` times the rows (lanes x entities) of all workers of the policy: what its matches have given
            it so far, if it uses every tick. A resumed run counts the rows that it has now.
        seconds: wall time since the policy's worker began. A resumed run goes on from the last line that it kept, so
            the time between the two is not counted.
        values: what the algorithm logged.

    Raises:
        ValueError: a logged value has the name of one of the other fields, which stand beside it in the file.
    """

    policy: str
    update: int
    ticks: int
    samples: int
    seconds: float
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        taken = sorted(set(self.values) & set(UPDATE_FIELDS))
        if taken:
            raise ValueError(f"policy {self.policy!r} logs {', '.join(taken)}: taken names are {UPDATE_FIELDS}")


def plain(record: EpisodeRow) -> EpisodeRow:
    """The same record without its names: plain tuples are pickled and read again several times as fast."""
    return (*record[:9], tuple(map(tuple, record[9])), *record[10:])  # type: ignore[arg-type]  # tuple() forgets the items' types
