"""Games of an asynchronous multi-agent environment: `PollEnv` is polled for observations and sent actions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from gymnasium.spaces import Space

from arena.errors import GameError
from arena.external.errors import ExternalError
from arena.external.request_queue import ConnectedGame, RequestQueue, Settled
from arena.external.slots import Answers, Ask, End, Slots
from arena.external.thread import interface_of
from arena.game.arrays import copied

_log = logging.getLogger(__name__)

ALL = "__all__"
"""The agent of a flag that concerns all agents."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05  # after a poll without a result
_MOST_REQUESTS = 64  # waiting requests of a game, per agent; with more, the environment is not polled

ByAgent = Mapping[Any, Mapping[str, Any]]
"""Values by game and agent: `{env_id: {agent: value}}`."""


class PollResult(NamedTuple):
    """What has happened in the games since the last poll, by game and agent; agents may be left out anywhere."""

    observations: ByAgent = {}  # of agents that ask, or that end
    rewards: ByAgent = {}  # since the agent's last action
    terminateds: ByAgent = {}  # flags, also of `__all__`
    truncateds: ByAgent = {}  # likewise
    infos: ByAgent = {}  # with `action_mask` for agents with action masks
    given: ByAgent = {}  # actions that the game has taken by itself at these observations


Parts = Sequence[Mapping[str, Any]]
"""The fields of a `PollResult` for one game, by agent."""


class PollEnv(Protocol):
    """An asynchronous environment of many games; it is recognized by its methods.

    `poll` is called by a thread of its own, and may block. The other methods may be called by another thread meanwhile.
    A method `dropped(env_id, reason)` is called, if there is one, when the arena gives a game up.

    Attributes:
        observation_spaces: by agent, of all agents that may appear.
        action_spaces: by agent.
    """

    observation_spaces: Mapping[str, Space[Any]]
    action_spaces: Mapping[str, Space[Any]]

    def poll(self) -> PollResult | tuple[ByAgent, ...]:
        """What has happened; a game begins with its first observation.

        As RLlib's `BaseEnv`, a class may return a tuple: six mappings in the order of `PollResult`, or five, with
        `dones` instead of `terminateds` and `truncateds`: observations, rewards, dones, infos, off-policy actions.
        """
        ...

    def send_actions(self, actions: ByAgent) -> None:
        """Takes `actions`, by game and agent, of agents that have asked."""
        ...

    def try_reset(self, env_id: Hashable) -> Mapping[str, Any] | None:
        """Resets the game `env_id`; returns the first observations by agent, or None if they come in a later poll."""
        ...

    def stop(self) -> None:
        """The run is over; a `poll` that blocks returns."""
        ...


class PolledGames(RequestQueue):
    """The games of a `PollEnv`.

    Raises:
        ConfigError: its spaces are missing, or do not belong together.
    """

    def __init__(self, env: PollEnv) -> None:
        super().__init__(interface_of(env))
        self._env = env
        self._indices = {name: index for index, name in enumerate(self.interface.entities)}
        self._games: dict[Hashable, _Polled] = {}
        self._actions: dict[Hashable, dict[str, Any]] = {}  # of the tick that is answered
        self._happened = threading.Event()  # actions were sent, or the table has taken requests
        # By game that is being reset: the results of polls in the meantime, and when these polls returned.
        self._resetting: dict[Hashable, list[tuple[float, Parts]]] = {}
        self._reset_at: dict[Hashable, float] = {}  # results of polls that returned earlier are of the game before
        # The game before, until the first observation of the next one.
        self._successors: dict[Hashable, ConnectedGame] = {}
        self._waiting: dict[Hashable, deque[_Polled]] = {}  # games with requests that the table has not taken
        self._ahead = False  # whether the environment is not polled
        self._thread = threading.Thread(target=self._run, name=f"{type(env).__name__}.poll", daemon=True)

    # ------------------------------------------------------------------------------------ the environment's thread

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Starts to poll."""
        self.ring = ring
        self._thread.start()

    def poll(self, table: Slots) -> float | None:
        """Passes the results of polls to the table.

        Raises:
            Exception: as raised by the environment's `poll`.
            GameError: the table refuses a result.
        """
        super().poll(table)
        if self._ahead:
            self._happened.set()
        return None

    def answer(self, actions: Answers) -> None:
        """Sends the actions."""
        super().answer(actions)
        if self._actions:
            sent, self._actions = self._actions, {}
            self._env.send_actions(sent)
            self._happened.set()

    def drop(self, slot: int, reason: str) -> None:
        """Gives a game up, and resets it unless the run is over."""
        with self.lock:
            polled = next((one for one in self._games.values() if one.game.slot == slot), None)
            if polled is not None and reason != "over":
                self._resetting[polled.env_id] = []
        super().drop(slot, reason)
        if polled is None:
            return  # its end has come meanwhile, and the thread resets it
        self._report_dropped(polled.env_id, reason)
        if reason != "over":
            self._reset(polled.env_id, polled.game)

    def close(self, reason: str) -> None:
        """Stops the environment; waits for its last poll, at most `close_s`."""
        if self.closed:
            return
        with self.lock:
            playing = list(self._games)
        super().close(reason)
        for env_id in playing:
            self._report_dropped(env_id, reason)
        self._env.stop()
        self._happened.set()
        if self._thread.is_alive():
            self._thread.join(self.rules.close_s)
            if self._thread.is_alive():
                _log.warning("%s has not returned %g s after stop()", self._thread.name, self.rules.close_s)

    def _report_dropped(self, env_id: Hashable, reason: str) -> None:
        dropped = getattr(self._env, "dropped", None)
        if dropped is not None:
            dropped(env_id, reason)

    def forget(self, game: ConnectedGame) -> None:
        """A game is over."""
        with self.lock:
            for env_id, polled in list(self._games.items()):
                if polled.game is game:
                    del self._games[env_id]

    # ------------------------------------------------------------------------------------------ the polling thread

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        most = _MOST_REQUESTS * len(self._indices)
        try:
            while not self.closed:
                self._happened.clear()
                with self.lock:
                    # A game that waits for a slot does not count: the end of another one, which a poll has to bring,
                    # may free it.
                    self._ahead = any(
                        games[0].game.slot is not None and sum(one.waiting for one in games) > most
                        for games in self._waiting.values()
                    )
                if self._ahead:
                    self._happened.wait(_LONGEST_PAUSE_S)
                    continue
                result = poll_result(self._env.poll())
                returned = time.monotonic()
                happened = dict.fromkeys(env_id for by_game in result for env_id in by_game)
                for env_id in happened:
                    parts = [by_game.get(env_id, {}) for by_game in result]
                    with self.lock:
                        if env_id in self._resetting:
                            self._resetting[env_id].append((returned, parts))
                            continue
                        is_old = returned < self._reset_at.get(env_id, 0.0)  # of a game that was dropped since
                        over = None if is_old else self._put(env_id, parts)
                        if over is not None:
                            self._resetting[env_id] = []
                    if over is not None:
                        self._reset(env_id, over)
                if happened:
                    pause = _FIRST_PAUSE_S
                else:
                    self._happened.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        except BaseException as error:
            if self.closed:
                _log.info("%s has raised %r after stop()", self._thread.name, error)
            else:
                self.fail(error)

    def _reset(self, env_id: Hashable, before: ConnectedGame) -> None:
        """Resets a game, which is in `_resetting`; results of polls in the meantime follow afterwards, in order."""
        called = time.monotonic()
        observation = self._env.try_reset(env_id)
        if observation is not None and not isinstance(observation, Mapping):
            raise GameError(
                f"a {type(observation).__name__} from try_reset(); expected the observations by agent, or None if they "
                "come in a later poll"
            )
        with self.lock:
            # If `try_reset` gave no observations, the first ones may be in a poll that has returned since the call.
            self._reset_at[env_id] = time.monotonic() if observation else called
            self._successors[env_id] = before
            over = self._put(env_id, [observation, {}, {}, {}, {}, {}]) if observation else None
            later = self._resetting[env_id]
            while later and over is None:
                returned, parts = later.pop(0)
                if returned >= self._reset_at[env_id]:
                    over = self._put(env_id, parts)
            if over is None:
                del self._resetting[env_id]
        if over is not None:
            self._reset(env_id, over)

    def _put(self, env_id: Hashable, parts: Parts) -> ConnectedGame | None:
        """Passes on what has happened in one game, with `lock`; returns the game if it is over."""
        observations, rewards, terminateds, truncateds, infos, given = parts
        agents = dict.fromkeys((*observations, *rewards, *terminateds, *truncateds, *given))
        agents.pop(ALL, None)
        unknown = [agent for agent in agents if agent not in self._indices]
        if unknown:
            raise GameError(f"game {env_id!r}: unknown agents {unknown}; observation_spaces has {list(self._indices)}")
        polled = self._games.get(env_id)
        if polled is None and not observations:
            return None  # of a game that is over
        if polled is None:
            game = ConnectedGame(str(env_id), tuple(self._indices.values()), after=self._successors.pop(env_id, None))
            polled = self._games[env_id] = _Polled(env_id, game, set(self._indices))
            self._waiting.setdefault(env_id, deque()).append(polled)
            self.begin(game, self._settled(polled, ALL))
        all_over = bool(terminateds.get(ALL) or truncateds.get(ALL))
        for agent in [*agents, *(sorted(polled.playing - set(agents)) if all_over else ())]:
            terminated = bool(terminateds.get(agent) or (terminateds.get(ALL) and not truncateds.get(agent)))
            truncated = bool(truncateds.get(agent) or truncateds.get(ALL)) and not terminated
            reward, observation, index = rewards.get(agent, 0.0), observations.get(agent), self._indices[agent]
            info = dict(infos.get(agent) or {})
            mask, action = info.pop("action_mask", None), given.get(agent)
            if (terminated or truncated) and (agent in polled.playing or agent in observations):
                polled.playing.discard(agent)
                end = End(observation, reward, truncated, info=info or None)
                self.end(polled.game, index, end, self._settled(polled, agent))
            elif agent in observations:
                ask = Ask(copied(observation), reward, copied(mask), copied(action), info=copied(info) or None)
                answered = {index: partial(self._answered, env_id, agent)} if action is None else None
                self.ask(polled.game, {index: ask}, self._settled(polled, agent), answered)
            elif agent in rewards and agent in polled.playing and not (terminated or truncated):
                self.pay(polled.game, index, reward, self._settled(polled, agent), info=info)
        if polled.playing:
            return None
        if self._games.get(env_id) is polled:
            del self._games[env_id]
        return polled.game

    def _answered(self, env_id: Hashable, agent: str, action: Any, version: int) -> None:
        self._actions.setdefault(env_id, {})[agent] = action

    def _settled(self, polled: _Polled, agent: str) -> Settled:
        """A handler of a request's outcome: a refusal is a failure of the environment.

        Further calls only say that the agent or the game has ended before the answer, and are ignored.
        """
        first = iter((True,))
        polled.waiting += 1

        def settled(error: ExternalError | None) -> None:
            if not next(first, False):
                return
            with self.lock:
                polled.waiting -= 1
                games = self._waiting[polled.env_id]
                while len(games) > 1 and not games[0].waiting:
                    games.popleft()  # the table knows its end
            if error is not None and not polled.game.over:
                self.fail(GameError(f"game {polled.env_id!r}, agent {agent!r}: {error}"))

        return settled


_ORDERS = (
    "a PollResult, six mappings in its order (observations, rewards, terminateds, truncateds, infos, given), or five "
    "in RLlib's order (observations, rewards, dones, infos, off-policy actions), each by game and agent"
)


def poll_result(returned: Any) -> PollResult:
    """What `poll` has returned, in one form; raises `GameError` if it has none of the forms of `PollEnv.poll`."""
    if not isinstance(returned, tuple) or len(returned) not in (5, 6):
        found = f"{len(returned)} values" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise GameError(f"{found} from poll(); expected {_ORDERS}")
    result = PollResult._make(returned if len(returned) == 6 else (*returned[:3], {}, *returned[3:]))
    for name, by_game in result._asdict().items():
        if not isinstance(by_game, Mapping) or not all(isinstance(one, Mapping) for one in by_game.values()):
            raise GameError(f"{by_game!r:.80} as {name} from poll(); expected {_ORDERS}")
        for value in (value for by_agent in by_game.values() for value in by_agent.values()):
            is_flag, is_mapping = name in ("terminateds", "truncateds"), isinstance(value, Mapping)
            if is_mapping if is_flag else name == "infos" and value is not None and not is_mapping:
                raise GameError(f"{value!r:.80} among the {name} from poll(); expected {_ORDERS}")
    return result


@dataclass(eq=False)
class _Polled:
    """A game as its environment knows it."""

    env_id: Hashable
    game: ConnectedGame
    playing: set[str]
    waiting: int = 0  # requests that the table has not taken
