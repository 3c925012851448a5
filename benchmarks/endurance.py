"""Endurance: growth of a process over the ticks of 24 hours.

The empty game has four players: two without a state, two with a state that is saved. It plays as many ticks as a game
of 25 ticks per second in a day: 2,160,000, in legs of 10,000. Unshared memory and open files are sampled during the
run; the maximum in the last tenth of the run is compared with the maximum in its second tenth.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say
from processes import Held, Usage

ROLES = ("root", "environment", "worker")
DAY = 24 * 3600 * 25  # ticks
LEG = 10_000


def config(ticks: int) -> dict[str, Any]:
    """Four players in the empty game."""
    return {
        "name": "endurance",
        "ticks": ticks,
        "checkpoint_every": LEG,
        "envs": {"empty": {"make": "games:Empty", "kwargs": {"episode": 1000}}},
        "policies": {"idler": {"algorithm": "random"}, "keeper": {"algorithm": "workers:Keeps"}},
        "matches": [{"env": "empty", "seats": ["idler", "idler", "keeper", "keeper"], "lanes": 4}],
    }


def measure(ticks: int) -> Sample:
    """One run; for every role its process that grows most."""
    with runs.arena(config(ticks), memory=True, every=1.0, timeout=3600) as run:
        boundaries = len(list((run.folder / "boundaries").iterdir()))
        figures: dict[str, float] = {"ticks": ticks, "legs": ticks / LEG, "boundaries left": boundaries}
        for role in ROLES:
            users = [usage for rank in run.ranks(role) for usage in run.finished.of_rank(rank) if usage.memory]
            figures[f"MB more, {role}"] = max(growth(usage, "unshared") for usage in users) / 1e6
            figures[f"open files more, {role}"] = max(growth(usage, "descriptors") for usage in users)
        return {**figures, "s in all": run.finished.wall}


def growth(usage: Usage, what: str) -> float:
    """The maximum in the last tenth of the samples, less the maximum in the second tenth."""
    tenth = max(1, len(usage.memory) // 10)
    return most(usage.memory[-tenth:], what) - most(usage.memory[tenth : 2 * tenth] or usage.memory[:1], what)


def most(seen: list[Held], what: str) -> float:
    """The largest value of one figure."""
    return max(float(getattr(held, what)) for held in seen)


def benchmark(settings: Settings) -> Report:
    """Measures one long run in each turn."""
    cases = [Case("a day", partial(measure, settings.pick(DAY, 100_000)))]
    measured = interleave(cases, 1, say=say)
    report = Report("endurance", "The ticks of a day", measured, method(__doc__))
    for role in ROLES:
        report.at_most(f"MB more of the {role}", measured.summary("a day", f"MB more, {role}"), 5)
        report.at_most(f"open files more of the {role}", measured.summary("a day", f"open files more, {role}"), 3)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
