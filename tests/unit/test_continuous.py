"""Actions for critics: scaling to the game's bounds, the squashed density, autocorrelated noise, choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, distributions

from policies.networks.critics import Critics
from policies.networks.reparameterized import (
    ActionNoise,
    GumbelSoftmaxActions,
    SquashedGaussian,
    SquashedGaussianActions,
    UnitBox,
)


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=draw(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------------- bounds

ODD = [
    spaces.Box(-2.0, 2.0, (1,), np.float32),
    spaces.Box(0.1, 0.3, (), np.float64),
    spaces.Box(np.array([[-1.0, 0.7]], np.float16), np.array([[5.0, 0.7]], np.float16), dtype=np.float16),
    spaces.Box(-3e38, 3e38, (2, 1, 2), np.float32),
    spaces.Box(-1.7e308, 1.7e308, (3,), np.float64),
    spaces.Box(np.float32(1e-3), np.float32(1.1e-3), (2,), np.float32),
]


@pytest.mark.parametrize("space", ODD, ids=str)
def test_actions_reach_and_never_exceed_the_bounds(space: spaces.Box) -> None:
    box = UnitBox(space)
    assert box.shape == (box.outputs,) == (int(np.prod(space.shape)),)
    for value, bound in ((-1.0, space.low), (1.0, space.high)):
        played = box.to_env(np.full((4, box.outputs), value, np.float32))
        assert played.shape == (4, *space.shape)
        np.testing.assert_allclose(played[0].astype(np.float64), bound.astype(np.float64), rtol=1e-6)
    for action in box.to_env(box.uniform(200, None, draw()).numpy()):
        assert space.contains(np.asarray(action))


# ------------------------------------------------------------------------------------------------- squashed Gaussians


def test_density_equals_torchs_transformed_normal() -> None:
    outputs, noise = numbers(50, 6) / 2, numbers(50, 3, seed=6)
    squashed = SquashedGaussian(outputs)
    normal = distributions.Normal(outputs[:, :3], outputs[:, 3:].exp())
    oracle = distributions.TransformedDistribution(normal, distributions.TanhTransform(cache_size=1))
    expected = oracle.log_prob(squashed.sample(noise)).sum(-1)
    torch.testing.assert_close(squashed.log_prob(noise), expected, rtol=1e-6, atol=1e-6)


def test_the_density_is_finite_where_tanh_has_rounded_to_one() -> None:
    outputs = torch.tensor([[60.0, 0.0], [-60.0, 0.0]])
    squashed, noise = SquashedGaussian(outputs), torch.zeros(2, 1)
    assert squashed.sample(noise).tolist() == [[1.0], [-1.0]]
    exact = -0.5 * np.log(2 * np.pi) - 2 * (np.log(2) - 60)
    assert squashed.log_prob(noise).tolist() == pytest.approx([exact, exact], rel=1e-6)


def test_samples_follow_the_density() -> None:
    squashed = SquashedGaussian(torch.tensor([[0.4, -0.3]]).expand(200_000, 2))
    found, edges = np.histogram(squashed.sample(torch.randn(200_000, 1, generator=draw())), 20, (-1, 1))
    expected = distributions.Normal(0.4, np.exp(-0.3)).cdf(torch.from_numpy(edges).atanh()).diff().numpy()
    np.testing.assert_allclose(found / 200_000, expected, atol=0.004)


# -------------------------------------------------------------------------------------------------------------- noise


def process(noise: ActionNoise, ticks: int) -> np.ndarray[Any, Any]:
    return np.stack([noise.draw(0.4).numpy() for _ in range(ticks)])


@pytest.mark.parametrize("theta", [0.15, 0.5, 1.0])
def test_noise_has_its_deviation_and_autocorrelation(theta: float) -> None:
    seen = process(ActionNoise(20_000, 1, theta=theta, generator=draw()), 6)[:, :, 0]
    np.testing.assert_allclose(seen.std(1), 0.4, rtol=0.03)
    for lag in range(1, 6):
        assert np.corrcoef(seen[0], seen[lag])[0, 1] == pytest.approx((1 - theta) ** lag, abs=0.03)


# --------------------------------------------------------------------------------------------- choices and critics


def test_choices_follow_the_actor_and_its_masks() -> None:
    choices, rows = GumbelSoftmaxActions(spaces.Discrete(3), temperature=0.3), 20_000
    logits = torch.tensor([0.5, -0.5, 2.0]).expand(rows, 3)
    frequencies = choices.sample(logits, None, draw())[0].mean(0)
    torch.testing.assert_close(frequencies, logits[0].softmax(-1), atol=0.015, rtol=0)
    mask = torch.tensor([True, True, False]).expand(rows, 3)
    assert choices.sample(logits, mask, draw())[0][:, 2].sum() == 0
    assert set(choices.choose(logits, mask, draw()).tolist()) == {0, 1}
    assert choices.choose(logits, mask, None).tolist() == [0] * rows
    assert choices.uniform(rows, mask, draw()).float().mean().item() == pytest.approx(0.5, abs=0.015)


def test_target_entropy_defaults_follow_the_action_space() -> None:
    assert SquashedGaussianActions(ODD[-1]).default_entropy(torch.zeros(3, 4), None).tolist() == [-2] * 3
    mask = torch.tensor([[True, True, False, False], [True] * 4, [False] * 4])
    wanted = GumbelSoftmaxActions(spaces.Discrete(4), temperature=1.0).default_entropy(torch.zeros(3, 4), mask)
    assert wanted.tolist() == pytest.approx([0.3 * np.log(2), 0.3 * np.log(4), 0])


def test_critics_have_different_initial_weights() -> None:
    layers = {"hidden_sizes": (8, 8), "activation": "tanh", "generator": draw()}
    critics = Critics(spaces.Box(-1, 1, (3,)), actions=2, outputs=1, count=2, **layers)
    one, other = critics(numbers(30, 3).float(), numbers(30, 2).float()).squeeze(-1).detach()
    assert np.corrcoef(one, other)[0, 1] < 0.9
