"""`arena inspect`: what lies in a file that a simulator shares with the arena, field by field."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena.errors import ConfigError, LayoutError
from arena.records.atomic import regular
from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows the header, the messages, and the fields of each group with their offsets. Takes no turn and no lock: "
        "both sides may play meanwhile, and a file that is being written may look broken. Exit code 2 if the file "
        "breaks the layout; the message says where."
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the first file of a simulator, under `files` in the run's `external.json`; or a later one",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the fields of the file; returns the exit status."""
    from arena.external.shared_memory.layout import decode

    path = Path(arguments.file)
    if not path.exists() and path.parent.is_dir():  # its newest successor: each change of file adds `_` to the name
        later = [one for one in path.parent.iterdir() if one.name.rstrip("_") == path.name.rstrip("_")]
        path = max(later, key=lambda one: len(one.name), default=path)
    try:
        with open(path, "rb", opener=regular) as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    try:
        content = decode(data, source=str(path))
    except LayoutError as error:
        raise ConfigError(str(error)) from error
    header = content.header
    groups = [
        {
            "name": spec.name,
            "agents": spec.agents,
            "continuous": spec.continuous,
            "branches": None if spec.branches is None else list(spec.branches),
            "observations": [list(shape) for shape in spec.observations],
            "n": len(rows.ids),
            "ids": rows.ids.tolist(),
            "done": rows.done.tolist(),
            "max_step": rows.max_step.tolist(),
            "offsets": offsets,
        }
        for spec, offsets, rows, _ in content.groups
    ]
    found = {
        "length": header.length,
        "version": header.version,
        "turn": int(header.turn != 0),
        "command": header.command,
        "capacity": header.capacity,
        "messages": [{"guid": str(guid), "bytes": len(data)} for guid, data in content.messages],
        "groups": groups,
    }
    say(json.dumps(found) if arguments.json else "\n".join([str(path), *_lines(found, content.groups)]))
    return 0


def _lines(found: dict[str, Any], contents: Sequence[Any]) -> list[str]:
    sides, commands = ("the arena's", "the simulator's"), ("step", "reset", "change file", "close")
    lines = [
        f"     0  length    {found['length']}",
        f"     4  version   {found['version']}",
        f"     8  turn      {found['turn']} ({sides[found['turn']]})",
        f"     9  command   {found['command']} ({commands[found['command']]})",
        f"    10  capacity  {found['capacity']}",
        f"    14  message bytes  {sum(20 + message['bytes'] for message in found['messages'])}",
    ]
    lines += [f"            {message['guid']}, {message['bytes']} bytes" for message in found["messages"]]
    groups = "in the next file" if found["command"] == 2 else len(found["groups"])
    lines.append(f"{found['capacity'] + 14:6}  groups    {groups}")
    for group, content in zip(found["groups"], contents, strict=True):
        n, rows = group["n"], f"{group['n']} of {group['agents']} rows of"
        values = {"name": group["name"], "agents": group["agents"], "n": n, "action size": content.spec.action_size}
        values |= {"observation count": len(group["observations"]), "mask": f"{rows} [{content.spec.choices}]"}
        values |= {f"observation {number}": f"{rows} {shape}" for number, shape in enumerate(group["observations"])}
        values |= {"reward": content.rows.rewards.tolist(), "action": content.actions.tolist()}
        values |= {"id": group["ids"], "done": group["done"], "max_step": group["max_step"]}
        values |= {"continuous": int(group["continuous"] is not None), "branches": group["branches"]}
        values |= {f"shape {number}": shape for number, shape in enumerate(group["observations"])}
        for field, offset in group["offsets"].items():
            value = values.get(field, "")
            lines.append(f"{offset:6}  {group['name']}.{field}  {value}".rstrip())
    return lines
