"""Decides before a run starts whether its matches could wait for each other in a circle.

A match waits for the actions of all its seats; a worker in a collective waits for the other workers of its policy. If
all workers of a policy synchronize after the same ticks of their matches (`schedule = "ticks"`), the match with the
fewest ticks can always go on. A policy whose workers synchronize whenever an episode is over breaks that, but no circle
leads through it if at most one of its matches has a worker of another such group, and no match has two of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena.errors import listed, pluralize
from arena.plan.plan import Plan


def waiting_text(plan: Plan, schedules: Mapping[str, str]) -> tuple[str, bool]:
    """Why the matches of a plan cannot wait for each other in a circle, or where they may, and what helps.

    `schedules` are, by policy, what its algorithm's class says: `ticks`, or `episodes`; a missing one counts as
    `episodes`. Returns the sentence, and whether the run is refused.
    """
    groups = {
        name: [match for match, _ in policy.workers]
        for name, policy in plan.policies.items()
        if len(policy.workers) > 1 and policy.config.learns
    }
    episodic = [name for name in groups if schedules.get(name) != "ticks"]
    refused: dict[str, str] = {}  # by policy, what it shares
    for name in episodic:
        doubled = sorted({match for match in groups[name] if groups[name].count(match) > 1})
        shared = sorted({*groups[name]} & {match for other in groups if other != name for match in groups[other]})
        if doubled:
            refused[name] = f"{name} has several seats in match {doubled[0]}"
        elif len(shared) > 1:
            others = [other for other in groups if other != name and {*groups[other]} & {*shared}]
            refused[name] = f"{name} shares the matches {listed([str(match) for match in shared])} with "
            refused[name] += listed(others)
    every = "whenever an episode of theirs is over"
    if refused:
        return (
            f"can deadlock: the workers of {', '.join(refused)} may meet {every}; such a policy may have one seat in a "
            f"match, and share one match with policies whose workers meet, but {'; '.join(refused.values())}. What "
            f"helps: `schedule = 'ticks'` in the algorithm's class, if all workers of {', '.join(refused)} meet after "
            "the same ticks of their matches, or never meet; matches that share fewer policies; or one worker for all "
            "entities that a policy has in a match"
        ), True
    ticks = f"no deadlock: every match plays exactly {pluralize(plan.ticks - plan.start, 'tick')}, and "
    if episodic:
        return f"{ticks}{', '.join(episodic)}, whose workers may meet {every}, shares one match at most", False
    return f"{ticks}the match with the fewest ticks done can always go on", False
