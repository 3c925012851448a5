"""Rehearsals: everybody who will ever sit anywhere takes its seat once before anybody trains, and goes.

    of later rounds   policies that play later on, or in other seats than at first; they may learn there
    of evaluations    frozen copies, where the evaluation has seats of its own, beside all who train

They are made as in the run, with the weights that they begin with, and hold their spaces against those of their other
seats; nobody plays, and nothing is written. So whoever cannot take a seat, or a checkpoint, is known before hours were
trained. `arena plan` and `arena check` examine the same plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from arena.config import Config
from arena.config.matches import MatchConfig
from arena.config.members import later_matches, newcomers
from arena.plan.plan import Plan, make_plan
from arena.run.evaluation import config_now, evaluation_config
from arena.run.leg import Leg
from arena.run.run import Run

Placed = Sequence[tuple[str, MatchConfig]]
"""Match descriptions with their places in the configuration."""


def rehearsal_due(run: Run) -> Run | None:
    """The rehearsal that comes before a run goes on, over as many processes; None if all were, or none is needed."""
    if run.begun or run.concluded:
        return None
    config = config_now(run)
    plans = rehearsals(config, ranks=run.plan.processes)
    return rehearsal_of(run, plans[run.rehearsals], config) if run.rehearsals < len(plans) else None


def rehearsal_of(run: Run, plan: Plan, config: Config) -> Run:
    """The run in which everybody who has a seat in a plan takes it, and leaves at once."""
    everybody = frozenset((match.match, seat.index) for match in plan.matches for seat in match.seats)
    leg = Leg(restore=run.leg.restore, left=everybody, own={})
    asked = replace(run, plan=plan, leg=leg, episodes=1, rehearsal=True, profile=False, newcomers=newcomers(config))
    return replace(asked, allow_unproved=True)  # matches of several rounds: they never wait for each other


def rehearsals(config: Config, *, ranks: int | None = None) -> tuple[Plan, ...]:
    """Who will ever sit where, beside the first plan of a run.

    Args:
        config: of the run.
        ranks: how many processes there are; None: one for each role.
    """
    later = later_matches(config)
    found = [_of_rounds(config, later, ranks)] if later else []
    if config.evaluation is not None and config.evaluation.seats is not None:
        found.append(_of_evaluation(config, later, ranks))
    return tuple(found)


def _of_rounds(config: Config, later: Placed, ranks: int | None) -> Plan:
    """Seats of later rounds, and beside them one of each who has one in the first round already."""
    names = {name for _, match in later for name in match.names}
    known: list[tuple[str, MatchConfig]] = []
    for path, match in _once(config.entries()):
        if names & {*match.names}:
            known.append((path, match))
            names -= {*match.names}
    return replace(_plan(config, [*known, *later], ranks), snapshotted=config.snapshotted)


def _of_evaluation(config: Config, later: Placed, ranks: int | None) -> Plan:
    frozen = evaluation_config(config, {})
    evaluated = [("evaluation", match) for _, match in frozen.entries()]
    return _plan(frozen, [*_once([*config.entries(), *later]), *evaluated], ranks)


def _once(placed: Placed) -> list[tuple[str, MatchConfig]]:
    """Each description once, without copies."""
    found: list[tuple[str, MatchConfig]] = []
    for path, match in placed:
        alone = msgspec.structs.replace(match, copies=1)
        if alone not in [known for _, known in found]:
            found.append((path, alone))
    return found


def _plan(config: Config, placed: Placed, ranks: int | None) -> Plan:
    matches = tuple(match for _, match in placed)
    played = msgspec.structs.replace(config, matches=matches, callbacks=(), spares=0, scale=False)
    plan = make_plan(played, ranks=ranks)
    return replace(plan, matches=tuple(replace(match, path=placed[match.entry][0]) for match in plan.matches))
