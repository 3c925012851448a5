"""Received run folders: each file of them that could name code names `payload`, which leaves a mark.

Code of `payload` runs when it is imported; `Mark` says whether that has happened.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from arena.records import checkpoint
from arena.records.folder import RunFolder
from damaged_folders import without_checksums
from in_process import play

CODE = "payload:Anything"

_FLAT = {
    "ticks": 200,
    "checkpoint_every": 100,
    "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 1}}},
    "policies": {
        "blue": {"algorithm": "a2c", "options": {"n_steps": 10, "hidden_sizes": [4]}},
        "red": {"algorithm": "random"},
    },
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
    "record": "replays",
    "best": {"metric": "policy_reward_mean/blue"},
    "loggers": [],
}
_LEAGUE = {
    **_FLAT,
    "rounds": 2,
    "matches": [
        {"env": "game", "seats": ["blue", "red"]},
        {"matchmaking": {"env": "game", "policies": ["blue"], "against": ["red"], "rule": "past_selves"}},
    ],
}


class Mark:
    """Whether the payload has run in this process, or in one that was started in `home`."""

    def __init__(self, home: Path) -> None:
        self._file = home / "mark"
        (home / "payload.py").write_text(
            f"import os\nos.system('echo ran >> {self._file}')\n\n\nclass Anything:\n"
            "    def __init__(self, *arguments, **options): ...\n"
        )

    def taken(self) -> bool:
        """Whether it has run since the last call."""
        sys.modules.pop("payload", None)
        found = self._file.exists()
        self._file.unlink(missing_ok=True)
        return found


def played(home: Path) -> dict[str, Path]:
    """Two harmless run folders: `flat` and `league`."""
    return {name: play(data, home / name).folder.path for name, data in (("flat", _FLAT), ("league", _LEAGUE))}


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Changes a JSON document, or each line of a journal."""
    if path.suffix == ".jsonl" or path.name == "result.json":
        lines = [json.dumps(change(json.loads(line))) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        path.write_text(json.dumps(change(json.loads(path.read_text()))))


def set_config(folder: Path, **changes: Any) -> None:
    """Changes config.yaml, which may name code."""
    data = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**data, **changes}))


def _manifests(folder: Path, **changes: Any) -> None:
    for path in folder.glob("replays/*/*/manifest.json"):
        edit_json(path, lambda held: {**held, **changes})


def _lines(folder: Path, name: str, *lines: Mapping[str, Any]) -> None:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _checkpoint_headers(folder: Path) -> None:
    """Every checkpoint and snapshot is of an algorithm that is code; their digests are right."""
    found = (path for place in ("checkpoints", "snapshots") for path in folder.glob(f"{place}/*/*.ckpt"))
    for path in [path for path in found if ".workers-" not in path.name]:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != "sha256"}
        header = json.loads(members["checkpoint.json"])
        members["checkpoint.json"] = json.dumps({**header, "algorithm": CODE, "class": CODE}).encode()
        path.unlink()
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (*members.items(), ("sha256", checkpoint._digest(members.items()).encode())):
                archive.writestr(name, content)


def _documents(folder: Path) -> None:
    """Documents that should name nothing name code under all keys that a reader might ask for."""
    named = dict.fromkeys(("make", "class", "algorithm", "function", "target", "_target_", "config"), CODE)
    for path in (folder / "best.json", folder / "plan.json", *folder.glob("boundaries/*.json")):
        if path.exists():
            edit_json(path, lambda held: {**held, **named, "imports": ["payload"]})
    _lines(folder, "tournament.json", {"version": 1, "greedy": True, **named})
    _lines(folder, "external.json", [{"match": 0, "kind": CODE, **named}])  # type: ignore[arg-type]
    _lines(folder, "profile.json", {"roles": [], **named})


def _model(folder: Path) -> None:
    """An export that names a run beside the folder, whose config.yaml names the code."""
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    set_config(other, imports=["payload"])
    home = folder / "models" / "blue" / "200"
    home.mkdir(parents=True)
    choice = {"kind": "categorical", "shape": [], "dtype": "int64", "n": 5, "start": 0}
    tensor = {"name": "logits", "dtype": "float32", "shape": [5]}
    held = {
        "format": 1,
        "policy": "blue",
        "algorithm": "a2c",
        "tick": 200,
        "engine": "eager",
        "run": "../../../../other",
    }
    held |= {"inputs": [], "outputs": [tensor], "memory": {"size": 0}, "decoding": choice}
    (home / "model.json").write_text(json.dumps(held))


def _evaluation(folder: Path) -> None:
    home = folder / "evaluations" / "tick-000000000100"
    home.mkdir(parents=True)
    for name in ("config.yaml", "plan.json", "episodes.jsonl"):
        shutil.copy(folder / name, home / name)
    set_config(home, imports=["payload"])


def _rounds(folder: Path) -> None:
    edit_json(folder / "rounds.jsonl", lambda line: {**line, "options": {"blue": {"encoder": CODE}}})


def _descriptions(folder: Path) -> None:
    def change(line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "descriptions": [{**one, "env_kwargs": {"like": CODE}} for one in line["descriptions"]]}

    edit_json(folder / "rounds.jsonl", change)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "manifest: make": lambda folder: _manifests(folder, make=CODE),
    "manifest: a command": lambda folder: _manifests(
        folder, make="subprocess:run", kwargs={"args": ["touch", str(folder.parent / "mark")]}
    ),
    "manifest: gymnasium": lambda folder: _manifests(folder, make="gymnasium:payload:Game-v0"),
    "manifest: imports": lambda folder: _manifests(folder, imports=["payload"]),
    "manifest: wrappers": lambda folder: _manifests(folder, wrappers=[[CODE, None]]),
    "manifest: kwargs": lambda folder: _manifests(folder, kwargs={"team_size": 1, "like": {"make": CODE}}),
    "changes: options": lambda folder: _lines(
        folder, "changes.jsonl", {"tick": 0, "set": {"policies.blue.options.encoder": CODE}}
    ),
    "changes: kwargs": lambda folder: _lines(
        folder, "changes.jsonl", {"tick": 0, "set": {"envs.game.kwargs.like": {"make": CODE}}}
    ),
    "rounds: options": _rounds,
    "rounds: kwargs": _descriptions,
    "checkpoints": _checkpoint_headers,
    "documents": _documents,
    "model.json": _model,
    "evaluations": _evaluation,
}
"""By name, what makes a folder hostile."""


def received(source: Path, place: Path, *hostile: str) -> RunFolder:
    """A copy of a run folder with these files made hostile; those that a run of this kind lacks stay away."""
    without_checksums(Path(shutil.copytree(source, place)))
    for name in hostile:
        if not name.startswith("rounds") or (place / "rounds.jsonl").exists():
            HOSTILE[name](place)
    return RunFolder(place)
