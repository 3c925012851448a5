"""Random streams are stable, distinct, and independent of other parts of the run."""

from __future__ import annotations

import os
import subprocess
import sys

from arena.plan.seeding import environment_seed, policy_seed, worker_seed


def test_seeds_equal_those_of_earlier_versions() -> None:
    assert environment_seed(7, entry=0, copy=0, lane=0) == 4150711411
    assert environment_seed(7, entry=3, copy=2, lane=1) == 822793632
    assert worker_seed(7, policy="blue", entry=0, copy=0, seat=1) == 2811166876
    assert policy_seed(7, policy="blue") == 927074662


def test_a_large_plan_has_no_two_equal_seeds() -> None:
    places = [(entry, copy) for entry in range(12) for copy in range(10)]
    seeds = [environment_seed(1, entry=entry, copy=copy, lane=lane) for entry, copy in places for lane in range(16)]
    for policy in ("red", "blue", "green", "yellow"):
        seeds.append(policy_seed(1, policy=policy))
        seeds += [
            worker_seed(1, policy=policy, entry=entry, copy=copy, seat=seat)
            for entry, copy in places
            for seat in range(2)
        ]
    assert len(set(seeds)) == len(seeds)


def test_neighboring_run_seeds_share_no_stream() -> None:
    first = {environment_seed(1, entry=entry, copy=copy, lane=0) for entry in range(10) for copy in range(10)}
    second = {environment_seed(2, entry=entry, copy=copy, lane=0) for entry in range(10) for copy in range(10)}
    assert not first & second


def test_seeds_fit_in_32_bits() -> None:
    seeds = [environment_seed(2**80, entry=0, copy=0, lane=lane) for lane in range(200)]
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert max(seeds) > 2**31  # and use them


def test_names_are_hashed_alike_in_every_process() -> None:
    code = "from arena.plan.seeding import policy_seed; print(policy_seed(5, policy='Grün'))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    }
    assert found == {str(policy_seed(5, policy="Grün"))}
