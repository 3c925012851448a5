"""A policy's state as bytes: a JSON text for its structure and one `.npy` file for each array. No pickle.

    state  = None | bool | int | float | str | array | list | tuple | dict with keys str, int or bytes
    array  = numpy array or scalar, or a torch tensor, which comes back as a tensor on the CPU

In the JSON text, None, bool, int, str and finite floats stand for themselves and a list for a list. Everything else
is an object with one key:

    {"tuple": [...]}   {"dict": [[key, value], ...]}   {"float": "7ff8000000000000"}   bits of NaN and infinities
    {"bytes": "00ff"}          a key of a dict
    {"array": 3}       {"scalar": 3}                   the third array file; a scalar is an array without axes
    {"tensor": 3}              the same, of a tensor

Subclasses are saved as their base types: an OrderedDict comes back as dict, a named tuple as tuple.

Reading trusts nothing: the result needs no more memory than the bytes that are read, and no code is run.
"""

from __future__ import annotations

import importlib
import io
import math
import struct
from collections.abc import Sequence
from threading import Lock
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

# numpy reads headers with `ast`, which in Python 3.11 fails with a SystemError if two threads use it at a time, see
# CPython's issue 106905. Roles of one process load their states at the same time.
_ONE_AT_A_TIME = Lock()
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def encode(state: Any) -> tuple[Any, list[bytes]]:
    """The structure of a state, ready for `json.dumps`, and its arrays as `.npy` files.

    Raises:
        TypeError: a part of the state cannot be kept; the message says which and what to do.
    """
    arrays: list[bytes] = []
    return _encode(state, "state", arrays), arrays


def decode(structure: Any, arrays: Sequence[bytes], *, tensors: bool = True) -> Any:
    """The state that `encode` was given: equal bit for bit, arrays writable and with memory of their own.

    Tensors come back as such, which imports torch, or as arrays.

    Raises:
        ValueError: the structure is not one that `encode` makes, or an array is larger than its bytes.
    """
    left = iter(enumerate(arrays))

    def decoded(structure: Any) -> Any:
        if isinstance(structure, list):
            return [decoded(item) for item in structure]
        if not isinstance(structure, dict):
            return structure
        if len(structure) != 1:
            raise ValueError(f"an object with one key expected, got the keys {sorted(structure)}")
        ((kind, content),) = structure.items()
        if kind == "tuple":
            return tuple(decoded(item) for item in content)
        if kind == "dict":
            return {key_of(key): decoded(value) for key, value in content}
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        if kind not in ("array", "scalar", "tensor"):
            raise ValueError(f"unknown kind of value {kind!r}")
        # `encode` numbers the array files in order, so any other number is an error.
        place, file = next(left, (None, b""))
        if type(content) is not int or content != place:
            raise ValueError(f"array file {content!r} is named where {place} was to be expected")
        array = read_array(file)
        if kind == "tensor" and tensors:  # the algorithm that has saved it has torch; the processes of the arena do not
            return importlib.import_module("torch").from_numpy(array)
        return array[()] if kind == "scalar" else array

    def key_of(key: Any) -> str | int | bytes:
        if type(key) in (str, int):
            return key  # type: ignore[no-any-return]
        if not isinstance(key, dict) or list(key) != ["bytes"]:
            raise ValueError(f"a key of a dict is text, a whole number or bytes, got {key!r}")
        return bytes.fromhex(key["bytes"])

    return decoded(structure)


def read_array(content: bytes) -> NDArray[Any]:
    """The array that a `.npy` file holds.

    Raises:
        ValueError: it is no array file, or has objects, or its header asks for another number of bytes than follow.
    """
    try:
        with _ONE_AT_A_TIME:
            # Refuses an array file whose header asks for another number of bytes than follow it.
            file = io.BytesIO(content)
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError(f"an array file of version {version}, expected one of {sorted(_HEADERS)}")
            shape, _, dtype = _HEADERS[version](file)
            needs, has = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
            if not dtype.hasobject and needs != has:  # numpy refuses objects itself
                raise ValueError(f"an array file of shape {shape} and type {dtype} needs {needs} bytes, and has {has}")
            return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (SyntaxError, TokenError) as error:  # numpy tokenizes a header in the style of Python 2
        raise ValueError(f"an array file with a header that cannot be read: {error}") from error


def _encode(value: Any, where: str, arrays: list[bytes]) -> Any:
    if isinstance(value, np.generic):  # before float: a numpy.float64 is one
        return {"scalar": _store(np.asarray(value), where, arrays)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if isinstance(value, dict):
        return {"dict": [[_key(key, where), _encode(item, f"{where}[{key!r}]", arrays)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_encode(item, f"{where}[{index}]", arrays) for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.ndarray):
        return {"array": _store(value, where, arrays)}
    if not hasattr(value, "detach"):  # what every torch tensor has, tested without importing torch
        raise TypeError(
            f"{where}: a {type(value).__name__} cannot be kept in a checkpoint; allowed are None, bool, int, float, "
            "str, arrays, tensors, and lists, tuples and dicts of these"
        )
    if "bfloat16" in str(value.dtype):
        raise TypeError(
            f"{where}: a {value.dtype} tensor has no numpy form; save tensor.float() and turn it back after loading"
        )
    return {"tensor": _store(np.asarray(value.detach().cpu().numpy()), where, arrays)}


def _key(key: Any, where: str) -> str | int | dict[str, str]:
    if type(key) in (str, int):
        return key  # type: ignore[no-any-return]
    if type(key) is bytes:
        return {"bytes": key.hex()}
    raise TypeError(f"{where}: a key of a dict is a str, an int or bytes, got {key!r} of type {type(key).__name__}")


def _store(array: NDArray[Any], where: str, arrays: list[bytes]) -> int:
    if array.dtype.hasobject:
        raise TypeError(f"{where}: an array of Python objects cannot be kept in a checkpoint; save numbers")
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    arrays.append(file.getvalue())
    return len(arrays) - 1
