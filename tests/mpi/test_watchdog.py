"""A role that hangs is named, wherever it runs, and the run ends with exit 1; a slow role continues."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import TESTS, Ended, by_hand, finish, living, silence_limit, started, train, wait_for, write

LONG = {"make": "games:Dropout", "kwargs": {"lengths": [10**9, 10**9]}}  # its episodes do not end


def duel(env: Any, blue: Any = None, **changes: Any) -> dict[str, Any]:
    policies = {"blue": blue or {"algorithm": "random"}, "red": {"algorithm": "random"}}
    limit = silence_limit(3.0)  # an import takes more than a second
    given = {"name": "duel", "seed": 1, "checkpoint_every": 10**7, "watchdog_s": limit}
    return one_match(env, policies, ticks=10**7, **given) | changes


def hangs(way: str, where: str = "step", **changes: Any) -> dict[str, Any]:
    """A game of one entity that hangs, and one that continues forever."""
    good = {"make": "hanging:Hangs", "kwargs": {"where": "never"}}
    data = duel({"make": "hanging:Hangs", "kwargs": {"way": way, "where": where}}, **changes)
    data["envs"]["good"] = good
    data["matches"] = [{"env": "good", "seats": ["red"]}, {"env": "game", "seats": ["blue"]}]
    return data


def circle(**changes: Any) -> dict[str, Any]:
    """Groups that synchronize at ends of episodes, which occur at different times."""
    data = duel({"make": "games:Dropout", "kwargs": {"lengths": [3, 5]}}, **changes)
    data["policies"] = {name: {"algorithm": "odd_workers:SaysTicks"} for name in ("blue", "red")}
    data["matches"] = [{"env": "game", "seats": ["blue", "red"]}, {"env": "game", "seats": ["red", "blue"]}]
    return data


def assert_named(ended: Ended, *words: str) -> None:
    """Checks that the run ended because of one role, which was reported once."""
    assert ended.code == 1, ended.err
    assert ended.err.count("arena: the run has ended: ") == 1, ended.err
    for expected in words:
        assert expected in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err


@pytest.mark.parametrize(
    "way", ["hold_lock", *(pytest.param(way, marks=pytest.mark.long) for way in ("sleep", "spin", "burn"))]
)
def test_a_game_that_hangs_is_named_though_another_match_moves(way: str, tmp_path: Path) -> None:
    ended = train(tmp_path, hangs(way))
    assert_named(
        ended,
        "environment of match 1 ('game') (rank 3) has not come back from one call for ",
        f"in {way}\n",
        "worker of policy 'blue' in seat 0 of match 1 (rank 4) waits for the answer of the environment of match 1",
    )
    assert "(rank 1)" not in ended.err, "the other match has nothing to do with it"


@pytest.mark.parametrize("where", ["make", pytest.param("reset", marks=pytest.mark.long)])
def test_game_that_hangs_at_the_start_is_named(where: str, tmp_path: Path) -> None:
    ended = train(tmp_path, hangs("sleep", where))
    assert_named(ended, "environment of match 1 ('game') (rank 3) has not come back", f'self.at("{where}")')
    assert any((tmp_path / "run" / "logs").iterdir()), "a run that has not begun keeps the logs of a hanging role"


@pytest.mark.parametrize("way", [pytest.param("sleep", marks=pytest.mark.long), "hold_lock"])
def test_an_algorithm_that_hangs_is_named(way: str, tmp_path: Path) -> None:
    ended = train(tmp_path, duel(LONG, {"algorithm": "hanging:HangingPlayer", "options": {"way": way}}))
    assert_named(
        ended,
        "nothing has moved for ",
        "worker of policy 'blue' in seat 0 of match 0 (rank 2) has not come back from one call for ",
        f"in {way}\n",
        "environment of match 0 ('game') (rank 1) waits for the action of the worker of policy 'blue'",
    )


@pytest.mark.parametrize(
    ("ranks", "way"),
    [
        (1, "hold_lock"),
        *(pytest.param(*row, marks=pytest.mark.long) for row in ((2, "spin"), (2, "hold_lock"), (3, "burn"))),
        *(pytest.param(1, way, marks=pytest.mark.long) for way in ("sleep", "spin", "burn")),
    ],
)
def test_a_game_that_hangs_among_other_roles_of_its_process_is_named(ranks: int, way: str, tmp_path: Path) -> None:
    ended = train(tmp_path, hangs(way), ranks=ranks)
    assert_named(ended, "environment of match 1 ('game')", "has not come back from one call", f"in {way}\n")


@pytest.mark.parametrize("way", [pytest.param("sleep", marks=pytest.mark.long), "hold_lock"])
def test_a_callback_that_hangs_where_the_root_is_alone_is_named(way: str, tmp_path: Path) -> None:
    ended = train(tmp_path, duel(LONG, callbacks=[{"class": "hanging:HangingCallback", "options": {"way": way}}]))
    assert ended.code == 1, ended.err
    assert ended.err.startswith("arena: the run has ended: nothing has moved for "), ended.err
    assert "root (rank 0) has not come back from one call" in ended.err
    assert f"in {way}\n" in ended.err


@pytest.mark.parametrize(
    ("ranks", "transport"),
    [(3, "auto"), *(pytest.param(*case, marks=pytest.mark.long) for case in ((7, "mpi"), (7, "auto")))],
)
def test_cyclic_wait_is_reported_with_every_wait(ranks: int, transport: str, tmp_path: Path) -> None:
    ended = train(tmp_path, circle(transport=transport), ranks=ranks)
    assert_named(ended, "nothing has moved for ", "6 roles wait in a circle")
    lines = [line for line in ended.err.splitlines() if " waits for " in line]
    assert len(lines) == 6
    for line, following in zip(lines, [*lines[1:], lines[0]], strict=True):
        assert following.split(" waits for ")[0] in line.split(" waits for ")[1]
    assert ended.err.count("self.group.mean(1.0)") == 2
    assert ended.err.count("self.env.step(0)") == 2


@pytest.mark.parametrize("elsewhere", [pytest.param("3", marks=pytest.mark.long), "3,4"])
def test_hanging_role_on_another_node_is_named_with_its_stack(elsewhere: str, tmp_path: Path) -> None:
    program, config = [sys.executable, str(TESTS / "cli_on_other_node.py")], write(tmp_path, hangs("hold_lock"))
    ended = by_hand(tmp_path, 5, "train", config, "--run-dir", "run", program=program, RANKS_ELSEWHERE=elsewhere)
    assert "environment of match 1 ('game') (rank 3) has not come back from one call for " in ended.err
    assert ("in hold_lock\n" in ended.err) == (elsewhere == "3,4"), (
        "a process alone on its node has no neighbor that sees it"
    )


SLOW = {"seconds": 1.0, "often": 4}  # each call less than the limit, all of them more


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(5, marks=pytest.mark.long)])
def test_slow_run_is_not_ended(ranks: int, tmp_path: Path) -> None:
    data = duel(
        {"make": "hanging:Slow", "kwargs": SLOW}, {"algorithm": "hanging:SlowPlayer", "options": SLOW}, ticks=20
    )
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 2}]
    ended = train(tmp_path, data, ranks=ranks)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_run_paused_beyond_the_limit_continues(ranks: int, tmp_path: Path) -> None:
    """With one rank only this process is paused, else all processes of the run, and its launcher."""
    data = duel({"make": "hanging:Slow", "kwargs": {"seconds": 0.02, "often": 200}}, ticks=200)
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 2}]
    process = started(tmp_path, data, ranks=ranks)
    wait_for((tmp_path / "run" / "config.yaml").exists)
    paused = [process.pid] if ranks == 1 else living(tmp_path)
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(7.0 + data["watchdog_s"])  # more than the limit, a check and the five seconds of tolerance
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
    ended = finish(process)
    assert (ended.code, ended.err) == (0, ""), "it has continued, without a restart"


def test_env_timeout_s_allows_longer_calls(tmp_path: Path) -> None:
    data = duel({"make": "hanging:Slow", "kwargs": {"seconds": 2.5, "often": 1}}, ticks=20, env_timeout_s=600.0)
    data |= {"watchdog_s": 1.0, "checkpoint_every": 20, "matches": [{"env": "game", "seats": ["blue"]}]}
    assert train(tmp_path, data, ranks=1).code == 0
    ended = train(tmp_path, {**data, "env_timeout_s": 0.5}, run="again", ranks=2)
    assert_named(ended, "one call of a game or an algorithm may take 0.5 s; `env_timeout_s` can give it more")


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 4])
def test_long_call_of_a_seat_is_no_cycle_of_the_others(ranks: int, tmp_path: Path) -> None:
    def policy(**options: float) -> dict[str, Any]:
        return {"algorithm": "odd_workers:Pauses", "options": options}

    # The environment sleeps until the first seat posts, which does not wake it: the second one has not posted yet.
    data = duel({"make": "touchdown"}, policy(pause=0.01), ticks=30, checkpoint_every=30, env_timeout_s=600.0)
    data["policies"]["red"] = policy(pause=0.0, long_pause=1.0 + data["watchdog_s"])
    ended = train(tmp_path, data, ranks=ranks)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("calls", "ranks"),
    [
        ("reset", 3),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("reset", 1), ("group", 1), ("group", 5))),
    ],
)
def test_busy_workers_are_reported_and_continue(calls: str, ranks: int, tmp_path: Path) -> None:
    data = {
        "ticks": 50,
        "watchdog_s": 0.2,
        "env_timeout_s": 60.0,
        "envs": {"game": {"make": "gymnasium:CartPole-v1"}},
        "policies": {"blue": {"algorithm": "odd_workers:NeverSteps", "options": {"calls": calls}}},
        "matches": [{"env": "game", "seats": ["blue"], "copies": 1 if calls == "reset" else 2}],
    }
    process = started(tmp_path, data, ranks=ranks, PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    reported = next((line for line in process.stdout if "no match has played a tick" in line), "the run has ended")
    (tmp_path / "go").touch()
    ended = finish(process)
    assert (ended.code, ended.err) == (0, "")
    where = "worker of policy 'blue' in seat 0 of match 0 (rank "
    assert where in reported
    assert re.match(
        r"\d+\): " + {"reset": "reset", "group": "maximum"}[calls] + r" \d+ times", reported.split(where)[1]
    )
