"""Every process of a run is killed in mid-leg, and the run is resumed: it leaves the bytes of an undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import alone, differing, finish, kill_all, living, newest_boundary, started, trained, wait_for

LEARNERS = {name: {"algorithm": "learners:VectorLearner"} for name in ("blue", "red")}
PPO = {
    name: {"algorithm": "ppo", "options": {"n_steps": steps, "minibatch_size": 64, "hidden_sizes": [16]}}
    for name, steps in (("blue", 32), ("red", 48))
}


def duel(policies: Any = LEARNERS, *, ticks: int, every: int) -> dict[str, Any]:
    """Two matches of two learners: seven roles."""
    game = {"make": "touchdown", "kwargs": {"max_steps": 60}}
    match = {"lanes": 4, "copies": 2}
    return one_match(game, policies, ticks=ticks, match=match, name="duel", seed=4, checkpoint_every=every)


def test_run_resumed_in_another_packing_is_bit_equal(tmp_path: Path) -> None:
    config = duel(ticks=400, every=100)
    for ranks, more in ((3, ["--ticks", "200"]), (5, ["--ticks", "300", "--resume"])):
        trained(tmp_path, config, *more, ranks=ranks)
    run, whole = alone(tmp_path, config, "--resume", run="run"), alone(tmp_path, config)
    assert (whole / "episodes.jsonl").read_bytes().count(b"\n") > 50
    assert differing(run, whole) == []


@pytest.mark.parametrize(
    ("policies", "every", "ranks"),
    [(LEARNERS, 150, 3), pytest.param(PPO, 300, 7, marks=pytest.mark.long)],
    ids=["learners", "ppo"],
)
def test_run_killed_twice_is_bit_equal_after_resume(policies: Any, every: int, ranks: int, tmp_path: Path) -> None:
    config, run = duel(policies, ticks=8 * every, every=every), tmp_path / "run"
    whole = alone(tmp_path, config)
    for reached, resume in ((every, []), (4 * every, ["--resume"])):
        process = started(tmp_path, config, *resume, ranks=ranks)
        lines = run / "metrics.jsonl"
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        size = lines.stat().st_size
        wait_for(lambda: lines.stat().st_size > size)  # noqa: B023 - waits here: the next leg is under way
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) > ranks, "its processes and the launcher"
        assert finish(process).code != 0
        assert reached <= newest_boundary(run) < 8 * every
    assert differing(trained(tmp_path, config, "--resume", ranks=ranks), whole) == []


@pytest.mark.long
def test_descriptors_do_not_grow_over_hundreds_of_legs(tmp_path: Path) -> None:
    process = started(tmp_path, duel(ticks=10**9, every=7))
    opened: list[list[int]] = []
    for legs in (20, 320):
        wait_for(lambda legs=legs: newest_boundary(tmp_path / "run") >= 7 * legs)
        opened.append([len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in sorted(living(tmp_path))])
    assert process.poll() is None
    kill_all(tmp_path)
    finish(process)
    assert len(opened[0]) == len(opened[1]) >= 8
    assert max(late - early for early, late in zip(*opened, strict=True)) <= 6, (
        "a leg has some at its end that it has not at its beginning"
    )
