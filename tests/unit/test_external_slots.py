"""The table of external games: refusals, the content of ticks, when ticks are formed, and when games are dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arena.config.schema import TickRules
from arena.external import ExternalError, Slots
from arena.external.request_queue import ConnectedGame, RequestQueue
from arena.external.slots import Ask, End, Tick
from arena.game.api import Interface
from clock import Clock

ONE = Interface(("hero",), (Box(-np.inf, np.inf, (2,), np.float32),), (Discrete(3),), (3,))
SEEN = Box(-np.inf, np.inf, (1,), np.float32)
TWO = Interface(("hero", "rival"), (SEEN, SEEN), (Discrete(3), Discrete(3)), (0, 0))


def seen(value: float, size: int = 2) -> Any:
    return np.full(size, value, np.float32)


def actions(table: Slots, value: int = 1) -> list[Any]:
    return [np.full(table.size, value, np.int64) for _ in table.interface.entities]


def played(table: Slots) -> Tick:
    """Forms the next tick and answers it."""
    tick = table.form(at_once=True)
    assert tick is not None
    table.answers(actions(table))
    return tick


def ask(table: Slots, slot: int, entity: int, observation: Any, **rest: Any) -> None:
    table.ask(slot, {entity: Ask(observation, **rest)})


def end(table: Slots, slot: int, entity: int, observation: Any = None, **rest: Any) -> None:
    table.end(slot, {entity: End(observation, **rest)})


def code_of(call: Any, *arguments: Any, **rest: Any) -> str:
    with pytest.raises(ExternalError) as raised:
        call(*arguments, **rest)
    return raised.value.code


# --- refusals -------------------------------------------------------------------------------------------------------


NESTED = Dict(near=Box(0, 9, (2,), np.float32), far=Discrete(4))
WRONG: list[tuple[str, Any, dict[str, Any], str]] = [  # code, observation space, changes of a valid request, message
    ("bad_observation", ONE.observation_spaces[0], {"observation": np.zeros(3, np.float32)}, r"float32 \(3,\)"),
    ("bad_observation", ONE.observation_spaces[0], {"observation": np.array([0, np.nan], np.float32)}, "not finite"),
    ("bad_observation", ONE.observation_spaces[0], {"observation": np.array([1j, 0])}, "complex128"),
    ("bad_observation", ONE.observation_spaces[0], {"observation": 10**400}, "hero"),
    ("bad_observation", ONE.observation_spaces[0], {"observation": [[0, 1], [2]]}, "hero"),
    ("bad_observation", NESTED, {"observation": {"near": seen(1, 3), "far": 1}}, r"\['near'\] of 'hero'"),
    ("bad_observation", NESTED, {"observation": {"near": seen(1)}}, "far"),
    ("bad_observation", NESTED, {"observation": {"near": seen(1), "far": 1, "more": 2}}, "more"),
    ("bad_observation", NESTED, {"observation": {"near": seen(1), "far": 1.5}}, "far"),
    ("bad_observation", Discrete(4), {"observation": 4}, "hero"),
    ("bad_observation", Discrete(4), {"observation": -1}, "hero"),
    *(
        ("bad_reward", Discrete(4), {"reward": it}, "")
        for it in (math.nan, math.inf, 1e300, "1.5", None, [1.0, 2.0], 10**400)
    ),
    *(("bad_mask", Discrete(4), {"mask": it}, "") for it in ([0, 0, 0], [1, 1], [1, 2, 0], [0.5, 1, 1], [[1], [1, 2]])),
    ("bad_mask", Discrete(4), {"mask": [0, 0, 0]}, "the mask of 'hero' has no allowed action"),
    *(("bad_action", Discrete(4), {"given": it}, "") for it in (3, -1, 0.5, "one", np.zeros(2, int))),
    ("bad_body", Discrete(4), {"info": "win"}, ""),
]


@pytest.mark.parametrize(("code", "space", "change", "named"), WRONG)
def test_a_wrong_value_is_named_and_changes_nothing(code: str, space: Any, change: dict[str, Any], named: str) -> None:
    table = Slots(Interface(("hero",), (space,), (Discrete(3),), (3,)), 1)
    table.begin("a")
    right = {"observation": space.sample(), **change}
    for call in (ask, end):
        if call is end and {"mask", "given"} & {*change}:
            continue
        with pytest.raises(ExternalError, match=named or None) as raised:
            call(table, 0, 0, **right)
        assert raised.value.code == code
    tick = played(table)
    assert not tick.begun.active.any() and table.playing(0) == [0]
    ask(table, 0, 0, space.sample(), mask=[0, 1, 1], given=2)
    assert played(table).begun.masks[0].tolist() == [[0, 1, 1]]


def test_a_mask_of_an_entity_without_masks_is_refused() -> None:
    table = Slots(TWO, 1)
    table.begin("a")
    assert code_of(ask, table, 0, 0, seen(1, 1), mask=[1, 1, 1]) == "bad_mask"


def test_rows_are_refused_together() -> None:
    table = Slots(ONE, 3)
    for name in "ab":
        table.begin(name)
    rows, rewards = np.array([0, 2]), np.zeros(2)
    assert code_of(table.ask_rows, rows, 0, np.zeros((2, 2), np.float32), rewards=rewards) == "unknown_game"
    rows = np.array([0, 1])
    right, bad = np.zeros((2, 2), np.float32), np.array([[0, 0], [0, np.inf]], np.float32)
    assert code_of(table.ask_rows, rows, 0, bad, rewards=rewards) == "bad_observation"
    for wrong in (np.nan, 1e300):
        assert code_of(table.ask_rows, rows, 0, right, rewards=np.array([0, wrong])) == "bad_reward"
    assert code_of(table.ask_rows, rows, 0, right, rewards=rewards, given=np.array([1, 3])) == "bad_action"
    masks = np.array([[1, 1, 1], [0, 0, 0]])
    assert code_of(table.ask_rows, rows, 0, right, rewards=rewards, masks=masks) == "bad_mask"
    assert not played(table).begun.active.any()
    with pytest.raises(ValueError, match="once"):
        table.ask_rows(np.array([0, 0]), 0, np.zeros((2, 2), np.float32), rewards=rewards)


def test_rows_equal_single_requests() -> None:
    clock = Clock()
    one, other = (Slots(ONE, 3, clock=clock) for _ in range(2))
    shown, rewards = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1.0, 2.0, 3.0])
    masks, given = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], np.int8), np.array([0, 1, 2])
    cut = np.array([True, False, True])
    ticks: list[list[Tick]] = [[], []]
    for table in (one, other):
        for name in "abc":
            table.begin(name, training=name != "b")
    one.ask_rows(np.arange(3), 0, shown, rewards=rewards, masks=masks, given=given)
    for slot in range(3):
        ask(other, slot, 0, shown[slot], reward=rewards[slot], mask=masks[slot], given=given[slot])
    ticks[0].append(played(one)), ticks[1].append(played(other))
    for table in (one, other):
        table.pay(2, 0, 1.0, {"speed": 5})
    one.ask_rows(np.array([2, 0]), 0, shown[:2], rewards=rewards[:2])
    for number, slot in enumerate((2, 0)):
        ask(other, slot, 0, shown[number], reward=rewards[number])
    ticks[0].append(played(one)), ticks[1].append(played(other))
    one.end_rows(np.arange(3), 0, shown, rewards=rewards, truncated=cut)
    for slot in range(3):
        end(other, slot, 0, shown[slot], reward=rewards[slot], truncated=bool(cut[slot]))
    ticks[0].append(played(one)), ticks[1].append(played(other))
    for left, right in zip(*ticks, strict=True):
        assert str(left) == str(right)
    assert one.counts == other.counts


# --- content of a tick ----------------------------------------------------------------------------------------------


def test_several_entities_ask_and_end_together_or_not_at_all() -> None:
    table = Slots(TWO, 1)
    table.begin("a")
    bad = {0: Ask(seen(1, 1), reward=1.0), 1: Ask(seen(math.nan, 1))}
    assert code_of(table.ask, 0, bad) == "bad_observation"
    assert table.form() is None, "nothing has changed"
    table.ask(0, {0: Ask(seen(1, 1)), 1: Ask(seen(2, 1))})
    assert played(table).begun.active.all()
    assert code_of(table.end, 0, {0: End(seen(3, 1)), 1: End(reward=math.inf)}) == "bad_reward"
    assert table.playing(0) == [0, 1]
    table.end(0, {0: End(seen(3, 1)), 1: End(reward=2.0)})
    assert played(table).finished[0].returns.tolist() == [0.0, 2.0]


def test_infos_are_shown_once_and_an_end_may_state_the_outcome() -> None:
    table = Slots(ONE, 1)
    table.begin("a")
    ask(table, 0, 0, seen(1), info={"hint": 3})
    assert played(table).begun.infos[0][0] == {"hint": 3}
    assert played(table).begun.infos is None
    end(table, 0, 0, info={"outcome": "win"})
    tick = played(table)
    assert tick.step.frame.infos[0][0] == {"outcome": "win"} and tick.finished[0].outcomes == {0: "win"}
    assert tick.begun.infos is None


def test_info_of_a_game_waiting_at_leg_end_is_shown_in_the_next() -> None:
    table = Slots(ONE, 2)
    for name in "ab":
        table.begin(name)
    ask(table, 0, 0, seen(1), info={"step": 1})
    assert table.form(at_once=True) is not None
    table.cut()
    ask(table, 1, 0, seen(2), info={"step": 2})
    tick = table.form(at_once=True)
    assert tick is not None and tick.begun.infos == [[{"step": 1}], [{"step": 2}]]


# --- when a tick is formed ------------------------------------------------------------------------------------------


def timed(**rules: Any) -> tuple[Slots, Clock]:
    clock = Clock()
    return Slots(ONE, 3, TickRules(**rules), clock=clock), clock


def test_a_tick_is_formed_when_all_games_ask() -> None:
    table, _ = timed(max_delay_s=1.0)
    assert table.form() is None and table.seconds() is None
    for name in "ab":
        table.begin(name)
    ask(table, 0, 0, seen(1))
    assert table.form() is None
    ask(table, 1, 0, seen(1))
    assert table.form() is not None


def test_tick_is_formed_a_delay_after_the_first_request() -> None:
    table, clock = timed(max_delay_s=1.0)
    for name in "ab":
        table.begin(name)
    ask(table, 0, 0, seen(1))
    clock.now += 0.75
    assert table.form() is None and table.seconds() == 0.25
    end(table, 1, 0)
    clock.now += 0.25
    tick = table.form()
    assert tick is not None and tick.over.tolist() == [False, True, False]


def test_min_asking_games_are_awaited() -> None:
    table, clock = timed(max_delay_s=9.0, min_asking=2)
    table.begin("a")
    ask(table, 0, 0, seen(1))
    assert table.form() is None
    table.begin("b")
    ask(table, 1, 0, seen(1))
    assert table.form() is not None
    table.answers(actions(table))
    ask(table, 0, 0, seen(1))
    table.complete()
    assert table.form() is not None
    table.answers(actions(table))
    ask(table, 0, 0, seen(1))
    clock.now += 9.0
    assert table.form() is not None


def test_empty_tick_is_formed_after_idle_tick_s_and_at_leg_end() -> None:
    table, clock = timed(idle_tick_s=2.0)
    assert table.form() is None and table.seconds() == 2.0
    clock.now += 2.0
    assert table.form() is not None
    table.answers(actions(table))
    assert table.form() is None
    assert table.form(at_once=True) is not None
    assert (table.counts.ticks, table.counts.empty_ticks) == (2, 2)


def test_counts_keep_requests_apart_from_given_actions() -> None:
    table = Slots(TWO, 1)
    table.begin("a")
    ask(table, 0, 0, seen(1, 1))
    ask(table, 0, 1, seen(2, 1), given=1)
    played(table)
    assert (table.counts.asks, table.counts.given) == (1, 1)
    ask(table, 0, 1, seen(3, 1), given=1)
    assert table.form(at_once=True) is not None
    table.cut()  # the action is shown again in the next leg
    assert (table.counts.asks, table.counts.given) == (1, 1)


def test_a_silent_game_expires_and_one_without_an_answer_times_out() -> None:
    table, clock = timed(idle_s=10.0, answer_s=4.0)
    for name in "abc":
        table.begin(name)
    assert table.overdue() == []
    clock.now += 8.0
    assert table.overdue() == []
    table.pay(0, 0, 0.0)
    ask(table, 1, 0, seen(1))
    clock.now += 2.0
    assert table.overdue() == [(2, "expired")]
    table.lose(2, "expired")
    assert table.seconds() == 0.0, "a tick may be formed of what was told"
    clock.now += 2.0
    assert table.overdue() == [(1, "timeout")]


def test_silence_of_a_game_starts_at_its_answer() -> None:
    table, clock = timed(idle_s=10.0)
    table.begin("a")
    clock.now += 9.0
    ask(table, 0, 0, seen(1))
    assert table.form() is not None
    clock.now += 9.0
    table.answers(actions(table))
    assert table.waits == [9.0]
    clock.now += 9.5
    assert table.overdue() == [] and table.seconds() == 0.5
    clock.now += 0.5
    assert table.overdue() == [(0, "expired")]


def test_time_in_a_pause_does_not_count() -> None:
    table, clock = timed(idle_s=10.0, answer_s=4.0, max_delay_s=1.0)
    for name in "ab":
        table.begin(name)
    ask(table, 0, 0, seen(1))
    clock.now += 0.5
    table.pause(True)
    clock.now += 100.0
    assert table.overdue() == []
    table.pause(True)
    clock.now += 100.0
    table.pause(False)
    assert table.form() is None and table.seconds() == 0.5
    clock.now += 3.5
    assert table.overdue() == [(0, "timeout")]
    clock.now += 6.0
    assert table.overdue() == [(0, "timeout"), (1, "expired")]


def test_closed_loops_have_no_time_limits() -> None:
    clock = Clock()
    table = Slots(ONE, 1, TickRules(idle_s=1.0, answer_s=1.0), no_limits=True, clock=clock)
    table.begin("a")
    clock.now += 100.0
    assert table.overdue() == [] and table.seconds() is None


# --- against a slow model -------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One entity of one game in the model."""

    plays: bool = True
    acted: bool = False  # since the leg began
    under_way: bool = False
    shown: bool = False  # to act in the newest tick
    asks: float | None = None  # the observation that the next tick shows
    given: int | None = None
    void: bool = False
    reward: float = 0.0  # of the next tick
    later: float = 0.0  # of the tick after a given action
    sees: float = 0.0
    length: int = 0
    returned: float = 0.0


@dataclass
class Model:
    """One game in the model."""

    name: str
    training: bool
    rows: dict[int, Row] = field(default_factory=dict)
    lost: str = ""


SLOTS = 2
ANY_SLOT, ANY_ENTITY = st.integers(0, SLOTS - 1), st.integers(0, 1)
REWARDS = st.sampled_from([0.0, 1.0, -2.0, 8.0])
NUMBERS = st.integers(1, 99).map(float)


class TableMachine(RuleBasedStateMachine):
    """All calls of a connection, in any order, against dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.table = Slots(TWO, SLOTS, clock=self.clock)
        self.games: dict[int, Model] = {}  # by slot
        self.ends: dict[tuple[int, int], tuple[float, float, bool, bool]] = {}  # sees, reward, truncated, void
        self.over: dict[int, Model] = {}  # by slot, in the next tick
        self.begun = self.ended = self.lost = 0

    def expect(self, code: str, call: Any, *arguments: Any, **rest: Any) -> bool:
        """Calls the table; returns whether the call is expected to succeed."""
        if not code:
            call(*arguments, **rest)
            return True
        assert code_of(call, *arguments, **rest) == code
        return False

    def refusal(self, slot: int, entity: int) -> str:
        game = self.games.get(slot)
        if game is None:
            return "unknown_game"
        if entity not in game.rows:
            return "unknown_entity"
        return "" if game.rows[entity].plays else "ended"

    @rule(entities=st.sampled_from([None, (0,), (1,), (0, 1)]), training=st.booleans(), after=st.none() | ANY_SLOT)
    def begin(self, entities: Any, training: bool, after: int | None) -> None:
        free = [slot for slot in range(SLOTS) if slot not in self.games]
        name = f"game {self.begun}"
        if not free:
            assert code_of(self.table.begin, name, entities) == "no_slot"
            return
        slot = self.table.begin(name, entities, training=training, after=after)
        assert slot == (after if after in free else free[0])
        self.begun += 1
        self.games[slot] = Model(name, training, {entity: Row() for entity in entities or (0, 1)})

    @rule(
        slot=ANY_SLOT,
        entity=ANY_ENTITY,
        sees=NUMBERS,
        reward=REWARDS,
        given=st.sampled_from([None, None, 0, 2]),
        void=st.booleans(),
    )
    def ask(self, slot: int, entity: int, sees: float, reward: float, given: int | None, void: bool) -> None:
        code = self.refusal(slot, entity)
        row = self.games[slot].rows[entity] if not code else Row()
        if row.asks is not None:
            code = "already_asking" if row.given is None else "not_yet"
        if not self.expect(code, ask, self.table, slot, entity, seen(sees, 1), reward=reward, given=given, void=void):
            return
        self.paid(row, reward)
        row.asks, row.given = sees, given
        row.void |= row.under_way and (void or not self.games[slot].training)

    @rule(slot=ANY_SLOT, entity=ANY_ENTITY, reward=REWARDS)
    def pay(self, slot: int, entity: int, reward: float) -> None:
        if self.expect(self.refusal(slot, entity), self.table.pay, slot, entity, reward):
            self.paid(self.games[slot].rows[entity], reward)

    def paid(self, row: Row, reward: float) -> None:
        row.returned += reward
        if row.given is not None:
            row.later += reward
        elif row.acted:
            row.reward += reward

    @rule(
        slot=ANY_SLOT,
        entity=ANY_ENTITY,
        sees=st.none() | NUMBERS,
        reward=REWARDS,
        truncated=st.booleans(),
        void=st.booleans(),
    )
    def end(self, slot: int, entity: int, sees: float | None, reward: float, truncated: bool, void: bool) -> None:
        code = self.refusal(slot, entity)
        if not code and (
            slot in self.over or (slot, entity) in self.ends or self.games[slot].rows[entity].given is not None
        ):
            code = "not_yet"
            assert not self.table.ready(slot, entity)
        shown = None if sees is None else seen(sees, 1)
        if not self.expect(code, end, self.table, slot, entity, shown, reward=reward, truncated=truncated, void=void):
            return
        row = self.games[slot].rows[entity]
        self.paid(row, reward)
        self.close(slot, entity, sees, truncated, void or (truncated and sees is None and row.asks is None))

    def close(self, slot: int, entity: int, sees: float | None, truncated: bool, void: bool) -> None:
        game = self.games[slot]
        row = game.rows[entity]
        last = next(value for value in (sees, row.asks, row.sees) if value is not None)
        is_void = row.void or (row.under_way and (void or not game.training))
        self.ends[slot, entity] = (last, row.reward, truncated, is_void)
        row.plays, row.asks, row.given, row.later = False, None, None, 0.0
        if not any(other.plays for other in game.rows.values()):
            self.over[slot] = self.games.pop(slot)
            if game.lost:
                self.lost += 1
            else:
                self.ended += 1

    @rule(slot=ANY_SLOT)
    def lose(self, slot: int) -> None:
        if slot not in self.games:
            assert code_of(self.table.lose, slot, "lost") == "unknown_game"
            return
        self.table.lose(slot, "lost")
        game = self.games[slot]
        game.lost = "lost"
        if slot in self.over:  # nothing was shown of it
            del self.games[slot]
            self.lost += 1
            return
        for entity, row in game.rows.items():
            if row.plays:
                self.close(slot, entity, None, truncated=True, void=row.asks is None)

    @rule()
    def tick(self) -> None:
        self.form()
        answers = self.table.answers(actions(self.table, 2))
        asked = []
        for slot, game in sorted(self.games.items()):
            for entity, row in sorted(game.rows.items()):
                if row.shown:
                    row.length += 1
                    row.under_way = True
                    if row.given is None:
                        asked.append((slot, entity))
                row.shown, row.given = False, None if row.asks is None else row.given
        assert list(zip(answers.slots.tolist(), answers.entity.tolist(), strict=True)) == asked

    @rule()
    def leg(self) -> None:
        """A leg ends after a tick; the next one begins."""
        self.form()
        goes_on, void = self.table.cut()
        for slot in range(SLOTS):
            for entity in range(2):
                row = self.games[slot].rows.get(entity) if slot in self.games else None
                assert goes_on[slot, entity] == (row is not None and row.plays)
                assert void[slot, entity] == (row is not None and row.plays and row.under_way)
                if row is None or not row.plays:
                    continue
                if row.shown:
                    row.asks, row.shown = row.sees, False
                    row.later, row.reward = row.reward, 0.0
                row.acted = row.under_way = False

    def form(self) -> None:
        tick = self.table.form(at_once=True)
        assert tick is not None
        step, begun, external = tick.step, tick.begun, tick.step.frame.external
        assert external is not None
        assert tick.over.tolist() == [slot in self.over for slot in range(SLOTS)]
        for slot in range(SLOTS):
            for entity in range(2):
                self.check_row(tick, slot, entity)
        finished = {game.slot: game for game in tick.finished}
        assert finished.keys() == self.over.keys()
        for slot, game in self.over.items():
            found = finished[slot]
            assert (found.name, found.lost, found.training) == (game.name, game.lost, game.training)
            for entity in range(2):
                row = game.rows.get(entity, Row())
                assert (found.lengths[entity], found.returns[entity]) == (row.length, row.returned)
        self.over, self.ends = {}, {}
        assert step.frame.active.tolist() == begun.active.tolist()

    def check_row(self, tick: Tick, slot: int, entity: int) -> None:
        """What the tick shows of one row; then the row is as after the tick."""
        step, begun, external = tick.step, tick.begun, tick.step.frame.external
        assert external is not None
        at = (slot, entity)
        row = self.games[slot].rows.get(entity) if slot in self.games else None
        absent = slot in self.over and entity not in self.over[slot].rows
        assert external.absent[at] == absent
        if at in self.ends:
            sees, reward, truncated, void = self.ends[at]
            assert (step.terminated[at], step.truncated[at]) == (not truncated, truncated)
            assert step.rewards[at] == reward and external.void[at] == void
            assert step.frame.observations[entity][slot, 0] == sees
        else:
            assert (step.terminated[at], step.truncated[at]) == (absent, False)
            assert step.rewards[at] == (row.reward if row is not None else 0.0)
            assert external.void[at] == (row is not None and row.void)
        if row is None:
            assert not begun.active[at] and not external.given[at]
            assert begun.observations[entity][slot, 0] == 0.0
            return
        assert begun.active[at] == (row.asks is not None)
        assert external.given[at] == (row.asks is not None and row.given is not None)
        if row.asks is not None:
            row.sees, row.shown, row.acted, row.under_way = row.asks, True, True, False
            if row.given is not None:
                assert external.given_actions[entity][slot] == row.given
        if row.plays:
            assert begun.observations[entity][slot, 0] == row.sees
        row.reward, row.later = row.later, 0.0
        row.asks, row.void = None, False

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.table.counts
        assert (counts.begun, counts.ended, counts.lost) == (self.begun, self.ended, self.lost)
        assert counts.lost_by == ({"lost": self.lost} if self.lost else {})
        assert counts.begun == counts.ended + counts.lost + self.table.running
        assert self.table.free == SLOTS - len(self.games)


TableMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
test_any_order_of_calls = pytest.mark.slow(TableMachine.TestCase)


# The queue of requests of external games: requests of any thread, told to the table in order


ZERO = np.zeros(1, np.float32)
INTERFACE = Interface(("hero",), (Box(-1.0, 1.0, (1,), np.float32),), (Discrete(2),), (0,))


def accept(error: ExternalError | None) -> None:
    assert error is None, error


def test_a_freed_slot_goes_to_the_game_that_has_waited_longest() -> None:
    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 1)
    first, waiting, late = (ConnectedGame(name, (0,)) for name in ("first", "waiting", "late"))
    requests.begin(first, accept)
    requests.begin(waiting, accept)
    for _ in range(20):
        requests.poll(table)
    assert (first.slot, waiting.slot) == (0, None)
    requests.end(first, None, End(ZERO), accept)
    requests.begin(late, accept)
    requests.poll(table)
    assert (waiting.slot, late.slot) == (0, None)
    assert table.counts.refused_by == {}, "waiting is no refusal"


def test_requests_from_one_that_fails_on_are_refused_at_the_end() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no array")

    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 2)
    game, other, codes = ConnectedGame("game", (0,)), ConnectedGame("other", (0,)), list[str | None]()
    requests.begin(game, accept)
    requests.ask(game, {0: Ask(Broken())}, lambda error: codes.append(error and error.code))
    requests.begin(other, lambda error: codes.append(error and error.code))
    with pytest.raises(RuntimeError, match="no array"):
        requests.poll(table)
    requests.close("the game has failed")
    assert codes == ["over", "over"], "their threads would wait for ever"


def test_info_of_a_reward_arrives_with_the_next_observation() -> None:
    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 1)
    game, codes = ConnectedGame("game", (0,)), []
    requests.begin(game, accept)
    requests.pay(game, 0, 1.0, accept, info={"speed": 1, "lives": 3})
    requests.pay(game, 0, 1.0, lambda error: codes.append(error and error.code), info=[1])  # type: ignore[arg-type]
    requests.ask(game, {0: Ask(ZERO, info={"speed": 2})}, accept)
    requests.poll(table)
    tick = table.form(at_once=True)
    assert tick is not None and tick.begun.infos == [[{"speed": 2, "lives": 3}]] and codes == ["bad_body"]
    table.answers([np.zeros(1, np.int64)])
    requests.pay(game, 0, 1.0, accept, info={"speed": 5})
    requests.end(game, None, End(), accept)
    requests.poll(table)
    tick = table.form(at_once=True)
    assert tick is not None and tick.step.frame.infos == [[{"speed": 5}]]


def test_requests_taken_together_equal_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of a poll, of which the table takes rows at once where it can, against one poll for each."""
    clock = Clock()
    random = np.random.default_rng(7)
    queues, tables = [RequestQueue(ONE) for _ in range(2)], [Slots(ONE, 8, clock=clock) for _ in range(2)]
    games = [[ConnectedGame(name, (0,), training=name != "c") for name in "abcdefgh"] for _ in range(2)]
    outcomes: list[list[tuple[str, str | None]]] = [[], []]
    ticks: list[list[str]] = [[], []]

    def settled(side: int, name: str) -> Any:
        return lambda error: outcomes[side].append((name, error and str(error)))

    def request(side: int, kind: str, number: int, ask: Ask) -> None:
        queue, game = queues[side], games[side][number]
        if kind == "ask":
            queue.ask(game, {0: ask}, settled(side, game.name), {0: lambda *_: None})
        elif kind == "pay":
            queue.pay(game, 0, ask.reward, settled(side, game.name))
        else:
            queue.end(game, None, End(ask.observation, ask.reward), settled(side, game.name))

    ask_rows, together = tables[0].ask_rows, []

    def noted(slots: Any, *rest: Any, **more: Any) -> None:
        ask_rows(slots, *rest, **more)
        together.append(len(slots))

    monkeypatch.setattr(tables[0], "ask_rows", noted)
    for side in range(2):
        for game in games[side]:
            queues[side].begin(game, accept)
        queues[side].poll(tables[side])
    for _ in range(60):
        for number in random.permutation(8).tolist():
            kind = str(random.choice(["ask", "pay", "end"], p=[0.93, 0.06, 0.01]))
            seen = random.normal(size=random.choice([2, 3], p=[0.97, 0.03]))
            seen = seen.astype(random.choice([np.float32, np.float64], p=[0.9, 0.1]))
            seen[0] = random.choice([seen[0], np.nan], p=[0.97, 0.03])
            mask = None if random.random() < 0.1 else (random.random(3) < 0.8).astype(np.int8)
            given = 1 if random.random() < 0.03 else None
            ask = Ask(seen, float(random.normal()), mask, given, void=random.random() < 0.03)
            for side in range(2):
                request(side, kind, number, ask)
                if side:
                    queues[side].poll(tables[side])
        queues[0].poll(tables[0])
        for side, table in enumerate(tables):
            ticks[side].append(str(table.form(at_once=True)))
            queues[side].answer(table.answers([np.zeros(8, np.int64)]))
    assert sum(together) > 60 and max(together) > 3 and len({error for _, error in outcomes[0]}) > 5
    assert outcomes[0] == outcomes[1]
    assert ticks[0] == ticks[1] and tables[0].counts == tables[1].counts
