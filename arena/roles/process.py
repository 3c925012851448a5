"""What the libraries of a process keep for all who use them: their threads and their random streams.

torch is imported by those who need it only, and perhaps late, in the `run` of an algorithm.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from arena import registry
from arena.run.run import Run


def import_algorithms(run: Run) -> None:
    """Imports what the run's workers need, so that this process can take the place of one at once."""
    for policy in run.plan.policies.values():
        registry.worker_class(
            policy.algorithm, policy.options, acts=run.plan.acts(policy), path=f"policies.{policy.name}"
        )


def calm_libraries() -> None:
    """One thread per worker: more would fight for the cores that other workers have."""
    _of_torch("threads", lambda torch: torch.set_num_threads(1))


def seed_libraries(seed: int) -> None:
    """Makes the global random streams of this process repeatable, for algorithms that use them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    _of_torch("seed", lambda torch: torch.manual_seed(seed))


def _of_torch(setting: str, make: Callable[[Any], object]) -> None:
    """Makes a setting of torch; where torch is not imported yet, as soon as it is: `run()` may import it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        make(torch)
        return
    if _later not in sys.meta_path:
        sys.meta_path.insert(0, _later)
    _later.settings[setting] = make


class _Later(MetaPathFinder):
    """Finds torch with the help of the other finders, so as to make its settings when it has been imported.

    Attributes:
        settings: to be made, by name; a later one takes the place of an earlier one of the same name.
    """

    def __init__(self) -> None:
        self.settings: dict[str, Callable[[Any], object]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Settling(spec.loader, self)
        return spec

    def settle(self, torch: ModuleType) -> None:
        """Makes the settings; from now on this finder is not needed."""
        sys.meta_path.remove(self)
        for make in self.settings.values():
            make(torch)
        self.settings.clear()


class _Settling(Loader):
    """Loads torch as its own loader does, and makes the settings afterwards."""

    def __init__(self, own: Loader, later: _Later) -> None:
        self._own = own
        self._later = later

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._later.settle(module)


_later = _Later()
