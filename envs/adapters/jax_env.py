"""Games in JAX as a `BatchedEnv`: pure functions of one game, vectorized over the lanes and compiled.

Two forms are known by their methods, without a base class:

    pgx      init(key) and step(state, action, key) give a state, which has current_player, observation, rewards,
             terminated, truncated and legal_action_mask; `num_players` take turns
    Gymnax   reset_env(key, params) gives observation and state; step_env(key, state, action, params) gives observation,
             state, reward, whether it is terminated, and infos; is_truncated(state, params) if there is a time limit
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from arena.errors import ConfigError, GameError
from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step


class Lane(NamedTuple):
    """One lane as JAX arrays; a batch has a leading axis L."""

    key: Any  # of its random stream
    state: Any
    seen: Any  # [E, ...] the last observation of each player
    player: Any  # index of the player to move
    mask: Any  # int8 [A] its allowed actions; A is 0 without masks
    rewards: Any  # [E]
    terminated: Any
    truncated: Any


def is_jax_env(made: Any) -> bool:
    """Whether an object is a game of one of the two forms, or a pair of one and its parameters, as Gymnax makes it."""
    env = made[0] if isinstance(made, tuple) and len(made) == 2 else made
    forms = ("init", "step", "num_players", "num_actions"), ("reset_env", "step_env", "action_space")
    return any(all(hasattr(env, name) for name in form) for form in forms)


class JaxGame:
    """Plays `lanes` lanes; raises ConfigError if the game's functions are not pure, or change the form of the state."""

    def __init__(self, made: Any, lanes: int) -> None:
        self.lanes, jax = lanes, importlib.import_module("jax")
        jnp, tree = jax.numpy, jax.tree
        env, params = made if isinstance(made, tuple) else (made, getattr(made, "default_params", None))
        who = f"of the JAX game {type(env).__name__}"
        init, move, shown, players, acted = _pgx(env) if hasattr(env, "num_players") else _gymnax(jnp, env, params)

        def lane_of(key: Any, state: Any, before: Any = None) -> Lane:
            now, player, mask, *ends = shown(state)
            seen = jnp.zeros((len(players), *now.shape), now.dtype) if before is None else before
            return Lane(key, state, seen.at[player].set(now), jnp.int32(player), mask.astype(jnp.int8), *ends)

        def begin(key: Any) -> Lane:
            key, fresh = jax.random.split(key)
            return lane_of(key, init(fresh))

        def play(lane: Lane, action: Any) -> Lane:
            key, fresh = jax.random.split(lane.key)
            return lane_of(key, move(lane.state, action, fresh), lane.seen)

        def begin_if(on: Any, lane: Lane, seed: Any, seeded: Any) -> Any:
            new = begin(jnp.where(seeded, jax.random.PRNGKey(seed), lane.key))
            return tree.map(partial(jnp.where, on), new, lane)

        def play_if(on: Any, lane: Lane, *actions: Any) -> Any:
            return tree.map(partial(jnp.where, on), play(lane, jnp.stack(actions)[lane.player]), lane)

        one = _traced(jax, f"reset {who}", begin, jax.random.PRNGKey(0))
        after = _traced(jax, f"step {who}", play, one, jax.ShapeDtypeStruct(acted.shape, acted.dtype))
        first, then = (tree.map(lambda leaf: f"{leaf.dtype}{leaf.shape}", lane) for lane in (one, after))
        if first != then:
            raise ConfigError(f"step {who} changes shapes or dtypes of the state: {first} became {then}")
        self._begin, self._play = jax.jit(jax.vmap(begin_if)), jax.jit(jax.vmap(play_if))
        self._lane: Lane = tree.map(lambda leaf: np.zeros((lanes, *leaf.shape), leaf.dtype), one)
        self._playing = np.zeros(lanes, np.bool_)
        count, kind = len(players), one.seen.dtype
        bounds: Any = {"b": (0, 1), "f": (-np.inf, np.inf)}.get(kind.kind) or (np.iinfo(kind).min, np.iinfo(kind).max)
        dtype: Any = np.int8 if kind.kind == "b" else kind.type
        observed = Box(bounds[0], bounds[1], one.seen.shape[1:], dtype)
        spaces = (observed,) * count, (acted,) * count
        joint = f"XLA can round the numbers {who} differently for another number of lanes" if kind.kind == "f" else ""
        rule, turns = "higher_return" if count == 2 else None, count > 1
        self.interface = Interface(players, *spaces, one.mask.shape * count, outcome=rule, in_turns=turns, joint=joint)

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Begins an episode in the lanes of the mask; raises GameError if there are options."""
        if options:
            raise GameError(f"the reset options {', '.join(options)}: a JAX game takes none")
        given = seeds or [None] * self.lanes
        seeded = np.array([seed is not None for seed in given])
        numbers = np.array([(seed or 0) % 2**32 for seed in given], np.uint32)
        self._lane = self._begin(lanes, self._lane, numbers, seeded)
        self._playing = self._playing | lanes
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """Plays one tick in the lanes whose episode goes on."""
        on = self._playing[:, None]
        self._lane = self._play(self._playing, self._lane, *actions)
        rewards, terminated, truncated = map(np.asarray, self._lane[-3:])
        flags = (np.repeat(on & flag[:, None], rewards.shape[1], 1) for flag in (terminated, truncated & ~terminated))
        self._playing = self._playing & ~terminated & ~truncated
        return Step(self._frame(), np.where(on, rewards, 0.0).astype(np.float64), *flags)

    def _frame(self) -> Frame:
        seen, player, mask = np.asarray(self._lane.seen), np.asarray(self._lane.player), np.asarray(self._lane.mask)
        players, seen = range(seen.shape[1]), seen.view(np.int8) if seen.dtype == bool else seen
        active = self._playing[:, None] & (player[:, None] == np.array(players))
        masks = [np.where(active[:, [each]], mask, np.int8(1)) if mask.shape[1] else None for each in players]
        return Frame([seen[:, each] for each in players], active, masks)

    def render(self) -> None:
        """None: games in JAX have no common form of pictures."""

    def close(self) -> None:
        """Nothing to release."""


def _traced(jax: Any, who: str, function: Callable[..., Any], *args: Any) -> Any:
    """Shapes and dtypes of what a function gives; raises ConfigError unless two traces are one pure computation."""
    try:
        with jax.checking_leaks():
            first, second = (jax.make_jaxpr(lambda *given: function(*given))(*args) for _ in range(2))
        texts = [re.sub("0x[0-9a-f]+", "", str(one)) for one in (first, second)]  # without addresses
        if texts[0] != texts[1] or not all(map(np.array_equal, first.consts, second.consts)):
            raise ValueError("it takes numbers from outside, which differ when it is called again")
        if first.effects:
            raise ValueError(f"it has effects: {', '.join(map(str, first.effects))}")
        return jax.eval_shape(function, *args)
    except Exception as error:  # any: the game's own code runs
        found = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        remedy = "compute all from the arguments by jax.numpy, with random numbers from the key, and keep nothing"
        raise ConfigError(f"{who} is not a pure function ({found}); {remedy}") from error


def _pgx(env: Any) -> tuple[Any, ...]:
    """Of one lane: key -> state; state, action, key -> state; state -> last six of `Lane`. Then players, actions."""
    shown = attrgetter("observation", "current_player", "legal_action_mask", "rewards", "terminated", "truncated")
    players = tuple(f"player_{number}" for number in range(env.num_players))
    return env.init, env.step, shown, players, Discrete(int(env.num_actions))


def _gymnax(jnp: Any, env: Any, params: Any) -> tuple[Any, ...]:
    """As `_pgx`; a state is of the game, with what it shows."""

    def play(state: Any, action: Any, key: Any) -> tuple[Any, ...]:
        observation, inner, reward, terminated, _ = env.step_env(key, state[1], action, params)
        truncated = env.is_truncated(inner, params) if hasattr(env, "is_truncated") else False
        return observation, inner, jnp.float32(reward).reshape(1), jnp.bool_(terminated), jnp.bool_(truncated)

    acted = env.action_space(params)
    numbers = Discrete(int(acted.n)) if hasattr(acted, "n") else Box(acted.low, acted.high, acted.shape, np.float32)
    return (
        lambda key: (*env.reset_env(key, params), jnp.zeros(1), jnp.bool_(False), jnp.bool_(False)),
        play,
        lambda state: (jnp.asarray(state[0]), 0, jnp.zeros(0, jnp.int8), *state[2:]),
        ("agent_0",),
        numbers,
    )
