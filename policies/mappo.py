"""Multi-agent PPO (Yu et al. 2022, arXiv 2103.01955): PPO whose critic sees what all entities of the seat see.

    actor    what entity i sees                                         --> pi(a | o_i); plays alone
    critic   what all entities of its lane see, who of them acts, and i --> V(o_1, ..., o_E, i); only for learning

Everything else is `policies.ppo`: each entity's transitions are rows of their own, with its own rewards, advantages and
episode ends, and all share one actor and one critic, which is told by a one-hot vector whose value is asked for.

An entity that does not act, as it is out of the game while others play, or waits for its turn, is masked (section 5.5
of the paper, *death masking*): the critic sees zeros for what it sees, and a flag that says so. Nobody learns from it.
Where an episode was cut, the critic sees the last observations of all whose episodes were cut there, what those see
that go on, and zeros for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn import functional

from arena.errors import ConfigError
from policies import ppo
from policies.joint_networks import JointEncoder
from policies.networks import Encoder, Features
from policies.on_policy import Sights
from policies.options import wrong
from policies.ppo import PPO
from policies.rollout import Rollout

if TYPE_CHECKING:
    from arena.group import Group


@dataclass(frozen=True)
class Options(ppo.Options):
    """What a configuration may say about MAPPO: what it may say about PPO, but for a memory.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    learning_rate: float = 5e-4  # step size of Adam; 0 plays without learning
    ent_coef: float = 0.01  # weight of the entropy bonus

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent is not None:
            raise wrong("recurrent", self.recurrent, "null: MAPPO's critic sees a whole team at one time; or take ppo")


class TeamEncoder(JointEncoder):
    """What a row sees, for the actor; what all entities of its lane see, and which of them it is, for the critic.

    Its leaves are those of the row, [N, ...]. Where a value is asked for there follow those of all entities of its
    lane, [N, E, ...], who of them acts, [N, E], and which of them the row is, [N].

    Args:
        space: one entity's observation space.
        entities: `E`.
        generator: where the initial weights come from.
    """

    def __init__(self, space: Space[Any], entities: int, generator: torch.Generator) -> None:
        super().__init__(space, entities, generator)
        self.critic_features = self.features + entities
        self.features = self.of_one

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Features [N, of_one], with those of the critic behind them where there is all that it sees."""
        count = len(self.parts)
        own = Encoder.forward(self, leaves[:count])
        if len(leaves) == count:
            return own
        joint = super().forward(leaves[count:-1])
        return torch.cat([own, joint, functional.one_hot(leaves[-1], self.entities)], 1)

    def parted(self, features: Tensor) -> Features:
        """What actor and critic see of them."""
        return Features(features[:, : self.of_one], features[:, self.of_one :])


class MAPPO(PPO):
    """One worker of a MAPPO policy; see `OnPolicy` for its arguments.

    Args:
        env, group, ticks, options: as of `OnPolicy`; a seat of two entities or more, whose spaces are equal.

    Raises:
        ConfigError: an option, a space or a seat that it cannot take.
    """

    Options = Options

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.entities = len(getattr(env, "seat_entities", ("alone",)))
        self.check_entities(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)

    def _encoder(self, generator: torch.Generator) -> TeamEncoder:
        return TeamEncoder(self.env.single_observation_space, self.entities, generator)

    def sights(self, rollout: Rollout) -> Sights:
        """What the network judges: what each row sees, and beside it what its whole lane does."""
        own = super().sights(rollout)
        ticks = [self._by_tick(torch.cat(pair), rollout) for pair in zip(own.played, own.last, strict=True)]
        acts = torch.from_numpy(rollout.active).view(len(rollout.active), -1, self.entities)
        beside = self._beside([leaf.flatten(0, 1) for leaf in ticks], acts.flatten(0, 1))
        count = own.played[0].shape[0]
        played, last = ([leaf[part] for leaf in beside] for part in (slice(count), slice(count, None)))
        finals = [*own.finals, *self._beside_finals(rollout, own.finals, ticks)] if own.finals else []
        return Sights([*own.played, *played], [*own.last, *last], finals)

    def _by_tick(self, leaf: Tensor, rollout: Rollout) -> Tensor:
        """A leaf [(T + 1) * B, ...] as [T + 1, L, E, ...]."""
        return leaf.view(rollout.ticks + 1, -1, self.entities, *leaf.shape[1:])

    def _beside(self, lanes: Sequence[Tensor], acts: Tensor) -> list[Tensor]:
        """What each row's lane sees, of leaves of lanes [N, E, ...] and of who acts [N, E]: leaves of rows [N * E]."""
        joint = [leaf.repeat_interleave(self.entities, 0) for leaf in (*lanes, acts)]
        return [*joint, torch.arange(self.entities).repeat(len(acts))]

    def _beside_finals(self, rollout: Rollout, finals: Sequence[Tensor], ticks: Sequence[Tensor]) -> list[Tensor]:
        """The same [K, ...] of the last observations of cut episodes, of leaves [T + 1, L, E, ...] of all ticks."""
        at, rows = rollout.final_places()  # [K]
        place = np.full((rollout.ticks, rollout.rows), -1)
        place[at, rows] = np.arange(len(rows))
        lanes = rows // self.entities
        which = torch.from_numpy(place.reshape(rollout.ticks, -1, self.entities)[at, lanes])  # [K, E]
        is_cut = which >= 0
        goes_on = rollout.active[:-1] & rollout.active[1:] & ~rollout.ended
        stays = torch.from_numpy(goes_on.reshape(rollout.ticks, -1, self.entities)[at, lanes])
        joint = []
        for leaf, final in zip(ticks, finals, strict=True):
            seen = leaf[torch.from_numpy(at) + 1, torch.from_numpy(lanes)]
            seen[is_cut] = final[which[is_cut]]
            joint.append(seen)
        return [*joint, is_cut | stays, torch.from_numpy(rows % self.entities)]

    # ------------------------------------------------------------------------------------------ what others ask for

    @classmethod
    def check_entities(cls, own: int, first: int) -> None:
        """Whether MAPPO can drive a seat of so many entities, where the policy's first seat has `first`.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        if own < 2:
            raise ConfigError(
                "MAPPO's critic sees what all entities of a seat see, and here the seat has one, which is plain PPO; "
                "seat the entities of a team together, as in seats: [[blue, blue], red, red], or take ppo"
            )
        if own != first:
            raise ConfigError(
                f"the seat has {own} entities, the policy's first one has {first}: MAPPO's critic looks at all "
                "entities of a seat together, so all its seats need equally many"
            )
