"""How the workers of a group learn together: the options `sync` and `max_lag` take effect in this module.

    sync: gradients            every worker steps on its own minibatches, with the mean gradient of the group
    sync: samples              rank 0 steps on the samples of all workers, then the others take its weights
    sync: samples, max_lag: 2  the same without a barrier: every worker hands its samples over and continues with the
                               newest weights that have arrived, up to `max_lag` updates ahead; rank 0 learns whenever
                               it has samples of every worker

On one full batch the first two are the same. What is decided around a collective (how many minibatches, when to stop)
is decided on values that all workers agree on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from arena.game.magnitude import large_numbers
from arena.group.group import Moments
from policies.common.adam import Optimizer, held
from policies.common.algorithm import Metrics
from policies.common.normalization import Normalization, ObservationNormalizer, joined, pooled
from policies.common.nstep import NStepBatch, NStepBuilder
from policies.common.ragged import RaggedTensor
from policies.common.replay import Replay, Transitions
from policies.common.replay_ratio import ReplayRatio
from policies.common.rng import REPLAYING, stream
from policies.common.rollout import COUNTS, Batch, Evaluation, Rollout
from policies.common.target import Target
from policies.common.tensors import load_weights, to_arrays
from policies.extensions.extra_loss import ExtraLoss

if TYPE_CHECKING:
    from arena.group.async_samples import AsyncSamples
    from arena.group.group import Group
    from policies.common.off_policy import OffPolicyOptions

Backward = Callable[[Any], Tensor]
"""Adds the gradient of a minibatch's mean loss to `grad` of the weights; returns the metrics, means over it."""

BackwardWithErrors = Callable[[Transitions], tuple[Tensor, Tensor]]
"""The same, which also returns the temporal-difference errors [N]."""

GradientStep = Callable[[Transitions], tuple[Metrics, Tensor]]
"""Makes one gradient step of the group; returns metrics and the temporal-difference errors [N] of this worker."""


class GroupLearner:
    """One worker's part in the learning of its group.

    Args:
        group: the workers of the policy.
        network: whose weights the group shares.
        max_grad_norm: gradients are scaled down to this Euclidean norm at most; None: never.
        remedy: ends the message about a number that is not finite.

    Attributes:
        extra: a further loss, whose gradient is added to each minibatch's; None: there is none.
        notice: a sentence for the user, for when learning starts; empty: none.
        shape: changes the group's mean gradient before it is limited, and returns numbers to log; None: no change.
    """

    extra: ExtraLoss | None = None
    notice = ""
    shape: Callable[[Tensor], Metrics | None] | None = None

    def __init__(self, group: Group, network: nn.Module, *, max_grad_norm: float | None, remedy: str) -> None:
        self.group, self.network = group, network
        self._max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm
        self._remedy = remedy

    @property
    def pools_samples(self) -> bool:
        """Whether rank 0 alone makes gradient steps, on the samples of all workers."""
        return self.group.sync == "samples"

    @property
    def workers_per_batch(self) -> int:
        """How many workers' samples one batch holds."""
        return self.group.size if self.pools_samples else 1

    def start(self) -> None:
        """Gives all workers the weights of rank 0; a collective, unless there is no barrier."""
        if self.notice:
            self.group.tell(self.notice)
        if self.group.async_samples is None:
            self.group.broadcast(self.network)

    # ------------------------------------------------------------------------------------------------- gradient steps

    def mean_gradients(
        self, batch: Any, backward: Backward, names: Sequence[str], optimizer: Optimizer, *, label: str
    ) -> Metrics:
        """Leaves the mean gradient of the group in the optimizer; returns the group's mean metrics.

        Args:
            batch: a minibatch; an empty one weighs nothing, but its worker takes part.
            backward: adds the gradient of its loss.
            names: of the metrics.
            optimizer: of all weights.
            label: names the step in the error, as `update 3`.

        Raises:
            FloatingPointError: a metric is not finite.
        """
        held(optimizer).zero_grad()
        values = backward(batch) if batch.size else torch.zeros(len(names))
        measured = {**dict(zip(names, values.tolist(), strict=True)), **self._extra_backward(batch)}
        metrics = self.average([optimizer], float(batch.size), measured)
        self.check_finite(metrics, label)
        return metrics

    def _extra_backward(self, batch: Any) -> Metrics:
        """Adds the gradient of the further loss, if there is one; returns what that has measured."""
        if self.extra is None:
            return {}
        values = self.extra.backward(self.network, batch) if batch.size else [0.0] * len(self.extra.names)
        return dict(zip(self.extra.names, values, strict=True))

    def average(self, optimizers: Sequence[Optimizer], weight: float, metrics: Metrics) -> Metrics:
        """Replaces the gradients by their weighted mean over the workers that step together, in one exchange."""
        if self.pools_samples:
            return metrics
        return self.group.average_gradients(
            [vector for one in optimizers for vector in held(one).parameters], weight=weight, **metrics
        )

    def step(self, optimizers: Sequence[Optimizer], rate: float, *, label: str) -> Metrics:
        """Shapes and clips the gradients that the optimizers hold, each by itself, and steps on them.

        Returns:
            what shaping has measured.

        Raises:
            FloatingPointError: a gradient is not finite; no weight was changed.
        """
        shaped: Metrics = {}
        movers = [held(optimizer) for optimizer in optimizers]
        if self.shape is not None:
            for mover in movers:
                shaped.update(mover.shape_gradient(self.shape) or {})
        lengths = [mover.clip_grad_norm(self._max_grad_norm) for mover in movers]
        self.check_finite({"gradient_length": math.hypot(*lengths)}, label)
        for mover in movers:
            mover.step(rate)
        return shaped

    def check_finite(self, metrics: Metrics, label: str) -> None:
        """Stops the run before a number that is not finite spreads to the weights.

        Raises:
            FloatingPointError: one is not finite.
        """
        if not all(map(math.isfinite, metrics.values())):
            raise FloatingPointError(f"policy {self.group.policy!r}: {label} measured {metrics}; {self._remedy}")

    def check_magnitude(self, space: Space[Any], leaves: Sequence[Any]) -> None:
        """Tells the user where observations [N, ...], not normalized, are far beyond what a network learns from."""
        if not self.group.is_writer:  # only its sentences are shown
            return
        plain = [(leaf.values if isinstance(leaf, RaggedTensor) else leaf).numpy() for leaf in leaves]
        if words := large_numbers(space, plain):
            self.group.tell(words)

    # ------------------------------------------------------------------------------------------------------- together

    def update_at_rank_0(self, update: Callable[[], Metrics]) -> Metrics:
        """One update that rank 0 makes for all: its metrics at every worker; {} if rank 0 has left. A collective."""
        metrics = update() if self.group.is_root else {}
        self.group.broadcast(self.network)
        return self.group.broadcast_object(metrics) or {}

    def parts_without_barrier(
        self, samples: AsyncSamples, load_weights: Callable[[Mapping[str, Any] | None], None]
    ) -> Iterator[list[Any]]:
        """At rank 0, the fragments of each update that can be made now; the others load the newest weights.

        A worker that is ahead of the group waits, see `AsyncSamples`.
        """
        while True:
            while self.group.is_root and (parts := samples.get()) is not None:
                yield parts
            if not samples.is_ahead:
                break
            samples.sleep()
        if not self.group.is_root:
            load_weights(samples.latest())

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has."""
        return {}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with it."""

    def record(self, metrics: Metrics, state: Callable[[], dict[str, Any]], *, check: bool) -> None:
        """Logs the metrics of an update, offers the state for a checkpoint, and compares weights; a collective.

        Args:
            metrics: of the update.
            state: gives the policy's state.
            check: whether to check that all workers hold equal weights. Without a barrier only rank 0 updates, so
                there are no replicas to compare.
        """
        self.group.log(**metrics)
        if check and self.group.async_samples is None:
            self.group.check_equal(self.network)
        self.group.save(state)


class RolloutLearner(GroupLearner):
    """A group learner for algorithms that learn from each rollout once.

    Args:
        group, network, max_grad_norm, remedy: as of `GroupLearner`.
        rollout: that this worker plays.
        normalization: of observations and rewards; its statistics are the group's.
        normalize_advantage: whether advantages are standardized over all transitions of an update.
        sequence_length: transitions of a sequence, for a recurrent policy; else None.
        device: that learns.
    """

    def __init__(
        self,
        group: Group,
        network: nn.Module,
        *,
        max_grad_norm: float | None,
        remedy: str,
        rollout: Rollout,
        normalization: Normalization,
        normalize_advantage: bool,
        sequence_length: int | None,
        device: torch.device,
    ) -> None:
        super().__init__(group, network, max_grad_norm=max_grad_norm, remedy=remedy)
        self._rollout, self._normalization, self._normalize_advantage = rollout, normalization, normalize_advantage
        self._sequence_length, self._device = sequence_length, device

    def start(self) -> None:
        """Gives all workers the weights of rank 0; a worker that continues a partial rollout completes it first."""
        super().start()
        if self.group.async_samples is not None and self.group.is_root:
            self.group.async_samples.publish(self._weights())

    def updates(
        self,
        evaluate: Callable[[], Evaluation],
        update: Callable[[Batch, int], Metrics],
        corrected: Callable[[Evaluation], Evaluation],
    ) -> Iterator[Metrics]:
        """Learns from the complete rollout: yields the metrics of each update when it is made, and ends with the last.

        This is one update. Without a barrier rank 0 makes one whenever it has a rollout of each worker, perhaps none
        now or several; the others make none and take the newest weights.

        Args:
            evaluate: values and advantages of its transitions; called once.
            update: makes the gradient steps of an update, from a batch on the device and the number of transitions of
                the worker that has the most, which all workers agree on.
            corrected: the transitions of older weights, with importance weights.
        """
        if self.group.async_samples is not None:
            yield from self._updates_without_barrier(evaluate, update, corrected)
            return
        self._normalization.observe(self.group, self._rollout)
        metrics = self.learn_from(evaluate().complete(self._sequence_length), update)
        self._normalization.advance()
        yield metrics

    def learn_from(self, batch: Batch, update: Callable[[Batch, int], Metrics]) -> Metrics:
        """One update of the group's weights from one batch per worker, empty ones included; a collective."""
        moments = self.group.moments_of(**{name: values.numpy() for name, values in batch.standardizable().items()})
        if moments["advantages"].count == 0:
            return {}
        batch = batch.weighted(moments)
        batch = batch.standardized(moments) if self._normalize_advantage else batch
        if self.pools_samples:
            if (gathered := self.group.gather(batch.to_samples())) is not None:
                batch = Batch.cat([Batch.from_samples(part) for part in gathered])
            metrics = self.update_at_rank_0(lambda: update(batch.to(self._device), batch.size))
        else:
            metrics = update(batch.to(self._device), moments["advantages"].max_count)
        return metrics | _described(moments)

    def _updates_without_barrier(
        self,
        evaluate: Callable[[], Evaluation],
        update: Callable[[Batch, int], Metrics],
        corrected: Callable[[Evaluation], Evaluation],
    ) -> Iterator[Metrics]:
        """Hands a rollout over; rank 0 learns from all that has come, the others take its newest weights."""
        samples, rollout, normalization = self.group.async_samples, self._rollout, self._normalization
        assert samples is not None
        own = joined([[tuple(one) for one in normalization.describe(rollout)]], self.group.policy)
        with normalization.with_statistics(own):  # evaluated as the policy that has played it sees it
            evaluation = evaluate()
        slots = rollout.ticks * rollout.rows  # not transitions, as the number of rows that act differs
        samples.put({"statistics": [tuple(one) for one in own], **evaluation.to_samples()}, slots)
        for parts in self.parts_without_barrier(samples, self._load_weights):
            normalization.update(joined([part["statistics"] for part in parts], self.group.policy))
            found = [Evaluation.from_samples(part) for part in parts]
            found = [corrected(one) if lag else one for one, lag in zip(found, samples.lags, strict=True)]
            batch = Batch.cat([one.complete(self._sequence_length) for one in found])
            metrics: Metrics = {}
            if batch.size:
                moments = {name: _moments(values) for name, values in batch.standardizable().items()}
                batch = batch.weighted(moments)
                batch = batch.standardized(moments) if self._normalize_advantage else batch
                metrics = update(batch.to(self._device), batch.size) | _described(moments)
                metrics.update(_lags(samples))
            normalization.advance()
            samples.publish(self._weights())
            yield metrics

    def _weights(self) -> dict[str, Any]:
        """What a worker needs to play as this one does."""
        return {"network": to_arrays(self.network.state_dict()), "normalization": self._normalization.state_dict()}

    def _load_weights(self, weights: Mapping[str, Any] | None) -> None:
        if weights is not None:
            load_weights(self.network, weights["network"])
            self._normalization.load_state_dict(weights["normalization"])

    # ---------------------------------------------------------------------------------- the state of a single worker

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: the part of a rollout that it has played; empty where there is none.

        Without a barrier also the weights that have played it and, at rank 0, the samples that wait.
        """
        own, samples = self._rollout.state_dict(), self.group.async_samples
        if own:
            own["normalization"] = self._normalization.worker_state_dict()
            if samples is not None and not self.group.is_root:
                own["weights"] = self._weights()
        if samples is not None and (self.group.is_root or own):
            own["fragments"] = samples.state_dict()
        return own

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that part, if the seat has as many rows, and the rollout at least as many ticks, as it had."""
        rollout = self._rollout
        if "rewards" in state:
            rollout.load_state_dict(state)
        if rollout.played:
            self._normalization.load_worker_state_dict(state["normalization"])
        if self.group.async_samples is not None:
            self._load_weights(state.get("weights") if rollout.played else None)
            if "fragments" in state and (self.group.is_root or rollout.played):
                self.group.async_samples.load_state_dict(state["fragments"])


class ReplayLearner(GroupLearner):
    """A group learner for algorithms that replay their experience.

    `training_intensity` is how many transitions the group replays per transition that it collects, at any number of
    workers: more workers learn from more transitions, not longer from each. With `sync: gradients` every worker draws
    `batch_size` transitions of its own, however many it has collected.

    Args:
        group, network, max_grad_norm, remedy: as of `GroupLearner`.
        options: with a number in place of every `auto`.
        rank: of the worker, or of its team, among those that have transitions of their own.
        size: the number of these workers or teams.
        experience: of this worker.
        replay: of this worker, or at rank 0 of all; None at the others where rank 0 learns for all.
        normalization: of observations; its statistics are the group's.
        intensity: how many gradient steps are due.
        targets: copies of networks that follow.
        device: that learns.

    Attributes:
        gradient_steps: that the group has made.
        size: how many workers, or teams, have transitions of their own.
    """

    def __init__(
        self,
        group: Group,
        network: nn.Module,
        *,
        max_grad_norm: float | None,
        remedy: str,
        options: OffPolicyOptions,
        rank: int,
        size: int,
        experience: NStepBuilder,
        replay: Replay | None,
        normalization: ObservationNormalizer,
        intensity: ReplayRatio,
        targets: Mapping[str, Target[Any]],
        device: torch.device,
    ) -> None:
        super().__init__(group, network, max_grad_norm=max_grad_norm, remedy=remedy)
        self._options, self._rank, self.size = options, rank, size
        self._experience, self.replay = experience, replay
        self._normalization, self._intensity, self._targets = normalization, intensity, targets
        self._generator, self._device = stream(group.seed, REPLAYING), device
        self._history: dict[str, list[float]] = {}  # metrics since the last line of them
        self._priority_beta = 1.0
        self.gradient_steps = 0

    def start(self) -> None:
        """Gives all workers the weights of rank 0; a collective, unless there is no barrier."""
        super().start()
        if self.group.async_samples is not None and self.group.is_root:
            self.group.async_samples.publish(self._weights())

    def learn(self, update: GradientStep, *, tick: int, priority_beta: float) -> None:
        """Makes the gradient steps that are due after the last ticks; a collective.

        Args:
            update: makes one gradient step.
            tick: how many ticks the worker has played.
            priority_beta: how far importance sampling corrects for priorities now.

        Raises:
            FloatingPointError: a reward is not finite.
        """
        self._priority_beta = priority_beta
        new = self._experience.cut()
        if not np.isfinite(new.rewards.numpy()).all():
            raise FloatingPointError(
                f"policy {self.group.policy!r}: a reward that is not finite came within "
                f"{self._options.train_every} ticks before tick {tick}; gradient step {self.gradient_steps + 1} was "
                "not made"
            )
        if self.group.async_samples is not None:
            self._learn_without_barrier(new, update, self.group.async_samples)
            return
        self._normalization.update(pooled(self.group, self._normalization.describe_new(new)))
        if self.pools_samples:
            self._learn_at_rank_0(new, update)
            return
        assert self.replay is not None
        collected, held, ready = self._sums(self.replay.extend(new))
        batch_size = int(self._options.batch_size)
        for _ in range(self._intensity.due_steps(collected, held=held, minibatch=batch_size * ready)):
            self._step(batch_size, update)

    def log(self, schedules: Metrics, state: Callable[[], dict[str, Any]]) -> None:
        """Logs the means of the metrics since the last time, and what else is given; see `record`."""
        if self.group.async_samples is not None and not self.group.is_root:
            return
        means = {name: float(np.mean(values)) for name, values in self._history.items()}
        self._history.clear()
        counts = {"gradient_steps": float(self.gradient_steps), "collected": float(self._intensity.collected)}
        self.record({**means, **schedules, **counts}, state, check=True)

    def gradient_step(
        self,
        batch: Transitions,
        backward: BackwardWithErrors,
        names: Sequence[str],
        optimizers: Sequence[Optimizer],
        rate: float,
    ) -> tuple[Metrics, Tensor]:
        """One gradient step of the group: the group's mean metrics, and this worker's temporal-difference errors [N].

        Args:
            batch: of this worker; an empty one weighs nothing, but its worker takes part.
            backward: adds the gradients of the losses.
            names: of the metrics.
            optimizers: of the weights that are moved.
            rate: the learning rate.
        """
        label = f"gradient step {self.gradient_steps + 1}"
        for optimizer in optimizers:
            held(optimizer).zero_grad()
        values, errors = backward(batch) if batch.size else (torch.zeros(len(names)), torch.zeros(0))
        measured = {**dict(zip(names, values.tolist(), strict=True)), **self._extra_backward(batch)}
        metrics = self.average(optimizers, float(batch.size), measured)
        self.check_finite(metrics, label)
        return {**metrics, **self.step(optimizers, rate, label=label)}, errors

    def _sums(self, collected: int) -> tuple[int, int, int]:
        """Sums over the group: new transitions, transitions added to replays so far, workers whose replay has any."""
        assert self.replay is not None
        added = [self.replay.added] if self.replay.size else []
        if self.group.size == 1:
            return collected, sum(added), len(added)
        found = self.group.moments_of(collected=[collected], added=added)
        new, held = found["collected"], found["added"]
        return round(new.mean * new.count), round(held.mean * held.count), held.count

    def _learn_at_rank_0(self, new: NStepBatch, update: GradientStep) -> None:
        gathered = self.group.gather({"worker": self._rank, "fragment": new.to_samples()})
        steps = 0
        if gathered is not None:
            steps = self._learn_from(gathered, update, workers=len({part["worker"] for part in gathered}))
        told = self.group.broadcast_object({"steps": steps, "intensity": self._intensity.state_dict()})
        if told is None:  # rank 0 has left: learning has ended
            return
        self._intensity.load_state_dict(told["intensity"])
        if told["steps"]:
            self.gradient_steps += 0 if self.group.is_root else told["steps"]
            self.group.broadcast(self.network)

    def _learn_from(self, gathered: Sequence[Mapping[str, Any]], update: GradientStep, *, workers: int) -> int:
        """Rank 0 adds the experience of some workers and learns for all; returns the number of gradient steps."""
        assert self.replay is not None
        parts = [(NStepBatch.from_samples(part["fragment"]), int(part["worker"])) for part in gathered]
        collected = sum(self.replay.extend(new, worker) for new, worker in parts)
        minibatch = int(self._options.batch_size) * workers
        held = self.replay.added
        steps = self._intensity.due_steps(collected, held=held, minibatch=minibatch if self.replay.size else 0)
        for _ in range(steps):
            self._step(minibatch, update)
        return steps

    def _learn_without_barrier(self, new: NStepBatch, update: GradientStep, samples: AsyncSamples) -> None:
        """Hands the experience over; rank 0 learns from all that has come, the others take its newest weights."""
        own = {"worker": self._rank, "fragment": new.to_samples()}
        own["statistics"] = [tuple(one) for one in self._normalization.describe_new(new)]
        slots = self._options.train_every * self._experience.worker_rows  # not transitions, of which there may be none
        samples.put(own, slots)
        for parts in self.parts_without_barrier(samples, self._load_weights):
            for name, value in _lags(samples).items():
                self._history.setdefault(name, []).append(value)
            self._normalization.update(joined([part["statistics"] for part in parts], self.group.policy))
            self._learn_from(parts, update, workers=self.group.size)
            samples.publish(self._weights())

    def _step(self, size: int, update: GradientStep) -> None:
        """One gradient step on a minibatch of this worker's replay."""
        assert self.replay is not None
        batch = self.replay.sample(size, self._generator, beta=self._priority_beta)
        if self.gradient_steps == 0 and not self._normalization.enabled:
            self.check_magnitude(self._experience.layout["space"], batch.observations)
        metrics, errors = update(self._normalization.minibatch(batch).to(self._device))
        self.gradient_steps += 1
        self.replay.update_priorities(batch.indices, errors.cpu())
        if self.gradient_steps % self._options.target_update_interval == 0:
            for target in self._targets.values():
                target.update(float(self._options.tau))
        for name, value in metrics.items():
            self._history.setdefault(name, []).append(value)

    def _weights(self) -> dict[str, Any]:
        """What a worker needs to play as this one does."""
        return {
            "network": to_arrays(self.network.state_dict()),
            "normalization": self._normalization.state_dict(),
            "intensity": self._intensity.state_dict(),
            "gradient_steps": self.gradient_steps,
        }

    def _load_weights(self, weights: Mapping[str, Any] | None) -> None:
        if weights is not None:
            load_weights(self.network, weights["network"])
            self._normalization.load_state_dict(weights["normalization"])
            self._intensity.load_state_dict(weights["intensity"])
            self.gradient_steps = int(weights["gradient_steps"])

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: its replay, if it has one, and experience that is not in a replay yet."""
        own: dict[str, Any] = {"experience": self._experience.state_dict()}
        if self.replay is not None:
            own["replay"] = self.replay.state_dict()
        if self.group.async_samples is not None:
            own["fragments"] = self.group.async_samples.state_dict()
        return own

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that, as far as it fits."""
        self._experience.load_state_dict(state["experience"])
        if self.replay is not None and "replay" in state:
            self.replay.load_state_dict(state["replay"])
        if self.group.async_samples is not None and self.group.is_root and "fragments" in state:
            self.group.async_samples.load_state_dict(state["fragments"])


def _moments(values: Tensor) -> Moments:
    """Moments of one worker's values, to the bit those of `Group.moments_of` in a group of one."""
    held = values.double().numpy()
    if not held.size:
        return Moments(0.0, 0.0, 0, 0)
    mean = float(held.mean())
    return Moments(mean, math.sqrt(float(((held - mean) ** 2).sum()) / held.size), held.size, held.size)


def _lags(samples: AsyncSamples) -> Metrics:
    """By how many updates the weights that have played the samples of an update were older; nothing if alone."""
    lags = samples.lags
    return {"lag_mean": float(np.mean(lags)), "lag_max": float(max(lags))} if len(lags) > 1 else {}


def _described(moments: Mapping[str, Moments]) -> Metrics:
    """The share of the returns' variance that the values explain (return - value = advantage); counts of units."""
    errors, returns = moments["advantages"].std, moments["returns"].std
    explained = 1 - (errors / returns) ** 2 if returns > 0 else math.nan
    return {"explained_variance": explained, **{name: moments[name].mean for name in COUNTS if name in moments}}
