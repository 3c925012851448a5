"""The units that a network was made for, stored beside its weights: these may fit other units as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arena.errors import ConfigError
from arena.game.units import Choice, GlobalChoice, UnitSpace
from policies.networks.units.options import Transformer

_PATH = "options.transformer."
_EXTENT = f"{_PATH}relative.extent"


class Schema:
    """The types, features, actions and options that weights belong to.

    Args:
        space: of one row.
        options: of the network.
    """

    def __init__(self, space: UnitSpace, options: Transformer) -> None:
        named = msgspec.to_builtins(options)
        self._options = {f"{_PATH}{key}": _plain(f"{_PATH}{key}", value) for key, value in _flat(named).items()}
        self._lists = {
            "types": list(space.types),
            **{f"features of {name!r}": list(features) for name, features in space.types.items()},
            "global features": list(space.global_features),
            "hidden types": list(space.hidden),
            "actions": [_words(name, kind) for name, kind in space.actions.items()],
            **{
                f"labels of {name!r}": list(kind.labels)
                for name, kind in space.actions.items()
                if isinstance(kind, Choice)
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """All of it, as lists of text and plain values."""
        return {"options": self._options, "lists": self._lists}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that stored weights belong to the same.

        Raises:
            ConfigError: they do not; the first difference is named.
        """
        lists, options = state["lists"], state["options"]
        for name in {**self._lists, **lists}:
            stored, here = lists.get(name, []), self._lists.get(name, [])
            if list(stored) != here:
                raise ConfigError(
                    f"the stored policy was learned with other units: {_difference(name, stored, here)}; take the "
                    "game's configuration that it was learned with"
                )
        for key in {**self._options, **options}:
            given, own = _plain(key, options.get(key)), self._options.get(key)
            if given != own:
                raise ConfigError(
                    f"the stored weights do not fit this network: they were learned with {key}: {_shown(given)}, here "
                    f"it is {_shown(own)}"
                )


def _difference(name: str, stored: Sequence[str], here: Sequence[str]) -> str:
    for place in range(max(len(stored), len(here))):
        old, new = (repr(one[place]) if place < len(one) else "nothing" for one in (stored, here))
        if old != new:
            return f"number {place} of {name} was {old}, here it is {new}"
    return f"{name} differ"


def _words(name: str, kind: Any) -> str:
    words = "select" if not isinstance(kind, Choice) else "global" if isinstance(kind, GlobalChoice) else "choice"
    return f"{name} ({words}{', masked' if kind.masked else ''})"


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
        flat.update(inner)
    return flat


def _plain(key: str, value: Any) -> Any:
    """A value as it is compared: an extent of one number is a list, too."""
    if key == _EXTENT and isinstance(value, int):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else value


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
