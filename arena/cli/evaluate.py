"""`arena evaluate`: plays without learning, with the weights of a run's checkpoints, and prints the results.

Every evaluation is a run of its own in one process: all policies frozen, the same number of episodes in every lane, so
that short episodes are not overrepresented.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena import registry
from arena.cli.arguments import positive_int
from arena.config import load_config
from arena.config.schema import Config, PolicyConfig
from arena.diagnostics.start_folder import anchored
from arena.errors import MISTAKE, ConfigError, WriteError, located, nearest, shown
from arena.league import rounds_file
from arena.plan.plan import UNBOUNDED_TICKS
from arena.preflight.external import refuse_external
from arena.records import checkpoint
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.outcome import without_winner_text
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Run
from arena.run.evaluation import alike_text, episodes_per_lane, result_text
from arena.run.loop import run_single_process
from arena.run.opponents import labeled_versions, opponent_of, opposed, policy_at
from arena.run.prepare import prepare
from arena.terminal.display import silent_display
from arena.terminal.output import say


class EvaluationMatch(NamedTuple):
    """One evaluation run."""

    config: Config
    titles: Mapping[str, str]  # of the policies whose results are printed
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Plays in this one process."
    parser.add_argument("target", metavar="RUN_OR_CONFIG", help="a run's folder, or a configuration file")
    parser.add_argument(
        "--episodes",
        type=positive_int,
        default=100,
        metavar="N",
        help="at least N episodes: every lane plays the same number (default: 100)",
    )
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        metavar="WHICH",
        help="of a run: first, last, best, or a number of ticks (default: last)",
    )
    parser.add_argument(
        "--against", metavar="POLICY", help="a policy, blue@5000, or algorithm that takes all other seats"
    )
    parser.add_argument("--sample", action="store_true", help="sampled actions instead of the most likely ones")
    parser.add_argument(
        "--run-dir", metavar="DIR", help="below which the records go (default: its evaluations/, or runs/)"
    )
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Plays, prints one line per policy and checkpoint, and where the records are; returns the exit status."""
    target, checkpoints, against = arguments.target, arguments.checkpoints, arguments.against
    folder = RunFolder.of_target(target)
    config = load_config(target if folder is None else folder.config)
    home = folder.path / "evaluations" if folder else anchored("runs")
    home = anchored(arguments.run_dir) if arguments.run_dir else home
    if folder is None and checkpoints is not None:
        raise ConfigError("a configuration has no checkpoints; name a run folder", path="--checkpoints", source=target)
    with located(source=target):
        labels = [""] if folder is None else checkpoints or ["last"]  # empty: the weights as configured
        weights = [weights_of(config, folder, label) for label in labels]
        version = None
        if against is not None and "@" in against and against not in config.policies:
            version = policy_at(config, folder, against, path="--against")
        contests = [contest for loaded in weights for contest in _contests(loaded, against, version, home)]
    if folder is not None:
        try:
            make_folder(home)  # readable for its owner alone, as all of a run folder
        except WriteError as error:
            raise ConfigError(str(error)) from error
    played: list[str] = []
    for contest in contests:
        numbered = (
            contest.folder if number == 1 else contest.folder.with_name(f"{contest.folder.name}-{number}")
            for number in itertools.count(1)
        )
        records = next(candidate for candidate in numbered if not candidate.exists())
        refuse_external(contest.config)
        made = [path for path in records.parents if not path.exists()]
        run = prepare(contest.config, ranks=1, run_dir=str(records))
        lanes_play = episodes_per_lane(run, contest.titles, arguments.episodes)
        run = replace(run, episodes=lanes_play, greedy=not arguments.sample)
        status = run_single_process(run, partial(_present, contest), silent_display())
        if status == MISTAKE:  # no folder is left behind
            shutil.rmtree(records, ignore_errors=True)
            with suppress(OSError):  # it holds other files, or is gone
                for path in made:
                    path.rmdir()
        if status != 0:
            return status
        played.append(shown(records))
    say(f"records: {', '.join(played)}")
    return 0


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
        schedule=1,
        league=None,
        scale=False,
    )
    return Weights(label, frozen, frozenset(files))


def _contests(weights: Weights, against: str | None, version: PolicyConfig | None, home: Path) -> list[EvaluationMatch]:
    """The evaluations with these weights; `version`: what plays the other seats, if `against` is `blue@5000`."""
    config = weights.config
    base = [] if weights.label else [f"{config.name}-evaluation"]
    label = [weights.label] if weights.label else []

    def place(*names: str) -> Path:
        return home / re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(names))

    if against is None:
        seated = [name for name in config.policies if any(name in entry.names for _, entry in config.entries())]
        return [EvaluationMatch(config, {policy: weights.title(policy) for policy in seated}, place(*base, *label))]
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
            found.append(EvaluationMatch(contested, titles, place(*base, policy, *label, "against", against)))
    if not found:
        raise ConfigError(
            f"{' and '.join(shown)} {'has' if len(shown) == 1 else 'have'} no match with seats of others: there is no "
            "other seat to oppose from",
            path="--against",
        )
    return found


def _present(contest: EvaluationMatch, run: Run, scoreboard: Scoreboard) -> None:
    for policy, title in contest.titles.items():
        say(f"{title}: {result_text(scoreboard.policies[policy])}")
    decided = any(score.games.count for score in scoreboard.policies.values())
    rules = {match.env: match.game.outcome for match in run.plan.matches if len(match.seats) > 1}
    for line in [*([] if decided else without_winner_text(rules)), *alike_text(run, remedy="--sample")]:
        say(line)
