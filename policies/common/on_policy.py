"""What algorithms share that learn from each rollout once: options, playing a rollout, asking the network about it.

A rollout is T ticks of B rows that the current policy plays (`collect`). While it is played only the actor runs;
log-probabilities and values of the whole rollout come from one pass after it (`evaluate_network`). If a leg of the run
ends in the middle of a rollout, each worker keeps its part as its own state and continues with it in the next leg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena.errors import BudgetReached, ConfigError
from policies.common.devices import moved
from policies.common.normalization import Normalization, check_normalization
from policies.common.options import (
    AUTO,
    Activation,
    AlgorithmOptions,
    Auto,
    Clip,
    Count,
    Device,
    Fraction,
    LogStd,
    Natural,
    NonNegative,
    Positive,
    Recurrent,
    Schedule,
    Sizes,
    check_unused,
)
from policies.common.rollout import Rollout, to_leaves, to_mask
from policies.networks.actor_critic import ActorCritic, Encoder
from policies.networks.heads import ActionHead
from policies.networks.recurrent import Recollection, RecurrentEncoder

_ROLLOUT = 2048  # transitions of the group in a rollout with `n_steps: auto`
_SHORTEST = 32  # ticks that such a rollout has at least, however many rows play,
_UPDATES = 8  # unless the run were too short for as many rollouts
_CHUNK = 1024  # transitions evaluated at once: bounds the memory that images need

MEMORY = ("recurrent", "hidden_size", "sequence_length")
"""The options of a recurrent policy."""

ALL = slice(None)

Given = TypeVar("Given", bound="OnPolicyOptions")


class OnPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any on-policy algorithm; each redeclares what it has other defaults for.

    Raises:
        ConfigError: a value of the wrong kind or out of its range.
    """

    learning_rate: NonNegative = 3e-4  # step size of Adam; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-5  # Adam's epsilon: weights whose gradients are smaller than this move less
    n_steps: Count | Auto = AUTO  # ticks per rollout; auto: 2048 transitions of the group, in at least 32 ticks
    gamma: Fraction = 0.99  # discount per transition
    gae_lambda: Fraction = 0.95  # how far advantages look ahead: 0 one step, 1 to the end
    ent_coef: NonNegative = 0.0  # weight of the entropy bonus
    vf_coef: NonNegative = 0.5  # weight of the value loss
    max_grad_norm: Positive | None = 0.5  # longest gradient that is stepped on; null: any
    normalize_advantage: bool = True  # to mean 0 and deviation 1 over all the group's transitions
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    normalize_rewards: bool = False  # divided by the deviation of the discounted return
    clip_observations: Clip | None = 10.0  # how far from 0 a normalised number may be; null: any distance
    clip_rewards: Clip | None = 10.0  # the same of a normalised reward
    hidden_sizes: Sizes = (64, 64)  # layers of the actor, and of the critic
    activation: Activation = "tanh"  # tanh or relu
    log_std_init: LogStd = 0.0  # initial logarithm of the deviation of Box actions
    recurrent: Recurrent | None = None  # lstm or gru: a layer with memory before actor and critic; null: none
    hidden_size: Count = 64  # units of that layer
    sequence_length: Count = 16  # transitions at most that gradients go back through in time
    device: Device = "cpu"  # cpu, cuda, or auto: cuda where there is one
    check_every: Natural = 100  # updates between checks that all workers hold equal weights; 0: never

    def __post_init__(self) -> None:
        super().__post_init__()
        check_normalization(self, "observations", "rewards")
        check_unused(self, "hidden_size", "sequence_length", recurrent=None)

    def settled(self: Given, *, rows: int, workers: int, ticks: int) -> Given:
        """The same options with a number in place of every `auto`.

        Args:
            rows: of the group's worker that has the most.
            workers: of the group.
            ticks: of the whole run.
        """
        if self.n_steps != AUTO:
            return self
        wanted = max(_SHORTEST, _ROLLOUT // (rows * workers))
        return msgspec.structs.replace(self, n_steps=max(1, min(wanted, ticks // _UPDATES)))


def check_budget(n_steps: int, ticks: int) -> None:
    """Checks that a run is long enough for one rollout.

    Raises:
        ConfigError: it is not.
    """
    if n_steps > ticks:
        raise ConfigError(
            f"a rollout of {n_steps} ticks does not fit into a run of {ticks}, so nothing would be learnt; "
            f"set n_steps to {ticks} or less, or ticks to {n_steps} or more",
            path="options.n_steps",
        )


def rollout_sizes(options: OnPolicyOptions, *, rows: int, ticks: int, workers: int) -> dict[str, int]:
    """What `arena plan` shows of an algorithm that learns from each rollout once.

    Raises:
        ConfigError: a rollout longer than the run.
    """
    n_steps = int(options.settled(rows=rows, workers=workers, ticks=ticks).n_steps)
    check_budget(n_steps, ticks)
    sizes = {"samples per update": n_steps * rows * workers, "updates per run": ticks // n_steps}
    return {"ticks per rollout": n_steps, **sizes} if options.n_steps == AUTO else sizes


# ------------------------------------------------------------------------------------------------------------ playing

Choose = Callable[[int, Tensor, slice], NDArray[Any]]
"""`act(t, noise, rows)`: the actions of some rows on tick `t`, as learnt from, sampled with noise [rows, outputs]."""


@torch.inference_mode()
def collect(env: VectorEnv[Any, Any, Any], head: ActionHead, rollout: Rollout, act: Choose, noise: Tensor) -> None:
    """Plays the ticks that are left of a rollout.

    An environment of the arena may have its rows in several blocks: then the environment steps one block while the
    worker chooses the actions of the other. A row's noise is the same however the rows are cut.

    Args:
        env: a vector environment.
        head: translates actions for the environment.
        rollout: is filled from tick `rollout.played` on.
        act: chooses actions.
        noise: [ticks that are left, B, head.outputs].
    """
    first, per_tick = rollout.played, noise.unbind()
    blocks = getattr(env, "blocks", ())
    if len(blocks) <= 1:
        for t in range(first, rollout.ticks):
            actions = act(t, per_tick[t - first], ALL)
            rollout.add(t, actions, *env.step(head.to_env(actions)))
            rollout.played = t + 1
        return
    chosen: list[NDArray[Any]] = [np.empty(0)] * len(blocks)  # of each block, on the tick that is under way

    def receive(t: int, index: int) -> None:
        if t >= first:
            rollout.add(t, chosen[index], *blocks[index].step_wait(), rows=blocks[index].rows)
        rollout.played = max(rollout.played, t + (index == len(blocks) - 1))

    for t in range(first, rollout.ticks + 1):
        for index, block in enumerate(blocks):
            receive(t - 1, index)
            if t == rollout.ticks:
                continue
            try:
                chosen[index] = act(t, per_tick[t - first][block.rows], block.rows)
                block.step_async(head.to_env(chosen[index]))
            except BudgetReached:
                for later in range(index + 1, len(blocks)):  # which have played this tick as well
                    receive(t - 1, later)
                raise


def network_actor(
    network: ActorCritic,
    space: Space[Any],
    normalization: Normalization,
    device: torch.device,
    *,
    generator: torch.Generator,
    greedy: bool,
) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
    """A function from (observations, infos) of a vector environment to actions, with the current weights.

    One of a recurrent policy plays one environment from its reset on; a row forgets where the infos say that its
    episode has ended.

    Args:
        network: of the policy.
        space: one entity's observation space.
        normalization: of the observations.
        device: of the network.
        generator: where actions are sampled from.
        greedy: take the most probable actions.
    """
    head, recollection = network.head, Recollection(network.encoder.memory_size)

    @torch.inference_mode()
    def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
        leaves, mask = to_leaves(space, observations), to_mask(infos, head.mask_size)
        seen = normalization.observations(recollection.beside(leaves, infos))
        policy, memory = network.act(moved(seen, device), moved(mask, device))
        recollection.keep(memory, infos)
        noise = head.noise(1, len(leaves[0]), generator)[0]
        actions = policy.mode() if greedy else policy.sample(moved(noise, device))
        return head.to_env(actions.cpu().numpy())

    return act


def log_prob_of(
    network: ActorCritic,
    space: Space[Any],
    normalization: Normalization,
    device: torch.device,
    observations: Any,
    actions: Any,
    masks: NDArray[np.int8] | None,
) -> NDArray[np.float64]:
    """Log-probabilities, or log-densities, [N] of the actions of one episode, in its order, by the current weights.

    A number of a Box action that lies on its bound has the probability of all that is clipped to it.

    Args:
        network, space, normalization, device: as of `network_actor`.
        observations: a batched sample [N, ...].
        actions: [N, ...] as the environment takes them.
        masks: [N, mask_size] the choices that were allowed; None: all.
    """
    head, memory_size = network.head, network.encoder.memory_size
    leaves, mask = to_leaves(space, observations), to_mask({"action_mask": masks}, head.mask_size)
    if memory_size:
        leaves.append(torch.zeros(len(leaves[0]), memory_size))
    with torch.inference_mode():
        seen = moved(normalization.observations(leaves), device)
        policy = network.policy(seen, moved(mask, device), torch.tensor([len(leaves[0])]))
        log_probs = head.env_log_prob(policy, moved(head.from_env(actions), device))
        found: NDArray[np.float64] = log_probs.double().cpu().numpy()
    return found


# ---------------------------------------------------------------------------------------------------- asking networks


def make_encoder(space: Space[Any], options: OnPolicyOptions, generator: torch.Generator) -> Encoder:
    """The encoder of one entity's observations, with a memory if the options ask for one."""
    if options.recurrent is None:
        return Encoder(space, generator)
    return RecurrentEncoder(space, kind=options.recurrent, hidden_size=options.hidden_size, generator=generator)


class StateInputs(NamedTuple):
    """What the network is asked about a rollout: leaves as it takes them."""

    played: list[Tensor]  # [T * B, ...] of all ticks, tick by tick
    last: list[Tensor]  # [B, ...] after the last tick
    finals: list[Tensor]  # [K, ...] of episodes that were cut, as `Rollout.final_leaves`; empty where none was


def state_inputs(rollout: Rollout, normalization: Normalization) -> StateInputs:
    """All that the rows of a rollout have seen, normalized."""
    seen = (rollout.flat()[0], rollout.leaves(rollout.ticks), rollout.final_leaves())
    return StateInputs(*(normalization.observations(leaves) if leaves else leaves for leaves in seen))


def evaluate_network(
    network: ActorCritic, leaves: Sequence[Tensor], masks: Tensor | None, actions: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and values [N] of transitions, on the CPU."""
    log_probs, values = [torch.zeros(0)], [torch.zeros(0)]
    for start in range(0, len(actions), _CHUNK):
        part = slice(start, start + _CHUNK)
        mask = None if masks is None else masks[part]
        policy, value = network.policy_and_value(moved([leaf[part] for leaf in leaves], device), moved(mask, device))
        log_probs.append(policy.log_prob(moved(actions[part], device)).cpu())
        values.append(value.cpu())
    return torch.cat(log_probs), torch.cat(values)


def values_of(network: ActorCritic, leaves: list[Tensor], device: torch.device) -> Tensor:
    """V [N] of leaves, on the CPU; of no leaves, an empty tensor."""
    return network.value(moved(leaves, device)).cpu() if leaves else torch.zeros(0)
