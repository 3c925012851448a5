"""Repair: the survivors of a process failure return to the newest boundary of the run folder."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arena.config import parse_config
from arena.diagnostics.profile import RoleProfile
from arena.errors import ConfigError
from arena.launch import lead
from arena.launch import rank as ranks
from arena.launch.lead import Rank0Base
from arena.launch.rank import Rank
from arena.launch.repair import DEATHS_AT_MOST, often_dead, repaired
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import Boundary
from arena.records.scoreboard import Scoreboard
from arena.roles.perform import failure_of
from arena.roles.protocol import Failed
from arena.roles.root.fault_records import log_repairs
from arena.run.leg import Leg
from arena.run.prepare import prepare
from arena.run.process_state import ProcessState
from arena.run.profiles import Profiled
from arena.run.run import Repair, Run, Stage
from arena.run.stop import Stop

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


class Survivor:
    """A team of a single survivor, which was the last rank."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def survivors(self) -> Survivor:
        return Survivor()

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def broadcast(self, data: bytes) -> bytes:
        return data

    def agree(self, agreed: bool) -> bool:
        return agreed

    def is_peer_failure(self, error: BaseException) -> bool:
        return False


def test_a_run_that_has_not_begun_starts_again(tmp_path: Path) -> None:
    team: Any = Survivor()
    _, run = repaired(team, run_of(tmp_path), ProcessState(), 0.0)
    assert (run.plan.processes, run.begun) == (1, False)


def begun(path: Path, **config: Any) -> Run:
    """A run that was played from tick 100 on, in a folder with boundaries at 0, 100 and 200."""
    parsed = parse_config({**DATA, **config}, source="test")
    folder = RunFolder.open(path / "run")
    for tick in (0, 100, 200):
        boundary.save(folder, Boundary(tick=tick, updates={"blue": tick // 10}, left=[(0, 1)] if tick else []))
    return Run(make_plan(parsed), folder.path, leg=Leg(start=100))


def test_repair_goes_back_to_the_newest_boundary(tmp_path: Path) -> None:
    team: Any = Survivor(rank=4)
    memory = ProcessState(
        begun=True, tick=241, scoreboard=Scoreboard([]), stop=Stop(number=signal.SIGUSR1, by="a callback")
    )
    _, run = repaired(team, begun(tmp_path), memory, 0.0)
    assert (run.leg.start, run.leg.updates, run.leg.left) == (200, {"blue": 20}, {(0, 1)})
    assert (run.begun, run.resumed, run.concluded) == (True, True, False)
    assert (run.repairs[-1].died, run.repairs[-1].leg, run.repairs[-1].replayed) == ((0, 1, 2, 3, 5, 6), 200, 41)
    assert (memory.scoreboard, memory.tick, memory.stop.by) == (None, 0, ""), "read and counted anew"
    assert memory.stop.number == signal.SIGUSR1, "a signal is not sent again"


def test_repair_by_a_spare_goes_back_to_the_newest_boundary(tmp_path: Path) -> None:
    team: Any = Survivor(rank=4)
    _, run = repaired(team, begun(tmp_path), ProcessState(), 0.0)
    assert (run.leg.start, run.resumed) == (200, True)


def test_repair_plays_the_boundary_before_a_damaged_one(tmp_path: Path) -> None:
    team: Any = Survivor()
    run = begun(tmp_path)
    (run.folder.boundaries / "000000000200.json").write_text("{")
    _, found = repaired(team, run, ProcessState(begun=True, tick=241), 0.0)
    assert (found.leg.start, found.repairs[-1].replayed) == (100, 141)


def test_repair_reports_if_no_boundary_is_intact(tmp_path: Path) -> None:
    team: Any = Survivor()
    run = begun(tmp_path)
    for path in run.folder.boundaries.iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match="the run has begun, but no boundary in its folder is whole"):
        repaired(team, run, ProcessState(begun=True), 0.0)


def test_failure_at_the_last_boundary_ends_the_run(tmp_path: Path) -> None:
    team: Any = Survivor()
    _, run = repaired(team, begun(tmp_path, ticks=200), ProcessState(begun=True, tick=200), 0.0)
    assert (run.concluded, run.repairs[-1].replayed) == (True, 0)


def test_failures_before_a_resume_are_not_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    death = Repair((5,), run.plan, (2,), 100, 3, 0.0)
    assert len(list(log_repairs(replace(run, repairs=(death,))))) == 1
    resumed = replace(run, faults_before=1, repairs=(death, death))
    assert len(list(log_repairs(resumed))) == 2
    assert list(log_repairs(resumed)) == [], "they are on record"


def test_evaluation_ends_on_a_stop_request() -> None:
    memory = ProcessState()
    aside = memory.for_evaluation()
    aside.begun = True
    memory.stop.ask("a callback")
    assert aside.stop.wanted
    assert not memory.begun


def test_the_time_of_a_role_adds_up_over_the_legs() -> None:
    memory, who = ProcessState(), Profiled(Role(RoleKind.ROOT), None, 0)
    for wall in (1.0, 2.0):
        memory.add_profile(who, RoleProfile(wall, wall / 2, {"recording": wall}))
    assert memory.profiles == {who: RoleProfile(3.0, 1.5, {"recording": 3.0})}


def test_repeatedly_failing_role_is_detected(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    worker = Role(RoleKind.WORKER, 0, 1)
    deaths = [Repair((run.plan.rank_of(worker),), run.plan, (1,), 100, 0, 0.0)] * DEATHS_AT_MOST
    assert often_dead(replace(run, repairs=tuple(deaths))) == worker
    assert often_dead(replace(run, repairs=tuple(deaths[1:]))) is None
    later = replace(run.leg, start=200)
    assert often_dead(replace(run, repairs=tuple(deaths), leg=later)) is None, "it has come to another leg since"
    following = replace(run, plan=make_plan(parse_config(DATA, source="test"), number=1))
    assert often_dead(replace(following, repairs=tuple(deaths))) is None, "in this round it is another role"


def test_repair_is_reported_with_the_plan_of_the_failure(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    worker = Role(RoleKind.WORKER, 1, 0)
    death = Repair((run.plan.rank_of(worker),), run.plan, (2,), 300, 41, 0.0)
    fewer = {**DATA, "matches": [{"env": "game", "seats": ["red", "old"]}]}
    following = make_plan(parse_config(fewer, source="test"), ranks=2, number=1)
    (words,) = log_repairs(replace(run, plan=following, repairs=(death,)))
    assert words.startswith(
        "rank 5 (worker of policy 'blue' in seat 0 of match 1) died; 6 processes go on, numbered anew; "
        "what it did is now on rank 2; back to tick 300, 41 ticks to be played again; repaired"
    )


def test_failed_rank_names_two_of_its_roles(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    plan = make_plan(parse_config(DATA, source="test"), ranks=2)
    death = Repair((1,), plan, (0,), 300, 0, 0.0)
    (words,) = log_repairs(replace(run, plan=plan, repairs=(death,)))
    more = len(plan.ranks[1]) - 2
    told = words.partition(" died; 1 process goes on, numbered anew; what it did is now on rank 0")
    assert more > 0
    assert told[1] and told[0].endswith(f" and {more} more)")
    assert told[0].count(",") == 1


def test_signal_between_two_stages_is_reported() -> None:
    failure = failure_of(KeyboardInterrupt(signal.SIGTERM), "rank 0")
    assert failure == Failed("rank 0", "ended by SIGTERM", exit_code=128 + signal.SIGTERM)


def test_failure_of_a_tournament_names_how_to_continue(tmp_path: Path) -> None:
    plan = make_plan(parse_config({**DATA, "rounds": 2}, source="test"))
    words = ranks._why_not(Run(plan, tmp_path, episodes=1), ProcessState())
    assert words.startswith(f"a process has died; what was played is in {tmp_path}; ")
    assert words.endswith("the same command with --resume goes on after the last batch that is whole")
    assert "--resume" not in ranks._why_not(replace(run_of(tmp_path), episodes=1), ProcessState()), "an evaluation"


def test_failure_without_resume_names_no_resume(tmp_path: Path) -> None:
    assert "--resume" in ranks._why_not(run_of(tmp_path), ProcessState())
    assert "--resume" not in ranks._why_not(replace(run_of(tmp_path), has_resume=False), ProcessState())


def test_run_without_state_is_not_called_resumable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, memory = run_of(tmp_path), ProcessState(stop=Stop(number=signal.SIGINT))
    memory.begin_leg(repairable=False)
    run.folder.config.write_text("name: test\n")
    lead._stopped(run, 849, memory)
    told = [
        capsys.readouterr().err,
        ranks._why_not(run, memory),
        lead.interrupted(run, memory, KeyboardInterrupt(signal.SIGTERM)).message,
    ]
    for words in told:
        assert "--resume" not in words
        assert "it cannot be resumed: what some algorithm has learned cannot be saved and loaded" in words


class First:
    """The team of rank 0, without any failure."""

    rank, size, tolerant, patience = 0, 6, False, 0.0

    def private(self) -> First:
        return self

    def wait_for_all(self) -> None:
        pass

    def broadcast(self, data: bytes) -> bytes:
        return data

    def is_peer_failure(self, error: BaseException) -> bool:
        return False

    def abort(self, status: int) -> None:
        raise SystemExit(status)


class Interrupted(Rank0Base):
    """Is asked to end while it determines the first stage."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self, ranks: int, *, tolerant: bool = False) -> Run:
        return prepare(parse_config({**DATA, "rounds": 2}, source="test"), ranks=ranks, run_dir=str(self._path))

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        raise AssertionError("a game was played")

    def next_stage(self, run: Run, memory: ProcessState) -> Stage | None:
        assert self._path.exists()
        raise KeyboardInterrupt(signal.SIGINT)


def test_signal_before_play_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.launch.rank.Console", lambda: SimpleNamespace(stderr=sys.stderr))
    mpi = SimpleNamespace(World=lambda *_, **__: First(), world=lambda: None, tolerates_faults=lambda: False)
    with pytest.raises(SystemExit, match="130"):
        Rank(mpi, lambda: Interrupted(tmp_path / "run"), Stop()).take_part()
    assert "ended by SIGINT; before any tick was played" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
