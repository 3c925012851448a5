"""Action values that are learned several times over: critics of the same inputs that share nothing but these.

    observations --encoder--> features --+--> Q_1, ..., Q_k
    actions, if they are numbers --------+

Two that are wrong in different ways are wrong by less together: their least value does not promise too much (double
Q-learning, arXiv 1509.06461; clipped, arXiv 1802.09477). The encoder has weights where observations are images; they
belong to the critics, and what the actor does with the features teaches it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from policies.networks.actor_critic import Encoder, mlp
from policies.networks.mlp import MLP, BufferPool


class Critics(nn.Module):
    """`k` critics with the ways back of `policies.networks.mlp`; those are to be called where autograd does not record.

    Args:
        seen: one entity's observation space, or an encoder that is made already.
        actions: numbers per action, for Q(s, a); 0 for Q(s, .), the values of all choices side by side.
        outputs: values per row: 1, or the number of choices.
        count: k.
        hidden_sizes: layers of each.
        activation: a name in `policies.networks.mlp.ACTIVATIONS`.
        generator: where the initial weights come from.
    """

    def __init__(
        self,
        seen: Space[Any] | Encoder,
        *,
        actions: int,
        outputs: int,
        count: int,
        hidden_sizes: Sequence[int],
        activation: str,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(seen, generator) if isinstance(seen, Space) else seen
        self.features = self.encoder.features
        self._each: list[MLP] = [
            mlp(
                (self.features + actions, *hidden_sizes),
                outputs,
                activation=activation,
                output_gain=1.0,
                generator=generator,
                storage=BufferPool(hidden_sizes),  # of its own: each waits for its way back while others are called
            )
            for _ in range(count)
        ]
        self.members = nn.ModuleList(self._each)

    def forward(self, features: Tensor, actions: Tensor | None = None) -> Tensor:
        """Q [k, N, outputs] of features [N, features], and actions [N, actions] if they are numbers."""
        inputs = _joined(features, actions)
        return torch.stack([critic(inputs) for critic in self._each])

    def forward_with_grad(
        self, leaves: Sequence[Tensor], actions: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Callable[[Tensor], None]]:
        """Features [N, features], Q [k, N, outputs], and the way from its gradient to `grad` of the critics.

        The encoder must have no weights.
        """
        features = self.encoder(leaves)
        inputs = _joined(features, actions)
        values, ways = zip(*(critic.forward_with_grad(inputs) for critic in self._each), strict=True)

        def backward(gradient: Tensor) -> None:
            for way, part in zip(ways, gradient, strict=True):
                way(part)

        return features, torch.stack(values), backward

    def forward_with_input_grad(
        self, features: Tensor, actions: Tensor, *, first: bool = False
    ) -> tuple[Tensor, Callable[..., Tensor]]:
        """Q [k, N, 1] and the way from its gradient to that of the actions [N, actions], past all weights.

        Args:
            features: [N, features].
            actions: [N, actions].
            first: asks the first critic alone; k is 1.
        """
        inputs = _joined(features, actions)
        values, ways = zip(
            *(critic.forward_with_input_grad(inputs) for critic in self._each[: 1 if first else None]), strict=True
        )

        def backward(gradient: Tensor) -> Tensor:
            by_inputs = torch.stack([way(part) for way, part in zip(ways, gradient, strict=True)]).sum(0)
            return by_inputs[:, self.features :]

        return torch.stack(values), backward


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Keeps gradients of what is computed meanwhile from the module's own weights; they pass through it."""
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_()


def _joined(features: Tensor, actions: Tensor | None) -> Tensor:
    return features if actions is None else torch.cat([features, actions], 1)


class ActorAndCritics(nn.Module):
    """An actor of the features that the critics' encoder finds, and the critics.

    Args:
        critics: which say how good an action is.
        outputs: numbers that the actor gives.
        hidden_sizes: layers of the actor.
        activation: a name in `policies.networks.mlp.ACTIVATIONS`.
        generator: where the actor's initial weights come from.
    """

    def __init__(
        self,
        critics: Critics,
        outputs: int,
        *,
        hidden_sizes: Sequence[int],
        activation: str,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.critics = critics
        self.actor = mlp(
            (critics.features, *hidden_sizes),
            outputs,
            activation=activation,
            output_gain=0.01,
            generator=generator,
            storage=BufferPool(hidden_sizes),
        )

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """The actor's outputs [N, outputs] for leaves [N, ...]."""
        return self.actor(self.critics.encoder(leaves))  # type: ignore[no-any-return]
