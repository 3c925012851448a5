"""The command line: what it prints, and exit 2 with one message for every mistake of the user."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.cli.main import _COMMANDS, command_parser, main
from arena.config import yaml
from arena.config.matches import GENERATORS, RULES
from arena.records import checkpoint
from arena.registry import ALGORITHMS, ENVIRONMENTS, EXTERNAL, WRAPPERS
from faulty_games import Outside, SmallSeeds

WORKERS = '''
class Base:
    def __init__(self, env, group, *, ticks, gain=1.0): ...
    def run(self): ...

class Gym(Base):
    face = "gym"

class Vector(Base):
    face = "vector"

    @classmethod
    def sizes(cls, options, *, rows, ticks, workers):
        return {"samples_per_update": 10 * rows * workers, "updates_per_run": ticks // 10}

class NoImages(Vector):
    @classmethod
    def check(cls, observation_space, action_space):
        if len(observation_space.shape) == 3:
            raise ValueError("takes no images")

class Learner(Vector):
    def state_dict(self): ...

class Picky(Vector):
    @classmethod
    def check_options(cls, options):
        if options.get("gain", 1.0) > 5:
            raise ValueError("a gain above 5 breaks the scale")

class NoGroup:
    face = "vector"
    def __init__(self, env): ...
    def run(self): ...

class Broken:
    def __init__(self, **kwargs):
        raise RuntimeError("the game is out of order")

class Kind:
    """A list environment of five ticks."""
    def __init__(self):
        from gymnasium.spaces import Discrete
        self.observation_spaces = self.action_spaces = [Discrete(2), Discrete(2)]
    def reset(self):
        self.ticks = 0
        return [0, 0]
    def step(self, actions):
        self.ticks += 1
        return [0, 1], [0.0, 0.0], self.ticks == 5, [{}, {}]

class Remembers(Kind):
    """Begins otherwise after every other reset of an object, likewise in every new object."""
    resets = 0
    def reset(self):
        self.resets += 1
        return [self.resets % 2, super().reset()[1]]

class Unseeded(Kind):
    """Draws from a stream that no seed begins."""
    def step(self, actions):
        import secrets
        return [secrets.randbelow(2), 1], [secrets.randbelow(2**40) / 7, 0.0], *super().step(actions)[2:]

class NoScreen(Kind):
    def render(self):
        raise RuntimeError("No available video device")
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a module of their own; the command line puts it on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(WORKERS)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("own", None)


def write(folder: Path, **changes: Any) -> str:
    data = {
        "ticks": 100,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 2}}},
        "policies": {
            "blue": {"algorithm": "own:Vector", "color": "#1f77b4"},
            "red": {"algorithm": "own:Gym", "color": "#d62728"},
        },
        "matches": [{"env": "game", "seats": [["blue", "blue"], "red", "red"]}],
        "ranks": "one_per_role",
        **changes,
    }
    (folder / "duel.yaml").write_text(yaml.dump(data))
    return "duel.yaml"


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("arena: error: ")
    assert "Traceback" not in captured.err
    return captured.err.removeprefix("arena: error: ").strip()


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def python(*arguments: str, output: str | int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Python in the user's folder, with the arena on the path; the output is a file, a descriptor or is caught."""
    with open(output or os.devnull, "w") as file:
        out = subprocess.PIPE if output is None else file
        command = [sys.executable, *arguments]
        return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


# plan

POLE = {"observation": {"box": {"shape": [4]}}, "action": {"discrete": {"n": 2}}}
DEADLOCK = (
    "schedule: can deadlock: the workers of red may meet whenever an episode of theirs is over; such a policy may have "
    "one seat in a match, and share one match with policies whose workers meet, but red has several seats in match 0. "
    "What helps: `schedule = 'ticks'` in the algorithm's class, if all workers of red meet after the same ticks of "
    "their matches, or never meet; matches that share fewer policies; or one worker for all entities that a policy "
    "has in a match"
)


def test_plan_shows_ranks_entities_sizes_schedule_and_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", write(folder), "--set", "seed=3"]) == 0
    out = capsys.readouterr().out
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.split("\n\n")[0].splitlines()]
    assert rows == [
        ["rank", "role", "match", "policy", "entities"],
        ["0", "root"],
        ["1", "environment", "0"],
        ["2", "worker", "0", "blue", "blue_0, blue_1"],
        ["3", "worker", "0", "red", "red_0"],
        ["4", "worker", "0", "red", "red_1"],
    ]
    assert "processes: 5 = 1 root + 1 environment + 3 workers" in out
    assert "policy blue: own:Vector, 1 worker, face vector, 20 samples per update, 10 updates per run" in out
    assert "policy red: own:Gym, 2 workers, face gym, 2 samples per tick" in out
    assert f"\n\n{DEADLOCK}\n\n" in out
    assert out.endswith(
        "start it: arena train duel.yaml --set seed=3 --ranks 5\n  `arena train` refuses it, as it can deadlock\n"
    )


def test_plan_says_which_sizes_are_upper_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "poker.yaml"
    data: dict[str, Any] = {
        "ticks": 64,
        "envs": {"game": {"make": "poker"}},
        "policies": {"blue": {"algorithm": "ppo", "options": {"n_steps": 32}}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4}],
    }
    path.write_text(json.dumps(data))
    assert main(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert "policy blue: ppo, 1 worker, face vector, at most 128 samples per update, 2 updates per run, at most" in out
    assert "policy red: random, 1 worker, face vector, at most 4 samples per tick" in out


def test_plan_lists_where_games_over_http_connect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "http.yaml"
    live = {"make": "http", "kwargs": {"host": "0.0.0.0", "insecure": True, "port": 8100, "entities": {"pole": POLE}}}
    data: dict[str, Any] = {
        "ticks": 64,
        "envs": {"live": {**live, "external": {"idle_tick_s": 1}}},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "live", "seats": ["blue"], "copies": 2}],
    }
    path.write_text(json.dumps(data))
    assert main(["plan", str(path), "--hosts", "a:1,b:4", "--ranks", "one_per_role"]) == 0
    out = capsys.readouterr().out
    assert "\nmatch 0 listens in rank 1 on b: 0.0.0.0, port 8100\n" in out
    assert "\nmatch 1 listens in rank 3 on b: 0.0.0.0, port 8101\n" in out
    assert "policy blue: random, 2 workers, face vector, at most 2 samples per tick" in out
    assert main(["plan", str(path), "--set", "envs.live.kwargs.port=0"]) == 0
    assert "0.0.0.0, any free port\n" in capsys.readouterr().out


def test_two_matches_at_one_port_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "http.yaml"
    live = {"make": "http", "kwargs": {"port": 8740, "entities": {"pole": POLE}}, "external": {"idle_tick_s": 1}}
    data: dict[str, Any] = {
        "ticks": 64,
        "envs": {"live": live},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "live", "seats": ["blue"], "copies": 2}, {"env": "live", "seats": ["blue"]}],
    }
    path.write_text(json.dumps(data))
    message = (
        "matches[1]: listens at port 8741, as matches[0] does; give it another one with `env_kwargs: {port: 8742}`"
    )
    for command in ("plan", "check"):
        assert main([command, str(path), "--set", "matches[1].env_kwargs.port=8741"]) == 2
        assert message in capsys.readouterr().err
    for free in ("matches[1].env_kwargs.port=8742", "envs.live.kwargs.port=0"):
        assert main(["plan", str(path), "--set", free]) == 0


def test_plan_that_cannot_deadlock_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idle = ["--set", "envs.game.idle_action=4"]  # the last one
    assert main(["plan", write(folder), "--set", "policies.red.algorithm=random", *idle]) == 0
    out = capsys.readouterr().out
    assert "schedule: no deadlock: every match plays exactly 100 ticks, and" in out
    command = "arena train duel.yaml --set policies.red.algorithm=random --set envs.game.idle_action=4 --ranks 5"
    assert out.endswith(f"start it: {command}\n")


def test_removed_option_names_what_helps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", write(folder), "--allow-unproved"])
    error = capsys.readouterr().err
    assert "--allow-unproved has been removed: a run that can deadlock is refused, and `arena plan` names what" in error


def test_plan_maps_ranks_to_hosts(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [
        "host a: 3 ranks, 0 to 2: 1 root, 1 environment, 1 worker",
        "host b: 2 ranks, 3 to 4: 2 workers",
        "1 of 1 match over several hosts",
    ]
    config = write(folder)
    assert main(["plan", config, "--hosts", "a:3,b:9"]) == 0
    out = capsys.readouterr().out
    assert "\n\n" + "\n".join(expected) + "\n\n" in out
    assert "start it: arena train duel.yaml --hosts a:3,b:9 --ranks 5\n" in out
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "3,2")
    assert main(["plan", config]) == 0
    assert "\n".join(expected) in capsys.readouterr().out


def test_plan_warns_of_too_few_hosts_and_checks_given_ones(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "2 hosts with 2 slots in all cannot take 5 ranks" in error_of(
        capsys, "plan", write(folder), "--hosts", "a,b"
    )
    assert "--hosts: expected hosts and their slots" in error_of(capsys, "plan", write(folder), "--hosts", "a;b")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1")
    assert main(["plan", write(folder)]) == 0
    assert "this allocation: 1 host with 1 slot in all cannot take 5" in capsys.readouterr().out


def test_plan_prints_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", write(folder), "--json", "--ranks", "6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["processes"]) == ("duel", 6)
    (match,) = found["matches"]
    assert match["seats"] == [
        {"policy": "blue", "entities": [0, 1]},
        {"policy": "red", "entities": [2]},
        {"policy": "red", "entities": [3]},
    ]
    assert match["env_kwargs"] == {"team_size": 2} and match["sides"] == [[0], [1, 2]] and match["lanes"] == 1
    roles = [role for rank in found["ranks"] for role in rank["roles"]]
    assert [role["role"] for role in roles] == ["root", "environment", "worker", "worker", "worker"]
    assert roles[2] == {"role": "worker", "match": 0, "policy": "blue", "entities": [0, 1]}
    assert found["ranks"][5] == {"rank": 5, "roles": []}


def test_plan_prints_a_drawing_with_every_role_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", write(folder), "--dot", "--set", "matches[0].copies=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("subgraph cluster_") == 2
    assert len(re.findall(r"^ *worker_\d_\d \[", out, re.M)) == 6
    assert len(re.findall(r"worker_\d_\d -> worker_\d_\d \[style=dashed", out)) == 1 + 3  # a chain through each group
    assert out.count('fillcolor="#d62728"') == 4
    assert out.count("{") == out.count("}")
    assert re.sub(r"\\.", "", out).count('"') % 2 == 0


# check


def checked(folder: Path, make: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `arena check` says of a game with two entities, which is valid."""
    config = write(folder, envs={"game": {"make": make}}, matches=[{"env": "game", "seats": ["red", "red"]}])
    assert main(["check", config, "--set", "policies.red.algorithm=random"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return [line for line in captured.out.splitlines() if "environment game" in line and "who has won" not in line]


def test_check_warns_of_a_game_that_is_not_repeatable_and_of_its_cost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, warning = checked(folder, "own:Unseeded", capsys)
    assert "keeps the interface" not in line
    assert re.fullmatch(
        r"warning: environment game: frame \d+: the same seeds and actions gave another game the second time; .* It "
        r"can be trained on, but replays of it can differ, and a resumed run from the run that was not interrupted",
        warning,
    )


def test_check_warns_of_a_game_whose_render_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, warning = checked(folder, "own:NoScreen", capsys)
    assert warning.startswith(
        "warning: environment game: render() raised RuntimeError: No available video device (own.py, line "
    )
    assert warning.endswith("It can be trained on, but there are no pictures of it in videos and in the report")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["matches[0].seats=[blue, red]"], "matches[0]: environment 'game': the seats must cover its 4 entities"),
        (["matches[0].lanes=2"], "matches[0].seats[1]: policy 'red' (own:Gym): the seat cannot give the face"),
        (["policies.blue.options.gian=2"], "policies.blue.options.gian: Vector has no option 'gian'; did you mean"),
        (["policies.blue.algorithm=own:Vectr"], "policies.blue.algorithm: 'own:Vectr': "),
        (
            ["policies.blue.algorithm=own:NoGroup"],
            "policies.blue.algorithm: NoGroup.__init__ cannot be called with (env, group, *, ticks, **options)",
        ),
        (
            ["policies.blue.frozen=true"],
            "policies.blue.algorithm: to play without learning an algorithm needs actor(); 'own:Vector' has none",
        ),
        (
            ["policies.blue={algorithm: own:Picky, options: {gain: 6}}"],
            "policies.blue.options: Picky: a gain above 5 breaks the scale",
        ),
        (
            ["policies.blue={algorithm: scripted, options: {function: nowhere:f}}"],
            "policies.blue.options.function: 'nowhere:f': there is no module 'nowhere'",
        ),
        (
            [
                "policies.blue={algorithm: ppo, options: {extra_loss: "
                "{class: own_parts:Wrong, options: {kind: raises}}}}"
            ],
            "policies.blue.options.extra_loss: 'own_parts:Wrong' fails on a made-up batch: KeyError: 'teacher' (",
        ),
        (["policies.unseated={algorithm: own:Nothing}"], "policies.unseated.algorithm: 'own:Nothing': "),
        (["policies.blue.load=nowhere"], "policies.blue.load: nowhere: there is no such checkpoint"),
        (["envs.game.kwargs.teamsize=2"], "matches[0]: environment 'game': Touchdown: got an unexpected keyword"),
        (["envs.game.kwargs.team_size=0"], "envs.game.kwargs.team_size: got 0, expected a whole number of at least 1"),
        (["matches[0].env_kwargs={team_size: 0}"], "matches[0].env_kwargs.team_size: got 0, expected a whole number"),
        (
            ["envs.game.make=own:Broken"],
            "environment 'game' could not be made with {'team_size': 2}: RuntimeError: the game is out of order (",
        ),
        (
            ["envs.game.wrappers=[{frame_stack: 2}, {resize: [4, 4]}]", "envs.game.kwargs.team_size=1"],
            "envs.game.wrappers[1]: resize cannot go around entities that observe Box(",
        ),
        (
            ["envs.game.wrappers=[clip_rewards]"],
            "envs.game.wrappers[0]: unknown wrapper 'clip_rewards'; did you mean 'clip_reward'?",
        ),
        (["envs.game.idle_action=5"], "envs.game.idle_action: 5 is no action of blue_0"),
        (["envs.game.idle_action={a: 1}"], "is no action of blue_0"),
        (
            ["policies.blue.algorithm=own:NoImages", "envs.game.kwargs.blue_obs=image"],
            "matches[0].seats[0]: policy 'blue' (own:NoImages): takes no images",
        ),
        (
            [
                "policies.red.algorithm=own:Learner",
                "matches[0].seats=[red, red, red, red]",
                "envs.game.kwargs.red_obs=image",
            ],
            "matches[0].seats[2]: policy 'red' (own:Learner): observes Box(0, 255, (84, 84, 1), uint8)",
        ),
    ],
)
def test_mistakes_known_to_game_or_algorithm_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], message: str
) -> None:
    sets = [part for override in overrides for part in ("--set", override)]
    error = error_of(capsys, "plan", write(folder), *sets)
    assert message in error
    whole = f"duel.yaml with {' and '.join(f'--set {override}' for override in overrides)}: "
    assert error.startswith((*(f"--set {override}: " for override in overrides), whole))


def test_a_checkpoint_to_load_is_opened(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder)
    kept = checkpoint.save(folder / "kept", {}, policy="blue", algorithm="own:Vector", ticks=3, update=1)
    arguments = ["check", path, "--set", f"policies.blue.load={folder / 'kept'}"]
    assert error_of(capsys, *arguments) == (
        f"--set {arguments[-1]}: policies.blue.load: the algorithm 'own:Vector' has no load_state_dict()"
    )
    error = error_of(capsys, *arguments, "--set", "policies.blue.algorithm=own:Learner")
    assert "is of the algorithm 'own:Vector', the policy uses 'own:Learner'" in error
    kept.write_bytes(b"nothing")
    assert "no whole checkpoint" in error_of(capsys, *arguments)


@pytest.mark.parametrize(
    ("game", "words", "line"),
    [
        ("Outside", "after step: 'agent_0': lane 0 observes ", Outside.step.__code__.co_firstlineno),
        ("SmallSeeds", "reset() fails with the seed 4294967295: ", SmallSeeds.reset.__code__.co_firstlineno + 2),
    ],
)
def test_breach_of_a_game_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], game: str, words: str, line: int
) -> None:
    policies, matches = {"red": {"algorithm": "random"}}, [{"env": "game", "seats": ["red"]}]
    path = write(folder, envs={"game": {"make": f"faulty_games:{game}"}}, policies=policies, matches=matches)
    found = error_of(capsys, "check", path)
    assert f"does not behave as the interface asks: {words}" in found
    assert found.endswith(f"faulty_games.py, line {line})")


@pytest.mark.parametrize(
    ("game", "words"),
    [
        ("OldStep", "step() of OldStep gave 4 values; expected 5: observation, reward, terminated, truncated, info"),
        ("Objectives", "the reward of 'agent_0' is array([1., 1.]), of shape (2,); expected one number"),
    ],
)
def test_game_of_another_interface_ends_check_and_training_with_exit_2(
    folder: Path, capsys: pytest.CaptureFixture[str], game: str, words: str
) -> None:
    matches = [{"env": "game", "seats": ["red"]}]
    policies = {"red": {"algorithm": "random"}}
    path = write(folder, envs={"game": {"make": f"faulty_games:{game}"}}, policies=policies, matches=matches)
    found = error_of(capsys, "check", path)
    assert "matches[0]: environment 'game' does not behave as the interface asks" in found and words in found
    assert main(["train", path, "--ranks", "1", "--run-dir", str(folder / "run")]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("game", "found"), [("Parts", "['there'], a dict"), ("Bare", "['here'] and ['there'], float32 (1,)")]
)
def test_part_that_an_observation_lacks_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], game: str, found: str
) -> None:
    matches = [{"env": "game", "seats": ["red"]}]
    policies = {"red": {"algorithm": "random"}}
    path = write(folder, envs={"game": {"make": f"faulty_games:{game}"}}, policies=policies, matches=matches)
    words = f"the game gave 'agent_0' in lane 0 an observation without {found}; its space is Dict('here'"
    assert words in error_of(capsys, "check", path)
    assert main(["train", path, "--ranks", "1", "--run-dir", str(folder / "run")]) == 1
    printed = capsys.readouterr().err
    assert words in printed and "Traceback" not in printed


# mistakes that need no game


@pytest.mark.parametrize(
    "argv",
    [
        ["plan"],
        ["plan", "x.yaml", "--ranks", "0"],
        ["plan", "x.yaml", "--ranks", "1.5"],
        ["plan", "x.yaml", "--ranks", "inf"],
        ["plan", "x.yaml", "--json", "--dot"],
        ["plan", "x.yaml", "--rank", "2"],
        ["train", "x.yaml", "--run", "x"],
        ["doctor", "x.yaml"],
    ],
)
def test_usage_errors_end_with_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: arena" in capsys.readouterr().err


# the other commands


def test_version_equals_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    declared = re.search(r'version="(.*)"', (Path(__file__).resolve().parents[2] / "setup.py").read_text())
    assert declared is not None
    assert capsys.readouterr().out == f"arena {declared[1]}\n"


def test_page_lists_every_extra_of_the_distribution() -> None:
    root = Path(__file__).resolve().parents[2]
    setup = ast.parse((root / "setup.py").read_text())
    given = next(
        node.value for node in ast.walk(setup) if isinstance(node, ast.keyword) and node.arg == "extras_require"
    )
    rows = re.findall(r"^\| (`.*?) \|", (root / "docs/install.md").read_text(), re.M)
    listed = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert sorted(listed) == sorted(ast.literal_eval(given))
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"mpi-policy-arena\[(.*?)\]", page.read_text())}
    assert named <= {*listed}


def test_a_count_may_be_written_as_a_power_of_ten(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command_parser().parse_args(["train", "x.yaml", "--ticks", "1e6", "--ranks", "3"])
    assert (arguments.ticks, arguments.ranks) == (1_000_000, 3)
    assert isinstance(arguments.ticks, int)


def test_no_command_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r"^    (\w+)", err, re.M)[: len(_COMMANDS)] == [*_COMMANDS]


def test_list_names_every_built_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^  (\S+)", out, re.M) == [
        *(*ENVIRONMENTS, *EXTERNAL, *WRAPPERS, *ALGORITHMS, *GENERATORS, *RULES)
    ]


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"usage: arena {command}" in capsys.readouterr().out


@pytest.mark.slow
def test_help_imports_nothing_heavy_and_plan_no_torch(folder: Path) -> None:
    code = (
        "import sys; from arena.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = [m for m in ('torch', 'mpi4py', 'rich', 'msgspec') if m in sys.modules]\n"
        f"main(['plan', {write(folder)!r}, '--json'])\n"
        "heavy += [m for m in ('torch', 'mpi4py') if m in sys.modules]\n"
        "print('heavy', heavy)"
    )
    found = python("-c", code)
    assert found.stdout.splitlines()[-1] == "heavy []"


@pytest.mark.slow
def test_python_m_arena_is_the_command_line(folder: Path) -> None:
    write(folder)
    found = python("-m", "arena", "check", "dual.yaml")
    assert found.returncode == 2
    assert (
        found.stderr == "arena: error: dual.yaml: there is no such file; did you mean 'duel.yaml'? known: duel.yaml\n"
    )


@pytest.mark.slow
def test_user_modules_do_not_shadow_the_standard_library(folder: Path) -> None:
    for name in ("random", "struct", "numpy"):
        (folder / f"{name}.py").write_text("raise RuntimeError('the user's')")
    found = python("-m", "arena", "check", write(folder))
    assert found.returncode == 0, found.stderr
    assert "the user's" not in found.stderr
    assert "policy blue: algorithm own:Vector, 0 options" in found.stdout


# output


FULL = "arena: failed: the output cannot be written: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["plan", "duel.yaml"], marks=pytest.mark.long),
        ["plan", "duel.yaml", "--json", "--set", "matches[0].copies=40"],
        ["tournament", "--help"],
    ],
)
def test_failing_stdout_is_reported_in_one_line(folder: Path, command: list[str]) -> None:
    write(folder)
    found = python("-m", "arena", *command, output="/dev/full")
    assert (found.returncode, found.stderr) == (1, FULL)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_names_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [word for word in (*_COMMANDS, "run-dir", "checkpoints") if word not in script] == []
    if shell != "tcsh":
        assert [name for name in _COMMANDS if f"_shtab_arena_{name}_option" not in script] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", [["plan", "nope.yaml"], pytest.param(["plan", "x.yaml", "--nope"], marks=pytest.mark.long)]
)
def test_exit_code_is_kept_if_stderr_fails(folder: Path, mistake: list[str]) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-m", "arena", *mistake], stderr=full, env=ENVIRONMENT).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["watch", "run"],
        pytest.param(["replay", "run"], marks=pytest.mark.long),
        pytest.param(["tournament", "duel.yaml", "--episodes", "8"], marks=pytest.mark.long),
    ],
)
def test_failing_stdout_is_reported_and_a_closed_one_is_silent(folder: Path, command: list[str]) -> None:
    policies = {name: {"algorithm": "random"} for name in ("blue", "red")}
    write(folder, **{**DUEL, "policies": policies, "record": "replays"})
    assert main(["train", "duel.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    found = python("-m", "arena", *command, output="/dev/full")
    assert (found.returncode, found.stderr) == (1, FULL)
    closed = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "arena", *command]
    found = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(("given", "code"), [((), 130), ((15,), 143), (("SIGTERM",), 143), (("by a library",), 130)])
def test_an_interrupt_outside_of_a_run_ends_a_command_quietly(
    given: tuple[Any, ...], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(*given)

    monkeypatch.setattr("arena.cli.report.write_report", interrupted)
    try:
        assert main(["report", "run"]) == code
    except KeyboardInterrupt:  # which would end the tests
        pytest.fail("it came out")
    assert capsys.readouterr().err == ""


def unread(*arguments: str) -> tuple[int, str]:
    """The exit code and stderr of a command whose stdout is a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    found = python(*arguments, output=writing)  # which closes it
    return found.returncode, found.stderr


DUEL = {
    "policies": {"blue": {"algorithm": "random"}},
    "envs": {"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}},
    "matches": [{"env": "game", "seats": ["blue", "blue"]}],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "folder_of_run"),
    [
        (["train", "--ranks", "1"], "duel"),
        pytest.param(["evaluate", "--episodes", "10"], "duel-evaluation", marks=pytest.mark.long),
    ],
)
def test_broken_pipe_does_not_end_the_games(folder: Path, command: list[str], folder_of_run: str) -> None:
    name, *options = command
    assert unread("-m", "arena", name, write(folder, **DUEL), *options) == (0, "")
    assert len((folder / "runs" / folder_of_run / "episodes.jsonl").read_text().splitlines()) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["plan", "duel.yaml"], pytest.param(["list", "--markdown", "ppo"], marks=pytest.mark.long)]
)
def test_printing_command_ends_quietly_on_a_broken_pipe(folder: Path, command: list[str]) -> None:
    write(folder, **DUEL)
    assert unread("-m", "arena", *command) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 4])
def test_playing_ends_quietly_when_nothing_reads_it_any_more(folder: Path, lines: int) -> None:
    command = [sys.executable, "-m", "arena", "play", write(folder, **DUEL)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as process:  # type: ignore[call-overload]
        for _ in range(lines):
            assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write("0\n" * 20)
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


def test_occupied_record_folder_is_refused_before_play(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run").mkdir()
    Path(write(folder)).rename(folder / "run" / "config.yaml")
    checkpoints = folder / "run" / "checkpoints"
    checkpoints.mkdir()
    checkpoint.save(checkpoints / "blue", {}, policy="blue", algorithm="own:Vector", ticks=10, update=1)
    (folder / "run" / "evaluations").touch()
    said = error_of(capsys, "evaluate", "run")
    assert said == "run/evaluations cannot be written: File exists. What was written before stays"


@pytest.mark.parametrize(
    ("argv", "usage", "message"),
    [
        (["evaluate", "runs/a", "--episode=7"], "arena evaluate", "arguments: --episode=7; did you mean '--episodes'?"),
        (["serve", "runs/a", "--host", "0.0.0.0"], "arena serve", "arguments: --host; did you mean '--http'?"),
        (["serve", "runs/a", "--port=80"], "arena serve", "arguments: --port=80; did you mean '--http'?"),
        (["train", "a.yaml", "--workers", "3"], "arena train", "arguments: --workers; did you mean '--ranks'?"),
        (["train", "a.yaml", "--host", "a"], "arena train", "arguments: --host; did you mean '--hosts'?"),
        (["train", "a.yaml", "--allow-unprovd"], "arena train", "--allow-unprovd; known: --continue, --help"),
        (["trian"], "arena", "unknown 'trian'; did you mean 'train'? known: board, check, "),
        (["serve", "a", "--engine", "onxx"], "arena serve", "--engine: unknown 'onxx'; did you mean 'onnx'?"),
    ],
)
def test_unknown_word_names_the_nearest_and_the_usage(
    capsys: pytest.CaptureFixture[str], argv: list[str], usage: str, message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {usage} ") and message in said


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ("CartPole-v1", "write a game of Gymnasium as 'gymnasium:CartPole-v1'"),
        ("mpe2.simple_tag_v3", "write a game of PettingZoo as 'pettingzoo:mpe2.simple_tag_v3'"),
        ("gymnasium:cartpole-v1", ": Environment `cartpole` doesn't exist. Did you mean 'CartPole-v1'?"),
    ],
)
def test_game_of_another_library_names_the_prefix(
    folder: Path, capsys: pytest.CaptureFixture[str], make: str, words: str
) -> None:
    assert words in error_of(capsys, "plan", write(folder, envs={"game": {"make": make}}))


def test_plan_shows_evaluations_and_their_policies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}
    seats = ["blue", ["red", "red"], "blue"]
    evaluation = {"every": 40, "episodes": 5, "seats": seats}
    config = write(folder, policies=policies, evaluation=evaluation, checkpoint_every=20)
    assert main(["plan", config]) == 0
    assert (
        "evaluation: every 40 ticks and at the end, 3 times in all; at least 5 episodes of each policy, the most "
        "likely actions: blue [red red] blue\n"
    ) in capsys.readouterr().out


def test_missing_run_folder_has_one_message_in_every_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for found in ("it does not exist", "config.yaml is missing"):
        expected = f"runs/none: not a run folder: {found}; name the folder of a run, as runs/<name>"
        for command in ("evaluate", "tournament", "exploit", "replay", "report"):
            name = "runs/none:blue" if command == "exploit" else "runs/none"
            assert error_of(capsys, command, name) == expected, command
        (folder / "runs" / "none").mkdir(parents=True, exist_ok=True)
