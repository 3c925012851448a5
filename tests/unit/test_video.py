"""Videos of games: sizes and captions of their pictures."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from arena.errors import ConfigError, WriteError
from arena.replay.format import EntityReplays, Manifest
from arena.replay.verify import pieces_of
from arena.replay.video import Caption, Player, captioned, check_video, scaled, write_video
from envs.cover import Cover
from envs.matrix import Matrix
from envs.skirmish import Skirmish
from envs.touchdown import Touchdown
from full_disk import full_above

BLUE, RED = Player("blue", "#1f77b4", 1.5), Player("red", "#d62728", -1.5)


def plain(height: int, width: int, shade: int = 90) -> NDArray[np.uint8]:
    return np.full((height, width, 3), shade, np.uint8)


def colors_of(picture: NDArray[np.uint8]) -> set[str]:
    return {f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in np.unique(picture.reshape(-1, 3), axis=0)}


@pytest.mark.parametrize(
    ("size", "expected"),
    [((64, 64), (384, 384)), ((480, 600), (480, 600)), ((1000, 500), (720, 360)), ((3, 1), (360, 120))],
)
def test_scaled_enlarges_by_whole_factors_and_reduces(size: Any, expected: Any) -> None:
    assert scaled(plain(*size)).shape == (*expected, 3)


def test_a_caption_names_the_players_in_their_colors_above_the_picture() -> None:
    picture = captioned(plain(480, 480), Caption((BLUE, RED), "3 / 9", 1 / 3))
    assert picture.shape == (520, 480, 3)
    assert (picture[40:] == 90).all()
    assert {BLUE.color, RED.color} <= colors_of(picture[:40])


def test_players_beyond_the_caption_width_are_left_out() -> None:
    crowd = [Player(f"a policy with a long name {n}", f"#0000{n + 16:02x}", 0.0) for n in range(9)]
    shown = colors_of(captioned(plain(360, 480), Caption(crowd, "3 / 9", 0.0)))
    assert [player.color in shown for player in crowd] == [True] + [False] * 8


def test_odd_sides_become_even_and_the_last_picture_stays_for_a_second(tmp_path: Path) -> None:
    path = tmp_path / "odd.mp4"
    write_video(path, iter([plain(361, 363, shade) for shade in (0, 100, 200)]), per_second=4)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    shades = np.frombuffer(shown, np.uint8).reshape(-1, 362 * 364 * 3).mean(axis=1).tolist()
    assert shades == [pytest.approx(shade, abs=3) for shade in (0, 100, 200, 200, 200, 200, 200)]


def test_pictures_that_fail_leave_no_file(tmp_path: Path) -> None:
    def two() -> Any:
        yield plain(64, 64)
        raise ZeroDivisionError

    for name in ("a.mp4", "a.gif"):
        with pytest.raises(ZeroDivisionError):
            write_video(tmp_path / name, two(), per_second=4)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_video_is_reported(tmp_path: Path) -> None:
    with full_above(100), pytest.raises(WriteError, match=r"full\.gif cannot be written"):
        write_video(tmp_path / "full.gif", iter([plain(64, 64)]), per_second=4)


def test_check_video_refuses_an_unusable_path(tmp_path: Path) -> None:
    (tmp_path / "taken.gif").mkdir()
    for path, words in ((tmp_path / "taken.gif", "is a folder; name a file"), (tmp_path / "no" / "a.gif", "no folder")):
        with pytest.raises(ConfigError, match=words):
            check_video(path)


def test_missing_package_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else found(name))
    with pytest.raises(ConfigError, match=r"a video needs imageio-ffmpeg; the extra 'video' brings"):
        check_video(tmp_path / "a.mp4")


GAMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "touchdown": (Touchdown, {"team_size": 2}),
    "cover": (Cover, {"players": 4}),
    "matrix": (Matrix, {}),
    "skirmish": (Skirmish, {}),
}


@pytest.mark.parametrize("name", GAMES)
def test_pieces_have_the_colors_of_the_picture(name: str) -> None:
    make, kwargs = GAMES[name]
    game = make(lanes=1, **kwargs)
    game.reset(np.ones(1, bool), [3])
    names = game.interface.entities
    assert len(game.interface.colors) == len(names)
    shown = colors_of(game.render())
    if name == "matrix":  # whose cells are the paler the less they pay
        assert game.interface.colors == (BLUE.color, RED.color)
    else:
        assert {*game.interface.colors} <= shown
    if name == "touchdown":
        for (x, y), color in zip(game.positions[0], game.interface.colors, strict=True):
            row, column = 240 - 432 / 2.1 * y, 240 + 432 / 2.1 * x
            assert colors_of(game.render()[round(row), round(column) - 8][None, None]) == {color}  # beside the number


def test_pieces_are_named_by_entities_and_policy() -> None:
    space = Discrete(2)
    entities = tuple(
        EntityReplays(f"{team}_{index}", policy, 0, space)
        for team, policy in (("north", "ppo"), ("south", "a2c"))
        for index in range(4)
    )
    manifest = Manifest(0, 0, "game", "game", {}, (), entities)
    north, south = pieces_of(manifest, ["#112233"] * 4 + ["#445566"] * 4)
    assert (north.text, north.color) == ("north_0, north_1, north_2, 1 more: ppo", "#112233")
    assert (south.entities, south.policy, south.color) == (tuple(f"south_{n}" for n in range(4)), "a2c", "#445566")
    for unknown in ((), ["#112233"], ["red; background: url(x)"] * 8):
        assert [piece.color for piece in pieces_of(manifest, unknown)] == [None, None]
