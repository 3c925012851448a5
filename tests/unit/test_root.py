"""The root: messages in any order, failures of roles and of the watchdog, and what is recorded and shown."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.roles.protocol import Done, Failed, Go, Left, Next, Progress, Ready
from arena.roles.root.root import POLL_SECONDS, RoleFailed, Root
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.terminal.display import PlainDisplay
from arena.transport import Tag
from arena.transport.pickling import expect, pack
from arena.transport.scheduler import RoleEndpoint, RoleScheduler

MATCH = {"env": "touchdown", "seats": ["blue", "red"]}
CONFIG = {
    "name": "test",
    "seed": 1,
    "ticks": 5,
    "envs": {"touchdown": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [MATCH],
}


Message = tuple[Role, Any]
ENVIRONMENT = Role(RoleKind.ENVIRONMENT, 0)
BLUE, RED = Role(RoleKind.WORKER, 0, 0), Role(RoleKind.WORKER, 0, 1)
ALL_ORDERS = [(address, order) for address in (1, 2, 3) for order in ("go", "no next leg")]


def run_in(path: Path) -> Run:
    return Run(make_plan(parse_config(CONFIG, source="test"), ranks=1), RunFolder.open(path / "run").path)


def play(path: Path, messages: Sequence[Message], shown: io.StringIO | None = None) -> list[tuple[int, str]]:
    """Runs a root that receives these messages in this order; returns the orders that it sends, by address."""
    run = run_in(path)
    orders: list[tuple[int, str]] = []
    shown = io.StringIO() if shown is None else shown

    def root(endpoint: RoleEndpoint) -> None:
        root = Root(endpoint, run, PlainDisplay(shown, total_ticks=5), RunState())
        root.wait_until_ready()
        assert not run.folder.episodes.exists()
        with Recorder(run.folder, run.first_ticks) as recorder:
            root.record(recorder)

    def send_all(endpoint: RoleEndpoint) -> None:
        for role, given in messages:
            message: Any = given if not isinstance(given, type) else Done(role, 5) if given is Done else given(role)
            endpoint.send(0, Tag.TO_ROOT, pack(message))
        receive(endpoint)

    def receive(endpoint: RoleEndpoint) -> None:
        expect(Go, endpoint.receive(0, Tag.FROM_ROOT))
        orders.append((endpoint.address, "go"))
        assert expect(Next, endpoint.receive(0, Tag.FROM_ROOT)).leg is None
        orders.append((endpoint.address, "no next leg"))

    names = {run.address(role): run.describe(role) for role in run.roles}
    RoleScheduler(names).run(dict(enumerate([root, send_all, receive, receive])))
    return sorted(orders)


def test_root_starts_all_roles_and_ends_when_all_are_done(tmp_path: Path) -> None:
    messages = [(role, message) for message in (Ready, Done) for role in (RED, ENVIRONMENT, BLUE)]
    assert play(tmp_path, messages) == ALL_ORDERS


def test_root_keeps_a_done_that_precedes_another_ready(tmp_path: Path) -> None:
    messages = [(BLUE, Ready), (BLUE, Done), (ENVIRONMENT, Ready), (RED, Ready), (RED, Done), (ENVIRONMENT, Done)]
    assert play(tmp_path, messages) == ALL_ORDERS


@pytest.mark.parametrize("before", [[], [(BLUE, Ready), (RED, Ready), (ENVIRONMENT, Ready), (BLUE, Done)]])
def test_root_ends_the_run_with_the_message_of_a_failure(before: list[Any], tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=r"worker of policy 'red'\nit broke") as info:
        play(tmp_path, [*before, (RED, Failed("worker of policy 'red'", "it broke", exit_code=1))])
    assert info.value.failure.exit_code == 1


def test_root_shows_an_early_return_and_a_missing_state(tmp_path: Path) -> None:
    shown = io.StringIO()
    ready = [(role, Ready) for role in (ENVIRONMENT, BLUE, RED)]
    ends = [(BLUE, Left(BLUE, 3)), (BLUE, Done(BLUE, 5, stateless=True)), (RED, Done), (ENVIRONMENT, Done)]
    play(tmp_path, [*ready, *ends], shown)
    returned = "policy 'blue', seat 0 of match 0: run() has returned after 3 of 5 ticks; the seat idles"
    lines = shown.getvalue().splitlines()
    assert (lines[0], lines[-1]) == (returned, "no checkpoints of 'blue': its algorithm has no state_dict()")


def test_root_records_and_scores_reported_episodes(tmp_path: Path) -> None:
    shown = io.StringIO()
    seats = (SeatRecord("blue", (0,), 1.0, "win"), SeatRecord("red", (1,), -1.0, "loss"))
    records = tuple(EpisodeRecord(0, 0, "touchdown", lane, 0, 5, 5, True, False, seats) for lane in range(3))
    update = UpdateRecord("blue", 3, 4, 64, 1.5, {"loss": 0.5})
    reports = [(ENVIRONMENT, Progress(0, 2, ())), (BLUE, update), (ENVIRONMENT, Progress(0, 5, records))]
    ready, done = ([(role, message) for role in (ENVIRONMENT, BLUE, RED)] for message in (Ready, Done))
    play(tmp_path, [*ready, *reports, *done], shown)
    lines = list(JournalReader(tmp_path / "run" / "episodes.jsonl"))
    assert [(line["lane"], line["seats"][0]["return"]) for line in lines] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert [(line["update"], line["loss"]) for line in JournalReader(tmp_path / "run" / "metrics.jsonl")] == [(3, 0.5)]
    boundary = json.loads((tmp_path / "run" / "boundaries" / "000000000005.json").read_bytes())
    assert (boundary["updates"], boundary["seconds"]) == ({"blue": 3}, {"blue": 1.5})
    assert shown.getvalue().endswith("| blue return 1.00 win 100 % | red return -1.00 win 0 %\n")


# Receiving


READY = Ready(ENVIRONMENT)
BROKEN = Failed("environment of match 0", "it broke", exit_code=1)
HANGS = Failed("worker", "not come back from a call", exit_code=1)


class StubEndpoint:
    """Receives one message, or none."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.waited: list[float] = []

    def listen(self, source: int, tag: Any, seconds: float) -> tuple[int, bytes] | None:
        self.waited.append(seconds)
        return None if self.message is None else (2, pack(self.message))


class StubWatchdog:
    """Reports the given failure at every check."""

    def __init__(self, failure: Failed | None, seconds_to_check: float) -> None:
        self.failure, self.seconds_to_check = failure, seconds_to_check
        self.heard: list[Any] = []

    def note_message(self, source: int, message: Any) -> None:
        self.heard.append((source, message))

    def check(self) -> Failed | None:
        return self.failure


@pytest.fixture
def receive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a root with these two stubs receives."""

    def receive(endpoint: Any, watchdog: StubWatchdog) -> Any:
        monkeypatch.setattr("arena.roles.root.root.Watchdog", lambda *_, **__: watchdog)
        return Root(endpoint, run_in(tmp_path), PlainDisplay(io.StringIO(), total_ticks=5), RunState())._receive()

    return receive


@pytest.mark.parametrize(
    ("message", "failure", "received", "heard"),
    [
        (READY, None, READY, [(2, READY)]),
        (None, None, None, []),
        (BROKEN, None, BROKEN, []),
        (None, HANGS, HANGS, []),
        (READY, HANGS, HANGS, [(2, READY)]),
        (BROKEN, HANGS, BROKEN, []),
    ],
    ids=["message", "silence", "failure", "hang", "message and hang", "failure and hang"],
)
def test_root_receives_failures_before_messages(
    receive: Any, message: Any, failure: Any, received: Any, heard: Any
) -> None:
    watchdog = StubWatchdog(failure, 9.0)
    assert receive(StubEndpoint(message), watchdog) == received
    assert watchdog.heard == heard


@pytest.mark.parametrize(("until_check", "waited"), [(0.0, 0.0), (0.1, 0.1), (9.0, POLL_SECONDS)])
def test_root_waits_no_longer_than_until_the_next_check(receive: Any, until_check: float, waited: float) -> None:
    endpoint = StubEndpoint(None)
    receive(endpoint, StubWatchdog(None, until_check))
    assert endpoint.waited == [waited]
