"""The layout of a link's file: golden files, a second computation, and every fault with its place."""

from __future__ import annotations

import random
import struct
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.external.shared_memory import (
    Command,
    GroupSpec,
    LayoutError,
    VersionError,
    decode,
    join_messages,
    split_messages,
)
from arena.external.shared_memory.link_file import DRIVER, SIMULATOR, LinkFile
from link_layout import Group, file_of, places

GOLDEN = Path(__file__).parents[1] / "golden" / "shared_memory"
GUID = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
AREA = join_messages([(GUID, bytes(9))]) + bytes(3)  # C = 36


def groups(seed: int = 0, n: tuple[int, int] = (3, 2)) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [
        Group(rng, "walker", 3, [(3,), (2, 2)], 2, None, n[0]),
        Group(rng, "chooser", 2, [(2,), (1,)], None, (3, 2), n[1]),
    ]


def test_files_of_a_link_are_the_golden_ones(tmp_path: Path) -> None:
    file = LinkFile.make(tmp_path / "link", 4)
    assert (tmp_path / "link").read_bytes() == (GOLDEN / "g0.bin").read_bytes()
    file.replace(20, DRIVER)
    assert (tmp_path / "link").read_bytes() == (GOLDEN / "g1_old.bin").read_bytes()
    file.give(Command.RESET, SIMULATOR)
    assert (tmp_path / "link_").read_bytes() == (GOLDEN / "g1_new.bin").read_bytes()
    assert decode((GOLDEN / "g1_new.bin").read_bytes()) == ((38, 0, SIMULATOR, Command.RESET, 20, 0), [], ())
    file.close()


NAMES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=63)


@settings(max_examples=25)
@given(st.data())
def test_offsets_and_bytes_equal_a_second_computation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    made, specs = [], []
    for name in data.draw(st.lists(NAMES, max_size=3, unique=True)):
        agents = data.draw(st.integers(1, 5))
        shapes = data.draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), max_size=3))
        branches = data.draw(st.none() | st.lists(st.integers(1, 4), min_size=1, max_size=3))
        continuous = data.draw(st.integers(0, 3)) if branches is None else None
        made.append(Group(rng, name, agents, shapes, continuous, branches, data.draw(st.integers(0, agents))))
        shaped = tuple(tuple(shape) for shape in shapes)
        specs.append(GroupSpec(name, agents, shaped, continuous, None if branches is None else tuple(branches)))
    messages = [(uuid.UUID(bytes=rng.bytes(16)), rng.bytes(size)) for size in data.draw(st.lists(st.integers(0, 20)))]
    area = join_messages(messages)
    used = len(area)
    area += bytes(data.draw(st.integers(0, 9)))
    turn, command = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 3))
    written = file_of(made, area, used, turn, command)
    image = decode(written)
    assert image.header == (len(written), 0, turn, command, len(area) + 4, used)
    assert image.messages == split_messages(area[:used]) == messages
    assert [group.spec for group in image.groups] == (specs if command != Command.CHANGE_FILE else [])
    if command != Command.CHANGE_FILE:
        for content, one in zip(image.groups, made, strict=True):
            check_rows(content, dict(one.parts))
        place, base = places(made, area), 22 + len(area)
        for spec in specs:
            assert {f"{spec.name}.{field}": at for field, at in spec.offsets(base).items()}.items() <= place.items()
            base += spec.nbytes


def check_rows(content: Any, parts: dict[str, bytes]) -> None:
    """The rows and actions of a group are the first n of each block."""
    spec, rows = content.spec, content.rows
    (n,) = struct.unpack("<i", parts["n"])
    found = {"reward": rows.rewards, "done": rows.done, "max_step": rows.max_step, "id": rows.ids, "mask": rows.masks}
    found |= {f"observation {number}": array for number, array in enumerate(rows.observations)}
    found["action"] = content.actions
    for field, array in found.items():
        if array is None:
            assert field == "mask" and field not in parts
            continue
        dtype = np.uint8 if array.dtype == bool else array.dtype
        block = np.frombuffer(parts[field], dtype).reshape(spec.agents, *array.shape[1:])
        assert np.array_equal(array, block[:n])


def patched(data: bytes, at: int, part: bytes) -> bytes:
    return data[:at] + part + data[at + len(part) :]


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


FAULTS = [
    ("length", 0, i32(21)),
    ("length", 0, i32(481)),
    ("version", 4, i32(1)),
    ("command", 9, b"\4"),
    ("capacity", 10, i32(3)),
    ("capacity", 10, i32(463)),
    ("message bytes", 14, i32(33)),
    ("messages", 34, i32(10)),
    ("groups", 50, i32(-1)),
    ("group 0.name", 54, b"\0"),
    ("group 0.name", 54, b"\6wal\x1fer"),
    ("group 0.name", 54, b"\5walker"),
    ("walker.agents", 118, i32(0)),
    ("walker.continuous", 122, b"\2"),
    ("walker.action size", 123, i32(-1)),
    ("chooser.action size", 366, i32(0)),
    ("chooser.branches", 370, i32(0)),
    ("walker.observation count", 127, i32(-1)),
    ("walker.shape 0", 131, i32(0)),
    ("walker.shape 0", 135, i32(0) + i32(2)),
    ("walker.n", 155, i32(4)),
    ("chooser.n", 406, i32(3)),
    ("walker.done", 256, b"\2"),
    ("walker.max_step", 260, b"\xff"),
    ("chooser.mask", 458, b"\3"),
]


@pytest.mark.parametrize(("field", "offset", "part"), FAULTS)
def test_a_fault_is_named_with_its_place(field: str, offset: int, part: bytes) -> None:
    data = patched(file_of(groups(), AREA, 29), offset, part)
    with pytest.raises(LayoutError) as caught:
        decode(data, source="link")
    assert (caught.value.field, caught.value.offset) == (field, offset)
    assert str(caught.value).startswith(f"link: byte {offset}: {field}: found ")


@pytest.mark.parametrize("size", [0, 1, 17, 21])
def test_short_file_is_refused(size: int) -> None:
    with pytest.raises(LayoutError, match="length"):
        decode(bytes(size))


def test_a_later_release_is_named() -> None:
    with pytest.raises(VersionError, match=r"release 0\.3\.x"):
        decode(i32(0) + i32(3) + bytes(30))


def test_two_groups_of_one_name_are_refused() -> None:
    rng = np.random.default_rng(0)
    twice = [Group(rng, "walker", 1, [(1,)], 1, None, 0) for _ in range(2)]
    with pytest.raises(LayoutError, match=r"walker\.name"):
        decode(file_of(twice))


def test_living_id_appears_once() -> None:
    data = file_of(groups(n=(3, 0)))
    at = places(groups())
    first = data[at["walker.id"] : at["walker.id"] + 4]
    twice = patched(data, at["walker.id"] + 8, first)
    with pytest.raises(LayoutError) as caught:
        decode(patched(twice, at["walker.done"], b"\0"))
    assert (caught.value.field, caught.value.offset) == ("walker.id", at["walker.id"] + 8)
    decode(patched(twice, at["walker.done"], b"\1"))  # the first row ends that life


def test_length_is_the_sum_of_the_parts() -> None:
    data = file_of(groups()) + bytes(5)
    decode(data)  # bytes beyond the length are ignored
    with pytest.raises(LayoutError, match="the sum of all parts"):
        decode(patched(data, 0, i32(len(data))))


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.long) for block in range(1, 34))])
def test_damaged_files_decode_or_raise_a_layout_error(block: int) -> None:
    rng = random.Random(block)
    tracemalloc.start()
    found = 0
    for number in range(100):
        data = bytearray(file_of(groups(number), AREA, 29, command=rng.choice((0, 0, 0, 1, 2, 3))))
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(data))
            if rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                data[at : at + 4] = i32(rng.choice((-1, 0, 1, 2**31 - 1, 2**24, rng.randrange(1000))))
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            decode(bytes(data))
        except LayoutError:
            found += 1
    assert found > 33
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()
