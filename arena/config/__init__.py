"""The configuration of a run: a YAML file, read, overridden (`--set`), checked, frozen.

Its functions are imported when they are first asked for: a worker decodes the options of its algorithm, and needs
neither YAML nor the checks of leagues for that (50 ms of CPU less per process).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.config.load import load_config, load_with_origin, parse_config, resolved_yaml
    from arena.config.schema import Config

__all__ = ["Config", "load_config", "load_with_origin", "parse_config", "resolved_yaml"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("arena.config.schema" if name == "Config" else "arena.config.load"), name)
