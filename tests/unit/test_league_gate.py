"""The gate of a running league: which of the games in its folder count."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config, resolved_yaml
from arena.league import rounds_file as records
from arena.plan.build import make_plan
from arena.records import checkpoint
from arena.records.journal import Journal
from arena.roles.run import Leg, Run
from arena.roles.state import RunState
from arena.run import rounds

TICKS, LANES = 50, 4
MATCHMAKING = {"env": "game", "policies": ["one"], "rule": "past_selves", "copies": 2, "lanes": LANES}


def begun(path: Path) -> Run:
    """A league of one policy that has to be better than its newest snapshot."""
    data = {
        "ticks": TICKS,
        "rounds": 9,
        "envs": {"game": {"make": "matrix"}},
        "policies": {"one": {"algorithm": "ppo"}},
        "matches": [{"matchmaking": MATCHMAKING}],
        "league": {"snapshots": {"gate": {"elo": 100}}},
    }
    config = parse_config(data, source="league")
    (path / "checkpoints").mkdir(parents=True)
    run = Run(make_plan(config), path)
    run.folder.write_config(resolved_yaml(config))
    rounds.begin(run)
    return run


def following(run: Run, *, won: int, lost: int) -> Run:
    """The next round, when the policy has won and lost so many games against every snapshot in this one."""
    saved = run.folder.checkpoints_path("one")
    checkpoint.save(saved, {}, policy="one", algorithm="ppo", ticks=run.plan.ticks, update=1)
    journal = Journal(run.folder.episodes)
    journal.extend([game(run, match.match, won=number < won) for match in against(run) for number in range(won + lost)])
    journal.close()
    leg = Leg(start=run.plan.ticks, restore={"one": checkpoint.path_of(saved, run.plan.ticks)}, updates={"one": 1})
    found = rounds.next_round(replace(run, leg=leg), RunState())
    assert found is not None
    return found


def against(run: Run) -> list[Any]:
    return [match for match in run.plan.matches if {seat.policy for seat in match.seats} != {"one"}]


def game(run: Run, match: int, *, won: bool) -> dict[str, Any]:
    seats = run.plan.matches[match].seats
    ends = ["win" if (seat.policy == "one") == won else "loss" for seat in seats]
    return {
        "round": run.plan.round,
        "match": match,
        "env": run.plan.matches[match].env,
        **{"lane": 0, "episode": 0, "tick": 1, "length": 1, "terminated": True, "truncated": False},
        "seats": [
            {"policy": seat.policy, "entities": [0], "return": 0.0, "outcome": end, "idle_ticks": 0}
            for seat, end in zip(seats, ends, strict=True)
        ],
    }


@pytest.mark.slow
def test_gate_counts_games_of_all_rounds_since_the_snapshot(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    sides: list[Counter[int]] = [Counter()]
    for _ in range(5):
        sides += [sides[-1] + Counter(match.seats[1].policy == "one" for match in against(run))]
        run = following(run, won=3, lost=2)
    gates = [made.gates[0].games for made in records.read(run.folder) if made.gates]
    assert gates == [2 * 5 * min(found[False], found[True]) for found in sides[2:]]
    assert gates[-1] > gates[1] > 0
