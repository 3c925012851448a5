"""The report in a real Chromium, at the size of a desktop and of a phone."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from arena.report.live import LivePage, PageServer
from arena.report.numbers import MINUS, NOTHING, THIN
from arena.report.page import CONTENTS, write_report
from browser import DESK, PHONE, Browser, Scheme, Sheet, chromium, opened
from in_process import play
from league_folders import League, write_league

SHEET = (720, 1000)  # A4 with narrow margins, at 96 dots in an inch
LOOKS: list[tuple[tuple[int, int], Scheme]] = [(DESK, "light"), (PHONE, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_league(tmp_path_factory.mktemp("league") / "run", League(policies=3, episodes=300, rounds=3))
    write_report(folder.path)
    return folder.path


def numbers(sheet: Sheet) -> list[dict[str, str]]:
    """Every number on the page: its path, its value, and its displayed text."""
    collect = (
        "[...document.querySelectorAll('data')].map((d) => ({...d.dataset, value: d.value, shown: d.textContent}))"
    )
    found: list[dict[str, str]] = sheet.page.evaluate(collect)
    return found


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_page_is_complete_without_errors_or_requests(
    browser: Browser, league: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    address = (league / "report.html").as_uri()
    with opened(browser, address, size=size, scheme=scheme) as sheet:
        sheet.scroll()
        heights = sheet.page.evaluate(
            "[...document.querySelectorAll('main > section')].map((s) => [s.id, s.offsetHeight])"
        )
        assert [name for name, _ in heights] == list(CONTENTS)
        assert all(height > 30 for _, height in heights), "a section without content is one line"
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert sheet.complaints == []
        assert sheet.requests == [address]


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_page_follows_the_color_scheme(browser: Browser, league: Path, scheme: Scheme, dark: bool) -> None:
    with opened(browser, (league / "report.html").as_uri(), scheme=scheme) as sheet:
        sheet.page.locator("#learning").scroll_into_view_if_needed()
        expect(sheet.page.locator(".js-plotly-plot .xtick text").first).to_be_visible()
        paper, ink = (
            sheet.page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
            for where, what in (("body", "backgroundColor"), (".js-plotly-plot .xtick text", "fill"))
        )
        brightness = [np.mean([int(part) for part in color[4:-1].split(",")]) for color in (paper, ink)]
        assert (brightness[0] < brightness[1]) == dark


def test_every_number_shown_is_in_the_run_folder(browser: Browser, league: Path) -> None:
    lines = [json.loads(line) for line in (league / "episodes.jsonl").read_text().splitlines()]
    played = [line for line in lines if not line.get("cut")]
    with opened(browser, (league / "report.html").as_uri()) as sheet:
        found = {number["path"]: number for number in numbers(sheet)}
        data = json.loads(sheet.page.locator("#data").text_content() or "")
    assert found["summary.episodes"]["shown"] == str(len(played))
    assert found["summary.cut"]["shown"] == str(len(lines) - len(played))
    for place, policy in enumerate(("p0", "p1", "p2")):
        ends = [seat["outcome"] for line in played for seat in line["seats"] if seat["policy"] == policy]
        shown = [found[f"policies.{place}.{what}"]["shown"] for what in ("episodes", "wins", "draws", "losses")]
        assert shown == [str(len(ends)), *(str(ends.count(end)) for end in ("win", "draw", "loss"))]
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


def test_the_charts_draw_the_numbers_of_the_page(browser: Browser, league: Path) -> None:
    with opened(browser, (league / "report.html").as_uri()) as sheet:
        sheet.scroll()
        data = json.loads(sheet.page.locator("#data").text_content() or "")
        drawn = sheet.page.evaluate(
            "document.querySelector('[data-chart=learning-returns]').data.filter((t) => !t.hoverinfo)"
            ".map((t) => [t.meta.policy, [...t.x], [...t.y]])"
        )
    curves = data["learning"]["returns"]
    assert drawn == [[policy, curve["ticks"], curve["mean"]] for policy, curve in curves.items()]


@pytest.mark.parametrize("chart", ["meta-nash", "learning-returns", "time-kinds"])
def test_labels_of_an_axis_stand_apart_and_reach_its_end_on_a_phone(browser: Browser, league: Path, chart: str) -> None:
    labels = f"[...document.querySelectorAll('[data-chart={chart}] .xtick text')]"
    with opened(browser, (league / "report.html").as_uri(), size=PHONE) as sheet:
        sheet.scroll()
        places = sheet.page.evaluate(
            f"{labels}.map((t) => [t.getBoundingClientRect().left, t.getBoundingClientRect().right, t.textContent])"
        )
    places.sort()
    assert all(before[1] < after[0] for before, after in pairwise(places))
    assert places[-1][2] in ("100%", "3000")


def test_rating_interval_is_visible_on_a_phone_without_scrolling(browser: Browser, league: Path) -> None:
    with opened(browser, (league / "report.html").as_uri(), size=PHONE) as sheet:
        ends = sheet.page.evaluate(
            "[...document.querySelectorAll('.standings tbody .interval')].map((c) => c.getBoundingClientRect().right)"
        )
    assert ends
    assert max(ends) <= PHONE[0]


@pytest.mark.parametrize(("width", "rows"), [(1400, [4, 3]), (800, [4, 3]), (390, [2, 2, 3])])
def test_the_figures_at_the_top_fill_their_rows(browser: Browser, tmp_path: Path, width: int, rows: list[int]) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=20, rounds=1))
    with opened(browser, write_report(folder.path).as_uri(), size=(width, 900)) as sheet:
        boxes = [tile.bounding_box() for tile in sheet.page.locator(".facts div").all()]
        right = sheet.page.locator(".facts").bounding_box()
    tops = Counter(round(box["y"]) for box in boxes if box is not None)
    assert [tops[top] for top in sorted(tops)] == rows
    ends = {round(max(b["x"] + b["width"] for b in boxes if b and round(b["y"]) == top)) for top in tops}
    assert right is not None and ends == {round(right["x"] + right["width"])}


@pytest.mark.parametrize("players", [12, 24])
def test_on_paper_no_table_is_wider_than_the_sheet(browser: Browser, tmp_path: Path, players: int) -> None:
    folder = write_league(tmp_path / "run", League(policies=players, episodes=10 * players, rounds=1))
    with opened(browser, write_report(folder.path).as_uri(), size=SHEET) as sheet:
        sheet.page.emulate_media(media="print")
        sheet.page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        ends = sheet.page.evaluate(
            "[...document.querySelectorAll('table, pre')].map((t) => t.getBoundingClientRect().left + t.scrollWidth)"
        )
    assert max(ends) <= SHEET[0]


def test_full_page_screenshot_has_all_charts(browser: Browser, league: Path) -> None:
    with opened(browser, (league / "report.html").as_uri()) as sheet:
        sheet.wait_until("[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg.main-svg'))")
        assert sheet.page.evaluate("scrollY") == 0
        assert sheet.complaints == []


def test_a_policy_is_hidden_and_shown_in_all_charts(browser: Browser, league: Path) -> None:
    shown = (
        "document.querySelector('[data-chart={}]').data.filter((t) => t.visible !== false).map((t) => t.meta.policy)"
    )
    with opened(browser, (league / "report.html").as_uri()) as sheet:
        sheet.scroll()
        button = sheet.page.locator("#learning button[data-policy=p1]")
        button.click()
        for chart in ("learning-returns", "logged-0", "evaluation-wins"):
            assert set(sheet.page.evaluate(shown.format(chart))) == {"p0", "p2"}
        button.click()
        assert set(sheet.page.evaluate(shown.format("learning-returns"))) == {"p0", "p1", "p2"}
        assert sheet.complaints == []


def test_payoff_cell_shows_its_interval_on_hover(browser: Browser, league: Path) -> None:
    with opened(browser, (league / "report.html").as_uri(), size=PHONE) as sheet:
        sheet.page.locator("td[data-words]").first.tap()
        said = sheet.page.locator(".said").text_content() or ""
        data = json.loads(sheet.page.locator("#data").text_content() or "")
    matrix = data["standings"]["matrix"]
    row, column = said.split()[0], said.split(" against ")[1].split()[0]
    cell = matrix["cells"][matrix["players"].index(row)][matrix["players"].index(column)]
    assert f"[{cell['low']:.3f}, {cell['high']:.3f}]" in said


def test_a_replay_is_played_on_a_canvas(browser: Browser, tmp_path: Path) -> None:
    data = {
        "ticks": 40,
        "record": "replays",
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 20}}},
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
    }
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


def test_served_page_shows_new_data(browser: Browser, tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=20, rounds=1))
    with PageServer(LivePage(folder.path, replays=0), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with opened(browser, server.address) as sheet:
                updates = sheet.page.locator("data[data-path='summary.updates']")
                before = int(updates.text_content() or "")
                with sheet.page.expect_response("**/version"):
                    pass
                line = folder.metrics.read_text().splitlines()[0]
                with folder.metrics.open("a") as file:
                    file.write(f"{line}\n")
                expect(updates).to_have_attribute("value", str(before + 1))
                assert sheet.complaints == []
        finally:
            server.shutdown()
            thread.join()
