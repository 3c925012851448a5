"""Learning in leagues: does self-play alone cycle, do past selves prevent that, does evolution find good options?

Rock-paper-scissors: `configs/league_self_play.yaml`, 40 rounds, once unchanged, with past selves weighted by the
posterior of the results, and once with `self: 1`, where the policy meets only itself. Its strategy after each round is
the probabilities of its three actions. A step forward is a change of its likeliest action from rock to paper, paper to
scissors, or scissors to rock. Exploitability is the payoff of the best response to a round's strategy, in the mean over
the second half of the rounds. The average strategy is the mean over all rounds; its error is the largest difference
between a probability and a third.

Evolution: `configs/evolution.yaml`, four policies with learning rates from 1e-5 to 1e-2. The policy with the highest
return in the last round plays 40 games of other seeds greedily, and so do the plain runs: the same four policies
without evolution. In the first comparison each of them has as many steps as a member of the population; in the second
comparison each has as many steps as the whole population together.

A turn is a seed.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import runs
from arena.config import yaml
from arena.serving import load_policy
from harness import HERE, Case, Measured, Report, Sample, Settings, Summary, interleave, main, method, say

Config: TypeAlias = dict[str, Any]

NOTHING_YET = np.eye(7, dtype=np.float32)[-1]  # the observation before the only choice: no choice was made yet
PAYS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])  # rock, paper, scissors
GAMES = 40  # of the evaluation
TIMEOUT = 3600.0
CIRCLES, EVEN = "self-play alone", "past selves"
EVOLVED, PLAIN, LONG = "population", "plain runs, of the same total", "plain runs, each of that total"


def shipped(name: str) -> Config:
    """A configuration of `configs`."""
    path = HERE.parent / "configs" / name
    found: Config = yaml.load(path.read_text(), source=name)
    return found


# --------------------------------------------------------------------------------------------------------- self-play


def self_play(seed: int, *, share: float, quick: bool) -> Sample:
    """A league in which this share of the matches is against the policy itself."""
    config = {**shipped("league_self_play.yaml"), "seed": seed}
    config["matches"][0]["matchmaking"]["rule"]["fictitious"]["self"] = share
    if quick:
        config["rounds"] = 4
    with runs.arena(config, ranks=1, timeout=TIMEOUT) as run:
        return figures(strategies(run.folder, config["rounds"], config["ticks"]))


def strategies(run: Path, rounds: int, ticks: int) -> NDArray[np.float64]:
    """The probabilities `[rounds, 3]` of rock, paper and scissors after each round."""
    policies = (load_policy(f"{run}:learner@{(number + 1) * ticks}") for number in range(rounds))
    chances = [policy.log_prob(np.stack([NOTHING_YET] * 3), np.arange(3), None) for policy in policies]
    return np.exp(np.array(chances, np.float64))


def figures(played: NDArray[np.float64]) -> Sample:
    """The figures of strategies `[rounds, 3]`."""
    steps = np.diff(played.argmax(axis=1)) % 3
    second = played[len(played) // 2 :]
    return {
        "steps forward": float((steps == 1).sum()),
        "steps back": float((steps == 2).sum()),
        "exploitability": float((PAYS @ second.T).max(axis=0).mean()),
        "average off by": float(abs(played.mean(axis=0) - 1 / 3).max()),
    }


# --------------------------------------------------------------------------------------------------------- evolution


def evolution(seed: int, *, quick: bool) -> Sample:
    """The best of the population."""
    config = population(seed, quick=quick)
    with runs.arena(config, ranks=1, timeout=TIMEOUT) as run:
        last = config["rounds"] - 1
        learned = returns(line for line in runs.lines_of(run.folder / "episodes.jsonl") if line["round"] == last)
        best = max(learned, key=learned.__getitem__)
        forks = [line["forks"] for line in runs.lines_of(run.folder / "rounds.jsonl")]
        return {"return": evaluated(run.folder)[best], "forks": float(sum(map(len, forks)))}


def plain(seed: int, *, alone: bool, quick: bool) -> Sample:
    """The median of the same policies without evolution.

    Args:
        seed: of the run.
        alone: each has as many steps as the whole population.
        quick: with a small budget.
    """
    config = population(seed, quick=quick)
    del config["league"]
    config["ticks"] *= config.pop("rounds") * (len(config["policies"]) if alone else 1)
    with runs.arena(config, ranks=1, timeout=TIMEOUT) as run:
        found = evaluated(run.folder)
    named = {f"return, {name}": value for name, value in found.items()}
    return {"return": statistics.median(found.values()), **named}


def population(seed: int, *, quick: bool) -> Config:
    """The configuration of `configs`, with a seed."""
    config = {**shipped("evolution.yaml"), "seed": seed}
    config["envs"]["cartpole"]["kwargs"] = {}
    if quick:
        config |= {"rounds": 3, "ticks": 250}
    return config


def evaluated(run: Path) -> dict[str, float]:
    """The mean return of each policy when its newest checkpoint plays."""
    command = [sys.executable, "-m", "arena", "evaluate", "run", "--checkpoints", "last", "--episodes", str(GAMES)]
    runs.ended_well(command, run.parent, timeout=TIMEOUT)
    lines = (line for path in (run / "evaluations").glob("*/episodes.jsonl") for line in runs.lines_of(path))
    return returns(lines)


def returns(lines: Iterator[Mapping[str, Any]]) -> dict[str, float]:
    """The mean return of each policy in games that were not cut."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if not line.get("cut"):
            for seat in line["seats"]:
                found.setdefault(seat["policy"], []).append(seat["return"])
    return {name: statistics.fmean(values) for name, values in found.items()}


# --------------------------------------------------------------------------------------------------------- all together


def seeded(measure: Callable[[int], Sample]) -> Callable[[], Sample]:
    """Measures with the seed 1, then 2, then 3, ..."""
    seeds = itertools.count(1)
    return lambda: measure(next(seeds))


def cases(quick: bool) -> Iterator[Case]:
    """The leagues, the population and the plain runs."""
    yield Case(CIRCLES, seeded(partial(self_play, share=1.0, quick=quick)))
    yield Case(EVEN, seeded(partial(self_play, share=0.5, quick=quick)))
    yield Case(EVOLVED, seeded(partial(evolution, quick=quick)))
    yield Case(PLAIN, seeded(partial(plain, alone=False, quick=quick)))
    yield Case(LONG, seeded(partial(plain, alone=True, quick=quick)))


def benchmark(settings: Settings) -> Report:
    """Measures all cases, seed after seed."""
    measured = interleave(list(cases(settings.quick)), settings.repeats, say=say)
    report = Report("league_learning", "Learning in leagues", measured, method(__doc__))
    forward = worst(measured, CIRCLES, "steps forward", min)
    report.at_least("rock-paper-scissors, self-play alone: steps forward in 39, fewest of all seeds", forward, 26)
    backward = worst(measured, CIRCLES, "steps back", max)
    report.at_most("rock-paper-scissors, self-play alone: steps back, most of all seeds", backward, 4)
    off = worst(measured, EVEN, "average off by", max)
    report.at_most("rock-paper-scissors, past selves: average strategy off by, most of all seeds", off, 0.05)
    exploited = measured.ratio((CIRCLES, "exploitability"), (EVEN, "exploitability"))
    report.at_least("rock-paper-scissors: exploitability of a strategy, alone / past selves", exploited, 1.3)
    for case in (PLAIN, LONG):
        ratio = measured.ratio((EVOLVED, "return"), (case, "return"))
        report.at_least(f"CartPole: return of the best of the population / median of {case}", ratio, 1)
    return report


def worst(measured: Measured, case: str, figure: str, of: Any) -> Summary:
    """The value of the worst seed."""
    values = measured.summary(case, figure).values
    return Summary((of(values),) if values else ())


if __name__ == "__main__":
    sys.exit(main(benchmark))
