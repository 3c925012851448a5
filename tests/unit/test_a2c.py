"""A2C: the maths against slow formulas, one step per rollout, groups against one worker, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena.errors import ConfigError
from fakes import ScriptedEnv, ThreadGroup, solo_group, together
from learning_steps import learn
from policies.a2c import A2C
from policies.common.columns import to_leaves
from policies.common.on_policy import collect
from policies.common.rollout import Batch, Evaluation
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


# --------------------------------------------------------------------------- one exchange per update, values alone


@pytest.mark.parametrize("normalized", [False, True])
def test_moments_of_a_group_travel_with_its_gradient(normalized: bool) -> None:
    sizes = (50, 0, 20)
    offset = 100.0  # of returns and values: what is explained must survive the cancellation

    def work(group: ThreadGroup) -> tuple[dict[str, float], list[str], Batch]:
        a2c = worker(ScriptedEnv(VECTOR, CHOICE), group, normalize_advantage=normalized)
        batch = random_batch(a2c)
        batch = batch.replace(values=batch.values + offset, returns=batch.returns + offset)
        batch = batch.take(torch.arange(sizes[group.rank]))
        return dict(a2c.learn_from(batch)), group.called, batch

    found = together(len(sizes), work)
    returns, errors = (
        np.concatenate([of(batch).double().numpy() for _, _, batch in found])
        for of in (lambda batch: batch.returns, lambda batch: batch.returns - batch.values)
    )
    for metrics, called, _ in found:
        assert called == (["moments", "average"] if normalized else ["average"])
        assert metrics["explained_variance"] == pytest.approx(1 - errors.var() / returns.var(), abs=1e-9)
        assert set(metrics) == {*A2C.metric_names, "explained_variance"}


def test_nothing_is_explained_of_equal_returns_and_nothing_is_learned_of_none() -> None:
    a2c = worker(ScriptedEnv(VECTOR, CHOICE))
    batch = random_batch(a2c)
    equal = batch.replace(returns=torch.full((50,), 0.1))
    assert np.isnan(a2c.learn_from(equal)["explained_variance"])
    before = a2c.optimizer.vector.clone()
    assert a2c.learn_from(batch.take(torch.arange(0))) == {}
    assert torch.equal(a2c.optimizer.vector, before)  # Adam's mean of the step before moves nothing


def test_log_probabilities_are_computed_where_a_loss_may_read_them() -> None:
    class OwnLoss(A2C):
        def losses(self, network: Any, batch: Batch) -> torch.Tensor:
            return super().losses(network, batch) + batch.log_probs.exp()

    class OwnBackward(A2C):
        def backward(self, batch: Batch) -> torch.Tensor:
            return super().backward(batch)

    class OwnEvaluation(A2C):
        def evaluate(self) -> Evaluation:
            return super().evaluate()

    def in_turns(tick: int) -> Any:
        return np.arange(4) % 2 == tick % 2

    cases: list[tuple[type[A2C], Any]] = [(A2C, None), (A2C, in_turns)]
    cases += [(kind, None) for kind in (OwnLoss, OwnBackward, OwnEvaluation)]
    for kind, active in cases:
        env = ScriptedEnv(VECTOR, CHOICE, active=active)
        a2c = kind(env, solo_group(), ticks=env.ticks, **SMALL)
        a2c.rollout.begin(*env.reset())
        collect(env, a2c.head, a2c.rollout, a2c.act, a2c.draw_noise(6))
        batch, _, played, last, finals = a2c.evaluate()
        with torch.no_grad():
            policy, values = a2c.network.policy_and_value(batch.observations)
            others = a2c.network.value(last), a2c.network.value(finals)
        cut = played.final_values[played.truncated & ~played.terminated]
        assert len(cut) == 4  # one episode of each row ends
        for found, expected in zip((batch.values.numpy(), played.last_values, cut), (values, *others), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
        read = (kind, active) != (A2C, None)  # in turns by a resumed run, which may have another loss
        assert torch.equal(batch.log_probs, policy.log_prob(batch.actions)) is read
        assert torch.isnan(batch.log_probs).any() == torch.isnan(batch.log_probs).all() == (not read)


# ------------------------------------------------------------------------------------------------- state, options


def test_ppo_only_options_are_refused() -> None:
    with pytest.raises(TypeError, match="clip_range"):
        A2C.Options(clip_range=0.2)


@pytest.mark.parametrize("kind", [A2C, IMPALA])
def test_whole_episodes_of_older_weights_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r'expected "truncate_episodes".*take ppo') as caught:
        kind.Options(batch_mode="complete_episodes")
    assert caught.value.path == "options.batch_mode"
