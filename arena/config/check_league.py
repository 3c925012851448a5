"""Checks of a league: rounds, generators that depend on results, snapshots, gates and evolution fit together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from arena.config.league import Evolution, Gate, League, Snapshots
from arena.config.matches import Exploiters, Fictitious, Knockout, Matchmaking, Nash, PastSelves, Uncertainty
from arena.config.members import (
    exploiters_of,
    gated,
    generators_of,
    matchmaking_of,
    may_be_frozen,
    needs_winners,
    players,
    populations,
    snapshotted,
)
from arena.errors import ConfigError, nearest, pluralize

if TYPE_CHECKING:
    from arena.config.schema import Config

_FEWEST_BY_SPREAD = 3  # the weakest, the strongest and the newest stay
_USUAL = Snapshots()


def check_winners(config: Config) -> None:
    """Refuses a game without winners where something depends on who has won."""
    for name, env in config.envs.items():
        if env.outcome == "none" and (needed := needs_winners(config, name)):
            verb = "needs" if len(needed) == 1 else "need"
            raise ConfigError(
                f"found none, but {' and '.join(needed)} {verb} winners; set higher_return, zero_sum or info, or "
                "leave these out",
                path=f"envs.{name}.outcome",
            )


def check_rounds(config: Config) -> None:
    """Refuses rounds, generators that depend on them, and a league, where they do not fit together."""
    for path, generator in generators_of(config):
        needed = generator.rounds if isinstance(generator, Knockout) else 2
        if generator.adaptive and config.round_count < needed:
            why = f"{generator.kind} needs two or more: its matches depend on the results of earlier rounds"
            if isinstance(generator, Knockout):
                why = f"a knockout of {len(generator.policies)} has its winner after {needed}"
            raise ConfigError(f"found {config.round_count}, but {why} ({path}); set `rounds: {needed}`", path="rounds")
        if isinstance(generator, Matchmaking):
            _check_matchmaking(config, generator, path)
    league = config.league
    if league is None:
        return
    if config.round_count == 1:
        raise ConfigError("has no effect with one round; set `rounds: 2` or more", path="league")
    snapshots = league.snapshots
    if snapshots.keep_by == "spread" and snapshots.keep < _FEWEST_BY_SPREAD:
        raise ConfigError(
            f"found {snapshots.keep}; with `keep_by: spread` the weakest, the strongest and the newest stay: "
            f"{_FEWEST_BY_SPREAD} or more",
            path="league.snapshots.keep",
        )
    if snapshots.gate is not None:
        _check_gate(config, snapshots.gate, "league.snapshots.gate")
    set_keys = [key for key in Snapshots.__struct_fields__ if getattr(snapshots, key) != getattr(_USUAL, key)]
    by_time = [key for key in set_keys if key in ("every", "gate")]
    if by_time and may_be_frozen(config) and not snapshotted(config):
        text = "has no effect: with the rule `nash` a snapshot joins when its policy gains no more; leave it out"
        raise ConfigError(text, path=f"league.snapshots.{by_time[0]}")
    if set_keys and not may_be_frozen(config):
        text = "has no effect: no policy that learns is in `matchmaking`, so there are no snapshots"
        raise ConfigError(text, path=f"league.snapshots.{set_keys[0]}")
    if league.evolution is not None:
        _check_evolution(config, league.evolution, "league.evolution")
    if league.decided is not None:
        names = players(config)
        for name in names:
            if config.policies[name].learns:
                raise ConfigError(
                    f"{name!r} learns, and the order of players that learn is never decided; freeze it "
                    "(`frozen: true`), or leave this out",
                    path="league.decided",
                )
        if len(names) < 2:
            text = f"found one player, {names[0]!r}; an order needs two or more: name a second policy"
            raise ConfigError(text, path="league.decided")
    for name in league.prior:
        if name not in config.policies:
            raise ConfigError(f"unknown policy {name!r}; {nearest(name, config.policies)}", path="league.prior")


def _check_matchmaking(config: Config, entry: Matchmaking, path: str) -> None:
    rule = entry.rule
    if not rule.draws_others:  # each learner meets only itself
        text = "has no effect with `self: 1` (pure self-play)"
        if entry.against:
            raise ConfigError(text, path=f"{path}.against")
        if entry.both_sides:
            raise ConfigError(f"{text}: a policy that meets itself has both sides", path=f"{path}.both_sides")
        if isinstance(rule, Fictitious) and rule.weighting != Fictitious().weighting:
            raise ConfigError(text, path=f"{path}.rule.fictitious.weighting")
    if isinstance(rule, Exploiters):
        place, listed = f"{path}.rule.exploiters", set[str]()
        if not rule.main:
            text = "is empty; name at least one policy, which learns against the whole league"
            raise ConfigError(text, path=f"{place}.main")
        for key in ("main", "main_exploiters", "league_exploiters"):
            for index, name in enumerate(getattr(rule, key)):
                text = f"{name!r} is listed twice" if name in listed else ""
                if name not in entry.policies:
                    text = f"{name!r} is not in the entry's `policies`; {nearest(name, entry.policies)}"
                if text:
                    raise ConfigError(text, path=f"{place}.{key}[{index}]")
                listed.add(name)
        for index, name in enumerate(entry.policies):
            if name not in listed:
                text = f"{name!r} is missing in the lists of `exploiters`; add it to one"
                raise ConfigError(text, path=f"{path}.policies[{index}]")
        usual, exploiters = Exploiters(main=()), (*rule.main_exploiters, *rule.league_exploiters)
        if rule.weak != usual.weak and not rule.main_exploiters:
            raise ConfigError("has no effect: there are no `main_exploiters`", path=f"{place}.weak")
        if rule.reset != usual.reset and not exploiters:
            raise ConfigError("has no effect: there are no exploiters", path=f"{place}.reset")
        if rule.reset.share != usual.reset.share and not rule.league_exploiters:
            raise ConfigError("has no effect: there are no `league_exploiters`", path=f"{place}.reset.share")
        after = rule.reset.after
        late_enough = after is not None and after < config.round_count
        possible = rule.reset.beats < 1 or rule.reset.confidence == 0 or late_enough
        if exploiters and not possible:
            late = "`after: null`" if after is None else f"`after: {after}` in {config.round_count} rounds"
            raise ConfigError(
                f"found 1, and {late}: no score is above 1, so no snapshot of an exploiter ever joins; set `beats` "
                f"below 1, or `after` to at most {config.round_count - 1}",
                path=f"{place}.reset.beats",
            )
    if isinstance(rule, Nash) and entry.versus and config.round_count == 2:
        raise ConfigError(
            f"found 2, but with the rule `nash` and `versus` ({path}) there are no snapshots in the first round, "
            "they are compared in the second, and learned against from the third on; set `rounds: 3` or more",
            path="rounds",
        )
    if isinstance(rule, Nash) and rule.solver == "alpha_rank" and entry.versus:
        text = "found alpha_rank, which is of one population here, and with `versus` there are two; use nash or uniform"
        raise ConfigError(text, path=f"{path}.rule.nash.solver")
    if isinstance(rule, Nash) and rule.solver == "uniform" and rule.games > 1:
        text = f"found {rule.games}, but has no effect where solver is uniform, which asks for no payoffs; leave it out"
        raise ConfigError(text, path=f"{path}.rule.nash.games")
    if isinstance(rule, Uncertainty):
        if len(entry.members) < 2:
            raise ConfigError(f"{entry.policies[0]!r} has no opponent; name a second policy", path=f"{path}.policies")
        return
    for key in ("policies", "versus"):
        for index, name in enumerate(getattr(entry, key)):
            if not config.policies[name].learns:
                also = "" if isinstance(rule, PastSelves) else "; name it in `against` instead"
                text = f"{name!r} does not learn, so no opponents are drawn for it{also}"
                raise ConfigError(text, path=f"{path}.{key}[{index}]")


def _check_gate(config: Config, gate: Gate, path: str) -> None:
    if gate.alpha + gate.beta >= 1:
        text = f"found {gate.alpha}, and beta {gate.beta}: their sum must be below 1"
        raise ConfigError(text, path=f"{path}.alpha")
    if not gated(config):
        text = "can never decide: no policy that learns is in `matchmaking`, so no policy meets a snapshot of itself"
        raise ConfigError(text, path=path)
    learners = {name for _, entry in matchmaking_of(config) for name in entry.learners}
    for name in gated(config):
        if name not in learners:
            raise ConfigError(
                f"can never decide about {name!r}: it never meets its newest snapshot; make it one of the `policies` "
                "of `matchmaking`",
                path=path,
            )
    for place, entry in matchmaking_of(config):
        if entry.versus and entry.copies < 3:
            raise ConfigError(
                "for `league.snapshots.gate` each learner and its newest snapshot meet the same opponent, in a match "
                "each: no opponent is left for the rule; set `copies: 3` or more",
                path=f"{place}.copies",
            )
        if entry.copies < 2 and {*entry.policies} & {*gated(config)}:
            raise ConfigError(
                "for `league.snapshots.gate` one opponent of each learner is its newest snapshot: no opponent is "
                "left for the rule; set `copies: 2` or more",
                path=f"{place}.copies",
            )
    for name in gated(config):
        most = most_gate_games(config, name)  # all of them won
        if most * math.log(2 / (1 + 10 ** (-gate.elo / 400))) < -math.log(gate.alpha):
            raise ConfigError(
                f"can never let a second snapshot of {name!r} join: before the gate's last decision there are at most "
                f"{most} games against the first snapshot, counting equally many from each side: too few to show "
                f"{gate.elo:g} Elo even if all are won; set more `rounds` or `ticks`, or a larger `elo`",
                path=path,
            )


def most_gate_games(config: Config, name: str) -> int:
    """The most games of a policy against its first snapshot until its gate decides for the last time.

    Counts one game per lane and tick, equally many from each side, as the gate does.
    """
    every = (config.league or League()).snapshots.every
    # From the first snapshot to the gate's last decision; none if no second snapshot is due.
    rounds = max(0, (config.round_count - 1) // every * every - every)
    lanes = 0  # of all these rounds
    for _, entry in matchmaking_of(config):
        if name in entry.learners and entry.versus:
            lanes += rounds * entry.lanes  # a game of the policy and one of its snapshot count as one
        elif name in entry.policies:
            matches = rounds * (entry.copies if entry.rule.draws_others else 1) * entry.turns
            lanes += matches // 2 * 2 * entry.lanes  # the gate looks at equally many games from each side
    return lanes * config.ticks


def _check_evolution(config: Config, rule: Evolution, path: str) -> None:
    exploiters = exploiters_of(config)
    for index, name in enumerate(rule.policies or ()):
        text = ""
        if name not in config.policies:
            text = f"unknown policy {name!r}; {nearest(name, config.policies)}"
        elif name in (rule.policies or ())[:index]:
            text = f"{name!r} is listed twice"
        elif not config.policies[name].learns:
            text = f"{name!r} does not learn"
        elif name not in players(config):
            text = f"{name!r} plays in no match"
        elif name in exploiters:
            text = f"{name!r} is an exploiter, or learns by the rule `nash`: it copies no other policy"
        if text:
            raise ConfigError(text, path=f"{path}.policies[{index}]")
    found = populations(config, rule)
    if not found:
        raise ConfigError(
            "needs two or more policies that learn by the same algorithm: one copies the weights of another", path=path
        )
    smallest = min(map(len, found))
    if rule.keep is not None:
        if rule.share != Evolution().share:
            raise ConfigError("says which policies survive; leave out `share`", path=f"{path}.keep")
        if rule.keep >= smallest:
            raise ConfigError(
                f"found {rule.keep}, but a population has {pluralize(smallest, 'policy', 'policies')}: none would be a "
                f"copy; set at most {smallest - 1}",
                path=f"{path}.keep",
            )
    elif not 0 < rule.share <= 1 - 1 / smallest + 1e-9:
        raise ConfigError(
            f"found {rule.share:g}; above 0, and at most {1 - 1 / smallest:.3g}, so that one of the "
            f"{pluralize(smallest, 'policy', 'policies')} of a population is left to be copied",
            path=f"{path}.share",
        )
    for option, perturb in rule.perturb.items():
        place, values = f"{path}.perturb.{option}", list[float]()
        if not perturb.factors:
            raise ConfigError("is empty; name at least one factor: one of them is drawn", path=f"{place}.factors")
        if perturb.at_least is not None and perturb.at_most is not None and perturb.at_least > perturb.at_most:
            text = f"found {perturb.at_least}, above `at_most: {perturb.at_most}`"
            raise ConfigError(text, path=f"{place}.at_least")
        for name in (name for population in found for name in population):
            options = config.policies[name].options
            if option not in options:  # defaults are known only to the algorithm
                raise ConfigError(
                    f"{name!r} has no value of {option!r}; write it in `policies.{name}.options`, where it can be "
                    "multiplied; or, if its algorithm has no such option, name the policies that take part in "
                    f"`league.evolution.policies`; {nearest(option, options)}",
                    path=f"{path}.perturb",
                )
            value = options[option]
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                text = f"found {value!r}; only numbers can be multiplied ({path}.perturb)"
                raise ConfigError(text, path=f"policies.{name}.options.{option}")
            low, high = perturb.bounds(value)
            if isinstance(value, int) and math.isfinite(high) and math.floor(high) < low:
                raise ConfigError(
                    f"there is no whole number from {low:g} to {high:g}, and {name!r} has the whole number {value}; "
                    f"write {float(value)} in `policies.{name}.options` if it need not be whole",
                    path=place,
                )
            values.append(value)
        if all(perturb.multiplied(value, factor) == value for value in values for factor in perturb.factors):
            raise ConfigError(
                f"changes nothing: {', '.join(map(repr, dict.fromkeys(values)))} multiplied by "
                f"{' or '.join(f'{factor:g}' for factor in perturb.factors)} stays the same; whole numbers stay whole",
                path=place,
            )
