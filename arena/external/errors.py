"""The errors that an external game gets."""

from __future__ import annotations

from typing import Any, Literal, get_args

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
