"""`arena new`, `arena example`, and the wheel in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import arena
from arena.cli.example import examples
from arena.config import parse_config, yaml
from command import Command

ROOT = Path(arena.__file__).parent.parent


def test_new_folder_runs(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "catch"
    printed = command("new", folder)
    assert printed.out.splitlines()[0].endswith("game.py, match.yaml, test_game.py, README.md")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    ended = subprocess.run(tests, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout
    strict = [Path(sys.executable).with_name("mypy"), "--strict", "--cache-dir", tmp_path, "game.py", "test_game.py"]
    ended = subprocess.run(list(map(str, strict)), cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_new_folder_is_refused_where_something_is(tmp_path: Path, command: Command) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty; name a new folder" in command("new", tmp_path, code=2).err
    assert "written: File exists; name a new folder" in command("new", tmp_path / "notes.txt", code=2).err
    assert "cannot be written: Not a directory" in command("new", tmp_path / "notes.txt" / "game", code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_every_example_is_printed_and_valid(command: Command) -> None:
    names = [line.split()[0] for line in command("example", "--list").out.splitlines()]
    assert names == [*examples()] == sorted(names, key=lambda name: str(examples()[name]))
    for name in names:
        text = command("example", name).out
        data = yaml.load(text, source=name)
        if "run" not in data:
            parse_config(data, source=f"{name}.yaml")
        else:
            base = Path(data["run"]).stem
            assert text.startswith(f"# needs: arena example {base} > {data['run']}\n# ") and base in names
    assert "there is no example 'cartpol'; did you mean 'cartpole'?" in command("example", "cartpol", code=2).err


@pytest.mark.slow
def test_wheel_has_all_that_its_commands_need(tmp_path: Path) -> None:
    home = tmp_path / "home"
    python = home / "bin" / "python"

    def done(*program: object) -> str:
        ended = subprocess.run(list(map(str, program)), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    source, pip = tmp_path / "source", (sys.executable, "-m", "pip")
    done("git", "clone", "--quiet", ROOT, source)
    done(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path / "dist", source)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    done(sys.executable, "-m", "venv", "--without-pip", home)
    done(*pip, "--python", python, "install", "-q", "--no-deps", wheel)
    (folder,) = home.glob("lib/python*/site-packages")
    (folder / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # what the package needs
    assert done(python, "-c", "import arena; print(arena.__file__)").startswith(str(folder))
    described = done(
        python, "-c", "from importlib.metadata import metadata as m; print(m('mpi-policy-arena')['Description'])"
    )
    assert described.startswith("# mpi-policy-arena")
    links = re.findall(r"\]\(([^)]*)\)", described)
    assert [link for link in links if not link.startswith(("https:", "#"))] == [], "a package index resolves no others"
    assert "touchdown_2v2" in done(python, "-m", "arena", "example", "--list")
    done(python, "-m", "arena", "new", "mine")
    (pages,) = re.findall(r"in `(/.*)`", (tmp_path / "mine" / "README.md").read_text())
    assert (
        Path(pages, "tutorial.md").is_file()
        and Path(pages, "api", "index.md").is_file()
        and home.resolve() in Path(pages).parents
    )
    assert done(python, "-m", "arena", "list", "--schema") == (folder / "arena" / "config" / "schema.json").read_text()
    (tmp_path / "match.yaml").write_text(done(python, "-m", "arena", "example", "rock_paper_scissors"))
    length = ("--ticks", "100", "--set", "checkpoint_every=100")
    done(home / "bin" / "arena", "train", "match.yaml", "--ranks", "1", *length, "--run-dir", "runs/a")
    done(home / "bin" / "arena", "report", "runs/a")
    assert (tmp_path / "runs/a/report.html").stat().st_size > 100_000
