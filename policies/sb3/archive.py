"""Stable-Baselines3's save format, which its own `load` opens: written reproducibly, and read without unpickling.

    data                        JSON: what the model is made of; what JSON has no form for is a pickle in it
    policy.pth, ....pth         weights and optimizers, as torch saves them
    pytorch_variables.pth       other tensors
    _stable_baselines3_version

The library's `load` unpickles what is in `data`, so it executes any code that is in there. Here nothing is unpickled:
tensors are read by torch's loader of weights alone, and of `data` only the numbers. No member is compressed, nor are
those inside of the `.pth` files, so that nothing can grow beyond the archive's own size.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, NamedTuple

import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from arena.errors import ConfigError

_PASSING = (  # of no use in another process; some of it holds times, or memory addresses
    *("_total_timesteps", "_num_timesteps_at_start", "start_time"),
    *("_last_obs", "_last_episode_starts", "_last_original_obs", "ep_info_buffer", "ep_success_buffer"),
    *("batch_norm_stats", "batch_norm_stats_target", "actor_batch_norm_stats", "critic_batch_norm_stats"),
    *("actor_batch_norm_stats_target", "critic_batch_norm_stats_target"),
)
_OF_THE_MACHINE = "system_info.txt"
_PICKLE = (":type:", ":serialized:")  # beside them the library writes a description, with addresses in it


class Contents(NamedTuple):
    """What is read of an archive."""

    numbers: dict[str, int | float]  # of `data`
    parameters: dict[str, Any]  # state dicts of modules and optimizers by name, tensors on the CPU
    variables: dict[str, Any]  # other tensors by name


def pack(model: BaseAlgorithm, **instead: Any) -> bytes:
    """A model as the library saves it, with other values of some attributes; the same model gives the same bytes."""
    saved, packed = io.BytesIO(), io.BytesIO()
    original = {name: getattr(model, name) for name in instead}
    try:
        vars(model).update(instead)
        model.save(saved, exclude=_PASSING)
    finally:
        vars(model).update(original)
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            content: bytes | str = source.read(name)
            if name == "data":  # without the descriptions of what is pickled
                values = json.loads(content)
                for key, value in values.items():
                    if isinstance(value, dict) and _PICKLE[1] in value:
                        values[key] = {part: value[part] for part in _PICKLE}
                content = json.dumps(values, indent=1)
            if name != _OF_THE_MACHINE:
                target.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def unpack(archive: bytes) -> Contents:
    """Reads an archive. No code in it is run, and no more memory taken than it has bytes.

    Raises:
        ConfigError: it is none, or is damaged, or holds more than tensors and numbers where these should be.
    """
    try:
        members = _members(archive)
        data = json.loads(members.pop("data"))
        tensors = {}
        for name, content in members.items():
            if name.endswith(".pth"):
                _members(content)  # none is compressed
                tensors[name[:-4]] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        variables = tensors.pop("pytorch_variables", None) or {}
        numbers = {name: value for name, value in data.items() if type(value) in (int, float)}
        return Contents(numbers, tensors, variables)
    except Exception as error:  # whatever zip, JSON and torch raise for a file that is not an archive
        raise ConfigError(
            f"its archive of Stable-Baselines3 cannot be read: {type(error).__name__}: {error}"
        ) from error


def _members(archive: bytes) -> dict[str, bytes]:
    """The members of a zip file without compression."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        infos = opened.infolist()
        packed = any(info.compress_type != zipfile.ZIP_STORED for info in infos)
        if packed or sum(info.file_size for info in infos) > len(archive):
            raise ValueError("its members are larger than the file")
        return {info.filename: opened.read(info) for info in infos}
