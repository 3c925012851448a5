"""External games: a game that runs elsewhere asks for actions, over threads, HTTP, polling or shared memory.

    interface      `ExternalGames`, the protocol of all kinds of connections
    slots          `Slots`, the games of one match: which entities ask, when a tick is formed, and its `Answers`
    errors         the errors that a game gets
    request_queue  requests of many threads, passed to the table in order
    thread         `ExternalEnv`: a user's loop in a thread of the environment's process
    client         `PolicyClient`: the methods of `ExternalEnv` over HTTP, in any process or machine
    poll           `PollEnv`: an asynchronous environment of many games, which is polled
    http           games over HTTP; `http_loop`, `http_connection`, `http_requests`, `http_sessions`: the server;
                   `http_settings`: the arguments
    actor          `Actor`, `Agent`: translate between the bytes of a game and samples; `builtin_actors`, `threads`
    access         tokens, and the reasons why games have ended
    samples        samples written by hand: lists, numbers, mappings
    declaration    the interface of games as a configuration writes it
    connection     `Connection`, the games and the table of one match, as a process keeps them

A kind of connection knows nothing of ticks, seats and MPI; the environment knows nothing of servers, files and threads.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from arena.external.errors import ExternalClosed, ExternalError
from arena.external.interface import ExternalGames, ExternalMatch
from arena.external.slots import Answers, Ask, End, Slots
from arena.external.thread import ExternalEnv

if TYPE_CHECKING:
    from arena.external import shared_memory as shared_memory
    from arena.external.actor import Actor, Agent, Forward, RemoteBuffer, RemoteModel
    from arena.external.client import PolicyClient
    from arena.external.poll import PollEnv, PollResult

__all__ = [
    "Actor",
    "Agent",
    "Answers",
    "Ask",
    "End",
    "ExternalClosed",
    "ExternalEnv",
    "ExternalError",
    "ExternalGames",
    "ExternalMatch",
    "Forward",
    "PolicyClient",
    "PollEnv",
    "PollResult",
    "RemoteBuffer",
    "RemoteModel",
    "Slots",
]

_MODULES = {
    **dict.fromkeys(("Actor", "Agent", "Forward", "RemoteBuffer", "RemoteModel"), "actor"),
    "PolicyClient": "client",
    **dict.fromkeys(("PollEnv", "PollResult"), "poll"),
}


def __getattr__(name: str) -> object:
    if name == "shared_memory":
        return import_module("arena.external.shared_memory")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"arena.external.{_MODULES[name]}"), name)
    return found
