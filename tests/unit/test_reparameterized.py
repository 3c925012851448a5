"""Actions that can be differentiated: gradients against autograd's of the same formulas, and what is sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from policies.networks import reparameterized
from policies.networks.critics import Critics
from policies.networks.reparameterized import (
    GumbelSoftmaxActions,
    SquashedGaussian,
    SquashedGaussianActions,
    TanhActions,
)

ROWS, CHOICES = 30, 4
BOX = spaces.Box(-2.0, 0.5, (3,), np.float32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def a_mask() -> Tensor:
    mask = torch.rand(ROWS, CHOICES, generator=generator(2)) < 0.5
    mask[:, 1] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gradient_of_a_choice_equals_that_of_its_relaxation(
    temperature: float, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = numbers(ROWS, CHOICES, seed=5)
    monkeypatch.setattr(reparameterized, "gumbel", lambda shape, generator: noise)
    logits, by_inputs, mask = numbers(ROWS, CHOICES).requires_grad_(), numbers(ROWS, CHOICES, seed=3), None
    allowed = logits
    if masked:
        mask = a_mask()
        allowed = torch.where(mask, logits, torch.tensor(-1e9))
    relaxed = torch.softmax((allowed + noise) / temperature, -1)  # equation (2)
    hard = torch.nn.functional.one_hot((allowed + noise).argmax(-1), CHOICES)
    straight_through = hard + relaxed - relaxed.detach()
    entropies = torch.distributions.Categorical(logits=allowed).entropy()
    expected = torch.autograd.grad((straight_through * by_inputs).sum() + 0.7 * entropies.sum(), logits)[0]
    choices = GumbelSoftmaxActions(spaces.Discrete(CHOICES, start=3), temperature=temperature)
    drawn = choices.sample(logits, mask, generator())
    (found,) = torch.autograd.grad((drawn.inputs * by_inputs).sum() + 0.7 * drawn.entropies.sum(), logits)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert torch.equal(drawn.inputs.detach(), hard.float())
    torch.testing.assert_close(drawn.entropies.detach(), entropies.detach())


def test_choices_follow_the_actor_and_its_masks() -> None:
    choices, rows = GumbelSoftmaxActions(spaces.Discrete(3), temperature=0.3), 20_000
    logits = torch.tensor([0.5, -0.5, 2.0]).expand(rows, 3)
    frequencies = choices.sample(logits, None, generator()).inputs.mean(0)
    torch.testing.assert_close(frequencies, logits[0].softmax(-1), atol=0.015, rtol=0)
    mask = torch.tensor([True, True, False]).expand(rows, 3)
    assert choices.sample(logits, mask, generator()).inputs[:, 2].sum() == 0
    assert set(choices.choose(logits, mask, generator()).tolist()) == {0, 1}
    assert choices.choose(logits, mask, None).tolist() == [0] * rows
    assert choices.uniform(rows, mask, generator()).float().mean().item() == pytest.approx(0.5, abs=0.015)


def test_critic_input_is_the_action_taken() -> None:
    choices = GumbelSoftmaxActions(spaces.Discrete(CHOICES, start=-2), temperature=1.0)
    actions = torch.arange(CHOICES)
    assert torch.equal(choices.to_critics(actions), torch.eye(CHOICES))
    assert choices.to_env(actions.numpy()).tolist() == [-2, -1, 0, 1]


def test_gradient_of_noisy_numbers_equals_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = numbers(ROWS, 3, seed=5)
    monkeypatch.setattr(reparameterized, "normal", lambda shape, generator: noise)
    outputs, by_inputs = numbers(ROWS, 6).requires_grad_(), numbers(ROWS, 3, seed=3)
    policy = SquashedGaussian(outputs)
    loss = (policy.sample(noise) * by_inputs).sum() - 0.7 * policy.log_prob(noise).sum()
    expected = torch.autograd.grad(loss, outputs)[0]
    drawn = SquashedGaussianActions(BOX).sample(outputs, None, generator())
    (found,) = torch.autograd.grad((drawn.inputs * by_inputs).sum() + 0.7 * drawn.entropies.sum(), outputs)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_gradient_of_plain_numbers_equals_that_of_tanh() -> None:
    outputs, by_inputs = numbers(ROWS, 3).requires_grad_(), numbers(ROWS, 3, seed=3)
    expected = torch.autograd.grad((outputs.tanh() * by_inputs).sum(), outputs)[0]
    drawn = TanhActions(BOX).sample(outputs, None, generator())
    (found,) = torch.autograd.grad((drawn.inputs * by_inputs).sum(), outputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [TanhActions, SquashedGaussianActions])
def test_numbers_reach_the_game_within_its_bounds(kind: Any) -> None:
    actions = kind(BOX)
    outputs = 10 * numbers(ROWS, actions.outputs)
    for chosen in (actions.choose(outputs, None, generator()), actions.uniform(ROWS, None, generator())):
        assert all(BOX.contains(action) for action in actions.to_env(chosen.numpy()))


def test_target_entropy_defaults_follow_the_action_space() -> None:
    assert SquashedGaussianActions(BOX).default_entropy(torch.zeros(2, 6), None).tolist() == [-3, -3]
    mask = torch.tensor([[True, True, False, False], [True] * 4, [False] * 4])
    wanted = GumbelSoftmaxActions(spaces.Discrete(CHOICES), temperature=1.0).default_entropy(
        torch.zeros(3, CHOICES), mask
    )
    assert wanted.tolist() == pytest.approx([0.3 * np.log(2), 0.3 * np.log(4), 0])


def test_critics_have_different_initial_weights() -> None:
    layers = {"hidden_sizes": (8, 8), "activation": "tanh", "generator": generator()}
    critics = Critics(spaces.Box(-1, 1, (3,)), actions=2, outputs=1, count=2, **layers)
    one, other = critics(numbers(ROWS, 3), numbers(ROWS, 2)).squeeze(-1).detach()
    assert np.corrcoef(one, other)[0, 1] < 0.9
