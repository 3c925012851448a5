"""Connections to external games, and clients that play them."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from arena.config.schema import TickRules
from arena.external import Answers, ExternalClosed, ExternalError, ExternalMatch, Slots
from arena.external.connection import wait_for_start
from arena.external.poll import ALL, PolledGames, PollResult
from arena.external.slots import Ask, End, Game
from arena.external.thread import ExternalEnv, ThreadGames
from arena.game.api import Interface
from arena.game.spaces import empty_batch, write_sample
from arena.records.space_json import space_to_json
from arena.testing import Played

INTERFACE = Interface(
    ("hero", "rival"),
    (Box(-np.inf, np.inf, (3,), np.float32), Dict(far=Box(-9, 9, (2,), np.float32), near=Discrete(5))),
    (Discrete(1000), MultiDiscrete([7, 9])),
    (0, 16),
)


class Script:
    """Random observations and rewards of a game, different for each name, entity and request."""

    def __init__(self, interface: Interface, name: str) -> None:
        self._random = np.random.default_rng(zlib.crc32(name.encode()))
        self._spaces = interface.observation_spaces
        self.observations: list[list[Any]] = [[] for _ in self._spaces]
        self.returns = [0.0 for _ in self._spaces]
        self.actions: list[list[Any]] = [[] for _ in self._spaces]
        self._seed = zlib.crc32(name.encode())

    def observation(self, entity: int) -> Any:
        """A random observation, recorded as shown."""
        space = self._spaces[entity]
        space.seed(self._seed + len(self.observations[entity]))
        sample = space.sample()
        self.observations[entity].append(sample)
        return sample

    def reward(self, entity: int) -> float:
        """A random reward, recorded as paid."""
        reward = float(np.float32(self._random.normal()))
        self.returns[entity] += reward
        return reward

    def played(self) -> Played:
        return Played(self.observations, self.returns, self.actions)


class FakeGames:
    """Games in memory, driven by calls from any thread; a thread and a pipe stand for the resources of a connection."""

    interface = INTERFACE
    address = ""
    exhausted = False

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []  # (kind, name, arguments)
        self.lock = threading.Lock()
        self.slots: dict[str, int] = {}
        self.asking: set[tuple[int, int]] = set()
        self.replies: dict[str, queue.Queue[Any]] = {}
        self.closed = ""
        self.line: queue.Queue[Any] = queue.Queue()
        self.pump: threading.Thread | None = None
        self.pipe: tuple[int, ...] = ()
        self.ring: Callable[[], None] = lambda: None

    # outside

    def say(self, kind: str, name: str, *arguments: Any) -> None:
        """Sends a call of a game."""
        if self.closed:
            raise ExternalClosed(self.closed)
        self.line.put((kind, name, *arguments))

    def hear(self, name: str) -> Any:
        """Waits for the next message to the game."""
        reply = self.replies[name].get(timeout=60)
        if isinstance(reply, Exception):
            raise reply
        return reply

    # ExternalGames

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        self.ring, self.pipe = ring, os.pipe()
        self.pump = threading.Thread(target=self.take, name="pump", daemon=True)
        self.pump.start()

    def take(self) -> None:
        while (call := self.line.get()) is not None:
            with self.lock:
                self.calls.append(call)
            self.announce()

    def announce(self) -> None:
        self.ring()

    def poll(self, table: Slots) -> float | None:
        with self.lock:
            calls, self.calls = self.calls, []
        late: dict[str, list[tuple[Any, ...]]] = {}
        for call in calls:
            if call[1] in late or not self.tell(table, *call):
                late.setdefault(call[1], []).append(call)
        with self.lock:
            self.calls = [call for one in late.values() for call in one] + self.calls
        return None

    def tell(self, table: Slots, kind: str, name: str, *arguments: Any) -> bool:
        if kind == "begin":
            if not table.free:
                return False
            self.slots[name] = table.begin(name)
            self.replies[name].put("begun")
            return True
        if name not in self.slots:  # it was dropped
            return True
        slot, entity = self.slots[name], arguments[0]
        if not table.ready(slot, entity):
            return False
        if kind == "ask":
            table.ask(slot, {entity: Ask(arguments[1], arguments[2])})
            self.asking.add((slot, entity))
        elif kind == "pay":
            table.pay(slot, entity, arguments[1])
        else:
            table.end(slot, {entity: End(reward=arguments[1])})
            if arguments[2]:
                del self.slots[name]
                self.replies[name].put("ended")
        return True

    def answer(self, actions: Answers) -> None:
        names = {slot: name for name, slot in self.slots.items()}
        for slot, entity in zip(actions.slots.tolist(), actions.entity.tolist(), strict=True):
            if (slot, entity) in self.asking:
                self.asking.discard((slot, entity))
                self.replies[names[slot]].put((entity, np.copy(actions.actions[entity][slot])))

    def drop(self, slot: int, reason: Any) -> None:
        name = next(name for name, held in self.slots.items() if held == slot)
        del self.slots[name]
        self.asking = {row for row in self.asking if row[0] != slot}
        self.replies[name].put(ExternalError(reason))

    def pause(self, on: bool) -> None: ...

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = reason
        for reply in list(self.replies.values()):
            reply.put(ExternalClosed(reason))
        if self.pump is not None:
            self.line.put(None)
            self.pump.join(60)
            for end in self.pipe:
                os.close(end)


def play_fake(games: FakeGames, name: str, requests: int) -> Played:
    """Plays one game of `FakeGames`; both entities request at the same time."""
    script = Script(games.interface, name)
    games.replies[name] = queue.Queue()
    games.say("begin", name)
    games.hear(name)
    entities = range(len(games.interface.entities))
    for number in range(requests):
        for entity in entities:
            games.say("ask", name, entity, script.observation(entity), script.reward(entity) if number else 0.0)
            games.say("pay", name, entity, script.reward(entity))
        for _ in entities:
            entity, action = games.hear(name)
            script.actions[entity].append(action)
    for entity in entities:
        games.say("end", name, entity, script.reward(entity), entity == entities[-1])
    assert games.hear(name) == "ended"
    return script.played()


class ThreadsFromOutside(ExternalEnv):
    """An `ExternalEnv` whose episodes are played by threads of the test; `run` waits for the end."""

    def __init__(self, interface: Interface = INTERFACE) -> None:
        names = interface.entities
        self.observation_spaces = dict(zip(names, interface.observation_spaces, strict=True))
        self.action_spaces = dict(zip(names, interface.action_spaces, strict=True))
        self.mask_sizes = dict(zip(names, interface.mask_sizes, strict=True))
        self.may_return = threading.Event()

    def run(self) -> None:
        while not self.closed:
            self.may_return.wait(0.01)


def threads() -> ThreadGames:
    """A connection to threads of the test."""
    games = ThreadGames(ThreadsFromOutside())
    games.env = games._env  # type: ignore[attr-defined]
    return games


def play_episode(client: Any, interface: Interface, name: str, requests: int) -> Played:
    """Plays one episode by the methods that `ExternalEnv` and `PolicyClient` share."""
    script, names = Script(interface, name), interface.entities
    client.start_episode(name)
    for number in range(requests):
        if number % 2:
            actions = client.get_actions(name, {one: script.observation(e) for e, one in enumerate(names)})
        else:
            actions = {one: client.get_action(name, script.observation(e), entity=one) for e, one in enumerate(names)}
        for entity, one in enumerate(names):
            script.actions[entity].append(actions[one])
            client.log_returns(name, script.reward(entity), entity=one)
            client.log_returns(name, script.reward(entity), entity=one)
    for one in names[1:]:
        client.end_episode(name, entity=one)
    client.end_episode(name)
    return script.played()


def play_thread(games: Any, name: str, requests: int) -> Played:
    """Plays one episode of `threads`."""
    return play_episode(games.env, games.interface, name, requests)


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def entities_of(interface: Interface) -> dict[str, Any]:
    """The interface as the key `entities` of a configuration."""
    return {
        name: {
            "observation": space_to_json(interface.observation_spaces[entity]),
            "action": space_to_json(interface.action_spaces[entity]),
            "masks": interface.mask_sizes[entity] > 0,
        }
        for entity, name in enumerate(interface.entities)
    }


class Playing:
    """Plays a connection as an environment does, in a thread; all entities are answered with the same action.

    Args:
        games: not open yet.
        slots: their number.
        rules: of ticks.
        actions: by entity, the action of every row.
    """

    def __init__(self, games: Any, slots: int, rules: TickRules | None = None, actions: Sequence[Any] = ()) -> None:
        own_limits = bool(getattr(games, "own_limits", False))
        self.games, self.table = games, Slots(games.interface, slots, rules, no_limits=own_limits)
        if (configure := getattr(games, "configure", None)) is not None:
            names = ["blue", "red"][: len(games.interface.entities)]
            configure(ExternalMatch(0, rules or TickRules(), names, lambda number: None, lambda error, lost: None))
        self.finished: list[Game] = []
        self.error: Exception | None = None
        self._bell = threading.Event()
        self._goes_on = True
        self._actions = [empty_batch(space, slots) for space in games.interface.action_spaces]
        for space, batch, action in zip(games.interface.action_spaces, self._actions, actions, strict=False):
            write_sample(space, action, batch, slice(None))
        self._thread = threading.Thread(target=self._play, name="environment", daemon=True)
        self.games.open(slots, self._bell.set)
        wait_for_start(self.games)
        self.games.pause(True)

    def __enter__(self) -> Playing:
        self.games.pause(False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.games.close("over")

    def stop(self) -> None:
        """Ends the thread of the environment; the connection stays open."""
        self._goes_on = False
        self._bell.set()
        self._thread.join(60)

    def resume(self) -> None:
        """Continues after `stop`."""
        self._goes_on = True
        self._thread = threading.Thread(target=self._play, name="environment", daemon=True)
        self._thread.start()

    def account(self) -> Game:
        """The record of the only game that was played, once it has ended."""
        self.until(lambda: bool(self.finished))
        (game,) = self.finished
        return game

    def until(self, done: Callable[[], bool]) -> None:
        """Waits for a condition that the environment is to fulfill."""
        deadline = time.monotonic() + 60
        while not done():
            assert self.error is None, self.error
            assert time.monotonic() < deadline, self.table.counts
            time.sleep(0.005)

    def _play(self) -> None:
        try:
            while self._goes_on:
                self._bell.clear()
                seconds = self.games.poll(self.table)
                for slot, reason in self.table.overdue():
                    self.table.lose(slot, reason)
                    self.games.drop(slot, reason)
                tick = self.table.form()
                if tick is None:
                    waits = [one for one in (seconds, self.table.seconds()) if one is not None]
                    self._bell.wait(min(waits, default=None))
                    continue
                self.finished += tick.finished
                self.games.answer(self.table.answers(self._actions))
        except Exception as error:
            self.error = error


class QueuedEnv:
    """A `PollEnv` whose games are played by threads of the test.

    Args:
        resets: the first observations by agent that `try_reset` returns, again and again; None: it returns None.
    """

    def __init__(self, interface: Interface = INTERFACE, resets: Any = None) -> None:
        names = interface.entities
        self.observation_spaces = dict(zip(names, interface.observation_spaces, strict=True))
        self.action_spaces = dict(zip(names, interface.action_spaces, strict=True))
        self.mask_sizes = dict(zip(names, interface.mask_sizes, strict=True))
        self.results: queue.Queue[Any] = queue.Queue()
        self.heard: dict[Any, queue.Queue[Any]] = {}
        self.resets, self.was_reset = resets, []
        self.stopped = False

    def poll(self) -> Any:
        result = self.results.get()
        if isinstance(result, Exception):
            raise result
        return result

    def send_actions(self, actions: Any) -> None:
        for env_id, chosen in actions.items():
            self.heard[env_id].put(chosen)

    def try_reset(self, env_id: Any) -> Any:
        self.was_reset.append(env_id)
        return self.resets

    def dropped(self, env_id: Any, reason: str) -> None:
        told = ExternalClosed("over") if reason == "over" else ExternalError(cast("Any", reason))
        self.heard[env_id].put(told)

    def stop(self) -> None:
        self.stopped = True
        for heard in self.heard.values():
            heard.put(ExternalClosed("over"))
        self.results.put(PollResult())

    def show(self, env_id: Any = "a", **parts: Any) -> None:
        """Adds the data of one game to the next poll."""
        self.heard.setdefault(env_id, queue.Queue())
        self.results.put(PollResult(**{part: {env_id: values} for part, values in parts.items()}))

    def hear(self, env_id: Any = "a") -> Any:
        """Waits for actions, by agent."""
        heard = self.heard[env_id].get(timeout=60)
        if isinstance(heard, Exception):
            raise heard
        return heard


def polled() -> PolledGames:
    """A connection to an environment that is polled."""
    games = PolledGames(QueuedEnv())
    games.env = games._env  # type: ignore[attr-defined]
    return games


def play_polled(games: Any, name: str, requests: int) -> Played:
    """Plays one game of `polled`; its agents take turns."""
    env, script, names = games.env, Script(games.interface, name), games.interface.entities
    for number in range(requests):
        for entity, one in enumerate(names):
            reward = {"rewards": {one: script.reward(entity)}} if number % 2 else {}
            env.show(name, observations={one: script.observation(entity)}, **reward)
            script.actions[entity].append(env.hear(name)[one])
            env.show(name, rewards={one: script.reward(entity)})
    env.show(name, rewards={one: script.reward(entity) for entity, one in enumerate(names)}, terminateds={ALL: True})
    return script.played()


class PolledLines:
    """A `PollEnv` of games along a line: the reward of a step is its number; a game restarts after `steps` steps.

    Args:
        games: side by side.
        steps: of a game.
    """

    def __init__(self, games: int = 2, steps: int = 5) -> None:
        self.observation_spaces = {"walker": Box(-1.0, 1e6, (1,), np.float32)}
        self.action_spaces = {"walker": Discrete(3)}
        self.steps, self.at = steps, dict.fromkeys(range(games), 0)
        self.results: queue.Queue[PollResult] = queue.Queue()
        for game in self.at:
            self.results.put(PollResult(observations={game: self.seen(game)}))

    def seen(self, game: int) -> dict[str, Any]:
        return {"walker": np.array([self.at[game]], np.float32)}

    def poll(self) -> PollResult:
        return self.results.get()

    def send_actions(self, actions: Any) -> None:
        for game in actions:
            reward, self.at[game] = float(self.at[game]), self.at[game] + 1
            over = {game: {ALL: self.at[game] == self.steps}}
            self.results.put(PollResult({game: self.seen(game)}, {game: {"walker": reward}}, over))

    def try_reset(self, game: int) -> dict[str, Any]:
        self.at[game] = 0
        return self.seen(game)

    def stop(self) -> None:
        self.results.put(PollResult())
