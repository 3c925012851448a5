"""Evaluation while policies learn: at some boundaries frozen copies of the policies play separate matches.

An evaluation is a run within the run: its own plan over the same processes, its own folder, its own random streams. It
is played between two legs, and no policy learns from it: training is the same with it and without. Its result is a line
per policy in `evaluations.jsonl`; if a boundary lacks its lines, the evaluation is played when the run
continues from it.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from statistics import fmean, stdev

import msgspec

from arena.config import Config
from arena.errors import ConfigError, percent, pluralize, shorten
from arena.league.ratings.intervals import half_of_mean, of_share
from arena.preflight.later_seats import evaluation_config
from arena.records import evaluations
from arena.records.atomic import make_folder
from arena.records.figures import ENOUGH, repeated, repetition_text
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Score, Scoreboard
from arena.roles.run import Run
from arena.run.hooks import call_evaluation_function
from arena.run.prepare import prepare


def evaluation_due(run: Run, *, ends: bool = False) -> Run | None:
    """The evaluation that is due before a run continues from a boundary; None if none is.

    It has the same processes. `ends`: whether the run ends here, before its last round.
    """
    if not is_due(run, ends=ends):
        return None
    config = config_now(run)
    assert config.evaluation is not None, "an evaluation is due only if the configuration has one"
    if config.evaluation.episodes == 0:
        return None
    folder = run.folder.evaluation_path(run.leg.start)
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted evaluation
    make_folder(folder.parent)
    loads = {name: str(path) for name, path in run.leg.restore.items()}
    prepared = prepare(evaluation_config(config, loads), ranks=run.plan.processes, run_dir=str(folder))
    seated = {seat.policy for match in prepared.plan.matches for seat in match.seats}
    lanes = episodes_per_lane(prepared, seated, config.evaluation.episodes)
    return replace(prepared, source=run.source, episodes=lanes, greedy=config.evaluation.greedy, evaluated=run)


def is_due(run: Run, *, ends: bool = False) -> bool:
    """Whether an evaluation, or its function alone, is due at a boundary; `ends`: as for `evaluation_due`."""
    due = run.plan.config.evaluation is not None and (ends or run.plan.evaluates_at(run.leg.start))
    return due and run.leg.start not in evaluations.evaluated(run.folder)


def measure_alone(run: Run, *, ends: bool) -> bool:
    """Calls the function of an evaluation without games, if that is due at a boundary; returns whether it was."""
    settings = config_now(run).evaluation if is_due(run, ends=ends) else None
    if settings is None or settings.episodes:
        return False
    call_evaluation_function(run, settings)
    return True


def config_now(run: Run) -> Config:
    """The configuration of the run with what has changed since: a fork has its source's options."""
    config = run.changed_config or run.plan.config
    policies = {
        name: msgspec.structs.replace(policy, options=run.plan.policies[name].config.options)
        for name, policy in config.policies.items()
    }
    return msgspec.structs.replace(config, policies=policies)


def record_evaluation(run: Run, evaluation: Run, scoreboard: Scoreboard) -> Iterator[str]:
    """Records the results of an evaluation that is over; yields a line per policy, and on games that were alike."""
    settings = config_now(run).evaluation
    assert settings is not None, "the run is evaluated"
    call_evaluation_function(run, settings)
    evaluations.keep(run.folder, run.leg.start, scoreboard)
    for name, score in scoreboard.policies.items():
        if score.episodes:
            yield f"tick {run.leg.start}, evaluation of {name}: {result_text(score, against_itself(evaluation, name))}"
    for line in alike_text(evaluation, scoreboard.policies, remedy="`greedy: false`"):
        yield f"tick {run.leg.start}, evaluation: {line}"


def alike(evaluation: Run, *, least: int = ENOUGH) -> list[tuple[str, ...]]:
    """The groups of policies whose games were all alike, see `repeated`; none if all sample their actions.

    `least`: repetitions; a game may draw later than it begins, which a few games need not show.
    """
    episodes = evaluation.folder.episodes
    if not evaluation.greedy or not episodes.exists():
        return []
    random = {name for name, policy in evaluation.plan.policies.items() if policy.config.algorithm == "random"}
    sampled = random | evaluation.sampled
    return repeated(JournalReader(episodes).lines(EpisodeRecord), random=sampled, least=least)


def alike_text(evaluation: Run, scores: Mapping[str, Score], *, remedy: str) -> list[str]:
    """Lines on games of an evaluation that were all alike, and on other policies whose returns were all equal.

    `remedy` is the setting that makes its policies sample their actions.
    """
    same = alike(evaluation)
    repeating = {name for names in same for name in names}
    equal = [name for name, score in scores.items() if score.returns.equal and name not in repeating]
    equal = [name for name in equal if scores[name].returns.count > ENOUGH]
    lines = repetition_text(same, remedy=remedy)
    if equal:
        text = f"the returns of {shorten(equal)} did not vary: an interval of width 0 says nothing about rarer ones"
        lines.append(text)
    return lines


def measured(evaluation: Run) -> dict[str, dict[str, list[float]]]:
    """What the game reports as `metrics`, by name and policy: per episode the mean over the policy's seats."""
    values: dict[str, dict[str, list[float]]] = {}
    for record in JournalReader(evaluation.folder.episodes).lines(EpisodeRecord, missing_ok=True):
        found: dict[tuple[str, str], list[float]] = {}
        for seat in record.seats:
            if not record.cut and isinstance(seat.metrics, dict):
                for name, value in seat.metrics.items():
                    found.setdefault((name, seat.policy), []).append(value)
        for (name, policy), of_seats in found.items():
            values.setdefault(name, {}).setdefault(policy, []).append(fmean(of_seats))
    return values


def measured_text(name: str, values: Sequence[float]) -> str:
    """The mean of a game's metric with its 95 % interval: Wilson's where each value is 0 or 1, none of equal ones."""
    each = ""
    if {*values} <= {0.0, 1.0}:
        low, high = of_share(sum(values), len(values))
        interval = f" [{low:.3g}, {high:.3g}]"
    else:
        half = half_of_mean(len(values), stdev(values) if len(values) > 1 else 0.0)
        interval, each = f" +- {half:.2g}" if half else "", "each of " if half == 0 else ""
    return f"{name}: {fmean(values):.4g}{interval} in {each}{pluralize(len(values), 'episode')}"


def check_episodes(episodes: object) -> None:
    """Refuses what is no number of episodes; raises ConfigError."""
    if not isinstance(episodes, Integral) or episodes < 1:
        raise ConfigError(f"found {episodes!r}; expected a whole number, at least 1", path="episodes")


def episodes_per_lane(run: Run, policies: Collection[str], episodes: int) -> int:
    """Episodes per lane, so that the policy with the fewest lanes plays at least this many episodes in all."""
    lanes: Counter[str] = Counter()
    for match in run.plan.matches:
        lanes.update(dict.fromkeys({seat.policy for seat in match.seats}, match.lanes))
    return math.ceil(episodes / min(lanes[policy] for policy in policies))


def against_itself(evaluation: Run, policy: str) -> bool:
    """Whether a policy has all seats, two or more, wherever it plays."""
    played = [match for match in evaluation.plan.matches if policy in match.config.names]
    return bool(played) and all({*match.config.names} == {policy} and len(match.seats) > 1 for match in played)


def result_text(score: Score, itself: bool = False) -> str:
    """A result with its 95 % intervals; `itself`: of games of one policy, which have no win rate if it loses each too.

    All seats of a team win together.
    """
    if score.episodes == 0:
        return "took no part" if score.absent else "no episode"
    count = score.returns.count
    mean, half = score.returns.total / count, half_of_mean(count, score.returns.deviation)
    interval = "" if half is None else f" +- {half:.2f}"  # a single episode has none
    parts = [pluralize(score.episodes, "episode"), f"return {mean:.2f}{interval}", f"length {score.lengths.mean:.1f}"]
    shared = score.games.squares < score.games.total or not (score.wins or score.losses)
    if itself and score.games.count and shared:
        parts.insert(1, "against itself")
    elif score.games.count:
        low, high = of_share(score.wins, score.games.count)
        fewer = score.games.count < score.episodes
        of = f" of {pluralize(score.games.count, 'game')} with an outcome" if fewer else ""
        parts.insert(1, f"won {percent(score.wins / score.games.count, 1)} [{percent(low, 1)}, {percent(high, 1)}]{of}")
    return ", ".join(parts)
