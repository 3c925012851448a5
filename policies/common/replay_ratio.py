"""Replay ratio: how many transitions a group may replay for those that it has collected."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any


class ReplayRatio:
    """Counts of transitions, the same at every worker, as all are sums over the group.

    What is replayed never exceeds what is due, and falls short of it by less than one minibatch:

        replayed <= rate * (collected - waited) < replayed + minibatch

    The counts are whole numbers, so that nothing is lost or won by rounding, however long the run is.

    Args:
        rate: transitions to replay per transition collected.
        starts: transitions that the replay is given before it is used; for these, no replays are due.

    Attributes:
        collected: by the group, in the whole run.
        waited: the part of them that came before the replay was used.
        replayed: by the group.

    `waited` and `replayed` begin anew where the rate has changed since the counts were stored, see `load_state_dict`.
    """

    def __init__(self, rate: float, *, starts: int) -> None:
        self._rate = Fraction(str(rate)).as_integer_ratio()  # as it was written: 0.1 is a tenth
        self._starts = starts
        self.collected = self.waited = self.replayed = 0

    @property
    def has_started(self) -> bool:
        """Whether the group has collected enough to learn; until then it acts at random."""
        return self.collected >= self._starts

    def due_steps(self, collected: int, *, held: int, minibatch: int) -> int:
        """The number of gradient steps that are due after a block of ticks; they are counted as made.

        Args:
            collected: transitions of the block.
            held: transitions that the group's replay was given so far, these included. A run that goes on
                with other seats may begin with an empty one, and waits again.
            minibatch: transitions of one gradient step, of all workers together; 0: no worker has any.
        """
        self.collected += collected
        if held < self._starts:
            self.waited += collected
            return 0
        if minibatch == 0:
            return 0
        numerator, denominator = self._rate  # multiplied out: a `Fraction` would look for common divisors each time
        due = numerator * (self.collected - self.waited)
        steps = max(0, (due - self.replayed * denominator) // (minibatch * denominator))
        self.replayed += steps * minibatch
        return steps

    def state_dict(self) -> dict[str, Any]:
        """The counts, and the rate by which they were made."""
        counts = {"collected": self.collected, "waited": self.waited, "replayed": self.replayed}
        return {**counts, "rate": list(self._rate)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from stored counts; a rate that differs from the stored one holds for what is collected from now on.

        Otherwise a higher rate would cause many steps at once, and a lower one none for a while.
        """
        self.collected, self.waited, self.replayed = (int(state[name]) for name in ("collected", "waited", "replayed"))
        if tuple(state.get("rate", self._rate)) != self._rate:  # older states do not have it
            self.waited, self.replayed = self.collected, 0
