"""Boards: a game describes what is seen of it by marks on cells, and they are drawn as an image, in NumPy, or as text.

board = Board(3, 3, [Mark(0, 2, BLUE, "x", "X"), Mark(1, 1, RED, "o", "O")])
board.render("ansi")         three rows of three cells; (0, 0) is at the bottom left
board.render("rgb_array")    uint8 [height, width, 3], with discs that carry `X` and `O`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLUE, RED, GREEN, ORANGE, INK, GRAY = "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#2d343c", "#bec4ca"
PALE, WHITE = "#e2e5e8", "#ffffff"
PLAYERS = (BLUE, RED, INK, "#9467bd", "#8c564b", "#e377c2")
RENDER_MODES = ("rgb_array", "ansi")

_LINE = 20  # pixels of a line below a board
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-.+_:,;@"
_ROWS = (  # of the glyphs, of 3 x 5 pixels: each row is an octal digit
    "255522622771747717175571174717747577111175757757172575565656344436555674647746443455355755722271115255655"
    "4444757755655552555265644255636565534216722225555755552557755525555222712470070000002027200000702020000240202475747"
)
_GLYPHS = np.array([[int(row) & bit for bit in (4, 2, 1)] for row in _ROWS], np.bool_).reshape(-1, 5, 3)


class Mark(NamedTuple):
    """Something on a board; later marks hide earlier ones."""

    x: float  # of its middle, in cells
    y: float  # likewise; it points up
    color: str  # of the shape; without a shape, of the label
    text: str = ""  # in its cell in a text
    label: str = ""  # on it in an image: capital letters and numbers
    shape: str = "disc"  # with a white rim; or "box", or "": the label alone
    size: float = 0.36  # radius, or half the side of a box, in cells


class Board(NamedTuple):
    """What is seen of a game: marks on cells, and lines of text below; a mark off the cells is left out of a text."""

    columns: int
    rows: int
    marks: Sequence[Mark]
    lines: Sequence[str] = ()
    cell: tuple[float, float] | None = None  # height and width in pixels; None: square

    def render(self, mode: str) -> NDArray[np.uint8] | str:
        """The board in one of the `RENDER_MODES`."""
        return self.text() if mode == "ansi" else self.image()

    def text(self) -> str:
        """The text of each cell, or a dot, and the lines."""
        cells = {(round(mark.x), round(mark.y)): mark.text for mark in self.marks if mark.text}
        wide = max([2, *map(len, cells.values())])
        rows = ([cells.get((x, y), ".").rjust(wide) for x in range(self.columns)] for y in reversed(range(self.rows)))
        return "\n".join([*map(" ".join, rows), *self.lines])

    def image(self) -> NDArray[np.uint8]:
        """The picture, uint8 `[height, width, 3]`; without `cell` its longer side has 480 pixels, or 2 per cell."""
        side = max(2.0, 432 / max(self.columns, self.rows))
        (tall, wide), margin = self.cell or (side, side), 24
        bottom, right = margin + self.rows * tall, margin + self.columns * wide
        height, width = round(bottom + margin) + _LINE * len(self.lines), round(right + margin)
        image = np.full((height, width, 3), 249, np.uint8)  # a number fills much faster than a color
        image[margin - 2 : round(bottom) + 2, margin - 2 : round(right) + 2] = 194
        image[margin : round(bottom), margin : round(right)] = 255
        for line in range(1, self.rows):
            _fill(image, margin + line * tall, margin, margin + line * tall + 1, right, PALE)
        for line in range(1, self.columns):
            _fill(image, margin, margin + line * wide, bottom, margin + line * wide + 1, PALE)
        for mark in self.marks:
            row, column = bottom - (mark.y + 0.5) * tall, margin + (mark.x + 0.5) * wide
            high, far = mark.size * tall, mark.size * wide
            if mark.shape == "box":
                _fill(image, row - high, column - far, row + high, column + far, mark.color)
            elif mark.shape:
                _disc(image, row, column, far + 1.5, WHITE)
                _disc(image, row, column, far, mark.color)
            scale = int(min(1.9 * far / max(3, 4 * len(mark.label) - 1), 1.2 * high / 5))
            _write(image, row, column, mark.label, WHITE if mark.shape else mark.color, scale)
        for number, text in enumerate(self.lines):
            _write(image, bottom + _LINE * (number + 0.9), width / 2, text[: width // 8], INK, 2)
        return image


def _fill(image: NDArray[np.uint8], top: float, left: float, bottom: float, right: float, color: str) -> None:
    rows, columns = (slice(max(0, round(a)), max(0, round(b))) for a, b in ((top, bottom), (left, right)))
    image[rows, columns] = np.frombuffer(bytes.fromhex(color[1:]), np.uint8)


def _disc(image: NDArray[np.uint8], row: float, column: float, radius: float, color: str) -> None:
    """A filled disc with a soft edge."""
    top, left = max(0, int(row - radius - 1)), max(0, int(column - radius - 1))
    patch = image[top : max(0, int(row + radius + 3)), left : max(0, int(column + radius + 3))]
    rows, columns = np.ogrid[top : top + len(patch), left : left + patch.shape[1]]
    share = np.clip(radius + 0.5 - np.hypot(rows - row, columns - column), 0, 1)[..., None]
    patch[:] = np.rint(patch + (list(bytes.fromhex(color[1:])) - patch) * share)


def _write(image: NDArray[np.uint8], row: float, column: float, text: str, color: str, scale: int) -> None:
    """Writes around a middle; what has no glyph is left out."""
    top, left = round(row - 2.5 * scale), round(column - (4 * len(text) - 1) * scale / 2)
    for index, letter in enumerate(text.upper()):
        if letter in _LETTERS:
            bits = _GLYPHS[_LETTERS.index(letter)].repeat(scale, 0).repeat(scale, 1)
            corner = left + 4 * index * scale
            above, before = max(0, -top), max(0, -corner)  # pixels of the glyph that are outside the image
            patch = image[top + above : max(0, top + 5 * scale), corner + before : max(0, corner + 3 * scale)]
            patch[bits[above:, before:][: len(patch), : patch.shape[1]]] = list(bytes.fromhex(color[1:]))
