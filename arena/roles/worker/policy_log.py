"""Sends the metrics of a policy's updates to the root."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from arena.plan.plan import PolicyPlan
from arena.records.metrics import UpdateRecord
from arena.roles.protocol import Notice, Update
from arena.run.run import Run
from arena.transport import Endpoint, Tag
from arena.transport.pickling import pack


class PolicyLog:
    """The metrics of one policy. Every worker of the policy has one; the writer of the group uses it.

    Args:
        endpoint: the endpoint of the worker.
        run: the run.
        policy: the policy.
        ticks: returns the number of ticks that the worker's match has played.
        updates: returns the number of updates of the policy in this leg.
    """

    def __init__(
        self, endpoint: Endpoint, run: Run, policy: PolicyPlan, *, ticks: Callable[[], int], updates: Callable[[], int]
    ) -> None:
        self._endpoint = endpoint
        self._policy = policy
        self._ticks = ticks
        self._updates = updates
        self._updates_before = run.leg.updates.get(policy.name, 0)
        self._begun = time.monotonic() - run.leg.seconds.get(policy.name, 0.0)
        matches = run.plan.matches
        self._rows = sum(
            matches[match].lanes * len(matches[match].seats[seat].entities) for match, seat in policy.workers
        )  # samples that the group collects per tick

    @property
    def updates(self) -> int:
        """The number of updates of the policy in all legs."""
        return self._updates_before + self._updates()

    @property
    def seconds(self) -> float:
        """The time since the policy began to learn, in all legs."""
        return time.monotonic() - self._begun

    def tell(self, text: str) -> None:
        """Sends a sentence for the user to the root."""
        self._endpoint.send(0, Tag.TO_ROOT, pack(Notice(f"policy {self._policy.name}: {text}")))

    def update(self, values: Mapping[str, float]) -> None:
        """Sends the metrics of one update to the root."""
        record = UpdateRecord(
            policy=self._policy.name,
            update=self.updates,
            ticks=self._ticks(),
            samples=self._ticks() * self._rows,
            seconds=self.seconds,
            values={name: float(value) for name, value in values.items()},
        )
        self._endpoint.send(0, Tag.TO_ROOT, pack(Update(record)))
