"""What algorithms that learn from joint transitions of a team have in common: playing, replay, normalization.

A transition is one of a lane, of all entities of the team (see `policies.team.joint`); `learning_starts`, `buffer_size`
and `batch_size` count those.

A team is the entities of one seat, or of all workers of the policy that drive one each on their side of a match
(`Group.team`). In the second case each worker plays its entity, and they pool what they have seen whenever the group
meets. The first of them learns for the team, as a single worker that drives all entities would; so both ways of seating
learn the same: as many gradient steps, from as many joint transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.vector import VectorEnv
from torch import nn

from arena.group.group import Group
from policies.common.normalization import ObservationNormalizer, Statistics
from policies.common.nstep import NStepBatch
from policies.common.off_policy import OffPolicy
from policies.common.replay import Transitions
from policies.exporting import Exported, decoding_of, exported
from policies.team.joint import JointNStepBuilder, TeamNStepBuilder, check_team, places_of


class TeamLearner(OffPolicy):
    """One worker of an off-policy algorithm of teams of two entities or more, whose spaces are equal.

    Its network has `forward(leaves)`, of the rows of this worker's entities, and `of_entities(leaves, entities)`.

    Attributes:
        entities: of the team, `E`.
        places: of this worker's entities among them.
        instead: names algorithms that need no team.

    Raises:
        ConfigError: the team has one entity, or another number than the policy's first one.
    """

    learner = "team"
    served = None  # type: ignore[assignment]  # an entity's network has to know whose row it is
    instead: ClassVar[str]

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.entities, self.places = places_of(env, group)
        self.check_team(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)

    def set_up(self, parts: Mapping[str, nn.Module], targets: Mapping[str, str], **_: Any) -> None:
        """As of `OffPolicy`, with joint transitions."""
        o, group, layout = self.options, self.group, self.layout_of_row()
        rows = self.env.num_envs // len(self.places) * self.entities
        team: dict[str, Any] = {"entities": self.entities, "rows": rows, "n_step": o.n_step, "gamma": o.gamma}
        alone = len(group.teams) == group.size
        super().set_up(
            parts,
            targets,
            experience=JointNStepBuilder(layout, **team) if alone else TeamNStepBuilder(group, layout, **team),
            normalizer=JointNormalizer,
            rank=group.teams.index(group.team),
            size=len(group.teams),
        )

    # --------------------------------------------------------------------------------------- what the arena asks for

    def exported(self) -> Exported:
        """The networks of the entities for `arena export`; the input `entity` selects one."""
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, **self.export_as),
            outputs=lambda network, inputs: network.of_entities(inputs[:-1], inputs[-1]),
            normalization=self.normalization,
            entities=self.entities,
        )

    @classmethod
    def check_team(cls, entities: int, first: int) -> None:
        """Checks that the algorithm can learn with a team of `entities`; the policy's first team has `first`."""
        check_team(cls.__name__, entities, first, instead=cls.instead)


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
