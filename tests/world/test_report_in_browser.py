"""The report in a real Chromium, at the size of a desktop and of a phone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from arena.report.numbers import MINUS, NOTHING, THIN
from arena.report.page import CONTENTS, write_report
from browser import DESK, PHONE, Browser, Sheet, opened
from in_process import one_match, play
from league_folders import League, write_league

SHEET = (720, 1000)  # A4 with narrow margins, at 96 dots in an inch


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_league(tmp_path_factory.mktemp("league") / "run", League(policies=3, episodes=300, rounds=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.league.metagame.measures.SAMPLES", 200)  # the axis of the shares ends at 100 %
        write_report(folder.path)
    return folder.path


@pytest.fixture(scope="module")
def desktop(browser: Browser, league: Path) -> Iterator[Sheet]:
    """The page on a desktop, all of whose charts are drawn without scrolling."""
    with opened(browser, (league / "report.html").as_uri()) as sheet:
        sheet.wait_until("[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg.main-svg'))")
        assert sheet.page.evaluate("scrollY") == 0
        yield sheet
        assert sheet.complaints == []


@pytest.fixture(scope="module")
def phone(browser: Browser, league: Path) -> Iterator[Sheet]:
    """The page on a phone with a dark scheme, scrolled from top to bottom."""
    with opened(browser, (league / "report.html").as_uri(), size=PHONE, scheme="dark") as sheet:
        sheet.scroll()
        yield sheet
        assert sheet.complaints == []


def data_of(sheet: Sheet) -> Any:
    """The numbers that the page was made from."""
    return json.loads(sheet.page.locator("#data").text_content() or "")


def test_page_is_complete_without_errors_or_requests(desktop: Sheet, phone: Sheet, league: Path) -> None:
    for sheet, width in ((desktop, DESK[0]), (phone, PHONE[0])):
        heights = sheet.page.evaluate(
            "[...document.querySelectorAll('main > section')].map((s) => [s.id, s.offsetHeight])"
        )
        assert [name for name, _ in heights] == [name for name in CONTENTS if name not in ("tournament", "crosstable")]
        assert all(height > 30 for _, height in heights), "a section without content is one line"
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= width
        assert sheet.complaints == []
        assert sheet.requests == [(league / "report.html").as_uri()]


def test_page_follows_the_color_scheme(desktop: Sheet, phone: Sheet) -> None:
    for sheet, dark in ((desktop, False), (phone, True)):
        paper, ink = (
            sheet.page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
            for where, what in (("body", "backgroundColor"), (".js-plotly-plot .xtick text", "fill"))
        )
        brightness = [np.mean([int(part) for part in color[4:-1].split(",")]) for color in (paper, ink)]
        assert (brightness[0] < brightness[1]) == dark


def test_every_number_shown_is_in_the_run_folder(desktop: Sheet, league: Path) -> None:
    lines = [json.loads(line) for line in (league / "episodes.jsonl").read_text().splitlines()]
    played = [line for line in lines if not line.get("cut")]
    collect = (
        "[...document.querySelectorAll('data')].map((d) => ({...d.dataset, value: d.value, shown: d.textContent}))"
    )
    found = {number["path"]: number for number in desktop.page.evaluate(collect)}
    assert found["summary.episodes"]["shown"] == str(len(played))
    assert found["summary.cut"]["shown"] == str(len(lines) - len(played))
    for place, policy in enumerate(("p0", "p1", "p2")):
        ends = [seat["outcome"] for line in played for seat in line["seats"] if seat["policy"] == policy]
        shown = [found[f"policies.{place}.{what}"]["shown"] for what in ("episodes", "wins", "draws", "losses")]
        assert shown == [str(len(ends)), *(str(ends.count(end)) for end in ("win", "draw", "loss"))]
    data = data_of(desktop)
    for path, number in found.items():
        value = at(data, path)
        assert (number["value"] == "" and value is None) or json.loads(number["value"]) == value
        assert agrees(number["shown"], value), (path, number)


def at(data: Any, path: str) -> Any:
    for step in path.split("."):
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


def agrees(shown: str, value: float | None) -> bool:
    """Whether the displayed text is the value, rounded to its digits."""
    if value is None or not shown[-1].isdigit():  # with a unit: a size, a duration, a share
        return value is not None or shown == NOTHING
    plain = shown.replace(THIN, "").replace(MINUS, "-")
    digits = len(plain.partition("e")[0].partition(".")[2])
    return "e" in plain or abs(float(plain) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def test_the_charts_draw_the_numbers_of_the_page(desktop: Sheet) -> None:
    drawn = desktop.page.evaluate(
        "document.querySelector('[data-chart=learning-returns]').data.filter((t) => !t.hoverinfo)"
        ".map((t) => [t.meta.policy, [...t.x], [...t.y]])"
    )
    curves = data_of(desktop)["learning"]["returns"]
    assert drawn == [[policy, curve["ticks"], curve["mean"]] for policy, curve in curves.items()]


def test_plotly_knows_every_property_of_every_figure(desktop: Sheet) -> None:
    found = desktop.page.evaluate("arenaCharts.figures")
    assert {"learning-won", "meta-nash", "meta-alpha-rank", "lineage", "time-kinds", "time-ranks"} <= found.keys()
    for figure in found.values():
        go.Figure(figure)  # raises for one that it does not know
        assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar"}, "what the basic bundle draws"


def test_a_chart_of_fewer_than_three_points_is_words(browser: Browser, tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=300, rounds=3))
    lines, (first, *_) = (
        [*map(json.loads, path.read_text().splitlines())] for path in (folder.episodes, folder.metrics)
    )
    folder.episodes.write_text("".join(json.dumps({**line, "length": 1}) + "\n" for line in lines))
    folder.metrics.write_text(json.dumps(first) + "\n")
    with opened(browser, write_report(folder.path).as_uri()) as sheet:
        sheet.scroll()
        words = dict(
            sheet.page.evaluate(
                "[...document.querySelectorAll('.chart.none')].map((c) => [c.dataset.chart, c.textContent])"
            )
        )
        assert words.keys() == {"lengths-0", "logged-policy_loss", "logged-value_loss", "logged-entropy"}
        said = f"No chart of fewer than three points: p0 {first['entropy']:.4g} at {first['ticks']}."
        assert words["logged-entropy"] == said
        figures = sheet.page.evaluate("arenaCharts.figures")
        for name in figures.keys() - words.keys():
            assert max(len(trace["x"]) for trace in figures[name]["data"]) >= 3
        drawn = sheet.page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map((c) => c.dataset.chart)")
        assert {*drawn} == figures.keys() - words.keys()
        assert sheet.complaints == []


def test_a_phone_shows_labels_of_axes_apart_and_intervals_without_scrolling(phone: Sheet) -> None:
    for chart in ("meta-nash", "learning-returns", "time-kinds"):
        labels = f"[...document.querySelectorAll('[data-chart={chart}] .xtick text')]"
        places = phone.page.evaluate(
            f"{labels}.map((t) => [t.getBoundingClientRect().left, t.getBoundingClientRect().right, t.textContent])"
        )
        places.sort()
        assert all(before[1] < after[0] for before, after in pairwise(places))
        assert places[-1][2] in ("100%", "3000")
    ends = phone.page.evaluate(
        "[...document.querySelectorAll('.standings tbody .interval')].map((c) => c.getBoundingClientRect().right)"
    )
    assert 0 < max(ends) <= PHONE[0]


def test_the_figures_at_the_top_fill_their_rows(browser: Browser, tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=20, rounds=1))
    with opened(browser, write_report(folder.path).as_uri()) as sheet:
        for width, rows in ((1400, [4, 3]), (800, [4, 3]), (390, [2, 2, 3])):
            sheet.page.set_viewport_size({"width": width, "height": 900})
            boxes = [box for tile in sheet.page.locator(".facts div").all() if (box := tile.bounding_box())]
            right = sheet.page.locator(".facts").bounding_box()
            tops = Counter(round(box["y"]) for box in boxes)
            assert [tops[top] for top in sorted(tops)] == rows
            ends = {round(max(b["x"] + b["width"] for b in boxes if round(b["y"]) == top)) for top in tops}
            assert right is not None and ends == {round(right["x"] + right["width"])}


def test_on_paper_no_table_is_wider_than_the_sheet(browser: Browser, tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=24, episodes=240, rounds=1))
    with opened(browser, write_report(folder.path).as_uri(), size=SHEET) as sheet:
        sheet.page.emulate_media(media="print")
        sheet.page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        ends = sheet.page.evaluate(
            "[...document.querySelectorAll('table, pre')].map((t) => t.getBoundingClientRect().left + t.scrollWidth)"
        )
    assert max(ends) <= SHEET[0]


def test_a_policy_is_hidden_and_shown_in_all_charts(desktop: Sheet) -> None:
    shown = (
        "document.querySelector('[data-chart={}]').data.filter((t) => t.visible !== false).map((t) => t.meta.policy)"
    )
    button = desktop.page.locator("#learning button[data-policy=p1]")
    button.click()
    for chart in ("learning-returns", "logged-policy_loss", "evaluation-wins"):
        assert set(desktop.page.evaluate(shown.format(chart))) == {"p0", "p2"}
    button.click()
    assert set(desktop.page.evaluate(shown.format("learning-returns"))) == {"p0", "p1", "p2"}


def test_payoff_cell_shows_its_interval_on_hover(phone: Sheet) -> None:
    phone.page.locator("td[data-text]").first.tap()
    said = phone.page.locator(".said").text_content() or ""
    matrix = data_of(phone)["standings"]["matrix"]
    row, column = said.split()[0], said.split(" against ")[1].split()[0]
    low, high = (matrix[end][matrix["players"].index(row)][matrix["players"].index(column)] for end in ("low", "high"))
    assert f"[{low:.3f}, {high:.3f}]" in said


def test_a_replay_is_played_on_a_canvas(browser: Browser, tmp_path: Path) -> None:
    game = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 20}}
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}
    data = one_match(game, policies, ticks=40, record="replays")
    page = write_report(play(data, tmp_path).folder.path)
    picture = "document.querySelector('canvas').toDataURL()"
    with opened(browser, page.as_uri()) as sheet:
        sheet.wait_until(f"{picture}.length > 2500")  # an empty one has fewer characters
        first = sheet.page.evaluate(picture)
        sheet.page.locator(".replay input").fill("10")
        assert sheet.page.evaluate(picture) != first
        # Drawn, as common fonts lack a sign for pause; in one go, as the replay ends by itself.
        signs = sheet.page.evaluate(
            """() => {
                const button = document.querySelector(".replay button");
                const shown = () => [...button.querySelectorAll("path")].filter((p) => p.getBoundingClientRect().width);
                const before = shown().map((p) => p.getAttribute("class"));
                button.click();
                return [before, shown().map((p) => p.getAttribute("class")), button.textContent];
            }"""
        )
        assert signs == [["play"], ["pause"], ""]
        sheet.wait_until("Number(document.querySelector('.replay input').value) > 10")
        assert sheet.complaints == []


def test_a_page_with_three_replays_is_small_and_opens_offline(browser: Browser, tmp_path: Path) -> None:
    sides = [[first] * 5 + [second] * 5 for first, second in (("blue", "red"), ("red", "green"), ("green", "blue"))]
    data = {
        "ticks": 500,
        "record": "replays",
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 5, "max_steps": 99}}},
        "policies": {name: {"algorithm": "random"} for name in ("blue", "red", "green")},
        "matches": [{"env": "game", "seats": seats} for seats in sides],
    }
    page = write_report(play(data, tmp_path).folder.path)
    assert page.stat().st_size <= 1.6e6
    with opened(browser, page.as_uri()) as sheet:
        sheet.page.context.set_offline(True)
        sheet.page.reload()
        sheet.scroll()
        widths = "[...document.querySelectorAll('.replay img')].map((i) => i.naturalWidth)"
        assert len(found := sheet.page.evaluate(widths)) == 3 and all(found)
        assert sheet.page.locator(".js-plotly-plot").count() > 1
        assert sheet.complaints == [] and {*sheet.requests} == {page.as_uri()}
