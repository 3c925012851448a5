"""Demonstrations: observations and actions from the recorded samples of a run (`record: samples`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Tensor

from arena.dataset.reader import Samples, open_dataset
from arena.errors import ConfigError, located
from arena.game.ragged import Ragged
from arena.game.spaces import unflatten
from arena.game.units import UnitSpace
from policies.common.columns import Columns, RaggedTensor, kept_leaves, stored_leaves
from policies.networks.heads import FORBIDDEN, ActionHead
from policies.networks.units.tokens import allowed_rows


class Demonstrations(Columns, frozen=True):
    """Decisions of a policy; `N` of them."""

    actions: Any  # [N, ...] as learned from, see `policies.networks.heads`
    weights: Tensor | None = None  # [N] with units, of each decision: 1 / (mean number of decisions)


def open_demonstrations(path: str, policy: str | None) -> Samples:
    """The samples at a path; only their manifests are read. `ConfigError`: none, or the policy has not played."""
    with located(path="options.data"):
        samples = open_dataset(path)
    if policy is not None:
        with located(path="options.policy"):
            samples.entity(policy)
    return samples


def check_demonstrations(path: str, policy: str | None) -> None:
    """Reads and checks all samples before any match starts."""
    samples = open_demonstrations(path, policy)
    with located(path="options.data"):
        samples.check(policy)


def check_spaces(samples: Samples, policy: str | None, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Checks that an entity has played with these spaces, and every entity of `policy`."""
    played = {
        (entity.policy, entity.observation_space == observation_space and entity.action_space == action_space)
        for match in samples.matches
        for entity in match.entities
        if policy in (None, entity.policy)
    }
    if not any(alike for _, alike in played) or (policy is not None and (policy, False) in played):
        raise ConfigError(
            f"{samples.path} has samples of {', '.join(sorted({name for name, _ in played}))}, but not with the spaces "
            f"of this seat, observations {observation_space} and actions {action_space}",
            path="options.data",
        )


def demonstrations(
    samples: Samples,
    policy: str | None,
    space: Space[Any],
    head: ActionHead,
    action_space: Space[Any],
    *,
    share: int = 0,
    shares: int = 1,
) -> Demonstrations:
    """Every `shares`-th decision of a policy from the one numbered `share` on; None: of all with these spaces.

    Turns without an action of the policy are left out, and so are actions that the mask of their turn forbids.
    `ConfigError`: a part is damaged, or there is no action.
    """
    taken: list[Demonstrations] = []
    count = choices = 0
    for match in samples.matches:
        entities = [
            index
            for index, entity in enumerate(match.entities)
            if policy in (None, entity.policy)
            and (entity.observation_space, entity.action_space) == (space, action_space)
        ]
        for part in match.parts() if entities else ():
            for entity in entities:
                acted, mask = part.acted[:, :, entity], part.masks[entity]
                observed, played = (  # rows [N, ...] of leaves [T, L, ...]
                    [leaf[acted.ravel() if isinstance(leaf, Ragged) else acted] for leaf in leaves[entity]]
                    for leaves in (part.observations, part.actions)
                )
                observations = tuple(stored_leaves(kept_leaves(space), observed))
                actions = head.from_env(unflatten(action_space, played))
                decisions = Demonstrations(observations, None, actions)
                if isinstance(space, UnitSpace):
                    decided = allowed_rows(space, observations, actions) & (actions.lengths > 0)
                    decisions = decisions.take(torch.from_numpy(np.flatnonzero(decided)))
                elif mask is not None and head.mask_size:
                    masks = torch.from_numpy(mask[acted].astype(np.bool_))
                    decisions = decisions.replace(masks=masks)
                    log_probs = head.distribution(torch.zeros(len(actions), head.outputs), masks).log_prob(actions)
                    allowed = log_probs > FORBIDDEN / 2
                    decisions = decisions if bool(allowed.all()) else decisions.take(allowed.nonzero().squeeze(1))
                taken.append(decisions.take(torch.arange((share - count) % shares, decisions.size, shares)))
                count += decisions.size
                ragged = isinstance(actions, RaggedTensor)
                choices += len(decisions.actions.values) if ragged else decisions.size
    if choices == 0:
        raise ConfigError(f"{samples.path} holds no action to learn from", path="options.data")
    found = Demonstrations.cat(taken)
    return found.replace(weights=torch.full((found.size,), count / choices)) if head.decides else found
