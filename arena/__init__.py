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
    from arena.config.league import DecidedConfig as Decided, EvolutionConfig as Evolution, GateConfig as Gate
    from arena.config.league import LeagueConfig as League, PerturbConfig as Perturb, SnapshotsConfig as Snapshots
    from arena.config.matches import CustomPairings as Pairings, CustomRule as OwnRule, Exploiters, Fictitious
    from arena.config.matches import GauntletConfig as Gauntlet, KnockoutConfig as Knockout, MatchConfig as Match
    from arena.config.matches import MatchmakingConfig as Matchmaking, MixturesConfig as Mixtures, Nash, PastSelves
    from arena.config.matches import ResetConfig as Reset, RoundRobinConfig as RoundRobin, SwissConfig as Swiss
    from arena.config.matches import Uncertainty
    from arena.config.schema import BestConfig as Best, CallbackConfig as CallbackEntry, Config, EnvConfig as Env
    from arena.config.schema import EvaluationConfig as Evaluation, PolicyConfig as Policy
    from arena.config.schema import ResultsConfig as Results, TickRules
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
    "__version__",
    "evaluate",
    "export",
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

_KEYS = {  # of a configuration, by the names that they have in a program
    "arena.config.schema": {
        "Config": "Config",
        "Env": "EnvConfig",
        "Policy": "PolicyConfig",
        "Evaluation": "EvaluationConfig",
        "Results": "ResultsConfig",
        "Best": "BestConfig",
        "CallbackEntry": "CallbackConfig",
        "TickRules": "TickRules",
    },
    "arena.config.matches": {
        "Match": "MatchConfig",
        "RoundRobin": "RoundRobinConfig",
        "Gauntlet": "GauntletConfig",
        "Mixtures": "MixturesConfig",
        "Knockout": "KnockoutConfig",
        "Swiss": "SwissConfig",
        "Matchmaking": "MatchmakingConfig",
        "Pairings": "CustomPairings",
        "PastSelves": "PastSelves",
        "Fictitious": "Fictitious",
        "Exploiters": "Exploiters",
        "Reset": "ResetConfig",
        "Nash": "Nash",
        "Uncertainty": "Uncertainty",
        "OwnRule": "CustomRule",
    },
    "arena.config.league": {
        "League": "LeagueConfig",
        "Snapshots": "SnapshotsConfig",
        "Gate": "GateConfig",
        "Evolution": "EvolutionConfig",
        "Perturb": "PerturbConfig",
        "Decided": "DecidedConfig",
    },
}
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
    **dict.fromkeys(
        (f"register_{kind}" for kind in ("algorithm", "callback", "environment", "logger", "wrapper")), "arena.registry"
    ),
}


def __getattr__(name: str) -> object:
    for module, structs in _KEYS.items():
        if name in structs:
            from arena.config.descriptions import documented

            globals()[name] = documented(getattr(import_module(module), structs[name]), name)
            return globals()[name]
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*__all__]
