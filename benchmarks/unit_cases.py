"""The arena's side of `units.py`: measures one case in this process and prints its figures as JSON.

    python benchmarks/unit_cases.py act 64 3.0

Rates are per CPU second of this process, with one thread of torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from arena import Ragged
from arena.registry import adapt_environment
from envs.minesweeper import SPACE
from policies.common.columns import RaggedTensor
from policies.networks.heads import UnitHead
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Transformer
from policies.networks.units.packing import Layout
from policies.random import batched_actor
from unit_boards import LABELS, MINES, boards, rate


def game(make: str, lanes: int, seconds: float) -> float:
    """Steps of all lanes with random allowed moves; observations are read as in a run."""
    env = adapt_environment(make, {}, lanes)
    (actions,) = env.interface.action_spaces
    act = batched_actor(actions, lanes, 0)
    frame = env.reset(np.ones(lanes, np.bool_), list(range(lanes)))

    def step() -> None:
        nonlocal frame
        stepped = env.step([act(frame.observations[0], {})])
        frame, over = stepped.frame, (stepped.terminated | stepped.truncated)[:, 0]
        if over.any():
            frame = env.reset(over)  # which shows the other lanes as they are

    return rate(step, lanes, seconds)


def network() -> UnitActorCritic:
    """The default network."""
    return UnitActorCritic(SPACE, UnitHead(SPACE.action_space), Transformer(), torch.Generator().manual_seed(0))


def arrays_of(rows: int) -> list[Ragged]:
    """What the game shows of boards."""
    given = boards(rows)
    mines = np.full(rows, MINES)
    actors = np.repeat(mines, given.counts) + Ragged(given.robots, given.counts).places()
    none = Ragged.empty(rows, np.int64)
    return [
        *(Ragged(given.mines, mines), Ragged(given.robots, given.counts), Ragged.empty(rows, np.float32, (1,))),
        *(Ragged(actors, given.counts), Ragged(np.ones((len(actors), LABELS), np.int8), given.counts), none, none),
    ]


def leaves(rows: int) -> tuple[list[RaggedTensor], RaggedTensor]:
    """The network's inputs for boards, and the decisions that were made."""
    given = boards(rows)
    made = np.stack([np.zeros_like(given.moves), given.moves], 1)
    return [RaggedTensor.of(one) for one in arrays_of(rows)], RaggedTensor.of(Ragged(made, given.counts))


def act(rows: int, seconds: float) -> float:
    """Actions, their log-probabilities and entropies, and values of rows."""
    net, arrays = network(), arrays_of(rows)
    numbers = torch.randint(2**62, (rows,))

    @torch.inference_mode()
    def ask() -> None:
        decisions, _ = net.policy_and_value([RaggedTensor.of(one) for one in arrays])
        decisions.log_prob(decisions.sample(numbers))
        decisions.entropy()

    return rate(ask, rows, seconds)


def learn(rows: int, seconds: float) -> float:
    """Forward and backward."""
    net, (seen, made) = network(), leaves(rows)

    def step() -> None:
        decisions, values = net.policy_and_value(seen)
        loss = -decisions.log_prob(made).mean() - decisions.entropy().mean() + values.square().mean()
        loss.backward()

    return rate(step, rows, seconds)


def attention(padded: bool, seconds: float) -> float:
    """Attention of 512 rows of 4 tokens, of which one in twenty has 64: packed, or padded to the longest."""
    lengths = np.where(np.arange(512) % 20 == 0, 64, 4)
    total, width = int(lengths.sum()), int(lengths.max())
    tokens = torch.randn(total, 192)
    layout = Layout(lengths, None, torch.device("cpu"))
    inside = np.arange(width) < lengths[:, None]
    places = torch.from_numpy(np.flatnonzero(inside))
    mask = torch.from_numpy(np.where(inside[:, None, None, :], np.float32(0), np.float32(-np.inf)))

    def attended(packed: Tensor, blocked: Tensor | None) -> Tensor:
        q, k, v = packed.view(*packed.shape[:2], 3, 2, 32).permute(2, 0, 3, 1, 4).unbind()
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=blocked).transpose(1, 2).flatten(2)

    @torch.inference_mode()
    def ask() -> None:
        if padded:
            filled = torch.zeros(512 * width, 192).index_copy_(0, places, tokens).view(512, width, 192)
            attended(filled, mask).flatten(0, 1).index_select(0, places)
        else:
            layout.unpack(attended(layout.pack(tokens), layout.mask))

    return rate(ask, 1, seconds)


CASES: dict[str, Callable[[int, float], float]] = {
    "minesweeper": lambda lanes, seconds: game("minesweeper", lanes, seconds),
    "adapted": lambda lanes, seconds: game("entity_gym.examples.minesweeper:MineSweeper", lanes, seconds),
    "act": act,
    "learn": learn,
    "packed": lambda _, seconds: attention(False, seconds),
    "padded": lambda _, seconds: attention(True, seconds),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps({"per CPU s": CASES[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]))}) + "\n")
