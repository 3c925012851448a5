"""Programs of the system that tests run: packages that only root can install. CI has them."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def executable(title: str, *names: str) -> str:
    """The path of the first program that is found; without one a test fails in CI, and is skipped elsewhere."""
    everywhere = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    found = next((path for name in names if (path := shutil.which(name, path=everywhere))), None)
    return found or unavailable(f"there is no {title}: `make system` installs it")


def unavailable(why: str) -> NoReturn:
    """Fails the test in CI; skips it elsewhere, as only root can install or start such programs."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(f"{why}; only root can, and CI fails without it")
