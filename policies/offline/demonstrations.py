"""Demonstrations: observations and actions from the recorded samples of a run (`record: samples`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.dataset.reader import Part, Samples, open_dataset
from arena.errors import ConfigError, located
from arena.game.ragged import Ragged
from arena.game.spaces import unflatten
from arena.game.units import UnitSpace
from policies.common.columns import Columns, RaggedTensor, kept_leaves, stored_leaves
from policies.networks.distributions import FORBIDDEN
from policies.networks.heads import ActionHead
from policies.networks.units.tokens import allowed_rows


class Demonstrations(Columns, frozen=True):
    """Decisions of a policy; `N` of them."""

    actions: Any  # [N, ...] as learned from, see `policies.networks.heads`
    weights: Tensor | None = None  # [N] with units, of each decision: 1 / (mean number of decisions)


def open_demonstrations(path: str, policy: str | None) -> Samples:
    """The samples at a path; only their manifests are read.

    Raises:
        ConfigError: there are none, or the policy has not played; the path is that of the option.
    """
    with located(path="options.data"):
        samples = open_dataset(path)
    if policy is not None:
        with located(path="options.policy"):
            samples.entity(policy)
    return samples


def check_demonstrations(path: str, policy: str | None) -> None:
    """Reads and checks all samples before any match starts.

    Raises:
        ConfigError: there is nothing, the policy has not played, or something is damaged; as `open_demonstrations`.
    """
    samples = open_demonstrations(path, policy)
    with located(path="options.data"):
        samples.check(policy)


def check_spaces(samples: Samples, policy: str | None, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Checks that there are demonstrations to learn from.

    Raises:
        ConfigError: no entity has played with these spaces, or not every entity of `policy` has.
    """
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
    """Every `shares`-th decision from the one numbered `share` on.

    Turns without an action of the policy are left out, and so are actions that the mask of their turn forbids.

    Args:
        samples: of a run.
        policy: whose; None: of all entities with these spaces.
        space: of observations.
        head: what an action means.
        action_space: of actions.

    Raises:
        ConfigError: a part is damaged, or there is no action.
    """
    taken: list[Demonstrations] = []
    count = choices = 0
    for decisions in _decisions(samples, policy, space, head, action_space):
        index = torch.arange((share - count) % shares, decisions.size, shares)
        taken.append(decisions.take(index))
        count += decisions.size
        choices += len(decisions.actions.values) if isinstance(decisions.actions, RaggedTensor) else decisions.size
    if choices == 0:
        raise ConfigError(f"{samples.path} holds no action to learn from", path="options.data")
    found = Demonstrations.cat(taken)
    return found.replace(weights=torch.full((found.size,), count / choices)) if head.decides else found


def _decisions(
    samples: Samples, policy: str | None, space: Space[Any], head: ActionHead, action_space: Space[Any]
) -> Iterator[Demonstrations]:
    """All decisions, part by part and entity by entity."""
    for match in samples.matches:
        wanted = [
            index
            for index, entity in enumerate(match.entities)
            if policy in (None, entity.policy)
            and (entity.observation_space, entity.action_space) == (space, action_space)
        ]
        for part in match.parts() if wanted else ():
            for entity in wanted:
                yield _of_part(part, entity, space, head, action_space)


def _of_part(part: Part, entity: int, space: Space[Any], head: ActionHead, action_space: Space[Any]) -> Demonstrations:
    acted = part.acted[:, :, entity]
    seen, played = ([_rows(leaf, acted) for leaf in leaves[entity]] for leaves in (part.observations, part.actions))
    observations = tuple(stored_leaves(kept_leaves(space), seen))
    actions = head.from_env(unflatten(action_space, played))
    if isinstance(space, UnitSpace):
        decided = allowed_rows(space, observations, actions) & (actions.lengths > 0)
        rows = torch.from_numpy(np.flatnonzero(decided))
        return Demonstrations(observations, None, actions).take(rows)
    held = part.masks[entity]
    if held is None or not head.mask_size:
        return Demonstrations(observations, None, actions)
    masks = torch.from_numpy(held[acted].astype(np.bool_))
    found = Demonstrations(observations, masks, actions)
    allowed = head.distribution(torch.zeros(len(actions), head.outputs), masks).log_prob(actions) > FORBIDDEN / 2
    return found if bool(allowed.all()) else found.take(allowed.nonzero().squeeze(1))


def _rows(leaf: Any, acted: NDArray[np.bool_]) -> Any:
    """The rows [N, ...] of a leaf [T, L, ...] in which an entity acted."""
    return leaf[acted.ravel()] if isinstance(leaf, Ragged) else leaf[acted]
