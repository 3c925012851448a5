"""Which faces a seat can have, given the spaces and masks of its entities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena.errors import ConfigError
from arena.game.api import Interface
from arena.preflight.seats import seat_face
from arena.seat.layout import SeatLayout

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
