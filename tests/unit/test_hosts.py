"""Hosts as users and SLURM write them, and which ranks are on which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.plan.hosts import Host, allocated, parse_hosts, shares


def slurm(nodes: str, tasks: str) -> tuple[Host, ...]:
    return allocated({"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks})


@pytest.mark.parametrize(
    ("nodes", "tasks", "expected"),
    [
        ("n1", "6", [("n1", 6)]),
        ("n[1-3]", "2(x3)", [("n1", 2), ("n2", 2), ("n3", 2)]),
        ("n[08-10,12],gpu-1", "4(x2),3,1(x2)", [("n08", 4), ("n09", 4), ("n10", 3), ("n12", 1), ("gpu-1", 1)]),
        ("r[1-2]n[1-2].site", "1(x4)", [("r1n1.site", 1), ("r1n2.site", 1), ("r2n1.site", 1), ("r2n2.site", 1)]),
    ],
)
def test_slurm_host_lists_are_expanded(nodes: str, tasks: str, expected: list[tuple[str, int]]) -> None:
    assert list(slurm(nodes, tasks)) == expected


def test_outside_of_an_allocation_there_are_no_hosts() -> None:
    assert allocated({}) == ()
    assert allocated({"SLURM_JOB_NODELIST": "a"}) == ()


@pytest.mark.parametrize(
    ("nodes", "tasks"),
    [("n[1-3]", "2"), ("n[1-", "1"), ("n[a]", "1"), ("n 1", "1"), ("n1", "x"), ("n1", "1(x)"), ("n[1-999999999]", "1")],
)
def test_malformed_host_list_is_refused_and_shown(nodes: str, tasks: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_JOB_NODELIST="):
        slurm(nodes, tasks)


def test_a_users_hosts_are_names_with_slots() -> None:
    assert parse_hosts("a:4, b-1.site,c:2") == (("a", 4), ("b-1.site", 1), ("c", 2))


@pytest.mark.parametrize("text", ["", ",", "a:", "a:0", "a:4,a:2", "-x:4", "a b:3", "a;rm:1", "a:4,", ":3", "a:-1"])
def test_other_hosts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="such as a:4,b:4"):
        parse_hosts(text)


def test_hosts_are_filled_one_after_the_other() -> None:
    assert shares(parse_hosts("a:4,b:4,c:4"), 6) == (("a", range(4)), ("b", range(4, 6)))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_every_rank_is_on_one_host_and_no_host_has_more_than_its_slots(slots: list[int], data: st.DataObject) -> None:
    hosts = [Host(f"n{number}", count) for number, count in enumerate(slots)]
    ranks = data.draw(st.integers(1, sum(slots)))
    found = shares(hosts, ranks)
    assert [rank for share in found for rank in share.ranks] == list(range(ranks))
    assert all(len(share.ranks) <= dict(hosts)[share.host] for share in found)
