"""Infos: a game's keys and the arena's own do not meet, and values are grouped as by Gymnasium, without loss."""

from __future__ import annotations

import copy
import pickle
import re
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from arena.errors import GameError
from arena.game.api import Interface
from arena.game.infos import ARENA_KEYS, Infos, StepFields, fields_of, grouped, refused_key, shown
from arena.roles.environment.restart import RestartingGame
from arena.seat.client import SeatClient
from arena.seat.gym import EnvProxy
from arena.seat.layout import ReplyView, SeatDescription, link_size
from arena.seat.parallel import ParallelEnvProxy
from arena.seat.vector import VectorEnvProxy
from arena.testing import check_batched_env
from arena.testing.batched_env import ContractBroken
from arena.transport.pickling import pack
from envs.adapters import adapt
from reused_games import OURS, Bits, InPlace, InPlaceInTurns, InPlaceParallel


class Lone(VectorEnv[Any, Any, Any]):
    """Gymnasium's own grouping of infos."""

    def __init__(self, rows: int) -> None:
        self.num_envs = rows


def same(mine: Any, theirs: Any) -> None:
    assert set(mine) == set(theirs)
    for key, value in theirs.items():
        if isinstance(value, dict):
            same(mine[key], value)
        else:
            assert mine[key].dtype == value.dtype and mine[key].tolist() == value.tolist(), key


def test_infos_are_grouped_as_by_gymnasium() -> None:
    rows = {
        0: {"i": 1, "f": 0.5, "b": True, "n": np.float32(2), "a": np.arange(2), "t": "x", "d": {"i": 4}},
        2: {"i": 3, "f": 1.5, "b": True, "n": np.float32(3), "a": np.arange(2), "none": None, "d": {"i": 5, "t": "y"}},
    }
    theirs: dict[str, Any] = {}
    for row, info in rows.items():
        theirs = Lone(4)._add_info(theirs, info, row)
    same(grouped(rows, 4), theirs)


@pytest.mark.parametrize(
    "values",
    [
        (10**400, 0.5),
        (2**70, 1),
        (np.zeros(2), np.ones(3)),
        (1, None),
        ({"a": 1}, 2),
        ({"a": 1, "_a": 2}, {"a": 3}),
        (1, "x"),
    ],
    ids=str,
)
def test_values_of_several_kinds_keep_their_values(values: Any) -> None:
    found = grouped({0: {"k": values[0]}, 2: {"k": values[1]}}, 3)
    assert found["k"].dtype == object and found["_k"].tolist() == [True, False, True]
    assert found["k"][0] is values[0] and found["k"][1] is None and found["k"][2] is values[1]


def test_shown_keys_never_meet_the_arenas_own_and_none_is_lost() -> None:
    info = {**OURS, **dict.fromkeys(ARENA_KEYS, "theirs"), 5: "not a text"}
    found = shown(info)
    assert not ARENA_KEYS & found.keys() and not any(str(key).startswith("_") for key in found)
    assert len(found) == len(info) and sorted(map(str, found.values())) == sorted(map(str, info.values()))
    assert shown({"lives": 1}) == {"lives": 1}


def test_fields_survive_copies_and_cannot_be_written_as_keys() -> None:
    infos = Infos(StepFields(active=np.array([True])), {"x": 1})
    infos["void"] = np.array([True])
    for one in (infos, copy.copy(infos), copy.deepcopy(infos), pickle.loads(pickle.dumps(infos))):
        assert fields_of(one).void is None and fields_of(one).active.tolist() == [True] and one["x"] == 1


def seat(*infos: dict[str, Any], entities: int = 1, external: bool = False) -> tuple[SeatClient, ReplyView]:
    """A seat of one lane whose replies are always there, with the infos of its rows."""
    spaces = (Bits.observation_space,) * entities, (Bits.action_space,) * entities, (0,) * entities
    description = SeatDescription(
        lanes=1, interface=Interface(tuple("ab"[:entities]), *spaces), alone=True, external=external
    )
    size = link_size(description.layout())
    link: Any = SimpleNamespace(
        inbox=np.zeros(size.reply, np.uint8),
        outbox=np.zeros(size.request, np.uint8),
        post=lambda nbytes: None,
        wait=lambda: None,
        close=lambda: None,
        wait_extra=lambda: pack((dict(enumerate(infos)), {})),
    )
    client = SeatClient(description, link, seed=1)
    reply = ReplyView(description.layout(), link.inbox)
    reply.active[:] = reply.fresh[:] = True
    reply.set_header(0, last=False, extra=True)
    return client, reply


@pytest.mark.parametrize("external", [False, True])
def test_a_games_keys_are_data_on_every_face(external: bool) -> None:
    """The arena's own statements stay what they are, also in external games, which have all of them."""
    theirs = {("game/" + key if key in ARENA_KEYS or key[0] == "_" or "/" in key else key): OURS[key] for key in OURS}
    _, single = EnvProxy(seat(OURS, external=external)[0]).reset()
    assert single == theirs and isinstance(single, Infos)
    assert single.fields.active is True and not single.fields.void and not single.fields.given

    _, agents = ParallelEnvProxy(seat(OURS, OURS, entities=2, external=external)[0]).reset()
    assert agents["a"] == agents["b"] == {**theirs, "active": True}

    client, reply = seat(OURS, external=external)
    env = VectorEnvProxy([client])
    _, infos = env.reset()
    assert infos["active"].tolist() == [True] and infos["game/active"].tolist() == [False]
    assert infos["lives"].tolist() == [3] and infos["_lives"].tolist() == [True]
    assert infos["game/_lives"].tolist() == [4] and infos["episode"][0] == OURS["episode"]
    if external:
        reply.void[:] = True
        *_, infos = env.step(np.zeros(1, np.int64))
        assert infos["void"].tolist() == infos.fields.void.tolist() == [True]
        assert infos["game/void"].tolist() == [True] and infos.fields.given.tolist() == [False]
    else:
        assert infos.fields[2:] == (None,) * 6 and "void" not in infos


@pytest.mark.parametrize("key", ["final_obs", "final_info", "_final_obs"])
def test_keys_of_vector_environments_are_refused_by_name(key: str) -> None:
    game = adapt(Bits, {"keys": {key: [1, 1, 1]}}, 1)
    with pytest.raises(ContractBroken, match=f"the info '{key}'.* rename the key"):
        check_batched_env(game)
    played = RestartingGame(lambda: game, lanes=range(1), seeds=[1], limit=None)
    with pytest.raises(GameError, match=f"'agent_0' in lane 0 the info '{key}'.* rename the key"):
        played.begin()
    assert refused_key({"episode": {"r": 1}}) is None


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("space", "mask", "found", "needs"),
    [
        (Discrete(5), [1, 1, 1, 1], r"\[1 1 1 1\] of shape \(4,\)", r"\(5,\)"),
        (Discrete(5), np.zeros((5, 1)), r"\[\[0\.\].* of shape \(5, 1\)", r"\(5,\)"),
        (MultiDiscrete([2, 3]), [1, 1], r"\[1 1\] of shape \(2,\)", r"\(5,\)"),
        (MultiDiscrete([2, 3]), [[1, 1], [1, 1, 1]], r"\[list.* of shape \(2,\)", r"\(5,\)"),
    ],
    ids=["short", "of two axes", "one item per choice", "one list per choice"],
)
def test_mask_of_another_length_names_the_entity_and_its_space(
    space: Any, mask: Any, found: str, needs: str, vector: bool
) -> None:
    class Masked(Bits):
        action_space = space

    class MaskedVector(VectorEnv[Any, Any, Any]):
        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        single_observation_space, single_action_space = Box(0, 1, (1,)), space
        observation_space, action_space, num_envs = Box(0, 1, (1, 1)), batch_space(space, 1), 1

        def reset(self, **options: Any) -> Any:
            masks = np.empty(1, object)
            masks[0] = mask
            return np.zeros((1, 1), np.float32), {"action_mask": masks}

    game = adapt(MaskedVector, {}, 1) if vector else adapt(Masked, {"keys": {"action_mask": mask}}, 1)
    words = rf"the game gave 'agent_0' in lane 0 the action mask {found}; expected {needs} of 0 and 1 for its "
    with pytest.raises(GameError, match=words + re.escape(str(space))):
        game.reset(np.ones(1, np.bool_))


@pytest.mark.parametrize("mask", [[0.5, 1], [256, 1], [1, -1], [1], ["a", "b"]], ids=str)
def test_masks_keep_their_values_or_are_refused(mask: Any) -> None:
    class Masked(Bits):
        def step(self, action: Any) -> Any:
            *result, _ = super().step(action)
            return *result, {"action_mask": mask}

    game = RestartingGame(
        lambda: adapt(Masked, {"keys": {"action_mask": [1, 1]}}, 1), lanes=range(1), seeds=[1], limit=None
    )
    game.begin()
    with pytest.raises(GameError, match=r"the action mask .* expected"):
        game.step([np.zeros(1, np.int64)])


@pytest.mark.parametrize("make", [InPlace, InPlaceParallel])
def test_the_last_info_and_mask_of_an_episode_are_not_those_of_the_next(make: Any) -> None:
    lanes = 2
    game = RestartingGame(lambda: adapt(make, {}, lanes), lanes=range(lanes), seeds=[1, 2], limit=None)
    entities = len(game.interface.entities)
    game.begin()
    for tick in range(51, 56):
        step = game.step([np.zeros(lanes, np.int64)] * entities)
        assert step is not None and step.frame.infos is not None
        assert [seen.tolist() for seen in step.frame.observations] == [[[tick]] * lanes] * entities
    game.reset(np.ones(lanes, np.bool_))
    for lane in step.frame.infos:
        assert lane == [{"n": 55, "nested": {"list": [55]}, "shared": 55}] * entities
    if make is InPlace:
        assert step.frame.final_masks is not None
        assert [mask.tolist() for mask in step.frame.final_masks if mask is not None] == [[[0, 1]] * lanes]


def test_agents_in_turn_that_share_an_array_see_their_own() -> None:
    game = adapt(InPlaceInTurns, {}, 1)
    frame = game.reset(np.ones(1, np.bool_))
    assert [seen.tolist() for seen in frame.observations] == [[[10]], [[20]]]
    game.step([np.zeros(1, np.int64)] * 2)
    step = game.step([np.zeros(1, np.int64)] * 2)
    assert step.terminated.all() and [seen.tolist() for seen in step.frame.observations] == [[[12]], [[22]]]


def test_a_plain_vector_environment_states_what_gymnasiums_keys_say() -> None:
    env = gymnasium.vector.SyncVectorEnv(
        [lambda: Bits({"void": True}) for _ in range(2)], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
    )
    env.reset(seed=1)
    for _ in range(5):
        *_, infos = env.step(np.zeros(2, np.int64))
    fields = fields_of(infos)
    assert fields.ended.tolist() == [True, True] and fields.final_obs[0].shape == (1,)
    assert fields.void is None and fields.given is None
