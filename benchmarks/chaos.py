"""Chaos: runs of which one to three processes are killed at random moments, and the same runs undisturbed.

Blue learns touchdown with PPO against random actions, in two matches: seven processes. Each killed run gets SIGKILL for
one, two or three of them at once or at moments of their own, the root among them in every third run; the moments are
uniform over the time from when all processes have joined until an undisturbed run would have ended. A run counts as
survived if it ends with exit status 0, leaves no process behind and no line of its records broken.

All runs of a turn have the same seed, another one in every turn. The learning curve is looked at where it rises: the
share of blue's wins in each third of the first 900 episodes, and in the last 200. The interval of undisturbed runs is
the range of their values.

In each turn four runs are killed and one is left alone.
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
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import yaml

import runs
from harness import Case, Report, Sample, Settings, Summary, interleave, main, method, say

_KILLED_PER_TURN = 4
CURVE = {
    "wins in episodes 1 to 300": slice(0, 300),
    "wins in episodes 301 to 600": slice(300, 600),
    "wins in episodes 601 to 900": slice(600, 900),
    "wins in the last 200": slice(-200, None),
}
_RANK = b"OMPI_COMM_WORLD_RANK="


def config(ticks: int, seed: int) -> dict[str, Any]:
    """Blue learns against random, in two matches."""
    return {
        "name": "chaos",
        "seed": seed,
        "ticks": ticks,
        "checkpoint_every": max(1, ticks // 4),
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 200}}},
        "policies": {"blue": {"algorithm": "ppo", "options": runs.PPO}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 8, "copies": 2}],
    }


def ranks_in(folder: Path) -> dict[int, int]:
    """Rank -> process of a run that was started in a folder."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.realpath(entry / "cwd") == str(folder) and _RANK in (held := (entry / "environ").read_bytes()):
                found[int(held.split(_RANK)[1].split(b"\0")[0])] = int(entry.name)
    return found


def play(ticks: int, seed: int, kills: int = 0, *, seconds: float, chance: random.Random, root: bool = False) -> Sample:
    """One run, `kills` of whose processes are killed within so many seconds; what has become of it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name).resolve()
        (folder / "config.yaml").write_text(yaml.safe_dump(config(ticks, seed)))
        command = [sys.executable, "-m", "arena", "train", "config.yaml", "--run-dir", "run"]
        log = (folder / "said").open("w")
        begun = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, env=runs.environment(), stdout=log, stderr=log, start_new_session=True
        )
        moments = sorted(chance.uniform(0, seconds) for _ in range(kills))
        if chance.random() < 0.5:
            moments = [moments[0]] * kills if kills else []
        victims = [0] * root + chance.sample(range(1, 7), kills - root)
        chance.shuffle(victims)
        while len(list((folder / "run" / "logs").glob("rank-*.log"))) < 6 and process.poll() is None:
            time.sleep(0.01)
        joined = time.monotonic()
        pids = ranks_in(folder)
        died = 0
        for moment, victim in zip(moments, victims, strict=True):
            time.sleep(max(0.0, joined + moment - time.monotonic()))
            with suppress(ProcessLookupError):
                if process.poll() is None and victim in pids:
                    os.kill(pids[victim], signal.SIGKILL)
                    died += 1
        try:
            status = process.wait(120)
        except subprocess.TimeoutExpired:
            status = -1
        ended = time.monotonic()
        time.sleep(0.2)
        left = len(ranks_in(folder))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in ranks_in(folder).values():
            os.kill(pid, signal.SIGKILL)
        if status:
            say((folder / "said").read_text()[-2000:])
        found = judged(folder / "run")
    return {
        "exit status": status,
        "processes left": left,
        "processes killed": died,
        "s from the joining to the end": ended - joined,
        "s in all": ended - begun,
        **found,
    }


def judged(run: Path) -> dict[str, float]:
    """What a run's folder says."""
    broken, wins = 0, []
    for path in run.glob("*.jsonl"):
        for raw in path.read_bytes().splitlines(keepends=True):
            try:
                line = json.loads(raw)
            except ValueError:
                line = None
            broken += line is None or not raw.endswith(b"\n")
            if path.name == "episodes.jsonl" and line is not None and line["seats"][0]["outcome"]:
                wins.append(line["seats"][0]["outcome"] == "win")
    faults = run / "faults.jsonl"
    repairs = [json.loads(line)["seconds"] for line in faults.read_text().splitlines()] if faults.exists() else []
    figures = {
        "broken lines": broken,
        "repairs": len(repairs),
        "episodes": len(wins),
        **{name: sum(wins[part]) / max(1, len(wins[part])) for name, part in CURVE.items()},
    }
    return figures | ({"s of a repair": median(repairs)} if repairs else {})


def survived(sample: Sample) -> bool:
    """Whether a run has ended as if nothing had happened."""
    return not (sample["exit status"] or sample["processes left"] or sample["broken lines"])


def benchmark(settings: Settings) -> Report:
    """Kills, and counts who goes on."""
    ticks = settings.pick(8000, 3000)
    chance = random.Random(20)
    seed = chance.randrange(10**6)
    usual = play(ticks, seed, seconds=0.0, chance=chance)["s from the joining to the end"]
    number = iter(range(10**6))

    def calm() -> Sample:
        nonlocal seed
        seed = chance.randrange(10**6)  # the first of a turn: those that follow take it too
        return play(ticks, seed, seconds=0.0, chance=chance)

    def killed() -> Sample:
        kills = chance.randint(1, 3)
        return play(ticks, seed, kills, seconds=usual, chance=chance, root=next(number) % 3 == 0)

    cases = [Case("undisturbed", calm)] + [Case(f"killed {index + 1}", killed) for index in range(_KILLED_PER_TURN)]
    measured = interleave(cases, settings.repeats, say=say)
    struck = [sample for case in cases[1:] for sample in measured.samples[case.name]]
    measured.samples = {"undisturbed": measured.samples["undisturbed"], "killed": struck}
    report = Report("chaos", "Runs whose processes are killed", measured, method(__doc__))
    share = sum(map(survived, struck)) / len(struck)
    report.at_least(f"share of {len(struck)} killed runs that survived", Summary((share,)), 1.0)
    report.at_most("s of a repair", measured.summary("killed", "s of a repair"), 2)
    for figure in CURVE:
        undisturbed, found = (measured.summary(case, figure) for case in ("undisturbed", "killed"))
        inside = sum(undisturbed.low <= value <= undisturbed.high for value in found.values) / len(found.values)
        report.at_least(f"{figure}: median of the killed", Summary((found.median,)), undisturbed.low)
        report.at_least(f"{figure}: share of the killed in the undisturbed range", Summary((inside,)), 0.9)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
