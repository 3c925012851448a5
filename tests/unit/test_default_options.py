"""Options of algorithms: what `auto` becomes, and what is refused as it has no effect."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium import spaces

from arena import registry
from arena.errors import ConfigError
from fakes import ScriptedEnv, solo_group
from policies.ddpg import DDPG
from policies.dqn import DQN
from policies.hppo import HPPO
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.masac import MASAC
from policies.ppo import PPO
from policies.qmix import QMIX
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
@pytest.mark.parametrize(("rows", "intensity"), [(1, 256), (2, 256), (4, 181), (16, 64), (10_000, 1)])
def test_gradient_steps_grow_sublinearly_with_rows(algorithm: Any, rows: int, intensity: int) -> None:
    assert replayed(algorithm, rows=rows) == (intensity, 256)


@pytest.mark.parametrize(("rows", "intensity"), [(1, 16), (16, 16), (64, 8), (10_000, 1)])
def test_dqn_intensity_follows_the_root_of_the_rows(rows: int, intensity: int) -> None:
    assert replayed(DQN, rows=rows) == (intensity, 64)


@pytest.mark.parametrize(("workers", "size"), [(1, 256), (2, 128), (3, 86), (4, 64), (16, 64)])
def test_the_workers_share_a_gradient_step_of_256_transitions(workers: int, size: int) -> None:
    assert replayed(SAC, rows=1, workers=workers)[1] == size


@pytest.mark.parametrize("algorithm", [MADDPG, MASAC, QMIX])
@pytest.mark.parametrize("option", ["batch_size", "training_intensity"])
def test_auto_is_refused_by_algorithms_of_teams(algorithm: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"options\.{option}: found 'auto'; expected a"):
        registry.decode_options(algorithm, {option: "auto"}, path="")


def test_the_plan_shows_how_often_a_sample_is_replayed() -> None:
    assert SAC.sizes({}, rows=4, ticks=2500, workers=1) == {
        "replays per sample": 181,
        "samples per gradient step": 256,
        "gradient steps per run": 6363,
        "lines of metrics per run": 2,
    }
    assert "replays per sample" not in SAC.sizes({"training_intensity": 181}, rows=4, ticks=2500, workers=1)


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


# Options without effect because of another option: refused, in one sentence, by every algorithm that has them


RECURRENT = ["ppo", "a2c", "impala", "mappo", "hppo"]
REPLAYING = ["dqn", "ddpg", "td3", "sac", "maddpg", "masac", "vdn", "qmix"]
NOISY = ["ddpg", "td3", "maddpg"]
BY_VALUES = ["dqn", "vdn", "qmix"]
UNUSED = [  # algorithms; what is set; what makes it idle; what gives it an effect
    (RECURRENT, {"hidden_size": 32}, {"recurrent": None}, {"recurrent": "gru"}),
    (RECURRENT, {"sequence_length": 8}, {"recurrent": None}, {"recurrent": "lstm"}),
    (["ppo"], {"clip_rewards": 5.0}, {"normalize_rewards": False}, {"normalize_rewards": True}),
    (["ppo", *REPLAYING], {"clip_observations": None}, {"normalize_observations": False}, None),
    (REPLAYING, {"priority_alpha": 0.7}, {"prioritized": False}, {"prioritized": True}),
    (REPLAYING, {"priority_beta": 0.5}, {"prioritized": False}, {"prioritized": True}),
    (REPLAYING, {"priority_epsilon": 1e-3}, {"prioritized": False}, {"prioritized": True}),
    (NOISY, {"noise_theta": 0.3}, {"action_noise": "gaussian"}, {"action_noise": "correlated"}),
    (["td3"], {"target_noise_clip": 0.4}, {"target_policy_noise": 0}, {"target_policy_noise": 0.1}),
    (["sac", "masac"], {"target_entropy": -2.0}, {"ent_coef": 0.2}, {"ent_coef": "auto"}),
    (NOISY, {"action_noise": "correlated"}, {"noise_std": 0}, {"noise_std": 0.2}),
    (
        ["dqn", "vdn", "qmix"],
        {"exploration_initial_eps": 0.5},
        {"exploration_fraction": 0},
        {"exploration_fraction": 0.1},
    ),
    (["sb3:PPO"], {"sde_sample_freq": 4}, {"use_sde": False}, {"use_sde": True}),
    (["sb3:A2C"], {"rms_prop_eps": 1e-3}, {"use_rms_prop": False}, {"use_rms_prop": True}),
    (["sb3:TD3"], {"target_noise_clip": 0.4}, {"target_policy_noise": 0}, {"target_policy_noise": 0.1}),
    (["sb3:SAC"], {"target_entropy": -2.0}, {"ent_coef": 0.2}, {"ent_coef": "auto_0.1"}),
]
CASES = [(name, *case) for names, *case in UNUSED for name in names]


def options_of(name: str) -> Any:
    return registry.algorithm(name).Options


@pytest.mark.parametrize(("name", "given", "idle", "used"), CASES, ids=lambda value: str(value))
def test_option_without_effect_names_the_option_that_disables_it(
    name: str, given: dict[str, Any], idle: dict[str, Any], used: dict[str, Any] | None
) -> None:
    (option,), ((other, found),) = given, idle.items()
    words = found if isinstance(found, str) else json.dumps(found)
    with pytest.raises(ConfigError) as caught:
        options_of(name)(**given, **idle)
    assert caught.value.path == f"options.{option}"
    assert f"{option} has no effect where {other} is {words}" in caught.value.message
    assert "leave it out" in caught.value.message
    if used is not None:
        options_of(name)(**given, **used)


@pytest.mark.parametrize(("name", "given", "idle", "used"), CASES, ids=lambda value: str(value))
def test_default_value_is_always_accepted(name: str, given: Any, idle: Any, used: Any) -> None:
    options = options_of(name)
    defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
    options(**{option: defaults[option] for option in given}, **idle)


NUMBERS, CHOICES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
OF_SPACES = [  # algorithms; what is set; observations; actions for which it is idle, and for which it is not
    (["maddpg"], {"action_noise": "correlated"}, NUMBERS, CHOICES, NUMBERS),
    (["maddpg"], {"noise_std": 0.7}, NUMBERS, CHOICES, NUMBERS),
    (["maddpg", "masac"], {"gumbel_temperature": 0.5}, NUMBERS, NUMBERS, CHOICES),
    (RECURRENT, {"log_std_init": -1.0}, NUMBERS, CHOICES, NUMBERS),
    (["ppo", "a2c"], {"log_std_init": -1.0}, NUMBERS, spaces.MultiDiscrete([2, 3]), NUMBERS),
]
IDLE_IN_SPACES = [(name, *case) for names, *case in OF_SPACES for name in names]


def made(name: str, observations: Any, actions: Any, options: dict[str, Any]) -> Any:
    env = ScriptedEnv(observations, actions, rows=4)
    env.seat_entities = ("left", "right") if name.startswith(("ma", "q")) else ("only",)  # type: ignore[attr-defined]
    return registry.algorithm(name)(env, solo_group(), ticks=1000, **options)


@pytest.mark.parametrize(("name", "given", "observations", "idle", "used"), IDLE_IN_SPACES, ids=str)
def test_an_option_that_the_actions_leave_without_effect_is_refused(
    name: str, given: dict[str, Any], observations: Any, idle: Any, used: Any
) -> None:
    (option,) = given
    with pytest.raises(ConfigError) as caught:
        made(name, observations, idle, given)
    assert caught.value.path == f"options.{option}"
    assert f"{option} has no effect where the actions are {idle}" in caught.value.message
    assert caught.value.message.endswith(": leave it out")
    made(name, observations, used, given)
    made(name, observations, idle, {option: getattr(options_of(name)(), option)})


@pytest.mark.parametrize("name", ["ppo", "a2c", "mappo", "hppo", "dqn", "sac", "maddpg", "masac", "qmix"])
@pytest.mark.parametrize("seen", [spaces.Discrete(5), spaces.Box(0, 255, (8, 8, 3), np.uint8)], ids=str)
def test_observations_without_numbers_cannot_be_normalized(name: str, seen: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected false: .* has no numbers that could be normalized") as caught:
        made(name, seen, CHOICES, {"normalize_observations": True})
    assert caught.value.path == "options.normalize_observations"
    made(name, spaces.Tuple([seen, NUMBERS]), CHOICES, {"normalize_observations": True})


@pytest.mark.parametrize("name", ["dqn", "sb3:DQN"])
def test_exploration_that_rises_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"got 0\.1, expected at least exploration_final_eps, 0\.5") as caught:
        options_of(name)(exploration_initial_eps=0.1, exploration_final_eps=0.5)
    assert caught.value.path == "options.exploration_initial_eps"
