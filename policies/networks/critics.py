"""Several critics of actions, which share their inputs and nothing else, and the actor beside them.

    observations --encoder--> features --+--> Q_1, ..., Q_k
    actions, if they are numbers --------+

With memory the actor has an encoder of its own (as in Ni et al. 2022, arXiv 2110.05038), which its loss trains.

The errors of two critics differ, so the lesser of their values overestimates less than one critic (double
Q-learning, arXiv 1509.06461; clipped, arXiv 1802.09477). The encoder has weights where observations are images; they
belong to the critics, and the actor's loss does not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from policies.networks.actor_critic import MLP, Encoder, mlp


class Critics(nn.Module):
    """`k` critics of the same inputs.

    Args:
        space: one entity's observation space, or an encoder that is made already.
        actions: numbers per action, for Q(s, a); 0 for Q(s, .), the values of all choices side by side.
        outputs: values per row: 1, or the number of choices.
        count: k.
        layers: `hidden_sizes`, `activation` and `generator` of `mlp`.
    """

    def __init__(self, space: Space[Any] | Encoder, *, actions: int, outputs: int, count: int, **layers: Any) -> None:
        super().__init__()
        self.encoder = Encoder(space, layers["generator"]) if isinstance(space, Space) else space
        self.features = self.encoder.features
        self._each: list[MLP] = [mlp(self.features + actions, outputs, gain=1.0, **layers) for _ in range(count)]
        self.members = nn.ModuleList(self._each)

    def forward(self, features: Tensor, actions: Tensor | None = None, first: int | None = None) -> Tensor:
        """Q [k, N, outputs] of features [N, features], and actions [N, actions] if they are numbers.

        `first`: of so many critics only.
        """
        inputs = features if actions is None else torch.cat([features, actions], 1)
        return torch.stack([critic(inputs) for critic in self._each[:first]])


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Meanwhile the module's own weights get no gradients; gradients pass through it."""
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_()


class Temperature(nn.Module):
    """alpha of a soft actor, how much a nat of entropy is worth, by its logarithm; it begins at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))

    @property
    def alpha(self) -> float:
        return float(self.log_alpha.detach().exp())


class RecurrentActor(nn.Module):
    """An actor with an encoder of its own, which has a memory; called with the features [N, features] that it finds."""

    def __init__(self, encoder: Encoder, outputs: int, **layers: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = mlp(encoder.features, outputs, gain=0.01, **layers)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)  # type: ignore[no-any-return]


def make_actor(features: int, outputs: int, own: Encoder | None, **layers: Any) -> nn.Module:
    """The actor of `features` numbers that the critics' encoder finds, or with an encoder of its own; see `Critics`."""
    return mlp(features, outputs, gain=0.01, **layers) if own is None else RecurrentActor(own, outputs, **layers)


class ActorAndCritics(nn.Module):
    """An actor of the features that the critics' encoder finds, or an encoder of its own, and the critics.

    Args:
        critics: of actions, as `Critics`, with the encoder.
        actor: of what that finds; of a `RecurrentActor` the memory lies behind that of the critics in a row's memory.
        temperature: of a soft actor, where it is learned.
    """

    def __init__(self, critics: nn.Module, actor: nn.Module, *, temperature: Temperature | None = None) -> None:
        super().__init__()
        self.critics: Any
        self.actor: Any
        self.critics, self.actor, self.temperature = critics, actor, temperature
        own = actor.encoder.memory_size if isinstance(actor, RecurrentActor) else 0
        self.memory_size = self.critics.encoder.memory_size + own

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """The actor's outputs [N, outputs] for leaves [N, ...]."""
        encoder = self.actor.encoder if isinstance(self.actor, RecurrentActor) else self.critics.encoder
        return self.actor(encoder(leaves))  # type: ignore[no-any-return]

    def remember(self, leaves: Sequence[Tensor]) -> Tensor:
        """The memory [N, memory_size] after a tick, of leaves of which the last is the memory before it."""
        *others, _ = leaves
        return self.actor.encoder.ticked([*others, self.critics.encoder.ticked(leaves)[1]])[1]  # type: ignore[no-any-return]


Find = Callable[[Encoder], Any]
"""From an encoder to what it finds in a batch, such as `batch.features` or `batch.all_features`."""


def actor_features(actor: nn.Module, find: Find, of_critics: Any) -> Any:
    """What an actor sees of a batch: what its own encoder finds, or without one what the critics' encoder has found."""
    encoder = getattr(actor, "encoder", None)
    return find(encoder) if isinstance(encoder, Encoder) else of_critics
