"""Watching and playing in `arena board`, in a real Chromium: the server is a process, and so is every game."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

import readme
from arena.cli.board_games import watched
from arena.cli.board_games.watched import WatchedEpisode
from arena.cli.main import main
from arena.cli.play.human import Advisor
from arena.records.folder import RunFolder, match_path
from arena.replay.verify import events_of, frames
from browser import PHONE, Browser, opened
from in_process import one_match, train
from league_folders import League, write_league
from run_cli import PATIENCE, wait_for

TOUCHDOWN = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 80}}
LEARNER = {"algorithm": "ppo", "options": {"n_steps": 100, "minibatch_size": 100, "n_epochs": 1}}
UNITS = {**LEARNER, "options": {**LEARNER["options"], "transformer": {"d_model": 8, "layers": 1}}}
RANDOM = {"algorithm": "random"}
RATED = 180_000  # milliseconds: ratings take a share of a core, which other tests may need


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("board") / "runs"
    home.mkdir()
    more = {"seed": 1, "checkpoint_every": 200, "record": "replays"}
    skirmish = {"make": "skirmish", "kwargs": {"width": 8, "height": 6, "team_size": 2, "health": 1, "max_steps": 30}}
    box = {"make": "touchdown", "kwargs": {**TOUCHDOWN["kwargs"], "blue_actions": "continuous", "max_steps": 4}}
    tictactoe = {"make": "pettingzoo:classic.tictactoe_v3"}
    train(one_match(TOUCHDOWN, {"blue": LEARNER, "red": RANDOM}, ticks=400, **more), home / "touchdown")
    train(one_match(skirmish, {"blue": UNITS, "red": RANDOM}, ticks=100, seed=1), home / "skirmish")
    train(one_match(box, {"blue": RANDOM, "red": LEARNER}, ticks=100, seed=1), home / "box")
    train(one_match(tictactoe, {"blue": LEARNER, "red": RANDOM}, ticks=200, **more), home / "tictactoe")
    return home


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a board, with its key, and its process id; it has ended at the end."""
    command = [sys.executable, "-m", "arena", "board", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[0], server.pid
        finally:
            server.terminate()
            assert server.wait(PATIENCE) is not None


@pytest.fixture(scope="module")
def board(runs: Path) -> Iterator[tuple[str, int]]:
    with served(runs) as found:
        yield found


@pytest.fixture
def go(browser: Browser, board: tuple[str, int]) -> Iterator[Callable[..., Page]]:
    """Opens a page of the board, and allows the code of its folder; at the end the console has no complaints."""
    address, _ = board
    with opened(browser, address) as sheet:

        def go(path: str) -> Page:
            sheet.page.goto(home_of(address) + path)
            allow = sheet.page.get_by_role("button", name="Run the code of this folder")
            if allow.is_visible():
                allow.click()
            return sheet.page

        yield go
        assert sheet.complaints == []


def home_of(address: str) -> str:
    return f"http://{urlsplit(address).netloc}"


def games_of(server: int) -> list[int]:
    """The processes of games of a server."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(server)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "board_games" in line]


def pixels(page: Page) -> np.ndarray:
    """What the canvas shows, uint8 [height, width, 3]."""
    found = page.evaluate(
        "(() => { const c = document.getElementById('picture'), own = new OffscreenCanvas(c.width, c.height);"
        "const copy = own.getContext('2d', { willReadFrequently: true }); copy.drawImage(c, 0, 0);"
        "return [c.height, c.width, [...copy.getImageData(0, 0, c.width, c.height).data]]; })()"
    )
    height, width, data = found
    return np.array(data, np.uint8).reshape(height, width, 4)[..., :3]


def begin(page: Page, **chosen: str) -> None:
    for name, value in chosen.items():
        page.select_option(f"[name={name.replace('_', '-')}]", value)
    page.get_by_role("button", name="Begin").click()


def play_on(page: Page, move: Callable[[Page], None], *, most: int = 100) -> None:
    """Makes moves to the end of the game."""
    for _ in range(most):
        page.wait_for_selector("#moves button:enabled, #result:not([hidden])")
        if page.locator("#result").is_visible():
            return
        before = page.locator("#status").text_content()
        move(page)
        for _ in range(400):
            if page.locator("#result").is_visible() or page.locator("#status").text_content() != before:
                break
            page.wait_for_timeout(10)
    raise AssertionError("the game does not end")


def test_third_frame_of_a_replay_is_the_games_own_picture(go: Callable[..., Page], runs: Path) -> None:
    own = list(frames(runs / "touchdown", 0, 1))
    page = go("/watch/touchdown?episode=0/0/0/1&tick=3")
    page.wait_for_selector("#picture[data-tick='3']")
    np.testing.assert_array_equal(pixels(page), own[3])
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#picture[data-tick='2']")
    np.testing.assert_array_equal(pixels(page), own[2])
    page.keyboard.press("End")
    page.wait_for_selector(f"#picture[data-tick='{len(own) - 1}']")
    np.testing.assert_array_equal(pixels(page), own[-1])
    assert page.url.endswith(f"tick={len(own) - 1}")  # a moment has an address
    expect(page.locator("#where")).to_contain_text(re.compile("blue (won|lost|drew)"))
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    page.wait_for_timeout(300)
    wait_for(lambda: int(page.locator("#picture").get_attribute("data-tick") or 0) >= 5)


def test_watch_shows_actions_rewards_and_what_policies_think(go: Callable[..., Page], runs: Path) -> None:
    page = go("/watch/tictactoe?episode=0/0/0/0&tick=1")
    page.wait_for_selector("#picture[data-tick='1']")
    page.check("#advice")
    bars = page.locator(".thought li")
    expect(bars).not_to_have_count(0)
    assert bars.count() in (6, 7)  # of eight free squares, and that which was taken
    expect(page.locator("#thoughts h3")).to_have_count(1)  # it is one player's turn
    first = page.locator("#entities tbody tr").nth(0).locator("td").nth(0)
    assert first.text_content() in {
        f"{row} {column}" for row in ("top", "center", "bottom") for column in ("left", "middle", "right")
    }


def test_advice_plays_again_from_the_start_for_a_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says: list[dict[str, Any]] = []
    pipe = SimpleNamespace(receive=lambda: None, say=lambda said, picture=None: says.append(said))
    begun = []
    monkeypatch.setattr(watched, "game_pipe", lambda: pipe)
    monkeypatch.setattr(watched, "events_of", lambda *a, **k: begun.append(1) or events_of(*a, **k))
    seats = {"record": "replays", "match": {"seats": ["blue", "blue"]}}
    run = train(one_match(TOUCHDOWN, {"blue": LEARNER}, ticks=100, seed=1, **seats), tmp_path / "run")
    episode = WatchedEpisode(str(run.path), (0, 0, 0, 0))

    def ask(tick: int, *, advice: int) -> dict[str, Any]:
        episode._play({"from": tick, "to": tick, "advice": advice})
        assert says[-1]["tick"] == tick
        return says[-1]["entities"][0].get("advice", {})

    ask(1, advice=0)
    assert len(ask(2, advice=1)["opinion"].shares[0]) == 5 and len(begun) == 1
    ask(3, advice=0)
    for one in episode._advisors.values():
        one.remembers = True
    assert "opinion" in ask(4, advice=1) and len(begun) == 2
    monkeypatch.setattr(Advisor, "advice", lambda *a: {}["lost"])
    assert "is not asked any more: KeyError: 'lost' (" in ask(4, advice=1)["why"]


@pytest.mark.parametrize("seats", [["blue", "blue", "red", "red"], [["blue", "blue"], ["red", "red"]]])
@pytest.mark.parametrize("algorithm", ["mappo", "maddpg"])
def test_advice_of_a_team_is_what_each_of_its_entities_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, seats: list[Any]
) -> None:
    off_policy = {"learning_starts": 20, "batch_size": 8, "buffer_size": 200}
    options = off_policy if algorithm == "maddpg" else {"n_steps": 40, "minibatch_size": 40, "learning_rate": 0.1}
    policies = {"blue": {"algorithm": algorithm, "options": options}, "red": RANDOM}
    game = {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 20, "blue_actions": "continuous"}}
    run = train(one_match(game, policies, ticks=80, seats=seats, seed=1, record="replays"), tmp_path / "run")
    assert main(["evaluate", str(run.path), "--episodes", "1"]) == 0  # with the best actions
    says: list[dict[str, Any]] = []
    pipe = SimpleNamespace(receive=lambda: None, say=lambda said, picture=None: says.append(said))
    monkeypatch.setattr(watched, "game_pipe", lambda: pipe)
    WatchedEpisode(str(run.path / "evaluations" / "last"), (0, 0, 0, 0))._play({"from": 0, "to": 20, "advice": 1})
    frames = [said["entities"] for said in says if said["kind"] == "frame"]
    asked = np.array([[one["advice"]["opinion"].choices for one in frame[:2]] for frame in frames[:-1]])
    np.testing.assert_allclose(asked, [[one["choices"] for one in frame[:2]] for frame in frames[1:]], atol=1e-6)
    assert len(asked) > 4 and np.ptp(asked, axis=1).any()


def test_table_of_episodes_is_filtered(go: Callable[..., Page], runs: Path) -> None:
    lines = [json.loads(line) for line in (runs / "tictactoe" / "episodes.jsonl").read_text().splitlines()]
    go("/watch/tictactoe?episode=0/0/0/0")  # its code may be run
    page = go("/watch/tictactoe")
    expect(page.locator("#count")).to_have_text(f"{len(lines)} episodes")
    page.select_option("[name=policy]", "blue")
    page.select_option("[name=outcome]", "win")
    won = [line for line in lines if line["seats"][0]["outcome"] == "win"]
    page.fill("[name=longest]", "7")
    short = [line for line in won if line["length"] <= 7]
    assert 0 < len(short) < len(won)
    expect(page.locator("#count")).to_have_text(re.compile(rf"^{len(short)} episodes?$"))
    newest = short[-1]
    place = f"0/0/{newest['lane']}/{newest['episode']}"
    first = page.locator("#rows tbody tr").nth(0).locator("a").nth(0)
    expect(first).to_have_text(place)
    first.click()
    page.wait_for_selector("#picture[data-tick]")
    page.reload()  # while it plays: the address has the episode and the filters
    page.wait_for_selector("#picture[data-tick]")
    expect(first).to_have_text(place)
    page.go_back()
    expect(page.locator("#player")).to_be_hidden()
    expect(page.locator("[name=outcome]")).to_have_value("win")
    page.get_by_role("button", name="clear filters").click()
    expect(page.locator("#count")).to_have_text(f"{len(lines)} episodes")
    page.fill("[name=longest]", "1")
    expect(page.locator("#count")).to_have_text("No episode fits.")


def test_newest_game_of_a_match_is_one_that_has_ended(go: Callable[..., Page], runs: Path) -> None:
    lines = [json.loads(line) for line in (runs / "tictactoe" / "episodes.jsonl").read_text().splitlines()]
    whole = [line for line in lines if not line.get("cut")]
    go("/watch/tictactoe?episode=0/0/0/0")  # its code may be run
    page = go("/watch/tictactoe")
    page.get_by_role("button", name="newest of match 0").click()
    page.wait_for_selector("#picture[data-tick]")
    assert f"0/0/{whole[-1]['lane']}/{whole[-1]['episode']}" in unquote(page.url)
    page.route("**/watch-rows/*match=0*", lambda route: route.fulfill(json={"rows": [lines[0] | {"cut": True}]}))
    page.get_by_role("button", name="newest of match 0").click()
    expect(page.locator("#count")).to_have_text("No game of match 0 has ended yet.")


def test_numbers_have_minus_signs_and_no_rounding_errors(go: Callable[..., Page]) -> None:
    page = go("/watch/tictactoe")
    values = [-1.735e-18, -1.5e-14, -0.12345, 0, 1e-15, None]
    shown = page.evaluate("(values) => import('/static/games.js').then(({ number }) => values.map(number))", values)
    assert shown == ["0", "\u22121.5e\u221214", "\u22120.1235", "0", "1e\u221215", "\u2013"]


def test_a_closed_page_ends_its_game(browser: Browser, board: tuple[str, int], go: Callable[..., Page]) -> None:
    page = go("/watch/touchdown?episode=0/0/0/1&tick=3")
    page.wait_for_selector("#picture[data-tick='3']")
    assert len(games_of(board[1])) == 1
    page.goto("about:blank")
    wait_for(lambda: games_of(board[1]) == [])
    page.go_back()
    page.wait_for_selector("#picture[data-tick='3']")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")  # the browser keeps it
    wait_for(lambda: games_of(board[1]) == [])


def test_a_click_on_a_cell_of_the_picture_is_a_move(go: Callable[..., Page]) -> None:
    page = go("/play/tictactoe")
    begin(page, seat_0="person", seat_1="person")
    expect(page.locator("#status")).to_contain_text("Waiting for other people")
    other = page.context.new_page()
    other.goto(page.locator("#invite a").get_attribute("href") or "")
    expect(page.locator("#title")).to_contain_text("you are player_1 (X)")
    expect(other.locator("#title")).to_contain_text("you are player_2 (O)")
    expect(page.locator("#status")).to_contain_text("Your turn")
    expect(page.locator("#picture.cells")).to_have_count(1)
    box = page.locator("#picture").bounding_box()
    assert box is not None
    corner = {"x": box["width"] * 5 / 6, "y": box["height"] / 6}
    page.locator("#picture").click(position=corner)
    expect(other.locator("#status")).to_contain_text("Your turn")
    expect(other.locator("#picture")).to_have_attribute("data-tick", "1")
    expect(other.locator("#moves button:disabled")).to_contain_text(["top right"])
    drawn = pixels(other)
    half, third = drawn.shape[0] // 3, drawn.shape[1] // 3
    cells = [
        [drawn[y * half + 40 : (y + 1) * half - 40, x * third + 40 : (x + 1) * third - 40] for x in range(3)]
        for y in range(3)
    ]
    assert [[bool(np.ptp(cell.reshape(-1, 3), axis=0).max() > 100) for cell in row] for row in cells] == [
        [False, False, True],
        [False] * 3,
        [False] * 3,
    ]
    other.locator("#picture").click(position=corner)
    expect(other.locator("#problem")).to_have_text("top right is not a choice now.")


def test_a_game_of_tictactoe_is_played_and_rated(
    go: Callable[..., Page], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = go("/play/tictactoe")
    page.check("[name=rated]")
    begin(page, seat_0="person", seat_1="blue", tick_1="200", advice="blue")
    page.wait_for_selector("#moves button")
    labels = [f"{row} {column}" for row in ("top", "center", "bottom") for column in ("left", "middle", "right")]
    buttons = page.locator("#moves button")
    assert [next(one for one in labels if text.startswith(one)) for text in buttons.all_text_contents()] == labels
    expect(page.locator("#thoughts li")).to_have_count(6)
    expect(page.locator("#thoughts h3")).to_have_text("Advice of blue")
    expect(page.locator("header .from")).to_contain_text("rated")
    buttons.first.click()
    expect(page.locator("#status")).to_contain_text("at tick 2")
    expect(buttons).to_have_count(9)  # in their places
    expect(buttons.first).to_be_disabled()
    page.keyboard.press("0")
    expect(page.locator("#problem")).to_have_text("top left is not a choice now.")
    play_on(page, lambda page: page.locator("#moves button:enabled").last.click())
    expect(page.locator("#result")).to_contain_text("counts for the ratings")
    expect(page.locator("#review tbody tr")).not_to_have_count(0)
    records = RunFolder(runs / "tictactoe" / "evaluations" / "human-0001")
    (episode,) = [json.loads(line) for line in records.episodes.read_text().splitlines()]
    (line,) = [json.loads(line) for line in (runs / "tictactoe" / "human_games.jsonl").read_text().splitlines()]
    assert line == {
        "tick": 200,
        "first": ["human"],
        "second": ["blue"],
        "outcome": episode["seats"][0]["outcome"],
        "folder": "human-0001",
    }
    assert main(["replay", str(records.path), "--verify"]) == 0  # without a page
    capsys.readouterr()
    assert main(["standings", str(runs / "tictactoe"), "--json"]) == 0
    players = {row["player"]: row for table in [json.loads(capsys.readouterr().out)["players"]] for row in table}
    assert players.keys() == {"blue", "red", "human"}


def test_touchdown_is_played_with_keys(go: Callable[..., Page]) -> None:
    page = go("/play/touchdown")
    expect(page.locator("[name=seat-1]")).to_have_value("person")  # blue, which learns, is left
    options = page.locator("[name=advice] option")
    expect(options).to_have_text(["no policy", "blue, of seat 0"])
    expect(options.last).to_be_disabled()  # of another seat
    begin(page, seat_0="person", seat_1="red")
    page.wait_for_selector("#moves button")
    page.reload()
    expect(page.locator("#status")).to_contain_text("Your turn at tick 0")
    play_on(page, lambda page: page.keyboard.press("ArrowDown"), most=90)
    expect(page.locator("#result h2")).to_have_text("You have won")
    expect(page.locator("#review")).to_be_empty()  # red plays at random
    address = page.url
    page.goto("about:blank")
    page.go_back()
    expect(page.locator("#result h2")).to_have_text("You have won")
    page = page.context.new_page()
    page.goto(address)
    expect(page.locator("#result h2")).to_have_text("You have won")


def test_path_of_the_tutorial_leads_to_the_standings(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "duel.yaml"
    file.write_text(readme.PAGES["docs/tutorial.md"].files()[file.name].replace("ticks: 4000", "ticks: 500"))
    assert main(["train", str(file), "--ranks", "1", "--run-dir", str(tmp_path / "runs" / "duel")]) == 0
    with served(tmp_path / "runs") as (address, _), opened(browser, address) as sheet:
        page = sheet.page
        page.get_by_role("link", name="duel", exact=True).click()
        expect(page.locator("#standings")).to_contain_text("walker", timeout=RATED)
        page.get_by_role("link", name="Watch", exact=True).click()
        page.locator("#rows tbody a").first.click()
        page.get_by_role("button", name="Run the code of this folder").click()
        page.wait_for_selector("#picture[data-tick]")
        page.get_by_role("link", name="Play", exact=True).last.click()
        page.check("[name=rated]")
        page.fill("[name=seed]", "1")
        begin(page)
        page.wait_for_selector("#moves button")
        page.keyboard.press("7")
        expect(page.locator("#problem")).to_have_text("7 is not a choice now.")
        expect(page.locator("#title")).to_contain_text("touchdown: you are blue_0")
        keys = cycle("sssd")
        play_on(page, lambda page: page.keyboard.press(next(keys)), most=1500)
        page.get_by_role("link", name="Standings").click()
        expect(page.locator("#standings tbody").first).to_contain_text("human", timeout=RATED)
        page.get_by_role("link", name="Watch", exact=True).click()
        page.get_by_role("link", name="Games of people").click()
        expect(page.locator("#evaluations")).to_contain_text("human won")
        page.locator("#evaluations").get_by_role("link", name="watch").click()
        page.wait_for_selector("#picture[data-tick]")
        expect(page.locator("#title")).to_contain_text("human")
        expect(page.get_by_role("link", name="Play", exact=True)).to_have_count(0)
        page.get_by_role("link", name="its run").click()
        expect(page.locator("#standings tbody").first).to_contain_text("human", timeout=RATED)
        assert sheet.complaints == []


def test_skirmish_is_played_with_clicks(go: Callable[..., Page]) -> None:
    page = go("/play/skirmish")
    begin(page, seat_0="person", seat_1="red")

    def move(page: Page) -> None:
        while page.locator("#send").is_disabled():
            if page.locator(".map .target").count():
                page.locator(".map .target").first.click()
            else:
                page.locator("#moves .decision button").last.click()
        page.locator("#send").click()

    page.wait_for_selector(".map button")
    expect(page.locator(".map button")).to_have_count(4)
    page.locator(".map .open").nth(1).click()
    expect(page.locator(".map .picked")).to_have_text("1")
    play_on(page, move)
    expect(page.locator("#result .choices")).to_have_text("Play again")  # nothing is recorded


def test_a_box_game_is_played_with_sliders(go: Callable[..., Page], runs: Path) -> None:
    page = go("/play/box")
    begin(page)

    def move(page: Page) -> None:
        field = page.locator("#moves input[type=number]").nth(1)
        field.fill("-0.5")
        field.press("Enter")

    page.wait_for_selector("#moves input[type=range]")
    field = page.locator("#moves input[type=number]").nth(0)
    field.fill("2")
    page.locator("#send").click()
    expect(page.locator("#problem")).to_contain_text("2 is not allowed here")  # told, and nothing is lost
    field.fill("0")
    page.locator("#send").click()
    expect(page.locator("#status")).to_contain_text("at tick 1")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#status")).to_contain_text("at tick 2")
    play_on(page, move)
    (line,) = (runs / "box" / "evaluations" / "human-0001" / "episodes.jsonl").read_text().splitlines()
    assert json.loads(line)["length"] == 4


def test_two_tabs_are_two_people(browser: Browser, board: tuple[str, int], go: Callable[..., Page]) -> None:
    page = go("/play/tictactoe")
    page.check("[name=rated]")
    begin(page, seat_0="person", seat_1="person")
    assert page.evaluate("document.querySelector('[name=rated]').validationMessage") == "A rated game has one person."
    page.uncheck("[name=rated]")
    begin(page)
    expect(page.locator("#status")).to_contain_text("Waiting for other people")
    address = page.locator("#invite a").get_attribute("href")
    assert address is not None
    context = page.context
    taken = context.new_page()
    taken.goto(page.url)
    expect(taken.locator("#problem")).to_have_text("Seat 0 is taken; still free: seat 1.")
    other = taken
    other.goto(address)
    expect(page.locator("#status")).to_contain_text("Your turn")
    page.locator("#moves button").nth(0).click()
    expect(other.locator("#status")).to_contain_text("Your turn")
    expect(other.locator("#moves button:enabled")).to_have_count(8)
    assert len(games_of(board[1])) == 1
    other.close()
    expect(page.locator("#problem")).to_contain_text("The player of seat 1 has closed the page")
    wait_for(lambda: games_of(board[1]) == [])


def test_people_who_act_at_once_are_asked_at_once(go: Callable[..., Page]) -> None:
    page = go("/play/touchdown")
    begin(page, seat_0="person", seat_1="person")
    other = page.context.new_page()
    other.goto(page.locator("#invite a").get_attribute("href") or "")
    for each in (page, other):
        expect(each.locator("#status")).to_contain_text("Your turn at tick 0")
    other.keyboard.press("w")
    expect(other.locator("#status")).to_contain_text("Waiting for the others")
    page.keyboard.press("s")
    for each in (page, other):
        expect(each.locator("#status")).to_contain_text("Your turn at tick 1")


LEAVES = """
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Leaves(ParallelEnv):
    metadata = {"name": "leaves", "render_modes": []}
    possible_agents = ["a", "b"]
    render_mode = None

    def observation_space(self, agent):
        return Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        return self._each(np.zeros(1, np.float32)), self._each({})

    def step(self, actions):
        found = self._each(np.zeros(1, np.float32)), self._each(0.0)
        ended, infos = {agent: agent == "a" or "a" not in self.agents for agent in self.agents}, self._each({})
        late = self._each(False)
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return *found, ended, late, infos

    def _each(self, value):
        return dict.fromkeys(self.agents, value)
"""


def test_a_person_whose_entities_have_left_is_told(go: Callable[..., Page], runs: Path) -> None:
    (runs / "leaving_game.py").write_text(LEAVES)
    data = one_match({"make": "leaving_game:Leaves"}, {"blue": RANDOM, "red": RANDOM}, ticks=10)
    (runs / "leaving.yaml").write_text(json.dumps(data))
    page = go("/play/?config=leaving.yaml")
    page.get_by_role("button", name="Run the code of this configuration").click()
    begin(page, seat_0="person", seat_1="person")
    other = page.context.new_page()
    other.goto(page.locator("#invite a").get_attribute("href") or "")
    for each in (page, other):
        each.locator("#moves button").first.click()
    expect(other.locator("#status")).to_contain_text("Your turn at tick 1")
    expect(page.locator("#status")).to_contain_text("Your part is over, and with it the pictures")
    other.locator("#moves button:enabled").first.click()
    expect(page.locator("#result")).to_contain_text("It took 2 ticks")
    (runs / "leaving.yaml").unlink()


def test_players_of_skirmish_see_it_from_their_own_sides(go: Callable[..., Page]) -> None:
    page = go("/play/skirmish")
    begin(page, seat_0="person", seat_1="person")
    other = page.context.new_page()
    other.goto(page.locator("#invite a").get_attribute("href") or "")
    sides = []
    for each in (page, other):
        each.wait_for_selector("#picture[data-tick='0']")
        left = pixels(each)[:, :240]
        sides.append([bool((left == color).all(-1).any()) for color in ((31, 119, 180), (214, 39, 40))])
    assert sides == [[True, False], [False, True]]


def test_an_unknown_policy_is_told(board: tuple[str, int], go: Callable[..., Page]) -> None:
    page = go("/play/touchdown")
    page.evaluate("document.querySelector('[name=seat-1] option[value=best]').value = 'green'")
    begin(page, seat_0="person", seat_1="green")
    expect(page.locator("#problem")).to_contain_text("'green' is no policy and no algorithm")


def test_a_game_that_is_missing_is_told(go: Callable[..., Page], runs: Path) -> None:
    folder = runs / "missing"
    shutil.copytree(runs / "touchdown", folder)
    for checksums in [*folder.glob("**/checksums")]:
        shutil.rmtree(checksums)
    for path in (folder / "config.yaml", folder / "replays" / "round-0000" / "match-0000" / "manifest.json"):
        text = path.read_text()
        path.write_text(re.sub(r'("?make"?: )"?touchdown"?', r'\1"not_there:Game"', text))
    page = go("/watch/missing?episode=0/0/0/1")
    expect(page.locator("#problem")).to_contain_text("not_there")
    assert page.goto(page.url.partition("/watch/")[0] + "/run/missing").status == 200  # type: ignore[union-attr]


def test_code_is_not_run_before_it_is_allowed(runs: Path) -> None:
    with served(runs) as (address, server):
        with httpx.Client(follow_redirects=True) as client:
            assert client.get(address).status_code == 200
            home = home_of(address)
            origin = {"origin": home}
            asked = client.post(f"{home}/watch-stream/touchdown", data={"episode": "0/0/0/1"}, headers=origin)
            assert asked.status_code == 403
            asked = client.post(f"{home}/play-begin/touchdown", data={"seat-0": "person"}, headers=origin)
            assert asked.status_code == 403
            (runs / "game.yaml").write_text((runs / "touchdown" / "config.yaml").read_text())
            form = {"config": "game.yaml", "back": "/play/?config=game.yaml"}
            allowed = client.post(f"{home}/trust/", data=form, headers=origin)
            (runs / "game.yaml").unlink()
            assert "Begin" in allowed.text  # the configuration may be played; the runs beside it are still asked for
            asked = client.post(f"{home}/watch-stream/touchdown", data={"episode": "0/0/0/1"}, headers=origin)
            assert asked.status_code == 403
        assert games_of(server) == []


def test_odd_requests_are_refused_in_words(board: tuple[str, int], go: Callable[..., Page]) -> None:
    go("/play/touchdown")  # its code may be run
    home = home_of(board[0])
    with httpx.Client(follow_redirects=True, headers={"origin": home}) as client:
        client.get(board[0])
        assert client.get(f"{home}/watch-rows/touchdown?page=inf").json()["count"] == 6  # the first page
        for address, form, status in (
            ("watch-rows/touchdown?least=x", None, 400),
            ("play-begin/touchdown", {"seat-\u00b2": "person"}, 422),
            ("play-begin/touchdown", {"seat-0": "person", "seat-1": "policies.random:Random"}, 422),
            ("play-begin/touchdown", {"seat-0": "person", "seat-1": "person", "rated": "on"}, 422),
            ("watch-stream/touchdown", {"episode": "0/0/0/\u00b2"}, 400),
            ("play-begin/touchdown", {"seat-0": "person", "seat-1": "b\0"}, 400),
            ("watch-wish/nothing", {"from": "1"}, 404),
            ("play-join/nothing", {"seat": "0"}, 404),
        ):
            url = f"{home}/{address}"
            answer = client.get(url) if form is None else client.post(url, data=form)
            assert (answer.status_code, bool(answer.text)) == (status, True), address
        for match in ("00000000009", "0" * 5000, "7"):
            assert client.get(f"{home}/play/touchdown?match={match}").status_code == 200
        table = client.post(f"{home}/play-begin/touchdown", data={"seat-0": "person", "seat-1": "person"}).url.path
        number = table.rpartition("/")[2]
        with client.stream("POST", f"{home}/play-join/{number}", data={"seat": "0"}) as page:
            told = page.iter_lines()
            token = json.loads(next(told))["token"]
            for choices in (f"[1{400 * '0'}]", "[[1]]", "{", "[" * 20_000):
                form = {"token": token, "turn": "1", "choices": choices}
                assert client.post(f"{home}/play-answer/{number}", data=form).status_code == 400


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_server_that_ends_leaves_no_game(browser: Browser, runs: Path, number: signal.Signals) -> None:
    with served(runs) as (address, server), opened(browser, address) as sheet:
        sheet.page.goto(f"{home_of(address)}/watch/touchdown?episode=0/0/0/1&tick=3")
        sheet.page.get_by_role("button", name="Run the code of this folder").click()
        sheet.page.wait_for_selector("#picture[data-tick='3']")
        (game,) = games_of(server)
        os.kill(server, number)
        expect(sheet.page.locator("#problem")).to_contain_text("The server does not answer")
        wait_for(lambda: not Path(f"/proc/{game}").exists())


def test_pages_fit_a_phone(browser: Browser, board: tuple[str, int]) -> None:
    with opened(browser, board[0], size=PHONE, scheme="dark") as sheet:
        for path in ("/watch/tictactoe", "/play/tictactoe", "/play/"):
            sheet.page.goto(home_of(board[0]) + path)
            assert sheet.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert sheet.complaints == []


def test_names_of_episodes_are_text(browser: Browser, tmp_path: Path) -> None:
    hit = "window.hit=1"
    names = [f"<img src=x onerror={hit}>", f'"><svg onload={hit}>', f"</script><script>{hit}</script>", "{{7*7}}<!--"]
    folder = write_league(tmp_path / "runs" / names[0].replace("/", ""), League(policies=2, episodes=4, rounds=1))
    home = match_path(folder.replays, 0, round=0)
    home.mkdir(parents=True)
    (home / "manifest.json").write_text("{}")
    line = json.loads(folder.episodes.read_text().splitlines()[0]) | {"round": 0, "match": 0, "env": names[0]}
    with folder.episodes.open("a") as file:
        for number, name in enumerate(names):
            seat = line["seats"][0] | {"policy": f"p0@{name}"}
            file.write(json.dumps(line | {"episode": 900 + number, "seats": [seat]}) + "\n")
    with served(tmp_path / "runs") as (address, _), opened(browser, address) as sheet:
        sheet.page.goto(f"{home_of(address)}/watch/{quote(folder.path.name)}")
        for name in names:
            expect(sheet.page.locator("#rows tbody").get_by_text(name)).to_have_count(1)
            assert sheet.page.locator("#filter [name=policy] option").get_by_text(name).count() == 1
        sheet.page.select_option("[name=policy]", f"p0@{names[2]}")
        expect(sheet.page.locator("#rows tbody tr")).to_have_count(1)
        sheet.page.goto(f"{home_of(address)}/play/{quote(folder.path.name)}")
        expect(sheet.page.locator("h1")).to_have_text("Play")
        assert sheet.page.evaluate("window.hit") is None
        assert sheet.complaints == []
