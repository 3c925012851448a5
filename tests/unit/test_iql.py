"""IQL: its losses against loops, a game of one state whose values are known, recorded transitions, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena import registry
from arena.dataset import open_dataset
from arena.dataset.score import normalized_score
from arena.errors import ConfigError
from fakes import ScriptedEnv, solo_group
from learning_steps import run
from minibatches import assert_gradients, disturb
from policies.common.replay import Transitions
from policies.iql import IQL
from policies.networks.heads import action_head
from policies.offline.transitions import recorded_transitions
from recorded_samples import record

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4, start=-1)
NUMBERS = spaces.Box(-0.5, 2.0, (2,), np.float32)
SMALL: dict[str, Any] = {"hidden_sizes": (16, 16), "batch_size": 64, "train_every": 1}


def recorded(folder: Path, actions: spaces.Space[Any], *, ticks: int = 60, length: int = 5, **more: Any) -> str:
    drawn = spaces.Tuple([actions] * 4)
    drawn.seed(3)
    return str(record(folder, VECTOR, actions, lambda _: np.stack(drawn.sample()), ticks=ticks, length=length, **more))


def worker(data: str, actions: spaces.Space[Any], *, ticks: int = 60, **options: Any) -> IQL:
    env = ScriptedEnv(VECTOR, actions, ticks=ticks)
    return IQL(env, solo_group(), ticks=ticks, data=data, **{**SMALL, **options})


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("actions", [CHOICE, NUMBERS], ids=["choices", "numbers"])
def test_gradients_are_those_of_equations_5_to_7(actions: Any, masked: bool, tmp_path: Path) -> None:
    choices = actions is CHOICE
    learner = worker(recorded(tmp_path / "data", actions), actions, expectile=0.8, temperature=2.0, gamma=0.9)
    network, target, draw = learner.network, learner.target, torch.Generator().manual_seed(1)
    disturb(network, target)
    count = 40
    acted = torch.randint(0, 4, (count,), generator=draw) if choices else torch.randn(count, 2, generator=draw)
    masks = None
    if masked and choices:
        masks = torch.rand(count, 4, generator=draw) < 0.5
        masks[torch.arange(count), acted] = True
    before, after = torch.randn(2, count, 3, generator=draw)
    rewards, discounts = torch.randn(count, generator=draw), torch.tensor([0.9, 0.0]).repeat(count // 2)
    batch = Transitions((before,), masks, acted, rewards, (after,), None, discounts, torch.ones(count), acted)
    policy_loss = value_loss = critic_loss = torch.zeros(())
    for i in range(count):
        seen, then = before[i : i + 1], after[i : i + 1]

        def q(critics: Any, k: int) -> Any:
            if choices:
                return critics.members[k](seen)[0, acted[i]]  # noqa: B023
            return critics.members[k](torch.cat([seen, acted[i : i + 1]], 1))[0, 0]  # noqa: B023

        known, value = min(q(target, 0), q(target, 1)).detach(), network.of_state(seen)[0, 0]
        surplus = known - value
        value_loss = value_loss + (0.8 if surplus > 0 else 0.2) * surplus**2 / count
        wanted = (rewards[i] + discounts[i] * network.of_state(then)[0, 0]).detach()
        critic_loss = critic_loss + sum((q(network.critics, k) - wanted) ** 2 for k in range(2)) / count
        outputs = network.actor(seen)[0]
        if choices:
            allowed = torch.ones(4, dtype=torch.bool) if masks is None else masks[i]
            log_prob = outputs[acted[i]] - outputs[allowed].logsumexp(0)
        else:
            log_prob = torch.distributions.Normal(outputs, network.head.log_std.exp()).log_prob(acted[i]).sum()
        policy_loss = policy_loss - min(float(torch.exp(2.0 * surplus.detach())), 100.0) * log_prob / count
    parts = [(network.actor, policy_loss), (network.critics, critic_loss), (network.of_state, value_loss)]
    expected = [torch.autograd.grad(loss, list(part.parameters())) for part, loss in parts]
    learner.optimizer.zero_grad()
    found = learner.backward(batch).tolist()
    for (part, _), gradients in zip(parts, expected, strict=True):
        assert_gradients(part, gradients)
    assert found[:3] == pytest.approx([loss.item() for loss in (policy_loss, value_loss, critic_loss)], rel=1e-4)


@pytest.mark.slow
def test_values_and_policy_of_a_game_of_one_state_are_known(tmp_path: Path) -> None:
    """Q is the reward, V its expectile, and the policy the recorded one times exp(temperature Q)."""
    paid = np.array([0.0, 0.5, 1.0, 2.0])
    data = recorded(tmp_path / "data", CHOICE, ticks=200, length=1, reward=lambda _, actions: paid[actions + 1])
    rates: Any = {"learning_rate": ((0.0, 3e-3), (0.5, 3e-3), (1.0, 0.0)), "tau": 0.05}
    learner = run(worker(data, CHOICE, ticks=60, gradient_steps=50, expectile=0.9, temperature=0.7, **rates))
    shares = np.bincount(open_dataset(data).batch("blue")["actions"] + 1, minlength=4) / 800
    tried = np.linspace(0, 2, 2001)  # the expectile has the least loss of all values
    surplus = paid - tried[:, None]
    expectile = tried[(shares * np.where(surplus > 0, 0.9, 0.1) * surplus**2).sum(1).argmin()]
    policy = shares * np.exp(0.7 * paid)
    seen = [torch.rand(200, 3, generator=torch.Generator().manual_seed(2)) * 1.6 - 0.8]
    with torch.no_grad():
        values = learner.network.critics(learner.network.critics.encoder(seen)).mean(1)
        state = float(learner.network.of_state(seen[0]).mean())
        found = learner.network(seen).logits.softmax(1).mean(0)
    np.testing.assert_allclose(values.numpy(), np.stack([paid, paid]), atol=0.1)
    assert state == pytest.approx(expectile, abs=0.1)
    np.testing.assert_allclose(found.numpy(), policy / policy.sum(), atol=0.06)


@pytest.mark.parametrize("shares", [1, 3])
def test_transitions_are_those_of_the_columns(shares: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    data = recorded(tmp_path / "data", CHOICE, ticks=33, reward=lambda seen, _: rng.normal(size=len(seen)))
    samples, head = open_dataset(data), action_head(CHOICE)
    columns = samples.batch("blue", cut=True)
    parts = [
        recorded_transitions(samples, "blue", VECTOR, head, CHOICE, gamma=0.9, share=share, shares=shares)
        for share in range(shares)
    ]
    for share, part in enumerate(parts):
        mine = slice(share, None, shares)
        np.testing.assert_array_equal(part.observations[0], columns["obs"][mine])
        np.testing.assert_array_equal(part.next_observations[0], columns["new_obs"][mine])
        np.testing.assert_array_equal(part.actions, columns["actions"][mine] + 1)
        np.testing.assert_allclose(part.rewards, columns["rewards"][mine], rtol=1e-6)
        np.testing.assert_allclose(part.discounts, 0.9 * ~columns["terminateds"][mine], rtol=1e-6)
    assert sum(part.size for part in parts) == len(columns)


def test_missing_data_and_spaces_without_critics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the option 'data'"):
        registry.configured_algorithm("iql", {}, acts=False, path="policies.blue")
    with pytest.raises(ConfigError, match="no recorded samples here"):
        IQL.sizes({"data": str(tmp_path)}, rows=1, ticks=1000, workers=1)
    for actions in (spaces.MultiDiscrete([2, 3]), spaces.Dict(a=NUMBERS, b=spaces.Discrete(2))):
        with pytest.raises(ConfigError, match=r"a Box of floats.*bc takes choices of several parts; ppo and a2c take"):
            IQL.check(VECTOR, actions)
    for options, words in (({"expectile": 1.0}, "less than 1"), ({"extra_loss": "x:Y"}, "or take bc")):
        with pytest.raises(ConfigError, match=words):
            registry.decode_options(IQL, {"data": "x", **options}, path="policies.blue")


def test_log_prob_of_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^the policy plays the mean of its Gaussian in Box"):
        worker(recorded(tmp_path, NUMBERS), NUMBERS).log_prob(np.zeros((4, 3), np.float32), np.zeros((4, 2)), None)


def test_normalized_score_is_0_for_random_actions_and_100_for_the_expert() -> None:
    assert [normalized_score(value, random=20, expert=220) for value in (20, 120, 220, 240)] == [0, 50, 100, 110]
    with pytest.raises(ConfigError, match="has to be above"):
        normalized_score(1.0, random=2, expert=2)
