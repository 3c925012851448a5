"""Environments that step many games at once, against the same games in their usual form.

EnvPool: PPO, 64 lanes, one thread of the pool and one of torch, the arena in one process, against a loop of one file on
the same pool (`fused_ppo.py`): samples per CPU second, without the start. CartPole with networks of 64-64 tanh units
and the numbers of `terms.py`; Pong with the convolutional network of Mnih et al. 2015, rollouts of 16 ticks and
minibatches of 256.

Connect four, 256 lanes, two random policies: pgx, compiled by JAX, against PettingZoo's connect_four_v3: ticks of all
lanes per second, and their CPU time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Sample, Settings, interleave, main, method, say
from terms import Terms

PGX, PETTINGZOO = "connect four, pgx", "connect four, PettingZoo"
GAMES = {"CartPole": "envpool:CartPole-v1", "Pong": "envpool:Pong-v5"}
CPU, RATE = "samples per CPU s", "ticks/s"


def clocked(make: str, kwargs: Mapping[str, Any], *, every: int = 1) -> dict[str, Any]:
    """An entry of `envs`: a game by its name, with a clock around it."""
    return runs.clocked("games:adapted", {"make": make, "kwargs": dict(kwargs)}, every=every)


def pool(terms: Terms) -> Sample:
    """The arena on a pool."""
    config = {
        "name": "pool",
        "seed": terms.seed,
        "ticks": terms.samples // terms.lanes // terms.n_steps * terms.n_steps,
        "ranks": 1,
        "envs": {"game": clocked(terms.env, {"num_threads": 1}, every=terms.n_steps)},
        "policies": {"p": {"algorithm": "ppo", "options": terms.options()}},
        "matches": [{"env": "game", "seats": ["p"], "lanes": terms.lanes}],
    }
    with runs.arena(config, timeout=300) as run:
        return _rate(run, terms)


def fused(terms: Terms) -> Sample:
    """The loop of one file on a pool."""
    with runs.alone(sys.executable, "fused_ppo.py", asdict(terms), timeout=300) as run:
        return _rate(run, terms)


def _rate(run: runs.Run, terms: Terms) -> Sample:
    window, samples = run.window, run.window.count * terms.lanes
    cpu = run.finished.cpu_between(window.begin, window.end)
    return {CPU: samples / cpu, "samples per s": samples / window.seconds}


def connect_four(make: str, kwargs: Mapping[str, Any], ticks: int) -> Sample:
    """Two random policies."""
    config = {
        "name": "connect_four",
        "ticks": ticks,
        "envs": {"game": clocked(make, kwargs)},
        "policies": {"p": {"algorithm": "random"}, "q": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["p", "q"], "lanes": 256}],
    }
    with runs.arena(config, timeout=300) as run:
        window = run.window
        cpu = run.finished.cpu_between(window.begin, window.end)
        return {RATE: window.rate, "CPU us per tick": 1e6 * cpu / window.count}


def benchmark(settings: Settings) -> Report:
    """Measures all in turns."""
    cartpole = Terms(env=GAMES["CartPole"], samples=settings.pick(327_680, 65_536), seconds=120)
    pong = Terms(env=GAMES["Pong"], samples=settings.pick(6144, 3072), seconds=120, n_steps=16, minibatch=256)
    quick, slow = settings.pick(2000, 400), settings.pick(200, 40)
    measured = interleave(
        [
            Case("CartPole, one file", partial(fused, cartpole)),
            Case("CartPole, arena", partial(pool, cartpole)),
            Case("Pong, one file", partial(fused, pong)),
            Case("Pong, arena", partial(pool, pong)),
            Case(PGX, partial(connect_four, "pgx:make", {"env_id": "connect_four"}, quick)),
            Case(PETTINGZOO, partial(connect_four, "pettingzoo:classic.connect_four_v3", {}, slow)),
        ],
        settings.repeats,
        say=say,
    )
    report = Report("vector_envs", "Vector environments and games in JAX", measured, method(__doc__))
    for game in GAMES:
        ratio = measured.ratio((f"{game}, arena", CPU), (f"{game}, one file", CPU))
        report.at_least(f"{CPU}, {game} of EnvPool, arena / loop of one file", ratio, 0.9)
    report.at_least(f"{RATE}, connect four of pgx / PettingZoo", measured.ratio((PGX, RATE), (PETTINGZOO, RATE)), 5)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
