"""The published network of the same kind, rogue-net, with the weights of ours: the same logits and values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from arena import Ragged
from envs.minesweeper import SPACE
from policies.common.columns import RaggedTensor
from policies.networks.heads import UnitHead
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Transformer

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from unit_boards import LABELS, MINES, boards  # noqa: E402

PYTHON = Path(os.environ.get("ARENA_PEERS_UNITS", ROOT / ".venv-peers-units/bin/python"))
ROWS = 40


def network() -> UnitActorCritic:
    """A network with all weights far from the initial ones."""
    made = UnitActorCritic(SPACE, UnitHead(SPACE.action_space), Transformer(), torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in made.parameters():
            weights.add_(0.1 * torch.randn(weights.shape, generator=draw))
    return made


@pytest.mark.long
def test_the_published_network_gives_the_same_logits_and_values(tmp_path: Path) -> None:
    assert PYTHON.exists(), f"{PYTHON} has the package: `make .venv-peers-units/.ready`, or set ARENA_PEERS_UNITS"
    made, board = network(), boards(ROWS)
    weights = {name: one.detach().numpy() for name, one in made.named_parameters()}
    np.savez(tmp_path / "weights.npz", rows=ROWS, **weights)
    command = [PYTHON, ROOT / "benchmarks/peer_units.py", "compare", tmp_path / "weights.npz", tmp_path / "found.npz"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = np.load(tmp_path / "found.npz")
    mines = np.full(ROWS, MINES)
    robots = Ragged(board.robots, board.counts)
    actors = Ragged(MINES + robots.places(), board.counts)
    arrays = [
        *(Ragged(board.mines, mines), robots, Ragged.empty(ROWS, np.float32, (1,))),
        *(actors, Ragged(np.ones((actors.total, LABELS), np.int8), board.counts)),
        *(actors, Ragged(np.tile(np.arange(MINES), ROWS), mines)),  # all robots fire at all mines
    ]
    with torch.no_grad():
        decisions, values = made.policy_and_value([RaggedTensor.of(one) for one in arrays])
        move, fire = (torch.log_softmax(one.logits, -1).numpy() for one in decisions.offered)
    np.testing.assert_allclose(values, found["values"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(move, found["move"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(fire, found["fire"], atol=1e-5, rtol=0)
    assert np.ptp(found["values"]) > 0.1
    assert np.ptp(found["fire"]) > 1.0
