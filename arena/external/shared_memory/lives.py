"""The living agents of a match's simulators and their slots: rows of hand-overs become games.

A life is a game. It begins with the first row of an id and ends with the row that says `done`. This module has no I/O:
it takes rows of hand-overs, calls the table, and turns answers into actions of rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from arena.errors import LayoutError, LinkError
from arena.external.errors import ExternalError
from arena.external.shared_memory.layout import GroupSpec, Rows, no_op_actions
from arena.external.slots import Answers, Slots
from arena.game.api import Interface

OffsetOf = Callable[[str, str, int], int]
"""The offset in the file of an element of a field of a group: `offset_of("walker", "reward", 2)`."""


@dataclass
class Life:
    """An agent of a simulator, from its first row to its last one."""

    slot: int | None  # of its game; None: the arena has given the game up, and the agent plays without a policy
    entity: int  # that plays it
    newest: int  # the number of the newest hand-over of its group with a row of the agent


@dataclass
class LifeCounts:
    """What has happened to the agents of one simulator, by the keys of `LinkLine`."""

    lost: int = 0
    never_asked: int = 0  # rows that end a life that has not begun
    max_step_without_done: int = 0
    first_rewards: int = 0  # rewards of first rows, which belong to no action


class RequestRows(NamedTuple):
    """The rows of one group that wait for actions."""

    rows: Rows
    positions: dict[int, NDArray[np.intp]]  # by entity [K], among the rows of the group
    slots: dict[int, NDArray[np.intp]]  # by entity [K]
    dropped: Sequence[int]  # rows of agents without a game


def interface_of_groups(
    groups: Sequence[GroupSpec], split: Mapping[str, int], action_range: tuple[float, float]
) -> Interface:
    """The entities that play groups: one for each, or several for a group in `split`."""
    names, observations, actions, sizes = [], [], [], []
    for spec in groups:
        boxes = [Box(-np.inf, np.inf, shape, np.float32) for shape in spec.observations]
        action: Space[Any]
        if spec.branches is None:
            action = Box(*action_range, (spec.action_size,), np.float32)
        else:
            action = Discrete(spec.branches[0]) if len(spec.branches) == 1 else MultiDiscrete(list(spec.branches))
        for name in [f"{spec.name}.{part}" for part in range(split.get(spec.name, 0))] or [spec.name]:
            names.append(name)
            observations.append(boxes[0] if len(boxes) == 1 else Tuple(boxes))
            actions.append(action)
            sizes.append(spec.choices)
    return Interface(tuple(names), tuple(observations), tuple(actions), tuple(sizes))


class Lives:
    """The agents of all simulators of a match.

    Args:
        unseen: the number of hand-overs of its group without a row of an agent after which its slot may be taken.

    Attributes:
        counts: by simulator.
    """

    def __init__(self, groups: Sequence[GroupSpec], split: Mapping[str, int], unseen: int) -> None:
        self._groups = {spec.name: spec for spec in groups}
        self._entities: dict[str, tuple[int, int]] = {}  # the first one of a group, and their number
        first = 0
        for spec in groups:
            parts = split.get(spec.name, 1)
            self._entities[spec.name] = first, parts
            first += parts
        self._unseen = unseen
        self._living: dict[tuple[int, str], dict[int, Life]] = defaultdict(dict)
        self._handovers: Counter[tuple[int, str]] = Counter()
        self._left: dict[int, tuple[int, str, int]] = {}  # by slot, its last agent
        self.counts: dict[int, LifeCounts] = defaultdict(LifeCounts)

    def pass_on(
        self, table: Slots, simulator: int, handover: Mapping[str, Rows], offset_of: OffsetOf
    ) -> dict[str, RequestRows]:
        """Passes a hand-over to the table: first the ends of all groups, then the agents that ask.

        Returns:
            by group with rows, the rows that wait for actions.

        Raises:
            LayoutError: a number is not finite, or a row forbids all choices; the table is unchanged.
            LinkError: more agents live than there are slots.
        """
        counts, never_asked = self.counts[simulator], 0
        ends: dict[str, list[tuple[int, int, Life]]] = {}  # by group: position, id and life of rows
        asks: dict[str, list[tuple[int, int, Life | None]]] = {}
        for group, rows in handover.items():
            if not len(rows.ids):
                continue
            living, ends[group], asks[group] = self._living[simulator, group], [], []
            ended: set[int] = set()
            meanings = zip(rows.ids.tolist(), rows.done.tolist(), rows.max_step.tolist(), strict=True)
            for position, (number, done, max_step) in enumerate(meanings):
                life = None if number in ended else living.get(number)
                if done and life is not None:
                    ends[group].append((position, number, life))
                    ended.add(number)
                elif life is None and (done or max_step):
                    never_asked += 1
                else:
                    asks[group].append((position, number, life))
            checked = sorted(position for position, _, _ in [*ends[group], *asks[group]])
            check_rows(self._groups[group], rows, offset_of, checked)
        counts.never_asked += never_asked
        for group, ending in ends.items():
            rows = handover[group]
            self._handovers[simulator, group] += 1
            for _, _, life in asks[group]:
                if life is not None:
                    life.newest = self._handovers[simulator, group]  # before any other agent may take its slot
            by_entity: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for position, number, life in ending:
                del self._living[simulator, group][number]
                if life.slot is not None:
                    by_entity[life.entity].append((position, life.slot))
            for entity, pairs in by_entity.items():
                positions, slots = np.array(pairs, np.intp).T
                paid, truncated = rows.rewards[positions].astype(np.float64), rows.max_step[positions]
                table.end_rows(slots, entity, _observations(rows, positions), rewards=paid, truncated=truncated)
        found = {}
        for group in asks:
            rows = handover[group]
            rewards, by_entity = rows.rewards.astype(np.float64), defaultdict(list)
            dropped = []
            for position, number, life in asks[group]:
                if life is None:
                    life = self._begin(table, simulator, group, number, asks)
                    counts.first_rewards += bool(rewards[position])
                    rewards[position] = 0.0
                elif rows.max_step[position]:
                    counts.max_step_without_done += 1
                life.newest = self._handovers[simulator, group]
                if life.slot is None:
                    dropped.append(position)
                else:
                    by_entity[life.entity].append((position, life.slot))
            found[group] = requests = RequestRows(rows, {}, {}, dropped)
            for entity, pairs in by_entity.items():
                positions, slots = requests.positions[entity], requests.slots[entity] = np.array(pairs, np.intp).T
                masks = None if rows.masks is None else (~rows.masks[positions]).astype(np.int8)
                observed = _observations(rows, positions)
                table.ask_rows(slots, entity, observed, rewards=rewards[positions], masks=masks)
        return found

    def _begin(
        self, table: Slots, simulator: int, group: str, number: int, asks: Mapping[str, Sequence[tuple[int, int, Any]]]
    ) -> Life:
        """Begins the life of an agent; without a free slot, another agent's may be taken, see `unseen`."""
        first, parts = self._entities[group]
        agent, entity = (simulator, group, number), first + number % parts
        if not table.free:  # this simulator's agent with the most hand-overs without a row loses its slot
            longest, whose = self._unseen - 1, None
            for (owner, other), living in self._living.items():
                for one, life in living.items() if owner == simulator else ():
                    unseen = self._handovers[owner, other] - life.newest
                    if unseen > longest and life.slot is not None and life.newest:
                        longest, whose = unseen, (living, one, life.slot)
            if whose is not None:
                del whose[0][whose[1]]
                table.lose(whose[2], "lost")
                self.counts[simulator].lost += 1
        # A life that no longer counts is played all the same, as those that count may meet it: a game without a name.
        name = "" if table.drains else f"{simulator}/{group}/{number}"
        try:
            after = next((slot for slot, last in self._left.items() if last == agent), None)
            slot = table.begin(name, (entity,), after=after)
            self._left[slot] = agent
        except ExternalError as error:
            counts: Counter[str] = Counter(dict.fromkeys(self._groups, 0))
            for (_, other), lives in self._living.items():
                counts[other] += len(lives)
            for other, rows in asks.items():
                counts[other] += sum(one not in self._living[simulator, other] for _, one, _ in rows)
            agents, each = counts.total(), ", ".join(f"{other} {count}" for other, count in counts.items())
            refusal = LinkError(
                f"{agents} agents live, {table.size} slots (lanes): {each}; set lanes to {agents} or more"
            )
            refusal.simulator = simulator
            raise refusal from error
        life = self._living[simulator, group][number] = Life(slot, entity, 0)
        return life

    def drop(self, slot: int) -> None:
        """The arena has given a game up: its agent plays on without a policy, until its life ends."""
        for living in self._living.values():
            for life in living.values():
                if life.slot == slot:
                    life.slot = None
                    return

    def lose(self, table: Slots, simulator: int, reason: str) -> list[int]:
        """All agents of a simulator are gone; returns the slots of their lives."""
        lost = []
        for (owner, _), living in self._living.items():
            if owner == simulator:
                for life in living.values():
                    if life.slot is not None and table.holds(life.slot):
                        table.lose(life.slot, reason)
                        self.counts[simulator].lost += 1
                        lost.append(life.slot)
                living.clear()
        return lost

    def actions(
        self, requests: Mapping[str, RequestRows], answers: Answers | None, waiting: Set[int]
    ) -> dict[str, NDArray[Any]]:
        """The actions of a hand-over, by group [n, A]: zeros for rows that ended, no-ops for rows without an answer."""
        found = {}
        for group, (rows, by_entity, slots_of, dropped) in requests.items():
            spec = self._groups[group]
            actions = np.zeros((len(rows.ids), spec.action_size), spec.action_dtype)
            idle = list(dropped)
            for entity, positions in by_entity.items():
                slots = slots_of[entity]
                waits = np.array([slot in waiting for slot in slots.tolist()], np.bool_)
                if answers is not None:
                    chosen = np.asarray(answers.actions[entity])[slots[waits]]
                    actions[positions[waits]] = chosen.reshape(-1, spec.action_size)
                idle += positions[~waits].tolist()
            if idle:
                actions[idle] = no_op_actions(spec, rows)[idle]
            found[group] = actions
        return found


def _observations(rows: Rows, positions: NDArray[np.intp]) -> Any:
    """A batched sample of rows."""
    parts = tuple(array[positions] for array in rows.observations)
    return parts[0] if len(parts) == 1 else parts


def check_rows(spec: GroupSpec, rows: Rows, offset_of: OffsetOf, positions: Sequence[int] | None = None) -> None:
    """Checks the numbers of rows, and the masks of those that are not done; with `positions`, ascending, only these.

    Raises:
        LayoutError: a number is not finite, or all choices of a branch are forbidden.
    """
    checked = np.arange(len(rows.ids)) if positions is None else np.array(positions, np.intp)
    fields = [(f"observation {number}", array) for number, array in enumerate(rows.observations)]
    for field, array in [*fields, ("reward", rows.rewards)]:
        wrong = ~np.isfinite(array[checked])
        if wrong.any():
            index = np.argwhere(wrong)[0]
            element = int(np.ravel_multi_index((checked[index[0]], *index[1:]), array.shape))
            value = array.reshape(-1)[element]
            raise LayoutError(offset_of(spec.name, field, element), f"{spec.name}.{field}", value, "a finite number")
    asks = checked[~rows.done[checked]]
    if rows.masks is not None and len(asks):
        first = 0
        for branch, choices in enumerate(spec.branches or ()):
            forbidden = rows.masks[asks, first : first + choices].all(axis=1)
            if forbidden.any():
                element = int(asks[np.argmax(forbidden)]) * spec.choices + first
                found = f"all choices of branch {branch} forbidden"
                offset = offset_of(spec.name, "mask", element)
                raise LayoutError(offset, f"{spec.name}.mask", found, "one that is allowed")
            first += choices
