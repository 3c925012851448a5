"""The seats that policies get after the first round: in later rounds of a league, and in evaluations.

`arena plan`, `arena check` and `arena train` check every policy in all of these seats before training starts (see
`arena.preflight.examine`): a policy that cannot fill a later seat is refused at once and not after hours.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arena.config import Config
from arena.config.matches import MatchConfig
from arena.config.members import later_matches
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.run.evaluation_config import evaluation_config


def later_plans(config: Config) -> tuple[Plan, ...]:
    """Plans in which every policy has each seat that it may get after the first round; they are never played."""

    def of(config: Config, placed: Sequence[tuple[str, MatchConfig]]) -> Plan:
        played = msgspec.structs.replace(
            config, matches=tuple(match for _, match in placed), schedule=config.rounds, scale=False
        )
        return make_plan(played, places=[path for path, _ in placed], whole=config)

    def once(*placed: tuple[str, MatchConfig]) -> list[tuple[str, MatchConfig]]:
        singles = [(path, msgspec.structs.replace(match, copies=1)) for path, match in placed]
        return [*{repr(single): (path, single) for path, single in reversed(singles)}.values()][::-1]

    later, found = later_matches(config), []
    if later:
        found.append(of(config, [*once(*config.entries()), *later]))
    if config.evaluation is not None and config.evaluation.seats is not None:
        frozen = evaluation_config(config, {})
        evaluated = [("evaluation", match) for _, match in frozen.entries()]
        found.append(of(frozen, [*once(*config.entries(), *later), *evaluated]))
    return tuple(found)
