"""The seeds of a run, and the addresses and descriptions of its roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.plan.seeding import environment_seed, policy_seed, worker_seed
from arena.roles.run import Leg, Run

DUEL = {"env": "game", "seats": ["blue", "red"], "lanes": 3}
MIRROR = {"env": "game", "seats": ["blue", "blue"]}


def run_of(*matches: Mapping[str, Any], seed: int = 7, **leg: Any) -> Run:
    data = {
        "name": "test",
        "seed": seed,
        "ticks": 10,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": list(matches),
    }
    return Run(make_plan(parse_config(data, source="test")), Path("run"), leg=Leg(**leg))


def environment_seeds(run: Run) -> dict[tuple[int, int], int]:
    return {
        (match.match, lane): run.environment_seed(match, lane)
        for match in run.plan.matches
        for lane in range(match.lanes)
    }


def worker_seeds(run: Run) -> dict[Role, int]:
    return {role: run.worker_seed(role) for role in run.plan.roles(RoleKind.WORKER)}


def all_seeds(run: Run) -> list[int]:
    shared = [run.policy_seed(policy) for policy in run.plan.policies]
    return [*environment_seeds(run).values(), *worker_seeds(run).values(), *shared]


def test_lanes_copies_seats_and_policies_have_seeds_of_their_own() -> None:
    run = run_of({**DUEL, "copies": 4}, {**MIRROR, "copies": 2})
    assert len(environment_seeds(run)) == 14
    assert len(worker_seeds(run)) == 12
    assert len(set(all_seeds(run))) == 14 + 12 + 2


def test_seeds_of_a_match_do_not_depend_on_the_others() -> None:
    alone, among = run_of(DUEL), run_of({**DUEL, "copies": 3}, {**MIRROR, "copies": 2})
    assert environment_seeds(alone).items() <= environment_seeds(among).items()
    assert worker_seeds(alone).items() <= worker_seeds(among).items()
    assert alone.policy_seed("blue") == among.policy_seed("blue")


def test_seeds_equal_those_of_earlier_versions_and_fit_in_32_bits() -> None:
    assert environment_seed(7, entry=0, copy=0, lane=0) == 4150711411
    assert environment_seed(7, entry=3, copy=2, lane=1) == 822793632
    assert worker_seed(7, policy="blue", entry=0, copy=0, seat=1) == 2811166876
    assert policy_seed(7, policy="blue") == 927074662
    seeds = [environment_seed(2**80, entry=0, copy=0, lane=lane) for lane in range(200)]
    assert 2**31 < max(seeds) < 2**32 and min(seeds) >= 0


def test_run_seed_determines_all_seeds() -> None:
    assert all_seeds(run_of(DUEL)) == all_seeds(run_of(DUEL))
    assert not set(all_seeds(run_of(DUEL))) & set(all_seeds(run_of(DUEL, seed=8)))


def test_legs_have_new_streams_and_one_seed_of_initial_weights() -> None:
    runs = [run_of(DUEL, MIRROR, start=tick) for tick in (0, 3, 4)]
    seeds = [seed for run in runs for seed in (*environment_seeds(run).values(), *worker_seeds(run).values())]
    assert len(set(seeds)) == len(seeds)
    assert len({run.policy_seed("blue") for run in runs}) == 1
