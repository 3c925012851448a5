"""An experiment before it starts: its trials, checked as `arena train` checks a run, and the processes of each."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arena.config.named import refuse_main
from arena.config.result_keys import check_key
from arena.errors import ConfigError, located, pluralize
from arena.experiment.checks import FirstMistake
from arena.experiment.config import MOST_TRIALS, ExperimentFile
from arena.experiment.searching import Pruning, Search, can_prune, check_search, draws, read_search
from arena.experiment.slots import Slots
from arena.experiment.trials import Trial, Trials, covering
from arena.plan.hosts import Host, allocated, parse_hosts
from arena.plan.process_count import usable_cores
from arena.roles.status import planned_ticks
from arena.run.planning import checked_plan

_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class ExperimentPlan:
    """A checked experiment."""

    file: ExperimentFile
    trials: Trials  # makes their configurations
    known: tuple[Trial, ...]  # the trials that are known before the start, in order; none with an adaptive search
    search: Search | None  # how values are suggested; None: there is no search
    number: int  # of trials in the end
    most_roles: int  # of any trial, the root included
    ticks: int | None  # of the first trial, in all its rounds; None where the number of episodes decides
    never_prunes: str = ""  # a line, where the pruner can never end a trial; else empty

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.trials.variants[0].seed

    def processes(self, slots: Slots, *, roles: int | None = None, alone: bool = False) -> int:
        """The processes of a trial: `ranks`, else its share of the slots, at most one for each of its roles."""
        config = self.file.config
        if config.ranks is not None:
            return config.ranks
        together = slots.room(1, config.gpus, most=1 if alone else self._most_at_once)
        widest = max(host.slots for host in slots.hosts) if config.gpus else slots.total  # devices are of one host
        share = max(1, min(slots.total // max(1, together), widest, roles or self.most_roles))
        while share > 1 and slots.room(share, config.gpus, most=together) < together:
            share -= 1  # hosts with devices have different numbers of slots
        return share

    def at_once(self, slots: Slots) -> int:
        """How many trials run at the same time, each with the processes of the largest one."""
        return slots.room(self.processes(slots), self.file.config.gpus, most=self._most_at_once)

    @property
    def _most_at_once(self) -> int:
        return min(self.number, self.file.config.at_once or self.number)


def plan_experiment(file: ExperimentFile, first_mistake: FirstMistake | None = None) -> ExperimentPlan:
    """Makes and checks all trials that are known before the start; starts and writes nothing.

    Raises:
        ConfigError: the first mistake, with its place in the file, and the values of the trial that has it.
    """
    config, metric = file.config, file.config.metric
    with located(source=file.source):
        search = None if config.search is None else read_search(config.search)
        if config.prune is not None:
            Pruning(config.prune, metric.mode)
            if config.repeat > 1:
                text = "a trial that may be pruned is not repeated; leave `repeat` or `prune` out"
                raise ConfigError(text, path="repeat")
        trials = Trials(file)
        for variant in trials.variants:
            check_search(search, variant, variants=bool(config.variants))
        known: list[Trial] = []
        if search is None or not search.adaptive:
            searched = {each.path: each for variant in trials.variants for each in variant.searched}
            drawn = [{}] if search is None else draws(search, [*searched.values()], trials.variants[0].seed)
            for variant, params in [*trials.combinations(drawn)]:
                known += trials.repeated(variant.name, params)
        numbers: dict[str, int] = {}  # by digest: trials with equal ones would play the same bits
        for number, trial in enumerate(known):
            if (other := numbers.setdefault(trial.digest, number)) != number:
                one, two = (
                    trials.text(each.variant, each.params, each.seed) or "no values" for each in (known[other], trial)
                )
                raise ConfigError(
                    f"trials {other} ({one}) and {number} ({two}) have the same configuration; leave one of them out"
                )
        number = len(known)
        tried = [(variant.name, params) for variant in trials.variants for params in covering(variant)]
        configs = [trials.config_of(name, params) for name, params in tried]
        if search is not None and search.adaptive:
            number = search.trials * config.repeat
            if number > MOST_TRIALS:
                text = f"asks for {number} trials; at most {MOST_TRIALS}"
                raise ConfigError(text, path=f"search.{search.kind}.trials")
        for each, (name, params) in zip(configs, tried, strict=True):
            with located(path="metric", source=file.source):
                check_key(metric.name, each.policies, evaluates=each.evaluation is not None, rates=each.round_count > 1)
            try:
                refuse_main(each)
                checked_plan(each, ranks=1)
            except ConfigError as error:
                raise trials.blamed(error, name, params) from error
        if first_mistake is not None and (mistake := first_mistake(configs)) is not None:
            found = ConfigError(mistake.message, path=mistake.path, source=mistake.source)
            raise trials.blamed(found, *tried[mistake.number])
    roles = max([trial.roles for trial in known] + [each.roles + 1 for each in configs])
    first, ticks, never = configs[0], planned_ticks(configs[0]), ""
    if config.prune is not None and ticks is not None:
        every, period = checked_plan(first, ranks=1).result_every, 1  # results from one with the metric to the next
        if metric.name.startswith("evaluation/") and first.evaluation is not None:
            period = max(1, first.evaluation.every // every)
        elif metric.name.startswith("ratings/"):
            period = max(1, first.ticks // every)
        results = -(-ticks // every)
        if not can_prune(config.prune, trials=number, last=results - results % period):
            never = (
                f"prune.{next(iter(config.prune))} can never end a trial: its steps are results, of which a trial has "
                f"{results} (one in {every} ticks), and there are {pluralize(number, 'trial')}; set fewer "
                "n_warmup_steps or n_startup_trials, a smaller results.every, or leave `prune` out"
            )
    return ExperimentPlan(file, trials, tuple(known), search, number, roles, ticks, never)


def slots_for(plan: ExperimentPlan, hosts: str | None, environment: Mapping[str, str], *, alone: bool = False) -> Slots:
    """The slots that the trials share: of these hosts, of the SLURM allocation, or the cores of this one.

    Raises:
        ConfigError: no trial fits; there are no devices, or fewer than a trial asks for.
    """
    named = allocated(environment) if hosts is None else parse_hosts(hosts)
    here = Host(socket.gethostname(), usable_cores()[0])
    gpus = plan.file.config.gpus
    devices: Sequence[str] = ()
    if gpus and _DEVICES in environment:
        devices = [name for name in environment[_DEVICES].split(",") if name.strip()]
    elif gpus and (folder := Path("/proc/driver/nvidia/gpus")).is_dir():
        devices = [str(number) for number in range(len(os.listdir(folder)))]
    found = Slots(named or (here,), {host.name: devices for host in named or (here,)}, crowding=not named)
    processes = plan.processes(found, alone=alone)
    if gpus and len(devices) < gpus:
        text = f"a trial asks for {gpus:g}, this host has {pluralize(len(devices), 'device')}"
        raise ConfigError(text, path="gpus", source=plan.file.source)
    if not found.room(processes, gpus, most=1):
        most = max(host.slots for host in found.hosts) if gpus else found.total
        raise ConfigError(
            f"a trial of {pluralize(processes, 'process', 'processes')} does not fit on "
            f"{pluralize(len(found.hosts), 'host')} with {pluralize(found.total, 'slot')} in all; write "
            f"`ranks: {most}` or less, so that a process hosts several roles",
            path="ranks",
            source=plan.file.source,
        )
    return found
