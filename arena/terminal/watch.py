"""`arena watch`: shows a run from the files that it writes, as `arena train` shows it; also from another machine.

Of the journals only what is new is read: they are followed from where the last look ended. Ticks are counted as `arena
train` counts them: those of all matches together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from arena.config import load_config
from arena.config.members import players
from arena.errors import ConfigError, pluralize
from arena.league.round_text import change_words
from arena.league.rounds_file import lines_in, ticks_before
from arena.records.boundary import newest_tick
from arena.records.episode import episode_of
from arena.records.faults import fault_words
from arena.records.folder import RunFolder, not_a_run
from arena.records.journal import JournalReader
from arena.records.lock import is_held
from arena.records.metrics import UPDATE_FIELDS, EpisodeRow, UpdateRecord, column
from arena.records.outcome import without_winner_words
from arena.records.scoreboard import Scoreboard
from arena.run.display import Display
from arena.run.status import RunStatus, planned_ticks, run_status
from arena.terminal.display import make_display, silent_display, summary_lines

LOOK_EVERY = 1.0  # seconds
_match, _tick = column("match"), column("tick")
_START_LOOKS = 60  # for a run whose processes are starting
_PATIENCE = 5  # looks: a run that is repaired or resumed writes again within this time

_ENDS = {RunStatus.ENDED_EARLY: "has ended early", RunStatus.KILLED: "was killed", RunStatus.UNDER_WAY: "goes on"}


class _Seat(msgspec.Struct, frozen=True):
    policy: str


class _Match(msgspec.Struct, frozen=True):
    match: int
    seats: tuple[_Seat, ...]


class _Matches(msgspec.Struct, frozen=True):
    """What has to be known of `plan.json`, and of a line of `rounds.jsonl`."""

    matches: tuple[_Match, ...]


class FollowedFile:
    """A file that is written as a whole, and may be written again: by a run that is taken up again.

    Args:
        path: of the file, which may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def is_new(self) -> bool:
        """Whether it was written since the last time that this was asked."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        before, self._seen = self._seen, (found.st_ino, found.st_mtime_ns, found.st_size)
        return self._seen != before


class FollowedJournal:
    """Reads the lines that were appended to a journal since the last time.

    Args:
        path: of the journal, which may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes

    @property
    def was_cut(self) -> bool:
        """Whether a resumed run has taken lines away that were read before."""
        return self._read > 0 and (not self._path.exists() or self._path.stat().st_size < self._read)

    def fresh(self) -> list[dict[str, Any]]:
        """The new whole lines.

        Raises:
            ConfigError: the journal is damaged.
        """
        if not self._path.exists():
            return []
        lines = []
        for raw, line in JournalReader(self._path, start=self._read).lines():
            self._read += len(raw)
            lines.append(line)
        return lines


class FollowedRounds:
    """Reads the rounds that have begun since the last time.

    Args:
        path: of `rounds.jsonl`, which may not be there yet. It is small, and written as a whole: a run that is taken up
            again writes the round that goes on as it is then.

    Attributes:
        matches: of the newest round; none before the first look, and where there are no rounds.
        start: the tick at which that begins.
        ticks_before: of all matches of earlier rounds together.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = 0  # rounds
        self.matches: Sequence[_Match] = ()
        self.start = self.ticks_before = 0

    def fresh(self) -> list[dict[str, Any]]:
        """The lines of the new rounds; one that goes on after others are forgotten is new.

        Raises:
            ConfigError: the file is damaged, or of another version of the arena.
            msgspec.ValidationError: the newest line has no matches.
        """
        found = lines_in(self._path)
        known = self._known if self._known <= len(found) else len(found) - 1
        self._known = len(found)
        self.matches = msgspec.convert(found[-1], _Matches).matches if found else ()
        self.start = found[-1]["start"] if found else 0
        self.ticks_before = ticks_before([line["start"] for line in found], [len(line["matches"]) for line in found])
        return found[max(0, known) :]


class FollowedRun:
    """The state of a run as its files tell it.

    Args:
        folder: of the run.

    Attributes:
        config: of the run; another one when it is taken up again with changes.
        scoreboard: how those policies fare that may play in its matches; others play in evaluations alone.
        planned: ticks of each match, in all rounds; None where the number of episodes decides.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._config_file = FollowedFile(folder.config)
        self._config_file.is_new()  # before it is read: what is written from now on is
        self.config = load_config(folder.config)
        self._rounds, self._faults = FollowedRounds(folder.rounds), FollowedJournal(folder.faults)
        self._first_look = True
        self._begin()

    def _begin(self) -> None:
        self.planned = planned_ticks(self.config)
        self.scoreboard = Scoreboard(players(self.config), snapshots=self.planned is None)
        self._episodes, self._metrics = FollowedJournal(self.folder.episodes), FollowedJournal(self.folder.metrics)
        self._played: dict[int, int] = {}  # ticks by match, as its last episode tells
        self._learned: dict[str, int] = {}  # ticks by policy, which all of its matches have played
        self._plan_file = FollowedFile(self.folder.plan)
        self._plan: Sequence[_Match] = ()  # the matches of a run of one round

    @property
    def boundary(self) -> int | None:
        """The newest tick from which the run can go on."""
        return newest_tick(self.folder)

    @property
    def ticks(self) -> int:
        """That a match has played, as far as the files tell."""
        return max([self.boundary or 0, *self._played.values(), *self._learned.values()])

    @property
    def done(self) -> int:
        """Ticks of all matches of all rounds together, as far as the files tell."""
        begun = self._rounds.start
        reached = max(begun, self.boundary or 0)
        played = sum(max(reached, self._ticks_of(match)) - begun for match in self._matches)
        return self._rounds.ticks_before + played

    @property
    def total(self) -> int | None:
        """What `done` will be in the end, if later rounds have as many matches as the newest; None: not known."""
        if self.planned is None or not self._matches:
            return None
        return self._rounds.ticks_before + (self.planned - self._rounds.start) * len(self._matches)

    @property
    def _matches(self) -> Sequence[_Match]:
        return self._rounds.matches or self._plan

    def _ticks_of(self, match: _Match) -> int:
        learned = (self._learned.get(seat.policy, 0) for seat in match.seats)
        return max([self._played.get(match.match, 0), *learned])

    @property
    def condition(self) -> RunStatus:
        """What has become of the run."""
        return run_status(self.folder, self.config, played=self.ticks)

    def look(self) -> list[str]:
        """Takes what is new; returns a line for each round that has begun and each fault, at first for the newest ones.

        Raises:
            ConfigError: a file is damaged, or of another version.
        """
        if self._config_file.is_new():
            self.config = load_config(self.folder.config)
            self._begin()
        if self._episodes.was_cut or self._metrics.was_cut:
            self._begin()
        with _reading(self.folder.episodes):
            episodes = [episode_of(line) for line in self._episodes.fresh()]
            without = [self._without_winner(env) for env in self.scoreboard.take(episodes)]
            self._count(episodes)
        with _reading(self.folder.metrics):
            for line in self._metrics.fresh():
                self._update(line)
        with _reading(self.folder.plan):
            if self._plan_file.is_new():
                self._plan = msgspec.json.decode(self.folder.plan.read_bytes(), type=_Matches).matches
        return [*self._news(), *filter(None, without)]

    def _without_winner(self, env: str) -> str:
        """That a game has shown that it has no winners; nothing where a rule has been set for it since."""
        rule = self.config.envs[env].outcome if env in self.config.envs else None
        return without_winner_words(self.scoreboard.winners.without[env]) if rule is None else ""

    def _count(self, episodes: Iterable[EpisodeRow]) -> None:
        for row in episodes:
            self._played[_match(row)] = max(self._played.get(_match(row), 0), _tick(row))

    def _news(self) -> list[str]:
        """What has happened since the last look; at the first one, the newest of each."""
        with _reading(self.folder.rounds):
            rounds = [_round_words(line) for line in self._rounds.fresh()]
        with _reading(self.folder.faults):
            faults = [_fault_words(line) for line in self._faults.fresh()]
        if not self._first_look:
            return [*rounds, *faults]
        self._first_look = False
        before = [f"{pluralize(len(faults), 'fault')} so far"] if len(faults) > 1 else []
        return [*rounds[-1:], *before, *faults[-1:]]

    def _update(self, line: dict[str, Any]) -> None:
        values = {name: value for name, value in line.items() if name not in UPDATE_FIELDS and value is not None}
        self.scoreboard.update(UpdateRecord(**{name: line[name] for name in UPDATE_FIELDS}, values=values))
        self._learned[line["policy"]] = max(self._learned.get(line["policy"], 0), line["ticks"])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Says of what cannot be understood in the block which file it is from."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        found = f"is damaged, or of another version of the arena: {type(error).__name__}: {error}"
        raise ConfigError(found, source=str(path)) from error


def watch(
    path: Path | str,
    *,
    columns: int,
    wait: Callable[[float], None] = time.sleep,
    running: Callable[[Path], bool] = is_held,
) -> int:
    """Shows a run until it has ended; returns the exit status. Ctrl-C ends it, and does nothing to the run.

    Args:
        path: of the run folder.
        columns: of the terminal; 0: stdout is no terminal, and gets a line now and then.
        wait: for so many seconds.
        running: whether a process writes into the folder.

    Raises:
        ConfigError: this is not a run folder, or it is damaged.
    """
    folder = RunFolder(Path(path))
    try:
        _await_start(folder, wait)
    except KeyboardInterrupt:
        return 0
    run = FollowedRun(folder)
    screen = _Screen(run, columns)
    try:
        _follow(run, screen, wait, running)
    except KeyboardInterrupt:
        return 0
    finally:
        screen.display.stop()
    for line in [_end_words(run), *summary_lines(run.scoreboard, folder.path)]:
        screen.display.message(line)
    return 0


def _await_start(folder: RunFolder, wait: Callable[[float], None]) -> None:
    """Waits for the configuration, which a run writes when all its processes are ready.

    Raises:
        ConfigError: this is not a run folder, or no run has begun in it for a minute.
    """
    for look in range(_START_LOOKS):
        if folder.config.is_file():
            return
        if not folder.may_be_starting:
            RunFolder.existing(folder.path)
        if look == 0:
            print(f"{folder.path}: no run has begun here yet; waiting for one, Ctrl-C ends it", flush=True)
        wait(LOOK_EVERY)
    raise not_a_run(folder.path, f" (no run has begun in {_START_LOOKS * LOOK_EVERY:.0f} s)")


class _Screen:
    """The display of a run: another one when a round has another number of matches, as `arena train` has it."""

    def __init__(self, run: FollowedRun, columns: int) -> None:
        self._run, self._columns = run, columns
        self.display: Display = silent_display()  # until there is something to show
        self._begun = False
        self._total: int | None = None  # that it was made for

    def show(self, news: Iterable[str]) -> None:
        """What has happened, each in a line, and the state of the run."""
        if not self._begun or self._run.total != self._total:
            self.display.stop()
            self.display, self._begun, self._total = self._made(), True, self._run.total
        for words in news:
            self.display.message(words)
        self.display.update(self._run.done, self._run.scoreboard)

    def _made(self) -> Display:
        display = make_display(
            sys.stdout,
            terminal=self._columns > 0,
            width=self._columns or None,
            total_ticks=self._run.total,
            colors={name: policy.color for name, policy in self._run.config.policies.items()},
        )
        display.start()
        return display


def _follow(run: FollowedRun, screen: _Screen, wait: Callable[[float], None], running: Callable[[Path], bool]) -> None:
    """Shows the run until no process writes any more, and then once more for the last lines."""
    patience = _PATIENCE
    while True:
        going = running(run.folder.path)
        screen.show(run.look())
        finished = not going and patience == _PATIENCE and run.condition is RunStatus.FINISHED
        patience = _PATIENCE if going else patience - 1
        if finished or patience <= 0:
            return
        wait(LOOK_EVERY)


def _end_words(run: FollowedRun) -> str:
    """How it has ended, for someone who has looked away."""
    found = run.condition
    if found is RunStatus.FINISHED:
        return "the run has finished"
    again = "" if run.planned is None or run.boundary is None else f"; --resume goes on from tick {run.boundary}"
    return f"the run {_ENDS[found]} at tick {run.ticks}{again}"


def _round_words(line: dict[str, Any]) -> str:
    """What happens in a round: how much is played, and what has become of whom when it began."""
    head = f"round {line['round']} from tick {line['start']}: {pluralize(len(line['matches']), 'match', 'matches')}"
    return "; ".join([head, *change_words(line)])


def _fault_words(line: dict[str, Any]) -> str:
    return f"fault at {line['time']}: {fault_words(line)}"
