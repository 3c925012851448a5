"""Evaluations of a run or a configuration: frozen policies play, each evaluation as a run of its own in this process.

All lanes play the same number of episodes, so that short episodes are not overrepresented.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena import registry
from arena.config import load_config, parse_config
from arena.config.schema import Config, PolicyConfig
from arena.diagnostics.start_folder import anchored
from arena.errors import MISTAKE, ConfigError, RunFailed, WriteError, located, nearest
from arena.league import rounds_file
from arena.opened import Table
from arena.plan.plan import UNBOUNDED_TICKS
from arena.preflight.external import refuse_external
from arena.records import checkpoint
from arena.records.atomic import make_folder
from arena.records.evaluations import line_of
from arena.records.folder import RunFolder, numbered
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Run
from arena.run.api import Listener, untouched_process
from arena.run.console import CONSOLE_OUTPUT, Output
from arena.run.evaluation import episodes_per_lane
from arena.run.loop import run_single_process
from arena.run.opponents import labeled_versions, opponent_of, opposed, policy_at
from arena.run.prepare import prepare
from arena.terminal.display import silent_display

Shown = Callable[["EvaluationMatch", Run, Scoreboard], None]


class EvaluationMatch(NamedTuple):
    """One evaluation run."""

    config: Config
    label: str  # of the weights; empty: as configured
    titles: Mapping[str, str]  # of the policies whose results are shown
    folder: Path


class Weights(NamedTuple):
    """The policies with the weights that one label of `--checkpoints` selects."""

    label: str  # empty: weights as configured
    config: Config  # all frozen
    loaded: frozenset[str]  # the policies that have a checkpoint in the run

    def title(self, policy: str) -> str:
        """The beginning of the line with a policy's result."""
        if policy not in self.loaded:
            return f"{policy}, as configured"
        which = f"its {self.label} checkpoint" if self.label in ("first", "last", "best") else f"tick {self.label}"
        return f"{policy} at {which}"


def evaluate(
    target: Config | Path | str,
    episodes: int = 100,
    *,
    checkpoints: Sequence[str | int] | str = (),
    against: str | None = None,
    greedy: bool = True,
    run_dir: Path | str | None = None,
) -> Table:
    """Lets the policies of a run, or of a configuration, play without learning, as `arena evaluate`; prints nothing.

    Args:
        target: a run folder, a configuration file, or the same as `arena.Config`.
        episodes: at least so many; every lane plays the same number.
        checkpoints: of a run: `first`, `last`, `best`, or a number of ticks; empty: `last`.
        against: a policy, a policy at a tick (`blue@5000`), or an algorithm, which takes all seats of others; None: as
            configured.
        greedy: the most likely actions rather than sampled ones.
        run_dir: below which the records go; None: the run's `evaluations/`, or `runs/`.

    Returns:
        a row for each policy and checkpoint: `checkpoint`, `policy`, `against`, `episodes`, `return` (the mean),
        `return_std`, `length` in ticks, `games` that had a winner or were drawn, the shares `wins`, `draws`, `losses`
        of them, and `folder` of the records.

    Raises:
        ConfigError: a mistake of the user, such as a checkpoint that is not there.
        RunFailed: a game has failed.
        KeyboardInterrupt: a signal has ended it.
    """
    rows, listener = Table(), Listener(None)

    def add(match: EvaluationMatch, run: Run, scoreboard: Scoreboard) -> None:
        for policy in match.titles:
            line = msgspec.to_builtins(line_of(0, policy, scoreboard.policies[policy]))
            del line["ticks"]
            rows.append({"checkpoint": match.label, **line, "against": against, "folder": run.path})

    if episodes < 1:
        raise ConfigError(f"found {episodes}; expected at least 1", path="episodes")
    labels = [checkpoints] if isinstance(checkpoints, str) else [str(label) for label in checkpoints]
    matches = matches_of(target if isinstance(target, Config) else str(target), labels or None, against, run_dir)
    with untouched_process():
        for match in matches:
            _, status = play(match, episodes, add, greedy=greedy, output=listener, watched=False)
            if status == MISTAKE:
                raise ConfigError(listener.failure)
            if status > 128:
                raise KeyboardInterrupt(status - 128)
            if status:
                raise RunFailed(listener.failure)
    return rows


def matches_of(
    target: Config | str, checkpoints: Sequence[str] | None, against: str | None, run_dir: Path | str | None
) -> list[EvaluationMatch]:
    """The evaluations of a run or a configuration; arguments as of `evaluate`."""
    source, folder = "", None
    if isinstance(target, Config):
        config = parse_config(target, source=source)
    else:
        source, folder = target, RunFolder.of_target(target)
        config = load_config(target if folder is None else folder.config)
    home = folder.path / "evaluations" if folder else anchored("runs")
    home = anchored(run_dir) if run_dir else home
    if folder is None and checkpoints is not None:
        raise ConfigError("a configuration has no checkpoints; name a run folder", path="--checkpoints", source=source)
    with located(source=source):
        labels = [""] if folder is None else checkpoints or ["last"]  # empty: the weights as configured
        weights = [weights_of(config, folder, label) for label in labels]
        version = None
        if against is not None and "@" in against and against not in config.policies:
            version = policy_at(config, folder, against, path="--against")
        matches = [match for loaded in weights for match in _matches(loaded, against, version, home)]
    if folder is not None:
        try:
            make_folder(home)  # readable for its owner alone, as all of a run folder
        except WriteError as error:
            raise ConfigError(str(error)) from error
    return matches


def play(
    match: EvaluationMatch,
    episodes: int,
    shown: Shown,
    *,
    greedy: bool,
    output: Output = CONSOLE_OUTPUT,
    watched: bool = True,
) -> tuple[Path, int]:
    """Plays an evaluation; returns the folder of its records, and the exit status.

    `watched`: whether a game that hangs ends the process, which a user's program must not.
    """
    records = next(one for one in map(match.folder.with_name, numbered(match.folder.name)) if not one.exists())
    refuse_external(match.config)
    made = [path for path in records.parents if not path.exists()]
    run = prepare(match.config, ranks=1, run_dir=str(records))
    run = replace(run, episodes=episodes_per_lane(run, match.titles, episodes), greedy=greedy)
    status = run_single_process(run, partial(shown, match), silent_display(), output=output, watched=watched)
    if status == MISTAKE:  # no folder is left behind
        shutil.rmtree(records, ignore_errors=True)
        with suppress(OSError):  # it holds other files, or is gone
            for path in made:
                path.rmdir()
    return records, status


def weights_of(config: Config, folder: RunFolder | None, label: str) -> Weights:
    """All policies frozen, with the weights that a label of `--checkpoints` selects; empty: as configured."""
    files: dict[str, Path] = {}
    policies: dict[str, PolicyConfig] = {}
    planned = [] if folder is None else rounds_file.read_played(folder, config)
    for name, policy in config.policies.items():
        if folder is not None and (labeled := labeled_versions(folder, name)):
            if label not in labeled:
                raise ConfigError(f"there is no checkpoint {label!r}; {nearest(label, labeled)}", path="--checkpoints")
            files[name] = labeled[label]
            options = rounds_file.options_at(planned, checkpoint.ticks_of(files[name])).get(name, policy.options)
            load: str | None = str(files[name])
        else:
            options = policy.options
            with located(path=f"policies.{name}.load"):  # the policy may play under another name
                load = None if policy.load is None else str(checkpoint.find(policy.load, name))
        policies[name] = msgspec.structs.replace(policy, frozen=True, load=load, options=options)
    if folder is not None and not files:
        raise ConfigError("no policy has a checkpoint in this run", source=str(folder.path))
    frozen = msgspec.structs.replace(
        config.games_alone(),
        policies=policies,
        matches=tuple(entry for _, entry in config.entries()),
        ticks=UNBOUNDED_TICKS,
        rounds=1,
        league=None,
        scale=False,
    )
    return Weights(label, frozen, frozenset(files))


def _matches(weights: Weights, against: str | None, version: PolicyConfig | None, home: Path) -> list[EvaluationMatch]:
    """The evaluations with these weights; `version`: what plays the other seats, if `against` is `blue@5000`."""
    config = weights.config
    base = [] if weights.label else [f"{config.name}-evaluation"]
    label = [weights.label] if weights.label else []

    def place(*names: str) -> Path:
        return home / re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(names))

    if against is None:
        seated = [name for name in config.policies if any(name in entry.names for _, entry in config.entries())]
        return [
            EvaluationMatch(
                config, weights.label, {policy: weights.title(policy) for policy in seated}, place(*base, *label)
            )
        ]
    shown = [name for name in config.policies if name in weights.loaded or not weights.loaded]
    opponent = opponent_of(config, against) if version is None else version
    of_both = against in config.policies and against in registry.ALGORITHMS and opponent.algorithm != against
    described = f"the policy {against}" if of_both else against
    found = []
    for policy in shown:
        contested = opposed(config, policy, opponent)
        if contested is not None:
            comma = "" if policy in weights.loaded else ","
            titles = {policy: f"{weights.title(policy)}{comma} against {described}"}
            found.append(
                EvaluationMatch(contested, weights.label, titles, place(*base, policy, *label, "against", against))
            )
    if not found:
        raise ConfigError(
            f"{' and '.join(shown)} {'has' if len(shown) == 1 else 'have'} no match with seats of others: there is no "
            "other seat to oppose from",
            path="--against",
        )
    return found
