"""A module of the key `imports`: it registers names of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import gymnasium

import arena
from games import Countdown
from workers import Uniform


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Doubles all rewards."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 2 * float(reward), *rest


class Roaming(Countdown):
    """Changes the working directory."""

    def reset(self, **settings: Any) -> Any:
        os.chdir(tempfile.gettempdir())
        return super().reset(**settings)


class Counts:
    """Counts episodes in a file of the run folder."""

    def on_start(self, run: Any) -> None:
        self.path, self.count = run.folder / "counted", 0

    def on_episode(self, line: Mapping[str, Any]) -> None:
        self.count += 1
        self.path.write_text(str(self.count))


class Writes:
    """Writes the newest result into the run folder."""

    def on_start(self, run: Any) -> None:
        self.path = run.folder / "written"

    def on_result(self, result: Mapping[str, Any]) -> None:
        self.path.write_text(str(result["ticks"]))


arena.register_environment("countdown", Countdown)
arena.register_environment("roaming", Roaming)
arena.register_algorithm("uniform", Uniform)
arena.register_wrapper("doubled", Doubled)
arena.register_callback("counts", Counts)
arena.register_logger("writes", Writes)
