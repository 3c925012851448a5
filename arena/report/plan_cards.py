"""The plan as a picture: a small card for each match, with its environment, its seats, and the ranks that host them.

Cards are pictures of their own, so that they flow into the width of the page: 151 ranks can be read on a phone too.
Colors of lines and of text are classes of the page's style, which knows light and dark.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence

import msgspec

from arena.records.formats import PlanFile, PlannedMatch
from arena.report.colors import Colors, ink_on

MOST_CARDS = 200
_WIDTH, _STEP, _RADIUS, _TOP = 156, 34, 13, 64
_IN_A_ROW = 4


class Card(msgspec.Struct, frozen=True):
    """A match; `svg` is its picture."""

    match: int
    env: str
    lanes: int
    svg: str


class PlanPicture(msgspec.Struct, frozen=True):
    """The whole plan.

    Args:
        root: the rank that hosts the root.
        cards: of the first matches; `more`: how many matches are not shown.
        idle: ranks without a role.
    """

    processes: int
    roles: int
    matches: int
    root: int
    cards: list[Card]
    more: int
    idle: int


def plan_picture(plan: PlanFile, colors: Colors) -> PlanPicture:
    """The picture of a plan."""
    hosts = _hosts(plan)
    cards = [
        Card(match.match, match.env, match.lanes, _draw(match, hosts.get(match.match, []), colors))
        for match in plan.matches[:MOST_CARDS]
    ]
    return PlanPicture(
        processes=plan.processes,
        roles=sum(len(rank.roles) for rank in plan.ranks),
        matches=len(plan.matches),
        root=next((rank.rank for rank in plan.ranks for role in rank.roles if role.role == "root"), 0),
        cards=cards,
        more=len(plan.matches) - len(cards),
        idle=sum(not rank.roles for rank in plan.ranks),
    )


def _hosts(plan: PlanFile) -> dict[int, list[int]]:
    """Per match the ranks of its environment and of its workers, in the order of the seats."""
    hosts: dict[int, list[tuple[int, int]]] = {}
    for rank in plan.ranks:
        for role in rank.roles:
            if role.match is not None:
                place = 0 if role.role == "environment" else 1 + _seat(plan, role.match, role.policy, role.entities)
                hosts.setdefault(role.match, []).append((place, rank.rank))
    return {match: [rank for _, rank in sorted(found)] for match, found in hosts.items()}


def _seat(plan: PlanFile, match: int, policy: str | None, entities: Sequence[int | str]) -> int:
    """The place of a worker among the seats; its entities tell."""
    seats = plan.matches[match].seats
    return next(place for place, seat in enumerate(seats) if (seat.policy, seat.entities) == (policy, tuple(entities)))


def _draw(match: PlannedMatch, ranks: Sequence[int], colors: Colors) -> str:
    """The picture of one match; `ranks` are those of the environment and of the seats, as far as the plan has them."""
    places = list(_places(match))
    height = max(y for _, y in places) + _RADIUS + 4
    svg = ElementTree.Element(
        "svg", {"viewBox": f"0 0 {_WIDTH} {height}", "width": str(_WIDTH), "height": str(height), "role": "img"}
    )
    players = ", ".join(seat.policy for seat in match.seats)
    ElementTree.SubElement(svg, "title").text = f"match {match.match}: {players} in {match.env}"
    for x, y in places:
        ElementTree.SubElement(svg, "path", {"class": "link", "d": f"M{_WIDTH / 2} 30 C{_WIDTH / 2} 48 {x} 34 {x} {y}"})
    _environment(svg, ranks[0] if ranks else None)
    for seat, (x, y), rank in zip(match.seats, places, [*ranks[1:], *[None] * len(places)], strict=False):
        color = colors[seat.policy]
        node = ElementTree.SubElement(svg, "g")
        ElementTree.SubElement(node, "title").text = f"{seat.policy}, rank {rank}"
        dashed = {"stroke-dasharray": "3 2", "fill-opacity": "0.55"} if "@" in seat.policy else {}
        ElementTree.SubElement(
            node,
            "circle",
            {"cx": f"{x:g}", "cy": f"{y:g}", "r": str(_RADIUS), "fill": color, "stroke": color, **dashed},
        )
        label = ElementTree.SubElement(node, "text", {"x": f"{x:g}", "y": f"{y + 4:g}", "fill": ink_on(color)})
        label.text = "" if rank is None else str(rank)
    return ElementTree.tostring(svg, encoding="unicode")


def _places(match: PlannedMatch) -> Iterator[tuple[float, float]]:
    """Where the seats stand: in rows, with a gap between two sides of one row."""
    count = len(match.seats)
    first = len(match.sides[0]) if match.sides and len(match.sides) == 2 and count <= _IN_A_ROW else count
    for row in range(0, count, _IN_A_ROW):
        here = min(_IN_A_ROW, count - row)
        gap = 8.0 if first < count else 0.0
        left = _WIDTH / 2 - (here - 1) * _STEP / 2
        for place in range(here):
            yield left + place * _STEP + (gap if place >= first else -gap), _TOP + (row // _IN_A_ROW) * _STEP


def _environment(svg: ElementTree.Element, rank: int | None) -> None:
    box = {"class": "env", "x": str(_WIDTH / 2 - 30), "y": "4", "width": "60", "height": "26", "rx": "6"}
    ElementTree.SubElement(svg, "rect", box)
    label = ElementTree.SubElement(svg, "text", {"x": str(_WIDTH / 2), "y": "21.5", "class": "env-label"})
    label.text = "" if rank is None else str(rank)
