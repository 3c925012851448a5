"""VDN and QMIX: the team's value, targets, games of known values, the state, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

from arena.errors import ConfigError
from fakes import ScriptedEnv, solo_group
from joint_minibatches import CHOICE, SMALL, VECTOR, E, game, made_up, mask_of
from learning_steps import run
from minibatches import disturb
from policies.common.replay import Transitions
from policies.qmix import QMIX, MixedQNetwork
from policies.vdn import VDN

both = pytest.mark.parametrize("kind", [VDN, QMIX])
WORLD = Box(-9, 9, (2,), np.float32)
SEEN = Dict(own=VECTOR, world=WORLD)


def worker(kind: Any, env: Any = None, **options: Any) -> Any:
    env = env or game()
    return kind(env, solo_group(), ticks=env.ticks, **{**SMALL, "hidden_sizes": (16,), **options})


def changed(learner: Any) -> Any:
    """The learner with other weights, which differ from those of its target network."""
    disturb(learner.network, learner.targets["network"].module)
    return learner


# ------------------------------------------------------------------------------------------------------- the maths


def values_of(network: Any, leaves: tuple[Tensor, ...]) -> Tensor:
    """Q_i [N, E, choices], entity by entity, from its own masked observation."""
    seen, acts = leaves
    found = []
    for index in range(E):
        own, members = seen[:, index] * acts[:, [index]], network.actors.members
        if len(members) == 1:
            own = torch.cat([own, torch.eye(E)[[index]].expand(len(own), E)], 1)
        outputs = members[index % len(members)](own)
        if network.dueling:
            outputs = outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(1, keepdim=True)
        found.append(outputs)
    return torch.stack(found, 1)


def total_of(network: Any, leaves: tuple[Tensor, ...], actions: Tensor) -> Tensor:
    """Q(x, a) [N], row by row and entity by entity."""
    seen, acts = leaves
    values, found = values_of(network, leaves), []
    for row in range(len(actions)):
        taken = [values[row, index, actions[row, index]] * acts[row, index] for index in range(E)]
        if not isinstance(network, MixedQNetwork):
            found.append(sum(taken, torch.zeros(())))
            continue
        state = torch.cat([torch.cat([seen[row, i] * acts[row, i], acts[row, [i]].float()]) for i in range(E)])[None]
        hidden, weights = network.first_bias(state)[0], network.first_weights(state).abs().view(E, network.units)
        for index in range(E):
            hidden = hidden + taken[index] * weights[index]
        hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
        found.append(hidden @ network.last_weights(state)[0].abs() + network.last_bias(state)[0, 0])
    return torch.stack(found)


@pytest.mark.parametrize("options", [{}, {"double": False, "dueling": True, "shared_actor": False}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@both
def test_loss_equals_the_formula_row_by_row(kind: Any, masked: bool, options: dict[str, Any]) -> None:
    learner = changed(worker(kind, **options))
    batch, target = made_up(learner, 30, masked=masked), learner.targets["network"].module
    chooser = learner.network if learner.options.double else target
    choosing = values_of(chooser, batch.next_observations).detach()
    best = torch.zeros(30, E, dtype=torch.int64)
    for row, index in itertools.product(range(30), range(E)):
        allowed = range(4) if batch.next_masks is None else torch.nonzero(mask_of(batch.next_masks, index)[row])
        best[row, index] = max(map(int, allowed), key=lambda action: float(choosing[row, index, action]))
    after = total_of(target, batch.next_observations, best)
    reward = torch.stack([batch.rewards[row].sum() / E for row in range(30)])
    discount = torch.stack([batch.discounts[row].max() for row in range(30)])
    values = total_of(learner.network, batch.observations, batch.actions)
    errors = values - (reward + discount * after)
    loss, metrics, found = learner.loss(batch)
    torch.testing.assert_close(found, errors.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(loss, (batch.weights * errors.square()).mean(), atol=1e-5, rtol=1e-5)
    figures = dict(zip(learner.metric_names, metrics.tolist(), strict=True))
    assert figures["q_value"] == pytest.approx(values.mean().item(), abs=1e-5)
    assert figures["td_error"] == pytest.approx(errors.abs().mean().item(), abs=1e-5)


@both
def test_greedy_actions_of_entities_are_the_best_joint_action(kind: Any) -> None:
    learner = changed(worker(kind))
    leaves = made_up(learner, 20).observations
    acts = leaves[-1].bool()
    with torch.no_grad():
        joint_features = learner.network.encoder(leaves)
        best = learner.network.of_team(joint_features).argmax(2)
        joint = torch.tensor(list(itertools.product(range(4), repeat=E)))
        totals = torch.stack([learner.network.taken(joint_features, one.expand(20, E)) for one in joint])
        torch.testing.assert_close(learner.network.taken(joint_features, best), totals.max(0).values)
    same = (joint[totals.argmax(0)] == best) | ~acts
    assert same.all() or kind is QMIX  # hidden units of a mixing network may saturate, but not fall


def test_team_value_of_qmix_rises_with_every_entity_and_depends_on_the_state() -> None:
    network = changed(worker(QMIX)).network
    leaves = made_up(worker(QMIX), 50).observations
    joint = network.encoder(leaves)
    values = torch.randn(50, E, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (slopes,) = torch.autograd.grad(network.mixed(values, joint).sum(), values)
    assert (slopes >= 0).all()
    assert (slopes > 0).any(0).all()
    assert slopes.std(0).min() > 1e-3  # the weights follow the state


@pytest.mark.parametrize("hypernet_sizes", [[64], []], ids=str)
@pytest.mark.parametrize("deviation", [0.2, 5.0])
@pytest.mark.parametrize("numbers", [10, 500])
def test_mixing_begins_as_a_sum_whatever_the_state(numbers: int, deviation: float, hypernet_sizes: list[int]) -> None:
    """The mean over seeds of dQ / dQ_i is that of VDN, 1."""
    env = game(Dict(own=VECTOR, world=Box(-99, 99, (numbers,), np.float32)))
    slopes: list[Tensor] = []
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        encoder = worker(QMIX, env, state="world").make_encoder(generator)
        layers: dict[str, Any] = {"places": range(E), "shared": True, "dueling": False, "hidden_sizes": (16,)}
        network = MixedQNetwork(
            encoder, 4, units=32, hypernet_sizes=hypernet_sizes, generator=generator, activation="relu", **layers
        )
        world = torch.randn(50, 1, numbers, generator=generator).expand(-1, E, -1) * deviation
        joint = encoder((torch.zeros(50, E, 3), world, torch.ones(50, E)))
        values = torch.zeros(50, E, requires_grad=True)
        slopes += torch.autograd.grad(network.mixed(values, joint).sum(), values)
    assert torch.stack(slopes).mean().item() == pytest.approx(1, abs=0.2)
    assert max(one.max().item() for one in slopes) < 3


@both
def test_values_stay_near_the_returns_where_states_are_large(kind: Any) -> None:
    """Rewards of 1/9 come in every twentieth transition, whatever is done: with a discount of 0.95, values are 1/9."""
    learner = worker(kind, game(Box(0, 99, (18,), np.float32)), hidden_sizes=(64, 64), learning_rate=3e-4)
    learner.ticks = 1_000_000
    draw, rows = torch.Generator().manual_seed(0), 64
    states, acts = torch.randint(20, (2001, E, 18), generator=draw).float(), torch.ones(rows, E, dtype=torch.int64)
    for _ in range(500):
        now = torch.randint(2000, (rows,), generator=draw)
        rewards = (torch.rand(rows, generator=draw) < 0.05).float() / 9
        batch = Transitions(
            observations=(states[now], acts),
            masks=None,
            actions=torch.randint(4, (rows, E), generator=draw),
            rewards=rewards[:, None].repeat(1, E),
            next_observations=(states[now + 1], acts),
            next_masks=None,
            discounts=torch.full((rows, E), 0.95),
            weights=torch.ones(rows),
            indices=now,
        )
        learner.update(batch)
        learner.targets["network"].update(0.02)
    with torch.no_grad():
        network = learner.network
        joint = network.encoder((states, torch.ones(len(states), E, dtype=torch.int64)))
        values = network.taken(joint, network.of_team(joint).argmax(2))
    assert abs(values.mean().item() - 1 / 9) < 0.3


# ---------------------------------------------------------------------------------------------- games of known values


def joint_batch(states: Any, actions: Any, rewards: Any, following: Any, discounts: Any) -> Transitions:
    """Transitions of two entities that both see the state, one-hot of so many; all act."""

    def leaves(numbers: Any) -> tuple[Tensor, Tensor]:
        seen = torch.eye(3)[torch.tensor(numbers)]
        return seen[:, None].repeat(1, 2, 1), torch.ones(len(numbers), 2, dtype=torch.int64)

    count = len(states)
    return Transitions(
        observations=leaves(states),
        masks=None,
        actions=torch.tensor(actions),
        rewards=torch.tensor(rewards, dtype=torch.float32)[:, None].repeat(1, 2),
        next_observations=leaves(following),
        next_masks=None,
        discounts=torch.tensor(discounts, dtype=torch.float32)[:, None].repeat(1, 2),
        weights=torch.ones(count),
        indices=torch.arange(count),
    )


def learned(kind: Any, batch: Transitions, steps: int, **options: Any) -> Any:
    """Q(s, a_1, a_2), [3, 2, 2], after gradient steps on the whole batch; and the greedy actions, [3, 2]."""
    env = game(Box(0, 1, (3,), np.float32), Discrete(2), entities=2)
    falls = {"learning_rate": 1e-2, "learning_rate_schedule": "linear", "hidden_sizes": (32,)}
    learner = worker(kind, env, **falls, **options)
    learner.ticks = steps
    for step in range(steps):
        learner.ticks_done = step
        learner.update(batch)
        learner.targets["network"].update(0.1)
    cases = list(itertools.product(range(3), range(2), range(2)))
    every = joint_batch([s for s, *_ in cases], [one[1:] for one in cases], [0] * 12, [0] * 12, [0] * 12)
    with torch.no_grad():
        joint = learner.network.encoder(every.observations)
        totals = learner.network.taken(joint, every.actions).view(3, 2, 2)
        greedy = learner.network.of_team(joint).argmax(2).view(3, 4, 2)[:, 0]
    return totals.numpy(), greedy.tolist()


PAYOFFS = {
    "additive": [[0.0, 1.0], [2.0, 3.0]],
    "monotonic": [[0.0, 1.0], [1.0, 8.0]],
    "not monotonic": [[2.0, 0.0], [0.0, 3.0]],
}
JOINT = list(itertools.product(range(2), range(2)))


@pytest.mark.slow
@pytest.mark.parametrize("payoffs", PAYOFFS)
@both
def test_one_state_game_has_the_values_that_are_known(kind: Any, payoffs: str) -> None:
    """A sum has those of least squares; a monotonic network every monotonic table exactly."""
    table = np.array(PAYOFFS[payoffs])
    batch = joint_batch([0] * 4, JOINT, table.ravel().tolist(), [0] * 4, [0] * 4)
    found, _ = learned(kind, batch, 2000)
    fitted = table.mean(1, keepdims=True) + table.mean(0, keepdims=True) - table.mean()
    if kind is VDN:
        np.testing.assert_allclose(found[0], fitted, atol=0.02)
    elif payoffs != "not monotonic":
        np.testing.assert_allclose(found[0], table, atol=0.05)
    else:
        assert np.square(found[0] - table).sum() <= np.square(fitted - table).sum() + 0.05
        assert np.abs(found[0] - table).max() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_two_step_game_is_worth_7_to_vdn_and_8_to_qmix(shared: bool) -> None:
    """Table 1 of arXiv 1803.11485: every joint action of each state equally often, as with epsilon 1."""
    rows = [(0, pair, 0.0, 1 + pair[0], 1.0) for pair in JOINT]
    rows += [(1, pair, 7.0, 1, 0.0) for pair in JOINT]
    rows += [(2, pair, reward, 2, 0.0) for pair, reward in zip(JOINT, (0.0, 1.0, 1.0, 8.0), strict=True)]
    batch = joint_batch(*map(list, zip(*rows, strict=True)))
    values, greedy = {}, {}
    for kind in (VDN, QMIX):
        values[kind], greedy[kind] = learned(kind, batch, 1500, shared_actor=shared)
    np.testing.assert_allclose(values[VDN][2], [[-1.5, 2.5], [2.5, 6.5]], atol=0.05)
    np.testing.assert_allclose(values[VDN][0], [[7, 7], [6.5, 6.5]], atol=0.1)
    np.testing.assert_allclose(values[QMIX], [[[7, 7], [8, 8]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]], atol=0.1)
    assert greedy[VDN][0][0] == 0  # to 2A, and 7
    assert (greedy[QMIX][0][0], greedy[QMIX][2]) == (1, [1, 1])  # to 2B, and 8


# --------------------------------------------------------------------------------------------------------- the state


def test_entities_do_not_see_the_state_and_the_mixing_network_does() -> None:
    learner = changed(worker(QMIX, game(SEEN), state="world"))
    network, leaves = learner.network, list(made_up(learner, 20).observations)
    actions = torch.zeros(20, E, dtype=torch.int64)
    rows = [leaf.flatten(0, 1) for leaf in leaves[:-1]]
    with torch.no_grad():
        joint = network.encoder(leaves)
        before = network(rows), network.of_team(joint), network.taken(joint, actions)
        rows[1], leaves[1] = rows[1] + 1, leaves[1] + 1
        joint = network.encoder(leaves)
        after = network(rows), network.of_team(joint), network.taken(joint, actions)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert (before[2] - after[2]).abs().min() > 1e-4


def test_memory_and_own_encoder_see_all_but_the_state() -> None:
    options = {"encoder": "own_parts:Net", "recurrent": "gru", "sequence_length": 4, "burn_in": 2}
    learner = run(worker(QMIX, game(SEEN, ticks=30), state="world", **options))
    encoder, batch = learner.network.encoder, learner.replay.sample(20, torch.Generator().manual_seed(0))
    assert learner.gradient_steps > 0
    assert encoder.own.own.own.weights.shape == (8, 3)
    seen, world, acts = batch.observations
    with torch.no_grad():
        before, after = (
            batch.replace(observations=(seen, there, acts)).features(encoder) for there in (world, world + 1)
        )
    assert torch.equal(encoder.by_entity(before), encoder.by_entity(after))
    assert (encoder.state_of(before) != encoder.state_of(after)).sum(1).tolist() == [2] * batch.size


def test_state_is_what_the_first_entity_that_acts_has_observed() -> None:
    encoder = worker(QMIX, game(SEEN), state="world").network.encoder
    world = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]], [[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]]])
    acts = torch.tensor([[0, 1, 1], [1, 1, 0]])
    found = encoder.state_of(encoder((torch.zeros(2, E, 3), world, acts)))
    assert found.tolist() == [[3.0, 4.0, 0.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0, 0.0]]


def test_parts_of_observations_keep_their_order_without_the_state() -> None:
    space = Dict([("z", Discrete(4)), ("world", WORLD), ("a", VECTOR)])
    learner = run(worker(QMIX, game(space, ticks=8), state="world", normalize_observations=True))
    assert learner.gradient_steps > 0
    network = learner.network
    features = network.encoder.rows([torch.tensor([2] * E), torch.zeros(E, 2), torch.ones(E, 3)])
    assert features[0, 0].tolist() == [0, 0, 1, 0, 1, 1, 1]
    assert network.encoder.state_features == 2 + E


@pytest.mark.parametrize("space", [VECTOR, Dict(own=VECTOR), Dict(world=WORLD)], ids=str)
def test_observations_without_the_state_are_refused(space: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"got 'world', expected a key of what entities observe.*wrapper `state`"
    ) as found:
        worker(QMIX, game(space), state="world")
    assert found.value.path == "options.state"


# ---------------------------------------------------------------------------------------------------------- refusals


@both
def test_a_team_of_one_is_refused_with_the_remedy(kind: Any) -> None:
    message = rf"{kind.__name__} learns from all entities of a team at once, and here the team has one; .* or take dqn"
    with pytest.raises(ConfigError, match=message):
        worker(kind, game(entities=1))


@both
def test_actions_that_are_no_choices_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match=f"{kind.__name__} needs a value for every action"):
        worker(kind, game(VECTOR, spaces.MultiDiscrete([2, 3])))


@both
def test_entities_explore_each_by_itself(kind: Any) -> None:
    env = game(VECTOR, CHOICE, lanes=200, ticks=3)
    options = {"exploration_fraction": 0.0, "exploration_final_eps": 0.5, "learning_starts": 0, "learning_rate": 0.0}
    learner = worker(kind, env, **options, train_every=3)
    observations, infos = env.reset()
    greedy = learner.actor(greedy=True)(observations, infos).reshape(-1, E)
    changes = (learner.actor()(observations, infos).reshape(-1, E) != greedy).mean(0)
    np.testing.assert_allclose(changes, 0.5 * 3 / 4, atol=0.12)
    assert isinstance(env, ScriptedEnv)
