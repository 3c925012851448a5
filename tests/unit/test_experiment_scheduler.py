"""The scheduler of an experiment, without a process: by hand, and against a simulated machine with random faults."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.experiment.config import parse_experiment
from arena.experiment.plan import plan_experiment, slots_for
from arena.experiment.scheduler import (
    EndRequested,
    Event,
    Instruction,
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
from arena.experiment.slots import Slots
from arena.plan.hosts import Host
from experiment_folders import RUN


def scheduler(slots: int = 2, **limits: int) -> Scheduler:
    return Scheduler(Slots([Host("here", slots)]), **limits)


def starts(instructions: list[Instruction]) -> list[int]:
    return [found.trial for found in instructions if isinstance(found, Start)]


def notes(instructions: list[Instruction]) -> list[tuple[int, State]]:
    return [(found.trial, found.state) for found in instructions if isinstance(found, Note)]


def add(machine: Scheduler, number: int, processes: int = 1) -> list[Instruction]:
    return [done for trial in range(number) for done in machine.handle(TrialAdded(trial, processes))]


def test_trials_start_in_order_as_slots_are_free() -> None:
    machine = scheduler(2)
    assert starts(add(machine, 4)) == [0, 1]
    assert starts(machine.handle(TrialEnded(1, 0))) == [2]
    assert starts(machine.handle(TrialEnded(0, 0))) == [3]
    assert not machine.is_over
    machine.handle(TrialEnded(2, 0))
    machine.handle(TrialEnded(3, 0))
    assert machine.is_over


def test_small_trials_pass_a_large_one_that_waits() -> None:
    machine = scheduler(3)
    sizes = [2, 3, 1, 1]
    found = [done for trial, size in enumerate(sizes) for done in machine.handle(TrialAdded(trial, size))]
    assert starts(found) == [0, 2]
    assert starts(machine.handle(TrialEnded(0, 0))) == [3]


@pytest.mark.parametrize("code", [1, -9, 139])
def test_failed_trial_is_retried_then_in_error(code: int) -> None:
    machine = scheduler(1, retries=1)
    add(machine, 2)
    found = machine.handle(TrialEnded(0, code))
    assert notes(found) == [(0, State.PENDING)]
    assert [done.attempt for done in found if isinstance(done, Start)] == [2]
    found = machine.handle(TrialEnded(0, code))
    assert notes(found)[0] == (0, State.ERROR) and starts(found) == [1], "the others continue"


def test_configuration_mistake_is_not_retried() -> None:
    machine = scheduler(1, retries=5)
    add(machine, 1)
    assert notes(machine.handle(TrialEnded(0, 2))) == [(0, State.ERROR)]


def test_no_trial_starts_after_too_many_errors() -> None:
    machine = scheduler(2, most_errors=1)
    add(machine, 5)
    assert starts(machine.handle(TrialEnded(0, 1))) == []
    assert not machine.is_over, "the other one still runs"
    machine.handle(TrialEnded(1, 0))
    assert machine.is_over


def test_a_request_to_end_is_passed_on_once_and_leaves_trials_paused() -> None:
    machine = scheduler(2)
    add(machine, 3)
    assert machine.handle(EndRequested()) == [StopTrial(0), StopTrial(1)]
    assert machine.handle(EndRequested()) == []
    assert notes(machine.handle(TrialEnded(0, 0, saved=True))) == [(0, State.PAUSED)]
    assert notes(machine.handle(TrialEnded(1, 0))) == [(1, State.TERMINATED)], "it had no tick left"
    assert machine.is_over


def test_second_request_kills_trials_once_and_leaves_them_paused() -> None:
    machine = scheduler(2)
    add(machine, 2)
    machine.handle(StopRequested(0))
    assert machine.handle(EndRequested()) == [StopTrial(1)]
    assert machine.handle(EndRequested(at_once=True)) == [Kill(0), Kill(1)]
    assert machine.handle(EndRequested(at_once=True)) == []
    assert notes(machine.handle(TrialEnded(0, -9))) == [(0, State.PAUSED)]
    assert machine.handle(TrialEnded(1, -9)) == [Note(1, State.PAUSED, 1, -9, "killed")]
    assert machine.is_over


def test_a_pruned_trial_is_asked_to_save_and_frees_its_slot() -> None:
    machine = scheduler(1)
    add(machine, 2)
    assert machine.handle(PruneRequested(0)) == [StopTrial(0)]
    assert machine.handle(PruneRequested(0)) == []
    found = machine.handle(TrialEnded(0, 0, saved=True))
    assert notes(found)[0] == (0, State.PRUNED) and starts(found) == [1]


@pytest.mark.parametrize(
    ("request_", "state"), [(StopRequested, State.PAUSED), (PruneRequested, State.PRUNED)], ids=["stop", "prune"]
)
def test_one_trial_is_ended_by_request_whether_it_runs_or_waits(request_: type[Any], state: State) -> None:
    machine = scheduler(1, retries=1)
    add(machine, 4)
    assert notes(machine.handle(request_(2))) == [(2, state)], "it had not begun"
    paused = state is State.PAUSED
    assert notes(machine.handle(StopRequested(2))) == [(2, state)] * paused, "each request is answered"
    assert notes(machine.handle(PruneRequested(2))) == [(2, State.PRUNED)] * paused
    assert machine.handle(PruneRequested(2)) == []
    assert machine.handle(request_(0)) == [StopTrial(0)]
    found = machine.handle(TrialEnded(0, 0, saved=True))
    assert notes(found) == [(0, state)] and starts(found) == [1]
    machine.handle(request_(1))
    found = machine.handle(TrialEnded(1, 1))  # it fails while it saves
    assert notes(found) == [(1, state)] and starts(found) == [3]
    machine.handle(TrialEnded(3, 0))
    assert machine.is_over


def test_trial_ended_by_another_user_is_continued() -> None:
    machine = scheduler(1)
    add(machine, 1)
    found = machine.handle(TrialEnded(0, 0, saved=True))
    assert notes(found) == [(0, State.PAUSED)]
    assert [done.attempt for done in found if isinstance(done, Start)] == [1], "that was no failure"


def test_resumed_experiment_starts_unfinished_trials() -> None:
    machine = scheduler(4)
    states = [State.TERMINATED, State.PAUSED, State.ERROR, State.PRUNED, State.PENDING]
    found = [done for trial, state in enumerate(states) for done in machine.handle(TrialAdded(trial, 1, state))]
    assert starts(found) == [1, 4]


@pytest.mark.parametrize("seed", range(6))
def test_random_events_keep_slots_states_and_attempts_consistent(seed: int) -> None:
    """A simulated machine: trials end, fail, are pruned and asked to end at random; an oracle counts their slots."""
    rng = random.Random(seed)
    hosts = [Host(name, rng.randint(1, 4)) for name in "abc"[: rng.randint(1, 3)]]
    total, retries = sum(host.slots for host in hosts), rng.randint(0, 2)
    at_once = rng.choice([None, 1, 3])
    machine = Scheduler(Slots(hosts, crowding=False), at_once=at_once, retries=retries)
    sizes = [rng.randint(1, total) for _ in range(20)]
    held: dict[int, Start] = {}
    states: dict[int, State] = {}
    failures: Counter[int] = Counter()
    asked: set[int] = set()
    stopped: set[int] = set()
    ending = False
    waiting: list[Event] = [TrialAdded(trial, size) for trial, size in enumerate(sizes)]
    for _ in range(3000):
        if waiting:
            event = waiting.pop(0)
        elif held and rng.random() < 0.7:
            trial = rng.choice(sorted(held))
            code = rng.choice([0, 0, 0, 1, -9, 2]) if trial not in asked else rng.choice([0, 0, 1])
            event = TrialEnded(trial, code, saved=code == 0 and trial in asked and rng.random() < 0.8)
        elif held and rng.random() < 0.3:
            event = PruneRequested(rng.choice(sorted(held)))
        elif rng.random() < 0.05:
            trial = rng.randrange(20)
            event = rng.choice([PruneRequested(trial), StopRequested(trial)])
            stopped |= {trial} if isinstance(event, StopRequested) else set()
        elif rng.random() < 0.01:
            event, ending = EndRequested(), True
        else:
            continue
        if isinstance(event, TrialEnded):
            del held[event.trial]
            asked.discard(event.trial)
            failures[event.trial] += event.exit in (1, -9)
        for instruction in machine.handle(event):
            match instruction:
                case Start(trial):
                    assert trial not in held and not ending
                    held[trial] = instruction
                    assert sum(host.slots for host in instruction.place.hosts) == sizes[trial]
                case Note(trial, state):
                    assert not states.get(trial, State.PENDING).is_over, "a trial that is over stays over"
                    states[trial] = state
                case StopTrial(trial):
                    assert trial in held and trial not in asked
                    asked.add(trial)
        taken = Counter[str]()
        for start in held.values():
            for host in start.place.hosts:
                taken[host.name] += host.slots
        assert all(taken[host.name] <= host.slots for host in hosts)
        assert at_once is None or len(held) <= at_once
        if machine.is_over:
            break
    assert machine.is_over and not held
    assert all(number <= retries + 1 for number in failures.values())
    if not ending:
        assert all(
            states[trial].is_over or (states[trial], trial in stopped) == (State.PAUSED, True) for trial in range(20)
        )


# slots


def test_processes_stay_on_one_host_where_they_fit_else_on_neighbors() -> None:
    slots = Slots([Host("a", 2), Host("b", 4), Host("c", 2)], crowding=False)
    assert slots.take(3).text == "b:3"  # type: ignore[union-attr]
    assert slots.take(2).text == "a:2"  # type: ignore[union-attr]
    spread = slots.take(3)
    assert spread is not None and spread.text == "b:1,c:2"
    assert slots.take(1) is None
    slots.give_back(spread)
    assert slots.take(2).text == "c:2"  # type: ignore[union-attr]


def test_a_trial_with_too_many_processes_runs_alone_on_one_host() -> None:
    slots = Slots([Host("a", 2)])
    small = slots.take(1)
    assert small is not None and slots.take(5) is None
    slots.give_back(small)
    large = slots.take(5)
    assert large is not None and large.crowded and slots.take(1) is None
    assert not Slots([Host("a", 2)], crowding=False).room(5, most=9)


def test_two_trials_share_a_device_and_others_wait() -> None:
    slots = Slots([Host("a", 8)], {"a": ["0", "1"]})
    places = [slots.take(1, 0.5) for _ in range(5)]
    assert [place and place.devices for place in places] == [
        (("0", 0.5),), (("0", 0.5),), (("1", 0.5),), (("1", 0.5),), None,
    ]  # fmt: skip
    assert places[2] is not None and places[3] is not None
    slots.give_back(places[2])
    assert slots.take(1, 1.0) is None, "half of it is taken"
    slots.give_back(places[3])
    whole = slots.take(1, 1.0)
    assert whole is not None and whole.devices == (("1", 1.0),)
    assert (slots.room(1, 3.0, most=9), slots.room(1, 0.5, most=9), slots.room(3, 1.0, most=9)) == (0, 4, 2)


@pytest.mark.parametrize(
    ("hosts", "devices", "keys", "processes", "together"),
    [
        ("a:8", 0, {"repeat": 4}, 2, 4),
        ("a:8", 0, {"repeat": 9}, 1, 8),
        ("a:8", 0, {"repeat": 2}, 4, 2),  # each has four roles
        ("a:8", 0, {"repeat": 9, "at_once": 3}, 2, 3),
        ("a:3,b:3", 0, {"repeat": 4, "ranks": 2}, 2, 3),  # one of them on both hosts
        ("a:8", 2, {"repeat": 9, "gpus": 1}, 4, 2),
        ("a:8", 1, {"repeat": 9, "gpus": 0.25}, 2, 4),
        ("a:4,b:4", 1, {"repeat": 1, "gpus": 1}, 4, 1),  # devices are those of one host
        ("a:6,b:2", 1, {"repeat": 2, "gpus": 1}, 2, 2),  # a trial on each host, as large as the smaller one allows
        ("a:3,b:3", 1, {"repeat": 9, "gpus": 1, "ranks": 2}, 2, 2),
    ],
)
def test_as_many_trials_start_as_the_plan_says(
    hosts: str, devices: int, keys: dict[str, Any], processes: int, together: int
) -> None:
    plan = plan_experiment(parse_experiment({"run": RUN, **keys}))
    slots = slots_for(plan, hosts, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices)))})
    assert (plan.processes(slots), plan.at_once(slots)) == (processes, together)
    machine = Scheduler(slots, at_once=plan.file.config.at_once)
    trials = [TrialAdded(number, processes, gpus=plan.file.config.gpus) for number in range(plan.number)]
    assert len(starts([done for trial in trials for done in machine.handle(trial)])) == together


@pytest.mark.parametrize(
    ("cores", "keys", "said"),
    [
        (2, {"at_once": 3}, "4 trials of 1 process, 2 at the same time (not 3: 2 cores)\n"),
        (2, {"at_once": 9, "ranks": 2}, "4 trials of 2 processes, 1 at the same time (not 4: 2 cores)\n"),
        (2, {"at_once": 2}, "4 trials of 1 process, 2 at the same time\n"),
        (2, {}, "4 trials of 1 process, 2 at the same time\n"),
        (8, {"at_once": 3, "gpus": 1}, "4 trials of 4 processes, 1 at the same time (not 3: 8 cores, gpus: 1)\n"),
    ],
)
def test_fewer_trials_at_once_than_asked_for_are_explained(
    cores: int,
    keys: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("arena.experiment.plan.usable_cores", lambda: (cores, ""))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"run": RUN, "repeat": 4, **keys}))
    assert main(["experiment", str(tmp_path / "sweep.yaml"), "--plan"]) == 0
    assert capsys.readouterr().out.startswith(f"sweep: {said}")
