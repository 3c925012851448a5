"""EPyMARL's QMIX on simple_spread, by its own loop: `python peer_epymarl.py CHECKOUT STEPS`."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import mpe2.simple_spread_v3
import torch
import yaml

GAME = {"lib_name": "mpe", "env_name": "simple_spread_v3", "N": 3, "max_cycles": 25}
OPTIONS = {"gamma": 0.95, "epsilon_anneal_time": 10_000, "use_cuda": False, "device": "cpu", "seed": 1}
NO_TESTS = {"test_interval": 10**9, "test_nepisode": 1}  # but one before the first step


class Silent:
    """A logger that drops everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def main() -> None:
    """Trains for so many steps of the team."""
    source = Path(sys.argv[1]) / "src"
    torch.set_num_threads(1)
    sys.path.insert(0, str(source))
    sys.modules["pettingzoo.mpe.simple_spread_v3"] = mpe2.simple_spread_v3  # the same game, under its former name
    sys.modules["smaclite"] = types.ModuleType("smaclite")  # another game, which EPyMARL imports
    gymnasium.register("spread", "envs.pz_wrapper:PettingZooWrapper", kwargs=GAME, disable_env_checker=True)
    config: dict[str, Any] = {}
    for name in ("default", "envs/gymma", "algs/qmix"):
        config |= yaml.safe_load((source / "config" / f"{name}.yaml").read_text())
    config |= {**OPTIONS, **NO_TESTS, "t_max": int(sys.argv[2])}
    config["env_args"] |= {"key": "spread", "time_limit": 25, "seed": 1}
    from run import run_sequential  # type: ignore[import-not-found]  # of the checkout

    logger: Any = Silent()
    logger.console_logger = Silent()
    torch.manual_seed(1)
    run_sequential(SimpleNamespace(**config), logger)


if __name__ == "__main__":
    main()
