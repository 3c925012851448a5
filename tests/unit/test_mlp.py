"""The perceptron's own forward and backward pass, against autograd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from policies.networks.actor_critic import FEW, MLP, BufferPool, mlp

INPUTS, OUTPUTS = 3, 5
MANY = FEW + 1  # rows, whose hidden layers go into the storage in any case


def numbers(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def perceptron(hidden: Sequence[int] = (8, 4), activation: str = "tanh", storage: BufferPool | None = None) -> MLP:
    """One with random weights and biases."""
    net = mlp(
        INPUTS,
        OUTPUTS,
        hidden_sizes=hidden,
        activation=activation,
        gain=1.0,
        generator=torch.Generator().manual_seed(0),
        storage=storage,
    )
    with torch.no_grad():
        for index, parameter in enumerate(net.parameters()):
            parameter.add_(0.3 * numbers(*parameter.shape, seed=index))
    return net


def by_autograd(net: MLP, inputs: Tensor, gradient: Tensor) -> list[Tensor]:
    """Outputs, and the gradients of the inputs and of all weights."""
    inputs = inputs.clone().requires_grad_()
    outputs = net(inputs)
    return [outputs, *torch.autograd.grad(outputs, [inputs, *net.parameters()], gradient)]


def by_hand(net: MLP, inputs: Tensor, gradient: Tensor) -> list[Tensor]:
    """The same, without autograd."""
    inputs = inputs.clone().requires_grad_()
    with torch.inference_mode():
        outputs, backward = net.forward_with_grad(inputs)
        backward(gradient)
    return [outputs, *(tensor.grad for tensor in (inputs, *net.parameters()) if tensor.grad is not None)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("hidden", [(), (7,), (8, 4), (6, 6, 6), (4, 8, 4)], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_backward_equals_autograd(
    activation: str, hidden: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    net = perceptron(hidden, activation).to(dtype)
    inputs, gradient = numbers(20, INPUTS).to(dtype), numbers(20, OUTPUTS).to(dtype)
    mine, theirs = by_hand(net, inputs, gradient), by_autograd(net, inputs, gradient)
    assert len(mine) == len(theirs) == 2 + 2 * (len(hidden) + 1)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("hidden", [(), (8, 4)], ids=str)
def test_gradients_add_up_and_batches_may_differ_in_size(hidden: tuple[int, ...]) -> None:
    net = perceptron(hidden)
    expected = torch.zeros(len(net[0].weight), INPUTS)
    for rows in (5, 9, 2, 9):
        inputs, gradient = numbers(rows, INPUTS), numbers(rows, OUTPUTS)
        expected += by_autograd(net, inputs, gradient)[2]
        by_hand(net, inputs, gradient)
    torch.testing.assert_close(net[0].weight.grad, expected)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("rows", [1, MANY - 1, MANY])
def test_inference_outputs_equal_a_sequential(rows: int, activation: str) -> None:
    net, inputs = perceptron((8, 4), activation), numbers(rows, INPUTS)
    with torch.no_grad():
        found = net(inputs)
    torch.testing.assert_close(found, net(inputs).detach(), atol=1e-6, rtol=1e-6)


def test_backward_after_overwritten_storage_is_refused() -> None:
    storage, inputs, gradient = BufferPool((8, 4)), numbers(6, INPUTS), numbers(6, OUTPUTS)
    first, second = perceptron(storage=storage), perceptron(storage=storage)
    with torch.no_grad():
        _, lost = first.forward_with_grad(inputs)
        _, used = second.forward_with_grad(inputs)
        used(gradient)
        for backward in (lost, used):
            with pytest.raises(RuntimeError, match="written over"):
                backward(gradient)


def test_weights_have_the_names_of_a_sequential() -> None:
    assert list(perceptron().state_dict()) == [f"{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")]
