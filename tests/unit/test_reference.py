"""Shown options of algorithms equal those in their sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import arena
from arena import registry
from arena.cli.list import command as reference
from arena.cli.main import main
from arena.config import Config, matches
from arena.errors import ConfigError
from envs.matrix import GAMES

OURS = [name for name, entry in registry.ALGORITHMS.items() if not entry.extra]
UNUSED = {
    **dict.fromkeys(("a2c", "impala"), ("batch_mode",)),
    "hppo": ("transformer", "cuda_graphs", "batch_mode", *(AVERAGE := ("average", "anticipatory", "reservoir_size"))),
    "mappo": AVERAGE,
    "iql": ("extra_loss", "transformer"),
    "td3": ("gumbel_temperature", "output_penalty"),
    "masac": ("transformer",),
    **dict.fromkeys(("vdn", "qmix"), ("transformer", *AVERAGE)),
}
ROOT = Path(arena.__file__).parent.parent
PAGES = {"algorithms/options": [], "configuration/keys": ["configuration"], "cli": ["commands"]}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_generated_page_equals_the_source(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--markdown", *PAGES[page]]) == 0
    assert (ROOT / "docs" / f"{page}.md").read_text() == capsys.readouterr().out, "run `make reference`"


def test_configuration_page_has_every_key_once() -> None:
    page = (ROOT / "docs/configuration/keys.md").read_text()
    top, _, rest = page.partition("## Top level")[2].partition("\n## ")
    keys = [row.split("`")[1] for row in top.splitlines() if row.startswith("| `")]
    assert len(set(keys)) == len(keys)
    assert list(dict.fromkeys(key.partition(".")[0] for key in keys)) == list(Config.__struct_encode_fields__)
    assert "results.every" in keys
    assert not re.search(r"\|\s*\|$", top + rest, re.MULTILINE), "every key has a meaning"
    assert "| `self` | number >= 0, <= 1 | `0.35` |" in rest
    assert "| `ranks` | `auto` or `one_per_role` or integer >= 1 | `auto` |" in top


def test_generators_and_rules_are_listed_with_described_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for name, kind in {**matches.GENERATORS, **matches.RULES}.items():
        assert f"\n  {name} " in said
        found, keys = reference.options_of(name), {field.encode_name for field in msgspec.structs.fields(kind)}
        assert {option.name.partition(".")[0] for option in found} == keys
        assert [option for option in found if not option.text] == []


def test_rule_is_shown_with_its_nested_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "exploiters"]) == 0
    rows = {words[0]: words[1] for words in map(str.split, capsys.readouterr().out.splitlines()[1:])}
    assert (rows["main"], rows["self"], rows["reset.after"]) == ("required", "0.35", "20")


@pytest.mark.parametrize("name", OURS)
def test_every_option_is_described(name: str) -> None:
    declared = getattr(registry.algorithm(name), "Options", None)
    fields = [] if declared is None else declared.__struct_fields__
    found = reference.options_of(name)
    keys = list(dict.fromkeys(option.name.partition(".")[0] for option in found))
    assert keys == [field for field in fields if field not in UNUSED.get(name, ())]
    assert all(option.text for option in found)


@pytest.mark.parametrize("name", UNUSED)
def test_refused_inherited_options_are_not_shown(name: str) -> None:
    shown = {option.name for option in reference.options_of(name)}
    assert shown.isdisjoint(UNUSED[name])
    for option, value in (("recurrent", "lstm"), ("encoder", "own_parts:Net"), ("extra_loss", "own_parts:Decay")):
        if option in UNUSED[name]:
            with pytest.raises(ConfigError, match="expected null"):
                registry.algorithm(name).Options(**{option: value}, **({"data": "x"} if name == "iql" else {}))


@pytest.mark.parametrize("name", [name for name in registry.ALGORITHMS if name not in OURS])
def test_every_option_of_another_library_is_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", name]) == 0
    assert "learning_rate " in capsys.readouterr().out
    assert [option for option in reference.options_of(name) if not option.text] == []


@pytest.mark.parametrize("name", registry.EXTERNAL)
def test_every_argument_of_external_games_is_described(name: str) -> None:
    found = reference.options_of(name)
    assert len(found) > 5
    assert all(option.text for option in found)
    assert "copy" not in {option.name for option in found}


def test_arguments_of_games_and_wrappers_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "touchdown", "frame_stack"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "  team_size     1          players per team" in said
    assert "  stack_size    required  how many observations" in said
    assert not any("lanes" in line for line in said)


def test_keywords_of_a_user_algorithm_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open_worker.py").write_text(
        "class Open:\n    face = 'gym'\n    def __init__(self, env, group, *, ticks, rate=0.5, **options): ...\n"
        "    def run(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert reference.lines("open_worker:Open")[1:] == ["  rate  0.5", "  ...        takes any other name as well"]


def test_every_matrix_game_is_named_where_the_game_is_shown() -> None:
    (shown,) = (option.text for option in reference.options_of("matrix") if option.name == "game")
    assert [name for name in GAMES if f"`{name}`" not in shown] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["scripted", "matchmaking", "touchdown"],
        pytest.param(["ppo"], marks=pytest.mark.long),
        pytest.param([], marks=pytest.mark.long),
        pytest.param(["--markdown", "configuration"], marks=pytest.mark.long),
    ],
)
def test_descriptions_are_the_same_without_docstrings(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *names]) == 0
    stripped = subprocess.run(
        [sys.executable, "-OO", "-m", "arena", "list", *names], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert stripped.stdout == capsys.readouterr().out
