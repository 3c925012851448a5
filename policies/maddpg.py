"""Multi-agent deep deterministic policy gradient (Lowe et al. 2017, arXiv 1706.02275) for one worker of a group.

    critics  y_i = r_i + gamma Q'_i(x', mu'_1(o'_1), ..., mu'_E(o'_E)),   loss = mean of (y_i - Q_i(x, a))^2   eq. (6)
    actors   loss = -mean of Q_i(x, a_1, ..., mu_i(o_i), ..., a_E), differentiated through Q_i by mu_i         eq. (5)
    targets  Q' and mu' follow Q and mu, by `tau` per gradient step

i is an entity of the team; x are the observations of all, o_i its own. Where actions are numbers, mu is deterministic
and explores with noise, as in `policies.ddpg`. Where they are choices, mu gives their logits; it explores by sampling,
and is differentiated by the straight-through Gumbel-softmax of `policies.networks.reparameterized`. A small penalty on
the squared outputs keeps both exploring.

Everything shared with MASAC, the equations above included, is in `policies.team.centralized`. Policy ensembles and the
inference of other entities' policies (sections 4.2 and 4.3 of the paper) are left out: the team's policies are known.
"""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv
from torch import Tensor

from arena.group.group import Group
from policies import ddpg
from policies.common.options import Count, Fraction, Natural, NonNegative, Positive, PositiveFraction, Sizes, check_idle
from policies.common.replay import Transitions
from policies.ddpg import NoisyActor
from policies.networks.critics import actor_features
from policies.networks.reparameterized import GumbelSoftmaxActions, TanhActions
from policies.team.centralized import Centralized


class Options(ddpg.Options, frozen=True, kw_only=True):
    """What a configuration may say about MADDPG."""

    buffer_size: Count = 1_000_000  # joint observations that the group's replay holds at most; the oldest go first
    learning_starts: Natural = 1_000  # joint transitions that the group collects with random actions before it learns
    batch_size: Count = 256  # joint transitions per team in one gradient step
    training_intensity: Positive = 16.0  # replays per joint transition
    train_every: Count = 4  # ticks between two meetings of the group, at which it learns
    gamma: Fraction = 0.95  # discount per joint transition
    tau: PositiveFraction = 0.01  # how far the target networks move to what is learned; 1: they become a copy
    max_grad_norm: Positive | None = 0.5  # gradients are scaled down to this norm at most; null: never
    hidden_sizes: Sizes = (64, 64)  # layers of each actor, and of the critic
    shared_actor: bool = True  # one actor for all entities, which is told who it is; false: one for each
    gumbel_temperature: Positive = 1.0  # of choices: lower values give gradients with less bias and more variance
    output_penalty: NonNegative = 1e-3  # weight of the actors' squared outputs in their loss


class MADDPG(NoisyActor, Centralized):
    """One worker of a MADDPG policy; the actions are Discrete, or a Box with bounds."""

    Options = Options
    export_as = {"box": "deterministic"}
    numbers = TanhActions
    n_critics = 1

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.network = self.make_network()
        self.set_up(dict(self.network.named_children()), {"critics": "critics", "actors": "actors"})
        if isinstance(self.actions, GumbelSoftmaxActions):
            where = f"the actions are {env.single_action_space}, whose choices are drawn"
            check_idle(self.options, *ddpg.NOISE, where=where)
        else:
            self.noise = ddpg.noise_of(self.options, env.num_envs, self.actions.inputs, self.generator)

    def next_outputs(self, batch: Transitions, joint: Tensor, seen: Tensor | None) -> Tensor:
        """The outputs of the target actors."""
        actors = self.targets["actors"].module
        return actors(self.network.encoder.by_entity(actor_features(actors, batch.next_features, joint)))  # type: ignore[no-any-return]

    def further_loss(self, outputs: Tensor, entropies: Tensor, acts: Tensor, mask: Tensor | None) -> Tensor:
        """`output_penalty` times the mean square of the outputs."""
        return self.options.output_penalty * (outputs.square() * acts.unsqueeze(-1)).mean()  # type: ignore[no-any-return]
