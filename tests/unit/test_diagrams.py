"""The pictures are those of the plans and messages that the code makes."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

import readme

DIAGRAMS = readme.ROOT / "diagrams"
NAMES = (
    "environment_process",
    "workers",
    "proxy",
    "match_2v2",
    "round_robin",
    "legs",
    "rounds",
    "external",
    "ragged_message",
    "hand_over",
    "imports",
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures() -> dict[str, Callable[[], str]]:
    """What `diagrams/draw.py` draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DIAGRAMS)
        drawn: dict[str, Callable[[], str]] = runpy.run_path(str(DIAGRAMS / "draw.py"))["PICTURES"]
        return drawn


def words(name: str) -> str:
    """All text of a picture."""
    root = ElementTree.parse(DIAGRAMS / f"{name}.svg").getroot()
    return "\n".join(element.text or "" for element in root.iter(f"{SVG}text"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_picture_is_up_to_date(name: str, pictures: dict[str, Callable[[], str]]) -> None:
    assert set(pictures) == set(NAMES)
    stored = (DIAGRAMS / f"{name}.svg").read_text(encoding="utf-8")
    assert pictures[name]() == stored, "run `make diagrams`"


def test_the_small_run_has_six_processes() -> None:
    shown = words("match_2v2")
    assert "6 processes" in shown
    assert [f"rank {rank}" in shown for rank in range(7)] == [True] * 6 + [False]


def test_the_large_run_has_thirty_matches_and_151_processes() -> None:
    shown = words("round_robin")
    assert "30 matches, 151 processes" in shown
    assert "30 x (1 environment + 4 workers) + 1 root = 151 processes" in shown
    assert shown.count("ranks ") == 30
    assert shown.count("30 workers") == 4


def test_league_rounds_show_past_selves() -> None:
    shown = words("rounds").split("\n")
    assert [f"round {number}" in shown for number in range(5)] == [True] * 4 + [False]
    assert "@500" in shown


def test_roles_of_failed_ranks_are_rehosted() -> None:
    shown = words("legs").split("\n")
    assert "rank 3: died" in shown
    assert shown.count("blue_1") == 2
    assert "now rank 4" in shown
    assert "now rank 5" not in shown


def test_message_length_is_the_sum_of_its_fields() -> None:
    numbers = [int(word) for word in words("proxy").split() if word.isdigit()]
    assert 16 * (8 * 4) in numbers, "16 lanes of 8 float32: the observations of one entity"
    assert 16 * 8 in numbers, "16 lanes of an int64 action, and of a float64 reward"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_outside_of_a_picture(name: str) -> None:
    root = ElementTree.parse(DIAGRAMS / f"{name}.svg").getroot()
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert min(x, y) >= 0
        assert x + wide <= width
        assert y + high <= height


def test_pages_show_every_picture() -> None:
    shown = "".join(page.text for page in readme.PAGES.values())
    assert [name for name in NAMES if f"diagrams/{name}.svg)" not in shown] == []
    assert {path.stem for path in Path(DIAGRAMS).glob("*.svg")} == set(NAMES)
