"""Recurrent policies: layers against torch's own, sequences against single ticks, memory that ends with its episode."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from fakes import (
    ScriptedEnv,
    ThreadGroup,
    all_equal,
    final_observations,
    flat_weights,
    random_rewards,
    solo_group,
    together,
)
from learning_steps import learn, rollout_of, run
from policies.common.algorithm import Algorithm
from policies.common.off_policy import OffPolicy
from policies.common.rollout import Batch, to_sequences
from policies.hppo import HPPO
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.masac import MASAC
from policies.networks.recurrent import RECURRENT
from policies.ppo import PPO
from policies.qmix import QMIX
from policies.vdn import VDN

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4)
SMALL = {"n_steps": 12, "minibatch_size": 16, "hidden_sizes": (8,), "hidden_size": 6, "sequence_length": 4}
KINDS = sorted(RECURRENT)

pytestmark = pytest.mark.parametrize("kind", KINDS)


def worker(env: ScriptedEnv, kind: str, group: ThreadGroup | None = None, **options: Any) -> PPO:
    return PPO(env, group or solo_group(), ticks=env.ticks, **{**SMALL, "recurrent": kind, **options})


def taking_turns(tick: int) -> NDArray[np.bool_]:
    """Four rows: one acts always, two in turn, one on every third tick."""
    return np.array([True, tick % 2 == 0, tick % 2 == 1, tick % 3 == 0])


# ---------------------------------------------------------------------------------------------------------- the layers


ORDER = {"lstm": [0, 1, 3, 2], "gru": [0, 1, 2]}  # torch's LSTM has its gates in another order than ours


def parameters(layer: Any, kind: str, twin: int) -> dict[str, Tensor]:
    """The parameters of one of the twins by torch's names, with the gates in torch's order."""
    held = {"weight_ih_l0": layer.from_inputs, "weight_hh_l0": layer.from_memory, "bias_ih_l0": layer.bias}
    return {
        name: torch.cat([both[twin].chunk(layer.gates)[gate] for gate in ORDER[kind]]) for name, both in held.items()
    }


def torchs_own(layer: Any, kind: str, twin: int) -> Any:
    """Torch's layer with the weights of one of the twins."""
    inputs = layer.from_inputs.shape[2]
    theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](inputs, layer.size, batch_first=True)
    with torch.no_grad():
        for name, weight in parameters(layer, kind, twin).items():
            getattr(theirs, name).copy_(weight)
        theirs.bias_hh_l0.zero_()
    return theirs


# ---------------------------------------------------------------------------------------------------------- sequences


@given(seed=st.integers(0, 10**6), ticks=st.integers(1, 12), rows=st.integers(1, 4), length=st.integers(1, 6))
def test_each_transition_is_in_one_sequence_of_its_row_and_episode(
    kind: str, seed: int, ticks: int, rows: int, length: int
) -> None:
    rng = np.random.default_rng(seed)
    valid, ended = rng.random((ticks, rows)) < 0.8, rng.random((ticks, rows)) < 0.2
    place = torch.arange(ticks * rows)
    batch = to_sequences(Batch((place,), None, place, place, place, place, place), valid, ended, length)
    lengths = batch.lengths.tolist()
    assert sum(lengths) == batch.size == valid.sum()
    assert sorted(batch.actions.tolist()) == np.flatnonzero(valid).tolist()
    assert all(1 <= found <= length for found in lengths)
    keys = []
    for sequence in batch.actions.split(lengths):
        at = [divmod(int(number), rows) for number in sequence]  # (tick, row)
        episodes = {(row, int(ended[:tick, row].sum())) for tick, row in at}
        assert at == sorted(at)
        assert len(episodes) == 1
        keys.append((episodes.pop(), len(at)))
    for (episode, count), (following, _) in itertools.pairwise(keys):
        assert episode != following or count == length, "cut without need"


# ------------------------------------------------------------------------------------------------------------ the maths


@pytest.mark.parametrize("active", [None, taking_turns])
def test_recomputed_memory_equals_the_recorded_one(kind: str, active: Any) -> None:
    env = ScriptedEnv(VECTOR, CHOICE, length=7, active=active)
    ppo = worker(env, kind, n_steps=23, sequence_length=16)
    with torch.no_grad():
        for weight in ppo.network.parameters():
            weight.mul_(3)  # what is remembered matters
    batch = rollout_of(ppo)
    assert batch.lengths.max() > 3
    with torch.no_grad():
        unrolled = ppo.network.encoder.unrolled(batch.observations, batch.lengths)
        stepped = ppo.network.encoder(batch.observations)
        forgetful = ppo.network.encoder((*batch.observations[:-1], torch.zeros_like(batch.observations[-1])))
    torch.testing.assert_close(unrolled, stepped, atol=1e-5, rtol=0)
    assert (stepped - forgetful).abs().max() > 0.1


def padded_loss(ppo: PPO, batch: Batch, kind: str) -> tuple[Tensor, list[Any]]:
    """Equation (9) of PPO's paper by torch's own layers on padded sequences, the mean over what is no padding."""
    (observations, memory), lengths = batch.observations, batch.lengths.tolist()
    layer = ppo.network.encoder.layer

    def padded(tensor: Tensor) -> Tensor:
        return nn.utils.rnn.pad_sequence(list(tensor.split(lengths)), batch_first=True)  # [S, L, ...]

    first = torch.stack([part[0] for part in memory.split(lengths)]).view(-1, layer.memories, 2, layer.size)
    layers, flat = [torchs_own(layer, kind, twin) for twin in range(2)], []
    for twin, theirs in enumerate(layers):
        begin = tuple(part[None].contiguous() for part in first[:, :, twin].unbind(1))
        flat.append(theirs(padded(observations), begin if kind == "lstm" else begin[0])[0].flatten(0, 1))
    policy, values = ppo.head.distribution(ppo.network.actor(flat[0]), None), ppo.network.critic(flat[1]).squeeze(-1)
    actions, log_probs, advantages, returns = (
        padded(part).flatten(0, 1) for part in (batch.actions, batch.log_probs, batch.advantages, batch.returns)
    )
    ratio = (policy.log_prob(actions) - log_probs).exp()
    gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    losses = -gain + 0.5 * (values - returns).square() - 0.3 * policy.entropy()
    mask = padded(torch.ones(batch.size)).flatten()
    return (losses * mask).sum() / mask.sum(), layers


def test_loss_and_gradient_equal_torchs_padded_sequences(kind: str) -> None:
    env = ScriptedEnv(VECTOR, CHOICE, length=7, active=taking_turns, reward=random_rewards(0))
    ppo = worker(env, kind, n_steps=20, ent_coef=0.3)
    batch = rollout_of(ppo)
    assert len(set(batch.lengths.tolist())) > 2
    with torch.no_grad():
        for weight in ppo.network.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
    expected, layers = padded_loss(ppo, batch, kind)
    expected.backward()
    heads = [*ppo.network.actor.parameters(), *ppo.network.critic.parameters()]
    gradients = [weight.grad.clone() for weight in heads]
    ppo.optimizer.zero_grad()
    policy_loss, value_loss, entropy, *_ = ppo.backward(batch).tolist()
    assert policy_loss + 0.5 * value_loss - 0.3 * entropy == pytest.approx(float(expected.detach()), abs=1e-6)
    for weight, gradient in zip(heads, gradients, strict=True):
        torch.testing.assert_close(weight.grad, gradient, atol=1e-6, rtol=1e-4)
    mine = ppo.network.encoder.layer
    for weight in mine.parameters():
        weight.data = weight.grad  # to be put into torch's order
    for twin, theirs in enumerate(layers):
        for name, gradient in parameters(mine, kind, twin).items():
            assert gradient.abs().max() > 1e-4
            torch.testing.assert_close(gradient, getattr(theirs, name).grad, atol=1e-6, rtol=1e-4)


# ----------------------------------------------------------------------------------------------- memory and episodes


def memory_of(ppo: PPO) -> Tensor:
    """The memory of the rows before every tick, and after the last, [T+1, B, memory_size]."""
    return torch.stack([ppo.rollout.leaves(t)[-1] for t in range(ppo.rollout.ticks + 1)])


def test_memory_is_reset_per_episode_and_kept_while_idle(kind: str) -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE, length=5, active=taking_turns), kind)
    rollout_of(ppo)
    memory = memory_of(ppo)
    assert (memory[0] == 0).all()
    for t in range(12):
        if (t + 1) % 5 == 0:
            assert (memory[t + 1] == 0).all()
            continue
        moved = (memory[t + 1] != memory[t]).any(-1)
        assert moved.tolist() == taking_turns(t).tolist()


@pytest.mark.parametrize("cut", [True, False])
def test_truncated_episode_bootstraps_with_memory(kind: str, cut: bool) -> None:
    env = ScriptedEnv(VECTOR, CHOICE, rows=2, length=3, cut=cut)
    ppo = worker(env, kind, gamma=1.0, gae_lambda=0.0, n_steps=3, sequence_length=3)
    finals = final_observations(env)
    batch = rollout_of(ppo)
    with torch.no_grad():
        _, remembered = ppo.network.encoder.ticked(ppo.rollout.leaves(2))
        expected = ppo.network.value([torch.tensor(np.stack(list(finals[2]))), remembered]) if cut else torch.zeros(2)
    returns = batch.returns.view(2, 3)  # one sequence of three transitions per row
    assert batch.lengths.tolist() == [3, 3]
    torch.testing.assert_close(returns[:, 2], expected)


# ------------------------------------------------------------------------------------------------------- groups, state


def unequal_env(group: ThreadGroup, **more: Any) -> ScriptedEnv:
    rank = group.rank
    return ScriptedEnv(VECTOR, CHOICE, rows=3 + 2 * rank, seed=rank, length=7, reward=random_rewards(rank), **more)


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_on_one_full_batch_equal_one_worker(kind: str, sync: str) -> None:
    options = {"minibatch_size": 999, "learning_rate": 2e-3, "ent_coef": 0.01}

    def work(group: ThreadGroup) -> tuple[Batch, Any]:
        ppo = worker(unequal_env(group), kind, group, **options)
        batch = rollout_of(ppo)
        learn(ppo, batch)
        return batch, flat_weights(ppo.network)

    (first, mine), (second, yours) = together(2, work, sync=sync)
    alone = worker(ScriptedEnv(VECTOR, CHOICE), kind, **options)
    learn(alone, Batch.cat([first, second]))
    assert np.array_equal(mine, yours)
    np.testing.assert_allclose(mine, flat_weights(alone.network), atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------------------------------------ the actor


@pytest.mark.parametrize("active", [None, taking_turns])
def test_actor_memory_equals_the_workers_without_side_effects(kind: str, active: Any) -> None:
    ppo = worker(ScriptedEnv(VECTOR, CHOICE, length=5, active=active), kind, n_steps=23)
    with torch.no_grad():
        for weight in ppo.network.parameters():
            weight.mul_(4)
    before = ppo.state_dict()
    act, other = ppo.actor(greedy=True), ppo.actor(greedy=True)
    env = ScriptedEnv(VECTOR, CHOICE, length=5, active=active)
    observations, infos = env.reset()
    memory = torch.zeros(4, ppo.network.encoder.memory_size)
    played, forgetful = [], []
    for tick in range(23):
        with torch.no_grad():
            policy, after = ppo.network.act([torch.tensor(observations), memory])
            blank = ppo.network.policy([torch.tensor(observations), torch.zeros_like(memory)])
        actions = act(observations, infos)
        acting = infos["active"]
        assert actions[acting].tolist() == policy.mode()[torch.tensor(acting)].tolist()
        played.append(policy.mode())
        forgetful.append(blank.mode())
        observations, *_, infos = env.step(actions)
        memory = torch.where(torch.tensor(acting)[:, None], after, memory) * ((tick + 1) % 5 != 0)
    assert not torch.equal(torch.stack(played), torch.stack(forgetful))
    assert all_equal(before, ppo.state_dict())
    first, _ = ScriptedEnv(VECTOR, CHOICE, seed=3).reset()
    assert other(first, {}).tolist() == ppo.actor(greedy=True)(first, {}).tolist()


# ------------------------------------------------------------------------------------------------- options and learning


class Echo(ScriptedEnv):
    """Pays for the choice that was shown one tick earlier."""

    def __init__(self, **given: Any) -> None:
        space = spaces.Discrete(3)
        super().__init__(space, space, rows=16, length=20, reward=self._paid, **given)
        self._shown = np.zeros(16, np.int64)

    def _paid(self, observations: Any, actions: Any) -> Any:
        right = (actions == self._shown).astype(np.float64)
        self._shown = np.array(observations)
        return right


ROLLOUTS = {"n_steps": 20, "minibatch_size": 160, "learning_rate": 0.03, "gamma": 0.0, "n_epochs": 6}
REPLAY = {"learning_starts": 80, "batch_size": 160, "learning_rate": 0.01, "gamma": 0.0, "training_intensity": 20}
ACTORS = {"training_intensity": 80, "learning_rate": 0.005, "hidden_sizes": (32,)}


def echoed(algorithm: type[Algorithm], kind: str | None, **options: Any) -> float:
    """The share of right choices after the first tick of an episode; the worker has two entities per lane."""
    memory = {} if kind is None else {"recurrent": kind, "hidden_size": 16, "sequence_length": 20}
    usual: dict[str, Any] = {"hidden_sizes": (8,), **(REPLAY if issubclass(algorithm, OffPolicy) else ROLLOUTS)}
    env = Echo(ticks=20 * 12)
    env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
    made = run(algorithm(env, solo_group(), ticks=env.ticks, **{**usual, **memory, **options}))
    env = Echo(ticks=40, seed=9)
    act, (observations, infos) = made.actor(greedy=True), env.reset()
    rewards = []
    for tick in range(40):
        observations, reward_t, _, _, infos = env.step(act(observations, infos))
        if tick % 20:  # on the first tick of an episode there is nothing to remember
            rewards.append(reward_t.mean())
    return float(np.mean(rewards))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        *((PPO, {}), (MAPPO, {}), (HPPO, {"n_options": 2, "option_ticks": 5})),
        *((one, {}) for one in (VDN, QMIX)),
        *(pytest.param(one, ACTORS, marks=pytest.mark.long) for one in (MADDPG, MASAC)),
    ],
)
def test_memory_task_needs_recurrence(kind: str, algorithm: type[Algorithm], options: dict[str, Any]) -> None:
    assert echoed(algorithm, kind, **options) >= 0.85
    if kind == "gru":
        assert echoed(algorithm, None, **options) <= 0.5, "a third by chance"
