"""Games between players as a matrix game: payoffs, Nash averaging, alpha-rank."""
