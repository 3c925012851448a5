"""The learning benchmarks: their figures, the merging of results of single rows, their tables of rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from arena import registry
from arena.config import parse_config
from arena.plan.build import make_plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # benchmarks are scripts: their folder is where they find each other

import default_options  # noqa: E402
import harness  # noqa: E402
from learning import CPU, POINTS, SB3, Results, curve_of  # noqa: E402
from learning_rows import OPTIONS, PLAYERS, ROWS  # noqa: E402
from peer_sb3_learning import arguments  # noqa: E402

ROW = ROWS["cartpole-ppo"]


def line(*returns: float, tick: int = 1, outcome: str | None = None, **changes: Any) -> dict[str, Any]:
    """An episode of a seat of policy p for each return."""
    seats = [
        {"policy": "p", "entities": [2 * n, 2 * n + 1], "return": r, "outcome": outcome} for n, r in enumerate(returns)
    ]
    return {"tick": tick, "seats": seats, **changes}


def result(score: float, cpu: float, theirs: float | None = None, **changes: Any) -> dict[str, Any]:
    peer = None if theirs is None else {CPU: theirs, "return": 1.0}
    where = {"steps": 100_000, "begun": 0, **changes}
    return {"figures": {"return": score, CPU: cpu}, "curve": [score] * POINTS, "peer": peer, **where}


# ------------------------------------------------------------------------------------------------------- the figures


def test_curve_has_finished_episodes_at_their_end_ticks() -> None:
    last = ROW.ticks
    lines = [line(10.0, tick=1), line(20.0, tick=2), line(500.0, tick=last), line(9.0, tick=last, cut=True)]
    curve = curve_of(ROW, lines)
    assert (curve[0], curve[1], curve[-1], len(curve)) == (15.0, None, 500.0, POINTS)


# ------------------------------------------------------------------------------------------------------- the results


def test_results_of_single_rows_and_seeds_are_merged(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add("cartpole-ppo", 1, result(400.0, 20.0, 40.0))
    results.add("acrobot-ppo", 1, result(-80.0, 9.0, 10.0))
    results.add("cartpole-ppo", 3, result(500.0, 30.0, 20.0))
    data = results.add("cartpole-ppo", 2, result(480.0, 10.0, 40.0), begun=7)
    assert json.loads((tmp_path / "learning.json").read_text()) == json.loads(json.dumps(data))
    promises = {promise["claim"]: promise for promise in data["promises"]}
    learned = promises["cartpole-ppo: return after 100,000 steps, 3 seeds"]
    assert (learned["holds"], learned["measured"]["values"], data["begun"]) == (True, [400.0, 480.0, 500.0], 7)
    assert promises[f"cartpole-ppo: {CPU}, arena / {SB3}, 3 seeds"]["measured"]["median"] == 0.5
    assert data["curves"]["cartpole-ppo"] == [480.0] * POINTS
    assert any("480 480" in text for text in harness.table(data))


@pytest.mark.parametrize(("name", "epsilon"), [("cartpole-ppo", 1e-5), ("cartpole-a2c", 1e-5), ("pendulum-sac", 1e-8)])
def test_the_library_is_given_the_arenas_epsilon(name: str, epsilon: float) -> None:
    row = ROWS[name]
    options = registry.algorithm(name.split("-")[1]).Options(**OPTIONS[name])
    assert row.peer is not None
    told = arguments(row.peer.options, None)
    assert (told["policy_kwargs"]["optimizer_kwargs"], options.adam_epsilon) == ({"eps": epsilon}, epsilon)


# ---------------------------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize("name", ROWS)
def test_row_is_a_valid_configuration(name: str) -> None:
    row = ROWS[name]
    plan = make_plan(parse_config(row.training(1), source=name), ranks=1)
    assert sum(len(seat.entities) for seat in plan.matches[0].seats) == sum(
        1 if isinstance(seat, str) else len(seat) for seat in row.seats
    )
    for policy in plan.policies.values():
        given = policy.config
        registry.decode_options(registry.algorithm(given.algorithm), given.options, path=policy.name)
    assert row.ticks * row.lanes * row.copies == row.steps


@pytest.mark.parametrize("name", ROWS)
def test_evaluation_does_not_learn_and_plays_other_games(name: str) -> None:
    row = ROWS[name]
    config = parse_config(row.evaluating("runs/x", 1), source=name)
    learners = [policy for policy in config.policies.values() if policy.algorithm not in PLAYERS]
    assert learners
    assert all(policy.frozen and policy.load == "runs/x" for policy in learners)
    assert config.seed != parse_config(row.training(1), source=name).seed


# ------------------------------------------------------------------------------------------------- default options


A2C = default_options.ROWS["cartpole-a2c-1x4"]


def training(*areas: float, options: dict[str, Any] | None, steps: int = A2C.steps) -> dict[str, Any]:
    """What the file has of a side: a seed for each area."""
    seeds = {str(n): {"area": a, "return": 2 * a, CPU: 5.0} for n, a in enumerate(areas, 1)}
    return {"options": options, "steps": steps, "seeds": seeds}


def test_area_of_a_curve_with_gaps() -> None:
    assert default_options.curve_of([(0.01, 1.0), (0.02, 3.0), (1.0, 7.0)])[:2] == [2.0, None]
    assert default_options.area([None, 1.0, None, 3.0]) == 1.5


def test_sides_are_compared_with_the_default_and_the_peer() -> None:
    default, *_, other, peer = default_options.sides_of(A2C).items()
    trainings = {
        "cartpole-a2c-1x4": [training(100, 200, 300, options=default[1]), training(90, 210, 270, options=other[1])],
        "cartpole-a2c-4": [training(150, 250, options=peer[1])],  # of as many environments
    }
    data = default_options.content(trainings)
    ((*_, first), (*_, second), (*_, third)) = rows = data["tables"][0]["rows"]
    assert [row[:4] for row in rows] == [
        ["cartpole-a2c-1x4", default[0], "3", "200 (150 .. 250)"],
        ["cartpole-a2c-1x4", other[0], "3", "210 (150 .. 240)"],
        ["cartpole-a2c-1x4", SB3, "2", "200 (175 .. 225)"],
    ]
    assert (first, second, third) == ("5 (5 .. 5)",) * 3
    # differences -10, 10, -30: mean -10, deviation 20, and the t-quantile of 2 degrees of freedom is 4.303
    assert [row[5] for row in rows] == ["", "-10 (-59.7 .. +39.7)", "+50 (+50 .. +50)"]
    assert {one["claim"]: (one["limit"], one["holds"]) for one in data["promises"]} == {
        "cartpole-a2c-1x4: area, 2 seeds": (200, False),  # of the seeds that both have
        "cartpole-a2c-1x4: return, 2 seeds": (400, False),
    }


def test_training_with_other_options_or_steps_is_not_counted() -> None:
    (_, options), *_ = default_options.sides_of(A2C).items()
    assert options is not None
    older = {name: value for name, value in options.items() if name != "precision"}  # a later option changes nothing
    for given, steps, counts in (
        (older, A2C.steps, True),
        (options, 1, False),
        ({**options, "gamma": 0.5}, 50_000, False),
    ):
        trainings = {A2C.name: [training(1.0, options=given, steps=steps)]}
        assert bool(default_options.found_in(trainings, A2C, options)) == counts


@pytest.mark.parametrize("name", default_options.ROWS)
def test_one_side_of_a_row_of_default_options_is_the_default(name: str) -> None:
    first, *others = default_options.sides_of(default_options.ROWS[name])
    assert first.startswith(default_options.DEFAULT)
    assert others[-1] == SB3
    assert not any(other.startswith(default_options.DEFAULT) for other in others)
