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

MPI_ROOM = "arena.transport.mpi"
PURE = {
    *("errors", "spaces", "interface", "seeding", "packing", "plan", "schedule", "lockstep", "reduction"),
    *("rehosting", "circles"),
    *("records.outcome", "records.lines"),
}
# What envs and policies may import.
PUBLIC = {"acting", "errors", "fragments", "spaces", "interface", "registry", "group", "samples"}
BELOW_THE_PROXY = {"comm", "errors", "interface", "lockstep", "messages", "spaces", "plan", "records", "stopwatch"}
ROLES = {"roles", "stages", "launch", "commands", "run", "cli"}


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
    in_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in ast.iter_child_nodes(node):
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
    """The part of the arena that a module belongs to: `arena.seat.layout` to `comm`."""
    return module.split(".")[1] if "." in module else ""


def really(module: str) -> list[Import]:
    """What is imported of the three packages when the program runs."""
    return [found for found in imports(module) if not found.for_types and within(found.name, PACKAGES)]


def test_the_rules_see_the_whole_tree_and_all_ways_to_import() -> None:
    assert {"arena", "arena.seat.layout", "envs.adapters", "policies.ppo"} <= modules().keys()
    source = (
        "import a.b\nfrom c import d as e\nfrom . import errors\nfrom arena import spaces\n"
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


def test_mpi_is_known_in_one_module() -> None:
    assert {found.split(",")[0] for found in offences(inside=PACKAGES, of="mpi4py")} == {MPI_ROOM}


def test_torch_is_imported_below_policies_alone() -> None:
    assert offences(inside=("arena", "envs"), of="torch") == []
    assert offences(inside="policies", of="torch") != []


@pytest.mark.parametrize("package", ["envs", "policies"])
def test_the_arena_reaches_environments_and_algorithms_by_name_alone(package: str) -> None:
    assert offences(inside="arena", of=package) == []


@pytest.mark.parametrize(("package", "other"), [("envs", "policies"), ("policies", "envs")])
def test_environments_and_algorithms_do_not_know_each_other(package: str, other: str) -> None:
    assert offences(inside=package, of=other) == []


@pytest.mark.parametrize("package", ["envs", "policies"])
def test_environments_and_algorithms_import_public_modules_of_the_arena_alone(package: str) -> None:
    used = {
        f"{module}, line {found.line}: {found.name}"
        for module in modules()
        if within(module, package)
        for found in imports(module)
        if within(found.name, "arena") and found.name != "arena" and room(found.name) not in PUBLIC
    }
    assert used == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_imports_pure_modules_alone(name: str) -> None:
    assert {found.name.removeprefix("arena.") for found in really(f"arena.{name}")} <= PURE


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_does_no_io(name: str) -> None:
    found = {item.name.partition(".")[0] for item in imports(f"arena.{name}")}
    assert not found & {"os", "io", "socket", "subprocess", "threading", "pathlib", "logging", "time", "random"}


def test_transports_know_neither_proxies_nor_roles() -> None:
    used = {room(found.name) for module in modules() if within(module, "arena.transport") for found in really(module)}
    assert used <= {"comm", "errors", "lockstep", "spaces", "stacks"}


def test_proxies_and_the_group_know_no_roles() -> None:
    for module in modules():
        if within(module, ("arena.proxy", "arena.group.group", "arena.group.collectives", "arena.group.async_samples")):
            own = {"proxy"} if within(module, "arena.proxy") else {"exchange", "fragments", "reduction"}
            assert {room(found.name) for found in really(module)} <= BELOW_THE_PROXY | own, module


def test_no_module_below_knows_a_role() -> None:
    above = tuple(f"arena.{name}" for name in (*ROLES, "__main__"))
    for module in (module for module in modules() if not within(module, above)):
        assert not {room(found.name) for found in really(module)} & ROLES, module


@pytest.mark.parametrize(
    ("below", "above"), [("roles", "launch"), ("stages", "launch"), ("launch", "commands"), ("commands", "cli")]
)
def test_a_run_is_prepared_below_what_hosts_it_and_hosted_below_what_asks_for_it(below: str, above: str) -> None:
    assert offences(inside=f"arena.{below}", of=f"arena.{above}") == []
    assert offences(inside=f"arena.{above}", of=f"arena.{below}") != []


def test_what_is_played_when_is_decided_without_a_role() -> None:
    assert offences(inside="arena.run", of="arena.roles") == []
    assert offences(inside="arena.roles", of="arena.run") == []


def test_imports_make_no_circle() -> None:
    graph = {module: {found.name for found in really(module) if found.at_start} - {module} for module in modules()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert order.index("arena.errors") < order.index("arena.cli.train")


HEAVY = (
    "torch",
    "mpi4py",
    "pettingzoo",
    "rich",
    "scipy",
    "plotly",
    "jinja2",
    "PIL",
    "stable_baselines3",
    "tensorboardX",
)


OF_LEAGUES = {
    *(f"arena.cli.{name}" for name in ("contestants", "contesting", "exploiting", "recontesting")),
    "arena.run.rounds",
}
"""They rate players, and are imported where there are some."""


def heavy_after(*names: str) -> set[str]:
    """Which heavy packages a fresh Python has loaded after it has imported these modules."""
    program = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_command_line_and_all_roles_are_imported_without_anything_heavy() -> None:
    roles = {
        module for module in modules() if within(module, (*(f"arena.{name}" for name in ROLES), "arena.group.group"))
    }
    assert heavy_after("arena", "arena.cli.main", *sorted(roles - OF_LEAGUES)) == set()


def test_the_games_and_their_adapters_are_imported_without_torch_and_mpi() -> None:
    games = [module for module in modules() if within(module, "envs")]
    assert not heavy_after(*games) & {"torch", "mpi4py", "rich", "stable_baselines3"}
