"""Rounds of a league: the matches of the next one, from the results of those before.

    first_round   from the configuration alone
    next_round    rounds, results and returns so far -> the next round
    round_config  the configuration of one round, from which its plan is made
    is_over       whether the league is decided
    champions     the winners of the knockouts that are over

Between two rounds, in this order: exploiters that are due start over; snapshots join and leave; the worst of a
population become copies of the best; every generator says who meets whom. All of it is pure and deterministic: whatever
is drawn comes from (seed of the run, number of the round, purpose).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from arena.config.league import League
from arena.config.matches import Knockout, Match, Matchmaking, Nash, Pairings, Swiss
from arena.config.members import gated, matchmaking_of, players, populations, snapshotted
from arena.config.schema import Config, Policy
from arena.league import matchmaking, population, snapshots
from arena.league import pairings as generators
from arena.league import rounds_file as records
from arena.league.custom import make_pairings
from arena.league.matchmaking import OpponentPool
from arena.league.ratings.ranking import decided
from arena.league.read_results import GameReader
from arena.league.results import Played, Score
from arena.league.rounds_file import History, player_of, snapshot_name
from arena.league.timeline import Timeline
from arena.league.view import LeagueView
from arena.records import boundary as boundaries
from arena.records.folder import RunFolder
from arena.records.formats import Fork, Player, Round

_TOURNAMENTS = (Knockout, Swiss)


class StreamKey(IntEnum):
    """What is drawn; it keeps the streams of a round apart. Never renumber: leagues would change."""

    OPPONENTS = 1
    COINS = 2
    EVOLUTION = 3
    RESETS = 4


def _stream(config: Config, number: int, purpose: StreamKey) -> np.random.Generator:
    """The random numbers for one purpose in one round of a league."""
    return np.random.default_rng(np.random.SeedSequence([config.seed, number, int(purpose)]))


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
    """The round after all those in `before`; the same for the same arguments.

    The returns are those of each policy's episodes in the newest round. `played` are the games of all rounds, for gates
    and tournaments, see `looks_back`: a test that forgets games has larger errors than it states, and points that were
    won are not lost. (): no game counts.
    """
    history = History(config, before, played)
    number, tick = history.number, history.number * config.ticks
    rule = config.league or League()
    # Exploiters that are due start over; their snapshots join, and those of policies that have passed their gates.
    pool = OpponentPool(results, history.snapshots, config.learners)
    rng, exploiters, resets = _stream(config, number, StreamKey.RESETS), dict[str, None](), dict[str, None]()
    for _, entry in _generators(config):
        if isinstance(entry, Matchmaking):
            due = matchmaking.due(entry, pool, {name: history.age(name) for name in entry.policies}, rng)
            exploiters |= dict.fromkeys(due)
            resets |= dict.fromkeys(name for name, starts_over in due.items() if starts_over)
    every = number % rule.snapshots.every == 0
    eligible = [name for name in snapshotted(config) if every and history.has_played(name)]
    candidates = [(name, next(reversed(history.snapshots[name]), None)) for name in eligible]
    of_two_populations = {name for _, entry in matchmaking_of(config) if entry.versus for name in entry.learners}

    def score(policy: str, newest: str) -> Score:
        by_round = history.games_since_begun(policy)
        if policy in of_two_populations:
            return snapshots.paired(by_round, policy, newest)
        return snapshots.balanced((one for games in by_round for one in games), policy, newest)

    passed, gates = snapshots.joining(rule.snapshots, candidates, score, tick=tick)
    joining = (*passed, *(snapshot_name(name, tick) for name in exploiters))
    league = {policy: [*past] for policy, past in history.snapshots.items()}
    for name in joining:
        league[player_of(name).policy].append(name)
    dropped = tuple(name for past in league.values() for name in snapshots.leaving(rule.snapshots, past, results))
    # The worst of a population become copies of the best.
    forks: dict[str, Fork] = {}
    if rule.evolution is not None and number % rule.evolution.every == 0:
        by_rating = rule.evolution.by == "rating"
        fitness = population.of_ratings(results) if by_rating else population.of_returns(returns)
        rng = _stream(config, number, StreamKey.EVOLUTION)
        forks = population.forks(rule.evolution, populations(config, rule.evolution), fitness, history.options, rng)
    # The options of players that differ from the configuration; a snapshot keeps those that it was made with.
    options = {name: values for name, values in history.changed.items() if name not in dropped}
    options |= {name: options[player_of(name).policy] for name in joining if player_of(name).policy in options}
    options |= {name: {**history.options[fork.source], **fork.options} for name, fork in forks.items()}
    # Who meets whom.
    pool = OpponentPool(
        results.begun(joining, {name: fork.source for name, fork in forks.items()}, resets),
        {policy: [name for name in past if name not in dropped] for policy, past in league.items()},
        config.learners,
    )
    judge = generators.KnockoutRules(results, _stream(config, number, StreamKey.COINS))
    pairings = _next_pairings(config, history, judge)
    places, matches = zip(*_written_out(config, history, pool, pairings), strict=True)
    equilibria = {
        place: matchmaking.meta_game_of(entry, pool).solved(entry.rule.solver)
        for place, entry in matchmaking_of(config)
        if isinstance(entry.rule, Nash) and not matchmaking.unmet(entry, pool)
    }
    return Round(
        number=number,
        start=tick,
        matches=matches,
        places=places,
        players=_snapshots_in(matches, config),
        options=options,
        pairings=pairings,
        equilibria=equilibria,
        snapshots=joining,
        dropped=dropped,
        forks=forks,
        resets=tuple(resets),
        gates=gates,
    )


def _snapshots_in(matches: Sequence[Match], config: Config) -> dict[str, Player]:
    playing = sorted({name for match in matches for name in match.names if name not in config.policies})
    return {name: player_of(name) for name in playing}


def view_of(config: Config, before: Sequence[Round], planned: Round, results: Timeline) -> LeagueView:
    """What a callback sees of the league before a round, which the configuration has planned."""
    timeline = results.begun(
        planned.snapshots, {name: one.source for name, one in planned.forks.items()}, planned.resets
    )
    snapshots = {name: past for name, past in History(config, [*before, planned]).snapshots.items() if past}
    matches = tuple(msgspec.to_builtins(match) for match in planned.matches)
    names = players(config)
    return replace(
        _view(config, planned.number, names, names, snapshots, timeline), learns=config.learners, planned=matches
    )


def _view(
    config: Config,
    number: int,
    policies: Sequence[str],
    members: Sequence[str],
    snapshots: Mapping[str, Sequence[str]],
    timeline: Timeline,
) -> LeagueView:
    """A league before a round: the members play, and the snapshots that there are of policies."""
    past = {name: tuple(names) for name, names in snapshots.items()}
    return LeagueView(
        round=number,
        policies=tuple(policies),
        players=(*members, *(name for names in past.values() for name in names)),
        snapshots=past,
        results=timeline.results,
        timeline=timeline,
        learns=config.learners & {*members},
    )


def with_matches(config: Config, planned: Round, matches: tuple[Match, ...], *, by: str) -> Round:
    """A round with other matches, which a callback has proposed."""
    places = tuple(f"{by}.on_next_round()[{number}]" for number in range(len(matches)))
    playing = _snapshots_in(matches, config)
    return msgspec.structs.replace(planned, matches=matches, places=places, players=playing, proposed_by=by)


def looks_back(config: Config) -> bool:
    """Whether the league has a gate or a tournament, which need the games of all rounds."""
    return bool(gated(config)) or any(isinstance(entry, _TOURNAMENTS) for _, entry in _generators(config))


class Champion(NamedTuple):
    """The winner of a knockout, and what has decided the final."""

    place: str  # of the knockout in the configuration
    player: str  # the winner
    against: str  # the other player of the final
    by: Literal["points", "rating", "coin"]
    """The points of the final's games; if equal, the higher rating; if that is equal too, a coin."""
    points: float  # of the winner in the final
    games: int  # of the final that count


def champions(
    config: Config, before: Sequence[Round], results: Callable[[int], Timeline], played: Played
) -> list[Champion]:
    """The winners of the knockouts that are over, by the rules of `next_round`.

    `before` and `played` are all rounds that were played to their ends, and their games; `results` those that count
    after a round, by its number.
    """
    found = []
    for place, entry in _over(config, len(before)):
        history, after = History(config, before[: entry.rounds], played[: entry.rounds]), results(entry.rounds - 1)
        judge = generators.KnockoutRules(after, _stream(config, history.number, StreamKey.COINS))
        ((player,),) = _next_pairings(config, history, judge)[place]
        *_, pairings = history.pairings(place)
        *_, games = history.games()
        (final,) = pairings
        (against,) = {*final} - {player}
        score = generators.results_of(entry, pairings, games)[frozenset(final)].between(player, against)
        reason = judge.reason(final, generators.shares(entry, pairings, games))
        found.append(Champion(place, player, against, reason, score.points, score.games))
    return found


def knockouts_won(folder: RunFolder, config: Config, *, reached: int | None = None) -> list[Champion]:
    """The winners of the knockouts of a run, which may be under way, that are over, read from its folder.

    It has played up to the tick `reached`; None: the newest from which it can go on.

    Raises:
        ConfigError: a file is missing, damaged, or of another version of the arena.
    """
    if not _over(config, config.round_count):
        return []
    tick = (boundaries.newest_tick(folder) or 0) if reached is None else reached
    known = records.read(folder) or [first_round(config)]  # a run of one round has not written it down
    whole = [made for made in known if made.start + config.ticks <= tick]
    games = GameReader(folder, config, keeps_played=True)
    numbers = sorted({entry.rounds - 1 for _, entry in _over(config, len(whole))})
    timelines = {number: games.read(number).timeline for number in numbers}
    return champions(config, whole, timelines.__getitem__, games.played)


def _over(config: Config, rounds: int) -> list[tuple[str, Knockout]]:
    """The knockouts that have their winners after a number of rounds, with their places."""
    return [
        (place, entry) for place, entry in _generators(config) if isinstance(entry, Knockout) and entry.rounds <= rounds
    ]


def is_over(config: Config, before: Sequence[Round], results: Timeline) -> bool:
    """Whether the league is decided after the rounds that were played, though others may be left.

    Either it has only knockouts, which all have their winners, or the order of all players is decided.
    """
    entries = [entry for _, entry in config.places()]
    if all(isinstance(entry, Knockout) and entry.rounds <= len(before) for entry in entries):
        return True
    rule = None if config.league is None else config.league.decided
    return rule is not None and decided(results.results, players(config), rule.error, elo=rule.elo)


def round_config(config: Config, round: Round, snapshot_path: Callable[[str], PurePath]) -> Config:
    """The configuration of one round: its matches written out, the snapshots that play as frozen policies.

    The checkpoint of a snapshot is at `snapshot_path` of its name.
    """
    policies: dict[str, Policy] = dict(config.policies)
    for name, player in round.players.items():
        parent = config.policies[player.policy]
        policies[name] = msgspec.structs.replace(parent, frozen=True, load=str(snapshot_path(name)))
    for name in round.options.keys() & policies.keys():
        policies[name] = msgspec.structs.replace(policies[name], options=round.options[name])
    return msgspec.structs.replace(config, matches=round.matches, rounds=config.round_count, policies=policies)


def _generators(config: Config) -> list[tuple[str, Any]]:
    """The generators of a configuration with their places."""
    return [(place, entry) for place, entry in config.places() if not isinstance(entry, Match)]


def _written_out(
    config: Config, history: History, pool: OpponentPool, pairings: Mapping[str, generators.Pairings]
) -> list[tuple[str, Match]]:
    """The matches of a round, each with the place of its entry."""
    rng = _stream(config, history.number, StreamKey.OPPONENTS)
    tested = {name: newest for name in gated(config) if (newest := pool.newest(name)) is not None}
    written: list[tuple[str, Match]] = []
    for place, generator in config.places_of(history.number):
        if isinstance(generator, Match):
            written.append((place, generator))
            continue
        if isinstance(generator, _TOURNAMENTS):
            made = generator.written_out(generators.teams(generator, pairings[place]))
        elif isinstance(generator, (Matchmaking, Pairings)):
            league = {name: pool.snapshots.get(name, ()) for name in generator.members}
            timeline = pool.results
            assert isinstance(timeline, Timeline), "a league's rounds are planned from all of its games"
            view = _view(config, history.number, generator.policies, generator.members, league, timeline)
            view = replace(view, earlier=history.made_by(place))
            if isinstance(generator, Pairings):
                made = generator.written_out(make_pairings(generator, view, rng, path=place))
            elif pairs := matchmaking.unmet(generator, pool):
                made = generator.measured(pairs)
            else:
                drawn = matchmaking.draw(generator, pool, rng, tested=tested, view=view, path=place)
                made = generator.drawn(drawn, number=history.number, tested=tested)
        else:
            made = generator.matches()
        written += [(place, match) for match in made]
    return written


def _next_pairings(config: Config, history: History, judge: generators.KnockoutRules) -> dict[str, generators.Pairings]:
    """The pairings of all tournaments, made one after the other: they share the judge's coins."""
    games, found = [*history.games()], {}
    for place, entry in _generators(config):
        if isinstance(entry, _TOURNAMENTS):
            before = history.pairings(place)
            made = [generators.shares(entry, *one) for one in zip(before, games, strict=True)]
            found[place] = generators.next_pairings(entry, before, made, judge)
    return found
