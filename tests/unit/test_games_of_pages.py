"""What the board's games are made of: messages, pictures, the index of episodes; and rated games of people."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arena.board.pipes import fields_of, message, png
from arena.board.watch import EpisodeIndex
from arena.cli.board_games.page_human import _wrong
from arena.cli.play.decisions import Decision, Option
from arena.config import load_config
from arena.errors import ConfigError
from arena.league.human_games import RatedGame
from arena.league.read_results import GameReader, read
from arena.records.folder import RunFolder, match_path
from arena.records.formats import HumanGameLine
from arena.records.journal import Journal
from league_folders import League, write_league

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 48)])
def test_a_picture_is_sent_without_loss(shape: tuple[int, int]) -> None:
    picture = RNG.integers(0, 256, (*shape, 3), np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(picture)))), picture)


def test_a_message_begins_with_its_lengths() -> None:
    sent = message({"kind": "frame", "tick": 3}, b"12345")
    assert fields_of(sent) == {"kind": "frame", "tick": 3}
    assert sent.endswith(b"}12345") and len(sent) == 8 + int.from_bytes(sent[:4], "little") + 5


def test_numbers_that_json_has_not_are_null() -> None:
    assert fields_of(message({"reward": float("nan"), "bounds": (-np.inf, 1.0)})) == {
        "reward": None,
        "bounds": [None, 1],
    }


def line(number: int) -> dict[str, Any]:
    outcomes = [("win", "loss"), ("draw", "draw"), ("loss", "win"), (None, None)][int(RNG.integers(4))]
    seats = [
        {"policy": str(RNG.choice(["a", "b", "c"])), "entities": [seat], "return": value, "outcome": outcome}
        for seat, outcome in enumerate(outcomes)
        for value in [None if RNG.random() < 0.1 else float(RNG.integers(-3, 4)) / 10]
    ]
    where = {"round": int(RNG.integers(3)), "match": int(RNG.integers(3)), "env": "game", "lane": 0, "episode": number}
    ends = {"tick": number + 1, "length": int(RNG.integers(1, 40)), "terminated": True, "truncated": False}
    return {**where, **ends, "seats": seats}


FILTERS: list[dict[str, str]] = [
    {},
    {"round": "1"},
    {"match": "0", "shortest": "10", "longest": "20"},
    {"policy": "b"},
    {"policy": "b", "outcome": "win"},
    {"outcome": "none"},
    {"policy": "a", "outcome": "loss", "least": "-0.1", "most": "0.2", "round": "2"},
    {"least": "0.1"},
    {"policy": "nobody"},
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


def test_index_finds_episodes_as_a_slow_filter_and_grows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for match in (0, 1):
        for number in range(3):
            match_path(folder.replays, match, round=number).mkdir(parents=True)
            (match_path(folder.replays, match, round=number) / "manifest.json").touch()
    index, lines = EpisodeIndex(folder), list[dict[str, Any]]()
    for _ in range(3):
        lines += [line(number) for number in range(len(lines), len(lines) + 150)]
        folder.episodes.write_text("".join(f"{json.dumps(one)}\n" for one in lines) + '{"round": 0, "unfin')
        index.grow()
        assert len(index) == len(lines)
        for wanted in FILTERS:
            found = index.found(wanted)
            assert found.tolist() == [place for place, one in enumerate(lines) if fits(one, wanted)][::-1], wanted
        assert [record.episode for record in index.records(found[:5])] == found[:5].tolist()
    folder.episodes.write_text(f"{json.dumps(lines[7])}\n")  # another run in the same folder
    index.grow()
    assert len(index) == 1


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
    wrong = _wrong(decisions, choices)
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


def test_games_of_people_are_read_once(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=2, episodes=50, rounds=2))
    reader = GameReader(folder, load_config(folder.config), people=True)
    for number in range(1, 4):
        played(folder, (1000, "human", "p0", "win"))
        assert reader.read().results.between("human", "p0").games == number


def test_only_games_whose_ratings_mean_something_are_rated(tmp_path: Path) -> None:
    folder = write_league(tmp_path / "run", League(policies=3, episodes=50, rounds=2))
    folder.config.write_text(folder.config.read_text().replace("algorithm: random", "algorithm: ppo"))
    config = load_config(folder.config)
    RatedGame(folder, config, people=1, opponents=["p0", "p1"])
    RatedGame(folder, config, people=1, opponents=["p0", "random"])  # which is the same at all ticks
    for people, opponents, why in [(2, ["p0"], "one person"), (1, [], "one person"), (1, ["p0@7", "p1@9"], "one tick")]:
        with pytest.raises(ConfigError, match=why):
            RatedGame(folder, config, people=people, opponents=opponents)
