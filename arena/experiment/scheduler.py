"""Which trial runs when: a pure state machine. Events go in, instructions come out; it knows no process and no clock.

        start                 exit 0
PENDING ------> RUNNING ----------------> TERMINATED
   ^  ^            |  |
   |  |  failed,   |  |  asked to end     saved: PAUSED, or PRUNED if it was asked for that
   |  +- attempts -+  +-----------------> no ticks left: TERMINATED
   |     left      |
   |               +--------------------> ERROR: exit 2, or no attempts left
 PAUSED (an experiment that is resumed)
"""

from __future__ import annotations

import signal
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from arena.errors import MISTAKE
from arena.experiment.slots import Place, Slots

_STOPPED = "stopped; --resume goes on with it"
_SIGNALS = {number.value: number.name for number in signal.Signals}


class State(str, Enum):
    """The state of a trial."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    TERMINATED = "terminated"
    PRUNED = "pruned"
    ERROR = "error"

    @property
    def is_over(self) -> bool:
        """Whether the trial is not started again by itself."""
        return self in (State.TERMINATED, State.PRUNED, State.ERROR)


# events


class TrialAdded(NamedTuple):
    """There is a trial, new or of an experiment that is resumed."""

    trial: int
    processes: int
    state: State = State.PENDING
    attempt: int = 1
    gpus: float = 0.0


class TrialEnded(NamedTuple):
    """The process of a trial has ended."""

    trial: int
    exit: int  # its exit status; -n if signal n has killed it
    saved: bool = False  # whether it has ended by request, with ticks left
    why: str = ""  # the reason, where the exit status does not tell it


class PruneRequested(NamedTuple):
    """A trial is no longer worth its time: it saves, ends, and is over."""

    trial: int
    why: str = "pruned"


class StopRequested(NamedTuple):
    """A trial is to save and to end, until the experiment is resumed."""

    trial: int


class EndRequested(NamedTuple):
    """The experiment is to end; at once: without saving."""

    at_once: bool = False


Event = TrialAdded | TrialEnded | PruneRequested | StopRequested | EndRequested


# instructions


class Note(NamedTuple):
    """Put a change of state on record, other than a start."""

    trial: int
    state: State
    attempt: int
    exit: int | None = None
    why: str = ""


class Start(NamedTuple):
    """Start the process of a trial, or go on with it where it has a boundary."""

    trial: int
    attempt: int
    processes: int
    place: Place


class StopTrial(NamedTuple):
    """Ask a trial to save and to end."""

    trial: int


class Kill(NamedTuple):
    """Kill the processes of a trial."""

    trial: int


Instruction = Note | Start | StopTrial | Kill


@dataclass
class _Task:
    number: int
    processes: int
    gpus: float
    attempt: int
    place: Place | None = None
    stopping: bool = False  # asked to save and to end
    held: bool = False  # asked to end, it alone; if it is paused, it does not wait for slots
    pruned: str = ""  # why it is no longer worth its time; empty: it is
    killed: bool = False


class Scheduler:
    """Starts trials in the order of their numbers, as slots are free; keywords are keys of an experiment file."""

    def __init__(
        self, slots: Slots, *, at_once: int | None = None, retries: int = 0, most_errors: int | None = None
    ) -> None:
        self._slots, self._at_once, self._retries, self._most_errors = slots, at_once, retries, most_errors
        self._tasks: dict[int, _Task] = {}
        self._waiting: list[int] = []  # numbers of trials that can start, in order
        self._errors = 0
        self._running: set[int] = set()
        self._ending = False

    @property
    def is_over(self) -> bool:
        """Whether no trial runs, and none will start of those that are known."""
        return not self._running and (not self._waiting or self._closed)

    @property
    def first_waiting(self) -> int | None:
        """The trial that is the first to start when slots are free; None: no trial waits."""
        return self._waiting[0] if self._waiting else None

    @property
    def needs_trials(self) -> bool:
        """Whether another trial could start now, if there were one."""
        return not self._waiting and self._can_start

    @property
    def _can_start(self) -> bool:
        few = self._at_once is None or len(self._running) < self._at_once
        return few and not self._closed and any(self._slots.free)

    @property
    def _closed(self) -> bool:
        return self._ending or (self._most_errors is not None and self._errors >= self._most_errors)

    def handle(self, event: Event) -> list[Instruction]:
        """What is to be done, in order."""
        found: list[Instruction] = []
        match event:
            case TrialAdded(trial, processes, state, attempt, gpus):
                self._tasks[trial] = _Task(trial, processes, gpus, attempt)
                self._errors += state is State.ERROR
                if not state.is_over:
                    insort(self._waiting, trial)
            case TrialEnded():
                found += self._ended(self._tasks[event.trial], event)
            case PruneRequested() | StopRequested():
                task = self._tasks[event.trial]
                pruned = event.why if isinstance(event, PruneRequested) else ""
                if task.number in self._running and not task.stopping:
                    task.held, task.pruned, task.stopping = True, pruned, True
                    found.append(StopTrial(task.number))
                elif task.number in self._waiting or (task.held and task.number not in self._running):
                    self._waiting = [number for number in self._waiting if number != task.number]
                    task.held, state = not pruned, State.PRUNED if pruned else State.PAUSED
                    found.append(Note(task.number, state, task.attempt, why=pruned or _STOPPED))
            case EndRequested(at_once):
                self._ending = True
                for task in (self._tasks[number] for number in sorted(self._running)):
                    if at_once and not task.killed:
                        task.killed = True
                        found.append(Kill(task.number))
                    elif not at_once and not task.stopping:
                        task.stopping = True
                        found.append(StopTrial(task.number))
        return [*found, *self._start()]

    def _ended(self, task: _Task, event: TrialEnded) -> list[Instruction]:
        self._running.discard(task.number)
        if task.place is not None:
            self._slots.give_back(task.place)
        state, why = State.TERMINATED, ""
        if event.exit == 0 and event.saved:
            state = State.PRUNED if task.pruned else State.PAUSED
            why = task.pruned or (_STOPPED if task.held else "asked to end")
        elif event.exit != 0 and task.killed:
            state, why = (State.PRUNED if task.pruned else State.PAUSED), "killed"
        elif event.exit == MISTAKE:
            state, why = State.ERROR, "a mistake in its configuration (exit 2)"
        elif event.exit != 0:
            state = State.PENDING if task.attempt <= self._retries else State.ERROR
            killer = f"killed by {_SIGNALS.get(-event.exit, f'signal {-event.exit}')}"
            why = event.why or (f"exit {event.exit}" if event.exit > 0 else killer)
            if state is State.PENDING and task.held:
                state = State.PRUNED if task.pruned else State.PAUSED
        again = state is State.PENDING
        self._errors += state is State.ERROR
        task.attempt += again and event.exit != 0
        if again or (state is State.PAUSED and not self._ending and not task.held):
            insort(self._waiting, task.number)
        task.place, task.stopping, task.pruned, task.killed = None, False, "", False
        task.held &= state is State.PAUSED
        return [Note(task.number, state, task.attempt, event.exit, why)]

    def _start(self) -> Iterator[Instruction]:
        """The trials that fit now; later ones may pass one that has to wait."""
        waiting, self._waiting = self._waiting, []
        for index, number in enumerate(waiting):
            if not self._can_start:
                self._waiting += waiting[index:]
                return
            task = self._tasks[number]
            place = self._slots.take(task.processes, task.gpus)
            if place is None:
                self._waiting.append(number)
                continue
            task.place = place
            self._running.add(number)
            yield Start(number, task.attempt, task.processes, place)
