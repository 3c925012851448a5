"""Leagues: which players are best, and how certain that is. For the root of a league and readers of its run folder.

What is known
    results, read_results   who has won against whom; the same, from a run folder
    timeline                the games by ticks, with snapshots, resets and copies
    ratings/                strengths with intervals: `davidson` (draws), `whole_history` (policies that learn),
                            `standings` (tables), `contradictions` (pairs whose games contradict the order)
    metagame/               players as strategies: `payoff`, `equilibrium`, `nash_averaging`, `alpha_rank`
    exploitability          what can be won from a policy
    knockouts               the winners of the knockouts of a run

What to do next
    next_round, rounds      the next round; rounds as data
    matchmaking, snapshots  the opponents of a learner; which past selves it may meet
    pairings                knockouts and Swiss
    custom, view            rules and generators of a user's own
    population              copies of the best
    populations             two populations that only meet each other
    ratings/sprt            is A better than B by d Elo
    ratings/ranking         which pair to play, is the order decided
    tournament              batches until it is
    rng                     random streams

Nothing here imports MPI or torch. Modules that compute import scipy, which is slow; results and read_results do not.
"""

from arena.league.view import LeagueView

__all__ = ["LeagueView"]
