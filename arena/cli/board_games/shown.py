"""What a page shows of a tick, as JSON: observations as tables, units, actions as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from arena.game import labels
from arena.game.api import Names
from arena.game.spaces import flatten
from arena.game.units import GlobalChoice, UnitSpace

Table = dict[str, Any]
"""Its `title`, the `columns`, and the `rows`: lists of texts and numbers."""
_MOST = 400  # characters of a text


def tables(space: Space[Any], names: Names, observation: Any) -> list[Table]:
    """An observation; units that are hidden from the policy are left out."""
    if not isinstance(space, UnitSpace):
        rows = [[name, text[:_MOST]] for name, text in labels.rows(space, names, observation)]
        return [{"title": "", "columns": ["observation", "value"], "rows": rows}]
    return list(_of_units(space, observation))


def action_text(spaces: tuple[Space[Any], Space[Any]], names: Names, observation: Any, action: Any) -> str:
    """An action by its labels; `spaces` and `observation` are those before it."""
    if isinstance(spaces[0], UnitSpace):
        return "; ".join(spaces[0].describe(observation, action))
    named = labels.rows(spaces[1], names, action)
    return ", ".join(text if name in ("", "action") else f"{name} {text}" for name, text in named)[:_MOST]


def choices(space: Space[Any], action: Any) -> list[float]:
    """The numbers of an action, in the order of its decisions."""
    return [float(number) for array in flatten(space, action) for number in np.ravel(array)]


def units(space: UnitSpace, observation: Any) -> list[dict[str, Any]]:
    """The units that the policy sees, with their places where they have features `x` and `y`."""
    found = []
    for table in _of_units(space, observation):
        for row in table["rows"] if table["columns"][0] == "unit" else ():
            features = dict(zip(table["columns"], row, strict=True))
            text = ", ".join(f"{name} {number:g}" for name, number in features.items() if name != "unit")
            place = {axis: features[axis] for axis in ("x", "y") if axis in features}
            found.append({"unit": row[0], "type": table["title"], "text": text, **place})
    return found


def actors(space: UnitSpace, observation: Any) -> list[int | None]:
    """The unit of each decision; None where the whole row decides."""
    return [
        None if isinstance(kind, GlobalChoice) else int(one)
        for name, kind in space.actions.items()
        for one in observation["actions"][name]["actors"]
    ]


def _of_units(space: UnitSpace, observation: Any) -> Iterator[Table]:
    if space.global_features:
        yield {"title": "globals", "columns": space.global_features, "rows": [observation["globals"].tolist()]}
    index = 0
    for name, features in space.types.items():
        units = observation["units"][name]
        seen = observation["visible"][name] if name in space.hidden else np.ones(len(units))
        rows = [[index + place, *map(float, unit)] for place, unit in enumerate(units) if seen[place]]
        index += len(units)
        yield {"title": name, "columns": ["unit", *features], "rows": rows}
