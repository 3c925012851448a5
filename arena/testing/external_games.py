"""The conformance check of kinds of connection to external games.

The check takes the part of the environment: it forms ticks, chooses random actions, pauses, drops and closes. `play`
takes the part of a game. The observations and actions that the game reports must be those that the table was
given and the check has answered.
"""

from __future__ import annotations

import copy
import gc
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from arena.config.schema import TickRules
from arena.external.errors import ExternalClosed, ExternalError
from arena.external.interface import ExternalGames, ExternalMatch
from arena.external.slots import Ask, Game, Slots, Tick
from arena.game import spaces
from arena.game.api import Interface
from arena.testing.batched_env import ContractBroken, check_interface, must

Result = TypeVar("Result")

_ENDLESS = 1_000_000  # requests of a game that is given up before it ends
_LOOK_S = 0.01  # between two looks at whether something has happened


class Played(NamedTuple):
    """What one game has shown and received, per entity in the order of the interface."""

    observations: Sequence[Sequence[Any]]  # [E][n] of its n requests
    returns: Sequence[float]  # [E] the sums of all rewards
    actions: Sequence[Sequence[Any]]  # [E][n]


Make = Callable[[], ExternalGames]
Play = Callable[[Any, str, int], Played]


def check_external_games(make: Make, play: Play, *, requests: int = 12, limit_s: float = 20.0) -> None:
    """Plays games through a connection and checks that it does what `ExternalGames` says.

    Args:
        make: makes a new connection, not open yet; each time with the same interface.
        play: `play(games, name, requests)` plays one game through such a connection, from outside, and says what it
            has shown and received: it begins a game called `name` and waits until it has a slot; each entity asks
            `requests` times, with observations that differ and with rewards, and then ends by the game's rules. It is
            called in threads, several at a time. When the game is given up, it raises `ExternalError` with the reason
            as its code; when the connection is closed, `ExternalClosed`.
        requests: of a game, for each entity.
        limit_s: how long to wait for anything before it counts as a breach; a connection that keeps the rules never
            takes so long.

    Raises:
        ContractBroken: at the first breach.
    """
    before = _Resources()
    games = make()
    must(isinstance(games, ExternalGames), f"{type(games).__name__} is no ExternalGames", "a method or attribute lacks")
    interface = games.interface
    must(isinstance(interface, Interface), f"before open, interface is {interface!r}", "it is known when it is made")
    check_interface(interface)
    must(games.address == "", f"before open, the address is {games.address!r}", "it is empty until something is bound")
    must(not games.exhausted, "before open, exhausted is true", "it is false while games may come")
    left = before.left()
    must(not left, f"a connection that is not open holds {left}", "open takes resources, the constructor none")
    games.close("over")

    # More games than slots, side by side: each shows what it says, and receives its own answers.
    with _Environment(make, play, slots=3, limit_s=limit_s) as environment:
        for _ in range(3):  # returns at once and tells nothing
            environment.call("poll, while there is no game,", environment.poll)
        begun = environment.table.counts.begun
        must(not begun, f"{begun} games have begun before any was played", "games come from outside alone")
        players = [environment.player(f"game-{number}", requests + number) for number in range(5)]
        environment.run("all games are over", lambda: all(map(environment.is_over, players)))
        environment.check_played(players)
        free = environment.table.free
        must(free == 3, f"{free} of 3 slots are free when all games are over", "an end of all entities frees a slot")

    # A request is left without an answer, the table and the connection pause, another game comes meanwhile.
    with _Environment(make, play, slots=2, limit_s=limit_s) as environment:
        first = environment.player("before-the-pause", requests)
        environment.run("a game asks", lambda: environment.table.counts.ticks > 3, answer_last=False)
        table = environment.table
        environment.call("pause(True)", lambda: environment.pause(True))
        counts = copy.copy(table.counts)
        environment.rung.clear()
        second = environment.player("in-the-pause", requests)
        environment.rung.wait(0.5)  # the game that comes may ring or not
        environment.rung.set()  # what had rung before the pause is polled after it
        must(table.counts == counts, f"in a pause the table went from {counts} to {table.counts}", "poll alone tells")
        environment.call("pause(False)", lambda: environment.pause(False))
        environment.run("both games are over", lambda: all(map(environment.is_over, (first, second))))
        environment.check_played([first, second])

    # A game is given up while it waits for an answer; the next one has its slot at once.
    with _Environment(make, play, slots=1, limit_s=limit_s) as environment:
        dropped = environment.player("given-up", _ENDLESS)
        environment.run("a game asks", lambda: environment.table.counts.ticks > 3, answer_last=False)
        successor = environment.player("its-successor", requests)
        reason = "over" if environment.closed_loop else "timeout"
        environment.call("drop", lambda: environment.drop(0, reason))
        environment.run("the game that was dropped ends", lambda: not dropped.is_alive())
        dropped.check_ended_by("drop", reason)
        environment.run(
            "the slot of the game that was dropped is free for the next one", lambda: environment.is_over(successor)
        )
        environment.check_played([successor])

    # The connection closes while one game waits for an answer and another one for a slot; all resources are freed.
    before = _Resources()
    with _Environment(make, play, slots=1, limit_s=limit_s) as environment:
        player = environment.player("at-the-end", _ENDLESS)
        environment.run("a game asks", lambda: environment.table.counts.ticks > 3, answer_last=False)
        other = environment.player("without-a-slot", _ENDLESS)
        environment.rung.wait(0.2)  # it may ring, or be refused without a poll
        environment.call("poll", environment.poll)
        environment.call("close", lambda: environment.games.close("over"))
        for one in (player, other):
            one.join()
            one.check_ended_by("close", "over")
        environment.call("the second close", lambda: environment.games.close("over"))
    deadline = time.monotonic() + limit_s
    while (left := before.left()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    must(not left, f"after close there are still {left}", "close gives threads and descriptors back")


class _Resources:
    """The threads and descriptors of this process, as they were when this was made."""

    def __init__(self) -> None:
        self._threads, self._descriptors = set(threading.enumerate()), self._now()

    def left(self) -> str:
        """The threads and descriptors that have been added since, as a text."""
        gc.collect()
        threads = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        found = [f"the thread {name!r}" for name in threads]
        descriptors = self._now() - self._descriptors
        return ", ".join(found + ([f"{len(descriptors)} descriptors"] if descriptors else []))

    @staticmethod
    def _now() -> set[tuple[str, str]]:
        """The numbers of the descriptors and what they are, where the system shows them."""
        found = set()
        folder = Path("/proc/self/fd")
        for entry in os.listdir(folder) if folder.exists() else ():
            try:
                found.add((entry, os.readlink(folder / entry)))
            except FileNotFoundError:  # the descriptor of this listing
                continue
        return found


class _Player(threading.Thread):
    """One game outside, played in a thread."""

    def __init__(self, games: ExternalGames, play: Play, name: str, requests: int, limit_s: float) -> None:
        super().__init__(name=f"game {name!r} of the check", daemon=True)
        self.game, self._requests, self._limit_s = name, requests, limit_s
        self._games, self._play = games, play
        self.played: Played | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.played = self._play(self._games, self.game, self._requests)
        except BaseException as error:  # judged by the check
            self.error = error

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of the game, at most for the limit of the check."""
        super().join(self._limit_s if timeout is None else timeout)

    def check_ended_by(self, call: str, reason: str) -> None:
        """Checks that a call of the connection has ended the game, and that the game knows why."""
        error = self.error
        must(not self.is_alive(), f"{call} did not wake the game {self.game!r}", f"a caller that waits gets {reason!r}")
        if error is not None and not isinstance(error, (ExternalError, ExternalClosed)):
            raise error
        fits = error.code == reason if isinstance(error, ExternalError) else bool(error) and reason == "over"
        must(fits, f"after {call}, the game {self.game!r} got {error!r}", f"expected the reason {reason!r}")


class _WatchedTable(Slots):
    """A table that notes what it gets, and in which thread."""

    def __init__(self, games: ExternalGames, slots: int, thread: threading.Thread) -> None:
        super().__init__(games.interface, slots, TickRules(max_delay_s=0.0, idle_s=1e6, answer_s=1e6))
        self._thread = thread
        self.polling = False  # whether the connection may call the table now
        self.shown: dict[str, list[list[Any]]] = defaultdict(lambda: [[] for _ in games.interface.entities])
        self.breaches: list[ContractBroken] = []
        for call in ("begin", "pay", "end", "end_rows", "lose"):
            setattr(self, call, partial(self._watch, call))

    def ask(self, slot: int, asks: Mapping[int, Ask]) -> None:
        self._watch("ask", slot, asks)
        for entity, ask in asks.items():
            self.shown[self.game(slot).name][entity].append(copy.deepcopy(ask.observation))

    def ask_rows(self, slots: NDArray[np.intp], entity: int, observations: Any, **rest: Any) -> None:
        self._watch("ask_rows", slots, entity, observations, **rest)
        space = self.interface.observation_spaces[entity]
        for number, slot in enumerate(slots.tolist()):
            self.shown[self.game(slot).name][entity].append(spaces.row(space, observations, number))

    def _watch(self, what: str, *arguments: Any, **rest: Any) -> Any:
        """A call of the connection; all games of the check keep the rules, so the table has nothing to refuse."""
        if not self.polling or threading.current_thread() is not self._thread:
            found = f"{what} was called in the thread {threading.current_thread().name!r}"
            rule = "poll alone calls the table, in the thread of the environment"
            self.breaches.append(ContractBroken(f"{found}; {rule}"))
        try:
            return getattr(Slots, what)(self, *arguments, **rest)
        except ExternalError as error:
            if error.code not in ("not_yet", "no_slot"):
                rule = "the games of this check keep the rules of the table"
                self.breaches.append(ContractBroken(f"{what} was refused: {error}; {rule}"))
            raise


class _Environment:
    """The part of the environment, in a thread of its own, so that a call that does not return is found."""

    def __init__(self, make: Make, play: Play, *, slots: int, limit_s: float) -> None:
        self.games = make()
        self.closed_loop = bool(getattr(self.games, "closed_loop", False))
        self._play, self._limit_s, self._slots = play, limit_s, slots
        self.rung = threading.Event()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        def run() -> None:
            while (job := self._jobs.get()) is not None:
                job()

        self._thread = threading.Thread(target=run, name="environment of the check", daemon=True)
        self.table = _WatchedTable(self.games, slots, self._thread)
        self._random = np.random.default_rng(0)
        self._actors = [copy.deepcopy(space) for space in self.games.interface.action_spaces]
        for number, space in enumerate(self._actors):
            space.seed(number)
        self.answered: dict[str, list[list[Any]]] = defaultdict(lambda: [[] for _ in self._actors])
        self.finished: dict[str, Game] = {}
        self._tick: Tick | None = None  # without an answer
        self._players: list[_Player] = []

    def __enter__(self) -> _Environment:
        self._thread.start()
        if (configure := getattr(self.games, "configure", None)) is not None:
            names = [f"policy-{number}" for number in range(len(self._actors))]
            self.call("configure", lambda: configure(ExternalMatch(1, TickRules(), names)))
        self.call("open", lambda: self.games.open(self._slots, self.rung.set))
        address = self.games.address
        must(isinstance(address, str), f"the address is {address!r}", "it is a text, empty where there is none")
        self.call("pause(True)", lambda: self.pause(True))  # a run opens the games before the leg begins
        self.call("pause(False)", lambda: self.pause(False))
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.call("close", lambda: self.games.close("over"))
        except BaseException:
            if error[0] is None:  # else the first breach is the one to raise
                raise
        finally:
            self._jobs.put(None)
            self._thread.join(self._limit_s)
            for player in self._players:
                player.join()

    def player(self, name: str, requests: int) -> _Player:
        """A game that begins to be played from outside."""
        player = _Player(self.games, self._play, name, requests, self._limit_s)
        self._players.append(player)
        return player

    def call(self, what: str, function: Callable[[], Result]) -> Result:
        """Calls a function in the environment's thread."""
        result: Future[Result] = Future()

        def job() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._jobs.put(job)
        done = wait([result], 2 * self._limit_s).done
        must(done, f"{what} has not returned after {2 * self._limit_s:g} s", "it must not wait")
        if self.table.breaches:
            raise self.table.breaches[0]
        error = result.exception()
        if error is not None and not isinstance(error, ContractBroken):
            raise ContractBroken(f"{what} has raised {error!r}") from error
        return result.result()

    # ---------------------------------------------------------------------------------- in the environment's thread

    def pause(self, on: bool) -> None:
        """Pauses connection and table as between two legs, or lets them go on."""
        if on:
            self.table.cut()
            self._tick = None
        self.games.pause(on)
        self.table.pause(on)

    def drop(self, slot: int, reason: str) -> None:
        """Gives a game up as the environment does."""
        Slots.lose(self.table, slot, reason)
        self.games.drop(slot, reason)
        self._tick = None

    def poll(self) -> float | None:
        """Lets the connection tell the table what has come."""
        self.table.polling = True
        try:
            seconds = self.games.poll(self.table)
        finally:
            self.table.polling = False
        fits = seconds is None or (isinstance(seconds, (int, float)) and seconds >= 0)
        must(fits, f"poll returned {seconds!r}", "it returns seconds >= 0, or None")
        return seconds

    def _answer(self) -> None:
        interface = self.games.interface
        actions = [spaces.empty_batch(space, self._slots) for space in interface.action_spaces]

        def fill() -> None:  # random actions in all rows, also of entities without a request
            for space, batch in zip(self._actors, actions, strict=True):
                for slot in range(self._slots):
                    spaces.write_sample(space, space.sample(), batch, slot)

        fill()
        answers = self.table.answers(actions)
        for slot, entity in zip(answers.slots.tolist(), answers.entity.tolist(), strict=True):
            action = spaces.row(interface.action_spaces[entity], actions[entity], slot)
            self.answered[self.table.game(slot).name][entity].append(action)
        if len(answers.slots):
            self.games.answer(answers)
        fill()  # they are valid until `answer` returns, and not longer

    # ------------------------------------------------------------------------------------------------------- checks

    def run(self, what: str, done: Callable[[], bool], *, answer_last: bool = True) -> None:
        """Forms and answers ticks until something has happened; the last one may stay without an answer."""

        def play() -> None:
            if self._tick is not None:
                self._answer()
                self._tick = None
            deadline = time.monotonic() + self._limit_s
            while True:
                self.rung.clear()
                seconds = self.poll()
                tick = self.table.form()
                if tick is not None:
                    self.finished.update({game.name: game for game in tick.finished})
                    deadline = time.monotonic() + self._limit_s
                    if done() and not answer_last and tick.begun.active.any():
                        self._tick = tick
                        return
                    self._answer()
                if done() and answer_last:
                    return
                if tick is not None:
                    continue
                # Until a ring, until the connection is to be polled, or until it is done.
                again = deadline if seconds is None else min(deadline, time.monotonic() + seconds)
                while not self.rung.wait(_LOOK_S if seconds != 0 else 0.0) and not done() and time.monotonic() < again:
                    pass
                if time.monotonic() >= deadline and not done():
                    rule = "poll has returned None, so that ring must say when something has come"
                    raise ContractBroken(
                        f"{self._limit_s:g} s have passed, and it is not true that {what}; "
                        f"{rule if seconds is None else ''}"
                    )

        self.call(what, play)

    def is_over(self, player: _Player) -> bool:
        """Whether a game has been played to its end, and the table got the end."""
        return not player.is_alive() and (player.played is None or player.game in self.finished)

    def check_played(self, players: Sequence[_Player]) -> None:
        """What games say that they have shown and received is what has gone through the table."""
        for player in players:
            name, played = player.game, player.played
            if played is None:
                raise ContractBroken(f"the game {name!r} ended with {player.error!r}") from player.error
            game = self.finished[name]
            must(not game.lost, f"the game {name!r} was lost: {game.lost!r}", "it has ended by itself")
            interface = self.games.interface
            for entity, label in enumerate(interface.entities):
                where = f"{label!r} in the game {name!r}"
                shown, sent = self.table.shown[name][entity], played.observations[entity]
                received, answered = played.actions[entity], self.answered[name][entity]
                for what, space, found, expected in (
                    ("the table got observations", interface.observation_spaces[entity], shown, sent),
                    ("the game received actions", interface.action_spaces[entity], received, answered),
                ):
                    counts = f"{where}: {what} {len(found)} times", f"expected {len(expected)} times"
                    must(len(found) == len(expected), *counts)
                    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
                        leaves = zip(spaces.flatten(space, one), spaces.flatten(space, other), strict=True)
                        fits = all(np.array_equal(a, b) for a, b in leaves)
                        must(fits, f"{where}: {what}, number {number}: {one}", f"expected {other}")
                total, paid = float(game.returns[entity]), float(played.returns[entity])
                fits = bool(np.isclose(total, paid, rtol=1e-6, atol=1e-6))
                must(fits, f"{where}: the rewards in the table add up to {total:g}", f"the game has paid {paid:g}")
