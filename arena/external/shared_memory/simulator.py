"""The simulator's side of a link, for simulators that are written in Python."""

from __future__ import annotations

import struct
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import PeerClosed, PeerSilent, UnsafeFile
from arena.external.shared_memory import layout
from arena.external.shared_memory.files import open_file
from arena.external.shared_memory.layout import Command, GroupSpec, Rows
from arena.external.shared_memory.link_file import DRIVER, SIMULATOR, LinkFile, TurnWait, read_header

_I32 = struct.Struct("<i")


class Simulator:
    """A simulator that asks a driver for actions; a context manager.

    Args:
        path: of the first file; None: the argument after `--memory-path`, or else the default file if it is there.
        profile: `published`, or `release-0.2`: it gives the turn when it is made, and writes masks of discrete groups
            over `max_step` and the ids, as programs of that release do.
        step_s: seconds until the driver must have answered.

    Raises:
        ValueError: an unknown profile.
        UnsafeFile: there is no such file, or it is not a private file of this user.
        LayoutError: its header is wrong.
    """

    def __init__(self, path: str | Path | None = None, *, profile: str = "published", step_s: float = 30.0) -> None:
        if profile not in ("published", "release-0.2"):
            raise ValueError(f"profile {profile!r}; known: published, release-0.2")
        if path is None and "--memory-path" in sys.argv[:-1]:
            path = sys.argv[sys.argv.index("--memory-path") + 1]
        elif path is None:
            path = Path(tempfile.gettempdir()) / "ml-agents" / "default"
            if not path.exists():
                message = "there is no file: give `--memory-path`, or start the driver first"
                raise UnsafeFile(message, source=str(path))
        place = Path(path)
        descriptor = open_file(place)
        read_header(place, descriptor)  # checks it
        self._file = LinkFile(place, descriptor)
        self._old_release = profile == "release-0.2"
        self._step_s = step_s
        self._specs: dict[str, GroupSpec] = {}
        self._outgoing: list[tuple[uuid.UUID, bytes]] = []
        self._received: list[tuple[uuid.UUID, bytes]] = []
        self._has_turn = self._closed = False
        if self._old_release:
            self._file.write(layout.COMMAND_AT, b"\0")
            self._file.write(layout.TURN_AT, bytes([DRIVER]))

    def add(self, spec: GroupSpec) -> None:
        """Makes a group known by its `spec`; it is registered in the file with its first rows."""
        self._specs[spec.name] = spec

    def begin(self) -> None:
        """Waits for the first reset.

        Raises:
            PeerClosed, PeerSilent: the driver has closed the link, or has not answered.
            LayoutError, UnsafeFile: the file, or the next one, is wrong.
        """
        while self._await_turn() is not Command.RESET:
            self._file.give(Command.STEP, DRIVER)
            self._has_turn = False

    def ask(self, rows: Mapping[str, Rows]) -> dict[str, NDArray[Any]] | None:
        """Hands over, and waits for the actions.

        Args:
            rows: by group, in the order in which new groups are registered; groups may be left out.

        Returns:
            [n, A] for each group in `rows`; None: the driver wants a reset.

        Raises:
            ValueError: a group is not known, or an array does not fit it.
            NoRoom: the next file cannot be made.
            PeerClosed, PeerSilent, LayoutError, UnsafeFile: as `begin`.
        """
        if not self._has_turn:
            self._await_turn()
        for name in rows:
            if name not in self._specs:
                raise ValueError(f"group {name!r} is not known: call `add` first")
        file = self._file
        new = [self._specs[name] for name in rows if name not in file.groups]
        messages, room = layout.join_messages(self._outgoing), file.room()
        if new or len(messages) > room:
            capacity = room + 4 if len(messages) <= room else 2 * len(messages) + 20
            file.replace(
                capacity,
                SIMULATOR,
                b"".join(layout.fixed_part(spec).ljust(spec.nbytes, b"\0") for spec in new),
                len(new),
            )
            file.read_groups()
        groups = {name: file.groups[name] for name in rows}
        for name, some in rows.items():
            spec, at, n = groups[name].spec, groups[name].offsets, len(some.ids)
            if n > spec.agents:
                raise ValueError(f"group {name!r}: {n} rows; at most {spec.agents} are allowed")
            blocks: list[tuple[str, Any, tuple[int, ...], str]] = [
                (f"observation {number}", array, (n, *shape), "<f4")
                for number, (array, shape) in enumerate(zip(some.observations, spec.observations, strict=True))
            ]
            blocks += [("reward", some.rewards, (n,), "<f4"), ("done", some.done, (n,), "u1")]
            if spec.branches is None or not self._old_release:
                blocks += [("max_step", some.max_step, (n,), "u1"), ("id", some.ids, (n,), "<i4")]
            if spec.branches is not None:
                masks = np.zeros((n, spec.choices), np.bool_) if some.masks is None else some.masks
                blocks.append(("max_step" if self._old_release else "mask", masks, (n, spec.choices), "u1"))
            data = {}
            for field, array, shape, dtype in blocks:
                found = np.asarray(array)
                if found.shape != shape:
                    raise ValueError(f"group {name!r}: found an array of shape {found.shape}, expected {shape}")
                data[field] = found.astype(dtype).tobytes()
            for field, block in data.items():
                file.write(at[field], block)
            file.write(at["n"], _I32.pack(n))
        file.give(Command.STEP, DRIVER, messages)
        self._outgoing.clear()
        self._has_turn = False
        command, actions = self._await_turn(), {}
        groups = {name: file.groups[name] for name in rows}
        for name, (spec, _, offsets) in groups.items():
            n = len(rows[name].ids)
            data_read = np.frombuffer(file.read(offsets["action"], 4 * n * spec.action_size), spec.action_dtype)
            actions[name] = data_read.reshape(n, spec.action_size).astype(spec.action_dtype.newbyteorder("="))
            file.write(offsets["n"], bytes(4))
        return None if command is Command.RESET else actions

    def send(self, guid: uuid.UUID, data: bytes) -> None:
        """Sends the bytes `data` to the channel `guid` with the next hand-over."""
        self._outgoing.append((guid, bytes(data)))

    def received(self) -> list[tuple[uuid.UUID, bytes]]:
        """The messages that have come since the last call."""
        found, self._received = self._received, []
        return found

    def close(self) -> None:
        """Closes the link, in order if this side has the turn; the driver removes the file."""
        if self._closed:
            return
        self._closed = True
        if self._has_turn:
            self._file.give(Command.CLOSE, DRIVER)
        self._file.close()

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _await_turn(self) -> Command:
        wait = TurnWait()
        while True:
            if self._file.turn == SIMULATOR:
                command, messages = self._file.take(from_simulator=False)
                if command is not Command.CHANGE_FILE:  # else they are in the next file as well
                    self._received += messages
                    break
                self._file.follow()
                continue
            if wait.look() > self._step_s:
                raise PeerSilent(f"the driver has not answered for {self._step_s:g} s", source=str(self._file.path))
            wait.pause()
        if command is Command.CLOSE:
            self._file.give(Command.CLOSE, DRIVER)
            self._file.remove()
            self._file.close()
            self._closed = True
            raise PeerClosed("the driver has closed the link", source=str(self._file.path))
        self._has_turn = True
        return command
