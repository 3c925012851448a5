"""Learners of which the last worker of a group is slower than the others, or whose learner is late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from policies import impala, ppo
from policies.common.options import Positive
from policies.impala import IMPALA
from policies.ppo import PPO


class Slow:
    """Takes `pace` times the CPU time of what it computes; the last worker of the group `slower` times as long as that.

    It sleeps for the rest, so that its speed does not depend on the cores of this machine if `pace` is large.
    """

    _owed = 0.0  # seconds of sleep; slept when they are more than a timer is wrong

    def act(self, *given: Any) -> Any:
        """Actions of a tick."""
        return self._slowed(super().act, *given)  # type: ignore[misc]

    def evaluate(self) -> Any:
        """Log-probabilities and advantages of a rollout."""
        return self._slowed(super().evaluate)  # type: ignore[misc]

    def corrected(self, stale: Any) -> Any:
        """The same of an older policy's rollout."""
        return self._slowed(super().corrected, stale)  # type: ignore[misc]

    def backward(self, batch: Any) -> Any:
        """The gradient of a minibatch."""
        return self._slowed(super().backward, batch)  # type: ignore[misc]

    def optimizer_step(self, optimizers: Any) -> Any:
        """A gradient step."""
        return self._slowed(super().optimizer_step, optimizers)  # type: ignore[misc]

    def _slowed(self, work: Callable[..., Any], *given: Any) -> Any:
        learner: Any = self
        begun = time.thread_time()
        found = work(*given)
        last = learner.group.rank == learner.group.size - 1
        factor = learner.options.pace * (learner.options.slower if last else 1)
        self._owed += (factor - 1) * (time.thread_time() - begun)
        if self._owed > 1e-3:
            began = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - began
        return found


class PPOOptions(ppo.Options, frozen=True, kw_only=True):
    """Those of PPO."""

    pace: Positive = 1.0  # seconds per second of CPU time
    slower: Positive = 1.0  # how many times longer the last worker takes


class IMPALAOptions(impala.Options, frozen=True, kw_only=True):
    """Those of IMPALA."""

    pace: Positive = 1.0  # seconds per second of CPU time
    slower: Positive = 1.0  # how many times longer the last worker takes


class SlowPPO(Slow, PPO):
    """PPO with a slow worker."""

    Options = PPOOptions


class SlowIMPALA(Slow, IMPALA):
    """IMPALA with a slow worker."""

    Options = IMPALAOptions


class LateIMPALA(IMPALA):
    """Its learner learns only once it is `max_lag` updates behind its actors, then from all that waits: the lags of
    samples are 0 to `max_lag`, also where all workers share a process and would wait for each other at lags of 0 and 1.
    """

    def parts_without_barrier(self, samples: Any) -> Iterator[list[Any]]:
        """The samples of each update that is to be made now."""
        if not self.group.is_root or samples.is_ahead:
            yield from super().parts_without_barrier(samples)
