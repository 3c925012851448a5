"""A worker that runs an unmodified single-file script, which acts in the worker's environment and logs by printing."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from workers import Player


class Script(Player):
    """Runs a script that makes an environment, `policy` and `optimizer`, and prints a JSON object for each update.

    torch is imported by the script alone, so not before it runs. A file `halt` in the current directory says from which
    tick on the next update is the last one.
    """

    schedule = "ticks"
    independent = True

    def __init__(self, env: Any, group: Any, *, ticks: int, path: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.path = Path(path)
        self.weights: dict[str, Any] = {}
        self.script: dict[str, Any] = {"__name__": "__main__", "print": self.log}

    def run(self) -> None:
        import gymnasium
        import torch

        sgd, patches = torch.optim.SGD, ExitStack()

        def made(*arguments: Any, **options: Any) -> Any:
            patches.close()  # before the turn of another worker of this process
            for name, value in self.script["policy"].state_dict().items():
                if name in self.weights:
                    value.copy_(torch.as_tensor(self.weights[name]))
            return sgd(*arguments, **options)

        patches.enter_context(patch.object(gymnasium, "make", lambda name: self.env))
        patches.enter_context(patch.object(torch.optim, "SGD", made))
        exec(compile(self.path.read_text(), self.path, "exec"), self.script)

    def log(self, line: str) -> None:
        """Logs a line that the script prints."""
        self.group.log(**json.loads(line))
        self.group.save(self.state_dict)
        while Path("halt").exists() and self.env.ticks >= int(Path("halt").read_text()):
            time.sleep(0.05)

    def state_dict(self) -> dict[str, Any]:
        policy = self.script.get("policy")
        return self.weights if policy is None else dict(policy.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state
