"""The entities of its match that a seat covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arena.errors import ConfigError, listed, nearest
from arena.plan.plan import Entity, MatchPlan, SeatPlan

if TYPE_CHECKING:
    from arena.game.api import Interface


def check_seats(match: MatchPlan, interface: Interface) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat of a match.

    Raises:
        ConfigError: the seats do not cover the environment's entities exactly once; names the match's place.
    """
    try:
        return resolve_entities(match.seats, interface.entities)
    except ConfigError as error:
        raise ConfigError(f"environment {match.env!r}: {error.message}", path=match.path) from error


def teams_of(match: MatchPlan, entities: Sequence[tuple[int, ...]]) -> dict[str, list[list[int]]]:
    """By policy its teams in a match: their entities in the order of the seats; `entities`: of `check_seats`."""
    teams: dict[tuple[str, int | None, int | None], list[int]] = {}
    for seat, found in zip(match.seats, entities, strict=True):
        teams.setdefault(match.team_of(seat.index), []).extend(found)
    return {name: [team for key, team in teams.items() if key[0] == name] for name, *_ in teams}


def resolve_entities(seats: Sequence[SeatPlan], interface_entities: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The entity indices of every seat of a match, which name entities by index or by name."""
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
