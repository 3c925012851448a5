"""`arena watch`: shows a run from the files that it writes, as `arena train` shows it; also from another machine.

Of the journals only new lines are read, from where the last look ended. Ticks are counted as `arena train` counts them:
those of all matches together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from arena.config import load_config
from arena.config.members import players
from arena.errors import pluralize
from arena.league.round_text import change_words
from arena.league.rounds_file import lines_in, ticks_before
from arena.records.boundary import newest_tick
from arena.records.faults import fault_of, fault_words
from arena.records.folder import RunFolder
from arena.records.formats import GamesLine, PlanFile, PlannedMatch, Round, read_document, update_of
from arena.records.journal import JournalReader
from arena.records.lock import is_held
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Scoreboard
from arena.roles.status import RunStatus, planned_ticks, run_status
from arena.terminal.display import make_display, silent_display, summary_lines

T = TypeVar("T")

LOOK_EVERY = 1.0  # seconds
_PATIENCE = 5  # looks: a run that is started again or resumed writes again within this time

_ENDS = {RunStatus.ENDED_EARLY: "has ended early", RunStatus.KILLED: "was killed", RunStatus.UNDER_WAY: "goes on"}


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

    def fresh(self, lines: Callable[[JournalReader], Iterable[T]]) -> list[T]:
        """The new whole lines, read with a method of `JournalReader`.

        Raises:
            ConfigError: the journal is damaged.
        """
        if not self._path.exists():
            return []
        journal = JournalReader(self._path, start=self._read)
        found = [*lines(journal)]
        self._read = journal.position
        return found


class FollowedRun:
    """The state of a run as its files tell it.

    Args:
        folder: of the run.

    Attributes:
        config: of the run; replaced when the run is resumed with changes.
        scoreboard: the scores of the policies that may play in its matches; others play only in evaluations.
        planned: ticks of each match, in all rounds; None where the number of episodes decides.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._faults = FollowedJournal(folder.faults)
        self._rounds: Sequence[Round] = ()
        self._first_look = True
        self._begin()

    def _begin(self) -> None:
        """Starts to read from the beginning, except for rounds and faults, which were shown already."""
        self._config_stamp = _stamp(self.folder.config)  # before it is read: what is written from now on is new
        self.config = load_config(self.folder.config)
        self.planned = planned_ticks(self.config)
        self.scoreboard = Scoreboard(players(self.config), snapshots=self.planned is None)
        self._episodes, self._metrics = FollowedJournal(self.folder.episodes), FollowedJournal(self.folder.metrics)
        self._games = FollowedJournal(self.folder.games)
        self._results = FollowedJournal(self.folder.results)
        self._lanes: Mapping[int, int] = {}  # by match
        self._played: dict[int, int] = {}  # ticks by match, as its last episode tells
        self._learned: dict[str, int] = {}  # ticks by policy, which all of its matches have played
        self._matches: Sequence[PlannedMatch] = ()  # of the newest round

    @property
    def boundary(self) -> int | None:
        """The newest tick from which the run can go on."""
        return newest_tick(self.folder)

    @property
    def ticks(self) -> int:
        """The most ticks that a match has played, as far as the files tell."""
        return max([self.boundary or 0, *self._played.values(), *self._learned.values()])

    @property
    def done(self) -> int:
        """Ticks of all matches of all rounds together, as far as the files tell."""
        reached = max(self._start, self.boundary or 0)
        return self._ticks_before + sum(max(reached, self._ticks_of(match)) - self._start for match in self._matches)

    @property
    def total(self) -> int | None:
        """What `done` will be in the end, if later rounds have as many matches as the newest; None: not known."""
        if self.planned is None or not self._matches:
            return None
        return self._ticks_before + (self.planned - self._start) * len(self._matches)

    @property
    def _start(self) -> int:
        """The tick at which the newest round begins."""
        return self._rounds[-1].start if self._rounds else 0

    @property
    def _ticks_before(self) -> int:
        return ticks_before([line.start for line in self._rounds], [len(line.planned) for line in self._rounds])

    def _ticks_of(self, match: PlannedMatch) -> int:
        learned = (self._learned.get(policy, 0) for policy in match.players)
        return max([self._played.get(match.match, 0), *learned])

    @property
    def condition(self) -> RunStatus:
        """The status of the run."""
        return run_status(self.folder, self.config, played=self.ticks)

    def look(self) -> list[str]:
        """Reads what is new; returns lines for the user: new rounds and faults (at first only the newest), results.

        Raises:
            ConfigError: a file is damaged, or of another version.
        """
        taken_up_again = _stamp(self.folder.config) not in (None, self._config_stamp)
        if taken_up_again or self._episodes.was_cut or self._metrics.was_cut:
            self._begin()
        episodes = self._episodes.fresh(lambda journal: journal.lines(EpisodeRecord))
        self.scoreboard.take(episodes)
        for episode in episodes:
            self._played[episode.match] = max(self._played.get(episode.match, 0), episode.tick)
        for update in self._metrics.fresh(lambda journal: journal.made(update_of)):
            self.scoreboard.update(update)
            self._learned[update.policy] = max(self._learned.get(update.policy, 0), update.ticks)
        faults = [
            f"fault at {line['time']}: {fault_words(line)}"
            for line in self._faults.fresh(lambda journal: journal.made(fault_of))
        ]
        rounds = [_round_words(line) for line in self._fresh_rounds()]
        if self._first_look:
            before = [f"{pluralize(len(faults), 'fault')} so far"] if len(faults) > 1 else []
            rounds, faults = rounds[-1:], [*before, *faults[-1:]]
        self._first_look = False
        for line in self._games.fresh(lambda journal: journal.lines(GamesLine)):
            self.scoreboard.games[line.match] = line.words(self._lanes[line.match])
        results = self._results.fresh(lambda journal: journal.made(_result_words))[-1:]
        return [*rounds, *faults, *results]

    def _fresh_rounds(self) -> Sequence[Round]:
        """The rounds that are new; after a rollback, the newest round is new again."""
        known, self._rounds = len(self._rounds), lines_in(JournalReader(self.folder.rounds))
        if self.folder.plan.is_file():
            planned = read_document(self.folder.plan, PlanFile).matches
            self._matches = planned
            self._lanes = {match.match: match.lanes for match in planned}
        if self._rounds:
            self._matches = self._rounds[-1].planned
        return self._rounds[known:] if known <= len(self._rounds) else self._rounds[-1:]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Identifies a version of a file, which changes when it is written anew; None where it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def watch(
    path: Path | str,
    *,
    columns: int,
    wait: Callable[[float], None] = time.sleep,
    running: Callable[[Path], bool] = is_held,
) -> int:
    """Shows a run until it has ended; returns the exit status.

    Args:
        path: of the run folder.
        columns: of the terminal; 0: stdout is no terminal, and gets a line now and then.
        wait: for so many seconds.
        running: whether a process writes into the folder.

    Raises:
        ConfigError: this is not a run folder, or it is damaged.
    """
    folder, display = RunFolder.existing(Path(path)), silent_display()
    begun, total, patience = False, None, _PATIENCE
    try:
        run = FollowedRun(folder)
        while True:
            going = running(folder.path)  # first: when no process writes any more, the look takes the last lines
            news = run.look()
            if not begun or run.total != total:  # a round with another number of matches
                display.stop()
                begun, total = True, run.total
                colors = {name: policy.color for name, policy in run.config.policies.items()}
                display = make_display(sys.stdout, columns=columns, total_ticks=total, colors=colors)
                display.start()
            for words in news:
                display.message(words)
            display.update(run.done, run.scoreboard)
            finished = not going and patience == _PATIENCE and run.condition is RunStatus.FINISHED
            patience = _PATIENCE if going else patience - 1
            if finished or patience <= 0:
                break
            wait(LOOK_EVERY)
    finally:
        display.stop()
    for line in [_end_words(run), *summary_lines(run.scoreboard, folder.path)]:
        display.message(line)
    return 0


def _end_words(run: FollowedRun) -> str:
    """How the run has ended, as one sentence."""
    found = run.condition
    if found is RunStatus.FINISHED:
        return "the run has finished"
    again = "" if run.planned is None or run.boundary is None else f"; --resume goes on from tick {run.boundary}"
    return f"the run {_ENDS[found]} at tick {run.ticks}{again}"


def _round_words(line: Round) -> str:
    """A round in words: how much is played, and how policies changed when it began."""
    head = f"round {line.number} from tick {line.start}: {pluralize(len(line.planned), 'match', 'matches')}"
    return "; ".join([head, *change_words(line)])


def _result_words(result: Mapping[str, Any]) -> str:
    """The rewards of a result."""
    rewards = {"episode_reward_mean": result["episode_reward_mean"], **result["policy_reward_mean"]}
    words = (f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in rewards.items())
    whole, *policies = words
    number = f"result {result['training_iteration']} at tick {result['ticks']}"
    return f"{number}: {whole}, policy_reward_mean of {', '.join(policies)} (result.json)"
