"""The average policy of best responses: its reservoir, who acts, what each learns from, what others see of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena import registry
from arena.errors import BudgetReached, ConfigError
from arena.records.state_codec import decode, encode
from fakes import ScriptedEnv, all_equal, solo_group
from own_parts import A2CByLoss
from policies.common.average import Decisions, Reservoir
from policies.common.nstep import RowLayout
from policies.dqn import DQN
from policies.ppo import PPO

SEEN = spaces.Box(-1, 1, (2,), np.float32)
CHOICES = spaces.Discrete(3)
PPO_OPTIONS: dict[str, Any] = {"n_steps": 8, "minibatch_size": 16, "n_epochs": 2, "hidden_sizes": (8,)}
DQN_OPTIONS: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "hidden_sizes": (8,)}


def made(cls: type[Any], env: ScriptedEnv | None = None, **options: Any) -> Any:
    env = ScriptedEnv(SEEN, CHOICES, ticks=64) if env is None else env
    small = PPO_OPTIONS if issubclass(cls, PPO) else DQN_OPTIONS
    return cls(env, solo_group(), ticks=64, **{"average": True, "anticipatory": 0.5, **small, **options})


def played(algorithm: Any) -> Any:
    with pytest.raises(BudgetReached):
        algorithm.run()
    return algorithm


def numbered(first: int, count: int) -> Decisions:
    """Decisions whose actions are their numbers."""
    numbers = torch.arange(first, first + count)
    return Decisions((numbers[:, None].float().repeat(1, 2),), None, numbers)


def reservoir(capacity: int) -> Reservoir:
    return Reservoir(RowLayout(SEEN, (), torch.int64, 0), capacity)


# ---------------------------------------------------------------------------------------------------------- reservoir


def test_each_decision_is_kept_with_the_same_chance() -> None:
    kept, generator = np.zeros(40), torch.Generator().manual_seed(0)
    for _ in range(2000):
        found = reservoir(10)
        for first in range(0, 40, 8):  # several of a part may fall on one place
            found.extend(numbered(first, 8), generator)
        numbers = found.at(torch.arange(10)).actions.numpy()
        assert len(np.unique(numbers)) == 10
        kept[numbers] += 1
    expected = 2000 * 10 / 40
    assert np.abs(kept - expected).max() < 5 * np.sqrt(expected * 0.75)  # five standard deviations


def test_observations_stay_with_their_actions() -> None:
    found = reservoir(5)
    found.extend(numbered(0, 30), torch.Generator().manual_seed(1))
    sample = found.sample(50, torch.Generator().manual_seed(2))
    assert torch.equal(sample.observations[0][:, 0], sample.actions.float())
    assert {*sample.actions.tolist()} == {*found.at(torch.arange(5)).actions.tolist()}


@pytest.mark.parametrize("capacity", [4, 10, 20])
def test_stored_reservoir_continues_with_other_capacities(capacity: int) -> None:
    first, other = reservoir(10), reservoir(capacity)
    first.extend(numbered(0, 25), torch.Generator().manual_seed(1))
    other.load_state_dict(decode(*encode(first.state_dict())))
    other.extend(numbered(25, 5), torch.Generator().manual_seed(3))
    first_numbers = {*first.at(torch.arange(10)).actions.tolist()}
    kept = {*other.sample(500, torch.Generator().manual_seed(2)).actions.tolist()}
    assert kept <= first_numbers | {*range(25, 30)}
    assert len(kept) == min(capacity, 15)
    assert other.seen == (30 if capacity <= 10 else 15)


def test_an_empty_reservoir_gives_nothing() -> None:
    assert reservoir(3).sample(5, torch.Generator()).size == 0


# -------------------------------------------------------------------------------------------------------- who acts


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_episodes_are_played_by_one_of_both_as_often_as_asked(cls: type[Any]) -> None:
    env = ScriptedEnv(SEEN, CHOICES, rows=50, ticks=60, length=3)
    begins = {"train_every": 3} if cls is DQN else {}  # actions are random before
    algorithm, seen = made(cls, env, anticipatory=0.3, **begins), list[Any]()
    mixed = algorithm.average.mixed

    def noted(*given: Any) -> Any:
        found = mixed(*given)
        seen.append(algorithm.average.best.copy())
        return found

    algorithm.average.mixed = noted
    played(algorithm)
    count = len(seen) // 3
    assert count >= 19
    episodes = np.array(seen[: 3 * count]).reshape(count, 3, 50)
    assert (episodes == episodes[:, :1]).all()
    assert abs(episodes[:, 0].mean() - 0.3) < 5 * np.sqrt(0.21 / (50 * count))


def test_ppo_learns_from_episodes_of_its_best_response_alone() -> None:
    """Each policy plays one action alone; the batches of updates have only that of the best response."""
    algorithm = made(PPO, ScriptedEnv(SEEN, CHOICES, rows=20, ticks=64, length=4), learning_rate=0.0)
    network, batches = algorithm.network, list[Any]()
    for actor, action in ((network.actor, 0), (network.average.actor, 2)):
        with torch.no_grad():
            actor[-1].bias[action] = 100.0
    update = algorithm.update

    def noted(batch: Any, largest: int) -> Any:
        batches.append(batch)
        return update(batch, largest)

    algorithm.update = noted
    played(algorithm)
    assert {*torch.cat([batch.actions for batch in batches]).tolist()} == {0}
    acted = np.array(algorithm.env.actions)
    assert {*acted.ravel().tolist()} == {0, 2}
    learned = sum(batch.size for batch in batches)
    assert learned == (acted == 0).sum() == algorithm.average.reservoir.seen


def test_dqn_learns_from_all_episodes_and_keeps_those_of_its_best_response() -> None:
    algorithm = made(DQN, ScriptedEnv(SEEN, CHOICES, rows=20, ticks=64, length=4), n_step=1)
    played(algorithm)
    best = algorithm.average.reservoir.seen
    assert algorithm.replay.size == 64 * 20
    assert 0.3 * 64 * 20 < best < 0.7 * 64 * 20


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_average_policy_learns_how_often_best_responses_did_what(cls: type[Any]) -> None:
    algorithm, generator = made(cls, learning_rate=0.01, reservoir_size=400), torch.Generator().manual_seed(0)
    actions = torch.tensor([0] * 50 + [1] * 150 + [2] * 200)
    algorithm.average.reservoir.extend(Decisions((torch.ones(400, 2),), None, actions), generator)
    for _ in range(400):
        algorithm.average.learn(100, generator)
    chances = np.exp(algorithm.log_prob(np.ones((3, 2), np.float32), np.arange(3), None))
    np.testing.assert_allclose(chances, [0.125, 0.375, 0.5], atol=0.05)


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_nothing_is_measured_or_learned_without_decisions(cls: type[Any]) -> None:
    algorithm = made(cls)
    before = algorithm.average.state_dict()["steps"]
    assert algorithm.average.learn(8, torch.Generator()) == {}
    assert algorithm.average.state_dict()["steps"] == before
    algorithm.average.reservoir.extend(numbered(0, 2), torch.Generator())
    assert algorithm.average.learn(8, torch.Generator())["average_loss"] > 0
    assert algorithm.average.state_dict()["steps"] == before + 1


def test_average_policy_of_ppo_steps_as_often_as_its_best_response() -> None:
    algorithm = played(made(PPO, learning_rate=0.1, target_kl=1e-6))
    assert algorithm.early_stops > 0
    steps = algorithm.optimizer.state_dict()["steps"]
    assert algorithm.average.state_dict()["steps"] == steps > 0


def test_average_policy_of_an_algorithm_by_its_loss_steps_on_whole_rollouts_too() -> None:
    algorithm = played(made(A2CByLoss, n_epochs=1, minibatch_size=1000))
    assert algorithm.average.state_dict()["steps"] == algorithm.updates == 8


def test_an_exploration_of_its_own_is_mixed_with_the_average() -> None:
    class Explorer(DQN):
        def explore(self, leaves: Any, mask: Any) -> torch.Tensor:
            return torch.full((len(leaves[0]),), 2)

    env = ScriptedEnv(SEEN, CHOICES, rows=20, ticks=64, length=4)
    algorithm = made(Explorer, env, learning_starts=1, learning_rate=0.0)
    with torch.no_grad():
        algorithm.network.average.actor[-1].bias[0] = 100.0
    played(algorithm)
    acted = np.array(env.actions[1:])
    assert {*acted[algorithm.options.train_every :].ravel().tolist()} == {0, 2}
    assert 0 < algorithm.average.reservoir.seen <= (acted == 2).sum()


def test_random_actions_before_dqn_learns_are_no_best_responses() -> None:
    env = ScriptedEnv(SEEN, CHOICES, rows=4, ticks=64, length=4)
    algorithm = played(made(DQN, env, learning_starts=160, anticipatory=1.0))
    assert algorithm.intensity.has_started
    assert algorithm.average.reservoir.seen == 64 * 4 - 160


def test_explored_actions_of_dqn_are_no_best_responses() -> None:
    env = ScriptedEnv(SEEN, CHOICES, rows=4, ticks=64, length=4)
    algorithm = made(DQN, env, learning_rate=0.0, epsilon=0.5, anticipatory=1.0)
    with torch.no_grad():
        algorithm.network.layers[-1].bias[1 + 2] = 100.0  # the advantage of the last choice, behind the value
    played(algorithm)
    reservoir = algorithm.average.reservoir
    assert {*np.array(env.actions[8:]).ravel().tolist()} == {0, 1, 2}
    assert {*reservoir.at(torch.arange(reservoir.seen)).actions.tolist()} == {2}


# ---------------------------------------------------------------------------------------------------- what others see


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_others_see_the_average_policy(cls: type[Any]) -> None:
    algorithm = made(cls)
    with torch.no_grad():
        algorithm.network.average.actor[-1].bias[1] = 100.0
    observations = algorithm.env.observation_space.sample()
    for greedy in (True, False):
        assert {*algorithm.actor(greedy=greedy)(observations, {}).tolist()} == {1}
    no_memory = np.zeros((len(observations), 0), np.float32)
    served, _ = algorithm.served().act(observations, None, no_memory, None)
    assert {*served.tolist()} == {1}
    (logits,) = algorithm.exported().module(torch.from_numpy(observations))
    assert {*logits.argmax(1).tolist()} == {1}
    assert algorithm.exported().decoding["kind"] == "categorical"
    assert algorithm.log_prob(observations, np.ones(len(observations), np.int64), None).max() > -1e-6
    assert algorithm.state_value(observations) is None


def test_the_state_has_the_average_policy_and_its_optimizer() -> None:
    first, second = played(made(PPO)), made(PPO)
    second.load_state_dict(decode(*encode(first.state_dict())))
    assert all_equal(second.network.average.state_dict(), first.network.average.state_dict())
    assert second.average.state_dict()["steps"] == first.average.state_dict()["steps"] > 0
    plain = PPO(ScriptedEnv(SEEN, CHOICES), solo_group(), ticks=64, **PPO_OPTIONS)
    with pytest.raises(ConfigError, match="this is no state of PPO"):
        plain.load_state_dict(first.state_dict())


@pytest.mark.parametrize("cls", [PPO, DQN])
def test_an_instance_that_cannot_play_has_no_room_for_decisions(cls: type[Any]) -> None:
    options = {"average": True, "reservoir_size": 500, **(PPO_OPTIONS if cls is PPO else DQN_OPTIONS)}
    algorithm = cls.from_spaces(ScriptedEnv(SEEN, CHOICES), solo_group(), ticks=64, **options)
    algorithm.average.reservoir.extend(numbered(0, 20), torch.Generator())
    assert len({*algorithm.average.reservoir.sample(100, torch.Generator()).actions.tolist()}) == 1


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ppo", {"recurrent": "gru"}, r"options.recurrent: .*average: true"),
        ("dqn", {"normalize_observations": True}, r"options.normalize_observations: .*average: true"),
        ("ppo", {"extra_loss": "own_parts:Decay"}, r"options.extra_loss: .*average: true"),
        ("ppo", {"device": {"act": "cpu", "learn": "cpu"}}, r"options.device: .*average is true"),
        ("mappo", {}, r"options.average: .*take ppo"),
        ("hppo", {}, r"options.average: .*take ppo"),
        ("vdn", {}, r"options.average: .*take dqn"),
        ("a2c", {}, r"no option 'average'"),
        ("ppo", {"average": False, "anticipatory": 0.2}, r"options.anticipatory: .*no effect where average is false"),
        ("dqn", {"average": False, "reservoir_size": 9}, r"options.reservoir_size: .*no effect where average is false"),
        ("ppo", {"anticipatory": 0.0}, r"options.anticipatory"),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configured_algorithm(name, {"average": True, **options}, acts=False, path="policies.blue")


def test_numbers_as_actions_are_refused() -> None:
    env = ScriptedEnv(SEEN, spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(ConfigError, match="average policy needs Discrete, MultiDiscrete or MultiBinary actions"):
        made(PPO, env)
