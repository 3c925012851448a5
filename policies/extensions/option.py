"""Classes of a user's own that options name: how they are written in a configuration, and loaded.

encoder: "my_module:Net"
encoder: {class: "my_module:Net", options: {width: 32}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from arena.errors import ConfigError, located
from arena.registry import load_object, where_raised

Extension = Annotated[str, Meta(min_length=1)] | dict[str, Any]
"""`package.module:Class`, or `{class: ..., options: {...}}`."""


class Loaded(NamedTuple):
    """A class of the user's own and its options."""

    kind: Callable[..., Any]
    options: Mapping[str, Any]
    name: str

    def made(self, *arguments: Any, option: str, **more: Any) -> Any:
        """An instance.

        Args:
            arguments: the class's first arguments, by place.
            option: that names it, for errors.
            more: further arguments, by name.

        Raises:
            ConfigError: it takes other arguments, or raises an error.
        """
        try:
            return self.kind(*arguments, **more, **self.options)
        except Exception as error:
            raise self.failure("cannot be made", error, option) from error

    def failure(self, what: str, error: Exception, option: str) -> ConfigError:
        """An error in this class as a mistake of the user's, with the line that raised it."""
        if isinstance(error, ConfigError):
            return error
        words = f"{self.name!r} {what}: {type(error).__name__}: {error}{where_raised(error)}"
        return ConfigError(words, path=f"options.{option}")


def load_extension(given: str | Mapping[str, Any], option: str) -> Loaded:
    """The class that an option names.

    Args:
        given: see `Extension`.
        option: its name.

    Raises:
        ConfigError: it has another form, or there is no such class.
    """
    held: Mapping[str, Any] = {"class": given} if isinstance(given, str) else given
    options = held.get("options") or {}
    has_form = isinstance(held.get("class"), str) and {*held} <= {"class", "options"}
    if not has_form or not isinstance(options, Mapping):
        raise ConfigError(
            f'found {given!r}; expected "package.module:Class", or {{class: "package.module:Class", options: {{...}}}}',
            path=f"options.{option}",
        )
    with located(path=f"options.{option}"):
        kind = load_object(held["class"])
        if not callable(kind):
            raise ConfigError(f"{held['class']!r} is no class")
    return Loaded(kind, options, held["class"])
