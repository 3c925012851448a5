"""Checks of rules of matchmaking and generators of matches of a user's own against `arena.league.custom`.

Each class is called in made-up leagues: before the first game, after some rounds, with snapshots, with one player that
has won everything. It has to return what the interface asks, and the same for the same league and stream; it must not
change the league, and must draw from its own stream only: a round that is planned again has to be the same round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from arena.config.matches import Pair, Pairings
from arena.errors import ConfigError
from arena.league.custom import OpponentRule, PairingGenerator, checked_opponents, checked_pairings
from arena.league.results import Results, Score
from arena.league.view import LeagueView
from arena.testing.batched_env import ContractBroken

_COUNTS = (1, 2, 5)  # opponents of a learner
_SEED = 20


def check_rule(make: Callable[[], OpponentRule]) -> None:
    """Checks a rule of matchmaking that `make` creates; raises `ContractBroken` at the first breach."""
    for league in _leagues():
        for learner in league.policies:
            for count in _COUNTS:
                call = f"opponents({learner!r}, count={count}) in round {league.round}"
                found = _called_twice(make, league, call, lambda rule, rng: rule.opponents(learner, league, count, rng))  # noqa: B023
                try:
                    checked_opponents(found, league.players, count, who=call)
                except ConfigError as error:
                    raise ContractBroken(error.message) from error


def check_pairings(make: Callable[[], PairingGenerator], *, team_size: int = 1, most: int = 6) -> None:
    """Checks a generator of matches that `make` creates; raises `ContractBroken` at the first breach.

    `team_size`: seats of each side; `most`: pairings of the first round.
    """
    for league in _leagues():
        opening = tuple((league.policies[0], league.policies[1]) for _ in range(most))
        entry = Pairings(
            env="game", policies=league.policies, team_size=team_size, generator="tests:Generator", opening=opening
        )
        call = f"pairings() in round {league.round}"
        found = _called_twice(make, league, call, lambda generator, rng: generator.pairings(league, rng))  # noqa: B023
        try:
            checked_pairings(found, league.players, entry, who=call)
        except ConfigError as error:
            raise ContractBroken(error.message) from error


def _called_twice(
    make: Callable[[], Any], league: LeagueView, call: str, run: Callable[[Any, np.random.Generator], Any]
) -> Any:
    """The answer of a new object; a second one must answer the same, and neither may change anything else."""

    def contents() -> object:
        snapshots = {name: tuple(each) for name, each in league.snapshots.items()}
        results = dict(league.results.pairs()), dict(league.results.by_side())
        return league.policies, league.players, snapshots, *results, league.earlier

    before, others = contents(), (random.getstate(), repr(np.random.get_state()))
    answers = [run(make(), np.random.default_rng(_SEED)) for _ in range(2)]
    if contents() != before:
        raise ContractBroken(f"{call} has changed the league that it was shown")
    if (random.getstate(), repr(np.random.get_state())) != others:
        raise ContractBroken(f"{call} draws from a global stream; draw from `rng` alone, or a resumed run differs")
    if repr(answers[0]) != repr(answers[1]):
        raise ContractBroken(
            f"{call} answered {answers[0]!r:.80}, and {answers[1]!r:.80} from the same league and stream: it has to "
            "depend on its arguments alone"
        )
    return answers[0]


def _leagues() -> Iterator[LeagueView]:
    """Leagues of one, two and five policies, of which the last one does not learn, in several of their rounds."""
    for names in (("a", "b"), ("a", "b", "c", "d", "fixed")):
        learns = frozenset(names) - {"fixed"}
        learners = tuple(name for name in names if name in learns)
        yield LeagueView(1, learners, names, dict.fromkeys(names, ()), Results(), learns, ((),))
        snapshots = {name: (f"{name}@100", f"{name}@200") if name in learns else () for name in names}
        players = (*names, *(player for taken in snapshots.values() for player in taken))
        met: tuple[Pair, ...] = tuple(((one,), (other,)) for one in names for other in names if one < other)
        for won in (Score(3, 1, 2), Score(wins=6)):
            results = Results()
            for first, second in met:
                results.add_score(first, second, won, sided=True)
            results.add_score(("a",), ("a@100",), won)
            yield LeagueView(2, learners, players, snapshots, results, learns, ((), met))
