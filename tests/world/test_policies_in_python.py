"""Every algorithm of the registry acts in each of the ways that Python and a server have for its policies."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arena
from arena import ConfigError, Trainer, registry
from arena.cli import serve
from arena.config import load_config, parse_config
from arena.game.spaces import row, stack
from arena.records.folder import RunFolder
from arena.seat.play import play
from arena.serving.models import model_of
from arena.serving.policy import configured_policy
from in_process import one_match, train

ENTITIES = ("blue_0", "blue_1")
OPTIONS: dict[str, Any] = {
    **{"n_steps": 20, "minibatch_size": 20, "learning_starts": 20, "batch_size": 10, "buffer_size": 400},
    **{"gradient_steps": 4, "learning_rate": 0.01, "hidden_sizes": [8], "shared_actor": False},
    **{"action": 1, "train_every": 4},
}
CONTINUOUS = {"ddpg", "td3", "maddpg", "masac", "sb3:DDPG", "sb3:TD3", "sb3:SAC"}


def configuration(name: str, folder: Path, seats: list[Any], **options: Any) -> dict[str, Any]:
    """A short run in which `name` plays the two entities of `blue`."""
    known = registry.option_parameters(registry.algorithm(name)).names
    options |= {option: value for option, value in OPTIONS.items() if option in known}
    kinds = {"blue_actions": "continuous"} if name in CONTINUOUS else {}
    game = {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 20, **kinds}}
    red: Any = {"algorithm": "random"}
    if "data" in known:
        recorded = one_match(game, {"blue": red, "red": red}, ticks=60, seats=seats, record="samples")
        options["data"] = str(train({**recorded, "seed": 1}, folder / "recorded").path)
    blue = {"algorithm": name, "options": options}
    return {"name": "test", **one_match(game, {"blue": blue, "red": red}, ticks=80, seats=seats, seed=1)}


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("seats", [[["blue", "blue"], ["red", "red"]], ["blue", "blue", "red", "red"]], ids=["1", "2"])
@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_every_algorithm_acts_in_every_way_as_in_its_run(name: str, seats: list[Any], tmp_path: Path) -> None:
    if package := registry.ALGORITHMS[name].package:
        pytest.importorskip(package)
    with Trainer(configuration(name, tmp_path, seats), run_dir=tmp_path / "run") as trainer:
        while not trainer.done:
            trainer.train()
        policy = arena.load_policy(f"{tmp_path / 'run'}:blue")
        policy.observation_space.seed(3)
        seen = [policy.observation_space.sample() for _ in ENTITIES]
        both = stack(policy.observation_space, seen)
        # As the run's own evaluations play: the algorithm's actor, with the rows of a whole seat.
        expected = policy.actor(2, greedy=True)(both, {})
        each = [row(policy.action_space, expected, place) for place in range(2)]
        run = RunFolder(tmp_path / "run")
        model = model_of(configured_policy(load_config(run.config), run, "blue"), 4, greedy=True)
        served, _ = model.act(np.array([3, 0]), both, None, np.zeros((2, model.memory_size), np.float32), None)
        ways = {
            "one by one": [policy.act(one, entity=place) for place, one in enumerate(seen)],
            "a batch of a team": policy.act(both),
            "numbers of another dtype": policy.act(both.astype(np.float64)),
            "a player": [trainer.policy("blue").act(one, entity=place) for place, one in enumerate(seen)],
            "Trainer.compute_action": [
                trainer.compute_action(one, policy="blue", entity=place) for place, one in enumerate(seen)
            ],
            "Trainer.compute_actions": [*trainer.compute_actions(dict(zip(ENTITIES, seen, strict=True))).values()],
        }
        for way, found in ways.items():
            for one in found:
                assert policy.action_space.contains(np.asarray(one, policy.action_space.dtype)[()]), way
            if name != "random":
                same(found, each)
        if name != "random":
            same(served, policy.act(stack(policy.observation_space, seen[::-1]))[::-1])


SEATS = [["blue", "blue"], ["red", "red"]]


@pytest.mark.parametrize(("name", "options"), [("qmix", {}), ("maddpg", {"shared_actor": True})])
def test_actors_of_a_team_remember_by_entity(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    memory = {"recurrent": "gru", "sequence_length": 4, "burn_in": 0, "batch_size": 16, **options}
    data = configuration(name, tmp_path, SEATS)
    data["policies"]["blue"]["options"] |= memory
    with Trainer(data, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        policy, player = arena.load_policy(f"{tmp_path / 'run'}:blue"), trainer.policy("blue")
        whole = policy.actor(2, greedy=True)
        policy.observation_space.seed(3)
        memories: list[Any] = [None, None]
        assert player.remembers
        for _ in range(3):
            seen = [policy.observation_space.sample() for _ in ENTITIES]
            acted = whole(stack(policy.observation_space, seen), {})
            expected = [row(policy.action_space, acted, place) for place in range(2)]
            same([policy.act(one, entity=place) for place, one in enumerate(seen)], expected)
            same([*trainer.compute_actions(dict(zip(ENTITIES, seen, strict=True))).values()], expected)
            for place, one in enumerate(seen):
                action, memories[place] = trainer.compute_action(
                    one, policy="blue", entity=place, memory=memories[place]
                )
                same(action, expected[place])


GRU = {"recurrent": "gru"}
UNKNOWN = (
    rf"^blue \(\w+\) plays no entity '?\w+'?; .*known: {', '.join(ENTITIES)}; for several games at once pass a batch",
    "^blue \\(qmix\\) has an actor for each of 2 entities: got entity=",
)


@pytest.mark.parametrize(("name", "options"), [("ppo", GRU), ("hppo", {}), ("qmix", GRU)])
def test_one_policy_remembers_each_entity_apart(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    data = configuration(name, tmp_path, SEATS)
    data["policies"]["blue"]["options"] |= options
    if name == "qmix":
        data["policies"]["blue"]["options"] |= {"sequence_length": 4, "burn_in": 0, "batch_size": 16}
    named = f"{train(data, tmp_path / 'run').path}:blue"
    shared, own = arena.load_policy(named), [arena.load_policy(named), arena.load_policy(named)]
    names: tuple[Any, Any] = (0, 1) if name == "qmix" else ENTITIES
    space = shared.observation_space
    space.seed(3)
    seen = [[space.sample() for _ in ENTITIES] for _ in range(12)]
    expected = [[own[place].act(one, entity=names[place]) for place, one in enumerate(both)] for both in seen]
    found = [[shared.act(one, entity=names[place]) for place, one in enumerate(both)] for both in seen]
    assert found == expected
    for call in (shared.reset, partial(shared.act, seen[0][0])):
        for unknown in ("blue_O", "red_0", 2):
            with pytest.raises(ValueError, match=UNKNOWN[name == "qmix"]):
                call(entity=unknown)
    shared.reset(entity=names[0])
    assert shared.act(seen[0][0], entity=names[0]) == expected[0][0], "its episode begins"
    with pytest.raises(ValueError, match=f"of one observation of entity {names[0]!r}, and got a batch of 4;"):
        shared.act(np.stack(seen[0] * 2), entity=names[0])
    if name != "qmix":  # without its place in the team it is refused anyway
        with pytest.raises(
            ValueError, match="has a memory and plays 2 entities of a game; say which of them sees this"
        ):
            shared.act(seen[0][0])
    shared.act(np.stack(seen[0] * 2))
    with pytest.raises(ValueError, match="has a memory, of a batch of 4, and got a batch of 6; name each entity in"):
        shared.act(np.stack(seen[0] * 3))
    shared.reset()
    assert shared.act(np.stack(seen[0] * 3)).tolist() == expected[0] * 3


class Vector:
    """Plays the last allowed action of its rows, by the infos of a vector environment."""

    face, schedule = "vector", "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self.env = env

    def run(self) -> None:
        play(self.env, self.actor())

    def actor(self) -> Any:
        return lambda seen, infos: np.where(infos["active"], infos["action_mask"].cumsum(1).argmax(1), 0)


class Gym(Vector):
    """Plays the number of its actions since an episode has begun."""

    face = "gym"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self.env, self.actions = env, env.action_space.n

    def actor(self, *, greedy: bool = False) -> Any:
        return Counter(self.actions)


class Counter:
    """An actor of the gym face."""

    def __init__(self, actions: int) -> None:
        self.actions = actions

    def begin_episode(self) -> None:
        self.count = -1

    def __call__(self, observation: Any, info: Any) -> int:
        assert observation.shape == (1,)
        assert info["action_mask"].shape == (self.actions,)
        self.count += 1
        return self.count % self.actions


class Parallel(Vector):
    """Has no other face."""

    face = "parallel"


@pytest.mark.filterwarnings("ignore:got no mask")
def test_own_algorithms_act_as_in_their_face(tmp_path: Path) -> None:
    def loaded(own: type) -> Any:
        policies = {"blue": {"algorithm": f"{__name__}:{own.__name__}"}}
        data = {"name": "test", **one_match({"make": "vector_games:Masked"}, policies, ticks=1)}
        path = tmp_path / "match.yaml"
        path.write_text(json.dumps(data))
        return configured_policy(load_config(path), None, "blue")

    vector, gym = loaded(Vector), loaded(Gym)
    one, three = np.zeros(1, np.int64), np.zeros((3, 1), np.int64)
    assert (vector.act(one), vector.act(one, np.array([1, 0])), vector.act(three).tolist()) == (1, 0, [1, 1, 1])
    assert [gym.act(one, entity=0) for _ in range(3)] == [0, 1, 0]
    assert [gym.act(one), gym.act(one, entity=0)] == [0, 1], "each entity has an actor of its own"
    assert gym.act(three).tolist() == [0, 0, 0]
    assert gym.act(three, {"_final_obs": np.array([True, False, False])}).tolist() == [0, 1, 1]
    with pytest.raises(ConfigError, match="has the face parallel alone; outside of a run policies act by"):
        loaded(Parallel)


@pytest.mark.parametrize("how", [None, {}, {"action_maks": [1, 0]}, [{}]], ids=str)
@pytest.mark.parametrize("options", [{}, GRU], ids=["plain", "gru"])
def test_policy_of_a_game_with_masks_warns_once_without_one(how: Any, options: Any, tmp_path: Path) -> None:
    game = {"make": "games:Narrow"}
    one = one_match(game, {"p": {"algorithm": "ppo", "options": options | {"n_steps": 4}}}, ticks=4)
    with Trainer(one, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        seen = np.ones((1, 1), np.float32) if isinstance(how, list) else np.ones(1, np.float32)
        for policy in (arena.load_policy(f"{tmp_path / 'run'}:p"), trainer.policy("p")):
            policy.act(seen, mask=np.ones((*seen.shape[:-1], 3), np.int8))
            with pytest.warns(UserWarning, match="no mask, though the game has masks.*'action_mask'"):
                policy.act(seen, how)
            policy.act(seen, how)  # a second warning would be an error


def test_observation_without_parts_is_described() -> None:
    one = one_match({"make": "games:EverySpace"}, {"p": {"algorithm": "ppo"}}, ticks=1)
    config = parse_config({"name": "test", **one}, source="")
    policy = configured_policy(config, None, "p")
    for sample, words in (
        (np.zeros((4, 4, 3), np.uint8), r"got an array uint8 \(4, 4, 3\) without \["),
        ({}, r"got a dict without \["),
    ):
        with pytest.raises(ValueError, match=words):
            policy.act(sample)


def test_entities_of_all_matches_are_known() -> None:
    def loaded(*matches: dict[str, Any]) -> Any:
        one = one_match({"make": "touchdown"}, {"p": {"algorithm": "random"}, "q": {"algorithm": "random"}}, ticks=1)
        one["envs"]["other"] = {"make": "touchdown", "kwargs": {"max_steps": 9}}
        return configured_policy(parse_config({"name": "t", **one, "matches": [*matches]}, source=""), None, "p")

    game, swapped = {"env": "game", "seats": ["p", "q"]}, {"env": "game", "seats": ["q", "p"]}
    both, one = loaded(game, swapped), loaded(game)
    seen = both.observation_space.sample()
    for policy in (both, one):
        policy.act(seen, entity="blue_0")
    both.act(seen, entity="red_0")
    with pytest.raises(ValueError, match=r"plays no entity 'red_0'; known: blue_0;"):
        one.act(seen, entity="red_0")
    loaded(game, swapped | {"env": "other"}).act(seen, entity="red_0")  # of several games the names are not known


def test_floats_in_the_place_of_integers_are_told_the_dtype() -> None:
    one = one_match({"make": "games:EverySpace"}, {"p": {"algorithm": "ppo"}}, ticks=1)
    policy = configured_policy(parse_config({"name": "test", **one}, source=""), None, "p")
    sample = policy.observation_space.sample()
    name = next(name for name, part in sample.items() if getattr(part, "dtype", None) == np.uint8)
    with pytest.raises(ValueError, match=rf"^the observation\['{name}'\] is float64; uint8 is needed$"):
        policy.act({**sample, name: sample[name].astype(np.float64)})


@pytest.mark.parametrize("game", ["games:Narrow", "games:EverySpace"])
def test_what_reset_and_step_return_is_no_observation(game: str) -> None:
    one = one_match({"make": game}, {"p": {"algorithm": "random"}}, ticks=1)
    policy = configured_policy(parse_config({"name": "test", **one}, source=""), None, "p")
    observation = policy.observation_space.sample()
    for returned in ((observation, {}), (observation, 0.0, False, False, {})):
        with pytest.raises(ValueError, match=r"reset\(\) returns \(observation, info\), and step\(\)"):
            policy.act(returned)


def test_an_entity_of_a_team_is_named_and_what_is_missing_too(tmp_path: Path) -> None:
    run = train(configuration("vdn", tmp_path, SEATS), tmp_path / "run").path
    policy = arena.load_policy(f"{run}:blue")
    observation = policy.observation_space.sample()
    assert policy.team == 2
    for batch, entity in ((observation, None), (observation, 2), (np.stack([observation] * 3), None)):
        with pytest.raises(ValueError, match=r"blue \(vdn\) has an actor for each of 2 entities: got entity="):
            policy.act(batch, entity=entity)
    games = np.stack([observation] * 3)  # of one entity, in three games
    assert policy.act(games, entity=1).tolist() == [policy.act(observation, entity=1)] * 3
    assert policy.act(games, entity=1, greedy=False).shape == (3,)


def test_a_served_policy_of_a_team_has_all_of_its_entities(tmp_path: Path) -> None:
    run = train(configuration("vdn", tmp_path, SEATS), tmp_path / "run").path
    policy = arena.load_policy(f"{run}:blue")
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    words = [f"{run}:blue", "--engine", "torch", "--http", "0", "--slots", "2"]
    running = serve.prepare(parser.parse_args(words))
    (player,) = running.players
    assert player.entities == [0, 1]
    seen = policy.observation_space.sample()
    found, _ = player.model.act(np.arange(4), np.stack([seen] * 4), None, np.zeros((4, 0), np.float32), None)
    assert found.tolist() == [*policy.act(np.stack([seen] * 2))] * 2
    running.server.close()
