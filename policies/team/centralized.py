"""Centralised critics, decentralised actors: what MADDPG and MASAC have in common (Lowe et al. 2017, arXiv 1706.02275).

    actor of entity i   what i sees                                                --> i's action; plays alone
    critics             what all entities of the team see and do, in one lane     --> Q_1, ..., Q_E; only for learning

    critics  y_i = r_i + gamma (min Q'_i(x', a') + alpha H_i),   loss = mean over i of (y_i - Q_i(x, a))^2     eq. (6)
    actors   loss = -mean over i of min Q_i(x, a with a_i of now) + alpha H_i, differentiated by a_i alone     eq. (5)

x is what all see, a what all do: in both as it was replayed, but for a_i. A critic is one network with a value for each
entity, since all of them are asked the same; each is learnt from its own rewards. H_i is the entropy of i's actor, and
alpha what it weighs: 0 in MADDPG. Several critics are several networks, of which the least value counts.

An entity that does not act, as it is out of the game while others play, or waits for its turn, is masked: critics see
zeros for what it sees and does, and a flag that says so; its actor learns nothing there. What follows the end of its
episode is worth nothing to it, whatever the others do.

How it is played, met and replayed is in `policies.common.off_policy`, where a transition is a joint one of a lane here,
see `policies.team.joint`: `learning_starts`, `buffer_size` and `batch_size` count those.

A team is the entities of one seat, or of all workers of the policy that drive one each on their side of a match
(`Group.team`). In the second case each worker plays its entity, and they put together what they have seen whenever the
group meets, see `policies.team.workers`. The first of them learns for the team, in the place where one worker would
that drives all; so both ways of seating learn the same: as many gradient steps, from as many joint transitions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Discrete, Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from policies.common.adam import Adam
from policies.common.algorithm import Figures
from policies.common.normalization import Statistics
from policies.common.nstep import Fragment
from policies.common.off_policy import OffPolicy
from policies.common.options import check_idle, wrong
from policies.common.replay import Transitions
from policies.common.target import Target
from policies.networks.critics import Critics
from policies.networks.reparameterized import Actions, Choices, PlainNumbers
from policies.team.joint import JointExperience, joint_space
from policies.team.networks import Actors, ActorsAndCritics, JointEncoder
from policies.team.seating import check_team, places_of
from policies.team.workers import TeamExperience

if TYPE_CHECKING:
    from arena.group.group import Group


class Centralised(OffPolicy):
    """One worker of an algorithm with centralised critics and decentralised actors. A subclass says which actions.

    Args:
        env, group, ticks, options: as of `OffPolicy`; a team of two entities or more, whose spaces are equal.

    Attributes:
        entities: of the team, `E`.
        own: the places of this worker's entities among them.

    Raises:
        ConfigError: an option, a space or a team that the algorithm cannot take.
    """

    measured = ("critic_loss", "q_value", "actor_loss", "entropy")
    learner = "team"
    numbers: type[PlainNumbers]  # what actions are where they are no choices
    n_critics: int
    network: ActorsAndCritics
    actions: Actions

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.entities, self.own = places_of(env, group)
        self.check_team(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)

    # ------------------------------------------------------------------------------------- what a subclass says

    @property
    def alpha(self) -> float:
        """What a nat of entropy is worth."""
        return 0.0

    @abstractmethod
    def next_outputs(self, batch: Transitions, joint: Tensor) -> Tensor:
        """The outputs [N, E, outputs] of the actors that targets are made of; joint: by the targets' encoder."""

    def learn_more(self, outputs: Tensor, entropies: Tensor, acts: Tensor, mask: Tensor | None) -> Tensor | float:
        """What else the actors' outputs [N * E, outputs] mean: adds to `grad` of other weights.

        Returns:
            the gradient of further losses of the actors, by the outputs.
        """
        return 0.0

    # ------------------------------------------------------------------------------------- what is learnt, and plays

    def read_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space = observation_space
        self.actions = self._actions(action_space, temperature=self.options.gumbel_temperature)
        self.action_shape, self.action_dtype = self.actions.shape, self.actions.dtype
        self.mask_size = self.actions.mask_size
        if not isinstance(action_space, Discrete):
            check_idle(self.options, "gumbel_temperature", where=f"the actions are {action_space}")

    @classmethod
    def _actions(cls, space: Space[Any], *, temperature: float) -> Actions:
        return Choices(space, temperature=temperature) if isinstance(space, Discrete) else cls.numbers(space)

    def build(self, generator: torch.Generator) -> ActorsAndCritics:
        layers = {"hidden_sizes": self.options.hidden_sizes, "activation": self.options.activation}
        encoder = JointEncoder(self.observation_space, self.entities, generator)
        critics = Critics(
            encoder,
            actions=self.entities * self.actions.inputs,
            outputs=self.entities,
            count=self.n_critics,
            generator=generator,
            **layers,
        )
        shared = {"entities": self.entities, "shared": self.options.shared_actor}
        actors = Actors(encoder.of_one, self.actions.outputs, generator=generator, **shared, **layers)
        return ActorsAndCritics(critics, actors)

    def make_optimizers(self) -> dict[str, Adam]:
        return {"critics": self.adam(self.network.critics), "actors": self.adam(self.network.actors)}

    def make_targets(self) -> dict[str, Target[Any]]:
        return {"critics": Target(self.network.critics, self.optimizers["critics"])}

    def act_randomly(self, rows: int, mask: Tensor | None) -> Tensor:
        return self.actions.uniform(rows, mask, self.generator)

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        return self.act(leaves, mask, self.generator)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        return self.actions.choose(self.network(leaves, self.own), mask, generator)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.actions.to_env(actions)

    # ------------------------------------------------------------------------------------------------ joint transitions

    @property
    def learners(self) -> int:
        return len(self.group.teams)

    @property
    def learner_rank(self) -> int:
        return self.group.teams.index(self.group.team)

    @property
    def transition_rows(self) -> int:
        return self.env.num_envs // len(self.own)  # a lane's is one

    def layout(self) -> dict[str, Any]:
        return {
            "space": joint_space(self.observation_space, self.entities),
            "action_shape": (self.entities, *self.action_shape),
            "action_dtype": self.action_dtype,
            "mask_size": self.entities * self.mask_size,
            "reward_shape": (self.entities,),
        }

    def _experience(self) -> JointExperience:
        layout = {
            "space": self.observation_space,
            "entities": self.entities,
            "action_shape": self.action_shape,
            "action_dtype": self.action_dtype,
            "mask_size": self.mask_size,
            "rows": self.transition_rows * self.entities,
            "n_step": self.options.n_step,
            "gamma": self.options.gamma,
        }
        if self.learners == self.group.size:
            return JointExperience(**layout)
        return TeamExperience(self.group, **layout)

    def describe(self, fragment: Fragment) -> list[Statistics]:
        *seen, acts = fragment.observations
        return self.normalize.describe([leaf.flatten(0, 1) for leaf in seen], acts.bool().flatten().numpy())

    def _seen(self, batch: Transitions) -> Transitions:
        now, then = (self._normalized(leaves) for leaves in (batch.observations, batch.next_observations))
        return batch._replace(observations=now, next_observations=then)

    def _normalized(self, joint: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        *seen, acts = joint
        rows = self.normalize([leaf.flatten(0, 1) for leaf in seen])
        return *(leaf.view(*acts.shape, *leaf.shape[1:]) for leaf in rows), acts

    # --------------------------------------------------------------------------------------------------- the maths

    @torch.no_grad()
    def gradients(self, batch: Transitions) -> tuple[Figures, Tensor]:
        """Adds the gradients of all losses to `grad` of the weights; what is measured, and the mean errors [N].

        All is differentiated by hand, with the ways back of `policies.networks.critics` and `policies.networks.mlp`.
        The tests compare that with torch's own derivative of the losses.
        """
        if batch.size == 0:
            return dict.fromkeys(self.measured, 0.0), torch.zeros(0)
        targets = batch.rewards + batch.discounts * self.next_values(batch)  # [N, E]
        taken = self._masked(self.actions.to_critics(batch.actions), batch.observations[-1])
        joint, values, to_critics = self.network.critics.traced(batch.observations, taken.flatten(1))
        errors = values - targets  # [k, N, E]
        weighted = errors * batch.weights.unsqueeze(-1)
        to_critics(weighted * (2 / targets.numel()))
        critic_loss = float((weighted * errors).mean((1, 2)).sum())
        actor_loss, entropy = self._actors_backward(joint, taken, batch)
        measured = (critic_loss, float(values.mean()), actor_loss, entropy)
        return dict(zip(self.measured, measured, strict=True)), errors.abs().mean((0, 2))

    def next_values(self, batch: Transitions) -> Tensor:
        """min Q'_i(x', a') + alpha H_i of the next joint sights, [N, E]; a' are the actors' own."""
        critics, acts = self.targets["critics"].module, batch.next_observations[-1]
        joint = critics.encoder(batch.next_observations)
        outputs = self.next_outputs(batch, joint).flatten(0, 1)
        drawn = self.actions.sample(outputs, self._rows(batch.next_masks), self.generator)
        inputs = self._masked(drawn.inputs.view(*acts.shape, -1), acts)
        least: Tensor = critics(joint, inputs.flatten(1)).amin(0)
        return least + self.alpha * drawn.entropies.view(acts.shape) * acts

    def _actors_backward(self, joint: Tensor, taken: Tensor, batch: Transitions) -> tuple[float, float]:
        """Adds the gradient of the actors' loss to `grad`; the loss, and the mean entropy of those who act."""
        acts, masks = batch.observations[-1].float(), self._rows(batch.masks)
        outputs, to_actors = self.network.actors.traced(self.network.encoder.own(joint))
        rows, share = outputs.flatten(0, 1), 1 / acts.numel()  # the loss is a mean
        drawn = self.actions.sample(rows, masks, self.generator)
        values, by_now = self._values_of(self._masked(drawn.inputs.view(taken.shape), acts), joint, taken)
        by_rows = drawn.backward(by_now.flatten(0, 1) * -share, -self.alpha * share)
        by_rows += self.learn_more(rows, drawn.entropies, acts.flatten(), masks)
        to_actors(self._masked(by_rows.view(outputs.shape), acts))
        entropies = drawn.entropies.view(acts.shape) * acts
        loss = -(values * acts + self.alpha * entropies).mean()
        return float(loss), float(entropies.sum() / acts.sum())

    def _values_of(self, now: Tensor, joint: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """min Q_i [N, E] of i's action of now among the others' of then, and its gradient by that [N, E, inputs].

        The critics are asked about E * N joint actions, in each of which one entity's is of now; of the E values there
        the one of that entity counts.
        """
        each, every = torch.arange(now.shape[1], device=now.device), torch.arange(len(now), device=now.device)
        asked = taken.repeat(len(each), 1, 1, 1)  # [E, N, E, inputs]
        asked[each, :, each] = now.transpose(0, 1)
        values, to_asked = self.network.critics.probed(joint.repeat(len(each), 1), asked.flatten(0, 1).flatten(1))
        values = values.view(-1, *asked.shape[:3])  # [k, E, N, E]
        least, which = values[:, each, :, each].min(1)  # [E, N], out of [E, k, N]
        by_values = torch.zeros_like(values)
        by_values[which, each[:, None], every, each[:, None]] = 1.0
        by_asked = to_asked(by_values.flatten(1, 2)).view(asked.shape)
        return least.t(), by_asked[each, :, each].transpose(0, 1)

    def _masked(self, numbers: Tensor, acts: Tensor) -> Tensor:
        """Numbers [N, E, ...] of those who act [N, E]; the others' are 0."""
        return numbers * acts.unsqueeze(-1)

    def _rows(self, masks: Tensor | None) -> Tensor | None:
        """Joint masks [N, E * mask_size] as those of single entities, [N * E, mask_size]."""
        return None if masks is None else masks.view(-1, self.mask_size)

    # ------------------------------------------------------------------------------------------ what others ask for

    @classmethod
    def check_team(cls, own: int, first: int) -> None:
        """Whether the algorithm can learn with a team of so many entities, where the policy's first one has `first`.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        check_team(cls.__name__, own, first, instead="an algorithm of single entities: ddpg, sac or ppo")

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        cls._actions(space, temperature=1.0)


def check_joint_options(options: Any) -> None:
    """Checks the options that these algorithms have in common.

    Raises:
        ConfigError: one has a value that it cannot have.
    """
    if options.gumbel_temperature == 0:
        raise wrong("gumbel_temperature", 0, "more than 0: nothing could be differentiated")
