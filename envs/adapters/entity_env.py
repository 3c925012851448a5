"""Games of the published interface of entities (`arena.entity_env`) as a `BatchedEnv`.

All lanes of a tick are translated at once, so a game is not a `LaneGame` of `envs.adapters.batch`. A lane that is over
is not stepped until it is reset. When a player's episode has ended and others play on, its later observations are not
read, and its action objects have no actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.entity_env.environment import draws, players_of
from arena.entity_env.translation import Batch, Translator, WrongObservation
from arena.errors import ConfigError, GameError
from arena.game.api import Flags, Frame, Info, Interface, ResetOptions, Seeds, Step
from arena.game.context import begin


class EntityGames:
    """Instances of one game, one per lane.

    Raises:
        ConfigError: the spaces are not of the interface.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        self.lanes = len(envs)
        self._envs = tuple(envs)
        try:
            self._translator = Translator.of(envs[0])
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{type(envs[0]).__name__} has no spaces of `arena.entity_env`: {error}") from error
        players, space = players_of(envs[0]), self._translator.space
        n = len(players)
        self.interface = Interface(players, (space,) * n, (space.action_space,) * n, (0,) * n)
        nothing = self._translator.batch([None] * self.lanes)
        self._shown: list[list[Batch]] = [[nothing] * self.lanes for _ in range(n)]  # by player, the last of each lane
        self._active = np.zeros((self.lanes, n), np.bool_)

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Begins an episode in the lanes of the mask; a game gets `options` if its `reset` takes them."""
        observations: list[list[Any]] = [[None] * self.lanes for _ in self.interface.entities]
        began = lanes.tolist()
        for lane, env in enumerate(self._envs):
            if began[lane]:
                seed = None if seeds is None else seeds[lane]
                self._put(observations, lane, begin(env, None if seed is None else int(seed), options))
        batches = self._translated(observations)
        for shown, batch in zip(self._shown, batches, strict=True):
            for lane in np.flatnonzero(lanes).tolist():
                shown[lane] = batch
        self._active[lanes] = True
        return self._frame(batches, observations)

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in every lane that is not over."""
        n = len(self.interface.entities)
        observations: list[list[Any]] = [[None] * self.lanes for _ in range(n)]
        rewards = np.zeros((self.lanes, n))
        terminated, truncated = np.zeros((self.lanes, n), np.bool_), np.zeros((self.lanes, n), np.bool_)
        active = self._active.tolist()
        for lane, env in enumerate(self._envs):
            if not any(active[lane]):
                continue
            joint, plays = [], False
            for player, acts in enumerate(active[lane]):
                choices = {name: ragged[lane] for name, ragged in actions[player].items()} if acts else {}
                shown = self._shown[player][lane]
                joint.append(self._translator.actions(shown, lane, choices))
                # A player that gives no choices for its actors was ended by a wrapper, such as a time limit.
                plays |= acts and (any(map(len, choices.values())) or not shown.decides(lane))
            if not plays:
                continue
            self._put(observations, lane, env.act(joint[0] if n == 1 else joint))
            for player, acts in enumerate(active[lane]):
                if not acts:
                    observations[player][lane] = None
                    continue
                one = observations[player][lane]
                try:
                    rewards[lane, player] = float(one.reward)
                except (TypeError, ValueError) as error:
                    found = f"the reward {one.reward!r}; expected a number"
                    raise GameError(found, entity=self.interface.entities[player], lane=lane) from error
                truncated[lane, player] = cut = bool(getattr(one, "truncated", False))
                terminated[lane, player] = bool(one.done) and not cut
        self._active &= ~(terminated | truncated)
        batches = self._translated(observations)
        for kept, batch, rows in zip(self._shown, batches, observations, strict=True):
            for lane, one in enumerate(rows):
                if one is not None:
                    kept[lane] = batch
        return Step(self._frame(batches, observations), rewards, terminated, truncated)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The picture or text of lane 0, if its game draws."""
        image = self._envs[0].render() if draws(self._envs[0]) else None
        return image if image is None or isinstance(image, str) else np.asarray(image, np.uint8)

    def close(self) -> None:
        """Closes every environment, also if closing one of them fails."""
        envs, self._envs = self._envs, ()
        with ExitStack() as stack:
            for env in envs:
                stack.callback(env.close)

    def _put(self, observations: list[list[Any]], lane: int, result: Any) -> None:
        """Stores the observations of one lane's game, per player."""
        players = self.interface.entities
        if len(players) == 1:
            result = (result,)
        elif not isinstance(result, (list, tuple)) or len(result) != len(players):
            found = f"{len(result)} observations" if isinstance(result, (list, tuple)) else f"a {type(result).__name__}"
            raise GameError(f"{found}; expected a list of {len(players)} observations, one per player", lane=lane)
        for player, one in enumerate(result):
            if not hasattr(one, "features"):
                found = f"a {type(one).__name__}; expected an Observation, which holds reward and done too"
                raise GameError(found, entity=players[player], lane=lane)
            observations[player][lane] = one

    def _translated(self, observations: Sequence[Sequence[Any]]) -> list[Batch]:
        batches = []
        for player, rows in zip(self.interface.entities, observations, strict=True):
            try:
                batches.append(self._translator.batch(rows))
            except WrongObservation as error:
                raise GameError(f"a wrong observation: {error.found}", entity=player, lane=error.row) from error
        return batches

    def _frame(self, batches: Sequence[Batch], observations: Sequence[Sequence[Any]]) -> Frame:
        infos: list[list[Info]] | None = None
        if any(one is not None and one.metrics for rows in observations for one in rows):
            infos = [
                [
                    {"metrics": dict(rows[lane].metrics)} if rows[lane] is not None and rows[lane].metrics else {}
                    for rows in observations
                ]
                for lane in range(self.lanes)
            ]
        samples = [batch.sample(self._translator.space) for batch in batches]
        return Frame(samples, self._active.copy(), (None,) * len(batches), infos)
