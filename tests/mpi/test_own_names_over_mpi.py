"""Names of a user's own in a run of several processes: each imports the modules of `imports`."""

from __future__ import annotations

from pathlib import Path

from run_cli import arena, episodes, write

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
    for ranks in ("1", "3"):
        ended = arena(tmp_path, "train", write(tmp_path, OWN), "--run-dir", f"run-{ranks}", "--ranks", ranks)
        assert ended.code == 0, ended.err
    assert episodes(tmp_path / "run-3") == episodes(tmp_path / "run-1") != []
    assert (tmp_path / "run-3" / "written").read_text() == "10"
