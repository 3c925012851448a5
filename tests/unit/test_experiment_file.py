"""Experiment files: their trials, in order and with names; and refused mistakes."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hanging
from arena.config import Config
from arena.config.schema import Policy
from arena.errors import ConfigError
from arena.experiment import Experiment
from arena.experiment.checks import checking
from arena.experiment.config import ExperimentConfig, parse_experiment, read_experiment
from arena.experiment.plan import ExperimentPlan, plan_experiment
from arena.experiment.trials import Trials, digest_of
from arena.experiment.variation import Range, labels
from experiment_folders import GAMMA, RATE, RUN
from run_cli import living, silence_limit, wait_for


def planned(**keys: Any) -> ExperimentPlan:
    return plan_experiment(parse_experiment({"run": RUN, **keys}, source="sweep.yaml"))


def test_grids_are_multiplied_in_the_order_of_the_file_then_seeds() -> None:
    rates, gammas = [1e-4, 1e-3], [0.9, 0.95, 0.99]
    plan = planned(set={RATE: {"grid_search": rates}, GAMMA: {"grid_search": gammas}}, repeat=2)
    expected = [({RATE: r, GAMMA: g}, s) for r, g, s in itertools.product(rates, gammas, (7, 8))]
    assert [(trial.params, trial.seed) for trial in plan.known] == expected
    for trial in plan.known:
        config = plan.trials.config_of("", trial.params, trial.seed - 7)
        options = config.policies["blue"].options
        assert (options["learning_rate"], options["gamma"], config.seed) == (*trial.params.values(), trial.seed)


def test_forms_are_allowed_in_the_run_and_in_set_mappings() -> None:
    run = {**RUN, "ticks": {"grid_search": [10, 20]}, "policies": {"red": {"algorithm": "random"}}}
    blue = {"algorithm": "ppo", "options": {"gamma": {"grid_search": [0.9, 0.8]}, "hidden_sizes": {"literal": [8, 8]}}}
    plan = planned(run=run, set={"policies.blue": blue})
    assert [[*trial.params.items()] for trial in plan.known] == [
        [("ticks", ticks), (GAMMA, gamma)] for ticks in (10, 20) for gamma in (0.9, 0.8)
    ]
    assert plan.trials.config_of("", plan.known[0].params).policies["blue"].options["hidden_sizes"] == [8, 8]


def test_set_replaces_forms_of_the_run() -> None:
    plan = planned(run={**RUN, "ticks": {"grid_search": [10, 20]}}, set={"ticks": 30})
    assert [(trial.params, plan.trials.config_of("", trial.params).ticks) for trial in plan.known] == [({}, 30)]


def test_forms_in_a_run_file_are_plain_values(tmp_path: Path) -> None:
    red = {"algorithm": "fakes:Passive", "options": {"how": {"choice": [1]}}}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**RUN, "policies": {**RUN["policies"], "red": red}}))
    trials = Trials(parse_experiment({"run": str(path), "set": {GAMMA: {"grid_search": [0.1]}}}))
    assert [each.path for each in trials.variants[0].varied] == [GAMMA]
    assert trials.config_of("", {GAMMA: 0.1}).policies["red"].options == {"how": {"choice": [1]}}


def test_variants_come_in_order_each_with_its_own_set() -> None:
    variants = {
        "ppo": {"set": {RATE: {"grid_search": [1, 2]}}},
        "a2c": {"set": {"policies.blue": {"algorithm": "a2c"}}},
    }
    plan = planned(variants=variants, set={"ticks": 20}, repeat=2)
    assert [(trial.variant, trial.params.get(RATE), trial.seed) for trial in plan.known] == [
        *(("ppo", rate, seed) for rate in (1, 2) for seed in (7, 8)),
        *(("a2c", None, seed) for seed in (7, 8)),
    ]
    assert {plan.trials.config_of(trial.variant, trial.params).ticks for trial in plan.known} == {20}
    assert plan.trials.config_of("a2c", {}).policies["blue"].algorithm == "a2c"
    assert plan.trials.tag(plan.known[0]) == "ppo,learning_rate=1,seed=7"


def test_command_line_overrides_set_of_file_and_variants() -> None:
    data = {"run": RUN, "set": {"ticks": 20}, "variants": {"a": {"set": {"ticks": 30, GAMMA: 0.1}}}}
    file = parse_experiment(data, overrides=["ticks=40", f"{RATE}={{grid_search: [1, 2]}}"], repeat=3)
    plan = plan_experiment(file)
    assert {plan.trials.config_of("a", trial.params).ticks for trial in plan.known} == {40}
    assert len(plan.known) == 6


@pytest.mark.parametrize(
    ("paths", "short"),
    [
        (["policies.a.options.gamma", "ticks"], ["gamma", "ticks"]),
        (["policies.a.options.gamma", "policies.b.options.gamma"], ["a.options.gamma", "b.options.gamma"]),
        (["matches[0].lanes", "matches[1].lanes"], ["matches.0.lanes", "matches.1.lanes"]),
        (["policies.a.options.hidden_sizes[0]"], ["hidden_sizes.0"]),
    ],
)
def test_labels_are_as_short_as_distinct_keys_allow(paths: list[str], short: list[str]) -> None:
    assert [*labels(paths).values()] == short


def test_names_of_folders_keep_safe_characters_and_are_short() -> None:
    plan = planned(set={"policies.blue.options.hidden_sizes": {"grid_search": [[64, 64], [8] * 90]}})
    tags = [plan.trials.tag(trial) for trial in plan.known]
    assert tags[0] == "hidden_sizes=_64,64_"
    assert len(tags[1]) == 100
    drawn = planned(set={RATE: {"grid_search": [0.0016247690177361863, 0.003, 1]}})
    assert [drawn.trials.tag(trial) for trial in drawn.known] == [
        "learning_rate=0.00162477",
        "learning_rate=0.003",
        "learning_rate=1",
    ]


def test_digests_differ_by_run_but_not_by_name_or_stop() -> None:
    plan = planned(set={GAMMA: {"grid_search": [0.9, 0.8]}}, repeat=2)
    assert len({trial.digest for trial in plan.known}) == 4
    one = plan.trials.config_of("", {GAMMA: 0.9}, name="one")
    assert digest_of(one) == digest_of(plan.trials.config_of("", {GAMMA: 0.9}, name="other"))
    again = planned(set={GAMMA: {"grid_search": [0.8, 0.9]}}, repeat=3)
    assert {trial.digest for trial in plan.known} < {trial.digest for trial in again.known}


@pytest.mark.parametrize(("integer", "log"), [(False, True), (True, False)])
def test_draws_of_a_range_are_spread_evenly_between_its_ends(integer: bool, log: bool) -> None:
    form = Range(2, 40, integer, log)
    rng = np.random.default_rng(0)
    drawn = np.array([form.draw(rng) for _ in range(4000)])
    assert drawn.min() >= 2 and drawn.max() <= 40
    if integer:
        assert {*drawn.tolist()} == {*range(2, 41)} and all(isinstance(form.draw(rng), int) for _ in range(3))
    low, high = (1.5, 40.5) if integer else (2, 40)
    middle = np.sqrt(low * high) if log else (low + high) / 2
    assert abs(np.mean(drawn < middle) - 0.5) < 0.04


# mistakes

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"repeats": 3}, "repeats: unknown key 'repeats'; did you mean 'repeat'?"),
    "in the metric": ({"metric": {"nam": "x"}}, "metric.nam: unknown key 'nam'; did you mean 'name'?"),
    "scope": ({"metric": {"scope": "last-7"}}, "metric.scope: found 'last-7'"),
    "no path": ({"set": {"a b": 1}}, "set.a b: is no key path"),
    "unknown place": (
        {"set": {"policies.bleu.options.gamma": 0.5}},
        "set.policies.bleu.options.gamma: the key 'algorithm' is missing, and has no default (policies.bleu was made "
        "by this; did you mean 'blue'?",
    ),
    "through a number": ({"set": {"ticks.x": 1}}, "set.ticks.x: holds 10"),
    "wrong value": ({"set": {"ticks": {"grid_search": [5, -5]}}}, "set.ticks: found -5; expected a whole number"),
    "in the run": ({"run": {**RUN, "ticks": {"grid_search": [0]}}}, "run.ticks: found 0"),
    "empty grid": ({"set": {"ticks": {"grid_search": []}}}, "set.ticks.grid_search: found []; expected a list"),
    "spelled": ({"set": {GAMMA: {"log_uniform": [0.1, 1]}}}, f"set.{GAMMA}.log_uniform: unknown form 'log_uniform'"),
    "mistyped": (
        {"set": {"seed": {"grid_serch": [1]}}},
        "set.seed.grid_serch: unknown form 'grid_serch'; did you mean",
    ),
    "wrong ends": ({"set": {GAMMA: {"uniform": [1, 1]}}}, f"set.{GAMMA}.uniform: found [1, 1]; the first end"),
    "no logarithm": ({"set": {GAMMA: {"loguniform": [0, 1]}}}, f"set.{GAMMA}.loguniform: found [0, 1]; a logarithm"),
    "no integers": ({"set": {GAMMA: {"integers": [0.5, 1]}}}, f"set.{GAMMA}.integers: found [0.5, 1]; expected two"),
    "search forms": (
        {"set": {GAMMA: {"uniform": [0, 1]}}},
        f"set.{GAMMA}: is searched, but the experiment has no `search`",
    ),
    "nothing to search": ({"search": {"random": {"trials": 3}}}, "search: there is nothing to search"),
    "unknown search": ({"search": {"rnd": {"trials": 3}}}, "search: unknown search 'rnd'; did you mean"),
    "no number": ({"search": {"random": {}}}, "search.random: the key 'trials' is missing"),
    "equal trials": (
        {"set": {GAMMA: {"grid_search": [0.5, 0.50]}}},
        "trials 0 (gamma=0.5,seed=7) and 1 (gamma=0.5,seed=7) have the same configuration",
    ),
    "too many": (
        {"set": {GAMMA: {"grid_search": [*range(400)]}, RATE: {"grid_search": [*range(400)]}}},
        "asks for 160000 trials; at most 100000",
    ),
    "metric": ({"metric": "policy_reward_mean/bleu"}, "metric: unknown policy 'bleu'; did you mean 'blue'?"),
    "number of a mapping": ({"metric": "policy_reward_mean"}, "metric: is a mapping; name one of its numbers"),
    "stop": (
        {"stop": {"episode_reward_men": 3}},
        "stop.episode_reward_men: no result has 'episode_reward_men'; did you mean",
    ),
    "name": ({"name": "a b"}, "name: found 'a b'; a name becomes a folder"),
    "share of devices": ({"gpus": 1.5}, "gpus: found 1.5; expected a whole number, or a share of one device"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_with_their_place_in_the_file(mistake: str) -> None:
    keys, message = MISTAKES[mistake]
    with pytest.raises(ConfigError) as caught:
        planned(**keys)
    assert str(caught.value).startswith(f"sweep.yaml: {message}")


def test_experiment_without_its_run_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^sweep.yaml: the key 'run' is missing"):
        parse_experiment({"repeat": 2}, source="sweep.yaml")
    with pytest.raises(ConfigError, match=r"^sweep\.yaml: run: nowhere\.yaml: there is no such file"):
        planned(run="nowhere.yaml")


def test_keywords_of_an_experiment_are_the_keys_of_its_file_with_their_defaults() -> None:
    declared = inspect.signature(Experiment).parameters
    assert {*declared} == {*ExperimentConfig.__struct_fields__}
    given = {name: parameter.default for name, parameter in declared.items() if parameter.default is not None}
    assert Experiment(run=RUN)._file == Experiment(**{**given, "run": RUN})._file == parse_experiment({"run": RUN})
    with pytest.raises(TypeError, match="unexpected keyword argument 'rnu'"):
        Experiment(rnu=RUN)  # type: ignore[call-arg]


def test_an_experiment_over_something_else_than_a_configuration_is_refused() -> None:
    wrong: Any
    for wrong in (Policy(algorithm="ppo"), 3, None):
        with pytest.raises(ConfigError, match=r"^run: found .* expected a configuration: the path of a file"):
            Experiment(run=wrong)


def test_a_mapping_with_a_name_near_a_form_is_a_value() -> None:
    run = {**RUN, "envs": {"game": {"make": "touchdown", "kwargs": {"own": {"choices": [1, 2]}}}}}
    (variant,) = Trials(parse_experiment({"run": run})).variants
    assert variant.varied == ()


def test_mistakes_of_a_trial_name_its_values() -> None:
    with pytest.raises(ConfigError, match=r"\(trial gamma=0.5,ticks=-1\)"):
        planned(set={GAMMA: {"grid_search": [0.5]}, "ticks": {"grid_search": [1, -1]}})


def test_mistakes_of_the_command_line_name_the_option() -> None:
    with pytest.raises(ConfigError, match=r"^--set metric=x: `metric` is a key of the experiment's file; `--set`"):
        parse_experiment({"run": RUN}, overrides=["metric=x"])
    file = parse_experiment({"run": RUN}, source="sweep.yaml", overrides=["ticks=-3"])
    with pytest.raises(ConfigError, match=r"^--set ticks=-3: ticks: found -3"):
        plan_experiment(file)


def test_files_of_runs_and_of_experiments_name_the_other_command(tmp_path: Path) -> None:
    from arena.config import load_config

    run, sweep = tmp_path / "run.yaml", tmp_path / "sweep.yaml"
    run.write_text(yaml.safe_dump(RUN))
    sweep.write_text(yaml.safe_dump({"run": str(run)}))
    with pytest.raises(ConfigError, match="is the configuration of a run; start it with `arena train"):
        read_experiment(run)
    with pytest.raises(ConfigError, match="is an experiment, as it has the key 'run'; start it with `arena experiment"):
        load_config(sweep)


@pytest.mark.slow
def test_every_value_is_tried_without_torch_in_this_process() -> None:
    import subprocess
    import sys

    program = (
        "import sys, yaml\n"
        "from arena.experiment.checks import checking\n"
        "from arena.experiment.config import parse_experiment\n"
        "from arena.experiment.plan import plan_experiment\n"
        "from arena.errors import ConfigError\n"
        "try:\n"
        "    with checking() as first:\n"
        "        plan_experiment(parse_experiment(yaml.safe_load(sys.stdin), source='s.yaml'), first)\n"
        "except ConfigError as error: print(error)\n"
        "print('torch' in sys.modules, 'mpi4py' in sys.modules)\n"
    )
    data = {"run": RUN, "set": {"policies.blue.options.n_steps": {"grid_search": [5, "many"]}}}
    done = subprocess.run(
        [sys.executable, "-c", program], input=yaml.safe_dump(data), capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("s.yaml: set.policies.blue.options.n_steps: ") and "(trial n_steps=many)" in lines[0]
    assert lines[-1] == "False False"


def hanging_config(make: str, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> Config:
    """A run of one of the games of `hanging`, whose only policy needs no torch."""
    monkeypatch.setenv("PYTHONPATH", str(Path(hanging.__file__).parent))
    parts = {
        "envs": {"game": {"make": f"hanging:{make}", "kwargs": kwargs}},
        "policies": {"a": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["a"]}],
        "watchdog_s": silence_limit(5),
    }
    return Trials(parse_experiment({"run": {**RUN, **parts}})).config_of("", {})


@pytest.mark.slow
def test_check_of_a_hanging_game_ends_and_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    config = hanging_config("Hangs", monkeypatch, way="among_threads", where="make")
    where = r"cannot be tried \(exit 1\)\nTimeout \(0:\d\d:\d\d.*\)!\nThread .*\n.* in sleep\n.* in among_threads\n"
    with checking(limit=1.0) as first_mistake, pytest.raises(ConfigError, match=where):
        first_mistake([config])


def test_check_ends_processes_of_a_game_without_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = hanging_config("LeavesProcess", monkeypatch, folder=str(tmp_path))
    with checking() as first_mistake:
        assert first_mistake([config]) is None
    wait_for(lambda: not living(tmp_path))
    assert not (tmp_path / "ended").exists()


def test_trials_keep_their_best_checkpoints_by_the_metric() -> None:
    plan = planned(metric={"name": "policy_reward_mean/blue", "mode": "min"})
    best = plan.trials.config_of("", {}).best
    assert best is not None and (best.metric, best.mode) == ("policy_reward_mean/blue", "min")
    own = planned(run={**RUN, "best": {"metric": "episode_len_mean"}}).trials.config_of("", {}).best
    assert own is not None and own.metric == "episode_len_mean", "unless the run says what is best"


@pytest.mark.parametrize("key", ["envs.game.make", "policies.blue.algorithm"])
def test_classes_of_the_program_are_refused_in_experiments(key: str) -> None:
    run = {
        "ticks": 10,
        "envs": {"game": {"make": "matrix"}},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "blue"]}],
    }
    with pytest.raises(ConfigError, match="found '__main__:BidWar', a class of this program") as found:
        plan_experiment(parse_experiment({"run": run, "set": {key: "__main__:BidWar"}}))
    assert found.value.path == f"set.{key}"
