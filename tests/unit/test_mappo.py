"""MAPPO: the critic's input by hand, actors' own inputs, memory, units, teams of workers, refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena.errors import ConfigError
from arena.game.spaces import flatten, unflatten
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, solo_group, together
from learning_steps import evaluate, learn, play
from policies.common.columns import cat
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.networks.units.options import Relative, Transformer
from unit_games import EVERYTHING, RandomUnits

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


# ------------------------------------------------------------------------------------------------------------- memory

MEMORY = {"recurrent": "gru", "hidden_size": 6, "sequence_length": 5}


def moved(mappo: MAPPO) -> MAPPO:
    with torch.no_grad():
        for weight in mappo.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return mappo


def some_wait(tick: int) -> Any:
    return np.array([True, tick % 2 == 0, tick % 3 > 0, True, True, tick < 5])


def test_critic_sees_the_memories_of_all_entities() -> None:
    """Its features are, entity by entity, the critic's half of the recurrent features of what that row saw."""
    mappo = played(moved(worker(game(active=some_wait), **MEMORY, n_steps=9)))
    inputs, rollout, encoder = mappo.inputs(), mappo.rollout, mappo.network.encoder
    with torch.no_grad():
        found = encoder.parted(encoder(inputs.played))
        for t in range(9):
            own = encoder.own.parted(encoder.own(rollout.leaves(t)))
            rows = slice(t * L * E, (t + 1) * L * E)
            torch.testing.assert_close(found.actor[rows], own.actor)
            acts = torch.from_numpy(some_wait(t)).float()[:, None]
            lanes = torch.cat([own.critic * acts, acts], 1).view(L, 1, -1).expand(L, E, -1).flatten(0, 1)
            # with a sequence of its own the row sees itself also where it waits
            waits = acts[:, 0] == 0
            expected = torch.cat([lanes, torch.eye(E).repeat(L, 1)], 1)
            torch.testing.assert_close(found.critic[rows][~waits], expected[~waits])


def test_memory_of_sequences_equals_that_of_single_ticks() -> None:
    mappo = played(moved(worker(game(active=some_wait, length=7), **MEMORY, n_steps=23)))
    batch = evaluate(mappo)
    encoder = mappo.network.encoder
    with torch.no_grad():
        stepped, unrolled = encoder(batch.observations), encoder.unrolled(batch.observations, batch.lengths)
        places = [number for number, leaf in enumerate(batch.observations) if leaf.shape[-1] == mappo.memory_size]
        blank = [torch.zeros_like(leaf) if number in places else leaf for number, leaf in enumerate(batch.observations)]
        forgetful = encoder(blank)
    assert len(places) == 2  # the row's own, and those of its lane
    torch.testing.assert_close(unrolled, stepped, atol=1e-5, rtol=0)
    for part in (slice(None, encoder.of_one), slice(encoder.of_one, None)):
        assert (stepped - forgetful)[:, part].abs().max() > 0.1


def test_values_gradient_goes_back_through_the_rows_own_sequence() -> None:
    mappo = played(moved(worker(game(), **MEMORY)))
    batch = evaluate(mappo)
    seen = batch.observations[0].clone().requires_grad_()
    leaves = (seen, *batch.observations[1:])
    _, values = mappo.network.policy_and_value(leaves, None, batch.lengths)
    begin, length = int(batch.lengths[0]), int(batch.lengths[1])
    values[begin + length - 1].backward()
    reached = seen.grad.abs().sum(1) > 0
    assert reached.nonzero().squeeze(1).tolist() == list(range(begin, begin + length))


# -------------------------------------------------------------------------------------------------------------- units


def unit_worker(group: ThreadGroup | None = None, *, kind: type[MAPPO] = MAPPO, **given: Any) -> MAPPO:
    """Two entities of a lane; `rows` and the like are the game's, the rest are options."""
    of_game = {name: given.pop(name) for name in ("rows", "seed", "active", "ticks", "length") if name in given}
    env = RandomUnits(**of_game)
    env.seat_entities = ("a", "b")  # type: ignore[attr-defined]
    options = {"n_steps": 6, "minibatch_size": 999, "transformer": Transformer(d_model=8, layers=1), **given}
    return kind(env, group or solo_group(), ticks=env.ticks, **options)


PLACES = Transformer(d_model=8, layers=1, critic="separate", relative=Relative(position=("x", "y"), extent=(1, 1)))


@pytest.mark.parametrize("transformer", [Transformer(d_model=8, layers=1), PLACES], ids=["shared", "separate, places"])
def test_value_of_units_is_made_of_every_entitys_mean_token(transformer: Transformer) -> None:
    """By hand, one row at a time; entity b of the second lane waits on odd ticks."""
    active = lambda tick: np.array([True, True, True, tick % 2 == 0])  # noqa: E731
    mappo = moved(unit_worker(transformer=transformer, active=active, length=4))
    rollout = played(mappo).rollout
    inputs, network = mappo.inputs(), mappo.network
    kept = [mappo.preprocess(rollout.leaves(t)) for t in range(7)]

    def mean_token(t: int, row: int) -> Any:
        parts, tokens, layout = network._read([leaf[row : row + 1] for leaf in kept[t]])
        return (network.critic_encoder or network.encoder)(parts, tokens, layout).mean(0)

    with torch.no_grad():
        found = torch.cat([network.value(inputs.played), network.value(inputs.last)])
        for t in range(7):
            for row in range(4):
                lane, place = divmod(row, 2)
                seen = []
                for other in (2 * lane, 2 * lane + 1):
                    acts = float(active(t)[other])
                    seen += [mean_token(t, other) * acts, torch.tensor([acts])]
                expected = network.critic(torch.cat([*seen, torch.eye(2)[place]]))[0]
                torch.testing.assert_close(found[4 * t + row], expected, atol=1e-5, rtol=1e-5)
    assert found.std() > 0.01
    policy, values = network.policy_and_value(inputs.played)
    torch.testing.assert_close(values, found[: len(values)])
    alone = network.policy(mappo.rollout.flat()[0] if transformer.relative is None else kept_rows(kept[:-1]))
    torch.testing.assert_close(policy.log_prob(rollout.flat()[2]), alone.log_prob(rollout.flat()[2]))


def kept_rows(ticks: list[list[Any]]) -> list[Any]:
    return [cat(columns) for columns in zip(*ticks, strict=True)]


def test_cut_episodes_of_units_are_valued_by_their_last_observations() -> None:
    mappo = moved(unit_worker(length=4, rows=2))  # the rows' episodes are cut on different ticks
    rollout = played(mappo).rollout
    inputs = mappo.inputs()
    ticks, rows = rollout.final_places()
    count = len(rollout.leaves(0))
    for number, (t, row) in enumerate(zip(ticks, rows, strict=True)):
        joint = [leaf[number : number + 1] for leaf in inputs.finals[count:-2]]
        other = 1 - row
        for leaf, own, final in zip(range(count), rollout.leaves(t + 1), rollout.final_leaves(), strict=True):
            for entity, expected in ((row, final[number : number + 1]), (other, own[other : other + 1])):
                got = joint[entity * count + leaf]
                assert all_equal(got, expected) if isinstance(got, torch.Tensor) else same(got, expected)
    assert len(ticks) == 2
    assert mappo.state_value(mappo.env.shown) is None  # the critic sees more than a row


def same(left: Any, right: Any) -> bool:
    return torch.equal(left.values, right.values) and np.array_equal(left.lengths, right.lengths)


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_a_unit_team_of_workers_equals_one_seat(sync: str) -> None:
    """Each worker drives one entity; both see what one seat would see."""

    def half(env: Any, place: int) -> Any:
        """The rows of one entity of a game of two."""
        observed = env._next

        def rows() -> Any:
            observations, infos = observed()
            mine = np.arange(place, 4, 2)
            chosen = [leaf[mine] for leaf in flatten(EVERYTHING, observations)]
            return unflatten(EVERYTHING, chosen), {"active": infos["active"][mine]}

        return rows

    def work(group: ThreadGroup) -> Any:
        place = group.team.index(group.rank)
        env = RandomUnits(length=99, active=lambda tick: np.ones(4, np.bool_))
        env._next, env.num_envs = half(env, place), 2  # type: ignore[method-assign]
        env.step = partial(stepped, env, place)  # type: ignore[method-assign]
        options = {"n_steps": 6, "minibatch_size": 999, "transformer": Transformer(d_model=8, layers=1)}
        mappo = MAPPO(env, group, ticks=99, **options)
        batch = evaluate(played(mappo))
        learn(mappo, batch)
        return batch, flat_weights(mappo.network)

    def stepped(env: Any, place: int, actions: Any) -> Any:
        observations, infos = env._next()
        rewards = env._rng.normal(size=4)[place::2]
        return observations, rewards, np.zeros(2, np.bool_), np.zeros(2, np.bool_), infos

    workers = together(2, work, sync=sync, team_size=2)
    seat = unit_worker(length=99, active=lambda tick: np.ones(4, np.bool_))
    seat.rollout.begin(*seat.env.reset())
    play(seat)
    inputs = seat.inputs()
    values = seat.network.value(inputs.played).detach()
    for place, (batch, weights) in enumerate(workers):
        assert np.array_equal(weights, workers[0][1])
        torch.testing.assert_close(batch.values, values[place::2], atol=1e-6, rtol=1e-5)
