"""The published interface: observations by id become batches by index, and choices become actions by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

from arena import Choice, Ragged, Select, UnitSpace
from arena.entity_env import (
    CategoricalAction,
    CategoricalActionMask,
    EnvList,
    EpisodeStats,
    GlobalCategoricalAction,
    ListEnv,
    Observation,
    RaggedBufferBool,
    RaggedBufferF32,
    RaggedBufferI64,
    SelectEntityAction,
    SelectEntityActionMask,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)
from arena.errors import ConfigError, GameError
from arena.registry import adapt_environment
from entity_games import AIM, BOARDS, END, PICK, BoardGame, Told, seen
from envs.adapters import adapt


def shown(*observations: Observation) -> Any:
    """The `VecObs` of one environment per observation."""
    return ListEnv([Told(one) for one in observations]).reset()


def moves(vec_obs: Any, name: str) -> tuple[Any, Any]:
    """An action's actors and its mask as lists."""
    mask = vec_obs.action_masks[name]
    return [row[:, 0].tolist() for row in mask.actors], None if mask.mask is None else mask.mask.tolist()


def test_worked_example_is_batched_to_the_last_index() -> None:
    games = [BoardGame(board) for board in BOARDS]
    env = ListEnv(games)
    vec_obs = env.reset()
    assert {name: units.lengths.tolist() for name, units in vec_obs.features.items()} == {
        "Mine": [5, 1, 3],
        "Robot": [1, 1, 2],
        "Orbital Cannon": [0, 1, 0],
    }
    assert vec_obs.features["Mine"] == RaggedBufferF32([board["mines"] for board in BOARDS])
    assert vec_obs.features["Orbital Cannon"].values.tolist() == [[0.0]]
    move, fire = vec_obs.action_masks["Move"], vec_obs.action_masks["Fire Orbital Cannon"]
    assert move == VecCategoricalActionMask(
        RaggedBufferI64([[[5]], [[1]], [[3], [4]]]),
        RaggedBufferBool([[[1, 1, 1, 1, 1]], [[0, 1, 1, 0, 1]], [[1, 0, 1, 0, 1], [0, 1, 1, 0, 1]]]),
    )
    assert fire == VecSelectEntityActionMask(
        RaggedBufferI64([[], [[2]], []]), RaggedBufferI64([[], [[0], [1]], []]), None
    )
    assert vec_obs.reward.dtype == np.float32
    assert vec_obs.reward.tolist() == [0, 0, 0]
    assert vec_obs.done.tolist() == [False] * 3
    assert (vec_obs.visible, vec_obs.end_of_episode_info) == ({}, {})

    env.act({"Move": [[4], [1], [4, 2]], "Fire Orbital Cannon": RaggedBufferI64([[], [[0]], []])})
    first, second, third = (game.got[0] for game in games)
    assert [(got["Move"].actors, got["Move"].indices.tolist()) for got in (first, second, third)] == [
        ([("Robot", 0)], [4]),
        ([("Robot", 0)], [1]),
        ([("Robot", 0), ("Robot", 1)], [4, 2]),
    ]
    assert third["Move"].labels == ["Defuse Mines", "+y"]
    assert third["Move"].actions is third["Move"].indices
    assert second["Fire Orbital Cannon"] == SelectEntityAction([("Orbital Cannon", 0)], [("Mine", 0)])
    assert first["Fire Orbital Cannon"] == third["Fire Orbital Cannon"] == SelectEntityAction([], [])


def test_ids_reach_the_game_in_the_order_shown() -> None:
    game = Told(
        seen(
            ids={"A": ["a", "b"]},
            features={"A": [[1, 2], [3, 4]], "B": [[5]], "C": [[], []]},
            actions={"pick": PICK(), "aim": AIM(actor_types=["C", "A"], actee_ids=["b", ("B", 0)]), "end": END()},
        ),
        seen(),
    )
    env = ListEnv([game])
    env.reset()
    env.act({"pick": [[0, 1, 2, 0, 1]], "aim": [[1, 0, 1, 0]], "end": [[1]]})
    got = game.got[0]
    assert got["pick"].actors == ["a", "b", ("B", 0), ("C", 0), ("C", 1)]  # all units, in the order of indices
    assert got["aim"] == SelectEntityAction([("C", 0), ("C", 1), "a", "b"], [("B", 0), "b", ("B", 0), "b"])
    assert got["end"] == GlobalCategoricalAction(1, "stop")
    assert got["shoot"] == SelectEntityAction([], [])


def test_absent_types_and_actions_have_no_units_and_no_actors() -> None:
    game = Told(seen(features={}, actions={"pick": PICK(actor_types=["A"])}), seen(features={}))
    env = ListEnv([game])
    vec_obs = env.reset()
    assert {name: units.lengths.tolist() for name, units in vec_obs.features.items()} == {
        "A": [0], "B": [0], "C": [0], "__global__": [1],
    }  # fmt: skip
    assert {name: mask.actors.lengths.tolist() for name, mask in vec_obs.action_masks.items()} == {
        "pick": [0], "aim": [0], "shoot": [0], "end": [0],
    }  # fmt: skip
    env.act({})
    assert "end" not in game.got[0]  # a global action without an actor is absent
    assert isinstance(game.got[0]["pick"], CategoricalAction)
    assert list(game.got[0]["pick"].actors) == []


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint8, np.bool_])
def test_features_of_any_number_type_become_float32(kind: Any) -> None:
    rows = shown(seen(features={"A": np.ones((2, 2), kind), "C": np.zeros((3, 0))}), seen(features={"A": [(7, 8)]}))
    assert rows.features["A"] == RaggedBufferF32([[[1, 1], [1, 1]], [[7, 8]]])
    assert rows.features["C"].lengths.tolist() == [3, 0]


def test_masks_appear_late_at_their_own_places() -> None:
    mask = [[True, False, False], [False, False, True]]
    rows = shown(
        seen(actions={"pick": PICK(actor_types=["A"])}),
        seen(),
        seen(actions={"pick": PICK(actor_types=["A"], mask=mask)}),
    )
    actors, masks = moves(rows, "pick")
    assert actors == [[0, 1], [], [0, 1]]
    assert masks == [[[True] * 3, [True] * 3], [], mask]


@pytest.mark.parametrize("mask", [[0, 1], [[0, 1]], np.array([False, True]), np.array([[0.0, 1.0]])])
def test_global_mask_may_be_flat_and_its_action_left_out(mask: Any) -> None:
    rows = shown(seen(), seen(actions={"end": END(mask=mask)}), seen(actions={"end": END()}))
    assert moves(rows, "end") == ([[], [3], [3]], [[], [[False, True]], [[True, True]]])
    assert rows.features["__global__"] == RaggedBufferF32([[[0.5]]] * 3)


def test_select_masks_are_kept_and_actors_without_choice_left_out() -> None:
    mask = [[1, 0], [0, 0], [0, 1]]
    game = Told(seen(actions={"shoot": AIM(actee_types=["A"], mask=mask)}), seen())
    env = ListEnv([game])
    rows = env.reset()
    assert moves(rows, "shoot") == ([[0, 2]], [[[True], [False], [False], [True]]])
    shoot = rows.action_masks["shoot"]
    assert isinstance(shoot, VecSelectEntityActionMask)
    assert shoot.actees == RaggedBufferI64([[[0], [1]]])
    env.act({"shoot": [[0, 1]]})
    assert game.got[0]["shoot"] == SelectEntityAction([("A", 0), ("B", 0)], [("A", 0), ("A", 1)])


def test_hidden_units_cannot_be_selected() -> None:
    visible = {"A": [True, False], "B": [True]}
    actions = {"shoot": AIM(actor_types=["B"], mask=[[1, 1, 0]]), "aim": AIM(actor_types=["B"])}
    rows = shown(seen(visible=visible, actions=actions))
    assert rows.action_masks["shoot"].actees == RaggedBufferI64([[[0], [2]]])
    assert rows.action_masks["shoot"].mask == RaggedBufferBool([[[1], [0]]])
    assert rows.action_masks["aim"].actees == RaggedBufferI64([[[0], [2]]])


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "an unknown type": ({"features": {"D": [[1]]}}, "features of a type that is not in the space, 'D'"),
    "ids of an unknown type": ({"ids": {"AA": []}}, "ids of a type that is not in the space, 'AA'; did you mean 'A'?"),
    "an unknown action": ({"actions": {"pikc": PICK()}}, "did you mean 'pick'?"),
    "too few features": (
        {"features": {"A": [[1, 2], [3]]}},
        r"A 1: features \[3\] of shape \[1\]; expected \[n\]\[2\]",
    ),
    "features that are no numbers": ({"features": {"A": [[1, "x"]]}}, "expected .* finite float32 numbers"),
    "NaN": ({"features": {"B": [[1.0], [np.nan]]}}, r"B 1: features \[nan\]"),
    "a number too large": ({"features": {"B": [[1e300]]}}, "finite float32 numbers"),
    "wrong global features": ({"global_features": [1, 2]}, "expected 1 finite float32 numbers"),
    "an id twice": ({"ids": {"A": ["a", "b"], "B": ["a"]}}, "the id 'a' twice"),
    "an id of another unit without": ({"ids": {"B": [("A", 0)]}}, r"the id \('A', 0\) twice"),
    "too few ids": ({"ids": {"A": ["a"]}}, "1 ids for 2 entities of type 'A'"),
    "an unhashable id": ({"ids": {"A": [[1], [2]]}}, "unhashable"),
    "an unknown id": ({"actions": {"pick": PICK(actor_ids=["a"])}}, "actor 'a' is the id of no entity"),
    "an actor twice": ({"actions": {"pick": PICK(actor_ids=[("A", 0)] * 2)}}, r"actor \('A', 0\) is there twice"),
    "an unknown type of actors": ({"actions": {"pick": PICK(actor_types=["D"])}}, "actors of an unknown type 'D'"),
    "an unknown actee": ({"actions": {"aim": AIM(actee_ids=["a"])}}, "actee 'a' is the id of no entity"),
    "a mask of too few rows": (
        {"actions": {"pick": PICK(mask=[[1, 1, 1]])}},
        r"shape \[1, 3\]; expected bools \[3\]\[3\]",
    ),
    "a mask of too few labels": ({"actions": {"pick": PICK(mask=np.ones((3, 2)))}}, r"shape \[3, 2\]"),
    "a mask of other numbers": ({"actions": {"pick": PICK(mask=[[2, 0, 1]] * 3)}}, "expected bools"),
    "a mask that forbids everything": (
        {"ids": {"A": ["a", "b"]}, "actions": {"pick": PICK(actor_types=["A"], mask=[[1, 0, 0], [0, 0, 0]])}},
        r"action 'pick': actor 1 \('b'\): its mask forbids everything",
    ),
    "a global mask that forbids everything": (
        {"actions": {"end": END(mask=[0, 0])}},
        "'end': actor 0: its mask forbids",
    ),
    "a mask of another kind": ({"actions": {"pick": AIM()}}, "a SelectEntityActionMask; its space needs a Categorical"),
    "a mask that was not announced": ({"actions": {"aim": AIM(mask=np.ones((3, 3)))}}, r"\(masked=False\)"),
    "a select mask of another shape": ({"actions": {"shoot": AIM(mask=[[1, 1]])}}, r"3 actors, 3 actees"),
    "a hidden actor": ({"visible": {"B": [0]}, "actions": {"pick": PICK()}}, r"actor 2 \(\('B', 0\)\) is hidden"),
    "too few flags": ({"visible": {"A": [True]}}, "expected 2 flags"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_observations_are_named_with_the_environment(case: str) -> None:
    given, message = WRONG[case]
    with pytest.raises(ValueError, match=f"^environment 1: .*{message}"):
        shown(seen(), seen(**given))
    games = iter([Told(seen()), Told(seen(**given))])
    env = adapt(lambda: next(games), {}, 2)
    with pytest.raises(GameError, match=message) as caught:
        env.reset(np.ones(2, np.bool_))
    assert (caught.value.entity, caught.value.lane) == ("player", 1)


def test_contradictory_arguments_are_refused() -> None:
    for mask in (CategoricalActionMask, SelectEntityActionMask):
        with pytest.raises(ValueError, match="only one of actor_ids and actor_types"):
            mask(actor_ids=[], actor_types=[])
    with pytest.raises(ValueError, match="only one of actee_ids and actee_types"):
        SelectEntityActionMask(actee_ids=[], actee_types=[])
    with pytest.raises(ValueError, match="only one of entities and features"):
        Observation(done=False, reward=0.0, entities={}, features={})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([[0], [0]], "action 'pick', row 1: got 1 choices for 2 actors"),
        ([[0], [0, 1, 2]], "row 1: got 3 choices for 2 actors"),
        ([[0], [0, 3]], "row 1: 3 is no choice; they go from 0 to 2"),
        ([[-1], [0, 0]], "row 0: -1 is no choice"),
        ([[0], [0.0, 1.0]], "expected whole numbers"),
        ([[0]], "in 1 rows; expected whole numbers in 2 rows"),
    ],
)
def test_wrong_choices_are_refused_before_any_environment_acts(choices: Any, message: str) -> None:
    games = [Told(seen(actions={"pick": PICK(actor_types=kinds)})) for kinds in (["B"], ["A"])]
    env = ListEnv(games)
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.act({"pick": choices})
    assert [game.got for game in games] == [[], []]


def test_ended_environment_begins_again_and_keeps_its_last_observation() -> None:
    last = seen(reward=2.0, done=True, features={"B": [[9]]})
    cut = seen(reward=1.0, truncated=True)
    games = [
        Told(seen(), seen(reward=1.0), last, seen(features={"B": [[1]]})),
        Told(seen(), cut, seen(), seen(reward=3.0)),
    ]
    env = EnvList(games)
    assert env.reset().end_of_episode_info == {}
    assert env.act({}).end_of_episode_info == {1: EpisodeStats(1, 1.0, True, cut)}
    vec_obs = env.act({})
    assert vec_obs.end_of_episode_info == {0: EpisodeStats(2, 3.0, False, last)}
    assert (vec_obs.reward.tolist(), vec_obs.done.tolist()) == ([2.0, 3.0], [True, False])
    assert vec_obs.features["B"].tolist() == [[[1.0]], [[5.0]]]


def test_list_env_seeds_each_environment_differently() -> None:
    assert sorted(set(seeds_of(ListEnv(Seeded, 3), 5))) == sorted(seeds_of(ListEnv(Seeded, 3), 5))
    assert len(set(seeds_of(ListEnv(Seeded, 3), 5))) == 3
    assert seeds_of(ListEnv(Seeded, 3), 6) != seeds_of(ListEnv(Seeded, 3), 5)


class Seeded(Told):
    """Shows the seed that it got."""

    def seed(self, seed: int) -> None:
        self.left = [seen(global_features=[seed % 1000])]


def seeds_of(env: ListEnv, seed: int) -> list[float]:
    return list(env.reset(seed=seed).features["__global__"].values[:, 0].tolist())


def test_truncation_and_termination_are_told_apart_in_a_run() -> None:
    games = iter([Told(seen(), seen(done=True)), Told(seen(), seen(done=True, truncated=True)), Told(seen(), seen())])
    env = adapt(lambda: next(games), {}, 3)
    env.reset(np.ones(3, np.bool_))
    step = env.step([{}])
    assert step.terminated[:, 0].tolist() == [True, False, False]
    assert step.truncated[:, 0].tolist() == [False, True, False]
    assert step.frame.active[:, 0].tolist() == [False, False, True]
    assert step.frame.observations[0]["units"]["A"].lengths.tolist() == [2, 2, 2]  # last observations included


class Pair(Told):
    """Two players."""

    players = ("left", "right")


def test_several_players_get_and_give_lists() -> None:
    both = [seen(actions={"pick": PICK(actor_types=["A"])}), seen(actions={"pick": PICK(actor_types=["B"])})]
    game: Any = Pair(both, [seen(done=True, reward=1.0), both[1]], both)
    env = adapt(lambda: game, {}, 1)
    assert env.interface.entities == ("left", "right")
    env.reset(np.ones(1, np.bool_))
    step = env.step([{"pick": Ragged([0, 1], [2])}, {"pick": Ragged([2], [1])}])
    assert [got["pick"].actors for got in game.got[0]] == [[("A", 0), ("A", 1)], [("B", 0)]]
    assert step.frame.active.tolist() == [[False, True]]
    step = env.step([{"pick": Ragged([], [0])}, {"pick": Ragged([1], [1])}])
    assert [list(got["pick"].actors) for got in game.got[1]] == [[], [("B", 0)]]  # of one that has ended: no actors
    assert not step.rewards[0, 0]
    with pytest.raises(ValueError, match="ListEnv steps games of one player"):
        ListEnv([game])


class Gym(gymnasium.Env[Any, Any]):
    """A game of Gymnasium whose space has units: it gives observations, or samples."""

    observation_space = UnitSpace({"A": ["x"], "B": []}, actions={"pick": Choice(["one", "two"]), "aim": Select()})
    action_space = observation_space.action_space

    def __init__(self, *given: Any) -> None:
        self.left, self.got = list(given), list[Any]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.left.pop(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.got.append(action)
        return self.left.pop(0), 1.0, False, False, {}


def test_games_of_gymnasium_may_give_observations_and_get_action_objects() -> None:
    one = Observation(
        done=False,
        reward=0.0,
        entities={"A": ([[1], [2]], ["left", "right"]), "B": [[]]},
        actions={"pick": PICK(actor_ids=["right"]), "aim": AIM(actor_types=["B"], actee_types=["A"])},
        metrics={"height": 1},
    )
    sample = {"units": {"A": [[7]]}, "actions": {"pick": {"actors": [0]}}}
    game = Gym(one, sample, one)
    env = adapt(lambda: game, {}, 1)
    frame = env.reset(np.ones(1, np.bool_))
    assert frame.observations[0]["actions"]["pick"]["actors"].tolist() == [[1]]
    assert frame.infos == [[{"metrics": {"height": 1}}]]
    step = env.step([{"pick": Ragged([1], [1]), "aim": Ragged([1], [1])}])
    assert game.got[0]["pick"].actors == ["right"]
    assert game.got[0]["pick"].labels == ["two"]
    assert game.got[0]["aim"] == SelectEntityAction([("B", 0)], ["right"])
    assert step.frame.observations[0]["units"]["A"].tolist() == [[[7.0]]]
    env.step([{"pick": Ragged([0], [1]), "aim": Ragged([], [0])}])
    assert {name: numbers.tolist() for name, numbers in game.got[1].items()} == {"pick": [0], "aim": []}


def test_wrong_observations_of_other_interfaces_are_faults_of_the_game() -> None:
    wrong = Observation(done=False, reward=0.0, features={"C": [[1]]})
    with pytest.raises(GameError, match="a wrong observation: features of a type that is not in the space, 'C'"):
        adapt(lambda: Gym(wrong), {}, 1).reset(np.ones(1, np.bool_))
    hiding = Observation(done=False, reward=0.0, features={"A": [[1]]}, visible={"A": [True]})
    with pytest.raises(GameError, match="visible for a type that is not in `hidden` of the space, 'A'"):
        adapt(lambda: Gym(hiding), {}, 1).reset(np.ones(1, np.bool_))


def test_reset_of_some_lanes_keeps_the_others_observations() -> None:
    act = {"pick": PICK(actor_types=["B"])}
    games = [Told(seen(), seen(done=True), seen(), seen()), Told(seen(), seen(actions=act), seen())]
    made = iter(games)
    env = adapt(lambda: next(made), {}, 2)
    env.reset(np.ones(2, np.bool_))
    env.step([{}])
    env.reset(np.array([True, False]))
    env.step([{"pick": Ragged([1], [0, 1])}])
    assert games[1].got[1]["pick"].actors == [("B", 0)]


@pytest.mark.parametrize("wrapper", ["grayscale", {"resize": [8, 8]}, {"frame_stack": 2}])
def test_wrappers_of_fixed_shapes_are_refused_by_name(wrapper: Any) -> None:
    name, given = (wrapper, None) if isinstance(wrapper, str) else next(iter(wrapper.items()))
    with pytest.raises(ConfigError, match=f"{name} cannot go around entities that observe UnitSpace"):
        adapt_environment("minesweeper", {}, 1, [(name, given)])
