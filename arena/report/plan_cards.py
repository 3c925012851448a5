"""The plan as a picture: a small card for each match, with its environment, its seats, and the ranks that host them.

Cards are pictures of their own, so that they flow into the width of the page: 151 ranks can be read on a phone too.
Colors of lines and of text are classes of the page's style, which knows light and dark.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

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
    """The whole plan."""

    processes: int
    roles: int
    matches: int
    root: int  # the rank that hosts the root
    cards: list[Card]  # of the first matches
    more: int  # how many matches are not shown
    idle: int  # ranks without a role


def plan_picture(plan: PlanFile, colors: Colors) -> PlanPicture:
    """The picture of a plan."""
    hosts: dict[int, dict[int, int]] = {}  # per match and place (0: the environment, then the seats) the rank
    for rank in plan.ranks:
        for role in rank.roles:
            if role.match is not None:
                place = 0
                if role.role != "environment":  # its entities tell the seat of a worker
                    seats = [(seat.policy, seat.entities) for seat in plan.matches[role.match].seats]
                    place = 1 + seats.index((str(role.policy), tuple(role.entities)))
                hosts.setdefault(role.match, {})[place] = rank.rank
    cards = [
        Card(match.match, match.env, match.lanes, _draw(match, hosts.get(match.match, {}), colors))
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


def _draw(match: PlannedMatch, ranks: Mapping[int, int], colors: Colors) -> str:
    """The picture of one match; `ranks` by place, as far as the plan has them."""
    # The seats stand in rows, with a gap between two sides of one row.
    count, places = len(match.seats), []
    first = len(match.sides[0]) if match.sides and len(match.sides) == 2 and count <= _IN_A_ROW else count
    gap = 8.0 if first < count else 0.0
    for row in range(0, count, _IN_A_ROW):
        here = min(_IN_A_ROW, count - row)
        left = _WIDTH / 2 - (here - 1) * _STEP / 2
        for place in range(here):
            x = left + place * _STEP + (gap if place >= first else -gap)
            places.append((x, _TOP + (row // _IN_A_ROW) * _STEP))
    height = max(y for _, y in places) + _RADIUS + 4
    svg = ElementTree.Element(
        "svg", {"viewBox": f"0 0 {_WIDTH} {height}", "width": str(_WIDTH), "height": str(height), "role": "img"}
    )
    players = ", ".join(seat.policy for seat in match.seats)
    ElementTree.SubElement(svg, "title").text = f"match {match.match}: {players} in {match.env}"
    for x, y in places:
        ElementTree.SubElement(svg, "path", {"class": "link", "d": f"M{_WIDTH / 2} 30 C{_WIDTH / 2} 48 {x} 34 {x} {y}"})
    box = {"class": "env", "x": str(_WIDTH / 2 - 30), "y": "4", "width": "60", "height": "26", "rx": "6"}
    ElementTree.SubElement(svg, "rect", box)
    label = ElementTree.SubElement(svg, "text", {"x": str(_WIDTH / 2), "y": "21.5", "class": "env-label"})
    label.text = str(ranks.get(0, ""))
    for place, (seat, (x, y)) in enumerate(zip(match.seats, places, strict=True), 1):
        color = colors[seat.policy]
        node = ElementTree.SubElement(svg, "g")
        ElementTree.SubElement(node, "title").text = f"{seat.policy}, rank {ranks.get(place)}"
        dashed = {"stroke-dasharray": "3 2", "fill-opacity": "0.55"} if "@" in seat.policy else {}
        circle = {"cx": f"{x:g}", "cy": f"{y:g}", "r": str(_RADIUS), "fill": color, "stroke": color, **dashed}
        ElementTree.SubElement(node, "circle", circle)
        label = ElementTree.SubElement(node, "text", {"x": f"{x:g}", "y": f"{y + 4:g}", "fill": ink_on(color)})
        label.text = str(ranks.get(place, ""))
    return ElementTree.tostring(svg, encoding="unicode")
