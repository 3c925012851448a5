"""What a seat can be: the entities of its match that it covers, and the faces that it can give an algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arena.errors import ConfigError, listed, nearest
from arena.plan.plan import Entity, MatchPlan, SeatPlan

if TYPE_CHECKING:
    from arena.game.api import Interface

FACES = ("gym", "vector", "parallel")


def check_seats(match: MatchPlan, interface: Interface) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat of a match.

    Raises:
        ConfigError: the seats do not cover the environment's entities exactly once; names the match's place.
    """
    try:
        return resolve_entities(match.seats, interface.entities)
    except ConfigError as error:
        raise ConfigError(f"environment {match.env!r}: {error.message}", path=match.path) from error


def resolve_entities(seats: Sequence[SeatPlan], interface_entities: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat.

    Args:
        seats: of one match; they name entities by index or by name.
        interface_entities: the names of the environment's entities, in its order.

    Raises:
        ConfigError: the seats do not cover the entities exactly once.
    """
    known: dict[Entity, int] = {}
    for index, name in enumerate(interface_entities):
        known[index] = known[name] = index
    named = [entity for seat in seats for entity in seat.entities]
    unknown = [entity for entity in named if entity not in known]
    counts = Counter(known[entity] for entity in named if entity in known)
    missing = [name for name in interface_entities if not counts[known[name]]]
    doubled = [name for name in interface_entities if counts[known[name]] > 1]
    faults = [f"no seat plays {listed(missing)}"] if missing else []
    if doubled:
        faults.append(f"more than one seat plays {listed(doubled)}")
    if unknown:
        hint = next((f"; {nearest(entity, interface_entities)}" for entity in unknown if isinstance(entity, str)), "")
        what = "is no entity" if len(unknown) == 1 else "are no entities"
        faults.append(f"there {what} {listed([repr(entity) for entity in unknown])}{hint}")
    if faults:
        numbered = listed([f"{index} {name}" for index, name in enumerate(interface_entities)])
        raise ConfigError(
            f"the seats must cover its {len(interface_entities)} entities ({numbered}) exactly once; they name "
            f"{len(named)}: {'; '.join(faults)}"
        )
    return tuple(tuple(known[entity] for entity in seat.entities) for seat in seats)


def choose_face(
    faces: str | tuple[str, ...], *, lanes: int, entities: int, uniform_spaces: bool, path: str = ""
) -> str:
    """The first of an algorithm's faces that a seat can give.

    Args:
        faces: what the algorithm asks for: `gym`, `vector`, `parallel`, or several in the order of preference.
        lanes: of the match.
        entities: how many the seat drives.
        uniform_spaces: whether all entities of the seat have equal spaces, and all or none of them have masks.
        path: of the seat, for messages.

    Raises:
        ConfigError: none of them fits; says why and what helps.
    """
    reasons = []
    for face in (faces,) if isinstance(faces, str) else faces:
        if face not in FACES:
            raise ConfigError(f"the algorithm asks for the face {face!r}; {nearest(str(face), FACES)}", path=path)
        if face == "vector" and not uniform_spaces:
            reason = "needs equal spaces of all entities of the seat, and masks of all or of none: give each entity a "
            reason += "seat of its own"
        elif face != "vector" and lanes > 1:
            reason = f"needs one lane, the match has {lanes}: set `lanes: 1` (and more `copies`)"
        elif face == "gym" and entities > 1:
            reason = f"needs one entity, the seat has {entities}: give each entity a seat of its own"
        else:
            return face
        reasons.append(f"{face!r} {reason}")
    raise ConfigError("the seat cannot give the face that the algorithm wants: " + "; ".join(reasons), path=path)
