"""What the report reads of a run folder: every file checked, and counted with its lines.

The journals of a run that goes on are read as they were at one moment, so that all parts of the page are made from the
same lines.

A run that is under way or was killed leaves an incomplete last line in its journals, which is counted and skipped.
Anything else that does not fit is a `ConfigError` which names the file and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from arena.config import load_config
from arena.config.schema import Config
from arena.errors import ConfigError, located
from arena.records import boundary as boundaries
from arena.records.faults import fault_of
from arena.records.folder import RunFolder
from arena.records.formats import Boundary, EvaluationLine, PlanFile, ProfileFile, Round, Terms, round_of, update_of
from arena.records.journal import JournalReader
from arena.records.lock import is_locked
from arena.records.metrics import EpisodeRecord, UpdateRecord
from arena.report.episodes import EpisodeTable, tabulate

_OTHER_VERSION = "the run folder is damaged, or of another version of the arena"

T = TypeVar("T")


class Source(NamedTuple):
    """A file that the report was made from."""

    name: str  # below the run folder
    bytes: int  # its size when it was read
    lines: int | None = None  # whole lines of a journal; None for other files
    unfinished: int = 0  # incomplete last lines, which were skipped: 0 or 1


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
        journals = (folder.episodes, folder.metrics, folder.results, folder.evaluations, folder.faults, folder.rounds)
        found = {path: path.stat() for path in journals if path.is_file()}
        played = [found[path].st_mtime for path in (folder.episodes, folder.metrics) if path in found]
        return cls(at, going, {path: stat.st_size for path, stat in found.items()}, max(played, default=0.0))

    def journal(self, path: Path) -> JournalReader:
        """Reads what a journal held then."""
        return JournalReader(path, stop=self.sizes.get(path, 0))


class RewardLine(msgspec.Struct, frozen=True):
    """What the report takes of a result."""

    ticks: int
    episode_reward_mean: float | None
    policy_reward_mean: dict[str, float | None]


@dataclass(frozen=True)
class RunFiles:
    """All that the report knows of a run."""

    folder: RunFolder
    config: Config  # resolved
    config_text: str
    plan: PlanFile
    episodes: EpisodeTable
    updates: tuple[UpdateRecord, ...]
    results: tuple[RewardLine, ...]
    evaluations: tuple[EvaluationLine, ...]
    rounds: tuple[Round, ...]
    faults: tuple[Mapping[str, Any], ...]  # the lines of `faults.jsonl` as they are
    profile: ProfileFile | None
    terms: Terms | None  # of a tournament; None: it is none, or an older arena has played its first batch alone
    boundary: int | None  # the newest tick from which the run can go on; None without one
    sources: tuple[Source, ...]  # in the order of the reading
    journals: JournalView  # as they were when the reading began


def read_run(path: Path | str, *, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> RunFiles:
    """Reads a run folder.

    Raises:
        ConfigError: it is none, or something in it is damaged or of another version; says which file, and where.
    """
    folder = RunFolder.existing(path)
    with located(who=_OTHER_VERSION):
        config = load_config(folder.config)
    going = is_locked(folder.path)  # first: what is read of a run that does not go on is its end
    # Before the journals, which then hold everything up to the boundary.
    boundary, last = boundaries.newest_tick(folder), boundaries.last(folder)
    journals = JournalView.of(folder, now(), going=going)
    reader = _Reader(folder.path, journals)
    text, plan = reader.text(folder.config), reader.document(folder.plan, PlanFile)
    with located(source=str(folder.episodes)):
        episodes = tabulate(reader.lines(folder.episodes, EpisodeRecord))
    found = RunFiles(
        folder=folder,
        config=config,
        config_text=text,
        plan=plan,
        episodes=episodes,
        updates=tuple(reader.made(folder.metrics, update_of)),
        results=tuple(reader.lines(folder.results, RewardLine)),
        evaluations=tuple(reader.lines(folder.evaluations, EvaluationLine)),
        rounds=tuple(reader.made(folder.rounds, round_of)),
        faults=tuple(reader.made(folder.faults, fault_of)),
        profile=reader.document(folder.profile, ProfileFile) if folder.profile.is_file() else None,
        terms=reader.document(folder.tournament, Terms) if folder.tournament.is_file() else None,
        boundary=boundary,
        sources=tuple(reader.sources),
        journals=journals,
    )
    _check(found, last)
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
        (folder.metrics, {line.policy for line in files.updates}),
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
    if files.config.rounds > 1 and len(files.episodes.round) and played not in known:
        refuse(folder.rounds, f"it lacks round {played}, of which there are episodes")


class _Reader:
    """Reads the files of one folder, journals as they were at one moment, and remembers which."""

    def __init__(self, home: Path, journals: JournalView) -> None:
        self._home, self._journals = home, journals
        self.sources: list[Source] = []

    def text(self, path: Path) -> str:
        """A whole file; a missing one is an error."""
        try:
            content = path.read_bytes()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{_OTHER_VERSION}: cannot be read: {error}", source=str(path)) from error
        self.sources.append(Source(self._name(path), len(content)))
        return text

    def document(self, path: Path, kind: type[T]) -> T:
        """A JSON file of this form."""
        try:
            return msgspec.json.decode(self.text(path), type=kind)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{_OTHER_VERSION}: {error}", source=str(path)) from error

    def journal(self, path: Path, read: Callable[[JournalReader], Iterator[T]]) -> Iterator[T]:
        """The whole lines of a journal; none where there is no file."""
        if path not in self._journals.sizes:
            return
        journal, number = self._journals.journal(path), 0
        for line in read(journal):
            number += 1
            yield line
        self.sources.append(Source(self._name(path), self._journals.sizes[path], number, journal.unfinished))

    def lines(self, path: Path, kind: type[T]) -> Iterator[T]:
        """The whole lines of a journal, each of this form."""
        return self.journal(path, lambda journal: journal.lines(kind))

    def made(self, path: Path, make: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        """The whole lines of a journal, each converted by `make`."""
        return self.journal(path, lambda journal: journal.made(make))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home).as_posix()
