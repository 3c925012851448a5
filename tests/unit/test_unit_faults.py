"""Regression tests of games and workers with units: copies, subclasses, overflow, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena import Choice, Ragged, Select, UnitSpace
from arena.cli.main import main
from arena.entity_env import CategoricalActionMask as Pick
from arena.entity_env import GlobalCategoricalActionMask as End
from arena.entity_env import ListEnv
from arena.entity_env.environment import Environment, players_of
from arena.errors import ConfigError
from arena.game.api import Interface
from arena.game.batches import action_leaves
from arena.game.spaces import check_unit_spaces
from arena.testing import ContractBroken, check_entity_env
from entity_games import Told, seen
from envs.adapters import adapt

SPACE = UnitSpace(
    {"A": ["x"], "B": []},
    actions={"pick": Choice(["left", "right"]), "shoot": Select(masked=True)},
    hidden=["B"],
    global_features=["time"],
)


def sample(**parts: Any) -> dict[str, Any]:
    return {"globals": [0.0], "units": {"A": [[1.0], [2.0]], "B": [[], [], []]}, **parts}


SHOT = {"actors": [0, 1], "actees": [2, 3, 4]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"units": {"A": [[1.0]]}}, r"globals is missing; 1 numbers are needed \(time\)"),
        *((sample(visible={"B": [flag, 1, 1]}), "int8") for flag in (256, 2**40, 0.5)),
        (
            sample(actions={"shoot": {**SHOT, "mask": [[1, 0], [1, 0], [0, 1]]}}),
            r"\[actors, actees\] = \[2, 3\], or flat, got \[3, 2\]",
        ),
    ],
)
def test_samples_that_cannot_be_completed_are_refused(given: Any, message: str) -> None:
    right = SPACE.complete(sample(actions={"shoot": {**SHOT, "mask": [[1, 0, 1], [0, 0, 1]]}}))
    assert right["actions"]["shoot"]["mask"].tolist() == [1, 0, 1, 0, 0, 1]
    with pytest.raises(ValueError, match=message):
        SPACE.complete(given)


@pytest.mark.parametrize("nested", [spaces.Dict({"u": SPACE, "b": spaces.Box(0, 1)}), spaces.Tuple([SPACE])])
def test_units_inside_of_another_space_are_refused(nested: spaces.Space[Any]) -> None:
    for observed, acted in ((nested, spaces.Discrete(2)), (SPACE, spaces.Tuple([SPACE.action_space]))):
        with pytest.raises(ConfigError, match=r"'a': units inside of another space, at \["):
            check_unit_spaces(Interface(("a",), (observed,), (acted,), (0,)))


def test_actions_that_a_game_keeps_do_not_change() -> None:
    """The numbers lie in memory that is written again with the next request."""

    class Keeps(Told):
        kept: list[Any] = []

        def act(self, actions: Any) -> Any:
            self.kept.append(actions["pick"].indices)
            return super().act(actions)

    env = adapt(lambda: Keeps(*[seen(actions={"pick": Pick(actor_types=["B"])})] * 3), {}, 1)
    env.reset(np.ones(1, np.bool_))
    choices = np.zeros(1, np.int64)
    for choice in (0, 1):
        choices[:] = choice
        none = Ragged.of([[]], np.int64)
        actions = dict.fromkeys(("aim", "shoot", "end"), none) | {"pick": Ragged(choices, np.array([1]))}
        env.step([actions])
    assert [kept.tolist() for kept in Keeps.kept] == [[0], [1]]


@pytest.mark.parametrize("players", [2, "ab", [1, 2], (), ("a", "a")])
def test_invalid_player_names_are_refused(players: Any) -> None:
    class Game(Told):
        pass

    Game.players = players
    with pytest.raises(ConfigError, match=r"Game\.players is .*; expected a tuple of distinct names"):
        players_of(Game(seen()))
    assert players_of(Told(seen())) == Environment.players


def test_policies_of_units_are_not_served(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "m.yaml"
    config.write_text(
        "ticks: 4\nenvs: {m: {make: minesweeper}}\npolicies: {p: {algorithm: random}}\n"
        "matches: [{env: m, seats: [p]}]\n"
    )
    assert main(["serve", str(config)]) == 2
    told = capsys.readouterr()
    assert "any number of items, as of units" in told.err and "serving" not in told.out


@pytest.mark.parametrize("ended", [0, 1])
def test_player_ended_by_a_wrapper_does_not_stop_the_other(ended: int) -> None:
    class Pair(Told):
        players = ("left", "right")

    shown = [seen(), seen()]
    shown[ended] = seen(actions={"pick": Pick(actor_types=["B"])})  # the only player that decides
    game: Any = Pair(*[list(shown)] * 3)
    env = adapt(lambda: game, {}, 1)
    env.reset(np.ones(1, np.bool_))
    none = dict.fromkeys(("pick", "aim", "shoot", "end"), Ragged.of([[]], np.int64))
    env.step([none, none])
    assert len(game.got) == 1 and all(list(actions["pick"].actors) == [] for actions in game.got[0])


WRONG_FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "one flag": ({"visible": {"A": True}}, "visible True of type 'A'; expected 2 flags"),
    "features without types": ({"features": [[1]]}, r"features of a type: \[\[1\]\]; expected a mapping by name"),
    "one id": ({"ids": {"A": 5}}, "ids 5 of type 'A'; expected a list of 2"),
    "one actor": ({"actions": {"pick": Pick(actor_ids=5)}}, "action 'pick': ids of actors 5; expected a list"),
    "unequal rows": (
        {"actions": {"pick": Pick(mask=[[1, 1, 1], [1], [1, 1, 1]])}},
        r"a mask with rows of 3, 1, 3; expected bools \[3\]\[3\]",
    ),
    "unequal rows of a global mask": (
        {"actions": {"end": End(mask=[[1], [1, 0]])}},
        r"a mask with rows of 1, 2; expected bools \[1\]\[2\]",
    ),
}


@pytest.mark.parametrize("case", WRONG_FORMS)
def test_observations_of_a_wrong_form_are_named(case: str) -> None:
    given, message = WRONG_FORMS[case]
    with pytest.raises(ValueError, match=f"^environment 0: .*{message}"):
        ListEnv([Told(seen(**given))]).reset()


@pytest.mark.parametrize(
    ("second", "message"),
    [(seen(reward=None), "the reward None; expected a number"), ({}, "a dict; expected an Observation")],
)
def test_results_of_environments_of_a_list_are_checked(second: Any, message: str) -> None:
    envs = ListEnv([Told(seen(), second)])
    envs.reset()
    with pytest.raises(ValueError, match=f"^environment 0: {message}"):
        envs.act({})


@pytest.mark.parametrize("choices", [[0], 5, [[[0], [1, 2]]], [[[0, 1]]], [["a"]], [[None]]])
def test_choices_of_a_wrong_form_are_refused_by_a_list(choices: Any) -> None:
    envs = ListEnv([Told(seen(actions={"pick": Pick(actor_types=["B"])}))])
    envs.reset()
    with pytest.raises(ValueError, match=r"action 'pick': .*expected whole numbers in 1 rows, one per actor"):
        envs.act({"pick": choices})


ITEMS = spaces.Sequence(spaces.Discrete(3), stack=True)


@pytest.mark.parametrize(
    ("space", "given", "error", "message"),
    [
        (SPACE.action_space, 5, TypeError, "5 is no action of the actions 'pick', 'shoot'; a mapping is needed"),
        (SPACE.action_space, {"pick": [0], "shoot": [], "pik": []}, ValueError, "'pik' is not in .*mean 'pick'"),
        (spaces.Tuple([ITEMS]), 5, TypeError, "5 is no action of Tuple.*a tuple of 1 is needed"),
        (ITEMS, 5, TypeError, "5 is no action of Sequence.*; an array or a list is needed"),
    ],
)
def test_single_actions_of_a_wrong_form_are_refused(space: Any, given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        action_leaves(space, [given], None, first_row=0)


def test_a_checked_game_is_closed_after_a_breach_and_its_seed_is_found() -> None:
    class Counted(Told):
        open = 0

        def __init__(self) -> None:
            super().__init__(*[seen(features={"A": np.random.default_rng().normal(size=(1, 2))}) for _ in range(20)])
            Counted.open += 1

        def reset(self, **how: Any) -> Any:  # takes a seed, and does not use it
            return self.left[0]

        def act(self, actions: Any) -> Any:
            return self.left[0]

        def close(self) -> None:
            Counted.open -= 1

    with pytest.raises(ContractBroken, match="another game the second time"):
        check_entity_env(Counted, ticks=5)
    assert Counted.open == 0
