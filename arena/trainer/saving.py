"""Run folders of a Trainer: copies at a boundary."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from arena.errors import ConfigError
from arena.records.atomic import make_folder, part_of
from arena.records.folder import RunFolder

_LEFT_OUT = ("lock", "requeue", "saved", "logs", "report.html", "wandb", "wandb_id")


def save(folder: RunFolder, to: Path) -> Path:
    """Copies the folder of a run that is at a boundary, so that the copy can be continued like it.

    Raises:
        ConfigError: it holds files.
        WriteError: it cannot be written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError("holds files already; name another folder", source=str(to))
    to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = part_of(to)
    shutil.rmtree(part, ignore_errors=True)

    def left_out(where: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(where) == folder.path and name in _LEFT_OUT]

    shutil.copytree(folder.path, part, symlinks=True, ignore=left_out)
    make_folder(part / "logs")
    if to.exists():
        to.rmdir()
    os.replace(part, to)
    return to
