"""The options of algorithms are told as their sources have them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import arena
from arena import registry
from arena.cli import main
from arena.screen import reference

OURS = [name for name, entry in registry.ALGORITHMS.items() if not entry.extra]
PAGE = Path(arena.__file__).parent.parent / "policies" / "README.md"


def test_the_page_of_all_options_is_what_the_sources_say() -> None:
    assert PAGE.read_text() == reference.page(OURS), "run `make reference`"


@pytest.mark.parametrize("name", OURS)
def test_every_option_is_described(name: str) -> None:
    declared = getattr(registry.algorithm(name), "Options", None)
    fields = [field.name for field in dataclasses.fields(declared)] if declared is not None else []
    found = reference.options_of(name)
    assert [option.name for option in found] == fields
    assert all(option.words for option in found)


def test_an_algorithm_redeclares_what_it_has_another_default_for() -> None:
    ppo, a2c = ({option.name: option for option in reference.options_of(name)} for name in ("ppo", "a2c"))
    assert (ppo["n_steps"].default, a2c["n_steps"].default) == ("128", "8")
    assert ppo["learning_rate"].default == "3e-4"
    assert ppo["target_kl"].default == "null"


def test_the_command_shows_the_options_of_those_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "ppo", "scripted"]) == 0
    said = capsys.readouterr().out
    assert "clip_range " in said
    assert "arguments" in said


def test_an_unknown_algorithm_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "poo"]) == 2
    assert "did you mean 'ppo'" in capsys.readouterr().err
