"""Many policies learning with and against each other, in many copies of many games, over MPI.

Importing `arena` starts neither MPI nor torch; everything except the errors is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from arena.errors import (
    ArenaError,
    BudgetReached,
    ConfigError,
    Deadlock,
    GroupError,
    ProtocolError,
    RunFailed,
    RunStopped,
)

if TYPE_CHECKING:
    from arena.callbacks import Callback
    from arena.game.api import BatchedEnv, Frame, Interface, Step
    from arena.game.context import EnvContext
    from arena.game.ragged import Ragged
    from arena.game.units import Choice, GlobalChoice, Select, UnitActions, UnitSpace
    from arena.registry import (
        register_algorithm,
        register_callback,
        register_environment,
        register_logger,
        register_wrapper,
    )
    from arena.run.api import RunResult, train
    from arena.run.console import Event, PolicyScore
    from arena.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "ArenaError",
    "BatchedEnv",
    "BudgetReached",
    "Callback",
    "Choice",
    "ConfigError",
    "Deadlock",
    "EnvContext",
    "Event",
    "Frame",
    "GlobalChoice",
    "GroupError",
    "Interface",
    "PolicyScore",
    "ProtocolError",
    "Ragged",
    "RunFailed",
    "RunResult",
    "RunStopped",
    "Select",
    "Step",
    "Trainer",
    "UnitActions",
    "UnitSpace",
    "__version__",
    "register_algorithm",
    "register_callback",
    "register_environment",
    "register_logger",
    "register_wrapper",
    "train",
]

_MODULES = {
    "Callback": "arena.callbacks",
    **dict.fromkeys(("BatchedEnv", "Frame", "Interface", "Step"), "arena.game.api"),
    "EnvContext": "arena.game.context",
    "Ragged": "arena.game.ragged",
    **dict.fromkeys(("Choice", "GlobalChoice", "Select", "UnitActions", "UnitSpace"), "arena.game.units"),
    **dict.fromkeys(("RunResult", "train"), "arena.run.api"),
    **dict.fromkeys(("Event", "PolicyScore"), "arena.run.console"),
    "Trainer": "arena.trainer",
    **dict.fromkeys(
        (f"register_{kind}" for kind in ("algorithm", "callback", "environment", "logger", "wrapper")), "arena.registry"
    ),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    return found
