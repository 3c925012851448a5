"""A policy of a run, without the run."""
