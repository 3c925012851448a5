"""What an export is verified with: rows of inputs, and how far an engine's outputs may be from the reference.

Rows are recorded ones of the run; the others are drawn from the space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.dataset import open_dataset
from arena.game.spaces import flatten, leaves_of
from arena.records.folder import RunFolder
from arena.records.formats import Categorical, Decoding, ModelTensor, MultiCategorical, OutputFigures, Values

Array = NDArray[Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]
"""An engine, on one thread of the CPU: from arrays of all inputs to arrays of all outputs."""

Outputs = Mapping[int, Sequence[Array]]
"""By batch size: every output of all rows [N, ...]."""

_SEED = 0
_BEGINNING = 32  # rows without memory; each later row has the memory that the row so many before it leaves
_UNBOUNDED = 1e6  # a bound that is farther from 0 is none
_ABSOLUTE, _RELATIVE = 1e-5, 1e-4  # an element may differ by absolute + relative * |reference|
_L1_RELATIVE = 1e-5  # at most: sum of the differences / sum of the sizes of the reference
_AGREEMENT = 0.999  # at least: share of rows with the same best choice


class Rows(NamedTuple):
    """Inputs of a model."""

    arrays: tuple[Array, ...]  # [N, ...] of every input
    recorded: int  # rows that were recorded


def rows_of(
    folder: RunFolder, policy: str, space: Space[Any], inputs: Sequence[ModelTensor], engine: Run, count: int
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


class OutputComparison(NamedTuple):
    """The figures of every output, and the problems: output, figure and limit of each."""

    figures: tuple[OutputFigures, ...]
    problems: tuple[str, ...]


def compare(found: Outputs, reference: Outputs, names: Sequence[str], decoding: Decoding) -> OutputComparison:
    """Compares all outputs of all rows, for every batch size; and the rows of the largest batch with the smallest's."""
    parts: Sequence[int] | None = None  # where the first output is cut into choices
    if isinstance(decoding, (Categorical, Values)):
        parts = []
    elif isinstance(decoding, MultiCategorical):
        parts = np.cumsum(decoding.nvec)[:-1].tolist()
    figures, problems = [], []
    for index, name in enumerate(names):
        pairs = [(f"batches of {size}", found[size][index], reference[size][index]) for size in reference]
        least, most = min(reference), max(reference)
        if least != most:
            pairs.append((f"batches of {most} and of {least}", found[most][index], found[least][index]))
        largest, relatives, agreements = [], [], []
        for where, output, expected in pairs:
            faults = []
            if output.dtype != expected.dtype or output.shape != expected.shape:
                faults = [f"{output.dtype} {list(output.shape)}, expected {expected.dtype} {list(expected.shape)}"]
            elif not np.isfinite(output).all():
                wrong = np.count_nonzero(~np.isfinite(output))
                faults = [f"{wrong} numbers are NaN or infinite, in the reference none is"]
            else:
                difference, size = np.abs(output.astype(np.float64) - expected), np.abs(expected.astype(np.float64))
                largest.append(float(difference.max(initial=0.0)))
                if (difference > _ABSOLUTE + _RELATIVE * size).any():
                    faults.append(f"max_abs {largest[-1]:.3g}, limit {_ABSOLUTE:g} + {_RELATIVE:g} x |reference|")
                # The largest relative error has no limit: it means nothing near 0.
                total, sizes = float(difference.sum()), float(size.sum())
                relative = total / sizes if sizes else (math.inf if total else 0.0)
                if math.isfinite(relative):
                    relatives.append(relative)
                if relative > _L1_RELATIVE:
                    shown = f"{relative:.3g}" if math.isfinite(relative) else "infinite"
                    faults.append(f"l1_relative {shown}, limit {_L1_RELATIVE:g}")
                if parts is not None and index == 0:
                    both = zip(np.split(output, parts, -1), np.split(expected, parts, -1), strict=True)
                    agreements.append(min(float((one.argmax(-1) == best.argmax(-1)).mean()) for one, best in both))
                    if agreements[-1] < _AGREEMENT:
                        faults.append(f"agreement {agreements[-1]:.4f}, limit {_AGREEMENT:g}")
            problems += [f"output {name!r}, {where}: {fault}" for fault in faults]
        worst = max(largest, default=None), max(relatives, default=None), min(agreements, default=None)
        figures.append(OutputFigures(name, *worst))
    return OutputComparison(tuple(figures), tuple(problems))
