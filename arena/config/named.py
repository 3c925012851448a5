"""Only config.yaml names code: other files of a run folder give games and algorithms no text that it does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arena.config.decode import joined
from arena.config.fields import plain
from arena.config.schema import Config
from arena.errors import ConfigError


def check_texts(found: Any, config: Config, *, free: bool = False, path: str = "", source: str = "") -> None:
    """Refuses arguments or options with text that config.yaml does not have: it may name code, a program or a file.

    Args:
        free: whether code that config.yaml names may have set them: text without `:` may be new, as it names no code.
    """
    texts = {text for text in _texts(found) if ":" in text or not free}
    if texts and (strangers := texts - {*_texts(plain(config))}):
        raise ConfigError(
            f"found the text {min(strangers)!r:.200}, which config.yaml does not have; only config.yaml can name code, "
            "programs and files: add it there",
            path=path,
            source=source,
        )


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Mapping):
        for key, value in found.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(found, (list, tuple)):
        for value in found:
            yield from _texts(value)


def refuse_main(config: Config, instead: str = "") -> None:
    """Refuses classes of the program that runs, which other processes do not have; `instead`: what else would help."""

    def refuse(found: Any, path: str) -> None:
        if isinstance(found, Mapping):
            for key, value in found.items():
                refuse(key, joined(path, key))
                refuse(value, joined(path, key))
        elif isinstance(found, list):
            for index, value in enumerate(found):
                refuse(value, f"{path}[{index}]")
        elif isinstance(found, str) and found.startswith("__main__:"):
            raise ConfigError(
                f"found {found!r}, a class of this program, which other processes do not have; put it into a module"
                f"{instead}",
                path=path,
            )

    refuse(plain(config), "")
