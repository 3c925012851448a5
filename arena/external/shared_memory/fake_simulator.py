"""A stand-in for a simulator, for tests and as an example: plays any environment of the arena."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from arena import registry
from arena.errors import ConfigError, PeerClosed
from arena.external.shared_memory.layout import GroupSpec, Rows
from arena.external.shared_memory.simulator import Simulator
from arena.game.api import BatchedEnv, Frame


class FakeSimulator:
    """Instances of an environment side by side: a group for each entity, an agent for each instance.

    An instance that ends is reset in the same hand-over, with new ids; so a group may have two rows per instance.

    Args:
        agents: the number of instances.
        seed: of the first instance; the next ones follow.

    Raises:
        ConfigError: the environment cannot be made, or a space cannot be written into the file.
    """

    def __init__(self, make: str, kwargs: Mapping[str, Any], agents: int, seed: int) -> None:
        self._env: BatchedEnv = registry.adapt_environment(make, kwargs, agents)
        interface = self._env.interface
        self.specs = []
        for name, observed, acts in zip(
            interface.entities, interface.observation_spaces, interface.action_spaces, strict=True
        ):
            if not isinstance(observed, Box) or observed.dtype != np.float32 or not 1 <= len(observed.shape) <= 3:
                raise ConfigError(f"the observations of {name!r} are {observed}; a file holds Box spaces of float32")
            continuous: int | None = None
            branches: tuple[int, ...] | None = None
            if isinstance(acts, Box) and acts.dtype == np.float32:
                continuous = int(np.prod(acts.shape))
            elif isinstance(acts, Discrete):
                branches = (int(acts.n),)
            elif isinstance(acts, MultiDiscrete) and acts.nvec.ndim == 1:
                branches = tuple(map(int, acts.nvec))
            else:
                raise ConfigError(f"the actions of {name!r} are {acts}; a file holds Box, Discrete and MultiDiscrete")
            shapes = (tuple(map(int, observed.shape)),)
            self.specs.append(GroupSpec(name, 2 * agents, shapes, continuous, branches))
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
        ends: list[list[tuple[Any, ...]]] = [[] for _ in self.specs]  # by entity, rows of the next hand-over
        while True:
            rows: dict[str, Rows] = {}
            requesting: list[NDArray[np.intp]] = []  # by entity, the instances that ask
            for entity, spec in enumerate(self.specs):
                requesting.append(np.flatnonzero(frame.active[:, entity] & self._playing[:, entity]))
                found = ends[entity] + [self._row(frame, lane, entity, None) for lane in requesting[-1].tolist()]
                if found:
                    ids, observed, rewards, done, max_step, masks = map(np.array, zip(*found, strict=True))
                    rows[spec.name] = Rows(ids, (observed,), rewards, done, max_step, masks if spec.branches else None)
            answer = simulator.ask(rows)
            if answer is None:
                return
            actions: list[Any] = []  # those of instances that have not asked are ignored
            for spec, space, acting in zip(self.specs, self._env.interface.action_spaces, requesting, strict=True):
                batch = np.zeros((len(self._ids), spec.action_size), spec.action_dtype)
                if len(acting):
                    batch[acting] = answer[spec.name][-len(acting) :]
                if isinstance(space, Box):
                    shaped = batch.reshape(len(batch), *space.shape).astype(space.dtype)
                    actions.append(np.clip(shaped, space.low, space.high))
                elif isinstance(space, Discrete):
                    actions.append(batch[:, 0].astype(np.int64) + space.start)
                else:
                    assert isinstance(space, MultiDiscrete), "other spaces are refused"
                    actions.append(batch.astype(space.dtype) + space.start)
            step = self._env.step(actions)
            self._owed += step.rewards
            ended = (step.terminated | step.truncated) & self._playing
            ends = [[] for _ in self.specs]
            for lane, entity in np.argwhere(ended).tolist():
                ends[entity].append(self._row(step.frame, lane, entity, bool(step.truncated[lane, entity])))
            self._playing &= ~ended
            over: NDArray[np.bool_] = np.logical_not(self._playing.any(axis=1))
            frame = step.frame
            if over.any():
                begun = self._env.reset(over)
                self._begin(over)
                observations = [np.array(before) for before in frame.observations]
                for batch, after in zip(observations, begun.observations, strict=True):
                    batch[over] = after[over]
                pairs = zip(frame.masks, begun.masks, strict=True)
                joined = [
                    None if one is None or two is None else np.where(over[:, None], two, one) for one, two in pairs
                ]
                frame = Frame(observations, np.where(over[:, None], begun.active, frame.active), joined)

    def _begin(self, lanes: NDArray[np.bool_]) -> None:
        count = np.count_nonzero(lanes)
        self._ids[lanes] = self._next_id + np.arange(count)[:, None]
        self._next_id += count
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
