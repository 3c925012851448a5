"""A small canvas for the pictures of the games, in NumPy.

Positions on a canvas are (row, column) in pixels, fractions allowed; row 0 is the top. `World` converts positions on
the square [-1, 1]^2 to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]

BLUE: Color = (31, 119, 180)
RED: Color = (214, 39, 40)
GREEN: Color = (44, 160, 44)
ORANGE: Color = (255, 127, 14)
INK: Color = (45, 52, 60)
GRAY: Color = (190, 196, 202)
PALE: Color = (226, 229, 232)
PAPER: Color = (248, 249, 250)
WHITE: Color = (255, 255, 255)

PLAYERS: tuple[Color, ...] = (BLUE, RED, INK, (148, 103, 189), (140, 86, 75), (227, 119, 194))

TEXT_COLUMNS, TEXT_ROWS = 21, 11  # of a field as text

# Glyphs of 3 x 5 pixels, one string of three per row from the top.
_GLYPHS = {
    "0": ".#. #.# #.# #.# .#.", "1": ".#. ##. .#. .#. ###", "2": "### ..# ### #.. ###", "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#", "5": "### #.. ### ..# ###", "6": "### #.. ### #.# ###", "7": "### ..# ..# ..# ..#",
    "8": "### #.# ### #.# ###", "9": "### #.# ### ..# ###", "-": "... ... ### ... ...", ".": "... ... ... ... .#.",
    "+": "... .#. ### .#. ...", "_": "... ... ... ... ###", " ": "... ... ... ... ...",
    "A": ".#. #.# ### #.# #.#", "B": "##. #.# ##. #.# ##.", "C": ".## #.. #.. #.. .##", "D": "##. #.# #.# #.# ##.",
    "E": "### #.. ##. #.. ###", "F": "### #.. ##. #.. #..", "G": ".## #.. #.# #.# .##", "H": "#.# #.# ### #.# #.#",
    "I": "### .#. .#. .#. ###", "J": "..# ..# ..# #.# .#.", "K": "#.# #.# ##. #.# #.#", "L": "#.. #.. #.. #.. ###",
    "M": "#.# ### ### #.# #.#", "N": "##. #.# #.# #.# #.#", "O": ".#. #.# #.# #.# .#.", "P": "##. #.# ##. #.. #..",
    "Q": ".#. #.# #.# ##. .##", "R": "##. #.# ##. #.# #.#", "S": ".## #.. .#. ..# ##.", "T": "### .#. .#. .#. .#.",
    "U": "#.# #.# #.# #.# ###", "V": "#.# #.# #.# #.# .#.", "W": "#.# #.# ### ### #.#", "X": "#.# #.# .#. #.# #.#",
    "Y": "#.# #.# .#. .#. .#.", "Z": "### ..# .#. #.. ###",
}  # fmt: skip


def hexadecimal(color: Color) -> str:
    """The color as `#1f77b4`."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def mixed(color: Color, other: Color, share: float) -> Color:
    """The first color mixed with a share in [0, 1] of the other one."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(color, other, strict=True))
    return red, green, blue


class Canvas:
    """A canvas to draw on; `pixels` is `[height, width, 3]` uint8."""

    def __init__(self, height: int, width: int, color: Color = PAPER) -> None:
        self.pixels: NDArray[np.uint8] = np.empty((height, width, 3), np.uint8)
        self.pixels[:] = color

    def rectangle(self, top: float, left: float, bottom: float, right: float, color: Color) -> None:
        """Fills a rectangle; bottom and right are exclusive."""
        rows = slice(max(0, round(top)), max(0, round(bottom)))
        self.pixels[rows, max(0, round(left)) : max(0, round(right))] = color

    def frame(self, top: float, left: float, bottom: float, right: float, color: Color, width: float = 2) -> None:
        """The border of a rectangle, `width` pixels inwards."""
        self.rectangle(top, left, top + width, right, color)
        self.rectangle(bottom - width, left, bottom, right, color)
        self.rectangle(top, left, bottom, left + width, color)
        self.rectangle(top, right - width, bottom, right, color)

    def ring(self, row: float, column: float, radius: float, color: Color, width: float = 2) -> None:
        """A circle whose line is `width` pixels wide, inwards."""
        self.disc(row, column, radius, color, hole=radius - width)

    def disc(self, row: float, column: float, radius: float, color: Color, hole: float = 0.0) -> None:
        """A filled disc with a soft edge, around a hole of this radius."""
        height, width, _ = self.pixels.shape
        top, bottom = max(0, int(row - radius - 1)), min(height, int(row + radius + 3))
        left, right = max(0, int(column - radius - 1)), min(width, int(column + radius + 3))
        distance = np.hypot(np.arange(top, bottom)[:, None] - row, np.arange(left, right) - column)
        share = np.clip(radius + 0.5 - distance, 0, 1)
        if hole > 0:
            share *= np.clip(distance - hole + 0.5, 0, 1)
        patch = self.pixels[top:bottom, left:right]
        patch[:] = np.rint(patch + (np.array(color) - patch) * share[..., None])

    def write(self, row: float, column: float, text: str, color: Color, scale: int = 4) -> None:
        """Writes capital letters and numbers around a center; a glyph is 3 x 5 times `scale` pixels."""
        top, left = round(row - 2.5 * scale), round(column - (4 * len(text) - 1) * scale / 2)
        for index, letter in enumerate(text.upper()):
            bits = np.array([[dot == "#" for dot in line] for line in _GLYPHS.get(letter, _GLYPHS[" "]).split()])
            corner = left + 4 * index * scale
            patch = self.pixels[max(0, top) : top + 5 * scale, max(0, corner) : max(0, corner + 3 * scale)]
            height, width, _ = patch.shape
            patch[bits.repeat(scale, 0).repeat(scale, 1)[:height, :width]] = color

    def piece(self, row: float, column: float, radius: float, color: Color, text: str = "") -> None:
        """A disc with a white rim, and a short text on it."""
        self.disc(row, column, radius + 1.5, WHITE)
        self.disc(row, column, radius, color)
        scale = int(min(radius * 1.6 / (4 * len(text) - 1), radius * 1.2 / 5)) if text else 0
        if scale:
            self.write(row, column, text, WHITE, scale)


def board_text(width: int, height: int, cells: Mapping[tuple[int, int], str]) -> str:
    """A board as text: the text of each cell (x, y), or a dot; (0, 0) is at the bottom left."""
    wide = max(2, *map(len, cells.values()))
    rows = ([cells.get((x, y), ".").rjust(wide) for x in range(width)] for y in reversed(range(height)))
    return "\n".join(map(" ".join, rows))


class World(NamedTuple):
    """Maps the square [-1, 1]^2 to a square canvas; y points up."""

    size: int = 480  # pixels of the canvas
    margin: int = 28  # pixels around the square

    @property
    def unit(self) -> float:
        """Pixels per unit of length."""
        return (self.size - 2 * self.margin) / 2

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The (row, column) of a point."""
        return self.margin + (1 - y) * self.unit, self.margin + (x + 1) * self.unit

    @staticmethod
    def cell(x: float, y: float) -> tuple[int, int]:
        """The cell of a point on a board of `TEXT_COLUMNS` x `TEXT_ROWS`, for `board_text`."""
        return round((x + 1) / 2 * (TEXT_COLUMNS - 1)), round((y + 1) / 2 * (TEXT_ROWS - 1))

    def canvas(self) -> Canvas:
        """An empty field with its border."""
        canvas = Canvas(self.size, self.size)
        inner = (self.margin, self.margin, self.size - self.margin, self.size - self.margin)
        canvas.rectangle(*inner, WHITE)
        canvas.frame(inner[0] - 2, inner[1] - 2, inner[2] + 2, inner[3] + 2, GRAY)
        return canvas


class Board:
    """A canvas with a board of square cells; (0, 0) is at the bottom left, y points up."""

    def __init__(self, width: int, height: int, size: int = 432) -> None:
        self.width, self.height = width, height
        self.cell = max(2, size // max(width, height))  # pixels of a cell
        self.margin = 24  # pixels around the board
        self.canvas = Canvas(height * self.cell + 2 * self.margin, width * self.cell + 2 * self.margin)
        bottom, right = self.margin + height * self.cell, self.margin + width * self.cell
        self.canvas.rectangle(self.margin, self.margin, bottom, right, WHITE)
        for line in range(1, height):
            self.canvas.rectangle(
                self.margin + line * self.cell, self.margin, self.margin + line * self.cell + 1, right, PALE
            )
        for line in range(1, width):
            self.canvas.rectangle(
                self.margin, self.margin + line * self.cell, bottom, self.margin + line * self.cell + 1, PALE
            )
        self.canvas.frame(self.margin - 2, self.margin - 2, bottom + 2, right + 2, GRAY)

    def middle(self, x: float, y: float) -> tuple[float, float]:
        """The (row, column) of the middle of a cell."""
        return self.margin + (self.height - y - 0.5) * self.cell, self.margin + (x + 0.5) * self.cell

    def fill(self, x: int, y: int, color: Color) -> None:
        """Fills a cell, with a thin border left free."""
        row, column = self.middle(x, y)
        half = max(1.0, self.cell / 2 - 1.5)
        self.canvas.rectangle(row - half, column - half, row + half, column + half, color)

    def bar(self, share: float, color: Color) -> None:
        """A bar below the board, filled to a share in [0, 1]."""
        top, right = self.margin + self.height * self.cell + 8, self.margin + self.width * self.cell
        self.canvas.rectangle(top, self.margin, top + 8, right, PALE)
        self.canvas.rectangle(top, self.margin, top + 8, self.margin + share * (right - self.margin), color)
