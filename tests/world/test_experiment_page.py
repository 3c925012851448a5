"""The page of an experiment, in a real Chromium and as data; and what follows an experiment from its files."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec
import pytest
from scipy import stats

import arena
from arena.cli.main import main
from arena.experiment import open_experiment
from arena.experiment.config import parse_experiment
from arena.experiment.folder import ExperimentFolder
from arena.experiment.page import CONTENTS, page, parts, write_page
from arena.experiment.tables import FollowedExperiment, labels_of, outcome_data, write_table
from arena.report.page import rendered
from browser import DESK, PHONE, Browser, Scheme, chromium, opened
from experiment_folders import GAMMA, RATE, RUN, write_experiment

DATA: dict[str, Any] = {
    "name": "rates",
    "run": RUN,
    "set": {RATE: {"grid_search": [1e-4, 1e-3]}, GAMMA: {"grid_search": [0.9, 0.99]}},
    "repeat": 3,
}


def reach(trial: int, result: int) -> float:
    return 10.0 * (trial // 3) + 3 * math.sin(trial) + result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_experiment(tmp_path_factory.mktemp("experiments") / "rates", DATA, reach, results=5)
    write_page(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), pytest.param(PHONE, "dark", marks=pytest.mark.long)])
def test_page_is_complete_and_every_number_equals_the_files(
    browser: Browser, folder: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    values = {trial: reach(trial, 5) for trial in range(11)}  # the last trial is in error
    address = (folder / "report.html").as_uri()
    with opened(browser, address, size=size, scheme=scheme) as sheet:
        sheet.scroll()
        places = "[...document.querySelectorAll('main > section')].map((s) => s.id)"
        assert sheet.page.evaluate(places) == [*CONTENTS]
        assert sheet.page.locator(".js-plotly-plot").count() == 3, "curves, and two values"
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        data = json.loads(sheet.page.locator("#data").text_content() or "")
        shown = sheet.page.evaluate("[...document.querySelectorAll('data')].map((d) => [d.dataset.path, d.value])")
        links = sheet.page.evaluate(
            "[...document.querySelectorAll('#trials a')].map((a) => decodeURIComponent(a.href))"
        )
        assert sheet.complaints == [] and sheet.requests == [address]
    assert data["states"] == {"terminated": 11, "error": 1}
    ranked = [each["trials"] for each in data["combinations"]]
    assert ranked == [[9, 10, 11], [6, 7, 8], [3, 4, 5], [0, 1, 2]]
    for each in data["combinations"]:
        known = [values[trial] for trial in each["trials"] if trial in values]
        half = stats.t.ppf(0.975, len(known) - 1) * stdev(known) / math.sqrt(len(known))
        assert (each["mean"], each["half"]) == pytest.approx((fmean(known), half))
    for path, value in shown:
        found: Any = data
        for step in path.split("."):
            found = found[int(step)] if isinstance(found, list) else found[step]
        assert json.loads(value or "null") == found, path
    assert len(links) == 12 and all(Path(link.removeprefix("file://")).is_dir() for link in links)


def test_report_and_watch_take_the_folder_of_an_experiment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"{folder / 'report.html'}: ")
    assert main(["watch", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "1  learning_rate=0.001 gamma=0.99" in printed and "1 in error" in printed
    assert main(["report", str(folder), "--serve", "--output", "page.html"]) == 2
    assert "--serve: serves all of one run, or of one experiment" in capsys.readouterr().err


def test_an_incomplete_experiment_is_provisional(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "part")
    found, config = ExperimentFolder(tmp_path / "part"), parse_experiment(DATA).config
    followed = FollowedExperiment(found, config)
    rows = followed.look()
    rows[5] = msgspec.structs.replace(rows[5], state="paused", value=None)
    assert outcome_data(found, config, rows)["provisional"] and "1 of 3 trials" not in page(found)
    data, context = parts(found, followed, rows)
    assert "2 of 3</td>" in rendered("experiment.html", data, **context)
    assert "The ranking is provisional" in rendered("experiment.html", data, **context)
    assert "The ranking is provisional" not in page(found)


def test_an_experiment_is_served_at_its_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("arena.cli.report.serve", lambda home, **given: asked.update(given, home=home) or 0)
    assert main(["report", str(folder), "--serve", "0"]) == 0
    assert (asked["home"], asked["page"], asked["port"]) == (folder.resolve().parent, f"/experiment/{folder.name}", 0)


def test_trials_csv_has_a_row_per_trial_that_a_reader_takes(folder: Path) -> None:
    found = ExperimentFolder(folder)
    rows = FollowedExperiment(found, parse_experiment(DATA).config).look()
    write_table(found, labels_of(rows), rows)
    with found.table.open(newline="") as file:
        read = [*csv.DictReader(file)]
    assert [row["number"] for row in read] == [str(number) for number in range(12)]
    assert [float(row["last"]) for row in read] == [reach(trial, 5) for trial in range(12)]
    assert read[7]["learning_rate"] == "0.001" and read[7]["gamma"] == "0.9" and read[7]["seed"] == "8"
    assert [row["state"] for row in read] == ["terminated"] * 11 + ["error"]


def test_the_outcome_is_read_from_the_files(folder: Path) -> None:
    outcome = open_experiment(folder)
    assert outcome.best is not None and outcome.best.number == max((9, 10), key=lambda trial: reach(trial, 5))
    assert outcome.best.analysis["episode_reward_mean"]["min"] == pytest.approx(reach(outcome.best.number, 1))
    assert outcome.trials[11].state == "error" and outcome.trials[11].why == "exit 1"


def test_curves_of_an_outcome_are_means_over_seeds_with_student_intervals(folder: Path) -> None:
    outcome = open_experiment(folder)
    rows = outcome.curves("episode_reward_mean")
    first = outcome.combinations[0]
    mine = [row for row in rows if row["combination"] == 0]
    assert [row["ticks"] for row in mine] == [10, 20, 30, 40, 50]
    for n, row in enumerate(mine, 1):
        values = [reach(trial, n) for trial in first.trials]
        error = stdev(values) / len(values) ** 0.5
        interval = stats.t.interval(0.95, len(values) - 1, fmean(values), error)
        assert row["trials"] == len(values) > 1
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((fmean(values), *interval))
    assert len(rows) == 5 * len(outcome.combinations) and isinstance(outcome.rows()[:2], arena.Table)
    with pytest.raises(arena.ConfigError, match="no result has the number 'episode_reward_men'; did you mean"):
        outcome.curves("episode_reward_men")


def test_other_folders_are_no_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from arena.errors import ConfigError

    with pytest.raises(ConfigError, match=r"experiment.yaml is missing"):
        open_experiment(tmp_path)
    with pytest.raises(ConfigError, match=r"it does not exist"):
        open_experiment(tmp_path / "nothing")
