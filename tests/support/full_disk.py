"""A disk that is full, for tests: files of this process may not grow any more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_above(size: int) -> Iterator[None]:
    """While this lasts, no file grows beyond `size` bytes; Python ignores the signal, so writing is an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
