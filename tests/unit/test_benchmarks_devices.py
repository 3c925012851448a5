"""The benchmark of devices: its configurations are valid for a machine with two cards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from arena.config import parse_config
from arena.registry import configured_algorithm
from arena.run.api import untouched_process

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import devices


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_every_case_of_the_devices_benchmark_is_valid(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    known = devices.learners(device)
    assert {"images, bf16", "images", "transformer", "ppo, cuda"} < {*known}
    for name, learner in known.items():
        parsed = parse_config(devices.config(learner, learner.quick), source=name)
        for policy, config in parsed.policies.items():
            with untouched_process():
                options = configured_algorithm(config.algorithm, config.options, acts=False, path=policy).options
            if policy.startswith("learner") and not name.endswith(", cpu"):
                assert device in str(options["device"])
        assert learner.quick >= 3 * int(learner.options.get("n_steps", 1))
