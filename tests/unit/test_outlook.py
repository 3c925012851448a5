"""Whether a later round can deadlock: held against the proofs of all the plans that it may have."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from arena.config import Config, parse_config
from arena.config.chances import Drawn, drawn
from arena.config.matches import (
    Generator,
    KnockoutConfig,
    MatchConfig,
    MatchmakingConfig,
    SwissConfig,
    generator_of,
)
from arena.errors import ConfigError
from arena.league import generators, matchmaking
from arena.league.matchmaking import Field
from arena.league.results import Results
from arena.outlook import foresee, refuse_standstill
from arena.plan import make_plan
from arena.schedule import prove

FREE, TIMED, STAYS = ({"algorithm": name} for name in ("own:AtEpisodes", "own:AtTicks", "random"))
POLICIES = {"a": FREE, "b": FREE, "c": FREE, "D": TIMED, "E": TIMED, "F": TIMED, "still": STAYS}
STILL = "still"


def config(*matches: Mapping[str, Any], rounds: int = 2, ticks: int = 10_000, **more: Any) -> Config:
    """The workers of a, b and c meet at ends of episodes, those of D, E and F after ticks."""
    data = {"name": "league", "ticks": ticks, "rounds": rounds, "envs": {"g": {"make": "matrix"}}, "policies": POLICIES}
    return parse_config({**data, "matches": [*matches], **more}, source="test")


def match(seats: str, **more: Any) -> dict[str, Any]:
    return {"env": "g", "seats": [*seats], **more}


def entry(kind: str, policies: Iterable[str], **more: Any) -> dict[str, Any]:
    return {kind: {"env": "g", "policies": [*policies], **more}}


def schedules(made: Config) -> dict[str, str]:
    return {name: "episodes" if name in "abc" else "ticks" for name in made.policies}


def processes(made: Config) -> int:
    return make_plan(made).processes


# ------------------------------------------------------------------------------------- all plans that a round may have


@cache
def pairings(kind: type[KnockoutConfig | SwissConfig], players: int, number: int) -> list[Any]:
    """Of a tournament of so many in a round, whoever has won; its players are called 0, 1, ..."""
    entry = kind(env="g", policies=tuple(map(str, range(players))))
    histories: set[tuple[generators.Pairings, ...]] = {(generators.opening(entry),)}
    for _ in range(number):
        histories = {
            (*before, generators.next_pairings(entry, before, [{}] * len(before), _Says(order)))
            for before in histories
            for order in itertools.permutations(entry.policies)
        }
    return sorted({tuple(sorted(tuple(sorted(pair)) for pair in history[-1])) for history in histories})


class _Says(generators.Judge):
    """The stronger ones are listed first."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = order

    def winner(self, players: Sequence[str], made: generators.Shares) -> str:
        return min(players, key=self._order.index)

    def standings(self, players: Sequence[str], made: Sequence[generators.Shares]) -> list[str]:
        return [*self._order]


def rows(made: Config, generator: MatchConfig | Generator, number: int) -> list[tuple[MatchConfig, ...]]:
    """What an entry may make of a round."""
    if isinstance(generator, MatchConfig):
        return [(generator,)]
    if isinstance(generator, (KnockoutConfig, SwissConfig)):
        found = pairings(type(generator), len(generator.policies), number)
        named = (tuple(tuple(generator.policies[int(one)] for one in players) for players in row) for row in found)
        return [generator.written_out(generators.teams(generator, row)) for row in named]
    if isinstance(generator, MatchmakingConfig):
        hands = [opponents(drawn(made, generator, learner, number), learner) for learner in generator.policies]
        return [
            generator.drawn(dict(zip(generator.policies, hand, strict=True)), number=number)
            for hand in itertools.product(*hands)
        ]
    return [generator.matches()]


def opponents(hand: Drawn, learner: str) -> list[tuple[str, ...]]:
    """Itself, if it may be, and as many others as there may be: fewer would not wait for more."""
    own = (learner,) if hand.itself else ()
    others = itertools.combinations_with_replacement(hand.others, hand.most if hand.others else 0)
    return [(*own, *names) or (STILL,) for names in others]


def plans_stuck(made: Config, number: int) -> bool:
    """Whether some plan of a round can deadlock, as each of them is proved."""
    entries = [entry if isinstance(entry, MatchConfig) else generator_of(entry) for _, entry in made.places()]
    options = [rows(made, entry, number) for entry in entries]
    assume(math.prod(map(len, options)) <= 200)
    rounds = filter(None, (tuple(itertools.chain(*row)) for row in itertools.product(*options)))
    plans = (
        make_plan(msgspec.structs.replace(made, matches=row), ranks=processes(made), number=number) for row in rounds
    )
    return any(prove(plan, schedules(made)).circle for plan in plans)


def stuck(made: Config) -> bool:
    return any(plans_stuck(made, number) for number in range(1, made.rounds))


# ---------------------------------------------------------------------------------------------------- random leagues


def teams(draw: st.DrawFn, least: int, most: int) -> list[str]:
    names = st.sampled_from([*POLICIES])
    return draw(st.lists(names, min_size=least, max_size=most, unique=True))


def rarely(draw: st.DrawFn, **more: Any) -> dict[str, Any]:
    """Some of these keys."""
    return {key: value for key, value in more.items() if draw(st.integers(0, 5)) == 0}


def drawn_entry(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["match", "round_robin", "knockout", "swiss", "matchmaking", "matchmaking"]))
    if kind == "match":
        return match(draw(st.text("abcDEF", min_size=2, max_size=3)))
    more = rarely(draw, copies=2, both_sides=True, team_size=2)
    if kind == "round_robin":
        return entry(kind, teams(draw, 2, 2), **more)
    if kind != "matchmaking":
        return entry(kind, teams(draw, 2, 5 if kind == "knockout" else 4), **more)
    names = teams(draw, 1, 4)
    learners = names[: draw(st.integers(1, len(names)))]
    return entry(kind, learners, against=names[len(learners) :], rule=drawn_rule(draw, learners), **more)


def drawn_rule(draw: st.DrawFn, learners: Sequence[str]) -> Any:
    share = draw(st.sampled_from([0, 0, 0.5, 1]))
    kind = draw(st.sampled_from(["past_selves", "fictitious", "fictitious", "uncertainty", "exploiters"]))
    if kind == "uncertainty":
        return kind
    if kind != "exploiters":
        return {kind: {"self": share}}
    ends = sorted(draw(st.tuples(st.integers(1, 3), st.integers(1, 3))))
    lists = {"main": learners[: ends[0]], "main_exploiters": learners[ends[0] : ends[1]]}
    return {kind: {"self": share, **lists, "league_exploiters": learners[ends[1] :]}}


@st.composite
def leagues(draw: st.DrawFn) -> Config:
    matches = [drawn_entry(draw) for _ in range(draw(st.integers(1, 3)))]
    rounds = draw(st.integers(2, 4))
    every = draw(st.integers(1, 3))
    league = {"league": {"snapshots": {"every": every}}} if every > 1 else {}
    scale = rarely(draw, scale=True)
    try:
        return config(*matches, rounds=rounds, **league, **scale)
    except ConfigError:
        assume(False)
        raise


@settings(max_examples=1500, deadline=None)
@given(leagues())
def test_a_league_is_refused_if_some_plan_of_a_later_round_can_deadlock(made: Config) -> None:
    first = prove(make_plan(made), schedules(made)).circle is not None
    refused = foresee(made, schedules(made), processes=processes(made)) is not None
    event(f"first {first}, refused {refused}")
    if first:
        return
    found = stuck(made)
    event(f"later: refused {refused}, stuck {found}")
    assert refused == found, made.matches
