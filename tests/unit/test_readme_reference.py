"""The README's reference says what the code says."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from typing import Any, get_args

import msgspec
import pytest

import readme
from arena import registry
from arena.cli.main import command_parser
from arena.config import league, matches
from arena.config import schema as config
from arena.group.group import Group

STRUCTS = {
    "Top level": config.Config,
    "An entry of `envs`": config.EnvConfig,
    "An entry of `policies`": config.PolicyConfig,
    "An entry of `matches`": config.MatchConfig,
}
WORDS = {"null": None, "true": True, "false": False}


def value_of(cell: str) -> Any:
    """A default as the README writes it."""
    text = cell.strip("`")
    if text in WORDS:
        return WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def default_of(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return "required" if field.default is msgspec.NODEFAULT else field.default


@pytest.mark.parametrize("heading", STRUCTS)
def test_every_key_of_the_configuration_is_described_with_its_default(heading: str) -> None:
    described = {name: value_of(cells[1]) for name, cells in readme.table(heading).items()}
    declared = {field.name: default_of(field) for field in msgspec.structs.fields(STRUCTS[heading])}
    if heading == "Top level":
        declared["name"] = "the file's name"
    assert described == declared


def test_a_round_robin_is_described_by_its_own_keys_and_those_of_a_match() -> None:
    heading = "Or `round_robin` in its place"
    own = {field.name: default_of(field) for field in msgspec.structs.fields(config.RoundRobinConfig)}
    match = {field.name: default_of(field) for field in msgspec.structs.fields(config.MatchConfig)}
    shared = {name for name in own if name in match}
    assert {name: own[name] for name in shared} == {name: match[name] for name in shared}
    assert all(f"`{name}`" in readme.section(heading).partition("\n\n|")[0] for name in shared)
    described = {name: value_of(cells[1]) for name, cells in readme.table(heading).items()}
    assert described == {name: value for name, value in own.items() if name not in shared}


LEAGUE = {"": league.LeagueConfig, " of `snapshots`": league.SnapshotsConfig, " of `evolution`": league.EvolutionConfig}


@pytest.mark.parametrize("of", LEAGUE)
def test_every_key_of_a_league_is_described_with_its_default(of: str) -> None:
    tables = re.split(r"^\| key(.*?) \|.*$", readme.section("Between two rounds"), flags=re.MULTILINE)
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", dict(zip(tables[1::2], tables[2::2], strict=True))[of], re.M
    )
    described = {name: value_of(cell) for name, cell in rows}
    declared = {field.name: default_of(field) for field in msgspec.structs.fields(LEAGUE[of])}
    if not of:
        declared["snapshots"] = "see below"
    assert described == declared


RULES = {
    "past_selves": matches.PastSelves,
    "fictitious": matches.Fictitious,
    "exploiters": matches.Exploiters,
    "uncertainty": matches.Uncertainty,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_option_of_a_rule_is_named_with_its_default(rule: str) -> None:
    options = readme.table("Matchmaking")[rule][0]
    for field in msgspec.structs.fields(RULES[rule]):
        shown = default_of(field) if isinstance(default_of(field), (float, str)) and not field.required else ""
        assert f"`{field.encode_name}` {shown}".strip() in options


def test_every_generator_is_named() -> None:
    kinds = [arm.__struct_fields__[0] for arm in get_args(matches.GeneratorEntry)]
    assert [kind for kind in kinds if f"`{kind}`" not in readme.section("Rounds and leagues")] == []
    own = {field.name for field in msgspec.structs.fields(matches.MatchmakingConfig)}
    assert set(readme.table("Matchmaking")) & own == own - {
        field.name for field in msgspec.structs.fields(config.RoundRobinConfig)
    }


@pytest.mark.parametrize("name", registry.ENVIRONMENTS)
def test_every_option_of_a_built_in_game_is_named_with_its_default(name: str) -> None:
    parameters = inspect.signature(registry.environment_factory(name)).parameters
    described = readme.table("Environments")[name][1]
    for option, parameter in parameters.items():
        if option != "lanes":
            assert f"`{option}`" in described
            if isinstance(parameter.default, int):
                assert f"`{option}` {str(parameter.default).lower()}" in described


def test_every_built_in_is_named() -> None:
    assert set(registry.ENVIRONMENTS) <= set(readme.table("Environments"))
    assert all(f"`{name}`" in readme.section("Algorithms") for name in registry.ALGORITHMS)


def test_every_member_of_the_group_is_described() -> None:
    members = [name for name, _ in inspect.getmembers(Group) if not name.startswith("_")]
    assert [name for name in members if not re.search(rf"`{name}\b", readme.section("The group"))] == []


def test_every_command_parses_and_names_a_configuration_that_is_there() -> None:
    commands = [shlex.split(command)[1:] for command in readme.commands()]
    complete = [
        words for words in commands if words[1:] and words[1][0] != "-"
    ]  # the others are mentions: `arena plan`
    assert len(complete) > 8
    for words in complete:
        path = getattr(command_parser().parse_args(words), "config", "")
        assert not path.startswith("configs/") or (readme.ROOT / path).is_file(), path


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_to_a_file_leads_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (readme.ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (readme.ROOT / link).exists()] == []
