"""CPU time of ratings while players learn.

Leagues are simulated: 20 policies move at random by 20 Elo a round; in each round each of them meets opponents, half of
them snapshots, which join of every policy at even distances and stay. The first league has 500 rounds, 10,000 nodes and
about 200,000 games; the second one 1000 rounds, 20,000 nodes and 380 snapshots. Measured is the CPU time of this
process, with one thread, for the ratings and their intervals of all players at the end; for the tables; for the curves
of a report; and, with rounds long ago merged, for what is done between two rounds. That should be less than 5 % of the
run's time, so that rounds as long as 20 times it are long enough: the last figure is that length.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from arena.league.ratings import whole_history
from arena.league.ratings.curves import curves
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import tables
from arena.league.results import Results, Score
from arena.league.timeline import Period, Timeline
from harness import Case, Report, Sample, Settings, interleave, main, method, say

POLICIES, OPPONENTS, DEVIATION, TICKS = 20, 3, 20.0, 100
SHARE = 0.05  # of a run's time


def league(rounds: int, games: int, every: int) -> Timeline:
    """A league of `rounds` rounds, with `games` games of each pairing; snapshots join after `every` rounds."""
    rng, names = np.random.default_rng(0), [f"p{number:02d}" for number in range(POLICIES)]
    walks = np.cumsum(rng.normal(0, DEVIATION, (rounds, POLICIES)), axis=0)
    snapshots: dict[str, float] = {}
    periods = []
    for number, strengths in enumerate(walks):
        if number and number % every == 0:
            snapshots |= {f"{name}@{TICKS * number}": elo for name, elo in zip(names, strengths, strict=True)}
        past, found = [*snapshots], Results()
        current = dict(zip(names, strengths.tolist(), strict=True))
        for name in names:
            for _ in range(OPPONENTS):
                from_past = past and rng.random() < 0.5
                other = str(rng.choice(past if from_past else [one for one in names if one != name]))
                gap = (snapshots if from_past else current)[other] - current[name]
                won = int(rng.binomial(games, 1 / (1 + 10 ** (gap / 400))))
                found.add_score((name,), (other,), Score(wins=won, losses=games - won), sided=True)
        periods.append(Period(TICKS * number, TICKS * (number + 1), found, frozenset(names)))
    return Timeline(periods, TICKS, frozenset(names), {}, tuple(snapshots))


def rated(timelines: Iterator[Timeline]) -> Sample:
    """CPU seconds of the ratings of a league."""
    timeline, times = next(timelines), [time.process_time()]
    fit(timeline, coarse=True)
    times.append(time.process_time())
    ratings = fit(timeline)
    times.append(time.process_time())
    found = tables(ratings, timeline)
    times.append(time.process_time())
    curves(timeline, [{row.player: row.elo for row in rows} for rows in found])
    times.append(time.process_time())
    between, end, table, drawn = np.diff(times).tolist()
    nodes = sum(len(points) for points in whole_history.history(timeline, (), (), coarse=False).curves.values())
    return {
        "CPU s, at the end": end,
        "CPU s, tables": table,
        "CPU s, curves": drawn,
        "CPU s, between rounds": between,
        "nodes": nodes,
        "games": timeline.results.games,
        "s of a round of which that is 5 %": between / SHARE,
    }


def fresh(rounds: int, games: int, every: int) -> Iterator[Timeline]:
    """The same league again and again, of which nothing is kept."""
    while True:
        yield league(rounds, games, every)


def benchmark(settings: Settings) -> Report:
    """Simulates, and rates."""
    size = settings.pick(1, 10)
    leagues = {
        "10,000 nodes, 200,000 games": fresh(500 // size, 7, 25 // min(size, 5)),
        "1000 rounds, 20 policies, 380 snapshots": fresh(1000 // size, 4, 50 // min(size, 5)),
    }
    cases = [Case(name, partial(rated, timelines)) for name, timelines in leagues.items()]
    measured = interleave(cases, settings.repeats, say=say)
    report = Report("rating_speed", "CPU time of ratings while players learn", measured, method(__doc__))
    for name, most in zip(leagues, (5.0, 10.0), strict=True):
        report.at_most(f"{name}: CPU s, at the end", measured.summary(name, "CPU s, at the end"), most)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
