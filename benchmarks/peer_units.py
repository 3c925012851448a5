"""The other side of `units.py`: entity-gym, rogue-net and enn-trainer, in an environment of their own.

    .venv-peers-units/bin/python benchmarks/peer_units.py act 64 3.0

Besides, `compare IN OUT` answers with given weights: reads arrays of a network of the arena and boards, writes logits
and values. `requirements-peers-units.txt` has the packages; `peer_modules` what they need beside.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parent / "peer_modules"))

from entity_gym.env import EnvList
from entity_gym.env.vec_env import VecCategoricalActionMask, VecSelectEntityActionMask
from entity_gym.examples import ENV_REGISTRY
from entity_gym.simple_trace import Tracer
from ragged_buffer import RaggedBufferBool, RaggedBufferF32, RaggedBufferI64
from rogue_net.rogue_net import RogueNet, RogueNetConfig

from unit_boards import LABELS, MINES, boards, rate

GAME = ENV_REGISTRY["MineSweeper"]


def game(lanes: int, seconds: float) -> float:
    """Steps of all environments with random allowed moves."""
    env = EnvList(GAME, lanes)
    space = env.env_cls().obs_space() if hasattr(env, "env_cls") else GAME().obs_space()
    seen = env.reset(space)
    rng = np.random.default_rng(0)

    def step() -> None:
        nonlocal seen
        move, fire = (seen.action_masks[name] for name in ("Move", "Fire Orbital Cannon"))
        mask = move.mask.as_array()
        chosen = np.where(mask, rng.random(mask.shape), -1.0).argmax(1)
        actions = {
            "Move": RaggedBufferI64.from_flattened(chosen.reshape(-1, 1), move.actors.size1()),
            "Fire Orbital Cannon": RaggedBufferI64.from_flattened(np.zeros((0, 1), np.int64), fire.actors.size1()),
        }
        seen = env.act(actions, space)

    return rate(step, lanes, seconds)


def network() -> RogueNet:
    """The network of the arena's defaults."""
    config = RogueNetConfig(d_model=64, n_layer=2, n_head=2, d_qk=16)
    made = GAME()
    net = RogueNet(config, made.obs_space(), made.action_space(), regression_heads={"value": 1})
    return net.eval()  # the statistics of inputs stay as they are: none


def given(rows: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Features, masks, and the decisions that were made."""
    board = boards(rows)
    mines, none = np.full(rows, MINES), np.zeros(rows, np.int64)
    features = {
        "Mine": RaggedBufferF32.from_flattened(board.mines, mines),
        "Robot": RaggedBufferF32.from_flattened(board.robots, board.counts),
        "Orbital Cannon": RaggedBufferF32.from_flattened(np.zeros((0, 1), np.float32), none),
    }
    place = np.arange(len(board.robots)) - np.repeat(np.cumsum(board.counts) - board.counts, board.counts)
    actors = RaggedBufferI64.from_flattened((MINES + place).reshape(-1, 1), board.counts)
    allowed = RaggedBufferBool.from_flattened(np.ones((len(place), LABELS), np.bool_), board.counts)
    empty = RaggedBufferI64.from_flattened(np.zeros((0, 1), np.int64), none)
    masks = {
        "Move": VecCategoricalActionMask(actors, allowed),
        "Fire Orbital Cannon": VecSelectEntityActionMask(empty, empty),
    }
    made = {
        "Move": RaggedBufferI64.from_flattened(board.moves.reshape(-1, 1), board.counts),
        "Fire Orbital Cannon": empty,
    }
    return features, masks, made


def act(rows: int, seconds: float) -> float:
    """Actions, their log-probabilities and entropies, and values of rows."""
    net, (features, masks, _), tracer = network(), given(rows), Tracer(False)

    @torch.no_grad()
    def ask() -> None:
        net.get_action_and_auxiliary(features, {}, masks, tracer)

    return rate(ask, rows, seconds)


def learn(rows: int, seconds: float) -> float:
    """Forward and backward."""
    net, (features, masks, made), tracer = network(), given(rows), Tracer(False)

    def step() -> None:
        _, log_probs, entropies, _, values, _ = net.get_action_and_auxiliary(features, {}, masks, tracer, made)
        loss = -log_probs["Move"].mean() - entropies["Move"].mean() + values["value"].square().mean()
        loss.backward()

    return rate(step, rows, seconds)


def ppo(told: dict[str, Any]) -> None:
    """Trains on Minesweeper, as `enn_trainer.train` does."""
    from enn_trainer import State, TrainConfig, init_train_state, train
    from hyperstate import StateManager

    config = f"""TrainConfig(
        version: 4,
        env: (id: "MineSweeper", kwargs: "{{}}", validate: false),
        net: (d_model: {told["d_model"]}, n_layer: 2, n_head: 2, d_qk: 16),
        optim: (lr: {told["learning_rate"]}, bs: {told["minibatch_size"]}, update_epochs: {told["n_epochs"]}),
        ppo: (ent_coef: 0.01, anneal_entropy: false),
        rollout: (steps: {told["n_steps"]}, num_envs: {told["lanes"]}),
        total_timesteps: {told["samples"]},
        cuda: false,
        seed: {told["seed"]},
    )"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.ron").write_text(config)
        manager = StateManager(TrainConfig, State, init_train_state, str(Path(folder) / "config.ron"))
        manager.config.data_dir = folder
        train(manager, GAME)


def compare(source: str, target: str) -> None:
    """Logits and values with the weights of a network of the arena."""
    weights = {name: torch.from_numpy(array) for name, array in np.load(source).items()}
    rows = int(weights.pop("rows"))
    net = network()
    state: dict[str, torch.Tensor] = {}

    def copied(theirs: str, ours: str) -> None:
        for part in ("weight", "bias"):
            state[f"{theirs}.{part}"] = weights[f"{ours}.{part}"]

    for number, name in enumerate(GAME().obs_space().entities):
        copied(f"embedding.embeddings.{name}.1", f"encoder.embeddings.{number}.linear")
        copied(f"embedding.embeddings.{name}.3", f"encoder.embeddings.{number}.norm")
    for block in range(2):
        theirs, ours = f"backbone.blocks.{block}", f"encoder.blocks.{block}"
        copied(f"{theirs}.ln1", f"{ours}.attention_norm")
        copied(f"{theirs}.ln2", f"{ours}.hidden_norm")
        copied(f"{theirs}.attn.proj", f"{ours}.out")
        copied(f"{theirs}.mlp.0", f"{ours}.hidden")
        copied(f"{theirs}.mlp.2", f"{ours}.down")
        for part in ("weight", "bias"):
            thirds = weights[f"{ours}.queries_keys_values.{part}"].chunk(3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                state[f"{theirs}.attn.{name}.{part}"] = third
    copied("action_heads.Move.proj", "actors.0.linear")
    copied("action_heads.Fire Orbital Cannon.query_proj", "actors.1.query")
    copied("action_heads.Fire Orbital Cannon.key_proj", "actors.1.key")
    copied("auxiliary_heads.value", "critic")
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected
    assert {name.rpartition(".")[2] for name in missing} == {"count", "mean", "squares_sum"}, missing
    features, masks, made = given(rows)
    robots = masks["Move"].actors  # fire at all mines, so that the selection is compared as well
    mines = np.tile(np.arange(MINES), rows).reshape(-1, 1)
    masks["Fire Orbital Cannon"] = VecSelectEntityActionMask(
        robots, RaggedBufferI64.from_flattened(mines, np.full(rows, MINES))
    )
    made["Fire Orbital Cannon"] = made["Move"]
    with torch.no_grad():
        _, _, _, _, values, logits = net.get_action_and_auxiliary(features, {}, masks, Tracer(False), made)
    fire = logits["Fire Orbital Cannon"]  # [rows, most robots, mines], normalized
    there = np.arange(fire.shape[1]) < robots.size1()[:, None]
    np.savez(
        target,
        move=logits["Move"].numpy(),
        fire=fire.numpy()[there],
        values=values["value"].numpy()[:, 0],
    )


CASES: dict[str, Callable[[int, float], float]] = {"minesweeper": game, "act": act, "learn": learn}

if __name__ == "__main__":
    torch.set_num_threads(1)
    command, *rest = sys.argv[1:]
    if command == "compare":
        compare(*rest)
    elif command == "ppo":
        ppo(json.loads(rest[0]))
    else:
        sys.stdout.write(json.dumps({"per CPU s": CASES[command](int(rest[0]), float(rest[1]))}) + "\n")
