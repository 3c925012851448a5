"""The results of a run as its root keeps them: from the records to `result.json` and to listeners.

A result is written when all that it covers is known: during a leg, at its end, or, if the policies are evaluated at its
boundary, when the evaluation is on record. Results that a killed run has not written are made from its records.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from arena.config.result_keys import CLOCK_NUMBERS, StopRule
from arena.diagnostics.profile import Activity, RoleProfile
from arena.plan.plan import Plan
from arena.records import best, result_file
from arena.records import boundary as boundaries
from arena.records.evaluations import evaluation_of
from arena.records.folder import RunFolder
from arena.records.formats import BestFile, MeasureLine, update_of
from arena.records.iterations import Iterations, Steps, Totals
from arena.records.journal import Journal, JournalReader, as_read
from arena.records.metrics import EpisodeRecord, UpdateRecord

Listener = Callable[[Mapping[str, Any]], None]
_PART = 1000  # episodes that are taken at once


class StopReached(NamedTuple):
    """A result that meets a stop rule: the rule, the tick of the result, and its value."""

    rule: StopRule
    tick: int
    value: float

    @property
    def by_clock(self) -> bool:
        """Whether the value depends on when and where the run is played."""
        return self.rule.key in CLOCK_NUMBERS or self.rule.key.startswith("sampler_perf/")


def first_met(rules: Sequence[StopRule], result: Mapping[str, Any]) -> StopReached | None:
    """The first rule that a result meets; None if it meets none, as with values that are missing or NaN."""
    found = result_file.numbers(result) if rules else {}
    for rule in rules:
        if rule.key in found and rule.is_met(found[rule.key]):
            return StopReached(rule, result["ticks"], found[rule.key])
    return None


class RunResults:
    """The results of a run, from a boundary on, at which its `result.json` is cut.

    Args:
        steps_at: the steps of all matches up to a tick, earlier rounds included.
        on_result: takes each new result, with NaN for null.

    Attributes:
        newest: the newest result, with NaN for null; None if there is none.
        met: the first result that meets a stop rule; None if there is none.
        perf: `sampler_perf` of the leg that has ended; empty if it was not measured.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        *,
        tick: int,
        steps_at: Callable[[int], Steps],
        on_result: Listener = lambda _: None,
    ) -> None:
        self._folder, self._plan = folder, plan
        self._on_result = on_result
        self.perf: dict[str, float] = {}
        self._journal: Journal | None = None
        result_file.forget_after(folder, tick)
        last = next(iter(result_file.results_in(folder.results)[-1:]), None)
        self._policies = tuple(name for name in plan.policies if "@" not in name)
        self._every = plan.result_every
        # The iterations at a boundary: what results on record have covered, and what was recorded since then.
        if last is not None:
            covered, steps = last["ticks"], Steps(last["timesteps_total"], last["agent_timesteps_total"])
        else:  # the run had no results before, or was killed before its first one
            covered = max(0, tick - 1) // self._every * self._every
            steps = steps_at(covered)
        custom = [(last or {}).get(key, {}) for key in ("custom_metrics", "policy_custom_metrics")]
        of_all, of_games = ([key.removesuffix("_mean") for key in each if key.endswith("_mean")] for each in custom)
        found = Iterations(
            every=self._every,
            smoothing=self._plan.config.results.smoothing,
            policies=self._policies,
            totals=Totals(covered, 0 if last is None else last["training_iteration"], *steps),
            metric_names=(of_all, of_games),
        )
        for line in JournalReader(self._folder.measures).lines(MeasureLine, missing_ok=True):
            if line.tick <= tick:
                _take_measured(found, line, covered)
        lines = JournalReader(self._folder.episodes).lines(EpisodeRecord, missing_ok=True)
        rows = (line for line in lines if line.tick <= tick)
        while part := list(islice(rows, _PART)):
            found.episodes(part)
        for record in JournalReader(self._folder.metrics).made(update_of, missing_ok=True):
            if record.ticks <= tick:
                found.update(record)
        self._iterations = found
        self.begin_round(plan, steps_at)
        self._began = self._last = time.monotonic()
        self._seconds_before = 0.0 if last is None else last["time_total_s"]
        self._first = self._iterations.totals
        self.newest = last
        self.met: StopReached | None = None
        self._without_match = {rule.key for rule in plan.config.stop_rules}
        for result in result_file.results_in(folder.results) if plan.config.stop_rules else ():
            self._check_rules(result)

    def begin_round(self, plan: Plan, steps_at: Callable[[int], Steps]) -> None:
        """Takes the plan of the round that is played next, or goes on."""
        self._plan, self._iterations.steps_at = plan, steps_at

    def begin_leg(self, start: int, until: int, left: frozenset[tuple[int, int]]) -> None:
        """Takes the two ticks of a leg; `left`: the workers, (match, seat), that play no more."""
        learners = {
            name
            for name, policy in self._plan.policies.items()
            if policy.config.learns and not left.issuperset(policy.workers)
        }
        self._iterations.begin_leg(start, until, learners)

    def episodes(self, tick: float, episodes: Sequence[EpisodeRecord], logged: Mapping[str, int]) -> None:
        """Takes episodes in the order of `episodes.jsonl`, and how far all matches have come: `Iterations.reach`."""
        self._iterations.episodes(episodes)
        self._iterations.reach(tick, logged)
        self._write_known()

    def update(self, record: UpdateRecord) -> None:
        """Takes an update of a policy."""
        self._iterations.update(record)
        self._write_known()

    def measured(self, lines: Sequence[MeasureLine]) -> None:
        """Takes what callbacks have measured, before the episodes and updates that it belongs to."""
        for line in lines:
            _take_measured(self._iterations, line, self._iterations.totals.tick)

    def leave(self, policy: str) -> None:
        """All workers of a policy have left the leg."""
        self._iterations.leave(policy)
        self._write_known()

    def _write_known(self) -> None:
        for found in self._iterations.known():
            self._write(found)

    def leg_over(self, tick: int) -> None:
        """Writes the results before the end of a leg, of which everything was handed over."""
        for found in self._iterations.take_until(tick):
            self._write(found)

    def boundary(
        self,
        tick: int,
        *,
        ends: bool = False,
        stopped: bool = False,
        ratings: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Writes the results up to a boundary, of which everything was handed over, that are not on record yet.

        The run has come to its end there (`ends`), or was ended early (`stopped`). `ratings` are those of a league at
        the end of a round: the Elo of its policies.
        """
        self.leg_over(tick)
        totals = self._iterations.totals
        due = tick % self._every == 0 or self._every <= self._plan.config.checkpoint_every or ratings is not None
        due = due or ends or stopped or self.met is not None
        if tick > totals.tick and due:
            found = self._iterations.take(tick) | ({} if ratings is None else {"ratings": dict(ratings())})
            evaluation = evaluation_of(self._folder, tick, self._policies) if self._plan.config.evaluation else None
            perf, self.perf = self.perf, {}
            self._write(found, evaluation=evaluation, perf=perf, over=ends, ends_leg=True)
        rule, newest = self._plan.config.best, self.newest
        if rule is not None and newest is not None and newest["ticks"] == tick:  # if the best so far: its checkpoints
            value, before = result_file.numbers(newest).get(rule.metric), best.read(self._folder)
            if before is not None and before.metric != rule.metric:
                before = None
            boundary = boundaries.last(self._folder)
            is_best = value is not None and (before is None or rule.is_better(value, before.value))
            if value is not None and is_best and boundary is not None and boundary.tick == tick:
                checkpoints = {name: boundary.checkpoint(self._folder, name) for name in boundary.checkpoints}
                best.keep(self._folder, BestFile(tick, rule.metric, value), checkpoints)
        if (
            tick <= totals.tick
            and (ends or self.met is not None)
            and self.newest is not None
            and not self.newest["done"]
        ):
            # Marks the last result as the end of the run again: a resumed run had removed the mark.
            self.close()
            lines = list(JournalReader(self._folder.results))
            over = {"done": True, "stopped_by": None if self.met is None else self.met.rule.text}
            result_file.write_all(self._folder.results, [*lines[:-1], {**lines[-1], **over}])

    @property
    def rules_without_match(self) -> list[str]:
        """The keys of stop rules that no result has had."""
        return sorted(self._without_match)

    @property
    def names(self) -> list[str]:
        """The names of the numbers of the newest result, without those of the clock."""
        known = {} if self.newest is None else result_file.numbers(self.newest)
        return sorted(name for name in known if name.partition("/")[0] not in result_file.CLOCK_KEYS)

    def _check_rules(self, result: Mapping[str, Any]) -> None:
        if self._without_match:
            self._without_match -= result_file.numbers(result).keys()
        if self.met is None:
            self.met = first_met(self._plan.config.stop_rules, result)

    def _write(
        self,
        found: dict[str, Any],
        *,
        evaluation: dict[str, Any] | None = None,
        perf: dict[str, float] | None = None,
        over: bool = False,
        ends_leg: bool = False,
    ) -> None:
        clock, now = time.monotonic(), time.time()
        this, self._last = clock - self._last, clock
        result = {
            **found,
            **({} if evaluation is None else {"evaluation": evaluation}),
            "sampler_perf": perf or {},
            "off_policy_estimator": {} if evaluation is None else evaluation["custom"].pop("off_policy_estimator", {}),
            "done": over,
            "stopped_by": None,
            "time_this_iter_s": this,
            "time_total_s": self._seconds_before + clock - self._began,
            "time_since_restore": clock - self._began,
            "timesteps_since_restore": found["timesteps_total"] - self._first.timesteps,
            "iterations_since_restore": found["training_iteration"] - self._first.iteration,
            "timestamp": int(now),
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }
        self._check_rules(result)
        if ends_leg and self.met is not None:
            result |= {"done": True, "stopped_by": self.met.rule.text}
        if self._journal is None:
            self._journal = Journal(self._folder.results)
        self._journal.append(result)
        self.newest = result_file.with_nan(as_read(result))
        self._on_result(self.newest)

    def flush(self) -> None:
        """Writes all results so far to the file."""
        if self._journal is not None:
            self._journal.flush()

    def sync(self) -> None:
        """Writes all results so far to the disk."""
        if self._journal is not None:
            self._journal.sync()

    def close(self) -> None:
        """Flushes and closes the file; the next result opens it again."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()


def _take_measured(iterations: Iterations, line: MeasureLine, covered: int) -> None:
    """Takes a measured value; one of an iteration only if no result on record has covered it."""
    if isinstance(line.match, int) and isinstance(line.lane, int) and isinstance(line.episode, int):
        iterations.measured_of((line.tick, line.match, line.lane, line.episode), line.metrics)
    elif line.tick > covered:
        iterations.measured(line.tick, line.metrics)


def sampler_perf(profiles: Sequence[RoleProfile], ticks: int) -> dict[str, float]:
    """Milliseconds per tick and worker of each kind of work, by the profiles of workers that have played so many ticks.

    Empty if nothing was measured.
    """
    if not profiles:
        return {}

    def spent(activity: Activity) -> float:
        return sum(profile.seconds.get(activity.value, 0.0) for profile in profiles)

    wait, inference = spent(Activity.WAITING_FOR_MATCH), spent(Activity.INFERENCE)
    others = wait + inference + spent(Activity.LEARNING) + spent(Activity.WAITING_FOR_GROUP)
    processing = sum(profile.wall for profile in profiles) - others
    seconds = {"mean_env_wait_ms": wait, "mean_inference_ms": inference, "mean_processing_ms": processing}
    return {name: 1000 * value / (ticks * len(profiles)) for name, value in seconds.items()}
