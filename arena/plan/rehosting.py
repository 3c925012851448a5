"""New ranks for the roles of processes that have died; the surviving ranks keep their roles.

Idle ranks, spares among them, come first, then the rank with the least load. A role that needs torch goes to a
rank that has imported it, if there is one: the import takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arena.plan.build import load_of
from arena.plan.plan import Plan, Role, RoleKind


def rehosted(plan: Plan, alive: Sequence[int]) -> tuple[Plan, list[int]]:
    """The plan on the surviving ranks.

    Args:
        plan: of the run before the deaths.
        alive: the surviving ranks, ascending; at least one.

    Returns:
        the new plan, and for each of its ranks the rank in the old plan: in the old order, except that a dead rank 0 is
        replaced by an idle rank, or else by the first surviving one.
    """
    hosted = {rank: list(plan.ranks[rank]) for rank in alive}
    order = list(alive)
    if 0 not in hosted:
        root = next((rank for rank in alive if not hosted[rank]), alive[0])
        order = [root, *(rank for rank in alive if rank != root)]
        hosted[root].insert(0, Role(RoleKind.ROOT))
    orphans = [role for rank, roles in enumerate(plan.ranks) if rank not in hosted for role in roles]
    for role in sorted(orphans, key=lambda role: not load_of(plan, role).torch):  # spares for the heaviest
        if role.kind is not RoleKind.ROOT:
            hosted[_home(plan, role, hosted)].append(role)
    place = {role: number for number, role in enumerate(plan.roles())}
    ranks = tuple(tuple(sorted(hosted[rank], key=place.__getitem__)) for rank in order)
    return replace(plan, ranks=ranks), order


def _home(plan: Plan, role: Role, hosted: dict[int, list[Role]]) -> int:
    """The best rank for a role."""
    needs_torch = load_of(plan, role).torch

    def cost(rank: int) -> tuple[bool, bool, int, int]:
        loads = [load_of(plan, other) for other in hosted[rank]]
        has_torch = any(load.torch for load in loads)
        return bool(loads), has_torch != needs_torch, sum(load.weight for load in loads), rank

    return min(hosted, key=cost)
