"""Action masks over real links of every kind, the last ones of an episode as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_cli import alone, differing, trained


def learning(transport: str = "auto") -> dict[str, Any]:
    """Learned values that depend on last masks: every episode is cut, by the time limit or by the end of the run."""
    options = {"n_step": 1, "learning_starts": 8, "batch_size": 8, "hidden_sizes": [8], "target_update_interval": 1}
    return {
        "name": "masked",
        "seed": 4,
        "ticks": 61,
        "transport": transport,
        "envs": {"game": {"make": "games:Narrow", "kwargs": {"entities": 2, "length": 3}}},
        "policies": {"blue": {"algorithm": "dqn", "options": options}},
        "matches": [{"env": "game", "seats": [["blue", "blue"]], "lanes": 3}],
    }


def test_last_masks_are_the_same_over_links_of_every_kind(tmp_path: Path) -> None:
    whole = alone(tmp_path, learning())
    for transport in ("auto", "mpi"):
        assert differing(trained(tmp_path, learning(transport), run=transport), whole) == []
