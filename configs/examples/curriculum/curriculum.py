"""A curriculum: after every leg it sees the newest result, and says what changes."""

from __future__ import annotations


class Longer:
    """Longer episodes as soon as most of them reach the limit.

    Args:
        start: ticks of the first episodes, at most.
        most: ticks of the last ones.
    """

    def __init__(self, *, start, most=500):
        self.limit, self.most = start, most

    def begin(self):
        """Before the first tick."""
        return {"envs.cartpole.kwargs.max_episode_steps": self.limit}

    def changes(self, result):
        """After every leg: values by key path, or None."""
        if not result["episode_len_mean"] >= 0.7 * self.limit or self.limit == self.most:
            return None
        self.limit = min(2 * self.limit, self.most)
        return {"envs.cartpole.kwargs.max_episode_steps": self.limit}

    def resume(self, lines):
        """When a run goes on: the lines of changes.jsonl so far."""
        for line in lines:
            self.limit = line["set"].get("envs.cartpole.kwargs.max_episode_steps", self.limit)
