"""The outcome of an experiment: ranking, intervals and paired comparisons, held against simulated experiments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from scipy import stats

from arena.experiment.config import MetricConfig
from arena.experiment.display import Progress, outcome_lines
from arena.experiment.outcome import rank
from arena.experiment.values import FollowedResults, TrialRow, judged
from arena.records.result_file import numbers

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


def test_progress_names_no_best_before_a_trial_has_ended() -> None:
    shown = Progress(10, 2, METRIC)
    running, ended = row(0, {"x": 0}, 0, 1.0, "running"), row(1, {"x": 1}, 0, 2.0)
    shown.take([running])
    assert shown.best == ""
    shown.take([running, ended])
    assert shown.best == "best so far: x=1: 2"


def test_time_left_counts_what_trials_have_played_after_their_start() -> None:
    """Twelve trials of 100 ticks and 100 s, two at a time, each after a start of 60 s."""

    def left(at: float, *ticks: int, over: int = 0) -> str:
        clock[0] = at
        ended = [msgspec.structs.replace(row(n, {}, n, 1.0), seconds=160.0) for n in range(over)]
        running = [row(over + n, {}, over + n, None, "running") for n in range(len(ticks))]
        running = [msgspec.structs.replace(each, ticks=tick) for each, tick in zip(running, ticks, strict=True)]
        waiting = [row(n, {}, n, None, "pending") for n in range(over + len(ticks), 12)]
        shown.take([*ended, *running, *waiting])
        return shown.left

    clock = [0.0]
    shown = Progress(100, 12, METRIC, lambda: clock[0])
    assert [left(0, 0, 0), left(50, 0, 0), left(80, 20, 20)] == ["", "", ""], "its speed is not known yet"
    assert left(100, 40, 40) == "about 9 min left", "60 s of the two, and 100 s for each further two: 560 s"
    assert left(130, 40, 40) == "about 9 min left", "30 s later: 530 s"
    shown = Progress(100, 12, METRIC, lambda: clock[0])  # a resume, after ten have ended
    assert left(0, 0, 50, over=10) == "about 3 min left", "160 s for the longer one"
    assert left(100, 0, 50, over=10) == "about 60 s left", "it still starts"
    assert left(0, over=12) == ""


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
    assert (found[0].difference, found[0].separable) == (None, None)
    for each in found[1:]:
        test = stats.ttest_rel(values[each.params["x"]], best)
        assert each.separable == (test.pvalue < 0.05 / 3), f"by SciPy's paired test p is {test.pvalue}"
        assert each.interval == pytest.approx([*test.confidence_interval(1 - 0.05 / 3)])
        assert each.difference == pytest.approx(np.mean(np.subtract(values[each.params["x"]], best)))
        assert each.shared == 5
    assert [each.separable for each in found[1:]] == [True] * 3, "though the intervals overlap widely"


def test_trials_in_error_or_without_a_value_are_left_out() -> None:
    held = [row(0, {"x": 0}, 1, 5.0), row(1, {"x": 0}, 2, 99.0, state="error"), row(2, {"x": 1}, 1, None)]
    found = rank(held, METRIC)
    assert (found.combinations[0].values, found.combinations[0].mean, found.combinations[0].half) == (
        [5.0, None],
        5.0,
        None,
    )
    assert found.combinations[1].mean is None and found.combinations[1].separable is None
    assert found.best == 0


def test_the_best_trial_is_of_the_best_combination() -> None:
    found = rank(rows([[0.0, 100.0], [60.0, 61.0]]), METRIC)
    assert found.best == 3, "not the one with the highest value of all"


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
    assert [numbers(result).get(key) for key in ("a", "b/c", "b/d/e", "b/none", "b", "flag", "x/y")] == [
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
    """How often the truly best combination is first, or said to be not separable from the first one."""
    hits = 0
    for means, values in simulated(combinations, experiments=experiments, spread=spread):
        truly = int(np.argmax(means))
        found = rank(rows(values.tolist()), METRIC).combinations
        hits += next(not each.separable for each in found if each.params["x"] == truly)
    return hits / experiments


@pytest.mark.slow
@pytest.mark.parametrize("combinations", [2, pytest.param(12, marks=pytest.mark.long)])
def test_intervals_of_differences_hold_the_truth_together(combinations: int) -> None:
    """Against a combination that is far ahead, so that its choice depends on no luck."""
    hits, experiments = 0, 300
    for means, values in simulated(combinations, spread=1.0, experiments=experiments):
        means[-1] += 100
        values[-1] += 100
        found = rank(rows(values.tolist()), METRIC).combinations
        assert found[0].params["x"] == combinations - 1
        truth = {x: mean - means[-1] for x, mean in enumerate(means)}
        hits += all(
            each.interval is not None and each.interval[0] <= truth[each.params["x"]] <= each.interval[1]
            for each in found[1:]
        )
    assert hits / experiments >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / experiments)


def test_lines_name_the_difference_the_seeds_and_pruned_trials() -> None:
    lines = outcome_lines(rows([[5.0, 6.0, 7.0], [4.9, 6.1, 6.8], [-5.0, -4.1, -3.0]]), METRIC)
    low, high = rank(rows([[5.0, 6.0, 7.0], [4.9, 6.1, 6.8]]), METRIC).combinations[1].interval or (0, 0)
    assert low < -0.06667 < high
    assert "  not separable from the best with 3 seeds: -0.06667 [" in lines[2]
    assert "  separable from the best with 3 seeds: -10.03 [" in lines[3]
    pruned = [row(0, {"x": 0}, 1, 9.0, state="pruned"), row(1, {"x": 1}, 1, 2.0)]
    lines = outcome_lines(pruned, METRIC)
    assert "1 trial, 1 pruned" in lines[1] and lines[-2].endswith("(9, pruned)")
    assert "from the best with 1 seed: -7" in lines[2]


def test_lines_of_an_incomplete_experiment_are_provisional() -> None:
    held = [row(0, {"x": 0}, 1, 9.0), row(1, {"x": 0}, 2, None, "paused"), row(2, {"x": 1}, 1, None, "pending")]
    lines = outcome_lines(held, METRIC)
    assert lines[1] == "  1  x=0  9  1 of 2 trials" and lines[2] == "  2  x=1  -  0 of 1 trial"
    assert lines[3] == "the ranking is provisional: 2 of 3 trials are not over"
    shown = Progress(10, 3, METRIC)
    shown.take(held)
    assert shown.best == "best so far: x=0: 9 (1 of 2 trials)"
    held = [row(0, {"x": 0}, 1, 9.0), row(1, {"x": 0}, 2, 8.0)]
    assert "provisional" not in "".join(outcome_lines(held, METRIC))


@pytest.mark.slow
def test_the_truly_best_combination_is_not_separable_from_the_best() -> None:
    assert share_of_best(8, spread=0.0, experiments=150) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.long
@pytest.mark.parametrize("combinations", [2, 4, 8, 12, 24])
@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_the_truly_best_combination_is_found_in_95_of_100_experiments(combinations: int, spread: float) -> None:
    assert share_of_best(combinations, spread=spread, experiments=1000) >= 0.95
