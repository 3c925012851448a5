"""Resuming a run: from the newest complete boundary, with complete records, and no early changes of files."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from arena import registry
from arena.cli.train_run import announced
from arena.config import parse_config
from arena.errors import ConfigError
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.formats import ResumeLine
from arena.records.journal import JournalReader
from arena.records.lock import is_left
from arena.roles.environment.environment import Environment
from arena.roles.protocol import Done, Progress, RoleFailed
from arena.run.prepare import prepare
from arena.run.resume import LENGTH_DEFAULTS, SCHEDULED, _length_text, forget
from arena.terminal.display import PlainDisplay
from faulty_games import Faulty
from in_process import Played, one_match, play, train
from policies.common.options import SCHEDULED as OF_POLICIES

COUNTS = {"algorithm": "workers:Counts"}
RANDOM = {"algorithm": "random"}


def brittle(**options: Any) -> dict[str, Any]:
    return {"algorithm": "workers:Counts", "options": options}


def duel(*, ticks: int = 40, blue: Any = COUNTS, red: Any = RANDOM, lanes: int = 2, **match: Any) -> dict[str, Any]:
    """Two policies in one match of touchdown; legs of 20 ticks."""
    game = {"make": "touchdown", "kwargs": {"max_steps": 15}}
    seated = {"lanes": lanes, **match}
    return one_match(game, {"blue": blue, "red": red}, ticks=ticks, seed=5, checkpoint_every=20, match=seated)


def broken(data: Mapping[str, Any], path: Path) -> RunFolder:
    """Plays until a role raises."""
    with pytest.raises(RoleFailed, match="brittle"):
        play(data, path, given=True)
    return RunFolder(path / "run")


def resume(data: Mapping[str, Any], path: Path, **changes: Any) -> Played:
    return play(data, path, resume=True, **changes)


def boundaries(folder: RunFolder, policy: str) -> list[int]:
    """Of which a policy has checkpoints."""
    return [checkpoint.ticks_of(path) for path in checkpoint.list_checkpoints(folder.checkpoints_path(policy))]


def count_at(folder: RunFolder, policy: str, boundary: int) -> int:
    """How far a policy had counted."""
    count: int = checkpoint.load(checkpoint.path_of(folder.checkpoints_path(policy), boundary)).state["count"]
    return count


def snapshot(folder: Path) -> dict[str, str]:
    """Digests of all files of the run, without the logs and the lock of the process."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "logs" and path.name != "lock"
    }


def updates(folder: RunFolder, policy: str) -> list[tuple[int, int]]:
    lines = [line for line in JournalReader(folder.metrics) if line["policy"] == policy]
    return [(line["update"], line["ticks"]) for line in lines]


def test_policies_with_different_intervals_resume_without_loss(tmp_path: Path) -> None:
    broken(duel(ticks=200, blue=brittle(every=10), red=brittle(every=15, fails_at=104)), tmp_path)
    played = resume(duel(ticks=200, blue=brittle(every=10), red=brittle(every=15)), tmp_path)
    assert played.run.leg.start == 100
    assert played.notes[:2] == [("loaded", 100)] * 2
    assert updates(played.folder, "blue") == [(number, 10 * number) for number in range(1, 21)]
    assert updates(played.folder, "red") == [(number, 15 * number) for number in range(1, 14)]


def test_resume_drops_records_after_the_boundary(tmp_path: Path) -> None:
    folder = broken(duel(ticks=200, blue=brittle(fails_at=115)), tmp_path)
    (folder.boundaries / "000000000100.json").unlink()  # as if it had been killed just before that was written
    assert boundaries(folder, "blue") == [0, 60, 80, 100]
    assert max(line["tick"] for line in JournalReader(folder.episodes)) > 80
    with pytest.raises(RoleFailed):  # soon after it went on, before anything is saved
        resume(duel(ticks=200, blue=brittle(fails_at=82)), tmp_path)
    assert boundaries(folder, "blue") == [0, 60, 80]
    assert max(line["tick"] for line in JournalReader(folder.episodes)) <= 80
    assert updates(folder, "blue")[-1] == (8, 80)


@pytest.mark.parametrize("harm", ["missing state", "edited boundary", "truncated checkpoint"])
def test_bad_file_of_a_boundary_is_named_and_the_run_stays_the_same(harm: str, tmp_path: Path) -> None:
    """The newest boundary is passed over; the bytes are those of the run in which nothing was damaged."""
    data = duel(ticks=80, blue={"algorithm": "learners:VectorLearner"})
    folder = play(data, tmp_path, given=True).folder
    last = folder.checkpoints_path("blue") / f"{80:012d}.ckpt"
    whole = folder.episodes.read_bytes(), last.read_bytes()
    boundary.discard_after(folder, 60)
    bad = checkpoint.worker_path_of(folder.checkpoints_path("blue"), 60, 0)
    if harm == "missing state":
        bad.unlink()
    elif harm == "truncated checkpoint":
        bad = checkpoint.path_of(folder.checkpoints_path("blue"), 60)
        bad.write_bytes(bad.read_bytes()[:50])
    else:
        bad = folder.boundaries / "000000000060.json"
        bad.write_text(json.dumps({**json.loads(bad.read_text()), "updates": {"blue": 1}}))
    before = snapshot(folder.path)
    config = parse_config({"name": "test", **data}, source="test")
    run = prepare(config, ranks=1, run_dir=str(folder.path), resume=True)
    assert snapshot(folder.path) == before, "nothing changes before all roles are ready"
    assert run.leg.start == 40
    assert any(f"the boundary at tick 60 is passed over: {bad}: is " in line for line in run.text)
    resume(data, tmp_path)
    assert (folder.episodes.read_bytes(), last.read_bytes()) == whole


def test_bad_files_are_named_if_no_boundary_is_whole(tmp_path: Path) -> None:
    folder = play(duel(ticks=40), tmp_path, given=True).folder
    folder.metrics.unlink()
    (folder.boundaries / "000000000000.json").unlink()
    before = snapshot(folder.path)
    with pytest.raises(ConfigError, match=rf"at tick 20 is passed over: {folder.metrics}: is missing"):
        resume(duel(ticks=80), tmp_path)
    assert snapshot(folder.path) == before


def test_departed_policy_keeps_its_state_in_all_later_legs(tmp_path: Path) -> None:
    data = duel(ticks=200, blue=brittle(leave=[30]), red=brittle(fails_at=115))
    folder = broken(data, tmp_path)
    assert [count_at(folder, "blue", boundary) for boundary in (80, 100)] == [30] * 2
    played = resume({**data, "policies": {"blue": brittle(leave=[30]), "red": brittle()}}, tmp_path)
    assert played.run.leg.start == 100
    assert count_at(folder, "blue", 200) == 30
    assert updates(folder, "blue") == [(1, 10), (2, 20), (3, 30)]
    assert "has returned" not in played.shown, "that was told when it happened"
    idle = sum(seat["idle_ticks"] for e in played.episodes if e["lane"] == 0 for seat in e["seats"])
    assert idle == 170


def test_run_interrupted_in_its_first_leg_restarts_it(tmp_path: Path) -> None:
    folder = broken(duel(ticks=60, blue=brittle(fails_at=15)), tmp_path)
    assert updates(folder, "blue") == [(1, 10)]
    played = resume(duel(ticks=60, blue=brittle()), tmp_path)
    assert (played.run.resumed, played.run.leg.start) == (True, 0)
    assert played.run.text == ("policies.blue.options.fails_at: 15 -> 0",)
    assert updates(folder, "blue") == [(number, 10 * number) for number in range(1, 7)]
    assert [e["episode"] for e in played.episodes if e["lane"] == 0] == list(range(len(played.episodes) // 2))


def test_without_a_boundary_nothing_is_restarted_over_old_records(tmp_path: Path) -> None:
    data = duel(ticks=200, blue={"algorithm": "odd_workers:Forgets"})
    folder = broken(data, tmp_path)
    before = snapshot(folder.path)
    with pytest.raises(ConfigError, match=r"no tick to go on from: .*Leave --resume out and start a new run.*`load:`"):
        resume(data, tmp_path)
    assert snapshot(folder.path) == before


def test_run_of_policies_without_state_resumes(tmp_path: Path) -> None:
    whole = play(duel(blue=RANDOM, ticks=80), tmp_path)
    play(duel(blue=RANDOM, ticks=40), tmp_path / "parted", given=True)
    parted = resume(duel(blue=RANDOM, ticks=80), tmp_path / "parted")
    assert parted.folder.episodes.read_bytes() == whole.folder.episodes.read_bytes()


SEATED = {"env": "game", "seats": ["blue", "red"], "lanes": 2}
OTHER_GAMES = {
    "a frozen policy": (
        {"policies": {"blue": COUNTS, "red": {**RANDOM, "frozen": True}}},
        "policies.red.frozen was false, is true",
    ),
    "a policy less": (
        {"policies": {"blue": COUNTS}, "matches": [{**SEATED, "seats": ["blue", "blue"]}]},
        "policies.red is missing",
    ),
    "teams of one": (
        {"matches": [{**SEATED, "seats": [["blue"], "red"]}]},
        'matches.0.seats[0][0] was not set, is "blue"',
    ),
    "a text for a number": (
        {"envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": "15"}}}},
        'envs.game.kwargs.max_steps was 15, is "15"',
    ),
    "a rule of the game": (
        {"envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 16}}}},
        "envs.game.kwargs.max_steps was 15, is 16",
    ),
    "entities": ({"matches": [{**SEATED, "entities": [1, 0]}]}, "matches.0.entities[0] was not set, is 1"),
    "a match more": ({"matches": [SEATED] * 2}, "matches: had 1 descriptions, has 2"),
}


@pytest.mark.parametrize("difference", OTHER_GAMES)
def test_another_game_is_refused_before_files_change(difference: str, tmp_path: Path) -> None:
    changes, words = OTHER_GAMES[difference]
    folder = play(duel(ticks=40), tmp_path, given=True).folder
    folder.lock.write_text("a killed process")
    before = snapshot(folder.path)
    with pytest.raises(ConfigError) as caught:
        resume({**duel(ticks=80), **changes}, tmp_path)
    assert words in str(caught.value)
    assert f"--continue {folder.path}" in str(caught.value)
    assert str(folder.config) in str(caught.value)
    assert snapshot(folder.path) == before
    assert is_left(folder.path), "the folder still shows that the run was killed"


@pytest.mark.parametrize("fewer", [{"copies": 1}, {"lanes": 1}])
def test_run_resumes_with_fewer_copies_or_lanes(tmp_path: Path, fewer: Mapping[str, int]) -> None:
    before = play(duel(ticks=40, copies=2), tmp_path, given=True)
    counts = Counter((line["match"], line["lane"]) for line in before.episodes)
    after = resume(duel(**{"ticks": 80, "copies": 2, **fewer}), tmp_path)  # type: ignore[arg-type]
    added = [line for line in after.episodes if line["tick"] > 40]
    assert len({(line["match"], line["lane"]) for line in added}) == 2
    for line in added:
        assert line["episode"] >= counts[line["match"], line["lane"]]
    again = resume(duel(ticks=120, copies=2), tmp_path)  # the lanes that are back count on, too
    places = [(line["match"], line["lane"], line["episode"]) for line in again.episodes]
    assert len({*places}) == len(places) and len({place[:2] for place in places}) == 4


def test_resume_names_each_changed_value_of_a_policy_and_keeps_the_name(tmp_path: Path) -> None:
    folder = play(duel(ticks=40, blue={**COUNTS, "options": {"every": 5, "leave": [90]}}), tmp_path, given=True).folder
    data = duel(ticks=80, blue={**COUNTS, "options": {"every": 10, "leave": [90, 95]}, "color": "#102030"})
    run = prepare(
        parse_config({"name": "other", **data}, source="other"), ranks=1, run_dir=str(folder.path), resume=True
    )
    assert run.text == (
        "the run keeps its name, test",
        "policies.blue.options.every: 5 -> 10",
        'policies.blue.color: null -> "#102030"',
        "policies.blue.options.leave[1]: not set -> 95",
    )
    assert run.plan.config.name == "test"
    same = prepare(
        parse_config({"name": "test", **data}, source="test"), ranks=1, run_dir=str(folder.path), resume=True
    )
    assert same.text == run.text[1:]


def test_resumes_record_the_values_that_they_change(tmp_path: Path) -> None:
    found = []
    for ticks, every in ((40, 5), (80, 5), (120, 10), (160, 10)):
        data = duel(ticks=ticks, blue={**COUNTS, "options": {"every": every, "leave": [90]}})
        folder = play(data, tmp_path, given=True, resume=ticks > 40).folder
        found.append([*JournalReader(folder.resumes).lines(ResumeLine, missing_ok=True)])
    changed = [ResumeLine(tick=80, key="policies.blue.options.every", was="5", now="10")]
    assert found == [[], [], changed, changed]


def test_resume_after_a_killed_resume_records_each_value_once(tmp_path: Path) -> None:
    play(duel(ticks=40, blue={**COUNTS, "options": {"every": 5}}), tmp_path, given=True)
    config = parse_config({"name": "test", **duel(ticks=80, blue={**COUNTS, "options": {"every": 10}})}, source="test")
    for _ in range(2):  # the first one is killed before it writes config.yaml
        run = prepare(config, ranks=1, run_dir=str(tmp_path / "run"), resume=True)
        forget(run)
    changed = [ResumeLine(tick=40, key="policies.blue.options.every", was="5", now="10")]
    assert [*JournalReader(run.folder.resumes).lines(ResumeLine)] == changed


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"gamma": 0.9, "n_epochs": 10}, "policies.blue.options.gamma: 0.99 -> 0.9"),
        ({"gamma": 0.9, "hidden_sizes": [64, 64]}, {}, "policies.blue.options.gamma: 0.9 -> 0.99"),
    ],
)
def test_resume_compares_options_with_their_defaults(before: Any, now: Any, said: str, tmp_path: Path) -> None:
    steps = {"n_steps": 20, "minibatch_size": 40}
    one, other = ({"algorithm": "ppo", "options": {**steps, **options}} for options in (before, now))
    play(duel(ticks=20, blue=one), tmp_path, given=True)
    played = resume(duel(ticks=40, blue=other), tmp_path)
    assert played.run.text == (said,)
    lines = JournalReader(played.folder.resumes).lines(ResumeLine)
    assert [f"{line.key}: {line.was} -> {line.now}" for line in lines] == [said]


def test_resume_accepts_changed_ticks_copies_lanes_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(duel(ticks=40), tmp_path, given=True)
    data = {**duel(ticks=100, lanes=3, copies=2, blue={**COUNTS, "options": {"every": 5}}), "transport": "mpi"}
    played = resume({**data, "checkpoint_every": 30, "seed": 6}, tmp_path)
    announced(played.run)
    assert played.run.leg.start == 40
    said = capsys.readouterr().out
    assert "goes on at tick 40" in said
    assert "copies or lanes have changed" in said
    assert "seed was 5, is 6: it counts from tick 40 on" in said
    assert "policies.blue.options.every: 10 -> 5" in said
    keys = [(e["match"], e["lane"], e["episode"]) for e in played.episodes]
    assert len(keys) == len(set(keys))
    assert {(match, lane) for match, lane, number in keys if number == 0} == set(product(range(2), range(3)))


@pytest.mark.parametrize(
    ("algorithm", "options", "named"),
    [
        ("a2c", {}, ["learning_rate_schedule"]),
        ("a2c", {"learning_rate_schedule": "constant"}, []),
        ("ppo", {}, ["n_steps", "minibatch_size"]),
        ("ppo", {"n_steps": 4, "minibatch_size": 8, "learning_rate_schedule": "linear"}, ["learning_rate_schedule"]),
        ("ppo", {"n_steps": 4, "minibatch_size": 8, "ent_coef": [[0, 1], [1, 0]]}, ["ent_coef"]),
        (
            "dqn",
            {"learning_rate": {"start": 1, "end": 0}, "epsilon": {"start": 1, "end": 0}},
            ["learning_rate", "epsilon"],
        ),
        ("dqn", {"prioritized": True}, ["learning_rate_schedule", "exploration_fraction", "priority_beta"]),
        ("dqn", {"learning_rate_schedule": "constant", "exploration_fraction": 0.0}, []),
    ],
)
def test_options_that_follow_the_length_of_a_run_are_named(algorithm: str, options: Any, named: list[str]) -> None:
    blue = {"algorithm": algorithm, "options": options}
    short, longer = (parse_config({"name": "test", **duel(ticks=ticks, blue=blue)}, source="") for ticks in (40, 80))
    assert [*_length_text(short, short)] == []
    said = "".join(_length_text(short, longer))
    assert [key for key in named if f"policies.blue.options.{key}" in said] == named
    assert said.count("policies.") == len(named)
    assert not named or "had 40 ticks, has 80" in said


def test_defaults_that_follow_the_length_are_those_of_the_algorithms() -> None:
    assert SCHEDULED == OF_POLICIES
    names = "a2c bc ddpg dqn hppo impala iql maddpg mappo masac ppo qmix sac td3 vdn"
    for name in names.split():
        options = registry.algorithm(name).Options(**({"data": "x"} if name in ("bc", "iql") else {}))
        found = {
            key: getattr(options, key)
            for key in ("learning_rate_schedule", "n_steps", "minibatch_size", "exploration_fraction")
            if hasattr(options, key)
        }
        assert {
            key: value for key, value in found.items() if value in ("linear", "auto") or key == "exploration_fraction"
        } == LENGTH_DEFAULTS.get(name, {})
        assert getattr(options, "prioritized", False) is False


def test_workers_of_new_copies_synchronize_with_their_group(tmp_path: Path) -> None:
    def learner(steps: int) -> dict[str, Any]:
        return {"algorithm": "ppo", "options": {"n_steps": steps, "minibatch_size": steps, "hidden_sizes": [2]}}

    policies = {"blue": learner(16), "red": learner(15)}  # at tick 20 they are in the middle of a rollout
    play(duel(ticks=20, **policies), tmp_path, given=True)
    folder = resume(duel(ticks=100, copies=2, **policies), tmp_path).folder  # it waited in a circle once
    assert [tick for _, tick in updates(folder, "blue")] == [16, 32, 48, 64, 80, 96]
    assert [tick for _, tick in updates(folder, "red")] == [15, 30, 45, 60, 75, 90]


def test_departed_worker_is_matched_by_policy(tmp_path: Path) -> None:
    def solos(ticks: int, copies: int) -> dict[str, Any]:
        matches = [{"env": "game", "seats": [name, "idle"], "copies": copies} for name in ("blue", "red")]
        policies = {"blue": brittle(leave=[10] * copies), "red": brittle(), "idle": RANDOM}
        return {**duel(ticks=ticks), "policies": policies, "matches": matches}

    play(solos(20, 1), tmp_path, given=True)
    folder = resume(solos(40, 2), tmp_path).folder
    assert [count_at(folder, name, 40) for name in ("blue", "red")] == [10, 40]


def test_policy_without_state_is_named_and_its_updates_are_numbered_on(tmp_path: Path) -> None:
    data = duel(ticks=40, red={"algorithm": "odd_workers:Forgetful"}, lanes=1)
    first = play(data, tmp_path, given=True)
    assert first.shown.splitlines()[-1] == "no checkpoints of 'red': its algorithm has no state_dict()"
    played = resume({**data, "ticks": 80}, tmp_path)
    assert played.run.text == ("policy 'red' has no checkpoint: it starts over",)
    numbers = [number for number, _ in updates(played.folder, "red")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 4


def test_episodes_are_counted_on_and_whole_ones_stay_in_the_score(tmp_path: Path) -> None:
    play(duel(ticks=40, copies=2), tmp_path, given=True)
    played = resume(duel(ticks=100, copies=2), tmp_path)
    by_lane: dict[tuple[int, int], list[int]] = {}
    for episode in sorted(played.episodes, key=lambda e: e["tick"]):
        by_lane.setdefault((episode["match"], episode["lane"]), []).append(episode["episode"])
    assert all(numbers == list(range(len(numbers))) for numbers in by_lane.values())
    assert {sum(e["length"] for e in played.episodes if e["lane"] == lane) for lane in range(2)} == {2 * 100}
    whole = [episode for episode in played.episodes if "cut" not in episode]
    assert played.scoreboard.policies["blue"].episodes == len(whole) < len(played.episodes)


def test_seconds_of_updates_continue_after_a_resume(tmp_path: Path) -> None:
    folder = play(duel(ticks=40), tmp_path, given=True).folder
    found = boundary.last(folder)
    assert found is not None and found.tick == 40
    boundary.save(folder, msgspec.structs.replace(found, seconds={"blue": 1000.0}))
    seconds = [line["seconds"] for line in resume(duel(ticks=80), tmp_path).updates]
    assert seconds == sorted(seconds)
    assert seconds[3] < 1000 < seconds[4] <= seconds[-1] < 2000


def test_a_resume_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    folder = broken(duel(ticks=200, blue=brittle(fails_at=104)), tmp_path)
    before = snapshot(folder.path)
    with pytest.raises(RoleFailed, match="no option 'evry'") as caught:
        resume(duel(ticks=200, blue=brittle(evry=15)), tmp_path)
    assert caught.value.failure.exit_code == 2
    assert snapshot(folder.path) == before


def test_state_that_does_not_fit_names_the_resume_and_not_load(tmp_path: Path) -> None:
    sizes = [{"algorithm": "ppo", "options": {"n_steps": 10, "hidden_sizes": [size]}} for size in (4, 8)]
    play(duel(ticks=20, blue=sizes[0]), tmp_path, given=True)
    with pytest.raises(RoleFailed, match=r"policies\.blue: resumed from .*000020\.ckpt: the stored weights do not fit"):
        resume(duel(ticks=40, blue=sizes[1]), tmp_path)


def test_state_that_does_not_fit_names_the_options_that_the_resume_has_changed(tmp_path: Path) -> None:
    options = {"n_steps": 10, "hidden_sizes": [4]}
    play(duel(ticks=20, blue={"algorithm": "ppo", "options": options}), tmp_path, given=True)
    with pytest.raises(RoleFailed, match="; this resume has changed policies") as caught:
        changed = {"algorithm": "ppo", "options": {**options, "encoder": "own_parts:Net"}}
        resume(duel(ticks=40, blue=changed), tmp_path)
    assert str(caught.value).rstrip().endswith('policies.blue.options.encoder: null -> "own_parts:Net"')


@pytest.mark.parametrize(("ranks", "said"), [(2, True), (1, False)])
def test_a_slow_start_of_processes_counts_the_roles_as_the_plan_does(
    ranks: int, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.roles.root.root._REPORT_SECONDS", -1.0)
    shown = io.StringIO()
    train(duel(ticks=20), tmp_path, ranks=ranks, display=PlainDisplay(shown, total_ticks=1))
    assert ("3 of 4 roles are ready" in shown.getvalue()) == said


def test_configured_checkpoint_is_not_needed_for_a_resume(tmp_path: Path) -> None:
    first = play(duel(ticks=40), tmp_path)
    data = duel(ticks=40, blue={**COUNTS, "load": str(first.folder.path)})
    play(data, tmp_path / "own", given=True)
    for path in first.folder.checkpoints_path("blue").iterdir():
        path.unlink()
    played = resume({**data, "ticks": 80}, tmp_path / "own")
    assert played.notes == [("loaded", 80), ("loaded", 100)]  # 40, and 40 and 60 of its own


class WrongAtFirst(Faulty):
    """A game whose first observation is not finite."""

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0] * np.float32(np.nan), {}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (duel(blue={"algorithm": "odd_workers:Refuses"}), 2),
        (one_match({"make": f"{__name__}:WrongAtFirst"}, {"blue": RANDOM}, ticks=20), 1),
    ],
    ids=["algorithm refuses", "first observation"],
)
def test_a_new_run_that_cannot_begin_leaves_no_folder_or_an_empty_one(data: Any, code: int, tmp_path: Path) -> None:
    for left in ([], ["run"]):
        with pytest.raises(RoleFailed) as caught:
            play(data, tmp_path, given=True)
        assert caught.value.failure.exit_code == code
        assert [path.name for path in tmp_path.rglob("*")] == left
        (tmp_path / "run").mkdir(exist_ok=True)


def test_foreign_files_in_the_folder_are_kept(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run")
    (folder.path / "notes.txt").write_text("mine")
    folder.remove_unbegun(str(folder.path))
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]
    folder.write_config("name: x\n")
    folder.logs.mkdir()
    folder.remove_unbegun(str(folder.path))
    assert folder.logs.is_dir(), "a run has begun in it"


@pytest.mark.parametrize("again", [COUNTS, {"algorithm": "odd_workers:Forgets"}], ids=["resumable", "not resumable"])
def test_start_killed_after_its_first_boundary_can_be_repeated(again: Any, tmp_path: Path) -> None:
    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "write_config", killed)
        with pytest.raises((RuntimeError, RoleFailed), match="killed"):
            play(duel(), tmp_path, given=True)
    folder = RunFolder(tmp_path / "run")
    assert (folder.config.exists(), [path.stem for path in folder.boundaries.iterdir()]) == (False, ["0" * 12])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.run.prepare.plan_file", killed)  # in `begin`, after the boundaries
        with pytest.raises((RuntimeError, RoleFailed), match="killed"):
            play(duel(blue=again), tmp_path, given=True)
    assert len([*folder.boundaries.iterdir()]) == (again == COUNTS), "a boundary of another run would be resumed from"
    assert folder.config.exists()


def test_a_bug_before_the_start_keeps_the_folder_with_its_logs(tmp_path: Path) -> None:
    with pytest.raises(RoleFailed) as caught:
        play(duel(blue={"algorithm": "faulty_workers:FailsAtInit"}), tmp_path, given=True)
    assert caught.value.failure.exit_code == 1
    assert (tmp_path / "run" / "logs").is_dir()
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_early_end_of_a_worker_is_reported_once(tmp_path: Path) -> None:
    played = play(duel(ticks=40, blue=brittle(leave=[7])), tmp_path)
    line = "policy 'blue', seat 0 of match 0: run() has returned after 7 of 40 ticks; the seat idles\n"
    assert played.shown.count("has returned") == 1
    assert line in played.shown


def test_match_that_ends_early_leaves_no_episode_unreported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game, blue = {"make": "touchdown", "kwargs": {"max_steps": 5}}, brittle(leave=[7, 7, 0, 0])
    match = {"lanes": 2, "copies": 2}
    data = one_match(game, {"blue": blue}, seats=["blue", "blue"], ticks=20, checkpoint_every=20, match=match)
    sent: list[Any] = []
    send = Environment._send
    monkeypatch.setattr(Environment, "_send", lambda self, message: (sent.append(message), send(self, message)))
    monkeypatch.setattr("arena.roles.environment.environment.report_seconds", lambda _: float("inf"))
    assert len(play(data, tmp_path).episodes) == 2 * (1 + 4)
    done = next(place for place, message in enumerate(sent) if isinstance(message, Done))
    assert (sent[done].role.match, sent[done].tick) == (0, 7)
    ended = [episode.match for message in sent[:done] if isinstance(message, Progress) for episode in message.episodes]
    assert ended.count(0) == 2, "of both lanes"
    later = [message.ticks for message in sent[done:] if isinstance(message, Progress)]
    assert later == [{1: 20}], "one that ends with the leg has no message of its own"


def test_end_of_the_budget_and_policies_with_checkpoints_are_not_reported(tmp_path: Path) -> None:
    blue = {"algorithm": "workers:IgnoresBudget"}
    assert "has returned" not in play(duel(ticks=40, blue=blue, red=COUNTS, lanes=1), tmp_path).shown
    first = play(duel(), tmp_path)
    assert "no checkpoints" not in first.shown
    frozen = {**COUNTS, "frozen": True, "load": str(first.folder.path)}
    assert "no checkpoints" not in play(duel(blue=frozen), tmp_path).shown


def group_of(*leave: int, ticks: int = 100) -> dict[str, Any]:
    """Workers of one policy in as many matches, each of which leaves at a tick of its own."""
    data = duel(ticks=ticks, blue=brittle(every=10, leave=list(leave)))
    data["matches"] = [{"env": "game", "seats": ["blue", "red"], "copies": len(leave)}]
    return data


@pytest.mark.parametrize(
    ("leave", "every", "counts"),
    [
        # The root leaves: in that leg the others log until they have synchronized without it.
        ((30, 0), 30, [50, 70, 90]),
        ((30, 50, 75), 10, [60, 75, 75]),
        ((75, 50, 30), 10, [60, 75, 75]),
    ],
    ids=["one stays", "all leave", "the root leaves last"],
)
def test_last_learners_weights_are_saved(leave: tuple[int, ...], every: int, counts: list[int], tmp_path: Path) -> None:
    data = group_of(*leave)
    data["policies"]["blue"]["options"]["every"] = every
    folder = play(data, tmp_path).folder
    assert [count_at(folder, "blue", boundary) for boundary in (60, 80, 100)] == counts


def test_group_without_its_root_resumes_the_last_weights(tmp_path: Path) -> None:
    play(group_of(30, 0), tmp_path, given=True)
    played = resume({**group_of(30, 0), "ticks": 140}, tmp_path)
    assert played.notes == [("loaded", 100)] * 2 + [("loaded", 120)] * 2
    assert [number for number, _ in updates(played.folder, "blue")] == list(range(1, 15))
