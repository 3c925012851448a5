"""The contract between an environment process and the game that it owns.

Every game is used as a `BatchedEnv`: `L` lanes (independent copies of the game) that step together, each with the same
`E` entities. The adapters in `envs/adapters` convert Gymnasium, PettingZoo and plain list environments to it; games
that compute all lanes at once implement it directly.

    frame = env.reset(np.ones(L, bool), seeds)         every lane begins an episode
    step = env.step(actions)                           one tick of every lane
    over = (step.terminated | step.truncated | ...)    a lane is over when each of its entities has ended
    frame = env.reset(over)                            only those lanes begin a new episode

An entity ends once per episode: on one tick its `terminated` or `truncated` is true, and from then until the lane's
next episode its reward is 0, both flags are false and it is not `active`. In turn-based games `active` is true for
the entities that are to move next.

Observations and actions are lists with one item per entity. An item is a batched sample of the entity's space: for an
array space an array with a leading lane axis, for `Sequence(part, stack=True)` an `arena.Ragged` with one row per lane,
for Dict and Tuple a container of these. Rows of lanes that a frame does not describe may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

Info = dict[str, Any]
Flags: TypeAlias = NDArray[np.bool_]
Seeds: TypeAlias = Sequence[int | None] | None  # per lane; None: the lane's random stream continues
ResetOptions: TypeAlias = Mapping[str, Any] | None


class Part(NamedTuple):
    """One number of a sample: its name, the names of its choices (none: a number), and the first choice's number."""

    name: str
    choices: tuple[str, ...] = ()
    start: int = 0

    def text(self, number: Any) -> str:
        """The name of the choice, or the number."""
        place = int(number) - self.start if self.choices else -1
        return self.choices[place] if 0 <= place < len(self.choices) else f"{number:.4g}"


Names: TypeAlias = tuple[Part, ...]
"""A part for each number of a space; (): it has no names."""


@dataclass(frozen=True)
class Labels:
    """The names of an entity's actions, observations and piece."""

    actions: Names = ()
    observations: Names = ()
    keys: Mapping[str, int] = field(default_factory=dict)  # the number of the choice, by key
    piece: str = ""  # in the picture, as "X"


@dataclass(frozen=True)
class Interface:
    """A game's entities in order, with the spaces of each."""

    entities: tuple[str, ...]  # their names, E of them
    observation_spaces: tuple[Space[Any], ...]  # [E]
    action_spaces: tuple[Space[Any], ...]  # [E]
    mask_sizes: tuple[int, ...]  # length of an entity's `info["action_mask"]`; 0 if it has none
    colors: tuple[str, ...] = ()  # of an entity's pieces in the picture, as "#1f77b4"; (): they tell nothing
    outcome: str | None = None  # who has won: info, zero_sum, higher_return or none, see `arena.records.outcome`
    in_turns: bool = False  # one entity is active on a tick
    joint: str = ""  # why a lane is not played again alone, to the bit: a sentence's beginning; "": it is
    holds_lanes: bool = True  # a lane that is over may wait for its reset while others play
    labels: tuple[Labels, ...] = ()  # by entity, from the game's metadata, see `arena.game.labels`; (): there are none

    def part(self, entities: Sequence[int]) -> Interface:
        """The interface of some entities, by their indices: what a seat sees of the game."""
        return Interface(
            tuple(self.entities[entity] for entity in entities),
            tuple(self.observation_spaces[entity] for entity in entities),
            tuple(self.action_spaces[entity] for entity in entities),
            tuple(self.mask_sizes[entity] for entity in entities),
        )

    def labels_of(self, entity: int) -> Labels:
        """The names of an entity's actions and observations."""
        return self.labels[entity] if self.labels else Labels()

    @property
    def spaces(self) -> tuple[tuple[Space[Any], ...], tuple[Space[Any], ...], tuple[int, ...]]:
        """Observation spaces, action spaces and sizes of masks of the entities."""
        return self.observation_spaces, self.action_spaces, self.mask_sizes

    @property
    def uniform(self) -> bool:
        """Whether all entities have the same spaces and masks, so that their rows are in one array."""
        kinds = list(zip(*self.spaces, strict=True))
        return all(kind == kinds[0] for kind in kinds)


class ExternalFields(NamedTuple):
    """The fields of a frame that only external games have; see `arena.external`."""

    void: NDArray[np.bool_]  # [L, E] no algorithm is to learn from the transition that ends here
    given: NDArray[np.bool_]  # [L, E] of the active entities, those that have acted already
    given_actions: Sequence[Any]  # [E] batched actions, leading axis L; valid where `given`
    absent: NDArray[np.bool_]  # [L, E] entities that took no part in a game that is over


class Frame(NamedTuple):
    """The observations of all entities. Arrays may be the game's own buffers, valid until its next call."""

    observations: Sequence[Any]  # [E] batched samples, leading axis L
    active: NDArray[np.bool_]  # [L, E] true for entities that are to act next
    masks: Sequence[NDArray[np.int8] | None]  # [E] of [L, mask_size], None without masks
    infos: Sequence[Sequence[Info]] | None = None  # [L][E]; None when all are empty
    final_masks: Sequence[NDArray[np.int8] | None] | None = None
    """`[E]` as `masks`, after a step in which episodes ended: the last masks of these rows, and `masks` in other rows;
    None: `masks` holds the last masks too."""
    external: ExternalFields | None = None  # of external games alone


class Step(NamedTuple):
    """One joint step of all lanes. Arrays may be the game's own, as in `Frame`."""

    frame: Frame  # after the step
    rewards: NDArray[np.float64]  # [L, E]
    terminated: NDArray[np.bool_]  # [L, E] ended by the game's rules
    truncated: NDArray[np.bool_]  # [L, E] ended from outside, such as by a time limit


@runtime_checkable
class BatchedEnv(Protocol):
    """A game of several lanes. A natively batched class also has `batched = True`, and takes an argument `lanes`."""

    lanes: int
    """How many, L in shapes."""
    interface: Interface
    """Its entities and their spaces."""

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Begins an episode in some lanes.

        Args:
            lanes: bool [L], which ones; in other lanes the frame's rows are undefined.
            seeds: one per lane; None: the lane's random stream goes on.
            options: of a caller's `reset`.
        """

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in every lane.

        Args:
            actions: [E] batched samples, leading axis L; those of entities that are not active must be ignored.
        """

    def render(self) -> NDArray[np.uint8] | str | None:
        """A picture `[height, width, 3]` of lane 0, or a text; None if the game has neither."""

    def close(self) -> None:
        """Frees what the game holds."""
