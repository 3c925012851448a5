"""`arena watch`: its view of a running run, from the run's files only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from arena.cli.main import main
from arena.cli.watch import FollowedRun, await_start, watch
from arena.errors import ConfigError
from arena.plan.plan import UNBOUNDED_TICKS
from arena.records.folder import RunFolder
from arena.records.lock import FAILED
from league_folders import League, write_league


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_league(tmp_path / "run", League(policies=2, episodes=60, rounds=3))


def followed(folder: RunFolder) -> FollowedRun:
    return FollowedRun(folder)


def test_newest_result_is_shown_with_its_rewards_and_its_file(folder: RunFolder) -> None:
    run = followed(folder)
    run.look()
    result = {"ticks": 500, "episode_reward_mean": 1.25, "policy_reward_mean": {"p0": -3.0, "p1": None}}
    lines = [json.dumps({"training_iteration": number, **result}) for number in (1, 2)]
    folder.results.write_text("\n".join(lines) + "\n")
    words = "episode_reward_mean 1.25, policy_reward_mean of p0 -3.00, p1 - (result.json)"
    assert run.look() == [f"result 2 at tick 500: {words}"]
    assert run.look() == []
    folder.results.write_text("\n".join([*lines, "{}"]) + "\n")
    with pytest.raises(ConfigError, match=r"result.json: line 3: is damaged.*lacks 'episode_reward_mean'"):
        run.look()


def test_the_scoreboard_counts_every_episode_once(folder: RunFolder) -> None:
    whole = folder.episodes.read_bytes().splitlines(keepends=True)
    run = followed(folder)
    for end in (0, 1, 20, len(whole)):
        folder.episodes.write_bytes(b"".join(whole[:end]))
        run.look()
    played = [json.loads(line) for line in whole]
    for policy in ("p0", "p1"):
        count = sum(any(seat["policy"] == policy for seat in line["seats"]) and not line.get("cut") for line in played)
        assert run.scoreboard.policies[policy].episodes == count
    assert run.ticks == 3000


def test_rounds_and_faults_are_printed_as_they_occur(folder: RunFolder) -> None:
    whole = folder.rounds.read_text().splitlines(keepends=True)
    run = followed(folder)
    folder.rounds.write_text(whole[0])
    told = run.look()
    assert told[0] == "round 0 from tick 0: 1 match"
    assert told[1] == "2 faults so far"
    assert told[2] == (
        "fault at 2026-03-01T03:40:51.007+00:00: match 1, tick 777: the game was made again in 0.11 s, "
        "2 unfinished episodes dropped: ZeroDivisionError: division by zero"
    )
    with folder.faults.open("a") as file:
        file.write(folder.faults.read_text().splitlines(keepends=True)[0])
    assert run.look() == ["fault at 2026-03-01T02:11:09.120+00:00: moved; 0.82 s lost"]
    folder.rounds.write_text("".join(whole[:2]))
    assert run.look() == [
        "round 1 from tick 1000: 3 matches; p0@1000, p1@1000 joined; p0 is better than p0@0 (40 games)"
    ]
    folder.rounds.write_text("".join(whole))
    assert run.look() == [
        "round 2 from tick 2000: 3 matches; p0@2000, p1@2000 joined; p1 started over; "
        "p1 is a copy of p0 with learning_rate 0.0012"
    ]


def test_ticks_count_all_matches_of_all_rounds(folder: RunFolder) -> None:
    rounds, episodes = (path.read_text().splitlines(keepends=True) for path in (folder.rounds, folder.episodes))
    for path in (folder.metrics, *folder.boundaries.iterdir()):
        path.unlink()
    folder.rounds.write_text(rounds[0])
    folder.episodes.write_text("".join(line for line in episodes if json.loads(line)["round"] == 0))
    run = followed(folder)
    assert (run.done, run.total) == (0, None), "nothing is known before the first check"
    run.look()
    assert (run.done, run.total) == (run.ticks, 3000), "one match"
    (folder.boundaries / "000000001000.json").write_text("{}\n")
    folder.rounds.write_text("".join(rounds[:2]))
    run.look()
    assert (run.done, run.total) == (1000, 1000 + 3 * 2000), "three matches from tick 1000 on"


def test_starting_run_is_awaited(folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "starting"
    steps = [
        lambda: RunFolder.open(place, named=True),
        lambda: (place / "lock").touch(),
        lambda: shutil.copytree(folder.path, place, dirs_exist_ok=True),
    ]
    await_start(place, wait=lambda _: steps.pop(0)())
    assert steps == []
    assert (
        capsys.readouterr().out
        == f"{place}: no run or experiment has begun here yet; waiting for one, Ctrl-C ends it\n"
    )
    assert watch(place, columns=0, wait=lambda _: None) == 0
    assert f"run folder: {place}" in capsys.readouterr().out


def test_run_that_never_starts_is_given_up(tmp_path: Path) -> None:
    waits: list[float] = []
    with pytest.raises(ConfigError, match=r"not a run folder: it does not exist; .* \(nothing has begun in 60 s\)"):
        await_start(tmp_path / "run", wait=waits.append)
    assert sum(waits) == 60.0


@pytest.mark.parametrize("where", ["await_start", "watch"])
def test_ctrl_c_ends_watching_quietly(
    where: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"arena.cli.watch.{where}", interrupted)
    assert main(["watch", str(folder.path)]) == 0
    assert capsys.readouterr() == ("", "")


def test_folder_without_a_run_is_not_awaited(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"not a run folder: config\.yaml is missing"):
        await_start(tmp_path, wait=lambda _: pytest.fail("it waits"))
    with pytest.raises(ConfigError, match=r"not a run folder: it is a file"):
        await_start(tmp_path / "notes.txt", wait=lambda _: pytest.fail("it waits"))


@pytest.mark.parametrize(
    ("lock", "ticks", "said"),
    [
        ("", 1000, "the run has finished"),
        ("", 2000, "the run has ended early at tick 3000; --resume goes on from tick 3000"),
        ('{"pid": 1}', 2000, "the run was killed at tick 3000; --resume goes on from tick 3000"),
        (FAILED, 2000, "the run has failed at tick 3000; --resume goes on from tick 3000"),
        (FAILED, 1000, "the run has failed at tick 3000; --resume goes on from tick 3000"),
        ("", UNBOUNDED_TICKS, "the run has finished"),
        ('{"pid": 1}', UNBOUNDED_TICKS, "the run was killed at tick 3000"),
    ],
)
def test_end_of_the_run_is_printed(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], lock: str, ticks: int, said: str
) -> None:
    folder.config.write_text(folder.config.read_text().replace("ticks: 1000", f"ticks: {ticks}"))
    folder.lock.write_text(lock)
    assert watch(folder.path, columns=0, wait=lambda seconds: None) == 0
    shown = capsys.readouterr().out.splitlines()
    assert said in shown
    assert any(line.startswith("7000 ticks of all matches") for line in shown) == (ticks == UNBOUNDED_TICKS)


@pytest.mark.parametrize(("looks", "waits"), [([True, False, True, False], 7), ([False], 4)])
def test_briefly_free_lock_does_not_end_following(folder: RunFolder, looks: list[bool], waits: int) -> None:
    """As during a restart after a death, or a resume; after five checks the run counts as ended."""
    folder.config.write_text(folder.config.read_text().replace("ticks: 1000", "ticks: 2000"))
    waited: list[float] = []
    answers = iter(looks)
    assert watch(folder.path, columns=0, wait=waited.append, running=lambda path: next(answers, False)) == 0
    assert len(waited) == waits


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("rounds.jsonl", '"matches":[{"match":', '"matches":[{"number":'),
        ("rounds.jsonl", '"seats":', '"chairs":'),
        ("rounds.jsonl", '"forks":{}', '"forks":7'),
        ("plan.json", '"seats"', '"chairs"'),
        ("plan.json", "{", "["),
        ("metrics.jsonl", '"ticks"', '"tocks"'),
        ("faults.jsonl", '"kind"', '"sort"'),
    ],
)
def test_damaged_file_is_named(
    folder: RunFolder, name: str, before: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.path / name
    path.write_text(path.read_text().replace(before, after))
    assert main(["watch", str(folder.path)]) == 2
    place = f"{path}: line 1" if path.suffix == ".jsonl" else path
    assert capsys.readouterr().err.startswith(
        f"arena: error: {place}: is damaged, or of another version of the arena: "
    )
