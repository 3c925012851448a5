"""Importing much at once: what comes in stays, so a search through it for garbage is in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """While this lasts, Python does not look for garbage; one tenth of the time that big libraries take to import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
