"""The labels of a game that is adapted: those that its metadata declare, those known of other packages' games.

`arena.game.labels` has the form. A game of Gymnasium that declares nothing has the names that its methods
`get_action_meanings` and `get_keys_to_action` tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gymnasium.spaces import Discrete

from arena.errors import ConfigError
from arena.game.api import BatchedEnv, Labels
from arena.game.labels import ACTIONS, KEYS, OBSERVATIONS, WORDS, declared_labels

_CONTROL, _TEXT = "gymnasium.envs.classic_control", "gymnasium.envs.toy_text"
_CELLS = [f"{row} {column}" for column in ("left", "middle", "right") for row in ("top", "center", "bottom")]
_KNOWN: Mapping[str, tuple[Any, Any]] = {
    f"{_CONTROL}.cartpole": (["left", "right"], ["position", "velocity", "angle", "angular velocity"]),
    f"{_CONTROL}.mountain_car": (["left", "none", "right"], ["position", "velocity"]),
    f"{_CONTROL}.continuous_mountain_car": (["force"], ["position", "velocity"]),
    f"{_CONTROL}.pendulum": (["torque"], ["cos angle", "sin angle", "angular velocity"]),
    f"{_CONTROL}.acrobot": (
        ["torque -1", "torque 0", "torque 1"],
        ["cos 1", "sin 1", "cos 2", "sin 2", "angular velocity 1", "angular velocity 2"],
    ),
    f"{_TEXT}.frozen_lake": (["left", "down", "right", "up"], "cell"),
    f"{_TEXT}.cliffwalking": (["up", "right", "down", "left"], "cell"),
    f"{_TEXT}.taxi": (["south", "north", "east", "west", "pick up", "drop off"], "state"),
    f"{_TEXT}.blackjack": (["stick", "hit"], ["own sum", "card of the dealer", "usable ace"]),
    "pettingzoo.classic.tictactoe.tictactoe": (_CELLS, None),
    "pettingzoo.classic.connect_four.connect_four": ([f"column {number}" for number in range(7)], None),
    "pettingzoo.classic.rps.rps": (["rock", "paper", "scissors"], None),
    "mpe2": (["stay", "left", "right", "down", "up"], None),
}
"""By the module of their class, or a package above it: actions and observations of games that declare none."""

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
    observed, acted = spaces or (interface.observation_spaces, interface.action_spaces)
    declared = {**dict.fromkeys(WORDS), KEYS: _keys(inner, acted)}
    if isinstance(metadata, Mapping):
        declared |= {word: metadata[word] for word in WORDS if word in metadata}
    labels: tuple[Labels, ...] = ()
    try:
        labels = declared_labels(declared, interface.entities, observed, acted)
    except ConfigError as error:
        if refuses:
            raise
        warnings.warn(f"the names of {type(inner).__name__} are ignored: {error}", stacklevel=2)
        declared = dict.fromkeys(WORDS)
    if declared[ACTIONS] is None and declared[OBSERVATIONS] is None:
        module = f"{type(inner).__module__}."
        names: Any = next((names for name, names in _KNOWN.items() if module.startswith(f"{name}.")), (None, None))
        if callable(meanings := getattr(inner, "get_action_meanings", None)):  # of Atari's games
            names = [one.lower() for one in meanings()], names[1]
        declared = {**declared, ACTIONS: names[0], OBSERVATIONS: names[1]}
        with suppress(ConfigError):  # an option of the game may change its spaces
            labels = declared_labels(declared, interface.entities, observed, acted)
    if acted != interface.action_spaces:
        labels = tuple(replace(one, actions=(), keys={}) for one in labels)
    if observed != interface.observation_spaces:
        labels = tuple(replace(one, observations=()) for one in labels)
    if labels:
        game.interface = replace(interface, labels=labels)
    return game


def _keys(game: Any, action_spaces: Sequence[Any]) -> dict[str, int] | None:
    """What `get_keys_to_action` of a game of one entity tells, of keys that have a name; None: nothing."""
    alone = len(action_spaces) == 1 and isinstance(action_spaces[0], Discrete)
    if not (alone and callable(get := getattr(game, "get_keys_to_action", None))):
        return None
    found = {}
    for pressed, action in get().items():
        names = [_key(code) for code in (pressed if isinstance(pressed, tuple) else (pressed,))]
        if names and all(names):
            found[" ".join(names)] = int(action)
    return found or None


def _key(code: Any) -> str:
    """The name of a key, given as a character or its code; empty: it has none."""
    number = ord(code) if isinstance(code, str) and len(code) == 1 else code
    if number in _CODES:
        return _CODES[number]
    return chr(number) if isinstance(number, int) and 32 < number < 127 else ""
