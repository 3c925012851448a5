"""A seat's side of the conversation with its environment: one request and one reply per tick.

The first reply comes without a request: it shows the first observations. The reply that uses up the budget says so;
every later request raises `BudgetReached` instead of being sent.

Where a match overlaps two blocks of its lanes (`pipeline: 2`), a worker has a `Seat` for each. The environment answers
them in turn, so what is said to one must be said to the other before the first is spoken to again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from numpy.typing import NDArray

from arena.diagnostics.profile import Activity, StoppedWatch, Stopwatch
from arena.errors import BudgetReached, ProtocolError
from arena.game.api import Info
from arena.game.lockstep import RequestKind
from arena.game.spaces import row as row_of
from arena.game.spaces import rows_of
from arena.seat.layout import Block, ReplyView, RequestView
from arena.seat.welcome import Welcome
from arena.transport import Link
from arena.transport.messages import pack, unpack

NO_INFOS: Mapping[int, Info] = {}


class BlockOrder:
    """How often each of a worker's seats in one match has spoken: a question out of turn would never be answered.

    Args:
        parts: how many seats there are.
    """

    def __init__(self, parts: int) -> None:
        self._said = [0] * parts

    def check(self, part: int) -> None:
        """Whether a seat may speak now.

        Raises:
            ProtocolError: another seat is behind this one.
        """
        if self._said[part] > min(self._said):
            raise ProtocolError(
                f"block {part} is a tick ahead of block {self._said.index(min(self._said))}: the environment steps "
                "the blocks in turn; call step_async() once on each of env.blocks before any gets the next one"
            )

    def say(self, part: int) -> None:
        """Notes a request."""
        self._said[part] += 1

    def hear(self, part: int) -> None:
        """Notes that a reply is waited for.

        Raises:
            ProtocolError: the environment waits for an earlier seat's request before it gives this reply.
        """
        behind = [other for other in range(part) if self._said[other] < self._said[part]]
        if behind:
            raise ProtocolError(
                f"block {part} is answered after block {behind[0]}, which has no actions for this tick yet: call "
                "step_async() on that one before step_wait() here"
            )


class SeatClient:
    """The seat of one worker, or its part of one block of lanes.

    Args:
        welcome: what the environment says about the seat.
        link: this seat's end of the link.
        seed: the worker's seed, for what a proxy draws by itself (such as `action_space.sample()`).
        start: the tick of the match at which the leg begins.
        before_first_request: called when the worker plays.
        turns: shared by all seats of the worker; None where there is but one.
        calls: counts the requests for new episodes.
        stopwatch: measures what the worker does.
    """

    def __init__(
        self,
        welcome: Welcome,
        link: Link,
        *,
        seed: int,
        start: int = 0,
        before_first_request: Callable[[], None] = lambda: None,
        stopwatch: Stopwatch | None = None,
        turns: BlockOrder | None = None,
        calls: Counter[str] | None = None,
    ) -> None:
        layout = welcome.layout()
        self.lanes = welcome.lanes
        self.entities = welcome.entities
        self.observation_spaces = welcome.observation_spaces
        self.action_spaces = welcome.action_spaces
        self.mask_sizes = welcome.mask_sizes
        self.alone = welcome.alone
        self.part = welcome.part
        self.uniform = layout.uniform
        self.rows = layout.rows
        self.seed = seed
        self._start = start
        self.request = RequestView(layout, link.outbox)
        self.reply = ReplyView(layout, link.inbox)
        self.infos: Mapping[int, Info] = NO_INFOS  # by row, of what is shown now
        self.final_infos: Mapping[int, Info] = NO_INFOS  # by row, of episodes that ended on this tick
        self._header = self.reply.header
        self._stopwatch = stopwatch or StoppedWatch()
        self._watched = self._stopwatch.runs  # a call that does nothing is still a call, several times per tick
        self._layout = layout
        self._link = link
        self._before_first_request = before_first_request
        self._turns = turns
        self._calls: Counter[str] = Counter() if calls is None else calls
        self._begun = False
        self._played = False
        self._pending = False  # a request has no reply yet
        self._left = False

    @property
    def ticks(self) -> int:
        """Ticks that the match has played, as far as this seat knows."""
        return self.reply.tick if self._begun else self._start

    @property
    def over(self) -> bool:
        """Whether the budget is used."""
        return self._begun and self.reply.last

    def begin(self) -> None:
        """Waits for the first observations; later calls do nothing."""
        if not self._begun:
            self._listen()
            self._begun = True

    def act(self) -> None:
        """Sends the actions that were written to `request` and waits for the reply."""
        self.say(RequestKind.ACT)
        self.hear()

    def idle(self) -> None:
        """Lets one tick pass."""
        self.say(RequestKind.IDLE)
        self.hear()

    def restart(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        """Begins new episodes in these lanes; only for a seat that is alone in its match. Costs no tick."""
        self.ask_restart(lanes, seeds, options)
        self.hear()

    def ask_restart(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        """Sends what `restart` asks for; `hear` waits for it."""
        self._calls["reset"] += 1
        self.say(RequestKind.RESET, pack((lanes, seeds, options)))

    def leave(self) -> None:
        """Says that the worker has ended, if the match goes on without it."""
        if self._left:
            return
        self._left = True
        self.begin()
        if self._pending:
            self._listen()
        if not self.over:
            self._before_first_request()
            self.request.kind = RequestKind.LEAVE
            self._link.post(self.request.header_bytes)
        self._link.close()

    def say(self, kind: RequestKind, extra: bytes | None = None) -> None:
        """Sends a request, with what was written to `request` if it is to act.

        Raises:
            BudgetReached, AlreadyPendingCallError, ProtocolError: as `check_turn`.
        """
        self.check_turn()
        self.speak(kind, extra)

    def check_turn(self) -> None:
        """Whether a request may be made, to be asked before anything is written into it.

        Raises:
            BudgetReached: the match is over.
            AlreadyPendingCallError: the last request has no reply yet.
            ProtocolError: another seat of the worker must speak first.
        """
        if not self._begun:
            self.begin()
        if self._header[1]:  # `reply.last`
            raise BudgetReached(f"all {self.ticks} ticks of the match are played")
        if self._pending:
            raise AlreadyPendingCallError("the last step has no result yet: call step_wait() first", "step_async")
        if self._turns is not None:
            self._turns.check(self.part)

    def speak(self, kind: RequestKind, extra: bytes | None = None) -> None:
        """What `say` does once it is known that the seat may speak."""
        if self._turns is not None:
            self._turns.say(self.part)
        if not self._played:
            self._played = True
            self._before_first_request()
        if self._watched:
            self._stopwatch.switch(Activity.COMMUNICATION)
        self.request.kind = kind
        self._link.post(self.request.nbytes if kind is RequestKind.ACT else self.request.header_bytes)
        if extra is not None:
            self._link.post_extra(extra)
        self._pending = True

    def think(self) -> None:
        """Says that the algorithm goes on before the reply has come."""
        self._stopwatch.switch(Activity.INFERENCE)

    def hear(self) -> None:
        """Waits for the reply to the last request.

        Raises:
            NoAsyncCallError: there is none to wait for.
            ProtocolError: another seat of the worker must speak first.
        """
        if not self._pending:
            raise NoAsyncCallError("no step is under way: call step_async() first", "step_wait")
        if self._turns is not None:
            self._turns.hear(self.part)
        self._listen()

    def _listen(self) -> None:
        if self._watched:
            self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        self._link.wait()
        self._pending = False
        if self._watched:
            self._stopwatch.switch(Activity.COMMUNICATION)
        self.infos, self.final_infos = NO_INFOS, NO_INFOS
        if self._header[2]:  # `reply.extra`
            self.infos, self.final_infos = unpack(self._link.wait_extra())
        if self._watched:
            self._stopwatch.think()

    def observation(self, entity: int, lane: int) -> Any:
        """A copy of what an entity sees in a lane."""
        return row_of(self.observation_spaces[entity], self.reply.by_entity[entity], lane)

    def final_observations(self) -> dict[int, Any]:
        """Copies of the last observations of the rows that ended on this tick, by row."""
        found: dict[int, Any] = {}
        for block, (rows, leaves) in zip(self._layout.blocks, self.reply.final(), strict=True):
            samples = rows_of(block.observation_space, leaves, len(rows))
            found.update(zip(self._places(block, rows), samples, strict=True))
        return found

    def final_masks(self) -> dict[int, NDArray[np.int8]]:
        """Copies of the last action masks of the rows that ended on this tick, by row, as far as they have any."""
        found: dict[int, NDArray[np.int8]] = {}
        for block, (rows, masks) in zip(self._layout.blocks, self.reply.final_masks(), strict=True):
            found.update(zip(self._places(block, rows), masks.copy(), strict=True))
        return found

    def final_info(self, row: int) -> Info:
        """What the game has said last in a row that ended on this tick, with the action mask where there is one."""
        info: Info = dict(self.final_infos.get(row, {}))
        mask = self.final_masks().get(row)
        if mask is not None:
            info["action_mask"] = mask
        return info

    def _places(self, block: Block, rows: NDArray[np.intp]) -> list[int]:
        """Rows of a block as rows of the seat."""
        places: list[int] = (rows if self.uniform else rows * len(self.entities) + block.entities[0]).tolist()
        return places

    def mask(self, entity: int, lane: int) -> NDArray[np.int8] | None:
        """A copy of an entity's action mask in a lane, None where it has none."""
        masks = self.reply.masks_by_entity[entity]
        return None if masks is None else masks[lane].copy()

    def info(self, entity: int, lane: int) -> Info:
        """What the game says beside the observation, with the action mask where there is one."""
        info: Info = dict(self.infos.get(lane * len(self.entities) + entity, {}))
        mask = self.mask(entity, lane)
        if mask is not None:
            info["action_mask"] = mask
        return info
