"""The run folder: formats of its files, journals, checkpoints, boundaries, results.

formats      one struct for each line or document; metrics: episodes and updates, which come as messages
journal      files of JSON lines; atomic, checksums, lock: what keeps files whole
checkpoint   states of policies; boundary: from where a run can be resumed
recorder     what a run writes while it plays; results: its results, made by figures and iterations
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.records.result_file import read_results

__all__ = ["read_results"]


def __getattr__(name: str) -> object:
    if name != "read_results":  # imported on first use: it needs msgspec, which a process that only locks does without
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arena.records.result_file import read_results

    return read_results
