"""Recorded transitions (`record: samples`): their files, writer and reader."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.dataset.reader import Episode, MatchSamples, Samples, open_dataset

__all__ = ["Episode", "MatchSamples", "Samples", "open_dataset"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arena.dataset import reader  # the writer, in an environment's process, has no use for it

    found: object = getattr(reader, name)
    return found
