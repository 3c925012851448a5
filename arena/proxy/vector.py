"""The vector face: all entities of a seat in all lanes, batched, as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.proxy.seat import Seat
from arena.spaces import copy_rows, unflatten

BoolRows = NDArray[np.bool_]


class VectorEnvProxy(VectorEnv[Any, Any, Any]):
    """`num_envs = lanes * entities` rows, lane-major: row = lane * entities + entity.

    Ended rows are reset on the same tick (`AutoresetMode.SAME_STEP`): `obs` is then the next episode's first and
    `infos["final_obs"]`, `infos["final_info"]` hold the last ones, as in Gymnasium's own vector environments. Beyond
    these,

    - `infos["active"]` [B] is false for rows whose action is ignored: an entity that is out of the game until its
      lane's next episode, or that is not to move in a turn-based game;
    - `infos["action_mask"]` [B, n] int8, where the game has masks.

    Attributes:
        seat_entities: the names of the entities that the seat drives.

    Raises:
        BudgetReached: from `step`, and from a `reset` that would need a tick, when the match has used its budget.
    """

    def __init__(self, seat: Seat) -> None:
        self.num_envs = seat.rows
        self.single_observation_space = seat.observation_spaces[0]
        self.single_action_space = seat.action_spaces[0]
        self.observation_space = batch_space(self.single_observation_space, seat.rows)
        self.action_space = batch_space(self.single_action_space, seat.rows)
        self.action_space.seed(seat.seed)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.seat_entities = seat.entities
        self._seat = seat
        self._request = unflatten(self.single_action_space, seat.request.rows[0])
        self._composite = isinstance(self.single_observation_space, (spaces.Dict, spaces.Tuple))
        reply = seat.reply
        self._rewards, self._active = reply.rewards.reshape(-1), reply.active.reshape(-1)  # views, by row
        self._terminated, self._truncated = reply.terminated.reshape(-1), reply.truncated.reshape(-1)
        self._masked = bool(seat.mask_sizes[0])
        self._all_rows = np.ones(seat.rows, np.bool_)
        self._unseen = True  # the game shows observations that the algorithm was not given yet

    @property
    def ticks(self) -> int:
        """Ticks that the match has played."""
        return self._seat.ticks

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every lane. In a shared match only what is under way can end: see below.

        The first call costs nothing. A seat that is alone in its match begins all lanes anew (with
        `options["reset_mask"]` some); an int seeds lane i with `seed + i`, as Gymnasium does. A seat that shares the
        match idles until every episode that is under way has ended.
        """
        first_seed = seed[0] if isinstance(seed, Sequence) else seed
        super().reset(seed=first_seed)
        seat = self._seat
        seat.begin()
        if seat.alone and (seed is not None or options or not self._unseen):
            options = dict(options or {})
            lanes = self._lanes(options.pop("reset_mask", None))
            seat.restart(lanes, self._lane_seeds(seed), options or None)
        elif not self._unseen:
            self._outlast()
        self._unseen = False
        return self._observations(), self._infos()

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], BoolRows, BoolRows, dict[str, Any]]:
        """One tick. Copies: observations [B, ...], rewards float64 [B], terminated and truncated bool [B], infos."""
        if self._unseen:
            raise ResetNeeded("call reset() before step()")
        seat = self._seat
        copy_rows(self.single_action_space, actions, self._request, slice(None))
        seat.act()
        return (
            self._observations(),
            self._rewards.copy(),
            self._terminated.copy(),
            self._truncated.copy(),
            self._infos(),
        )

    def _observations(self) -> Any:
        leaves = [leaf.copy() for leaf in self._seat.reply.rows[0]]
        return unflatten(self.single_observation_space, leaves) if self._composite else leaves[0]

    def _infos(self) -> dict[str, Any]:
        seat = self._seat
        infos: dict[str, Any] = {}
        if seat.reply.header[3]:
            for row, observation in seat.final_observations().items():
                ending = {"final_obs": observation, "final_info": seat.final_infos.get(row, {})}
                infos = self._add_info(infos, ending, row)
        for row, info in seat.infos.items():
            infos = self._add_info(infos, info, row)
        if self._masked:
            infos["action_mask"], infos["_action_mask"] = seat.reply.mask_rows[0].copy(), self._all_rows.copy()
        infos["active"] = self._active.copy()
        return infos

    def _lanes(self, reset_mask: BoolRows | None) -> BoolRows:
        """The lanes of which any row is to be reset: a lane is one game."""
        if reset_mask is None:
            return np.ones(self._seat.lanes, np.bool_)
        if reset_mask.shape != (self.num_envs,) or reset_mask.dtype != np.bool_:
            raise ValueError(f"reset_mask must be bool [{self.num_envs}], got {reset_mask.dtype} {reset_mask.shape}")
        lanes: BoolRows = np.logical_or.reduce(reset_mask.reshape(self._seat.lanes, -1), axis=1)
        return lanes

    def _lane_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None] | None:
        lanes = self._seat.lanes
        if seed is None:
            return None
        if not isinstance(seed, Sequence):
            return [int(seed) + lane for lane in range(lanes)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{self.num_envs} seeds expected, one per row, got {len(seed)}")
        return list(seed[:: self.num_envs // lanes])

    def _outlast(self) -> None:
        """Idles until each lane has begun a new episode."""
        begun = self._seat.reply.fresh.any(axis=1)
        while not begun.all():
            self._seat.idle()
            begun |= self._seat.reply.fresh.any(axis=1)
