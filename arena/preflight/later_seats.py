"""The seats that policies get after the first round: in later rounds of a league, and in evaluations.

`arena plan`, `arena check` and `arena train` check every policy in all of these seats before training starts (see
`arena.preflight.examine`): a policy that cannot fill a later seat is refused at once and not after hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from arena.config import Config
from arena.config.matches import Match
from arena.config.members import later_matches
from arena.config.schema import Evaluation
from arena.plan.build import make_plan
from arena.plan.plan import UNBOUNDED_TICKS, Plan
from arena.preflight.external import kind_of

_STREAM = 0x6576616C  # separates an evaluation's random streams from those of the training


def later_plans(config: Config) -> tuple[Plan, ...]:
    """Plans in which every policy has each seat that it may get after the first round; they are never played."""

    def of(config: Config, placed: Sequence[tuple[str, Match]]) -> Plan:
        played = msgspec.structs.replace(
            config, matches=tuple(match for _, match in placed), rounds=config.round_count, scale=False
        )
        return make_plan(played, places=[path for path, _ in placed], whole=config)

    def once(*placed: tuple[str, Match]) -> list[tuple[str, Match]]:
        singles = [(path, msgspec.structs.replace(match, copies=1)) for path, match in placed]
        return [*{repr(single): (path, single) for path, single in reversed(singles)}.values()][::-1]

    later, found = later_matches(config), []
    if later:
        found.append(of(config, [*once(*config.entries()), *later]))
    if config.evaluation is not None and (config.evaluation.seats is not None or config.evaluation.env_kwargs):
        frozen = evaluation_config(config, {})
        evaluated = [("evaluation", match) for _, match in frozen.entries()]
        found.append(of(frozen, [*once(*config.entries(), *later), *evaluated]))
    return tuple(found)


def evaluation_config(config: Config, loads: Mapping[str, str]) -> Config:
    """The configuration of an evaluation: each match of the first round once, played by frozen copies.

    Args:
        config: of the training.
        loads: the checkpoint file of each policy that has a checkpoint.
    """
    assert config.evaluation is not None, "the configuration has an evaluation"
    policies = {
        name: msgspec.structs.replace(policy, frozen=True, load=loads.get(name, policy.load))
        for name, policy in config.policies.items()
    }
    return msgspec.structs.replace(
        config.games_alone(),
        seed=int(np.random.SeedSequence([config.seed, _STREAM]).generate_state(1)[0]),
        ticks=UNBOUNDED_TICKS,
        rounds=1,
        league=None,
        policies=policies,
        matches=_matches(config, config.evaluation),
        scale=False,
    )


def _matches(config: Config, evaluation: Evaluation) -> tuple[Match, ...]:
    """Each match description of the first round once, with its own seats or the evaluation's, whose arguments it gets.

    External games are left out: they cannot be started for an evaluation.
    """
    entries = [
        msgspec.structs.replace(entry, copies=1, env_kwargs={**entry.env_kwargs, **evaluation.env_kwargs})
        for _, entry in config.entries()
        if kind_of(entry.env, config.envs[entry.env].make) is None
    ]
    if evaluation.seats is not None:
        entries = [msgspec.structs.replace(entry, seats=evaluation.seats, sides=None) for entry in entries]
    return tuple(entry for number, entry in enumerate(entries) if entry not in entries[:number])
