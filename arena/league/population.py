"""Population-based training (Jaderberg et al. 2017): the worst become copies of the best, with other options.

Truncation selection: the policies of one algorithm are ordered by fitness. Each of the worst `share` becomes a copy of
a random policy of the best `share` (of all that are not replaced, if these are fewer), with its weights, its optimizer
and its options (exploit); the options in `perturb` are multiplied by a factor (explore). With `keep`, that number of
the best survive, and all others become copies of one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.config.league import Evolution, Perturb
from arena.league.ratings.ratings import fit
from arena.league.results import Results
from arena.league.timeline import Timeline
from arena.records.formats import Fork


def forks(
    rule: Evolution,
    populations: Sequence[Sequence[str]],
    fitness: Mapping[str, float],
    options: Mapping[str, dict[str, Any]],
    rng: np.random.Generator,
) -> dict[str, Fork]:
    """The policies that become copies, with their sources and new options.

    A population is the policies of one algorithm. Those without a fitness, which have not played, take no part; NaN is
    worse than any number.
    """
    found: dict[str, Fork] = {}
    for population in populations:
        taking_part = [name for name in population if name in fitness]
        known = {name: fitness[name] for name in taking_part if not math.isnan(fitness[name])}
        ordered = sorted(taking_part, key=lambda name: (known.get(name, -math.inf), name))
        worst, last = ordered[: rule.replaced(len(ordered))], ordered[len(ordered) - rule.sources(len(ordered)) :]
        best = [name for name in last if name in known]
        sources = [(name, best[rng.integers(len(best))]) for name in worst] if best else []
        for policy, source in sources:
            found[policy] = Fork(source, explored(rule.perturb, options[source], rng))
    return found


def explored(perturb: Mapping[str, Perturb], options: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The perturbed options, each by one of its factors."""
    return {name: rule.multiplied(options[name], float(rng.choice(rule.factors))) for name, rule in perturb.items()}


def of_ratings(results: Results | Timeline) -> dict[str, float]:
    """The strength of all players that have played as they are now, in Elo."""
    ratings = fit(results, coarse=True)
    return dict(zip(ratings.players, ratings.elo.tolist(), strict=True))


def of_returns(returns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean return of each policy that has ended an episode."""
    return {name: float(np.mean(values)) for name, values in returns.items() if len(values)}
