"""Every number of every result equals a slow recomputation from the journals, and all result files agree."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import in_process
from arena.config import load_config, parse_config
from arena.errors import ConfigError
from arena.league.ratings.standings import league_table
from arena.league.read_results import read
from arena.records import boundary, read_results
from arena.records.folder import RunFolder
from arena.report.page import write_report
from arena.report.read_run import read_run
from arena.report.sections import page_data
from arena.roles.status import RunStatus, run_status
from arena.run.planning import checked_plan
from event_files import points
from slow_results import (
    CLOCK,
    expected,
    flat,
    json_lines,
    policy_metrics,
    returns,
    rewards,
    table,
    without_clock,
)

TOUCHDOWN = {"make": "touchdown", "kwargs": {"max_steps": 15}}
COVER = {"make": "cover", "kwargs": {"max_steps": 11}}
RPS = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}
STAG = {"make": "matrix", "kwargs": {"game": "stag_hunt", "rounds": 3}}
LEARNER = {"algorithm": "learners:LearnerWithActor"}
RANDOM = {"algorithm": "random"}
DUEL = in_process.one_match(
    TOUCHDOWN,
    {"blue": LEARNER, "red": RANDOM},
    **{"ticks": 120, "seed": 5, "checkpoint_every": 40, "results": {"every": 40}},
    match={"lanes": 2, "copies": 2},
)
SEVERAL = {
    **DUEL,
    "envs": {"game": TOUCHDOWN, "cover": COVER, "rps": RPS, "stag": STAG},
    "policies": {"blue": LEARNER, "red": RANDOM, "team": LEARNER, "idle": RANDOM},
    "matches": [
        {"env": "game", "seats": [["blue"], "red"], "lanes": 3},
        {"env": "cover", "seats": [["team", "team"], "team"], "lanes": 2},
        {"env": "rps", "seats": ["red", "red"], "lanes": 2},
        {"env": "stag", "seats": ["red", "idle"]},
    ],
}
MEETS = {"env": "game", "policies": ["blue"], "against": ["red", "green"]}
LEAGUE = {
    **{**DUEL, "ticks": 30, "rounds": 3, "checkpoint_every": 30, "results": {"every": 30}},
    "policies": {"blue": LEARNER, "red": RANDOM, "green": RANDOM},
    "matches": [{"matchmaking": {**MEETS, "rule": {"past_selves": {}}, "lanes": 2, "copies": 2}}],
}


def train(data: Mapping[str, Any], path: Path, **given: Any) -> Path:
    return in_process.train(data, path, **given).path


def check(run: Path) -> list[dict[str, Any]]:
    """Compares every line with the recomputation, and the other files with the lines; returns the lines."""
    found = without_clock(run)
    for line, known in zip(found, expected(run), strict=True):
        assert_close({key: line[key] for key in known}, known)
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    every = json_lines(run / "result.json")
    check_table(run, every)
    check_curves(run, every)
    return every


def assert_close(found: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """The same keys, and the same numbers or null to 1e-12."""
    ours, theirs = dict(flat(found)), dict(flat(known))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == (value if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name


def check_table(run: Path, every: list[dict[str, Any]]) -> None:
    rows = table(run / "progress.csv")
    assert len(rows) == len(every)
    for row, line in zip(rows, every, strict=True):
        values = dict(flat(line))
        assert values.keys() <= row.keys()
        assert row == {name: "" if values.get(name) is None else str(values[name]) for name in row}


def check_curves(run: Path, every: list[dict[str, Any]]) -> None:
    known: dict[str, dict[int, float]] = {}
    for line in every:
        for name, value in flat(line):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                (known.setdefault(name, {})[line["ticks"]],) = struct.unpack("<f", struct.pack("<f", value))
    assert points(run / "tensorboard" / "_results") == known


@pytest.mark.parametrize(("every", "smoothing"), [(2, 1), (80, 100)])
def test_results_equal_a_slow_recomputation(every: int, smoothing: int, tmp_path: Path) -> None:
    results = {"every": every, "smoothing": smoothing}
    lines = check(train({**SEVERAL, "results": results}, tmp_path / "run"))
    assert [line["ticks"] for line in lines] == [*dict.fromkeys([*range(every, 121, every), 120])]
    assert lines[-1]["policy_win_rate"]["idle"] is None, "stag hunt has no winner"
    assert 0 < lines[-1]["policy_win_rate"]["red"] < 1
    assert (every == 2) == any(line["episodes_this_iter"] == 0 for line in lines)


def test_iterations_without_an_episode_have_no_means_at_first(tmp_path: Path) -> None:
    data = {**DUEL, "results": {"every": 5, "smoothing": 3}, "envs": {"game": {"make": "touchdown"}}}
    lines = check(train({**data, "checkpoint_every": 120}, tmp_path / "run"))
    assert lines[0]["episode_reward_mean"] is None
    assert math.isnan(read_results(tmp_path / "run")[0]["episode_reward_mean"])
    assert lines[0]["stopped_by"] is None and read_results(tmp_path / "run")[0]["stopped_by"] is None


def test_results_of_a_league_have_the_ratings_of_each_round(tmp_path: Path) -> None:
    run = train({**LEAGUE, "results": {"every": 10, "smoothing": 7}}, tmp_path / "run")
    lines = check(run)
    assert set(lines[-1]["policy_reward_mean"]) == {"blue", "red", "green"}
    rated = {line["ticks"]: line["ratings"] for line in lines if "ratings" in line}
    assert [*rated] == [30, 60, 90]
    config = load_config(RunFolder(run).config)
    for number, ratings in enumerate(rated.values()):
        found = read(RunFolder(run), last=number)
        tables = league_table(found.timeline, found.cut, config).tables
        known = {row.player: row.elo for rows in tables for row in rows}
        assert ratings == pytest.approx({name: known[name] for name in config.policies if name in known})
        assert "blue" in ratings
    with pytest.raises(ConfigError, match="only leagues have ratings"):
        parse_config({"name": "test", **DUEL, "stop": {"ratings/blue": 50}}, source="test")
    curves = points(run / "tensorboard" / "_results")["ratings/blue"]
    assert curves == pytest.approx({tick: ratings["blue"] for tick, ratings in rated.items()})
    assert [row["ratings/blue"] for row in table(run / "progress.csv") if row["ratings/blue"]]


@pytest.mark.parametrize(
    ("ticks", "leg", "rounds", "every"),
    [(20_000, 10_000, 1, 400), (997, 10_000, 1, 19), (500, 10_000, 40, 500)],
)
def test_results_are_about_a_fiftieth_of_a_run_apart(ticks: int, leg: int, rounds: int, every: int) -> None:
    data = {**DUEL, "name": "test", "ticks": ticks, "checkpoint_every": leg, "rounds": rounds, "results": {}}
    plan = checked_plan(parse_config(data, source="test"), ranks=1)
    assert plan.result_every == every


def test_result_of_a_boundary_has_its_evaluation(tmp_path: Path) -> None:
    data = {**DUEL, "results": {"every": 20, "smoothing": 7}, "evaluation": {"every": 80, "episodes": 3}}
    data |= {"envs": {"game": {"make": "games:MeteredSeats"}}}
    data |= {"matches": [{"env": "game", "seats": ["blue", "red", "red"], "lanes": 2}]}
    run = train(data, tmp_path / "run")
    lines = check(run)
    assert [line["ticks"] for line in lines if "evaluation" in line] == [80, 120]
    for line in lines:
        if "evaluation" in line:
            episodes = json_lines(RunFolder(run).evaluation_path(line["ticks"]) / "episodes.jsonl")
            own = [one for one in json_lines(run / "evaluations.jsonl") if one["ticks"] == line["ticks"]]
            known = {
                **rewards(episodes),
                **returns(episodes, ["blue", "red"]),
                "episodes_this_iter": len(episodes),
                "policy_custom_metrics": policy_metrics(episodes, ["blue", "red"]),
                "policies": {one.pop("policy"): one for one in own if one.pop("ticks")},
            }
            assert_close({key: line["evaluation"][key] for key in known}, known)
            assert line["evaluation"]["policy_custom_metrics"]["place_mean"] == {"blue": 0.0, "red": 1.5}
            assert line["evaluation"]["custom_metrics"]["place_mean"] == 1.0, "of all seats"


@pytest.mark.parametrize(("data", "evaluated"), [(DUEL, True), (LEAGUE, False)], ids=["duel", "league"])
def test_resumed_run_has_the_results_of_an_uninterrupted_one(
    data: Mapping[str, Any], evaluated: bool, tmp_path: Path
) -> None:
    leg = data["checkpoint_every"]
    evaluation = {"every": 2 * leg, "episodes": 3} if evaluated else None
    data = {**data, "results": {"every": leg // 2, "smoothing": 7}, "evaluation": evaluation}
    whole = train(data, tmp_path / "whole")
    broken = train(data, tmp_path / "broken")
    folder = RunFolder(broken)
    for tick in (2 * leg, leg):  # as after a kill: later ticks are played again
        boundary.discard_after(folder, tick)
        for name in ("result.json", "progress.csv"):  # the newest lines never came to the disk
            lines = (broken / name).read_text().splitlines(keepends=True)
            (broken / name).write_text("".join(lines[: tick * 2 // leg]))
        train(data, broken, resume=True)
        assert without_clock(broken) == without_clock(whole)
        check(broken)
    times = [line["time_total_s"] for line in json_lines(broken / "result.json")]
    assert times == sorted(times)
    assert json_lines(broken / "result.json")[-1]["iterations_since_restore"] < len(times)


def test_late_column_is_appended_and_empty_in_earlier_rows(tmp_path: Path) -> None:
    run = train({**DUEL, "results": {"every": 5}}, tmp_path / "run")
    rows = table(run / "progress.csv")
    assert list(rows[0])[:2] == ["training_iteration", "ticks"]
    late = [name for name in rows[0] if name.startswith("info/learner/blue/")]
    assert list(rows[0])[-len(late) :] == late, "there is no update before tick 7"
    assert {rows[0][name] for name in late} == {""}
    assert "" not in {rows[-1][name] for name in late}
    assert set(CLOCK) - {"sampler_perf"} <= set(rows[0])


def test_sampler_perf_splits_the_time_of_workers(tmp_path: Path) -> None:
    ppo = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
    run = train({**DUEL, "policies": {"blue": ppo, "red": RANDOM}}, tmp_path / "run", profile=True)
    for line in json_lines(run / "result.json"):
        perf = line["sampler_perf"]
        assert set(perf) == {"mean_env_wait_ms", "mean_inference_ms", "mean_processing_ms"}
        assert all(value > 0 for value in perf.values())


def test_loggers_that_are_left_out_write_nothing(tmp_path: Path) -> None:
    run = train({**DUEL, "loggers": []}, tmp_path / "run")
    assert (run / "result.json").exists()
    assert not (run / "progress.csv").exists()
    assert not (run / "tensorboard").exists()


METERED = {
    **DUEL,
    "envs": {"game": TOUCHDOWN, "metered": {"make": "games:WithMetrics", "kwargs": {"length": 4}}},
    "policies": {"blue": LEARNER, "red": RANDOM, "alone": RANDOM},
    "matches": [
        {"env": "game", "seats": ["blue", "red"], "lanes": 2},
        {"env": "metered", "seats": ["alone"], "lanes": 3},
    ],
    "callbacks": ["recorders:Measures"],
}


@pytest.mark.parametrize(("every", "smoothing"), [(4, 1), (20, 7)])
def test_metrics_of_games_and_callbacks_are_in_the_results(every: int, smoothing: int, tmp_path: Path) -> None:
    data = {**METERED, "results": {"every": every, "smoothing": smoothing}}
    lines = check(train(data, tmp_path / "run"))
    names = [{key.rpartition("_")[0] for key in line["custom_metrics"]} for line in lines]
    assert names[-1] == {"score", "reward", "lane", "updates", "at_checkpoint"}
    assert all(earlier <= later for earlier, later in pairwise(names)), "names are never removed"
    folder = RunFolder(train(data, tmp_path / "broken"))
    for tick in (80, 40):
        boundary.discard_after(folder, tick)
        lines_before = folder.results.read_text().splitlines(keepends=True)
        folder.results.write_text("".join(line for line in lines_before if json.loads(line)["ticks"] < tick))
        train(data, folder.path, resume=True)
        assert without_clock(folder.path) == without_clock(tmp_path / "run")
        # An episode of one match and an update may be heard of in another order.
        known = (tmp_path / "run" / "measures.jsonl").read_text()
        assert sorted(folder.measures.read_text().splitlines()) == sorted(known.splitlines())
    seats = [seat for line in json_lines(folder.episodes) for seat in line["seats"]]
    assert {"metrics" in seat for seat in seats} == {True, False}
    assert all(set(seat["metrics"]) == {"score"} for seat in seats if "metrics" in seat)


# Stop rules


def left(run: Path) -> dict[str, bytes]:
    """The files of the run, without values that depend on the clock."""
    checkpoints = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*.ckpt")}
    updates = [{**line, "seconds": 0} for line in json_lines(run / "metrics.jsonl")]
    return {**checkpoints, "episodes": (run / "episodes.jsonl").read_bytes(), "updates": repr(updates).encode()}


@pytest.mark.parametrize(
    ("stop", "tick", "words"),
    [
        ({"ticks": 45}, 80, "ticks >= 45"),
        ({"evaluation/episodes_this_iter": 1}, 80, "evaluation/episodes_this_iter >= 1"),
        ({"episode_len_mean": {"at_most": 15}}, 40, "episode_len_mean <= 15"),
    ],
)
def test_run_ended_by_a_rule_is_a_prefix_of_the_longer_run(
    stop: Any, tick: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {**DUEL, "results": {"every": 10}, "evaluation": {"every": 80, "episodes": 2}}
    run = train({**data, "stop": stop}, tmp_path / "run")
    assert f"stopped at tick {tick}: {words.split()[0]}" in capsys.readouterr().out
    shorter = train({**data, "ticks": tick, "evaluation": data["evaluation"]}, tmp_path / "shorter")
    assert left(run) == left(shorter)
    *before, last = without_clock(run)
    assert (last["ticks"], last["done"], last["stopped_by"]) == (tick, True, words)
    *same, shorter_last = without_clock(shorter)
    assert before == same
    assert last == {**shorter_last, "stopped_by": words} or tick == 40, "a run of 40 ticks is evaluated at its end"
    config = parse_config({"name": "test", **data, "stop": stop}, source="test")
    assert run_status(RunFolder(run), config, played=tick) is RunStatus.FINISHED
    with pytest.raises(ConfigError, match=f"a stop rule has ended the run at tick {tick}: {words.split()[0]}"):
        train({**data, "stop": stop}, run, resume=True)
    train({**data, "stop": {"ticks": 1000}}, run, resume=True)
    assert left(run) == left(train(data, tmp_path / "whole"))
    assert without_clock(run) == without_clock(tmp_path / "whole")


def test_resume_marks_a_run_killed_before_its_done_result(tmp_path: Path) -> None:
    data = {**DUEL, "results": {"every": 10}, "stop": {"ticks": 45}}
    run = train(data, tmp_path / "run")
    known = without_clock(run)
    for kept in (7, 8):  # the boundary at tick 80 is on the disk; its result is, too, but does not say `done`
        lines = (run / "result.json").read_text().splitlines(keepends=True)[:kept]
        lines[-1] = lines[-1].replace('"done":true,"stopped_by":"ticks >= 45"', '"done":false,"stopped_by":null')
        (run / "result.json").write_text("".join(lines))
        train(data, run, resume=True)
        assert without_clock(run) == known
    run = train(DUEL, tmp_path / "ended")
    with pytest.raises(ConfigError, match="nothing left to do; ask for more with --ticks"):
        train(DUEL, run, resume=True)


def test_clock_rule_and_single_leg_rule_end_the_run_at_once(tmp_path: Path) -> None:
    long = {**DUEL, "ticks": 20_000, "checkpoint_every": 10_000, "results": {"every": 10}}
    run = train({**long, "stop": {"time_total_s": 0.5}}, tmp_path / "clock")
    assert without_clock(run)[-1]["stopped_by"] == "time_total_s >= 0.5"
    assert without_clock(run)[-1]["ticks"] < 10_000
    # The second logs nothing, so no update is waited for; of the third, one worker soon leaves.
    for name in ("LogsWithoutState", "Uniform", "LeavesTheWriter"):
        stateless = {**long, "policies": {"blue": {"algorithm": f"workers:{name}"}, "red": RANDOM}}
        run = train({**stateless, "stop": {"episodes_total": 5}}, tmp_path / name)
        assert without_clock(run)[-1]["stopped_by"] == "episodes_total >= 5"
        assert without_clock(run)[-1]["ticks"] < 10_000


def test_rule_with_a_key_in_no_result_is_named_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train({**DUEL, "stop": {"custom_metrics/goals_mean": 1, "ticks": 1e6}}, tmp_path / "run")
    said = capsys.readouterr().out
    assert "stop rules of which no result had the key: custom_metrics/goals_mean; the keys were: agent_times" in said


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("start", "measure() belongs into on_episode, on_update, on_checkpoint or on_round; on_start has called it"),
        ("name", "ValueError: a metric cannot be named '_x': letters, digits and '_', the first a letter"),
        ("value", "TypeError: the metric 'x' is a str; it has to be a number"),
    ],
)
def test_wrong_measurement_ends_the_run_and_is_named(
    where: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    callback = {"class": "recorders:MeasuresWrongly", "options": {"where": where}}
    data = {**DUEL, "callbacks": [callback]}
    train(data, tmp_path / "run", code=1)
    said = capfd.readouterr().err
    assert "callback recorders:MeasuresWrongly" in said
    assert words in said


def test_report_shows_the_rewards_of_the_results(tmp_path: Path) -> None:
    run = train({**DUEL, "results": {"every": 20}}, tmp_path / "run")
    data = page_data(read_run(run))
    lines = json_lines(run / "result.json")
    of_all, by_policy = data.results["episode_reward_mean"][""], data.results["policy_reward_mean"]
    assert of_all.ticks == [line["ticks"] for line in lines]
    assert of_all.values == [line["episode_reward_mean"] for line in lines]
    assert by_policy["blue"].values == [line["policy_reward_mean"]["blue"] for line in lines]
    assert 'data-chart="results-policy_reward_mean"' in write_report(run).read_text()
