"""Snapshots in the league: which join, after which test, and which leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from arena.config.league import Snapshots
from arena.config.matches import Match
from arena.league.ratings import sprt
from arena.league.ratings.ratings import fit
from arena.league.results import Encounter, Results, Score
from arena.league.rounds_file import player_of, snapshot_name
from arena.league.timeline import Timeline
from arena.records.formats import GateRecord

Games: TypeAlias = Iterable[tuple[Match, Sequence[Encounter]]]
"""Per match its description, and its games in the order in which they ended."""


def joining(
    rule: Snapshots,
    candidates: Sequence[tuple[str, str | None]],
    score: Callable[[str, str], Score],
    *,
    tick: int,
) -> tuple[tuple[str, ...], tuple[GateRecord, ...]]:
    """The snapshots that join, and what gates say: all join without a gate, else those of policies that are better.

    The candidates are policies with the newest snapshot of each; None: it has none, so there is nothing to prove. The
    score is that of the games between a policy as it is and a snapshot of it, as the gate counts them.
    """
    gates = []
    for policy, newest in candidates:
        if rule.gate is not None and newest is not None:
            games = score(policy, newest)
            state = sprt.state(rule.gate, games)
            gates.append(GateRecord(policy, newest, state.verdict.value, state.llr, games.games))
    kept_out = {gate.policy for gate in gates if gate.verdict != sprt.Verdict.BETTER.value}
    names = tuple(snapshot_name(policy, tick) for policy, _ in candidates if policy not in kept_out)
    return names, tuple(gates)


def balanced(games: Games, policy: str, other: str) -> Score:
    """The games between two players, per setting equally many from each side, its first ones.

    One side may be better. If the players are equal, the first one wins a game from that side with the chance p, and
    loses one from the other side with p. The expected likelihood ratios of two such games are x and y with x + y = 2:
    their product is at most 1, so the bounds of the sequential test hold for pairs of games at any worth of the side.
    """
    settings: defaultdict[str, tuple[list[Score], list[Score]]] = defaultdict(lambda: ([], []))
    for match, played in games:
        if {*match.names} == {policy, other}:
            from_first, from_second = settings[repr(msgspec.structs.replace(match, seats=(), copies=1))]
            from_first += [game.score for game in played if {*game.first} == {policy}]
            from_second += [game.score.reversed for game in played if {*game.second} == {policy}]
    paired = [score for sides in settings.values() for pair in zip(*sides, strict=False) for score in pair]
    return Score(*map(sum, zip(*paired, strict=True)))


def paired(rounds: Iterable[Games], policy: str, other: str) -> Score:
    """The games of two players that never meet, in pairs against the same opponent in the same round and setting.

    With strengths a and b against an opponent t, the chance that the first wins and the second loses, divided by the
    chance of the opposite, is p (1 - q) / ((1 - p) q) = exp(a - b) in Davidson's model, whatever t, the side and the
    share of draws are: as in a decided game between the two. (The test of two proportions in Wald 1947, "Sequential
    Analysis", chapter 6.) Such a pair counts as won or lost; all other pairs, as drawn, say nothing. The rounds are
    those since the policy began as it is.
    """
    found = Score()
    for games in rounds:
        settings: defaultdict[str, tuple[list[Score], list[Score]]] = defaultdict(lambda: ([], []))
        for match, played in games:
            names = {*match.names}
            for place, player in enumerate((policy, other)):
                if player in names and len(names) == 2:
                    (rival,) = names - {player}
                    key = rival + repr(msgspec.structs.replace(match, seats=(), copies=1))
                    settings[key][place].extend(
                        game.score if {*game.first} == {player} else game.score.reversed for game in played
                    )
        for ours, theirs in settings.values():
            for mine, its in zip(ours, theirs, strict=False):
                won, lost = mine.wins and its.losses, mine.losses and its.wins
                found = found.plus(Score(wins=won, draws=1 - won - lost, losses=lost))
    return found


def leaving(rule: Snapshots, snapshots: Sequence[str], results: Results | Timeline) -> list[str]:
    """The surplus snapshots of one policy, the oldest first, in the order in which they leave.

    By count, the oldest leave. By spread, one after the other leaves, each time the one whose neighbors in strength are
    closest together; the newest, the weakest and the strongest stay.
    """
    too_many = max(0, len(snapshots) - rule.keep)
    if rule.keep_by == "count" or not too_many:
        return list(snapshots[:too_many])
    # Elo of each; a snapshot that has not played is interpolated by its tick between those that have.
    ratings, ticks = fit(results, coarse=True), {name: float(player_of(name).tick) for name in snapshots}
    elo = {name: ratings.of(name).elo for name in snapshots if name in ratings.players}
    strengths = ticks
    if len(elo) > 1:
        known = [ticks[name] for name in elo]
        strengths = {name: float(np.interp(tick, known, [*elo.values()])) for name, tick in ticks.items()}
    left, found = sorted(strengths, key=strengths.__getitem__), list[str]()
    for _ in range(too_many):
        gaps = {
            name: strengths[left[place + 1]] - strengths[left[place - 1]]
            for place, name in enumerate(left)
            if 0 < place < len(left) - 1 and name != snapshots[-1]
        }
        found.append(min(gaps, key=gaps.__getitem__))
        left.remove(found[-1])
    return found
