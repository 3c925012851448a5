"""Games between players as a matrix game: payoffs, equilibria, alpha-rank."""
