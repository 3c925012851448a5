"""The current directory of a test, with modules of a user that runs `arena` there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    """Changes the current directory to `folder`; its modules are unloaded before and after."""
    names = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for name in names:
            sys.modules.pop(name, None)
        try:
            yield
        finally:
            for name in names:
                sys.modules.pop(name, None)
