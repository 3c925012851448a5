"""Errors in any part of a run: the run ends with this error, reported once, and exit status 1.

A mistake of the configuration, such as a name that cannot be imported, is one sentence and exit status 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from arena.records import checkpoint
from arena.records.journal import Journal
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.perform import failure_of
from arena.roles.protocol import Failed, RoleFailed
from arena.terminal.display import PlainDisplay
from faulty_games import Faulty
from faulty_workers import ACTOR_PLACES, WORKER_PLACES, name_of
from in_process import one_match, play


@pytest.fixture(autouse=True)
def _nothing_was_made_yet() -> None:
    Faulty.forget()


def run_of(*, blue: Any = None, env: Any = None, **changes: Any) -> Any:
    """Two copies of a match of one seat; in three legs."""
    policies = {"blue": blue or {"algorithm": "faulty_workers:FailsAt"}}
    given = {"seed": 5, "checkpoint_every": 20, "match": {"copies": 2, "lanes": 2}}
    return one_match(env or {"make": "games:Countdown"}, policies, ticks=60, **given) | changes


def failure_in(data: Any, path: Path) -> Failed:
    """How such a run ends."""
    try:
        play(data, path)
    except RoleFailed as error:
        return error.failure
    except ConfigError as error:
        return failure_of(error, "root")
    except Exception as error:
        return failure_of(error, "root")
    raise AssertionError("the run has not failed")


def check_told_once(failure: Failed, words: str, who: str) -> None:
    assert failure.exit_code == 1
    assert failure.message.count("Traceback") == 1, failure.message
    assert failure.message.count(words) >= 1, failure.message
    assert failure.message.endswith(failure.brief), "the error itself comes last"
    place = r"\(\S*(faulty_games|faulty_workers|test_failures)\.py, line \d+\)"
    assert re.search(rf"{re.escape(words)} {place}\Z", failure.brief), failure.brief
    assert who in failure.who


@pytest.mark.parametrize("where", WORKER_PLACES)
def test_failing_algorithm_is_reported_with_policy_and_seat(where: str, tmp_path: Path) -> None:
    failure = failure_in(run_of(blue={"algorithm": f"faulty_workers:{name_of(where)}"}), tmp_path)
    first = 1 if where == "own checkpoint" else 0  # the root of a group is the last one to leave it
    who = f"worker of policy 'blue' in seat 0 of match {first}"
    check_told_once(failure, f"ZeroDivisionError: fails at {where}", who)


@pytest.mark.parametrize("where", ACTOR_PLACES)
def test_failing_frozen_policy_is_reported_with_policy_and_seat(where: str, tmp_path: Path) -> None:
    folder = tmp_path / "blue"
    algorithm = f"faulty_workers:{name_of(where)}"
    checkpoint.save(folder, {"w": 1}, policy="blue", algorithm=algorithm, ticks=0, update=0)
    blue = {"algorithm": algorithm, "frozen": True, "load": str(folder)}
    failure = failure_in(run_of(blue=blue), tmp_path)
    check_told_once(failure, f"ZeroDivisionError: fails at {where}", "worker of policy 'blue'")


@pytest.mark.parametrize(("how", "words"), [("exit", "SystemExit: 5"), ("unprintable", "UnprintableError")])
def test_exit_or_empty_error_ends_the_run(how: str, words: str, tmp_path: Path) -> None:
    failure = failure_in(run_of(blue={"algorithm": "faulty_workers:Ends", "options": {"how": how}}), tmp_path)
    assert failure.exit_code == 1
    assert failure.message.count("Traceback") == 1
    assert words in failure.message


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"fault": "make", "at": 5}, "RuntimeError: the game cannot be made"),  # the first one of the second leg
        ({"fault": "reset", "at": 4}, "RuntimeError: the game cannot be reset"),
        ({"fault": "raise", "at": 20}, "RuntimeError: the game cannot be stepped"),
        ({"fault": "exit"}, "SystemExit: 3"),
        ({"faulty": 0, "close": True}, "RuntimeError: the game cannot be closed"),
    ],
)
def test_failing_game_is_reported_with_its_match(kwargs: Any, words: str, tmp_path: Path) -> None:
    env = {"make": "faulty_games:Faulty", "kwargs": {"faulty": 8, **kwargs}}
    check_told_once(failure_in(run_of(env=env), tmp_path), words, "environment of match")


@pytest.mark.parametrize("key", ["envs", "policies"])
def test_import_error_is_a_configuration_error(key: str, tmp_path: Path) -> None:
    data = run_of()
    if key == "envs":
        data["envs"]["game"] = {"make": "faulty_import:Game"}
    else:
        data["policies"]["blue"] = {"algorithm": "faulty_import:Worker"}
    failure = failure_in(data, tmp_path)
    assert failure.exit_code == 2
    assert "Traceback" not in failure.message
    assert "ZeroDivisionError: fails at import" in failure.message


ROOT_PLACES: dict[str, tuple[type, str]] = {
    "the recorder, of an episode": (Recorder, "episodes"),
    "the recorder's close": (Recorder, "close"),
    "a journal": (Journal, "flush"),
    "the scoreboard": (Scoreboard, "add"),
    "the display's start": (PlainDisplay, "start"),
    "the display": (PlainDisplay, "update"),
}


@pytest.mark.parametrize("place", ROOT_PLACES)
def test_failing_root_is_named_root(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method = ROOT_PLACES[place]
    monkeypatch.setattr(owner, method, failing_once(getattr(owner, method)))
    data = {**run_of(), "results": {"every": 1000}}  # their logger writes to TensorBoard too, and may fail
    check_told_once(failure_in(data, tmp_path), "ZeroDivisionError: fails in the root", "root")


def failing_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of a function that raises in its first call."""
    calls = []

    def failing(self: Any, *arguments: Any, **named: Any) -> Any:
        done = method(self, *arguments, **named)
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError("fails in the root")
        return done

    return failing
