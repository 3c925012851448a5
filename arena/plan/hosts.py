"""Hosts of a run and the ranks on each: from the command line, or from SLURM.

Launchers fill the hosts one after the other, each with as many ranks as it has slots; `shares` predicts this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena.errors import ConfigError, pluralize

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::([0-9]{1,6}))?")
_NODES = re.compile(r"([A-Za-z0-9_.-]+)((?:\[[0-9,-]+\][A-Za-z0-9_.-]*)*)")
_TASKS = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
_MOST_HOSTS = 100_000


class Host(NamedTuple):
    """A machine and its number of slots, one per rank."""

    name: str
    slots: int


class Share(NamedTuple):
    """The ranks of one host."""

    host: str
    ranks: range


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`a:4,b:4` as hosts; a host without a number has one slot.

    Raises:
        ConfigError: the text does not have this form, or names a host twice or without slots.
    """
    hosts: dict[str, Host] = {}
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None:
            raise ConfigError(
                f"expected hosts and their slots, such as a:4,b:4, got {part!r:.80} in {text!r:.80}", path="--hosts"
            )
        host = Host(match[1], int(match[2] or 1))
        if not host.slots:
            raise ConfigError(f"host {host.name} has 0 slots: give it at least 1, or leave it out", path="--hosts")
        if host.name in hosts:
            raise ConfigError(f"host {host.name} is named twice; name it once, with all its slots", path="--hosts")
        hosts[host.name] = host
    return tuple(hosts.values())


def allocated(environment: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the SLURM allocation of this process; empty outside of SLURM.

    Reads SLURM_JOB_NODELIST, and SLURM_TASKS_PER_NODE in the same order.

    Raises:
        ConfigError: the variables do not have the form that SLURM documents.
    """
    nodes, tasks = (environment.get(name, "") for name in ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"))
    if not (nodes and tasks):
        return ()
    try:
        slots: list[int] = []
        for part in tasks.split(","):  # `4(x2),3` is 4, 4, 3
            match = _TASKS.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r:.80} is not a number of tasks")
            slots += [int(match[1])] * _few(len(slots), int(match[2] or 1))
        return tuple(Host(*pair) for pair in zip(_names(nodes), slots, strict=True))
    except ValueError as error:
        raise ConfigError(
            f"SLURM_JOB_NODELIST={nodes!r:.200} and SLURM_TASKS_PER_NODE={tasks!r:.200} do not match: {error}"
        ) from error


def _names(nodes: str) -> list[str]:
    """`n[01-03,7],gpu` as n01, n02, n03, n7, gpu."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", nodes):
        if _NODES.fullmatch(part) is None:
            raise ValueError(f"{part!r:.80} is not a list of nodes")
        first, *rest = re.split(r"[\[\]]", part)  # text, numbers, text, numbers, ..., text
        found = [first]
        for ranges, text in zip(rest[::2], rest[1::2], strict=True):
            numbers: list[str] = []
            for start, _, last in (one.partition("-") for one in ranges.split(",")):
                count = max(0, int(last or start) + 1 - int(start))
                _few(len(names), len(found) * _few(len(numbers), count))
                numbers += [f"{number:0{len(start)}d}" for number in range(int(start), int(start) + count)]
            found = [f"{name}{number}{text}" for name in found for number in numbers]
        names += found
    return names


def _few(known: int, more: int) -> int:
    if known + more > _MOST_HOSTS:
        raise ValueError(f"more than {_MOST_HOSTS} nodes")
    return more


def shares(hosts: Sequence[Host], ranks: int) -> tuple[Share, ...]:
    """The ranks of each host, without hosts that have none.

    Raises:
        ConfigError: the hosts have fewer slots than there are ranks.
    """
    slots = sum(host.slots for host in hosts)
    if ranks > slots:
        raise ConfigError(
            f"{pluralize(len(hosts), 'host')} with {pluralize(slots, 'slot')} in all cannot take {ranks} ranks; ask "
            f"for more slots (tasks in SLURM), or let fewer ranks host several roles each: --ranks {slots}"
        )
    found, first = [], 0
    for host in hosts:
        end = min(first + host.slots, ranks)
        found.append(Share(host.name, range(first, end)))
        first = end
    return tuple(share for share in found if share.ranks)
