"""The page of an experiment in the application, in a real Chromium: live, brushed, and with trials that are ended."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from arena.experiment.folder import ExperimentFolder, StateLine, now, write_state
from arena.experiment.scheduler import State
from boards import Served, board
from browser import DESK, PHONE, Browser, Scheme, Sheet, opened
from experiment_folders import GAMMA, RATE, RUN, write_experiment
from run_cli import ARENA, finish, start, wait_for

DATA: dict[str, Any] = {
    "name": "rates",
    "run": RUN,
    "set": {RATE: {"grid_search": [1e-4, 1e-3, 1e-2]}, GAMMA: {"grid_search": [0.9, 0.99]}},
    "repeat": 2,
}
HOSTILE = "<img src=x onerror=alert(1)></script><b>"


def reach(trial: int, result: int) -> float:
    return 10.0 * (trial // 3) + 3 * math.sin(trial) + result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiments")
    write_experiment(path / "rates", DATA, reach, results=5)
    return path


def rows_shown(sheet: Sheet) -> list[str]:
    """The numbers of the trials whose rows are not faded."""
    found: list[str] = sheet.page.evaluate(
        "[...document.querySelectorAll('tr[data-trial]:not(.faded)')].map((row) => row.dataset.trial)"
    )
    return found


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_page_is_complete_without_errors(
    browser: Browser, served: Served, size: tuple[int, int], scheme: Scheme
) -> None:
    with opened(browser, served.address("/experiment/rates"), size=size, scheme=scheme) as sheet:
        sheet.scroll()
        assert sheet.page.locator(".js-plotly-plot").count() == 3
        assert sheet.page.locator("svg.parallel polyline").count() == 11, "one trial is in error"
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert sheet.page.locator("#trials form").count() == 0, "no process could take a request"
        assert {request.partition("?")[0].rpartition("/")[0] for request in sheet.requests} <= {
            *(f"{served.home}{path}" for path in ("/experiment", "/experiment-events", "/static")),
        }
        assert sheet.complaints == []


def test_every_chart_draws_the_numbers_of_the_page(browser: Browser, served: Served) -> None:
    with opened(browser, served.address("/experiment/rates")) as sheet:
        sheet.scroll()
        figures = sheet.page.evaluate("arenaCharts.figures")
        data = sheet.page.evaluate("arenaCharts.data")
        drawn = [trace for trace in figures["learning"]["data"] if trace.get("hoverinfo") != "skip"]
        found = [(trace["name"], trace["x"], trace["y"]) for trace in drawn]
        curves = zip(data["combinations"], data["curves"], strict=True)
        assert found == [(each["name"], curve["ticks"], curve["mean"]) for each, curve in curves] and found
        judged = [trial for trial in data["trials"] if trial["value"] is not None]
        assert [trial["value"] for trial in judged] == pytest.approx([reach(each["number"], 5) for each in judged])
        for path, label in data["labels"].items():
            (points,) = figures[f"value-{label}"]["data"]
            assert points["x"] == [trial["params"][path] for trial in judged]
            assert points["y"] == [trial["value"] for trial in judged]
        assert figures.keys() == {"learning", *(f"value-{label}" for label in data["labels"].values())}


def test_values_are_chosen_on_an_axis_by_dragging_and_by_keys(browser: Browser, served: Served) -> None:
    with opened(browser, served.address("/experiment/rates")) as sheet:
        said = sheet.page.locator("#parallel .said")
        axis = sheet.page.locator("svg.parallel g").first  # the learning rate, logarithmic: 1e-4, 1e-3, 1e-2
        axis.scroll_into_view_if_needed()
        box = axis.locator(".area").bounding_box()
        assert box is not None
        x, top = box["x"] + box["width"] / 2, box["y"]
        sheet.page.mouse.move(x, top + 1)
        sheet.page.mouse.down()
        sheet.page.mouse.move(x, top + 0.7 * box["height"], steps=4)  # from above 1e-3 to below it, with 1e-2 above
        sheet.page.mouse.up()
        chosen = [str(trial) for trial in range(4, 12)]
        assert rows_shown(sheet) == chosen[:-1], "the last trial has no result"
        best = max(reach(trial, 5) for trial in range(4, 11))
        expect(said).to_have_text(f"7 of 11 trials are chosen; the best of them: {best:.4g}")
        axis.focus()
        for _ in range(9):
            sheet.page.keyboard.press("-")
        sheet.page.keyboard.press("Escape")
        assert len(rows_shown(sheet)) == 12
        sheet.page.keyboard.press("ArrowUp")  # the upper quarter
        assert rows_shown(sheet) == ["8", "9", "10"]
        assert sheet.complaints == []


def test_parallel_coordinates_hold_what_varies(browser: Browser, served: Served) -> None:
    with opened(browser, served.address("/experiment/rates")) as sheet:
        expect(sheet.page.locator("svg.parallel polyline")).to_have_count(11)
        labels = sheet.page.locator("svg.parallel text.title > title").all_text_contents()
        assert labels == ["learning_rate", "gamma", "episode_reward_mean"]
        heights_of = "line.getAttribute('points').split(' ').map((point) => point.split(',')[1] * -1)"
        lines = "[...document.querySelectorAll('svg.parallel polyline')]"
        found = sheet.page.evaluate(f"{lines}.map((line) => [line.textContent, {heights_of}])")
        levels = {0: 0.0, 1: 0.5, 2: 1.0}  # of the rates, which are logarithmic
        ends = [[level(heights) for _, heights in found] for level in (min, max)]
        low, high = min(ends[0]), max(ends[1])
        values = [reach(trial, 5) for trial in range(11)]
        for trial, (words, heights) in enumerate(found):
            assert words.startswith(f"trial {trial}, ") and words.endswith(f": {float(f'{values[trial]:.4g}'):g}")
            shares = [(height - low) / (high - low) for height in heights]
            result = (values[trial] - min(values)) / (max(values) - min(values))
            assert shares == pytest.approx([levels[trial // 4], trial // 2 % 2, result], abs=1e-6)


def test_page_grows_in_place_and_keeps_what_was_chosen(browser: Browser, runs: Path, tmp_path: Path) -> None:
    folder = ExperimentFolder(write_experiment(tmp_path / "grows", DATA, reach, results=3, errors=False))
    with board(tmp_path) as served, opened(browser, served.address("/experiment/grows")) as sheet:
        sheet.scroll()
        sheet.page.evaluate("window.same = true")
        sheet.page.locator("svg.parallel g").first.focus()
        sheet.page.keyboard.press("ArrowUp")
        before = rows_shown(sheet)
        best = sheet.page.locator("data[data-path=best_value]")
        with (folder.run_folder(folder.read()[0]).results).open("a") as file:
            file.write(json.dumps({"training_iteration": 4, "ticks": 40, "episode_reward_mean": 77.0}) + "\n")
        expect(best).to_have_attribute("value", "77.0")
        longest = "Math.max(...document.querySelector('[data-chart=learning]').data.map((t) => t.x.length))"
        sheet.wait_until(f"{longest} === 4")
        assert sheet.page.evaluate("window.same"), "the page was not loaded again"
        assert rows_shown(sheet) == before == ["8", "9", "10", "11"]
        folder.config.rename(tmp_path / "elsewhere")
        expect(sheet.page.locator("#trouble")).to_contain_text("experiment.yaml")
        (tmp_path / "elsewhere").rename(folder.config)
        expect(sheet.page.locator("#trouble")).to_be_hidden()
        assert sheet.complaints == []


def test_trials_of_a_real_experiment_are_followed_stopped_and_pruned(browser: Browser, tmp_path: Path) -> None:
    length = "envs.game.kwargs.length"
    run = {
        "seed": 3,
        "ticks": 100_000,
        "results": {"every": 20},
        "envs": {"game": {"make": "games:Slow", "kwargs": {"length": 7, "seconds": 0.01}}},
        "policies": {"a": {"algorithm": "learners:GymLearner"}},
        "matches": [{"env": "game", "seats": ["a"]}],
    }
    data = {"run": run, "set": {length: {"grid_search": [3, 5, 7]}}, "ranks": 1, "at_once": 1, "name": "sweep"}
    (tmp_path / "sweep.yaml").write_text(json.dumps(data))
    process = start([*ARENA, "experiment", "sweep.yaml", "--run-dir", "runs/e"], tmp_path)
    folder = ExperimentFolder(tmp_path / "runs" / "e")
    wait_for(lambda: any(folder.trials.glob("*/result.json")))
    with board(tmp_path / "runs") as served, opened(browser, served.address("/experiment/e")) as sheet:
        asked: list[str] = []
        sheet.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
        states = sheet.page.locator("#trials tbody tr td:nth-of-type(3)")
        value = sheet.page.locator("data[data-path='trials.0.ticks']")
        expect(states).to_contain_text(["running", "pending", "pending"])
        first = value.get_attribute("value")
        expect(value).not_to_have_attribute("value", first or "")
        sheet.page.get_by_role("button", name="prune trial 2").click()
        expect(states).to_contain_text(["running", "pending", "pruned by request"])
        sheet.page.get_by_role("button", name="stop trial 0").click()
        expect(states).to_contain_text(["paused stopped", "running", "pruned"])
        sheet.page.get_by_role("button", name="stop trial 1").click()
        expect(sheet.page.locator(".state")).to_have_text("ended early")
        assert sheet.page.locator("#trials form").count() == 0
        sheet.page.locator("#trials a").first.click()
        expect(sheet.page.locator("h1")).to_have_text("sweep-0000")
        assert sheet.complaints == [] and asked == ["prune trial 2 for good?"]
    assert finish(process).code == 0
    assert [record.state for record in folder.read()] == [State.PAUSED, State.PAUSED, State.PRUNED]


def test_requests_that_cannot_be_done_are_refused(served: Served, runs: Path) -> None:
    with requests.Session() as client:
        assert client.get(served.address("/experiment/rates")).status_code == 200
        ask, own = f"{served.home}/experiment-trial/rates", {"origin": served.home}
        assert client.get(ask).status_code == 405
        assert client.post(ask, {"trial": "0", "kind": "stop"}, headers={"origin": "http://evil"}).status_code == 403
        folder = ExperimentFolder(runs / "rates")
        for fields, status, why in (
            ({"trial": "0", "kind": "stop"}, 409, "Trial 0 is over: it is terminated."),
            ({"trial": "99", "kind": "prune"}, 404, "no trial 99"),
            ({"trial": "../0", "kind": "stop"}, 400, "can be asked"),
            ({"trial": "0", "kind": "delete"}, 400, "can be asked"),
        ):
            answer = client.post(ask, fields, headers=own)
            assert (answer.status_code, why in answer.text) == (status, True)
        write_state(folder.state_path(11), [StateLine(now(), State.PENDING)])
        answer = client.post(ask, {"trial": "11", "kind": "stop"}, headers=own)
        assert answer.status_code == 409 and "No process is at work" in answer.text
        assert folder.requested() == []
        nothing = f"{served.home}/experiment-trial/nothing"
        assert client.post(nothing, {"trial": "0", "kind": "stop"}, headers=own).status_code == 404


def test_hostile_names_of_an_experiment_are_text(browser: Browser, tmp_path: Path) -> None:
    folder = ExperimentFolder(write_experiment(tmp_path / "e", DATA, reach, results=3, errors=False))
    for record in folder.read():
        path = folder.state_path(record.number)
        first, *rest = (json.loads(line) for line in path.read_text().splitlines())
        rates = {RATE: 10.0**-record.number}  # of which Plotly would write powers with styles
        first["params"] = {HOSTILE: f"{HOSTILE}{record.number}", **first["params"], **rates}
        rest[-1]["why"] = HOSTILE
        path.write_text("".join(json.dumps(line) + "\n" for line in [first, *rest]))
    shutil.rmtree(folder.states / "checksums")
    with board(tmp_path) as served, opened(browser, served.address("/experiment/e")) as sheet:
        sheet.scroll()
        assert sheet.page.locator("img").count() == 0
        for part in ("#ranking", "#trials", "#parallel svg"):
            assert HOSTILE[:10] in (sheet.page.locator(part).text_content() or "")
        assert sheet.complaints == []
