"""Learning: PPO on touchdown, one learner against one random player, 64 lanes, minibatch 1024, 4-64-64 tanh networks.

All contestants play the same game class, with the same network sizes, epochs, minibatch and numbers (`terms.py`): the
fused loop in one process (the upper bound), the arena, Stable-Baselines3, Gymnasium's AsyncVectorEnv with one process
per lane and the fused learner, and Ray RLlib. All learn from equally many samples, slow contestants for a fixed time.
Samples/s are over whole cycles of collecting and learning, without the start; CPU time is of all processes together in
the same period.

With 2 copies the arena plays two matches with 64 lanes each, whose two workers average their gradients: together a
minibatch of 2048. Stable-Baselines3 is measured with 64 lanes, and as `double` with 128 lanes, minibatch 2048 and two
threads. RLlib is measured with two policies in one game, as in the arena, and with the random opponent as a part of
the game.

Learned means: 90 % of the last 200 episodes were won, as counted by the game (in RLlib: by its returns). The CPU
seconds until then begin at the start of the command, imports included. A contestant that has not learned in its time
counts with the CPU seconds used by then, which are too few; its figure `learned` is then 0.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import harness
import machine
import runs
from harness import Case, Measured, Report, Sample, Settings, Unavailable, interleave, main, method, say
from terms import Terms

PEERS = harness.HERE.parent / ".venv-peers" / "bin" / "python"
OURS, FUSED, ASYNC = "arena, 1 copy", "fused", "AsyncVectorEnv"
RLLIB, RLLIB_MULTI = "RLlib, one agent", "RLlib, two policies"
OURS_2, SB3, SB3_2 = "arena, 2 copies", "Stable-Baselines3", "Stable-Baselines3, double"
WALL, CPU, TO_LEARN = "samples per s", "samples per CPU s", "CPU s to 90 % wins"
PLAYED = "CPU s from the first tick to 90 % wins"


def config(terms: Terms, copies: int) -> dict[str, Any]:
    """The arena's configuration on the common terms."""
    return {
        "name": "ppo",
        "seed": terms.seed,
        "ticks": terms.samples // terms.lanes // terms.n_steps * terms.n_steps,
        "envs": {"game": runs.clocked("envs.touchdown:Touchdown", {}, every=terms.n_steps, score=True)},
        "policies": {"blue": {"algorithm": "ppo", "options": terms.options()}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": terms.lanes, "copies": copies}],
    }


def sample(run: runs.Run, terms: Terms) -> Sample:
    """Speed, and the CPU seconds until it had learned."""
    window = run.window
    samples = window.count * terms.lanes
    reached = [noted.reached for noted in run.progress]
    times = [moment for moment in reached if moment is not None]
    learned = len(times) == len(reached)  # in every copy
    end = max(times) if learned else max(noted.times[-1] for noted in run.progress)
    return {
        WALL: samples / window.seconds,
        CPU: samples / run.finished.cpu_between(window.begin, window.end),
        TO_LEARN: run.finished.cpu_between(run.finished.begun, end),
        PLAYED: run.finished.cpu_between(max(noted.times[0] for noted in run.progress), end),
        "s to 90 % wins": end - run.finished.begun,
        "learned, 1 = yes": float(learned),
        "s in all": run.finished.wall,
    }


def seeded(measure: Callable[[Terms], Sample], terms: Terms) -> Callable[[], Sample]:
    """Measures with a new seed in every turn, the same for all contestants."""
    seeds = itertools.count(terms.seed)
    return lambda: measure(replace(terms, seed=next(seeds)))


def arena(terms: Terms, *, copies: int) -> Sample:
    """Ours."""
    with runs.arena(config(terms, copies), timeout=900) as run:
        return sample(run, terms)


def solo(terms: Terms, *, python: str, script: str) -> Sample:
    """A contestant that is one process."""
    with runs.alone(python, script, asdict(terms), timeout=terms.seconds + 300) as run:
        return sample(run, terms)


def peer(terms: Terms, *, script: str, package: str) -> Sample:
    """A contestant in the peers' own virtual environment, or in this one if it has the package."""
    found = os.environ.get("BENCH_PEERS", str(PEERS))
    if os.path.exists(found):
        return solo(terms, python=found, script=script)
    if machine.version(package):
        return solo(terms, python=sys.executable, script=script)
    raise Unavailable(f"{package} is not installed; `make bench-peers` does it")


def cases(settings: Settings) -> list[Case]:
    """All contestants; slow contestants get a fixed time instead of all samples."""
    terms = Terms(samples=settings.pick(589_824, 65_536), seconds=settings.pick(120, 8))
    slow = replace(terms, seconds=settings.pick(30, 4), lanes=settings.pick(64, 8))
    double = replace(terms, lanes=2 * terms.lanes, minibatch=2 * terms.minibatch, threads=2)
    double = replace(double, samples=2 * terms.samples)
    fused = partial(solo, python=sys.executable, script="fused_ppo.py")
    sb3 = partial(peer, script="peer_sb3.py", package="stable-baselines3")
    found = [
        Case(FUSED, seeded(fused, terms)),
        Case(OURS, seeded(partial(arena, copies=1), terms)),
        Case(SB3, seeded(sb3, terms)),
    ]
    if settings.quick:
        return found
    rllib = partial(peer, script="peer_rllib.py", package="ray")
    return [
        *found,
        Case(OURS_2, seeded(partial(arena, copies=2), terms)),
        Case(SB3_2, seeded(sb3, double)),
        Case(ASYNC, seeded(fused, replace(slow, env="async"))),
        Case(RLLIB, seeded(rllib, replace(slow, env="rllib"))),
        Case(RLLIB_MULTI, seeded(rllib, replace(slow, env="rllib-multi"))),
    ]


def benchmark(settings: Settings) -> Report:
    """Measures all contestants in turns."""
    measured = interleave(cases(settings), settings.repeats, say=say)
    report = Report("ppo_touchdown", "PPO on touchdown 1v1, against random", measured, method(__doc__))
    report.at_least("samples per CPU s, arena / fused", measured.ratio((OURS, CPU), (FUSED, CPU)), 0.75)
    report.at_least(f"samples per CPU s, arena / {SB3}", measured.ratio((OURS, CPU), (SB3, CPU)), 1.6)
    if not settings.quick:
        add_promises_of_two_copies(report, measured)
    peers = [name for name in (SB3, SB3_2, ASYNC, RLLIB, RLLIB_MULTI) if measured.samples.get(name)]
    if peers:
        least = measured.each(lambda at: at(OURS, TO_LEARN) / min(at(name, TO_LEARN) for name in peers), [OURS, *peers])
        report.at_most(f"{TO_LEARN}, arena / the best peer", least, 1)
    learned = measured.summary(OURS, "learned, 1 = yes")
    if not settings.quick:
        report.at_least("the arena has learned within its samples, 1 = yes", learned, 1)
    return report


def add_promises_of_two_copies(report: Report, measured: Measured) -> None:
    """Adds promises of wall time on both cores; the first line of a peer is the promise, the second its other form."""
    for bound, names in ((3, (SB3, SB3_2)), (50, (RLLIB_MULTI, RLLIB))):
        for name in names:
            report.at_least(f"{WALL}, {OURS_2} / {name}", measured.ratio((OURS_2, WALL), (name, WALL)), bound)


if __name__ == "__main__":
    sys.exit(main(benchmark))
