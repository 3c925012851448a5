"""Neural fictitious self-play (Heinrich and Silver 2016, arXiv 1603.01121): the average policy of best responses.

    in an episode of a row   with the chance eta (`anticipatory`) the best response beta acts, else the average Pi
    beta                     learns as its algorithm does: off-policy from all transitions, on-policy from its own
    M_SL                     a reservoir of what beta saw and chose, each decision with the same chance
    Pi                       minimizes the mean of -log Pi(s, a) over M_SL, by a gradient step for each one of beta

Pi approaches the mean of all best responses so far, as in fictitious play. It is what others meet and evaluate. Unlike
in the paper, random actions with which a greedy beta explores are not kept, but what it would have done instead. Its
weights are a part of the network, `average`: they are shared, compared and saved with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from arena.errors import ConfigError
from arena.group.group import Group
from policies.common.adam import Adam
from policies.common.algorithm import Algorithm, Draws, Metrics
from policies.common.columns import Columns, Storage
from policies.common.nstep import RowLayout
from policies.common.on_policy import drawn, env_log_prob
from policies.common.options import Devices, check_refused, check_unused, wrong
from policies.common.rollout import Rows
from policies.exporting import Exported, decoding_of, exported
from policies.networks.actor_critic import Actor
from policies.networks.heads import DiscreteHead, MultiBinaryHead, action_head

OPTIONS = ("average", "anticipatory", "reservoir_size")
"""The options of algorithms with an average policy."""

_REFUSED = ("recurrent", "normalize_observations", "extra_loss")


def check_average(options: Any) -> None:
    """Refuses options without effect, as there is no average policy, and those that it cannot have."""
    check_unused(options, "anticipatory", "reservoir_size", average=False)
    if options.average:
        check_refused(
            options, *_REFUSED, why="the average policy (average: true) cannot have it; leave one of them out"
        )
        if isinstance(options.device, Devices):
            raise wrong("device", "two", "one where average is true: the average policy acts and learns on it")


class Decisions(Columns, frozen=True):
    """What a policy saw and did; `N` of it."""

    actions: Tensor  # [N, ...] as learned from


class Reservoir:
    """Decisions, of all `seen` so far each with the same chance (algorithm R: Vitter 1985, doi 10.1145/3147.3165)."""

    def __init__(self, layout: RowLayout, capacity: int) -> None:
        self.seen, self._capacity = 0, capacity
        self._points, self._actions = Storage(layout.leaves, layout.mask_size, capacity), layout.action_column(capacity)

    def extend(self, new: Decisions, generator: torch.Generator) -> None:
        """Decision number n, from 0, takes the place n; if there is none, a random one of 0 to n, or is forgotten."""
        numbers = np.arange(self.seen, self.seen + new.size)
        random = torch.rand(new.size, dtype=torch.float64, generator=generator).numpy() * (numbers + 1)
        places = np.where(numbers < self._capacity, numbers, random.astype(np.int64))
        kept = np.flatnonzero(places < self._capacity)  # of several in one place NumPy writes the last
        rows, places = new.take(torch.from_numpy(kept)), places[kept]
        masks = None if rows.masks is None else rows.masks.numpy()
        self._points.write(places, [leaf.numpy() for leaf in rows.observations], masks)
        self._actions.numpy()[places] = rows.actions.numpy()
        self.seen += new.size

    def sample(self, n: int, generator: torch.Generator) -> Decisions:
        """`n` decisions, drawn with replacement; none while it is empty."""
        size = min(self.seen, self._capacity)
        return self.at(torch.randint(size, (n,), generator=generator) if size else torch.arange(0))

    def at(self, places: Tensor) -> Decisions:
        """The decisions at places [N]."""
        points = self._points.take(places)
        return Decisions(points.observations, points.masks, self._actions.index_select(0, places))

    def state_dict(self) -> dict[str, Any]:
        kept = torch.arange(min(self.seen, self._capacity))
        return {"seen": self.seen, "decisions": self.at(kept).to_samples()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with stored decisions; with less room, with some of them."""
        stored, self.seen = Decisions.from_samples(state["decisions"]), 0
        self.extend(stored, torch.Generator())
        self.seen = int(state["seen"]) if stored.size >= self._capacity else stored.size


class AveragePolicy:
    """Pi of one worker, beside the best response that its algorithm learns; see above.

    Attributes:
        best: of each row [B], whether the best response acts in its episode.
        begins: of each row [B], whether its next action is in a new episode.
        reservoir: of this worker, or at rank 0 of all; None at the others where rank 0 learns for all.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        o, env, group = algorithm.options, algorithm.env, algorithm.group
        space = env.single_action_space
        self._algorithm, self._head = algorithm, action_head(space)
        if not isinstance(self._head, (DiscreteHead, MultiBinaryHead)):
            text = f"an average policy needs Discrete, MultiDiscrete or MultiBinary actions, not {space}; leave "
            text += "`average` out, or play a league with the rule `nash`"
            raise ConfigError(text, path="options.average")
        generator = torch.Generator().manual_seed(group.shared_seed)
        encoder = algorithm.make_encoder(generator)  # type: ignore[attr-defined]  # of `OnPolicy` and `OffPolicy`
        self._network = Actor(encoder, self._head, **algorithm.layers(generator)).to(algorithm.device)
        self._optimizer = Adam(self._network, epsilon=o.adam_epsilon)
        algorithm.network.average = self._network  # no part of what the other optimizers move and targets follow
        head, pooled = self._head, algorithm.pools_samples
        layout = RowLayout(env.single_observation_space, head.shape, head.dtype, head.mask_size)
        capacity = o.reservoir_size if pooled else -(-o.reservoir_size // group.size)
        self.reservoir = Reservoir(layout, capacity) if group.is_root or not pooled else None
        self._new = [Reservoir(layout, 0).at(torch.arange(0))]
        self.best, self.begins = np.zeros((2, env.num_envs), np.bool_)

    # ----------------------------------------------------------------------------------------------------- playing

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        """Noise for the actions of `ticks` ticks [ticks, rows, outputs + 1]; the last number says which policy acts."""
        chances = torch.rand(ticks, rows, 1, generator=generator)
        return torch.cat([self._head.noise(ticks, rows, generator), chances], 2)

    @torch.inference_mode()
    def mixed(
        self, actions: Tensor, leaves: Sequence[Any], mask: Tensor | None, noise: Tensor, rows: Rows = slice(None)
    ) -> Tensor:
        """The actions [N, ...] of some rows: the best response's own, which are given, and in other episodes Pi's."""
        chosen = noise[:, -1].cpu().numpy() < self._algorithm.options.anticipatory
        self.best[rows] = np.where(self.begins[rows], chosen, self.best[rows])
        self.begins[rows] = False
        average = self._network(leaves, mask).sample(noise[:, :-1])
        best = torch.from_numpy(self.best[rows]).to(average.device)
        found: Tensor = torch.where(best.view(-1, *[1] * (average.ndim - 1)), actions, average)
        return found

    def keep(self, leaves: Sequence[Any], mask: Tensor | None, actions: Tensor, rows: NDArray[np.bool_]) -> None:
        """Keeps what the best response has seen and chosen in some rows [B], flags, for the reservoir."""
        self._new.append(Decisions(tuple(leaves), mask, actions).take(torch.from_numpy(np.flatnonzero(rows))))

    def cut(self) -> dict[str, Any]:
        """What was kept since the last cut, as a group gathers it."""
        new, self._new = Decisions.cat(self._new), self._new[:1]
        return {"decisions": new.to_samples()}

    def add(self, parts: Sequence[Mapping[str, Any]], generator: torch.Generator) -> None:
        """Adds what `cut` gave at some workers to the reservoir."""
        assert self.reservoir is not None, "this worker learns"
        for part in parts:
            self.reservoir.extend(Decisions.from_samples(part["decisions"]), generator)

    # ---------------------------------------------------------------------------------------------------- learning

    def learn(self, size: int, generator: torch.Generator) -> Metrics:
        """A gradient step on `size` decisions, and its metrics; none while the group has no decisions."""
        assert self.reservoir is not None, "this worker learns"
        batch = self.reservoir.sample(size, generator).to(self._algorithm.device)
        names, optimizers = ("average_loss", "has_decisions"), [self._optimizer]
        metrics = self._algorithm.mean_gradients(batch, self.backward, names, optimizers)
        return metrics | self._algorithm.optimizer_step(optimizers) if metrics.pop("has_decisions") else {}

    def backward(self, batch: Decisions) -> Tensor:
        """Adds the gradient to `grad` of the weights; returns the loss and 1, the latter 0 without decisions."""
        loss: Tensor = -self._network(batch.observations, batch.masks).log_prob(batch.actions).mean()
        torch.autograd.backward([loss])
        return torch.stack([loss.detach(), torch.ones_like(loss)])

    # ------------------------------------------- what others see of it, as of an `Algorithm`; its state

    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Any, None]:
        return drawn(self._head, self._network(leaves, mask), len(leaves[0]), draws, self._algorithm.device), None

    def exported(self) -> Exported:
        env = self._algorithm.env
        decoding = decoding_of(env.single_action_space)
        return exported(self._network, env.single_observation_space, decoding, outputs=Actor.outputs)

    @torch.inference_mode()
    def log_prob(self, observations: Any, actions: Any, masks: Any, memory: None) -> NDArray[np.float64]:
        policy = self._network(*self._algorithm.network_inputs(observations, masks))
        return env_log_prob(self._head, policy, actions, self._algorithm.device)

    def state_value(self, observations: Any, memory: None) -> None:
        """None: the best response's values are not those of the average."""

    def state_dict(self) -> dict[str, Any]:
        """What there is beside the weights."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(state)

    def worker_state_dict(self) -> dict[str, Any]:
        """What only this worker has: its reservoir, if it has one, and decisions that are in none yet."""
        state = {"new": Decisions.cat(self._new).to_samples()}
        return state if self.reservoir is None else {**state, "reservoir": self.reservoir.state_dict()}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        self._new[1:] = [Decisions.from_samples(state["new"])]
        if self.reservoir is not None and "reservoir" in state:
            self.reservoir.load_state_dict(state["reservoir"])


class Averaging(Algorithm):
    """An algorithm that may have an average policy, which others then meet, evaluate and export in its place."""

    @property
    def shown(self) -> Any:
        """What others see."""
        return super() if self.average is None else self.average

    def choose(self, leaves: list[Any], mask: Tensor | None, draws: Draws) -> tuple[Any, Tensor | None]:
        return self.shown.choose(leaves, mask, draws)  # type: ignore[no-any-return]

    def exported(self) -> Exported:
        return self.shown.exported()  # type: ignore[no-any-return]

    def log_prob(
        self, observations: Any, actions: Any, masks: NDArray[np.int8] | None, memory: Any = None
    ) -> NDArray[np.float64]:
        return self.shown.log_prob(observations, actions, masks, memory)  # type: ignore[no-any-return]

    def state_value(self, observations: Any, memory: Any = None) -> NDArray[np.float64] | None:
        return self.shown.state_value(observations, memory)  # type: ignore[no-any-return]

    @classmethod
    def from_spaces(cls, env: VectorEnv[Any, Any, Any], group: Group, *, ticks: int, **options: Any) -> Self:
        options |= {"reservoir_size": 1} if options.get("average") else {}
        return super().from_spaces(env, group, ticks=ticks, **options)

    def worker_state_dict(self) -> dict[str, Any]:
        state = super().worker_state_dict()
        return state if self.average is None else {**state, "average": self.average.worker_state_dict()}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_worker_state_dict(state)
        if self.average is not None and "average" in state:
            self.average.load_worker_state_dict(state["average"])
