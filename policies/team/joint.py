"""Joint transitions: what all entities of a team see, do and get in a lane, for critics that look at all of them.

    rows of the vector face [L * E, ...]  --reshape-->  lanes [L, E, ...], each of them a row of `policies.common.nstep`

A joint point is a tick on which any entity of the lane acts. It has the observations of all, and says which act: the
observation of an entity that does not (it is out of the game, or waits for its turn) is zeros, or the first choice
where it is one, and its action is not used. A joint transition ends at the n-th joint point after it, or
earlier: where any entity's episode ends. It has a reward and a discount for each entity; where one has terminated, or
was out before, its discount is 0. The last point has the last observations of entities that have ended there, and the
current ones of the others.

The workers of a team that drive an entity each (`TeamNStepBuilder`) pool their ticks before transitions are made:

    every worker    begin, add      keeps what its rows see, do and get, tick by tick
    all, in `cut`   pool_team       lay these ticks side by side, row = lane * E + entity, as in one seat
    the first       JointNStepBuilder makes transitions of them, and learns for its team; the others have none

So a team learns from the same joint transitions, and from each of them once, however it is seated.

With memories a lane's points are chained to sequences as a row's are; a chain ends where any entity's episode does, and
the next one begins with what the others remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from arena.errors import ConfigError
from arena.game.api import Flags
from arena.game.infos import StepFields, fields_of
from arena.game.spaces import empty_batch, flatten, leaf_spaces, rows_of, unflatten
from arena.group.group import Group
from policies.common.algorithm import Algorithm
from policies.common.columns import Columns, storage_dtype, to_leaves, to_mask
from policies.common.nstep import NO_DECISION, NStepBatch, NStepBuilder, RowLayout, SequenceLayout, who_acts

Array = NDArray[Any]
Rows = NDArray[np.intp]


class TeamMember(Algorithm):
    """A worker that learns with all entities of its team, in the order of the seats, whose spaces are equal.

    They are those of the worker's seat, or one of each worker of `group.team`.

    Attributes:
        entities: of the team, `E`.
        places: of this worker's entities among them.
        instead: names algorithms that need no team.

    Raises:
        ConfigError: the team has one entity, or another number than the policy's first one.
    """

    instead: ClassVar[str]

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        count = len(getattr(env, "seat_entities", (None,)))
        first = group.team.index(group.rank) * count
        self.entities, self.places = count * len(group.team), range(first, first + count)
        self.check_team(self.entities, self.entities)
        super().__init__(env, group, ticks=ticks, **options)

    @classmethod
    def check_team(cls, entities: int, first: int) -> None:
        """Checks that it can learn with a team of `entities`, where its policy's first team has `first`."""
        name = cls.__name__
        if entities < 2:
            raise ConfigError(
                f"{name} learns from all entities of a team at once, and here the team has one; let the policy play "
                f"several, as in seats: [blue, blue, red] or [[blue, blue], red], or take {cls.instead}"
            )
        if entities != first:
            raise ConfigError(
                f"the team has {entities} entities, the policy's first one has {first}: {name} learns from all "
                "entities of a team at once, so all teams need equally many; those with a seat each are one team with "
                "all others of the policy on their side, those of one seat are a team by themselves"
            )


def joint_space(space: Space[Any], entities: int) -> spaces.Tuple[Any]:
    """The space of joint points: what `entities` of them see, of one space each, and a flag for each that acts.

    Its leaves are those of one entity, [E, ...] each, then the flags [E].
    """

    def batched(part: Space[Any]) -> Space[Any]:  # Gymnasium sorts the keys of a Dict that it batches
        if isinstance(part, spaces.Dict):
            return spaces.Dict([(key, batched(one)) for key, one in part.items()])
        if isinstance(part, spaces.Tuple):
            return spaces.Tuple(list(map(batched, part.spaces)))
        return batch_space(part, entities)

    return spaces.Tuple((batched(space), spaces.MultiBinary(entities)))


class JointNStepBuilder(NStepBuilder):
    """The joint transitions of a team's lanes. It is used as `NStepBuilder` is, with rows of the vector face.

    `of_one` and `sequences` are the layouts of one entity; row = lane * entities + entity; `n_step` and `gamma`, in
    `steps`, count joint actions. A lane's memory is that of its entities, one after the other.
    """

    def __init__(
        self, of_one: RowLayout, *, entities: int, rows: int, sequences: SequenceLayout | None = None, **steps: Any
    ) -> None:
        if sequences is not None:
            sequences = sequences._replace(memory_size=entities * sequences.memory_size)
        joint = of_one._replace(
            space=joint_space(of_one.space, entities),
            action_shape=(entities, *of_one.action_shape),
            mask_size=entities * of_one.mask_size,
            reward_shape=(entities,),
        )
        super().__init__(joint, rows=rows // entities, sequences=sequences, **steps)
        self.worker_rows, self._of_one, self._entities = rows, of_one, entities
        self._kinds = [storage_dtype(leaf.dtype) for leaf in self._leaves]
        # What entities that do not act see: zeros, or the first choice, as 0 may be no choice.
        choices = spaces.Discrete, spaces.MultiDiscrete
        self._nothing = [
            torch.as_tensor(leaf.start if isinstance(leaf, choices) else 0).to(kind)
            for leaf, kind in zip(leaf_spaces(of_one.space), self._kinds, strict=False)
        ]
        self._out = np.zeros((self.rows, entities), np.bool_)  # entities that are out of the lane's game

    def begin(self, observations: Any, infos: Mapping[str, Any] | StepFields) -> None:
        self._out[:] = False
        super().begin(observations, infos)

    def add(self, actions: Array, *step: Any) -> None:
        observations, rewards, terminated, truncated, infos = step
        self._shown = observations
        actions, *joint = map(self._by_lane, (actions, np.asarray(rewards), terminated, truncated))
        super().add(actions, observations, *joint, infos)

    def _by_lane(self, rows: Any) -> Any:
        """[B, ...] as [L, E, ...]."""
        return rows.reshape(self.rows, self._entities, *rows.shape[1:])

    def _look(self, observations: Any, fields: StepFields) -> tuple[Any, Columns]:
        """The lanes in which an entity acts next; what all lanes see [L]."""
        self._show(observations, fields)
        all_rows = np.ones(self.rows * self._entities, np.bool_)
        acts = self._by_lane(all_rows if fields.active is None else np.asarray(fields.active, np.bool_))
        mask = None if self.mask is None else self.mask.view(self.rows, -1)
        return who_acts(acts.any(1)), Columns(self._joined(self.leaves, acts), mask)

    def _show(self, observations: Any, fields: StepFields) -> None:
        """Shows the rows [B, ...] as the actors take them."""
        self.leaves = to_leaves(self._of_one.space, observations, double=self._of_one.double)
        self.mask = to_mask(fields.action_mask, self._of_one.mask_size)

    def _joined(self, rows: Sequence[Tensor], acts: Flags) -> tuple[Tensor, ...]:
        """Joint leaves [K, ...] of leaves of rows [K * E, ...] and of flags that say which act [K, E]."""
        flags = torch.from_numpy(acts)
        silent = ~flags.flatten()
        joint = []
        for leaf, kind, nothing in zip(rows, self._kinds, self._nothing, strict=False):
            column = leaf.to(kind, copy=True)
            column[silent] = nothing
            joint.append(column.view(len(acts), self._entities, *leaf.shape[1:]))
        return *joint, flags.to(self._kinds[-1])

    def _discounts(self, rows: Rows, actions: Any) -> Array:
        return np.where(self._out[rows], 0.0, super()._discounts(rows, actions)[:, None])

    def _end(self, ended: Flags, terminated: Flags, fields: StepFields) -> None:
        """Completes what is under way in the lanes where an entity's episode has ended; all are [L, E]."""
        lanes: Flags = np.logical_or.reduce(ended, axis=1)
        gone = self._out | terminated  # nothing follows for them
        rows, columns = np.nonzero((self._starts != NO_DECISION) & lanes[:, None])
        over: Flags = np.logical_and.reduce(gone, axis=1)
        cut = np.unique(rows[~over[rows]])
        following = np.full(self.rows, NO_DECISION)
        if len(cut):
            # The last joint observations: all entities act there but those that are gone.
            entries = (cut[:, None] * self._entities + np.arange(self._entities)).ravel()
            is_last = ended.ravel()[entries]
            space, mask_size = self._of_one.space, self._of_one.mask_size
            arrays = [array[entries] for array in flatten(space, self._shown)]
            for place in np.flatnonzero(is_last):
                last = flatten(space, fields.final_obs[entries[place]])
                for array, leaf in zip(arrays, last, strict=True):
                    array[place] = leaf
            leaves = self._joined([torch.from_numpy(array) for array in arrays], ~gone[cut])
            now, then = (to_mask(mask, mask_size) for mask in (fields.action_mask, fields.final_mask))
            masks = None
            if now is not None or then is not None:  # without a mask in a last info all is allowed there
                allowed = torch.ones(len(entries), mask_size, dtype=torch.bool)
                for mask, chosen in ((now, ~is_last), (then, is_last)):
                    if mask is not None:
                        places = torch.from_numpy(np.flatnonzero(chosen))
                        allowed[places] = mask[torch.from_numpy(entries)[places]]
                masks = allowed.view(-1, self._entities * mask_size)
            following[cut] = self._keep(Columns(leaves, masks), cut)
        discounts = np.where(gone[rows], 0.0, self._powers[columns + 1][:, None])
        self._complete(rows, columns, discounts, np.where(over[rows], self._starts[rows, columns], following[rows]))
        self._starts[lanes] = NO_DECISION
        self._out |= ended
        self._out[self._out.all(1)] = False  # the next episode begins, now or later


class Tick(NamedTuple):
    """What rows did on one tick, and what they saw after it."""

    # Actions [B, ...] as learned from, rewards, terminated, truncated [B], and of external games void; none: a reset.
    outcome: list[Array]
    observations: list[Array]  # leaves [B, ...]
    active: Array  # bool [B], which rows act next
    mask: Array | None  # [B, mask_size]
    last: list[Array]  # leaves [B, ...]: the last observations of the rows whose episode has ended; empty if none has
    last_mask: Array | None  # [B, mask_size], likewise
    memory: Sequence[Array] = ()  # [B, memory_size] before they see that; empty where rows have none


class TeamNStepBuilder(JointNStepBuilder):
    """One worker's part in the experience of its team. Used as a `JointNStepBuilder`, with the worker's rows.

    `cut` is a collective of the whole group; all of a team call it after the same ticks of their match. `team`: the
    arguments of `JointNStepBuilder`, for the whole team.
    """

    def __init__(self, group: Group, of_one: RowLayout, **team: Any) -> None:
        super().__init__(of_one, **team)
        self._group = group
        self._learns = group.team[0] == group.rank
        self.worker_rows = self.rows * self._entities // len(group.team)
        self._ticks: list[Tick] = []  # since the last cut
        self._acting = self._all_rows

    def begin(self, observations: Any, infos: Mapping[str, Any] | StepFields) -> None:
        self._add_tick([], observations, fields_of(infos))

    def add(self, actions: Array, *step: Any) -> None:
        observations, rewards, terminated, truncated, infos = step
        fields = fields_of(infos)
        void = [] if fields.void is None else [fields.void]
        outcome = [np.array(column) for column in (actions, rewards, terminated, truncated, *void)]
        self._add_tick(outcome, observations, fields, terminated | truncated)

    def cut(self) -> NStepBatch:
        """The joint points and complete transitions since the last cut, at the team's first worker; else nothing."""
        parts = self._group.pool_team([tuple(tick) for tick in self._ticks])
        self._ticks = []
        if self._learns:
            current = self.leaves, self.mask, self.given, self.given_actions, self.memory
            if len({len(ticks) for ticks in parts}) > 1:  # some have lost ticks before this leg's reset
                parts = [ticks[max(place for place, tick in enumerate(ticks) if not tick[0]) :] for ticks in parts]
            for ticks in zip(*parts, strict=True):
                self._add_joint([Tick(*tick) for tick in ticks])
            self.leaves, self.mask, self.given, self.given_actions, self.memory = current
        return super().cut()

    def state_dict(self) -> dict[str, Any]:
        """The experience since the last cut, and transitions under way, which the next leg completes."""
        acting = np.zeros(self.rows, np.bool_)
        acting[self._acting] = True
        ticks, under_way = [tuple(tick) for tick in self._ticks], [column.copy() for column in self._under_way]
        return {"joint": super().state_dict(), "ticks": ticks, "acting": acting, "under_way": under_way}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what was kept, as far as there are as many lanes as there were."""
        super().load_state_dict(state["joint"])
        if len(state["acting"]) != self.rows:
            return
        self._ticks, self._acting = [Tick(*tick) for tick in state["ticks"]], np.flatnonzero(state["acting"])
        for column, kept in zip(self._under_way, state["under_way"], strict=True):
            if column.shape == kept.shape:  # else the transitions have another length now
                column[:] = kept

    @property
    def _under_way(self) -> tuple[Array, ...]:
        chains = () if self.sequences is None else (self._ages, self._origins, self._memories)
        return self._starts, self._rewards, self._actions, self._out, *chains

    def _add_tick(
        self, outcome: list[Array], observations: Any, fields: StepFields, ended: Array | None = None
    ) -> None:
        """Keeps a tick, and shows the worker's rows to its policy."""
        self._show(observations, fields)
        self.given, self.given_actions = fields.given, fields.given_action
        space, masks = self._of_one.space, [fields.action_mask, None]
        observed = [np.array(leaf) for leaf in flatten(space, observations)]
        active = np.array(np.ones(self.worker_rows) if fields.active is None else fields.active, np.bool_)
        last: list[Array] = []
        if ended is not None and ended.any():
            last, masks[1] = flatten(space, empty_batch(space, self.worker_rows)), fields.final_mask
            for row in np.flatnonzero(ended):
                for array, leaf in zip(last, flatten(space, fields.final_obs[row]), strict=True):
                    array[row] = leaf
        mask, last_mask = (None if not self._of_one.mask_size or one is None else np.array(one) for one in masks)
        memory = () if self.sequences is None else (np.array(self.memory),)
        self._ticks.append(Tick(outcome, observed, active, mask, last, last_mask, memory))

    def _add_joint(self, ticks: Sequence[Tick]) -> None:
        """Adds one tick of the whole team, by entity: row = lane * E + entity."""
        outcomes, observations, active, masks, last, last_masks, memories = zip(*ticks, strict=True)
        if self.sequences is not None:
            (self.memory,) = _columns(memories)
        space, finals, outcome = self._of_one.space, _columns(last), _columns(outcomes)
        final_obs = rows_of(space, finals, self.rows * self._entities) if finals else None
        fields = StepFields(_interleaved(active), _masks(masks), final_obs=final_obs, final_mask=_masks(last_masks))
        joint = unflatten(space, _columns(observations))
        if not outcome:
            super().begin(joint, fields)
            return
        actions, rewards, terminated, truncated, *void = outcome
        fields = fields._replace(void=void[0] if void else None)
        super().add(actions, joint, rewards, terminated, truncated, fields)


def _columns(parts: Sequence[Sequence[Array]]) -> list[Array]:
    """Columns of all entities; zeros for entities without any."""
    full: Sequence[Array] = next(filter(None, parts), ())
    nothing = [np.zeros_like(column) for column in full]
    return [_interleaved(column) for column in zip(*(part or nothing for part in parts), strict=True)]


def _masks(parts: Sequence[Array | None]) -> Array | None:
    """The masks of all entities; entities without one may do everything."""
    known = next((part for part in parts if part is not None), None)
    return None if known is None else _interleaved([np.ones_like(known) if part is None else part for part in parts])


def _interleaved(arrays: Sequence[Array]) -> Array:
    """Rows [L * E, ...] of the rows [L, ...] of each entity."""
    return np.stack(arrays, 1).reshape(-1, *arrays[0].shape[1:])
