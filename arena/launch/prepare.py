"""From a configuration to a run that can begin: the plan, the run folder, and what the policies begin with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arena.config import Config, resolved_yaml
from arena.errors import ConfigError
from arena.plan import Plan, make_plan, to_json
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.records.journal import truncate_after
from arena.run import Run


def prepare(config: Config, *, ranks: int | None, run_dir: str | None = None, resume: bool = False) -> Run:
    """Makes or finds the run folder and writes into it what is known before the start.

    Args:
        config: a checked configuration.
        ranks: how many processes there are, None: as many as the plan needs.
        run_dir: the run folder, None: `runs/<name>`, or the next free name.
        resume: go on with the run that is in the folder.

    Raises:
        ConfigError: too few ranks, a folder that is taken, nothing to resume, a checkpoint that is not there.
    """
    plan = make_plan(config, ranks=ranks)
    given = {
        policy.name: checkpoint.find(policy.load, policy.name)
        for policy in plan.policies.values()
        if policy.load is not None
    }
    folder = RunFolder.open(run_dir or Path("runs") / config.name, resume=resume, given=run_dir is not None)
    run = Run(plan, folder.path, restore=given)
    if resume:
        run = _resumed(run)
    folder.write_config(resolved_yaml(config))
    folder.write_plan(to_json(plan))
    return run


def _resumed(run: Run) -> Run:
    """Goes on from the last tick of which every policy has a checkpoint; forgets what came after it."""
    folder = run.folder
    kept = _own_checkpoints(run.plan, folder)
    start = min((checkpoint.ticks_of(files[-1]) for files in kept.values()), default=0)
    if start >= run.plan.ticks:
        raise ConfigError(
            f"the run has played {start} ticks, the configuration asks for {run.plan.ticks}: there is nothing left "
            "to do; ask for more with --ticks",
            source=str(folder.path),
        )
    for name in kept:
        checkpoint.discard_after(folder.checkpoints_path(name), start)
    truncate_after(folder.episodes, start)
    truncate_after(folder.metrics, start)
    own = {name: folder.checkpoints_path(name) for name in kept} if start else {}
    return replace(run, start_tick=start, restore={**run.restore, **own})


def _own_checkpoints(plan: Plan, folder: RunFolder) -> dict[str, list[Path]]:
    found = {
        name: checkpoint.list_checkpoints(folder.checkpoints_path(name))
        for name, policy in plan.policies.items()
        if not policy.frozen
    }
    return {name: files for name, files in found.items() if files}
