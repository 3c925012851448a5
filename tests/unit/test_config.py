"""A configuration is read, overridden and checked; every mistake says where it is and what is allowed."""

from __future__ import annotations

import copy
import re
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config import Config, load_config, parse_config, resolved_yaml, yaml
from arena.config.fields import Keys
from arena.config.matches import Match
from arena.errors import ConfigError
from arena.plan.build import make_plan

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

VALID: dict[str, Any] = {
    "name": "duel",
    "ticks": 100,
    "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 2}}},
    "policies": {
        "blue": {"algorithm": "ppo", "options": {"learning_rate": 1e-3}, "color": "#1f77b4"},
        "red": {"algorithm": "random"},
    },
    "matches": [
        {"env": "game", "seats": [["blue", "blue"], "red", "red"], "entities": [0, "blue_1", 2, 3], "lanes": 4},
        {"round_robin": {"env": "game", "policies": ["blue", "red"], "team_size": 2}},
    ],
}


def parse(data: Any = VALID, *overrides: str) -> Config:
    return parse_config(data, source="duel.yaml", overrides=overrides)


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """The valid data with another value in one place."""
    data = copy.deepcopy(VALID)
    node: Any = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return data


def error_of(data: Any, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(data, *overrides)
    return caught.value


def refusal(action: Callable[[], object]) -> ConfigError | None:
    """The configuration error of an action; any other error fails the test."""
    try:
        action()
    except ConfigError as error:
        return error
    return None


# What is read


def independent(*matches: Any, blue: Any = None, **changes: Any) -> dict[str, Any]:
    """A configuration whose blue policy has workers that learn alone."""
    blue, red = {"algorithm": "ppo", "independent": True, **(blue or {})}, {"algorithm": "random"}
    return {"ticks": 100, "envs": VALID["envs"], "policies": {"blue": blue, "red": red}, "matches": matches, **changes}


TEAMS = {"env": "game", "seats": ["blue", "blue", "red", "red"]}


def test_independent_workers_become_separate_policies() -> None:
    together = {"env": "game", "seats": [["blue", "blue"], ["red", "red"]], "lanes": 3}
    others = {"env": "game", "seats": [["red"] * 4], "copies": 5}
    pair = {"round_robin": {"env": "game", "policies": ["red", "blue"], "team_size": 2}}
    config = parse(independent({**TEAMS, "copies": 2}, others, together, pair))
    assert list(config.policies) == [*(f"blue#{number}" for number in range(7)), "red"]
    assert not any(policy.independent for policy in config.policies.values())
    assert [(match.seats, match.known_sides, match.copies, match.lanes) for _, match in config.entries()] == [
        (("blue#0", "blue#1", "red", "red"), ((0, 1), (2, 3)), 1, 1),
        (("blue#2", "blue#3", "red", "red"), ((0, 1), (2, 3)), 1, 1),
        ((("red",) * 4,), (), 5, 1),
        ((("blue#4", "blue#4"), ("red", "red")), ((0,), (1,)), 1, 3),
        (("red", "red", "blue#5", "blue#6"), ((0, 1), (2, 3)), 1, 1),
    ]
    assert {len(policy.workers) for name, policy in make_plan(config).policies.items() if name != "red"} == {1}
    assert parse(yaml.load(resolved_yaml(config), source="resolved")) == config


def test_independent_worker_names_are_reserved() -> None:
    data = independent(TEAMS)
    data["policies"]["blue#1"] = {"algorithm": "random"}
    assert error_of(data).path == "policies.blue#1"
    data["policies"]["blue#2"] = data["policies"].pop("blue#1")
    assert list(parse(data).policies) == ["blue#0", "blue#1", "red", "blue#2"]


@pytest.mark.parametrize(("name", "processes"), [("touchdown_2v2", 6), ("touchdown_1v1", 13), ("round_robin_4x5", 151)])
def test_shipped_examples_need_the_documented_processes(name: str, processes: int) -> None:
    assert make_plan(load_config(CONFIGS / f"{name}.yaml")).processes == processes


# Untrusted input


@pytest.mark.parametrize(
    "name", ["../../x", "a;rm -rf", "-x", "", ".", "..", ".x", "a/b", "a b", "$(id)", "x\n", "\u00e9", "x" * 101]
)
@pytest.mark.parametrize("place", ["name", "envs", "policies"])
def test_name_like_a_path_option_or_command_is_refused(name: str, place: str) -> None:
    data = copy.deepcopy(VALID)
    data[place] = name if place == "name" else {name: next(iter(data[place].values())), **data[place]}
    assert "cannot be used" in error_of(data).message


SNAPSHOT = {"algorithm": "ppo", "load": "old.ckpt", "frozen": True}


def test_a_snapshot_can_be_a_policy_under_its_own_name() -> None:
    data = copy.deepcopy(VALID)
    data["policies"]["old@5000"] = SNAPSHOT
    config = parse(data)
    assert parse_config(yaml.load(resolved_yaml(config), source="again"), source="again") == config


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("old@5000", {"frozen": False}, "is the name of a snapshot"),
        ("old@5000", {"load": None}, "is the name of a snapshot"),
        ("blue@5000", {}, "could be the name of a snapshot of 'blue', which learns"),
        ("old@", {}, "cannot be used"),
        ("old@x", {}, "cannot be used"),
        ("old@5@6", {}, "cannot be used"),
    ],
)
def test_a_name_with_a_tick_is_for_snapshots_alone(name: str, changes: dict[str, Any], words: str) -> None:
    data = copy.deepcopy(VALID)
    data["policies"][name] = SNAPSHOT | changes
    assert words in error_of(data).message


@pytest.mark.parametrize(
    "override",
    ["matches[0].copies=1e9", "matches[0].copies=125000", "matches[1].round_robin.team_size=1e12"],
)
def test_too_many_roles_are_refused_before_expansion(override: str) -> None:
    error = error_of(VALID, override)
    assert error.path == "matches"
    assert re.search(r"asks for \d+ roles, more than 500000", error.message)


@pytest.mark.parametrize("value", ["0", ".nan", ".inf", "1e9", "soon"])
def test_time_beyond_the_clock_is_refused(value: str) -> None:
    assert error_of(VALID, f"watchdog_s={value}").path == "watchdog_s"


def test_numbers_that_a_float_cannot_hold_are_refused() -> None:
    assert parse(VALID, f"ticks={2**53 - 1}").ticks == 2**53 - 1
    assert error_of(VALID, f"ticks={2**53}").path == "ticks"


def test_endless_file_is_refused(tmp_path: Path) -> None:
    assert "longer than 100000 bytes" in str(refusal(lambda: load_config("/dev/zero")))
    (tmp_path / "x.yaml").write_bytes(b"#" * 100_001)
    assert "longer than 100000 bytes" in str(refusal(lambda: load_config(tmp_path / "x.yaml")))


@settings(max_examples=40)
@given(st.text(max_size=30), st.text(max_size=10))
def test_any_override_raises_only_configuration_errors(path: str, value: str) -> None:
    error = refusal(lambda: parse(VALID, f"{path}={value}"))
    assert error is None or str(error).startswith(("--set", "duel.yaml"))


# Mistakes, one by one


@pytest.mark.parametrize(
    ("place", "value", "path", "message"),
    [
        (["tics"], 3, "tics", "unknown key 'tics'; did you mean 'ticks'?"),
        (["envs", "game", "mak"], 3, "envs.game.mak", "did you mean 'make'?"),
        (["policies", "red", "colour"], "#000000", "policies.red.colour", "did you mean 'color'?"),
        (["matches", 0, "lane"], 1, "matches[0].lane", "did you mean 'lanes'?"),
        (["matches", 1, "copies"], 1, "matches[1].copies", "known: round_robin"),
        (["matches", 1, "round_robin", "teamsize"], 1, "matches[1].round_robin.teamsize", "did you mean 'team_size'?"),
        (["ticks"], 0, "ticks", "found 0; expected a whole number, at least 1"),
        (["ticks"], True, "ticks", "found true; expected a whole number, at least 1"),
        (["ticks"], "many", "ticks", "found 'many'; expected a whole number, at least 1"),
        (["seed"], -1, "seed", "found -1; expected a whole number, at least 0"),
        (["seed"], 1.5, "seed", "found 1.5"),
        (["seed"], 10**30, "seed", f"found {10**30}; expected a whole number, at least 0 and at most"),
        (["rounds"], 0, "rounds", "expected a whole number, at least 1"),
        (["matches", 0, "sides"], [[0, 1, 2]], "matches[0].sides", "two or more"),
        (["matches", 0, "sides"], [[0, 1, 2], []], "matches[0].sides", "each side has a seat"),
        (["matches", 0, "sides"], [[0, 3], [1, 2]], "matches[0].sides", "exactly one side"),
        (["checkpoint_every"], 0, "checkpoint_every", "expected a whole number, at least 1"),
        (["scale"], "yes please", "scale", "expected true or false, got text"),
        (["name"], "..", "name", "a name becomes a folder"),
        (["envs"], {}, "envs", "at least one is needed"),
        (["envs", "a b"], {"make": "x"}, "envs", "the name 'a b' cannot be used"),
        (["policies", 3], {"algorithm": "x"}, "policies", 'the name 3, which YAML does not read as text; write "3"'),
        (["matches", 0, "seats", 0], 3, "matches[0].seats[0]", 'got integer; in quotes it is text: "3"'),
        (["name"], 3, "name", 'expected text, got integer; in quotes it is text: "3"'),
        (["policies", "red", "algorithm"], 3, "policies.red.algorithm", "expected text, got integer"),
        (["policies", "red", "color"], "red", "policies.red.color", 'a color as "#1f77b4"'),
        (["policies", "red", "sync"], "gradient", "policies.red.sync", "did you mean 'gradients'? known: gradients, s"),
        (["policies", "red", "reduce"], "fast", "policies.red.reduce", "leave it out. Where it was `fast` with"),
        (["policies", "red", "max_lag"], 2, "policies.red.max_lag", "only with `sync: samples` are workers ahead"),
        (["policies", "red"], "random", "policies.red", "expected a mapping of keys to values, such as {algorithm: "),
        (["policies", "red"], {}, "policies.red", "the key 'algorithm' is missing, and has no default"),
        (["matches"], [], "matches", "at least one is needed"),
        (["matches"], {}, "matches", "found {}; expected a list"),
        (["envs"], {"make": "x"}, "envs", "found one Env without a name; give it one, as {game: {make: "),
        (["matches", 0, "env"], "gam", "matches[0].env", "unknown environment 'gam'; did you mean 'game'?"),
        (["matches", 0, "seats"], [], "matches[0].seats", "at least one seat"),
        (["matches", 0, "seats", 2], "rod", "matches[0].seats[2]", "unknown policy 'rod'; did you mean 'red'?"),
        (["matches", 0, "seats", 0, 1], "blu", "matches[0].seats[0][1]", "did you mean 'blue'?"),
        (["matches", 0, "seats", 0, 1], "red", "matches[0].seats[0]", "they are all of one policy"),
        (["matches", 0, "seats", 1], [], "matches[0].seats[1]", "is empty"),
        (["matches", 0, "seats", 1], [["red"]], "matches[0].seats[1][0]", "expected text, got list"),
        (["matches", 0, "entities"], [0, 1], "matches[0].entities", "found 2 for 4 entries"),
        (["matches", 0, "entities", 3], 2, "matches[0].entities[3]", "2 is listed twice"),
        (["matches", 0, "entities", 3], -1, "matches[0].entities[3]", "expected integer >= 0"),
        (["matches", 0, "copies"], 0, "matches[0].copies", "expected a whole number, at least 1"),
        (["matches", 0, "lanes"], -4, "matches[0].lanes", "expected a whole number, at least 1"),
        (["matches", 0, "pipeline"], 3, "matches[0].pipeline", "expected a whole number, at least 1 and at most 2"),
        (["matches", 1, "round_robin", "pipeline"], 2, "matches[1].round_robin.pipeline", "there is 1 lane: each half"),
        (["matches", 1, "round_robin", "policies"], ["red"], "matches[1].round_robin.policies", "two or more"),
        (["matches", 1, "round_robin", "policies", 1], "blue", "matches[1].round_robin.policies[1]", "listed twice"),
        (["matches", 1, "round_robin", "policies", 1], "x", "matches[1].round_robin.policies[1]", "unknown policy"),
        (["matches", 1, "round_robin", "env"], "x", "matches[1].round_robin.env", "unknown environment"),
    ],
)
def test_a_mistake_is_named_with_its_place(place: list[Any], value: Any, path: str, message: str) -> None:
    error = error_of(changed(place, value))
    assert error.path == path
    assert message in error.message
    assert str(error).startswith(f"duel.yaml: {path}: ")


@pytest.mark.parametrize("key", ["ticks", "envs", "policies", "matches"])
def test_a_missing_key_is_named(key: str) -> None:
    error = error_of({name: value for name, value in VALID.items() if name != key})
    assert f"the key {key!r} is missing, and has no default" in str(error)


def test_all_missing_keys_are_named() -> None:
    error = error_of({"name": "duel", "matches": []})
    assert "the keys 'ticks', 'envs', 'policies' are missing, and have no defaults" in str(error)


# Files


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "duel.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"duell\.yaml: there is no such file; did you mean 'duel\.yaml'\?"):
        load_config(tmp_path / "duell.yaml")
    with pytest.raises(ConfigError, match=r"duel\.yaml/x: cannot be read: Not a directory$"):
        load_config(tmp_path / "duel.yaml" / "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"# nothing but a comment\n", "the file is empty"),
        (b"- 1\n- 2\n", r"is a mapping of keys to values, found \[1, 2\]"),
        (b"ticks: \xff\xfe", r"is not UTF-8 text \(byte 7 is wrong\); convert it"),
        (b"ticks: 3\nenvs: [1\n", "line 3"),
        (b"ticks: 3\n\tseed: 1\n", r"; indent by spaces, not by tabs\n  line 2"),
        (b"ticks: 3\nticks: 4\n", "given twice"),
    ],
)
def test_file_without_a_configuration_gives_its_reason(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))


def test_folder_of_a_run_names_its_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a directory; name a YAML file$"):
        load_config(tmp_path)
    (tmp_path / "config.yaml").write_text("")
    hint = f"{tmp_path}/config.yaml; `--resume --run-dir {tmp_path}` goes on with its run"
    with pytest.raises(ConfigError, match=re.escape(f"is a directory; name a YAML file, as {hint}")):
        load_config(tmp_path)


# Overrides


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("ticks=5", lambda config: config.ticks == 5),
        (
            "policies.red.options.deep.er=[1, {a: b}]",
            lambda config: config.policies["red"].options == {"deep": {"er": [1, {"a": "b"}]}},
        ),
        ("matches[0].lanes=9", lambda config: config.matches[0].lanes == 9),
        ("matches.0.lanes=9", lambda config: config.matches[0].lanes == 9),
        ("matches.0.seats.0.1=blue", lambda config: config.matches[0].seats[0] == ("blue", "blue")),
        ("matches[1].round_robin.copies=2", lambda config: config.matches[1].copies == 2),
        ("policies.green.algorithm=random", lambda config: config.policies["green"].algorithm == "random"),
        ("policies.red.load=", lambda config: config.policies["red"].load is None),
        ("policies.red.load=a=b", lambda config: config.policies["red"].load == "a=b"),
        (
            "matches=[{env: game, seats: [red]}]",
            lambda config: config.matches == (Match(env="game", seats=("red",)),),
        ),
    ],
)
def test_an_override_reaches_any_key(override: str, read: Any) -> None:
    assert read(parse(VALID, override))


def test_an_override_finds_keys_that_hold_dots() -> None:
    data = changed(["policies", "ppo.v2"], {"algorithm": "ppo", "options": {"net.size": 1}})
    config = parse(data, "policies.ppo.v2.frozen=true", "policies.ppo.v2.options.net.size=2")
    assert config.policies["ppo.v2"].frozen
    assert config.policies["ppo.v2"].options == {"net.size": 2}


@pytest.mark.parametrize("override", ["ticks=1e4", "ticks=10000.0", "seed=2e1", "matches[0].copies=2.0"])
def test_an_integer_may_be_written_as_a_float(override: str) -> None:
    key, value = override.split("=")
    found = parse(VALID, override)
    given = parse(VALID, f"{key}={int(float(value))}")
    assert found == given
    assert resolved_yaml(found) == resolved_yaml(given)


def test_wrong_key_of_an_override_is_reported_once() -> None:
    error = str(error_of(VALID, "polices.blue=1"))
    assert error.startswith("--set polices.blue=1: polices: unknown key 'polices'; did you mean 'policies'?")
    assert error.count("did you mean") == 1


def test_override_replaces_a_wrong_value_of_the_file_and_later_ones_win() -> None:
    assert parse(changed(["ticks"], 0), "ticks=5", "ticks=6").ticks == 6


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ticks=0", "ticks: found 0"),
        ("tics=3", "tics: unknown key 'tics'; did you mean 'ticks'?"),
        ("matches[0].lane=2", "matches[0].lane: unknown key 'lane'; did you mean 'lanes'?"),
        ("matches[0].seats[1]=rod", "matches[0].seats[1]: unknown policy 'rod'"),
        ("matches[7].lanes=2", "matches: is a list of 2, it has no place '7'"),
        ("matches.first.lanes=2", "matches: is a list of 2, it has no place 'first'"),
        ("ticks.more=2", "ticks: holds 100, which has nothing named 'more'"),
        (
            "policies.red.algorithm.randon=1",
            "policies.red.algorithm: holds 'random', which has nothing named 'randon'; did you mean 'random'?",
        ),
        (
            "policies.blu.options.gamma=1",
            "policies.blu: the key 'algorithm' is missing, and has no default "
            "(policies.blu was made by this; did you mean 'blue'?",
        ),
        ("policies.blue.colour.x=1", "policies.blue.colour: unknown key 'colour'; did you mean 'color'?"),
        (
            "league.snapshots.gate=20",
            "found 20: expected mapping or null, got integer; a mapping such as {elo: 20, alpha: 0.05, beta: 0.05}",
        ),
        ("league.snapshots=20", "such as {every: 1, keep: 20, keep_by: count, gate: null}"),
        ("league=20", "such as {snapshots: {...}, evolution: null, decided: null, prior: {}}"),
        ("name.duel.x=1", "name: found {'duel': {'x': 1}}: expected text"),
        ("ticks", "expected key.path=value"),
        ("=3", "expected key.path=value"),
        ("a..b=3", "expected key.path=value"),
        ("ticks=[1", "line 1, column 3"),
    ],
)
def test_a_wrong_override_is_named_instead_of_the_file(override: str, message: str) -> None:
    error = error_of(VALID, override)
    assert str(error).startswith(f"--set {override}: ")
    assert message in str(error)


# Contradictions


def with_keys(**keys: Any) -> dict[str, Any]:
    return {**VALID, "checkpoint_every": 30, **keys}


LEARNS_ALONE = "policies.blue.independent"
ONE_BOUND = "expected a number, {at_least: number} or {at_most: number}"


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (with_keys(results={"every": 7}), "results.every", "a divisor or a multiple of checkpoint_every (30)"),
        (with_keys(results={"every": 70}), "results.every", "such as 60"),
        (with_keys(results={"every": 0}), "results.every", "at least 1"),
        (with_keys(results={"smoothing": 0}), "results.smoothing", "at least 1"),
        (with_keys(results={"evry": 10}), "results.evry", "did you mean 'every'?"),
        (with_keys(results=5), "results", "expected a mapping"),
        (independent(TEAMS, rounds=2), LEARNS_ALONE, "several rounds"),
        (independent(TEAMS, scale=True), LEARNS_ALONE, "`scale: true`"),
        (independent(TEAMS, blue={"sync": "samples"}), LEARNS_ALONE, "pool no samples"),
        (independent(TEAMS, blue={"frozen": True}), LEARNS_ALONE, "does not learn"),
        (independent(TEAMS, blue={"algorithm": "random"}), LEARNS_ALONE, "does not learn"),
        (
            independent(TEAMS, evaluation={"every": 10_000, "seats": ["blue", "blue", "red", "red"]}),
            "evaluation.seats",
            "has 2 independent workers",
        ),
        (independent(TEAMS, evaluation={"every": 10_000, "seats": [[], "red"]}), "evaluation.seats[0]", "is empty"),
        (with_keys(best={"metric": "policy_reward_mean"}), "best.metric", "is a mapping; name one of its numbers: "),
        (with_keys(best={"metric": "episode_reward_men"}), "best.metric", "did you mean 'episode_reward_mean'"),
        (with_keys(best={"metric": "policy_reward/blue"}), "best.metric", "did you mean 'policy_reward_mean/blue'"),
        (with_keys(best={"metric": "ticks", "mode": "maximum"}), "best.mode", "did you mean 'max'?"),
        *(
            (with_keys(stop={"ticks": bound}), "stop.ticks", ONE_BOUND)
            for bound in ("450", True, None, [1], {}, {"atleast": 1}, {"at_least": 1, "at_most": 2}, float("nan"))
        ),
        *(
            (with_keys(stop={key: 1}), f"stop.{key}", message)
            for key, message in {
                "policy_reward_mean/bleu": "unknown policy 'bleu'; did you mean 'blue'? known: blue, red",
                "policy_reward_mean": "is a mapping; name one of its numbers: policy_reward_mean/blue, policy_rew",
                "episode_reward_men": "no result has 'episode_reward_men'; did you mean 'episode_reward_mean'?",
                "timestep_total": "did you mean 'timesteps_total'?",
                "info/learner/bleu/loss": "unknown policy 'bleu'",
                "info/learner/blue": "is a mapping; name one of its numbers, such as `update`",
                "custom_metrics/score": "a metric is named custom_metrics/<name>_mean, _min or _max",
                "policy_custom_metrics/score_mean": "such as policy_custom_metrics/score_mean/blue; found 'score_mean'",
                "policy_custom_metrics/score_mean/bleu": "unknown policy 'bleu'; did you mean 'blue'?",
                "custom_metrics/score_mean/blue": "such as custom_metrics/score_mean; found 'score_mean/blue'",
                "evaluation/episode_reward_mean": "the run has no `evaluation`",
                "done": "no result has 'done'",
                "stopped_by": "no result has 'stopped_by'",
            }.items()
        ),
    ],
)
def test_contradictions_and_unknown_results_are_refused(data: Any, path: str, message: str) -> None:
    error = error_of(data)
    assert (error.path, message in error.message) == (path, True)


@pytest.mark.parametrize("every", [1, 5, 30, 60, 900])
def test_results_may_divide_or_repeat_the_boundaries(every: int) -> None:
    assert parse(with_keys(results={"every": every})).results.every == every


# Stop rules


def test_stop_rules_name_policies_metrics_and_evaluations() -> None:
    keys = {
        "policy_win_rate/red": 0.5,
        "info/learner/blue/any/thing": {"at_most": 1},
        "custom_metrics/score_max": {"at_least": -1},
        "evaluation/policies/blue/wins": 1,
        "evaluation/custom/a/b": 1,
        "evaluation/custom_metrics/score_min": 1,
        "policy_custom_metrics/score_max/blue": 1,
        "evaluation/policy_custom_metrics/score_min/blue": 1,
        "sampler_perf/mean_inference_ms": 1,
        "off_policy_estimator/x": 1,
    }
    config = parse({**VALID, "evaluation": {"every": 10_000}, "stop": keys})
    assert [rule.text for rule in config.stop_rules][:3] == [
        "policy_win_rate/red >= 0.5",
        "info/learner/blue/any/thing <= 1",
        "custom_metrics/score_max >= -1",
    ]


def test_stop_rules_of_independent_policies_name_their_workers() -> None:
    data = independent({"env": "game", "seats": ["blue", "red", "red", "red"], "copies": 2}, name="x")
    parse({**data, "stop": {"policy_reward_mean/blue#1": 1}})
    assert "unknown policy 'blue'; did you mean" in error_of({**data, "stop": {"policy_reward_mean/blue": 1}}).message


def test_repeated_seats_are_expanded() -> None:
    data = copy.deepcopy(VALID)
    data["matches"] = [
        {"env": "game", "seats": ["blue*2", ["red*3"]], "sides": [[0, 1], [2]]},
        {"env": "game", "seats": [["blue", "blue * 2"], "red*2"], "entities": [0, 1, 2, 3, 4]},
    ]
    data["checkpoint_every"], data["evaluation"] = 50, {"every": 50, "seats": ["blue", "red*4"]}
    config = parse(data)
    assert [match.seats for _, match in config.entries()] == [
        ("blue", "blue", ("red", "red", "red")),
        (("blue", "blue", "blue"), "red", "red"),
    ]
    assert config.evaluation is not None and config.evaluation.seats == ("blue", "red", "red", "red", "red")
    assert parse(yaml.load(resolved_yaml(config), source="")) == config
    plan = make_plan(config)
    assert [seat.entities for seat in plan.matches[0].seats] == [(0,), (1,), (2, 3, 4)]


@pytest.mark.parametrize(
    ("seats", "place", "found"),
    [
        (["blue", "red*0"], "matches[0].seats[1]", "'red*0'"),
        (["red*x"], "matches[0].seats[0]", "'red*x'"),
        ([["red*"]], "matches[0].seats[0][0]", "'red*'"),
        (["red*-1"], "matches[0].seats[0]", "'red*-1'"),
        (["red*1000000"], "matches[0].seats[0]", "'red*1000000'"),
    ],
)
def test_seats_repeated_wrongly_are_refused(seats: Any, place: str, found: str) -> None:
    error = error_of(changed(["matches"], [{"env": "game", "seats": seats}]))
    assert (error.path, error.message.partition(";")[0]) == (place, f"found {found}")
    assert "expected a number from 1 to 500000 after the '*', as in 'red*50'" in error.message
    unknown = error_of(changed(["matches"], [{"env": "game", "seats": ["blu*2"]}]))
    assert "unknown policy 'blu'" in str(unknown)


def test_removed_keys_are_refused_in_files_and_read_in_run_folders(tmp_path: Path) -> None:
    league = "league: {window: 5, finish_ticks: 15}\n"
    body = (
        "ticks: 20\nrounds: 2\nenvs: {game: {make: matrix}}\n"
        "policies: {a: {algorithm: random}, b: {algorithm: random}}\nmatches: [{env: game, seats: [a, b]}]\n"
    )
    (tmp_path / "own.yaml").write_text(body + league)
    with pytest.raises(ConfigError, match="is no key any more"):
        load_config(tmp_path / "own.yaml")
    (tmp_path / "config.yaml").write_text(yaml.WRITTEN + body + league)
    assert load_config(tmp_path / "config.yaml").rounds == 2


def test_a_type_error_without_missing_keys_stays_as_it_is() -> None:
    class Rule(Keys, frozen=True, kw_only=True):
        @abstractmethod
        def opponents(self) -> list[str]: ...

    with pytest.raises(TypeError, match="abstract class Rule"):
        Rule()  # type: ignore[abstract]
