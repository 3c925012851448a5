"""Exported networks: how fast ONNX Runtime runs them, and what the export costs.

Each network is made with random weights and exported in every turn: an MLP of 103k parameters, a picture of 42 x 42 x 4
bytes, and a GRU. Then the module by torch and the ONNX file by ONNX Runtime take turns, each on one thread: 5 rounds of
40 calls after 50; a figure is the median of a call.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from arena import registry
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.serving.export import Engine, eager, onnx_engine
from arena.serving.onnx_model import describe
from harness import Case, Report, Sample, Settings, interleave, main, method, say

BATCH_SIZES = (1, 64)
WARM_UP, ROUNDS, CALLS = 50, 5, 40
ROWS = 256


class Network(NamedTuple):
    """What a policy sees and what it is made of."""

    observation: Space[Any]
    actions: int
    options: Mapping[str, Any]


NETWORKS = {
    "MLP": Network(spaces.Box(-1, 1, (128,), np.float32), 16, {"hidden_sizes": (256, 256)}),
    "picture": Network(spaces.Box(0, 255, (42, 42, 4), np.uint8), 6, {}),
    "GRU": Network(spaces.Box(-1, 1, (32,), np.float32), 6, {"recurrent": "gru"}),
}


def measure(network: Network, batch_sizes: tuple[int, ...]) -> Sample:
    """One export, and the times of all engines."""
    env = SpecVectorEnv(network.observation, spaces.Discrete(network.actions))
    algorithm = from_spaces(
        registry.algorithm("ppo"), env, StubGroup("blue", "gradients", 0, 0), ticks=10_000, options=network.options
    )
    exported = algorithm.exported()
    file = describe(exported, policy="blue", algorithm="ppo", tick=0, run=".", engine="onnx")
    begun = time.process_time()
    engines = {"torch": eager(exported), "onnx": onnx_engine(exported, file)}
    seconds = time.process_time() - begun
    random = np.random.default_rng(0)
    rows = [drawn(random, given) for given in exported.inputs]
    found, expected = (engines[name].run(rows)[0] for name in ("onnx", "torch"))
    sample = {"CPU s of the export": seconds, "max abs": float(np.abs(found - expected).max())}
    for size in batch_sizes:
        for name, micros in timed(engines, [array[:size] for array in rows]).items():
            sample[f"{name}: us, batch {size}"] = micros
    return sample


def drawn(random: np.random.Generator, given: Mapping[str, Any]) -> Any:
    """Rows of an input: bytes, or normal numbers."""
    shape = (ROWS, *given["shape"])
    return (
        random.integers(256, size=shape, dtype=np.uint8)
        if given["dtype"] == "uint8"
        else random.normal(size=shape).astype(np.float32)
    )


def timed(engines: Mapping[str, Engine], batch: list[Any]) -> dict[str, float]:
    """Microseconds of a call of each engine."""
    calls: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        for _ in range(WARM_UP):
            engine.run(batch)
    for _ in range(ROUNDS):
        for name, engine in engines.items():
            for _ in range(CALLS):
                begun = time.perf_counter()
                engine.run(batch)
                calls[name].append(time.perf_counter() - begun)
    return {name: statistics.median(seconds) * 1e6 for name, seconds in calls.items()}


def benchmark(settings: Settings) -> Report:
    """Measures the networks in turns."""
    sizes, names = settings.pick(BATCH_SIZES, (1,)), settings.pick(tuple(NETWORKS), ("MLP",))
    measured = interleave(
        [Case(name, partial(measure, NETWORKS[name], sizes)) for name in names], settings.repeats, say=say
    )
    report = Report("export", "Exported networks", measured, method(__doc__))
    for name in names:
        for size in sizes:
            ratio = measured.ratio((name, f"torch: us, batch {size}"), (name, f"onnx: us, batch {size}"))
            report.at_least(f"{name}: us per call, torch / ONNX Runtime, batch {size}", ratio, 2 if size == 1 else 0.8)
        report.at_most(f"{name}: largest difference", measured.summary(name, "max abs"), 1e-5)
        report.at_most(f"{name}: CPU s of the export", measured.summary(name, "CPU s of the export"), 10)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
