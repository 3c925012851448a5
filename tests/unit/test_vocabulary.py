"""Names of packages, modules and public classes use the words of docs/concepts.md and those of the field."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pettingzoo
import torch
from mpi4py import MPI

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    builtins,
    gymnasium,
    gymnasium.error,
    gymnasium.spaces,
    gymnasium.vector,
    gymnasium.wrappers,
    MPI,
    np,
    np.random,
    pettingzoo,
    torch,
    torch.distributions,
    torch.nn,
    torch.optim,
)
FIELD = (Path(__file__).parent / "field_words.txt").read_text().split()  # of learning, games, statistics and programs
COINED = re.compile(
    r"(?<![a-z])(told|heard|held|holder|brought|asked|anew|apart|sights?|hurry|wanted|homes|words|outside|own)(?![a-z])"
)
IN_FILES = frozenset(
    {"held", "never_asked", "own", "OwnRule", "own_limits", "wanted"}
)  # keys of files, public classes and their attributes


def words_in(name: str) -> set[str]:
    """The words of an identifier, lower-case: `PettingZooGames`, {petting, zoo, games}."""
    return {part.lower() for part in re.findall(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]{2,}", name)}


def sources() -> Iterator[Path]:
    for package in ("arena", "envs", "policies"):
        yield from sorted((ROOT / package).rglob("*.py"))


def concepts() -> list[str]:
    rows = re.findall(r"^\| (?!word )([a-z ,]+) \|", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE)
    return [word for row in rows for word in row.split(", ")]


def test_at_most_45_words_are_explained() -> None:
    found = concepts()
    assert 30 < len(found) <= 45
    assert len(set(found)) == len(found)


def test_names_consist_of_words_of_the_concepts_and_of_the_field() -> None:
    known = {word for name in (*concepts(), *FIELD, *sys.stdlib_module_names) for word in words_in(name)}
    known |= {word for library in LIBRARIES for name in dir(library) for word in words_in(name)}
    begins = tuple(word[: max(4, len(word) - 2)] for word in known if len(word) >= 4)  # inflected: decide, decision
    unknown: dict[str, set[str]] = {}
    for path in sources():
        place = path.relative_to(ROOT)
        names = [*place.with_suffix("").parts]
        names += [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        for name in names:
            for word in words_in(name) if not name.startswith("_") else ():
                if name not in IN_FILES and not {word, word.removesuffix("s")} & known and not word.startswith(begins):
                    unknown.setdefault(word, set()).add(f"{name} ({place})")
    assert unknown == {}


def test_everyday_words_are_no_terms() -> None:
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = node.attr
            elif isinstance(node, ast.arg):
                name = node.arg
            else:
                continue
            if name not in IN_FILES and COINED.search(re.sub(r"([A-Z])", r"_\1", name).lower()):
                found.add(f"{path.relative_to(ROOT)}: {name}")
    assert found == set()
