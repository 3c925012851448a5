"""The results of a run: one line of numbers per iteration, under published names.

figures      episodes to means, minima and maxima
iterations   episodes, updates and measured values in, results out; pure
files        `result.json`, and its numbers under flat names
keeper       the results of a run as the root keeps them, from its records to `result.json`

An iteration lies between two results. Apart from `files.CLOCK_KEYS`, the numbers of a result do not depend on the
number of ranks, nor on whether the run was interrupted and resumed.
"""

from arena.results.files import read_results

__all__ = ["read_results"]
