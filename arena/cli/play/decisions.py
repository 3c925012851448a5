"""What a player is shown and asked: lines of text for observations, and one decision after the other. Pure.

for decision in decisions(action_space, observation, mask):
    decision.question()      `Move of 1 Robot: 0 +x, 1 -x, 3 -y, 4 Defuse Mines`
    decision.answered("4")   the option with this number, or the one whose label begins so
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import mask_size
from arena.game.units import Choice, GlobalChoice, Select, UnitActions, UnitSpace

_WIDEST = 2_000  # characters of an observation that is shown


@dataclass(frozen=True)
class Option:
    """One of the choices of a decision."""

    number: int  # the answer that picks it
    label: str  # empty where it has none
    choice: int  # the number that the game gets

    def __str__(self) -> str:
        return f"{self.number} {self.label}".rstrip()


@dataclass(frozen=True)
class Decision:
    """One choice that the player is asked for."""

    what: str  # of the question, such as `Move of 1 Robot`
    options: Sequence[Option]  # the allowed ones
    action: str = ""  # its name; empty outside of `UnitActions`
    place: int = 0  # of the number in the action
    by_label: bool = True  # whether the beginning of a label is an answer; units are picked by their index alone

    def question(self) -> str:
        """What is asked for, and the options."""
        return f"{self.what}: {self.listed()}"

    def listed(self) -> str:
        """The options."""
        return ", ".join(map(str, self.options))

    def answered(self, answer: str) -> Option | None:
        """The option that an answer picks: by its number, or by the beginning of one label; None if there is none."""
        if answer.isascii() and answer.isdigit():
            number = answer.lstrip("0") or "0"  # Python reads no number of thousands of digits
            return next((option for option in self.options if str(option.number) == number), None)
        if not (answer and self.by_label):
            return None
        exact = [option for option in self.options if option.label.casefold() == answer.casefold()]
        begun = [option for option in self.options if option.label.casefold().startswith(answer.casefold())]
        found = exact or begun
        return found[0] if len(found) == 1 else None


def check_playable(action_space: Space[Any]) -> None:
    """Checks that a human can be asked for the actions of a space."""
    if not isinstance(action_space, (UnitActions, spaces.Discrete, spaces.MultiDiscrete)):
        raise ConfigError(
            f"a human can be asked for choices, not for actions of {action_space}; take a seat of units, or of "
            "Discrete or MultiDiscrete actions"
        )


def described(space: Space[Any], observation: Any) -> list[str]:
    """The lines that show an observation; units that are hidden from the policy are left out."""
    if not isinstance(space, UnitSpace):
        text = " ".join(str(observation).split())
        return [f"observation: {text if len(text) <= _WIDEST else text[:_WIDEST] + '...'}"]
    lines = []
    if space.global_features:
        lines.append(f"globals: {_features(space.global_features, observation['globals'])}")
    index = 0
    for name, features in space.types.items():
        units = observation["units"][name]
        visible = observation["visible"][name] if name in space.hidden else np.ones(len(units))
        for unit, shown in zip(units, visible, strict=True):
            if shown:
                values = _features(features, unit)
                lines.append(f"{index} {name}: {values}" if values else f"{index} {name}")
            index += 1
    return lines


def decisions(
    observation_space: Space[Any], action_space: Space[Any], observation: Any, mask: NDArray[np.int8] | None
) -> list[Decision]:
    """What a player has to decide on a tick, in the order of actions and actors; without a mask all is allowed."""
    if isinstance(observation_space, UnitSpace):
        return list(_of_units(observation_space, observation))
    if isinstance(action_space, spaces.Discrete):
        counts, starts = [int(action_space.n)], [int(action_space.start)]
    else:
        assert isinstance(action_space, spaces.MultiDiscrete)
        counts, starts = action_space.nvec.ravel().tolist(), action_space.start.ravel().tolist()
    allowed = np.ones(mask_size(action_space), np.bool_) if mask is None else np.asarray(mask) != 0
    parts = np.split(allowed, np.cumsum(counts)[:-1])
    named = ["action"] if len(parts) == 1 else [f"action {place}" for place in range(len(parts))]
    return [
        Decision(
            what, [Option(start + int(number), "", start + int(number)) for number in np.flatnonzero(part)], place=place
        )
        for place, (what, start, part) in enumerate(zip(named, starts, parts, strict=True))
    ]


def joined(action_space: Space[Any], decided: Sequence[Decision], choices: Sequence[int]) -> Any:
    """The action that the choices of all decisions make."""
    if isinstance(action_space, UnitActions):
        numbers: dict[str, list[int]] = {name: [] for name in action_space.actions}
        for decision, choice in zip(decided, choices, strict=True):
            numbers[decision.action].append(choice)
        return {name: np.array(found, np.int64) for name, found in numbers.items()}
    array = np.array(choices, action_space.dtype).reshape(action_space.shape)
    return array[()] if isinstance(action_space, spaces.Discrete) else array


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
                yield Decision(f"{action} of {actor} {names[actor]} at", options, action, place, by_label=False)
                continue
            assert isinstance(kind, Choice)
            allowed = np.ones(kind.choices) if mask is None else mask[place]
            options = [Option(number, label, number) for number, label in enumerate(kind.labels) if allowed[number]]
            what = action if isinstance(kind, GlobalChoice) else f"{action} of {actor} {names[actor]}"
            yield Decision(what, options, action, place)


def _features(names: Sequence[str], numbers: Any) -> str:
    return ", ".join(f"{name}={float(number):g}" for name, number in zip(names, numbers, strict=True))
