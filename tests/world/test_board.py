"""The board over HTTP: who may ask, what it lists, and what travels."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from arena.board import watch
from arena.board.board import board_at
from arena.board.live import SHARE, Page, State, difference, followed
from arena.board.runs import rows_of
from arena.cli.main import main
from arena.errors import ConfigError
from arena.experiment.folder import ExperimentFolder
from arena.records.folder import MANIFEST, match_path
from arena.records.lock import FAILED, RunLock
from arena.report.read_run import RunReader, read_run
from arena.report.sections import page_data
from boards import Served, board
from experiment_folders import RUN, write_experiment
from league_folders import League, write_league
from run_cli import ARENA, start

LEAGUE = League(policies=2, episodes=40, rounds=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    write_league(home / "one", LEAGUE)
    write_league(home / "deep" / "two", LEAGUE)
    return home


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    """A browser that was given the key."""
    with httpx.Client(base_url=served.home, timeout=600) as client:
        assert client.get(served.address()).status_code == 303
        yield client


def test_the_key_becomes_a_cookie_and_leaves_the_address(served: Served) -> None:
    with httpx.Client(base_url=served.home) as client:
        answer = client.get(served.address("/run/one?a=b&c=d"))
        assert (answer.status_code, answer.headers["location"]) == (303, "/run/one?a=b&c=d")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie
        assert client.get("/run/one").status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/run/one", "/static/board.js", "/runs/list", "/run-events/one", "/?key=", "/?key=x"]
)
def test_nothing_is_shown_without_the_key(served: Served, path: str) -> None:
    answer = httpx.get(served.home + path, cookies={"arena-board": served.key})
    assert answer.status_code == 403
    assert "one" not in answer.text.split()


def test_a_foreign_name_of_this_machine_is_refused(client: httpx.Client) -> None:
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example"):
        assert client.get("/", headers={"host": host}).status_code == 403
    assert client.get("/", headers={"host": "localhost"}).status_code == 200


def test_only_pages_of_this_server_may_post(client: httpx.Client, served: Served) -> None:
    for origin in ({}, {"origin": "null"}, {"origin": "http://evil.example"}, {"origin": served.home + "1"}):
        assert client.post("/trust/one", headers=origin).status_code == 403
    sent = client.post("/trust/one", headers={"origin": served.home}, data={"back": "//evil.example/"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/run/one")
    assert client.get("/trust/one").status_code == 405


def test_every_answer_forbids_foreign_and_inline_programs(client: httpx.Client, served: Served) -> None:
    answers = [client.get(path) for path in ("/", "/run/one", "/run/none", "/static/report.js", "/compare")]
    answers.append(httpx.get(served.home))
    for answer in answers:
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert " style=" not in answer.text or "javascript" in answer.headers["content-type"]


@pytest.mark.parametrize("path", ["%2e%2e%2f", "%2e%2e%2f%2e%2e", "/etc", "one%2f..%2f..", "one%00", "link", 300 * "x"])
def test_only_folders_below_the_root_are_shown(client: httpx.Client, runs: Path, path: str) -> None:
    if path == "link" and not (runs / "link").exists():
        (runs / "link").symlink_to(Path(__file__).parent)
    assert client.get(f"/run/{path}").status_code in (404, 422)
    assert client.get("/static/..%2fboard.py").status_code == 404


def test_the_list_says_what_a_run_does(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "runs" / "one", LEAGUE)
    result = {"ticks": 1500, "time_total_s": 10.0, "policy_reward_mean": {"p0": 0.5, "p1": -0.5}, "done": False}
    later = result | {"ticks": 1600, "time_total_s": 20.0, "policy_reward_mean": {"p0": 0.25, "p1": None}}
    folder.results.write_text("".join(json.dumps(line) + "\n" for line in (result, later)))
    [row] = rows_of(board_at(tmp_path / "runs"))
    assert (row.path, row.kind, row.state, row.done, row.planned) == ("one", "run", "finished", 2000, 2000)
    assert (row.rate, row.best, row.value, row.measure) == (10.0, "p0", 0.25, "return")
    assert row.policies == ["p0", "p1"]  # by which it is found, too
    shutil.rmtree(folder.boundaries)
    folder.boundaries.mkdir()
    [row] = rows_of(board_at(tmp_path / "runs"))
    assert (row.state, row.done) == ("ended early", 1600)
    with RunLock.take(folder.path):
        assert [row.state for row in rows_of(board_at(tmp_path / "runs"))] == ["under way"]
    for text, state in ((FAILED, "failed"), ("{}", "killed")):
        (folder.path / "lock").write_text(text)
        assert [row.state for row in rows_of(board_at(tmp_path / "runs"))] == [state]
    folder.results.write_text("no JSON\n")
    assert [row.state for row in rows_of(board_at(tmp_path / "runs"))] == ["damaged"]


def test_the_list_keeps_the_ratings_of_a_league_between_rounds(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "runs" / "one", LEAGUE)
    end_of_round = {"ticks": 10, "policy_reward_mean": {"p0": 0.5, "p1": -0.5}, "ratings": {"p0": -20.0, "p1": 20.0}}
    within = {"ticks": 20, "policy_reward_mean": {"p0": 0.7, "p1": -0.7}}
    folder.results.write_text("".join(json.dumps(line) + "\n" for line in (end_of_round, within)))
    [row] = rows_of(board_at(tmp_path / "runs"))
    assert (row.best, row.value, row.measure) == ("p1", 20.0, "Elo")


def test_the_list_finds_runs_and_experiments_in_folders(runs: Path, tmp_path: Path) -> None:
    assert [row.name for row in rows_of(board_at(runs))] == ["deep/two", "one"]
    assert [row.name for row in rows_of(board_at(runs / "one"))] == ["one"]
    assert rows_of(board_at(tmp_path)) == []


def test_the_list_leaves_out_names_that_are_no_text(runs: Path, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    for home in (tmp_path, Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))):
        shutil.copytree(runs / "one", home / "one")
    with board(tmp_path) as served, httpx.Client(base_url=served.home, follow_redirects=True) as client:
        client.get(served.address())
        assert [row["path"] for row in client.get("/runs/list").json()["rows"]] == ["one"]


def test_the_list_reads_long_results(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "one", LEAGUE)
    ratings = {f"p0@{tick}": 1000.0 - tick for tick in range(800)}
    line = {"ticks": 1500, "time_total_s": 10.0, "policy_reward_mean": {}, "ratings": ratings}
    later = line | {"ticks": 1600, "time_total_s": 20.0}
    folder.results.write_text("".join(json.dumps(one) + "\n" for one in (line, later)) + '{"ticks"')
    [row] = rows_of(board_at(tmp_path))
    assert (row.rate, row.best, row.value, row.policies) == (10.0, "p0@0", 1000.0, ["p0"])


def test_an_experiment_with_a_damaged_table_does_not_stop_the_list(tmp_path: Path) -> None:
    write_league(tmp_path / "one", LEAGUE)
    home = write_experiment(tmp_path / "two", {"name": "two", "run": RUN, "repeat": 2}, lambda *_: 0.0, results=1)
    table = ExperimentFolder(home).table
    assert [row.state for row in rows_of(board_at(tmp_path))] == ["finished", "ended early"]
    table.write_text("x" * 200_000)
    assert [row.state for row in rows_of(board_at(tmp_path))] == ["finished", "damaged"]


def test_a_run_is_read_on_as_if_it_were_read_whole(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=300, rounds=3))
    whole = folder.episodes.read_bytes()
    updates = folder.metrics.read_bytes()
    reader, shares = RunReader(folder.path), []
    for part in (0.3, 0.30001, 0.7, 1.0):
        folder.episodes.write_bytes(whole[: int(part * len(whole))])
        folder.metrics.write_bytes(updates[: int(part * len(updates))])
        reader.look()
    files = reader.look()
    expected = read_run(folder.path)
    assert page_data(files) == page_data(expected)
    slowly = RunReader(folder.path)
    while slowly.share < 1:
        files = slowly.look(most=9000)
        shares.append(slowly.share)
        assert files.unfinished == 0
    assert len(shares) > 3 and shares == sorted(shares)
    assert page_data(files) == page_data(expected)


def test_a_resumed_run_is_read_again(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", LEAGUE)
    reader = RunReader(folder.path)
    before = len(reader.look().episodes.tick)
    lines = folder.episodes.read_bytes().splitlines(keepends=True)
    folder.episodes.write_bytes(b"".join(lines[:-5]))
    assert len(reader.look().episodes.tick) == before - 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": [1, 2, 3], "b": "x"}, {"a": [1, 2, 3, 4], "c": None}),
        ({"a": [1, 2, 3, 3, 2, 1]}, {"a": [1, 2, 3, 4, 4, 3, 2, 1]}),
        ({"a": [{"x": [1], "y": {"z": 1}}, {"x": []}]}, {"a": [{"x": [1, 2], "y": {"z": 2}}, {"x": []}]}),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1}, {"x": 2}]}),
        ({"a": [1, 1, 1]}, {"a": [1]}),
        ({"a": []}, {"a": [1]}),
        ({}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 5}),
    ],
)
def test_a_difference_leads_from_old_to_new(old: Any, new: Any) -> None:
    assert patched(old, json.loads(json.dumps(difference(old, new)))) == new
    assert difference(new, new) is None


def patched(old: Any, change: Any) -> Any:
    """What `live.js` does."""
    if "=" in change:
        return change["="]
    if "~" in change:
        first, last, items = change["~"]
        return [*old[:first], *items, *old[len(old) - last :]]
    if isinstance(old, list):
        return [patched(one, change["&"][str(n)]) if str(n) in change["&"] else one for n, one in enumerate(old)]
    kept = {key: value for key, value in old.items() if key not in change["-"]}
    return kept | {key: patched(old.get(key), one) for key, one in change["&"].items()}


def test_only_new_points_travel(client: httpx.Client, runs: Path) -> None:
    folder = write_league(runs / "grows", LEAGUE)
    with client.stream("GET", "/run-events/grows") as answer:
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        first = next(events)
        assert set(first["all"]["sections"]) >= {"summary", "faults"}, "before the ratings"
        assert {*next(events)["change"]["&"]["sections"]["&"]} >= {"standings", "payoff", "meta-game"}
        line = json.loads(folder.metrics.read_text().splitlines()[-1])
        with folder.metrics.open("a") as file:
            file.write(json.dumps(line | {"ticks": 1999, "update": 99}) + "\n")
        change = next(events)["change"]
    (series,) = change["&"]["data"]["&"]["logged"]["&"]["policy_loss"]["&"].values()
    assert series["&"]["ticks"]["~"][2] == [1999.0]
    assert len(json.dumps(change["&"]["data"])) < 0.1 * len(json.dumps(first["all"]["data"]))


def test_ratings_follow_the_games(client: httpx.Client, runs: Path) -> None:
    folder = write_league(runs / "rated", LEAGUE)
    line = json.loads(folder.episodes.read_text().splitlines()[-1])
    with client.stream("GET", "/run-events/rated") as answer:
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        next(events), next(events)
        with folder.episodes.open("a") as file:
            file.writelines(json.dumps(line | {"episode": 1000 + number}) + "\n" for number in range(5))
        assert "standings" in next(events)["change"]["&"]["sections"]["&"]


class CostlyPage(Page):
    """Takes processor time; its files are damaged from the third look on."""

    looks, seconds = 0, 0.03

    def begin(self) -> None:
        pass

    def look(self) -> State:
        CostlyPage.looks += 1
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        if CostlyPage.looks > 2:
            raise ConfigError("is damaged")
        return {"data": {}}


def test_looks_take_a_small_share_of_a_core_also_at_damaged_files(tmp_path: Path) -> None:
    page, rests = CostlyPage(board_at(tmp_path), tmp_path), []
    for _ in range(4):
        state, _ = page._look() or (page._state, b"")
        page._state = state
        rests.append(page._rest)
    assert rests[0] == 1.0, "the first page of a process takes longer than others"
    assert all(rest >= CostlyPage.seconds / SHARE for rest in rests[1:]) and page._state["error"] == "is damaged"


def test_a_folder_that_vanishes_or_is_damaged_is_told(client: httpx.Client, runs: Path) -> None:
    folder = write_league(runs / "vanishes", LEAGUE)
    with client.stream("GET", "/run-events/vanishes") as answer:
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        next(events), next(events)
        with folder.faults.open("a") as file:
            file.write("no JSON\n")
        assert "is damaged" in next(events)["change"]["&"]["error"]["="]
        shutil.rmtree(folder.path)
        assert "has been removed" in next(events)["change"]["&"]["error"]["="]
    answer = client.get("/run/vanishes", headers={"accept": "text/html"})
    assert answer.status_code == 404 and "may have been removed" in answer.text


def test_chosen_runs_are_compared(client: httpx.Client) -> None:
    assert "2 runs, 1 configuration" in client.get("/compare?run=one&run=deep/two").text
    assert client.get("/compare?run=one").status_code == 422


def test_bad_ports_and_folders_are_told(served: Served, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = served.home.rpartition(":")[2]
    assert main(["board", str(runs), "--port", port]) == 2
    assert f"127.0.0.1:{port} cannot be served: Address already in use" in capsys.readouterr().err
    assert main(["report", str(runs / "one"), "--serve", port]) == 2
    assert f"--serve: 127.0.0.1:{port} cannot be served" in capsys.readouterr().err
    assert main(["board", str(runs / "none")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_ctrl_c_ends_the_command_while_pages_are_open(runs: Path) -> None:
    process = start([*ARENA, "report", str(runs / "one"), "--serve", "0"], runs)
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    with httpx.Client(follow_redirects=True, timeout=600) as client:
        assert "/run-events/one" in client.get(address).text
        with client.stream("GET", address.partition("/run/")[0] + "/run-events/one") as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (0, "", "")


def test_watch_names_the_matches_of_all_pages(client: httpx.Client, runs: Path) -> None:
    folder = write_league(runs / "matches", LEAGUE)
    lines = [json.loads(line) for line in folder.episodes.read_text().splitlines()]
    first = [line for line in lines if (line["round"], line["match"]) == (0, 0) and not line.get("cut")]
    for match in (0, 1):
        place = match_path(folder.replays, match, round=0)
        place.mkdir(parents=True)
        (place / MANIFEST).touch()
    newest = [{**line, "match": 1} for line in first[:1] * 60]
    folder.episodes.write_text("".join(json.dumps(line) + "\n" for line in first + newest))
    found = client.get("/watch-rows/matches").json()
    assert {row["match"] for row in found["rows"]} == {1}
    assert found["matches"] == [0, 1]
    assert client.get("/watch-rows/matches?match=1").json()["matches"] == [1]


def test_watch_reads_a_long_run_in_parts(client: httpx.Client, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_league(runs / "long", LEAGUE)
    look, readers, free = RunReader.look, list[RunReader](), list[bool]()

    def noted(reader: RunReader, **options: Any) -> Any:
        readers.append(reader)
        return look(reader, **options)

    def take_lock() -> bool:
        taken = readers[-1].lock.acquire(timeout=5)
        if taken:
            readers[-1].lock.release()
        return taken

    def sleep(_: float) -> None:
        with ThreadPoolExecutor(1) as other:
            free.append(other.submit(take_lock).result())

    monkeypatch.setattr(RunReader, "look", noted)
    monkeypatch.setattr(watch, "_PART", 3000)
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    assert client.get("/watch-rows/long").json()["known"] == len(folder.episodes.read_text().splitlines())
    assert len(free) == len(readers) - 1 > 2 and all(free)


def test_a_page_that_is_asked_for_as_its_task_ends_is_followed_anew(tmp_path: Path) -> None:
    async def ask() -> None:
        found = board_at(tmp_path)
        first = followed(found, CostlyPage, tmp_path)
        assert followed(found, CostlyPage, tmp_path) is first
        first.shown_at = -math.inf
        await asyncio.sleep(0)
        assert first.task.done() and found.pages, "its callback has not been called yet"
        second = followed(found, CostlyPage, tmp_path)
        await asyncio.sleep(0)
        assert second is not first and [*found.pages.values()] == [second]
        second.shown_at = -math.inf
        await asyncio.wait([second.task])
        await asyncio.sleep(0)
        assert not found.pages
        await found.end()

    asyncio.run(ask())
