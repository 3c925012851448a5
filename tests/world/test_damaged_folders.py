"""No damage of a run folder is silent: every command gives the same result, or exits with 2 and names the file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from damaged_folders import COMMANDS, FLAT, LEAGUE, LONGER, MUTATIONS, Said, copied, damage, files_in, made, outcome

SEED = 34
KINDS = [(kind, killed) for kind in ("flat", "league") for killed in (True, False)]


class Whole(NamedTuple):
    """An undamaged run folder, and what every command says of it."""

    name: str
    folder: Path
    more: list[str]
    said: dict[str, Said]


def whole(home: Path, kind: str, *, killed: bool) -> Whole:
    """Makes a folder below `home`, and calls the commands."""
    name = f"{kind}-{'killed' if killed else 'finished'}"
    folder = made(home / name, FLAT if kind == "flat" else LEAGUE, killed_at=50 if killed else None)
    more = [] if killed else LONGER[kind]
    said = {}
    for command in COMMANDS:
        said[command] = outcome(command, copied(folder, home / f"{name}-{command}"), more=more)
        assert said[command].code == 0, said[command].text
    return Whole(name, folder, more, said)


def faults(found: Whole, home: Path, rng: np.random.Generator) -> Iterator[str]:
    """Damages one file of a copy of a folder; a line for each command that is wrong about it."""
    file = files_in(found.folder)[int(rng.integers(len(files_in(found.folder))))]
    kind, seed = MUTATIONS[int(rng.integers(len(MUTATIONS)))], int(rng.integers(2**31))
    for command in COMMANDS:
        shutil.rmtree(home, ignore_errors=True)
        folder = copied(found.folder, home)
        damage(folder / file, kind, np.random.default_rng(seed))
        where = f"{found.name}, {kind} of {file} with {seed}: {command}"
        try:
            said = outcome(command, folder, more=found.more)
        except Exception as error:
            yield f"{where}: {error!r}"
            continue
        if said.code == 0 and said.numbers != found.said[command].numbers:
            yield f"{where}: another result: {said.numbers} instead of {found.said[command].numbers}"
        if said.code and (said.code != 2 or file.name not in said.text):
            yield f"{where}: {said.code}, {said.text}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("part", "damages"),
    [(0, 4), (3, 4), *(pytest.param(part, 150, marks=pytest.mark.long) for part in range(4))],
)
def test_damage_is_told_or_without_effect(part: int, damages: int, tmp_path: Path) -> None:
    kind, killed = KINDS[part]
    found, rng = whole(tmp_path, kind, killed=killed), np.random.default_rng([SEED, part])
    assert [line for _ in range(damages) for line in faults(found, tmp_path / "copy", rng)] == []
