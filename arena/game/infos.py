"""Infos of a tick: what the arena states of the rows, as typed fields, and what the game says, as data.

    infos = env.step(actions)[-1]
    infos.fields.active            stated by the arena; no game can write here
    infos["active"]                the same, under a key of Gymnasium's convention or of the arena's own (`ARENA_KEYS`)
    infos["lives"]                 a key of the game
    infos["game/active"]           a key of the game that has the name of one of `ARENA_KEYS`, or begins with "_"

Keys that begin with "_" are the masks of Gymnasium's vector environments: `infos["_lives"]` are the rows with `lives`.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from arena.game.api import Info

MASK = "action_mask"  # the key of action masks in Gymnasium and PettingZoo
ARENA_KEYS = frozenset({"active", MASK, "void", "given", "given_action", "final_obs", "final_info"})
FINAL_KEYS = frozenset({"final_obs", "final_info", "_final_obs", "_final_info"})
PREFIX = "game/"
NAME_RULE = "letters, digits and '_', the first a letter"  # of metrics
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_log = logging.getLogger(__name__)


class StepFields(NamedTuple):
    """What the arena states of the rows of a vector environment; of a single entity without the axis B.

    Fields that do not apply are None: all rows act, there are no masks, no row has ended, the game is not external.
    """

    active: Any = None  # bool [B], the rows that act next
    action_mask: Any = None  # int8 [B, mask_size]
    ended: Any = None  # bool [B], the rows whose episode has ended on this tick
    final_obs: Any = None  # object [B], the last observations of rows that ended
    final_mask: Any = None  # int8 [B, mask_size], the last action masks of rows that ended
    void: Any = None  # bool [B], rows whose transition that this tick completes is not to be learned from
    given: Any = None  # bool [B], active rows whose game has chosen the action already
    given_action: Any = None  # a batch [B, ...], valid where `given`


class Infos(dict[str, Any]):
    """The infos that a face returns: a dict of what is shown, with the arena's own statements in `fields`."""

    __slots__ = ("fields",)

    def __init__(self, fields: StepFields, shown: Mapping[str, Any] = {}) -> None:
        super().__init__(shown)
        self.fields = fields


def fields_of(infos: Mapping[str, Any] | StepFields) -> StepFields:
    """What the arena states in infos of a face.

    A mapping of another origin, such as of a plain Gymnasium vector environment or of a caller of `act`, states what it
    has under `active`, `action_mask`, `final_obs`, `_final_obs`, and `action_mask` of `final_info`.
    """
    if isinstance(infos, StepFields):
        return infos
    if isinstance(infos, Infos):
        return infos.fields
    last = infos.get("final_info") or {}
    return StepFields(
        infos.get("active"), infos.get(MASK), infos.get("_final_obs"), infos.get("final_obs"), last.get(MASK)
    )


@cache  # once per process, which may create a game several times
def warn_no_mask(who: str, masks: str = "the first reset had one") -> None:
    """Logs that an entity that acts next has no action mask, though there are `masks`."""
    _log.warning("%s no action mask, though %s: everything is allowed; a mask of ones says the same", who, masks)


def refused_key(info: Mapping[Any, Any]) -> str | None:
    """Why an info of a game cannot be taken; None if it can.

    The game's masks have been taken out of the info before.
    """
    if not info.keys().isdisjoint(FINAL_KEYS):
        key = next(key for key in info if key in FINAL_KEYS)
        return (
            f"the info {key!r}: it belongs to vector environments, which reset themselves; a game returns the last "
            "observation and info of an episode from step(), and the first ones from reset(); rename the key if it is "
            "something else"
        )
    if MASK in info:
        return (
            f"the info {MASK!r} {np.asarray(info[MASK], object).shape} of an entity without action masks; masks have "
            "one item per action of a Discrete or MultiDiscrete action space, and the first reset gives one too; "
            "rename the key if it is something else"
        )
    return None


def shown(info: Info) -> Info:
    """An info of a game under the keys that a face shows; the same object where no key changes."""
    if not any(map(_is_taken, info)):
        return info
    return {PREFIX + key if _is_taken(key) else key: value for key, value in info.items()}


def _is_taken(key: Any) -> bool:
    return isinstance(key, str) and (key in ARENA_KEYS or key.startswith(("_", PREFIX)))


def grouped(infos: Mapping[int, Info], count: int) -> dict[str, Any]:
    """Infos of some rows in the form of Gymnasium's vector environments: per key an array [count, ...] and its mask.

    Unlike there, values of several types, shapes or sizes keep their values: integers among floats become floats, and
    everything else is in an array of objects.
    """
    columns: dict[Any, dict[int, Any]] = {}
    for row, info in infos.items():
        for key, value in info.items():
            columns.setdefault(key, {})[row] = value
    found: dict[Any, Any] = {}
    for key, values in columns.items():
        rows, items = list(values), list(values.values())
        kind = type(items[0])
        column: Any = np.full(count, None, object)
        if all(type(one) is kind for one in items):
            if kind is dict and not any(map(_is_taken, (key for one in items for key in one))):
                column = grouped(values, count)
            elif kind is np.ndarray and len({(one.dtype, one.shape) for one in items}) == 1:
                column = np.zeros((count, *items[0].shape), items[0].dtype)
            elif kind in (bool, float) or issubclass(kind, np.number):
                column = np.zeros(count, kind)
            elif kind is int and all(-(2**63) <= one < 2**63 for one in items):
                column = np.zeros(count, np.int64)
        elif all(type(one) is float or (type(one) is int and abs(one) <= 2**53) for one in items):
            column = np.zeros(count)
        if isinstance(column, np.ndarray):
            for row, value in zip(rows, items, strict=True):
                column[row] = value
        found[key], found[f"_{key}"] = column, np.zeros(count, np.bool_)
        found[f"_{key}"][rows] = True
    return found


def is_metric_name(name: Any) -> bool:
    """Whether a metric can have this name."""
    return isinstance(name, str) and _NAME.match(name) is not None


def stated_metrics(info: Mapping[str, Any]) -> dict[str, float] | None:
    """The finite numbers of `info["metrics"]`; None if it is no mapping of names to numbers: a game's other use."""
    found = info.get("metrics")
    if not isinstance(found, Mapping) or not all(map(is_metric_name, found)):
        return None
    values = {name: value.item() if hasattr(value, "dtype") else value for name, value in found.items()}
    if not all(isinstance(value, Real) for value in values.values()):
        return None
    return {name: number for name, value in values.items() if math.isfinite(number := float(value))} or None


def mean_metrics(stated: Iterable[Mapping[str, float]]) -> dict[str, float] | None:
    """The mean of each metric over the entities that have stated it; None without one."""
    values: dict[str, list[float]] = {}
    for metrics in stated:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    return {name: math.fsum(each) / len(each) for name, each in values.items()} or None
