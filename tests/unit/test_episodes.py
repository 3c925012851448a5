"""The episode records of a match against plain sums over its ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config.fields import OutcomeRule
from arena.config.matches import Match
from arena.config.schema import Env
from arena.errors import GameError
from arena.game.api import Frame, Info, Step
from arena.plan.plan import MatchPlan, SeatPlan
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.episodes import EpisodeTracker, Tracked

NOTHING: list[list[Info]] | None = None


def account(
    seats: Sequence[tuple[int, ...]] = ((0,), (1,)), lanes: int = 1, rule: OutcomeRule | None = "info"
) -> EpisodeTracker:
    plans = tuple(SeatPlan(index, f"policy {index}", entities) for index, entities in enumerate(seats))
    described = Match(env="game", seats=tuple(plan.policy for plan in plans), lanes=lanes, sides=())
    match = MatchPlan(3, 0, 0, described, Env(make="game"), plans, path="matches[0]")
    return EpisodeTracker(Tracked(match, seats, range(lanes), rule=rule))


def step(rewards: Any, terminated: Any, truncated: Any = None, infos: Any = NOTHING) -> Step:
    flags = np.array(terminated, np.bool_)
    cut = np.zeros_like(flags) if truncated is None else np.array(truncated, np.bool_)
    frame = Frame([], np.ones(flags.shape, np.bool_), [None] * flags.shape[1], infos)
    return Step(frame, np.array(rewards, np.float64), flags, cut)


def finish_one(episodes: EpisodeTracker, lane: int, tick: int) -> EpisodeRecord:
    (record,) = episodes.finish(np.arange(len(episodes.episodes)) == lane, tick)
    return record


def test_resumed_lanes_keep_their_numbers_and_count_on() -> None:
    described = Match(env="g", seats=("p",), lanes=4)
    match = MatchPlan(0, 0, 0, described, Env(make="g"), (SeatPlan(0, "p", (0,)),))
    episodes = EpisodeTracker(Tracked(match, [(0,)], range(2, 4), before=[7, 0]))
    for _ in range(2):
        episodes.tick(step([[1], [2]], [[1], [1]]))
        records = episodes.finish(np.ones(2, np.bool_), 1)
    assert [(record.lane, record.episode) for record in records] == [(2, 8), (3, 1)]


def outcomes(episodes: EpisodeTracker) -> list[str | None]:
    return [seat.outcome for seat in finish_one(episodes, 0, 1).seats]


def test_another_outcome_than_those_of_the_rule_info_names_its_entity_and_lane() -> None:
    episodes = account(lanes=2)
    with pytest.raises(GameError, match="the game gave '1' in lane 1 the info 'outcome' 'won'; did you mean 'win'"):
        episodes.tick(step([[0, 0]] * 2, [[0, 0], [1, 1]], infos=[[{}, {}], [{"outcome": "win"}, {"outcome": "won"}]]))


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(0, 2**32 - 1), st.integers(5, 40))
def test_lengths_and_returns_are_the_sums_over_the_ticks_of_the_episode(lanes: int, seed: int, ticks: int) -> None:
    rng = np.random.default_rng(seed)
    seats = ((2, 0), (1,))
    episodes = account(seats, lanes)
    played: list[list[Any]] = [[] for _ in range(lanes)]  # per lane the rewards [E] of the episode so far
    done, finished = np.zeros((lanes, 3), np.bool_), [0] * lanes
    for tick in range(1, ticks + 1):
        ends = (rng.random((lanes, 3)) < 0.3) & ~done
        done |= ends
        cut = rng.random((lanes, 3)) < 0.5
        rewards = rng.standard_normal((lanes, 3))
        over, _ = episodes.tick(step(rewards, ends & ~cut, ends & cut))
        assert over.tolist() == done.all(axis=1).tolist()
        for lane in range(lanes):
            played[lane].append(rewards[lane])
            if over[lane]:
                record = finish_one(episodes, lane, tick)
                sums = np.sum(played[lane], axis=0)
                assert (record.match, record.env, record.lane) == (3, "game", lane)
                assert (record.episode, record.tick, record.length) == (finished[lane], tick, len(played[lane]))
                np.testing.assert_allclose(
                    [seat.return_ or 0.0 for seat in record.seats], [(sums[0] + sums[2]) / 2, sums[1]]
                )
                played[lane], done[lane] = [], False
                finished[lane] += 1
    assert episodes.episodes.tolist() == finished


def test_idle_ticks_count_where_the_seat_should_have_acted() -> None:
    episodes = account(((0, 1), (2,)), lanes=3)
    episodes.add_idle(0, np.array([[1, 0], [0, 0], [1, 1]], np.bool_))  # of the seat's two entities
    episodes.add_idle(0, np.array([[1, 1], [0, 0], [0, 0]], np.bool_))
    episodes.add_idle(1, np.array([[1], [0], [0]], np.bool_))
    episodes.tick(step(np.zeros((3, 3)), np.ones((3, 3))))
    idle = [[seat.idle_ticks for seat in finish_one(episodes, lane, 2).seats] for lane in range(3)]
    assert idle == [[2, 1], [0, 0], [1, 0]]


def test_outcome_is_read_on_the_tick_of_the_entitys_end() -> None:
    episodes = account()
    episodes.tick(step([[0, 0]], [[0, 0]], infos=[[{"outcome": "loss"}, {"outcome": "loss"}]]))  # not yet
    episodes.tick(step([[0, 0]], [[1, 0]], infos=[[{"outcome": "win"}, {}]]))
    episodes.tick(step([[0, 0]], [[0, 1]], infos=[[{"outcome": "draw"}, {"outcome": "loss"}]]))  # too late
    assert outcomes(episodes) == ["win", "loss"]


def test_seat_takes_the_first_outcome_of_its_entities() -> None:
    episodes = account(((0, 1), (2,)))
    infos = [[{}, {"outcome": "win"}, {"outcome": "loss"}]]
    episodes.tick(step([[0, 0, 0]], [[1, 1, 1]], infos=infos))
    assert outcomes(episodes) == ["win", "loss"]


def test_return_of_a_seat_is_bit_equal_for_any_number_of_ends() -> None:
    lanes, entities = 5, 19
    rewards = np.random.default_rng(1).standard_normal((lanes, entities)) * 10.0 ** np.arange(entities)
    together, apart = (account([tuple(range(entities))], lanes) for _ in range(2))
    all_rows = np.ones((lanes, entities), np.bool_)
    for episodes in (together, apart):
        episodes.tick(step(rewards, all_rows))
    at_once = [record.seats[0].return_ for record in together.finish(np.ones(lanes, np.bool_), 1)]
    assert at_once == [finish_one(apart, lane, 1).seats[0].return_ for lane in range(lanes)]
    assert at_once == [float(row.mean()) for row in rewards]


# The end of a leg


def cut_tick(episodes: EpisodeTracker, last: Step) -> tuple[Step, list[EpisodeRecord]]:
    """The messages to the seats in a leg's last tick, and its records."""
    told = episodes.cut(last)
    over, ends = episodes.tick(told)
    assert ends
    assert over.all(), "no episode goes on into the next leg"
    return told, episodes.finish(over, 9)


def test_lanes_that_end_by_themselves_on_the_last_tick_are_not_cut() -> None:
    episodes = account(lanes=3, rule="zero_sum")
    ends = [[1, 1], [0, 0], [1, 0]]
    told, records = cut_tick(episodes, step([[1, -1]] * 3, ends))
    assert told.terminated.tolist() == np.array(ends, bool).tolist()
    assert told.truncated.tolist() == [[False, False], [True, True], [False, True]]
    assert [record.cut for record in records] == [False, True, True]
    assert [record.seats[0].outcome for record in records] == ["win", None, None]


def test_truncation_by_the_game_is_not_a_cut() -> None:
    episodes = account(rule="zero_sum")
    told, (record,) = cut_tick(episodes, step([[1, -1]], [[0, 0]], [[1, 1]]))
    assert told.truncated.all()
    assert (record.cut, record.truncated, record.seats[0].outcome) == (False, True, "win")


@pytest.mark.parametrize(
    ("stated", "contradicts"),
    [("ww", True), ("ll", True), ("w-", True), ("-l", True), ("wd", True), ("wl", False), ("dd", False), ("--", False)],
)
def test_stated_outcomes_that_do_not_fit_are_marked(stated: str, contradicts: bool) -> None:
    names = {"w": "win", "l": "loss", "d": "draw"}
    episodes = account()
    episodes.tick(step([[0, 0]], [[1, 1]], infos=[[{"outcome": names[one]} if one in names else {} for one in stated]]))
    record = finish_one(episodes, 0, 1)
    assert [seat.outcome for seat in record.seats] == [names.get(one) for one in stated], "as stated"
    assert record.contradicts is contradicts


# Metrics


def test_seat_metrics_are_the_mean_of_its_entities_with_metrics() -> None:
    episodes = account(seats=((0, 1, 2), (3,)))
    first = [[{"metrics": {"hits": 2, "shots": np.int64(5)}}, {"metrics": {"hits": 9}}, {}, {}]]
    episodes.tick(step([[0, 0, 0, 0]], [[1, 0, 0, 0]], infos=first))
    last = [[{"metrics": {"hits": 7}}, {"metrics": {"hits": np.float32(4)}}, {"metrics": {"hits": np.inf}}, {}]]
    episodes.tick(step([[0, 0, 0, 0]], [[0, 1, 1, 1]], infos=last))
    record = finish_one(episodes, 0, 2)
    assert [seat.metrics for seat in record.seats] == [{"hits": 3.0, "shots": 5.0}, msgspec.UNSET]
    episodes.tick(step([[0, 0, 0, 0]], [[1, 1, 1, 1]], infos=[[{}, {}, {}, {}]]))
    assert [seat.metrics for seat in finish_one(episodes, 0, 3).seats] == [msgspec.UNSET] * 2, "of the episode before"


@pytest.mark.parametrize("said", ["text", 3, {"a b": 1}, {"1st": 1}, {"x": "1"}, {"x": [1]}, {3: 1}, {}, {"x": np.nan}])
def test_invalid_metrics_are_ignored(said: Any) -> None:
    episodes = account()
    episodes.tick(step([[0, 0]], [[1, 1]], infos=[[{"metrics": said}, {"metrics": {"x": True}}]]))
    assert [seat.metrics for seat in finish_one(episodes, 0, 1).seats] == [msgspec.UNSET, {"x": 1.0}]


def test_episode_that_was_cut_has_no_metrics() -> None:
    episodes = account()
    episodes.tick(episodes.cut(step([[0, 0]], [[1, 0]], infos=[[{"metrics": {"x": 1}}, {}]])))
    record = finish_one(episodes, 0, 1)
    assert record.cut and [seat.metrics for seat in record.seats] == [msgspec.UNSET] * 2


def test_seat_whose_entities_never_act_has_no_return_and_no_outcome() -> None:
    episodes = account(((0,), (1, 2), (3,)), lanes=2)
    everywhere = np.ones(2, np.bool_)

    def frame(*active: Sequence[int]) -> Frame:
        return Frame([], np.array(active, np.bool_), [None] * 4)

    def tick(rewards: Any, active: Any, over: int = 0) -> None:
        flags = np.full((2, 4), over, np.bool_)
        episodes.tick(Step(frame(*active), np.array(rewards, np.float64), flags, flags & False))

    episodes.begin(frame([1, 0, 0, 0], [1, 0, 0, 0]), everywhere)
    tick([[1, 0, 0, 0], [2, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 1, 0]])
    tick([[1, 0, 0, 0], [0, 0, 0, -2]], [[0, 0, 0, 0], [0, 0, 0, 0]], over=1)
    first, second = episodes.finish(everywhere, 2)
    assert [seat.return_ for seat in first.seats] == [2.0, None, None]
    assert [seat.outcome for seat in first.seats] == [None] * 3
    assert [seat.return_ for seat in second.seats] == [2, 0, -2], "the second has acted, the third has a reward"
    assert '"return":null,"outcome":null' in msgspec.json.encode(first).decode()
    episodes.begin(frame([1, 1, 1, 1], [1, 1, 1, 1]), everywhere)
    tick([[0] * 4] * 2, [[0] * 4] * 2, over=1)
    assert [seat.return_ for seat in episodes.finish(everywhere, 3)[0].seats] == [0, 0, 0]
