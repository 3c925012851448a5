"""Requests of many games from many threads; the environment's thread passes them to the table of slots.

A game calls `begin`, `ask`, `pay`, `end` and `lose` in any thread; each request names the functions to be called with
its outcome. `poll`, `answer` and `drop` are called by the environment's thread and call these functions. The requests
of one game keep their order: one that comes too early (`not_yet`, `no_slot`) stays at the head of its game's queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from arena.config.schema import TickRules
from arena.errors import nearest
from arena.external.errors import CODES, Code, ExternalError
from arena.external.interface import ExternalMatch
from arena.external.slots import Answers, Ask, End, Slots
from arena.game.api import Info, Interface
from arena.game.arrays import copied
from arena.game.spaces import row

Settled = Callable[[ExternalError | None], None]
"""Called with None when the table has taken a request, with the error when it has refused it."""

Answered = Callable[[Any, int], None]
"""Called with an action, a sample of the entity's space, and its version; see `Answers`."""


def ignore(error: ExternalError | None) -> None:
    """Takes the outcome of a request that no caller waits for."""


@dataclass(eq=False)
class ConnectedGame:
    """A game as its connection knows it."""

    name: str  # outside the arena
    entities: tuple[int, ...]  # the indices of those that take part
    training: bool = True  # whether algorithms learn from it
    after: int | ConnectedGame | None = None  # the slot to take if it is free, or the game that had this slot
    slot: int | None = None  # None before it has begun
    over: str = ""  # why the game is over; empty while it goes on
    gone: str = ""  # why no more requests will come, although it is not over; empty if they may
    _requests: deque[_Request] = field(default_factory=deque)
    _waiting: dict[int, tuple[Answered, Settled]] = field(default_factory=dict)  # by entity

    @property
    def begun_slot(self) -> int:
        """The slot of a game that has begun."""
        assert self.slot is not None, "it has begun"
        return self.slot


class _Request(NamedTuple):
    game: ConnectedGame
    do: Callable[[Slots], None]  # raises `ExternalError` if the table refuses it
    settled: Settled
    row: tuple[int, Ask, Answered] | None = None  # of a single entity that asks for an action


class RequestQueue:
    """The requests of the games of one match: base class of all connections but simulators; see `ExternalGames`.

    Attributes:
        rules: of the match; `policies`: the names of those that play, by entity. Set by `configure`.
        ring: called when a request has come.
        lock: requests that a thread makes while it has this lock reach the table in one `poll`, with no tick between.
        failure: what has ended the games' threads; None while all is well.
        closed: the reason given to `close`; empty before.
    """

    address = ""
    closed_loop = False

    def __init__(self, interface: Interface) -> None:
        self.interface, self.rules = interface, TickRules()
        self.policies: Sequence[str] = [""] * len(interface.entities)
        self._dtypes = [space.dtype if isinstance(space, Box) else None for space in interface.observation_spaces]
        self.ring: Callable[[], None] = lambda: None
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        self.closed = ""
        self._arrived: deque[_Request] = deque()
        self._queues: dict[ConnectedGame, None] = {}  # games with requests that the table has not taken, in order
        self._by_slot: dict[int, ConnectedGame] = {}

    def configure(self, match: ExternalMatch) -> None:
        """Takes the rules and policies of the match."""
        self.rules, self.policies = match.rules, match.policies

    @property
    def exhausted(self) -> bool:
        """Whether no game will come any more."""
        return False

    @property
    def idle(self) -> bool:
        """Whether no request waits for the table."""
        return not (self._arrived or self._queues)

    # ----------------------------------------------------------------------------------------------------- any thread

    def fail(self, error: BaseException) -> None:
        """Notes the first failure, for the next `poll`."""
        self.failure = self.failure or error
        self.ring()

    def begin(self, game: ConnectedGame, settled: Settled) -> None:
        """Requests a slot for the game, and waits for it."""

        def do(table: Slots) -> None:
            if not table.free and not table.drains:  # else `table.begin` refuses it
                raise ExternalError("no_slot")  # here: the table would count each attempt as a refusal
            after = game.after.slot if isinstance(game.after, ConnectedGame) else game.after
            game.after = None  # otherwise each game would hold references to all earlier ones
            game.slot = table.begin(game.name, game.entities, training=game.training, after=after)
            self._by_slot[game.slot] = game

        self._request(_Request(game, do, settled))

    def ask(
        self,
        game: ConnectedGame,
        asks: Mapping[int, Ask],
        settled: Settled,
        answered: Mapping[int, Answered] | None = None,
    ) -> None:
        """Entities ask, or say what they did: all of them are taken for the same tick, or none is; see `Slots.ask`.

        Args:
            asks: by the index of the entity; nothing in them is changed afterwards.
            settled: called again, with an error, for each entity that ends, or whose game ends, before the answer.
            answered: by entity; none for entities with given actions.
        """

        def do(table: Slots) -> None:
            table.ask(game.begun_slot, asks)
            for entity, handler in (answered or {}).items():
                game._waiting[entity] = handler, settled

        row = None
        if answered and len(asks) == 1:
            ((entity, ask),) = asks.items()
            row = entity, ask, answered[entity]
        self._request(_Request(game, do, settled, row))

    def pay(
        self, game: ConnectedGame, entity: int, reward: float, settled: Settled = ignore, *, info: Info | None = None
    ) -> None:
        """Adds a reward, see `Slots.pay`."""
        info = copied(info)
        self._request(_Request(game, lambda table: table.pay(game.begun_slot, entity, reward, info), settled))

    def end(self, game: ConnectedGame, entity: int | None, end: End, settled: Settled) -> None:
        """Ends an entity, or all that have not ended (None); see `Slots.end`. The observation is copied here."""
        end = end._replace(observation=copied(end.observation), info=copied(end.info))  # the owner may change them

        def do(table: Slots) -> None:
            slot = game.begun_slot
            ending = table.playing(slot) if entity is None else (entity,)
            table.end(slot, dict.fromkeys(ending, end))
            self._refuse_waiting(game, ExternalError("ended"), ending)
            if not table.playing(slot):
                self._leave(game, "ended")

        self._request(_Request(game, do, settled))

    def lose(self, game: ConnectedGame, reason: str) -> None:
        """Ends a game whose client has gone, after its earlier requests."""
        game.gone = reason

        def do(table: Slots) -> None:
            if game.slot is not None:
                table.lose(game.slot, reason)
            self._give_up(game, reason)

        self._request(_Request(game, do, ignore))

    def _request(self, request: _Request) -> None:
        with self.lock:
            if not self.closed:
                self._arrived.append(request)
                self.ring()
                return
        request.settled(ExternalError("over", self.closed))

    def forget(self, game: ConnectedGame) -> None:
        """A game is over."""

    # ------------------------------------------------------------------------------------ the environment's thread

    def poll(self, table: Slots) -> float | None:
        """Passes the requests that have come to the table, as far as it can take them; raises `failure`."""
        with self.lock:
            arrived = list(self._arrived) if self.failure is None else []
        while arrived:
            rows = [] if self._queues else self._rows(arrived)
            together = len(rows) > 1 and _pass_together(rows, table)
            for request in rows or arrived[:1]:
                # Slots go to games in the order of their requests, so no request may overtake one that waits.
                if not together and (self._queues or not self._pass_on(request, table)):
                    request.game._requests.append(request)
                    self._queues[request.game] = None
                self._arrived.popleft()  # only now: if the game fails here, `close` refuses the rest
            del arrived[: len(rows) or 1]
        slot_is_free = bool(self._queues) and self.failure is None
        while slot_is_free:  # an earlier game may now begin
            slot_is_free = False
            for game in list(self._queues):
                free = table.free
                while game._requests and self._pass_on(game._requests[0], table):
                    game._requests.popleft()
                if not game._requests:
                    del self._queues[game]
                if table.free > free:
                    slot_is_free = True
                    break
        if self.failure is not None:  # a refusal may be one
            raise self.failure
        return None

    def _rows(self, arrived: Sequence[_Request]) -> list[_Request]:
        """The first requests, as far as each shows an array of one entity, the same one in different games."""
        rows: dict[ConnectedGame, _Request] = {}
        for request in arrived:
            game, row, first = request.game, request.row, arrived[0].row
            if row is None or first is None or row[0] != first[0] or game.slot is None or game.over or game in rows:
                break
            entity, ask, _ = row
            is_array = type(ask.observation) is np.ndarray and ask.observation.dtype == self._dtypes[entity]
            if not is_array or ask.given is not None or ask.void or ask.info:
                break
            rows[game] = request
        return list(rows.values())

    def _pass_on(self, request: _Request, table: Slots) -> bool:
        """Passes a request to the table; False: it comes too early."""
        game = request.game
        error = ExternalError("unknown_game", game.over) if game.over else None
        over = ""  # why the game is over with this request
        if error is None:
            try:
                request.do(table)
            except ExternalError as refused:
                error = refused
                if error.code == "not_yet" or (error.code == "no_slot" and not game.gone):
                    return False
                if error.code == "no_slot":
                    error = ExternalError("unknown_game", game.gone)
                if game.slot is None:  # the game may not begin: its later requests get `unknown_game`
                    over = game.gone if refused.code == "no_slot" else refused.code
        request.settled(error)  # before `_leave`: the connection forgets a refused game without another message
        if over:
            self._leave(game, over)
        return True

    def answer(self, actions: Answers) -> None:
        """Passes the actions of a tick to the requests that wait for them; does not wait for a game."""
        spaces = self.interface.action_spaces
        for slot, entity in zip(actions.slots.tolist(), actions.entity.tolist(), strict=True):
            game = self._by_slot.get(slot)
            waiting = game._waiting.pop(entity, None) if game is not None else None
            if waiting is not None:
                waiting[0](row(spaces[entity], actions.actions[entity], slot), actions.versions[entity])

    def drop(self, slot: int, reason: str) -> None:
        """Gives the game in a slot up; its next request is refused with the reason."""
        self._give_up(self._by_slot[slot], reason)

    def pause(self, on: bool) -> None:
        """Nothing: requests wait until they are polled."""

    def close(self, reason: str) -> None:
        """Refuses all requests from now on, also waiting ones, with the reason."""
        with self.lock:
            self.closed = self.closed or reason
        error = ExternalError("over", self.closed)
        games = {request.game: None for request in self._arrived} | self._queues | dict.fromkeys(self._by_slot.values())
        while self._arrived:
            request = self._arrived.popleft()
            request.game._requests.append(request)
        for game in games:
            self._refuse_waiting(game, error)
            while game._requests:
                game._requests.popleft().settled(error)
            self._leave(game, self.closed)
        self._queues.clear()

    def _give_up(self, game: ConnectedGame, reason: str) -> None:
        code: Code = next((code for code in CODES if code == reason), "over")
        self._refuse_waiting(game, ExternalError(code))
        self._leave(game, reason)

    def _refuse_waiting(self, game: ConnectedGame, error: ExternalError, entities: Iterable[int] | None = None) -> None:
        """Refuses the requests that wait for an answer: of some entities, or of all (None)."""
        for entity in list(game._waiting) if entities is None else entities:
            waiting = game._waiting.pop(entity, None)
            if waiting is not None:
                waiting[1](error)

    def _leave(self, game: ConnectedGame, reason: str) -> None:
        game.over = reason
        if game.slot is not None and self._by_slot.get(game.slot) is game:
            del self._by_slot[game.slot]
        self.forget(game)


def _pass_together(requests: Sequence[_Request], table: Slots) -> bool:
    """Passes rows to the table as arrays, in a fifth of the time; False: it refuses one of them, and has taken none."""
    rows = [request.row for request in requests if request.row is not None]
    slots, entity, asks = [request.game.begun_slot for request in requests], rows[0][0], [row[1] for row in rows]
    try:
        observations, rewards = np.array([ask.observation for ask in asks]), np.array([ask.reward for ask in asks])
        masks = None if all(ask.mask is None for ask in asks) else np.array([ask.mask for ask in asks])
        table.ask_rows(np.array(slots), entity, observations, rewards=rewards, masks=masks)
    except (ValueError, ExternalError) as error:  # a ValueError: arrays of different shapes
        table.counts.refuse(getattr(error, "code", "not_yet"), -1)  # counted when it is passed on alone
        return False
    for request, (_, _, answered) in zip(requests, rows, strict=True):
        request.game._waiting[entity] = answered, request.settled
        request.settled(None)
    return True


def entity_index(interface: Interface, entities: Sequence[int], entity: str | None) -> int:
    """The index of an entity by its name; None: the only one of `entities`. `unknown_entity` if there is none."""
    if entity is None:
        if len(entities) == 1:
            return entities[0]
        raise ExternalError("unknown_entity", f"say which: {', '.join(interface.entities[each] for each in entities)}")
    if entity not in interface.entities:
        raise ExternalError("unknown_entity", f"unknown entity {entity!r}; {nearest(str(entity), interface.entities)}")
    return interface.entities.index(entity)
