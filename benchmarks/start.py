"""Starting: 6 processes, four of which import torch, until the first tick is played.

Time runs from the start of the command `arena train` until the game has played its first tick. For comparison: the
launcher with 6 processes that do nothing, and with four that import torch. Whether a process has imported torch is
read from its mapped files; unshared memory is the largest sample of the run.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

LEAN = ("root", "environment")  # roles that never learn


def config(ticks: int) -> dict[str, Any]:
    """Two against two in touchdown, both teams learn with PPO."""
    return {
        "name": "start",
        "ticks": ticks,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {"team_size": 2})},
        "policies": {name: {"algorithm": "ppo", "options": runs.PPO} for name in ("blue", "red")},
        "matches": [{"env": "game", "seats": ["blue", "blue", "red", "red"], "lanes": 16}],
    }


def start(ticks: int) -> Sample:
    """Times of one run, without sampling its memory."""
    with runs.arena(config(ticks)) as run:
        return {"s to the first tick": run.first, "s in all": run.finished.wall, "CPU s in all": run.finished.cpu}


def hold(ticks: int) -> Sample:
    """Memory of the processes of one run."""
    with runs.arena(config(ticks), memory=True) as run:
        held = {role: run.ranks(role)[0] for role in (*LEAN, "worker")}
        figures = {f"MB of the {role}": run.finished.peak_of_rank(rank) / 1e6 for role, rank in held.items()}
        torch = {role: any(usage.torch for usage in run.finished.of_rank(rank)) for role, rank in held.items()}
    return {**figures, **{f"torch in the {role}": float(found) for role, found in torch.items()}}


def launcher(program: str) -> Sample:
    """The launcher with 6 processes of a small program."""
    with runs.scratch() as folder:
        finished = runs.ended_well(runs.under_mpi(6, [sys.executable, "-c", program]), folder)
    return {"s in all": finished.wall, "CPU s in all": finished.cpu}


FOUR_TORCHES = "from mpi4py import MPI\nif MPI.COMM_WORLD.rank > 1: import torch"


def benchmark(settings: Settings) -> Report:
    """Measures times and memory."""
    cases = [
        Case("arena", partial(start, settings.pick(256, 64))),
        Case("arena, watched", partial(hold, settings.pick(2048, 128))),
    ]
    if not settings.quick:
        cases += [
            Case("launcher alone", partial(launcher, "from mpi4py import MPI")),
            Case("launcher, four import torch", partial(launcher, FOUR_TORCHES)),
        ]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("start", "Start of 6 processes with 4 torch workers", measured, method(__doc__))
    report.at_most("s to the first tick", measured.summary("arena", "s to the first tick"), 8)
    for role in LEAN:
        held, torch = (measured.summary("arena, watched", f"{what} {role}") for what in ("MB of the", "torch in the"))
        report.at_most(f"MB of unshared memory of the {role}", held, 40)
        report.at_most(f"{role} with torch, 1 = yes", torch, 0)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
