"""Unequal sides, and two populations that only meet each other: seats, draws, gates, ratings, tournaments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena.config import Config
from arena.config.matches import Match
from arena.config.members import Sides, later_matches, populations, separate_populations
from arena.errors import ConfigError
from arena.league.matchmaking import OpponentPool, draw
from arena.league.next_round import first_round, next_round
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import populations_of, tables
from arena.league.results import Encounter, Results, Score
from arena.league.snapshots import paired
from arena.league.tournament import Rule, every_meeting, next_batch, table
from arena.plan.build import make_plan
from arena.terminal.standings import table_data, table_lines
from simulated_leagues import entry, league, played, timeline

HUNT = {"policies": ["a", "b"], "versus": ["c", "d"], "rule": "fictitious", "sides": [3, 1], "copies": 3}


def hunt(**keys: Any) -> Config:
    more = {key: keys.pop(key) for key in ("rounds", "league") if key in keys}
    return league(entry("matchmaking", **{**HUNT, **keys}), **more)


# ------------------------------------------------------------------------------------------------------------ the sides


def test_sides_seat_each_policy_as_often_as_they_say() -> None:
    (match,) = first_round(league(entry("gauntlet", policies=["a"], against=["b"], sides=[3, 1]))).matches
    assert (match.seats, match.sides, match.entities) == (("a", "a", "a", "b"), ((0, 1, 2), (3,)), None)


def test_sides_of_named_entities_name_them() -> None:
    sides = [["adversary_0", "adversary_1"], ["agent_0"]]
    (match,) = first_round(league(entry("gauntlet", policies=["a"], against=["b"], sides=sides))).matches
    assert (match.seats, match.entities) == (("a", "a", "b"), ("adversary_0", "adversary_1", "agent_0"))


def test_exchanged_sides_keep_their_sizes() -> None:
    pairs = league(entry("round_robin", policies=["a", "b"], sides=[2, 1], both_sides=True))
    assert [match.seats for match in first_round(pairs).matches] == [("a", "a", "b"), ("b", "b", "a")]
    assert pairs.roles == 8


def robin(**keys: Any) -> dict[str, Any]:
    return entry("round_robin", policies=["a", "b"], **keys)


def hunting(**keys: Any) -> dict[str, Any]:
    return entry("matchmaking", **{**HUNT, **keys})


@pytest.mark.parametrize(
    ("match", "key", "words"),
    [
        (robin(sides=[3]), "sides", "has 1 items"),
        (robin(sides=[3, 1], team_size=2), "sides", "leave out `team_size`"),
        (robin(sides=[3, ["x"]]), "sides", "mixes"),
        (robin(sides=[["x"], ["x"]]), "sides", "listed twice"),
        (robin(sides=[["x"], []]), "sides[1]", "is empty"),
        (robin(sides=[0, 1]), "sides[0]", "at least 1"),
        (entry("mixtures", policies=["a", "b"], sides=[2, 1]), "sides", "teams of one size"),
        (hunting(versus=["a"]), "versus[0]", "a policy is in one of the two populations"),
        (hunting(versus=["x"]), "versus[0]", "unknown policy"),
        (hunting(versus=["random"]), "versus[0]", "does not learn"),
        (hunting(against=["random"]), "against", "no effect with `versus`"),
        (hunting(both_sides=True), "both_sides", "no effect with `versus`"),
        (hunting(rule={"exploiters": {"main": ["a", "b"]}}), "rule", "not defined for two populations"),
    ],
)
def test_wrong_sides_and_populations_are_refused(match: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        league(match)
    assert caught.value.path == f"matches[0].{next(iter(match))}.{key}"


# ---------------------------------------------------------------------------------------------------------- populations


def test_populations_only_meet_each_other_on_their_sides() -> None:
    config = hunt(rounds=6)
    found = played(config)
    for made in found.rounds:
        assert len(make_plan(config).matches) == sum(match.copies for match in made.matches) == 12
        for match in made.matches:
            first, second = ({name.partition("@")[0] for name in match.team_of(side)} for side in (0, 1))
            assert first <= {"a", "b"}
            assert second <= {"c", "d"}
            assert [len(match.team_of(side)) for side in (0, 1)] == [3, 1]
    assert any("@" in name for match in found.rounds[-1].matches for name in match.names), "snapshots are met"
    later = [(match.names[0], match.names[-1]) for _, match in later_matches(config)]
    assert {first for first, _ in later} == {"a", "b"}
    assert {second for _, second in later} == {"c", "d"}


@pytest.mark.parametrize("rule", ["past_selves", "uncertainty", "own_leagues:Above"])
def test_every_rule_draws_from_the_other_population(rule: str) -> None:
    config = hunt(rule=rule, copies=4, rounds=3)
    for made in played(config).rounds[1:]:
        for match in made.matches:
            first, second = ({name.partition("@")[0] for name in match.team_of(side)} for side in (0, 1))
            assert first <= {"a", "b"}
            assert second <= {"c", "d"}


def test_self_share_meets_the_current_other_population() -> None:
    made = hunt(rule={"past_selves": {"self": 0.5}}, copies=8).matches[0]  # type: ignore[index]
    field = OpponentPool(Results(), {"c": ["c@100"], "d": ["d@100", "d@200"]}, frozenset("abcd"))
    found = draw(made, field, np.random.default_rng(0))["a"]
    assert sum("@" not in name for name in found) == 4


def test_populations_are_recognized_by_different_sides() -> None:
    assert separate_populations(hunt()) == Sides(("a", "b"), ("c", "d"))
    assert separate_populations(hunt(sides=None)) == Sides(("a", "b"), ("c", "d")), "`versus` says so"
    assert separate_populations(league(entry("gauntlet", policies=["a"], against=["b"], sides=[2, 1]))) == Sides(
        ("a",), ("b",)
    )
    assert separate_populations(league(entry("gauntlet", policies=["a"], against=["b"]))) is None, "as ever: one table"
    assert (
        separate_populations(league(entry("round_robin", policies=["a", "b"], sides=[2, 1], both_sides=True))) is None
    )
    tag = {"env": "game", "seats": ["a", "a", "b"]}
    assert separate_populations(league(tag)) == Sides(("a",), ("b",))
    assert separate_populations(league(tag, {"env": "game", "seats": ["b", "b", "a"]})) is None


def test_each_population_evolves_by_itself() -> None:
    config = hunt(league={"evolution": {}})
    assert config.league is not None
    assert config.league.evolution is not None
    assert populations(config, config.league.evolution) == (("a", "b"), ("c", "d"))


def test_snapshots_belong_to_the_population_of_their_policy() -> None:
    assert populations_of(hunt(), ["a", "a@100", "d@7"]) == Sides(("a", "a@100"), ("d@7",))


# -------------------------------------------------------------------------------------------------------------- ratings


def chance(first: float, second: float) -> float:
    return 1 / (1 + 10 ** ((second - first) / 400))


def games(strengths: dict[str, float], sides: Sides, count: int, rng: np.random.Generator) -> Results:
    found = Results()
    for one, other in every_meeting(sides):
        wins = int(rng.binomial(count, chance(strengths[one], strengths[other])))
        found.add_score((one,) * 3, (other,), Score(wins=wins, losses=count - wins), sided=True)
    return found


def test_two_tables_have_one_scale() -> None:
    strengths = {"a": 100.0, "b": 0.0, "c": -50.0, "d": -250.0}
    sides = Sides(("a", "b"), ("c", "d"))
    results = games(strengths, sides, 20_000, np.random.default_rng(0))
    rows = {row.player: row for row in [row for own in tables(fit(results), results, sides=sides) for row in own]}
    for one, other in every_meeting(sides):
        assert rows[one].elo - rows[other].elo == pytest.approx(strengths[one] - strengths[other], abs=12)
    assert [(row.rank, row.population) for row in rows.values()] == [
        (1, "first side"),
        (2, "first side"),
        (1, "second side"),
        (2, "second side"),
    ]


@pytest.mark.slow
def test_intervals_within_a_population_hold_the_truth() -> None:
    strengths = {"a": 60.0, "b": 0.0, "c": -60.0, "x": 150.0, "y": -90.0}
    sides, rng = Sides(("a", "b", "c"), ("x", "y")), np.random.default_rng(1)
    middle = {name: np.mean([strengths[one] for one in side]) for side in sides for name in side}
    gap = np.mean([strengths[name] for name in "abc"]) - np.mean([strengths[name] for name in "xy"])
    held, widths = [], []
    for _ in range(40):
        results = games(strengths, sides, 100, rng)
        rows = [row for own in tables(fit(results), results, sides=sides) for row in own]
        means = [np.mean([row.elo for row in rows if row.player in side]) for side in sides]
        for row in rows:
            own = means[0] if row.player in sides.first else means[1]
            truth = strengths[row.player] - middle[row.player]
            held.append(row.low - own <= truth <= row.high - own)
            widths.append(row.high - row.low)
        assert means[0] - means[1] == pytest.approx(gap, abs=120)
    assert 0.91 <= np.mean(held) <= 0.99, "200 intervals of 95 %"
    assert np.mean(widths) < 120, "the gap, which no game within a population tells, makes no interval wider"


def test_unconnected_populations_have_separate_tables() -> None:
    sides = Sides(("a", "b", "c"), ("x", "y", "z"))
    results = Results()
    for one, other, wins in (("a", "x", 6), ("a", "y", 6), ("b", "y", 8), ("c", "z", 6)):
        results.add_score((one,), (other,), Score(wins=wins, losses=10 - wins), sided=True)
    found = tables(fit(results), results, sides=sides)
    assert [[row.player for row in own] for own in found] == [["b", "a"], ["x", "y"], ["c"], ["z"]]
    assert [{(row.population, row.scale) for row in own} for own in found] == [
        {("first side", 0)},
        {("second side", 0)},
        {("first side", 1)},
        {("second side", 1)},
    ]
    alone = Results()
    alone.add_score(("c",), ("z",), Score(wins=6, losses=4), sided=True)
    two = tables(fit(alone), alone, sides=sides)
    gap = found[2][0].elo - found[3][0].elo
    assert gap == pytest.approx(two[0][0].elo - two[1][0].elo, abs=2), "no game of the others says anything of these"
    lines = table_lines(found)
    heads = [line for line in lines if line.endswith(":")]
    assert heads == ["first side:", "second side:"] * 2
    apart, first = (next(at for at, line in enumerate(lines) if words in line) for words in ("no games", "one scale"))
    assert first == apart - 1, "the first two have one scale, and no games connect them with those below"
    shown = ["".join(map(str, (row["player"], row["table"], row["scale"]))) for row in table_data(found)]
    assert shown == ["b00", "a00", "x10", "y10", "c21", "z31"]


# ---------------------------------------------------------------------------------------------------------------- gates


def round_of(policy: str, own: str, other: str) -> list[tuple[Match, list[Encounter]]]:
    """A game of a policy and of its snapshot against the same rival, as a letter each: w, d, l."""
    words = {"w": "win", "d": "draw", "l": "loss"}

    def match(player: str) -> Match:
        return Match(env="g", seats=(player, player, "rival"), sides=((0, 1), (2,)))

    def ended(player: str, letters: str) -> list[Encounter]:
        return [Encounter((player, player), ("rival",), words[letter]) for letter in letters]  # type: ignore[arg-type]

    return [(match(policy), ended(policy, own)), (match(f"{policy}@1"), ended(f"{policy}@1", other))]


def test_paired_games_count_where_one_wins_and_the_other_loses() -> None:
    rounds = [round_of("a", "wwdlw", "lwwwl"), round_of("a", "w", "")]
    assert paired(rounds, "a", "a@1") == Score(wins=2, draws=2, losses=1)


def test_games_against_other_rivals_or_in_other_rounds_make_no_pair() -> None:
    (own, mine), (other, theirs) = round_of("a", "w", "l")
    assert paired([[(own, mine)], [(other, theirs)]], "a", "a@1") == Score()
    moved = Match(env="g", seats=("a@1", "a@1", "else"), sides=((0, 1), (2,)))
    assert paired([[(own, mine), (moved, [Encounter(("a@1",) * 2, ("else",), "loss")])]], "a", "a@1") == Score()


def test_gate_lets_policy_and_snapshot_meet_the_same_rival() -> None:
    config = hunt(league={"snapshots": {"gate": {"elo": 200}}}, rounds=5)
    results = Results()
    before = [first_round(config)]
    before.append(next_round(config, before, timeline(results, learners=config.learners), {}, [{}]))
    made = next_round(config, before, timeline(results, learners=config.learners), {}, [{}, {}])
    assert {gate.verdict for gate in made.gates} == {"open"}
    for learner in "abcd":
        tests = [match for match in made.matches if f"{learner}@100" in match.names and match.copies == 1]
        rivals = [({*match.names} - {f"{learner}@100"}).pop() for match in tests]
        own = [({*match.names} - {learner}).pop() for match in made.matches if learner in match.names]
        assert {*rivals} & {*own}, learner
    assert sum(match.copies for match in made.matches) == 12, "no more matches than in the first round"


def test_gate_of_two_populations_needs_three_copies() -> None:
    with pytest.raises(ConfigError, match="set `copies: 3` or more"):
        hunt(copies=2, league={"snapshots": {"gate": {"elo": 200}}})


# ----------------------------------------------------------------------------------------------------------- tournament

SETTING = Match(env="g", seats=("", "", "", ""), sides=((0, 1, 2), (3,)), lanes=2)


@pytest.mark.parametrize(("first", "second"), [(2, 5), (4, 3), (3, 3)])
def test_every_meeting_has_all_pairs_and_all_players_early(first: int, second: int) -> None:
    sides = Sides(tuple(f"p{k}" for k in range(first)), tuple(f"q{k}" for k in range(second)))
    pairs = every_meeting(sides)
    assert sorted(pairs) == sorted((one, other) for one in sides.first for other in sides.second)
    assert {name for pair in pairs[: max(first, second)] for name in pair} == {*sides.first, *sides.second}


def test_tournament_of_two_populations_decides_both_orders() -> None:
    strengths = {"a": 300.0, "b": 0.0, "c": 250.0, "d": -150.0}
    sides, rng, rule = Sides(("a", "b"), ("c", "d")), np.random.default_rng(0), Rule(20_000, 0.05, 20.0)
    results, total = Results(), 0
    while (batch := next_batch([SETTING], [*strengths], results, rule, played=total, sides=sides)) is not None:
        for match in batch.matches:
            one, other = match.names[0], match.names[3]
            assert (one in sides.first, other in sides.second) == (True, True)
            for _ in range(match.lanes * match.copies * batch.episodes):
                won = rng.random() < chance(strengths[one], strengths[other])
                results.add((one,) * 3, (other,), "win" if won else "loss")
                total += 1
    found = table(results, [*strengths], rule, sides=sides)
    assert found.decided
    assert [row.player for row in found.rows] == ["a", "b", "c", "d"]
    assert total < rule.games
    assert not found.unmet
