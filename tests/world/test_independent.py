"""Workers that never synchronize: the run ends, or `independent` keeps what each of them has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_legs import left_by

from arena.cli.main import main
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.roles.protocol import RoleFailed
from in_process import Played, one_match, play
from run_cli import write

RANDOM = {"algorithm": "random"}


def copies(name: str, *, every: int = 50, options: Any = None, **policy: Any) -> dict[str, Any]:
    """Two matches of a learner against one that plays at random."""
    blue = {"algorithm": f"learners:{name}", "options": options or {}, **policy}
    game = {"make": "touchdown", "kwargs": {"max_steps": 30}}
    given = {"seed": 3, "checkpoint_every": every, "match": {"lanes": 2, "copies": 2}}
    return one_match(game, {"blue": blue, "red": RANDOM}, ticks=200, **given)


def weights(played: Played, policy: str) -> list[list[float]]:
    """The weights of each checkpoint of a policy, the oldest first."""
    files = checkpoint.list_checkpoints(played.folder.checkpoints_path(policy))
    return [checkpoint.load(file).state["weights"].tolist() for file in files]


# ------------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize(("after", "tick"), [(0, 50), (60, 100)])
def test_workers_that_learn_without_meeting_end_the_run(after: int, tick: int, tmp_path: Path) -> None:
    with pytest.raises(RoleFailed) as found:
        play(copies("UnsynchronizedLearner", options={"after": after}), tmp_path)
    failure = found.value.failure
    assert failure.exit_code == 2
    assert failure.message.startswith(f"policies.blue: its 2 workers have not synchronized before tick {tick} ")
    assert "group.average_gradients" in failure.message and "`independent: true`" in failure.message


def test_workers_that_synchronize_in_some_legs_continue(tmp_path: Path) -> None:
    played = play(copies("VectorLearner", every=5), tmp_path)  # they meet every 7 ticks
    last = boundaries.last(played.folder)
    assert last is not None and last.tick == 200
    assert played.updates[-1]["update"] == 200 // 7


def test_cut_leg_does_not_blame_workers_without_time_to_meet(tmp_path: Path) -> None:
    data = copies("UnsynchronizedLearner", every=10**6) | {"ticks": 10**6}
    data["callbacks"] = [{"class": "recorders:Stops", "options": {"where": "episode"}}]
    last = boundaries.last(play(data, tmp_path).folder)
    assert last is not None and 0 < last.tick < 10**6


def test_single_worker_needs_no_synchronization(tmp_path: Path) -> None:
    data = copies("UnsynchronizedLearner")
    data["matches"][0]["copies"] = 1
    assert len(weights(play(data, tmp_path), "blue")) > 1


def test_independent_class_needs_the_configuration_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RoleFailed) as found:
        play(copies("DeclaresIndependent"), tmp_path)
    assert found.value.failure.exit_code == 2
    assert (
        "policies.blue: the policy has 2 workers, and DeclaresIndependent has `independent = True`"
        in found.value.failure.message
    )
    assert main(["check", write(tmp_path, copies("DeclaresIndependent"))]) == 2
    assert capsys.readouterr().err == f"arena: error: config.yaml: {found.value.failure.message}\n"
    assert play(copies("DeclaresIndependent", independent=True), tmp_path).updates


# ---------------------------------------------------------------------------------------------------- independent ones


def test_independent_workers_resume_their_own_weights(tmp_path: Path) -> None:
    data = copies("UnsynchronizedLearner", independent=True)
    whole = play(data, tmp_path / "whole", given=True)
    blue = [weights(whole, f"blue#{number}") for number in range(2)]
    assert all(len(kept) > 2 for kept in blue)
    assert blue[0][0] == blue[1][0], "nothing learned yet"
    assert all(first != second for first, second in zip(blue[0][1:], blue[1][1:], strict=True))
    assert {line["policy"] for line in whole.updates} == {"blue#0", "blue#1"}

    play({**data, "ticks": 100}, tmp_path / "parted", given=True)
    parted = play(data, tmp_path / "parted", resume=True)
    assert parted.run.leg.start == 100
    assert left_by(parted.folder) == left_by(whole.folder)


def test_independent_workers_are_players_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = copies("DeclaresIndependent", independent=True)
    data["policies"]["blue"] = {"algorithm": "learners:LearnerWithActor", "independent": True}
    played = play(data, tmp_path)
    players = {tuple(seat["policy"] for seat in episode["seats"]) for episode in played.episodes}
    assert players == {("blue#0", "red"), ("blue#1", "red")}
    assert set(played.scoreboard.policies) == {"blue#0", "blue#1", "red"}
    assert main(["evaluate", str(played.folder.path), "--episodes", "4"]) == 0
    assert "blue#1 at tick 200 (last): " in capsys.readouterr().out
