"""Drives an experiment: starts its trials as the scheduler says, follows their results, and keeps the records.

The driver writes configurations, starts `arena train`, and reads the run folders. All that it knows is on the disk, so
that another driver goes on if this one is killed at any moment.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from arena.config import Config, resolved_yaml
from arena.config.decode import joined
from arena.errors import ConfigError
from arena.experiment.config import experiment_yaml
from arena.experiment.display import ExperimentDisplay
from arena.experiment.folder import (
    BEGINNING,
    REQUEST_KINDS,
    ExperimentFolder,
    Record,
    StateLine,
    now,
    read_record,
    trial_lock,
    write_state,
)
from arena.experiment.plan import ExperimentPlan
from arena.experiment.process import TrialProcess, wait_for_end
from arena.experiment.scheduler import (
    EndRequested,
    Event,
    Kill,
    Note,
    PruneRequested,
    Scheduler,
    Start,
    State,
    StopRequested,
    StopTrial,
    TrialAdded,
    TrialEnded,
)
from arena.experiment.searching import Pruning, Suggestion, suggest
from arena.experiment.slots import Slots
from arena.experiment.tables import run_name, trial_row, write_best, write_table
from arena.experiment.trials import Trial, digest_of
from arena.experiment.values import FollowedResults, TrialRow, judged
from arena.experiment.variation import Params, is_within
from arena.records.atomic import private, replacing
from arena.records.boundary import newest_tick
from arena.records.lock import RunLock, is_locked, lock_descriptor, sharing
from arena.roles.stop import ONE_REQUEST_SECONDS, handled_signals, restored_handlers, takes_signals

_WAIT_SECONDS = 0.25  # for the end of a process, between two looks for signals
_LOOK_SECONDS = 1.0  # between two looks at the results
_HELD_SECONDS = 60.0  # for the processes of an earlier attempt to leave a run folder
_KILLED_SECONDS = 5.0  # for the process of a trial to end when it was killed


class Driver:
    """Runs the trials of an experiment to their ends.

    Args:
        plan: of the experiment.
        folder: of it; made by `opened`.
        slots: that the trials share.
        display: shows how it goes.
        names_hosts: whether trials get `--hosts`.
        retry_errors: whether trials in `error` get their attempts again.
        only: the number of the one trial to run; None: all.
    """

    def __init__(
        self,
        plan: ExperimentPlan,
        folder: ExperimentFolder,
        slots: Slots,
        display: ExperimentDisplay,
        *,
        names_hosts: bool = False,
        retry_errors: bool = False,
        only: int | None = None,
    ) -> None:
        config = plan.file.config
        self.plan, self.folder, self._slots, self._display = plan, folder, slots, display
        self._names_hosts, self._retry_errors, self._only = names_hosts, retry_errors, only
        self._scheduler = Scheduler(
            slots, at_once=config.at_once, retries=config.retries, most_errors=config.most_errors
        )
        self._pruning = None if config.prune is None else Pruning(config.prune, config.metric.mode)
        self.records: dict[int, Record] = {}
        self._roles = {trial.digest: trial.roles for trial in plan.known}
        self._results: dict[int, FollowedResults] = {}
        self._rows: dict[int, TrialRow] = {}
        self._processes: dict[int, TrialProcess] = {}
        self._seconds: dict[int, float] = {}  # of attempts whose ends are not on record yet
        self._delayed: dict[int, tuple[Start, float]] = {}  # trials whose folders are held, and until when to wait
        self._configured: set[int] = set()  # trials whose configurations are written
        self._ended = 0  # trials that are over, for the order in which they ended
        self._stale = True  # whether the table on the disk is
        self._received: list[int] = []  # signals

    def run(self) -> int:
        """Runs everything; returns the exit status: 0, 1 if trials are in error, 130 or 143 after a signal.

        Raises:
            ConfigError: the folder holds trials of another experiment, or another process runs one of them.
            WriteError: the experiment's own files cannot be written.
        """
        self._display.start()
        try:
            with restored_handlers():
                self._listen()
                self._begin()
                self._loop()
        finally:
            for process in self._processes.values():  # after an error of the driver itself
                process.kill()
            for process in self._processes.values():
                process.wait(_KILLED_SECONDS)
            self._display.stop()
        is_left = any(not record.state.is_over for record in self.records.values() if record.wanted)
        if self._only is None:  # and suggestions that are not made yet
            is_left |= len(self.records) < self.plan.number
        if self._received and is_left:
            number = next((number for number in self._received if number != signal.SIGUSR1), None)
            if number is not None:
                return 128 + number
            with replacing(self.requeue):
                pass  # an empty file
            return 0
        return 1 if any(r.state is State.ERROR for r in self.records.values() if r.wanted) else 0

    @property
    def requeue(self) -> Path:
        """The file that says that the driver was asked to end and to be started again."""
        return self.folder.requeue if self._only is None else self.folder.path / f"requeue-{self._only}"

    # the beginning

    def _begin(self) -> None:
        """Puts all known trials on record, and gives those that are not over to the scheduler."""
        known = self.folder.read() if self._only is None else []
        self.requeue.unlink(missing_ok=True)
        self.records = {record.number: record for record in known}
        self._ended = 1 + max((r.order for r in known if r.order is not None), default=-1)
        if self._only is not None:  # other processes may run other trials
            trial, record = self.plan.known[self._only], read_record(self._only, self.folder.state_path(self._only))
            if record is None:
                self._put_on_record(self._only, trial)
            elif record.digest == trial.digest:
                self.records[self._only] = record
            else:
                text = (
                    f"holds another trial {self._only} than the experiment asks for; name another folder with --run-dir"
                )
                raise ConfigError(text, source=str(self.folder.path))
        else:
            adaptive = self.plan.search is not None and self.plan.search.adaptive
            numbers = {record.digest: record.number for record in known}
            if adaptive:
                self._check_suggestions()
            wanted = {numbers[trial.digest] for trial in self.plan.known if trial.digest in numbers}
            for number, record in self.records.items():  # which of them the experiment asks for now
                is_planned = number < self.plan.number if adaptive else number in wanted
                if record.wanted != is_planned:
                    line = msgspec.structs.replace(record.last, time=now(), wanted=is_planned, seconds=None)
                    write_state(self.folder.state_path(number), [line])
                    record.last = line
            fresh = 1 + max(self.records, default=-1)
            for trial in self.plan.known:
                if trial.digest not in numbers:
                    self._put_on_record(fresh, trial)
                    fresh += 1
        for number, kind in self.folder.requested():
            if number in self.records:  # what was asked of an earlier driver
                self.folder.request_path(number, kind).unlink(missing_ok=True)
        for record in self.records.values():
            self._follow(record)
            self._results[record.number].look()
        if self._pruning is not None:  # in the order in which the trials ended; then those that have not
            last = len(self.records)
            for record in sorted(self.records.values(), key=lambda r: (last if r.order is None else r.order, r.number)):
                if record.order is not None or self._results[record.number].points:
                    self._pruning.report(record.number, self._results[record.number].points)
                if record.order is not None:
                    self._end_pruning(record)
        for number, record in sorted(self.records.items()):
            if record.wanted:
                self._take_up(number, record)
                self._rows[number] = self._row(record)
        self._look()

    def _check_suggestions(self) -> None:
        """Refuses a search if a suggestion on record is not the trial that its values give today."""
        repeat = self.plan.file.config.repeat
        for number, record in sorted(self.records.items()):
            for each in self.plan.trials.variants[0].varied:
                value = record.params.get(each.path)  # of a place that varies only now: refused below
                if each.path in record.params and not is_within(each.form, value):
                    raise ConfigError(
                        f"found a space without {value!r}, which an earlier suggestion has; keep it in, or search in "
                        "another folder",
                        path=joined("set", each.path),
                    )
            self._config_of(number, record)
            trials = [*self.plan.trials.repeated(record.variant, record.params)]
            self._roles.update((trial.digest, trial.roles) for trial in trials)
            if trials[number % repeat].digest != record.digest:
                raise ConfigError(
                    "the experiment has changed: its earlier suggestions would be other trials today; a search can be "
                    "resumed with the same run, or started in another folder",
                    source=str(self.folder.path),
                )

    def _put_on_record(self, number: int, trial: Trial) -> None:
        line = StateLine(
            now(),
            State.PENDING,
            variant=trial.variant,
            params=dict(trial.params),
            seed=trial.seed,
            digest=trial.digest,
            folder=self.folder.folder_name(number, self.plan.trials.tag(trial)),
        )
        write_state(self.folder.state_path(number), [line])
        self.records[number] = Record.of(number, line)
        self._roles[trial.digest] = trial.roles
        self._follow(self.records[number])

    def _follow(self, record: Record) -> None:
        results = self.folder.run_folder(record).results
        self._results[record.number] = FollowedResults(results, self.plan.file.config.metric.name)

    def _take_up(self, number: int, record: Record) -> None:
        """Gives a trial to the scheduler, in the state in which it goes on."""
        state, attempt = record.state, record.last.attempt
        if state is State.RUNNING:  # without a driver: it was interrupted
            state = State.PENDING
        if state is State.ERROR and self._retry_errors:
            state, attempt = State.PENDING, 1
        run = self.folder.run_folder(record)
        # A run may have come to its end, although no driver has put that on record; without the last result, it is
        # resumed, and writes that.
        if not state.is_over and run.config.is_file() and not is_locked(run.path) and self._results[number].done:
            self._note(Note(number, State.TERMINATED, attempt, 0))
            state = State.TERMINATED
        config = self.plan.file.config
        roles = self._roles[record.digest]
        processes = self.plan.processes(self._slots, roles=roles, alone=self._only is not None)
        self._handle(TrialAdded(number, processes, state, attempt, config.gpus))

    def _end_pruning(self, record: Record) -> None:
        if self._pruning is not None:
            value = None if record.state is State.ERROR else self._value(record.number)
            self._pruning.end(record.number, value, pruned=record.state is State.PRUNED)

    # the loop

    def _loop(self) -> None:
        looked = -_LOOK_SECONDS
        handled = 0  # signals
        while True:
            while handled < len(self._received):
                self._handle(EndRequested(at_once=handled > 0 and self._received[handled] != signal.SIGUSR1))
                handled += 1
            for number, (start, until) in [*self._delayed.items()]:
                del self._delayed[number]
                if self._received or time.monotonic() >= until:
                    why = f"a process of an earlier attempt has not left its folder within {_HELD_SECONDS:.0f} s"
                    self._handle(
                        TrialEnded(number, 0, saved=True) if self._received else TrialEnded(number, 1, why=why)
                    )
                else:
                    self._start(start, until=until)
            for number, process in [*self._processes.items()]:
                if (code := process.exit) is not None:
                    self._seconds[number] = self._processes.pop(number).seconds
                    self._take_results(number)  # a short trial may not have been looked at before
                    saved = self.folder.run_folder(self.records[number]).requeue.exists()
                    self._handle(TrialEnded(number, code, saved=saved))
            if not handled:
                self._suggest()
            if self._scheduler.is_over and not self._delayed:
                break
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                self._look()
                self._take_requests()
            if (following := self._scheduler.first_waiting) is not None:
                self._write_config(following)  # now, while others play: a small trial takes 300 ms, the disk 5 to 20
            wait_for_end(self._processes.values(), _WAIT_SECONDS)
        self._look()

    def _look(self) -> None:
        """Reads what running trials have reached, asks whether to prune them, and brings the tables up to date."""
        for number in [*self._processes]:
            is_unpromising = self._take_results(number)
            self._rows[number] = self._row(self.records[number])
            if is_unpromising:
                self._handle(PruneRequested(number))
        rows = [self._rows[number] for number in sorted(self._rows)]
        self._display.update(rows)
        if self._stale and self._only is None:
            write_table(self.folder, self.plan.trials.labels, rows)
            write_best(self.folder, self.plan.file.config, rows)
            self._stale = False

    def _take_requests(self) -> None:
        """Stops and prunes the trials for which a request was left."""
        for number, kind in self.folder.requested():
            record = self.records.get(number)
            if record is None or number in self._delayed:  # another process runs it, or it starts now
                continue
            if record.wanted and not record.state.is_over and kind == "stop":
                self._handle(StopRequested(number))
            elif record.wanted and not record.state.is_over:
                self._handle(PruneRequested(number, "pruned by request"))
            else:
                self.folder.request_path(number, kind).unlink(missing_ok=True)

    def _take_results(self, number: int) -> bool:
        """Reads a trial's new results, and returns whether the pruner wants it to end for them."""
        fresh = self._results[number].look()
        return bool(fresh) and self._pruning is not None and self._pruning.report(number, fresh)

    def _suggest(self) -> None:
        """Makes the next trials of an adaptive search, when one can start."""
        search, config = self.plan.search, self.plan.file.config
        if search is None or not search.adaptive or self._only is not None:
            return
        while self._scheduler.needs_trials and len(self.records) < self.plan.number:
            suggestion = len(self.records) // config.repeat
            begun = self.records.get(suggestion * config.repeat)  # if a kill came between the trials of a suggestion
            if begun is not None:
                params: Params = begun.params
            else:
                space, mode = self.plan.trials.variants[0].varied, config.metric.mode
                known = self._suggestions(suggestion)
                params = suggest(search, space, known, number=suggestion, seed=self.plan.seed, mode=mode)
            for place, trial in enumerate(self.plan.trials.repeated("", params)):
                number = suggestion * config.repeat + place
                if number in self.records:
                    continue
                self._put_on_record(number, trial)
                self._take_up(number, self.records[number])
                self._rows[number] = self._row(self.records[number])

    def _suggestions(self, count: int) -> list[Suggestion]:
        """The earlier suggestions: those that are over in the order of their ends, then the others."""
        repeat = self.plan.file.config.repeat
        over, others = [], []
        for suggestion in range(count):
            records = [self.records[suggestion * repeat + place] for place in range(repeat)]
            orders = [record.order for record in records if record.order is not None]
            if len(orders) < repeat:
                others.append(Suggestion(records[0].params, "running", None))
                continue
            known = [self._value(r.number) for r in records if r.state is not State.ERROR]
            values = [value for value in known if value is not None]
            state = "pruned" if records[0].state is State.PRUNED else "complete" if values else "fail"
            points = self._results[records[0].number].points if repeat == 1 else []
            value = sum(values) / len(values) if values else None
            if state == "pruned" and value is None:
                state = "fail"
            over.append((max(orders), Suggestion(records[0].params, state, value, points)))
        return [*(each for _, each in sorted(over, key=lambda pair: pair[0])), *others]

    def _handle(self, event: Event) -> None:
        """Gives an event to the scheduler, and does what it says."""
        for instruction in self._scheduler.handle(event):
            match instruction:
                case Note():
                    self._note(instruction)
                case Start():
                    self._start(instruction)
                case StopTrial(trial):
                    if trial in self._processes:
                        self._processes[trial].ask()
                case Kill(trial):
                    if trial in self._processes:
                        self._processes[trial].kill()

    def _note(self, note: Note) -> None:
        """Puts a change of state on record."""
        record, order = self.records[note.trial], None
        if note.state.is_over:
            order, self._ended = self._ended, self._ended + 1
        tick, seconds = newest_tick(self.folder.run_folder(record)), self._seconds.pop(note.trial, None)
        line = StateLine(now(), note.state, note.attempt, note.exit, tick, note.why, order=order, seconds=seconds)
        self._write(record, line)
        for kind in REQUEST_KINDS:  # what was asked for is done, or came too late
            self.folder.request_path(note.trial, kind).unlink(missing_ok=True)
        if note.state.is_over:
            self._end_pruning(record)
        value = self._value(record.number)
        metric = "" if value is None else f", {self.plan.file.config.metric.name} {value:.6g}"
        why = f": {line.why}" if line.why else ""
        at = "" if tick is None else f" at tick {tick}"
        state = "failed" if line.state is State.PENDING else line.state.value
        self._display.message(f"trial {record.folder}: {state}{at}{why}{metric}")

    def _write(self, record: Record, line: StateLine) -> None:
        write_state(self.folder.state_path(record.number), [line])
        record.take(line)
        self._rows[record.number] = self._row(record)
        self._stale = True

    # one trial

    def _start(self, start: Start, *, until: float | None = None) -> None:
        """Starts the process of a trial; later, where processes of an earlier attempt are still in its folder."""
        record = self.records[start.trial]
        run = self.folder.run_folder(record)
        if is_locked(run.path):
            self._delayed[start.trial] = start, until or time.monotonic() + _HELD_SECONDS
            return
        resume = run.config.is_file() and newest_tick(run) is not None
        if not resume and not run.may_be_starting:  # a folder without a boundary is moved out of the way
            number = max(1, start.attempt - 1)
            while (aside := run.path.with_name(f"{run.path.name}.attempt-{number}")).exists():
                number += 1
            shutil.move(run.path, aside)
        self._write_config(start.trial)
        arguments = ["train", str(self.folder.config_path(start.trial)), f"--run-dir={run.path}"]
        arguments += [f"--ranks={start.processes}", *[f"--hosts={start.place.text}"] * self._names_hosts]
        arguments += ["--resume"] * resume
        devices = [name for name, _ in start.place.devices] if start.place.devices else None
        process = TrialProcess(arguments, self.folder.log_path(start.trial), devices=devices)
        self._processes[start.trial] = process
        hosts = start.place.text
        line = StateLine(now(), State.RUNNING, attempt=start.attempt, hosts=hosts, pid=process.pid)
        self._write(record, line)
        again = f", attempt {start.attempt}" if start.attempt > 1 else ""
        alone = ", alone, as it has more processes than there are cores" if start.place.crowded else ""
        goes_on = "goes on" if resume else "started"
        self._display.message(f"trial {record.folder}: {goes_on} on {hosts}{again}{alone}")

    def _write_config(self, number: int) -> None:
        """Writes the configuration of a trial, with the `stop` that holds now, unless this driver has done so."""
        if number in self._configured:
            return
        path = self.folder.config_path(number)
        text = resolved_yaml(self._config_of(number, self.records[number])).encode()
        if not path.is_file() or path.read_bytes() != text:
            with replacing(path) as file:
                file.write(text)
        self._configured.add(number)

    def _config_of(self, number: int, record: Record) -> Config:
        variant = next(each for each in self.plan.trials.variants if each.name == record.variant)
        repetition = record.seed - int(record.params.get("seed", variant.seed))
        name = run_name(self.plan.file.config.name, number)
        config = self.plan.trials.config_of(record.variant, record.params, repetition, name=name)
        if digest_of(config) != record.digest or not {*record.params} <= {each.path for each in variant.varied}:
            text = "has other values than the experiment asks for; restore it, or start in another folder"
            raise ConfigError(text, source=str(self.folder.state_path(number)))
        return config

    def _value(self, number: int) -> float | None:
        return judged(self._results[number].values, self.plan.file.config.metric)

    def _row(self, record: Record) -> TrialRow:
        return trial_row(self.folder, record, self._results[record.number], self.plan.file.config)

    # signals

    def _listen(self) -> None:
        """Notes SIGINT, SIGTERM, SIGHUP and SIGUSR1; does nothing outside of the main thread."""
        first: list[float] = []  # the time of the first signal other than SIGUSR1

        def note_signal(number: int, _frame: FrameType | None) -> None:
            now = time.monotonic()
            if number == signal.SIGUSR1 or not first or now >= first[0] + ONE_REQUEST_SECONDS:
                self._received.append(number)
            if number != signal.SIGUSR1 and not first:
                first.append(now)

        for number in handled_signals() if takes_signals() else ():
            if number != signal.SIGUSR2:
                signal.signal(number, note_signal)


@contextmanager
def opened(plan: ExperimentPlan, folder: ExperimentFolder, *, resume: bool, only: int | None = None) -> Iterator[None]:
    """Makes the folder of an experiment, or takes it up again, and holds its lock.

    Raises:
        ConfigError: it holds files, or another experiment, or another process is at work in it.
    """

    def refuse_another() -> None:
        name = plan.file.config.name
        if folder.config.is_file() and (found := folder.read_config().name) != name:
            text = f"holds the experiment {found!r}, not {name!r}; name another folder with --run-dir"
            raise ConfigError(text, source=str(folder.path))

    unbegun = folder.is_unbegun  # first: a process that begins it now, for another trial, writes `config` before others
    there = folder.config.is_file()
    refuse_another()  # and again below, when no other process can begin one
    if not unbegun and not (there and (resume or only is not None)):
        text = "holds files already; go on with an experiment by --resume, or name another folder"
        raise ConfigError(text, source=str(folder.path))
    folder.make()
    with ExitStack() as stack:
        if only is None:
            stack.enter_context(RunLock.take(folder.path))
            refuse_another()
            folder.write_config(experiment_yaml(plan.file.config))
        else:
            stack.enter_context(sharing(folder.path))
            with open(folder.path / BEGINNING, "ab", opener=private) as file:  # other processes run other trials
                lock_descriptor(file.fileno(), wait=True)
                refuse_another()
                if not folder.config.is_file():
                    folder.write_config(experiment_yaml(plan.file.config))
            stack.enter_context(trial_lock(folder.state_path(only)))
        yield
