"""Algorithms of Stable-Baselines3 as members: equality with the library and with one worker, exact state."""

from __future__ import annotations

import base64
import contextlib
import copy
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces

from arena import registry
from arena.errors import BudgetReached, ConfigError
from arena.records.state_codec import decode, encode
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, random_rewards, solo_group, together
from learning_steps import run
from policies.common.algorithm import EXPLORING
from policies.common.options import Curve
from policies.sb3.archive import pack, unpack
from policies.sb3.member import ARCHIVE
from policies.sb3.vec_env import GlobalStreams, Rows

FURTHER = [pytest.param(name, marks=pytest.mark.long) for name in ("A2C", "DDPG", "DQN", "TD3")]
NAMES = ["PPO", "SAC", *FURTHER]
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
FORCE = spaces.Box(-2, 2, (2,), np.float32)

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "log_every": 1, "check_every": 1}
ROLLOUT = {"n_steps": 8, **SMALL}
REPLAY = {"learning_starts": 12, "batch_size": 16, "buffer_size": 400, "train_freq": 3, "gradient_steps": 2, **SMALL}
OPTIONS: dict[str, dict[str, Any]] = {
    "A2C": ROLLOUT,
    "PPO": {"batch_size": 16, "n_epochs": 2, **ROLLOUT},
    "DQN": {"target_update_interval": 20, **REPLAY},
    **dict.fromkeys(("DDPG", "SAC", "TD3"), REPLAY),
}


def env_for(name: str, *, ticks: int = 32, seed: int = 0, rows: int = 4, **more: Any) -> ScriptedEnv:
    actions = FORCE if name in ("DDPG", "SAC", "TD3") else CHOICE
    return ScriptedEnv(
        VECTOR, actions, rows=rows, ticks=ticks, seed=seed, **{"reward": random_rewards(seed), "length": 7, **more}
    )


def worker(name: str, env: ScriptedEnv, group: ThreadGroup | None = None, *, ticks: int = 32, **options: Any) -> Any:
    return registry.algorithm(f"sb3:{name}")(env, group or solo_group(), ticks=ticks, **{**OPTIONS[name], **options})


def played(member: Any) -> Any:
    return run(member)


def weights(member: Any) -> Any:
    return flat_weights(member.model.policy)


# ------------------------------------------------------------------------------ equality with the library, and groups


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_single_worker_is_bit_equal_to_the_library(name: str) -> None:
    member = worker(name, env_for(name))
    streams = GlobalStreams(0)
    with streams:
        arguments = copy.deepcopy(OPTIONS[name])  # the library adds to what it is given
        del arguments["log_every"], arguments["check_every"]
        model = member.library("MlpPolicy", Rows(env_for(name), streams), seed=0, device="cpu", **arguments)
    model.action_space.seed(0)
    with pytest.raises(BudgetReached), GlobalStreams(0, EXPLORING) as _:
        model.env._streams = SimpleNamespace(left=contextlib.nullcontext)  # only one member draws
        model.learn(32 * 4, log_interval=None)
        model.learn(1, reset_num_timesteps=False)
    before = weights(member)
    assert not np.array_equal(before, weights(played(member)))
    assert np.array_equal(flat_weights(model.policy), weights(member))
    assert model._n_updates == member.model._n_updates > 0


def train(member: Any) -> Any:
    """As in the member's turn."""
    with member.streams:
        member.model.train()
    return weights(member)


def filled(member: Any, *columns: dict[str, Any]) -> Any:
    """A member with a full rollout: the rows of several workers side by side."""
    buffer = member.model.rollout_buffer
    for key in columns[0]:
        setattr(buffer, key, np.concatenate([part[key] for part in columns], axis=1))
    buffer.full, buffer.pos, buffer.generator_ready = True, buffer.buffer_size, False
    return member


def random_rollout(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    shape = (8, rows)
    numbers = {key: rng.normal(size=shape).astype(np.float32) for key in ("values", "advantages", "returns")}
    return {
        **numbers,
        "observations": rng.normal(size=(*shape, 3)).astype(np.float32),
        "actions": rng.integers(4, size=(*shape, 1)),
        "log_probs": np.log(rng.uniform(0.2, 0.4, size=shape)).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("name", "more"),
    [("A2C", {}), ("PPO", {"batch_size": 999, "n_epochs": 4, "normalize_advantage": False, "learning_rate": 2e-3})],
)
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size of 999")
def test_workers_on_one_full_batch_equal_one_worker(name: str, more: Any) -> None:
    """With an active limit of the gradient's norm, which applies to the group's mean."""
    options = {"max_grad_norm": 0.2, **more}
    parts = [random_rollout(np.random.default_rng(seed), 4) for seed in range(2)]

    def work(group: ThreadGroup) -> Any:
        return train(filled(worker(name, env_for(name), group, **options), parts[group.rank]))

    first, second = together(2, work)
    alone = filled(worker(name, env_for(name, rows=8), **options), *parts)
    before = weights(alone)
    after = train(alone)
    assert np.array_equal(first, second)
    assert np.abs(first - before).max() > 1e-3
    np.testing.assert_allclose(first, after, atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_workers_with_different_observations_hold_equal_weights(name: str) -> None:
    def work(group: ThreadGroup) -> Any:
        member = played(worker(name, env_for(name, seed=group.rank), group))
        return weights(member), group.called, group.logged

    first, *others = together(3, work)
    for other in others:
        assert np.array_equal(first[0], other[0])
        assert first[1:] == other[1:], "they meet as often, and what is logged is the mean of all"
    assert {"average", "check_equal"} <= {*first[1]}


def test_workers_share_initial_weights_and_explore_separately() -> None:
    def work(group: ThreadGroup) -> Any:
        member = worker("PPO", env_for("PPO"), group)
        with member.streams:
            drawn = np.random.random(), float(torch.rand(1))
        return weights(member), drawn, member.model.action_space.sample()

    found = together(3, work)
    assert all(np.array_equal(found[0][0], other[0]) for other in found)
    assert len({drawn for _, drawn, _ in found}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DQN"])
def test_process_globals_are_unchanged(name: str) -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, same, other = (weights(played(worker(name, env_for(name), solo_group(seed=seed)))) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


def test_seats_of_different_numbers_of_rows_are_refused_by_all_workers() -> None:
    def work(group: ThreadGroup) -> Any:
        with pytest.raises(ConfigError, match=r"differ in lanes x entities.* give all seats as many"):
            worker("A2C", env_for("A2C", rows=3 + group.rank), group).run()

    together(2, work)


# ------------------------------------------------------------------------------------------------ budget and schedules


@pytest.mark.parametrize("ticks", [32, 37])
@pytest.mark.parametrize("shape", ["linear", "cosine", "points"])
def test_the_librarys_schedules_end_with_the_run(shape: str, ticks: int) -> None:
    group, kinds = solo_group(), {"linear": Curve(start=1.0, end=0.0), "points": ((0.0, 1.0), (1.0, 0.0))}
    schedule = kinds.get(shape) or Curve(start=1.0, end=0.0, shape="cosine")
    member = played(worker("PPO", env_for("PPO", ticks=ticks), group, ticks=ticks, learning_rate=schedule))
    rates, parts = [logged["train/learning_rate"] for logged in group.logged], 8 * np.arange(1, 5) / ticks
    assert rates == pytest.approx(1 - parts if shape != "cosine" else np.cos(np.pi * parts / 2) ** 2, abs=1e-9)
    assert pack(member.model) == pack(member.model)


@pytest.mark.parametrize(("ticks", "rates"), [(32, [0.4, 0.2]), (16, [0.2, 0.2])], ids=["next leg", "beyond the run"])
def test_schedule_continues_after_a_load(ticks: int, rates: list[float]) -> None:
    group = solo_group()
    stored = played(worker("PPO", env_for("PPO", ticks=16))).state_dict()
    member = worker("PPO", env_for("PPO", ticks=16), group, ticks=ticks, learning_rate=Curve(start=1.0, end=0.2))
    member.load_state_dict(stored)
    played(member)
    assert [logged["train/learning_rate"] for logged in group.logged] == pytest.approx(rates)
    assert member.ticks_done == 32


def test_non_finite_reward_stops_before_the_update() -> None:
    member = worker("PPO", env_for("PPO", reward=lambda observations, actions: np.full(4, np.nan)))
    with pytest.raises(FloatingPointError, match=r"policy 'blue': after 0 updates .* lower learning_rate"):
        member.run()
    assert np.isfinite(weights(member)).all()


# --------------------------------------------------------------------------------------------------------------- state


def again(name: str, member: Any, *, env: ScriptedEnv, **options: Any) -> Any:
    """The worker of the next leg: made anew from what was saved, on new random streams."""
    fresh = worker(name, env, **options)
    fresh.load_state_dict(decode(*encode(member.state_dict())))
    own = member.worker_state_dict()
    if own:
        fresh.load_worker_state_dict(decode(*encode(own)))
    return fresh


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_worker_state_of_other_rows_is_dropped(name: str) -> None:
    member = played(worker(name, env_for(name, ticks=13)))
    fresh = again(name, member, env=env_for(name, rows=2))
    assert fresh.worker_state_dict() == {}
    assert fresh.ticks_done == 13
    played(fresh)


@pytest.mark.slow
def test_a_dict_of_observations_is_kept_in_rollout_and_replay() -> None:
    space = spaces.Dict(a=VECTOR, b=spaces.Discrete(3))
    for name, actions in (("PPO", CHOICE), ("SAC", FORCE)):
        env = ScriptedEnv(space, actions, ticks=13, reward=random_rewards(0))
        member = played(worker(name, env))
        fresh = again(name, member, env=ScriptedEnv(space, actions, ticks=13, reward=random_rewards(0)))
        assert {"observations/a", "observations/b"} <= {*fresh.worker_state_dict()["buffer"]["columns"]}
        played(fresh)


def test_states_that_do_not_fit_are_refused() -> None:
    member = worker("PPO", env_for("PPO"))
    before = weights(member)
    for state, message in [
        ({"network": 1}, "no state of sb3:PPO: it has network"),
        ({ARCHIVE: np.arange(9, dtype=np.uint8)}, "archive of Stable-Baselines3 cannot be read"),
        (worker("PPO", env_for("PPO"), policy_kwargs={"net_arch": [9]}).state_dict(), "do not fit this network"),
        (worker("A2C", env_for("A2C")).state_dict(), "RMSprop|other parameters than the stored optimizer"),
        (worker("SAC", env_for("SAC")).state_dict(), "the stored state has .*actor.optimizer"),
    ]:
        with pytest.raises(ConfigError, match=message):
            worker("PPO", env_for("PPO")).load_state_dict(state)
    assert np.array_equal(before, weights(member))


# --------------------------------------------------------------------------------------------------------------- actor


@pytest.mark.parametrize("name", NAMES)
def test_actor_uses_current_weights_without_side_effects(name: str) -> None:
    member = worker(name, env_for(name))
    if name == "DQN":
        member.model.exploration_rate = 0.5
    observations, infos = member.env.reset()
    before, space = member.state_dict(), member.env.action_space
    greedy, curious = member.actor(greedy=True), member.actor()
    modes = member.model.predict(observations, deterministic=True)[0]
    assert all(np.array_equal(greedy(observations, infos), modes) for _ in range(3))
    tried = [curious(observations, infos) for _ in range(20)]
    assert all(space.contains(actions) for actions in tried)
    assert len({actions.tobytes() for actions in tried}) > 1 or name in ("TD3", "DDPG")  # those are deterministic
    assert all_equal(before, member.state_dict())


# ------------------------------------------------------------------------------------------------- options and spaces


def configured(name: str, options: dict[str, Any]) -> Any:
    """A worker with these options of a configuration."""
    found = registry.configured_algorithm(f"sb3:{name}", options, acts=False, path="policies.blue")
    return found.cls.from_spaces(env_for(name), solo_group(), ticks=100, **found.options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PPO", {"n_step": 8}, r"PPO has no option 'n_step'; did you mean 'n_steps'"),
        ("PPO", {"seed": 1}, r"no option 'seed'"),
        ("PPO", {"n_steps": 0}, r"options\.n_steps: found 0; expected a whole number, at least 1"),
        ("PPO", {"max_grad_norm": 0}, r"options\.max_grad_norm: found 0; expected a number, more than 0"),
        ("TD3", {"gradient_steps": 0}, r"options\.gradient_steps: got 0, expected at least 1, or -1"),
        ("PPO", {"learning_rate": "fast"}, r"options\.learning_rate: found 'fast'; expected a number"),
        ("PPO", {"learning_rate": {"start": 1}}, r"options\.learning_rate: the key 'end' is missing"),
        ("PPO", {"policy": "MlpPolcy"}, r"options: Stable-Baselines3's PPO cannot be made .*MlpPolcy unknown"),
        ("PPO", {"policy_kwargs": {"net_arc": [8]}}, r"net_arc"),
        ("PPO", {"policy_kwargs": {"activation_fn": "torch.nn:Relu"}}, r"options\.policy_kwargs: .* has no 'Relu'"),
        ("DQN", {"train_freq": [1, "episode"]}, r"options\.train_freq: .* a whole number"),
        ("DQN", {"optimize_memory_usage": True}, r"handle_timeout_termination"),
        ("TD3", {"action_noise": 0.1}, r"options\.action_noise: .*\{kind: normal, sigma: 0.1\}"),
        ("TD3", {"action_noise": {"kind": "norml", "sigma": 1}}, r"did you mean 'normal'"),
        ("TD3", {"action_noise": {"kind": "normal", "sigma": "x"}}, r"at least 0"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(name, options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PPO", {"clip_range": {"start": 0.2, "end": 0.1}, "clip_range_vf": 0.1, "use_sde": False}),
        ("PPO", {"policy_kwargs": {"activation_fn": "torch.nn:ReLU", "net_arch": {"pi": [4], "vf": [4]}}}),
        ("DQN", {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}),
        ("DQN", {"n_steps": 3}),
        ("SAC", {"ent_coef": "auto_0.1", "use_sde": True}),
        ("DDPG", {"action_noise": {"kind": "ornstein_uhlenbeck", "sigma": 0.2, "theta": 0.1}}),
    ],
)
def test_options_of_the_library_are_accepted(name: str, options: dict[str, Any]) -> None:
    assert type(configured(name, options).model).__name__ == name


def test_exploration_noise_moves_the_actions_of_all_rows() -> None:
    def actions(**options: Any) -> Any:
        env = env_for("TD3", ticks=20)
        played(worker("TD3", env, learning_starts=0, learning_rate=0.0, **options))
        return np.stack(env.actions)

    plain, noisy = actions(), actions(action_noise={"kind": "normal", "sigma": 0.1})
    spread = np.abs(noisy - plain).std(axis=0)
    assert spread.shape == (4, 2)
    assert (spread > 0.01).all()


@pytest.mark.parametrize(
    ("name", "observations", "actions", "message"),
    [
        ("DQN", VECTOR, FORCE, "Stable-Baselines3's DQN cannot play .*only supports .*Discrete"),
        ("SAC", VECTOR, CHOICE, "Stable-Baselines3's SAC cannot play .*only supports .*Box"),
        ("PPO", VECTOR, spaces.Box(-np.inf, np.inf, (1,)), "finite lower and upper bound"),
        ("PPO", spaces.Tuple([VECTOR, VECTOR]), CHOICE, "cannot play"),
        ("PPO", spaces.Dict(a=spaces.Dict(b=VECTOR)), CHOICE, "Nested observation spaces"),
        ("PPO", spaces.Discrete(3, start=1), CHOICE, "counts observed choices from 0"),
    ],
)
def test_spaces_that_the_library_cannot_take_are_refused(
    name: str, observations: Any, actions: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.algorithm(f"sb3:{name}").check(observations, actions)


@pytest.mark.parametrize(
    ("name", "observations", "actions"),
    [
        ("PPO", VECTOR, spaces.MultiBinary(3)),
        ("PPO", spaces.Discrete(5), spaces.MultiDiscrete([2, 3], start=[1, 4])),
        ("A2C", spaces.Box(-1, 1, (2, 3), np.float64), spaces.Box(-1, 1, (2,), np.float64)),
        ("DQN", spaces.Box(0, 255, (36, 36, 3), np.uint8), CHOICE),
        ("DQN", spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), CHOICE),
    ],
    ids=str,
)
def test_plays_and_learns_with_every_kind_of_space(name: str, observations: Any, actions: Any) -> None:
    registry.algorithm(f"sb3:{name}").check(observations, actions)
    env = ScriptedEnv(observations, actions, rows=2, ticks=10, length=4, reward=random_rewards(0))
    member = worker(name, env, policy_kwargs=None)
    before = weights(member)
    played(member)
    assert all(env.action_space.contains(action) for action in env.actions)
    after = weights(member)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)


def test_samples_cannot_be_pooled() -> None:
    with pytest.raises(ConfigError, match=r"sync: got 'samples'.* can average gradients, and no more"):
        worker("PPO", env_for("PPO"), solo_group(sync="samples"))


def test_sizes_of_rollouts_are_counted() -> None:
    sizes = {name: registry.algorithm(f"sb3:{name}").sizes for name in ("A2C", "PPO")}
    assert sizes["PPO"]({"n_steps": 64, "batch_size": 100, "n_epochs": 3}, rows=8, ticks=1000, workers=4) == {
        "samples per update": 2048,
        "updates per run": 15,
        "gradient steps per update": 18,
    }
    assert sizes["A2C"]({}, rows=8, ticks=1000, workers=1) == {
        "samples per update": 40,
        "updates per run": 200,
        "gradient steps per update": 1,
    }


@pytest.mark.parametrize(("ticks", "train_freq", "log_every", "learning_starts"), [(41, 3, 10, 13), (16, 4, 100, 20)])
def test_sizes_count_the_lines_of_metrics(ticks: int, train_freq: int, log_every: int, learning_starts: int) -> None:
    given = {"train_freq": train_freq, "log_every": log_every, "learning_starts": learning_starts}
    said = registry.algorithm("sb3:DQN").sizes({**OPTIONS["DQN"], **given}, rows=4, ticks=ticks, workers=1)
    member = played(worker("DQN", env_for("DQN", ticks=ticks), ticks=ticks, **given))
    assert len(member.group.logged) == said["lines of metrics per run"]
    assert member.model._n_updates == said["gradient steps per run"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PPO", {"n_steps": 33}, "set n_steps to 32 or less, or ticks to 33 or more"),
        ("DQN", {"learning_starts": 128}, "nothing would be learned"),
        ("PPO", {"target_kl": 0.1, "n_steps": 8}, "with 2 workers, expected null"),
    ],
)
def test_unworkable_options_are_refused_at_construction(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.algorithm(f"sb3:{name}").sizes(options, rows=4, ticks=32, workers=2)


def test_one_worker_may_stop_early() -> None:
    registry.algorithm("sb3:PPO").sizes({"target_kl": 0.1, "n_steps": 8}, rows=4, ticks=32, workers=1)
    member = played(worker("PPO", env_for("PPO"), target_kl=1e-6, learning_rate=0.1, n_epochs=10))
    assert member.model._n_updates < 4 * 10


def test_a_missing_package_and_a_wrong_name_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'sb3:PP0'; did you mean 'sb3:PPO'"):
        registry.check_names({}, {"blue": "sb3:PP0"}, {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs the package 'stable_baselines3', .* pip install \"mpi-policy-arena\[sb3\]\""
    ):
        registry.algorithm("sb3:PPO")


# The library's save format: what its own `load` opens, the same every time, and read without running anything


def model(name: str) -> Any:
    game = "CartPole-v1" if name != "SAC" else "Pendulum-v1"
    more = {} if name == "A2C" else {"buffer_size": 9}
    return getattr(stable_baselines3, name)("MlpPolicy", game, seed=3, device="cpu", **more)


def changed(archive: bytes, change: Callable[[str, bytes], bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with other members."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(file, "w", kind) as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return file.getvalue()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["A2C", "DQN", "SAC"])
def test_library_opens_the_archive_which_is_always_the_same(name: str, tmp_path: Path) -> None:
    packed, same = model(name), model(name)
    packed.num_timesteps = same.num_timesteps = 77
    archive = pack(packed)
    assert archive == pack(same)
    found = unpack(archive)
    assert found.parameters.keys() == packed.get_parameters().keys()
    assert ("log_ent_coef" in found.variables) == (name == "SAC")
    (tmp_path / "model.zip").write_bytes(archive)
    opened = getattr(stable_baselines3, name).load(tmp_path / "model.zip", device="cpu")
    mine, theirs = packed.policy.state_dict(), opened.policy.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert all(torch.equal(mine[key], found.parameters["policy"][key]) for key in mine)
    assert opened.num_timesteps == 77
    assert opened.learning_rate == packed.learning_rate
    seen = packed.observation_space.sample()
    np.testing.assert_array_equal(
        opened.predict(seen, deterministic=True)[0], packed.predict(seen, deterministic=True)[0]
    )


def test_a_pickle_in_the_data_is_not_opened_here_but_by_the_library(tmp_path: Path) -> None:
    trap = base64.b64encode(cloudpickle.dumps(Trap(tmp_path / "sprung"))).decode()

    def add(name: str, content: bytes) -> bytes:
        bad = {":type:": "harmless", ":serialized:": trap}
        return json.dumps({**json.loads(content), "gamma": bad}).encode() if name == "data" else content

    archive = changed(pack(model("A2C")), add)
    assert "gamma" not in unpack(archive).numbers
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "model.zip").write_bytes(archive)
    stable_baselines3.A2C.load(tmp_path / "model.zip", device="cpu")
    assert (tmp_path / "sprung").exists(), "the trap works"


def spoilt_by_pickle(path: Path) -> Callable[[str, bytes], bytes]:
    def spoil(name: str, content: bytes) -> bytes:
        if name != "policy.pth":
            return content
        file = io.BytesIO()
        torch.save({"weights": Trap(path)}, file)
        return file.getvalue()

    return spoil


def test_a_pickle_in_the_place_of_weights_is_refused_and_not_opened(tmp_path: Path) -> None:
    archive = changed(pack(model("A2C")), spoilt_by_pickle(tmp_path / "sprung"))
    with pytest.raises(ConfigError, match="cannot be read"):
        unpack(archive)
    assert not (tmp_path / "sprung").exists()


def squeezed(name: str, content: bytes) -> bytes:
    """Weights whose own file is packed."""
    return changed(content, lambda _, inner: inner, zipfile.ZIP_DEFLATED) if name == "policy.pth" else content


@pytest.mark.parametrize(
    "spoil",
    [
        lambda archive: b"",
        lambda archive: b"no zip file at all",
        lambda archive: archive[: len(archive) // 2],
        lambda archive: changed(archive, lambda _, content: content, zipfile.ZIP_DEFLATED),
        lambda archive: changed(archive, squeezed),
        lambda archive: changed(archive, lambda name, content: b"[" if name == "data" else content),
        lambda archive: changed(archive, lambda name, content: pickle.dumps(1) if "policy" in name else content),
    ],
    ids=["empty", "text", "cut", "packed", "weights packed", "no JSON", "no weights"],
)
def test_file_that_is_no_archive_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ConfigError, match=r"archive of Stable-Baselines3 cannot be read"):
        unpack(spoil(pack(model("A2C"))))
