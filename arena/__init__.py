"""Many policies learning with and against each other, in many copies of many games, over MPI.

Importing `arena` starts neither MPI nor torch.
"""

from arena.errors import ArenaError, BudgetReached, ConfigError, Deadlock, GroupError, ProtocolError, RunStopped

__version__ = "0.1.0"

__all__ = [
    "ArenaError",
    "BudgetReached",
    "ConfigError",
    "Deadlock",
    "GroupError",
    "ProtocolError",
    "RunStopped",
    "__version__",
]
