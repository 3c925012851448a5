"""How far an engine's outputs are from the reference, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.records.formats import Categorical, Decoding, MultiCategorical, OutputFigures, Values

Array = NDArray[Any]
Outputs = Mapping[int, Sequence[Array]]
"""By batch size: every output of all rows [N, ...]."""

_ABSOLUTE, _RELATIVE = 1e-5, 1e-4  # an element may differ by absolute + relative * |reference|
_L1_RELATIVE = 1e-5  # at most: sum of the differences / sum of the sizes of the reference
_AGREEMENT = 0.999  # at least: share of rows with the same best choice


class Compared(NamedTuple):
    """The figures of every output, and the problems: output, figure and limit of each."""

    figures: tuple[OutputFigures, ...]
    problems: tuple[str, ...]


def compare(found: Outputs, reference: Outputs, names: Sequence[str], decoding: Decoding) -> Compared:
    """Compares all outputs of all rows, for every batch size; and the rows of the largest batch with the smallest's."""
    figures, problems = [], []
    for index, name in enumerate(names):
        pairs = [(f"batches of {size}", found[size][index], reference[size][index]) for size in reference]
        least, most = min(reference), max(reference)
        if least != most:
            pairs.append((f"batches of {most} and of {least}", found[most][index], found[least][index]))
        each = []
        for where, own, expected in pairs:
            one = _figures(own, expected, name, decoding if index == 0 else None)
            if isinstance(one, str):
                problems.append(f"output {name!r}, {where}: {one}")
                continue
            each.append(one)
            excess = list(_excesses(one, own, expected))
            problems += [f"output {name!r}, {where}: {words}" for words in excess]
        figures.append(
            OutputFigures(
                name,
                max((one.max_abs for one in each if one.max_abs is not None), default=None),
                max((one.l1_relative for one in each if one.l1_relative is not None), default=None),
                min((one.agreement for one in each if one.agreement is not None), default=None),
            )
        )
    return Compared(tuple(figures), tuple(problems))


def _figures(found: Array, reference: Array, name: str, decoding: Decoding | None) -> OutputFigures | str:
    """How far an output is from its reference; a text where they cannot be compared."""
    if found.dtype != reference.dtype or found.shape != reference.shape:
        return f"{found.dtype} {list(found.shape)}, expected {reference.dtype} {list(reference.shape)}"
    wrong = ~np.isfinite(found)
    if wrong.any():
        return f"{np.count_nonzero(wrong)} numbers are NaN or infinite, in the reference none is"
    difference = np.abs(found.astype(np.float64) - reference)
    total, size = float(difference.sum()), float(np.abs(reference.astype(np.float64)).sum())
    relative = total / size if size else (math.inf if total else 0.0)
    agreement = None
    parts = _choices(decoding)
    if parts is not None:
        pairs = zip(np.split(found, parts, -1), np.split(reference, parts, -1), strict=True)
        agreement = min(float((own.argmax(-1) == best.argmax(-1)).mean()) for own, best in pairs)
    largest = float(difference.max(initial=0.0))
    return OutputFigures(name, largest, relative if math.isfinite(relative) else None, agreement)


def _excesses(figures: OutputFigures, found: Array, reference: Array) -> Iterator[str]:
    """Which limits the figures exceed; the largest relative error has none: it means nothing near 0."""
    difference = np.abs(found.astype(np.float64) - reference)
    if (difference > _ABSOLUTE + _RELATIVE * np.abs(reference.astype(np.float64))).any():
        yield f"max_abs {figures.max_abs:.3g}, limit {_ABSOLUTE:g} + {_RELATIVE:g} x |reference|"
    if figures.l1_relative is None or figures.l1_relative > _L1_RELATIVE:
        found_words = "infinite" if figures.l1_relative is None else f"{figures.l1_relative:.3g}"
        yield f"l1_relative {found_words}, limit {_L1_RELATIVE:g}"
    if figures.agreement is not None and figures.agreement < _AGREEMENT:
        yield f"agreement {figures.agreement:.4f}, limit {_AGREEMENT:g}"


def _choices(decoding: Decoding | None) -> Sequence[int] | None:
    """Where an output is cut into choices; None: it has none."""
    if isinstance(decoding, (Categorical, Values)):
        return []
    return np.cumsum(decoding.nvec)[:-1].tolist() if isinstance(decoding, MultiCategorical) else None
