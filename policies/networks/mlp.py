"""A multi-layer perceptron with its gradient by hand: back-propagation (Rumelhart et al. 1986, doi 10.1038/323533a0).

    forward    x_0 -> x_1 = f(x_0 W_0' + b_0) -> ... -> x_k W_k' + b_k, and every x_i is kept
    backward   from the last layer to the first, with g the gradient of the loss with respect to its outputs:
               gradient of W_i += g' x_i,  of b_i += the sum of g's rows;  next g = (g W_i) * f'

Autograd does the same. For networks as small as those of reinforcement learning it takes more than twice as long: here
all arrays as large as the batch are written to reused storage, which is small enough to stay in the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

FEW = 64  # up to so many rows, allocating hidden layers is faster than looking up their storage

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class BufferPool:
    """Storage for the hidden layers of perceptrons that have the same ones and are called one after the other.

    Args:
        widths: of the hidden layers.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = (*widths, *sorted(set(widths)))  # the hidden layers, and a spare array of each width
        self._depth = len(widths)
        self._rows = 0  # of the largest batch so far
        self._whole: list[Tensor] = []  # [so many rows, width]
        self._parts: dict[int, list[Tensor]] = {}  # views of the first rows, by their number: [rows, width]
        self._kind: tuple[torch.dtype, torch.device] | None = None
        self.uses = 0  # how often it was overwritten

    def hidden(self, batch: Tensor) -> list[Tensor]:
        """An array [N, width] per hidden layer, for the rows of a batch; what they held is lost."""
        self.uses += 1
        return self._arrays(batch)[: self._depth]

    def spare(self, hidden: Tensor) -> Tensor:
        """One more array like a hidden layer."""
        place = self._widths.index(hidden.shape[1], self._depth)
        return self._arrays(hidden)[place]

    def _arrays(self, batch: Tensor) -> list[Tensor]:
        rows, kind = batch.shape[0], (batch.dtype, batch.device)
        if kind != self._kind or rows > self._rows:
            with torch.inference_mode(False):  # tensors made in it cannot be written to outside
                self._whole = [batch.new_empty(rows, width) for width in self._widths]
            self._parts, self._kind, self._rows = {}, kind, rows
        if rows not in self._parts:
            self._parts[rows] = [whole[:rows] for whole in self._whole]
        return self._parts[rows]


class MLP(nn.Sequential):
    """Linear layers [N, inputs] -> [N, outputs] with an activation after each but the last.

    Where autograd records, a call is that of any `Sequential`.

    Args:
        layers: linear ones, each with a bias.
        activation: a name in `ACTIVATIONS`.
        storage: for as many rows of the hidden layers as the largest batch has.
    """

    def __init__(self, layers: Sequence[nn.Linear], *, activation: str, storage: BufferPool) -> None:
        activations = [ACTIVATIONS[activation]() for _ in layers[1:]]
        super().__init__(*itertools.chain(*zip(layers, activations, strict=False)), layers[-1])
        self._layers = [(layer.weight, layer.bias) for layer in layers]  # faster than the modules
        self._activate, self._through = _BY_HAND[activation]
        self._storage = storage

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs [N, outputs] of inputs [N, inputs]."""
        if torch.is_grad_enabled():
            return super().forward(inputs)  # type: ignore[no-any-return, no-untyped-call]
        if inputs.shape[0] > FEW:
            return self._trace(inputs)[-1]
        for weight, bias in self._layers[:-1]:
            inputs = self._activate(functional.linear(inputs, weight, bias))
        return functional.linear(inputs, *self._layers[-1])

    def forward_with_grad(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """The outputs, and the backward function; to be called where autograd does not record.

        The backward function takes the gradient of the outputs [N, outputs]. It adds the gradients to `grad` of all
        weights, and of the inputs if they require it. It may be called once, before the storage is used again.

        Raises:
            RuntimeError: by the backward function, if it is called later.
        """
        trace, written = self._trace(inputs), self._storage.uses

        def backward(gradient: Tensor) -> None:
            if self._storage.uses != written:
                raise RuntimeError("the hidden layers were written over; go back before the next call")
            self._storage.uses += 1  # `backward` overwrites them as well
            self._backward(trace, gradient)

        return trace[-1], backward

    def _trace(self, inputs: Tensor) -> list[Tensor]:
        """The inputs of every layer, which are in the storage, and the outputs of the last, which are new."""
        trace = [inputs]
        for (weight, bias), hidden in zip(self._layers, self._storage.hidden(inputs), strict=False):
            torch.addmm(bias, trace[-1], weight.t(), out=hidden)
            trace.append(self._activate(hidden))
        return [*trace, functional.linear(trace[-1], *self._layers[-1])]

    def _backward(self, trace: list[Tensor], gradient: Tensor) -> None:
        for (weight, bias), inputs in zip(self._layers[:0:-1], trace[-2:0:-1], strict=True):
            _gradient_of(weight).addmm_(gradient.t(), inputs)
            _gradient_of(bias).add_(gradient.sum(0))
            before = torch.mm(gradient, weight, out=self._storage.spare(inputs))
            gradient = self._through(before, inputs)
        weight, bias = self._layers[0]
        _gradient_of(weight).addmm_(gradient.t(), trace[0])
        _gradient_of(bias).add_(gradient.sum(0))
        if trace[0].requires_grad:
            _gradient_of(trace[0]).addmm_(gradient, weight)


def _through_tanh(gradient: Tensor, activated: Tensor) -> Tensor:
    """The gradient times f' = 1 - f^2, written over `activated`."""
    return torch.addcmul(gradient, gradient, activated.square_(), value=-1, out=activated)


def _through_relu(gradient: Tensor, activated: Tensor) -> Tensor:
    """The gradient times f' = 1 where the unit is on, else 0, written over `activated`."""
    return torch.mul(gradient, activated.sign_(), out=activated)


_BY_HAND: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "tanh": (torch.tanh_, _through_tanh),
    "relu": (torch.relu_, _through_relu),
}


def _gradient_of(tensor: Tensor) -> Tensor:
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)
    return tensor.grad
