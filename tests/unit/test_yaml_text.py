"""YAML in and out: plain data, numbers as YAML 1.2 reads them, errors that show the line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config import yaml
from arena.errors import ConfigError

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.sampled_from(
        ["3e-4", "1e5", "010", "12:30", "2024-01-01", "no", "~", "", "=", "<<", "0x1f", "1_000", ".5", "#a"]
    ),
)
plain_data = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abcxyz019.-_<~", max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=50)
@given(plain_data)
def test_dump_and_load_keep_values_and_types(data: Any) -> None:
    loaded = yaml.load(yaml.dump(data), source="test")
    assert loaded == data
    assert repr(loaded) == repr(data)  # 1 == 1.0 == True, but they are not the same


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.inf", float("inf")),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", 1000),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("e5", "e5"),
        ("=", "="),
        ("on", True),
        ("null", None),
        ("", None),
    ],
)
def test_plain_scalars_have_their_types(text: str, value: object) -> None:
    loaded = yaml.load(text, source="test")
    assert loaded == value
    assert type(loaded) is type(value)


def test_a_doubled_key_is_refused_and_both_lines_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'a' is given twice \(first in line 1\)") as caught:
        yaml.load("a: 1\nb: {c: 2}\na: 3\n", source="f.yaml")
    assert "line 3, column 1:\n    a: 3\n    ^" in str(caught.value)


def test_a_syntax_error_shows_the_line_with_a_caret() -> None:
    with pytest.raises(ConfigError) as caught:
        yaml.load("ticks: 5\nenvs: {a: [1, 2}\n", source="f.yaml")
    assert str(caught.value).startswith("f.yaml: ")
    assert "line 2, column 16:\n    envs: {a: [1, 2}\n                   ^" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system [ls]",
        "&a [*a]",
        "? [1, 2]\n: 3\n? {a: 1}\n: 4",
        "[" * 500,
        "a: \x00",
        "*unknown",
        "a: 1\n--- \nb: 2",
        "!!int x",
        "9" * 5000,
        "!!bool x",
        '"\\ud800"',
        '{"\\0": 1}',
        "0x" + "f" * 101,
    ],
)
def test_text_that_is_not_plain_data_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError):
        yaml.load(text, source="f.yaml")


def test_merge_keys_and_anchors_work() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}"
    assert yaml.load(text, source="test")["more"] == {"a": 1, "b": 3}


def laughs(levels: int, first: str = "[ha]", others: str = "[{}]") -> str:
    """Anchors of which each names the one before it nine times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {others.format(', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(("first", "others"), [("[ha]", "[{}]"), ("{k: v}", "{{<<: [{}]}}")], ids=["lists", "merges"])
def test_exponential_alias_expansion_is_refused(first: str, others: str) -> None:
    assert len(yaml.load(laughs(3, first, others), source="f.yaml")) == 3
    with pytest.raises(ConfigError, match="holds more than 100000 characters when its aliases are written out"):
        yaml.load(laughs(20, first, others), source="f.yaml")


def test_too_long_text_is_refused_before_it_is_read() -> None:
    assert yaml.load("#" * 100_000, source="f.yaml") is None
    with pytest.raises(ConfigError, match="longer than 100000 characters"):
        yaml.load("#" * 100_001, source="f.yaml")


def test_fifty_levels_are_read_and_more_are_refused() -> None:
    assert yaml.load("[" * 49 + "1" + "]" * 49, source="f.yaml")
    with pytest.raises(ConfigError, match="nested too deeply"):
        yaml.load("[" * 50 + "1" + "]" * 50, source="f.yaml")


@pytest.mark.parametrize("tag", ["binary", "timestamp", "set", "omap", "pairs", "value"])
def test_tag_beyond_plain_data_is_refused_with_its_place(tag: str) -> None:
    with pytest.raises(ConfigError, match=f"'tag:yaml.org,2002:{tag}' is no plain data\n  line 2, column 4:"):
        yaml.load(f"a: 1\nb: !!{tag} x", source="f.yaml")


def test_text_that_the_arena_wrote_has_any_length() -> None:
    data = {f"key{number}": ["value" * 100] * 4 for number in range(120)}
    text = yaml.WRITTEN + yaml.dump(data)
    assert len(text) > 2 * yaml.MOST_CHARACTERS
    assert yaml.load(text, source="config.yaml") == data


def test_bomb_that_claims_to_be_of_the_arena_is_refused() -> None:
    lines = [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 8)]
    with pytest.raises(ConfigError, match="aliases are written out"):
        yaml.load(yaml.WRITTEN + "\n".join([f"a0: &a0 {'x' * 100}", *lines]), source="config.yaml")
