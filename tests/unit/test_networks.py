"""Networks: every layout of observations becomes features; initial weights come from one generator alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena.errors import ConfigError
from policies.common.columns import to_leaves
from policies.networks.actor_critic import FEW, MLP, ActorCritic, BufferPool, Encoder, mlp
from policies.networks.heads import action_head, check_choices

ROWS = 6
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
SPACES = [
    VECTOR,
    spaces.Box(-1, 1, (), np.float64),
    spaces.Box(-5, 5, (2, 3), np.int16),
    spaces.Box(0, 60_000, (2,), np.uint16),
    spaces.Box(0, 255, (84, 84, 1), np.uint8),
    spaces.Box(0, 255, (4, 48, 40), np.uint8),
    spaces.Box(0, 255, (5, 7, 3), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3], start=[1, 0]),
    spaces.MultiBinary((2, 2)),
    spaces.Dict(b=VECTOR, a=spaces.Discrete(3), image=spaces.Box(0, 255, (12, 12, 3), np.uint8)),
    spaces.Tuple([VECTOR, spaces.Dict(x=spaces.MultiBinary(2))]),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(space: spaces.Space[Any], seed: int = 0) -> ActorCritic:
    head = action_head(spaces.Discrete(4))
    return ActorCritic(space, head, hidden_sizes=(16, 8), activation="relu", generator=seeded(seed))


def seen(space: spaces.Space[Any]) -> list[torch.Tensor]:
    batched = batch_space(space, ROWS)
    batched.seed(1)
    return to_leaves(space, batched.sample())


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_layout_gives_an_action_and_a_value_per_row_alone(space: spaces.Space[Any]) -> None:
    net, leaves = network(space), seen(space)
    policy, values = net.policy_and_value(leaves)
    assert values.shape == policy.entropy().shape == (ROWS,)
    torch.testing.assert_close(values, net.value(leaves))
    torch.testing.assert_close(policy.mode(), net.policy(leaves).mode())
    assert values.isfinite().all()
    assert policy.entropy().isfinite().all()
    alone = torch.cat([net.value([leaf[row : row + 1] for leaf in leaves]) for row in range(ROWS)])
    torch.testing.assert_close(values, alone, atol=1e-4, rtol=1e-4)


def test_discrete_observations_become_one_hot() -> None:
    encoder = Encoder(spaces.MultiDiscrete([2, 3], start=[1, -1]), seeded())
    features = encoder(to_leaves(spaces.MultiDiscrete([2, 3], start=[1, -1]), np.array([[2, -1], [1, 1]])))
    assert features.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_too_many_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the actions Discrete\(1000000000\) have 1,000,000,000 choices"):
        check_choices(spaces.Discrete(10**9), "actions")


@pytest.mark.parametrize("high", [0, 1, 50, 255])
def test_bytes_are_scaled_by_their_upper_bound(high: int) -> None:
    space = spaces.Box(0, np.array([high // 2, high], np.uint8), dtype=np.uint8)
    expected = torch.tensor([[0.0, 1.0 if high else 0.0]])
    torch.testing.assert_close(Encoder(space, seeded())([torch.tensor([[0, high]], dtype=torch.uint8)]), expected)


@pytest.mark.parametrize("pixels", [84, 12])
def test_the_order_of_an_images_axes_does_not_matter(pixels: int) -> None:
    last = spaces.Box(0, 255, (pixels, pixels, 3), np.uint8)
    first = spaces.Box(0, 255, (3, pixels, pixels), np.uint8)
    (image,) = seen(last)
    swapped = [image.permute(0, 3, 1, 2).contiguous()]
    torch.testing.assert_close(network(last).value([image]), network(first).value(swapped), atol=1e-5, rtol=1e-5)


def test_initial_weights_depend_on_the_generator_alone() -> None:
    space = SPACES[-2]
    before = torch.get_rng_state()
    one, same, other = (network(space, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["actor.0.weight"], other["actor.0.weight"])


def test_hidden_layers_are_orthogonal_with_gain_root_two() -> None:
    weight = network(VECTOR).actor[2].weight.detach()  # [8, 16]
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(8), atol=1e-5, rtol=0)


def test_initial_policy_is_nearly_uniform() -> None:
    entropies = network(VECTOR).policy(seen(VECTOR)).entropy()
    torch.testing.assert_close(entropies, torch.full((ROWS,), np.log(4.0), dtype=torch.float32), atol=1e-3, rtol=0)


def test_actor_and_critic_share_only_the_images_network() -> None:
    net = network(SPACES[-2])
    net.value(seen(SPACES[-2])).sum().backward()
    reached = {name.split(".")[0] for name, value in net.named_parameters() if value.grad is not None}
    assert reached == {"encoder", "critic"}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(4), "no fixed layout"),
        (spaces.Sequence(VECTOR), "no fixed layout"),
        (spaces.Dict(), "nothing to learn from"),
        (spaces.Discrete(10**9), r"the observations .*Discrete\(.* choices, .* at most 1,048,576; use a"),
        (spaces.Dict(n=spaces.MultiDiscrete([2**20, 2])), r"the observations .*Discrete\(.* choices, .* at most"),
    ],
    ids=str,
)
def test_observations_that_no_network_takes_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network(space)


def perceptron(activation: str = "tanh", storage: BufferPool | None = None) -> MLP:
    made = mlp(3, 5, hidden_sizes=(8, 4), activation=activation, gain=1.0, generator=seeded(), storage=storage)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=seeded(1)))
    return made


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_inference_outputs_equal_a_sequential(rows: int, activation: str) -> None:
    net, inputs = perceptron(activation), torch.randn(rows, 3, generator=seeded(2))
    with torch.no_grad():
        found = net(inputs)
    torch.testing.assert_close(found, net(inputs).detach(), atol=1e-6, rtol=1e-6)


def test_backward_after_overwritten_storage_is_refused() -> None:
    storage, inputs, gradient = BufferPool((8, 4)), torch.zeros(6, 3), torch.zeros(6, 5)
    first, second = perceptron(storage=storage), perceptron(storage=storage)
    with torch.no_grad():
        _, lost = first.forward_with_grad(inputs)
        _, used = second.forward_with_grad(inputs)
        used(gradient)
        for backward in (lost, used):
            with pytest.raises(RuntimeError, match="written over"):
                backward(gradient)


def test_weights_have_the_names_of_a_sequential() -> None:
    assert list(perceptron().state_dict()) == [f"{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")]


@pytest.mark.slow
def test_a_network_is_made_and_moved_without_torchs_compiler() -> None:
    """Its import takes a quarter of a second of every worker's start, and 35 MB."""
    program = """if True:
        import sys
        import numpy as np, torch
        from gymnasium import spaces
        from policies.networks.heads import action_head
        from policies.common.adam import Adam
        from policies.networks.actor_critic import ActorCritic
        made = dict(hidden_sizes=(8, 8), activation="tanh", generator=torch.Generator())
        network = ActorCritic(spaces.Box(-1, 1, (84, 84, 1), np.float32), action_head(spaces.Discrete(3)), **made)
        Adam(network, epsilon=1e-8).step(0.1)
        print(*(name for name in ("sympy", "torch._dynamo") if name in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == ""
