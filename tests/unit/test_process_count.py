"""How many processes `arena train` starts, and on which hosts: `ranks`, cores, quotas and allocations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.cli.main import main
from arena.config import Config, parse_config
from arena.config.yaml import dump
from arena.errors import ConfigError
from arena.plan.hosts import Host, allocated, parse_hosts, shares
from arena.plan.process_count import process_count, usable_cores


def config_of(**changes: Any) -> Config:
    return parse_config(data_of(**changes), source="counted.yaml")


def data_of(**changes: Any) -> dict[str, Any]:
    """Six roles."""
    return {
        "ticks": 10,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 2}}},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue"] * 4}],
        **changes,
    }


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Any:
    def have(number: int, total: int = 64) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(number)), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: total)

    return have


@pytest.mark.parametrize(("available", "number"), [(1, 2), (2, 2), (4, 4), (6, 6), (64, 6)])
def test_auto_is_one_process_per_core_within_bounds(available: int, number: int, cores: Any, tmp_path: Path) -> None:
    cores(available)
    found = process_count(config_of(), None, {}, files=tmp_path)
    assert found.number == number
    assert f"{available} core" in found.text


@pytest.mark.parametrize(("wanted", "number"), [("one_per_role", None), (4, 4), (1, 1)])
def test_option_overrides_the_key(wanted: Any, number: int | None, cores: Any) -> None:
    cores(3)
    assert process_count(config_of(ranks=wanted), None, {}).number == number
    assert process_count(config_of(ranks=5), wanted, {}).number == number


def cgroup(files: Path, lines: str, **quotas: str) -> Path:
    (files / "proc/self").mkdir(parents=True)
    (files / "proc/self/cgroup").write_text(lines)
    for name, text in quotas.items():
        path = files / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


@pytest.mark.parametrize(
    ("lines", "quotas", "number"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "350000 100000\n"}, 3),
        ("0::/of/the/host\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {}, 8),
        ("4:cpu,cpuacct:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us": "200000", "cpu/x/cpu.cfs_period_us": "100000"}, 2),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("4:memory:/x\n", {"memory/x/cpu.cfs_quota_us": "1", "memory/x/cpu.cfs_period_us": "1"}, 8),
    ],
)
def test_the_quota_of_a_cgroup_limits_the_cores(
    lines: str, quotas: dict[str, str], number: int, cores: Any, tmp_path: Path
) -> None:
    cores(8)
    assert usable_cores(cgroup(tmp_path, lines, **quotas))[0] == number


def test_in_an_allocation_its_slots_count(cores: Any, tmp_path: Path) -> None:
    cores(64)
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    assert process_count(config_of(), None, slurm).number == 4
    alone = {"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1"}
    assert process_count(config_of(), None, alone).number == 1
    (tmp_path / "nodes").write_text("a\na\nb\n")
    assert process_count(config_of(), None, {"PBS_NODEFILE": str(tmp_path / "nodes")}).number == 3
    (tmp_path / "hosts").write_text("a 3 all.q UNDEFINED\nb 2 all.q UNDEFINED\n")
    assert process_count(config_of(), None, {"PE_HOSTFILE": str(tmp_path / "hosts")}).number == 5


@pytest.mark.parametrize("wrong", [0, -1, "many", 1.5, True])
def test_other_values_are_refused(wrong: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"ranks: found .*expected auto, or one_per_role, or a whole number, at least 1"
    ):
        config_of(ranks=wrong)


def test_plan_gives_the_number_of_processes_and_its_reason(
    cores: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cores(3, total=3)
    monkeypatch.chdir(tmp_path)
    Path("six.yaml").write_text(dump(data_of()))
    assert main(["plan", "six.yaml"]) == 0
    out = capsys.readouterr().out
    assert "processes: 6 roles on 3 processes" in out
    assert "\nranks: auto (3 cores)\n" in out
    assert main(["plan", "six.yaml", "--ranks", "one_per_role"]) == 0
    assert "\nprocesses: 6 = " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "six.yaml", "--ranks", "0"])
    assert "expected an integer >= 1, auto or one_per_role, got '0'" in capsys.readouterr().err


def test_slots_of_named_hosts_count_in_place_of_the_cores(cores: Any, tmp_path: Path) -> None:
    cores(64)
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    assert process_count(config_of(), None, slurm, hosts=parse_hosts("a:2,b")) == (
        3,
        "ranks: auto (3 slots of --hosts)",
    )
    assert process_count(config_of(), None, {}, hosts=parse_hosts("a:9,b:9")).number == 6
    assert process_count(config_of(), 4, {}, hosts=parse_hosts("a:9")).number == 4


# Hosts as users and SLURM write them, and which ranks are on which


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


@pytest.mark.parametrize("text", ["", ",", "a:", "-x:4", "a b:3", "a;rm:1", "a:4,", ":3", "a:-1"])
def test_other_hosts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="such as a:4,b:4"):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("text", "said"), [("b,a:0", "host a has 0 slots: "), ("a:4,b,a:2", "host a is named twice; ")]
)
def test_hosts_without_slots_or_named_twice_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^--hosts: {said}"):
        parse_hosts(text)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_every_rank_is_on_one_host_and_no_host_has_more_than_its_slots(slots: list[int], data: st.DataObject) -> None:
    hosts = [Host(f"n{number}", count) for number, count in enumerate(slots)]
    ranks = data.draw(st.integers(1, sum(slots)))
    found = shares(hosts, ranks)
    assert [rank for share in found for rank in share.ranks] == list(range(ranks))
    assert all(len(share.ranks) <= dict(hosts)[share.host] for share in found)
