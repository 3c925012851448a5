"""A further loss of the user's own, beside the loss of an algorithm (option `extra_loss`).

    class Imitate:
        measured = ("distance",)                                    # optional: names of what it measures

        def __init__(self, observation_space, action_space, *, seed, **options): ...
        def __call__(self, network, batch): ...                     # -> Tensor, or (Tensor, {"distance": Tensor})

It is made once per worker and called for every minibatch, with torch recording; `arena check` calls it once, with a
made-up one. Its gradient is added to that of the algorithm before the group's mean. Its value is logged as
`extra_loss`, what it measures as `extra_<name>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.extensions.option import load_extension

OPTION = "extra_loss"


class ExtraLoss:
    """A loss of the user's own.

    Args:
        given: the option.
        observation_space: of one entity.
        action_space: likewise.
        seed: of this worker.

    Attributes:
        names: of its metrics.

    Raises:
        ConfigError: there is no such class, it cannot be called, or `measured` is no list of names.
    """

    def __init__(
        self, given: str | Mapping[str, Any], observation_space: Space[Any], action_space: Space[Any], *, seed: int
    ) -> None:
        self._loaded = loaded = load_extension(given, OPTION)
        self._loss = loaded.made(observation_space, action_space, option=OPTION, seed=seed)
        self._measured = getattr(self._loss, "measured", ())
        if not callable(self._loss) or not all(isinstance(name, str) for name in self._measured):
            raise ConfigError(
                f"{loaded.name!r} needs a method __call__(network, batch), and may have `measured`, a tuple of names",
                path=f"options.{OPTION}",
            )
        self.names = ("extra_loss", *(f"extra_{name}" for name in self._measured))

    def backward(self, network: nn.Module, batch: Any) -> list[float]:
        """Adds its gradient to `grad` of the weights; returns the values of `names`.

        Raises:
            ValueError: it gives no loss, or has measured something else than it says.
        """
        loss, measured = self._called(network, batch)
        torch.autograd.backward([loss])
        return self._values(loss, measured)

    def try_out(self, network: nn.Module, batch: Any) -> None:
        """Calls it once; changes no `grad` of the weights.

        Raises:
            ConfigError: it raises an error, gives no scalar that depends on the weights, or has measured
                something else than it says.
        """
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        try:
            loss, measured = self._called(network, batch)
            if all(one is None for one in torch.autograd.grad([loss], weights, allow_unused=True)):
                raise ValueError("its value depends on no weight of the network")
            self._values(loss, measured)  # which may be NaN where no made-up row is one that the loss selects
        except Exception as error:
            raise self._loaded.failure("fails on a made-up batch", error, OPTION) from error

    def _called(self, network: nn.Module, batch: Any) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        with torch.enable_grad():
            found = self._loss(network, batch)
        loss, measured = found if isinstance(found, tuple) else (found, {})
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ValueError(f"found {loss!r:.80}; expected a tensor of one number that depends on the weights")
        return loss, measured

    def _values(self, loss: Tensor, measured: Mapping[str, Tensor | float]) -> list[float]:
        if {*measured} != {*self._measured}:
            raise ValueError(
                f"{type(self._loss).__name__} has measured {sorted(measured)}; its `measured` says {[*self._measured]}"
            )
        return [float(loss.detach()), *(_number(measured[name]) for name in self._measured)]


def _number(value: Tensor | float) -> float:
    return float(value.detach() if isinstance(value, Tensor) else value)
