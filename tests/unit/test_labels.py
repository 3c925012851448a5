"""Names of actions and observations: what a game's metadata declare, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena import Choice, UnitSpace, registry
from arena.cli.main import main
from arena.errors import ConfigError
from arena.game.api import Labels, Part
from arena.game.labels import declared_labels, parts, rows
from envs.adapters import adapt

UNITS = UnitSpace({"Robot": ["x"]}, actions={"Move": Choice(["left", "right"])})
PAIR, CHOICE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)


def one(metadata: dict[str, Any], observed: Any = PAIR, acted: Any = CHOICE) -> Labels:
    return declared_labels(metadata, ("a",), (observed,), (acted,))[0]


def test_choices_of_discrete_actions_count_from_their_start() -> None:
    labels = one({"actions": ["stay", "go"], "keys": {"g": "go", "up": 5}}, acted=spaces.Discrete(2, start=5))
    assert labels.actions == (Part("action", ("stay", "go"), 5),)
    assert rows(spaces.Discrete(2, start=5), labels.actions, np.int64(6)) == [("action", "go")]
    assert labels.keys == {"g": 6, "up": 5}


def test_parts_of_multi_discrete_have_names_and_choices() -> None:
    acted = spaces.MultiDiscrete([2, 3])
    labels = one({"actions": {"fire": ["no", "yes"], "power": None}}, acted=acted)
    assert rows(acted, labels.actions, np.array([1, 2])) == [("fire", "yes"), ("power", "2")]
    assert one({"actions": ["fire", "power"]}, acted=acted).actions == (Part("fire"), Part("power"))


def test_parts_of_containers_have_their_own_names() -> None:
    space = spaces.Dict(place=PAIR, seen=spaces.Box(0, 255, (4, 4, 3), np.uint8), door=spaces.Discrete(2))
    sample = {"place": np.array([0.5, 1 / 3], np.float32), "seen": np.zeros((4, 4, 3), np.uint8), "door": np.int64(1)}
    found = dict(rows(space, (), sample))
    assert (found["place"], found["door"]) == ("[0.5 0.3333]", "1") and found["seen"].startswith("[[[0 0 0]")
    pair = spaces.Tuple((spaces.Discrete(9), spaces.MultiBinary(2)))
    assert rows(pair, (), (7, [1, 0])) == [("0", "7"), ("1", "[1 0]")]


def test_entities_may_have_names_of_their_own() -> None:
    found = declared_labels(
        {"actions": {"a": ["x", "y"], "b": ["u", "v"]}}, ("a", "b", "c"), (PAIR,) * 3, (spaces.Discrete(2),) * 3
    )
    assert [labels.actions and labels.actions[0].choices for labels in found] == [("x", "y"), ("u", "v"), ()]
    assert declared_labels({"render_modes": []}, ("a",), (PAIR,), (PAIR,)) == ()


def test_entities_have_pieces() -> None:
    metadata = {"pieces": ["X", "O"]}
    found = declared_labels(metadata, ("a", "b"), (PAIR,) * 2, (CHOICE,) * 2)
    assert [labels.piece for labels in found] == ["X", "O"]
    game = registry.adapt_environment("pettingzoo:classic.tictactoe_v3", {}, 1)
    assert dict(zip(game.interface.entities, (one.piece for one in game.interface.labels), strict=True)) == {
        "player_1": "X",
        "player_2": "O",
    }
    game.close()


def test_numbers_without_names_are_counted() -> None:
    assert parts(spaces.Discrete(3, start=2), ()) == (Part("action", (), 2),)
    assert [part.name for part in parts(PAIR, ())] == ["action 0", "action 1"]
    assert parts(PAIR, one({"actions": ["x", "y"]}, acted=PAIR).actions) == (Part("x"), Part("y"))


@pytest.mark.parametrize(
    ("metadata", "acted", "message"),
    [
        ({"actions": ["stay"]}, spaces.Discrete(2), "got 1, expected a list of 2"),
        ({"actions": "ab"}, PAIR, "got 'ab', expected a list of 2"),
        ({"actions": ["stay", 3]}, spaces.Discrete(2), "3 is no name"),
        ({"actions": ["stay", "\x1b[2J"]}, spaces.Discrete(2), "is no name"),
        ({"actions": ["stay", "x" * 61]}, spaces.Discrete(2), "is no name"),
        ({"actions": ["stay", " "]}, spaces.Discrete(2), "is no name"),
        ({"actions": ["stay", "stay"]}, spaces.Discrete(2), "a name is there twice"),
        ({"actions": {"fire": ["no", "yes"]}}, spaces.MultiDiscrete([2, 3]), "got 1, expected a list of 2"),
        (
            {"actions": {"fire": ["no"], "power": None}},
            spaces.MultiDiscrete([2, 3]),
            r"\['fire'\]: got 1, expected a list of 2",
        ),
        ({"actions": {"b": ["no"]}}, spaces.Dict(a=PAIR), "Box spaces have names, not Dict"),
        ({"actions": {"left": 1}}, spaces.Discrete(2), "expected a list of 2"),
        ({"actions": ["x"]}, UNITS.action_space, "give None"),
        ({"actions": ["x"]}, spaces.Sequence(PAIR, stack=True), "Box spaces have names"),
        ({"keys": ["d"]}, spaces.Discrete(2), "keys are for Discrete actions, in a mapping"),
        ({"keys": {"d w": 1}}, spaces.Discrete(2), "'d w' is no key"),
        ({"keys": {"tab": 1}}, spaces.Discrete(2), "'tab' is no key"),
        ({"keys": {3: 1}}, spaces.Discrete(2), "3 is no key"),
        ({"keys": {"d": 2}}, spaces.Discrete(2), "2 is no action"),
        ({"keys": {"d": "left"}}, spaces.Discrete(2), "'left' is no action"),
        ({"keys": {"d": True}}, spaces.Discrete(2), "True is no action"),
        ({"keys": {"d": 1}}, PAIR, "keys are for Discrete actions"),
        ({"pieces": ["X", "O"]}, PAIR, r"metadata\['pieces'\]: got 2, expected a list of 1"),
    ],
)
def test_wrong_names_are_refused(metadata: dict[str, Any], acted: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        one(metadata, acted=acted)


class Walk(gymnasium.Env[Any, Any]):
    """A walk whose metadata the tests choose."""

    observation_space, action_space = PAIR, spaces.Discrete(2)

    def __init__(self, **metadata: Any) -> None:
        self.metadata = {"render_modes": [], **metadata}

    def get_keys_to_action(self) -> dict[Any, int]:
        return {(): 0, (ord("d"),): 1, "a": 0, (276,): 0, (ord("d"), 276): 0, (7,): 1}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_keys_of_a_gymnasium_game_are_used_unless_it_declares_its_own() -> None:
    assert adapt(Walk, {}, 1).interface.labels_of(0).keys == {"d": 1, "a": 0, "left": 0}
    assert adapt(Walk, {"keys": {"x": 1}}, 1).interface.labels_of(0).keys == {"x": 1}


def test_names_of_a_space_that_a_wrapper_changes_are_left_out() -> None:
    kwargs = {"actions": ["stay", "go"], "observations": ["x", "y"]}
    labels = adapt(Walk, kwargs, 1, [("frame_stack", 2)]).interface.labels_of(0)
    assert (labels.observations, labels.actions) == ((), (Part("action", ("stay", "go")),))
    assert adapt(Walk, kwargs, 1, [("time_limit", 2)]).interface.labels_of(0).observations
    wrapped = adapt(lambda: gymnasium.wrappers.FrameStackObservation(Walk(**kwargs), 2), {}, 1)
    assert wrapped.interface.labels_of(0) == labels


def test_wrong_names_are_refused_or_of_another_package_ignored() -> None:
    with pytest.raises(ConfigError, match=r"metadata\['actions'\]: got 1, expected a list of 2"):
        adapt(Walk, {"actions": ["stay"]}, 1)
    with pytest.warns(UserWarning, match="the names of Walk are ignored"):
        labels = adapt(Walk, {"actions": ["stay"]}, 1, from_package=True).interface.labels_of(0)
    assert labels == Labels()


@pytest.mark.parametrize(
    ("make", "kwargs", "actions"),
    [
        ("gymnasium:CartPole-v1", {}, ("left", "right")),
        ("gymnasium_vec:CartPole-v1", {}, ("left", "right")),
        ("gymnasium:FrozenLake-v1", {}, ("left", "down", "right", "up")),
        ("pettingzoo:classic.connect_four_v3", {}, tuple(f"column {number}" for number in range(7))),
        ("pettingzoo:classic.rps_v2", {}, None),
    ],
)
def test_known_games_of_other_packages_have_names(make: str, kwargs: dict[str, Any], actions: Any) -> None:
    game = registry.adapt_environment(make, kwargs, 1)
    labels = game.interface.labels_of(0)
    assert (labels.actions[0].choices if labels.actions else None) == actions
    game.close()


@pytest.mark.parametrize("command", ["check", "play"])
def test_wrong_names_end_a_command_with_status_2(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = f"misnamed_{command}"
    Path(f"{module}.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Named(CartPoleEnv):\n    metadata = {**CartPoleEnv.metadata, 'actions': ['left']}\n"
    )
    Path("match.yaml").write_text(
        f"ticks: 5\nenvs: {{g: {{make: '{module}:Named'}}}}\npolicies: {{p: {{algorithm: random}}}}\n"
        "matches: [{env: g, seats: [p]}]\n"
    )
    assert main([command, "match.yaml"]) == 2
    assert "metadata['actions']: got 1, expected a list of 2, for Discrete(2)" in capsys.readouterr().err
