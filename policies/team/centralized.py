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

Playing, replay and the exchange in the group are in `policies.common.off_policy`. A transition is joint: of all
entities of a lane, see `policies.team.joint`; `learning_starts`, `buffer_size` and `batch_size` count those.

A team is the entities of one seat, or of all workers of the policy that drive one each on their side of a match
(`Group.team`). In the second case each worker plays its entity, and they pool what they have seen whenever the group
meets. The first of them learns for the team, as a single worker that drives all entities
would; so both ways of seating learn the same: as many gradient steps, from as many joint transitions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium.spaces import Discrete, Space
from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies.common.normalization import ObservationNormalizer, Statistics
from policies.common.nstep import NStepBatch
from policies.common.off_policy import MEMORY, OffPolicy
from policies.common.options import check_idle, check_refused, wrong
from policies.common.replay import Transitions
from policies.exporting import Exported, decoding_of, exported
from policies.extensions import make_encoder
from policies.networks.critics import Critics, Temperature, frozen
from policies.networks.reparameterized import Actions, GumbelSoftmaxActions, SquashedGaussianActions, TanhActions
from policies.team.joint import JointNStepBuilder, TeamNStepBuilder, check_team, places_of
from policies.team.networks import Actors, ActorsAndCritics, JointEncoder


class Centralized(OffPolicy):
    """One worker of an algorithm with centralized critics and decentralized actors.

    Its team has two entities or more, whose spaces are equal; else `ConfigError`.

    Attributes:
        entities: of the team, `E`.
        places: of this worker's entities among them.
    """

    learner = "team"
    refused_options = MEMORY
    served = None  # type: ignore[assignment]  # an actor has to know whose row it is
    metric_names = ("critic_loss", "q_value", "actor_loss", "entropy")
    numbers: type[TanhActions]  # what actions are where they are no choices
    n_critics: int
    actions: Actions
    network: ActorsAndCritics

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.entities, self.places = places_of(env, group)
        self.check_team(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)
        space = env.single_action_space
        self.actions = self._actions(space, temperature=self.options.gumbel_temperature)
        if not isinstance(space, Discrete):
            check_idle(self.options, "gumbel_temperature", where=f"the actions are {space}")

    def make_network(self, temperature: Temperature | None = None) -> ActorsAndCritics:
        """Actors and critics, with the same initial weights at every worker."""
        options, generator = self.options, torch.Generator().manual_seed(self.group.shared_seed)
        layers = self.layers(generator)
        space = self.env.single_observation_space
        own = None if options.encoder is None else make_encoder(space, generator, options.encoder)
        encoder = JointEncoder(space, self.entities, generator, own)
        sizes: dict[str, Any] = {"actions": self.entities * self.actions.inputs, "outputs": self.entities}
        critics = Critics(encoder, **sizes, count=self.n_critics, **layers)
        shared = {"entities": self.entities, "shared": options.shared_actor}
        actors = Actors(encoder.of_one, self.actions.outputs, **shared, **layers)
        return ActorsAndCritics(critics, actors, temperature).to(self.device)

    def set_up_team(self, targets: Mapping[str, str]) -> None:
        """`set_up` with joint transitions: a transition is one of a lane, of all entities of the team."""
        o, group, layout = self.options, self.group, self.layout_of_row()
        rows = self.env.num_envs // len(self.places) * self.entities
        team: dict[str, Any] = {"entities": self.entities, "rows": rows, "n_step": o.n_step, "gamma": o.gamma}
        alone = len(group.teams) == group.size
        self.set_up(
            dict(self.network.named_children()),
            targets,
            experience=JointNStepBuilder(layout, **team) if alone else TeamNStepBuilder(group, layout, **team),
            normalizer=JointNormalizer,
            rank=group.teams.index(group.team),
            size=len(group.teams),
        )

    def made_up_batch(self) -> Transitions:
        entities, ones = self.entities, torch.ones(2, self.entities)
        leaves, masks, actions = self.made_up(2 * entities)
        each = [leaf.view(2, entities, *leaf.shape[1:]) for leaf in leaves]
        observations = (*each, ones.long())
        masks, actions = None if masks is None else masks.view(2, -1), actions.view(2, entities, *actions.shape[1:])
        columns = observations, masks, actions, ones, observations, masks, 0.9 * ones
        return Transitions(*columns, ones[:, 0], torch.arange(2))

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        return self.actions.choose(self.network(leaves, self.places), mask, generator)

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of all losses, the means of `metric_names`, and the mean errors of the critics [N]."""
        acts, masks = batch.observations[-1].float(), self._rows(batch.masks)  # [N, E], [N * E, mask_size]
        with torch.no_grad():
            targets = batch.rewards + batch.discounts * self.next_values(batch)  # [N, E]
            replayed = self.actions.to_critics(batch.actions) * acts.unsqueeze(-1)
        joint = self.network.encoder(batch.observations)
        values = self.network.critics(joint, replayed.flatten(1))  # [k, N, E]
        errors = values - targets
        critic_loss = (batch.weights.unsqueeze(-1) * errors.square()).mean((1, 2)).sum()  # eq. (6)
        detached = joint.detach()  # the critics' loss alone trains the encoder
        outputs = self.network.actors(self.network.encoder.by_entity(detached)).flatten(0, 1)  # [N * E, outputs]
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

    def next_values(self, batch: Transitions) -> Tensor:
        """min Q'_i(x', a') + alpha H_i of the next joint observations, [N, E]; a' are the actors' own."""
        critics, acts = self.targets["critics"].module, batch.next_observations[-1]
        joint = critics.encoder(batch.next_observations)
        outputs = self.next_outputs(batch, joint).flatten(0, 1)
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
    def next_outputs(self, batch: Transitions, joint: Tensor) -> Tensor:
        """The outputs [N, E, outputs] of the actors that targets are made of; joint: by the targets' encoder."""

    @abstractmethod
    def further_loss(self, outputs: Tensor, entropies: Tensor, acts: Tensor, mask: Tensor | None) -> Tensor | float:
        """A further loss of the actors' outputs [N * E, outputs] and entropies [N * E], of the entities that act."""

    def _rows(self, masks: Tensor | None) -> Tensor | None:
        """Joint masks [N, E * mask_size] as masks of single entities, [N * E, mask_size]."""
        return None if masks is None else masks.view(-1, self.actions.mask_size)

    # --------------------------------------------------------------------------------------- what the arena asks for

    def exported(self) -> Exported:
        """The actors for `arena export`; the input `entity` selects one."""
        box = "squashed_gaussian" if self.numbers is SquashedGaussianActions else "deterministic"
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, box=box),
            outputs=lambda network, inputs: network.of_entities(inputs[:-1], inputs[-1]),
            normalization=self.normalization,
            entities=self.entities,
        )

    @classmethod
    def _actions(cls, space: Space[Any], *, temperature: float) -> Actions:
        return (
            GumbelSoftmaxActions(space, temperature=temperature) if isinstance(space, Discrete) else cls.numbers(space)
        )

    @classmethod
    def check_team(cls, entities: int, first: int) -> None:
        """Checks that the algorithm can learn with a team of `entities`; the policy's first team has `first`."""
        check_team(cls.__name__, entities, first, instead="an algorithm of single entities: ddpg, sac or ppo")

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        cls._actions(space, temperature=1.0)


class JointNormalizer(ObservationNormalizer):
    """Normalizes joint observations, whose last leaf says which entities act: that of each entity by itself."""

    def describe_new(self, batch: NStepBatch) -> list[Statistics]:
        """Statistics of the entities that act in the observations that are new."""
        *leaves, acts = batch.points.observations
        return self.describe([leaf.flatten(0, 1) for leaf in leaves], acts.bool().flatten().numpy())

    def minibatch(self, batch: Transitions) -> Transitions:
        """A minibatch as the networks take it, by the current statistics, not those of the time of playing."""
        normalized = []
        for *leaves, acts in (batch.observations, batch.next_observations):
            rows = self([leaf.flatten(0, 1) for leaf in leaves])
            normalized.append((*(leaf.view(*acts.shape, *leaf.shape[1:]) for leaf in rows), acts))
        return batch.replace(observations=normalized[0], next_observations=normalized[1])


def check_joint_options(options: Any) -> None:
    """Checks the options that these algorithms have in common."""
    check_refused(options, *MEMORY, why="a team remembers nothing; take sac or ppo for each entity by itself")
    if options.gumbel_temperature == 0:
        raise wrong("gumbel_temperature", 0, "more than 0: nothing could be differentiated")
