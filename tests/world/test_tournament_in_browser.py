"""A tournament on the page of its run, in a real Chromium: order, undecided pairs, crosstable, live."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from arena.cli.main import main
from arena.league import read_results
from arena.league.tournament import Rule, table
from arena.records.folder import RunFolder
from boards import Served, board
from browser import DESK, PHONE, Browser, Scheme, opened
from league_folders import League, write_league
from run_cli import ARENA, finish, start, wait_for

PLAYERS = ("blue", "green", "red")


def write(path: Path, seconds: float = 0.0) -> str:
    """The file of a tournament of three players, who play at random; with pauses, a slow game that ends in draws."""
    game: dict[str, Any] = {"make": "matrix", "kwargs": {"payoffs": [[0, -1], [1, 0]], "rounds": 1}}
    if seconds:
        game = {"make": "games:SlowTouchdown", "kwargs": {"team_size": 1, "max_steps": 20, "seconds": seconds}}
    data = {
        "seed": 3,
        "ticks": 100,
        "envs": {"game": game},
        "policies": {name: {"algorithm": "random"} for name in PLAYERS},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4}],
    }
    (path / "cup.yaml").write_text(yaml.safe_dump(data))
    return str(path / "cup.yaml")


@pytest.fixture(scope="module")
def cup(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A tournament that has ended, undecided."""
    path = tmp_path_factory.mktemp("cups")
    assert main(["tournament", write(path), "--sample", "--episodes", "400", "--run-dir", str(path / "cup")]) == 0
    return RunFolder(path / "cup")


@pytest.fixture(scope="module")
def runs(cup: RunFolder) -> Path:
    return cup.path.parent


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_page_shows_what_the_tournament_has_found(
    browser: Browser, served: Served, cup: RunFolder, size: tuple[int, int], scheme: Scheme
) -> None:
    results = read_results.read(cup).results
    found = table(results, PLAYERS, Rule(400, error=0.05, elo=20))
    with opened(browser, served.address("/run/cup"), size=size, scheme=scheme) as sheet:
        expect(sheet.page.locator("#live")).to_have_text("connected")
        expect(sheet.page.locator("#tournament .state")).to_have_text("finished")
        expect(sheet.page.locator("#standings .standings").first).to_be_visible()
        order = sheet.page.locator("#standings .standings tbody th").all_text_contents()
        assert order == [row.player for row in found.rows]
        undecided = sheet.page.locator("table.open tbody tr")
        needed = [(f"{pair.upper} and {pair.lower}", str(pair.games_left)) for pair in found.open]
        assert (
            needed
            and [
                (row.locator("th").text_content(), row.locator("data").last.get_attribute("value"))
                for row in undecided.all()
            ]
            == needed
        )
        cells = sheet.page.evaluate(
            "[...document.querySelectorAll('.cross tbody tr')].map((row) => [...row.querySelectorAll('td')].map("
            "(cell) => [...cell.querySelectorAll('data')].map((number) => Number(number.value))))"
        )
        for i, row in enumerate(order):
            for j, column in enumerate(order):
                score = results.between(row, column)
                assert cells[i][j] == ([] if i == j else [score.points, score.games])
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert sheet.complaints == []


def test_a_tournament_that_goes_on_is_followed(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path, seconds=0.02)
    (tmp_path / "runs").mkdir()
    process = start(
        [*ARENA, "tournament", "cup.yaml", "--sample", "--episodes", "500", "--run-dir", "runs/cup"], tmp_path
    )
    folder = RunFolder(tmp_path / "runs" / "cup")
    wait_for(lambda: folder.plan.exists() and folder.episodes.exists())
    with board(tmp_path / "runs") as served, opened(browser, served.address("/run/cup")) as sheet:
        sheet.page.evaluate("window.same = true")
        said = re.compile("^(No whole batch has been played yet|Every pair meets first|[0-9]+ pairs? of neighbors)")
        expect(sheet.page.locator("#tournament .lead")).to_have_text(said)
        games = sheet.page.locator("data[data-path='standings.games']").first
        expect(sheet.page.locator("#tournament .state")).to_have_text("finished")
        assert finish(process).code == 0
        played = read_results.read(folder).results.games
        expect(games).to_have_attribute("value", str(played))
        assert sheet.page.evaluate("window.same"), "the page was not loaded again"
        assert sheet.complaints == []


def test_other_runs_have_no_such_sections(browser: Browser, tmp_path: Path) -> None:
    write_league(tmp_path / "league", League(policies=2, episodes=20, rounds=1))
    with board(tmp_path) as served, opened(browser, served.address("/run/league")) as sheet:
        expect(sheet.page.locator("#standings .standings")).to_be_visible()
        expect(sheet.page.locator("#tournament")).to_be_hidden()
        expect(sheet.page.get_by_role("link", name="Tournament", exact=True)).to_be_hidden()
