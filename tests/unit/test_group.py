"""Collectives of a group: results equal those of one worker on all samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from arena.errors import GroupError
from arena.group.group import Group
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from arena.transport.shared_memory import SharedAreas

torch.set_num_threads(1)

FINITE = st.floats(-1e3, 1e3)


def group_at(endpoint: Any, members: Sequence[int], notes: list[Any] | None = None, **more: Any) -> Group:
    said = notes if notes is not None else []
    return Group(
        endpoint,
        tuple(members),
        policy="blue",
        sync=more.pop("sync", "gradients"),
        seed=endpoint.address,
        shared_seed=7,
        comm=more.pop("comm", None),
        on_log=lambda values: said.append(("log", dict(values))),
        on_save=lambda state: said.append(("save", state)),
        **more,
    )


def together(
    work: Callable[[Group], Any], members: Sequence[int] = (0, 1, 2), *, leave: bool = True, **more: Any
) -> list[Any]:
    """Runs `work` at every member of a group; the results in the order of the group ranks."""
    results: dict[int, Any] = {}

    def main(endpoint: RoleEndpoint) -> None:
        if endpoint.address not in members:
            return
        group = group_at(endpoint, members, **more)
        try:
            results[group.rank] = work(group)
        finally:
            if leave:
                group.leave()

    size = max(members) + 1
    RoleScheduler({address: f"role {address}" for address in range(size)}).run(dict.fromkeys(range(size), main))
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


# --- transports of gradients ------------------------------------------------------------------------------------------


class OnNode:
    """An endpoint that shares memory only with the roles of its node."""

    def __init__(self, endpoint: RoleEndpoint, nodes: Mapping[int, int]) -> None:
        self.address = endpoint.address
        self._endpoint, self._nodes = endpoint, nodes

    def waker(self, peer: int) -> Callable[[], None] | None:
        near = self._nodes[peer] == self._nodes[self.address]
        return self._endpoint.waker(peer) if near else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)


def somewhere(work: Callable[[Group, OnNode], Any], nodes: Sequence[int], *, leave: bool = True) -> list[Any]:
    """Runs `work` at every member of a group whose member r is on node `nodes[r]`."""
    results: list[Any] = [None] * len(nodes)

    def main(endpoint: RoleEndpoint) -> None:
        placed = OnNode(endpoint, dict(enumerate(nodes)))
        group = group_at(placed, range(len(nodes)))
        results[group.rank] = work(group, placed)
        if leave:
            group.leave()

    RoleScheduler({rank: f"role {rank}" for rank in range(len(nodes))}).run(dict.fromkeys(range(len(nodes)), main))
    return results


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: int) -> SharedAreas:
        raise OSError("no space")

    monkeypatch.setattr(SharedAreas, "make", make)


@contextmanager
def closed_to(ranks: set[int]) -> Iterator[None]:
    """Lets the members of these ranks fail to open the areas that the root offers."""
    asked = itertools.count(1)
    openly = SharedAreas.open

    def open_or_not(ticket: Any) -> SharedAreas:
        if next(asked) in ranks:
            raise OSError("not allowed")
        return openly(ticket)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedAreas, "open", open_or_not)
        yield


def gradient_of(rank: int, turn: int, size: int) -> np.ndarray[Any, Any]:
    """Numbers of many magnitudes, so that every order of a sum has other bits."""
    rng = np.random.default_rng([rank, turn, size])
    return np.float32(rng.standard_normal(size) * 10.0 ** rng.integers(-6, 3, size))


def weight_of(rank: int, turn: int) -> float:
    return float(np.random.default_rng([rank, turn]).choice([0.0, 1.0, 3.0, 0.1]))


def formula(ranks: Sequence[int], turn: int, size: int) -> bytes:
    """The mean of the members' gradients, in the order of their ranks, in double precision."""
    total, weights = np.zeros(size), 0.0
    heard = [rank for rank in ranks if weight_of(rank, turn) != 0.0]
    for index, rank in enumerate(heard):
        term = gradient_of(rank, turn, size).astype(np.float64) * weight_of(rank, turn)
        total = total + term if index else term
        weights += weight_of(rank, turn)
    return np.float32(total / weights if heard else total).tobytes()


def average_of(group: Group, turn: int, size: int) -> bytes:
    cuts = (0, size // 3, size)  # as two parameters
    held = [torch.nn.Parameter(torch.zeros(stop - start)) for start, stop in itertools.pairwise(cuts)]
    flat = gradient_of(group.rank, turn, size)
    for parameter, (start, stop) in zip(held, itertools.pairwise(cuts), strict=True):
        parameter.grad = torch.from_numpy(flat[start:stop].copy())
    group.average_gradients(held, weight=weight_of(group.rank, turn))
    return b"".join(parameter.grad.numpy().tobytes() for parameter in held if parameter.grad is not None)


SIZES = st.lists(st.sampled_from([0, 1, 7, 1000, 1100, 16384, 40000]), min_size=1, max_size=5)
NODES = st.lists(st.integers(0, 1), min_size=2, max_size=4)


def check_formula(nodes: Sequence[int], sizes: Sequence[int], stays: Sequence[int]) -> None:
    """Member r averages `stays[r]` of the gradients and leaves; the result of all members has the formula's bits."""

    def work(group: Group, _: OnNode) -> list[bytes]:
        found = []
        for turn, size in enumerate(sizes[: stays[group.rank]]):
            found.append(average_of(group, turn, size))
            assert group.moments(np.arange(group.rank)).max_count >= group.rank  # a small collective in between
        return found

    for seen in somewhere(work, nodes):
        for turn, found in enumerate(seen):
            ranks = [rank for rank, stay in enumerate(stays) if stay > turn]
            assert found == formula(ranks, turn, sizes[turn])


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data(), NODES, SIZES)
def test_averages_have_the_formulas_bits_on_all_transports(
    data: st.DataObject, nodes: list[int], sizes: list[int]
) -> None:
    stays = data.draw(st.lists(st.integers(0, len(sizes)), min_size=len(nodes), max_size=len(nodes)))
    with closed_to(data.draw(st.sets(st.integers(1, 3)))):
        check_formula(nodes, sizes, stays)


@pytest.mark.usefixtures("no_memory")
def test_averages_have_the_same_bits_without_shared_memory() -> None:
    check_formula([0, 0, 0], [7, 40000, 1000], [3, 3, 2])


@pytest.mark.parametrize(("usual", "other", "nodes"), [(2, 3, [0, 0, 0]), (40000, 3, [0, 1, 0]), (3, 40000, [0, 1, 1])])
def test_different_sizes_are_an_error_and_the_group_continues(nodes: list[int], usual: int, other: int) -> None:
    def work(group: Group, _: OnNode) -> str:
        for turn in range(2):
            average_of(group, turn, usual)
        with pytest.raises(GroupError) as info:
            average_of(group, 2, other if group.rank == 1 else usual)
        assert average_of(group, 3, usual) == formula(range(3), 3, usual)
        return str(info.value)

    sizes = sorted([(0, usual), (0, other)])
    expected = f"policy 'blue': the workers average different numbers of (scalars, gradient values): {sizes}"
    assert somewhere(work, nodes) == [expected] * 3


def test_long_value_is_sent_as_a_message() -> None:
    def work(group: Group, _: OnNode) -> Any:
        first = group.mean(group.rank)
        shared, pooled = group.broadcast_object(b"x" * 10**5), group.pool(b"y" * 10**5 if group.rank else b"")
        return (
            first,
            len(shared),
            list(map(len, pooled)),
            len(group.gather(b"z" * 10**5) or ()),
            group.maximum(group.rank),
        )

    root, *others = somewhere(work, [0, 0, 1])
    assert root == (1.0, 10**5, [0, 10**5, 10**5], 3, 2.0)
    assert others == [(1.0, 10**5, [0, 10**5, 10**5], 0, 2.0)] * 2


# --- numbers ------------------------------------------------------------------------------------------------------

PARTS = st.lists(arrays_of.arrays(np.float64, st.integers(0, 6), elements=FINITE), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=30)
@given(PARTS, st.sampled_from([0.0, 1e6]))
def test_moments_equal_those_of_the_joined_values(parts: list[np.ndarray[Any, Any]], offset: float) -> None:
    pooled = np.concatenate(parts) + offset
    for found in together(lambda group: group.moments(parts[group.rank] + offset), range(len(parts))):
        assert found.count == pooled.size
        if pooled.size:
            np.testing.assert_allclose(found.mean, pooled.mean(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.std, pooled.std(), rtol=1e-9, atol=1e-9)
        else:
            assert (found.mean, found.std) == (0.0, 0.0)
        assert found.max_count == max(map(len, parts))


@settings(max_examples=30)
@given(st.lists(st.tuples(FINITE, st.floats(0.1, 10)), min_size=1, max_size=4))
def test_means_and_maxima_cover_all_members(parts: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*parts, strict=True))

    def work(group: Group) -> tuple[float, float, float]:
        value, weight = parts[group.rank]
        return group.mean(value), group.mean(value, weight=weight), group.maximum(value)

    for plain, weighted, largest in together(work, range(len(parts))):
        np.testing.assert_allclose(plain, values.mean(), atol=1e-9)
        np.testing.assert_allclose(weighted, np.average(values, weights=weights), atol=1e-9)
        assert largest == values.max()


# --- samples and weights ------------------------------------------------------------------------------------------


def test_gather_gives_samples_in_rank_order_at_the_root_only() -> None:
    def work(group: Group) -> Any:
        return group.gather({"x": np.full(2, group.rank), "y": (group.rank, None)})

    root, *others = together(work, (2, 0, 1))
    assert [(part["x"].tolist(), part["y"]) for part in root] == [([rank] * 2, (rank, None)) for rank in range(3)]
    assert others == [None, None]


def test_broadcast_copies_the_roots_weights_and_buffers() -> None:
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


def test_check_equal_names_members_that_differ_in_one_bit() -> None:
    def work(group: Group) -> None:
        module = network()
        if group.rank == 2:
            weight = next(module.parameters()).detach()
            weight.view(-1)[0] = torch.nextafter(weight.view(-1)[0], torch.tensor(np.inf))
        group.check_equal(module)

    assert errors(work) == ["policy 'blue': the weights of workers [2] differ from those of worker 0"] * 3


# --- leaving ------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_departed_member_is_not_awaited(rounds: list[int]) -> None:
    """Member i takes part in `rounds[i]` collectives and leaves: the root, rank 0, may leave at any time too."""

    def work(group: Group) -> list[float]:
        return [group.mean(float(group.rank)) for _ in range(rounds[group.rank])]

    found = together(work, range(len(rounds)))
    for rank, seen in enumerate(found):
        expected = [
            np.mean([other for other, count in enumerate(rounds) if count > turn]) for turn in range(rounds[rank])
        ]
        assert seen == pytest.approx(expected)


def test_after_the_root_has_left_broadcasts_give_nothing() -> None:
    def work(group: Group) -> Any:
        if group.is_root:
            return None
        module = torch.nn.Linear(1, 1)
        with torch.no_grad():
            module.weight.fill_(float(group.rank))
        group.broadcast(module)
        return module.weight.item(), group.broadcast_object(1), group.gather(1), group.pool(group.rank)

    assert together(work) == [None, (1.0, None, None, [1, 2]), (2.0, None, None, [1, 2])]


TEAMS = ((0, 2), (1,), (3, 4))


@pytest.mark.parametrize("numbers_first", [False, True], ids=["letters", "memory"])
def test_a_team_pools_its_own_samples_in_the_order_of_its_seats(numbers_first: bool) -> None:
    def work(group: Group) -> Any:
        if numbers_first:
            group.mean(1.0)
        mine = np.full(group.rank, group.rank)  # of different lengths
        return group.team, [group.pool_team(mine) for _ in range(2)][1], group.pool(group.rank), group.mean(1.0)

    for rank, (team, parts, whole_group, mean) in enumerate(together(work, range(5), teams=TEAMS)):
        assert rank in team
        assert [part.tolist() for part in parts] == [[other] * other for other in team]
        assert (whole_group, mean) == ([0, 1, 2, 3, 4], 1.0)


def test_team_pools_after_others_and_the_root_have_left() -> None:
    def work(group: Group) -> Any:
        return None if group.rank in (0, 2) else group.pool_team(group.rank)

    assert together(work, range(5), teams=TEAMS) == [None, [1], None, [3, 4], [3, 4]]


def test_incomplete_team_is_an_error() -> None:
    def work(group: Group) -> str | None:
        if group.rank == 3:
            return None
        if group.rank != 4:
            group.pool_team(1)
            return None
        with pytest.raises(GroupError) as info:
            group.pool_team(1)
        return str(info.value)

    *_, said = together(work, range(5), teams=TEAMS)
    assert said is not None
    assert said.endswith("while its team still pools samples: of the workers (3, 4), 1 are left")


# --- mistakes -----------------------------------------------------------------------------------------------------

CALLS: Mapping[str, Callable[[Group], Any]] = {
    "average": lambda group: group.mean(1.0),
    "moments": lambda group: group.moments([1.0]),
    "maximum": lambda group: group.maximum(1.0),
    "gather": lambda group: group.gather(1),
    "pool": lambda group: group.pool(1),
    "team": lambda group: group.pool_team(1),
    "broadcast": lambda group: group.broadcast_object(1),
    "equal": lambda group: group.check_equal(torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(CALLS)))
def test_different_collectives_are_an_error_that_names_them(first: str, second: str) -> None:
    said = errors(lambda group: CALLS[second if group.rank == 1 else first](group))
    expected = (
        f"policy 'blue': the workers called different collectives: worker 0 {first}, worker 1 {second}, "
        f"worker 2 {first}"
    )
    assert said == [expected] * 3


def test_after_the_root_has_left_the_lowest_rank_is_writer() -> None:
    spoken: list[tuple[int, int]] = []

    def member(group: Group) -> None:
        for turn in range(3):
            if turn > group.rank:  # worker 0 leaves after its first turn, worker 1 after its second
                break
            group.mean(1.0)
            if group.is_writer:
                spoken.append((turn, group.rank))

    together(member)
    assert spoken == [(0, 0), (1, 1), (2, 2)]


def test_log_takes_single_numbers_of_any_kind_and_names_others() -> None:
    notes: list[Any] = []
    weight = torch.ones(1, requires_grad=True)

    def work(group: Group) -> None:
        group.log(a=1, b=np.float32(0.5), c=torch.tensor(2.0), d=(3 * weight).sum(), e=np.ones(1))
        with pytest.raises(TypeError, match=r"group.log\(many=...\) got tensor.*; expected one number"):
            group.log(many=torch.ones(2))

    together(work, (0,), notes=notes)
    assert notes == [("log", {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0, "e": 1.0})]
