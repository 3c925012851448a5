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

    index_to_label: Sequence[str]

    def __len__(self) -> int:
        return len(self.index_to_label)


@dataclass(frozen=True)
class GlobalCategoricalActionSpace:
    """One label is picked for the whole observation, at most once per tick."""

    index_to_label: Sequence[str]

    def __len__(self) -> int:
        return len(self.index_to_label)


@dataclass(frozen=True)
class SelectEntityActionSpace:
    """Each actor picks one entity; with `masked`, observations may say which actor may pick which."""

    masked: bool = False


ActionSpace: TypeAlias = CategoricalActionSpace | GlobalCategoricalActionSpace | SelectEntityActionSpace


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
    """Says that the global label is to be picked on this tick; `mask` is `[choices]` or `[1][choices]`."""

    mask: Flags | None = None


@dataclass(frozen=True)
class SelectEntityActionMask:
    """The actors that pick an entity on this tick, and among which; with neither ids nor types all entities.

    Raises:
        ValueError: both ids and types of actors, or of actees.
    """

    actor_ids: Sequence[Hashable] | None = None  # in this order
    actor_types: Sequence[str] | None = None  # all entities of these types
    actee_types: Sequence[str] | None = None  # likewise of the entities that can be picked
    actee_ids: Sequence[Hashable] | None = None
    # [actors][actees], true where the actor may pick the actee; None: all may pick all. Only where `masked` is true.
    mask: Flags | None = None

    def __post_init__(self) -> None:
        _check_one_of("actor", self.actor_ids, self.actor_types)
        _check_one_of("actee", self.actee_ids, self.actee_types)


ActionMask: TypeAlias = CategoricalActionMask | GlobalCategoricalActionMask | SelectEntityActionMask


@dataclass(frozen=True)
class CategoricalAction:
    """The labels picked by `actors` (ids): `indices` int64 `[actors]`."""

    actors: Sequence[Any]
    indices: NDArray[np.int64]
    index_to_label: Sequence[str]
    probs: NDArray[np.float32] | None = None

    @property
    def labels(self) -> list[str]:
        return [self.index_to_label[index] for index in self.indices]

    @property
    def actions(self) -> NDArray[np.int64]:
        return self.indices


@dataclass(frozen=True)
class GlobalCategoricalAction:
    """The label picked for the whole observation."""

    index: int
    label: str
    probs: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SelectEntityAction:
    """The entities picked: `actees[i]` (an id) by `actors[i]`."""

    actors: Sequence[Any]
    actees: Sequence[Any]
    probs: NDArray[np.float32] | None = None


Action: TypeAlias = CategoricalAction | GlobalCategoricalAction | SelectEntityAction

EntityID: TypeAlias = Any  # any hashable object
EntityName: TypeAlias = str
ActionName: TypeAlias = str
