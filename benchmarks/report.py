"""Writes `benchmarks/RESULTS.md` from the JSON files in `benchmarks/results`.

python benchmarks/report.py [--results FOLDER] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import HERE, RESULTS, rows, spread, table

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
    "start",
    "memory_growth",
    "pipeline",
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
)

Result = Mapping[str, Any]


def read(folder: Path) -> list[Result]:
    """All results of a folder, in the order of the promises; other results after them."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda data: ORDER.index(data["name"]) if data["name"] in ORDER else len(ORDER))


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    lines = ["# Results of record", "", "Written by `benchmarks/report.py` from `benchmarks/results/*.json`.", ""]
    lines += [*promises(results), ""]
    for data in results:
        lines += [*table(data), "", f"Measured {when(data)}; {conditions(data)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def promises(results: Sequence[Result]) -> list[str]:
    """Every promise in one table."""
    body = [
        (
            data["name"],
            promise["claim"],
            f"{promise['bound']} {promise['limit']:g}",
            spread(promise["measured"]),
            verdict,
        )
        for data in results
        for promise in data["promises"]
        for verdict in [{True: "yes", False: "**no**", None: "not measured"}[promise["holds"]]]
    ]
    return rows(("benchmark", "promise", "bound", "measured: median (min .. max)", "holds"), body)


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
    given.output.write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
