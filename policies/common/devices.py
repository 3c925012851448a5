"""The device that learns: from the option `device` to a torch device of this machine."""

from __future__ import annotations

import os
from typing import Any

import torch

from policies.common.options import wrong


def device_of(name: str) -> torch.device:
    """The device that an option `device` names; auto is cuda where there is one.

    If it is a GPU, torch uses deterministic algorithms from then on, in the whole process.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise wrong("device", name, "cpu or auto: torch finds no CUDA device on this machine")
    if name == "cuda":
        # Sums in any order are a little faster, but neither a repeated nor a resumed run would give the same bits.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass has no such variant
    return torch.device(name)


def moved(tensors: Any, device: torch.device) -> Any:
    """A tensor, a list of them or None, on a device; unchanged if they are on it already."""
    if tensors is None or device.type == "cpu":
        return tensors
    return [tensor.to(device) for tensor in tensors] if isinstance(tensors, list) else tensors.to(device)
