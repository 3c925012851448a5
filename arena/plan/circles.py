"""Circles in a drawing some of whose lines exclude each other.

At either end a line is of a kind, and a circle takes two lines of different kinds at each of its nodes, none of which
comes in it twice. Whether there is one through a given node is a question of matchings (Bang-Jensen and Gutin 1997,
"Alternating cycles and paths in edge-coloured multigraphs"; Szeider 2003, "Finding paths in graphs avoiding forbidden
transitions"). A node becomes a house:

    outer = inner    a door for each kind of its lines, two vertices that are matched; the lines end at the outer one
    left = right     a hall, matched as well; every inner vertex is joined to both

A path that goes along edges which are matched, and are not, in turn comes into a house by a door, crosses the hall, and
leaves by another door; and it crosses no hall twice. The two vertices of the first house's hall are not matched: such a
path from the one to the other is a circle. It would enlarge the matching, so it is found as such paths are (Edmonds
1965, "Paths, trees, and flowers"). A library would look for a whole matching, of which all but one pair are known.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Node: TypeAlias = Hashable


class Line(NamedTuple):
    """A line between two nodes."""

    ends: tuple[Node, Node]
    kinds: tuple[Hashable, Hashable]  # at either end: of two of a kind a circle takes one
    label: str = ""


class Drawing:
    """Lines among which there may be circles.

    Args:
        lines: all that there are.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._neighbours: list[list[int]] = []  # by vertex those that it is joined to and not matched with
        self._mates: dict[int, int] = {}
        self._halls: dict[Node, tuple[int, int]] = {}
        self._doors: dict[tuple[Node, Hashable], int] = {}
        self._lines: dict[tuple[int, int], Line] = {}
        for line in _passable(lines):
            one, other = (self._door(end, kind) for end, kind in zip(line.ends, line.kinds, strict=True))
            self._join(one, other)
            self._lines[one, other] = self._lines[other, one] = line

    def circle_through(self, start: Node) -> list[Line] | None:
        """A circle through a node, as its lines in a row; None if there is none."""
        if start not in self._halls:
            return None
        left, right = self._halls[start]
        mates = {vertex: mate for vertex, mate in self._mates.items() if vertex not in (left, right)}
        path = _alternating_path(self._neighbours, mates, left, right)
        if path is None:
            return None
        return [self._lines[step] for step in pairwise(path) if step in self._lines]

    def _door(self, node: Node, kind: Hashable) -> int:
        """The outer vertex of a door."""
        if (node, kind) not in self._doors:
            if node not in self._halls:
                self._halls[node] = self._pair()
            outer, inner = self._pair()
            for side in self._halls[node]:
                self._join(inner, side)
            self._doors[node, kind] = outer
        return self._doors[node, kind]

    def _pair(self) -> tuple[int, int]:
        one, other = len(self._neighbours), len(self._neighbours) + 1
        self._neighbours += [[], []]
        self._mates |= {one: other, other: one}
        return one, other

    def _join(self, one: int, other: int) -> None:
        self._neighbours[one].append(other)
        self._neighbours[other].append(one)


def _passable(lines: Sequence[Line]) -> Sequence[Line]:
    """Without those of nodes that no circle passes, as all their lines are of one kind."""
    kinds: defaultdict[Node, set[Hashable]] = defaultdict(set)
    for line in lines:
        for end, kind in zip(line.ends, line.kinds, strict=True):
            kinds[end].add(kind)
    left = [line for line in lines if all(len(kinds[end]) > 1 for end in line.ends)]
    return left if len(left) == len(lines) else _passable(left)


def _alternating_path(
    neighbours: Sequence[Sequence[int]], mates: Mapping[int, int], start: int, end: int
) -> list[int] | None:
    """A path between the two vertices that have no mate, every other edge of which is matched; None: there is none."""
    tree = _Tree(mates, start)
    queue = deque([start])
    while queue:
        vertex = queue.popleft()
        for other in neighbours[vertex]:
            if other == end:
                return [end, *tree.way_from(vertex)]
            if other in tree.even:
                queue.extend(tree.contract(vertex, other))
            elif other not in tree.parents:
                queue.append(tree.grow(vertex, other))
    return None


class _Tree:
    """Whatever can be reached from a vertex by alternating paths.

    A vertex is even if a path comes to it along its matched edge, so that others go on from it, and so is the root.
    Where an edge joins two even vertices of different flowers, it closes a flower: every vertex on the two ways to
    where they part is even, by the one way round or by the other, and they count as one, their base.

    Args:
        mates: by vertex the one that it is matched with.
        root: which has none.

    Attributes:
        even: the even vertices.
        parents: by vertex the one before it on a path that does not come along its matched edge.
    """

    def __init__(self, mates: Mapping[int, int], root: int) -> None:
        self._mates = mates
        self._root = root
        self._bases = {root: root}
        self._flowers = {root: [root]}  # by base
        self.even = {root}
        self.parents: dict[int, int] = {}

    def grow(self, vertex: int, other: int) -> int:
        """Goes on from an even vertex to one that is new, and to that one's mate, which is even."""
        mate = self._mates[other]
        self.parents[other] = vertex
        self.even.add(mate)
        for new in (other, mate):
            self._bases[new] = new
            self._flowers[new] = [new]
        return mate

    def contract(self, one: int, other: int) -> list[int]:
        """Takes an edge between two even vertices; returns all that have become even by it."""
        if self._bases[one] == self._bases[other]:
            return []
        base = self._parting(one, other)
        petals = {*self._turned(one, base, other), *self._turned(other, base, one)} - {base}
        found = [vertex for petal in petals for vertex in self._flowers.pop(petal)]
        self._flowers[base] += found
        self._bases |= dict.fromkeys(found, base)
        new = [vertex for vertex in found if vertex not in self.even]
        self.even.update(new)
        return new

    def way_from(self, vertex: int) -> list[int]:
        """The path from an even vertex back to the root."""
        found = [vertex]
        while found[-1] != self._root:
            odd = self._mates[found[-1]]
            found += [odd, self.parents[odd]]
        return found

    def _parting(self, one: int, other: int) -> int:
        """The base at which the ways of two vertices to the root come together."""
        before = {*self._bases_before(one)}
        return next(base for base in self._bases_before(other) if base in before)

    def _bases_before(self, vertex: int) -> Iterator[int]:
        """The bases of the even vertices on the way to the root."""
        base = self._bases[vertex]
        yield base
        while base != self._root:
            base = self._bases[self.parents[self._mates[base]]]
            yield base

    def _turned(self, vertex: int, base: int, beyond: int) -> Iterator[int]:
        """Lets the way from a vertex to a base be gone the other way too, from beyond; the bases of all on it."""
        while self._bases[vertex] != base:
            mate = self._mates[vertex]
            yield self._bases[vertex]
            yield self._bases[mate]
            self.parents[vertex] = beyond
            vertex, beyond = self.parents[mate], mate
