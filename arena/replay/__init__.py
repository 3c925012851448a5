"""Replays (`record: replays`): their files, playback, verification and video."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.replay.playback import ReplayDiffers
    from arena.replay.verify import frames

__all__ = ["ReplayDiffers", "frames"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arena.replay import verify  # the writer, in an environment's process, has no use for it

    found: object = getattr(verify, name)
    return found
