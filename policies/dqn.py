"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236) for one worker of a group, with the usual extensions:

    double       y = R + gamma^n Q'(s', argmax_a Q(s', a))         van Hasselt et al. 2016, arXiv 1509.06461
    dueling      Q(s, a) = V(s) + A(s, a) - mean of A(s, .)        Wang et al. 2016, arXiv 1511.06581, eq. (9)
    n_step       R, the sum of n discounted rewards                as in Hessel et al. 2018, arXiv 1710.02298
    prioritized  transitions of large errors are replayed more     Schaul et al. 2016, arXiv 1511.05952
    recurrent    a memory; sequences are replayed, with burn-in    Kapturowski et al. 2019 (R2D2)

Q' is the target network. Without options it follows Q a little at every gradient step, as in Lillicrap et al. 2016
(arXiv 1509.02971): with a copy that is kept for 100 steps CartPole was unlearned again with some seeds. Where the
episode has terminated, y is R alone. The maximum is over the allowed actions. The loss is Huber's of Q(s, a) - y: its
gradient is the error, clipped to [-1, 1], as in the paper of 2015. Where y is random and its spread large, this finds
no mean but a number between mean and median: -1.30 instead of -0.72 for a bluff in Kuhn poker. So an average policy
has the mean squared error, as in the paper of 2016, and `huber: false` has it anywhere. Playing, replay and the
exchange in the group are in `policies.common.off_policy`. With `recurrent`, values are not rescaled as in R2D2, and the
parts of sequences that are learned from do not overlap.

In games with units each decision d of a row has values of its own, and Q(s, a) = V(s) + the sum over d of A_d(s, a_d),
for any number of decisions (value decomposition: Sunehag et al. 2018, arXiv 1706.05296). The maximum over all joint
choices is that of each decision by itself. V and A are the value and the logits of the network that `ppo` has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import Self

from arena.errors import ConfigError
from arena.game.units import UnitSpace
from arena.group.group import Group
from policies.common.algorithm import Metrics
from policies.common.average import Averaging, check_average
from policies.common.columns import RaggedTensor
from policies.common.off_policy import MEMORY, OffPolicy, OffPolicyOptions
from policies.common.options import (
    AUTO,
    Auto,
    Count,
    Curve,
    Fraction,
    NonNegative,
    Points,
    Positive,
    PositiveFraction,
    Schedule,
    Scheduled,
    Sizes,
    check_falls,
    check_idle,
    check_unused,
    numbers_of,
    value_at,
    wrong,
)
from policies.common.replay import Transitions
from policies.networks.actor_critic import Encoder, mlp
from policies.networks.heads import Decisions, action_head, allow
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Transformer, schema_of

_TAU = 0.01  # of a target network that moves at every gradient step


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about DQN."""

    learning_rate_schedule: Schedule = "linear"  # of a number: constant, or linear: falls to 0 at the end of the run
    buffer_size: Count = 100_000  # observations that the group's replay holds at most; the oldest go first
    batch_size: Count = 64  # transitions per worker in one gradient step
    train_every: Count = 4  # ticks between two meetings of the group, at which it learns
    training_intensity: Positive | Auto = AUTO  # replays per sample; auto: round(64 / sqrt(group's rows)), 1 to 16
    tau: PositiveFraction | Auto = AUTO  # how far the target network moves; auto: 0.01 at every step, else 1, a copy
    n_step: Count = 3  # rewards that a transition sums before it asks for a value
    max_grad_norm: Positive | None = 10.0  # gradients are scaled down to this norm at most; null: never
    hidden_sizes: Sizes = (64, 64)  # layers of each network
    double: bool = True  # the network chooses the next action, the target network values it
    dueling: bool = True  # the network's last layer gives a value and advantages
    huber: bool | Auto = AUTO  # errors above 1 count linearly, not squared; auto: true, unless `average` is true
    epsilon: Scheduled | None = None  # probability of a random action, or its schedule; null: by the next three
    exploration_fraction: Fraction = 0.16  # part of the run in which epsilon falls
    exploration_initial_eps: Fraction = 1.0  # probability of a random action in the beginning
    exploration_final_eps: Fraction = 0.05  # and after it has fallen
    exploration_spread: NonNegative = 0.0  # worker i of N explores with epsilon^(1 + spread * i / (N - 1))
    average: bool = False  # learn the mean of all best responses, too: others meet and evaluate it; it mixes if sampled
    anticipatory: PositiveFraction = 0.1  # chance that an episode is played by the best response, not by that mean
    reservoir_size: Count = 200_000  # decisions of best responses, of all so far, that the group keeps for it
    transformer: Transformer | None = None  # network of seats that see units; null: its defaults

    INTENSITY, INTENSITY_EXPONENT, LARGEST_INTENSITY = 64.0, 0.5, 16.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_average(self)
        check_unused(self, "exploration_initial_eps", exploration_fraction=0)
        if self.exploration_fraction:
            check_falls(self, "exploration_initial_eps", "exploration_final_eps")
        if self.epsilon is not None:
            spelled = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
            check_idle(self, *spelled, where="epsilon is set")
            if max(numbers_of(self.epsilon)) > 1:
                raise wrong("epsilon", max(numbers_of(self.epsilon)), "a probability, at most 1")

    @property
    def exploration(self) -> float | Curve | Points:
        """The probability of a random action in the course of the run."""
        if self.epsilon is not None:
            return self.epsilon
        first, last, until = self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        return Curve(start=first, end=last, until=until) if until else last

    def settled(self, *, rows: int, workers: int) -> Self:
        tau = (_TAU if self.target_update_interval == 1 else 1.0) if self.tau == AUTO else self.tau
        huber = not self.average if self.huber == AUTO else self.huber
        return msgspec.structs.replace(super().settled(rows=rows, workers=workers), tau=tau, huber=huber)


class QNetwork(nn.Module):
    """The value of each choice: Q(s, .) [N, choices].

    Value and advantages of a dueling network part after the last hidden layer: the outputs are (V, A), side by side.

    Args:
        encoder: of observations.
        choices: the number of actions.
        dueling: see above.
        layers: `hidden_sizes`, `activation` and `generator` of `mlp`.
    """

    def __init__(self, encoder: Encoder, choices: int, *, dueling: bool, **layers: Any) -> None:
        super().__init__()
        self.encoder = encoder
        # Makes Q of (V, A) side by side, [1 + choices, choices]: eq. (9) of arXiv 1511.06581.
        mix = torch.cat([torch.ones(1, choices), torch.eye(choices) - 1 / choices]) if dueling else None
        self.mix: Tensor | None
        self.register_buffer("mix", mix, persistent=False)
        self.layers = mlp(encoder.features, choices + dueling, gain=1.0, **layers)

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Q(s, .) [N, choices] for leaves [N, ...]."""
        return self.values(self.encoder(leaves))

    def values(self, features: Tensor) -> Tensor:
        """Q(s, .) [N, choices] for what the encoder has found, [N, features]."""
        outputs: Tensor = self.layers(features)
        return outputs if self.mix is None else outputs @ self.mix

    def taken(self, features: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [N] for features [N, features] and actions [N]."""
        return self.values(features).gather(1, actions.unsqueeze(1)).squeeze(1)

    @property
    def memory_size(self) -> int:
        """Numbers that a row remembers."""
        return self.encoder.memory_size

    def remember(self, leaves: Sequence[Tensor]) -> Any:
        """The memory [N, memory_size] after a tick, of leaves of which the last is the memory before it."""
        return self.encoder.ticked(leaves)[1]


class UnitQNetwork(UnitActorCritic):
    """V(s) and A of all choices of units: its value, and the logits of its decisions."""

    def value_of(self, leaves: Sequence[Any], actions: RaggedTensor) -> Tensor:
        """Q(s, a) [N] of N rows and their decisions [D, 2]."""
        decisions, values = self.policy_and_value(leaves)
        return values + actions.sums(decisions.logits_of(actions))


class DQN(Averaging, OffPolicy):
    """One worker of a DQN policy; the actions are Discrete, or decisions of units."""

    Options: ClassVar[type[Any]] = Options
    takes_units = True
    metric_names = ("loss", "q_value", "td_error")

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        idle = ("hidden_sizes", "activation", "dueling", "encoder", "extra_loss", *MEMORY)
        self.units = schema_of(self.options, env.single_observation_space, *idle)
        if self.units is None:
            self.check_actions(env.single_action_space)
        self.actions = action_head(env.single_action_space)
        self.network = self.make_network(torch.Generator().manual_seed(group.shared_seed)).to(self.device)
        self.set_up({"optimizer": self.network}, {"network": "optimizer"})

    def make_network(self, generator: torch.Generator) -> nn.Module:
        """The network, whose initial weights are drawn from `generator`."""
        space = self.env.single_observation_space
        if isinstance(space, UnitSpace):
            return UnitQNetwork(space, self.actions, self.options.transformer or Transformer(), generator)
        return QNetwork(
            self.make_encoder(generator), self.actions.outputs, dueling=self.options.dueling, **self.layers(generator)
        )

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Any:
        return self._epsilon_greedy(leaves, mask, self.epsilon, self.generator)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Any:
        """The most valuable actions, or random ones as often as at the end of the run."""
        if generator is None:
            found = self.network(leaves)
            return found.mode() if isinstance(found, Decisions) else allow(found, mask).argmax(1)
        return self._epsilon_greedy(leaves, mask, value_at(self.configured.exploration, 1.0), generator)

    def schedules(self) -> Metrics:
        return {**super().schedules(), "epsilon": self.epsilon}

    @property
    def epsilon(self) -> float:
        """The probability of a random action now."""
        others = self.group.size - 1  # workers explore differently (Horgan et al. 2018, arXiv 1803.00933, section 4)
        power = 1 + self.options.exploration_spread * self.group.rank / others if others else 1.0
        return float(value_at(self.options.exploration, self.progress) ** power)

    def _epsilon_greedy(
        self, leaves: Sequence[Tensor], mask: Tensor | None, epsilon: float, generator: torch.Generator
    ) -> Any:
        if isinstance(self.network, UnitQNetwork):  # each decision by itself
            decisions = self.network(leaves)
            explores, greedy = torch.rand(decisions.total, 1, generator=generator) < epsilon, decisions.mode()
            uniform = self.uniform(decisions, generator).values
            return greedy.with_values(torch.where(explores.to(greedy.device), uniform, greedy.values))
        explores = torch.rand(leaves[0].shape[0], generator=generator) < epsilon
        count = int(explores.count_nonzero())
        if count == len(explores):  # often so with a single row: the network is not needed
            return self.actions.uniform(count, mask, generator)
        greedy = allow(self.network(leaves), mask).argmax(1)
        if count == 0:
            return greedy
        uniform = self.actions.uniform(len(explores), mask, generator)
        return torch.where(explores.to(greedy.device), uniform.to(greedy.device), greedy)

    def loss(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of Q(s, a) - y, the means of `metric_names`, and the errors [N]."""
        if isinstance(self.network, UnitQNetwork):
            taken = self.network.value_of(batch.observations, batch.actions)
            with torch.no_grad():
                targets = self.unit_targets(batch)
        else:
            features, next_features = batch.all_features(self.network.encoder)
            taken = self.network.taken(features, batch.actions)
            with torch.no_grad():
                targets = self.targets_of(batch, next_features)
        loss_of_errors = functional.huber_loss if self.options.huber else functional.mse_loss
        losses = batch.weights * loss_of_errors(taken, targets, reduction="none")
        errors = (taken - targets).detach()
        return losses.mean(), torch.stack([losses, taken, errors.abs()]).mean(1).detach(), errors

    def targets_of(self, batch: Transitions, next_features: Tensor) -> Tensor:
        """y = r + gamma^n max Q'(s', .) [N]; with `double` the network chooses and the target network values.

        `next_features` are those that the network's encoder finds in the next observations.
        """
        target = self.targets["network"].module
        values: Tensor = target.values(batch.next_features(target.encoder))
        choosing = self.network.values(next_features) if self.options.double else values
        best = allow(choosing, batch.next_masks).argmax(1, keepdim=True)
        return torch.addcmul(batch.rewards, batch.discounts, values.gather(1, best).squeeze(1))

    def unit_targets(self, batch: Transitions) -> Tensor:
        """As `targets_of`, with the best decisions of units."""
        target = self.targets["network"].module
        best = (self.network if self.options.double else target)(batch.next_observations).mode()
        return torch.addcmul(batch.rewards, batch.discounts, target.value_of(batch.next_observations, best))

    @property
    def export_as(self) -> dict[str, Any]:  # type: ignore[override]  # depends on an option
        return {"choice": "values", "epsilon": value_at(self.configured.exploration, 1.0)}

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(
                f"{cls.__name__} needs a value for every action, so the actions have to be Discrete, not {space}; ppo "
                "and a2c take such actions, and sac, td3 and ddpg a Box with bounds"
            )
