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

from arena.config.league import LeagueConfig
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
from arena.league.rounds import History, Round, names_of, player_of, snapshot_name
from arena.league.timeline import Timeline
from arena.league.view import LeagueView
from arena.records.formats import Fork, GateRecord, Player

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
    changes = _changes(config, history, results, returns)
    field = OpponentPool(
        results.begun(changes.snapshots, {name: fork.source for name, fork in changes.forks.items()}, changes.resets),
        _in_the_league(history, changes.snapshots, changes.dropped),
        config.learners,
    )
    judge = generators.KnockoutRules(results, stream(config.seed, history.number, Purpose.COINS))
    written = _written_out(config, history, field, judge)
    playing = sorted({name for match in written.matches for name in names_of(match) if name not in config.policies})
    return Round(
        number=history.number,
        start=history.number * config.ticks,
        matches=written.matches,
        places=written.places,
        players={name: player_of(name) for name in playing},
        options=_options(history, changes),
        pairings=written.pairings,
        **changes._asdict(),
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
        history = History(config, before[: entry.rounds], played[: entry.rounds])
        found.append(_champion(config, history, results(entry.rounds - 1), place, entry))
    return found


def over(config: Config, rounds: int) -> list[tuple[str, KnockoutConfig]]:
    """The knockouts that have their winners after a number of rounds, with their places."""
    return [
        (place, entry)
        for place, entry in _generators(config)
        if isinstance(entry, KnockoutConfig) and entry.rounds <= rounds
    ]


def _champion(config: Config, history: History, results: Timeline, place: str, entry: KnockoutConfig) -> Champion:
    """The winner of a knockout that ends with the last round of a history."""
    judge = generators.KnockoutRules(results, stream(config.seed, history.number, Purpose.COINS))
    ((player,),) = _next_pairings(config, history, judge)[place]
    *_, pairings = history.pairings(place)
    *_, games = history.games()
    (final,) = pairings
    (against,) = {*final} - {player}
    score = generators.results_of(entry, pairings, games)[frozenset(final)].between(player, against)
    reason = judge.reason(final, generators.shares(entry, pairings, games))
    return Champion(place, player, against, reason, score.points, score.games)


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


def _rule(config: Config) -> LeagueConfig:
    return config.league or LeagueConfig()


class _Changes(NamedTuple):
    """The changes between two rounds, named as in `Round`."""

    snapshots: tuple[str, ...]
    dropped: tuple[str, ...]
    forks: dict[str, Fork]
    resets: tuple[str, ...]
    gates: tuple[GateRecord, ...]


def _changes(config: Config, history: History, results: Timeline, returns: Mapping[str, Sequence[float]]) -> _Changes:
    due = _due(config, history, results)
    joining = _joining(config, history, due)
    members, rule = _in_the_league(history, joining.names, ()), _rule(config).snapshots
    return _Changes(
        snapshots=joining.names,
        dropped=tuple(name for own in members.values() for name in snapshots.leaving(rule, own, results)),
        forks=_forks(config, history, results, returns),
        resets=due.resets,
        gates=joining.gates,
    )


class _Due(NamedTuple):
    """Exploiters that are due: whose snapshots join, and which of them begin anew."""

    snapshots: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()


def _due(config: Config, history: History, results: Timeline) -> _Due:
    field = OpponentPool(results, history.snapshots, config.learners)
    rng = stream(config.seed, history.number, Purpose.RESETS)
    joining: dict[str, None] = {}
    resets: dict[str, None] = {}
    for _, entry in _generators(config):
        if isinstance(entry, MatchmakingConfig):
            found = matchmaking.due(entry, field, {name: history.age(name) for name in entry.policies}, rng)
            joining |= dict.fromkeys(found)
            resets |= dict.fromkeys(name for name, anew in found.items() if anew)
    return _Due(tuple(joining), tuple(resets))


def _joining(config: Config, history: History, due: _Due) -> snapshots.Joining:
    rule, tick = _rule(config).snapshots, history.number * config.ticks
    due_now = history.number % rule.every == 0
    asked = [name for name in snapshotted(config) if due_now and history.has_played(name)]
    candidates = [(name, next(reversed(history.snapshots[name]), None)) for name in asked]
    apart = {name for _, entry in matchmaking_of(config) if entry.versus for name in entry.learners}

    def score(policy: str, newest: str) -> Score:
        if policy in apart:
            return snapshots.paired(history.rounds_as_it_is(policy), policy, newest)
        return snapshots.balanced(history.games_as_it_is(policy), policy, newest)

    found = snapshots.joining(rule, candidates, score, tick=tick)
    return found._replace(names=(*found.names, *(snapshot_name(name, tick) for name in due.snapshots)))


def _in_the_league(history: History, joining: Sequence[str], dropped: Sequence[str]) -> dict[str, list[str]]:
    """The snapshots of each policy in this round."""
    found = {policy: [name for name in own if name not in dropped] for policy, own in history.snapshots.items()}
    for name in joining:
        found[player_of(name).policy].append(name)
    return found


def _forks(
    config: Config, history: History, results: Timeline, returns: Mapping[str, Sequence[float]]
) -> dict[str, Fork]:
    rule = _rule(config).evolution
    if rule is None or history.number % rule.every:
        return {}
    fitness = population.of_ratings(results) if rule.by == "rating" else population.of_returns(returns)
    rng = stream(config.seed, history.number, Purpose.EVOLUTION)
    return population.forks(rule, populations(config, rule), fitness, history.options, rng)


def _options(history: History, changes: _Changes) -> dict[str, dict[str, Any]]:
    """The options of players that differ from the configuration; a snapshot keeps the options that it was made with."""
    found = {name: options for name, options in history.changed_options().items() if name not in changes.dropped}
    for name in changes.snapshots:
        policy = player_of(name).policy
        if policy in found:
            found[name] = found[policy]
    forked = {name: {**history.options[fork.source], **fork.options} for name, fork in changes.forks.items()}
    return found | forked


class _Written(NamedTuple):
    """The matches of a round with the places of their entries, and the pairings of its tournaments."""

    matches: tuple[MatchConfig, ...]
    places: tuple[str, ...]
    pairings: dict[str, generators.Pairings]


def _written_out(config: Config, history: History, field: OpponentPool, judge: generators.KnockoutRules) -> _Written:
    rng = stream(config.seed, history.number, Purpose.OPPONENTS)
    tested = {name: newest for name in gated(config) if (newest := field.newest(name)) is not None}
    written: list[tuple[str, MatchConfig]] = []
    pairings = _next_pairings(config, history, judge)
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
    places, matches = zip(*written, strict=True)
    return _Written(matches, places, pairings)


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
