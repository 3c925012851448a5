"""From one round of a league to the next: initial states of policies, their files, and removed files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arena.config import parse_config, resolved_yaml
from arena.errors import ConfigError
from arena.league import next_round
from arena.league import rounds_file as records
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.records import boundary, checkpoint
from arena.records.formats import Boundary, Round
from arena.records.journal import Journal
from arena.roles.run import Leg, Run
from arena.roles.state import RunState
from arena.run import resume, rounds
from worker_states import write_states

TICKS = 100
DUEL = {"env": "game", "seats": ["one", "two"], "lanes": 2}
BOTH = ("one", "two")


FOUR = ("one", "two", "three", "four")


def config(*matches: Any, policies: Any = BOTH, count: int = 9, **more: Any) -> dict[str, Any]:
    return {
        "name": "league",
        "ticks": TICKS,
        "rounds": count,
        "envs": {"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}},
        "policies": policies if isinstance(policies, dict) else {name: {"algorithm": "ppo"} for name in policies},
        "matches": list(matches),
        **more,
    }


def begun(path: Path, data: dict[str, Any], *, ranks: int | None = None) -> Run:
    """A league whose first round is planned."""
    (path / "checkpoints").mkdir(parents=True)
    parsed = parse_config(data, source="test")
    run = Run(make_plan(parsed, ranks=ranks), path)
    run.folder.write_config(resolved_yaml(parsed))
    rounds.begin(run)
    return run


def played(run: Run) -> Run:
    """The same when its round has been played: all learners that have played have a checkpoint, and none has won.

    The own state of each worker names its seat.
    """
    tick, restore, states = run.plan.ticks, dict(run.leg.restore), {}
    for name, policy in run.plan.policies.items():
        if policy.workers and not policy.config.frozen:
            folder = run.folder.checkpoints_path(name)
            state = {"of": name, "tick": tick}
            checkpoint.save(folder, state, policy=name, algorithm="ppo", ticks=tick, update=1)
            restore[name] = checkpoint.path_of(folder, tick)
            write_states(folder, tick, {worker: list(worker) for worker in policy.workers})
            states |= checkpoint.worker_states(folder, tick)
    run.folder.episodes.touch()
    return replace(
        run, leg=Leg(start=tick, restore=restore, updates=dict.fromkeys(restore, tick), private_states=states)
    )


def following(run: Run, *games: dict[str, Any]) -> Run:
    """The next round, when these games have been played in this one."""
    before = played(run)
    journal = Journal(run.folder.episodes)
    journal.extend(games)
    journal.close()
    found = rounds.next_round(before, RunState())
    assert found is not None
    return found


def at(run: Run, number: int) -> Run:
    """The run in a later round."""
    while run.plan.round < number:
        run = following(run)
    return run


def changed(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Replaces fields of all later rounds."""
    made = next_round.next_round

    def changed_round(*given: Any) -> Round:
        return msgspec.structs.replace(made(*given), **fields)

    monkeypatch.setattr(rounds, "plan_next_round", changed_round)


def held(path: Path) -> Any:
    return checkpoint.load(path).state


# ------------------------------------------------------------------------------------------------------- initial states


def test_policies_continue_with_weights_and_counters(tmp_path: Path) -> None:
    run = following(begun(tmp_path / "run", config(DUEL)))
    assert (run.plan.round, run.leg.start, run.plan.ticks, run.plan.horizon) == (1, TICKS, 2 * TICKS, 9 * TICKS)
    assert {name: held(path) for name, path in run.leg.restore.items()} == {
        name: {"of": name, "tick": TICKS} for name in BOTH
    }
    assert run.leg.updates == dict.fromkeys(BOTH, TICKS)
    assert run.leg.episodes == {}, "matches are numbered anew"


def test_reset_policy_loads_the_configured_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path / "first", {"of": "first"}, policy="two", algorithm="ppo", ticks=7, update=1)
    changed(monkeypatch, resets=("two",))
    policies = {"one": {"algorithm": "ppo"}, "two": {"algorithm": "ppo", "load": str(tmp_path / "first")}}
    run = following(begun(tmp_path / "run", config(DUEL, policies=policies)))
    assert held(run.leg.restore["two"]) == {"of": "first"}


# ------------------------------------------------------------------------------------------------ own states of workers


def own_of(run: Run, policy: str) -> dict[tuple[int, int], tuple[int, int]]:
    """By the seats of a policy those with whose states its workers begin."""
    places, seats = run.leg.private_states, run.plan.policies[policy].workers
    return {seat: tuple(checkpoint.load(place).state) for seat, place in places.items() if seat in seats}


def planned_as(monkeypatch: pytest.MonkeyPatch, *matches: dict[str, Any]) -> None:
    """Replaces the matches of all later rounds."""
    made = parse_config(config(*matches), source="test")
    changed(monkeypatch, matches=tuple(match for _, match in made.entries()), places=())


WIDE = {**DUEL, "lanes": 4}


@pytest.mark.parametrize(
    ("before", "now", "one", "two"),
    [
        ([WIDE, DUEL], [DUEL, WIDE], {(0, 0): (1, 0), (1, 0): (0, 0)}, {(0, 1): (1, 1), (1, 1): (0, 1)}),
        (
            [{**DUEL, "copies": 2}],
            [{**DUEL, "copies": 3}],
            {(0, 0): (0, 0), (1, 0): (1, 0), (2, 0): (1, 0)},
            {(0, 1): (0, 1), (1, 1): (1, 1), (2, 1): (1, 1)},
        ),
        ([{**DUEL, "copies": 2}], [DUEL], {(0, 0): (0, 0)}, {(0, 1): (0, 1)}),
        ([DUEL], [DUEL, {**WIDE, "seats": ["one", "one"]}], {}, {(0, 1): (0, 1)}),  # one has no predecessor
    ],
    ids=["same-game", "more", "fewer", "none"],
)
def test_workers_continue_from_those_of_the_same_game(
    before: Any, now: Any, one: Any, two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_as(monkeypatch, *now)
    run = following(begun(tmp_path / "run", config(*before)))
    assert (own_of(run, "one"), own_of(run, "two")) == (one, two)


# ------------------------------------------------------------------------------------------------------------ snapshots


def past_selves(**more: Any) -> dict[str, Any]:
    meets = {"env": "game", "policies": ["one"], "rule": {"past_selves": {"self": 0.0}}}
    return config({"matchmaking": meets}, policies=("one",), **more)


def test_snapshot_survives_removal_of_the_checkpoint(tmp_path: Path) -> None:
    run = at(begun(tmp_path / "run", past_selves()), 7)
    assert checkpoint.list_checkpoints(run.folder.checkpoints_path("one"))[1].name == f"{5 * TICKS:012d}.ckpt"
    for number in range(1, 8):
        assert held(run.folder.snapshot_path("one", number * TICKS)) == {"of": "one", "tick": number * TICKS}


def test_snapshots_that_play_begin_with_their_own_weights_and_are_frozen(tmp_path: Path) -> None:
    run = following(begun(tmp_path / "run", past_selves()))
    name = f"one@{TICKS}"
    assert run.plan.policies[name].config.frozen
    assert run.leg.restore[name] == run.folder.snapshot_path("one", TICKS)
    assert [seat.policy for seat in run.plan.matches[0].seats] == ["one", name]


def test_snapshots_are_removed_when_no_replayable_round_has_them(tmp_path: Path) -> None:
    run = at(begun(tmp_path / "run", past_selves(league={"snapshots": {"keep": 1}})), 8)
    left = {name: planned.number for planned in records.read(run.folder) for name in planned.dropped}
    assert left == {f"one@{number * TICKS}": number + 1 for number in range(1, 8)}
    found = [int(path.stem) // TICKS for path in sorted((run.path / "snapshots" / "one").iterdir())]
    oldest = 8 - checkpoint.KEPT - 1  # round that may be played again
    assert found == [number for number in range(1, 9) if number + 1 >= oldest]


@pytest.mark.slow
def test_gate_counts_games_of_all_rounds_since_the_snapshot(tmp_path: Path) -> None:
    """The policy wins three games of five against every snapshot; as many count from either side."""
    meets = {"env": "game", "policies": ["one"], "rule": "past_selves", "copies": 2, "lanes": 4}
    gate = {"snapshots": {"gate": {"elo": 100}}}
    run = begun(tmp_path / "run", config({"matchmaking": meets}, policies=("one",), league=gate))
    sides: list[Counter[int]] = [Counter()]
    for _ in range(5):
        against = [match for match in run.plan.matches if {seat.policy for seat in match.seats} != {"one"}]
        sides += [sides[-1] + Counter(match.seats[1].policy == "one" for match in against)]
        others = [next(seat.policy for seat in match.seats if seat.policy != "one") for match in against]
        games = [
            ended(run, match.match, [winner])
            for match, other in zip(against, others, strict=True)
            for winner in ["one"] * 3 + [other] * 2
        ]
        run = following(run, *games)
    gates = [made.gates[0].games for made in records.read(run.folder) if made.gates]
    assert gates == [2 * 5 * min(found[False], found[True]) for found in sides[2:]]
    assert gates[-1] > gates[1] > 0


# ---------------------------------------------------------------------------------------------------------- tournaments


def test_swiss_points_are_of_all_rounds(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    data = config({"swiss": {"env": "game", "policies": names}}, policies=names)
    run = begun(tmp_path / "run", data)
    for winners in ("ac", "ab", "cd"):  # of a-b and c-d, a-c and b-d, a-d and b-c
        run = following(run, *(ended(run, match.match, [*winners]) for match in run.plan.matches))
    met = {frozenset(seat.policy for seat in match.seats) for match in run.plan.matches}
    assert met == {frozenset("ac"), frozenset("bd")}, "two points each, and one each"


def ended(run: Run, match: int, winners: list[str]) -> dict[str, Any]:
    """A game won by the player among the winners."""
    common = {"entities": [0], "return": 0.0, "idle_ticks": 0}
    seats = [
        {"policy": seat.policy, "outcome": "win" if seat.policy in winners else "loss", **common}
        for seat in run.plan.matches[match].seats
    ]
    place = {"round": run.plan.round, "match": match, "env": "game", "lane": 0, "episode": 0, "tick": 1, "length": 1}
    return {**place, "terminated": True, "truncated": False, "seats": seats}


# ------------------------------------------------------------------------------------------------ the end, and resuming


def plan_at(run: Run, tick: int) -> Plan:
    first = replace(run, plan=make_plan(run.plan.config))
    return rounds.again(first, run.plan.config, tick).plan


@pytest.mark.parametrize(("tick", "number"), [(0, 0), (1, 0), (100, 0), (101, 1), (200, 1), (201, 2), (300, 2)])
def test_run_resumes_in_the_round_of_its_tick(tick: int, number: int, tmp_path: Path) -> None:
    run = at(begun(tmp_path / "run", past_selves()), 2)
    assert plan_at(run, tick).round == number


@pytest.mark.parametrize(("tick", "before"), [(100, 0), (101, 200), (200, 200)])
def test_resume_counts_ticks_by_the_matches_of_each_round(tick: int, before: int, tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    run = at(begun(tmp_path / "run", config({"knockout": {"env": "game", "policies": names}}, policies=names)), 1)
    assert (run.ticks_before, run.total_ticks) == (200, 200 + 100 * (run.plan.config.round_count - 1))
    first = replace(run, plan=make_plan(run.plan.config), ticks_before=0)
    assert rounds.again(first, run.plan.config, tick).ticks_before == before


def test_total_ticks_count_the_fewer_matches_that_a_resume_asks_for(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", config({**DUEL, "copies": 3}, count=4))
    assert run.total_ticks == 3 * 4 * TICKS
    fewer = parse_config(config(DUEL, count=4), source="test")
    assert rounds.again(run, fewer, TICKS).total_ticks == 3 * TICKS + 3 * TICKS  # round 0 goes on as it was planned


def test_missing_round_record_is_named(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", config(DUEL))
    with pytest.raises(ConfigError, match="lacks round 1, which was played at tick 150"):
        plan_at(run, 150)


def _doubled(lines: list[str]) -> list[str]:
    return [*lines, lines[-1]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[1:], "line 1: is damaged: the rounds are not numbered one after the other: 1 stands"),
        (_doubled, "line 4: is damaged: the rounds are not numbered one after the other: 2 stands where 3 belongs"),
        (lambda lines: lines[:-1], "is damaged: it lacks round 2, though the run has come to tick 201"),
        (lambda lines: [], "is damaged: it lacks round 2, though"),
        (None, "is damaged: it is missing, though the run has come to tick 201"),
    ],
)
def test_league_with_missing_rounds_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    run = at(begun(tmp_path / "run", config(DUEL)), 2)
    boundary.save(run.folder, Boundary(tick=2 * TICKS + 1))
    known = run.plan.config
    assert len(records.read_played(run.folder, known)) == 3
    if change is None:
        run.folder.rounds.unlink()
    else:
        run.folder.rounds.write_text("".join(change(run.folder.rounds.read_text().splitlines(keepends=True))))
    with pytest.raises(ConfigError, match=words):
        records.read_played(run.folder, known)


@pytest.mark.parametrize(
    ("kind", "policies", "place"),
    [("swiss", FOUR, "matches[0].knockout"), ("knockout", ("five", *FOUR), "matches[0].knockout")],
)
def test_tournament_of_other_players_is_not_continued(kind: str, policies: Any, place: str) -> None:
    def tournament(kind: str, *players: str) -> Any:
        match = {kind: {"env": "game", "policies": list(players)}}
        return parse_config(config(match, policies=(*FOUR, "five")), source="x")

    before, now = tournament("knockout", *FOUR), tournament(kind, *policies)
    assert any(line.startswith(f"{place}.policies was") for line in resume._differences(before, now))
    assert [*resume._differences(before, before)] == []
