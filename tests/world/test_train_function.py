"""`arena.train` in this process: the run of `arena train --ranks 1`, without output, and its result."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.cli.main import main
from arena.config.named import refuse_main
from arena.experiment.config import parse_experiment
from arena.run import mpirun
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
    blue, red = result.scores["blue"], result.scores["red"]
    assert blue.episodes == red.episodes == 8  # 40 ticks of two lanes, ten to an episode
    assert blue.mean_return is not None
    assert blue.mean_return == pytest.approx(-(red.mean_return or 0))


def test_events_have_folder_progress_and_evaluations(tmp_path: Path) -> None:
    events: list[arena.Event] = []
    data = config(evaluation={"every": 20, "episodes": 2})
    result = arena.train(data, tmp_path / "run", ranks=1, on_event=events.append)
    starts = [event.data for event in events if event.kind == "start"]
    assert starts == [{"run_dir": str(tmp_path / "run"), "round": 0, "tick": tick} for tick in (0, 20)]
    last = [event.data for event in events if event.kind == "progress"][-1]
    assert (last["ticks"], last["total"]) == (40, 40)
    assert last["policies"] == {name: score._asdict() for name, score in result.scores.items()}
    told = [event.data["text"] for event in events if event.kind == "message"]
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


def test_a_failure_of_the_run_is_raised(tmp_path: Path) -> None:
    failing = {"blue": {"algorithm": "faulty_workers:FailsAtStep"}, "red": {"algorithm": "random"}}
    with pytest.raises(arena.RunFailed, match="blue"):
        arena.train(config(policies=failing), tmp_path / "run", ranks=1)


def test_an_error_of_on_event_is_raised_after_the_run(tmp_path: Path) -> None:
    def refuse(event: arena.Event) -> None:
        raise LookupError(event.kind)

    with pytest.raises(LookupError, match="message"):
        arena.train(config(), tmp_path / "run", ranks=1, on_event=refuse)
    assert (tmp_path / "run" / "episodes.jsonl").exists()


def test_signal_ends_the_run_early_and_saves_it(tmp_path: Path) -> None:
    def interrupt(event: arena.Event) -> None:
        if event.kind == "progress":
            signal.raise_signal(signal.SIGINT)

    result = arena.train(config(ticks=100_000), tmp_path / "run", ranks=1, on_event=interrupt)
    assert not result.finished
    assert 0 < result.ticks < 100_000


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
        assert trainer.config == yaml.safe_load(file.read_text())
    generated = made(
        rounds=2,
        matches=(arena.Matchmaking(env="game", policies=("blue",), against=("red",), rule=arena.Fictitious()),),
        league=arena.League(snapshots=arena.Snapshots(every=1)),
    )
    found = yaml.safe_load(generated.to_yaml())
    assert found["matches"][0]["matchmaking"]["rule"] == {"fictitious": {"weighting": "hard", "self": 0.35}}
    assert found["league"]["snapshots"]["every"] == 1


def test_classes_stand_for_their_names(tmp_path: Path) -> None:
    def local() -> None:
        """A function that no other process can import."""

    alone = {"policies": {"blue": arena.Policy(algorithm=Random)}, "matches": (arena.Match(env="g", seats=("blue",)),)}
    config = made(envs={"g": arena.Env(make=Lonely)}, **alone)
    assert yaml.safe_load(config.to_yaml())["envs"]["g"]["make"] == f"{__name__}:Lonely"
    assert arena.train(config, tmp_path / "run", ranks=1).finished
    assert parse_experiment({"run": config}).config.run == yaml.safe_load(config.to_yaml())
    for make in (local, lambda: None):
        with pytest.raises(arena.ConfigError, match=r"envs\.g\.make: .*which the processes of a run cannot import"):
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


USER = """
import arena
from arena import Config, Env, League, Match, Matchmaking, Policy, RoundRobin, Snapshots


class Game:
    pass


game = Env(make=Game, kwargs={"size": 3}, wrappers=("frame_stack",))
config = Config(
    name="a",
    ticks=100,
    envs={"g": game},
    policies={"p": Policy(algorithm="ppo", options={"gamma": 0.9}), "q": Policy(algorithm="random")},
    matches=(Match(env="g", seats=("p", "q")), RoundRobin(env="g", policies=("p", "q"))),
    league=League(snapshots=Snapshots(every=2)),
    evaluation=arena.Evaluation(every=50),
)
drawn = Matchmaking(env="g", policies=("p",), rule=arena.PastSelves(self_play=0.2))
result: arena.RunResult = arena.train(config, ranks=1)
value: float | None = result.scores["p"].last_return
text: str = config.to_yaml()
"""


@pytest.mark.slow
def test_strict_type_checker_passes_a_program_and_finds_its_mistakes(tmp_path: Path) -> None:
    from mypy import api

    def found(text: str) -> str:
        (tmp_path / "program.py").write_text(text)
        return api.run(["--strict", "--cache-dir", str(tmp_path), str(tmp_path / "program.py")])[0]

    assert "Success" in found(USER)
    wrong = found(USER.replace("every=2", 'evry="2"').replace("ticks=100", 'ticks="100"'))
    assert 'Unexpected keyword argument "evry"' in wrong
    assert 'incompatible type "str"' in wrong
