"""`arena check`: validates a configuration, its environments and its algorithms, and plays its first ticks."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from arena import registry
from arena.cli.arguments import add_config
from arena.config import load_with_origin
from arena.errors import ConfigError, Deadlock, pluralize
from arena.plan.deadlock import waiting_text
from arena.plan.plan import MatchPlan, Plan, PolicyPlan, all_roles
from arena.plan.process_count import process_count
from arena.preflight.outcomes import rule_lines
from arena.preflight.spec import spec_of
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.perform import failure_of
from arena.roles.protocol import RoleFailed
from arena.roles.run import Leg, Run
from arena.run.api import preflight
from arena.run.console import Event, EventDisplay
from arena.run.loop import in_one_process
from arena.run.planning import checked_plan
from arena.run.resume import initial_checkpoints
from arena.terminal.display import processes_text
from arena.terminal.output import say
from arena.terminal.rounds import gate_lines

_TICKS, _STEPS = 130, 1100  # that are played at first, at most; of all lanes together
_LANES = 256  # of all matches that are played after the first one
_SECONDS = 5.0  # after which no more ticks are played for a policy without an update
_MORE_TICKS = 4  # that are played from the saved states
_TICKS_PER_UPDATE = ("n_steps", "learning_starts")  # options that say after how many an algorithm learns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.set_defaults(command=run)


class _LoggedWarnings(logging.Handler):
    """Prints what the arena logs as a warning, and counts it."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        say(f"warning: {record.getMessage()}")


def run(arguments: argparse.Namespace) -> int:
    """Prints what was checked; returns the exit status."""
    config, origin = load_with_origin(arguments.config, arguments.overrides)
    log, logged = logging.getLogger("arena"), _LoggedWarnings(logging.WARNING)
    with origin.located(), ExitStack() as stack:
        log.addHandler(logged)
        stack.callback(log.removeHandler, logged)
        plan = checked_plan(config, ranks=process_count(config, None, os.environ).number)
        findings = preflight(plan, config, conformance=True)
        waiting, refused = waiting_text(plan, findings.schedules)
        played = [] if refused else _try_out(plan)
    lines = [*findings.lines, *findings.hints.values(), *played, *rule_lines(plan), *gate_lines(config)]
    for line in (*lines, f"schedule: {waiting}"):
        say(line)
    say(f"plan: {processes_text(plan.processes, len(plan.roles()))}")
    but = "; `arena train` refuses it, as it can deadlock" if refused else ""
    warnings = logged.count + sum(one.startswith("warning: ") for line in lines for one in line.splitlines())
    but = (f", with {pluralize(warnings, 'warning')}" if warnings else "") + but
    say(f"configuration {arguments.config}: valid{but}")
    return 0


def _first_ticks(plan: Plan) -> tuple[Plan, int] | None:
    """A plan of what is tried out, and the ticks that are played at first; None: there is nothing to play.

    Each policy plays in each of its seats of an environment, in two copies of a match if there are. External games are
    left out.
    """
    kept: list[MatchPlan] = []
    seen: set[object] = set()
    lanes, share = 0, 1
    for match in plan.matches:
        kinds = {(match.env, repr(match.game.kwargs), seat.index, seat.policy, match.copy > 0) for seat in match.seats}
        fits = registry.external_kind(match.game.make) is None and (not kept or lanes + match.lanes <= _LANES)
        if fits and not kinds <= seen:
            kept.append(replace(match, match=len(kept)))
            seen, lanes = seen | kinds, lanes + match.lanes
    if not kept:
        return None
    policies = dict[str, PolicyPlan]()
    for name, policy in plan.policies.items():
        workers = tuple((one.match, seat.index) for one in kept for seat in one.seats if seat.policy == name)
        policies[name] = PolicyPlan(name, policy.config, workers)
        share = max(share, -(-len(policy.workers) // len(workers)) if workers else 1)
    config = msgspec.structs.replace(
        plan.config.games_alone(),
        ticks=plan.horizon * share,  # fewer workers collect what an algorithm asks of the whole run in more ticks
        **{"rounds": 1, "league": None, "loggers": (), "record": "nothing", "on_env_error": "stop"},
    )
    return Plan(config, policies, tuple(kept), ranks=(all_roles(kept),)), max(4, min(_TICKS, _STEPS // lanes))


def _try_out(plan: Plan) -> list[str]:
    """Plays the first ticks of a run in this process, in a temporary folder; returns lines about it.

    While a policy has logged no update, four times as many ticks are played, for some seconds. Then the user's own
    algorithms are made again from their states, and play a few ticks by their actors, as `arena evaluate` does.

    Raises:
        ConfigError: a game or an algorithm fails; it names the key and the line of the user's file.
    """
    external = [str(match.match) for match in plan.matches if registry.external_kind(match.game.make) is not None]
    left_out = [f"not played: the external games of match {', '.join(external)}"] if external else []
    if (found := _first_ticks(plan)) is None:
        return left_out
    tried, until = found
    learners = {name: policy for name, policy in tried.policies.items() if policy.config.learns and policy.workers}
    kinds = {name: registry.algorithm(policy.config.algorithm) for name, policy in learners.items()}
    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="arena-check-") as home:
        folder = RunFolder.open(Path(home) / "run", named=True)
        run, begun = Run(tried, folder.path, leg=Leg(restore=initial_checkpoints(tried)), tried=True), time.monotonic()
        while True:
            run = _played(run, min(until, tried.horizon), events, "failed when it played: ")
            ticks, updates = run.leg.start, Counter(line["policy"] for line in JournalReader(folder.metrics))
            waiting = [
                name for name, one in learners.items() if name not in updates and not {*one.workers} <= run.leg.left
            ]
            if not waiting or run.concluded or time.monotonic() > begun + _SECONDS:
                break
            until = 4 * ticks
        own = {name: kind for name, kind in kinds.items() if not kind.__module__.startswith("policies.")}
        acting = {
            name: replace(learners[name], config=msgspec.structs.replace(learners[name].config, frozen=True))
            for name, kind in own.items()
            if hasattr(kind, "actor")
        }
        if acting or any(spec_of(kind).resumable for kind in own.values()):
            restore = {
                name: path for name, path in run.leg.restore.items() if name not in own or spec_of(own[name]).loads
            }
            run = replace(
                run,
                plan=replace(tried, policies={**tried.policies, **acting}),
                leg=replace(run.leg, restore=restore, left=frozenset()),
                greedy=True,
            )
            by = "actor()" if acting else "run()"
            _played(run, ticks + _MORE_TICKS, events, f"failed in load_state_dict(), or when its {by} played: ")
    of_all = f"{len(tried.matches)} of {pluralize(len(plan.matches), 'match', 'matches')}"
    again = [
        f"{name}: made again{' from its saved state' if spec_of(kind).resumable else ''}, then "
        f"{pluralize(_MORE_TICKS, 'tick')} by {'actor()' if name in acting else 'run()'}"
        for name, kind in own.items()
        if name in acting or spec_of(kind).resumable
    ]
    learned = "".join(f"; {name}: {pluralize(count, 'update')}" for name, count in updates.items())
    untried, less = [], min(64, max(1, ticks // 2))
    for name in (name for name in learners if name not in updates):
        known = registry.option_parameters(kinds[name]).names
        option = next((f"policies.{name}.options.{one}" for one in _TICKS_PER_UPDATE if one in known), "")
        untried.append(
            f"{name}: no update logged in {pluralize(ticks, 'tick')}, so its learning may be untried; "
            + (f"try it with less: --set {option}={less}" if option else "call `group.log` after each update")
        )
    said = dict.fromkeys(event.data["text"] for event in events if event.kind == "message")
    notes = (text for text in said if not text.startswith("run folder: "))
    return [f"played: {pluralize(ticks, 'tick')} of {of_all}{learned}", *again, *left_out, *untried, *notes]


def _played(run: Run, until: int, events: list[Event], failed: str) -> Run:
    """Plays a leg of a run that ends at tick `until`; returns the run as it continues."""
    config = msgspec.structs.replace(run.plan.config, checkpoint_every=until, ticks=max(until, run.plan.config.ticks))
    played = replace(run, plan=replace(run.plan, config=config))
    try:
        following = in_one_process(played, EventDisplay(played, events.append)).following
    except (RoleFailed, Deadlock) as error:
        failure = failure_of(error, "")
        text = failed if failure.key else ""
        raise ConfigError(text + (failure.brief or failure.message), path=failure.key) from error
    assert following is not None, "a run that is tried ends at its first boundary"
    return run.after(following)
