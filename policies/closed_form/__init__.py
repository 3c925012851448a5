"""Derivatives of the losses by hand, for multi-layer perceptrons on the CPU: equal to autograd, and faster.

The losses are defined in the algorithms' files and differentiated by torch wherever this package does not apply; tests
hold both equal.
"""

from __future__ import annotations

import torch

from policies.networks.actor_critic import Encoder


def applies(encoder: Encoder, device: torch.device) -> bool:
    """Whether the gradients of this package are those of a network: no images, no memory, and on the CPU."""
    return not encoder.learns and device.type == "cpu"
