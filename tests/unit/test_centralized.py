"""MADDPG and MASAC: losses against autograd, inputs of networks, masking, groups, state, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from arena.errors import ConfigError
from fakes import ThreadGroup, flat_weights, random_rewards, solo_group
from joint_minibatches import CHOICE, SMALL, VECTOR, E, game, made_up, mask_of
from learning_steps import run
from minibatches import assert_gradients, disturb
from policies.common.replay import Transitions
from policies.maddpg import MADDPG
from policies.masac import MASAC
from policies.networks import reparameterized
from policies.networks.reparameterized import SquashedGaussian

PICTURE = spaces.Dict(a=spaces.Box(0, 255, (8, 8, 3), np.uint8), b=VECTOR)
NUMBERS = spaces.Box(-0.5, 2.0, (2,), np.float32)

both = pytest.mark.parametrize("kind", [MADDPG, MASAC])


def worker(kind: Any, env: Any = None, group: ThreadGroup | None = None, **options: Any) -> Any:
    env = env or game()
    return kind(env, group or solo_group(), ticks=env.ticks, **{**SMALL, **options})


def disturbed(learner: Any) -> Any:
    disturb(learner.network, *(target.module for target in learner.targets.values()))
    if learner.alpha:
        learner.network.temperature.log_alpha.data.fill_(-1.0)
    return learner


def steady(shape: Any, generator: Any) -> Tensor:
    """Noise that is equal in every row, so that the numbers of draws do not matter."""
    return torch.linspace(-0.8, 1.1, shape[-1]).expand(tuple(shape))


@pytest.fixture
def steady_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("normal", "gumbel"):
        monkeypatch.setattr(reparameterized, name, steady)


# ------------------------------------------------------------------------------------------------------- the maths


def joint_features(encoder: Any, leaves: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    """The inputs of critics, entity by entity, and of each actor."""
    *seen, acts = leaves
    own = [super(type(encoder), encoder).forward([leaf[:, index] for leaf in seen]) for index in range(E)]
    flags = acts.float()
    masked = [torch.cat([part * flags[:, [index]], flags[:, [index]]], 1) for index, part in enumerate(own)]
    return torch.cat(masked, 1), own


def outputs_of(actors: Any, own: list[Tensor], index: int, acts: Tensor) -> Tensor:
    """The outputs of one entity's actor, from its own observation (as it was masked) and its index."""
    seen = own[index] * acts[:, [index]].float()
    if len(actors.members) > 1:
        return actors.members[index](seen)
    return actors.members[0](torch.cat([seen, torch.eye(E)[[index]].expand(len(seen), E)], 1))


def act_softly(learner: Any, outputs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """One entity's actions as input of critics, differentiable by torch, and its actor's entropy."""
    size = learner.actions.inputs
    noise = steady((len(outputs), size), None)
    if learner.actions.mask_size:
        logits = outputs if mask is None else torch.where(mask, outputs, torch.tensor(-1e9))
        relaxed = torch.softmax((logits + noise) / learner.options.gumbel_temperature, -1)
        hard = torch.nn.functional.one_hot((logits + noise).argmax(-1), size).float()
        return hard + relaxed - relaxed.detach(), torch.distributions.Categorical(logits=logits).entropy()
    if isinstance(learner, MADDPG):
        return outputs.tanh(), torch.zeros(len(outputs))
    policy = SquashedGaussian(outputs)
    return policy.sample(noise), -policy.log_prob(noise)


def losses(learner: Any, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
    """The losses of critics, actors and temperature, differentiable by torch."""
    network, old, alpha = learner.network, learner.targets["critics"].module, learner.alpha
    next_actors = learner.targets["actors"].module if "actors" in learner.targets else network.actors
    acts, then_acts = batch.observations[-1].float(), batch.next_observations[-1].float()
    with torch.no_grad():
        joint, own = joint_features(old.encoder, batch.next_observations)
        if "actors" not in learner.targets:
            own = joint_features(network.critics.encoder, batch.next_observations)[1]
        drawn = [
            act_softly(learner, outputs_of(next_actors, own, i, then_acts), mask_of(batch.next_masks, i))
            for i in range(E)
        ]
        chosen = torch.cat([part * then_acts[:, [i]] for i, (part, _) in enumerate(drawn)], 1)
        soft = old(joint, chosen).amin(0) + alpha * torch.stack([h for _, h in drawn], 1) * then_acts
        targets = batch.rewards + batch.discounts * soft
    joint, own = joint_features(network.critics.encoder, batch.observations)
    numbers = learner.actions.to_critics(batch.actions).float() * acts.unsqueeze(-1)
    errors = network.critics(joint, numbers.flatten(1)) - targets
    critic_loss = (batch.weights[:, None] * errors.square()).mean((1, 2)).sum()
    actor_loss, surplus = torch.zeros(()), torch.zeros(())
    for i in range(E):
        outputs = outputs_of(network.actors, [part.detach() for part in own], i, acts)
        action, entropy = act_softly(learner, outputs, mask_of(batch.masks, i))
        chosen = numbers.clone()
        chosen[:, i] = action * acts[:, [i]]
        least = network.critics(joint.detach(), chosen.flatten(1))[:, :, i].amin(0)
        actor_loss = actor_loss - (acts[:, i] * (least + alpha * entropy)).mean() / E
        if isinstance(learner, MADDPG):
            actor_loss = actor_loss + 0.2 * (acts[:, [i]] * outputs.square()).mean() / E
        else:
            target = reparameterized.target_entropy(
                learner.actions, learner.options.target_entropy, outputs.detach(), mask_of(batch.masks, i)
            )
            surplus = surplus + (acts[:, i] * (entropy.detach() - target)).mean() / E
    return critic_loss, actor_loss, surplus


@pytest.mark.parametrize(
    ("case", "shared"),
    [("numbers", True), ("numbers", False), ("choices", False), ("masked", True), ("picture", True)],
)
@both
def test_closed_form_gradients_equal_autograd(kind: Any, case: str, shared: bool, steady_noise: None) -> None:
    space, actions = PICTURE if case == "picture" else VECTOR, NUMBERS if case == "numbers" else CHOICE
    more = {"output_penalty": 0.2} if kind is MADDPG else {}
    more |= {"gumbel_temperature": 0.7} if actions is CHOICE else {}
    learner = worker(kind, game(space, actions), shared_actor=shared, **more)
    batch = made_up(disturbed(learner), 40, masked=case == "masked")
    network = learner.network
    critic_loss, actor_loss, surplus = losses(learner, batch)
    by_critics = torch.autograd.grad(critic_loss, list(network.critics.parameters()), retain_graph=True)
    by_actors = torch.autograd.grad(actor_loss, list(network.actors.parameters()))
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    metrics, errors = learner.backward(batch)
    figures = dict(zip(learner.metric_names, metrics.tolist(), strict=True))
    assert_gradients(network.critics, by_critics)
    assert_gradients(network.actors, by_actors)
    assert figures["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-4)
    assert errors.shape == (40,)
    if kind is MASAC:
        assert figures["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-4)
        found = learner.optimizers["temperature"].gradient[0].item()
        assert found == pytest.approx(learner.alpha * surplus.item(), rel=1e-4)


# -------------------------------------------------------------------------------------------------- play and explore


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "action_space"),
    [
        (VECTOR, NUMBERS),
        (PICTURE, CHOICE),
        (spaces.Discrete(5, start=2), spaces.Box(0.1, 0.3, (), np.float64)),
        (spaces.MultiBinary(3), spaces.Discrete(1)),
        (spaces.Dict([("b", VECTOR), ("a", spaces.Tuple([spaces.Discrete(4), VECTOR]))]), CHOICE),
    ],
    ids=str,
)
@both
def test_plays_and_learns_with_its_kinds_of_spaces(kind: Any, space: Any, action_space: Any) -> None:
    kind.check(space, action_space)
    env = game(space, action_space, ticks=8, reward=random_rewards(0))
    learner = run(worker(kind, env))
    assert learner.gradient_steps > 0
    assert all(env.action_space.contains(np.asarray(actions)) for actions in env.actions)
    assert np.isfinite(flat_weights(learner.network)).all()
    observations, infos = env.reset()
    for greedy in (True, False):
        assert env.action_space.contains(np.asarray(learner.actor(greedy=greedy)(observations, infos)))


@both
def test_the_budget_of_a_run_is_counted_in_lanes(kind: Any) -> None:
    fits = {"train_every": 1, "n_step": 1, "buffer_size": 2 * 4 * 2}  # of 4 lanes, not of 12 rows
    learner = run(worker(kind, game(lanes=4, ticks=10), **fits))
    assert (learner.experience.rows, learner.gradient_steps > 5) == (4, True)


# --------------------------------------------------------------------------------------------------- state and options


@pytest.mark.parametrize(("other", "entities"), [({}, 2), ({"shared_actor": True}, E)], ids=["entities", "actors"])
@both
def test_a_state_of_another_seat_or_other_actors_is_refused(kind: Any, other: dict[str, Any], entities: int) -> None:
    stored = worker(kind, shared_actor=not other).state_dict()
    with pytest.raises(ConfigError, match="do not fit this network"):
        worker(kind, game(entities=entities), **other).load_state_dict(stored)
