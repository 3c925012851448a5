"""Learning from recorded samples alone: `bc` and `iql` on data of different quality, by normalized scores.

The data are our own, of CartPole: 10,000 samples each of random actions (`random`), of `ppo` while it learns (`replay`,
the beginning of its run) and of what it has learned (`expert`). On each, both algorithms make the same number of
gradient steps with each of the seeds, and then play 20 greedy episodes. A score is 100 (return - random) / (expert -
random), as of D4RL (Fu et al. 2020, arXiv 2004.07219), by the mean returns of random actions and of the expert.

Writes `results/offline.json` after each training, which is not made again then, and the page `results/offline.md`.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import runs
from arena import Trainer
from arena.dataset import open_dataset
from arena.dataset.score import normalized_score
from harness import say

RESULTS = Path(__file__).resolve().parent / "results"
SEEDS = (1, 2, 3)
SAMPLES, LANES, STEPS = 10_000, 4, 2_000
DATA = ("random", "replay", "expert")
SMALL: dict[str, Any] = {"hidden_sizes": [64, 64]}
ALGORITHMS: dict[str, dict[str, Any]] = {"bc": SMALL, "iql": {**SMALL, "expectile": 0.9, "temperature": 3.0}}
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


def recorded(home: Path) -> tuple[dict[str, Path], float, float]:
    """The folder of each kind of data, and the returns of random actions and of the expert."""
    ticks = SAMPLES // LANES
    teacher, random = home / "teacher", {"algorithm": "random"}
    expert = played(PPO, teacher, ticks=10_000)
    frozen = {**PPO, "frozen": True, "load": str(teacher)}
    lowest = played(random, home / "random", ticks=ticks, record="samples")
    played(frozen, home / "expert", ticks=ticks, record="samples")
    played(PPO, home / "replay", ticks=ticks, record="samples")
    return {name: home / name for name in DATA}, lowest, expert


def page(found: dict[str, Any]) -> str:
    """The scores as a table; medians over the seeds, with the least and the most."""
    rows = ["| data | its return | " + " | ".join(ALGORITHMS) + " |", "| --- | --- |" + " --- |" * len(ALGORITHMS)]
    for data in DATA:
        scores = [[found["scores"][f"{name}-{data}-{seed}"] for seed in SEEDS] for name in ALGORITHMS]
        cells = [f"{statistics.median(each):.0f} ({min(each):.0f} .. {max(each):.0f})" for each in scores]
        rows.append(f"| {data} | {found['data'][data]:.0f} | {' | '.join(cells)} |")
    told = (
        f"CartPole, {SAMPLES:,} samples of each kind, {STEPS:,} gradient steps, {len(SEEDS)} seeds: median (least .. "
        f"most) of the normalized score of greedy play. 0 is the return of random actions, {found['random']:.0f}; 100 "
        f"that of the expert, {found['expert']:.0f}. Written by `benchmarks/offline.py`."
    )
    return "\n".join(["# Learning from recorded samples", "", *rows, "", told, ""])


def main() -> None:
    path = RESULTS / "offline.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"scores": {}}
    with runs.scratch() as home:
        folders, lowest, expert = recorded(home)
        returns = {
            name: [episode.undiscounted for episode in open_dataset(folder).episodes() if not episode.cut]
            for name, folder in folders.items()
        }
        data = {name: statistics.fmean(each) for name, each in returns.items()}
        found |= {"random": lowest, "expert": expert, "data": data}
        for name, options in ALGORITHMS.items():
            for kind, folder in folders.items():
                for seed in SEEDS:
                    key = f"{name}-{kind}-{seed}"
                    if key in found["scores"]:
                        continue
                    settings = {**options, "data": str(folder), "train_every": 1, "gradient_steps": STEPS // 20}
                    score = played({"algorithm": name, "options": settings}, home / key, ticks=20, seed=seed)
                    found["scores"][key] = normalized_score(score, random=lowest, expert=expert)
                    say(f"{key}: {found['scores'][key]:.1f}")
                    path.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "offline.md").write_text(page(found))


if __name__ == "__main__":
    main()
