"""Checks of a plan before a run starts: environments, and every policy on every seat that it may get."""
