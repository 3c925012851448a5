"""`LaneGame`: a single instance of a game, one lane of `envs.adapters.batch.BatchedLanes`.

    lane_step = game.reset(seed, options)       an episode begins
    lane_step = game.step(actions)              one tick; None is the action of an entity that is not to act

A `LaneGame` only translates. `BatchedLanes` ensures that an end is reported once, that ended entities are not active,
and that lanes that are over are not stepped.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game.api import Info
from arena.game.context import ARGUMENTS, taken_by
from arena.registry import where_defined

_LIBRARIES = ("gymnasium.", "pettingzoo.")
_WRAPPERS = ("gymnasium.core.Wrapper", "pettingzoo.utils.wrappers.", "pettingzoo.utils.conversions.")


class LaneStep(NamedTuple):
    """The result of a reset or a step; each field has one item per entity."""

    observations: Sequence[Any]  # None: the last observation is still valid
    active: Sequence[bool]  # true for entities that are to act next
    infos: Sequence[Info]  # with the key "action_mask" if the entity has a mask
    rewards: Sequence[Any]  # as the game returns them
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    over: bool = False  # the episode is over: remaining entities are truncated


class LaneGame(ABC):
    """A single instance of a game with `E` entities."""

    entities: tuple[str, ...]
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    mask_sizes: tuple[int, ...]  # as far as known from the spaces; infos may have more
    in_turns: bool = False  # as of `Interface`

    def __init__(self, env: Any) -> None:
        self._env = env
        for name in ("reset", "step"):
            game = _find_defining(env, name)
            try:
                arguments = dict.fromkeys(taken_by(game)) if name == "reset" else {}
                inspect.signature(getattr(game, name)).bind(*([{}] if name == "step" else []), **arguments)
            except TypeError as error:
                form = "reset(self, *, seed=None, options=None)" if name == "reset" else "step(self, actions)"
                raise ConfigError(
                    f"{name}() of {type(game).__name__}: {error}; expected {form}{self.where(name)}"
                ) from error
            except (AttributeError, ValueError):  # made at its first call; a compiled method tells no signature
                continue

    def where(self, method: str) -> str:
        """Where the class of the game, or of a wrapper of the user's, defines a method, as ` (file, line n)`."""
        return where_defined(type(_find_defining(self._env, method)), method)

    @abstractmethod
    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep: ...

    @abstractmethod
    def step(self, actions: Sequence[Any]) -> LaneStep: ...

    @property
    def state_space(self) -> Space[Any] | None:
        """Of what `state()` of the game returns, as PettingZoo has it; None: the game does not say."""
        return getattr(self._env, "state_space", None)

    def state(self) -> Any:
        """The state of the whole game now."""
        return self._env.state()

    def render(self) -> NDArray[np.uint8] | str | None:
        """The game's picture or text, if its `render_mode` is "rgb_array" or "ansi"; else None, without a warning."""
        if getattr(self._env, "render_mode", None) not in ("rgb_array", "ansi"):
            return None
        image = self._env.render()
        return image if image is None or isinstance(image, str) else np.asarray(image, np.uint8)

    def close(self) -> None:
        if hasattr(self._env, "close"):
            self._env.close()


def _find_defining(env: Any, method: str) -> Any:
    """The game, or the wrapper of the user's around it that has a method of its own; other wrappers pass calls on."""
    while str(getattr(getattr(type(env), method, None), "__module__", "")).startswith((*_LIBRARIES, "envs.adapters.")):
        inside = getattr(env, "__dict__", {})
        if (inner := inside.get("env", inside.get("aec_env"))) is None:
            break
        env = inner
    return env


def flag(value: Any) -> bool:
    """A flag of the game as a bool; raises `GameError` for what is none, such as None or a text."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_) or (type(value) is int and value in (0, 1)):  # the line below takes 30 times as long
        return bool(value)
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf" or found.item() not in (0, 1):
        raise GameError(f"{value!r:.80} as the flag of an end; expected true or false, for each entity")
    return bool(found.item())


def returned(env: Any, call: str, result: Any, names: Sequence[str], remedy: str = "") -> Sequence[Any]:
    """What `reset` or `step` (`call`) of a game returned; `remedy` is by default that for games before Gymnasium 0.26.

    Raises:
        ConfigError: another number of values than of `names`.
    """
    if isinstance(result, (tuple, list)) and len(result) == len(names):
        return result
    found = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"one {type(result).__name__}"
    if not remedy and call == "reset":
        remedy = "older games give no infos: return them too, empty if there are none"
    elif not remedy:
        remedy = f"older games have `done` instead: {names[2]} says an end by the rules, {names[3]} by a time limit"
    who = type(getattr(env, "unwrapped", env)).__name__
    raise ConfigError(f"{call}() of {who} gave {found}; expected {len(names)}: {', '.join(names)} ({remedy})")


def check_reset(env: Any) -> None:
    """Refuses a game, or a wrapper around it, whose `reset` does not take `seed` and `options`."""
    while env is not None:
        if missing := [name for name in ARGUMENTS if name not in taken_by(env)]:
            raise ConfigError(
                f"reset() of {type(env).__name__} takes no {' and no '.join(missing)}; expected "
                "reset(self, *, seed=None, options=None), and random numbers that come from the seed"
                f"{where_defined(type(env), 'reset')}"
            )
        wraps = any(f"{base.__module__}.{base.__name__}".startswith(_WRAPPERS) for base in type(env).__mro__)
        if not getattr(type(env).reset, "__module__", "").startswith(_LIBRARIES):
            wraps = False  # a wrapper's own `reset` may translate for what it holds
        env = vars(env).get("env", vars(env).get("aec_env")) if wraps else None


def several_agents(count: int) -> ConfigError:
    """The refusal of a `gymnasium.Env` in which `count` agents act."""
    return ConfigError(
        f"this gymnasium.Env has {count} agents (Tuple spaces, a reward for each), where Gymnasium has one; write it "
        "as a game of dictionaries by agent, with the wrapper in docs/environments.md under Games of dictionaries"
    )


def write_mask(space: Space[Any], given: Any, into: NDArray[np.int8]) -> str | None:
    """Writes the action mask of an info into a row [mask_size]; returns why it cannot; None: it is written."""
    try:
        mask = np.asarray(given)
    except ValueError:  # such as one array per choice of a MultiDiscrete
        mask = np.asarray(given, object)
    if mask.shape == into.shape and mask.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            into[:] = mask
        if mask.dtype == into.dtype or not np.count_nonzero(into != mask):
            return None
    found = f"{' '.join(str(mask).split())[:80]} of shape {mask.shape}"
    return f"the action mask {found}; expected {into.shape} of 0 and 1 for its {space}"
