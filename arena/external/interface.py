"""The protocol of connections to external games, and the errors and answers that an external game gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Interface

if TYPE_CHECKING:
    from arena.external.slots import Slots

Code = Literal[
    # The request is refused; the game goes on.
    "already_asking",
    "bad_action",
    "bad_body",
    "bad_mask",
    "bad_observation",
    "bad_reward",
    "ended",
    "not_yet",
    "too_large",
    "unauthorized",
    "unknown_entity",
    "unknown_game",
    # The game cannot begin.
    "already_started",
    "draining",
    "no_slot",
    "not_ready",
    # The game is over.
    "actor_bad_return",
    "actor_error",
    "expired",
    "failed",
    "lost",
    "over",
    "policy_error",
    "timeout",
    "too_many_requests",
]
"""Why a request of an external game is refused. `not_yet` is told to connections alone, never to a client."""

CODES: tuple[Code, ...] = get_args(Code)


class ExternalError(Exception):
    """A request of an external game is refused.

    Args:
        code: one of `CODES`.
        message: one sentence for the author of the game.
    """

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return ExternalError, (self.code, self.message)


def check_outcome(outcome: Any) -> None:
    """Checks the outcome that a game gives; None: it gives none.

    Raises:
        ExternalError: `bad_body`: it is neither `win` nor `loss` nor `draw`.
    """
    if outcome not in (None, "win", "loss", "draw"):
        raise ExternalError("bad_body", f"outcome: {outcome!r}; expected win, loss or draw")


class ExternalClosed(Exception):
    """The run is over, or the connection to it is lost; its argument says why."""


class Answers(NamedTuple):
    """The actions of one tick, for the entities that asked for them.

    The action of row k is `actions[entity[k]][slots[k]]`; the arrays are valid until `ExternalGames.answer` returns.
    """

    slots: NDArray[np.intp]  # [K] ascending; rows with given actions are not answered
    entity: NDArray[np.intp]  # [K]
    actions: Sequence[Any]  # [E] batched samples [L, ...] of all slots
    versions: Sequence[int]  # [E] the tick of the checkpoint that has chosen the actions; -1: unknown


@runtime_checkable
class ExternalGames(Protocol):
    """The connection to the external games of one match. The thread of the environment alone calls these methods.

    A class may also have the method `seed(entropy: int)`, called before `open` with the seed of the match's first lane;
    and these attributes:
    - `rules`, set before `open` to the `TickRules` of the match;
    - `policies`, set before `open` to the names of the policies that play, by entity;
    - `closed_loop`, true if every request follows from an answer and no client may come or go by itself: `idle_s` and
      `answer_s` are not applied then;
    - `own_limits`, true if the connection applies `idle_s` and `answer_s` itself;
    - `restarted`, set before `open` to a function to call when a part of the games has failed and plays on, with the
      error and the slots whose games are lost.

    Attributes:
        interface: entities, spaces and sizes of masks; known before `open`.
        address: for logs and `external.json`; empty before `open`, and where there is none.
        exhausted: whether no game will come any more.
    """

    interface: Interface

    @property
    def address(self) -> str: ...

    @property
    def exhausted(self) -> bool: ...

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
        """Tells the table everything that has come since the last call, without waiting.

        A mistake of a client is told to that client; an exception from here is a failure of the match's game.

        Returns:
            seconds after which it is to be called again without a ring; 0.0: as soon as other roles of the process
            have had their turn; None: not before `ring`.
        """
        ...

    def answer(self, actions: Answers) -> None:
        """Takes the actions of a tick, for the games that still wait for them. Must not wait for a client."""
        ...

    def drop(self, slot: int, reason: str) -> None:
        """Tells a game that the arena gives it up; its slot is free when this returns.

        Never called twice for one game, nor after its end.
        """
        ...

    def pause(self, on: bool) -> None:
        """Pauses between two legs and in an evaluation; `poll` and `answer` are not called.

        Games stay connected; their requests may come and are kept; the connection's own limits of time stand still.
        """
        ...

    def close(self, reason: str) -> None:
        """Ends all games and frees all resources: threads, sockets, files, processes. Further calls do nothing.

        Args:
            reason: told to each client that waits for an action.
        """
        ...
