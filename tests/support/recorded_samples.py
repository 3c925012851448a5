"""Recorded samples without a run: the actions of a function at random observations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.dataset.format import EntitySamples, Manifest
from arena.dataset.writer import SampleWriter
from arena.game.api import Frame, Step
from arena.game.spaces import mask_size


def record(
    home: Path,
    observation_space: Space[Any],
    action_space: Space[Any],
    act: Callable[..., Any],
    *,
    ticks: int = 20,
    lanes: int = 4,
    length: int = 5,
    reward: Callable[..., NDArray[np.float64]] | None = None,
    masks: Callable[[int], NDArray[np.int8]] | None = None,
    match: int = 0,
    policy: str = "blue",
    seed: int = 0,
) -> Path:
    """Writes a match of one entity; `act` and `reward` are functions of the batch of observations (and of actions).

    Args:
        home: the folder of the samples, which is created.
        length: ticks of an episode, which is then terminated.
        masks: of a tick, [lanes, mask_size].
    """
    size = mask_size(action_space) if masks else 0
    entity = EntitySamples("one", policy, 0, observation_space, action_space, size)
    writer = SampleWriter(home, Manifest(match, "game", (entity,)), range(lanes))
    drawn = batch_space(observation_space, lanes)
    drawn.seed(seed)
    all_of_them, none = np.ones((lanes, 1), np.bool_), np.zeros((lanes, 1), np.bool_)
    seen: Any = drawn.sample()

    def frame(number: int) -> Frame:
        return Frame([seen], all_of_them, [masks(number) if masks else None])

    writer.begin(frame(0), all_of_them[:, 0])
    for number in range(1, ticks + 1):
        actions = act(seen) if masks is None else act(seen, masks(number - 1))
        paid = np.zeros(lanes) if reward is None else reward(seen, actions)
        over = number % length == 0
        seen = drawn.sample()
        step = Step(frame(number), paid[:, None], all_of_them if over else none, none)
        episodes = np.full(lanes, (number - 1) // length)
        writer.add(number, [actions], step, idle=(), episodes=episodes, cut=none[:, 0])
        if over:
            seen = drawn.sample()
            writer.begin(frame(number), all_of_them[:, 0])
    writer.flush()
    return home
