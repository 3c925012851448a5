"""Which workers of a process have a thread of their own, and that this changes no byte."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from arena.preflight.spec import spec_of
from in_process import one_match, play
from policies.ppo import PPO
from workers import KeepsThread, SharesThread


def played(worker: str, path: Path, **options: Any) -> Any:
    policies = {
        "blue": {"algorithm": f"workers:{worker}", "options": options},
        "red": {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "n_epochs": 1}},
    }
    game = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 20}}
    return play(one_match(game, policies, ticks=60, match={"copies": 2, "lanes": 2}), path)


def bytes_of(run: Any) -> dict[str, bytes]:
    folder = run.folder.path
    found = {"episodes": (folder / "episodes.jsonl").read_bytes()}
    return found | {path.name: path.read_bytes() for path in folder.glob("checkpoints/**/*.ckpt")}


def test_workers_of_users_keep_a_thread_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    shared = played("SharesThread", tmp_path / "shared")
    assert shared.notes == [(threading.get_ident(), threading.get_ident())] * 2
    kept = played("KeepsThread", tmp_path / "kept")
    threads = {made for made, _ in kept.notes}
    assert len(threads) == 2 and threading.get_ident() not in threads
    assert all(made == stepped for made, stepped in kept.notes)
    elsewhere = played("KeepsThread", tmp_path / "elsewhere", elsewhere=True)
    assert len({thread for note in elsewhere.notes for thread in note}) == 4
    assert len(bytes_of(shared)) > 1
    assert bytes_of(shared) == bytes_of(kept) == bytes_of(elsewhere)


@pytest.mark.parametrize(
    ("algorithm", "dedicated"),
    [
        (PPO, False),
        (type("Derived", (PPO,), {}), False),
        (type("Derived", (PPO,), {"dedicated_thread": True}), True),
        (KeepsThread, True),
        (SharesThread, False),
    ],
)
def test_class_says_whether_it_needs_a_thread(algorithm: type[Any], dedicated: bool) -> None:
    assert spec_of(algorithm).dedicated_thread is dedicated
