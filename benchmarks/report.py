"""Writes `benchmarks/RESULTS.md`, the promises, and a page beside each JSON file in `benchmarks/results`, its figures.

python benchmarks/report.py [--results FOLDER] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import HERE, RESULTS, number, rows, spread, table

ORDER = (
    "accounting",
    "tick_overhead",
    "many_processes",
    "image_game",
    "ppo_touchdown",
    "learning",
    "default_options",
    "devices",
    "group_update",
    "idle",
    "root_load",
    "start",
    "memory_growth",
    "pipeline",
    "several_hosts",
    "chaos",
    "endurance",
    "league_statistics",
    "moving_strengths",
    "rating_speed",
    "league_tournament",
    "league_learning",
    "external_games",
    "shared_memory",
    "external_http",
    "export",
    "units",
    "experiments",
    "vector_envs",
    "memory_and_teams",
)

# What the project promises: the result and the claim in it that measure it, and the promised bound. The bound of the
# claim itself, a target, may be another one.
PROMISES = {
    "CPU time of a tick of 6 processes, against a bare Gather and Scatter with the same game and copies": (
        ("tick_overhead", "lanes=1: CPU us per tick, arena / bare with the game and the copies", "at most", 2),
        ("tick_overhead", "lanes=16: CPU us per tick, arena / bare with the game and the copies", "at most", 2),
    ),
    "CPU time of a tick of 6 processes, against the pickled protocol of 2022": (
        ("tick_overhead", "lanes=1: CPU us per tick, protocol of 2022 / arena", "at least", 2),
        ("tick_overhead", "lanes=16: CPU us per tick, protocol of 2022 / arena", "at least", 2),
    ),
    "151 roles on 2 cores, `arena train` without options": (
        ("many_processes", "default start: s to the first tick", "at most", 4),
        ("many_processes", "default start: match ticks/s, arena / protocol of 2022", "at least", 12),
    ),
    "PPO, touchdown 1v1, 64 lanes, minibatch 1024: samples per CPU second": (
        ("ppo_touchdown", "samples per CPU s, arena / fused", "at least", 0.9),
        ("ppo_touchdown", "samples per CPU s, arena / PufferLib", "at least", 1.2),
        ("ppo_touchdown", "samples per CPU s, arena / Stable-Baselines3", "at least", 1.4),
    ),
    "The same, 2 copies: samples per second": (
        ("ppo_touchdown", "samples per s, arena, 2 copies / Stable-Baselines3", "at least", 2.5),
        ("ppo_touchdown", "samples per s, arena, 2 copies / RLlib, two policies", "at least", 25),
    ),
    "Group update, 4 workers, 100,000 parameters": (
        ("group_update", "minibatch 1024: overhead of the average over the gradient, % of cpu time", "at most", 10),
    ),
    "Idle processes": (
        ("idle", "busy: CPU share of the root, % of a core", "at most", 2),
        ("idle", "learning: CPU share of the root, % of a core", "at most", 2),
    ),
    "Memory": (
        ("many_processes", "MB of unshared memory, largest environment", "at most", 60),
        ("many_processes", "MB of unshared memory, largest worker", "at most", 60),
        ("memory_growth", "random: growth of the root in a million ticks, MB", "at most", 5),
        ("memory_growth", "random: growth of the environment in a million ticks, MB", "at most", 5),
        ("memory_growth", "random: growth of the worker in a million ticks, MB", "at most", 5),
    ),
    "Start of 6 processes": (("start", "s to the first tick", "at most", 4),),
    "Death of a process: from the kill to the next tick": (
        ("chaos", "s from the death of a process to the next tick", "at most", 6),
    ),
}

Result = Mapping[str, Any]


def read(folder: Path) -> list[Result]:
    """All results of a folder, in the order of the promises; other results after them."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda data: ORDER.index(data["name"]) if data["name"] in ORDER else len(ORDER))


def page(results: Sequence[Result], details: str = "results") -> str:
    """The page of the promises; `details` is the folder of the others, as the page names it."""
    claims = {(data["name"], promise["claim"]): promise["measured"] for data in results for promise in data["promises"]}
    promised = []
    for what, measures in PROMISES.items():
        for name, claim, bound, limit in measures:
            found = claims.get((name, claim))
            measured, holds = "not measured", "-"
            if found is not None and found["median"] is not None:
                kept = found["median"] <= limit if bound == "at most" else found["median"] >= limit
                measured, holds = spread(found), "yes" if kept else "**no**"
            promised.append((what, claim, f"{bound} {number(limit)}", measured, holds))
            what = ""
    for data in results:
        if data["name"] == "default_options":
            held = sum(promise["holds"] is True for promise in data["promises"])
            claim = "areas under learning curves and greedy returns that are no worse"
            verdict = "yes" if held == len(data["promises"]) else "**no**"
            bound, measured = f"all {len(data['promises'])}", str(held)
            promised.append(("Default options, against Stable-Baselines3's", claim, bound, measured, verdict))
    kept = [
        (
            f"[{data['title']}]({details}/{data['name']}.md)",
            str(len(data["promises"])),
            str(sum(promise["holds"] is True for promise in data["promises"])),
            str(sum(promise["holds"] is False for promise in data["promises"])),
        )
        for data in results
    ]
    lines = [
        "# Results of record",
        "",
        "Written by `benchmarks/report.py` from `benchmarks/results/*.json`. Ratios are of figures measured in turns.",
        "",
        *rows(("what", "figure", "promise", "measured: median (min .. max)", "holds"), promised),
        "",
        "Each benchmark has a page with all its figures, its method and its machine. Its targets are further than the "
        "promises; missed ones stay in the table.",
        "",
        *rows(("benchmark", "targets", "met", "missed"), kept),
    ]
    return "\n".join(lines) + "\n"


def details(data: Result) -> str:
    """The page of one result."""
    head, *body = table(data)
    return "\n".join([f"# {head.lstrip('# ')}", *body, "", f"Measured {when(data)}; {conditions(data)}."]) + "\n"


def when(data: Result) -> str:
    """Day, duration and repeats."""
    day = time.strftime("%Y-%m-%d", time.gmtime(data["begun"]))
    quick = ", a quick run" if data["quick"] else ""
    return f"on {day} in {data['seconds']:.0f} s, {data['repeats']} repeats{quick}"


def conditions(data: Result) -> str:
    """The machine, and its load before and after."""
    of = data["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in of["versions"].items())
    load, gpu = data["load"], of.get("gpu")
    return (
        f"{of['cores']} cores of {of['processor']}, {of['memory_gib']} GiB, {f'{gpu}, ' if gpu else ''}{of['system']}, "
        f"Python {of['python']}, "
        f"{versions}, {of['launcher']}; commit {of['commit']}; "
        f"load average {load['before']} before, {load['after']} after"
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the JSON files")
    parser.add_argument("--output", type=Path, default=HERE / "RESULTS.md", help="the page to write")
    given = parser.parse_args()
    results = read(given.results)
    if not results:
        sys.stderr.write(f"there are no results in {given.results}; run a benchmark first\n")
        return 1
    given.output.write_text(page(results, os.path.relpath(given.results, given.output.resolve().parent)))
    for data in results:
        (given.results / f"{data['name']}.md").write_text(details(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
