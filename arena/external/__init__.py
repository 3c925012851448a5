"""External games: a game that runs elsewhere asks for actions, over threads, sockets, HTTP or shared memory.

    interface    `ExternalGames`, what a kind of connection must do; `Answers`; the errors that a game is told
    slots        `Slots`, the games of one match: who asks, and when a tick is formed from those that ask
    desk         requests of many threads, told to the table in order
    thread       `ExternalEnv`: a user's loop in a thread of the environment's process
    connection   `Connection`, the games and the table of one match, as a process keeps them

A kind of connection knows nothing of ticks, seats and MPI; the environment knows nothing of sockets, files and threads.
"""

from arena.external.interface import Answers, ExternalClosed, ExternalError, ExternalGames
from arena.external.slots import Slots
from arena.external.thread import ExternalEnv

__all__ = ["Answers", "ExternalClosed", "ExternalEnv", "ExternalError", "ExternalGames", "Slots"]
