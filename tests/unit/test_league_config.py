"""What a configuration says of rounds, generators, rules and a league: what is read, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from arena.config import Config, parse_config, resolved_yaml, yaml
from arena.config.members import populations, snapshotted
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.terminal.rounds import gate_lines, rounds_lines
from simulated_leagues import entry, league

MATCHMAKING = entry("matchmaking", policies=["a"], rule="past_selves", copies=2)
ROUND_ROBIN = entry("round_robin", policies=["a", "b"])
SELF_PLAY = {"past_selves": {"self": 1}}
WHOLE = {
    "snapshots": {"every": 2, "keep": 5, "keep_by": "spread", "gate": {"elo": 30}},
    "evolution": {"perturb": {"learning_rate": [0.8, 1.25]}},
}


def rule(given: Any, policies: str = "a", **keys: Any) -> dict[str, Any]:
    """An entry of matchmaking with a letter for each policy."""
    return entry("matchmaking", policies=[*policies], rule=given, **keys)


def exploiters(**options: Any) -> dict[str, Any]:
    return rule({"exploiters": options}, "ab")


def refused(*matches: Any, **keys: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        league(*matches, **keys)
    return caught.value


def rule_of(config: Config) -> Any:
    return config.matches[0].rule  # type: ignore[arg-type, union-attr]


# What is read


def test_a_league_written_out_loads_to_the_same() -> None:
    config = league(
        rule({"fictitious": {"self": 0.2}}, "ab", copies=2),
        entry("knockout", policies=["a", "b", "c"]),
        {"env": "game", "seats": ["a", "b"], "sides": [[0], [1]]},
        league=WHOLE,
    )
    text = resolved_yaml(config)
    assert "self: 0.2" in text
    assert parse_config(yaml.load(text, source="again"), source="again") == config


def test_override_expands_a_rule_given_by_name() -> None:
    short, path = rule("fictitious"), "matches[0].matchmaking.rule.fictitious.self"
    data = {**yaml.load(resolved_yaml(league(short)), source="x"), "matches": [short]}
    assert rule_of(parse_config(data, source="x", overrides=[f"{path}=0.25"])).self_play == 0.25
    with pytest.raises(ConfigError, match="expected a number, at least 0 and at most 1") as caught:
        parse_config(data, source="x", overrides=[f"{path}=1.5"])
    assert (caught.value.path, caught.value.source) == (path, f"--set {path}=1.5")


def test_drawable_learners_are_snapshotted_except_exploiters() -> None:
    config = league(
        rule("past_selves", against=["b", "random"]),
        rule({"exploiters": {"main": ["c"], "main_exploiters": ["d"]}}, "cd"),
        entry("round_robin", policies=["b", "e", "f"]),
    )
    assert snapshotted(config) == ("a", "b", "c")


@pytest.mark.parametrize(
    "matches",
    [
        [
            entry("round_robin", policies=["a", "b", "random"]),
            rule({"exploiters": {"main": ["c"], "main_exploiters": ["d"]}}, "cd"),
        ],
        [entry("swiss", policies=["a", "b", "c"])],  # of whom one is absent in the first round
        [rule("uncertainty", against=["b", "c"])],
    ],
)
def test_learning_players_evolve_except_exploiters(matches: Any) -> None:
    config = league(*matches, league={"evolution": {}})
    assert config.league is not None
    assert config.league.evolution is not None
    assert populations(config, config.league.evolution) == (("a", "b", "c"),)


def test_snapshots_must_be_able_to_play_frozen() -> None:
    plan = make_plan(league(exploiters(main=["a"], main_exploiters=["b"]), entry("round_robin", policies=["c", "d"])))
    assert {name for name, policy in plan.policies.items() if plan.acts(policy)} == {"a", "b"}


# What is refused


def reset(**options: Any) -> dict[str, Any]:
    return exploiters(main=["a"], main_exploiters=["b"], reset=options)


@pytest.mark.parametrize(
    ("match", "path", "words"),
    [
        ({"round_robbin": {"env": "game"}}, "matches[0]", "unknown generator of matches 'round_robbin'; did you mean"),
        (entry("knockout", policies=["a"]), ".policies", "`knockout` needs two or more"),
        (entry("mixtures", policies=["a"]), ".policies", "found 1 of them; `mixtures` needs two"),
        (entry("gauntlet", policies=["a"], against=[]), ".against", "at least one opponent"),
        (entry("gauntlet", policies=[], against=["a"]), ".policies", "needs one or more"),
        (entry("gauntlet", policies=["a"]), "", "the key 'against' is missing"),
        (entry("gauntlet", policies=["a"], against=["a"]), ".against[0]", "already"),
        (entry("gauntlet", policies=["a"], against=["x"]), ".against[0]", "unknown policy 'x'"),
        (entry("swiss", policies=["a", "a"]), ".policies[1]", "listed twice"),
        (entry("swiss", policies=["a", "b"], pipeline=2), ".pipeline", "each half needs one"),
        (entry("mixtures", policies=list("abcdefgh"), team_size=10**6), "matches", "roles, more than 500000"),
        (rule("past_selves", copies=10**9), "matches", "more than 500000"),
        (entry("matchmaking", policies=["a"]), "", "the key 'rule' is missing"),
        (rule("past_self"), ".rule", "unknown rule 'past_self'; did you mean 'past_selves'?"),
        (rule({"elo": {}}), ".rule", "unknown rule 'elo'"),
        (rule({}), ".rule", "expected one of"),
        (rule(3), ".rule", "expected a name, or a mapping {name: its options}"),
        (rule(["fictitious"]), ".rule", "names are past_selves, fictitious"),
        (rule({"past_selves": {"self": 1.5}}), ".rule.past_selves.self", "expected a number, at least 0 and at most 1"),
        (rule({"past_selves": {"self": math.nan}}), ".rule.past_selves.self", "found nan"),
        (rule({"fictitious": {"weighting": "soft"}}), ".rule.fictitious.weighting", "known: hard, linear, variance"),
        (rule("uncertainty", ""), ".policies", "one or more"),
        (rule("uncertainty"), ".policies", "has no opponent"),
        (entry("matchmaking", policies=["random"], rule="fictitious"), ".policies[0]", "learn"),
        (rule(SELF_PLAY, copies=2, both_sides=True), ".both_sides", "has both sides"),
        (rule({"fictitious": {"self": 1, "weighting": "linear"}}), ".rule.fictitious.weighting", ""),
        (rule(SELF_PLAY, against=["b"]), ".against", ""),
        (rule({"exploiters": {"main": ["a"], "self": 1}}, against=["random"]), ".against", ""),
        (exploiters(main=["a"]), ".policies[1]", "'b' is missing in the lists"),
        (exploiters(main=[]), ".rule.exploiters.main", "is empty"),
        (exploiters(main=["c"]), ".rule.exploiters.main[0]", "not in the entry's `policies`"),
        (exploiters(main=["a", "b"], league_exploiters=["b"]), ".rule.exploiters.league_exploiters[0]", "listed twice"),
        (exploiters(main=["a", "b"], weak=0.3), ".rule.exploiters.weak", "no `main_exploiters`"),
        (exploiters(main=["a", "b"], reset={"after": 3}), ".rule.exploiters.reset", "no exploiters"),
        (reset(share=0.5), ".rule.exploiters.reset.share", "no `league_exploiters`"),
        (reset(after=None, beats=1), ".rule.exploiters.reset.beats", "no score is above 1"),
        (reset(after=6, beats=1), ".rule.exploiters.reset.beats", "found 1, and `after: 6` in 6 rounds"),
    ],
)
def test_a_wrong_generator_is_named_with_its_place(match: Any, path: str, words: str) -> None:
    """A path that begins with a dot is within the entry."""
    error = refused(match)
    kind = next(iter(match))
    assert (error.path, error.source) == (path if path[:1] == "m" else f"matches[0].{kind}{path}", "league.yaml")
    assert words in error.message


@pytest.mark.parametrize(
    ("match", "rounds", "words"),
    [
        (MATCHMAKING, 1, "matchmaking needs two or more"),
        (entry("swiss", policies=["a", "b", "c"]), 1, "swiss needs two or more"),
        (entry("knockout", policies=list("abcde")), 2, "a knockout of 5 has its winner after 3"),
    ],
)
def test_too_few_rounds_are_refused(match: Any, rounds: int, words: str) -> None:
    error = refused(match, rounds=rounds)
    assert (error.path, words in error.message) == ("rounds", True)
    assert league(entry("knockout", policies=["a", "b"]), rounds=1).roles == 3


def perturbed(factors: Any) -> dict[str, Any]:
    return {"evolution": {"perturb": {"learning_rate": factors}}}


@pytest.mark.parametrize(
    ("rules", "path", "words"),
    [
        ({"snapshots": {"gate": {"elo": 0}}}, ".snapshots.gate.elo", "expected a number, more than 0"),
        ({"snapshots": {"gate": {"elo": math.nan}}}, ".snapshots.gate.elo", "found nan"),
        ({"snapshots": {"gate": {"alpha": 0.5, "beta": 0.5}}}, ".snapshots.gate.alpha", "below 1"),
        ({"snapshots": {"gate": {"alpha": 1}}}, ".snapshots.gate.alpha", "more than 0 and less than 1"),
        ({"snapshots": {"keep": 2, "keep_by": "spread"}}, ".snapshots.keep", "3 or more"),
        ({"snapshots": {"keep_by": "age"}}, ".snapshots.keep_by", "known: count, spread"),
        ({"snapshots": {"every": 6, "gate": {}}}, ".snapshots.gate", "at most 0 games against the first snapshot"),
        ({"evolution": {"share": 0.6}}, ".evolution.share", "at most 0.5, so that one of the 2"),
        ({"evolution": {"share": 0.0}}, ".evolution.share", "above 0, and at most 0.5"),
        ({"evolution": {"share": math.nan}}, ".evolution.share", "found nan"),
        ({"evolution": {"policies": ["x"]}}, ".evolution.policies[0]", "unknown policy 'x'"),
        ({"evolution": {"policies": ["random"]}}, ".evolution.policies[0]", "does not learn"),
        ({"evolution": {"policies": ["a", "a"]}}, ".evolution.policies[1]", "listed twice"),
        ({"evolution": {"policies": ["a", "f"]}}, ".evolution.policies[1]", "'f' plays in no match"),
        ({"evolution": {"policies": ["a"]}}, ".evolution", "two or more policies that learn by the same"),
        ({"evolution": {"perturb": {"gamma": [0.9]}}}, ".evolution.perturb", "'a' has no value of 'gamma'"),
        (perturbed([]), ".evolution.perturb.learning_rate.factors", "empty"),
        (perturbed([0]), ".evolution.perturb.learning_rate.factors[0]", "more than 0"),
        (
            perturbed({"factors": [2], "at_least": 2, "at_most": 1}),
            ".evolution.perturb.learning_rate.at_least",
            "above `at_most: 1.0`",
        ),
        (perturbed({"factors": [2], "at_most": math.inf}), ".evolution.perturb.learning_rate.at_most", "found inf"),
        ({"decided": {}}, ".decided", "'a' learns"),
        ({"decide": {}}, ".decide", "did you mean 'decided'?"),
        ({"window": 2}, ".window", "all games count"),
        ({"finish_ticks": 2}, ".finish_ticks", "choose `ticks` and `checkpoint_every`"),
    ],
)
def test_a_wrong_league_is_named_with_its_place(rules: Any, path: str, words: str) -> None:
    error = refused(MATCHMAKING, ROUND_ROBIN, league=rules)
    assert error.path == f"league{path}"
    assert words in error.message


@pytest.mark.parametrize("rules", [{"every": 2}, {"keep": 7}, {"keep_by": "spread"}])
def test_snapshot_keys_are_refused_without_snapshots(rules: Any) -> None:
    error = refused(ROUND_ROBIN, league={"snapshots": rules})
    assert (error.path, "no snapshots" in error.message) == (f"league.snapshots.{next(iter(rules))}", True)
    assert league(ROUND_ROBIN, MATCHMAKING, league={"snapshots": rules}).league is not None
    assert league(rule(SELF_PLAY), league={"snapshots": {"keep": 7}}).league is not None, "they are kept"


def test_an_order_needs_two_players_and_all_learners_in_every_round() -> None:
    policies = {name: {"algorithm": "random"} for name in "abcd"}
    error = refused({"env": "game", "seats": ["a", "a"]}, policies=policies, league={"decided": {}})
    assert (error.path, "found one player, 'a'" in error.message) == ("league.decided", True)
    learns = {**policies, "c": {"algorithm": "ppo"}}
    later = rule("uncertainty", against=["b", "c"])
    assert "'c' learns" in refused(later, policies=learns, league={"decided": {}}).message


def test_gate_with_games_from_one_side_only_is_refused() -> None:
    alone, gate = rule(SELF_PLAY, copies=2), {"snapshots": {"gate": {"elo": 100}}}
    error = refused(alone, rounds=3, ticks=10**6, league=gate)
    assert (error.path, "at most 0 games" in error.message) == ("league.snapshots.gate", True)
    assert "set more `rounds`" in error.message
    assert league(alone, rounds=4, ticks=10**6, league=gate).league is not None
    both = rule("past_selves", copies=2, both_sides=True)
    assert league(both, rounds=3, ticks=10**6, league=gate).league is not None


def test_a_league_of_one_round_is_refused() -> None:
    assert refused(ROUND_ROBIN, rounds=1, league={}).path == "league"


def test_a_gate_that_no_policy_can_pass_is_refused() -> None:
    gate = {"snapshots": {"gate": {}}}
    error = refused(ROUND_ROBIN, league=gate)
    assert (error.path, "can never decide" in error.message) == ("league.snapshots.gate", True)
    beside = rule("fictitious", against=["b"], copies=2)
    assert "can never decide about 'b'" in refused(beside, league=gate).message
    assert refused(rule("past_selves"), MATCHMAKING, league=gate).path == "matches[0].matchmaking.copies"


@pytest.mark.parametrize(
    ("keys", "rules"),
    [({"rounds": 3, "ticks": 26}, {}), ({"rounds": 4}, {"every": 2}), ({"rounds": 10**6}, {"gate": {"elo": 1e-9}})],
)
def test_gate_without_enough_games_is_refused(keys: Any, rules: Any) -> None:
    error = refused(MATCHMAKING, league={"snapshots": {"gate": {"elo": 20}, **rules}}, **keys)
    assert error.path == "league.snapshots.gate"
    assert "too few to show" in error.message


def test_evolution_needs_two_policies_of_one_algorithm() -> None:
    policies = {"a": {"algorithm": "ppo"}, "b": {"algorithm": "a2c"}}
    assert refused(ROUND_ROBIN, policies=policies, league={"evolution": {}}).path == "league.evolution"
    exploits = exploiters(main=["a"], main_exploiters=["b"])
    assert "exploiter" in refused(exploits, league={"evolution": {"policies": ["a", "b"]}}).message


def test_perturbing_an_unset_option_suggests_naming_policies() -> None:
    ppo, dqn = {"algorithm": "ppo", "options": {"ent_coef": 0.01}}, {"algorithm": "dqn"}
    policies = {"a": ppo, "b": ppo, "c": dqn, "random": dqn}
    rule = {"perturb": {"ent_coef": [2]}}
    matches = entry("round_robin", policies=[*policies])
    error = refused(matches, policies=policies, league={"evolution": rule})
    assert "'c' has no value of 'ent_coef'" in error.message
    assert "`league.evolution.policies`" in error.message
    league(matches, policies=policies, league={"evolution": {**rule, "policies": ["a", "b"]}})


@pytest.mark.parametrize(
    ("value", "perturb", "place", "words"),
    [
        (2, [0.8, 1.25], "league.evolution.perturb.n", "changes nothing"),
        (0.0, [2], "league.evolution.perturb.n", "changes nothing"),
        (1e-3, [1], "league.evolution.perturb.n", "changes nothing"),
        (0.5, {"factors": [2], "at_most": 0.5}, "league.evolution.perturb.n", "changes nothing"),
        (4, {"factors": [2], "at_least": 4.2, "at_most": 4.8}, "league.evolution.perturb.n", "no whole number"),
        ("lstm", [2], "policies.a.options.n", ""),
    ],
)
def test_a_perturbation_that_changes_nothing_is_refused(value: Any, perturb: Any, place: str, words: str) -> None:
    policies = {name: {"algorithm": "ppo", "options": {"n": value}} for name in "ab"}
    error = refused(ROUND_ROBIN, policies=policies, league={"evolution": {"perturb": {"n": perturb}}})
    assert (error.path, words in error.message) == (place, True)


# What is shown


def test_later_rounds_are_described() -> None:
    config = league(ROUND_ROBIN, entry("knockout", policies=["a", "b", "c"]), MATCHMAKING, league=WHOLE)
    lines = rounds_lines(config)
    assert lines[0] == "rounds: 6 of 100 ticks each; this is the first, and none has more roles"
    assert [line.endswith("the same in every round") for line in lines[1:4]] == [True, False, False]
    assert "until one is left after 2 rounds (a has a bye in the first); later rounds depend on results" in lines[2]
    assert "a every 2 rounds, if better than the newest one by 30 Elo; the 5 most different" in lines[4]
    gate = "  gate: a policy that is better by just 30 Elo is found so after about 730 games that are won or lost"
    assert lines[5].startswith(gate)
    assert lines[6].startswith("  evolution: after every round the worst 25 % by return of a, b, c")
    assert rounds_lines(league(MATCHMAKING, league={"snapshots": {"keep": 1}}))[-1].endswith("the newest stays")
    assert rounds_lines(league(ROUND_ROBIN, rounds=1)) == []


@pytest.mark.parametrize(("copies", "unmet"), [(2, "a and c"), (3, "")])
def test_pairs_that_do_not_meet_in_the_first_round_are_named(copies: int, unmet: str) -> None:
    config = league(entry("matchmaking", policies=["a"], against=["b", "c"], rule="fictitious", copies=copies))
    lines = [line for line in rounds_lines(config) if "not met" in line]
    assert lines == ([f"  matches[0].matchmaking: not met in round 0: {unmet}"] if unmet else [])


@pytest.mark.parametrize(("elo", "warned"), [(100, False), (20, True)])
def test_gate_with_too_many_games_is_reported(elo: float, warned: bool) -> None:
    config = league(MATCHMAKING, rounds=3, ticks=100, league={"snapshots": {"gate": {"elo": elo}}})
    words = "about 1639 games that are won or lost; a has 200 at most until it is asked for the last time"
    assert [words in line for line in gate_lines(config)] == [True] * warned
