"""The picture of the imports is true; the others, which are edited by hand, are shown and well formed."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import readme

DIAGRAMS = readme.ROOT / "diagrams"
NAMES = (
    *("environment_process", "workers", "proxy", "match_2v2", "round_robin", "legs", "rounds", "external"),
    *("ragged_message", "hand_over", "imports"),
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.slow
def test_picture_of_the_imports_is_up_to_date() -> None:
    drawn = runpy.run_path(str(DIAGRAMS / "draw.py"))["imports"]()
    assert drawn == (DIAGRAMS / "imports.svg").read_text(encoding="utf-8"), "run `make diagrams`"


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
