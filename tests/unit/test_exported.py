"""`exported()`: with the decoding, a policy's network makes the actions that its `actor` makes; as ONNX file too."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from arena import registry
from arena.game.spaces import mask_size
from arena.preflight.spec import spec_of
from arena.records.formats import Decoding, ModelFile
from arena.serving.decoding import Decoder
from arena.serving.export import Engine, onnx_engine
from arena.serving.onnx_model import describe
from arena.serving.verification import compare
from exporting import ACTIONS, CASES, algorithm_of, inputs_of, observations_of
from policies.exporting import eager

NETWORKS = ("mlp", "image", "dict")
BATCH_SIZES = (1, 7, 64)
RECURRENT = [("ppo", "gru"), ("ppo", "lstm"), ("a2c", "gru"), ("a2c", "lstm"), ("dqn", "gru"), ("sac", "lstm")]


def decoder_of(exported: Any) -> Decoder:
    return Decoder(msgspec.convert(msgspec.json.decode(msgspec.json.encode(exported.decoding)), Decoding))


def description_of(exported: Any) -> ModelFile:
    return describe(exported, policy="blue", algorithm="any", tick=0, run=".", engine="onnx")


def test_the_exporting_algorithms_are_known() -> None:
    cases = {name for name, _ in CASES}
    assert {name for name in registry.ALGORITHMS if spec_of(registry.algorithm(name)).exports} == cases
    assert {"hppo", "random", "scripted", "sb3:PPO"} & cases == set()


@pytest.mark.parametrize(
    ("name", "actions", "observation"),
    [
        *((*case, "mlp") for case in CASES),
        *((*case, observation) for case in dict(CASES).items() for observation in ("image", "dict")),
    ],
)
def test_decoded_outputs_are_the_greedy_actions_of_the_actor(name: str, actions: str, observation: str) -> None:
    algorithm, rows = algorithm_of(name, observation, actions), 16
    exported, infos, masks = algorithm.exported(), {}, None
    if size := mask_size(ACTIONS[actions]):
        masks = np.random.default_rng(1).integers(2, size=(rows, size)).astype(np.int8)
        masks[:, np.cumsum([0, 2, 3, 4] if actions == "choices" else [0])] = 1  # each choice has something to choose
        infos = {"action_mask": masks}
    outputs = eager(exported)(inputs_of(exported, observation, rows))
    expected = algorithm.actor(greedy=True)(observations_of(observation, rows), infos)
    found = decoder_of(exported)(outputs, masks)
    assert found.dtype == ACTIONS[actions].dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert len(np.unique(expected, axis=0)) > 1 or observation == "image" or actions == "flags"


@pytest.mark.parametrize(
    ("name", "actions", "kind"),
    [
        *(("ppo", "choice", kind) for kind in ("gru", "lstm")),
        *(("dqn", "choice", "lstm"), ("sac", "choice", "gru"), ("sac", "numbers", "lstm"), ("td3", "numbers", "gru")),
        *(("masac", "numbers", "lstm"), ("qmix", "choice", "gru")),
    ],
)
def test_memory_is_an_input_and_an_output(name: str, actions: str, kind: str) -> None:
    algorithm = algorithm_of(name, "mlp", actions, recurrent=kind, hidden_size=8)
    exported, actor = algorithm.exported(), algorithm.actor(greedy=True)
    run, decode = eager(exported), decoder_of(exported)
    memory, entities = np.zeros((6, algorithm.memory_size), np.float32), []
    if exported.inputs[-1]["name"] == "entity":
        entities = [np.arange(6) % 2]
    for tick in range(4):
        seen = observations_of("mlp", 6, seed=tick)
        outputs = run([seen, memory, *entities])
        memory = outputs[-1]
        np.testing.assert_allclose(decode(outputs), actor(seen, {}), rtol=1e-6, atol=1e-6)
    assert np.abs(memory).max() > 0.05


def test_exported_network_is_unchanged_by_later_learning() -> None:
    algorithm = algorithm_of("ppo", "mlp", "choice")
    exported, inputs = algorithm.exported(), [observations_of("mlp", 3)]
    before = eager(exported)(inputs)[0]
    for parameter in algorithm.network.parameters():
        parameter.data.add_(1.0)
    assert np.array_equal(eager(exported)(inputs)[0], before)


# ----------------------------------------------------------------------------------------------------------------- ONNX


def compared(exported: Any, engine: Engine, name: str) -> Any:
    """Largest differences from eager, in batches of 1, 7 and 64."""
    reference, arrays, outputs = eager(exported), inputs_of(exported, name, 64), ({}, {})
    for size in BATCH_SIZES:
        for run, into in zip((engine.run, reference), outputs, strict=True):
            parts = [run([array[start : start + size] for array in arrays]) for start in range(0, 64, size)]
            into[size] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    file = description_of(exported)
    return compare(*outputs, [output.name for output in file.outputs], file.decoding)


def onnx_of(exported: Any) -> Engine:
    return onnx_engine(exported, description_of(exported))


def check_onnx(algorithm: Any, observation: str) -> None:
    exported = algorithm.exported()
    found = compared(exported, onnx_of(exported), observation)
    assert found.problems == ()
    assert max(one.max_abs for one in found.figures) <= 1e-5


@pytest.mark.slow
def test_onnx_file_of_a_memory_gives_the_outputs_of_the_module() -> None:
    check_onnx(algorithm_of("ppo", "mlp", "numbers", recurrent="lstm"), "mlp")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "actions", "options"),
    [*((*case, {}) for case in CASES), *((name, "choice", {"recurrent": kind}) for name, kind in RECURRENT)],
)
@pytest.mark.parametrize("observation", NETWORKS)
def test_onnx_files_of_all_networks_give_their_outputs(
    name: str, actions: str, options: dict[str, Any], observation: str
) -> None:
    check_onnx(algorithm_of(name, observation, actions, **options), observation)


@pytest.mark.long
@pytest.mark.parametrize("name", ["maddpg", "masac", "qmix"])
@pytest.mark.parametrize(("shared", "kind"), [(True, None), (False, None), (False, "gru")])
def test_onnx_files_of_teams_have_an_actor_for_each_entity(name: str, shared: bool, kind: str | None) -> None:
    algorithm = algorithm_of(name, "mlp", "choice", shared_actor=shared, recurrent=kind)
    check_onnx(algorithm, "mlp")
    exported = algorithm.exported()
    *seen, _ = inputs_of(exported, "mlp", 1)
    logits = [eager(exported)([*seen, np.array([entity])])[0] for entity in range(2)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


@pytest.mark.slow
def test_onnx_file_of_qmix_ignores_the_state() -> None:
    algorithm = algorithm_of("qmix", "dict", "choice", state="position")
    check_onnx(algorithm, "dict")
    exported = algorithm.exported()
    arrays = inputs_of(exported, "dict", 5)
    before = eager(exported)(arrays)[0]
    (place,) = (number for number, one in enumerate(exported.inputs) if one.get("path") == ("position",))
    arrays[place] = arrays[place] + 1
    np.testing.assert_array_equal(eager(exported)(arrays)[0], before)


def test_spaces_are_exported_with_the_dtypes_of_their_leaves() -> None:
    exported = algorithm_of("ppo", "dict", "choice").exported()
    assert [(given["dtype"], given["path"]) for given in exported.inputs] == [
        ("int64", ("parts", 0)),
        ("int64", ("parts", 1)),
        ("int8", ("parts", 2)),
        ("float32", ("parts", 3)),
        ("uint8", ("picture",)),
        ("float64", ("position",)),
    ]
