"""Value-decomposition networks (Sunehag et al. 2018, arXiv 1706.05296) for one worker of a group.

    team's value   Q(x, a) = sum over i of Q_i(o_i, a_i)
    target         y = r + gamma^n Q'(x', a'),   a'_i = argmax_a Q_i(o'_i, a)
    loss           mean of (Q(x, a) - y)^2

i is an entity of the team, o_i what it sees, x what all see; r is the team's reward, the mean of its entities' rewards.
The sum is largest where each term is, so every entity plays by its own values alone, from its own observation; only
learning needs those of the team.

An entity that does not act, because it is out of the game or waits for its turn, adds nothing to the sum. The episode
goes on for the team until it has terminated for all.

Q_i, exploration and the choice of next actions (`double`) are those of `policies.dqn`; teams, their joint transitions,
playing and replay are in `policies.team.learner`. The paper's networks have a memory, here an option (`recurrent`), and
some of them channels between entities, which are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from policies import dqn
from policies.common import average
from policies.common.options import (
    Count,
    Fraction,
    Natural,
    Positive,
    PositiveFraction,
    Schedule,
    Scheduled,
)
from policies.common.replay import Transitions
from policies.dqn import DQN
from policies.networks.heads import allow
from policies.team.learner import TeamLearner
from policies.team.networks import Actors, JointEncoder


class Options(dqn.Options, frozen=True, kw_only=True):
    """What a configuration may say about VDN."""

    learning_rate: Scheduled = 5e-4  # step size of Adam, or its schedule; 0 plays without learning; as in QMIX's paper
    learning_rate_schedule: Schedule = "constant"  # of a number: constant, or linear: falls to 0 at the end of the run
    buffer_size: Count = 100_000  # joint observations that the group's replay holds at most; the oldest go first
    learning_starts: Natural = 1_000  # joint transitions that the group collects with random actions before it learns
    batch_size: Count = 64  # joint transitions per team in one gradient step
    training_intensity: Positive = 16.0  # replays per joint transition
    gamma: Fraction = 0.95  # discount per joint transition
    n_step: Count = 1  # rewards that a transition sums before it asks for a value
    tau: PositiveFraction = 0.01  # how far the target network moves to what is learned; 1: it becomes a copy
    dueling: bool = False  # the actors' last layer gives a value and advantages
    huber: bool = False  # errors above 1 count linearly, not squared
    shared_actor: bool = True  # one network of values for all entities, which is told who it is; false: one for each

    REFUSED = dict.fromkeys(("transformer", *average.OPTIONS), "the networks see a whole team; or take dqn")


class TeamQNetwork(nn.Module):
    """The values of each entity's choices, and the team's value of a joint action.

    Args:
        encoder: of joint observations.
        choices: the number of actions of an entity.
        places: of the entities whose rows `forward` gets.
        shared, dueling: as the options say.
        layers: `hidden_sizes`, `activation` and `generator` of `mlp`.
    """

    def __init__(
        self, encoder: JointEncoder, choices: int, *, places: range, shared: bool, dueling: bool, **layers: Any
    ) -> None:
        super().__init__()
        self.encoder, self.places, self.dueling = encoder, places, dueling
        self.memory_size = encoder.memory_size
        sizes: dict[str, Any] = {"entities": encoder.entities, "shared": shared}
        self.actors = Actors(encoder.of_one, choices + dueling, **sizes, **layers)

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Q_i(o_i, .) [N * e, choices] of leaves of rows [N * e, ...], of the `e` entities at `places`, or of any.

        See `JointEncoder.of_rows`.
        """
        leaves, entities = self.encoder.of_rows(leaves)
        if entities is not None:
            return self._values(self.actors.of_entities(self.encoder.rows(leaves, 1).squeeze(1), entities))
        seen = self.encoder.rows(leaves, len(self.places))
        return self._values(self.actors(seen, self.places.start)).flatten(0, 1)

    def remember(self, leaves: Sequence[Tensor]) -> Tensor:
        """The memory [N, memory_size] of rows after a tick, of leaves of which the last is the memory before it."""
        return self.encoder.remember(self.encoder.of_rows(leaves)[0])

    def of_team(self, joint: Tensor) -> Tensor:
        """Q_i(o_i, .) [N, E, choices] of joint features."""
        return self._values(self.actors(self.encoder.by_entity(joint)))

    def taken(self, joint: Tensor, actions: Tensor) -> Tensor:
        """Q(x, a) [N] of joint features and actions [N, E]."""
        taken = self.of_team(joint).gather(2, actions.unsqueeze(2)).squeeze(2)
        return self.mixed(taken * self.encoder.acts(joint), joint)

    def mixed(self, values: Tensor, joint: Tensor) -> Tensor:
        """The team's value [N] of those of its entities [N, E], 0 where one does not act."""
        return values.sum(1)

    def _values(self, outputs: Tensor) -> Tensor:
        """Values of the outputs [..., choices], or with `dueling` [..., 1 + choices]: eq. (9) of arXiv 1511.06581."""
        if not self.dueling:
            return outputs
        advantages = outputs[..., 1:]
        return outputs[..., :1] + advantages - advantages.mean(-1, keepdim=True)


class VDN(TeamLearner, DQN):
    """One worker of a VDN policy; the actions are Discrete."""

    Options = Options
    takes_units = False
    instead = "dqn"

    def make_network(self, generator: torch.Generator) -> nn.Module:
        return TeamQNetwork(self.make_encoder(generator), self.actions.outputs, **self.actors(generator))

    def actors(self, generator: torch.Generator) -> dict[str, Any]:
        """Arguments of `TeamQNetwork`."""
        o = self.options
        return {"places": self.places, "shared": o.shared_actor, "dueling": o.dueling, **self.layers(generator)}

    def targets_of(self, batch: Transitions, next_features: Tensor) -> Tensor:
        """y [N]; with `double` the network chooses and the target network values."""
        target = self.targets["network"].module
        joint = batch.next_features(target.encoder)
        choosing = self.network.of_team(next_features) if self.options.double else target.of_team(joint)
        masks = None if batch.next_masks is None else batch.next_masks.view(choosing.shape)
        values = target.taken(joint, allow(choosing, masks).argmax(2))
        return torch.addcmul(batch.rewards.mean(1), batch.discounts.amax(1), values)
