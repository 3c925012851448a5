"""Where the time of every rank went, from `profile.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from arena.diagnostics.profile import Activity
from arena.records.formats import ProfiledRole, ProfileFile

ORDER = sorted((activity.value for activity in Activity), key=lambda name: name.startswith("waiting"))  # work first


class Spent(msgspec.Struct, frozen=True):
    """The time of some roles together.

    Args:
        name: what they are: `environment`, `worker blue`, or the number of a rank.
        wall: seconds from their starts to their ends.
        cpu: seconds of processor time.
        seconds: by activity; they add up to `wall`.
    """

    name: str
    roles: int
    wall: float
    cpu: float
    seconds: dict[str, float]


class Timing(msgspec.Struct, frozen=True):
    """The time of all roles, twice: by what they are, and by the rank that hosts them."""

    activities: list[str]
    kinds: list[Spent]
    ranks: list[Spent]


def timing(profile: ProfileFile | None) -> Timing | None:
    """The time that a profile shows; None without one."""
    if profile is None or not profile.roles:
        return None
    kinds: dict[str, list[ProfiledRole]] = {}
    ranks: dict[int, list[ProfiledRole]] = {}
    for role in profile.roles:
        kinds.setdefault(f"{role.role} {role.policy}" if role.policy else role.role, []).append(role)
        ranks.setdefault(role.rank, []).append(role)
    found = {activity for role in profile.roles for activity in role.seconds}
    return Timing(
        activities=[*(name for name in ORDER if name in found), *sorted(found - set(ORDER))],
        kinds=[_spent(name, roles) for name, roles in kinds.items()],
        ranks=[_spent(str(rank), roles) for rank, roles in sorted(ranks.items())],
    )


def _spent(name: str, roles: Iterable[ProfiledRole]) -> Spent:
    found = list(roles)
    seconds: Counter[str] = Counter()
    for role in found:
        seconds.update(role.seconds)
    return Spent(name, len(found), sum(role.wall for role in found), sum(role.cpu for role in found), dict(seconds))
