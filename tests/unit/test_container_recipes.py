"""The recipes for images: they copy what an installation needs, install it alike, and start a configuration."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run_cli import environment

ROOT = Path(__file__).parents[2]


def lines(name: str) -> list[str]:
    return [line.strip() for line in (ROOT / name).read_text().splitlines() if line.strip()]


def copied() -> list[str]:
    """What .dockerignore lets into the image: files and folders of the repository."""
    return [line[1:] for line in lines(".dockerignore") if line.startswith("!")]


def test_both_recipes_copy_and_install_the_same() -> None:
    docker, apptainer = lines("Dockerfile"), lines("arena.def")
    assert "COPY . /opt/arena" in docker and all((ROOT / name).exists() for name in copied())
    begin, end = apptainer.index("%files"), apptainer.index("%post")
    assert sorted(apptainer[begin + 1 : end]) == sorted(f"{name} /opt/arena/{name}" for name in copied())
    (install,) = (line.removeprefix("RUN ") for line in docker if line.startswith("RUN "))
    assert apptainer[end + 1] == install
    (image,) = (line.removeprefix("FROM ") for line in docker if line.startswith("FROM "))
    assert f"From: {image}" in apptainer


@pytest.mark.slow
def test_copied_files_are_an_installation_that_runs_the_command(tmp_path: Path) -> None:
    image, site = tmp_path / "opt" / "arena", tmp_path / "site"
    image.mkdir(parents=True)
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, image / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, image)
    build = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--target", str(site), str(image)], check=True, cwd=tmp_path)
    (text,) = (line.removeprefix("CMD ") for line in lines("Dockerfile") if line.startswith("CMD "))
    words = [word.replace("/opt/arena", str(image)) for word in json.loads(text)]
    assert words[0] == "train"
    command = [sys.executable, "-m", "arena", *words, "--ranks", "1", "--ticks", "128"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment(PYTHONPATH=str(site)), capture_output=True)
    assert (tmp_path / "runs" / "touchdown-2v2" / "result.json").exists()
