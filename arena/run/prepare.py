"""From a configuration to a run that can begin: the plan, the run folder, and the initial weights of the policies.

prepare    reads everything and claims a folder; a folder to resume is only read
begin      all roles are ready: writes what is known of the run into its folder
abandon    a role cannot begin, by a mistake or a wrong value of a game: removes the new folder
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from arena.config import Config, load_config, resolved_yaml
from arena.config.fields import OutcomeRule
from arena.config.members import needs_rules
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.preflight.later_seats import later_plans
from arena.records import boundary as boundaries
from arena.records import checksums
from arena.records.atomic import make_folder, replacing
from arena.records.folder import RunFolder
from arena.records.formats import Boundary, plan_file, write_document
from arena.records.lock import refuse_locked
from arena.roles.run import Leg, Run
from arena.run.mpirun import Restart
from arena.run.planning import checked_plan
from arena.run.resume import forget, initial_checkpoints, resumed, rolled_back


def prepare(config: Config, *, ranks: int | None, run_dir: str | None = None, resume: bool = False) -> Run:
    """Makes or finds the run folder and changes none of its files; `run_dir` None: `runs/<name>`, or the next free.

    `ranks` None: one for each role. `resume`: goes on with the run that is in the folder.

    Raises:
        ConfigError: a folder that is taken, nothing to resume, another game than that of the run to resume, a missing
            checkpoint, or a policy of a new run that cannot fill a seat of a later round or of an evaluation.
    """
    plan = checked_plan(config, ranks=ranks)
    later = later_plans(config)
    if needs_rules(config):
        from arena.preflight.outcomes import require_rules

        require_rules(config, plan, *later)
    if resume:
        folder = existing_folder(config, run_dir)
        return resumed(Run(plan, folder.path), config)
    if later:
        from arena.preflight.examine import examine

        examine(plan, later=later)
    restore = initial_checkpoints(plan)
    place, named = anchored(Path("runs") / config.name if run_dir is None else run_dir), run_dir is not None
    missing, existed = [one for one in place.parents if not os.path.exists(one)], named and os.path.exists(place)
    folder = RunFolder.open(place, named=named)
    made = "" if existed else str(missing[-1] if missing else folder.path)
    return Run(plan, folder.path, made_folder=made, leg=Leg(restore=restore))


def restarted(restart: Restart, *, ranks: int, resume: bool) -> Run | None:
    """The run as it continues after a death; None if it had not begun, so that it is prepared as at its first start.

    `resume`: the run had been resumed from the folder, which has a configuration then in any case.
    """
    folder = RunFolder(restart.folder)
    if not (restart.begun or (folder.config.exists() and not resume)):
        return None
    plan = checked_plan(load_config(folder.config), ranks=ranks)
    return rolled_back(Run(plan, folder.path, source=str(folder.config)))


def existing_folder(config: Config, run_dir: str | None) -> RunFolder:
    """The folder of an earlier part of a run, which no process is writing to.

    `run_dir` None: the newest of `runs/<name>`, `runs/<name>-2`, ... Raises ConfigError if there is none.
    """
    place = anchored(Path("runs") / config.name if run_dir is None else run_dir)
    folder = RunFolder.open(place, resume=True, named=run_dir is not None)
    refuse_locked(folder.path)  # refuses a second writer before it starts anything
    return folder


def begin(
    run: Run,
    *,
    resumable: bool,
    external: Mapping[int, str] | None = None,
    rules: Mapping[int, OutcomeRule | None] | None = None,
) -> None:
    """Writes into the run folder what is known before the start; removes what a resumed run will play again.

    If all algorithms can be saved and loaded, the run can be resumed from now on, from its first tick. For
    `external` and `rules` see `RunState`.
    """
    if run.resumed:
        forget(run)
    else:
        boundaries.discard_after(run.folder, -1)  # of a run that was killed in this folder
        checksums.drop(run.folder.rounds)
        run.folder.rounds.unlink(missing_ok=True)
    if run.episodes is None or run.plan.config.round_count > 1:  # a single leg loads them once, before this
        _keep_loaded(run)
    checksums.drop(run.folder.external)
    run.folder.external.unlink(missing_ok=True)  # a client that reads it waits until the games listen again
    if resumable and not run.resumed:
        boundaries.save(run.folder, Boundary(tick=0, journals=boundaries.journal_bytes(run.folder)))
    if run.plan.config.round_count > 1:
        from arena.run import rounds

        rounds.begin(run)
    run.folder.write_config(resolved_yaml(run.plan.config))  # from here on there is a run to resume
    if run.plan.round == 0:
        write_document(run.folder.plan, plan_file(run.plan, external, rules))


def _keep_loaded(run: Run) -> None:
    """Copies the checkpoints that `load` names into the run folder: the runs that they come from may remove them."""
    for name, path in run.leg.restore.items():
        load = run.plan.policies[name].config.load
        if load is None or run.path in path.parents:
            continue
        copy = run.folder.loaded_path(name, load)
        for part in (run.folder.loaded, copy.parent):
            make_folder(part)
        try:
            content = path.read_bytes()
        except OSError as error:
            text = f"{path} cannot be copied any more: {error.strerror}"
            raise ConfigError(text, path=f"policies.{name}.load") from error
        with replacing(copy) as file:  # no link: a file of the user's own may be written again
            file.write(content)


def abandon(run: Run) -> None:
    """Removes the folder of a new run that has not begun; of a folder that was there before, only its new files."""
    if not run.resumed:
        run.folder.remove_unbegun(run.made_folder)
