"""`arena export`: its files, its refusals, and the findings of `--verify` in a changed file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import readme
from arena.cli.main import main
from arena.errors import ConfigError
from arena.records import checkpoint as checkpoints
from arena.records.formats import ModelTensor
from arena.serving import load_policy
from arena.serving.onnx_model import OnnxModel, load_model, sha256
from arena.serving.policy import load_algorithm
from command import Command
from in_process import one_match, play
from policies.exporting import Exported

pytestmark = pytest.mark.slow

PPO = {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [16], "normalize_observations": True, "learning_rate": 0.01}


def duel(**blue: Any) -> dict[str, Any]:
    """A recorded run of a learner, and of algorithms that cannot be exported."""
    game, gray = {"make": "touchdown", "kwargs": {"max_steps": 12}}, {"algorithm": "hppo", "options": {"n_steps": 16}}
    ppo = {"algorithm": "ppo", "options": PPO, **blue}
    matches = [{"env": "game", "seats": ["blue", "red"], "lanes": 4}, {"env": "game", "seats": ["gray", "red"]}]
    given = {"seed": 5, "checkpoint_every": 20, "record": "samples", "matches": matches}
    return one_match(game, {"blue": ppo, "red": {"algorithm": "random"}, "gray": gray}, ticks=60, **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose blue was exported."""
    folder = play(duel(), tmp_path_factory.mktemp("export")).folder.path
    assert main(["export", f"{folder}:blue", "--samples", "300"]) == 0
    return folder


@pytest.fixture
def model(run: Path) -> Any:
    """The exported model, which a test may change."""
    kept = run / "kept"
    folder = run / "models" / "blue" / "60"
    shutil.copytree(folder, kept)
    yield folder
    shutil.rmtree(folder)
    kept.rename(folder)


def changed(folder: Path, change: Callable[[onnx.ModelProto], None], *, known: bool = True) -> None:
    """Changes model.onnx; known: model.json has its sha256."""
    path, description = folder / "model.onnx", folder / "model.json"
    proto = onnx.load(path)
    change(proto)
    onnx.save(proto, path)
    if known:
        written = json.loads(description.read_bytes())
        description.write_text(json.dumps({**written, "onnx_sha256": sha256(path.read_bytes())}))


def test_export_writes_the_model_its_description_and_a_report(run: Path, command: Command) -> None:
    folder = run / "models" / "blue" / "60"
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.onnx", "report.json"]
    report, described = (json.loads((folder / name).read_bytes()) for name in ("report.json", "model.json"))
    assert (report["policy"], report["algorithm"], report["tick"], report["samples"]) == ("blue", "ppo", 60, 300)
    assert [(engine["name"], engine["verdict"]) for engine in report["engines"]] == [("eager", "ok"), ("onnx", "ok")]
    assert report["batch_sizes"] == [1, 7, 64]
    assert all(sorted(engine["latency_us"]) == ["1", "64", "7"] for engine in report["engines"])
    figures = report["engines"][1]["outputs"]
    assert [figure["name"] for figure in figures] == ["logits"]
    assert 0 < figures[0]["max_abs"] <= 1e-5
    assert report["chosen"] == described["engine"] == "onnx"
    assert report["engines"][1]["bytes"] == (folder / "model.onnx").stat().st_size
    checkpoint = run / "checkpoints" / "blue" / f"{60:012d}.ckpt"
    assert described["weights_sha256"] == sha256(checkpoint.read_bytes())
    assert described["onnx_sha256"] == sha256((folder / "model.onnx").read_bytes())
    assert described["inputs"] == [{"name": "observation_0", "dtype": "float32", "shape": [4], "path": []}]
    assert described["outputs"] == [{"name": "logits", "dtype": "float32", "shape": [5]}]
    assert described["memory"] == {"size": 0}
    assert described["decoding"] == {"kind": "categorical", "shape": [], "dtype": "int64", "n": 5, "start": 0}
    assert command("export", "--verify", folder) == (f"{folder}: fits its checkpoint\n", "")


PROGRAM = """
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["arena"])
given = np.load(sys.argv[2])
(logits,) = session.run([about["outputs"][0]["name"]], {about["inputs"][0]["name"]: given})
assert not {"arena", "torch", "policies"} & set(sys.modules)
print(json.dumps({"about": about, "actions": (logits.argmax(1) + about["decoding"]["start"]).tolist()}))
"""


def test_another_runtime_needs_the_file_alone(command: Command, run: Path, tmp_path: Path) -> None:
    folder, blue = run / "models" / "blue" / "60", load_policy(f"{run}:blue")
    observations = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.save(tmp_path / "given.npy", observations)
    command = [sys.executable, "-c", PROGRAM, str(folder / "model.onnx"), str(tmp_path / "given.npy")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["actions"] == blue.act(observations).tolist()
    described = json.loads((folder / "model.json").read_bytes())
    assert told["about"] == {name: value for name, value in described.items() if not name.endswith("_sha256")}


def test_code_of_the_page_plays_and_reads_a_model(run: Path, tmp_path: Path) -> None:
    files, folder = readme.PAGES["docs/models.md"].files(), tmp_path / "runs" / "duel" / "models" / "blue" / "1000"
    shutil.copytree(run / "models" / "blue" / "60", folder)
    done = subprocess.run(
        [sys.executable, "-c", files["other_runtime.py"]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "'observation_0'" in done.stdout, done.stderr
    assert "'kind': 'categorical'" in done.stdout
    code: dict[str, Any] = {}
    exec(files["play_model.py"], code)

    class Countdown(gymnasium.Env[Any, Any]):
        left = 5

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return np.zeros(4, np.float32), {}

        def step(self, action: Any) -> Any:
            assert action in range(5)
            self.left -= 1
            return np.full(4, self.left, np.float32), 1.0, self.left == 0, False, {}

    assert code["episode"](folder, Countdown()) == 5.0


def test_loaded_model_acts_as_the_policy(run: Path) -> None:
    model, blue = load_model(run / "models" / "blue" / "60"), load_policy(f"{run}:blue")
    observations = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    masks = np.ones((40, 5), np.int8)
    masks[:, 1:4] = 0
    none = np.zeros((40, 0), np.float32)
    actions, memory = model.act(observations, masks, none, None)
    assert actions.tolist() == blue.act(observations, masks).tolist()
    assert memory is none
    drawn, _ = model.act(observations, masks, none, [np.random.default_rng(row) for row in range(40)])
    again, _ = model.act(observations, masks, none, [np.random.default_rng(row) for row in range(40)])
    assert drawn.tolist() == again.tolist()
    assert {*drawn.tolist()} == {0, 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"image": np.zeros((2, 2), np.uint8)},
            "observations['image'] has the shape [2, 2]; expected [K, 2, 2], a row",
        ),
        ({"numbers": np.zeros((2, 3))}, "observations['numbers'] has the shape [2, 3]; expected [1, 3], a row"),
        ({"numbers": None}, "observations is a dict without 'numbers'"),
        (
            {"image": np.zeros((1, 2, 2))},
            "observations['image'] has the value 0.0 (float64; use integers), which uint8",
        ),
        ({"image": np.full((1, 2, 2), 256)}, "observations['image'] has the value 256 (int64), which uint8"),
    ],
)
def test_model_refuses_observations_that_do_not_fit_by_name(run: Path, change: dict[str, Any], words: str) -> None:
    exported = load_model(run / "models" / "blue" / "60")
    given = [("image", "uint8", (2, 2)), ("numbers", "float32", (3,))]
    inputs = tuple(ModelTensor(name, dtype, shape, (name,)) for name, dtype, shape in given)
    model = OnnxModel(msgspec.structs.replace(exported.file, inputs=inputs), exported._session)
    observations = {"image": np.zeros((1, 2, 2), np.uint8), "numbers": np.zeros((1, 3)), **change}
    shown = {name: part for name, part in observations.items() if part is not None}
    with pytest.raises(ValueError, match=re.escape(words)):
        model.act(shown, None, np.zeros((1, 0), np.float32), None)


# ------------------------------------------------------------------------------------------------------------ --verify


@pytest.fixture
def faults_in(command: Command) -> Callable[[Path], list[str]]:
    """What `--verify` finds in the model of a folder."""
    return lambda model: command("export", "--verify", model, code=1).err.splitlines()


def test_changed_weight_is_found_with_output_and_figure(faults_in: Callable[[Path], list[str]], model: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        bias = next(tensor for tensor in proto.graph.initializer if list(tensor.dims) == [5])
        values = numpy_helper.to_array(bias).copy()
        values[0] += 1e-2
        bias.CopyFrom(numpy_helper.from_array(values, bias.name))

    changed(model, change)
    (line,) = faults_in(model)
    assert "model.onnx: onnx: step 5, verify: output 'logits', batches of 1: max_abs 0.01, limit 1e-05" in line


def test_changed_file_is_found_by_its_sha256_as_well(faults_in: Callable[[Path], list[str]], model: Path) -> None:
    changed(model, lambda proto: setattr(proto, "producer_name", "another"), known=False)
    (line,) = faults_in(model)
    assert "model.onnx: its sha256 is not the onnx_sha256 of model.json" in line
    with pytest.raises(ConfigError, match="sha256"):
        load_model(model)


def test_renamed_output_is_found(faults_in: Callable[[Path], list[str]], model: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            node.output[:] = ["logitz" if name == "logits" else name for name in node.output]
        proto.graph.output[0].name = "logitz"

    changed(model, change)
    (line,) = faults_in(model)
    assert "its outputs are 'logitz' (float32 [5]); expected 'logits' (float32 [5])" in line
    with pytest.raises(ConfigError, match="'logitz'"):
        load_model(model)


def test_damaged_and_foreign_files_are_named_each_in_one_message(
    faults_in: Callable[[Path], list[str]], run: Path, model: Path, command: Command
) -> None:
    described, content = (model / "model.json").read_text(), (model / "model.onnx").read_bytes()
    checkpoint = run / "checkpoints" / "blue" / f"{60:012d}.ckpt"
    weights = checkpoint.read_bytes()
    foreign = onnx.load_model_from_string(content)
    del foreign.metadata_props[:]

    def lines(name: str, written: bytes | str, *, known: bool = False) -> list[str]:
        held = written if isinstance(written, bytes) else written.encode()
        (model / name).write_bytes(held)
        if known:
            (model / "model.json").write_text(json.dumps({**json.loads(described), "onnx_sha256": sha256(held)}))
        found = faults_in(model)
        (model / "model.json").write_text(described)
        (model / "model.onnx").write_bytes(content)
        return found

    assert "model.json: is damaged" in lines("model.json", "{")[0]
    assert "model.json: is damaged" in lines("model.json", described.replace('"n": 5', '"n": 6'))[0]
    assert "model.json: decoding: found" in lines("model.json", described.replace('"start": 0', '"start": 1'))[0]
    for wrong in (b"", b"nothing of the kind", content[: len(content) // 2]):
        (line,) = lines("model.onnx", wrong, known=True)
        assert "model.onnx: is damaged, or no ONNX file" in line
    (line,) = lines("model.onnx", foreign.SerializeToString(), known=True)
    assert "has no metadata 'arena'" in line
    (model / "model.onnx").unlink()
    assert "model.onnx: cannot be read" in faults_in(model)[0]
    (model / "model.onnx").write_bytes(content)
    try:
        checkpoint.write_bytes(weights[:-300] + bytes(300))
        (line,) = faults_in(model)
        assert "000000000060.ckpt: step 1, restore: is" in line
        checkpoint.write_bytes((run / "checkpoints" / "gray" / f"{60:012d}.ckpt").read_bytes())
        (line,) = faults_in(model)
        assert "000000000060.ckpt: step 1, restore: is a checkpoint of the policy 'gray': the file was replaced" in line
        other = checkpoints.load(checkpoint.with_name(f"{40:012d}.ckpt"))
        checkpoints.write(checkpoint, replace(other, boundary=60))
        found = faults_in(model)
        assert "000000000060.ckpt: its sha256 is not the weights_sha256" in found[0]
        assert "output 'logits', batches of 1: max_abs" in found[-1]
    finally:
        checkpoint.write_bytes(weights)
    command("export", "--verify", model)


# ------------------------------------------------------------------------------------------------------------- refusals


def test_engine_that_differs_is_exit_1_and_leaves_eager(
    run: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from policies.exporting import ExportedNetwork
    from policies.ppo import PPO

    class Sampled(ExportedNetwork):
        def forward(self, *inputs: Any) -> Any:
            (logits,) = super().forward(*inputs)
            return (logits + logits.new_empty(logits.shape).normal_(),)

    def exported(self: PPO) -> Exported:
        found = original(self)
        found.module.__class__ = Sampled
        return found

    original = PPO.exported
    monkeypatch.setattr(PPO, "exported", exported)
    folder = tmp_path / "sampled"
    words = ["--output", folder, "--samples", "256", "--batch", "1,64"]
    told = command("export", f"{run}:blue", *words, code=1).out
    assert "onnx: mismatch: step 5, verify: output 'logits', batches of 1: max_abs" in told
    assert "eager: mismatch: step 5, verify: output 'logits', batches of 64 and of 1: max_abs" in told
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "report.json"]
    report = json.loads((folder / "report.json").read_bytes())
    assert report["chosen"] == "eager"
    assert [engine["verdict"] for engine in report["engines"]] == ["mismatch", "mismatch"]
    assert json.loads((folder / "model.json").read_bytes())["onnx_sha256"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["{run}:red"],
            "the algorithm 'random' of 'red' cannot be exported: it has no exported(); see docs/dict-and-masks.md",
        ),
        (["{run}:bleu"], "there is no policy 'bleu'; did you mean 'blue'?"),
        (["{run}:blue@61"], "there is no checkpoint '61' of 'blue'"),
        (["{run}:blue", "--output", "{run}"], "holds other files"),
        (["{run}:blue", "--output", "{run}/nowhere/model"], "there is no folder"),
        (["{run}", "--output", "x", "--verify", "{run}/models/blue/60"], "--output: is not allowed with --verify"),
        (["{run}", "--hub", "x", "--verify", "{run}/models/blue/60"], "--hub: is not allowed with --verify"),
        (["{run}", "--episodes", "2", "--verify", "{run}/models/blue/60"], "--episodes: is not allowed with --verify"),
        ([], "name the policy of a run"),
    ],
)
def test_mistakes_are_exit_2_in_one_sentence(words: list[str], message: str, run: Path, command: Command) -> None:
    told = command("export", *(word.format(run=run) for word in words), code=2)
    assert told.out == ""
    assert told.err.startswith("arena: error: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_folders_that_are_missing_are_exit_2(tmp_path: Path, command: Command) -> None:
    assert "not a run folder" in command("export", f"{tmp_path}/gone:blue", code=2).err
    assert "there is no such folder" in command("export", "--verify", tmp_path / "gone", code=2).err
    error = command("export", tmp_path, "--policy", "blue", code=2).err
    assert "--policy has been removed: name the policy as RUN:POLICY@TICK" in error


def test_export_says_on_a_terminal_how_long_it_takes(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = command("export", f"{tmp_path}/gone:blue", code=2).err
    assert re.match(
        r"makes the ONNX file, compares and times it: about \d+ s for a small network\narena: error: ", told
    )


def test_missing_package_is_exit_2_and_names_the_extra(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    told = command("export", f"{run}:blue", code=2)
    remedy = "the extra 'onnx' brings it: pip install \"mpi-policy-arena[onnx]\""
    assert told.err == f"arena: error: ONNX files need onnxscript; {remedy}\n"


# ------------------------------------------------------------------------------------------------------------- restored


def test_first_and_older_checkpoints_have_their_own_weights(run: Path) -> None:
    loaded = [load_algorithm(run, "blue", label) for label in ("first", "20", "last")]
    assert [one.tick for one in loaded] == [0, 20, 60]
    weights = [next(one.algorithm.network.actor.parameters()).detach().numpy() for one in loaded]
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[2])


def test_policy_loaded_from_another_run_is_exported_from_its_copy(run: Path, tmp_path: Path) -> None:
    data = duel(load=str(run), frozen=True)
    data["policies"].pop("gray")
    data["matches"].pop()
    later = play({**data, "record": "nothing"}, tmp_path).folder.path
    loaded = load_algorithm(later, "blue", "last")
    assert (loaded.tick, loaded.checkpoint.parent) == (60, later / "loaded" / "blue")
    assert load_algorithm(later, "blue", "60").checkpoint == loaded.checkpoint


def test_actors_of_a_team_of_workers_are_restored(tmp_path: Path) -> None:
    options = {"learning_starts": 8, "batch_size": 4, "hidden_sizes": [8]}
    game = {"make": "touchdown", "kwargs": {"max_steps": 5, "team_size": 2}}
    policies = {"blue": {"algorithm": "maddpg", "options": options}, "red": {"algorithm": "random"}}
    seats = ["blue", "blue", "red", "red"]
    data = one_match(game, policies, seats=seats, ticks=20, match={"sides": [[0, 1], [2, 3]]})
    folder = play(data, tmp_path).folder.path
    exported = load_algorithm(folder, "blue", "last").algorithm.exported()
    assert exported.inputs[-1] == {"name": "entity", "dtype": "int64", "shape": (), "n": 2}
