"""Faults of games and workers with units that once went through: copies, subclasses, overflow, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena import Choice, Ragged, Select, UnitSpace
from arena.cli.main import main
from arena.entity_env import CategoricalActionMask as Pick
from arena.entity_env import ListEnv, RaggedBufferI64
from arena.entity_env.calls import players_of
from arena.entity_env.environment import Environment
from arena.errors import ConfigError
from arena.game.api import Interface
from arena.game.batched_spaces import batched_space
from arena.game.ragged_actions import batch_leaves
from arena.game.spaces import Columns, check_unit_spaces
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


def test_globals_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match=r"globals is missing; 1 numbers are needed \(time\)"):
        SPACE.complete({"units": {"A": [[1.0]]}})


@pytest.mark.parametrize("flag", [256, -1000, 2**40, 0.5])
def test_flags_that_int8_cannot_hold_are_refused(flag: float) -> None:
    with pytest.raises(ValueError, match="whole numbers of int8"):
        SPACE.complete(sample(visible={"B": [flag, 1, 1]}))


def test_transposed_mask_of_a_select_is_refused() -> None:
    shot = {"actors": [0, 1], "actees": [2, 3, 4]}
    right = SPACE.complete(sample(actions={"shoot": {**shot, "mask": [[1, 0, 1], [0, 0, 1]]}}))
    assert right["actions"]["shoot"]["mask"].tolist() == [1, 0, 1, 0, 0, 1]
    with pytest.raises(ValueError, match=r"\[actors, actees\] = \[2, 3\], or flat, got \[3, 2\]"):
        SPACE.complete(sample(actions={"shoot": {**shot, "mask": [[1, 0], [1, 0], [0, 1]]}}))


@pytest.mark.parametrize("nested", [spaces.Dict({"u": SPACE, "b": spaces.Box(0, 1)}), spaces.Tuple([SPACE])])
def test_units_inside_of_another_space_are_refused(nested: spaces.Space[Any]) -> None:
    for observed, acted in ((nested, spaces.Discrete(2)), (SPACE, spaces.Tuple([SPACE.action_space]))):
        with pytest.raises(ConfigError, match=r"'a': units inside of another space, at \["):
            check_unit_spaces(Interface(("a",), (observed,), (acted,), (0,)))


def test_rows_that_are_not_joined_are_in_no_space_of_observations() -> None:
    rows = batched_space(SPACE, 2)
    batch = rows.sample()
    assert batch in rows
    listed = {**batch, "units": {**batch["units"], "A": [*batch["units"]["A"]]}}
    assert listed not in rows


def test_a_subclass_of_ragged_is_an_action() -> None:
    space, columns = SPACE.action_space, Columns(SPACE.action_space)
    given = {"pick": RaggedBufferI64(np.array([1]), np.array([1, 0])), "shoot": Ragged.of([[0], []], np.int64)}
    leaves = batch_leaves(space, columns, given, None, active=np.ones(2, np.bool_))
    assert [leaf.values.tolist() for leaf in leaves] == [[1], [0]]


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


def test_what_a_list_shows_may_be_changed_by_its_reader() -> None:
    envs = ListEnv([Told(seen(actions={"pick": Pick(actor_types=["B"])}))])
    shown = envs.reset()
    before = shown.action_masks["pick"].actors.values.copy()
    shown.action_masks["pick"].actors.values[:] = 0
    shown.action_masks["pick"].actors.lengths[:] = 0
    assert (envs._shown.shown["pick"].actors.values == before[:, 0]).all()
    assert envs._shown.shown["pick"].actors.lengths.tolist() == [1]


@pytest.mark.parametrize("players", [2, "ab", [1, 2], (), ("a", "a")])
def test_players_that_are_no_names_are_refused(players: Any) -> None:
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
    assert "observes any number of units" in told.err and "serving" not in told.out
