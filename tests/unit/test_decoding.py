"""Decoding of outputs: the distributions that are sampled, masks, bounds, contradicting descriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from arena.records.formats import Decoding
from arena.serving.decoding import Decoder

ROWS = 20_000
CHOICE = {"kind": "categorical", "n": 4, "start": 2, "shape": [], "dtype": "int64"}
BOX = {"shape": [2], "dtype": "float32", "low": [-1.0, "-inf"], "high": [3.0, "inf"]}


def decoder(**written: Any) -> Decoder:
    return Decoder(msgspec.convert(written, Decoding))


def sampled(decode: Decoder, *rows: list[float], masks: Any = None) -> Any:
    outputs = [np.tile(np.array(row, np.float32), (ROWS, 1)) for row in rows]
    tiled = None if masks is None else np.tile(np.array(masks, np.int8), (ROWS, 1))
    return decode(outputs, tiled, [np.random.default_rng(7)] * ROWS)


def shares(actions: Any, count: int) -> Any:
    return np.bincount(actions, minlength=count) / ROWS


def softmax(logits: list[float]) -> Any:
    return np.exp(logits) / np.exp(logits).sum()


def test_choices_follow_the_softmax_and_begin_at_start() -> None:
    logits = [0.0, 1.0, -1.0, 0.5]
    np.testing.assert_allclose(shares(sampled(decoder(**CHOICE), logits), 6)[2:], softmax(logits), atol=0.015)
    assert decoder(**CHOICE)([np.array([logits], np.float32)]).tolist() == [3]


def test_forbidden_choices_are_never_made() -> None:
    found = shares(sampled(decoder(**CHOICE), [0.0, 9.0, -1.0, 0.5], masks=[1, 0, 0, 1]), 6)[2:]
    np.testing.assert_allclose(found, [*softmax([0.0, 0.5])[:1], 0, 0, softmax([0.0, 0.5])[1]], atol=0.015)
    best = decoder(**CHOICE)([np.array([[0.0, 9.0, -1.0, 0.5]], np.float32)], np.array([[1, 0, 1, 0]]))
    assert best.tolist() == [2]


def test_epsilon_exploration_draws_among_allowed_actions() -> None:
    decode = decoder(**{**CHOICE, "kind": "values"}, epsilon=0.3)
    found = shares(sampled(decode, [5.0, 0.0, -3.0, 9.0], masks=[1, 1, 1, 0]), 6)[2:]
    np.testing.assert_allclose(found, [0.8, 0.1, 0.1, 0.0], atol=0.015)


def test_parts_of_a_choice_are_independent() -> None:
    decode = decoder(kind="multi_categorical", nvec=[2, 3], start=[0, 5], shape=[2, 1], dtype="int32")
    found = sampled(decode, [0.0, 1.0, 0.0, 2.0, 7.0], masks=[1, 1, 1, 1, 0])
    assert found.shape == (ROWS, 2, 1)
    assert found.dtype == np.int32
    np.testing.assert_allclose(shares(found[:, 0, 0], 2), softmax([0.0, 1.0]), atol=0.015)
    np.testing.assert_allclose(shares(found[:, 1, 0], 8)[5:], [*softmax([0.0, 2.0]), 0.0], atol=0.015)
    assert abs(np.corrcoef(found[:, 0, 0], found[:, 1, 0])[0, 1]) < 0.03


def test_flags_have_their_probabilities() -> None:
    decode = decoder(kind="bernoulli", shape=[3], dtype="int8")
    found = sampled(decode, [0.0, 2.0, -1.0])
    assert found.dtype == np.int8
    np.testing.assert_allclose(found.mean(0), 1 / (1 + np.exp([-0.0, -2.0, 1.0])), atol=0.015)


def test_gaussian_numbers_have_their_deviation_and_are_clipped() -> None:
    found = sampled(decoder(kind="gaussian", log_std=[0.0, float(np.log(2.0))], **BOX), [2.0, 5.0])
    assert found.dtype == np.float32
    np.testing.assert_allclose([found[:, 1].mean(), found[:, 1].std()], [5.0, 2.0], atol=0.05)
    assert found[:, 0].max() == 3.0
    np.testing.assert_allclose((found[:, 0] == 3.0).mean(), 0.1587, atol=0.015)
    still = decoder(kind="gaussian", log_std=["-inf", "-inf"], **BOX)
    assert np.unique(sampled(still, [2.0, 5.0]), axis=0).tolist() == [[2.0, 5.0]]


def test_gaussian_numbers_are_scaled_before_they_are_clipped() -> None:
    scale = {"middle": [1.0, 10.0], "half_width": [2.0, 100.0]}
    decode = decoder(kind="gaussian", log_std=["-inf", 0.0], **scale, **BOX)
    assert decode([np.array([[0.5, 0.25], [1.5, -1.0]], np.float32)]).tolist() == [[2.0, 35.0], [3.0, -90.0]]
    np.testing.assert_allclose(sampled(decode, [0.0, 0.0])[:, 1].std(), 100.0, rtol=0.02)


def test_squashed_numbers_are_scaled_to_the_bounds() -> None:
    bounds = {"shape": [1], "dtype": "float64", "low": [2.0], "high": [6.0]}
    decode = decoder(kind="squashed_gaussian", **bounds)
    found = sampled(decode, [0.5], [np.log(0.3)])
    expected = 4 + 2 * np.tanh(np.random.default_rng(0).normal(0.5, 0.3, 100_000))
    np.testing.assert_allclose([found.mean(), found.std()], [expected.mean(), expected.std()], atol=0.02)
    best = decode([np.array([[0.5]], np.float32), np.zeros((1, 1), np.float32)])
    np.testing.assert_allclose(best, 4 + 2 * np.tanh(0.5), rtol=1e-6)
    alone = decoder(kind="deterministic", **bounds)
    assert alone([np.array([[-1.0], [0.25], [1.0]])]).tolist() == [[2.0], [4.5], [6.0]]


def test_rows_are_sampled_independently() -> None:
    decode, logits = decoder(**CHOICE), np.zeros((6, 4), np.float32)
    whole = decode([logits], None, [np.random.default_rng(row) for row in range(6)])
    parts = [decode([logits[:1]], None, [np.random.default_rng(row)]) for row in range(6)]
    assert whole.tolist() == np.concatenate(parts).tolist()


@pytest.mark.parametrize(
    "written",
    [
        {**CHOICE, "shape": [2]},
        {"kind": "multi_categorical", "nvec": [2, 3], "start": [0], "shape": [2], "dtype": "int64"},
        {"kind": "gaussian", "log_std": [0.0], **BOX},
        {"kind": "deterministic", **{**BOX, "shape": [3]}},
    ],
)
def test_contradicting_descriptions_are_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="actions of the shape"):
        decoder(**written)
