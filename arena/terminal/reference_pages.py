"""Reference pages in Markdown: every configuration key and every command, as the source declares them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from arena.config import league, matches, schema
from arena.terminal.reference import docstring, keys_of

_LOADED: dict[tuple[type, str], str] = {(schema.Config, "name"): "the file's name"}  # by reading a file
_HEAD = "| key | type | default | meaning |\n|---|---|---|---|"


class Section(NamedTuple):
    """One table of the configuration page."""

    heading: str
    struct: type[msgspec.Struct]
    about: str


_SECTIONS = (
    Section("Top level", schema.Config, "The keys of the file."),
    Section("An entry of `envs`", schema.EnvConfig, "Explained in [Environments](../environments.md)."),
    Section(
        "`external` of an entry of `envs`",
        schema.TickRules,
        "Explained in [External games](../external-games.md).",
    ),
    Section("An entry of `policies`", schema.PolicyConfig, "Explained in [Algorithms](../algorithms/index.md)."),
    Section("An entry of `matches`", matches.MatchConfig, "Explained in [Configuration](index.md#matches)."),
    Section("`evaluation`", schema.EvaluationConfig, "Explained in [Evaluation](../evaluation.md)."),
    Section("`best`", schema.BestConfig, "Explained in [Results](../results.md#the-best-checkpoint)."),
    Section(
        "`curriculum`, and an entry of `callbacks` or `loggers`",
        schema.CallbackConfig,
        "Explained in [Curriculum](../curriculum.md), [Callbacks](../callbacks.md), [Results](../results.md#loggers).",
    ),
    Section("`league`", league.LeagueConfig, "Explained in [Leagues](../leagues.md#between-two-rounds)."),
    Section("`league.snapshots.gate`", league.GateConfig, ""),
    Section("`league.evolution`", league.EvolutionConfig, ""),
    Section("An entry of `league.evolution.perturb`", league.PerturbConfig, ""),
    Section("`league.decided`", league.DecidedConfig, ""),
    Section("All generators of matches", matches.Generator, "Explained in [Leagues](../leagues.md#who-meets-whom)."),
)


def configuration() -> str:
    """Every key of the configuration, section by section."""
    parts = [
        "# Configuration keys\n",
        "Written by `make reference` from `arena/config/`. This command checks a configuration against it:\n",
        "```sh\narena check configs/touchdown_2v2.yaml\n```\n",
        "How the keys work together is told in [Configuration](index.md).\n",
    ]
    parts += [_section(section.heading, section.about, keys=_rows(section.struct)) for section in _SECTIONS]
    shared = set(_rows(matches.Generator))
    for title, kinds in (("Generator", matches.GENERATORS), ("Rule", matches.RULES)):
        for name, struct in kinds.items():
            own = [row for row in _rows(struct) if row not in shared]
            parts.append(_section(f"{title} `{name}`", docstring(struct).split("\n")[0], keys=own))
    return "\n".join(parts)


def _section(heading: str, about: str, *, keys: Sequence[str]) -> str:
    table = f"{_HEAD}\n" + "\n".join(keys) if keys else "No keys of its own."
    return "\n\n".join(part for part in (f"## {heading}", about, table) if part) + "\n"


def _rows(struct: type[msgspec.Struct]) -> list[str]:
    kinds = [type_words(_type_at(struct, option.name)) for option in keys_of(struct)]
    return [
        f"| `{name}` | {kind} | {_LOADED.get((struct, name), f'`{default}`')} | {_escaped(words)} |"
        for kind, (name, default, words) in zip(kinds, keys_of(struct), strict=True)
    ]


def _type_at(struct: type[Any], path: str) -> Any:
    """The type of a key; `reset.after` is the key `after` of the struct at `reset`."""
    head, _, rest = path.partition(".")
    (field,) = (field for field in msgspec.structs.fields(struct) if field.encode_name == head)
    return _type_at(type(field.default), rest) if rest else field.type


def type_words(kind: Any) -> str:
    """A type in words: `integer >= 1`, `` `auto` or text ``."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_words(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in parts)
    if origin is Annotated:
        limits = parts[1]
        if limits.pattern is not None:
            return "`#rrggbb`"
        bounds = ((">=", limits.ge), (">", limits.gt), ("<=", limits.le), ("<", limits.lt))
        said = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None and abs(bound) < 1e6]
        return f"{type_words(parts[0])} {', '.join(said)}".strip()
    words = {str: "text", int: "integer", float: "number", bool: "bool", tuple: "list", Any: "any value"}
    return words.get(origin or kind, "mapping")


def _escaped(words: str) -> str:
    """Words for a cell of a table: `<` outside of code is no tag, and a bar no border."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", words).replace("|", "\\|")


def commands(parser: argparse.ArgumentParser) -> str:
    """Every command with its arguments and options.

    Args:
        parser: of the command line.
    """
    parts = [
        "# Commands\n",
        "Written by `make reference` from the command line itself; `arena COMMAND --help` shows the same.\n",
        "```sh\narena --version\narena train --help\n```\n",
        "`python -m arena` is the same as `arena`.\n",
        "## Exit codes\n",
        f"{parser.epilog}\n",
    ]
    for name, about, command in _commands_of(parser):
        parts.append(f"## arena {name}\n")
        parts.append(f"```\n{_synopsis(name, command)}\n```\n")
        about = f"{about.rstrip('?')}{'?' if about.endswith('?') else '.'}"
        parts.append(" ".join(part for part in (f"{about[0].upper()}{about[1:]}", command.description) if part) + "\n")
        parts.append("| argument | meaning |\n|---|---|\n" + "\n".join(_argument_rows(command)) + "\n")
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


def _synopsis(name: str, command: argparse.ArgumentParser) -> str:
    positional = [_value(action) for action in command._actions if not action.option_strings]
    return " ".join(["arena", name, *positional, "[OPTIONS]"])


def _argument_rows(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if action.dest != "help" and action.help != argparse.SUPPRESS:
            shown = " ".join([", ".join(action.option_strings), _value(action)]).strip()
            words = f"{action.help or ''}{' (required)' if action.required and action.option_strings else ''}"
            yield f"| `{shown}` | {_escaped(words)} |"


def _value(action: argparse.Action) -> str:
    """What follows an option, or stands in a place: `CONFIG`, `[NAME ...]`."""
    if action.nargs == 0:
        return ""
    name = str(action.metavar or action.dest.upper())
    return {"+": f"{name} [{name} ...]", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)
