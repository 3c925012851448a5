"""The table of docs/algorithms/choosing.md says of every algorithm what its class accepts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import policies
import readme
from arena import registry
from arena.errors import ConfigError
from policies.bc import BehaviorCloning
from policies.common.algorithm import Algorithm
from policies.common.off_policy import OffPolicy
from policies.common.on_policy import OnPolicy
from unit_games import EVERYTHING

SEEN = spaces.Box(-1, 1, (3,), np.float32)
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTIONS = {
    "Box": UNBOUNDED,
    "Box with bounds": spaces.Box(-1, 1, (2,), np.float32),
    "Discrete": spaces.Discrete(3),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(2),
}
LEARNING = [
    name
    for name, entry in registry.ALGORITHMS.items()
    if not entry.package and issubclass(registry.algorithm(name), Algorithm)
]
SOURCES = {OnPolicy: "rollouts", OffPolicy: "replay", BehaviorCloning: "records"}


def accepts(cls: Any, seen: Any, actions: Any) -> bool:
    try:
        cls.check(seen, actions)
    except ConfigError:
        return False
    return True


def row_of(name: str) -> list[str]:
    cls = registry.algorithm(name)
    known = options_of(cls)
    taken = [kind for kind, space in ACTIONS.items() if accepts(cls, SEEN, space)]
    if "Box" in taken:
        taken.remove("Box with bounds")
    return [
        f"`{name}`",
        next(word for base, word in SOURCES.items() if issubclass(cls, base)),
        "needed" if hasattr(cls, "check_team") else "-",
        ", ".join(taken),
        "yes" if accepts(cls, EVERYTHING, EVERYTHING.action_space) else "-",
        "yes" if "recurrent" in known else "-",
        ", ".join(option for option in ("encoder", "extra_loss") if option in known) or "-",
    ]


def options_of(cls: Any) -> set[str]:
    return {*registry.option_parameters(cls).names} - {*cls.Options.REFUSED}


LISTS: dict[str, Any] = {  # what follows a list of algorithms in docs/algorithms/index.md: which it names
    " have this option.": lambda cls: "recurrent" in options_of(cls),
    " take Dict and Tuple of Box": lambda cls: accepts(cls, SEEN, spaces.Dict(a=UNBOUNDED, b=spaces.Discrete(3))),
    ") an update learns from the episodes": lambda cls: "batch_mode" in options_of(cls),
}


def test_table_of_algorithms_is_that_of_their_classes() -> None:
    page = readme.PAGES["docs/algorithms/choosing.md"].text
    table = page.partition("## What each can do")[2].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("| `")]
    assert {row[0]: row for row in rows} == {f"`{name}`": row_of(name) for name in LEARNING}
    assert len(rows) == len(LEARNING)


@pytest.mark.parametrize(("end", "has"), LISTS.items(), ids=["memory", "parts", "episodes"])
def test_lists_of_algorithms_are_those_of_their_classes(end: str, has: Any) -> None:
    before, found, _ = " ".join(readme.PAGES["docs/algorithms/index.md"].text.split()).partition(end)
    assert found
    said = re.search(r"(`\w+`(, | and )?)+$", before)
    assert said
    assert {*re.findall(r"`(\w+)`", said[0])} == {name for name in LEARNING if has(registry.algorithm(name))}


def test_docstring_of_policies_names_all_algorithms() -> None:
    listed = {
        word
        for line in (policies.__doc__ or "").splitlines()
        if line.startswith("    ")
        for word in line.strip().partition("  ")[0].split(", ")
    }
    assert {*LEARNING} <= listed
