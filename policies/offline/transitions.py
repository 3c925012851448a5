"""Transitions from the recorded samples of a run (`record: samples`): what was seen, done, earned, and seen then."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space

from arena.dataset.reader import Episode, Samples
from arena.errors import ConfigError
from arena.game.spaces import flatten
from policies.common.columns import kept_leaves, stored_leaves
from policies.common.replay import Transitions
from policies.networks.heads import ActionHead


def recorded_transitions(
    samples: Samples,
    policy: str | None,
    space: Space[Any],
    head: ActionHead,
    action_space: Space[Any],
    *,
    gamma: float,
    share: int = 0,
    shares: int = 1,
) -> Transitions:
    """Every `shares`-th transition of a policy from the one numbered `share` on; None: of all with these spaces.

    A transition goes from one action of an entity to its next one; rewards of other entities' turns between them belong
    to it. Of an episode that was cut or truncated the last one is followed by the last observation, whose value counts.
    Void transitions are left out, and so are actions that the mask of their turn forbids.

    Raises:
        ConfigError: a part is damaged, a reward is not finite, or there is no action.
    """
    taken: list[Transitions] = []
    count = 0
    for match in samples.matches:
        alike = {
            entity.name
            for entity in match.entities
            if policy in (None, entity.policy)
            and (entity.observation_space, entity.action_space) == (space, action_space)
        }
        for episode in match.episodes(policy) if alike else ():
            if episode.entity in alike and len(episode.tick):
                found = _of_episode(episode, space, head, action_space, gamma)
                taken.append(found.take(torch.arange((share - count) % shares, found.size, shares)))
                count += found.size
    if count == 0:
        raise ConfigError(f"{samples.path} holds no action to learn from", path="options.data")
    return Transitions.cat(taken)


def _of_episode(
    episode: Episode, space: Space[Any], head: ActionHead, action_space: Space[Any], gamma: float
) -> Transitions:
    if not np.isfinite(episode.rewards).all():
        where = f"match {episode.match}, lane {episode.lane}, episode {episode.number}"
        raise ConfigError(f"{where} has a reward that is not finite", path="options.data")
    size, layout = len(episode.tick), kept_leaves(space)
    before, last = flatten(space, episode.observations), flatten(space, episode.final_observation)
    after = [np.concatenate([leaf[1:], end[None]]) for leaf, end in zip(before, last, strict=True)]
    actions = head.from_env(episode.actions)
    masks = None
    if episode.masks is not None and head.mask_size:
        masks = torch.from_numpy(episode.masks.astype(np.bool_))
    discounts = torch.full((size,), gamma)
    if episode.terminated:
        discounts[-1] = 0.0
    found = Transitions(
        tuple(stored_leaves(layout, before)),
        masks,
        actions,
        torch.from_numpy(episode.rewards).float(),
        tuple(stored_leaves(layout, after)),
        None,
        discounts,
        torch.ones(size),
        torch.arange(size),
    )
    kept = np.ones(size, np.bool_) if episode.void is None else ~episode.void
    if masks is not None:
        kept &= masks[torch.arange(size), actions].numpy()
    return found if kept.all() else found.take(torch.from_numpy(np.flatnonzero(kept)))
