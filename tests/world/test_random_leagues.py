"""Random leagues (a thousand with the long tests): what is accepted ends, what can deadlock is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.deadlock import waiting_text
from arena.roles.protocol import RoleFailed
from in_process import play
from leagues import random_league

BLOCK = 20
FEW = 1  # blocks in the normal run


@pytest.mark.parametrize(
    "block", [*range(FEW), *(pytest.param(block, marks=pytest.mark.long) for block in range(FEW, 1000 // BLOCK))]
)
def test_accepted_leagues_end_and_others_are_refused(block: int, tmp_path: Path) -> None:
    refused = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        league = random_league(seed)
        if not waiting_text(make_plan(parse_config(league.data(), source="test")), league.schedules())[1]:
            play(league.data(), tmp_path)
            continue
        refused += 1
        with pytest.raises(RoleFailed, match="the run can deadlock"):
            play(league.data(), tmp_path)
    assert 0 < refused < BLOCK
