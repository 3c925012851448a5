"""Where the time of a run went, as data and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from arena.diagnostics.profile import RoleProfile
from arena.records.formats import ProfiledRole, ProfileFile
from arena.roles.state import Profiled


def profile_file(profiles: Mapping[Profiled, RoleProfile]) -> ProfileFile:
    """What `profile.json` holds: per role its wall and processor seconds, and the seconds of each activity."""
    return ProfileFile(
        tuple(
            ProfiledRole(
                rank=profiled.rank,
                role=profiled.role.kind.value,
                match=profiled.role.match,
                policy=profiled.policy,
                wall=profile.wall,
                cpu=profile.cpu,
                seconds=profile.seconds,
            )
            for profiled, profile in sorted(profiles.items(), key=lambda item: item[0].place)
        )
    )


def profile_lines(profile: ProfileFile) -> list[str]:
    """One line per kind of role and policy: the mean share of each activity in the wall time, the largest first."""
    kinds: dict[str, list[ProfiledRole]] = {}
    for role in profile.roles:
        name = f"{role.role} {role.policy}" if role.policy else role.role
        kinds.setdefault(name, []).append(role)
    pad = max(map(len, kinds), default=0)
    return [f"{name:{pad}}  {_shares(found)}" for name, found in kinds.items()]


def _shares(roles: Sequence[ProfiledRole]) -> str:
    wall = sum(role.wall for role in roles)
    totals: Counter[str] = Counter()
    for role in roles:
        totals.update(role.seconds)
    cpu = sum(role.cpu for role in roles) / wall
    shares = [
        f"{activity} {seconds / wall:.1%}" for activity, seconds in totals.most_common() if seconds >= wall / 1000
    ]
    return f"{', '.join(shares)} (processor {cpu:.1%})"
