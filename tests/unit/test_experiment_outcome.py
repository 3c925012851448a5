"""The outcome of an experiment: ranking, intervals and paired comparisons, held against simulated experiments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scipy import stats

from arena.experiment.config import MetricConfig
from arena.experiment.outcome import rank
from arena.experiment.values import FollowedResults, TrialRow, judged, number_at

METRIC = MetricConfig()


def row(number: int, params: dict[str, object], seed: int, value: float | None, state: str = "terminated") -> TrialRow:
    return TrialRow(
        number, f"e-{number}", "", params, seed, state, 1, 10, 1.0, value, value, value, value, f"trials/{number}", ""
    )


def rows(values: Sequence[Sequence[float | None]]) -> list[TrialRow]:
    """A row for each value: a combination per list, a seed per place."""
    size = len(values[0])
    return [
        row(size * place + seed, {"x": place}, seed, value)
        for place, held in enumerate(values)
        for seed, value in enumerate(held)
    ]


def test_combinations_are_ranked_by_mean_with_student_intervals() -> None:
    values = [[1.0, 2.0, 3.0], [4.0, 6.0, 5.0], [2.0, 2.5, 2.0]]
    for mode, order in (("max", [1, 2, 0]), ("min", [0, 2, 1])):
        found = rank(rows(values), MetricConfig(mode=mode)).combinations
        assert [each.params["x"] for each in found] == order
        for each in found:
            held = values[each.params["x"]]
            low, high = stats.t.interval(0.95, len(held) - 1, np.mean(held), stats.sem(held))
            assert each.mean == pytest.approx(np.mean(held), abs=1e-12)
            assert each.half == pytest.approx((high - low) / 2, rel=1e-9)


def test_comparisons_are_paired_by_seed_and_corrected_for_their_number() -> None:
    rng = np.random.default_rng(3)
    luck = rng.normal(0, 10, 5)  # of a seed, the same for all combinations
    values = [(luck + shift + rng.normal(0, 1, 5)).tolist() for shift in (0, 0.5, 3, 5)]
    found = rank(rows(values), METRIC).combinations
    best = values[found[0].params["x"]]
    assert found[0].as_good is True
    for each in found[1:]:
        p = stats.ttest_rel(best, values[each.params["x"]]).pvalue
        assert each.as_good == (p >= 0.05 / 3), f"by SciPy's paired test p is {p}"
    assert [each.as_good for each in found] == [True, False, False, False], "though the intervals overlap widely"


def test_trials_in_error_or_without_a_value_are_left_out() -> None:
    held = [row(0, {"x": 0}, 1, 5.0), row(1, {"x": 0}, 2, 99.0, state="error"), row(2, {"x": 1}, 1, None)]
    found = rank(held, METRIC)
    assert (found.combinations[0].values, found.combinations[0].mean, found.combinations[0].half) == (
        [5.0, None],
        5.0,
        None,
    )
    assert found.combinations[1].mean is None and found.combinations[1].as_good is None
    assert found.best == 0


def test_single_seed_gives_no_comparison() -> None:
    found = rank(rows([[1.0], [2.0]]), METRIC)
    assert [each.as_good for each in found.combinations] == [True, None]
    assert [each.half for each in found.combinations] == [None, None]
    assert found.best == 1


def test_the_best_trial_is_of_the_best_combination() -> None:
    found = rank(rows([[0.0, 100.0], [60.0, 61.0]]), METRIC)
    assert found.best == 3, "not the one with the highest value of all"


def test_trials_no_longer_requested_do_not_count() -> None:
    import msgspec

    held = rows([[9.0, 9.0], [1.0, 2.0]])
    held = [msgspec.structs.replace(each, wanted=each.params["x"] == 1) for each in held]
    assert [each.params["x"] for each in rank(held, METRIC).combinations] == [1]


@pytest.mark.parametrize(
    ("scope", "mode", "value"),
    [("last", "max", 3.0), ("best", "max", 9.0), ("best", "min", 1.0), ("mean", "max", 4.0), ("last-5", "max", 4.4)],
)
def test_scopes_choose_the_results_that_count(scope: str, mode: str, value: float) -> None:
    values = [2.0, 1.0, 9.0, 5.0, 4.0, 3.0]
    metric = MetricConfig(mode=mode, scope=scope)  # type: ignore[arg-type]
    assert judged(values, metric) == pytest.approx(value)
    assert judged([], metric) is None


def test_numbers_of_results_are_found_by_their_paths() -> None:
    result = {"a": 1, "b": {"c": 2.5, "d/e": 3, "none": None}, "flag": True}
    assert [number_at(result, key) for key in ("a", "b/c", "b/d/e", "b/none", "b", "flag", "x/y")] == [
        1.0, 2.5, 3.0, None, None, None, None,
    ]  # fmt: skip


def test_results_are_followed_as_they_grow_and_begin_again_when_cut(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "result.json"
    followed = FollowedResults(path, "m")
    assert followed.look() == []
    path.write_text('{"training_iteration":1,"ticks":5,"m":1.5}\n{"training_iteration":2,"ticks":10,"m":null}\n{"tra')
    assert followed.look() == [(1, 1.5)] and followed.ticks == 10
    path.write_text(path.read_text() + 'ining_iteration":3,"ticks":15,"m":2,"done":true}\n')
    assert followed.look() == [(3, 2.0)] and followed.done
    path.write_text('{"training_iteration":1,"ticks":5,"m":1.5}\n')
    followed.look()
    assert (followed.values, followed.ticks, followed.done) == ([1.5], 5, False)


def simulated(combinations: int, *, seeds: int = 5, experiments: int = 1000, spread: float = 0.0) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Experiments with normal values: the true means, and the values [combination, seed], which share luck by seed."""
    rng = np.random.default_rng(combinations)
    for _ in range(experiments):
        means = np.sort(rng.normal(0, spread, combinations)) if spread else np.zeros(combinations)
        luck = rng.normal(0, 1, seeds)
        yield means, means[:, None] + luck + rng.normal(0, 1, (combinations, seeds))


@pytest.mark.slow
def test_intervals_of_combinations_hold_the_truth_in_95_of_100_experiments() -> None:
    hits = total = 0
    for means, values in simulated(2, spread=1.0):
        for each in rank(rows(values.tolist()), METRIC).combinations:
            assert each.mean is not None and each.half is not None
            hits += abs(each.mean - means[each.params["x"]]) <= each.half
            total += 1
    assert 0.93 <= hits / total <= 0.97


def share_of_best(combinations: int, *, spread: float, experiments: int) -> float:
    """How often the truly best combination is said to be as good as the best."""
    hits = 0
    for means, values in simulated(combinations, experiments=experiments, spread=spread):
        truly = int(np.argmax(means))
        found = rank(rows(values.tolist()), METRIC).combinations
        hits += next(bool(each.as_good) for each in found if each.params["x"] == truly)
    return hits / experiments


@pytest.mark.slow
@pytest.mark.parametrize("combinations", [2, 24])
def test_the_truly_best_combination_is_as_good_as_the_best(combinations: int) -> None:
    assert share_of_best(combinations, spread=0.0, experiments=150) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.long
@pytest.mark.parametrize("combinations", [2, 4, 8, 12, 24])
@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_the_truly_best_combination_is_found_in_95_of_100_experiments(combinations: int, spread: float) -> None:
    assert share_of_best(combinations, spread=spread, experiments=1000) >= 0.95
