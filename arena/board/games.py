"""The games that pages play: the processes that are open, and the streams of their messages to pages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request

from arena.board.board import board_of
from arena.board.pipes import GameProcess, message

KIND = "application/octet-stream"  # of the messages
_MOST = 24  # processes at a time: each holds a game, and perhaps torch


class Games:
    """The open processes, by a number that only the page knows which has opened one."""

    def __init__(self) -> None:
        self._open: dict[str, GameProcess] = {}

    @classmethod
    def of(cls, request: Request) -> Games:
        """Those of the application."""
        state = request.app.state
        if not hasattr(state, "games"):
            state.games = cls()
            board_of(request).at_end.append(state.games.close_all)
        found: Games = state.games
        return found

    async def start(self, module: str, *arguments: str) -> str:
        """Starts a process; returns its number. HTTPException 503: there are too many."""
        if len(self._open) >= _MOST:
            raise HTTPException(503, f"{_MOST} games are open, which are enough: close one of their pages.")
        number = secrets.token_urlsafe(12)
        self._open[number] = await GameProcess.start(module, *arguments)
        return number

    def get(self, number: str) -> GameProcess:
        """An open process; HTTPException 404: it has ended."""
        if number not in self._open:
            raise HTTPException(404, "This game has ended.")
        return self._open[number]

    async def messages(self, number: str) -> AsyncIterator[bytes]:
        """The messages of a process for one page; it ends with the page."""
        try:
            yield message({"kind": "opened", "number": number})
            async for one in self.get(number).messages():
                yield one
        finally:
            self.close(number)

    def close(self, number: str) -> None:
        """Ends a process; nothing happens if it has ended."""
        if process := self._open.pop(number, None):
            process.close()

    async def close_all(self) -> None:
        """Ends all processes, and waits for that."""
        ending = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(process.ended() for process in ending))
