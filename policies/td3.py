"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477) for one worker of a group.

DDPG (`policies.ddpg`) and three changes:

    clipped double Q    two critics learn; the target takes the lesser of their values            eq. (10)
    target smoothing    the target's action has clipped noise: near actions get near values       eq. (14)
    delay               the actor moves every `policy_delay` steps of the critics                 section 5.2

The paper moves the targets with the actor. Here they move every `target_update_interval` steps, as in all algorithms of
`policies.common.off_policy`: that is with the actor, unless one of the two options is changed.
"""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Space
from torch import Tensor

from policies import ddpg
from policies.common.options import Count, NonNegative, check_unused
from policies.networks.heads import normal
from policies.networks.reparameterized import UnitBox, noisy


class Options(ddpg.Options, frozen=True, kw_only=True):
    """What a configuration may say about TD3."""

    target_update_interval: Count = 2  # gradient steps between two moves of the target networks
    policy_delay: Count = 2  # gradient steps of the critics per one of the actor
    target_policy_noise: NonNegative = 0.2  # standard deviation of the noise in the target's action
    target_noise_clip: NonNegative = 0.5  # its largest size

    REFUSED = dict.fromkeys(("gumbel_temperature", "output_penalty"), "the actions of td3 are numbers; or take ddpg")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "target_noise_clip", target_policy_noise=0)


class TD3(ddpg.DDPG):
    """One worker of a TD3 policy; the actions are a Box with bounds."""

    Options = Options
    n_critics = 2

    @property
    def actor_is_due(self) -> bool:
        """Whether the next gradient step, counted over the whole run, is one that moves the actor."""
        return bool((self.gradient_steps + 1) % self.options.policy_delay == 0)

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        UnitBox(space)

    def smoothed(self, actions: Tensor) -> Tensor:
        """Actions [N, d] with clipped noise, in [-1, 1]."""
        std, clip = self.options.target_policy_noise, self.options.target_noise_clip
        return noisy(actions, normal(actions.shape, self.generator).mul_(std).clamp_(-clip, clip))
