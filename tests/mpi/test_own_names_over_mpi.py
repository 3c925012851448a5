"""Names of a user's own in a run of several processes: each imports the modules of `imports`."""

from __future__ import annotations

from pathlib import Path

from run_cli import episodes, trained

OWN = {
    "ticks": 10,
    "imports": ["own_names"],
    "envs": {"game": {"make": "countdown", "kwargs": {"length": 3}, "wrappers": ["doubled"]}},
    "policies": {"a": {"algorithm": "uniform"}},
    "matches": [{"env": "game", "seats": ["a"]}],
    "callbacks": ["counts"],
    "loggers": ["writes"],
}


def test_own_names_are_known_in_every_process(tmp_path: Path) -> None:
    run = trained(tmp_path, OWN, ranks=3)
    assert len(episodes(run)) > 0
    assert (run / "written").read_text() == "10"
