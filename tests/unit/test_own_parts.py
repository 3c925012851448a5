"""A user's parts in built-in algorithms: encoders, further losses, own losses, changed gradients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import readme
from arena.config import parse_config
from arena.errors import BudgetReached, ConfigError
from arena.plan.build import make_plan
from arena.preflight.examine import examine
from fakes import ScriptedEnv, flat_weights, solo_group, together
from learning_steps import run
from own_parts import A2CByLoss, Decay, PPOByLoss
from policies.a2c import A2C
from policies.bc import BehaviorCloning
from policies.by_loss import OnPolicyByLoss
from policies.common.columns import to_leaves
from policies.common.off_policy import OffPolicy
from policies.common.replay import Transitions
from policies.common.rollout import Batch
from policies.ddpg import DDPG
from policies.dqn import DQN
from policies.extensions import make_encoder, user_encoder
from policies.hppo import HPPO
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.masac import MASAC
from policies.offline.demonstrations import Demonstrations
from policies.ppo import PPO
from policies.qmix import QMIX
from policies.sac import SAC
from policies.td3 import TD3
from policies.vdn import VDN
from recorded_samples import record

SEEN, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
BOX = spaces.Box(-1, 1, (2,), np.float32)
ROLLOUT: dict[str, Any] = {"n_steps": 8, "hidden_sizes": (8,)}
PPO_OPTIONS: dict[str, Any] = {**ROLLOUT, "minibatch_size": 16, "n_epochs": 2, "vf_coef": 0.7, "ent_coef": 0.02}
REPLAY: dict[str, Any] = {
    **{"learning_starts": 8, "train_every": 2, "batch_size": 8, "training_intensity": 2.0},
    **{"hidden_sizes": (8,), "log_every": 8},
}


def reward(observations: Any, actions: Any) -> Any:
    return np.asarray(observations)[:, 0] * (np.asarray(actions).reshape(len(actions), -1)[:, 0] + 1.0)


def played(kind: type[Any], *, actions: Any = CHOICE, ticks: int = 40, group: Any = None, **options: Any) -> Any:
    """An algorithm after some ticks of random observations."""
    torch.manual_seed(0)
    env = ScriptedEnv(SEEN, actions, ticks=ticks, reward=reward)
    env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
    made = kind(env, group or solo_group(), ticks=ticks, **options)
    return run(made)


def actions_of(kind: type[Any]) -> Any:
    return BOX if kind in (SAC, DDPG, TD3) else CHOICE


def small(kind: type[Any], data: Path) -> dict[str, Any]:
    if kind is BehaviorCloning:
        record(data, SEEN, CHOICE, lambda seen: np.zeros(len(seen), np.int64))
        return {"data": str(data), "train_every": 8, "gradient_steps": 2, "batch_size": 8, "hidden_sizes": (8,)}
    return PPO_OPTIONS if kind is PPO else ROLLOUT if kind is A2C else REPLAY


def further(*kinds: type[Any]) -> list[Any]:
    """Rows that repeat the path of others."""
    return [pytest.param(kind, marks=pytest.mark.long) for kind in kinds]


# losses of their own


@pytest.mark.parametrize(("built_in", "by_loss"), [(PPO, PPOByLoss), (A2C, A2CByLoss)])
def test_algorithms_by_their_loss_have_the_weights_of_the_built_in_ones(built_in: Any, by_loss: Any) -> None:
    """After ten updates; the built-in ones differentiate by hand."""
    if built_in is PPO:
        first, second = (played(kind, ticks=80, **PPO_OPTIONS) for kind in (PPO, PPOByLoss))
    else:
        options = {**ROLLOUT, "learning_rate": 1e-3, "gae_lambda": 1.0, "normalize_advantage": False}
        first = played(A2C, ticks=80, **options, learning_rate_schedule="constant")
        second = played(A2CByLoss, ticks=80, **options, n_epochs=1, minibatch_size=10_000)
    assert first.updates == second.updates == 10
    assert np.abs(flat_weights(first.network) - flat_weights(second.network)).max() < 1e-6
    assert {"loss", *by_loss.measured} < {*second.group.logged[-1]}


def test_loss_with_other_metrics_than_declared_is_refused() -> None:
    class Wrong(A2CByLoss):
        measured = ("policy_loss", "other")

    with pytest.raises(ValueError, match=r"has measured \['policy_loss'\]; `measured` says \['policy_loss', 'other'\]"):
        played(Wrong, **ROLLOUT)
    with pytest.raises(ConfigError, match="limits approx_kl, which the loss of A2CByLoss does not measure"):
        A2CByLoss.check_options({"target_kl": 0.1})
    PPOByLoss.check_options({"target_kl": 0.1})
    with pytest.raises(TypeError, match=r"abstract.*loss"):
        played(OnPolicyByLoss, **ROLLOUT)


# encoders


@pytest.mark.parametrize("kind", [PPO, SAC, BehaviorCloning, *further(A2C, DQN, DDPG, TD3)])
def test_an_own_encoder_learns_and_goes_on_from_its_state(kind: Any, tmp_path: Path) -> None:
    options = small(kind, tmp_path)
    own = {"class": "own_parts:Net", "options": {"width": 5}}
    made = played(kind, actions=actions_of(kind), **options, encoder=own)
    weights = {name: value for name, value in made.network.named_parameters() if name.endswith("own.weights")}
    assert len(weights) == 1 and next(iter(weights.values())).shape == (5, 3)
    assert user_encoder(made.network).weights is next(iter(weights.values()))
    fresh = kind(ScriptedEnv(SEEN, actions_of(kind)), solo_group(), ticks=80, **options, encoder=own)
    (before,) = (value for name, value in fresh.network.named_parameters() if name.endswith("own.weights"))
    assert not torch.equal(before, next(iter(weights.values()))), "it has learned"
    fresh.load_state_dict(made.state_dict())
    assert np.array_equal(flat_weights(fresh.network), flat_weights(made.network))
    seen = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)
    assert np.array_equal(fresh.actor(greedy=True)(seen, {}), made.actor(greedy=True)(seen, {}))


def test_a_memory_comes_after_an_own_encoder() -> None:
    options = {**PPO_OPTIONS, "recurrent": "gru", "hidden_size": 4, "sequence_length": 4}
    made = played(PPO, **options, encoder="own_parts:Net")
    assert made.network.encoder.memory_size == 8
    assert user_encoder(made.network) is made.network.encoder.own.own
    assert made.network.encoder.own.own.weights.grad is not None
    assert made.network.encoder.own.own.weights.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("own_parts:Nett", "'own_parts:Nett': .*did you mean 'Net'"),
        ("own_parts:Decay", "cannot be made as Decay"),
        ({"class": "own_parts:Net", "opts": {}}, r'expected "package.module:Class"'),
        ("own_parts:Narrow", r"gives float32 \[2, 7\] for 2 rows; expected float32 \[2, 8\]"),
        ("own_parts:Doubled", r"gives float64 \[2, 8\] for 2 rows; expected float32 \[2, 8\]"),
        ("gymnasium.spaces:Space", "is no torch module with an attribute `features`|cannot be made"),
    ],
)
def test_encoders_that_cannot_be_used_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        PPO(ScriptedEnv(SEEN, CHOICE), solo_group(), ticks=80, **PPO_OPTIONS, encoder=given)
    assert caught.value.path == "options.encoder"


def test_an_encoder_that_fails_is_told_the_leaves_that_it_got() -> None:
    space = spaces.Dict(picture=spaces.Box(0, 255, (4, 4), np.uint8), numbers=SEEN)
    leaves = r"leaves = \[\['picture'\] uint8 \[2, 4, 4\], \['numbers'\] float32 \[2, 3\]\]: ValueError"
    with pytest.raises(ConfigError, match=leaves):
        make_encoder(space, torch.Generator(), "own_parts:OneLeaf")


UNSEEDED = "options.encoder: head.weight and head.bias come from torch's global random stream, so each worker and run"


@pytest.mark.parametrize("kind", [PPO, SAC, BehaviorCloning, *further(A2C, DQN, DDPG, TD3)])
def test_weights_that_are_not_drawn_from_the_generator_are_named(kind: Any, tmp_path: Path) -> None:
    for encoder, said in {"own_parts:Net": "", "own_parts:Unseeded": UNSEEDED}.items():
        options = small(kind, tmp_path / encoder)
        made = kind(ScriptedEnv(SEEN, actions_of(kind)), solo_group(), ticks=80, **options, encoder=encoder)
        state = torch.get_rng_state()
        found = made.try_out()
        assert found.startswith(said) and bool(found) == bool(said)
        assert torch.equal(torch.get_rng_state(), state), "the stream goes on as it was"


def test_check_warns_of_weights_that_are_not_drawn_from_the_generator() -> None:
    data = {
        "ticks": 100,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {"blue": {"algorithm": "ppo", "options": {"encoder": "own_parts:Unseeded"}}},
        "matches": [{"env": "game", "seats": ["blue", "blue"]}],
    }
    lines = examine(make_plan(parse_config(data, source="x.yaml"))).lines
    assert [line.startswith(f"warning: policies.blue.{UNSEEDED}") for line in lines if "warning" in line] == [True]


def test_unknown_option_of_an_own_class_is_refused_with_the_nearest_one() -> None:
    own = {"class": "own_parts:Net", "options": {"widht": 3}}
    with pytest.raises(ConfigError, match="'own_parts:Net' has no option 'widht'; did you mean 'width'") as caught:
        PPO(ScriptedEnv(SEEN, CHOICE), solo_group(), ticks=80, **PPO_OPTIONS, encoder=own)
    assert caught.value.path == "options.encoder.options"
    words = (
        r"cannot be made as Net\(space, generator, \*\*options\): RuntimeError: (?s:.*) \(.*own_parts.py, line \d+\)$"
    )
    with pytest.raises(ConfigError, match=words):
        PPO(ScriptedEnv(SEEN, CHOICE), solo_group(), ticks=80, **PPO_OPTIONS, encoder=own | {"options": {"width": -1}})


@pytest.mark.parametrize(("option", "name", "value"), [("encoder", "Net:width", "big"), ("extra_loss", "Decay:by", {})])
def test_options_of_own_classes_are_checked_against_annotations(option: str, name: str, value: Any) -> None:
    kind, _, field = name.partition(":")
    own = {"class": f"own_parts:{kind}", "options": {field: value}}
    with pytest.raises(ConfigError, match=f"got {re.escape(repr(value))}, expected a ") as caught:
        PPO(ScriptedEnv(SEEN, CHOICE), solo_group(), ticks=80, **PPO_OPTIONS, **{option: own})
    assert caught.value.path == f"options.{option}.options.{field}"


# further losses


@pytest.mark.parametrize("kind", [PPO, DQN, SAC, *further(A2C, DDPG, TD3, BehaviorCloning)])
def test_a_further_loss_adds_its_gradient(kind: Any, tmp_path: Path) -> None:
    """The gradient of the squared length of all weights is known: 2 * by * weights, on top of the algorithm's own."""
    options = small(kind, tmp_path)
    extra = {"class": "own_parts:Decay", "options": {"by": 0.25}}
    gradients: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    vectors: list[torch.Tensor] = []

    class Looking(kind):  # type: ignore[misc]
        def shape_gradient(self, gradient: torch.Tensor) -> None:
            with_extra = self.options.extra_loss is not None
            gradients[with_extra].append(gradient.clone())
            if with_extra:
                adam = self.due_optimizers[0] if isinstance(self, OffPolicy) else self.optimizer
                vectors.append(adam.vector.detach().clone())

    for with_extra in (False, True):
        made = played(Looking, actions=actions_of(kind), **options, **({"extra_loss": extra} if with_extra else {}))
    first = torch.nn.functional.mse_loss(gradients[True][0], gradients[False][0] + 0.5 * vectors[0])
    assert first < 1e-10
    logged = made.group.logged[-1]
    assert logged["extra_loss"] == pytest.approx(0.25 * logged["extra_length"], rel=1e-5)


def test_further_loss_with_other_metrics_than_declared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Forgetful has measured \[\]; its `measured` says \['length'\]"):
        played(PPO, **PPO_OPTIONS, extra_loss="own_parts:Forgetful")
    with pytest.raises(ConfigError, match="'own_parts:Decay' has no option 'bye'; did you mean 'by'") as caught:
        played(PPO, **PPO_OPTIONS, extra_loss={"class": "own_parts:Decay", "options": {"bye": 1}})
    assert caught.value.path == "options.extra_loss.options"
    assert Decay.measured == ("length",)


MISTAKES = {
    "raises": "KeyError: 'teacher'",
    "number": "found 0.5; expected a tensor of one number that depends on the weights",
    "vector": "; expected a tensor of one number that depends on the weights, such as its `.mean()`",
    "constant": "expected a tensor of one number that depends on the weights",
    "elsewhere": "its value depends on no weight of the network",
    "unmeasured": "its `measured` says",
}


@pytest.mark.parametrize("kind", [PPO, DQN, *further(A2C, SAC, TD3, BehaviorCloning)])
def test_mistakes_of_a_further_loss_are_told_before_the_run(kind: Any, tmp_path: Path) -> None:
    def tried(extra: Any) -> Any:
        made = kind(ScriptedEnv(SEEN, actions_of(kind)), solo_group(), ticks=80, **options, extra_loss=extra)
        before = flat_weights(made.network)
        made.try_out()
        assert np.array_equal(flat_weights(made.network), before)

    options = small(kind, tmp_path)
    tried("own_parts:Decay")
    for mistake, words in MISTAKES.items():
        with pytest.raises(ConfigError, match=re.escape(words)) as caught:
            tried({"class": "own_parts:Wrong", "options": {"kind": mistake}})
        assert caught.value.path == "options.extra_loss"
    with pytest.raises(ConfigError, match="takes 2 positional arguments but 3 were given"):
        tried("own_parts:Narrowminded")


@pytest.mark.parametrize(("measured", "name"), [(False, "extra_loss"), (True, "extra_length")])
@pytest.mark.parametrize("kind", [PPO, DQN])
def test_further_loss_that_is_not_finite_is_named(kind: Any, measured: bool, name: str, tmp_path: Path) -> None:
    options = small(kind, tmp_path)
    extra = {"class": "own_parts:Nan", "options": {"measured": measured}}
    words = rf"'own_parts:Nan' returned {name} nan \(.*own_parts.py, line \d+\); expected finite numbers"
    made = kind(ScriptedEnv(SEEN, actions_of(kind)), solo_group(), ticks=80, **options, extra_loss=extra)
    assert re.match(f"options.extra_loss: {words}", made.try_out())
    with pytest.raises(ConfigError, match=f"^options.extra_loss: {words}, as those of .* 1 are without it$") as caught:
        played(kind, actions=actions_of(kind), **options, extra_loss=extra)
    assert caught.value.path == "options.extra_loss"


def test_rewards_are_named_where_all_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PPO, "backward", lambda self, batch: torch.full((len(PPO.metric_names),), torch.nan))
    with pytest.raises(FloatingPointError, match="are all rewards and observations finite"):
        played(PPO, **PPO_OPTIONS, extra_loss="own_parts:Nan")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DQN, REPLAY),
        (SAC, {**REPLAY, "recurrent": "gru"}),
        (HPPO, {**PPO_OPTIONS, "n_steps": 16}),
        *((kind, {**PPO_OPTIONS, "n_steps": 16, "recurrent": "gru"}) for kind in (PPO, MAPPO, HPPO)),
    ],
)
def test_further_losses_see_made_up_batches_of_the_right_shapes(kind: Any, options: Any) -> None:
    """The fields, dtypes and inner shapes are those of the minibatches of a run."""
    seen: list[Any] = []

    def shapes(column: Any) -> Any:
        if isinstance(column, tuple):
            return tuple(map(shapes, column))
        return None if column is None else (column.dtype, column.shape[1:])

    made = played(kind, actions=actions_of(kind), **options, extra_loss="own_parts:Decay")
    loss = made.extra._loss
    made.extra._loss = lambda network, batch: (seen.append(batch), loss(network, batch))[1]
    made.try_out()
    first = made.made_up_batch()
    with pytest.raises(BudgetReached):
        made.env.ticks = 80
        made.run()
    assert [list(map(shapes, msgspec.structs.astuple(one))) for one in (first, seen[-1])] == [
        list(map(shapes, msgspec.structs.astuple(seen[0])))
    ] * 2


# what the page says of them


def test_page_names_every_field_of_a_minibatch() -> None:
    page = readme.PAGES["docs/own-networks.md"].text
    named = {field for kind in (Batch, Transitions, Demonstrations) for field in kind.__struct_fields__}
    assert [field for field in sorted(named) if f"`{field}`" not in page] == []


def test_leaves_are_those_of_the_page() -> None:
    """Dict in the order of its keys, Tuple in its own, depth first."""
    parts = {
        "bytes": spaces.Box(0, 255, (2, 2, 1), np.uint8),
        "whole": spaces.Box(-5, 5, (2,), np.int32),
        "double": spaces.Box(-1, 1, (3,), np.float64),
        "choice": spaces.Discrete(3, start=2),
        "choices": spaces.MultiDiscrete([2, 3]),
        "flags": spaces.MultiBinary(4),
    }
    kinds = {
        "bytes": (torch.uint8, (2, 2, 1)),
        "whole": (torch.int64, (2,)),
        "double": (torch.float32, (3,)),
        "choice": (torch.int64, ()),
        "choices": (torch.int64, (2,)),
        "flags": (torch.int64, (4,)),
    }
    nested = spaces.Dict({"z": spaces.Box(0, 1, (1,)), "a": spaces.Tuple([parts["choice"], spaces.Dict(parts)])})
    batched = batch_space(nested, 5)
    batched.seed(0)
    sample = batched.sample()
    leaves = to_leaves(nested, sample)
    expected = [kinds["choice"], *(kinds[key] for key in spaces.Dict(parts)), (torch.float32, (1,))]
    assert [(leaf.dtype, leaf.shape) for leaf in leaves] == [(dtype, (5, *shape)) for dtype, shape in expected]
    assert leaves[0].tolist() == sample["a"][0].tolist()
    assert leaves[0].min() >= 2
    assert list(spaces.Dict({"z": parts["whole"], "a": parts["flags"]})) == ["a", "z"]
    assert list(spaces.Dict(z=parts["whole"], a=parts["flags"])) == ["z", "a"]


@pytest.mark.parametrize("memory", [{}, {"recurrent": "gru", "sequence_length": 4, "burn_in": 2}], ids=["", "memory"])
@pytest.mark.parametrize("kind", [MADDPG, MASAC, VDN, QMIX])
def test_teams_learn_with_an_own_encoder_and_a_further_loss(kind: Any, memory: dict[str, Any]) -> None:
    def made() -> Any:
        env = ScriptedEnv(SEEN, CHOICE, ticks=40, reward=reward)
        env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
        options = {**REPLAY, "encoder": "own_parts:Net", "extra_loss": "own_parts:Decay"}
        return kind(env, solo_group(), ticks=40, **options, **memory)

    before, after = made(), run(made())
    (first, *_), (second, *_) = (  # with a memory actors have another one
        [value for name, value in one.network.named_parameters() if name.endswith("own.weights")]
        for one in (before, after)
    )
    assert first.shape == (8, 3)
    assert not torch.equal(first, second)
    assert user_encoder(after.network.encoder if kind in (MADDPG, MASAC) else after.network).weights is second
    assert after.group.logged[-1]["extra_loss"] > 0
    assert not before.try_out()
    drawn, made_up = after.replay.sample(8, torch.Generator()), before.made_up_batch()
    columns = zip(drawn.tensors(), made_up.tensors(), strict=True)
    assert all((one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:]) for one, other in columns)
    before.load_state_dict(after.state_dict())
    assert np.array_equal(flat_weights(before.network), flat_weights(after.network))


# gradients


@pytest.mark.parametrize("kind", [PPO, SAC, BehaviorCloning, *further(A2C, DQN, DDPG, TD3)])
def test_gradients_are_shaped_after_the_mean_and_before_they_are_limited(kind: Any, tmp_path: Path) -> None:
    """A gradient that is set to zero moves nothing; what the method returns is logged."""

    class Still(kind):  # type: ignore[misc]
        def shape_gradient(self, gradient: torch.Tensor) -> dict[str, float]:
            gradient.zero_()
            return {"shaped": float(len(gradient) > 0)}

    options = small(kind, tmp_path)
    made = played(Still, actions=actions_of(kind), **options)
    fresh = kind(ScriptedEnv(SEEN, actions_of(kind)), solo_group(), ticks=80, **options)
    assert np.array_equal(flat_weights(made.network), flat_weights(fresh.network))
    assert made.group.logged[-1]["shaped"] == 1.0


# exploration


def test_workers_explore_to_different_degrees() -> None:
    options = {**REPLAY, "exploration_fraction": 0.0, "exploration_final_eps": 0.3, "exploration_spread": 7.0}

    def work(group: Any) -> float:
        return DQN(ScriptedEnv(SEEN, CHOICE), group, ticks=80, **options).epsilon

    assert together(4, work) == pytest.approx([0.3, 0.3 ** (1 + 7 / 3), 0.3 ** (1 + 14 / 3), 0.3**8])
    assert together(1, work) == pytest.approx([0.3])
    assert together(2, lambda group: DQN(ScriptedEnv(SEEN, CHOICE), group, ticks=80, **REPLAY).epsilon)[1] == 1.0


# what a subclass may override


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (PPO, "make_network layers make_rollout act evaluate update diverged backward losses shape_gradient"),
        (A2C, "update backward"),
        (DQN, "act_randomly explore update backward shape_gradient"),
        (SAC, "explore update backward"),
    ],
)
def test_overridden_methods_of_a_subclass_are_called(kind: Any, names: str) -> None:
    calls: set[str] = set()

    def counted(name: str) -> Any:
        def method(self: Any, *arguments: Any, **more: Any) -> Any:
            calls.add(name)
            return getattr(kind, name)(self, *arguments, **more)

        return method

    subclass = type("Own", (kind,), {name: counted(name) for name in names.split()})
    played(subclass, actions=actions_of(kind), ticks=24, **small(kind, Path()))
    assert calls == {*names.split()}
