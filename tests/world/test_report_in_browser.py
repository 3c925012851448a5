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

from arena.report.comparison import write_comparison
from arena.report.numbers import MINUS, NOTHING, THIN
from arena.report.page import CONTENTS, write_report
from browser import DESK, PHONE, Browser, Sheet, opened
from in_process import one_match, play
from league_folders import League, write_league

SHEET = (720, 1000)  # A4 with narrow margins, at 96 dots in an inch


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_league(tmp_path_factory.mktemp("league") / "run", League(policies=3, episodes=300, rounds=3))
    folder.config.write_text(folder.config.read_text().replace("algorithm: random", "algorithm: ppo"))  # they learn
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


Lines = list[tuple[str | None, list[Any], list[Any]]]


def drawn_in(sheet: Sheet) -> dict[str, Lines]:
    """By the name of a chart: name, x and y of each of its traces, without intervals; every trace has points."""
    figures = sheet.page.evaluate("arenaCharts.figures")
    assert all(trace["x"] and len(trace["x"]) == len(trace["y"]) for one in figures.values() for trace in one["data"])
    return {
        chart: [(t.get("name"), t["x"], t["y"]) for t in figure["data"] if t.get("hoverinfo") != "skip"]
        for chart, figure in figures.items()
    }


def columns(rows: list[dict[str, Any]], *keys: str) -> list[list[Any]]:
    return [[row[key] for row in rows] for key in keys]


def charts_of_a_run(data: Any) -> dict[str, Lines]:
    """What the charts of a run have to draw."""
    found: dict[str, Lines] = {}
    for name, learned in data["learning"].items():
        found[f"learning-{name}"] = [(policy, one["ticks"], one["mean"]) for policy, one in learned.items()]
    for name, key in (("evaluation-returns", "return"), ("evaluation-wins", "wins")):
        lines = {
            policy: [row for row in data["evaluations"] if row["policy"] == policy] for policy in ("p0", "p1", "p2")
        }
        found[name] = [(policy, *columns(mine, "ticks", key)) for policy, mine in lines.items() if mine]
    for kind in ("results", "logged"):
        for name, series in data[kind].items():
            found[f"{kind}-{name}"] = [(key or "all", one["ticks"], one["values"]) for key, one in series.items()]
    for number, row in enumerate(data["lengths"]):
        middles = [(low + high - 1) / 2 for low, high in pairwise(row["edges"])]
        found[f"lengths-{number}"] = [(None, middles, row["counts"])]
        found[f"lengths-{number}-time"] = [("all", row["over_time"]["ticks"], row["over_time"]["mean"])]
    if data["standings"]:
        curves = data["standings"]["curves"]
        lives = [
            (policy, *columns([point for point in one["points"] if point["curve"] == life], "tick", "elo"))
            for policy, one in curves.items()
            for life in sorted({point["curve"] for point in one["points"]})
        ]
        found["strengths-0"] = lives
        for what in ("nash", "alpha_rank"):
            rows = data["standings"]["meta"][::-1]
            values = [row[what][0] for row in rows]
            found[f"meta-{what.replace('_', '-')}"] = [(None, values, [row["player"] for row in rows])]
    if data["time"]:
        for kind, rows in (("kinds", data["time"]["kinds"][::-1]), ("ranks", data["time"]["ranks"])):
            for activity in data["time"]["activities"]:
                shares = [row["seconds"].get(activity, 0) / row["wall"] for row in rows]
                names = [row["name"] if kind == "kinds" else int(row["name"]) for row in rows]
                both = (shares, names) if kind == "kinds" else (names, shares)
                found.setdefault(f"time-{kind}", []).append((activity, *both))
    return found


def test_every_chart_of_a_league_draws_the_numbers_of_the_page(desktop: Sheet) -> None:
    data, drawn = data_of(desktop), drawn_in(desktop)
    events = [(trace[1], len(trace[2])) for trace in drawn.pop("lineage")]
    snapshots, forks, resets = (
        [row["tick"] for row in data["lineage"][one]] for one in ("snapshots", "forks", "resets")
    )
    assert events[:3] == [(ticks, len(ticks)) for ticks in (snapshots, forks, resets)]
    marks = {
        policy: [(at["tick"], at["elo"]) for at in one["snapshots"].values()]
        for policy, one in data["standings"]["curves"].items()
    }
    lines = [trace for trace in drawn["strengths-0"] if trace[0] is not None]
    circles = [trace for trace in drawn["strengths-0"] if trace[0] is None]  # with the forks and resets after them
    assert all(marks.values()) and len(circles) == len(marks)
    for (_, x, y), expected in zip(circles, marks.values(), strict=True):
        assert [*zip(x, y, strict=True)][: len(expected)] == expected
    assert len(lines) > 3, "one has started over"
    assert drawn | {"strengths-0": lines} == charts_of_a_run(data)


def test_every_chart_of_a_run_draws_the_numbers_of_the_page(browser: Browser, tmp_path: Path) -> None:
    policies = {"blue": {"algorithm": "learners:LearnerWithActor"}, "red": {"algorithm": "random"}}
    game = {"make": "touchdown", "kwargs": {"max_steps": 5}}
    run = play(one_match(game, policies, ticks=200, results={"every": 20}), tmp_path)
    with opened(browser, write_report(run.folder.path).as_uri()) as sheet:
        drawn = drawn_in(sheet)
        expected = charts_of_a_run(data_of(sheet))
        assert {"learning-returns", "lengths-0", "lengths-0-time"} <= drawn.keys()
        assert drawn == {chart: lines for chart, lines in expected.items() if lines}
        assert sheet.complaints == []


def test_every_chart_of_several_runs_draws_the_numbers_of_the_page(browser: Browser, tmp_path: Path) -> None:
    given = [(seed, number) for number in (2, 3) for seed in (0, 1)]
    runs = [
        write_league(tmp_path / f"{number}-{seed}", League(policies=number, episodes=200, rounds=1), seed=seed).path
        for seed, number in given
    ]
    with opened(browser, write_comparison(runs, tmp_path / "page.html").as_uri()) as sheet:
        data, drawn = data_of(sheet), drawn_in(sheet)
        expected = {
            title: [
                (data["groups"][one["group"]]["label"], one["mean"]["ticks"], one["mean"]["mean"]) for one in groups
            ]
            for title, groups in data["curves"].items()
        }
        assert drawn == expected and expected
        thin = "data.filter((trace) => trace.line.width === 1).map((trace) => [trace.x, trace.y])"
        of_runs = sheet.page.evaluate(f"Object.values(arenaCharts.figures).map(({{ data }}) => {thin})")
        assert of_runs == [
            [[run["ticks"], run["values"]] for one in groups for run in one["runs"] if run["ticks"]]
            for groups in data["curves"].values()
        ]
        assert sheet.complaints == []


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
