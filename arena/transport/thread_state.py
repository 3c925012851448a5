"""The settings that asyncio, torch and NumPy 1 keep per thread, kept for each of the roles that share a thread.

Other settings of a thread (`threading.local`, a library's own contexts) are shared; `contextvars`, to which NumPy's
belong from version 2 on, are kept by greenlets themselves. torch is never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_DEVICES = ("cpu", "cuda")  # whose autocast is kept
_ERRORS_PER_THREAD = np.__version__.startswith("1.")

State = tuple[Any, ...]
"""The running event loop, NumPy's error handling, and of torch: grad mode, inference mode, autocast."""

NEW: State = (None, np.geterr() if _ERRORS_PER_THREAD else None, True, False, None)
"""The state of a new thread."""

_guard: list[Any] = []  # the newest guard of torch's inference mode: its end would restore what was before it


def read() -> State:
    """The state of this thread."""
    events, torch = sys.modules.get("asyncio.events"), sys.modules.get("torch")
    loop = None if events is None else events._get_running_loop()
    errors = np.geterr() if _ERRORS_PER_THREAD else None
    if torch is None or not hasattr(torch, "set_default_device"):  # not imported, or not yet to its end
        return loop, errors, True, False, None
    autocast = None
    if torch._C._is_any_autocast_enabled():
        settings = [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _DEVICES]
        autocast = (*settings, torch.is_autocast_cache_enabled())
    return loop, errors, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast


def apply(state: State, before: State) -> None:
    """Sets the state of this thread; `before` is its state now."""
    loop, errors, grad, inference, autocast = state
    if loop is not before[0]:
        sys.modules["asyncio.events"]._set_running_loop(loop)
    if errors != before[1]:
        np.seterr(**errors)
    if state[2:] == before[2:]:
        return
    torch: Any = sys.modules["torch"]
    if inference != before[3]:
        _guard.clear()  # its end restores all modes of some time ago, which the next lines set again
        _guard.append(torch._C._InferenceMode(inference))
        _guard[0].__enter__()
    torch._C._set_grad_enabled(grad)
    if autocast or before[4] or torch._C._is_any_autocast_enabled():
        *settings, cached = autocast or ((False, torch.bfloat16), (False, torch.float16), True)
        for device, (enabled, dtype) in zip(_DEVICES, settings, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cached)
        torch.clear_autocast_cache()  # of weights that another role may change meanwhile


@contextmanager
def kept() -> Iterator[None]:
    """Restores the state at the end."""
    before = read()
    try:
        yield
    finally:
        apply(before, read())
