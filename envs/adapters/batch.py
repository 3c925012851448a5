"""Several instances of one game, one per lane, as a `BatchedEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Space, Tuple
from numpy.typing import NDArray

from arena.errors import ArenaError, ConfigError, GameError, shorten
from arena.game import spaces
from arena.game.api import Flags, Frame, Info, Interface, ResetOptions, Seeds, Step
from arena.game.arrays import copied, described, lost_value
from arena.game.infos import MASK, warn_no_mask
from arena.game.ragged import Ragged
from arena.game.units import UnitSpace
from envs.adapters.lane import LaneGame, LaneStep, several_agents, write_mask


class BatchedLanes:
    """`L` games that step together; lanes that are over are not stepped until they are reset.

    Observations and masks are in buffers that are valid until the next call. Rows of entities that are not active have
    masks of ones; the last masks of entities whose episode has ended are in `final_masks`. Exceptions of a game are not
    caught; results that its spaces do not allow raise `GameError`.

    Args:
        games: one per lane, all with the same entities and spaces.
        seed: of the first game, if it must be reset once to see whether its infos have action masks.

    Raises:
        ConfigError: a space has no fixed layout.
    """

    def __init__(self, games: Sequence[LaneGame], seed: int = 0) -> None:
        self.lanes = len(games)
        self._games = tuple(games)
        first = self._games[0]
        for entity, observed, acted in zip(first.entities, first.observation_spaces, first.action_spaces, strict=True):
            for what, space in (("observation", observed), ("action", acted)):
                try:
                    spaces.leaves_of(space, ragged=True)
                except ConfigError as error:
                    kept = []  # the parts of an observation that have a layout
                    for key, part in space.spaces.items() if what == "observation" and isinstance(space, Dict) else ():
                        with suppress(ConfigError):
                            spaces.leaves_of(part, ragged=True)
                            kept.append(str(key))
                    wrapper = f'"gymnasium.wrappers:FilterObservation": {{filter_keys: [{", ".join(kept)}]}}'
                    hint = f"; around a Gymnasium environment `wrappers: [{{{wrapper}}}]` leaves it out" if kept else ""
                    raise ConfigError(f"{entity!r}, {what}: {error}{hint}") from error
        mask_sizes, possible = first.mask_sizes, list(map(spaces.mask_size, first.action_spaces))
        if any(size and not known for known, size in zip(mask_sizes, possible, strict=True)):
            try:
                infos = first.reset(seed, None).infos
            except (ConfigError, GameError) as error:
                raise self._from(error, "reset", 0) from error
            mask_sizes = tuple(
                known or (size if size and MASK in info else 0)
                for known, size, info in zip(mask_sizes, possible, infos, strict=True)
            )
        known = first.entities, first.observation_spaces, first.action_spaces, mask_sizes
        self.interface = Interface(*known, in_turns=first.in_turns)
        self._never_masked = list[str]()  # though an entity with the same actions has masks
        for name, acted, size in zip(first.entities, first.action_spaces, mask_sizes, strict=True):
            others = zip(first.entities, first.action_spaces, mask_sizes, strict=True)
            if not size and (masked := next((of for of, same, has in others if has and same == acted), None)):
                warn_no_mask(f"the game gave {name!r}", f"{masked!r} has one")
                self._never_masked.append(name)
        self._unmasked = [self._never_masked] * self.lanes  # the entities whose newest info had no mask
        shape = (self.lanes, len(first.entities))
        self._observations = [spaces.empty_batch(space, self.lanes) for space in first.observation_spaces]
        self._leaves = [
            spaces.flatten(space, batch)
            for space, batch in zip(first.observation_spaces, self._observations, strict=True)
        ]
        # By entity, and number of the ragged leaf: the arrays of all lanes, and the type and shape of an item.
        self._ragged = [
            {
                number: ([np.zeros((0, *leaf.shape), leaf.dtype)] * self.lanes, leaf)
                for number, leaf in enumerate(spaces.leaves_of(space, ragged=True))
                if leaf.ragged
            }
            for space in first.observation_spaces
        ]
        self._masks = [np.ones((self.lanes, n), np.int8) if n else None for n in self.interface.mask_sizes]
        self._active: Flags = np.zeros(shape, np.bool_)
        self._ended: Flags = np.ones(shape, np.bool_)  # before the first reset, every lane is over
        self._playing: list[int] = []  # the lanes that are not over
        self._closed = False

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Begins an episode in the lanes of the mask; `options` are passed to each of them."""
        infos = self._no_infos()
        lane = 0
        try:
            for lane in np.flatnonzero(lanes).tolist():
                seed = None if seeds is None else seeds[lane]
                lane_step = self._games[lane].reset(None if seed is None else int(seed), options)
                self._ended[lane] = False
                infos[lane] = self._put(lane, lane_step)
        except (ConfigError, GameError) as error:
            raise self._from(error, "reset", lane) from error
        self._note_ends()
        return self._frame(infos)

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in every lane that is not over."""
        shape = self._ended.shape
        rewards = np.zeros(shape)
        terminated, truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        infos = self._no_infos()
        lane, given = 0, [None] * shape[1]
        try:
            for lane in self._playing:
                acts = self._active[lane].tolist()
                columns = zip(self.interface.action_spaces, actions, acts, strict=True)
                given = [spaces.row(space, batch, lane) if active else None for space, batch, active in columns]
                lane_step = self._games[lane].step(given)
                infos[lane] = self._put(lane, lane_step)
                rewards[lane] = self._numbers(lane, lane_step.rewards)
                terminated[lane], truncated[lane] = lane_step.terminated, lane_step.truncated
                if lane_step.over:
                    truncated[lane] |= ~terminated[lane]
        except (ConfigError, GameError) as error:
            raise self._from(error, "step", lane) from error
        except Exception as error:  # which may come from an action that a mask should have forbidden
            got = [
                f"{name!r} gave no {MASK}, so all actions were allowed (it got action {action})"
                for name, action in zip(self.interface.entities, given, strict=True)
                if action is not None and name in self._unmasked[lane]
            ]
            if got and len(error.args) < 2:  # the message is the only argument
                error.args = (f"{error}; {shorten(got)}",)
            raise
        if np.count_nonzero(self._ended):  # an end is reported once
            for column in (rewards, terminated, truncated):
                column[self._ended] = 0
        ended = terminated | truncated
        if not np.count_nonzero(ended):
            return Step(self._frame(infos), rewards, terminated, truncated)
        self._ended |= ended
        self._note_ends()
        masks = [None if mask is None else mask.copy() for mask in self._masks]
        frame = self._frame(infos)
        if any(mask is not None for mask in masks):  # the game's own masks in rows that ended at this tick
            final = [
                None if mask is None or last is None else np.where(ended[:, entity, None], last, mask)
                for entity, (mask, last) in enumerate(zip(frame.masks, masks, strict=True))
            ]
            frame = frame._replace(final_masks=final)
        return Step(frame, rewards, terminated, truncated)

    def _from(self, error: ArenaError, call: str, lane: int) -> ArenaError:
        """An error about what a game has returned, with the method, its file and line, and the lane."""
        where = self._games[0].where(call)
        if isinstance(error, ConfigError):
            return ConfigError(error.message + where, path=error.path, source=error.source)
        assert isinstance(error, GameError), "no other error is about what a game returns"
        return GameError(
            f"{error.found}; from {call}(){where}", entity=error.entity, lane=lane if error.lane is None else error.lane
        )

    def _note_ends(self) -> None:
        """Updates `_playing`, after episodes have begun or ended: most ticks change nothing."""
        self._playing = np.flatnonzero(~self._ended.all(axis=1)).tolist()

    def _put(self, lane: int, lane_step: LaneStep) -> Sequence[Info]:
        """Writes a game's results into the lane's rows; returns its infos without the masks."""
        self._active[lane] = lane_step.active
        for entity, observation in enumerate(lane_step.observations):
            if observation is None:
                if lane_step.active[entity]:
                    raise self._wrong("the observation None; expected one, as it acts next", lane, entity)
                continue
            space, ragged = self.interface.observation_spaces[entity], self._ragged[entity]
            if ragged and isinstance(space, UnitSpace):
                try:
                    observation = space.complete(observation)
                except ValueError as error:
                    raise self._wrong(f"units that its space does not allow: {error}", lane, entity) from error
            try:
                arrays = spaces.flatten(space, observation)
            except (KeyError, IndexError, TypeError):
                arrays = []
            if len(arrays) != len(self._leaves[entity]):
                missing = " and ".join(spaces.missing_parts(space, observation))
                lacks = f"{missing}, {described(observation)}"
                raise self._wrong(f"an observation without {lacks}; its space is {space}", lane, entity)
            for number, (leaf, array) in enumerate(zip(self._leaves[entity], arrays, strict=True)):
                if number in ragged:
                    rows, part = ragged[number]
                    if array.shape[:1] == (0,):
                        array = np.zeros((0, *part.shape), part.dtype)
                    lost = lost_value(array, part.dtype)
                    if array.shape[1:] != part.shape or array.ndim == 0 or lost is not None:
                        found = f"{array.dtype} {array.shape}" if lost is None else f"with the value {lost}"
                        text = f"an observation{part.place} {found}; its items are {part.dtype} {part.shape}"
                        raise self._wrong(text, lane, entity)
                    rows[lane] = np.array(array, part.dtype)
                    continue
                # NumPy would broadcast silently, truncate fractions, and wrap integers.
                lost = None if array.dtype == leaf.dtype else lost_value(array, leaf.dtype)
                if array.shape != leaf.shape[1:] or lost is not None:
                    found = f"{array.dtype} {array.shape}" if lost is None else f"with the value {lost}"
                    place = spaces.leaves_of(space, ragged=True)[number].place
                    needs = f"its space {list(spaces.leaf_spaces(space))[number]} has {leaf.dtype} {leaf.shape[1:]}"
                    raise self._wrong(f"an observation{place} {found}; {needs}", lane, entity)
                leaf[lane] = array
        infos, self._unmasked[lane] = [], self._never_masked
        for entity, (info, mask) in enumerate(zip(lane_step.infos, self._masks, strict=True)):
            if not isinstance(info, dict):
                raise self._wrong(f"a {type(info).__name__} as its info; expected a dict", lane, entity)
            info = copied(info)  # the game may change it in place, in another lane too
            if mask is not None and MASK not in info:
                over = lane_step.over or lane_step.terminated[entity] or lane_step.truncated[entity]
                if lane_step.active[entity] and not (over or self._ended[lane, entity]):
                    warn_no_mask(f"the game gave {self.interface.entities[entity]!r}")
                    self._unmasked[lane] = [*self._unmasked[lane], self.interface.entities[entity]]
                mask[lane] = 1
            elif mask is not None:
                fault = write_mask(self.interface.action_spaces[entity], info.pop(MASK), mask[lane])
                if fault is not None:
                    raise self._wrong(fault, lane, entity)
            infos.append(info)
        return infos

    def _wrong(self, found: str, lane: int, entity: int) -> GameError:
        return GameError(found, entity=self.interface.entities[entity], lane=lane)

    def _numbers(self, lane: int, rewards: Sequence[Any]) -> list[float]:
        numbers: list[float] = []
        for entity, reward in zip(self.interface.entities, rewards, strict=True):
            try:
                if isinstance(reward, (str, bytes)):  # `float` would read it
                    raise TypeError("a text")
                numbers.append(float(reward))
                if isinstance(reward, (int, np.integer)) and int(reward) != numbers[-1]:
                    raise OverflowError("too large")
            except (TypeError, ValueError, OverflowError) as error:
                if np.ndim(reward):  # of agents, if the entity has a tuple of as many actions
                    space = self.interface.action_spaces[self.interface.entities.index(entity)]
                    if isinstance(space, Tuple) and len(space.spaces) == np.size(reward):
                        raise several_agents(np.size(reward)) from error
                    raise ConfigError(
                        f"the reward of {entity!r} is {reward!r}, of shape {np.shape(reward)}; expected one number. Of "
                        "several objectives give the weighted sum (the wrapper mo_gymnasium.wrappers:LinearReward "
                        "does), of several agents write a game of dictionaries by agent"
                    ) from error
                raise GameError(
                    f"the reward {reward!r:.80}; expected a number that float64 holds", entity=entity, lane=lane
                ) from error
        return numbers

    def _no_infos(self) -> list[Sequence[Info]]:
        return [[{} for _ in self.interface.entities] for _ in range(self.lanes)]

    def _frame(self, infos: Sequence[Sequence[Info]]) -> Frame:
        self._active &= ~self._ended
        for entity, mask in enumerate(self._masks):
            if mask is not None:
                mask[~self._active[:, entity]] = 1
        observations = list(self._observations)
        for entity, ragged in enumerate(self._ragged):
            if ragged:
                leaves = list(self._leaves[entity])
                for number, (rows, part) in ragged.items():
                    leaves[number] = Ragged.of(rows, part.dtype, part.shape)
                observations[entity] = spaces.unflatten(self.interface.observation_spaces[entity], leaves)
        has_infos = any(info for lane in infos for info in lane)
        return Frame(observations, self._active.copy(), self._masks, infos if has_infos else None)

    @property
    def state_space(self) -> Space[Any] | None:
        """Of the state of the whole game; None: it has none."""
        return self._games[0].state_space

    def state(self) -> NDArray[Any]:
        """The state of each lane, [L, ...]."""
        return np.stack([np.asarray(game.state()) for game in self._games])

    def render(self) -> NDArray[np.uint8] | str | None:
        """A picture of lane 0 if the game was made with `render_mode="rgb_array"`, a text with "ansi"."""
        return self._games[0].render()

    def close(self) -> None:
        """Closes every game, also if closing one of them fails."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as stack:
            for game in self._games:
                stack.callback(game.close)
