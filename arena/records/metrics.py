"""What a run writes down: one line per finished episode, one line per update of a policy.

    environment process --EpisodeRecord--> root --Recorder--> episodes.jsonl, tensorboard/<policy>/
    group root          --UpdateRecord---> root --Recorder--> metrics.jsonl,  tensorboard/<policy>/

The root is the only writer. A line is one JSON object and ends with a newline; JSON has no NaN and no infinity, so a
number that is not finite is written as null. A line is complete only with its newline: a killed run may leave a part
of a line at the end, which readers count and skip, and which is cut off before anything is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, TypeAlias

import msgspec

from arena.records.outcome import Outcome

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Ticks = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]  # as many as the command line takes


# `gc=False`: records come in hundreds of thousands and hold no cycles; Python need not look for garbage among them.
class SeatRecord(msgspec.Struct, frozen=True, gc=False):
    """How one seat fared in one episode."""

    policy: str  # of its worker
    entities: tuple[int | str, ...]  # that it controlled, by index or by name
    return_: float | None = msgspec.field(name="return")
    """The mean over these entities of their sum of rewards, not discounted; None if none of them took part in the
    episode, or the sum is not finite."""
    outcome: Outcome | None  # None where the game has no winner
    idle_ticks: int = 0  # in which the arena played the no-op because the worker had left or was waiting
    metrics: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    """What the game has reported of these entities, the mean of each."""
    checkpoint: Ticks | msgspec.UnsetType = msgspec.UNSET
    """The tick of the weights at the end of the game; of games of `arena serve` alone."""


class EpisodeRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One finished episode of one lane of a match: a message to the root, and a line of `episodes.jsonl`."""

    round: Count  # of the league, from 0
    match: Count  # its number in the plan
    env: str  # the name of the environment in the configuration
    lane: Count  # of the match
    episode: Ticks  # how many episodes this lane had finished before, also before the run was resumed
    tick: Ticks  # the match's tick that ended the episode, from 1
    length: Ticks  # ticks from the first to the last of the episode
    terminated: bool  # whether the rules of the game ended it, for at least one entity
    truncated: bool  # whether it was cut from outside, for at least one entity
    seats: tuple[SeatRecord, ...]  # one item per seat of the match, in the plan's order
    cut: bool = False
    """Whether only the end of a leg ended it: it has no outcome, and statistics do not count it as a result."""
    ranked: bool = False  # whether a game of more than two sides ranks them all by their returns
    contradicts: bool = False  # whether the stated outcomes of its two sides do not fit: they count in no result
    game: str | None = None  # the name that an external game has outside of the arena
    lost: bool | str = False
    """Why an external game ended without reporting it, see `docs/external-games.md`; such a game is `cut` too. True in
    folders of earlier versions, which do not say why."""
    began: int | msgspec.UnsetType = msgspec.UNSET
    """A checksum of the first observations; of games of evaluations and tournaments alone."""


Place: TypeAlias = tuple[int, int, int]
"""Of an episode in the order of all: its tick, match and lane."""
EpisodeKey: TypeAlias = tuple[int, int, int, int]
"""The same, and the episode's number."""
place_of: Callable[[EpisodeRecord], Place] = attrgetter("tick", "match", "lane")
key_of: Callable[[EpisodeRecord], EpisodeKey] = attrgetter("tick", "match", "lane", "episode")


UPDATE_FIELDS = ("policy", "update", "ticks", "samples", "seconds")


@dataclass(frozen=True)
class UpdateRecord:
    """What a policy has logged: of one update of its weights, or of all gradient steps since the last time.

    Raises:
        ValueError: a logged value has the name of one of the other fields, which are beside it in the file.
    """

    policy: str
    update: int  # how often it has logged, including this time; a resumed run counts on from its checkpoint
    ticks: int  # that each of its matches had played
    samples: int
    """`ticks` times the rows (lanes x entities) of all workers of the policy: what its matches have given it so far, if
    it uses every tick. A resumed run counts the rows that it has now."""
    seconds: float
    """Wall time since the policy's worker began. A resumed run goes on from the last line that it kept, so the time
    between the two is not counted."""
    values: Mapping[str, float]  # what the algorithm logged

    def __post_init__(self) -> None:
        taken = sorted(set(self.values) & set(UPDATE_FIELDS))
        if taken:
            raise ValueError(f"policy {self.policy!r} logs {', '.join(taken)}: taken names are {UPDATE_FIELDS}")
