"""Settings that a game makes for its process are in force in the game, and nowhere else."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from arena.game.isolation import Isolation
from envs.adapters import adapt
from reused_games import Bits

SET: dict[str, tuple[Any, Any]] = {
    "dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "grad": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        torch.are_deterministic_algorithms_enabled,
    ),
    "device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "errors": (lambda: np.seterr(all="raise"), np.geterr),
    "filters": (lambda: warnings.simplefilter("ignore"), lambda: warnings.filters[:]),
}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    Isolation._left = None
    yield
    Isolation._left = None


@pytest.mark.parametrize("when", ["__init__", "reset", "step"])
@pytest.mark.parametrize(("setting", "reading"), SET.values(), ids=SET)
def test_settings_of_a_game_hold_in_the_game_alone(setting: Any, reading: Any, when: str) -> None:
    seen: list[Any] = []

    class Setting(Bits):
        def __init__(self) -> None:
            super().__init__()
            if when == "__init__":
                setting()

        def reset(self, **given: Any) -> Any:
            if when == "reset":
                setting()
            return super().reset(**given)

        def step(self, action: Any) -> Any:
            seen.append(copy.copy(reading()))
            if when == "step" and len(seen) == 1:
                setting()
            return super().step(action)

    before = reading()
    game = adapt(Setting, {}, 1)
    assert reading() == before
    game.reset(np.ones(1, np.bool_))
    assert reading() == before
    for _ in range(3):
        game.step([np.zeros(1, np.int64)])
        assert reading() == before
    assert seen[1] == seen[2] != before


def test_game_that_raises_leaves_no_settings_behind() -> None:
    class Raising(Bits):
        def step(self, action: Any) -> Any:
            np.seterr(all="raise")
            torch.set_default_dtype(torch.float64)
            raise RuntimeError("no")

    errors, game = np.geterr(), adapt(Raising, {}, 1)
    game.reset(np.ones(1, np.bool_))
    with pytest.raises(RuntimeError, match="no"):
        game.step([np.zeros(1, np.int64)])
    assert (np.geterr(), torch.get_default_dtype()) == (errors, torch.float32)


def test_isolated_game_can_be_copied() -> None:
    game = adapt(Bits, {}, 1)
    game.reset(np.ones(1, np.bool_), [3])
    actions = [np.zeros(1, np.int64)]
    other = copy.deepcopy(game)
    assert game.step(actions).frame.observations[0].tolist() == other.step(actions).frame.observations[0].tolist()
