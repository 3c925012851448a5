"""Recorded samples to and from data sets of Minari, whose package is the extra `minari`.

    to_minari("runs/teacher", "blue", "duel/ppo-v0", author="me")
    open_dataset("minari:duel/ppo-v0")                          as the samples of a run, also for the option `data`

Minari has data sets of one agent. Action masks are infos of the name `action_mask`; rewards before the first action of
an episode and what only runs have, such as ticks, are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from arena.dataset.batch import column_names
from arena.dataset.reader import Samples, minari_package, open_dataset
from arena.errors import ConfigError
from arena.game.spaces import leaves_of, unflatten


def to_minari(samples: Samples | Path | str, policy: str, name: str, *, cut: bool = False, **about: Any) -> Any:
    """Writes the episodes of a policy as a data set of Minari.

    Args:
        samples: of a run, or its folder.
        policy: whose episodes.
        name: of the data set, as `duel/ppo-v0`.
        cut: whether to write episodes that the end of a leg has cut, too.
        about: arguments of `minari.create_dataset_from_buffers`, such as `author`, `description` and `env`.

    Returns:
        the `minari.MinariDataset`.

    Raises:
        ConfigError: no such samples or policy, no episode, units, a name without a version, or the extra is missing.
        ValueError: Minari refuses the name, the spaces or an argument.
    """
    package = minari_package()
    if not re.search(r"-v\d+\Z", name):
        raise ConfigError(f"found the name {name!r}; names of Minari end with a version, as {name}-v0")
    found = samples if isinstance(samples, Samples) else open_dataset(samples)
    entity = found.entity(policy)
    observed, acted = entity.observation_space, entity.action_space
    if any(leaf.ragged for space in (observed, acted) for leaf in leaves_of(space, ragged=True)):
        raise ConfigError(f"samples of units have parts of any length, which Minari does not hold: {policy!r}")
    episodes: list[Any] = []
    for rows in batch.split_by_episode() if (batch := found.batch(policy, cut=cut)) else ():
        seen = [np.concatenate([rows[name], rows[f"new_{name}"][-1:]]) for name in column_names("obs", observed)]
        masks = rows.get("action_mask")
        buffer = package.data_collector.EpisodeBuffer(
            id=len(episodes),
            observations=unflatten(observed, seen),
            actions=unflatten(acted, [rows[name] for name in column_names("actions", acted)]),
            rewards=rows["rewards"].tolist(),
            terminations=rows["terminateds"].tolist(),
            truncations=rows["truncateds"].tolist(),
            infos=None if masks is None else {"action_mask": np.concatenate([masks, masks[-1:]])},
        )
        episodes.append(buffer)
    if not episodes:
        raise ConfigError(f"no whole episode of the policy {policy!r}", source=str(found.path))
    spaces = {"observation_space": observed, "action_space": acted}
    return package.create_dataset_from_buffers(name, episodes, **{"jpeg_encoding": False, **spaces, **about})
