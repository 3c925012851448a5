"""Multi-agent PPO (Yu et al. 2022, arXiv 2103.01955): PPO whose critic sees what all entities of a team see.

    actor    what entity i sees                                         --> pi(a | o_i); plays alone
    critic   what all entities of its lane see, which act, and i        --> V(o_1, ..., o_E, i); only for learning

With `recurrent` each entity remembers what it has seen itself, once for the actor and once for the critic. The critic
sees these memories of all entities of the lane; its gradient goes back through time in entity i's own sequence, while
the others' memories are those recorded when they played. In games with units the critic sees, of each entity, the mean
of its tokens.

Everything else is `policies.ppo`: each entity's transitions are rows of their own, with its own rewards, advantages and
episode ends, and all share one actor and one critic; a one-hot vector tells the critic whose value is asked for.

An entity that does not act, because it is out of the game or waits for its turn, is masked (section 5.5 of the paper,
*death masking*): the critic sees zeros in place of its observation, and a flag. Its transitions are not learned from.
Where an episode was cut, the critic sees the last observations of the entities whose episodes were cut there, the next
ones of entities that go on, and zeros for all others.

The paper's value normalization (section 5.1) is left out: the critic learns returns as they are; `normalize_rewards`
brings them to a moderate size.

A team is the entities of one seat, or of all workers of the policy that drive one each on their side of a match
(`Group.team`). In the second case these workers tell each other after each rollout what they have seen, and each learns
from what its own entity did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Tensor
from torch.nn import functional

from policies import ppo
from policies.common import average
from policies.common.columns import Column, cat, from_plain, to_plain
from policies.common.options import Count, Scheduled
from policies.common.rollout import Batch, Rollout, StateInputs
from policies.networks.actor_critic import ActorCritic, Encoder, Features
from policies.networks.heads import UnitHead
from policies.networks.units.options import Transformer
from policies.ppo import PPO
from policies.team.joint import TeamMember
from policies.team.networks import JointEncoder, TeamUnitActorCritic, masked


class Options(ppo.Options, frozen=True, kw_only=True):
    """What a configuration may say about MAPPO."""

    learning_rate: Scheduled = 5e-4  # step size of Adam, or its schedule; 0 plays without learning
    n_steps: Count = 128  # ticks per rollout
    ent_coef: Scheduled = 0.01  # weight of the entropy bonus, or its schedule
    minibatch_size: Count = 256  # transitions per worker in one gradient step, at most
    n_epochs: Count = 4  # passes over each rollout

    REFUSED = dict.fromkeys(average.OPTIONS, "its critic sees a whole team; or take ppo")


class TeamEncoder(JointEncoder):
    """Encodes what a row sees for the actor, and what all entities of its lane see for the critic.

    Its leaves are those of the row, [N, ...], with its memory if it has one. If a value is asked for, they are followed
    by those of all entities of its lane, [N, E, ...], which of them act, [N, E], and the row's place among them, [N].
    `own` is the encoder of what a row sees.
    """

    own: Encoder

    def __init__(self, own: Encoder, space: Space[Any], entities: int, generator: torch.Generator) -> None:
        super().__init__(space, entities, generator, own)
        self.critic_features = self.features + entities
        self.features, self.memory_size = self.of_one, own.memory_size

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Features [N, of_one] of the actor, followed by those of the critic if its leaves are given."""
        return self.unrolled(leaves, None)

    def ticked(self, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        features, memory = self.own.ticked(leaves[: self._of_row])
        return self.own.parted(features).actor, memory

    def unrolled(self, leaves: Sequence[Tensor], lengths: Tensor | None) -> Tensor:
        of_row = self.own.parted(self.own.unrolled(leaves[: self._of_row], lengths))
        if len(leaves) == self._of_row:
            return of_row.actor
        *joint, acts, places = leaves[self._of_row :]
        place = functional.one_hot(places, self.entities)
        rows = self.own.parted(self.own([leaf.flatten(0, 1) for leaf in joint]))
        seen = rows.critic.view(-1, self.entities, self.of_one)
        if self.memory_size:  # the row's own, as it goes on in its sequence
            seen = torch.where(place.bool().unsqueeze(-1), of_row.critic.unsqueeze(1), seen)
        return torch.cat([of_row.actor, masked(seen, acts), place], 1)

    def parted(self, features: Tensor) -> Features:
        """The features of actor and critic."""
        return Features(features[:, : self.of_one], features[:, self.of_one :])


class TeamInputs(NamedTuple):
    """What the lanes of a rollout have seen: `e` entities, those of a whole team or of one worker."""

    leaves: list[Column]  # [M, ...] what rows saw on any tick, after the last one, or where an episode was cut
    places: Tensor  # int64 [T + 1, L, e], the index in `leaves` on each tick, and after the last one
    acts: Tensor  # bool [T + 1, L, e], which entities act there
    finals: Tensor  # int64 [T, L, e], the index in `leaves` where an episode was cut on a tick; -1 elsewhere
    stays: Tensor  # bool [T, L, e], which entities act on a tick and on the next one, in one episode

    @classmethod
    def of(cls, rollout: Rollout, inputs: StateInputs, *, entities: int) -> TeamInputs:
        """The inputs of one worker, from what its rows have seen."""
        at, rows = rollout.final_places()
        finals = np.full((rollout.ticks, rollout.rows), -1)
        places = np.arange((rollout.ticks + 1) * rollout.rows).reshape(-1, rollout.rows)
        finals[at, rows] = places.size + np.arange(len(rows))
        goes_on = rollout.active[:-1] & rollout.active[1:] & ~rollout.ended
        leaves = [cat(parts) for parts in zip(*filter(None, inputs), strict=True)]
        columns = (places, rollout.active, finals, goes_on)
        return cls(leaves, *(torch.from_numpy(column).view(len(column), -1, entities) for column in columns))

    @classmethod
    def joined(cls, parts: Sequence[TeamInputs]) -> TeamInputs:
        """The inputs of a team, from those of its workers in the order of their seats."""
        counts = [len(part.leaves[0]) for part in parts]
        firsts = [sum(counts[:number]) for number in range(len(parts))]
        leaves, places, acts, finals, stays = zip(*parts, strict=True)

        def moved(indices: Sequence[Tensor]) -> Tensor:
            pairs = zip(indices, firsts, strict=True)
            return torch.cat([torch.where(part < 0, part, part + first) for part, first in pairs], 2)

        joint = [cat(columns) for columns in zip(*leaves, strict=True)]
        return cls(joint, moved(places), torch.cat(acts, 2), moved(finals), torch.cat(stays, 2))

    def to_samples(self) -> dict[str, Any]:
        """The nested dict of arrays that a worker sends; the inverse is `from_samples`."""
        leaves, *columns = self
        return {"leaves": [*map(to_plain, leaves)], "columns": [*map(to_plain, columns)]}

    @classmethod
    def from_samples(cls, samples: Mapping[str, Any]) -> TeamInputs:
        """Copies, as the arrays of a message are read-only."""
        return cls([*map(from_plain, samples["leaves"])], *map(from_plain, samples["columns"]))

    def seen(self, index: Tensor) -> list[Column]:
        """What all entities saw at an index of `leaves` [N, E]: leaves [N, E, ...]; of units [N], entity by entity."""
        fixed = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        if len(fixed) < len(self.leaves):
            return [leaf.index_select(0, one) for one in index.unbind(1) for leaf in self.leaves]
        return [leaf.index_select(0, index.flatten()).view(*index.shape, *leaf.shape[1:]) for leaf in fixed]


class MAPPO(TeamMember, PPO):
    """One worker of a MAPPO policy, of a team of two entities or more, whose spaces are equal."""

    Options = Options
    instead = "ppo"

    def make_network(self, generator: torch.Generator) -> ActorCritic | TeamUnitActorCritic:
        space: Any = self.env.single_observation_space
        if isinstance(self.head, UnitHead):
            transformer = self.options.transformer or Transformer()
            return TeamUnitActorCritic(space, self.head, transformer, generator, entities=self.entities)
        own = self.make_encoder(generator)
        return ActorCritic(TeamEncoder(own, space, self.entities, generator), self.head, **self.layers(generator))

    def made_up_batch(self) -> Batch:
        batch = super().made_up_batch()
        joint = [torch.stack([leaf] * self.entities, 1) for leaf in batch.observations]
        acts, places = torch.ones(2, self.entities, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
        return batch.replace(observations=(*batch.observations, *joint, acts, places))

    def inputs(self) -> StateInputs:
        """The network's inputs of the rollout: what each row sees, followed by what its whole lane sees."""
        rows, rollout, e = super().inputs(), self.rollout, len(self.places)
        team = TeamInputs.of(rollout, rows, entities=e)
        if len(self.group.teams) < self.group.size:
            parts = self.group.pool_team(team.to_samples())
            team = TeamInputs.joined([TeamInputs.from_samples(part) for part in parts])
        # Of each row of a lane, [(T + 1) * B, E], and the row's place among the entities.
        index, acts = (column.flatten(0, 1).repeat_interleave(e, 0) for column in (team.places, team.acts))
        place = torch.arange(self.places.start, self.places.stop).repeat(len(index) // e)
        beside = [
            [*team.seen(index[part]), acts[part], place[part]]
            for part in (slice(-rollout.rows), slice(-rollout.rows, None))
        ]
        finals = rows.finals and [*rows.finals, *self.final_inputs(rollout, team)]
        return StateInputs([*rows.played, *beside[0]], [*rows.last, *beside[1]], finals)

    def final_inputs(self, rollout: Rollout, team: TeamInputs) -> list[Column]:
        """What the lanes saw [K, ...] at the ends of this worker's episodes that were cut."""
        at, rows = map(torch.from_numpy, rollout.final_places())  # [K]
        lanes = rows // len(self.places)
        cut = team.finals[at, lanes]  # [K, E]
        index = torch.where(cut >= 0, cut, team.places[at + 1, lanes])
        stays = (cut >= 0) | team.stays[at, lanes]
        return [*team.seen(index), stays, self.places.start + rows % len(self.places)]
