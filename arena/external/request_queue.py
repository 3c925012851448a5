"""Requests of many games from many threads; the environment's thread passes them to the table of slots.

A connection (threads, polls, HTTP) calls `begin`, `ask`, `pay`, `end` and `lose` in any thread; each request names
the functions to be called with its outcome. `poll`, `answer` and `drop` are called by the environment's thread and call
these functions. The requests of one game keep their order: one that comes too early (`not_yet`, `no_slot`) stays at the
head of its game's queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena.config.schema import TickRules
from arena.external.errors import CODES, Code, ExternalError
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
    _infos: dict[int, Info] = field(default_factory=dict)  # by entity, paid before its next observation
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


class RequestQueue:
    """The requests of the games of one match.

    Attributes:
        ring: called when a request has come.
        lock: requests that a thread makes while it has this lock reach the table in one `poll`, with no tick between.
    """

    def __init__(self, interface: Interface, forget: Callable[[ConnectedGame], None] = lambda game: None) -> None:
        self.interface = interface
        self.ring: Callable[[], None] = lambda: None
        self._forget = forget
        self._arrived: deque[_Request] = deque()
        self._queues: dict[ConnectedGame, None] = {}  # games with requests that the table has not taken, in order
        self._by_slot: dict[int, ConnectedGame] = {}
        self.lock = threading.RLock()
        self._closed = ""

    @property
    def idle(self) -> bool:
        """Whether no request waits for the table."""
        return not (self._arrived or self._queues)

    # ----------------------------------------------------------------------------------------------------- any thread

    def begin(self, game: ConnectedGame, settled: Settled) -> None:
        """Requests a slot for the game, and waits for it."""

        def do(table: Slots) -> None:
            drains = table.most is not None and table.counts.begun >= table.most  # then `table.begin` refuses it
            if not table.free and not drains:
                raise ExternalError("no_slot")  # here: the table would count each attempt as a refusal
            after = game.after.slot if isinstance(game.after, ConnectedGame) else game.after
            game.after = None  # otherwise each game would hold references to all earlier ones
            game.slot = table.begin(game.name, game.entities, training=game.training, after=after)
            self._by_slot[game.slot] = game

        self._put(_Request(game, do, settled))

    def ask(
        self,
        game: ConnectedGame,
        asks: Mapping[int, Ask],
        settled: Settled,
        answered: Mapping[int, Answered] | None = None,
    ) -> None:
        """Entities ask, or say what they did: all of them are taken for the same tick, or none is; see `Slots.ask`.

        Args:
            asks: by the index of the entity; copied here.
            settled: called again, with an error, for each entity that ends, or whose game ends, before the answer.
            answered: by entity; none for entities with given actions.
        """
        asks = {
            entity: ask._replace(observation=copied(ask.observation), info=copied(ask.info))
            for entity, ask in asks.items()
        }

        def do(table: Slots) -> None:
            table.ask(
                game.begun_slot,
                {entity: ask._replace(info=_joined(game._infos.get(entity), ask.info)) for entity, ask in asks.items()},
            )
            for entity in asks:
                game._infos.pop(entity, None)
                if answered is not None and entity in answered:
                    game._waiting[entity] = answered[entity], settled

        self._put(_Request(game, do, settled))

    def pay(
        self, game: ConnectedGame, entity: int, reward: float, settled: Settled = ignore, *, info: Info | None = None
    ) -> None:
        """Adds a reward, see `Slots.pay`; the info goes with the entity's next observation."""
        info = copied(info)

        def do(table: Slots) -> None:
            if info is not None and not isinstance(info, dict):
                raise ExternalError("bad_body", f"the info {info!r} is no dict")
            table.pay(game.begun_slot, entity, reward)
            if info:
                game._infos[entity] = {**game._infos.get(entity, {}), **info}

        self._put(_Request(game, do, settled))

    def end(self, game: ConnectedGame, entity: int | None, end: End, settled: Settled) -> None:
        """Ends an entity, or all that have not ended (None); see `Slots.end`. The observation is copied here."""
        sample = None if end.observation is None else copied(end.observation)
        end = end._replace(observation=sample, info=copied(end.info))  # its owner may change it before the tick

        def do(table: Slots) -> None:
            slot = game.begun_slot
            ending = table.playing(slot) if entity is None else (entity,)
            infos = {each: _joined(game._infos.get(each), end.info) for each in ending}
            table.end(slot, {each: end._replace(info=infos[each]) for each in ending})
            for each in ending:
                game._infos.pop(each, None)
                self._refuse_waiting(game, ExternalError("ended"), (each,))
            if not table.playing(slot):
                self._leave(game, "ended")

        self._put(_Request(game, do, settled))

    def lose(self, game: ConnectedGame, reason: str) -> None:
        """Ends a game whose client has gone, after its earlier requests."""
        game.gone = reason

        def do(table: Slots) -> None:
            if game.slot is not None:
                table.lose(game.slot, reason)
            self._refuse_waiting(game, ExternalError(_code(reason)))
            self._leave(game, reason)

        self._put(_Request(game, do, ignore))

    def _put(self, request: _Request) -> None:
        with self.lock:
            if not self._closed:
                self._arrived.append(request)
                self.ring()
                return
        request.settled(ExternalError("over", self._closed))

    # ------------------------------------------------------------------------------------ the environment's thread

    def poll(self, table: Slots) -> None:
        """Passes the requests that have come to the table, as far as it can take them."""
        with self.lock:
            arrived = len(self._arrived)
        for _ in range(arrived):
            request = self._arrived[0]  # stays until it is passed on: if the game fails here, `close` refuses the rest
            # Slots go to games in the order of their requests, so no request may overtake one that waits.
            if self._queues or not self._pass_on(request, table):
                request.game._requests.append(request)
                self._queues[request.game] = None
            self._arrived.popleft()
        slot_is_free = bool(self._queues)
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

    def _pass_on(self, request: _Request, table: Slots) -> bool:
        """Passes a request to the table; False: it comes too early."""
        game = request.game
        error: ExternalError | None = None
        over = ""  # why the game is over with this request
        if not game.over:
            try:
                request.do(table)
            except ExternalError as refused:
                error = refused
            if error is not None and error.code in ("not_yet", "no_slot"):
                if error.code == "not_yet" or not game.gone:
                    return False
                over = game.gone
                error = ExternalError("unknown_game", game.gone)
            if error is not None and game.slot is None:
                over = over or error.code  # the game may not begin: its later requests get `unknown_game`
        else:
            error = ExternalError("unknown_game", game.over)
        request.settled(error)  # before `_leave`: the connection forgets a refused game without another message
        if over:
            self._leave(game, over)
        return True

    def answer(self, answers: Answers) -> None:
        """Passes the actions of a tick to the requests that wait for them."""
        spaces = self.interface.action_spaces
        for slot, entity in zip(answers.slots.tolist(), answers.entity.tolist(), strict=True):
            game = self._by_slot.get(slot)
            waiting = game._waiting.pop(entity, None) if game is not None else None
            if waiting is not None:
                waiting[0](row(spaces[entity], answers.actions[entity], slot), answers.versions[entity])

    def drop(self, slot: int, reason: str) -> None:
        """The arena gives up the game in a slot."""
        game = self._by_slot[slot]
        self._refuse_waiting(game, ExternalError(_code(reason)))
        self._leave(game, reason)

    def close(self, reason: str) -> None:
        """Refuses all requests from now on, also waiting ones, with the reason."""
        with self.lock:
            self._closed = reason
        error = ExternalError("over", reason)
        games = {request.game: None for request in self._arrived} | self._queues | dict.fromkeys(self._by_slot.values())
        while self._arrived:
            request = self._arrived.popleft()
            request.game._requests.append(request)
        for game in games:
            self._refuse_waiting(game, error)
            while game._requests:
                game._requests.popleft().settled(error)
            self._leave(game, reason)
        self._queues.clear()

    def _refuse_waiting(self, game: ConnectedGame, error: ExternalError, entities: Sequence[int] | None = None) -> None:
        """Refuses the requests that wait for an answer: of some entities, or of all (None)."""
        for entity in list(game._waiting) if entities is None else entities:
            waiting = game._waiting.pop(entity, None)
            if waiting is not None:
                waiting[1](error)

    def _leave(self, game: ConnectedGame, reason: str) -> None:
        game.over = reason
        if game.slot is not None and self._by_slot.get(game.slot) is game:
            del self._by_slot[game.slot]
        self._forget(game)


class ConnectedGames:
    """Games whose requests go through a queue, base class of all but simulators; see `ExternalGames`.

    Attributes:
        requests: the queue of the requests of all games.
        rules: of the match, set before `open`.
        failure: what has ended the games' threads; None while all is well.
    """

    address = ""
    closed_loop = False

    def __init__(self, interface: Interface) -> None:
        self.interface, self.rules = interface, TickRules()
        self.requests = RequestQueue(interface, self.forget)
        self.failure: BaseException | None = None

    @property
    def exhausted(self) -> bool:
        """Whether no game will come any more."""
        return False

    def forget(self, game: ConnectedGame) -> None:
        """A game is over."""

    def fail(self, error: BaseException) -> None:
        """Notes the first failure, for the next `poll`; in any thread."""
        self.failure = self.failure or error
        self.requests.ring()

    def poll(self, table: Slots) -> float | None:
        """Passes the requests that have come to the table; raises what has ended the games' threads."""
        if self.failure is None:
            self.requests.poll(table)  # a refusal may be a failure
        if self.failure is not None:
            raise self.failure
        return None

    def answer(self, actions: Answers) -> None:
        """Passes the actions on; does not wait for a game."""
        self.requests.answer(actions)

    def drop(self, slot: int, reason: str) -> None:
        """Gives a game up; its next request is refused with the reason."""
        self.requests.drop(slot, reason)

    def pause(self, on: bool) -> None:
        """Nothing: requests wait until they are polled."""


def _joined(first: Info | None, then: Info | None) -> Info | None:
    """Two infos as one; values of the second prevail. A second one that is no dict is left for the table to refuse."""
    return {**first, **then} if first and isinstance(then, dict) else then or first


def _code(reason: str) -> Code:
    return next((code for code in CODES if code == reason), "over")


def entity_index(interface: Interface, entities: Sequence[int], entity: str | None) -> int:
    """The index of an entity by its name; None: the only one of `entities`. `unknown_entity` if there is none."""
    if entity is None:
        if len(entities) == 1:
            return entities[0]
        raise ExternalError("unknown_entity", f"say which: {', '.join(interface.entities[each] for each in entities)}")
    if entity not in interface.entities:
        raise ExternalError("unknown_entity", f"{entity!r}; there are {', '.join(interface.entities)}")
    return interface.entities.index(entity)
