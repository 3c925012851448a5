"""What each key means, from the source: the comments behind the fields of a class, or the docstrings below them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec

_FIELD = re.compile(r'^    (\w+): [^\n]*?(?:  # ([^\n]+)|\n    """([^\n]+)""")$', re.MULTILINE)

_EXAMPLES = {
    "Config": """Config(
    name="duel",
    ticks=10_000,
    envs={"game": Env(make="touchdown")},
    policies={"blue": Policy(algorithm="ppo"), "red": Policy(algorithm="random")},
    matches=[Match(env="game", seats=["blue", "red"])],
)""",
    "Env": 'Env(make="touchdown", kwargs={"team_size": 2})',
    "Policy": 'Policy(algorithm="ppo", options={"learning_rate": 3e-4})',
    "Match": 'Match(env="game", seats=["blue", "red"], lanes=4)',
    "RoundRobin": 'RoundRobin(env="game", policies=["blue", "red", "green"])',
    "League": "League(snapshots=Snapshots(every=2, keep=10))",
}
"""Of structs in Python; their docstrings describe files too."""


@cache
def _source_of(module: str) -> str:
    return inspect.getsource(sys.modules[module])


def descriptions_of(declared: type[Any]) -> dict[str, str]:
    """The descriptions of a class's fields and of those that it inherits.

    There are none if the class was created at run time, and so has no source.
    """
    found: dict[str, str] = {}
    for cls in reversed(declared.__mro__):
        if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
            with suppress(OSError, TypeError, KeyError):
                # `inspect.getsource` of a class parses its module each time: 10 ms, for each of the structs.
                source = re.search(
                    rf"^class {cls.__qualname__}\b.*?(?=^[\w@]|\Z)", _source_of(cls.__module__), re.M | re.S
                )
                for match in _FIELD.finditer(source[0] if source else ""):
                    found[match[1]] = match[2] or match[3]
    return found


def documented(struct: Any) -> Any:
    """A struct of the configuration, with an example and a line for each key in its docstring, for `help`."""
    kinds: dict[str, str] = {}
    for cls in struct.__mro__:
        kinds = vars(cls).get("__annotations__", {}) | kinds
    lines, said = [inspect.cleandoc(struct.__doc__ or "")], descriptions_of(struct)
    if example := _EXAMPLES.get(struct.__name__):
        lines += ["", "Example:", *(f"    {line}" for line in example.splitlines())]
    lines += ["", "Args:"]
    for key in struct.__struct_fields__:
        text = said.get(key, "").replace("null", "None")
        if choices := re.findall(r"'\w+'", kinds[key]):  # of a Literal
            choices += ["a number"] if kinds[key].endswith("| Count") else []
            text = f"{' or '.join(choices)}; {text}"
        also = ". A class or function may stand in the place of its name" if "Target" in kinds[key] else ""
        lines.append(f"    {key}: {text}{also}")
    struct.__doc__ = "\n".join(lines)
    return struct
