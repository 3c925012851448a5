"""Circles among lines that exclude each other agree with a walk along all rows of lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from arena.plan.circles import Drawing, Line

NODES = "abcdef"


@st.composite
def drawings(draw: st.DrawFn) -> list[Line]:
    """Lines of few kinds at each node, some of them side by side."""
    ends = st.sampled_from([*permutations(NODES[: draw(st.integers(2, len(NODES)))], 2)])
    kind = st.integers(0, draw(st.integers(0, 4)))
    found = draw(st.lists(st.tuples(ends, st.tuples(kind, kind)), max_size=14))
    return [Line(*line, label=str(number)) for number, line in enumerate(found)]


def circle_by_walking(start: str, lines: Sequence[Line]) -> bool:
    """Whether some row of lines that comes back closes a circle."""
    rows = [((start, line.kinds[line.ends.index(start)]), [start], line) for line in lines if start in line.ends]
    while rows:
        (first, passed, line) = rows.pop()
        here = line.ends.index(passed[-1])
        node, kind = line.ends[1 - here], line.kinds[1 - here]
        if node == start and kind != first[1]:
            return True
        if node not in passed:
            after = [other for other in lines if node in other.ends and other.kinds[other.ends.index(node)] != kind]
            rows += [(first, [*passed, str(node)], other) for other in after]
    return False


@settings(max_examples=1000)
@given(drawings())
def test_a_circle_is_found_wherever_one_can_be_walked(lines: list[Line]) -> None:
    drawing = Drawing(lines)
    found = {node: drawing.circle_through(node) is not None for node in NODES}
    event(f"{sum(found.values())} nodes")
    assert found == {node: circle_by_walking(node, lines) for node in NODES}


@settings(max_examples=1000)
@given(drawings())
def test_what_is_found_is_a_circle(lines: list[Line]) -> None:
    drawing = Drawing(lines)
    for start in NODES:
        circle = drawing.circle_through(start) or []
        node, passed = start, []
        for line, after in zip(circle, [*circle[1:], *circle[:1]], strict=True):
            here = 1 - line.ends.index(node)
            node = str(line.ends[here])
            passed.append(node)
            assert line.kinds[here] != after.kinds[after.ends.index(node)]
        assert len({*passed}) == len(circle)
        assert passed[-1:] == [start][: len(circle)]


def test_a_way_that_comes_back_to_its_own_door_is_none() -> None:
    """From a by way of b around c and d and out again by the door that it came in: a matching has a flower there."""
    lines = [
        *(Line(("a", "b"), (kind, 0)) for kind in (1, 2)),
        *(Line(pair, (2, 1)) for pair in (("b", "c"), ("c", "d"), ("d", "b"))),
    ]
    drawing = Drawing(lines)
    assert drawing.circle_through("a") is None
    assert len(drawing.circle_through("b") or ()) == 3


def test_a_long_circle_is_found_among_thousands_of_lines() -> None:
    count = 1000
    ring = [Line((number, (number + 1) % count), (1, 0)) for number in range(count)]
    spokes = [Line((number, (number * 7 + 3) % count), (1, 1)) for number in range(count) if number * 6 % count != 997]
    assert len(Drawing(ring).circle_through(0) or ()) == count
    assert Drawing(ring[:-1]).circle_through(0) is None
    assert Drawing([*ring, *spokes]).circle_through(5) is not None
