"""The learning benchmark: its figures, the merging of results of single rows, its table of rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena import registry
from arena.config import parse_config
from arena.plan.build import make_plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # benchmarks are scripts: their folder is where they find each other

import harness  # noqa: E402
import learning  # noqa: E402
from learning import CPU, POINTS, SB3, Results, curve_of, figure  # noqa: E402
from learning_rows import OPTIONS, PLAYERS, ROWS, Goal, returns, wins  # noqa: E402
from peer_sb3_learning import arguments, noise_of  # noqa: E402

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


def test_figure_is_the_mean_over_finished_episodes() -> None:
    lines = [line(4.0, 6.0), line(1.0), {"tick": 1, "seats": []}]
    assert figure(Goal("", 0, returns("p")), lines) == 3.0


def test_wins_count_one_seat() -> None:
    assert (wins("p", seat=0)(line(1.0, outcome="win")), wins("q", seat=0)(line(1.0, outcome="win"))) == (1.0, None)
    assert wins("p", seat=0)(line(1.0, outcome="draw")) == 0.0


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


def test_row_that_cannot_be_measured_gives_its_reason(tmp_path: Path) -> None:
    Results(tmp_path).add("cartpole-ppo", 1, result(1.0, 2.0))
    data = Results(tmp_path).add("lunarlander-ppo", 1, "needs the module Box2D")
    assert data["unavailable"] == {"lunarlander-ppo": "needs the module Box2D"}
    assert list(data["curves"]) == ["cartpole-ppo"]


def test_results_of_other_step_counts_are_kept_but_not_counted(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add("cartpole-ppo", 1, result(1.0, 2.0, steps=5_000, begun=10))
    results.add("cartpole-ppo", 2, result(400.0, 3.0, begun=12))
    data = results.add("cartpole-ppo", 3, result(2.0, 2.0, steps=5_000, begun=11))
    (promise,) = data["promises"]
    assert promise["claim"] == "cartpole-ppo: return after 100,000 steps, 1 seed"
    assert promise["measured"]["values"] == [400.0]
    assert (data["curves"]["cartpole-ppo"], len(data["rows"]["cartpole-ppo"])) == ([400.0] * POINTS, 3)


def test_the_librarys_noise_has_the_deviation_of_ours() -> None:
    theta = 0.5
    np.random.seed(0)  # the library draws from it
    noise = noise_of("correlated", 0.75, theta, (20_000,))
    for _ in range(100):
        values = noise()
    assert np.std(values) == pytest.approx(0.75, rel=0.03)
    assert np.corrcoef(values, noise())[0, 1] == pytest.approx(1 - theta, abs=0.03)


@pytest.mark.parametrize(("name", "epsilon"), [("cartpole-ppo", 1e-5), ("cartpole-a2c", 1e-5), ("pendulum-sac", 1e-8)])
def test_the_library_is_given_the_arenas_epsilon(name: str, epsilon: float) -> None:
    row = ROWS[name]
    options = registry.algorithm(name.split("-")[1]).Options(**OPTIONS[name])
    assert row.peer is not None
    told = arguments(row.peer.options, None)
    assert (told["policy_kwargs"]["optimizer_kwargs"], options.adam_epsilon) == ({"eps": epsilon}, epsilon)


def test_failing_seed_is_reported_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(row: Any, seed: int, *, peers: bool) -> Any:
        if seed == 1:
            raise learning.Failed("exit status 1")
        return result(float(seed), 1.0)

    monkeypatch.setattr(learning, "measure", measure)
    assert learning.main(["--rows", "cartpole-ppo", "--results", str(tmp_path)]) == 1
    assert "cartpole-ppo, seed 1: failed: exit status 1" in capsys.readouterr().err
    assert json.loads((tmp_path / "learning.json").read_text())["cases"]["cartpole-ppo"]["return"]["values"] == [
        2.0,
        3.0,
    ]


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
    assert row.ticks * row.lanes == row.steps


@pytest.mark.parametrize("name", ROWS)
def test_evaluation_does_not_learn_and_plays_other_games(name: str) -> None:
    row = ROWS[name]
    config = parse_config(row.evaluating("runs/x", 1), source=name)
    learners = [policy for policy in config.policies.values() if policy.algorithm not in PLAYERS]
    assert learners
    assert all(policy.frozen and policy.load == "runs/x" for policy in learners)
    assert config.seed != parse_config(row.training(1), source=name).seed
