"""Made-up games and minibatches of a team of three."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor

from fakes import ScriptedEnv
from policies.common.columns import to_leaves
from policies.common.replay import Transitions

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(4, start=-1)
SMALL = {"hidden_sizes": (16, 16), "batch_size": 16, "training_intensity": 16.0, "learning_starts": 4, "train_every": 1}
E = 3


def game(space: Any = VECTOR, actions: Any = CHOICE, *, lanes: int = 2, entities: int = E, **more: Any) -> ScriptedEnv:
    env = ScriptedEnv(space, actions, rows=lanes * entities, **more)
    env.seat_entities = tuple(f"entity_{index}" for index in range(entities))  # type: ignore[attr-defined]
    return env


def made_up(learner: Any, count: int, *, masked: bool = False, seed: int = 3) -> Transitions:
    """`count` joint transitions; some entities do not act, some have ended."""
    draw = torch.Generator().manual_seed(seed)
    space = learner.env.single_observation_space
    rows = batch_space(space, count * E)
    rows.seed(seed)

    def point() -> tuple[Tensor, ...]:
        acts = (torch.rand(count, E, generator=draw) < 0.8).to(torch.uint8)
        acts[:, 1] = 1
        leaves = [leaf.view(count, E, *leaf.shape[1:]) for leaf in to_leaves(space, rows.sample())]
        return *leaves, acts

    def mask() -> Tensor | None:
        allowed = torch.rand(count * E, learner.actions.mask_size or 1, generator=draw) < 0.6
        allowed[
            torch.arange(count * E), torch.randint(learner.actions.mask_size or 1, (count * E,), generator=draw)
        ] = True
        return allowed.view(count, -1) if masked else None

    now = mask()
    actions = learner.act_randomly(count * E, None if now is None else now.view(count * E, -1))
    return Transitions(
        observations=point(),
        masks=now,
        actions=actions.view(count, E, *learner.actions.shape),
        rewards=torch.randn(count, E, generator=draw),
        next_observations=point(),
        next_masks=mask(),
        discounts=0.9 * (torch.rand(count, E, generator=draw) < 0.8).float(),
        weights=0.5 + torch.rand(count, generator=draw),
        indices=torch.arange(count),
    )


def mask_of(masks: Tensor | None, index: int) -> Tensor | None:
    """The masks [N, mask_size] of one entity."""
    return None if masks is None else masks.view(len(masks), E, -1)[:, index]
