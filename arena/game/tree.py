"""The tree of a small game of turns: a batched game that has one declares it by a method `tree() -> Node`.

    Chance     what chance does next, with its probabilities
    Decision   an entity moves
    End        the returns of all entities

The nodes in which an entity has the same observation and the same mask are one information set: it cannot
distinguish them. Its observation must hold all that it has seen and done before (perfect recall):
`arena.league.best_response`, which walks the tree, checks that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Chance(NamedTuple):
    """A random event."""

    outcomes: tuple[tuple[float, Node], ...]  # the probability of each, their sum is 1, and what follows


class Decision(NamedTuple):
    """The move of one entity."""

    entity: int  # its index
    observation: NDArray[Any]  # of the entity, as in a frame, without the axis of lanes
    mask: NDArray[np.int8] | None  # likewise
    moves: Mapping[int, Node]  # what follows each allowed choice of its Discrete space


class End(NamedTuple):
    """The end of a game."""

    returns: tuple[float, ...]  # of each entity, over the whole game


Node: TypeAlias = Chance | Decision | End
