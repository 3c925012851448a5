"""Distributions against torch's own, masks, and the actions that the game gets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, distributions

from arena.errors import ConfigError
from policies.common.tensors import load_weights
from policies.networks.heads import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    action_head,
    allow,
    gumbel,
    normal,
)

SIZES = [2, 4, 3]
SAMPLES = 40_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(5))


class Both:
    """One of our distributions and torch's."""

    def __init__(self, ours: Distribution, theirs: distributions.Distribution, actions: Tensor) -> None:
        self.ours, self.theirs, self.actions = ours, theirs, actions


def categorical() -> Both:
    logits = numbers(7, 4)
    return Both(Categorical(logits), distributions.Categorical(logits=logits), torch.arange(7) % 4)


def bernoulli() -> Both:
    logits = 3 * numbers(7, 3)
    theirs = distributions.Independent(distributions.Bernoulli(logits=logits), 1)
    return Both(Bernoulli(logits), theirs, (numbers(7, 3) > 0).float())


def gaussian() -> Both:
    mean, log_std = numbers(7, 3), torch.tensor([-1.0, 0.0, 1.5])
    theirs = distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)
    return Both(DiagonalGaussian(mean, log_std), theirs, 2 * numbers(7, 3))


@pytest.mark.parametrize("make", [categorical, bernoulli, gaussian])
def test_log_probs_and_entropies_equal_torchs(make: Callable[[], Both]) -> None:
    both = make()
    torch.testing.assert_close(both.ours.log_prob(both.actions), both.theirs.log_prob(both.actions))
    torch.testing.assert_close(both.ours.entropy(), both.theirs.entropy())


def test_closed_form_gradients_equal_autograd() -> None:
    outputs, log_std = (
        numbers(7, 9).double(),
        torch.tensor([-1.0, 0.0, 1.5] * 3, dtype=torch.float64, requires_grad=True),
    )
    weights, count = numbers(7).double(), torch.arange(7)
    several = torch.stack([count % size for size in SIZES], 1)
    made: list[tuple[Callable[[Tensor], Distribution], Tensor]] = [
        (Categorical, count),
        (lambda part: MultiCategorical(part, SIZES), several),
        (Bernoulli, (outputs > 0.3).double()),
        (lambda part: DiagonalGaussian(part, log_std), 2 * outputs.flip(0)),
    ]
    for make, actions in made:
        given = outputs.clone().requires_grad_()
        policy = make(given)
        ((weights * policy.log_prob(actions)).sum() + 0.3 * policy.entropy().sum()).backward()
        expected, log_std.grad = log_std.grad, None
        torch.testing.assert_close(make(outputs).gradient(actions, weights, 0.3), given.grad)
        assert (log_std.grad is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(log_std.grad, expected)


def test_several_choices_are_the_product_of_each() -> None:
    logits = numbers(7, sum(SIZES))
    actions = torch.stack([torch.arange(7) % size for size in SIZES], 1)
    ours = MultiCategorical(logits, SIZES)
    each = [distributions.Categorical(logits=part) for part in torch.split(logits, SIZES, -1)]
    log_probs = sum(choice.log_prob(actions[:, k]) for k, choice in enumerate(each))
    torch.testing.assert_close(ours.log_prob(actions), log_probs)
    torch.testing.assert_close(ours.entropy(), sum(choice.entropy() for choice in each))


PARTS = spaces.Dict(
    a=spaces.Discrete(3, start=-1),
    b=spaces.Tuple((spaces.Box(0.0, 9.0, (2,)), spaces.MultiBinary((2, 2)), spaces.MultiDiscrete([[2, 4]]))),
)


def test_parts_of_a_dict_are_independent() -> None:
    """Log-probabilities and entropies are sums over the parts; gradients are those of autograd."""
    head, weights = action_head(PARTS, log_std_init=-0.5), numbers(7)
    of_parts = [PARTS["a"], *PARTS["b"]]
    heads = [action_head(part, log_std_init=-0.5) for part in of_parts]
    outputs = numbers(7, head.outputs).requires_grad_()
    policy = head.distribution(outputs, None)
    drawn = policy.sample(head.noise(1, 7, seeded())[0]).detach()
    assert drawn.shape == (7, *head.shape) and drawn.dtype == head.dtype
    given = head.to_env(drawn.numpy())
    assert all(PARTS.contains({"a": given["a"][row], "b": tuple(one[row] for one in given["b"])}) for row in range(7))
    learned = head.from_env(head.to_env(policy.mode().detach().numpy()))
    inside = policy.mode().detach().clone()
    inside[:, 1:3] = inside[:, 1:3].clamp(-1, 1)  # numbers, clipped to their bounds
    torch.testing.assert_close(learned, inside)
    each = [one.distribution(part, None) for one, part in zip(heads, outputs.split([3, 2, 4, 6], 1), strict=True)]
    arrays = [given["a"], *given["b"]]
    acted = [one.from_env(array) for one, array in zip(heads, arrays, strict=True)]
    expected = sum(one.log_prob(action) for one, action in zip(each, acted, strict=True))
    found = policy.log_prob(head.from_env(given))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(policy.entropy(), sum(one.entropy() for one in each))
    by_env = [one.env_log_prob(part, action) for one, part, action in zip(heads, each, acted, strict=True)]
    torch.testing.assert_close(head.env_log_prob(policy, head.from_env(given)), sum(by_env))
    ((weights * policy.log_prob(drawn)).sum() + 0.3 * policy.entropy().sum()).backward()
    (log_std,) = head.parameters()
    by_log_std, log_std.grad = log_std.grad, None
    with torch.no_grad():
        closed = head.distribution(outputs, None).gradient(drawn, weights, 0.3)
    torch.testing.assert_close(closed, outputs.grad)
    torch.testing.assert_close(log_std.grad, by_log_std)


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3])], ids=str)
def test_choices_are_drawn_with_their_probabilities(space: spaces.Space[np.ndarray]) -> None:
    head = action_head(space)
    policy = head.distribution(numbers(1, head.outputs).expand(SAMPLES, -1), None)
    drawn = policy.sample(head.noise(1, SAMPLES, seeded())[0])
    probabilities = policy.log_prob(drawn).exp()
    for action in drawn.unique(dim=0):
        rows = (drawn == action).reshape(SAMPLES, -1).all(1)
        assert float(rows.float().mean()) == pytest.approx(float(probabilities[rows][0]), abs=0.01)  # four deviations


def test_numbers_are_drawn_with_their_mean_and_deviation() -> None:
    mean, log_std = torch.tensor([[3.0, -1.0]]), torch.tensor([0.0, -2.0])
    drawn = DiagonalGaussian(mean, log_std).sample(normal((SAMPLES, 2), seeded()))
    torch.testing.assert_close(drawn.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.std(0), log_std.exp(), atol=0.02, rtol=0)


def test_forbidden_choices_have_probability_zero_and_are_never_drawn() -> None:
    mask = torch.tensor([[True, False, True, False]])
    choice = Categorical(allow(torch.tensor([[0.0, 50.0, 0.0, 50.0]]), mask))
    drawn = choice.sample(gumbel((SAMPLES, 4), seeded()))
    assert set(drawn.tolist()) == {0, 2}
    assert choice.mode().item() in (0, 2)
    assert choice.log_prob(torch.tensor([1])).exp().item() == 0.0
    torch.testing.assert_close(choice.entropy(), torch.log(torch.tensor([2.0])))


def test_the_entropy_of_masked_choices_has_a_gradient_without_nan() -> None:
    logits = numbers(5, 4).requires_grad_()
    mask = torch.tensor([[True, False, True, False]] * 4 + [[False] * 4])
    choice = Categorical(allow(logits, mask))
    (choice.entropy().sum() + choice.log_prob(torch.zeros(5, dtype=torch.int64)).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[~mask] == 0).all()


ACTION_SPACES = [
    spaces.Discrete(3),
    spaces.Discrete(4, start=-2),
    spaces.Discrete(3, start=1, dtype=np.int32),
    spaces.MultiDiscrete([2, 4, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [-1, 5]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
    spaces.Box(-0.5, 0.25, (3,), np.float32),
    spaces.Box(np.array([[0.0, -np.inf]]), np.array([[np.inf, 1.0]]), dtype=np.float64),
]


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_sampled_actions_are_in_the_space(space: spaces.Space[np.ndarray]) -> None:
    head = action_head(space)
    policy = head.distribution(5 * numbers(50, head.outputs), None)
    for actions in (policy.sample(head.noise(1, 50, seeded())[0]), policy.mode()):
        assert actions.shape == (50, *head.shape)
        assert actions.dtype == head.dtype
        told = head.to_env(actions.detach().numpy())
        assert all(space.contains(action) for action in told)


def test_bound_has_the_probability_of_all_values_clipped_to_it() -> None:
    low, high = np.array([-1.0, -np.inf, 0.5, -np.inf]), np.array([2.0, 1.0, 0.5, np.inf])  # the third is one number
    head = action_head(spaces.Box(low, high, dtype=np.float64))
    mean, log_std = numbers(40, 4), torch.tensor([0.3, -0.5, 0.0, 1.0])
    policy = DiagonalGaussian(mean, log_std)
    actions = head.to_env((2 * numbers(40, 4)).numpy())
    middle, reach = torch.tensor([0.5, 0.0, 0.5, 0.0]), torch.tensor([1.5, 1.0, 1.0, 1.0])  # of [-1, 2]; of one number
    theirs = distributions.Normal(middle + reach * mean.double(), reach * log_std.double().exp())
    played = torch.from_numpy(actions)
    expected = theirs.log_prob(played)
    expected = expected.where(played > torch.tensor(low), theirs.cdf(torch.tensor(low)).log())
    expected = expected.where(played < torch.tensor(high), (1 - theirs.cdf(torch.tensor(high))).log())
    expected[:, 2] = 0.0
    found = head.env_log_prob(policy, head.from_env(actions))
    assert 0 < (played == torch.tensor(low)).sum() < 80
    torch.testing.assert_close(found, expected.sum(-1).float(), rtol=1e-4, atol=1e-5)
    far = head.env_log_prob(DiagonalGaussian(mean + 60, log_std), head.from_env(actions))
    assert far.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_box_head_explores_all_between_finite_bounds(dtype: type[np.floating]) -> None:
    largest = np.finfo(dtype).max
    low = np.array([[0, -1, 1000], [-np.inf, 0, -largest]], dtype)
    high = np.array([[100, 1, 1008], [np.inf, np.inf, largest]], dtype)
    head = action_head(spaces.Box(low, high, dtype=dtype))
    policy = head.distribution(torch.zeros(1, 6), None)
    middle = head.to_env(policy.mode().numpy())
    assert middle.tolist() == [[[50, 0, 1004], [0, 0, 0]]] and middle.dtype == dtype
    further = head.to_env(policy.sample(torch.full((1, 6), 0.5)).numpy())  # half a deviation
    assert further.tolist() == [[[75, 0.5, 1006], [0.5, 0.5, 0.5]]]
    assert head.to_env(policy.sample(torch.full((1, 6), -9.0)).numpy()).tolist() == [[[0, -1, 1000], [-9, 0, -9]]]
    assert head.from_env(further).tolist() == [[0.5] * 6]


def test_box_far_from_zero_keeps_its_digits() -> None:
    head = action_head(spaces.Box(1.7e9, 1.7e9 + 4, (1,), np.float64))
    assert head.to_env(np.array([[-0.5], [0.0], [0.5]], np.float32)).ravel().tolist() == [
        1.7e9 + 1,
        1.7e9 + 2,
        1.7e9 + 3,
    ]


def test_unit_box_is_stored_as_before_and_other_bounds_are_refused() -> None:
    unit, wide, wider = (action_head(spaces.Box(-size, size, (2,), np.float32)) for size in (1, 50, 60))
    assert set(unit.state_dict()) == {"log_std"}
    load_weights(wide, wide.state_dict())
    for stored, words in ((unit, "scale"), (wider, r"half width \[60.0, 60.0\], here they are .* \[50.0, 50.0\]")):
        with pytest.raises(ConfigError, match=words):
            load_weights(wide, stored.state_dict())
