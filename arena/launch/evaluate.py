"""`arena evaluate`: plays without learning, with the weights of a run's checkpoints, and says how it went.

Every evaluation is a run of its own in one process: all policies frozen, the same number of episodes in every lane, so
that short episodes are not favoured.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena.config.schema import Config, MatchConfig, PolicyConfig, SeatEntry, load_config
from arena.errors import ConfigError, nearest
from arena.launch import hosting
from arena.launch.prepare import prepare
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.records.scoreboard import Score
from arena.registry import ALGORITHMS
from arena.screen.display import PlainDisplay

_ENDLESS = 2**40  # ticks: the number of episodes decides
_Z95 = 1.959964  # the normal distribution's 97.5 % point
OPPONENT = "opponent"


class Contest(NamedTuple):
    """One thing to evaluate."""

    title: str
    config: Config
    shown: tuple[str, ...]  # the policies whose result is of interest


def evaluate(
    target: str,
    *,
    episodes: int,
    checkpoints: Sequence[str] = ("last",),
    against: str | None = None,
    greedy: bool = True,
    run_dir: str | None = None,
) -> int:
    """Plays and prints one line per policy and checkpoint; returns the exit status.

    Args:
        target: a run folder, or a configuration file.
        episodes: at least so many for each line; every lane plays the same number.
        checkpoints: which of a run's checkpoints: `first`, `last`, or a number of ticks.
        against: who takes all other seats, an algorithm or a policy of the configuration; None: as configured.
        greedy: the most likely action rather than a sampled one.
        run_dir: where the records go; None: `evaluations/` in the run folder, or `runs/<name>-evaluation`.
    """
    folder = RunFolder(Path(target)) if Path(target).is_dir() else None
    if folder is not None and not folder.config.is_file():
        raise ConfigError("is no run folder: it has no config.yaml", source=target)
    config = load_config(target if folder is None else folder.config)
    home = Path(run_dir) if run_dir else folder.path / "evaluations" if folder else Path("runs")
    for contest in _contests(config, folder, checkpoints, against):
        scores = _play(contest.config, home, episodes, greedy=greedy)
        for policy in contest.shown:
            sys.stdout.write(f"{policy} {contest.title}: {result_words(scores[policy])}\n")
            sys.stdout.flush()
    return 0


def _contests(
    config: Config, folder: RunFolder | None, checkpoints: Sequence[str], against: str | None
) -> Iterator[Contest]:
    for label in checkpoints if folder is not None else ("as configured",):
        loads = {} if folder is None else _loads(config, folder, label)
        frozen = _frozen(config, loads)
        if against is None:
            yield Contest(f"at {label}", frozen, tuple(config.policies))
            continue
        for policy in loads or config.policies:
            yield Contest(f"at {label} against {against}", _opposed(frozen, policy, against), (policy,))


def _loads(config: Config, folder: RunFolder, label: str) -> dict[str, str]:
    """Per policy that has checkpoints the one that is meant."""
    found = {}
    for name in config.policies:
        files = checkpoint.list_checkpoints(folder.checkpoints_path(name))
        if files:
            found[name] = str(_choose(files, label))
    if not found:
        raise ConfigError("no policy has a checkpoint in this run", source=str(folder.path))
    return found


def _choose(files: Sequence[Path], label: str) -> Path:
    ticks = {str(checkpoint.ticks_of(file)): file for file in files}
    named = {"first": files[0], "last": files[-1], **ticks}
    if label not in named:
        raise ConfigError(f"there is no checkpoint {label!r}; {nearest(label, named)}", path="--checkpoints")
    return named[label]


def _frozen(config: Config, loads: dict[str, str]) -> Config:
    policies = {
        name: msgspec.structs.replace(policy, frozen=True, load=loads.get(name, policy.load))
        for name, policy in config.policies.items()
    }
    return msgspec.structs.replace(config, policies=policies, ticks=_ENDLESS, scale=False)


def _opposed(config: Config, policy: str, against: str) -> Config:
    """The matches in which a policy plays, with all other seats taken by one opponent."""
    if against in config.policies:
        opponent = config.policies[against]
    elif against in ALGORITHMS or ":" in against:
        opponent = PolicyConfig(algorithm=against, frozen=True)
    else:
        known = [*config.policies, *ALGORITHMS]
        raise ConfigError(f"{against!r} is no policy and no algorithm; {nearest(against, known)}", path="--against")
    matches: list[MatchConfig] = []
    for _, entry in config.entries():
        seats = tuple(_seat(seat, policy) for seat in entry.seats)
        changed = msgspec.structs.replace(entry, seats=seats)
        if any(seat != _seat(OPPONENT, OPPONENT) for seat in seats) and changed not in matches:
            matches.append(changed)
    policies = {policy: config.policies[policy], OPPONENT: opponent}
    return msgspec.structs.replace(config, policies=policies, matches=tuple(matches))


def _seat(seat: SeatEntry, policy: str) -> SeatEntry:
    names = (seat,) if isinstance(seat, str) else seat
    if policy in names:
        return seat
    return OPPONENT if isinstance(seat, str) else (OPPONENT,) * len(names)


def _play(config: Config, home: Path, episodes: int, *, greedy: bool) -> dict[str, Score]:
    folder = _free(home / f"{config.name}-evaluation")
    run = prepare(config, ranks=1, run_dir=str(folder))
    lanes = sum(match.lanes for match in run.plan.matches)
    run = replace(run, episodes=math.ceil(episodes / lanes), greedy=greedy)
    scoreboard = hosting.in_one_process(run, PlainDisplay(io.StringIO(), total_ticks=1))
    return scoreboard.policies


def _free(path: Path) -> Path:
    number = 1
    while (candidate := path if number == 1 else path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate


def result_words(score: Score) -> str:
    """A result with its 95 % intervals."""
    if score.episodes == 0:
        return "no episode"
    words = [f"{score.episodes} episodes", f"return {_mean_words(score)}", f"length {score.lengths.mean:.1f}"]
    if score.games.count:
        low, high = wilson(score.wins, score.games.count)
        words.insert(1, f"won {score.wins / score.games.count:.1%} [{low:.1%}, {high:.1%}]")
    return ", ".join(words)


def _mean_words(score: Score) -> str:
    mean = score.returns.total / score.returns.count
    return f"{mean:.2f} +- {_Z95 * score.returns.deviation / math.sqrt(score.returns.count):.2f}"


def wilson(wins: float, games: int) -> tuple[float, float]:
    """The 95 % score interval of a win rate.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    rate, z2 = wins / games, _Z95 * _Z95
    center = (rate + z2 / (2 * games)) / (1 + z2 / games)
    half = _Z95 * math.sqrt(rate * (1 - rate) / games + z2 / (4 * games * games)) / (1 + z2 / games)
    return max(0.0, center - half), min(1.0, center + half)
