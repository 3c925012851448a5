"""The conformance check of games: plays random actions, twice with the same seeds, and resets lanes as they end."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, get_args

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from arena.entity_env.environment import is_entity_env
from arena.errors import ArenaError, ConfigError, GameError
from arena.game import spaces
from arena.game.api import BatchedEnv, Flags, Frame, Interface, Step
from arena.game.arrays import LARGEST
from arena.game.context import taken_by
from arena.game.infos import refused_key
from arena.game.ragged import Ragged
from arena.game.spaces import large_numbers
from arena.game.units import UnitActions, UnitSpace
from arena.records.outcome import Outcome
from arena.registry import environment_factory, load_object, where_raised

_ENTITY_LANES = 3  # in which games of entities are played
_LARGEST_SEED = 2**32 - 1  # that a run may draw for a game; some games in C++ take no more than 2^31 - 1


class ContractBroken(ArenaError, AssertionError):
    """A game, or a connection to external games, breaks its contract; the message names what, where, and the rule."""


def must(holds: Any, found: str, expected: str) -> None:
    """Raises `ContractBroken` unless a rule holds."""
    if not holds:
        raise ContractBroken(f"{found}; {expected}")


def check_interface(interface: Interface) -> None:
    """Checks the names of entities, and that each has its spaces."""
    names = interface.entities
    must(names and len(set(names)) == len(names), f"entities are {names}", "at least one, each with its own name")
    for field in ("observation_spaces", "action_spaces", "mask_sizes"):
        size = len(getattr(interface, field))
        must(size == len(names), f"interface.{field} has {size} items", f"one per entity, so {len(names)}")


def check_batched_env(
    env: BatchedEnv,
    *,
    ticks: int = 200,
    seed: int = 0,
    repeatable: bool = True,
    again: BatchedEnv | None = None,
    tolerate: Callable[[str], None] | None = None,
    advise: Callable[[str], None] | None = None,
) -> None:
    """Plays `ticks` ticks with random actions, twice, and checks everything that the game returns.

    Args:
        env: the game; it is left open, at the beginning of an episode.
        ticks: how long to play: long enough for some episodes to end, else fewer rules are checked.
        seed: of the game's lanes and of the random actions.
        repeatable: whether the same seeds and actions must give the same game; false for games that cannot
            guarantee it, such as games in real time.
        again: a second object of the same game, which plays the second time: a run makes its games again at each
            boundary, and so does a replay; None: `env` plays both times.
        tolerate: called with a sentence about each breach that does not prevent a run: the game is not repeatable, or
            cannot be rendered; None: these are raised, too.
        advise: called with a sentence about observations that a network does not learn from as they are.

    Raises:
        ContractBroken: at the first breach.
    """
    must(
        isinstance(env, BatchedEnv),
        f"{type(env).__name__} is no BatchedEnv",
        "it needs lanes, interface and four methods",
    )
    must(env.lanes >= 1, f"lanes is {env.lanes}", "a game has at least one lane")
    check_interface(env.interface)
    columns = env.interface.entities, env.interface.action_spaces, env.interface.mask_sizes
    for name, space, size in zip(*columns, strict=True):
        allowed = (0, spaces.mask_size(space))
        must(size in allowed, f"{name}: mask_size is {size}", f"for {space} it is one of {allowed}")

    @contextmanager
    def tolerated(cost: str) -> Iterator[None]:
        try:
            yield
        except ContractBroken as breach:
            if tolerate is None:
                raise
            tolerate(f"{breach}. It can be trained on, but {cost}")

    observed: list[list[list[Any]]] = []  # of each frame and entity the leaves
    first = _play(env, ticks, seed, observed)
    for name, space, frames in zip(
        env.interface.entities, env.interface.observation_spaces, zip(*observed, strict=True), strict=True
    ):
        if advise is not None and (text := large_numbers(space, list(map(np.concatenate, zip(*frames, strict=True))))):
            advise(f"{name}: {text}")
    if repeatable:

        def same(one: Any, other: Any) -> bool:
            if isinstance(one, Ragged):
                return np.array_equal(one.lengths, other.lengths) and same(one.values, other.values)
            return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")

        with tolerated("replays of it can differ, and a resumed run from the run that was not interrupted"):
            second = _play(env if again is None else again, ticks, seed)
            pairs = zip(first, second, strict=False)  # where their lengths differ, they differ before
            for event, (one, other) in enumerate(pairs):
                must(
                    len(one) == len(other) and all(map(same, one, other)),
                    f"frame {event}: the same seeds and actions gave another game the second time",
                    "everything random must come from the seeds given to reset",
                )
    with tolerated("there are no pictures of it in videos and in the report"):
        expected = "expected uint8 [height, width, 3], a text, or None"
        try:
            image = env.render()
        except Exception as error:
            found = f"render() raised {type(error).__name__}: {error}{where_raised(error)}"
            raise ContractBroken(f"{found}; {expected}") from error
        if image is not None and not isinstance(image, str):
            array = isinstance(image, np.ndarray)
            found = f"{image.dtype}{image.shape}" if array else repr(type(image))
            fits = array and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
            must(fits, f"render() gave {found}", expected)
    try:
        env.reset(np.ones(env.lanes, np.bool_), [_LARGEST_SEED - lane for lane in range(env.lanes)])
    except Exception as error:
        raise ContractBroken(
            f"reset() fails with the seed {_LARGEST_SEED}: {type(error).__name__}: {error}; a run gives seeds of 0 to "
            "2^32 - 1, so a game that takes fewer needs a wrapper that gives it, for example, `seed % 2**31`"
        ) from error


class _Player:
    """Plays a game with random allowed actions, and checks everything that it returns.

    Attributes:
        over: bool [L] lanes in which all entities have ended.
    """

    def __init__(self, env: BatchedEnv, seed: int) -> None:
        self._env, self._rng = env, np.random.default_rng(seed)
        self._actors = [copy.deepcopy(space) for space in env.interface.action_spaces]  # the game's are not seeded
        for entity, actor in enumerate(self._actors):
            actor.seed(seed + entity)
        shape = (env.lanes, len(env.interface.entities))
        self._ended = np.ones(shape, np.bool_)
        self._active = np.zeros(shape, np.bool_)
        self._masks = [np.ones((env.lanes, size), np.int8) for size in env.interface.mask_sizes]
        self._observations = [spaces.empty_batch(space, env.lanes) for space in env.interface.observation_spaces]

    @property
    def over(self) -> Flags:
        return np.asarray(self._ended.all(axis=1), np.bool_)

    def reset(self, lanes: Flags, seeds: Sequence[int | None] | None = None) -> Frame:
        """Begins an episode in these lanes."""
        frame = self._env.reset(lanes, seeds)
        _check_frame(self._env, frame, lanes, "after reset")
        self._ended[lanes] = False
        self._keep(frame, lanes, "after reset")  # the rows of other lanes mean nothing
        return frame

    def step(self) -> Step:
        """One tick of random actions: allowed ones where there are masks, and of units what they may do."""
        env, actions = self._env, []
        for entity, (actor, mask) in enumerate(zip(self._actors, self._masks, strict=True)):
            if isinstance(actor, UnitActions):
                shown = {
                    name: {part: rows.kept(self._active[:, entity]) for part, rows in parts.items()}
                    for name, parts in self._observations[entity]["actions"].items()
                }
                actions.append(actor.draw(shown, self._rng))
            else:
                samples = [_sample(actor, mask[lane], self._rng) for lane in range(env.lanes)]
                actions.append(spaces.stack(actor, samples))
        step = env.step(actions)
        must(isinstance(step, Step), f"step() gave a {type(step).__name__}", "expected an arena.game.api.Step")
        for name, dtype in (("rewards", np.float64), ("terminated", np.bool_), ("truncated", np.bool_)):
            _check_array(getattr(step, name), dtype, self._ended.shape, f"step.{name}")
        small = (np.abs(step.rewards) <= LARGEST).all()
        must(small, f"rewards are {step.rewards}", "they must be finite, and numbers that float32 holds")
        _check_frame(env, step.frame, ~self.over, "after step")
        ended = self._ended
        must(not step.rewards[ended].any(), "an entity that had ended got a reward", "it must be 0 until a reset")
        flags = step.terminated | step.truncated
        must(not flags[ended].any(), "an entity ended twice in an episode", "flags are true on one tick only")
        if env.interface.outcome == "info" and step.frame.infos is not None:
            for lane, entity in zip(*np.nonzero(flags), strict=True):
                stated = step.frame.infos[lane][entity].get("outcome")
                must(
                    stated is None or (isinstance(stated, str) and stated in get_args(Outcome)),
                    f"after step: {env.interface.entities[entity]!r} has the info 'outcome' {stated!r}",
                    "win, loss or draw, as the rule of the game is info",
                )
        self._ended = ended | flags
        self._keep(step.frame, np.ones(env.lanes, np.bool_), "after step")
        return step

    def _keep(self, frame: Frame, lanes: Flags, when: str) -> None:
        """Keeps what the next actions depend on, and checks who is active."""
        self._active[lanes] = frame.active[lanes]
        for entity, space in enumerate(self._env.interface.observation_spaces):
            if isinstance(space, UnitSpace):  # what its units may do is part of the observation
                before, now = self._observations[entity], frame.observations[entity]
                self._observations[entity] = spaces.replace_rows(space, before, now, lanes)
        for kept, mask in zip(self._masks, frame.masks, strict=True):
            if mask is not None:
                kept[lanes] = mask[lanes]
        must(not self._active[self._ended].any(), "an entity that has ended is active", "it is inactive until a reset")
        stuck = np.flatnonzero(~self.over & ~self._active.any(axis=1))
        goes_on = not stuck.size or not self._env.interface.holds_lanes
        must(goes_on, f"{when}: in lane {stuck} no entity is active", "a lane goes on until all have ended")


def _play(env: BatchedEnv, ticks: int, seed: int, observed: list[list[list[Any]]] | None = None) -> list[list[Any]]:
    """Everything that the game returned, frame by frame; `observed` gets copies of leaves, of ragged ones the items."""
    player, history = _Player(env, seed), []
    all_lanes = np.ones(env.lanes, np.bool_)

    def note(frame: Frame, lanes: Flags, *flags: Any) -> None:
        """Copies of a frame's arrays, which hold only until the next call."""
        flat = list(map(spaces.flatten, env.interface.observation_spaces, frame.observations))
        arrays = [frame.active, *(mask for mask in frame.masks if mask is not None)]
        arrays += [leaf for leaves in flat for leaf in leaves]
        history.append([copy.deepcopy(array if lanes is all_lanes else array[lanes]) for array in (*arrays, *flags)])
        if observed is not None and lanes is all_lanes:
            observed.append([[np.array(getattr(leaf, "values", leaf)) for leaf in leaves] for leaves in flat])

    note(player.reset(all_lanes, [seed + lane for lane in range(env.lanes)]), all_lanes)
    for tick in range(ticks):
        step = player.step()
        note(step.frame, all_lanes, step.rewards, step.terminated, step.truncated)
        over = player.over
        # Not at once, if the game can: lanes that are over must not change meanwhile.
        if over.any() and (tick % 3 == 2 or not env.interface.holds_lanes):
            note(player.reset(over), over)
    return history


def episodes_of(
    env: BatchedEnv, *, episodes: int, ticks: int, seconds: float = math.inf, seed: int = 0
) -> Iterator[tuple[list[float], list[object]]]:
    """Episodes of random actions in lane 0: per entity its return, and what its last info has under `outcome`.

    Ends after so many episodes, or so many ticks or seconds of all together; raises `ContractBroken`.
    """
    until = time.monotonic() + seconds
    player = _Player(env, seed)
    player.reset(np.ones(env.lanes, np.bool_), [seed + lane for lane in range(env.lanes)])
    returns = np.zeros(len(env.interface.entities))
    stated: list[object] = [None] * len(returns)
    for _ in range(ticks):
        step = player.step()
        returns += step.rewards[0]
        for entity in np.flatnonzero(step.terminated[0] | step.truncated[0]).tolist():
            if step.frame.infos is not None:
                stated[entity] = step.frame.infos[0][entity].get("outcome")
        if (over := player.over)[0]:
            yield returns.tolist(), stated
            episodes -= 1
            returns, stated = np.zeros(len(returns)), [None] * len(stated)
        if not episodes or time.monotonic() > until:
            return
        if over.any():
            player.reset(over)


def check_entity_env(make: str | Callable[[], Any], ticks: int = 200, seed: int = 0) -> None:
    """Plays a game with random allowed actions as the arena does, and checks everything that it gives.

    If the game takes a seed, it must play the same twice. Games of the package `entity-gym` are checked alike. `make`
    may be a name as in a configuration, `package.module:Class`; `ticks` should let some episodes end.

    Raises:
        ContractBroken: at the first breach.
    """
    factory = environment_factory(make) if isinstance(make, str) else make
    one = factory()
    must(
        is_entity_env(one),
        f"{type(one).__module__}.{type(one).__qualname__} is no arena.entity_env.Environment",
        "a game of this interface derives from it",
    )
    seeded = "seed" in taken_by(one) or callable(getattr(one, "seed", None))
    one.close()
    adapt = load_object("envs.adapters:adapt")
    with ExitStack() as stack:
        try:
            games = [stack.enter_context(closing(adapt(factory, {}, _ENTITY_LANES))) for _ in range(2)]
            check_batched_env(games[0], ticks=ticks, seed=seed, repeatable=seeded, again=games[1])
        except (ConfigError, GameError) as error:
            raise ContractBroken(str(error)) from error


def _check_array(array: Any, dtype: Any, shape: tuple[int, ...], where: str) -> None:
    found = f"{where} is {array.dtype}{array.shape}" if isinstance(array, np.ndarray) else f"{where} is {array!r}"
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == shape
    must(fits, found, f"expected an array {np.dtype(dtype)}{shape}")


def _check_frame(env: BatchedEnv, frame: Frame, lanes: Flags, when: str) -> None:
    """Checks the lanes of the mask in full; of the other lanes only that their rows are there."""
    names = env.interface.entities
    must(isinstance(frame, Frame), f"{when}: a {type(frame).__name__}", "expected an arena.game.api.Frame")
    _check_array(frame.active, np.bool_, (env.lanes, len(names)), f"{when}: active")
    for field in ("observations", "masks"):
        size = len(getattr(frame, field))
        must(size == len(names), f"{when}: {field} has {size} items", f"one per entity, so {len(names)}")
    for entity, name in enumerate(names):
        where = f"{when}: {name!r}"
        _check_observation(env, frame.observations[entity], entity, lanes, where)
        _check_mask(env, frame, entity, lanes, where)
    if frame.infos is None:
        return
    sizes = [len(lane) for lane in frame.infos]
    must(
        sizes == [len(names)] * env.lanes,
        f"{when}: infos have the sizes {sizes}",
        f"[L][E], so {[len(names)] * env.lanes}",
    )
    for lane in frame.infos:
        for info, size in zip(lane, env.interface.mask_sizes, strict=True):
            must(isinstance(info, dict), f"{when}: an info is {info!r}", "it must be a dict")
            must(not (size and "action_mask" in info), f"{when}: a mask is in an info", "masks are in frame.masks")
            refusal = refused_key(info)
            must(refusal is None, f"{when}: {refusal}", "see docs/writing-algorithms.md on the keys of infos")


def _check_observation(env: BatchedEnv, batched: Any, entity: int, lanes: Flags, where: str) -> None:
    space = env.interface.observation_spaces[entity]
    for leaf, array in zip(spaces.leaves_of(space, ragged=True), spaces.flatten(space, batched), strict=True):
        at = f"{where}: observations{leaf.place}"
        if not leaf.ragged:
            _check_array(array, leaf.dtype, (env.lanes, *leaf.shape), at)
            continue
        if not isinstance(array, Ragged):
            raise ContractBroken(f"{at} is {array!r:.80}; expected a Ragged with one row per lane")
        _check_array(array.values, leaf.dtype, (array.total, *leaf.shape), f"{at}.values")
        must(len(array) == env.lanes, f"{at} has {len(array)} rows", f"one per lane, so {env.lanes}")
    if isinstance(space, UnitSpace):
        shown = np.flatnonzero(lanes)
        breach = space.breach(spaces.take_rows(space, batched, shown))
        if breach is not None:
            raise ContractBroken(f"{where}: lane {shown[breach.row]}: {breach.text}")
    for lane in np.flatnonzero(lanes):
        row = spaces.row(space, batched, lane)
        if not space.contains(row):  # not `must`: to write out every row costs more than all checks
            leaves, parts = spaces.leaves_of(space, ragged=True), spaces.leaf_spaces(space)
            values = zip(leaves, parts, spaces.flatten(space, row), strict=True)
            wrong = ((leaf.place, part, value) for leaf, part, value in values if not part.contains(value))
            at, part, value = next(wrong, ("", space, row))
            raise ContractBroken(f"{where}: lane {lane} observes{at} {value}; it must lie in {part}")


def _check_mask(env: BatchedEnv, frame: Frame, entity: int, lanes: Flags, where: str) -> None:
    size, mask = env.interface.mask_sizes[entity], frame.masks[entity]
    if mask is None or not size:
        must(mask is None and not size, f"{where}: mask is {mask}, mask_size {size}", "None, and 0, or neither")
        return
    _check_array(mask, np.int8, (env.lanes, size), f"{where}: mask")
    if not np.isin(mask[lanes], (0, 1)).all():
        raise ContractBroken(f"{where}: mask {mask}; items are 0 (forbidden) and 1 (allowed)")
    last = None if frame.final_masks is None else frame.final_masks[entity]
    if last is not None:
        _check_array(last, np.int8, (env.lanes, size), f"{where}: final mask")
        if not np.isin(last[lanes], (0, 1)).all():
            raise ContractBroken(f"{where}: final mask {last}; items are 0 and 1")
    acting = spaces.allows_some(env.interface.action_spaces[entity], mask[lanes & frame.active[:, entity]])
    must(acting.all(), f"{where}: the mask forbids everything", "an active entity needs an allowed action")


def _sample(space: Space[Any], mask: NDArray[np.int8], rng: np.random.Generator) -> Any:
    """A random sample that the mask allows; any, where it allows nothing or is empty."""
    if not mask.any():
        return space.sample()
    if isinstance(space, Discrete):
        return space.start + rng.choice(np.flatnonzero(mask))
    if isinstance(space, MultiDiscrete):
        parts = np.split(mask, np.cumsum(space.nvec.reshape(-1))[:-1])
        chosen = [rng.choice(np.flatnonzero(part)) if part.any() else 0 for part in parts]
        return space.start + np.reshape(chosen, space.nvec.shape)
    return space.sample()
