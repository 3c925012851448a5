"""Draws the import picture from the sources: `python diagrams/imports.py` writes imports.svg.

One box per package or public module of `arena/`, one row per level: a package imports from the rows below it only.
Packages that import each other would share a red box.
"""

from __future__ import annotations

import ast
import itertools
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import networkx
from svg import CARD, MUTED, Sheet

HERE = Path(__file__).resolve().parent
ROW = 92  # distance between two rows of boxes
BOX = 98  # width of a package
SWEEPS = 24  # passes over the rows, to order them

Place = tuple[str, int]
"""A package, or the package that an arrow leads to, and a row, counted from the bottom."""


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
    sheet.heading(
        "Imports point down",
        f"the packages and public modules of arena/, {graph.number_of_edges()} imports between them; "
        "without arrows that follow from others",
    )
    routes = _routes(networkx.transitive_reduction(packages), heights)
    places = _places(routes, heights)
    for route in routes:
        (x, y), *between, (to, below) = (places[point] for point in route)
        through = [(across, edge) for across, top in between for edge in (top, top + 36)]
        sheet.arrow([(x, y + 36), *through, (to, below - 3)], color=MUTED)
    for name in sorted(packages):
        x, y = places[name, heights[name]]
        width = max(BOX, 8.5 * len(name))
        sheet.box(x - width / 2, y, width, 36, fill="#fde8e8" if "," in name else CARD)
        sheet.text(x, y + 23, name, bold=True, anchor="middle")
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
