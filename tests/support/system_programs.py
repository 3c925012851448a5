"""Programs of the system that tests run, such as browsers and SLURM, which pip cannot install."""

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
    """Skips the test on a machine whose user may not install or start such programs; in CI it fails.

    A contributor without root can so run all other tests, and a missing program cannot hide a failure from CI.
    """
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(
        f"{why}, which takes root. It is skipped for users who lack root; in CI (CI=1 in the environment) it fails"
    )
