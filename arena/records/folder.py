"""The folder of a run: its files, and which role writes them.

runs/<name>/
├── config.yaml  plan.json          written once by the root, when all roles are ready
├── profile.json                    where the time went, with `--profile`
├── episodes.jsonl  metrics.jsonl   the root's recorder
├── result.json  progress.csv       the root: a line of numbers per iteration; the same as a table
├── changes.jsonl                   the root: what a curriculum has changed
├── resumes.jsonl                   the root: what a resume has changed, if anything
├── best.json                       the root: which boundary had the best result, with `best`
├── measures.jsonl                  the root: what callbacks have measured, if anything
├── evaluations.jsonl  evaluations/ the root: the results of evaluations, and their games
├── human_games.jsonl              `arena play --rated`, `arena board`: games of people that count for the ratings
├── tournament.json                 the root, of a tournament: how it is played
├── exploitability.json             `arena exploit --exact`: of a league's mean strategies, round by round
├── rounds.jsonl  snapshots/        the root, of a league: its rounds, and its policies at the end of some rounds
├── samples/match-0000/ ...         each environment its own: what was played, with `record: samples`
├── replays/round-0000/match-0000/  each environment its own: what plays it again, with `record: replays`
├── external.json  games.jsonl      the root: where external games connect, and counts of them
├── faults.jsonl                    the root: faults that the run has survived, if any
├── tensorboard/<policy>/           the root's recorder; `_results/`: the logger `tensorboard`
├── checkpoints/<policy>/           one worker of that policy, usually the root of its group
├── loaded/<policy>/                the root: copies of the checkpoints that `load` has named
├── boundaries/                     the root: from where the run can be resumed
├── checksums/                      the root: sizes and CRC-32 of the files beside, to find damage, see `checksums`
├── models/<policy>/<tick>/         `arena export`: a network for other runtimes, and how it was verified
├── logs/rank-0000.log ...          each process its own; launcher.log: what MPI's launcher writes
├── lock  requeue                   the root: locked while it writes here; the run was asked to end and to be resumed
└── report.html                     `arena report`
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, TypeVar

from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError, close_name, parser_text, shown
from arena.records import checksums
from arena.records.atomic import Names, make_folder, refuse_links
from arena.records.lock import RunLock, has_failed, is_locked

M = TypeVar("M")

_UNBEGUN = {
    "logs",
    "checkpoints",
    "loaded",
    "tensorboard",
    "boundaries",
    "checksums",
    "rounds.jsonl",
    "tournament.json",
    "lock",
}
"""The files of a run that has not begun."""
MANIFEST = "manifest.json"
"""The file in the folder of a match that says what is recorded there."""
_MANIFEST = re.compile(r"(?:([0-9]{12,})\.)?manifest\.json", re.ASCII)
_OF_LEG = re.compile(r"([0-9]+)\.lane-([0-9]+)\.(npz|replay)", re.ASCII)
_FIRST_BOUNDARY = re.compile(r"0+\.json|\.0+\.json\.part")  # later boundaries exist only after ticks were played


class RunFolder:
    """The paths in a run folder, see above. Constructing one touches nothing on the disk.

    Args:
        path: the folder; a relative one is meant from where the arena was started.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = anchored(path)
        self.lock = path / "lock"
        self.config = path / "config.yaml"
        self.plan = path / "plan.json"
        self.profile = path / "profile.json"  # missing without `--profile`
        self.episodes = path / "episodes.jsonl"
        self.external = path / "external.json"  # missing without external games
        self.games = path / "games.jsonl"  # likewise
        self.faults = path / "faults.jsonl"  # missing without a fault
        self.results = path / "result.json"
        self.measures = path / "measures.jsonl"  # missing if nothing was measured
        self.changes = path / "changes.jsonl"  # missing without a curriculum
        self.resumes = path / "resumes.jsonl"  # missing if no resume has changed a value
        self.best = path / "best.json"  # with `best` in the configuration
        self.progress = path / "progress.csv"  # written by the logger `csv`
        self.evaluations = path / "evaluations.jsonl"
        self.human_games = path / "human_games.jsonl"  # missing if no person has played for the ratings
        self.tournament = path / "tournament.json"
        self.rounds = path / "rounds.jsonl"  # missing if there is only one round
        self.exploitability = path / "exploitability.json"  # missing before `arena exploit --exact`
        self.samples = path / "samples"
        self.replays = path / "replays"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.loaded = path / "loaded"  # missing without `load`
        self.boundaries = path / "boundaries"
        self.requeue = path / "requeue"
        self.tensorboard = path / "tensorboard"
        self.models = path / "models"
        self.logs = path / "logs"
        self.report = path / "report.html"
        self.checksums = path / checksums.FOLDER

    @classmethod
    def open(cls, path: Path | str, *, resume: bool = False, named: bool = False) -> RunFolder:
        """Claims the folder `runs/<name>`, or one that the user has `named`, for a run, and makes its tree.

        A new run gets a folder of its own. If `path` is taken, the next free one of `<name>-2`, `<name>-3`, ... is
        used, or, where the user named this very folder, it is an error, except if the run there has ended in its first
        leg with no result: its remains are removed. So are those of the last one of `<name>`, `<name>-2`, ... A resumed
        run gets the folder that is there: the last one of `<name>`, `<name>-2`, ... unless the user named it.

        Raises:
            ConfigError: the folder named holds files already; there is nothing to resume; or it cannot be made.
        """
        path = anchored(path)
        try:
            if resume:  # `<name>-2`, `<name>-3`, ... as far as they exist, the last one first
                pattern = re.compile(re.escape(path.name) + r"-([1-9][0-9]*)")
                matches = () if named else (pattern.fullmatch(entry.name) for entry in path.parent.glob("*"))
                numbers = sorted((int(match[1]) for match in matches if match), reverse=True)
                candidates = [*(path.with_name(f"{path.name}-{number}") for number in numbers if number > 1), path]
                found = next((one for one in candidates if cls(one).config.is_file()), None)
                if found is None:
                    raise not_a_run(path, " with --run-dir, or leave --resume out")
                folder = cls(found)
            else:
                folder = cls(_claimed(path, named=named))
            refuse_links(folder.path, NAMES)
            for part in (folder.logs, folder.checkpoints):
                make_folder(part)
        except OSError as error:
            raise ConfigError(f"the run folder cannot be made: {error.strerror or error}", source=str(path)) from error
        return folder

    @classmethod
    def begun(cls, path: Path | str) -> RunFolder:
        """The folder of a run that has begun, to continue it.

        Raises:
            ConfigError: it is not one, or it holds a link.
        """
        check_path(path, "the path of a run folder")
        folder = cls(Path(path))
        refuse_links(folder.path, NAMES)
        if not folder.config.is_file():
            raise not_a_run(folder.path)
        return folder

    @classmethod
    def existing(cls, path: Path | str) -> RunFolder:
        """The folder of a run that has begun, for a reader.

        Raises:
            ConfigError: as `begun`; or a file of it was shortened, changed or lost after it was written.
        """
        folder = cls.begun(path)
        checksums.check_folder(folder.path)  # so all readers refuse the same files
        return folder

    @classmethod
    def of_target(cls, target: str) -> RunFolder | None:
        """The run folder that a command line names; None if it names a configuration file.

        Raises:
            ConfigError: it names neither.
        """
        path = anchored(target)
        is_config = path.is_file() or (path.suffix in (".yaml", ".yml") and not path.is_dir())
        return None if is_config else cls.existing(path)

    def remove_unbegun(self, made: str) -> None:
        """Removes what `open` has made for a run that has not begun, and the logs; does nothing if a run has begun.

        `made`: see `Run.made_folder`; folders in which something else is stay.
        """
        if self.config.exists() or self.episodes.exists():
            return
        for part in (self.logs, self.checkpoints, self.loaded, self.tensorboard, self.boundaries, self.checksums):
            shutil.rmtree(part, ignore_errors=True)
        for file in (self.rounds, self.tournament, self.lock):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # what else is in one is not ours
            for folder in (self.path, *self.path.parents) if made else ():
                folder.rmdir()
                if folder == Path(made):
                    break

    @property
    def may_be_starting(self) -> bool:
        """Whether the folder holds only what a run has before it begins, or does not exist yet."""
        return not self.path.exists() or (self.path.is_dir() and _is_unbegun(self.path))

    def evaluation_path(self, tick: int) -> Path:
        """The folder of the evaluation at a tick."""
        return self.path / "evaluations" / f"tick-{tick:012d}"

    def custom_path(self, tick: int) -> Path:
        """The file with what a user's function has measured in the evaluation at a tick."""
        return self.evaluation_path(tick) / "custom.json"

    def snapshot_path(self, policy: str, tick: int) -> Path:
        """The snapshot of a policy at the end of a round of a league, if there is one."""
        return self.snapshots_path(policy) / f"{tick:012d}.ckpt"

    def snapshots_path(self, policy: str) -> Path:
        """Where the snapshots of one policy are."""
        return self.path / "snapshots" / plain_name(policy)

    def log_path(self, rank: int) -> Path:
        """The log of one process; four digits, so that the files stand in order."""
        return self.logs / f"rank-{rank:04d}.log"

    def checkpoints_path(self, policy: str) -> Path:
        """Where the checkpoints of one policy are."""
        return self.checkpoints / plain_name(policy)

    def loaded_path(self, policy: str, load: str) -> Path:
        """Where the run's own copy of the checkpoint is that this `load:` of a policy named at its start.

        The text is part of the name: another `load:` names another checkpoint. Runs of earlier versions have none.
        """
        return self.loaded / plain_name(policy) / f"{zlib.crc32(load.encode()):08x}.ckpt"

    def write_config(self, text: str) -> None:
        """Writes the resolved configuration atomically."""
        checksums.replace(self.config, text.encode())


NAMES: Names = dict.fromkeys(
    [path.name for path in vars(RunFolder("/")).values() if path.name] + ["evaluations", "snapshots"]
)
"""What is read and written in a run folder; other programs may keep other files there, and links."""
_OF_FIRST_LEG = NAMES.keys() - {"human_games.jsonl", "exploitability.json", "models", "evaluations", "snapshots"}
"""The files that a run may have before its first boundary after tick 0, all of which it can write again."""


def match_path(home: Path, match: int, *, round: int | None = None) -> Path:
    """The folder of what a match has recorded, in `samples` or `replays`; `round` None: of a run without rounds."""
    return (home if round is None else home / f"round-{round:04d}") / f"match-{match:04d}"


def matches_in(home: Path) -> list[Path]:
    """The folders of all recorded matches, by rounds and matches."""
    return [*sorted(home.glob("match-*")), *sorted(home.glob("round-*/match-*"))]


def lanes_path(match: Path, suffix: str, *, start: int, lane: int) -> Path:
    """The file of what was recorded after tick `start` in the lanes from `lane` on."""
    return match / f"{start:012d}.lane-{lane:04d}.{suffix}"


def start_and_lane(path: Path) -> tuple[int, int]:
    """The ticks played before a file of `lanes_path`, and its first lane, from its name; ValueError: it is none."""
    found = _OF_LEG.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path} holds no lanes of a match")
    return int(found[1]), int(found[2])


def lanes_in(match: Path, suffix: str) -> list[Path]:
    """The files of `lanes_path` of a match, by ticks and lanes; their content is not checked."""
    found = match.glob(f"*.lane-*.{suffix}")
    return sorted((path for path in found if _OF_LEG.fullmatch(path.name)), key=start_and_lane)


def manifest_path(match: Path, start: int) -> Path:
    """The manifest of what a match has recorded from the leg after tick `start` on; 0: from the first on."""
    return match / (f"{start:012d}.{MANIFEST}" if start else MANIFEST)


def manifests_in(match: Path) -> dict[int, Path]:
    """By `start` the files of `manifest_path` of a match, in order, also those that are lost and have a checksum."""
    folders = match, match / checksums.FOLDER
    found = (_MANIFEST.fullmatch(path.name) for folder in folders for path in folder.glob(f"*{MANIFEST}"))
    return dict(sorted((int(name[1] or 0), match / name[0]) for name in found if name))


def forget_lanes(match: Path, suffix: str, tick: int) -> None:
    """Removes what a match has recorded after a tick, at which a leg has ended: no file holds ticks of two legs.

    No process may be writing it. Without a file all manifests go too: another match may get this number next.
    """
    later = [path for path in lanes_in(match, suffix) if start_and_lane(path)[0] >= tick]
    for path in [*match.glob(f".*.{suffix}.part"), *later]:
        path.unlink()
    is_empty = not lanes_in(match, suffix)
    for start, path in manifests_in(match).items():
        if is_empty or start >= tick:
            checksums.drop(path)
            path.unlink(missing_ok=True)


def read_manifest(path: Path, make: Callable[[Any], M], *, newest: int, what: str) -> M:
    """What `make` makes of a manifest of a match, of which `what` was recorded in a version up to the newest.

    Raises:
        ConfigError: it cannot be read, is damaged, or of a newer arena.
    """
    checksums.check(path)
    try:
        written = json.loads(path.read_bytes())
        if written["version"] > newest:
            raise ConfigError(
                f"has format version {written['version']}, this arena reads up to {newest}: install a newer one",
                source=str(path),
            )
        return make(written)
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        text = f"is not a manifest of {what}, or is damaged: {parser_text(error)}"
        raise ConfigError(text, source=str(path)) from error


def plain_name(name: str) -> str:
    """A name that a file of a run folder gives to a file or folder in it; raises ConfigError if it leads elsewhere."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ConfigError(f"a file of a run folder names {name!r}, which cannot be the name of a file in it")
    return name


def run_of_policy(path: Path) -> str:
    """The path of the run where a path is `RUN:POLICY`; empty where it is not."""
    run, colon, _ = str(path).rpartition(":")
    return run if colon and not path.exists() and RunFolder(Path(run)).config.is_file() else ""


def not_a_run(path: Path, remedy: str = "") -> ConfigError:
    """The error that all commands report for a path that is not the folder of a run; the remedy ends its message."""
    refuse_links(path, NAMES)  # as something may not be a file for this reason
    if (path / "experiment.yaml").is_file():
        found = f"it is an experiment, whose runs are in {shown(path / 'trials')}"
        return ConfigError(f"not a run folder: {found}; name one of them{remedy}", source=str(path))
    if run := run_of_policy(path):
        text = f"names a policy of a run; a run alone is taken here, so name {shown(run)}; RUN:POLICY@TICK is for "
        return ConfigError(
            f"{text}--against, --advice, `load`, and arena tournament, exploit, serve and export", source=str(path)
        )
    if path.is_dir() and (path / "lock").exists() and _is_unbegun(path):
        found = "a run in it was ended before its first tick: start it again without --resume"
        found = "a run in it has not begun yet: wait for its first tick" if is_locked(path) else found
        return ConfigError(f"not a run folder: {found}", source=str(path))
    found = "config.yaml is missing" if path.is_dir() else "it is a file" if path.exists() else "it does not exist"
    hint = ""
    if not path.exists():
        siblings = [one.name for one in path.parent.glob("*") if RunFolder(one).config.is_file()]
        close = close_name(path.name, siblings)
        hint = "" if close is None else f"did you mean {shown(path.with_name(close))}? "
    text = f"not a run folder: {found}; {hint}name the folder of a run, as runs/<name>{remedy}"
    return ConfigError(text, source=str(path))


def _claimed(path: Path, *, named: bool) -> Path:
    """A folder for this run: a new one, or the named one or the last one if no run has begun in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for candidate, later in pairwise(map(path.with_name, numbered(path.name))):
        try:
            candidate.mkdir(mode=0o700)  # of two runs that start at the same instant only one makes it
            return candidate
        except FileExistsError as error:
            if named and path.is_dir() and (_is_unbegun(path) or _cleared(path)):
                return path
            if named:
                found = f"the run folder {'holds files already' if path.is_dir() else 'is a file'}"
                remedy = "continue a run with --resume, or name another folder"
                raise ConfigError(f"{found}; {remedy}", source=str(path)) from error
            with suppress(ConfigError, FileNotFoundError):  # another run claims it now
                if not later.exists() and has_failed(candidate) and _cleared(candidate, if_failed=True):
                    return candidate
    raise AssertionError("names do not end")


def _is_unbegun(path: Path) -> bool:
    """Whether a folder holds only the files of a run that was ended before it began."""
    boundaries = RunFolder(path).boundaries.glob("*")
    known = {entry.name for entry in path.iterdir()} <= _UNBEGUN
    return known and all(_FIRST_BOUNDARY.fullmatch(entry.name) for entry in boundaries)


def free_path(path: Path) -> Path:
    """The path, or the first of `<name>-2`, `<name>-3`, ... beside it where there is nothing yet."""
    return next(one for one in map(path.with_name, numbered(path.name)) if not one.exists())


def _cleared(path: Path, *, if_failed: bool = False) -> bool:
    """Removes the run in a folder if it has ended before or in its first leg with no result on record.

    With `if_failed` only if its last writer has ended with an error: of several runs that clear it at once, one does.

    Raises:
        ConfigError: a process writes into the folder.
    """
    folder, found = RunFolder(path), [entry for entry in path.iterdir() if entry.name != "lock"]
    ticks = [entry.name for entry in folder.boundaries.glob("*")]
    results = folder.episodes, folder.metrics, folder.measures, folder.results
    has_played = any(path.exists() and path.stat().st_size for path in results)
    foreign = {entry.name for entry in found} - _OF_FIRST_LEG
    own = folder.plan.exists() or _is_unbegun(path)  # else it may be a configuration of the user's own
    if has_played or foreign or not own or not all(map(_FIRST_BOUNDARY.fullmatch, ticks)):
        return False
    with RunLock.take(path) as lock:
        if if_failed and not lock.after_failure:
            return False
        for entry in found:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    return True


def numbered(name: str) -> Iterator[str]:
    """The name, then `<name>-2`, `<name>-3`, ...: where names are taken, the first free one is used."""
    return chain([name], (f"{name}-{number}" for number in count(2)))
