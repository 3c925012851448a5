"""`arena.train` in this process: the run of `arena train --ranks 1`, without output, and its result."""

from __future__ import annotations

import ast
import json
import logging
import pickle
import pydoc
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from mypy import api as mypy_api

import arena
import user_program
from arena.cli.main import main
from arena.config import load_config
from arena.config.descriptions import _EXAMPLES
from arena.config.named import refuse_main
from arena.experiment.config import parse_experiment
from arena.run import api, mpirun
from games import Countdown
from in_process import one_match
from policies.random import Random

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}


def config(**changes: Any) -> dict[str, Any]:
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    policies = {"blue": PPO, "red": {"algorithm": "random"}}
    given = {"name": "duel", "seed": 1, "checkpoint_every": 20, "match": {"lanes": 2}}
    return one_match(game, policies, ticks=40, **given) | changes


def test_function_plays_the_run_of_the_command_silently(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handlers, interrupt = [*logging.getLogger().handlers], signal.getsignal(signal.SIGINT)
    result = arena.train(config(), tmp_path / "run", ranks=1)
    assert tuple(capfd.readouterr()) == ("", "")
    assert (logging.getLogger().handlers, signal.getsignal(signal.SIGINT)) == (handlers, interrupt)
    (tmp_path / "duel.yaml").write_text(yaml.safe_dump(config(), sort_keys=False))
    command = ["train", str(tmp_path / "duel.yaml"), "--ranks", "1", "--run-dir", str(tmp_path / "command")]
    assert main(command) == 0
    for name in ("episodes.jsonl", "config.yaml"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    assert (result.run_dir, result.finished, result.ticks) == (tmp_path / "run", True, 40)
    assert result.stopped_by is None
    blue, red = result.scores["blue"], result.scores["red"]
    assert blue.episodes == red.episodes == 8  # 40 ticks of two lanes, ten to an episode
    assert blue.mean_return is not None
    assert blue.mean_return == pytest.approx(-(red.mean_return or 0))


def test_functions_leave_the_random_streams_and_threads_of_a_program(tmp_path: Path) -> None:
    code = """
import random, numpy, torch, arena
def state():
    return [random.random(), numpy.random.rand(), float(torch.rand(1)), torch.get_num_threads()]
def seeded():
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1), torch.set_num_threads(2)
game, ppo = {"make": "touchdown", "kwargs": {"max_steps": 5}}, {"algorithm": "ppo", "options": {"n_steps": 8}}
config = {"name": "x", "ticks": 16, "envs": {"g": game}, "policies": {"p": ppo, "r": {"algorithm": "random"}}}
config["matches"] = [{"env": "g", "seats": ["p", "r"], "lanes": 2}]
seeded()
expected = state()
seeded()
arena.train(config, "run", ranks=1)
assert state() == expected
seeded()
arena.evaluate("run", episodes=2)
assert state() == expected
assert {"train", "Config", "open_run"} <= set(dir(arena))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("ranks", ["many", "one-per-role", 1.5, True, 0, [1]])
def test_number_of_processes_that_is_none_is_refused(ranks: Any) -> None:
    config = one_match({"make": "touchdown"}, {"a": {"algorithm": "random"}, "b": {"algorithm": "random"}}, ticks=1)
    with pytest.raises(arena.ConfigError, match="expected a number from 1, auto or one_per_role"):
        arena.plan_run({"name": "x", **config}, ranks)


def test_events_have_folder_progress_and_evaluations(tmp_path: Path) -> None:
    events: list[arena.Event] = []
    data = config(evaluation={"every": 20, "episodes": 2})
    result = arena.train(data, tmp_path / "run", ranks=1, on_event=events.append)
    starts = [event.data for event in events if event.kind == "start"]
    assert starts == [{"run_dir": str(tmp_path / "run"), "round": 0, "tick": tick} for tick in (0, 20)]
    last = [event.data for event in events if event.kind == "progress"][-1]
    assert (last["ticks"], last["total"]) == (40, 40)
    assert last["policies"] == {name: score._asdict() for name, score in result.scores.items()}
    assert [str(event) for event in events if event.kind == "start"] == ["begins at tick 0", "begins at tick 20"]
    shown = [str(event) for event in events if event.kind == "progress"]
    assert re.fullmatch(r"40/40 ticks \| blue return -?\d+\.\d\d \| red return -?\d+\.\d\d", shown[-1])
    told = [event.data["text"] for event in events if event.kind == "message"]
    assert all(str(event) == event.data["text"] for event in events if event.kind == "message")
    assert [line.partition(":")[0] for line in told if "evaluation" in line] == [
        f"tick {tick}, evaluation of {name}" for tick in (20, 40) for name in ("blue", "red")
    ]


def test_a_mistake_is_raised_with_its_place_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(arena.ConfigError, match="matches") as caught:
        arena.train(config(matches=[{"env": "game", "seats": ["blue", "green"]}]), tmp_path / "run", ranks=1)
    assert "green" in str(caught.value)
    late = {"blue": {"algorithm": "ppo", "options": {"n_steps": 16, "hidden_sizes": "wide"}}, "red": PPO}
    with pytest.raises(arena.ConfigError, match="hidden_sizes"):
        arena.train(config(policies=late), tmp_path / "run", ranks=1)
    assert not (tmp_path / "run").exists()


def test_mistake_found_after_the_plan_names_its_key(tmp_path: Path) -> None:
    wrong = config(policies={"blue": {"algorithm": "ppo", "options": {"n_step": 16}}, "red": {"algorithm": "random"}})
    for call in (partial(arena.train, run_dir=tmp_path / "run", ranks=1), arena.evaluate):
        with pytest.raises(arena.ConfigError, match="n_steps") as caught:
            call(wrong)
        assert caught.value.path == "policies.blue.options.n_step"


def test_a_failure_of_the_run_is_raised(tmp_path: Path) -> None:
    failing = {"blue": {"algorithm": "faulty_workers:FailsAtStep"}, "red": {"algorithm": "random"}}
    with pytest.raises(arena.RunFailed, match="blue") as caught:
        arena.train(config(policies=failing), tmp_path / "run", ranks=1)
    assert str(caught.value) == f"{caught.value.who}\n{caught.value.trace}"
    assert "blue" in caught.value.who and caught.value.trace.startswith("Traceback")


def test_an_error_of_on_event_is_printed_at_once_and_raised_after_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(event: arena.Event) -> None:
        raise LookupError(event.kind)

    with pytest.raises(LookupError, match="message"):
        arena.train(config(), tmp_path / "run", ranks=1, on_event=refuse)
    assert (tmp_path / "run" / "episodes.jsonl").exists()
    printed = capfd.readouterr().err
    assert "in refuse" in printed and printed.count("on_event has failed") == 1


def test_run_whose_first_leg_has_failed_does_not_block_its_folder(tmp_path: Path) -> None:
    failing = {"blue": {"algorithm": "faulty_workers:FailsAtStep"}, "red": {"algorithm": "random"}}
    for _ in range(2):
        with pytest.raises(arena.RunFailed, match="blue"):
            arena.train(config(policies=failing), tmp_path / "run", ranks=1)
    assert (tmp_path / "run" / "config.yaml").exists()
    arena.train(config(), tmp_path / "run", ranks=1)
    arena.train(config(), tmp_path / "new", ranks=1)
    names = [sorted(path.relative_to(one) for path in one.rglob("*")) for one in (tmp_path / "run", tmp_path / "new")]
    assert [name for name in names[0] if name.parts[0] != "tensorboard"] == [
        name for name in names[1] if name.parts[0] != "tensorboard"
    ]
    with pytest.raises(arena.ConfigError, match="holds files already; continue a run with resume=True, or name"):
        arena.train(config(), tmp_path / "run", ranks=1)
    with pytest.raises(arena.ConfigError, match=r"holds files already; continue a run with Trainer\.restore, or name"):
        arena.Trainer(config(), run_dir=tmp_path / "run")


@pytest.mark.parametrize("worker", ["FailsAtInit", "FailsAtStep"])
def test_run_that_fails_at_its_start_takes_no_numbered_name(
    worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failing = {"blue": {"algorithm": f"faulty_workers:{worker}"}, "red": {"algorithm": "random"}}
    for _ in range(2):
        with pytest.raises(arena.RunFailed, match="blue"):
            arena.train(config(policies=failing), ranks=1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["duel"]
    runs = [arena.train(config(), ranks=1) for _ in range(2)]
    assert [run.run_dir.name for run in runs] == ["duel", "duel-2"]


def test_resume_equals_the_uninterrupted_run(tmp_path: Path) -> None:
    half, whole = made(), made(ticks=80)
    arena.train(half, tmp_path / "run", ranks=1)
    with pytest.raises(arena.ConfigError, match=r"run: the run has played 40 ticks, the configuration asks for 40"):
        arena.train(tmp_path / "run", ranks=1, resume=True)
    with pytest.raises(arena.ConfigError, match=r"; it is a run of 'duel', and not of 'other'$"):
        arena.train(made(name="other"), tmp_path / "run", ranks=1, resume=True)
    result = arena.train(whole, tmp_path / "run", ranks=1, resume=True)
    assert (result.run_dir, result.ticks, result.finished) == (tmp_path / "run", 80, True)
    arena.train(whole, tmp_path / "whole", ranks=1)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == (tmp_path / "whole" / "episodes.jsonl").read_bytes()
    with pytest.raises(
        arena.ConfigError, match=r"there is nothing left to do; ask for more with replace\(config, ticks="
    ):
        arena.train(whole, tmp_path / "run", ranks=1, resume=True)
    with pytest.raises(
        arena.ConfigError, match=r"resume=True goes on with the same policies .* by `load`, or in a shell by arena tra"
    ):
        game = {"game": arena.Env(make="matrix", kwargs={"game": "matching_pennies"})}
        arena.train(made(envs=game), tmp_path / "run", ranks=1, resume=True)


def test_errors_of_functions_name_their_arguments(tmp_path: Path) -> None:
    run = arena.train(config(), tmp_path / "run", ranks=1).run_dir
    for attempt, message in (
        (lambda: arena.evaluate(run, 2, against="grue"), r"run: against: 'grue'"),
        (lambda: arena.evaluate(run, 2, checkpoints="fist"), r"checkpoints: .*'fist'"),
        (lambda: arena.evaluate(config(), 2, checkpoints="last"), "checkpoints: a configuration has no checkpoints"),
        (lambda: arena.tournament([f"{run}:blue"]), "name more runs, more `checkpoints=`"),
        (lambda: arena.Trainer(config(), overrides={"policies.blue.frosen": True}), "^policies.blue.frosen=true: "),
        (
            lambda: arena.Trainer(config(), callbacks=[arena.Callback]),
            "callbacks: found the class Callback; pass an ob",
        ),
        (lambda: arena.Trainer.restore(run, ticks=20), "has played 40 ticks, the configuration asks for 20: there is"),
    ):
        with pytest.raises(arena.ConfigError, match=message) as caught:
            attempt()
        assert "--" not in str(caught.value)
    assert main(["evaluate", str(run), "--against", "grue"]) == 2  # of the command: see tests/world/test_evaluate.py


def test_frames_without_their_package_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(arena.ConfigError, match="frames of polars need the package polars: pip install polars"):
        arena.Table([{"a": 1}]).to_polars()


def test_help_shows_the_public_name_and_each_key() -> None:
    for name in arena._KEYS:
        struct = getattr(arena, name)
        assert struct.__name__ == struct.__qualname__ == name
        lines = struct.__doc__.partition("\nArgs:\n")[2].splitlines()
        assert [line.split(":")[0].strip() for line in lines] == list(struct.__struct_fields__)
        assert all(line.partition(": ")[2] for line in lines), name
    for struct, line in (
        (arena.Policy, "package.module:Class. A class or function may stand in the place of its name\n"),
        (arena.Config, "\n    ranks: 'auto' or 'one_per_role' or a number; processes"),
        (arena.Config, "\n    on_env_error: 'stop' or 'restart'; "),
        (arena.Config, "\n    record: 'nothing' or 'samples' or 'replays'; "),
    ):
        assert line in str(struct.__doc__)
    shown = pydoc.plain(pydoc.render_doc(arena.Match))
    keys = "(*, env, seats, entities=None, sides=None, env_kwargs={}, copies=1, lanes=1, pipeline=1)"
    assert f" |  Match{keys}\n" in shown
    assert "__struct" not in shown
    for name, example in _EXAMPLES.items():
        assert f"Example:\n    {example.splitlines()[0]}" in getattr(arena, name).__doc__
        assert type(eval(example, vars(arena))) is getattr(arena, name)
    assert arena.plan_run(eval(_EXAMPLES["Config"], vars(arena)), ranks=1)
    assert "to_yaml(self)" in pydoc.plain(pydoc.render_doc(arena.Config))
    policy = arena.Policy(algorithm="ppo")
    assert repr(policy).startswith("Policy(")
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_one_thread_at_a_time_has_a_run_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_WAIT_SECONDS", 0)
    begun, ends = threading.Event(), threading.Event()

    def wait(event: arena.Event) -> None:
        begun.set()
        ends.wait()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(arena.train, config(), tmp_path / "first", ranks=1, on_event=wait)
        first.add_done_callback(lambda _: begun.set())
        begun.wait()
        try:
            with pytest.raises(arena.ConfigError, match="another thread of this program has a run in this process"):
                arena.train(config(), tmp_path / "second", ranks=1)
        finally:
            ends.set()
        assert first.result().finished
    assert arena.train(config(), tmp_path / "second", ranks=1).finished


def test_wrong_keys_are_named_with_the_nearest_ones() -> None:
    for key, message in (
        ("tiks", "Config has no key 'tiks'; did you mean 'ticks'? known: best, callbacks, "),
        ("env", "did you mean 'envs'?"),
        ("self", "Config has no key 'self'; known: best"),
        ("cls", "Config has no key 'cls'; known: best"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            made(**{key: 3})
    with pytest.raises(TypeError, match="PastSelves has no key 'self_ply'; did you mean 'self_play'"):
        arena.PastSelves(**{"self_ply": 0.5})
    with pytest.raises(TypeError, match=r"^Config has no value for 'ticks', 'envs', 'policies', which it needs$"):
        arena.Config(name="duel")
    with pytest.raises(TypeError, match=r"^Env takes keys by name, as Env\(make=\.\.\.\)$"):
        arena.Env("matrix")


def test_the_key_that_names_a_missing_module_is_told(tmp_path: Path) -> None:
    missing = made(envs={"game": arena.Env(make="nowhere:Game")})
    for attempt in (
        lambda: arena.plan_run(missing),
        lambda: arena.train(missing, tmp_path / "run", ranks=1),
        lambda: arena.evaluate(missing, 2, run_dir=tmp_path / "run"),
    ):
        with pytest.raises(arena.ConfigError, match=r"envs\.game\.make: 'nowhere:Game': there is no module 'nowhere'"):
            attempt()


def test_a_mapping_may_hold_structs(tmp_path: Path) -> None:
    data = config(policies={"blue": arena.Policy(**PPO), "red": arena.Policy(algorithm="random")})
    assert arena.train(data, tmp_path / "run", ranks=1).finished


def test_any_sequence_is_a_list() -> None:
    def planned(**fields: Any) -> Any:
        return arena.plan_run(made(**fields))

    match = arena.Match(env="game", seats=["blue", "red"], entities=[0, 1])
    of_others = msgspec.structs.replace(match, seats=deque(match.seats), entities=range(2))
    assert planned(matches=deque([of_others])) == planned(matches=[match])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signal_ends_the_run_early_saves_it_and_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(event: arena.Event) -> None:
        if event.kind == "progress":
            signal.raise_signal(signal.Signals[name])

    result = arena.train(config(ticks=100_000), tmp_path / "run", ranks=1, on_event=interrupt)
    assert (result.finished, result.stopped_by) == (False, name)
    assert 0 < result.ticks < 100_000
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        f"{name} has ended the run at tick {result.ticks}; it is saved in {result.run_dir}, and train() returns"
    ]


def test_result_says_what_has_stopped_the_run(tmp_path: Path) -> None:
    given = {"ticks": 4000, "policies": {name: {"algorithm": "random"} for name in ("blue", "red")}}
    given["results"] = {"every": 20}
    ruled = arena.train(config(**given, stop={"ticks": 40}), tmp_path / "rule", ranks=1)
    assert (ruled.finished, ruled.stopped_by) == (True, "ticks >= 40")
    asked = arena.train(
        config(**given, callbacks=[{"class": "recorders:Stops", "options": {"where": "result"}}]),
        tmp_path / "callback",
        ranks=1,
    )
    assert (asked.finished, asked.stopped_by) == (False, "callback")


def test_ranks_of_a_launcher_are_sent_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mpirun._UNDER_A_LAUNCHER[0], "0")
    with pytest.raises(arena.ConfigError, match="`arena train`"):
        arena.train(config(), tmp_path / "run")


class Lonely(Countdown):
    """A game of this module."""


def made(**changes: Any) -> arena.Config:
    """The configuration of `config`, as a program writes it."""
    given: dict[str, Any] = {
        "name": "duel",
        "seed": 1,
        "ticks": 40,
        "checkpoint_every": 20,
        "envs": {"game": arena.Env(make="matrix", kwargs={"game": "rock_paper_scissors"})},
        "policies": {"blue": arena.Policy(**PPO), "red": arena.Policy(algorithm="random")},
        "matches": (arena.Match(env="game", seats=("blue", "red"), lanes=2),),
    }
    return arena.Config(**given | changes)


def test_configuration_made_in_python_plays_the_run_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "duel.yaml"
    file.write_text(made().to_yaml())
    for name, given in (("file", file), ("made", made())):
        arena.train(given, tmp_path / name, ranks=1)
    for name in ("episodes.jsonl", "config.yaml"):
        assert (tmp_path / "made" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()
    with arena.Trainer(made(), run_dir=tmp_path / "trainer") as trainer:
        trainer.train()
        assert trainer.config == load_config(file)
    generated = made(
        rounds=2,
        matches=(arena.Matchmaking(env="game", policies=("blue",), against=("red",), rule=arena.Fictitious()),),
        league=arena.League(snapshots=arena.Snapshots(every=1)),
    )
    found = yaml.safe_load(generated.to_yaml())
    assert found["matches"][0]["matchmaking"]["rule"] == {"fictitious": {"weighting": "hard", "self": 0.35}}
    assert found["league"]["snapshots"]["every"] == 1


def test_classes_stand_for_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def local() -> None:
        """A function that no other process can import."""

    alone = {"policies": {"blue": arena.Policy(algorithm=Random)}, "matches": (arena.Match(env="g", seats=("blue",)),)}
    config = made(envs={"g": arena.Env(make=Lonely)}, **alone)
    assert yaml.safe_load(config.to_yaml())["envs"]["g"]["make"] == f"{__name__}:Lonely"
    assert arena.train(config, tmp_path / "run", ranks=1).finished
    assert parse_experiment({"run": config}).config.run == yaml.safe_load(config.to_yaml())
    for make in (local, lambda: None):
        with pytest.raises(arena.ConfigError, match=r"envs\.g\.make: .*which a run cannot find by this name"):
            arena.train(made(envs={"g": arena.Env(make=make)}, **alone))
    with pytest.raises(arena.ConfigError, match=r"envs\.g\.kwargs\.kind: found .* arguments of games are data"):
        made(envs={"g": arena.Env(make=Lonely, kwargs={"kind": Lonely})}, **alone).to_yaml()
    options = {"encoder": Random, "extra_loss": {"class": Random}}
    policies = {"blue": arena.Policy(algorithm="ppo", options=options), "red": arena.Policy(algorithm=Random)}
    named = yaml.safe_load(made(policies=policies).to_yaml())
    assert named["policies"]["blue"]["options"]["extra_loss"] == {"class": "policies.random:Random"}
    wrapped = arena.Env(make=Lonely, wrappers=({Random: {"a": 1}}, Random))
    found = yaml.safe_load(made(envs={"g": wrapped}, **alone).to_yaml())["envs"]["g"]["wrappers"]
    assert found == [{"policies.random:Random": {"a": 1}}, "policies.random:Random"]
    main_game = type("Game", (Lonely,), {"__module__": "__main__"})
    monkeypatch.setattr("__main__.Game", main_game, raising=False)
    with pytest.raises(arena.ConfigError, match=r"'__main__:Game', a class of this program.* or use ranks=1"):
        arena.train(made(envs={"g": arena.Env(make=main_game)}, **alone), ranks=2)
    for more in (
        {"callbacks": ("__main__:Game",)},
        {"policies": {"blue": arena.Policy(**PPO | {"options": {"x": "__main__:Game"}})}},
    ):
        with pytest.raises(arena.ConfigError, match=r"'__main__:Game', a class of this program"):
            refuse_main(made(**{"envs": {"g": arena.Env(make=Lonely)}, **alone, **more}))
    with pytest.raises(arena.ConfigError, match="ticks: found -1"):
        arena.train(made(ticks=-1))


holds_itself: dict[str, Any] = {}
holds_itself["itself"] = holds_itself


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matches": None}, "the key 'matches' is missing"),
        ({"rounds": ((arena.Match(env="game", seats=("blue", "red")),),)}, "matches: is not allowed beside a list of"),
        ({"evaluation": arena.Evaluation(every=7)}, "evaluation.every: found 7: policies are evaluated where"),
        ({"league": arena.League(decided=arena.Decided())}, "league: has no effect with one round"),
        (
            {"envs": {"game": arena.Env(make=Lonely())}},
            "envs.game.make: found <.*, of the class Lonely; .* pass its class, its arg",
        ),
        (
            {"envs": {"game": arena.Env(make=partial(Lonely))}},
            "envs.game.make: found .*, of the class partial; .* pass its class, its arg",
        ),
        ({"envs": {"game": arena.Env(make="matrix", kwargs=holds_itself)}}, "a part of it holds itself"),
        ({"envs": {"game": arena.Env(make="matrix", kwargs={"game": object()})}}, "envs.game.kwargs.game: found <obj"),
        ({"matches": arena.Match(env="game", seats=["blue"])}, r"matches: found .* expected a list; put a single one"),
        (
            {"callbacks": (arena.Callback(),)},
            r"callbacks\[0\]: found <.*, of the class Callback; .*\(only Trainer\(callbacks=",
        ),
        ({"policies": dict.fromkeys(("blue", "red"), arena.Policy(algorithm="popo", frozen=True))}, "'popo'"),
    ],
)
def test_contradictions_of_objects_are_one_sentence_and_leave_nothing(
    tmp_path: Path, changes: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config = made(**changes)
    for attempt in (
        lambda: arena.train(config, tmp_path / "run", ranks=1),
        lambda: arena.train(config, tmp_path / "run", ranks=2),
        lambda: arena.plan_run(config, ranks=1),
        lambda: arena.evaluate(config, 2, run_dir=tmp_path / "run"),
        lambda: arena.tournament(config, 16, run_dir=tmp_path / "run"),
        lambda: arena.Trainer(config, run_dir=tmp_path / "run"),
    ):
        with pytest.raises(arena.ConfigError, match=message) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("given", [None, 3, arena.Policy(algorithm="ppo")], ids=["None", "a number", "another struct"])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        *((call, "a configuration: ") for call in (arena.train, arena.plan_run, arena.evaluate, arena.tournament)),
        (arena.Trainer, "a configuration: "),
        (lambda given: arena.tournament([given]), "a configuration: "),
        *((call, "the path of a run folder") for call in (arena.open_run, arena.standings, arena.Trainer.restore)),
        *((call, "RUN:POLICY@TICK, as ") for call in (arena.load_policy, arena.export)),
        *((call, "the path of a run folder") for call in (arena.dataset.open_dataset, arena.records.read_results)),
        (arena.serving.load_model, "the path of a folder that `arena export` has written"),
        (arena.experiment.open_experiment, "the path of the folder of an experiment"),
        (arena.experiment.Experiment.from_file, "the path of a YAML file"),
        (lambda given: arena.experiment.run_experiments([given]), "the path of a YAML file"),
    ],
)
def test_a_first_argument_of_a_wrong_type_is_told_what_is_expected(call: Any, expected: str, given: Any) -> None:
    message = f"found {given!r:.60}, of the class {type(given).__name__}; expected {expected}"
    with pytest.raises(arena.ConfigError, match=f"^{re.escape(message)}"):
        call(given)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_folder_that_is_no_path_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path: Any = 3
    for attempt in (
        lambda: arena.train(config(), path, ranks),
        lambda: arena.Trainer(config(), run_dir=path, ranks=ranks),
        lambda: arena.evaluate(config(), 2, run_dir=path),
        lambda: arena.tournament(config(), 16, run_dir=path),
        lambda: arena.experiment.Experiment(run=config(), set={"seed": {"grid_search": [1]}}).run(path),
    ):
        with pytest.raises(arena.ConfigError, match=r"^found 3, of the class int; expected the path of a"):
            attempt()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (arena.records.read_results, "there is no such folder; name a run folder"),
        (arena.dataset.open_dataset, "no recorded samples here: name a run folder"),
        (
            arena.serving.load_model,
            r"not the folder of a model: model\.json is missing; `arena export RUN:POLICY` writes",
        ),
        (arena.open_run, "not a run folder: it does not exist"),
    ],
)
def test_a_path_to_nothing_is_named(call: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(arena.ConfigError, match=f"nowhere: {message}"):
        call(tmp_path / "nowhere")


def test_numbers_of_numpy_are_those_of_the_file() -> None:
    options = {**PPO["options"], "learning_rate": np.float32(0.5), "minibatch_size": np.int64(32)}
    policies = {"blue": arena.Policy(algorithm="ppo", options=options), "red": arena.Policy(algorithm="random")}
    found = yaml.safe_load(made(policies=policies, ticks=np.int64(40)).to_yaml())
    assert (found["ticks"], found["policies"]["blue"]["options"]["learning_rate"]) == (40, 0.5)
    assert type(found["policies"]["blue"]["options"]["minibatch_size"]) is int


def test_class_that_the_program_does_not_have_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(made().to_yaml().replace("make: matrix", "make: '__main__:Mine'"))
    with pytest.raises(
        arena.ConfigError, match=r"'__main__:Mine': this program has no 'Mine' at its top .* in a module"
    ):
        arena.plan_run(path, ranks=1)
    with pytest.raises(arena.ConfigError, match=r"'__main__:Mine', a class of this program.* or use ranks=1"):
        arena.plan_run(path, ranks=2)


PROGRAM = Path(user_program.__file__)
MISTAKES = (
    ("evaluation=Evaluation(every=ticks,", 'evaluation=Evaluation(evry="2",'),
    ("rounds=rounds,", 'rounds="two",'),
)


def with_mistakes(folder: Path) -> Path:
    """The program of a user who has written two keys wrongly."""
    text = PROGRAM.read_text()
    for right, wrong in MISTAKES:
        assert right in text
        text = text.replace(right, wrong)
    (folder / "program.py").write_text(text)
    return folder / "program.py"


@pytest.mark.slow
def test_strict_mypy_passes_a_program_and_finds_its_mistakes(tmp_path: Path) -> None:
    def found(program: Path) -> str:
        return mypy_api.run(["--strict", "--cache-dir", str(tmp_path), str(program)])[0]

    assert "Success" in found(PROGRAM)
    wrong = found(with_mistakes(tmp_path))
    assert 'Unexpected keyword argument "evry"' in wrong
    assert 'Argument "rounds" to "Config" has incompatible type "str"' in wrong


@pytest.mark.slow
def test_strict_pyright_passes_a_program_and_finds_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    shutil.copy(PROGRAM, tmp_path / "right.py")
    with_mistakes(tmp_path)
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {Path(one["file"]).name for one in found} == {"program.py"}
    assert {one["rule"] for one in found} == {"reportCallIssue", "reportArgumentType"}


@pytest.mark.slow
def test_program_trains_compares_and_analyzes_and_says_nothing_else(tmp_path: Path) -> None:
    """Its classes are those of `__main__`."""
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "there is no policy 'missing'; known: new, old" in done.stdout


def test_every_key_has_a_docstring_that_editors_show() -> None:
    """In the classes that programs name; `arena list` and the JSON Schema have the same texts."""
    for name, module in arena._KEYS.items():
        tree = ast.parse(Path(import_module(module).__file__ or "").read_text())
        classes = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
        for field, following in pairwise(classes[name]):
            if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
                is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                assert is_text, (name, ast.unparse(field))
