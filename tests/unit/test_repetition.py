"""Identical games are detected, and games that are equal by chance are not."""

from __future__ import annotations

from arena.records.figures import repeated
from arena.records.metrics import EpisodeRecord, SeatRecord


def line(
    *players: str, length: int = 5, gain: float = 1.0, truncated: bool = False, cut: bool = False
) -> EpisodeRecord:
    seats = tuple(SeatRecord(name, (place,), gain * (-1) ** place, None) for place, name in enumerate(players))
    return EpisodeRecord(0, 0, "game", 0, 0, length, length, not truncated, truncated, seats, cut)


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


def test_full_length_solo_episodes_are_not_repetitive() -> None:
    assert repeated([line("a", truncated=True)] * 20) == []
    assert repeated([line("a")] * 20) == [("a",)]
    assert repeated([line("a", "b", truncated=True)] * 20) == [("a", "b")]


def test_cut_games_are_not_compared() -> None:
    assert repeated([*SAME, line("a", "b", length=2, cut=True)]) == [("a", "b")]
