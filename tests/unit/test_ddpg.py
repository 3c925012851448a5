"""DDPG: losses against autograd, exploration, groups against one worker, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from fakes import ScriptedEnv, ThreadGroup, solo_group
from learning_steps import run
from minibatches import assert_gradients, disturb, made_up
from policies.common.replay import Transitions
from policies.ddpg import DDPG
from policies.networks import reparameterized

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Dict(a=spaces.Box(0, 255, (8, 8, 3), np.uint8), b=VECTOR)
NUMBERS = spaces.Box(-0.5, 2.0, (2,), np.float32)
CHOICE = spaces.Discrete(4, start=-1)
SMALL = {"hidden_sizes": (16, 16), "batch_size": 32, "training_intensity": 32.0, "learning_starts": 8}


def worker(env: ScriptedEnv | None = None, group: ThreadGroup | None = None, **options: Any) -> DDPG:
    env = env or ScriptedEnv(VECTOR, NUMBERS)
    return DDPG(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def disturbed(learner: DDPG) -> DDPG:
    disturb(learner.network, *(target.module for target in learner.targets.values()))
    return learner


# ------------------------------------------------------------------------------------------------------- the maths


def losses(learner: DDPG, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Of critic and actor, as torch can differentiate them."""
    network, critics = learner.network, learner.targets["critics"].module
    with torch.no_grad():
        features = critics.encoder(batch.next_observations)
        next_actions = torch.tanh(learner.targets["actor"].module(features))
        targets = batch.rewards + batch.discounts * critics(features, next_actions)[0, :, 0]
    features = network.critics.encoder(batch.observations)
    errors = network.critics(features, batch.actions)[0, :, 0] - targets
    seen = features.detach()
    return (batch.weights * errors.square()).mean(), -network.critics(seen, network.actor(seen).tanh())[0].mean()


@pytest.mark.parametrize("space", [VECTOR, PICTURE], ids=["numbers", "picture"])
def test_closed_form_gradients_equal_autograd(space: Any) -> None:
    learner = disturbed(worker(ScriptedEnv(space, NUMBERS)))
    batch = made_up(learner, 50)
    critic_loss, actor_loss = losses(learner, batch)
    by_critics = torch.autograd.grad(critic_loss, list(learner.network.critics.parameters()))
    by_actor = torch.autograd.grad(actor_loss, list(learner.network.actor.parameters()))
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    found_critic_loss, _, found_actor_loss = learner.backward(batch)[0].tolist()
    assert_gradients(learner.network.critics, by_critics)
    assert_gradients(learner.network.actor, by_actor)
    assert found_critic_loss == pytest.approx(critic_loss.item(), rel=1e-5)
    assert found_actor_loss == pytest.approx(actor_loss.item(), rel=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_choices_are_those_of_the_relaxed_ones(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The critics value one-hot choices; the actor's gradient is theirs there, through softmax((z + g) / tau)."""
    noise, tau, penalty = torch.linspace(-0.8, 1.1, 4), 0.7, 0.3
    monkeypatch.setattr(reparameterized, "gumbel", lambda shape, _: noise.expand(tuple(shape)))
    learner = disturbed(worker(ScriptedEnv(VECTOR, CHOICE), gumbel_temperature=tau, output_penalty=penalty))
    batch, network = made_up(learner, 50, masked=masked), learner.network
    critics, actor = (learner.targets[name].module for name in ("critics", "actor"))
    nothing = torch.zeros(50, 4)
    masks, next_masks = (
        nothing if one is None else nothing.masked_fill(~one, -1e9) for one in (batch.masks, batch.next_masks)
    )

    def chosen(logits: Tensor, forbidden: Tensor) -> Tensor:
        return torch.eye(4)[(logits + forbidden + noise).argmax(1)]

    with torch.no_grad():
        features = critics.encoder(batch.next_observations)
        following = critics(features, chosen(actor(features), next_masks))[0, :, 0]
    features = network.critics.encoder(batch.observations)
    errors = (
        network.critics(features, torch.eye(4)[batch.actions])[0, :, 0] - batch.rewards - batch.discounts * following
    )
    critic_loss, logits = (batch.weights * errors.square()).mean(), network.actor(features)
    actions = chosen(logits, masks).requires_grad_()
    values = network.critics(features, actions)[0, :, 0]
    (slopes,) = torch.autograd.grad(values.sum(), actions)
    relaxed = ((logits + masks + noise) / tau).softmax(1)
    surrogate = -(slopes * relaxed).sum(1).mean() + penalty * logits.square().mean()
    by_critics = torch.autograd.grad(critic_loss, list(network.critics.parameters()))
    by_actor = torch.autograd.grad(surrogate, list(network.actor.parameters()))
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    found_critic_loss, _, found_actor_loss = learner.backward(batch)[0].tolist()
    assert_gradients(network.critics, by_critics)
    assert_gradients(network.actor, by_actor)
    assert found_critic_loss == pytest.approx(critic_loss.item(), rel=1e-5)
    assert found_actor_loss == pytest.approx(-values.mean().item(), rel=1e-5)


def test_td_errors_are_the_priorities() -> None:
    learner = disturbed(worker())
    batch = made_up(learner, 20)
    _, errors = learner.backward(batch)
    with torch.no_grad():
        values = learner.network.critics(batch.observations[0], batch.actions)[0, :, 0]
        torch.testing.assert_close(errors, (values - learner.targets_of(batch)).abs())


# -------------------------------------------------------------------------------------------------------- exploration


@pytest.mark.parametrize(("kind", "correlation"), [("gaussian", 0.0), ("correlated", 0.8)])
def test_noise_has_its_correlation_and_is_reset_per_episode(kind: str, correlation: float) -> None:
    env = ScriptedEnv(VECTOR, NUMBERS, rows=1000, ticks=10, length=4)
    theta = {"noise_theta": 0.2} if kind == "correlated" else {}
    options = {"action_noise": kind, **theta, "noise_std": 0.2, "learning_starts": 0, "learning_rate": 0.0}
    learner = run(worker(env, **options, training_intensity=1e-6))
    assert learner.gradient_steps == 0
    played = np.stack(env.actions).reshape(10, -1)
    within, across = (np.corrcoef(played[t], played[t + 1])[0, 1] for t in (1, 3))
    assert within == pytest.approx(correlation, abs=0.1)
    assert across == pytest.approx(0, abs=0.1)
