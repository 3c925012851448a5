"""Devices: how a rollout gets to one, acting on another than learning, recorded calls, precision.

There is no GPU in most machines that test. What runs there alone is a few calls of torch; everything around them is
tested with the CPU in place of a GPU: `gpu` makes the CPU count as one, and replaces those calls.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from torch import Tensor

from arena.cli.main import main
from arena.errors import ConfigError
from arena.registry import configured_algorithm
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, random_rewards, solo_group, together
from in_process import one_match, play
from learning_steps import run
from policies.a2c import A2C
from policies.by_loss import OnPolicyByLoss
from policies.common import devices
from policies.common.columns import Columns, RaggedTensor
from policies.common.devices import DeviceInputs, Recorded, device_of
from policies.common.options import Devices
from policies.hppo import HPPO
from policies.mappo import MAPPO
from policies.ppo import PPO

VECTOR, IMAGE = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(0, 255, (12, 12, 3), np.uint8)
CHOICE, NUMBERS = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,), np.float32)
SMALL: dict[str, Any] = {"n_steps": 8, "minibatch_size": 16, "n_epochs": 2, "hidden_sizes": (8,)}
SKIRMISH = {"make": "skirmish", "kwargs": {"width": 6, "height": 5, "team_size": 2, "max_steps": 20}}
SEPARATE = Devices(act="cpu", learn="cpu")


class Differentiated(PPO):
    """PPO whose loss is differentiated by torch on every device."""

    def losses(self, *given: Any) -> Tensor:
        return super().losses(*given)


class ByLoss(OnPolicyByLoss):
    measured = ("policy_loss",)

    def loss(self, network: Any, batch: Any) -> Any:
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        policy_loss = -(policy.log_prob(batch.actions) * batch.advantages).mean()
        return policy_loss + (values - batch.returns).square().mean(), {"policy_loss": policy_loss}


class Replays:
    """Stands in for CUDA graphs: a recording calls the function as often as on a GPU, a replay once."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0
        self.devices: set[torch.device] = set()

    def __call__(self, call: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        self.devices.add(device)
        for _ in range(3):
            results = call()
        kept = [one for one in (results if isinstance(results, tuple) else (results,)) if one is not None]

        def replay() -> None:
            self.replayed += 1
            again = call()
            for old, new in zip(kept, again if isinstance(again, tuple) else (again,), strict=False):
                old.copy_(new)

        return replay, results


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Replays:
    """The CPU counts as a GPU."""
    replays = Replays()
    monkeypatch.setattr(devices, "GPUS", ("cpu",))
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(Recorded, "record", replays)
    return replays


def env(space: Any = VECTOR, actions: Any = CHOICE, *, ticks: int = 37, lanes: int = 2, **more: Any) -> ScriptedEnv:
    """Two entities in each lane."""
    found = ScriptedEnv(space, actions, rows=2 * lanes, ticks=ticks, reward=random_rewards(3), **more)
    found.seat_entities = ("first", "second")  # type: ignore[attr-defined]
    return found


def learned(cls: Any, game: ScriptedEnv, group: Any = None, **options: Any) -> Any:
    """A worker after its run."""
    return run(cls(game, group or solo_group(), ticks=game.ticks, **{**SMALL, **options}))


def as_gpu(device: str = "auto", **more: Any) -> dict[str, Any]:
    """Options that name no CPU."""
    return {"device": device, **more}


# --------------------------------------------------------------------------------------------------- moving a rollout

WAITING = {"active": lambda tick: (np.arange(4) + tick) % 3 > 0}
RUNS: dict[str, tuple[Any, Callable[[], ScriptedEnv], dict[str, Any]]] = {
    "numbers": (Differentiated, env, {"normalize_observations": True}),
    "images": (PPO, lambda: env(IMAGE), {}),
    "memory": (PPO, env, {"recurrent": "gru", "sequence_length": 4}),
    "several leaves, masks": (
        Differentiated,
        lambda: env(spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), masks=lambda _: np.ones((4, 4), np.int8)),
        {},
    ),
    "rows that wait": (PPO, lambda: env(IMAGE, **WAITING), {"normalize_rewards": True}),
    "a2c": (A2C, lambda: env(IMAGE, NUMBERS), {}),
    "mappo": (MAPPO, lambda: env(IMAGE), {}),
    "hppo": (HPPO, lambda: env(IMAGE), {"option_ticks": 3}),
}


@pytest.mark.parametrize("name", RUNS)
def test_rollout_on_a_device_gives_the_bits_of_one_in_memory(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, name: str
) -> None:
    cls, game, options = RUNS[name]
    known = cls.Options.__struct_fields__
    options = {key: value for key, value in {**SMALL, **options}.items() if key in known}
    before = run(cls(game(), solo_group(), ticks=37, **options))
    request.getfixturevalue("gpu")
    moved, flat = 0, DeviceInputs.flat

    def counted(seen: DeviceInputs) -> Any:
        nonlocal moved
        found = flat(seen)
        moved += found is not None
        return found

    monkeypatch.setattr(DeviceInputs, "flat", counted)
    after = run(cls(game(), solo_group(), ticks=37, **options))
    assert (moved > 3) == (name not in ("mappo", "hppo"))  # these combine their inputs in memory
    assert all_equal(after.state_dict(), before.state_dict())
    assert all_equal(after.worker_state_dict(), before.worker_state_dict())


def test_units_on_a_device_give_the_same_bits(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    policies = {
        "learner": {"algorithm": "ppo", "options": {"n_steps": 10, "minibatch_size": 32, "transformer": {}}},
        "random": {"algorithm": "random"},
    }
    for more in ({}, {"pipeline": 2}):
        config = one_match(SKIRMISH, policies, ticks=45, match={"lanes": 4, **more}, checkpoint_every=25)
        with pytest.MonkeyPatch.context() as patch:
            before = play(config, tmp_path)
            patch.setattr(devices, "GPUS", ("cpu",))
            patch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
            after = play(config, tmp_path)  # the second leg begins in the middle of a rollout
        keys = ("policy_loss", "value_loss", "approx_kl", "units")
        assert len(after.updates) == 4
        assert [[one[key] for key in keys] for one in after.updates] == [
            [one[key] for key in keys] for one in before.updates
        ]


def test_bytes_are_moved_as_bytes_and_only_once() -> None:
    """On `meta`, which has shapes and no memory."""
    seen, image = DeviceInputs(2, 3, torch.device("meta")), torch.zeros(3, 84, 84, 4, dtype=torch.uint8)
    units = RaggedTensor(torch.zeros(4, 2), np.array([1, 0, 3]))
    first = seen.put(0, slice(None), [image, units])[0]
    assert (first.device.type, first.dtype, first.shape) == ("meta", torch.uint8, image.shape)
    assert seen.flat() is None  # the second tick is missing
    seen.put(0, slice(None), [image, units])
    for rows in (slice(1, 3), slice(0, 1)):  # two blocks, in any order
        seen.put(1, rows, [image[rows], units[rows]])
    whole, all_units = seen.flat()  # type: ignore[misc]
    assert (whole.shape, whole.dtype) == ((6, 84, 84, 4), torch.uint8)
    assert all_units.lengths.tolist() == [1, 0, 3, 1, 0, 3]
    assert seen.put(0, np.array([2]), [image[:1]])[0].device.type == "meta"
    assert seen.flat() is None


# -------------------------------------------------------------------------------------------------- separate devices


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (PPO, {"normalize_observations": True}),
        (PPO, {"recurrent": "lstm", "sequence_length": 4}),
        (A2C, {}),
        (MAPPO, {}),
        (HPPO, {"option_ticks": 3}),
    ],
)
def test_separate_devices_give_the_bits_of_one(cls: Any, options: dict[str, Any]) -> None:
    known = cls.Options.__struct_fields__
    options = {key: value for key, value in {**SMALL, **options}.items() if key in known}

    def work(group: ThreadGroup, device: Any) -> Any:
        game = env(lanes=1 + group.rank, seed=group.rank)
        algorithm = cls(game, group, ticks=37, **options, device=device)
        acting, chosen, act = set(), algorithm.network, algorithm.act
        algorithm.act = lambda *given: (acting.add(algorithm.network is chosen), act(*given))[1]
        before = flat_weights(algorithm.network)
        run(algorithm)
        assert algorithm.network is chosen
        assert acting == {not (algorithm.separate_devices and group.is_root)}  # rank 0 acts with another copy
        return before, algorithm.state_dict(), algorithm.worker_state_dict(), flat_weights(algorithm.network)

    one = together(3, lambda group: work(group, "cpu"), sync="samples")
    two = together(3, lambda group: work(group, SEPARATE), sync="samples")
    assert not np.array_equal(one[0][0], one[0][-1])
    assert all_equal(two, one)


def test_separate_devices_without_a_barrier(tmp_path: Path) -> None:
    options = {"n_steps": 5, "minibatch_size": 16, "device": {"act": "cpu", "learn": "cpu"}}
    learner = {"algorithm": "ppo", "sync": "samples", "max_lag": 2, "options": options}
    game = {"make": "gymnasium:CartPole-v1"}
    played = play(one_match(game, {"learner": learner}, ticks=60, match={"lanes": 2, "copies": 3}), tmp_path)
    assert len(played.updates) >= 8
    assert max(one["lag_max"] for one in played.updates) > 0


# ----------------------------------------------------------------------------------------------------- recorded calls


def test_recorded_function_distinguishes_shapes_and_stops_at_four(gpu: Replays) -> None:
    calls = []

    def doubled(given: Columns) -> Tensor:
        calls.append(given.size)
        return 2 * given.observations[0]

    recorded = Recorded(doubled)
    for size in (1, 2, 3, 4, 5, 2):
        for turn in (1.0, 2.0):
            assert recorded(Columns((torch.full((size,), turn),), None)).tolist() == [2 * turn] * size
    assert (gpu.recorded, gpu.replayed) == (4, 10)
    assert calls.count(5) == 2  # not recorded


@pytest.mark.parametrize("cls", [PPO, A2C, MAPPO, ByLoss])
def test_cuda_graphs_give_the_bits_of_calls(gpu: Replays, cls: Any) -> None:
    options = {key: value for key, value in SMALL.items() if key in cls.Options.__struct_fields__}
    found = []
    for graphs in (False, True):
        algorithm = run(cls(env(IMAGE), solo_group(), ticks=37, **options, **as_gpu(cuda_graphs=graphs)))
        found.append((algorithm.state_dict(), algorithm.worker_state_dict()))
        assert (gpu.replayed > 37) == graphs
    assert all_equal(*found)
    assert gpu.recorded == 2  # of acting, and of the gradient
    assert gpu.devices == {torch.device("cpu")}


def test_recording_is_made_on_the_device_of_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[torch.device] = []

    def record(call: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], Any]:
        given.append(device)
        return lambda: None, call()

    monkeypatch.setattr(Recorded, "record", staticmethod(record))
    Recorded(lambda columns: columns.observations[0])(Columns((torch.zeros(2, device="meta"),), None))
    assert given == [torch.device("meta")]


# ---------------------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("cls", "space", "actions", "options"),
    [
        (PPO, IMAGE, CHOICE, {}),
        (PPO, spaces.Box(0, 255, (3, 40, 40), np.uint8), NUMBERS, {}),
        (PPO, spaces.Dict(a=IMAGE, b=VECTOR, c=spaces.Discrete(3)), CHOICE, {}),
        (PPO, VECTOR, CHOICE, {"recurrent": "gru", "sequence_length": 4}),
        (PPO, VECTOR, CHOICE, {"recurrent": "lstm", "sequence_length": 4}),
        (A2C, VECTOR, NUMBERS, {}),
        (MAPPO, IMAGE, CHOICE, {}),
        (HPPO, IMAGE, CHOICE, {"option_ticks": 3}),
    ],
)
def test_bf16_learns_nearly_what_float32_learns(
    gpu: Replays, cls: Any, space: Any, actions: Any, options: dict[str, Any]
) -> None:
    options = {key: value for key, value in {**SMALL, **options}.items() if key in cls.Options.__struct_fields__}
    moved = {}
    for precision in ("float32", "bf16"):
        game = env(space, actions, ticks=9, lanes=4)
        algorithm = cls(game, solo_group(), ticks=9, **options, **as_gpu(precision=precision))
        before = flat_weights(algorithm.network)
        run(algorithm)
        assert not torch.is_autocast_enabled("cpu")
        assert {weight.dtype for weight in algorithm.network.parameters()} == {torch.float32}
        moved[precision] = flat_weights(algorithm.network) - before
    exact, reduced = moved.values()
    assert not np.array_equal(exact, reduced)
    assert np.dot(exact, reduced) > 0.8 * np.linalg.norm(exact) * np.linalg.norm(reduced)


def test_bf16_of_units(tmp_path: Path, gpu: Replays) -> None:
    found = {}
    relative = {"position": ["x", "y"], "extent": [2, 2]}
    for transformer in ({}, {"relative": relative}):
        for precision in ("float32", "bf16"):
            options = {"n_steps": 10, "minibatch_size": 16, "n_epochs": 1, "transformer": transformer}
            policies = {
                "learner": {"algorithm": "ppo", "options": {**options, **as_gpu(precision=precision)}},
                "random": {"algorithm": "random"},
            }
            played = play(one_match(SKIRMISH, policies, ticks=10, match={"lanes": 4}), tmp_path)
            found[precision] = played.updates[-1]
        assert found["bf16"]["approx_kl"] != found["float32"]["approx_kl"]
        assert found["bf16"]["entropy"] == pytest.approx(found["float32"]["entropy"], rel=0.02)


# ----------------------------------------------------------------------------------------------- settings and refusals


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """torch says that there are two GPUs; the settings of torch are collected, not made."""
    settings: dict[str, Any] = {"deterministic": False}
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.cuda, "enable_mem_efficient_sdp", lambda _: None)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: settings["deterministic"])

    def deterministic(on: bool, *, warn_only: bool) -> None:
        settings["deterministic"] = on

    monkeypatch.setattr(torch, "use_deterministic_algorithms", deterministic)
    for name in ("allow_tf32", "benchmark"):
        monkeypatch.setattr(torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))
    return settings


def test_a_gpu_is_exact_and_one_policy_makes_its_process_deterministic(two_cards: dict[str, Any]) -> None:
    torch.backends.cudnn.allow_tf32 = True
    assert device_of("cuda:1", deterministic=False) == torch.device("cuda", 1)
    assert not two_cards["deterministic"]
    assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    device_of("cuda")
    assert two_cards["deterministic"]
    assert not torch.backends.cudnn.benchmark
    device_of("cuda", deterministic=False)
    assert not torch.backends.cudnn.benchmark  # the other policy's runs repeat
    with pytest.raises(ConfigError, match=r"got 'cuda:2', expected cuda:1 at most: torch finds 2 CUDA devices"):
        device_of("cuda:2")


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("ppo", {"precision": "bf16"}, r"options\.precision: .* no effect where device is cpu"),
        ("ppo", {"deterministic": False}, r"options\.deterministic: .* no effect where device is cpu"),
        ("sac", {"deterministic": False}, r"options\.deterministic: .* no effect where device is cpu"),
        ("a2c", {"cuda_graphs": True}, r"options\.cuda_graphs: .* no effect where device is cpu"),
        ("ppo", {"device": {"learn": "cpu"}, "precision": "bf16"}, r"options\.precision: .* where device is cpu"),
        ("ppo", {"device": "auto", "cuda_graphs": True, "recurrent": "gru"}, "the lengths of sequences vary"),
        ("hppo", {"device": "auto", "cuda_graphs": True}, "the manager's decisions varies"),
        ("ppo", {"device": "auto", "precision": "tf32"}, "known: bf16, float32"),
        ("ppo", {"device": "gpu"}, "known: auto, cpu, cuda"),
        ("ppo", {"device": {"act": "gpu"}}, r"options\.device\.act: .*known: auto, cpu, cuda"),
        ("ppo", {"device": {"acts": "cpu"}}, r"options\.device\.acts: unknown key 'acts'; did you mean 'act'"),
        ("ppo", {"device": {"act": "cuda"}}, "torch finds no CUDA device on this machine"),
        ("dqn", {"device": {"act": "cpu", "learn": "cpu"}}, r"options\.device: found"),
    ],
)
def test_options_of_devices_are_refused(algorithm: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured_algorithm(algorithm, options, acts=False, path="policies.blue")
    assert caught.match(message)


@pytest.mark.parametrize(
    ("sync", "device", "message"),
    [
        ("gradients", {"act": "cpu", "learn": "cpu"}, "expected `sync: samples` in the policy"),
        ("samples", {"act": "cpu", "learn": "cuda"}, "torch finds no CUDA device on this machine"),
        ("samples", {"act": "cuda", "learn": "cpu"}, "torch finds no CUDA device on this machine"),
        ("samples", "cuda:1", "torch finds no CUDA device on this machine"),
    ],
)
def test_check_refuses_devices_with_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sync: str, device: Any, message: str
) -> None:
    policy = {"algorithm": "ppo", "sync": sync, "options": {"device": device}}
    config = one_match({"make": "gymnasium:CartPole-v1"}, {"blue": policy}, ticks=4096, name="refused")
    (tmp_path / "refused.yaml").write_text(yaml.safe_dump(config))
    assert main(["check", str(tmp_path / "refused.yaml")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "policies.blue" in error
    assert "options.device" in error


def test_options_of_a_gpu_that_only_acts_are_taken() -> None:
    assert PPO.Options(device=Devices(act="cuda", learn="cpu"), precision="bf16", cuda_graphs=True).cuda_graphs


def test_frozen_policies_act_where_their_workers_acted() -> None:
    given = {"precision": "bf16", "deterministic": False, "cuda_graphs": True}

    def options(device: Any) -> Any:
        found = configured_algorithm(
            "ppo", {**given, "device": device}, acts=True, path="policies.blue", any_device=True
        )
        return found.options["device"], "precision" in found.options

    assert options("cuda:3") == ("auto", True)
    assert options({"act": "cpu", "learn": "cuda"}) == ("cpu", False)
    assert options({"act": "cuda:1", "learn": "cuda"}) == ("auto", False)
