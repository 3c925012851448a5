"""What happens from round to round, in words: what each entry of `matches` makes, and the league around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arena.config import Config
from arena.config.check_league import most_gate_games
from arena.config.league import Gate, League
from arena.config.matches import (
    Exploiters,
    Fictitious,
    Gauntlet,
    Generator,
    Knockout,
    Match,
    Matchmaking,
    Mixtures,
    Nash,
    OwnRule,
    Pairings,
    PastSelves,
    RoundRobin,
    Swiss,
    Uncertainty,
)
from arena.config.members import gated, populations, snapshotted
from arena.errors import listed, percent, pluralize
from arena.league.ratings.sprt import expected_games


def rounds_lines(config: Config) -> list[str]:
    """The rounds of a configuration, a line for each part; none if it has one round only."""
    if config.round_count == 1:
        return []
    extent = f"{config.round_count} of {pluralize(config.ticks, 'tick')} each"
    several = len(config.listed) > 1
    same = "in this round alone" if several else "the same in every round"
    lines = [f"rounds: {extent}; this is the first" + ("" if several else ", and none has more roles")]
    for place, entry in config.places():
        if isinstance(entry, Match):
            text = f"{' - '.join(dict.fromkeys(entry.names))}; {same}" if several else same
        else:
            text = f"{_who(entry)}; {'later rounds depend on results' if entry.adaptive else same}"
        lines.append(f"  {place}: {text}")
        if isinstance(entry, Matchmaking) and not entry.versus and (unmet := _unmet(config, entry)):
            lines.append(f"  {place}: not met in round 0: {listed(unmet)}")
    league = config.league or League()
    rule, evolution = league.snapshots, league.evolution
    if names := snapshotted(config):
        kept = "newest" if rule.keep_by == "count" else "most different in strength"
        stay = f"the {kept} stays" if rule.keep == 1 else f"the {rule.keep} {kept} stay"
        gate = "" if rule.gate is None else f", if better than the newest one by {rule.gate.elo:g} Elo"
        lines.append(f"  snapshots: of {_each(names)} {_often(rule.every)}{gate}; {stay}")
    if rule.gate is not None:
        lines += [f"  {line}" for line in gate_lines(config) or [f"gate: {_gate_text(rule.gate)}"]]
    if evolution is not None:
        groups = "; ".join(listed(names) for names in populations(config, evolution))
        options = f", with another {', '.join(evolution.perturb)}" if evolution.perturb else ""
        if evolution.keep is None:
            how = f"the worst {percent(evolution.share)} by {evolution.by} of {groups} take over from the best"
        else:
            best = "the best survives" if evolution.keep == 1 else f"the {evolution.keep} best survive"
            how = f"{best} by {evolution.by} of {groups}, and all others become copies"
        lines.append(f"  evolution: {_often(evolution.every)} {how}{options}")
    if league.decided is not None:
        lines.append(
            f"  over when the order of all is decided at an error of {league.decided.error:g}, where they are "
            f"{league.decided.elo:g} Elo apart"
        )
    return lines


def _who(entry: Generator) -> str:
    names = listed(entry.policies)
    bye = ""
    if isinstance(entry, (Knockout, Swiss)) and entry.byes:
        bye = f" ({entry.policies[0]} has a bye in the first)"
    if isinstance(entry, RoundRobin):
        return f"every pair of {names}"
    if isinstance(entry, Gauntlet):
        return f"{_each(entry.policies)} against {_each(entry.against)}"
    if isinstance(entry, Mixtures):
        return f"every pair of teams of {entry.team_size} that {names} can form"
    if isinstance(entry, Knockout):
        return f"the winners of {names}, until one is left after {pluralize(entry.rounds, 'round')}{bye}"
    if isinstance(entry, Swiss):
        return f"neighbors in the standings of {names} who have not met{bye}"
    if isinstance(entry, Pairings):
        return f"pairings of {names} by {entry.generator}"
    assert isinstance(entry, Matchmaking), entry
    matches = pluralize(entry.copies, "match", "matches")
    if entry.versus:
        how = entry.rule.class_ if isinstance(entry.rule, OwnRule) else entry.rule.kind
        return (
            f"{matches} of {_each(entry.policies)} (first side) and of {_each(entry.versus)} (second side), against "
            f"the other population and snapshots of it, by {how}"
        )
    return f"{matches} of {_each(entry.policies)} {_opponents(entry)}"


def _unmet(config: Config, entry: Matchmaking) -> list[str]:
    """The pairs that an entry may draw in the first round and no match of it has, as `blue and red`."""
    met = [{*match.names} for _, match in config.entries()]
    allowed = ({one, other} for one in entry.policies for other in entry.rule.opening(entry, one, config.learners))
    pairs = dict.fromkeys(" and ".join(sorted(pair)) for pair in allowed if len(pair) > 1 and pair not in met)
    return [*pairs]


def _opponents(entry: Matchmaking) -> str:
    others = [name for name in entry.members if name not in entry.policies or len(entry.members) > 1]
    members = f"{', '.join(others)} and snapshots" if others else "itself and its snapshots"
    if isinstance(entry.rule, PastSelves):
        more = f", or {', '.join(entry.against)}" if entry.against else ""
        return f"against past selves{more} (itself in {percent(entry.rule.self_play)})"
    if isinstance(entry.rule, Fictitious):
        rule = entry.rule
        return f"against {members}, by fictitious self-play ({rule.weighting}; itself in {percent(rule.self_play)})"
    if isinstance(entry.rule, Exploiters):
        roles = entry.rule
        parts = {
            "main agents": roles.main,
            "main exploiters": roles.main_exploiters,
            "league exploiters": roles.league_exploiters,
        }
        shown = [f"{role} ({', '.join(names)})" for role, names in parts.items() if names]
        return f"as {', '.join(shown)}"
    if isinstance(entry.rule, Nash):
        return f"against the mixture of all snapshots by {entry.rule.solver}, until it gains no more and joins them"
    if isinstance(entry.rule, Uncertainty):
        return f"against those of {members} whose results would change the standings most"
    if isinstance(entry.rule, OwnRule):
        return f"against {members}, by {entry.rule.class_}"
    raise TypeError(f"rule {entry.rule.kind!r}: arena.terminal.rounds has no words for it")


def _gate_text(gate: Gate) -> str:
    games = pluralize(math.ceil(expected_games(gate)), "game that is won or lost", "games that are won or lost")
    return f"a policy that is better by just {gate.elo:g} Elo is found so after about {games}"


def gate_lines(config: Config) -> list[str]:
    """A line for each policy whose gate asks for more games than are ever played; none where none does."""
    gate = None if config.league is None else config.league.snapshots.gate
    if gate is None:
        return []
    most = {name: most_gate_games(config, name) for name in gated(config)}
    return [
        f"gate: {_gate_text(gate)}; {name} has {games} at most until it is asked for the last time: set a larger "
        "`elo`, or more `rounds` or `ticks`"
        for name, games in most.items()
        if games < math.ceil(expected_games(gate))
    ]


def _often(rounds: int) -> str:
    return "after every round" if rounds == 1 else f"every {rounds} rounds"


def _each(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {listed(names)}"
