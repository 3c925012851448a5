"""Experiments in Python: the keys of an experiment file, the same driver, and the outcome as objects."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from arena.config.schema import Config
from arena.diagnostics.start_folder import check_path
from arena.errors import ConfigError, in_python, located, nearest
from arena.experiment.checks import checking
from arena.experiment.config import ExperimentConfig, ExperimentFile, parse_experiment, read_experiment
from arena.experiment.display import PlainExperimentDisplay, Progress, display_for
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder, place_of
from arena.experiment.outcome import Combination, rank
from arena.experiment.plan import plan_experiment, slots_for
from arena.experiment.tables import FollowedExperiment, outcome_data
from arena.experiment.values import TrialRow
from arena.league.ratings.intervals import half_of_mean
from arena.league.sources import AnyConfig
from arena.opened import Table
from arena.records.result_file import numbers, read_results
from arena.run import mpirun

if TYPE_CHECKING:
    from arena.trainer import Trainer


class Trial:
    """A trial of an experiment, read from its files when they are asked for.

    Attributes:
        number: of the trial.
        name: of its run.
        variant: its name; empty without variants.
        params: the values that vary, by key path.
        seed: of the run.
        state: `pending`, `running`, `paused`, `terminated`, `pruned` or `error`.
        value: by which it is judged; None without one.
        folder: its run folder.
        why: the reason of its state in words.
    """

    def __init__(self, row: TrialRow) -> None:
        self.number, self.name, self.variant, self.params = row.number, row.name, row.variant, row.params
        self.seed, self.state, self.value, self.why = row.seed, row.state, row.value, row.why
        self.folder = Path(row.folder)

    def __repr__(self) -> str:
        return f"Trial({self.number}, {self.params}, seed={self.seed}, {self.state}, value={self.value})"

    @property
    def results(self) -> list[dict[str, Any]]:
        """All results of the run, NaN for null."""
        return read_results(self.folder) if self.folder.is_dir() else []

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest result; None without one."""
        found = self.results
        return found[-1] if found else None

    @property
    def analysis(self) -> dict[str, dict[str, float]]:
        """The greatest, the least and the last value of every number of the results, by its path."""
        found: dict[str, dict[str, float]] = {}
        for result in self.results:
            for path, value in numbers(result).items():
                known = found.setdefault(path, {"max": value, "min": value, "last": value})
                known.update(max=max(known["max"], value), min=min(known["min"], value), last=value)
        return found

    def trainer(self, **settings: Any) -> Trainer:
        """Goes on with the run; `settings` are those of `arena.Trainer.restore`."""
        from arena.trainer import Trainer

        return Trainer.restore(self.folder, **settings)


class Outcome:
    """The outcome of an experiment.

    Attributes:
        folder: of the experiment.
        combinations: a `Combination` each, the best one first.
        trials: by number; those that the experiment no longer asks for are left out.
        best: the best trial of the best combination; None without a value.
    """

    def __init__(self, folder: ExperimentFolder, config: ExperimentConfig, rows: Sequence[TrialRow]) -> None:
        self._folder, self._config, self._rows = folder, config, rows
        ranking = rank(self._rows, config.metric)
        self.folder = folder.path
        self.combinations: list[Combination] = ranking.combinations
        self.trials = {row.number: Trial(row) for row in self._rows}
        self.best = None if ranking.best is None else self.trials[ranking.best]

    def __repr__(self) -> str:
        return f"Outcome({str(self.folder)!r}, {len(self.trials)} trials, best={self.best})"

    def rows(self) -> Table:
        """A flat row per trial; what varies stands under its key path."""
        kept = ("number", "name", "variant", "seed", "state", "attempts", "ticks", "seconds", "value")
        return Table(
            {**{name: getattr(row, name) for name in kept}, **row.params, "folder": row.folder} for row in self._rows
        )

    def curves(self, metric: str) -> Table:
        """The learning curves: a row for each combination, the best one first, and each tick of its results.

        Columns: `combination`, its place in `combinations`, `ticks`, `mean` over its trials, Student's 95 % interval
        from `low` to `high` (None of a single trial), and `trials`, the number of those that have the metric there.

        Args:
            metric: a number of `result.json`, parts with `/`, as `policy_reward_mean/blue`.

        Raises:
            ConfigError: no result has it.
        """
        rows, known = Table(columns=("combination", "ticks", "mean", "low", "high", "trials")), dict[str, None]()
        for place, combination in enumerate(self.combinations):
            values: dict[int, list[float]] = {}
            for result in (result for number in combination.trials for result in self.trials[number].results):
                known |= dict.fromkeys(found := numbers(result))
                if metric in found:
                    values.setdefault(result["ticks"], []).append(found[metric])
            for tick, each in sorted(values.items()):
                mean, half = fmean(each), half_of_mean(len(each), stdev(each) if len(each) > 1 else 0.0)
                low, high = (None, None) if half is None else (mean - half, mean + half)
                rows.append(
                    {"combination": place, "ticks": tick, "mean": mean, "low": low, "high": high, "trials": len(each)}
                )
        if known and not rows:
            raise ConfigError(f"no result has the number {metric!r}; {nearest(metric, known)}")
        return rows

    def data(self) -> dict[str, Any]:
        """The outcome as `arena experiment --json` prints it."""
        return outcome_data(self._folder, self._config, self._rows)


class Experiment:
    """An experiment: the keys of an experiment file.

        Experiment(run="configs/cartpole.yaml", set={"ticks": {"grid_search": [4000, 8000]}}, repeat=3).run()

    Args:
        run: the configuration of each trial: its file, its contents, or an `arena.Config`.
        name: of the experiment and its folder.
        set: over the configuration, in every trial: by key path a value, or what varies.
        variants: by name, experiments with a `set` of their own, in order.
        repeat: trials of each combination, with the run's seed, + 1, + 2, ...
        stop: over the run's own `stop`.
        metric: what a trial is judged by: the name of a number of `result.json`, or `name`, `mode` and `scope`.
        search: how values are suggested: `{"random": {"trials": 40}}`, or `tpe`, `qmc`, `gp`.
        prune: which trials end early: one of Optuna's pruners, and its options.
        ranks: processes of a trial; None: slots / trials at the same time, at most one per role.
        at_once: trials at the same time, at most; None: as many as fit.
        gpus: devices of a trial; 0.5: two trials share one.
        retries: further attempts of a trial that fails.
        most_errors: no new trial starts after so many have failed for good; None: no limit.

    Raises:
        ConfigError: a wrong value.
    """

    def __init__(
        self,
        *,
        run: AnyConfig,
        name: str = "experiment",
        set: Mapping[str, Any] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
        repeat: int = 1,
        stop: Mapping[str, Any] | None = None,
        metric: str | Mapping[str, str] = "episode_reward_mean",
        search: Mapping[str, Mapping[str, Any]] | None = None,
        prune: Mapping[str, Mapping[str, Any]] | None = None,
        ranks: int | None = None,
        at_once: int | None = None,
        gpus: float = 0.0,
        retries: int = 1,
        most_errors: int | None = None,
    ) -> None:
        given = locals().copy()  # in Python 3.12 a comprehension adds to it under a debugger
        keys = {key: value for key, value in given.items() if key != "self" and value is not None}
        if not isinstance(run, (Config, Mapping)):
            with located(path="run"):
                check_path(run, "a configuration: the path of a file, its contents, or an arena.Config")
        self._file = parse_experiment(keys)

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
        """An experiment from a file.

        Args:
            path: of the file.
            overrides: `key.path=value` each, over its `set`.

        Raises:
            ConfigError: it cannot be read, or holds something that is not allowed.
        """
        return cls._of(read_experiment(path, overrides=overrides))

    @classmethod
    def _of(cls, file: ExperimentFile) -> Experiment:
        made = cls.__new__(cls)
        made._file = file
        return made

    @in_python(run_dir="folder=")
    def run(
        self,
        folder: str | Path | None = None,
        *,
        resume: bool = False,
        retry_errors: bool = False,
        hosts: str | None = None,
        verbose: bool = False,
    ) -> Outcome:
        """Runs all trials, each in processes of its own; returns when all are over. Trials that fail raise nothing.

        Args:
            folder: of the experiment; None: `experiments/<name>`, or the next free name.
            resume: go on with the experiment in the folder.
            retry_errors: with `resume`: try trials in error again.
            hosts: as `a:4,b:4`; None: the allocation, or this host.
            verbose: print lines as `arena experiment` does; `arena watch` shows them in another shell.

        Raises:
            ConfigError: a mistake of the user.
            WriteError: a file of the experiment cannot be written.
            KeyboardInterrupt: a signal, which it names, has ended it; `resume` goes on.
        """
        if mpirun.under_launcher():
            raise ConfigError("an experiment starts its runs itself; leave mpirun or srun out")
        if retry_errors and not resume:
            raise ConfigError("retry_errors has no effect without resume")
        with checking() as first_mistake:
            plan = plan_experiment(self._file, first_mistake)
        slots = slots_for(plan, hosts, os.environ)
        place = ExperimentFolder(place_of(plan.file.config.name, folder, resume=resume))
        progress = Progress(plan.ticks, plan.number, plan.file.config.metric)
        display = display_for(progress, sys.stdout) if verbose else PlainExperimentDisplay(io.StringIO(), progress)
        with opened(plan, place, resume=resume):
            driver = Driver(plan, place, slots, display, names_hosts=not slots.crowding, retry_errors=retry_errors)
            status = driver.run()
            rows = FollowedExperiment(place, plan.file.config).look()
        if status > 128:
            raise KeyboardInterrupt(signal.Signals(status - 128).name)
        return Outcome(place, plan.file.config, rows)


def open_experiment(folder: str | Path) -> Outcome:
    """The outcome of an experiment that is over, or so far of one that goes on.

    Raises:
        ConfigError: this is not the folder of an experiment, or it is damaged.
    """
    found = ExperimentFolder.existing(folder)
    config = found.read_config()
    return Outcome(found, config, FollowedExperiment(found, config).look())


def run_experiments(
    experiments: Iterable[Experiment | Mapping[str, Any] | str | Path], **settings: Any
) -> list[Outcome]:
    """Runs experiments one after the other; returns their outcomes.

    Args:
        experiments: objects, their keys, or files.
        settings: of `Experiment.run`.

    Raises:
        ConfigError: a mistake of the user; one in the keys of any of them is found before the first one starts.
    """
    made = []
    for each in experiments:
        if isinstance(each, Experiment):
            made.append(each)
        else:
            made.append(
                Experiment._of(parse_experiment(each)) if isinstance(each, Mapping) else Experiment.from_file(each)
            )
    return [each.run(**settings) for each in made]
