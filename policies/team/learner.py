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
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from policies.common.algorithm import Served
from policies.common.normalization import ObservationNormalizer, Statistics
from policies.common.nstep import NStepBatch
from policies.common.off_policy import OffPolicy
from policies.extensions import encoder_of
from policies.networks.actor_critic import Encoder
from policies.team.joint import JointNStepBuilder, TeamMember, TeamNStepBuilder
from policies.team.networks import JointEncoder


class TeamLearner(TeamMember, OffPolicy):
    """One worker of an off-policy algorithm of teams of two entities or more, whose spaces are equal.

    Its network has `forward(leaves)`, of the rows of this worker's entities, or of any rows if the last leaf says whose
    they are (`JointEncoder.of_rows`); with a memory also `memory_size` and `remember(leaves)`, of a row.
    """

    learner = "team"

    def set_up(self, parts: Mapping[str, nn.Module], targets: Mapping[str, str], **_: Any) -> None:
        """As of `OffPolicy`, with joint transitions."""
        rank, size = self.group.teams.index(self.group.team), len(self.group.teams)
        super().set_up(parts, targets, normalizer=JointNormalizer, rank=rank, size=size)

    def make_experience(self, **steps: Any) -> JointNStepBuilder:
        rows = self.env.num_envs // len(self.places) * self.entities
        team, layout = {"entities": self.entities, "rows": rows, **steps}, self.layout_of_row()
        alone = len(self.group.teams) == self.group.size
        return JointNStepBuilder(layout, **team) if alone else TeamNStepBuilder(self.group, layout, **team)

    def make_encoder(self, generator: torch.Generator, *, first: int = 0) -> JointEncoder:
        own = self.make_row_encoder(self.env.single_observation_space, generator, first=first)
        return JointEncoder(self.env.single_observation_space, self.entities, generator, own)

    def make_row_encoder(self, space: Space[Any], generator: torch.Generator, *, first: int = 0) -> Encoder | None:
        """The encoder that the options say, of what one entity sees; None: the built-in one, without memory."""
        o = self.options
        return None if o.encoder is None and o.recurrent is None else encoder_of(o, space, generator, first=first)

    def made_up(self, rows: int = 2) -> tuple[list[Any], Tensor | None, Any]:
        """As of `Algorithm`, of so many lanes in which all entities act."""
        leaves, masks, actions = super().made_up(rows * self.entities)
        joint = [leaf.unflatten(0, (rows, self.entities)) for leaf in leaves]
        acts = torch.ones(rows, self.entities, dtype=torch.int64)
        return [*joint, acts], None if masks is None else masks.view(rows, -1), actions.unflatten(0, acts.shape)

    # --------------------------------------------------------------------------------------- what the arena asks for

    def served(self) -> Served:
        return super().served()._replace(entities=self.entities)


class JointNormalizer(ObservationNormalizer):
    """Normalizes joint observations as those of each entity by itself; their last leaf says which of them act."""

    def describe_new(self, batch: NStepBatch) -> list[Statistics]:
        """Statistics of the entities that act in the observations that are new."""
        *leaves, acts = batch.points.observations
        return self.describe([leaf.flatten(0, 1) for leaf in leaves], acts.bool().flatten().numpy())
