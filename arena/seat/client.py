"""The worker's end of a seat: one request to the environment and one reply from it per tick.

The first reply comes without a request and holds the first observations. The reply of the last tick of the budget is
marked as such; every later request raises `BudgetReached` instead of being sent.

If a match overlaps two blocks of its lanes (`pipeline: 2`), a worker has a `SeatClient` for each. The environment
serves the blocks in turn, so a worker must send one request to each block before it sends the next one to either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.diagnostics.profile import Activity, StoppedWatch, Stopwatch
from arena.errors import BudgetReached, ProtocolError
from arena.game.api import Info
from arena.game.batches import action_leaves
from arena.game.infos import MASK, Infos, StepFields, shown
from arena.game.lockstep import RequestKind
from arena.game.ragged import Ragged
from arena.game.spaces import check_choices, rows_of, write_sample
from arena.game.spaces import row as row_of
from arena.game.units import UnitActions, UnitSpace
from arena.seat.layout import Block, ReplyView, RequestView, SeatDescription
from arena.seat.ragged_parts import send_heap
from arena.transport import Link
from arena.transport.pickling import pack, unpack

NO_INFOS: Mapping[int, Info] = {}


class BlockOrder:
    """Checks that a worker serves its `parts` blocks in turn: a request out of turn would never be answered."""

    def __init__(self, parts: int) -> None:
        self._sent = [0] * parts

    def check_request(self, part: int) -> None:
        """Checks that a block may send a request now: no other block is a tick behind it."""
        if self._sent[part] > min(self._sent):
            raise ProtocolError(
                f"block {part} is a tick ahead of block {self._sent.index(min(self._sent))}: the environment steps "
                "the blocks in turn; call step_async() once on each of env.blocks before any gets the next one"
            )

    def count_request(self, part: int) -> None:
        """Counts a request of a block."""
        self._sent[part] += 1

    def check_reply(self, part: int) -> None:
        """Checks that a block's reply can be waited for: the environment waits for no earlier block's request."""
        behind = [other for other in range(part) if self._sent[other] < self._sent[part]]
        if behind:
            raise ProtocolError(
                f"block {part} is answered after block {behind[0]}, which has no actions for this tick yet: call "
                "step_async() on that one before step_wait() here"
            )


class SeatClient:
    """The seat of one worker, or its part of one block of lanes.

    Args:
        seed: the worker's seed, for draws of a proxy such as `action_space.sample()`.
        start: the tick of the match at which the leg begins.
        before_first_request: called once, before the worker's first request.
        block_order: shared by all seats of the worker; None if there is only one.
        calls: counts the requests for new episodes.
    """

    def __init__(
        self,
        description: SeatDescription,
        link: Link,
        *,
        seed: int,
        start: int = 0,
        before_first_request: Callable[[], None] = lambda: None,
        stopwatch: Stopwatch | None = None,
        block_order: BlockOrder | None = None,
        calls: Counter[str] | None = None,
    ) -> None:
        self._layout = layout = description.layout()
        self.lanes, self.part, self.alone, self.interface = (
            description.lanes,
            description.part,
            description.alone,
            description.interface,
        )
        self.entities = self.interface.entities
        self.observation_spaces, self.action_spaces, self.mask_sizes = self.interface.spaces
        self.uniform, self.external = layout.uniform, layout.external
        self.ragged, self.rows = layout.ragged, layout.rows
        self.seed = seed
        self.request = RequestView(layout, link.outbox)
        self.reply = ReplyView(layout, link.inbox)
        self.infos: Mapping[int, Info] = NO_INFOS  # by row, of the current observations
        self.final_infos: Mapping[int, Info] = NO_INFOS  # by row, of episodes that ended on this tick
        self._header = self.reply.header
        self._stopwatch = stopwatch or StoppedWatch()
        self._measures = self._stopwatch.runs  # else it is not called: even empty calls cost time, several per tick
        self._link, self._start = link, start
        self._before_first_request, self._block_order = before_first_request, block_order
        self._calls: Counter[str] = Counter() if calls is None else calls
        self.begun = False  # whether the first observations have come
        self._played = False
        self._pending = False  # a request was sent, and its reply has not been received
        self._left = False

    @property
    def ticks(self) -> int:
        """Ticks that the match has played, according to the last reply."""
        return self.reply.tick if self.begun else self._start

    @property
    def over(self) -> bool:
        """Whether all ticks of the budget are played."""
        return self.begun and self.reply.last

    def begin(self) -> None:
        """Waits for the first observations; further calls do nothing."""
        if not self.begun:
            if self.external:  # external games are played after the root's Go, which waits until all are ready
                self._before_first_request()
            self._wait()
            self.begun = True

    def begin_episode(self, seed: int | None, options: Mapping[str, Any] | None, *, first_pending: bool) -> None:
        """Begins an episode in the only lane, or waits for the next one of a shared game.

        `first_pending`: whether there are first observations that the algorithm has not got yet.
        """
        self.begin()
        if self.alone and (seed is not None or options or not first_pending):
            self.request_restart(np.ones(1, np.bool_), [seed], options)
            self.receive()
        while not self.reply.fresh.any():
            self.exchange(RequestKind.IDLE)

    def exchange(self, kind: RequestKind) -> None:
        """Sends a request and waits for the reply: ACT with what was written to `request`, IDLE without actions."""
        self.submit(kind)
        self.receive()

    def request_restart(
        self, lanes: NDArray[np.bool_], seeds: Sequence[int | None] | None, options: Mapping[str, Any] | None
    ) -> None:
        """Requests new episodes in these lanes, without a tick, as only the single seat of a match may.

        `receive` waits for the reply.
        """
        self._calls["reset"] += 1
        self.submit(RequestKind.RESET, pack((lanes, seeds, options)))

    def leave(self) -> None:
        """Tells the environment that the worker has ended, unless the match is over; further calls do nothing."""
        if self._left:
            return
        self._left = True
        self.begin()
        if self._pending:
            self._wait()
        if not self.over:
            self._before_first_request()
            self.request.kind = RequestKind.LEAVE
            self._link.post(self.request.header_bytes)
        self._link.close()

    def submit(self, kind: RequestKind, extra: bytes | None = None) -> None:
        """`check_turn` and `send`; ACT sends what was written to `request`."""
        self.check_turn()
        self.send(kind, extra)

    def check_turn(self) -> None:
        """Checks that a request may be sent; to be called before anything is written to `request`.

        Raises:
            BudgetReached: the match is over.
            AlreadyPendingCallError: the last request has no reply yet.
            ProtocolError: another block of the worker has to send its request first.
        """
        if not self.begun:
            self.begin()
        if self._header[1]:  # `reply.last`
            raise BudgetReached(f"all {self.ticks} ticks of the match are played")
        if self._pending:
            raise AlreadyPendingCallError("the last step has no result yet: call step_wait() first", "step_async")
        if self._block_order is not None:
            self._block_order.check_request(self.part)

    def send(self, kind: RequestKind, extra: bytes | None = None) -> None:
        """Sends a request without `check_turn`."""
        if self._block_order is not None:
            self._block_order.count_request(self.part)
        if not self._played:
            self._played = True
            self._before_first_request()
        if self._measures:
            self._stopwatch.switch(Activity.COMMUNICATION)
        self.request.kind = kind
        if self.ragged and kind is RequestKind.ACT:
            heap = self.request.packed_heap(self.reply.active)
            try:
                send_heap(self._link, heap)
            except OSError as error:
                what = f"actions of {len(heap):,} bytes for {self.rows} rows"
                raise OSError(f"{what}: {error}; use fewer lanes") from error
        self._link.post(self.request.nbytes if kind is RequestKind.ACT else self.request.header_bytes)
        if extra is not None:
            self._link.post_extra(extra)
        self._pending = True

    def release(self) -> None:
        """Tells the stopwatch that the algorithm computes while the environment plays."""
        self._stopwatch.switch(Activity.INFERENCE)

    def receive(self) -> None:
        """Waits for the reply to the last request.

        Raises:
            NoAsyncCallError: no request is pending.
            ProtocolError: another block of the worker has to send its request first.
        """
        if not self._pending:
            raise NoAsyncCallError("no step is under way: call step_async() first", "step_wait")
        if self._block_order is not None:
            self._block_order.check_reply(self.part)
        self._wait()

    def _wait(self) -> None:
        if self._measures:
            self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        self._link.wait()
        self._pending = False
        if self._measures:
            self._stopwatch.switch(Activity.COMMUNICATION)
        if self.ragged:
            # One copy of all, because the environment overwrites the heap while the algorithm still reads.
            self.reply.read_heap(self._link.wait_heap(self.reply.heap).copy())
        self.infos, self.final_infos = NO_INFOS, NO_INFOS
        if self._header[2]:  # `reply.extra`
            self.infos, self.final_infos = (
                {row: shown(info) for row, info in infos.items()} for infos in unpack(self._link.wait_extra())
            )
        if self._measures:
            self._stopwatch.begin_inference()

    def write_action(self, entity: int, action: Any) -> None:
        """Writes an entity's action in the only lane into `request`.

        Raises:
            TypeError: it has values of another type.
            ValueError: it has another shape, values out of range, or for units not one choice per actor.
        """
        space = self.action_spaces[entity]
        if not self.ragged:
            check_choices(space, action)
            write_sample(space, action, self.request.by_entity[entity], 0)
            return
        block, position = (0, entity) if self.uniform else (entity, 0)
        several = len(self._layout.blocks[block].entities)
        row = slice(position, position + 1)
        leaves = action_leaves(space, [action], self.shown_actions(entity), first_row=entity)
        column = self.request.rows[block]
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, Ragged) and several == 1:
                column[number] = leaf
            elif isinstance(leaf, Ragged):
                before = column[number]
                column[number] = Ragged.concat([before[:position], leaf, before[position + 1 :]])
            else:
                column[number][row] = leaf

    def shown_actions(self, entity: int) -> Any:
        """What units may do in an entity's current observations, batched; None if it has no units."""
        if not isinstance(self.observation_spaces[entity], UnitSpace):
            return None
        return self.reply.of_entity(entity)["actions"]

    def action_space_of(self, entity: int) -> Space[Any]:
        """An entity's action space, for the only lane; that of units draws what is allowed now."""
        space = self.action_spaces[entity]
        if not isinstance(space, UnitActions):
            return space
        shown = self.observation_spaces[entity]["actions"]  # type: ignore[index]
        return space.showing(lambda: row_of(shown, self.shown_actions(entity), 0) if self.begun else None)

    def observation(self, entity: int, lane: int) -> Any:
        """A copy of an entity's observation in a lane."""
        return row_of(self.observation_spaces[entity], self.reply.of_entity(entity), lane)

    def final_observations(self) -> dict[int, Any]:
        """Copies of the last observations of the rows that ended on this tick, by row."""
        found: dict[int, Any] = {}
        for block, (rows, leaves) in zip(self._layout.blocks, self.reply.final(), strict=True):
            samples = rows_of(block.observation_space, leaves, len(rows))
            found.update(zip(self._places(block, rows), samples, strict=True))
        return found

    def final_masks(self) -> dict[int, NDArray[np.int8]]:
        """Copies of the last action masks of the rows that ended on this tick, by row; only rows with masks."""
        found: dict[int, NDArray[np.int8]] = {}
        for block, (rows, masks) in zip(self._layout.blocks, self.reply.final_masks(), strict=True):
            found.update(zip(self._places(block, rows), masks.copy(), strict=True))
        return found

    def final_info(self, entity: int) -> Infos:
        """The last info of an entity whose episode in the only lane ended on this tick."""
        return self._infos(entity, self.final_infos, self.final_masks().get(entity), ended=True)

    def _places(self, block: Block, rows: NDArray[np.intp]) -> list[int]:
        """Rows of a block of equal spaces as rows of the seat."""
        places: list[int] = (rows if self.uniform else rows * len(self.entities) + block.entities[0]).tolist()
        return places

    def info(self, entity: int) -> Infos:
        """An entity's info in the only lane."""
        masks, given, action = self.reply.masks_by_entity[entity], None, None
        if self.external and (given := bool(self.reply.given[0, entity])):
            action = row_of(self.action_spaces[entity], self.reply.given_actions[entity], 0)
        mask = None if masks is None else masks[0].copy()
        return self._infos(entity, self.infos, mask, given=given, action=action)

    def _infos(
        self,
        entity: int,
        infos: Mapping[int, Info],
        mask: Any,
        *,
        ended: Any = None,
        given: Any = None,
        action: Any = None,
    ) -> Infos:
        """The info of an entity in the only lane, with the arena's own keys that apply."""
        void = bool(self.reply.void[0, entity]) if self.external else None
        active = bool(self.reply.active[0, entity])
        fields = StepFields(active, mask, ended, void=void, given=given, given_action=action)
        found = Infos(fields, infos.get(entity, {}))
        if mask is not None:
            found[MASK] = mask
        if given:
            found["given_action"] = action
        if void:
            found["void"] = True
        return found
