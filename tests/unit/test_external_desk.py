"""The desk of external games: requests of any thread, told to the table in order."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from arena.external import ExternalError, Slots
from arena.external.desk import Desk, DeskGame
from arena.game.api import Interface

INTERFACE = Interface(("hero",), (Box(-1.0, 1.0, (1,), np.float32),), (Discrete(2),), (0,))


def accept(error: ExternalError | None) -> None:
    assert error is None, error


def test_a_freed_slot_goes_to_the_game_that_has_waited_longest() -> None:
    desk, table = Desk(INTERFACE), Slots(INTERFACE, 1)
    first, waiting, late = (DeskGame(name, (0,)) for name in ("first", "waiting", "late"))
    desk.begin(first, accept)
    desk.begin(waiting, accept)
    for _ in range(20):
        desk.poll(table)
    assert (first.slot, waiting.slot) == (0, None)
    desk.end(first, None, np.zeros(1, np.float32), told=accept)
    desk.begin(late, accept)
    desk.poll(table)
    assert (waiting.slot, late.slot) == (0, None)
    assert table.counts.refused == 0, "waiting is no refusal"
