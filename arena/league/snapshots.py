"""Which past selves are in the league: who joins, after which test, and who leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arena.config.league import GateConfig, SnapshotsConfig
from arena.league.ratings import Ratings, fit
from arena.league.results import Results
from arena.league.rounds import GateRecord, player_of, snapshot_name
from arena.league.sequential import Test, Verdict


class Joining(NamedTuple):
    """The snapshots that join, and what the tests have said."""

    names: tuple[str, ...]
    gates: tuple[GateRecord, ...]


def joining(
    rule: SnapshotsConfig, candidates: Sequence[tuple[str, str | None]], results: Results, *, tick: int
) -> Joining:
    """The policies whose snapshots join: without a gate all; with one, those that have proved to be better.

    Args:
        rule: whether there is a gate.
        candidates: policies, and the newest snapshot of each; None: it has none, so there is nothing to prove.
        results: of the games that count.
        tick: of the snapshots.
    """
    gates = tuple(
        _tested(rule.gate, policy, newest, results)
        for policy, newest in candidates
        if rule.gate is not None and newest is not None
    )
    kept_out = {gate.policy for gate in gates if gate.verdict != Verdict.BETTER.value}
    return Joining(tuple(snapshot_name(policy, tick) for policy, _ in candidates if policy not in kept_out), gates)


def _tested(gate: GateConfig, policy: str, newest: str, results: Results) -> GateRecord:
    score = results.between(policy, newest)
    state = Test(gate.elo, gate.alpha, gate.beta).state(score)
    return GateRecord(policy, newest, state.verdict.value, state.llr, score.games)


def leaving(rule: SnapshotsConfig, snapshots: Sequence[str], results: Results) -> list[str]:
    """The snapshots of one policy that are too many, those that leave first first.

    By count the oldest leave. By spread one after the other leaves whose neighbours in strength are closest together;
    the newest, the weakest and the strongest stay.

    Args:
        rule: how many stay, and which.
        snapshots: of the policy, the oldest first.
        results: of the games that count.
    """
    too_many = max(0, len(snapshots) - rule.keep)
    if rule.keep_by == "count" or not too_many:
        return list(snapshots[:too_many])
    strengths = dict(zip(snapshots, _strengths(snapshots, fit(results)), strict=True))
    return _closest(strengths, too_many, newest=snapshots[-1])


def _closest(strengths: dict[str, float], count: int, *, newest: str) -> list[str]:
    left = sorted(strengths, key=strengths.__getitem__)
    found = []
    for _ in range(count):
        gaps = {
            name: strengths[left[place + 1]] - strengths[left[place - 1]]
            for place, name in enumerate(left)
            if 0 < place < len(left) - 1 and name != newest
        }
        found.append(min(gaps, key=gaps.__getitem__))
        left.remove(found[-1])
    return found


def _strengths(snapshots: Sequence[str], ratings: Ratings) -> list[float]:
    """Elo of each; one that has not played is taken to lie between those before and after it, as its tick does."""
    ticks = [float(player_of(name).tick) for name in snapshots]
    rated = [
        (tick, ratings.of(name).elo) for tick, name in zip(ticks, snapshots, strict=True) if name in ratings.players
    ]
    if len(rated) < 2:
        return ticks
    known, elo = zip(*rated, strict=True)
    return [float(strength) for strength in np.interp(ticks, known, elo)]
