"""Chaos: runs of random configurations whose processes are killed, against the same runs undisturbed.

Every run has its own configuration (see `random_runs`): algorithms, leagues of every generator, evaluations,
recordings, 2 to 7 ranks. One to three times one of its processes gets SIGKILL, in every third run the root's too: while
the processes join, in mid-leg, at a boundary, in an evaluation, when a round changes, also while the run is being
started again. A run counts as survived if it ends with exit status 0 and leaves no process behind.
It counts as equal if its episodes, checkpoints, snapshots, recordings, and the lines of its updates, evaluations and
rounds have the same bytes as in a run of the same configuration on one process without a death.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import yaml

import runs
from harness import Case, Report, Sample, Settings, Summary, interleave, main, method, say
from random_runs import RandomRun, differences, left_by, random_run

_RANK = b"OMPI_COMM_WORLD_RANK="
_LIMIT_S = 600  # after which a run counts as hanging
MOMENTS = ("start", "leg", "leg", "boundary", "evaluation", "round", "again")


def ranks_in(folder: Path) -> dict[int, int]:
    """Rank -> process of a run that was started in a folder."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.realpath(entry / "cwd") == str(folder) and _RANK in (held := (entry / "environ").read_bytes()):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent, int(held.split(_RANK)[1].split(b"\0")[0])
    return {rank: pid for pid, (parent, rank) in found.items() if parent not in found}


def _started(folder: Path, ranks: int | str) -> subprocess.Popen[bytes]:
    """`arena train` of the configuration in a folder."""
    command = [
        sys.executable,
        "-m",
        "arena",
        "train",
        "config.yaml",
        "--run-dir",
        f"run-{ranks}",
        "--ranks",
        str(ranks),
    ]
    with (folder / f"said-{ranks}").open("w") as log:
        return subprocess.Popen(
            command, cwd=folder, env=runs.environment(), stdout=log, stderr=log, start_new_session=True
        )


def _await(moment: str, run: Path, chance: random.Random, over: Callable[[], bool]) -> None:
    """Returns at the moment of a death, or when the run is over, or when the moment has not come for some time."""
    if moment == "start":
        time.sleep(chance.uniform(0.0, 1.0))
        return
    while not (run / "config.yaml").exists() and not over():
        time.sleep(0.005)
    if moment in ("leg", "again"):  # again: also while the run is being started again
        time.sleep(chance.uniform(0.0, 3.0 if moment == "leg" else 0.3))
        return
    deadline = time.monotonic() + chance.uniform(0.5, 8.0)

    def signs() -> int:
        if moment == "boundary":
            return len(list(run.glob("boundaries/*.json")))
        if moment == "evaluation":
            return len(list(run.glob("evaluations/*/episodes.jsonl")))
        rounds = run / "rounds.jsonl"
        return rounds.stat().st_size if rounds.exists() else 0

    before = signs()
    while signs() == before and not over() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(chance.choice([0.0, 0.0, 0.01, 0.1]))


def play_killed(folder: Path, drawn: RandomRun, chance: random.Random, *, root: bool) -> Sample:
    """Plays a run and kills some of its processes; returns how the run has ended."""
    kills = chance.randint(1, 3)
    process = _started(folder, drawn.ranks)
    run = folder / f"run-{drawn.ranks}"
    while len(list((run / "logs").glob("rank-*.log"))) < drawn.ranks - 1 and process.poll() is None:
        time.sleep(0.005)
    victims = [0] * root + [chance.randrange(1, drawn.ranks) for _ in range(kills - root)]
    chance.shuffle(victims)
    moments = [chance.choice(MOMENTS) for _ in victims]
    died = 0
    for moment, victim in zip(moments, victims, strict=True):
        _await(moment, run, chance, lambda: process.poll() is not None)
        pid = ranks_in(folder).get(victim)  # none while the processes are being started again
        with suppress(ProcessLookupError):
            if process.poll() is None and pid is not None:
                os.kill(pid, signal.SIGKILL)
                died += 1
    try:
        status = process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        status = -1
    time.sleep(0.2)
    left = len(ranks_in(folder))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in ranks_in(folder).values():
        os.kill(pid, signal.SIGKILL)
    faults = run / "faults.jsonl"
    restarts = [json.loads(line) for line in faults.read_text().splitlines()] if faults.exists() else []
    found = {"exit status": status, "processes left": left, "processes killed": died, "restarts": len(restarts)}
    if restarts:
        found["s of a restart"] = median(line["seconds"] for line in restarts)
        found["ticks played again"] = sum(line["replayed"] for line in restarts)
    if status:
        for told in (folder / f"said-{drawn.ranks}", *sorted((run / "logs").glob("*")), faults):
            if told.exists():
                say(f"{drawn.config['name']}, {told.name}:\n{told.read_text()[-2000:]}")
    return found


def chaos(seed: int, *, root: bool) -> Sample:
    """One configuration, undisturbed on one process and killed on several."""
    drawn = random_run(seed)
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name).resolve()
        (folder / "config.yaml").write_text(yaml.safe_dump(drawn.config, sort_keys=False))
        undisturbed = _started(folder, 1).wait(_LIMIT_S)
        if undisturbed:
            raise SystemExit(f"{drawn.config['name']} does not end:\n{(folder / 'said-1').read_text()[-3000:]}")
        found = play_killed(folder, drawn, random.Random(seed), root=root)
        unlike: list[str] = []
        if not found["exit status"]:
            unlike = differences(left_by(folder / "run-1"), left_by(folder / f"run-{drawn.ranks}"))
            if unlike:
                say(f"{drawn.config['name']}: not the same: {', '.join(unlike[:6])}")
    return {**found, "files that differ": len(unlike)}


def survived(sample: Sample) -> bool:
    """Whether a run has ended with status 0 and left no process behind."""
    return not (sample["exit status"] or sample["processes left"])


def equal(sample: Sample) -> bool:
    """Whether a run has left the same bytes as the undisturbed run."""
    return survived(sample) and not sample["files that differ"]


def benchmark(settings: Settings) -> Report:
    """Kills processes, and compares the runs."""
    seeds = iter(range(10**6))

    def killed() -> Sample:
        seed = next(seeds)
        return chaos(seed, root=seed % 3 == 0)

    measured = interleave([Case("killed", killed)], settings.repeats * settings.pick(20, 2), say=say)
    struck: list[Any] = measured.samples["killed"]
    report = Report("chaos", "Runs whose processes are killed", measured, method(__doc__))
    for name, holds in (("survived", survived), ("are equal to the undisturbed run", equal)):
        share = sum(map(holds, struck)) / len(struck)
        report.at_least(f"share of {len(struck)} killed runs that {name}", Summary((share,)), 1.0)
    report.at_most("s of a restart", measured.summary("killed", "s of a restart"), 6)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
