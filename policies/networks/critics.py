"""Several critics of actions, which share their inputs and nothing else, and the actor beside them.

    observations --encoder--> features --+--> Q_1, ..., Q_k
    actions, if they are numbers --------+

The errors of two critics differ, so the lesser of their values overestimates less than one critic (double
Q-learning, arXiv 1509.06461; clipped, arXiv 1802.09477). The encoder has weights where observations are images; they
belong to the critics, and the actor's loss does not change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def forward(self, features: Tensor, actions: Tensor | None = None) -> Tensor:
        """Q [k, N, outputs] of features [N, features], and actions [N, actions] if they are numbers."""
        inputs = features if actions is None else torch.cat([features, actions], 1)
        return torch.stack([critic(inputs) for critic in self._each])


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


class ActorAndCritics(nn.Module):
    """An actor of the features that the critics' encoder finds, and the critics.

    Args:
        critics: of actions, with the encoder.
        outputs: numbers that the actor gives.
        temperature: of a soft actor, where it is learned.
        layers: of the actor, as of `Critics`.
    """

    def __init__(
        self, critics: Critics, outputs: int, *, temperature: Temperature | None = None, **layers: Any
    ) -> None:
        super().__init__()
        self.critics = critics
        self.actor = mlp(critics.features, outputs, gain=0.01, **layers)
        self.temperature = temperature

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """The actor's outputs [N, outputs] for leaves [N, ...]."""
        return self.actor(self.critics.encoder(leaves))  # type: ignore[no-any-return]
