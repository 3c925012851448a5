"""A policy of a run, without the run."""

from arena.serving.policy import load_policy

__all__ = ["load_policy"]
