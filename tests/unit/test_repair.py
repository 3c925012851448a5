"""What those who live know together: the newest state of each policy, how far matches are, and what is on record."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arena.config import parse_config
from arena.launch import hosting, ranks
from arena.launch.leader import HostingLeader
from arena.launch.ranks import Rank, entered
from arena.launch.repair import DEATHS_AT_MOST, Known, leg_after, often_dead, on_record, repaired
from arena.leg import Leg
from arena.memory import Learnt, Memory, Standing
from arena.messages import Failed
from arena.plan import Role, RoleKind, make_plan
from arena.records.journal import Journal
from arena.records.scoreboard import Scoreboard
from arena.roles.mending import note_repairs
from arena.roles.stage import failure_of
from arena.run import Repair, Run, Stage
from arena.screen.profile import Profiled
from arena.stages.prepare import prepare
from arena.stopping import Stop
from arena.stopwatch import RoleProfile

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


def known(rank: int, **told: Any) -> Known:
    return Known(
        **{
            "rank": rank,
            "policies": {},
            "matches": {},
            "left": frozenset(),
            "leg": None,
            "begun": True,
            "concluded": False,
            "asked_to_stop": None,
            **told,
        }
    )


def test_the_newest_state_of_a_policy_counts_and_of_equal_ones_the_first_rank_has_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, updates={"blue": 3, "red": 3})
    told = [
        known(5, policies={"blue": (7, 150, 1.0), "red": (6, 140, 2.0)}),
        known(2, policies={"blue": (8, 150, 1.5)}),
        known(3, policies={"red": (6, 141, 2.0)}),
    ]
    leg, owners = leg_after(run, told)
    assert owners["blue"][0] == 2
    assert owners["red"][0] == 3
    assert leg.updates == {"blue": 8, "red": 6}
    assert leg.restore["blue"] == tmp_path / "checkpoints" / "blue" / "repair.ckpt"


def test_a_policy_that_nobody_remembers_goes_on_from_the_boundary(tmp_path: Path) -> None:
    boundary = {"red": tmp_path / "000.ckpt"}
    run = run_of(tmp_path, updates={"blue": 3, "red": 3}, restore=boundary)
    told = [known(1, policies={"red": (2, 90, 1.0)})]  # older than the boundary
    leg, owners = leg_after(run, told)
    assert owners == {}
    assert leg.restore == boundary
    assert leg.updates["red"] == 3, "the updates that are lost are made again"


def test_matches_go_on_where_somebody_has_seen_them(tmp_path: Path) -> None:
    run = run_of(tmp_path, episodes={(0, 0): 4, (1, 1): 2})
    told = [known(0, matches={0: Standing(130, (5, 1))}), known(3, matches={0: Standing(133), 1: Standing(199)})]
    leg, _ = leg_after(run, told)
    assert leg.ticks == {0: 133, 1: 199}
    assert leg.episodes == {(0, 0): 5, (0, 1): 1, (1, 1): 2}
    assert leg.start == 100, "the leg is the same one"


def test_a_match_that_has_come_to_the_end_of_the_leg_plays_its_last_tick_again(tmp_path: Path) -> None:
    leg, _ = leg_after(run_of(tmp_path), [known(0, matches={0: Standing(200, (1, 1))})])
    assert leg.ticks == {0: 199, 1: 100}


def test_who_has_heard_of_the_next_leg_knows_best(tmp_path: Path) -> None:
    newer = Leg(start=200, updates={"blue": 9})
    leg, _ = leg_after(run_of(tmp_path), [known(0, leg=Leg(start=100)), known(1, leg=newer)])
    assert (leg.start, leg.ticks, leg.updates["blue"]) == (200, {0: 200, 1: 200}, 9)


def test_a_boundary_that_nobody_was_told_of_is_where_the_run_goes_on(tmp_path: Path) -> None:
    newer = Leg(start=200, updates={"blue": 9})
    told = [known(1, boundary=newer, matches={0: Standing(150)}, policies={"blue": (8, 150, 1.0)}), known(2)]
    assert leg_after(run_of(tmp_path), told) == (newer, {})


def test_a_second_death_begins_from_what_the_first_repair_has_agreed(tmp_path: Path) -> None:
    repaired = Leg(start=100, ticks={0: 150, 1: 140}, updates={"blue": 8})
    run = replace(run_of(tmp_path), leg=repaired, begun=True)
    leg, _ = leg_after(run, [known(1, leg=Leg(start=100, updates={"blue": 3}))])
    assert leg.updates["blue"] == 8
    assert leg.ticks == {0: 150, 1: 140}


def test_who_has_left_stays_away(tmp_path: Path) -> None:
    run = run_of(tmp_path, left=frozenset({(0, 0)}))
    leg, _ = leg_after(run, [known(1, left=frozenset({(1, 1)}))])
    assert leg.left == {(0, 0), (1, 1)}


def test_a_run_that_nobody_has_played_begins_as_it_was_to(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert leg_after(run, [known(0, begun=False), known(1, begun=False)]) == (run.leg, {})


class Survivor:
    """A team of the one process that lives."""

    rank = 0

    def survivors(self) -> Survivor:
        return self

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def agree(self, agreed: bool) -> bool:
        return agreed


def test_a_run_that_nobody_has_played_is_rehearsed_from_the_beginning(tmp_path: Path) -> None:
    team: Any = Survivor()
    _, run = repaired(team, replace(run_of(tmp_path), rehearsals=1), Memory(), 0.0)
    assert (run.plan.processes, run.begun, run.rehearsals) == (1, False, 0)


def test_a_memory_keeps_the_newest_of_everything() -> None:
    memory = Memory()
    for update in (2, 5, 3):
        memory.learn("blue", Learnt.of(update, 10 * update, 0.1, {"update": update}))
    assert memory.policies["blue"].load() == {"update": 5}
    for standing in (Standing(7), Standing(9, (1, 3)), Standing(9), Standing(8, (3, 2))):
        memory.note(0, standing)
    assert memory.matches[0] == Standing(9, (3, 3))


def test_what_is_heard_in_a_rehearsal_the_run_knows_too_and_it_ends_when_the_run_is_asked_to() -> None:
    memory = Memory()
    aside = memory.aside()
    aside.schedules.update(blue="episodes")
    aside.begun = True
    memory.stop.ask("a callback")
    assert memory.schedules == {"blue": "episodes"}
    assert aside.stop.wanted
    assert not memory.begun


def test_the_time_of_a_role_adds_up_over_the_legs() -> None:
    memory, who = Memory(), Profiled(Role(RoleKind.ROOT), None, 0)
    for wall in (1.0, 2.0):
        memory.spend(who, RoleProfile(wall, wall / 2, {"recording": wall}))
    assert memory.profiles == {who: RoleProfile(3.0, 1.5, {"recording": 3.0})}


def test_what_is_kept_does_not_change_with_the_algorithm() -> None:
    state = {"w": [1.0]}
    kept = Learnt.of(1, 1, 0.0, state)
    state["w"][0] = 2.0
    assert kept.load() == {"w": [1.0]}


def test_what_a_dead_root_has_written_down_is_known(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert on_record(run) == {}
    journal = Journal(run.folder.episodes)
    journal.extend([{"match": 1, "lane": lane, "episode": number, "tick": 110} for lane, number in ((0, 0), (1, 4))])
    journal.close()
    assert on_record(run) == {1: Standing(110, (1, 5))}


def test_a_role_that_dies_again_and_again_is_found(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    worker = Role(RoleKind.WORKER, 0, 1)
    deaths = [Repair((run.plan.rank_of(worker),), run.plan, (1,), 100, 0.0)] * DEATHS_AT_MOST
    assert often_dead(replace(run, repairs=tuple(deaths))) == worker
    assert often_dead(replace(run, repairs=tuple(deaths[1:]))) is None
    later = replace(run.leg, start=200)
    assert often_dead(replace(run, repairs=tuple(deaths), leg=later)) is None, "it has come to another leg since"
    following = replace(run, plan=make_plan(parse_config(DATA, source="test"), number=1))
    assert often_dead(replace(following, repairs=tuple(deaths))) is None, "in this round it is another role"


def test_a_repair_is_told_by_the_plan_that_was_played_when_somebody_died(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    worker = Role(RoleKind.WORKER, 1, 0)
    death = Repair((run.plan.rank_of(worker),), run.plan, (2,), 300, 0.0)
    fewer = {**DATA, "matches": [{"env": "game", "seats": ["red", "old"]}]}
    following = make_plan(parse_config(fewer, source="test"), ranks=2, number=1)
    (words,) = note_repairs(replace(run, plan=following, repairs=(death,)))
    assert words.startswith(
        "rank 5 (worker of policy 'blue' in seat 0 of match 1) died; 6 processes go on, numbered anew; "
        "what it did is now on rank 2; repaired"
    )


def test_of_a_rank_with_many_roles_two_are_named_when_it_dies(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    plan = make_plan(parse_config(DATA, source="test"), ranks=2)
    death = Repair((1,), plan, (0,), 300, 0.0)
    (words,) = note_repairs(replace(run, plan=plan, repairs=(death,)))
    more = len(plan.ranks[1]) - 2
    told = words.partition(" died; 1 process goes on, numbered anew; what it did is now on rank 0")
    assert more > 0
    assert told[1] and told[0].endswith(f" and {more} more)")
    assert told[0].count(",") == 1


def test_who_has_left_a_match_has_not_left_that_of_the_next_round(tmp_path: Path) -> None:
    run, memory = run_of(tmp_path), Memory(left={(0, 1)})
    assert entered(run, Stage(run), memory) is run
    assert memory.left == {(0, 1)}
    entered(run, Stage(replace(run, plan=replace(run.plan, round=1))), memory)
    assert memory.left == set()


def test_a_signal_that_comes_between_two_stages_is_told_in_a_sentence() -> None:
    failure = failure_of(KeyboardInterrupt(signal.SIGTERM), "rank 0")
    assert failure == Failed("rank 0", "ended by SIGTERM", exit_code=128 + signal.SIGTERM)


def test_a_death_that_ends_a_tournament_is_told_with_how_it_goes_on(tmp_path: Path) -> None:
    plan = make_plan(parse_config({**DATA, "rounds": 2}, source="test"))
    words = ranks._why_not(Run(plan, tmp_path, episodes=1), Memory())
    assert words.startswith(f"a process has died; what was played is in {tmp_path}; ")
    assert words.endswith("the same command with --resume goes on after the last batch that is whole")
    assert "--resume" not in ranks._why_not(replace(run_of(tmp_path), episodes=1), Memory()), "an evaluation"


def test_a_death_is_told_without_resume_where_the_command_has_none(tmp_path: Path) -> None:
    assert "--resume" in ranks._why_not(run_of(tmp_path), Memory())
    assert "--resume" not in ranks._why_not(replace(run_of(tmp_path), has_resume=False), Memory())


def test_a_run_is_not_said_to_go_on_where_what_is_learnt_cannot_be_saved_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, memory = run_of(tmp_path), Memory(stop=Stop(number=signal.SIGINT))
    memory.go(Leg(), repairable=False)
    run.folder.config.write_text("name: test\n")
    hosting._stopped(run, 849, memory)
    told = [
        capsys.readouterr().err,
        ranks._why_not(run, memory),
        hosting.interrupted(run, memory, KeyboardInterrupt(signal.SIGTERM)).message,
    ]
    for words in told:
        assert "--resume" not in words
        assert "it cannot be resumed: what some algorithm has learnt cannot be saved and loaded" in words


class First:
    """The team of a first process that is never told of a death."""

    rank, size, tolerant, patience = 0, 6, False, 0.0

    def private(self) -> First:
        return self

    def wait_for_all(self) -> None:
        pass

    def broadcast(self, data: bytes) -> bytes:
        return data

    def mourns(self, error: BaseException) -> bool:
        return False

    def abort(self, status: int) -> None:
        raise SystemExit(status)


class Interrupted(HostingLeader):
    """Is asked to end while it thinks about what is played first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self, ranks: int, *, tolerant: bool = False) -> Run:
        return prepare(parse_config({**DATA, "rounds": 2}, source="test"), ranks=ranks, run_dir=str(self._path))

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        raise AssertionError("nobody has played")

    def next_stage(self, run: Run) -> Stage | None:
        assert self._path.exists()
        raise KeyboardInterrupt(signal.SIGINT)


def test_a_signal_between_two_stages_leaves_no_folder_of_a_run_that_nobody_has_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.launch.ranks.Console", lambda: SimpleNamespace(stderr=sys.stderr))
    mpi = SimpleNamespace(Team=lambda *_, **__: First(), world=lambda: None, tolerates_faults=lambda: False)
    with pytest.raises(SystemExit, match="130"):
        Rank(mpi, lambda: Interrupted(tmp_path / "run"), Stop()).take_part()
    assert "ended by SIGINT; before anybody has played" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
