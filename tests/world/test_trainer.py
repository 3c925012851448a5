"""A Trainer is the run of `arena train`, held at its boundaries: the same bytes, with any calls in between."""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import signal
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_results_in_runs import DUEL, LEAGUE, RANDOM, left, train

import arena
from arena import Callback, CallbackEntry, Trainer
from arena.errors import BudgetReached, ConfigError, RunFailed
from arena.league.sources import Source
from arena.records import checkpoint, read_results
from faulty_games import Faulty
from in_process import NOTES, one_match
from slow_results import json_lines, without_clock

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
LEARNS = {**DUEL, "policies": {"blue": PPO, "red": RANDOM}}
TWENTY = {
    **DUEL,
    "ticks": 160,
    "checkpoint_every": 20,
    "results": {"every": 20, "smoothing": 7},
    "evaluation": {"every": 40, "episodes": 2},
}


def same(run: Path, other: Path) -> None:
    """Compares two run folders, without clock times and a Trainer's additional files."""
    ours, theirs = (
        {name: value for name, value in left(one).items() if not name.startswith(("saved/", "evaluations/trainer-"))}
        for one in (run, other)
    )
    assert ours.keys() == theirs.keys()
    assert ours == theirs
    assert without_clock(run) == without_clock(other)
    for name in ("config.yaml", "plan.json", "evaluations.jsonl"):
        assert (run / name).exists() == (other / name).exists()
        assert not (run / name).exists() or (run / name).read_bytes() == (other / name).read_bytes()
    assert sorted(path.name for path in (run / "boundaries").iterdir()) == sorted(
        path.name for path in (other / "boundaries").iterdir()
    )


def test_iterations_with_calls_between_leave_the_bytes_of_the_command(tmp_path: Path) -> None:
    known = train(TWENTY, tmp_path / "known")
    run = tmp_path / "run"
    with Trainer({"name": "test", **TWENTY}, run_dir=run, every=20) as trainer:
        observation = None
        for _ in range(4):
            result = trainer.train()
            assert result["ticks"] == trainer.ticks == 20 * result["training_iteration"]
            observation = trainer.policy("blue").observation_space.sample() if observation is None else observation
            assert trainer.compute_action(observation) == trainer.policy("blue").act(observation)
            trainer.evaluate(2, greedy=result["training_iteration"] % 2 == 0)
            trainer.set_state("blue", trainer.state("blue"))
        saved = trainer.save()
        assert trainer.evaluate(2, against="random")["policies"]["blue"]["episodes"] >= 2
    for folder in (run, saved):
        with Trainer.restore(folder) as trainer:
            assert [result["ticks"] for result in trainer] == list(range(100, 161, 20))
            assert trainer.done
        same(folder, known)


def test_saved_run_is_continued_by_the_command(tmp_path: Path) -> None:
    known = train(DUEL, tmp_path / "known")
    with Trainer({"name": "test", **DUEL}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        saved = trainer.save(tmp_path / "copy")
        with pytest.raises(ConfigError, match="holds files already"):
            trainer.save(saved)
    train(DUEL, saved, resume=True)
    same(saved, known)


def test_results_equal_the_file_and_end_with_the_last_tick(tmp_path: Path) -> None:
    trainer = Trainer({"name": "test", **DUEL}, run_dir=tmp_path / "run", ticks=80)
    assert (trainer.iteration, trainer.ticks, trainer.done, trainer.policies) == (0, 0, False, ("blue", "red"))
    results = list(trainer)
    assert repr(results) == repr(read_results(tmp_path / "run")) == repr(trainer.results)
    assert (trainer.iteration, trainer.ticks, trainer.done, results[-1]["done"]) == (2, 80, True, True)
    with pytest.raises(BudgetReached, match=r"Trainer.restore\('.*run', ticks=...\)"):
        trainer.train()
    assert "training_iteration 2" in repr(trainer)
    assert "<table>" in trainer._repr_html_()
    trainer.close()
    trainer.close()
    with pytest.raises(ConfigError, match="the Trainer is closed"):
        trainer.train()
    with Trainer.restore(tmp_path / "run", ticks=120) as longer:
        assert longer.train()["done"]
    assert without_clock(tmp_path / "run")[-1] == without_clock(train(DUEL, tmp_path / "whole"))[-1]


class StopsAt(Callback):
    def __init__(self, method: str = "on_result") -> None:
        setattr(self, method, lambda *_: self.stop())

    def on_result(self, result: Mapping[str, Any]) -> None:
        pass

    def on_evaluation(self, tick: int, lines: Any, folder: Path) -> None:
        pass


@pytest.mark.parametrize("method", ["on_result", "on_evaluation"])
@pytest.mark.parametrize("as_object", [False, True])
def test_stop_of_a_callback_at_a_boundary_ends_the_run_there(method: str, as_object: bool, tmp_path: Path) -> None:
    entry = CallbackEntry(class_=StopsAt, options={"method": method})
    data = {"name": "test", **TWENTY, **({} if as_object else {"callbacks": [entry]})}
    end = 20 if method == "on_result" else 40
    with Trainer(data, run_dir=tmp_path / "run", callbacks=[StopsAt(method)] if as_object else ()) as trainer:
        assert [result["ticks"] for result in trainer] == list(range(20, end + 1, 20))
        assert (trainer.done, trainer.ticks) == (True, end)
        with pytest.raises(BudgetReached):
            trainer.train()
    if not as_object:
        found = arena.train(data, tmp_path / "train", ranks=1)
        assert (found.ticks, found.finished, found.stopped_by) == (end, False, "callback")
        same(tmp_path / "run", tmp_path / "train")
    with Trainer.restore(tmp_path / "run", overrides={"callbacks": []}) as trainer:
        assert [result["ticks"] for result in trainer] == list(range(end + 20, 161, 20))


def test_league_can_be_iterated_too(tmp_path: Path) -> None:
    with Trainer({"name": "test", **LEAGUE}, run_dir=tmp_path / "run") as trainer:
        assert [result["ticks"] for result in trainer] == [30, 60, 90]
    assert left(tmp_path / "run") == left(train(LEAGUE, tmp_path / "known"))
    assert without_clock(tmp_path / "run") == without_clock(tmp_path / "known")


def test_process_state_is_restored_after_each_call(tmp_path: Path) -> None:
    import torch

    torch.set_num_threads(2)
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    random.seed(3)
    before = (random.getstate(), signal.getsignal(signal.SIGINT), np.random.get_state()[1].tolist())  # type: ignore[union-attr]
    with Trainer({"name": "test", **DUEL}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        trainer.evaluate(2)
        trainer.compute_action(trainer.policy("blue").observation_space.sample())
        assert before[:2] == (random.getstate(), signal.getsignal(signal.SIGINT))
        assert before[2] == np.random.get_state()[1].tolist()  # type: ignore[union-attr]
        assert torch.get_num_threads() == 2
        assert handler in logging.getLogger().handlers
    logging.getLogger().removeHandler(handler)


def test_two_trainers_take_turns_also_outside_of_the_main_thread(tmp_path: Path) -> None:
    known = train(DUEL, tmp_path / "known")
    trainers = [Trainer({"name": "test", **DUEL}, run_dir=tmp_path / name) for name in ("a", "b")]
    for _ in range(3):
        for trainer in trainers:
            thread = threading.Thread(target=trainer.train)
            thread.start()
            thread.join()
    for trainer in trainers:
        assert trainer.done
        trainer.close()
        assert left(trainer.folder) == left(known)


def test_locked_folder_is_refused(tmp_path: Path) -> None:
    with Trainer({"name": "test", **DUEL}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        with pytest.raises(ConfigError, match="process"):
            Trainer.restore(tmp_path / "run")
    Trainer.restore(tmp_path / "run").close()
    with pytest.raises(ConfigError, match="not a run folder"):
        Trainer.restore(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_iteration_is_saved_and_the_next_one_continues(name: str, tmp_path: Path) -> None:
    NOTES.clear()

    class Interrupts:
        def on_episode(self, line: Mapping[str, Any]) -> None:
            if line["episode"] == 3 and not NOTES:
                NOTES.append("interrupted")
                os.kill(os.getpid(), signal.Signals[name])

    # An iteration lasts much longer than the half second in which the request arrives and the run is saved.
    every = 6000
    data = {"name": "test", **DUEL, "ticks": 2 * every, "checkpoint_every": every, "results": {"every": every}}
    with Trainer(data, run_dir=tmp_path / "run", callbacks=[Interrupts()]) as trainer:
        with pytest.raises(KeyboardInterrupt, match=name):
            trainer.train()
        assert trainer.train()["ticks"] == every
        assert trainer.train()["done"]
    assert [line["ticks"] for line in json_lines(tmp_path / "run" / "result.json")][-2:] == [every, 2 * every]


def test_failing_game_is_a_run_failed_and_a_wrong_option_a_config_error(tmp_path: Path) -> None:
    Faulty.forget()
    game = {"make": "faulty_games:Faulty", "kwargs": {"faulty": [2]}}
    alone = {**DUEL, "envs": {"game": game}, "policies": {"a": RANDOM}}
    data = {"name": "test", **alone, "matches": [{"env": "game", "seats": ["a"]}]}
    trainer = Trainer(data, run_dir=tmp_path / "run", ticks=200, every=20)
    trainer.train()
    with pytest.raises(RunFailed) as caught:
        trainer.train()
    assert "environment of match 0" in caught.value.who and caught.value.trace
    with pytest.raises(ConfigError, match="closed"):
        trainer.train()
    assert read_results(tmp_path / "run")[-1]["ticks"] == 20
    wrong = {**DUEL, "policies": {"blue": {"algorithm": "ppo", "options": {"n_step": 3}}, "red": RANDOM}}
    with pytest.raises(ConfigError, match="did you mean 'n_steps'"):
        Trainer({"name": "test", **wrong}, run_dir=tmp_path / "wrong").train()


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"evaluation": {"every": 80}}, {"every": 30}, "policies are evaluated where they are saved"),
        ({}, {"overrides": {"policies.blue.optons": 1}}, "did you mean 'options'"),
        ({}, {"overrides": {"policies.blue.options.gamma": object()}}, r"^policies\.blue\.options\.gamma: found <obj"),
        ({}, {"overrides": {"policies..blue": 1}}, r"policies\.\.blue: is no key path"),
        ({}, {"overrides": ["ticks=3"]}, "overrides: found .*; expected a mapping of key paths to values"),
        ({}, {"every": object()}, "^every: found <object"),
        ({"policies": {"blue": {"algorithm": "workers:Uniform"}, "red": RANDOM}}, {}, "state_dict"),
    ],
)
def test_mistake_is_found_before_anything_starts(
    changes: Any, arguments: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        Trainer({"name": "test", **DUEL, **changes}, run_dir=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_mistake_of_an_override_is_named_with_it(tmp_path: Path) -> None:
    for key, value, words in (
        (
            "policies.blue.options.gamma",
            float("inf"),
            r"^policies\.blue\.options\.gamma=inf: .*: found inf; expected a ",
        ),
        ("envs.game.kwargs.a", 1, r"^envs\.game\.kwargs\.a=1: matches\[0\]: .*argument 'a'"),
    ):
        with pytest.raises(ConfigError, match=words):
            Trainer({"name": "test", **LEARNS}, overrides={key: value}, run_dir=tmp_path / "run").train()


def test_state_of_another_form_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with Trainer({"name": "test", **LEARNS}, run_dir=tmp_path / "run") as trainer:
        with pytest.raises(ConfigError, match="no state before its first iteration"):
            trainer.state("blue")
        trainer.train()
        path = checkpoint.list_checkpoints(trainer.folder / "checkpoints" / "blue")[-1]
        before, state = path.read_bytes(), trainer.state("blue")
        for wrong in ({"weights": 3}, {**state, "network": {}}):
            with pytest.raises(ConfigError, match="does not fit 'blue'"):
                trainer.set_state("blue", wrong)
        assert path.read_bytes() == before
        with pytest.raises(ConfigError, match="did you mean 'blue'"):
            trainer.state("bleu")
        with pytest.raises(ConfigError, match=r"'red' has no state: its algorithm 'random' has no state_dict\(\)"):
            trainer.state("red")


def test_run_continues_with_a_replaced_state(tmp_path: Path) -> None:
    with Trainer({"name": "test", **DUEL}, run_dir=tmp_path / "a") as first:
        first.train()
        first.train()
        state = first.state("blue")
    with Trainer({"name": "test", **DUEL, "seed": 9}, run_dir=tmp_path / "b") as second:
        second.train()
        second.set_state("blue", state)
        path = checkpoint.list_checkpoints(second.folder / "checkpoints" / "blue")[-1]
        assert repr(checkpoint.load(path).state) == repr(state)
        observation = second.policy("blue").observation_space.sample()
        assert second.compute_action(observation) == Trainer.restore(tmp_path / "a").compute_action(observation)
        second.train()


def test_recurrent_policy_returns_its_memory(tmp_path: Path) -> None:
    recurrent = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "recurrent": "gru"}}
    data = {"name": "test", **DUEL, "policies": {"blue": recurrent, "red": RANDOM}}
    with Trainer(data, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        player = trainer.policy("blue")
        observations = [player.observation_space.sample() for _ in range(4)]
        alone, memory = [], None
        for observation in observations:
            action, memory = trainer.compute_action(observation, memory=memory)
            alone.append(action)
        assert alone == [player.act(observation) for observation in observations]
        assert np.array_equal(player.memory, memory)
        once = player.memory
        player.reset()
        assert player.memory is None
        rows = [np.stack([observation, observation]) for observation in observations]
        assert [player.act_batch(batch).tolist() for batch in rows] == [[action, action] for action in alone]
        assert player.memory is not None and np.allclose(player.memory, once, atol=1e-6)
        player.act_batch(rows[0], {"_final_obs": np.array([True, False])})
        assert not np.array_equal(player.memory[0], player.memory[1])
        entities = {"0": observations[0], "1": observations[0]}
        first = trainer.compute_actions(entities)
        assert first["0"] == alone[0]
        assert trainer.compute_actions({"0": observations[1]})["0"] == alone[1], "its memory continues"
        with pytest.raises(ConfigError, match="match 0 has no entity '7'"):
            trainer.compute_actions({"7": observations[0]})
        with pytest.raises(ValueError, match=r"^red \(random\) takes no memory: its memory_size is 0"):
            trainer.compute_action(observations[0], policy="red", memory=memory)
        policy = arena.load_policy(f"{tmp_path / 'run'}:blue")
        size = policy.memory_size
        for wrong, found in (
            (np.zeros(size + 1), f"{size + 1} numbers"),
            (np.zeros((2, 3, size)), rf"the shape \(2, 3, {size}\)"),
            (np.full(size, np.nan), "numbers that are not finite"),
            ("x", "is a str, not numbers"),
        ):
            for take in (
                policy.remember,
                lambda memory: setattr(player, "memory", memory),
                lambda memory: trainer.compute_action(observations[0], memory=memory),
            ):
                with pytest.raises(ValueError, match=rf"^memory (has )?{found}"):
                    take(wrong)
        with pytest.raises(ValueError, match="plays no entity 'ghost'"):
            policy.remember(np.zeros(size), "ghost")


def test_changes_hold_from_the_next_iteration_and_after_a_resume(tmp_path: Path) -> None:
    data = LEARNS
    with Trainer({"name": "test", **data}, run_dir=tmp_path / "run", ticks=80) as trainer:
        trainer.train()
        wrong = {
            "policies.blue.options.learning_rat": "has no option 'learning_rat'",
            "policies.red.options.nope": "has no option 'nope'",
            "envs.game.kwargs.max_stepz": "max_stepz",
        }
        for key, words in wrong.items():
            with pytest.raises(ConfigError, match=words):
                trainer.change({key: 3})
        trainer.change({"envs.game.kwargs.max_steps": 5, "policies.blue.frozen": True})
        for key in ("seed", "ticks"):
            with pytest.raises(ConfigError, match="cannot be changed"):
                trainer.change({key: 3})
        trainer.train()
    train({**data, "ticks": 120}, tmp_path / "run", resume=True)
    assert json_lines(tmp_path / "run" / "changes.jsonl") == [
        {"tick": 40, "set": {"envs.game.kwargs.max_steps": 5, "policies.blue.frozen": True}}
    ]
    lines = [line for line in json_lines(tmp_path / "run" / "episodes.jsonl") if "cut" not in line]
    assert {line["length"] for line in lines if line["tick"] > 45} == {5}
    assert max(line["length"] for line in lines if line["tick"] <= 40) == 15
    assert max(line["ticks"] for line in json_lines(tmp_path / "run" / "metrics.jsonl")) <= 40


@pytest.mark.parametrize(
    ("key", "value"), [("envs.game.kwargs.blue_obs", "image"), ("policies.blue.options.hidden_sizes", [4])]
)
def test_a_change_that_does_not_fit_what_is_learned_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with Trainer({"name": "test", **LEARNS}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        with pytest.raises(ConfigError, match=rf"as changed by {key}=.*do not fit"):
            trainer.change({key: value})
        trainer.train()
        assert (trainer.ticks, (trainer.folder / "changes.jsonl").exists()) == (80, False)


def test_workers_join_and_leave_as_after_close_and_resume(tmp_path: Path) -> None:
    data = {"name": "test", **LEARNS, "ticks": 160}
    with Trainer(data, run_dir=tmp_path / "changed") as trainer:
        trainer.train()
        for key, value, words in (("matches[0].copies", 0, "at least 1"), ("matches[7].copies", 2, "matches")):
            with pytest.raises(ConfigError, match=words):
                trainer.change({key: value})
        trainer.change({"matches[0].copies": 3, "envs.game.kwargs.max_steps": 5})
        assert (trainer.ticks, len(trainer._loop.run.plan.matches)) == (40, 3)
        trainer.train()
        trainer.train()
        trainer.change({"matches.0.copies": 1})
        trainer.train()
        for key in ("matches[0].copies", "envs.game.kwargs.max_steps", "policies.blue.options.learning_rate"):
            with pytest.raises(ConfigError, match=f"{re.escape(key)}: the run is over at tick 160"):
                trainer.change({key: 1})
    with Trainer(data, run_dir=tmp_path / "resumed") as trainer:
        trainer.train()
    with Trainer.restore(tmp_path / "resumed", overrides={"matches[0].copies": 3}) as trainer:
        trainer.change({"envs.game.kwargs.max_steps": 5})
        trainer.train()
        trainer.train()
    with Trainer.restore(tmp_path / "resumed", overrides={"matches[0].copies": 1}) as trainer:
        trainer.train()
    assert left(tmp_path / "changed") == left(tmp_path / "resumed")
    lines = [line for line in json_lines(tmp_path / "changed" / "episodes.jsonl") if "cut" not in line]
    played = [{line["match"] for line in lines if low < line["tick"] <= low + 40} for low in (0, 40, 80, 120)]
    assert played == [{0, 1}, {0, 1, 2}, {0, 1, 2}, {0}]


def test_copies_change_before_the_first_iteration_too(tmp_path: Path) -> None:
    with Trainer({"name": "test", **LEARNS, "ticks": 40}, run_dir=tmp_path / "run") as trainer:
        trainer.change({"matches[0].copies": 3})
        trainer.train()
    assert {line["match"] for line in json_lines(tmp_path / "run" / "episodes.jsonl")} == {0, 1, 2}


def test_a_live_change_may_name_code_and_a_resume_asks_for_it_in_the_configuration(tmp_path: Path) -> None:
    blue = {"algorithm": "a2c", "options": {"hidden_sizes": [4], "n_steps": 4}}
    data, key = {**DUEL, "policies": {"blue": blue, "red": RANDOM}}, "policies.blue.options.extra_loss"
    with Trainer({"name": "test", **data, "ticks": 40}, run_dir=tmp_path / "run", every=20) as trainer:
        trainer.train()
        trainer.change({key: "own_parts:Decay"})
        trainer.train()
    assert json_lines(tmp_path / "run" / "changes.jsonl") == [{"tick": 20, "set": {key: "own_parts:Decay"}}]
    with pytest.raises(ConfigError, match=r"'own_parts:Decay', which config\.yaml does not have") as caught:
        train({**data, "ticks": 80}, tmp_path / "run", resume=True)
    assert caught.value.path == key and "changes.jsonl" in str(caught.value)
    blue["options"]["extra_loss"] = "own_parts:Decay"
    train({**data, "ticks": 80}, tmp_path / "run", resume=True)
    assert read_results(tmp_path / "run")[-1]["ticks"] == 80


A2C = {"algorithm": "a2c", "options": {"n_steps": 8, "hidden_sizes": [8]}}


def test_a_changed_algorithm_starts_over_as_after_close_and_resume(tmp_path: Path) -> None:
    data = {"name": "test", **LEARNS, "ticks": 120}
    red = {"policies.red": {**A2C, "options": {"hidden_sizes": [8]}}}
    with Trainer(data, run_dir=tmp_path / "changed") as trainer:
        trainer.train()
        learned = trainer.state("blue")
        wrong = {
            "policies.blue.algorithm": ("a2c", "has no option 'minibatch_size'"),
            "policies.blue": ({"algorithm": "td3"}, "is no Box of floats"),
            "policies.blue.frozen.algorithm": ("a2c", "cannot be changed"),
        }
        for key, (value, words) in wrong.items():
            with pytest.raises(ConfigError, match=words):
                trainer.change({key: value})
        trainer.change({"policies.blue.algorithm": "a2c", "policies.blue.options": A2C["options"]})
        with pytest.raises(ConfigError, match="no state before its first iteration"):
            trainer.state("blue")
        observation = trainer.policy("blue").observation_space.sample()
        assert trainer.policy("blue").act(observation) in range(5)
        assert trainer.evaluate(2)["policy_reward_mean"].keys() == {"blue", "red"}
        trainer.train()
        assert trainer.state("blue")["ticks_done"] == 40, "of all 80"
        trainer.change(red)
        trainer.train()
        assert trainer.state("red")["ticks_done"] > 0
    with Trainer(data, run_dir=tmp_path / "resumed") as trainer:
        trainer.train()
        assert np.array_equal(trainer.state("blue")["network"]["actor.0.weight"], learned["network"]["actor.0.weight"])
    blue = {"policies.blue.algorithm": "a2c", "policies.blue.options": A2C["options"]}

    class Fails:
        def on_episode(self, episode: Any) -> None:
            raise RuntimeError("in the middle of a leg")

    trainer = Trainer.restore(tmp_path / "resumed", overrides=blue, callbacks=[Fails()])
    with pytest.raises(RunFailed, match="in the middle of a leg"):
        trainer.train()
    for overrides in ({}, {**blue, **red}):
        with Trainer.restore(tmp_path / "resumed", overrides=overrides) as trainer:
            trainer.train()
    assert left(tmp_path / "changed") == left(tmp_path / "resumed")


def test_a_changed_algorithm_has_none_of_the_options_that_were_changed_before(tmp_path: Path) -> None:
    data, rate = {"name": "test", **LEARNS, "ticks": 160}, "policies.blue.options.learning_rate"
    swap = {"policies.blue.algorithm": "a2c", "policies.blue.options": {**A2C["options"], "learning_rate": 1e-3}}

    def learns_with(trainer: Trainer) -> Any:
        return trainer._config_now().policies["blue"].options

    with Trainer(data, run_dir=tmp_path / "run") as trainer:
        trainer.change({rate: 1e-4, "policies.blue.options.clip_range": 0.1})
        trainer.train()
        with pytest.raises(ConfigError, match="clip_range"):
            trainer.change({**swap, "policies.blue.options.clip_range": 0.3})
        assert learns_with(trainer)["clip_range"] == 0.1
        trainer.change({"policies.blue.options.clip_range": 0.3})
        trainer.change({**swap, "policies.blue.options.ent_coef": 0.02, "policies.rival": A2C})
        trainer.evaluate(1)
        trainer.train()
        known = {**swap["policies.blue.options"], "ent_coef": 0.02}
        assert learns_with(trainer) == known
        trainer.change({rate: 2e-3})
        trainer.train()
    assert [line["set"] for line in json_lines(tmp_path / "run" / "changes.jsonl")][1:] == [
        {"policies.blue.options": swap["policies.blue.options"], "policies.blue.options.ent_coef": 0.02},
        {rate: 2e-3},
    ]
    with Trainer.restore(tmp_path / "run") as trainer:
        assert learns_with(trainer) == {**known, "learning_rate": 2e-3}
        trainer.change({"policies.blue.options": {**A2C["options"], "learning_rate": 3e-3}})
        trainer.train()
        assert learns_with(trainer) == {**A2C["options"], "learning_rate": 3e-3}


def test_an_algorithm_changed_twice_before_a_checkpoint_has_the_options_of_the_second_change(tmp_path: Path) -> None:
    data = {"name": "test", **LEARNS, "ticks": 160}
    first = {"policies.blue.algorithm": "ppo", "policies.blue.options": {"hidden_sizes": [4], "target_kl": 0.5}}
    second = {"policies.blue.algorithm": "impala", "policies.blue.options": {"hidden_sizes": [16]}}
    with Trainer(data, run_dir=tmp_path / "run") as trainer:
        trainer.change({"policies.blue": A2C})
        trainer.train()
        trainer.change({**first, "policies.rival": A2C, "matches[0].seats[0]": "rival"})  # blue learns nothing
        trainer.train()
        trainer.change({**second, "matches[0].seats[0]": "blue"})
        assert trainer._config_now().policies["blue"].options == second["policies.blue.options"]
        trainer.train()
        shape = trainer.state("blue")["network"]["actor.0.weight"].shape
    assert shape[0] == 16


def test_commands_play_the_games_of_a_run_whose_options_were_changed(tmp_path: Path) -> None:
    changes = {"policies.blue.options.learning_rate_schedule": "linear", "envs.game.kwargs.max_steps": 9}
    with Trainer({"name": "test", **LEARNS, "ticks": 80}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        trainer.change(changes)
        trainer.train()
    assert Source.of(str(tmp_path / "run")).config.envs["game"].kwargs["max_steps"] == 9


def test_checkpoints_of_an_earlier_algorithm_are_refused_with_what_to_do(tmp_path: Path) -> None:
    data = {"name": "test", **LEARNS, "ticks": 120}
    swap = {"policies.blue.algorithm": "a2c", "policies.blue.options": A2C["options"]}
    with Trainer(data, run_dir=tmp_path / "first") as trainer:
        trainer.train()
        trainer.change(swap)
        trainer.train()
        with pytest.raises(ConfigError, match="play against checkpoints since then"):
            trainer.evaluate(1, against="blue@40")
    loaded = {**PPO, "load": f"{tmp_path / 'first'}/checkpoints/blue/000000000040.ckpt"}
    with Trainer({**data, "policies": {"blue": loaded, "red": RANDOM}}, run_dir=tmp_path / "second") as trainer:
        trainer.train()
        with pytest.raises(ConfigError, match=r"policies\.blue\.load: .*change `load` with it"):
            trainer.change(swap)
        trainer.change({**swap, "policies.blue": {**A2C, "load": None}})
        trainer.train()


def test_further_keys_of_a_change_are_checked_against_what_it_makes(tmp_path: Path) -> None:
    with Trainer({"name": "test", **LEARNS}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        trainer.change({"policies.rival": A2C, "policies.rival.frozen": True})
        assert trainer._loop.state.changes == {"policies.rival.frozen": True}
        trainer.train()


def test_seats_change_as_after_close_and_resume(tmp_path: Path) -> None:
    data = {"name": "test", **LEARNS, "ticks": 160}
    rival = {"policies.rival": PPO, "matches[0].seats[1]": "rival"}
    back = {"matches[0].seats": ["blue", "red"]}
    with Trainer(data, run_dir=tmp_path / "changed") as trainer:
        trainer.train()
        assert trainer._seated["1"][0] == "red"
        wrong = {
            "matches[0].seats[1]": ("rivl", "unknown policy 'rivl'"),
            "matches[0].seats": ([["blue"], "red"], 'was not set, is "blue"'),
            "matches[3].seats": (["blue", "red"], "matches"),
        }
        for key, (value, words) in wrong.items():
            with pytest.raises(ConfigError, match=words):
                trainer.change({key: value})
        trainer.change(rival)
        assert trainer._seated["1"][0] == "rival"
        trainer.train()
        kept = trainer.state("rival")
        trainer.change(back)
        trainer.train()
        assert trainer.state("rival")["ticks_done"] == kept["ticks_done"] == 32, "it has no seat"
        trainer.change({"matches[0].seats[1]": "rival"})
        trainer.train()
        assert trainer.state("rival")["ticks_done"] == 64
    with Trainer(data, run_dir=tmp_path / "resumed") as trainer:
        trainer.train()
    for seats in (["blue", "rival"], ["blue", "red"], ["blue", "rival"]):
        overrides = {"policies.rival": PPO, "matches[0].seats": seats}
        with Trainer.restore(tmp_path / "resumed", overrides=overrides) as trainer:
            trainer.train()
    assert left(tmp_path / "changed") == left(tmp_path / "resumed")
    lines = json_lines(tmp_path / "changed" / "episodes.jsonl")
    played = [
        {line["seats"][1]["policy"] for line in lines if low < line["tick"] <= low + 40} for low in range(0, 160, 40)
    ]
    assert played == [{"red"}, {"rival"}, {"red"}, {"rival"}]


def test_seats_of_recorded_samples_and_of_leagues_do_not_change(tmp_path: Path) -> None:
    with Trainer({"name": "test", **LEARNS, "record": "samples"}, run_dir=tmp_path / "run") as trainer:
        trainer.train()
        with pytest.raises(ConfigError, match=r"matches\.0\.seats\[1\] was"):
            trainer.change({"matches[0].seats[1]": "blue"})
        trainer.train()
    with Trainer({"name": "test", **LEAGUE}, run_dir=tmp_path / "league") as trainer:
        trainer.train()
        with pytest.raises(ConfigError, match=r"policies\.blue\.algorithm was"):
            trainer.change({"policies.blue": A2C})
        trainer.train()


def footprint() -> tuple[int, int, int]:
    """Threads, open files, and objects that the garbage collector knows."""
    gc.unfreeze()  # imports freeze what there is
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(gc.get_objects())


@pytest.mark.slow
def test_many_iterations_leave_nothing_behind(tmp_path: Path) -> None:
    data = {**DUEL, "policies": dict.fromkeys(("blue", "red"), RANDOM), "loggers": ["csv"], "ticks": 600}
    with Trainer({"name": "test", **data}, run_dir=tmp_path / "run", every=20) as trainer:
        found = [footprint() for number, _ in enumerate(trainer, 1) if number % 6 == 4]
    assert {kept[:2] for kept in found[1:]} == {found[1][:2]}
    grown = [after[2] - before[2] for before, after in pairwise(found)]  # what other tests left may end in one of them
    assert min(grown) < 6, "less than one object per iteration"


def test_actions_are_computed_by_entity_names_and_with_masks(tmp_path: Path) -> None:
    policies = {"a": {"algorithm": "ppo", "options": {"n_steps": 10}}, "b": RANDOM}
    config = one_match({"make": "pettingzoo:classic.tictactoe_v3"}, policies, ticks=40)
    with Trainer(config, run_dir=tmp_path / "run", every=20) as trainer:
        trainer.train()
        seen = {"player_1": np.zeros((3, 3, 2), np.int8), "player_2": np.zeros((3, 3, 2), np.int8)}
        for place in range(9):
            mask = np.zeros(9, np.int8)
            mask[place] = 1
            actions = trainer.compute_actions(seen, {name: {"action_mask": mask} for name in seen})
            assert actions == {"player_1": place, "player_2": place}
        with pytest.raises(ConfigError, match="match 0 has no entity 'player_3'; did you mean 'player_"):
            trainer.compute_actions({"player_3": seen["player_1"]})


def test_state_of_a_frozen_policy_is_what_it_loads(tmp_path: Path) -> None:
    config = {**DUEL, "ticks": 20, "checkpoint_every": 20}
    with Trainer(config, run_dir=tmp_path / "first") as trainer:
        trainer.train()
        learned = trainer.state("blue")
    blue = {**DUEL["policies"]["blue"], "frozen": True, "load": str(tmp_path / "first")}
    with Trainer({**config, "policies": {"blue": blue, "red": RANDOM}}, run_dir=tmp_path / "second") as trainer:
        assert {*trainer.state("blue")} == {*learned}
        with pytest.raises(ConfigError, match="'blue' is frozen: it plays with what `load:` names"):
            trainer.set_state("blue", learned)
