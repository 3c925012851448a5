"""Leagues: who is best, and how sure are we. Imported by the root of a league and by what reads its run folder alone.

What is known
    results         who has won against whom            reading     the same, from a run folder
    davidson        a model of games with draws         ratings     strengths with intervals
    online          ratings, game after game            payoff      expected scores with intervals
    meta_game       players as strategies               equilibrium, nash_averaging, alpha_rank     who of them is best

What to do next
    rounds, league  a row of rounds                     generators  knockouts and Swiss
    view, own       rules and generators of a user's own
    matchmaking     whom a learner meets                snapshots   which past selves it may meet
    population      copies of the best                  draws       what is left to chance
    sequential      is A better than B by d Elo         pairing     which pair to play, is the order decided
    tournament      batches until it is                 contradictions  which pairs contradict it
    standings       what comes out, as rows             exploitation    what can be won from a policy
    winning         who has won the knockouts of a run

Nothing here knows MPI or torch. What computes imports scipy, which takes a while; results and reading do not.
"""

from arena.league.view import LeagueView

__all__ = ["LeagueView"]
