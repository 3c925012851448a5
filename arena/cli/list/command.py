"""`arena list`: everything that has a name, with its options; and pages of the documentation in Markdown."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from arena import registry
from arena.cli.list.catalog import BUILT_IN, SHELVES, docstring, keys_of, kinds_of, options_of
from arena.config import league, matches, schema
from arena.errors import ConfigError
from arena.terminal.output import say


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
        from arena.cli.list.json_schema import configuration_schema

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


def lines(name: str) -> list[str]:
    """Something and its options, for a terminal; all that have this name, one after the other."""
    kinds, shown = kinds_of(name), list[str]()
    for kind in kinds or ["algorithm"]:
        found = options_of(name, kind)
        widths = [max((len(option[column]) for option in found), default=0) for column in (0, 1)]
        head = f"{name}: {BUILT_IN[name]}" if name in BUILT_IN and kind == kinds[0] else name
        shown.append(head if len(kinds) < 2 else f"{head} ({kind})")
        rows = [f"  {one.name:<{widths[0]}}  {one.default:<{widths[1]}}  {one.text}".rstrip() for one in found]
        shown += rows or ["  no options"]
    return shown


def listing() -> list[str]:
    """All that has a name, a line for each, for a terminal."""
    width = max(map(len, BUILT_IN))

    def about(kind: str, found: Any) -> str:
        return f"{kind}: {docstring(found).partition(chr(10))[0]}".removesuffix(": ").removesuffix(".")

    rows = {shelf.title: [*shelf.entries.items()] for shelf in SHELVES.values()}
    for plugin in registry.added():
        kind = f"{plugin.kind} of {plugin.distribution}".removesuffix(" of ")
        try:
            text = about(kind, registry.load_plugin(plugin))
        except ConfigError as error:  # the others can be used
            text = f"{kind}, CANNOT BE USED: {error.message}"
        rows.setdefault("plugins" if plugin.distribution else "registered", []).append((plugin.name, text))
    return [
        line
        for title, named in rows.items()
        for line in (f"{title}:", *(f"  {name:<{width}}  {text}" for name, text in named))
    ]


_SECTIONS = {"envs": "environments", "policies": "algorithms", "matches": "generators"}  # where they are configured


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
        text = BUILT_IN.get(name, "an algorithm of your own")
        if name in registry.ALGORITHMS:  # its source, relative to `docs/algorithms/`
            file = registry.ALGORITHMS[name].target.partition(":")[0].replace(".", "/")
            text += f"; [{file}.py](../../{file}.py)"
        parts.append("\n".join([f"## {name}\n", f"{text}\n", *table, ""]))
    return "\n".join(parts)


# pages of all keys and all commands

_LOADED: dict[tuple[type, str], str] = {(schema.Config, "name"): "the file's name"}  # by reading a file


_PAGE_SECTIONS: tuple[tuple[str, type[msgspec.Struct], str], ...] = (  # heading, keys, and a sentence
    ("Top level", schema.Config, "The keys of the file."),
    ("An entry of `envs`", schema.Env, "Explained in [Environments](../environments.md)."),
    ("`external` of an entry of `envs`", schema.TickRules, "Explained in [External games](../external-games.md)."),
    ("An entry of `policies`", schema.Policy, "Explained in [Algorithms](../algorithms/index.md)."),
    ("An entry of `matches`", matches.Match, "Explained in [Configuration](index.md#matches)."),
    ("`evaluation`", schema.Evaluation, "Explained in [Evaluation](../evaluation.md)."),
    ("`best`", schema.Best, "Explained in [Results](../results.md#the-best-checkpoint)."),
    (
        "`curriculum`, and an entry of `callbacks` or `loggers`",
        schema.CallbackEntry,
        "Explained in [Curriculum](../curriculum.md), [Callbacks](../callbacks.md), [Results](../results.md#loggers).",
    ),
    ("`league`", league.League, "Explained in [Leagues](../leagues.md#between-two-rounds)."),
    ("`league.snapshots.gate`", league.Gate, ""),
    ("`league.evolution`", league.Evolution, ""),
    ("An entry of `league.evolution.perturb`", league.Perturb, ""),
    ("`league.decided`", league.Decided, ""),
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
