"""Rollouts of workers with few rows: what a worker plays does not depend on the workers that it plays with."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import BudgetReached
from fakes import ScriptedEnv, solo_group
from policies.a2c import A2C
from policies.common.joint_rollouts import ActorStack, RolloutWorker, collect_together
from policies.common.on_policy import collect
from policies.mappo import MAPPO
from policies.networks.actor_critic import mlp
from policies.ppo import PPO

VECTOR = spaces.Box(-1, 1, (3,))
CHOICE = spaces.Discrete(4, start=2)


class AsyncEnv(ScriptedEnv):
    """A `ScriptedEnv` that is stepped in two calls, as the arena's."""

    masked = False

    def step_async(self, actions: Any) -> None:
        if self.tick >= self.ticks:
            raise BudgetReached
        self.sent = actions

    def step_views(self) -> Any:
        return self.step(self.sent)


def perceptron(rows: int, layers: Any) -> Any:
    """A worker, as far as its actor is concerned."""
    return SimpleNamespace(rollout=SimpleNamespace(rows=rows), activation=layers.activation, layers=layers.arrays)


@given(
    data=st.data(),
    rows=st.lists(st.integers(1, 16), min_size=2, max_size=6),
    sizes=st.lists(st.integers(1, 95), min_size=2, max_size=5),
    activation=st.sampled_from(["tanh", "relu"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_workers_rows_have_the_same_bits_in_any_company(
    data: st.DataObject, rows: list[int], sizes: list[int], activation: str, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs, *hidden, outputs = sizes
    networks = [
        mlp(inputs, outputs, hidden_sizes=hidden, activation=activation, gain=1.0, generator=generator) for _ in rows
    ]
    for network in networks:
        for parameter in network.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    seen = [torch.randn(count, inputs, generator=generator).numpy() * 3 for count in rows]
    workers = list(map(perceptron, rows, networks))
    alone = [ActorStack([worker])([batch]).copy() for worker, batch in zip(workers, seen, strict=True)]
    company = data.draw(st.permutations(range(len(rows))))[: data.draw(st.integers(1, len(rows)))]
    together = ActorStack([workers[number] for number in company])
    found = together([seen[number] for number in company])
    for number, place in zip(company, together.places, strict=True):
        assert found[place].tobytes() == alone[number].tobytes()
        expected = networks[number](torch.from_numpy(seen[number])).detach()
        torch.testing.assert_close(torch.from_numpy(found[place]), expected, atol=2e-5, rtol=2e-5)


def test_the_number_of_threads_of_numpys_library_changes_no_bit() -> None:
    program = """if True:
        import hashlib, numpy as np
        from policies.common.joint_rollouts import _MOST_ROWS, _MOST_WEIGHTS
        rng, digest = np.random.default_rng(0), hashlib.sha256()
        for rows in (1, 2, _MOST_ROWS):
            for inputs in (1, 7, 64, 95, 300, _MOST_WEIGHTS):
                outputs = _MOST_WEIGHTS // inputs
                weights = rng.normal(size=(outputs, inputs)).astype(np.float32)
                batch, found = rng.normal(size=(rows, inputs)).astype(np.float32), np.empty((rows, outputs), np.float32)
                digest.update(np.dot(batch, weights.T, out=found).tobytes())
        print(digest.hexdigest())
    """
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        ).stdout
        for threads in ("1", "2", "7")
    }
    assert len(found) == 1 and len(found.pop()) == 65


def worker(
    seed: int, kind: type[Any] = PPO, *, rows: int = 1, ticks: int = 60, actions: Any = CHOICE, **more: Any
) -> Any:
    env = AsyncEnv(more.pop("space", VECTOR), actions, rows=rows, ticks=ticks, length=3 + seed, seed=seed)
    if "masks" in more:
        env._masks, env.masked = more.pop("masks"), True
    env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
    group = solo_group(seed=seed)
    made = kind(env, group, ticks=60, **{"hidden_sizes": (8, 6), "n_steps": 20, **more})
    for parameter in made.network.parameters():
        parameter.data += 0.5
    made.rollout.begin(*env.reset())
    return made


def played(made: Any, how: str, others: Any = ()) -> dict[str, Any]:
    """The rollout of a worker, which it collects by torch, by NumPy, or by NumPy with others."""
    noise = made.draw_noise(made.rollout.ticks)
    try:
        if how == "torch":
            collect(made.env, made.head, made.rollout, made.act, noise)
        else:
            few = RolloutWorker.of(made, PPO, noise)
            assert few is not None
            company = [RolloutWorker.of(other, PPO, other.draw_noise(other.rollout.ticks)) for other in others]
            collect_together([*company[:1], few, *company[1:]])
            if few.over is not None:
                raise few.over
    except BudgetReached:
        pass
    return made.rollout.state_dict()


def mask(tick: int) -> Any:
    return np.array([[1, tick % 2, 0, 1]], np.int8)


CASES: dict[str, dict[str, Any]] = {
    "choice": {},
    "one worker of several rows": {"rows": 3},
    "choices": {"actions": spaces.MultiDiscrete([2, 3])},
    "flags": {"actions": spaces.MultiBinary(3)},
    "numbers": {"actions": spaces.Box(-1, 2, (2,))},
    "masks": {"masks": mask},
    "one-hot": {"space": spaces.Discrete(5)},
    "several leaves": {"space": spaces.Dict({"a": VECTOR, "b": spaces.MultiDiscrete([3, 2])})},
    "normalized": {"normalize_observations": True},
    "relu": {"activation": "relu"},
    "a2c": {"kind": A2C},
    "mappo": {"kind": MAPPO, "rows": 2},
    "the match ends early": {"ticks": 12},
}


@pytest.mark.parametrize("case", CASES)
def test_workers_that_collect_together_collect_as_alone(case: str) -> None:
    options = CASES[case]
    torchs, alone = (played(worker(0, **options), how) for how in ("torch", "numpy"))
    others = [worker(1, **{**options, "ticks": 60}), worker(2, **{**options, "ticks": 60})]
    together = played(worker(0, **options), "numpy", others)
    assert together.keys() == alone.keys()
    for name in ("actions", "rewards", "terminated", "truncated", "active"):
        assert together[name].tobytes() == alone[name].tobytes()
    for found, expected in zip(together["leaves"], alone["leaves"], strict=True):
        assert found.tobytes() == expected.tobytes()
    assert len(alone["actions"]) == min(options.get("ticks", 60), 20)
    assert all(len(other.rollout.state_dict()["actions"]) == 20 for other in others)
    np.testing.assert_allclose(alone["actions"], torchs["actions"], atol=1e-5)
    assert len(np.unique(alone["actions"])) > 1


@pytest.mark.parametrize(
    "options",
    [
        {"recurrent": "gru"},
        {"space": spaces.Box(0, 255, (8, 8, 1), np.uint8)},
        {"hidden_sizes": (96, 96)},
        {"rows": 17},
        {"kind": type("Acts", (PPO,), {"act": lambda self, *given: PPO.act(self, *given)})},
    ],
    ids=["memory", "picture", "many weights", "many rows", "acts in its own way"],
)
def test_other_workers_collect_by_torch(options: dict[str, Any]) -> None:
    made = worker(0, **options)
    assert RolloutWorker.of(made, PPO, made.draw_noise(20)) is None
