"""The results of a group's collectives: pure functions of the members' payloads.

Sums are taken in double precision and in the order of the group ranks, so their bits do not depend on where the members
run.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.errors import GroupError

Parts: TypeAlias = Mapping[int, memoryview]
"""Group rank -> payload, in ascending order; at least one."""

_HEAD = struct.Struct("<dqq")  # weight, number of scalars (float64), number of gradient values (float32)
_TABLE = struct.Struct("<qq")  # rows, bytes of names
_TEAM = struct.Struct("<q")  # its number
_CHUNK = 16384  # values summed at once: two float64 arrays of this size stay in the L2 cache


class Weighted(NamedTuple):
    """Numbers and gradient values of one member, or their means over several."""

    weight: float
    scalars: NDArray[np.float64]  # [k]
    values: NDArray[np.float32]  # [n]

    @classmethod
    def read(cls, payload: Any) -> Weighted:
        """Reads a payload; the arrays are views of it."""
        weight, n_scalars, n_values = _HEAD.unpack_from(payload)
        offset = _HEAD.size
        return cls(
            weight,
            np.frombuffer(payload, np.float64, n_scalars, offset),
            np.frombuffer(payload, np.float32, n_values, offset + 8 * n_scalars),
        )


def weighted_head(weight: float, scalars: NDArray[np.float64], n_values: int) -> bytes:
    """The beginning of a weighted payload; the values follow."""
    return _HEAD.pack(weight, scalars.size, n_values) + scalars.tobytes()


def average(parts: Parts, out: memoryview) -> None:
    """The weighted means of scalars and values, with the sum of the weights; zeros if all weights are 0.

    A member with weight 0 is left out, also if its values are NaN.

    Args:
        parts: each a `weighted_head` and its values.
        out: the result, a payload of the same size.

    Raises:
        GroupError: the parts differ in size.
    """
    _check_sizes(parts)
    _, n_scalars, n_values = _HEAD.unpack_from(next(iter(parts.values())))
    weighted = [part for part in map(Weighted.read, parts.values()) if part.weight != 0.0]
    weights = [part.weight for part in weighted]
    total = _sum(weights)
    scalars = np.zeros(n_scalars)
    _mean([part.scalars for part in weighted], weights, total, scalars)
    head = weighted_head(total, scalars, n_values)
    _mean([part.values for part in weighted], weights, total, np.frombuffer(out, np.float32, n_values, len(head)))
    out[: len(head)] = head


def _check_sizes(parts: Parts) -> None:
    sizes = {_HEAD.unpack_from(part)[1:] for part in parts.values()}
    if len(sizes) > 1:
        raise GroupError(f"the workers average different numbers of (scalars, gradient values): {sorted(sizes)}")


def _sum(numbers: Iterable[float]) -> float:
    total = 0.0
    for number in numbers:  # the built-in `sum` compensates for rounding from Python 3.12 on: other bits
        total += number
    return total


@cache
def _scratch() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.empty(_CHUNK), np.empty(_CHUNK)


def _mean(arrays: Sequence[NDArray[Any]], weights: Sequence[float], total: float, out: NDArray[Any]) -> None:
    """Writes sum(w_i x_i) / total into `out`; zeros if there are no arrays."""
    if not arrays:
        out[:] = 0.0
        return
    whole, product = _scratch()
    for start in range(0, out.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, out.size))
        mean, term = whole[: part.stop - start], product[: part.stop - start]
        mean[:] = arrays[0][part]
        mean *= weights[0]
        for array, weight in zip(arrays[1:], weights[1:], strict=True):
            term[:] = array[part]
            term *= weight
            mean += term
        mean /= total
        out[part] = mean


def describe(values: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """One member's values [n] as (count, mean, sum of squared deviations, largest count of a member)."""
    if not values.size:
        return 0.0, 0.0, 0.0, 0.0
    mean = float(values.mean())
    return float(values.size), mean, float(((values - mean) ** 2).sum()), float(values.size)


def table(names: Sequence[str], rows: Sequence[Sequence[float]]) -> bytes:
    """A payload with rows of `describe` and the names of the arrays."""
    text = "\n".join(names).encode()
    return _TABLE.pack(len(rows), len(text)) + np.array(rows, np.float64).tobytes() + text


def rows_of(payload: Any) -> NDArray[np.float64]:
    """The rows [k, 4] of a `table`."""
    count, _ = _TABLE.unpack_from(payload)
    return np.frombuffer(payload, np.float64, 4 * count, _TABLE.size).reshape(-1, 4)


def _names_of(payload: Any) -> str:
    count, length = _TABLE.unpack_from(payload)
    start = _TABLE.size + 32 * count
    return bytes(payload[start : start + length]).decode()


def moments(parts: Parts) -> bytes:
    """Merges tables of `describe` row by row, by the formula of Chan, Golub and LeVeque (1979).

    Raises:
        GroupError: the parts describe arrays of different names.
    """
    names = {rank: _names_of(part) for rank, part in parts.items()}
    if len(set(names.values())) > 1:
        asked = "; ".join(f"worker {rank} {text.splitlines()}" for rank, text in names.items())
        raise GroupError(f"the workers ask for the moments of different arrays: {asked}")
    merged = np.zeros_like(rows_of(next(iter(parts.values()))))
    for part in parts.values():
        for row, other in zip(merged, rows_of(part).tolist(), strict=True):
            row[:] = _merge(row.tolist(), other)
    return table(next(iter(names.values())).split("\n"), merged.tolist())


def _merge(left: Sequence[float], right: Sequence[float]) -> Sequence[float]:
    count, mean, squares, most = left
    n, its_mean, its_squares, its_most = right
    if not n:
        return left
    delta, both = its_mean - mean, count + n
    return both, mean + delta * n / both, squares + its_squares + delta * delta * count * n / both, max(most, its_most)


def maximum(parts: Parts) -> bytes:
    """The maximum of one float64 per part; NaN if any is NaN."""
    values = np.array([np.frombuffer(part, np.float64)[0] for part in parts.values()])
    return bytes(values.max().tobytes())


def collect(parts: Parts) -> bytes:
    """A list of all samples."""
    return dump([pickle.loads(part) for part in parts.values()])


def of_team(team: int, samples: Any) -> bytes:
    """A payload with samples for a team."""
    return _TEAM.pack(team) + dump(samples)


def collect_teams(parts: Parts) -> dict[int, bytes]:
    """Group rank -> a list of the samples of all members of its team."""
    teams: dict[int, dict[int, memoryview]] = {}
    for rank, part in parts.items():
        teams.setdefault(_TEAM.unpack_from(part)[0], {})[rank] = part[_TEAM.size :]
    found = {}
    for samples in teams.values():
        found.update(dict.fromkeys(samples, collect(samples)))
    return found


def dump(value: Any) -> bytes:
    """A container of arrays as bytes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def from_root(parts: Parts) -> bytes:
    """The payload of rank 0; empty if it has left."""
    return bytes(parts.get(0, b""))


def equal(parts: Parts) -> bytes:
    """Empty, if all parts, hashes of the members' weights, are equal.

    Raises:
        GroupError: they differ.
    """
    digests = {rank: bytes(part) for rank, part in parts.items()}
    first = next(iter(digests.values()))
    others = [rank for rank, digest in digests.items() if digest != first]
    if others:
        raise GroupError(f"the weights of workers {others} differ from those of worker {next(iter(digests))}")
    return b""
