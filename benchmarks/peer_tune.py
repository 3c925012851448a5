"""Ray Tune with functions that report five numbers, two at a time: seconds per trial, the start of Ray not counted."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import ray
from ray import tune


def trial(config: dict[str, Any]) -> None:
    """Reports five numbers."""
    for number in range(5):
        tune.report({"value": config["x"] * number})


def main() -> None:
    """Prints the seconds per trial."""
    trials = int(sys.argv[1])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as home:
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"x": tune.grid_search(list(range(trials)))},
            run_config=tune.RunConfig(storage_path=home, verbose=0),
        )
        begun = time.monotonic()
        tuner.fit()
        seconds = time.monotonic() - begun
    print(json.dumps({"s per trial": seconds / trials}))


if __name__ == "__main__":
    main()
