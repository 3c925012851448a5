"""Verifies replays by playing them again, and renders their episodes.

verify(match)                        plays all recordings, and returns where they differ
events_of(match, episode)            an episode, tick by tick
frames("runs/duel", 0, 12)           its pictures; no screen is needed
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError
from arena.game.api import BatchedEnv
from arena.game.context import EnvContext, with_context
from arena.replay.format import Manifest
from arena.replay.playback import Difference, Event, Playback, ReplayDiffers
from arena.replay.reader import Episode, MatchReplays, Recording, read_replays

Picture = NDArray[np.uint8]  # [height, width, 3]

PICTURES, TEXT = "rgb_array", "ansi"
"""Gymnasium's and PettingZoo's names of render modes."""
DRAWN_WITH = "drawn_with"
"""The key of a game's metadata: the names of its attributes, `policies` and `seen_by`, that who shows it may set."""
_MOST_NAMED = 3  # entities of a policy
_COLOR = re.compile(r"#[0-9a-fA-F]{6}\Z")
_PER_SECOND = 10.0  # ticks per second of games without `render_fps`
_NO_SCREEN = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def verify(match: MatchReplays, *, lane: int | None = None) -> Iterator[tuple[Recording, list[Difference]]]:
    """Plays every recording of a match again, or only `lane`; yields each with the first difference of each lane."""
    for recording in match.recordings:
        found: dict[int | None, Difference] = {}
        lanes = [position for position, number in enumerate(recording.lanes) if lane in (None, number)]
        if not lanes:
            continue
        with Playback(match.playable(recording), recording, lanes=lanes) as playback:
            try:
                for event in playback.events():
                    for position in np.flatnonzero(event.lanes & ~event.same).tolist():
                        number = recording.lanes[lanes[position]]
                        found.setdefault(position, _difference(match, number, event, position))
            except ReplayDiffers as error:
                found[None] = error.difference
        yield recording, list(found.values())


def events_of(
    match: MatchReplays, episode: Episode, *, render_mode: str | None = None
) -> Iterator[tuple[Event, BatchedEnv]]:
    """An episode's events, each with the game in the state after it: the begin, then the ticks.

    Only its lane is played, from where its game was made; events of earlier episodes are left out.
    """
    recording = episode.recording
    position = recording.lanes.index(episode.lane)
    with Playback(match.playable(recording), recording, lanes=[position], render_mode=render_mode) as playback:
        for event in playback.events(since=episode.game):
            if (drawer := drawer_of(playback.game, "policies")) is not None:
                drawer.policies = [entity.policy for entity in recording.manifest.entities]
            if not event.same[0]:
                raise ReplayDiffers(_difference(match, episode.lane, event, 0))
            if event.place >= episode.place:
                yield event, playback.game
            if event.tick == episode.end and event.step is not None:
                return


def drawer_of(game: Any, attribute: str) -> Any:
    """The game within the arena's wrappers, which draws the pictures, if it declares that they take this attribute."""
    while getattr(type(game), "wraps_game", False):
        game = game.game
    metadata = getattr(game, "metadata", None)
    declared = metadata.get(DRAWN_WITH) if isinstance(metadata, Mapping) else None
    return game if isinstance(declared, (list, tuple)) and attribute in declared else None


def frames(run: Path | str, match: int, episode: int, *, lane: int = 0, round: int = 0) -> Iterator[Picture]:
    """The pictures of an episode, uint8 [height, width, 3]: one at its beginning, and one after each tick.

    `match`, `lane`, `round` and `episode` are numbers as in episodes.jsonl.

    Raises:
        ReplayDiffers: the playback differs from the recording.
        ConfigError: there is no such episode, its files are damaged, or the game draws no pictures.
    """
    found = read_replays(run).match(match, round=round)
    for picture, *_ in pictures_of(found, found.episode(episode, lane=lane)):
        yield picture


class Piece(NamedTuple):
    """Entities of one policy, and the color of their pieces in the picture, as "#1f77b4"; None: the game says none."""

    entities: tuple[str, ...]
    policy: str
    color: str | None

    @property
    def text(self) -> str:
        """`blue_0, blue_1: ppo`; of many entities the first ones."""
        more = len(self.entities) - _MOST_NAMED
        names = [*self.entities[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
        return f"{', '.join(names)}: {self.policy}"


def pieces_of(manifest: Manifest, colors: Sequence[str] = ()) -> list[Piece]:
    """The entities of a picture, those of one policy and color together; `colors` as of `Interface`."""
    known: Sequence[str | None] = colors
    if len(colors) != len(manifest.entities) or not all(isinstance(one, str) and _COLOR.match(one) for one in colors):
        known = [None] * len(manifest.entities)
    found: dict[tuple[str, str | None], list[str]] = {}
    for entity, color in zip(manifest.entities, known, strict=True):
        found.setdefault((entity.policy, color), []).append(entity.name)
    return [Piece(tuple(names), policy, color) for (policy, color), names in found.items()]


def pictures_of(match: MatchReplays, episode: Episode) -> Iterator[tuple[Picture, Event, BatchedEnv]]:
    """As `frames`, each picture with the event that it shows, and the game."""
    without_screen()
    manifest = match.playable(episode.recording)
    mode = PICTURES if PICTURES in rendering(manifest).modes else None
    for event, game in events_of(match, episode, render_mode=mode):
        picture = rendered(manifest, game)
        if not isinstance(picture, np.ndarray) or picture.shape[2:] != (3,):
            raise ConfigError(
                f"the game {manifest.make!r} draws no pictures; one of Gymnasium or PettingZoo has 'rgb_array' "
                "in `metadata['render_modes']` and takes `render_mode=`, one of another kind has `render()`"
            )
        yield picture.astype(np.uint8, copy=False), event, game


def without_screen() -> None:
    """Lets games draw without a window: before they import a library that opens one."""
    for name, value in _NO_SCREEN.items():
        os.environ.setdefault(name, value)


def rendered(manifest: Manifest, game: BatchedEnv) -> Picture | str | None:
    """Renders the first lane of a game: a picture, text, or None."""
    try:
        return game.render()
    except Exception as error:
        hint = ""
        windows = "glfw|opengl|loadgl|glx|egl|osmesa|display|x11"  # MuJoCo's errors without a screen come from these
        if "mujoco" in sys.modules and re.search(windows, f"{error}", re.I):
            found = os.environ.get("MUJOCO_GL")
            hint = (
                ". MuJoCo draws with the library that the environment variable MUJOCO_GL names; it "
                f"{'is not set' if found is None else f'is {found!r}'}: set it to egl (a GPU or Mesa) or osmesa (no "
                "GPU) before the command"
            )
        raise ConfigError(
            f"the game {manifest.make!r} cannot be drawn: {type(error).__name__}: {error}"
            f"{registry.where_raised(error)}{hint}"
        ) from error


class Rendering(NamedTuple):
    """How a game is rendered, from its metadata."""

    modes: tuple[str, ...]  # values for `render_mode`; empty if the configuration sets it
    per_second: float  # ticks per second


def rendering(manifest: Manifest) -> Rendering:
    """How a recorded game is rendered."""
    registry.import_plugins(manifest.imports)
    if manifest.screen is not None:
        registry.load_object("envs.adapters.screen:open_screen")()
    return rendering_of(manifest.make, manifest.kwargs)


def rendering_of(make: str, kwargs: Mapping[str, Any]) -> Rendering:
    """How a game is rendered: by the metadata of the class of a natively batched game, or of an object of another."""
    factory = registry.environment_factory(make)
    given, batched = kwargs, getattr(factory, "batched", False)
    kwargs = {**with_context(factory, given, EnvContext()), **({"lanes": 1} if batched else {})}
    try:
        instance = factory if batched else factory(**kwargs)
    except Exception as error:
        raise ConfigError(f"the game {make!r} cannot be made with {given}: {type(error).__name__}: {error}") from error
    found: Any = getattr(instance, "metadata", None)
    if hasattr(instance, "close") and not batched:
        instance.close()
    metadata: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    modes: Sequence[str] = metadata.get("render_modes") or ()
    takes = "render_mode" not in kwargs
    try:
        inspect.signature(factory).bind(**{**kwargs, "render_mode": PICTURES})
    except (TypeError, ValueError):
        takes = False
    return Rendering(tuple(modes) if takes else (), float(metadata.get("render_fps") or _PER_SECOND))


def _difference(match: MatchReplays, lane: int, event: Event, position: int) -> Difference:
    number, begun = int(event.episodes[position]), int(event.begun[position])
    played = 0 if event.step is None else event.tick - begun
    return Difference(match.manifest.match, event.tick, lane, number, played)
