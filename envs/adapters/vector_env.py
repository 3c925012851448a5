"""A `gymnasium.vector.VectorEnv` as a `BatchedEnv`: its sub-environments are the lanes.

All autoreset modes become episodes that end and begin on the same tick, with the last observation on the tick of the
end:

    SAME_STEP   the last observation is in `infos["final_obs"]`; the first one of the next episode waits for `reset`
    DISABLED    `reset` passes on which lanes begin an episode, as `options["reset_mask"]`
    NEXT_STEP   likewise if the environment is a `SyncVectorEnv` or `AsyncVectorEnv` in no wrapper; any other gives the
                first observation of the next episode a tick later, and for this tick the lane is not active
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game import spaces
from arena.game.api import Flags, Frame, Info, Interface, ResetOptions, Seeds, Step
from arena.game.arrays import copied
from arena.game.infos import FINAL_KEYS, MASK, warn_no_mask
from envs.adapters.envpool_env import EnvPoolEnv
from envs.adapters.lane import check_reset, returned, write_mask

_OF_STEP = ("observations", "rewards", "terminations", "truncations", "infos")
_MIXING = ("NormalizeObservation", "NormalizeReward")  # wrappers of Gymnasium with one state for all lanes


def takes_num_envs(factory: Callable[..., Any]) -> bool:
    """Whether a factory makes vector environments of any size: a class of them, or a function with `num_envs`."""
    if isinstance(factory, type) and not issubclass(factory, VectorEnv):
        return False
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return False


class VectorGame:
    """Plays a vector environment with one entity, `agent_0`; sub-environments beyond the lanes get the no-op.

    Args:
        env: `N` sub-environments, at least as many as `lanes`.
        lanes: number of lanes, `L`.
        seed: of the reset that shows whether infos have action masks.

    Attributes:
        resets_lanes: whether single lanes can be reset before their episodes end.

    Raises:
        ConfigError: too few sub-environments; unequal spaces, or without a fixed layout; no autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], lanes: int, seed: int = 0) -> None:
        self.lanes, self._env, self._name = lanes, env, type(env.unwrapped).__name__
        count, observed, acted = env.num_envs, env.single_observation_space, env.single_action_space
        if count < lanes:
            raise ConfigError(
                f"{self._name} has {count} sub-environments for {lanes} lanes; set lanes: {count}, or let the number "
                "of lanes decide: without num_envs in kwargs, a class or function with the parameter num_envs gets it"
            )
        for what, single, whole in (
            ("observation", observed, env.observation_space),
            ("action", acted, env.action_space),
        ):
            spaces.leaves_of(single)
            if whole != batch_space(single, count):
                raise ConfigError(
                    f"the sub-environments of {self._name} have unequal {what} spaces, not {count} times {single}; "
                    "give all the same (a pool of EnvPool is made by `make: envpool:ID`)"
                )
        try:
            self._mode = AutoresetMode(env.metadata.get("autoreset_mode"))
        except ValueError as error:
            raise ConfigError(
                f"{self._name} does not say when it resets its sub-environments: metadata['autoreset_mode'] is "
                f"{env.metadata.get('autoreset_mode')!r}; set it to a gymnasium.vector.AutoresetMode"
            ) from error
        self.resets_lanes = self._mode is AutoresetMode.DISABLED or isinstance(env, (SyncVectorEnv, AsyncVectorEnv))
        check_reset(env.unwrapped)
        seed_parameter = inspect.signature(env.unwrapped.reset).parameters.get("seed")
        annotation = str(getattr(seed_parameter, "annotation", ""))
        self._seeds_lanes = "list" in annotation or "Sequence" in annotation
        joint, around = "" if self._seeds_lanes else f"{self._name} takes one seed for all lanes", env
        while isinstance(around, VectorWrapper):
            kind, around = type(around), around.env
            if kind.__name__ in _MIXING or not kind.__module__.startswith("gymnasium."):
                joint = joint or f"{kind.__name__} can have one state for all lanes"
        size = 0 if isinstance(env, EnvPoolEnv) else spaces.mask_size(acted)  # a pool is made when it is reset
        if size:
            seeds: Any = [seed] * count if self._seeds_lanes else seed
            infos: Any = env.reset(seed=seeds)[1]
            size = size if MASK in infos else 0
        self.interface = Interface(("agent_0",), (observed,), (acted,), (size,), joint=joint, holds_lanes=False)
        self._observations: Any = None  # of the last reset or step [N, ...]
        self._infos: Any = {}
        self._last = spaces.empty_batch(observed, count)  # with the last observations of episodes that have ended
        self._idle = spaces.stack(acted, [spaces.no_op(acted)] * (count - lanes))
        self._begun = np.zeros(count, np.bool_)  # [N] lanes that begin the next episode without a reset by the arena
        self._over = np.zeros(count, np.bool_)  # [N] lanes that must be reset before the next tick
        self._before: list[NDArray[Any]] = []  # leaves that a reset of some lanes must not change in others

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Begins an episode in the lanes of the mask.

        Raises:
            GameError: the environment cannot reset these lanes alone, or with these seeds; or it resets other lanes.
        """
        pairs = zip(lanes, seeds, strict=True) if seeds is not None else ()
        given = [int(one) if begins and one is not None else None for begins, one in pairs]
        seeded, same = any(one is not None for one in given), self._mode is AutoresetMode.SAME_STEP
        begun = lanes & self._begun[: self.lanes] & (not seeded and not options)
        of_begun = (self._infos if same else {}), begun
        if (begun == lanes).all():
            return self._frame(self._observations, lanes & same, [of_begun])
        if self.resets_lanes:  # a second reset would change what follows in lanes that have just ended by themselves
            lanes = lanes & ~begun
        everywhere = bool(lanes.all())
        if not everywhere and not self.resets_lanes:
            raise GameError(
                f"a reset of lane {int(np.argmax(lanes))} alone, in the midst of its episode: {self._name} cannot do "
                "this; reset all lanes at once, or use autoreset_mode DISABLED, in which it takes options['reset_mask']"
            )
        seed: Any = None
        if seeded and self._seeds_lanes:
            first = next(one for one in given if one is not None)
            seed = given + [(first + place) % 2**32 for place in range(self.lanes, len(self._over))]
        elif seeded:
            if None in given:
                raise GameError(f"a seed for some lanes alone: {self._name} takes one for all lanes; give all a seed")
            seed = given[0]
        mask = np.append(lanes, self._over[self.lanes :] | everywhere)
        extra = {**(options or {}), **({} if everywhere else {"reset_mask": mask.copy()})}
        result = self._env.reset(seed=seed, options=extra or None)
        self._observations, self._infos = returned(self._env, "reset", result, ("observations", "infos"))
        before, self._before = self._before, []
        if before and not everywhere:
            now = spaces.flatten(self.interface.observation_spaces[0], self._observations)
            if any(not np.array_equal(old[~mask], new[~mask]) for old, new in zip(before, now, strict=True)):
                raise self._wrong_mode("a reset of some lanes (options['reset_mask']) changes other observations")
        self._begun[mask] = self._over[mask] = False
        return self._frame(self._observations, lanes | begun, [of_begun, (self._infos, lanes)])

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in every lane.

        Raises:
            GameError: the environment resets its sub-environments in another mode than it says.
        """
        disabled, same = self._mode is AutoresetMode.DISABLED, self._mode is AutoresetMode.SAME_STEP
        if disabled and self._over.any():  # sub-environments beyond the lanes
            self._env.reset(options={"reset_mask": self._over.copy()})
            self._over[:] = False
        acted, given = self.interface.action_spaces[0], copied(actions[0])
        if len(self._over) > self.lanes:
            pairs = zip(spaces.flatten(acted, given), spaces.flatten(acted, self._idle), strict=True)
            given = spaces.unflatten(acted, [np.concatenate(pair) for pair in pairs])
        try:
            stepped = self._env.step(given)
        except (EOFError, ConnectionError) as error:  # an AsyncVectorEnv has lost the pipe to it
            raise GameError(f"no answer of a sub-environment: a process of {self._name} has died") from error
        result = returned(self._env, "step", stepped, _OF_STEP)
        self._observations, rewards, terminated, truncated, self._infos = result
        rewards, terminated, truncated = np.asarray(rewards), np.asarray(terminated), np.asarray(truncated)
        if not rewards.shape == terminated.shape == truncated.shape == self._over.shape:
            found = ", ".join(
                f"{what} {np.shape(array)}" for what, array in zip(_OF_STEP[1:4], result[1:4], strict=True)
            )
            raise GameError(f"arrays of other shapes than {self._over.shape}, one item per sub-environment: {found}")
        ended = np.asarray(terminated | truncated, np.bool_)
        if not same and self._begun.any():
            if (ended | (rewards != 0) & (not isinstance(self._env, VectorWrapper)))[self._begun].any():
                raise self._wrong_mode("on the tick after an end it plays on, with a reward or another end")
            rewards = np.where(self._begun, 0, rewards)
        shown, last, self._before = self._observations, self._infos, []
        if ended.any():
            if same:
                shown, last = self._final(np.flatnonzero(ended).tolist())
            elif not FINAL_KEYS.isdisjoint(self._infos):
                raise self._wrong_mode("`final_obs` in the infos shows that it resets on the tick of the end")
            elif disabled and not isinstance(self._env, EnvPoolEnv):
                self._before = copied(spaces.flatten(self.interface.observation_spaces[0], shown))
        self._begun = ended if same or not self.resets_lanes else np.zeros_like(ended)
        self._over |= ended & disabled
        active = ~ended[: self.lanes]
        frame = self._frame(shown, active, [(self._infos, active), (last, ~active)])
        if rewards.dtype.kind == "f":
            rewards = rewards.astype(np.float64)
        flags = (flag[: self.lanes, None].astype(np.bool_) for flag in (terminated, truncated))
        return Step(frame, rewards[: self.lanes, None], *flags)

    def _final(self, ended: Sequence[int]) -> tuple[Any, Mapping[str, Any]]:
        """The observations with the last ones of the lanes that have ended, and the last infos."""
        space, final = self.interface.observation_spaces[0], self._infos.get("final_obs")
        of_lane = isinstance(final, np.ndarray) and final.dtype == object  # else a batch
        if final is None or (of_lane and any(final[lane] is None for lane in ended)):
            raise self._wrong_mode(f"no `final_obs` in the infos of sub-environment {ended[0]}, which has ended")
        spaces.copy_rows(space, self._observations, self._last, slice(None))
        for lane in ended:
            spaces.write_sample(space, final[lane] if of_lane else spaces.row(space, final, lane), self._last, lane)
        return self._last, self._infos.get("final_info", {})

    def _frame(self, observations: Any, active: Flags, infos: Sequence[tuple[Mapping[str, Any], Flags]]) -> Frame:
        """`infos` has those of the vector environment, each with the lanes for which they hold."""
        space, size, lanes = self.interface.observation_spaces[0], self.interface.mask_sizes[0], self.lanes
        shown = spaces.unflatten(space, [leaf[:lanes] for leaf in spaces.flatten(space, observations)])
        of_lanes: dict[int, Info] = {}
        for found, rows in infos:
            if found:
                of_lanes.update(self._split(found, np.flatnonzero(rows).tolist()))
        mask = np.ones((lanes, size), np.int8) if size else None
        if mask is not None:
            for lane, acts in enumerate(active.tolist()):
                info = of_lanes.get(lane, {})
                if MASK in info:
                    fault = write_mask(self.interface.action_spaces[0], info.pop(MASK), mask[lane])
                    if fault is not None:
                        raise GameError(fault, entity="agent_0", lane=lane)
                elif acts:
                    warn_no_mask("the game gave 'agent_0'")
        listed = [[of_lanes.get(lane, {})] for lane in range(lanes)] if any(of_lanes.values()) else None
        return Frame([shown], active[:, None], [mask], listed)

    def _split(self, infos: Any, lanes: Sequence[int]) -> dict[int, Info]:
        """The infos of some lanes, out of arrays by key with masks by `_key`."""
        if not isinstance(infos, Mapping):
            raise ConfigError(
                f"the infos of {self._name} are a {type(infos).__name__}; expected a mapping by key of arrays with an "
                "item per sub-environment, as Gymnasium has it; leave out a wrapper such as DictInfoToList"
            )
        found: dict[int, Info] = {lane: {} for lane in lanes}
        for key, value in infos.items():
            if key in FINAL_KEYS or (str(key).startswith("_") and key[1:] in infos):
                continue
            there = infos.get(f"_{key}")
            rows = lanes if there is None else [lane for lane in lanes if there[lane]]
            if isinstance(value, Mapping):
                value = self._split(value, rows)
            elif np.shape(value)[:1] != self._over.shape:
                expected = f"expected an array with an item for each of {len(self._over)} sub-environments"
                raise GameError(f"the info {key!r} as a {type(value).__name__} of shape {np.shape(value)}; {expected}")
            for lane in rows:
                found[lane][key] = value[lane]
        return found

    def _wrong_mode(self, found: str) -> GameError:
        return GameError(
            f"{found}, but metadata['autoreset_mode'] of {self._name} is {self._mode.name}; set it to "
            "the mode in which it resets its sub-environments"
        )

    def render(self) -> NDArray[np.uint8] | str | None:
        """The picture or text of the first sub-environment, if `render_mode` is "rgb_array" or "ansi"."""
        if self._env.render_mode not in ("rgb_array", "ansi"):
            return None
        images: Any = self._env.render()
        return images if images is None else images[0]

    def close(self) -> None:
        # By default it waits, without an end, for the answer of a process that has died.
        self._env.close(**{"timeout": 5} if isinstance(self._env.unwrapped, AsyncVectorEnv) else {})
