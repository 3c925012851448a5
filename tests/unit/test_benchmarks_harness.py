"""The arithmetic of the benchmarks: turns, medians, ratios, windows of time, CPU time of processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # benchmarks are scripts: their folder is where they find each other

import harness  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
from harness import Case, Measured, Promise, Report, Sample, Summary  # noqa: E402


def measured_of(**cases: list[float]) -> Measured:
    """Samples with one figure, `t`."""
    measured = Measured()
    measured.samples = {name: [{"t": value} for value in values] for name, values in cases.items()}
    return measured


# ------------------------------------------------------------------------------------------------ turns and ratios


def test_cases_take_turns() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def measure() -> Sample:
            order.append(name)
            return {"t": len(order)}

        return Case(name, measure)

    measured = harness.interleave([case("a"), case("b")], 3)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert measured.summary("b", "t").values == (2, 4, 6)


def test_ratios_are_computed_within_a_turn() -> None:
    # The machine was ten times slower in the second turn: a ratio within the turn does not see it.
    ratio = measured_of(a=[2.0, 20.0, 2.0], b=[1.0, 10.0, 1.0]).ratio(("a", "t"), ("b", "t"))
    assert ratio.values == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(("at_most", "median", "holds"), [(True, 1.5, True), (True, 1.6, False), (False, 1.4, False)])
def test_claim_is_decided_by_the_median(at_most: bool, median: float, holds: bool) -> None:
    assert Promise("a claim", Summary((0.0, median, 99.0)), 1.5, at_most).holds is holds


# ------------------------------------------------------------------------------------------------------- the report


def written(folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs a small benchmark through the command line; the result that it has written."""

    def benchmark(settings: harness.Settings) -> Report:
        measured = harness.interleave([Case("a", lambda: {"t": 2.0})], settings.repeats)
        made = Report("small", "A small one", measured, ["It does nothing."])
        made.at_most("t", measured.summary("a", "t"), 1.0)
        made.at_most("never", measured.summary("b", "t"), 1.0)
        return made

    assert harness.main(benchmark, ["--results", str(folder), *arguments]) == 0
    found: dict[str, Any] = json.loads((folder / "small.json").read_text())
    return found


def test_result_names_measurement_and_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(tmp_path)
    assert data["repeats"] == 5 and data["quick"] is False
    assert data["cases"]["a"]["t"] == {"median": 2.0, "min": 2.0, "max": 2.0, "values": [2.0] * 5}
    assert [promise["holds"] for promise in data["promises"]] == [False, None]
    assert {"processor", "cores", "versions", "commit"} <= data["machine"].keys()
    assert data["load"].keys() == {"before", "after"}
    assert "| t | at most 1 | 2 (2 .. 2) | **no** |" in capsys.readouterr().out


def test_results_pages_are_generated_from_the_files_only(tmp_path: Path) -> None:
    data = written(tmp_path)
    assert "| [A small one](results/small.md) | 2 | 0 | 1 |" in report.page(report.read(tmp_path))
    page = report.details(data)
    assert page.startswith("# A small one\n")
    assert page.count("| t | at most 1 | 2 (2 .. 2) | **no** |") == 1
    assert "It does nothing." in page and "load average" in page


def test_promises_name_claims_of_their_results() -> None:
    claims = {data["name"]: {promise["claim"] for promise in data["promises"]} for data in report.read(harness.RESULTS)}
    measured = [claim in claims[name] for found in report.PROMISES.values() for name, claim, _, _ in found]
    assert measured.count(False) <= 4, "a renamed claim is reported as not measured"


def test_stored_pages_are_those_of_the_results() -> None:
    results = report.read(harness.RESULTS)
    assert (harness.HERE / "RESULTS.md").read_text() == report.page(results)
    for data in results:
        assert (harness.RESULTS / f"{data['name']}.md").read_text() == report.details(data)


# --------------------------------------------------------------------------------------------------- stretches of time


# ------------------------------------------------------------------------------------------------------- processes


BURN = "import time\nwhile time.process_time() < 0.4: pass\ntime.sleep(1)"  # so that there is a look afterwards


def run(program: str, folder: Path, **options: Any) -> processes.Finished:
    """A small Python program below a shell that waits for it."""
    command = ["sh", "-c", f"{sys.executable} -c '{program}'; exit 3"]
    return processes.run(command, cwd=folder, environment={"PATH": "/usr/bin:/bin"}, every=0.05, **options)


@pytest.mark.slow
def test_cpu_of_a_child_is_counted_both_ways(tmp_path: Path) -> None:
    finished = run(BURN, tmp_path, timeout=60.0, memory=True)
    assert finished.code == 3 and finished.left_behind == []
    assert 0.4 <= finished.waited_cpu < 1.5
    assert finished.seen_cpu >= 0.25
    assert max(usage.peak for usage in finished.processes.values()) > 2**20


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed_with_all_its_children(tmp_path: Path) -> None:
    with pytest.raises(processes.Failed, match="not done within 1 s"):
        run("import time; time.sleep(987.25)", tmp_path, timeout=1.0)
    assert not [line for line in map(command_of, processes.lines()) if "sleep(987.25)" in line]


def command_of(number: int) -> str:
    """The command line of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{number}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


# ----------------------------------------------------------------------------------------------------------- games
