"""A plan puts every role on exactly one rank, near its match and evenly, and keeps what belongs to a match with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena import registry
from arena.config import Config, parse_config
from arena.config.fields import ONLY_ACT
from arena.errors import ConfigError
from arena.game.api import Interface
from arena.plan.build import make_plan, on_hosts
from arena.plan.deadlock import waiting_text
from arena.plan.placement import cut, lightest_maximum
from arena.plan.plan import Plan, Role, RoleKind, SeatPlan
from arena.plan.seats import resolve_entities
from arena.preflight.seats import choose_face, seat_face
from arena.roles.run import Leg, Run
from arena.seat.layout import SeatLayout

ENV = {"duel": {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 9}, "idle_action": 0}}


def config_of(*matches: dict[str, Any], policies: Any = "blue red", **keys: Any) -> Config:
    data = {
        "ticks": 100,
        "envs": ENV,
        "policies": {name: {"algorithm": "random"} for name in policies.split()}
        if isinstance(policies, str)
        else policies,
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


@given(configurations)
def test_what_follows_from_a_plan_is_right_and_shared_by_legs(config: Config) -> None:
    plan = make_plan(config)
    run = Run(plan, Path("nowhere"))
    later = replace(run, leg=Leg(10))  # as each role of a process has it
    assert later.roles is run.roles is plan.roles()
    assert [later.address(role) for role in plan.roles()] == list(range(len(plan.roles())))
    for name, policy in plan.policies.items():
        played = [(plan.matches[match], seat) for match, seat in policy.workers]
        members = tuple(plan.roles().index(Role(RoleKind.WORKER, *worker)) for worker in policy.workers)
        assert later.plan.members[name] == members
        rows = [(match.lanes * len(match.seats[seat].entities)) for match, seat in played]
        assert [learner.rows for learner in plan.learners[name, False]] == rows
        assert [learner.workers for learner in plan.learners[name, True]] == list(plan.teams[name])
        assert plan.members[name] is later.plan.members[name]
        assert plan.teams[name] is later.plan.teams[name]


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
        (("gym",), 1, 1, True, "gym"),
        (("vector",), 8, 3, True, "vector"),
        (("parallel",), 1, 3, False, "parallel"),
        (("vector", "parallel"), 1, 2, False, "parallel"),
        (("gym", "vector"), 2, 1, True, "vector"),
    ],
)
def test_the_first_face_that_fits_is_taken(
    faces: tuple[str, ...], lanes: int, entities: int, uniform: bool, face: str
) -> None:
    assert choose_face(faces, lanes=lanes, entities=entities, uniform_spaces=uniform) == face


@pytest.mark.parametrize(
    ("faces", "lanes", "entities", "uniform", "message"),
    [
        (("gym",), 4, 1, True, "needs one lane, the match has 4: set `lanes: 1`"),
        (("gym",), 1, 2, True, "needs one entity, the seat has 2"),
        (("parallel",), 2, 2, True, "needs one lane"),
        (("vector",), 1, 2, False, "needs equal spaces"),
        (("vectr",), 1, 1, True, "did you mean 'vector'?"),
        ((), 1, 1, True, "cannot give"),
    ],
)
def test_a_face_that_the_seat_cannot_give_is_refused_with_a_remedy(
    faces: tuple[str, ...], lanes: int, entities: int, uniform: bool, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_face(faces, lanes=lanes, entities=entities, uniform_spaces=uniform)
    assert message in str(caught.value)


def test_a_seat_of_a_round_robin_has_the_round_robins_place() -> None:
    robin = {"env": "duel", "policies": ["red", "blue"]}
    plan = make_plan(config_of(match_of("blue", "red"), {"round_robin": robin}))
    assert plan.matches[0].seat_path(1) == "matches[0].seats[1]"
    assert plan.matches[1].seat_path(1) == "matches[1].round_robin"


# Fewer ranks than roles: every role on one rank, near its match, balanced, and always the same way


POLICIES = {
    "learner": {"algorithm": "ppo"},
    "frozen": {"algorithm": "ppo", "frozen": True},
    "random": {"algorithm": "random"},
    "script": {"algorithm": "scripted"},
}


def roles_of(*matches: tuple[list[str], int], **keys: Any) -> Config:
    return config_of(*(match_of(*seats, copies=copies) for seats, copies in matches), policies=POLICIES, **keys)


line_up = st.lists(st.sampled_from(list(POLICIES)), min_size=1, max_size=5)
line_ups = st.lists(st.tuples(line_up, st.integers(1, 4)), min_size=1, max_size=4).map(lambda all: roles_of(*all))
rows = st.lists(st.integers(0, 6), min_size=1, max_size=9)


def load_of(plan: Plan, role: Role) -> int:
    if role.match is None:
        return 0
    return 3 if role.seat is not None and plan.seat(role).policy == "learner" else 1


def torches(plan: Plan) -> list[int]:
    """The ranks that import torch."""
    workers = [role for role in plan.roles(RoleKind.WORKER) if plan.seat(role).policy in ("learner", "frozen")]
    return sorted({plan.rank_of(role) for role in workers})


@st.composite
def packed(draw: st.DrawFn) -> tuple[Config, int]:
    """A configuration, and a number of ranks smaller than that of its roles."""
    config = draw(line_ups)
    return config, draw(st.integers(1, make_plan(config).processes - 1))


@pytest.mark.slow
@settings(max_examples=60)
@given(packed())
def test_roles_are_packed_evenly_near_their_match_in_the_order_of_the_plan(given: tuple[Config, int]) -> None:
    config, ranks = given
    plan, alone = make_plan(config, ranks=ranks), make_plan(config)
    hosted = [role for roles in plan.ranks for role in roles]
    assert len(hosted) == len(set(hosted))
    assert set(hosted) == set(alone.roles())
    assert plan.ranks[0][0] == Role(RoleKind.ROOT)
    assert (plan.processes, plan.idle_ranks) == (ranks, ())
    one, other = Run(plan, Path("run")), Run(alone, Path("run"))
    assert plan.roles() == alone.roles()
    assert plan.policies == alone.policies
    assert plan.matches == alone.matches
    assert [one.address(role) for role in other.roles] == list(range(len(other.roles)))
    order = {role: number for number, role in enumerate(plan.roles())}
    assert all([order[role] for role in roles] == sorted(order[role] for role in roles) for roles in plan.ranks)
    loads = [sum(load_of(plan, role) for role in roles) for roles in plan.ranks]
    assert max(loads) <= 1.25 * (sum(loads) / ranks + 3), "by a role, or by a quarter"
    for match in plan.matches:
        used = {rank for rank, roles in enumerate(plan.ranks) for role in roles if role.match == match.match}
        assert used == set(range(min(used), max(used) + 1))


def crossing(plan: Plan) -> list[int]:
    """The matches with roles on several hosts."""
    hosts: dict[int, set[str]] = {}
    for match, role in ((role.match, role) for role in plan.roles() if role.match is not None):
        hosts.setdefault(match, set()).add(plan.hosts[plan.rank_of(role)])
    return [match for match, found in hosts.items() if len(found) > 1]


@pytest.mark.slow
@settings(max_examples=60)
@given(packed(), st.data())
def test_fewer_matches_cross_hosts_at_a_quarter_more_load(given: tuple[Config, int], data: st.DataObject) -> None:
    config, ranks = given
    plan = make_plan(config, ranks=ranks)
    ends = sorted(data.draw(st.sets(st.integers(1, ranks), max_size=4)) | {0, ranks})
    hosts = [f"n{number}" for number, (start, stop) in enumerate(pairwise(ends)) for _ in range(start, stop)]
    unaware, aware = replace(plan, hosts=tuple(hosts)), on_hosts(plan, hosts)
    assert sorted(map(str, (role for roles in aware.ranks for role in roles))) == sorted(map(str, plan.roles()))
    assert all(aware.ranks)
    assert aware.ranks[0][0] == Role(RoleKind.ROOT)
    heaviest = [max(sum(load_of(plan, role) for role in roles) for roles in each.ranks) for each in (unaware, aware)]
    assert heaviest[1] <= 1.25 * heaviest[0]
    if aware.hosts:
        assert aware.crossing == len(crossing(aware)) <= len(crossing(unaware))
    assert on_hosts(aware, ["a"] * ranks) == plan, "on one host as without hosts"


def test_matches_stay_on_a_host_where_that_costs_little_balance() -> None:
    config = roles_of((["random"] * 4, 30))
    hosts = [f"n{number}" for number in range(4) for _ in range(6)]
    plan = make_plan(config, ranks=24)
    assert crossing(replace(plan, hosts=tuple(hosts))) == [7, 15, 22]
    assert on_hosts(plan, hosts).crossing == 0
    alone = on_hosts(make_plan(config), [f"n{rank // 38}" for rank in range(151)])
    assert (alone.crossing, crossing(alone)) == (2, [7, 22]), "7 matches and 2 or 3 roles fit on a host"
    assert [alone.place(rank) for rank in (0, 150)] == ["rank 0 on n0", "rank 150 on n3"]
    assert plan.place(5) == "rank 5"


@given(rows, st.integers(1, 9))
def test_partition_is_optimal(weights: list[int], parts: int) -> None:
    parts = min(parts, len(weights))
    ways = combinations(range(1, len(weights)), parts - 1)
    best = min(
        max(sum(weights[start:stop]) for start, stop in zip((0, *way), (*way, len(weights)), strict=True))
        for way in ways
    )
    assert lightest_maximum(weights, parts) == best
    for evenly in (True, False):
        pieces = cut(weights, parts, evenly=evenly)
        assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]
        assert pieces[-1][1] == len(weights)
        assert all(start < stop for start, stop in pieces)
        assert len(pieces) == parts
        assert max(sum(weights[start:stop]) for start, stop in pieces) == best


def test_matches_stay_together_if_that_costs_little_balance() -> None:
    plan = make_plan(roles_of((["random"] * 4, 30)), ranks=3)
    assert [len(roles) for roles in plan.ranks] == [51, 50, 50]
    assert [sorted({role.match for role in roles if role.match is not None}) for roles in plan.ranks] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 30)),
    ]


def test_match_is_split_if_ranks_outnumber_matches() -> None:
    plan = make_plan(roles_of((["learner"] * 4, 1)), ranks=3)
    assert [[role.seat for role in roles] for roles in plan.ranks] == [[None, None], [0, 1], [2, 3]]


def test_the_ranks_without_learners_never_import_torch() -> None:
    mixed = roles_of((["learner", "random"], 2), (["random", "script"], 4), (["random", "frozen"], 2))
    assert torches(make_plan(mixed, ranks=2)) == [1]
    assert torches(make_plan(roles_of((["learner"] * 4, 1)), ranks=3)) == [1, 2]


HUMAN = "arena.cli.play.human:Human"  # not in the registry: `arena play` alone has it


def test_light_algorithms_are_those_without_weights() -> None:
    keep_none = {name for name in registry.ALGORITHMS if not hasattr(registry.algorithm(name), "state_dict")}
    assert keep_none | {HUMAN} == ONLY_ACT


@pytest.mark.parametrize("ranks", [0, -3])
def test_no_rank_at_all_is_refused(ranks: int) -> None:
    with pytest.raises(ConfigError, match=f"from 1 to [0-9]+ processes, got {ranks}"):
        make_plan(roles_of((["random"], 1)), ranks=ranks)


# Which faces a seat can have, given the spaces and masks of its entities


NUMBERS, CHOICES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)


class Vector:
    face = "vector"


class Either:
    face = ("vector", "parallel")


def seat_of(*mask_sizes: int) -> Interface:
    count = len(mask_sizes)
    names = tuple(f"e{index}" for index in range(count))
    return Interface(names, (NUMBERS,) * count, (CHOICES,) * count, mask_sizes)


@pytest.mark.parametrize(("mask_sizes", "face"), [((3, 3), "vector"), ((0, 0), "vector"), ((3, 0), "parallel")])
def test_rows_are_uniform_if_all_entities_have_masks_or_none(mask_sizes: Any, face: str) -> None:
    seat = seat_of(*mask_sizes)
    assert seat_face(Either, seat, lanes=1) == face
    assert seat.uniform == SeatLayout.of(1, seat).uniform == (face == "vector")


def test_seat_with_some_masks_is_refused_for_the_vector_face() -> None:
    with pytest.raises(ConfigError, match=r"'vector' needs equal spaces of .*, and masks of all or of none: give each"):
        seat_face(Vector, seat_of(3, 0), lanes=1)


# Which plans are refused as they can deadlock: a circle of matches through workers that meet at ends of episodes


def plan_of(*matches: str, ticks: int = 10, **policies: Mapping[str, object]) -> Plan:
    names = sorted({*"".join(matches)})
    data = {
        "ticks": ticks,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {name: policies.get(name, {"algorithm": f"own:{name.upper()}"}) for name in names},
        "matches": [{"env": "game", "seats": list(seats)} for seats in matches],
    }
    return make_plan(parse_config(data, source="test.yaml"))


def is_refused(*matches: str, ticks: int = 10) -> bool:
    names = {*"".join(matches)}
    schedules = {name: "episodes" if name.isupper() else "ticks" for name in names}
    return waiting_text(plan_of(*matches, ticks=ticks), schedules)[1]


@pytest.mark.parametrize(
    "matches",
    [
        ("A",),  # one worker never waits
        ("A", "A", "A"),  # each match a game for one
        ("Ab", "Ac", "Ad"),  # no pair meets twice
        ("AB", "BC", "CD"),  # a path, no circle
        ("aa", "aa"),  # ticks alone
        ("ab", "bc", "ca", "abc"),
        ("abC", "abD", "CE"),  # a circle of ticks with a branch of episodes
    ],
)
def test_plans_without_a_circle_through_episodes_are_accepted(matches: tuple[str, ...]) -> None:
    assert not is_refused(*matches)


@pytest.mark.parametrize(
    "matches", [("AA",), ("AB", "AB"), ("Ab", "Ab"), ("AB", "BC", "CA"), ("Ab", "bc", "cd", "dA"), ("xAb", "xbA", "x")]
)
def test_plans_with_a_circle_through_episodes_are_refused(matches: tuple[str, ...]) -> None:
    assert is_refused(*matches)


def test_schedule_ticks_is_trusted_and_missing_means_episodes() -> None:
    plan = plan_of("ab", "ab")
    assert not waiting_text(plan, {"a": "ticks", "b": "ticks"})[1]
    assert waiting_text(plan, {"a": "ticks", "b": "episodes"})[1]
    assert waiting_text(plan, {"a": "ticks"})[1]


@pytest.mark.parametrize("still", [{"algorithm": "random"}, {"algorithm": "own:B", "frozen": True}])
def test_non_learning_policies_do_not_synchronize(still: Mapping[str, object]) -> None:
    assert not waiting_text(plan_of("ab", "ab", b=still), {})[1]


def test_finding_is_one_sentence_that_names_the_remedies() -> None:
    assert waiting_text(plan_of("ab", "ab"), {"a": "ticks", "b": "ticks"})[0] == (
        "no deadlock: every match plays exactly 10 ticks, and the match with the fewest ticks done can always go on"
    )
    assert waiting_text(plan_of("ab", "a"), {})[0] == (
        "no deadlock: every match plays exactly 10 ticks, and a, whose workers may meet whenever an episode of theirs "
        "is over, shares one match at most"
    )
    assert waiting_text(plan_of("ab", "ab", "cc"), {"b": "ticks"})[0] == (
        "can deadlock: the workers of a, c may meet whenever an episode of theirs is over; such a policy may have one "
        "seat in a match, and share one match with policies whose workers meet, but a shares the matches 0, 1 with b; "
        "c has several seats in match 2. What helps: `schedule = 'ticks'` in the algorithm's class, if all workers of "
        "a, c meet after the same ticks of their matches, or never meet; matches that share fewer policies; or one "
        "worker for all entities that a policy has in a match"
    )


def test_frozen_players_come_after_those_that_learn() -> None:
    policies = {
        "old": {"algorithm": "ppo", "frozen": True},
        "blue": {"algorithm": "ppo"},
        "red": {"algorithm": "random"},
    }
    config = config_of(match_of("old", "blue"), match_of("blue", "red"), policies=policies)
    assert make_plan(config).players() == ("blue", "red", "old")
