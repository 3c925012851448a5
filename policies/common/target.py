"""A target network: a copy of what is learned that follows it slowly (Mnih et al. 2015, doi 10.1038/nature14236)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from policies.common.adam import Adam, Optimizer, flatten_parameters
from policies.common.tensors import load_weights

Module = TypeVar("Module", bound=nn.Module)


class Target(Generic[Module]):
    """A copy of a module, which no gradient moves.

    Args:
        module: what is learned.
        optimizer: what moves it, and nothing else.

    Attributes:
        module: the copy.
    """

    def __init__(self, module: Module, optimizer: Optimizer) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False)
        self._vector, _ = flatten_parameters(list(self.module.parameters()))
        self._followed = (
            optimizer.vector if isinstance(optimizer, Adam) else flatten_parameters(list(module.parameters()))[0]
        )

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """Moves to (1 - tau) * itself + tau * what is learned; tau = 1 is a copy."""
        if tau == 1.0:
            self._vector.copy_(self._followed)
        else:
            self._vector.lerp_(self._followed, tau)

    def state_dict(self) -> dict[str, Any]:
        """The copy's weights."""
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from stored weights.

        Raises:
            ConfigError: they are of a module of another shape.
        """
        load_weights(self.module, state)
