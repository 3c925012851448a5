"""What a player is shown and asked: tables of an observation, and one decision after the other. Pure.

    decided = decisions(observation_space, action_space, observation, mask, labels)
    decided[0].question()      `Move of 1 Robot: 0 +x, 1 -x, 3 -y, 4 Defuse Mines`
    decided[0].answered("4")   the option with this number, or the one whose label begins so
    action = joined(action_space, decided, [option.choice for each decision])

A `Turn` is all that a player sees of a tick. Any console, of a terminal or a browser, shows turns and returns choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Labels, Names
from arena.game.labels import parts, rows
from arena.game.spaces import flatten
from arena.game.units import Choice, GlobalChoice, Select, UnitActions, UnitSpace

_WIDEST = 2_000  # characters of an observation that is shown
_MOST_NUMBERS = 64  # of an action
UNNAMED = Labels()


@dataclass(frozen=True)
class Option:
    """One of the choices of a decision."""

    number: int  # the answer that picks it
    label: str  # empty where it has none
    choice: float  # the number that the game gets
    keys: tuple[str, ...] = ()  # as of `Labels.keys`; those of one character are answers, too

    def __str__(self) -> str:
        keys = [f"[{key}]" for key in self.keys if len(key) == 1]
        return " ".join(filter(None, (str(self.number), self.label, *keys)))


@dataclass(frozen=True)
class Decision:
    """One choice, or one number of a Box, that the player is asked for."""

    what: str  # of the question, such as `Move of 1 Robot`
    options: Sequence[Option]  # the allowed ones; none where a number is asked for
    action: str = ""  # its name; empty outside of `UnitActions`
    actor: int | None = None  # the index of the unit that decides
    by_label: bool = True  # whether the beginning of a label is an answer; units are picked by their index alone
    bounds: tuple[float, float] | None = None  # of a number, both included
    whole: bool = False  # whether it has to be a whole number
    closed: Sequence[Option] = ()  # that are not allowed now; none where there are more than 64 options

    def question(self) -> str:
        """What is asked for, and the options."""
        return f"{self.what}: {self.listed()}"

    def listed(self) -> str:
        """The options, or the bounds."""
        if self.bounds is not None:
            return f"a {'whole ' if self.whole else ''}number from {self.bounds[0]:g} to {self.bounds[1]:g}"
        return ", ".join(map(str, self.options))

    def answered(self, answer: str) -> Option | None:
        """The option that an answer picks: by its number, its key, or the beginning of one label; None: there is none.

        Where a number is asked for, an option of this number.
        """
        if self.bounds is not None:
            try:
                number = float(answer)
            except ValueError:
                return None
            fits = self.bounds[0] <= number <= self.bounds[1] and math.isfinite(number)
            return Option(0, answer, number) if fits and not (self.whole and number % 1) else None
        if answer.isascii() and answer.isdigit():
            digits = answer.lstrip("0") or "0"  # Python reads no number of thousands of digits
            return next((option for option in self.options if str(option.number) == digits), None)
        if not (answer and self.by_label):
            return None
        exact = [one for one in self.options if answer in one.keys or one.label.casefold() == answer.casefold()]
        begun = [option for option in self.options if option.label.casefold().startswith(answer.casefold())]
        found = exact or begun
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Table:
    """A part of an observation: texts or numbers, by row and column."""

    title: str  # of units their type; empty for the whole observation
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    units: bool = False  # whether each row is a unit, and begins with its index


@dataclass(frozen=True)
class Advice:
    """What a policy thinks of the decisions of a tick."""

    choices: Sequence[float]  # that it would make
    shares: Sequence[Sequence[float] | None]  # by decision, the probability of each option; None of a number
    value: float | None  # the return that it expects; None: it does not tell


@dataclass(frozen=True)
class Turn:
    """What an entity of the player observes at a tick, and what it has to decide."""

    entity: str
    tick: int  # ticks played in this episode
    reward: float  # of the last tick
    earned: float  # the return so far
    tables: Sequence[Table]  # the observation
    decisions: Sequence[Decision]
    advice: Advice | None = None
    by: Mapping[str, Advice] = field(default_factory=dict)  # those of the opponents, by name
    notices: Sequence[str] = ()  # who is not asked any more, and why


def check_playable(action_space: Space[Any]) -> None:
    """Checks that a human can be asked for the actions of a space."""
    if isinstance(action_space, (UnitActions, spaces.Discrete)):
        return
    known = isinstance(action_space, (spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box))
    if not known or math.prod(action_space.shape or ()) > _MOST_NUMBERS:
        raise ConfigError(
            f"a human can be asked for choices, or for up to {_MOST_NUMBERS} numbers, not for actions of "
            f"{action_space}; take a seat of units, or of Discrete, MultiDiscrete, MultiBinary or Box actions"
        )


def tables(space: Space[Any], names: Names, observation: Any) -> list[Table]:
    """What shows an observation; units that are hidden from the policy are left out."""
    if not isinstance(space, UnitSpace):
        shown = [(name, text[:_WIDEST]) for name, text in rows(space, names, observation)]
        return [Table("", ("observation", "value"), shown)]
    found = []
    if space.global_features:
        found.append(Table("globals", space.global_features, [observation["globals"].tolist()]))
    index = 0
    for name, features in space.types.items():
        units = observation["units"][name]
        visible = observation["visible"][name] if name in space.hidden else np.ones(len(units))
        seen = [(index + place, *unit.tolist()) for place, unit in enumerate(units) if visible[place]]
        found.append(Table(name, ("unit", *features), seen, units=True))
        index += len(units)
    return found


def lines(shown: Sequence[Table]) -> list[str]:
    """Tables as lines of text."""
    found = []
    for table in shown:
        if not table.title:
            found.append(", ".join(f"{name or 'observation'}={text}" for name, text in table.rows))
            continue
        for row in table.rows:
            title, values = (f"{row[0]} {table.title}", row[1:]) if table.units else (table.title, row)
            features = zip(table.columns[table.units :], values, strict=True)
            text = ", ".join(f"{name}={number:g}" for name, number in features)
            found.append(f"{title}: {text}" if text else title)
    return found


def decisions(
    observation_space: Space[Any],
    action_space: Space[Any],
    observation: Any,
    mask: NDArray[np.int8] | None,
    labels: Labels = UNNAMED,
) -> list[Decision]:
    """What a player has to decide on a tick, in the order of actions and actors; without a mask all is allowed."""
    if isinstance(observation_space, UnitSpace):
        return list(_of_units(observation_space, observation))
    named = parts(action_space, labels.actions)
    if isinstance(action_space, spaces.Box):
        whole, lows, highs = action_space.dtype.kind in "iu", action_space.low.ravel(), action_space.high.ravel()
        return [
            Decision(part.name, (), bounds=(float(low), float(high)), whole=whole)
            for part, low, high in zip(named, lows, highs, strict=True)
        ]
    if isinstance(action_space, spaces.Discrete):
        counts = [int(action_space.n)]
    elif isinstance(action_space, spaces.MultiBinary):
        counts = [2] * len(named)
    else:
        assert isinstance(action_space, spaces.MultiDiscrete)
        counts = action_space.nvec.ravel().tolist()
    allowed = np.ones(sum(counts), np.bool_) if mask is None else np.asarray(mask) != 0
    found = []
    for part, fits in zip(named, np.split(allowed, np.cumsum(counts)[:-1]), strict=True):
        every = [
            Option(
                number,
                part.text(number) if part.choices else "",
                number,
                tuple(key for key, choice in labels.keys.items() if choice == number),
            )
            for number in range(part.start, part.start + len(fits))
        ]
        options, closed = ([one for one, fit in zip(every, fits, strict=True) if fit == kind] for kind in (True, False))
        found.append(Decision(part.name, options, closed=closed if len(every) <= _MOST_NUMBERS else ()))
    return found


def joined(action_space: Space[Any], decided: Sequence[Decision], choices: Sequence[float]) -> Any:
    """The action that the choices of all decisions make."""
    if isinstance(action_space, UnitActions):
        numbers: dict[str, list[float]] = {name: [] for name in action_space.actions}
        for decision, choice in zip(decided, choices, strict=True):
            numbers[decision.action].append(choice)
        return {name: np.array(found, np.int64) for name, found in numbers.items()}
    array = np.array(choices, action_space.dtype).reshape(action_space.shape)
    return array[()] if isinstance(action_space, spaces.Discrete) else array


def numbers_of(action_space: Space[Any], action: Any) -> list[float]:
    """The choices of all decisions that make an action."""
    return [float(number) for array in flatten(action_space, action) for number in np.ravel(array)]


def _of_units(space: UnitSpace, observation: Mapping[str, Any]) -> Iterator[Decision]:
    names = [name for name in space.types for _ in observation["units"][name]]
    for action, kind in space.actions.items():
        shown = observation["actions"][action]
        mask = shown.get("mask")
        for place, actor in enumerate(np.asarray(shown["actors"]).tolist()):
            if isinstance(kind, Select):
                actees = np.asarray(shown["actees"]).tolist()
                allowed = np.ones(len(actees)) if mask is None else np.reshape(mask, (-1, len(actees)))[place]
                options = [Option(unit, names[unit], number) for number, unit in enumerate(actees) if allowed[number]]
                yield Decision(f"{action} of {actor} {names[actor]} at", options, action, actor, by_label=False)
                continue
            assert isinstance(kind, Choice)
            allowed = np.ones(kind.choices) if mask is None else mask[place]
            options = [Option(number, label, number) for number, label in enumerate(kind.labels) if allowed[number]]
            alone = isinstance(kind, GlobalChoice)
            what = action if alone else f"{action} of {actor} {names[actor]}"
            yield Decision(what, options, action, None if alone else actor)
