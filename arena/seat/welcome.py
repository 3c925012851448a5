"""The description of a seat, which the environment sends to the worker before the first tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium.spaces import Space

from arena.seat.layout import SeatLayout


@dataclass(frozen=True)
class Welcome:
    """A seat; the tuples have one item per entity that the seat drives."""

    lanes: int
    entities: tuple[str, ...]
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    mask_sizes: tuple[int, ...]
    alone: bool  # whether it is the only seat of its match, which may reset the game
    part: int = 0  # which block of the match's lanes; there is one Welcome per block, in order
    parts: int = 1  # number of blocks
    outside: bool = False  # whether the games are external
    seat: int = 0  # its number in the match

    def layout(self) -> SeatLayout:
        return SeatLayout.of(
            self.lanes, self.observation_spaces, self.action_spaces, self.mask_sizes, outside=self.outside
        )
