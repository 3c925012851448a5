"""Games with a `UnitSpace`, of Gymnasium, PettingZoo or the list interface, that give `arena.entity_env.Observation`s.

Such a game gets action objects for its choices, with the ids of its units. A game that gives samples of the space gets
its choices as numbers. Rewards and ends are those of the other interface: `reward`, `done` and `truncated` of an
`Observation` are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.entity_env import Observation
from arena.entity_env.translation import Batch, Translator, WrongObservation
from arena.errors import GameError
from arena.game.spaces import row
from arena.game.units import UnitSpace
from envs.adapters.lane import LaneGame, LaneStep


def translated(game: LaneGame) -> LaneGame:
    """The game, whose observations may be `Observation`s if an entity has a `UnitSpace`."""
    return ObservationLane(game) if any(isinstance(space, UnitSpace) for space in game.observation_spaces) else game


class ObservationLane(LaneGame):
    """A `LaneGame` around another one."""

    def __init__(self, game: LaneGame) -> None:
        super().__init__(game)
        self.entities = game.entities
        self.observation_spaces: tuple[Space[Any], ...] = game.observation_spaces
        self.action_spaces: tuple[Space[Any], ...] = game.action_spaces
        self.mask_sizes, self.in_turns = game.mask_sizes, game.in_turns
        self._translators = [
            Translator(space) if isinstance(space, UnitSpace) else None for space in game.observation_spaces
        ]
        self._shown: list[Batch | None] = [None] * len(game.entities)  # None: the entity's last one was a sample

    def where(self, method: str) -> str:
        return self._env.where(method)  # type: ignore[no-any-return]

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        self._shown = [None] * len(self.entities)
        return self._as_samples(self._env.reset(seed, options))

    def step(self, actions: Sequence[Any]) -> LaneStep:
        translated_actions = list(actions)
        for entity, (translator, shown) in enumerate(zip(self._translators, self._shown, strict=True)):
            if translator is not None and shown is not None:
                translated_actions[entity] = translator.actions(shown, 0, translated_actions[entity] or {})
        return self._as_samples(self._env.step(translated_actions))

    def _as_samples(self, lane_step: LaneStep) -> LaneStep:
        observations, infos = list(lane_step.observations), list(lane_step.infos)
        for entity, (translator, one) in enumerate(zip(self._translators, observations, strict=True)):
            if translator is None or one is None:
                continue
            self._shown[entity] = None
            if isinstance(one, Observation):
                try:
                    self._shown[entity] = batch = translator.batch([one])
                except WrongObservation as error:
                    found = f"a wrong observation: {error.found}"
                    raise GameError(found, entity=self.entities[entity]) from error
                observations[entity] = row(translator.space, batch.sample(translator.space), 0)
                if one.metrics:
                    infos[entity] = {**infos[entity], "metrics": dict(one.metrics)}
        return lane_step._replace(observations=observations, infos=infos)

    def render(self) -> NDArray[Any] | str | None:
        return self._env.render()  # type: ignore[no-any-return]
