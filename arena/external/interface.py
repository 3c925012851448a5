"""The protocol of connections to external games."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, NamedTuple, Protocol, runtime_checkable

from arena.config.schema import TickRules
from arena.external.slots import Answers, Slots
from arena.game.api import Interface


class ExternalMatch(NamedTuple):
    """What a connection is told of its match."""

    seed: int  # of the match's first lane
    rules: TickRules  # when a tick is formed, and when games are given up
    policies: Sequence[str]  # the names of those that play, by entity
    log: Callable[[int], IO[bytes] | None] = lambda number: None  # opens the file for the output of a program
    restarted: Callable[[Exception, Sequence[int]], None] = lambda error, lost: None  # call it with the lost slots


@runtime_checkable
class ExternalGames(Protocol):
    """The connection to the external games of one match. The thread of the environment alone calls these methods.

    A class may also have these methods and attributes:
    - `configure(match: ExternalMatch)`, called before `open`;
    - `starting()`, asked after `open` until it returns None: seconds after which it is to be asked again;
    - `try_out()`, called by `arena check` on open games, and `hint(slots)`, whose text it shows;
    - `report()`, further fields of a line of `games.jsonl`, and `files`, paths that are named in `external.json`;
    - `closed_loop`, true if every request follows from an answer and no client may come or go by itself: `idle_s` and
      `answer_s` are not applied then;
    - `notices`, a deque of sentences for the user, whose reader removes them;
    - `own_limits`, true if the connection applies `idle_s` and `answer_s` itself.

    Attributes:
        interface: entities, spaces and sizes of masks; known before `open`.
    """

    interface: Interface

    @property
    def address(self) -> str:
        """For logs and `external.json`; empty before `open`, and where there is none."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether no game will come any more."""
        ...

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Begins to take games: binds, starts threads, launches.

        Args:
            slots: the number of games at the same time.
            ring: to be called when `poll` would find something new; by any thread, at any time, also after `close`.

        Raises:
            ConfigError: it fails, for example because a port is taken.
        """
        ...

    def poll(self, table: Slots) -> float | None:
        """Passes everything that has come since the last call to the table, without waiting.

        A client's mistake is refused to that client; an exception from here is a failure of the match's game.

        Returns:
            seconds after which it is to be called again without a ring; 0.0: as soon as other roles of the process
            have had their turn; None: not before `ring`.
        """
        ...

    def answer(self, actions: Answers) -> None:
        """Takes the actions of a tick, for the games that still wait for them. Must not wait for a client."""
        ...

    def drop(self, slot: int, reason: str) -> None:
        """Ends a game for the arena, once and not after its end; its slot is free when this returns."""
        ...

    def pause(self, on: bool) -> None:
        """Pauses between two legs and in an evaluation; `poll` and `answer` are not called.

        Games stay connected; their requests may come and are kept; the connection's own limits of time stand still.
        """
        ...

    def close(self, reason: str) -> None:
        """Ends all games and frees all resources: threads, sockets, files, processes. Further calls do nothing.

        Each client that waits for an action is refused with the reason.
        """
        ...
