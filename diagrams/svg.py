"""A sheet of paper for box-and-arrow pictures, kept as SVG text.

Every call draws on top of earlier ones. Lengths are in pixels of a sheet that is 900 wide; y points down. The text
depends on the calls alone, so a test can compare a picture with its file.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence

SANS = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

INK = "#1f2933"
MUTED = "#66727f"
LINE = "#c5ccd3"
CARD = "#f6f8fa"
PAPER = "#ffffff"

Point = tuple[float, float]


def number(value: float) -> str:
    """A coordinate with at most one digit after the point."""
    return f"{value:.1f}".removesuffix(".0")


def tint(color: str, share: float) -> str:
    """A color with a share in [0, 1] of white in it."""
    parts = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


class Sheet:
    """A picture with an opaque background, readable on dark pages too."""

    def __init__(self, height: float, *, title: str, describe: str, width: float = 900) -> None:
        self.width, self.height = width, height
        self._root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {number(width)} {number(height)}",
                "width": number(width),
                "height": number(height),
                "font-family": SANS,
                "role": "img",
            },
        )
        self._add("title").text = title
        self._add("desc").text = describe
        self._defs = self._add("defs")
        self._heads: set[str] = set()
        self.box(0.5, 0.5, width - 1, height - 1, fill=PAPER, stroke="#e3e7eb", radius=10)

    def _add(self, tag: str, **attributes: str) -> ElementTree.Element:
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return ElementTree.SubElement(self._root, tag, names)

    def heading(self, title: str, subtitle: str) -> None:
        """The two lines on top of a picture."""
        self.text(36, 46, title, size=21, bold=True)
        self.text(36, 70, subtitle, size=13.5, color=MUTED)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = CARD,
        stroke: str = LINE,
        radius: float = 8,
        thick: float = 1,
        dashed: bool = False,
    ) -> None:
        """A rectangle with round corners."""
        self._add(
            "rect",
            x=number(x),
            y=number(y),
            width=number(width),
            height=number(height),
            rx=number(radius),
            fill=fill,
            stroke=stroke,
            stroke_width=number(thick),
            **({"stroke_dasharray": "5 4"} if dashed else {}),
        )

    def disc(self, x: float, y: float, radius: float, *, fill: str, stroke: str = "none") -> None:
        """A filled circle around a point."""
        self._add("circle", cx=number(x), cy=number(y), r=number(radius), fill=fill, stroke=stroke)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13.5,
        color: str = INK,
        bold: bool = False,
        anchor: str = "start",
        mono: bool = False,
    ) -> None:
        """A line of text; `y` is its base line, `anchor` is start, middle or end."""
        style = {"font_family": MONO} if mono else {}
        if bold:
            style["font_weight"] = "600"
        element = self._add(
            "text", x=number(x), y=number(y), font_size=number(size), fill=color, text_anchor=anchor, **style
        )
        element.text = text

    def lines(self, x: float, y: float, texts: Iterable[str], *, step: float = 18, **style: object) -> None:
        """Lines of text under each other."""
        for index, text in enumerate(texts):
            self.text(x, y + index * step, text, **style)  # type: ignore[arg-type]

    def arrow(
        self,
        points: Sequence[Point],
        *,
        color: str = MUTED,
        thick: float = 1.6,
        dashed: bool = False,
        head: bool = True,
        tail: bool = False,
    ) -> None:
        """A line through points, with a head at its end and, if asked, one at its beginning."""
        attributes = {"stroke_dasharray": "3 4"} if dashed else {}
        if head:
            attributes["marker_end"] = self._head(color)
        if tail:
            attributes["marker_start"] = self._head(color)
        self._add(
            "polyline",
            points=" ".join(f"{number(x)},{number(y)}" for x, y in points),
            fill="none",
            stroke=color,
            stroke_width=number(thick),
            stroke_linejoin="round",
            **attributes,
        )

    def _head(self, color: str) -> str:
        name = f"head-{color[1:]}"
        if name not in self._heads:
            self._heads.add(name)
            marker = ElementTree.SubElement(
                self._defs,
                "marker",
                {
                    "id": name,
                    "viewBox": "0 0 10 10",
                    "refX": "9",
                    "refY": "5",
                    "markerWidth": "6.5",
                    "markerHeight": "6.5",
                    "orient": "auto-start-reverse",
                },
            )
            ElementTree.SubElement(marker, "path", {"d": "M0 1 L9 5 L0 9 z", "fill": color})
        return f"url(#{name})"

    def to_text(self) -> str:
        """The picture as the text of an SVG file."""
        ElementTree.indent(self._root)
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"
