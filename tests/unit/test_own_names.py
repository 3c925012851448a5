"""Names of a user's own: registered by modules of the key `imports`, used as built-in ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import arena
from arena import registry
from arena.cli.main import main
from arena.config import parse_config
from arena.errors import ConfigError
from arena.run.api import train
from arena.run.planning import checked_plan
from arena.serving.policy import load_policy
from games import Countdown
from in_process import play

OWN: dict[str, Any] = {
    "ticks": 10,
    "checkpoint_every": 5,
    "imports": ["own_names"],
    "envs": {"game": {"make": "countdown", "kwargs": {"length": 3}, "wrappers": ["doubled"]}},
    "policies": {"a": {"algorithm": "uniform"}},
    "matches": [{"env": "game", "seats": ["a"]}],
    "callbacks": ["counts"],
    "loggers": ["writes"],
}


@pytest.fixture(autouse=True)
def _own_names_are_forgotten() -> Iterator[None]:
    before = {kind: dict(vars(found)) for kind, found in vars(registry.REGISTERED).items()}
    yield
    forget(before)


def forget(known: dict[str, dict[str, Any]]) -> None:
    """Leaves these names alone."""
    for kind, names in known.items():
        vars(getattr(registry.REGISTERED, kind)).clear()
        vars(getattr(registry.REGISTERED, kind)).update(names)
    sys.modules.pop("own_names", None)


def test_own_names_are_used_as_built_in_ones(tmp_path: Path) -> None:
    played = play({**OWN, "record": "replays"}, tmp_path)
    returns = {line["seats"][0]["return"] for line in played.episodes}
    assert returns and all(value % 2 == 0 for value in returns), "the wrapper doubles whole numbers"
    assert (played.folder.path / "counted").read_text() == str(len(played.episodes))
    assert (played.folder.path / "written").read_text() == "10"
    forget({kind: {} for kind in vars(registry.REGISTERED)})
    assert main(["replay", str(played.folder.path), "--verify"]) == 0, "a replay knows the modules too"


def test_name_that_no_module_has_registered_is_unknown() -> None:
    arena.register_environment("my_game", Countdown)
    for key, value, words in [
        ("envs", {"game": {"make": "my_gaem"}}, "did you mean 'my_game'"),
        ("policies", {"a": {"algorithm": "uniform"}}, "unknown algorithm 'uniform'"),
        ("callbacks", ["counts"], "'counts' is not of the form"),
        ("loggers", ["writes"], "unknown logger 'writes'"),
    ]:
        known = {"envs": {"game": {"make": "my_game"}}, "policies": {"a": {"algorithm": "random"}}, "loggers": []}
        data = {**OWN, "imports": [], "callbacks": [], **known, key: value}
        with pytest.raises(ConfigError, match=words):
            checked_plan(parse_config({"name": "test", **data}, source="test"), ranks=1)


def test_name_is_for_one_thing_alone() -> None:
    arena.register_environment("my_game", Countdown)
    arena.register_environment("my_game", Countdown)
    with pytest.raises(ConfigError, match="the environment 'my_game' is there already"):
        arena.register_environment("my_game", lambda: Countdown())
    for _ in range(2):
        arena.register_callback("again", type("Again", (), {}))
    with pytest.raises(ConfigError, match="the environment 'touchdown' is there already: built in"):
        arena.register_environment("touchdown", Countdown)
    with pytest.raises(ConfigError, match="the algorithm 'ppo' is there already"):
        arena.register_algorithm("ppo", Countdown)
    for name in ("My", "1st", "a-b", "a:b", ""):
        with pytest.raises(ConfigError, match="cannot be used: use lowercase letters"):
            arena.register_wrapper(name, Countdown)
    with pytest.raises(ConfigError, match="cannot be called"):
        arena.register_callback("three", 3)  # type: ignore[arg-type]


def test_unimportable_module_is_reported_with_its_own_error(tmp_path: Path) -> None:
    for imports, words in [
        (["no_such_module"], r"imports\[0\]: 'no_such_module': there is no module 'no_such_module'"),
        (["own_names", "faulty_import"], r"imports\[1\]: 'faulty_import': .* failed with ZeroDivisionError"),
    ]:
        with pytest.raises(ConfigError, match=words):
            train({"name": "test", **OWN, "imports": imports}, run_dir=tmp_path / "run", ranks=1)
        assert not (tmp_path / "run").exists()


def test_list_shows_own_names_and_their_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--import", "own_names"]) == 0
    shown = capsys.readouterr().out
    assert "registered:\n" in shown and " wrapper: Doubles all rewards\n" in shown
    assert main(["list", "countdown", "uniform"]) == 0
    assert "  length    5" in capsys.readouterr().out


def test_policy_of_a_run_with_own_names_is_loaded(tmp_path: Path) -> None:
    own = {**OWN, "policies": {"a": {"algorithm": "random"}}, "callbacks": [], "loggers": []}
    run = play(own, tmp_path).folder.path
    forget({kind: {} for kind in vars(registry.REGISTERED)})
    assert load_policy(f"{run}:a").action_space.n == 3  # type: ignore[attr-defined]
