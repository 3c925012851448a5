"""Evaluation while policies learn: at some boundaries frozen copies of them play matches of their own.

An evaluation is a run within the run: its own plan over the same processes, its own folder, its own random streams. It
begins when a leg has ended and is over before the next one begins, and nobody learns from what it plays: so training is
the same with it and without. Its result is a line per policy in `evaluations.jsonl`; a boundary that should have them
and has none is evaluated when the run goes on from it.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from arena.config import Config, parse_config, yaml_text
from arena.launch.prepare import prepare
from arena.records import evaluations
from arena.records.durable import make_folder
from arena.records.scoreboard import Scoreboard
from arena.run import Run
from arena.screen.words import result_words

ENDLESS = 2**40
"""Ticks, where the number of episodes decides."""

_STREAM = 0x6576616C  # tells an evaluation's random streams from those of the training


def evaluation_due(run: Run) -> Run | None:
    """The evaluation that is to be played before a run goes on, over as many processes; None if there is none."""
    begins_here = all(tick == run.leg.start for tick in run.leg.ticks.values())  # else it was repaired in mid-leg
    due = begins_here and run.plan.evaluates_at(run.leg.start)
    return _evaluation(run) if due and run.leg.start not in evaluations.evaluated(run.folder) else None


def _evaluation(run: Run) -> Run:
    config = parse_config(yaml_text.load(run.config, source=run.source), source=run.source)
    assert config.evaluation is not None, "none is due without"
    folder = run.folder.evaluation_path(run.leg.start)
    shutil.rmtree(folder, ignore_errors=True)  # one that was interrupted
    make_folder(folder.parent)
    loads = {name: str(path) for name, path in run.leg.restore.items()}
    prepared = prepare(evaluation_config(config, loads), ranks=run.plan.processes, run_dir=str(folder))
    seated = {seat.policy for match in prepared.plan.matches for seat in match.seats}
    lanes = episodes_per_lane(prepared, seated, config.evaluation.episodes)
    return replace(prepared, source=run.source, episodes=lanes, greedy=config.evaluation.greedy)


def evaluation_config(config: Config, loads: Mapping[str, str]) -> Config:
    """What is played: each of the matches once, by frozen copies.

    Args:
        config: of the training.
        loads: per policy that has a checkpoint its file.
    """
    assert config.evaluation is not None, "there is nothing to play"
    entries = [
        msgspec.structs.replace(entry, copies=1, seats=config.evaluation.seats or entry.seats)
        for _, entry in config.entries()
    ]
    policies = {
        name: msgspec.structs.replace(policy, frozen=True, load=loads.get(name, policy.load))
        for name, policy in config.policies.items()
    }
    return msgspec.structs.replace(
        config,
        seed=int(np.random.SeedSequence([config.seed, _STREAM]).generate_state(1)[0]),
        ticks=ENDLESS,
        policies=policies,
        matches=tuple(entry for number, entry in enumerate(entries) if entry not in entries[:number]),
        evaluation=None,
        callbacks=(),
        spares=0,
        scale=False,
    )


def with_evaluation(config: Config) -> Config:
    """The matches of a configuration and those of its evaluation together: what can be known of both before a run."""
    return msgspec.structs.replace(
        config, matches=(*config.matches, *evaluation_config(config, {}).matches), scale=False, spares=0
    )


def kept(run: Run, scoreboard: Scoreboard) -> Iterator[str]:
    """Writes down how the policies did, and says it in a line for each."""
    evaluations.keep(run.folder, run.leg.start, scoreboard)
    for name, score in scoreboard.policies.items():
        if score.episodes:
            yield f"tick {run.leg.start}, evaluation of {name}: {result_words(score)}"


def episodes_per_lane(run: Run, policies: Collection[str], episodes: int) -> int:
    """Enough for the policy that has the fewest lanes."""
    lanes: Counter[str] = Counter()
    for match in run.plan.matches:
        lanes.update(dict.fromkeys({seat.policy for seat in match.seats}, match.lanes))
    return math.ceil(episodes / min(lanes[policy] for policy in policies))
