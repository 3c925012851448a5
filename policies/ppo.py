"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347) for one worker of a group.

    collect    T ticks with the current policy                                  -> rollout
    judge      log-probabilities, values and advantages (arXiv 1506.02438)      -> batch of transitions
    learn      some epochs of clipped-surrogate steps, together with the group's other workers

While collecting only the actor runs: values and log-probabilities of the whole rollout come from one pass after it.
How the group learns is its `sync`:

    gradients  every worker steps on the mean gradient over all workers' minibatches, weighted by their sizes
    samples    the group's root learns from everybody's transitions, then the others take its weights

On one full batch the two are the same. What is decided around a collective (how many minibatches, when to stop) is
decided on values that all workers agree on. Where a leg of the run ends in the middle of a rollout, each worker keeps
its part of it as its own state and goes on with it in the next leg.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena.errors import BudgetReached, ConfigError
from arena.spaces import leaves_of
from policies.actions import action_head
from policies.adam import Adam
from policies.networks import ActorCritic
from policies.options import check_choice, check_flag, check_numbers, check_sizes, wrong
from policies.perceptron import ACTIVATIONS
from policies.returns import advantages_of
from policies.rollout import Batch, Rollout, from_samples, to_leaves, to_mask, to_samples
from policies.tensors import load_weights, to_arrays, to_tensors

if TYPE_CHECKING:
    from arena.group import Group

_CHUNK = 1024  # transitions judged at once: bounds the memory that images need
_EXPLORING, _ACTING = range(2)  # kinds of random streams

_MEASURED = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")  # of every minibatch

Figures = dict[str, float]


@dataclass(frozen=True)
class Options:
    """What a configuration may say about PPO.

    Raises:
        ConfigError: a value of the wrong kind or out of its range.
    """

    learning_rate: float = 3e-4  # step size of Adam; 0 plays without learning
    learning_rate_schedule: str = "constant"  # constant, or linear: falls to 0 at the end of the run
    n_steps: int = 128  # ticks per rollout
    minibatch_size: int = 256  # transitions per worker in one gradient step, at most
    n_epochs: int = 4  # passes over each rollout
    gamma: float = 0.99  # discount per transition
    gae_lambda: float = 0.95  # how far advantages look ahead: 0 one step, 1 to the end
    clip_range: float = 0.2  # epsilon of the clipped surrogate
    clip_range_vf: float | None = None  # how far a value may move per update; null: freely
    ent_coef: float = 0.0  # weight of the entropy bonus, c2
    vf_coef: float = 0.5  # weight of the value loss, c1
    max_grad_norm: float | None = 0.5  # longest gradient that is stepped on; null: any
    target_kl: float | None = None  # an update stops when the group's KL exceeds 1.5 times this; null: never
    normalize_advantage: bool = True  # to mean 0 and deviation 1 over all the group's transitions
    hidden_sizes: Sequence[int] = (64, 64)  # layers of the actor, and of the critic
    activation: str = "tanh"  # tanh or relu
    log_std_init: float = 0.0  # initial logarithm of the deviation of Box actions
    device: str = "cpu"  # cpu, cuda, or auto: cuda where there is one
    check_every: int = 100  # updates between checks that all workers hold equal weights; 0: never

    def __post_init__(self) -> None:
        check_numbers(self, "n_steps", "minibatch_size", "n_epochs", at_least=1, whole=True)
        check_numbers(self, "learning_rate", "clip_range", "ent_coef", "vf_coef", at_least=0)
        check_numbers(self, "gamma", "gae_lambda", at_least=0, at_most=1)
        check_numbers(self, "clip_range_vf", "max_grad_norm", "target_kl", at_least=0, optional=True)
        check_numbers(self, "check_every", at_least=0, whole=True)
        check_numbers(self, "log_std_init", at_least=-20, at_most=20)
        check_choice(self, "learning_rate_schedule", ("constant", "linear"))
        check_choice(self, "activation", ACTIVATIONS)
        check_choice(self, "device", ("cpu", "cuda", "auto"))
        check_flag(self, "normalize_advantage")
        object.__setattr__(self, "hidden_sizes", check_sizes(self, "hidden_sizes"))


class PPO:
    """One worker of a PPO policy.

    Args:
        env: a vector environment that resets on the same step; `infos["active"]` marks the rows that act next and
            `infos["action_mask"]` what they may do, where there is such a thing.
        group: the workers of this policy.
        ticks: the whole run's budget; the learning-rate schedule ends with it.
        options: the fields of `Options`.

    Raises:
        ConfigError: an option or a space that PPO cannot take.
    """

    face = "vector"
    schedule = "ticks"  # all workers meet after each rollout, which has a fixed number of ticks
    Options = Options

    def __init__(self, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> None:
        self.env, self.group, self.ticks = env, group, ticks
        self.options = Options(**options)
        self.device = _device(self.options.device)
        self.head = action_head(env.single_action_space, log_std_init=self.options.log_std_init)
        self.network = ActorCritic(
            env.single_observation_space,
            self.head,
            hidden_sizes=self.options.hidden_sizes,
            activation=self.options.activation,
            generator=torch.Generator().manual_seed(group.shared_seed),
        ).to(self.device)
        self.optimizer = Adam(self.network)
        self.generator = _stream(group.seed, _EXPLORING)  # all that this worker draws: exploration and shuffling
        self.updates = self.ticks_done = self.early_stops = 0
        self.rollout = Rollout(env.single_observation_space, self.head, ticks=self.options.n_steps, rows=env.num_envs)

    # ---------------------------------------------------------------------------------------------- the whole loop

    def run(self) -> None:
        """Collects and learns until the environment raises `BudgetReached`."""
        _check_autoreset(self.env)
        _check_budget(self.options, self.ticks)
        self.group.broadcast(self.network)
        rollout = self.rollout
        rollout.begin(*self.env.reset())
        while True:
            self.collect(rollout)
            figures = self.learn(self.judge(rollout))
            self.ticks_done += self.options.n_steps
            self.updates += 1
            self.record(figures)
            rollout.go_on()

    @torch.inference_mode()
    def collect(self, rollout: Rollout) -> None:
        """Plays the rollout's ticks, those that are left of it, with the current policy."""
        first = rollout.played
        noise = (
            self.head.noise(rollout.ticks - first, rollout.rows, self.generator).to(self.device).unbind()
        )  # per tick
        blocks = getattr(self.env, "blocks", ())  # an environment of the arena may have several
        if len(blocks) > 1:
            self._collect_in_turns(rollout, noise, blocks)
            return
        for t in range(first, rollout.ticks):
            actions = self._choose(rollout, noise[t - first], t)
            rollout.add(t, actions, *self.env.step(self.head.to_env(actions)))
            rollout.played = t + 1

    def _collect_in_turns(self, rollout: Rollout, noise: Sequence[Tensor], blocks: Sequence[Any]) -> None:
        """The same for blocks of rows: while this worker thinks about one, the environment steps the other."""
        actions: list[NDArray[Any]] = [np.empty(0)] * len(blocks)  # of each block, on the tick that is under way
        first = rollout.played

        def take(t: int, index: int) -> None:
            if t >= first:
                rollout.add(t, actions[index], *blocks[index].step_wait(), rows=blocks[index].rows)
            rollout.played = max(rollout.played, t + (index == len(blocks) - 1))

        for t in range(first, rollout.ticks + 1):
            for index, block in enumerate(blocks):
                take(t - 1, index)
                if t == rollout.ticks:
                    continue
                try:
                    actions[index] = self._choose(rollout, noise[t - first][block.rows], t, block.rows)
                    block.step_async(self.head.to_env(actions[index]))
                except BudgetReached:
                    for later in range(index + 1, len(blocks)):  # which have played this tick as well
                        take(t - 1, later)
                    raise

    def _choose(self, rollout: Rollout, noise: Tensor, t: int, rows: slice = slice(None)) -> NDArray[Any]:
        """Actions of some rows on tick `t`, as learnt from. A row's noise is the same however the rows are cut."""
        leaves, mask = rollout.leaves(t, rows), rollout.mask(t, rows)
        policy = self.network.policy(self._here(leaves), self._here(mask))
        return policy.sample(noise).cpu().numpy()

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> Batch:
        """What the rollout's transitions were worth: a batch on the CPU."""
        leaves, masks, actions = rollout.flat()
        log_probs, values = self._log_probs_and_values(leaves, masks, actions)
        all_values = torch.cat([values, self._values(rollout.leaves(rollout.ticks))]).view(-1, rollout.rows)
        seen = rollout.trajectories(all_values.numpy(), self._values(rollout.final_leaves()).numpy())
        found = advantages_of(seen, gamma=self.options.gamma, gae_lambda=self.options.gae_lambda)
        advantages = torch.from_numpy(found.advantages).float().flatten()
        returns = torch.from_numpy(found.returns).float().flatten()
        batch = Batch(tuple(leaves), masks, actions, log_probs, values, advantages, returns)
        return batch if found.valid.all() else batch.take(torch.from_numpy(np.flatnonzero(found.valid)))

    def learn(self, batch: Batch) -> Figures:
        """One update of the group's weights from one batch per worker, empty ones included; a collective."""
        found = self.group.moments_of(advantages=batch.advantages.numpy(), returns=batch.returns.numpy())
        errors, spread = found["advantages"], found["returns"]  # return - value = advantage
        if errors.count == 0:
            return {}
        if self.options.normalize_advantage:
            batch = batch._replace(advantages=(batch.advantages - errors.mean) / (errors.std + 1e-8))
        by_samples = self.group.sync == "samples"
        figures = self._learn_from_samples(batch) if by_samples else self._learn_from_gradients(batch, errors.most)
        explained = 1 - (errors.std / spread.std) ** 2 if spread.std > 0 else math.nan
        return {**figures, "explained_variance": explained, "learning_rate": self.learning_rate}

    def record(self, figures: Figures) -> None:
        """Tells the group what this update was like, and checks and saves what it has led to; a collective."""
        self.group.log(**figures)
        if self.options.check_every and self.updates % self.options.check_every == 0:
            self.group.check_equal(self.network)
        self.group.save(self.state_dict)

    # ------------------------------------------------------------------------------------------ learning as a group

    def _learn_from_gradients(self, batch: Batch, largest: int) -> Figures:
        minibatches = math.ceil(largest / self.options.minibatch_size)  # of the largest batch: as many at every worker
        return self._optimize(batch, minibatches, self.group.average_gradients)

    def _learn_from_samples(self, batch: Batch) -> Figures:
        gathered = self.group.gather(to_samples(batch))
        figures: Figures = {}
        if gathered is not None:
            pooled = from_samples(gathered)
            minibatches = math.ceil(pooled.size / (self.options.minibatch_size * self.group.size))
            figures = self._optimize(pooled, minibatches, _alone)
        self.group.broadcast(self.network)
        return self._of_root(figures)

    def _of_root(self, figures: Figures) -> Figures:
        """What the root has measured; nothing where it has left, as then nobody learns any more."""
        theirs: Figures = self.group.share(figures) or {}
        self.early_stops = int(theirs.get("early_stops", self.early_stops))
        return theirs

    def _optimize(self, batch: Batch, minibatches: int, average: Callable[..., Figures]) -> Figures:
        """Some epochs of gradient steps; the means of what was measured on the way."""
        batch = batch.to(self.device)
        measured: list[Figures] = []
        for minibatch in self._shuffled(batch, minibatches):
            measured.append(self._gradients(minibatch, average))
            self._check_finite(measured[-1])
            if self.options.target_kl is not None and measured[-1]["approx_kl"] > 1.5 * self.options.target_kl:
                self.early_stops += 1
                break
            if self.options.max_grad_norm is not None:
                self.optimizer.clip(self.options.max_grad_norm)
            self.optimizer.step(self.learning_rate)
        means = {name: float(np.mean([figures[name] for figures in measured])) for name in measured[0]}
        return {**means, "early_stops": float(self.early_stops)}

    def _check_finite(self, figures: Figures) -> None:
        """Stops before a gradient that is no number makes every weight so; all workers see the same figures."""
        if not all(map(math.isfinite, figures.values())):
            raise FloatingPointError(
                f"policy {self.group.policy!r}: update {self.updates + 1} measured {figures}; are all rewards and "
                "observations finite, and of moderate size? If they are, lower learning_rate"
            )

    def _shuffled(self, batch: Batch, minibatches: int) -> Iterator[Batch]:
        """The minibatches of all epochs, each epoch in a new order."""
        for _ in range(self.options.n_epochs):
            order = torch.randperm(batch.size, generator=self.generator)
            yield from batch.take(order.to(self.device)).split(minibatches)

    def _gradients(self, minibatch: Batch, average: Callable[..., Figures]) -> Figures:
        """Leaves the group's mean gradient in the optimiser; the group's mean figures."""
        self.optimizer.zero_grad()
        measured = self.backward(minibatch) if minibatch.size else torch.zeros(len(_MEASURED))
        figures = dict(zip(_MEASURED, measured.tolist(), strict=True))  # zeros weigh nothing
        return average([self.optimizer.vector], weight=float(minibatch.size), **figures)

    # --------------------------------------------------------------------------------------------------- the maths

    @torch.inference_mode()
    def backward(self, batch: Batch) -> Tensor:
        """Adds the gradient of a minibatch's loss to `grad` of the weights; returns what is measured of it [5].

        The loss is -L of equation (9); all parts of it are means over the transitions:

            loss = policy_loss + vf_coef * value_loss - ent_coef * entropy

        It is differentiated here, by hand, with respect to log pi(a|s) and V(s); the distribution and the network know
        the way from there to the weights. The tests compare that with torch's own derivative of the equation.
        """
        features, to_encoder = self.network.encoded(batch.observations)
        surrogate, *others = self._policy_backward(features, batch)
        value_errors = self._value_backward(features, batch)
        to_encoder()
        return torch.stack([-surrogate, value_errors, *others]).mean(1)

    def _policy_backward(self, features: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """The actor's part; the surrogate objective, entropy, divergence and what was clipped, [N] each."""
        policy, to_actor = self.network.traced_policy(features, batch.masks)
        log_ratio = policy.log_prob(batch.actions) - batch.log_probs
        ratio = log_ratio.exp()  # r(theta), section 3
        clipped = ratio.clamp(1 - self.options.clip_range, 1 + self.options.clip_range)
        gain, clipped_gain = ratio * batch.advantages, clipped * batch.advantages
        surrogate = torch.min(gain, clipped_gain)  # eq. (7)
        share = -1 / batch.size  # the loss is minus the mean
        by_log_prob = gain.masked_fill_(gain > clipped_gain, 0.0).mul_(share)  # as dr = r dlog pi; 0 where clipped
        to_actor(policy.gradient(batch.actions, by_log_prob, self.options.ent_coef * share))
        divergence = (ratio - 1).sub_(log_ratio)  # k3 of joschu.net/blog/kl-approx.html
        return surrogate, policy.entropy(), divergence, (ratio != clipped).float()

    def _value_backward(self, features: Tensor, batch: Batch) -> Tensor:
        """The critic's part; errors [N] of L^VF. With `clip_range_vf`, a value gains nothing by moving further."""
        values, to_critic = self.network.traced_value(features)
        difference = values - batch.returns
        errors = difference.square()
        if self.options.clip_range_vf is not None:
            move = values - batch.values
            near = move.clamp(-self.options.clip_range_vf, self.options.clip_range_vf)
            clipped = (batch.values + near - batch.returns).square()
            difference.masked_fill_((move != near) & (clipped >= errors), 0.0)  # the larger one does not move
            errors = torch.max(errors, clipped)
        to_critic(difference.mul_(2 * self.options.vf_coef / batch.size))
        return errors

    @property
    def learning_rate(self) -> float:
        """The learning rate of the update that comes next."""
        if self.options.learning_rate_schedule == "constant":
            return self.options.learning_rate
        return self.options.learning_rate * max(0.0, 1 - self.ticks_done / self.ticks)

    def _log_probs_and_values(
        self, leaves: Sequence[Tensor], masks: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values [N] of all transitions, on the CPU."""
        log_probs, values = [], []
        for start in range(0, len(actions), _CHUNK):
            part = slice(start, start + _CHUNK)
            mask = None if masks is None else masks[part]
            policy, value = self.network.policy_and_value(self._here([leaf[part] for leaf in leaves]), self._here(mask))
            log_probs.append(policy.log_prob(self._here(actions[part])).cpu())
            values.append(value.cpu())
        return torch.cat(log_probs), torch.cat(values)

    def _values(self, leaves: Sequence[Tensor]) -> Tensor:
        """V [N] of leaves, on the CPU; of no leaves, nothing."""
        return self.network.value(self._here(leaves)).cpu() if leaves else torch.zeros(0)

    def _here(self, tensors: Any) -> Any:
        """A tensor, a list of them or None, on the device that learns."""
        if tensors is None or self.device.type == "cpu":
            return tensors
        return [tensor.to(self.device) for tensor in tensors] if isinstance(tensors, list) else tensors.to(self.device)

    # ------------------------------------------------------------------------------------------ what others ask for

    def actor(self, *, greedy: bool = False) -> Callable[[Any, Mapping[str, Any]], NDArray[Any]]:
        """A function from (observations, infos) of a vector environment to actions, with the current weights.

        It has its own random stream, so that its use changes nothing in a run. Greedy: the most probable actions.
        """
        generator = _stream(self.group.seed, _ACTING)
        space, head = self.env.single_observation_space, self.head

        @torch.inference_mode()
        def act(observations: Any, infos: Mapping[str, Any]) -> NDArray[Any]:
            leaves, mask = to_leaves(space, observations), to_mask(infos, head.mask_size)
            policy = self.network.policy(self._here(leaves), self._here(mask))
            noise = head.noise(1, len(leaves[0]), generator)[0]
            actions = policy.mode() if greedy else policy.sample(self._here(noise))
            return head.to_env(actions.cpu().numpy())

        return act

    def state_dict(self) -> dict[str, Any]:
        """All that the policy needs to go on: weights, optimiser, counters. Its workers draw from new streams."""
        return {
            "network": to_arrays(self.network.state_dict()),
            "optimizer": to_arrays(self.optimizer.state_dict()),
            "updates": self.updates,
            "ticks_done": self.ticks_done,
            "early_stops": self.early_stops,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a stored state, also one of another worker or another number of workers.

        Raises:
            ConfigError: the state is not PPO's, or its network has another shape.
        """
        if "network" not in state:
            raise ConfigError(f"this is no state of PPO: it has {', '.join(map(str, state)) or 'nothing'}")
        load_weights(self.network, state["network"])
        self.optimizer.load_state_dict(to_tensors(state["optimizer"]))
        self.updates, self.ticks_done = int(state["updates"]), int(state["ticks_done"])
        self.early_stops = int(state["early_stops"])

    def own_state_dict(self) -> dict[str, Any]:
        """What this worker alone has: the part of a rollout that nobody has learnt from; empty where there is none."""
        return self.rollout.state_dict()

    def load_own_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with that part, if the seat has as many rows, and the rollout at least as many ticks, as it had."""
        self.rollout.load_state_dict(state)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Whether this machine has the device.

        Raises:
            ConfigError: it has not.
        """
        _device(Options(**options).device)

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Whether PPO can play with one entity's spaces.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        leaves_of(observation_space)
        action_head(action_space)

    @classmethod
    def sizes(cls, options: Mapping[str, Any], *, rows: int, ticks: int, workers: int) -> dict[str, int]:
        """What `arena plan` shows: transitions per update when all rows act, updates per run, gradient steps.

        Raises:
            ConfigError: an option that PPO cannot take, or a rollout longer than the run.
        """
        given = Options(**options)
        _check_budget(given, ticks)
        minibatches = math.ceil(given.n_steps * rows / given.minibatch_size)
        return {
            "samples per update": given.n_steps * rows * workers,
            "updates per run": ticks // given.n_steps,
            "gradient steps per update": minibatches * given.n_epochs,
        }


def _alone(parameters: Iterable[Tensor], *, weight: float, **figures: float) -> Figures:
    """The mean over a group of one."""
    return figures


def _stream(*key: int) -> torch.Generator:
    """A random stream of its own for every key."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise wrong("device", name, "cpu or auto: torch finds no CUDA device on this machine")
    return torch.device(name)


def _check_budget(options: Options, ticks: int) -> None:
    if options.n_steps > ticks:
        raise ConfigError(
            f"a rollout of {options.n_steps} ticks does not fit into a run of {ticks}, so nothing would be learnt; "
            f"set n_steps to {ticks} or less, or ticks to {options.n_steps} or more",
            path="options.n_steps",
        )


def _check_autoreset(env: VectorEnv[Any, Any, Any]) -> None:
    mode = env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP)
    if mode != AutoresetMode.SAME_STEP:
        raise ConfigError(f"PPO needs a vector environment that resets on the same step, not {mode}")
