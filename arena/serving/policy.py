"""A policy of a run, without a game: from the run folder, for actions and probabilities.

    blue = load_policy("runs/duel:blue@5000")
    blue.act(observation)                            one action; of a batch of observations a batch of actions
    blue.log_prob(observations, actions, masks)      if its algorithm has that

The algorithm is made as in a run, on an environment that has spaces and nothing else.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Space, Tuple
from numpy.typing import NDArray

from arena import registry
from arena.config.load import load_config
from arena.config.schema import Config
from arena.errors import ConfigError, located, nearest, shown
from arena.game.api import Interface
from arena.game.arrays import described, is_finite, lost_value
from arena.game.infos import fields_of
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, leaves_of, mask_fault, missing_parts, no_op, row, stack, take_rows, unflatten
from arena.league import rounds_file
from arena.league.sources import Source, find_checkpoint, named_in_run
from arena.plan.build import make_plan
from arena.plan.seats import resolve_entities
from arena.preflight.examine import interface_of
from arena.preflight.later_seats import later_plans
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecEnv, SpecVectorEnv, StubGroup, from_spaces
from arena.records import boundary
from arena.records import checkpoint as checkpoints
from arena.records.folder import RunFolder

Infos: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | NDArray[Any] | None
"""An info of a game, those of a vector environment, or one of each row; or the mask that they have."""


class Policy:
    """A policy as it was at one checkpoint. Made by `load_policy`; `arena.Policy` is an entry of a configuration.

    Args:
        make: makes its algorithm for a number of rows.
        team: the entities of a team that it learns as; rows are those of whole teams.
        ticks: of the checkpoint; None: there is none, as of a policy that is scripted.
        plays: how many entities of a game it plays.
        mask_size: of the masks that its game has; 0: none.
        title: what messages call it; empty: the class of its algorithm.

    Attributes:
        observation_space: of one entity.
        action_space: of one entity.
        ticks: of the checkpoint; None: there is none.
        algorithm: the instance of the algorithm's class; its `run` cannot be called.
        team: how many entities have actors of their own, as of vdn, qmix, maddpg and masac; 1: all act alike.
        memory_size: numbers that a row remembers, as of a GRU or LSTM; 0: none, or its actor keeps them.
        memories: by `entity` of `act`, what it remembers of the episode: a vector, or one for each row of a batch.
        remembers: whether actions depend on what was seen before; also true of an algorithm that does not say.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        observation_space: Space[Any],
        action_space: Space[Any],
        ticks: int | None,
        team: int = 1,
        *,
        plays: int = 1,
        mask_size: int = 0,
        names: Sequence[str] = (),
        title: str = "",
    ) -> None:
        self.observation_space, self.action_space, self.ticks = observation_space, action_space, ticks
        self.algorithm = algorithm = make(team)
        served = getattr(algorithm, "served", None)
        self._served = None if served is None else served()
        self.team = 1 if self._served is not None and not getattr(self._served, "entities", 0) else team
        self.memory_size: int = getattr(self._served, "memory_size", 0)
        in_actor = self._served is None and hasattr(algorithm, "served")  # `served = None`: a row has a state there
        declared = getattr(algorithm if self._served is None else self._served, "memory_size", None)
        self.remembers = in_actor or declared != 0
        self._says = self.remembers and declared is not None
        self._make, self._plays, self._mask_size, self._warned = make, plays, mask_size, False
        self._title = title or type(algorithm).__name__
        self._names = names  # of all entities that it plays; empty: not known
        self.reset()

    def __repr__(self) -> str:
        return f"<policy {self._title}, ticks={self.ticks}, {self.observation_space}>"

    def act(
        self,
        observation: Any,
        info: Infos = None,
        *,
        mask: Any = None,
        greedy: bool = True,
        entity: str | int | None = None,
    ) -> Any:
        """The action for one observation, or a batch of actions for a batch of observations.

        A policy with a memory goes on with what it has seen before, row by row; see `reset`.

        Args:
            observation: a sample of the observation space, or a batched one with the leading axis N; numbers of another
                dtype that the space's dtype holds are converted.
            info: of the game, of a vector environment, or one of each row; `action_mask` says which actions are
                allowed. Or the mask itself. `_final_obs` of a vector environment says which rows forget.
            mask: [mask_size] or [N, mask_size], in the place of an info; None: all actions are allowed.
            greedy: the best action rather than a sampled one.
            entity: which entity sees this, by its name in the game: a policy with a memory has one for each. Of a
                policy whose `team` has several entities, its number in the order of seats, from 0; None: the rows of a
                batch are those of whole teams, one after the other. Several games at once are a batch with a row for
                each game, or have a `load_policy` each.

        Raises:
            ValueError: the observation has other shapes than the space, with or without a leading axis, or is not
                finite; the mask is none of the action space, or allows no action; or `entity` is missing or unknown.
        """
        ended = info.get("_final_obs") if isinstance(info, Mapping) else None
        observations, mask, rows, single = self._batch_of(observation, mask_of(info if mask is None else mask))
        of_one = self.team > 1 and (single or rows % self.team != 0 or entity is not None)
        place = self.place(entity) if of_one or self.team == 1 else 0
        self._check_memory(entity, rows, single=single)
        if self.memory_size:
            actions = self._recall(observations, mask, ended, entity, place, rows, single=single, greedy=greedy)
            return row(self.action_space, actions, 0) if single else actions
        infos: dict[str, Any] = {"active": np.ones(rows, np.bool_)}  # as of a vector environment
        acting = slice(None)
        if mask is None and self._mask_size:
            mask = np.ones((rows, self._mask_size), np.int8)
        if of_one:
            # In a row of its place: those of the others in its team have no part in that.
            each = np.repeat(np.arange(rows), self.team)
            observations = take_rows(self.observation_space, observations, each)
            mask = None if mask is None else mask[each]
            rows, acting = len(each), slice(place, None, self.team)
            infos["active"] = np.arange(rows) % self.team == place
        if mask is not None:
            infos["action_mask"] = mask
        if ended is not None and not of_one:
            infos["_final_obs"] = np.asarray(ended)
        key = entity if self.remembers else None, greedy
        if key not in self._actors or self._actors[key][0] != rows:
            self._actors[key] = rows, self.actor(rows, greedy=greedy)
        actions = take_rows(self.action_space, self._actors[key][1](observations, infos), acting)
        return row(self.action_space, actions, 0) if single else actions

    def _batch_of(self, observation: Any, mask: Any) -> tuple[Any, Any, int, bool]:
        """Checks what `act` was given; returns observations and mask of N rows, N, and whether it was one sample."""
        space = self.observation_space
        ends = observation[-1] if isinstance(observation, tuple) and observation else None
        if isinstance(ends, Mapping) and not isinstance(space, Tuple):
            raise ValueError(
                "got a tuple that ends in an info, expected an observation: reset() returns (observation, info), and "
                "step() a tuple that begins with the observation: pass its first item"
            )
        if parts := missing_parts(space, observation):
            found = f"{'an array ' if isinstance(observation, np.ndarray) else ''}{described(observation)}"
            raise ValueError(f"got {found} without {', '.join(parts)}, expected a sample of {space} or a batch")
        arrays, leaves = flatten(space, observation), leaves_of(space, ragged=True)
        single = batched = True
        for array, leaf in zip(arrays, leaves, strict=True):
            if leaf.ragged:
                single &= isinstance(array, np.ndarray) and array.ndim > 0 and array.shape[1:] == leaf.shape
                batched &= isinstance(array, Ragged) and array.shape == leaf.shape
            else:
                single &= array.shape == leaf.shape
                batched &= array.shape[1:] == leaf.shape
        if not single and not batched:
            given = [*zip(leaves, arrays, strict=True)]
            # NumPy makes an array without axes of text, a mapping or None.
            others = [(leaf, array.item()) for leaf, array in given if array.shape == () and array.dtype.kind in "OSU"]
            found = ", ".join(f"{leaf.place} {described(other)}".strip() for leaf, other in others)
            if not found:
                shapes = ", ".join(f"{leaf.place} {array.shape}".strip() for leaf, array in given)
                found = f"an observation of shape {shapes}"
            raise ValueError(f"got {found}, expected one of {space} or a batch")
        for array, leaf in zip(arrays, leaves, strict=True):
            numbers = array.values if isinstance(array, Ragged) else array
            if (lost := lost_value(numbers, leaf.dtype)) is not None:
                found = f"has the value {lost}, which {leaf.dtype} does not hold"
                if numbers.dtype.kind == "f" and leaf.dtype.kind in "iu":
                    found = f"is {numbers.dtype}; {leaf.dtype} is needed"
                raise ValueError(f"the observation{leaf.place} {found}")
            if not is_finite(numbers):
                lost = numbers[~np.isfinite(numbers)][0]
                raise ValueError(f"the observation{leaf.place} has the value {lost}; expected finite numbers")
        if mask is not None and (fault := mask_fault(self.action_space, mask, *(() if single else (len(arrays[0]),)))):
            raise ValueError(f"the mask has {fault}")
        if mask is None and self._mask_size and not self._warned:
            self._warned = True
            text = "got no mask, though the game has masks, so all actions count as allowed; give `info` with the key "
            text += "'action_mask', or `mask`"
            warnings.warn(text, stacklevel=3)  # the line that calls `act`
        if single:
            pairs = zip(arrays, leaves, strict=True)
            arrays = [Ragged(array, [len(array)]) if leaf.ragged else array[None] for array, leaf in pairs]
            mask = None if mask is None else mask[None]
        mask = None if mask is None else mask.astype(np.int8, copy=False)
        pairs = zip(arrays, leaves, strict=True)  # as in training
        arrays = [array if array.dtype == leaf.dtype else array.astype(leaf.dtype) for array, leaf in pairs]
        return unflatten(space, arrays), mask, len(arrays[0]), single

    def _recall(
        self,
        observations: Any,
        mask: Any,
        ended: Any,
        entity: str | int | None,
        place: int,
        rows: int,
        *,
        single: bool,
        greedy: bool,
    ) -> Any:
        """Actions of rows that go on with the memories of an entity, which are kept."""
        assert self._served is not None, "it has a memory"
        before = self.memories.get(entity)
        before = np.zeros((rows, self.memory_size), np.float32) if before is None else before.reshape(rows, -1)
        if ended is not None:
            before = np.where(np.asarray(ended)[:, None], np.float32(0), before)
        places = [(place + np.arange(rows) * (entity is None)) % self.team] if self.team > 1 else []
        random = None if greedy else [self._random] * rows
        actions, after = self._served.act(observations, mask, before, random, *places)
        self.memories[entity] = after[0] if single else after
        return actions

    def _check_memory(self, entity: str | int | None, rows: int, *, single: bool) -> None:
        """Refuses a call that would mix what is remembered of several entities."""
        if not self._says:
            return
        name = self._title
        if single and entity is None and self._plays > 1 and None not in self.memories:
            raise ValueError(
                f"{name} has a memory and plays {self._plays} entities of a game; say which of them sees this, such as "
                "entity='red_0': each has a memory of its own"
            )
        now = _shown(None if single else rows)
        if (before := self._seen.setdefault(entity, now)) != now:
            if entity is None:
                of, remedy = "", "name each entity in act(..., entity=...), or call reset() when an episode begins"
            else:
                of, remedy = f" of entity {entity!r}", f"call reset(entity={entity!r}) when an episode begins"
            raise ValueError(f"{name} has a memory, of {before}{of}, and got {now}; {remedy}")

    def place(self, entity: Any) -> int:
        """The place of an entity in the team, 0 if all act alike; ValueError: it is missing or unknown."""
        if self.team == 1:
            names = self._names
            if entity is not None and names and entity not in names and entity not in range(len(names)):
                raise ValueError(
                    f"{self._title} plays no entity {entity!r}; {nearest(str(entity), names)}; for "
                    "several games at once pass a batch with a row for each, or load the policy once for each"
                )
            return 0
        count = max(self.team, self._plays)
        if entity not in range(count):
            raise ValueError(
                f"{self._title} has an actor for each of {self.team} entities: got entity={entity!r}, expected its "
                f"number in the order of seats, 0 to {count - 1}, or a batch with rows of all of them"
            )
        return int(entity) % self.team

    def reset(self, entity: str | int | None = None) -> None:
        """Forgets what an entity has seen, at the beginning of an episode; None: all, and random draws begin again.

        Raises:
            ValueError: an entity that the policy does not play.
        """
        if entity is None:
            self.memories: dict[str | int | None, NDArray[np.float32] | None] = {}
            self._seen: dict[str | int | None, str] = {}  # what each memory is of
            self._actors: dict[tuple[str | int | None, bool], tuple[int, Callable[[Any, Any], Any]]] = {}
            self._random = np.random.default_rng(0)
            return
        self.place(entity)
        self.remember(None, entity)
        for greedy in (False, True):
            self._actors.pop((entity, greedy), None)

    def remember(self, memory: NDArray[np.float32] | None, entity: str | int | None = None) -> None:
        """Replaces what is remembered of an entity: a vector, or one for each row of a batch; None: nothing.

        Raises:
            ValueError: the memory is none of `memory_size` finite numbers, or the policy does not play the entity.
        """
        if entity is not None:
            self.place(entity)
        if memory is not None:
            memory = self._checked_memory(memory)
        self.memories[entity] = memory
        self._seen.pop(entity, None)
        if memory is not None:
            self._seen[entity] = _shown(None if memory.ndim == 1 else len(memory))

    def _checked_memory(self, memory: Any) -> NDArray[np.float32]:
        """A memory as an array; ValueError: it does not fit."""
        if not self.memory_size:
            raise ValueError(f"{self._title} takes no memory: its memory_size is 0")
        expected = f"expected {self.memory_size}, or a row of so many for each row of a batch"
        try:
            found = np.asarray(memory, np.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(f"memory is {described(memory)}, not numbers; {expected}") from error
        if found.ndim not in (1, 2) or found.shape[-1] != self.memory_size:
            shape = f"{len(found)} numbers" if found.ndim == 1 else f"the shape {found.shape}"
            raise ValueError(f"memory has {shape}, {expected}")
        if not is_finite(found):
            raise ValueError("memory has numbers that are not finite")
        return found

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
            raise ConfigError(f"{self._title} has no log_prob()")
        found: NDArray[np.float64] = self.algorithm.log_prob(observations, actions, masks)
        return found

    def actor(self, rows: int, *, greedy: bool) -> Callable[[Any, Any], Any]:
        """A new function from (observations, infos) of a vector environment with so many `rows` to actions.

        `greedy`: the best actions rather than sampled ones.
        """
        # An algorithm that learns takes any number of rows; others are made for as many as their environment has.
        learns = hasattr(self.algorithm, "load_state_dict")
        algorithm = self.algorithm if learns else self._make(rows)
        if not hasattr(algorithm, "actor"):
            name = type(algorithm).__name__
            raise ConfigError(f"the algorithm {name} cannot act outside of a run: it has no actor()")
        takes_greedy = "greedy" in inspect.signature(algorithm.actor).parameters
        make: Callable[[], Callable[[Any, Any], Any]] = (
            partial(algorithm.actor, greedy=greedy) if takes_greedy else algorithm.actor
        )
        of_gym = "vector" not in spec_of(type(algorithm)).faces
        return self._by_row([make() for _ in range(rows)]) if of_gym else make()

    def _by_row(self, actors: Sequence[Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
        """Actors of the gym face, one for each row, as a function of the rows of a vector environment."""
        begin = [getattr(actor, "begin_episode", lambda: None) for actor in actors]
        begun = [False] * len(actors)

        def act(observations: Any, infos: Mapping[str, Any]) -> Any:
            fields, actions = fields_of(infos), []
            for at, actor in enumerate(actors):
                if not begun[at] or (fields.ended is not None and fields.ended[at]):
                    begun[at] = True
                    begin[at]()
                seen = row(self.observation_space, observations, at)
                info = {} if fields.action_mask is None else {"action_mask": fields.action_mask[at]}
                actions.append(actor(seen, info) if fields.active[at] else no_op(self.action_space))
            return stack(self.action_space, actions)

        return act


def _shown(rows: int | None) -> str:
    return "one observation" if rows is None else f"a batch of {rows}"


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
            loaded. `RUN` alone means its only policy, or the only one that learns.
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
                f"{configured.algorithm}; name one of {configured.algorithm}, or, to play without the checkpoint, take "
                f"{shown(folder.config)} with `load` of the others, as --set policies.NAME.load={shown(folder.path)}",
                source=str(folder.path),
            )
    elif saved and (newest := checkpoints.load_to_act(saved[-1])).algorithm == configured.algorithm:
        found = newest  # else its algorithm has changed, and it has not begun to learn
    elif configured.load is not None:
        found = checkpoints.load_to_act(find_checkpoint(configured.load, name, folder))
    cls, options = _algorithm(folder, name, config, checkpoint)
    spec, team, plays, mask_size = spec_of(cls), 1, 1, 0
    names: Sequence[str] = ()
    if set(spec.faces) == {"parallel"}:
        text = f"{configured.algorithm!r} has the face parallel alone; outside of a run policies act by vector or gym"
        raise ConfigError(text, path=f"policies.{name}.algorithm")
    if observation_space is None or action_space is None or spec.checks_team:
        seat = first_seat(config, name)
        team = seat.team if spec.checks_team else 1
        plays, mask_size, names = seat.plays, seat.interface.mask_sizes[0], seat.names
        observation_space = observation_space or seat.interface.observation_spaces[0]
        action_space = action_space or seat.interface.action_spaces[0]
    if spec.checks_spaces:
        cls.check(observation_space, action_space)
    group = StubGroup(name, configured.sync, seed=config.seed, shared_seed=config.seed)

    def make(rows: int) -> Any:
        env: Any = SpecEnv(observation_space, action_space)
        if "vector" in spec.faces:
            env = SpecVectorEnv(observation_space, action_space, rows=rows, entities=[*map(str, range(team))])
        algorithm = from_spaces(cls, env, group, ticks=config.ticks, options=options)
        if found is not None:
            algorithm.load_state_dict(found.state)
        return algorithm

    boundary_of = None if found is None else found.boundary
    return Policy(
        make,
        observation_space,
        action_space,
        boundary_of,
        team,
        plays=plays,
        mask_size=mask_size,
        names=names,
        title=f"{name} ({configured.algorithm})",
    )


class FirstSeat(NamedTuple):
    """The first seat that a policy has."""

    interface: Interface  # of its entities
    teams: tuple[tuple[int, ...], ...]  # of the policy, see `Plan.teams`
    plays: int  # how many entities of the game the policy plays, in all of its seats
    names: tuple[str, ...]  # of the entities that it plays in any match; empty if it plays several games

    @property
    def team(self) -> int:
        """How many entities its first team has."""
        return len(self.interface.entities) * len(self.teams[0])


def first_seat(config: Config, name: str) -> FirstSeat:
    """The first seat of a policy, a `ConfigError` if it has none; its game is made once."""
    played = [
        (plan, match)
        for plan in (make_plan(config), *later_plans(config))
        for match in plan.matches
        if any(seat.policy == name for seat in match.seats)
    ]
    if not played:
        raise ConfigError(
            f"{name!r} has no seat in this configuration; say of which spaces it is: observation_space, action_space",
            path=f"policies.{name}",
        )
    plan, first = played[0]
    whole = interface_of(first)
    entities = [  # of the policy, by match
        [
            at
            for seat, them in zip(match.seats, resolve_entities(match.seats, whole.entities), strict=True)
            if seat.policy == name
            for at in them
        ]
        for _, match in played
        if match.game == first.game
    ]
    names = {whole.entities[at]: None for them in entities for at in them} if len(entities) == len(played) else ()
    seat = next(seat for seat in first.seats if seat.policy == name)
    part = whole.part(resolve_entities(first.seats, whole.entities)[seat.index])
    return FirstSeat(part, plan.teams[name], len(entities[0]), tuple(names))


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
        file = find_checkpoint(configured.load, policy, folder)
        known = dict.fromkeys(("first", "last", str(checkpoints.load(file).boundary)), file)
    if known and checkpoint not in known:
        message = f"there is no checkpoint {checkpoint!r} of {policy!r}; {nearest(checkpoint, known)}"
        raise ConfigError(message, source=str(folder.path))
    if not spec_of(_algorithm(folder, policy, config, tick).cls).exports:
        raise ConfigError(
            f"the algorithm {configured.algorithm!r} of {policy!r} cannot be exported: it has no exported(); see "
            "docs/dict-and-masks.md",
            source=str(folder.path),
        )
    if file is None:
        raise ConfigError(f"there is no checkpoint of {policy!r}", source=str(run))
    with located(source=str(file)):
        loaded = configured_policy(config, folder, policy, tick)
    space, at = loaded.observation_space, loaded.ticks or 0
    return LoadedAlgorithm(loaded.algorithm, configured.algorithm, space, file, at)
