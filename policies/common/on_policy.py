"""The base of algorithms that learn from their newest rollout: options, playing a rollout, state.

A rollout is T ticks of B rows that the current policy plays (`collect`). While it is played only the actor runs;
log-probabilities and values of the whole rollout come from one pass after it (`PPO.evaluate`). If a leg of the run ends
in the middle of a rollout, each worker keeps its part as its own state and continues with it in the next leg.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from arena.errors import BudgetReached, ConfigError
from arena.game.ragged import Ragged
from arena.group.group import Group
from policies.common.adam import Adam, flatten_parameters
from policies.common.algorithm import EXPLORING, Algorithm, Draws, moved, stream
from policies.common.devices import is_gpu
from policies.common.normalization import Normalization
from policies.common.options import (
    AUTO,
    Activation,
    AlgorithmOptions,
    Auto,
    BatchMode,
    Beta,
    Clip,
    Count,
    Device,
    Devices,
    Fraction,
    LogStd,
    Natural,
    NonNegative,
    Positive,
    Precision,
    Recurrent,
    Schedule,
    Scheduled,
    Sizes,
    check_idle,
    check_unused,
    is_schedule,
    wrong,
)
from policies.common.rollout import Batch, Rollout, Rows, values_of
from policies.exporting import Exported, decoding_of, exported, numbers
from policies.extensions import Extension, encoder_of
from policies.networks.actor_critic import ActorCritic, Encoder
from policies.networks.heads import ActionHead, BoxHead, UnitHead, action_head
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Transformer, schema_of

_ROLLOUT = 2048  # transitions of the group in a rollout with `n_steps: auto`
_SHORTEST = 32  # ticks that such a rollout has at least, however many rows play,
_UPDATES = 8  # unless the run were too short for as many rollouts

MEMORY = ("recurrent", "hidden_size", "sequence_length")
"""The options of a recurrent policy."""

EXTENSIONS = ("encoder", "extra_loss")
"""The options that name classes of the user."""


class OnPolicyOptions(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about any on-policy algorithm; each redeclares what it has other defaults for."""

    learning_rate: Scheduled = 3e-4  # step size of Adam, or its schedule; 0 plays without learning
    learning_rate_schedule: Schedule = "constant"  # of a number: constant, or linear: falls to 0 at the end of the run
    adam_epsilon: Positive = 1e-5  # Adam's epsilon: weights whose gradients are smaller than this move less
    adam_beta1: Beta = 0.9  # how long Adam remembers the gradient; 0: not at all, as RMSProp
    adam_beta2: Beta = 0.999  # how long it remembers the square of the gradient
    n_steps: Count | Auto = AUTO  # ticks per rollout; auto: 2048 transitions of the group, in at least 32 ticks
    batch_mode: BatchMode = "truncate_episodes"  # complete_episodes: an episode is kept, and learned from at its end
    gamma: Fraction = 0.99  # discount per transition
    gae_lambda: Fraction = 0.95  # how far advantages look ahead: 0 one step, 1 to the end
    ent_coef: Scheduled = 0.0  # weight of the entropy bonus, or its schedule
    vf_coef: NonNegative = 0.5  # weight of the value loss
    max_grad_norm: Positive | None = 0.5  # gradients are scaled down to this norm at most; null: never
    normalize_advantage: bool = True  # to mean 0 and deviation 1 over all the group's transitions
    normalize_observations: bool = False  # each number to mean 0 and deviation 1 of all that the group has seen
    normalize_rewards: bool = False  # divided by the deviation of the discounted return
    clip_observations: Clip | None = 10.0  # how far from 0 a normalized number may be; null: any distance
    clip_rewards: Clip | None = 10.0  # the same of a normalized reward
    hidden_sizes: Sizes = (64, 64)  # layers of the actor, and of the critic
    activation: Activation = "tanh"  # tanh or relu
    log_std_init: LogStd = 0.0  # initial logarithm of the deviation of Box actions, in half widths of their bounds
    encoder: Extension | None = None  # a torch module of your own for observations; null: the built-in one
    extra_loss: Extension | None = None  # a further loss of your own, whose gradient is added; null: none
    recurrent: Recurrent | None = None  # lstm or gru: a layer with memory before actor and critic; null: none
    hidden_size: Count = 64  # units of that layer
    sequence_length: Count = 16  # transitions at most that gradients go back through in time
    transformer: Transformer | None = None  # network of seats that see units; null: its defaults
    device: Device | Devices = "cpu"  # cpu, cuda, cuda:1, or auto: cuda if there is one; or {act: cpu, learn: cuda}
    precision: Precision = "float32"  # on a GPU: float32, exact; bf16: networks multiply in bfloat16
    deterministic: bool = True  # on a GPU: runs repeat to the bit; false: the fastest algorithms, whose sums vary
    cuda_graphs: bool = False  # on a GPU: replays calls of equal shapes; the same bits, less time, more memory
    check_every: Natural = 100  # updates between checks that all workers hold equal weights; 0: never

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, "clip_observations", normalize_observations=False)
        check_unused(self, "clip_rewards", normalize_rewards=False)
        check_unused(self, "hidden_size", "sequence_length", recurrent=None)
        if self.device in ("cpu", Devices(act="cpu", learn="cpu")):
            check_idle(self, "precision", "deterministic", "cuda_graphs", where="device is cpu")
        if self.cuda_graphs and self.recurrent is not None:
            raise wrong("cuda_graphs", True, "false where `recurrent` is set: the lengths of sequences vary")
        if self.cuda_graphs and is_schedule(self.ent_coef):
            raise wrong("cuda_graphs", True, "false where ent_coef follows a schedule: a recording keeps its number")

    def settled(self, *, rows: int, workers: int, ticks: int) -> Self:
        """The same options with a number in place of every `auto`.

        `rows` are those of the group's worker that has the most, `ticks` those of the whole run.
        """
        if self.n_steps != AUTO:
            return self
        n_steps = max(_SHORTEST, _ROLLOUT // (rows * workers))
        return msgspec.structs.replace(self, n_steps=max(1, min(n_steps, ticks // _UPDATES)))

    def rollout_sizes(self, *, rows: int, workers: int, ticks: int) -> dict[str, int]:
        """What `arena plan` shows of an algorithm that learns from each rollout once."""
        n_steps = int(self.settled(rows=rows, workers=workers, ticks=ticks).n_steps)
        if n_steps > ticks:
            raise ConfigError(
                f"a rollout of {n_steps} ticks does not fit into a run of {ticks}, so nothing would be learned; "
                f"set n_steps to {ticks} or less, or ticks to {n_steps} or more",
                path="options.n_steps",
            )
        sizes = {"samples per update": n_steps * rows * workers, "updates per run": ticks // n_steps}
        return {"ticks per rollout": n_steps, **sizes} if self.n_steps == AUTO else sizes


# ------------------------------------------------------------------------------------------------------------ playing

Choose = Callable[[int, Tensor, Rows], Any]
"""`act(t, noise, rows)`: the actions of some rows on tick `t`, as learned from, sampled with noise [rows, outputs]."""


@torch.inference_mode()
def collect(env: VectorEnv[Any, Any, Any], head: ActionHead, rollout: Rollout, act: Choose, noise: Tensor) -> None:
    """Plays the ticks that are left of a rollout, from tick `rollout.played` on.

    An environment of the arena may have its rows in several blocks: then the environment steps one block while the
    worker chooses the actions of the other. A row's noise is the same however the rows are cut. In external games, if
    few rows act, only theirs are computed; in other games each row is computed in the same batch on every tick, so that
    a game in turns keeps its bits.

    Args:
        head: translates actions for the environment.
        act: chooses actions.
        noise: [ticks that are left, B, head.outputs].
    """
    first, per_tick = rollout.played, noise.unbind()
    blocks = getattr(env, "blocks", ())
    if len(blocks) <= 1:
        for t in range(first, rollout.ticks):
            actions: Any
            active, tick_noise = rollout.active[t], per_tick[t - first]
            if rollout.given is not None and not rollout.remembers and 0 < 2 * np.count_nonzero(active) < len(active):
                rows = np.flatnonzero(active)
                few = act(t, tick_noise[torch.from_numpy(rows)], rows)
                if isinstance(few, Ragged):
                    lengths = np.zeros(len(active), np.int64)
                    lengths[rows] = few.lengths
                    actions = Ragged(few.values, lengths)
                else:
                    actions = np.zeros((len(active), *few.shape[1:]), few.dtype)
                    actions[rows] = few
            else:
                actions = act(t, tick_noise, slice(None))
            rollout.add(t, actions, *env.step(head.to_env(actions)))
            rollout.played = t + 1
        return
    chosen: list[Any] = [np.empty(0)] * len(blocks)  # of each block, on the tick that is under way

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
                for later in range(index + 1, len(blocks)):  # these have played this tick as well
                    receive(t - 1, later)
                raise


# ------------------------------------------------------------------------------------------------- a base of algorithms


class OnPolicy(Algorithm):
    """One worker of an on-policy algorithm: networks, a rollout, and the methods that the arena calls.

    Attributes:
        generator: this worker's random stream, for exploration and shuffling.
        updates: of the policy.
        parts: names of the attributes that are the state.
    """

    Options: ClassVar[type[Any]]
    acting_parts = ("network", "normalization")

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        self.options = self.configured.settled(rows=group.rows or env.num_envs, workers=group.size, ticks=ticks)
        o = self.options
        space = env.single_observation_space
        self.actions = self.head = action_head(env.single_action_space, log_std_init=o.log_std_init)
        self.parts = ["network", "optimizer", "normalization"]
        idle = ("hidden_sizes", "activation", *MEMORY, "log_std_init", *EXTENSIONS, "cuda_graphs")
        if (units := schema_of(o, space, *idle)) is not None:
            self.units, self.parts = units, ["units", *self.parts]  # checked before the others are loaded
        if not any(isinstance(part, BoxHead) for part in self.head.modules()):
            check_idle(o, "log_std_init", where=f"the actions are {env.single_action_space}")
        self.n_steps = int(o.n_steps)
        self.network = self.make_network(torch.Generator().manual_seed(group.shared_seed)).to(self.device)
        self._acting = None  # a copy of the network that acts, in rank 0 if it learns on another device
        if self.separate_devices and group.is_root:
            self._acting = copy.deepcopy(self.network).to(self.acts_on).requires_grad_(False)
            flatten_parameters(list(self._acting.parameters()))  # as aligned as in every other worker
        self.memory_size = self.network.memory_size
        self.optimizer = Adam(self.network, epsilon=o.adam_epsilon, betas=(o.adam_beta1, o.adam_beta2))
        self.generator = stream(group.seed, EXPLORING)
        self.normalization = Normalization(space, env.num_envs, o)
        self.preprocess = self.normalization.observations
        self.rollout = self.make_rollout()
        self.updates = 0
        self.sequence_length = None if o.recurrent is None else int(o.sequence_length)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Computes with the network, and on the device, that act."""
        network, device = self.network, self.device
        if self._acting is not None:
            self._acting.load_state_dict(network.state_dict())
            self.network, self.device = self._acting, self.acts_on
        try:
            with self.computing():
                yield
        finally:
            self.network, self.device = network, device

    def computing(self) -> AbstractContextManager[None]:
        """The precision in which networks compute on a GPU; losses, weights and the optimizer stay in float32."""
        if self.options.precision == "float32" or not is_gpu(self.device):
            return nullcontext()
        # Without a cache, as the weights change while it lasts.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def make_network(self, generator: torch.Generator) -> Any:
        """Actor and critic, with the same initial weights at every worker: an `ActorCritic`, or an equivalent."""
        space: Any = self.env.single_observation_space
        o = self.options
        if isinstance(self.head, UnitHead):
            return UnitActorCritic(space, self.head, o.transformer or Transformer(), generator)
        return ActorCritic(self.make_encoder(generator), self.head, **self.layers(generator))

    def make_encoder(
        self, generator: torch.Generator, around: Callable[[Encoder], Encoder] | None = None, *, first: int = 0
    ) -> Encoder:
        """The encoder of what a row sees, with memories of actor and critic side by side; see `encoder_of`."""
        space = self.env.single_observation_space
        return encoder_of(self.options, space, generator, around=around, count=2, first=first)

    def make_rollout(self) -> Rollout:
        """Storage of the ticks that one update learns from."""
        sizes = {"ticks": self.n_steps, "rows": self.env.num_envs, "memory_size": self.memory_size}
        return Rollout(self.env.single_observation_space, self.head, **sizes, double=self.double)

    def made_up_batch(self) -> Batch:
        leaves, masks, actions = self.made_up()
        if self.memory_size:
            leaves = [*leaves, torch.zeros(2, self.memory_size)]
        numbers, lengths = torch.tensor([-1.0, 1.0]), torch.tensor([2]) if self.memory_size else None
        return Batch(tuple(leaves), masks, actions, -numbers.abs(), numbers, numbers, numbers, lengths=lengths)

    def draw_noise(self, ticks: int) -> Tensor:
        """Noise for the actions of `ticks` ticks, [ticks, B, outputs]."""
        drawing = self.head if self.average is None else self.average
        return drawing.noise(ticks, self.env.num_envs, self.generator).to(self.device)

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: the part of a rollout that it has played; empty where there is none.

        Without a barrier also the weights that have played it and, at rank 0, the samples that wait.
        """
        state, samples = self.rollout.state_dict(), self.group.async_samples
        if state:
            state["normalization"] = self.normalization.rewards.worker_state_dict()
            if samples is not None and not self.group.is_root:
                state["weights"] = self.acting_state()
        if samples is not None and (self.group.is_root or state):
            state["fragments"] = samples.state_dict()
        return state

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that part, if the seat has as many rows, and the rollout at least as many ticks, as it had."""
        rollout = self.rollout
        if "rewards" in state:
            rollout.load_state_dict(state)
        if rollout.played:
            self.normalization.rewards.load_worker_state_dict(state["normalization"])
        if self.group.async_samples is not None:
            if rollout.played and "weights" in state:
                self.load_acting_state(state["weights"])
            if "fragments" in state and (self.group.is_root or rollout.played):
                self.group.async_samples.load_state_dict(state["fragments"])

    # -------------------------------------------------------------------------------------- what the arena asks for

    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Any, Tensor | None]:
        policy, memory = self.network.act(leaves, mask)
        return drawn(self.head, policy, len(leaves[0]), draws, self.device), memory

    def exported(self) -> Exported:
        """The actor for `arena export`; of a recurrent policy also the memory after a tick."""

        def outputs(network: ActorCritic, inputs: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
            features, memory = network.encoder.ticked(inputs)
            found: Tensor = network.actor(network.encoder.parted(features).actor)
            return found if memory is None else (found, memory)

        more: dict[str, Any] = {}
        if isinstance(self.head, BoxHead):
            more = {"log_std": numbers(self.head.log_std.tolist()), **self.head.scale_text()}
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, **more),
            outputs=outputs,
            normalization=self.normalization.observations,
            memory_size=self.memory_size,
        )

    @torch.inference_mode()
    def log_prob(
        self,
        observations: Any,
        actions: Any,
        masks: NDArray[np.int8] | None,
        memory: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        """Log-probabilities, or log-densities, [N] of the actions of one episode, in its order, by the current weights.

        Observations and actions are batched samples of the environment's spaces, masks [N, mask_size]. With `memory`
        [N, memory_size], which each row had before its tick, rows need not be of one episode. A number of a Box action
        that lies on its bound has the probability of all that is clipped to it.
        """
        leaves, mask = self.network_inputs(observations, masks)
        count = len(leaves[0])
        lengths = torch.tensor([count]) if memory is None else None
        if self.memory_size:
            before = torch.zeros(count, self.memory_size) if memory is None else torch.from_numpy(memory)
            leaves = [*leaves, moved(before, self.device)]
        return env_log_prob(self.head, self.network.policy(leaves, mask, lengths), actions, self.device)

    @torch.inference_mode()
    def state_value(self, observations: Any, memory: NDArray[np.float32] | None = None) -> NDArray[np.float64] | None:
        """V [N] of a batched sample [N, ...] by the current weights; None if the critic sees more than that.

        `memory` as in `log_prob`. Of a policy with `normalize_rewards` these are values of normalized rewards.
        """
        if getattr(self.network.encoder, "critic_features", None) is not None or (self.memory_size and memory is None):
            return None
        leaves, _ = self.network_inputs(observations, None)
        if memory is not None:
            leaves = [*leaves, moved(torch.from_numpy(memory), self.device)]
        return values_of(self.network, leaves, self.device).double().numpy()


def env_log_prob(head: ActionHead, policy: Any, actions: Any, device: torch.device) -> NDArray[np.float64]:
    """Log-probabilities [N] with which the environment gets these actions of its own, a batched sample [N, ...]."""
    log_probs = head.env_log_prob(policy, moved(head.from_env(actions), device))
    return log_probs.double().cpu().numpy()


def drawn(head: ActionHead, policy: Any, rows: int, draws: Draws, device: torch.device) -> Any:
    """Actions of a policy's `rows`, drawn from these streams; None: its best ones."""
    if draws is None:
        return policy.mode()
    each = [draws] if isinstance(draws, torch.Generator) else draws
    noise = torch.cat([head.noise(1, rows // len(each), generator)[0] for generator in each])
    return policy.sample(moved(noise, device))
