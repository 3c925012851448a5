"""A plan is refused unless an exhaustive search over games and algorithms finds no deadlock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from arena.config.load import parse_config
from arena.plan.build import make_plan
from arena.plan.deadlock import waiting_text
from arena.plan.plan import Plan

Worker = tuple[int, int]


class League(NamedTuple):
    """The workers of each policy whose workers synchronize: at ends of episodes if its name is a capital letter."""

    groups: Mapping[str, tuple[Worker, ...]]
    ticks: int

    @property
    def episodic(self) -> set[str]:
        return {name for name in self.groups if name.isupper()}

    @property
    def policy_of(self) -> Mapping[Worker, str]:
        return {worker: name for name, workers in self.groups.items() for worker in workers}

    @property
    def matches(self) -> Mapping[int, Sequence[Worker]]:
        found: dict[int, list[Worker]] = {}
        for worker in self.policy_of:
            found.setdefault(worker[0], []).append(worker)
        return found


def league(matches: Sequence[str], ticks: int) -> League:
    """Matches as the policies of their seats, one letter each."""
    workers: dict[str, list[Worker]] = {}
    for match, seats in enumerate(matches):
        for seat, name in enumerate(seats):
            workers.setdefault(name, []).append((match, seat))
    return League({name: tuple(members) for name, members in workers.items() if len(members) > 1}, ticks)


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


# ------------------------------------------------------------------------------------------------------------ the rule


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


seats = st.text(alphabet="ABcd", min_size=1, max_size=3)
held = st.lists(seats, min_size=1, max_size=4).filter(lambda matches: sum(map(len, matches)) <= 7)


@pytest.mark.slow
@settings(max_examples=80)
@given(held, st.integers(1, 4))
def test_accepted_plans_cannot_deadlock_in_any_game(matches: list[str], ticks: int) -> None:
    refused, stuck = is_refused(*matches, ticks=ticks), can_deadlock(league(matches, ticks))
    event(f"refused: {refused}, deadlock: {stuck}")
    assert refused or not stuck


def can_deadlock(held: League) -> bool:
    """Whether any choice of cadences and of ends of episodes leads to a state in which nothing can move."""
    timed = [name for name in held.groups if name not in held.episodic]
    choices = list(chain.from_iterable(combinations(range(1, held.ticks), size) for size in range(held.ticks)))
    return any(search(held, dict(zip(timed, chosen, strict=True))) for chosen in product(choices, repeat=len(timed)))


def search(held: League, cadences: Mapping[str, tuple[int, ...]]) -> bool:
    """Breadth-first search of all states: the tick of each match, and the workers that wait for a synchronization."""
    begin = (dict.fromkeys(held.matches, 0), frozenset[Worker]())
    seen, todo = set(), [begin]
    while todo:
        ticks, waiting = todo.pop()
        key = (tuple(ticks.values()), waiting)
        if key in seen:
            continue
        seen.add(key)
        able = [m for m, tick in ticks.items() if tick < held.ticks and not any(worker[0] == m for worker in waiting)]
        if not able and any(tick < held.ticks for tick in ticks.values()):
            return True
        for match in able:
            moved = {**ticks, match: ticks[match] + 1}
            todo += [
                (moved, settled(held, moved, waiting | come)) for come in comers(held, match, moved[match], cadences)
            ]
    return False


def comers(held: League, match: int, tick: int, cadences: Mapping[str, tuple[int, ...]]) -> Iterator[frozenset[Worker]]:
    """The workers that may synchronize after a tick of a match."""
    workers = held.matches[match]
    sure = {worker for worker in workers if tick in cadences.get(held.policy_of[worker], ())}
    free = [worker for worker in workers if held.policy_of[worker] in held.episodic]
    for size in range(len(free) + 1):
        yield from (frozenset(sure.union(ended)) for ended in combinations(free, size))


def settled(held: League, ticks: Mapping[int, int], waiting: frozenset[Worker]) -> frozenset[Worker]:
    """The workers that still wait, once complete synchronizations are over and finished workers have left."""
    for workers in held.groups.values():
        if all(worker in waiting or ticks[worker[0]] == held.ticks for worker in workers):
            waiting -= frozenset(workers)
    return frozenset(worker for worker in waiting if ticks[worker[0]] < held.ticks)


# -------------------------------------------------------------------------------------------------------------- plans


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
