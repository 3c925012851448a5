"""Fictitious co-play: who has learned with partners at different skill cooperates better with unseen ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from arena.cli.main import main
from arena.records.journal import JournalReader

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "co_play.yaml"


def score(run: Path, pairs: list[tuple[str, str]], folder: Path) -> float:
    """The mean return of the pairs, which play frozen as they are at the end of the run; 10 is the most."""
    data = yaml.safe_load(CONFIG.read_text())
    policies: dict[str, Any] = {
        name: {**data["policies"][name], "load": str(run), "frozen": True} for pair in pairs for name in pair
    }
    (env,) = data["envs"]
    matches = [{"env": env, "seats": [*pair], "lanes": 16} for pair in pairs]
    source = folder / "pairs.yaml"
    source.write_text(yaml.safe_dump({"ticks": 100, "envs": data["envs"], "policies": policies, "matches": matches}))
    assert main(["evaluate", str(source), "--episodes", "64", "--sample", "--run-dir", str(folder / "played")]) == 0
    (journal,) = (folder / "played").glob("*/episodes.jsonl")
    return float(np.mean([game["seats"][0]["return"] for game in JournalReader(journal)]))


@pytest.mark.long
def test_learner_plays_better_with_unseen_partners_than_their_like(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", str(CONFIG), "--ranks", "1", "--run-dir", str(run)]) == 0
    unseen = [f"unseen_{number}" for number in (1, 2, 3)]
    groups = {
        "learner": [("learner", other) for other in unseen],
        "partners": [(f"partner_{number}", other) for number in range(1, 7) for other in unseen],
        "alone": [(other, other) for other in unseen],
    }
    scores = {}
    for name, pairs in groups.items():
        (tmp_path / name).mkdir()
        scores[name] = score(run, pairs, tmp_path / name)
    assert scores["alone"] > 9.5, "each has settled"
    assert scores["learner"] > 5.2, "random play has 5"
    assert scores["learner"] > scores["partners"] + 0.7
