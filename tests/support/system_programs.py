"""Programs of the system that tests run: packages that only root can install. CI has them."""

from __future__ import annotations

import os
import shutil

import pytest


def executable(title: str, *names: str) -> str:
    """The path of the first program that is found; without one a test fails in CI, and is skipped elsewhere."""
    for name in names:
        if found := shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin"):
            return found
    missing = f"there is no {title}: `make system` installs it"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(f"{missing}, which needs root; this is tested in CI")
