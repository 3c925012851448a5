"""Collecting the rollouts of workers with few rows, such as of one lane, by NumPy and for several workers at once.

For a handful of rows torch spends its time on calls, not on arithmetic: 16 us for one row and two layers of 64, where
NumPy takes 3. The workers of a policy that share a process collect together: one of them acts for all, tick by tick, so
that the process does not go from role to role. Each worker's matrix products are computed by themselves, with its own
weights, and all else element by element: the bits are those of the worker alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from arena.errors import BudgetReached
from policies.common.devices import is_gpu
from policies.networks.actor_critic import MLP, ActorCritic, Encoder, Numbers
from policies.networks.heads import DiscreteHead

_MOST_ROWS = 16  # up to which NumPy is faster than torch, and
_MOST_WEIGHTS = 9_215  # in a layer, its BLAS (OpenBLAS) uses one thread for so few rows: with several, bits may differ


class RolloutWorker:
    """One worker, for the ticks that are left of its rollout.

    Args:
        algorithm: on-policy, see `of`.
        noise: [ticks that are left, B, outputs].
    """

    def __init__(self, algorithm: Any, noise: Tensor) -> None:
        self.env, self.rollout, self.head = algorithm.env, algorithm.rollout, algorithm.head
        self.layers, self.activation = algorithm.network.actor.arrays, algorithm.network.actor.activation
        self.noise, self._first = noise, self.rollout.played
        self.is_proxy = hasattr(type(self.env), "step_views")  # no wrapper, nor an environment from elsewhere
        self.over: BudgetReached | None = None  # raised by the environment
        self.stepped: Any = None
        self._encoder, self._normalizer = algorithm.network.encoder, algorithm.normalization.observations
        self._group = algorithm.group
        self._numbers: Any = None  # [T + 1, B, features] where observations are numbers that stay as they are
        if type(self._encoder) is Encoder and len(self._encoder.parts) == 1 and not self._normalizer.enabled:
            part, (leaf,) = self._encoder.parts[0], self.rollout.observed
            self._numbers = leaf.numpy() if isinstance(part, Numbers) and part.keeps(leaf[0]) else None

    @classmethod
    def of(cls, algorithm: Any, written_for: type[Any], noise: Tensor) -> Self | None:
        """None unless the algorithm acts as the class `written_for`, for few rows in one block that act on every call,
        without memory, by a small perceptron on the CPU.
        """
        network, rollout = algorithm.network, algorithm.rollout
        methods = [(getattr(algorithm, name), getattr(written_for, name)) for name in ("act", "sampled")]
        known = all(getattr(method, "__func__", None) is expected for method, expected in methods)
        if not known or type(network) is not ActorCritic or type(network.actor) is not MLP or network.encoder.learns:
            return None
        if algorithm.average is not None or rollout.given is not None:
            return None
        if rollout.rows > _MOST_ROWS or len(getattr(algorithm.env, "blocks", ())) > 1:
            return None
        small = network.actor.largest <= _MOST_WEIGHTS
        return cls(algorithm, noise) if small and not is_gpu(noise.device) else None

    def collect(self) -> None:
        """Plays the ticks that are left, with the other workers of the policy that are at the same tick.

        As they are, no worker waits for one that waits for it: who waits is a tick ahead of the worker it waits for.
        """
        if self.is_proxy and self._group.async_samples is None:
            key = self.env.ticks, self.rollout.played, str(self.env.single_action_space)
            self._group.together(key, self, collect_together)
        else:
            collect_together([self])
        if self.over is not None:
            raise self.over

    def features(self, t: int) -> NDArray[np.float32]:
        """What the actor sees before tick `t`, [B, features]."""
        if self._numbers is not None:
            return self._numbers[t]  # type: ignore[no-any-return]
        features = self._encoder.parted(self._encoder(self._normalizer(self.rollout.leaves(t)))).actor
        return features.contiguous().numpy()  # type: ignore[no-any-return]

    def sample(self, t: int, outputs: NDArray[np.float32]) -> NDArray[Any]:
        """Actions [B, ...] on tick `t`, of the actor's outputs [B, outputs]."""
        policy = self.head.distribution(torch.from_numpy(outputs), self.rollout.mask(t))
        return policy.sample(self.noise[t - self._first]).numpy()  # type: ignore[no-any-return]


class ActorStack:
    """The actors of several workers, called at once: all layers of equal widths, [rows of all workers, width]."""

    def __init__(self, workers: Sequence[RolloutWorker]) -> None:
        rows = [worker.rollout.rows for worker in workers]
        ends = np.cumsum(rows).tolist()
        self.places = [slice(end - count, end) for end, count in zip(ends, rows, strict=True)]
        self._tanh = workers[0].activation == "tanh"
        self._layers = []
        for layer in zip(*(worker.layers for worker in workers), strict=True):
            outputs = np.empty((ends[-1], len(layer[0][1])), np.float32)
            biases = np.array([bias for _, bias in layer]).repeat(rows, axis=0)
            parts = [outputs[place] for place in self.places]
            self._layers.append(([weight for weight, _ in layer], parts, biases, outputs))

    def __call__(self, inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """The outputs of all rows, which the next call overwrites, from the features of each worker."""
        last = self._layers[-1][3]
        for weights, parts, biases, outputs in self._layers:
            for batch, weight, part in zip(inputs, weights, parts, strict=True):
                np.dot(batch, weight, out=part)
            np.add(outputs, biases, out=outputs)
            if outputs is not last:
                np.tanh(outputs, out=outputs) if self._tanh else np.maximum(outputs, 0.0, out=outputs)
            inputs = parts
        return last


@torch.inference_mode()
def collect_together(workers: Sequence[RolloutWorker]) -> None:
    """Plays the ticks that are left of the workers' rollouts; a worker whose match is over stops before, see `over`."""
    t, end = workers[0].rollout.played, workers[0].rollout.ticks
    first, head = t, workers[0].head
    while workers and t < end:
        actors = ActorStack(workers)
        noise = np.concatenate([worker.noise.numpy() for worker in workers], axis=1)
        plain = type(head) is DiscreteHead and all(worker.is_proxy and not worker.env.masked for worker in workers)
        over = False
        while t < end and not over:
            outputs = actors([worker.features(t) for worker in workers])
            if plain:
                actions = (outputs + noise[t - first]).argmax(-1)  # as `Categorical.sample`
                shown = head.to_env(actions)
                chosen = [(actions[place], shown[place]) for place in actors.places]
            else:
                sampled = [
                    worker.sample(t, outputs[place]) for worker, place in zip(workers, actors.places, strict=True)
                ]
                chosen = [(each, head.to_env(each)) for each in sampled]
            over = not _step(workers, t, chosen)
            t += 1
        workers = [worker for worker in workers if worker.over is None]


def _step(workers: Sequence[RolloutWorker], t: int, chosen: Sequence[tuple[Any, Any]]) -> bool:
    """Plays tick `t` with actions as learned from and as the environments take them; whether all workers have."""
    together = len(workers) > 1
    for worker, (_, shown) in zip(workers, chosen, strict=True):
        try:
            worker.stepped = worker.env.step_async(shown) if together else worker.env.step(shown)
        except BudgetReached as error:
            worker.over = error
    for worker, (actions, _) in zip(workers, chosen, strict=True):
        if worker.over is None:
            rollout = worker.rollout
            rollout.add(t, actions, *(worker.env.step_views() if together else worker.stepped))
            rollout.played = t + 1
    return all(worker.over is None for worker in workers)
