"""Leagues: who is best, and how sure are we. Imported by the root of a league and by what reads its run folder alone.

    results      who has won against whom            reading    the same, from a run folder
    ratings      strengths with intervals            online     the same, game after game
    payoff       expected scores with intervals      sequential is A better than B by d Elo
    pairing      which pair to play next, and whether the order is decided

Nothing here knows MPI or torch. Results and reading apart, these modules import scipy, which takes a while.
"""
