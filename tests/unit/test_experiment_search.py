"""Searches and pruning: what is suggested depends on what is on record alone; Optuna's own loop suggests the same."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from arena.errors import ConfigError
from arena.experiment.config import parse_experiment
from arena.experiment.plan import plan_experiment
from arena.experiment.searching import Pruning, Search, Suggestion, can_prune, draws, read_search, suggest
from arena.experiment.variation import Choice, Form, Range, VariedPlace, is_within
from experiment_folders import GAMMA, RATE, RUN

SPACE = (
    VariedPlace("rate", Range(1e-4, 1e-1, integer=False, log=True)),
    VariedPlace("size", Range(1, 9, integer=True, log=False)),
    VariedPlace("kind", Choice(("a", [1, 2], None))),
)


def value_of(params: Any) -> float:
    """The result of a simulated trial: best at a rate of 0.01 and a size of 6."""
    return -((math.log10(params["rate"]) + 2) ** 2) - 0.1 * (params["size"] - 6) ** 2 - (params["kind"] is None)


def searched(search: Search, number: int, *, told: list[Suggestion] | None = None, seed: int = 5) -> list[Suggestion]:
    """A search of one trial at a time."""
    known = [*(told or [])]
    for place in range(len(known), number):
        params = suggest(search, SPACE, known, number=place, seed=seed, mode="max")
        known.append(Suggestion(params, "complete", value_of(params)))
    return known


# random


def test_draws_depend_on_the_seed_and_the_number_alone() -> None:
    many, few = draws(Search("random", 9, {}), SPACE, 3), draws(Search("random", 4, {}), SPACE, 3)
    assert many[:4] == few and len({each["rate"] for each in many}) == 9
    assert draws(Search("random", 4, {}), SPACE, 4) != few
    for each in many:
        assert 1e-4 <= each["rate"] <= 1e-1 and each["size"] in range(1, 10) and each["kind"] in ("a", [1, 2], None)


def test_grids_multiply_random_draws_and_seeds_come_last() -> None:
    sets = {RATE: {"loguniform": [1e-4, 1e-2]}, GAMMA: {"grid_search": [0.9, 0.99]}}
    keys = {"run": RUN, "set": sets, "search": {"random": {"trials": 3}}, "repeat": 2}
    plan = plan_experiment(parse_experiment(keys))
    assert len(plan.known) == plan.number == 12
    rates = [trial.params[RATE] for trial in plan.known]
    assert rates == [rate for rate in dict.fromkeys(rates) for _ in range(4)] and len({*rates}) == 3
    assert [trial.params[GAMMA] for trial in plan.known] == [0.9, 0.9, 0.99, 0.99] * 3
    assert [trial.seed for trial in plan.known] == [7, 8] * 6


# Optuna


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tpe", "qmc"])
def test_search_is_deterministic_across_a_resume(kind: str) -> None:
    options: dict[str, Any] = {"n_startup_trials": 4} if kind == "tpe" else {}
    search = Search(kind, 12, options)
    whole = searched(search, 12)
    assert searched(search, 12) == whole
    assert searched(search, 12, told=whole[:5]) == whole
    assert searched(search, 12, seed=6) != whole
    assert len({told.params["rate"] for told in whole}) == 12


@pytest.mark.slow
def test_a_model_based_search_finds_better_values_than_chance() -> None:
    """The median of three seeds of 30 suggestions each."""
    tpe = sorted(searched(Search("tpe", 30, {}), 30, seed=seed)[-1].value or 0.0 for seed in range(3))
    drawn = sorted(value_of(each) for seed in range(5) for each in draws(Search("random", 40, {}), SPACE, seed))
    assert tpe[1] > drawn[len(drawn) * 3 // 4], "its last suggestion is among the best quarter of random ones"


# pruning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("median", {"n_startup_trials": 2, "n_warmup_steps": 1}),
        ("hyperband", {"min_resource": 1, "max_resource": 8, "reduction_factor": 2}),
        ("threshold", {"lower": -0.5}),
    ],
)
def test_pruning_equals_optunas_across_a_resume(name: str, options: dict[str, Any]) -> None:
    rng = random.Random(1)
    curves = [[(step, level + rng.gauss(0, 0.2)) for step in range(1, 9)] for level in (0, 0.5, -1, 1, -0.7, 0.2, -2)]

    def played(pruning: Pruning, first: int = 0) -> list[int]:
        """How many results each trial has when it ends."""
        lengths = []
        for trial, curve in enumerate(curves[first:], start=first):
            steps = next((step for step, *_ in curve if pruning.report(trial, [curve[step - 1]])), None)
            pruning.end(trial, None if steps else curve[-1][1], pruned=steps is not None)
            lengths.append(steps or len(curve))
        return lengths

    whole = played(Pruning({name: options}, "max"))
    assert len(whole) == 7 and min(whole) < 8, "some are pruned"
    resumed = Pruning({name: options}, "max")
    for trial in range(4):  # as from the records
        resumed.report(trial, curves[trial][: whole[trial]])
        ended = whole[trial] < 8
        resumed.end(trial, None if ended else curves[trial][-1][1], pruned=ended)
    assert played(resumed, 4) == whole[4:]


@pytest.mark.parametrize(
    ("held", "trials", "results", "able"),
    [
        ({"median": {}}, 6, 1, True),
        ({"median": {}}, 5, 50, False),  # 5 pass before the first one can be pruned
        ({"median": {"n_warmup_steps": 3}}, 30, 2, False),
        ({"median": {"n_warmup_steps": 3}}, 30, 4, True),
        ({"median": {"n_startup_trials": 100}}, 1000, 2, True),
        ({"percentile": {"percentile": 25.0, "n_min_trials": 40}}, 39, 9, False),
        ({"successive_halving": {"min_resource": 8}}, 20, 4, False),
        ({"successive_halving": {"min_resource": 2}}, 20, 4, True),
        ({"hyperband": {"min_resource": 1, "max_resource": 9}}, 30, 9, True),
        ({"threshold": {"lower": -1.0, "n_warmup_steps": 9}}, 3, 5, False),
        ({"threshold": {"upper": 1e6}}, 1, 1, True),
    ],
)
def test_a_pruner_that_can_never_prune_is_known(held: dict[str, Any], trials: int, results: int, able: bool) -> None:
    assert can_prune(held, trials=trials, last=results) is able


def test_median_pruning_compares_with_the_median() -> None:
    pruning = Pruning({"median": {"n_startup_trials": 2}}, "max")
    for trial, value in enumerate((1.0, 3.0)):
        assert not pruning.report(trial, [(1, value)])
        pruning.end(trial, value, pruned=False)
    assert pruning.report(2, [(1, 1.9)]) and not pruning.report(3, [(1, 2.1)]), "the median is 2"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "option": ({"search": {"tpe": {"trials": 3, "n_startup": 2}}}, "search.tpe.n_startup: unknown option 'n_startup'"),
    "grid": (
        {"search": {"tpe": {"trials": 3}}, "set": {RATE: {"uniform": [0, 1]}, GAMMA: {"grid_search": [1]}}},
        f"search.tpe: a grid, as {GAMMA} has, goes with `random` alone",
    ),
    "variants": (
        {"search": {"tpe": {"trials": 3}}, "set": {RATE: {"uniform": [0, 1]}}, "variants": {"a": {}}},
        "search.tpe: variants go with `random` alone",
    ),
    "pruner": ({"prune": {"medium": {}}}, "prune: unknown pruner 'medium'; did you mean 'median'?"),
    "option of a pruner": ({"prune": {"median": {"warmup": 2}}}, "prune.median.warmup: unknown option 'warmup'"),
    "value of a pruner": ({"prune": {"median": {"n_startup_trials": -1}}}, "prune.median: MedianPruner of Optuna"),
    "repeat": ({"prune": {"median": {}}, "repeat": 2}, "repeat: a trial that may be pruned is not repeated"),
    "two": ({"search": {"tpe": {}, "random": {}}}, "search: found"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_searches_are_refused(mistake: str) -> None:
    keys, message = MISTAKES[mistake]
    with pytest.raises(ConfigError) as caught:
        plan_experiment(parse_experiment({"run": RUN, **keys}, source="s.yaml"))
    assert str(caught.value).startswith(f"s.yaml: {message}")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'mpi-policy-arena\[search\]'"):
        read_search({"tpe": {"trials": 3}})
    assert not read_search({"random": {"trials": 3}}).adaptive


@pytest.mark.parametrize(
    ("form", "inside", "outside"),
    [
        (Range(1e-4, 1e-2, integer=False, log=True), 1e-4, 2e-2),
        (Range(2, 5, integer=True, log=False), 5, 6),
        (Range(2, 5, integer=False, log=False), 2.5, "2.5"),
        (Choice(("a", [1, 2])), [1, 2], "b"),
    ],
)
def test_value_is_within_the_form_that_it_comes_from(form: Form, inside: Any, outside: Any) -> None:
    assert is_within(form, inside) and not is_within(form, outside)
