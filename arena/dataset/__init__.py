"""Recorded transitions (`record: samples`): their files, writer and reader."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.dataset.batch import Batch, write_samples
    from arena.dataset.format import EntitySamples
    from arena.dataset.minari import to_minari
    from arena.dataset.reader import Episode, MatchSamples, Samples, open_dataset

__all__ = ["Batch", "EntitySamples", "Episode", "MatchSamples", "Samples", "open_dataset", "to_minari", "write_samples"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arena.dataset import batch, minari, reader  # the writer, in an environment's process, has no use for them

    found: object = getattr(next(one for one in (batch, minari, reader) if hasattr(one, name)), name)
    return found
