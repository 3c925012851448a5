"""`RUN:POLICY@TICK`: one name for a policy of a run, wherever a policy is named."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import arena
from arena import registry
from arena.cli import serve
from arena.cli.main import main
from arena.config import load_config
from arena.league.sources import Source, find_checkpoint, named_in_run, only_policy, split
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.run.prepare import begin, prepare
from command import Command
from in_process import one_match, play
from working_folder import working_directory

PPO = {"algorithm": "ppo", "options": {"n_steps": 5, "minibatch_size": 10, "hidden_sizes": [4]}}
RANDOM = {"algorithm": "random"}
GAME = {"make": "touchdown", "kwargs": {"max_steps": 5}}
PENNIES = {"make": "matrix", "kwargs": {"game": "matching_pennies", "rounds": 5}}


def played(path: Path, policies: dict[str, Any], *, game: Any = GAME, **changes: Any) -> Path:
    """A run, as `path`, with checkpoints at 0, 10 and 20."""
    data = one_match(game, policies, ticks=20, match={"lanes": 2}, checkpoint_every=10, **changes)
    return play(data, path.with_name(f"of_{path.name}")).folder.path.rename(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a` and `b` of one game, whose policies learn, and `c` of another."""
    home = tmp_path_factory.mktemp("named")
    best = {"metric": "policy_reward_mean/blue"}
    played(home / "a", {"blue": PPO, "red": RANDOM}, best=best)
    played(home / "b", {"red": PPO, "blue": PPO}, seed=1)
    played(home / "c", {"blue": PPO, "red": RANDOM}, game=PENNIES)
    return home


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A folder with copies of the runs."""
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path


def configuration(**policies: Any) -> arena.Config:
    """A configuration of the game of runs `a` and `b`."""
    return arena.Config(
        name="new",
        ticks=10,
        envs={"game": arena.Env(**GAME)},
        policies={name: arena.Policy(**policy) for name, policy in policies.items()},
        matches=(arena.Match(env="game", seats=tuple(policies)),),
    )


def test_names_select_the_checkpoint(runs: Path) -> None:
    kept = RunFolder(runs / "runs/a").checkpoints_path("blue")
    for name, tick in (("blue", 20), ("blue@last", 20), ("blue@first", 0), ("blue@10", 10)):
        assert find_checkpoint(f"{runs}/runs/a:{name}", "other") == checkpoint.path_of(kept, tick)
    assert find_checkpoint(f"{runs}/runs/a:blue@best", "other") == kept / checkpoint.BEST
    assert find_checkpoint(f"{runs}/runs/a", "blue") == checkpoint.path_of(kept, 20)


def test_path_with_a_colon_is_a_path(runs: Path) -> None:
    (runs / "runs/a").rename(runs / "runs/a:blue")
    assert split(runs / "runs/a:blue") == (f"{runs}/runs/a:blue", "")
    source, named = named_in_run(f"{runs}/runs/a:blue:blue@10")
    assert (source.path, named) == (f"{runs}/runs/a:blue", ("blue", "10"))


def test_policy_that_is_loaded_has_the_weights_of_the_name(runs: Path, tmp_path: Path) -> None:
    loaded = PPO | {"load": f"{runs}/runs/b:red@10"}
    config = configuration(old=loaded | {"frozen": True}, new=loaded | {"frozen": False})
    folder = arena.train(config, tmp_path / "new", ranks=1).run_dir
    files = find_checkpoint(f"{folder}:new@0", ""), find_checkpoint(f"{runs}/runs/b:red@10", "")
    first, source = (checkpoint.load(file).state for file in files)
    assert source["network"].keys() == first["network"].keys()
    assert all(np.array_equal(first["network"][key], value) for key, value in source["network"].items())
    assert load_config(folder / "config.yaml").policies["old"].load == loaded["load"]
    (row,) = [row for row in arena.evaluate(folder, 2) if row["policy"] == "old"]
    assert row["episodes"] == 2


def test_functions_and_commands_take_the_same_names(runs: Path, command: Command) -> None:
    blue, red = f"{runs}/runs/a:blue", f"{runs}/runs/b:red@10"
    assert arena.load_policy(f"{blue}@best").ticks in (10, 20)
    assert arena.load_policy(red).ticks == 10
    (row,) = arena.evaluate(f"{runs}/runs/a", 2, against=red)
    assert (row["policy"], row["against"]) == ("blue", red)
    against = load_config(row["folder"] / "config.yaml").policies["opponent"]
    assert str(against.load) == str(Path(runs, "runs/b/checkpoints/red/000000000010.ckpt").resolve())
    shown = command("evaluate", f"{runs}/runs/a", "--episodes", "2", "--against", red).out
    assert f"blue at tick 20 (last) against {red}: " in shown
    shown = command("play", f"{runs}/runs/a", "--seed", "1", "--against", red, "--advice", f"{blue}@first").out
    assert "seat 1, red_0: red-10 (ppo)" in shown
    with arena.Trainer(configuration(blue=PPO, red=RANDOM), run_dir=runs / "trainer") as trainer:
        assert trainer.evaluate(2, against=red)["policies"]


def test_tournament_across_runs_is_one_table(
    runs: Path, command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    players = [f"{runs}/runs/a:blue", f"{runs}/runs/b:red@10", f"{runs}/runs/b:blue@first"]
    result = arena.tournament(players, 64, run_dir=tmp_path / "one")
    assert tuple(capsys.readouterr()) == ("", "")
    assert {row["player"] for row in result.standings} == {"a.blue", "red@10", "b.blue@0"}
    loads = {name: policy.load for name, policy in load_config(result.run_dir / "config.yaml").policies.items()}
    assert str(loads["red@10"]).endswith("runs/b/checkpoints/red/000000000010.ckpt")
    printed = json.loads(
        command("tournament", *players, "--episodes", "64", "--json", "--run-dir", tmp_path / "two").out
    )
    assert json.loads(json.dumps(result.standings)) == printed["players"]
    assert (result.decided, result.games) == (printed["decided"], printed["games"])
    assert len(result.standings.to_pandas()) == 3
    assert bool(result.undecided) == (not result.decided)
    assert all(pair["probability"] > 0 and pair["games_left"] >= 0 for pair in result.undecided)


def test_configuration_of_python_plays_beside_runs(runs: Path, tmp_path: Path) -> None:
    config = configuration(always=RANDOM, other=RANDOM)
    result = arena.tournament([f"{runs}/runs/a:blue@20", config], 48, run_dir=tmp_path / "games")
    assert {row["player"] for row in result.standings} == {"blue@20", "always", "other"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("runs/a:bleu", "there is no policy 'bleu'; did you mean 'blue'"),
        ("runs/a:blue@11", "there is no checkpoint '11' of 'blue'; known: 0, 10, 20, best, first, last"),
        ("runs/b:red@best", "there is no checkpoint 'best' of 'red'"),
        ("runs/a:red@last", "there is no checkpoint 'last' of 'red'; known: none"),
        ("runs/nowhere:blue", "not a run folder: it does not exist"),
    ],
)
def test_what_is_not_there_is_named(runs: Path, name: str, message: str, tmp_path: Path) -> None:
    path = f"{runs}/{name}"
    tries: dict[str, Any] = {
        "load": lambda: arena.plan_run(configuration(blue=PPO | {"load": path}, red=RANDOM)),
        "against": lambda: arena.evaluate(f"{runs}/runs/a", 2, against=path),
        "load_policy": lambda: arena.load_policy(path),
        "tournament": lambda: arena.tournament([path, f"{runs}/runs/a:blue"], run_dir=tmp_path / "games"),
    }
    for what, attempt in tries.items():
        with pytest.raises(arena.ConfigError) as caught:
            attempt()
        assert message in str(caught.value), what
        assert "runs/" in str(caught.value), what
    assert not (tmp_path / "games").exists()


def test_policy_where_a_run_is_taken_is_refused_with_both_forms(runs: Path, command: Command) -> None:
    for name in ("evaluate", "report", "standings", "play", "replay", "watch"):
        said = command(name, f"{runs}/runs/a:bleu", code=2).err
        assert f"a:bleu: names a policy of a run; a run alone is taken here, so name {runs}/runs/a; RUN:POL" in said, (
            name
        )


def test_run_alone_means_its_only_policy_that_learns(runs: Path) -> None:
    found, named = arena.load_policy(f"{runs}/runs/a"), arena.load_policy(f"{runs}/runs/a:blue")
    seen = [named.observation_space.sample() for _ in range(5)]
    assert [found.act(one) for one in seen] == [named.act(one) for one in seen] and found.ticks == 20
    assert only_policy(configuration(blue={"algorithm": "random"})) == "blue"
    assert only_policy(configuration(blue={"algorithm": "random"}, red={"algorithm": "random"})) is None


def test_run_alone_names_no_policy(runs: Path, command: Command) -> None:
    with pytest.raises(arena.ConfigError, match=r"config\.yaml: not a run folder: it is a file"):
        arena.load_policy(f"{runs}/runs/a/config.yaml:blue")
    with pytest.raises(
        arena.ConfigError, match=r"runs/b: names no policy: say which of (blue, red|red, blue), by RUN:POLICY@TICK"
    ):
        arena.load_policy(f"{runs}/runs/b")
    run = f"{runs}/runs/a"
    words = f"{run}@10: names no policy: say which of (blue, red|red, blue), by {run}:POLICY@10"
    for use in (
        arena.load_policy,
        lambda text: find_checkpoint(text, "blue"),
        lambda text: arena.plan_run(configuration(blue=PPO | {"load": text}, red=RANDOM)),
        lambda text: arena.evaluate(run, 2, against=text),
        lambda text: arena.tournament([text]),
    ):
        with pytest.raises(arena.ConfigError, match=words):
            use(f"{run}@10")
    for name in ("serve", "exploit", "export"):
        assert re.search(words, command(name, f"{run}@10", code=2).err), name
    with pytest.raises(arena.ConfigError, match="runs/b2@10: not a run folder: it does not exist"):
        arena.load_policy(f"{runs}/runs/b2@10")


def test_run_of_another_game_or_other_spaces_is_refused_by_name(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(arena.ConfigError, match=r"against: .*runs/c: plays matrix, not touchdown"):
        arena.evaluate(f"{runs}/runs/a", 2, against=f"{runs}/runs/c:blue")
    with pytest.raises(arena.ConfigError, match=r"runs/c: plays another game than .*runs/a: game matrix, there touch"):
        arena.tournament([f"{runs}/runs/a:blue", f"{runs}/runs/c:blue"], run_dir=tmp_path / "games")
    with pytest.raises(arena.ConfigError, match=r"policies\.blue\.load: .*runs/c/checkpoints/blue/000000000020\.ckpt"):
        arena.plan_run(configuration(blue=PPO | {"load": f"{runs}/runs/c:blue"}, red=RANDOM))
    other = {"algorithm": "ppo", "options": {"n_steps": 5, "minibatch_size": 10, "hidden_sizes": [8]}}
    with pytest.raises(arena.ConfigError, match=r"policies\.blue\.load: .*runs/a/checkpoints/blue"):
        arena.plan_run(configuration(blue=other | {"load": f"{runs}/runs/a:blue"}, red=RANDOM))
    assert not (tmp_path / "games").exists()


def test_source_reads_a_configuration_in_every_form(runs: Path) -> None:
    config = configuration(blue=PPO, red=RANDOM)
    file = runs / "new.yaml"
    file.write_text(config.to_yaml())
    assert Source.of(config).config == Source.of(file).config
    assert arena.plan_run(config, 1) == arena.plan_run(file, 1)
    assert len(arena.plan_run(runs / "runs/a", 1)) == 4  # root, environment, two workers


def test_names_that_a_run_imports_are_known_to_other_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(name: str) -> None:
        """As in a process that has not read the configuration."""
        delattr(registry.REGISTERED.algorithm, name)
        del sys.modules[f"imported_{name}"]

    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ours", "theirs"):
        (tmp_path / f"imported_{name}.py").write_text(
            "import arena\nfrom policies.random import Random\n"
            f"class Named(Random): ...\narena.register_algorithm('{name}', Named)\n"
        )
        policies = {"blue": PPO, name: {"algorithm": name, "frozen": True}}
        played(tmp_path / name, policies, imports=[f"imported_{name}"])
    for name in ("ours", "theirs"):
        forget(name)
    assert arena.evaluate(runs / "runs/a", 2, against=f"{tmp_path}/theirs:theirs")
    forget("theirs")
    players = [f"{tmp_path}/ours:ours", f"{tmp_path}/theirs:theirs"]
    result = arena.tournament(players, 48, run_dir=tmp_path / "games")
    assert load_config(result.run_dir / "config.yaml").imports == ("imported_ours", "imported_theirs")
    assert {row["player"] for row in result.standings} == {"ours", "theirs"}
    forget("ours")
    forget("theirs")


def test_long_names_of_folders_are_cut(runs: Path, tmp_path: Path) -> None:
    long = runs / ("long" * 40)
    (runs / "runs/b").rename(long)
    result = arena.tournament([f"{runs}/runs/a:blue", f"{long}:blue@10"], 64, run_dir=tmp_path / "games")
    assert set(load_config(result.run_dir / "config.yaml").policies) == {
        "a.blue",
        f"{'long' * 15}.blue@10",
    }
    (row,) = arena.evaluate(runs / "runs/a", 2, against=f"{long}:red")
    assert row["folder"].name == f"blue-last-against-{'long' * 24}-red"
    (row,) = arena.evaluate(runs / "runs/a", 2, against=f"{runs}/runs/c/../a:blue@10")
    assert row["folder"].name == "blue-last-against-a-blue-10"


def test_name_of_101_characters_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    name = "p" * 60
    both = [played(tmp_path / (letter * 60), {name: PPO, "red": RANDOM}) for letter in "ab"]
    with pytest.raises(arena.ConfigError, match="would have a longer name than a policy can; rename"):
        arena.tournament([f"{run}:{name}" for run in both], run_dir=tmp_path / "games")
    assert not (tmp_path / "games").exists()


@pytest.mark.parametrize("changes", [{"episodes": 0}, {"error": 0}, {"error": 0.6}, {"elo": 0}, {"elo": 5000}])
def test_limits_of_a_tournament_are_checked(changes: dict[str, Any], made: Path, tmp_path: Path) -> None:
    players = [f"{made}/a:blue", f"{made}/b:blue"]
    with pytest.raises(
        arena.ConfigError, match=f"{next(iter(changes))}: found {next(iter(changes.values()))}; expected"
    ):
        arena.tournament(players, run_dir=tmp_path / "games", **changes)


def test_player_does_not_meet_itself(made: Path, tmp_path: Path) -> None:
    message = "'blue@20' has the same checkpoint as 'blue', and would meet itself; leave one out"
    with pytest.raises(arena.ConfigError, match=message):
        arena.tournament([f"{made}/a:blue", f"{made}/a:blue@20"], run_dir=tmp_path / "games")


def test_run_names_a_policy_that_it_has_loaded(runs: Path, tmp_path: Path) -> None:
    loaded = PPO | {"load": f"{runs}/runs/b:red@10", "frozen": True}
    folder = arena.train(configuration(old=loaded, red=RANDOM), tmp_path / "new", ranks=1).run_dir
    copy, source = find_checkpoint(f"{folder}:old", ""), find_checkpoint(f"{runs}/runs/b:red@10", "")
    assert copy.read_bytes() == source.read_bytes() and folder in copy.parents
    config = RunFolder(folder).config
    (folder / "checksums" / config.name).unlink()
    config.write_text(config.read_text().replace(f"{runs}/runs/b:red@10", f"{folder}:old"))
    with pytest.raises(arena.ConfigError, match="its `load` leads back to itself"):
        find_checkpoint(f"{folder}:old", "")


def test_a_checkpoint_that_is_removed_while_a_run_starts_is_named(runs: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(find_checkpoint(f"{runs}/runs/b:red@10", ""), tmp_path / "own.ckpt"))
    run = prepare(configuration(new=PPO | {"load": str(file)}, red=RANDOM), ranks=1, run_dir=str(tmp_path / "run"))
    file.unlink()
    with pytest.raises(arena.ConfigError, match=r"policies.new.load: .*own.ckpt cannot be copied any more: No such"):
        begin(run, resumable=True)


def test_run_goes_on_with_what_it_has_loaded_when_the_other_run_is_gone(runs: Path, tmp_path: Path) -> None:
    policies = {"new": PPO, "old": PPO | {"load": "runs/b:red", "frozen": True}}
    config = msgspec.structs.replace(configuration(**policies), ticks=40, checkpoint_every=10)
    with working_directory(runs):
        whole = arena.train(config, tmp_path / "whole", ranks=1).run_dir
        with arena.Trainer(config, run_dir=tmp_path / "parted") as trainer:
            trainer.train()
            loaded = trainer.state("old")
            (runs / "runs/b").rename(runs / "runs/gone")
            (runs / "runs/a").rename(runs / "runs/b")  # has another policy of this name, which cannot be loaded
            trainer.train()
            assert repr(trainer.state("old")) == repr(loaded)
            folder = trainer.folder
    (elsewhere := tmp_path / "elsewhere").mkdir()
    with working_directory(elsewhere):
        arena.train(config, folder, ranks=1, resume=True)
        ends = [RunFolder(run).checkpoints_path("new") / "000000000040.ckpt" for run in (whole, folder)]
        assert ends[0].read_bytes() == ends[1].read_bytes()
        assert arena.evaluate(folder, 2)[1]["policy"] == "old"
        assert arena.load_policy(f"{folder}:old").ticks == 20
        other = msgspec.structs.replace(
            config, ticks=50, policies=configuration(**policies | {"old": PPO | {"load": "x", "frozen": True}}).policies
        )
        with pytest.raises(arena.ConfigError, match="x: there is no such checkpoint"):
            arena.train(other, folder, ranks=1, resume=True)


def test_a_relative_load_is_said_to_be_meant_from_the_current_folder(runs: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for load in ("runs/b:red@10", "runs/b"):
        with working_directory(runs):
            assert find_checkpoint(load, "red").exists()
        with working_directory(elsewhere), pytest.raises(arena.ConfigError) as caught:
            find_checkpoint(load, "red")
        text = (
            f"{load}: there is no such checkpoint file, checkpoint folder or run folder in {elsewhere}: a relative path"
        )
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("b", "names no policy: say which, by RUN:POLICY@TICK"),
        ("b@last", "b@last: names no policy: say which of .*, by b:POLICY@last"),
        ("nowhere:blue", "there is no module 'nowhere'.*, and no run folder 'nowhere'"),
    ],
)
def test_opponent_without_a_policy_or_run_is_named(
    against: str, message: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    with pytest.raises(arena.ConfigError, match=message) as caught:
        arena.evaluate("a", 2, against=against)
    assert "without options" not in str(caught.value)


def test_plan_inside_a_smaller_allocation(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1")
    assert {row["host"] for row in arena.plan_run(made / "a", 2)} == {None}
    with pytest.raises(arena.ConfigError, match="cannot take 2 ranks"):
        arena.plan_run(made / "a", 2, hosts="n1:1")


def test_checkpoint_of_another_algorithm_is_told(runs: Path) -> None:
    path = runs / "runs/a/config.yaml"
    path.write_text(path.read_text().replace("algorithm: ppo", "algorithm: a2c"))
    (runs / "runs/a/checksums/config.yaml").unlink()
    with pytest.raises(arena.ConfigError, match="tick 10 is of ppo, and 'blue' is of a2c; name one of a2c"):
        arena.load_policy(f"{runs}/runs/a:blue@10")


@pytest.mark.parametrize(
    "command", [["serve", "a", "--http", "0"], ["play", "a"], ["tournament", "a", "--episodes", "2"]]
)
@pytest.mark.parametrize("value", ["policies.blue.load=b:blue@first", "policies.blue={algorithm: ppo, load: nowhere}"])
def test_weights_of_a_run_are_not_set(
    runs: Path, command: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They come from its checkpoints: the value had no effect."""
    with working_directory(runs / "runs"):
        assert main([*command, "--set", value]) == 2
    error = capsys.readouterr().err
    assert "policies.blue.load: cannot be changed, as the weights of a run come from its checkpoints" in error


def test_configuration_of_a_run_takes_set_weights_and_algorithms(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)

    def versions(target: str, *values: str) -> dict[str, int]:
        sets = [f"--set={value}" for value in values]
        served = serve.prepare(parser.parse_args([target, "--http", "0", *sets]))
        served.server.close()
        return {player.name: player.model.version for player in served.players}

    with working_directory(runs / "runs"):
        assert versions("b", "policies.blue.options.hidden_sizes=[4]") == {"blue": 20, "red": 20}
        sets = "policies.red.load=b", "policies.blue.load=b:blue@first"
        assert versions("b/config.yaml", *sets) == {"red": 20, "blue": 0}
        with pytest.raises(arena.ConfigError, match=r"runs/b/config.yaml with .* --set policies.NAME.load=.*/runs/b$"):
            versions("b", "policies.blue={algorithm: random}")
        assert versions("b/config.yaml", "policies.red.load=b", "policies.blue={algorithm: random}") == {
            "red": 20,
            "blue": -1,
        }


def test_serve_refuses_a_checkpoint_of_a_policy_without_any(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", f"{made}/a:red@banana", "--http", "0"]) == 2
    assert "there is no checkpoint 'banana' of 'red'; known: none" in capsys.readouterr().err
