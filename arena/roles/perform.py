"""Runs one role on one endpoint, over any transport, and reports an error to the root as one message."""

from __future__ import annotations

import logging
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any

from arena.errors import (
    MISTAKE,
    CallbackFailed,
    ConfigError,
    Deadlock,
    GameError,
    LinkError,
    NotZeroSum,
    Origin,
    PeerLost,
    PlayerLeft,
    RunStopped,
    WriteError,
    located,
)
from arena.plan import seeding
from arena.plan.plan import Role, RoleKind
from arena.preflight.spec import spec_of
from arena.registry import algorithm, load_object, where_raised
from arena.roles.process import seed_libraries
from arena.roles.protocol import Failed, Next, RoleFailed
from arena.roles.run import Leg, Run
from arena.roles.state import RunState
from arena.roles.stop import number_of
from arena.transport import Endpoint, Tag
from arena.transport.pickling import expect, pack

_log = logging.getLogger(__name__)


def run_role(
    endpoint: Endpoint,
    run: Run,
    role: Role,
    *,
    memory: RunState | None = None,
    communicator: Any = None,
    private: bool,
) -> Failed | None:
    """Runs an environment or a worker until the root ends the run; returns the error that was sent to the root, if any.

    `memory` is of this process, `communicator` for `group.comm`; `private`: the process hosts no other role. Raises
    `PeerLost` if a process of the run has died.
    """
    memory = memory or RunState()

    def play(endpoint: Endpoint) -> None:
        leg: Leg | None = run.leg
        while leg is not None:
            if not private:  # roles of one process share its random streams, but take turns in a reproducible order
                seed_libraries(seeding.process_seed(run.plan.config.seed, tick=leg.start))
            part = replace(run, leg=leg)
            # Imported here: a process that hosts one kind of role does not need the other kind's modules.
            if role.kind is RoleKind.WORKER:
                from arena.roles.worker.worker import Worker

                Worker(endpoint, part, role, memory, communicator=communicator, private=private).work()
            else:
                from arena.roles.environment.environment import Environment

                assert role.match is not None, f"{role} is no environment"
                Environment(endpoint, part, run.plan.matches[role.match], memory).play()
            leg = expect(Next, endpoint.receive(0, Tag.FROM_ROOT)).leg

    try:
        if role.kind is RoleKind.WORKER and not private and _needs_thread(run, role):
            endpoint.in_dedicated_thread(play)
        else:
            play(endpoint)
        return None
    except PeerLost:
        raise
    except RunStopped:
        return None  # another role has failed and has reported its error
    except KeyboardInterrupt:
        raise  # a signal has ended the run; its handler may be called in any role's turn
    except BaseException as error:
        if endpoint.is_peer_failure(error):
            raise PeerLost(str(error)) from error
        rank = run.plan.rank_of(role)
        who = f"{run.describe(role)}, {run.plan.place(rank)}"
        failure = failure_of(error, who, run.origin, several_hosts=bool(run.plan.hosts))
        if failure.exit_code != MISTAKE:
            failure = replace(failure, key=_key_of(run, role, error))
        if isinstance(error, LinkError):
            failure = replace(failure, message=f"{failure.message}\n{run.resume_hint('the newest boundary')}")
        if rank != 0:  # which logs all failures
            _log.error("%s\n%s", failure.who, failure.message)
        with suppress(RunStopped):  # the root has ended already, because of another role's error
            endpoint.send(0, Tag.TO_ROOT, pack(failure))
        return failure


def _key_of(run: Run, role: Role, error: BaseException) -> str:
    """The key of the configuration that names the game of a role, or the part of its policy that has failed."""
    if role.kind is not RoleKind.WORKER:
        return f"envs.{run.plan.matches[role.match or 0].env}.make"
    policy = run.plan.policies[run.plan.seat(role).policy]
    files, key = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}, "algorithm"
    for name, value in policy.config.options.items():
        module = str(value.get("class") if isinstance(value, dict) else value).partition(":")[0]
        if name == "function" or getattr(sys.modules.get(module), "__file__", None) in files:
            key = f"options.{name}"
    return f"policies.{policy.name}.{key}"


def _needs_thread(run: Run, role: Role) -> bool:
    """Whether the algorithm of a worker needs a thread of its own."""
    name = run.plan.seat(role).policy
    with located(path=f"policies.{name}.algorithm"):
        return spec_of(algorithm(run.plan.policies[name].config.algorithm)).dedicated_thread


def failure_of(error: BaseException, who: str, origin: Origin | None = None, *, several_hosts: bool = False) -> Failed:
    """The message for the user: one sentence if it describes the error completely (a full disk), else the traceback.

    Over `several_hosts` also a mistake says who has met it: a package may be missing on one host only.
    """
    if isinstance(error, RoleFailed):
        return error.failure
    if isinstance(error, Deadlock):
        return Failed("no role can go on", str(error), exit_code=1)
    if isinstance(error, CallbackFailed):
        return Failed(error.who, error.trace, exit_code=1)
    if isinstance(error, ConfigError):
        mistake = (origin or Origin()).blame(error)
        text = f"{mistake}{f' ({who})' if several_hosts else ''}"
        plain = ConfigError(mistake.message, path=mistake.path, source=mistake.source)  # a user's own may not be sent
        return Failed(who, text, MISTAKE, logs_useless=True, mistake=plain)
    if isinstance(error, PlayerLeft):
        return Failed(who, str(error), error.exit_code)
    if isinstance(error, (GameError, NotZeroSum)):
        return Failed(who, str(error), 1, logs_useless=True)
    if isinstance(error, (LinkError, WriteError)):
        return Failed(who, str(error), exit_code=1)
    if isinstance(error, KeyboardInterrupt):  # raised between two stages of a run, where no handler is installed
        number = number_of(error)
        return Failed(who, f"ended by {signal.Signals(number).name}", exit_code=128 + number)
    forms, end = (traceback.format_exception_only, traceback.format_exception), where_raised(error)
    end += load_object("envs.adapters.screen:screen_hint")(error)
    brief, whole = ("".join(form(error)).rstrip() + end for form in forms)
    return Failed(who, whole, exit_code=1, brief=brief)
