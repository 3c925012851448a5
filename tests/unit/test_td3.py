"""TD3: its three changes to DDPG, each against the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from fakes import ScriptedEnv, flat_weights, random_rewards, solo_group
from learning_steps import run
from minibatches import assert_gradients, disturb, made_up
from policies import td3
from policies.td3 import TD3

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
NUMBERS = spaces.Box(-0.5, 2.0, (2,), np.float32)
SMALL = {"hidden_sizes": (16, 16), "batch_size": 16, "training_intensity": 16.0, "learning_starts": 4}


def worker(env: ScriptedEnv | None = None, **options: Any) -> TD3:
    """A worker whose target networks differ from its networks."""
    env = env or ScriptedEnv(VECTOR, NUMBERS, reward=random_rewards(0))
    learner = TD3(env, solo_group(), ticks=env.ticks, **{**SMALL, **options})
    disturb(learner.network, *(target.module for target in learner.targets.values()))
    return learner


def test_closed_form_gradients_equal_autograd() -> None:
    learner = worker(target_policy_noise=0.0)
    batch, critics, actor = made_up(learner, 50), learner.network.critics, learner.network.actor
    seen, (first, second) = batch.observations[0], learner.network.critics.members
    with torch.no_grad():
        then = batch.next_observations[0]
        best = learner.targets["critics"].module(then, learner.targets["actor"].module(then).tanh())[:, :, 0]
        targets = batch.rewards + batch.discounts * torch.minimum(best[0], best[1])  # eq. (10)
    inputs = torch.cat([seen, batch.actions], 1)
    loss = sum((batch.weights * (q(inputs)[:, 0] - targets).square()).mean() for q in (first, second))
    assert isinstance(loss, torch.Tensor)
    by_critics = torch.autograd.grad(loss, list(critics.parameters()))
    actor_loss = -first(torch.cat([seen, actor(seen).tanh()], 1)).mean()
    by_actor = torch.autograd.grad(actor_loss, list(actor.parameters()))
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    learner.gradient_steps = 1  # so that the actor is due
    critic_loss, _, found, *_ = learner.backward(batch)[0].tolist()
    assert_gradients(critics, by_critics)
    assert_gradients(actor, by_actor)
    assert critic_loss == pytest.approx(loss.item(), rel=1e-5)
    assert found == pytest.approx(actor_loss.item(), rel=1e-5)


def test_the_targets_noise_is_clipped_and_so_is_its_action() -> None:
    learner = worker(target_policy_noise=0.4, target_noise_clip=0.5)
    found = learner.smoothed(torch.zeros(100_000, 1))[:, 0].numpy()
    assert np.abs(found).max() == 0.5
    inside = found[np.abs(found) < 0.5]
    assert (np.abs(found) == 0.5).mean() == pytest.approx(0.2113, abs=0.005)  # 2 (1 - Phi(0.5 / 0.4))
    assert inside.std() == pytest.approx(0.2596, abs=0.005)  # of a normal of deviation 0.4, cut at 0.5
    ends = learner.smoothed(torch.tensor([[1.0], [-1.0]]).repeat(1000, 1))[:, 0].numpy()
    assert np.abs(ends).max() == 1.0
    assert np.abs(ends).min() >= 0.5


def test_noise_is_added_to_target_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = worker(target_policy_noise=0.1, target_noise_clip=0.15)
    monkeypatch.setattr(td3, "normal", lambda shape, generator: torch.full(tuple(shape), 2.0))
    batch = made_up(learner, 20)
    then = batch.next_observations[0]
    with torch.no_grad():
        actions = (learner.targets["actor"].module(then).tanh() + 0.15).clamp(-1, 1)
        least = learner.targets["critics"].module(then, actions)[:, :, 0].amin(0)
        torch.testing.assert_close(learner.targets_of(batch), batch.rewards + batch.discounts * least)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_is_updated_at_its_interval(delay: int) -> None:
    learner = worker(ScriptedEnv(VECTOR, NUMBERS, rows=1, ticks=16, reward=random_rewards(0)), policy_delay=delay)
    moves: list[tuple[bool, bool]] = []
    step = learner.update

    def watched(*given: Any) -> Any:
        actor, critics = flat_weights(learner.network.actor), flat_weights(learner.network.critics)
        result = step(*given)
        moved = [not np.array_equal(actor, flat_weights(learner.network.actor))]
        moves.append((*moved, not np.array_equal(critics, flat_weights(learner.network.critics))))  # type: ignore[arg-type]
        return result

    learner.update = watched  # type: ignore[method-assign]
    run(learner)
    assert len(moves) > 6
    assert moves == [((index + 1) % delay == 0, True) for index in range(len(moves))]
