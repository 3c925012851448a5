"""What a configuration says of rounds, generators, rules and a league: what is read, and what is refused."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from arena.config import Config, parse_config, resolved_yaml, yaml
from arena.config.league import PerturbConfig
from arena.config.matches import Exploiters, Fictitious, PastSelves
from arena.config.members import populations, snapshotted
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.terminal.rounds import gate_lines, rounds_lines
from simulated_leagues import entry, league

MATCHMAKING = entry("matchmaking", policies=["a"], rule="past_selves", copies=2)
ROUND_ROBIN = entry("round_robin", policies=["a", "b"])
WHOLE = {
    "snapshots": {"every": 2, "keep": 5, "keep_by": "spread", "gate": {"elo": 30}},
    "evolution": {"perturb": {"learning_rate": [0.8, 1.25]}},
}


def exploiters(**lists: list[str]) -> dict[str, Any]:
    return entry("matchmaking", policies=["a", "b"], rule={"exploiters": lists})


def refused(*matches: Any, **keys: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        league(*matches, **keys)
    return caught.value


def rule_of(config: Config) -> Any:
    return config.matches[0].rule  # type: ignore[arg-type, union-attr]


# What is read


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("past_selves", PastSelves),
        ({"past_selves": {"self": 0.1}}, PastSelves),
        ({"fictitious": {"weighting": "variance"}}, Fictitious),
        ({"exploiters": {"main": ["a"]}}, Exploiters),
    ],
)
def test_a_rule_is_a_name_or_a_name_with_options(rule: Any, kind: type) -> None:
    assert type(rule_of(league(entry("matchmaking", policies=["a"], rule=rule)))) is kind


def test_a_league_written_out_loads_to_the_same() -> None:
    config = league(
        entry("matchmaking", policies=["a", "b"], rule={"fictitious": {"self": 0.2}}, copies=2),
        entry("knockout", policies=["a", "b", "c"]),
        {"env": "game", "seats": ["a", "b"], "sides": [[0], [1]]},
        league=WHOLE,
    )
    text = resolved_yaml(config)
    assert "self: 0.2" in text
    assert parse_config(yaml.load(text, source="again"), source="again") == config


def test_factors_alone_are_short_for_a_perturbation() -> None:
    assert league(MATCHMAKING, ROUND_ROBIN, league=WHOLE).league.evolution.perturb == {  # type: ignore[union-attr]
        "learning_rate": PerturbConfig(factors=(0.8, 1.25))
    }


def test_a_generator_is_reached_by_set() -> None:
    data = yaml.load(resolved_yaml(league(MATCHMAKING)), source="x")
    changed = parse_config(data, source="x", overrides=["matches[0].matchmaking.rule.past_selves.self=0.25"])
    assert rule_of(changed).self_play == 0.25
    with pytest.raises(ConfigError) as caught:
        parse_config(data, source="x", overrides=["matches[0].matchmaking.rule=elo"])
    assert caught.value.source == "--set matches[0].matchmaking.rule=elo"


def test_override_expands_a_rule_given_by_name() -> None:
    short, path = entry("matchmaking", policies=["a"], rule="fictitious"), "matches[0].matchmaking.rule.fictitious.self"
    data = {**yaml.load(resolved_yaml(league(short)), source="x"), "matches": [short]}
    assert rule_of(parse_config(data, source="x", overrides=[f"{path}=0.25"])).self_play == 0.25
    with pytest.raises(ConfigError, match="expected a number, at least 0 and at most 1") as caught:
        parse_config(data, source="x", overrides=[f"{path}=1.5"])
    assert (caught.value.path, caught.value.source) == (path, f"--set {path}=1.5")


def test_drawable_learners_are_snapshotted_except_exploiters() -> None:
    config = league(
        entry("matchmaking", policies=["a"], against=["b", "random"], rule="past_selves"),
        entry("matchmaking", policies=["c", "d"], rule={"exploiters": {"main": ["c"], "main_exploiters": ["d"]}}),
        entry("round_robin", policies=["b", "e", "f"]),
    )
    assert snapshotted(config) == ("a", "b", "c")


@pytest.mark.parametrize(
    "matches",
    [
        [
            entry("round_robin", policies=["a", "b", "random"]),
            entry("matchmaking", policies=["c", "d"], rule={"exploiters": {"main": ["c"], "main_exploiters": ["d"]}}),
        ],
        [entry("swiss", policies=["a", "b", "c"])],  # of whom one is absent in the first round
        [entry("matchmaking", policies=["a"], against=["b", "c"], rule="uncertainty")],
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


@pytest.mark.parametrize(
    ("matches", "path", "words"),
    [
        (
            [{"round_robbin": {"env": "game"}}],
            "matches[0]",
            "unknown generator of matches 'round_robbin'; did you mean",
        ),
        ([entry("knockout", policies=["a"])], "matches[0].knockout.policies", "`knockout` needs two or more"),
        ([entry("swiss", policies=["a"])], "matches[0].swiss.policies", "needs two or more"),
        ([entry("mixtures", policies=["a"])], "matches[0].mixtures.policies", "found 1 of them; `mixtures` needs two"),
        ([entry("gauntlet", policies=["a"], against=[])], "matches[0].gauntlet.against", "at least one opponent"),
        ([entry("gauntlet", policies=[], against=["a"])], "matches[0].gauntlet.policies", "needs one or more"),
        ([entry("gauntlet", policies=["a"])], "matches[0].gauntlet", "the key 'against' is missing"),
        ([entry("gauntlet", policies=["a"], against=["a"])], "matches[0].gauntlet.against[0]", "already"),
        ([entry("gauntlet", policies=["a"], against=["x"])], "matches[0].gauntlet.against[0]", "unknown policy 'x'"),
        ([entry("swiss", policies=["a", "a"])], "matches[0].swiss.policies[1]", "listed twice"),
        ([entry("swiss", policies=["a", "b"], pipeline=2)], "matches[0].swiss.pipeline", "each half needs one"),
        ([entry("matchmaking", policies=["a"])], "matches[0].matchmaking", "the key 'rule' is missing"),
        (
            [entry("matchmaking", policies=["a"], rule="past_self")],
            "matches[0].matchmaking.rule",
            "unknown rule 'past_self'; did you mean 'past_selves'?",
        ),
        ([entry("matchmaking", policies=["a"], rule={"elo": {}})], "matches[0].matchmaking.rule", "unknown rule 'elo'"),
        ([entry("matchmaking", policies=["a"], rule={})], "matches[0].matchmaking.rule", "expected one of"),
        *(
            ([entry("matchmaking", policies=["a"], rule=rule)], "matches[0].matchmaking.rule", words)
            for words in ("expected a name, or a mapping {name: its options}", "names are past_selves, fictitious")
            for rule in (3, None, ["fictitious"])
        ),
        (
            [entry("matchmaking", policies=["a"], rule={"past_selves": {"self": 1.5}})],
            "matches[0].matchmaking.rule.past_selves.self",
            "expected a number, at least 0 and at most 1",
        ),
        (
            [entry("matchmaking", policies=["a"], rule={"fictitious": {"weighting": "soft"}})],
            "matches[0].matchmaking.rule.fictitious.weighting",
            "known: hard, linear, variance",
        ),
        ([entry("matchmaking", policies=[], rule="uncertainty")], "matches[0].matchmaking.policies", "one or more"),
        (
            [entry("matchmaking", policies=["a"], rule="uncertainty")],
            "matches[0].matchmaking.policies",
            "has no opponent",
        ),
        ([entry("matchmaking", policies=["random"], rule="fictitious")], "matches[0].matchmaking.policies[0]", "learn"),
        ([exploiters(main=["a"])], "matches[0].matchmaking.policies[1]", "'b' is missing in the lists"),
        ([exploiters(main=[])], "matches[0].matchmaking.rule.exploiters.main", "is empty"),
        ([exploiters(main=["c"])], "matches[0].matchmaking.rule.exploiters.main[0]", "not in the entry's `policies`"),
        (
            [exploiters(main=["a", "b"], league_exploiters=["b"])],
            "matches[0].matchmaking.rule.exploiters.league_exploiters[0]",
            "listed twice",
        ),
        ([entry("mixtures", policies=list("abcdefgh"), team_size=10**6)], "matches", "roles, more than 50000"),
        ([entry("matchmaking", policies=["a"], rule="past_selves", copies=10**9)], "matches", "more than 50000"),
    ],
)
def test_a_wrong_generator_is_named_with_its_place(matches: list[Any], path: str, words: str) -> None:
    error = refused(*matches)
    assert (error.path, error.source) == (path, "league.yaml")
    assert re.search(re.escape(words), error.message), error.message


@pytest.mark.parametrize(
    ("matches", "rounds", "path", "words"),
    [
        ([MATCHMAKING], 1, "rounds", "matchmaking needs two or more"),
        ([entry("swiss", policies=["a", "b", "c"])], 1, "rounds", "swiss needs two or more"),
        ([entry("knockout", policies=list("abcde"))], 2, "rounds", "a knockout of 5 has its winner after 3"),
    ],
)
def test_too_few_rounds_are_refused(matches: list[Any], rounds: int, path: str, words: str) -> None:
    error = refused(*matches, rounds=rounds)
    assert error.path == path
    assert words in error.message


def test_a_knockout_of_two_is_a_match_and_needs_one_round() -> None:
    assert league(entry("knockout", policies=["a", "b"]), rounds=1).roles == 3


@pytest.mark.parametrize(
    ("rules", "path", "words"),
    [
        ({"snapshots": {"gate": {"elo": 0}}}, "league.snapshots.gate.elo", "expected a number, more than 0"),
        ({"snapshots": {"gate": {"elo": -5}}}, "league.snapshots.gate.elo", "expected a number, more than 0"),
        ({"snapshots": {"gate": {"alpha": 0.5, "beta": 0.5}}}, "league.snapshots.gate.alpha", "below 1"),
        (
            {"snapshots": {"gate": {"alpha": 1}}},
            "league.snapshots.gate.alpha",
            "expected a number, more than 0 and less than 1",
        ),
        ({"snapshots": {"every": 6}}, "league.snapshots.every", "which never happens in 6 rounds"),
        ({"snapshots": {"keep": 2, "keep_by": "spread"}}, "league.snapshots.keep", "3 or more"),
        ({"snapshots": {"keep_by": "age"}}, "league.snapshots.keep_by", "known: count, spread"),
        ({"evolution": {"every": 9}}, "league.evolution.every", "never"),
        ({"evolution": {"share": 0.6}}, "league.evolution.share", "at most 0.5, so that one of the 2"),
        ({"evolution": {"share": 0.0}}, "league.evolution.share", "above 0, and at most 0.5"),
        ({"evolution": {"policies": ["x"]}}, "league.evolution.policies[0]", "unknown policy 'x'"),
        ({"evolution": {"policies": ["random"]}}, "league.evolution.policies[0]", "does not learn"),
        ({"evolution": {"policies": ["a", "a"]}}, "league.evolution.policies[1]", "listed twice"),
        ({"evolution": {"policies": ["a"]}}, "league.evolution", "two or more policies that learn by the same"),
        (
            {"evolution": {"perturb": {"gamma": [0.9]}}},
            "league.evolution.perturb",
            "'a' has no value of 'gamma'",
        ),
        ({"evolution": {"perturb": {"learning_rate": []}}}, "league.evolution.perturb.learning_rate.factors", "empty"),
        (
            {"evolution": {"perturb": {"learning_rate": [0]}}},
            "league.evolution.perturb.learning_rate.factors[0]",
            "more than 0",
        ),
        (
            {"evolution": {"perturb": {"learning_rate": {"factors": [2], "at_least": 2, "at_most": 1}}}},
            "league.evolution.perturb.learning_rate.at_least",
            "above `at_most: 1.0`",
        ),
        *(
            ({"evolution": {"perturb": {"learning_rate": {"factors": [2], key: value}}}}, place, words)
            for key in ("at_least", "at_most")
            for value, words in ((math.nan, "found nan"), (math.inf, "found inf"), (-math.inf, "found -inf"))
            for place in (f"league.evolution.perturb.learning_rate.{key}",)
        ),
        (
            {"evolution": {"perturb": {"learning_rate": [math.nan]}}},
            "league.evolution.perturb.learning_rate.factors[0]",
            "found nan",
        ),
        ({"evolution": {"share": math.nan}}, "league.evolution.share", "found nan"),
        ({"snapshots": {"gate": {"elo": math.nan}}}, "league.snapshots.gate.elo", "found nan"),
        ({"snapshots": {"gate": {"beta": math.nan}}}, "league.snapshots.gate.beta", "found nan"),
        ({"evolution": {"policies": ["a", "f"]}}, "league.evolution.policies[1]", "'f' plays in no match"),
        ({"decided": {}}, "league.decided", "'a' learns"),
        ({"decide": {}}, "league.decide", "did you mean 'decided'?"),
    ],
)
def test_a_wrong_league_is_named_with_its_place(rules: Any, path: str, words: str) -> None:
    error = refused(MATCHMAKING, ROUND_ROBIN, league=rules)
    assert error.path == path
    assert words in error.message


@pytest.mark.parametrize(
    ("rule", "key", "words"),
    [
        ({"past_selves": {"self": math.nan}}, "past_selves.self", "found nan"),
        ({"exploiters": {"main": ["a"], "weak": 0.3}}, "exploiters.weak", "no `main_exploiters`"),
        ({"exploiters": {"main": ["a"], "reset": {"after": 3}}}, "exploiters.reset", "no exploiters"),
        (
            {"exploiters": {"main": ["a"], "main_exploiters": ["b"], "reset": {"share": 0.5}}},
            "exploiters.reset.share",
            "no `league_exploiters`",
        ),
        (
            {"exploiters": {"main": ["a"], "main_exploiters": ["b"], "reset": {"after": None, "beats": 1}}},
            "exploiters.reset.beats",
            "no score is above 1",
        ),
        (
            {"exploiters": {"main": ["a"], "main_exploiters": ["b"], "reset": {"after": 6, "beats": 1}}},
            "exploiters.reset.beats",
            "found 1, and `after: 6` in 6 rounds",
        ),
    ],
)
def test_rule_option_without_effect_is_refused(rule: Any, key: str, words: str) -> None:
    names = ["a", "b"] if "b" in str(rule) else ["a"]
    error = refused(entry("matchmaking", policies=names, rule=rule))
    assert error.path == f"matches[0].matchmaking.rule.{key}"
    assert words in error.message


@pytest.mark.parametrize(
    "reset", [{"after": 5, "beats": 1}, {"after": 6}, {"after": None}, {"after": 6, "beats": 1, "confidence": 0}]
)
def test_reset_that_can_occur_is_accepted(reset: Any) -> None:
    rule = {"exploiters": {"main": ["a"], "main_exploiters": ["b"], "reset": reset}}
    assert rule_of(league(entry("matchmaking", policies=["a", "b"], rule=rule), rounds=6)).reset


@pytest.mark.parametrize("rule", [{"past_selves": {"self": 1}}, {"fictitious": {"self": 1}}])
def test_sides_that_change_are_refused_for_a_learner_that_has_both(rule: Any) -> None:
    error = refused(entry("matchmaking", policies=["a"], rule=rule, copies=2, both_sides=True))
    assert (error.path, "has both sides" in error.message) == ("matches[0].matchmaking.both_sides", True)


@pytest.mark.parametrize(
    ("keys", "rule", "path"),
    [
        ({}, {"fictitious": {"self": 1, "weighting": "linear"}}, "rule.fictitious.weighting"),
        ({"against": ["random"]}, {"exploiters": {"main": ["a"], "self": 1}}, "against"),
        ({"against": ["b"]}, {"past_selves": {"self": 1}}, "against"),
        ({"against": ["b"]}, {"fictitious": {"self": 1}}, "against"),
    ],
)
def test_pure_self_play_refuses_keys_about_opponents(keys: Any, rule: Any, path: str) -> None:
    assert refused(entry("matchmaking", policies=["a"], rule=rule, **keys)).path == f"matches[0].matchmaking.{path}"


@pytest.mark.parametrize(
    ("rules", "key"),
    [({"every": 2}, "every"), ({"keep": 7}, "keep"), ({"keep_by": "spread"}, "keep_by")],
)
def test_snapshot_keys_are_refused_without_snapshots(rules: Any, key: str) -> None:
    error = refused(ROUND_ROBIN, league={"snapshots": rules})
    assert (error.path, "no snapshots" in error.message) == (f"league.snapshots.{key}", True)
    frozen = entry("matchmaking", policies=["random"], against=["b"], rule="uncertainty")
    policies = {"random": {"algorithm": "random"}, "b": {"algorithm": "random"}}
    assert refused(frozen, policies=policies, league={"snapshots": rules}).path == f"league.snapshots.{key}"
    assert league(ROUND_ROBIN, MATCHMAKING, league={"snapshots": rules}).league is not None


def test_snapshots_that_no_policy_meets_are_kept() -> None:
    alone = entry("matchmaking", policies=["a"], rule={"past_selves": {"self": 1}})
    assert league(alone, league={"snapshots": {"keep": 7}}).league is not None


def test_removed_keys_of_a_league_name_their_successor() -> None:
    for key, word in (("window", "all games count"), ("finish_ticks", "choose `ticks` and `checkpoint_every`")):
        error = refused(ROUND_ROBIN, league={key: 2})
        assert (error.path, word in error.message) == (f"league.{key}", True)


DUEL = {"env": "game", "seats": ["a", "b"]}
THREE_SIDES = {"env": "game", "seats": ["a", "b", "c"]}
WITHOUT_ITSELF = entry("matchmaking", policies=["a"], against=["random"], rule={"past_selves": {"self": 0}})
PARTNERS = {**THREE_SIDES, "sides": [[0, 1], [2]]}  # a and b are never apart


@pytest.mark.parametrize(
    "matches",
    [
        [DUEL, {**DUEL, "seats": DUEL["seats"][::-1]}],
        [DUEL, {"env": "game", "seats": ["a", "a"], "sides": [[0], [1]]}],
        [{"round_robin": {**ROUND_ROBIN["round_robin"], "both_sides": True}}],
        [{"env": "game", "seats": ["a", "random"]}, {"env": "game", "seats": ["b", "random"]}],
        [entry("matchmaking", policies=["a", "b"], against=["random"], rule="past_selves")],
        [entry("matchmaking", policies=["a", "b"], rule="fictitious")],
        [entry("matchmaking", policies=["a"], against=["b"], rule={"fictitious": {"self": 0}}, both_sides=True)],
        [WITHOUT_ITSELF, {"env": "game", "seats": ["b", "random"]}],
        [entry("knockout", policies=["a", "c", "b", "d"]), entry("swiss", policies=["c", "b"])],
        [PARTNERS, {**PARTNERS, "seats": ["a", "c", "b"]}, {"env": "game", "seats": ["c", "c"], "sides": [[0], [1]]}],
    ],
)
def test_evolution_by_ratings_is_accepted(matches: list[Any]) -> None:
    assert league(*matches, league={"evolution": {"by": "rating"}}).league is not None


def test_an_order_of_a_single_player_is_refused() -> None:
    policies = {name: {"algorithm": "random"} for name in "abcd"}
    error = refused({"env": "game", "seats": ["a", "a"]}, policies=policies, league={"decided": {}})
    assert (error.path, "found one player, 'a'" in error.message) == ("league.decided", True)


def test_gate_with_games_from_one_side_only_is_refused() -> None:
    alone = entry("matchmaking", policies=["a"], rule={"past_selves": {"self": 1}}, copies=2)
    gate = {"snapshots": {"gate": {"elo": 100}}}
    error = refused(alone, rounds=3, ticks=10**6, league=gate)
    assert (error.path, "at most 0 games" in error.message) == ("league.snapshots.gate", True)
    assert "set more `rounds`" in error.message
    assert league(alone, rounds=4, ticks=10**6, league=gate).league is not None
    both = {"matchmaking": {**alone["matchmaking"], "rule": "past_selves", "both_sides": True}}
    assert league(both, rounds=3, ticks=10**6, league=gate).league is not None


def test_a_league_of_one_round_is_refused() -> None:
    assert refused(ROUND_ROBIN, rounds=1, league={}).path == "league"


def test_a_gate_that_no_policy_can_pass_is_refused() -> None:
    gate = {"snapshots": {"gate": {}}}
    error = refused(ROUND_ROBIN, league=gate)
    assert (error.path, "can never decide" in error.message) == ("league.snapshots.gate", True)
    beside = entry("matchmaking", policies=["a"], against=["b"], rule="fictitious", copies=2)
    assert "can never decide about 'b'" in refused(beside, league=gate).message
    few = entry("matchmaking", policies=["a"], rule="past_selves")
    assert refused(few, league=gate).path == "matches[0].matchmaking.copies"
    assert refused(few, MATCHMAKING, league=gate).path == "matches[0].matchmaking.copies"


@pytest.mark.parametrize(
    ("keys", "rules"),
    [
        ({"rounds": 2}, {}),
        ({"rounds": 3, "ticks": 26}, {}),
        ({"rounds": 4}, {"every": 2}),
        ({"rounds": 10**6}, {"gate": {"elo": 1e-9}}),
    ],
)
def test_gate_without_enough_games_is_refused(keys: Any, rules: Any) -> None:
    error = refused(MATCHMAKING, league={"snapshots": {"gate": {"elo": 20}, **rules}}, **keys)
    assert error.path == "league.snapshots.gate"
    assert "too few to show" in error.message


def test_gate_passable_by_winning_all_games_is_accepted() -> None:
    needed = math.ceil(math.log(1 / 0.05) / math.log(2 / (1 + 10 ** (-20 / 400))))  # in a row
    gate = {"snapshots": {"gate": {"elo": 20}}}
    assert needed % 2 == 0
    assert league(MATCHMAKING, rounds=3, ticks=needed // 2, league=gate).rounds == 3
    assert "most 52 games" in refused(MATCHMAKING, rounds=3, ticks=needed // 2 - 1, league=gate).message


def test_order_needs_all_learners_in_every_round() -> None:
    policies = {name: {"algorithm": "ppo" if name == "c" else "random"} for name in "abc"}
    later = entry("matchmaking", policies=["a"], against=["b", "c"], rule="uncertainty")
    assert "'c' learns" in refused(later, policies=policies, league={"decided": {}}).message


def test_evolution_needs_two_policies_of_one_algorithm() -> None:
    policies = {"a": {"algorithm": "ppo"}, "b": {"algorithm": "a2c"}}
    assert refused(ROUND_ROBIN, policies=policies, league={"evolution": {}}).path == "league.evolution"


def test_only_numbers_can_be_perturbed() -> None:
    policies = {name: {"algorithm": "ppo", "options": {"recurrent": "lstm"}} for name in "ab"}
    error = refused(ROUND_ROBIN, policies=policies, league={"evolution": {"perturb": {"recurrent": [2]}}})
    assert error.path == "policies.a.options.recurrent"


def test_perturbing_an_unset_option_suggests_naming_policies() -> None:
    ppo, dqn = {"algorithm": "ppo", "options": {"ent_coef": 0.01}}, {"algorithm": "dqn"}
    policies = {"a": ppo, "b": ppo, "c": dqn, "random": dqn}
    rule = {"perturb": {"ent_coef": [2]}}
    matches = entry("round_robin", policies=[*policies])
    error = refused(matches, policies=policies, league={"evolution": rule})
    assert "'c' has no value of 'ent_coef'" in error.message
    assert "`league.evolution.policies`" in error.message
    league(matches, policies=policies, league={"evolution": {**rule, "policies": ["a", "b"]}})


def evolving(perturb: Any, **values: float) -> Any:
    """Policies with an option that evolves."""
    policies = {name: {"algorithm": "ppo", "options": {"n": value}} for name, value in values.items()}
    return {"policies": policies, "league": {"evolution": {"perturb": {"n": perturb}}}}


@pytest.mark.parametrize(
    ("value", "perturb"),
    [
        (2, [0.8, 1.25]),
        (0.0, [2]),
        (1e-3, [1]),
        (0.5, {"factors": [2], "at_most": 0.5}),
        (1, {"factors": [0.5], "at_least": 0.1}),
    ],
)
def test_a_perturbation_that_changes_nothing_is_refused(value: float, perturb: Any) -> None:
    error = refused(ROUND_ROBIN, **evolving(perturb, a=value, b=value))
    assert (error.path, "changes nothing" in error.message) == ("league.evolution.perturb.n", True)


def test_perturbation_may_have_factor_1() -> None:
    assert league(ROUND_ROBIN, **evolving([0.8, 1.25], a=2, b=8)).league is not None


def test_whole_number_without_room_between_its_bounds_is_refused() -> None:
    error = refused(ROUND_ROBIN, **evolving({"factors": [2], "at_least": 4.2, "at_most": 4.8}, a=4, b=4))
    assert (error.path, "no whole number" in error.message) == ("league.evolution.perturb.n", True)


def test_an_exploiter_does_not_evolve() -> None:
    both = exploiters(main=["a"], main_exploiters=["b"])
    assert "exploiter" in refused(both, league={"evolution": {"policies": ["a", "b"]}}).message


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
    assert lines[6].startswith("  evolution: after every round the worst 25% by return of a, b, c")


@pytest.mark.parametrize(("keep", "words"), [(1, "the newest stays"), (2, "the 2 newest stay")])
def test_one_kept_snapshot_is_singular(keep: int, words: str) -> None:
    assert rounds_lines(league(MATCHMAKING, league={"snapshots": {"keep": keep}}))[-1].endswith(words)


@pytest.mark.parametrize(("elo", "warned"), [(100, False), (20, True)])
def test_gate_with_too_many_games_is_reported(elo: float, warned: bool) -> None:
    config = league(MATCHMAKING, rounds=3, ticks=100, league={"snapshots": {"gate": {"elo": elo}}})
    words = "about 1639 games that are won or lost; a has 200 at most until it is asked for the last time"
    assert [words in line for line in gate_lines(config)] == [True] * warned


def test_single_round_has_no_description() -> None:
    assert rounds_lines(league(ROUND_ROBIN, rounds=1)) == []
