"""Which interface a game was written for, and the `BatchedEnv` that it becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from arena.errors import ConfigError, nearest
from arena.interface import BatchedEnv
from envs.adapters.game import Game
from envs.adapters.gymnasium_env import GymnasiumGame
from envs.adapters.lanes import Lanes
from envs.adapters.list_env import ListGame
from envs.adapters.pettingzoo_aec import AECGame
from envs.adapters.pettingzoo_parallel import ParallelGame


def adapt(factory: Callable[..., Any], kwargs: Mapping[str, Any], lanes: int) -> BatchedEnv:
    """A game of `lanes` lanes out of whatever makes one.

    Args:
        factory: a natively batched class (attribute `batched` true; called once, with `lanes=`), or something that
            makes single instances (called `lanes` times) of a `gymnasium.Env`, a PettingZoo `ParallelEnv` or
            `AECEnv`, or an environment of the list interface.
        kwargs: given to the factory at each call.
        lanes: how many instances step together, at least 1.

    Raises:
        ConfigError: the factory does not take these kwargs, or makes something of another kind.
        Exception: whatever the factory itself raises.
    """
    if lanes < 1:
        raise ConfigError(f"got {lanes}, expected at least 1", path="lanes")
    if getattr(factory, "batched", False):
        _check_kwargs(factory, {**kwargs, "lanes": lanes})
        batched: BatchedEnv = factory(lanes=lanes, **kwargs)
        return batched
    _check_kwargs(factory, kwargs)
    first = _game(factory(**kwargs))
    return Lanes([first, *(_game(factory(**kwargs)) for _ in range(lanes - 1))])


def _check_kwargs(factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Tells a wrong option from a TypeError inside of the game.

    Raises:
        ConfigError: the factory's signature does not fit.
    """
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some built-in callables have none
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        name = getattr(factory, "__name__", repr(factory))
        known = {key for key, value in signature.parameters.items() if value.kind is not value.VAR_KEYWORD}
        wrong = next((key for key in kwargs if key not in known), "")
        raise ConfigError(f"{name}: {error}; {nearest(wrong, known - {'lanes'})}", path="kwargs") from error


def _game(env: Any) -> Game:
    """The single instance as a `Game`."""
    if isinstance(env, gymnasium.Env):
        return GymnasiumGame(env)
    if _is_pettingzoo(env, "ParallelEnv"):
        return ParallelGame(env)
    if _is_pettingzoo(env, "AECEnv"):
        return AECGame(env)
    if _is_list_env(env):
        return ListGame(env)
    raise ConfigError(
        f"the environment is a {type(env).__module__}.{type(env).__qualname__}; expected a gymnasium.Env, a PettingZoo "
        "ParallelEnv or AECEnv, or the list interface (reset, step, and lists observation_spaces and action_spaces "
        "with one space per entity)"
    )


def _is_pettingzoo(env: Any, base: str) -> bool:
    """Known by the names of its classes: importing PettingZoo to ask would cost every game its start-up time."""
    return any(kind.__name__ == base and kind.__module__.split(".")[0] == "pettingzoo" for kind in type(env).__mro__)


def _is_list_env(env: Any) -> bool:
    listed = (getattr(env, name, None) for name in ("observation_spaces", "action_spaces"))
    called = (getattr(env, name, None) for name in ("reset", "step"))
    return all(isinstance(item, (list, tuple)) for item in listed) and all(callable(item) for item in called)
