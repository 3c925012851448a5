"""How far an engine's outputs are from the reference, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
        for where, own, expected in pairs:
            faults = []
            if own.dtype != expected.dtype or own.shape != expected.shape:
                faults = [f"{own.dtype} {list(own.shape)}, expected {expected.dtype} {list(expected.shape)}"]
            elif not np.isfinite(own).all():
                wrong = np.count_nonzero(~np.isfinite(own))
                faults = [f"{wrong} numbers are NaN or infinite, in the reference none is"]
            else:
                difference, size = np.abs(own.astype(np.float64) - expected), np.abs(expected.astype(np.float64))
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
                    both = zip(np.split(own, parts, -1), np.split(expected, parts, -1), strict=True)
                    agreements.append(min(float((one.argmax(-1) == best.argmax(-1)).mean()) for one, best in both))
                    if agreements[-1] < _AGREEMENT:
                        faults.append(f"agreement {agreements[-1]:.4f}, limit {_AGREEMENT:g}")
            problems += [f"output {name!r}, {where}: {fault}" for fault in faults]
        worst = max(largest, default=None), max(relatives, default=None), min(agreements, default=None)
        figures.append(OutputFigures(name, *worst))
    return Compared(tuple(figures), tuple(problems))
