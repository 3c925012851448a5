"""`arena watch`: shows a run from the files that it writes, as `arena train` shows it; also from another machine.

Of the journals only new lines are read, from where the last look ended. Ticks are counted as `arena train` counts them:
those of all matches together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.config import load_config
from arena.config.members import players
from arena.errors import pluralize
from arena.experiment.folder import ExperimentFolder, is_experiment
from arena.league.round_text import change_text
from arena.league.rounds_file import lines_in, ticks_before
from arena.records.boundary import newest_tick
from arena.records.faults import fault_of, fault_text
from arena.records.folder import RunFolder, not_a_run, run_of_policy
from arena.records.formats import GamesLine, PlanFile, PlannedMatch, Round, read_document, update_of
from arena.records.journal import FollowedJournal, JournalReader, file_stamp
from arena.records.lock import is_locked
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Scoreboard
from arena.roles.status import RunStatus, planned_ticks, run_status
from arena.run.console import terminal_columns
from arena.terminal.display import make_display, silent_display, summary_lines
from arena.terminal.output import say

LOOK_EVERY = 1.0  # seconds
_START_LOOKS = 60  # for a run whose processes are starting
_PATIENCE = 5  # looks: a run that is started again or resumed writes again within this time

_ENDS = {
    RunStatus.ENDED_EARLY: "has ended early",
    RunStatus.FAILED: "has failed",
    RunStatus.KILLED: "was killed",
    RunStatus.UNDER_WAY: "goes on",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Follows the files of a run until it ends; waits up to a minute for a run to begin."
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of an experiment")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Follows the run, or the experiment; returns the exit status. Ctrl-C ends it, and does nothing to the run."""
    try:
        await_start(Path(arguments.run))
        if is_experiment(arguments.run):
            from arena.experiment.display import watch_experiment

            return watch_experiment(arguments.run, sys.stdout)
        return watch(arguments.run, columns=terminal_columns())
    except KeyboardInterrupt:
        return 0


def await_start(path: Path, *, wait: Callable[[float], None] = time.sleep) -> None:
    """Waits for the configuration of a run, which is written when all its processes are ready, or of an experiment."""
    folder, experiment = RunFolder(path), ExperimentFolder(path)
    for look in range(_START_LOOKS):
        may_begin = folder.may_be_starting or experiment.is_unbegun  # first: it may begin while this is read
        if folder.config.is_file() or is_experiment(path):
            return
        if not may_begin or run_of_policy(path):
            raise not_a_run(path)
        if look == 0:
            say(f"{path}: no run or experiment has begun here yet; waiting for one, Ctrl-C ends it")
        wait(LOOK_EVERY)
    raise not_a_run(path, f" (nothing has begun in {_START_LOOKS * LOOK_EVERY:.0f} s)")


class FollowedRun:
    """The state of a run as its files tell it.

    Attributes:
        config: of the run; replaced when the run is resumed with changes.
        scoreboard: the scores of the policies that may play in its matches; others play only in evaluations.
        planned: ticks of each match, in all rounds; None where the number of episodes decides.
        boundary: the newest tick from which the run can go on; None without one.
        ticks: the most ticks that a match has played, as far as the files tell.
        done: ticks of all matches of all rounds together, as far as the files tell.
        total: what `done` will be in the end, if later rounds have as many matches as the newest; None: not known.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._faults = FollowedJournal(folder.faults)
        self._rounds: Sequence[Round] = ()
        self._first_look = True
        self._begin()

    def _begin(self) -> None:
        """Starts to read from the beginning, except for rounds and faults, which were shown already."""
        self._config_stamp = file_stamp(self.folder.config)  # before it is read: what is written from now on is new
        self.config = load_config(self.folder.config)
        self.planned = planned_ticks(self.config)
        names = sorted(players(self.config), key=lambda name: self.config.policies[name].frozen)
        self.scoreboard = Scoreboard(names, snapshots=self.planned is None)
        self._episodes, self._metrics = FollowedJournal(self.folder.episodes), FollowedJournal(self.folder.metrics)
        self._games = FollowedJournal(self.folder.games)
        self._results = FollowedJournal(self.folder.results)
        self._lanes: Mapping[int, int] = {}  # by match
        self._played: dict[int, int] = {}  # ticks by match, as its last episode tells
        self._learned: dict[str, int] = {}  # ticks by policy, which all of its matches have played
        self._matches: Sequence[PlannedMatch] = ()  # of the newest round
        self.boundary: int | None = None
        self.ticks = self.done = 0
        self.total: int | None = None

    @property
    def condition(self) -> RunStatus:
        """The status of the run."""
        return run_status(self.folder, self.config, played=self.ticks)

    def look(self) -> list[str]:
        """Reads what is new; returns lines for the user: new rounds and faults (at first only the newest), results.

        Raises:
            ConfigError: a file is damaged, or of another version.
        """
        taken_up_again = file_stamp(self.folder.config) not in (None, self._config_stamp)
        if taken_up_again or self._episodes.was_cut or self._metrics.was_cut:
            self._begin()
        episodes = [*self._episodes.fresh(lambda journal: journal.lines(EpisodeRecord))]
        self.scoreboard.take(episodes)
        for episode in episodes:
            self._played[episode.match] = max(self._played.get(episode.match, 0), episode.tick)
        for update in self._metrics.fresh(lambda journal: journal.made(update_of)):
            self.scoreboard.update(update)
            self._learned[update.policy] = max(self._learned.get(update.policy, 0), update.ticks)
        faults = [
            f"fault at {line['time']}: {fault_text(line)}"
            for line in self._faults.fresh(lambda journal: journal.made(fault_of))
        ]
        known, self._rounds = len(self._rounds), lines_in(JournalReader(self.folder.rounds))
        if self.folder.plan.is_file():
            self._matches = read_document(self.folder.plan, PlanFile).matches
            self._lanes = {match.match: match.lanes for match in self._matches}
        if self._rounds:
            self._matches = self._rounds[-1].planned
        self.boundary = newest_tick(self.folder)
        self.ticks = max([self.boundary or 0, *self._played.values(), *self._learned.values()])
        start = self._rounds[-1].start if self._rounds else 0  # of the newest round
        before = ticks_before([line.start for line in self._rounds], [len(line.planned) for line in self._rounds])
        self.done, reached = before, max(start, self.boundary or 0)
        for match in self._matches:
            learned = (self._learned.get(policy, 0) for policy in match.players)
            self.done += max([reached, self._played.get(match.match, 0), *learned]) - start
        self.total = None
        if self.planned is not None and self._matches:
            self.total = before + (self.planned - start) * len(self._matches)
        rounds = []  # after a rollback, the newest round is new again
        for line in self._rounds[known:] if known <= len(self._rounds) else self._rounds[-1:]:
            extent = pluralize(len(line.planned), "match", "matches")
            rounds.append("; ".join([f"round {line.number} from tick {line.start}: {extent}", *change_text(line)]))
        if self._first_look:
            earlier = [f"{pluralize(len(faults), 'fault')} so far"] if len(faults) > 1 else []
            rounds, faults = rounds[-1:], [*earlier, *faults[-1:]]
        self._first_look = False
        for games in self._games.fresh(lambda journal: journal.lines(GamesLine)):
            self.scoreboard.games[games.match] = games.text(self._lanes[games.match])
        return [*rounds, *faults, *[*self._results.fresh(lambda journal: journal.made(_result_text))][-1:]]


def watch(
    path: Path | str,
    *,
    columns: int,
    wait: Callable[[float], None] = time.sleep,
    running: Callable[[Path], bool] = is_locked,
) -> int:
    """Shows a run until it has ended; returns the exit status.

    `columns` are those of the terminal, 0 if stdout is none and gets a line now and then; `running` tells whether a
    process writes into the folder.
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
            for text in news:
                display.message(text)
            display.update(run.done, run.scoreboard)
            finished = not going and patience == _PATIENCE and run.condition is RunStatus.FINISHED
            patience = _PATIENCE if going else patience - 1
            if finished or patience <= 0:
                break
            wait(LOOK_EVERY)
    finally:
        display.stop()
    condition = run.condition
    if condition is RunStatus.FINISHED:
        ended = "the run has finished"
    else:
        again = "" if run.planned is None or run.boundary is None else f"; --resume goes on from tick {run.boundary}"
        ended = f"the run {_ENDS[condition]} at tick {run.ticks}{again}"
    for line in [ended, *summary_lines(run.scoreboard, folder.path, run.config)]:
        display.message(line)
    return 0


def _result_text(result: Mapping[str, Any]) -> str:
    """The rewards of a result."""
    rewards = {"episode_reward_mean": result["episode_reward_mean"], **result["policy_reward_mean"]}
    whole, *policies = [f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in rewards.items()]
    number = f"result {result['training_iteration']} at tick {result['ticks']}"
    return f"{number}: {whole}, policy_reward_mean of {', '.join(policies)} (result.json)"
