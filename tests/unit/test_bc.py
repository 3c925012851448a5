"""Behavior cloning: the loss by formula, groups against one worker, and a rule that is imitated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena import registry
from arena.dataset.reader import open_dataset
from arena.errors import ConfigError
from fakes import ACTIONS, ScriptedEnv, ThreadGroup, flat_weights, solo_group, together
from learning_steps import run
from policies.bc import BehaviorCloning
from policies.common.columns import to_leaves
from policies.networks.heads import action_head
from policies.offline.demonstrations import demonstrations
from recorded_samples import record

SEEN = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4, start=2)
RULE = np.array([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0], [-1.5, 0.2, 1.0], [0.1, 0.1, -0.7]])
SMALL = {"train_every": 5, "gradient_steps": 3, "batch_size": 8, "hidden_sizes": (8,)}


def rule(observations: Any) -> Any:
    """Always the same choice for the same observation."""
    return CHOICE.start + (observations @ RULE.T).argmax(axis=1)


def drawn(space: Any) -> Any:
    """Random actions."""
    batched = batch_space(space, 4)
    batched.seed(1)
    return lambda observations: batched.sample()


def worker(data: Path, action_space: Any = CHOICE, group: ThreadGroup | None = None, **options: Any) -> Any:
    env = ScriptedEnv(SEEN, action_space, ticks=options.pop("ticks", 40))
    return BehaviorCloning(env, group or solo_group(), ticks=env.ticks, **{**SMALL, "data": str(data), **options})


def trained(data: Path, group: ThreadGroup | None = None, **options: Any) -> Any:
    return run(worker(data, group=group, **options))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return record(tmp_path / "data", SEEN, CHOICE, rule, ticks=50)


@pytest.mark.parametrize("space", ACTIONS, ids=lambda space: type(space).__name__)
def test_the_loss_is_the_mean_negative_log_likelihood(space: Any, tmp_path: Path) -> None:
    bc = worker(record(tmp_path / "data", SEEN, space, drawn(space)), space)
    batch = bc.demonstrations()
    bc.optimizer.zero_grad()
    loss, likeness = bc.backward(batch).tolist()
    outputs = bc.network.actor(bc.network.encoder(batch.observations)).detach().double().numpy()
    actions = batch.actions.numpy()
    assert loss == pytest.approx(by_formula(space, outputs, actions), rel=1e-5)
    if isinstance(space, spaces.Box):
        assert likeness == pytest.approx(0.1 * np.abs(outputs - actions).mean(), rel=1e-5)  # in the game's unit
    elif isinstance(space, spaces.Discrete):
        assert likeness == pytest.approx((outputs.argmax(1) == actions).mean(), rel=1e-5)


def by_formula(space: Any, outputs: Any, actions: Any) -> float:
    if isinstance(space, spaces.Box):
        return float(np.mean((0.5 * (outputs - actions) ** 2 + 0.5 * np.log(2 * np.pi)).sum(1)))
    if isinstance(space, spaces.MultiBinary):
        p = 1 / (1 + np.exp(-outputs))
        return float(-np.mean(np.where(actions == 1, np.log(p), np.log(1 - p)).sum(1)))
    sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.ravel()
    parts = np.split(outputs, np.cumsum(sizes)[:-1], axis=1)
    chosen = actions.reshape(len(actions), -1)
    logs = [np.log(np.exp(part) / np.exp(part).sum(1, keepdims=True)) for part in parts]
    return float(-np.mean(sum(log[np.arange(len(log)), chosen[:, i]] for i, log in enumerate(logs))))


class Board:
    """Passes the root's weights to another worker without a barrier."""

    def __init__(self) -> None:
        self.published: list[Any] = []

    def publish(self, weights: Any) -> None:
        self.published.append(weights)

    def latest(self) -> Any:
        return self.published[-1] if self.published else None


def test_without_a_barrier_workers_load_the_roots_newest_weights(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meets(*_: Any) -> None:
        raise AssertionError("a collective")

    board, learners = Board(), []
    for rank in (0, 1):
        group = solo_group(sync="samples")
        group.rank, group.async_samples = rank, board
        for name in ("broadcast", "broadcast_object", "average_gradients", "check_equal"):
            monkeypatch.setattr(group, name, meets)
        learners.append(trained(data, group, check_every=1))
    first, other = learners
    assert [part["updates"] for part in board.published] == [*range(9)], "at the start, and after each update"
    assert (other.updates, other.gradient_steps) == (first.updates, first.gradient_steps) == (8, 24)
    np.testing.assert_array_equal(flat_weights(first.network), flat_weights(other.network))


def test_forbidden_actions_have_no_gradient(tmp_path: Path) -> None:
    def masks(tick: int) -> Any:
        return np.eye(4, dtype=np.int8)[[tick % 4] * 4] | np.eye(4, dtype=np.int8)[[0] * 4]

    home = record(tmp_path / "data", SEEN, CHOICE, lambda seen, mask: np.full(4, 3 + CHOICE.start), masks=masks)
    found = demonstrations(open_dataset(home), None, SEEN, action_head(CHOICE), CHOICE)
    assert found.size == 20, "every fourth tick"
    assert found.masks is not None
    assert found.masks[:, [0, 3]].all()
    assert not found.masks[:, [1, 2]].any()


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_with_shares_equal_one_worker_with_all_data(sync: str, data: Path) -> None:
    everything = {"batch_size": 200, "ticks": 20, "hidden_sizes": (8,)}
    one = flat_weights(trained(data, **everything).network)
    three = together(3, lambda group: trained(data, group, **everything), sync=sync)
    for each in three:
        np.testing.assert_allclose(flat_weights(each.network), one, atol=1e-6)
        assert each.gradient_steps == 12


@pytest.mark.parametrize("value", [np.nan, np.inf])  # the loss of what is infinite is finite, its gradient is not
def test_non_finite_data_stop_before_the_update(value: float, data: Path, tmp_path: Path) -> None:
    home = record(tmp_path / "spoilt", spaces.Box(-np.inf, np.inf, (3,), np.float32), CHOICE, rule)
    path = next(home.rglob("*.npz"))
    with np.load(path) as part:
        arrays = dict(part)
    arrays["0/observation/0"][3].flat[0] = value
    np.savez(path, **arrays)
    env = ScriptedEnv(spaces.Box(-np.inf, np.inf, (3,), np.float32), CHOICE)
    bc = BehaviorCloning(env, solo_group(), ticks=10, **{**SMALL, "data": str(home), "batch_size": 100})
    before = flat_weights(bc.network)
    with pytest.raises(FloatingPointError, match=r"policy 'blue': update 1 measured .*finite"):
        bc.run()
    assert np.array_equal(flat_weights(bc.network), before)


def test_frozen_policy_needs_no_data(data: Path, tmp_path: Path) -> None:
    state = trained(data).state_dict()
    bc = worker(tmp_path / "gone")
    bc.load_state_dict(state)
    assert bc.actor(greedy=True)(bc.env.observation_space.sample(), {}).shape == (4,)
    with pytest.raises(ConfigError, match="no recorded samples"):
        bc.run()


def test_log_prob_is_the_quantity_in_the_loss(data: Path) -> None:
    bc = trained(data)
    batch = bc.demonstrations()
    actions = bc.head.to_env(batch.actions.numpy())
    found = bc.log_prob(batch.observations[0].numpy(), actions, None)
    with torch.no_grad():
        expected = bc.network(to_leaves(SEEN, batch.observations[0].numpy())).log_prob(batch.actions)
    assert found.tolist() == expected.double().tolist()


def test_log_prob_of_deterministic_box_actions_is_refused(tmp_path: Path) -> None:
    space = spaces.Box(-0.1, 0.1, (2,), np.float64)
    bc = worker(record(tmp_path, SEEN, space, drawn(space)), space)
    with pytest.raises(ConfigError, match=r"^the policy plays the mean of its Gaussian in Box.* one of ppo or a2c"):
        bc.log_prob(np.zeros((4, 3), np.float32), np.zeros((4, 2)), None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "nowhere"}, r"options.data: \S*nowhere: no recorded samples"),
        ({"data": 3}, r"options.data: found 3: expected text"),
        ({"policy": "blu"}, r"options.policy: .*no samples of the policy 'blu'; did you mean 'blue'"),
        ({"train_every": 50}, r"options.train_every: an update every 50 ticks does not fit into a run of 40"),
        ({"batch_size": 0}, r"options.batch_size: found 0"),
        ({"device": "gpu"}, r"options.device: found 'gpu'"),
    ],
)
def test_mistakes_are_refused_before_play_begins(options: dict[str, Any], words: str, data: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        decoded = registry.decode_options(BehaviorCloning, {**SMALL, "data": str(data), **options}, path="")
        BehaviorCloning.sizes(decoded, rows=4, ticks=40, workers=2)


def test_data_of_other_spaces_are_refused_at_construction(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"options.data: .*samples of blue, but not with the spaces of this seat"):
        worker(data, spaces.Discrete(3))
    record(data, spaces.Discrete(9), CHOICE, lambda seen: np.full(4, 2), match=1, policy="blue")
    with pytest.raises(ConfigError, match="not with the spaces of this seat"):
        worker(data, policy="blue")
    assert worker(data).demonstrations().size == 200, "of those who saw the same"
