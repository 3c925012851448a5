"""`arena slurm`: a batch file that runs a configuration under SLURM, requeued at each time limit, until it is done.

An experiment is driven by one job, whose allocation its trials share, or is a job array with a trial per task.

    first start     arena train, which starts mpirun: inside of an allocation it gets its hosts from SLURM
    before the end  SLURM signals the batch shell alone (`--signal=B:USR1@...`), the shell passes it on, the run saves
                    a checkpoint, leaves the file `requeue` in its folder and ends with exit 0
    requeue         `scontrol requeue` puts the job, with its number, back into the queue
    next start      the run folder has a run in it: arena train --resume

A shell handles a signal between two commands, or during `wait`: so the run is a child in the background.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena.cli.arguments import add_config, add_run, positive_int
from arena.cli.experiment.command import check_alone
from arena.config import load_with_origin
from arena.config.load import load_data
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, WriteError, pluralize, shown
from arena.experiment.checks import checking
from arena.experiment.config import is_experiment_data, read_experiment
from arena.experiment.plan import plan_experiment
from arena.plan.build import make_plan
from arena.records.atomic import check_place, replacing
from arena.terminal.output import complain, say

_MARK = "# Written by `arena slurm`."
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SHORT = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
_OF_SLURM = re.compile(r"(?:(?P<d>[0-9]{1,6})-(?=[0-9]))?(?P<parts>[0-9]{1,6}(?::[0-9]{1,2}){0,2})")
_USUAL_ARRAY = 1001  # SLURM's default of MaxArraySize
_LEAST_SECONDS = 300  # SLURM rounds to minutes, and its signal can come a minute early
_MOST_SECONDS = 365 * 86400
_NOTICE = (60, 600)  # seconds between signal and end: a twentieth of the time, from a minute to ten

_BODY = r"""
cd -- "$home" || exit 2
export OMP_NUM_THREADS=1

resume=()
if [ -z "$begun" ]; then
    :
elif [ -f "$run/$begun" ]; then
    resume=(--resume)
elif [ -e "$run" ] && [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then # an earlier start was ended before the run began
    mv -- "$run" "$run.unbegun-$SLURM_RESTART_COUNT" || exit 2
fi
rm -f -- "$run/$requeue"

asked= pid= told= interrupted=
pass_on() {
    interrupted=yes
    if [ -z "$pid" ]; then
        asked=$1
    elif [ "$1" != USR1 ] || [ -z "$told" ]; then # asked twice, a run ends at once and saves nothing
        told=yes
        kill -s "$1" "$pid" 2>/dev/null
    fi
}
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM INT

"${program[@]}" "--run-dir=$run" ${resume[@]+"${resume[@]}"} &
pid=$!
[ -z "$asked" ] || pass_on "$asked"

interrupted=
wait "$pid"
status=$?
once_more() {
    interrupted=
    wait "$pid" 2>/dev/null
    again=$?
    [ "$again" -eq 127 ] || status=$again
}
while [ -n "$interrupted" ] || kill -0 "$pid" 2>/dev/null; do # a signal has ended `wait`, and not the end of the run
    once_more
done
once_more # bash may end a `wait` for a signal that it has answered before

if [ "$status" -eq 0 ] && [ -e "$run/$requeue" ]; then
    scontrol requeue "$SLURM_JOB_ID" || exit 1
fi
exit "$status"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes a file for sbatch: a checkpoint before the time is over, then the queue again, until the run is done."
    )
    add_config(parser)
    parser.add_argument("--time", required=True, metavar="TIME", help="limit of each start: 4h, 1d12h, 90m, 04:00:00")
    parser.add_argument("--nodes", type=positive_int, default=1, metavar="N", help="hosts (default: 1)")
    ranks = parser.add_mutually_exclusive_group()
    ranks.add_argument(
        "--ranks",
        type=positive_int,
        metavar="N",
        help="processes in all (default: the configuration's `ranks`, if that is a number, else one for each role)",
    )
    ranks.add_argument("--ranks-per-node", type=positive_int, metavar="N", help="processes on each host")
    parser.add_argument(
        "--uneven",
        action="store_true",
        help="hosts of different sizes: each gets as many processes as SLURM has cores for",
    )
    parser.add_argument(
        "--array",
        type=positive_int,
        metavar="N",
        help="of an experiment: a job array, N trials at the same time",
    )
    parser.add_argument("--output", metavar="FILE", help="the batch file (default: <name>.sbatch; -: to the console)")
    add_run(parser, folder="runs/<name>-<number of the job>, or experiments/...")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the batch file; returns the exit status."""
    if is_experiment_data(load_data(arguments.config)):
        return _run_experiment(arguments)
    if arguments.array is not None:
        raise ConfigError("goes with an experiment, a file with the key `run`", path="--array")
    overrides = [*arguments.overrides, *([f"ticks={arguments.ticks}"] if arguments.ticks is not None else [])]
    config, origin = load_with_origin(arguments.config, overrides)
    ranks = arguments.nodes * arguments.ranks_per_node if arguments.ranks_per_node else arguments.ranks
    if ranks is None and isinstance(config.ranks, int):
        ranks = config.ranks  # "auto" would count the cores of the machine that submits
    with origin.located():
        plan = make_plan(config, ranks=ranks)
    job = make_job(plan.config.name, time=arguments.time, nodes=arguments.nodes, tasks=plan.processes)
    job = job._replace(uneven=arguments.uneven, loses_nodes=job.nodes > 1)
    flags = ["--profile"] * arguments.profile
    program = train_command(arguments.config, job, overrides=overrides, flags=flags)
    return _write(arguments, job, batch_text(job, program, run_dir=arguments.run_dir, home=anchored(".")))


def _run_experiment(arguments: argparse.Namespace) -> int:
    """Writes the batch file of an experiment: one job that drives it, or an array with a task per trial."""
    for option in ("ticks", "profile"):
        if getattr(arguments, option):
            raise ConfigError("goes with a run; this is an experiment", path=f"--{option}")
    with checking() as first_mistake:
        plan = plan_experiment(read_experiment(arguments.config, overrides=arguments.overrides), first_mistake)
    config, ranks = plan.file.config, arguments.nodes * (arguments.ranks_per_node or 0) or arguments.ranks
    if arguments.array is None and ranks is None:
        raise ConfigError("say how many processes the trials share: --ranks-per-node, or --ranks", path="--nodes")
    if arguments.array is not None:
        check_alone(plan, 0, option="--array")
    tasks = ranks or config.ranks or plan.most_roles
    job = make_job(config.name, time=arguments.time, nodes=arguments.nodes, tasks=tasks)
    job = job._replace(uneven=arguments.uneven)
    hints = []
    if arguments.array is not None:
        job = job._replace(array=f"0-{plan.number - 1}%{arguments.array}", gpus=math.ceil(config.gpus))
        if plan.number > _USUAL_ARRAY:
            hints.append(
                f"the array has {plan.number} tasks; SLURM takes as many as its MaxArraySize says, {_USUAL_ARRAY} by "
                "default (`scontrol show config`); without --array one job drives all trials"
            )
    elif config.gpus:
        devices = "device" if config.gpus == 1 else "devices"
        hints.append(f"a trial takes {config.gpus:g} {devices} of a node: submit with `sbatch --gpus-per-node=N`")
    path = f"./{arguments.config}" if arguments.config.startswith("-") else arguments.config
    sets = [f"--set={override}" for override in arguments.overrides]
    program = [sys.executable, "-m", "arena", "experiment", path, *sets]
    text = batch_text(job, program, run_dir=arguments.run_dir, home=anchored("."), experiment=True)
    return _write(arguments, job, text, hints)


def _write(arguments: argparse.Namespace, job: Job, text: str, hints: Sequence[str] = ()) -> int:
    if arguments.output == "-":
        say(text.removesuffix("\n"))
        for hint in hints:
            complain(f"{hint}\n")
        return 0
    path = anchored(arguments.output or f"{job.name}.sbatch")
    write_batch(path, text, option="--output" if arguments.output else "")
    say("\n".join([f"{shown(path)}: {job.text}", f"submit it: {shlex.join(['sbatch', shown(path)])}", *hints]))
    return 0


class Job(NamedTuple):
    """The request to SLURM."""

    name: str
    nodes: int
    tasks: int
    seconds: int
    array: str = ""  # its tasks, as `0-11%8`; empty: no job array
    gpus: int = 0  # devices of each node
    uneven: bool = False  # whether nodes may have different numbers of tasks
    loses_nodes: bool = False  # whether it goes on when a node fails, on the others; else SLURM requeues it

    @property
    def tasks_per_node(self) -> int:
        """The most tasks of a node, so that all nodes have about the same number."""
        return -(-self.tasks // self.nodes)

    @property
    def text(self) -> str:
        """How many processes, and on which nodes."""
        each = f", at most {self.tasks_per_node} on each" if self.nodes > 1 and not self.uneven else ""
        array = f", for each task of the array {self.array}" if self.array else ""
        return f"{pluralize(self.tasks, 'process', 'processes')} on {pluralize(self.nodes, 'node')}{each}{array}"

    def directives(self) -> list[str]:
        """The lines that sbatch reads; SLURM takes them as they are, no shell unquotes them."""
        least, most = _NOTICE
        notice = min(max(self.seconds // 20, least), most)
        minutes, second = divmod(self.seconds, 60)
        hours, minute = divmod(minutes, 60)
        days, hour = divmod(hours, 24)
        settings = {
            "job-name": self.name,
            "nodes": self.nodes,
            "ntasks": self.tasks,
            "ntasks-per-node": self.tasks_per_node,
            "cpus-per-task": 1,
            "time": f"{days}-{hour:02d}:{minute:02d}:{second:02d}",
            "signal": f"B:USR1@{notice}",
            "open-mode": "append",
        }
        if self.uneven:  # else every node would need the CPUs of `ntasks-per-node`
            del settings["ntasks-per-node"]
        if self.array:
            settings["array"] = self.array
        if self.gpus:
            settings["gpus-per-node"] = self.gpus
        flags = ["#SBATCH --requeue", *["#SBATCH --no-kill"] * self.loses_nodes]
        return [*(f"#SBATCH --{name}={value}" for name, value in settings.items()), *flags]


def make_job(name: str, *, time: str, nodes: int, tasks: int) -> Job:
    """The request to SLURM for a run; `time` is the limit of each start, `tasks` are the processes on all nodes."""
    seconds = parse_time(time)
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise ConfigError(f"got {time!r}, expected from 5 minutes to a year", path="--time")
    if tasks < nodes:
        raise ConfigError(f"{tasks} processes are too few for {nodes} nodes; ask for fewer nodes", path="--nodes")
    return Job(name, nodes, tasks, seconds)


def parse_time(text: str) -> int:
    """Seconds of `4h`, `1d12h30m`, or of SLURM's forms: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    short = _SHORT.fullmatch(text)
    if text and short:
        return sum(int(number or 0) * unit for number, unit in zip(short.groups(), _UNITS.values(), strict=True))
    match = _OF_SLURM.fullmatch(text)
    if match is None:
        raise ConfigError(f"got {text!r:.80}, expected such as 4h, 1d12h, 90m or 04:00:00", path="--time")
    parts = [int(part) for part in match["parts"].split(":")]
    # After days the first number is hours; without days one or two numbers begin with minutes.
    units = (3600, 60, 1) if match["d"] or len(parts) == 3 else (60, 1)
    return int(match["d"] or 0) * 86400 + sum(part * unit for part, unit in zip(parts, units, strict=False))


def train_command(config: str, job: Job, *, overrides: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The command that trains, without `--run-dir` and `--resume`; the path may begin with a dash."""
    path = f"./{config}" if config.startswith("-") else config
    sets = [f"--set={override}" for override in overrides]
    return [sys.executable, "-m", "arena", "train", path, f"--ranks={job.tasks}", *sets, *flags]


def batch_text(job: Job, program: Sequence[str], *, run_dir: str | None, home: Path, experiment: bool = False) -> str:
    """The batch file of a program that is to run in `home`: a run, an experiment, or a trial of it in a job array.

    Without a run folder there is one by the job's number, which stays the same from start to start.
    """
    number = "SLURM_ARRAY_JOB_ID" if job.array else "SLURM_JOB_ID"
    parent = "experiments" if experiment else "runs"
    run = f'{parent}/{job.name}-"${{{number}:?is given by sbatch}}"' if run_dir is None else shlex.quote(run_dir)
    head = ["#!/bin/bash", *job.directives(), "", _MARK, "set -u"]
    values = [f"home={shlex.quote(str(home))}", f"run={run}", f"program=({shlex.join(program)})"]
    values.append(f"begun={'experiment.yaml' if experiment else 'config.yaml'} requeue=requeue")
    if job.array:  # a task takes its own trial up again by itself, beside others in the folder
        values += ['program+=("--trial=$SLURM_ARRAY_TASK_ID")', 'requeue="requeue-$SLURM_ARRAY_TASK_ID" begun=']
    return "\n".join([*head, *values, _BODY])


def write_batch(path: Path, text: str, *, option: str = "") -> None:
    """Writes the batch file; overwrites an older batch file of ours, but no other file.

    `option` of the command line names it; empty: the default name is used.
    """
    check_place(path, option=option)
    try:
        if path.exists() and _MARK.encode() not in path.read_bytes():
            raise ConfigError("is there already, and is no batch file of ours; name another one", source=str(path))
        with replacing(path) as file:
            file.write(text.encode())
    except WriteError as error:
        raise ConfigError(str(error), path=option) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
