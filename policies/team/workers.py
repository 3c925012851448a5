"""The joint experience of a team whose entities have a worker each: these pool their ticks from time to time.

    every worker    begin, add      keeps what its rows see, do and get, tick by tick
    all, in `cut`   pool_team       lay these ticks side by side, row = lane * E + entity, as in one seat
    the first       JointNStepBuilder makes transitions of them, and learns for its team; the others have none

So a team learns from the same joint transitions, and from each of them once, however it is seated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.game.infos import StepFields, fields_of
from arena.game.spaces import empty_batch, flatten, rows_of, unflatten
from policies.common.columns import to_leaves, to_mask
from policies.common.nstep import NStepBatch
from policies.team.joint import JointNStepBuilder

if TYPE_CHECKING:
    from arena.group.group import Group

Array = NDArray[Any]


class Tick(NamedTuple):
    """What rows did on one tick, and what they saw after it."""

    # Actions [B, ...] as learned from, rewards, terminated, truncated [B], and of external games void; none: a reset.
    outcome: list[Array]
    observations: list[Array]  # leaves [B, ...]
    active: Array  # bool [B], which rows act next
    mask: Array | None  # [B, mask_size]
    last: list[Array]  # leaves [B, ...]: the last observations of the rows whose episode has ended; empty if none has
    last_mask: Array | None  # [B, mask_size], likewise


class TeamNStepBuilder(JointNStepBuilder):
    """One worker's part in the experience of its team. Used as a `JointNStepBuilder`, with the worker's own rows.

    `cut` is a collective of the whole group; all of a team call it after the same ticks of their match.

    Args:
        group: of the worker; `group.team` plays together, an entity each.
        layout: the arguments of `JointNStepBuilder`, for the whole team.
    """

    def __init__(self, group: Group, **layout: Any) -> None:
        super().__init__(**layout)
        self._group = group
        self._learns = group.team[0] == group.rank
        self.worker_rows = self.rows * self._entities // len(group.team)
        self._ticks: list[Tick] = []  # since the last cut
        self._acting = self._all_rows

    def begin(self, observations: Any, infos: Mapping[str, Any] | StepFields) -> None:
        self._notice([], observations, fields_of(infos))

    def add(
        self,
        actions: Array,
        observations: Any,
        rewards: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: Mapping[str, Any] | StepFields,
    ) -> None:
        fields = fields_of(infos)
        void = [] if fields.void is None else [fields.void]
        outcome = [np.array(column) for column in (actions, rewards, terminated, truncated, *void)]
        self._notice(outcome, observations, fields, terminated | truncated)

    def cut(self) -> NStepBatch:
        """The joint sights and complete transitions since the last cut, at the team's first worker; nothing elsewhere.

        Raises:
            GroupError: a worker of the team has left.
        """
        parts = self._group.pool_team([tuple(tick) for tick in self._ticks])
        self._ticks = []
        if self._learns:
            own = self.leaves, self.mask, self.given, self.given_actions
            for ticks in zip(*_of_one_life(parts), strict=True):
                self._live(_side_by_side([Tick(*tick) for tick in ticks]))
            self.leaves, self.mask, self.given, self.given_actions = own
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
        return self._starts, self._rewards, self._actions, self._out

    def _notice(self, outcome: list[Array], observations: Any, fields: StepFields, ended: Array | None = None) -> None:
        """Keeps a tick, and shows the worker's rows to its policy."""
        self.leaves, self.mask = (
            to_leaves(self._of_one, observations, double=self._double),
            to_mask(fields.action_mask, self._mask_of_one),
        )
        self.given, self.given_actions = fields.given, fields.given_action
        seen = [np.array(leaf) for leaf in flatten(self._of_one, observations)]
        active = np.array(np.ones(self.worker_rows) if fields.active is None else fields.active, np.bool_)
        last: list[Array] = []
        last_mask = None
        if ended is not None and ended.any():
            last, last_mask = self._last(ended, fields.final_obs), self._mask_in(fields.final_mask)
        self._ticks.append(Tick(outcome, seen, active, self._mask_in(fields.action_mask), last, last_mask))

    def _last(self, ended: Array, final_obs: Any) -> list[Array]:
        """The last observations, leaves [B, ...], of rows [B] that have ended."""
        leaves = flatten(self._of_one, empty_batch(self._of_one, self.worker_rows))
        for row in np.flatnonzero(ended):
            for array, leaf in zip(leaves, flatten(self._of_one, final_obs[row]), strict=True):
                array[row] = leaf
        return leaves

    def _mask_in(self, mask: Any) -> Array | None:
        return None if mask is None or not self._mask_of_one else np.array(mask)

    def _live(self, tick: Tick) -> None:
        """Adds a tick of the whole team."""
        observations = unflatten(self._of_one, tick.observations)
        last = rows_of(self._of_one, tick.last, len(tick.active)) if tick.last else None
        fields = StepFields(tick.active, tick.mask, final_obs=last, final_mask=tick.last_mask)
        if not tick.outcome:
            super().begin(observations, fields)
            return
        actions, rewards, terminated, truncated, *void = tick.outcome
        fields = fields._replace(void=void[0] if void else None)
        super().add(actions, observations, rewards, terminated, truncated, fields)


def _of_one_life(parts: Sequence[list[Any]]) -> Sequence[list[Any]]:
    """The ticks of all workers; if some have lost ticks of an earlier leg, only those since this leg's reset."""
    if len({len(ticks) for ticks in parts}) == 1:
        return parts
    return [ticks[max(place for place, tick in enumerate(ticks) if not tick[0]) :] for ticks in parts]


def _side_by_side(ticks: Sequence[Tick]) -> Tick:
    """One tick of all rows, lane by lane, from the ticks of each entity's rows."""
    outcomes, observations, active, masks, last, last_masks = zip(*ticks, strict=True)
    return Tick(
        outcome=_columns(outcomes),
        observations=_columns(observations),
        active=_interleaved(active),
        mask=_masks(masks),
        last=_columns(last),
        last_mask=_masks(last_masks),
    )


def _columns(parts: Sequence[list[Array]]) -> list[Array]:
    """Columns of all entities; zeros for entities without any."""
    full: list[Array] = next(filter(None, parts), [])
    nothing = [np.zeros_like(column) for column in full]
    return [_interleaved(column) for column in zip(*(part or nothing for part in parts), strict=True)]


def _masks(parts: Sequence[Array | None]) -> Array | None:
    """The masks of all entities; entities without one may do everything."""
    told = [part for part in parts if part is not None]
    return _interleaved([np.ones_like(told[0]) if part is None else part for part in parts]) if told else None


def _interleaved(arrays: Sequence[Array]) -> Array:
    """Rows [L * E, ...] of the rows [L, ...] of each entity."""
    return np.stack(arrays, 1).reshape(-1, *arrays[0].shape[1:])
