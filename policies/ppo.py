"""Proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347) for one worker of a group.

collect    T ticks with the current policy                                        -> rollout
evaluate   log-probabilities, values and advantages (GAE, arXiv 1506.02438)       -> transitions
update     some epochs of gradient steps on the clipped surrogate, as one group   -> metrics
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from typing_extensions import Self

from arena.game.units import UnitSpace
from arena.group.group import Group, Moments, moments_alone
from policies.common.adam import group_optimizer
from policies.common.algorithm import Backward, Metrics, check_autoreset, lags_of, moved
from policies.common.average import AveragePolicy, Averaging, Decisions, check_average
from policies.common.columns import Columns, RaggedTensor, cat
from policies.common.devices import DeviceInputs, Recorded, is_gpu
from policies.common.joint_rollouts import RolloutWorker
from policies.common.normalization import joined
from policies.common.on_policy import OnPolicy, OnPolicyOptions, collect
from policies.common.options import AUTO, Auto, Count, NonNegative, Positive, PositiveFraction, wrong
from policies.common.rollout import (
    COUNTS,
    Advantages,
    Batch,
    Evaluation,
    Floats,
    Rows,
    StateInputs,
    Trajectories,
    advantages_of,
    evaluate_network,
    values_of,
)
from policies.networks.actor_critic import ActorCritic
from policies.networks.units.tokens import units_of

_LEAST = 64  # transitions in a minibatch with `minibatch_size: auto`; of N workers each has 64 / sqrt(N)
_MINIBATCHES = 32  # a large rollout is split into so many at most


class Options(OnPolicyOptions, frozen=True, kw_only=True):
    """What a configuration may say about PPO."""

    minibatch_size: Count | Auto = AUTO  # transitions per worker and gradient step; auto: at least 64 / sqrt(workers)
    n_epochs: Count = 10  # passes over each rollout
    clip_range: NonNegative = 0.2  # epsilon of the clipped surrogate
    clip_range_vf: Positive | None = None  # how far a value may move per update; null: freely
    target_kl: Positive | None = None  # an update stops when the group's KL exceeds 1.5 times this; null: never
    average: bool = False  # learn the mean of all best responses, too: others meet and evaluate it; it mixes if sampled
    anticipatory: PositiveFraction = 0.1  # chance that an episode is played by the best response, not by that mean
    reservoir_size: Count = 200_000  # decisions of best responses, of all so far, that the group keeps for it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_average(self)
        size = self.minibatch_size
        if self.recurrent is not None and not isinstance(size, str) and self.sequence_length > size:
            most = f"{size} at most: a minibatch of minibatch_size transitions holds whole sequences"
            raise wrong("sequence_length", self.sequence_length, most)

    def settled(self, *, rows: int, workers: int, ticks: int) -> Self:
        o = super().settled(rows=rows, workers=workers, ticks=ticks)
        if o.minibatch_size != AUTO:
            return o
        least = o.sequence_length if o.recurrent is not None else 1
        part = -(-int(o.n_steps) * rows // _MINIBATCHES)
        return msgspec.structs.replace(o, minibatch_size=max(least, round(_LEAST / math.sqrt(workers)), part))


class Turn(Columns, frozen=True):
    """What rows see before they act, on the device."""

    noise: Tensor  # [N, outputs] that their actions are sampled with


class PPO(Averaging, OnPolicy):
    """One worker of a PPO policy."""

    Options: ClassVar[type[Any]] = Options
    takes_units = True
    metric_names: ClassVar[tuple[str, ...]] = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.early_stops = 0
        acts, learns = map(is_gpu, (self.acts_on, self.device))
        moves = acts and type(self).inputs is PPO.inputs  # others combine inputs on the CPU
        self.seen = DeviceInputs(self.rollout.ticks, env.num_envs, self.acts_on) if moves else None
        self.sample = Recorded(self.sampled) if acts and self.options.cuda_graphs else self.sampled
        self._recorded = Recorded(self._zeroed_backward) if learns and self.options.cuda_graphs else None
        if getattr(self.options, "average", False):
            self.average, self.rollout.remembers = AveragePolicy(self), True
            self.parts.append("average")
        self.track(*self.parts, updates=self, ticks_done=self, early_stops=self)

    def run(self) -> None:
        """Collects and learns until the environment raises `BudgetReached`."""
        check_autoreset(self.env, type(self).__name__)
        rollout = self.rollout
        if is_gpu(self.acts_on):
            rollout.pin()
        self.share_weights()
        rollout.begin(*self.env.reset())
        if self.average is not None:
            self.average.begins[:] = True
        while True:
            with self.acting():
                noise = self.draw_noise(rollout.ticks - rollout.played)
                if (worker := RolloutWorker.of(self, PPO, noise)) is None:
                    collect(self.env, self.head, rollout, self.act, noise)
                else:
                    worker.collect()
            done = self.ticks_done + self.n_steps
            for metrics in self.learned():
                metrics = {**metrics, **self.schedules()} if metrics else metrics
                self.early_stops = int(metrics.get("early_stops", self.early_stops))  # of rank 0, if it learns for all
                self.ticks_done = done  # before `record`, which may save the state
                self.updates += 1
                check = self.options.check_every and self.updates % self.options.check_every == 0
                self.record(metrics, check=bool(check))
            self.ticks_done = done
            rollout.advance()

    def act(self, t: int, noise: Tensor, rows: Rows) -> Any:
        """Samples actions of some rows on tick `t`; `head.to_env` converts them for the environment."""
        leaves = self.normalization.observations(self.rollout.leaves(t, rows))
        leaves = moved(leaves, self.device) if self.seen is None else self.seen.put(t, rows, leaves)
        mask = moved(self.rollout.mask(t, rows), self.device)
        actions, memory = self.sample(Turn(tuple(leaves), mask, noise if self.average is None else noise[:, :-1]))
        if memory is not None:
            self.rollout.remember(t, memory.cpu(), rows)
        if self.average is not None:
            self.average.begins[rows] |= self.rollout.ended[t - 1, rows]
            actions = self.average.mixed(actions, leaves, mask, noise, rows)
            self.rollout.note_given()[t, rows] |= ~self.average.best[rows]
        return actions.cpu().numpy()

    def sampled(self, turn: Turn) -> tuple[Any, Tensor | None]:
        """The actions of rows, and their memory after them."""
        policy, memory = self.network.act(turn.observations, turn.masks)
        return policy.sample(turn.noise), memory

    @property
    def needs_log_probs(self) -> bool:
        """Whether anything reads the log-probabilities of a rollout."""
        return True

    def inputs(self) -> StateInputs:
        """The network's inputs of the rollout; those of its ticks may be on the device already."""
        rollout, seen = self.rollout, None if self.seen is None else self.seen.flat()
        observed = (rollout.leaves(rollout.ticks), rollout.final_leaves())
        last, finals = (self.preprocess(leaves) if leaves else leaves for leaves in observed)
        return StateInputs(self.preprocess(rollout.flat()[0]) if seen is None else seen, last, finals)

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Log-probabilities, values, advantages and returns of the rollout's transitions, on the CPU.

        Raises:
            FloatingPointError: a reward is not finite.
        """
        space, rollout = self.env.single_observation_space, self.rollout
        if self.updates == 0 and not self.double:
            self.check_magnitude(space, rollout.flat()[0])
        played, last, finals = self.inputs()  # leaves of T ticks, after them, of cut episodes
        _, masks, actions = rollout.flat()
        known, count = [last, finals] if finals else [last], rollout.ticks * rollout.rows
        if self.needs_log_probs:
            log_probs, values = evaluate_network(self.network, played, masks, actions, self.device)
            values = torch.cat([values, *(values_of(self.network, leaves, self.device) for leaves in known)])
        else:
            leaves = [cat(parts) for parts in zip(played, *known, strict=True)]
            log_probs, values = torch.full((count,), math.nan), values_of(self.network, leaves, self.device)
        end = count + rollout.rows
        trajectories = rollout.trajectories(values[:end].view(-1, rollout.rows).numpy(), values[end:].numpy())
        values = values[:count]
        trajectories = trajectories._replace(rewards=self.normalization.rewards(rollout.rewards))
        largest = torch.from_numpy(np.abs(trajectories.rewards)).max().float()  # infinite if too large for float32
        self.check_finite({"largest_reward": float(largest)})
        units = units_of(space, played) if isinstance(space, UnitSpace) else None
        batch = Batch(tuple(played), masks, actions, log_probs, values, values, values, units=units)
        batch, trajectories = rollout.open.prepend(batch, trajectories)
        batch, found = self.with_advantages(batch, trajectories)
        valid = found.valid
        if self.options.batch_mode == "complete_episodes":
            valid &= ~trajectories.under_way
            rollout.open.keep_episodes(batch, trajectories)
        else:
            rollout.open.keep(batch, trajectories, found.open)
        return Evaluation(batch, valid, trajectories, last, finals)

    def with_advantages(
        self, batch: Batch, played: Trajectories, ratios: Floats | None = None
    ) -> tuple[Batch, Advantages]:
        """The batch with the advantages and returns of its trajectories, see `advantages_of`."""
        o = self.options
        found = advantages_of(played, gamma=o.gamma, gae_lambda=o.gae_lambda, ratios=ratios)
        advantages, returns = (torch.from_numpy(part).float().flatten() for part in found[:2])
        return batch.replace(advantages=advantages, returns=returns), found

    @torch.no_grad()
    def corrected(self, stale: Evaluation) -> Evaluation:
        """Transitions of an older policy, evaluated by the network as it is now, with importance weights: V-trace.

        Log-probabilities are those of the current policy, so that an update is limited relative to it; advantages have
        the weight min(1, pi / mu) of the transition's own action (Hilton et al. 2021, arXiv 2110.00641, decouples both
        alike).
        """
        batch, played, network, device = stale.batch, stale.trajectories, self.network, self.device
        log_probs, values = evaluate_network(network, batch.observations, batch.masks, batch.actions, device)
        log_ratios = (log_probs.values if isinstance(log_probs, RaggedTensor) else log_probs) - batch.played
        if isinstance(batch.actions, RaggedTensor):
            log_ratios = batch.actions.sums(log_ratios)
        final_values, shape = np.zeros_like(played.final_values), played.values.shape
        final_values[played.truncated & ~played.terminated] = values_of(network, stale.finals, device).numpy()
        last_values = values_of(network, stale.last, device).numpy()
        played = played._replace(values=values.view(shape).numpy(), final_values=final_values, last_values=last_values)
        ratios = log_ratios.double().exp().view(shape).numpy()
        batch, _ = self.with_advantages(batch.replace(log_probs=log_probs, values=values), played, ratios)
        return stale._replace(batch=batch, trajectories=played)

    def learned(self) -> Iterator[Metrics]:
        """Learns from the complete rollout: yields the metrics of each update when it is made.

        This is one update. Without a barrier rank 0 makes one whenever it has a rollout of each worker, perhaps none
        now or several; the others make none and take the newest weights.
        """
        rollout, normalization, samples = self.rollout, self.normalization, self.group.async_samples
        if samples is None:
            normalization.observe(self.group, rollout)
            with self.acting():
                evaluation = self.evaluate()
            metrics = self.learn_from(evaluation.complete(self.sequence_length))
            normalization.advance()
            yield metrics
            return
        found = joined([[tuple(one) for one in normalization.describe(rollout)]], self.group.policy)
        before, observed = normalization.rewards.statistics, len(normalization.observations.statistics)
        normalization.rewards.update(found[observed:])  # evaluated as the policy that has played it sees it
        with self.acting():
            evaluation = self.evaluate()
        normalization.rewards.statistics = before  # until the group's statistics arrive
        slots = rollout.ticks * rollout.rows  # not transitions, as the number of rows that act differs
        samples.put({"statistics": [tuple(one) for one in found], **evaluation.to_samples()}, slots)
        for parts in self.parts_without_barrier(samples):
            normalization.update(joined([part["statistics"] for part in parts], self.group.policy))
            evaluations = [Evaluation.from_samples(part) for part in parts]
            pairs = zip(evaluations, samples.lags, strict=True)
            with self.computing():
                evaluations = [self.corrected(one) if lag else one for one, lag in pairs]
            batch = Batch.cat([one.complete(self.sequence_length) for one in evaluations])
            metrics = self.learn_from(batch)
            metrics = metrics | lags_of(samples) if metrics else metrics
            normalization.advance()
            samples.publish(self.acting_state())
            yield metrics

    def learn_from(self, batch: Batch) -> Metrics:
        """One update of the group's weights from one batch per worker, empty ones included.

        A collective, unless there is no barrier: then the batch is that of all workers, at rank 0.
        """
        alone = self.group.async_samples is not None
        numbers = {name: values.numpy() for name, values in batch.standardizable().items()}
        moments = moments_alone(numbers) if alone else self.group.moments_of(**numbers)
        if moments["advantages"].count == 0:
            return {}
        batch = batch.weighted(moments, standardize=self.options.normalize_advantage)
        if self.pools_samples and not alone:
            if (gathered := self.group.gather(batch.to_samples())) is not None:
                batch = Batch.cat([Batch.from_samples(part) for part in gathered])
            metrics = self.update_at_rank_0(lambda: self.updated(batch, batch.size))
        else:
            metrics = self.updated(batch, moments["advantages"].max_count)
        return metrics | _described(moments)

    def updated(self, batch: Batch, largest: int) -> Metrics:
        """`update` on the device, in the precision of the options."""
        if self.average is not None:
            new = Decisions(batch.observations, batch.masks, batch.actions).to(torch.device("cpu"))
            self.average.reservoir.extend(new, self.generator)
        with self.computing():
            return self.update(batch.to(self.device), largest)

    def update(self, batch: Batch, largest: int) -> Metrics:
        """The gradient steps of one update, the same number at all workers; means of the metrics.

        Args:
            batch: of this worker, or of all where rank 0 learns for all; on the device.
            largest: transitions of the worker that has the most, which all workers agree on.
        """
        options, size = self.options, int(self.options.minibatch_size) * self.workers_per_batch
        history: list[Metrics] = []
        for minibatch in batch.minibatches(
            math.ceil(largest / size), epochs=options.n_epochs, generator=self.generator
        ):
            metrics = self.mean_gradients(minibatch, self.recorded_backward, self.metric_names, [self.optimizer])
            history.append(metrics)
            if self.diverged(metrics):
                self.early_stops += 1
                break
            metrics.update(self.optimizer_step([self.optimizer]))
            if self.average is not None:
                metrics.update(self.average.learn(size, self.generator))
        # The last step of an update that has stopped early has no gradient to measure.
        means = {name: float(np.mean([step[name] for step in history if name in step])) for name in history[0]}
        return {**means, "early_stops": float(self.early_stops)}

    def diverged(self, metrics: Metrics) -> bool:
        """Whether the KL divergence from the policy that played the rollout exceeds 1.5 times `target_kl`."""
        limit = self.options.target_kl
        return limit is not None and metrics["approx_kl"] > 1.5 * limit

    @property
    def recorded_backward(self) -> Backward:
        """`backward`, or with `cuda_graphs` its recording."""
        return self._recorded or self.backward

    def _zeroed_backward(self, batch: Batch) -> Tensor:
        group_optimizer(self.optimizer).zero_grad()  # of the calls before the recording
        return self.backward(batch)

    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of the loss to `grad` of the weights; returns the means of `metric_names`."""
        if self.has_gradient_by_hand(PPO):
            return add_gradient(self.network, batch, self.options, 1 / batch.size).mean(1)
        loss, metrics = self.loss(batch)
        torch.autograd.backward([loss])
        return metrics.detach()

    def has_gradient_by_hand(self, written_for: type[OnPolicy]) -> bool:
        """Whether the derivative in the file of `written_for` is that of this algorithm's loss: the same loss, of plain
        perceptrons, on the CPU. It equals autograd, and a whole run takes 1.6 to 1.9 times less CPU time.
        """
        kind, names = type(self), ("loss", "losses")
        same = kind is written_for or all(getattr(kind, one, None) is getattr(written_for, one, None) for one in names)
        return same and not self.network.encoder.learns and not is_gpu(self.device)

    # perceptrons on the CPU use `add_gradient` below: change it with this
    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """-L of equation (9), and the means of `metric_names` over the minibatch."""
        metrics = self.losses(self.network, batch).mean(1)
        policy_loss, value_loss, entropy = metrics[:3]
        return policy_loss + self.options.vf_coef * value_loss - self.options.ent_coef * entropy, metrics

    def losses(self, network: ActorCritic, batch: Batch) -> Tensor:
        """The losses of each transition and other metrics, [5, N]."""
        options = self.options
        policy, values = network.policy_and_value(batch.observations, batch.masks, batch.lengths)
        log_ratio = policy.log_prob(batch.actions) - batch.played
        ratio = log_ratio.exp()  # r(theta), section 3
        clipped = ratio.clamp(1 - options.clip_range, 1 + options.clip_range)
        advantages = batch.per_choice(batch.advantages)
        surrogate = torch.min(ratio * advantages, clipped * advantages)  # eq. (7)
        value_loss = (values - batch.returns).square()
        if options.clip_range_vf is not None:
            clipped_values = batch.values + (values - batch.values).clamp(-options.clip_range_vf, options.clip_range_vf)
            value_loss = torch.max(value_loss, (clipped_values - batch.returns).square())
        divergence = (ratio - 1) - log_ratio  # k3 of joschu.net/blog/kl-approx.html
        of_choices = torch.stack([-surrogate, policy.entropy(), divergence, (ratio != clipped).float()])
        policy_loss, *others = batch.per_transition(of_choices)
        return torch.stack([policy_loss, value_loss, *others])

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows: transitions and gradient steps per update, updates per run, what `auto` becomes."""
        o = cls.Options(**options)
        settled, sizes = (settle(rows=rows, workers=workers, ticks=ticks) for settle in (o.settled, o.rollout_sizes))
        minibatch_size, samples = int(settled.minibatch_size), int(settled.n_steps) * rows
        if o.minibatch_size == AUTO:
            sizes["samples per gradient step"] = min(minibatch_size, samples) * workers
        return {**sizes, "gradient steps per update": math.ceil(samples / minibatch_size) * o.n_epochs}


@torch.inference_mode()
def add_gradient(network: ActorCritic, batch: Batch, options: Any, share: float) -> Tensor:
    """Adds the gradient of `share` times the sum of PPO's losses to `grad` of the weights; returns `PPO.losses`.

    The losses are differentiated by log pi(a|s) and V(s); distribution and perceptron continue from there.
    `tests/unit/test_closed_form.py` compares this with autograd.
    """
    features = network.encoder.parted(network.encoder(batch.observations))
    policy, backward = network.policy_with_grad(features.actor, batch.masks)
    log_ratio = policy.log_prob(batch.actions) - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - options.clip_range, 1 + options.clip_range)
    gain, clipped_gain = ratio * batch.advantages, clipped * batch.advantages
    surrogate = torch.min(gain, clipped_gain)
    by_log_prob = gain.masked_fill_(gain > clipped_gain, 0.0).mul_(-share)  # as dr = r dlog pi; 0 where clipped
    backward(policy.gradient(batch.actions, by_log_prob, -options.ent_coef * share))
    divergence = (ratio - 1).sub_(log_ratio)
    outputs, backward_value = network.critic.forward_with_grad(features.critic)
    values = outputs.squeeze(-1)
    difference = values - batch.returns
    errors = difference.square()
    if options.clip_range_vf is not None:
        move = values - batch.values
        near = move.clamp(-options.clip_range_vf, options.clip_range_vf)
        clipped_errors = (batch.values + near - batch.returns).square()
        difference.masked_fill_((move != near) & (clipped_errors >= errors), 0.0)  # the larger error is constant
        errors = torch.max(errors, clipped_errors)
    backward_value(difference.mul_(2 * options.vf_coef * share).unsqueeze(-1))
    return torch.stack([-surrogate, errors, policy.entropy(), divergence, (ratio != clipped).float()])


def _described(moments: Mapping[str, Moments]) -> Metrics:
    """The share of the returns' variance that the values explain; counts of units."""
    errors, returns = moments["errors"].std, moments["returns"].std
    explained = 1 - (errors / returns) ** 2 if returns > 0 else math.nan
    return {"explained_variance": explained, **{name: moments[name].mean for name in COUNTS if name in moments}}
