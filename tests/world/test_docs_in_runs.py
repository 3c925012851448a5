"""README and docs are executed: their commands print the shown output, their code runs."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

import arena
import readme
from arena.cli.main import main
from arena.cli.play import human
from arena.game.spaces import flatten, stack
from arena.records.journal import JournalReader
from arena.registry import REGISTERED
from in_process import one_match
from working_folder import working_directory

DATA = "docs/data.md"
SB3 = "docs/algorithms/sb3.md"
ELSEWHERE = {
    DATA: "below",
    SB3: "below",
    "docs/four-machines.md": "tests/mpi/test_several_hosts.py, on several hosts",
    "docs/serving.md": "tests/world/test_serve.py, with a server",
}
"""Pages whose code is executed by a test of their own."""
CHANGING = readme.PAGES["docs/changing-algorithms.md"]
REFERENCE = [path for path in readme.PAGES if path.startswith("docs/api/")]


SHORT_GAMES = ("touchdown_1v1.yaml", "touchdown_1v1.yaml --set envs.touchdown.kwargs.max_steps=60")
SHORTER = {
    "docs/curriculum.md": [("ticks: 400 ", "ticks: 60 ")],
    DATA: [("--ticks 1000", "--ticks 250"), SHORT_GAMES],
    "docs/evaluation.md": [
        ("1500", "600"),
        ("checkpoint_every=500", "checkpoint_every=200"),
        ("ticks: 3000", "ticks: 1500"),
        SHORT_GAMES,
    ],
    "docs/experiments.md": [
        ("set={rate:", 'set={"ticks": 200, "matches[0].copies": 1, rate:'),
        ("repeat=3", "repeat=2"),
    ],
    "docs/league-recipes.md": [("--set rounds=3", "--set rounds=2")],
    "docs/leagues.md": [
        ("ticks: 1000 ", "ticks: 200 "),
        ("n_steps: 100", "n_steps: 50"),
        ("--ticks 200", "--ticks 50"),
    ],
    "docs/own-leagues.md": [("ticks: 200", "ticks: 100")],
    "docs/own-networks.md": [
        ("ticks: 1600", "ticks: 200"),
        ("ticks: 2000", "ticks: 200"),
        ("every: 1000", "every: 200"),
    ],
    "docs/simulators.md": [("ticks: 1000", "ticks: 200")],
    "docs/statistics.md": [("ticks: 1000", "ticks: 200")],
    "docs/trainer.md": [
        ("overrides={", 'overrides={"ticks": 500, "matches[0].copies": 1, '),
        ("episodes=50", "episodes=5"),
    ],
    "docs/tutorial.md": [
        ("ticks: 2000", "ticks: 500"),
        ("ticks: 4000", "ticks: 1500"),
        ("--ticks 3000", "--ticks 600"),
        ("--ticks 300 ", "--ticks 100 "),
    ],
    "docs/units.md": [("ticks: 512", "ticks: 128")],
}
"""What is replaced in the files and commands of a page, so that its runs are shorter; all numbers shown are alike."""


@pytest.fixture(autouse=True)
def _data_sets_of_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages write none into the home folder."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def shorter(page: readme.Page, text: str) -> str:
    for old, new in SHORTER.get(page.path, ()):
        text = text.replace(old, new)
    return text


def write_files(folder: Path, *pages: readme.Page) -> None:
    """The named blocks of some pages as files, beside the configurations of the repository."""
    (folder / "configs").symlink_to(readme.ROOT / "configs")
    for page in pages:
        for name, text in page.files().items():
            (folder / name).write_text(shorter(page, text), encoding="utf-8")


@contextmanager
def typed(command: str) -> Iterator[None]:
    """Lets `arena play` read what a shell command prints."""
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as shell,
    ):
        assert shell.stdout is not None
        patch.setattr(human, "Console", partial(human.Console, shell.stdout.fileno()))
        yield


def run_code(folder: Path, path: str) -> None:
    """Runs the Python of a page in a folder: imports its files, then plays its other blocks one after the other."""
    page = readme.PAGES[path]
    files, found = page.files(), {"__name__": "page"}
    with working_directory(folder), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in files:
            if name.endswith(".py"):
                runpy.run_path(name, run_name="page")
        for body in page.blocks("python"):
            if body not in files.values():
                exec(compile(shorter(page, body), path, "exec"), found)


def run_commands(folder: Path, path: str) -> None:
    """Runs the commands of a page in a folder; each has to print what is shown. Then runs its code."""
    page = readme.PAGES[path]
    write_files(folder, page)
    for step in page.steps():
        answers, piped, command = step.command.rpartition(" | ")
        with working_directory(folder), StringIO() as printed:
            with redirect_stdout(printed), redirect_stderr(printed), typed(answers) if piped else nullcontext():
                code = main(shlex.split(shorter(page, f"{command} "))[1:])
            failed = any(line.startswith("arena: error:") for line in step.shown)
            assert code == (2 if failed else 0), f"$ {step.command}\n{printed.getvalue()}"
            assert readme.missing(step.shown, printed.getvalue()) == [], f"$ {step.command}\n{printed.getvalue()}"
    run_code(folder, path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [
        path
        for path, page in readme.PAGES.items()
        if path not in (*ELSEWHERE, *REFERENCE) and (page.blocks("console", "python"))
    ],
)
def test_commands_print_what_the_page_shows(path: str, tmp_path: Path) -> None:
    run_commands(tmp_path, path)


def test_comparison_of_lines_can_fail() -> None:
    assert readme.missing(["won 5 % of 7 games"], "won 12 % of 20 games") == []
    assert readme.missing(["won 5 % of 7 games"], "lost 12 % of 20 games") == ["won 5 % of 7 games"]
    assert readme.missing(["a", "a"], "a\nb") == ["a"]
    assert readme.missing(["a ... b", "a ... c"], "a 1 b\na 2 b") == ["a ... c"]


@pytest.mark.slow
def test_pyright_passes_the_code_of_every_page(tmp_path: Path) -> None:
    roots = []
    for number, page in enumerate(readme.PAGES.values()):
        files = page.files()
        code = {name: body for name, body in files.items() if name.endswith(".py")}
        code["page.py"] = "\n".join(body for body in page.blocks("python") if body not in files.values())
        roots.append({"root": str(number), "extraPaths": [str(readme.ROOT)]})
        for name, body in code.items():
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / str(number) / name).write_text(body, encoding="utf-8")
    settings = {"typeCheckingMode": "standard", "reportUnusedExpression": False, "executionEnvironments": roots}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    pages = [*readme.PAGES]
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(pages)
    wrong = [(pages[int(Path(one["file"]).parent.name)], one["message"]) for one in found["generalDiagnostics"]]
    assert wrong == []


def test_worker_of_the_readme_learns(tmp_path: Path) -> None:
    write_files(tmp_path, readme.README)
    with working_directory(tmp_path):
        assert main(["train", "my_match.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
    returns = [line["seats"][0]["return"] for line in JournalReader(tmp_path / "run" / "episodes.jsonl")]
    assert sum(returns[:20]) / 20 <= 5.0
    assert sum(returns[-100:]) / 100 >= 8.0  # 10 are possible, 9 with a tenth of random actions


def test_torch_worker_learns_and_is_resumed(tmp_path: Path) -> None:
    write_files(tmp_path, readme.PAGES["docs/writing-algorithms.md"])
    whole, resumed = [["--ranks", "1", "--run-dir", name] for name in ("whole", "resumed")]
    legs = ["--set", "checkpoint_every=1000"]
    with working_directory(tmp_path):
        assert main(["train", "cartpole.yaml", *whole, *legs]) == 0
        assert main(["train", "cartpole.yaml", *resumed, *legs, "--ticks", "1000"]) == 0
        assert main(["train", "cartpole.yaml", *resumed, *legs, "--resume"]) == 0
    returns = [line["seats"][0]["return"] for line in JournalReader(tmp_path / "whole" / "episodes.jsonl")]
    assert sum(returns[-100:]) > 3 * sum(returns[:100])
    later = [line["seats"][0]["return"] for line in JournalReader(tmp_path / "resumed" / "episodes.jsonl")]
    assert sum(later[-100:]) > 3 * sum(later[:100])


def test_worker_with_masks_learns_and_its_export_plays_as_it_does(tmp_path: Path) -> None:
    write_files(tmp_path, readme.PAGES["docs/dict-and-masks.md"])
    with working_directory(tmp_path):
        assert main(["train", "orchard.yaml", "--ranks", "1", "--run-dir", "run"]) == 0
        assert arena.export("run:learner").verified
        policy = arena.load_policy("run:learner")
        returns = [line["seats"][0]["return"] for line in JournalReader(Path("run/episodes.jsonl"))]
    space = policy.observation_space
    space.seed(1)
    seen, masks = stack(space, [space.sample() for _ in range(64)]), np.tile(np.int8([1, 1, 0]), (64, 1))
    (logits,) = policy.algorithm.exported().module(*map(torch.as_tensor, flatten(space, seen)))
    assert policy.act(seen, mask=masks).tolist() == logits[:, :2].argmax(1).tolist()
    assert sum(returns[:100]) < 100 and sum(returns[-100:]) > 130, "the shortest ways earn 1.6 on average"


def test_callback_ends_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = readme.PAGES["docs/callbacks.md"]
    write_files(tmp_path, readme.README, page)
    (callbacks,) = [yaml.safe_load(body)["callbacks"] for body in page.blocks("yaml")]
    with working_directory(tmp_path):
        assert main(["train", "my_match.yaml", "--ranks", "1", "--set", f"callbacks=[{json.dumps(callbacks[0])}]"]) == 0
    assert "asked to stop by callback my_callbacks:StopWhenGood" in "".join(capsys.readouterr())


def test_loss_of_a_subclass_is_learned_from(tmp_path: Path) -> None:
    write_files(tmp_path, CHANGING)
    divergences = {}
    for algorithm in ("ppo", "kl_ppo:KLPenaltyPPO"):
        run = tmp_path / algorithm.partition(":")[0]
        game = {"make": "matrix", "kwargs": {"game": "prisoners_dilemma"}}
        blue = {"algorithm": algorithm, "options": {"n_steps": 32, "learning_rate": 0.01}}
        match = one_match(game, {"blue": blue, "red": {"algorithm": "random"}}, ticks=256, match={"lanes": 4})
        (tmp_path / "match.yaml").write_text(yaml.safe_dump(match))
        with working_directory(tmp_path):
            assert main(["train", "match.yaml", "--ranks", "1", "--run-dir", str(run)]) == 0
        divergences[algorithm] = sum(line["approx_kl"] for line in JournalReader(run / "metrics.jsonl"))
    assert divergences["kl_ppo:KLPenaltyPPO"] < 0.7 * divergences["ppo"]


@pytest.mark.filterwarnings("ignore")
def test_checkpoint_opens_with_stable_baselines3_whose_algorithms_work_unmodified(tmp_path: Path) -> None:
    """One is a built-in member, the other one is wrapped by the worker that a page shows."""
    write_files(tmp_path, readme.PAGES["docs/other-libraries.md"])
    other = {"algorithm": "DQN", "learning_starts": 20}
    policies = {
        "blue": {"algorithm": "sb3:PPO", "options": {"n_steps": 16, "batch_size": 16}},
        "red": {"algorithm": "sb3_worker:StableBaselines", "options": other},
    }
    match = one_match({"make": "touchdown", "kwargs": {"max_steps": 20}}, policies, ticks=40)
    (tmp_path / "match.yaml").write_text(yaml.safe_dump(match))
    code = readme.PAGES[SB3].files()["open_with_sb3.py"]
    with working_directory(tmp_path):
        assert main(["train", "match.yaml", "--ranks", "1", "--run-dir", "runs/my_run"]) == 0
        found: dict[str, object] = {}
        exec(compile(code, "open_with_sb3.py", "exec"), found)
    assert found["model"].num_timesteps == 40  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore")
def test_commands_and_code_of_the_recorded_data_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_commands(tmp_path, DATA)
    assert "effective_episodes" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", REFERENCE)
def test_examples_of_the_reference_print_what_they_say(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment behind `print` is what it prints; in a loop, once per turn."""
    for kind, known in [*vars(REGISTERED).items()]:
        monkeypatch.setattr(REGISTERED, kind, SimpleNamespace(**vars(known)))
    page, found = readme.PAGES[path], dict[str, object]({"__name__": "__main__"})
    write_files(tmp_path, page)
    files = page.files().values()
    with working_directory(tmp_path), StringIO() as printed, redirect_stdout(printed):
        for body in page.blocks("python"):
            if body not in files:
                exec(compile(body, path, "exec"), found)
        said = printed.getvalue().split()
    expected = [text for body in page.blocks("python") for text in re.findall(r"print\(.*\)  # (.+)", body)]
    assert said == " ".join(expected).split()


def test_configuration_of_the_example_is_the_one_shown() -> None:
    shown = next(body for body in readme.README.blocks("yaml") if "touchdown" in body)
    real = yaml.safe_load((readme.ROOT / "configs" / "touchdown_2v2.yaml").read_text(encoding="utf-8"))
    without = {key: value for key, value in real.items() if key != "name"}
    for policy in without["policies"].values():
        policy.pop("color")
    assert yaml.safe_load(shown) == without


def test_existing_folder_has_the_message_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(readme.ROOT / "configs" / "touchdown_2v2.yaml", tmp_path)
    (tmp_path / "runs" / "t").mkdir(parents=True)
    (tmp_path / "runs" / "t" / "config.yaml").touch()
    with working_directory(tmp_path):
        assert main(["train", "touchdown_2v2.yaml", "--ranks", "1", "--run-dir", "runs/t"]) == 2
    assert capsys.readouterr().err.strip() in " ".join(readme.PAGES["docs/configuration/index.md"].text.split())
