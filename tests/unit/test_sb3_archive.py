"""The library's save format: what its own `load` opens, the same every time, and read without running anything."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import stable_baselines3
import torch

from arena.errors import ConfigError
from policies.sb3.archive import pack, unpack


def model(name: str) -> Any:
    game = "CartPole-v1" if name != "SAC" else "Pendulum-v1"
    more = {} if name == "A2C" else {"buffer_size": 9}
    return getattr(stable_baselines3, name)("MlpPolicy", game, seed=3, device="cpu", **more)


def changed(archive: bytes, change: Callable[[str, bytes], bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with other members."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(file, "w", kind) as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return file.getvalue()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["A2C", "DQN", "SAC"])
def test_library_opens_the_archive_which_is_always_the_same(name: str, tmp_path: Path) -> None:
    packed, same = model(name), model(name)
    packed.num_timesteps = same.num_timesteps = 77
    archive = pack(packed)
    assert archive == pack(same)
    found = unpack(archive)
    assert found.parameters.keys() == packed.get_parameters().keys()
    assert ("log_ent_coef" in found.variables) == (name == "SAC")
    (tmp_path / "model.zip").write_bytes(archive)
    opened = getattr(stable_baselines3, name).load(tmp_path / "model.zip", device="cpu")
    mine, theirs = packed.policy.state_dict(), opened.policy.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert all(torch.equal(mine[key], found.parameters["policy"][key]) for key in mine)
    assert opened.num_timesteps == 77
    assert opened.learning_rate == packed.learning_rate
    seen = packed.observation_space.sample()
    np.testing.assert_array_equal(
        opened.predict(seen, deterministic=True)[0], packed.predict(seen, deterministic=True)[0]
    )


def test_a_pickle_in_the_data_is_not_opened_here_but_by_the_library(tmp_path: Path) -> None:
    trap = base64.b64encode(cloudpickle.dumps(Trap(tmp_path / "sprung"))).decode()

    def add(name: str, content: bytes) -> bytes:
        bad = {":type:": "harmless", ":serialized:": trap}
        return json.dumps({**json.loads(content), "gamma": bad}).encode() if name == "data" else content

    archive = changed(pack(model("A2C")), add)
    assert "gamma" not in unpack(archive).numbers
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "model.zip").write_bytes(archive)
    stable_baselines3.A2C.load(tmp_path / "model.zip", device="cpu")
    assert (tmp_path / "sprung").exists(), "the trap works"


def spoilt_by_pickle(path: Path) -> Callable[[str, bytes], bytes]:
    def spoil(name: str, content: bytes) -> bytes:
        if name != "policy.pth":
            return content
        file = io.BytesIO()
        torch.save({"weights": Trap(path)}, file)
        return file.getvalue()

    return spoil


def test_a_pickle_in_the_place_of_weights_is_refused_and_not_opened(tmp_path: Path) -> None:
    archive = changed(pack(model("A2C")), spoilt_by_pickle(tmp_path / "sprung"))
    with pytest.raises(ConfigError, match="cannot be read"):
        unpack(archive)
    assert not (tmp_path / "sprung").exists()


def squeezed(name: str, content: bytes) -> bytes:
    """Weights whose own file is packed."""
    return changed(content, lambda _, inner: inner, zipfile.ZIP_DEFLATED) if name == "policy.pth" else content


@pytest.mark.parametrize(
    "spoil",
    [
        lambda archive: b"",
        lambda archive: b"no zip file at all",
        lambda archive: archive[: len(archive) // 2],
        lambda archive: changed(archive, lambda _, content: content, zipfile.ZIP_DEFLATED),
        lambda archive: changed(archive, squeezed),
        lambda archive: changed(archive, lambda name, content: b"[" if name == "data" else content),
        lambda archive: changed(archive, lambda name, content: pickle.dumps(1) if "policy" in name else content),
    ],
    ids=["empty", "text", "cut", "packed", "weights packed", "no JSON", "no weights"],
)
def test_file_that_is_no_archive_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ConfigError, match=r"archive of Stable-Baselines3 cannot be read"):
        unpack(spoil(pack(model("A2C"))))
