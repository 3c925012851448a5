"""`arena check`: validates a configuration, its environments and its algorithms, and plays its first ticks."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec

from arena import registry
from arena.cli.arguments import add_config
from arena.config import load_with_origin
from arena.errors import ConfigError, Deadlock, pluralize
from arena.plan.build import make_plan
from arena.plan.deadlock import waiting_text
from arena.plan.plan import MatchPlan, Plan, PolicyPlan, all_roles
from arena.plan.process_count import process_count
from arena.preflight.examine import Preflight
from arena.preflight.outcomes import rule_lines
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.perform import failure_of
from arena.roles.protocol import RoleFailed
from arena.roles.run import Leg, Run
from arena.run.api import preflight
from arena.run.console import Event, EventDisplay
from arena.run.loop import in_one_process
from arena.run.resume import initial_checkpoints
from arena.terminal.display import processes_text
from arena.terminal.output import say
from arena.terminal.rounds import gate_lines

_TICKS, _STEPS = 130, 1100  # that are played at most; of all lanes together
_ROLLOUT_TICKS, _ROLLOUT_STEPS = 513, 4104  # likewise, to play a whole rollout of a policy
_LANES = 256  # of all matches that are played after the first one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was checked; returns the exit status."""
    config, origin = load_with_origin(arguments.config, arguments.overrides)
    with origin.located():
        plan = make_plan(config, ranks=process_count(config, None, os.environ).number)
        findings = preflight(plan, config, conformance=True)
        waiting, refused = waiting_text(plan, findings.schedules)
        played = [] if refused else _try_out(plan, findings)
    for line in (
        *findings.lines,
        *findings.hints.values(),
        *played,
        *rule_lines(plan),
        *gate_lines(config),
        f"schedule: {waiting}",
    ):
        say(line)
    say(f"plan: {processes_text(plan.processes, len(plan.roles()))}")
    but = "; `arena train` refuses it, as it can deadlock" if refused else ""
    say(f"configuration {arguments.config}: valid{but}")
    return 0


def _first_ticks(plan: Plan, findings: Preflight) -> tuple[Plan, int] | None:
    """A plan of as many ticks as are tried out, and that number; None: there is nothing to play.

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
    ticks, policies = max(4, min(_TICKS, _STEPS // lanes)), dict[str, PolicyPlan]()
    for name, policy in plan.policies.items():
        workers = tuple((one.match, seat.index) for one in kept for seat in one.seats if seat.policy == name)
        policies[name] = PolicyPlan(name, policy.config, workers)
        share = max(share, -(-len(policy.workers) // len(workers)) if workers else 1)
        rollout = findings.policies[name].sizes.get("ticks per rollout") or policy.config.options.get("n_steps")
        if policy.config.learns and not findings.policies[name].sizes:  # a worker of the user's own
            ticks = max(ticks, min(_TICKS, _ROLLOUT_STEPS // lanes))
        if isinstance(rollout, int) and rollout < _ROLLOUT_TICKS and (rollout + 1) * lanes <= _ROLLOUT_STEPS:
            ticks = max(ticks, rollout + 1)
    ticks = min(ticks, plan.horizon)
    config = msgspec.structs.replace(
        plan.config.games_alone(),
        ticks=plan.horizon * share,  # fewer workers collect what an algorithm asks of the whole run in more ticks
        checkpoint_every=ticks,
        **{"rounds": 1, "league": None, "loggers": (), "record": "nothing", "on_env_error": "stop"},
    )
    return Plan(config, policies, tuple(kept), ranks=(all_roles(kept),)), ticks


def _try_out(plan: Plan, findings: Preflight) -> list[str]:
    """Plays the first ticks of a run in this process, in a temporary folder; returns lines about it.

    Raises:
        ConfigError: a game or an algorithm fails; it names the key and the line of the user's file.
    """
    if (found := _first_ticks(plan, findings)) is None:
        return []
    tried, ticks = found
    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="arena-check-") as home:
        folder = RunFolder.open(Path(home) / "run", named=True)
        run = Run(tried, folder.path, leg=Leg(restore=initial_checkpoints(tried)), tried=True)
        try:
            in_one_process(run, EventDisplay(run, events.append))
        except (RoleFailed, Deadlock) as error:
            failed = failure_of(error, "")
            text = "failed when it played: " if failed.key else ""
            raise ConfigError(text + (failed.brief or failed.message), path=failed.key) from error
        updates = Counter(line["policy"] for line in JournalReader(folder.metrics))
    of_all = f"{len(tried.matches)} of {pluralize(len(plan.matches), 'match', 'matches')}"
    learned = "".join(f"; {name}: {pluralize(count, 'update')}" for name, count in updates.items())
    untried = [
        f"{name}: no update logged in {pluralize(ticks, 'tick')}; its learning may be untried"
        for name, policy in tried.policies.items()
        if policy.config.learns and policy.workers and name not in updates
    ]
    said = (event.data["text"] for event in events if event.kind == "message")
    notes = (text for text in said if not text.startswith("run folder: "))
    return [f"played: {pluralize(ticks, 'tick')} of {of_all}{learned}", *untried, *notes]
