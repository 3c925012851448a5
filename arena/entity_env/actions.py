"""Action spaces, masks and actions of the published interface.

A space says which choices there are, a mask which entities choose now and among what, an action what was chosen. There
are three kinds: each of several entities picks one label (`Categorical`), each of several entities picks another entity
(`SelectEntity`), and one label is picked for the whole observation (`GlobalCategorical`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Flags: TypeAlias = "NDArray[Any] | Sequence[Any]"  # of bools, or of the numbers 0 and 1


@dataclass(frozen=True)
class CategoricalActionSpace:
    """Each actor picks one of the labels."""

    index_to_label: Sequence[str]  # the labels, by index

    def __len__(self) -> int:
        return len(self.index_to_label)


@dataclass(frozen=True)
class GlobalCategoricalActionSpace:
    """One label is picked for the whole observation, at most once per tick."""

    index_to_label: Sequence[str]  # the labels, by index

    def __len__(self) -> int:
        return len(self.index_to_label)


@dataclass(frozen=True)
class SelectEntityActionSpace:
    """Each actor picks one entity; with `masked`, observations may say which actor may pick which."""

    masked: bool = False  # whether observations have masks


ActionSpace: TypeAlias = CategoricalActionSpace | GlobalCategoricalActionSpace | SelectEntityActionSpace
"""Which choices an action has."""


def _check_one_of(what: str, ids: object, types: object) -> None:
    if ids is not None and types is not None:
        raise ValueError(f"only one of {what}_ids and {what}_types can be given")


@dataclass(frozen=True)
class CategoricalActionMask:
    """The actors that pick a label on this tick, and which labels are allowed; with neither ids nor types all entities.

    Raises:
        ValueError: both `actor_ids` and `actor_types`.
    """

    actor_ids: Sequence[Hashable] | None = None  # in this order
    actor_types: Sequence[str] | None = None  # all entities of these types
    mask: Flags | None = None  # [actors][choices], true for allowed labels; None: all are allowed

    def __post_init__(self) -> None:
        _check_one_of("actor", self.actor_ids, self.actor_types)


@dataclass(frozen=True)
class GlobalCategoricalActionMask:
    """Says that the global label is to be picked on this tick."""

    mask: Flags | None = None  # [choices] or [1][choices], true for allowed labels; None: all are allowed


@dataclass(frozen=True)
class SelectEntityActionMask:
    """The actors that pick an entity on this tick, and among which; with neither ids nor types all entities.

    Raises:
        ValueError: both ids and types of actors, or of actees.
    """

    actor_ids: Sequence[Hashable] | None = None  # in this order
    actor_types: Sequence[str] | None = None  # all entities of these types
    actee_types: Sequence[str] | None = None  # likewise of the entities that can be picked
    actee_ids: Sequence[Hashable] | None = None  # likewise, in this order
    mask: Flags | None = None  # [actors][actees], true where allowed; None: all are. Only where `masked` is true

    def __post_init__(self) -> None:
        _check_one_of("actor", self.actor_ids, self.actor_types)
        _check_one_of("actee", self.actee_ids, self.actee_types)


ActionMask: TypeAlias = CategoricalActionMask | GlobalCategoricalActionMask | SelectEntityActionMask
"""Who chooses on a tick, and among what."""


@dataclass(frozen=True)
class CategoricalAction:
    """The labels that entities have picked."""

    actors: Sequence[Any]  # ids
    indices: NDArray[np.int64]  # [actors] of their labels
    index_to_label: Sequence[str]  # the labels of the space, by index
    probs: NDArray[np.float32] | None = None  # [actors][choices] probabilities; None: not known

    @property
    def labels(self) -> list[str]:
        """The label that each actor has picked."""
        return [self.index_to_label[index] for index in self.indices]

    @property
    def actions(self) -> NDArray[np.int64]:
        """The published name of `indices`."""
        return self.indices


@dataclass(frozen=True)
class GlobalCategoricalAction:
    """The label picked for the whole observation."""

    index: int  # of the label
    label: str  # which is its text
    probs: NDArray[np.float32] | None = None  # [choices] probabilities; None: not known


@dataclass(frozen=True)
class SelectEntityAction:
    """The entities that entities have picked."""

    actors: Sequence[Any]  # ids
    actees: Sequence[Any]  # ids, each picked by the actor at the same place
    probs: NDArray[np.float32] | None = None  # [actors][actees] probabilities; None: not known


Action: TypeAlias = CategoricalAction | GlobalCategoricalAction | SelectEntityAction
"""What was chosen."""

EntityID: TypeAlias = Any
"""Any hashable object."""
EntityName: TypeAlias = str
"""The name of a type of entities."""
ActionName: TypeAlias = str
"""The name of an action of a space."""
