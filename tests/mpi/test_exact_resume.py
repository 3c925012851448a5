"""Every process of a run is killed in mid-leg, and the run is resumed: it leaves the bytes of an undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import TESTS, alone, differing, finish, kill_all, living, newest_boundary, started, trained, wait_for


def ppo(n_steps: int) -> dict[str, Any]:
    return {"algorithm": "ppo", "options": {"n_steps": n_steps, "minibatch_size": 64, "hidden_sizes": [16]}}


def duel(*, ticks: int, every: int, **policies: Any) -> dict[str, Any]:
    """Two matches of two learners: seven roles."""
    return {
        "name": "duel",
        "seed": 4,
        "ticks": ticks,
        "checkpoint_every": every,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 60}}},
        "policies": {"blue": ppo(32), "red": ppo(48), **policies},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4, "copies": 2}],
    }


@pytest.mark.long
def test_run_killed_twice_is_bit_equal_after_resume(tmp_path: Path) -> None:
    config, run = duel(ticks=2400, every=300), tmp_path / "run"
    whole = alone(tmp_path, config)
    for reached, resume in ((300, []), (1200, ["--resume"])):
        process = started(tmp_path, config, *resume)
        lines = run / "metrics.jsonl"
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        size = lines.stat().st_size
        wait_for(lambda: lines.stat().st_size > size)  # noqa: B023 - waits here: the next leg is under way
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) >= 8
        assert finish(process).code != 0
        assert reached <= newest_boundary(run) < 2400
    assert differing(trained(tmp_path, config, "--resume"), whole) == []


@pytest.mark.long
def test_single_file_script_resumes_to_the_same_curves(tmp_path: Path) -> None:
    """Unmodified: it does not know the arena, imports torch when it runs, and its workers never synchronize."""
    blue = {
        "algorithm": "scripts:Script",
        "independent": True,
        "options": {"path": str(TESTS / "single_file.py")},
    }
    data = duel(ticks=2400, every=300, blue=blue)
    data["envs"] = {"game": {"make": "gymnasium:CartPole-v1"}}
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 2}]
    whole = trained(tmp_path, data, run="whole", ranks=3)
    lines = list(JournalReader(whole / "metrics.jsonl"))
    first, second = ([line for line in lines if line["policy"] == f"blue#{number}"] for number in range(2))
    for lengths in ([line["length"] for line in updates] for updates in (first, second)):
        assert sum(lengths[-20:]) > sum(lengths[:20]), "it learns"
    assert first[-1]["loss"] != second[-1]["loss"]

    (tmp_path / "halt").write_text("700")
    process = started(tmp_path, data, ranks=3)
    wait_for(lambda: newest_boundary(tmp_path / "run") >= 600)
    assert kill_all(tmp_path) >= 3
    assert finish(process).code != 0
    (tmp_path / "halt").unlink()
    assert differing(trained(tmp_path, data, "--resume", ranks=3), whole) == []


LEARNERS = {name: {"algorithm": "learners:VectorLearner"} for name in ("blue", "red")}


def test_run_resumed_in_another_packing_is_bit_equal(tmp_path: Path) -> None:
    config = duel(ticks=400, every=100, **LEARNERS)
    for ranks, more in ((3, ["--ticks", "200"]), (5, ["--ticks", "300", "--resume"])):
        trained(tmp_path, config, *more, ranks=ranks)
    run, whole = alone(tmp_path, config, "--resume", run="run"), alone(tmp_path, config)
    assert (whole / "episodes.jsonl").read_bytes().count(b"\n") > 50
    assert differing(run, whole) == []


@pytest.mark.long
def test_descriptors_do_not_grow_over_hundreds_of_legs(tmp_path: Path) -> None:
    process = started(tmp_path, duel(ticks=10**9, every=7, **LEARNERS))
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
