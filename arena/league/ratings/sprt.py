"""Is A better than B by d Elo? A sequential probability ratio test, which may be asked after every game.

    H0: A is at most as strong as B        H1: A is at least d Elo stronger

The test is on the decided games, and is not changed by draws. Its bounds, 1 / alpha and beta, hold however often one
looks (Wald 1945, Ville 1939; docs/statistics.md). But every game has to count, from the first one on: to forget the
oldest is to begin one test after another, each with another chance to be wrong. And if one side of the game is better
than the other, A has to have both equally often: see `snapshots.balanced`.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from arena.config.league import Gate
from arena.league.results import Score


class Verdict(Enum):
    """What a test says."""

    BETTER = "better"
    NOT_BETTER = "not_better"
    OPEN = "open"


class State(NamedTuple):
    """The state of a test after some games."""

    verdict: Verdict
    llr: float  # the log of the likelihood of H1 over that of H0, in nats


def expected_games(gate: Gate) -> float:
    """How many decided games the test of a gate takes on average where A is better by just `elo`.

    Wald's approximation (1945), which ignores by how much a bound is exceeded.
    """
    edge = math.tanh(gate.elo * math.log(10) / 800)  # A's wins minus its losses, of a decided game
    lost = (1 - edge) * math.log1p(-edge) if edge < 1 else 0.0
    gain = max(((1 + edge) * math.log1p(edge) + lost) / 2, edge**2 / 2)  # of the ratio; it is never less than that
    missed = gate.beta * (1 - gate.alpha) / (1 - gate.alpha * gate.beta)  # the probability of `NOT_BETTER`
    return (missed * math.log(gate.beta) - (1 - missed) * math.log(gate.alpha)) / gain


def state(gate: Gate, score: Score) -> State:
    """The state of the test of a gate after these games of A, the first side of the score, against B.

    Of a player that is better by more than 0 and less than `elo` either verdict may come.
    """
    won = 1 / (1 + 10 ** (-gate.elo / 400))
    llr = score.wins * math.log(2 * won) + score.losses * math.log(2 * (1 - won))
    if llr >= -math.log(gate.alpha):
        return State(Verdict.BETTER, llr)
    return State(Verdict.NOT_BETTER if llr <= math.log(gate.beta) else Verdict.OPEN, llr)
