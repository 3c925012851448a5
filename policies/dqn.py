"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236) for one worker of a group, with what has become usual:

    double       y = R + gamma^n Q'(s', argmax_a Q(s', a))         van Hasselt et al. 2016, arXiv 1509.06461
    dueling      Q(s, a) = V(s) + A(s, a) - mean of A(s, .)        Wang et al. 2016, arXiv 1511.06581, eq. (9)
    n_step       R, the sum of n discounted rewards                as in Hessel et al. 2018, arXiv 1710.02298
    prioritized  what Q is most wrong about is replayed more often Schaul et al. 2016, arXiv 1511.05952

Q' is the target network, y of an episode that terminated is R alone, and a forbidden action is neither played nor
looked forward to. The loss is Huber's of Q(s, a) - y: its gradient is the error, cut to [-1, 1], as in the paper of
2015. How it is played, met and replayed is in `policies.common.off_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.common.algorithm import Figures
from policies.common.off_policy import OffPolicy, OffPolicyOptions
from policies.common.options import (
    AUTO,
    Auto,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Schedule,
    check_falls,
    check_unused,
)
from policies.common.replay import Transitions
from policies.common.target import Target
from policies.networks.actor_critic import Encoder, mlp
from policies.networks.distributions import allow, gumbel
from policies.networks.heads import DiscreteHead
from policies.networks.mlp import Storage


class Options(OffPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about DQN.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    learning_rate: NonNegative = 1e-3  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "linear"  # constant, or linear: falls to 0 at the end of the run
    batch_size: Count = 64  # transitions per worker in one gradient step
    training_intensity: Positive | Auto = AUTO  # transitions replayed per one collected; auto: 16 / sqrt(group's rows)
    n_step: Count = 3  # rewards that a transition sums before it asks for a value
    double: bool = True  # the network chooses the next action, the target network says what it is worth
    dueling: bool = True  # the network's last layer gives a value and advantages
    exploration_fraction: Fraction = 0.16  # part of the run in which epsilon falls
    exploration_initial_eps: Fraction = 1.0  # probability of a random action in the beginning
    exploration_final_eps: Fraction = 0.05  # and after it has fallen

    ALONE, FALLS = 16.0, 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "exploration_initial_eps", exploration_fraction=0)
        if self.exploration_fraction:
            check_falls(self, "exploration_initial_eps", "exploration_final_eps")


class QNetwork(nn.Module):
    """The value of each choice: Q(s, .) [N, choices].

    Value and advantages of a dueling network part after the last hidden layer: the outputs are (V, A), side by side.

    Args:
        space: one entity's observation space.
        choices: how many.
        dueling: see above.
        hidden_sizes: of the layers after the encoder.
        activation: a name in `policies.networks.mlp.ACTIVATIONS`.
        generator: where the initial weights come from.
    """

    def __init__(
        self,
        space: Space[Any],
        choices: int,
        *,
        dueling: bool,
        hidden_sizes: Sequence[int],
        activation: str,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(space, generator)
        self._mix: Tensor | None
        self.register_buffer("_mix", _dueling(choices) if dueling else None, persistent=False)
        self.layers = mlp(
            (self.encoder.features, *hidden_sizes),
            choices + dueling,
            activation=activation,
            output_gain=1.0,
            generator=generator,
            storage=Storage(hidden_sizes),
        )

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        """Q(s, .) [N, choices] for leaves [N, ...]."""
        return self._values(self.layers(self.encoder(leaves)))

    def traced(
        self, leaves: Sequence[Tensor], others: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Callable[[Tensor], None]]:
        """The same, that of others [M, ...], and the way from the gradient of the first alone to `grad` of the weights.

        To be called where autograd does not record. All go through the layers at once, which takes less than twice.
        """
        if self.encoder.learns:
            beside = self(others) if others is not None else None  # before: its layers would write over the trace
            values, backward = self._traced_images(leaves)
            return values, values[:0] if beside is None else beside, backward
        features = self.encoder(leaves)
        rows = features.shape[0]
        seen = features if others is None else torch.cat([features, self.encoder(others)])
        outputs, to_layers = self.layers.traced(seen, rows)
        values = self._values(outputs)
        return values[:rows], values[rows:], lambda gradient: to_layers(self._by_outputs(gradient))

    def _traced_images(self, leaves: Sequence[Tensor]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """The values, and the way back where the encoder has weights as well."""
        with torch.inference_mode(False), torch.enable_grad():  # the images' network is left to autograd
            features: Tensor = self.encoder(leaves)
            inputs = features.detach().requires_grad_()
            inputs.grad = torch.zeros_like(inputs)
        outputs, to_layers = self.layers.traced(inputs)

        def backward(gradient: Tensor) -> None:
            to_layers(self._by_outputs(gradient))
            torch.autograd.backward(features, inputs.grad)

        return self._values(outputs), backward

    def _values(self, outputs: Tensor) -> Tensor:
        return outputs if self._mix is None else outputs @ self._mix

    def _by_outputs(self, gradient: Tensor) -> Tensor:
        return gradient if self._mix is None else gradient @ self._mix.t()


def _dueling(choices: int) -> Tensor:
    """What makes Q of (V, A) side by side, [1 + choices, choices]: eq. (9) of arXiv 1511.06581 as one matrix."""
    return torch.cat([torch.ones(1, choices), torch.eye(choices) - 1 / choices])


class DQN(OffPolicy):
    """One worker of a DQN policy.

    Args:
        env, group, ticks, options: as of `OffPolicy`; the actions are Discrete.

    Raises:
        ConfigError: an option or a space that DQN cannot take.
    """

    Options = Options
    measured = ("loss", "q_value", "td_error")
    network: QNetwork

    # ------------------------------------------------------------------------------------- what is learnt, and plays

    def read_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.check_actions(action_space)
        assert isinstance(action_space, spaces.Discrete)
        self._observation_space = observation_space
        self.head = DiscreteHead(action_space)
        self.action_shape, self.action_dtype, self.mask_size = self.head.shape, self.head.dtype, self.head.mask_size

    def build(self, generator: torch.Generator) -> QNetwork:
        return QNetwork(
            self._observation_space,
            self.head.outputs,
            dueling=self.options.dueling,
            hidden_sizes=self.options.hidden_sizes,
            activation=self.options.activation,
            generator=generator,
        )

    def make_targets(self) -> dict[str, Target[Any]]:
        return {"network": Target(self.network, self.optimizers["optimizer"])}

    def act_randomly(self, rows: int, mask: Tensor | None) -> Tensor:
        return _uniform(rows, self.head.outputs, mask, self.generator)

    def explore(self, leaves: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        return self._epsilon_greedy(leaves, mask, self.epsilon, self.generator)

    def act(self, leaves: Sequence[Tensor], mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """The most valuable actions, or with `exploration_final_eps` any."""
        if generator is None:
            return allow(self.network(leaves), mask).argmax(1)
        return self._epsilon_greedy(leaves, mask, self.options.exploration_final_eps, generator)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.head.to_env(actions)

    def schedules(self) -> Figures:
        return {**super().schedules(), "epsilon": self.epsilon}

    @property
    def epsilon(self) -> float:
        """The probability of a random action now."""
        first, last = self.options.exploration_initial_eps, self.options.exploration_final_eps
        fallen = self.progress / self.options.exploration_fraction if self.options.exploration_fraction else 1.0
        return float(first + (last - first) * min(1.0, fallen))

    def _epsilon_greedy(
        self, leaves: Sequence[Tensor], mask: Tensor | None, epsilon: float, generator: torch.Generator
    ) -> Tensor:
        rows = leaves[0].shape[0]
        curious = torch.rand(rows, generator=generator).numpy() < epsilon
        count = np.count_nonzero(curious)
        drawn = _uniform(rows, self.head.outputs, mask, generator) if count else None
        if drawn is not None and count == rows:  # often so with a single row: no need to ask the network
            return drawn
        greedy = allow(self.network(leaves), mask).argmax(1)
        if drawn is None:
            return greedy
        return torch.where(torch.from_numpy(curious).to(greedy.device), drawn.to(greedy.device), greedy)

    # --------------------------------------------------------------------------------------------------- the maths

    @torch.inference_mode()
    def backward(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Adds the gradient of a minibatch's loss to `grad` of the weights; what is measured [3], and the errors [N].

        It is differentiated by hand; the tests compare that with torch's own derivative of the loss.
        """
        others = batch.next_observations if self.options.double else None
        values, choosing, to_network = self.network.traced(batch.observations, others)
        targets = self.targets_of(batch, choosing)
        chosen = batch.actions.unsqueeze(1)
        taken = values.gather(1, chosen).squeeze(1)
        errors = taken - targets
        slopes = errors.clamp(-1, 1)  # of Huber's loss, which is slope * (error - slope / 2)
        loss = torch.sub(errors, slopes, alpha=0.5).mul_(slopes).mul_(batch.weights)
        by_value = slopes.mul_(batch.weights).div_(batch.size)
        to_network(torch.zeros_like(values).scatter_(1, chosen, by_value.unsqueeze(1)))
        return torch.stack([loss, taken, errors.abs()]).mean(1), errors

    def targets_of(self, batch: Transitions, choosing: Tensor | None = None) -> Tensor:
        """y [N]; `choosing` is Q(s', .) [N, choices], if it is known already."""
        values = self.targets["network"].module(batch.next_observations)
        if not self.options.double:
            choosing = values
        elif choosing is None:
            choosing = self.network(batch.next_observations)
        best = allow(choosing, batch.next_masks).argmax(1, keepdim=True)
        return torch.addcmul(batch.rewards, batch.discounts, values.gather(1, best).squeeze(1))

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(
                f"DQN needs a value for every action, so the actions have to be Discrete, not {space}; ppo and a2c "
                "take such actions, and sac, td3 and ddpg a Box with bounds"
            )


def _uniform(rows: int, choices: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
    """Actions [rows], all that are allowed equally likely."""
    noise = gumbel((rows, choices), generator)
    return (noise if mask is None else allow(noise.to(mask.device), mask)).argmax(1)
