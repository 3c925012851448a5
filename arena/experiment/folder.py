"""The folder of an experiment: its files, the states of its trials on record, and the lock of each trial.

experiment.yaml    the experiment with all defaults
configs/0003.yaml  the resolved configuration of a trial, written before it starts
trials/0003_.../   its run folder
states/0003.jsonl  `StateLine`, a line per change of its state
logs/0003.log      what its commands have printed
requests/0003.stop an empty file: the process that runs trial 3 is asked to stop it; or `.prune`
trials.csv         a row per trial
best.json          the best combination and trial
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from arena.config.load import load_data
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError
from arena.experiment.config import ExperimentConfig, parse_experiment
from arena.experiment.scheduler import State
from arena.league.sources import split
from arena.records import checksums
from arena.records.atomic import Names, make_folder, part_of, private, refuse_links, writing
from arena.records.folder import NAMES as RUN_NAMES
from arena.records.folder import RunFolder, free_path, plain_name
from arena.records.journal import Journal, JournalReader
from arena.records.lock import is_locked, lock_descriptor

DIGITS = 4
BEGINNING = "lock.beginning"
"""The lock of the processes that run trials alone, which hold `lock` together, while one begins the experiment."""
_NAME = re.compile(r"([0-9]{4,})\.jsonl")
_REQUEST = re.compile(r"([0-9]{4,})\.(stop|prune)")
_FOLDERS = ("configs", "states", "logs", "requests")
_FILES = (*_FOLDERS, "experiment.yaml", "trials.csv", "best.json", "requeue", "report.html")
_NAMES: Names = {**dict.fromkeys((*_FILES, "lock", "checksums", BEGINNING)), "trials": {"*": RUN_NAMES}}
_ATTEMPTS, _PAUSE_SECONDS = 20, 0.01  # to lock a trial


RequestKind: TypeAlias = Literal["stop", "prune"]
REQUEST_KINDS: tuple[RequestKind, ...] = ("stop", "prune")
"""`stop`: the trial saves and ends, until the experiment is resumed; `prune`: for good."""


class StateLine(msgspec.Struct, omit_defaults=True):
    """A change of the state of a trial; the first line also has `variant`, `params`, `seed`, `digest` and `folder`."""

    time: str  # ISO 8601, UTC
    state: State  # from now on
    attempt: int = 1
    exit: int | None = None  # the exit status of the attempt that has ended; -n if signal n has killed it
    tick: int | None = None  # that the run has reached
    why: str = ""  # the reason in words
    hosts: str = ""  # on which it runs, as `a:4,b:4`
    pid: int | None = None
    order: int | None = None  # how many trials had ended before, when this one has ended
    seconds: float | None = None  # the duration of the attempt that has ended, as its driver has measured it
    wanted: bool = True  # whether the experiment still asks for the trial
    variant: str | None = None
    params: dict[str, Any] | None = None  # the values that vary, by key path
    seed: int | None = None  # of the run
    digest: str | None = None  # of its configuration
    folder: str | None = None  # the name of its run folder


@dataclass
class Record:
    """What is on record of a trial: the values of its first line, and its newest line."""

    number: int
    variant: str  # empty without variants
    params: dict[str, Any]
    seed: int
    digest: str
    folder: str
    last: StateLine
    started: bool = False  # whether its process was ever started
    seconds: float = 0.0  # that its attempts took, without those that ended after their driver

    @classmethod
    def of(cls, number: int, line: StateLine) -> Record:
        """The record of a trial whose first line this is."""
        assert line.digest is not None, "a first line without it is not read"
        name = line.folder or f"{number:0{DIGITS}d}"
        return cls(number, line.variant or "", line.params or {}, line.seed or 0, line.digest, name, line)

    @property
    def state(self) -> State:
        return self.last.state

    @property
    def wanted(self) -> bool:
        return self.last.wanted

    @property
    def order(self) -> int | None:
        return self.last.order

    def take(self, line: StateLine) -> None:
        """Takes a further line."""
        self.started |= line.state is State.RUNNING
        self.seconds += line.seconds or 0.0
        self.last = line


def now() -> str:
    """The time of a line."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class ExperimentFolder:
    """The paths in the folder of an experiment. Constructing one touches nothing on the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = anchored(path)
        self.config = self.path / "experiment.yaml"
        self.configs = self.path / "configs"
        self.trials = self.path / "trials"
        self.states = self.path / "states"
        self.logs = self.path / "logs"
        self.requests = self.path / "requests"
        self.table = self.path / "trials.csv"
        self.best = self.path / "best.json"
        self.requeue = self.path / "requeue"
        self.report = self.path / "report.html"

    @classmethod
    def existing(cls, path: Path | str, remedy: str = "") -> ExperimentFolder:
        """The folder of an experiment that has begun; `remedy` ends the message if it is none.

        Raises:
            ConfigError: it is not one, or a file of it was shortened, changed or lost after it was written.
        """
        check_path(path, "the path of the folder of an experiment")
        folder = cls(path)
        refuse_links(folder.path, _NAMES)
        for part in (folder.path, folder.states):
            checksums.check_folder(part)
        if not is_experiment(path):
            found = "experiment.yaml is missing" if folder.path.is_dir() else "it does not exist"
            text = f"not the folder of an experiment: {found}; name one, as experiments/<name>{remedy}"
            raise ConfigError(text, source=str(path))
        return folder

    @property
    def is_unbegun(self) -> bool:
        """Whether nothing is here, or only what an experiment leaves that was killed before it began."""
        if not self.path.exists():
            return True
        if not self.path.is_dir() or self.config.exists():
            return False
        known = {*_FOLDERS, "trials", "lock", BEGINNING, part_of(self.config).name}
        entries = [*self.path.iterdir()]
        folders = [entry for entry in entries if entry.is_dir()]
        return {entry.name for entry in entries} <= known and not any(any(entry.iterdir()) for entry in folders)

    @property
    def is_going_on(self) -> bool:
        """Whether a process is at work: the driver of all, or one that runs a trial alone."""
        if is_locked(self.path):
            return True
        for record in self.read():
            if not record.state.is_over:  # the lock of its state file is held from before the first line to its end
                descriptor = private(str(self.state_path(record.number)), os.O_RDONLY)
                try:
                    if lock_descriptor(descriptor, shared=True) is False:
                        return True
                finally:
                    os.close(descriptor)
        return False

    def make(self) -> None:
        """Makes the tree; what is there stays.

        Raises:
            ConfigError: it cannot be made, or holds a link.
        """
        refuse_links(self.path, _NAMES)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for part in (self.path, self.configs, self.trials, self.states, self.logs, self.requests):
                make_folder(part)
        except OSError as error:
            raise ConfigError(f"the folder cannot be made: {error.strerror or error}", source=str(self.path)) from error

    def write_config(self, text: str) -> None:
        """Writes the experiment, at once or not at all."""
        checksums.replace(self.config, text.encode())

    def read_config(self) -> ExperimentConfig:
        """The experiment as it was started, or resumed, for the last time.

        Raises:
            ConfigError: the file is damaged.
        """
        return parse_experiment(load_data(self.config), source=str(self.config)).config

    def config_path(self, trial: int) -> Path:
        """The resolved configuration of a trial."""
        return self.configs / f"{trial:0{DIGITS}d}.yaml"

    def state_path(self, trial: int) -> Path:
        """The states of a trial."""
        return self.states / f"{trial:0{DIGITS}d}.jsonl"

    def log_path(self, trial: int) -> Path:
        """What the commands of a trial have printed."""
        return self.logs / f"{trial:0{DIGITS}d}.log"

    def run_folder(self, record: Record) -> RunFolder:
        """The run folder of a trial."""
        return RunFolder(self.trials / plain_name(record.folder))

    def request_path(self, trial: int, kind: RequestKind) -> Path:
        """The file by which the process that runs a trial is asked to stop or to prune it."""
        return self.requests / f"{trial:0{DIGITS}d}.{kind}"

    def requested(self) -> list[tuple[int, RequestKind]]:
        """What is asked for and was not seen yet, by trial."""
        names = sorted(os.listdir(self.requests)) if self.requests.is_dir() else []
        return [(int(found[1]), cast("RequestKind", found[2])) for name in names if (found := _REQUEST.fullmatch(name))]

    def folder_name(self, trial: int, tag: str) -> str:
        """The name of a trial's run folder."""
        return f"{trial:0{DIGITS}d}_{tag}" if tag else f"{trial:0{DIGITS}d}"

    def read(self) -> list[Record]:
        """What is on record of each trial, by number.

        Raises:
            ConfigError: a file is damaged, which the message names with the line.
        """
        found = []
        if not self.states.is_dir():
            return []
        for entry in sorted(os.scandir(self.states), key=lambda entry: (len(entry.name), entry.name)):
            match = _NAME.fullmatch(entry.name)
            if match is not None and (record := read_record(int(match[1]), Path(entry.path))) is not None:
                found.append(record)
        return found


def read_record(number: int, path: Path) -> Record | None:
    """What the state file of a trial says; None if its first line is not whole.

    Raises:
        ConfigError: it is damaged.
    """
    lines = [*JournalReader(path).lines(StateLine, missing_ok=True)]
    if not lines:
        return None
    if lines[0].digest is None or lines[0].folder is None:
        raise ConfigError("lacks the digest or the folder of the trial", path="line 1", source=str(path))
    record = Record.of(number, lines[0])
    for line in lines:
        record.take(line)
    return record


def is_experiment(path: Path | str) -> bool:
    """Whether a path is the folder of an experiment."""
    return ExperimentFolder(path).config.is_file()


def runs_of(target: str) -> list[str]:
    """What a command plays: of an experiment, as `EXPERIMENT:POLICY@TICK` too, the runs of its trials that are over.

    Any other target stands for itself.

    Raises:
        ConfigError: the experiment is damaged, or no trial is over.
    """
    place, name = split(target)
    if not is_experiment(place):
        return [target]
    folder = ExperimentFolder.existing(place)
    ended = [r for r in folder.read() if r.wanted and r.state in (State.TERMINATED, State.PRUNED)]
    if not ended:
        raise ConfigError("no trial of this experiment is over", source=place)
    return [f"{folder.run_folder(record).path}{name and f':{name}'}" for record in ended]


def write_state(path: Path, lines: Sequence[StateLine]) -> None:
    """Appends changes to the state file of a trial.

    Raises:
        WriteError: the disk is full, or the folder is gone.
    """
    journal = Journal(path)
    try:
        journal.extend(lines)
    finally:
        journal.close()


@contextmanager
def trial_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a trial's state file: of two processes only one runs the trial.

    Raises:
        ConfigError: another process runs it.
    """
    with writing(path):
        descriptor = private(str(path), os.O_RDWR | os.O_CREAT)
    try:
        for attempt in range(_ATTEMPTS):  # a process that watches holds it for an instant
            if lock_descriptor(descriptor) is not False:  # on a file system without locks the folder's lock has to do
                break
            if attempt == _ATTEMPTS - 1:
                raise ConfigError("another process runs this trial; wait for its end", source=str(path))
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def place_of(name: str, run_dir: str | Path | None, *, resume: bool, shared: bool = False) -> Path:
    """The folder of an experiment: the one that was named, else `experiments/<name>`, or the newest one to go on with.

    Raises:
        ConfigError: there is nothing to go on with; or a folder that processes share has no name.
    """
    if run_dir is not None:
        if resume:
            ExperimentFolder.existing(anchored(run_dir), ", or leave --resume out")
        return anchored(run_dir)
    if shared:
        raise ConfigError("a trial alone needs the folder that it shares with the others", path="--run-dir")
    place = anchored("experiments") / name
    if resume:
        pattern = re.compile(re.escape(name) + r"(?:-([1-9][0-9]*))?")
        entries = place.parent.iterdir() if place.parent.is_dir() else ()
        matches = ((entry, pattern.fullmatch(entry.name)) for entry in entries)
        found = [(int(match[1] or 1), entry) for entry, match in matches if match and is_experiment(entry)]
        if not found:
            text = "there is no experiment to go on with; name its folder with --run-dir, or leave --resume out"
            raise ConfigError(text, source=str(place))
        return max(found)[1]
    return free_path(place)
