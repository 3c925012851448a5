"""Frames of sockets: samples of any space as bytes, and streams that are cut anywhere."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from hypothesis import given
from hypothesis import strategies as st

import random_spaces
from arena.external import ExternalError
from arena.external.codec import Codec, FrameReader
from arena.game.spaces import flatten


@given(random_spaces.spaces(), st.integers(0, 2**16))
def test_sample_round_trip_is_exact(space: Space[Any], seed: int) -> None:
    space.seed(seed)
    sample, codec = space.sample(), Codec(space)
    packed = codec.pack(sample, "it", "bad_observation")
    assert len(packed) == codec.size
    back = codec.unpack(memoryview(packed), "it", "bad_observation")
    assert space.contains(back)
    for one, other in zip(flatten(space, sample), flatten(space, back), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_bytes_are_the_leaves_little_endian_without_padding() -> None:
    space = Dict(flag=Box(0, 1, (), np.bool_), n=Discrete(9), x=Box(-9, 9, (2,), np.float32))
    packed = Codec(space).pack({"flag": np.array(True), "n": 7, "x": [0.5, -1]}, "it", "bad_observation")
    assert packed == struct.pack("<?q2f", True, 7, 0.5, -1.0)


@pytest.mark.parametrize("data", [b"\2", b"", b"\0\0"])
def test_a_bool_is_one_byte_of_0_or_1(data: bytes) -> None:
    with pytest.raises(ExternalError, match="bad_action: it: "):
        Codec(Box(0, 1, (), np.bool_)).unpack(data, "it", "bad_action")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=40))
def test_frames_are_decoded_from_a_stream_cut_anywhere(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    reader, found, at = FrameReader(40), [], 0
    for cut in [*cuts, len(stream)]:
        found += map(bytes, reader.feed(stream[at : at + cut]))
        at += cut
    found += map(bytes, reader.feed(stream[at:]))
    assert found == bodies


@pytest.mark.parametrize(("size", "code"), [(0, "bad_frame"), (41, "too_large")])
def test_forbidden_length_is_refused_before_the_body(size: int, code: str) -> None:
    reader = FrameReader(40)
    with pytest.raises(ExternalError) as raised:
        list(reader.feed(struct.pack("<I", size)))
    assert raised.value.code == code
