"""Restores a process that belongs to a user's program after a run in it."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from arena.diagnostics.start_folder import started_here
from arena.roles.process import note_threads
from arena.run.stop import restored_handlers


@contextmanager
def untouched_process() -> Iterator[None]:
    """Restores working directory, signal handlers, logging, random streams, and torch's threads and algorithms."""
    streams = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    threads = [torch.get_num_threads()] if torch is not None else note_threads()
    algorithms = (False, False, True) if torch is None else _algorithms(torch)  # torch's defaults
    try:
        with started_here(), restored_handlers(), restored_logging():
            yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch = sys.modules.get("torch")
        if torch is not None and threads:
            torch.set_num_threads(threads[0])
        if torch is not None and _algorithms(torch) != algorithms:  # a policy has learned on a GPU
            deterministic, warn_only, efficient = algorithms
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
            torch.backends.cuda.enable_mem_efficient_sdp(efficient)


def _algorithms(torch: Any) -> tuple[bool, bool, bool]:
    """Whether torch uses deterministic algorithms, only warns where it has none, and has efficient GPU attention."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return deterministic, warn_only, torch.backends.cuda.mem_efficient_sdp_enabled()


@contextmanager
def restored_logging() -> Iterator[None]:
    """Restores the handlers of the root logger at the end; a run in this process logs into its folder."""
    root, raises = logging.getLogger(), logging.raiseExceptions
    handlers, level = [*root.handlers], root.level
    root.handlers.clear()  # else `logging.basicConfig` would close them
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.raiseExceptions = raises
