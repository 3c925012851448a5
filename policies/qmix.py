"""QMIX (Rashid et al. 2018, arXiv 1803.11485): VDN whose sum is a monotonic mixing network.

    team's value   Q(x, a) = w_2(s)' elu(W_1(s)' q + b_1(s)) + b_2(s),   q_i = Q_i(o_i, a_i)      section 4.1, figure 2
    monotonicity   no weight in W_1(s) and w_2(s) is negative, so no dQ / dQ_i is                 eq. (5)

The weights are the absolute values of what hypernetworks make of the state s; the biases may have any sign. So each
entity's best choice by its own values is its part of the best joint action, as with the sum, but the team's value may
depend on the choices together and on the state, which only learning needs.

s is the option `state`: a part of the observations that the entities do not see, such as the wrapper `state` adds from
the game itself; else what all entities see, or with memory remember, and which of them act. The hypernetworks of W_1
and w_2 have the hidden layers of `hypernet_sizes`, none in the paper, where b_1 is linear and b_2 has a hidden layer of
`mixing_units`.

Everything else is `policies.vdn`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from policies import vdn
from policies.common.options import Count, Sizes, Text
from policies.networks.actor_critic import linear, mlp
from policies.team.networks import JointEncoder, StateEncoder
from policies.vdn import VDN, TeamQNetwork

_SMALL = 0.01  # gain of the last layers of what is added, as of actors


class Options(vdn.Options, frozen=True, kw_only=True):
    """What a configuration may say about QMIX."""

    state: Text | None = None  # the key of the part of observations that is the state; null: all that entities see
    mixing_units: Count = 32  # hidden units of the mixing network; the paper has 32
    hypernet_sizes: Sizes = (64,)  # layers of the networks that make its weights, as in EPyMARL; []: as in the paper


class MixedQNetwork(TeamQNetwork):
    """As `TeamQNetwork`, with a mixing network of `units` hidden units; `hypernet_sizes` as the option."""

    def __init__(
        self,
        encoder: JointEncoder,
        choices: int,
        *,
        units: int,
        hypernet_sizes: Sequence[int],
        generator: torch.Generator,
        **actors: Any,
    ) -> None:
        super().__init__(encoder, choices, generator=generator, **actors)
        self.units, features = units, encoder.state_features
        layers: dict[str, Any] = {"activation": "relu", "gain": _SMALL, "generator": generator}
        self.first_weights = mlp(features, encoder.entities * units, hidden_sizes=hypernet_sizes, **layers)
        self.first_bias = linear(features, units, _SMALL, generator)
        self.last_weights = mlp(features, units, hidden_sizes=hypernet_sizes, **layers)
        self.last_bias = mlp(features, 1, hidden_sizes=(units,), **layers)
        # dQ / dq_i begins as the sum of `units` products of two weights, which are biases in the beginning: the mean of
        # the sum is 1, as in VDN. Weights that were multiples of the state made it grow with the square of the state,
        # to 12 for 150 numbers of deviation 5. In level-based foraging, random play of three entities, values were 0.58
        # after 2,000 gradient steps, and are 0.09 so; VDN's are 0.07.
        for network in (self.first_weights, self.last_weights):
            *_, bias = network.parameters()
            nn.init.normal_(bias, 0, math.sqrt(math.pi / (2 * units)), generator)

    def mixed(self, values: Tensor, joint: Tensor) -> Tensor:
        state = self.encoder.state_of(joint)
        weights = self.first_weights(state).abs().view(len(state), -1, self.units)  # [N, E, units]
        hidden = functional.elu(torch.einsum("ne,neu->nu", values, weights) + self.first_bias(state))
        mixed: Tensor = (hidden * self.last_weights(state).abs()).sum(1) + self.last_bias(state).squeeze(1)
        return mixed


class QMIX(VDN):
    """One worker of a QMIX policy; the actions are Discrete."""

    Options = Options

    def make_network(self, generator: torch.Generator) -> nn.Module:
        mixing = {"units": self.options.mixing_units, "hypernet_sizes": self.options.hypernet_sizes}
        return MixedQNetwork(self.make_encoder(generator), self.actions.outputs, **mixing, **self.actors(generator))

    def make_encoder(self, generator: torch.Generator, *, first: int = 0) -> JointEncoder:
        state, space = self.options.state, self.env.single_observation_space
        if state is None:
            return super().make_encoder(generator, first=first)
        make_row_encoder = partial(self.make_row_encoder, generator=generator, first=first)
        return StateEncoder(space, self.entities, generator, make_row_encoder, state=state)
