"""The rounds of a league: when one is over, the results of all rounds determine the pairings of the next.

begin        records the first round, whose pairings follow from the configuration alone, or the round that is resumed
next_round   results, ratings and returns -> the next round: its plan over the same processes, and the initial weights:
             those of the round before, of a fork's source, or of a snapshot
again        the round that a resumed run continues, as it was planned

All processes stay: policies go from round to round as they go from leg to leg, with the boundary between them. So a
round that is planned again, after a death or `--resume`, is the same round.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from arena.callbacks import Callbacks
from arena.config import Config
from arena.config.load import parse_proposed
from arena.config.matches import KnockoutEntry
from arena.errors import ConfigError
from arena.league import rounds_file
from arena.league.next_round import (
    Champion,
    Round,
    first_round,
    is_over,
    knockouts_won,
    looks_back,
    round_config,
    view_of,
    with_matches,
)
from arena.league.next_round import next_round as plan_next_round
from arena.league.ratings.standings import LeagueTable, league_table
from arena.league.read_results import GamesSoFar, read
from arena.league.rounds_file import player_of
from arena.league.timeline import Timeline
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.records import checkpoint
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.run.handover import match_workers, seats_of
from arena.run.leg import Leg
from arena.run.process_state import ProcessState
from arena.run.run import Run

_KEPT = checkpoint.KEPT + 1
"""For how many rounds a dropped snapshot is kept: as long as the run may be rolled back to a round that has it."""


def begin(run: Run) -> None:
    """Records the round that begins, or is resumed over the present processes; removes the records of later rounds."""
    number = run.plan.round
    known = rounds_file.read(run.folder) if run.resumed else []
    _forget_later(run.folder, known[number + 1 :])
    planned = known[number] if run.resumed else first_round(run.plan.config)
    rounds_file.keep(run.folder, known[:number], planned, run.plan)


def next_round(run: Run, memory: ProcessState) -> Run | None:
    """The run with its next round; None if there is none.

    Args:
        run: has played a round to its end.
        memory: of rank 0; has the callbacks, which may propose the matches.

    Raises:
        ConfigError: the records are damaged; or the matches that are proposed, or made by a rule or a generator of the
            user's own, cannot be played.
        CallbackFailed: a callback has raised.
    """
    if run.leg.start >= run.plan.horizon:
        return None
    config, known = run.plan.config, rounds_file.read(run.folder)
    before, later = known[: run.plan.round + 1], known[run.plan.round + 1 :]
    games = _games_so_far(run, memory, config)
    results = games.read(run.plan.round).timeline
    if is_over(config, before, results):
        return None
    following = plan_next_round(config, before, results, games.returns, games.played)
    if later and later[0].proposed_by:
        following = with_matches(config, following, later[0].matches, by=later[0].proposed_by)
    elif run.plan.config.callbacks:
        following = _proposed(run, memory, config, before, following, results)
    _forget_later(run.folder, later)
    for player in following.snapshots:
        _take(run, player)
    plan = plan_of(config, following, run.folder, ranks=run.plan.processes)
    rounds_file.keep(run.folder, before, following, plan)
    _forget(run.folder, before)
    leg, ticks_before = _leg(run, config, before, following, plan), _ticks_before(run.folder, following.number)
    return replace(run, plan=plan, leg=leg, words=(), ticks_before=ticks_before)


def _games_so_far(run: Run, memory: ProcessState, config: Config) -> GamesSoFar:
    """The games of a league as rank 0 keeps them; read from the beginning if it keeps none."""
    if memory.games is None or memory.games.config != config:
        memory.games = GamesSoFar(run.folder, config, keeps_played=looks_back(config))
    return memory.games


def is_decided(run: Run, memory: ProcessState) -> bool:
    """Whether a league that has played a round to its end is decided, though rounds are left.

    Args:
        run: the league.
        memory: of rank 0.
    """
    config, known = run.plan.config, rounds_file.read(run.folder)
    knockouts = (isinstance(entry, KnockoutEntry) for entries in config.listed for entry in entries)
    if (config.league is None or config.league.decided is None) and not any(knockouts):
        return False  # the common case: no results need to be read
    results = _games_so_far(run, memory, config).read(run.plan.round).timeline
    return is_over(config, known[: run.plan.round + 1], results)


def ratings(run: Run, memory: ProcessState) -> dict[str, float]:
    """The Elo of each policy that can be rated, as in the standings after the round that was played to its end.

    Args:
        run: the league.
        memory: of rank 0.
    """
    config = run.plan.config
    found = league_table(_games_so_far(run, memory, config).read(run.plan.round).timeline, {}, config)
    elo = {row.player: row.elo for rows in found.tables for row in rows}
    return {name: elo[name] for name in config.policies if name in elo}


def _proposed(
    run: Run, memory: ProcessState, config: Config, before: Sequence[Round], following: Round, results: Timeline
) -> Round:
    """The next round as a callback wants it; as planned, if none proposes anything."""
    callbacks = memory.callbacks = memory.callbacks or Callbacks(run.plan.config.callbacks, memory.stop.ask)
    view = view_of(config, before, following, results)
    found = callbacks.next_round(view)
    if found is None:
        return following
    name, proposed = found
    snapshots = {player: player_of(player).policy for own in view.snapshots.values() for player in own}
    matches = parse_proposed(config, proposed, snapshots, path=f"{name}.on_next_round()")
    return with_matches(config, following, matches, by=name)


def league_standings(run: Run) -> LeagueTable:
    """The standings after the newest round; without rows if no game was won or lost."""
    found = read(run.folder, last=run.plan.round)
    return league_table(found.timeline, found.cut, run.plan.config)._replace(without_winner=found.without_winner)


def league_champions(run: Run) -> list[Champion]:
    """The winners of the knockouts that are over."""
    return knockouts_won(run.folder, run.plan.config)


def again(run: Run, config: Config, tick: int) -> Run:
    """The run with the plan of the round that was played at a tick, or that has ended there.

    Args:
        run: of the first round's plan, in the folder of an earlier part of the run.
        config: of the run.
        tick: at which it continues.

    Raises:
        ConfigError: the round is not on record.
    """
    number = max(0, tick - 1) // config.ticks
    found = rounds_file.read(run.folder)
    if number >= len(found):
        raise ConfigError(f"lacks round {number}, which was played at tick {tick}", source=str(run.folder.rounds))
    plan = plan_of(config, found[number], run.folder, ranks=run.plan.processes)
    return replace(run, plan=plan, ticks_before=_ticks_before(run.folder, number))


def _ticks_before(folder: RunFolder, number: int) -> int:
    """Ticks of all matches together in the rounds before this one."""
    lines = rounds_file.lines_in(JournalReader(folder.rounds))[: number + 1]
    return rounds_file.ticks_before([line.start for line in lines], [len(line.matches) for line in lines])


def plan_of(config: Config, planned: Round, folder: RunFolder, *, ranks: int) -> Plan:
    """The plan of a round.

    Args:
        config: of the whole league.
        planned: the round.
        folder: where its snapshots are.
        ranks: how many processes there are.
    """
    played = round_config(config, planned, partial(_weights, folder))
    return make_plan(played, ranks=ranks, number=planned.number, places=planned.places, whole=config)


def _weights(folder: RunFolder, player: str) -> Path:
    """The checkpoint of a snapshot."""
    found = player_of(player)
    return folder.snapshot_path(found.policy, found.tick)


def _take(run: Run, player: str) -> None:
    """Saves the newest checkpoint of a policy as a snapshot."""
    path = _weights(run.folder, player)
    make_folder(path.parent.parent)
    checkpoint.duplicate(run.leg.restore[player_of(player).policy], path)


def _forget_later(folder: RunFolder, planned: Sequence[Round]) -> None:
    """Removes the records of rounds that are planned again, with other pairings perhaps."""
    for later in planned:
        for recorded in (folder.samples, folder.replays):
            if (recorded / f"round-{later.number:04d}").exists():
                shutil.rmtree(recorded / f"round-{later.number:04d}")
        for player in later.snapshots:
            _weights(folder, player).unlink(missing_ok=True)


def _forget(folder: RunFolder, before: Sequence[Round]) -> None:
    """Removes dropped snapshots that no round uses to which the run may be rolled back."""
    for old in before[:-_KEPT]:
        for player in old.dropped:
            _weights(folder, player).unlink(missing_ok=True)


def _leg(run: Run, config: Config, before: Sequence[Round], following: Round, plan: Plan) -> Leg:
    """The leg of a new round; a policy that is reset begins as at first, because its seed is the same."""
    known = dict(run.leg.restore)
    restore: dict[str, Path] = {}
    for name, policy in plan.policies.items():
        fork = following.forks.get(name)
        source = None if name in following.resets else known.get(fork.source if fork else name)
        if source is None and policy.config.load is not None:
            source = checkpoint.find(policy.config.load, name)
        if source is not None:
            restore[name] = source
    return Leg(
        start=run.leg.start,
        updates=run.leg.updates,
        seconds=run.leg.seconds,
        restore=restore,
        own=dict(_own(run, config, before, following, plan, restore)),
    )


def _own(
    run: Run, config: Config, before: Sequence[Round], following: Round, plan: Plan, restore: Mapping[str, Path]
) -> Iterator[tuple[tuple[int, int], Path]]:
    """Per worker the file of the private state with which it continues, such as a replay buffer.

    A fork continues with the state of its source; a policy that is reset has none.
    """
    for name, policy in plan.policies.items():
        if policy.config.frozen or not policy.workers or name in following.resets or name not in restore:
            continue
        source = following.forks[name].source if name in following.forks else name
        learned, folder = restore[name], run.folder.checkpoints_path(source)
        last = _last_plan(run, config, before, source)
        if (
            last is None or learned.parent != folder
        ):  # a checkpoint of another run, as `load:` names, has no private state
            continue
        reseated = run.leg.own if last is run.plan else None  # the run was resumed with other seats
        for worker, other in match_workers(seats_of(plan, name), seats_of(last, source)):
            if reseated is None:
                yield worker, checkpoint.own_path_of(folder, checkpoint.ticks_of(learned), other)
            elif other in reseated:
                yield worker, reseated[other]


def _last_plan(run: Run, config: Config, before: Sequence[Round], policy: str) -> Plan | None:
    """The plan of the last round that a policy has played; None if there is none."""
    for played in reversed(before):
        last = played.number == run.plan.round
        plan = run.plan if last else plan_of(config, played, run.folder, ranks=1)
        if plan.policies[policy].workers:
            return plan
    return None
