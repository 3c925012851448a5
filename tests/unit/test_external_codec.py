"""The actor `raw`: samples of any space as bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Sequence, Space
from hypothesis import given, settings
from hypothesis import strategies as st

import random_spaces
from arena.errors import ConfigError
from arena.external import ExternalError
from arena.external.builtin_actors import Codec, raw_actor
from arena.game.api import Interface
from arena.game.spaces import flatten


@settings(max_examples=30)
@given(random_spaces.spaces(), st.integers(0, 2**16))
def test_sample_round_trip_is_exact(space: Space[Any], seed: int) -> None:
    space.seed(seed)
    sample, codec = space.sample(), Codec(space)
    packed = codec.pack(sample)
    assert len(packed) == codec.size
    back = codec.unpack(memoryview(packed), "it")
    assert space.contains(back)
    for one, other in zip(flatten(space, sample), flatten(space, back), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_bytes_are_the_leaves_little_endian_without_padding() -> None:
    space = Dict(flag=Box(0, 1, (), np.bool_), n=Discrete(9), x=Box(-9, 9, (2,), np.float32))
    packed = Codec(space).pack({"flag": np.array(True), "n": 7, "x": [0.5, -1]})
    assert packed == struct.pack("<?q2f", True, 7, 0.5, -1.0)


def test_a_bool_is_one_byte_of_0_or_1() -> None:
    with pytest.raises(ExternalError, match="bad_observation: it: a bool is 2"):
        Codec(Box(0, 1, (), np.bool_)).unpack(memoryview(b"\2"), "it")


def test_spaces_without_a_fixed_layout_are_refused_by_name() -> None:
    interface = Interface(("hero",), (Sequence(Box(0, 1, (2,))),), (Discrete(2),), (0,))
    with pytest.raises(ConfigError, match=r"raw: 'hero': .* no fixed layout"):
        raw_actor(interface)
