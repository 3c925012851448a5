"""A second implementation of the layout of a link's file, which shares no code with the codec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np


class Group:
    """A group with random rows.

    Args:
        rng: of the values.
        name: of the group.
        agents: M.
        shapes: of the observations.
        continuous: the numbers of an action; None with `branches`.
        branches: the choices of each branch.
        n: rows.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        name: str,
        agents: int,
        shapes: Sequence[Sequence[int]],
        continuous: int | None,
        branches: Sequence[int] | None,
        n: int,
    ) -> None:
        size = continuous if branches is None else len(branches)
        assert size is not None
        parts: list[tuple[str, bytes]] = []
        parts.append(("name", (bytes([len(name)]) + name.encode()).ljust(64, b"\0")))
        parts.append(("agents", struct.pack("<i", agents)))
        parts.append(("continuous", b"\1" if branches is None else b"\0"))
        parts.append(("action size", struct.pack("<i", size)))
        if branches is not None:
            parts.append(("branches", b"".join(struct.pack("<i", each) for each in branches)))
        parts.append(("observation count", struct.pack("<i", len(shapes))))
        for number, shape in enumerate(shapes):
            parts.append((f"shape {number}", struct.pack("<iii", *[*shape, 0, 0][:3])))
        parts.append(("n", struct.pack("<i", n)))
        for number, shape in enumerate(shapes):
            values = rng.standard_normal(agents * int(np.prod(shape)))
            parts.append((f"observation {number}", struct.pack(f"<{len(values)}f", *values)))
        parts.append(("reward", struct.pack(f"<{agents}f", *rng.standard_normal(agents))))
        parts.append(("done", bytes(rng.integers(0, 2, agents).tolist())))
        parts.append(("max_step", bytes(rng.integers(0, 2, agents).tolist())))
        self.ids = rng.permutation(10 * agents)[:agents].tolist()
        parts.append(("id", struct.pack(f"<{agents}i", *self.ids)))
        if branches is not None:
            parts.append(("mask", bytes(rng.integers(0, 2, agents * sum(branches)).tolist())))
            choices: list[Any] = [rng.integers(0, each) for _ in range(agents) for each in branches]
            parts.append(("action", struct.pack(f"<{len(choices)}i", *choices)))
        else:
            parts.append(("action", struct.pack(f"<{agents * size}f", *rng.standard_normal(agents * size))))
        self.name, self.parts = name, parts

    @property
    def data(self) -> bytes:
        """The bytes of the group."""
        return b"".join(part for _, part in self.parts)


def file_of(groups: Sequence[Group], area: bytes = b"", used: int = 0, turn: int = 0, command: int = 0) -> bytes:
    """The bytes of a file."""
    body = struct.pack("<i", len(groups)) + b"".join(group.data for group in groups)
    length = 18 + len(area) + len(body)
    return struct.pack("<iiBBii", length, 0, turn, command, len(area) + 4, used) + area + body


def places(groups: Sequence[Group], area: bytes = b"") -> dict[str, int]:
    """The offset of each field of each group."""
    found, at = {}, 22 + len(area)
    for group in groups:
        for field, part in group.parts:
            found[f"{group.name}.{field}"] = at
            at += len(part)
    return found
