"""Games of an asynchronous multi-agent environment: `PollEnv` is polled for observations and sent actions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gymnasium.spaces import Space

from arena.config.schema import TickRules
from arena.errors import GameError
from arena.external.desk import Desk, DeskGame
from arena.external.interface import Answers, ExternalError
from arena.external.slots import Slots
from arena.external.thread import interface_of
from arena.game.api import Info, Interface
from arena.game.arrays import copied

_log = logging.getLogger(__name__)

ALL = "__all__"
"""The agent of a flag that concerns all agents."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05  # after a poll that brought nothing
_MOST_REQUESTS = 64  # waiting requests of a game, per agent; with more, the environment is not polled

ByAgent = Mapping[Hashable, Mapping[str, Any]]
"""Values by game and agent: `{env_id: {agent: value}}`."""


class PollResult(NamedTuple):
    """What has happened in the games since the last poll, by game and agent; agents may be left out anywhere."""

    observations: ByAgent = {}  # of agents that ask, or that end
    rewards: ByAgent = {}  # since the agent's last action
    terminateds: ByAgent = {}  # flags, also of `__all__`
    truncateds: ByAgent = {}
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
        """Takes actions of agents that have asked."""
        ...

    def try_reset(self, env_id: Hashable) -> Mapping[str, Any] | None:
        """Begins a game anew; returns the first observations by agent, or None if they come in a later poll."""
        ...

    def stop(self) -> None:
        """The run is over; a `poll` that blocks returns."""
        ...


class PolledGames:
    """The games of a `PollEnv`; see `ExternalGames`.

    Raises:
        ConfigError: its spaces are missing, or do not belong together.
    """

    address = ""
    closed_loop = False
    exhausted = False

    def __init__(self, env: PollEnv) -> None:
        self.interface: Interface = interface_of(env)
        self._env = env
        self._indices = {name: index for index, name in enumerate(self.interface.entities)}
        self._desk = Desk(self.interface, self._forget)
        self._lock = threading.RLock()  # of the games
        self._games: dict[Hashable, _Polled] = {}
        self._actions: dict[Hashable, dict[str, Any]] = {}  # of the tick that is answered
        self._happened = threading.Event()  # actions were sent, or the table has taken requests
        self.rules = TickRules()
        self._failure: BaseException | None = None
        self._closed = False
        # By game that is being reset: the results of polls in the meantime, and when these polls returned.
        self._renewing: dict[Hashable, list[tuple[float, Parts]]] = {}
        self._renewed_at: dict[Hashable, float] = {}  # results of polls that returned earlier are of the game before
        self._successors: dict[Hashable, DeskGame] = {}  # the game before, until the first observation of the next one
        self._waiting: dict[Hashable, deque[_Polled]] = {}  # games with requests that the table has not taken
        self._ahead = False  # whether the environment is not polled
        self._thread = threading.Thread(target=self._run, name=f"{type(env).__name__}.poll", daemon=True)

    # ------------------------------------------------------------------------------------ the environment's thread

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Starts to poll."""
        self._desk.ring = ring
        self._thread.start()

    def poll(self, table: Slots) -> float | None:
        """Passes the results of polls to the table.

        Raises:
            Exception: as raised by the environment's `poll`.
            GameError: the table refuses a result.
        """
        if self._failure is not None:
            raise self._failure
        self._desk.poll(table)
        if self._failure is not None:
            raise self._failure
        if self._ahead:
            self._happened.set()
        return None

    def answer(self, actions: Answers) -> None:
        """Sends the actions."""
        self._desk.answer(actions)
        if self._actions:
            sent, self._actions = self._actions, {}
            self._env.send_actions(sent)
            self._happened.set()

    def drop(self, slot: int, reason: str) -> None:
        """Gives a game up, and begins it anew unless the run is over."""
        with self._lock:
            polled = next((one for one in self._games.values() if one.game.slot == slot), None)
            if polled is not None and reason != "over":
                self._renewing[polled.env_id] = []
        self._desk.drop(slot, reason)
        if polled is None:
            return  # its end has come meanwhile, and the thread begins it anew
        self._tell_dropped(polled.env_id, reason)
        if reason != "over":
            self._renew(polled.env_id, polled.game)

    def pause(self, on: bool) -> None:
        """Nothing: results of polls wait until they are passed to the table."""

    def close(self, reason: str) -> None:
        """Stops the environment; waits for its last poll, at most `close_s`."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            playing = list(self._games)
        self._desk.close(reason)
        for env_id in playing:
            self._tell_dropped(env_id, reason)
        self._env.stop()
        self._happened.set()
        if self._thread.is_alive():
            self._thread.join(self.rules.close_s)
            if self._thread.is_alive():
                _log.warning("%s has not returned %g s after stop()", self._thread.name, self.rules.close_s)

    def _tell_dropped(self, env_id: Hashable, reason: str) -> None:
        dropped = getattr(self._env, "dropped", None)
        if dropped is not None:
            dropped(env_id, reason)

    def _forget(self, game: DeskGame) -> None:
        with self._lock:
            for env_id, polled in list(self._games.items()):
                if polled.game is game:
                    del self._games[env_id]

    # ------------------------------------------------------------------------------------------ the polling thread

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        try:
            while not self._closed:
                self._happened.clear()
                self._ahead = self._is_ahead()
                if self._ahead:
                    self._happened.wait(_LONGEST_PAUSE_S)
                    continue
                result = _poll_result(self._env.poll())
                returned = time.monotonic()
                happened = dict.fromkeys(env_id for by_game in result for env_id in by_game)
                for env_id in happened:
                    self._take(env_id, [by_game.get(env_id, {}) for by_game in result], returned)
                if happened:
                    pause = _FIRST_PAUSE_S
                else:
                    self._happened.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        except BaseException as error:
            if self._closed:
                _log.info("%s has raised %r after stop()", self._thread.name, error)
            else:
                self._fail(error)

    def _take(self, env_id: Hashable, parts: Parts, returned: float) -> None:
        """Passes on the results of a poll for one game, unless they are of a game that was given up since."""
        with self._lock:
            if env_id in self._renewing:
                self._renewing[env_id].append((returned, parts))
                return
            if returned < self._renewed_at.get(env_id, 0.0):
                return
            over = self._put(env_id, parts)
            if over is None:
                return
            self._renewing[env_id] = []
        self._renew(env_id, over)

    def _renew(self, env_id: Hashable, before: DeskGame) -> None:
        """Begins a game anew, which is in `_renewing`; results of polls in the meantime follow afterwards, in order."""
        asked = time.monotonic()
        seen = self._env.try_reset(env_id)
        if seen is not None and not isinstance(seen, Mapping):
            raise GameError(
                f"a {type(seen).__name__} from try_reset(); expected the observations by agent, or None if they come "
                "in a later poll"
            )
        if seen:
            self._check_known(env_id, seen)
        with self._lock:
            # If `try_reset` gave no observations, the first ones may be in a poll that has returned since the call.
            self._renewed_at[env_id] = time.monotonic() if seen else asked
            over: DeskGame | None = None
            if seen:
                with self._desk.together():
                    polled = self._begin(env_id, before)
                    for agent, observation in seen.items():
                        self._ask(polled, agent, observation, 0.0, None, None, {})
            else:
                self._successors[env_id] = before
            brought = self._renewing[env_id]
            while brought and over is None:
                returned, parts = brought.pop(0)
                if returned >= self._renewed_at[env_id]:
                    over = self._put(env_id, parts)
            if over is None:
                del self._renewing[env_id]
        if over is not None:
            self._renew(env_id, over)

    def _put(self, env_id: Hashable, parts: Parts) -> DeskGame | None:
        """Passes on what has happened in one game; returns the game if it is over."""
        observations, rewards, terminateds, truncateds, infos, given = parts
        agents = dict.fromkeys((*observations, *rewards, *terminateds, *truncateds, *given))
        agents.pop(ALL, None)
        self._check_known(env_id, agents)
        polled = self._games.get(env_id)
        if polled is None and not observations:
            return None  # of a game that is over
        with self._desk.together():
            if polled is None:
                polled = self._begin(env_id, self._successors.pop(env_id, None))
            all_over = bool(terminateds.get(ALL) or truncateds.get(ALL))
            for agent in [*agents, *(sorted(polled.playing - set(agents)) if all_over else ())]:
                terminated = bool(terminateds.get(agent) or (terminateds.get(ALL) and not truncateds.get(agent)))
                truncated = bool(truncateds.get(agent) or truncateds.get(ALL)) and not terminated
                reward, seen = rewards.get(agent, 0.0), observations.get(agent)
                info = dict(infos.get(agent) or {})
                mask = info.pop("action_mask", None)
                if (terminated or truncated) and (agent in polled.playing or agent in observations):
                    self._end(polled, agent, seen, reward, truncated, info)
                elif agent in observations:
                    self._ask(polled, agent, seen, reward, mask, given.get(agent), info)
                elif agent in rewards and agent in polled.playing and not (terminated or truncated):
                    self._desk.pay(polled.game, self._indices[agent], reward, self._judged(polled, agent), info=info)
        if polled.playing:
            return None
        if self._games.get(env_id) is polled:
            del self._games[env_id]
        return polled.game

    def _is_ahead(self) -> bool:
        """Whether a game has so many requests that no tick has taken that the environment is not to be polled.

        A game that waits for a slot does not count: the end of another one, which a poll has to bring, may free it.
        """
        most = _MOST_REQUESTS * len(self._indices)
        with self._lock:
            return any(
                games[0].game.slot is not None and sum(one.waiting for one in games) > most
                for games in self._waiting.values()
            )

    def _check_known(self, env_id: Hashable, agents: Iterable[str]) -> None:
        unknown = [agent for agent in agents if agent not in self._indices]
        if unknown:
            raise GameError(f"game {env_id!r}: unknown agents {unknown}; observation_spaces has {list(self._indices)}")

    def _begin(self, env_id: Hashable, after: DeskGame | None) -> _Polled:
        game = DeskGame(str(env_id), tuple(self._indices.values()), after=after)
        polled = self._games[env_id] = _Polled(env_id, game, set(self._indices))
        self._waiting.setdefault(env_id, deque()).append(polled)
        self._desk.begin(game, self._judged(polled, ALL))
        return polled

    def _ask(
        self, polled: _Polled, agent: str, observation: Any, reward: float, mask: Any, given: Any, info: Info
    ) -> None:
        def answered(action: Any, version: int) -> None:
            self._actions.setdefault(polled.env_id, {})[agent] = action

        self._desk.ask(
            polled.game,
            self._indices[agent],
            observation,
            reward=reward,
            mask=copied(mask),
            given=copied(given),
            info=info or None,
            told=self._judged(polled, agent),
            answered=answered if given is None else None,
        )

    def _end(self, polled: _Polled, agent: str, seen: Any, reward: float, truncated: bool, info: Info) -> None:
        polled.playing.discard(agent)
        self._desk.end(
            polled.game,
            self._indices[agent],
            seen,
            reward=reward,
            truncated=truncated,
            info=info or None,
            told=self._judged(polled, agent),
        )

    def _judged(self, polled: _Polled, agent: str) -> Callable[[ExternalError | None], None]:
        """A handler of a request's outcome: a refusal is a failure of the environment.

        Further calls only say that the agent or the game has ended before the answer, and are ignored.
        """
        first = iter((True,))
        polled.waiting += 1

        def told(error: ExternalError | None) -> None:
            if not next(first, False):
                return
            with self._lock:
                polled.waiting -= 1
                games = self._waiting[polled.env_id]
                while len(games) > 1 and not games[0].waiting:
                    games.popleft()  # its end is told
            if error is not None and not polled.game.over:
                self._fail(GameError(f"game {polled.env_id!r}, agent {agent!r}: {error}"))

        return told

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._desk.ring()


_ORDERS = (
    "a PollResult, six mappings in its order (observations, rewards, terminateds, truncateds, infos, given), or five "
    "in RLlib's order (observations, rewards, dones, infos, off-policy actions), each by game and agent"
)


def _poll_result(given: Any) -> PollResult:
    """What `poll` has returned, in one form; raises `GameError` if it has none of the forms of `PollEnv.poll`."""
    if not isinstance(given, tuple) or len(given) not in (5, 6):
        found = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise GameError(f"{found} from poll(); expected {_ORDERS}")
    result = PollResult._make(given if len(given) == 6 else (*given[:3], {}, *given[3:]))
    for name, by_game in result._asdict().items():
        if not isinstance(by_game, Mapping) or not all(isinstance(one, Mapping) for one in by_game.values()):
            raise GameError(f"{by_game!r:.80} as {name} from poll(); expected {_ORDERS}")
        for value in (value for by_agent in by_game.values() for value in by_agent.values()):
            flag = name in ("terminateds", "truncateds")
            if (flag and isinstance(value, Mapping)) or (
                name == "infos" and not isinstance(value, (Mapping, type(None)))
            ):
                raise GameError(f"{value!r:.80} among the {name} from poll(); expected {_ORDERS}")
    return result


class _Polled:
    """A game as its environment knows it."""

    def __init__(self, env_id: Hashable, game: DeskGame, playing: set[str]) -> None:
        self.env_id, self.game, self.playing = env_id, game, playing
        self.waiting = 0  # requests that the table has not taken
