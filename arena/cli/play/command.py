"""`arena play`: a human takes a seat of a match, and all others play as `arena evaluate` would let them.

It is a run of one match in one lane and one process, with the algorithm `arena.cli.play.human` in the player's seats.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from arena.cli.arguments import add_overrides, non_negative_int, positive_int
from arena.cli.play.human import CLOSED_PIPE
from arena.cli.play.match import HumanMatch, MatchOutput, human_match, place_for_records, rated_game
from arena.errors import ConfigError
from arena.league.sources import Source
from arena.preflight.external import refuse_external
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.registry import import_plugins
from arena.replay.verify import TEXT
from arena.report.recorded import result_text
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.run.evaluate import weights_of
from arena.run.loop import run_single_process
from arena.run.prepare import prepare
from arena.terminal.display import silent_display
from arena.terminal.output import say

_SIGNALED = 128  # exit codes above it: ended by a signal
_AT_ONCE = (signal.SIGINT, signal.SIGTERM)


class _TerminalOutput(MatchOutput):
    """The output of a run in which a player who leaves is no failure."""

    algorithm, modes = "arena.cli.play.human:Human", (TEXT,)
    rated = False  # whether the games are to be

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        if failure.exit_code in (0, CLOSED_PIPE):  # then nothing is shown
            self.say(f"{failure.message}{'; no game of this command is rated' if self.rated else ''}")
        elif failure.exit_code > _SIGNALED:
            self.complain(f"arena: {failure.message.partition(';')[0]}")  # the rest is about the records
        else:
            super().fail(failure)

    def begin(self, game: HumanMatch) -> None:
        for player in game.players:
            say(str(player))

    def end(self, game: HumanMatch, records: RunFolder, rated: str, *, kept: bool) -> None:
        names = [player.name for player in game.players]
        names = [name if names.count(name) == 1 else f"{name} in seat {seat}" for seat, name in enumerate(names)]
        for record in JournalReader(records.episodes).lines(EpisodeRecord, missing_ok=True):
            say(result_text(record, names))
        if rated:
            say(rated)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Asks for each decision of a seat with more than one choice; all other seats play without learning, in this "
        "process."
    )
    parser.add_argument("target", metavar="CONFIG_OR_RUN", help="a configuration file, or a run's folder")
    parser.add_argument(
        "--match", type=non_negative_int, default=0, metavar="M", help="a place in the list of matches (default: 0)"
    )
    parser.add_argument(
        "--seat",
        type=non_negative_int,
        action="append",
        metavar="S",
        help="a place in the match's seats; may be given several times (default: 0)",
    )
    parser.add_argument(
        "--advice", metavar="POLICY", help="show what this policy, as blue or blue@5000, thinks of the choices"
    )
    parser.add_argument(
        "--checkpoints", metavar="LABEL", help="of a run: first, last, best, or a number of ticks (default: last)"
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="[SEAT=]POLICY",
        help="who takes the other seats, or one of them: a policy, as blue, blue@5000 or runs/a:blue@best, an "
        "algorithm such as random, or best, the highest rated of a run; may be given several times (default: as in the "
        "match)",
    )
    add_overrides(parser, "change one value of the configuration, such as envs.duel.kwargs.max_steps=50")
    parser.add_argument("--episodes", type=positive_int, default=1, metavar="N", help="play N episodes (default: 1)")
    parser.add_argument("--seed", type=non_negative_int, metavar="N", help="in place of the configuration's")
    parser.add_argument("--sample", action="store_true", help="the others sample their actions")
    parser.add_argument(
        "--rated",
        action="store_true",
        help="of a run: the games count in its standings, as the player human; their records are in its evaluations/",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="keep the records in this folder (default: nothing is kept)")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays in the terminal; returns the exit status."""
    output = _TerminalOutput()
    output.rated = arguments.rated
    return play(arguments, output)


def play(arguments: argparse.Namespace, output: MatchOutput) -> int:
    """Plays what the arguments of `arena play` say; returns the exit status."""
    source = Source.of(arguments.target, arguments.overrides)
    folder, config = source.folder, source.config
    import_plugins(config.imports)
    if folder is None and arguments.checkpoints is not None:
        raise ConfigError(
            "a configuration has no checkpoints; name a run folder", path="--checkpoints", source=arguments.target
        )
    with source.origin.located():
        label = "" if folder is None else arguments.checkpoints or "last"
        frozen = weights_of(source, label).config
        refuse_external(frozen)
        game = human_match(
            frozen,
            source,
            output,
            match=arguments.match,
            seats=arguments.seat or [0],
            against=arguments.against,
            advice=arguments.advice,
            options={"episodes": arguments.episodes},
        )
        rated = rated_game(folder, config, game) if arguments.rated else None
    kept = folder is not None and not arguments.run_dir and (output.on_pages or arguments.rated)
    config = game.config
    if arguments.seed is not None:
        config = msgspec.structs.replace(config, seed=arguments.seed)

    def present(run: Run, _scoreboard: object) -> None:
        output.end(game, run.folder, "" if rated is None else rated.keep(run.folder), kept=kept)

    with tempfile.TemporaryDirectory(prefix="arena-play-") as scratch:
        place = place_for_records(folder) if kept and folder is not None else Path(scratch) / "run"
        try:
            prepared = prepare(config, ranks=1, run_dir=arguments.run_dir or str(place))
            prepared = replace(prepared, episodes=arguments.episodes, greedy=not arguments.sample)
            output.begin(game)
            return run_single_process(
                prepared, present, silent_display(), output=output, watched=False, at_once=_AT_ONCE
            )
        finally:
            if kept and not any(JournalReader(RunFolder(place).episodes).lines(EpisodeRecord, missing_ok=True)):
                shutil.rmtree(place, ignore_errors=True)  # a player has left
