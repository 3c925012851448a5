"""The worst of a population become copies of the best, with other options."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.config.league import Evolution, Perturb
from arena.errors import ConfigError
from arena.league.next_round import Fork, first_round, next_round, round_config
from arena.league.population import explored, forks
from arena.league.results import Results, Score
from simulated_leagues import entry, league, timeline

RETURNS = {"a": [1.0, 3.0], "b": [0.0], "c": [5.0, 7.0], "d": [4.0]}


def evolving(**keys: Any) -> Any:
    rule = {"perturb": {"learning_rate": [0.8, 1.25]}, **keys}
    return league(entry("round_robin", policies=list("abcd")), players="abcd", league={"evolution": rule})


def returns_of(policies: str, *, best: str) -> dict[str, list[float]]:
    """One episode of each, all alike but that of the best."""
    return {name: [9.0 if name == best else 1.0] for name in policies}


def copied(rule: Evolution, scores: dict[str, float]) -> dict[str, str]:
    """By each policy that becomes a copy its source."""
    found = forks(rule, [[*scores]], scores, {name: {} for name in scores}, np.random.default_rng(0))
    return {policy: fork.source for policy, fork in found.items()}


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12), st.integers(1, 50), st.integers(0, 1000))
def test_sources_of_forks_are_at_least_as_fit(fitness: list[float], percent: int, seed: int) -> None:
    scores = {f"p{place}": value for place, value in enumerate(fitness)}
    rule = Evolution(share=percent / 100)
    found = forks(rule, [list(scores)], scores, {name: {} for name in scores}, np.random.default_rng(seed))
    assert len(found) == max(1, percent * len(scores) // 100)
    assert not found.keys() & {fork.source for fork in found.values()}
    assert all(scores[policy] <= scores[fork.source] for policy, fork in found.items())


@pytest.mark.parametrize(("keep", "size"), [(1, 2), (1, 7), (3, 4)])
def test_kept_policies_survive_and_all_others_copy_them(keep: int, size: int) -> None:
    scores = {f"p{place}": float(place) for place in range(size)}
    found, best = copied(Evolution(keep=keep), scores), sorted(scores, key=scores.__getitem__)[-keep:]
    assert {*found} == {*scores} - {*best}
    assert {*found.values()} <= {*best}


def test_copies_of_the_best_are_perturbed_each_by_itself() -> None:
    config = evolving(keep=1, perturb={"learning_rate": [0.5, 0.8, 1.25, 2.0]})
    rates = set[tuple[float, ...]]()
    for seed in range(8):
        seeded = msgspec.structs.replace(config, seed=seed)
        made = next_round(seeded, [first_round(seeded)], timeline(), RETURNS)
        assert {policy: fork.source for policy, fork in made.forks.items()} == dict.fromkeys("abd", "c")
        rates |= {tuple(fork.options["learning_rate"] for fork in made.forks.values())}
    assert len(rates) > 4


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"keep": 4}, "keep", "set at most 3"),
        ({"keep": 1, "share": 0.5}, "keep", "leave out `share`"),
        ({"share": 0.8}, "share", "at most 0.75"),
    ],
)
def test_selection_that_leaves_no_source_or_no_copy_is_refused(keys: Any, key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        evolving(**keys)
    assert caught.value.path == f"league.evolution.{key}"


def test_the_worst_becomes_a_copy_of_the_best_with_another_option() -> None:
    config = evolving()
    made = next_round(config, [first_round(config)], timeline(), RETURNS)
    (option,) = made.forks["b"].options.values()
    assert made.forks == {"b": Fork("c", {"learning_rate": option})}
    assert option in (pytest.approx(0.8e-3), pytest.approx(1.25e-3))


def test_forked_options_are_inherited() -> None:
    config = evolving(perturb={"learning_rate": [2.0]})
    rounds = [first_round(config)]
    for best in ("c", "b", "a"):
        rounds.append(next_round(config, rounds, timeline(), returns_of("abcd", best=best)))
    rates = [{name: options["learning_rate"] for name, options in made.options.items()} for made in rounds]
    assert rates[1] == {"a": 2e-3}  # a took over from c, of equals the first in the alphabet
    assert rates[2] == {"a": 2e-3}
    assert rates[3] == {"a": 2e-3, "b": 4e-3}
    played = round_config(config, rounds[3], Path)
    assert played.policies["b"].options == {"learning_rate": 4e-3}
    assert played.policies["c"].options == {"learning_rate": 1e-3}


def test_a_snapshot_keeps_the_options_that_it_was_made_with() -> None:
    evolution = {"evolution": {"perturb": {"learning_rate": [2.0]}}}
    matchmaking = entry("matchmaking", policies=["a", "b"], rule={"past_selves": {"self": 0}}, copies=9)
    config = league(matchmaking, players="ab", league=evolution)
    rounds = [first_round(config)]
    for best in ("b", "b", "b"):
        rounds.append(next_round(config, rounds, timeline(), returns_of("ab", best=best)))
    played = round_config(config, rounds[3], lambda name: Path("kept") / name).policies
    assert played["a@100"].options == {"learning_rate": 1e-3}
    assert played["a@200"].options == {"learning_rate": 2e-3}
    assert (played["a@200"].frozen, played["a@200"].load) == (True, "kept/a@200")


def test_by_rating_the_weakest_becomes_a_copy() -> None:
    config = evolving(by="rating")
    results = Results()
    for weaker, better in ("ab", "bc", "cd", "ad"):
        results.add_score((better,), (weaker,), Score(wins=30, losses=10))
    made = next_round(config, [first_round(config)], timeline(results, learners=config.learners), RETURNS)
    assert {policy: fork.source for policy, fork in made.forks.items()} == {"a": "d"}


def test_copies_stay_within_their_algorithm() -> None:
    config = league(
        entry("round_robin", policies=list("abcd")),
        policies={name: {"algorithm": "ppo" if name in "ab" else "a2c"} for name in "abcd"},
        league={"evolution": {"share": 0.5}},
    )
    made = next_round(config, [first_round(config)], timeline(), RETURNS)
    assert {policy: fork.source for policy, fork in made.forks.items()} == {"b": "a", "d": "c"}


def test_policy_without_episodes_is_left_out() -> None:
    config = evolving(share=0.5)
    made = next_round(config, [first_round(config)], timeline(), {"a": [1.0], "b": [2.0], "c": []})
    assert {policy: fork.source for policy, fork in made.forks.items()} == {"a": "b"}


@pytest.mark.parametrize("order", ["abcd", "cbad"])
def test_nan_fitness_is_the_worst(order: str) -> None:
    scores = {"a": 1.0, "b": math.nan, "c": 2.0, "d": 3.0}
    assert copied(Evolution(), {name: scores[name] for name in order}) == {"b": "d"}


def test_nan_fitness_is_never_a_source() -> None:
    lost: dict[str, float] = dict.fromkeys("abc", math.nan)
    assert {*copied(Evolution(share=0.5), {**lost, "d": -5.0}).values()} == {"d"}
    assert not copied(Evolution(share=0.5), lost)


def test_evolution_starts_in_its_round() -> None:
    config = evolving(every=2)
    rounds = [first_round(config)]
    for _ in range(4):
        rounds.append(next_round(config, rounds, timeline(), RETURNS))
    assert [bool(made.forks) for made in rounds] == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        (128, Perturb(factors=(1.25,)), 160),
        (1, Perturb(factors=(0.1,)), 1),
        (0, Perturb(factors=(2.0,)), 0),
        (0.99, Perturb(factors=(1.25,), at_most=0.999), 0.999),
        (0.1, Perturb(factors=(0.5,), at_least=0.08), 0.08),
    ],
)
def test_whole_numbers_stay_whole_and_bounds_hold(value: float, rule: Perturb, expected: float) -> None:
    (found,) = explored({"x": rule}, {"x": value}, np.random.default_rng(0)).values()
    assert found == expected
    assert type(found) is type(expected)


def test_share_is_not_reduced_by_float_rounding() -> None:
    scores = {f"p{place:03d}": float(place) for place in range(100)}
    assert len(copied(Evolution(share=0.29), scores)) == 29  # 0.29 x 100 is 28.999999999999996
