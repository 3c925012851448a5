"""Learning in games with units: the loss per decision, groups against one worker, state, normalization, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena import UnitSpace, registry
from arena.config import yaml
from arena.errors import ConfigError
from arena.records.state_codec import decode, encode
from envs.minesweeper import Minesweeper
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, solo_group, together
from learning_steps import learn, play, rollout_of, run
from policies.a2c import A2C
from policies.common.columns import to_leaves
from policies.common.rollout import Batch
from policies.networks.units.options import Center, Relative, Transformer
from policies.ppo import PPO
from policies.scripted import Scripted
from unit_games import EVERYTHING, Lanes, RandomUnits, observed, random_observations

SMALL = {"n_steps": 8, "minibatch_size": 16, "transformer": Transformer(d_model=8, layers=1)}
PLACES = Transformer(
    d_model=8,
    layers=1,
    relative=Relative(position=("x", "y"), extent=(1, 1)),
    center=Center(on="Soldier", position=("x", "y"), distance=True),
)


def worker(env: Any, group: ThreadGroup | None = None, kind: type[PPO] = PPO, **options: Any) -> PPO:
    given = {**SMALL, **options}
    if kind is A2C:
        del given["minibatch_size"]
    return kind(env, group or solo_group(), ticks=env.ticks, **given)


def random_batch(ppo: PPO, *, count: int = 30) -> Batch:
    """Transitions of a policy and a critic that have moved since."""
    draw = torch.Generator().manual_seed(3)
    observations = observed(EVERYTHING, random_observations(EVERYTHING, count, seed=4))
    given = ppo.normalization.observations(to_leaves(EVERYTHING, observations))
    with torch.no_grad():
        for weights in ppo.network.parameters():
            weights.add_(0.2 * torch.randn(weights.shape, generator=draw))
        policy, values = ppo.network.policy_and_value(given)
        actions = policy.sample(torch.arange(count))
        log_probs = policy.log_prob(actions) + 0.2 * torch.randn(len(actions.values), generator=draw)
    return Batch(
        observations=tuple(given),
        masks=None,
        actions=actions,
        log_probs=actions.with_values(log_probs),
        values=values + 0.3 * torch.randn(count, generator=draw),
        advantages=torch.randn(count, generator=draw),
        returns=values + torch.randn(count, generator=draw),
        weights=torch.full((count,), count / len(actions.values)),
    )


# ---------------------------------------------------------------------------------------------------------- the loss


def test_metrics_are_sums_over_decisions_and_transitions() -> None:
    ppo = worker(RandomUnits(), clip_range=0.1, ent_coef=0.3)
    batch = random_batch(ppo)
    measured = ppo.backward(batch)
    with torch.no_grad():
        policy, values = ppo.network.policy_and_value(batch.observations)
        log_probs, entropies = policy.log_prob(batch.actions).numpy(), policy.entropy().numpy()
    total, decision = np.zeros(5), 0
    for row in range(batch.size):
        advantage = float(batch.advantages[row])
        total[1] += float(values[row] - batch.returns[row]) ** 2 / batch.size
        for _ in range(batch.actions.lengths[row]):
            log_ratio = log_probs[decision] - float(batch.log_probs.values[decision])
            ratio = np.exp(log_ratio)
            gain = min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage)
            per_decision = [-gain, 0, entropies[decision], ratio - 1 - log_ratio, not 0.9 <= ratio <= 1.1]
            total += np.array(per_decision, float) / len(log_probs)
            decision += 1
    np.testing.assert_allclose(measured.numpy(), total, rtol=1e-4, atol=1e-5)


def test_a2c_weighs_decisions_in_the_same_way() -> None:
    a2c = worker(RandomUnits(), kind=A2C, ent_coef=0.3)
    batch = random_batch(a2c)
    policy_loss, value_loss, entropy = a2c.backward(batch).tolist()
    with torch.no_grad():
        policy, values = a2c.network.policy_and_value(batch.observations)
        advantages = np.repeat(batch.advantages.numpy(), batch.actions.lengths)
        assert policy_loss == pytest.approx(
            float(-(policy.log_prob(batch.actions).numpy() * advantages).mean()), abs=1e-5
        )
        assert entropy == pytest.approx(float(policy.entropy().mean()), abs=1e-5)
        assert value_loss == pytest.approx(float((values - batch.returns).square().mean()), abs=1e-5)


# ------------------------------------------------------------------------------------------------------- whole loops


@pytest.mark.parametrize(
    ("kind", "transformer"), [(A2C, SMALL["transformer"]), (PPO, PLACES)], ids=["a2c", "ppo, places"]
)
def test_every_part_of_a_unit_space_is_learned_from(kind: type[PPO], transformer: Transformer) -> None:
    PPO.check(EVERYTHING, EVERYTHING.action_space)
    env = RandomUnits(ticks=24)
    ppo = run(worker(env, kind=kind, transformer=transformer, normalize_observations=True))
    assert ppo.updates == 3
    assert np.isfinite(flat_weights(ppo.network)).all()
    for logged in ppo.group.logged:
        assert np.isfinite([value for name, value in logged.items() if name != "explained_variance"]).all()
        assert 3 < logged["units"] < 9
        assert 1 < logged["decisions"] < 9
    assert all(
        EVERYTHING.action_space.contains({name: one[0] for name, one in actions.items()}) for actions in env.actions
    )


def test_rows_without_decisions_train_only_the_critic() -> None:
    env = RandomUnits(ticks=8)
    env._sample = lambda acts, sample=env._sample: sample(False)  # type: ignore[method-assign]
    before = worker(env)
    ppo = run(worker(env, ent_coef=0.1, target_kl=0.01))
    (logged,) = ppo.group.logged
    assert logged["decisions"] == logged["approx_kl"] == logged["policy_loss"] == logged["clip_fraction"] == 0.0
    assert logged["value_loss"] > 0
    actors = [
        torch.equal(a, b)
        for a, b in zip(ppo.network.actors.parameters(), before.network.actors.parameters(), strict=True)
    ]
    assert all(actors)
    assert not torch.equal(ppo.network.critic.weight, before.network.critic.weight)


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_on_one_full_batch_equal_one_worker(sync: str) -> None:
    options = {"minibatch_size": 999, "n_epochs": 4, "learning_rate": 2e-3, "ent_coef": 0.01}

    def work(group: ThreadGroup) -> tuple[Batch, Any]:
        ppo = worker(RandomUnits(rows=3 + 2 * group.rank, seed=group.rank), group, **options)
        batch = rollout_of(ppo)
        figures = learn(ppo, batch)
        return batch, (flat_weights(ppo.network), figures)

    (first, mine), (second, yours) = together(2, work, sync=sync)
    alone = worker(RandomUnits(), **options)
    expected = learn(alone, Batch.cat([first, second]))
    assert np.array_equal(mine[0], yours[0])
    np.testing.assert_allclose(mine[0], flat_weights(alone.network), atol=1e-6, rtol=0)
    assert mine[1] == yours[1] == pytest.approx(expected, abs=1e-5)
    lengths = np.concatenate([first.actions.lengths, second.actions.lengths])
    assert expected["decisions"] == pytest.approx(lengths.mean())


# ------------------------------------------------------------------------------------------------------------- state


def test_foreign_state_is_refused_with_the_difference() -> None:
    stored = worker(RandomUnits()).state_dict()
    with pytest.raises(ConfigError, match=r"options.transformer.d_model: 8, here it is 16"):
        worker(RandomUnits(), transformer=Transformer(d_model=16, layers=1)).load_state_dict(stored)
    with pytest.raises(ConfigError, match=r"options.transformer.center.on: null, here it is Soldier"):
        worker(RandomUnits(), transformer=PLACES).load_state_dict(stored)
    renamed = RandomUnits()
    kinds = {"Soldier": ["x", "z", "facing"], "Wall": [], "Flag": ["x", "y"]}
    renamed.single_observation_space = UnitSpace(
        kinds, EVERYTHING.global_features, EVERYTHING.actions, EVERYTHING.hidden
    )
    with pytest.raises(ConfigError, match=r"number 1 of features of 'Soldier' was 'y', here it is 'z'"):
        worker(renamed).load_state_dict(stored)
    again = worker(RandomUnits(seed=3), solo_group(seed=4))
    again.load_state_dict(decode(*encode(stored)))
    assert all_equal(again.state_dict()["network"], stored["network"])


# ----------------------------------------------------------------------------------------------------- normalization


def test_features_are_normalized_over_all_units_of_rows_that_act() -> None:
    active = lambda tick: np.array([True, True, False, tick % 2 == 0])  # noqa: E731
    env = RandomUnits(ticks=8, length=99, active=active)
    ppo = worker(env, normalize_observations=True, clip_observations=None)
    rows: list[Any] = []
    observe = env._next

    def remembered() -> Any:
        observations, infos = observe()
        rows.append((observations, infos["active"]))
        return observations, infos

    env._next = remembered  # type: ignore[method-assign]
    ppo.rollout.begin(*env.reset())
    play(ppo)
    ppo.normalization.observe(ppo.group, ppo.rollout)
    unchanged = ppo.normalization.observations.statistics[1]
    assert unchanged.size == 0  # fixed while the rollout is learned from
    ppo.normalization.advance()
    played = rows[:-1]
    soldiers = np.concatenate([seen["units"]["Soldier"][acts].values for seen, acts in played])
    whole = np.concatenate([seen["globals"][acts] for seen, acts in played])
    found = ppo.normalization.observations.statistics
    assert [one.size for one in found[:2]] == [len(whole), len(soldiers)]
    np.testing.assert_allclose(found[0].mean, whole.mean(0, np.float64), rtol=1e-9)
    np.testing.assert_allclose(found[1].mean, soldiers.mean(0, np.float64), rtol=1e-9)
    np.testing.assert_allclose(found[1].squares / found[1].size, soldiers.var(0, np.float64), rtol=1e-9)
    seen_now, _ = observe()
    given = ppo.normalization.observations(to_leaves(EVERYTHING, seen_now))
    expected = (seen_now["units"]["Soldier"].values - soldiers.mean(0)) / soldiers.std(0)
    np.testing.assert_allclose(given[1].values, expected, rtol=1e-4, atol=1e-5)
    assert given[3].values.shape[1] == 2  # walls have no features, flags two
    before = [one.size for one in found]
    ppo.actor()(seen_now, {})
    assert [one.size for one in ppo.normalization.observations.statistics] == before


# ----------------------------------------------------------------------------------------- others, and what is refused


def test_log_prob_is_the_sum_over_a_rows_decisions() -> None:
    ppo = worker(RandomUnits())
    observations, _ = ppo.env.reset()
    actions = ppo.actor()(observations, {})
    policy = ppo.network.policy(ppo.normalization.observations(to_leaves(EVERYTHING, observations)))
    chosen = ppo.head.from_env(actions)
    per_decision = policy.log_prob(chosen).detach().numpy()
    expected = [part.sum() for part in np.split(per_decision, np.cumsum(chosen.lengths)[:-1])]
    np.testing.assert_allclose(ppo.log_prob(observations, actions, None), expected, atol=1e-5)


def test_a_constant_action_is_played_where_it_is_allowed() -> None:
    env = Lanes(Minesweeper(lanes=6))
    act = Scripted(env, solo_group(), ticks=1, action={"Move": "+x"}).actor()
    observations, infos = env.reset()
    for _ in range(8):
        actions = act(observations, infos)
        mask = observations["actions"]["Move"]["mask"].values
        assert actions["Move"].values.tolist() == np.where(mask[:, 0], 0, mask.argmax(1)).tolist()
        observations, *_, infos = env.step(actions)
    with pytest.raises(ConfigError, match=r"options\.action"):
        Scripted(env, solo_group(), ticks=1, action={"Move": "up"})


TAKE_UNITS = ("random", "scripted", "ppo", "a2c", "impala", "mappo", "dqn", "sac", "bc")


@pytest.mark.parametrize("name", [name for name in registry.ALGORITHMS if name not in TAKE_UNITS])
def test_all_other_algorithms_refuse_units_in_one_sentence(name: str) -> None:
    cls = registry.algorithm(name)
    with pytest.raises(
        ConfigError, match=f"^{name} cannot take units; ppo, a2c, impala, mappo, dqn, sac, bc, random and scripted do$"
    ):
        cls.check(EVERYTHING, EVERYTHING.action_space)


def test_ragged_leaves_that_are_no_units_are_refused_by_their_path() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (1,)), b=spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True))
    with pytest.raises(ConfigError, match=r"\['b'\]"):
        PPO.check(space, spaces.Discrete(2))
    with pytest.raises(ConfigError, match="on one side alone"):
        PPO.check(spaces.Box(0, 1, (1,)), EVERYTHING.action_space)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_sizes": (8,)}, "hidden_sizes has no effect where the seat sees units"),
        ({"activation": "relu"}, "activation has no effect where the seat sees units"),
        ({"recurrent": "gru"}, "recurrent has no effect where the seat sees units"),
        ({"log_std_init": -1.0}, "log_std_init has no effect where the seat sees units"),
        ({"transformer": Transformer(center=Center(on="Wall", position=("x",)))}, "'Wall' has no feature 'x'"),
    ],
)
def test_options_without_effect_on_units_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        worker(RandomUnits(), **options)


def test_a_transformer_without_units_is_refused() -> None:
    env = ScriptedEnv(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
    with pytest.raises(ConfigError, match="transformer has no effect where the seat sees no units"):
        PPO(env, solo_group(), ticks=100, transformer=Transformer())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d_modl": 8}, r"options.transformer.d_modl: unknown key 'd_modl'; did you mean 'd_model'"),
        ({"critic": "alone"}, r"options.transformer.critic"),
        ({"relative": {"position": ["x", "y"], "kind": "gird"}}, r"relative.kind: .*did you mean 'grid'"),
    ],
)
def test_wrong_keys_of_the_transformer_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.decode_options(PPO, {"transformer": given}, path="")


def test_the_transformer_is_read_from_a_configuration() -> None:
    text = """
    transformer:
      relative: {position: [x, y], kind: radial, extent: 8, angle: t}
      center: {on: Soldier, position: [x, y]}
    """
    decoded = registry.decode_options(PPO, yaml.load(text, source="options.yaml"), path="")
    assert decoded["transformer"].relative.extents == (8,)
    assert decoded["transformer"].center == Center(on="Soldier", position=("x", "y"))
