"""Teams, for algorithms whose critics see a whole one: the places of a worker's entities, and which teams fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.vector import VectorEnv

from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.group.group import Group


def places_of(env: VectorEnv[Any, Any, Any], group: Group) -> tuple[int, range]:
    """How many entities the worker's team has, and the places of its own among them.

    Entities are in the order of the seats. They are those of the worker's seat, or one of each worker of `group.team`.
    """
    own = len(getattr(env, "seat_entities", ("alone",)))
    first = group.team.index(group.rank) * own
    return own * len(group.team), range(first, first + own)


def check_team(name: str, own: int, first: int, *, instead: str) -> None:
    """Checks that an algorithm can learn with a team of `own` entities, where its policy's first team has `first`.

    Args:
        name: of the algorithm.
        own: entities of the team.
        first: of the policy's first team.
        instead: an algorithm that needs none.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    if own < 2:
        raise ConfigError(
            f"the critic of {name} looks at all entities of a team, and here the team has one; let the policy play "
            f"several, as in seats: [blue, blue, red] or [[blue, blue], red], or take {instead}"
        )
    if own != first:
        raise ConfigError(
            f"the team has {own} entities, the policy's first one has {first}: the critic of {name} looks at all "
            "entities of a team, so all teams need equally many; those with a seat each are one team with all others "
            "of the policy on their side, those of one seat are a team by themselves"
        )
