"""Behavior cloning (Pomerleau 1991, doi 10.1162/neco.1991.3.1.88): learns to imitate recorded actions.

    read     the recorded samples of a run (`record: samples`); each worker keeps its share of them
    play     `train_every` ticks with the current policy: so the run shows how good it is
    learn    `gradient_steps` steps that make the recorded actions more probable, with the group's other workers

The loss is the mean negative log-likelihood of the recorded actions, -log pi(a|s), with the masks of their turns. For
Box actions pi is a Gaussian of deviation 1 around the network's output: the loss is half the squared error, up to a
constant, and finite also for a policy that always does the same; the mean is played. The policy learns from the
recorded samples alone, not from the games that it plays.

How the group learns is its `sync`:

    gradients  every worker has every N-th decision, and steps on the mean gradient of all workers' minibatches
    samples    the group's root has all, and learns alone with minibatches N times as large; the others take its weights

With a `max_lag` above 0 no worker waits for rank 0 either: the others play on with the newest weights that arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena.dataset.reader import has_files
from arena.errors import ConfigError
from arena.game.units import UnitSpace
from arena.group.group import Group
from policies.common.adam import Adam
from policies.common.algorithm import EXPLORING, REPLAYING, Algorithm, Draws, Metrics, stream
from policies.common.columns import per_transition
from policies.common.on_policy import drawn, env_log_prob
from policies.common.options import (
    Activation,
    AlgorithmOptions,
    Count,
    Device,
    Natural,
    Positive,
    Scheduled,
    Sizes,
    Text,
)
from policies.common.rollout import COUNTS
from policies.exporting import Exported, decoding_of, exported
from policies.extensions import Extension, make_encoder
from policies.networks.actor_critic import Actor
from policies.networks.heads import BoxHead, CompositeHead, UnitHead, action_head
from policies.networks.units.network import UnitActor
from policies.networks.units.options import Transformer, schema_of
from policies.networks.units.tokens import unit_inputs, units_of
from policies.offline.demonstrations import (
    Demonstrations,
    check_demonstrations,
    check_spaces,
    demonstrations,
    open_demonstrations,
)


class Options(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about behavior cloning."""

    data: Text  # run folder, folder of samples, or `minari:NAME`, to learn from; relative to the current directory
    policy: str | None = None  # whose samples; null: of all that have played with the seat's spaces
    learning_rate: Scheduled = 1e-3  # step size of Adam, or its schedule; 0 plays without learning
    adam_epsilon: Positive = 1e-8  # Adam's epsilon: weights whose gradients are smaller than this move less
    batch_size: Count = 256  # decisions per worker in one gradient step
    train_every: Count = 128  # ticks between two updates
    gradient_steps: Count = 128  # of one update
    max_grad_norm: Positive | None = None  # gradients are scaled down to this norm at most; null: never
    encoder: Extension | None = None  # a torch module of your own for observations; null: the built-in one
    extra_loss: Extension | None = None  # a further loss of your own, whose gradient is added; null: none
    hidden_sizes: Sizes = (64, 64)  # layers of the network
    activation: Activation = "tanh"  # tanh or relu
    transformer: Transformer | None = None  # network of seats that see units; null: its defaults
    device: Device = "cpu"  # cpu, cuda, cuda:1, or auto: cuda if there is one
    check_every: Natural = 100  # updates between checks that all workers hold equal weights; 0: never


class BehaviorCloning(Algorithm):
    """One worker of a policy that imitates."""

    Options = Options
    takes_units = True
    acting_parts = ("network", "gradient_steps", "updates")
    updates = 0

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        super().__init__(env, group, ticks=ticks, **options)
        space: Any = env.single_observation_space
        generator = torch.Generator().manual_seed(group.shared_seed)
        self.actions = self.head = action_head(env.single_action_space)
        # Of a Box the mean is played, as the Gaussian's deviation was not learned.
        self.plays_mean = isinstance(self.head, BoxHead)
        parts = ["network", "optimizer"]
        units = schema_of(self.options, space, "hidden_sizes", "activation", "encoder", "extra_loss")
        if units is not None:
            self.units, parts = units, ["units", *parts]  # checked before the others are loaded
        self.network = self.make_network(generator).to(self.device)
        self.preprocess = unit_inputs(space, self.options.transformer) or (lambda leaves: leaves)
        self.optimizer = Adam(self.network, epsilon=self.options.adam_epsilon)
        self.gradient_steps = self.played = 0  # played: ticks since the last update
        self.remedy = (
            f"are all observations and actions in {self.options.data} finite, and of moderate size? If they are, lower "
            "learning_rate"
        )
        self.track(*parts, updates=self, gradient_steps=self, played=self)
        if has_files(self.options.data):  # a frozen policy needs none
            samples = open_demonstrations(self.options.data, self.options.policy)
            check_spaces(samples, self.options.policy, space, env.single_action_space)

    def make_network(self, generator: torch.Generator) -> Any:
        """What acts, with the same initial weights at every worker: an `Actor`, or an equivalent."""
        space: Any = self.env.single_observation_space
        if isinstance(self.head, UnitHead):
            return UnitActor(space, self.head, self.options.transformer or Transformer(), generator)
        return Actor(make_encoder(space, generator, self.options.encoder), self.head, **self.layers(generator))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of what `backward` returns."""
        return "loss", "distance" if self.plays_mean else "agreement", *(COUNTS if self.head.decides else ())

    @property
    def progress(self) -> float:
        """The part of the whole run that its updates have taken, from 0 to 1."""
        return min(1.0, self.updates * int(self.configured.train_every) / self.ticks)

    # ---------------------------------------------------------------------------------------------- the whole loop

    def run(self) -> None:
        """Plays and learns until the environment raises `BudgetReached`."""
        shuffled = self.minibatches(self.demonstrations())
        act = self.player(stream(self.group.seed, EXPLORING))
        self.share_weights()
        observations, infos = self.env.reset()
        while True:
            while self.played < self.options.train_every:
                observations, _, _, _, infos = self.env.step(act(observations, infos))
                self.played += 1
            metrics = self.learn(shuffled)
            self.played = 0
            if metrics is not None:
                metrics = {**metrics, **self.schedules()}
                self.updates += 1
                check = bool(self.options.check_every) and self.updates % self.options.check_every == 0
                self.record(metrics, check=check)

    def demonstrations(self) -> Any:
        """This worker's share of the data, on the CPU; the root's is everything where the root learns for all."""
        found = demonstrations(
            open_demonstrations(self.options.data, self.options.policy),
            self.options.policy,
            self.env.single_observation_space,
            self.head,
            self.env.single_action_space,
            **self.share,
        )
        return found.replace(observations=tuple(self.preprocess([*found.observations])))

    @property
    def share(self) -> dict[str, int]:
        """Which part of the data it has: `share` of `shares`."""
        return (
            {"share": 0, "shares": 1} if self.pools_samples else {"share": self.group.rank, "shares": self.group.size}
        )

    def learn(self, shuffled: Iterator[Demonstrations]) -> Metrics | None:
        """One update of the group's weights; a collective, unless there is no barrier.

        Without a barrier only rank 0 makes updates; the others take its newest weights and return None.
        """
        samples = self.group.async_samples
        if samples is None and not self.pools_samples:
            return self.update(shuffled)
        if samples is None:
            metrics = self.update_at_rank_0(lambda: self.update(shuffled))
            self.gradient_steps = int(metrics.get("gradient_steps", self.gradient_steps))
            return metrics
        if self.group.is_root:
            metrics = self.update(shuffled)
            samples.publish({**self.acting_state(), "updates": self.updates + 1})
            return metrics
        if (latest := samples.latest()) is not None:
            self.load_acting_state(latest)
        return None

    def made_up_batch(self) -> Demonstrations:
        leaves, masks, actions = self.made_up()
        return Demonstrations(tuple(leaves), masks, actions)

    def update(self, shuffled: Iterator[Demonstrations]) -> Metrics:
        """The gradient steps of one update, the same number at every worker; means of the metrics."""
        history = [
            self.gradient_step(next(shuffled).to(self.device), self.backward, self.metric_names, [self.optimizer])
            for _ in range(self.options.gradient_steps)
        ]
        self.gradient_steps += len(history)
        means = {name: float(np.mean([metrics[name] for metrics in history])) for name in history[0]}
        return {**means, "gradient_steps": float(self.gradient_steps)}

    def backward(self, batch: Demonstrations) -> Tensor:
        """Adds the gradient of the loss to `grad` of the weights; loss, likeness and counts, means over the batch."""
        loss, metrics = self.loss(batch)
        torch.autograd.backward([loss])
        return metrics

    def loss(self, batch: Demonstrations) -> tuple[Tensor, Tensor]:
        """Minus the mean log-probability of the recorded actions; and the metrics, this loss and the likeness, [2].

        The likeness is how often the policy's best action is the recorded one (agreement); for Box actions it is the
        mean absolute difference of the two (distance). With units also the mean numbers of units and of decisions, [4].
        """
        policy = self.network(batch.observations, batch.masks)
        loss = -policy.log_prob(batch.actions)
        best, space = policy.mode(), self.env.single_observation_space
        counts: list[Tensor] = []
        if isinstance(self.head, BoxHead):
            unit = torch.from_numpy(self.head.half_width.ravel()).to(best)
            likeness = ((best.detach() - batch.actions) * unit).abs().mean()
        elif isinstance(space, UnitSpace):
            alike = (best.values == batch.actions.values).all(1).float()
            loss, likeness = per_transition(batch.actions, torch.stack([loss, alike]), batch.weights).mean(1)
            units = units_of(space, batch.observations).mean()
            counts = [one.to(loss.device) for one in (units, torch.tensor(len(alike) / batch.size))]
        else:
            likeness = (best.detach() == batch.actions).reshape(batch.size, -1).all(1).float().mean()
        loss = loss.mean()
        return loss, torch.stack([loss, likeness, *counts]).detach()

    def minibatches(self, data: Demonstrations) -> Iterator[Demonstrations]:
        """Minibatches without end, each pass over the data in a new order; empty ones where there is nothing."""
        generator = stream(self.group.seed, REPLAYING)
        size = self.options.batch_size * self.workers_per_batch
        while True:
            order = torch.randperm(data.size, generator=generator)
            for index in torch.split(order, size):
                yield data.take(index)

    # -------------------------------------------------------------------------------------- what the arena asks for

    @classmethod
    def check_actions(cls, space: Space[Any]) -> None:
        head = action_head(space)
        if isinstance(head, CompositeHead) and any(isinstance(part, BoxHead) for part in head.heads.modules()):
            raise ConfigError(
                f"bc does not learn how far numbers deviate, so it cannot play those of {space} beside choices; "
                "ppo and a2c take such actions"
            )

    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Any, None]:
        draws = None if self.plays_mean else draws
        return drawn(self.head, self.network(leaves, mask), len(leaves[0]), draws, self.device), None

    def exported(self) -> Exported:
        """The network for `arena export`; of Box actions the deviation is 0, as the mean is played."""
        more: dict[str, Any] = {}
        if isinstance(self.head, BoxHead):
            more = {"log_std": ["-inf"] * self.head.outputs, **self.head.scale_text()}
        return exported(
            self.network,
            self.env.single_observation_space,
            decoding_of(self.env.single_action_space, **more),
            outputs=Actor.outputs,
        )

    @torch.no_grad()
    def log_prob(
        self, observations: Any, actions: Any, masks: NDArray[np.int8] | None, memory: Any = None
    ) -> NDArray[np.float64]:
        """Log-probabilities [N] of actions of the environment; see `policies.offline.importance_sampling`."""
        if self.plays_mean:
            raise ConfigError(
                f"the policy plays the mean of its Gaussian in {self.env.single_action_space}, and has not learned its "
                "deviation: what is probable by it says nothing about what it plays; ask a policy that draws its "
                "actions, as one of ppo or a2c"
            )
        policy = self.network(*self.network_inputs(observations, masks))
        return env_log_prob(self.head, policy, actions, self.device)

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows, under the names of `policies.common.off_policy`; each update logs a line."""
        o = cls.Options(**options)
        check_demonstrations(o.data, o.policy)
        if o.train_every > ticks:
            raise ConfigError(
                f"an update every {o.train_every} ticks does not fit into a run of {ticks}, so nothing would be "
                f"learned; set train_every to {ticks} or less, or ticks to {o.train_every} or more",
                path="options.train_every",
            )
        return {
            "samples per gradient step": o.batch_size * workers,
            "gradient steps per run": ticks // o.train_every * o.gradient_steps,
            "lines of metrics per run": ticks // o.train_every,
        }
