"""Fewer ranks than roles: every role on one rank, near its match, balanced, and always the same way."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena import registry
from arena.config import parse_config
from arena.config.fields import ONLY_ACT
from arena.config.schema import Config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.placement import cut, lightest_maximum
from arena.plan.plan import Plan, Role, RoleKind
from arena.roles.run import Run

POLICIES = {
    "learner": {"algorithm": "ppo"},
    "frozen": {"algorithm": "ppo", "frozen": True},
    "random": {"algorithm": "random"},
    "script": {"algorithm": "scripted"},
}


def config_of(*matches: tuple[list[str], int], **keys: Any) -> Config:
    data = {
        "name": "test",
        "ticks": 100,
        "envs": {"game": {"make": "touchdown"}},
        "policies": POLICIES,
        "matches": [{"env": "game", "seats": seats, "copies": copies} for seats, copies in matches],
        **keys,
    }
    return parse_config(data, source="test")


seats = st.lists(st.sampled_from(list(POLICIES)), min_size=1, max_size=5)
configurations = st.lists(st.tuples(seats, st.integers(1, 4)), min_size=1, max_size=4).map(lambda all: config_of(*all))
rows = st.lists(st.integers(0, 6), min_size=1, max_size=9)


def load_of(plan: Plan, role: Role) -> int:
    if role.match is None:
        return 0
    return 3 if role.seat is not None and plan.seat(role).policy == "learner" else 1


def torches(plan: Plan) -> list[int]:
    """The ranks that import torch."""
    workers = [role for role in plan.roles(RoleKind.WORKER) if plan.seat(role).policy in ("learner", "frozen")]
    return sorted({plan.rank_of(role) for role in workers})


@st.composite
def packed(draw: st.DrawFn) -> tuple[Config, int]:
    """A configuration, and a number of ranks smaller than that of its roles."""
    config = draw(configurations)
    return config, draw(st.integers(1, make_plan(config).processes - 1))


@pytest.mark.slow
@settings(max_examples=60)
@given(packed())
def test_roles_are_packed_evenly_near_their_match_in_the_order_of_the_plan(given: tuple[Config, int]) -> None:
    config, ranks = given
    plan, alone = make_plan(config, ranks=ranks), make_plan(config)
    hosted = [role for roles in plan.ranks for role in roles]
    assert len(hosted) == len(set(hosted))
    assert set(hosted) == set(alone.roles())
    assert plan.ranks[0][0] == Role(RoleKind.ROOT)
    assert (plan.processes, plan.idle_ranks) == (ranks, ())
    one, other = Run(plan, Path("run")), Run(alone, Path("run"))
    assert plan.roles() == alone.roles()
    assert plan.policies == alone.policies
    assert plan.matches == alone.matches
    assert [one.address(role) for role in other.roles] == list(range(len(other.roles)))
    order = {role: number for number, role in enumerate(plan.roles())}
    assert all([order[role] for role in roles] == sorted(order[role] for role in roles) for roles in plan.ranks)
    loads = [sum(load_of(plan, role) for role in roles) for roles in plan.ranks]
    assert max(loads) <= 1.25 * (sum(loads) / ranks + 3), "by a role, or by a quarter"
    for match in plan.matches:
        used = {rank for rank, roles in enumerate(plan.ranks) for role in roles if role.match == match.match}
        assert used == set(range(min(used), max(used) + 1))


@given(rows, st.integers(1, 9))
def test_partition_is_optimal(weights: list[int], parts: int) -> None:
    parts = min(parts, len(weights))
    ways = combinations(range(1, len(weights)), parts - 1)
    best = min(
        max(sum(weights[start:stop]) for start, stop in zip((0, *way), (*way, len(weights)), strict=True))
        for way in ways
    )
    assert lightest_maximum(weights, parts) == best
    for evenly in (True, False):
        pieces = cut(weights, parts, evenly=evenly)
        assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]
        assert pieces[-1][1] == len(weights)
        assert all(start < stop for start, stop in pieces)
        assert len(pieces) == parts
        assert max(sum(weights[start:stop]) for start, stop in pieces) == best


def test_matches_stay_together_if_that_costs_little_balance() -> None:
    plan = make_plan(config_of((["random"] * 4, 30)), ranks=3)
    assert [len(roles) for roles in plan.ranks] == [51, 50, 50]
    assert [sorted({role.match for role in roles if role.match is not None}) for roles in plan.ranks] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 30)),
    ]


def test_match_is_split_if_ranks_outnumber_matches() -> None:
    plan = make_plan(config_of((["learner"] * 4, 1)), ranks=3)
    assert [[role.seat for role in roles] for roles in plan.ranks] == [[None, None], [0, 1], [2, 3]]


def test_the_ranks_without_learners_never_import_torch() -> None:
    mixed = config_of((["learner", "random"], 2), (["random", "script"], 4), (["random", "frozen"], 2))
    assert torches(make_plan(mixed, ranks=2)) == [1]
    assert torches(make_plan(config_of((["learner"] * 4, 1)), ranks=3)) == [1, 2]


HUMAN = "arena.cli.play.human:Human"  # not in the registry: `arena play` alone has it


def test_light_algorithms_are_those_without_weights() -> None:
    keep_none = {name for name in registry.ALGORITHMS if not hasattr(registry.algorithm(name), "state_dict")}
    assert keep_none | {HUMAN} == ONLY_ACT


@pytest.mark.parametrize("ranks", [0, -3])
def test_no_rank_at_all_is_refused(ranks: int) -> None:
    with pytest.raises(ConfigError, match=f"from 1 to [0-9]+ processes, got {ranks}"):
        make_plan(config_of((["random"], 1)), ranks=ranks)
