"""Files that a logger sends to its service on request: the option `artifacts` of `mlflow` and `wandb`.

checkpoints  those of all policies, at each boundary
videos       the newest recorded episode when the run ends: needs `record: replays` and the extra `video`
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arena.errors import ConfigError
from arena.replay.video import write_newest

CHECKPOINTS, VIDEOS = "checkpoints", "videos"


def checked(artifacts: Sequence[str]) -> frozenset[str]:
    """The kinds of files to send; ConfigError: something else is among them."""
    if isinstance(artifacts, str) or not {*artifacts} <= {CHECKPOINTS, VIDEOS}:
        raise ConfigError(f"`artifacts` is a list of {CHECKPOINTS!r} and {VIDEOS!r}; found {artifacts!r}")
    return frozenset(artifacts)


@contextmanager
def newest_video(folder: Path) -> Iterator[Path]:
    """A video of the run's newest episode, as a file that is gone afterwards.

    Raises:
        ConfigError: no episode is recorded, its game draws no pictures, or a package is missing.
    """
    with tempfile.TemporaryDirectory(prefix="arena-video-") as home:
        path = Path(home) / "newest_episode.mp4"
        write_newest(folder, path)
        yield path
