"""Small phrases of messages and tables: counts, rounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from arena.config import parse_config
from arena.errors import shorten
from arena.league.ratings.sprt import Verdict
from arena.league.round_text import VERDICTS, change_text, claim_text, gate_text, round_text
from arena.plan.build import make_plan
from arena.records.faults import fault_text
from arena.records.formats import Round


@pytest.mark.parametrize(
    ("seats", "sides", "words"),
    [
        (["a", "b"], None, "a - b"),
        (["a", "a", "b", "b"], None, "a - b"),
        (["a", "a"], [[0], [1]], "a - a"),
        (["a", "b", "b", "b"], [[0, 1], [2, 3]], "a + b - b"),
        (["a", "b", "c", "c"], None, "a - b - c"),
    ],
    ids=["duel", "teams", "itself", "mixture", "no-sides"],
)
def test_round_line_lists_pairings_by_side(seats: list[str], sides: list[list[int]] | None, words: str) -> None:
    data = {
        "ticks": 10,
        "rounds": 3,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": len(seats) // 2}}},
        "policies": {name: {"algorithm": "random"} for name in sorted({*seats})},
        "matches": [{"env": "game", "seats": seats, "sides": sides, "copies": 2}],
    }
    assert round_text(make_plan(parse_config(data, source="league.yaml"))) == f"round 0 of 0 to 2: {words} x2"


def test_long_name_lists_are_abbreviated() -> None:
    assert [shorten(list(names)) for names in ("", "a", "ab", "abc", "abcdefghijkl")] == [
        "",
        "a",
        "a and b",
        "a, b and 1 more",
        "a, b and 10 more",
    ]


def test_unknown_kind_of_fault_is_shown_verbatim() -> None:
    assert fault_text({"time": "2026-03-01", "kind": "weather", "wind": 9}) == "weather: wind 9"


def test_every_gate_verdict_has_a_description() -> None:
    assert {verdict.value for verdict in Verdict} == VERDICTS.keys()
    assert (gate_text("odd"), claim_text("odd", policy="a", against="a@5")) == ("gate odd", "gate odd: a against a@5")


def round_line(**changes: Any) -> Round:
    return msgspec.convert({"version": 1, "round": 0, "start": 0, **changes}, Round)


def test_round_line_lists_changes_if_any() -> None:
    gates = [
        {"policy": "a", "against": "a@5", "verdict": verdict, "llr": 0.0, "games": games}
        for verdict, games in (("better", 1), ("not_better", 2), ("open", 0))
    ]
    line = {
        "snapshots": ["a@10", "b@10"],
        "dropped": ["a@5"],
        "resets": ["c"],
        "forks": {"p": {"from": "q", "options": {"learning_rate": 0.00123456, "n_steps": 8}}, "r": {"from": "q"}},
        "gates": gates,
    }
    assert change_text(round_line(**line)) == [
        "a@10, b@10 joined",
        "a@5 left",
        "c started over",
        "p is a copy of q with learning_rate 0.00123, n_steps 8",
        "r is a copy of q",
        "a is better than a@5 (1 game)",
        "a is no better than a@5 (2 games)",
        "gate undecided: a against a@5 (0 games)",
    ]
    assert change_text(round_line()) == []
