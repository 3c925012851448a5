"""How tests run: those with real processes in two rows, the others in parallel; no limits of time per example."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from command import Command

HERE = Path(__file__).parent

# Tests start some 2,000 processes, which would compile the whole package again where this is set: 0.2 s of CPU each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell ignores these for what it starts in the background, and `nohup` the second; tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile(
    "arena",
    settings(),
    deadline=None,  # the time of an example, or of its draw, is no property of the arena
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # equal examples in CI, so that a failure is due to a change
)
settings.load_profile("arena")


# Modules of `tests/world` whose tests share a browser, a process or the folders of runs.
SHARED = (
    *("test_best_and_evaluation_function", "test_continued", "test_experiment_page", "test_export"),
    *("test_hostile_folders", "test_offline", "test_replaying", "test_report_in_browser", "test_serve"),
    "test_unit_records",
)
MPI_ROWS_MEET = "tests/mpi/test_res"
"""The first module of the second row: both take about the same time."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


class Rows(LoadScopeScheduling):  # type: ignore[misc]  # xdist is not typed
    """Work units: the tests of `tests/mpi` in two rows, those of a shared module, and each of the others alone.

    The longest units are started first. The 6,600 unit tests as units of their own cost the controller 14 s: it counts
    all units after every test. The groups of pytest-xdist itself do not work with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if "/mpi/" in module:
            return f"mpi {'first' if module < MPI_ROWS_MEET else 'second'}"
        return module if "/unit/" in module or module.rpartition("/")[2].removesuffix(".py") in SHARED else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Rows:
    return Rows(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE / "mpi" in item.path.parents:
            item.add_marker(pytest.mark.mpi)
