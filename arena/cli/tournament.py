"""`arena tournament`: in one process, as one rank under a launcher, or by starting the launcher.

As with `arena train`, many processes may come through here at once, and the first alone needs to know who plays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from arena.launch import mpirun
from arena.registry import uncollected

if TYPE_CHECKING:
    from arena.cli.contesting import TournamentRun


class TournamentArgs(NamedTuple):
    """Which tournament: the arguments of `tournament` that say so."""

    targets: tuple[str, ...]
    players: tuple[str, ...]
    checkpoints: tuple[str, ...]
    episodes: int
    error: float | None  # None: as it was, of one that goes on; else the usual one
    elo: float | None
    greedy: bool
    run_dir: str | None
    as_json: bool
    resume: bool = False
    untrained: bool = False


def tournament(
    targets: Sequence[str],
    *,
    episodes: int,
    error: float | None = None,
    elo: float | None = None,
    players: Sequence[str] = (),
    checkpoints: Sequence[str] = ("last",),
    greedy: bool = True,
    ranks: int | None = None,
    run_dir: str | None = None,
    resume: bool = False,
    as_json: bool = False,
    untrained: bool = False,
) -> int:
    """Takes this process's part in a tournament, or starts it. Returns the exit status.

    Args:
        targets: configurations and run folders, whose policies play.
        episodes: at most so many games.
        error: how probable it may be that some two players are in the wrong order; None: 0.05, or what it was before.
        elo: the difference that is to be resolved; None: 20, or what it was before.
        players: of all these policies, those who play, as `blue` or `blue@5000`; none: all.
        checkpoints: of runs: `first`, `last`, or a number of ticks.
        greedy: the most likely actions rather than sampled ones.
        ranks: how many processes to start; None or 1: none, everything in this one.
        run_dir: the tournament's folder; None: `runs/<name>-tournament`, or the next free name.
        resume: go on with the one that is in the folder.
        as_json: print the result as data.
        untrained: take policies that learn and have no checkpoint with their first weights; otherwise they are refused.

    Raises:
        ConfigError: a mistake of the user; under a launcher it is told here, once, and 2 is returned.
    """
    chosen = tuple(players), tuple(checkpoints)
    request = TournamentArgs(tuple(targets), *chosen, episodes, error, elo, greedy, run_dir, as_json, resume, untrained)
    if mpirun.under_launcher():
        with uncollected():
            from arena.launch.rank import run_rank
        return run_rank(lambda: _leader(request))
    if ranks is None or ranks == 1:
        leader = _leader(request)
        return leader.alone(leader.prepare(1))
    from arena.cli.contesting import opening

    opening(request)  # a mistake is said once, before any process starts
    return mpirun.run(ranks, [sys.executable, "-m", "arena", *sys.argv[1:]], tolerant=False)


def _leader(request: TournamentArgs) -> TournamentRun:
    with uncollected():
        from arena.cli.contesting import TournamentRun
    return TournamentRun(request)
