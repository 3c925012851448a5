"""The seats that policies get after the first round: in later rounds of a league, and in evaluations.

`arena plan`, `arena check` and `arena train` check every policy in all of these seats before training starts (see
`arena.preflight.examine`): a policy that cannot fill a later seat is refused at once and not after hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from arena.config import Config
from arena.config.matches import MatchConfig
from arena.config.members import later_matches
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.run.evaluation_config import evaluation_config

Placed = Sequence[tuple[str, MatchConfig]]
"""Match descriptions with their places in the configuration."""


def later_plans(config: Config) -> tuple[Plan, ...]:
    """Plans in which every policy has each seat that it may get after the first round; they are never played."""
    later = later_matches(config)
    found = [_of_rounds(config, later)] if later else []
    if config.evaluation is not None and config.evaluation.seats is not None:
        found.append(_of_evaluation(config, later))
    return tuple(found)


def _of_rounds(config: Config, later: Placed) -> Plan:
    """Matches of later rounds, and for their policies that play in the first round a match of that each."""
    names = {name for _, match in later for name in match.names}
    known: list[tuple[str, MatchConfig]] = []
    for path, match in _distinct(config.entries()):
        if names & {*match.names}:
            known.append((path, match))
            names -= {*match.names}
    return _plan(config, [*known, *later])


def _of_evaluation(config: Config, later: Placed) -> Plan:
    frozen = evaluation_config(config, {})
    evaluated = [("evaluation", match) for _, match in frozen.entries()]
    return _plan(frozen, [*_distinct([*config.entries(), *later]), *evaluated])


def _distinct(placed: Placed) -> list[tuple[str, MatchConfig]]:
    """Each description once, without copies."""
    found: list[tuple[str, MatchConfig]] = []
    for path, match in placed:
        single = msgspec.structs.replace(match, copies=1)
        if single not in [known for _, known in found]:
            found.append((path, single))
    return found


def _plan(config: Config, placed: Placed) -> Plan:
    matches = tuple(match for _, match in placed)
    played = msgspec.structs.replace(
        config, matches=matches, schedule=config.rounds, callbacks=(), spares=0, scale=False
    )
    plan = make_plan(played, whole=config)
    return replace(plan, matches=tuple(replace(match, path=placed[match.entry][0]) for match in plan.matches))
