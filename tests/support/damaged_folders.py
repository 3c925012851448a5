"""Run folders with one file damaged, and what each command makes of them: for tests that damage is never silent."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np
import yaml

from arena.cli.main import main
from arena.cli.watch import await_start, watch
from arena.errors import ConfigError
from arena.records import checkpoint, recorder
from arena.report.read_run import read_run
from arena.report.sections import page_data

COMMANDS = ("resume", "evaluate", "report", "standings", "watch")
NOT_READ = re.compile(r"logs/|tensorboard/|lock|report\.html|evaluations/[^/]+/(?!episodes\.jsonl)")
"""What no command takes a number from."""

_GAME = {"g": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}}
# No option depends on the length of the run, which `--resume` changes after an earlier boundary too.
_ON_POLICY = {"n_steps": 8, "hidden_sizes": [4], "learning_rate_schedule": "constant"}
_OFF_POLICY = {
    "learning_starts": 4,
    "buffer_size": 64,
    "hidden_sizes": [4],
    "learning_rate_schedule": "constant",
    "exploration_fraction": 0,
}
_POLICIES = {
    "a": {"algorithm": "a2c", "options": _ON_POLICY},
    "b": {"algorithm": "dqn", "options": _OFF_POLICY},
}
FLAT = {
    "name": "flat",
    "ticks": 80,
    "checkpoint_every": 20,
    "envs": _GAME,
    "policies": _POLICIES,
    "matches": [{"env": "g", "seats": ["a", "b"], "lanes": 2}],
    "evaluation": {"every": 40, "episodes": 2},
    "best": {"metric": "policy_reward_mean/a"},
    "results": {"every": 20},
}
LEAGUE = {
    "name": "league",
    "ticks": 40,
    "rounds": 2,
    "checkpoint_every": 20,
    "envs": _GAME,
    "policies": _POLICIES,
    "matches": [{"matchmaking": {"env": "g", "policies": ["a", "b"], "rule": {"fictitious": {}}, "copies": 1}}],
    "league": {"snapshots": {"every": 1}},
}
LONGER = {"flat": ["--ticks", "120"], "league": ["--set", "rounds=3"]}
"""By configuration: what `--resume` of a finished run asks for."""


class Said(NamedTuple):
    """How a command has ended: its exit status, what it has printed, and the numbers that it stands for."""

    code: int
    text: str
    numbers: Any = None


def made(home: Path, data: Mapping[str, Any], *, killed_at: int | None = None) -> Path:
    """Plays a run below `home`; returns its folder: finished, or as `kill -9` would leave it after a tick."""
    home.mkdir(parents=True)
    config, folder = home / "config.yaml", home / "run"
    config.write_text(yaml.safe_dump({"seed": 3, "ranks": 1, "loggers": [], **data}))
    flush = recorder.Recorder.flush

    def copying(self: recorder.Recorder) -> None:
        flush(self)
        last = folder / "episodes.jsonl"
        if killed_at is not None and not (home / "killed").exists() and last.exists():
            ticks = [json.loads(line)["tick"] for line in last.read_bytes().splitlines()]
            if max(ticks, default=0) > killed_at and self._folder.path == folder:
                shutil.copytree(folder, home / "killed")

    with mock.patch.object(recorder, "FLUSH_EVERY", 0.0), mock.patch.object(recorder.Recorder, "flush", copying):
        said = _main("train", str(config), "--run-dir", str(folder))
    assert said.code == 0, said.text
    if killed_at is None:
        return folder
    shutil.rmtree(folder)
    return (home / "killed").rename(folder)


def outcome(command: str, folder: Path, *, more: list[str]) -> Said:
    """What a command says of a folder, which `resume` changes; `more`: arguments of `--resume`."""
    commands = {"resume": _resumed, "evaluate": _evaluated, "report": _reported, "watch": _watched}
    return commands.get(command, _printed)(folder, more)


def _main(*arguments: str) -> Said:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(arguments)
    return Said(code, out.getvalue())


def _resumed(folder: Path, more: list[str]) -> Said:
    said = _main("train", str(folder.parent / "config.yaml"), "--run-dir", str(folder), "--resume", *more)
    if said.code:
        return said
    weights = {
        path.name: checkpoint.load(checkpoint.list_checkpoints(path)[-1]).state
        for path in sorted((folder / "checkpoints").iterdir())
    }
    episodes = (folder / "episodes.jsonl").read_text()
    return said._replace(numbers=(repr(_listed(weights)), episodes))


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(inner) for inner in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _evaluated(folder: Path, _: list[str]) -> Said:
    said = _main("evaluate", str(folder), "--episodes", "2", "--run-dir", str(folder.parent / "evaluated"))
    shutil.rmtree(folder.parent / "evaluated", ignore_errors=True)
    return said._replace(numbers=[line for line in said.text.splitlines() if not line.startswith("records")])


def _reported(folder: Path, _: list[str]) -> Said:
    def read() -> Any:
        found = dict(msgspec.to_builtins(page_data(read_run(folder))))
        found["summary"].pop("ended")  # the time of the newest write
        return json.dumps(found)

    return _called(read)


def _printed(folder: Path, _: list[str]) -> Said:
    said = _main("standings", str(folder), "--json")
    return said._replace(numbers=said.text)


def _watched(folder: Path, _: list[str]) -> Said:
    out = io.StringIO()

    def follow() -> Any:
        with contextlib.redirect_stdout(out):
            await_start(folder, wait=lambda _: None)
            watch(folder, columns=0, wait=lambda _: None)
        return re.sub(rf"; --resume goes on from tick [0-9]+| *[0-9.,k-]+ ticks/s|{folder}", "", out.getvalue())

    return _called(follow)


def _called(read: Callable[[], Any]) -> Said:
    try:
        return Said(0, "", read())
    except ConfigError as error:
        return Said(2, str(error))


def files_in(folder: Path) -> list[Path]:
    """The files of a run folder that commands read, relative to it."""
    found = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if not NOT_READ.match(path.as_posix())]


MUTATIONS = ("flip", "bytes", "truncate", "cut_lines", "empty", "delete", "double_line", "double_half", "doubled")


def damage(path: Path, kind: str, rng: np.random.Generator) -> bool:
    """Damages a file; whether that has changed it."""
    before = path.read_bytes()
    if kind == "delete":
        path.unlink()
        return True
    content = bytearray(before)
    lines = before.splitlines(keepends=True)
    size = len(before)
    place = int(rng.integers(max(1, size)))
    if kind == "flip" and size:
        content[place] ^= 1 << int(rng.integers(8))
    elif kind == "bytes":
        content[place : place + 4] = rng.bytes(min(4, size - place))
    elif kind == "truncate":
        del content[place:]
    elif kind == "cut_lines":
        content = bytearray(b"".join(lines[: int(rng.integers(max(1, len(lines))))]))
    elif kind == "empty":
        content = bytearray()
    elif kind == "double_line" and lines:
        number = int(rng.integers(len(lines)))
        content = bytearray(b"".join([*lines[: number + 1], lines[number], *lines[number + 1 :]]))
    elif kind == "double_half":
        content = bytearray(before + before[size // 2 :] if rng.random() < 0.5 else before[: size // 2] + before)
    elif kind == "doubled":
        content = bytearray(before + before)
    path.write_bytes(content)
    return bytes(content) != before


def without_checksums(folder: Path) -> Path:
    """The folder, whose files are read as they are from now on."""
    for part in [*folder.rglob("checksums")]:
        shutil.rmtree(part)
    return folder


def copied(folder: Path, home: Path) -> Path:
    """A copy of a run folder and its configuration below `home`."""
    home.mkdir(parents=True)
    shutil.copy(folder.parent / "config.yaml", home)
    return Path(shutil.copytree(folder, home / folder.name))
