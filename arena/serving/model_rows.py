"""The rows on which an exported network is verified: recorded ones of its run, the others drawn from its spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.dataset import open_dataset
from arena.game.spaces import flatten, leaves_of
from arena.records.folder import RunFolder
from arena.records.formats import ModelTensor

Array = NDArray[Any]
Engine = Callable[[Sequence[Array]], Sequence[Array]]

_SEED = 0
_BEGINNING = 32  # rows without memory; each later row has the memory that the row so many before it leaves
_UNBOUNDED = 1e6  # a bound that is farther from 0 is none


class Rows(NamedTuple):
    """Inputs of a model."""

    arrays: tuple[Array, ...]  # [N, ...] of every input
    recorded: int  # rows that were recorded


def rows_of(
    folder: RunFolder, policy: str, space: Space[Any], inputs: Sequence[ModelTensor], engine: Engine, count: int
) -> Rows:
    """`count` rows, the same every time.

    Raises:
        ConfigError: a part of the recorded samples is damaged.
    """
    found: list[list[Array]] = []  # by episode, the leaves [n, ...] of recorded observations
    if folder.samples.is_dir():
        samples = open_dataset(folder.path)
        if policy in samples.policies and samples.entity(policy).observation_space == space:
            for episode in samples.episodes(policy):
                found.append(flatten(space, episode.observations))
                if sum(len(leaves[0]) for leaves in found) >= count:
                    break
    empty = [np.zeros((0, *leaf.shape), leaf.dtype) for leaf in leaves_of(space)]
    recorded = [np.concatenate(column)[:count] for column in zip(empty, *found, strict=True)]
    drawn = _drawn(space, count - len(recorded[0]), np.random.default_rng(_SEED))
    leaves = iter([np.concatenate(pair).astype(pair[1].dtype) for pair in zip(recorded, drawn, strict=True)])
    arrays = [
        next(leaves)
        if tensor.path is not None
        else np.zeros((count, *tensor.shape), tensor.dtype)
        if tensor.n is None
        else (np.arange(count) % tensor.n).astype(tensor.dtype)
        for tensor in inputs
    ]
    place = next((index for index, tensor in enumerate(inputs) if tensor.name == "memory"), None)
    if place is not None:
        for start in range(_BEGINNING, count, _BEGINNING):
            rows = min(_BEGINNING, count - start)
            before = slice(start - _BEGINNING, start - _BEGINNING + rows)
            arrays[place][start : start + rows] = engine([array[before] for array in arrays])[-1]
    return Rows(tuple(arrays), len(recorded[0]))


def _drawn(space: Space[Any], count: int, random: np.random.Generator) -> list[Array]:
    """The leaves [count, ...] of drawn observations."""
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _drawn(part, count, random)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _drawn(part, count, random)]
    shape = (count, *(space.shape or ()))
    if isinstance(space, spaces.Discrete):
        return [(space.start + random.integers(space.n, size=shape)).astype(space.dtype)]
    if isinstance(space, spaces.MultiDiscrete):
        return [(space.start + random.integers(space.nvec, size=shape)).astype(space.dtype)]
    if isinstance(space, spaces.MultiBinary):
        return [random.integers(2, size=shape).astype(space.dtype)]
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = (np.abs(low) <= _UNBOUNDED) & (np.abs(high) <= _UNBOUNDED)
    uniform = random.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
    values = np.where(bounded, uniform, np.clip(random.normal(size=shape), low, high))
    return [(np.rint(values) if np.issubdtype(space.dtype, np.integer) else values).astype(space.dtype)]
