"""Leagues: which players are best, and how certain that is. For the root of a league and readers of its run folder.

What is known
    results, read_results   who has won against whom; the same, from a run folder
    timeline                the games by ticks, with snapshots, resets and copies
    ratings/                strengths with intervals: `davidson` (draws), `whole_history` (policies that learn),
                            `standings` (tables), `contradictions` (pairs whose games contradict the order)
    metagame/               players as strategies: `payoff`, and `measures` (Nash averaging, alpha-rank)
    exploitability          what can be won from a policy

What to do next
    rounds_file             rounds as data
    next_round              the next round; the winners of knockouts
    matchmaking, snapshots  the opponents of a learner; which past selves it may meet
    pairings                knockouts and Swiss
    custom, view            rules and generators of a user's own
    population              copies of the best
    ratings/sprt            is A better than B by d Elo
    ratings/ranking         which pair to play, is the order decided
    tournament              batches until it is

Nothing here imports MPI or torch. Modules that compute import scipy, which is slow; results and read_results do not.
"""

from arena.league.view import LeagueView

__all__ = ["LeagueView"]
