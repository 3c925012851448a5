"""IMPALA: actors that do not wait for their learner, and V-trace (Espeholt et al. 2018, arXiv 1802.01561).

    actors    play n steps with the newest weights that have arrived: the behavior policy mu
    learner   rank 0 of the group: a gradient step of its own policy pi on the trajectories of all actors

`sync: samples` and `max_lag` of the policy say how far the actors may be ahead, see `policies.common.algorithm`: so
many updates at most lie between mu and pi. The importance weights correct for them:

    rho_t = min(rho_bar, pi(a_t|x_t) / mu(a_t|x_t))    decides whose values are learned: pi's, if the bound is infinite
    c_t   = min(c_bar, pi(a_t|x_t) / mu(a_t|x_t))      decides how fast, and with how much variance
    delta_t = rho_t (r_t + gamma V(x_t+1) - V(x_t))
    v_s   = V(x_s) + sum over t of gamma^(t-s) (c_s ... c_t-1) delta_t,  t = s, ..., s+n-1                 equation (1)

Values step towards v_s, and the policy along the gradient of section 4.2, with that of its entropy:

    rho_s grad log pi(a_s|x_s) (r_s + gamma v_s+1 - V(x_s))

This is the step of `policies.a2c` with other advantages and returns. Samples of the newest weights have weights of 1,
so that with `sync: gradients` and `gae_lambda: 1` the algorithm is A2C. With a smaller one it is not: A2C multiplies
the gradient by v_s - V(x_s), IMPALA by r_s + gamma v_s+1 - V(x_s).

Other than in the paper, the learner is one of the actors, an update has a trajectory of each of them, and Adam has the
place of RMSProp, which is `adam_beta1: 0, adam_beta2: 0.99`: momentum adds to the staleness of samples. Rewards are
clipped by the wrapper `clip_reward`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from policies import a2c
from policies.a2c import A2C
from policies.common.options import Count, Fraction, Scheduled, wrong
from policies.common.rollout import Advantages, Batch, Floats, Trajectories, advantages_of

Bound = Annotated[float, Meta(ge=1)]  # below 1, samples of the newest weights would have smaller weights than 1


class Options(a2c.Options, frozen=True, kw_only=True):
    """What a configuration may say about IMPALA."""

    n_steps: Count = 20  # ticks of a trajectory
    gae_lambda: Fraction = 1.0  # how far value targets look ahead (remark 2): 0 one step, 1 to the end
    ent_coef: Scheduled = 0.01  # weight of the entropy bonus, or its schedule
    rho_bar: Bound = 1.0  # bound of a transition's importance weight, in v_s (equation 1) and the policy gradient
    c_bar: Bound = 1.0  # bound of the importance weights with which v_s looks further ahead (equation 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c_bar > self.rho_bar:
            raise wrong("c_bar", self.c_bar, f"{self.rho_bar} at most, which is rho_bar")


class IMPALA(A2C):
    """One actor of an IMPALA policy; rank 0 of the group is the learner as well."""

    Options = Options

    def with_advantages(
        self, batch: Batch, played: Trajectories, ratios: Floats | None = None
    ) -> tuple[Batch, Advantages]:
        """The batch with rho_s (r_s + gamma v_s+1 - V(x_s)) as advantages and v_s as returns.

        `ratios` are pi / mu [T, B]; None: samples of the newest weights.
        """
        o = self.options
        bounds = {"rho_bar": o.rho_bar, "c_bar": o.c_bar}
        found = advantages_of(played, gamma=o.gamma, gae_lambda=o.gae_lambda, ratios=ratios, **bounds)
        rho = 1.0 if ratios is None else np.minimum(ratios, o.rho_bar)
        advantages, targets = (torch.from_numpy(part).float().flatten() for part in (rho * found.gains, found.returns))
        return batch.replace(advantages=advantages, returns=targets), found
