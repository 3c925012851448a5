"""The command line: `arena COMMAND ...`. Exit codes: 0 done, 1 a run that failed, 2 a user's mistake, 130 Ctrl-C, 141
nobody read.

What a command needs is imported inside it: `arena --help` starts neither MPI nor torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena import __version__
from arena.errors import ConfigError, Origin, WriteError, located, nearest
from arena.run.stop import restored_handlers
from arena.terminal.output import guarded_output, present_streams

if TYPE_CHECKING:
    from arena.config import Config
    from arena.plan.plan import Plan
    from arena.plan.process_count import ProcessCount, RanksWanted
    from arena.preflight.examine import Preflight

_DESCRIPTION = "Many policies learning with and against each other, in many copies of many games, over MPI."
_EXIT_CODES = (
    "Exit codes: 0 done, 1 the run failed, 2 a mistake in the configuration or on the command line (the message begins "
    "with `arena: error:`), 130 ended by Ctrl-C (SIGINT), 143 ended by SIGTERM, 0 ended by SIGUSR1, 141 the reader of "
    "a command that only prints has closed the pipe. Under an mpirun or srun of your own the exit code is the "
    "launcher's."
)
_NOBODY_READS = 128 + 13  # as of a program that SIGPIPE ends
_TOO_MANY = 2**53  # from here on, a float no longer holds every integer
_PORT, _LAST_PORT = 8000, 65535
_FASTEST = 240  # ticks of a video in a second
_OVERRIDE_HELP = "change one value of the configuration, such as matches[0].lanes=4; may be given many times"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code; a usage error of argparse ends with exit 2 by itself.

    What signals do is afterwards what it was before. Outside of the main thread no signal ends a run gracefully.
    """
    present_streams()
    with restored_handlers(), guarded_output(lasts=False):
        return _status(argv)


def _status(argv: Sequence[str] | None) -> int:
    """Runs a command; what the user has done wrong is told in a sentence."""
    arguments = argparse.Namespace(plays=False)
    try:
        _parser().parse_args(argv, arguments)
        with guarded_output(lasts=arguments.plays):
            return _done(arguments)
    except ConfigError as error:
        _tell(f"arena: error: {error}\n")
        return 2
    except WriteError as error:  # not `error:`, which announces exit code 2, also to the launcher that hears it
        _tell(f"arena: failed: {error}\n")
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        if arguments.plays:
            raise  # no reader of ours: output that lasts needs none
        return _NOBODY_READS
    except KeyboardInterrupt as error:  # where nobody else has taken it, as while modules are imported
        number = error.args[0] if error.args and isinstance(error.args[0], int) else signal.SIGINT
        return 128 + number


def _done(arguments: argparse.Namespace) -> int:
    from arena.launch import mpirun

    mpirun.settle()  # before NumPy is imported: with --ranks 1 no launcher of ours has done so
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that a configuration can name a user's own `my_module:MyWorker`
    status = int(arguments.command(arguments))
    sys.stdout.flush()  # while there is somebody to tell what cannot be written
    return status


def _tell(text: str) -> None:
    """Says on stderr why a command ends; its exit code says so where stderr takes nothing."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names: what is short for one today may be short for two tomorrow.

    What it says goes out at once: what cannot be written of help is an error, of a usage error its exit code says
    enough.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            _say(message.removesuffix("\n"))
        else:
            _tell(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses what is unknown: a command does so itself, and shows its own usage and the nearest option."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
            hints = [f"{word}; {nearest(word.partition('=')[0], options)}" for word in unknown if word.startswith("-")]
            self.error(f"unrecognized arguments: {(hints or [' '.join(unknown)])[0]}")
        return found, unknown


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="arena", description=_DESCRIPTION, epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"arena {__version__}")
    parser.set_defaults(plays=False)  # whether a command goes on when nobody reads what it says
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_train(commands)
    _add_plan(commands)
    _add_check(commands)
    _add_evaluate(commands)
    _add_tournament(commands)
    _add_exploit(commands)
    _add_replay(commands)
    _add_report(commands)
    _add_watch(commands)
    _add_slurm(commands)
    _add_doctor(commands)
    _add_list(commands)
    return parser


def _add_list(commands: Any) -> None:
    listing = commands.add_parser(
        "list", help="the built-in environments, wrappers, algorithms, generators of matches and rules, or options"
    )
    listing.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="whose options to show: of one, or of all environments, wrappers, algorithms, generators or rules",
    )
    listing.add_argument(
        "--markdown",
        action="store_true",
        help="as a page: of NAMEs, of all keys (configuration), of all commands (commands); without a NAME of all "
        "algorithms",
    )
    listing.set_defaults(command=_list)


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="run a configuration",
        description="Under mpirun or srun: takes its roles in the run. Otherwise: starts mpirun itself with as many "
        "processes as --ranks or the configuration says; by default one for each core, at least 2, at most one for "
        "each role.",
    )
    _add_config(train)
    _add_run(train, folder="runs/<name>")
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoints of the run's folder")
    _add_ranks(train)
    train.set_defaults(command=_train, plays=True)


def _add_run(parser: argparse.ArgumentParser, *, folder: str) -> None:
    """What can be said of a run beside its configuration."""
    parser.add_argument("--run-dir", metavar="DIR", help=f"the run's folder (default: {folder})")
    parser.add_argument("--ticks", type=_count, metavar="N", help="ticks of every match, over the configuration's")
    parser.add_argument("--profile", action="store_true", help="measure where the time of every role goes")
    parser.add_argument(
        "--allow-unproved",
        action="store_true",
        help="start also what can deadlock, as `arena plan` says: if it does, it ends with an error",
    )


def _add_plan(commands: Any) -> None:
    plan = commands.add_parser("plan", help="show which rank does what, without starting anything")
    _add_config(plan)
    _add_ranks(plan)
    plan.add_argument(
        "--hosts", metavar="A:4,B:4", help="hosts and how many processes each takes (default: those of the allocation)"
    )
    form = plan.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--dot", action="store_true", help="as a drawing for Graphviz")
    form.add_argument(
        "--probe", action="store_true", help="play the first match for two seconds, and predict memory and ticks/s"
    )
    plan.set_defaults(command=_plan)


def _add_check(commands: Any) -> None:
    check = commands.add_parser("check", help="validate a configuration, its environments and its algorithms")
    _add_config(check)
    check.set_defaults(command=_check)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="play without learning", description="Plays in this one process.")
    evaluate.add_argument("target", metavar="RUN_OR_CONFIG", help="a run's folder, or a configuration file")
    evaluate.add_argument(
        "--episodes",
        type=_count,
        default=100,
        metavar="N",
        help="at least N episodes: every lane plays the same number (default: 100)",
    )
    evaluate.add_argument(
        "--checkpoints",
        nargs="+",
        metavar="WHICH",
        help="of a run: first, last, or a number of ticks (default: last)",
    )
    evaluate.add_argument("--against", metavar="POLICY", help="a policy or algorithm that takes all other seats")
    evaluate.add_argument("--sample", action="store_true", help="sampled actions instead of the most likely ones")
    evaluate.add_argument(
        "--run-dir", metavar="DIR", help="below which the records go (default: its evaluations/, or runs/)"
    )
    evaluate.set_defaults(command=_evaluate, plays=True)


def _add_tournament(commands: Any) -> None:
    tournament = commands.add_parser(
        "tournament",
        help="play without learning until the ranking is decided",
        description="Policies of configurations and runs, frozen, meet on both sides; those first whose result would "
        "change the standings most.",
    )
    tournament.add_argument("targets", nargs="+", metavar="CONFIG_OR_RUN", help="whose policies play")
    tournament.add_argument(
        "--episodes", type=_count, default=10_000, metavar="N", help="at most N games (default: 10000)"
    )
    tournament.add_argument(
        "--error",
        type=_share,
        metavar="P",
        help="stop when some two players are in the wrong order with at most this probability (default: 0.05; with "
        "--resume what it was)",
    )
    tournament.add_argument(
        "--elo",
        type=_elo,
        metavar="D",
        help="differences below D do not count (default: 20; with --resume what it was)",
    )
    tournament.add_argument(
        "--players", type=_names, default=[], metavar="A,B", help="these alone, as blue or blue@5000 (default: all)"
    )
    tournament.add_argument(
        "--checkpoints",
        nargs="+",
        default=["last"],
        metavar="WHICH",
        help="of runs: first, last, or numbers of ticks (default: last)",
    )
    tournament.add_argument(
        "--untrained",
        action="store_true",
        help="take policies of configurations that learn and `load:` no checkpoint with their first weights",
    )
    tournament.add_argument("--sample", action="store_true", help="sampled actions instead of the most likely ones")
    tournament.add_argument("--ranks", type=_count, metavar="N", help="processes (default: 1, everything in this one)")
    tournament.add_argument("--run-dir", metavar="DIR", help="its folder (default: runs/<name>-tournament)")
    tournament.add_argument("--resume", action="store_true", help="go on with the one in its folder")
    tournament.add_argument("--json", action="store_true", help="as JSON")
    tournament.set_defaults(command=_tournament, plays=True)


def _add_exploit(commands: Any) -> None:
    exploit = commands.add_parser(
        "exploit",
        help="how much can be won from a policy?",
        description="A responder learns against the policy, which does not, and then shows what it has learnt: a lower "
        "bound of the policy's exploitability.",
    )
    exploit.add_argument("run", metavar="RUN", help="the folder of the run that the policy is from")
    exploit.add_argument("--policy", required=True, metavar="POLICY", help="as blue, or blue@5000")
    exploit.add_argument(
        "--ticks", type=_count, metavar="N", help="for which the responder learns (default: the run's, all its rounds)"
    )
    exploit.add_argument("--algorithm", default="ppo", metavar="NAME", help="of the responder (default: ppo)")
    exploit.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="options.KEY=VALUE",
        help="of the responder; may be given many times",
    )
    exploit.add_argument(
        "--episodes", type=_count, default=1000, metavar="N", help="at least N show what it has learnt (default: 1000)"
    )
    exploit.add_argument(
        "--seats",
        type=_number,
        nargs="+",
        default=[],
        metavar="SEAT",
        help="the responder's, from 0 (default: those that the policy does not have; if it has all, each side in turn)",
    )
    exploit.add_argument("--ranks", type=_count, metavar="N", help="processes (default: 1, everything in this one)")
    exploit.add_argument("--run-dir", metavar="DIR", help="its folder (default: runs/<name>-exploits-<policy>)")
    exploit.add_argument("--json", action="store_true", help="as JSON")
    exploit.set_defaults(command=_exploit, plays=True)


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="play recorded episodes again",
        description="Of a run with `record: replays`: lists what there is, or tells what happens in an episode.",
    )
    replay.add_argument("run", metavar="RUN", help="a run's folder")
    replay.add_argument("--match", type=_number, metavar="M", help="this match (default: all)")
    replay.add_argument("--episode", type=_number, metavar="E", help="this episode of it, as in episodes.jsonl")
    replay.add_argument("--lane", type=_number, metavar="L", help="of this lane (default: all, or for an episode 0)")
    replay.add_argument("--round", type=_number, metavar="R", help="of this round of a league (default: all, or 0)")
    replay.add_argument("--video", metavar="FILE", help="write the episode's pictures: .mp4, .gif or .webp")
    replay.add_argument("--per-second", type=_speed, metavar="N", help="ticks of the video (default: as the game says)")
    replay.add_argument(
        "--verify", action="store_true", help="compare with what was recorded; exit code 1: something differs"
    )
    replay.set_defaults(command=_replay)


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="make a page of a run",
        description="One HTML file that opens offline: standings, curves, plan, time, faults, replays. The run may be "
        "under way. Replays are played again, so that the run's games must be there.",
    )
    report.add_argument("run", metavar="RUN", help="a run's folder")
    report.add_argument("--output", metavar="FILE", help="the page (default: report.html in the run's folder)")
    report.add_argument("--replays", type=_number, default=3, metavar="N", help="show at most N replays (default: 3)")
    report.add_argument(
        "--serve",
        type=_port,
        nargs="?",
        const=_PORT,
        metavar="PORT",
        help=f"serve the page on this machine and keep it up to date (default: port {_PORT}; 0: any)",
    )
    report.set_defaults(command=_report)


def _add_watch(commands: Any) -> None:
    watch = commands.add_parser(
        "watch", help="show how a run goes", description="Follows the files of a run until it ends; Ctrl-C ends it."
    )
    watch.add_argument("run", metavar="RUN", help="a run's folder")
    watch.set_defaults(command=_watch)


def _add_slurm(commands: Any) -> None:
    slurm = commands.add_parser(
        "slurm",
        help="write a batch file for SLURM",
        description="Writes a file for sbatch: a checkpoint before the time is over, then the queue again, until the "
        "run is done.",
    )
    _add_config(slurm)
    slurm.add_argument("--time", required=True, metavar="TIME", help="limit of each start: 4h, 1d12h, 90m, 04:00:00")
    slurm.add_argument("--nodes", type=_count, default=1, metavar="N", help="hosts (default: 1)")
    ranks = slurm.add_mutually_exclusive_group()
    ranks.add_argument(
        "--ranks",
        type=_count,
        metavar="N",
        help="processes in all (default: the configuration's `ranks`, if that is a number, else one for each role)",
    )
    ranks.add_argument("--ranks-per-node", type=_count, metavar="N", help="processes on each host")
    slurm.add_argument("--output", metavar="FILE", help="the batch file (default: <name>.sbatch; -: to the console)")
    _add_run(slurm, folder="runs/<name>-<number of the job>")
    slurm.set_defaults(command=_slurm)


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="is this machine ready?",
        description="Looks at Python, MPI, memory, disk, clock and torch; takes some seconds. Exit code 1: there is a "
        "problem.",
    )
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(command=_doctor)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY.PATH=VALUE", help=_OVERRIDE_HELP
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks",
        type=_ranks,
        metavar="N",
        help="processes: a number, 1: everything in this one; auto: one for each core; one_per_role (default: the "
        "configuration's `ranks`, auto)",
    )


def _count(text: str) -> int:
    try:
        number = float(text)  # such as 1e6
    except ValueError:
        number = 0.0
    if not (number.is_integer() and 1 <= number < _TOO_MANY):
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(number)


def _ranks(text: str) -> RanksWanted:
    if text == "auto":
        return "auto"
    if text == "one_per_role":
        return "one_per_role"
    try:
        return _count(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, auto or one_per_role, got {text!r}") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def _names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"expected names of players, as blue,red, got {text!r}")
    return found


def _share(text: str) -> float:
    return _between(text, 0.0, 0.5)


def _elo(text: str) -> float:
    return _between(text, 0.0, 4000.0)


def _between(text: str, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = low
    if not low < number <= high:
        raise argparse.ArgumentTypeError(f"expected a number above {low:g}, at most {high:g}, got {text!r}")
    return number


def _port(text: str) -> int:
    number = _number(text)
    if number > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {_LAST_PORT}, got {text!r}")
    return number


def _speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _FASTEST:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {_FASTEST}, got {text!r}")
    return number


def _train(arguments: argparse.Namespace) -> int:
    from arena.cli.train import train

    return train(
        arguments.config,
        overrides=arguments.overrides,
        run_dir=arguments.run_dir,
        ticks=arguments.ticks,
        resume=arguments.resume,
        ranks=arguments.ranks,
        profile=arguments.profile,
        allow_unproved=arguments.allow_unproved,
    )


def _plan(arguments: argparse.Namespace) -> int:
    from arena.config import load_with_origin
    from arena.plan.plan import to_json
    from arena.terminal import plan as show
    from arena.terminal.rounds import rounds_lines

    config, origin = load_with_origin(arguments.config, arguments.overrides)
    count = _process_count(config, arguments.ranks)
    plan = _load_plan(arguments.config, arguments.overrides, count.number)
    rounds = rounds_lines(config)
    examination = _examine(plan, config, origin)
    hosts = _hosts(plan, arguments.hosts)
    if arguments.json:
        _say(json.dumps(to_json(plan), indent=2))
    elif arguments.dot:
        _say(show.dot(plan, rounds=rounds))
    else:
        overrides = [part for text in arguments.overrides for part in ("--set", text)]
        text = show.plan_text(
            plan,
            examination,
            config=arguments.config,
            arguments=overrides,
            hosts=hosts,
            rounds=rounds,
            evaluation=config.evaluation,
            ranks=count.words,
        )
        _say(text)
    if arguments.probe:
        from arena.cli.probe import probe, probe_text

        _say(f"\n{probe_text(plan, probe(plan))}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from arena.config import load_with_origin
    from arena.terminal.plan import prove_plan, schedule_text
    from arena.terminal.rounds import gate_lines
    from arena.terminal.text import processes_words

    config, origin = load_with_origin(arguments.config, arguments.overrides)
    plan = _load_plan(arguments.config, arguments.overrides, _process_count(config, None).number)
    examination = _examine(plan, config, origin, conformance=lambda line: _tell(f"{line}\n"))
    proof = prove_plan(plan, examination)
    for line in (*examination.lines, *gate_lines(config), schedule_text(proof)):
        _say(line)
    _say(f"plan: {processes_words(plan.processes, len(plan.roles()))}")
    refused = proof.circle is not None
    but = "; `arena train` refuses it without --allow-unproved, as it can deadlock" if refused else ""
    _say(f"configuration {arguments.config}: valid{but}")
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from arena.cli.evaluate import evaluate

    return evaluate(
        arguments.target,
        episodes=arguments.episodes,
        checkpoints=arguments.checkpoints,
        against=arguments.against,
        greedy=not arguments.sample,
        run_dir=arguments.run_dir,
    )


def _tournament(arguments: argparse.Namespace) -> int:
    from arena.cli.tournament import tournament

    return tournament(
        arguments.targets,
        episodes=arguments.episodes,
        error=arguments.error,
        elo=arguments.elo,
        players=arguments.players,
        checkpoints=arguments.checkpoints,
        greedy=not arguments.sample,
        ranks=arguments.ranks,
        run_dir=arguments.run_dir,
        resume=arguments.resume,
        as_json=arguments.json,
        untrained=arguments.untrained,
    )


def _exploit(arguments: argparse.Namespace) -> int:
    from arena.cli.exploit import exploit

    return exploit(
        arguments.run,
        policy=arguments.policy,
        ticks=arguments.ticks,
        algorithm=arguments.algorithm,
        overrides=arguments.overrides,
        episodes=arguments.episodes,
        seats=arguments.seats,
        ranks=arguments.ranks,
        run_dir=arguments.run_dir,
        as_json=arguments.json,
    )


def _replay(arguments: argparse.Namespace) -> int:
    from arena.cli.replay import replay

    return replay(
        arguments.run,
        match=arguments.match,
        episode=arguments.episode,
        round=arguments.round,
        lane=arguments.lane,
        video=arguments.video,
        verify=arguments.verify,
        per_second=arguments.per_second,
    )


def _report(arguments: argparse.Namespace) -> int:
    from arena.report.page import write_report

    if arguments.serve is None:
        page = write_report(arguments.run, arguments.output, replays=arguments.replays)
        _say(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
        return 0
    if arguments.output is not None:
        raise ConfigError("a page that is served is not written; leave one of the two out", path="--output, --serve")
    from arena.report.live import serve

    return serve(Path(arguments.run), port=arguments.serve, replays=arguments.replays, say=_say)


def _watch(arguments: argparse.Namespace) -> int:
    from arena.launch.terminal import terminal_columns
    from arena.terminal.watch import watch

    return watch(arguments.run, columns=terminal_columns())


def _list(arguments: argparse.Namespace) -> int:
    from arena.terminal import reference

    if arguments.markdown:
        from arena.terminal import reference_pages

        if arguments.names == ["configuration"]:
            page = reference_pages.configuration()
        elif arguments.names == ["commands"]:
            page = reference_pages.commands(_parser())
        else:
            page = reference.page(reference.named(arguments.names or ["algorithms"]))
        _say(page.removesuffix("\n"))
        return 0
    told = [reference.lines(name) for name in reference.named(arguments.names)]  # all, before anything is said
    _say("\n".join(line for lines in told or [reference.listing()] for line in lines))
    return 0


def _hosts(plan: Plan, said: str | None) -> Sequence[str]:
    """One line for each host, of those that the user says or that SLURM has given; none where nobody knows."""
    from arena.plan.hosts import allocated, parse_hosts, shares
    from arena.terminal.plan import host_line

    hosts = allocated(os.environ) if said is None else parse_hosts(said)
    try:
        return [host_line(plan, share) for share in shares(hosts, plan.processes)] if hosts else []
    except ConfigError as error:
        if said is not None:
            raise
        return [f"this allocation: {error.message}"]


def _slurm(arguments: argparse.Namespace) -> int:
    from arena.cli import slurm
    from arena.config import load_config

    overrides = [*arguments.overrides, *([f"ticks={arguments.ticks}"] if arguments.ticks is not None else [])]
    ranks = arguments.nodes * arguments.ranks_per_node if arguments.ranks_per_node else arguments.ranks
    if ranks is None and isinstance(wanted := load_config(arguments.config, overrides).ranks, int):
        ranks = wanted  # "auto" would count the cores of the machine that submits
    plan = _load_plan(arguments.config, overrides, ranks)
    job = slurm.make_job(plan.name, time=arguments.time, nodes=arguments.nodes, tasks=plan.processes)
    flags = [*["--profile"] * arguments.profile, *["--allow-unproved"] * arguments.allow_unproved]
    program = slurm.train_command(arguments.config, job, overrides=overrides, flags=flags)
    text = slurm.batch_text(job, program, run_dir=arguments.run_dir, home=Path.cwd())
    if arguments.output == "-":
        _say(text.removesuffix("\n"))
        return 0
    path = Path(arguments.output or f"{plan.name}.sbatch")
    slurm.write_batch(path, text, option="--output" if arguments.output else "")
    _say(f"{path}: {job.words}\nsubmit it: {shlex.join(['sbatch', str(path)])}")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from arena.cli.doctor import examine_machine
    from arena.cli.doctor.finding import Level

    findings = []
    for finding in examine_machine():
        findings.append(finding)
        if not arguments.json:
            _say(finding.line)
    if arguments.json:
        _say(json.dumps([finding._asdict() for finding in findings], indent=2))
    return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


def _say(text: str) -> None:
    """Prints, at once; raises what `guarded_output` does."""
    print(text, flush=True)


def _process_count(config: Config, said: RanksWanted | None) -> ProcessCount:
    from arena.plan.process_count import process_count

    return process_count(config, said, os.environ)


def _load_plan(path: str, overrides: Sequence[str], ranks: int | None) -> Plan:
    from arena.config import load_config
    from arena.plan.build import make_plan

    with located(source=path):
        return make_plan(load_config(path, overrides), ranks=ranks)


def _examine(
    plan: Plan, config: Config, origin: Origin, *, conformance: Callable[[str], None] | None = None
) -> Preflight:
    """Holds every policy against all seats that it may ever get."""
    from arena.preflight.examine import examine
    from arena.run.later_seats import later_plans

    with origin.located():
        return examine(plan, later=later_plans(config), conformance=conformance)
