"""`arena list`: everything that has a name, with its options, read from its source; and pages in Markdown."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from arena import registry
from arena.config import league, matches, schema
from arena.errors import ConfigError, nearest
from arena.terminal.output import say

_FIELD = re.compile(r"    (\w+): .*?  # (.+)")
_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)  # of a docstring's section `Args:`
_GIVEN = {"lanes", "env", "context", "copy"}  # to a game, a wrapper or a connection, by the arena itself
_PARTS_OF_MATCHES = {**matches.GENERATORS, **matches.RULES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="whose options to show: of one, or of all environments, connections, wrappers, algorithms, generators, "
        "rules",
    )
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="a module that registers names of your own, as under `imports` of a configuration",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="as a page: of NAMEs, of all keys (configuration), of all commands (commands); without a NAME of all "
        "algorithms",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help="the JSON Schema of configurations and experiments, with which an editor completes and checks them",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the names, or the options of those that are named; returns the exit status."""
    registry.import_plugins(arguments.imports)
    if arguments.schema:
        from arena.cli.json_schema import configuration_schema

        say(json.dumps(configuration_schema(), indent=1))
        return 0
    if arguments.markdown:
        # A page of the documentation.
        if arguments.names == ["configuration"]:
            text = configuration()
        elif arguments.names == ["commands"]:
            from arena.cli.main import command_parser

            text = commands(command_parser(complete=True))
        else:
            text = page(named(arguments.names or ["algorithms"]))
        say(text.removesuffix("\n"))
        return 0
    described = [lines(name) for name in named(arguments.names)] or [listing()]  # all, before any is printed
    say("\n".join(line for each in described for line in each))
    return 0


class Catalog(NamedTuple):
    """Built-ins of one kind: their common title, and a line about each."""

    title: str
    entries: Mapping[str, str]


def docstring(made: Any) -> str:
    """The docstring of a class or function; under `python -OO`, which strips it, from its source."""
    stripped = isinstance(made, type) and vars(made).get("__doc__") is None  # `getdoc` would take a base class's
    if not stripped and (found := inspect.getdoc(made)):
        return found
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(made))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # created at run time, or an object
        return ""
    return (ast.get_docstring(node) or "") if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else ""


def _about(entry: registry.Entry | type[msgspec.Struct]) -> str:
    """The description of a built-in, or the first sentence of its docstring."""
    if isinstance(entry, registry.Entry):
        return entry.description
    head = docstring(entry).partition("\n")[0].removesuffix(".")
    return head[:1].lower() + head[1:]


_TITLES: Mapping[str, Mapping[str, Any]] = {
    "environments": registry.ENVIRONMENTS,
    "connections to external games": registry.EXTERNAL,
    "wrappers of environments": registry.WRAPPERS,
    "algorithms": registry.ALGORITHMS,
    "generators of matches": matches.GENERATORS,
    "rules of matchmaking": matches.RULES,
}
SHELVES: Mapping[str, Catalog] = {
    title.partition(" ")[0]: Catalog(title, {name: _about(entry) for name, entry in entries.items()})
    for title, entries in _TITLES.items()
}
_SECTIONS = {"envs": "environments", "policies": "algorithms", "matches": "generators"}  # where they are configured
_BUILT_IN: Mapping[str, str] = {name: text for shelf in SHELVES.values() for name, text in shelf.entries.items()}


class Option(NamedTuple):
    """An option of an algorithm or a rule, an argument of a game, connection or wrapper, or a key of a generator."""

    name: str
    default: str  # as YAML would have it; `required` where there is none
    text: str  # what it means; empty where the source does not say
    kind: Any = None  # its type, of a key


def _registered() -> dict[str, tuple[str, Any]]:
    """What users have registered: by name its kind and the object."""
    return {
        name: (kind, found) for kind, known in vars(registry.REGISTERED).items() for name, found in vars(known).items()
    }


def options_of(name: str) -> list[Option]:
    """The options of something by its short name, or of an algorithm as `package.module:Class`, in source order."""
    if name in registry.ENVIRONMENTS or name in registry.EXTERNAL:
        made = registry.environment_factory(name)
        return keys_of(made.Options) if hasattr(made, "Options") else _arguments(made)
    if name in registry.WRAPPERS:
        return _fields(registry.wrapper(name))
    registered = _registered()
    if name in registered and registered[name][0] != "algorithm":
        return _arguments(registered[name][1])
    if name in _PARTS_OF_MATCHES:
        return keys_of(_PARTS_OF_MATCHES[name])
    if ":" not in name and name not in registry.ALGORITHMS and name not in registered:
        raise ConfigError(
            f"there is nothing called {name!r}; {nearest(name, [*_BUILT_IN, *SHELVES, *registered])}; or an algorithm "
            "of your own as 'package.module:Name'"
        )
    cls = registry.algorithm(name)
    declared = getattr(cls, "Options", None)
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        found = keys_of(declared, optional=True)
    elif dataclasses.is_dataclass(declared):
        found = _fields(declared)
    else:  # the keywords of its `__init__`
        taken, parameters = registry.option_parameters(cls), inspect.signature(cls.__init__).parameters
        found = [_argument(parameters[name], _said(cls).get(name, "")) for name in taken.names]
        found += [Option("...", "", "takes any other name as well")] if taken.open else []
    return [option for option in found if option.name.partition(".")[0] not in getattr(cls, "refused_options", ())]


def _fields(declared: Any) -> list[Option]:
    """The fields of a dataclass."""
    descriptions = {**_said(declared), **_descriptions_of(declared)}
    fields = [field for field in dataclasses.fields(declared) if field.name not in _GIVEN]
    return [Option(field.name, _default(field), descriptions.get(field.name, "")) for field in fields]


def keys_of(kind: type[msgspec.Struct], *, inside: str = "", optional: bool = False) -> list[Option]:
    """The keys of a mapping of the configuration; keys of a mapping inside it as paths: `reset.after`.

    `inside` is the path before the keys, with its dot; `optional` adds the keys of mappings that are null by default.
    """
    hints = get_type_hints(kind, include_extras=True)
    said = {name: [meta.description for meta in getattr(hint, "__metadata__", ())] for name, hint in hints.items()}
    descriptions = {**_descriptions_of(kind), **{name: text[-1] for name, text in said.items() if text and text[-1]}}
    found = []
    hints = get_type_hints(kind) if optional else {}
    for field in msgspec.structs.fields(kind):
        key = f"{inside}{field.encode_name}"
        if isinstance(field.default, msgspec.Struct):
            found += keys_of(type(field.default), inside=f"{key}.")
        else:
            found.append(Option(key, _default(field), descriptions.get(field.name, ""), field.type))
        for arm in get_args(hints.get(field.name)) if field.default is None else ():
            if isinstance(arm, type) and issubclass(arm, msgspec.Struct):
                found += keys_of(arm, inside=f"{key}.", optional=True)
    return found


def _descriptions_of(declared: type[Any]) -> dict[str, str]:
    """The comments behind the fields of a class and of those that it inherits.

    There are none if the class was created at run time, and so has no source.
    """
    found: dict[str, str] = {}
    for cls in reversed(declared.__mro__):
        if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
            with suppress(OSError, TypeError):
                lines = map(_FIELD.match, inspect.getsource(cls).splitlines())
                found |= {match[1]: match[2] for match in lines if match}
    return found


def _default(field: dataclasses.Field[Any] | msgspec.structs.FieldInfo) -> str:
    missing = (dataclasses.MISSING, msgspec.NODEFAULT)
    if field.default_factory not in missing:
        return json.dumps(field.default_factory(), default=str)
    return "required" if field.default in missing else _yaml(field.default)


def _arguments(make: Callable[..., Any]) -> list[Option]:
    """The arguments with which a game is made."""
    parameters = inspect.signature(make).parameters
    return [_argument(one, _said(make).get(one.name, "")) for one in parameters.values() if one.name not in _GIVEN]


def _argument(parameter: inspect.Parameter, text: str) -> Option:
    default = "required" if parameter.default is parameter.empty else _yaml(parameter.default)
    return Option(parameter.name, default, text)


def _said(made: Any) -> dict[str, str]:
    """The descriptions of arguments in a docstring."""
    _, _, described = docstring(made).partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", described)[0]
    return {name: " ".join(text.split()).removesuffix(".") for name, text in _ARGUMENT.findall(section)}


def _yaml(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value not in (0.0, 1.0) and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def lines(name: str) -> list[str]:
    """Something and its options, for a terminal."""
    found = options_of(name)
    widths = [max((len(option[column]) for option in found), default=0) for column in (0, 1)]
    head = f"{name}: {_BUILT_IN[name]}" if name in _BUILT_IN else name
    rows = [f"  {option.name:<{widths[0]}}  {option.default:<{widths[1]}}  {option.text}".rstrip() for option in found]
    return [head, *(rows or ["  no options"])]


def listing() -> list[str]:
    """All that has a name, a line for each, for a terminal."""
    width = max(map(len, _BUILT_IN))
    registered = {
        name: f"{kind}: {docstring(found).partition(chr(10))[0]}".removesuffix(": ").removesuffix(".")
        for name, (kind, found) in _registered().items()
    }
    return [
        line
        for shelf in (*SHELVES.values(), *([Catalog("registered", registered)] if registered else []))
        for line in (f"{shelf.title}:", *(f"  {name:<{width}}  {text}" for name, text in shelf.entries.items()))
    ]


def named(names: Sequence[str]) -> list[str]:
    """Single names: `rules` stands for all rules, and `algorithms` for all algorithms that need no other library.

    A section of the configuration stands for what it lists: `envs` for environments.
    """
    found: list[str] = []
    for name in (_SECTIONS.get(one, one) for one in names):
        known = SHELVES[name].entries if name in SHELVES else (name,)
        found += [one for one in known if name != "algorithms" or not registry.ALGORITHMS[one].extra]
    return found


def page(names: Sequence[str]) -> str:
    """The options of what is named, in Markdown."""
    shelves = [shelf.title for shelf in SHELVES.values() if any(name in shelf.entries for name in names)]
    titles = " and the ".join(shelves or ["algorithms"])
    parts = [
        f"# Options of the {titles}\n",
        "Written by `make reference` from the source; `arena list` shows the options of one in the terminal:\n",
        f"```sh\narena list {names[0]}\n```\n",
    ]
    for name in names:
        rows = [f"| `{option.name}` | `{option.default}` | {option.text} |" for option in options_of(name)]
        table = ["| option | default | meaning |", "|---|---|---|", *rows] if rows else ["No options."]
        text = _BUILT_IN.get(name, "an algorithm of your own")
        if name in registry.ALGORITHMS:  # its source, relative to `docs/algorithms/`
            file = registry.ALGORITHMS[name].target.partition(":")[0].replace(".", "/")
            text += f"; [{file}.py](../../{file}.py)"
        parts.append("\n".join([f"## {name}\n", f"{text}\n", *table, ""]))
    return "\n".join(parts)


# pages of all keys and all commands

_LOADED: dict[tuple[type, str], str] = {(schema.Config, "name"): "the file's name"}  # by reading a file


_PAGE_SECTIONS: tuple[tuple[str, type[msgspec.Struct], str], ...] = (  # heading, keys, and a sentence
    ("Top level", schema.Config, "The keys of the file."),
    ("An entry of `envs`", schema.EnvConfig, "Explained in [Environments](../environments.md)."),
    ("`external` of an entry of `envs`", schema.TickRules, "Explained in [External games](../external-games.md)."),
    ("An entry of `policies`", schema.PolicyConfig, "Explained in [Algorithms](../algorithms/index.md)."),
    ("An entry of `matches`", matches.MatchConfig, "Explained in [Configuration](index.md#matches)."),
    ("`evaluation`", schema.EvaluationConfig, "Explained in [Evaluation](../evaluation.md)."),
    ("`best`", schema.BestConfig, "Explained in [Results](../results.md#the-best-checkpoint)."),
    (
        "`curriculum`, and an entry of `callbacks` or `loggers`",
        schema.CallbackConfig,
        "Explained in [Curriculum](../curriculum.md), [Callbacks](../callbacks.md), [Results](../results.md#loggers).",
    ),
    ("`league`", league.LeagueConfig, "Explained in [Leagues](../leagues.md#between-two-rounds)."),
    ("`league.snapshots.gate`", league.GateConfig, ""),
    ("`league.evolution`", league.EvolutionConfig, ""),
    ("An entry of `league.evolution.perturb`", league.PerturbConfig, ""),
    ("`league.decided`", league.DecidedConfig, ""),
    ("All generators of matches", matches.Generator, "Explained in [Leagues](../leagues.md#who-meets-whom)."),
)


def _keys(struct: type[msgspec.Struct]) -> list[str]:
    """A row of a table for each key."""
    return [
        f"| `{path}` | {type_text(kind)} | {_LOADED.get((struct, path), f'`{default}`')} | {_escaped(text)} |"
        for path, default, text, kind in keys_of(struct)
    ]


def configuration() -> str:
    """Every key of the configuration, section by section, in Markdown."""
    parts = [
        "# Configuration keys\n",
        "Written by `make reference` from `arena/config/`. This command checks a configuration against it:\n",
        "```sh\narena check configs/touchdown_2v2.yaml\n```\n",
        "How the keys work together is told in [Configuration](index.md).\n",
    ]
    sections = [(heading, about, _keys(struct)) for heading, struct, about in _PAGE_SECTIONS]
    shared = set(_keys(matches.Generator))
    for title, kinds in (("Generator", matches.GENERATORS), ("Rule", matches.RULES)):
        for name, struct in kinds.items():
            rows = [row for row in _keys(struct) if row not in shared]
            sections.append((f"{title} `{name}`", docstring(struct).split("\n")[0], rows))
    for heading, about, rows in sections:
        table = "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])
        text = [f"## {heading}", about, table if rows else "No keys of its own."]
        parts.append("\n\n".join(filter(None, text)) + "\n")
    return "\n".join(parts)


def type_text(kind: Any) -> str:
    """A type in words: `integer >= 1`, `` `auto` or text ``."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_text(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if origin is Annotated:
        limits = parts[1]
        if limits.pattern is not None:
            return "`#rrggbb`"
        bounds = ((">=", limits.ge), (">", limits.gt), ("<=", limits.le), ("<", limits.lt))
        said = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None and abs(bound) < 1e6]
        return f"{type_text(parts[0])} {', '.join(said)}".strip()
    names = {str: "text", int: "integer", float: "number", bool: "bool", tuple: "list", Any: "any value"}
    return names.get(origin or kind, "mapping")


def _escaped(text: str) -> str:
    """Words for a cell of a table: `<` outside of code is no tag, and a bar no border."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text).replace("|", "\\|")


def commands(parser: argparse.ArgumentParser) -> str:
    """Every command of a command line with its arguments and options, in Markdown."""
    parts = [
        "# Commands\n",
        "Written by `make reference` from the command line itself; `arena COMMAND --help` shows the same.\n",
        "```sh\narena --version\narena train --help\n```\n",
        "`python -m arena` is the same as `arena`.\n",
        "## Exit codes\n",
        f"{parser.epilog}\n",
    ]
    for name, about, command in _commands_of(parser):
        arguments = []
        rows = ["| argument | meaning |", "|---|---|"]
        for action in command._actions:
            value = str(action.metavar or action.dest.upper())
            forms = {"0": "", "+": f"{value} [{value} ...]", "*": f"[{value} ...]", "?": f"[{value}]"}
            value = forms.get(str(action.nargs), value)
            if not action.option_strings:
                arguments.append(value)
            if action.dest != "help" and action.help != argparse.SUPPRESS:
                shown = " ".join([", ".join(action.option_strings), value]).strip()
                text = f"{action.help or ''}{' (required)' if action.required and action.option_strings else ''}"
                rows.append(f"| `{shown}` | {_escaped(text)} |")
        about = f"{about.rstrip('?')}{'?' if about.endswith('?') else '.'}"
        described = " ".join(filter(None, (f"{about[0].upper()}{about[1:]}", command.description)))
        synopsis = " ".join(["arena", name, *arguments, "[OPTIONS]"])
        parts += [f"## arena {name}\n", f"```\n{synopsis}\n```\n", f"{described}\n", "\n".join(rows) + "\n"]
    return "\n".join(parts)


def _commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, help and parser of each command; of a command with subcommands, only of these."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in found._choices_actions}
    for name, command in found.choices.items():
        if command._subparsers is None:
            yield name, helps[name], command
        else:
            for inner, about, inner_command in _commands_of(command):
                yield f"{name} {inner}", about, inner_command
