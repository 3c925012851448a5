"""Results per iteration: the same lines in any order of the messages of matches and policies."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.figures import Spread, repeated
from arena.records.iterations import Iterations, Steps, Totals
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord

TICKS, LEG = 40, 20


def episode(tick: int, match: int = 0, value: float = 1.0, **changes: Any) -> EpisodeRecord:
    seats = (SeatRecord("blue", (0, 1), value, "win"), SeatRecord("red", (2,), -value, "loss"))
    return EpisodeRecord(0, match, "game", 0, 0, tick, 3, True, False, seats, **changes)


def update(tick: int, number: int) -> UpdateRecord:
    return UpdateRecord("blue", number, tick, 2 * tick, 0.0, {"loss": 1 / number})


def machine(every: int, smoothing: int) -> Iterations:
    found = Iterations(every=every, smoothing=smoothing, policies=["blue", "red"], totals=Totals())
    found.steps_at = lambda tick: Steps(2 * tick, 6 * tick)
    return found


def leg_by_leg(every: int, smoothing: int, episodes: list[EpisodeRecord], updates: list[UpdateRecord]) -> list[Any]:
    """The results, of which each leg's are taken when it is over."""
    found, lines = machine(every, smoothing), []
    for end in range(LEG, TICKS + 1, LEG):
        found.begin_leg(end - LEG, end, ["blue"])
        for record in updates:
            if end - LEG < record.ticks <= end:
                found.update(record)
        found.episodes([row for row in episodes if end - LEG < row.tick <= end])
        lines += [*found.take_until(end), found.take(end)]
    return lines


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, TICKS), st.integers(0, 1), st.floats(-9, 9)), max_size=30),
    st.lists(st.integers(1, TICKS), max_size=8),
    st.sampled_from([1, 2, 5, 10, 20]),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_results_do_not_depend_on_the_order_of_messages(
    rows: list[tuple[int, int, float]], logged: list[int], every: int, smoothing: int, seed: int
) -> None:
    episodes = [episode(*row) for row in sorted(rows)]
    updates = [update(tick, number) for number, tick in enumerate(sorted(logged), start=1)]
    found, lines, chance = machine(every, smoothing), [], random.Random(seed)
    for end in range(LEG, TICKS + 1, LEG):
        found.begin_leg(end - LEG, end, ["blue"])
        reached, learned, written = {0: end - LEG, 1: end - LEG}, end - LEG, end - LEG
        while min(*reached.values(), learned) < end:
            who = chance.randrange(3)
            if who == 2 and learned < end:
                learned += 1
                for record in updates:
                    if record.ticks == learned:
                        found.update(record)
            elif who < 2 and reached[who] < end:
                reached[who] = min(end, reached[who] + chance.randint(1, 7))
                ripe = [row for row in episodes if written < row.tick <= min(reached.values())]
                written = max(written, min(reached.values()))
                found.episodes(ripe)
                sent = max(
                    (record.update for record in updates if end - LEG < record.ticks < reached[who] - 1), default=0
                )
                found.reach(min(reached.values()), {"blue": sent})
            early = list(found.known())
            assert all(line["ticks"] < end for line in early), "a boundary's result waits for the boundary"
            assert all(line["ticks"] <= min(reached.values()) for line in early)
            lines += early
        lines += [*found.take_until(end), found.take(end)]
    assert repr(lines) == repr(leg_by_leg(every, smoothing, episodes, updates))


def test_result_of_the_tick_that_is_reached_waits() -> None:
    found = machine(5, 1)
    found.begin_leg(0, LEG, [])
    found.reach(12)
    assert [line["ticks"] for line in found.known()] == [5, 10]
    found.reach(15)
    assert not list(found.known()), "the leg may have been cut short at tick 15"


@pytest.mark.parametrize(("logged", "results"), [({}, [5]), ({"blue": 1}, []), ({"blue": 2}, [])])
def test_a_result_waits_for_the_updates_that_were_sent(logged: dict[str, int], results: list[int]) -> None:
    found = machine(5, 1)
    found.begin_leg(0, LEG, ["blue"])
    found.reach(7, logged)
    assert [line["ticks"] for line in found.known()] == results, "a policy that logs nothing holds up no result"
    found.update(update(4, 1))
    assert [line["ticks"] for line in found.known()] == ([5] if logged == {"blue": 1} else [])
    found.leave("blue")
    assert bool(list(found.known())) == (logged == {"blue": 2})


def test_nan_is_in_no_metric_and_an_overflowing_mean_is_infinite() -> None:
    found = machine(10, 5)
    found.episodes([episode(3, value=float("nan")), episode(4, value=1e308), episode(5, value=1e308)])
    line = found.take(10)
    assert line["policy_reward_min"]["blue"] == 1e308
    assert line["policy_reward_mean"]["blue"] == float("inf"), "null in the file"


@pytest.mark.parametrize(("smoothing", "mean"), [(1, 4.5), (2, 4.5), (3, (3 + 4 + 5) / 3), (99, 3.0)])
def test_means_are_of_all_new_episodes_or_of_enough_earlier_ones(smoothing: int, mean: float) -> None:
    found = machine(10, smoothing)
    found.episodes([episode(tick, value=float(tick)) for tick in (1, 2, 3)])
    found.take(10)
    found.episodes([episode(tick, value=float(tick - 10)) for tick in (14, 15)])
    assert found.take(20)["policy_reward_mean"]["blue"] == mean


@pytest.mark.parametrize("scale", [1.0, 1e300])
@settings(max_examples=25)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=20), st.integers(1, 300))
def test_spread_of_many_values_is_exact(scale: float, values: list[float], times: int) -> None:
    spread, numbers = Spread(), [scale * value for value in values for _ in range(times)]
    for value in numbers:
        spread.add(value)
    ends = {"_mean": float(sum(map(Fraction, numbers))) / len(numbers), "_min": min(numbers), "_max": max(numbers)}
    assert spread.ends("") == ends


# Identical games are detected, and games that are equal by chance are not


def line(
    *players: str, length: int = 5, gain: float = 1.0, truncated: bool = False, cut: bool = False, began: int = 0
) -> EpisodeRecord:
    seats = tuple(SeatRecord(name, (place,), gain * (-1) ** place, None) for place, name in enumerate(players))
    return EpisodeRecord(0, 0, "game", 0, 0, length, length, not truncated, truncated, seats, cut, began=began)


SAME = [line("a", "b")] * 8 + [line("b", "a", gain=-1.0, length=6)] * 8


def test_identical_games_are_detected() -> None:
    assert repeated(SAME) == [("a", "b")]
    assert repeated([*SAME, line("a", "b", length=7)]) == []
    assert repeated(SAME[4:12]) == [], "too few to tell"
    assert repeated([*SAME, *[line("a", "c", length=n) for n in range(9)]]) == [("a", "b")]


def test_few_games_of_each_policy_suffice_together() -> None:
    few = [line("a", "a")] * 4 + [line("a", "b")] * 4 + [line("b", "b")] * 4
    assert repeated(few) == [("a",), ("a", "b"), ("b",)]
    assert repeated([*few, line("b", "b", length=9)]) == []


def test_random_policy_is_not_called_repetitive() -> None:
    assert repeated(SAME, random={"b"}) == []


@pytest.mark.parametrize("truncated", [False, True])
def test_games_that_began_in_different_ways_are_not_repetitive(truncated: bool) -> None:
    assert repeated([line("a", truncated=truncated, began=n) for n in range(20)]) == []
    assert repeated([line("a", truncated=truncated)] * 20) == [("a",)]


def test_few_repetitions_suffice_if_asked_for() -> None:
    assert repeated([line("a")] * 2, least=1) == [("a",)]
    assert repeated([line("a", "b"), line("b", "a")], least=1) == [], "one game each"


def test_cut_games_are_not_compared() -> None:
    assert repeated([*SAME, line("a", "b", length=2, cut=True)]) == [("a", "b")]
