"""The external games of one match: which game is in which slot, which entities ask, and when a tick is formed.

A connection fills the table in `ExternalGames.poll`; the environment forms ticks from it:

    games.poll(table)        begin, ask, pay, end, lose
    table.form()             -> Tick, once enough games ask or have waited long enough; else None
    table.answers(actions)   -> Answers for `games.answer`

Between two ticks a row (one entity in one slot) takes at most one end and one observation; an observation after the end
is of the next game in the slot. The table is pure state without I/O; it is used by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from arena.config.schema import TickRules
from arena.errors import ConfigError
from arena.external.errors import Code, ExternalError
from arena.external.samples import checked_reward, fitted, fitted_mask
from arena.game.api import ExternalFields, Frame, Info, Interface, Step
from arena.game.arrays import LARGEST, is_finite, lost_value
from arena.game.infos import refused_key, stated_metrics
from arena.game.spaces import check_choices, empty_batch, flatten, leaves_of

_MOST_WAITS = 4096  # times from request to answer that are kept between two reports

Flags = NDArray[np.bool_]
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Ask(NamedTuple):
    """What an entity shows when it wants an action; arrays are copied."""

    observation: Any  # a sample of its space
    reward: float = 0.0  # since its last action
    mask: Any = None  # the allowed actions [mask_size]; None: all
    given: Any = None  # the action that the game has taken by itself; no answer is made
    void: bool = False  # whether the last action was not carried out, so that no algorithm learns from it
    info: Info | None = None  # for the algorithm


class End(NamedTuple):
    """What an entity shows when it ends."""

    observation: Any = None  # the last one; None: the one that was shown last is used
    reward: float = 0.0  # since its last action
    truncated: bool = False  # from outside, not by the game's rules; its last transition is void without observation
    mask: Any = None  # the allowed actions [mask_size] at the last observation; None: all
    void: bool = False  # as of `Ask`
    info: Info | None = None  # a text under `outcome` says who has won


@dataclass
class Game:
    """The account of one game, across the legs of a run."""

    slot: int
    name: str  # outside the arena
    training: bool  # whether algorithms learn from it
    takes_part: Flags  # [E]
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # [E] actions, set at the end
    returns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0, np.float64))  # [E] set at the end
    requested: bool = False  # whether an entity has asked in a tick; set at the end
    outcomes: dict[int, str] = field(default_factory=dict)  # that the game has stated, by entity
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)  # that it has stated at its end, by entity
    terminated: bool = False  # whether any entity has ended by the game's rules
    truncated: bool = False  # whether any entity has ended from outside
    lost: str = ""  # the reason given to `Slots.lose`; empty if the game has ended by itself


class Tick(NamedTuple):
    """A formed tick."""

    step: Step  # as of any game; `step.frame.external` holds what only external games have
    begun: Frame  # after finished games have left their slots, which are then free or hold the next game
    over: Flags  # [L] the slots whose game is over
    finished: Sequence[Game]  # the accounts of these games


class Answers(NamedTuple):
    """The actions of one tick, for the entities that asked for them.

    The action of row k is `actions[entity[k]][slots[k]]`; the arrays are valid until `ExternalGames.answer` returns.
    """

    slots: NDArray[np.intp]  # [K] ascending; rows with given actions are not answered
    entity: NDArray[np.intp]  # [K]
    actions: Sequence[Any]  # [E] batched samples [L, ...] of all slots
    versions: Sequence[int]  # [E] the tick of the checkpoint that has chosen the actions; -1: unknown


@dataclass
class Counts:
    """Sums since the table was made; `begun == ended + lost + Slots.running` at any time."""

    begun: int = 0
    ended: int = 0
    lost: int = 0
    lost_by: dict[str, int] = field(default_factory=dict)  # the same by reason
    refused_by: dict[str, int] = field(default_factory=dict)  # refused requests by code
    asks: int = 0  # requests for an action
    given: int = 0  # actions that games have chosen themselves
    void: int = 0
    ticks: int = 0
    empty_ticks: int = 0
    asking: int = 0  # slots that have asked, over all ticks

    def refuse(self, code: str, times: int = 1) -> None:
        """Counts a refused request, unless it only comes too early."""
        if code != "not_yet":
            self.refused_by[code] = self.refused_by.get(code, 0) + times


def _counts_refusals(request: Callable[Concatenate[Slots, _P], _R]) -> Callable[Concatenate[Slots, _P], _R]:
    """Counts the requests that a method of the table refuses."""

    @wraps(request)
    def counted(table: Slots, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return request(table, *args, **kwargs)
        except ExternalError as error:
            table.counts.refuse(error.code)
            raise

    return counted


class Slots:
    """The slots of one match; a slot holds one game from its beginning to its end, or is free.

    All methods for connections raise `ExternalError` for a request that is not allowed, and change nothing then.

    Args:
        slots: their number L.
        no_limits: whether `idle_s` and `answer_s` are not applied.

    Attributes:
        counts: what has happened so far.
        most: games that may begin in all; None: any number.
        waits: seconds from request to answer, of the newest requests; the environment reports and removes them.
    """

    def __init__(
        self,
        interface: Interface,
        slots: int,
        rules: TickRules | None = None,
        *,
        no_limits: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interface = interface
        self.counts = Counts()
        self.most: int | None = None
        self.waits: list[float] = []
        self._rules, self._no_limits, self._clock = rules or TickRules(), no_limits, clock
        entities = len(interface.entities)
        shape = (slots, entities)
        self._games: list[Game | None] = [None] * slots
        self._occupied = np.zeros(slots, np.bool_)
        self._over: list[Game] = []  # ended since the last tick
        self._left = np.zeros(slots, np.bool_)  # held one of these
        self._plays = np.zeros(shape, np.bool_)  # takes part, has not ended
        self._asks = np.zeros(shape, np.bool_)  # shows an observation in the next tick
        self._given = np.zeros(shape, np.bool_)  # of these, the ones that have acted already
        self._shown = np.zeros(shape, np.bool_)  # was to act in the newest tick
        self._acted = np.zeros(shape, np.bool_)  # has acted in this game since the leg began
        self._under_way = np.zeros(shape, np.bool_)  # has acted, and has not asked or ended in a tick since
        self._void = np.zeros(shape, np.bool_)  # the transition that the next tick completes is void
        self._terminated = np.zeros(shape, np.bool_)  # ends in the next tick
        self._truncated = np.zeros(shape, np.bool_)
        self._rewards = np.zeros(shape, np.float64)  # of the next tick
        self._later = np.zeros(shape, np.float64)  # of the tick after it: for a given action that is in the next tick
        self._lengths = np.zeros(shape, np.int64)  # of the games in the slots
        self._returns = np.zeros(shape, np.float64)
        self._has_request = np.zeros(slots, np.bool_)  # whether the game in the slot has asked in a tick
        self._untrained = np.zeros(slots, np.bool_)
        self._requested_at = np.zeros(shape, np.float64)
        self._active_at = np.zeros(slots, np.float64)
        spaces = list(zip(interface.observation_spaces, interface.mask_sizes, strict=True))
        self._observations = [_Batch(space, slots, size) for space, size in spaces]
        self._last = [_Batch(space, slots, size) for space, size in spaces]  # of rows that end
        self._actions = [_Batch(space, slots) for space in interface.action_spaces]  # given ones
        self._paid_infos: dict[tuple[int, int], Info] = {}  # of rewards, until the row's next observation or end
        self._infos: dict[tuple[int, int], Info] = {}  # of observations
        self._shown_infos: dict[tuple[int, int], Info] = {}  # of the newest tick's observations
        self._last_infos: dict[tuple[int, int], Info] = {}  # of ends
        self._first_at: float | None = None  # when the first request of the next tick came
        self._formed_at = clock()
        self._complete = False
        self._paused_at: float | None = None
        self._limit_at = -np.inf  # see `_first_limit`

    # ------------------------------------------------------------------------------------------------ for connections

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self._games)

    @property
    def free(self) -> int:
        """The number of slots that hold no game."""
        return len(self._games) - int(np.count_nonzero(self._occupied))

    @property
    def drains(self) -> bool:
        """Whether no game may begin any more; requests without a game may."""
        return self.most is not None and self.counts.begun >= self.most

    def game(self, slot: int) -> Game:
        """The game in a slot; `unknown_game` if it is free."""
        game = self._games[slot] if 0 <= slot < len(self._games) else None
        if game is None:
            raise ExternalError("unknown_game", f"slot {slot} holds no game")
        return game

    def holds(self, slot: int) -> bool:
        """Whether a game is in the slot."""
        return bool(self._occupied[slot])

    def playing(self, slot: int) -> list[int]:
        """The entities of the game in the slot that have not ended."""
        playing: list[int] = np.flatnonzero(self._plays[slot]).tolist()
        return playing

    def ready(self, slot: int, entity: int) -> bool:
        """Whether neither `ask` nor `end` would raise `not_yet`; a connection keeps what comes too early, in order."""
        return not (self._left[slot] or self._ends(slot, entity) or self._given[slot, entity])

    def complete(self) -> None:
        """Says that nothing more can ask before there is an answer: the next tick is formed at once."""
        self._complete = True

    @_counts_refusals
    def begin(
        self, name: str, entities: Sequence[int] | None = None, *, training: bool = True, after: int | None = None
    ) -> int:
        """Gives a game a slot.

        Args:
            name: of the game outside the arena; empty for a request without a game, which is not counted.
            entities: the indices of the entities that take part; None: all.
            after: the slot to take if it is free, such as the last one of the same client.

        Returns:
            the slot; the lowest free one if `after` is not free.

        Raises:
            ExternalError: `no_slot`, `unknown_entity`, `draining`.
        """
        if name and self.drains:
            raise ExternalError("draining", "no game may begin any more")
        takes_part = np.zeros(len(self.interface.entities), np.bool_)
        for entity in range(len(takes_part)) if entities is None else entities:
            if not 0 <= entity < len(takes_part):
                raise ExternalError("unknown_entity", f"there is no entity {entity}; there are {len(takes_part)}")
            takes_part[entity] = True
        if not takes_part.any():
            raise ExternalError("unknown_entity", "a game needs at least one entity")
        if after is not None and 0 <= after < len(self._occupied) and not self._occupied[after]:
            slot = after
        elif self._occupied.all():
            raise ExternalError("no_slot", f"all {len(self._occupied)} slots hold a game")
        else:
            slot = int(np.argmin(self._occupied))
        self._games[slot] = Game(slot, name, training, takes_part)
        self._untrained[slot] = not training
        self._has_request[slot] = False
        self._lengths[slot] = 0
        self._returns[slot] = 0.0
        self._occupied[slot] = True
        self._plays[slot] = takes_part
        self._acted[slot] = False
        self._active_at[slot] = self._clock()
        self.counts.begun += bool(name)
        return slot

    @_counts_refusals
    def ask(self, slot: int, asks: Mapping[int, Ask]) -> None:
        """Entities of a game, by index, show an observation each and want an action; for all of them or for none.

        Raises:
            ExternalError: `unknown_game`, `unknown_entity`, `ended`, `already_asking`, `not_yet`, `bad_observation`,
                `bad_mask`, `bad_action`, `bad_reward`, `bad_body`.
        """
        checked = []
        for entity, ask in asks.items():
            game = self._game(slot, entity)
            if self._asks[slot, entity]:
                if self._given[slot, entity]:
                    raise ExternalError("not_yet", "the last given action is not part of a tick yet")
                raise ExternalError("already_asking", f"{self._name(entity)} has a request without an answer")
            self._check_info(ask.info)
            reward = checked_reward(ask.reward, self.interface.entities[entity])
            leaves = self._sample(self._observations[entity], entity, ask.observation, "observation", "bad_observation")
            allowed, action = self._allowed(entity, ask.mask), None
            if ask.given is not None:
                action = self._sample(self._actions[entity], entity, ask.given, "action", "bad_action")
            checked.append((entity, leaves, allowed, action, reward, ask.void or not game.training, ask.info))
        for entity, leaves, allowed, action, reward, void, info in checked:
            if self._paid_infos:
                info = {**self._paid_infos.pop((slot, entity), {}), **(info or {})}
            if info:
                self._infos[slot, entity] = info
            self._pay(slot, entity, reward)
            self._ask(slot, entity, leaves, allowed, action)
            if void and not self._ends(slot, entity):  # otherwise the transition of the previous game would be void
                self._make_void(slot, entity)

    @_counts_refusals
    def ask_rows(
        self,
        slots: NDArray[np.intp],
        entity: int,
        observations: Any,
        *,
        rewards: NDArray[np.float64],
        masks: NDArray[np.int8] | None = None,
        given: Any = None,
    ) -> None:
        """`ask` for K games at once: different slots [K], a batched sample [K, ...], and rewards [K].

        Args:
            masks: [K, mask_size]; None: all actions are allowed.
            given: a batched action [K, ...]; None: the policy acts.

        Raises:
            ExternalError: as `ask`; nothing has changed for any game then.
        """
        slots, rewards = self._checked_rows(slots, entity, rewards, ends=False)
        batch = self._observations[entity]
        leaves = self._sample(batch, entity, observations, "observations", "bad_observation", len(slots))
        allowed = self._allowed(entity, masks, (len(slots),))
        actions = None
        if given is not None:
            actions = self._sample(self._actions[entity], entity, given, "actions", "bad_action", len(slots))
        self._pay_rows(slots, entity, rewards)
        if self._paid_infos:
            paid = [(slot, entity) for slot in slots.tolist() if (slot, entity) in self._paid_infos]
            self._infos |= {row: self._paid_infos.pop(row) for row in paid}
        self._ask(slots, entity, leaves, allowed, actions)
        if self._untrained.any():
            for slot in slots[self._untrained[slots]].tolist():
                if not self._ends(slot, entity):
                    self._make_void(slot, entity)

    def _ask(
        self,
        slots: Any,
        entity: int,
        leaves: Sequence[NDArray[Any]],
        allowed: NDArray[np.int8] | None,
        action: Sequence[NDArray[Any]] | None,
    ) -> None:
        """Rows ask, which may ask: one slot, or [K]; the rewards are paid already."""
        if action is not None:
            self._actions[entity].write(slots, action)
            self._given[slots, entity] = True
        self._observations[entity].write(slots, leaves, allowed)
        now = self._note(slots)
        self._asks[:, entity][slots] = True  # faster for many rows than indexing with both at once
        self._requested_at[:, entity][slots] = now

    @_counts_refusals
    def pay(self, slot: int, entity: int, reward: float, info: Info | None = None) -> None:
        """Adds a reward between two requests of an entity; errors are some of those of `ask`.

        The info goes with the entity's next observation.
        """
        self._game(slot, entity)
        self._check_info(info)
        self._pay(slot, entity, checked_reward(reward, self.interface.entities[entity]))
        if info:
            self._paid_infos[slot, entity] = {**self._paid_infos.get((slot, entity), {}), **info}
        self._active_at[slot] = self._clock()

    @_counts_refusals
    def end(self, slot: int, ends: Mapping[int, End]) -> None:
        """Ends the episodes of entities, by index, for all or for none; after the last one the game leaves its slot.

        An end takes the place of a request that is not part of a tick yet. Errors are those of `ask`.
        """
        checked = []
        for entity, end in ends.items():
            self._game(slot, entity)
            if not self.ready(slot, entity):
                raise ExternalError("not_yet", "an earlier end or given action of this row is not part of a tick yet")
            self._check_info(end.info)
            reward = checked_reward(end.reward, self.interface.entities[entity])
            leaves = None
            if end.observation is not None:
                leaves = self._sample(self._last[entity], entity, end.observation, "observation", "bad_observation")
            checked.append((entity, end, leaves, self._allowed(entity, end.mask), reward))
        for entity, end, leaves, allowed, reward in checked:
            self._pay(slot, entity, reward)
            unseen = end.truncated and leaves is None and not self._asks[slot, entity]
            self._end(slot, entity, leaves, allowed, end._replace(void=end.void or unseen))
        self._note(slot)

    @_counts_refusals
    def end_rows(
        self,
        slots: NDArray[np.intp],
        entity: int,
        observations: Any,
        *,
        rewards: NDArray[np.float64],
        truncated: NDArray[np.bool_],
    ) -> None:
        """`end` for K games at once; `observations` is a batched sample [K, ...], `rewards` and `truncated` are [K].

        Raises:
            ExternalError: as `end`; nothing has changed for any game then.
        """
        slots, rewards = self._checked_rows(slots, entity, rewards, ends=True)
        batch = self._last[entity]
        leaves = self._sample(batch, entity, observations, "observations", "bad_observation", len(slots))
        self._pay_rows(slots, entity, rewards)
        for row, slot in enumerate(slots.tolist()):
            self._end(slot, entity, [leaf[row] for leaf in leaves], None, End(truncated=bool(truncated[row])))
        self._note(slots)

    @_counts_refusals
    def lose(self, slot: int, reason: str) -> None:
        """Ends a game whose client has gone, or that is given up; `unknown_game` if the slot is free.

        Entities that have not ended are truncated with what they have shown last; transitions under way are void.
        """
        game = self.game(slot)
        game.lost = reason
        for entity in self.playing(slot):
            self._paid_infos.pop((slot, entity), None)
        if self._left[slot]:  # the previous game ends in the next tick, so this one has not been in any tick
            self._vacate(slot)
            self._asks[slot] = self._given[slot] = False
            self._later[slot] = 0.0
            self._count_lost(game)
            return
        for entity in np.flatnonzero(self._plays[slot]).tolist():
            if self._given[slot, entity]:  # the result of this action is not known
                self._given[slot, entity] = False
                self._later[slot, entity] = 0.0
            self._end(slot, entity, None, None, End(truncated=True, void=not self._asks[slot, entity]))
        self._note(slot)

    # --------------------------------------------------------------------------------------------- for the environment

    @property
    def running(self) -> int:
        """The number of slots that hold a game; requests without a game do not count."""
        return sum(game is not None and bool(game.name) for game in self._games)

    def overdue(self) -> list[tuple[int, Code]]:
        """The games whose time is over, with the reason; the caller drops them from the connection and calls `lose`."""
        if self._no_limits or self._paused_at is not None or not self._occupied.any():
            return []
        now = self._clock()
        if now < self._first_limit(now):
            return []
        late = np.any(self._waits() & (now - self._requested_at >= self._rules.answer_s), axis=1)
        silent = self._silent() & (now - self._active_at >= self._rules.idle_s)
        return [(slot, "timeout" if late[slot] else "expired") for slot in np.flatnonzero(late | silent).tolist()]

    def seconds(self) -> float | None:
        """Seconds until a tick is to be formed, or a game is overdue, if nothing else comes; None: never."""
        now, ends = self._clock(), []
        if self._first_at is not None:
            ends.append(self._first_at + self._rules.max_delay_s)
        elif self._rules.idle_tick_s is not None:
            ends.append(self._formed_at + self._rules.idle_tick_s)
        if not self._no_limits and self._occupied.any():
            ends.append(self._first_limit(now))
        return max(0.0, min(ends) - now) if ends else None

    def form(self, *, at_once: bool = False) -> Tick | None:
        """Forms the next tick if it is time, or `at_once`.

        Returns:
            the tick, with every row that asks; its arrays are valid until the next call. None: it is not time.
        """
        now, rules, complete = self._clock(), self._rules, self._complete
        self._complete = False
        if at_once:
            pass
        elif self._first_at is None:
            if rules.idle_tick_s is None or now - self._formed_at < rules.idle_tick_s:
                return None
        elif not (complete or now - self._first_at >= rules.max_delay_s):
            asking = self._asks.any(axis=1)
            if int(np.count_nonzero(asking)) < rules.min_asking or not (asking | ~self._occupied).all():
                return None
        counts, asks, given = self.counts, self._asks, self._given
        over = np.zeros(len(self._games), np.bool_)
        finished = tuple(self._over)
        absent = np.zeros_like(asks)
        for game in finished:
            over[game.slot] = True
            absent[game.slot] = ~game.takes_part
            for entity in np.flatnonzero(absent[game.slot]).tolist():
                self._last[entity].clear(game.slot)  # not the next game's observation
        ended = self._terminated | self._truncated | absent
        counts.ticks += 1
        counts.empty_ticks += not (asks.any() or ended.any())
        counts.asks += int(np.count_nonzero(asks & ~given))
        counts.given += int(np.count_nonzero(given))
        counts.asking += int(np.count_nonzero(asks.any(axis=1)))
        observations, masks = [one.batch for one in self._observations], [one.mask for one in self._observations]
        lasts, final_masks = observations, None
        if ended.any():
            for entity, last in enumerate(self._last):
                last.copy_rows(self._observations[entity], ~ended[:, entity])
            lasts, final_masks = [last.batch for last in self._last], [last.mask for last in self._last]
        external = ExternalFields(self._void.copy(), given.copy(), [batch.batch for batch in self._actions], absent)
        active = asks.copy()

        def listed(infos: dict[tuple[int, int], Info]) -> Sequence[Sequence[Info]] | None:
            columns = range(len(self._observations))
            return [[infos.get((slot, one), {}) for one in columns] for slot in range(len(over))] if infos else None

        shown_infos = {row: info for row, info in self._infos.items() if not ended[row]}  # else of the next game
        last_infos = listed({**shown_infos, **self._last_infos})
        frame = Frame(lasts, active, masks, last_infos, final_masks, external)
        step = Step(frame, self._rewards.copy(), self._terminated | (absent & over[:, None]), self._truncated.copy())
        infos = listed(self._infos)
        begun = Frame(observations, active, masks, infos, None, external)
        self._shown = active
        self._acted |= asks
        self._has_request |= asks.any(axis=1)
        self._under_way &= ~(asks | ended)
        self._rewards, self._later = self._later, self._rewards
        self._later[...] = 0.0
        for array in (self._asks, self._void, self._terminated, self._truncated):
            array[...] = False
        self._over.clear()
        self._left[...] = False
        self._shown_infos, self._infos = self._infos, {}
        self._last_infos.clear()
        self._first_at = None
        self._formed_at = self._clock()
        return Tick(step, begun, over, finished)

    def answers(self, actions: Sequence[Any], versions: Sequence[int] | None = None) -> Answers:
        """Takes the actions for the newest tick.

        Args:
            actions: per entity a batched action [L, ...]; rows that were not to act are ignored.
            versions: see `Answers`; None: unknown.

        Returns:
            the answers to all rows that have asked and have no given action.
        """
        acted = self._shown & self._occupied[:, None]
        requested = acted & ~self._given
        now = self._clock()
        self.waits += (now - self._requested_at[requested]).tolist()
        del self.waits[:-_MOST_WAITS]
        self._lengths += acted
        self._under_way |= acted
        self._active_at[requested.any(axis=1)] = now
        self._given[...] = False
        self._shown = np.zeros_like(self._shown)
        slots, entity = np.nonzero(requested)
        return Answers(slots, entity, actions, [-1] * requested.shape[1] if versions is None else versions)

    def cut(self) -> tuple[Flags, Flags]:
        """Ends a leg after the newest tick: rows that were to act will be in the first tick of the next leg.

        Returns:
            the rows [L, E] that an algorithm sees as truncated, since their game goes on; and the ones among these
            whose transition is void, as its result is not known yet.
        """
        goes_on = self._plays.copy()
        void = goes_on & self._under_way
        self.counts.void += int(np.count_nonzero(void))
        again = self._shown & goes_on
        self._asks |= again
        self._infos.update({row: info for row, info in self._shown_infos.items() if again[row]})
        self.counts.asks -= int(np.count_nonzero(again & ~self._given))
        self.counts.given -= int(np.count_nonzero(again & self._given))
        self.counts.asking -= int(np.count_nonzero(again.any(axis=1)))
        self._given &= self._asks
        self._later[self._given] += self._rewards[self._given]  # these actions are shown once more
        self._rewards[...] = 0.0
        self._shown = np.zeros_like(self._shown)
        self._acted[...] = False
        self._under_way[...] = False
        if self._asks.any() and self._first_at is None:
            self._first_at = self._clock()
        return goes_on, void

    def pause(self, on: bool) -> None:
        """The time until `pause(False)` does not count for any limit."""
        now = self._clock()
        if on:
            self._paused_at = now if self._paused_at is None else self._paused_at
        elif self._paused_at is not None:
            passed, self._paused_at = now - self._paused_at, None
            self._requested_at += passed
            self._active_at += passed
            self._formed_at += passed
            self._limit_at += passed
            if self._first_at is not None:
                self._first_at += passed

    def _first_limit(self, now: float) -> float:
        """A time before which no game is overdue; computed only when it has passed, as this takes long."""
        if now >= self._limit_at:
            rules, waits, silent = self._rules, self._waits(), self._silent()
            ends = [now + min(rules.answer_s, rules.idle_s)]  # of requests that come from now on
            if waits.any():
                ends.append(float(self._requested_at[waits].min()) + rules.answer_s)
            if silent.any():
                ends.append(float(self._active_at[silent].min()) + rules.idle_s)
            self._limit_at = min(ends)
        return self._limit_at

    def _silent(self) -> Flags:
        """[L] the games without a request for the next tick."""
        return self._occupied & ~self._asks.any(axis=1)

    def _waits(self) -> Flags:
        """[L, E] the rows that wait for an answer."""
        return (self._asks | self._shown) & ~self._given

    def _note(self, slots: Any) -> float:
        """Notes the time of a request of the next tick, and returns it."""
        now = self._clock()
        self._active_at[slots] = now
        if self._first_at is None:
            self._first_at = now
        return now

    def _ends(self, slot: int, entity: int) -> bool:
        return bool(self._terminated[slot, entity] or self._truncated[slot, entity])

    def _end(
        self,
        slot: int,
        entity: int,
        leaves: Sequence[NDArray[Any]] | None,
        allowed: NDArray[np.int8] | None,
        end: End,
    ) -> None:
        """Ends a row that may end: with the checked leaves and mask of the last observation, the reward being paid."""
        game, info = self.game(slot), end.info
        last, shown = self._last[entity], self._observations[entity]
        mask = None if shown.mask is None else shown.mask[slot]
        if leaves is None:
            leaves, allowed = [leaf[slot] for leaf in shown.leaves], mask if allowed is None else allowed
        last.write(slot, leaves, allowed)
        shown.write(slot, leaves, mask)
        if self._paid_infos:
            info = {**self._paid_infos.pop((slot, entity), {}), **(info or {})}
        (self._truncated if end.truncated else self._terminated)[slot, entity] = True
        game.truncated |= end.truncated
        game.terminated |= not end.truncated
        if self._asks[slot, entity]:
            self._asks[slot, entity] = False
            info = {**self._infos.pop((slot, entity), {}), **(info or {})}
        if info:
            self._last_infos[slot, entity] = info
            outcome = info.get("outcome")
            if isinstance(outcome, str):
                game.outcomes[entity] = outcome
            metrics = stated_metrics(info)
            if metrics is not None:
                game.metrics[entity] = metrics
        if end.void or not game.training:
            self._make_void(slot, entity)
        self._plays[slot, entity] = False
        if not self._plays[slot].any():
            game.requested = bool(self._has_request[slot])
            game.lengths, game.returns = self._lengths[slot].copy(), self._returns[slot].copy()
            self._over.append(game)
            self._left[slot] = True
            if game.lost:
                self._count_lost(game)
            else:
                self.counts.ended += bool(game.name)
            self._vacate(slot)

    def _count_lost(self, game: Game) -> None:
        if game.name:
            self.counts.lost += 1
            self.counts.lost_by[game.lost] = self.counts.lost_by.get(game.lost, 0) + 1

    def _vacate(self, slot: int) -> None:
        """Frees a slot; its rows show zeros until a game asks in it."""
        self._games[slot] = None
        self._occupied[slot] = False
        self._plays[slot] = False
        for entity, shown in enumerate(self._observations):
            shown.clear(slot)
            self._infos.pop((slot, entity), None)

    def _make_void(self, slot: int, entity: int) -> None:
        """The transition that the next tick completes is void, if there is one."""
        if self._under_way[slot, entity] and not self._void[slot, entity]:
            self._void[slot, entity] = True
            self.counts.void += 1

    def _pay(self, slot: int, entity: int, reward: float) -> None:
        """A reward counts for the last action; before the first action, only for the return."""
        self._returns[slot, entity] += reward
        if self._given[slot, entity] and self._asks[slot, entity]:
            self._later[slot, entity] += reward
        elif self._acted[slot, entity]:
            self._rewards[slot, entity] += reward

    def _name(self, entity: int) -> str:
        return repr(self.interface.entities[entity])

    def _game(self, slot: int, entity: int) -> Game:
        """The game in a slot, in which the entity plays."""
        game = self.game(slot)
        if not (0 <= entity < len(game.takes_part) and game.takes_part[entity]):
            found = self._name(entity) if 0 <= entity < len(game.takes_part) else f"entity {entity}"
            raise ExternalError("unknown_entity", f"{found} takes no part in the game {game.name!r}")
        if not self._plays[slot, entity]:
            raise ExternalError("ended", f"{self._name(entity)} has ended in the game {game.name!r}")
        return game

    def _checked_rows(
        self, slots: Any, entity: int, rewards: Any, *, ends: bool
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The checked slots [K] of rows that ask or end, and their rewards [K]."""
        slots = np.asarray(slots, np.intp)
        listed = slots.tolist()
        if len(set(listed)) != len(listed):
            raise ValueError("each slot may come once")
        inside = bool(listed) and min(listed) >= 0 and max(listed) < len(self._games)
        if not (inside and 0 <= entity < self._plays.shape[1] and self._plays[:, entity][slots].all()):
            for slot in listed:
                self._game(slot, entity)
        asking = self._asks[:, entity][slots]  # faster than indexing with both at once
        if ends and any(not self.ready(slot, entity) for slot in listed):
            raise ExternalError("not_yet", "an earlier end or given action of a row is not part of a tick yet")
        if not ends and asking.any():
            if self._given[slots[asking], entity].any():
                raise ExternalError("not_yet", "the last given action is not part of a tick yet")
            raise ExternalError("already_asking", f"{self._name(entity)} has a request without an answer")
        try:
            values = np.asarray(rewards, np.float64)
        except (OverflowError, TypeError, ValueError) as error:
            raise ExternalError("bad_reward", f"the rewards are no numbers: {error}") from None
        if values.shape != slots.shape or not (np.abs(values) <= LARGEST).all():
            text = f"rewards {values}; expected {len(slots)} finite numbers that float32 holds"
            raise ExternalError("bad_reward", text)
        return slots, values

    def _check_info(self, info: Any) -> None:
        if info is not None and not isinstance(info, dict):
            raise ExternalError("bad_body", f"the info {info!r} is no dict")
        if info and (refusal := refused_key(info)) is not None:
            raise ExternalError("bad_body", refusal)

    def _allowed(self, entity: int, mask: Any, axes: tuple[int, ...] = ()) -> NDArray[np.int8] | None:
        known = self.interface
        return fitted_mask(known.action_spaces[entity], known.mask_sizes[entity], mask, known.entities[entity], *axes)

    def _pay_rows(self, slots: NDArray[np.intp], entity: int, rewards: NDArray[np.float64]) -> None:
        self._rewards[:, entity][slots] += rewards * self._acted[:, entity][slots]
        self._returns[:, entity][slots] += rewards

    def _sample(
        self, batch: _Batch, entity: int, sample: Any, what: str, code: Code, count: int | None = None
    ) -> list[NDArray[Any]]:
        """The checked leaves of a sample, or of a batch of `count` samples."""
        space = batch.space
        if batch.is_box and type(sample) is np.ndarray:  # the usual case, with a fast path
            target = batch.leaves[0]
            shape = target.shape[1:] if count is None else (count, *target.shape[1:])
            if sample.dtype == target.dtype and sample.shape == shape and is_finite(sample):
                return [sample]
        try:
            arrays = flatten(space, sample)
            known: Any = getattr(space, "spaces", None)  # of a Dict or Tuple space
            keys = sample if isinstance(known, dict) and isinstance(sample, dict) else ()
            unknown = [key for key in keys if key not in known]
            if len(arrays) != len(batch.leaves) or unknown:
                raise KeyError(*unknown)
        except (KeyError, IndexError, OverflowError, TypeError, ValueError) as error:
            found = f"{what} of {self._name(entity)}: {type(sample).__name__} ({type(error).__name__} {error})"
            raise ExternalError(code, f"{found}; expected a sample of {space}") from None
        for number, (array, target) in enumerate(zip(arrays, batch.leaves, strict=True)):
            shape = target.shape[1:] if count is None else (count, *target.shape[1:])
            lost = None if array.dtype == target.dtype else lost_value(array, target.dtype)
            fits = array.shape == shape and lost is None
            if not fits or not is_finite(array):
                path = "".join(f"[{key!r}]" for key in leaves_of(space)[number].path)
                found = f"{array.dtype} {array.shape}" if not fits else "numbers that are not finite"
                found = found if lost is None else f"the value {lost}"
                raise ExternalError(
                    code, f"{what}{path} of {self._name(entity)}: {found}; expected {target.dtype} {shape} of {space}"
                )
        if batch.has_choices:
            try:
                check_choices(space, sample)
            except ValueError as error:
                if count is None:
                    fitted(space, sample, f"{what} of {self._name(entity)}", code)  # refuses the part by its name
                raise ExternalError(code, f"{what} of {self._name(entity)}: {error}") from None
        return arrays


class _Batch:
    """A batched sample of a space, one row per slot, with masks; a `ConfigError` if the space has no fixed layout."""

    def __init__(self, space: Any, slots: int, mask_size: int = 0) -> None:
        self.space = space
        self.batch = empty_batch(space, slots)
        self.leaves = flatten(space, self.batch)
        self.mask = np.ones((slots, mask_size), np.int8) if mask_size else None
        self.is_box = isinstance(space, Box)
        parts = [space]  # the space and those inside
        for part in parts:
            inner = getattr(part, "spaces", ())
            parts += inner.values() if isinstance(inner, dict) else inner
        self.has_choices = any(not isinstance(part, Box) for part in parts if not hasattr(part, "spaces"))
        self.zeros = [np.zeros(leaf.shape[1:], leaf.dtype) for leaf in self.leaves]
        if any(leaf.dtype == object for leaf in self.leaves):
            raise ConfigError(f"the space {space} has no fixed layout")

    def write(self, rows: Any, arrays: Sequence[NDArray[Any]], mask: NDArray[np.int8] | None = None) -> None:
        for leaf, array in zip(self.leaves, arrays, strict=True):
            leaf[rows] = array
        if self.mask is not None:
            self.mask[rows] = 1 if mask is None else mask

    def clear(self, row: int) -> None:
        self.write(row, self.zeros)

    def copy_rows(self, other: _Batch, rows: Flags) -> None:
        for leaf, array in zip(self.leaves, other.leaves, strict=True):
            leaf[rows] = array[rows]
        if self.mask is not None and other.mask is not None:
            self.mask[rows] = other.mask[rows]
