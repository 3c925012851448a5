"""Names of the numbers in actions and observations, as a game declares them in its `metadata`.

    metadata = {
        "actions": ["stay", "right", "left"],      Discrete: a name for each choice
        "observations": ["x", "y"],                Box, MultiBinary: a name for each number, in the order of `ravel()`
        "keys": {"d": "right", "left": "left"},    of a keyboard, for the choices of Discrete actions
    "pieces": ["X", "O"],                      of the entities, in their order: what is theirs in the picture
    }

Of MultiDiscrete a list has a name for each part; `{"move": ["left", "right"], "jump": None}` has those of its choices
too. A mapping whose keys are entities gives each of them its own. None, or what is left out, has no names. Units
(`arena.UnitSpace`) and the parts of Dict and Tuple name themselves.

To use: `interface.labels_of(entity)` is a `Labels`; its `actions` and `observations` go into

    rows(space, names, sample)      [("own x", "0.25"), ("own y", "1")], a labeled table of one sample
    parts(space, names)             [Part("action", ("stay", "right", "left"))], one for each number of an action
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError
from arena.game.api import Labels, Names, Part
from arena.game.spaces import flatten, leaves_of

WORDS = ACTIONS, OBSERVATIONS, KEYS, PIECES = "actions", "observations", "keys", "pieces"
"""The keys of the metadata."""
NAMED_KEYS = ("left", "right", "up", "down", "space", "enter")
"""Keys of a keyboard that are no single character."""
_LONGEST = 60  # characters of a name


def declared_labels(
    metadata: Mapping[str, Any],
    entities: Sequence[str],
    observation_spaces: Sequence[Space[Any]],
    action_spaces: Sequence[Space[Any]],
) -> tuple[Labels, ...]:
    """The labels that a game's metadata declare, one per entity; () if they declare none.

    Raises:
        ConfigError: names that do not fit their space, or are no short, printable texts that differ from each other.
    """
    if all(metadata.get(word) is None for word in WORDS):
        return ()

    def of_entity(word: str, entity: str) -> Any:
        declared = metadata.get(word)
        by_entity = isinstance(declared, Mapping) and not declared.keys() - set(entities)
        return declared.get(entity) if by_entity and declared is not None else declared

    found = []
    declared = metadata.get(PIECES)
    where = f"metadata[{PIECES!r}]"
    pieces = [""] * len(entities) if declared is None else _texts(declared, len(entities), where, "as many entities")
    for entity, observed, acted, piece in zip(entities, observation_spaces, action_spaces, pieces, strict=True):
        actions = _named(acted, of_entity(ACTIONS, entity), "action", f"metadata['{ACTIONS}']")
        observations = _named(observed, of_entity(OBSERVATIONS, entity), "observation", f"metadata['{OBSERVATIONS}']")
        found.append(Labels(actions, observations, _keys(acted, actions, of_entity(KEYS, entity)), piece))
    return tuple(found)


def parts(space: Space[Any], names: Names) -> Names:
    """A part for each number of an action of a space that is no container; numbers without names are counted."""
    starts = np.broadcast_to(getattr(space, "start", 0), space.shape or ()).ravel().tolist()
    counted = ["action"] if len(starts) == 1 else [f"action {number}" for number in range(len(starts))]
    return names or tuple(Part(one, (), start) for one, start in zip(counted, starts, strict=True))


def rows(space: Space[Any], names: Names, sample: Any) -> list[tuple[str, str]]:
    """The name and the text of each number of a sample; without names a row for each array in it."""
    if names:
        return [(part.name, part.text(number)) for part, number in zip(names, np.ravel(sample), strict=True)]
    return [
        (" ".join(map(str, leaf.path)), " ".join(np.array2string(np.asarray(array), precision=4).split()))
        for leaf, array in zip(leaves_of(space, ragged=True), flatten(space, sample), strict=True)
    ]


def _named(space: Space[Any], declared: Any, name: str, where: str) -> Names:
    """The parts of a space; `name` is that of the only number of a Discrete one."""
    if declared is None:
        return ()
    if isinstance(space, spaces.Discrete):
        return (Part(name, _texts(declared, int(space.n), where, space), int(space.start)),)
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        names = _texts(list(declared) if isinstance(declared, Mapping) else declared, len(counts), where, space)
        of_parts = [declared[part] for part in names] if isinstance(declared, Mapping) else [None] * len(names)
        choices = [
            () if one is None else _texts(one, count, f"{where}[{part!r}]", space)
            for part, one, count in zip(names, of_parts, counts, strict=True)
        ]
        return tuple(map(Part, names, choices, starts))
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return tuple(map(Part, _texts(declared, int(np.prod(space.shape, dtype=int)), where, space)))
    raise ConfigError(
        f"{where}: Discrete, MultiDiscrete, MultiBinary and Box spaces have names, not {space}; give None"
    )


def _keys(space: Space[Any], actions: Names, declared: Any) -> dict[str, int]:
    """Choices by keys; a choice is a name or a number."""
    if declared is None:
        return {}
    where = f"metadata['{KEYS}']"
    if not (isinstance(declared, Mapping) and isinstance(space, spaces.Discrete)):
        raise ConfigError(f"{where}: got {declared!r:.80}, for {space}; keys are for Discrete actions, in a mapping")
    names = {name: int(space.start) + place for place, name in enumerate(actions[0].choices if actions else ())}
    numbers = {key: names.get(one, one) if isinstance(one, str) else one for key, one in declared.items()}
    for key, number in numbers.items():
        if not (key in NAMED_KEYS or (isinstance(key, str) and len(key) == 1 and key.isprintable())):
            raise ConfigError(f"{where}: {key!r:.60} is no key; a key is one character, or {', '.join(NAMED_KEYS)}")
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number not in space:
            raise ConfigError(f"{where}[{key!r}]: {number!r:.60} is no action; the space is {space}")
    return {key: int(number) for key, number in numbers.items()}


def _texts(declared: Any, count: int, where: str, space: object) -> tuple[str, ...]:
    """The names in a list of this many."""
    if not isinstance(declared, (list, tuple)) or len(declared) != count:
        got = len(declared) if isinstance(declared, (list, tuple)) else f"{declared!r:.80}"
        raise ConfigError(f"{where}: got {got}, expected a list of {count}, for {space}")
    for one in declared:
        if not (isinstance(one, str) and one.strip() == one and 0 < len(one) <= _LONGEST and one.isprintable()):
            raise ConfigError(f"{where}: {one!r:.80} is no name; a name is a text of 1 to {_LONGEST} characters")
    if len(set(declared)) < count:
        raise ConfigError(f"{where}: a name is there twice; the names of a list have to differ")
    return tuple(declared)
