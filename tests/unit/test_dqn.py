"""DQN: targets, loss and gradient against slow formulas, exploration, masks, spaces, a known optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch.nn import functional

from fakes import OBSERVATIONS, ScriptedEnv, ThreadGroup, solo_group
from policies.common.columns import to_leaves
from policies.common.replay import Transitions
from policies.dqn import DQN

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4, start=-2)
SMALL = {"hidden_sizes": (16, 8), "learning_starts": 16, "batch_size": 8, "training_intensity": 2.0}
KINDS = [{"double": double, "dueling": dueling} for double in (True, False) for dueling in (True, False)]
KINDS.append({"double": True, "huber": False})


def worker(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> DQN:
    return DQN(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def disturb(module: torch.nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draw))


def random_batch(dqn: DQN, *, count: int = 40, masked: bool = False) -> Transitions:
    """Transitions of a network and a different target network."""
    draw = torch.Generator().manual_seed(3)
    disturb(dqn.network, 1)
    disturb(dqn.targets["network"].module, 2)
    space = batch_space(dqn.env.single_observation_space, count)
    space.seed(4)
    first, second = (to_leaves(dqn.env.single_observation_space, space.sample()) for _ in range(2))
    masks = torch.rand(count, 4, generator=draw) < 0.6
    masks[:, 1] = True
    return Transitions(
        observations=tuple(first),
        masks=masks if masked else None,
        actions=torch.randint(4, (count,), generator=draw),
        rewards=2 * torch.randn(count, generator=draw),
        next_observations=tuple(second),
        next_masks=masks.roll(1, 0) if masked else None,
        discounts=0.9 * (torch.rand(count, generator=draw) < 0.8),
        weights=torch.rand(count, generator=draw),
        indices=torch.arange(count),
    )


# ------------------------------------------------------------------------------------------------------- the maths


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_targets_equal_the_papers_formulas(kind: dict[str, bool], masked: bool) -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE), **kind)
    batch = random_batch(dqn, masked=masked)
    with torch.no_grad():
        online = dqn.network(batch.next_observations).tolist()
        target = dqn.targets["network"].module(batch.next_observations).tolist()
        found = dqn.targets_of(batch, batch.next_features(dqn.network.encoder)).tolist()
    for i in range(batch.size):
        allowed = [a for a in range(4) if batch.next_masks is None or batch.next_masks[i, a]]
        values = online[i] if kind["double"] else target[i]
        best = max(allowed, key=lambda a: values[a])
        expected = float(batch.rewards[i]) + float(batch.discounts[i]) * target[i][best]
        assert found[i] == pytest.approx(expected, abs=1e-5)


def test_logged_values_do_not_depend_on_the_targets() -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE))
    batch = random_batch(dqn)
    near, far = (dqn.backward(batch.replace(rewards=batch.rewards + far))[0][1].item() for far in (0.0, 1e9))
    assert near != 0
    assert far == pytest.approx(near, rel=1e-5)


def loss(dqn: DQN, batch: Transitions) -> torch.Tensor:
    """The weighted mean of Huber's or the squared loss, as torch can differentiate it."""
    with torch.no_grad():
        targets = dqn.targets_of(batch, batch.next_features(dqn.network.encoder))
    values = dqn.network(batch.observations)[torch.arange(batch.size), batch.actions]
    loss_of_errors = functional.smooth_l1_loss if dqn.options.huber else functional.mse_loss
    return (batch.weights * loss_of_errors(values, targets, reduction="none")).mean()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_closed_form_gradient_equals_autograd(space: Any, kind: dict[str, bool], masked: bool) -> None:
    dqn = worker(ScriptedEnv(space, CHOICE), **kind)
    batch = random_batch(dqn, masked=masked)
    optimizer = dqn.optimizers["optimizer"]
    optimizer.zero_grad()
    expected_loss = loss(dqn, batch)
    expected_loss.backward()
    expected = optimizer.gradient.clone()
    optimizer.zero_grad()
    measured, _ = dqn.backward(batch)
    largest = float(expected.abs().max())
    assert largest > 0.01
    torch.testing.assert_close(optimizer.gradient, expected, atol=5e-6 * largest, rtol=1e-4)
    assert float(measured[0]) == pytest.approx(expected_loss.item(), rel=1e-5)


@pytest.mark.parametrize(("options", "value"), [({}, -4 / 3), ({"huber": False}, -0.8), ({"average": True}, -0.8)])
def test_value_of_random_returns(options: dict[str, bool], value: float) -> None:
    """Of 1 with the chance 0.4, else -2: the mean, or where 0.4 and 0.6 (value + 2), the clipped errors, are equal."""
    dqn = worker(ScriptedEnv(VECTOR, CHOICE), learning_rate=0.02, **options)
    returns = torch.tensor([1.0, 1.0, -2.0, -2.0, -2.0])
    same, none = torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)
    known = Transitions((same,), None, none, returns, (same,), None, torch.zeros(5), torch.ones(5), torch.arange(5))
    for _ in range(400):
        dqn.update(known)
    with torch.no_grad():
        assert float(dqn.network([same])[0, 0]) == pytest.approx(value, abs=0.01)


def test_dueling_values_equal_equation_9() -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE), dueling=True)
    disturb(dqn.network, 5)
    leaves = [torch.randn(6, 3, generator=torch.Generator().manual_seed(0))]
    with torch.no_grad():
        outputs = dqn.network.layers(dqn.network.encoder(leaves))
        value, advantages = outputs[:, :1], outputs[:, 1:]
        torch.testing.assert_close(dqn.network(leaves), value + advantages - advantages.mean(1, keepdim=True))
        assert advantages.shape == (6, 4)


# ------------------------------------------------------------------------------------------------------ exploration


def test_epsilon_falls_linearly_over_a_part_of_the_run_and_stays() -> None:
    dqn = worker(
        ScriptedEnv(VECTOR, CHOICE, ticks=1000),
        exploration_fraction=0.5,
        exploration_initial_eps=0.9,
        exploration_final_eps=0.1,
    )
    found = []
    for dqn.ticks_done in (0, 125, 250, 500, 999):
        found.append(dqn.epsilon)
    assert found == pytest.approx([0.9, 0.7, 0.5, 0.1, 0.1])


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_with_probability_epsilon_any_action_is_played(epsilon: float) -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE), exploration_initial_eps=epsilon, exploration_final_eps=epsilon)
    leaves = [torch.zeros(20_000, 3)]
    disturb(dqn.network, 0)
    greedy = int(dqn.act(leaves, None, None)[0])
    share = np.bincount(dqn.explore(leaves, None).numpy(), minlength=4) / 20_000
    expected = np.full(4, epsilon / 4)
    expected[greedy] += 1 - epsilon
    assert share == pytest.approx(expected, abs=0.015)


def test_initial_actions_are_uniform_over_allowed_ones() -> None:
    dqn = worker(ScriptedEnv(VECTOR, CHOICE))
    mask = torch.tensor([[True, False, True, True]]).expand(30_000, 4)
    share = np.bincount(dqn.act_randomly(30_000, mask).numpy(), minlength=4) / 30_000
    assert share == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.015)


# ----------------------------------------------------------------------------------------------------- a known optimum
