"""Draws the import picture from the sources: `python diagrams/draw.py` writes imports.svg.

One box per package or public module of `arena/`, one row per level: a package imports from the rows below it only.
Packages that import each other would share a red box. The other pictures are edited by hand.
"""

from __future__ import annotations

import ast
import itertools
import statistics
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

import networkx

HERE = Path(__file__).resolve().parent
ROW = 92  # distance between two rows of boxes
BOX = 98  # width of a package
SWEEPS = 24  # passes over the rows, to order them

Place = tuple[str, int]
"""A package, or the package that an arrow leads to, and a row, counted from the bottom."""


INK, MUTED, LINE = "#1f2933", "#66727f", "#c5ccd3"
SANS = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, sans-serif"


class Sheet:
    """A picture of boxes and arrows, as SVG, with an opaque background. Lengths are in pixels; y points down."""

    def __init__(self, height: float, *, title: str, describe: str) -> None:
        size = {"viewBox": f"0 0 900 {number(height)}", "width": "900", "height": number(height)}
        self._root = ElementTree.Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "font-family": SANS, "role": "img"}
        )
        self._add("title").text = title
        self._add("desc").text = describe
        marker = ElementTree.SubElement(
            self._add("defs"),
            "marker",
            {
                "id": "head",
                "viewBox": "0 0 10 10",
                "refX": "9",
                "refY": "5",
                "markerWidth": "6.5",
                "markerHeight": "6.5",
                "orient": "auto-start-reverse",
            },
        )
        ElementTree.SubElement(marker, "path", {"d": "M0 1 L9 5 L0 9 z", "fill": MUTED})
        self.box(0.5, 0.5, 899, height - 1, fill="#ffffff", stroke="#e3e7eb", radius=10)

    def _add(self, tag: str, **attributes: str) -> ElementTree.Element:
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return ElementTree.SubElement(self._root, tag, names)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = LINE, radius: float = 8
    ) -> None:
        """A rectangle with round corners."""
        place = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
        self._add("rect", **place, rx=number(radius), fill=fill, stroke=stroke, stroke_width="1")

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", size: float = 13.5, **style: str) -> None:
        """A line of text; `y` is its base line, `anchor` is start, middle or end."""
        style = {"fill": INK, **style}
        self._add("text", x=number(x), y=number(y), font_size=number(size), text_anchor=anchor, **style).text = text

    def arrow(self, points: Sequence[tuple[float, float]]) -> None:
        """A line through points, with a head at its end."""
        line = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        style = {"fill": "none", "stroke": MUTED, "stroke_width": "1.6", "stroke_linejoin": "round"}
        self._add("polyline", points=line, **style, marker_end="url(#head)")

    def to_text(self) -> str:
        """The picture as the text of an SVG file."""
        ElementTree.indent(self._root)
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"


def number(value: float) -> str:
    """A coordinate with at most one digit after the point."""
    return f"{value:.1f}".removesuffix(".0")


def imports() -> str:
    """The packages of the arena in rows, with an arrow from each package to the packages that it imports."""
    graph = networkx.DiGraph()
    for path in sorted((HERE.parent / "arena").rglob("*.py")):
        importer = _package(path.relative_to(HERE.parent).with_suffix("").parts)
        for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            imported = _package(name.split("."))
            if importer and imported and importer != imported:
                graph.add_edge(importer, imported)
    circles = networkx.condensation(graph)  # packages that import each other become one node
    names = {node: ", ".join(sorted(circles.nodes[node]["members"])) for node in circles}
    packages = networkx.relabel_nodes(circles, names)
    heights = dict.fromkeys(sorted(packages), 0)  # the length of the longest path down
    for name in reversed(list(networkx.topological_sort(packages))):
        heights[name] = max((heights[other] + 1 for other in packages.successors(name)), default=0)
    sheet = Sheet(
        ROW * (max(heights.values()) + 1) + 68,
        title="Imports between the packages of arena/",
        describe=f"{len(names)} packages in {max(heights.values()) + 1} rows; arrows point to what is imported",
    )
    sheet.text(36, 46, "Imports point down", size=21, font_weight="600")
    sheet.text(
        36,
        70,
        f"the packages and public modules of arena/, {graph.number_of_edges()} imports between them; "
        "without arrows that follow from others",
        fill=MUTED,
    )
    routes = _routes(networkx.transitive_reduction(packages), heights)
    places = _places(routes, heights)
    for route in routes:
        (x, y), *between, (to, below) = (places[point] for point in route)
        through = [(across, edge) for across, top in between for edge in (top, top + 36)]
        sheet.arrow([(x, y + 36), *through, (to, below - 3)])
    for name in sorted(packages):
        x, y = places[name, heights[name]]
        width = max(BOX, 8.5 * len(name))
        sheet.box(x - width / 2, y, width, 36, fill="#fde8e8" if "," in name else "#f6f8fa")
        sheet.text(x, y + 23, name, anchor="middle", font_weight="600")
    return sheet.to_text()


def _routes(arrows: networkx.DiGraph, heights: dict[str, int]) -> list[list[Place]]:
    """Each arrow as the places that it goes through: one in each row, shared by the arrows to one package."""
    return [
        [(one, heights[one]), *((other, height) for height in range(heights[one] - 1, heights[other] - 1, -1))]
        for one, other in sorted(arrows.edges)
    ]


def _places(routes: list[list[Place]], heights: dict[str, int]) -> dict[Place, tuple[float, float]]:
    """Where each place is: a row is ordered by the mean position of its neighbors, until few arrows cross."""
    rows = [
        sorted({place for route in routes for place in route if place[1] == height})
        for height in range(max(heights.values()) + 1)
    ]
    neighbors = networkx.Graph([pair for route in routes for pair in itertools.pairwise(route)])
    across: dict[Place, float] = {}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            middle = {
                place: statistics.mean([across[other] for other in neighbors[place] if other in across] or [450])
                for place in row
            }
            row.sort(key=lambda place: (middle[place], place))
            widths = [BOX + 14 if heights[name] == height else 14 for name, height in row]
            gap = (828 - sum(widths)) / len(row)
            for place, end in zip(row, itertools.accumulate(width + gap for width in widths), strict=True):
                across[place] = 36 + end - (widths[row.index(place)] + gap) / 2
    return {place: (x, 100 + ROW * (len(rows) - 1 - place[1])) for place, x in across.items()}


def _package(parts: Sequence[str]) -> str | None:
    """The package or public module of the arena that a module belongs to; None for modules of other libraries."""
    return parts[1] if parts[0] == "arena" and len(parts) > 1 and not parts[1].startswith("__") else None


def _imported(node: ast.AST) -> Iterator[str]:
    """The full names of the modules that a module imports when it runs, also inside functions."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from _imported(child)


if __name__ == "__main__":
    (HERE / "imports.svg").write_text(imports(), encoding="utf-8")
