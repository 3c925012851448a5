"""Encoders: the built-in one, or a torch module of the user's own (option `encoder`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from arena.errors import ConfigError
from arena.game.spaces import leaves_of
from policies.common.tensors import to_tensors
from policies.extensions.option import load_extension
from policies.networks.actor_critic import Encoder

_OPTION = "encoder"
_TRIED_ROWS = 2


class OwnEncoder(Encoder):
    """A module of the user's own: `Net(space, generator, **options)`, with `features` and `forward(leaves)`.

    Torch differentiates it. Actor and critic share it; in algorithms with critics of actions it belongs to the critics.

    Args:
        space: one entity's observation space.
        given: the option `encoder`.
        generator: where the initial weights come from.

    Raises:
        ConfigError: it is no module, has no `features`, or returns something else than [N, features].
    """

    def __init__(self, space: Space[Any], given: str | Mapping[str, Any], generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        loaded = load_extension(given, _OPTION)
        module = loaded.made(space, generator, option=_OPTION)
        features = getattr(module, "features", None)
        if not isinstance(module, nn.Module) or not isinstance(features, int) or features < 1:
            raise ConfigError(
                f"{loaded.name!r} is no torch module with an attribute `features`, a whole number of at least 1",
                path=f"options.{_OPTION}",
            )
        self.own, self.features, self.learns = module, features, True
        tried = [torch.zeros(_TRIED_ROWS, *leaf.shape, dtype=_dtype(leaf.dtype)) for leaf in leaves_of(space)]
        try:
            with torch.no_grad():
                found = self.own(tried)
        except Exception as error:
            raise loaded.failure("fails on two rows of zeros", error, _OPTION) from error
        if not isinstance(found, Tensor) or found.shape != (_TRIED_ROWS, features):
            shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(
                f"{loaded.name!r} gives {shape} for {_TRIED_ROWS} rows; expected {[_TRIED_ROWS, features]}: "
                "[N, features]",
                path=f"options.{_OPTION}",
            )

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Features [N, features] of leaves [N, ...]."""
        return self.own(leaves)  # type: ignore[no-any-return]


def make_encoder(space: Space[Any], generator: torch.Generator, given: str | Mapping[str, Any] | None) -> Encoder:
    """The encoder that an algorithm's option `encoder` says; None: the built-in one.

    Raises:
        ConfigError: the user's own cannot be used.
    """
    return Encoder(space, generator) if given is None else OwnEncoder(space, given, generator)


def _dtype(dtype: Any) -> torch.dtype:
    """The torch dtype of such a leaf of observations."""
    import numpy as np

    (tensor,) = to_tensors([np.zeros(1, dtype)])
    found: torch.dtype = tensor.dtype
    return found
