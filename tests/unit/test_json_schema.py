"""The JSON Schema of configurations, against all shipped files and mutants of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.mutated_configs import mutant

import arena
from arena import registry
from arena.cli.main import main
from arena.config import yaml
from arena.config.decode import convert
from arena.config.load import load_data
from arena.config.schema import Config
from arena.errors import ConfigError

ROOT = Path(arena.__file__).parent.parent
FILE = ROOT / "arena" / "config" / "schema.json"
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(json.loads(FILE.read_text()))


def mistakes(text: str) -> list[str]:
    """The places of what the schema refuses in a file."""
    return [error.json_path for error in VALIDATOR.iter_errors(yaml.load(text, source="test"))]


@pytest.mark.slow
def test_written_schema_is_that_of_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--schema"]) == 0
    assert FILE.read_text() == capsys.readouterr().out, "run `make reference`"
    jsonschema.Draft202012Validator.check_schema(json.loads(FILE.read_text()))


@pytest.mark.parametrize("path", CONFIGS, ids=str)
def test_shipped_configuration_is_valid_and_names_the_schema(path: Path) -> None:
    text = path.read_text()
    assert mistakes(text) == []
    first, _, schema = text.partition("\n")[0].partition("$schema=")
    assert first == "# yaml-language-server: " and (path.parent / schema).resolve() == FILE


START = "ticks: 1\nenvs: {g: {make: matrix}}\npolicies: {p: {algorithm: ppo}}\nmatches: [{env: g, seats: [p, p]}]\n"


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("", []),
        ("seed: -1", ["$.seed"]),
        ("tick: 3", ["$"]),
        ("record: all", ["$.record"]),
        ("policies: {p: {algorithm: ppo, options: {gama: 0.9}}}", ["$.policies.p.options"]),
        ("policies: {p: {algorithm: ppo, options: {gamma: 2}}}", ["$.policies.p.options.gamma"]),
        ("policies: {p: {algorithm: sac, options: {tau: 0.01}}}", []),
        ("policies: {p: {algorithm: 'my.module:Mine', options: {gama: 0.9}}}", []),
        ("league: {evolution: {perturb: {learning_rate: [0.8, 1.25]}}}", []),
        ("matches: [{matchmaking: {env: g, policies: [p], rule: fictitious}}]", []),
        ("matches: [{matchmaking: {env: g, policies: [p], rule: 'my.module:Rule'}}]", []),
        ("matches: [{matchmaking: {env: g, policies: [p], rule: fictional}}]", ["$.matches"]),
        ("run: configs/cartpole.yaml", ["$"]),  # an experiment has other keys
    ],
)
def test_schema_of_one_key(line: str, places: list[str]) -> None:
    key = line.partition(":")[0]
    kept = [old for old in START.splitlines() if not key or not old.startswith(f"{key}:")]
    assert mistakes("\n".join([*kept, line])) == places


def mutants(path: Path, seeds: range, folder: Path) -> Iterator[dict[str, Any]]:
    """Configurations with mistakes that YAML can read."""
    for seed in seeds:
        (folder / "mutant.yaml").write_bytes(mutant(path, seed))
        try:
            data = load_data(folder / "mutant.yaml")
        except ConfigError:
            continue
        if isinstance(data, dict) and "run" not in data:
            yield data


def refusal(data: dict[str, Any]) -> str | None:
    """What the types of keys and options refuse; None: nothing."""
    try:
        convert(Config, {"name": "mutant", **data}, "")
        for name, policy in data["policies"].items():
            options = policy.get("options") or {}
            registry.configured_algorithm(policy["algorithm"], options, acts=False, path=f"policies.{name}")
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("path", [path for path in CONFIGS if path.parent.name != "experiments"], ids=str)
def test_schema_refuses_what_the_types_refuse_and_nothing_else(path: Path, tmp_path: Path) -> None:
    for data in mutants(path, range(10), tmp_path):
        found, refused = next(VALIDATOR.iter_errors(data), None), refusal(data)
        if refused is None:
            assert found is None, found
        elif found is None:  # what types do not say: a count after a star, names of Python, what options depend on
            assert any(text in refused for text in ("'*'", "name null", "policies.")), refused
