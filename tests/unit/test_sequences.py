"""Replay of sequences: against a slow record of random games; memories, priorities, what networks find in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.game.infos import StepFields
from fakes import ScriptedEnv, random_rewards, solo_group
from learning_steps import run
from policies.common.nstep import NStepBatch, NStepBuilder, RowLayout, SequenceLayout
from policies.common.replay import Replay
from policies.common.sequences import SequenceReplay, Sequences
from policies.dqn import DQN
from policies.maddpg import MADDPG
from policies.networks.recurrent import RecurrentEncoder
from policies.qmix import QMIX
from policies.sac import SAC
from policies.td3 import TD3

NUMBER = spaces.Box(-1e6, 1e6, (1,), np.float32)
VECTOR, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
LAYOUT = RowLayout(NUMBER, (), torch.int64, 0)
SMALL: dict[str, Any] = {
    **{"recurrent": "lstm", "hidden_size": 5, "sequence_length": 4, "burn_in": 2, "hidden_sizes": (8,)},
    **{"train_every": 4, "learning_starts": 20, "batch_size": 30, "training_intensity": 2.0, "n_step": 2},
}


class Game(NamedTuple):
    """What rows of a random game have seen: chains of points, of which each has a number that no other has."""

    fragments: list[NStepBatch]  # of a builder with sequences
    plain: list[NStepBatch]  # of a builder without
    chains: list[list[int]]  # the points of each row's episodes, in order


def play(seed: int, layout: SequenceLayout, *, ticks: int, rows: int) -> Game:
    """A game in turns; what a row remembers is the number of what it sees, and its negative."""
    rng = np.random.default_rng(seed)
    steps = {"rows": rows, "n_step": layout.n_step, "gamma": 0.5}
    lived, plain = NStepBuilder(LAYOUT, **steps, sequences=layout), NStepBuilder(LAYOUT, **steps)
    count, open_chains = 0, [list[int]() for _ in range(rows)]
    game = Game([], [], [])

    def see() -> tuple[Any, dict[str, Any]]:
        nonlocal count
        seen = np.arange(count, count + rows, dtype=np.float32)[:, None]
        count += rows
        active = rng.random(rows) < 0.8
        for row in np.flatnonzero(active):
            open_chains[row].append(int(seen[row, 0]))
        lived.memory = np.concatenate([seen, -seen], 1)
        return seen, {"active": active}

    first = see()
    for each in (lived, plain):
        each.begin(*first)
    for _ in range(ticks):
        terminated, truncated = (rng.random(rows) < chance for chance in (0.05, 0.1))
        ended, final = terminated | truncated, np.full(rows, None, object)
        for row in np.flatnonzero(ended):
            last = 500_000 + count + row
            final[row] = np.array([last], np.float32)
            if not terminated[row] and open_chains[row]:
                open_chains[row].append(int(last))
            game.chains.append(open_chains[row])
            open_chains[row] = []
        actions, rewards = rng.integers(0, 4, rows), rng.normal(size=rows)
        seen, infos = see()
        infos["final_obs"] = final
        for each in (lived, plain):
            each.add(actions.copy(), seen, rewards, terminated, truncated, infos)
        if rng.random() < 0.3:
            game.fragments.append(lived.cut())
            game.plain.append(plain.cut())
    game.fragments.append(lived.cut())
    game.plain.append(plain.cut())
    game.chains.extend(open_chains)
    return game


def filled(layout: SequenceLayout, game: Game, **options: Any) -> SequenceReplay:
    memory = SequenceReplay(LAYOUT, layout, **{"capacity": 1000, **options})
    for fragment in game.fragments:
        memory.extend(fragment)
    return memory


def drawable(memory: SequenceReplay) -> Any:
    """The origins of all sequences that may be drawn."""
    return np.flatnonzero(memory._sequences.leaves > 0)


def everything(memory: SequenceReplay) -> Sequences:
    """All transitions, by their sequences."""
    origins = drawable(memory)
    return memory._sequences_at(origins, torch.ones(len(origins)), memory.size)


layouts = st.integers(1, 5).flatmap(
    lambda length: st.builds(
        SequenceLayout, st.just(length), st.integers(0, length - 1), st.integers(1, 3), memory_size=st.just(2)
    )
)


@given(seed=st.integers(0, 10**6), layout=layouts, ticks=st.integers(1, 40), rows=st.integers(1, 3))
def test_each_transition_is_in_one_sequence_with_its_burn_in_and_memory(
    seed: int, layout: SequenceLayout, ticks: int, rows: int
) -> None:
    game = play(seed, layout, ticks=ticks, rows=rows)
    memory, plain = filled(layout, game), Replay(LAYOUT, capacity=1000)
    for fragment in game.plain:
        plain.extend(fragment)
    stored = plain._at(torch.from_numpy(np.flatnonzero(plain._complete)), torch.ones(plain.size))
    columns = stored.observations[0][:, 0], stored.actions, stored.rewards, stored.discounts
    following = stored.next_observations[0][:, 0].tolist()
    expected = {row[0]: (*row, then) for *row, then in zip(*(one.tolist() for one in columns), following, strict=True)}
    batch = everything(memory)
    seen = batch.observations[0][:, 0]
    columns = seen[batch.places], batch.actions, batch.rewards, batch.discounts
    following = seen[batch.followings].tolist()
    found = {row[0]: (*row, then) for *row, then in zip(*(one.tolist() for one in columns), following, strict=True)}
    assert batch.size == len(found) == len(expected) == memory.size == plain.size
    for begin, (*transition, then) in found.items():
        assert transition == list(expected[begin][:-1])
        assert then == expected[begin][-1] or transition[-1] == 0.0
    # Sequences are runs of an episode that begin at every `length`-th point, after `burn_in` of those before.
    begins = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    burned = dict(zip(batch.burned.tolist(), range(len(batch.burned)), strict=True))
    for number, (begin, length) in enumerate(zip(begins, batch.lengths.tolist(), strict=True)):
        points = seen[begin : begin + length].long().tolist()
        chain = next(one for one in game.chains if points[0] in one)
        place = chain.index(points[0])
        assert place % layout.length == 0
        assert points == chain[place : place + length]
        before = [] if number not in burned else batch.burn_in[0][burned[number], :, 0].long().tolist()
        assert before == (chain[place - layout.burn_in : place] if place else [])
        origin = [*before, *points][0]
        assert batch.memories[number].tolist() == [origin, -origin]


@given(seed=st.integers(0, 10**6), layout=layouts, capacity=st.integers(10, 60))
def test_full_ring_keeps_whole_sequences_and_its_state(seed: int, layout: SequenceLayout, capacity: int) -> None:
    game = play(seed, layout, ticks=60, rows=2)
    memory = filled(layout, game, capacity=capacity, alpha=0.7)
    batch = memory.sample(50, torch.Generator().manual_seed(seed))
    chains = {point: (chain, place) for chain in game.chains for place, point in enumerate(chain)}
    seen = batch.observations[0][:, 0].long()
    for place, then in zip(batch.places.tolist(), batch.followings.tolist(), strict=True):
        chain, number = chains[int(seen[place])]
        assert int(seen[then]) in chain[number : number + layout.n_step + 1]
    for number, burn_in in zip(batch.burned.tolist(), batch.burn_in[0].long().tolist(), strict=True):
        first = int(seen[int(batch.lengths[:number].sum())])
        chain, place = chains[first]
        assert [one for (one,) in burn_in] == chain[place - layout.burn_in : place]
    if batch.size:
        memory.update_priorities(batch.indices, torch.rand(batch.size))
    copy = SequenceReplay(LAYOUT, layout, capacity=capacity, alpha=0.7)
    copy.load_state_dict(memory.state_dict())
    assert np.array_equal(np.sort(copy._sequences.leaves), np.sort(memory._sequences.leaves))
    again = [one.sample(50, torch.Generator().manual_seed(1)) for one in (memory, copy)]
    assert (again[0].size, memory.size, memory.added) == (again[1].size, copy.size, copy.added)


def test_a_minibatch_has_as_many_transitions_as_are_asked_for() -> None:
    layout = SequenceLayout(4, 2, 2, 2)
    memory = filled(layout, play(3, layout, ticks=60, rows=3))
    for n in (1, 4, 5, 63):
        batch = memory.sample(n, torch.Generator().manual_seed(n))
        assert batch.size == n == len(batch.places) == len(batch.weights)
    assert SequenceReplay(LAYOUT, layout, capacity=9).sample(5, torch.Generator()).size == 0


def test_cut_sequences_are_not_those_of_the_highest_slots() -> None:
    layout = SequenceLayout(4, 2, 1, 2)
    memory, draw = filled(layout, play(3, layout, ticks=60, rows=3)), torch.Generator().manual_seed(0)
    middle = np.median(drawable(memory))
    minibatches = [memory.sample(5, draw).indices.numpy() for _ in range(2000)]
    stored = everything(memory).indices.numpy()
    assert np.mean(np.concatenate(minibatches) > middle) == pytest.approx(np.mean(stored > middle), abs=0.03)


def test_priorities_are_those_of_the_paper() -> None:
    layout = SequenceLayout(4, 2, 1, 2)
    memory = filled(layout, play(3, layout, ticks=60, rows=3), alpha=0.5, epsilon=0.0)
    batch, draw = everything(memory), torch.Generator().manual_seed(0)
    errors = torch.randn(batch.size, generator=draw)
    memory.update_priorities(batch.indices, errors)
    expected = {}
    for origin in batch.indices.unique().tolist():
        mine = errors[batch.indices == origin].abs()
        expected[origin] = float(0.9 * mine.max() + 0.1 * mine.mean()) ** 0.5
    assert memory._sequences.leaves[list(expected)] == pytest.approx(list(expected.values()), rel=1e-6)
    total, least = sum(expected.values()), min(expected.values())
    drawn = memory.sample(8000, draw, beta=0.4)
    weights = [(least / expected[origin]) ** 0.4 for origin in drawn.indices.tolist()]
    assert drawn.weights.tolist() == pytest.approx(weights, rel=1e-5)
    learned = batch.indices.bincount(minlength=1000)
    for origin, priority in expected.items():
        share = int((drawn.indices == origin).sum()) / int(learned[origin]) / len(drawn.lengths)
        assert share == pytest.approx(priority / total, abs=0.02)


def test_void_transition_ends_a_chain_but_not_the_memory() -> None:
    lived = NStepBuilder(LAYOUT, rows=1, n_step=1, gamma=0.5, sequences=SequenceLayout(4, 2, 1, 1))
    over = np.zeros(1, np.bool_)
    lived.memory = np.zeros((1, 1), np.float32)
    lived.begin(np.zeros((1, 1)), StepFields(void=over))
    for tick in range(1, 4):
        lived.memory = np.full((1, 1), float(tick), np.float32)
        lived.add(np.zeros(1, np.int64), np.full((1, 1), tick), over, over, over, StepFields(void=over | (tick == 2)))
    points = lived.cut().sequences
    assert points is not None
    assert points.previous.tolist() == [-1, 0, -1, 2]
    assert (points.firsts.tolist(), points.origins.tolist(), points.memories[:, 0].tolist()) == ([0, 2], [0, 2], [0, 2])


# ------------------------------------------------------------------------------------------------------- the networks


def trained(kind: Any, actions: Any, **options: Any) -> Any:
    env = ScriptedEnv(VECTOR, actions, rows=3, ticks=60, length=11, reward=random_rewards(0))
    learner = kind(env, solo_group(), ticks=env.ticks, **{**SMALL, **options})
    with torch.no_grad():
        for weight in learner.network.parameters():
            weight.mul_(2)  # what is remembered matters
    return run(learner)


BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_features_equal_those_of_whole_episodes_with_the_weights_that_played(recurrent: str) -> None:
    dqn = trained(DQN, CHOICE, learning_rate=0.0, recurrent=recurrent)
    batch, encoder = everything(dqn.replay), dqn.network.encoder
    assert len(batch.burned) > 3
    with torch.no_grad():
        found, after = batch.all_features(encoder)
        ticked = {}
        for number in range(len(batch.lengths)):  # all sequences of an episode, from its first
            begin = int(batch.lengths[:number].sum())
            for point in batch.observations[0][begin : begin + int(batch.lengths[number])]:
                ticked[tuple(point.tolist())] = None
        replay = dqn.replay
        heads = np.setdiff1d(np.flatnonzero(replay._complete), replay._next[replay._next >= 0])
        for head in heads.tolist():
            memory, slot = torch.zeros(1, dqn.memory_size), head
            while slot >= 0:
                leaf = replay._points.leaves[0][slot][None]
                features, memory = encoder.ticked([leaf, memory])
                ticked[tuple(leaf[0].tolist())] = features[0]
                slot = int(replay._next[slot])
    for places, features in ((batch.places, found), (batch.followings, after)):
        expected = torch.stack([ticked[tuple(point.tolist())] for point in batch.observations[0][places]])
        torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)
        assert features.std() > 0.05


def test_burn_in_uses_the_weights_of_now_and_has_no_gradient() -> None:
    dqn = trained(DQN, CHOICE)
    batch = everything(dqn.replay)
    assert len(batch.burned)

    def loss(burn_in: Any) -> Any:
        found = batch.replace(burn_in=burn_in).features(dqn.network.encoder)
        return found.square().sum()

    leaf = batch.burn_in[0].clone().requires_grad_()
    assert torch.autograd.grad(loss((leaf,)), leaf, allow_unused=True)[0] is None
    assert not torch.equal(loss((leaf,)), loss((leaf.detach() + 1,)))
    first = batch.observations[0].clone().requires_grad_()
    gradient = torch.autograd.grad(batch.replace(observations=(first,)).features(dqn.network.encoder).sum(), first)[0]
    assert gradient[batch.places].abs().sum(1).min() > 0


@pytest.mark.parametrize(("kind", "actions"), [(SAC, BOX), (SAC, CHOICE), (TD3, BOX)])
def test_actor_and_critics_have_memories_of_their_own(kind: Any, actions: Any) -> None:
    learner = trained(kind, actions)
    network = learner.network
    critics, actor = network.critics.encoder, network.actor.encoder
    assert isinstance(critics, RecurrentEncoder)
    assert critics.memory_size + actor.memory_size == learner.memory_size
    leaves = [torch.rand(4, 3), torch.rand(4, learner.memory_size)]
    with torch.no_grad():
        outputs, after = network(leaves), network.remember(leaves)
        half = critics.memory_size
        for disturbed, changes in ((slice(0, half), False), (slice(half, None), True)):
            other = [leaves[0], leaves[1].clone()]
            other[1][:, disturbed] = 0.5
            assert torch.equal(network(other), outputs) != changes
            now = network.remember(other)
            kept = slice(half, None) if disturbed.start == 0 else slice(0, half)
            assert torch.equal(now[:, kept], after[:, kept])
            assert not torch.equal(now[:, disturbed], after[:, disturbed])


@pytest.mark.parametrize(("kind", "actions"), [(DQN, CHOICE), (SAC, BOX), (SAC, CHOICE), (TD3, BOX)])
def test_losses_move_all_weights(kind: Any, actions: Any) -> None:
    learner = trained(kind, actions)
    batch = learner.replay.sample(60, torch.Generator().manual_seed(0))
    learner.gradient_steps = 1  # TD3's actor is due
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    learner.backward(batch)
    still = [name for name, weight in learner.network.named_parameters() if not weight.grad.abs().sum() > 0]
    assert still == []


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recurrent": "lstm", "burn_in": 16}, "got 16, expected less than sequence_length, 16"),
        ({"recurrent": "gru", "sequence_length": 8}, "got 8, expected less than sequence_length, 8"),
        ({"burn_in": 4}, "burn_in has no effect where recurrent is null"),
    ],
)
@pytest.mark.parametrize("kind", [DQN, MADDPG, QMIX])
def test_options_that_contradict_each_other_are_refused(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        kind.Options(**options)
    assert caught.value.path == "options.burn_in"


@pytest.mark.parametrize("kind", [DQN, MADDPG, QMIX])
def test_sequences_longer_than_any_episode_are_refused(kind: Any) -> None:
    options = {"recurrent": "lstm", "sequence_length": 3000, "learning_starts": 10}
    with pytest.raises(ConfigError, match="no episode of a run of 2000 ticks has 3000 transitions") as caught:
        kind.sizes(options, rows=1, ticks=2000, workers=1)
    assert caught.value.path == "options.sequence_length"
