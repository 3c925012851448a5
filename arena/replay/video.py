"""Writes pictures as a video or an animation: `.mp4` (H.264), `.gif` and `.webp`.

    write_video(Path("duel.mp4"), frames, per_second=10)

`captioned` puts a line over each picture: the players with their returns, and the progress of the episode. Pillow draws
and writes GIF and WebP, imageio-ffmpeg has an encoder for MP4: the extra `video`.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.errors import ConfigError, WriteError, nearest
from arena.records.atomic import check_place, private
from arena.replay.reader import MOST_PLAYED, Episode, MatchReplays, read_replays
from arena.replay.verify import Picture, pictures_of, pieces_of, rendering

SUFFIXES = (".mp4", ".gif", ".webp")
_PACKAGES = {"PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg"}
_LEAST, _MOST = 360, 720  # pixels of a picture's longer side; others are scaled
_HELD = 1.0  # seconds for which the last picture is shown
_SHORTEST = 20  # milliseconds of a picture: browsers slow shorter ones down
_BAND, _PAD, _DOT, _TEXT = 40, 14, 11, 15  # pixels: the caption's height, its margins, a mark, the letters
_PAPER, _INK, _SOFT, _LINE = (250, 250, 251), (33, 38, 45), (120, 128, 138), (222, 226, 230)


class Player(NamedTuple):
    """A player in the caption; its color, as "#1f77b4", is that of its pieces, None if they tell nothing."""

    name: str
    color: str | None
    earned: float


class Caption(NamedTuple):
    """The line over a picture."""

    players: Sequence[Player]
    text: str  # on the right
    share: float  # part of the episode played so far, from 0 to 1


def check_video(path: Path) -> None:
    """Checks that a video can be written to a path.

    Raises:
        ConfigError: its suffix is unknown, its folder cannot be used, or a package is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{str(path)!r} is not a video file; {nearest(path.suffix, SUFFIXES)}", path="--video")
    check_place(path, option="--video")
    missing = [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"a video needs {' and '.join(missing)}; the extra 'video' brings them: "
            'pip install "mpi-policy-arena[video]"',
            path="--video",
        )


def write_video(path: Path, pictures: Iterator[Picture], *, per_second: float) -> None:
    """Writes at least one picture, all of one size, as a file with one of `SUFFIXES`; it appears when complete.

    Raises:
        ConfigError: as `check_video`.
        WriteError: the file cannot be written.
    """
    check_video(path)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_images
    try:
        part.unlink(missing_ok=True)
        open(part, "xb", opener=private).close()  # an encoder's message about an unusable path says less
        try:
            write(part, _prepared(pictures, round(_HELD * per_second)), per_second)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or str(error).partition("\n")[0]  # the rest is the encoder's whole command
        raise WriteError(f"{path} cannot be written: {why}") from error


def write_episode(path: Path, match: MatchReplays, episode: Episode, per_second: float | None = None) -> float:
    """Writes a recorded episode, with captions; returns the pictures per second: by default those of the game.

    Raises:
        ConfigError: as `check_video`, or the game draws no pictures.
        WriteError: the file cannot be written.
    """
    speed = per_second or rendering(match.playable(episode.recording)).per_second
    write_video(path, _captioned(match, episode), per_second=speed)
    return speed


def write_newest(run: Path, path: Path, policy: str | None = None) -> None:
    """Writes a run's newest recorded episode, of a policy, as `write_episode`; ConfigError: also if there is none."""
    check_video(path)
    matches = sorted(read_replays(run).matches, key=lambda match: -match.manifest.round)
    matches = [one for one in matches if policy in (None, *(entity.policy for entity in one.manifest.entities))]
    found = next(((match, newest) for match in matches if (newest := match.newest()) is not None), None)
    if found is None:
        raise ConfigError("no whole episode is recorded", source=str(run))
    if found[1].played > MOST_PLAYED:
        raise ConfigError(f"no episode plays within {MOST_PLAYED:,} ticks; `arena replay --video` writes longer ones")
    write_episode(path, *found)


def _captioned(match: MatchReplays, episode: Episode) -> Iterator[Picture]:
    """The pictures of an episode, with the return so far of each policy's entities of a color: the mean over these."""
    manifest = episode.recording.manifest
    names = [entity.name for entity in manifest.entities]
    earned = np.zeros(len(names))
    for picture, event, game in pictures_of(match, episode):
        if event.step is not None:
            earned += event.step.rewards[0]
        players = [
            Player(piece.text, piece.color, float(np.mean(earned[[name in piece.entities for name in names]])))
            for piece in pieces_of(manifest, game.interface.colors)
        ]
        played = event.tick - episode.begin
        yield captioned(picture, Caption(players, f"{played} / {episode.length}", played / episode.length))


def captioned(picture: Picture, caption: Caption) -> Picture:
    """A picture, `scaled`, under its caption."""
    from PIL import Image, ImageDraw, ImageFont

    below = scaled(picture)
    height, width, _ = below.shape
    image = Image.new("RGB", (width, height + _BAND), _PAPER)
    image.paste(Image.fromarray(below), (0, _BAND))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(_TEXT)
    assert not isinstance(font, ImageFont.ImageFont), "Pillow's packages have FreeType"
    end = width - _PAD - draw.textlength(caption.text, font)
    draw.text((end, _BAND / 2), caption.text, _SOFT, font, anchor="lm")
    left, middle, end = float(_PAD), _BAND / 2, end - _PAD
    for player in caption.players:  # as many as fit
        earned = f"{player.earned:+.4g}" if player.earned else "0"
        text = left + (_DOT + 7 if player.color else 0)
        right = text + draw.textlength(f"{player.name}  {earned}", font)
        if right > end:
            draw.text((left, middle), "...", _SOFT, font, anchor="lm")
            break
        if player.color:
            draw.ellipse((left, middle - _DOT / 2, left + _DOT, middle + _DOT / 2), player.color)
        draw.text((text, middle), player.name, _INK, font, anchor="lm")
        draw.text((right, middle), earned, _SOFT, font, anchor="rm")
        left = right + _PAD + 6
    draw.rectangle((0, _BAND - 2, width, _BAND - 1), _LINE)
    if (done := round(width * caption.share)) > 0:
        draw.rectangle((0, _BAND - 2, done - 1, _BAND - 1), _SOFT)
    return np.asarray(image)


def scaled(picture: Picture, *, least: int = _LEAST, most: int = _MOST) -> Picture:
    """A picture whose longer side has `least` to `most` pixels: small ones are enlarged by whole factors."""
    from PIL import Image

    height, width, _ = picture.shape
    longer = max(height, width)
    if longer < least:
        times = min(-(-least // longer), most // longer)
        return picture.repeat(times, 0).repeat(times, 1)
    if longer > most:
        size = (round(width * most / longer), round(height * most / longer))
        return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
    return picture


def _prepared(pictures: Iterator[Picture], times: int) -> Iterator[Picture]:
    """Pads to even sides, which H.264 requires, and repeats the last picture."""
    last = next(pictures)
    for picture in itertools.chain([last], pictures):
        odd = [(0, side % 2) for side in picture.shape[:2]]
        yield (last := np.pad(picture, [*odd, (0, 0)], mode="edge"))
    yield from itertools.repeat(last, times)


def _write_mp4(path: Path, pictures: Iterator[Picture], per_second: float) -> None:
    import imageio_ffmpeg

    first = next(pictures)
    size = (first.shape[1], first.shape[0])
    settings: dict[str, Any] = {"codec": "libx264", "quality": None, "macro_block_size": 1, "pix_fmt_out": "yuv420p"}
    quality = ["-crf", "20", "-preset", "medium", "-movflags", "+faststart"]
    with closing(
        imageio_ffmpeg.write_frames(str(path), size, fps=per_second, output_params=quality, **settings)
    ) as encoder:
        encoder.send(None)
        for picture in itertools.chain([first], pictures):
            encoder.send(np.ascontiguousarray(picture))


def _write_images(path: Path, pictures: Iterator[Picture], per_second: float) -> None:
    from PIL import Image

    images = map(Image.fromarray, pictures)
    settings: dict[str, Any] = {"quality": 80, "method": 4} if path.suffix.lower() == ".webp" else {"optimize": True}
    milliseconds = max(_SHORTEST, round(1000 / per_second))
    next(images).save(path, save_all=True, append_images=images, duration=milliseconds, loop=0, **settings)
