"""Recognizes and calls games of the published interface, also those of the package `entity-gym`."""

from __future__ import annotations

import sys
from typing import Any

from arena.entity_env.environment import Environment
from arena.entity_env.translation import ActionClasses, Translator, unit_space
from arena.errors import ConfigError

_PACKAGE = "entity_gym"


def is_entity_env(env: Any) -> bool:
    """Whether an object is an environment of the published interface: ours, or one of the package `entity-gym`."""
    return isinstance(env, Environment) or _package_base(env) is not None


def translator_of(env: Any) -> Translator:
    """The translator for an environment; a game of `entity-gym` gets that package's action objects.

    Raises:
        ValueError: its spaces are not of the interface.
    """
    base = _package_base(env)
    classes = None
    if base is not None:
        package = sys.modules[base.__module__]  # the game has imported it
        classes = ActionClasses(package.CategoricalAction, package.GlobalCategoricalAction, package.SelectEntityAction)
    return Translator(unit_space(env.obs_space(), env.action_space()), classes)


def players_of(env: Any) -> tuple[str, ...]:
    """The names of an environment's players."""
    if _package_base(env) is not None:  # its games have one player each, whatever they call `players`
        return tuple(Environment.players)
    players: Any = getattr(env, "players", Environment.players)
    listed = isinstance(players, (tuple, list)) and all(isinstance(name, str) for name in players)
    if not listed or not players or len(set(players)) < len(players):
        raise ConfigError(f"{type(env).__name__}.players is {players!r:.80}; expected a tuple of distinct names")
    return tuple(players)


def draws(env: Any) -> bool:
    """Whether a game has a picture: not if it keeps the `render` of the package's base class, which only raises."""
    base = _package_base(env)
    return base is None or type(env).render is not base.render


def _package_base(env: Any) -> Any:
    """The package's base class, if the environment derives from it; compared by name, not imported."""
    for base in type(env).__mro__:
        if base.__name__ == "Environment" and base.__module__.partition(".")[0] == _PACKAGE:
            return base
    return None
