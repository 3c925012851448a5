"""Who hosts the roles of processes that have died: those who live keep theirs, the orphans go where they cost least.

Idle ranks come first, those that were kept as spares among them. Then the rank that has the least to do, but a role
that needs torch goes to one that has it already, if there is one: importing it takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arena.plan.build import load_of
from arena.plan.plan import Plan, Role, RoleKind


def rehosted(plan: Plan, alive: Sequence[int]) -> tuple[Plan, list[int]]:
    """The plan on the ranks that live.

    Args:
        plan: whose ranks have died, but for some.
        alive: the ranks that live, rising; at least one.

    Returns:
        the new plan, and in the order of its ranks which rank of the old plan each one is: as before, but that a rank
        that was idle takes the place of the root's if that has died.
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
    """Where a role is best hosted."""
    needs_torch = load_of(plan, role).torch

    def cost(rank: int) -> tuple[bool, bool, int, int]:
        loads = [load_of(plan, other) for other in hosted[rank]]
        has_torch = any(load.torch for load in loads)
        return bool(loads), has_torch != needs_torch, sum(load.weight for load in loads), rank

    return min(hosted, key=cost)
