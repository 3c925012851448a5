"""Kuhn and Leduc poker: moves written by hand, the tree, and exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.game.tree import Chance, Decision, End, Node
from arena.league.best_response import GameTree, Strategy
from arena.testing import check_batched_env
from envs.poker import CALL, FOLD, GAMES, RAISE, Poker

J, Q, K = range(3)


def tree_of(game: str) -> GameTree:
    return GameTree(Poker(lanes=1, game=game).tree(), (3, 3))


def played(game: str, cards: list[int], *moves: int) -> tuple[list[float], Poker]:
    """The rewards after moves in turn, and the game."""
    env = Poker(lanes=2, game=game)
    env.reset(np.ones(2, bool), [1, 2])
    env.cards[:] = cards
    for move in moves[:-1]:
        assert not env.step([np.full(2, move)] * 2).rewards.any()
    step = env.step([np.full(2, moves[-1])] * 2)
    assert step.terminated.all()
    return step.rewards[0].tolist(), env


def kuhn(tree: GameTree, a: float) -> tuple[Strategy, Strategy]:
    """The equilibrium of Kuhn poker in which player_0 bets a jack with the chance `a`."""
    bets = {(0, J): a, (0, Q): 0.0, (0, K): 3 * a, (1, J): 1 / 3, (1, Q): 0.0, (1, K): 1.0}
    calls = {(0, J): 0.0, (0, Q): a + 1 / 3, (0, K): 1.0, (1, J): 0.0, (1, Q): 1 / 3, (1, K): 1.0}
    found = []
    for player in (0, 1):
        rows = np.zeros((6, 3))
        for row, one in zip(rows, tree.sets[player], strict=True):
            card = int(one.observation[1:4].argmax())
            if one.mask[FOLD]:
                row[CALL], row[FOLD] = calls[player, card], 1 - calls[player, card]
            else:
                row[RAISE], row[CALL] = bets[player, card], 1 - bets[player, card]
        found.append(rows)
    return found[0], found[1]


def dealt(node: Node) -> list[Node]:
    """What follows a random event; of other nodes the node itself."""
    return [one for _, one in node.outcomes] if isinstance(node, Chance) else [node]


@pytest.mark.parametrize("game", GAMES)
def test_poker_keeps_the_contract_of_games(game: str) -> None:
    check_batched_env(Poker(lanes=4, game=game))


@pytest.mark.parametrize(
    ("game", "cards", "moves", "expected"),
    [
        ("kuhn", [K, Q, J], [CALL, CALL], 1),
        ("kuhn", [Q, K, J], [RAISE, CALL], -2),
        ("kuhn", [J, K, Q], [RAISE, FOLD], 1),
        ("kuhn", [K, J, Q], [CALL, RAISE, FOLD], -1),
        ("kuhn", [K, J, Q], [CALL, RAISE, CALL], 2),
        ("leduc", [J, K, J], [CALL, CALL, CALL, CALL], 1),  # a pair is better than the higher card
        ("leduc", [Q, Q, K], [RAISE, RAISE, CALL, RAISE, RAISE, CALL], 0),
        ("leduc", [Q, K, K], [RAISE, RAISE, CALL, RAISE, RAISE, CALL], -13),
        ("leduc", [Q, K, J], [RAISE, RAISE, CALL, RAISE, FOLD], 5),
        ("leduc", [K, J, Q], [CALL, RAISE, FOLD], -1),
    ],
)
def test_moves_by_hand_pay_what_the_rules_say(game: str, cards: list[int], moves: list[int], expected: int) -> None:
    assert played(game, cards, *moves)[0] == [expected, -expected]


def test_the_public_card_is_hidden_until_the_second_round() -> None:
    env = Poker(lanes=1, game="leduc")
    env.reset(np.ones(1, bool), [1])
    env.cards[:] = [[J, Q, K]]
    seen = []
    for _ in range(3):
        frame = env.step([np.array([CALL])] * 2).frame
        seen.append([frame.observations[player][0, 1:7].tolist() for player in (0, 1)])
    assert seen[0] == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert seen[1] == [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 1]]


def test_a_masked_move_is_a_call() -> None:
    env = Poker(lanes=1)
    env.reset(np.ones(1, bool), [1])
    env.step([np.array([FOLD])] * 2)
    assert "moves: call" in env.board().text()


@pytest.mark.parametrize("game", GAMES)
def test_random_games_follow_the_tree(game: str) -> None:
    env, rng = Poker(lanes=1, game=game), np.random.default_rng(0)
    root = env.tree()
    for number in range(200):
        frame, nodes = env.reset(np.ones(1, bool), [number]), dealt(root)
        while True:
            me = int(frame.active[0].argmax())
            nodes = [
                one
                for at in nodes
                for one in ([at] if isinstance(at, Decision) else dealt(at))
                if isinstance(one, Decision)
                and one.entity == me
                and np.array_equal(one.observation, frame.observations[me][0])
                and np.array_equal(one.mask, frame.masks[me][0])
            ]
            assert nodes, "the game is in no node of the tree"
            move = int(rng.choice(np.flatnonzero(frame.masks[me][0])))
            step, nodes = env.step([np.array([move])] * 2), [one.moves[move] for one in nodes]
            if step.terminated.any():
                ends = {one.returns for one in nodes if isinstance(one, End)}
                assert tuple(step.rewards[0]) in ends
                break
            frame = step.frame


def test_uniform_play_has_the_published_exploitability() -> None:
    """OpenSpiel's NashConv of the uniform policy: 11/12 for Kuhn poker, 4.747222 for Leduc poker."""
    for game, expected in (("kuhn", 11 / 12), ("leduc", 4.747222)):
        tree = tree_of(game)
        assert tree.nash_conv([tree.uniform(0), tree.uniform(1)]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("a", [0, 0.1, 1 / 3])
def test_equilibria_of_kuhn_poker_have_the_value_and_no_exploitability(a: float) -> None:
    tree = tree_of("kuhn")
    profile = kuhn(tree, a)
    assert tree.returns(profile) == pytest.approx((-1 / 18, 1 / 18))
    assert tree.nash_conv(profile) == pytest.approx(0, abs=1e-12)


def test_who_never_bluffs_is_exploitable() -> None:
    tree = tree_of("kuhn")
    never = kuhn(tree, 0.0)[1].copy()
    for row, one in zip(never, tree.sets[1], strict=True):
        if one.observation[1] and not one.mask[FOLD]:
            row[:] = 0, 1, 0  # player_1 never bluffs: player_0 folds Q to every bet, and wins more
    assert tree.best_response([kuhn(tree, 0.0)[0], never], 0) > -1 / 18 + 0.01


def test_mean_strategy_earns_the_mean_against_anything() -> None:
    tree, rng = tree_of("leduc"), np.random.default_rng(0)

    def drawn(entity: int) -> Strategy:
        chances = rng.random((len(tree.sets[entity]), 3)) ** 4 * tree.uniform(entity)
        return chances / chances.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]

    first, second, other = drawn(0), drawn(0), drawn(1)
    mixed = tree.mean(0, [(0.3, first), (0.7, second)])
    np.testing.assert_allclose(mixed.sum(axis=1), 1)
    expected = 0.3 * tree.returns([first, other])[0] + 0.7 * tree.returns([second, other])[0]
    assert tree.returns([mixed, other])[0] == pytest.approx(expected)
    behavioral = tree.returns([0.3 * first + 0.7 * second, other])[0]
    assert behavioral != pytest.approx(expected), "else the weights of reach are not tested"


def test_best_response_is_the_best_of_all_pure_strategies() -> None:
    tree, rng = tree_of("kuhn"), np.random.default_rng(1)
    chances = rng.random((6, 3)) * tree.uniform(0)
    profile = [chances / chances.sum(axis=1, keepdims=True), tree.uniform(1)]
    moves = [np.flatnonzero(one.mask) for one in tree.sets[1]]
    returns = []
    for picks in np.ndindex(*(len(one) for one in moves)):
        pure = np.zeros((6, 3))
        pure[range(6), [one[at] for one, at in zip(moves, picks, strict=True)]] = 1
        returns.append(tree.returns([profile[0], pure])[1])
    assert tree.best_response(profile, 1) == pytest.approx(max(returns))


def test_observations_that_forget_are_refused() -> None:
    last = Decision(0, np.zeros(1), None, {0: End((0.0,)), 1: End((1.0,))})
    root = Decision(0, np.ones(1), None, {0: last, 1: last})
    with pytest.raises(ConfigError, match="observations that hold all that an entity has seen and done"):
        GameTree(root, (2,))


@pytest.mark.parametrize("kwargs", [{"game": "texas"}, {"render_mode": "human"}])
def test_wrong_options_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="known: "):
        Poker(lanes=1, **kwargs)
