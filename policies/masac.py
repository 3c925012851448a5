"""Multi-agent soft actor-critic: SAC (`policies.sac`) with the centralized critics of MADDPG (`policies.maddpg`).

    critics      y_i = r_i + gamma (min Q'_i(x', a') + alpha H_i),   loss = mean of (y_i - Q_i(x, a))^2, for two
    actors       loss = -mean of min Q_i(x, a_1, ..., pi_i(o_i), ..., a_E) + alpha H_i
    temperature  loss = mean of alpha (H_i - the target entropy), one alpha for all entities

i is an entity of the team; x are the observations of all, o_i its own; a' are the actors' own actions, all sampled, and
H_i is the entropy of i's actor: exact for choices, estimated by the sample for numbers. Soft values, twin critics and
temperature are those of Haarnoja et al. 2018 (arXiv 1812.05905, equations 3, 5, 7 and 18); the centralized critics are
those of Lowe et al. 2017 (arXiv 1706.02275). Choices are differentiated by the straight-through Gumbel-softmax of
`policies.networks.reparameterized`: an exact sum, as SAC has it, would ask the critics about every joint choice.

What is shared with MADDPG is in `policies.team.centralized`.
"""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies import sac
from policies.common.algorithm import Metrics
from policies.common.options import (
    Auto,
    Count,
    Fraction,
    Natural,
    Positive,
    PositiveFraction,
    Scheduled,
    Sizes,
)
from policies.common.replay import Transitions
from policies.networks.critics import Temperature
from policies.networks.reparameterized import SquashedGaussianActions, check_reachable, target_entropy
from policies.team.centralized import Centralized


class Options(sac.Options, frozen=True, kw_only=True):
    """What a configuration may say about MASAC."""

    learning_rate: Scheduled = 1e-3  # step size of Adam for all parts, or its schedule; 0 plays without learning
    buffer_size: Count = 1_000_000  # joint observations that the group's replay holds at most; the oldest go first
    learning_starts: Natural = 1_000  # joint transitions that the group collects with random actions before it learns
    batch_size: Count = 256  # joint transitions per team in one gradient step
    training_intensity: Positive = 16.0  # replays per joint transition
    train_every: Count = 4  # ticks between two meetings of the group, at which it learns
    gamma: Fraction = 0.95  # discount per joint transition
    tau: PositiveFraction = 0.01  # how far the target networks move to what is learned; 1: they become a copy
    max_grad_norm: Positive | None = 0.5  # gradients are scaled down to this norm at most; null: never
    hidden_sizes: Sizes = (64, 64)  # layers of each actor, and of each critic
    target_entropy: float | Auto = "auto"  # in nats; auto: minus the size of the Box, or 0.3 log(choices)
    shared_actor: bool = True  # one actor for all entities, which is told who it is; false: one for each
    gumbel_temperature: Positive = 1.0  # of choices: lower values give gradients with less bias and more variance

    REFUSED = {"transformer": "its critics see no units; or take mappo"}


class MASAC(Centralized):
    """One worker of a MASAC policy; the actions are Discrete, or a Box with bounds."""

    Options = Options
    export_as = {"box": "squashed_gaussian"}
    numbers = SquashedGaussianActions
    n_critics = 2

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        check_reachable(self.options.target_entropy, env.single_action_space)
        self.network = self.make_network(Temperature() if self.options.ent_coef == "auto" else None)
        self.set_up(dict(self.network.named_children()), {"critics": "critics"})

    def schedules(self) -> Metrics:
        return {**super().schedules(), "ent_coef": self.alpha}

    def next_outputs(self, batch: Transitions, joint: Tensor, seen: Tensor | None) -> Tensor:
        """The outputs of the current actors; the critics' encoder differs from the targets' only if it learns."""
        encoder = self.network.encoder
        if seen is None:
            seen = batch.next_features(encoder) if encoder.learns else joint
        return self.network.actors(encoder.by_entity(seen))  # type: ignore[no-any-return]

    def further_loss(self, outputs: Tensor, entropies: Tensor, acts: Tensor, mask: Tensor | None) -> Tensor | float:
        """The temperature's loss, by the entities that act."""
        if self.network.temperature is None:
            return 0.0
        target = target_entropy(self.actions, self.options.target_entropy, outputs, mask)
        return self.network.temperature.log_alpha.exp() * ((entropies - target) * acts).mean().detach()
