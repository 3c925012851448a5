"""A seat's side of the conversation with its environment: one request and one reply per tick.

The first reply comes without a request: it shows the first observations. The reply that uses up the budget says so;
every later request raises `BudgetReached` instead of being sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.comm import Link
from arena.comm.wire import ReplyView, RequestView
from arena.errors import BudgetReached
from arena.interface import Info
from arena.lockstep import RequestKind
from arena.messages import Welcome, pack, unpack
from arena.spaces import row as row_of
from arena.spaces import unflatten
from arena.stopwatch import Activity, StoppedWatch, Stopwatch

NO_INFOS: Mapping[int, Info] = {}


class Seat:
    """The seat of one worker.

    Args:
        welcome: what the environment says about the seat.
        link: this seat's end of the link.
        seed: the worker's seed, for what a proxy draws by itself (such as `action_space.sample()`).
        before_first_request: called when the worker plays.
        stopwatch: measures what the worker does.
    """

    def __init__(
        self,
        welcome: Welcome,
        link: Link,
        *,
        seed: int,
        before_first_request: Callable[[], None] = lambda: None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        layout = welcome.layout()
        self.lanes = welcome.lanes
        self.entities = welcome.entities
        self.observation_spaces = welcome.observation_spaces
        self.action_spaces = welcome.action_spaces
        self.mask_sizes = welcome.mask_sizes
        self.alone = welcome.alone
        self.uniform = layout.uniform
        self.rows = layout.rows
        self.seed = seed
        self.request = RequestView(layout, link.outbox)
        self.reply = ReplyView(layout, link.inbox)
        self.infos: Mapping[int, Info] = NO_INFOS  # by row, of what is shown now
        self.final_infos: Mapping[int, Info] = NO_INFOS  # by row, of episodes that ended on this tick
        self._stopwatch = stopwatch or StoppedWatch()
        self._layout = layout
        self._link = link
        self._before_first_request = before_first_request
        self._begun = False
        self._left = False

    @property
    def ticks(self) -> int:
        """Ticks that the match has played, as far as this seat knows."""
        return self.reply.tick if self._begun else 0

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
        self._say(RequestKind.ACT)

    def idle(self) -> None:
        """Lets one tick pass."""
        self._say(RequestKind.IDLE)

    def restart(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        """Begins new episodes in these lanes; only for a seat that is alone in its match. Costs no tick."""
        self._say(RequestKind.RESET, pack((lanes, seeds, options)))

    def leave(self) -> None:
        """Says that the worker has ended, if the match goes on without it."""
        if self._left:
            return
        self._left = True
        self.begin()
        if not self.over:
            self._before_first_request()
            self.request.kind = RequestKind.LEAVE
            self._link.post(self.request.header_bytes)
        self._link.close()

    def _say(self, kind: RequestKind, extra: bytes | None = None) -> None:
        self.begin()
        if self.over:
            raise BudgetReached(f"all {self.ticks} ticks of the match are played")
        self._before_first_request()
        self._stopwatch.switch(Activity.COMMUNICATION)
        self.request.kind = kind
        self._link.post(self.request.nbytes if kind is RequestKind.ACT else self.request.header_bytes)
        if extra is not None:
            self._link.post_extra(extra)
        self._listen()

    def _listen(self) -> None:
        self._stopwatch.switch(Activity.WAITING_FOR_MATCH)
        self._link.wait()
        self._stopwatch.switch(Activity.COMMUNICATION)
        self.infos, self.final_infos = NO_INFOS, NO_INFOS
        if self.reply.extra:
            self.infos, self.final_infos = unpack(self._link.wait_extra())
        self._stopwatch.think()

    def observation(self, entity: int, lane: int) -> Any:
        """A copy of what an entity sees in a lane."""
        return row_of(self.observation_spaces[entity], self.reply.by_entity[entity], lane)

    def final_observations(self) -> dict[int, Any]:
        """Copies of the last observations of the rows that ended on this tick, by row."""
        found: dict[int, Any] = {}
        entities = len(self.entities)
        for block, (rows, leaves) in zip(self._layout.blocks, self.reply.final(), strict=True):
            for index, row in enumerate(rows.tolist()):
                where = row if self.uniform else row * entities + block.entities[0]
                found[where] = row_of(block.observation_space, unflatten(block.observation_space, leaves), index)
        return found

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
