"""Coverage of ratings while players learn: the shares of 95 % intervals that hold the truth.

Leagues are simulated, with known strengths that move within rounds too. Six learners play 12 rounds; in each one every
learner meets four opponents that a rule of matchmaking draws from the results so far, in 10 games each, half of them on
the first side, which is worth 40 Elo. Between equals every fifth game is a draw. Every second round a snapshot of each
learner joins, and is drawn from then on. Strengths at the beginning have a deviation of 100 Elo. They then move:

random walk        each learner at random, by 20 to 80 Elo a round (its deviation)
rise to a plateau  each learner rises by 200 to 600 Elo, and slows down with a time constant of a tenth to two fifths of
                   the run; around that it moves at random by 20 Elo a round
flat plateau       the same without the random part: nothing moves at the end
jump at a reset    a random walk, and two of the learners are reset once, to a strength around -150 (deviation 150)

Counted are the intervals of the final strengths of the learners, and of the differences of any two players, snapshots
among them. Beside them stands the method of before: every policy is rated as one player over its games of the newest
five rounds. Figures of promises are over all turns; a turn is 60 leagues for each rule and movement.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.config import parse_config
from arena.config.matches import Matchmaking
from arena.league.matchmaking import OpponentPool, draw
from arena.league.ratings.davidson import ELO
from arena.league.ratings.ratings import Ratings, fit
from arena.league.results import Results, Score
from arena.league.timeline import Period, PolicyReset, Timeline
from harness import Case, Measured, Report, Sample, Settings, Summary, interleave, main, method, say

Array = NDArray[np.float64]

LEARNERS = tuple("abcdef")
ROUNDS, TICKS, PARTS = 12, 800, 8
OPPONENTS, GAMES, EVERY, WINDOW = 4, 10, 2, 5
NU, SIDE = 0.5, 40.0
RULES: Mapping[str, object] = {
    "fictitious": "fictitious",
    "uncertainty": "uncertainty",
    "exploiters": {"exploiters": {"main": ["a", "b"], "main_exploiters": ["c", "d"], "league_exploiters": ["e", "f"]}},
}
MOVEMENTS = ("random walk", "rise to a plateau", "flat plateau", "jump at a reset")


class Truth(NamedTuple):
    """The strengths of the learners, and their resets.

    Args:
        before: float64 [learners, ROUNDS * PARTS + 1], at the end of each part of a round, without resets.
        after: the same, for learners that are reset, from their reset on.
        resets: the round, per learner that is reset.
    """

    before: Array
    after: Array
    resets: Mapping[str, int]

    def at(self, learner: str, place: int) -> float:
        """A strength in Elo; at the beginning of the round of a reset the strength before it."""
        start = self.resets.get(learner, ROUNDS) * PARTS
        return float((self.before if place <= start else self.after)[LEARNERS.index(learner), place])

    def within(self, learner: str, place: NDArray[np.intp], share: Array) -> Array:
        """Strengths within parts of rounds; in the round of a reset those after it."""
        start = self.resets.get(learner, ROUNDS) * PARTS
        row = (self.before if place.max() < start else self.after)[LEARNERS.index(learner)]
        found: Array = row[place] * (1 - share) + row[place + 1] * share
        return found


def truth(movement: str, rng: np.random.Generator) -> Truth:
    """Strengths that move."""
    count, steps = len(LEARNERS), ROUNDS * PARTS
    deviation = {"rise to a plateau": np.full(count, 20.0), "flat plateau": np.zeros(count)}.get(movement)
    each = rng.uniform(20, 80, count) if deviation is None else deviation
    walk = np.cumsum(rng.normal(0, 1, (count, steps)) * (each / np.sqrt(PARTS))[:, None], axis=1)
    before = rng.normal(0, 100, count)[:, None] + np.concatenate([np.zeros((count, 1)), walk], axis=1)
    if "plateau" in movement:
        rise, constant = rng.uniform(200, 600, (count, 1)), rng.uniform(0.1, 0.4, (count, 1)) * steps
        before += rise * (1 - np.exp(-np.arange(steps + 1) / constant))
    after, resets = before.copy(), dict[str, int]()
    if movement == "jump at a reset":
        for place in rng.choice(count, 2, replace=False).tolist():
            resets[LEARNERS[place]] = number = int(rng.integers(ROUNDS // 3, ROUNDS - 2))
            after[place] += rng.normal(-150, 150) - before[place, number * PARTS]
    return Truth(before, after, resets)


@lru_cache
def entry_of(name: str) -> Matchmaking:
    """A generator of this rule for all learners."""
    config = parse_config(
        {
            "ticks": TICKS,
            "rounds": ROUNDS,
            "envs": {"game": {"make": "touchdown"}},
            "policies": {name: {"algorithm": "ppo"} for name in LEARNERS},
            "matches": [
                {"matchmaking": {"env": "game", "policies": [*LEARNERS], "rule": RULES[name], "copies": OPPONENTS}}
            ],
        },
        source="league.yaml",
    )
    ((_, entry),) = config.places()
    assert isinstance(entry, Matchmaking)
    return entry


def league(rule: str, movement: str, rng: np.random.Generator) -> tuple[Timeline, dict[str, float]]:
    """The games of a league, and the final strength of each player."""
    true, entry = truth(movement, rng), entry_of(rule)
    snapshots: dict[str, list[str]] = {name: [] for name in LEARNERS}
    strengths: dict[str, float] = {}
    beginnings: dict[str, list[PolicyReset]] = {}
    timeline = Timeline([], TICKS, frozenset(LEARNERS))
    for number in range(ROUNDS):
        if number and number % EVERY == 0:
            for name in LEARNERS:
                snapshots[name].append(f"{name}@{number * TICKS}")
                strengths[snapshots[name][-1]] = true.at(name, number * PARTS)
        beginnings |= {name: [PolicyReset(number * TICKS, None)] for name, at in true.resets.items() if at == number}
        joined = tuple(name for own in snapshots.values() for name in own)
        known = Timeline(timeline.periods, TICKS, frozenset(LEARNERS), beginnings, joined)
        pairs = (
            draw(entry, OpponentPool(known, snapshots, frozenset(LEARNERS)), rng)
            if number
            else {name: [other for other in LEARNERS if other != name][:OPPONENTS] for name in LEARNERS}
        )
        parts = [Results() for _ in range(PARTS)]
        for learner, opponents in pairs.items():
            for other in opponents:
                play(true, learner, other, strengths, number, parts, rng)
        playing = frozenset([*LEARNERS, *joined])
        starts = [number * TICKS + TICKS * part // PARTS for part in range(PARTS + 1)]
        played = [Period(*ends, found, playing) for *ends, found in zip(starts, starts[1:], parts, strict=False)]
        timeline = Timeline([*timeline.periods, *played], TICKS, frozenset(LEARNERS), beginnings, joined)
    return timeline, {**strengths, **{name: true.at(name, ROUNDS * PARTS) for name in LEARNERS}}


def play(
    true: Truth,
    learner: str,
    other: str,
    strengths: Mapping[str, float],
    number: int,
    parts: list[Results],
    rng: np.random.Generator,
) -> None:
    """Plays the games of a match in a round, at random ticks."""
    part, share = rng.integers(PARTS, size=GAMES), rng.random(GAMES)
    place = number * PARTS + part
    theirs = strengths[other] if other in strengths else true.within(other, place, share)
    first = np.arange(GAMES) % 2 == 0
    half = (true.within(learner, place, share) - theirs + np.where(first, SIDE, -SIDE)) / ELO / 2
    odds = np.stack([np.exp(half), np.full(GAMES, NU), np.exp(-half)])
    ending = (rng.random(GAMES) * odds.sum(axis=0) > np.cumsum(odds, axis=0)).sum(axis=0)
    for at, one, found in zip(part.tolist(), first.tolist(), ending.tolist(), strict=True):
        score = Score(*(int(found == kind) for kind in range(3)))
        if one:
            parts[at].add_score((learner,), (other,), score, sided=True)
        else:
            parts[at].add_score((other,), (learner,), score.reversed, sided=True)


def as_before(timeline: Timeline) -> Results:
    """The games of the newest rounds, and those between snapshots, with one strength for each policy."""
    oldest = max(0, timeline.end - WINDOW * TICKS)
    since = {name: max([oldest, *(one.tick for one in timeline.beginnings.get(name, ()))]) for name in LEARNERS}
    found = Results()
    for period in timeline.periods:
        for first, second, score, sided in period.results.scores():
            if all(since.get(name, 0) <= period.start for name in (*first, *second)):
                found.add_score(first, second, score, sided=sided)
    return found


def held(ratings: Ratings, strengths: Mapping[str, float]) -> tuple[float, float, float]:
    """Shares of the intervals of learners, and of differences, that hold the truth; the mean width of the former."""
    mean = statistics.fmean(strengths[name] for name in ratings.players)
    alone = [(ratings.of(name), strengths[name] - mean) for name in ratings.players if name in LEARNERS]
    differences = [
        (ratings.difference(one, other), strengths[one] - strengths[other])
        for place, one in enumerate(ratings.players)
        for other in ratings.players[:place]
    ]
    return (
        statistics.fmean(found.low <= true <= found.high for found, true in alone),
        statistics.fmean(found.low <= true <= found.high for found, true in differences),
        statistics.fmean(found.high - found.low for found, _ in alone),
    )


def covered(rule: str, movement: str, seed: Sequence[int]) -> dict[str, float]:
    """Shares of the intervals of a league that hold the truth, now and by the method of before."""
    timeline, strengths = league(rule, movement, np.random.default_rng(seed))
    found = {}
    for beside, ratings in (("", fit(timeline)), (", before", fit(as_before(timeline)))):
        learners, differences, width = held(ratings, strengths)
        found |= {f"final strengths held{beside}": learners, f"differences held{beside}": differences}
        found |= {f"width, Elo{beside}": width}
    return found


def coverage(pool: Executor, name: str, movement: str, turns: Iterator[int], count: int) -> Sample:
    """The means over the leagues of a turn, each of which has a random stream of its own."""
    start = [MOVEMENTS.index(movement), [*RULES].index(name), next(turns)]
    seeds = [[*start, number] for number in range(count)]
    leagues = [*pool.map(partial(covered, name, movement), seeds)]
    return {figure: statistics.fmean(one[figure] for one in leagues) for figure in leagues[0]}


def cases(settings: Settings, pool: Executor) -> Iterator[Case]:
    """Each movement with each rule."""
    count = settings.pick(60, 2)
    for movement in MOVEMENTS:
        for name in RULES:
            yield Case(f"{movement}, {name}", partial(coverage, pool, name, movement, itertools.count(), count))


def over_all(measured: Measured, case: str, figure: str) -> Summary:
    """The mean over the turns; every turn has the same number of leagues."""
    return Summary((statistics.fmean(measured.summary(case, figure).values),))


def benchmark(settings: Settings) -> Report:
    """Simulates, and compares intervals with the truth."""
    with ProcessPoolExecutor() as pool:
        measured = interleave(list(cases(settings, pool)), settings.repeats, say=say)
    report = Report("moving_strengths", "Ratings while players learn", measured, method(__doc__))
    for movement in MOVEMENTS:
        for name in RULES:
            case = f"{movement}, {name}"
            for figure in ("final strengths held", "differences held"):
                share = over_all(measured, case, figure)
                report.at_least(f"{case}: share of {figure}", share, 0.93)
                report.at_most(f"{case}: share of {figure}", share, 0.97)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
