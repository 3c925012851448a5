"""Demonstrations: observations and actions from the recorded samples of a run (`record: samples`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.dataset.reader import MatchSamples, Part, Samples, open_dataset
from arena.errors import ConfigError, located
from arena.game.spaces import leaves_of, unflatten
from policies.common.tensors import storage_dtype
from policies.networks.distributions import FORBIDDEN
from policies.networks.heads import ActionHead


class Demonstrations(NamedTuple):
    """Decisions of a policy; `N` of them."""

    observations: tuple[Tensor, ...]  # leaves [N, ...], in the dtypes that networks take
    masks: Tensor | None  # bool [N, mask_size], what was allowed; None where everything always was
    actions: Tensor  # [N, ...] as learned from, see `policies.networks.heads`

    @property
    def size(self) -> int:
        """How many decisions."""
        return len(self.actions)

    def take(self, index: Tensor) -> Demonstrations:
        """The decisions at an int64 index."""
        leaves = tuple(leaf.index_select(0, index) for leaf in self.observations)
        masks = None if self.masks is None else self.masks.index_select(0, index)
        return Demonstrations(leaves, masks, self.actions.index_select(0, index))

    def to(self, device: torch.device) -> Demonstrations:
        """The same decisions on a device."""
        masks = None if self.masks is None else self.masks.to(device)
        return Demonstrations(tuple(leaf.to(device) for leaf in self.observations), masks, self.actions.to(device))


def open_demonstrations(path: str, policy: str | None) -> Samples:
    """The samples at a path, of which nothing but the manifests is read.

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
        ConfigError: no entity has played with these spaces, or not all entities whose samples are asked for.
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
    count = 0
    for decisions in _decisions(samples, policy, space, head, action_space):
        index = torch.arange((share - count) % shares, decisions.size, shares)
        taken.append(decisions.take(index))
        count += decisions.size
    if count == 0:
        raise ConfigError(f"{samples.path} holds no action to learn from", path="options.data")
    return _joined(taken)


def _decisions(
    samples: Samples, policy: str | None, space: Space[Any], head: ActionHead, action_space: Space[Any]
) -> Iterator[Demonstrations]:
    """All decisions, part by part and entity by entity."""
    for match in samples.matches:
        wanted = _wanted(match, policy, space, action_space)
        for part in match.parts() if wanted else ():
            for entity in wanted:
                yield _of_part(part, entity, space, head, action_space)


def _wanted(match: MatchSamples, policy: str | None, space: Space[Any], action_space: Space[Any]) -> list[int]:
    return [
        index
        for index, entity in enumerate(match.entities)
        if policy in (None, entity.policy) and (entity.observation_space, entity.action_space) == (space, action_space)
    ]


def _of_part(part: Part, entity: int, space: Space[Any], head: ActionHead, action_space: Space[Any]) -> Demonstrations:
    acted = part.acted[:, :, entity]
    seen = zip(leaves_of(space), part.observations[entity], strict=True)
    observations = tuple(torch.from_numpy(leaf[acted]).to(storage_dtype(kind.dtype)) for kind, leaf in seen)
    actions = head.from_env(unflatten(action_space, [leaf[acted] for leaf in part.actions[entity]]))
    held = part.masks[entity]
    if held is None or not head.mask_size:
        return Demonstrations(observations, None, actions)
    masks = torch.from_numpy(held[acted].astype(np.bool_))
    found = Demonstrations(observations, masks, actions)
    allowed = head.distribution(torch.zeros(len(actions), head.outputs), masks).log_prob(actions) > FORBIDDEN / 2
    return found if bool(allowed.all()) else found.take(_places(allowed.numpy()))


def _places(flags: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.flatnonzero(flags))


def _joined(parts: list[Demonstrations]) -> Demonstrations:
    """One after the other; where some have masks, those without were allowed everything."""
    sizes = {part.masks.shape[1] for part in parts if part.masks is not None}
    masks = None
    if sizes:
        (size,) = sizes
        given = (torch.ones(p.size, size, dtype=torch.bool) if p.masks is None else p.masks for p in parts)
        masks = torch.cat(list(given))
    leaves = zip(*(part.observations for part in parts), strict=True)
    return Demonstrations(tuple(map(torch.cat, leaves)), masks, torch.cat([part.actions for part in parts]))
