"""Chosen replays as strips of pictures, which the page plays on a canvas.

All pictures of an episode stand in one image, row by row, so that it needs neither a video codec nor a second file.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from arena.errors import ConfigError, shown
from arena.records.folder import RunFolder
from arena.records.metrics import EpisodeRecord
from arena.replay.format import MANIFEST
from arena.replay.playback import ReplayDiffers
from arena.replay.reader import Episode, MatchReplays, read_replays
from arena.replay.verify import Picture, Piece, pictures_of, pieces_of, rendering
from arena.report.numbers import NOTHING, decimal

MOST_PICTURES = 100  # of a replay: of a longer one every second, third, ... picture
_LONGEST = 300  # pixels of a picture's longer side
_LARGEST = 700_000  # bytes of a lossless strip; a larger one is compressed with loss


class Replay(msgspec.Struct, frozen=True):
    """What the page says of a replay.

    Args:
        ticks: of the episode; the strip holds `pictures` of it, in rows of `columns`, each `width` x `height` pixels.
        per_second: pictures.
        failure: why it cannot be shown; empty if it can.
        result: who has won, or what each policy has earned; empty where the episode is not on record.
    """

    round: int
    match: int
    lane: int
    episode: int
    env: str
    pieces: list[Piece]
    ticks: int
    pictures: int = 0
    columns: int = 1
    width: int = 0
    height: int = 0
    per_second: float = 10.0
    failure: str = ""
    result: str = ""


class Strip(NamedTuple):
    """A replay, and its pictures as the address of an image; empty where it cannot be shown."""

    replay: Replay
    image: str


Place: TypeAlias = tuple[int, int, int, int]
"""Round, match, lane and number of an episode."""


class Seat(msgspec.Struct, frozen=True):
    """How a policy did in one seat of an episode."""

    policy: str
    outcome: str | None
    return_: float | None


class Recorded(msgspec.Struct, frozen=True):
    """An episode that has a replay; `command` shows it."""

    round: int
    match: int
    lane: int
    episode: int
    ticks: int
    seats: list[Seat]
    command: str

    @property
    def place(self) -> Place:
        return self.round, self.match, self.lane, self.episode

    @property
    def words(self) -> str:
        """The result: outcomes where there are any, else returns."""
        told = {"win": "won", "loss": "lost", "draw": "drew"}
        parts = []
        for seat in self.seats:
            earned = NOTHING if seat.return_ is None else decimal(seat.return_)
            parts.append(f"{seat.policy} {told.get(seat.outcome or '', earned)}")
        return ", ".join(dict.fromkeys(parts))


def recorded_episodes(folder: RunFolder, lines: Iterable[EpisodeRecord]) -> list[Recorded]:
    """The episodes of matches that have replays, the newest first.

    Args:
        folder: of the run.
        lines: of its `episodes.jsonl`.
    """
    kept: dict[tuple[int, int], bool] = {}
    found = []
    for line in lines:
        where = line.round, line.match
        if where not in kept:
            kept[where] = (folder.replays / f"round-{line.round:04d}" / f"match-{line.match:04d}" / MANIFEST).is_file()
        if kept[where]:
            seats = [Seat(seat.policy, seat.outcome, seat.return_) for seat in line.seats]
            place = f"{line.round}/{line.match}/{line.lane}/{line.episode}"
            command = f"arena report {shown(folder.path)} --episode {place}"
            found.append(Recorded(line.round, line.match, line.lane, line.episode, line.length, seats, command))
    return found[::-1]


def replay_strips(folder: RunFolder, *, most: int, episodes: Sequence[Place] = ()) -> list[Strip]:
    """The last episodes of up to `most` matches, each with other players, the newest rounds first.

    Args:
        folder: of the run.
        most: how many.
        episodes: which ones instead.

    Raises:
        ConfigError: the replays are damaged, or there is no such episode.
    """
    if episodes:
        found = read_replays(folder.path)
        matches = [(found.match(match, round=round), number, lane) for round, match, lane, number in episodes]
        return [_strip(match, match.episode(number, lane=lane)) for match, number, lane in matches]
    if not most or not any(folder.replays.glob(f"round-*/match-*/{MANIFEST}")):
        return []
    return [_strip(match, episode) for match, episode in _chosen(folder, most)]


def _chosen(folder: RunFolder, most: int) -> list[tuple[MatchReplays, Episode]]:
    chosen: dict[tuple[str, ...], tuple[MatchReplays, Episode]] = {}
    for match in sorted(read_replays(folder.path).matches, key=lambda one: -one.manifest.round):
        players = tuple(dict.fromkeys(entity.policy for entity in match.manifest.entities))
        if len(chosen) < most and players not in chosen and (episodes := match.episodes()):
            chosen[players] = match, max(episodes, key=_preference)
    return list(chosen.values())


def _preference(episode: Episode) -> tuple[bool, int]:
    """Prefers episodes that end before their leg, as the others were mostly cut, and of these the latest."""
    leg = episode.recording
    return episode.end < leg.start + leg.ticks, episode.end


def _strip(match: MatchReplays, episode: Episode) -> Strip:
    manifest = match.manifest
    told = Replay(
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
        return _drawn(told, match, episode)
    except (ConfigError, ReplayDiffers) as error:  # a replay that cannot be shown does not stop the page
        return Strip(msgspec.structs.replace(told, failure=str(error)), "")


def _drawn(told: Replay, match: MatchReplays, episode: Episode) -> Strip:
    step = -(-(episode.length + 1) // MOST_PICTURES)
    colors: tuple[str, ...] = ()

    def seen() -> Iterator[Picture]:
        nonlocal colors
        for picture, _, game in pictures_of(match, episode):
            colors = game.interface.colors
            yield picture

    pictures = list(_every(step, seen(), last=episode.length))
    columns = math.ceil(math.sqrt(len(pictures)))
    height, width, _ = pictures[0].shape
    shown = msgspec.structs.replace(
        told,
        pieces=pieces_of(match.manifest, colors),
        pictures=len(pictures),
        columns=columns,
        width=width,
        height=height,
        per_second=max(2.0, rendering(match.playable).per_second / step),
    )
    # All pictures in rows of `columns`: uint8 [rows * height, columns * width, 3].
    height, width, _ = pictures[0].shape
    sheet = np.zeros((-(-len(pictures) // columns) * height, columns * width, 3), np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    # The sheet as the address of an image in WebP.
    from PIL import Image

    image = Image.fromarray(sheet)
    data = _webp(image, lossless=True)
    if len(data) > _LARGEST:
        data = _webp(image, lossless=False)
    return Strip(shown, f"data:image/webp;base64,{base64.b64encode(data).decode()}")


def _every(step: int, pictures: Iterator[Picture], *, last: int) -> Iterator[Picture]:
    """Every `step`-th picture and the last one, scaled for the page."""
    for number, picture in enumerate(pictures):
        if number % step == 0 or number == last:
            yield _fitted(picture)


def _fitted(picture: Picture) -> Picture:
    """Small pictures become larger by whole numbers, so that their pixels stay sharp; large ones smaller."""
    from PIL import Image

    height, width, _ = picture.shape
    longer = max(height, width)
    if longer <= _LONGEST:
        times = max(1, _LONGEST // longer)
        return picture.repeat(times, 0).repeat(times, 1)
    size = (round(width * _LONGEST / longer), round(height * _LONGEST / longer))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _webp(image: object, *, lossless: bool) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=lossless, quality=75, method=2)  # type: ignore[attr-defined]
    return file.getvalue()
