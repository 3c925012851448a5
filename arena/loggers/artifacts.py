"""What a logger sends to its service beside numbers: the configuration, and files by the option `artifacts`.

checkpoints  those of all policies, at each boundary
videos       the newest recorded episode when the run ends: needs `record: replays` and the extra `video`
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arena.config import yaml
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.replay.video import check_video, write_newest

CHECKPOINTS, VIDEOS = "checkpoints", "videos"


def checked(artifacts: Sequence[str]) -> frozenset[str]:
    """The kinds of files to send; ConfigError: something else is among them, or a package for videos is missing."""
    if isinstance(artifacts, str) or not {*artifacts} <= {CHECKPOINTS, VIDEOS}:
        raise ConfigError(f"`artifacts` is a list of {CHECKPOINTS!r} and {VIDEOS!r}; found {artifacts!r}")
    if VIDEOS in artifacts:
        check_video(Path(tempfile.gettempdir(), "newest_episode.mp4"))
    return frozenset(artifacts)


def published_config(folder: RunFolder) -> dict[str, Any]:
    """The contents of a run's config.yaml without `loggers`, whose options may hold keys of services."""
    data = yaml.load(folder.config.read_text(), source=str(folder.config))
    return {key: value for key, value in data.items() if key != "loggers"}


@contextmanager
def newest_video(folder: Path) -> Iterator[Path]:
    """A video of the run's newest episode, as a file that is gone afterwards; ConfigError: as `write_newest`."""
    with tempfile.TemporaryDirectory(prefix="arena-video-") as home:
        path = Path(home) / "newest_episode.mp4"
        write_newest(folder, path)
        yield path
