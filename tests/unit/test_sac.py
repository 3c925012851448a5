"""SAC: its losses against autograd, numbers and choices; temperature; groups against one worker; masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from arena.errors import ConfigError
from fakes import ScriptedEnv, ThreadGroup, flat_weights, random_rewards, solo_group
from learning_steps import run
from minibatches import assert_gradients, disturb, made_up
from policies.common.off_policy import OffPolicy
from policies.common.replay import Transitions
from policies.networks import reparameterized
from policies.networks.reparameterized import SquashedGaussian
from policies.sac import SAC

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Dict(a=spaces.Box(0, 255, (8, 8, 3), np.uint8), b=VECTOR)
NUMBERS = spaces.Box(-0.5, 2.0, (2,), np.float32)
CHOICE = spaces.Discrete(4, start=-1)
SMALL = {"hidden_sizes": (16, 16), "batch_size": 16, "training_intensity": 16.0, "learning_starts": 8}


def worker(env: ScriptedEnv | None = None, group: ThreadGroup | None = None, **options: Any) -> SAC:
    env = env or ScriptedEnv(VECTOR, NUMBERS)
    return SAC(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def disturbed(learner: SAC, *, log_alpha: float = -1.0) -> SAC:
    disturb(learner.network, *(target.module for target in learner.targets.values()))
    if learner.network.temperature is not None:
        learner.network.temperature.log_alpha.data.fill_(log_alpha)
    return learner


def steady(shape: Any, generator: Any) -> Tensor:
    """Noise that is equal in every row, so that the numbers of draws do not matter."""
    return torch.linspace(-0.8, 1.1, shape[-1]).expand(tuple(shape))


# ------------------------------------------------------------------------------------------------------- the maths


def losses_of_numbers(learner: SAC, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
    """The losses of critics, actor and temperature: equations (5), (7) and (18), differentiable by torch."""
    network, log_alpha = learner.network, learner.network.temperature.log_alpha  # type: ignore[union-attr]
    alpha, critics = log_alpha.exp().detach(), learner.targets["critics"].module
    noise = steady((batch.size, 2), None)
    with torch.no_grad():
        then = SquashedGaussian(network(batch.next_observations))
        values = critics(critics.encoder(batch.next_observations), then.sample(noise))[:, :, 0]
        targets = batch.rewards + batch.discounts * (values.min(0).values - alpha * then.log_prob(noise))
    features = network.critics.encoder(batch.observations)
    errors = network.critics(features, batch.actions)[:, :, 0] - targets
    now = SquashedGaussian(network.actor(features.detach()))
    log_probs = now.log_prob(noise)
    least = network.critics(features.detach(), now.sample(noise))[:, :, 0].min(0).values
    entropy = -log_probs.detach().mean()
    by_temperature = log_alpha.exp() * (entropy - -2.0)
    return 0.5 * (batch.weights * errors.square()).mean(1).sum(), (alpha * log_probs - least).mean(), by_temperature


def losses_of_choices(learner: SAC, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
    """The same of choices, by sums over the choices that are allowed (arXiv 1910.07207, equations 10 to 12)."""
    network, log_alpha = learner.network, learner.network.temperature.log_alpha  # type: ignore[union-attr]
    alpha, critics = log_alpha.exp().detach(), learner.targets["critics"].module
    wanted, costs, values_then = torch.zeros(batch.size), [], torch.zeros(batch.size)
    features = network.critics.encoder(batch.observations)
    values = network.critics(features)
    for index in range(batch.size):
        seen = [leaf[index : index + 1] for leaf in batch.next_observations]
        allowed = torch.ones(4, dtype=torch.bool) if batch.next_masks is None else batch.next_masks[index]
        log_probs = network(seen)[0][allowed].log_softmax(0).detach()
        least = critics(critics.encoder(seen))[:, 0].amin(0)[allowed]
        values_then[index] = (log_probs.exp() * (least - alpha * log_probs)).sum()
        allowed = torch.ones(4, dtype=torch.bool) if batch.masks is None else batch.masks[index]
        log_probs = network.actor(features[index].detach())[allowed].log_softmax(0)
        costs.append((log_probs.exp() * (alpha * log_probs - values.detach()[:, index].amin(0)[allowed])).sum())
        wanted[index] = -(log_probs.exp() * log_probs).sum().item() - 0.98 * np.log(int(allowed.sum()))
    targets = (batch.rewards + batch.discounts * values_then).detach()
    errors = torch.stack([values[k, torch.arange(batch.size), batch.actions] - targets for k in range(2)])
    critic_loss = 0.5 * (batch.weights * errors.square()).mean(1).sum()
    return critic_loss, torch.stack(costs).mean(), log_alpha.exp() * wanted.mean()


def measured(learner: SAC, batch: Transitions) -> dict[str, float]:
    """The metrics of a minibatch, whose gradients are added."""
    return dict(zip(learner.metric_names, learner.backward(batch)[0].tolist(), strict=True))


CASES = {
    "numbers": (NUMBERS, False, losses_of_numbers),
    "choices": (CHOICE, False, losses_of_choices),
    "masked choices": (CHOICE, True, losses_of_choices),
}


@pytest.mark.parametrize("space", [VECTOR, PICTURE], ids=["vector", "picture"])
@pytest.mark.parametrize("case", CASES)
def test_closed_form_gradients_equal_autograd(case: str, space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reparameterized, "normal", steady)
    action_space, masked, losses = CASES[case]
    learner = disturbed(worker(ScriptedEnv(space, action_space)))
    batch, network = made_up(learner, 50, masked=masked), learner.network
    critic_loss, actor_loss, temperature_loss = losses(learner, batch)
    by_critics = torch.autograd.grad(critic_loss, list(network.critics.parameters()))
    by_actor = torch.autograd.grad(actor_loss, list(network.actor.parameters()))
    assert network.temperature is not None
    by_temperature = torch.autograd.grad(temperature_loss, list(network.temperature.parameters()))
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    figures = measured(learner, batch)
    assert_gradients(network.critics, by_critics)
    assert_gradients(network.actor, by_actor)
    assert_gradients(network.temperature, by_temperature)
    assert figures["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-4)
    assert figures["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-4)


def gradients(learner: SAC, backward: Any, batch: Transitions) -> tuple[list[Tensor], Tensor, Tensor]:
    """The gradient of each part, the metrics and the errors by a function `backward` of learner and batch."""
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    metrics, errors = backward(learner, batch)
    return [optimizer.gradient.clone() for optimizer in learner.optimizers.values()], metrics, errors


@pytest.mark.parametrize("ent_coef", ["auto", 0.2])
@pytest.mark.parametrize("rows", [50, 100])
def test_gradient_by_hand_equals_autograd(rows: int, ent_coef: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = disturbed(worker(ent_coef=ent_coef))
    batch, drawn = made_up(learner, rows), learner.generator.get_state()
    with torch.no_grad():  # half of the deviations are clamped
        log_std = learner.network(batch.observations)[:, 2:]
        learner.network.actor[-1].bias[2:] += reparameterized.LOG_STD_MAX - log_std.median(0).values
    expected, metrics, errors = gradients(learner, OffPolicy.backward, batch)
    learner.generator.set_state(drawn)
    monkeypatch.setattr(SAC, "loss", lambda *given: pytest.fail("autograd is used"))
    found, *others = gradients(learner, SAC.backward, batch)
    for gradient, by_autograd in zip(found, expected, strict=True):
        largest = float(by_autograd.abs().max())
        assert largest > 1e-3
        torch.testing.assert_close(gradient, by_autograd, atol=2e-6 * largest, rtol=1e-3)
    torch.testing.assert_close(others, [metrics, errors], atol=1e-5, rtol=1e-4)


def test_a_subclass_with_another_loss_is_differentiated_by_torch() -> None:
    class Doubled(SAC):
        def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
            loss, *others = super().loss(batch)
            return 2 * loss, *others  # type: ignore[return-value]

    learner = disturbed(worker())
    batch, drawn = made_up(learner, 50), learner.generator.get_state()
    plain, *_ = gradients(learner, SAC.backward, batch)
    learner.generator.set_state(drawn)
    learner.__class__ = Doubled
    doubled, *_ = gradients(learner, Doubled.backward, batch)
    for once, twice in zip(plain, doubled, strict=True):
        torch.testing.assert_close(twice, 2 * once, atol=4e-6 * float(once.abs().max()), rtol=1e-3)


@pytest.mark.parametrize(("wanted", "grows"), [(1.38, True), (-50.0, False)])
def test_temperature_grows_while_entropy_is_below_target(wanted: float, grows: bool) -> None:
    learner = disturbed(worker(target_entropy=wanted))
    batch, before = made_up(learner, 20), learner.alpha
    for _ in range(3):
        learner.update(batch)
    assert (learner.alpha > before) == grows
    assert learner.alpha != before


@pytest.mark.parametrize(
    ("actions", "wanted", "words"),
    [
        (CHOICE, 1.39, "auto, or at least 0 and less than 1.386, as uniform choice has: the actions are Discrete(4"),
        (CHOICE, -1.0, "at least 0"),
        (spaces.Discrete(1), 0.0, "expected auto, as there is nothing to choose: the actions are Discrete(1)"),
        (NUMBERS, 1.39, "auto, or less than 1.386, as uniform numbers from -1 to 1 have: the actions are Box(-0.5"),
    ],
    ids=str,
)
def test_target_entropy_out_of_reach_is_refused(actions: Any, wanted: float, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        worker(ScriptedEnv(VECTOR, actions), target_entropy=wanted)
    assert caught.value.path == "options.target_entropy"
    assert f"got {wanted}, expected " in caught.value.message
    assert words in caught.value.message


def test_fixed_temperature_has_no_optimizer() -> None:
    learner = run(worker(ScriptedEnv(VECTOR, NUMBERS, ticks=12, reward=random_rewards(0)), ent_coef=0.2))
    assert learner.gradient_steps > 0
    assert learner.alpha == 0.2
    assert set(learner.optimizers) == {"critics", "actor"}


# ---------------------------------------------------------------------------------------------------- spaces and masks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "action_space"),
    [
        (VECTOR, spaces.Discrete(1)),
        (PICTURE, CHOICE),
        (spaces.Discrete(5, start=2), spaces.Box(0.1, 0.3, (), np.float64)),
        (VECTOR, spaces.Box(-3e38, 3e38, (2, 1, 2))),
    ],
    ids=str,
)
def test_plays_and_learns_with_its_kinds_of_spaces(space: Any, action_space: Any) -> None:
    SAC.check(space, action_space)
    env = ScriptedEnv(space, action_space, ticks=6, reward=random_rewards(0))
    learner = run(worker(env))
    assert learner.gradient_steps > 0
    assert all(env.action_space.contains(np.asarray(actions)) for actions in env.actions)
    assert np.isfinite(flat_weights(learner.network)).all()
    observations, infos = env.reset()
    assert env.action_space.contains(np.asarray(learner.actor()(observations, infos)))


def test_greedy_actions_are_the_means() -> None:
    learner = disturbed(worker())
    observations, infos = learner.env.reset()
    greedy = learner.actor(greedy=True)
    with torch.no_grad():
        mean = learner.network([torch.tensor(observations)])[:, :2]
    assert np.allclose(greedy(observations, infos), learner.actions.to_env(mean.tanh().numpy()))


# --------------------------------------------------------------------------------------------------- state and options


def test_a_state_with_another_kind_of_temperature_is_refused() -> None:
    with pytest.raises(ConfigError, match="no state of SAC with these options"):
        worker(ent_coef=0.1).load_state_dict(worker().state_dict())
