"""Results read from a run folder: which games count, and what is said of the others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.main import main
from arena.config import load_config, parse_config
from arena.config.load import resolved_yaml
from arena.league.metagame import measures
from arena.league.read_results import GameReader, read
from arena.league.results import Encounter, Score
from arena.league.timeline import Timeline
from arena.opened import open_run
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.report.episodes import EpisodeRows

PAIR = [[0], [1]]
TICKS = 100  # of a round
OTHER = {"win": "loss", "draw": "draw", "loss": "win", None: None}


def config(**policies: dict[str, Any]) -> dict[str, Any]:
    """`a` and `b` learn unless it is said otherwise; `s` follows a script."""
    usual: dict[str, dict[str, Any]] = {"a": {"algorithm": "ppo"}, "b": {"algorithm": "ppo"}}
    return {
        "name": "league",
        "ticks": TICKS,
        "envs": {"touchdown": {"make": "touchdown", "kwargs": {"team_size": 1}}},
        "policies": {**usual, "s": {"algorithm": "scripted"}, **policies},
        "matches": [{"env": "touchdown", "seats": ["a", "b"]}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of one round in which `a` meets `b`, without episodes."""
    found = RunFolder(tmp_path)
    found.write_config(resolved_yaml(parse_config(config(), source="league.yaml")))
    write_plan(found, {"match": 0, "sides": PAIR})
    return found


def write_plan(folder: RunFolder, *matches: Mapping[str, Any]) -> None:
    whole = [{"env": "touchdown", "env_kwargs": {}, "lanes": 1, "seats": [], **match} for match in matches]
    folder.plan.write_text(json.dumps({"name": "league", "processes": 1, "matches": whole, "ranks": []}))


def write_rounds(folder: RunFolder, *rounds: Mapping[str, Any]) -> None:
    lines = [
        {
            "version": 1,
            "round": number,
            "start": 100 * number,
            **line,
            "matches": [
                {"env": "touchdown", "seats": [], **match}
                for match in line.get("matches", [{"match": 0, "sides": PAIR}])
            ],
        }
        for number, line in enumerate(rounds)
    ]
    folder.rounds.write_text("".join(json.dumps(line) + "\n" for line in lines))


def episode(players: str | Sequence[str], outcome: str | None, *, round: int = 0, **fields: Any) -> dict[str, Any]:
    """A line; `outcome` is the first player's."""
    ends = (outcome, OTHER[outcome])
    seats = [
        {"policy": name, "entities": [seat], "return": float(seat), "outcome": end, "idle_ticks": 0}
        for seat, (name, end) in enumerate(zip(players, ends, strict=True))
    ]
    head = {"round": round, "match": 0, "env": "touchdown", "lane": 0, "episode": 0, "tick": 9, "length": 9}
    return {**head, "terminated": True, "truncated": False, "seats": seats, **fields}


def write_episodes(folder: RunFolder, *lines: Mapping[str, Any], rest: str = "") -> None:
    folder.episodes.write_text("".join(json.dumps(line) + "\n" for line in lines) + rest)


def test_finished_games_count_in_their_order(folder: RunFolder) -> None:
    write_episodes(folder, episode("ab", "win"), episode("ba", "win"), episode("ab", "draw"))
    found = read(folder)
    assert found.results.between("a", "b") == Score(1, 1, 1)
    ((one, other, draw),) = so_far(folder, 0).played[0].values()
    assert (one.outcome, other, draw.outcome) == ("win", Encounter(("b",), ("a",), "win"), "draw")
    assert (found.episodes, found.unrated, found.aborted, found.unfinished) == (3, 0, 0, 0)


def test_cut_game_or_idle_seat_is_aborted(folder: RunFolder) -> None:
    idle = episode("ab", "win")
    idle["seats"][1]["idle_ticks"] = 3
    write_episodes(folder, episode("ab", None, cut=True), idle, episode("ab", "loss"))
    found = read(folder)
    assert (found.episodes, found.aborted, found.results.games) == (3, 2, 1)


def test_cut_games_are_counted_per_player(folder: RunFolder) -> None:
    write_rounds(folder, {}, {"resets": ["b"]}, {"matches": [{"match": 0, "sides": []}]})
    games = [("ab", 0), ("ab", 0), ("as", 0), ("as", 1), ("sa", 1), ("aa", 1), ("ab", 2)]
    whole = [episode("ab", "win", length=length) for length in (5, 6)]
    write_episodes(folder, *whole, *(cut_by_round(pair, number) for pair, number in games))
    found = read(folder)
    assert found.cut == {"a": 5, "b": 2, "s": 3}, "a policy that meets itself, or no other, is not rated"
    assert found.aborted == len(games)


def cut_by_round(players: str, round: int = 0, **fields: Any) -> dict[str, Any]:
    return episode(players, None, round=round, cut=True, tick=TICKS * (1 + round), **fields)


@pytest.mark.parametrize(("tick", "counted"), [(130, 0), (140, 1), (150, 0), (160, 1), (200, 1)])
def test_games_cut_by_ctrl_c_are_no_sign_of_short_legs(folder: RunFolder, tick: int, counted: int) -> None:
    text = folder.config.read_text()
    folder.config.write_text(re.sub(r"checkpoint_every: \d+", "checkpoint_every: 20", text))
    write_rounds(folder, {}, {})
    whole = [episode("ab", "win", length=length) for length in (5, 6)]
    write_episodes(folder, *whole, episode("ab", None, round=1, cut=True, tick=tick))
    assert read(folder).cut == dict.fromkeys("ab" * counted, 1)


def test_a_game_without_a_winner_or_without_two_sides_is_not_rated(folder: RunFolder) -> None:
    write_episodes(folder, episode("ab", None))
    assert (read(folder).unrated, read(folder).results.games) == (1, 0)
    write_plan(folder, {"match": 0, "sides": []})
    write_episodes(folder, episode("ab", "win"))
    assert (read(folder).unrated, read(folder).results.games) == (1, 0)


@pytest.mark.parametrize(("first", "second"), [("win", "win"), ("loss", "loss"), ("win", "draw"), ("loss", None)])
def test_games_whose_outcomes_do_not_fit_are_said(folder: RunFolder, first: str, second: str | None) -> None:
    wrong = episode("ab", first)
    wrong["seats"][1]["outcome"] = second
    write_episodes(folder, episode("ab", "draw"), wrong, wrong, episode("ab", "win"))
    found = read(folder)
    assert (found.unrated, found.results.between("a", "b")) == (2, Score(1, 1, 0))
    (line,) = found.without_winner
    assert line.startswith("not rated: 2 games of 'touchdown' in which both sides won, both lost, or only one side has")


def test_teams_are_the_sides_of_the_plan(folder: RunFolder) -> None:
    write_plan(folder, {"match": 0, "sides": [[0, 2], [1, 3]]})
    line = episode("ab", "win")
    line["seats"] = [{**line["seats"][seat % 2], "policy": name} for seat, name in enumerate("absb")]
    write_episodes(folder, line)
    assert read(folder).results.pairs() == {(("a", "s"), ("b", "b")): Score(wins=1)}


def test_renumbered_match_keeps_its_sides(folder: RunFolder) -> None:
    seats = [[{"policy": name, "entities": [0]} for name in names] for names in ("abss", "ab")]
    envs, sides = ("large", "small"), ([[0, 1], [2, 3]], [[1], [0]])
    now = [{"match": n, "env": envs[n], "seats": seats[n], "sides": sides[n]} for n in (0, 1)]
    write_plan(folder, *now)  # when they were played, the first match had two copies: 0 and 1
    teams = episode("ab", "win", match=1, env="large")
    teams["seats"] = [{**teams["seats"][seat // 2], "policy": name} for seat, name in enumerate("abss")]
    write_episodes(folder, teams, *(episode("ab", "win", match=match, env="small") for match in (2, 1)))
    small = [Encounter(("b",), ("a",), "loss")]
    assert so_far(folder, 0).played == [{1: [Encounter(("a", "b"), ("s", "s"), "win"), *small], 2: small}]


def test_a_run_may_lack_episodes_or_end_with_a_partial_line(folder: RunFolder) -> None:
    assert (read(folder).episodes, read(folder).results.games) == (0, 0)
    assert so_far(folder, 0).returns == {}
    write_episodes(folder, episode("ab", "win"), rest='{"round": 0, "mat')
    assert (read(folder).unfinished, read(folder).results.games) == (1, 1)


# --- rounds ---------------------------------------------------------------------------------------------------------


def test_games_have_the_parts_of_rounds_in_which_they_ended(folder: RunFolder) -> None:
    write_rounds(folder, {}, {})
    ends = [(0, 1), (0, TICKS), (1, TICKS + 1), (1, TICKS + TICKS // 2 + 1)]
    write_episodes(folder, *(episode("ab", "win", round=number, tick=tick) for number, tick in ends))
    found = read(folder).timeline
    assert [(one.start, one.results.games) for one in found.periods if one.results.games] == [
        (0, 1),
        (TICKS * 7 // 8, 1),
        (TICKS, 1),
        (TICKS + TICKS // 2, 1),
    ]
    assert (found.end, found.learners) == (TICKS + TICKS // 2 + 1, {"a", "b"}), "as far as games are on record"
    assert read(folder, last=0).timeline.end == TICKS, "a round that is over ends with its last tick"


@pytest.mark.parametrize("anew", [{"resets": ["a"]}, {"forks": {"a": {"from": "b", "options": {}}}}])
def test_replaced_policy_starts_without_games(folder: RunFolder, anew: dict[str, Any]) -> None:
    write_rounds(folder, {}, anew, {})
    write_episodes(folder, *(episode(pair, "win", round=number) for number in range(3) for pair in ("as", "bs")))
    found = read(folder)
    assert found.results.between("a", "s") == Score(wins=3), "all games tell about the other players"
    assert found.timeline.tallies()["a"] == Score(wins=2)
    assert found.timeline.tallies()["b"] == Score(wins=3)


def test_later_rounds_are_not_read_and_unplayed_ones_change_no_player(folder: RunFolder) -> None:
    write_rounds(folder, {}, {}, {"resets": ["a"]})
    write_episodes(folder, *(episode("as", "win", round=number) for number in range(3)))
    assert read(folder, last=1).results.between("a", "s") == Score(wins=2)
    assert read(folder, last=1).episodes == 2
    write_rounds(folder, {}, {"resets": ["a"]})
    write_episodes(folder, episode("ab", "win"))
    assert read(folder).timeline.players == ("a", "b")
    assert read(folder, last=1).timeline.players == ("b",)


def test_omitted_copies_have_the_sides_of_their_original(folder: RunFolder) -> None:
    matches = [{"match": 0, "sides": PAIR}, {"match": 1, "sides": []}]
    write_rounds(folder, {"matches": matches}, {"matches": matches})
    lines = [episode("ab", "win", round=number, match=match) for number in range(2) for match in range(6)]
    write_episodes(folder, *lines)
    assert (read(folder).results.games, read(folder).unrated) == (6, 6)
    folder.rounds.unlink()
    write_plan(folder, *matches)
    write_episodes(folder, *lines[:6])
    assert (read(folder).results.games, read(folder).unrated) == (3, 3)
    write_rounds(folder, {}, {"matches": [{"match": 0, "sides": []}]})  # sides are those of the round
    write_episodes(folder, *(episode("ab", "win", round=number) for number in range(2)))
    assert (read(folder).results.games, read(folder).unrated) == (1, 1)


def test_returns_are_those_of_one_round(folder: RunFolder) -> None:
    write_rounds(folder, {}, {})
    team = episode("aa", "win", round=1)
    team["seats"][1]["entities"] = [1, 2]
    cut = episode("ab", None, round=1, cut=True)
    write_episodes(
        folder, episode("ab", "win"), episode("ab", "win", round=1), team, cut, episode("ba", "loss", round=1)
    )
    assert so_far(folder, 1).returns == {"a": [0.0, pytest.approx(2 / 3), 1.0], "b": [1.0, 0.0]}
    cut["seats"][0]["return"], cut["cut"] = None, False
    write_episodes(folder, cut)
    assert math.isnan(so_far(folder, 1).returns["a"][0]), "a return that was not finite"


# --- round after round ----------------------------------------------------------------------------------------------


def so_far(folder: RunFolder, *rounds: int) -> GameReader:
    """The games of a run, read after each of these rounds."""
    found = GameReader(folder, load_config(folder.config), keeps_played=True)
    for number in rounds:
        found.read(number)
    return found


def counting(timeline: Timeline) -> list[Any]:
    """The games that count, by when they were played."""
    return [(one.start, one.end, [*one.results.scores()]) for one in timeline.periods]


def won(*, round: int) -> dict[str, Any]:
    return episode("ab", "win", round=round, tick=100 * round + 9)


def test_incremental_reading_equals_reading_the_whole_file(folder: RunFolder) -> None:
    write_rounds(folder, {}, {}, {})
    lines = [won(round=0), won(round=0), won(round=1), episode("ab", None, round=2, tick=209)]
    games = so_far(folder)
    for number, played in enumerate((2, 3, 4)):
        write_episodes(folder, *lines[:played], rest="" if number else '{"round": 1, "mat')
        timeline, whole = games.read(number).timeline, read(folder, last=number)
        assert counting(timeline) == counting(whole.timeline) and timeline.end == whole.timeline.end
        assert timeline.results.games == (2, 3, 3)[number]
        assert [len(played.get(0, ())) for played in games.played] == ([2], [2, 1], [2, 1, 0])[number]
        assert games.returns == so_far(folder, number).returns
        assert counting(games.read(number).timeline) == counting(timeline), "the same again"


# --- damaged folders ------------------------------------------------------------------------------------------------


def test_payoffs_of_a_run_without_rounds_follow_a_change_of_the_winner(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "SAMPLES", 20)
    games = [
        episode("ab", "win" if (number % 10 > 0) == (number < 500) else "loss", tick=1 + number // 10, length=1)
        for number in range(1000)
    ]
    write_episodes(folder, *games)
    found = {}
    for at in ("50", "100"):
        assert main(["standings", str(folder.path), "--json", "--at", at]) == 0
        shown = json.loads(capsys.readouterr().out)
        (payoff,) = (one for one in shown["payoffs"] if one["player"] == "a")
        low, high = payoff["low"], payoff["high"]
        found[at] = payoff["score"], {one["player"]: one["nash"]["value"] for one in shown["meta_game"]}
        assert low <= {"50": 0.9, "100": 0.1}[at] <= high
        assert payoff["counted"] < 500 <= payoff["games"] == 10 * int(at)
    assert found["50"][0] == pytest.approx(0.9, abs=0.02) and found["50"][1] == {"a": 1, "b": 0}
    assert found["100"][0] == pytest.approx(0.1, abs=0.02) and found["100"][1] == {"a": 0, "b": 1}


def test_pairs_have_all_games_also_those_too_old_to_count(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rounds(folder, *({} for _ in range(24)))
    old = [episode("as", outcome, tick=50, length=1) for outcome in ("win", "loss", "win", "draw")]
    new = [
        episode("ab", "win" if number % 2 else "loss", round=number, tick=100 * number + 1 + game, length=1)
        for number in range(1, 24)
        for game in range(40)
    ]
    write_episodes(folder, *old, *new)
    found = {(one["player"], one["opponent"]): one for one in open_run(folder.path).payoffs()}
    unknown = {"counted": 0, "score": None, "low": None, "high": None}
    assert found["a", "s"] == {
        "player": "a",
        "opponent": "s",
        **{"games": 4, "wins": 2, "draws": 1, "losses": 1},
        **unknown,
    }
    assert found["s", "a"].items() >= {"games": 4, "wins": 1, "draws": 1, "losses": 2, **unknown}.items()
    assert (found["a", "b"]["games"], found["a", "b"]["wins"]) == (23 * 40, 12 * 40) and found["a", "b"]["counted"]
    assert main(["standings", str(folder.path), "--pairs"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert any({"a", "s"} == {*line[:2]} and line[2:] in ([*"42110", *"--"], [*"41120", *"--"]) for line in shown)


def test_alike_games_of_several_lengths_do_not_count_as_one_length(folder: RunFolder) -> None:
    games = [episode("ab", "win", length=length, tick=2) for length in (6, 7, 6)]
    write_episodes(folder, cut_by_round("ab", length=5), *games)
    reader, rows = GameReader(folder, load_config(folder.config)), EpisodeRows()
    for found, sizes in JournalReader(folder.episodes).batches(EpisodeRecord):
        reader.read_also(found, rows.take(found, np.array(sizes)))
    assert reader.so_far().cut == read(folder).cut == {"a": 1, "b": 1}


@pytest.mark.parametrize("outcome", [None, "higher_return"])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_alike_games_at_once_count_as_each_alone(folder: RunFolder, size: int, outcome: str | None) -> None:
    rng, ends = np.random.default_rng(4), ["win", "draw", "loss"]
    text = folder.config.read_text()
    folder.config.write_text(text.replace("outcome: null", f"outcome: {outcome or 'null'}"))
    sides = [PAIR, [[0, 1], [2]], [[0], [1], [2]]]
    write_rounds(folder, *({"matches": [{"match": n, "sides": one} for n, one in enumerate(sides)]} for _ in range(3)))
    lines = []
    for number in range(500):
        match, round_ = int(rng.integers(3)), number // 200
        fields = {"match": match, "lane": int(rng.integers(9)), "episode": number, "tick": 1 + number // 2}
        fields |= {"length": int(rng.integers(8, 10)), "cut": bool(rng.random() < 0.2), "ranked": match == 2}
        if fields["cut"] and round_ < 2 and rng.random() < 0.5:
            fields["tick"] = TICKS * (1 + round_)
        one = episode("ab", str(rng.choice(ends)), round=round_, **fields)
        one["seats"] = [one["seats"][0]] * (1 + (match == 1)) + [one["seats"][1]] * (1 + (match == 2))
        one["seats"] = [{**seat, "policy": str(rng.choice(["a", "b", "s", "a@50"]))} for seat in one["seats"]]
        for seat in one["seats"] if match == 2 else ():
            seat["return"] = float(rng.integers(9))
        one["seats"][0]["idle_ticks"] = int(rng.random() < 0.1)
        lines.append(one)
    write_episodes(folder, *lines)
    games, rows = GameReader(folder, load_config(folder.config)), EpisodeRows()
    for found, sizes in JournalReader(folder.episodes).batches(EpisodeRecord, size=200 * size):
        games.read_also(found, rows.take(found, np.array(sizes)))
    one, other = games.so_far(), read(folder)
    assert one._replace(timeline=other.timeline) == other and one.episodes == 500 and one.aborted > 0 < one.unrated + 1
    for mine, theirs in zip(one.timeline.periods, other.timeline.periods, strict=True):
        assert mine._replace(results=theirs.results) == theirs
        assert {*mine.results.scores()} == {*theirs.results.scores()} != set()
