"""Random actions: every action is drawn from its space, uniformly where the space is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.infos import fields_of
from arena.game.spaces import row
from arena.game.units import Select, UnitActions
from arena.group.group import Group
from arena.seat.play import Actor, play

_TICKS_AHEAD = 128


class Random:
    """One worker of a random policy, for seats of any spaces. It learns nothing and has nothing to save."""

    face = ("vector", "parallel")
    schedule = "ticks"  # the workers never meet
    memory_size = 0

    def __init__(self, env: Any, group: Group, *, ticks: int) -> None:
        self.env = env
        self._seed = group.seed

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        play(self.env, self.actor())

    def actor(self, *, greedy: bool = False) -> Actor:
        """A function from (observations, infos) to actions as the face takes them; greedy changes nothing."""
        if hasattr(self.env, "num_envs"):
            return batched_actor(self.env.single_action_space, self.env.num_envs, self._seed)
        env = self.env
        seeds = np.random.SeedSequence(self._seed).generate_state(len(env.possible_agents))
        actors = {
            agent: batched_actor(env.action_space(agent), 1, int(seed))
            for agent, seed in zip(env.possible_agents, seeds, strict=True)
        }

        def one(agent: str, observation: Any, info: Mapping[str, Any]) -> Any:
            space, mask = env.action_space(agent), fields_of(info).action_mask
            shown = {"actions": space.one_row(observation["actions"])} if isinstance(space, UnitActions) else None
            batched = actors[agent](shown, {} if mask is None else {"action_mask": np.asarray(mask)[None]})
            return row(space, batched, 0)

        def act(observations: Any, infos: Mapping[str, Any]) -> dict[str, Any]:
            return {agent: one(agent, observations[agent], infos.get(agent, {})) for agent in env.agents}

        return act

    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None) -> NDArray[np.float64]:
        """Log-probabilities [N] of actions, see `policies.offline.importance_sampling`; only of spaces of choices."""
        space = self.env.single_action_space
        if isinstance(space, UnitActions):
            shown = observations["actions"]
            total: NDArray[np.float64] = np.zeros(len(next(iter(shown.values()))["actors"]))
            for name, kind in space.actions.items():
                parts, actors = shown[name], shown[name]["actors"]
                labels = np.full(actors.total, kind.choices)
                counts = np.repeat(parts["actees"].lengths, actors.lengths) if isinstance(kind, Select) else labels
                if "mask" in parts:
                    owner = np.repeat(np.arange(actors.total), counts)
                    counts = np.bincount(owner, parts["mask"].values.ravel() != 0, minlength=actors.total)
                total -= np.bincount(actors.rows(), np.log(counts), minlength=len(actors))
            return total
        if isinstance(space, spaces.MultiBinary):
            return np.full(len(actions), -np.log(2.0) * np.prod(space.shape))
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            raise ConfigError(f"random actions have a probability where they are choices, not in {space}")
        counts = np.array([space.n]) if isinstance(space, spaces.Discrete) else space.nvec.ravel()
        chosen = (actions - space.start).reshape(len(actions), -1)  # [N, choices]
        allowed = np.ones((len(actions), counts.sum()), np.bool_) if masks is None else masks != 0
        parts = np.split(allowed, np.cumsum(counts)[:-1], axis=1)
        takes = [part[np.arange(len(chosen)), chosen[:, index]] for index, part in enumerate(parts)]
        logs = [-np.log(np.where(take, part.sum(axis=1), np.inf)) for part, take in zip(parts, takes, strict=True)]
        total = np.sum(logs, axis=0)
        return total


def batched_actor(space: Space[Any], rows: int, seed: int) -> Actor:
    """An actor that draws `rows` actions of one space at a time, by action mask where the infos have one.

    Actors of units draw among what the observations show.
    """
    rng = np.random.default_rng(seed)
    if isinstance(space, UnitActions):
        return lambda observations, infos: space.draw(observations["actions"], rng)
    if isinstance(space, spaces.Discrete):
        counts, starts = np.array([int(space.n)]), np.array([int(space.start)])
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel(), space.start.ravel()
    else:
        batched = batch_space(space, rows)
        batched.seed(seed)
        return lambda observations, infos: batched.sample()
    shape, dtype = (rows, *(space.shape or ())), space.dtype
    cuts = np.cumsum(counts)[:-1]

    def unmasked() -> Iterator[NDArray[Any]]:
        while True:  # for many ticks at once: one draw takes almost as long as a hundred
            size = (_TICKS_AHEAD, shape[0], len(counts))
            yield from rng.integers(starts, starts + counts, size=size).reshape(_TICKS_AHEAD, *shape).astype(dtype)

    ahead = unmasked()

    def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
        mask = fields_of(infos).action_mask
        if mask is None:
            return next(ahead)
        # Of each row's allowed items, all are equally likely; the first one where none is allowed.
        parts = np.split(mask, cuts, axis=1)
        chosen = [np.where(part, rng.random(part.shape), -1.0).argmax(axis=1) for part in parts]
        return (starts + np.stack(chosen, axis=1)).reshape(shape).astype(dtype, copy=False)  # type: ignore[no-any-return]

    return act
