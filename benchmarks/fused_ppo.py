"""PPO with everything in one process: the upper bound for an arena of processes, and a plain learner.

The same algorithm, network and numbers as `policies/ppo.py`, written as one loop without processes, proxies or
groups. `env` is `VersusRandom` (the game in this process), Gymnasium's
`AsyncVectorEnv` with one process per lane, or a pool of EnvPool. Images go through the convolutional network of Mnih et
al. 2015, which actor and critic share.

    python benchmarks/fused_ppo.py '{"env": "fused", "lanes": 64, "samples": 100000, "seconds": 20, "notes": null}'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from games import Transition, VersusRandom
from terms import Terms


class Lanes(Protocol):
    """The environments of the loop."""

    lanes: int

    def reset(self) -> NDArray[Any]: ...

    def step(self, actions: NDArray[np.int64]) -> Transition: ...

    def close(self) -> None: ...


class Rollout(NamedTuple):
    """The transitions of `n_steps` ticks."""

    observations: Tensor  # [T + 1, L, *shape]
    actions: Tensor  # [T, L]
    rewards: NDArray[np.float64]  # [T, L]
    terminated: NDArray[np.bool_]  # [T, L]
    truncated: NDArray[np.bool_]  # [T, L]
    final: Tensor  # [T, L, *shape], read where truncated


class FusedPPO:
    """Collects and learns in turns.

    Args:
        env: the game's lanes.
        terms: common to all contestants.
        actions: of the game.
    """

    def __init__(self, env: Lanes, terms: Terms, actions: int = 5) -> None:
        torch.manual_seed(terms.seed)
        self.env, self.terms, self.actions = env, terms, actions
        first = torch.from_numpy(env.reset())
        images = first.dtype == torch.uint8
        self.encoder = _convolutions(first.shape[1]) if images else nn.Identity()
        inputs = 512 if images else first.shape[1]
        self.actor, self.critic = _mlp(inputs, actions, 0.01), _mlp(inputs, 1, 1.0)
        self.parameters = [*self.encoder.parameters(), *self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=terms.learning_rate, eps=1e-5, fused=True)
        shape = (terms.n_steps, env.lanes)
        self.rollout = Rollout(
            torch.zeros(terms.n_steps + 1, *first.shape, dtype=first.dtype),
            torch.zeros(shape, dtype=torch.int64),
            np.zeros(shape),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.bool_),
            torch.zeros(terms.n_steps, *first.shape, dtype=first.dtype),
        )
        self.rollout.observations[-1] = first

    def update(self) -> None:
        """Collects one rollout, and learns from it."""
        self.collect()
        self.learn(*self.judge())

    @torch.inference_mode()
    def collect(self) -> None:
        """Plays `n_steps` ticks. Argmax of logits and Gumbel noise is a sample of the softmax."""
        seen = self.rollout
        seen.observations[0] = seen.observations[-1]
        noise = -torch.empty(*seen.actions.shape, self.actions).exponential_().log()
        for t in range(self.terms.n_steps):
            actions = (self.actor(self.encoder(seen.observations[t])) + noise[t]).argmax(-1)
            seen.actions[t] = actions
            moved = self.env.step(actions.numpy())
            seen.observations[t + 1] = torch.from_numpy(moved.observations)
            seen.rewards[t], seen.terminated[t], seen.truncated[t] = moved[1:4]
            if moved.truncated.any():
                seen.final[t] = torch.from_numpy(moved.final)

    @torch.no_grad()
    def judge(self) -> tuple[Tensor, ...]:
        """Observations, actions, log-probabilities, advantages and returns of all transitions, flat."""
        seen, terms = self.rollout, self.terms
        ticks, lanes = seen.observations.shape[:2]
        features = self.encoder(seen.observations.flatten(0, 1)).view(ticks, lanes, -1)
        values = self.critic(features).squeeze(-1).double().numpy()
        following = np.where(seen.terminated, 0.0, values[1:])
        if seen.truncated.any():
            last = self.critic(self.encoder(seen.final.flatten(0, 1))).view(ticks - 1, lanes)
            following = np.where(seen.truncated, last.double().numpy(), following)
        deltas = seen.rewards + terms.gamma * following - values[:-1]
        decay = terms.gamma * terms.gae_lambda * ~(seen.terminated | seen.truncated)
        advantages, ahead = np.empty_like(deltas), np.zeros(self.env.lanes)
        for t in range(terms.n_steps - 1, -1, -1):  # equation (16) of arXiv 1506.02438 as a recursion
            ahead = deltas[t] + decay[t] * ahead
            advantages[t] = ahead
        observations, actions = seen.observations[:-1].flatten(0, 1), seen.actions.flatten()
        log_probs = _log_probs(self.actor(features[:-1].flatten(0, 1)), actions)
        flat = torch.from_numpy(advantages).float().flatten()
        returns = torch.from_numpy(advantages + values[:-1]).float().flatten()
        return observations, actions, log_probs, (flat - flat.mean()) / (flat.std() + 1e-8), returns

    def learn(self, *batch: Tensor) -> None:
        """Some epochs of clipped-surrogate steps, equations (7) and (9) of arXiv 1707.06347."""
        for _ in range(self.terms.n_epochs):
            for index in torch.split(torch.randperm(len(batch[0])), self.terms.minibatch):
                observations, actions, log_probs, advantages, returns = (part[index] for part in batch)
                features = self.encoder(observations)
                logits = torch.log_softmax(self.actor(features), -1)
                ratio = (logits.gather(-1, actions[:, None]).squeeze(-1) - log_probs).exp()
                clipped = ratio.clamp(1 - self.terms.clip_range, 1 + self.terms.clip_range)
                gain = torch.min(ratio * advantages, clipped * advantages).mean()
                error = (self.critic(features).squeeze(-1) - returns).square().mean()
                entropy = -(logits.exp() * logits).sum(-1).mean()
                loss = -gain + self.terms.vf_coef * error - self.terms.ent_coef * entropy
                self.optimizer.zero_grad(set_to_none=False)
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, self.terms.max_grad_norm)
                self.optimizer.step()


class _Scaled(nn.Module):
    """Bytes to numbers from 0 to 1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255


def _convolutions(channels: int) -> nn.Sequential:
    """Images [N, channels, 84, 84] to 512 features."""
    layers: list[nn.Module] = [_Scaled()]
    for inputs, outputs, kernel, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
        layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
    layers += [nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU()]
    for layer in layers:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.orthogonal_(layer.weight, 2**0.5)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def _mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """64-64 with tanh, orthogonal weights, zero biases."""
    sizes, gains = (inputs, 64, 64, outputs), (2**0.5, 2**0.5, gain)
    layers: list[nn.Module] = []
    for inputs, size, scale in zip(sizes, sizes[1:], gains, strict=False):
        layer = nn.Linear(inputs, size)
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(-1, actions[:, None]).squeeze(-1)


def learn_until(update: Callable[[], Any], *, samples_per_update: int, samples: int, seconds: float) -> None:
    """Updates until this many samples were used or this much time has passed."""
    begun = time.monotonic()
    for _ in range(-(-samples // samples_per_update)):
        update()
        if time.monotonic() - begun >= seconds:
            return


def main() -> None:
    """One contestant: the options are JSON on the command line."""
    terms = Terms.told()
    torch.set_num_threads(terms.threads)
    env: Lanes
    actions = 5
    if terms.env == "async":
        from async_lanes import AsyncLanes

        env = AsyncLanes(terms)
    elif terms.env.startswith("envpool:"):
        from envpool_lanes import EnvPoolLanes

        env = EnvPoolLanes(terms)
        actions = env.actions
    else:
        env = VersusRandom(lanes=terms.lanes, seed=terms.seed, notes=terms.notes, every=terms.n_steps)
    learner = FusedPPO(env, terms, actions)
    learn_until(
        learner.update, samples_per_update=terms.n_steps * terms.lanes, samples=terms.samples, seconds=terms.seconds
    )
    env.close()


if __name__ == "__main__":
    main()
