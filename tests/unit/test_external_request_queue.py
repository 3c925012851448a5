"""The queue of requests of external games: requests of any thread, told to the table in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.external import ExternalError, Slots
from arena.external.request_queue import ConnectedGame, RequestQueue
from arena.external.slots import Ask, End
from arena.game.api import Interface

SEEN = np.zeros(1, np.float32)
INTERFACE = Interface(("hero",), (Box(-1.0, 1.0, (1,), np.float32),), (Discrete(2),), (0,))


def accept(error: ExternalError | None) -> None:
    assert error is None, error


def test_a_freed_slot_goes_to_the_game_that_has_waited_longest() -> None:
    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 1)
    first, waiting, late = (ConnectedGame(name, (0,)) for name in ("first", "waiting", "late"))
    requests.begin(first, accept)
    requests.begin(waiting, accept)
    for _ in range(20):
        requests.poll(table)
    assert (first.slot, waiting.slot) == (0, None)
    requests.end(first, None, End(SEEN), accept)
    requests.begin(late, accept)
    requests.poll(table)
    assert (waiting.slot, late.slot) == (0, None)
    assert table.counts.refused == 0, "waiting is no refusal"


def test_requests_from_one_that_fails_on_are_refused_at_the_end() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no array")

    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 2)
    game, other, codes = ConnectedGame("game", (0,)), ConnectedGame("other", (0,)), list[str | None]()
    requests.begin(game, accept)
    requests.ask(game, {0: Ask(Broken())}, lambda error: codes.append(error and error.code))
    requests.begin(other, lambda error: codes.append(error and error.code))
    with pytest.raises(RuntimeError, match="no array"):
        requests.poll(table)
    requests.close("the game has failed")
    assert codes == ["over", "over"], "their threads would wait for ever"


def test_info_of_a_reward_arrives_with_the_next_observation() -> None:
    requests, table = RequestQueue(INTERFACE), Slots(INTERFACE, 1)
    game, codes = ConnectedGame("game", (0,)), []
    requests.begin(game, accept)
    requests.pay(game, 0, 1.0, accept, info={"speed": 1, "lives": 3})
    requests.pay(game, 0, 1.0, lambda error: codes.append(error and error.code), info=[1])  # type: ignore[arg-type]
    requests.ask(game, {0: Ask(SEEN, info={"speed": 2})}, accept)
    requests.poll(table)
    tick = table.form(at_once=True)
    assert tick is not None and tick.begun.infos == [[{"speed": 2, "lives": 3}]] and codes == ["bad_body"]
    table.answers([np.zeros(1, np.int64)])
    requests.pay(game, 0, 1.0, accept, info={"speed": 5})
    requests.end(game, None, End(), accept)
    requests.poll(table)
    tick = table.form(at_once=True)
    assert tick is not None and tick.step.frame.infos == [[{"speed": 5}]]
