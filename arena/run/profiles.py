"""The role that a profile belongs to."""

from __future__ import annotations

from typing import NamedTuple

from arena.plan.plan import Plan, Role, RoleKind


class Profiled(NamedTuple):
    """A role with its policy and rank, which change from round to round of a league."""

    role: Role
    policy: str | None  # of a worker
    rank: int

    @classmethod
    def of(cls, plan: Plan, role: Role) -> Profiled:
        return cls(role, plan.seat(role).policy if role.kind is RoleKind.WORKER else None, plan.rank_of(role))

    @property
    def place(self) -> tuple[int, int, str, int]:
        """Its place in the order: the root first, then match by match the environment and its workers."""
        match, seat = (-1 if number is None else number for number in (self.role.match, self.role.seat))
        return match, seat, self.policy or "", self.rank
