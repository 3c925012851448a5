"""Samples without a barrier, in whole runs: nothing is lost, nothing counts twice, no worker waits, state continues."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import checkpoint
from arena.records.journal import JournalReader
from arena.records.state_codec import encode
from fakes import all_equal
from in_process import NOTES, Played, one_match, play
from policies.dqn import DQN
from policies.ppo import PPO
from worker_states import state_of


def mark_of(fragment: Any) -> str:
    """A digest that identifies a fragment."""
    structure, arrays = encode(fragment)
    held = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return hashlib.sha256(b"".join([repr(structure).encode(), *held])).hexdigest()


class NotesPPO(PPO):
    """Records the marks and transition counts of the samples that it offers and learns from."""

    def run(self) -> None:
        samples: Any = self.group.async_samples
        offer, take = samples.put, samples.get

        def noted_offer(part: Any, count: int) -> None:
            NOTES.append(("offered", mark_of(part), len(part["batch"]["actions"])))
            offer(part, count)

        def noted_take() -> Any:
            parts = take()
            if parts is not None:
                NOTES.append(("learned", [(mark_of(part), len(part["batch"]["actions"])) for part in parts]))
            return parts

        samples.put, samples.get = noted_offer, noted_take
        super().run()


class NotesDQN(DQN):
    """Records how many transitions it offers."""

    def run(self) -> None:
        samples: Any = self.group.async_samples
        offer = samples.put

        def noted_offer(part: Any, count: int) -> None:
            NOTES.append(("collected", len(part["fragment"]["starts"])))
            offer(part, count)

        samples.put = noted_offer
        super().run()


PPO_OPTIONS = {"n_steps": 8, "minibatch_size": 16, "n_epochs": 2, "hidden_sizes": [8]}
INTENSITY = 4
DQN_OPTIONS = {
    "hidden_sizes": [8],
    "learning_starts": 40,
    "batch_size": 8,
    "train_every": 4,
    "log_every": 20,
    "n_step": 1,
    "training_intensity": INTENSITY,
    "learning_rate_schedule": "constant",
}
PPO_NORMALIZED = {**PPO_OPTIONS, "normalize_observations": True, "normalize_rewards": True}
DQN_NORMALIZED = {**DQN_OPTIONS, "normalize_observations": True}


def run_of(algorithm: str, options: Any, *, lanes: tuple[int, ...] = (2, 5), **more: Any) -> dict[str, Any]:
    """One policy with a worker in each of some matches, of unequal numbers of lanes."""
    blue = {"algorithm": algorithm, "options": options, "sync": "samples", "max_lag": more.pop("max_lag", 2)}
    game, policies = {"make": "touchdown", "kwargs": {"max_steps": 12}}, {"blue": blue, "red": {"algorithm": "random"}}
    matches = [{"env": "game", "seats": ["blue", "red"], "lanes": count} for count in lanes]
    return one_match(game, policies, ticks=100, seed=3, checkpoint_every=25, matches=matches) | more


def state_at(played: Played, tick: int) -> Any:
    return checkpoint.load(checkpoint.path_of(played.folder.checkpoints_path("blue"), tick)).state


def own_at(played: Played, tick: int, match: int = 0) -> Any:
    return state_of(played.folder.checkpoints_path("blue"), tick, (match, 0))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", PPO_NORMALIZED),
        ("dqn", DQN_NORMALIZED),
        pytest.param("a2c", {"n_steps": 8, "hidden_sizes": [8]}, marks=pytest.mark.long),
        pytest.param("impala", {"n_steps": 8, "hidden_sizes": [8]}, marks=pytest.mark.long),
    ],
)
def test_single_worker_is_bit_equal_with_and_without_a_barrier(algorithm: str, options: Any, tmp_path: Path) -> None:
    found = [play(run_of(algorithm, options, lanes=(3,), max_lag=lag), tmp_path) for lag in (0, 2)]
    assert all_equal(*(state_at(played, 100) for played in found))
    lines = [[{**line, "seconds": 0} for line in JournalReader(played.folder.metrics)] for played in found]
    assert lines[0] == lines[1] != []


def test_every_fragment_is_learned_from_once_through_legs_and_a_resume(tmp_path: Path) -> None:
    data = run_of("test_async_samples_in_runs:NotesPPO", PPO_OPTIONS)
    first = play(data, tmp_path, given=True)
    then = play({**data, "ticks": 175}, tmp_path, resume=True)
    notes = [*first.notes, *then.notes]
    offered = {note[1]: note[2] for note in notes if note[0] == "offered"}
    batches = [note[1] for note in notes if note[0] == "learned"]
    learned = [mark for batch in batches for mark, _ in batch]
    left = [size for queue in own_at(then, 175)["fragments"]["waiting"] for size, *_ in queue]
    assert len(set(learned)) == len(learned), "none twice"
    assert set(learned) <= set(offered)
    assert sum(offered[mark] for mark in learned) + sum(left) == sum(offered.values()) == 175 // 8 * 8 * (2 + 5)
    assert {tuple(size for _, size in batch) for batch in batches} == {(8 * 2, 8 * 5)}, "a rollout of each worker"
    lags = [line["lag_max"] for line in JournalReader(then.folder.metrics)]
    assert len(lags) == len(batches) and 0 <= min(lags) <= max(lags) <= 2


def test_replay_counts_transitions_once_through_legs_and_a_resume(tmp_path: Path) -> None:
    data = run_of("test_async_samples_in_runs:NotesDQN", DQN_OPTIONS)
    first = play(data, tmp_path, given=True)
    then = play({**data, "ticks": 175}, tmp_path, resume=True)
    collected = sum(note[1] for note in [*first.notes, *then.notes] if note[0] == "collected")
    waiting = own_at(then, 175)["fragments"]["waiting"]
    left = sum(len(samples["fragment"]["starts"]) for queue in waiting for _, _, samples in queue)
    account = state_at(then, 175)["intensity"]
    assert account["collected"] + left == collected
    rows, uncut = 2 + 5, 175 % 4
    assert abs(collected - rows * (175 - uncut)) <= rows, "those that the next action completes come one tick later"
    due = INTENSITY * (account["collected"] - account["waited"])
    assert due - 8 * 2 < account["replayed"] <= due


def teams(algorithm: str, options: Any, *, ticks: int, max_lag: int) -> dict[str, Any]:
    """The same in a game of two against two, each team driven by one worker."""
    name, *_ = algorithm.split()
    data = run_of(name, options, ticks=ticks, max_lag=max_lag, checkpoint_every=15)
    data["envs"]["game"]["kwargs"]["team_size"] = 2
    for match in data["matches"]:
        match["seats"] = [["blue", "blue"], ["red", "red"]]
    return data


LEARNERS = {
    "ppo": PPO_NORMALIZED,
    "impala": {
        **{"n_steps": 8, "hidden_sizes": [8], "recurrent": "gru", "hidden_size": 8},
        **{"learning_rate_schedule": "constant", "normalize_observations": True},
    },
    "mappo": PPO_NORMALIZED,
    "hppo": {**PPO_NORMALIZED, "option_ticks": 3},
    "dqn": {**DQN_NORMALIZED, "exploration_fraction": 0},
    "ppo average": {**PPO_OPTIONS, **(AVERAGE := {"average": True, "anticipatory": 0.5, "reservoir_size": 50})},
    "dqn average": {**DQN_OPTIONS, **AVERAGE, "exploration_fraction": 0},
}
FEW = [("ppo", 2), ("impala", 2), ("dqn", 0), ("dqn", 2), ("ppo average", 0), ("dqn average", 2)]
ALL = [(name, max_lag) for name in LEARNERS for max_lag in (0, 2)]


@pytest.mark.parametrize(
    ("algorithm", "max_lag"), [pytest.param(*case, marks=[pytest.mark.long] * (case not in FEW)) for case in ALL]
)
def test_resumed_run_equals_an_uninterrupted_one(algorithm: str, max_lag: int, tmp_path: Path) -> None:
    """In one process the order of workers does not depend on time, so that runs can be compared to the bit."""
    options = LEARNERS[algorithm]
    whole = play(teams(algorithm, options, ticks=60, max_lag=max_lag), tmp_path)
    play(teams(algorithm, options, ticks=30, max_lag=max_lag), tmp_path / "parted", given=True)
    parted = play(teams(algorithm, options, ticks=60, max_lag=max_lag), tmp_path / "parted", resume=True)
    assert all_equal(state_at(whole, 60), state_at(parted, 60))
    assert all(all_equal(own_at(whole, 60, match), own_at(parted, 60, match)) for match in (0, 1))
