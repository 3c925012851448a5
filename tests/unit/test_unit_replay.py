"""DQN and SAC in games with units: values of decisions by hand, replay of ragged rows, state, groups, learning."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import BudgetReached, ConfigError
from arena.game.ragged import Ragged
from arena.records.state_codec import decode, encode
from arena.registry import adapt_environment
from fakes import ThreadGroup, all_equal, flat_weights, solo_group, together
from learning_steps import run
from policies.common.columns import RaggedPlaces
from policies.common.replay import Transitions
from policies.dqn import DQN
from policies.networks.heads import FORBIDDEN
from policies.networks.units.options import Relative, Transformer
from policies.sac import SAC
from unit_games import Lanes, RandomUnits

SMALL: dict[str, Any] = {
    **{"learning_starts": 8, "train_every": 2, "batch_size": 8, "training_intensity": 2.0, "log_every": 8},
    **{"n_step": 2, "transformer": Transformer(d_model=8, layers=1)},
}


def worker(env: Any = None, group: ThreadGroup | None = None, *, ticks: int = 0, **options: Any) -> DQN:
    env = env or RandomUnits(ticks=30)
    return DQN(env, group or solo_group(), ticks=ticks or env.ticks, **{**SMALL, **options})


def soft_worker(env: Any = None, group: ThreadGroup | None = None, *, ticks: int = 0, **options: Any) -> SAC:
    env = env or RandomUnits(ticks=30)
    return SAC(env, group or solo_group(), ticks=ticks or env.ticks, **{**SMALL, **options})


WORKERS = pytest.mark.parametrize("worker", [worker, soft_worker], ids=["dqn", "sac"])


def moved(dqn: Any) -> Any:
    with torch.no_grad():
        for weight in dqn.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return dqn


@given(seed=st.integers(0, 10**6), writes=st.integers(1, 6))
def test_ragged_places_give_back_what_was_written_last(seed: int, writes: int) -> None:
    rng, expected = np.random.default_rng(seed), {}
    places = RaggedPlaces(9, np.dtype(np.int64), (2,))
    for _ in range(writes):
        chosen = rng.choice(9, rng.integers(1, 9), replace=False)
        rows = [rng.integers(0, 99, (rng.integers(0, 4), 2)) for _ in chosen]
        places[chosen] = Ragged.of(rows, np.int64, (2,))
        expected.update(zip(chosen.tolist(), rows, strict=True))
    index = rng.choice(list(expected), 5)
    found = places.index_select(0, torch.from_numpy(index)).numpy()
    assert [found[number].tolist() for number in range(5)] == [expected[place].tolist() for place in index.tolist()]


def drawn(dqn: Any, count: int = 12) -> Transitions:
    batch = dqn.replay.sample(count, torch.Generator().manual_seed(2))
    return dqn.normalization.minibatch(batch)


def test_values_are_sums_over_decisions_and_targets_their_maxima() -> None:
    """By hand, row by row, from the logits of the decisions and the value."""
    dqn = worker()
    run(dqn)
    moved(dqn)
    batch, target = drawn(dqn), dqn.targets["network"].module
    with torch.no_grad():
        _, _, errors = dqn.loss(batch)
        targets = dqn.unit_targets(batch)
        for row in range(batch.size):
            part = slice(row, row + 1)
            now, later = ([leaf[part] for leaf in leaves] for leaves in (batch.observations, batch.next_observations))
            decisions, value = dqn.network.policy_and_value(now)
            chosen = {}
            for number, one in zip(decisions._actions, decisions.offered, strict=True):
                chosen[number] = iter(one.logits)
            taken = float(value) + sum(
                float(next(chosen[int(action)])[int(choice)]) for action, choice in batch.actions[part].values
            )
            best = [logits.argmax(1) for logits in (one.logits for one in dqn.network(later).offered)]
            others, following = target.policy_and_value(later)
            values = [
                float(one.logits.gather(1, pick[:, None]).sum()) for one, pick in zip(others.offered, best, strict=True)
            ]
            expected = float(batch.rewards[row] + batch.discounts[row] * (float(following) + sum(values)))
            assert float(targets[row]) == pytest.approx(expected, abs=1e-4)
            assert float(errors[row]) == pytest.approx(taken - expected, abs=1e-4)
    assert len({len(batch.actions[slice(row, row + 1)].values) for row in range(batch.size)}) > 2


def test_soft_values_are_means_over_all_joint_choices() -> None:
    """By hand: every joint choice of a row, with its probability, its entropy and both critics' values."""
    sac = soft_worker()
    run(sac)
    moved(sac)
    batch, network, target, sizes = drawn(sac, 40), sac.network, sac.targets["critics"].module, []
    assert network.temperature is not None
    with torch.no_grad():
        network.temperature.log_alpha.fill_(-1.0)
        alpha = math.exp(-1.0)
        _, _, errors = sac.loss(batch)
        found = sac.next_values(batch, batch.next_observations)

        def means(critics: Any, leaves: Any) -> tuple[float, float] | None:
            """The lesser of the critics' mean values of a row, and the entropy there; None: too many choices."""
            logits = [row for one in network.actor(leaves).offered for row in one.logits]
            policies = [row.double().softmax(0) for row in logits]
            options = [[c for c in range(len(row)) if row[c] > FORBIDDEN / 2] for row in logits]
            if math.prod(map(len, options)) > 500:
                return None
            sizes.append(len(policies))
            each, entropy = [0.0, 0.0], 0.0
            for joint in itertools.product(*options):
                probability = math.prod(float(policy[c]) for policy, c in zip(policies, joint, strict=True))
                entropy -= probability * math.log(probability)
                for number, (decisions, value) in enumerate(critics(leaves)):
                    rows = [row for one in decisions.offered for row in one.logits]
                    total = float(value) + sum(float(row[c]) for row, c in zip(rows, joint, strict=True))
                    each[number] += probability * total
            return min(each), entropy

        for row in range(batch.size):
            part = slice(row, row + 1)
            now, later = ([leaf[part] for leaf in leaves] for leaves in (batch.observations, batch.next_observations))
            if (expected := means(target, later)) is not None:
                assert float(found[row]) == pytest.approx(expected[0] + alpha * expected[1], abs=1e-4)
            aim = float(batch.rewards[row] + batch.discounts[row] * found[row])
            taken = []
            for decisions, value in network.critics(now):
                rows = {
                    number: iter(one.logits) for number, one in zip(decisions._actions, decisions.offered, strict=True)
                }
                pairs = batch.actions[part].values.tolist()
                taken.append(float(value) + sum(float(next(rows[action])[choice]) for action, choice in pairs))
            assert float(errors[row]) == pytest.approx(np.mean([abs(one - aim) for one in taken]), abs=1e-4)
        assert len(sizes) > 10
        assert len(set(sizes)) > 2


def test_replayed_decisions_are_those_that_were_played() -> None:
    """n_step 1: each transition has the observation, the decisions and the reward of one tick of one row."""
    env = RandomUnits(ticks=12, length=99, active=lambda tick: np.array([True, tick % 2 == 0, True, True]))
    seen: list[Any] = []
    dqn = worker(env, n_step=1, learning_starts=1000)
    add = dqn.experience.add
    dqn.experience.add = lambda actions, *step: (seen.append((dqn.experience.leaves, actions)), add(actions, *step))[1]  # type: ignore[method-assign]
    run(dqn)
    fragment = dqn.replay.fragment()
    assert len(fragment.starts) > 30
    played = [(leaves[1].numpy()[row].tolist(), actions[row].tolist()) for leaves, actions in seen for row in range(4)]
    for number in range(len(fragment.starts)):
        point = int(fragment.starts[number]) - fragment.first
        soldiers = fragment.points.observations[1][slice(point, point + 1)].values.tolist()
        taken = fragment.actions[slice(number, number + 1)].values.tolist()
        assert (soldiers, taken) in played


def test_fragment_of_a_single_transition_has_its_decisions() -> None:
    env = RandomUnits(ticks=2, length=99, active=lambda tick: (np.arange(4) == 0) & (tick < 2))
    dqn = worker(env, n_step=1, learning_starts=1000)
    run(dqn)
    fragment = dqn.replay.fragment()
    assert len(fragment.starts) == len(fragment.actions) == 1


@WORKERS
@pytest.mark.parametrize("more", [{}, {"prioritized": True, "normalize_observations": True}])
def test_stored_state_of_units_continues_to_the_same_bits(more: dict[str, Any], worker: Any) -> None:
    def continued(dqn: Any) -> Any:
        for generator in vars(dqn).values():
            if isinstance(generator, torch.Generator):
                generator.manual_seed(7)
        dqn.env = RandomUnits(ticks=19, seed=5)
        run(dqn)
        return dqn.state_dict(), dqn.worker_state_dict()

    first, second = (worker(RandomUnits(ticks=33), ticks=99, **more) for _ in range(2))
    run(first)
    stored, own = first.state_dict(), first.worker_state_dict()
    second.load_state_dict(decode(*encode(stored)))
    second.load_worker_state_dict(decode(*encode(own)))
    first.load_worker_state_dict(own)
    before = flat_weights(first.network)
    after = continued(first)
    assert all_equal(continued(second), after)
    assert not np.array_equal(before, flat_weights(first.network))


@WORKERS
@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_of_units_with_unequal_rows_hold_equal_weights(sync: str, worker: Any) -> None:
    def work(group: ThreadGroup) -> Any:
        dqn = worker(RandomUnits(rows=3 + group.rank, seed=group.rank, ticks=24), group)
        before = flat_weights(dqn.network)
        run(dqn)
        return before, flat_weights(dqn.network)

    (before, first), (_, second) = together(2, work, sync=sync)
    assert np.array_equal(first, second)
    assert not np.array_equal(before, first)


@pytest.mark.parametrize("dqn", [(worker, {"exploration_final_eps": 0.5}), (soft_worker, {})], ids=["dqn", "sac"])
def test_served_rows_of_units_do_not_depend_on_each_other(dqn: Any) -> None:
    make, options = dqn
    dqn = moved(make(RandomUnits(rows=3), **options))
    observations, _ = dqn.env.reset()
    act = dqn.served().act
    memory = np.zeros((3, 0), np.float32)

    def random(seed: int) -> Any:
        return [np.random.default_rng([seed, row]) for row in range(3)]

    whole, _ = act(observations, None, memory, random(0))
    (again, _), (other, _) = act(observations, None, memory, random(0)), act(observations, None, memory, random(1))
    assert all(whole[name].tolist() == again[name].tolist() for name in whole)
    assert any(whole[name].tolist() != other[name].tolist() for name in whole)
    best = dqn.actor(greedy=True)(observations, {})
    found, _ = act(observations, None, memory, None)
    assert all(best[name].tolist() == found[name].tolist() for name in best)


@WORKERS
def test_options_without_effect_on_units_are_refused(worker: Any) -> None:
    for option in ({"hidden_sizes": (9,)}, {"recurrent": "gru"}, {"extra_loss": "own_parts:Decay"}):
        with pytest.raises(ConfigError, match="has no effect where the seat sees units"):
            worker(**option)


def test_a_target_entropy_in_nats_is_refused_for_decisions_of_units() -> None:
    with pytest.raises(ConfigError, match="auto, as the number of decisions varies"):
        soft_worker(target_entropy=0.5)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "task", "samples", "least", "transformer"),
    [
        (DQN, "xor", 16_384, 0.95, Transformer(d_model=16, layers=1)),
        (DQN, "floor_is_lava", 16_384, 0.9, Transformer(relative=Relative(position=("x", "y"), extent=(1, 1)))),
        (SAC, "count", 16_384, 0.9, Transformer(d_model=16, layers=1)),
    ],
)
def test_learners_from_replay_learn_tasks_of_units(
    algorithm: Any, task: str, samples: int, least: float, transformer: Transformer
) -> None:
    lanes = 16
    env = Lanes(adapt_environment("unit_task", {"task": task}, lanes), ticks=samples // lanes)
    options: dict[str, Any] = {"learning_rate": 2e-3, "n_step": 1, "training_intensity": 8.0}
    options |= {"exploration_fraction": 0.3} if algorithm is DQN else {"train_every": 4, "batch_size": 64}
    dqn = algorithm(env, solo_group(), ticks=env.ticks, **options, transformer=transformer)
    with pytest.raises(BudgetReached):
        dqn.run()
    act, other = dqn.actor(greedy=True), Lanes(adapt_environment("unit_task", {"task": task}, lanes), seed=50_000)
    observations, infos = other.reset()
    while len(other.returns) < 400:
        observations, *_, infos = other.step(act(observations, infos))
    assert np.mean(other.returns) >= least
