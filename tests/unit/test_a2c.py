"""A2C: the maths against slow formulas, one step per rollout, groups against one worker, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena.errors import ConfigError
from fakes import ScriptedEnv, ThreadGroup, solo_group
from learning_steps import learn
from policies.a2c import A2C
from policies.common.columns import to_leaves
from policies.common.rollout import Batch
from policies.impala import IMPALA

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {"n_steps": 6, "hidden_sizes": (8,)}
WEIGHTED = {"vf_coef": 0.7, "ent_coef": 0.3}


def worker(env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> A2C:
    return A2C(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


# ------------------------------------------------------------------------------------------------------- the maths


def random_batch(a2c: A2C, *, count: int = 50, masked: bool = False) -> Batch:
    """Transitions with random advantages and returns."""
    draw = torch.Generator().manual_seed(3)
    space = batch_space(a2c.env.single_observation_space, count)
    space.seed(4)
    leaves = to_leaves(a2c.env.single_observation_space, space.sample())
    mask = torch.rand(count, a2c.head.mask_size, generator=draw) < 0.7 if masked else None
    with torch.no_grad():
        for weight in a2c.network.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
        policy, values = a2c.network.policy_and_value(leaves, mask)
        actions = policy.sample(a2c.head.noise(1, count, draw)[0])
        advantages, returns = torch.randn(2, count, generator=draw)
        return Batch(tuple(leaves), mask, actions, policy.log_prob(actions), values, advantages, returns)


def test_metrics_are_the_terms_of_the_papers_loss() -> None:
    a2c = worker(ScriptedEnv(VECTOR, CHOICE), **WEIGHTED)
    batch = random_batch(a2c)
    measured = a2c.backward(batch)
    with torch.no_grad():
        policy, values = a2c.network.policy_and_value(batch.observations)
    probs, total = torch.softmax(policy.logits.double(), -1).numpy(), np.zeros(3)
    for i in range(batch.size):
        total += (
            -np.log(probs[i, batch.actions[i]]) * float(batch.advantages[i]),
            (float(values[i]) - float(batch.returns[i])) ** 2,
            -sum(probs[i] * np.log(probs[i])),
        )
    np.testing.assert_allclose(measured.numpy(), total / batch.size, rtol=1e-4, atol=1e-5)


def test_advantages_are_normalized_only_if_configured() -> None:
    rates = {"learning_rate": 1.0, "max_grad_norm": None, "vf_coef": 0.0}
    plain, normalized = (
        worker(ScriptedEnv(VECTOR, CHOICE), normalize_advantage=normalized, **rates) for normalized in (False, True)
    )
    batch = random_batch(plain).replace(advantages=torch.full((50,), 5.0) + torch.arange(50) % 2)
    found = [learn(a2c, batch)["policy_loss"] for a2c in (plain, normalized)]
    with torch.no_grad():
        log_probs = worker(ScriptedEnv(VECTOR, CHOICE)).network.policy(batch.observations).log_prob(batch.actions)
    assert found[1] == pytest.approx(float(-(log_probs * (batch.advantages - 5.5) / 0.5).mean()), abs=1e-4)
    assert found[0] > 4


# ------------------------------------------------------------------------------------------------- state, options


def test_ppo_only_options_are_refused() -> None:
    with pytest.raises(TypeError, match="clip_range"):
        A2C.Options(clip_range=0.2)


@pytest.mark.parametrize("kind", [A2C, IMPALA])
def test_whole_episodes_of_older_weights_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r'expected "truncate_episodes".*take ppo') as caught:
        kind.Options(batch_mode="complete_episodes")
    assert caught.value.path == "options.batch_mode"
