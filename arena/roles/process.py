"""Process-wide settings of libraries: number of threads and global random streams.

Only algorithms import torch, perhaps as late as in their `run`; settings made before that are applied at the import.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np


def limit_threads() -> None:
    """Limits torch to one thread per worker: more threads would compete for the cores of other workers."""

    def limit(torch: Any) -> None:
        _torch_hook.threads = _torch_hook.threads or torch.get_num_threads()
        torch.set_num_threads(1)

    _apply_to_torch("threads", limit)


def threads_before() -> int:
    """The number of torch's threads before `limit_threads` first took effect; 0: it has not."""
    return _torch_hook.threads


def seed_libraries(seed: int) -> None:
    """Seeds the global random streams of this process, for algorithms that use them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    _apply_to_torch("seed", lambda torch: torch.manual_seed(seed))


def _apply_to_torch(name: str, setting: Callable[[Any], object]) -> None:
    """Applies a setting to torch now, or when torch is imported: `run()` may import it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        setting(torch)
        return
    if _torch_hook not in sys.meta_path:
        sys.meta_path.insert(0, _torch_hook)
    _torch_hook.settings[name] = setting


class _TorchImportHook(MetaPathFinder):
    """Applies settings to torch right after its import, by its own loader; the other finders locate it."""

    def __init__(self) -> None:
        self.settings: dict[str, Callable[[Any], object]] = {}  # pending, by name: a newer one replaces an older one
        self.threads = 0  # see `threads_before`

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_apply(torch: ModuleType) -> None:
                execute(torch)
                sys.meta_path.remove(self)
                for setting in self.settings.values():
                    setting(torch)
                self.settings.clear()

            spec.loader.exec_module = execute_and_apply  # type: ignore[method-assign, assignment]
        return spec


_torch_hook = _TorchImportHook()
