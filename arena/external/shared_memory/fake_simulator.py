"""A stand-in for a simulator, for tests and as an example: plays any environment of the arena."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError, PeerClosed
from arena.external.shared_memory.layout import GroupSpec, Rows
from arena.external.shared_memory.simulator import Simulator
from arena.game.api import BatchedEnv, Frame, Interface


class FakeSimulator:
    """Instances of an environment side by side: a group for each entity, an agent for each instance.

    An instance that ends begins anew in the same hand-over, with new ids; so a group may have two rows per instance.

    Args:
        agents: the number of instances.
        seed: of the first instance; the next ones follow.

    Raises:
        ConfigError: the environment cannot be made, or a space cannot be written into the file.
    """

    def __init__(self, make: str, kwargs: Mapping[str, Any], agents: int, seed: int) -> None:
        self._env: BatchedEnv = registry.adapt_environment(make, kwargs, agents)
        interface = self._env.interface
        self.specs = [_spec(interface, entity, agents) for entity in range(len(interface.entities))]
        self._seed = seed
        shape = (agents, len(self.specs))
        self._ids = np.zeros(shape, np.int32)
        self._next_id = np.zeros(len(self.specs), np.int32)
        self._owed = np.zeros(shape)  # rewards since the last row
        self._playing = np.zeros(shape, np.bool_)

    def play(self, path: Path | None, profile: str) -> None:
        """Plays until the driver closes the link.

        Raises:
            LinkError: the link has failed.
        """
        with Simulator(path, profile=profile) as simulator:
            for spec in self.specs:
                simulator.add(spec)
            try:
                simulator.begin()
                while True:
                    self._play_until_reset(simulator)
            except PeerClosed:
                return

    def _play_until_reset(self, simulator: Simulator) -> None:
        lanes = np.ones(len(self._ids), np.bool_)
        seeds = [(self._seed + lane) % 2**32 for lane in range(len(lanes))]
        frame = self._env.reset(lanes, seeds)
        self._begin(lanes)
        rows, asked = self._rows(frame, [[] for _ in self.specs])
        while (answer := simulator.ask(rows)) is not None:
            step = self._env.step(self._actions(answer, asked))
            self._owed += step.rewards
            ended = (step.terminated | step.truncated) & self._playing
            ends: list[list[tuple[Any, ...]]] = [[] for _ in self.specs]
            for lane, entity in np.argwhere(ended).tolist():
                ends[entity].append(self._row(step.frame, lane, entity, bool(step.truncated[lane, entity])))
            self._playing &= ~ended
            over: NDArray[np.bool_] = np.logical_not(self._playing.any(axis=1))
            frame = step.frame
            if over.any():
                begun = self._env.reset(over)
                self._begin(over)
                frame = _joined(frame, begun, over)
            rows, asked = self._rows(frame, ends)

    def _begin(self, lanes: NDArray[np.bool_]) -> None:
        for entity in range(len(self.specs)):
            count = np.count_nonzero(lanes)
            self._ids[lanes, entity] = self._next_id[entity] + np.arange(count)
            self._next_id[entity] += count
        self._owed[lanes] = 0.0
        self._playing[lanes] = True

    def _row(self, frame: Frame, lane: int, entity: int, max_step: bool | None) -> tuple[Any, ...]:
        """A row: id, observation, reward, done, max_step, forbidden choices; `max_step` None: the row asks."""
        reward, self._owed[lane, entity] = self._owed[lane, entity], 0.0
        mask = frame.masks[entity]
        choices = self.specs[entity].choices
        forbidden = np.zeros(choices, np.bool_) if mask is None else mask[lane] == 0
        observation = np.array(frame.observations[entity][lane])
        return self._ids[lane, entity], observation, reward, max_step is not None, bool(max_step), forbidden

    def _rows(self, frame: Frame, ends: list[list[tuple[Any, ...]]]) -> tuple[dict[str, Rows], list[NDArray[np.intp]]]:
        """The rows of the next hand-over, ends first, and by entity the instances that ask."""
        rows, asked = {}, []
        for entity, spec in enumerate(self.specs):
            asks = np.flatnonzero(frame.active[:, entity] & self._playing[:, entity])
            found = ends[entity] + [self._row(frame, lane, entity, None) for lane in asks.tolist()]
            asked.append(asks)
            if found:
                ids, observations, rewards, done, max_step, masks = map(np.array, zip(*found, strict=True))
                rows[spec.name] = Rows(ids, (observations,), rewards, done, max_step, masks if spec.branches else None)
        return rows, asked

    def _actions(self, answer: Mapping[str, NDArray[Any]], asked: list[NDArray[np.intp]]) -> list[Any]:
        """The batched actions of the environment; those of instances that have not asked are ignored."""
        actions = []
        for entity, (spec, lanes) in enumerate(zip(self.specs, asked, strict=True)):
            space = self._env.interface.action_spaces[entity]
            batch = np.zeros((len(self._ids), spec.action_size), spec.action_dtype)
            if len(lanes):
                batch[lanes] = answer[spec.name][-len(lanes) :]
            if isinstance(space, Box):
                shaped = batch.reshape(len(batch), *space.shape).astype(space.dtype)
                actions.append(np.clip(shaped, space.low, space.high))
            elif isinstance(space, Discrete):
                actions.append(batch[:, 0].astype(np.int64) + space.start)
            else:
                assert isinstance(space, MultiDiscrete), "`_spec` takes no other spaces"
                actions.append(batch.astype(space.dtype) + space.start)
        return actions


def _spec(interface: Interface, entity: int, agents: int) -> GroupSpec:
    name, seen = interface.entities[entity], interface.observation_spaces[entity]
    acts = interface.action_spaces[entity]
    if not isinstance(seen, Box) or seen.dtype != np.float32 or not 1 <= len(seen.shape) <= 3:
        raise ConfigError(f"the observations of {name!r} are {seen}; a file holds Box spaces of float32")
    shapes = (tuple(map(int, seen.shape)),)
    return GroupSpec(name, 2 * agents, shapes, *_action_sizes(name, acts))


def _action_sizes(name: str, acts: Space[Any]) -> tuple[int | None, tuple[int, ...] | None]:
    if isinstance(acts, Box) and acts.dtype == np.float32:
        return int(np.prod(acts.shape)), None
    if isinstance(acts, Discrete):
        return None, (int(acts.n),)
    if isinstance(acts, MultiDiscrete) and acts.nvec.ndim == 1:
        return None, tuple(map(int, acts.nvec))
    raise ConfigError(f"the actions of {name!r} are {acts}; a file holds Box, Discrete and MultiDiscrete")


def _joined(frame: Frame, begun: Frame, lanes: NDArray[np.bool_]) -> Frame:
    """A frame whose rows of some lanes are those of another one."""
    observations = []
    for before, after in zip(frame.observations, begun.observations, strict=True):
        joined = np.array(before)
        joined[lanes] = after[lanes]
        observations.append(joined)
    masks: list[NDArray[np.int8] | None] = []
    for before, after in zip(frame.masks, begun.masks, strict=True):
        masks.append(None if before is None or after is None else np.where(lanes[:, None], after, before))
    active = np.where(lanes[:, None], begun.active, frame.active)
    return Frame(observations, active, masks)
