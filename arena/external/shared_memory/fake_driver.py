"""A stand-in for the arena: drives a simulator with random allowed actions, and checks that it keeps the rules."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.external.shared_memory.driver import Driver
from arena.external.shared_memory.layout import GroupSpec, Rows
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
        actions = {name: _random_actions(driver.groups[name], some, rng) for name, some in found.items()}
        began = time.perf_counter()
        found = driver.step(actions)
        times.append(time.perf_counter() - began)


def _random_actions(spec: GroupSpec, rows: Rows, rng: np.random.Generator) -> NDArray[Any]:
    n = len(rows.ids)
    if spec.branches is None:
        return rng.uniform(-1.0, 1.0, (n, spec.action_size)).astype(np.float32)
    actions = np.zeros((n, spec.action_size), np.int32)
    first = 0
    for branch, choices in enumerate(spec.branches):
        allowed = np.ones((n, choices)) if rows.masks is None else ~rows.masks[:, first : first + choices]
        actions[:, branch] = np.argmax(rng.random((n, choices)) * allowed, axis=1)
        first += choices
    return actions


def groups_text(groups: Mapping[str, GroupSpec], *, as_json: bool = False) -> str:
    """The block `groups` of a configuration, as YAML or as JSON."""
    found: dict[str, dict[str, Any]] = {}
    for name, spec in groups.items():
        found[name] = {"agents": spec.agents, "observations": [list(shape) for shape in spec.observations]}
        if spec.branches is None:
            found[name]["continuous"] = spec.continuous
        else:
            found[name]["branches"] = list(spec.branches)
    if as_json:
        return json.dumps(found)
    lines = [f"  {json.dumps(name)}: {_flow(group)}" for name, group in found.items()]
    return "\n".join(["groups:", *lines])


def _flow(group: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in group.items()) + "}"
