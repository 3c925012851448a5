"""Kuhn and Leduc poker: two players bet in turns on hidden cards. The values and equilibria of Kuhn poker are known.

| | Kuhn (1950) | Leduc (Southey et al. 2005) |
|---|---|---|
| cards | J, Q, K | J, Q, K, each twice |
| each pays before the deal | 1 | 1 |
| rounds of bets | 1; a bet is 1 | 2; a bet is 2 in the first, 4 in the second, before which a public card is dealt |
| bets and raises of a round | 1 | 2 |
| best hand | the higher card | the card that pairs the public one, else the higher card |

`player_0` moves first in each round. Its moves are fold, call (check where there is nothing to call) and raise (bet
likewise); fold is masked where there is nothing to call, raise where the round has all its bets. A raise pays what the
other player is ahead, and the bet. A round ends with a call that is not its first move. Who folds loses what it has
paid; after the last round the better hand wins what the other one has paid, and equal hands win nothing. Rewards, in
chips, come at the end.

    Kuhn    value -1/18 for player_0. In its equilibria player_0 bets J with the chance a in [0, 1/3] and K with 3 a,
            and calls with Q with a + 1/3; player_1 calls with Q with 1/3 and bets J with 1/3 (K: always).
    Leduc   value about -0.0856 for player_0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena.game.api import Flags, Frame, Interface, ResetOptions, Seeds, Step
from arena.game.tree import Chance, Decision, End, Node
from envs.common import options
from envs.common.drawing import BLUE, GRAY, INK, RED, Board, Mark
from envs.common.lanes import Lanes

FOLD, CALL, RAISE = range(3)
MOVES: Final = ["fold", "call", "raise"]
RANKS: Final = "JQK"


class Rules(NamedTuple):
    """What distinguishes the games."""

    suits: int  # cards of each rank
    bets: tuple[int, ...]  # per round the chips of a bet
    raises: int  # bets and raises of a round


GAMES: Final[Mapping[str, Rules]] = {"kuhn": Rules(1, (1,), 1), "leduc": Rules(2, (2, 4), 2)}


class Bets(NamedTuple):
    """The moves so far, round by round, and what they have cost; the cards are no part of it."""

    moves: tuple[tuple[int, ...], ...] = ((),)
    paid: tuple[int, int] = (1, 1)
    folded: int = -1  # the player that has; -1: none
    over: bool = False

    @property
    def player(self) -> int:
        """The player whose turn it is."""
        return len(self.moves[-1]) % 2

    def allowed(self, rules: Rules) -> list[int]:
        """The moves that may be made; none where it is over."""
        if self.over:
            return []
        behind, raised = self.paid[self.player] < self.paid[1 - self.player], self.moves[-1].count(RAISE)
        return [move for move in range(3) if (move != FOLD or behind) and (move != RAISE or raised < rules.raises)]

    def after(self, move: int, rules: Rules) -> Bets:
        """What follows a move that is allowed."""
        me, moves = self.player, (*self.moves[:-1], (*self.moves[-1], move))
        if move == FOLD:
            return Bets(moves, self.paid, me, True)
        amount = max(self.paid) + (rules.bets[len(moves) - 1] if move == RAISE else 0)
        paid = (amount, self.paid[1]) if me == 0 else (self.paid[0], amount)
        if move == RAISE or len(moves[-1]) == 1:
            return Bets(moves, paid)
        return Bets(moves, paid, over=True) if len(moves) == len(rules.bets) else Bets((*moves, ()), paid)


class Poker(Lanes):
    """Kuhn or Leduc poker, all lanes computed together.

    Entities: `player_0`, `player_1`, who move in turns; actions: Discrete(3), fold, call, raise, with a mask. The
    observation of a player is float32 [10] (Kuhn) or [23] (Leduc), 0 or 1: whether it is `player_0`; its card as
    one-hot; in Leduc the public card, zeros before it is dealt; then for every move that a round can have two numbers,
    whether it was a call and whether it was a raise. It holds all that the player has seen, so memory is not needed.

    Args:
        lanes: games that step together.
        game: `kuhn` or `leduc`.
        render_mode: `rgb_array` or `ansi`, a text.

    Raises:
        ConfigError: an option with a value that is not allowed.
    """

    def __init__(self, *, lanes: int, game: str = "kuhn", render_mode: str = "rgb_array") -> None:
        self.rules = GAMES[options.choice("game", game, tuple(GAMES))]
        rounds, most = len(self.rules.bets), self.rules.raises + 2  # moves of a round
        super().__init__(lanes, rounds * most + 1, render_mode)
        seen = [f"round {place + 1} move {move + 1}" for place in range(rounds) for move in range(most)]
        names = [f"{whose} {rank}" for whose in ("own", "public")[:rounds] for rank in RANKS]
        self.metadata = {
            **self.metadata,
            "actions": MOVES,
            "observations": ["moves first", *names, *(f"{one} {word}" for one in seen for word in ("call", "raise"))],
            "keys": {"f": "fold", "c": "call", "r": "raise"},
        }
        self.interface = Interface(
            entities=("player_0", "player_1"),
            observation_spaces=(spaces.Box(0.0, 1.0, (len(self.metadata["observations"]),), np.float32),) * 2,
            action_spaces=(spaces.Discrete(3),) * 2,
            mask_sizes=(3, 3),
            colors=(BLUE, RED),
            outcome="zero_sum",
            in_turns=True,
        )
        self._bets = [Bets()]  # all states S of the bets, each before those that follow from it
        for bets in self._bets:
            self._bets += [bets.after(move, self.rules) for move in bets.allowed(self.rules)]
        allowed = [bets.allowed(self.rules) for bets in self._bets]
        self._masks = np.array([[move in moves for move in range(3)] for moves in allowed], np.int8)  # [S, 3]
        place = {bets: number for number, bets in enumerate(self._bets)}
        self._next = np.array(  # [S, 3]; a masked move is a call, and nothing follows the end
            [
                [place[bets.after(move if move in moves else CALL, self.rules)] if moves else -1 for move in range(3)]
                for bets, moves in zip(self._bets, allowed, strict=True)
            ]
        )
        self._player = np.array([-1 if bets.over else bets.player for bets in self._bets])  # [S]; -1: it is over
        self._public = np.array([len(bets.moves) > 1 for bets in self._bets])  # [S] whether the public card is there
        self._folded = np.array([{-1: 0, 0: -1, 1: 1}[bets.folded] for bets in self._bets])  # [S] who wins by it
        self._stake = np.array([min(bets.paid) for bets in self._bets])  # [S] what the loser has paid
        self._seen = np.zeros((len(self._bets), rounds, most, 2), np.float32)
        for number, bets in enumerate(self._bets):
            for round_number, moves in enumerate(bets.moves):
                for at, move in enumerate(moves):
                    if move != FOLD:
                        self._seen[number, round_number, at, move - CALL] = 1.0
        self.state = np.zeros(self.lanes, np.int64)  # [L] of the bets
        self.cards = np.zeros((self.lanes, 3), np.int64)  # [L, 3] ranks: of both players, and the public card

    def reset(self, lanes: Flags, seeds: Seeds = None, options: ResetOptions = None) -> Frame:
        """Deals new cards in these lanes; `options` are not used."""
        deck = np.repeat(np.arange(len(RANKS)), self.rules.suits)
        for lane, stream in self.begin(lanes, seeds):
            self.cards[lane] = stream.permutation(deck)[:3]
        self.state[lanes] = 0
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        """One move of the player whose turn it is; `actions[e]` is int [L]. A masked move is a call."""
        played = self.playing
        chosen = np.where(self._player[self.state] == 1, actions[1], actions[0])
        self.state = np.where(played, self._next[self.state, np.clip(np.where(played, chosen, CALL), 0, 2)], self.state)
        over, _ = self.end(self._player[self.state] < 0)
        won = np.where(over, self._won(self.state, self.cards), 0).astype(np.float64)
        return Step(self._frame(), np.stack([won, -won + 0.0], axis=1), self.for_all(over), self.for_all(over & False))

    def _won(self, state: NDArray[np.int64], cards: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chips [N] that player_0 wins where the bets are over, from states [N] and cards [N, 3]."""
        hands = cards[:, :2] + len(RANKS) * ((cards[:, :2] == cards[:, 2:]) & self._public[state, None])
        folded = self._folded[state]
        won: NDArray[np.int64] = np.where(folded != 0, folded, np.sign(hands[:, 0] - hands[:, 1])) * self._stake[state]
        return won

    def _observed(self, player: int, state: NDArray[np.int64], cards: NDArray[np.int64]) -> NDArray[np.float32]:
        """What a player sees [N, length] in states [N] of the bets with cards [N, 3]."""
        one_hot = np.eye(len(RANKS), dtype=np.float32)
        parts = [np.full((len(state), 1), player == 0, np.float32), one_hot[cards[:, player]]]
        if len(self.rules.bets) > 1:
            parts.append(one_hot[cards[:, 2]] * self._public[state, None])
        return np.concatenate([*parts, self._seen[state].reshape(len(state), -1)], axis=1, dtype=np.float32)

    def _frame(self) -> Frame:
        turn = np.where(self.playing, self._player[self.state], -1)
        active = turn[:, None] == np.arange(2)
        masks = [np.where(active[:, player, None], self._masks[self.state], 1).astype(np.int8) for player in (0, 1)]
        return Frame([self._observed(player, self.state, self.cards) for player in (0, 1)], active, masks)

    def tree(self) -> Node:
        """The whole game, see `arena.game.tree`."""
        deck = [rank for rank in range(len(RANKS)) for _ in range(self.rules.suits)]
        deals = list(permutations(range(len(deck)), 3))
        parts = {bets: number for number, bets in enumerate(self._bets)}

        def node(bets: Bets, dealt: Sequence[tuple[int, ...]]) -> Node:
            """The game from here; `dealt` are the deals that are possible, all alike until the public card."""
            state, cards = np.array([parts[bets]]), np.array([[deck[card] for card in dealt[0]]])
            if bets.over:
                won = float(self._won(state, cards)[0])
                return End((won, -won + 0.0))
            if bets.moves[-1] == () and len(bets.moves) > 1 and len(dealt) > 1:
                return Chance(tuple((1 / len(dealt), node(bets, [deal])) for deal in dealt))
            return Decision(
                bets.player,
                self._observed(bets.player, state, cards)[0],
                self._masks[state[0]],
                {move: node(bets.after(move, self.rules), dealt) for move in bets.allowed(self.rules)},
            )

        hands = list(permutations(range(len(deck)), 2))
        return Chance(
            tuple((1 / len(hands), node(Bets(), [deal for deal in deals if deal[:2] == hand])) for hand in hands)
        )

    def board(self) -> Board:
        """The cards, the public one last, what the players have paid, and the moves, round by round.

        The largest card, and the star, are those of the player whose turn it is; the card of who has folded is gray.
        """
        bets, marks = self._bets[int(self.state[0])], []
        for place, name in enumerate(("player_0", "player_1", "public")[: 1 + len(self.rules.bets)]):
            rank = RANKS[self.cards[0, place]] if place < 2 or self._public[self.state[0]] else "-"
            turn, color = not bets.over and place == bets.player, (BLUE, RED, INK)[place]
            text, size = f"{name}{'*' * turn} {rank}", 0.45 if turn else 0.38
            marks.append(Mark(place, 0, GRAY if place == bets.folded else color, text, rank, "box", size))
        lines = [f"player_{at}: paid {paid}{', folded' * (at == bets.folded)}" for at, paid in enumerate(bets.paid)]
        moves = "; ".join(", ".join(MOVES[move] for move in made) for made in bets.moves)
        return Board(len(marks), 1, marks, [*lines, f"moves: {moves}"], (212, 432 / len(marks)))
