"""Names of the numbers in actions and observations, as a game declares them in its `metadata`.

    metadata = {
        "actions": ["stay", "right", "left"],      Discrete: a name for each choice
        "observations": ["x", "y"],                Box, MultiBinary: a name for each number, in the order of `ravel()`
        "keys": {"d": "right", "left": "left"},    of a keyboard, for the choices of Discrete actions
    }

Other forms: of MultiDiscrete `{"move": ["left", "right"], "jump": None}`, a name for each part with those of its
choices, or a list of the parts' names; of a Discrete whose choices have no names a text, its own name; of Dict and
Tuple a mapping or list with one of these forms for each part. A mapping whose keys are entities gives each of them its
own. None, or what is left out, has no names. Units (`arena.UnitSpace`) name themselves.

To use: `interface.labels_of(entity)` is a `Labels`; its `actions` and `observations` go into

    rows(space, names, sample)      [("own x", "0.25"), ("state", "left door")], a labeled table of one sample
    parts(space, names)             [Part("action", ("stay", "right", "left"))], one for each number of an action
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError
from arena.game.api import Labels, Names, Part
from arena.game.spaces import flatten, leaves_of
from arena.game.units import UnitActions, UnitSpace

WORDS = ACTIONS, OBSERVATIONS, KEYS = "actions", "observations", "keys"
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
    known: dict[tuple[int, ...], Labels] = {}  # entities mostly share spaces and names: each combination once
    found = []
    declared: list[Any] = [metadata.get(word) for word in WORDS]
    by_entity = [dict(one) if isinstance(one, Mapping) and not one.keys() - set(entities) else None for one in declared]
    for entity, observed, acted in zip(entities, observation_spaces, action_spaces, strict=True):
        pairs = zip(declared, by_entity, strict=True)
        actions, observations, keys = (whole if each is None else each.get(entity) for whole, each in pairs)
        place = id(observed), id(acted), id(actions), id(observations), id(keys)
        if place not in known:
            of_actions = tuple(_named(acted, actions, "action", f"metadata['{ACTIONS}']"))
            of_observations = tuple(_named(observed, observations, "observation", f"metadata['{OBSERVATIONS}']"))
            known[place] = Labels(
                of_actions if any(of_actions) else (),
                of_observations if any(of_observations) else (),
                _keys(acted, of_actions, keys),
            )
        found.append(known[place])
    return tuple(found)


def parts(space: Space[Any], names: Names) -> list[Part]:
    """A part for each number of an action of a space that is no container; numbers without names are counted."""
    starts = np.broadcast_to(getattr(space, "start", 0), space.shape or ()).ravel().tolist()
    counted = ["action"] if len(starts) == 1 else [f"action {number}" for number in range(len(starts))]
    return list(names[0]) if names else [Part(one, (), start) for one, start in zip(counted, starts, strict=True)]


def rows(space: Space[Any], names: Names, sample: Any) -> list[tuple[str, str]]:
    """The name and the text of each number of a sample; a leaf without names is one row, as an array."""
    found = []
    for leaf, array, named in zip(
        leaves_of(space, ragged=True), flatten(space, sample), names or _no_names(space), strict=True
    ):
        if named:
            found += [(part.name, part.text(number)) for part, number in zip(named, np.ravel(array), strict=True)]
        else:
            text = " ".join(np.array2string(np.asarray(array), precision=4).split())
            found.append((" ".join(map(str, leaf.path)), text))
    return found


def _no_names(space: Space[Any]) -> Names:
    return ((),) * len(leaves_of(space, ragged=True))


def _named(space: Space[Any], declared: Any, name: str, where: str) -> Iterator[tuple[Part, ...]]:
    """The parts of each leaf; `name` is that of a single number."""
    if declared is None:
        yield from _no_names(space)
    elif isinstance(space, (UnitSpace, UnitActions)):
        raise ConfigError(f"{where}: units have the names of their UnitSpace; leave it out")
    elif isinstance(space, spaces.Dict):
        _check_mapping(declared, where)
        for key in declared:
            if key not in space.spaces:
                raise ConfigError(f"{where}: there is no part {key!r:.60}; the space is {space}")
        for key, inner in space.spaces.items():
            for leaf in _named(inner, declared.get(key), str(key), f"{where}[{key!r}]"):  # the key begins each name
                yield tuple(one if one.name == key else one._replace(name=f"{key} {one.name}") for one in leaf)
    elif isinstance(space, spaces.Tuple):
        _check_list(declared, len(space.spaces), where, space)
        for place, (inner, one) in enumerate(zip(space.spaces, declared, strict=True)):
            yield from _named(inner, one, f"{name} {place}", f"{where}[{place}]")
    elif isinstance(space, spaces.Discrete):
        alone = isinstance(declared, str)
        names = _texts([declared] if alone else declared, 1 if alone else int(space.n), where, space)
        yield (Part(names[0], (), int(space.start)) if alone else Part(name, names, int(space.start)),)
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        named = (
            declared if isinstance(declared, Mapping) else dict.fromkeys(_texts(declared, len(counts), where, space))
        )
        names = _texts(list(named), len(counts), where, space)
        choices = (
            () if one is None else _texts(one, count, f"{where}[{part!r}]", space)
            for (part, one), count in zip(named.items(), counts, strict=True)
        )
        yield tuple(map(Part, names, choices, starts))
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)):
        yield tuple(map(Part, _texts(declared, int(np.prod(space.shape, dtype=int)), where, space)))
    else:
        raise ConfigError(f"{where}: the numbers of {space} cannot have names; give None")


def _keys(space: Space[Any], actions: Names, declared: Any) -> dict[str, int]:
    """Choices by keys; a choice is a name or a number."""
    if declared is None:
        return {}
    where = f"metadata['{KEYS}']"
    _check_mapping(declared, where)
    if not isinstance(space, spaces.Discrete):
        raise ConfigError(f"{where}: keys are for Discrete actions, and the space is {space}")
    choices = actions[0][0].choices if actions[0] else ()
    found = {}
    for keys, choice in declared.items():
        pressed = keys.split(" ") if isinstance(keys, str) else [""]
        if not all(key in NAMED_KEYS or (len(key) == 1 and key.isprintable()) for key in pressed):
            known = ", ".join(NAMED_KEYS)
            raise ConfigError(f"{where}: {keys!r:.60} is no key; a key is one character, or one of {known}")
        number = int(space.start) + choices.index(choice) if isinstance(choice, str) and choice in choices else choice
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number not in space:
            raise ConfigError(f"{where}[{keys!r}]: {choice!r:.60} is no action; the space is {space}")
        found[" ".join(sorted(pressed))] = int(number)
    return found


def _texts(declared: Any, count: int, where: str, space: Space[Any]) -> tuple[str, ...]:
    """The names in a list of this many."""
    _check_list(declared, count, where, space)
    for one in declared:
        if not (isinstance(one, str) and one.strip() == one and 0 < len(one) <= _LONGEST and one.isprintable()):
            raise ConfigError(f"{where}: {one!r:.80} is no name; a name is a text of 1 to {_LONGEST} characters")
    if len(set(declared)) < count:
        raise ConfigError(f"{where}: a name is there twice; the names of a list have to differ")
    return tuple(declared)


def _check_list(declared: Any, count: int, where: str, space: Space[Any]) -> None:
    if not isinstance(declared, (list, tuple)):
        raise ConfigError(f"{where}: got {declared!r:.80}, expected a list of {count}, for {space}")
    if len(declared) != count:
        raise ConfigError(f"{where}: got {len(declared)}, expected {count}, for {space}")


def _check_mapping(declared: Any, where: str) -> None:
    if not isinstance(declared, Mapping):
        raise ConfigError(f"{where}: got {declared!r:.80}, expected a mapping")
