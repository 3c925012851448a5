"""The conformance check of external games detects each documented breach."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arena.external import Answers, Slots
from arena.testing import ContractBroken, Played, check_external_games
from external_connections import FakeGames, play_fake


def check(make: Any, limit_s: float) -> None:
    check_external_games(make, play_fake, requests=6, limit_s=limit_s)


def test_a_right_connection_passes() -> None:
    check(FakeGames, limit_s=60.0)


class NeverRings(FakeGames):
    def announce(self) -> None: ...


class WaitsInPoll(FakeGames):
    def poll(self, table: Slots) -> float | None:
        while not self.calls:
            time.sleep(0.01)
            if self.closed:
                break
        return super().poll(table)


class ReturnsText(FakeGames):
    def poll(self, table: Slots) -> Any:
        super().poll(table)
        return "soon"


class AnswersOtherSlot(FakeGames):
    def answer(self, actions: Answers) -> None:
        super().answer(actions._replace(actions=[np.roll(batch, 1, axis=0) for batch in actions.actions]))


class AnswersUnasked(FakeGames):
    """Sends an action to each entity of a game as soon as one entity is answered; one entity asks in each tick."""

    def poll(self, table: Slots) -> float | None:
        self.has_asked = False
        super().poll(table)
        return 0.0

    def tell(self, table: Slots, kind: str, name: str, *arguments: Any) -> bool:
        if kind == "ask" and self.has_asked:
            return False
        self.has_asked |= kind == "ask"
        return super().tell(table, kind, name, *arguments)

    def answer(self, actions: Answers) -> None:
        slots = np.unique(actions.slots)
        count = len(self.interface.entities)
        self.asking |= {(slot, entity) for slot in slots.tolist() for entity in range(count)}
        super().answer(actions._replace(slots=np.repeat(slots, count), entity=np.tile(range(count), len(slots))))


class KeepsViews(FakeGames):
    """Passes actions on after `answer` has returned."""

    def answer(self, actions: Answers) -> None:
        names = {slot: name for name, slot in self.slots.items()}
        for slot, entity in zip(actions.slots.tolist(), actions.entity.tolist(), strict=True):
            self.asking.discard((slot, entity))
            self.replies[names[slot]].put((entity, actions.actions[entity][slot : slot + 1]))


class DropsInSilence(FakeGames):
    def drop(self, slot: int, reason: Any) -> None:
        self.slots = {name: held for name, held in self.slots.items() if held != slot}


class DropsForAnotherReason(FakeGames):
    def drop(self, slot: int, reason: Any) -> None:
        super().drop(slot, "failed")


class TellsAgainAfterPause(FakeGames):
    last: tuple[Any, ...] = ()

    def tell(self, table: Slots, kind: str, *rest: Any) -> bool:
        if kind == "ask":
            self.last = (kind, *rest)
        return super().tell(table, kind, *rest)

    def pause(self, on: bool) -> None:
        if not on and self.last:
            self.calls.append(self.last)


class TellsInPause(FakeGames):
    """Its thread tells the table while the arena pauses."""

    table: Slots | None = None
    paused = False

    def poll(self, table: Slots) -> float | None:
        self.table = table
        return super().poll(table)

    def pause(self, on: bool) -> None:
        self.paused = on

    def announce(self) -> None:
        if self.paused and self.table is not None:
            super().poll(self.table)
        super().announce()


class TellsInAnswer(FakeGames):
    table: Slots | None = None

    def poll(self, table: Slots) -> float | None:
        self.table = table
        return super().poll(table)

    def answer(self, actions: Answers) -> None:
        super().answer(actions)
        assert self.table is not None
        for slot in actions.slots.tolist():
            self.table.pay(slot, 0, 0.0)


class ForgetsPayments(FakeGames):
    def tell(self, table: Slots, kind: str, *rest: Any) -> bool:
        return True if kind == "pay" else super().tell(table, kind, *rest)


class ForgetsFullSlots(FakeGames):
    def tell(self, table: Slots, kind: str, *rest: Any) -> bool:
        super().tell(table, kind, *rest)
        return True


class ShowsStale(FakeGames):
    """The observation of the request before."""

    shown: dict[Any, Any]

    def tell(self, table: Slots, kind: str, name: str, *arguments: Any) -> bool:
        if kind == "ask":
            before = vars(self).setdefault("shown", {})
            entity, observation, reward = arguments
            stale = before.get((name, entity), observation)
            before[name, entity] = observation
            arguments = (entity, stale, reward)
        return super().tell(table, kind, name, *arguments)


class ClosesInSilence(FakeGames):
    def close(self, reason: str) -> None:
        self.replies = {}
        super().close(reason)


class ClosesOnce(FakeGames):
    def close(self, reason: str) -> None:
        assert not self.closed, "closed already"
        super().close(reason)


class LeavesThread(FakeGames):
    def close(self, reason: str) -> None:
        if not self.closed:
            threading.Thread(target=time.sleep, args=(6.0,), name="left behind", daemon=True).start()
        super().close(reason)


KEPT: list[int] = []


class LeavesDescriptor(FakeGames):
    def close(self, reason: str) -> None:
        if self.pipe and not self.closed:
            KEPT.append(os.dup(self.pipe[0]))
        super().close(reason)


@pytest.fixture(autouse=True)
def _closed_descriptors() -> Iterator[None]:
    yield
    while KEPT:
        os.close(KEPT.pop())


class StartsEarly(FakeGames):
    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=time.sleep, args=(60.0,), name="too early", daemon=True).start()


class KnowsNothing(FakeGames):
    interface = None  # type: ignore[assignment]

    def open(self, slots: int, ring: Any) -> None:
        self.interface = FakeGames.interface
        super().open(slots, ring)


MUTANTS: dict[type[FakeGames], str] = {
    NeverRings: "ring must say when something has come",
    WaitsInPoll: "poll, while there is no game, has not returned",
    ReturnsText: "poll returned 'soon'",
    AnswersOtherSlot: "received actions, number",
    AnswersUnasked: "received actions|already_asking|AssertionError",  # of a game that has an action too early
    KeepsViews: "received actions, number",
    DropsInSilence: "drop",
    DropsForAnotherReason: "expected the reason 'timeout'",
    TellsAgainAfterPause: "already_asking",
    TellsInPause: "in a pause the table went from|in the thread 'pump'",
    TellsInAnswer: "poll alone calls the table",
    ForgetsPayments: "the rewards in the table add up to",
    ForgetsFullSlots: "all games are over",
    ShowsStale: "the table got observations, number 1",
    ClosesInSilence: "a caller that waits gets 'over'",
    ClosesOnce: "the second close has raised",
    LeavesThread: "still the thread 'left behind'",
    LeavesDescriptor: "still 1 descriptors",
    StartsEarly: "holds the thread 'too early'",
    KnowsNothing: "interface is None",
}
NEVER = {
    *(NeverRings, WaitsInPoll, DropsInSilence, ForgetsFullSlots, ClosesInSilence),
    *(LeavesThread, LeavesDescriptor),
}
"""Something that has to happen never does, so that the limit of time has to pass; the others may take their time."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_breach_of_the_contract_is_found(mutant: type[FakeGames]) -> None:
    with pytest.raises(ContractBroken, match=MUTANTS[mutant]):
        check(mutant, limit_s=0.5 if mutant is WaitsInPoll else 2.0 if mutant in NEVER else 60.0)


def test_an_error_of_the_player_is_named() -> None:
    def play(games: FakeGames, name: str, requests: int) -> Played:
        played = play_fake(games, name, requests)
        raise ZeroDivisionError(f"{len(played.actions)} entities")

    with pytest.raises(ContractBroken, match="ended with ZeroDivisionError"):
        check_external_games(FakeGames, play, requests=3)
