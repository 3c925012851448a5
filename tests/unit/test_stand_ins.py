"""`plan` and `check` refuse what `train` refuses at an algorithm's construction: they build a trial instance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo.classic import connect_four_v3

from arena import registry
from arena.cli.main import main
from arena.config import yaml
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import checkpoint
from recorded_samples import record
from working_folder import working_directory

SEEN, CHOICE = Box(-1, 1, (4,), np.float32), Discrete(5)
DUEL: dict[str, Any] = {"make": "touchdown"}
TEAMS: dict[str, Any] = {"make": "touchdown", "kwargs": {"team_size": 2}}
LAKE: dict[str, Any] = {"make": "gymnasium:FrozenLake-v1"}  # for one
CHOICES: dict[str, Any] = {"make": "matrix", "kwargs": {"game": "matching_pennies"}}


def masked() -> Any:
    """A game with action masks."""
    return connect_four_v3.env()


def configuration(
    algorithm: str, options: dict[str, Any], env: dict[str, Any], seats: list[Any], ticks: int, lanes: int, **more: Any
) -> dict[str, Any]:
    blue = {"algorithm": algorithm, "options": options, **more}
    policies = {"blue": blue, "red": {"algorithm": "random"}}
    return {
        "ticks": ticks,
        "envs": {"game": env},
        "policies": policies,
        "matches": [{"env": "game", "seats": seats, "lanes": lanes}],
    }


def refused(
    folder: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], *, commands: tuple[str, ...] = ("check",)
) -> str:
    """The output of all commands that check before play: one line, and the same."""
    (folder / "match.yaml").write_text(yaml.dump(config))
    said = set()
    for command in commands:
        with working_directory(folder):
            assert main([command, "match.yaml"]) == 2
        said.add(capsys.readouterr().err)
    (words,) = said
    assert words.startswith("arena: error: ")
    assert words.count("\n") == 1
    return words


def kept(folder: Path, algorithm: str, space: Any = SEEN, **options: Any) -> str:
    """A checkpoint of an algorithm that learned with these options."""
    learned = from_spaces(
        registry.algorithm(algorithm), SpecVectorEnv(space, CHOICE), told(), ticks=9000, options=options
    )
    state = learned.state_dict()
    return str(checkpoint.save(folder / "kept", state, policy="blue", algorithm=algorithm, ticks=3, update=1))


def told() -> StubGroup:
    return StubGroup("blue", "gradients", seed=1, shared_seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [pytest.param("maddpg", marks=pytest.mark.long), "masac"])
def test_team_that_would_learn_nothing_is_refused(
    algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(algorithm, {}, TEAMS, ["blue", "blue", "red", "red"], ticks=300, lanes=1)
    assert "learning_starts: " in refused(tmp_path, capsys, config)
    config["matches"].append({**config["matches"][0], "lanes": 2})  # no common number of rows
    assert "nothing would be learned" in refused(tmp_path, capsys, config)


@pytest.mark.slow
def test_data_of_another_game_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "data", Box(-1, 1, (3,), np.float32), CHOICE, lambda seen: np.zeros(len(seen), np.int64))
    config = configuration("bc", {"data": "data"}, DUEL, ["blue", "red"], ticks=300, lanes=2)
    words = rf"policies.blue.options.data: {tmp_path}\S* has samples of blue, but not with"
    assert re.search(words, refused(tmp_path, capsys, config, commands=("plan", "check")))


DUO = ["blue", "red"]
CONTINUOUS = {"make": "touchdown", "kwargs": {"red_actions": "continuous"}}
REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [  # algorithm, options, game, seats, ticks; more; message
    # what the game's spaces leave without effect, or make impossible
    (
        ("ppo", {"log_std_init": -1.0}, DUEL, DUO, 9000),
        {},
        "options.log_std_init: |log_std_init has no effect where the actions are Discrete(5)",
    ),
    (
        ("dqn", {"normalize_observations": True}, LAKE, ["blue"], 9000),
        {},
        "options.normalize_observations: |expected false: Discrete(16) has no numbers",
    ),
    (
        ("sac", {"target_entropy": 2.0}, DUEL, DUO, 9000),
        {},
        "options.target_entropy: |auto, or at least 0 and less than 1.609",
    ),
    (("sb3:PPO", {"n_steps": 16}, DUEL, DUO, 300), {"sync": "samples"}, "sync: got 'samples'"),
    (("sb3:PPO", {"n_steps": 1}, DUEL, DUO, 300), {}, "options.n_steps: got 1 in a seat of one row"),
    (
        ("scripted", {"action": 7}, CHOICES, DUO, 300),
        {},
        "options.action: got 7, which is no action of Discrete(2)",
    ),
    (("scripted", {"action": 1}, CONTINUOUS, [["blue", "blue"]], 300), {}, "got 1, which is no action of Box"),
    (("sb3:DQN", {}, {"make": "test_stand_ins:masked"}, DUO, 9000), {}, "policies.blue: this game has action masks"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "more", "words"), REFUSED, ids=str)
def test_policies_that_cannot_play_their_seats_are_refused(
    given: Any, more: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(tmp_path, capsys, configuration(*given, lanes=1, **more))
    assert "policies.blue" in said and all(part in said for part in words.split("|"))


LOADED = [
    (
        "ppo",
        {"hidden_sizes": [32, 16]},
        {},
        "actor 4-32-16-5 stored, 4-64-64-5 here; they were learned with options.hidden_sizes: [32, 16]",
    ),
    (
        "ppo",
        {"recurrent": "lstm"},
        {},
        "a memory (lstm of 64) stored, no memory here; they were learned with options.recurrent: lstm",
    ),
    pytest.param(
        "ppo", {}, {"recurrent": "gru"}, "no memory stored, a memory (gru of 64) here", marks=pytest.mark.long
    ),
    ("ppo", {"normalize_observations": True}, {}, "normalize_observations"),
    pytest.param("dqn", {"hidden_sizes": [32]}, {}, "options.hidden_sizes", marks=pytest.mark.long),
    (
        "sb3:PPO",
        {"policy_kwargs": {"net_arch": [8]}},
        {"n_steps": 64},
        "mlp_extractor.policy_net 4-8 stored, 4-64-64 here; load them with the ",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "learned", "given", "words"), LOADED, ids=str)
def test_weights_that_do_not_fit_are_refused(
    algorithm: str,
    learned: dict[str, Any],
    given: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = kept(tmp_path, algorithm, **learned)
    config = configuration(algorithm, given, DUEL, ["blue", "red"], ticks=90000, lanes=1, load=load)
    said = refused(tmp_path, capsys, config)
    assert "policies.blue.load: " in said
    assert words in said
    assert len(said) < 600


@pytest.mark.slow
def test_weights_that_fit_are_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = kept(tmp_path, "sac", hidden_sizes=[8])
    config = configuration("sac", {"hidden_sizes": [8]}, DUEL, ["blue", "red"], ticks=90000, lanes=3, load=load)
    (tmp_path / "match.yaml").write_text(yaml.dump(config))
    with working_directory(tmp_path):
        assert main(["check", "match.yaml"]) == 0
    assert "begins with" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["dqn", "sb3:DQN"])
def test_trial_instance_has_a_small_replay(algorithm: str) -> None:
    pictures = Box(0, 255, (84, 84, 4), np.uint8)
    options = {"buffer_size": 10**9, "learning_starts": 100}  # 50 TB and more
    env = SpecVectorEnv(pictures, CHOICE, rows=4)
    made = from_spaces(registry.algorithm(algorithm), env, told(), ticks=100, options=options)
    assert made.state_dict()
