"""The best checkpoints of a run: `checkpoints/<policy>/best.ckpt` of every policy, and `best.json` about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from arena.records import checkpoint
from arena.records.atomic import part_of, replacing, writing
from arena.records.folder import RunFolder
from arena.records.formats import BestFile, read_document


def read(folder: RunFolder) -> BestFile | None:
    """What `best.json` says; None if there is none.

    Raises:
        ConfigError: it is damaged.
    """
    return read_document(folder.best, BestFile) if folder.best.exists() else None


def keep(folder: RunFolder, found: BestFile, checkpoints: Mapping[str, Path]) -> None:
    """Replaces the best checkpoints so far by those of a boundary.

    Args:
        folder: of the run.
        found: the boundary, with the value that makes it the best.
        checkpoints: its files, by policy.
    """
    for name, source in checkpoints.items():
        path = folder.checkpoints_path(name) / checkpoint.BEST
        checkpoint.duplicate(source, part_of(path))
        with writing(path):
            os.replace(part_of(path), path)
    with replacing(folder.best) as file:
        file.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def forget_after(folder: RunFolder, tick: int) -> None:
    """Removes best checkpoints that are later than the boundary from which the run continues."""
    found = read(folder)
    if found is not None and found.tick > tick:
        for path in folder.checkpoints.glob(f"*/{checkpoint.BEST}"):
            path.unlink()
        folder.best.unlink()
