"""Centralized critics, decentralized actors: what MADDPG and MASAC have in common (Lowe et al. 2017, arXiv 1706.02275).

    actor of entity i   what i sees                                                --> i's action; plays alone
    critics             what all entities of the team see and do, in one lane     --> Q_1, ..., Q_E; only for learning

    critics  y_i = r_i + gamma (min Q'_i(x', a') + alpha H_i),   loss = mean over i of (y_i - Q_i(x, a))^2     eq. (6)
    actors   loss = -mean over i of min Q_i(x, a with a_i of now) + alpha H_i, differentiated by a_i alone     eq. (5)

x is what all see, a what all do: both as replayed, except a_i in the actors' loss. A critic is one network with a value
for each entity, since all have the same inputs; each value is learned from its entity's rewards. H_i is the entropy of
i's actor, and alpha its weight: 0 in MADDPG. Several critics are several networks, of which the least value counts.

An entity that does not act, because it is out of the game or waits for its turn, is masked: critics see zeros for what
it sees and does, and a flag; its actor learns nothing there. The value after the end of its episode is 0, whatever the
others do.

With memory actors and critics have encoders of their own, each with a memory of every entity.

Teams, their joint transitions, playing and replay are in `policies.team.learner`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.spaces import Discrete, Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.options import check_idle
from policies.common.replay import Transitions
from policies.networks.critics import Critics, Temperature, actor_features, frozen
from policies.networks.reparameterized import Actions, GumbelSoftmaxActions, TanhActions
from policies.team.learner import TeamLearner
from policies.team.networks import Actors, ActorsAndCritics


class Centralized(TeamLearner):
    """One worker of an algorithm with centralized critics and decentralized actors."""

    instead = "an algorithm of single entities: ddpg, sac or ppo"
    metric_names = ("critic_loss", "q_value", "actor_loss", "entropy")
    numbers: type[TanhActions]  # what actions are where they are no choices
    n_critics: int
    actions: Actions
    network: ActorsAndCritics

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        space = env.single_action_space
        self.actions = self._actions(space, temperature=self.options.gumbel_temperature)
        if not isinstance(space, Discrete):
            check_idle(self.options, "gumbel_temperature", where=f"the actions are {space}")

    def make_network(self, temperature: Temperature | None = None) -> ActorsAndCritics:
        """Actors and critics, with the same initial weights at every worker."""
        options, generator = self.options, torch.Generator().manual_seed(self.group.shared_seed)
        layers = self.layers(generator)
        encoder = self.make_encoder(generator)
        sizes: dict[str, Any] = {"actions": self.entities * self.actions.inputs, "outputs": self.entities}
        critics = Critics(encoder, **sizes, count=self.n_critics, **layers)
        own = self.make_actor_encoder(encoder, generator)
        shared: dict[str, Any] = {"entities": self.entities, "shared": options.shared_actor, "encoder": own}
        actors = Actors(encoder.of_one, self.actions.outputs, **shared, **layers)
        return ActorsAndCritics(critics, actors, temperature).to(self.device)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        return self.actions.choose(self.network(leaves, self.places), mask, generator)

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of all losses, the means of `metric_names`, and the mean errors of the critics [N]."""
        encoder, masks = self.network.encoder, self._rows(batch.masks)  # [N * E, mask_size]
        joint = batch.features(encoder)
        acts, detached = encoder.acts(joint), joint.detach()  # the critics' loss alone trains the encoder
        seen, next_seen = actor_features(self.network.actors, batch.all_features, (detached, None))
        with torch.no_grad():
            targets = batch.rewards + batch.discounts * self.next_values(batch, next_seen)  # [N, E]
            replayed = self.actions.to_critics(batch.actions) * acts.unsqueeze(-1)
        values = self.network.critics(joint, replayed.flatten(1))  # [k, N, E]
        errors = values - targets
        critic_loss = (batch.weights.unsqueeze(-1) * errors.square()).mean((1, 2)).sum()  # eq. (6)
        outputs = self.network.actors(encoder.by_entity(seen)).flatten(0, 1)  # [N * E, outputs]
        sampled, of_rows = self.actions.sample(outputs, masks, self.generator)
        current = sampled.view(replayed.shape) * acts.unsqueeze(-1)
        entropies = of_rows.view(acts.shape) * acts
        # min Q_i [N, E] of i's current action beside the others' replayed ones: the critics value E * N joint actions,
        # in each of which one entity's is current; of the E values there the one of that entity counts.
        each = torch.arange(self.entities, device=current.device)
        joint_actions = replayed.repeat(self.entities, 1, 1, 1)  # [E, N, E, inputs]
        joint_actions[each, :, each] = current.transpose(0, 1)
        with frozen(self.network.critics):
            valued = self.network.critics(detached.repeat(self.entities, 1), joint_actions.flatten(0, 1).flatten(1))
        least = valued.view(-1, *joint_actions.shape[:3])[:, each, :, each].min(1).values.t()  # from [E, k, N]
        actor_loss = -(least * acts + self.alpha * entropies).mean()  # eq. (5)
        loss = critic_loss + actor_loss + self.further_loss(outputs, of_rows, acts.flatten(), masks)
        entropy = entropies.sum() / acts.sum()
        metrics = torch.stack([critic_loss, values.mean(), actor_loss, entropy]).detach()
        return loss, metrics, errors.detach().abs().mean((0, 2))

    def next_values(self, batch: Transitions, seen: Tensor | None) -> Tensor:
        """min Q'_i(x', a') + alpha H_i of the next joint observations, [N, E]; a' are the actors', which see `seen`."""
        critics = self.targets["critics"].module
        joint = batch.next_features(critics.encoder)
        acts: Tensor = critics.encoder.acts(joint)
        outputs = self.next_outputs(batch, joint, seen).flatten(0, 1)
        sampled, entropies = self.actions.sample(outputs, self._rows(batch.next_masks), self.generator)
        inputs = sampled.view(*acts.shape, -1) * acts.unsqueeze(-1)
        least: Tensor = critics(joint, inputs.flatten(1)).amin(0)
        return least + self.alpha * entropies.view(acts.shape) * acts

    @property
    def alpha(self) -> float:
        """The temperature: how much a nat of entropy is worth; 0 where actors have none."""
        temperature = self.network.temperature
        return float(getattr(self.options, "ent_coef", 0.0)) if temperature is None else temperature.alpha

    @abstractmethod
    def next_outputs(self, batch: Transitions, joint: Tensor, seen: Tensor | None) -> Tensor:
        """The outputs [N, E, outputs] of the actors that targets are made of; joint: by the targets' encoder."""

    @abstractmethod
    def further_loss(self, outputs: Tensor, entropies: Tensor, acts: Tensor, mask: Tensor | None) -> Tensor | float:
        """A further loss of the actors' outputs [N * E, outputs] and entropies [N * E], of the entities that act."""

    def _rows(self, masks: Tensor | None) -> Tensor | None:
        """Joint masks [N, E * mask_size] as masks of single entities, [N * E, mask_size]."""
        return None if masks is None else masks.view(-1, self.actions.mask_size)

    # --------------------------------------------------------------------------------------- what the arena asks for

    @classmethod
    def _actions(cls, space: Space[Any], *, temperature: float) -> Actions:
        return (
            GumbelSoftmaxActions(space, temperature=temperature) if isinstance(space, Discrete) else cls.numbers(space)
        )

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        cls._actions(space, temperature=1.0)
