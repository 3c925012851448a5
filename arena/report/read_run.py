"""What the report reads of a run folder: every file checked, and counted with its lines.

The journals of a run that goes on are read as they were at one moment, so that all parts of the page are made from the
same lines.

A run that is under way or was killed leaves an incomplete last line in its journals, which is counted and skipped.
Anything else that does not fit is a `ConfigError` which names the file and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from arena.config import load_config
from arena.config.schema import Config
from arena.errors import ConfigError, located
from arena.league.read_results import GameReader
from arena.records import boundary as boundaries
from arena.records.faults import fault_of
from arena.records.folder import RunFolder
from arena.records.formats import (
    Boundary,
    ChangeLine,
    EvaluationLine,
    ExploitabilityFile,
    PlanFile,
    ProfileFile,
    ResumeLine,
    Round,
    Terms,
    read_document,
    round_of,
    update_of,
)
from arena.records.journal import FollowedJournal, JournalReader, file_stamp
from arena.records.lock import is_locked
from arena.records.metrics import EpisodeRecord
from arena.report.episodes import EpisodeRows, EpisodeTable, UpdateRows
from arena.report.recorded import SideGames, SideReader

_OTHER_VERSION = "the run folder is damaged, or of another version of the arena"

T = TypeVar("T")


class JournalView(NamedTuple):
    """The journals of a run as they were at one moment, however they grow."""

    at: datetime  # when that was
    going: bool  # whether a process wrote there then
    sizes: Mapping[Path, int]  # the bytes then of each journal that existed
    written: float  # when one of them was written last, seconds since 1970; 0 where there were none

    @classmethod
    def of(cls, folder: RunFolder, at: datetime, *, going: bool) -> JournalView:
        """The journals as they are now."""
        # episodes before the rounds: a round is written down before it is played
        journals = [folder.episodes, folder.metrics, folder.results, folder.evaluations, folder.changes, folder.faults]
        journals += [folder.rounds, folder.human_games, folder.resumes]
        found = {path: path.stat() for path in journals if path.is_file()}
        played = [found[path].st_mtime for path in (folder.episodes, folder.metrics) if path in found]
        return cls(at, going, {path: stat.st_size for path, stat in found.items()}, max(played, default=0.0))

    def journal(self, path: Path) -> JournalReader:
        """Reads what a journal held then."""
        return JournalReader(path, stop=self.sizes.get(path, 0))


class RewardLine(msgspec.Struct, frozen=True):
    """What the report takes of a result."""

    ticks: int
    episode_reward_mean: float | None = None
    policy_reward_mean: dict[str, float | None] = {}
    time_total_s: float | None = None  # of running, up to this result
    custom_metrics: dict[str, float | None] = {}
    policy_custom_metrics: dict[str, dict[str, float | None]] = {}


@dataclass(frozen=True)
class RunFiles:
    """All that the report knows of a run."""

    folder: RunFolder
    config: Config  # resolved
    config_text: str
    plan: PlanFile
    episodes: EpisodeTable
    games: GameReader  # has taken the same episodes
    updates: UpdateRows
    results: Sequence[RewardLine]
    evaluations: Sequence[EvaluationLine]
    rounds: Sequence[Round]
    exploitability: ExploitabilityFile | None  # of a league's mean strategies
    changes: Sequence[ChangeLine]  # by a curriculum or a program
    resumes: Sequence[ResumeLine]  # what resumes have changed
    faults: Sequence[Mapping[str, Any]]  # the lines of `faults.jsonl` as they are
    profile: ProfileFile | None
    terms: Terms | None  # of a tournament; None: it is none, or an older arena has played its first batch alone
    boundary: int | None  # the newest tick from which the run can go on; None without one
    unfinished: int  # incomplete last lines of journals, which were skipped
    journals: JournalView  # as they were when the reading began
    side_games: SideGames
    replays: set[tuple[int, int]]  # round and match of those that are known to have replays; `recorded` adds to it

    @property
    def rated_until(self) -> int | None:
        """The newest round whose games are rated, of a tournament; None: all are."""
        return None if self.terms is None else sum(line.start < (self.boundary or 0) for line in self.rounds) - 1


def read_run(path: Path | str, *, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> RunFiles:
    """Reads a run folder.

    Raises:
        ConfigError: it is none, or something in it is damaged or of another version; says which file, and where.
    """
    return RunReader(path, checks=True).look(now=now)


class RunReader:
    """Reads a run folder, and then again what has been written since.

    Args:
        checks: whether episodes that are there twice are refused, which takes more memory.

    Attributes:
        share: of the episodes that is read, from 0 to 1.
        lock: who has it may use what was found; the next look adds to it.

    Raises:
        ConfigError: as `read_run`.
    """

    def __init__(self, path: Path | str, *, checks: bool = False) -> None:
        self.folder, self._checks, self.lock = RunFolder.existing(path), checks, RLock()
        self._damaged = False  # whether all has to be read again
        self._begin()

    def _begin(self) -> None:
        self._stamp = file_stamp(self.folder.config)  # before it is read: what is written from now on is new
        with located(who=_OTHER_VERSION):
            self._config = load_config(self.folder.config)
        self._tails: dict[Path, FollowedJournal] = {}
        self._rows, self._updates = EpisodeRows(checks=self._checks), UpdateRows()
        self._games = GameReader(self.folder, self._config, people=True)
        self._lines: dict[Path, list[Any]] = {}
        self._replays: set[tuple[int, int]] = set()
        self._side_games = SideReader(self.folder)
        self.share = 0.0

    @property
    def episodes(self) -> int:
        """How many were read."""
        return self._rows.size

    def look(
        self, *, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc), most: int | None = None
    ) -> RunFiles:
        """What the run has written so far; of episodes, at most so many bytes more than at the last look.

        Raises:
            ConfigError: as `read_run`.
        """
        folder, curve = self.folder, self.folder.exploitability
        going = is_locked(folder.path)  # first: what is read of a run that does not go on is its end
        # Before the journals, which then hold everything up to the boundary.
        boundary, last = boundaries.newest_tick(folder), boundaries.last(folder)
        journals = JournalView.of(folder, now(), going=going)
        cut = any(journals.sizes.get(path, 0) < tail.position for path, tail in self._tails.items())
        again, self._damaged = cut or self._damaged or file_stamp(folder.config) != self._stamp, True  # it was resumed
        if again:
            self._begin()
        text = folder.config.read_text("utf-8")

        def fresh(path: Path, read: Callable[[JournalReader], Iterator[T]], stop: int | None = None) -> Iterator[T]:
            if path in journals.sizes:
                yield from self._tails.setdefault(path, FollowedJournal(path)).fresh(read, stop or journals.sizes[path])

        def known(path: Path, read: Callable[[JournalReader], Iterator[T]]) -> list[T]:
            found = self._lines.setdefault(path, [])
            found.extend(fresh(path, read))
            return found

        size = journals.sizes.get(folder.episodes, 0)
        before = self._tails[folder.episodes].position if folder.episodes in self._tails else 0
        stop = size if most is None else min(size, before + most)
        with located(source=str(folder.episodes)):
            for some, sizes in fresh(folder.episodes, lambda journal: journal.batches(EpisodeRecord), stop):
                self._games.read_also(some, self._rows.take(some, np.array(sizes)))
            table = self._rows.table()
        self.share = 1.0 if stop == size else self._tails[folder.episodes].position / size
        self._updates.take(fresh(folder.metrics, lambda journal: journal.made(update_of)))
        found = RunFiles(
            folder=folder,
            config=self._config,
            config_text=text,
            plan=read_document(folder.plan, PlanFile),
            episodes=table,
            games=self._games,
            updates=self._updates,
            results=known(folder.results, lambda journal: journal.lines(RewardLine)),
            evaluations=known(folder.evaluations, lambda journal: journal.lines(EvaluationLine)),
            rounds=known(folder.rounds, lambda journal: journal.made(round_of)),
            exploitability=read_document(curve, ExploitabilityFile) if curve.is_file() else None,
            changes=known(folder.changes, lambda journal: journal.lines(ChangeLine)),
            resumes=known(folder.resumes, lambda journal: journal.lines(ResumeLine)),
            faults=known(folder.faults, lambda journal: journal.made(fault_of)),
            profile=read_document(folder.profile, ProfileFile) if folder.profile.is_file() else None,
            terms=read_document(folder.tournament, Terms) if folder.tournament.is_file() else None,
            boundary=boundary,
            # a line at which the reading rests is whole
            unfinished=sum(tail.unfinished for tail in self._tails.values()) if self.share == 1 else 0,
            journals=journals,
            side_games=self._side_games.look() if self.share == 1 else SideGames([], 0),
            replays=self._replays,
        )
        _check(found, last)
        self._damaged = False
        return found


def _check(files: RunFiles, last: Boundary | None) -> None:
    """Refuses players that are neither policies nor their snapshots, and journals that lack what they had."""

    def refuse(path: Path, why: str, place: str = "") -> None:
        raise ConfigError(f"{_OTHER_VERSION}: {why}", path=place, source=str(path))

    folder, policies, sizes = files.folder, files.config.policies.keys(), files.journals.sizes
    for line in files.rounds:
        named = {name.partition("@")[0] for name in line.snapshots}
        named |= {*line.resets, *line.forks, *(fork.source for fork in line.forks.values())}
        named |= {gate.policy for gate in line.gates}
        if strangers := sorted(named - policies):
            refuse(folder.rounds, f"{strangers[0]!r} is none of the policies of config.yaml", f"round {line.number}")
    for path, names in (
        (folder.episodes, {*files.episodes.policies}),
        (folder.metrics, {*files.updates.newest}),
        (folder.evaluations, {line.policy for line in files.evaluations}),
    ):
        if strangers := sorted(name for name in names - policies if name.partition("@")[0] not in policies):
            refuse(path, f"{strangers[0]!r} is none of the policies of config.yaml")
    if files.boundary and folder.episodes not in sizes:
        refuse(folder.episodes, f"it is missing, though the run has played {files.boundary} ticks")
    for path in (folder.episodes, folder.metrics):
        if last is not None and (size := sizes.get(path, 0)) < (before := last.journals.get(path.name, 0)):
            refuse(path, f"it has {size} bytes, at tick {last.tick} it had {before}")
    known = [line.number for line in files.rounds]
    if known != list(range(len(known))):
        refuse(folder.rounds, "the rounds are not numbered one after the other")
    played = int(files.episodes.round.max(initial=0))
    if files.config.round_count > 1 and len(files.episodes.round) and played not in known:
        refuse(folder.rounds, f"it lacks round {played}, of which there are episodes")
