"""The report: its numbers are those of the run folder, whatever state the folder is in."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from jinja2 import FileSystemBytecodeCache
from PIL import Image
from scipy import stats

from arena.cli.main import main
from arena.errors import ConfigError
from arena.league.metagame import measures
from arena.league.ratings.intervals import of_share
from arena.league.ratings.ranking import decided
from arena.league.ratings.ratings import fit
from arena.league.read_results import read
from arena.league.tournament import Rule, table, write_terms
from arena.plan.plan import UNBOUNDED_TICKS
from arena.records import boundary
from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.formats import Boundary, Terms
from arena.records.journal import JournalReader
from arena.records.lock import FAILED, RunLock
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.report import page as report_page
from arena.report import sections
from arena.report.colors import Colors
from arena.report.comparison import compared, estimate, write_comparison
from arena.report.episodes import MOST_PARTS, EpisodeRows, UpdateRows, curve, edges_for
from arena.report.learning import MOST_POINTS, Series, logged_values
from arena.report.lineage import Lineage
from arena.report.numbers import FORMS, THIN
from arena.report.page import CONTENTS, page, write_report
from arena.report.read_run import RunReader, read_run
from arena.report.recorded import SideFolder, recorded, records, result_text
from arena.report.replays import LARGEST, Replay, compressed
from arena.report.sections import page_data
from full_disk import full_above
from league_folders import League, write_league

LEAGUE = League(policies=3, episodes=300, rounds=3)


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_league(tmp_path_factory.mktemp("league") / "run", LEAGUE)


@pytest.fixture(scope="module", autouse=True)
def _quick_pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiles the templates once instead of for every page, and estimates the meta-game from 5 samples."""
    cache = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(report_page, "Environment", partial(report_page.Environment, bytecode_cache=cache))
        monkeypatch.setattr(measures, "SAMPLES", 5)
        yield


@pytest.fixture
def own(league: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy that a test may change."""
    return RunFolder(Path(shutil.copytree(league.path, tmp_path / "run")))


def numbers(folder: RunFolder) -> Any:
    return msgspec.to_builtins(page_data(read_run(folder.path)))


@pytest.fixture(scope="module")
def told(league: RunFolder) -> Any:
    return numbers(league)


@pytest.fixture(scope="module")
def text(league: RunFolder) -> str:
    return page(read_run(league.path))


def read_lineage(folder: RunFolder) -> Lineage:
    return page_data(read_run(folder.path)).lineage


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_summary_equals_counts_of_the_journals(league: RunFolder, told: Any) -> None:
    told, episodes, updates = told["summary"], lines(league.episodes), lines(league.metrics)
    assert told["episodes"] == sum(not line.get("cut") for line in episodes)
    assert told["cut"] == sum(line.get("cut", False) for line in episodes)
    assert told["updates"] == len(updates)
    assert told["samples"] == sum({line["policy"]: line["samples"] for line in updates}.values())
    assert told["ticks"] == told["ticks_planned"] == 3000
    assert told["state"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ticks", "lock", "state"),
    [
        (2000, "", "ended early"),
        (2000, '{"pid": 1}', "killed"),
        (2000, FAILED, "failed"),
        (UNBOUNDED_TICKS, "", "finished"),
    ],
)
def test_killed_run_differs_from_an_ended_one(own: RunFolder, ticks: int, lock: str, state: str) -> None:
    own.config.write_text(own.config.read_text().replace("ticks: 1000", f"ticks: {ticks}"))
    own.lock.write_text(lock)
    unbounded, told, text = ticks == UNBOUNDED_TICKS, numbers(own), page(read_run(own.path))
    assert told["summary"]["state"] == state
    assert ("It has failed: " in text, "the run has ended with the last one" in text) == ((state == "failed"),) * 2
    assert told["summary"]["ticks_planned"] == (None if unbounded else 3 * ticks)
    assert ("as episodes need" in text) == unbounded
    assert (told["lengths"][0]["over_time"] is None, "lengths-0-time" not in text) == (unbounded, unbounded)


@pytest.mark.slow
def test_seconds_of_a_resumed_run_include_all_its_starts(own: RunFolder) -> None:
    began = own.config.stat().st_mtime
    os.utime(own.episodes, (began, began + 9))
    os.utime(own.metrics, (began, began + 8))
    last = max(line["seconds"] for line in lines(own.metrics))
    assert last > 9, "a resumed run counts on"
    assert numbers(own)["summary"]["seconds"] == last
    os.utime(own.episodes, (began, began + 1000))
    assert numbers(own)["summary"]["seconds"] == pytest.approx(1000)


def test_the_standings_count_the_games_of_the_results(league: RunFolder, told: Any) -> None:
    found, told = read(league), told["standings"]
    assert told["games"] == found.results.games
    assert told["games"] + told["with_themselves"] + told["unrated"] + told["aborted"] == found.episodes
    ratings = fit(found.timeline)
    (rows,) = told["tables"]
    assert {row["player"]: row["games"] for row in rows} == {
        player: ratings.of(player).games for player in found.timeline.players
    }
    elos = [row["elo"] for row in rows]
    assert elos == sorted(elos, reverse=True)
    assert all(row["low"] < row["elo"] < row["high"] for row in rows)


def test_page_says_why_a_game_without_winners_is_not_rated(own: RunFolder) -> None:
    written = lines(own.episodes)
    for seat in (seat for line in written for seat in line["seats"]):
        seat["outcome"] = None
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in written))
    told = numbers(own)
    assert told["standings"] is None
    assert {row["wins"] for row in told["policies"]} == {None}
    assert "`envs.touchdown.outcome`" in told["without_winner"][0]
    assert '<data class="number" data-path="policies.0.wins" value="">\u2013</data>' in page(read_run(own.path))


@pytest.mark.slow
def test_page_notes_the_prior(own: RunFolder) -> None:
    assert fit(read(own).timeline).prior == numbers(own)["standings"]["prior"]
    one = next(line for line in reversed(lines(own.episodes)) if line["seats"][0]["outcome"] == "win")
    own.episodes.write_text(json.dumps(one) + "\n")
    assert numbers(own)["standings"]["prior"]
    assert "a weak prior" in page(read_run(own.path))


@pytest.mark.slow
def test_page_compares_two_populations_only_where_games_connect_them(own: RunFolder) -> None:
    text = own.config.read_text()
    entry = {"gauntlet": {"env": "touchdown", "policies": ["p0", "p2"], "against": ["p1"], "sides": [2, 1]}}
    own.config.write_text(f"{text[: text.index('matches:')]}matches: [{json.dumps(entry)}]\n")
    games = [line for line in lines(own.episodes) if [seat["policy"] for seat in line["seats"]] == ["p0", "p1"]]
    for number, line in enumerate(games):
        for seat, name in zip(line["seats"], ("p0", "p1") if number % 2 else ("p2", "p1@1000"), strict=True):
            seat["policy"] = name
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in games))
    rows = [row for (row,) in numbers(own)["standings"]["tables"]]
    assert [(row["player"], row["population"], row["scale"]) for row in rows] == [
        ("p0", "first side", 0),
        ("p1", "second side", 0),
        ("p2", "first side", 1),
        ("p1@1000", "second side", 1),
    ]
    said = page(read_run(own.path))
    section = said[said.index('<section id="standings">') : said.index('<section id="payoff">')]
    told = re.findall("First side|Second side|These two tables have one scale|No games connect", section)
    assert told == [
        *("First side", "Second side", "These two tables have one scale"),
        "No games connect",
        *("First side", "Second side", "These two tables have one scale"),
    ]


@pytest.mark.slow
def test_policies_have_no_standings_if_all_were_reset(own: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """The only recorded game of the newest round does not count."""
    own.config.write_text(own.config.read_text().replace("algorithm: random", "algorithm: ppo"))
    *before, newest = lines(own.rounds)
    newest |= {"resets": ["p0", "p1"], "forks": {"p2": {"from": "p0", "options": {}}}}
    own.rounds.write_text("".join(json.dumps(line) + "\n" for line in [*before, newest]))
    games = [line for line in lines(own.episodes) if all("@" not in seat["policy"] for seat in line["seats"])]
    earlier = [line for line in games if line["round"] < newest["round"]]
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in earlier))
    assert numbers(own)["standings"]["curves"].keys() == {"p0", "p1", "p2"}
    now = [*earlier, {**next(line for line in games if line["round"] == newest["round"]), "cut": True}]
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in now))
    assert numbers(own)["standings"] is None
    assert "nothing to rate" in page(read_run(own.path))
    assert main(["standings", str(own.path)]) == 0
    assert re.match("no two players have met.*`arena tournament` compares players of one team", capsys.readouterr().out)
    assert main(["standings", str(own.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["players"] == []
    assert main(["standings", str(own.path), "--at", str(newest["start"])]) == 0
    assert {line.split()[1] for line in capsys.readouterr().out.splitlines()[1:4]} == {"p0", "p1", "p2"}


@pytest.mark.slow
def test_page_reports_too_many_cut_games(own: RunFolder) -> None:
    whole = [line for line in lines(own.episodes) if not line.get("cut")]
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in whole))
    assert numbers(own)["standings"]["curtailed"] is None
    end = 1000 * (1 + whole[-1]["round"])
    cut = [{**whole[-1], "tick": end, "episode": 1000 + number, "cut": True} for number in range(30)]
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in [*whole, *cut]))
    ratings = fit(read(own).timeline)
    games, player = min((ratings.of(seat["policy"]).games, seat["policy"]) for seat in cut[0]["seats"])
    assert numbers(own)["standings"]["curtailed"] == (player, games / 30, "round", "ticks")
    assert f"with {player} a lane finishes about" in page(read_run(own.path))
    own.config.write_text(own.config.read_text().replace("ticks: 1000", f"ticks: {UNBOUNDED_TICKS}"))
    assert "a lane finishes about" not in page(read_run(own.path))


@pytest.mark.slow
def test_page_shows_whether_a_tournaments_order_is_decided(own: RunFolder, text: str) -> None:
    assert "order of all players" not in text
    write_terms(own, Terms(greedy=True, error=0.1, elo=20))
    order = numbers(own)["standings"]["order"]
    assert (order["decided"], order["error"], order["elo"]) == (False, 0.1, 20)
    assert not decided(read(own).results, ["p0", "p1", "p2"], 0.1, elo=20)
    html = page(read_run(own.path))
    assert all(f'<section id="{name}">' in html and f'href="#{name}"' in html for name in ("tournament", "crosstable"))
    shown = re.sub("<[^>]+>", "", html)
    words = "The order of all players is not decided, at an error of 0.10; differences below 20"
    assert words in shown.replace(THIN, "")
    found = table(read(own).results, ["p0", "p1", "p2"], Rule(0, error=0.1, elo=20)).open
    assert order["undecided"] == found and found[0].games_left > 0


def test_payoffs_equal_the_scores_of_the_pairs(league: RunFolder, told: Any) -> None:
    results, matrix = read(league).results, told["standings"]["matrix"]
    for i, row in enumerate(matrix["players"]):
        for j, column in enumerate(matrix["players"]):
            if i != j:
                between = results.between(row, column)
                assert (matrix["games"][i][j], matrix["points"][i][j]) == (between.games, between.points)
                assert matrix["mean"][i][j] == pytest.approx(1 - matrix["mean"][j][i])


def test_standings_as_json_have_the_payoffs_and_measures_of_the_page(
    own: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["standings", str(own.path), "--json"]) == 0
    shown, page = json.loads(capsys.readouterr().out), numbers(own)["standings"]
    matrix = page["matrix"]
    cells = {
        (row, column): [matrix[name][i][j] for name in ("games", "mean", "low", "high")]
        for i, row in enumerate(matrix["players"])
        for j, column in enumerate(matrix["players"])
        if i != j and matrix["games"][i][j]
    }
    assert cells
    columns = "counted", "score", "low", "high"
    assert {(one["player"], one["opponent"]): [one[name] for name in columns] for one in shown["payoffs"]} == cells
    rows = [[*one.values()] for one in shown["payoffs"]]
    assert len(page["pairs"]) == len(cells) // 2 and all([*pair] in rows for pair in page["pairs"])
    measured = [
        (one["player"], *([one[name]["value"], *one[name]["interval"]] for name in ("nash", "skill", "alpha_rank")))
        for one in shown["meta_game"]
    ]
    assert measured == [
        (row["player"], *([*row[name]] for name in ("nash", "skill", "alpha_rank"))) for row in page["meta"]
    ]
    assert all(low <= value <= high for _, *found in measured for value, low, high in found)


def test_parts_of_a_curve_stay_while_a_run_goes_on() -> None:
    before = edges_for(1, numbers=1)
    for last in range(50, 40_000, 37):
        edges = edges_for(last, numbers=last // 3, matches=2)
        width, rest = edges[1], edges[-1] - edges[-2]
        assert edges[0] == 0 and edges[-1] == last and len(edges) <= MOST_PARTS + 1
        assert f"{width:e}"[0] in "125" and f"{width:e}"[2:8] == "000000"
        assert 0.5 * width <= rest <= 1.5 * width
        if before[1] == width:
            assert (edges[: len(before) - 1] == before[:-1]).all()
        before = edges


def test_points_of_a_logged_value_stay_while_a_run_goes_on(own: RunFolder) -> None:
    updates, shown = UpdateRows(), list[float]()
    for tick in range(2000):
        updates.take([UpdateRecord("p0", tick, tick, tick, 0.0, {"loss": tick % 7})])
        if tick % 50 == 0:
            found = logged_values(updates)["loss"]["p0"]
            assert len(found.ticks) <= MOST_POINTS and found.ticks[-1] == tick
            assert found.ticks[: len(shown) - 1] == shown[:-1] or len(found.ticks) < len(shown)
            shown = found.ticks
    step = 2000 // len(shown)
    means = [float(np.mean([tick % 7 for tick in range(begin, begin + 16)])) for begin in range(0, 1936, 16)]
    assert logged_values(updates)["loss"]["p0"].values[: len(means)] == pytest.approx(means) and step == 16


def test_columns_of_episodes_hold_numbers_of_any_size() -> None:
    seats = (SeatRecord("a", (0,), 1.5, "win"), SeatRecord("b", (1, 2), None, "loss"))
    ticks = [1, 40_000, 5_000_000_000, 2**53 - 1]
    rows = EpisodeRows()
    for number, tick in enumerate(ticks):
        episode = EpisodeRecord(number * 70_000, 3, "e", 0, number, tick, tick, True, False, seats)
        rows.take([episode], np.array([50_000 * number]))
    table = rows.table()
    assert table.tick.tolist() == table.length.tolist() == ticks
    assert table.round.tolist() == [number * 70_000 for number in range(4)]
    assert table.size.tolist() == [0, 50_000, 100_000, 150_000]
    assert table.of("a").returns.tolist() == [1.5] * 4 and np.isnan(table.of("b").returns).all()
    assert table.of("b").shares.tolist() == [[0, 0, 1]] * 4 and len(table.of("c").episode) == 0


def test_outcomes_that_do_not_fit_are_no_decided_games() -> None:
    rows = EpisodeRows()
    for number, contradicts in enumerate((False, True)):
        seats = (SeatRecord("a", (0,), 1.5, "win"), SeatRecord("b", (1,), 0.0, None if contradicts else "loss"))
        episode = EpisodeRecord(0, 0, "e", 0, number, 1 + number, 1, True, False, seats, contradicts=contradicts)
        rows.take([episode], np.array([1]))
    for name in "ab":
        assert rows.table().of(name).decided.tolist() == [True, False]


def test_appearances_are_the_means_of_a_slow_sum() -> None:
    rng, episodes, ends = np.random.default_rng(1), list[EpisodeRecord](), [None, "win", "draw", "loss"]
    for number in range(300):
        seats = tuple(
            SeatRecord(
                f"p{rng.integers(3)}",
                tuple(range(rng.integers(1, 4))),
                None if rng.random() < 0.05 else float(rng.integers(9)),
                ends[rng.integers(0 if rng.random() < 0.1 else 1, 4)],  # type: ignore[arg-type]
            )
            for _ in range(rng.integers(1, 5))
        )
        cut = bool(rng.random() < 0.1)
        episodes.append(EpisodeRecord(0, 0, "e", 0, number, number + 1, 5, True, False, seats, cut=cut))
    rows = EpisodeRows()
    for begin in range(0, 300, 70):
        rows.take(episodes[begin : begin + 70], np.ones(len(episodes[begin : begin + 70]), np.int64))
    table = rows.table()
    for name in ("p0", "p1", "p2"):
        found = table.of(name)
        played = [one for one in episodes if not one.cut and name in {seat.policy for seat in one.seats}]
        assert found.episode.tolist() == [one.episode for one in played]
        for one, mean, shares, known in zip(played, *found[1:], strict=True):
            mine = [seat for seat in one.seats if seat.policy == name]
            weights = [len(seat.entities) for seat in mine]
            gains = [np.nan if seat.return_ is None else seat.return_ for seat in mine]
            assert mean == pytest.approx(np.average(gains, weights=weights), nan_ok=True)
            for share, outcome in zip(shares, ends[1:], strict=True):
                assert share == pytest.approx(np.average([seat.outcome == outcome for seat in mine], weights=weights))
            assert known == all(seat.outcome is not None for seat in mine)


def test_a_curve_is_the_mean_of_equal_parts_with_a_band_over_matches() -> None:
    ticks, matches = np.array([1, 10, 10, 11, 20]), np.array([0, 0, 1, 0, 1])
    found = curve(ticks, np.array([1.0, 3.0, 6.0, 5.0, np.nan]), matches=matches, edges=np.array([0.0, 10.0, 20.0]))
    assert found.ticks == [10.0, 20.0]
    assert found.mean == pytest.approx([10 / 3, 5.0])
    assert (found.low, found.high) == ([3.0, 5.0], [5.0, 5.0])  # between the two matches' 2 and 6; then one is left
    assert found.count == [3, 1]


def test_band_is_the_middle_half_of_the_matches() -> None:
    matches = 41
    means = np.random.default_rng(0).permutation(np.arange(float(matches)))
    means[means == matches - 1] = 1e6  # one match far from all others
    ticks = np.ones(matches, np.int64)
    found = curve(ticks, means, matches=np.arange(matches), edges=np.array([0.0, 1.0]))
    inside = sum(found.low[0] <= mean <= found.high[0] for mean in means)
    assert matches // 2 <= inside <= matches // 2 + 1
    assert found.high[0] < matches


def test_the_last_point_of_a_learning_curve_is_the_mean_of_its_episodes(league: RunFolder, told: Any) -> None:
    told = told["learning"]["returns"]["p0"]
    begin = told["ticks"][-2]
    gains = [
        seat["return"]
        for line in lines(league.episodes)
        for seat in line["seats"]
        if seat["policy"] == "p0" and line["tick"] > begin and not line.get("cut")
    ]
    assert told["mean"][-1] == pytest.approx(np.mean(gains))
    assert told["count"][-1] == len(gains)


@pytest.mark.slow
def test_games_beside_the_run_are_read_from_its_folder(own: RunFolder) -> None:
    beside = write_league(own.path / "evaluations" / "last", League(policies=2, episodes=20, rounds=1))
    person = RunFolder(own.path / "evaluations" / "human-0001")
    person.replays.mkdir(parents=True)
    line = lines(beside.episodes)[0]
    for seat, (policy, outcome) in zip(line["seats"], [("human", "win"), ("p0", "loss")], strict=True):
        seat |= {"policy": policy, "outcome": outcome}
    person.episodes.write_text(json.dumps(line) + "\n")
    (own.path / "evaluations" / "tick-000000000010").mkdir()  # of the run itself
    shutil.copy(beside.episodes, own.path / "evaluations" / "tick-000000000010")
    os.utime(person.episodes, (beside.episodes.stat().st_mtime + 9,) * 2)
    reader = RunReader(own.path)
    newest, other = reader.look().side_games.shown
    assert newest == SideFolder("human-0001", 1, "human won, p0 lost", recorded=True)
    whole = [one for one in lines(beside.episodes) if not one.get("cut")]
    won = np.mean([seat["outcome"] == "win" for one in whole for seat in one["seats"] if seat["policy"] == "p0"])
    assert (other.name, other.recorded) == ("last", False) and f"p0 won {100 * won:.1f}" in other.result
    person.episodes.write_text(json.dumps(line) * 1 + "\n" + json.dumps(line | {"episode": 1}) + "\n")
    assert reader.look().side_games.shown[0].episodes == 2, "games that come later are seen"
    assert "human-0001" in words(page(read_run(own.path)), "evaluations")


@pytest.mark.slow
def test_games_beside_the_run_are_read_once_and_the_newest_are_shown(own: RunFolder) -> None:
    long = write_league(own.path / "evaluations" / "long", League(policies=2, episodes=20, rounds=1)).episodes
    reader = RunReader(own.path)
    (before,) = reader.look().side_games.shown
    first, *rest = long.read_text().splitlines(keepends=True)
    with long.open("r+") as file:  # no line that was read is read again
        file.write("x" * (len(first) - 1))
    assert reader.look().side_games.shown == [before]
    with long.open("a") as file:
        file.write(first)
    assert reader.look().side_games.shown[0].episodes == before.episodes + 1
    long.write_text(first)
    assert reader.look().side_games.shown[0].episodes == 1, "a shorter journal is another one"
    long.write_text("".join([first, *rest]))
    (long.parent / "config.yaml").write_text((long.parent / "config.yaml").read_text())  # as another evaluation
    assert reader.look().side_games.shown == [before]
    for number in range(60):
        (own.path / "evaluations" / f"human-{number:04d}").mkdir()
        (own.path / "evaluations" / f"human-{number:04d}" / "episodes.jsonl").touch()
    assert reader.look().side_games.left_out == 11
    assert "11 older ones are not shown" in words(page(read_run(own.path)), "evaluations")


@pytest.mark.slow
def test_bad_folders_beside_the_run_do_not_hide_it(own: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    home = os.fsencode(own.path / "evaluations")
    for name, text in ((b"damaged", "nonsense\n"), (b"odd-\xff", ""), (b".hidden", ""), (b"gone", ""), (b"empty", "")):
        os.makedirs(os.path.join(home, name))
        Path(os.fsdecode(os.path.join(home, name, b"episodes.jsonl"))).write_text(text)

    def vanish(found: Any, key: Any) -> list[Path]:
        shutil.rmtree(own.path / "evaluations" / "gone")
        return sorted(found, key=key)

    with monkeypatch.context() as patch:
        patch.setattr("arena.report.recorded.sorted", vanish, raising=False)  # after it was found
        found = {one.name: one.result for one in RunReader(own.path).look().side_games.shown}
    assert {*found} == {"damaged", "empty"}
    assert found["damaged"].startswith("damaged: ") and "episodes.jsonl" in found["damaged"]
    assert "damaged: " in words(page(read_run(own.path)), "evaluations")


def test_what_games_measure_is_drawn(own: RunFolder) -> None:
    result = {"episode_reward_mean": 1.0, "policy_reward_mean": {"p0": 1.0}}
    caught = [{"caught_mean": value, "caught_max": 9.0, "policy_reward_mean": 7.0} for value in (1.5, None, 2.5)]
    found = [
        {**result, "ticks": 10 * place, "custom_metrics": one, "policy_custom_metrics": {"caught_mean": {"p0": place}}}
        for place, one in enumerate(caught, 1)
    ]
    own.results.write_text("".join(json.dumps(one) + "\n" for one in found))
    data = page_data(read_run(own.path))
    measured = ["custom_metrics/caught_mean", "policy_custom_metrics/caught_mean", "custom_metrics/policy_reward_mean"]
    assert [*data.results] == ["episode_reward_mean", "policy_reward_mean", *measured]
    assert data.results["policy_reward_mean"]["p0"].values == [1.0] * 3, "a measure of this name is another thing"
    assert data.results[measured[1]] == {"p0": Series([10.0, 20.0, 30.0], [1, 2, 3])}
    assert data.results[measured[0]][""] == Series([10.0, 20.0, 30.0], [1.5, None, 2.5])


def test_returns_and_shares_of_evaluations_have_intervals(own: RunFolder) -> None:
    line = {**lines(own.evaluations)[0], "return": 3.0}
    line |= {"wins": 0.75, "draws": 0.0, "losses": 0.25}
    few = [
        {**line, "episodes": 4, "return_std": (14 / 3) ** 0.5, "games": 16},
        {**{name: value for name, value in line.items() if name != "games"}, "episodes": 1, "return_std": 0.0},
    ]
    own.evaluations.write_text("".join(json.dumps(one) + "\n" for one in few))
    # by hand: t(0.975, 3) = 3.1824 (tables), times the deviation, by the root of 4
    rows = numbers(own)["evaluations"]
    assert [row["margin"] for row in rows] == [pytest.approx(3.1824 * (14 / 3) ** 0.5 / 2, 1e-4), None]
    assert [row["won"] for row in rows] == [pytest.approx(of_share(12, 16)), None]
    text = page(read_run(own.path))
    assert 'data-path="evaluations.0.margin"' in text
    assert 'data-path="evaluations.1.margin"' not in text
    assert 'data-path="evaluations.0.won.0"' in text


def test_the_bars_of_lengths_hold_every_episode(league: RunFolder, told: Any) -> None:
    (told,) = told["lengths"]
    found = [line["length"] for line in lines(league.episodes) if not line.get("cut")]
    assert sum(told["counts"]) == told["episodes"] == len(found)
    assert (told["longest"], told["mean"]) == (max(found), pytest.approx(np.mean(found)))
    first, second = told["edges"][:2]
    assert told["counts"][0] == sum(first <= length < second for length in found)


def test_lineage_has_every_snapshot_fork_reset_and_gate(league: RunFolder, told: Any) -> None:
    told, rounds = told["lineage"], lines(league.rounds)
    assert [shot["name"] for shot in told["snapshots"]] == [name for line in rounds for name in line["snapshots"]]
    assert [(fork["policy"], fork["source"], fork["tick"]) for fork in told["forks"]] == [("p2", "p0", 2000)]
    assert [(reset["policy"], reset["tick"]) for reset in told["resets"]] == [("p1", 2000)]
    assert [(gate["policy"], gate["verdict"]) for gate in told["gates"]] == [("p0", "better")]


@pytest.mark.slow
def test_every_number_of_the_page_equals_its_data(text: str) -> None:
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    found = re.findall(
        r'<data class="number" data-path="([^"]+)" data-form="(\w+)" value="([^"]+)">([^<]+)</data>', text
    )
    assert len(found) > 200
    for path, form, value, shown in found:
        there = data
        for step in path.split("."):
            there = there[int(step)] if isinstance(there, list) else there[step]
        assert there == json.loads(value)
        assert shown == FORMS[form](json.loads(value))


def test_every_section_is_in_the_contents_and_nothing_is_loaded_from_other_addresses(text: str) -> None:
    for name, title in CONTENTS.items():
        if name in ("tournament", "crosstable"):
            assert f'id="{name}"' not in text and f"#{name}" not in text
            continue
        assert f'<section id="{name}">' in text
        assert f'<a href="#{name}">{title}</a>' in text
    text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text) == []
    assert "url(" not in text


def test_a_strip_has_a_limit_and_keeps_its_ends() -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (300, 300, 3), np.uint8) for _ in range(20)]
    image, kept, columns = compressed(noise)
    assert len(image) <= LARGEST and 2 <= kept < 20
    sheet = np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).astype(int)
    for place, picture in ((0, noise[0]), (kept - 1, noise[-1])):
        row, column = divmod(place, columns)
        drawn = sheet[row * 300 : (row + 1) * 300, column * 300 : (column + 1) * 300]
        errors = [np.abs(drawn - other).mean() for other in noise]
        assert np.abs(drawn - picture).mean() == min(errors)


def test_a_small_strip_is_lossless() -> None:
    pictures = [np.full((30, 20, 3), value, np.uint8) for value in range(7)]
    image, kept, columns = compressed(pictures)
    sheet = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
    assert (kept, columns, sheet.shape) == (7, 3, (90, 60, 3))
    assert sheet[::30, ::20, 0].ravel().tolist() == [*range(7), 0, 0]


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        ("elo", -0.3, "0"),
        ("elo", -54.2, "\u221254"),
        ("decimal", -0.0, "0.00"),
        ("decimal", -1.735e-18, "0.00"),
        ("decimal", -1.5e-14, "\u22121.5e\u221214"),
        ("portion", -1.1e-16, "0.000"),
        ("portion", -0.0436, "\u22120.044"),
    ],
)
def test_value_rounded_to_zero_has_no_sign(form: str, value: float, shown: str) -> None:
    assert FORMS[form](value) == shown


def test_every_role_is_on_a_card_with_its_rank(league: RunFolder) -> None:
    plan = json.loads(league.plan.read_text())
    for card in numbers(league)["plan"]["cards"]:
        ranks = [rank["rank"] for rank in plan["ranks"] for role in rank["roles"] if role["match"] == card["match"]]
        shown = card["ranks"]
        assert shown == ranks  # the environment, then its workers in the order of the seats


def test_time_of_a_rank_sums_over_its_roles(league: RunFolder, told: Any) -> None:
    roles = json.loads((league.path / "profile.json").read_text())["roles"]
    for row in told["time"]["ranks"]:
        hosted = [role for role in roles if role["rank"] == int(row["name"])]
        assert row["wall"] == sum(role["wall"] for role in hosted)
        assert sum(row["seconds"].values()) == pytest.approx(row["wall"])


def test_policies_with_equal_colors_are_distinguishable(own: RunFolder) -> None:
    own.config.write_text(own.config.read_text().replace("#d62728", "#1F77B4"))
    colors = Colors(read_run(own.path).config).policies
    assert list(colors) == ["p0", "p1", "p2"]
    assert (colors["p0"], colors["p2"]) == ("#1f77b4", "#2ca02c")
    assert len({color.lower() for color in colors.values()}) == 3


def test_frozen_policies_have_no_learning_section(own: RunFolder) -> None:
    own.config.write_text(own.config.read_text().replace("frozen: false", "frozen: true"))
    assert numbers(own)["learning"] == {"returns": {}, "won": {}}
    assert "none has learned" in page(read_run(own.path))


def words(text: str, section: str) -> str:
    """The text of a section of the page."""
    found = text[(start := text.index(f'<section id="{section}">')) : text.index("</section>", start)]
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_copies_and_gates_are_shown_as_numbers(text: str) -> None:
    assert "p2 2 000 p0 learning_rate 0.0012" in words(text, "lineage")
    assert "p0 1 000 p0@0 gate passed 40 3.10" in words(text, "lineage")
    assert "p2 copy of p0 since tick 2 000" in words(text, "standings")
    assert "<dt>updates logged</dt>" in text, "a line of an off-policy learner covers many gradient steps"
    assert all(f"</b>{words}</li>" in text for words in ("gate passed", "gate not passed", "gate undecided"))


def test_rounds_have_a_column_per_kind_of_event(own: RunFolder) -> None:
    assert read_lineage(own).columns == ["number", "start", "matches", "snapshots", "forks", "resets", "frozen"]
    head = [{**line, "snapshots": [], "forks": {}, "resets": [], "players": {}} for line in lines(own.rounds)]
    own.rounds.write_text("".join(json.dumps(line) + "\n" for line in head))
    assert read_lineage(own).columns == ["number", "start", "matches"]


def test_all_faults_are_listed_newest_first(own: RunFolder) -> None:
    fault = lines(own.faults)[1]
    own.faults.write_text("".join(json.dumps({**fault, "tick": tick}) + "\n" for tick in range(40)))
    text = page(read_run(own.path))
    told = re.findall(r"match 1, tick (\d+): the game was made again", text)
    assert told == [str(tick) for tick in [*range(10, 40), *range(10)]]
    assert "<summary>10 before them</summary>" in text


def test_changes_of_a_curriculum_are_shown_where_the_value_is_another_one(own: RunFolder) -> None:
    begin, end = "a" * 200 + "b", "a" * 200 + "c"
    said: list[tuple[int, dict[str, Any]]] = [
        (0, {"envs.game.kwargs.size": 3, "policies.p0.frozen": False}),  # which it is
        (5, {"envs.game.kwargs.size": 3, "envs.game.kwargs.map": begin}),
        (9, {"policies.<b>.frozen": True, "envs.game.kwargs.map": end}),
    ]
    own.changes.write_text("".join(json.dumps({"tick": tick, "set": changed}) + "\n" for tick, changed in said))
    text = page(read_run(own.path))
    shown = re.findall(r"<code>([^<]*)</code></th><td><code>([^<]*)</code>", text.partition('id="configuration"')[2])
    maps = [("envs.game.kwargs.map", text) for text in (begin, end)]
    assert shown == [("envs.game.kwargs.size", "3"), maps[0], ("policies.&lt;b&gt;.frozen", "true"), maps[1]]


def test_evaluation_only_policy_is_labeled(own: RunFolder) -> None:
    text = own.config.read_text().replace("\npolicies:", "\npolicies:\n  yardstick: {algorithm: random}", 1)
    own.config.write_text(text)
    assert [row["remark"] for row in numbers(own)["policies"]] == ["has no seat", "", "", ""]
    evaluation = {"every": 1000, "seats": ["yardstick", "p0"]}
    own.config.write_text(yaml.safe_dump({**yaml.safe_load(text), "evaluation": evaluation}, sort_keys=False))
    assert [row["remark"] for row in numbers(own)["policies"]] == ["in evaluations alone", "", "", ""]
    assert page(read_run(own.path)).count('<span class="muted">in evaluations alone</span>') == 1


def test_names_of_logged_values_are_escaped(own: RunFolder) -> None:
    evil = "</script><script>alert(1)</script>"
    own.metrics.write_text(json.dumps({**lines(own.metrics)[0], evil: 1.0}) + "\n")
    text = page(read_run(own.path))
    assert "<script>alert" not in text


# ------------------------------------------------------------------------------------------------ folders as they come


@pytest.mark.slow
def test_an_incomplete_last_line_is_skipped_and_counted(own: RunFolder) -> None:
    before = numbers(own)["summary"]
    with own.episodes.open("a") as file:
        file.write('{"round": 0, "mat')
    after = numbers(own)["summary"]
    assert after["episodes"] == before["episodes"]
    assert (before["unfinished"], after["unfinished"]) == (0, 1)
    assert "was skipped" in page(read_run(own.path))


@pytest.mark.slow
def test_page_is_a_consistent_snapshot_of_a_running_run(own: RunFolder) -> None:
    files = read_run(own.path)
    before = msgspec.to_builtins(page_data(files))
    game = next(line for line in lines(own.episodes) if not line.get("cut"))
    last = lines(own.rounds)[-1]
    for path, line in ((own.episodes, {**game, "round": last["round"]}), (own.rounds, {**last, "round": 3})):
        with path.open("a") as file:
            file.write(f"{json.dumps(line)}\n")
    os.utime(own.episodes, (2e9, 2e9))
    assert msgspec.to_builtins(page_data(files)) == before
    after = numbers(own)
    assert after["standings"]["games"] == before["standings"]["games"] + 1
    assert after["summary"]["rounds"] == before["summary"]["rounds"] + 1


@pytest.mark.slow
def test_page_of_a_running_run_has_its_time(own: RunFolder) -> None:
    moment = "This page is of <time"
    with RunLock.take(own.path):
        files = read_run(own.path, now=lambda: datetime(2026, 3, 1, 4, 5, 6, tzinfo=timezone.utc))
    told = page(files)
    assert f'{moment} datetime="2026-03-01T04:05:06+00:00">2026-03-01 04:05:06 UTC</time>' in told
    assert page_data(files).summary.state == "under way", "the run has ended since"
    assert moment not in page(read_run(own.path))


def test_a_run_that_has_only_begun_has_a_page(own: RunFolder) -> None:
    for path in (own.episodes, own.metrics, own.evaluations, own.rounds, own.faults, own.path / "profile.json"):
        path.unlink()
    shutil.rmtree(own.boundaries)
    told = numbers(own)
    assert told["summary"]["episodes"] == told["summary"]["ticks"] == 0
    assert told["summary"]["state"] == "ended early"
    assert told["standings"] is None
    assert page(read_run(own.path)).count('class="none"') >= 9


def planned(*, match: int = 0, role: Any = None) -> str:
    """A plan of one match."""
    seat = {"policy": "p0", "entities": [0]}
    matches = [{"match": match, "env": "touchdown", "lanes": 1, "seats": [seat], "sides": None}]
    ranks = [{"rank": 0, "roles": [{"role": "root"}, *([role] if role else [])]}]
    return json.dumps({"name": "league", "processes": 1, "matches": matches, "ranks": ranks})


EVALUATED = {"policy": "p9", "ticks": 1, "episodes": 1, "return": 0.0, "return_std": 0.0, "length": 1.0}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("episodes.jsonl", '{"round": 0}\n', "line 1"),
        ("metrics.jsonl", '{"policy": "p0"}\n', "another version"),
        ("rounds.jsonl", '{"version": 1, "round": "first", "start": 0}\n', "round"),
        ("rounds.jsonl", '{"version": 2, "round": 0, "start": 0}\n', "has a line of version 2, this arena reads 1"),
        ("rounds.jsonl", "", "lacks round 2, of which there are episodes"),
        ("plan.json", '{"name": "x"}', "processes"),
        ("plan.json", "[" * 20_000, "damaged"),
        ("plan.json", planned(match=1), "not numbered"),
        ("plan.json", planned(role={"role": "environment", "match": 7}), "no match 7"),
        ("plan.json", planned(role={"role": "worker", "match": 0, "policy": "p1", "entities": [1]}), "no seat of 'p1'"),
        ("rounds.jsonl", '{"version": 1, "round": 4, "start": 0, "resets": ["p9"]}\n', "round 4: the run folder"),
        ("faults.jsonl", '{"time": "2026-03-01"}\n', "'kind'"),
        ("profile.json", '{"roles": [{}]}', "rank"),
        ("config.yaml", "name: x\nticks: 5\nnews: 1\n", "unknown key 'news'"),
        ("evaluations.jsonl", "+" + json.dumps(EVALUATED) + "\n", "another version of the arena: 'p9' is none"),
        ("plan.json", None, ""),
    ],
)
def test_damaged_folder_exits_with_2_and_the_reason(
    own: RunFolder, capsys: pytest.CaptureFixture[str], file: str, content: str | None, said: str
) -> None:
    path = own.path / file
    if content is None:
        path.unlink()
    else:
        before = path.read_text() if content.startswith("+") and path.exists() else ""
        path.write_text(before + content.removeprefix("+"))
    assert main(["report", str(own.path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("arena: error: ")
    assert file in told
    assert said in told
    assert not own.report.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"match": 10**23}, "line 1"),
        ({"round": -1}, "(at round)"),
        ({"tick": 2**53}, "(at tick)"),
        ({"seats": [{"policy": "p0", "entities": [0], "return": 1.0}]}, "the key 'outcome' is missing"),
        ({"seats": [{"policy": "p9", "entities": [0], "return": 1.0, "outcome": None}]}, "'p9' is none of the"),
    ],
)
def test_impossible_episode_exits_with_2(
    own: RunFolder, capsys: pytest.CaptureFixture[str], change: Any, said: str
) -> None:
    first, *others = lines(own.episodes)
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in [{**first, **change}, *others]))
    assert main(["report", str(own.path)]) == 2
    told = capsys.readouterr().err
    assert "episodes.jsonl: " in told
    assert said in told


def test_duplicate_episode_exits_with_2(own: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    whole = lines(own.episodes)
    own.episodes.write_text("".join(json.dumps(line) + "\n" for line in [*whole, whole[7], whole[5]]))
    assert main(["report", str(own.path)]) == 2
    place = "round 0, match {match}, lane {lane}, episode {episode}".format(**whole[7])
    assert f"episodes.jsonl: line {len(whole) + 1}: is damaged: {place} is there twice" in capsys.readouterr().err


def test_journal_shorter_than_at_its_boundary_exits_with_2(own: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    file = "episodes.jsonl"
    boundary.save(own, Boundary(tick=4000, journals=boundary.journal_bytes(own)))
    read_run(own.path)
    whole = (own.path / file).read_bytes()
    kept = whole[: whole.index(b"\n", 1000) + 1]
    (own.path / file).write_bytes(kept)
    assert main(["report", str(own.path)]) == 2
    told = capsys.readouterr().err
    assert f"{file}: the run folder is damaged" in told
    assert f"it has {len(kept)} bytes, at tick 4000 it had {len(whole)}" in told


# ------------------------------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no/page.html", "there is no folder"),
        (".", "is a folder; name a file"),
        ("x" * 300, "cannot be written: File name too long"),
        ("x" * 254, "cannot be written: File name too long"),  # too long for the name of its temporary file
        ("fifo", "is no file that can be replaced; name a file"),
    ],
)
def test_invalid_path_exits_with_2(
    own: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, words: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert main(["report", str(own.path), "--output", str(tmp_path / place)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("arena: error: --output: ")
    assert words in told


def test_full_disk_exits_with_1(own: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with full_above(1000):
        assert main(["report", str(own.path)]) == 1
    assert capsys.readouterr().err.startswith(f"arena: failed: {own.report} cannot be written: File too large")


@pytest.mark.slow
def test_page_is_written_anywhere_and_does_not_grow_with_episodes(
    own: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = write_league(tmp_path / "many", League(policies=3, episodes=3_000, rounds=3))
    sizes = [write_report(folder.path, tmp_path / "page.html").stat().st_size for folder in (own, many)]
    assert sizes[1] - sizes[0] < 100_000
    assert sizes[1] < 10_000_000
    assert main(["report", str(own.path)]) == 0
    assert main(["report", str(own.path), "--output", str(tmp_path / "other.html")]) == 0
    assert own.report.read_bytes() == (tmp_path / "other.html").read_bytes()
    assert f"{own.report}: " in capsys.readouterr().out


# Several runs on one page: which are of one configuration, and means with intervals over them


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs of one configuration, and one of another with more policies."""
    base = tmp_path_factory.mktemp("runs")
    size = League(policies=2, episodes=60, rounds=2)
    made = [write_league(base / f"run-{number}", size, seed=number).path for number in range(3)]
    return [*made, write_league(base / "other", League(policies=3, episodes=60, rounds=2)).path]


def test_runs_of_one_configuration_are_a_group(runs: list[Path]) -> None:
    data = compared([read_run(path) for path in runs])
    assert [len(group.runs) for group in data.groups] == [3, 1]
    assert [run.group for run in data.runs] == [0, 0, 0, 1]
    assert data.groups[0].differs
    assert {row.returns.runs for row in data.policies if row.group == 0} == {3}
    assert all(row.returns.margin is None for row in data.policies if row.group == 1)
    (alone,) = data.curves["p2: return"]
    assert (alone.group, alone.runs, len(alone.mean.ticks) > 1) == (1, [], True), "other runs lack this policy"
    three, one = data.curves["p0: return"]
    assert len(three.runs) == 3 and max(three.mean.count) == 3 and three.mean.low < three.mean.mean < three.mean.high
    assert (one.mean.low, {*one.mean.count}) == (one.mean.mean, {1}), "one run has no interval"


def configured(run: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a run whose configuration is changed."""
    copy = RunFolder(shutil.copytree(run, to))
    config = yaml.safe_load(copy.config.read_text())
    change(config)
    copy.write_config(yaml.safe_dump(config))
    return copy.path


def test_every_key_that_differs_has_a_row(runs: list[Path], tmp_path: Path) -> None:
    places = [f"x{number}" for number in range(40)]
    options = {"algorithm": "own:Own", "options": dict.fromkeys(places, 1)}
    other = configured(runs[1], tmp_path / "copy", lambda config: config["policies"]["p0"].update(options))
    text = re.sub("<[^>]+>", " ", write_comparison([runs[0], other], tmp_path / "all.html").read_text())
    assert "Where the configurations differ: 41 keys" in text  # and `algorithm`
    assert [place for place in places if f" policies.p0.options.{place} " not in text] == []


@pytest.mark.parametrize(
    ("change", "differing", "words"),
    [
        (lambda config: config["policies"]["p0"].update(color="#112233"), "", ""),
        (lambda config: config["envs"]["touchdown"].update(make="skirmish"), "games", "play different games"),
        (lambda config: config["envs"]["touchdown"]["kwargs"].update(team_size=2), "games", "play different games"),
        (lambda config: config["envs"]["touchdown"].update(wrappers=["own:Own"]), "games", "play different games"),
        (lambda config: config["envs"].update(other={"make": "matrix"}), "", ""),  # of no match
        (
            lambda config: config["matches"][0]["round_robin"]["policies"].reverse(),
            "seats",
            "Different policies take the seats",
        ),
    ],
)
def test_incomparable_configurations_are_said_to_be_so(
    change: Callable[[dict[str, Any]], object], differing: str, words: str, runs: list[Path], tmp_path: Path
) -> None:
    paths = [runs[0], configured(runs[1], tmp_path / "copy", change)]
    data = compared([read_run(path) for path in paths])
    assert (len(data.groups), data.differing) == (2, differing)
    shown = write_comparison(paths, tmp_path / "all.html").read_text()
    notes = "play different games", "Different policies take the seats"
    assert [note for note in notes if note in shown] == [*filter(None, [words])]


def test_trials_of_an_experiment_are_named_by_their_values(runs: list[Path], tmp_path: Path) -> None:
    names = {
        "0000_ppo,gamma=0.9,seed=1": "rates-0000",
        "0003_dqn,gamma=0.9,seed=2": "rates-0003",
        "0004_seed=3": "rates-0004",
        "0005": "other-0005",
        "0006_elsewhere": "rates-0007",
    }
    for number, (place, name) in enumerate(names.items()):
        configured(runs[0], tmp_path / place, lambda it, n=number, name=name: it.update(name=name, ticks=1000 + n))
    groups = compared([read_run(tmp_path / place) for place in names]).groups
    assert [group.label for group in groups] == [
        "rates ppo,gamma=0.9",
        "rates dqn,gamma=0.9",
        "rates",
        "other",
        "rates-0007",
    ]


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


def test_runs_of_one_seed_count_once(runs: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(runs[0], tmp_path / "copy")
    once, twice = (compared([read_run(path) for path in paths]) for paths in (runs[:3], [*runs[:3], copy]))
    assert once.policies == twice.policies and once.curves == twice.curves
    assert (once.repeated, twice.repeated, len(twice.runs)) == ([], [twice.groups[0].label], 4)
    words = "runs have the same seed: they are no independent samples, so the longest"
    assert words in write_comparison([*runs, copy], tmp_path / "all.html").read_text()
    assert words not in write_comparison(runs[2:], tmp_path / "all.html").read_text()


def test_run_that_a_resume_has_changed_is_marked_and_no_sample_of_its_configuration(
    runs: list[Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(runs[0], tmp_path / "copy")
    line = {"tick": 700, "key": "policies.p0.options.gamma", "was": "0.5", "now": "0.9"}
    (copy / "resumes.jsonl").write_text(json.dumps(line) + "\n")
    data = compared([read_run(path) for path in (runs[1], copy)])
    assert [group.differs for group in data.groups] == [
        {"policies.p0.options.gamma until tick 700": value} for value in ("", "0.5")
    ]
    text = re.sub("<[^>]+>", "", page(read_run(copy)))
    assert "A resume has changed values of the configuration" in text and "by a resume; before 0.5" in text
    assert "A resume has changed" not in page(read_run(runs[1]))


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


def test_only_matches_without_known_replays_are_looked_up_again(own: RunFolder) -> None:
    reader = RunReader(own.path)

    def found() -> set[tuple[int, int]]:
        files = reader.look()
        rows = recorded(own, files.episodes, known=files.replays)
        return {*zip(files.episodes.round[rows].tolist(), files.episodes.match[rows].tolist(), strict=True)}

    first, second = (match_path(own.replays, match, round=match) / MANIFEST for match in (0, 1))
    first.parent.mkdir(parents=True)
    first.write_text("")
    assert found() == {(0, 0)}
    first.unlink()  # it is not looked up again
    second.parent.mkdir(parents=True)
    second.write_text("")
    assert found() == {(0, 0), (1, 1)}
    own.config.write_text(own.config.read_text() + "\n")  # as a resume does: all is read again
    assert found() == {(1, 1)}


def test_results_of_replays_are_found_in_one_pass(own: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    files = read_run(own.path)
    lines = [line for line in JournalReader(own.episodes).lines(EpisodeRecord) if (line.round, line.match) == (1, 0)]
    manifest = match_path(own.replays, 0, round=1) / MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.write_text("")
    places = [(1, 0, one.lane, one.episode) for one in lines[-3:]]
    replays = [Replay(*place, env="touchdown", pieces=[], ticks=1) for place in [*places, (1, 0, 0, 9999)]]
    read = list[EpisodeRecord]()

    def noted(*arguments: Any) -> Iterator[EpisodeRecord]:
        for one in records(*arguments):
            read.append(one)
            yield one

    monkeypatch.setattr(sections, "records", noted)
    found = sections._results(replays[:3], files, recorded(own, files.episodes))
    assert found == {place: result_text(one) for place, one in zip(places, lines[-3:], strict=True)}
    assert len(read) == 3, "the newest episodes are read first"
    data = page_data(files, replays)
    assert [one.result for one in data.replays] == [*map(found.get, places), ""]
