"""A worker that imports torch in `run`, and not before."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from workers import Player


class ImportsLate(Player):
    """Records draws and thread settings of torch in each leg."""

    def run(self) -> None:
        assert self.env.ticks > 0 or "torch" not in sys.modules, "it was imported before"
        import torch

        drawn = torch.rand(3).tolist()
        told = {"drawn": drawn, "threads": torch.get_num_threads(), "limit": os.environ.get("OMP_NUM_THREADS")}
        with Path("told.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        self.env.reset()
        while True:
            if any(self.env.step(0)[2:4]):
                self.env.reset()

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass
