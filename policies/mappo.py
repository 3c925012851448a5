"""Multi-agent PPO (Yu et al. 2022, arXiv 2103.01955): PPO whose critic sees what all entities of a team see.

    actor    what entity i sees                                         --> pi(a | o_i); plays alone
    critic   what all entities of its lane see, which act, and i        --> V(o_1, ..., o_E, i); only for learning

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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn import functional

from arena.group.group import Group
from policies import ppo
from policies.common.on_policy import EXTENSIONS, MEMORY
from policies.common.options import Count, Scheduled, check_refused, wrong
from policies.common.rollout import Rollout, StateInputs
from policies.common.tensors import to_arrays, to_tensors
from policies.networks.actor_critic import ActorCritic, Encoder, Features
from policies.ppo import PPO
from policies.team.joint import check_team, places_of
from policies.team.networks import JointEncoder


class Options(ppo.Options, frozen=True, kw_only=True):
    """What a configuration may say about MAPPO."""

    learning_rate: Scheduled = 5e-4  # step size of Adam, or its schedule; 0 plays without learning
    n_steps: Count = 128  # ticks per rollout
    ent_coef: Scheduled = 0.01  # weight of the entropy bonus, or its schedule
    minibatch_size: Count = 256  # transitions per worker in one gradient step, at most
    n_epochs: Count = 4  # passes over each rollout

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent is not None:
            raise wrong("recurrent", self.recurrent, "null: MAPPO's critic sees a whole team at one time; or take ppo")
        check_refused(self, *EXTENSIONS, why="MAPPO's networks see a whole team; or take ppo")


class TeamEncoder(JointEncoder):
    """Encodes what a row sees for the actor, and what all entities of its lane see for the critic.

    Its leaves are those of the row, [N, ...]. If a value is asked for, they are followed by those of all entities of
    its lane, [N, E, ...], which of them act, [N, E], and the row's place among them, [N].
    """

    def __init__(self, space: Space[Any], entities: int, generator: torch.Generator) -> None:
        super().__init__(space, entities, generator)
        self.critic_features = self.features + entities
        self.features = self.of_one

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Features [N, of_one] of the actor, followed by those of the critic if its leaves are given."""
        count = len(self.parts)
        of_row = Encoder.forward(self, leaves[:count])
        if len(leaves) == count:
            return of_row
        joint = super().forward(leaves[count:-1])
        return torch.cat([of_row, joint, functional.one_hot(leaves[-1], self.entities)], 1)

    def parted(self, features: Tensor) -> Features:
        """The features of actor and critic."""
        return Features(features[:, : self.of_one], features[:, self.of_one :])


class TeamInputs(NamedTuple):
    """What the lanes of a rollout have seen: `e` entities, those of a whole team or of one worker."""

    observations: list[Tensor]  # leaves [T + 1, L, e, ...] on each tick, and after the last one
    acts: Tensor  # bool [T + 1, L, e], which entities act there
    finals: list[Tensor]  # leaves [K, ...] of episodes that were cut; empty where none was
    which: Tensor  # int64 [T, L, e], the index in `finals` where an episode was cut on a tick; -1 elsewhere
    stays: Tensor  # bool [T, L, e], which entities act on a tick and on the next one, in one episode

    @classmethod
    def of(cls, rollout: Rollout, inputs: StateInputs, *, entities: int) -> TeamInputs:
        """The inputs of one worker, from what its rows have seen."""
        at, rows = rollout.final_places()
        place = np.full((rollout.ticks, rollout.rows), -1)
        place[at, rows] = np.arange(len(rows))
        goes_on = rollout.active[:-1] & rollout.active[1:] & ~rollout.ended

        def by_lane(ticks: Tensor) -> Tensor:
            return ticks.view(len(ticks), -1, entities, *ticks.shape[2:])

        leaves = [torch.cat(pair) for pair in zip(inputs.played, inputs.last, strict=True)]
        leaves = [leaf.view(rollout.ticks + 1, -1, *leaf.shape[1:]) for leaf in leaves]
        acts, which, stays = (by_lane(torch.from_numpy(column)) for column in (rollout.active, place, goes_on))
        return cls([by_lane(leaf) for leaf in leaves], acts, inputs.finals, which, stays)

    @classmethod
    def joined(cls, parts: Sequence[TeamInputs]) -> TeamInputs:
        """The inputs of a team, from those of its workers in the order of their seats."""
        observations, acts, finals, places, stays = zip(*parts, strict=True)
        counts = [len(leaves[0]) if leaves else 0 for leaves in finals]
        firsts = [sum(counts[:number]) for number in range(len(parts))]
        which = [torch.where(part < 0, part, part + first) for part, first in zip(places, firsts, strict=True)]
        return cls(
            observations=[torch.cat(leaves, 2) for leaves in zip(*observations, strict=True)],
            acts=torch.cat(acts, 2),
            finals=[torch.cat(leaves) for leaves in zip(*filter(None, finals), strict=True)],
            which=torch.cat(which, 2),
            stays=torch.cat(stays, 2),
        )


class MAPPO(PPO):
    """One worker of a MAPPO policy, of a team of two entities or more, whose spaces are equal."""

    Options = Options
    refused_options = (*MEMORY, *EXTENSIONS, "transformer")
    takes_units = False

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.entities, self.places = places_of(env, group)
        self.check_team(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)

    def make_network(self, generator: torch.Generator) -> ActorCritic:
        encoder = TeamEncoder(self.env.single_observation_space, self.entities, generator)
        return ActorCritic(encoder, self.head, **self.layers(generator))

    def inputs(self) -> StateInputs:
        """The network's inputs of the rollout: what each row sees, followed by what its whole lane sees."""
        rows, rollout, e = super().inputs(), self.rollout, len(self.places)
        team = TeamInputs.of(rollout, rows, entities=e)
        if len(self.group.teams) < self.group.size:
            parts = self.group.pool_team(to_arrays(team._asdict()))
            team = TeamInputs.joined([TeamInputs(**to_tensors(part)) for part in parts])
        # Leaves of lanes [(T + 1) * L, E, ...], given to each of their rows, and the row's place among the entities.
        lanes = [leaf.flatten(0, 1) for leaf in (*team.observations, team.acts)]
        beside = [leaf.repeat_interleave(e, 0) for leaf in lanes]
        beside.append(torch.arange(self.places.start, self.places.stop).repeat(len(lanes[-1])))
        count = rows.played[0].shape[0]
        played, last = ([leaf[part] for leaf in beside] for part in (slice(count), slice(count, None)))
        return StateInputs([*rows.played, *played], [*rows.last, *last], self.final_inputs(rows.finals, rollout, team))

    def final_inputs(self, finals: list[Any], rollout: Rollout, team: TeamInputs) -> list[Any]:
        """The same [K, ...] at the ends of this worker's episodes that were cut."""
        if not finals:
            return finals
        at, rows = map(torch.from_numpy, rollout.final_places())  # [K]
        lanes = rows // len(self.places)
        which = team.which[at, lanes]  # [K, E]
        is_cut = which >= 0
        joint = []
        for leaf, final in zip(team.observations, team.finals, strict=True):
            after = leaf[at + 1, lanes]
            after[is_cut] = final[which[is_cut]]
            joint.append(after)
        return [*finals, *joint, is_cut | team.stays[at, lanes], self.places.start + rows % len(self.places)]

    # -------------------------------------------------------------------------------------- what the arena asks for

    @classmethod
    def check_team(cls, entities: int, first: int) -> None:
        """Refuses a team of `entities` with which it cannot learn; the policy's first team has `first`."""
        check_team("MAPPO", entities, first, instead="ppo")
