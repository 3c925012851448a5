"""Games cut by the end of a leg are played to their ends, by players that do not learn from them."""

from __future__ import annotations

import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import ConfigError
from arena.launch import lead
from arena.league.read_results import read
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.environment.cut_games import median_by_ticks
from arena.run.prepare import prepare
from arena.terminal.display import PlainDisplay
from uneven import LOST, WON

RANDOM = {"algorithm": "random"}


def league(make: str = "uneven:Uneven", *, finish: int | None = None, **keys: Any) -> dict[str, Any]:
    match = {"env": "game", "seats": ["quick", "other"], "lanes": 32}
    return {
        "name": "league",
        "seed": 5,
        "ticks": 100,
        "rounds": 12,
        "envs": {"game": {"make": make}},
        "policies": {"quick": RANDOM, "other": RANDOM},
        "matches": [match],
        "league": {} if finish is None else {"finish_ticks": finish},
        **keys,
    }


def play(data: dict[str, Any], path: Path, *, resume: bool = False) -> tuple[RunFolder, str]:
    run = prepare(parse_config(data, source="test"), ranks=1, run_dir=str(path), resume=resume)
    shown = io.StringIO()
    assert lead.run_single_process(run, lambda run, scoreboard: None, PlainDisplay(shown, total_ticks=1)) == 0
    return run.folder, shown.getvalue()


def lines(folder: RunFolder) -> list[dict[str, Any]]:
    return list(JournalReader(folder.episodes))


def elo_of_the_quick(folder: RunFolder) -> float:
    outcomes = Counter(line["seats"][0]["outcome"] for line in lines(folder) if not line.get("cut"))
    return 400 * math.log10(outcomes["win"] / outcomes["loss"])


def test_equal_players_with_short_and_long_games_are_rated_alike(tmp_path: Path) -> None:
    folder, _ = play(league(), tmp_path / "finished")
    games = [line for line in lines(folder) if not line.get("cut")]
    assert {line["length"] for line in games} == {WON, LOST}
    assert not [line for line in lines(folder) if line.get("cut")]
    assert read(folder).cut == {}
    assert abs(elo_of_the_quick(folder)) < 25, "1,300 games: 95 % of leagues are within 19"
    cut, _ = play(league(finish=0), tmp_path / "cut")
    assert elo_of_the_quick(cut) > 80, "109 in the mean"


@pytest.mark.long
def test_equal_players_are_within_12_elo_at_few_games_per_round(tmp_path: Path) -> None:
    folder, _ = play(
        league(rounds=150, matches=[{"env": "game", "seats": ["quick", "other"], "lanes": 128}]), tmp_path / "run"
    )
    assert abs(elo_of_the_quick(folder)) < 12


def test_late_episodes_count_at_the_end_of_their_leg(tmp_path: Path) -> None:
    folder, _ = play(league(checkpoint_every=50, rounds=2), tmp_path / "run")
    late = [line for line in lines(folder) if "late" in line]
    assert {line["tick"] for line in late} == {50, 100, 150, 200}
    assert all(0 < line["late"] < line["length"] <= LOST for line in late)
    places = [(line["round"], line["match"], line["lane"], line["episode"]) for line in lines(folder)]
    assert len(places) == len({*places})


def test_games_are_played_no_longer_than_finish_ticks(tmp_path: Path) -> None:
    folder, _ = play(league(finish=15, rounds=3), tmp_path / "run")
    late = [line["late"] for line in lines(folder) if "late" in line]
    assert late
    assert max(late) <= 15
    assert [line for line in lines(folder) if line.get("cut")]


PPO = {"algorithm": "ppo", "options": {"n_steps": 20, "minibatch_size": 40, "hidden_sizes": [8]}}
DQN = {"algorithm": "dqn", "options": {"hidden_sizes": [8], "learning_starts": 20, "buffer_size": 500}}


def learning(**keys: Any) -> dict[str, Any]:
    """Matches of several faces and games, in mid-game at every boundary."""
    return {
        **league(rounds=2, checkpoint_every=50, **keys),
        "envs": {
            "game": {"make": "touchdown", "kwargs": {"max_steps": 33}},
            "tag": {"make": "tag:simple_tag", "kwargs": {"max_cycles": 17}, "outcome": "info"},
            "pole": {"make": "gymnasium:CartPole-v1"},
        },
        "policies": {"blue": PPO, "red": DQN, "wolf": PPO, "hare": RANDOM, "pole": PPO},
        "matches": [
            {"env": "game", "seats": ["blue", "red"], "lanes": 3},
            {"env": "tag", "seats": [["wolf", "wolf", "wolf"], "hare"], "sides": [[0], [1]]},
            {"env": "pole", "seats": ["pole"], "lanes": 2},
        ],
    }


def learned(folder: RunFolder) -> dict[str, Any]:
    """All results of training: checkpoints, updates, and the episodes that ended within their leg."""
    states = {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.checkpoints.rglob("*.ckpt")}
    updates = [{**line, "seconds": 0} for line in JournalReader(folder.metrics)]
    return {
        "states": states,
        "updates": sorted(updates, key=lambda line: (line["policy"], line["update"])),
        "episodes": [line for line in lines(folder) if not line.get("cut") and "late" not in line],
    }


def test_training_is_the_same_with_and_without_finished_games(tmp_path: Path) -> None:
    data = learning()
    finished, _ = play(data, tmp_path / "finished")
    data["league"] = {"finish_ticks": 0}
    cut, _ = play(data, tmp_path / "cut")
    assert learned(finished) == learned(cut)
    late = Counter(line["env"] for line in lines(finished) if "late" in line)
    assert {*late} == {"game", "tag", "pole"}
    assert sum(late.values()) == sum(bool(line.get("cut")) for line in lines(cut)) - sum(
        bool(line.get("cut")) for line in lines(finished)
    )


def test_resumed_league_finishes_the_same_games(tmp_path: Path) -> None:
    data = learning()
    whole, _ = play(data, tmp_path / "run")
    expected = whole.episodes.read_bytes()
    discard_after(whole, 100)
    play(data, whole.path, resume=True)
    assert whole.episodes.read_bytes() == expected


def test_games_that_cannot_be_copied_stay_cut_and_are_named(tmp_path: Path) -> None:
    folder, shown = play(league("uneven:Uncopyable", rounds=2), tmp_path / "run")
    assert [line for line in lines(folder) if line.get("cut")]
    assert not [line for line in lines(folder) if "late" in line]
    assert shown.count("games of 'game' that the end of a leg cuts are not played to their ends") >= 1
    assert "cannot be copied (TypeError" in shown


def test_games_in_two_blocks_stay_cut(tmp_path: Path) -> None:
    match = {"env": "game", "seats": ["quick", "other"], "lanes": 4, "pipeline": 2}
    folder, _ = play(league(rounds=2, matches=[match]), tmp_path / "run")
    assert not [line for line in lines(folder) if "late" in line]


def test_run_of_one_round_finishes_no_games(tmp_path: Path) -> None:
    data = league(rounds=1)
    data.pop("league")
    folder, _ = play(data, tmp_path / "run")
    assert [line for line in lines(folder) if line.get("cut")]


def test_negative_finish_ticks_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 0") as caught:
        parse_config(league(finish=-1), source="test")
    assert caught.value.path == "league.finish_ticks"


@pytest.mark.parametrize(
    ("lengths", "median"),
    [({10: 50, 60: 50}, 60), ({7: 1}, 7), ({10: 100, 60: 1}, 10), ({1: 3, 2: 1, 3: 1}, 2), ({}, 1)],
)
def test_median_episode_is_the_one_under_way_at_a_tick(lengths: dict[int, int], median: int) -> None:
    assert median_by_ticks(Counter(lengths)) == median
