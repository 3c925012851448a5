"""`record: replays`: replayed episodes equal the played ones to the bit, also after interruptions."""

from __future__ import annotations

import functools
import json
import re
import shutil
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import msgspec
import numpy as np
import pytest
import yaml
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.error import DependencyNotInstalled
from PIL import Image

from arena.cli.main import main
from arena.errors import ConfigError
from arena.records.folder import MANIFEST
from arena.replay.format import Chunk
from arena.replay.playback import Difference
from arena.replay.reader import MatchReplays, read_replays
from arena.replay.verify import events_of, frames, verify
from arena.replay.video import write_newest
from arena.roles.protocol import RoleFailed
from command import Command
from damaged_folders import without_checksums
from faulty_games import Faulty
from in_process import Played, one_match, play
from tampered_replays import other_action, tamper

RANDOM = {"algorithm": "random"}


def run_of(make: str, *seats: Any, ticks: int = 60, lanes: int = 3, blue: Any = RANDOM, **more: Any) -> dict[str, Any]:
    """Legs of 20 ticks."""
    game = {"make": make, "kwargs": more.pop("kwargs", {}), "wrappers": more.pop("wrappers", [])}
    match, policies = {"lanes": lanes, **more.pop("match", {})}, {"blue": blue, "red": RANDOM}
    given = {"seats": seats or ["blue"], "seed": 5, "checkpoint_every": 20, "record": "replays"}
    return one_match(game, policies, ticks=ticks, match=match, **{**given, **more})


def match_of(played: Played | Path, number: int = 0) -> MatchReplays:
    return read_replays(played if isinstance(played, Path) else played.folder.path).match(number)


def differences(match: MatchReplays) -> list[Difference]:
    return [difference for _, found in verify(match) for difference in found]


def check(played: Played, number: int = 0) -> MatchReplays:
    """Compares replays with the game and with the lines of episodes.jsonl; also replays each lane alone."""
    match = match_of(played, number)
    assert differences(match) == []
    episodes = match.episodes()
    lines = {(e["lane"], e["episode"]): (e["tick"], e["length"]) for e in played.episodes if e["match"] == number}
    assert {(one.lane, one.number): (one.end, one.length) for one in episodes} == lines
    for one in episodes[:: max(1, len(episodes) // 5)]:
        events = [(event.tick, event.step is None) for event, _ in events_of(match, one)]
        assert events == [(one.begin, True), *((tick, False) for tick in range(one.begin + 1, one.end + 1))]
    return match


def files(played: Played | Path) -> dict[str, bytes]:
    home = (played if isinstance(played, Path) else played.folder.path) / "replays"
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


# --------------------------------------------------------------------------------------- every game, to the bit


Recorded = Callable[[str], Path]
GAMES: dict[str, Any] = {
    "touchdown": run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}),
    "touchdown, images and numbers": run_of(
        "touchdown",
        *("blue", "blue", "red", "red"),
        kwargs={"team_size": 2, "max_steps": 9, "red_obs": "image", "blue_actions": "continuous", "mirror": True},
    ),
    "cover": run_of("cover", ["blue"] * 9, kwargs={"players": 9, "max_steps": 7}),
    "rock_paper_scissors": run_of("matrix", "blue", "red", kwargs={"game": "rock_paper_scissors"}),
    "CartPole": run_of("gymnasium:CartPole-v1"),
    "CartPole in wrappers": run_of("gymnasium:CartPole-v1", wrappers=[{"frame_stack": 3}, {"time_limit": 7}]),
    "simple_tag": run_of("pettingzoo:mpe2.simple_tag_v3", "blue", "blue", ["blue"], "red", kwargs={"max_cycles": 8}),
    "tic-tac-toe": run_of("pettingzoo:classic.tictactoe_v3", "red", "blue"),
    "every kind of space": run_of("games:EverySpace"),
    "entities that end one after the other": run_of("games:Dropout", ["blue", "blue"], "red"),
    "a list game": run_of("configs.examples.list_game.chase:Chase", "blue", "red"),
}


@pytest.fixture(scope="module")
def played_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Played]:
    """The run of a game, which is played once."""
    return functools.cache(lambda game: play(GAMES[game], tmp_path_factory.mktemp("recorded")))


@pytest.fixture
def recorded(played_once: Callable[[str], Played], tmp_path: Path) -> Recorded:
    """A copy of the folder of a game's run."""
    return lambda game: Path(shutil.copytree(played_once(game).folder.path, tmp_path / "copied"))


@pytest.mark.parametrize("game", GAMES)
def test_replay_equals_the_recorded_episode(game: str, played_once: Callable[[str], Played]) -> None:
    check(played_once(game))


def test_blocks_of_lanes_write_files_of_their_own(tmp_path: Path) -> None:
    data = run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}, match={"pipeline": 2})
    match = check(play(data, tmp_path))
    assert [one.start for one in match.recordings] == [0, 0, 20, 20, 40, 40]


def test_abandoned_seats_are_replayed(tmp_path: Path) -> None:
    leaves = {"algorithm": "workers:Counts", "options": {"leave": [7]}}
    check(play(run_of("games:RandomLengths", "blue", "red", lanes=1, blue=leaves, checkpoint_every=60), tmp_path))


def test_resets_in_mid_episode_are_replayed(tmp_path: Path) -> None:
    data = run_of("gymnasium:FrozenLake-v1", lanes=1, blue={"algorithm": "workers:CheckGymnasium"}, checkpoint_every=60)
    match = check(play(data, tmp_path))
    begins = match.recordings[0].begins
    given = [begin.seeds for begin in begins[1:]]
    assert [None] in given
    assert any(seeds not in (None, [None]) for seeds in given)
    assert any(before.tick == after.tick for before, after in pairwise(begins))


@pytest.mark.parametrize("fault", ["raise", "reset"])
def test_restarted_games_are_replayed(fault: str, tmp_path: Path) -> None:
    Faulty.forget()
    kwargs = {"length": 5, "fault": fault, "at": 3 if fault == "reset" else 7}
    played = play(run_of("faulty_games:Faulty", lanes=2, kwargs=kwargs, on_env_error="restart"), tmp_path)
    match = match_of(played)
    assert sum(begin.new_game for recording in match.recordings for begin in recording.begins) == 4
    check(played)


def test_newest_episode_is_one_that_plays_within_few_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play(run_of("games:Countdown", kwargs={"length": 7}, checkpoint_every=60), tmp_path).folder.path
    ends = [one.end for one in match_of(run).episodes()]
    assert newest_end(run) == max(end for end in ends if end < 60) > 30
    monkeypatch.setattr("arena.replay.reader.MOST_PLAYED", 30)
    assert newest_end(run) == max(end for end in ends if end <= 30)
    monkeypatch.setattr("arena.replay.video.MOST_PLAYED", 1)
    with pytest.raises(ConfigError, match="no episode plays within 1 ticks"):
        write_newest(run, tmp_path / "newest.gif")


def newest_end(run: Path) -> int:
    """The last tick of the newest episode."""
    newest = match_of(run).newest()
    assert newest is not None
    return newest.end


def test_played_ticks_begin_where_the_game_was_made(tmp_path: Path) -> None:
    Faulty.forget()
    kwargs = {"length": 5, "fault": "raise", "at": 7}
    match = match_of(play(run_of("faulty_games:Faulty", lanes=2, kwargs=kwargs, on_env_error="restart"), tmp_path))
    for one in match.episodes():
        made = [begin.tick for begin in one.recording.begins[: one.place + 1] if begin.new_game][-1]
        assert one.played == one.end - made
    assert {one.played for one in match.episodes()} != {one.end for one in match.episodes()}


def test_game_with_global_randomness_is_not_reproduced(tmp_path: Path) -> None:
    match = match_of(play(run_of("games:RandomRewards", lanes=2, ticks=20), tmp_path))
    assert [(found.lane, found.episode, found.tick) for found in differences(match)] == [(0, 0, 1), (1, 0, 1)]


def test_replays_do_not_change_the_run(tmp_path: Path) -> None:
    data = GAMES["touchdown"]
    on, off = play(data, tmp_path), play({**data, "record": "nothing"}, tmp_path)
    assert on.folder.episodes.read_bytes() == off.folder.episodes.read_bytes()
    assert not off.folder.replays.exists()


def test_evaluations_keep_replays_of_their_own(tmp_path: Path) -> None:
    played = play(
        {**GAMES["CartPole"], "matches": [{"env": "game", "seats": ["blue"], "lanes": 2}]}, tmp_path, episodes=3
    )
    match = match_of(played)
    assert differences(match) == []
    lines = {(line["lane"], line["episode"]) for line in played.episodes}
    assert lines == {(lane, number) for lane in (0, 1) for number in range(3)}
    assert lines <= {(one.lane, one.number) for one in match.episodes()}, "a lane that is done early plays on"


def test_files_of_replays_are_private_and_grouped_by_round_and_match(tmp_path: Path) -> None:
    home = play(run_of("games:Countdown", match={"copies": 2}), tmp_path).folder.replays
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()) == [
        f"round-0000/match-000{match}/{name}"
        for match in (0, 1)
        for name in (
            *(f"0000000000{start}.lane-0000.replay" for start in ("00", "20", "40")),
            f"checksums/{MANIFEST}",
            MANIFEST,
        )
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*")) if path.is_dir()} == {0o700}


def test_a_lane_takes_few_bytes_per_tick(tmp_path: Path) -> None:
    data = run_of("touchdown", "blue", "red", ticks=500, lanes=16, checkpoint_every=500, kwargs={"max_steps": 60})
    played = play(data, tmp_path)
    size = sum(len(content) for content in files(played).values())
    assert size < 3.5 * 500 * 16, "two bytes of digest, and two choices of five that are random"


# ------------------------------------------------------------------------------------------------- resuming


LEARNS = {"algorithm": "workers:Counts"}


def test_resumed_run_has_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.replay.writer._MOST_TICKS", 3)
    holds = {"algorithm": "workers:Counts"}
    data = run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}, ticks=100, blue=holds)
    whole = play(data, tmp_path / "whole", given=True)
    broken = {**data, "policies": {**data["policies"], "blue": {**holds, "options": {"fails_at": 70}}}}
    with pytest.raises(RoleFailed, match="brittle"):
        play(broken, tmp_path / "parted", given=True)
    before = match_of(tmp_path / "parted" / "run")
    assert differences(before) == []
    assert before.recordings[-1].start == 60, "the played part of the leg is recorded"
    parted = play(data, tmp_path / "parted", resume=True)
    assert files(parted) == files(whole)
    check(parted)


def test_match_that_a_resume_renumbers_replays_as_it_was_in_each_leg(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_of("games:Countdown", blue=LEARNS)
    data["matches"] = [{"env": "game", "seats": ["blue"]}, {"env": "game", "seats": ["red"], "lanes": 2}]
    play({**data, "ticks": 40}, tmp_path, given=True)
    data["matches"][0]["copies"] = 2  # so match 1 is now blue's
    played = play({**data, "ticks": 80}, tmp_path, resume=True)
    match = check(played, 1)
    assert [(one.start, one.manifest.entities[0].policy) for one in match.recordings] == [
        (0, "red"), (20, "red"), (40, "blue"), (60, "blue")
    ]  # fmt: skip
    assert main(["replay", str(played.folder.path), "--match", "1", "--verify"]) == 0
    assert "round 0, match 1: game, red; from tick 40 on game, blue: " in capsys.readouterr().out
    (match.path / f"000000000040.{MANIFEST}").unlink()
    with pytest.raises(ConfigError, match="it is missing, and had"):
        read_replays(played.folder.path)


# --------------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize("game", ["touchdown", "CartPole", "tic-tac-toe"])
def test_changed_action_is_detected_at_its_tick(game: str, recorded: Recorded) -> None:
    run = recorded(game)
    match = match_of(run)
    recording = match.recordings[1]
    tick = next(t for t in range(25, 40) if _acts(match, tick=t, lane=1))
    other_action(recording.path, tick=tick, lane=1, choices=2)
    (found,) = differences(match_of(run))
    assert (found.lane, found.tick) == (1, tick)


def _acts(match: MatchReplays, *, tick: int, lane: int) -> bool:
    """Whether the first entity is to act on a tick."""
    for one in match.episodes():
        active = False
        for event, _ in events_of(match, one) if one.lane == lane and one.begin < tick <= one.end else ():
            if event.tick == tick:
                return active
            active = bool(event.frame.active[0, 0])
    raise AssertionError(f"nothing was played on tick {tick}")


def test_changed_seed_is_detected_before_play(recorded: Recorded) -> None:
    run = recorded("CartPole")
    match = match_of(run)

    def change(chunk: Chunk) -> Chunk:
        first = msgspec.structs.replace(chunk.begins[0], seeds=[1, 2, 3])
        return msgspec.structs.replace(chunk, begins=[first, *chunk.begins[1:]])

    tamper(match.recordings[0].path, change)
    found = differences(match_of(run))
    assert [(one.lane, one.tick, one.played) for one in found] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert "the first observation, after tick 0, differs from the recording" in str(found[0])


def test_game_that_refuses_its_record_is_a_difference(recorded: Recorded) -> None:
    run = recorded("CartPole")
    match = match_of(run)
    other_action(match.recordings[0].path, tick=5, lane=0, choices=200)
    other_action(match.recordings[0].path, tick=5, lane=0, choices=200)
    (found,) = differences(match_of(run))
    assert (found.lane, found.tick) == (None, 5)
    assert "the game fails at tick 5, where it did not fail before: AssertionError" in str(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"make": "games:Nowhere"}, "no 'Nowhere'"),
        ({"make": "games:EverySpace"}, "have changed: now "),
    ],
)
def test_missing_game_is_named(change: Any, words: str, tmp_path: Path) -> None:
    match = match_of(play(run_of("games:Countdown"), tmp_path))
    path, config = match.path / MANIFEST, without_checksums(match.path.parents[2]) / "config.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    held = yaml.safe_load(config.read_text())
    (game,) = held["envs"].values()
    game.update(change)
    config.write_text(yaml.safe_dump(held))
    with pytest.raises(ConfigError, match=words):
        differences(match_of(match.path.parents[2]))


# ------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("game", "shape"),
    [
        ("touchdown", (520, 480, 3)),  # with a line for each policy
        ("rock_paper_scissors", (520, 480, 3)),
        ("CartPole in wrappers", (400, 600, 3)),
        ("simple_tag", (700, 700, 3)),
        ("tic-tac-toe", (1000, 1000, 3)),
    ],
)
def test_episode_has_one_picture_more_than_ticks(
    game: str, shape: tuple[int, ...], played_once: Callable[[str], Played]
) -> None:
    played = played_once(game)
    episode = next(one for one in match_of(played).episodes() if one.lane == 2 and one.number == 1)
    pictures = list(frames(played.folder.path, 0, 1, lane=2))
    assert {(picture.shape, picture.dtype) for picture in pictures} == {(shape, np.dtype(np.uint8))}
    assert len(pictures) == episode.length + 1
    assert len({picture.tobytes() for picture in pictures}) > 1


# ------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def duel(played_once: Callable[[str], Played]) -> Path:
    """A run that tests only read."""
    path: Path = played_once("touchdown").folder.path
    return path


def said(command: Command, *arguments: object, code: int = 0) -> str:
    printed = command("replay", *arguments, code=code)
    return printed.err if code == 2 else printed.out


def test_command_without_an_episode_lists_the_episodes(command: Command, duel: Path) -> None:
    assert said(command, str(duel)).startswith("round 0, match 0: game, blue red: 27 episodes, ")
    lines = said(command, str(duel), "--match", "0", "--lane", "1").splitlines()
    assert len(lines) == 10
    assert lines[1] == "  lane 1, episode 0: ticks 1 to 9, blue draw 0, red draw 0"
    assert lines[3] == "  lane 1, episode 2: ticks 19 to 20, cut by the end of the leg"


def test_episode_is_printed_tick_by_tick(command: Command, recorded: Recorded) -> None:
    run = recorded("rock_paper_scissors")
    head, *lines = said(command, run, "--match", "0", "--episode", "1").splitlines()
    ticks = [line for line in lines if line.startswith("tick ")]  # pictures are between them
    assert head.startswith("round 0, match 0: game, blue red, lane 0, episode 1: ticks 11 to 20, blue ")
    assert len(ticks) == 10
    assert all(line.startswith(f"tick {number}: player_0 ") for number, line in enumerate(ticks, start=11))
    assert ticks[-1].count("truncated") == 2
    actions = {action for line in ticks for action in re.findall(r"player_\d (\w+)", line)}
    assert actions and actions <= {"rock", "paper", "scissors"}
    assert sum("[" in line for line in lines) == 10  # the table with the chosen cell, after each tick


def test_game_with_text_rendering_is_printed(command: Command, tmp_path: Path) -> None:
    run = str(play(run_of("gymnasium:FrozenLake-v1"), tmp_path).folder.path)
    assert "FFFG" not in said(command, run)
    assert "HFFG" in said(command, run, "--match", "0", "--episode", "0")


def test_all_episodes_or_one_can_be_verified(command: Command, duel: Path) -> None:
    told = said(command, str(duel), "--verify")
    assert told == "round 0, match 0: game, blue red: 27 episodes, 180 ticks of lanes, all as recorded\n"
    assert said(command, str(duel), "--match", "0", "--episode", "1", "--verify").endswith("9 ticks, all as recorded\n")


def test_missing_replays_of_a_finished_run_fail_verification(command: Command, recorded: Recorded) -> None:
    run = recorded("touchdown")
    match = match_of(run)
    path, whole = match.recordings[0].path, len(match.episodes())
    path.write_bytes(path.read_bytes()[:-1])
    kept = len(read_replays(run).match(0).episodes())
    assert kept < whole
    told = said(command, run, "--verify", code=1).splitlines()
    assert told[-1] == f"  {whole - kept} more episodes of episodes.jsonl without a replay"
    death = {"time": "2026-03-01T02:11:09.120+00:00", "kind": "process", "done": "moved", "seconds": 0.8}
    Path(run, "faults.jsonl").write_text(json.dumps(death) + "\n")
    assert said(command, run, "--verify").splitlines() == told
    Path(run, "faults.jsonl").unlink()
    without_checksums(Path(run))
    max(Path(run, "boundaries").iterdir()).unlink()  # as if its end were to come
    Path(run, "result.json").unlink()
    assert said(command, run, "--verify").splitlines() == told


def test_replays_since_a_resume_are_expected_since_then(command: Command, tmp_path: Path) -> None:
    data = run_of("games:Countdown", blue=LEARNS, ticks=40)
    play({**data, "record": "nothing"}, tmp_path, given=True)
    match = match_of(play({**data, "ticks": 80}, tmp_path, resume=True))
    run, kept = str(match.path.parents[2]), len(match.episodes())
    told = said(command, run, "--verify").splitlines()
    assert told[0].endswith(", 120 ticks of lanes, all as recorded")
    assert told[1].endswith(" more episodes of episodes.jsonl without a replay")
    path = match.recordings[-1].path
    path.write_bytes(path.read_bytes()[:-1])
    assert len(match_of(Path(run)).episodes()) < kept
    said(command, run, "--verify", code=1)


def test_a_lane_is_verified_and_counted_alone(command: Command, recorded: Recorded) -> None:
    run = recorded("touchdown")
    match = match_of(run)
    lanes = {lane: sum(one.lane == lane for one in match.episodes()) for lane in (0, 1)}
    other_action(match.recordings[0].path, tick=12, lane=0, choices=5)
    assert said(command, run, "--verify", "--lane", "1").splitlines() == [
        f"round 0, match 0: game, blue red: {lanes[1]} episodes, 60 ticks of lanes, all as recorded"
    ]
    words = "match 0, lane 0, episode 1: tick 12, number 3 of the episode, differs from the recording"
    assert said(command, run, "--verify", "--lane", "0", code=1).splitlines() == [words]
    assert said(command, run, "--lane", "0").splitlines() == [
        f"round 0, match 0: game, blue red: {lanes[0]} episodes, 60 ticks"
    ]


def test_match_without_replays_is_named(command: Command, tmp_path: Path) -> None:
    data = run_of("games:Countdown")
    match = match_of(play({**data, "matches": data["matches"] * 2}, tmp_path), 1)
    run, count = str(match.path.parents[2]), len(match.episodes())
    (match.path / MANIFEST).unlink()
    assert f"{match.path / MANIFEST}: is not a replay, or is damaged: it is missing" in said(
        command, run, "--verify", code=2
    )
    shutil.rmtree(match.path)
    told = said(command, run, "--verify", "--round", "0", code=1).splitlines()
    assert told[-1] == f"round 0, match 1: no replays, though episodes.jsonl has {count} episodes"
    assert len(said(command, run, "--verify", "--match", "0").splitlines()) == 1


def test_a_difference_is_exit_1_and_a_damaged_file_exit_2(command: Command, tmp_path: Path, recorded: Recorded) -> None:
    run = recorded("touchdown")
    path = match_of(run).recordings[0].path
    other_action(path, tick=12, lane=0, choices=5)
    words = "match 0, lane 0, episode 1: tick 12, number 3 of the episode, differs from the recording"
    assert said(command, run, "--verify", code=1).splitlines() == [words]
    assert words in said(command, run, "--match", "0", "--episode", "1", code=1)
    said(command, run, "--match", "0", "--episode", "1", "--video", str(tmp_path / "duel.mp4"), code=1)
    assert not list(tmp_path.glob("*.mp4")) and not list(tmp_path.glob(".*.mp4"))
    path.write_bytes(path.read_bytes()[:40] + b"?" + path.read_bytes()[41:])
    assert f"{path}: is not a replay, or is damaged" in said(command, run, "--verify", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--match", "1"], "round 0 has no match 1; there is only 0"),
        (["--round", "3"], "there is no round 3; there is only 0"),
        (["--match", "0", "--episode", "99"], "match 0 has no episode 99 of lane 0; there are 0 to 8"),
        (["--match", "0", "--lane", "3"], "match 0 has no lane 3; there are 0 to 2"),
        (["--episode", "1"], "--episode: an episode is counted within its match"),
        (["--video", "a.mp4"], "--video: a video is of one episode"),
        (
            ["--match", "0", "--episode", "1", "--video", "a.avi"],
            "a.avi' is not a video file; known: .gif, .mp4, .webp",
        ),
        (["--match", "0", "--episode", "1", "--video", "no/a.gif"], "--video: there is no folder 'no'"),
    ],
)
def test_impossible_combinations_are_refused(command: Command, arguments: list[str], words: str, duel: Path) -> None:
    assert words in said(command, str(duel), *arguments, code=2)


@pytest.mark.parametrize("suffix", ["mp4", "gif", "webp"])
def test_a_video_has_a_picture_for_every_tick_and_holds_the_last(
    command: Command, suffix: str, duel: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"duel.{suffix}"
    episode = ["--match", "0", "--episode", "1", "--lane", "2"]
    told = said(command, str(duel), *episode, "--video", str(path), "--per-second", "5")
    assert f"{path}: " in told
    assert " kB, 9 ticks, 5 in a second\n" in told
    shown = imageio_ffmpeg.count_frames_and_secs(str(path)) if suffix == "mp4" else durations(path)
    assert shown == (pytest.approx(15, abs=5 if suffix != "mp4" else 0), pytest.approx(3.0, abs=0.2))
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "nothing is left beside it"


def durations(path: Path) -> tuple[int, float]:
    """The number of pictures (equal ones may be merged), and their duration in seconds."""
    with Image.open(path) as image:
        milliseconds = []
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            image.load()
            milliseconds.append(image.info["duration"])
    return len(milliseconds), sum(milliseconds) / 1000


def test_undrawable_game_is_reported_and_the_report_has_a_page(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(_: CartPoleEnv) -> None:
        raise DependencyNotInstalled("pygame is not installed")

    run = str(play(run_of("gymnasium:CartPole-v1", ticks=20), tmp_path).folder.path)
    monkeypatch.setattr(CartPoleEnv, "render", render)
    words = "the game 'gymnasium:CartPole-v1' cannot be drawn: DependencyNotInstalled: pygame is not installed"
    assert words in said(command, run, "--match", "0", "--episode", "0", "--video", str(tmp_path / "a.gif"), code=2)
    assert command("report", run)
    assert "cannot be drawn: DependencyNotInstalled: pygame is not installed" in (Path(run) / "report.html").read_text()
