"""Default options: what `auto` becomes, where it is refused, and what `arena plan` says of it."""

from __future__ import annotations

from typing import Any

import pytest

from arena import registry
from arena.errors import ConfigError
from policies.ddpg import DDPG
from policies.dqn import DQN
from policies.hppo import HPPO
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.masac import MASAC
from policies.ppo import PPO
from policies.sac import SAC
from policies.td3 import TD3


def settled(*, rows: int, workers: int = 1, ticks: int = 1_000_000, **options: Any) -> tuple[int | str, int | str]:
    given = PPO.Options(**options).settled(rows=rows, workers=workers, ticks=ticks)
    return given.n_steps, given.minibatch_size


@pytest.mark.parametrize(("rows", "n_steps"), [(1, 2048), (3, 682), (64, 32), (1000, 32)])
def test_a_rollout_has_about_2048_transitions_and_at_least_32_ticks(rows: int, n_steps: int) -> None:
    assert settled(rows=rows)[0] == n_steps


@pytest.mark.parametrize(("ticks", "n_steps"), [(20_000, 2048), (1000, 125), (20, 2), (3, 1)])
def test_a_short_run_has_room_for_several_rollouts(ticks: int, n_steps: int) -> None:
    assert settled(rows=1, ticks=ticks)[0] == n_steps


def test_recurrent_minibatch_holds_a_whole_sequence() -> None:
    assert settled(rows=1, recurrent="lstm", sequence_length=100)[1] == 100


@pytest.mark.parametrize(("option", "value"), [("n_steps", "atuo"), ("minibatch_size", 1.5), ("n_steps", None)])
def test_only_auto_and_whole_numbers_are_accepted(option: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"options\.{option}: found .*; expected auto, or a whole number, at least 1"
    ):
        registry.decode_options(PPO, {option: value}, path="")


@pytest.mark.parametrize("algorithm", [MAPPO, HPPO])
@pytest.mark.parametrize("option", ["n_steps", "minibatch_size"])
def test_auto_is_refused_where_the_default_is_a_number(algorithm: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}: found 'auto'; expected a whole number, at least 1"):
        registry.decode_options(algorithm, {option: "auto"}, path="")


def test_the_plan_shows_what_auto_becomes() -> None:
    assert PPO.sizes({}, rows=4, ticks=100_000, workers=2) == {
        "ticks per rollout": 256,
        "samples per update": 2048,
        "updates per run": 390,
        "samples per gradient step": 90,
        "gradient steps per update": 230,
    }


@pytest.mark.parametrize(
    ("rows", "workers", "size"), [(1, 1, 64), (16, 1, 64), (1, 4, 32), (4, 16, 16), (1000, 1, 1000)]
)
def test_minibatch_is_split_among_workers_and_grows_with_the_rollout(rows: int, workers: int, size: int) -> None:
    assert settled(rows=rows, workers=workers)[1] == size


# ------------------------------------------------------------------------------------------------------------ a replay


def replayed(algorithm: Any, *, rows: int, workers: int = 1, **options: Any) -> tuple[float | str, int | str]:
    given = algorithm.Options(**options).settled(rows=rows, workers=workers)
    return given.training_intensity, given.batch_size


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG])
@pytest.mark.parametrize(("rows", "intensity"), [(1, 256), (4, 91), (16, 32), (10_000, 1)])
def test_gradient_steps_grow_sublinearly_with_rows(algorithm: Any, rows: int, intensity: int) -> None:
    assert replayed(algorithm, rows=rows) == (intensity, 256)


@pytest.mark.parametrize(("rows", "intensity"), [(1, 16), (4, 8), (16, 4), (1000, 1)])
def test_dqn_intensity_follows_the_root_of_the_rows(rows: int, intensity: int) -> None:
    assert replayed(DQN, rows=rows) == (intensity, 64)


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG, DQN])
def test_the_intensity_depends_on_the_rows_of_all_workers(algorithm: Any) -> None:
    assert replayed(algorithm, rows=1, workers=4)[0] == replayed(algorithm, rows=4)[0]


@pytest.mark.parametrize(("workers", "size"), [(1, 256), (2, 128), (3, 86), (4, 64), (16, 64)])
def test_the_workers_share_a_gradient_step_of_256_transitions(workers: int, size: int) -> None:
    assert replayed(SAC, rows=1, workers=workers)[1] == size


@pytest.mark.parametrize("algorithm", [MADDPG, MASAC])
@pytest.mark.parametrize("option", ["batch_size", "training_intensity"])
def test_auto_is_refused_by_algorithms_of_teams(algorithm: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}: found 'auto'; expected a"):
        registry.decode_options(algorithm, {option: "auto"}, path="")


def test_auto_is_no_batch_size_of_dqn() -> None:
    with pytest.raises(ConfigError, match=r"options\.batch_size: found 'auto'; expected a whole number"):
        registry.decode_options(DQN, {"batch_size": "auto"}, path="")


def test_the_plan_shows_how_often_a_sample_is_replayed() -> None:
    assert SAC.sizes({}, rows=4, ticks=2500, workers=1) == {
        "replays per sample": 91,
        "samples per gradient step": 256,
        "gradient steps per run": 3199,
        "lines of metrics per run": 2,
    }
    assert "replays per sample" not in SAC.sizes({"training_intensity": 91}, rows=4, ticks=2500, workers=1)


@pytest.mark.parametrize(
    ("options", "tau"),
    [
        ({}, 0.01),
        ({"target_update_interval": 50}, 1.0),
        ({"target_update_interval": 50, "tau": 0.5}, 0.5),
        ({"tau": 1.0}, 1.0),
    ],
)
def test_target_network_of_dqn_is_copied_where_it_moves_seldom(options: dict[str, Any], tau: float) -> None:
    assert DQN.Options(**options).settled(rows=1, workers=1).tau == tau
