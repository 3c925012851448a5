"""Plays one role on one endpoint, whatever the transport, and turns what goes wrong into one message for the root."""

from __future__ import annotations

import logging
import signal
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any

from arena.errors import CallbackFailed, ConfigError, NotZeroSum, Origin, PeerLost, RunStopped, WriteError
from arena.plan import seeding
from arena.plan.plan import Role, RoleKind
from arena.roles.process import seed_libraries
from arena.roles.protocol import Failed, Next
from arena.run.leg import Leg
from arena.run.recovery import RecoveryState
from arena.run.run import Run
from arena.transport import Endpoint, Tag
from arena.transport.messages import expect, pack

_log = logging.getLogger(__name__)


def run_role(
    endpoint: Endpoint,
    run: Run,
    role: Role,
    *,
    memory: RecoveryState | None = None,
    communicator: Any = None,
    private: bool,
) -> Failed | None:
    """Plays an environment or a worker to its end.

    What went wrong is told to the root, which ends the run; it is returned too.

    Args:
        endpoint: the role's place in the world.
        run: the run.
        role: which role.
        memory: of this process: is told how far the match has come when the run is interrupted.
        communicator: for `group.comm`.
        private: whether the process hosts no other role.

    Raises:
        PeerLost: a process of the run has died.
    """
    try:
        _act(endpoint, run, role, memory or RecoveryState(), communicator, private)
        return None
    except PeerLost:
        raise
    except RunStopped:
        return None  # somebody else has failed, and says so
    except BaseException as error:
        if endpoint.is_peer_failure(error):
            raise PeerLost(str(error)) from error
        failure = failure_of(error, f"{run.describe(role)}, rank {run.plan.rank_of(role)}", run.origin)
        _log.error("%s\n%s", failure.who, failure.message)
        with suppress(RunStopped):  # the root has gone already: somebody else was first
            endpoint.send(0, Tag.TO_ROOT, pack(failure))
        return failure


def failure_of(error: BaseException, who: str, origin: Origin | None = None) -> Failed:
    """What to tell the user of an error: a sentence for a mistake, a signal or a full disk; else the traceback."""
    if isinstance(error, CallbackFailed):
        return Failed(error.who, error.trace, exit_code=1)
    if isinstance(error, ConfigError):
        return Failed(who, str((origin or Origin()).blame(error)), exit_code=2)
    if isinstance(error, (NotZeroSum, WriteError)):
        return Failed(who, str(error), exit_code=1)
    if isinstance(error, KeyboardInterrupt):  # between two stages of a run: nobody who knows more has taken it
        number: int = error.args[0] if error.args else signal.SIGINT
        return Failed(who, f"ended by {signal.Signals(number).name}", exit_code=128 + number)
    return Failed(who, "".join(traceback.format_exception(error)).rstrip(), exit_code=1)


def _act(endpoint: Endpoint, run: Run, role: Role, memory: RecoveryState, communicator: Any, private: bool) -> None:
    """Leg after leg, until the root says that there is none."""
    leg: Leg | None = run.leg
    while leg is not None:
        if not private:  # those who share a process share its streams too, but take turns in the same order every time
            seed_libraries(seeding.process_seed(run.plan.seed, tick=leg.start))
        _play_leg(endpoint, replace(run, leg=leg), role, memory, communicator, private)
        leg = expect(Next, endpoint.receive(0, Tag.FROM_ROOT)).leg


def _play_leg(
    endpoint: Endpoint, run: Run, role: Role, memory: RecoveryState, communicator: Any, private: bool
) -> None:
    # Imported here: a process that plays one kind of role has no use for the other kind's modules.
    if role.kind is RoleKind.WORKER:
        from arena.roles.worker.worker import Worker

        Worker(endpoint, run, role, memory=memory, communicator=communicator, private=private).work()
        return
    from arena.roles.environment.environment import Environment

    assert role.match is not None
    Environment(endpoint, run, run.plan.matches[role.match], memory).play()
