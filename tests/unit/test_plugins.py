"""Plugins: names that installed distributions give by entry points; a distribution that is broken harms no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arena import registry
from arena.cli.list.catalog import options_of
from arena.cli.main import main
from arena.config import parse_config
from arena.errors import ConfigError
from arena.league.sources import Source, opponent_of
from arena.run.planning import checked_plan
from in_process import play

ENTRY_POINTS = """
[arena.environments]
counted = plugin_parts:Counted

[arena.algorithms]
evenly = plugin_parts:Evenly

[arena.loggers]
writes_last = plugin_parts:WritesLast
"""
PARTS = '''
import games
from policies.random import Random

class Counted(games.Countdown):
    """Counts down, from a plugin."""

class Evenly(Random):
    """Draws its actions, from a plugin."""

class WritesLast:
    """Writes the newest result, from a plugin."""

    def on_start(self, run):
        self.path = run.folder / "written"

    def on_result(self, result):
        self.path.write_text(str(result["ticks"]))
'''
OF_PLUGIN: dict[str, Any] = {
    "ticks": 10,
    "checkpoint_every": 5,
    "envs": {"game": {"make": "counted", "kwargs": {"length": 3}}},
    "policies": {"a": {"algorithm": "evenly"}},
    "matches": [{"env": "game", "seats": ["a"]}],
    "loggers": ["writes_last"],
}


def install(folder: Path, distribution: str, entry_points: str, **modules: str) -> None:
    """Writes what an installer leaves behind of a distribution, version 1.5."""
    info = folder / f"{distribution}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions, with one that works."""
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "parts", ENTRY_POINTS, plugin_parts=PARTS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "plugin_parts", raising=False)
    registry._plugins.cache_clear()
    return folder


def test_plugins_are_used_by_name_and_imported_only_then(site: Path, tmp_path: Path) -> None:
    offered = {(one.kind, one.name, one.distribution) for one in registry.plugins()}
    assert offered >= {("algorithm", "evenly", "parts 1.5"), ("logger", "writes_last", "parts 1.5")}
    assert "plugin_parts" not in sys.modules
    played = play(OF_PLUGIN, tmp_path)
    assert [line["length"] for line in played.episodes] == [3, 3, 3, 1]
    assert (played.folder.path / "written").read_text() == "10"
    source = Source.of({"name": "test", **OF_PLUGIN})
    assert opponent_of(source.config, source, "evenly").algorithm == "evenly"
    with pytest.raises(ConfigError, match="'evnly' is no policy and no algorithm; did you mean 'evenly'"):
        opponent_of(source.config, source, "evnly")


def test_processes_find_plugins_without_a_key_of_the_configuration(site: Path) -> None:
    paths = [str(site), str(Path(__file__).parents[1] / "support"), *filter(None, sys.path)]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        [sys.executable, "-m", "arena", "list", "counted", "evenly"],
        env=settings,
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "counted\n  length" in ended.stdout and "evenly\n" in ended.stdout


def test_broken_plugin_is_named_and_others_work(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = "[arena.algorithms]\nbroken = plugin_broken:Worker\nabsent = plugin_absent:Worker\n"
    broken += "leaves = plugin_leaves:Worker\n[arena.loggers]\nlacks = plugin_parts:Nothing\n"
    install(site, "worn", broken, plugin_broken="1 / 0\n", plugin_leaves="raise SystemExit(3)\n")
    registry._plugins.cache_clear()
    assert len(play(OF_PLUGIN, tmp_path).episodes) == 4
    for name, words in [
        ("broken", "'plugin_broken' was found, but importing it failed with ZeroDivisionError"),
        ("absent", "there is no module 'plugin_absent'"),
        ("leaves", "importing it failed with SystemExit: 3"),
    ]:
        with pytest.raises(ConfigError, match=words) as caught:
            registry.configured_algorithm(name, {}, acts=False, path="policies.a")
        assert caught.value.path == "policies.a.algorithm"
        assert caught.value.message.endswith("; it is of the installed worn 1.5")
    assert main(["list"]) == 0
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}
    assert shown["evenly"] == "algorithm of parts 1.5: Draws its actions, from a plugin"
    assert shown["counted"] == "environment of parts 1.5: Counts down, from a plugin"
    for name, kind in (("broken", "algorithm"), ("absent", "algorithm"), ("leaves", "algorithm"), ("lacks", "logger")):
        assert shown[name].startswith(f"{kind} of worn 1.5, CANNOT BE USED: ")


def test_name_of_two_plugins_or_of_a_built_in_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "twin", "[arena.algorithms]\nevenly = other:Worker\nppo = other:PPO\nMy = other:My\n")
    registry._plugins.cache_clear()
    with pytest.raises(ConfigError, match=r"is of twin 1\.5 \(other:Worker\) and parts 1\.5 \(plugin"):
        checked_plan(parse_config({"name": "test", **OF_PLUGIN}, source=""), ranks=1)
    assert registry.algorithm("ppo").__module__ == "policies.ppo"
    with pytest.raises(ConfigError, match="unknown algorithm 'My'"):
        registry.algorithm("My")
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert (
        "'ppo' of twin 1.5 cannot be used: it is built in; rename it in the entry points, or name 'other:PPO'" in shown
    )
    assert "'My' of twin 1.5 cannot be used: use lowercase letters, digits and '_'" in shown
    assert main(["list", "My"]) == 2
    assert "or name 'other:My'" in capsys.readouterr().err


def test_one_name_of_several_kinds_shows_all_of_them(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "[arena.environments]\nevenly = plugin_parts:Counted\nppo = plugin_parts:Counted\n"
    install(site, "more", names + "[arena.loggers]\nevenly = plugin_parts:WritesLast\n")
    registry._plugins.cache_clear()
    assert main(["list"]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "evenly algorithm of parts 1.5: Draws its actions, from a plugin" in shown
    assert "evenly environment of more 1.5: Counts down, from a plugin" in shown
    assert "evenly logger of more 1.5: Writes the newest result, from a plugin" in shown
    assert main(["list", "evenly", "ppo"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in shown if line[0] != " "] == [
        "evenly (algorithm)",
        "evenly (environment)",
        "evenly (logger)",
        "ppo",
        "ppo (environment)",
    ]
    of_plugin = shown[shown.index("ppo (environment)") + 1 :]
    assert of_plugin[0].split()[0] == "length" and not any(line.startswith("  n_steps ") for line in of_plugin)
    assert "n_steps" in {option.name for option in options_of("ppo")}, "the built-in one is first"


def test_unknown_name_suggests_a_plugin(site: Path) -> None:
    with pytest.raises(ConfigError, match="unknown environment 'cuonted'; did you mean 'counted'"):
        registry.environment_factory("cuonted")
