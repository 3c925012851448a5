"""Random leagues (a thousand with the long tests): what is proved ends, what is refused gets stuck, nothing hangs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from arena.config import parse_config
from arena.errors import Deadlock
from arena.plan.build import make_plan
from arena.plan.deadlock import prove
from arena.roles.root.root import RoleFailed
from in_process import play
from leagues import naive_run, random_league

BLOCK = 50
FEW = 1  # blocks in the normal run


@pytest.mark.parametrize(
    "block", [*range(FEW), *(pytest.param(block, marks=pytest.mark.long) for block in range(FEW, 1000 // BLOCK))]
)
def test_safe_leagues_end_and_refused_ones_deadlock(block: int, tmp_path: Path) -> None:
    refused = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        league = random_league(seed)
        proof = prove(make_plan(parse_config(league.data(), source="test")), league.schedules())
        if proof.circle is None:
            play(league.data(), tmp_path)
            continue
        refused += 1
        with pytest.raises(RoleFailed, match="the run can deadlock"):
            play(league.data(), tmp_path)
        told = league.as_told(proof.circle)
        reached = naive_run(told)
        with pytest.raises(Deadlock) as caught:
            play(told.data(), tmp_path, allow_unproved=True)
        for wait in proof.circle:
            match, seat = wait.worker
            assert reached[match] == wait.tick, f"league {seed}: {proof.lines}"
            worker = f"worker of policy {wait.policy!r} in seat {seat} of match {match} waits for"
            assert worker in str(caught.value), f"league {seed}: {proof.lines}"
        with suppress(Deadlock):  # what can deadlock need not; that it ends, either way, is the claim
            play(league.data(), tmp_path, allow_unproved=True)
    assert 0 < refused < BLOCK
