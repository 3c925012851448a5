"""The results of a run: one line of numbers per iteration, under published names.

figures      episodes to means, least and most values
iterations   episodes, updates and measured values in; what each result says out; pure
files        `result.json`, and its numbers under flat names
keeper       the results of a run as the root keeps them: what is on record, what is known, what is written next

An iteration is what lies between two results. The line of a result has the same numbers for every number of ranks; of a
resumed run, those of a run that was never interrupted.
"""

from arena.results.files import read_results

__all__ = ["read_results"]
