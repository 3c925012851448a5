"""The root waits for everybody, in whatever order they speak, and ends the run when somebody fails."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.recorder import Recorder
from arena.roles.protocol import Done, Failed, Go, Left, Next, Progress, Ready
from arena.roles.root.root import RoleFailed, Root
from arena.run.recovery import RecoveryState
from arena.run.run import Run
from arena.terminal.display import PlainDisplay
from arena.transport import Tag
from arena.transport.messages import expect, pack
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


def watch(path: Path, words: Sequence[tuple[Role, Any]], shown: io.StringIO | None = None) -> list[tuple[int, str]]:
    """A root that hears these words in this order; what it then says to whom."""
    run = Run(make_plan(parse_config(CONFIG, source="test"), ranks=1), RunFolder.open(path / "run").path)
    said: list[tuple[int, str]] = []
    shown = io.StringIO() if shown is None else shown

    def root(endpoint: RoleEndpoint) -> None:
        root = Root(endpoint, run, PlainDisplay(shown, total_ticks=5), RecoveryState())
        root.gather()
        assert not run.folder.episodes.exists()
        with Recorder(run.folder, run.first_ticks) as recorder:
            root.record(recorder)

    def speak(endpoint: RoleEndpoint) -> None:
        for role, word in words:
            message: Any = word if not isinstance(word, type) else Done(role, 5) if word is Done else word(role)
            endpoint.send(0, Tag.TO_ROOT, pack(message))
        hear(endpoint)

    def hear(endpoint: RoleEndpoint) -> None:
        expect(Go, endpoint.receive(0, Tag.FROM_ROOT))
        said.append((endpoint.address, "go"))
        assert expect(Next, endpoint.receive(0, Tag.FROM_ROOT)).leg is None
        said.append((endpoint.address, "no more"))

    names = {run.address(role): run.describe(role) for role in run.roles}
    RoleScheduler(names).run(dict(enumerate([root, speak, hear, hear])))
    return sorted(said)


ENVIRONMENT = Role(RoleKind.ENVIRONMENT, 0)
BLUE, RED = Role(RoleKind.WORKER, 0, 0), Role(RoleKind.WORKER, 0, 1)
EVERYTHING = [(address, word) for address in (1, 2, 3) for word in ("go", "no more")]


def test_the_root_says_go_to_everybody_and_ends_when_all_are_done(tmp_path: Path) -> None:
    words = [(role, word) for word in (Ready, Done) for role in (RED, ENVIRONMENT, BLUE)]
    assert watch(tmp_path, words) == EVERYTHING


def test_a_worker_that_is_done_before_another_is_ready_is_not_forgotten(tmp_path: Path) -> None:
    words = [(BLUE, Ready), (BLUE, Done), (ENVIRONMENT, Ready), (RED, Ready), (RED, Done), (ENVIRONMENT, Done)]
    assert watch(tmp_path, words) == EVERYTHING


@pytest.mark.parametrize("before", [[], [(BLUE, Ready), (RED, Ready), (ENVIRONMENT, Ready), (BLUE, Done)]])
def test_a_failure_ends_the_run_with_its_message(before: list[Any], tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match=r"worker of policy 'red'\nit broke") as info:
        watch(tmp_path, [*before, (RED, Failed("worker of policy 'red'", "it broke", exit_code=1))])
    assert info.value.failure.exit_code == 1


def test_a_worker_that_left_and_one_without_a_state_are_shown(tmp_path: Path) -> None:
    shown = io.StringIO()
    words = [(role, Ready) for role in (ENVIRONMENT, BLUE, RED)]
    ends = [(BLUE, Left(BLUE, 3)), (BLUE, Done(BLUE, 5, stateless=True)), (RED, Done), (ENVIRONMENT, Done)]
    watch(tmp_path, [*words, *ends], shown)
    told = "policy 'blue', seat 0 of match 0: run() has returned after 3 of 5 ticks; the seat idles"
    lines = shown.getvalue().splitlines()
    assert (lines[0], lines[-1]) == (told, "no checkpoints of 'blue': its algorithm has no state_dict()")


def test_what_an_environment_tells_is_in_the_file_and_in_the_score(tmp_path: Path) -> None:
    shown = io.StringIO()
    seats = (SeatRecord("blue", (0,), 1.0, "win"), SeatRecord("red", (1,), -1.0, "loss"))
    records = tuple(EpisodeRecord(0, 0, "touchdown", lane, 0, 5, 5, True, False, seats) for lane in range(3))
    told = [(ENVIRONMENT, Progress(0, 2, ())), (ENVIRONMENT, Progress(0, 5, records))]
    ready, done = ([(role, word) for role in (ENVIRONMENT, BLUE, RED)] for word in (Ready, Done))
    watch(tmp_path, [*ready, *told, *done], shown)
    lines = list(JournalReader(tmp_path / "run" / "episodes.jsonl"))
    assert [(line["lane"], line["seats"][0]["return"]) for line in lines] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert shown.getvalue().endswith("| blue return 1.00 win 100 % | red return -1.00 win 0 %\n")
