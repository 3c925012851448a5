"""The games that pages watch and play, each in a process of its own, which never outlives its page or the server.

server -> process    stdin: lines of JSON; its end ends the process
process -> server    stdout: lines of JSON, each with its `kind`, and perhaps with a `picture`, PNG in base64

A page gets the lines as they are; the one of kind `error` is the last, and has the `text`. `arena.cli.board_games` has
the programs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException

KIND = "application/x-ndjson"  # of the messages
_MOST = 24  # processes at a time: each holds a game, and perhaps torch
_PATIENCE = 2.0  # seconds from the end of its stdin until a process is killed
_LONGEST_LINE = 2**26  # bytes
_LONGEST_WHY = 500  # characters of the last line of stderr


def message(kind: str, **fields: Any) -> bytes:
    """A message of the server's own."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


class Games:
    """The open processes, by numbers that only their pages know."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.subprocess.Process] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def say(self, number: str, fields: Mapping[str, Any]) -> None:
        """Sends a line to a process; HTTPException 404: it has ended."""
        if (process := self._open.get(number)) is None or process.stdin is None:
            raise HTTPException(404, "This game has ended.")
        process.stdin.write(json.dumps(fields).encode() + b"\n")

    async def play(self, number: str, program: str, *arguments: str) -> AsyncGenerator[bytes, None]:
        """The messages of a program; it ends with the iterator, and if it fails, the last message says why."""
        if len(self._open) >= _MOST:
            yield message("error", text=f"{_MOST} games are open, which are enough: close one of their pages.")
            return
        pipe, command = asyncio.subprocess.PIPE, (sys.executable, "-m", program, *arguments)
        # In a session of its own: Ctrl-C ends the server, and the server its processes.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LONGEST_LINE, start_new_session=True
        )
        self._open[number] = process
        assert process.stdout is not None and process.stderr is not None
        why = asyncio.create_task(_last_line(process.stderr))
        try:
            async for line in process.stdout:
                yield line
            if status := await process.wait():
                how = f" by signal {-status}" if status < 0 else ""
                yield message("error", text=f"The game's process has ended{how}: {await why or 'it has said nothing'}")
        finally:
            del self._open[number]
            why.cancel()
            self._ending.add(task := asyncio.create_task(_end(process)))
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Ends all processes, and waits for that."""
        await asyncio.gather(*map(_end, self._open.values()), *self._ending)


async def _last_line(stderr: asyncio.StreamReader) -> str:
    said = b""
    while data := await stderr.read(2**16):
        said = (said + data)[-(2**16) :]  # a line may come in pieces
    lines = said.decode(errors="replace").splitlines()
    return next((line.strip()[:_LONGEST_WHY] for line in reversed(lines) if line.strip()), "")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a process: by the end of its stdin, after some seconds by force."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except asyncio.TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
