"""Joint transitions: what all entities of a team see, do and get in a lane, for critics that look at all of them.

    rows of the vector face [L * E, ...]  --reshape-->  lanes [L, E, ...], each of them a row of `policies.common.nstep`

A joint sight is a tick on which any entity of the lane acts. It has the observations of all, and says which act: the
observation of an entity that does not (it is out of the game, or waits for its turn) is zeros, or the first choice
where it is one, and its action stands for nothing. A joint transition ends at the n-th joint sight after it, or
earlier: where any entity's episode ends. It has a reward and a discount for each entity; where one has terminated, or
was out before, its discount is 0. The last sight has the last observations of entities that have ended there, and the
current ones of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.infos import StepFields
from arena.game.spaces import flatten, leaf_spaces
from policies.common.columns import Columns, storage_dtype, to_leaves, to_mask
from policies.common.nstep import NO_DECISION, NStepBuilder, who_acts


def joint_space(space: Space[Any], entities: int) -> spaces.Tuple[Any]:
    """The space of joint sights: what `entities` of them see, of one space each, and a flag for each that acts.

    Its leaves are those of one entity, [E, ...] each, then the flags [E].
    """
    return spaces.Tuple((batch_space(space, entities), spaces.MultiBinary(entities)))


class JointNStepBuilder(NStepBuilder):
    """The joint transitions of a team's lanes. It is used as `NStepBuilder` is, with rows of the vector face.

    Args:
        space: one entity's observations.
        entities: of the team, `E`; row = lane * E + entity.
        action_shape: of one entity's action as learned from.
        action_dtype: of actions as learned from.
        mask_size: length of one entity's action mask; 0: there are none.
        rows: `B`.
        n_step: joint actions whose rewards a transition sums at most.
        gamma: discount per joint action.
        double: whether numbers of float64 are kept as such.
    """

    def __init__(
        self,
        space: Space[Any],
        *,
        entities: int,
        action_shape: tuple[int, ...],
        action_dtype: torch.dtype,
        mask_size: int,
        rows: int,
        n_step: int,
        gamma: float,
        double: bool = False,
    ) -> None:
        super().__init__(
            joint_space(space, entities),
            action_shape=(entities, *action_shape),
            action_dtype=action_dtype,
            mask_size=entities * mask_size,
            reward_shape=(entities,),
            rows=rows // entities,
            n_step=n_step,
            gamma=gamma,
            double=double,
        )
        self.worker_rows = rows
        self._of_one, self._mask_of_one, self._entities = space, mask_size, entities
        self._kinds = [storage_dtype(leaf.dtype) for leaf in self._layout]
        self._nothing = [_nothing(leaf, kind) for leaf, kind in zip(leaf_spaces(space), self._kinds, strict=False)]
        self._out = np.zeros((self.rows, entities), np.bool_)  # entities that are out of the lane's game

    def begin(self, observations: Any, infos: Mapping[str, Any] | StepFields) -> None:
        self._out[:] = False
        super().begin(observations, infos)

    def add(
        self,
        actions: NDArray[Any],
        observations: Any,
        rewards: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: Mapping[str, Any] | StepFields,
    ) -> None:
        self._shown = observations
        joint = (self._by_lane(part) for part in (actions, np.asarray(rewards), terminated, truncated))
        actions, rewards, terminated, truncated = joint
        super().add(actions, observations, rewards, terminated, truncated, infos)

    def _by_lane(self, rows: Any) -> Any:
        """[B, ...] as [L, E, ...]."""
        return rows.reshape(self.rows, self._entities, *rows.shape[1:])

    def _look(self, observations: Any, fields: StepFields) -> tuple[Any, Columns]:
        """The lanes in which an entity acts next; what all lanes see [L]."""
        self.leaves = to_leaves(self._of_one, observations, double=self._double)  # [B, ...], as the actors take them
        self.mask = to_mask(fields.action_mask, self._mask_of_one)
        all_rows = np.ones(self.rows * self._entities, np.bool_)
        acts = self._by_lane(all_rows if fields.active is None else np.asarray(fields.active, np.bool_))
        mask = None if self.mask is None else self.mask.view(self.rows, -1)
        return who_acts(acts.any(1)), Columns(self._joined(self.leaves, acts), mask)

    def _joined(self, rows: Sequence[Tensor], acts: NDArray[np.bool_]) -> tuple[Tensor, ...]:
        """Joint leaves [K, ...] of leaves of rows [K * E, ...] and of flags that say which act [K, E]."""
        flags = torch.from_numpy(acts)
        silent = ~flags.flatten()
        joint = []
        for leaf, kind, nothing in zip(rows, self._kinds, self._nothing, strict=False):
            seen = leaf.to(kind, copy=True)
            seen[silent] = nothing
            joint.append(seen.view(len(acts), self._entities, *leaf.shape[1:]))
        return *joint, flags.to(self._kinds[-1])

    def _void_rows(self, fields: StepFields) -> NDArray[np.intp]:
        """The lanes in which the transition of any entity is void: a joint transition is learned from as a whole."""
        return self._no_rows if fields.void is None else np.flatnonzero(self._by_lane(fields.void).any(1))

    def _discounts(self, rows: NDArray[np.intp], actions: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.where(self._out[rows], 0.0, self._powers[actions][:, None])

    def _left(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.where(self._out[rows], 0.0, self._powers[-1])

    def _end(self, ended: NDArray[np.bool_], terminated: NDArray[np.bool_], fields: StepFields) -> None:
        """Completes what is under way in the lanes where an entity's episode has ended; all are [L, E]."""
        lanes: NDArray[np.bool_] = np.logical_or.reduce(ended, axis=1)
        gone = self._out | terminated  # nothing follows for them
        rows, columns = np.nonzero((self._starts != NO_DECISION) & lanes[:, None])
        over: NDArray[np.bool_] = np.logical_and.reduce(gone, axis=1)
        cut = np.unique(rows[~over[rows]])
        following = np.full(self.rows, NO_DECISION)
        if len(cut):
            following[cut] = self._keep(self._last_joint_sights(cut, ended, gone, fields))
        discounts = np.where(gone[rows], 0.0, self._powers[columns + 1][:, None])
        self._complete(rows, columns, discounts, np.where(over[rows], self._starts[rows, columns], following[rows]))
        self._starts[lanes] = NO_DECISION
        self._out |= ended
        self._out[self._out.all(1)] = False  # the next episode begins, now or later

    def _last_joint_sights(
        self, lanes: NDArray[np.intp], ended: NDArray[np.bool_], gone: NDArray[np.bool_], fields: StepFields
    ) -> Columns:
        """The last joint observations of lanes [K]; all entities act there but those that are gone."""
        rows = (lanes[:, None] * self._entities + np.arange(self._entities)).ravel()
        is_last = ended.ravel()[rows]
        arrays = [array[rows] for array in flatten(self._of_one, self._shown)]
        for place in np.flatnonzero(is_last):
            last = flatten(self._of_one, fields.final_obs[rows[place]])
            for array, leaf in zip(arrays, last, strict=True):
                array[place] = leaf
        leaves = self._joined([torch.from_numpy(array) for array in arrays], ~gone[lanes])
        return Columns(leaves, self._last_masks(rows, is_last, fields))

    def _last_masks(self, rows: NDArray[np.intp], is_last: NDArray[np.bool_], fields: StepFields) -> Tensor | None:
        """Joint masks [K, E * mask_size] of rows [K * E]; without a mask in a last info all is allowed there."""
        now, then = (to_mask(mask, self._mask_of_one) for mask in (fields.action_mask, fields.final_mask))
        if now is None and then is None:
            return None
        allowed = torch.ones(len(rows), self._mask_of_one, dtype=torch.bool)
        for told, chosen in ((now, ~is_last), (then, is_last)):
            if told is not None:
                places = torch.from_numpy(np.flatnonzero(chosen))
                allowed[places] = told[torch.from_numpy(rows)[places]]
        return allowed.view(-1, self._entities * self._mask_of_one)


def _nothing(leaf: Space[Any], kind: torch.dtype) -> Tensor:
    """The filler of a leaf for entities that do not act: zeros, or the first choice, as 0 may be no choice."""
    if isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete)):
        return torch.as_tensor(leaf.start).to(kind)
    return torch.zeros((), dtype=kind)
