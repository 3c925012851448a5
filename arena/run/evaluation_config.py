"""The configuration of an evaluation: each match of the first round once, played by frozen copies of the policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from arena import registry
from arena.config import Config
from arena.config.matches import MatchConfig
from arena.run.leg import UNBOUNDED_TICKS

if TYPE_CHECKING:
    from arena.config.matches import SeatEntry

_STREAM = 0x6576616C  # separates an evaluation's random streams from those of the training


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
        schedule=1,
        league=None,
        policies=policies,
        matches=_matches(config, config.evaluation.seats),
        scale=False,
    )


def _matches(config: Config, seats: tuple[SeatEntry, ...] | None) -> tuple[MatchConfig, ...]:
    """Each match description of the first round once, with its own seats or the evaluation's.

    External games are left out: they cannot be started for an evaluation.
    """
    entries = [
        msgspec.structs.replace(entry, copies=1)
        for _, entry in config.entries()
        if registry.external_kind(config.envs[entry.env].make) is None
    ]
    if seats is not None:
        entries = [msgspec.structs.replace(entry, seats=seats, sides=None) for entry in entries]
    return tuple(entry for number, entry in enumerate(entries) if entry not in entries[:number])
