"""A run folder that an earlier version has written can still be reported on, rated and evaluated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from arena.cli.main import main

EARLIER = Path(__file__).parents[1] / "golden" / "earlier_run"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of a league of three policies, one of which learns: two rounds of 20 ticks."""
    shutil.copytree(EARLIER, tmp_path / "earlier")
    monkeypatch.chdir(tmp_path)
    return "earlier"


def test_standings_of_an_earlier_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["standings", folder]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[1:3] + row[5:7] for row in rows[1:]] == [
        ["paper", "+470", "16", "84.4"],
        ["learner", "-70", "16", "37.5"],
        ["rock", "-400", "16", "28.1"],
    ]


def test_report_of_an_earlier_folder(folder: str, tmp_path: Path) -> None:
    assert main(["report", folder]) == 0
    page = (tmp_path / folder / "report.html").read_text()
    assert all(name in page for name in ("rock", "paper", "learner", "#d62728"))


def test_evaluation_of_an_earlier_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", folder, "--episodes", "4"]) == 0
    assert "learner at tick 40 (last): 4 episodes, won" in capsys.readouterr().out
