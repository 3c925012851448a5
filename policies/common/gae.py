"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438), also for games in turns.

A *transition* of a row begins on a tick where the row acts and is complete on the next tick where it ends its
episode or may act again; the rewards of the ticks between belong to it. Where every row acts on every tick a
transition is one tick, and this is the textbook estimator. Discounting counts transitions, not ticks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


class Trajectories(NamedTuple):
    """What `T` ticks of `B` rows gave. All arrays are [T, B] unless said otherwise."""

    rewards: Floats
    values: Floats  # V(s) of what the row saw when it acted
    terminated: Flags  # the row's episode ended by the game's rules: nothing comes after
    truncated: Flags  # the row's episode was cut: `final_values` estimates the rest of its return
    final_values: Floats  # V(final observation), read only where truncated and not terminated
    active: Flags  # the row acted on this tick
    last_values: Floats  # [B] V of what the row sees after the last tick
    last_active: Flags  # [B] the row may act after the last tick
    void: Flags | None = None  # the transition that is complete after this tick is not to be learned from; None: none
    given: Flags | None = None  # the action on this tick was not the policy's: no sample of it; None: all were


class Advantages(NamedTuple):
    """Estimates per transition, stored on the tick where it began; all arrays are [T, B]."""

    advantages: NDArray[np.float64]  # 0 where not valid
    returns: NDArray[np.float64]  # advantage + value: the target of the value function
    valid: Flags  # a complete transition of the policy began on this tick
    open: Flags  # a transition began on this tick and is still incomplete after the last one


def advantages_of(
    seen: Trajectories, *, gamma: float | Floats, gae_lambda: float, ratios: Floats | None = None
) -> Advantages:
    """Advantages by equations (11) to (16) of arXiv 1506.02438, cut where episodes end.

    A transition that is still incomplete after the last tick is not valid but open: the row has acted, waits for the
    others, and what it will see next is not known yet. The row's earlier transitions look ahead as far as its
    beginning, as they do before a void transition. Estimates run through given actions.

    With `ratios` these are the estimates of V-trace (Espeholt et al. 2018, arXiv 1802.01561): returns are v_s of its
    equation (1), both truncation levels are 1, and c_i has the factor lambda of remark 2. Advantages are v_s - V(s):
    with lambda 1 what its section 4.2 multiplies grad log pi by, and with ratios of 1 those of GAE.

    Args:
        seen: the trajectories.
        gamma: discount per transition; or, [T, B], of the transition that begins on each tick, if these differ.
        gae_lambda: weight of the longer looks ahead; 0 is one-step, 1 is Monte Carlo minus the value.
        ratios: [T, B] pi(a|s) / mu(a|s) of the policy that learns and the one that acted; None: they are the same.
    """
    rho = None if ratios is None else np.minimum(ratios, 1.0)
    outside = any(flags is not None and flags.any() for flags in (seen.void, seen.given))
    if not outside and seen.active.all() and seen.last_active.all():
        return _every_tick(seen, gamma, gae_lambda, rho)
    return _in_turns(seen, gamma, gae_lambda, rho)


def _final_values(seen: Trajectories) -> NDArray[np.float64]:
    """The value after an episode's end [T, B]: V where it was only cut, else 0. Terminated wins over truncated."""
    cut = seen.truncated & ~seen.terminated
    return np.where(cut, seen.final_values, 0.0).astype(np.float64)


def _every_tick(seen: Trajectories, gamma: float | Floats, gae_lambda: float, rho: Floats | None) -> Advantages:
    """The usual case: every row acts on every tick, so all but the recursion is done at once."""
    values = seen.values.astype(np.float64)
    ended = seen.terminated | seen.truncated
    next_values = np.concatenate([values[1:], seen.last_values[None].astype(np.float64)])
    next_values = np.where(ended, _final_values(seen), next_values)
    deltas = seen.rewards + gamma * next_values - values  # eq. (11)
    decay = gamma * gae_lambda * ~ended
    advantages = np.empty_like(values)
    ahead = np.zeros(values.shape[1])
    for t in range(len(values) - 1, -1, -1):
        ahead = deltas[t] + decay[t] * ahead  # eq. (16) as a recursion
        ahead = ahead if rho is None else rho[t] * ahead
        advantages[t] = ahead
    return Advantages(advantages, advantages + values, np.ones_like(ended), np.zeros_like(ended))


def _in_turns(seen: Trajectories, gamma: float | Floats, gae_lambda: float, rho: Floats | None) -> Advantages:
    """The general case, one backward pass that keeps for each row what comes after its next own action."""
    values = seen.values.astype(np.float64)
    gammas = np.broadcast_to(np.asarray(gamma, np.float64), values.shape)
    ended = seen.terminated | seen.truncated
    final_values = _final_values(seen)
    void = np.zeros_like(ended) if seen.void is None else seen.void
    own = np.ones_like(ended) if seen.given is None else ~seen.given
    weights = np.ones_like(values) if rho is None else np.where(own, rho, 1.0)  # a given action is part of the game
    advantages, valid, opened = np.zeros_like(values), np.zeros_like(ended), np.zeros_like(ended)
    known = seen.last_active.copy()  # is it known what follows the row's action?
    spoiled = np.zeros_like(known)  # is the transition that the row's action begins void?
    value, ahead = seen.last_values.astype(np.float64), np.zeros(values.shape[1])
    owed = np.zeros(values.shape[1])  # rewards since then, earned by the action before them
    for t in range(len(values) - 1, -1, -1):
        end, acted = ended[t], seen.active[t]
        known = known | end
        spoiled = void[t] | (spoiled & ~end)
        value = np.where(end, final_values[t], value)
        ahead = np.where(end, 0.0, ahead)
        owed = np.where(end, 0.0, owed) + seen.rewards[t]
        sound = acted & known & ~spoiled
        estimate = np.where(sound, owed + gammas[t] * value - values[t] + gammas[t] * gae_lambda * ahead, 0.0)
        estimate *= weights[t]
        valid[t] = sound & own[t]
        opened[t] = acted & ~known
        advantages[t] = np.where(valid[t], estimate, 0.0)
        value = np.where(acted, values[t], value)
        ahead = np.where(acted, estimate, ahead)
        owed = np.where(acted, 0.0, owed)
        known = known | acted  # what is seen at this action is what follows the one before
        spoiled = spoiled & ~acted
    return Advantages(advantages, np.where(valid, advantages + values, 0.0), valid, opened)
