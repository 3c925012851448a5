"""A plan puts every role on exactly one rank, and keeps what belongs to a match with that match."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.config import Config, parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind, SeatPlan
from arena.plan.seats import choose_face, resolve_entities

ENV = {"duel": {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 9}, "idle_action": 0}}


def config_of(*matches: dict[str, Any], policies: str = "blue red", **keys: Any) -> Config:
    data = {
        "ticks": 100,
        "envs": ENV,
        "policies": {name: {"algorithm": "random"} for name in policies.split()},
        "matches": list(matches),
        **keys,
    }
    return parse_config(data, source="test.yaml")


def match_of(*seats: Any, **keys: Any) -> dict[str, Any]:
    return {"env": "duel", "seats": list(seats), **keys}


names = st.sampled_from(["blue", "red"])
descriptions = st.builds(
    match_of,
    names,
    names,
    copies=st.integers(1, 4),
    lanes=st.integers(1, 3),
    env_kwargs=st.dictionaries(st.sampled_from(["max_steps", "marker"]), st.integers(0, 9), max_size=2),
)
configurations = st.builds(
    lambda matches, scale: config_of(*matches, scale=scale),
    st.lists(descriptions, min_size=1, max_size=4),
    st.booleans(),
)


def test_two_against_two_is_six_processes() -> None:
    plan = make_plan(config_of(match_of("blue", "blue", "red", "red")))
    assert plan.processes == 6
    assert list(plan.ranks) == [
        (Role(RoleKind.ROOT),),
        (Role(RoleKind.ENVIRONMENT, 0),),
        *((Role(RoleKind.WORKER, 0, seat),) for seat in range(4)),
    ]
    assert plan.policies["red"].workers == ((0, 2), (0, 3))


def test_the_four_policy_round_robin_in_five_copies_is_151_processes() -> None:
    names = ["red", "blue", "green", "yellow"]
    robin = {"round_robin": {"env": "duel", "policies": names, "team_size": 2, "copies": 5}}
    plan = make_plan(config_of(robin, policies=" ".join(names)))
    assert plan.processes == 151
    assert len(plan.matches) == 30
    sides = Counter((match.seats[0].policy, match.seats[2].policy) for match in plan.matches)
    assert sides == dict.fromkeys(combinations(names, 2), 5)


@pytest.mark.slow
@given(configurations, st.one_of(st.none(), st.integers(1, 90)))
def test_every_role_is_hosted_exactly_once(config: Config, ranks: int | None) -> None:
    plan = make_plan(config, ranks=ranks)
    hosted = [role for roles in plan.ranks for role in roles]
    wanted = [Role(RoleKind.ROOT)]
    for match in plan.matches:
        wanted.append(Role(RoleKind.ENVIRONMENT, match.match))
        wanted += [Role(RoleKind.WORKER, match.match, seat.index) for seat in match.seats]
    assert list(plan.roles()) == wanted
    assert sorted(hosted, key=wanted.index) == wanted
    assert [match.match for match in plan.matches] == list(range(len(plan.matches)))
    assert plan.processes == (ranks or len(wanted))
    assert all(role in plan.ranks[plan.rank_of(role)] for role in wanted)
    workers = sorted(worker for policy in plan.policies.values() for worker in policy.workers)
    assert workers == sorted((role.match, role.seat) for role in plan.roles(RoleKind.WORKER))


@pytest.mark.slow
@given(configurations, st.integers(2, 90))
def test_env_kwargs_stay_with_their_own_match_under_copies_and_scale(config: Config, ranks: int) -> None:
    plan = make_plan(config, ranks=ranks)
    for match in plan.matches:
        _, description = config.entries()[match.entry]
        assert match.game.kwargs == {"team_size": 2, "max_steps": 9, **description.env_kwargs}
        assert match.lanes == description.lanes
        assert match.path == f"matches[{match.entry}]"
    copies = Counter((match.entry, match.copy) for match in plan.matches)
    assert set(copies.values()) == {1}  # numbered on, never twice


@pytest.mark.slow
@given(configurations, st.integers(2, 90))
def test_scale_fills_the_ranks_with_whole_repetitions(config: Config, ranks: int) -> None:
    once = make_plan(config).processes - 1
    repetitions = max(1, (ranks - 1) // once) if config.scale else 1
    plan = make_plan(config, ranks=ranks)
    assert len(plan.matches) == repetitions * sum(entry.copies for _, entry in config.entries())
    assert len(plan.idle_ranks) == max(0, ranks - 1 - repetitions * once)


def test_scale_repeats_all_matches_in_turn_and_numbers_their_copies_on() -> None:
    config = config_of(match_of("blue", "red", copies=2), match_of("red"), scale=True)
    plan = make_plan(config, ranks=1 + 2 * 8)
    assert [(match.entry, match.copy) for match in plan.matches] == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1)]


def test_nested_seats_drive_several_entities_and_entities_remap_them() -> None:
    plain = make_plan(config_of(match_of(["blue", "blue"], "red", "red")))
    assert [seat.entities for seat in plain.matches[0].seats] == [(0, 1), (2,), (3,)]
    mapped = make_plan(config_of(match_of(["blue", "blue"], "red", entities=["b_1", 0, 2])))
    assert [seat.entities for seat in mapped.matches[0].seats] == [("b_1", 0), (2,)]


def test_a_match_knows_its_sides() -> None:
    def sides(*seats: Any, **keys: Any) -> Any:
        return make_plan(config_of(match_of(*seats, **keys))).matches[0].sides

    assert sides("blue", "red") == ((0,), (1,))
    assert sides("blue", "red", "blue", "red") == ((0, 2), (1, 3))
    assert sides("blue", "blue", "blue") == ()
    assert sides("blue", "red", "blue", "red", sides=[[0, 1], [2, 3]]) == ((0, 1), (2, 3))


@given(st.permutations(range(5)), st.lists(st.booleans(), min_size=5, max_size=5), st.integers(1, 4))
def test_any_cover_by_index_or_name_resolves_to_the_indices(order: list[int], by_name: list[bool], cut: int) -> None:
    entities = tuple(f"e{index}" for index in range(5))
    asked = [entities[index] if named else index for index, named in zip(order, by_name, strict=True)]
    seats = (SeatPlan(0, "a", tuple(asked[:cut])), SeatPlan(1, "b", tuple(asked[cut:])))
    assert resolve_entities(seats, entities) == (tuple(order[:cut]), tuple(order[cut:]))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((0,), "no seat plays blue_1"),
        ((0, 1, 0), "more than one seat plays blue_0"),
        ((0, "blue_0"), "no seat plays blue_1; more than one seat plays blue_0"),
        ((0, 1, 2), "there is no entity 2"),
        ((0, "blu_1"), "there is no entity 'blu_1'; did you mean 'blue_1'?"),
        ((0, 1, 2, "blu_1"), "there are no entities 2, 'blu_1'; did you mean 'blue_1'?"),
    ],
)
def test_seats_that_do_not_cover_the_entities_once_are_refused(asked: tuple[Any, ...], message: str) -> None:
    seats = [SeatPlan(index, "blue", (entity,)) for index, entity in enumerate(asked)]
    with pytest.raises(ConfigError) as caught:
        resolve_entities(seats, ("blue_0", "blue_1"))
    assert message in str(caught.value)
    assert f"2 entities (0 blue_0, 1 blue_1) exactly once; they name {len(asked)}" in str(caught.value)


@pytest.mark.parametrize(("entities", "seats"), [(4, 162), (162, 4)])
def test_many_wrong_seats_have_a_short_message(entities: int, seats: int) -> None:
    seated = [SeatPlan(index, "blue", (index,)) for index in range(seats)]
    with pytest.raises(ConfigError, match=f"they name {seats}") as caught:
        resolve_entities(seated, tuple(f"walker_{index}" for index in range(entities)))
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("faces", "lanes", "entities", "uniform", "face"),
    [
        ("gym", 1, 1, True, "gym"),
        ("vector", 8, 3, True, "vector"),
        ("parallel", 1, 3, False, "parallel"),
        (("vector", "parallel"), 1, 2, False, "parallel"),
        (("gym", "vector"), 2, 1, True, "vector"),
    ],
)
def test_the_first_face_that_fits_is_taken(
    faces: str | tuple[str, ...], lanes: int, entities: int, uniform: bool, face: str
) -> None:
    assert choose_face(faces, lanes=lanes, entities=entities, uniform_spaces=uniform) == face


@pytest.mark.parametrize(
    ("faces", "lanes", "entities", "uniform", "message"),
    [
        ("gym", 4, 1, True, "needs one lane, the match has 4: set `lanes: 1`"),
        ("gym", 1, 2, True, "needs one entity, the seat has 2"),
        ("parallel", 2, 2, True, "needs one lane"),
        ("vector", 1, 2, False, "needs equal spaces"),
        ("vectr", 1, 1, True, "did you mean 'vector'?"),
        ((), 1, 1, True, "cannot give"),
    ],
)
def test_a_face_that_the_seat_cannot_give_is_refused_with_a_remedy(
    faces: str | tuple[str, ...], lanes: int, entities: int, uniform: bool, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_face(faces, lanes=lanes, entities=entities, uniform_spaces=uniform)
    assert message in str(caught.value)


def test_a_seat_of_a_round_robin_has_the_round_robins_place() -> None:
    robin = {"env": "duel", "policies": ["red", "blue"]}
    plan = make_plan(config_of(match_of("blue", "red"), {"round_robin": robin}))
    assert plan.matches[0].seat_path(1) == "matches[0].seats[1]"
    assert plan.matches[1].seat_path(1) == "matches[1].round_robin"
