"""Who can be compared by the games of a configuration: told from its matches alone, against the rank of a matrix."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from arena.config.meetings import comparable
from simulated_leagues import league

PLAYERS = "abcde"
Team = list[str]

teams = st.lists(st.sampled_from(PLAYERS), min_size=1, max_size=3)
pairs = st.tuples(teams, teams).filter(lambda pair: sorted(pair[0]) != sorted(pair[1]))


def match(first: Team, second: Team) -> dict[str, Any]:
    places = [*range(len(first) + len(second))]
    return {"env": "game", "seats": [*first, *second], "sides": [places[: len(first)], places[len(first) :]]}


@given(st.lists(pairs, min_size=1, max_size=6))
def test_two_can_be_compared_if_their_difference_is_a_sum_of_the_differences_of_sides(
    met: list[tuple[Team, Team]],
) -> None:
    def mean(team: Team) -> Any:
        return np.mean([[name == player for player in PLAYERS] for name in team], axis=0)

    design = np.array([[*(mean(first) - mean(second)), 1] for first, second in met])  # the last: the first side's worth
    assume(design[:, :-1].any())
    groups = comparable(league(*(match(*pair) for pair in met), players=PLAYERS))
    assert sum(map(len, groups)) == np.count_nonzero(design[:, :-1].any(axis=0))
    for one, other in combinations(sorted(set().union(*groups)), 2):
        wanted = [*(mean([one]) - mean([other])), 0]
        is_told = np.linalg.matrix_rank(np.vstack([design, wanted])) == np.linalg.matrix_rank(design)
        assert is_told == any({one, other} <= group for group in groups)
