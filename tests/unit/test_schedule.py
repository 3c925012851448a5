"""The proof before the start agrees with an exhaustive search over games and algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations, product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from arena.config.load import parse_config
from arena.plan import deadlock
from arena.plan.build import make_plan
from arena.plan.deadlock import League, Worker, counter_example, find_circle, needed_ticks, played, prove
from arena.plan.plan import Plan


def league(*matches: str, ticks: int = 10) -> League:
    """Matches as the policies of their seats, one letter each; small letters meet at ticks, capitals at episodes."""
    workers: dict[str, list[Worker]] = {}
    for match, seats in enumerate(matches):
        for seat, name in enumerate(seats):
            workers.setdefault(name, []).append((match, seat))
    groups = {name: tuple(members) for name, members in workers.items() if len(members) > 1}
    return League(groups, frozenset(name for name in groups if name.isupper()), ticks)


def plan_of(*matches: str, ticks: int = 10, **policies: Mapping[str, object]) -> Plan:
    names = sorted({*"".join(matches)})
    data = {
        "ticks": ticks,
        "envs": {"game": {"make": "touchdown"}},
        "policies": {name: policies.get(name, {"algorithm": f"own:{name.upper()}"}) for name in names},
        "matches": [{"env": "game", "seats": list(seats)} for seats in matches],
    }
    return make_plan(parse_config(data, source="test.yaml"))


# ------------------------------------------------------------------------------------------------------- the criterion


@pytest.mark.parametrize(
    "matches",
    [
        ("A",),  # one worker never waits
        ("A", "A", "A"),  # each match a game for one
        ("Ab", "Ac", "Ad"),  # no pair meets twice
        ("AB", "BC", "CD"),  # a path, no cycle
        ("aa", "aa"),  # ticks alone
        ("ab", "bc", "ca", "abc"),
        ("abC", "abD", "CE"),  # a cycle of ticks with a branch of episodes
        ("Cab", "Cde", "ab", "de"),  # episodes between two cycles of ticks
    ],
)
def test_no_deadlock_without_a_cycle_through_episodes(matches: tuple[str, ...]) -> None:
    assert find_circle(league(*matches)) is None


@pytest.mark.parametrize(
    ("matches", "length"),
    [
        (("AA",), 1),  # two seats of one policy: either may wait for the other
        (("AB", "AB"), 2),
        (("Ab", "Ab"), 2),
        (("AB", "BC", "CA"), 3),
        (("Ab", "bc", "cd", "dA"), 4),
        (("xAb", "xbA", "x"), 2),
        (("ab", "ab", "aC", "bC"), 3),
    ],
)
def test_shortest_cycle_through_episodes_is_found(matches: tuple[str, ...], length: int) -> None:
    circle = find_circle(league(*matches))
    assert circle is not None
    assert len(circle) == length


@pytest.mark.parametrize("matches", [("AA",), ("AB", "AB"), ("Ab", "Ab"), ("Ab", "bc", "cd", "dA")])
def test_cycle_needs_enough_ticks_to_close(matches: tuple[str, ...]) -> None:
    needed = needed_ticks(find_circle(league(*matches)) or ())
    assert find_circle(league(*matches, ticks=needed)) is not None
    assert find_circle(league(*matches, ticks=needed - 1)) is None


DETOUR = ("Ab", "bc", "cA", "Dg", "gh", "hD", "Ae", "eD", "Df", "fA")
"""From A back to A by b and c are fewer steps than by e, D and f, but more ticks in a row; likewise from D."""


def test_longer_cycle_is_found_if_shorter_ones_lack_ticks() -> None:
    assert len(find_circle(league(*DETOUR, ticks=4)) or ()) == 3
    circle = find_circle(league(*DETOUR, ticks=3)) or ()
    assert {wait.policy for wait in circle} == {"A", "e", "D", "f"}
    assert find_circle(league(*DETOUR, ticks=2)) is None


def test_undecidable_short_runs_count_as_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlock, "_MOST_CHAINS", 1)
    assert needed_ticks(find_circle(league(*DETOUR, ticks=3)) or ()) == 4


@st.composite
def leagues(draw: st.DrawFn) -> League:
    seats = st.text(alphabet="ABcd", min_size=1, max_size=3)
    held = draw(st.lists(seats, min_size=1, max_size=4).filter(lambda matches: sum(map(len, matches)) <= 7))
    return league(*held, ticks=draw(st.integers(1, 4)))


@pytest.mark.slow
@settings(max_examples=300)
@given(leagues())
def test_criterion_equals_an_exhaustive_search(held: League) -> None:
    circle = find_circle(held)
    event("deadlock" if circle else "none")
    assert (circle is not None) == can_deadlock(held)


@pytest.mark.slow
@settings(max_examples=300)
@given(leagues())
def test_counterexample_deadlocks_where_predicted(held: League) -> None:
    circle = find_circle(held)
    if circle is not None:
        stuck = played(held, counter_example(held, circle), ticks=held.ticks)
        assert {wait.worker[0]: wait.tick for wait in circle}.items() <= stuck.items()
        for wait, after in zip(circle, (*circle[1:], circle[0]), strict=True):
            assert {wait.worker, wait.awaited} <= set(held.groups[wait.policy])
            assert wait.awaited[0] == after.worker[0]
            assert wait.worker != wait.awaited != after.worker


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
    assert prove(plan, {"a": "ticks", "b": "ticks"}).circle is None
    assert prove(plan, {"a": "ticks", "b": "episodes"}).circle is not None
    assert prove(plan, {"a": "ticks"}).circle is not None


@pytest.mark.parametrize("still", [{"algorithm": "random"}, {"algorithm": "own:B", "frozen": True}])
def test_non_learning_policies_do_not_synchronize(still: Mapping[str, object]) -> None:
    assert prove(plan_of("ab", "ab", b=still), {}).circle is None


def test_proof_is_described_in_a_sentence() -> None:
    assert prove(plan_of("ab", "ab"), {"a": "ticks", "b": "ticks"}).lines == (
        "no deadlock: every match plays exactly 10 ticks, and the match with the fewest ticks done can always go on",
    )
    assert prove(plan_of("ab", "a"), {}).lines == (
        "no deadlock: every match plays exactly 10 ticks, and no circle of matches that wait for each other can close "
        "through a, whose workers may meet whenever an episode of theirs is over",
    )


def test_cycle_is_described_by_its_waits_with_a_remedy() -> None:
    proof = prove(plan_of("ab", "ab"), {"b": "ticks"})
    assert proof.lines == (
        "can deadlock: the workers of a may meet whenever an episode of theirs is over. One way:",
        "worker of policy 'a' in seat 0 of match 1, at tick 1, its episode over, waits for its group: for seat 0 of "
        "match 0, whose episode goes on",
        "environment of match 0, at tick 2, waits for its seat 1",
        "worker of policy 'b' in seat 1 of match 0, at tick 2, where its policy meets, waits for its group: for seat 1 "
        "of match 1, which has not come so far",
        "environment of match 1, at tick 1, waits for its seat 0",
        "What helps: `schedule = 'ticks'` in the algorithm's class, if all workers of a meet after the same ticks of "
        "their matches, or never meet; matches that share fewer policies; one worker for all entities that a policy "
        "has in a match; or --allow-unproved, if no episode of the game can be over like this",
    )
    assert proof.refusal.splitlines()[-1] == proof.lines[-1]


@pytest.mark.slow
def test_thousand_matches_are_decided_in_one_pass() -> None:
    row = [chr(0x4E00 + number) + chr(0x4E01 + number) for number in range(1000)]  # neither large nor small letters
    groups = {
        name: tuple((m, seats.index(name)) for m, seats in enumerate(row) if name in seats)
        for name in set("".join(row))
    }
    several = {name: workers for name, workers in groups.items() if len(workers) > 1}
    assert find_circle(League(several, frozenset(several), 100)) is None
    closed = League({**several, "z": ((0, 2), (999, 2))}, frozenset(several), 10_000)
    assert len(find_circle(closed) or ()) == 1000
