"""Imports point down: MPI in one module, torch below policies alone, no circles, nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("arena", "envs", "policies")

MPI_MODULE = "arena.transport.mpi"
FLOORS = (
    "errors",
    "diagnostics",
    "game transport",
    "config",
    "plan",
    "records",
    "registry",
    "callbacks dataset entity_env external group league replay seat",
    "loggers testing",
    "preflight",
    "roles",
    "serving",
    "report terminal",
    "opened",
    "run",
    "trainer",
    "experiment",
    "board",
    "cli",
    "__main__",
)
"""Packages of `arena`, the lowest ones first: each imports from lower floors alone."""
PURE = {
    *("errors", "game.arrays", "game.ragged", "game.units", "game.spaces", "game.api", "game.lockstep", "game.context"),
    *("plan.seeding", "plan.placement", "plan.plan"),
    *("plan.build", "plan.seats"),
    *("config.fields", "config.schema", "config.matches", "config.league", "config.members"),
    *("config.result_keys", "config.decode"),
    *("plan.deadlock", "records.outcome", "records.metrics"),
}
OPEN_TO_ALGORITHMS = {"errors", "game", "group", "seat", "dataset", "registry"}
OPEN_TO_GAMES = {"entity_env", "errors", "external", "game", "registry"}


PLAYING = {"roles", "run", "cli"}


class Import(NamedTuple):
    """One module that another one imports."""

    name: str
    line: int
    at_start: bool  # as soon as the importing module is: not inside a function
    for_types: bool  # below `if TYPE_CHECKING:`, so never really


@cache
def modules() -> dict[str, Path]:
    """Every module of the three packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> tuple[Import, ...]:
    """What a module imports, `from package import module` resolved to the module."""
    path = modules()[module]
    tree = ast.parse(path.read_text())
    return tuple(_walk(tree, package=module if path.name == "__init__.py" else module.rpartition(".")[0]))


def _walk(node: ast.AST, *, package: str, at_start: bool = True, for_types: bool = False) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, at_start, for_types)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, package)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield Import(inner if inner in modules() else base, node.lineno, at_start, for_types)
    in_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr)):
        inside = {"at_start": at_start and not in_function, "for_types": for_types or typing_only}
        yield from _walk(child, package=package, **inside)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def offences(*, inside: str | tuple[str, ...], of: str) -> list[str]:
    """Where modules of these packages import `of` (or a part of it)."""
    return [
        f"{module}, line {found.line}: {found.name}"
        for module in modules()
        if within(module, inside)
        for found in imports(module)
        if within(found.name, of)
    ]


def within(name: str, packages: str | tuple[str, ...]) -> bool:
    """Whether a module is one of these packages, or lies in one."""
    wanted = (packages,) if isinstance(packages, str) else packages
    return any(f"{name}.".startswith(f"{package}.") for package in wanted)


def room(module: str) -> str:
    """The part of the arena that a module belongs to: `arena.seat.layout` to `seat`."""
    return module.split(".")[1] if "." in module else ""


def really(module: str) -> list[Import]:
    """The imports among the three packages at run time."""
    return [found for found in imports(module) if not found.for_types and within(found.name, PACKAGES)]


def test_rules_cover_the_whole_tree_and_all_forms_of_import() -> None:
    assert {"arena", "arena.seat.layout", "envs.adapters", "policies.ppo"} <= modules().keys()
    source = (
        "import a.b\nfrom c import d as e\nfrom . import errors\nfrom arena.game import spaces\n"
        "if TYPE_CHECKING:\n    import f\ndef g():\n    import h\n"
    )
    assert list(_walk(ast.parse(source), package="arena")) == [
        Import("a.b", 1, True, False),
        Import("c", 2, True, False),
        Import("arena.errors", 3, True, False),
        Import("arena.game.spaces", 4, True, False),
        Import("f", 6, True, True),
        Import("h", 8, False, False),
    ]


@pytest.mark.slow
def test_mpi_is_imported_in_one_module() -> None:
    assert {found.split(",")[0] for found in offences(inside=PACKAGES, of="mpi4py")} == {MPI_MODULE}


@pytest.mark.slow
def test_torch_is_imported_below_policies_alone() -> None:
    assert offences(inside=("arena", "envs"), of="torch") == []
    assert offences(inside="policies", of="torch") != []


@pytest.mark.parametrize("package", ["envs", "policies"])
def test_arena_imports_environments_and_algorithms_by_name(package: str) -> None:
    assert offences(inside="arena", of=package) == []


@pytest.mark.parametrize(("package", "other"), [("envs", "policies"), ("policies", "envs")])
def test_environments_and_algorithms_do_not_know_each_other(package: str, other: str) -> None:
    assert offences(inside=package, of=other) == []


@pytest.mark.parametrize(("package", "allowed"), [("envs", OPEN_TO_GAMES), ("policies", OPEN_TO_ALGORITHMS)])
def test_games_and_algorithms_import_only_allowed_packages(package: str, allowed: set[str]) -> None:
    used = {
        f"{module}, line {found.line}: {found.name}"
        for module in modules()
        if within(module, package)
        for found in imports(module)
        if within(found.name, "arena") and found.name != "arena" and room(found.name) not in allowed
    }
    assert used == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_imports_pure_modules_alone(name: str) -> None:
    assert {found.name.removeprefix("arena.") for found in really(f"arena.{name}")} <= PURE


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_does_no_io(name: str) -> None:
    found = {item.name.partition(".")[0] for item in imports(f"arena.{name}")}
    assert not found & {"os", "io", "socket", "subprocess", "threading", "pathlib", "logging", "time", "random"}


def test_packages_import_only_from_lower_layers() -> None:
    floor = {package: number for number, packages in enumerate(FLOORS) for package in packages.split()}
    assert {room(module) for module in modules() if within(module, "arena")} - {""} == floor.keys()
    wrong = {
        f"{module}, line {found.line}: {found.name}"
        for module in modules()
        if within(module, "arena") and module != "arena"
        for found in really(module)
        if (other := room(found.name)) not in ("", room(module)) and floor[other] >= floor[room(module)]
    }
    assert wrong == set()


def test_no_package_has_too_many_modules() -> None:
    sizes: dict[str, int] = {}
    for module, path in modules().items():
        if path.name != "__init__.py":
            sizes[module.rpartition(".")[0]] = sizes.get(module.rpartition(".")[0], 0) + 1
    assert sizes.pop("arena") <= 7
    assert {package: size for package, size in sizes.items() if size > 22} == {}


@pytest.mark.parametrize("of", ["start", "types too"])
def test_imports_make_no_circle(of: str) -> None:
    graph = {
        module: {
            found.name
            for found in (imports(module) if of == "types too" else really(module))
            if found.name in modules() and (found.at_start or of == "types too")
        }
        - {module}
        for module in modules()
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert order.index("arena.errors") < order.index("arena.cli.train")


HEAVY = (
    *("torch", "mpi4py", "pettingzoo", "rich", "scipy", "plotly", "jinja2", "PIL", "stable_baselines3", "tensorboardX"),
    *("onnx", "onnxruntime", "onnxscript"),
)


ON_DEMAND = {
    *(f"arena.cli.{name}" for name in ("report",)),
    *(f"arena.cli.exploit.{name}" for name in ("exploit_run", "exact")),
    "arena.run.players",
    "arena.run.rounds",
    "arena.run.tournament",
    "arena.run.continued",
}
"""They rate players or draw charts, and are imported by the commands and runs that do."""


def heavy_after(*names: str) -> set[str]:
    """Which heavy packages a fresh Python has loaded after it has imported these modules."""
    program = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
def test_command_line_and_roles_import_nothing_heavy() -> None:
    roles = {
        module for module in modules() if within(module, (*(f"arena.{name}" for name in PLAYING), "arena.group.group"))
    }
    assert heavy_after("arena", "arena.cli.main", *sorted(roles - ON_DEMAND)) == set()


@pytest.mark.slow
def test_games_and_adapters_import_neither_torch_nor_mpi() -> None:
    games = [module for module in modules() if within(module, "envs")]
    assert not heavy_after(*games) & {"torch", "mpi4py", "rich", "stable_baselines3"}
