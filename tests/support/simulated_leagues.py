"""Simulated leagues: games are drawn from known strengths, or the stronger player wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arena.config import Config, parse_config
from arena.config.matches import Match
from arena.league.next_round import Round, first_round, is_over, next_round
from arena.league.results import Encounter, Results, Score, Team
from arena.league.timeline import Period, PolicyReset, Timeline
from arena.league.tournament import Rule, Table, next_batch, table

Play = Callable[[str, str, int], Score]
"""First player, second player, copies -> the games of a pairing, as the first sees them."""


def league(*matches: Mapping[str, Any], players: str = "abcdefgh", **keys: Any) -> Config:
    """A configuration whose policies learn, except `random`."""
    policies: dict[str, Any] = {name: {"algorithm": "ppo", "options": {"learning_rate": 1e-3}} for name in players}
    data = {
        "ticks": 100,
        "rounds": 6,
        "envs": {"game": {"make": "matrix"}},
        "policies": {**policies, "random": {"algorithm": "random"}},
        "matches": list(matches),
        **keys,
    }
    return parse_config(data, source="league.yaml")


def entry(kind: str, **keys: Any) -> dict[str, Any]:
    """An entry of `matches`."""
    return {kind: {"env": "game", **keys}}


def results_of(**scores: tuple[int, int, int]) -> Results:
    """`ab=(3, 0, 1)`, or `a_b`: a has won three games against b and lost one, without sides."""
    found = Results()
    for pair, score in scores.items():
        first, second = pair.split("_") if "_" in pair else pair
        found.add_score((first,), (second,), Score(*score))
    return found


def stronger(first: str, second: str, copies: int) -> Score:
    """The player that comes later in the alphabet wins all games; equal letters draw."""
    if first[0] == second[0]:
        return Score(draws=copies)
    return Score(wins=copies) if first > second else Score(losses=copies)


def by_elo(strengths: Mapping[str, float], rng: np.random.Generator, *, games: int) -> Play:
    """Games without draws between players of known strength; a snapshot is as strong as its policy."""

    def play(first: str, second: str, copies: int) -> Score:
        gap = strengths[first.split("@")[0]] - strengths[second.split("@")[0]]
        wins = int(rng.binomial(games * copies, 1 / (1 + 10 ** (-gap / 400))))
        return Score(wins=wins, losses=games * copies - wins)

    return play


def timeline(*parts: Results | Period, learners: str = "", snapshots: Sequence[str] = (), ticks: int = 100) -> Timeline:
    """Periods, or games of whole rounds one after the other; players of a period learn in it if they are `learners`."""
    periods = [
        part
        if isinstance(part, Period)
        else Period(ticks * number, ticks * (number + 1), part, frozenset(part.players))
        for number, part in enumerate(parts)
    ]
    return Timeline(periods, ticks, frozenset(learners), {}, snapshots)


def timeline_of(config: Config, rounds: Sequence[Round], results: Sequence[Results]) -> Timeline:
    """The games of rounds, with the changes of policies between them."""
    beginnings: dict[str, list[PolicyReset]] = {}
    for made in rounds:
        for name in made.resets:
            beginnings.setdefault(name, []).append(PolicyReset(made.start, None))
        for name, fork in made.forks.items():
            beginnings.setdefault(name, []).append(PolicyReset(made.start, fork.source))
    periods = [
        Period(
            made.start,
            made.start + config.ticks,
            found,
            frozenset(name for match in made.matches for name in match.names),
        )
        for made, found in zip(rounds, results, strict=True)
    ]
    snapshots = [name for made in rounds for name in made.snapshots]
    return Timeline(periods, config.ticks, config.learners, beginnings, snapshots)


def encounters(first: Team, second: Team, score: Score) -> list[Encounter]:
    """The games of a score; equal results are adjacent."""
    counts = zip(("win", "draw", "loss"), score, strict=True)
    return [Encounter(first, second, outcome) for outcome, count in counts for _ in range(count)]


def played(config: Config, play: Play = stronger, *, returns: Mapping[str, Sequence[float]] | None = None) -> Played:
    """A whole league; the games of a match end in random order."""
    results, rng = list[Results](), np.random.default_rng(config.seed)
    rounds = [first_round(config)]
    games: list[dict[int, list[Encounter]]] = []
    while True:
        games.append({})
        results.append(Results())
        for match in rounds[-1].matches:
            assert match.sides is not None
            first, second = (tuple(str(match.seats[seat]) for seat in side) for side in match.sides)
            score = play(first[0], second[0], match.copies)
            results[-1].add_score(first, second, score)
            ended = encounters(first, second, score)
            games[-1][_number(rounds[-1], match)] = [ended[place] for place in rng.permutation(len(ended))]
        known = timeline_of(config, rounds, results)
        if len(rounds) == config.round_count or is_over(config, rounds, known):
            return Played(rounds, known.results)
        rounds.append(next_round(config, rounds, known, returns or {}, games))


def _number(made: Round, match: Match) -> int:
    """Of the first copy of a match."""
    return sum(other.copies for other in made.matches[: made.matches.index(match)])


class Played(NamedTuple):
    """The rounds of a league, and the results at its end."""

    rounds: list[Round]
    results: Results


class Tournament:
    """A whole tournament, whose table is collected after every batch.

    Args:
        names: of the players.
        chances: of a win, a draw and a loss of the player of the first side, by the places of both in `names`.
    """

    def __init__(
        self, names: Sequence[str], chances: Callable[[int, int], Any], rule: Rule, *, lanes: int, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        setting = Match(env="g", seats=("?", "?"), sides=((0,), (1,)), lanes=lanes)
        self.results, self.tables = Results(), list[Table]()
        while (batch := next_batch([setting], names, self.results, rule, played=self.results.games)) is not None:
            for match in batch.matches:
                first, second = (str(name) for name in match.seats)
                count = match.copies * match.lanes * batch.episodes
                drawn = rng.multinomial(count, chances(names.index(first), names.index(second)))
                self.results.add_score((first,), (second,), Score(*drawn.tolist()), sided=True)
            self.tables.append(table(self.results, names, rule))


def roles(made: Round) -> int:
    """Environments and workers of a round."""
    return sum(match.copies * (1 + len(match.seats)) for match in made.matches)
