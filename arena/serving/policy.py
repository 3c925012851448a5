"""A policy of a run, without a game: from the run folder, for actions and probabilities.

    blue = load_policy("runs/duel:blue@5000")
    blue.act(observation)                            one action; of a batch of observations a batch of actions
    blue.log_prob(observations, actions, masks)      if its algorithm has that

The algorithm is made as in a run, on an environment that has spaces and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena import registry
from arena.config.load import load_config
from arena.config.schema import Config
from arena.errors import ConfigError, located, nearest
from arena.game.api import Interface
from arena.game.arrays import is_finite, lost_value
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, leaves_of, mask_fault, missing_part, row, take_rows, unflatten
from arena.league import rounds_file
from arena.league.sources import Source, find_checkpoint, named_in_run
from arena.plan.build import make_plan
from arena.plan.seats import resolve_entities
from arena.preflight.examine import interface_of
from arena.preflight.later_seats import later_plans
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import boundary
from arena.records import checkpoint as checkpoints
from arena.records.folder import RunFolder

Infos: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | NDArray[Any] | None
"""An info of a game, those of a vector environment, or one of each row; or the mask that they have."""


class Policy:
    """A policy as it was at one checkpoint. Made by `load_policy`.

    Args:
        make: makes its algorithm for a number of rows.
        team: the entities of a team that it learns as; rows are those of whole teams.
        ticks: of the checkpoint; None: there is none, as of a policy that is scripted.

    Attributes:
        algorithm: the instance of the algorithm's class; its `run` cannot be called.
        team: how many entities have actors of their own, as of vdn, qmix, maddpg and masac; 1: all act alike.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        observation_space: Space[Any],
        action_space: Space[Any],
        ticks: int | None,
        team: int = 1,
    ) -> None:
        self.observation_space, self.action_space, self.ticks = observation_space, action_space, ticks
        self.algorithm = make(team)
        served = getattr(self.algorithm, "served", None)
        self.team = 1 if served is not None and not getattr(served(), "entities", 0) else team
        self._make = make
        self._actors: dict[bool, tuple[int, Callable[[Any, Any], Any]]] = {}  # by `greedy`: rows, function

    def __repr__(self) -> str:
        return f"<policy of {type(self.algorithm).__name__}, ticks={self.ticks}, {self.observation_space}>"

    def act(
        self, observation: Any, info: Infos = None, *, mask: Any = None, greedy: bool = True, entity: int | None = None
    ) -> Any:
        """The action for one observation, or a batch of actions for a batch of observations.

        A policy with a memory goes on with what it has seen before, row by row; see `reset`.

        Args:
            observation: a sample of the observation space, or a batched one with the leading axis N; numbers of another
                dtype that the space's dtype holds are converted.
            info: of the game, of a vector environment, or one of each row; `action_mask` says which actions are
                allowed. Or the mask itself.
            mask: [mask_size] or [N, mask_size], in the place of an info; None: all actions are allowed.
            greedy: the best action rather than a sampled one.
            entity: of a policy whose `team` has several entities, which of them sees this, by its place in the order of
                seats, from 0; None: the rows of a batch are those of whole teams, one after the other.

        Raises:
            ValueError: the observation has other shapes than the space, with or without a leading axis, or is not
                finite; the mask is none of the action space, or allows no action; or `entity` is missing or unknown.
        """
        mask = mask_of(info if mask is None else mask)
        if part := missing_part(self.observation_space, observation):
            raise ValueError(f"got an observation without {part}, expected one of {self.observation_space} or a batch")
        arrays, leaves = flatten(self.observation_space, observation), leaves_of(self.observation_space, ragged=True)
        single = batched = True
        for array, leaf in zip(arrays, leaves, strict=True):
            if leaf.ragged:
                single &= isinstance(array, np.ndarray) and array.ndim > 0 and array.shape[1:] == leaf.shape
                batched &= isinstance(array, Ragged) and array.shape == leaf.shape
            else:
                single &= array.shape == leaf.shape
                batched &= array.shape[1:] == leaf.shape
        if not single and not batched:
            found = ", ".join(str(array.shape) for array in arrays)
            raise ValueError(
                f"got an observation of shape {found}, expected one of {self.observation_space} or a batch"
            )
        for array, leaf in zip(arrays, leaves, strict=True):
            numbers = array.values if isinstance(array, Ragged) else array
            if (lost := lost_value(numbers, leaf.dtype)) is not None:
                raise ValueError(f"the observation{leaf.place} has the value {lost}, which {leaf.dtype} does not hold")
            if not is_finite(numbers):
                lost = numbers[~np.isfinite(numbers)][0]
                raise ValueError(f"the observation{leaf.place} has the value {lost}; expected finite numbers")
        if mask is not None and (fault := mask_fault(self.action_space, mask, *(() if single else (len(arrays[0]),)))):
            raise ValueError(f"the mask has {fault}")
        if single:
            pairs = zip(arrays, leaves, strict=True)
            arrays = [Ragged(array, [len(array)]) if leaf.ragged else array[None] for array, leaf in pairs]
            mask = None if mask is None else mask[None]
        pairs = zip(arrays, leaves, strict=True)  # as in training
        arrays = [array if array.dtype == leaf.dtype else array.astype(leaf.dtype) for array, leaf in pairs]
        observations, infos, acting = unflatten(self.observation_space, arrays), {}, slice(None)
        rows = len(arrays[0])
        if self.team > 1 and (single or rows % self.team or entity is not None):
            place = self.place(entity)
            # In a row of its place: those of the others in its team have no part in that.
            each = np.repeat(np.arange(rows), self.team)
            observations = take_rows(self.observation_space, observations, each)
            mask = None if mask is None else mask[each]
            rows, acting = len(each), slice(place, None, self.team)
            infos["active"] = np.arange(rows) % self.team == place
        if mask is not None:
            infos["action_mask"] = mask
        if greedy not in self._actors or self._actors[greedy][0] != rows:
            self._actors[greedy] = rows, self.actor(rows, greedy=greedy)
        actions = take_rows(self.action_space, self._actors[greedy][1](observations, infos), acting)
        return row(self.action_space, actions, 0) if single else actions

    def place(self, entity: int | None) -> int:
        """The place of an entity in the team, 0 if all act alike; ValueError: it is missing or unknown."""
        if self.team > 1 and entity not in range(self.team):
            raise ValueError(
                f"{type(self.algorithm).__name__} has an actor for each of {self.team} entities: got entity={entity}, "
                f"expected its place in the team, 0 to {self.team - 1}, or a batch with rows of all of them"
            )
        return (entity or 0) % self.team

    def reset(self) -> None:
        """Forgets what was seen, at the beginning of an episode; random actions begin again."""
        self._actors.clear()

    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None) -> NDArray[np.float64]:
        """Log-probabilities [N] of the actions of one episode, in its order.

        Args:
            observations: a batched sample [N, ...].
            actions: [N, ...] as the environment takes them.
            masks: [N, mask_size] which were allowed; None: all.

        Raises:
            ConfigError: its algorithm computes no probabilities.
        """
        if not hasattr(self.algorithm, "log_prob"):
            raise ConfigError(f"{type(self.algorithm).__name__} has no log_prob()")
        found: NDArray[np.float64] = self.algorithm.log_prob(observations, actions, masks)
        return found

    def actor(self, rows: int, *, greedy: bool) -> Callable[[Any, Any], Any]:
        """A new function from (observations, infos) of a vector environment with so many `rows` to actions.

        `greedy`: the best actions rather than sampled ones.
        """
        # An algorithm that learns takes any number of rows; others are made for as many as their environment has.
        learns = hasattr(self.algorithm, "load_state_dict")
        algorithm = self.algorithm if learns else self._make(rows)
        acting: Callable[[Any, Any], Any] = algorithm.actor(greedy=greedy)
        return acting


def mask_of(info: Infos) -> Any:
    """The mask of an entity, or of each row; where `active` is false, all is allowed. None: there is none."""
    if isinstance(info, Mapping):
        mask = info.get("action_mask")
        return None if mask is None else np.where(np.asarray(info.get("active", True))[..., None], mask, 1)
    if isinstance(info, Sequence) and info and isinstance(info[0], Mapping):
        masks = [mask_of(one) for one in info]
        given = [mask is not None for mask in masks]
        if any(given) and not all(given):
            raise ValueError(f"the info of row {given.index(False)} has no action_mask, but others have one")
        return np.stack(masks) if all(given) else None
    return None if info is None else np.asarray(info)


def load_policy(
    name: Path | str,
    *,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
) -> Policy:
    """A policy of a run, with what it has learned.

    Args:
        name: `RUN:POLICY@TICK`, the run folder, the policy, and the tick of a checkpoint or of a league's snapshot, or
            `first`, `last`, `best`; without `@TICK` the newest checkpoint, or that with which a frozen policy was
            loaded.
        observation_space: of one entity; None: as in the policy's first seat, for which its game is made once.
        action_space: likewise.

    Raises:
        ConfigError: no such run, policy or checkpoint; the weights are not for these spaces; or the policy has no seat
            with the spaces.
    """
    source, named = named_in_run(name)
    tick = checkpoints.ticks_of(source.checkpoint(named)) if named.label else None
    return configured_policy(
        source.config,
        source.folder,
        named.policy,
        tick,
        observation_space=observation_space,
        action_space=action_space,
    )


def configured_policy(
    config: Config,
    folder: RunFolder | None,
    name: str,
    checkpoint: int | None = None,
    *,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
) -> Policy:
    """A policy of a configuration, with what it has learned in a run (None: as configured); see `load_policy`."""
    registry.import_plugins(config.imports)
    configured = config.policies[name]
    found = None
    saved = [] if folder is None else boundary.checkpoints_of(folder, name)
    if folder is not None and checkpoint is not None:
        file = Source(config, folder).files(name).get(checkpoint)
        found = checkpoints.load_to_act(file or checkpoints.path_of(folder.checkpoints_path(name), checkpoint))
        if found.algorithm != configured.algorithm:
            raise ConfigError(
                f"the checkpoint of tick {checkpoint} is of {found.algorithm}, and {name!r} is of "
                f"{configured.algorithm}; name one of {configured.algorithm}, or leave the algorithm as it was",
                source=str(folder.path),
            )
    elif saved and (newest := checkpoints.load_to_act(saved[-1])).algorithm == configured.algorithm:
        found = newest  # else its algorithm has changed, and it has not begun to learn
    elif configured.load is not None:
        found = checkpoints.load_to_act(find_checkpoint(configured.load, name))
    cls, options = _algorithm(folder, name, config, checkpoint)
    team = 1
    if observation_space is None or action_space is None or spec_of(cls).checks_team:
        seat = first_seat(config, name)
        team = seat.team if spec_of(cls).checks_team else 1
        observation_space = observation_space or seat.interface.observation_spaces[0]
        action_space = action_space or seat.interface.action_spaces[0]
    if spec_of(cls).checks_spaces:
        cls.check(observation_space, action_space)
    group = StubGroup(name, configured.sync, seed=config.seed, shared_seed=config.seed)

    def make(rows: int) -> Any:
        env = SpecVectorEnv(observation_space, action_space, rows=rows, entities=[*map(str, range(team))])
        algorithm = from_spaces(cls, env, group, ticks=config.ticks, options=options)
        if found is not None:
            algorithm.load_state_dict(found.state)
        return algorithm

    return Policy(make, observation_space, action_space, None if found is None else found.boundary, team)


class FirstSeat(NamedTuple):
    """The first seat that a policy has."""

    interface: Interface  # of its entities
    teams: tuple[tuple[int, ...], ...]  # of the policy, see `Plan.teams`

    @property
    def team(self) -> int:
        """How many entities its first team has."""
        return len(self.interface.entities) * len(self.teams[0])


def first_seat(config: Config, name: str) -> FirstSeat:
    """The first seat of a policy, a `ConfigError` if it has none; its game is made once."""
    for plan in (make_plan(config), *later_plans(config)):
        for match in plan.matches:
            for seat in match.seats:
                if seat.policy == name:
                    whole = interface_of(match)
                    entities = resolve_entities(match.seats, whole.entities)[seat.index]
                    return FirstSeat(whole.part(entities), plan.teams[name])
    raise ConfigError(
        f"{name!r} has no seat in this configuration; say of which spaces it is: observation_space, action_space",
        path=f"policies.{name}",
    )


def _algorithm(folder: RunFolder | None, name: str, config: Config, tick: int | None) -> registry.ConfiguredAlgorithm:
    """The algorithm, with the options of the round in which the checkpoint was learned: a fork has its source's."""
    configured = config.policies[name]
    options: Mapping[str, Any] = configured.options
    if folder is not None and tick is None and (saved := boundary.checkpoints_of(folder, name)):
        tick = checkpoints.ticks_of(saved[-1])
    if folder is not None and tick is not None:
        options = rounds_file.options_at(rounds_file.read_played(folder, config), tick).get(name, options)
    return registry.configured_algorithm(
        configured.algorithm, options, acts=configured.frozen, any_device=True, path=f"policies.{name}"
    )


class LoadedAlgorithm(NamedTuple):
    """An algorithm in its first seat, with what it has learned; it cannot play."""

    algorithm: Any
    name: str  # of the algorithm, as configured
    observation_space: Space[Any]  # of one entity
    checkpoint: Path
    tick: int  # of the checkpoint


def load_algorithm(run: Path | str, policy: str, checkpoint: str) -> LoadedAlgorithm:
    """The algorithm of a policy of a run, for `arena export`; also one that learns as a team.

    Raises:
        ConfigError: no such run, policy or checkpoint; no `exported()`; or the algorithm cannot be made.
    """
    folder = RunFolder.existing(run)
    config = load_config(folder.config)
    source = Source(config, folder, str(run))
    source.named(policy)
    registry.import_plugins(config.imports)
    configured, known = config.policies[policy], source.labeled(policy)
    file, tick = known.get(checkpoint), None
    if file is not None:
        tick = checkpoints.ticks_of(file)
    elif not known and configured.load is not None:  # without checkpoints in this run, the one that it was loaded from
        found = find_checkpoint(configured.load, policy)
        file = checkpoints.list_checkpoints(found)[-1] if found.is_dir() else found
        known = dict.fromkeys(("first", "last", str(checkpoints.load(file).boundary)), file)
    if known and checkpoint not in known:
        message = f"there is no checkpoint {checkpoint!r} of {policy!r}; {nearest(checkpoint, known)}"
        raise ConfigError(message, source=str(folder.path))
    if not spec_of(_algorithm(folder, policy, config, tick).cls).exports:
        raise ConfigError(
            f"the algorithm {configured.algorithm!r} of {policy!r} cannot be exported: it has no exported()",
            source=str(folder.path),
        )
    if file is None:
        raise ConfigError(f"there is no checkpoint of {policy!r}", source=str(run))
    with located(source=str(file)):
        loaded = configured_policy(config, folder, policy, tick)
    space, at = loaded.observation_space, loaded.ticks or 0
    return LoadedAlgorithm(loaded.algorithm, configured.algorithm, space, file, at)
