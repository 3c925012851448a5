"""A stand-in for the arena: drives a simulator with random allowed actions, and checks that it keeps the rules."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arena.external.shared_memory.driver import Driver
from arena.external.shared_memory.layout import GroupSpec
from arena.external.shared_memory.lives import check_rows


class Played(NamedTuple):
    """What was played."""

    handovers: int  # with rows
    lives: int  # that have begun
    rows: int
    median_us: float  # from a give to the next hand-over, the time of the simulator included


def play(driver: Driver, handovers: int, seed: int) -> Played:
    """Plays hand-overs with rows.

    Raises:
        LinkError: the simulator breaks a rule, or the link fails.
    """
    rng = np.random.default_rng(seed)
    living: set[tuple[str, int]] = set()
    played = lives = rows = 0
    times: list[float] = []
    found = driver.reset()
    while True:
        for name, some in found.items():
            check_rows(driver.groups[name], some, driver.offset_of)
            for number, done, max_step in zip(
                some.ids.tolist(), some.done.tolist(), some.max_step.tolist(), strict=True
            ):
                agent = name, number
                if done:
                    living.discard(agent)
                elif agent not in living and not max_step:
                    living.add(agent)
                    lives += 1
            rows += len(some.ids)
        played += bool(found)
        if played >= handovers:
            return Played(played, lives, rows, statistics.median(times) * 1e6 if times else 0.0)
        actions = {}
        for name, some in found.items():
            spec, n, first = driver.groups[name], len(some.ids), 0
            actions[name] = np.zeros((n, spec.action_size), spec.action_dtype)
            if spec.branches is None:
                actions[name][...] = rng.uniform(-1.0, 1.0, actions[name].shape)
            for branch, choices in enumerate(spec.branches or ()):
                allowed = np.ones((n, choices)) if some.masks is None else ~some.masks[:, first : first + choices]
                actions[name][:, branch] = np.argmax(rng.random((n, choices)) * allowed, axis=1)
                first += choices
        began = time.perf_counter()
        found = driver.step(actions)
        times.append(time.perf_counter() - began)


def groups_data(groups: Mapping[str, GroupSpec]) -> dict[str, dict[str, Any]]:
    """The block `groups` of a configuration."""
    found: dict[str, dict[str, Any]] = {}
    for name, spec in groups.items():
        found[name] = {"agents": spec.agents, "observations": [list(shape) for shape in spec.observations]}
        actions = {"continuous": spec.continuous} if spec.branches is None else {"branches": list(spec.branches)}
        found[name] |= actions
    return found


def groups_text(groups: Mapping[str, GroupSpec]) -> str:
    """The same as YAML."""
    lines = ["groups:"]
    for name, group in groups_data(groups).items():
        content = ", ".join(f"{key}: {json.dumps(value)}" for key, value in group.items())
        lines.append(f"  {json.dumps(name)}: {{{content}}}")
    return "\n".join(lines)
