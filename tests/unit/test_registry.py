"""Names become objects, or a message that tells a typing error from a broken module and from a hidden package."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arena import registry
from arena.config import load_with_origin
from arena.errors import ConfigError
from policies.common.options import AlgorithmOptions, Auto, Count, Positive, Sizes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder: the current directory, and the last place where Python looks for modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    importlib.invalidate_caches()


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_every_built_in_algorithm_is_found_and_synchronizes_by_ticks(name: str) -> None:
    assert registry.algorithm(name).run
    assert registry.ALGORITHMS[name].description
    assert registry.schedule_of(registry.algorithm(name)) == "ticks"


def test_arguments_are_written_out_where_parameters_are_known() -> None:
    """Two ways to write one game are the same one; `builtins:dict` stands for a class in C without a signature."""
    default, given = (registry.written_out("touchdown", arguments) for arguments in ({}, {"max_steps": 5}))
    assert {key for key in default if default[key] != given[key]} == {"max_steps"}
    assert registry.written_out("touchdown", {"max_steps": default["max_steps"]}) == default
    assert registry.written_out("builtins:dict", {"size": 3}) == {"size": 3}


def test_modules_are_not_suggested_as_classes(folder: Path) -> None:
    write(folder, "importing_worker.py", "import json as Wrker\n\nclass Worker: ...\n")
    with pytest.raises(ConfigError, match="has no 'Wrke'; did you mean 'Worker'"):
        registry.load_object("importing_worker:Wrke")


def test_a_users_own_class_is_found_by_module_and_name(folder: Path) -> None:
    write(folder, "my_worker.py", "class Outer:\n    class Mine:\n        face = 'gym'\n        def run(self): pass\n")
    assert registry.algorithm("my_worker:Outer.Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (registry.environment_factory, "tuchdown", "unknown environment 'tuchdown'; did you mean 'touchdown'?"),
        (registry.environment_factory, "envs.touchdown:Touchdwn", "has no 'Touchdwn'; did you mean 'Touchdown'?"),
        (registry.environment_factory, "no_such_module:x", "there is no module 'no_such_module'"),
        (registry.environment_factory, "envs.touchdown:", "not of the form"),
        (registry.environment_factory, ".relative:x", "not of the form"),
        (registry.environment_factory, "math:pi", "'math:pi' is a float"),
        (registry.environment_factory, "gymnasium:CartPol-v1", "CartPole"),
        (registry.environment_factory, "pettingzoo:nothing_v0", "nothing_v0"),
        (registry.environment_factory, "pettingzoo:", "'' is not the name of a PettingZoo game"),
        (registry.algorithm, "pp", "unknown algorithm 'pp'; did you mean 'ppo'?"),
        (registry.algorithm, "math:sin", "has to be a class"),
        (registry.algorithm, "collections:OrderedDict", "has no `face` and no run(): a worker is a class with"),
    ],
)
def test_missing_or_invalid_object_is_a_configuration_error(find: Any, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(name)
    assert message in str(caught.value)


def test_an_import_error_inside_a_users_module_stays_visible(folder: Path) -> None:
    write(folder, "broken_one.py", "x = 1\nimport not_installed_anywhere\n")
    with pytest.raises(
        ConfigError, match=r"'broken_one' was found, but .* No module named 'not_installed_anywhere'"
    ) as caught:
        registry.load_object("broken_one:x")
    assert "broken_one.py, line 2" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_any_other_error_inside_a_users_module_stays_visible(folder: Path) -> None:
    write(folder, "broken_two.py", "x = 1 / 0\n")
    with pytest.raises(ConfigError, match=r"ZeroDivisionError: division by zero \(.*broken_two\.py, line 1\)"):
        registry.load_object("broken_two:x")
    write(folder, "broken_three.py", "x = = 1\n")
    with pytest.raises(ConfigError, match=r"SyntaxError.*broken_three\.py, line 1"):
        registry.load_object("broken_three:x")


def test_a_users_envs_folder_behind_the_arenas_own_is_explained(folder: Path) -> None:
    write(folder, "envs/mine.py", "class Mine: pass\n")
    with pytest.raises(ConfigError, match=r"belongs to the arena's own package .* rename your folder"):
        registry.load_object("envs.mine:Mine")


class Keywords:
    """An algorithm that declares its options as keywords."""

    def __init__(self, env: Any, group: Any, *, ticks: int, rate: float, size: int = 3) -> None: ...


class Anything:
    """An algorithm that takes any keywords."""

    def __init__(self, env: Any, group: Any, *, ticks: int, **options: Any) -> None: ...


class Declared:
    """An algorithm that declares its options as a dataclass."""

    @dataclass(frozen=True)
    class Options:
        """Two options."""

        rate: float = 1.0
        epochs: int = 1

        def __post_init__(self) -> None:
            if self.epochs < 1:
                raise ConfigError(f"found {self.epochs}, at least 1", path="options.epochs")
            if self.rate < 0:
                raise ValueError("a rate is not negative")

    def __init__(self, env: Any, group: Any, *, ticks: int, **options: Any) -> None: ...


class Struct:
    """An algorithm that declares its options as a struct."""

    class Options(AlgorithmOptions, frozen=True, kw_only=True):
        """Types and ranges."""

        rate: Positive = 1.0
        sizes: Sizes = (64, 64)
        n_steps: Count | Auto = "auto"

    def __init__(self, env: Any, group: Any, *, ticks: int, **options: Any) -> None: ...


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Keywords, {"rate": 1, "sizes": 1}, "options.sizes: Keywords has no option 'sizes'; did you mean 'size'?"),
        (Keywords, {}, "options: Keywords needs the option 'rate', which has no default"),
        (Keywords, {"rate": 1, "ticks": 1}, "has no option 'ticks'"),
        (Anything, {"ticks": 1}, "has no option 'ticks'"),
        (Declared, {"epoch": 1}, "did you mean 'epochs'?"),
        (Declared, {"epochs": 0}, "options.epochs: found 0, at least 1"),
        (Declared, {"rate": -1}, "options: Declared: a rate is not negative"),
        (Declared, {"rate": "fast"}, "'<' not supported"),
        (Struct, {"rate": 0}, "options.rate: found 0; expected a number, more than 0"),
        (Struct, {"rate": math.inf}, "options.rate: found inf; expected a finite number, more than 0"),
        (Struct, {"sizes": [8, 0]}, "options.sizes[1]: found 0; expected a whole number, at least 1"),
        (Struct, {"n_steps": "aut"}, "options.n_steps: found 'aut'; expected auto, or a whole number, at least 1"),
    ],
)
def test_options_that_an_algorithm_does_not_take_are_refused(
    cls: type[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.decode_options(cls, options, path="policies.blue")
    assert str(caught.value).startswith("policies.blue.options")
    assert message in str(caught.value)


ANNOTATED = """
from __future__ import annotations
from typing import TYPE_CHECKING, Optional, Sequence, Union
if TYPE_CHECKING:
    from nowhere import Env

class Worker:
    face = "gym"
    def __init__(self, env: Env, group, *, ticks: int, steps: int = 3, rate: float | None = 0.5, greedy: bool = False,
                 name: str = None, either: Union[int, str] = 1, most: Optional[int] = None,
                 odd: "about so many" = 1, unknown: Env = None, sizes: Sequence[int] = ()): ...
    def run(self): ...
"""


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("steps", "many", "a whole number"),
        ("steps", True, "a whole number"),
        ("rate", "3e", "a number or null"),
        ("greedy", 1, "true or false"),
        ("name", 5, "text"),
        ("either", 0.5, "a whole number or text"),
        ("most", "all", "a whole number or null"),
    ],
)
def test_values_outside_annotations_are_refused_with_their_key(
    folder: Path, option: str, value: Any, expected: str
) -> None:
    write(folder, "typed.py", ANNOTATED)
    with pytest.raises(ConfigError) as caught:
        registry.configured_algorithm("typed:Worker", {option: value}, acts=False, path="policies.blue")
    assert str(caught.value) == f"policies.blue.options.{option}: got {value!r}, expected {expected}"


def test_values_within_or_without_annotations_are_accepted(folder: Path) -> None:
    write(folder, "typed.py", ANNOTATED)
    for options in (
        {"steps": 5, "rate": 1, "greedy": True, "name": "x", "either": "y"},
        {"rate": None, "name": None, "either": 2, "most": 7, "odd": "anything", "unknown": 5, "sizes": "not looked at"},
    ):
        registry.configured_algorithm("typed:Worker", options, acts=False, path="policies.blue")


def test_unknown_schedule_is_refused_with_the_nearest_one(folder: Path) -> None:
    write(
        folder,
        "mine.py",
        "class W:\n    face = 'gym'\n    schedule = 'tick'\n    def __init__(self, env, group, *, ticks): ...\n"
        "    def run(self): ...\n",
    )
    with pytest.raises(ConfigError, match=r"W\.schedule is 'tick'.* did you mean 'ticks'") as caught:
        registry.configured_algorithm("mine:W", {}, acts=False, path="policies.blue")
    assert caught.value.path == "policies.blue.algorithm"


def test_options_are_decoded_into_the_types_of_the_struct() -> None:
    given = {"rate": 1, "sizes": [8, 4], "n_steps": 1e3}
    decoded = registry.decode_options(Struct, given, path="policies.blue")
    assert decoded == {"rate": 1.0, "sizes": (8, 4), "n_steps": 1000}
    assert [type(value) for value in decoded.values()] == [float, tuple, int]


@pytest.mark.parametrize(
    ("name", "option", "hint"),
    [
        ("ppo", "lr", "did you mean 'learning_rate'?"),
        ("ppo", "batch_size", "did you mean 'minibatch_size'?"),
        ("sac", "mini_batch_size", "did you mean 'batch_size'?"),
        ("ppo", "net_arch", "did you mean 'hidden_sizes'?"),
        ("ppo", "n_envs", "it is `lanes` of a match"),
        ("ppo", "total_timesteps", "it is `ticks`, a key of the configuration itself"),
        ("ppo", "n_step", "did you mean 'n_steps'? nearest: n_steps, n_epochs, hidden_sizes; `arena list ppo` shows"),
    ],
)
def test_unknown_option_names_the_nearest(name: str, option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.decode_options(registry.algorithm(name), {option: 1}, path="policies.blue")
    assert hint in caught.value.message
    assert caught.value.message.endswith(f"`arena list {name}` shows all"), "no number: nested keys have rows too"
    assert caught.value.path == f"policies.blue.options.{option}"


def test_an_override_is_blamed_for_the_option_that_it_set(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "ticks: 10\nenvs: {game: {make: cover}}\nmatches: [{env: game, seats: [blue, red]}]\n"
        "policies:\n  blue: {algorithm: ppo, options: {gamma: 2}, independent: true}\n  red: {algorithm: ppo}\n"
    )
    override = "policies.red.options.n_steps=0"
    config, origin = load_with_origin(file, [override])
    found = {}
    for name, policy in config.policies.items():
        with pytest.raises(ConfigError) as caught, origin.located():
            registry.configured_algorithm(policy.algorithm, policy.options, acts=False, path=f"policies.{name}")
        found[name] = caught.value.source
    assert found == {"blue": f"{file} with --set {override}", "red": f"--set {override}"}
    error = ConfigError("", path="policies.red#3.options.n_steps")
    assert origin.blame(error).source == f"--set {override}"  # of one of several independent workers


def test_games_over_http_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "httptools" else found(name))
    with pytest.raises(ConfigError, match=r"needs the package 'httptools'.* \"mpi-policy-arena\[http\]\""):
        registry.environment_factory("http")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TypeError("no number"), f"no number ({__file__}, line "),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_error_of_a_method_keeps_its_arguments(error: Exception, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        def run(self) -> None: ...

    monkeypatch.setattr(registry, "where_raised", lambda error: "")  # as of an error that a library raises
    count = len(error.args)
    with pytest.raises(type(error)) as caught, registry.method_located(Own, "run"):
        raise error
    assert str(caught.value).startswith(text)
    assert len(caught.value.args) == count
