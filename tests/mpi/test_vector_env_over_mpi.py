"""Runs of vector environments: the same bytes on any number of ranks and after a resume, and no process is left."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import (
    alone,
    arena,
    differing,
    finish,
    has_played,
    left_behind,
    started,
    train,
    trained,
    wait_for,
    write,
)

GAMES: dict[str, dict[str, Any]] = {
    "a tick later": {"make": "gymnasium_vec:CartPole-v1"},  # a vector environment of its own, in mode NEXT_STEP
    "processes": {
        "make": "gymnasium_vec:CartPole-v1",
        "kwargs": {"vectorization_mode": "async", "vector_kwargs": {"autoreset_mode": "SameStep"}},
    },
}


def solo(game: dict[str, Any], **more: Any) -> dict[str, Any]:
    learner = {"learner": {"algorithm": "learners:VectorLearner"}}
    keys = {"ticks": 400, "match": {"lanes": 4, "pipeline": 2}, "name": "solo", "seed": 4, "checkpoint_every": 100}
    return one_match(game, learner, **{**keys, **more})


@pytest.mark.parametrize("game", GAMES)
def test_run_of_a_vector_env_is_bit_equal_after_resume(game: str, tmp_path: Path) -> None:
    config = solo(GAMES[game])
    for ranks, more in ((2, ["--ticks", "200"]), (3, ["--resume"])):
        run = trained(tmp_path, config, *more, ranks=ranks)
    wait_for(lambda: left_behind(tmp_path) == [])
    whole = alone(tmp_path, config)
    assert (whole / "episodes.jsonl").read_bytes().count(b"\n") > 30
    assert differing(run, whole) == []


def test_run_of_processes_can_be_asked_to_stop(tmp_path: Path) -> None:
    process = started(tmp_path, solo(GAMES["processes"], ticks=10**6, checkpoint_every=10**6), ranks=2)
    wait_for(lambda: has_played(tmp_path / "run"))
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert (ended.code, ended.err[:22]) == (143, "arena: stopped at tick"), ended.err
    wait_for(lambda: left_behind(tmp_path) == [])


@pytest.mark.parametrize("how", ["unprintable", "segv"])
def test_run_of_processes_that_fails_leaves_none(how: str, tmp_path: Path) -> None:
    config = solo(GAMES["processes"], restarts=0)
    config["policies"]["learner"] = {"algorithm": "faulty_workers:Ends", "options": {"how": how}}
    assert train(tmp_path, config, ranks=2).code != 0
    wait_for(lambda: left_behind(tmp_path) == [])


@pytest.mark.parametrize(
    ("game", "more", "message"),
    [
        ({"make": "vector_games:three"}, {}, "Walks has 3 sub-environments for 4 lanes"),
        ({"make": "vector_games:unequal"}, {"match": {"lanes": 2}}, "SyncVectorEnv have unequal observation spaces"),
        (GAMES["a tick later"], {"record": "replays"}, "a replay plays each lane alone, and environment 'game' cannot"),
        ({"make": "jax_games:Keeping"}, {}, "reset of the JAX game Keeping is not a pure function"),
    ],
)
def test_unfit_vector_env_ends_a_run_before_it_starts(game: Any, more: Any, message: str, tmp_path: Path) -> None:
    config = solo(game, **{"match": {"lanes": 4}, **more})
    for command in ("check", "train"):
        ended = arena(tmp_path, command, write(tmp_path, config))
        assert (ended.code, message in ended.err) == (2, True), ended.err


def test_env_of_another_mode_ends_the_run_with_its_name(tmp_path: Path) -> None:
    game = {"make": "vector_games:Walks", "kwargs": {"says": "NextStep", "does": "SameStep"}}
    ended = train(tmp_path, solo(game), ranks=1)
    assert ended.code == 1
    assert "metadata['autoreset_mode'] of Walks is NEXT_STEP; set it to the mode in which" in ended.err


def test_check_names_what_is_not_repeatable_alone(tmp_path: Path) -> None:
    ended = arena(tmp_path, "check", write(tmp_path, solo(GAMES["a tick later"])))
    assert ended.code == 0, ended.err
    assert "its lanes are repeatable together alone: CartPoleVectorEnv takes one seed for all lanes" in ended.out
