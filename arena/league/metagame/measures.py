"""The meta-game of a run: who is shown in its payoff matrix, and the measures of each of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from arena.league.metagame.alpha_rank import alpha_rank_with_uncertainty
from arena.league.metagame.nash_averaging import nash_average_with_uncertainty
from arena.league.metagame.payoff import Payoff
from arena.league.metagame.posterior import Estimate
from arena.league.ratings.ratings import Interval

MOST_IN_MATRIX = 24  # players: more cells than 24 x 24 are not readable
SAMPLES = 200  # of the payoffs' posterior


class Measures(msgspec.Struct, frozen=True):
    """The measures of a player; each with its 95 % interval over the posterior of the payoffs.

    Args:
        player: its name.
        nash: its probability in the equilibrium of largest entropy.
        skill: its expected score against that equilibrium, minus that of a draw.
        alpha_rank: its mass in the stationary distribution.
    """

    player: str
    nash: Interval
    skill: Interval
    alpha_rank: Interval


def in_matrix(order: Sequence[str], policies: Collection[str]) -> list[str]:
    """The players of the matrix: the leader, the configured policies, then the strongest snapshots; best first.

    Args:
        order: all players, the best first.
        policies: of the configuration.
    """
    first = sorted(order, key=lambda player: (player != order[0], player not in policies))
    chosen = {*first[:MOST_IN_MATRIX]}
    return [player for player in order if player in chosen]


def measures(scores: Payoff) -> list[Measures]:
    """The measures of all players of a payoff matrix; the same for the same matrix."""
    samples = scores.sample(np.random.default_rng(0), SAMPLES)
    nash, ranks = nash_average_with_uncertainty(samples), alpha_rank_with_uncertainty(samples)
    return [
        Measures(player, _of(nash.strategy, i), _of(nash.skill, i, less=0.5), _of(ranks, i))
        for i, player in enumerate(scores.players)
    ]


def _of(estimate: Estimate, player: int, *, less: float = 0.0) -> Interval:
    return Interval(*(float(values[player]) - less for values in estimate))
