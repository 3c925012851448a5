"""Programs of the system that tests run, such as browsers and SLURM, which pip cannot install."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def executable(title: str, *names: str) -> str:
    """The path of the first program that is found; see `unavailable` if there is none."""
    everywhere = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    found = next((path for name in names if (path := shutil.which(name, path=everywhere))), None)
    return found or unavailable(f"{title} is not installed; `make system` installs it as root")


def unavailable(why: str) -> NoReturn:
    """Ends a test that needs a program of the system: in CI it fails, elsewhere it is skipped.

    CI installs all programs, so a missing one is an error there. Elsewhere only root can install and start them, and a
    contributor without root runs all other tests.
    """
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(f"{why}. Not in CI, which installs everything: there this fails (environment variable CI)")
