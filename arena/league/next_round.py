"""Rounds of a league: the matches of the next one, from the results of those before.

    first_round   from the configuration alone
    next_round    rounds, results and returns so far -> the next round
    round_config  the configuration of one round, from which its plan is made
    is_over       whether the league is decided
    champions     the winners of the knockouts that are over

Between two rounds, in this order: exploiters that are due begin anew; snapshots join and leave; the worst of a
population become copies of the best; every generator says who meets whom. All of it is pure and deterministic: whatever
is drawn comes from (seed of the run, number of the round, purpose).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import msgspec

from arena.config.league import LeagueConfig, SnapshotsConfig
from arena.config.matches import (
    Generator,
    KnockoutConfig,
    MatchConfig,
    MatchmakingConfig,
    OwnPairings,
    SwissConfig,
    generator_of,
)
from arena.config.members import gated, matchmaking_of, players, populations, snapshotted
from arena.config.schema import Config, PolicyConfig
from arena.league import matchmaking, population, snapshots
from arena.league import pairings as generators
from arena.league.custom import make_pairings
from arena.league.matchmaking import OpponentPool
from arena.league.ratings.ranking import decided
from arena.league.results import Played, Score
from arena.league.rng import Purpose, stream
from arena.league.rounds import History, names_of, player_of, snapshot_name
from arena.league.timeline import Timeline
from arena.league.view import LeagueView
from arena.records.formats import Fork, GateRecord, Player, Round

__all__ = [
    "Champion",
    "Fork",
    "GateRecord",
    "Player",
    "Round",
    "champions",
    "first_round",
    "is_over",
    "next_round",
    "round_config",
]


def first_round(config: Config) -> Round:
    """The round that follows from the configuration alone."""
    tournaments = {place: entry for place, entry in _generators(config) if isinstance(entry, _TOURNAMENTS)}
    return Round(
        number=0,
        start=0,
        matches=tuple(match for _, match in config.entries()),
        places=tuple(place for place, _ in config.entries()),
        pairings={place: generators.opening(entry) for place, entry in tournaments.items()},
    )


def next_round(
    config: Config,
    before: Sequence[Round],
    results: Timeline,
    returns: Mapping[str, Sequence[float]],
    played: Played = (),
) -> Round:
    """The round after those in `before`; the same for the same arguments.

    Args:
        config: of the league.
        before: all earlier rounds, the first one first.
        results: the games that count.
        returns: per policy the returns of its episodes in the newest round.
        played: the games of all rounds, for gates and tournaments, see `looks_back`: a test that forgets games has
            larger errors than it states, and points that were won are not lost. (): no game counts.
    """
    history = History(config, before, played)
    number, start = history.number, history.number * config.ticks
    rule = config.league or LeagueConfig()
    joining, resets = _joining(config, history, results, rule.snapshots)
    whole = _in_the_league(history, joining.names, ())
    dropped = tuple(name for own in whole.values() for name in snapshots.leaving(rule.snapshots, own, results))
    forks: dict[str, Fork] = {}
    if rule.evolution is not None and number % rule.evolution.every == 0:
        by_rating = rule.evolution.by == "rating"
        fitness = population.of_ratings(results) if by_rating else population.of_returns(returns)
        rng = stream(config.seed, number, Purpose.EVOLUTION)
        forks = population.forks(rule.evolution, populations(config, rule.evolution), fitness, history.options, rng)
    # The options of players that differ from the configuration; a snapshot keeps those that it was made with.
    options = {name: own for name, own in history.changed_options().items() if name not in dropped}
    options |= {name: options[player_of(name).policy] for name in joining.names if player_of(name).policy in options}
    options |= {name: {**history.options[fork.source], **fork.options} for name, fork in forks.items()}
    field = OpponentPool(
        results.begun(joining.names, {name: fork.source for name, fork in forks.items()}, resets),
        _in_the_league(history, joining.names, dropped),
        config.learners,
    )
    pairings = _next_pairings(
        config, history, generators.KnockoutRules(results, stream(config.seed, number, Purpose.COINS))
    )
    places, matches = zip(*_written_out(config, history, field, pairings), strict=True)
    playing = sorted({name for match in matches for name in names_of(match) if name not in config.policies})
    return Round(
        number=number,
        start=start,
        matches=matches,
        places=places,
        players={name: player_of(name) for name in playing},
        options=options,
        pairings=pairings,
        snapshots=joining.names,
        dropped=dropped,
        forks=forks,
        resets=resets,
        gates=joining.gates,
    )


def view_of(config: Config, before: Sequence[Round], planned: Round, results: Timeline) -> LeagueView:
    """What a callback sees of the league before a round.

    Args:
        config: of the league.
        before: all earlier rounds, the first one first.
        planned: the round that the configuration makes.
        results: the games that count.
    """
    timeline = results.begun(
        planned.snapshots, {name: one.source for name, one in planned.forks.items()}, planned.resets
    )
    history = History(config, [*before, planned])
    names, snapshots = players(config), {name: tuple(own) for name, own in history.snapshots.items() if own}
    return LeagueView(
        round=planned.number,
        policies=names,
        players=(*names, *(name for own in snapshots.values() for name in own)),
        snapshots=snapshots,
        results=timeline.results,
        timeline=timeline,
        learns=config.learners,
        planned=tuple(msgspec.to_builtins(match) for match in planned.matches),
    )


def with_matches(config: Config, planned: Round, matches: tuple[MatchConfig, ...], *, by: str) -> Round:
    """A round with other matches, which a callback has proposed."""
    playing = sorted({name for match in matches for name in names_of(match) if name not in config.policies})
    return msgspec.structs.replace(
        planned,
        matches=matches,
        places=tuple(f"{by}.on_next_round()[{number}]" for number in range(len(matches))),
        players={name: player_of(name) for name in playing},
        proposed_by=by,
    )


def looks_back(config: Config) -> bool:
    """Whether the league has a gate or a tournament, which need the games of all rounds."""
    return bool(gated(config)) or any(isinstance(entry, _TOURNAMENTS) for _, entry in _generators(config))


class Champion(NamedTuple):
    """The winner of a knockout, and what has decided the final.

    Args:
        place: of the knockout in the configuration.
        player: the winner.
        against: the other player of the final.
        by: the points of the final's games; if equal, the higher rating; if that is equal too, a coin.
        points: of the winner in the final.
        games: of the final that count.
    """

    place: str
    player: str
    against: str
    by: Literal["points", "rating", "coin"]
    points: float
    games: int


def champions(
    config: Config, before: Sequence[Round], results: Callable[[int], Timeline], played: Played
) -> list[Champion]:
    """The winners of the knockouts that are over, by the rules of `next_round`.

    Args:
        config: of the league.
        before: all rounds that were played to their ends.
        results: the games that count after a round, by its number.
        played: the games of all rounds.
    """
    found = []
    for place, entry in over(config, len(before)):
        history, after = History(config, before[: entry.rounds], played[: entry.rounds]), results(entry.rounds - 1)
        judge = generators.KnockoutRules(after, stream(config.seed, history.number, Purpose.COINS))
        ((player,),) = _next_pairings(config, history, judge)[place]
        *_, pairings = history.pairings(place)
        *_, games = history.games()
        (final,) = pairings
        (against,) = {*final} - {player}
        score = generators.results_of(entry, pairings, games)[frozenset(final)].between(player, against)
        reason = judge.reason(final, generators.shares(entry, pairings, games))
        found.append(Champion(place, player, against, reason, score.points, score.games))
    return found


def over(config: Config, rounds: int) -> list[tuple[str, KnockoutConfig]]:
    """The knockouts that have their winners after a number of rounds, with their places."""
    return [
        (place, entry)
        for place, entry in _generators(config)
        if isinstance(entry, KnockoutConfig) and entry.rounds <= rounds
    ]


def is_over(config: Config, before: Sequence[Round], results: Timeline) -> bool:
    """Whether the league is decided, though rounds may be left.

    Either it has only knockouts, which all have their winners, or the order of all players is decided.

    Args:
        config: of the league.
        before: all rounds that were played.
        results: the games that count.
    """
    entries = [None if isinstance(entry, MatchConfig) else generator_of(entry) for _, entry in config.places()]
    if all(isinstance(entry, KnockoutConfig) and entry.rounds <= len(before) for entry in entries):
        return True
    rule = None if config.league is None else config.league.decided
    return rule is not None and decided(results.results, players(config), rule.error, elo=rule.elo)


def round_config(config: Config, round: Round, snapshot_path: Callable[[str], PurePath]) -> Config:
    """The configuration of one round: its matches written out, the snapshots that play as frozen policies.

    Args:
        config: of the league.
        round: one of its rounds.
        snapshot_path: where a snapshot's checkpoint is, by the snapshot's name.
    """
    policies = {name: _with_options(policy, round.options.get(name)) for name, policy in config.policies.items()}
    for name, player in round.players.items():
        parent = config.policies[player.policy]
        frozen = msgspec.structs.replace(parent, frozen=True, load=str(snapshot_path(name)))
        policies[name] = _with_options(frozen, round.options.get(name))
    return msgspec.structs.replace(config, matches=round.matches, schedule=config.rounds, policies=policies)


def _with_options(policy: PolicyConfig, options: dict[str, Any] | None) -> PolicyConfig:
    return policy if options is None else msgspec.structs.replace(policy, options=options)


_TOURNAMENTS = (KnockoutConfig, SwissConfig)


def _generators(config: Config) -> list[tuple[str, Any]]:
    """The generators of a configuration with their places."""
    return [(place, generator_of(entry)) for place, entry in config.places() if not isinstance(entry, MatchConfig)]


def _joining(
    config: Config, history: History, results: Timeline, rule: SnapshotsConfig
) -> tuple[snapshots.Joining, tuple[str, ...]]:
    """The snapshots that join and what gates have decided; and the exploiters that begin anew."""
    field = OpponentPool(results, history.snapshots, config.learners)
    rng = stream(config.seed, history.number, Purpose.RESETS)
    exploiters: dict[str, None] = {}  # whose snapshots join
    resets: dict[str, None] = {}
    for _, entry in _generators(config):
        if isinstance(entry, MatchmakingConfig):
            found = matchmaking.due(entry, field, {name: history.age(name) for name in entry.policies}, rng)
            exploiters |= dict.fromkeys(found)
            resets |= dict.fromkeys(name for name, anew in found.items() if anew)
    tick, due_now = history.number * config.ticks, history.number % rule.every == 0
    asked = [name for name in snapshotted(config) if due_now and history.has_played(name)]
    candidates = [(name, next(reversed(history.snapshots[name]), None)) for name in asked]
    apart = {name for _, entry in matchmaking_of(config) if entry.versus for name in entry.learners}

    def score(policy: str, newest: str) -> Score:
        if policy in apart:
            return snapshots.paired(history.rounds_as_it_is(policy), policy, newest)
        return snapshots.balanced(history.games_as_it_is(policy), policy, newest)

    joining = snapshots.joining(rule, candidates, score, tick=tick)
    names = (*joining.names, *(snapshot_name(name, tick) for name in exploiters))
    return joining._replace(names=names), tuple(resets)


def _in_the_league(history: History, joining: Sequence[str], dropped: Sequence[str]) -> dict[str, list[str]]:
    """The snapshots of each policy in this round."""
    found = {policy: [name for name in own if name not in dropped] for policy, own in history.snapshots.items()}
    for name in joining:
        found[player_of(name).policy].append(name)
    return found


def _written_out(
    config: Config, history: History, field: OpponentPool, pairings: Mapping[str, generators.Pairings]
) -> list[tuple[str, MatchConfig]]:
    """The matches of a round, each with the place of its entry."""
    rng = stream(config.seed, history.number, Purpose.OPPONENTS)
    tested = {name: newest for name in gated(config) if (newest := field.newest(name)) is not None}
    written: list[tuple[str, MatchConfig]] = []
    for place, entry in config.places_of(history.number):
        if isinstance(entry, MatchConfig):
            written.append((place, entry))
            continue
        generator = generator_of(entry)
        if isinstance(generator, _TOURNAMENTS):
            made = generator.written_out(generators.teams(generator, pairings[place]))
        elif isinstance(generator, MatchmakingConfig):
            view = _view(config, history, field, place, generator)
            drawn = matchmaking.draw(generator, field, rng, tested=tested, view=view, path=place)
            made = generator.drawn(drawn, number=history.number, tested=tested)
        elif isinstance(generator, OwnPairings):
            view = _view(config, history, field, place, generator)
            made = generator.written_out(make_pairings(generator, view, rng, path=place))
        else:
            made = generator.matches()
        written += [(place, match) for match in made]
    return written


def _view(config: Config, history: History, field: OpponentPool, place: str, entry: Generator) -> LeagueView:
    """What a rule or a generator of the user's own sees."""
    snapshots = {name: tuple(field.snapshots.get(name, ())) for name in entry.members}
    timeline = field.results
    assert isinstance(timeline, Timeline), "a league's rounds are planned from all of its games"
    return LeagueView(
        round=history.number,
        policies=entry.policies,
        players=(*entry.members, *(name for own in snapshots.values() for name in own)),
        snapshots=snapshots,
        results=timeline.results,
        timeline=timeline,
        learns=config.learners & {*entry.members},
        earlier=history.made_by(place),
    )


def _next_pairings(config: Config, history: History, judge: generators.KnockoutRules) -> dict[str, generators.Pairings]:
    """The pairings of all tournaments, made one after the other: they share the judge's coins."""
    games, found = [*history.games()], {}
    for place, entry in _generators(config):
        if isinstance(entry, _TOURNAMENTS):
            before = history.pairings(place)
            made = [generators.shares(entry, *one) for one in zip(before, games, strict=True)]
            found[place] = generators.next_pairings(entry, before, made, judge)
    return found
