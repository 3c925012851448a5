"""Hypothesis strategies for Gymnasium spaces, and arbitrary bits to fill them with."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.game.spaces import empty_batch, flatten

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Boxes of every dtype and of 0 to 3 dimensions; their bounds need not hold 0."""
    dtype = draw(st.sampled_from((*INTEGERS, *FLOATS, "bool")))
    if dtype == "bool":
        return Box(0, 1, draw(SHAPES), np.bool_)
    low = draw(st.integers(0 if dtype.startswith("u") else -9, 9))
    high = low + draw(st.integers(0, 9))
    if dtype in FLOATS and draw(st.booleans()):
        return Box(-np.inf if draw(st.booleans()) else low, np.inf, draw(SHAPES), np.dtype(dtype).type)
    return Box(low, high, draw(SHAPES), np.dtype(dtype).type)


@st.composite
def discretes(draw: st.DrawFn) -> Discrete:
    """Discrete spaces of every integer dtype, with `start`."""
    dtype = draw(st.sampled_from(INTEGERS))
    start = draw(st.integers(0 if dtype.startswith("u") else -9, 9))
    return Discrete(draw(st.integers(1, 6)), start=start, dtype=np.dtype(dtype).type)


@st.composite
def multi_discretes(draw: st.DrawFn) -> MultiDiscrete:
    """MultiDiscrete spaces of one or two axes, with `start`."""
    dtype = draw(st.sampled_from(INTEGERS))
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    nvec, start = (
        np.array(draw(st.lists(st.integers(low, 5), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
        for low in (1, 0 if dtype.startswith("u") else -5)
    )
    return MultiDiscrete(nvec.reshape(shape), dtype=np.dtype(dtype).type, start=start.reshape(shape))


def multi_binaries() -> st.SearchStrategy[MultiBinary]:
    """MultiBinary spaces of one or two axes."""
    return st.sampled_from([(1,), (4,), (2, 3)]).map(MultiBinary)


def leaf_spaces() -> st.SearchStrategy[Space[Any]]:
    """Spaces whose samples are one array."""
    return boxes() | discretes() | multi_discretes() | multi_binaries()


def spaces() -> st.SearchStrategy[Space[Any]]:
    """Any space that can have a fixed layout, nested in Dict and Tuple."""
    return st.recursive(leaf_spaces(), _containers, max_leaves=5)


def _containers(parts: st.SearchStrategy[Space[Any]]) -> st.SearchStrategy[Space[Any]]:
    return st.lists(parts, max_size=3).map(Tuple) | st.dictionaries(
        st.sampled_from(["a", "b", "c", "z"]), parts, max_size=3
    ).map(Dict)


def scramble(array: NDArray[Any], rng: np.random.Generator) -> None:
    """Fills an array, which need not be contiguous, with arbitrary bits: NaNs and extremes among them."""
    if array.dtype == np.bool_:
        array[...] = rng.integers(0, 2, array.shape).astype(np.bool_)
    else:
        bits = rng.integers(0, 256, array.nbytes, np.uint8)
        array[...] = bits.view(array.dtype).reshape(array.shape)


def arbitrary_batch(space: Space[Any], rng: np.random.Generator, *axes: int) -> Any:
    """A batched sample of arbitrary bits."""
    batch = empty_batch(space, *axes)
    for leaf in flatten(space, batch):
        scramble(leaf, rng)
    return batch


def bits(space: Space[Any], sample: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """The exact content of a (batched) sample: dtype, shape and bytes of its arrays."""
    return [(str(array.dtype), array.shape, array.tobytes()) for array in flatten(space, sample)]
