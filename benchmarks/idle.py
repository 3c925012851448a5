"""Waiting: the CPU share of the root, of ranks without a role, and of players whose game is slow.

Shares are CPU seconds per second of wall time, in percent of one core, from `/proc`, while the game is played. `busy`
is a run of 6 processes and two idle processes with a game that costs nothing; episodes of 100 ticks end in all lanes,
which gives the root the most to write. `learning` is PPO in touchdown; `slow` is a game that sleeps for 20 ms in every
tick.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say

PLAYERS = 4
IDLE = 2


def empty(kwargs: dict[str, Any], ticks: int, lanes: int) -> dict[str, Any]:
    """Four constant players in the empty game."""
    return {
        "name": "idle",
        "ticks": ticks,
        "envs": {"game": runs.clocked("games:Empty", kwargs, every=10)},
        "policies": {"player": {"algorithm": "workers:Constant"}},
        "matches": [{"env": "game", "seats": ["player"] * PLAYERS, "lanes": lanes}],
    }


def learning(ticks: int) -> dict[str, Any]:
    """Two against two in touchdown, both teams learn."""
    return {
        "name": "learning",
        "ticks": ticks,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {"team_size": 2}, every=10)},
        "policies": {name: {"algorithm": "ppo", "options": runs.PPO} for name in ("blue", "red")},
        "matches": [{"env": "game", "seats": ["blue", "blue", "red", "red"], "lanes": 16}],
    }


def measure(config: dict[str, Any]) -> Sample:
    """One run with two more processes than it needs."""
    with runs.arena(config, ranks=2 + PLAYERS + IDLE) as run:
        window = run.window
        used = {rank: share(run, rank) for rank in range(2 + PLAYERS + IDLE)}
        busy = [rank for role in ("root", "environment", "worker") for rank in run.ranks(role)]
        figures = {f"{role}, % of a core": worst(used, run.ranks(role)) for role in ("root", "environment", "worker")}
    idle = [rank for rank in used if rank not in busy]
    return {**figures, "idle rank, % of a core": worst(used, idle), "s watched": window.seconds}


def share(run: runs.Run, rank: int) -> float:
    """CPU share of a rank in percent of a core."""
    window = run.window
    used = sum(usage.cpu(window.begin, window.end) for usage in run.finished.of_rank(rank))
    return 100 * used / window.seconds


def worst(used: dict[int, float], ranks: list[int]) -> float:
    """The largest share of these ranks."""
    return max(used[rank] for rank in ranks)


def benchmark(settings: Settings) -> Report:
    """Measures a busy, a learning and a slow run."""
    busy = empty({"episode": 100}, settings.pick(60_000, 8_000), 16)
    slow = empty({"delay": 0.02}, settings.pick(400, 100), 1)
    cases = [Case("busy", partial(measure, busy)), Case("slow", partial(measure, slow))]
    if not settings.quick:
        cases.append(Case("learning", partial(measure, learning(3_000))))
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("idle", "Idle processes", measured, method(__doc__))
    for case in cases:
        for who in ("root", "idle rank"):
            found = measured.summary(case.name, f"{who}, % of a core")
            report.at_most(f"{case.name}: CPU share of the {who}, % of a core", found, 2)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
