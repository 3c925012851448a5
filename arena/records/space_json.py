"""Spaces as JSON, so that the columns of a file can be read without the game that they came from.

    {"box": {"dtype": "float32", "shape": [4], "low": "-inf", "high": [1.0, 2.0, 1.0, 2.0]}}
    {"discrete": {"n": 3, "start": 0}}                 {"multi_discrete": {"nvec": [2, 3], "start": [0, 0]}}
    {"multi_binary": {"n": 3}}                         {"dict": [["name", space], ...]}    {"tuple": [space, ...]}
    {"sequence": space}                                any number of items, `stack=True`
    {"units": {"types": [["Mine", ["x", "y"]], ...], "globals": [], "hidden": [],
               "actions": [["Move", {"choice": {"labels": ["+x", ...], "masked": true}}],
                           ["Fire", {"select": {"masked": false}}], ["End", {"global": {"labels": ...}}]]}}
    {"unit_actions": the same}                         the action space of these units

Bounds that are all the same are one number. JSON has no infinity: a number that is not finite is written as a word.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import is_ragged
from arena.game.units import ActionKind, Choice, GlobalChoice, Select, UnitActions, UnitSpace

_MOST_ITEMS = 2**26  # of one array of a sample: a file that asks for more is not ours


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """A space as what `json.dumps` takes; the inverse is `space_from_json`.

    Raises:
        ConfigError: the space has no fixed layout (Text, Graph, OneOf, other sequences).
    """
    if isinstance(space, (UnitSpace, UnitActions)):
        of = (space.action_space if isinstance(space, UnitSpace) else space).of
        actions: list[Any] = []
        for name, action in space.actions.items():
            arguments: dict[str, Any] = {"masked": action.masked}
            if not isinstance(action, Select):
                arguments = {"labels": list(action.labels), **arguments}
            actions.append([name, {_ACTION_NAMES[type(action)]: arguments}])
        units = {
            "types": [[name, list(features)] for name, features in of["types"].items()],
            "globals": list(of["global_features"]),
            "actions": actions,
            "hidden": list(of["hidden"]),
        }
        return {"units" if isinstance(space, UnitSpace) else "unit_actions": units}
    if isinstance(space, spaces.Sequence) and space.stack:
        return {"sequence": space_to_json(space.feature_space)}
    if isinstance(space, spaces.Box):
        low, high = _bounds(space.low), _bounds(space.high)
        return {"box": {"dtype": str(space.dtype), "shape": list(space.shape), "low": low, "high": high}}
    if isinstance(space, spaces.Discrete):
        return {"discrete": {"dtype": str(space.dtype), "n": int(space.n), "start": int(space.start)}}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"multi_discrete": {"dtype": str(space.dtype), "nvec": nvec, "start": start}}
    if isinstance(space, spaces.MultiBinary):
        n: Any = space.n  # 3 and (3,) are not equal
        return {"multi_binary": {"n": int(n) if np.ndim(n) == 0 else [int(size) for size in n]}}
    if isinstance(space, spaces.Dict):
        return {"dict": [[key, space_to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"tuple": [space_to_json(part) for part in space.spaces]}
    raise ConfigError(f"the space {space} has no fixed layout, so what is seen in it cannot be recorded as columns")


def space_from_json(written: Any) -> Space[Any]:
    """The space that was written; raises ValueError: `space_to_json` does not write this."""
    try:
        ((kind, content),) = written.items()
        if kind == "box":
            dtype, shape = np.dtype(content["dtype"]), tuple(content["shape"])
            _check_items(shape)
            low, high = (np.broadcast_to(np.array(content[name], dtype), shape).copy() for name in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        if kind == "discrete":  # older versions of Gymnasium have int64 only, and no argument for it
            dtype = np.dtype(content["dtype"])
            of_dtype: dict[str, Any] = {} if dtype == np.int64 else {"dtype": dtype.type}
            return spaces.Discrete(content["n"], start=content["start"], **of_dtype)
        if kind == "multi_discrete":
            nvec, start = np.array(content["nvec"], np.int64), np.array(content["start"], np.int64)
            return spaces.MultiDiscrete(nvec, np.dtype(content["dtype"]).type, start=start)
        if kind == "multi_binary":
            n = content["n"]
            _check_items(tuple(n) if isinstance(n, list) else (n,))
            return spaces.MultiBinary(tuple(n) if isinstance(n, list) else n)
        if kind == "dict":
            return spaces.Dict(OrderedDict((key, space_from_json(part)) for key, part in content))
        if kind == "tuple":
            return spaces.Tuple([space_from_json(part) for part in content])
        if kind == "sequence":
            space = spaces.Sequence(space_from_json(content), stack=True)
            is_ragged(space)  # refuses spaces that cannot be items of a sequence
            return space
        if kind not in ("units", "unit_actions"):
            raise KeyError(kind)
        if not isinstance(content, dict) or content.keys() != {"types", "globals", "actions", "hidden"}:
            raise ValueError(f"no space of units: {content!r:.200}")
        actions = {}
        for name, action in content["actions"]:
            ((action_kind, arguments),) = action.items()
            if type(arguments["masked"]) is not bool:
                raise ValueError(f"no action: {action!r:.200}")
            actions[name] = _ACTION_KINDS[action_kind](**arguments)
        units = UnitSpace(dict(content["types"]), content["globals"], actions, content["hidden"])
        return units if kind == "units" else units.action_space
    except (AttributeError, AssertionError, KeyError, TypeError, OverflowError, RecursionError, ConfigError) as error:
        raise ValueError(f"no space: {error}") from error


def _bounds(bounds: NDArray[Any]) -> Any:
    numbers = [
        value if isinstance(value, (bool, int)) or math.isfinite(value) else str(value)
        for value in bounds.ravel().tolist()
    ]
    if len(set(numbers)) == 1:
        return numbers[0]
    flat = np.empty(bounds.size, object)
    flat[:] = numbers
    return flat.reshape(bounds.shape).tolist()


def _check_items(shape: tuple[int, ...]) -> None:
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) > _MOST_ITEMS:
        raise ValueError(f"no shape of a sample: {shape}")


_ACTION_KINDS: dict[str, Callable[..., ActionKind]] = {"choice": Choice, "select": Select, "global": GlobalChoice}
_ACTION_NAMES: dict[Any, str] = {kind: name for name, kind in _ACTION_KINDS.items()}
