"""Several runs on one page: which are of one configuration, and means with intervals over them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from arena.cli.main import main
from arena.errors import ConfigError
from arena.report.comparison import compared, estimate, write_comparison
from arena.report.read_run import read_run
from league_folders import League, write_league


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs of one configuration, and one of another with more policies."""
    base = tmp_path_factory.mktemp("runs")
    made = [write_league(base / f"run-{number}", League(policies=2, episodes=60, rounds=2)).path for number in range(3)]
    return [*made, write_league(base / "other", League(policies=3, episodes=60, rounds=2)).path]


def test_runs_of_one_configuration_are_a_group(runs: list[Path]) -> None:
    data, figures = compared([read_run(path) for path in runs])
    assert [len(group.runs) for group in data.groups] == [3, 1]
    assert [run.group for run in data.runs] == [0, 0, 0, 1]
    assert data.groups[0].differs
    assert {row.returns.runs for row in data.policies if row.group == 0} == {3}
    assert all(row.returns.margin is None for row in data.policies if row.group == 1)
    assert figures


def test_interval_over_runs_is_students() -> None:
    values = [1.0, 2.0, 4.0]
    found = estimate(values)
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / np.sqrt(3)
    assert (found.runs, found.mean, found.margin) == (3, pytest.approx(np.mean(values)), pytest.approx(half))
    assert estimate([3.0]).margin is None


def test_page_of_several_runs_holds_its_numbers(runs: list[Path], tmp_path: Path) -> None:
    page = write_comparison(runs, tmp_path / "all.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data: Any = json.loads(text)
    for path, value in re.findall(r'data-path="([^"]+)"[^>]* value="([^"]*)"', page):
        found: Any = data
        for step in path.split("."):
            found = found[int(step)] if isinstance(found, list) else found[step]
        assert json.loads(value) == found


def test_run_named_twice_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="named twice"):
        write_comparison([runs[0], runs[0]], tmp_path / "all.html")


@pytest.mark.parametrize("more", [["--serve"], ["--episode", "0/0/0/0"]])
def test_options_of_one_run_are_refused_for_several(more: list[str], runs: list[Path]) -> None:
    assert main(["report", *map(str, runs[:2]), *more]) == 2


def test_wrong_place_of_an_episode_is_refused(runs: list[Path]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["report", str(runs[0]), "--episode", "3/x"])
    assert caught.value.code == 2
