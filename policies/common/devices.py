"""Devices: which one computes, with which settings of torch, and how a rollout gets there.

Nothing here is used for a policy with `device: cpu`: what is on the CPU already is neither moved nor recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.common.columns import Columns, RaggedTensor
from policies.common.options import wrong
from policies.common.rollout import Rows

GPUS = ("cuda",)
"""Kinds of devices that rollouts are moved to, and that compute in `precision`; a test adds the CPU."""


def is_gpu(device: torch.device) -> bool:
    return device.type in GPUS


def device_of(name: str, *, deterministic: bool = True) -> torch.device:
    """The device that an option `device` names; auto is cuda where there is one.

    If it is a GPU, float32 is exact from then on, in the whole process. If `deterministic`, torch also uses
    deterministic algorithms; else the fastest ones, unless another policy of the process has asked for deterministic
    ones.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise wrong("device", name, "cpu or auto: torch finds no CUDA device on this machine")
    if name != "cuda" and int(name.removeprefix("cuda:")) >= (count := torch.cuda.device_count()):
        raise wrong("device", name, f"cuda:{count - 1} at most: torch finds {count} CUDA devices on this machine")
    torch.backends.cudnn.allow_tf32 = False  # torch's default for convolutions: 10 bits of each factor
    if deterministic:
        # Sums in any order are a little faster, but neither a repeated nor a resumed run would give the same bits.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward pass has no such variant
        torch.backends.cudnn.benchmark = False
    elif not torch.are_deterministic_algorithms_enabled():
        torch.backends.cudnn.benchmark = True  # measures the algorithms for each shape, and takes the fastest
    return torch.device(name)


class DeviceInputs:
    """What the network has seen of a rollout, on the device: every number is moved once, a byte as a byte.

    rows act on tick t     put(t, rows, leaves)    their leaves, moved
    after the rollout      flat()                  all of them, without a copy

    Args:
        ticks, rows: of the rollout.
        device: that computes.
    """

    def __init__(self, ticks: int, rows: int, device: torch.device) -> None:
        self._device = device
        self._known = np.zeros((ticks, rows), np.bool_)  # what is on the device
        self._fixed: list[Any] = []  # leaves [T, B, ...]; None in place of a ragged one
        self._ragged: dict[tuple[int, int], Sequence[Any]] = {}  # by tick and first row

    def put(self, t: int, rows: Rows, leaves: Sequence[Any]) -> list[Any]:
        """Moves the leaves [b, ...] that some rows see on tick `t`."""
        if not isinstance(rows, slice):  # a few rows of an external game
            return [leaf.to(self._device) for leaf in leaves]
        if not self._fixed:
            shape = self._known.shape
            with torch.inference_mode(False):  # autograd takes no tensors that were made in it
                self._fixed = [
                    None
                    if isinstance(leaf, RaggedTensor)
                    else torch.empty(*shape, *leaf.shape[1:], dtype=leaf.dtype, device=self._device)
                    for leaf in leaves
                ]
        pairs = zip(self._fixed, leaves, strict=True)
        found = [
            leaf.to(self._device) if whole is None else whole[t, rows].copy_(leaf, non_blocking=True)
            for whole, leaf in pairs
        ]
        if any(whole is None for whole in self._fixed):
            self._ragged[t, rows.start or 0] = found
        self._known[t, rows] = True
        return found

    def flat(self) -> list[Any] | None:
        """The leaves [T * B, ...], tick by tick; None unless all were put since the last call."""
        complete, ragged = bool(self._known.all()), [self._ragged[place] for place in sorted(self._ragged)]
        self._known[:] = False
        self._ragged.clear()
        if not complete:
            return None
        return [
            RaggedTensor.cat([leaves[place] for leaves in ragged]) if whole is None else whole.flatten(0, 1)
            for place, whole in enumerate(self._fixed)
        ]


# -------------------------------------------------------------------------------------------------------- CUDA graphs

_GRAPHS = 4  # shapes that one function is recorded for; it is called as it is for others
_WARM_UPS = 3  # calls before the recording, in which libraries choose their kernels


class Recorded:
    """A function of columns, recorded for their shapes and replayed: the same kernels, hence the same bits.

    The function must not depend on numbers of the CPU that change. Its results are overwritten by the next call. What
    it does beside returning them, such as adding to `grad`, it has done several times after the first call.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._graphs: dict[Any, tuple[list[Tensor], Callable[[], None], Any]] = {}

    def __call__(self, columns: Columns) -> Any:
        given = columns.tensors()
        key = tuple((column.shape, column.dtype) for column in given)
        if key not in self._graphs:
            if len(self._graphs) == _GRAPHS:
                return self._function(columns)
            kept = columns.map(torch.clone)
            self._graphs[key] = (kept.tensors(), *self.record(lambda: self._function(kept), given[0].device))
        inputs, replay, results = self._graphs[key]
        for place, column in zip(inputs, given, strict=True):
            place.copy_(column, non_blocking=True)
        replay()
        return results

    @staticmethod
    def record(call: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], Any]:
        """A function that repeats a call on a GPU, and the call's results, which it overwrites."""
        with torch.cuda.device(device):  # streams are those of a device: by default of the first one
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    call()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                results = call()
        return graph.replay, results
