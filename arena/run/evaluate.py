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
from statistics import fmean
from typing import NamedTuple

import msgspec

from arena import registry
from arena.config.schema import Config
from arena.diagnostics.start_folder import anchored
from arena.errors import MISTAKE, ConfigError, WriteError, in_python
from arena.league.ratings.intervals import half_of_mean
from arena.league.sources import AnyConfig, Named, Source, opponent_of, opposed
from arena.opened import Table
from arena.plan.plan import UNBOUNDED_TICKS
from arena.preflight.external import refuse_external
from arena.records import checkpoint
from arena.records.atomic import make_folder
from arena.records.evaluations import line_of
from arena.records.folder import free_path
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Run
from arena.run.api import Listener, untouched_process
from arena.run.console import CONSOLE_OUTPUT, Output
from arena.run.evaluation import alike, check_episodes, episodes_per_lane, measured
from arena.run.loop import run_single_process
from arena.run.prepare import prepare
from arena.terminal.display import silent_display

Shown = Callable[["EvaluationMatch", Run, Scoreboard], None]


class EvaluationMatch(NamedTuple):
    """One evaluation run."""

    config: Config
    labels: Sequence[str]  # of the weights, more than one if they name the same ticks; an empty one: as configured
    titles: Mapping[str, str]  # of the policies whose results are shown
    folder: Path


class Weights(NamedTuple):
    """The policies with the weights that labels of `--checkpoints` select."""

    labels: Sequence[str]  # an empty one: weights as configured
    config: Config  # all frozen
    ticks: Mapping[str, int]  # at which they are, of the policies that have a checkpoint in the run

    def title(self, policy: str) -> str:
        """The beginning of the line with a policy's result."""
        if policy not in self.ticks:
            return f"{policy}, as configured"
        labels = ", ".join(label for label in self.labels if not label.isdecimal())
        return f"{policy} at tick {self.ticks[policy]}" + (f" ({labels})" if labels else "")


@in_python()
def evaluate(
    target: AnyConfig,
    episodes: int = 100,
    *,
    checkpoints: Sequence[str | int] | str = (),
    against: str | None = None,
    greedy: bool = True,
    run_dir: Path | str | None = None,
) -> Table:
    """Lets the policies of a run, or of a configuration, play without learning, as `arena evaluate`; prints nothing.

    Args:
        target: a run folder, a configuration file, its contents, or the same as `arena.Config`.
        episodes: at least so many; every lane plays the same number.
        checkpoints: of a run: `first`, `last`, `best`, or a number of ticks; empty: `last`.
        against: a policy, a policy at a tick (`blue@5000`), one of another run (`runs/a:blue@best`), or an algorithm,
            which takes all seats of others; None: as configured.
        greedy: the most likely actions rather than sampled ones.
        run_dir: below which the records go; None: the run's `evaluations/`, or `runs/`.

    Returns:
        a row for each policy and checkpoint: `checkpoint`, `policy`, `against`, `episodes`, `return` (the mean),
        `return_std`, its 95 % interval from `return_low` to `return_high`, `length` in ticks, `games` that had a winner
        or were drawn, the shares `wins`, `draws`, `losses` of them, `alike` (all of two or more games with the same
        players in their seats began with the same observations and had one length and the same returns, so there is no
        interval; nor is there of one episode), `folder` of the records, and `metrics/NAME`: the mean of each of the
        game's `metrics` over the policy's seats; None without a value.

    Raises:
        ConfigError: a mistake of the user, such as a checkpoint that is not there.
        RunFailed: a game has failed.
        KeyboardInterrupt: a signal, which it names, has ended it.
    """
    rows, listener = Table(), Listener(None)

    def add(match: EvaluationMatch, run: Run, scoreboard: Scoreboard) -> None:
        same, found = alike(run, least=1), measured(run)
        for policy in match.titles:
            line = msgspec.to_builtins(line_of(0, policy, scoreboard.policies[policy]))
            del line["ticks"]
            line["alike"] = any(policy in players for players in same)
            half = None if line["alike"] else half_of_mean(line["episodes"], line["return_std"])
            for name, side in (("return_low", -1), ("return_high", 1)):
                line[name] = None if half is None else line["return"] + side * half
            means = {f"metrics/{name}": fmean(of[policy]) if policy in of else None for name, of in found.items()}
            for label in match.labels:
                rows.append({"checkpoint": label, **line, "against": against, "folder": run.path, **means})

    check_episodes(episodes)
    labels = [checkpoints] if isinstance(checkpoints, str) else [str(label) for label in checkpoints]
    matches = matches_of(target, labels or None, against, run_dir)
    with untouched_process():
        for match in matches:
            _, status = play(match, episodes, add, greedy=greedy, output=listener, watched=False)
            listener.check(status)
    return rows


def matches_of(
    target: AnyConfig, checkpoints: Sequence[str] | None, against: str | None, run_dir: Path | str | None
) -> list[EvaluationMatch]:
    """The evaluations of a run or a configuration; arguments as of `evaluate`."""
    source = Source.of(target)
    folder = source.folder
    home = folder.path / "evaluations" if folder else anchored("runs")
    home = anchored(run_dir) if run_dir else home
    if folder is None and checkpoints is not None:
        raise ConfigError(
            "a configuration has no checkpoints; name a run folder", path="--checkpoints", source=source.path
        )
    with source.origin.located():
        labels = [""] if folder is None else checkpoints or ["last"]  # empty: the weights as configured
        weights: list[Weights] = []
        for found in (weights_of(source, label) for label in dict.fromkeys(labels)):
            same = next((number for number, one in enumerate(weights) if one.ticks == found.ticks), None)
            if same is None:
                weights.append(found)
            else:  # played once
                weights[same] = weights[same]._replace(labels=(*weights[same].labels, *found.labels))
        matches = [match for loaded in weights for match in _matches(loaded, source, against, home)]
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
    records = free_path(match.folder)
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


def weights_of(source: Source, label: str) -> Weights:
    """All policies frozen, with the weights that a label of `--checkpoints` selects; empty: as configured."""
    config = source.config
    loaded = [name for name in config.policies if source.files(name)]
    named = [Named(name, label if name in loaded else "") for name in config.policies]
    policies = {each.policy: source.frozen(each, path="--checkpoints") for each in named}
    if source.folder is not None and not loaded:
        raise ConfigError("no policy has a checkpoint in this run", source=source.path)
    frozen = msgspec.structs.replace(
        config.games_alone(),
        policies=policies,
        matches=tuple(entry for _, entry in config.entries()),
        ticks=UNBOUNDED_TICKS,
        rounds=1,
        league=None,
        scale=False,
    )
    ticks = {name: checkpoint.ticks_of(Path(str(policies[name].load))) for name in loaded}
    return Weights((label,), frozen, ticks)


def _matches(weights: Weights, source: Source, against: str | None, home: Path) -> list[EvaluationMatch]:
    """The evaluations of a source with these weights."""
    config = weights.config
    label = [weights.labels[0]] if weights.ticks else []
    base = [] if label else [f"{config.name}-evaluation"]

    def place(*names: str) -> Path:
        return home / re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(names))[:200]

    if against is None:
        seated = [name for name in config.policies if any(name in entry.names for _, entry in config.entries())]
        return [
            EvaluationMatch(
                config, weights.labels, {policy: weights.title(policy) for policy in seated}, place(*base, *label)
            )
        ]
    shown = [name for name in config.policies if name in weights.ticks or not weights.ticks]
    opponent = opponent_of(config, source, against)
    of_both = against in config.policies and against in registry.ALGORITHMS and opponent.algorithm != against
    described = f"the policy {against}" if of_both else against
    whose = Path(against).name[-100:]  # of RUN:POLICY@TICK without the folders above the run
    found = []
    for policy in shown:
        contested = opposed(config, policy, opponent)
        if contested is not None:
            comma = "" if policy in weights.ticks else ","
            titles = {policy: f"{weights.title(policy)}{comma} against {described}"}
            found.append(
                EvaluationMatch(contested, weights.labels, titles, place(*base, policy, *label, "against", whose))
            )
    if not found:
        raise ConfigError(
            f"{' and '.join(shown)} {'has' if len(shown) == 1 else 'have'} no match with seats of others, or of two "
            "`sides`: there is no seat to oppose from",
            path="--against",
        )
    return found
