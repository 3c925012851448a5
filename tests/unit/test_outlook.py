"""Whether a later round can deadlock: held against the proofs of all the plans that it may have."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from arena.config import Config, parse_config
from arena.config.chances import Drawn, drawn, first_second_meeting, generators_of
from arena.config.check_league import gated, snapshotted
from arena.config.league import LeagueConfig
from arena.config.matches import (
    Generator,
    KnockoutConfig,
    MatchConfig,
    MatchmakingConfig,
    SwissConfig,
    Uncertainty,
    UncertaintyRule,
    generator_of,
)
from arena.config.members import Bracket, brackets
from arena.errors import ConfigError
from arena.league import matchmaking
from arena.league import pairings as generators
from arena.league.matchmaking import OpponentPool
from arena.league.results import Results
from arena.plan.deadlock import prove
from arena.plan.outlook import foresee, refuse_standstill
from arena.plan.plan import make_plan

FREE, TIMED, STAYS = ({"algorithm": name} for name in ("own:AtEpisodes", "own:AtTicks", "random"))
LEARN = {"a": FREE, "b": FREE, "c": FREE, "D": TIMED, "E": TIMED, "F": TIMED}
STILL = "still"
_EXACT = 4  # players of a Swiss tournament: whether all others can be paired as well is looked at in no larger one


def config(*matches: Mapping[str, Any], rounds: int = 2, **more: Any) -> Config:
    """The workers of a, b and c meet at ends of episodes, those of D, E and F after ticks."""
    envs, policies = {"g": {"make": "matrix"}}, {**LEARN, STILL: STAYS}
    data = {"name": "league", "ticks": 10_000, "rounds": rounds, "envs": envs, "policies": policies}
    return parse_config({**data, "matches": [*matches], **more}, source="test")


def match(seats: Iterable[str], **more: Any) -> dict[str, Any]:
    return {"env": "g", "seats": [*seats], **more}


def entry(kind: str, policies: Iterable[str], **more: Any) -> dict[str, Any]:
    return {kind: {"env": "g", "policies": [*policies], **more}}


def schedules(made: Config) -> dict[str, str]:
    return {name: "episodes" if policy == FREE else "ticks" for name, policy in LEARN.items()}


def processes(made: Config) -> int:
    return make_plan(made).processes


def refused(made: Config) -> bool:
    return foresee(made, schedules(made), processes=processes(made)) is not None


# ------------------------------------------------------------------------------------- all plans that a round may have


def stuck(made: Config) -> bool:
    """Whether some plan of some later round can deadlock, as each of them is proved."""
    return any(stuck_in(made, number) for number in range(1, made.rounds))


def stuck_in(made: Config, number: int) -> bool:
    rounds = filter(None, (tuple(itertools.chain(*row)) for row in itertools.product(*parts(made, number))))
    plans = (
        make_plan(msgspec.structs.replace(made, matches=row), ranks=processes(made), number=number) for row in rounds
    )
    return any(prove(plan, schedules(made)).circle for plan in plans)


def parts(made: Config, number: int) -> list[list[tuple[MatchConfig, ...]]]:
    """What each of the entries may make of a round."""
    entries = (entry if isinstance(entry, MatchConfig) else generator_of(entry) for _, entry in made.places())
    return [rows(made, entry, number) for entry in entries]


def rows(made: Config, generator: MatchConfig | Generator, number: int) -> list[tuple[MatchConfig, ...]]:
    """What an entry may make of a round."""
    if isinstance(generator, MatchConfig):
        return [(generator,)]
    if isinstance(generator, (KnockoutConfig, SwissConfig)):
        found = last_pairings(type(generator), len(generator.policies), number)
        named = (tuple(tuple(generator.policies[one] for one in players) for players in row) for row in found)
        return [generator.written_out(generators.teams(generator, row)) for row in named]
    if isinstance(generator, MatchmakingConfig):
        hands = [opponents(drawn(made, generator, learner, number), generator.copies) for learner in generator.policies]
        chosen = (dict(zip(generator.policies, hand, strict=True)) for hand in itertools.product(*hands))
        return [generator.drawn(hand, number=number) for hand in chosen]
    return [generator.matches()]


def opponents(hand: Drawn, draws: int) -> list[tuple[str, ...]]:
    """As many others as there may be, as who meets fewer waits for no more; and else snapshots."""
    others = itertools.combinations_with_replacement(hand.others, hand.most)
    return [(*names, *[STILL] * (draws - len(names))) for names in others]


def last_pairings(kind: type[KnockoutConfig | SwissConfig], players: int, number: int) -> list[Any]:
    """Of a round of a tournament of players 0, 1, ..., whoever has won."""
    return sorted({history[-1] for history in histories(kind, players, number)})


@cache
def histories(kind: type[KnockoutConfig | SwissConfig], players: int, number: int) -> frozenset[Any]:
    """All rounds of a tournament up to one, in every way in which they may be paired."""
    entry = kind(env="g", policies=tuple(map(str, range(players))))
    if number == 0:
        return frozenset({(_unsided(generators.opening(entry)),)})
    return frozenset(
        (*before, tuple(sorted(after)) if kind is SwissConfig else after)
        for before in histories(kind, players, number - 1)
        for order in itertools.permutations(entry.policies)
        for after in [_unsided(generators.next_pairings(entry, _named(before), [{}] * number, _Says(order)))]
    )


def _unsided(pairings: generators.Pairings) -> tuple[tuple[int, ...], ...]:
    """Who meets whom, but not who has which side."""
    return tuple(tuple(sorted(map(int, players))) for players in pairings)


def _named(rounds: Any) -> list[generators.Pairings]:
    return [tuple(tuple(map(str, players)) for players in pairings) for pairings in rounds]


class _Says(generators.KnockoutRules):
    """The better ones are listed first."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = order

    def winner(self, players: Sequence[str], made: generators.Shares) -> str:
        return min(players, key=self._order.index)

    def standings(self, players: Sequence[str], made: Sequence[generators.Shares]) -> list[str]:
        return [*self._order]


# ---------------------------------------------------------------------------------------------------- random leagues


def some(draw: st.DrawFn, names: Sequence[str], least: int, most: int) -> list[str]:
    return draw(st.lists(st.sampled_from(names), min_size=least, max_size=most, unique=True))


def rarely(draw: st.DrawFn, **more: Any) -> dict[str, Any]:
    """Now and then one of these."""
    key = draw(st.sampled_from([*[""] * 9, *more]))
    return {key: more[key]} if key else {}


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["match", "match", "gauntlet", "knockout", "swiss", "matchmaking", "matchmaking"]))
    if kind == "match":
        return match(some(draw, [*LEARN], 2, 3))
    if kind == "gauntlet":
        names = some(draw, [*LEARN], 2, 3)
        return entry(kind, names[:1], against=names[1:])
    more = rarely(draw, copies=2, both_sides=True, team_size=2)
    if kind != "matchmaking":
        return entry(kind, some(draw, [*LEARN, STILL], 2, 5), **more)
    names = some(draw, [*LEARN], 1, 4)
    learners = draw(st.integers(1, len(names)))
    against = [*names[learners:], *[STILL] * draw(st.booleans())]
    rule = draw(st.sampled_from([*RULES, "exploiters"]))
    if rule == "exploiters":
        rule = exploiters(names[:learners], *sorted(draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))))
    return entry(kind, names[:learners], against=against, rule=rule, **more)


RULES = ["uncertainty", "uncertainty", *({"fictitious": {"self": share}} for share in (0, 0, 0.5))]
RULES += [{"past_selves": {"self": share}} for share in (0, 0.5)]


def exploiters(learners: Sequence[str], mains: int, others: int) -> Any:
    lists = {"main": learners[:mains], "main_exploiters": learners[mains:others]}
    return {"exploiters": {"self": 0, **lists, "league_exploiters": learners[others:]}}


@st.composite
def leagues(draw: st.DrawFn) -> Config:
    """Of those whose first round cannot deadlock."""
    matches = draw(st.lists(entries(), min_size=2, max_size=4))
    every = draw(st.sampled_from([1, 1, 2])) if any("matchmaking" in found for found in matches) else 1
    league = {"league": {"snapshots": {"every": every}}} if every > 1 else {}
    try:
        made = config(*matches, rounds=draw(st.integers(3, 4)), **league, **rarely(draw, scale=True))
    except ConfigError:  # as a learner of which there is never a snapshot
        made = config(match("a"))
    assume(not prove(make_plan(made), schedules(made)).circle)
    return made


@settings(max_examples=150)
@given(leagues())
def test_a_league_is_refused_exactly_if_some_plan_of_a_later_round_can_deadlock(made: Config) -> None:
    assume(all(math.prod(map(len, parts(made, number))) <= 200 for number in range(1, made.rounds)))
    event(f"refused: {refused(made)}")
    assert stuck(made) <= refused(made)
    if not any(isinstance(found, SwissConfig) and len(found.policies) > _EXACT for _, found in generators_of(made)):
        assert refused(made) <= stuck(made)


# ------------------------------------------------------------------------------------------------- what it follows from


EXPLOITERS = {"main": ["a", "b"], "main_exploiters": ["D"], "league_exploiters": ["E"]}
HANDS = {
    "past selves": entry("matchmaking", "aD", rule={"past_selves": {"self": 0.5}}),
    "past selves alone": entry("matchmaking", "aD", rule={"past_selves": {"self": 0}}),
    "fictitious": entry("matchmaking", "abD", rule={"fictitious": {"self": 0.4}}, copies=3),
    "fictitious, some learn elsewhere": entry(
        "matchmaking", "a", against=["b", "E"], rule={"fictitious": {"self": 0.6}}
    ),
    "no self-play": entry("matchmaking", "aD", against=[STILL], rule={"fictitious": {"self": 0}}),
    "nobody else": entry("matchmaking", "a", rule={"fictitious": {"self": 0}}),
    "uncertainty": entry("matchmaking", "aD", against=["b", STILL], rule="uncertainty"),
    "exploiters": entry("matchmaking", "abDE", rule={"exploiters": {"self": 0.5, **EXPLOITERS}}, copies=3),
    "exploiters alone": entry("matchmaking", "abDE", rule={"exploiters": {"self": 0, **EXPLOITERS}}),
    "one main": entry("matchmaking", "aD", rule={"exploiters": {"main": ["a"], "main_exploiters": ["D"]}}, copies=4),
}
LATE = {"snapshots": {"every": 2}}
GATE = {"snapshots": {"gate": {"elo": 400}}}


@pytest.mark.parametrize("league", [{}, LATE, GATE], ids=["usual", "late", "gate"])
@pytest.mark.parametrize("part", HANDS.values(), ids=HANDS.keys())
def test_whom_a_learner_may_draw_are_those_whom_its_rule_draws_from_some_results(part: Any, league: Any) -> None:
    (rule,) = part.values()
    if league is GATE and {*rule.get("against", ())} & {*LEARN}:
        league = LATE  # a gate is for learners alone
    made = config({"matchmaking": {"copies": 2, **rule}}, *map(match, "abDE"), rounds=4, league=league)
    generator = generator_of(made.places()[0][1])  # type: ignore[arg-type]
    assert isinstance(generator, MatchmakingConfig)
    for learner, number in itertools.product(generator.policies, (1, 2)):
        assert hand_of(made, generator, learner, number) == drawn(made, generator, learner, number), (learner, number)


def hand_of(made: Config, rule: MatchmakingConfig, learner: str, number: int) -> Drawn:
    """What comes out of many draws, from results in which the learner beats everybody but one."""
    every = (made.league or LeagueConfig()).snapshots.every
    joined = {name: [f"{name}@{10_000 * every}"] for name in snapshotted(made) if number >= every}
    tested = {name: joined[name][0] for name in gated(made) if name in joined}
    known = {*LEARN, STILL, *itertools.chain(*joined.values())}
    seeds, hands = 1 if rule.rule == UncertaintyRule(uncertainty=Uncertainty()) else 10, []
    for strong, both, seed in itertools.product(sorted(known - {learner}), (True, False), range(seeds)):
        field = OpponentPool(one_sided(learner, strong, known, met=both), joined, made.learners)
        hands.append(Counter(matchmaking.draw(rule, field, np.random.default_rng(seed), tested=tested)[learner]))
    met = [Counter({name: hand[name] for name in made.learners - {learner} if hand[name]}) for hand in hands]
    others = tuple(name for name in rule.members if any(name in one for one in met))
    return Drawn(others, max(map(Counter.total, met)))


def one_sided(learner: str, strong: str, names: Iterable[str], *, met: bool) -> Results:
    """The learner and a strong one have won all their games; where the two have met, the strong one has."""
    found = Results()
    for other in {*names} - {learner, strong}:
        for winner in (learner, strong):
            found.add((winner,), (other,), "win", count=300)
    if met:
        found.add((strong,), (learner,), "win", count=300)
    return found


@pytest.mark.parametrize("players", range(2, 12))
def test_who_may_meet_at_once_in_a_knockout_are_those_of_all_its_results(players: int) -> None:
    entry = KnockoutConfig(env="g", policies=tuple(map(str, range(players))))
    played = [[generators.opening(entry)]]
    for drawn_round in brackets(entry.policies):
        said = {frozenset(zip(*[iter(names)] * 2, strict=True)) for bracket in drawn_round for names in chosen(bracket)}
        assert said == {frozenset(pair for pair in rows[-1] if len(pair) == 2) for rows in played}
        played = [
            [*before, generators.next_pairings(entry, before, [{}] * len(before), _Says([*winners, *entry.policies]))]
            for before in played
            for winners in itertools.product(*before[-1])
        ]


def chosen(bracket: Bracket) -> Iterable[tuple[str, ...]]:
    """One of those who may have come to each place."""
    return itertools.product(*itertools.chain(*bracket))


@pytest.mark.parametrize(("players", "number"), [(2, 1), (3, 3), (4, 3), (5, 3)])
def test_nobody_meets_anybody_again_in_a_swiss_tournament_before_that_can_be_forced(players: int, number: int) -> None:
    assert first_second_meeting(SwissConfig(env="g", policies=tuple("abcdef"[:players]))) == number
    for rounds in range(1, number + 1):
        again = [
            Counter(pair for row in rows for pair in row if len(pair) > 1)
            for rows in histories(SwissConfig, players, rounds)
        ]
        assert (max(max(count.values()) for count in again) > 1) == (rounds == number)


# ----------------------------------------------------------------------------------------------------------- one by one


def refusal(made: Config) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        refuse_standstill(made, schedules(made), processes=processes(made))
    return caught.value


def test_a_refusal_says_where_who_may_meet_whom_and_what_helps() -> None:
    found = refusal(config(match("aD"), match("DE"), entry("swiss", "aDFE"), rounds=3))
    assert found.path == "matches[2].swiss"
    first, *meetings, helps = found.message.splitlines()
    assert first.startswith(
        "a later round can deadlock: the workers of a may meet whenever an episode of theirs is over"
    )
    assert "round 1 of 0 to 2 may have these matches" in first
    assert meetings == [
        "  'a' and 'D', by matches[0]",
        "  'D' and 'E', by matches[1]",
        "  'E' and 'a', by matches[2].swiss",
    ]
    assert "`schedule = 'ticks'`" in helps
    assert "--allow-unproved" in helps


def test_who_rests_at_first_and_has_two_workers_in_a_match_then_is_refused() -> None:
    found = refusal(config(entry("knockout", ["a", "D", STILL], team_size=2)))
    assert "\n  two workers of 'a' in a match, by matches[0].knockout\n" in found.message


def test_players_of_a_tournament_that_meet_in_several_copies_are_refused() -> None:
    found = refusal(config(entry("knockout", ["a", "D", STILL], copies=2)))
    assert found.message.count("'a' and 'D', by") + found.message.count("'D' and 'a', by") == 2


def test_one_tournament_alone_never_holds_anybody_up() -> None:
    assert not refused(config(entry("swiss", "abcDEF"), rounds=9))
    assert not refused(config(entry("knockout", "abcDEF"), rounds=3))


def test_two_places_of_a_bracket_meet_once_in_a_round() -> None:
    """Either a or D comes to meet b or E, so that one of the two others is met by nobody."""
    fixed = [match("aF"), match("FD"), match("bc"), match("cE")]
    assert not refused(config(entry("knockout", "aDbE"), *fixed))
    assert refused(config(entry("swiss", "aDbE"), *fixed))


def test_learners_that_draw_once_do_not_meet_two_of_those_who_never_draw() -> None:
    """However they draw each other: of a circle each would have to draw one, and those who are drawn draw nobody."""
    against = {"against": ["a", "b"], "rule": "uncertainty"}
    assert not refused(config(entry("matchmaking", "DEF", **against), match("ab")))
    assert refused(config(entry("matchmaking", "DEF", **against), match("ab"), match("DE")))
    assert refused(config(entry("matchmaking", "DEF", **against, copies=2), match("a")))


def test_who_is_drawn_once_is_met_twice_where_each_pair_meets_from_both_sides() -> None:
    against = {"against": ["a"], "rule": {"fictitious": {"self": 0.5}}}
    assert not refused(config(entry("matchmaking", "D", **against)))
    assert refused(config(entry("matchmaking", "D", **against, both_sides=True)))
    assert refused(config(entry("matchmaking", "D", **against, copies=3)))


def test_exploiters_meet_a_main_together_only_where_it_may_be_drawn_as_it_is() -> None:
    """Where there are snapshots, these are all that a league exploiter meets, and with `self: 0` a main too."""
    rule = {"exploiters": {"self": 0, "main": ["D", "E"], "league_exploiters": ["a"]}}
    rounds = {"rounds": 4, "league": {"snapshots": {"every": 2}}}
    assert not refused(config(entry("matchmaking", "DEa", rule=rule), match("aE"), rounds=4))
    assert refused(config(entry("matchmaking", "DEa", rule=rule), match("aE"), **rounds))


def test_a_round_with_fewer_matches_may_be_repeated_where_the_league_is_to_fill_its_processes() -> None:
    four = entry("knockout", "aDEF")
    assert not refused(config(four))
    assert "`scale: false`; " in refusal(config(four, scale=True)).message


@pytest.mark.parametrize(("ticks", "found"), [(1, False), (10, True)])
def test_with_one_tick_in_a_round_nobody_waits(ticks: int, found: bool) -> None:
    made = config(match("ab"), entry("swiss", "aEbF"), ticks=ticks)
    assert refused(made) is found
    assert stuck(made) is found


def test_all_rounds_are_as_the_first_one_where_no_entry_depends_on_results() -> None:
    assert not refused(config(entry("round_robin", "abD")))
