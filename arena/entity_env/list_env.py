"""`ListEnv`: environments of the published interface, stepped together, their observations as one `VecObs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from arena.entity_env.actions import ActionSpace
from arena.entity_env.environment import EpisodeStats, ObsSpace, players_of
from arena.entity_env.translation import Batch, Translator, WrongObservation
from arena.game.context import begin
from arena.game.ragged import Ragged
from arena.game.units import GlobalChoice


class _Typed(Ragged):
    """Rows of unequal length whose items are of one dtype, under the published names.

    RaggedBufferI64([[[5]], [[1]], [[3], [4]]])        rows, their items, the numbers of an item
    RaggedBufferI64([[4], [1], [4, 2]])                items that are numbers
    RaggedBufferF32(values, lengths)                   as `Ragged`, cast
    """

    __slots__ = ()
    kind: ClassVar[DTypeLike]

    def __init__(self, values: Any, lengths: ArrayLike | None = None) -> None:
        if lengths is None:
            items = [np.asarray(item, self.kind) for row in values for item in row]
            lengths = [len(row) for row in values]
            values = np.stack(items) if items else np.zeros(0, self.kind)
        super().__init__(np.asarray(values, self.kind), lengths)


class RaggedBufferF32(_Typed):
    """`Ragged` of float32."""

    __slots__ = ()
    kind = np.float32


class RaggedBufferI64(_Typed):
    """`Ragged` of int64."""

    __slots__ = ()
    kind = np.int64


class RaggedBufferBool(_Typed):
    """`Ragged` of bool."""

    __slots__ = ()
    kind = np.bool_


@dataclass(frozen=True)
class VecCategoricalActionMask:
    """The actors that pick a label, in N environments; the actor of a global action is the number of all entities."""

    actors: RaggedBufferI64  # indices of entities, items `[1]`
    mask: RaggedBufferBool | None  # allowed labels per actor, items `[choices]`; None if no environment gave a mask


@dataclass(frozen=True)
class VecSelectEntityActionMask:
    """The actors that pick an entity, and among which, in N environments."""

    actors: RaggedBufferI64  # indices of entities, items `[1]`
    actees: RaggedBufferI64  # likewise
    mask: RaggedBufferBool | None = None  # actor by actor for each actee, items `[1]`; None if no environment gave one


VecActionMask: TypeAlias = VecCategoricalActionMask | VecSelectEntityActionMask
"""Who chooses on a tick, and among what, in N environments."""


@dataclass(frozen=True)
class VecObs:
    """Observations of N environments.

    `features` has `__global__`, one item per environment, if the spaces have global features or a global action.
    """

    features: dict[str, RaggedBufferF32]  # by type, items `[F]`
    visible: dict[str, RaggedBufferBool]  # by type, items `[1]`; absent for types for which no environment gave flags
    action_masks: dict[str, VecActionMask]  # by action
    reward: NDArray[np.float32]  # [N]
    done: NDArray[np.bool_]  # [N] an episode has ended; its features and masks are the next episode's
    end_of_episode_info: dict[int, EpisodeStats]  # of environments whose episode has ended, by number


class ListEnv:
    """Environments that are stepped one after the other; an episode that ends is followed by the next one at once.

    `envs` are environments of one player, all with the same spaces; or a callable that makes one, called `num_envs`
    times.
    """

    def __init__(self, envs: Sequence[Any] | Callable[[], Any], num_envs: int | None = None) -> None:
        if callable(envs):
            if num_envs is None:
                raise ValueError("num_envs is needed with a callable that makes environments")
            envs = [envs() for _ in range(num_envs)]
        elif num_envs not in (None, len(envs)):
            raise ValueError(f"num_envs is {num_envs}, but there are {len(envs)} environments; leave it out")
        if not envs:
            raise ValueError("at least one environment is needed")
        self._envs = list(envs)
        players = players_of(self._envs[0])
        if len(players) != 1:
            raise ValueError(
                f"{type(self._envs[0]).__name__} has the players {', '.join(players)}; ListEnv steps games of one "
                "player, a match of the arena those of several"
            )
        self._obs_space, self._action_space = self._envs[0].obs_space(), self._envs[0].action_space()
        self._translator = Translator.of(self._envs[0])
        self._shown: Batch | None = None
        self._lengths = np.zeros(len(envs), np.int64)
        self._returns = np.zeros(len(envs))

    def obs_space(self) -> ObsSpace:
        """What an observation can hold, in all environments."""
        return self._obs_space  # type: ignore[no-any-return]

    def action_space(self) -> dict[str, ActionSpace]:
        """The actions, by name, in all environments."""
        return self._action_space  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self, *, seed: int | None = None) -> VecObs:
        """Begins an episode in every environment, which gets a seed derived from `seed`; None: their streams go on.

        Raises:
            ValueError: an observation breaks the rules of the interface.
        """
        seeds = [None] * len(self) if seed is None else np.random.SeedSequence(seed).generate_state(len(self)).tolist()
        self._lengths[:], self._returns[:] = 0, 0.0
        observations = [begin(env, one) for env, one in zip(self._envs, seeds, strict=True)]
        nothing = np.zeros(len(self))
        return self._vec_obs(observations, nothing, nothing, {})

    def act(self, actions: Mapping[str, Any]) -> VecObs:
        """One tick of every environment; raises `ValueError`.

        `actions`: per action a `Ragged`, or a list of lists: for each environment one number per actor, in the order of
        `actors`: the index of a label, or a place in `actees`. An action without actors may be left out.
        """
        shown = self._shown
        if shown is None:
            raise ValueError("act() before the first reset()")
        space = self._translator.space.action_space
        for name in actions:
            if name not in space.actions:
                raise ValueError(f"unknown action {name!r}; known: {', '.join(space.actions)}")
        expected, choices = f"expected whole numbers in {len(self)} rows, one per actor", {}
        for name in space.actions:
            of_action = actions.get(name, [()] * len(self))
            if isinstance(of_action, Ragged):
                values, lengths = of_action.values, of_action.lengths
            else:
                try:
                    values = np.array([number for row in of_action for number in row])
                    lengths = np.array([len(row) for row in of_action], np.int64)
                except (TypeError, ValueError):  # not two levels of lists, or numbers beside lists
                    raise ValueError(f"action {name!r}: {of_action!r:.80}; {expected}") from None
            if values.shape[1:] == (1,):
                values = values[:, 0]
            if len(lengths) != len(self) or values.ndim != 1 or (values.dtype.kind not in "iu" and values.size):
                raise ValueError(
                    f"action {name!r}: {values.dtype} choices of shape {list(values.shape)} in {len(lengths)} rows; "
                    f"{expected}"
                )
            choices[name] = Ragged(values.astype(np.int64), lengths)
        space.check_choices(
            choices, {name: {"actors": one.actors, "actees": one.actees} for name, one in shown.shown.items()}
        )
        observations: list[Any] = []
        rewards, done = np.zeros(len(self), np.float32), np.zeros(len(self), np.bool_)
        ended: dict[int, EpisodeStats] = {}
        for number, env in enumerate(self._envs):
            mine = {name: ragged[number] for name, ragged in choices.items()}
            observation = env.act(self._translator.actions(shown, number, mine))
            _check_observation(number, observation)
            truncated = bool(getattr(observation, "truncated", False))
            try:
                reward = float(observation.reward)
            except (TypeError, ValueError):
                found = f"environment {number}: the reward {observation.reward!r}; expected a number"
                raise ValueError(found) from None
            rewards[number], done[number] = reward, bool(observation.done) or truncated
            self._lengths[number] += 1
            self._returns[number] += reward
            if done[number]:
                ended[number] = EpisodeStats(
                    int(self._lengths[number]), float(self._returns[number]), truncated, observation
                )
                self._lengths[number], self._returns[number] = 0, 0.0
                observation = begin(env, None)
            observations.append(observation)
        return self._vec_obs(observations, rewards, done, ended)

    def render(self) -> list[Any]:
        """What `render` of each environment returns."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        """Closes all environments."""
        for env in self._envs:
            env.close()

    def _vec_obs(
        self, observations: Sequence[Any], rewards: NDArray[Any], done: NDArray[Any], ended: dict[int, EpisodeStats]
    ) -> VecObs:
        for number, observation in enumerate(observations):
            _check_observation(number, observation)
        try:
            self._shown = batch = self._translator.batch(observations)
        except WrongObservation as error:
            raise ValueError(f"environment {error.row}: {error.found}") from error
        space = self._translator.space
        features = {name: RaggedBufferF32(units.values, units.lengths) for name, units in batch.units.items()}
        if space.global_features or any(isinstance(kind, GlobalChoice) for kind in space.actions.values()):
            features["__global__"] = RaggedBufferF32(batch.globals, np.ones(len(self), np.int64))
        masks: dict[str, VecActionMask] = {}
        for name, shown in batch.shown.items():
            # Copies: choices are checked and dispatched by the indices themselves.
            actors = RaggedBufferI64(shown.actors.values[:, None].copy(), shown.actors.lengths.copy())
            if shown.actees is not None:
                actees = RaggedBufferI64(shown.actees.values[:, None].copy(), shown.actees.lengths.copy())
                pairs = None if shown.mask is None else RaggedBufferBool(shown.mask.values[:, None], shown.mask.lengths)
                masks[name] = VecSelectEntityActionMask(actors, actees, pairs)
            else:
                mask = None if shown.mask is None else RaggedBufferBool(shown.mask.values, shown.mask.lengths)
                masks[name] = VecCategoricalActionMask(actors, mask)
        return VecObs(
            features=features,
            visible={
                name: RaggedBufferBool(flags.values[:, None], flags.lengths) for name, flags in batch.visible.items()
            },
            action_masks=masks,
            reward=rewards.astype(np.float32),
            done=done.astype(np.bool_),
            end_of_episode_info=ended,
        )


EnvList = ListEnv
"""The published name of `ListEnv`."""


def _check_observation(number: int, observation: Any) -> None:
    if not hasattr(observation, "features"):
        raise ValueError(f"environment {number}: a {type(observation).__name__}; expected an Observation")
