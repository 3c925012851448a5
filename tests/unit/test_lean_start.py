"""The modules that a process loads before play: only those that its role needs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.registry import uncollected
from arena.run import mpirun

ROOT = Path(__file__).parents[2]
FOR_RANK_0_ALONE = {
    "yaml",
    "arena.config.load",
    "arena.cli.train_run",
    "arena.roles.root.root",
    "arena.records.recorder",
    "arena.records.checkpoint",
    "arena.terminal.display",
}
CONFIG = """
name: lean
ticks: 10
envs: {game: {make: cover}}
policies: {blue: {algorithm: random}}
matches: [{env: game, seats: [blue, blue]}]
"""


def loaded_after(program: str, cwd: Path = ROOT) -> set[str]:
    """The modules that a fresh Python has loaded after a program."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint('loaded:', *sys.modules)"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "other", "adapter"),
    [("worker", "environment", "policies.random"), ("environment", "worker", "envs.adapters")],
)
def test_rank_loads_only_the_modules_of_its_role(role: str, other: str, adapter: str) -> None:
    loaded = loaded_after(
        f"import arena.cli.main, arena.cli.train, arena.run.loop, arena.roles.{role}.{role}, {adapter}",
    )
    assert {"arena.run.loop", f"arena.roles.{role}.{role}", adapter, "numpy"} <= loaded
    assert not loaded & (FOR_RANK_0_ALONE | {f"arena.roles.{other}", "torch"})


def test_launcher_parent_does_not_import_numpy(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    program = (
        "from arena.cli.main import main\nfrom arena.run import mpirun\nstarted = []\n"
        "mpirun.under_launcher = lambda: False\n"
        "mpirun.run = lambda ranks, program, **_: started.append(ranks) or 0\n"
        "assert main(['train', 'config.yaml', '--ranks', 'one_per_role']) == 0 and started == [4]"
    )
    loaded = loaded_after(program, cwd=tmp_path)
    assert "arena.plan.plan" in loaded
    assert not loaded & {"numpy", "gymnasium", "mpi4py"}


def test_driver_of_an_experiment_starts_without_numpy() -> None:
    loaded = loaded_after("import arena.cli.experiment.command")
    assert "arena.experiment.driver" in loaded
    assert not loaded & {"numpy", "gymnasium", "mpi4py", "torch"}


# --- garbage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_gc_is_enabled_after_an_import_also_if_it_fails(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ImportError), uncollected():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


# --- settings -----------------------------------------------------------------------------------------------------


SETTINGS = ("OMP_NUM_THREADS", "OMPI_MCA_btl", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """None of the settings is made; what a test makes is undone."""
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is known, and removed or put back in the end
        monkeypatch.delenv(name)
    return monkeypatch


def settled() -> list[str | None]:
    mpirun.settle()
    return [os.environ.get(name) for name in SETTINGS[:2]]


def test_rank_has_one_thread_and_probes_fabrics_only_across_nodes(
    unset: pytest.MonkeyPatch,
) -> None:
    assert settled() == ["1", None]
    unset.setenv("OMPI_COMM_WORLD_SIZE", "6")
    unset.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    assert settled() == ["1", None]
    unset.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "6")
    assert settled() == ["1", "^ofi,tcp"]


def test_user_settings_are_kept(unset: pytest.MonkeyPatch) -> None:
    unset.setenv("OMP_NUM_THREADS", "4")
    unset.setenv("OMPI_MCA_btl", "self,tcp")
    unset.setenv("OMPI_COMM_WORLD_SIZE", "6")
    unset.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "6")
    assert settled() == ["4", "self,tcp"]
