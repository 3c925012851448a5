"""A run that is started again after a death goes on from the newest boundary of its folder."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config, resolved_yaml
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import Boundary
from arena.records.journal import JournalReader
from arena.roles.perform import failure_of
from arena.roles.run import Leg, Run
from arena.roles.state import RunState
from arena.roles.stop import Stop
from arena.run.lead import Leader, _hosts_text, log_death
from arena.run.mpirun import RESTART_VARIABLE, Restart
from arena.run.prepare import restarted
from arena.run.resume import forget

DATA = {
    "name": "test",
    "ticks": 300,
    "checkpoint_every": 100,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {
        "blue": {"algorithm": "ppo"},
        "red": {"algorithm": "ppo"},
        "old": {"algorithm": "ppo", "frozen": True},
    },
    "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 2, "copies": 2}],
}


def run_of(path: Path, **leg: Any) -> Run:
    return Run(make_plan(parse_config(DATA, source="test")), path, leg=Leg(start=100, **leg))


def begun(path: Path, **config: Any) -> Run:
    """A run that was played from tick 100 on, in a folder with boundaries at 0, 100 and 200."""
    parsed = parse_config({**DATA, **config}, source="test")
    folder = RunFolder.open(path / "run")
    for tick in (0, 100, 200):
        boundary.save(folder, Boundary(tick=tick, updates={"blue": tick // 10}, left=[(0, 1)] if tick else []))
    folder.write_config(resolved_yaml(parsed))
    return Run(make_plan(parsed), folder.path, leg=Leg(start=100))


def death(folder: RunFolder, *, begun: bool = True) -> Restart:
    facts = str(folder.path), str(folder.path), begun, (5,), "rank 5 on n1 has died"
    return Restart(*facts, where=("n1",), hosts=("n0",) * 7, died=time.time())


@pytest.mark.parametrize("ranks", [7, 2])
def test_restart_goes_back_to_the_newest_boundary(ranks: int, tmp_path: Path) -> None:
    run = restarted(death(begun(tmp_path).folder), ranks=ranks, resume=False)
    assert run is not None
    assert (run.leg.start, run.leg.updates, run.leg.left) == (200, {"blue": 20}, {(0, 1)})
    assert (run.begun, run.resumed, run.concluded, run.plan.processes) == (True, True, False, ranks)


def test_restart_plays_the_boundary_before_a_damaged_one(tmp_path: Path) -> None:
    folder = begun(tmp_path).folder
    (folder.boundaries / "000000000200.json").write_text("{")
    run = restarted(death(folder), ranks=7, resume=False)
    assert run is not None and run.leg.start == 100


def test_restart_reports_if_no_boundary_is_intact(tmp_path: Path) -> None:
    folder = begun(tmp_path).folder
    for path in folder.boundaries.iterdir():
        path.write_text("{")
    with pytest.raises(ConfigError, match="the run has begun, but no boundary in its folder is whole"):
        restarted(death(folder), ranks=7, resume=False)


def test_restart_without_a_boundary_begins_with_the_first_tick(tmp_path: Path) -> None:
    folder = begun(tmp_path).folder
    for path in folder.boundaries.iterdir():
        path.unlink()
    lines = [{"tick": 60}, {"tick": 90}]
    folder.episodes.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = restarted(death(folder), ranks=7, resume=False)
    assert run is not None and (run.leg.start, run.begun) == (0, True)
    assert forget(run) == 90, "the ticks that are played again"
    assert folder.episodes.read_bytes() == b""


@pytest.mark.parametrize(("resume", "known", "found"), [(False, False, True), (True, False, False), (True, True, True)])
def test_run_that_has_not_begun_is_prepared_again(resume: bool, known: bool, found: bool, tmp_path: Path) -> None:
    folder = begun(tmp_path).folder
    assert (restarted(death(folder, begun=known), ranks=7, resume=resume) is not None) == found
    folder.config.unlink()
    assert restarted(death(folder, begun=False), ranks=7, resume=False) is None


def test_death_at_the_last_boundary_ends_the_run(tmp_path: Path) -> None:
    run = restarted(death(begun(tmp_path, ticks=200).folder), ranks=7, resume=False)
    assert run is not None and run.concluded


def test_death_reaches_the_new_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = death(RunFolder(tmp_path))
    monkeypatch.setenv(RESTART_VARIABLE, told.variable()[RESTART_VARIABLE])
    assert (Restart.take(), Restart.take()) == (told, None), "a program that a process starts is not told"


def test_death_is_recorded_with_the_roles_of_the_rank(tmp_path: Path) -> None:
    run = replace(run_of(tmp_path), plan=make_plan(parse_config(DATA, source="test"), ranks=2))
    words = log_death(run, death(run.folder)._replace(replayed=41))
    assert words.startswith(
        "rank 5 on n1 has died (worker of policy 'blue' in seat 0 of match 1); started again with 2 processes, back to "
        "tick 100, 41 ticks to be played again; "
    )
    (line,) = JournalReader(run.folder.faults)
    assert (line["kind"], line["ranks"], line["hosts"], line["replayed"]) == ("process", [5], ["n1"], 41)
    assert f"{line['done']}; {line['seconds']:.2f} s lost" == words
    words = log_death(run, death(run.folder)._replace(hosts=()))
    assert words.startswith("rank 5 on n1 has died; started again"), "where each rank was is not known"


def test_many_hosts_are_a_short_line() -> None:
    assert _hosts_text(["n1", "n1", "n2"]) == "n1 (2 processes), n2 (1 process)"
    assert _hosts_text([f"n{1 + rank // 3}" for rank in range(3000)]) == "1,000 hosts, n1 .. n1000 (3,000 processes)"


@pytest.mark.parametrize("given", [(signal.SIGTERM,), ("SIGTERM",)])  # a handler's, and that of `arena.evaluate`
def test_signal_of_an_interrupt_is_named(tmp_path: Path, given: tuple[Any, ...]) -> None:
    for found in (
        Leader(RunState()).failure(run_of(tmp_path), KeyboardInterrupt(*given)),
        failure_of(KeyboardInterrupt(*given), "root"),
    ):
        assert found.exit_code == 128 + signal.SIGTERM
        assert found.message.startswith("ended by SIGTERM")


def test_run_without_state_is_not_called_resumable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, memory = run_of(tmp_path), RunState(stop=Stop(number=signal.SIGINT))
    memory.resumable = False
    run.folder.config.write_text("name: test\n")
    leader = Leader(memory)
    leader.stopped(run, 849)
    told = [
        capsys.readouterr().err,
        leader.failure(run, KeyboardInterrupt(signal.SIGTERM)).message,
    ]
    for words in told:
        assert "--resume" not in words
        assert "it cannot be resumed: what some algorithm has learned cannot be saved and loaded" in words
