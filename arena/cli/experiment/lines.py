"""What `arena experiment` prints: the trials of a plan, and those that have failed; and what `--trial` refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arena.errors import ConfigError, pluralize
from arena.experiment.folder import ExperimentFolder
from arena.experiment.plan import ExperimentPlan
from arena.experiment.process import last_lines
from arena.experiment.scheduler import State
from arena.experiment.slots import Slots
from arena.experiment.values import TrialRow
from arena.terminal.output import complain

_LOG_LINES = 5  # of a trial that has failed


def check_alone(plan: ExperimentPlan, trial: int, *, option: str = "--trial") -> None:
    """Refuses `--trial N` where the experiment has no such trial, or no trial of its own.

    Raises:
        ConfigError: trials depend on each other, or there are fewer.
    """
    config = plan.file.config
    if config.prune is not None or (plan.search is not None and plan.search.adaptive):
        key = "prune" if config.prune is not None else "search"
        raise ConfigError(f"a trial depends on the others, by `{key}`; leave {option} out", path=option)
    if trial >= plan.number:
        raise ConfigError(
            f"got {trial}; the experiment has the trials 0 to {plan.number - 1}",
            path="--trial",
            source=plan.file.source,
        )


def head_line(plan: ExperimentPlan, slots: Slots, *, only: int | None = None) -> str:
    """How many trials there are, with how many processes each, and how many run at the same time here.

    Args:
        plan: of the experiment.
        slots: that the trials share.
        only: the number of the one trial that is run.
    """
    hosts = "" if len(slots.hosts) == 1 else f" on {len(slots.hosts)} hosts"
    if only is not None:
        processes = plan.processes(slots, roles=plan.known[only].roles, alone=True)
        each = pluralize(processes, "process", "processes")
        return f"trial {only} of {pluralize(plan.number, 'trial')}, {each}{hosts}"
    each = pluralize(plan.processes(slots), "process", "processes")
    line = f"{pluralize(plan.number, 'trial')} of {each}, {plan.at_once(slots)} at the same time{hosts}"
    return f"{line}\n{plan.never_prunes}" if plan.never_prunes else line


def plan_lines(plan: ExperimentPlan, slots: Slots) -> list[str]:
    """The trials: number, what varies and seed; and how many run at the same time here."""
    lines = [f"{plan.file.config.name}: {head_line(plan, slots)}"]
    width = len(str(max(plan.number - 1, 0)))
    for number, trial in enumerate(plan.known):
        words = plan.trials.words(trial.variant, trial.params).replace(",", " ")
        seed = "" if "seed" in trial.params else f"seed={trial.seed}"
        count = pluralize(plan.processes(slots, roles=trial.roles), "process", "processes")
        lines.append(f"{number:{max(4, width)}}  {'  '.join(filter(None, [words, seed, count]))}")
    if plan.search is not None and plan.search.adaptive:
        varied = ", ".join(plan.trials.labels.values())
        lines.append(f"{plan.search.kind} suggests {varied} from what earlier trials have reached")
    return lines


def tell_failures(folder: ExperimentFolder, rows: Sequence[TrialRow]) -> None:
    """Shows the last lines of each trial in error, and where its log is."""
    for row in rows:
        if row.state == State.ERROR.value:
            log = folder.log_path(row.number)
            lines = "".join(f"    {line}\n" for line in last_lines(log, _LOG_LINES))
            tried = pluralize(row.attempts, "attempt")
            complain(f"trial {Path(row.folder).name}: error after {tried}: {row.why}; its log: {log}\n{lines}")
