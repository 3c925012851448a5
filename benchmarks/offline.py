"""Learning from recorded samples alone: `bc` and `iql` on data of different quality, by normalized scores.

The data are our own, of CartPole: 10,000 samples each of random actions (`random`), of `ppo` while it learns (`replay`)
and of what another `ppo` has learned (`expert`). On each, both algorithms make 8,000 gradient steps, in each turn with
another seed, and then play 20 greedy episodes.

The values of `iql` rise towards 100 discounted rewards by about one in 1 / `tau` steps: with the default of 0.005, for
runs of a million steps, they would come to a third of it. Its options were chosen on data and learners of other seeds.

A score is 100 (return - random) / (expert - random), as of D4RL (Fu et al. 2020, arXiv 2004.07219), by the mean returns
of random actions and of the expert.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import runs
from arena import Trainer
from arena.dataset import open_dataset
from arena.dataset.score import normalized_score
from harness import Case, Measured, Report, Sample, Settings, interleave, main, method, say

SAMPLES, LANES, STEPS = 10_000, 4, 8_000
DATA = ("random", "replay", "expert")
SMALL: dict[str, Any] = {"hidden_sizes": [64, 64]}
ALGORITHMS: dict[str, dict[str, Any]] = {"bc": SMALL, "iql": {**SMALL, "learning_rate": 1e-3, "tau": 0.05}}
PPO: dict[str, Any] = {"algorithm": "ppo", "options": {"learning_rate": {"start": 1e-3, "end": 0}, "n_epochs": 10}}


def config(policy: Any, *, ticks: int, seed: int = 1, **more: Any) -> dict[str, Any]:
    """CartPole with one policy, `p`."""
    return {
        **{"name": "offline", "seed": seed, "ticks": ticks, "checkpoint_every": ticks, "loggers": [], **more},
        "envs": {"game": {"make": "gymnasium:CartPole-v1"}},
        "policies": {"p": policy},
        "matches": [{"env": "game", "seats": ["p"], "lanes": LANES}],
    }


def played(policy: Any, folder: Path, *, ticks: int, seed: int = 1, **more: Any) -> float:
    """Plays a whole run in a folder; the mean return of 20 greedy episodes after it."""
    with Trainer(config(policy, ticks=ticks, seed=seed, **more), run_dir=folder) as trainer:
        trainer.train()
        return float(trainer.evaluate(20)["policy_reward_mean"]["p"])


def record(home: Path) -> tuple[float, float]:
    """Records all data, each in a folder of its name; the mean returns of random actions and of the expert."""
    ticks, teacher = SAMPLES // LANES, home / "teacher"
    expert = played(PPO, teacher, ticks=10_000)
    frozen = {**PPO, "frozen": True, "load": str(teacher)}
    lowest = played({"algorithm": "random"}, home / "random", ticks=ticks, record="samples")
    played(frozen, home / "expert", ticks=ticks, record="samples")
    played(PPO, home / "replay", ticks=ticks, record="samples")
    return lowest, expert


def cases(home: Path, lowest: float, expert: float, steps: int) -> Iterator[Case]:
    """A case for each kind of data: its return, and the score of each algorithm."""
    for data in DATA:
        returns = [episode.undiscounted for episode in open_dataset(home / data).episodes() if not episode.cut]
        of_data, seeds = statistics.fmean(returns), itertools.count(1)

        def measure(data: str = data, of_data: float = of_data, seeds: Iterator[int] = seeds) -> Sample:
            seed, found = next(seeds), {"return of the data": of_data}
            for name, options in ALGORITHMS.items():
                settings = {**options, "data": str(home / data), "train_every": 1, "gradient_steps": steps // 20}
                policy, folder = {"algorithm": name, "options": settings}, home / f"{name}-{data}-{seed}"
                score = played(policy, folder, ticks=20, seed=seed)
                found[f"score of {name}"] = normalized_score(score, random=lowest, expert=expert)
            return found

        yield Case(data, measure)


def benchmark(settings: Settings) -> Report:
    """Records the data, and measures all cases, seed after seed."""
    with runs.scratch() as home:
        lowest, expert = record(home)
        measured = interleave([*cases(home, lowest, expert, settings.pick(STEPS, 40))], settings.repeats, say=say)
    return reported(measured, lowest, expert)


def reported(measured: Measured, lowest: float, expert: float) -> Report:
    """The targets: on no data is `iql` worse than `bc`."""
    told = f"Random actions return {lowest:.0f}, the expert {expert:.0f}."
    report = Report("offline", "Learning from recorded samples", measured, [*method(__doc__), told])
    for data in DATA:
        more = measured.each(lambda of, data=data: of(data, "score of iql") - of(data, "score of bc"), [data])  # type: ignore[misc]
        report.at_least(f"{data}: score of iql, above that of bc", more, 0)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
