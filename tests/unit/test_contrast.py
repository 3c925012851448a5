"""Texts of the pages have the contrast that WCAG 2.1 asks for (AA: 4.5), by the colors of their style sheets."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest

SHEETS = {
    name: files(package).joinpath(name).read_text()
    for package, name in (
        ("arena.report", "templates/report.css"),
        ("arena.board", "static/board.css"),
        ("arena.board", "static/games.css"),
    )
}
AA = 4.5
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]])
_TO_LMS = np.vstack([_TO_LMS, [0.0883024619, 0.2817188376, 0.6299787005]])
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]])
_TO_LAB = np.vstack([_TO_LAB, [0.0259040371, 0.7827717662, -0.8086757660]])


def schemes() -> dict[str, dict[str, str]]:
    """The colors of the light and of the dark scheme, by their names."""
    light, dark = re.findall(r":root \{(.*?)\}", SHEETS["templates/report.css"], re.DOTALL)
    found = {
        name: dict(re.findall(r"--([\w-]+): (#\w{6});", text)) for name, text in (("light", light), ("dark", dark))
    }
    return {"light": found["light"], "dark": found["light"] | found["dark"]}


def linear(color: str) -> np.ndarray:
    """The channels of `#rrggbb` in light, in [0, 1]."""
    channels = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """The ratio of two colors, from 1 to 21."""
    low, high = sorted(float(color @ [0.2126, 0.7152, 0.0722]) + 0.05 for color in (one, other))
    return high / low


def mixed(color: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """`color-mix(in oklab, color share, other)`."""
    lab = [_TO_LAB @ np.cbrt(_TO_LMS @ each) for each in (color, other)]
    mix = share * lab[0] + (1 - share) * lab[1]
    return np.clip(np.linalg.solve(_TO_LMS, np.linalg.solve(_TO_LAB, mix) ** 3), 0, 1)


def texts() -> list[tuple[str, str, str | None]]:
    """Of each rule that sets a color of text: its selector, this color, and the background that it sets, if any."""
    found = []
    for name, sheet in SHEETS.items():
        for selector, body in _RULE.findall(re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)):
            color = re.search(r"(?<![\w-])(?:color|fill): var\(--(\w+)\)", body)
            if color is None or ("fill" in color[0] and not re.search(r"text$|title$", selector.strip())):
                continue
            behind = re.search(r"background: var\(--(\w+)\)", body)
            found.append((f"{name} {selector.strip()}", color[1], behind[1] if behind else None))
    return found


def test_the_measure_is_that_of_the_standard() -> None:
    """Black and white have 21, #767676 on white is the lightest gray that passes; a mix of one color is that color."""
    white = linear("#ffffff")
    assert contrast(linear("#000000"), white) == pytest.approx(21)
    assert contrast(linear("#767676"), white) >= AA > contrast(linear("#777777"), white)
    assert mixed(linear("#3b7dbd"), linear("#3b7dbd"), 0.3) == pytest.approx(linear("#3b7dbd"), abs=1e-6)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_what_is_behind_it(scheme: str) -> None:
    colors = {name: linear(color) for name, color in schemes()[scheme].items()}
    low = {
        (selector, color, place): round(contrast(colors[color], colors[place]), 2)
        for selector, color, behind in texts()
        for place in ([behind] if behind else ["paper", "card"])
        if contrast(colors[color], colors[place]) < AA
    }
    assert len(texts()) > 40 and low == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_can_be_read_in_every_cell_of_a_payoff_matrix(scheme: str) -> None:
    colors = {name: linear(color) for name, color in schemes()[scheme].items()}
    assert not re.search(r"\.heat[^{}]*\{[^}]*opacity", SHEETS["templates/report.css"])
    for side in ("over", "under"):
        for share in np.linspace(0, 0.7, 15):  # 140 % of the distance from a draw
            behind = mixed(colors[side], colors["card"], share)
            assert contrast(colors["ink"], behind) >= AA, (side, share)


def test_numbers_of_units_can_be_read_on_their_circles() -> None:
    found = re.findall(r"\.map \.type-\d \{ --c: (#\w{6}); \}", SHEETS["static/games.css"])
    assert len(found) > 3
    assert min(contrast(linear("#ffffff"), linear(color)) for color in found) >= AA
