"""The best checkpoints of a run: `checkpoints/<policy>/best.ckpt` of every policy, and `best.json` about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from arena.errors import ConfigError
from arena.records import checkpoint, checksums
from arena.records.atomic import part_of, writing
from arena.records.folder import RunFolder
from arena.records.formats import BestFile, read_document


def read(folder: RunFolder) -> BestFile | None:
    """What `best.json` says; None if there is none; raises ConfigError if it is damaged."""
    if not folder.best.exists():
        return None
    checksums.check(folder.best)
    return read_document(folder.best, BestFile)


def check(folder: RunFolder, tick: int) -> None:
    """Refuses a run that goes on from a tick if its best result is not known: a later one would replace better ones."""
    remedy = (
        f"put it back, or move {folder.best.name} and the files checkpoints/*/{checkpoint.BEST} away: the best result "
        f"is then sought among those after tick {tick}"
    )
    kept = {path.parent.name: path for path in folder.checkpoints.glob(f"*/{checkpoint.BEST}")}
    try:
        found = read(folder)
        for path in kept.values() if found is None or found.tick <= tick else ():
            checkpoint.verified_digest(path)
    except ConfigError as error:
        raise ConfigError(f"{error.message}; {remedy}", source=error.source) from error
    # A kill may have come between the first best checkpoints, which are those of this boundary, and `best.json`.
    if found is None and any(checkpoint.ticks_of(path) != tick for path in kept.values()):
        raise ConfigError(f"is missing; {remedy}", source=str(folder.best))
    missing = [] if found is None or found.tick > tick else [name for name in found.policies if name not in kept]
    if missing:
        path = folder.checkpoints_path(missing[0]) / checkpoint.BEST
        raise ConfigError(f"is missing; {remedy}", source=str(path))


def keep(folder: RunFolder, found: BestFile, checkpoints: Mapping[str, Path]) -> None:
    """Replaces the best checkpoints so far by those of a boundary, which are given by policy."""
    for name, source in checkpoints.items():
        path = folder.checkpoints_path(name) / checkpoint.BEST
        checkpoint.duplicate(source, part_of(path))
        with writing(path):
            os.replace(part_of(path), path)
    found = msgspec.structs.replace(found, policies=tuple(checkpoints))
    checksums.replace(folder.best, msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def forget_after(folder: RunFolder, tick: int) -> None:
    """Removes best checkpoints that are later than the boundary from which the run continues."""
    found = read(folder)
    if found is None:  # moved away
        checksums.drop(folder.best)
    elif found.tick > tick:
        for path in folder.checkpoints.glob(f"*/{checkpoint.BEST}"):
            path.unlink()
        checksums.drop(folder.best)
        folder.best.unlink()
