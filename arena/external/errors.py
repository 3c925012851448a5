"""The errors that an external game gets."""

from __future__ import annotations

from typing import Any, Literal, get_args

from arena.errors import nearest_key

_Malformed = Literal["bad_action", "bad_body", "bad_mask", "bad_observation", "bad_reward", "too_large", "unauthorized"]
_Misplaced = Literal["already_asking", "ended", "not_yet", "unknown_entity", "unknown_game"]
_Unstarted = Literal["already_started", "draining", "no_slot", "not_ready"]  # the game cannot begin
_Failed = Literal["actor_bad_return", "actor_error", "failed", "policy_error"]  # the game is over, as the next ones
_Abandoned = Literal["expired", "lost", "over", "timeout", "too_many_requests"]

Code = Literal[_Malformed, _Misplaced, _Unstarted, _Failed, _Abandoned]
"""Why a request of an external game is refused. Only connections see `not_yet`, never a client."""

CODES: tuple[Code, ...] = get_args(Code)
ClosedCode = Literal["over", "draining", "unreachable"]
OUTCOMES = ("win", "loss", "draw")


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


def check_outcome(outcome: Any, entity: str | None = None) -> None:
    """Checks the outcome that a game gives, of an entity; None: it gives none.

    Raises:
        ExternalError: `bad_body`: it is neither `win` nor `loss` nor `draw`.
    """
    if outcome not in (None, *OUTCOMES):
        place = "outcome" if entity is None else f"entities.{entity}.outcome"
        raise ExternalError("bad_body", f"{place}: {outcome!r}; {nearest_key(str(outcome), OUTCOMES)}")


class ExternalClosed(Exception):
    """The run is over, or the connection to it is lost.

    Args:
        message: why.
        code: `over`: no call is possible any more; `draining`: no game may begin any more, and those that run go on;
            `unreachable`: there is no server, until `PolicyClient.reconnect` finds it again.
    """

    def __init__(self, message: str = "", code: ClosedCode = "over") -> None:
        super().__init__(message)
        self.code = code
