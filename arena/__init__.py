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
    ExportError,
    GroupError,
    ProtocolError,
    RunFailed,
    RunStopped,
    WriteError,
)

if TYPE_CHECKING:
    from arena import callbacks as callbacks, dataset as dataset, entity_env as entity_env, errors as errors
    from arena import (
        experiment as experiment,
        external as external,
        game as game,
        league as league,
        records as records,
        replay as replay,
    )
    from arena import serving as serving, testing as testing, trainer as trainer
    from arena.callbacks import Callback
    from arena.run.hub import export_hub
    from arena.config.league import Decided, Evolution, Gate, League, Perturb, Snapshots
    from arena.config.matches import Exploiters, Fictitious, Gauntlet, Knockout, Match, Matchmaking, Mixtures, Nash
    from arena.config.matches import OwnRule, Pairings, PastSelves, Reset, RoundRobin, Swiss, Uncertainty
    from arena.config.schema import Best, CallbackEntry, Config, Env, Evaluation, Policy, Results, TickRules
    from arena.game.api import BatchedEnv, Frame, Interface, Step
    from arena.game.context import EnvContext
    from arena.game.ragged import Ragged
    from arena.game.units import Choice, GlobalChoice, Select, UnitActions, UnitSpace
    from arena.opened import Run, Table, open_run, standings
    from arena.registry import (
        register_algorithm,
        register_callback,
        register_environment,
        register_logger,
        register_wrapper,
    )
    from arena.run.api import RunResult, plan_run, train
    from arena.run.console import Event, PolicyScore
    from arena.run.evaluate import evaluate
    from arena.run.tournament import TournamentResult, tournament
    from arena.serving import load_policy
    from arena.serving.export import export
    from arena.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "ArenaError",
    "BatchedEnv",
    "Best",
    "BudgetReached",
    "Callback",
    "CallbackEntry",
    "Choice",
    "Config",
    "ConfigError",
    "Deadlock",
    "Decided",
    "Env",
    "EnvContext",
    "Evaluation",
    "Event",
    "Evolution",
    "Exploiters",
    "ExportError",
    "Fictitious",
    "Frame",
    "Gate",
    "Gauntlet",
    "GlobalChoice",
    "GroupError",
    "Interface",
    "Knockout",
    "League",
    "Match",
    "Matchmaking",
    "Mixtures",
    "Nash",
    "OwnRule",
    "Pairings",
    "PastSelves",
    "Perturb",
    "Policy",
    "PolicyScore",
    "ProtocolError",
    "Ragged",
    "Reset",
    "Results",
    "RoundRobin",
    "Run",
    "RunFailed",
    "RunResult",
    "RunStopped",
    "Select",
    "Snapshots",
    "Step",
    "Swiss",
    "Table",
    "TickRules",
    "TournamentResult",
    "Trainer",
    "Uncertainty",
    "UnitActions",
    "UnitSpace",
    "WriteError",
    "__version__",
    "evaluate",
    "export",
    "export_hub",
    "load_policy",
    "open_run",
    "plan_run",
    "register_algorithm",
    "register_callback",
    "register_environment",
    "register_logger",
    "register_wrapper",
    "standings",
    "tournament",
    "train",
]

_KEYS = {  # the structs of a configuration
    **dict.fromkeys(("Decided", "Evolution", "Gate", "League", "Perturb", "Snapshots"), "arena.config.league"),
    **dict.fromkeys(("Exploiters", "Fictitious", "Gauntlet", "Knockout", "Match"), "arena.config.matches"),
    **dict.fromkeys(("Matchmaking", "Mixtures", "Nash", "OwnRule", "Pairings", "PastSelves"), "arena.config.matches"),
    **dict.fromkeys(("Reset", "RoundRobin", "Swiss", "Uncertainty"), "arena.config.matches"),
    **dict.fromkeys(("Best", "CallbackEntry", "Config", "Env", "Evaluation", "Policy"), "arena.config.schema"),
    **dict.fromkeys(("Results", "TickRules"), "arena.config.schema"),
}
_SUBMODULES = [  # with errors, the public ones
    *("callbacks", "dataset", "entity_env", "experiment", "external", "game", "league", "records", "replay"),
    *("serving", "testing", "trainer"),
]
_MODULES = {
    "Callback": "arena.callbacks",
    **dict.fromkeys(("BatchedEnv", "Frame", "Interface", "Step"), "arena.game.api"),
    "EnvContext": "arena.game.context",
    "Ragged": "arena.game.ragged",
    **dict.fromkeys(("Choice", "GlobalChoice", "Select", "UnitActions", "UnitSpace"), "arena.game.units"),
    **dict.fromkeys(("RunResult", "plan_run", "train"), "arena.run.api"),
    **dict.fromkeys(("Event", "PolicyScore"), "arena.run.console"),
    **dict.fromkeys(("Run", "Table", "open_run", "standings"), "arena.opened"),
    **dict.fromkeys(("TournamentResult", "tournament"), "arena.run.tournament"),
    "evaluate": "arena.run.evaluate",
    "Trainer": "arena.trainer",
    "load_policy": "arena.serving",
    "export": "arena.serving.export",
    "export_hub": "arena.run.hub",
    **dict.fromkeys(
        (f"register_{kind}" for kind in ("algorithm", "callback", "environment", "logger", "wrapper")), "arena.registry"
    ),
}


def __getattr__(name: str) -> object:
    if name in _KEYS:
        from arena.config.descriptions import documented

        globals()[name] = documented(getattr(import_module(_KEYS[name]), name))
        return globals()[name]
    if name in _SUBMODULES:
        return import_module(f"arena.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES]
