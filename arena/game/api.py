"""The contract between an environment process and the game that it owns.

A game, whatever it was written for, is held as a `BatchedEnv`: `L` lanes (independent copies of the game) that step
together, with the same `E` entities in each. The adapters in `envs/adapters` bring Gymnasium, PettingZoo and plain
list environments to this form; games that compute all lanes at once are written in it.

    frame = env.reset(np.ones(L, bool), seeds)         every lane begins an episode
    step = env.step(actions)                           one tick of every lane
    over = (step.terminated | step.truncated | ...)    a lane is over when each of its entities has ended
    frame = env.reset(over)                            only those lanes begin anew

An entity ends once per episode: on one tick its `terminated` or `truncated` is true, and from then until the lane's
next episode its reward is 0, both flags are false and it is not `active`. In turn-based games `active` is true for
the entities that are to move next.

Observations and actions are lists with one item per entity; an item is a batched sample of that entity's space: for
an array space an array with a leading lane axis, for Dict and Tuple the same container of such items. A game without
a fixed shape of observations may use an object array of length `L` as an item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

Info = dict[str, Any]


@dataclass(frozen=True)
class Interface:
    """What a game offers: its entities in order, and per entity its spaces."""

    entities: tuple[str, ...]
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    mask_sizes: tuple[int, ...]  # length of an entity's `info["action_mask"]`; 0 where it has none


class Frame(NamedTuple):
    """What the entities see. Arrays may be the game's own buffers: they hold until its next call."""

    observations: Sequence[Any]  # [E] batched samples, leading axis L
    active: NDArray[np.bool_]  # [L, E] who is to act next
    masks: Sequence[NDArray[np.int8] | None]  # [E] of [L, mask_size], None without masks
    infos: Sequence[Sequence[Info]] | None = None  # [L][E]; None when all are empty
    # [E] as `masks`, of a step in which somebody has ended: the last masks of those rows, of other rows what `masks`
    # has; None: `masks` has the last ones.
    final_masks: Sequence[NDArray[np.int8] | None] | None = None


class Step(NamedTuple):
    """One joint step of all lanes. Arrays may be the game's own, as those of a frame."""

    frame: Frame
    rewards: NDArray[np.float64]  # [L, E]
    terminated: NDArray[np.bool_]  # [L, E] ended by the game's rules
    truncated: NDArray[np.bool_]  # [L, E] ended from outside, such as by a time limit


@runtime_checkable
class BatchedEnv(Protocol):
    """A game of several lanes. A natively batched class also has `batched = True` and takes `lanes=` when made."""

    lanes: int
    interface: Interface

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        """Begins an episode in the lanes where the mask `[L]` is true; in other lanes the frame's rows mean nothing.

        `seeds` has one item per lane; an item None, and None for all, lets the lane's random stream go on.
        """
        ...

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in every lane. The actions of entities that are not active are to be ignored."""
        ...

    def render(self) -> NDArray[np.uint8] | str | None:
        """A picture `[height, width, 3]` of lane 0, or a text; None where the game has none."""
        ...

    def close(self) -> None: ...
