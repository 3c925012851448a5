"""Sources of games: Gymnasium's registry, PettingZoo's modules, connections, any callable with checked arguments."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gymnasium

from arena import registry
from arena.errors import ConfigError, close_name, nearest
from envs.adapters.envpool_env import EnvPoolEnv

if TYPE_CHECKING:
    from arena.external.interface import ExternalGames

_OF_ARENA = {"lanes", "env", "context"}  # parameters that the arena fills itself


def check_call(
    function: Callable[..., Any],
    kwargs: Mapping[str, Any],
    args: Sequence[Any] = (),
    *,
    path: str = "",
    name: str | None = None,
) -> None:
    """Checks arguments against a signature, so that a wrong one is not mistaken for a TypeError inside the function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in callables have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        who = getattr(function, "__name__", repr(function)) if name is None else name
        known = {key for key, value in signature.parameters.items() if value.kind is not value.VAR_KEYWORD}
        wrong = next((key for key in kwargs if key not in known), "")
        raise ConfigError(f"{who}: {error}; {nearest(wrong, known - _OF_ARENA)}", path=path) from error


def gymnasium_factory(name: str) -> Callable[..., gymnasium.Env[Any, Any]]:
    """A callable that makes instances of a registered id; raises `ConfigError`.

    `name`: such as `CartPole-v1`; with the module that registers the id on import, `ale_py:ALE/Pong-v5`.
    """
    # Its checker fails before the arena can say what is wrong, and tests less than the arena does.
    return partial(gymnasium.make, _registered(name), disable_env_checker=True)


def gymnasium_vec_factory(name: str) -> Callable[..., gymnasium.vector.VectorEnv[Any, Any, Any]]:
    """As `gymnasium_factory`, of vector environments: `gymnasium.make_vec`."""
    return partial(gymnasium.make_vec, _registered(name))


def envpool_factory(name: str) -> Callable[..., EnvPoolEnv]:
    """A callable that makes pools of a game of EnvPool, such as `Pong-v5`; raises `ConfigError`."""
    try:
        known = importlib.import_module("envpool").list_all_envs()
    except ImportError as error:
        raise ConfigError(f'EnvPool cannot make {name!r}: {error}; pip install "mpi-policy-arena[envpool]"') from error
    if name not in known:
        close = close_name(name, known)
        hint = "" if close is None else f"; did you mean {close!r}?"
        raise ConfigError(f"EnvPool has no game {name!r}{hint}")
    return partial(EnvPoolEnv, name)


def _registered(name: str) -> str:
    """The id of a game whose module is imported; raises `ConfigError`."""
    module, _, registered = name.rpartition(":")
    if module:
        _imported(module, f"Gymnasium cannot make {name!r}")
    try:
        gymnasium.spec(registered)
    except gymnasium.error.Error as error:
        close = close_name(registered, gymnasium.registry)
        found = str(error) if close is None else f"{str(error).partition(' Did you mean')[0]} Did you mean {close!r}?"
        raise ConfigError(f"Gymnasium cannot make {name!r}: {found}") from error
    return registered


def pettingzoo_factory(name: str) -> Callable[..., Any]:
    """A callable that makes instances of a PettingZoo game, in its parallel form if it has one; raises `ConfigError`.

    `name`: `classic.connect_four_v3`, or `classic/connect_four-v3` as PettingZoo's registry (1.27 and later) has it; or
    a module with `parallel_env` or `env`, as `mpe2.simple_tag_v3`.
    """
    try:
        pettingzoo: Any = importlib.import_module("pettingzoo")
    except ImportError:  # games of other packages are found as modules
        pettingzoo = None
    registries = {kind: getattr(pettingzoo, f"{kind}_registry", {}) for kind in ("parallel", "aec")}
    known_as = re.sub(r"_v(\d+)$", r"-v\1", name.replace(".", "/"))
    for kind, games in registries.items():  # from 1.27 on, importing the modules of its games is deprecated
        if (spec := games.get(known_as)) is not None:
            _imported(str(spec.entry_point).partition(":")[0], f"PettingZoo cannot make {name!r}")
            return partial(pettingzoo.make, kind, known_as)
    if "" in name.split("."):
        raise ConfigError(f"{name!r} is not the name of a PettingZoo game; a name looks like 'classic.connect_four_v3'")
    for place in (f"pettingzoo.{name}", name):
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            absent = isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}.")
            if not absent:  # the module exists, but an import in it fails
                raise ConfigError(f"{place} cannot be imported: {error}") from error
            continue
        for maker in ("parallel_env", "env"):
            if callable(made := getattr(module, maker, None)):
                return made  # type: ignore[no-any-return]
        raise ConfigError(f"the module {module.__name__!r} has neither parallel_env nor env")
    # Often another version is meant.
    known = [re.sub(r"-v(\d+)$", r"_v\1", one).replace("/", ".") for kind in registries for one in registries[kind]]
    package = name.rpartition(".")[0]
    for parent in (f"pettingzoo.{package}", package):
        paths = getattr(sys.modules.get(parent), "__path__", ())  # the search for the game has imported it
        known += [f"{package}.{one.name}" for one in pkgutil.iter_modules(paths)]
    close = close_name(name, known)
    hint = f"did you mean {close!r}?" if close else "is the package installed, and its version the right one?"
    raise ConfigError(f"there is no module 'pettingzoo.{name}' or {name!r}; {hint}")


def _imported(module: str, complaint: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{complaint}: {module} cannot be imported: {error}") from error


def make_games(make: str, kwargs: Mapping[str, Any], copy: int = 0) -> ExternalGames:
    """The connection to the external games of a match, not open yet; raises `ConfigError`, and what its class raises.

    `copy`: the number of the match among the copies of its description; each needs its own address.
    """
    kind, factory = registry.external_kind(make), registry.environment_factory(make)
    assert kind is not None, f"{make} is an ordinary environment"
    if kind in registry.EXTERNAL:
        kwargs = {**kwargs, "copy": copy}
    check_call(factory, kwargs)
    made = factory(**kwargs)
    if kind == "thread":
        from arena.external.thread import ThreadGames

        return ThreadGames(made)
    if kind == "poll":
        from arena.external.poll import PolledGames

        return PolledGames(made)
    return made  # type: ignore[no-any-return]
