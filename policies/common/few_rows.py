"""Acting for few rows, such as a worker of one lane, by NumPy.

For a handful of rows torch spends its time on calls, not on arithmetic: 16 us for one row and two layers of 64, where
NumPy takes 3. That is also less than the row's share of one batch for all workers of the policy in the process, in
which every worker's rows would have to be padded to blocks so that their bits do not depend on the others'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from policies.common.rollout import Rows
from policies.networks.actor_critic import MLP, ActorCritic, Encoder, Numbers
from policies.networks.heads import DiscreteHead


def few_rows(algorithm: Any, written_for: type[Any]) -> Callable[[int, Tensor, Rows], Any] | None:
    """`act` of an algorithm, for one rollout, with the weights where they are now.

    None unless the algorithm acts as the class `written_for` does, without memory, for few rows, by a small perceptron
    on the CPU.
    """
    network, kind, rollout = algorithm.network, type(algorithm), algorithm.rollout
    acts = all(getattr(kind, name) is getattr(written_for, name) for name in ("act", "sampled"))
    if not acts or type(network) is not ActorCritic or type(network.actor) is not MLP or algorithm.memory_size:
        return None
    rows, encoder, head, preprocess = rollout.rows, network.encoder, network.head, algorithm.preprocess
    perceptron = network.actor.of_few(rows)
    if perceptron is None or encoder.learns:
        return None
    parts = list(encoder.parts) if type(encoder) is Encoder else []
    as_it_is = len(parts) == 1 and isinstance(parts[0], Numbers) and parts[0].keeps(preprocess(rollout.leaves(0))[0])
    chooses = type(head) is DiscreteHead

    def act(t: int, noise: Tensor, some: Rows) -> Any:
        if len(noise) != rows:  # a block of lanes, or the rows of an external game that act
            return algorithm.act(t, noise, some)
        leaves, mask = preprocess(rollout.leaves(t)), rollout.mask(t)
        features = leaves[0] if as_it_is else encoder.parted(encoder(leaves)).actor
        outputs = perceptron(features.contiguous().numpy())
        if mask is None and chooses:
            return (outputs + noise.numpy()).argmax(-1)  # `Categorical.sample`
        return head.distribution(torch.from_numpy(outputs), mask).sample(noise).numpy()

    return act
