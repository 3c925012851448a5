"""Which plans are refused as they can deadlock: a circle of matches through workers that meet at ends of episodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from arena.config.load import parse_config
from arena.plan.build import make_plan
from arena.plan.deadlock import waiting_text
from arena.plan.plan import Plan


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
