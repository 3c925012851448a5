"""Actions that can be differentiated: gradients against autograd's of the same formulas, and what is sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from policies.networks.critics import Critics
from policies.networks.reparameterized import (
    GumbelSoftmaxActions,
    SquashedGaussianActions,
    TanhActions,
)

ROWS, CHOICES = 30, 4
BOX = spaces.Box(-2.0, 0.5, (3,), np.float32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


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
