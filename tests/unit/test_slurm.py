"""The batch file for SLURM: its directives, and its execution by bash through all requeues."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.cli.slurm import Job, batch_text, make_job, parse_time, train_command, write_batch
from arena.errors import ConfigError
from run_cli import ARENA, Ended, environment, finish, start, wait_for

# Behaves as `arena train` promises: at SIGUSR1 a checkpoint, the file `requeue`, exit 0; the third start is the last.
TRAINER = """#!{python}
import json, os, signal, sys
from pathlib import Path
run = Path(next(word for word in sys.argv if word.startswith("--run-dir=")).partition("=")[2])
signals = {{signal.SIGUSR1, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
log = Path("starts.jsonl")
starts = len(log.read_text().splitlines()) if log.exists() else 0
run.mkdir(parents=True, exist_ok=True)
(run / "config.yaml").touch()
with log.open("a") as file:
    file.write(json.dumps({{"argv": sys.argv[1:], "cwd": os.getcwd(), "again": (run / "requeue").exists()}}) + "\\n")
if starts == {last}:
    sys.exit({code})
if signal.sigwait(signals) == signal.SIGTERM:
    sys.exit(143)
if signal.sigtimedwait(signals, 0.3) is not None:
    sys.exit(9)  # asked twice, a run ends at once
(run / "requeue").touch()
"""
SCONTROL = """#!/bin/bash
echo "$@" >> scontrol.log
exit {code}
"""


class Cluster:
    """A folder with stand-ins for the commands of a batch file; a job in it is one bash, as under SLURM."""

    def __init__(self, home: Path, *, last: int = 2, code: int = 0, scontrol: int = 0) -> None:
        self.home = home
        self.programs = home.parent / "programs"
        self.programs.mkdir()
        self._put("trainer", TRAINER.format(python=sys.executable, last=last, code=code))
        self._put("scontrol", SCONTROL.format(code=scontrol))

    def _put(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o700)

    def batch(self, *arguments: str, run_dir: str | None = None, name: str = "duel") -> Path:
        job = Job(name, nodes=1, tasks=1, seconds=3600)
        path = self.home / "job.sbatch"
        write_batch(
            path, batch_text(job, [str(self.programs / "trainer"), *arguments], run_dir=run_dir, home=self.home)
        )
        return path

    def start(self, batch: Path, *, restarts: int = 0) -> subprocess.Popen[str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        changes = {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
        return start(["bash", str(batch)], self.home.parent, PATH=path, SLURM_JOB_ID="4711", **changes)

    def started(self) -> list[dict[str, object]]:
        log = self.home / "starts.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def signaled(self, batch: Path, number: signal.Signals, *, restarts: int = 0) -> Ended:
        """A start that gets a signal, the batch shell alone, as soon as the run goes."""
        before = len(self.started())
        process = self.start(batch, restarts=restarts)
        wait_for(lambda: len(self.started()) > before)
        os.kill(process.pid, number)
        return finish(process)

    def requeued(self) -> list[str]:
        log = self.home / "scontrol.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A working directory whose name a shell would not take without quotes."""
    folder = tmp_path / "a 'user's $(folder) \" of; #work"
    folder.mkdir()
    return folder


def test_run_is_requeued_at_signals_resumed_at_starts_and_ends(home: Path) -> None:
    cluster = Cluster(home)
    batch = cluster.batch("train", "x.yaml")
    assert cluster.signaled(batch, signal.SIGUSR1).code == 0
    assert cluster.requeued() == ["requeue 4711"]
    assert cluster.signaled(batch, signal.SIGUSR1, restarts=1).code == 0
    assert cluster.requeued() == ["requeue 4711"] * 2
    assert finish(cluster.start(batch, restarts=2)).code == 0
    assert cluster.requeued() == ["requeue 4711"] * 2, "a finished run is not requeued"
    common = ["train", "x.yaml", "--run-dir=runs/duel-4711"]
    assert [entry["argv"] for entry in cluster.started()] == [common, [*common, "--resume"], [*common, "--resume"]]
    assert [entry["again"] for entry in cluster.started()] == [False] * 3, "the mark of the last start is gone"
    assert {entry["cwd"] for entry in cluster.started()} == {str(home)}


def test_failed_run_ends_the_job_with_its_code_without_requeue(home: Path) -> None:
    cluster = Cluster(home, last=0, code=3)
    assert finish(cluster.start(cluster.batch("train"))).code == 3
    assert cluster.requeued() == []


def test_a_cancelled_job_passes_the_signal_on_and_is_not_requeued(home: Path) -> None:
    cluster = Cluster(home)
    assert cluster.signaled(cluster.batch("train"), signal.SIGTERM).code == 143
    assert cluster.requeued() == []


def test_repeated_signals_equal_one(home: Path) -> None:
    cluster = Cluster(home)
    batch = cluster.batch("train")
    process = cluster.start(batch)
    wait_for(lambda: len(cluster.started()) == 1)
    for _ in range(50):
        if process.poll() is None:
            os.kill(process.pid, signal.SIGUSR1)
    assert finish(process).code == 0
    assert cluster.requeued() == ["requeue 4711"]


def test_refused_requeue_is_a_failure(home: Path) -> None:
    cluster = Cluster(home, scontrol=1)
    assert cluster.signaled(cluster.batch("train"), signal.SIGUSR1).code == 1


def test_remains_of_a_failed_start_do_not_block_the_next(home: Path) -> None:
    cluster = Cluster(home, last=0)
    (home / "runs" / "duel-4711" / "logs").mkdir(parents=True)
    assert finish(cluster.start(cluster.batch("train"), restarts=1)).code == 0
    assert (home / "runs" / "duel-4711.unbegun-1" / "logs").is_dir()
    assert cluster.started()[0]["argv"] == ["train", "--run-dir=runs/duel-4711"]


NASTY = [
    "a;rm -rf .",
    "$(touch evil)",
    "`touch evil`",
    "-rf",
    'it\'s "quoted"',
    "two\nlines\n#SBATCH --nodes=9",
    "*",
    "~",
    " ",
]


def test_arguments_are_quoted_for_the_shell(home: Path) -> None:
    cluster, run = Cluster(home, last=0), f"runs/{''.join(NASTY)}"
    words = [word for one in NASTY for word in (one, f"--set=name={one}")]
    ended = finish(cluster.start(cluster.batch("train", *words, run_dir=run)))
    assert (ended.code, ended.err) == (0, "")
    assert cluster.started()[0]["argv"] == ["train", *words, f"--run-dir={run}"]
    assert not (home / "evil").exists()
    assert (home / run / "config.yaml").exists()


def directives(text: str) -> list[str]:
    """What sbatch reads: #SBATCH lines before the first command."""
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    return [line.removeprefix("#SBATCH --") for line in lines[:head] if line.startswith("#SBATCH ")]


def test_sbatch_options_have_nodes_tasks_time_signal_and_queue(home: Path) -> None:
    text = batch_text(make_job("duel", time="4h", nodes=8, tasks=151), ["train"], run_dir=NASTY[5], home=home)
    assert directives(text) == [
        "job-name=duel",
        "nodes=8",
        "ntasks=151",
        "ntasks-per-node=19",
        "cpus-per-task=1",
        "time=0-04:00:00",
        "signal=B:USR1@600",
        "open-mode=append",
        "requeue",
    ]


@pytest.mark.parametrize(("time", "notice"), [("5m", 60), ("1h", 180)])
def test_the_signal_comes_a_twentieth_of_the_time_before_the_end(home: Path, time: str, notice: int) -> None:
    assert f"signal=B:USR1@{notice}" in directives(
        batch_text(make_job("x", time=time, nodes=1, tasks=1), [], run_dir=None, home=home)
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("1d12h30m5s", 131405),
        ("90", 5400),
        ("90:30", 5430),
        ("04:00:00", 14400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:07", 172807),
    ],
)
def test_times_are_read_as_slurm_reads_them_and_shorter(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "4", "4m", "400d", "h", "4x", "1:2:3:4", "-4h", "4 h", "1-", "1-x", "9" * 40 + "h", "0"]
)
def test_other_times_and_too_short_ones_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--time: got "):
        make_job("x", time=text, nodes=1, tasks=4)


def test_configuration_named_like_an_option_is_refused(home: Path) -> None:
    job = make_job("x", time="1h", nodes=1, tasks=4)
    command = train_command("-x.yaml", job, overrides=["seed=3"], flags=["--profile"])
    assert command[3:] == ["train", "./-x.yaml", "--ranks=4", "--set=seed=3", "--profile"]


def config(folder: Path, **changes: object) -> str:
    data = {
        "ticks": 30,
        "envs": {"game": {"make": "matrix"}},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "blue"], "copies": 4}],
        **changes,
    }
    (folder / "x.yaml").write_text(yaml.safe_dump(data))
    return "x.yaml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a configuration."""
    monkeypatch.chdir(tmp_path)
    config(tmp_path)
    return tmp_path


def slurm(*arguments: str) -> int:
    return main(["slurm", "x.yaml", "--time", "1h", *arguments])


@pytest.mark.parametrize(
    ("arguments", "nodes", "tasks"),
    [
        ([], 1, 13),
        (["--nodes", "2"], 2, 13),
        (["--ranks", "5", "--nodes", "5"], 5, 5),
        (["--ranks-per-node", "3", "--nodes", "2"], 2, 6),
    ],
)
def test_task_count_equals_the_plan(here: Path, arguments: Sequence[str], nodes: int, tasks: int) -> None:
    assert slurm(*arguments) == 0
    text = (here / "x.sbatch").read_text()
    assert {f"nodes={nodes}", f"ntasks={tasks}"} < {*directives(text)}
    assert f"--ranks={tasks}" in text


def test_nodes_may_have_different_sizes_and_fail(here: Path) -> None:
    assert slurm("--nodes", "2", "--uneven") == 0
    lines = directives((here / "x.sbatch").read_text())
    assert {"nodes=2", "ntasks=13", "no-kill"} <= {*lines}
    assert not any(line.startswith("ntasks-per-node") for line in lines)
    assert slurm() == 0
    assert {"ntasks-per-node=13", "requeue"} <= {*directives((here / "x.sbatch").read_text())}


def test_the_file_is_private_replaces_an_older_one_and_nothing_else(here: Path) -> None:
    assert slurm() == 0
    assert (here / "x.sbatch").stat().st_mode & 0o777 == 0o600
    assert slurm("--nodes", "2") == 0
    (here / "x.sbatch").write_text("my own")
    assert slurm() == 2
    assert (here / "x.sbatch").read_text() == "my own"


def test_file_is_printed_on_request_and_unwritable_paths_are_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slurm("--output", "-") == 0
    assert capsys.readouterr().out.startswith("#!/bin/bash\n#SBATCH --job-name=x\n")
    for place, words in (("no/x.sbatch", "there is no folder 'no'"), (".", "'.' is a folder; name a file")):
        assert slurm("--output", place) == 2
        assert capsys.readouterr().err == f"arena: error: --output: {words}\n"
    assert [path.name for path in here.iterdir()] == ["x.yaml"]


@pytest.mark.slow
def test_a_batch_file_of_the_command_line_runs_the_arena_to_its_end(home: Path) -> None:
    written = finish(start([*ARENA, "slurm", config(home), "--time", "1h", "--ranks", "1", "--set", "seed=5"], home))
    assert written.code == 0, written.err
    assert re.search(r"^x.sbatch: 1 process on 1 node\nsubmit it: sbatch x.sbatch$", written.out, re.M)
    done = finish(start(["bash", "x.sbatch"], home, SLURM_JOB_ID="17"))
    assert done.code == 0, done.err
    assert "seed: 5" in (home / "runs" / "x-17" / "config.yaml").read_text()
    assert (home / "runs" / "x-17" / "episodes.jsonl").stat().st_size > 0


def test_outside_of_slurm_missing_variables_are_named(home: Path) -> None:
    cluster = Cluster(home)
    without = {name: value for name, value in environment().items() if name != "SLURM_JOB_ID"}
    done = subprocess.run(
        ["bash", str(cluster.batch("train"))], env=without, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "SLURM_JOB_ID: is given by sbatch" in done.stderr


# experiments


def sweep(folder: Path, **changes: object) -> None:
    run = yaml.safe_load((folder / config(folder)).read_text())
    data = {"run": run, "set": {"ticks": {"grid_search": [30, 40, 50]}}, "repeat": 2, **changes}
    (folder / "x.yaml").write_text(yaml.safe_dump(data))


@pytest.mark.slow
def test_an_experiment_is_one_job_whose_slots_its_trials_share(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(here, gpus=0.5)
    assert slurm("--nodes", "2", "--ranks-per-node", "4", "--set", "seed=3") == 0
    text = (here / "x.sbatch").read_text()
    hint = "a trial takes 0.5 devices of a node: submit with `sbatch --gpus-per-node=N`"
    assert hint in capsys.readouterr().out
    assert slurm("--ranks", "4", "--output", "-") == 0
    assert hint in capsys.readouterr().err, "the output is the batch file alone"
    assert {"nodes=2", "ntasks=8", "ntasks-per-node=4", "signal=B:USR1@180", "requeue"} <= {*directives(text)}
    assert "-m arena experiment x.yaml --set=seed=3)" in text
    assert 'run=experiments/x-"${SLURM_JOB_ID:?is given by sbatch}"' in text and "begun=experiment.yaml" in text


@pytest.mark.slow
def test_a_job_array_has_a_task_per_trial(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(here, ranks=3, gpus=0.5, repeat=334)
    assert slurm("--array", "4") == 0
    text = (here / "x.sbatch").read_text()
    assert {"ntasks=3", "array=0-1001%4", "gpus-per-node=1"} <= {*directives(text)}
    assert "the array has 1002 tasks; SLURM takes as many as its MaxArraySize says" in capsys.readouterr().out
    assert 'program+=("--trial=$SLURM_ARRAY_TASK_ID")' in text
    assert "${SLURM_ARRAY_JOB_ID:?" in text, "all tasks have one folder"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        ((), {}, "--nodes: say how many processes the trials share"),
        (("--array", "2", "--ticks", "3"), {}, "--ticks: goes with a run"),
        (("--array", "2"), {"prune": {"median": {}}, "repeat": 1}, "--array: a trial depends on the others, by `prune"),
        (("--array", "2"), None, "--array: goes with an experiment, a file with the key `run`"),
    ],
)
def test_requests_that_do_not_fit_the_file_are_refused(
    here: Path, arguments: Sequence[str], changes: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if changes is not None:
        sweep(here, **changes)
    assert slurm(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not (here / "x.sbatch").exists()


def test_array_task_is_requeued_and_resumes_its_own_trial(home: Path) -> None:
    cluster = Cluster(home)
    job = Job("duel", nodes=1, tasks=1, seconds=3600, array="0-5%2")
    path = home / "job.sbatch"
    trainer = (cluster.programs / "trainer").read_text()
    (cluster.programs / "trainer").write_text(trainer.replace('run / "requeue"', 'run / "requeue-3"'))
    text = batch_text(job, [str(cluster.programs / "trainer"), "e"], run_dir="e", home=home, experiment=True)
    write_batch(path, text)
    variables = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "4700"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        assert cluster.signaled(path, signal.SIGUSR1).code == 0
        assert cluster.signaled(path, signal.SIGUSR1, restarts=1).code == 0
    assert cluster.requeued() == ["requeue 4711"] * 2
    assert [entry["argv"] for entry in cluster.started()] == [["e", "--trial=3", "--run-dir=e"]] * 2
