"""Adam (Kingma and Ba 2015, arXiv 1412.6980) on all parameters of a module as one vector.

One vector makes an update of a small network a single operation, and a group's message one array. torch's own
optimizers also import torch's compiler when the first one is made: more than a second for every worker that starts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.common.tensors import load_weights, to_tensors

_ALIGNMENT = 16  # float32 numbers in 64 bytes: every parameter begins as aligned as if it stood alone


class Adam:
    """Moves a module's parameters down their gradient.

    After construction the parameters and their gradients are views of `vector` and `vector.grad`: writing into one
    writes into the other. The module stays on its device.

    Args:
        epsilon: added to the root of the mean squared gradient: where that is much less, steps get shorter.
        betas: of the means of the gradient and of its square; (0, b) is RMSProp, with Adam's correction of the start.
    """

    def __init__(self, module: nn.Module, *, epsilon: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.epsilon, self.betas = epsilon, betas
        self.vector, self._gradient = flatten_parameters(list(module.parameters()))
        self.steps = 0
        self._mean = torch.zeros_like(self.vector)  # m_t
        self._square = torch.zeros_like(self.vector)  # v_t
        self._count = torch.zeros((), device=self.vector.device)  # t, as the kernel wants it

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What it moves, as one vector."""
        return [self.vector]

    @property
    def gradient(self) -> Any:
        return self.vector.grad

    def zero_grad(self) -> None:
        self.vector.grad = self._gradient.zero_()

    def clip_grad_norm(self, longest: float) -> float:
        """Scales the gradient down to a Euclidean length `longest`, if it is longer; returns its length before."""
        length = float(torch.linalg.vector_norm(self.gradient))
        if length > longest:
            self.gradient.mul_(longest / length)
        return length

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step of algorithm 1: one pass over the vector, by the kernel that torch's own fused optimizer calls."""
        self.steps += 1
        torch._fused_adam_(
            [self.vector],
            [self.gradient],
            [self._mean],
            [self._square],
            [],
            [self._count.fill_(self.steps)],
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def shape_gradient(self, function: Callable[[Tensor], Any]) -> Any:
        """Calls a function that may change the gradient, one vector [n]; returns its result."""
        return function(self.gradient)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "mean": self._mean, "square": self._square}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state; refuses, with a ConfigError, one of a module of another size."""
        stored = to_tensors(state)
        if "mean" not in stored:
            raise ConfigError(f"the stored optimizer is no Adam of this package: it has {', '.join(map(str, stored))}")
        if stored["mean"].shape != self._mean.shape:
            raise ConfigError(
                f"the stored optimizer moves {stored['mean'].numel()} numbers, this network has {self._mean.numel()}"
            )
        self.steps = int(stored["steps"])
        self._mean.copy_(stored["mean"])
        self._square.copy_(stored["square"])


class TorchOptimizer:
    """An optimizer of torch in place of an `Adam`; its learning rate is that of the algorithm.

    Groups of parameters keep the ratios of the rates that they were made with; the largest becomes the algorithm's.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.parameters: list[nn.Parameter] = [one for group in optimizer.param_groups for one in group["params"]]

    def zero_grad(self) -> None:
        self._optimizer.zero_grad(set_to_none=False)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def shape_gradient(self, function: Callable[[Tensor], Any]) -> Any:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        vector = torch.cat([gradient.flatten() for gradient in gradients])
        result = function(vector)
        for gradient, part in zip(gradients, torch.split(vector, [one.numel() for one in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
        return result

    def clip_grad_norm(self, longest: float) -> float:
        return float(nn.utils.clip_grad_norm_(self.parameters, longest))

    def step(self, rate: float) -> None:
        """One step with this learning rate in the group of parameters that has the largest."""
        groups = self._optimizer.param_groups
        rates = [float(group.setdefault("initial_lr", group["lr"])) for group in groups]  # torch's name; it is saved
        for group, first in zip(groups, rates, strict=True):
            group["lr"] = rate * first / max(rates) if any(rates) else rate
        self._optimizer.step()


Optimizer = Adam | torch.optim.Optimizer
"""What moves the weights of an algorithm: a subclass may replace an `Adam` by an optimizer of torch."""


def group_optimizer(optimizer: Optimizer) -> Adam | TorchOptimizer:
    """An optimizer in the form that the group learner uses."""
    return optimizer if isinstance(optimizer, Adam) else TorchOptimizer(optimizer)


def flatten_parameters(parameters: list[nn.Parameter]) -> tuple[nn.Parameter, Tensor]:
    """One vector and one gradient, of which the parameters and their gradients become views."""
    starts = [0]
    for parameter in parameters:
        starts.append(starts[-1] + -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT)
    vector = nn.Parameter(torch.zeros(starts[-1], device=parameters[0].device))
    gradient = torch.zeros_like(vector, requires_grad=False)
    for parameter, start in zip(parameters, starts, strict=False):
        part = slice(start, start + parameter.numel())
        vector.data[part] = parameter.data.flatten()
        parameter.data = vector.data[part].view_as(parameter)
        parameter.grad = gradient[part].view_as(parameter)
    vector.grad = gradient
    return vector, gradient


class Target:
    """A target network: `module`, a copy of what is learned that follows it slowly (Mnih et al. 2015).

    The optimizer is the one that moves what is learned, and nothing else. doi 10.1038/nature14236
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer) -> None:
        self.module: Any = copy.deepcopy(module).requires_grad_(False)
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
        return self.module.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from stored weights; raises ConfigError if they are of a module of another shape."""
        load_weights(self.module, state)
