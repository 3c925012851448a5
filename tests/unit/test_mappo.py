"""MAPPO: the critic's input by hand, actors' own inputs, the gradient against autograd, groups, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena.errors import ConfigError
from fakes import ScriptedEnv, ThreadGroup, solo_group
from learning_steps import play
from policies.maddpg import MADDPG
from policies.mappo import MAPPO

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {"n_steps": 7, "minibatch_size": 16, "hidden_sizes": (8,)}
E, L = 3, 2


def game(space: Any = VECTOR, *, seed: int = 0, lanes: int = L, **more: Any) -> ScriptedEnv:
    rng = np.random.default_rng(seed)
    more.setdefault("reward", lambda observations, actions: rng.normal(size=len(actions)))
    env = ScriptedEnv(space, CHOICE, rows=lanes * E, seed=seed, **more)
    env.seat_entities = ("a", "b", "c")  # type: ignore[attr-defined]
    return env


def worker(env: Any = None, group: ThreadGroup | None = None, **options: Any) -> MAPPO:
    env = env or game()
    return MAPPO(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def played(mappo: MAPPO) -> MAPPO:
    """A worker after one rollout, before learning."""
    mappo.rollout.begin(*mappo.env.reset())
    play(mappo)
    return mappo


def seen_by_critic(mappo: MAPPO, leaves: Any) -> Any:
    """The critic's input of rows, [N, E * (3 + 1) + E]."""
    return mappo.network.encoder.parted(mappo.network.encoder(leaves)).critic.numpy()


def test_critic_input_is_all_entities_active_flags_and_index() -> None:
    def active(tick: int) -> Any:
        return np.array([True, tick != 2, True, True, True, tick < 5])

    mappo = played(worker(game(length=99, active=active)))
    points, rollout = mappo.inputs(), mappo.rollout
    found = np.concatenate([seen_by_critic(mappo, points.played), seen_by_critic(mappo, points.last)])
    for t in range(8):
        acts = active(t)
        for lane in range(L):
            for entity in range(E):
                expected: list[float] = []
                for other in range(E):
                    row = lane * E + other
                    own = rollout.leaves(t)[0][row].tolist() if acts[row] else [0.0] * 3
                    expected += [*own, float(acts[row])]
                expected += np.eye(E)[entity].tolist()
                np.testing.assert_array_equal(found[t * L * E + lane * E + entity], np.float32(expected))


def test_truncated_episode_is_valued_from_all_final_observations() -> None:
    """Entity 1 has left its lane's game before; entity 2 of the second lane goes on where the others are cut."""
    env = game(length=4)
    env._active = lambda tick: np.array([True, False, True, True, True, True])
    last: list[Any] = []
    step = env.step

    def watched(actions: Any) -> Any:
        observations, rewards, terminated, truncated, infos = step(actions)
        truncated = truncated & np.array([True, False, True, True, True, False])
        if truncated.any():
            last.append((observations, infos["final_obs"]))
        return observations, rewards, terminated, truncated, infos

    env.step = watched  # type: ignore[method-assign]
    mappo = played(worker(env))
    found = seen_by_critic(mappo, mappo.inputs().finals)
    ((observations, finals),) = last
    nothing = [0.0] * 4
    first = [*finals[0], 1.0, *nothing, *finals[2], 1.0]
    second = [*finals[3], 1.0, *finals[4], 1.0, *observations[5], 1.0]
    asked = [(first, 0), (first, 2), (second, 0), (second, 1)]
    expected = [[*lane, *np.eye(E)[entity]] for lane, entity in asked]
    np.testing.assert_array_equal(found, np.float32(expected))


@pytest.mark.parametrize("kind", [MAPPO, MADDPG])
def test_a_team_of_one_entity_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="here the team has one"):
        kind(ScriptedEnv(VECTOR, CHOICE), solo_group(), ticks=100)
