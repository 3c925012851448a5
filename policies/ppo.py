"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347) for one worker of a group.

    collect    T ticks with the current policy                                  -> rollout
    judge      log-probabilities, values and advantages (arXiv 1506.02438)      -> batch of transitions
    learn      some epochs of clipped-surrogate steps, together with the group's other workers

The first two, and how a group learns, are those of `policies.common.on_policy`; here is what makes it PPO.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from policies.common.algorithm import Average, Figures
from policies.common.on_policy import OnPolicy, OnPolicyOptions
from policies.common.options import AUTO, Auto, Count, NonNegative, Positive, wrong
from policies.common.rollout import Batch
from policies.networks.actor_critic import ActorCritic, Features

_LEAST = 64  # transitions in a minibatch with `minibatch_size: auto`; of N workers each has 64 / sqrt(N)
_MINIBATCHES = 32  # a large rollout is split into so many at most

Given = TypeVar("Given", bound="Options")


class Options(OnPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about PPO.

    Raises:
        ConfigError: a value of the wrong kind or out of its range, or two that contradict each other.
    """

    minibatch_size: Count | Auto = AUTO  # transitions per worker and gradient step; auto: at least 64 / sqrt(workers)
    n_epochs: Count = 10  # passes over each rollout
    clip_range: NonNegative = 0.2  # epsilon of the clipped surrogate
    clip_range_vf: Positive | None = None  # how far a value may move per update; null: freely
    target_kl: Positive | None = None  # an update stops when the group's KL exceeds 1.5 times this; null: never

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.minibatch_size
        if self.recurrent is not None and not isinstance(size, str) and self.sequence_length > size:
            most = f"{size} at most: a minibatch of minibatch_size transitions holds whole sequences"
            raise wrong("sequence_length", self.sequence_length, most)

    def settled(self: Given, *, rows: int, workers: int, ticks: int) -> Given:
        """The same options with a number in place of every `auto`."""
        given = super().settled(rows=rows, workers=workers, ticks=ticks)
        if given.minibatch_size != AUTO:
            return given
        least = given.sequence_length if given.recurrent is not None else 1
        part = -(-int(given.n_steps) * rows // _MINIBATCHES)
        return msgspec.structs.replace(given, minibatch_size=max(least, round(_LEAST / math.sqrt(workers)), part))


class PPO(OnPolicy[Options]):
    """One worker of a PPO policy; see `OnPolicy` for its arguments."""

    Options: ClassVar[type[Any]] = Options
    measured: ClassVar[tuple[str, ...]] = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
    early_stops = 0

    # ---------------------------------------------------------------------------------------------------- an update

    def learn(self, batch: Batch) -> Figures:
        """One update of the group's weights from one batch per worker, empty ones included; a collective."""
        figures = super().learn(batch)
        self.early_stops = int(figures.get("early_stops", self.early_stops))  # the root's, where it learns for all
        return figures

    def minibatches(self, transitions: int, *, workers: int = 1) -> int:
        """Into how many minibatches so many transitions, of one worker or of several, are split."""
        return math.ceil(transitions / (int(self.options.minibatch_size) * workers))

    def optimize(self, batch: Batch, minibatches: int, average: Average) -> Figures:
        """Some epochs of gradient steps; the means of what was measured on the way."""
        measured: list[Figures] = []
        for minibatch in self._shuffled(batch, minibatches):
            measured.append(self.gradients(minibatch, average))
            if self.diverged(measured[-1]):
                self.early_stops += 1
                break
            self.step()
        means = {name: float(np.mean([figures[name] for figures in measured])) for name in measured[0]}
        return {**means, "early_stops": float(self.early_stops)}

    def diverged(self, figures: Figures) -> bool:
        """Whether a minibatch shows the policy further from the one that has played than `target_kl` allows."""
        limit = self.options.target_kl
        return limit is not None and figures["approx_kl"] > 1.5 * limit

    def _shuffled(self, batch: Batch, minibatches: int) -> Iterator[Batch]:
        """The minibatches of all epochs, each epoch in a new order."""
        for _ in range(self.options.n_epochs):
            order = torch.randperm(batch.pieces, generator=self.generator)
            yield from batch.take(order.to(self.device)).split(minibatches)

    # --------------------------------------------------------------------------------------------------- the maths

    @torch.inference_mode()
    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of a minibatch's loss to `grad` of the weights; returns what is measured of it [5].

        The loss is -L of equation (9); all parts of it are means over the transitions:

            loss = policy_loss + vf_coef * value_loss - ent_coef * entropy

        It is differentiated here, by hand, with respect to log pi(a|s) and V(s); the distribution and the network know
        the way from there to the weights. The tests compare that with torch's own derivative of the equation.
        """
        return self.losses_backward(self.network, batch, 1 / batch.size).mean(1)

    def losses_backward(self, network: ActorCritic, batch: Batch, share: float) -> Tensor:
        """The same for a network and a loss to which each transition contributes a share; measured of each, [5, N]."""
        features, to_encoder = network.encoded(batch.observations, batch.lengths)
        surrogate, *others = self._policy_backward(network, features, batch, -share)
        value_errors = self._value_backward(network, features, batch, share)
        to_encoder()
        return torch.stack([-surrogate, value_errors, *others])

    def _policy_backward(
        self, network: ActorCritic, features: Features, batch: Batch, share: float
    ) -> tuple[Tensor, ...]:
        """The actor's part; the surrogate objective, entropy, divergence and what was clipped, [N] each.

        The objective is to rise: the share of it that is in the loss is negative.
        """
        policy, to_actor = network.traced_policy(features, batch.masks)
        log_ratio = policy.log_prob(batch.actions) - batch.log_probs
        ratio = log_ratio.exp()  # r(theta), section 3
        clipped = ratio.clamp(1 - self.options.clip_range, 1 + self.options.clip_range)
        gain, clipped_gain = ratio * batch.advantages, clipped * batch.advantages
        surrogate = torch.min(gain, clipped_gain)  # eq. (7)
        by_log_prob = gain.masked_fill_(gain > clipped_gain, 0.0).mul_(share)  # as dr = r dlog pi; 0 where clipped
        to_actor(policy.gradient(batch.actions, by_log_prob, self.options.ent_coef * share))
        divergence = (ratio - 1).sub_(log_ratio)  # k3 of joschu.net/blog/kl-approx.html
        return surrogate, policy.entropy(), divergence, (ratio != clipped).float()

    def _value_backward(self, network: ActorCritic, features: Features, batch: Batch, share: float) -> Tensor:
        """The critic's part; errors [N] of L^VF. With `clip_range_vf`, a value gains nothing by moving further."""
        values, to_critic = network.traced_value(features)
        difference = values - batch.returns
        errors = difference.square()
        if self.options.clip_range_vf is not None:
            move = values - batch.values
            near = move.clamp(-self.options.clip_range_vf, self.options.clip_range_vf)
            clipped = (batch.values + near - batch.returns).square()
            difference.masked_fill_((move != near) & (clipped >= errors), 0.0)  # the larger one does not move
            errors = torch.max(errors, clipped)
        to_critic(difference.mul_(2 * self.options.vf_coef * share))
        return errors

    # ------------------------------------------------------------------------------------------ what others ask for

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on: weights, optimiser, counters. Its workers draw from new streams."""
        return {**super().state_dict(), "early_stops": self.early_stops}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not PPO's, or its network has another shape.
        """
        super().load_state_dict(state)
        self.early_stops = int(state["early_stops"])

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows: as of any of these algorithms, and gradient steps per update.

        Raises:
            ConfigError: an option that PPO cannot take, or a rollout longer than the run.
        """
        given = cls.Options(**options)
        settled = given.settled(rows=rows, workers=workers, ticks=ticks)
        minibatch_size = int(settled.minibatch_size)
        minibatches = math.ceil(int(settled.n_steps) * rows / minibatch_size)
        sizes = super().sizes(options, rows=rows, ticks=ticks, workers=workers)
        if given.minibatch_size == AUTO:
            sizes["samples per gradient step"] = minibatch_size * workers
        return {**sizes, "gradient steps per update": minibatches * given.n_epochs}
