"""Policies of runs, without the run: `load_policy` returns a `Policy` that acts on single or batched observations."""

from arena.serving.policy import Policy, load_policy

__all__ = ["Policy", "load_policy"]
