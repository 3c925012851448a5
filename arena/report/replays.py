"""Chosen replays as strips of pictures, which the page plays on a canvas.

All pictures of an episode stand in one image, row by row, so that it needs neither a video codec nor a second file.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from arena.errors import ConfigError
from arena.records.folder import MANIFEST, RunFolder
from arena.replay.playback import ReplayDiffers
from arena.replay.reader import Episode, MatchReplays, read_replays
from arena.replay.verify import Picture, Piece, pictures_of, pieces_of, rendering
from arena.replay.video import scaled

MOST_PICTURES = 100  # of a replay: of a longer one every second, third, ... picture
_SHORTEST, _LONGEST = 200, 300  # pixels of a picture's longer side
LARGEST = 160_000  # bytes of a strip: a larger one is compressed with more loss, then with half of its pictures
# Lossless, effort 90 takes less time than the default of 75, as few colors become a palette: 0.3 s for 100 pictures
# of touchdown, and a third fewer bytes.
_ENCODINGS: tuple[Mapping[str, Any], ...] = (
    {"lossless": True, "quality": 90, "method": 6},
    {"quality": 75, "method": 4},
    {"quality": 40, "method": 4},
)


Place: TypeAlias = tuple[int, int, int, int]
"""Round, match, lane and number of an episode."""


class Replay(msgspec.Struct, frozen=True):
    """What the page says of a replay."""

    round: int
    match: int
    lane: int
    episode: int
    env: str
    pieces: list[Piece]
    ticks: int  # of the episode
    pictures: int = 0  # of it in the strip, in rows of `columns`
    columns: int = 1
    width: int = 0  # pixels of each picture
    height: int = 0
    per_second: float = 10.0  # pictures
    failure: str = ""  # why it cannot be shown; empty if it can
    result: str = ""  # who has won, or what each policy has earned; empty where the episode is not on record


class Strip(NamedTuple):
    """A replay, and its pictures as the address of an image; empty where it cannot be shown."""

    replay: Replay
    image: str


def replay_strips(folder: RunFolder, *, most: int, episodes: Sequence[Place] = ()) -> list[Strip]:
    """The last episodes of up to `most` matches, each with other players, the newest rounds first; or `episodes`."""
    chosen: list[tuple[MatchReplays, Episode]] = []
    if episodes:
        found = read_replays(folder.path)
        for round_, number, lane, episode in episodes:
            match = found.match(number, round=round_)
            chosen.append((match, match.episode(episode, lane=lane)))
    elif most and any(folder.replays.glob(f"round-*/match-*/{MANIFEST}")):
        known = set[tuple[str, ...]]()
        for match in sorted(read_replays(folder.path).matches, key=lambda one: -one.manifest.round):
            players = tuple(dict.fromkeys(entity.policy for entity in match.manifest.entities))
            if len(known) < most and players not in known and (newest := match.newest()) is not None:
                known.add(players)
                chosen.append((match, newest))
    return [_strip(match, episode) for match, episode in chosen]


def _strip(match: MatchReplays, episode: Episode) -> Strip:
    manifest = episode.recording.manifest
    replay = Replay(
        round=manifest.round,
        match=manifest.match,
        lane=episode.lane,
        episode=episode.number,
        env=manifest.env,
        pieces=pieces_of(manifest),
        ticks=episode.length,
    )
    try:
        if importlib.util.find_spec("PIL") is None:
            raise ConfigError(
                "pictures need pillow; the extra 'video' brings it: pip install \"mpi-policy-arena[video]\""
            )
        step = -(-(episode.length + 1) // MOST_PICTURES)
        pictures: list[Picture] = []
        colors: tuple[str, ...] = ()
        for number, (picture, _, game) in enumerate(pictures_of(match, episode)):
            colors = game.interface.colors
            if number % step == 0 or number == episode.length:
                pictures.append(scaled(picture, least=_SHORTEST, most=_LONGEST))
        per_second = max(2.0, rendering(match.playable(episode.recording)).per_second / step)
    except (ConfigError, ReplayDiffers) as error:  # a replay that cannot be shown does not stop the page
        return Strip(msgspec.structs.replace(replay, failure=str(error)), "")
    image, kept, columns = compressed(pictures)
    height, width, _ = pictures[0].shape
    shown = msgspec.structs.replace(
        replay,
        pieces=pieces_of(manifest, colors),
        pictures=kept,
        columns=columns,
        width=width,
        height=height,
        per_second=per_second * kept / len(pictures),
    )
    return Strip(shown, f"data:image/webp;base64,{base64.b64encode(image).decode()}")


def compressed(pictures: Sequence[Picture]) -> tuple[bytes, int, int]:
    """A WebP image of pictures row by row, of at most `LARGEST` bytes; how many they are, and how many are in a row.

    The first and the last picture are always there.
    """
    from PIL import Image

    height, width, _ = pictures[0].shape
    columns = math.ceil(math.sqrt(len(pictures)))
    sheet = np.zeros((-(-len(pictures) // columns) * height, columns * width, 3), np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    file = io.BytesIO()
    for options in _ENCODINGS:
        file = io.BytesIO()
        Image.fromarray(sheet).save(file, "WEBP", **options)
        if file.tell() <= LARGEST:
            break
    else:
        if len(pictures) > 2:
            return compressed([*pictures[:-1:2], pictures[-1]])
    return file.getvalue(), len(pictures), columns
