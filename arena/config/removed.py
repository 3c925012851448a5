"""Keys of earlier versions: a configuration that has one is refused; run folders of these versions can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REMOVED: Mapping[str, str] = {
    "fault_tolerance": (
        "is no key any more: when a process dies, `arena train` starts the run again from its newest boundary, with "
        "any MPI; `restarts` says how often in a leg, and `restarts: 0` ends the run as `fault_tolerance: off` did"
    ),
    "league.finish_ticks": (
        "is no key any more: the end of a leg cuts the games that are under way, and these do not count; choose "
        "`ticks` and `checkpoint_every` much longer than a game"
    ),
    "policies.*.reduce": (
        "is no key any more: gradients are summed in the order of the workers, and `fast` was slower within a node; "
        "leave it out. Where it was `fast` with `sync: samples`, `max_lag` has to be there, the lead of a worker in "
        "updates; it was 2 by default"
    ),
    "league.window": "is no key any more: all games count, each for its policy as it was at that tick; leave it out",
    "spares": (
        "is no key any more: when a process dies, all processes are started again, so none has to wait; `restarts` "
        "says how often in a leg; leave it out"
    ),
}
"""Key path to what is said about it, with the key that does the same now; `*` stands for one name, as in `envs.*.x`."""


def removed_words(path: str) -> str | None:
    """What is said about a key that was removed; None about any other one."""
    names = path.split(".")
    for pattern, words in REMOVED.items():
        parts = pattern.split(".")
        if len(parts) == len(names) and all(part in ("*", name) for part, name in zip(parts, names, strict=True)):
            return words
    return None


def without_removed(data: Any, path: str = "") -> Any:
    """The data of a configuration without the keys that were removed."""
    if not isinstance(data, Mapping):
        return data
    placed = {key: f"{path}.{key}" if path else str(key) for key in data}
    removed = "reduce" in placed and removed_words(placed["reduce"]) is not None
    if removed and (data["reduce"], data.get("sync")) != ("fast", "samples"):
        placed.pop("max_lag", None)  # it had no effect then, and was written with its default
    return {key: without_removed(data[key], at) for key, at in placed.items() if removed_words(at) is None}
