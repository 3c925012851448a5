"""Networks: observations of any fixed layout to features, features to actions and values.

A *leaf* is one array of an observation (see `arena.game.spaces`). Leaves that are images go through a small
convolutional network which actor and critic share; all others become numbers as they are. The features of all leaves,
side by side, feed an actor and a critic that share nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from arena.errors import ConfigError
from arena.game.spaces import leaf_spaces, leaves_of
from policies.networks.heads import ActionHead, Distribution, check_choices

FEW = 64  # up to so many rows, allocating hidden layers is faster than looking up their storage

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class BufferPool:
    """Storage for hidden layers of these widths, of perceptrons that are called one after the other."""

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

    Where autograd records, and on a GPU, a call computes what that of any `Sequential` does. Else there is
    back-propagation by hand (Rumelhart et al. 1986, doi 10.1038/323533a0):

        forward    x_0 -> x_1 = f(x_0 W_0' + b_0) -> ... -> x_k W_k' + b_k, and every x_i is kept
        backward   from the last layer to the first, with g the gradient of the loss with respect to its outputs:
                   gradient of W_i += g' x_i,  of b_i += the sum of g's rows;  next g = (g W_i) * f'

    For networks as small as those of reinforcement learning autograd takes more than twice as long: here all arrays as
    large as the batch are written to reused storage, which is small enough to stay in the cache.

    Args:
        layers: linear ones, each with a bias.
        activation: a name in `ACTIVATIONS`.

    Attributes:
        largest: how many weights the largest layer has.
    """

    activation: str

    def __init__(self, layers: Sequence[nn.Linear], *, activation: str, storage: BufferPool) -> None:
        activations = [ACTIVATIONS[activation]() for _ in layers[1:]]
        super().__init__(*itertools.chain(*zip(layers, activations, strict=False)), layers[-1])
        self._layers = [(layer.weight, layer.bias) for layer in layers]  # faster than the modules
        self.activation = activation
        self.largest = max(layer.weight.numel() for layer in layers)
        self._activate, self._through = _BY_HAND[activation]
        self._storage = storage

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs [N, outputs] of inputs [N, inputs]."""
        by_hand = not torch.is_grad_enabled() and inputs.is_cpu and not torch.is_autocast_enabled("cpu")
        if by_hand and inputs.shape[0] > FEW:
            return self._trace(inputs)[-1]
        activate = self._activate if by_hand else torch.tanh if self.activation == "tanh" else torch.relu
        for weight, bias in self._layers[:-1]:  # calling the modules takes 3 us more for each
            inputs = activate(functional.linear(inputs, weight, bias))
        outputs = functional.linear(inputs, *self._layers[-1])
        return outputs if by_hand else outputs.to(self._layers[-1][0].dtype)

    def forward_with_grad(
        self, inputs: Tensor, *, frozen: slice | None = None
    ) -> tuple[Tensor, Callable[[Tensor], Any]]:
        """The outputs, and the backward function; to be called where autograd does not record.

        The backward function takes the gradient of the outputs [N, outputs]. It adds the gradients to `grad` of all
        weights, and of the inputs if they require it; with `frozen` it returns that of these columns of the inputs
        instead. It may be called once, before the storage is used again.

        Raises:
            RuntimeError: by the backward function, if it is called later.
        """
        trace, written = self._trace(inputs), self._storage.uses

        def grad_of(tensor: Tensor) -> Tensor:
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
            return tensor.grad

        def backward(gradient: Tensor) -> Tensor | None:
            if self._storage.uses != written:
                raise RuntimeError("the hidden layers were written over; go back before the next call")
            self._storage.uses += 1  # the hidden layers are overwritten here as well
            for (weight, bias), layer_inputs in zip(self._layers[:0:-1], trace[-2:0:-1], strict=True):
                if frozen is None:
                    grad_of(weight).addmm_(gradient.t(), layer_inputs)
                    grad_of(bias).add_(gradient.sum(0))
                before = torch.mm(gradient, weight, out=self._storage.spare(layer_inputs))
                gradient = self._through(before, layer_inputs)
            weight, bias = self._layers[0]
            if frozen is not None:
                return gradient @ weight[:, frozen]
            grad_of(weight).addmm_(gradient.t(), inputs)
            grad_of(bias).add_(gradient.sum(0))
            if inputs.requires_grad:
                grad_of(inputs).addmm_(gradient, weight)
            return None

        return trace[-1], backward

    @property
    def arrays(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Weights [inputs, outputs] and biases of all layers, in torch's memory; on the CPU."""
        return [(weight.detach().numpy().T, bias.detach().numpy()) for weight, bias in self._layers]

    def _trace(self, inputs: Tensor) -> list[Tensor]:
        """The inputs of every layer, which are in the storage, and the outputs of the last, which are new."""
        trace = [inputs]
        for (weight, bias), hidden in zip(self._layers, self._storage.hidden(inputs), strict=False):
            torch.addmm(bias, trace[-1], weight.t(), out=hidden)
            trace.append(self._activate(hidden))
        return [*trace, functional.linear(trace[-1], *self._layers[-1])]


def _tanh(hidden: Tensor) -> Tensor:
    """tanh, written over a hidden layer: NumPy takes 1.5 us for 125 rows of 64 where torch takes 17."""
    array = hidden.numpy()
    np.tanh(array, out=array)
    return hidden


_BY_HAND: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    # f, and the gradient times f', written over f's values: 1 - f^2; 1 where the unit is on, else 0
    "tanh": (_tanh, lambda gradient, f: torch.addcmul(gradient, gradient, f.square_(), value=-1, out=f)),
    "relu": (torch.relu_, lambda gradient, f: torch.mul(gradient, f.sign_(), out=f)),
}

_HIDDEN_GAIN = math.sqrt(2)
_IMAGE_FEATURES = 512
_SMALL_IMAGE = 36  # pixels; the large network's three layers leave nothing of a smaller image

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class UnsetLinear(nn.Linear):
    """A linear layer whose weights its owner sets: torch would draw them from its global generator.

    `torch.nn.utils.skip_init` does the same, but imports torch's compiler: a quarter of a second for every worker.
    """

    def reset_parameters(self) -> None:
        pass


class _UnsetConv2d(nn.Conv2d):
    def reset_parameters(self) -> None:
        pass


def _initialized(layer: Layer, gain: float, generator: torch.Generator) -> Layer:
    """Orthogonal weights (Saxe et al. 2014, arXiv 1312.6120) and zero biases."""
    nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    return _initialized(UnsetLinear(inputs, outputs), gain, generator)


def mlp(
    inputs: int,
    outputs: int,
    *,
    hidden_sizes: Sequence[int],
    activation: str,
    gain: float,
    generator: torch.Generator,
    storage: BufferPool | None = None,
) -> MLP:
    """A multi-layer perceptron [N, inputs] -> [N, outputs] whose last layer has weights of this gain.

    Without `storage` it has its own, which it keeps for the backward pass while other perceptrons are called.
    """
    sizes = (inputs, *hidden_sizes)
    layers = [linear(before, after, _HIDDEN_GAIN, generator) for before, after in itertools.pairwise(sizes)]
    layers.append(linear(sizes[-1], outputs, gain, generator))
    return MLP(layers, activation=activation, storage=storage or BufferPool(hidden_sizes))


def scale_of_bytes(space: spaces.Box) -> float:
    """The factor that scales bytes of a space to [0, 1]: one over its largest bound, which is 255 or less."""
    return 1 / int(space.high.max(initial=1))  # where it is 0, all are 0


class Numbers(nn.Module):
    """A leaf of numbers as they are, flattened; bytes are scaled to [0, 1], see `scale_of_bytes`."""

    def __init__(self, space: spaces.Box | spaces.MultiBinary) -> None:
        super().__init__()
        self.features = int(np.prod(space.shape))
        self._scale = scale_of_bytes(space) if isinstance(space, spaces.Box) and space.dtype == np.uint8 else 1.0

    def keeps(self, leaf: Tensor) -> bool:
        """Whether such a leaf stays as it is."""
        return leaf.ndim == 2 and leaf.dtype is torch.float32 and self._scale == 1.0

    def forward(self, leaf: Tensor) -> Tensor:
        numbers = leaf if leaf.ndim == 2 else leaf.reshape(leaf.shape[0], -1)  # [N, features]
        if numbers.dtype is not torch.float32:  # a call that changes nothing takes time, too
            numbers = numbers.to(torch.float32)
        return numbers if self._scale == 1.0 else numbers * self._scale


class OneHot(nn.Module):
    """A leaf of choices, each of them as a one-hot vector."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        check_choices(space, "observations")
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        self._counts = [int(count) for count in counts]
        self._starts = [int(start) for start in np.ravel(space.start)]
        self.features = sum(self._counts)

    def forward(self, leaf: Tensor) -> Tensor:
        columns = leaf.reshape(leaf.shape[0], -1).unbind(1)
        parts = zip(columns, self._starts, self._counts, strict=True)
        return torch.cat([functional.one_hot(column - start, count) for column, start, count in parts], 1).float()


class Image(nn.Module):
    """The convolutional network of Mnih et al. 2015 (doi 10.1038/nature14236); a shallower one below 36 pixels.

    Takes bytes [N, H, W, C] or [N, C, H, W], scaled to [0, 1] as their space is bounded, see `scale_of_bytes`; the axis
    with the fewest items holds the channels.
    """

    def __init__(self, space: spaces.Box, generator: torch.Generator) -> None:
        super().__init__()
        self._scale = scale_of_bytes(space)
        self._channels_first = int(np.argmin(space.shape[::-1])) == 2  # the last axis wins a tie
        channels, height, width = space.shape if self._channels_first else np.roll(space.shape, 1)
        small = min(height, width) < _SMALL_IMAGE
        kernels = ((3, 1), (3, 2), (3, 2)) if small else ((8, 4), (4, 2), (3, 1))
        layers: list[nn.Module] = []
        inputs = int(channels)
        for outputs, (kernel, stride) in zip((32, 64, 64), kernels, strict=True):
            layer = _UnsetConv2d(inputs, outputs, kernel, stride=stride, padding=int(small))
            layers += [_initialized(layer, _HIDDEN_GAIN, generator), nn.ReLU()]
            inputs = outputs
        self.layers = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.layers(torch.zeros(1, int(channels), int(height), int(width))).shape[1]
        self.linear = linear(flat, _IMAGE_FEATURES, _HIDDEN_GAIN, generator)
        self.features = _IMAGE_FEATURES

    def forward(self, leaf: Tensor) -> Tensor:
        pixels = leaf if self._channels_first else leaf.permute(0, 3, 1, 2)
        if torch.is_autocast_enabled(leaf.device.type):  # bfloat16 holds all bytes exactly
            pixels = pixels.to(torch.bfloat16, memory_format=torch.channels_last)
            return functional.relu(self.linear(self.layers(pixels * self._scale)))
        hidden = self.layers(pixels.to(torch.float32) * self._scale)
        return functional.relu(self.linear(hidden))


def is_image(space: Space[Any]) -> TypeGuard[spaces.Box]:
    """Whether a leaf is taken for a picture: bytes with three axes, one of which can be the channels."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


class Features(NamedTuple):
    """What actor and critic see of the same rows [N, features]."""

    actor: Tensor
    critic: Tensor


class Encoder(nn.Module):
    """All leaves of an observation to features [N, features]; its only weights are those of images.

    Attributes:
        features: how many an actor sees.
        critic_features: how many a critic sees; None: as many.
        memory_size: numbers that a row remembers from tick to tick: none here, see `policies.networks.recurrent`.
        learns: whether it has weights.
    """

    features: int
    critic_features: int | None = None
    memory_size = 0

    def __init__(self, space: Space[Any], generator: torch.Generator) -> None:
        super().__init__()
        leaves_of(space)  # refuses what has no fixed layout
        self.parts = nn.ModuleList(
            Image(leaf, generator)
            if is_image(leaf)
            else OneHot(leaf)
            if isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete))
            else Numbers(leaf)  # type: ignore[arg-type]  # all others have been refused
            for leaf in leaf_spaces(space)
        )
        self._parts = tuple(self.parts)  # faster than the list
        self.features = sum(part.features for part in self.parts)  # type: ignore[misc]
        self.learns = any(True for _ in self.parameters())
        if self.features == 0:
            raise ConfigError(f"the observation space {space} holds no number; there is nothing to learn from")

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        if len(self._parts) == 1:
            return self._parts[0](leaves[0])  # type: ignore[no-any-return]
        return torch.cat([part(leaf) for part, leaf in zip(self._parts, leaves, strict=True)], 1)

    def ticked(self, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Features, and the rows' memory after the tick [N, memory_size]; None without memory."""
        return self(leaves), None

    def unrolled(self, leaves: Sequence[Tensor], lengths: Tensor | None) -> Tensor:
        """Features of transitions, which may come in sequences with these lengths [S]."""
        return self(leaves)  # type: ignore[no-any-return]

    def parted(self, features: Tensor) -> Features:
        """The features of actor and critic, from [N, features]; here both see all."""
        return Features(features, features)


class Actor(nn.Module):
    """A network that imitates: observations to a distribution of actions, which `head` makes of its outputs.

    The layers are `hidden_sizes`, `activation` and `generator` of `mlp`.
    """

    def __init__(self, encoder: Encoder, head: ActionHead, **layers: Any) -> None:
        super().__init__()
        self.head = head.requires_grad_(False)  # the deviation of Box actions stays as it is
        self.encoder = encoder
        self.actor = mlp(encoder.features, head.outputs, gain=0.01, **layers)

    def forward(self, leaves: Sequence[Tensor], mask: Tensor | None = None) -> Distribution:
        """The distribution of actions for leaves [N, ...]; mask bool [N, mask_size]."""
        return self.head.distribution(self.outputs(leaves), mask)  # type: ignore[no-any-return]

    def outputs(self, leaves: Sequence[Tensor]) -> Tensor:
        """What the head makes the distribution of, [N, outputs]."""
        return self.actor(self.encoder(leaves))  # type: ignore[no-any-return]


class ActorCritic(nn.Module):
    """The network of a policy-gradient algorithm: a distribution of actions, and the value of a state.

    Args:
        space: one entity's observation space, or an encoder of leaves that is made already.
        head: what the actor's outputs mean.
        layers: `hidden_sizes`, `activation` and `generator` of `mlp`; actor and critic have their own layers.

    Attributes:
        memory_size: numbers that a row remembers from tick to tick.
    """

    def __init__(self, space: Space[Any] | Encoder, head: ActionHead, **layers: Any) -> None:
        super().__init__()
        self.encoder = Encoder(space, layers["generator"]) if isinstance(space, Space) else space
        self.head, self.memory_size = head, self.encoder.memory_size
        layers["storage"] = BufferPool(layers["hidden_sizes"])  # one is called after the other
        self.actor = mlp(self.encoder.features, head.outputs, gain=0.01, **layers)
        self.critic = mlp(self.encoder.critic_features or self.encoder.features, 1, gain=1.0, **layers)
        vars(self).update(self._modules)  # found without `Module.__getattr__`, which takes a microsecond

    def policy(
        self, leaves: Sequence[Tensor], mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> Distribution:
        """The distribution of actions for leaves [N, ...]; mask bool [N, mask_size]; lengths [S] if in sequences."""
        return self._policy(self.encoder.unrolled(leaves, lengths), mask)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None = None) -> tuple[Distribution, Tensor | None]:
        """`policy`, and the rows' memory after the tick; see `Encoder.ticked`."""
        features, memory = self.encoder.ticked(leaves)
        return self._policy(features, mask), memory

    def value(self, leaves: Sequence[Tensor]) -> Tensor:
        return self._value(self.encoder(leaves))

    def policy_and_value(
        self, leaves: Sequence[Tensor], mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Distribution, Tensor]:
        """`policy` and `value` from one encoding of the observations; lengths [S] if they come in sequences."""
        features = self.encoder.unrolled(leaves, lengths)
        return self._policy(features, mask), self._value(features)

    def policy_with_grad(self, features: Tensor, mask: Tensor | None) -> tuple[Distribution, Callable[[Tensor], None]]:
        """The policy for what the actor sees, and the backward function of its outputs [N, head.outputs].

        Of perceptrons alone; to be called where autograd does not record.
        """
        outputs, backward = self.actor.forward_with_grad(features)
        policy: Distribution = self.head.distribution(outputs, mask)
        return policy, backward if mask is None else lambda gradient: backward(gradient * mask)  # see `allow`

    def _policy(self, features: Tensor, mask: Tensor | None) -> Distribution:
        return self.head.distribution(self.actor(self.encoder.parted(features).actor), mask)  # type: ignore[no-any-return]

    def _value(self, features: Tensor) -> Tensor:
        return self.critic(self.encoder.parted(features).critic).squeeze(-1)  # type: ignore[no-any-return]
