"""Requests of many games from many threads; the environment's thread passes them to the table of slots.

A connection (threads, polls, HTTP) calls `begin`, `ask`, `pay`, `end` and `lose` in any thread; each request names
the functions to be called with its outcome. `poll`, `answer` and `drop` are called by the environment's thread and call
these functions. The requests of one game keep their order: one that comes too early (`not_yet`, `no_slot`) stays at the
head of its game's queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from arena.external.interface import CODES, Answers, Code, ExternalError
from arena.external.slots import Ask, End, Slots
from arena.game.api import Info, Interface
from arena.game.arrays import copied
from arena.game.spaces import row

Told = Callable[[ExternalError | None], None]
"""Called with None when the table has taken a request, with the error when it has refused it."""

Answered = Callable[[Any, int], None]
"""Called with an action, a sample of the entity's space, and its version; see `Answers`."""


@dataclass(eq=False)
class DeskGame:
    """A game as its connection knows it.

    Args:
        name: its name outside the arena.
        entities: the indices of the entities that take part.
        training: whether algorithms learn from it.
        after: the slot to take if it is free, or the game that had this slot.
        slot: of the game; None before it has begun.
        over: why the game is over; empty while it goes on.
        gone: why no more requests will come, although it is not over; empty if they may.
    """

    name: str
    entities: tuple[int, ...]
    training: bool = True
    after: int | DeskGame | None = None
    slot: int | None = None
    over: str = ""
    gone: str = ""
    _infos: dict[int, Info] = field(default_factory=dict)  # by entity, paid before its next observation
    _requests: deque[_Request] = field(default_factory=deque)
    _waiting: dict[int, tuple[Answered, Told]] = field(default_factory=dict)  # by entity


@dataclass(eq=False, slots=True)
class _Request:
    """Tells the table one thing; `do` raises `ExternalError` if the table refuses it."""

    game: DeskGame
    do: Callable[[Slots], None]
    told: Told


class Desk:
    """The requests of the games of one match."""

    def __init__(self, interface: Interface, forget: Callable[[DeskGame], None] = lambda game: None) -> None:
        self.interface = interface
        self.ring: Callable[[], None] = lambda: None
        self._forget = forget
        self._arrived: deque[_Request] = deque()
        self._queues: dict[DeskGame, None] = {}  # games with requests that the table has not taken, in order
        self._by_slot: dict[int, DeskGame] = {}
        self._lock = threading.Lock()
        self._kept = threading.local()  # `requests`: the thread's requests in `together`
        self._closed = ""

    @property
    def idle(self) -> bool:
        """Whether no request waits to be told."""
        return not (self._arrived or self._queues)

    # ----------------------------------------------------------------------------------------------------- any thread

    def begin(self, game: DeskGame, told: Told) -> None:
        """The game wants a slot, and waits for it."""

        def do(table: Slots) -> None:
            drains = table.most is not None and table.counts.begun >= table.most  # then `table.begin` refuses it
            if not table.free and not drains:
                raise ExternalError("no_slot")  # here: the table would count each attempt as a refusal
            after = game.after.slot if isinstance(game.after, DeskGame) else game.after
            game.after = None  # otherwise each game would hold references to all earlier ones
            game.slot = table.begin(game.name, game.entities, training=game.training, after=after)
            self._by_slot[game.slot] = game

        self._put(_Request(game, do, told))

    def ask(
        self,
        game: DeskGame,
        entity: int,
        observation: Any,
        *,
        told: Told,
        answered: Answered | None = None,
        reward: float = 0.0,
        mask: Any = None,
        given: Any = None,
        void: bool = False,
        info: Info | None = None,
    ) -> None:
        """An entity asks, or says what it did (`given`); see `Slots.ask`. The observation is copied here.

        Args:
            told: see `Told`; called again, with an error, if the entity or the game ends before the answer.
            answered: called with the answer; not needed with `given`.
        """
        asks = {entity: Ask(observation, reward, mask, given, void, info)}
        self.ask_entities(game, asks, told=told, answered={} if answered is None else {entity: answered})

    def ask_entities(
        self, game: DeskGame, asks: Mapping[int, Ask], *, told: Told, answered: Mapping[int, Answered]
    ) -> None:
        """As `ask`, for several entities: all of them are taken for the same tick, or none is.

        Args:
            told: as for `ask`; the second call comes once per entity that waits.
            answered: by the index of the entity; none for entities with given actions.
        """
        asks = {
            entity: ask._replace(observation=copied(ask.observation), info=copied(ask.info))
            for entity, ask in asks.items()
        }

        def do(table: Slots) -> None:
            assert game.slot is not None, "it has begun"
            table.ask_entities(
                game.slot,
                {entity: ask._replace(info=_joined(game._infos.get(entity), ask.info)) for entity, ask in asks.items()},
            )
            for entity in asks:
                game._infos.pop(entity, None)
                if entity in answered:
                    game._waiting[entity] = answered[entity], told

        self._put(_Request(game, do, told))

    def pay(
        self,
        game: DeskGame,
        entity: int,
        reward: float,
        told: Told = lambda error: None,
        *,
        info: Info | None = None,
    ) -> None:
        """Adds a reward, see `Slots.pay`; the info goes with the entity's next observation."""
        info = copied(info)

        def do(table: Slots) -> None:
            assert game.slot is not None, "it has begun"
            if info is not None and not isinstance(info, dict):
                raise ExternalError("bad_body", f"the info {info!r} is no dict")
            table.pay(game.slot, entity, reward)
            if info:
                game._infos[entity] = {**game._infos.get(entity, {}), **info}

        self._put(_Request(game, do, told))

    def end(
        self,
        game: DeskGame,
        entity: int | None,
        observation: Any = None,
        *,
        told: Told,
        reward: float = 0.0,
        truncated: bool = False,
        void: bool = False,
        info: Info | None = None,
    ) -> None:
        """Ends an entity, or all that have not ended (None); see `Slots.end`."""
        sample = None if observation is None else copied(observation)
        info = copied(info)  # its owner may change it before the tick

        def do(table: Slots) -> None:
            slot = game.slot
            assert slot is not None, "it has begun"
            ending = table.playing(slot) if entity is None else (entity,)
            end = End(sample, reward, truncated, None, void, info)
            table.end_entities(slot, {each: end._replace(info=_joined(game._infos.get(each), info)) for each in ending})
            for each in ending:
                game._infos.pop(each, None)
                self._answer_waiting(game, each, ExternalError("ended"))
            if not table.playing(slot):
                self._leave(game, "ended")

        self._put(_Request(game, do, told))

    def lose(self, game: DeskGame, reason: str) -> None:
        """Ends a game whose client has gone; its earlier requests are told to the table first."""
        game.gone = reason

        def do(table: Slots) -> None:
            if game.slot is not None:
                table.lose(game.slot, reason)
            for entity in list(game._waiting):
                self._answer_waiting(game, entity, ExternalError(_code(reason)))
            self._leave(game, reason)

        self._put(_Request(game, do, lambda error: None))

    @contextmanager
    def together(self) -> Iterator[None]:
        """The requests that this thread makes inside are told in one `poll`, so that no tick comes between them."""
        requests: list[_Request] = []
        self._kept.requests = requests
        try:
            yield
        finally:
            self._kept.requests = None
            if requests:
                self._put(*requests)

    def _put(self, *requests: _Request) -> None:
        kept: list[_Request] | None = getattr(self._kept, "requests", None)
        if kept is not None:
            kept += requests
            return
        with self._lock:
            if not self._closed:
                self._arrived.extend(requests)
                self.ring()
                return
        for request in requests:
            request.told(ExternalError("over", self._closed))

    # ------------------------------------------------------------------------------------ the environment's thread

    def poll(self, table: Slots) -> None:
        """Passes the requests that have come to the table, as far as it can take them."""
        while self._arrived:
            request = self._arrived.popleft()
            # Slots go to games in the order of their requests, so no request may overtake one that waits.
            if self._queues or not self._tell(request, table):
                request.game._requests.append(request)
                self._queues[request.game] = None
        while self._tell_waiting(table):
            pass

    def _tell_waiting(self, table: Slots) -> bool:
        """Passes waiting requests to the table; True: a slot has become free, so an earlier game may now begin."""
        for game in list(self._queues):
            free = table.free
            while game._requests and self._tell(game._requests[0], table):
                game._requests.popleft()
            if not game._requests:
                del self._queues[game]
            if table.free > free:
                return True
        return False

    def _tell(self, request: _Request, table: Slots) -> bool:
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
        request.told(error)  # before `_leave`: the connection forgets a refused game without another message
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
        """The arena gives the game in a slot up."""
        game = self._by_slot[slot]
        for entity in list(game._waiting):
            self._answer_waiting(game, entity, ExternalError(_code(reason)))
        self._leave(game, reason)

    def close(self, reason: str) -> None:
        """Refuses all requests from now on; waiting ones are told the reason."""
        with self._lock:
            self._closed = reason
        error = ExternalError("over", reason)
        games = {request.game: None for request in self._arrived} | self._queues | dict.fromkeys(self._by_slot.values())
        while self._arrived:
            request = self._arrived.popleft()
            request.game._requests.append(request)
        for game in games:
            for entity in list(game._waiting):
                self._answer_waiting(game, entity, error)
            while game._requests:
                game._requests.popleft().told(error)
            self._leave(game, reason)
        self._queues.clear()

    def _answer_waiting(self, game: DeskGame, entity: int, error: ExternalError) -> None:
        waiting = game._waiting.pop(entity, None)
        if waiting is not None:
            waiting[1](error)

    def _leave(self, game: DeskGame, reason: str) -> None:
        game.over = reason
        if game.slot is not None and self._by_slot.get(game.slot) is game:
            del self._by_slot[game.slot]
        self._forget(game)


def _joined(first: Info | None, then: Info | None) -> Info | None:
    """Two infos as one; values of the second prevail. A second one that is no dict is left for the table to refuse."""
    return {**first, **then} if first and isinstance(then, dict) else then or first


def _code(reason: str) -> Code:
    return next((code for code in CODES if code == reason), "over")


def entity_index(interface: Interface, entities: Sequence[int], entity: str | None) -> int:
    """The index of an entity by its name; None: the only one.

    Raises:
        ExternalError: `unknown_entity`.
    """
    if entity is None:
        if len(entities) == 1:
            return entities[0]
        raise ExternalError("unknown_entity", f"say which: {', '.join(interface.entities[each] for each in entities)}")
    if entity not in interface.entities:
        raise ExternalError("unknown_entity", f"{entity!r}; there are {', '.join(interface.entities)}")
    return interface.entities.index(entity)
