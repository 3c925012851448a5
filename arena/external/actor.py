"""Actors: Python objects that translate between the bytes of one game and observations and actions.

One actor plays one game. For each entity of the game it has an `Agent`, whose `remote_model` returns actions and whose
`remote_buffer` takes rewards and ends. The same class is used in training and by `arena serve`.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from arena.external.errors import ExternalError, check_outcome
from arena.external.request_queue import ConnectedGame, RequestQueue, Settled, ignore
from arena.external.samples import checked_reward, fitted, fitted_mask
from arena.external.slots import Ask, End
from arena.game.api import Info
from arena.game.arrays import copied
from arena.game.infos import warn_no_mask


class Actor(ABC):
    """Plays one game. A class with these methods need not derive from this one.

    `tick` and `end` are functions, called in a thread, or coroutines, run on the server's loop, where they must not
    block. The attribute `start_reply` (bytes) is the answer to the start of a game; `close(reason)` is called when the
    game is over without `end`. The spaces are those of the configuration, or of the class: `observation_space` and
    `action_space`, or `observation_spaces` and `action_spaces` by entity.

    Args:
        agents: by entity.
        config: what the configuration says under `config`.
        game_id: what the client calls the game; empty for requests without a game.
        data: the body of the request that starts the game.
    """

    @abstractmethod
    def __init__(self, agents: dict[str, Agent], config: Any, game_id: str, data: bytes) -> None: ...

    @abstractmethod
    def tick(self, data: bytes) -> bytes:
        """The answer to a request with the body `data`; text is sent as UTF-8, None as nothing."""

    @abstractmethod
    def end(self, data: bytes) -> bytes:
        """The answer to the last request, as of `tick`; entities that have not ended are terminated when it returns."""


@dataclass(frozen=True)
class Agent:
    """One entity of a game."""

    remote_model: RemoteModel  # returns its actions
    remote_buffer: RemoteBuffer  # takes its rewards and its end


class Clone(Protocol):
    """Makes a model of an older checkpoint; only a server has one."""

    def __call__(self, link: EntityLink, step: int) -> RemoteModel: ...


class EntityLink:
    """Passes the requests of one entity of a game to the queue; without `clone` there are no checkpoints."""

    def __init__(
        self,
        requests: RequestQueue,
        entity: int,
        policy: str,
        deliver: Callable[[Callable[[], None]], None],
        clone: Clone | None = None,
    ) -> None:
        interface = requests.interface
        self.requests, self.entity, self.policy, self.deliver, self.clone = requests, entity, policy, deliver, clone
        self.name, self.mask_size = interface.entities[entity], interface.mask_sizes[entity]
        self.observation_space, self.action_space = (
            interface.observation_spaces[entity],
            interface.action_spaces[entity],
        )
        self.version = -1
        self.play(ConnectedGame("", ()))

    def play(self, game: ConnectedGame) -> None:
        """The entity plays a new game."""
        self.game = game
        self.takes_part = self.entity in game.entities
        self.ended = False
        self.reward, self.void = 0.0, False
        self.info: Info = {}
        self.newest: Forward | None = None

    def check(self) -> None:
        """Raises `ExternalError` if the entity may not ask or end now."""
        if not self.takes_part:
            raise ExternalError("unknown_entity", f"{self.name!r} takes no part in the game {self.game.name!r}")
        if self.ended:
            raise ExternalError("ended", f"{self.name!r} has ended in the game {self.game.name!r}")
        if self.newest is not None and not self.newest.done:
            raise ExternalError("already_asking", f"{self.name!r} has a request without an answer")

    def prepare(self, observation: Any, mask: Any = None, given: Any = None) -> Ask:
        """A checked request for an action; nothing changes. Errors are those of `RemoteModel.forward`."""
        self.check()
        if given is not None:
            given = fitted(self.action_space, given, f"action of {self.name!r}", "bad_action")
        return Ask(self.fitted_observation(observation), mask=self.fitted_mask(mask), given=given)

    def fitted_observation(self, observation: Any) -> Any:
        """The observation as a sample of the entity's space; `bad_observation` if it does not fit."""
        return fitted(self.observation_space, observation, f"observation of {self.name!r}", "bad_observation")

    def fitted_mask(self, mask: Any) -> Any:
        """The mask as int8 [mask_size], None: all actions are allowed; `bad_mask` if it does not fit."""
        if mask is None and self.mask_size:
            warn_no_mask(f"the game gave {self.name!r}", "its interface has masks")
        return fitted_mask(self.action_space, self.mask_size, mask, self.name)

    def ask(self, request: Ask) -> Forward | None:
        """Asks for an action, with the rewards pushed before it; None if the game has taken the action by itself."""
        forward = self.newest = Forward(self) if request.given is None else None
        info = copied(self.info) if self.info else None
        ask = Ask(request.observation, self.reward, request.mask, request.given, self.void, info)
        self.reward, self.void, self.info = 0.0, False, {}
        if forward is None:
            self.requests.ask(self.game, {self.entity: ask}, ignore)
        else:
            self.requests.ask(self.game, {self.entity: ask}, forward.settled, {self.entity: forward.answered})
        return forward

    def end(
        self, last: Any = None, *, truncated: bool = False, info: Info | None = None, settled: Settled = ignore
    ) -> None:
        """Ends the entity's episode, with the rewards pushed before; `last` is a sample of the space."""
        end = End(last, self.reward, truncated, void=self.void, info={**self.info, **(info or {})} or None)
        self.reward, self.void, self.info = 0.0, False, {}
        self.ended = True
        self.requests.end(self.game, self.entity, end, settled)

    def pay(self) -> None:
        """Passes rewards to the queue that no request has carried."""
        if self.reward and self.takes_part and not self.ended:
            reward, self.reward = self.reward, 0.0
            self.requests.pay(self.game, self.entity, reward)


class Forward:
    """The action for an observation, as soon as the policy has chosen it.

    `await` it in a coroutine; elsewhere call `result`.

    Attributes:
        version: of the checkpoint that has chosen the action, in ticks; -1: unknown, or not chosen yet.
        done: whether there is an action, or will be none.
    """

    def __init__(self, link: EntityLink) -> None:
        self._link = link
        self.version = -1
        self.done = False
        self._then: list[Callable[[], None]] = []  # the locks of a Future would take longer than the rest

    def add_done_callback(self, call: Callable[[Forward], Any]) -> None:
        """Calls a function on the server's loop when it is done, once or twice."""
        self._when_done(partial(self._link.deliver, partial(call, self)))

    def _when_done(self, call: Callable[[], None]) -> None:
        self._then.append(call)
        if self.done:  # possibly since before `call` was in the list
            call()

    def _settle(self, action: Any, error: ExternalError | None = None) -> None:
        self._action, self._error, self.done = action, error, True
        for call in self._then:
            call()

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._action

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done:
            if asyncio.current_task() is None:  # a coroutine that is run in steps waits for the forward itself
                yield self
            else:
                event = asyncio.Event()
                self.add_done_callback(lambda _: event.set())
                yield from event.wait().__await__()
        return self._outcome()

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the action.

        Args:
            timeout: in seconds; None: as long as the game may wait.

        Raises:
            ExternalError: there is no action.
            TimeoutError: not in time; it may still come.
            RuntimeError: on the server's loop, which would be blocked for ever.
        """
        if not self.done:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                pass
            else:
                raise RuntimeError("result() would block the server's loop; await the forward in a coroutine")
            there_is_one = threading.Event()
            self._when_done(there_is_one.set)
            if not there_is_one.wait(timeout):
                raise TimeoutError(f"no action after {timeout} s")
        return self._outcome()

    def answered(self, action: Any, version: int) -> None:
        """The policy has answered."""
        if not self.done:
            self.version = version
            if self._link.newest is self:  # false for a request of a clone
                self._link.version = max(self._link.version, version)
            self._settle(action)

    def settled(self, error: ExternalError | None) -> None:
        """The table has taken the request (None), or there will be no answer."""
        if error is not None and not self.done:
            self._settle(None, error)


class RemoteModel:
    """The policy that plays an entity.

    Attributes:
        name: of the policy.
        entity: its name.
        observation_space: of the entity.
        action_space: of the entity.
    """

    def __init__(self, link: EntityLink) -> None:
        self._link, self.name, self.entity = link, link.policy, link.name
        self.observation_space, self.action_space = link.observation_space, link.action_space

    @property
    def version(self) -> int:
        """The newest checkpoint that has answered, in ticks; only rises; -1: unknown."""
        return self._link.version

    def forward(self, observation: Any, *, mask: Any = None) -> Forward:
        """Asks for an action, without waiting; once per tick and entity.

        Args:
            observation: the same nest as a sample of the space; lists of numbers are taken for arrays.
            mask: the allowed actions [n] as 0 and 1; None: all.

        Raises:
            ExternalError: `bad_observation`, `bad_mask`, `already_asking`, `ended`, `unknown_entity`.
        """
        forward = self._link.ask(self._link.prepare(observation, mask))
        assert forward is not None, "no action was given"
        return forward

    def record(self, observation: Any, action: Any, *, mask: Any = None) -> None:
        """Says which action the game has taken by itself, instead of `forward`.

        Raises:
            ExternalError: as `forward`, and `bad_action`.
        """
        self._link.ask(self._link.prepare(observation, mask, action))

    def clone(self, step: int = -1) -> RemoteModel:
        """The policy as it was at the newest checkpoint up to a tick; it does not change any more.

        Args:
            step: in ticks; -1: the newest checkpoint.

        Raises:
            RuntimeError: in training; only a server has checkpoints to choose from.
        """
        if self._link.clone is None:
            raise RuntimeError(
                "clone() works where a policy is served; in training give the older policy a seat of its own, with "
                "`load` and `frozen: true`"
            )
        return self._link.clone(self._link, step)


class RemoteBuffer:
    """Takes the rewards and the end of an entity; the arena builds its trajectory from them.

    Attributes:
        pushed: the number of calls of `push`.
        dropped: always 0; a learner that falls behind makes games wait.
    """

    dropped = 0

    def __init__(self, link: EntityLink) -> None:
        self._link, self.pushed = link, 0

    def push(self, reward: float = 0.0, *, info: Mapping[str, Any] | None = None) -> None:
        """Adds a reward for the last action; before the first action, it counts only for the return.

        Args:
            reward: adds up until the entity asks again or ends.
            info: for the algorithm, with the next request.

        Raises:
            ExternalError: `bad_reward`.
        """
        self._link.reward += checked_reward(reward, self._link.name)
        self._link.info.update(info or {})
        self.pushed += 1

    def void(self) -> None:
        """The last action was not carried out; no algorithm learns from it."""
        self._link.void = True

    def end(
        self,
        observation: Any = None,
        *,
        truncated: bool = False,
        outcome: str | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends the entity's episode.

        Args:
            observation: the last one; None: the one that was shown last is used.
            truncated: whether it ends from outside rather than by the game's rules.
            outcome: `win`, `loss` or `draw`; None: derived from the returns.
            info: for the algorithm.

        Raises:
            ExternalError: `bad_observation`, `bad_body`, `ended`, `already_asking`, `unknown_entity`.
        """
        self._link.check()
        check_outcome(outcome)
        last = None if observation is None else self._link.fitted_observation(observation)
        stated = {} if outcome is None else {"outcome": outcome}
        self._link.end(last, truncated=truncated, info={**(info or {}), **stated})
