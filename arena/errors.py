"""All exceptions of the arena, and the suggestions in their messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

_MOST_LISTED = 40  # names in a message
_MOST_KEYS = 12  # keys in a message; with more, it names the command that lists them
_NEAREST = 3  # keys in a message that names this command
_NAMED = 2  # names in a shortened list
_CLOSE = 0.65  # of difflib's ratio: one letter too many, too few, wrong or exchanged in a word of four is close
MISTAKE = 2
"""The exit status after a mistake of the user."""


class Start:
    """Where the arena was started; set by `arena.diagnostics.start_folder`."""

    folder: ClassVar[str] = ""  # absolute; empty: no command or run of a program is going on


def shown(path: object) -> str:
    """A path as messages show it: relative if it is below the folder in which the arena was started."""
    text, start = str(path), Start.folder
    if not start:
        return text
    return "." if text == start else text.removeprefix(f"{start}/")


class ArenaError(Exception):
    """Base of all errors of the arena; any of them can be sent to another process."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), vars(self), self.args)


class ConfigError(ArenaError):
    """A mistake in the configuration or on the command line: exit 2, one message, no traceback.

    Args:
        message: what was found and what is allowed.
        path: the place in the configuration, as `matches[0].seats[2]`.
        source: the file, or another name of the configuration's origin.
    """

    def __init__(self, message: str, *, path: str = "", source: str = "") -> None:
        super().__init__(message)
        self.message, self.path, self.source = message, path, source

    def __str__(self) -> str:
        where = ": ".join(part for part in (shown(self.source), self.path) if part)
        return f"{where}: {self.message}" if where else self.message


def _rebuild(kind: type[ArenaError], attributes: dict[str, object], args: tuple[object, ...]) -> ArenaError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class BudgetReached(ArenaError):
    """The match has used all its ticks: a worker's `run` ends here."""


class ProtocolError(ArenaError):
    """A message that the receiver does not expect in its state: a bug, or a mixed installation."""


class GroupError(ArenaError):
    """The workers of one policy called different collectives, or hold different weights."""


class GameError(ArenaError):
    """A game breaks its interface.

    Args:
        found: the value that the game gave, and what was expected.
        entity: the entity that it is for; None: all.
        lane: the lane that it is for; None: all. A game knows only its own lanes; its caller sets the match's lane.
        tick: of the match; None: not yet known. A game does not know it; its caller adds it.
    """

    def __init__(
        self, found: str, *, entity: str | None = None, lane: int | None = None, tick: int | None = None
    ) -> None:
        super().__init__(found)
        self.found, self.entity, self.lane, self.tick = found, entity, lane, tick

    def __str__(self) -> str:
        whom = "" if self.entity is None else f" {self.entity!r}"
        where = "" if self.lane is None else f" in lane {self.lane}"
        when = "" if self.tick is None else f" on tick {self.tick}"
        return f"the game gave{whom}{where}{when} {self.found}"


class NotZeroSum(ArenaError):
    """The returns of an episode contradict `outcome: zero_sum` of its game; the message says how."""


class WriteError(ArenaError, OSError):
    """A file or folder of a run cannot be written; the message says which one, why, and what remains."""


class CallbackFailed(ArenaError):
    """A user's callback has raised: its name, and the traceback of its exception."""

    def __init__(self, who: str, trace: str) -> None:
        super().__init__(f"{who}\n{trace}")
        self.who, self.trace = who, trace


class Deadlock(ArenaError):
    """Every role waits for another role; the message says for which."""


class RunFailed(ArenaError):
    """A run that `arena.train` or a `Trainer` has started has failed.

    Args:
        message: what has happened.
        who: the role that has failed; empty: not known.
        trace: its traceback, or a sentence.
    """

    def __init__(self, message: str, *, who: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.who, self.trace = who, trace


class ExportError(ArenaError):
    """A step of `arena export` has failed; the message says which, and why."""


class LinkError(ArenaError):
    """The link between a driver and a simulator, one file, has failed.

    Args:
        message: what has happened; `{simulator}` in it stands for the simulator.
        source: the path of the file.

    Attributes:
        simulator: its number in the match; None outside of the arena.
    """

    simulator: int | None = None

    def __init__(self, message: str, *, source: str = "") -> None:
        super().__init__(message)
        self.message, self.source = message, source

    def __str__(self) -> str:
        name = "the simulator" if self.simulator is None else f"simulator {self.simulator}"
        if "{simulator}" in self.message:
            return self.message.replace("{simulator}", name)
        parts = ("" if self.simulator is None else name, self.source, self.message)
        return ": ".join(part for part in parts if part)


class LayoutError(LinkError):
    """A file of a link breaks the layout.

    Args:
        offset: of the field in the file, in bytes; in a list, of the element.
        field: its name, such as `walker.n`.
        found: the value in the file.
        expected: what is allowed.
        source: the path of the file.
    """

    def __init__(self, offset: int, field: str, found: object, expected: str, *, source: str = "") -> None:
        super().__init__(f"byte {offset}: {field}: found {found}, expected {expected}", source=source)
        self.offset, self.field, self.found, self.expected = offset, field, found, expected


class VersionError(LayoutError):
    """A file of a link has another version than 0."""


class PeerGone(LinkError):
    """The program of a simulator has ended; the message has its status or signal, and its last lines."""


class PeerSilent(LinkError):
    """The other side of a link has not handed over in time."""


class PeerClosed(LinkError):
    """The other side has closed the link."""


class UnsafeFile(LinkError):
    """A file or folder of a link does not belong to this user alone, or is not what it should be."""


class NoRoom(LinkError):
    """There is no space for a file, it has changed too often, or a message may not be sent."""


class ActionError(LinkError):
    """Actions do not fit their group."""

    def __init__(self, group: str, found: object, expected: str) -> None:
        super().__init__(f"actions of group {group!r}: found {found}, expected {expected}")
        self.group, self.found, self.expected = group, found, expected


class PlayerLeft(ArenaError):
    """The human player of `arena play` has ended the game; the message says when. `exit_code`: of the command."""

    def __init__(self, message: str, *, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RunStopped(ArenaError):
    """Another role failed, or the run was interrupted; that role reports it."""


class PeerLost(RunStopped):
    """Another process of the run has died; the launcher ends all of them."""


@contextmanager
def located(*, path: str = "", inside: str = "", source: str = "", who: str = "") -> Iterator[None]:
    """Adds the place to configuration errors that pass through, if they do not have one.

    Args:
        path: in the configuration.
        inside: the prefix of the errors' own paths, such as `options.n_steps`.
        source: the file.
        who: the subject of the message, put before it.
    """
    try:
        yield
    except ConfigError as error:
        place = ".".join(part for part in (inside, error.path) if part)
        origin, parts = error.source, [who]
        if path and not place:  # the error names a damaged file; the mistake is in the configuration
            place, origin, parts = path, source, [who, error.source]
        message = ": ".join(part for part in (*parts, error.message) if part)
        raise ConfigError(message, path=place, source=origin or source) from error


_OPTION = re.compile(
    r"(?<![\w-])--(?:(set) |(resume|untrained)\b|(run-dir|ticks|ranks|hosts|checkpoints|against|at)\b(?: (?=\d))?)"
)
"""Options of commands in messages: before a text that stands alone; without a value; with the name of an argument."""


@contextmanager
def in_python(
    *, resume: str = "resume=True", ticks: str = "replace(config, ticks=...)", run_dir: str = "run_dir="
) -> Iterator[None]:
    """Around a function that programs call: its errors name arguments where those of commands name options.

    `--checkpoints` becomes `checkpoints=`, `--set ticks=4` becomes `ticks=4`; the others what is given.
    """
    known = {"resume": resume, "ticks": ticks, "run-dir": run_dir}

    def argument(found: re.Match[str]) -> str:
        _, flag, name = found.groups()
        return known.get(flag or name) or (f"{flag}=True" if flag else f"{name.replace('-', '_')}=" if name else "")

    try:
        yield
    except ConfigError as error:
        error.message, error.source = (_OPTION.sub(argument, text) for text in (error.message, error.source))
        if error.path.startswith("--"):
            error.path = error.path[2:].replace("-", "_")
        raise


class OverriddenPlace(NamedTuple):
    """A place that `--set` filled: with its value, or (`made`) with a new mapping on the path to it."""

    path: str
    text: str  # of the override
    made: bool = False
    siblings: tuple[str, ...] = ()  # the names beside a mapping that was made


class Origin(NamedTuple):
    """Where a configuration comes from: a file, and the overrides of the command line."""

    source: str = ""
    overridden: tuple[OverriddenPlace, ...] = ()

    def blame(self, error: ConfigError) -> ConfigError:
        """The error with its source: the override that put the wrong value there, or else the file, with all overrides.

        An error that has a source already, such as a damaged checkpoint, keeps it.
        """
        if error.source:
            return error
        path = _INDEPENDENT.sub("", error.path)
        for place in reversed(self.overridden):
            if place.made and path == place.path:
                name = place.path.rpartition(".")[2]
                hint = f" ({place.path} was made by this; {nearest(name, place.siblings)})"
                if error.message.startswith("unknown key"):
                    hint = ""  # the message says what is known
                return ConfigError(error.message + hint, path=error.path, source=f"--set {place.text}")
            if not place.made and (path == place.path or path.startswith((f"{place.path}.", f"{place.path}["))):
                return ConfigError(error.message, path=error.path, source=f"--set {place.text}")
        given = [f"--set {text}" for text in dict.fromkeys(place.text for place in self.overridden)]
        source = " with ".join(part for part in (self.source, shorten(given)) if part)  # both may have the mistake
        return ConfigError(error.message, path=error.path, source=source)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Gives configuration errors that pass through here their source."""
        try:
            yield
        except ConfigError as error:
            raise self.blame(error) from error


_INDEPENDENT = re.compile(r"(?<=\w)#\d+(?=\.|$)")  # `policies.blue#1` stands in the configuration as `policies.blue`


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known name, if one is close, and all known names."""
    names = sorted(known)
    close = close_name(name, names)
    hint = "" if close is None else f"did you mean {close!r}? "
    return f"{hint}known: {listed(names) if names else 'none'}"


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "step_size": ("learning_rate",),
    "batch_size": ("minibatch_size",),
    "mini_batch_size": ("minibatch_size", "batch_size"),
    "epochs": ("n_epochs",),
    "num_epochs": ("n_epochs",),
    "update_epochs": ("n_epochs",),
    "net_arch": ("hidden_sizes",),
    "hidden_layers": ("hidden_sizes",),
    "discount": ("gamma",),
    "lam": ("gae_lambda",),
    "clip_coef": ("clip_range",),
    "entropy_coef": ("ent_coef",),
    "value_coef": ("vf_coef",),
    "num_steps": ("n_steps",),
    "train_freq": ("train_every",),
    "polyak": ("tau",),
    "n_envs": ("lanes",),
    "num_envs": ("lanes",),
    "total_timesteps": ("ticks",),
    "timesteps": ("ticks",),
    "seed": ("seed",),
    "obs": ("observation",),
    "action_mask": ("mask",),
    "terminated": ("end",),
    "done": ("end",),
    "winner": ("outcome",),
    "tie": ("draw",),
    "victory": ("win",),
    "defeat": ("loss",),
    "stop": ("end",),
    "step": ("tick",),
    "reset": ("start",),
    "begin": ("start",),
    "--host": ("--http",),
    "--port": ("--http",),
    "--steps": ("--ticks",),
    "--episodes": ("--games",),
    "--games": ("--episodes",),
    "--workers": ("--ranks",),
    "maximum": ("max",),
    "minimum": ("min",),
}
"""Names of options, keys and choices in other libraries, with the arena's names in the order of preference."""

_OF_CONFIGURATION = {
    "lanes": "`lanes` of a match, or of a generator in `matches`",
    "ticks": "`ticks`, a key of the configuration itself",
    "seed": "`seed`, a key of the configuration itself",
}


def nearest_key(name: str, known: Iterable[str], *, listing: str = "") -> str:
    """The end of a message about an unknown option or key: the one that was probably meant, and the known ones.

    If they are many, it names the three nearest, and the command that lists them all, `listing`.
    """
    names, ours = sorted(known), SYNONYMS.get(name, ())
    meant = next((one for one in ours if one in names), None)
    elsewhere = next((_OF_CONFIGURATION[one] for one in ours if one in _OF_CONFIGURATION), None)
    if meant is None and elsewhere is None:
        meant = close_name(name, names)
    hint = f"did you mean {meant!r}? " if meant is not None else f"it is {elsewhere}; " if elsewhere is not None else ""
    if not listing or len(names) <= _MOST_KEYS:
        return f"{hint}known: {listed(names) if names else 'none'}"
    close = difflib.get_close_matches(meant or name, names, n=_NEAREST, cutoff=0)
    three = "" if meant is None and elsewhere is not None else f"nearest: {', '.join(close)}; "
    return f"{hint}{three}`{listing}` shows all"


def listed(names: Sequence[str]) -> str:
    """Names in a message; of a long list the first ones, and their number."""
    more = f", ... ({len(names)} in all)" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


def close_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelled name probably means; None if none is close, such as 'red' for 'green'.

    If no name is close, upper and lower case are ignored: 'PPO' means 'ppo'.
    """
    exact = {one: one for one in known}
    folded = {one.casefold(): one for one in exact}
    for word, names in ((name, exact), (name.casefold(), folded)):
        close = difflib.get_close_matches(word, names, n=1, cutoff=_CLOSE)
        if close:
            return names[close[0]]
    return None


_PARSER_WORDS = {"array": "list", "object": "mapping", "int": "integer", "bool": "true or false", "str": "text"}
_PARSER_TEXTS = (  # patterns in messages of msgspec, and what stands there in ours
    (r"JSON is malformed: (.*) \(byte (\d+)\)", r"byte \2: \1"),
    (r"Input data was truncated", "it ends in the middle of a value"),
    (r"(Number|Integer value) out of range", "a number is too large for a float or an integer of 64 bits"),
    (r"'utf-8' codec can't decode .*", "it is no UTF-8 text"),
    (r"Object missing required field `([^`]*)`", r"the key '\1' is missing"),
    (r" - at `\$(?:\[\.\.\.\])*\.?([^`]*)`$", r" (at \1)"),
)


def parser_text(error: Exception) -> str:
    """What a parser says of data that it refuses, for a reader who has written the data and not the parser."""
    text = str(error)
    for pattern, ours in _PARSER_TEXTS:
        text = re.sub(pattern, ours, text)
    text = re.sub(r"\b(array|object|int|bool|str)\b(?=[^`]*`)", lambda found: _PARSER_WORDS[found[0]], text)
    text = text.replace("`", "").replace(" | ", " or ").removesuffix(" (at )")
    return text[:1].lower() + text[1:]


def pluralize(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def percent(share: float, digits: int = 0) -> str:
    """`96 %`, or with digits after the point `96.4 %`; shown as 0 % or 100 % only if it is exactly that."""
    value, least = 100 * share, 10.0**-digits
    if 1e-9 < value < 100 - 1e-9:  # the ends of intervals have errors of rounding
        value = min(max(value, least), 100 - least)
    return f"{value:.{digits}f} %"


def shorten(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 10 more`: a list that stays short."""
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join(names)
