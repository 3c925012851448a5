"""The vector face: all entities of a seat in all lanes, batched, as a `gymnasium.vector.VectorEnv`.

If the match overlaps two blocks of its lanes (`pipeline: 2`), there is a `SeatClient` for each; the order of the rows
is the same as without blocks. `step` sends to both and waits for both. To use the overlap, an algorithm steps the
blocks one by one, always in the same order:

    for block in env.blocks:                      while it computes for one block, the environment steps the other
        results = block.step_wait()               not before the block's first step
        block.step_async(act(results))

All blocks must be stepped in the thread that called `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from arena.errors import ProtocolError
from arena.game.batches import batch_leaves, batched_space
from arena.game.infos import MASK, Infos, StepFields, grouped
from arena.game.lockstep import RequestKind
from arena.game.ragged import Ragged
from arena.game.spaces import BatchWriter, Columns, empty_batch, flatten, leaves_of, unflatten
from arena.game.units import UnitSpace
from arena.seat.client import SeatClient

BoolRows = NDArray[np.bool_]
StepResults = tuple[Any, NDArray[np.float64], BoolRows, BoolRows, Infos]


class VectorEnvProxy(VectorEnv[Any, Any, Any]):
    """`num_envs = lanes * entities` rows, lane-major: row = lane * entities + entity.

    Ended rows are reset on the same tick (`AutoresetMode.SAME_STEP`): `obs` is then the next episode's first one, and
    `infos["final_obs"]`, `infos["final_info"]` hold the last ones, as in Gymnasium's vector environments. There are
    also

    - `infos["active"]` [B]: false for rows whose action is ignored: an entity that is out of the game until its lane's
      next episode, or that is not to move in a turn-based game;
    - `infos["action_mask"]` [B, n] int8, if the game has masks; `infos["final_info"]["action_mask"]` [B, n] has the
      last masks of the rows that ended, and zeros in other rows. A final mask of all zeros is replaced by all ones;
    - with a `UnitSpace`: `Ragged` in the places of ragged leaves; rows that do not act are shown without actors, and
      `action_space.sample()` draws what is allowed at the observations that were returned last. `step` takes a `Ragged`
      or one array per row for each action; numbers for rows that do not act are dropped;
    - only of external games: `infos["void"]` [B], rows whose transition that this tick completes is not to be learned
      from; `infos["given"]` [B], active rows that have acted already, with `infos["given_action"]` [B, ...]: the action
      that is passed to `step` for such a row is ignored.

    Args:
        seats: of the worker, one per block of lanes.
        rows: of a block, its rows in the whole environment; None for the whole environment.

    Attributes:
        seat_entities: the names of the entities that the seat drives.
        rows: this block's rows in the whole environment.
        masked: whether the game has action masks.

    Raises:
        BudgetReached: from `step`, and from a `reset` that needs a tick, after the last tick of the match's budget.
        ResetNeeded: from `step`, before the first `reset`.
    """

    def __init__(self, seats: Sequence[SeatClient], *, rows: slice | None = None) -> None:
        seat = seats[0]
        self._seats = tuple(seats)
        self._lanes = sum(seat.lanes for seat in seats)
        self.num_envs = sum(seat.rows for seat in seats)
        ends = np.cumsum([seat.rows for seat in seats]).tolist()
        self._places = [(seat, slice(end - seat.rows, end)) for seat, end in zip(seats, ends, strict=True)]
        self._is_part = rows is not None
        self.rows = slice(0, self.num_envs) if rows is None else rows
        self._blocks: tuple[VectorEnvProxy, ...] = ()  # empty if there is only one
        if len(seats) > 1:
            self._blocks = tuple(VectorEnvProxy([seat], rows=place) for seat, place in self._places)
        self.single_observation_space = seat.observation_spaces[0]
        self.single_action_space = space = seat.action_spaces[0]
        self.observation_space = batched_space(self.single_observation_space, self.num_envs)
        self._shown_actions = _actions_shown_by(self._seats)
        self.action_space = batched_space(space, self.num_envs, self._shown_actions)
        # The blocks of one worker must not draw the same actions.
        block_seed = np.random.SeedSequence((seat.seed, seat.part)).generate_state(1)[0]
        self.action_space.seed(int(block_seed) if self._is_part else seat.seed)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.seat_entities = seat.entities
        self.masked = bool(seat.mask_sizes[0])
        self._ragged, self._external = seat.ragged, seat.external
        self._composite = isinstance(self.single_observation_space, (spaces.Dict, spaces.Tuple))
        self._all_rows = np.ones(self.num_envs, np.bool_)
        self._first_pending = True  # whether there are first observations that `reset` has not returned yet
        # What `step` reads and writes: per seat, by row.
        replies = [seat.reply for seat in seats]
        self._leaves = list(zip(*(reply.rows[0] for reply in replies), strict=True))  # per leaf, per seat
        self._rewards = [reply.rewards.reshape(-1) for reply in replies]
        self._terminated = [reply.terminated.reshape(-1) for reply in replies]
        self._truncated = [reply.truncated.reshape(-1) for reply in replies]
        self._active = [reply.active.reshape(-1) for reply in replies]
        self._masks = [reply.mask_rows[0] for reply in replies]
        self._shown: tuple[Any, NDArray[np.float64], BoolRows, BoolRows] | None = None
        if len(seats) == 1 and not self._composite and not self._ragged:  # the usual case: nothing has to be joined
            self._shown = self._leaves[0][0], self._rewards[0], self._terminated[0], self._truncated[0]
        if self._ragged:
            self._columns, self._action_columns = Columns(self.single_observation_space), Columns(space)
            return
        request = unflatten(space, seat.request.rows[0])
        self._shares: list[tuple[NDArray[Any], NDArray[Any]]] = []  # a seat's request, and its rows of `request`
        if len(seats) > 1:
            request = empty_batch(space, self.num_envs)
            for seat, place in self._places:
                self._shares += zip(
                    seat.request.rows[0], [leaf[place] for leaf in flatten(space, request)], strict=True
                )
        self._actions = BatchWriter(space, request)

    @property
    def blocks(self) -> tuple[VectorEnvProxy, ...]:
        """Environments of some of the rows each, which can be stepped one by one; often only this one."""
        return self._blocks or (self,)  # not stored: a reference cycle would be freed by the garbage collector only

    @property
    def ticks(self) -> int:
        """Ticks that the match has played."""
        return min(seat.ticks for seat in self._seats)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        """Begins an episode in every lane; in a shared match, waits for new episodes.

        The first call takes no tick. The only seat of a match resets all lanes, or some with `options["reset_mask"]`;
        an int seeds lane i with `seed + i`, as Gymnasium does. A seat that shares the match idles until every current
        episode has ended.

        Raises:
            ProtocolError: this is one of several blocks, which can only be reset together.
            ValueError: `reset_mask` is not bool [B], or a list of seeds has not one for each row.
        """
        if self._is_part:
            raise ProtocolError("a block cannot be reset alone: call reset() of the whole environment")
        first_seed = seed[0] if isinstance(seed, Sequence) else seed
        super().reset(seed=first_seed)
        for seat in self._seats:
            seat.begin()
        if self._seats[0].alone and (seed is not None or options or not self._first_pending):
            options = dict(options or {})
            lanes: BoolRows = np.ones(self._lanes, np.bool_)
            if (mask := options.pop("reset_mask", None)) is not None:  # the lanes with any row in it
                if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
                    raise ValueError(f"reset_mask must be bool [{self.num_envs}], got {mask.dtype} {mask.shape}")
                lanes = np.logical_or.reduce(mask.reshape(self._lanes, -1), axis=1)
            seeds: list[int | None] | None = None
            if isinstance(seed, Sequence):
                if len(seed) != self.num_envs:
                    raise ValueError(f"{self.num_envs} seeds expected, one per row, got {len(seed)}")
                seeds = list(seed[:: self.num_envs // self._lanes])
            elif seed is not None:
                seeds = [int(seed) + lane for lane in range(self._lanes)]
            first = 0
            for seat in self._seats:  # every block sends a request, also for no lanes: see `BlockOrder`
                part = slice(first, first + seat.lanes)
                seat.request_restart(lanes[part], None if seeds is None else seeds[part], options or None)
                first += seat.lanes
            for seat in self._seats:
                seat.receive()
        elif not self._first_pending:  # idle until each lane has begun a new episode
            begun = np.zeros(self._lanes, np.bool_)
            while True:
                begun |= np.concatenate([seat.reply.fresh.any(axis=1) for seat in self._seats])
                if begun.all():
                    break
                for seat in self._seats:
                    seat.submit(RequestKind.IDLE)
                for seat in self._seats:
                    seat.receive()
        for block in (self, *self.blocks):
            block._first_pending = False
        return self._observations(), self._infos()

    def step(self, actions: Any) -> StepResults:
        """Plays one tick.

        Args:
            actions: [B, ...] as the action space has them; those of rows that are not active are ignored.

        Returns:
            copies: observations [B, ...], rewards float64 [B], terminated bool [B], truncated bool [B], infos.
        """
        self._send(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Sends the actions [B, ...] of one tick and returns at once.

        Raises:
            BudgetReached: as `step`.
            AlreadyPendingCallError: `step_wait` was not called for the last step.
            ProtocolError: this block is a tick ahead of another one, which has to be stepped first.
        """
        self._send(actions)
        self._seats[-1].release()

    def step_wait(self) -> StepResults:
        """Waits for the results of the last `step_async`.

        Raises:
            NoAsyncCallError: no step is pending.
            ProtocolError: the environment waits for the actions of an earlier block.
        """
        for seat in self._seats:
            seat.receive()
        infos = self._infos()
        if self._shown is not None:
            observed, rewards, terminated, truncated = self._shown
            return observed.copy(), rewards.copy(), terminated.copy(), truncated.copy(), infos
        flags = _joined(self._terminated), _joined(self._truncated)
        return self._observations(), _joined(self._rewards), *flags, infos

    def step_views(self) -> tuple[Any, NDArray[np.float64], BoolRows, BoolRows, StepFields]:
        """As `step_wait`, for callers that copy at once: arrays that the next step overwrites, and fields for infos."""
        if self._shown is None or self._external:
            *results, infos = self.step_wait()
            return (*results, infos.fields)
        (seat,) = self._seats
        seat.receive()
        if seat.reply.header[3]:  # rows have ended
            return (*self._shown, self._infos().fields)
        return (*self._shown, StepFields(self._active[0], self._masks[0] if self.masked else None))

    def _send(self, actions: Any) -> None:
        if self._first_pending:
            raise ResetNeeded("call reset() before step()")
        for seat in self._seats:
            seat.check_turn()
        if not self._ragged:
            self._actions.write(actions, self._active_rows)
            for target, mine in self._shares:
                target[...] = mine
        else:
            shown = self._shown_actions()
            active = self._active[0] if len(self._seats) == 1 else self._active_rows()
            leaves = batch_leaves(self.single_action_space, self._action_columns, actions, shown, active=active)
            for seat, rows in self._places:
                column, whole = seat.request.rows[0], len(self._seats) == 1
                for number, leaf in enumerate(leaves):
                    if isinstance(leaf, Ragged):
                        column[number] = leaf if whole else leaf[rows]
                    else:
                        column[number][...] = leaf[rows]
        for seat in self._seats:
            seat.send(RequestKind.ACT)

    def _observations(self) -> Any:
        if self._ragged:  # its leaves are new ones with each message
            if len(self._seats) == 1:
                rows = self._seats[0].reply.rows[0]
                return self._columns.unflatten([leaf if isinstance(leaf, Ragged) else leaf.copy() for leaf in rows])
            parts = zip(*[seat.reply.rows[0] for seat in self._seats], strict=True)
            joined = [Ragged.concat(of) if isinstance(of[0], Ragged) else np.concatenate(of) for of in parts]
            return self._columns.unflatten(joined)
        leaves = [_joined(parts) for parts in self._leaves]
        return unflatten(self.single_observation_space, leaves) if self._composite else leaves[0]

    def _infos(self) -> Infos:
        fields = StepFields(self._active_rows(), _joined(self._masks) if self.masked else None)
        shown = rows_ended = False
        for seat in self._seats:  # without a generator's frames: this runs at each tick
            rows_ended = rows_ended or bool(seat.reply.header[3])
            shown = shown or bool(seat.infos)
        if rows_ended:
            observed, ended = np.full(self.num_envs, None, object), np.zeros(self.num_envs, np.bool_)
            last: Any = np.zeros_like(fields.action_mask) if self.masked else None
            for seat, rows in self._places:
                for row, observation in seat.final_observations().items():
                    observed[rows.start + row], ended[rows.start + row] = observation, True
                for row, mask in seat.final_masks().items():
                    last[rows.start + row] = mask
            fields = fields._replace(ended=ended, final_obs=observed, final_mask=last)
        if self._external:
            replies = [seat.reply for seat in self._seats]
            actions = zip(*(reply.given_rows[0] for reply in replies), strict=True)
            fields = fields._replace(
                void=_joined([reply.void.reshape(-1) for reply in replies]),
                given=_joined([reply.given.reshape(-1) for reply in replies]),
                given_action=unflatten(self.single_action_space, [_joined(parts) for parts in actions]),
            )
        infos = Infos(fields, self._grouped("infos") if shown else {})
        if fields.ended is not None:
            infos["final_obs"], infos["_final_obs"] = fields.final_obs, fields.ended
            infos["final_info"], infos["_final_info"] = self._grouped("final_infos"), fields.ended.copy()
            if fields.final_mask is not None:
                infos["final_info"] |= {MASK: fields.final_mask, f"_{MASK}": fields.ended.copy()}
        if fields.action_mask is not None:
            infos[MASK], infos[f"_{MASK}"] = fields.action_mask, self._all_rows.copy()
        infos["active"] = fields.active
        if self._external:
            infos |= {"void": fields.void, "given": fields.given, "given_action": fields.given_action}
        return infos

    def _grouped(self, which: str) -> dict[str, Any]:
        """The game's infos of all rows: the seats' `infos` or `final_infos`."""
        rows = {place.start + row: info for seat, place in self._places for row, info in getattr(seat, which).items()}
        return grouped(rows, self.num_envs)

    def _active_rows(self) -> BoolRows:
        return _joined(self._active)


def _actions_shown_by(seats: Sequence[SeatClient]) -> Callable[[], Any]:
    """A function that returns what the units of all rows may do now, batched; None without units or observations."""
    space = seats[0].observation_spaces[0]
    if not isinstance(space, UnitSpace):
        return lambda: None
    columns = Columns(space["actions"])
    first = next(number for number, leaf in enumerate(leaves_of(space, ragged=True)) if leaf.of_actors)

    def shown() -> Any:
        if not seats[-1].begun:
            return None
        if len(seats) == 1:
            return columns.unflatten(seats[0].reply.rows[0][first:])
        rows = (seat.reply.rows[0][first:] for seat in seats)
        return columns.unflatten(list(map(Ragged.concat, zip(*rows, strict=True))))

    return shown


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The arrays of all seats joined, as a copy."""
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
