"""PPO that also imitates recorded samples learns CartPole in half the steps of PPO alone: the example `own_loss`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena import train
from arena.config import yaml
from arena.records import read_results
from working_folder import working_directory

EXAMPLE = Path(__file__).resolve().parents[2] / "configs" / "examples" / "own_loss"


def steps_to_balance(config: dict[str, Any], run: Path) -> int:
    """The steps after which the mean return of the newest episodes is 450."""
    train(config, run_dir=run, ranks=1)
    results = read_results(run)
    assert results[-1]["stopped_by"] == "episode_reward_mean >= 450"
    return next(int(one["timesteps_total"]) for one in results if one["episode_reward_mean"] >= 450)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_imitation_halves_the_steps_of_ppo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    imitates = {**yaml.load((EXAMPLE / "imitate.yaml").read_text(), source="imitate.yaml"), "loggers": []}
    options = dict(imitates["policies"]["learner"]["options"])
    del options["extra_loss"]
    alone = {**imitates, "policies": {"learner": {"algorithm": "ppo", "options": options}}}
    with working_directory(tmp_path):
        train(str(EXAMPLE / "teacher.yaml"), run_dir="runs/teacher", ranks=1)
        steps = [
            (
                steps_to_balance({**imitates, "seed": seed}, tmp_path / f"imitates-{seed}"),
                steps_to_balance({**alone, "seed": seed}, tmp_path / f"alone-{seed}"),
            )
            for seed in (1, 2, 3)
        ]
    assert all(2 * one <= other for one, other in steps), steps
