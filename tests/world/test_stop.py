"""A run that is asked to stop ends soon, with all matches at one tick, from which it can be resumed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from arena.cli.main import main
from arena.config import parse_config, yaml
from arena.plan.plan import Role, RoleKind
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.lock import has_failed, is_left
from arena.roles.protocol import Stopping
from arena.roles.root.early_stop import EarlyStop
from arena.roles.root.legs import NextStep
from arena.roles.state import RunState
from arena.roles.stop import ONE_REQUEST_SECONDS, STOP_SIGNALS, Stop, handled_signals
from arena.run.lead import Leader
from arena.run.loop import in_one_process
from arena.run.prepare import begin, prepare
from arena.terminal.display import silent_display
from arena.transport import Endpoint, Order, Tag
from arena.transport.pickling import unpack
from in_process import one_match

COUNTS = {"algorithm": "workers:Counts"}


def duel(*, pipeline: int = 1, red: Any = COUNTS) -> dict[str, Any]:
    game, match = {"make": "touchdown", "kwargs": {"max_steps": 15}}, {"lanes": 2, "copies": 2, "pipeline": pipeline}
    policies = {"blue": COUNTS, "red": red}
    return one_match(game, policies, ticks=4000, match=match, name="test", checkpoint_every=4000)


@pytest.fixture
def own_signals() -> Any:
    """A run takes this process's signals."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_sigusr2_before_listening_ends_the_run_then(own_signals: None) -> None:
    stop = Stop()
    stop.note()
    signal.raise_signal(signal.SIGUSR2)
    assert not stop.requested
    with pytest.raises(KeyboardInterrupt) as caught:
        stop.listen()
    assert caught.value.args == (signal.SIGUSR2,)
    assert stop.number == signal.SIGUSR2
    stop.handled = True
    stop.listen()  # once is enough


def test_forked_process_of_a_game_leaves_signals_to_its_parent(own_signals: None) -> None:
    stop = Stop(handled=True)
    stop.listen()
    child = os.fork()
    if not child:
        try:
            for number in set(STOP_SIGNALS) - {signal.SIGTERM}:
                signal.raise_signal(number)
            ended = 3 if stop.requested or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL else 0
            os._exit(ended)
        finally:
            os._exit(4)  # KeyboardInterrupt
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.raise_signal(signal.SIGTERM)
    assert stop.number == signal.SIGTERM


@pytest.mark.parametrize("blocked", [True, False])
def test_sigusr1_before_listening_waits_for_a_boundary(blocked: bool, own_signals: None) -> None:
    stop = Stop()
    if blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    else:
        stop.note()
    signal.raise_signal(signal.SIGUSR1)
    assert not stop.requested
    stop.listen()
    assert (stop.requested, stop.requeue, stop.status) == (True, True, 0)


def test_repeated_sigusr1_changes_nothing_and_a_sigterm_counts() -> None:
    stop = Stop(handled=True)
    for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
        stop._on_signal(number, None)
    assert (stop.requeue, stop.status) == (True, 143)
    stop._on_signal(signal.SIGTERM, None)  # of the same request
    stop._signal_at = time.monotonic() - ONE_REQUEST_SECONDS
    with pytest.raises(KeyboardInterrupt):
        stop._on_signal(signal.SIGTERM, None)


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_within_a_second_are_one_request(number: signal.Signals, handled: bool, own_signals: None) -> None:
    stop = Stop(handled=handled)
    stop.listen()
    if handled:
        signal.raise_signal(number)
    else:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    signal.raise_signal(number)
    signal.raise_signal(signal.SIGTERM)
    assert stop.status == 128 + number
    stop._signal_at = time.monotonic() - ONE_REQUEST_SECONDS
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_sighup_stays_ignored_under_nohup(own_signals: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in handled_signals()
    stop = Stop(handled=True)
    stop.listen()
    signal.raise_signal(signal.SIGHUP)
    assert not stop.requested


def test_an_answer_is_written_once(own_signals: None, capfd: pytest.CaptureFixture[str]) -> None:
    stop = Stop(handled=True)
    stop.listen(answer="{} it was".format)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert capfd.readouterr().err == "SIGTERM it was\n"


def test_a_closed_stderr_does_not_prevent_the_stop(own_signals: None, capfd: pytest.CaptureFixture[str]) -> None:
    stop, kept = Stop(handled=True), os.dup(2)
    stop.listen(answer="{} it was".format)
    os.close(2)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert stop.requested


def test_saved_run_names_the_signal_that_ended_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = prepare(parse_config(duel(), source="test"), ranks=1, run_dir=str(tmp_path / "run"), resume=False)
    begin(run, resumable=True)
    stop = Stop(handled=True)
    stop._on_signal(signal.SIGUSR1, None)
    stop._on_signal(signal.SIGTERM, None)
    assert Leader(RunState(stop=stop)).stopped(run, 5) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.splitlines()[-1] == "arena: ended by SIGTERM"
    assert run.folder.requeue.exists()


def stopped(data: Mapping[str, Any], path: Path, *, resume: bool = False) -> tuple[NextStep, RunFolder]:
    """Plays a run that is asked to stop before it has begun."""
    run = prepare(parse_config(data, source="test"), ranks=1, run_dir=str(path / "run"), resume=resume)
    stop = Stop(number=signal.SIGTERM, handled=True)
    return in_one_process(run, silent_display(), RunState(stop=stop)), run.folder


@pytest.mark.parametrize(("ahead", "pipeline"), [(0, 1), (1, 2), (2, 1), (50, 1), (10**6, 2)])
def test_stop_works_at_any_point_of_the_matches(
    ahead: int, pipeline: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: EarlyStop, ticks: Mapping[int, int]) -> None:
        self.requested = True
        self._order(max(ticks.values()) + ahead, [*ticks])

    monkeypatch.setattr(EarlyStop, "ask", ask)
    result, folder = stopped(duel(pipeline=pipeline), tmp_path)
    found = boundary.newest(folder)
    assert found is not None
    if ahead < 4000:
        assert result.stopped_at == found.tick
        assert 0 < found.tick < 4000
        assert set(found.checkpoints.values()) == {found.tick}
    else:
        assert (result.stopped_at, found.tick) == (None, 4000), "there is no later end than the usual one"


def test_stopped_run_resumes_at_its_tick(tmp_path: Path) -> None:
    result, _ = stopped(duel(), tmp_path)
    assert result.stopped_at is not None
    run = prepare(parse_config(duel(), source="test"), ranks=1, run_dir=str(tmp_path / "run"), resume=True)
    assert run.leg.start == result.stopped_at
    again, _ = stopped(duel(), tmp_path, resume=True)
    assert again.stopped_at is None or again.stopped_at > result.stopped_at


def test_a_policy_that_has_left_is_found_again(tmp_path: Path) -> None:
    leaves = {"algorithm": "workers:Counts", "options": {"every": 5, "leave": [7, 7]}}
    result, folder = stopped(duel(red=leaves), tmp_path)
    found = boundary.newest(folder)
    assert found is not None
    assert found.tick == result.stopped_at
    assert sorted(found.left) == [(0, 1), (1, 1)]
    assert found.checkpoint(folder, "red").exists()
    again, _ = stopped(duel(red=leaves), tmp_path, resume=True)
    assert found.checkpoint(folder, "red").exists(), "it is needed by a resume from there"
    assert again.stopped_at is None or again.stopped_at > found.tick


@pytest.mark.parametrize("threaded", [False, True])
def test_main_leaves_no_handler_behind_and_runs_in_any_thread(
    threaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 2}}
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}
    (tmp_path / "duel.yaml").write_text(yaml.dump(one_match(game, policies, ticks=20)))
    monkeypatch.chdir(tmp_path)

    def run() -> None:
        statuses.append(main(["train", "duel.yaml", "--ranks", "1"]))

    statuses: list[int] = []
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    if threaded:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert statuses == [0]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


class Orders:
    """In the place of the root's endpoint: notes the orders to stop and the ends that are confirmed, by address."""

    def __init__(self) -> None:
        self.ordered: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def order(self, to: int, _order: Order, data: bytes) -> None:
        self.ordered[to] = int.from_bytes(data, "little")

    def send(self, to: int, _tag: Tag, data: bytes) -> None:
        self.ends[to] = unpack(data).until


def stopping(tmp_path: Path, ticks: dict[int, int], **changes: Any) -> tuple[EarlyStop, Orders, list[int]]:
    """An early stop of two matches that is asked for at these ticks; with the addresses of their environments."""
    run = replace(prepare(parse_config(duel(), source="test"), ranks=1, run_dir=str(tmp_path / "run")), **changes)
    orders = Orders()
    found = EarlyStop(cast(Endpoint, orders), run, run.leg, 4000)
    found._began -= 100.0  # seconds
    found.ask(ticks)
    return found, orders, [run.address(Role(RoleKind.ENVIRONMENT, match)) for match in ticks]


def test_all_matches_end_at_one_tick_and_the_slowest_is_named(tmp_path: Path) -> None:
    ticks = {0: 1000, 1: 10}
    stop, orders, (fast, slow) = stopping(tmp_path, ticks)
    first = orders.ordered[fast]
    assert first == orders.ordered[slow] > 1000
    assert stop.receive(Stopping(1, first, 11, holds=True), ticks) == ""
    assert stop.receive(Stopping(0, first, first + 5, holds=False), ticks) == ""  # it has passed that tick
    later = orders.ordered[fast]
    assert (later, orders.ends) == (orders.ordered[slow], {}) and later > first + 5
    assert stop.receive(Stopping(1, first, 11, holds=True), ticks) == "", "an answer to the earlier order"
    assert stop.receive(Stopping(0, later, first + 6, holds=True), ticks) == "" and orders.ends == {}
    said = stop.receive(Stopping(1, later, 12, holds=True), ticks)
    assert orders.ends == {fast: later, slow: later} and stop.until == later
    seconds = (later - 10) * 100.0 / 10
    assert said.startswith(f"all matches end at tick {later}; match 1 of 'game' is at tick 10, about ")
    assert seconds <= int(said.split()[-4]) < 2 * seconds


def test_matches_without_learning_end_for_themselves(tmp_path: Path) -> None:
    ticks = {0: 1000, 1: 10}
    stop, orders, (fast, slow) = stopping(tmp_path, ticks, episodes=5)
    assert 10 < orders.ordered[slow] < 100 < 1000 < orders.ordered[fast]
    assert stop.receive(Stopping(1, orders.ordered[slow], 11, holds=True), ticks) == ""
    assert orders.ends == {slow: orders.ordered[slow]}, "it does not wait for the other one"
    passed = orders.ordered[fast]
    stop.receive(Stopping(0, passed, passed + 5, holds=False), ticks)
    assert orders.ordered[fast] > passed + 5 and orders.ordered[slow] == orders.ends[slow]
    stop.receive(Stopping(0, orders.ordered[fast], passed + 6, holds=False), ticks)  # it has played all its episodes
    assert orders.ends == {slow: orders.ordered[slow]}


def test_run_that_a_second_signal_ends_is_not_ended_in_good_order(tmp_path: Path) -> None:
    run = prepare(parse_config(duel(), source="test"), ranks=1, run_dir=str(tmp_path / "run"), resume=False)
    begin(run, resumable=True)
    leader = Leader(RunState(stop=Stop(handled=True)))
    leader.lock(run)
    failure = leader.failure(run, KeyboardInterrupt(signal.SIGINT))
    assert failure.exit_code == 130 and failure.message.endswith("--resume goes on from tick 0")
    assert is_left(run.path) and not has_failed(run.path)
