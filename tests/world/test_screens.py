"""Games that open windows, on a virtual screen of their process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.dataset import open_dataset
from in_process import one_match
from run_cli import arena, wait_for, write
from system_programs import executable

ALONE: dict[str, Any] = one_match(
    {"make": "games:WindowGame", "screen": "xvfb"},
    {"a": {"algorithm": "random"}},
    **{"ticks": 12, "checkpoint_every": 6, "match": {"lanes": 2}},
)


def servers() -> set[str]:
    """The processes of all X servers."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == "Xvfb":
                found.add(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    return found


@pytest.mark.slow
def test_game_with_a_window_is_played_and_replayed_on_its_screen(tmp_path: Path) -> None:
    executable("Xvfb", "Xvfb")
    before = servers()
    for record in ("samples", "replays"):
        data = write(tmp_path, {**ALONE, "record": record})
        ended = arena(tmp_path, "train", data, "--run-dir", record, "--ranks", "1", DISPLAY="")
        assert ended.code == 0, ended.err
    sizes = open_dataset(tmp_path / "samples").batch("a")["obs"]
    assert sizes[0].tolist() == [64, 1400] and (sizes == sizes[0]).all()
    ended = arena(tmp_path, "replay", "replays", "--verify", DISPLAY="")
    assert ended.code == 0, ended.err
    wait_for(lambda: servers() <= before)


def test_missing_screen_names_the_remedy(tmp_path: Path) -> None:
    alone = {**ALONE, "envs": {"game": {"make": "games:WindowGame"}}}
    ended = arena(tmp_path, "train", write(tmp_path, alone), "--ranks", "1", DISPLAY="")
    assert ended.code == 2
    assert (
        "there is no display: set `screen: xvfb` of the environment, and install Xvfb (`apt install xvfb`)" in ended.err
    )


def test_screen_without_its_program_is_refused(tmp_path: Path) -> None:
    ended = arena(tmp_path, "check", write(tmp_path, ALONE), PATH="/nowhere")
    assert ended.code == 2
    assert "envs.game.screen: needs the program Xvfb, which is not installed; install Xvfb" in ended.err
    assert 'xvfb-run -a -s "-screen 0 1400x900x24" arena ...' in ended.err
