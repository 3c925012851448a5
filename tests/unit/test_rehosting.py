"""Rehosting of roles after a failure: every role once, survivors keep theirs, spares first, torch to torch."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import Plan, Role, RoleKind
from arena.plan.rehosting import rehosted

ROOT = Role(RoleKind.ROOT)


def plan_of(*, ranks: int | None = None, copies: int = 2, **keys: Any) -> Plan:
    data = {
        "name": "test",
        "ticks": 100,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {"blue": {"algorithm": "ppo"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "copies": copies}],
        **keys,
    }
    return make_plan(parse_config(data, source="test"), ranks=ranks)


@pytest.mark.slow
@given(st.data())
def test_every_role_has_one_rank_and_survivors_keep_theirs(data: st.DataObject) -> None:
    plan = plan_of(ranks=data.draw(st.integers(2, 9)), copies=data.draw(st.integers(1, 3)))
    all_ranks = range(plan.processes)
    alive = sorted(data.draw(st.sets(st.sampled_from(all_ranks), min_size=1)))
    after, order = rehosted(plan, alive)
    assert sorted(order) == alive
    assert sorted(map(str, chain(*after.ranks))) == sorted(map(str, plan.roles()))
    assert ROOT in after.ranks[0]
    for rank, old in enumerate(order):
        assert set(plan.ranks[old]) <= set(after.ranks[rank])
    assert after.roles() == plan.roles(), "addresses stay"


@pytest.mark.slow
@given(st.data())
def test_second_process_failure_is_repaired_like_the_first(data: st.DataObject) -> None:
    plan = plan_of(copies=2)
    while plan.processes > 1:
        dead = data.draw(st.integers(0, plan.processes - 1))
        plan, _ = rehosted(plan, [rank for rank in range(plan.processes) if rank != dead])
    assert plan.ranks == (plan.roles(),)


def test_spares_come_first_and_a_learner_before_the_others() -> None:
    plan = plan_of(copies=1, spares=1)  # 0 root, 1 environment, 2 blue, 3 red, 4 spare
    assert plan.idle_ranks == (4,)
    after, order = rehosted(plan, [0, 3, 4])
    assert order == [0, 3, 4]
    assert after.ranks[2] == (Role(RoleKind.WORKER, 0, 0),), "the spare has what needs torch"
    assert Role(RoleKind.ENVIRONMENT, 0) in after.ranks[0], "the root has least to do"


def test_orphaned_role_with_torch_goes_to_a_rank_with_torch() -> None:
    plan = plan_of(copies=2)  # 0 root, 1 environment, 2 blue, 3 red, 4 environment, 5 blue, 6 red
    after, _ = rehosted(plan, [0, 1, 2, 3, 4, 6])
    assert after.ranks[2] == (Role(RoleKind.WORKER, 0, 0), Role(RoleKind.WORKER, 1, 0))


def test_spare_replaces_a_failed_root() -> None:
    after, order = rehosted(plan_of(copies=1, spares=1), [1, 2, 3, 4])
    assert order == [4, 1, 2, 3]
    assert after.ranks[0] == (ROOT,)


def test_without_a_spare_the_lowest_rank_becomes_root() -> None:
    after, order = rehosted(plan_of(copies=1), [2, 3])
    assert order == [2, 3]
    assert after.ranks[0][0] == ROOT


def test_spares_are_additional_ranks() -> None:
    assert plan_of(copies=1, spares=2).processes == 6
    assert plan_of(copies=1, spares=2, ranks=3).ranks[1:] == ((), ())
    assert plan_of(copies=1, spares=2, ranks=1).processes == 1, "one process has no spare"
    with pytest.raises(ConfigError, match="spares: found 2, but there are only 2 processes"):
        plan_of(copies=1, spares=2, ranks=2)
