"""What the workers of a policy compute together is what one worker would compute on all of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from arena.comm.host import Host, HostedEndpoint
from arena.errors import GroupError
from arena.group import Group

torch.set_num_threads(1)

NAN = float("nan")
FINITE = st.floats(-1e3, 1e3)


def group_at(endpoint: HostedEndpoint, members: Sequence[int], notes: list[Any] | None = None) -> Group:
    said = notes if notes is not None else []
    return Group(
        endpoint,
        tuple(members),
        policy="blue",
        sync="gradients",
        seed=endpoint.address,
        shared_seed=7,
        comm=None,
        report=lambda values: said.append(("log", dict(values))),
        keep=lambda state: said.append(("save", state)),
    )


def together(work: Callable[[Group], Any], members: Sequence[int] = (0, 1, 2), *, leave: bool = True) -> list[Any]:
    """Runs `work` at every member of a group in a world of its own; the results in the order of the group ranks."""
    results: dict[int, Any] = {}

    def main(endpoint: HostedEndpoint) -> None:
        if endpoint.address not in members:
            return
        group = group_at(endpoint, members)
        try:
            results[group.rank] = work(group)
        finally:
            if leave:
                group.leave()

    size = max(members) + 1
    Host({address: f"role {address}" for address in range(size)}).run(dict.fromkeys(range(size), main))
    return [results[rank] for rank in range(len(members))]


def errors(work: Callable[[Group], Any], members: Sequence[int] = (0, 1, 2)) -> list[str]:
    """The message of the `GroupError` that `work` raises at every member."""

    def caught(group: Group) -> str:
        with pytest.raises(GroupError) as info:
            work(group)
        return str(info.value)

    return together(caught, members, leave=False)


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def gradients(module: torch.nn.Module) -> bytes:
    return b"".join(parameter.grad.numpy().tobytes() for parameter in module.parameters() if parameter.grad is not None)


# --- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(8,), (3, 5), (1, 4, 2), (6, 0, 2)])
def test_averaged_gradients_are_those_of_one_worker_on_the_pooled_samples(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(sum(sizes), 3), torch.randn(sum(sizes), 2)
    alone = torch.nn.Linear(3, 2)
    torch.nn.functional.mse_loss(alone(inputs), targets).backward()
    ends = np.cumsum(sizes)

    def work(group: Group) -> list[torch.Tensor]:
        mine = torch.nn.Linear(3, 2)
        mine.load_state_dict(alone.state_dict())
        rows = slice(int(ends[group.rank]) - sizes[group.rank], int(ends[group.rank]))
        if sizes[group.rank]:
            torch.nn.functional.mse_loss(mine(inputs[rows]), targets[rows]).backward()
        group.average_gradients(mine.parameters(), weight=sizes[group.rank])
        return [parameter.grad for parameter in mine.parameters() if parameter.grad is not None]

    for held in together(work, range(len(sizes))):
        for mine, expected in zip(held, alone.parameters(), strict=True):
            torch.testing.assert_close(mine, expected.grad, rtol=0, atol=1e-6)


def averaged_somewhere(members: Sequence[int]) -> set[bytes]:
    """What five members with fixed gradients hold after averaging them; their world may be laid out in any way."""

    def work(group: Group) -> bytes:
        module = network()
        rng = np.random.default_rng(group.rank)
        for parameter in module.parameters():
            parameter.grad = torch.from_numpy(rng.standard_normal(parameter.shape).astype(np.float32))
        scalars = group.average_gradients(module.parameters(), weight=0.1 + group.rank, kl=rng.standard_normal())
        return gradients(module) + np.float64(scalars["kl"]).tobytes()

    return set(together(work, members))


def test_averages_are_the_same_to_the_bit_in_every_run_and_wherever_the_members_are() -> None:
    places = [(0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (7, 2, 9, 0, 5)]
    assert len(set.union(*(averaged_somewhere(members) for members in places))) == 1


def test_the_sum_is_taken_in_the_order_of_the_group_ranks_in_double_precision() -> None:
    values = np.array([1e8, 1.0, -1e8, 1e-8], np.float32)
    weights = [1.0, 3.0, 1.0, 0.3]
    total, weight_sum = np.float64(values[0]) * weights[0], weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total, weight_sum = total + np.float64(value) * weight, weight_sum + weight

    def work(group: Group) -> float:
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.tensor([values[group.rank]])
        group.average_gradients([parameter], weight=weights[group.rank])
        return parameter.grad.item()

    assert together(work, range(4)) == [float(np.float32(total / weight_sum))] * 4


def average_one(parts: Sequence[tuple[float | None, float, float]]) -> list[tuple[float | None, float]]:
    """Averages a gradient (None: there is none), a weight and a scalar of each member."""

    def work(group: Group) -> tuple[float | None, float]:
        gradient, weight, scalar = parts[group.rank]
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = None if gradient is None else torch.tensor([gradient])
        means = group.average_gradients([parameter], weight=weight, kl=scalar)
        return None if parameter.grad is None else parameter.grad.item(), means["kl"]

    return together(work, range(len(parts)))


def test_members_count_by_their_weight() -> None:
    assert average_one([(1.0, 1.0, 10.0), (5.0, 3.0, 50.0)]) == [(4.0, 40.0)] * 2


def test_a_missing_gradient_counts_as_zero_and_is_filled_in() -> None:
    assert average_one([(None, 1.0, 0.0), (4.0, 1.0, 0.0)]) == [(2.0, 0.0)] * 2


def test_without_any_weight_gradients_and_scalars_are_zero() -> None:
    assert average_one([(1.0, 0.0, 2.0), (NAN, 0.0, NAN)]) == [(0.0, 0.0)] * 2


@pytest.mark.parametrize("silent", [0, 1])
def test_what_has_no_weight_is_not_heard_not_even_when_it_is_not_a_number(silent: int) -> None:
    parts = [(3.0, 2.0, 7.0), (3.0, 2.0, 7.0)]
    parts[silent] = (NAN, 0.0, NAN)
    assert average_one(parts) == [(3.0, 7.0)] * 2


def test_a_nan_that_has_weight_is_not_hidden() -> None:
    ((gradient, scalar), _) = average_one([(NAN, 1.0, NAN), (3.0, 1.0, 3.0)])
    assert gradient is not None
    assert np.isnan([gradient, scalar]).all()


def test_a_worker_alone_keeps_its_gradients_to_the_bit() -> None:
    module = network()
    for index, parameter in enumerate(module.parameters()):
        parameter.grad = torch.full_like(parameter, 0.1 + index)
    before = gradients(module)
    together(lambda group: group.average_gradients(module.parameters(), weight=7.0), [0])
    assert gradients(module) == before


def test_scalars_come_back_by_their_names() -> None:
    assert (
        together(lambda group: group.average_gradients([], zeta=group.rank, alpha=10 * group.rank))
        == [{"alpha": 10.0, "zeta": 1.0}] * 3
    )


def test_different_numbers_of_parameters_are_an_error_at_every_member() -> None:
    def work(group: Group) -> None:
        group.average_gradients([torch.nn.Parameter(torch.zeros(2 + group.rank % 2))])

    said = errors(work)
    assert len(said) == 3
    assert all("different numbers of (scalars, gradient values): [(0, 2), (0, 3)]" in text for text in said)


# --- numbers ------------------------------------------------------------------------------------------------------

PARTS = st.lists(arrays_of.arrays(np.float64, st.integers(0, 6), elements=FINITE), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(PARTS, st.sampled_from([0.0, 1e6]))
def test_moments_are_those_of_all_values_in_one_array(parts: list[np.ndarray[Any, Any]], offset: float) -> None:
    pooled = np.concatenate(parts) + offset
    for found in together(lambda group: group.moments(parts[group.rank] + offset), range(len(parts))):
        assert found.count == pooled.size
        if pooled.size:
            np.testing.assert_allclose(found.mean, pooled.mean(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.std, pooled.std(), rtol=1e-9, atol=1e-9)
        else:
            assert (found.mean, found.std) == (0.0, 0.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(FINITE, st.floats(0.1, 10)), min_size=1, max_size=4))
def test_means_and_maxima_are_those_of_all_members(parts: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*parts, strict=True))

    def work(group: Group) -> tuple[float, float, float]:
        value, weight = parts[group.rank]
        return group.mean(value), group.mean(value, weight=weight), group.maximum(value)

    for plain, weighted, largest in together(work, range(len(parts))):
        np.testing.assert_allclose(plain, values.mean(), atol=1e-9)
        np.testing.assert_allclose(weighted, np.average(values, weights=weights), atol=1e-9)
        assert largest == values.max()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_maximum_with_a_nan_is_nan_whoever_has_it(rank: int) -> None:
    assert np.isnan(together(lambda group: group.maximum(NAN if group.rank == rank else group.rank))).all()


# --- samples and weights ------------------------------------------------------------------------------------------


def test_gathered_samples_are_at_the_root_in_the_order_of_the_group_ranks_and_nowhere_else() -> None:
    def work(group: Group) -> Any:
        return group.gather({"x": np.full(2, group.rank), "y": (group.rank, None)})

    root, *others = together(work, (2, 0, 1))
    assert [(part["x"].tolist(), part["y"]) for part in root] == [([rank] * 2, (rank, None)) for rank in range(3)]
    assert others == [None, None]


def test_pooled_samples_are_everywhere_and_belong_to_nobody_else() -> None:
    def work(group: Group) -> Any:
        parts = group.pool(np.array([group.rank]))
        parts[0] += 100 * (group.rank + 1)
        return [part.tolist() for part in parts]

    assert together(work) == [[[100 * (rank + 1)], [1], [2]] for rank in range(3)]


def test_broadcast_gives_everybody_the_roots_weights_and_buffers_to_the_bit() -> None:
    def work(group: Group) -> dict[str, torch.Tensor]:
        module = network(seed=group.rank)
        module(torch.randn(5 + group.rank, 3))  # moves the running statistics
        before = {name: value.clone() for name, value in module.state_dict().items()}
        group.broadcast(module)
        group.check_equal(module)
        return before if group.is_root else dict(module.state_dict())

    root, *others = together(work)
    for state in others:
        assert state.keys() == root.keys()
        assert all(torch.equal(state[name], root[name]) for name in root)


def test_shared_values_are_the_roots() -> None:
    assert together(lambda group: group.share({"plan": group.rank})) == [{"plan": 0}] * 3


def test_weights_that_differ_in_one_bit_are_an_error_at_every_member_that_names_who() -> None:
    def work(group: Group) -> None:
        module = network()
        if group.rank == 2:
            weight = next(module.parameters()).detach()
            weight.view(-1)[0] = torch.nextafter(weight.view(-1)[0], torch.tensor(np.inf))
        group.check_equal(module)

    assert errors(work) == ["workers [2] hold other weights than worker 0"] * 3


# --- leaving ------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_a_member_that_has_left_weighs_nothing_and_blocks_nobody(rounds: list[int]) -> None:
    """Member i takes part in `rounds[i]` collectives and leaves: the hub, rank 0, too, at any time."""

    def work(group: Group) -> list[float]:
        return [group.mean(float(group.rank)) for _ in range(rounds[group.rank])]

    found = together(work, range(len(rounds)))
    for rank, seen in enumerate(found):
        expected = [
            np.mean([other for other, count in enumerate(rounds) if count > turn]) for turn in range(rounds[rank])
        ]
        assert seen == pytest.approx(expected)


def test_when_the_root_has_left_nothing_is_broadcast_or_shared_and_the_others_still_pool() -> None:
    def work(group: Group) -> Any:
        if group.is_root:
            return None
        module = torch.nn.Linear(1, 1)
        with torch.no_grad():
            module.weight.fill_(float(group.rank))
        group.broadcast(module)
        return module.weight.item(), group.share(1), group.gather(1), group.pool(group.rank)

    assert together(work) == [None, (1.0, None, None, [1, 2]), (2.0, None, None, [1, 2])]


def test_a_member_that_has_left_takes_part_in_nothing() -> None:
    def work(group: Group) -> str:
        group.leave()
        group.leave()  # once more does nothing
        with pytest.raises(GroupError) as info:
            group.mean(1.0)
        return str(info.value)

    assert together(work) == ["policy 'blue': average was called after the worker had left"] * 3


def test_the_members_may_leave_in_every_order() -> None:
    for order in itertools.permutations(range(3)):
        assert together(lambda group, order=order: [group.mean(1.0) for _ in range(order[group.rank])]) == [
            [1.0] * order[rank] for rank in range(3)
        ]


# --- mistakes -----------------------------------------------------------------------------------------------------

CALLS: Mapping[str, Callable[[Group], Any]] = {
    "average": lambda group: group.mean(1.0),
    "moments": lambda group: group.moments([1.0]),
    "maximum": lambda group: group.maximum(1.0),
    "gather": lambda group: group.gather(1),
    "pool": lambda group: group.pool(1),
    "broadcast": lambda group: group.share(1),
    "equal": lambda group: group.check_equal(torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(CALLS)))
def test_different_collectives_at_the_same_time_are_an_error_at_every_member_that_names_who_called_what(
    first: str, second: str
) -> None:
    said = errors(lambda group: CALLS[second if group.rank == 1 else first](group))
    expected = (
        f"the workers of policy 'blue' called different collectives: worker 0 {first}, worker 1 {second}, "
        f"worker 2 {first}"
    )
    assert said == [expected] * 3


def test_different_collectives_are_an_error_also_when_the_root_has_left() -> None:
    def work(group: Group) -> None:
        if group.is_root:
            group.leave()
        CALLS["pool" if group.rank == 1 else "moments"](group)

    said = errors(work)
    assert set(said) == {"the workers of policy 'blue' called different collectives: worker 1 pool, worker 2 moments"}


def test_only_the_roots_numbers_and_states_are_written_down() -> None:
    notes: dict[int, list[Any]] = {0: [], 1: []}

    def main(endpoint: HostedEndpoint) -> None:
        group = group_at(endpoint, (0, 1), notes[endpoint.address])
        group.log(loss=float(group.rank))
        group.save({"rank": group.rank})

    Host({0: "a", 1: "b"}).run({0: main, 1: main})
    assert notes == {0: [("log", {"loss": 0.0}), ("save", {"rank": 0})], 1: []}


def test_a_group_knows_its_size_its_rank_and_its_root() -> None:
    seen = together(lambda group: (group.size, group.rank, group.is_root, group.policy, group.sync), (3, 1))
    assert seen == [(2, 0, True, "blue", "gradients"), (2, 1, False, "blue", "gradients")]


def test_when_the_root_has_left_the_first_that_remains_speaks_for_the_policy() -> None:
    spoken: list[tuple[int, int]] = []

    def member(group: Group) -> None:
        for turn in range(3):
            if turn > group.rank:  # worker 0 leaves after its first turn, worker 1 after its second
                break
            group.mean(1.0)
            if group.speaks:
                spoken.append((turn, group.rank))

    together(member)
    assert spoken == [(0, 0), (1, 1), (2, 2)]
