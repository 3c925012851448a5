"""The ratings of a league against a tournament of the same players.

Three policies learn in a league of eight rounds, whose opponents the rule `fictitious` draws, with `random` among them:
`fast` and `slow` (ppo with a large and a small learning rate) and `q` (dqn). The games are connect four, tic-tac-toe
and touchdown. The players as they are at the end, and the snapshots of `slow` and `fast` of some rounds, then play a
tournament with sampled actions, in which none of them learns.

Compared are the differences of each two of these players. The joint interval has the variance of both differences
together. Pairs that are more than 60 Elo apart in the tournament should be in the same order in the league. The gap is
the median over the pairs. The figures of promises are over all games and turns; a turn is a seed. Leagues are played
side by side, as many as there are cores: nothing that is measured depends on time.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import runs
from arena.league.ratings.ratings import Ratings, fit
from arena.league.read_results import read
from arena.records.folder import RunFolder
from harness import Case, Measured, Report, Sample, Settings, Summary, interleave, main, method, say

GAMES: Mapping[str, Mapping[str, Any]] = {
    "connect four": {"make": "pettingzoo:classic.connect_four_v3", "kwargs": {}},
    "touchdown": {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 300}},
    "tic-tac-toe": {"make": "pettingzoo:classic.tictactoe_v3", "kwargs": {}},
}
ROUNDS, TICKS, LANES = 8, 600, 4
PPO = {"n_steps": 100, "ent_coef": 0.01, "minibatch_size": 200, "n_epochs": 4}
POLICIES = {
    "q": {"algorithm": "dqn", "options": {"learning_rate": 1e-3, "learning_starts": 1000}},
    "fast": {"algorithm": "ppo", "options": {"learning_rate": 1e-3, **PPO}},
    "slow": {"algorithm": "ppo", "options": {"learning_rate": 1e-4, **PPO}},
    "random": {"algorithm": "random"},
}
TAKEN = {"fast": (2, 4), "slow": (3, 5)}  # rounds after which the snapshots were made that play in the tournament
MOST = 3000  # games of the tournament
APART = 60.0  # Elo


def league(game: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """The configuration."""
    entry = {"env": "game", "policies": ["q", "fast", "slow"], "against": ["random"], "rule": "fictitious"}
    return {
        "name": "league",
        "seed": seed,
        "rounds": ROUNDS,
        "ticks": TICKS // 3 if quick else TICKS,
        "envs": {"game": GAMES[game]},
        "policies": POLICIES,
        "matches": [{"matchmaking": {**entry, "copies": 2, "both_sides": True, "lanes": LANES}}],
    }


def compared(game: str, seed: int, *, quick: bool) -> Sample:
    """A league, the tournament of its players, and how far their differences agree."""
    config = league(game, seed, quick=quick)
    with runs.arena(config, ranks=1, timeout=3600.0) as run:
        taken = [f"{name}@{number * config['ticks']}" for name, numbers in TAKEN.items() for number in numbers]
        players = [*POLICIES, *taken]
        rated = fit(read(RunFolder(run.folder)).timeline, players=players)  # snapshots that never played, too
        folder: Path = run.folder.parent
        command = [
            sys.executable,
            "-m",
            "arena",
            "tournament",
            *(f"run:{player}" for player in players),
            "--sample",
            "--run-dir",
            "tournament",
        ]
        command += ["--episodes", str(MOST // 8 if quick else MOST)]
        runs.ended_well(command, folder, timeout=3600.0)
        return agreement(rated, fit(read(RunFolder(folder / "tournament")).results), players)


def agreement(rated: Ratings, frozen: Ratings, players: list[str]) -> Sample:
    """How far the differences of players in a league agree with those in a tournament."""
    inside, ordered, gaps = [], [], []
    for one, other in itertools.combinations(players, 2):
        first, second = rated.difference(one, other), frozen.difference(one, other)
        gap, deviations = first.value - second.value, [(found.high - found.low) / 2 for found in (first, second)]
        inside.append(gap**2 <= sum(deviation**2 for deviation in deviations))
        gaps.append(abs(gap))
        if abs(second.value) > APART:
            ordered.append(first.value * second.value > 0)
    return {
        "share of differences within the joint interval": statistics.fmean(inside),
        f"share of orders of players {APART:g} Elo apart that agree": statistics.fmean(ordered) if ordered else 1.0,
        "gap, Elo": statistics.median(gaps),
        "pairs": len(inside),
        f"pairs {APART:g} Elo apart": len(ordered),
    }


def overall(measured: Measured, figure: str, weight: str) -> Summary:
    """The mean of a share over all games and turns, each with its number of pairs."""
    shares = [(sample[figure], sample[weight]) for game in GAMES for sample in measured.samples.get(game, ())]
    pairs = sum(count for _, count in shares)
    return Summary((sum(share * count for share, count in shares) / pairs,)) if pairs else Summary(())


def benchmark(settings: Settings) -> Report:
    """Plays, and compares."""
    seeds = range(1, settings.repeats + 1)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        samples = pool.map(lambda one: compared(one[1], one[0], quick=settings.quick), itertools.product(seeds, GAMES))
        measured = interleave([Case(game, samples.__next__) for game in GAMES], settings.repeats, say=say)
    report = Report("league_tournament", "A league's ratings against a tournament", measured, method(__doc__))
    figures = list(measured.samples[next(iter(GAMES))][0])
    report.at_least(figures[0], overall(measured, figures[0], figures[3]), 0.85)
    report.at_least(figures[1], overall(measured, figures[1], figures[4]), 0.95)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
