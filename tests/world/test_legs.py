"""A run is a sequence of legs: it leaves the same bytes wherever it is interrupted."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from arena.records import boundary as boundaries
from arena.records import checkpoint, checksums
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.protocol import RoleFailed
from in_process import one_match, play
from learners import MEETS_EVERY, VectorLearner

RANDOM = {"algorithm": "random"}
TOUCHDOWN = {"make": "touchdown", "kwargs": {"max_steps": 20}}
TICKS, LEG = 60, 15


def ppo(n_steps: int = 32, **policy: Any) -> dict[str, Any]:
    """PPO whose rollouts do not fit into the legs of 15 ticks."""
    options = {"n_steps": n_steps, "minibatch_size": 64, "n_epochs": 2, "hidden_sizes": [16]}
    return {"algorithm": "ppo", "options": options, **policy}


def remembering(kind: str, algorithm: str = "ppo") -> dict[str, Any]:
    """PPO whose rollouts do not fit into the legs, and whose sequences do not fit into the rollouts."""
    options = {"recurrent": kind, "hidden_size": 8, "sequence_length": 7}
    return {"algorithm": algorithm, "options": {**ppo()["options"], **options}}


def normalized(n_steps: int = 32, sync: str = "gradients") -> dict[str, Any]:
    """PPO that scales what it sees and earns; its rollouts begin and end in the middle of episodes and legs."""
    scales = {"normalize_observations": True, "normalize_rewards": True}
    return {"algorithm": "ppo", "options": {**ppo(n_steps)["options"], **scales}, "sync": sync}


def units(n_steps: int = 32, sync: str = "gradients", **options: Any) -> dict[str, Any]:
    """PPO of units, whose rollouts do not fit into the legs."""
    small = {"n_steps": n_steps, "minibatch_size": 64, "n_epochs": 1, "transformer": {"d_model": 8, "layers": 1}}
    return {"algorithm": "ppo", "options": {**small, **options}, "sync": sync}


def replaying_units(sync: str = "gradients", **options: Any) -> dict[str, Any]:
    """DQN of units, whose updates, of 7 ticks, do not fit into the legs."""
    small = {"batch_size": 8, "training_intensity": 1, "learning_starts": 20, "log_every": 14, "train_every": 7}
    return {
        "algorithm": "dqn",
        "options": {**small, "transformer": {"d_model": 8, "layers": 1}, **options},
        "sync": sync,
    }


def of_numbers(algorithm: str, *, sync: str = "gradients", **options: Any) -> dict[str, Any]:
    """A learner that replays on every tick; its updates, of 17 ticks, do not fit into the legs."""
    small = {"hidden_sizes": [8], "batch_size": 8, "training_intensity": 8 / 3, "learning_starts": 20, "log_every": 17}
    return {"algorithm": algorithm, "options": {**small, **options}, "sync": sync}


SEQUENCES = {"hidden_size": 8, "sequence_length": 4, "burn_in": 2}
A2C = {"algorithm": "a2c", "options": {"n_steps": 7}}


def learner(name: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": f"learners:{name}", "options": options}


def league(
    *matches: Mapping[str, Any], env: Any = TOUCHDOWN, ticks: int = TICKS, every: int = LEG, **policies: Any
) -> dict[str, Any]:
    entries = [{"env": "game", **match} for match in matches]
    return one_match(env, policies, ticks=ticks, seed=3, checkpoint_every=every, matches=entries)


def left_by(folder: RunFolder) -> dict[str, Any]:
    """The files of a run that must not depend on where it was interrupted."""
    states = {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.checkpoints.rglob("*.ckpt")}
    kept = sorted(folder.boundaries.glob("*.json"))[-checkpoint.KEPT :]  # a kill may have left one more
    steps = {path.name: json.loads(path.read_bytes()) for path in kept}
    for step in steps.values():
        del step["seconds"], step["sha256"]
        for part in ("journals", "files"):  # some lines depend on the clock
            step[part] = {
                name: mark for name, mark in step[part].items() if name not in ("metrics.jsonl", "result.json")
            }
    updates = [{**line, "seconds": 0} for line in JournalReader(folder.metrics)]
    updates.sort(key=lambda line: (line["policy"], line["update"]))  # lines of two policies come in any order
    return {**states, **steps, "episodes": folder.episodes.read_bytes(), "updates": updates}


DUEL = {"seats": ["blue", "red"]}
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "ppo": lambda: league({**DUEL, "lanes": 4, "copies": 2}, blue=ppo(), red=ppo(48)),
    "ppo, samples": lambda: league({**DUEL, "lanes": 3, "copies": 3}, blue=ppo(sync="samples"), red=RANDOM),
    "ppo, recurrent, overlapped": lambda: league(
        {**DUEL, "lanes": 5, "pipeline": 2}, blue=remembering("gru"), red=remembering("lstm")
    ),
    "ppo, units": lambda: league(
        {**DUEL, "lanes": 2, "pipeline": 2},
        env={"make": "skirmish", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue=units(),
        red=units(48, sync="samples", normalize_observations=True, normalize_rewards=True),
    ),
    "mappo and hppo, recurrent, teams that leave one by one": lambda: league(
        {"seats": ["blue"] * 3, "lanes": 2},
        {"seats": [["red"] * 3], "copies": 2},
        env={"make": "games:Dropout"},
        blue=remembering("gru", "mappo"),
        red=remembering("lstm", "hppo"),
    ),
    "dqn, units": lambda: league(
        {**DUEL, "lanes": 2, "copies": 2},
        env={"make": "skirmish", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue=replaying_units(),
        red=replaying_units(sync="samples", prioritized=True, normalize_observations=True),
    ),
    "mappo, units, teams of a worker and of two": lambda: league(
        {"seats": [["blue", "blue"]], "lanes": 2},
        {"seats": ["blue", "blue"], "lanes": 3},
        env={"make": "skirmish", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue={**units(normalize_observations=True), "algorithm": "mappo"},
    ),
    "a2c": lambda: league({**DUEL, "lanes": 3}, blue=A2C, red=RANDOM),
    "ppo, normalized, in a wrapped game": lambda: league(
        {**DUEL, "lanes": 3, "copies": 2},
        env={**TOUCHDOWN, "wrappers": [{"frame_stack": 3}, {"clip_reward": "sign"}, {"time_limit": 37}]},
        blue=normalized(),
        red=normalized(48, "samples"),
    ),
    "a wrapped Gymnasium environment": lambda: league(
        {"seats": ["blue"], "lanes": 2},
        env={
            "make": "gymnasium:CartPole-v1",
            "wrappers": [{"frame_stack": 3}, "wrappers:Noisy", {"time_limit": 37}],
        },
        blue=normalized(),
    ),
    "ddpg, td3 and sac": lambda: league(
        {"seats": ["blue"], "lanes": 2},
        {"seats": ["red"], "copies": 2},
        {"seats": ["green"], "copies": 2},
        env={"make": "gymnasium:Pendulum-v1"},
        blue=of_numbers("ddpg", action_noise="correlated", n_step=3),
        red=of_numbers("td3", policy_delay=3, prioritized=True),
        green=of_numbers("sac", sync="samples"),
    ),
    "dqn": lambda: league(
        {**DUEL, "lanes": 3, "copies": 2},
        blue=of_numbers("dqn", n_step=3, train_every=1, prioritized=True, exploration_fraction=0.7),
        red=of_numbers("dqn", sync="samples", buffer_size=200, train_every=3),
    ),
    "dqn and sac, recurrent": lambda: league(
        {**DUEL, "lanes": 3, "copies": 2},
        blue=of_numbers("dqn", n_step=2, prioritized=True, recurrent="lstm", **SEQUENCES),
        red=of_numbers("sac", sync="samples", buffer_size=200, recurrent="gru", **SEQUENCES),
    ),
    "dqn, in turns": lambda: league(
        {**DUEL, "lanes": 3, "copies": 2},
        env={"make": "games:Alternate", "kwargs": {"moves": 7}},
        blue=of_numbers("dqn", n_step=2, train_every=1),
        red=of_numbers("dqn", sync="samples", prioritized=True, train_every=1),
    ),
    "ppo, teams": lambda: league(
        {"seats": ["blue", "blue", ["red", "red"]], "lanes": 2},
        env={"make": "touchdown", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue=ppo(),
        red=ppo(48),
    ),
    "maddpg and masac, teams": lambda: league(
        {"seats": [["blue", "blue"], ["red", "red"]], "lanes": 2, "copies": 2},
        env={"make": "touchdown", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue=of_numbers("maddpg", n_step=2, normalize_observations=True),
        red=of_numbers("masac", sync="samples", shared_actor=False, prioritized=True),
    ),
    "maddpg and masac, whose entities leave one by one": lambda: league(
        {"seats": [["blue"] * 3], "lanes": 2},
        {"seats": [["red"] * 3], "lanes": 2, "copies": 2},
        env={"make": "games:Dropout"},
        blue=of_numbers("maddpg", sync="samples"),
        red=of_numbers("masac"),
    ),
    "vdn and qmix, a team in one seat and one of workers, who leave one by one": lambda: league(
        {"seats": [["blue"] * 3], "lanes": 2},
        {"seats": ["red"] * 3, "lanes": 2, "copies": 2},
        env={"make": "games:Dropout"},
        blue=of_numbers("vdn", sync="samples", n_step=2, normalize_observations=True),
        red=of_numbers("qmix", train_every=3, prioritized=True, shared_actor=False),
    ),
    "qmix and maddpg, recurrent, a team in one seat and one of workers": lambda: league(
        {"seats": [["blue"] * 3], "lanes": 2},
        {"seats": ["red"] * 3, "lanes": 2},
        env={"make": "games:Dropout"},
        blue=of_numbers("qmix", n_step=2, prioritized=True, recurrent="gru", **SEQUENCES),
        red=of_numbers("maddpg", train_every=4, normalize_observations=True, recurrent="lstm", **SEQUENCES),
    ),
    "maddpg and masac, a worker for each entity": lambda: league(
        {"seats": ["blue", "blue", "red", "red"], "lanes": 2},
        env={"make": "touchdown", "kwargs": {"max_steps": 20, "team_size": 2}},
        blue=of_numbers("maddpg", train_every=4, n_step=2, normalize_observations=True),
        red=of_numbers("masac", train_every=3, sync="samples", shared_actor=False, prioritized=True),
    ),
    "mappo and maddpg, workers that leave one by one": lambda: league(
        {"seats": ["blue"] * 3, "lanes": 2},
        {"seats": ["red"] * 3, "copies": 2},
        env={"make": "games:Dropout"},
        blue={**ppo(), "algorithm": "mappo"},
        red=of_numbers("maddpg", train_every=4),
    ),
    "gym, with others": lambda: league(
        {"seats": ["blue", "red"], "copies": 2},
        env={"make": "games:Dropout", "kwargs": {"lengths": [5, 9]}},
        blue=learner("GymLearner"),
        red=learner("GymLearner"),
    ),
    "vector, in turns": lambda: league(
        {**DUEL, "lanes": 3, "copies": 2},
        env={"make": "games:Alternate", "kwargs": {"moves": 7}},
        blue=learner("VectorLearner"),
        red=learner("VectorLearner"),
    ),
    "parallel": lambda: league(
        {"seats": [["blue"] * 3], "copies": 2}, env={"make": "games:Dropout"}, blue=learner("ParallelLearner")
    ),
    "one leaves early": lambda: league(
        {**DUEL, "copies": 3},
        env={"make": "games:RandomLengths"},
        blue=learner("VectorLearner", leaves=[2, 6, 0]),
        red=RANDOM,
    ),
    "all leave early": lambda: league(
        {**DUEL, "copies": 2},
        env={"make": "games:RandomLengths"},
        blue=learner("VectorLearner", leaves=[2, 5]),
        red=ppo(),
    ),
    "several matches": lambda: league(
        {"seats": ["blue", "red"], "lanes": 2},
        {"seats": ["red", "green"], "copies": 2},
        {"seats": ["green", "blue"], "lanes": 3},
        env={"make": "games:RandomLengths"},
        **{name: learner("VectorLearner") for name in ("blue", "red", "green")},
    ),
}


LONG = (
    "ppo, teams",
    "maddpg and masac, teams",
    "maddpg and masac, whose entities leave one by one",
    "mappo and maddpg, workers that leave one by one",
)


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_interrupted_run_equals_an_uninterrupted_one(case: str, tmp_path: Path) -> None:
    data = CASES[case]()
    whole = play(data, tmp_path, given=True)
    expected = left_by(whole.folder)
    assert {name for name in expected if name.endswith(f"{TICKS}.ckpt")}
    assert whole.updates[-1]["ticks"] > TICKS - 2 * LEG, "it has learned to the end"
    boundaries.discard_after(whole.folder, 2 * LEG)
    again = play(data, tmp_path, resume=True)
    assert again.run.leg.start == 2 * LEG
    assert left_by(again.folder) == expected


def test_a_frozen_policy_plays_the_same_in_all_legs_and_after_a_resume(tmp_path: Path) -> None:
    acts = {"algorithm": "learners:LearnerWithActor"}
    weights = play(league(DUEL, blue=acts, red=acts), tmp_path / "before", given=True).folder
    data = league({**DUEL, "lanes": 3}, blue=acts, red={**acts, "frozen": True, "load": str(weights.path)})
    whole = play(data, tmp_path / "whole", given=True).folder
    expected = left_by(whole)
    assert not whole.checkpoints_path("red").exists()
    boundaries.discard_after(whole, 2 * LEG)
    assert left_by(play(data, tmp_path / "whole", resume=True).folder) == expected


def test_a_proxy_knows_the_tick_at_which_a_leg_begins(tmp_path: Path) -> None:
    data = league({**DUEL, "lanes": 2, "pipeline": 2}, blue=learner("NotesFirstTicks"), red=RANDOM)
    first = play({**data, "ticks": 2 * LEG}, tmp_path, given=True).notes
    second = play(data, tmp_path, resume=True).notes
    begins = [note for note in first + second if note[0] != "loaded"]
    assert begins == [(tick,) * 3 for tick in range(0, TICKS, LEG)]


def test_worker_state_is_needed_for_bit_equality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons above can fail."""
    data = CASES["several matches"]()
    folder = play(data, tmp_path, given=True).folder
    expected = left_by(folder)
    blue = folder.checkpoints_path("blue")
    assert (len(checkpoint.worker_files(blue, 2 * LEG)), len(checkpoint.worker_states(blue, 2 * LEG))) == (1, 2)
    boundaries.discard_after(folder, 2 * LEG)
    monkeypatch.setattr(VectorLearner, "load_worker_state_dict", lambda _self, _state: None)
    assert left_by(play(data, tmp_path, resume=True).folder) != expected


# --------------------------------------------------------------------------------------------- a kill at any instant


class Killed(BaseException):
    """Stands for the end of the process: nothing in the code may catch it for good."""


def kill_at(patch: pytest.MonkeyPatch, step: int) -> list[str]:
    """From its n-th call on that changes the disk the process changes nothing; returns the calls before."""
    calls: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if len(calls) >= step:
                raise Killed(name)
            calls.append(name)
            return real(*arguments, **keywords)

        return call

    for name in ("fsync", "replace", "unlink", "mkdir"):
        patch.setattr(os, name, counted(name, getattr(os, name)))
    patch.setattr(checksums, "cut", counted("cut", checksums.cut))
    return calls


def killed(data: Mapping[str, Any], path: Path, step: int, *, resume: bool = False) -> tuple[bool, list[str]]:
    """Whether a run was killed before its n-th change of the disk, and the changes before."""
    with pytest.MonkeyPatch.context() as patch:
        calls = kill_at(patch, step)
        try:
            play(data, path, given=True, resume=resume)
        except (Killed, RoleFailed) as error:
            return "Killed" in repr(error), calls
    return False, calls


SMALL = league({**DUEL, "lanes": 2}, every=10, ticks=30, blue=learner("VectorLearner"), red=learner("VectorLearner"))


@pytest.mark.parametrize(("ticks", "stride"), [(20, 11), pytest.param(30, 1, marks=pytest.mark.long)])
def test_kill_between_any_two_steps_of_a_run_loses_nothing(ticks: int, stride: int, tmp_path: Path) -> None:
    data = {**SMALL, "ticks": ticks}
    expected = left_by(play(data, tmp_path / "whole", given=True).folder)
    _, steps = killed(data, tmp_path / "undisturbed", 10**6)
    assert {"fsync", "replace", "unlink", "mkdir"} <= {*steps}
    starts = set()
    last = len(steps) - 1
    for step in (*range(6, last, stride), last):  # the first ones make the folder and describe the run
        path = tmp_path / f"killed-{step}"
        assert killed(data, path, step)[0]
        try:
            after = play(data, path, resume=True)
        except ConfigError:  # not yet a run folder
            assert not (path / "run" / "episodes.jsonl").exists()
            continue
        starts.add(after.run.leg.start)
        assert left_by(after.folder) == expected, f"killed before step {step}, {steps[step]}"
    assert starts >= {*range(0, ticks, 10)}


@pytest.mark.long
def test_kill_between_any_two_steps_of_a_resume_loses_nothing(tmp_path: Path) -> None:
    expected = left_by(play(SMALL, tmp_path / "whole", given=True).folder)

    def broken(name: str) -> Path:
        """A run that was killed when all but the second boundary was written."""
        path = tmp_path / name
        play({**SMALL, "ticks": 20}, path, given=True)
        (path / "run" / "boundaries" / "000000000020.json").unlink()
        return path

    _, steps = killed(SMALL, broken("undisturbed"), 10**6, resume=True)
    assert steps.count("cut") == 2
    for step in range(len(steps)):
        path = broken(f"killed-{step}")
        assert killed(SMALL, path, step, resume=True)[0]
        if boundaries.newest(RunFolder(path / "run")).tick < 30:  # type: ignore[union-attr]
            play(SMALL, path, resume=True)
        assert left_by(RunFolder(path / "run")) == expected, f"killed before step {step}, {steps[step]}"


# --------------------------------------------------------------------------------------------------------- ends of legs


def test_a_learner_without_a_state_makes_the_run_one_leg(tmp_path: Path) -> None:
    data = league({"seats": ["blue", "red"]}, every=10, ticks=45, blue=learner("VectorLearner"))
    data["policies"]["red"] = {"algorithm": "odd_workers:Forgetful"}
    played = play(data, tmp_path / "one", given=True)
    assert played.notes == []
    assert [path.name for path in played.folder.boundaries.iterdir()] == ["000000000045.json"]
    assert {episode["tick"] for episode in played.episodes if "cut" in episode} <= {45}


def test_episodes_cut_by_a_leg_are_marked_and_are_no_results(tmp_path: Path) -> None:
    data = league(
        {**DUEL, "lanes": 2}, env={"make": "games:Dropout", "kwargs": {"lengths": [4, 4]}}, every=10, ticks=24,
        blue=RANDOM, red=RANDOM,
    )  # fmt: skip
    played = play(data, tmp_path / "cut", given=True)
    lane = [episode for episode in played.episodes if episode["lane"] == 0]
    assert [(e["tick"], e["length"], e.get("cut", False)) for e in lane] == [
        *[(4, 4, False), (8, 4, False), (10, 2, True)],
        *[(14, 4, False), (18, 4, False), (20, 2, True)],
        (24, 4, False),  # ends by itself on the run's last tick
    ]
    cut = [episode for episode in lane if "cut" in episode]
    assert {(e["terminated"], e["truncated"]) for e in cut} == {(False, True)}
    assert {seat["outcome"] for e in cut for seat in e["seats"]} == {None}
    assert [seat["return"] for seat in cut[0]["seats"]] == [2.0, 4.0]
    score = played.scoreboard.policies["blue"]
    assert (score.episodes, score.returns.mean) == (10, 4.0)


def steppers(make: str, ticks: int, **kwargs: Any) -> dict[str, Any]:
    """Two workers that record their steps."""
    policies = {name: {"algorithm": "workers:Stepper", "options": {"name": name}} for name in ("p", "q")}
    return league({"seats": ["p", "q"]}, env={"make": make, "kwargs": kwargs}, ticks=ticks, **policies)


def test_ended_entity_is_not_truncated_by_the_cut(tmp_path: Path) -> None:
    played = play(steppers("games:Dropout", 5, lengths=[2, 9]), tmp_path)
    steps = {name: [note[3:6] for note in played.notes if note[:2] == (name, "step")] for name in ("p", "q")}
    assert steps["p"] == [(1.0, False, False), (1.0, True, False)]
    assert steps["q"] == [(2.0, False, False)] * 4 + [(2.0, False, True)]
    (episode,) = played.episodes
    assert (episode["cut"], episode["terminated"], episode["truncated"], episode["length"]) == (True, True, True, 5)


@pytest.mark.parametrize("ticks", [3, 4])
def test_cut_in_a_turn_based_game_delivers_pending_rewards(ticks: int, tmp_path: Path) -> None:
    """A move pays its mover 1 and the other one 10."""
    played = play(steppers("games:Alternate", ticks, moves=9), tmp_path)
    (episode,) = played.episodes
    moves = {"p": (ticks + 1) // 2, "q": ticks // 2}
    for seat, (name, other) in zip(episode["seats"], (("p", "q"), ("q", "p")), strict=True):
        told = [note for note in played.notes if note[:2] == (name, "step")]
        assert sum(note[3] for note in told) <= seat["return"] == moves[name] + 10 * moves[other]
        assert told[-1][4:6] == (False, True)
        assert len(told) == moves[name]
    assert (episode["cut"], episode["truncated"], episode["terminated"]) == (True, True, False)


def test_episodes_are_written_by_tick_then_match_then_lane(tmp_path: Path) -> None:
    folder = play(CASES["several matches"](), tmp_path).folder
    places = [(line["tick"], line["match"], line["lane"]) for line in JournalReader(folder.episodes)]
    assert places == sorted(places)
    assert len({*places}) == len(places)


# ------------------------------------------------------------------------------------------------------- many legs


def many_legs(blue: Any, legs: int) -> dict[str, Any]:
    data = league({**DUEL, "copies": 2, "lanes": 2, "pipeline": 2}, every=MEETS_EVERY, ticks=legs * MEETS_EVERY)
    return {**data, "policies": {"blue": blue, "red": RANDOM}}


def test_descriptors_are_closed_without_gc(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        held = play(many_legs(learner("HoldsDescriptors"), 12), tmp_path).notes
    finally:
        gc.enable()
    descriptors = [note for note in held if isinstance(note, int)]
    assert len(descriptors) == 2 * 12
    assert max(descriptors[8:]) == max(descriptors[2:8])
