"""The labels of a game that is adapted: those that its metadata declare, in the form of `arena.game.labels`.

A game of Gymnasium that declares nothing has the names that its methods `get_action_meanings` and `get_keys_to_action`
tell; the games of other packages in our configurations have ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gymnasium.spaces import Discrete

from arena.errors import ConfigError
from arena.game.api import BatchedEnv
from arena.game.labels import ACTIONS, KEYS, OBSERVATIONS, PIECES, declared_labels

_KNOWN: Mapping[str, list[str]] = {
    "gymnasium.envs.classic_control.cartpole": ["left", "right"],
    "gymnasium.envs.toy_text.frozen_lake": ["left", "down", "right", "up"],
    "pettingzoo.classic.tictactoe.tictactoe": [
        f"{row} {column}" for column in ("left", "middle", "right") for row in ("top", "center", "bottom")
    ],
    "pettingzoo.classic.connect_four.connect_four": [f"column {number}" for number in range(7)],
}
"""The actions of games that declare none, by the module of their class; an option of theirs may change the space."""
_PIECES: Mapping[str, list[str]] = {
    "pettingzoo.classic.tictactoe.tictactoe": ["X", "O"],
    "pettingzoo.classic.connect_four.connect_four": ["red", "black"],
}

_CODES = {
    13: "enter", 32: "space", 273: "up", 274: "down", 275: "right", 276: "left",
    1073741903: "right", 1073741904: "left", 1073741905: "down", 1073741906: "up",
}  # fmt: skip
"""Keys by their codes in pygame, of both of its generations; others have those of ASCII."""


def labeled(game: BatchedEnv, made: Any, spaces: tuple[Any, Any] | None, *, refuses: bool) -> BatchedEnv:
    """The game, with the labels of `made`, the first object that its factory has made.

    A declaration that does not fit raises ConfigError where it `refuses`; else it is ignored with a warning. `spaces`
    are the observation and action spaces by entity, before wrappers: names of spaces that these have changed are left
    out. None: those of the game.
    """
    interface, inner, metadata = game.interface, getattr(made, "unwrapped", made), getattr(made, "metadata", None)
    observed, acted = interface.observation_spaces, interface.action_spaces
    declared = dict(metadata) if isinstance(metadata, Mapping) else {}
    if declared.get(ACTIONS) is None:
        meanings = getattr(inner, "get_action_meanings", None)  # of Atari's games
        names = [one.lower() for one in meanings()] if callable(meanings) else _KNOWN.get(type(inner).__module__, [])
        fit = all(isinstance(space, Discrete) and space.n == len(names) for space in acted)
        declared[ACTIONS] = names if fit else None
    declared.setdefault(KEYS, _keys(inner, acted))
    declared.setdefault(PIECES, _PIECES.get(type(inner).__module__))
    if spaces is not None and spaces[0] != observed:
        declared[OBSERVATIONS] = None
    if spaces is not None and spaces[1] != acted:
        declared[ACTIONS] = declared[KEYS] = None
    try:
        if labels := declared_labels(declared, interface.entities, observed, acted):
            game.interface = replace(interface, labels=labels)
    except ConfigError as error:
        if refuses:
            raise
        warnings.warn(f"the names of {type(inner).__name__} are ignored: {error}", stacklevel=2)
    return game


def _keys(game: Any, action_spaces: Sequence[Any]) -> dict[str, int] | None:
    """What `get_keys_to_action` of a game of one entity tells, of single keys that have a name; None: nothing."""
    alone = len(action_spaces) == 1 and isinstance(action_spaces[0], Discrete)
    if not (alone and callable(get := getattr(game, "get_keys_to_action", None))):
        return None
    found = {}
    for pressed, action in get().items():
        code = pressed[0] if isinstance(pressed, tuple) and len(pressed) == 1 else pressed
        number = ord(code) if isinstance(code, str) and len(code) == 1 else code
        if isinstance(number, int) and (number in _CODES or 32 < number < 127):
            found[_CODES.get(number) or chr(number)] = int(action)
    return found or None
