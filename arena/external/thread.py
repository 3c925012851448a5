"""External games in the environment's process: a user's loop in a thread of its own, which calls `get_action`."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from gymnasium.spaces import Space

from arena.errors import ConfigError
from arena.external.errors import ExternalClosed, ExternalError, check_outcome
from arena.external.request_queue import ConnectedGame, RequestQueue, Settled, entity_index
from arena.external.slots import Ask, End
from arena.game.api import Info, Interface
from arena.game.arrays import copied


class ExternalEnv(ABC):
    """A game with a loop of its own, which asks for actions; one entity, or several with spaces by name.

    The methods may be called from any thread, for many episodes at once; for one episode, one call at a time. When the
    run ends, every blocked or later call raises `ExternalClosed`, which `run` need not catch; so does `start_episode`
    if no episode may begin any more. If `run` returns, the match plays its remaining ticks empty; if it raises, the
    game has failed.

    The constructor of a class takes the `kwargs` of the configuration and sets the spaces, or gives them to `__init__`.

    Args:
        action_space: of the only entity, or a mapping of action spaces by entity; None: set as attributes. This comes
            first, as in RLlib's `ExternalEnv`.
        observation_space: likewise.

    Attributes:
        observation_space: of the only entity, `agent_0`.
        action_space: likewise.
        observation_spaces: by entity, instead of `observation_space`.
        action_spaces: by entity.
        mask_sizes: by entity, the length of its action mask; left out: no masks.
        closed: whether the arena wants no more actions asked for.
    """

    observation_space: Space[Any] | None = None
    action_space: Space[Any] | None = None
    observation_spaces: Mapping[str, Space[Any]] = {}
    action_spaces: Mapping[str, Space[Any]] = {}
    mask_sizes: Mapping[str, int] = {}
    closed = False
    _played_by: ThreadGames | None = None

    def __init__(
        self,
        action_space: Space[Any] | Mapping[str, Space[Any]] | None = None,
        observation_space: Space[Any] | Mapping[str, Space[Any]] | None = None,
    ) -> None:
        for name, value in (("action_space", action_space), ("observation_space", observation_space)):
            if value is not None:  # a Dict space is a Mapping too
                setattr(self, name if isinstance(value, Space) else f"{name}s", value)

    @abstractmethod
    def run(self) -> None:
        """The loop; called once, in a thread of its own."""

    def start_episode(
        self, episode_id: str | None = None, *, training_enabled: bool = True, entities: Sequence[str] | None = None
    ) -> str:
        """Begins an episode; waits until one of the match's `lanes` is free.

        Args:
            episode_id: its name; None: one is made up.
            training_enabled: whether algorithms learn from the episode.
            entities: the entities that take part; None: all.

        Returns:
            the name.

        Raises:
            ExternalError: `already_started`, `unknown_entity`.
            ExternalClosed: the run has ended, or no episode may begin any more; running episodes go on.
        """
        return self._table.start(episode_id or uuid.uuid4().hex, training_enabled, entities)

    def get_action(self, episode_id: str, observation: Any, *, entity: str | None = None, mask: Any = None) -> Any:
        """The policy's action for an observation; waits for it.

        Args:
            episode_id: what `start_episode` has returned.
            observation: a sample of the entity's space.
            entity: its name; may be left out if the episode has one.
            mask: the allowed actions [n]; None: all.

        Raises:
            ExternalError: the request is refused, or has no answer after `answer_s` (`timeout`): the episode is over.
            ExternalClosed: the run has ended.
        """
        game = self._table.game(episode_id)
        index = entity_index(self._table.interface, game.entities, entity)
        return self._table.actions(game, {index: observation}, {index: mask})[index]

    def get_actions(
        self, episode_id: str, observations: Mapping[str, Any], masks: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """As `get_action`, for several entities at once: all requests are taken for the same tick, or none is."""
        table = self._table
        game = table.game(episode_id)
        indices = {name: entity_index(table.interface, game.entities, name) for name in observations}
        requests = {index: observations[name] for name, index in indices.items()}
        actions = table.actions(game, requests, {indices[name]: mask for name, mask in (masks or {}).items()})
        return {name: actions[index] for name, index in indices.items()}

    def log_action(
        self, episode_id: str, observation: Any, action: Any, *, entity: str | None = None, mask: Any = None
    ) -> None:
        """Says which action the game has taken by itself; waits until a tick has taken the previous such action.

        Raises:
            ExternalError, ExternalClosed: as `get_action`.
        """
        table = self._table
        game = table.game(episode_id)
        asks = {entity_index(table.interface, game.entities, entity): Ask(copied(observation), mask=mask, given=action)}
        table.wait(lambda settled: table.ask(game, asks, settled))

    def log_returns(
        self, episode_id: str, reward: float, info: Info | None = None, *, entity: str | None = None
    ) -> None:
        """Adds a reward for the entity's last action; before its first one, the reward counts only for the return.

        The info goes with the entity's next observation.

        Raises:
            ExternalError, ExternalClosed: as `get_action`.
        """
        table = self._table
        game = table.game(episode_id)
        index = entity_index(table.interface, game.entities, entity)
        table.wait(lambda settled: table.pay(game, index, reward, settled, info=info))

    def end_episode(
        self,
        episode_id: str,
        observation: Any = None,
        *,
        entity: str | None = None,
        truncated: bool = False,
        info: Info | None = None,
    ) -> None:
        """Ends the episode of an entity; without `entity`, of all entities that have not ended.

        Args:
            observation: the last one; None: the one that was shown last is used.
            truncated: whether it ends from outside rather than by the game's rules.
            info: may have the `outcome` (`win`, `loss` or `draw`); without it, it is derived from the returns.

        Raises:
            ExternalError, ExternalClosed: as `get_action`.
        """
        table = self._table
        game = table.game(episode_id)
        index = None if entity is None else entity_index(table.interface, game.entities, entity)
        if isinstance(info, dict):  # else refused by the table
            check_outcome(info.get("outcome"))
        end = End(observation, truncated=truncated, info=info)
        table.wait(lambda settled: table.end(game, index, end, settled))
        table.left_slot.number = game.slot

    @property
    def _table(self) -> ThreadGames:
        if self._played_by is None:
            raise ExternalClosed("the game is not played by an arena")
        return self._played_by


class ThreadGames(RequestQueue):
    """The connection to an `ExternalEnv`.

    Attributes:
        left_slot: `number`: the slot of the episode that a thread has ended last.

    Raises:
        ConfigError: the spaces are missing, or do not belong together.
    """

    def __init__(self, env: ExternalEnv) -> None:
        super().__init__(interface_of(env))
        self.left_slot = threading.local()
        self._env, env._played_by = env, self
        self._games: dict[str, ConnectedGame] = {}  # by name
        self._lock = threading.Lock()
        self._drains = self._returned = False  # whether no episode may begin any more; whether `run` is over

        def run() -> None:
            try:
                env.run()
            except BaseException as error:
                if not ((self.closed or self._drains) and isinstance(error, ExternalClosed)):
                    self.failure = error
            self._returned = True
            self.ring()

        self._thread = threading.Thread(target=run, name=f"{type(env).__name__}.run", daemon=True)

    # ----------------------------------------------------------------------------------------------- the game's threads

    def start(self, name: str, training: bool, entities: Sequence[str] | None) -> str:
        """See `ExternalEnv.start_episode`."""
        known = range(len(self.interface.entities))
        indices = tuple(known if entities is None else (entity_index(self.interface, known, each) for each in entities))
        game = ConnectedGame(name, indices, training, after=getattr(self.left_slot, "number", None))
        with self._lock:
            if name in self._games:
                raise ExternalError("already_started", f"the episode {name!r} is running")
            self._games[name] = game
        try:
            self.wait(lambda settled: self.begin(game, settled))
        except ExternalError as error:
            self.forget(game)
            if error.code == "draining":
                self._drains = True
                raise ExternalClosed(error.message, "draining") from None
            raise
        return name

    def game(self, name: str) -> ConnectedGame:
        """The episode of this name, which is running."""
        if self.closed:
            raise ExternalClosed(self.closed)
        with self._lock:
            if name not in self._games:
                raise ExternalError("unknown_game", f"no episode {name!r} is running: it has ended, or never began")
            return self._games[name]

    def actions(self, game: ConnectedGame, observations: Mapping[int, Any], masks: Mapping[int, Any]) -> dict[int, Any]:
        """Asks for several entities and waits for all answers."""
        answers: dict[int, Future[Any]] = {entity: Future() for entity in observations}

        def settled(error: ExternalError | None) -> None:
            for answer in answers.values():
                if error is not None and not answer.done():
                    answer.set_exception(error)

        asks = {entity: Ask(copied(seen), mask=masks.get(entity)) for entity, seen in observations.items()}
        handlers = {entity: partial(_answered, answer) for entity, answer in answers.items()}
        self.ask(game, asks, settled, handlers)
        return {entity: _result(answer) for entity, answer in answers.items()}

    def wait(self, put: Callable[[Settled], None]) -> None:
        """Puts a request to the queue and waits until the table has taken it.

        Raises:
            ExternalError: the table has refused it.
            ExternalClosed: the run has ended.
        """
        taken: Future[None] = Future()

        def settled(error: ExternalError | None) -> None:
            taken.set_result(None) if error is None else taken.set_exception(error)

        put(settled)
        _result(taken)

    def forget(self, game: ConnectedGame) -> None:
        """An episode is over."""
        with self._lock:
            if self._games.get(game.name) is game:
                del self._games[game.name]

    # ----------------------------------------------------------------------------------------- the environment's thread

    @property
    def exhausted(self) -> bool:
        """Whether `run` has returned, and none of its requests waits."""
        return self._returned and self.idle

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Starts the thread."""
        self.ring = ring
        self._thread.start()

    def close(self, reason: str) -> None:
        """Every blocked or later call raises `ExternalClosed`; waits for `run` to return, at most `close_s`."""
        self._env.closed = True
        super().close(reason)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self.rules.close_s)


def _answered(answer: Future[Any], action: Any, version: int) -> None:
    if not answer.done():  # another entity of the request has not ended before
        answer.set_result(action)


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except ExternalError as error:
        if error.code == "over":
            raise ExternalClosed(error.message) from None
        raise


def interface_of(source: Any) -> Interface:
    """The interface of an object or class with spaces of one entity, or of several by name.

    Raises:
        ConfigError: they are missing, or do not belong together.
    """
    name = source.__name__ if isinstance(source, type) else type(source).__name__
    observations = dict(getattr(source, "observation_spaces", None) or {})
    actions = dict(getattr(source, "action_spaces", None) or {})
    single = getattr(source, "observation_space", None), getattr(source, "action_space", None)
    if not observations and not actions and all(isinstance(space, Space) for space in single):
        observations, actions = {"agent_0": single[0]}, {"agent_0": single[1]}
    if not observations or observations.keys() != actions.keys():
        raise ConfigError(
            f"{name} has no spaces: set `observation_space` and `action_space`, or `observation_spaces` and "
            "`action_spaces` with the same entities"
        )
    sizes = dict(getattr(source, "mask_sizes", None) or {})
    unknown = sorted(set(sizes) - set(observations))
    if unknown:
        raise ConfigError(f"{name}: `mask_sizes` has {', '.join(unknown)}, which no space has")
    return Interface(
        tuple(observations),
        tuple(observations.values()),
        tuple(actions[name] for name in observations),
        tuple(int(sizes.get(name, 0)) for name in observations),
    )
