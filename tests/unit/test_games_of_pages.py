"""What the board's games are made of: messages, pictures, recorded episodes; and rated games of people."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from arena.board import watch
from arena.board.board import board_at
from arena.board.games import Games
from arena.board.live import Page
from arena.board.play import configs
from arena.board.watch import _filters
from arena.cli.board_games.pipe import png
from arena.cli.board_games.played import _PageOutput, refusal
from arena.cli.play.decisions import Decision, Option
from arena.cli.play.match import human_match, place_for_records
from arena.config import load_config, parse_config
from arena.errors import ConfigError, WriteError
from arena.league.human_games import RatedGame
from arena.league.read_results import GameReader, read
from arena.league.sources import Source
from arena.opened import Run, rated
from arena.records.folder import RunFolder, match_path
from arena.records.formats import HumanGameLine
from arena.records.journal import Journal
from arena.report.recorded import recorded, records
from league_folders import League, write_league
from policies.random import Random
from working_folder import working_directory

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 48)])
def test_a_picture_is_sent_without_loss(shape: tuple[int, int]) -> None:
    picture = RNG.integers(0, 256, (*shape, 3), np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(picture)))), picture)


PROGRAM = """
import os, sys
import numpy as np
from arena.cli.board_games.pipe import game_pipe, run_program
from arena.errors import ConfigError
def body():
    print("not a message")
    how = game_pipe().receive(wait=True)["how"]
    game_pipe().say({"kind": how, "reward": float("nan"), "bounds": (-np.inf, 1.0)}, np.zeros((2, 2)))
    if how == "refuses":
        raise ConfigError("no such game")
    if how == "fails":
        raise RuntimeError("out of ideas")
    if how == "dies":
        os.kill(os.getpid(), 9)
    game_pipe().receive(wait=True)
run_program(body)
"""


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("refuses", "no such game"),
        ("fails", "The game's process has ended: RuntimeError: out of ideas"),
        ("dies", "The game's process has ended by signal 9: not a message"),
        ("waits", None),
    ],
)
def test_a_page_is_told_why_a_games_process_ends(
    how: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "game_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def messages() -> list[dict[str, Any]]:
        games, found = Games(), []
        played = games.play("number", "game_program")
        reading = asyncio.create_task(anext(played))
        while "number" not in games._open:
            await asyncio.sleep(0.01)
        games.say("number", {"how": how})
        found.append(json.loads(await reading))
        process = games._open["number"]
        if why is not None:
            found += [json.loads(one) async for one in played]
        await played.aclose()
        await games.close()
        assert process.returncode is not None and games._open == {}
        return found

    first, *last = asyncio.run(messages())
    assert first == {"kind": how, "reward": None, "bounds": [None, 1.0]}  # a picture without colors is left out
    assert last == ([] if why is None else [{"kind": "error", "text": why}])


def line(number: int) -> dict[str, Any]:
    outcomes = [("win", "loss"), ("draw", "draw"), ("loss", "win"), (None, None)][int(RNG.integers(4))]
    seats = [
        {"policy": str(RNG.choice(["p0", "p1", "p2"])), "entities": [seat], "return": value, "outcome": outcome}
        for seat, outcome in enumerate(outcomes)
        for value in [None if RNG.random() < 0.1 else float(RNG.integers(-3, 4)) / 10]
    ]
    where = {"round": int(RNG.integers(3)), "match": int(RNG.integers(3)), "env": "game", "lane": 0, "episode": number}
    ends = {"tick": number + 1, "length": int(RNG.integers(1, 40)), "terminated": True, "truncated": False}
    return {**where, **ends, "seats": seats, "cut": bool(RNG.random() < 0.2)}


FILTERS: list[dict[str, str]] = [
    {},
    {"round": "1"},
    {"match": "0", "shortest": "10", "longest": "20"},
    {"policy": "p1"},
    {"policy": "p1", "outcome": "win"},
    {"outcome": "none"},
    {"policy": "p0", "outcome": "loss", "least": "-0.1", "most": "0.2", "round": "2"},
    {"least": "0.1"},
    {"policy": "stranger"},
]


def fits(line: dict[str, Any], wanted: dict[str, str]) -> bool:
    """The filter, written down slowly; matches 2 have no replays."""
    if line["match"] == 2 or any(key in wanted and line[key] != int(wanted[key]) for key in ("round", "match")):
        return False
    if not int(wanted.get("shortest", 0)) <= line["length"] <= int(wanted.get("longest", 999)):
        return False
    return any(
        wanted.get("policy", seat["policy"]) == seat["policy"]
        and wanted.get("outcome", seat["outcome"] or "none") == (seat["outcome"] or "none")
        and ("least" not in wanted or (seat["return"] is not None and seat["return"] >= float(wanted["least"])))
        and ("most" not in wanted or (seat["return"] is not None and seat["return"] <= float(wanted["most"])))
        for seat in line["seats"]
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of three policies and three rounds, with replays of the matches 0 and 1."""
    folder = write_league(tmp_path / "run", League(policies=3, episodes=30, rounds=3))
    for match in (0, 1):
        for number in range(3):
            match_path(folder.replays, match, round=number).mkdir(parents=True)
            (match_path(folder.replays, match, round=number) / "manifest.json").touch()
    return folder


def write(folder: RunFolder, lines: list[dict[str, Any]], rest: str = "") -> None:
    folder.episodes.write_text("".join(f"{json.dumps(one)}\n" for one in lines) + rest)


def test_episodes_are_found_as_by_a_slow_filter_while_they_grow(run: RunFolder) -> None:
    board, lines = board_at(run.path.parent), list[dict[str, Any]]()
    for _ in range(3):
        lines += [line(number) for number in range(len(lines), len(lines) + 150)]
        write(run, lines, '{"round": 0, "unfin')
        with board.reader(run.path) as reader:
            table = reader.look().episodes
        for wanted in FILTERS:
            found = recorded(run, table, _filters(wanted))
            places = [place for place, one in enumerate(lines) if fits(one, wanted)][::-1]
            assert found.tolist() == sorted(places, key=lambda place: lines[place]["cut"]), wanted
        assert [record.episode for record in records(run, table, found[:5])] == found[:5].tolist()
    with pytest.raises(HTTPException, match="least is to be a number"):
        _filters({"least": "x"})


def test_a_resumed_run_and_one_that_was_mended_are_read_again(run: RunFolder) -> None:
    board, before, after = (
        board_at(run.path.parent),
        [line(number) for number in range(9)],
        [line(7) for _ in range(30)],
    )
    write(run, before)
    with board.reader(run.path) as reader:
        assert len(reader.look().episodes.tick) == 9
    run.config.write_text(run.config.read_text() + "\n")
    write(run, [*before[:4], *after])  # it is longer now
    with board.reader(run.path) as reader:
        table = reader.look().episodes
        assert [one.episode for one in records(run, table, range(34))] == [0, 1, 2, 3, *[7] * 30]
        write(run, [*before[:4], *after], "no line\n")
        with pytest.raises(ConfigError, match="line 35"):
            reader.look()
        write(run, [line(number) for number in range(60)])
        assert reader.look().episodes.of("p0").episode.max() < 60


def test_all_pages_share_one_reader_and_old_ones_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [write_league(tmp_path / name, League(policies=2, episodes=40, rounds=1)).path for name in "abc"]
    monkeypatch.setattr("arena.board.board._MOST_EPISODES", 90)
    board, readers = board_at(tmp_path), []
    for folder in (*folders[:2], folders[0], folders[2], folders[0]):
        with board.reader(folder) as reader:
            readers.append(reader)
            assert reader.look().episodes.results > 0
    assert readers[0] is readers[2] is readers[4]
    assert [*board.readers] == [folders[2], folders[0]], "the one that was not asked for the longest time is gone"
    board.pages, kept = dict.fromkeys([(Page, folders[2]), (Page, folders[0])]), {**board.readers}
    for folder in (folders[1], folders[2], folders[0]):
        with board.reader(folder) as reader:
            reader.look()
    assert board.readers == kept, "those of pages that are kept up stay"


def test_a_long_run_is_read_to_its_end_while_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = (write_league(tmp_path / name, League(policies=2, episodes=40, rounds=2)) for name in "ab")
    board, pauses = board_at(tmp_path), list[int]()

    def sleep(_: float) -> None:
        pauses.append(len(pauses))
        assert len(pauses) < 100
        with board.reader(other.path) as reader:
            reader.look()

    monkeypatch.setattr("arena.board.board._MOST_EPISODES", 1)
    monkeypatch.setattr(watch, "_PART", 3000)
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    app = SimpleNamespace(state=SimpleNamespace(board=board))
    request: Any = SimpleNamespace(app=app, path_params={"path": "a"}, query_params={})
    assert json.loads(watch._rows(request).body)["known"] == len(folder.episodes.read_text().splitlines())
    assert len(pauses) > 2


class OneEntity(Random):
    face = "gym"


def test_a_person_may_play_against_any_algorithm() -> None:
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": f"{__name__}:OneEntity"}}
    envs, matches = {"game": {"make": "touchdown"}}, [{"env": "game", "seats": ["blue", "red"]}]
    data = {"ticks": 10, "envs": envs, "policies": policies, "matches": matches}
    config, output = parse_config(data, source="pages.yaml"), _PageOutput()
    options = {"match": 0, "seats": [0], "against": [], "options": {}}
    game = human_match(config, Source(config), output, advice=None, **options)  # type: ignore[arg-type]
    assert [player.human for player in game.players] == [True, False]
    with pytest.raises(ConfigError, match=r"--advice: .* of 'red' has no face 'vector'"):
        human_match(config, Source(config), output, advice="red", **options)  # type: ignore[arg-type]


def test_the_list_of_play_has_configurations_alone(tmp_path: Path) -> None:
    text, names = "ticks: 1\npolicies: {a: {algorithm: random}}\n", ["a.yaml", "configs/b.yaml"]
    for name in [*names, "configs/.hidden.yaml", "configs/\udcff/c.yaml"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "sweep.yaml").write_text("config: a.yaml\nparams: {policies.a.options.x: [1, 2]}\n")
    os.mkfifo(tmp_path / "pipe.yaml")
    with working_directory(tmp_path):
        assert [*configs()] == names


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ([1, 0.5], ""),
        ([2, 0.5], "2 is not allowed here: action: 1 right"),
        ([1, 7], "7 is not"),
        ([1], "1 choices for 2"),
    ],
)
def test_choices_of_a_page_are_checked(choices: list[float], why: str) -> None:
    decisions = [Decision("action", [Option(1, "right", 1)]), Decision("force", [], bounds=(-1.0, 1.0))]
    wrong = refusal(decisions, choices)
    assert why in wrong and bool(why) == bool(wrong)


def played(folder: RunFolder, *games: tuple[int, str, str, Any]) -> None:
    with_lines = Journal(folder.human_games)
    with_lines.extend(
        [HumanGameLine(tick=tick, first=(first,), second=(second,), outcome=outcome, folder="human-0001")
         for tick, first, second, outcome in games]
    )  # fmt: skip
    with_lines.close()


def test_games_of_people_count_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=200, rounds=3))
    before = read(folder).results
    played(folder, (1500, "human", "p1", "win"), (3000, "p1", "human", "draw"))
    assert read(folder).results.players == before.players  # matchmaking does not see them
    found = read(folder, people=True)
    assert {*found.results.players} == {*before.players, "human"}
    score = found.results.between("human", "p1")
    assert (score.wins, score.draws, score.losses) == (1, 1, 0)
    (period,) = [one for one in found.timeline.periods if one.results.between("human", "p1").wins]
    assert period.start < 1500 <= period.end  # at which p1 had these weights
    assert read(folder, until=2000, people=True).results.between("human", "p1").games == 1


def test_a_game_of_a_person_does_not_move_all_others(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=3000, rounds=2))
    before = {row.player: row for row in rated(Run(folder.path)).table.tables[0]}
    played(folder, (1500, "human", "p1", "loss"))
    after = {row.player: row for row in rated(Run(folder.path)).table.tables[0]}
    assert after.keys() - before.keys() == {"human"}
    assert sum(after[name].elo for name in before) == pytest.approx(0.0, abs=1e-6)
    for name, row in before.items():
        assert after[name].elo == pytest.approx(row.elo, abs=5)
        assert after[name].high - after[name].low == pytest.approx(row.high - row.low, rel=0.1)


def test_a_run_whose_only_winners_are_people_is_rated(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=20, rounds=1))
    lines = [json.loads(line) for line in folder.episodes.read_text().splitlines()]
    for line in lines:
        line["seats"] = [seat | {"outcome": None} for seat in line["seats"]]
    folder.episodes.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(rated(Run(folder.path)).table.without_winner) == 1
    played(folder, (500, "human", "p1", "win"))
    table = rated(Run(folder.path)).table
    assert [row.player for rows in table.tables for row in rows] == ["human", "p1"]
    assert table.without_winner == []


def test_games_of_people_are_read_once(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=50, rounds=2))
    reader = GameReader(folder, load_config(folder.config), people=True)
    for number in range(1, 4):
        played(folder, (1000, "human", "p0", "win"))
        assert reader.read().results.between("human", "p0").games == number


def test_games_that_begin_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    assert len({place_for_records(RunFolder(tmp_path)) for _ in range(3)}) == 3


def test_records_that_cannot_be_kept_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def fails(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name.startswith("human-"):
            raise PermissionError(13, "Permission denied")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", fails)
    with pytest.raises(WriteError, match="evaluations cannot be written: Permission denied"):
        place_for_records(RunFolder(tmp_path))


def test_only_games_whose_ratings_mean_something_are_rated(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=50, rounds=2))
    folder.config.write_text(folder.config.read_text().replace("algorithm: random", "algorithm: ppo"))
    config = load_config(folder.config)
    RatedGame(folder, config, people=1, opponents=["p0", "p1"])
    RatedGame(folder, config, people=1, opponents=["p0", "random"])  # which is the same at all ticks
    for people, opponents, why in [(2, ["p0"], "one person"), (1, [], "one person"), (1, ["p0@7", "p1@9"], "one tick")]:
        with pytest.raises(ConfigError, match=why):
            RatedGame(folder, config, people=people, opponents=opponents)
