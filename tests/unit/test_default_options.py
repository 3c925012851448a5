"""Default options: what `auto` becomes, where it is refused, and what `arena plan` says of it."""

from __future__ import annotations

from typing import Any

import pytest

from arena.errors import ConfigError
from policies.hppo import HPPO
from policies.mappo import MAPPO
from policies.ppo import PPO


def settled(*, rows: int, workers: int = 1, ticks: int = 1_000_000, **options: Any) -> tuple[int | str, int | str]:
    given = PPO.Options(**options).settled(rows=rows, workers=workers, ticks=ticks)
    return given.n_steps, given.minibatch_size


@pytest.mark.parametrize(("rows", "n_steps"), [(1, 2048), (3, 682), (4, 512), (16, 128), (64, 32), (1000, 32)])
def test_a_rollout_has_about_2048_transitions_and_at_least_32_ticks(rows: int, n_steps: int) -> None:
    assert settled(rows=rows)[0] == n_steps


def test_a_rollout_counts_the_transitions_of_all_workers() -> None:
    assert settled(rows=4, workers=4)[0] == settled(rows=16)[0]


@pytest.mark.parametrize(("ticks", "n_steps"), [(20_000, 2048), (1000, 125), (20, 2), (3, 1)])
def test_a_short_run_has_room_for_several_rollouts(ticks: int, n_steps: int) -> None:
    assert settled(rows=1, ticks=ticks)[0] == n_steps


def test_what_is_given_stays() -> None:
    assert settled(rows=1, n_steps=5000, minibatch_size=7) == (5000, 7)


def test_a_recurrent_policy_has_room_for_a_whole_sequence_in_a_minibatch() -> None:
    assert settled(rows=1, recurrent="lstm", sequence_length=100)[1] == 100


@pytest.mark.parametrize("option", ["n_steps", "minibatch_size"])
@pytest.mark.parametrize("value", ["atuo", 0, 1.5, None, True])
def test_anything_but_auto_and_whole_numbers_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}: got .*, expected auto, or a whole number, at least 1"):
        PPO.Options(**{option: value})


@pytest.mark.parametrize("algorithm", [MAPPO, HPPO])
@pytest.mark.parametrize("option", ["n_steps", "minibatch_size"])
def test_auto_is_refused_where_the_default_is_a_number(algorithm: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}: got 'auto', expected a whole number, at least 1"):
        algorithm.Options(**{option: "auto"})


def test_the_plan_shows_what_auto_becomes() -> None:
    assert PPO.sizes({}, rows=4, ticks=100_000, workers=2) == {
        "ticks per rollout": 256,
        "samples per update": 2048,
        "updates per run": 390,
        "samples per gradient step": 128,
        "gradient steps per update": 160,
    }


@pytest.mark.parametrize("ticks", [1, 2, 100])
def test_the_shortest_run_learns_with_default_options(ticks: int) -> None:
    assert PPO.sizes({}, rows=1, ticks=ticks, workers=1)["updates per run"] >= 1


@pytest.mark.parametrize(("rows", "workers", "size"), [(1, 1, 64), (16, 1, 64), (1, 4, 64), (1000, 1, 1000)])
def test_a_minibatch_has_64_transitions_of_each_worker_or_a_32nd_of_a_large_rollout(
    rows: int, workers: int, size: int
) -> None:
    assert settled(rows=rows, workers=workers)[1] == size
