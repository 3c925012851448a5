"""Recorded transitions: `record: samples`, their files and how they are read."""

from arena.dataset.reader import open_dataset

__all__ = ["open_dataset"]
