"""Finds the interface of a game and converts the game to a `BatchedEnv`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import gymnasium

from arena.entity_env.environment import is_entity_env
from arena.errors import ConfigError
from arena.game.api import BatchedEnv
from arena.game.context import EnvContext, with_context
from arena.game.isolation import Isolation
from envs.adapters.batch import BatchedLanes
from envs.adapters.batched_wrappers import IsolatedGame
from envs.adapters.dict_env import DictGame, is_dict_env
from envs.adapters.entity_env import EntityGames
from envs.adapters.gymnasium_env import GymnasiumGame
from envs.adapters.jax_env import JaxGame, is_jax_env
from envs.adapters.labels import labeled
from envs.adapters.lane import LaneGame
from envs.adapters.list_env import ListGame
from envs.adapters.observations import translated
from envs.adapters.pettingzoo_aec import AECGame
from envs.adapters.pettingzoo_parallel import ParallelGame
from envs.adapters.sources import check_call
from envs.adapters.vector_env import VectorGame, takes_num_envs
from envs.adapters.wrappers import wrapped, wrapper_specs

_KINDS = (
    "a class derived from gymnasium.Env, gymnasium.vector.VectorEnv, arena.entity_env.Environment, or PettingZoo's "
    "ParallelEnv or AECEnv; a game in JAX as of pgx or Gymnax; or the interface of lists or dictionaries (reset, step, "
    "and observation_spaces and action_spaces as lists with one space per entity, or as mappings by agent)"
)
_RAISING = "gymnasium.core", "pettingzoo.utils.env"
"""Modules of the base classes whose methods only raise."""
_RULES = "info", "zero_sum", "higher_return", "none"
_OF_PETTINGZOO: Mapping[str, str] = {
    # Not zero_sum: who makes an illegal move loses one, and the other wins nothing.
    "pettingzoo.classic.chess": "higher_return",
    "pettingzoo.classic.connect_four": "higher_return",
    "pettingzoo.classic.go": "higher_return",
    "pettingzoo.classic.rlcard_envs": "higher_return",  # card games for chips or points
    "pettingzoo.classic.rps": "higher_return",
    "pettingzoo.classic.tictactoe": "higher_return",
    "pettingzoo.classic.hanabi": "none",  # the players have one score
    "pettingzoo.butterfly.cooperative_pong": "none",
    "pettingzoo.butterfly.pistonball": "none",
}
"""By the beginning of a module's name: who has won in games of PettingZoo."""


def adapt(
    factory: Callable[..., Any],
    kwargs: Mapping[str, Any],
    lanes: int,
    wrappers: Sequence[tuple[str, Any]] = (),
    contexts: Sequence[EnvContext] | None = None,
    *,
    from_package: bool = False,
) -> BatchedEnv:
    """A game of `lanes` lanes from a factory of any supported interface.

    Args:
        factory: a natively batched class (attribute `batched` true; called once, with `lanes=`); a callable that makes
            a `gymnasium.vector.VectorEnv` (called once, with `num_envs=` if it takes that), or a game in JAX (called
            once); or one that makes single instances (called `lanes` times) of a `gymnasium.Env`, a PettingZoo
            `ParallelEnv` or `AECEnv`, of an environment of the interface of lists or dictionaries, or of an
            `arena.entity_env.Environment`.
        kwargs: passed to the factory at each call.
        lanes: number of instances that step together, at least 1.
        wrappers: name and argument of each wrapper, the innermost first; see `envs.adapters.wrappers`.
        contexts: per lane what a factory with a parameter `context` gets; None: those outside of a run.
        from_package: whether wrong labels in its metadata are ignored with a warning, as they are not the user's.

    Raises:
        ConfigError: wrong labels; the factory does not take these kwargs, or makes an object of no supported interface;
            a wrapper cannot be found, does not take its argument, or cannot go around this game.
        Exception: raised by the factory.
    """
    if lanes < 1:
        raise ConfigError(f"got {lanes}, expected at least 1", path="lanes")
    if (getattr(factory, "__module__", "") or "").partition(".")[0] == "envs":  # our games change no settings
        return _adapted(factory, kwargs, lanes, wrappers, contexts, from_package)
    isolation = Isolation()
    return IsolatedGame(isolation.run(_adapted, factory, kwargs, lanes, wrappers, contexts, from_package), isolation)


def _adapted(
    factory: Callable[..., Any],
    kwargs: Mapping[str, Any],
    lanes: int,
    wrappers: Sequence[tuple[str, Any]],
    contexts: Sequence[EnvContext] | None,
    from_package: bool,
) -> BatchedEnv:
    around = wrapper_specs(wrappers)
    places = contexts or [EnvContext(lane=lane, lanes=lanes) for lane in range(lanes)]
    arguments = [with_context(factory, kwargs, place) for place in places]
    first: Any
    game: BatchedEnv
    unwrapped_spaces: tuple[Any, Any] | None = None
    if getattr(factory, "batched", False):
        check_call(factory, {**arguments[0], "lanes": lanes}, path="kwargs")
        first = game = factory(lanes=lanes, **arguments[0])
        for call, count in (("reset(lanes, seeds=None, options=None)", 3), ("step(actions)", 1)):
            method: Any = getattr(game, call.partition("(")[0], None)
            try:
                inspect.signature(method).bind(*range(count))
            except ValueError:  # a method of a compiled class tells no signature
                continue
            except TypeError as error:
                raise ConfigError(f"{type(game).__name__} is a batched game, but has no {call}: {error}") from error
    else:
        sized = takes_num_envs(factory) and "num_envs" not in kwargs
        if sized:
            arguments[0]["num_envs"] = lanes
        check_call(factory, arguments[0], path="kwargs")
        first = factory(**arguments[0])
        steps_all = sized or isinstance(first, gymnasium.vector.VectorEnv) or is_jax_env(first)
        instances = [first, *(factory(**keywords) for keywords in arguments[1:] if not steps_all)]
        if isinstance(first, gymnasium.vector.VectorEnv):  # before gymnasium.Env: a pool of EnvPool is both
            with ExitStack() as made:
                made.callback(first.close)
                game = VectorGame(first, lanes, places[0].seed)
                unwrapped_spaces = (first.unwrapped.single_observation_space,), (first.unwrapped.single_action_space,)
                limit = next((place for place, (name, _) in enumerate(wrappers) if name == "time_limit"), None)
                if limit is not None and not game.resets_lanes:
                    text = (
                        f"time_limit ends single episodes, and {type(first.unwrapped).__name__} resets no single lane"
                    )
                    raise ConfigError(f"{text}; limit the episodes in the game itself", path=f"wrappers[{limit}]")
                made.pop_all()
        elif sized:
            text = f"{type(first).__name__} was made with `num_envs`; expected a gymnasium.vector.VectorEnv"
            raise ConfigError(f"{text}, or a value for `num_envs` here if it means something else", path="kwargs")
        elif steps_all:
            game = JaxGame(first, lanes)
        elif is_entity_env(first):
            game = EntityGames(instances)
        elif isinstance(first, gymnasium.Env) and not is_dict_env(first):  # RLlib's MultiAgentEnv is one too
            _check_members(first.unwrapped)
            unwrapped_spaces = (first.unwrapped.observation_space,), (first.unwrapped.action_space,)
            lane_games: list[LaneGame] = [GymnasiumGame(wrapped(env, around, lanes=False)) for env in instances]
            game, around = BatchedLanes(list(map(translated, lane_games)), places[0].seed), []
        else:
            game = BatchedLanes([translated(_lane_game(env)) for env in instances], places[0].seed)
    inner = getattr(first, "unwrapped", first)
    declared = [getattr(made, "outcome", None) for made in (first, inner)]  # some games use the name for something else
    rule = next((one for one in declared if isinstance(one, str) and one in _RULES), None)
    if rule is None:
        module = type(inner).__module__
        rule = next((rule for name, rule in _OF_PETTINGZOO.items() if f"{module}.".startswith(f"{name}.")), None)
    if rule is not None and game.interface.outcome is None:
        game.interface = replace(game.interface, outcome=rule)
    game = labeled(game, first, unwrapped_spaces, refuses=not from_package)
    return wrapped(game, around, lanes=True)  # type: ignore[no-any-return]


def _lane_game(env: Any) -> LaneGame:
    """A single instance as a `LaneGame`.

    Class names are compared: an isinstance check would import PettingZoo, which takes long, for every game.
    """
    name, bases = type(env).__name__, {(one.__module__.partition(".")[0], one.__name__) for one in type(env).__mro__}
    if {("pettingzoo", "ParallelEnv"), ("pettingzoo", "AECEnv")} & bases:
        _check_members(env.unwrapped)
        return ParallelGame(env) if ("pettingzoo", "ParallelEnv") in bases else AECGame(env)
    if is_dict_env(env):
        _check_members(env)
        return DictGame(env)
    members = [getattr(env, each, None) for each in ("observation_spaces", "action_spaces", "reset", "step")]
    if all(isinstance(each, (list, tuple)) for each in members[:2]) and all(map(callable, members[2:])):
        return ListGame(env)
    if ("stable_baselines3", "VecEnv") in bases:
        raise ConfigError(
            f"the environment is a {name}, a vector environment of Stable-Baselines3 with {env.num_envs} games; name "
            "the single game in `make`: the arena steps `lanes` of them together"
        )
    if ("gym", "Env") in bases:
        raise ConfigError(
            f"the environment is a {name} of the package gym, which Gymnasium has replaced; derive it from "
            'gymnasium.Env, or use `make: "gymnasium:shimmy:GymV21Environment-v0"` with `kwargs: {env_id: ...}` '
            "(pip install shimmy)"
        )
    _check_members(env, f"; expected {_KINDS}")
    raise ConfigError(f"the environment is a {type(env).__module__}.{type(env).__qualname__}; expected {_KINDS}")


def _check_members(game: Any, more: str = "") -> None:
    """Refuses a game, without wrappers, that lacks spaces or methods of its own; `more` ends the message."""
    lacks = [
        name
        for name in ("observation_space", "action_space", "reset", "step")
        if not hasattr(game, f"{name}s")
        and (not hasattr(game, name) or getattr(getattr(game, name), "__module__", "") in _RAISING)
    ]
    if lacks:
        who = f"{type(game).__module__}.{type(game).__qualname__}"
        raise ConfigError(f"the environment is a {who} without {', '.join(lacks)} of its own{more}")
