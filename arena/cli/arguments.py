"""What the commands' parsers share: how they fail, the types of values, and the arguments of several commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arena.errors import nearest, nearest_key
from arena.terminal.output import complain, say

if TYPE_CHECKING:
    from arena.plan.process_count import RankCount

_TOO_MANY = 2**53  # from here on, a float no longer holds every integer
_LAST_PORT = 65535


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names: an abbreviation that is unique today may be ambiguous tomorrow.

    Its messages are flushed at once: help that cannot be written is an error; a usage error that cannot be written is
    reported by the exit code alone.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            say(message.removesuffix("\n"))
        else:
            complain(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses unknown options here, so that a command shows its own usage and the nearest option."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = (action for action in self._actions if action.help != argparse.SUPPRESS)  # without removed ones
            options = [name for action in known for name in action.option_strings if name.startswith("--")]
            hints = [
                f"{word}; {nearest_key(word.partition('=')[0], options)}" for word in unknown if word.startswith("-")
            ]
            self.error(f"unrecognized arguments: {(hints or [' '.join(unknown)])[0]}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}; {nearest(str(value), map(str, action.choices))}")


# arguments of several commands


def add_config(parser: argparse.ArgumentParser) -> None:
    """The configuration, and overrides of its values."""
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    add_overrides(parser, "change one value of the configuration, such as matches[0].lanes=4; may be given many times")


def add_overrides(parser: argparse.ArgumentParser, about: str, *, metavar: str = "KEY.PATH=VALUE") -> None:
    """`--set`, whose texts are `arguments.overrides`."""
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar=metavar, help=about)


def add_run(parser: argparse.ArgumentParser, *, folder: str) -> None:
    """The settings of a run beside its configuration; `folder` is the default of the run folder."""
    parser.add_argument("--run-dir", metavar="DIR", help=f"the run's folder (default: {folder})")
    parser.add_argument(
        "--ticks", type=positive_int, metavar="N", help="ticks of every match, over the configuration's"
    )
    parser.add_argument("--profile", action="store_true", help="measure where the time of every role goes")
    parser.add_argument(
        "--allow-unproved",
        action=RemovedOption,
        instead="a run that can deadlock is refused, and `arena plan` names what helps, such as `schedule = 'ticks'` "
        "in the class of an algorithm whose workers meet after the same ticks",
    )


class RemovedOption(argparse.Action):
    """An option of an earlier version: an error that names what to do in its place."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, instead: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        self._instead = instead

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        parser.error(f"{self.option_strings[0]} has been removed: {self._instead}")


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """How many processes a run of a configuration has."""
    parser.add_argument(
        "--ranks",
        type=ranks,
        metavar="N",
        help="processes: a number, 1: everything in this one; auto: one for each core; one_per_role (default: the "
        "configuration's `ranks`, auto)",
    )


# types of values


def _number(text: str, is_allowed: Callable[[float], bool], expected: str) -> float:
    with suppress(ValueError):
        if is_allowed(found := float(text)):
            return found
    raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")


def positive_int(text: str, expected: str = "an integer >= 1") -> int:
    """An integer >= 1, also as 1e6."""
    return int(_number(text, lambda number: number.is_integer() and 1 <= number < _TOO_MANY, expected))


def ranks(text: str) -> RankCount:
    """A number of processes, `auto` or `one_per_role`."""
    if text == "auto":
        return "auto"
    if text == "one_per_role":
        return "one_per_role"
    return positive_int(text, "an integer >= 1, auto or one_per_role")


def non_negative_int(text: str) -> int:
    """An integer >= 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def non_negative_float(text: str) -> float:
    """A finite number >= 0."""
    return _number(text, lambda number: 0 <= number < float("inf"), "a number >= 0")


def port(text: str) -> int:
    """A TCP port; 0: any."""
    found = non_negative_int(text)
    if found > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {_LAST_PORT}, got {text!r}")
    return found


def number_up_to(high: float) -> Callable[[str], float]:
    """The type of numbers above 0, at most `high`: a probability of error, a difference in Elo, a speed."""
    return lambda text: _number(text, lambda number: 0 < number <= high, f"a number above 0, at most {high:g}")
