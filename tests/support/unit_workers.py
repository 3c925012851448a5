"""Workers of games with units, which draw allowed actions and check their observations."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import workers
from arena import Ragged
from arena.game.spaces import flatten, take_rows
from in_process import NOTES
from workers import Player


def digest_of(*parts: Any) -> int:
    """A number that changes with any byte of arrays and ragged arrays, nested in dicts and tuples."""
    total = 0
    for part in parts:
        if isinstance(part, dict):
            total = zlib.crc32(str(digest_of(*part.values())).encode(), total)
        elif isinstance(part, (tuple, list)):
            total = zlib.crc32(str(digest_of(*part)).encode(), total)
        elif isinstance(part, Ragged):
            total = zlib.crc32(part.values.tobytes() + part.lengths.tobytes(), total)
        elif part is not None:
            total = zlib.crc32(np.asarray(part).tobytes(), total)
    return total


def check_marks(space: Any, observation: Any, mark: float) -> int:
    """Checks that all features of a batched or single observation carry a mark; the number of features."""
    seen = 0
    for name in space.types:
        units = observation["units"][name]
        values = units.values if isinstance(units, Ragged) else units
        assert ((values >= mark) & (values < mark + 1)).all(), f"units of {name} of another entity"
        seen += values.size
    return seen


class VectorSampler(Player):
    """Draws from the vector environment's action space; its seat has one entity, with the mark `mark`."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int, mark: int = 1, name: str = "") -> None:
        super().__init__(env, group, ticks=ticks)
        self.mark, self.name = mark, name

    def run(self) -> None:
        env = self.env
        observations, infos = env.reset()
        seen, digest = 0, 0
        try:
            while True:
                assert observations in env.observation_space
                seen += check_marks(env.single_observation_space, observations, self.mark)
                for row in infos.get("final_obs", np.zeros(0)):
                    if row is not None:
                        assert row in env.single_observation_space
                        seen += check_marks(env.single_observation_space, row, self.mark)
                        digest = zlib.crc32(str(digest_of(row)).encode(), digest)
                for parts in observations["actions"].values():
                    assert not parts["actors"].lengths[~infos["active"]].any(), "actors in a row that does not act"
                actions = env.action_space.sample()
                assert actions in env.action_space
                digest = zlib.crc32(str(digest_of(observations, actions)).encode(), digest)
                observations, rewards, terminated, truncated, infos = env.step(actions)
                digest = zlib.crc32(str(digest_of(rewards, terminated, truncated, infos["active"])).encode(), digest)
        finally:
            NOTES.append((self.name, seen, digest))


class Noted(VectorSampler):
    """The same in a process of its own: its record is a file in the folder that an environment variable names."""

    schedule = "ticks"  # its workers never meet

    def state_dict(self) -> dict[str, Any]:
        return {}  # each leg begins with a seed of its own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def __init__(self, env: Any, group: Any, *, ticks: int, mark: int = 1, name: str = "") -> None:
        super().__init__(env, group, ticks=ticks, mark=mark, name=name)
        self.rank = group.rank

    def run(self) -> None:
        try:
            super().run()
        finally:
            if folder := os.environ.get("NOTES_FOLDER"):
                Path(folder, f"seen-{self.name}-{self.rank}").write_text(" ".join(map(str, NOTES.pop())))


class Leaver(Player):
    """Returns after five ticks; then its seat idles."""

    face = "vector"

    def run(self) -> None:
        self.env.reset()
        for _ in range(5):
            self.env.step(self.env.action_space.sample())


class BlockAnswerer(VectorSampler):
    """Acts block by block; the choices of a row are a function of its observation only."""

    def run(self) -> None:
        env = self.env
        space, action_space = env.single_observation_space, env.single_action_space
        observations, _ = env.reset()
        size = env.num_envs // len(env.blocks)
        first = [take_rows(space, observations, slice(begin, begin + size)) for begin in range(0, env.num_envs, size)]
        for tick in itertools.count():
            for block, seen in zip(env.blocks, first, strict=True):
                if tick:
                    seen, *_ = block.step_wait()
                check_marks(space, seen, self.mark)
                rows = [take_rows(space, seen, slice(row, row + 1)) for row in range(size)]
                drawn = [action_space.draw(row["actions"], np.random.default_rng(digest_of(row))) for row in rows]
                block.step_async({name: Ragged.concat([one[name] for one in drawn]) for name in action_space.actions})


class SharedSampler(Player):
    """Draws from the vector environment's action space; its seat has two entities, whose rows alternate."""

    face = "vector"

    def run(self) -> None:
        env, seen = self.env, 0
        observations, _ = env.reset()
        try:
            while True:
                assert observations in env.observation_space
                for entity in range(2):
                    own = take_rows(env.single_observation_space, observations, slice(entity, None, 2))
                    seen += check_marks(env.single_observation_space, own, entity + 1)
                observations, *_ = env.step(env.action_space.sample())
        finally:
            NOTES.append(seen)


class GymSampler(Player):
    """Draws from the gym environment's action space."""

    def __init__(self, env: Any, group: Any, *, ticks: int, mark: int = 1, name: str = "") -> None:
        super().__init__(env, group, ticks=ticks)
        self.mark, self.name = mark, name

    def run(self) -> None:
        env, seen = self.env, 0
        try:
            while True:
                observation, _ = env.reset()
                over = False
                while not over:
                    assert observation in env.observation_space
                    seen += check_marks(env.observation_space, observation, self.mark)
                    observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
                    over = terminated or truncated
                assert observation in env.observation_space
                seen += check_marks(env.observation_space, observation, self.mark)
        finally:
            NOTES.append((self.name, seen))


class ParallelSampler(Player):
    """Draws from the action spaces of the agents, which carry the marks 1, 2, ..."""

    face = "parallel"

    def run(self) -> None:
        env, seen = self.env, 0
        try:
            while True:
                observations, _ = env.reset()
                while env.agents:
                    for number, agent in enumerate(env.possible_agents):
                        if agent in observations:
                            assert observations[agent] in env.observation_space(agent)
                            seen += check_marks(env.observation_space(agent), observations[agent], number + 1)
                    observations, *_ = env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        finally:
            NOTES.append(seen)


class ItemsAnswerer(Player):
    """Draws from the action space of any face, and checks that observations lie in their space."""

    def run(self) -> None:
        while True:
            observation, _ = self.env.reset()
            over = False
            while not over:
                NOTES.append(len(flatten(self.env.observation_space, observation)[1]))
                observation, reward, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                over = terminated or truncated
                NOTES.append(reward)


class Wrong(Player):
    """Gives a wrong action after some right ones, and records the error."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int, fault: str) -> None:
        super().__init__(env, group, ticks=ticks)
        self.fault = fault

    def run(self) -> None:
        env = self.env
        observations, _ = env.reset()
        for _ in range(3):
            observations, *_ = env.step(env.action_space.sample())
        while not observations["actions"]["walk"]["actors"].lengths[-1]:
            observations, *_ = env.step(env.action_space.sample())
        ticks = env.ticks
        actions = env.action_space.sample()
        walk = list(actions["walk"])
        if self.fault == "few":
            walk[-1] = walk[-1][:-1]
        elif self.fault == "range":
            walk[-1] = walk[-1] + 3
        elif self.fault == "float":
            walk[-1] = walk[-1] + 0.5
        elif self.fault == "rows":
            walk = walk[:-1]
        actions["walk"] = walk
        if self.fault == "place":
            actions["bite"] = Ragged(
                actions["bite"].values + 1000 * (np.arange(actions["bite"].total) == 0), actions["bite"].lengths
            )
        try:
            env.step(actions)
        except (TypeError, ValueError) as error:
            NOTES.append(f"{type(error).__name__}: {error}")
        assert env.ticks == ticks, "something was sent"
        while True:
            env.step(env.action_space.sample())


class MatchesSync(workers.MatchesSync):
    """The same with games of `crowd`; on every second tick the proxy gets lists."""

    def make(self, env_id: str) -> gymnasium.Env[Any, Any]:
        import crowd

        return getattr(crowd, env_id)()  # type: ignore[no-any-return]

    def actions(self, step: int) -> tuple[Any, Any]:
        actions = self.env.action_space.sample()
        listed = (
            {name: tuple(rows) for name, rows in actions.items()}
            if isinstance(actions, dict)
            else tuple(tuple(part) if isinstance(part, Ragged) else part for part in actions)
        )
        return (actions if step % 2 else listed), listed
