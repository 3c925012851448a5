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
from arena.config.matches import Knockout
from arena.errors import ConfigError
from arena.league import rounds_file
from arena.league.next_round import (
    Champion,
    first_round,
    is_over,
    knockouts_won,
    looks_back,
    round_config,
    view_of,
    with_matches,
)
from arena.league.next_round import next_round as plan_next_round
from arena.league.ratings.standings import league_table
from arena.league.read_results import GameReader, read
from arena.league.rounds_file import player_of
from arena.league.sources import find_checkpoint
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.records import checkpoint
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.formats import Round
from arena.records.journal import JournalReader
from arena.roles.root.legs import match_workers, seats_of
from arena.roles.run import Leg, Run
from arena.roles.state import RunState
from arena.run.hooks import with_changes

_KEPT = checkpoint.KEPT + 1
"""For how many rounds a dropped snapshot is kept: as long as the run may be rolled back to a round that has it."""


def begin(run: Run) -> None:
    """Records the round that begins, or is resumed over the present processes; removes the records of later rounds."""
    number = run.plan.round
    known = rounds_file.read(run.folder) if run.resumed else []
    _forget_later(run.folder, known[number + 1 :])
    planned = known[number] if run.resumed else first_round(run.plan.config)
    rounds_file.keep(run.folder, known[:number], planned, with_changes(run.plan, run.plan.config))  # as it was planned


def next_round(run: Run, state: RunState) -> Run | None:
    """The run, which has played a round to its end, with its next round; None if there is none.

    Callbacks may propose the matches. Raises ConfigError if these, or those of a custom rule or generator, cannot be
    played, and CallbackFailed if a callback has raised.
    """
    if run.leg.start >= run.plan.horizon:
        return None
    config, folder, known = run.plan.config, run.folder, rounds_file.read(run.folder)
    before, later = known[: run.plan.round + 1], known[run.plan.round + 1 :]
    games = _games_so_far(run, state)
    results = games.read(run.plan.round).timeline
    if is_over(config, before, results):
        return None
    following = plan_next_round(config, before, results, games.returns, games.played)
    if later and later[0].proposed_by:
        following = with_matches(config, following, later[0].matches, by=later[0].proposed_by)
    elif config.callbacks:
        state.callbacks = state.callbacks or Callbacks(config.callbacks, state.stop.ask)
        view = view_of(config, before, following, results)
        proposal = state.callbacks.next_round(view)
        if proposal is not None:
            name, proposed = proposal
            snapshots = {player: player_of(player).policy for each in view.snapshots.values() for player in each}
            matches = parse_proposed(config, proposed, snapshots, path=f"{name}.on_next_round()")
            following = with_matches(config, following, matches, by=name)
    _forget_later(folder, later)
    for player in following.snapshots:
        path = _weights(folder, player)
        make_folder(path.parent.parent)
        checkpoint.duplicate(run.leg.restore[player_of(player).policy], path)
    plan = plan_of(config, following, folder, ranks=run.plan.processes)
    rounds_file.keep(folder, before, following, plan)
    plan = with_changes(plan, run.changed_config or config)
    for old in before[:-_KEPT]:  # the run cannot be rolled back to a round that uses what these have dropped
        for player in old.dropped:
            _weights(folder, player).unlink(missing_ok=True)
    restore: dict[str, Path] = {}
    for policy in plan.policies.values():
        fork = following.forks.get(policy.name)
        # A policy that is reset begins as at first, because its seed is the same.
        known_path = run.leg.restore.get(fork.source if fork else policy.name)
        source = None if policy.name in following.resets else known_path
        if source is None and policy.config.load is not None:
            source = find_checkpoint(policy.config.load, policy.name, folder)
        if source is not None:
            restore[policy.name] = source
    leg = Leg(
        start=run.leg.start,
        updates=run.leg.updates,
        seconds=run.leg.seconds,
        restore=restore,
        private_states=dict(_private_states(run, before, following, plan, restore)),
    )
    return replace(run, plan=plan, leg=leg, text=(), ticks_before=_ticks_before(folder, following.number))


def _games_so_far(run: Run, state: RunState) -> GameReader:
    """The games of a league as rank 0 keeps them; read from the beginning if it keeps none."""
    config = run.plan.config
    if state.games is None or state.games.config != config:
        state.games = GameReader(run.folder, config, keeps_played=looks_back(config))
    return state.games


def _private_states(
    run: Run, before: Sequence[Round], following: Round, plan: Plan, restore: Mapping[str, Path]
) -> Iterator[tuple[tuple[int, int], checkpoint.StatePlace]]:
    """Per worker the place of the private state with which it continues, such as a replay buffer.

    A fork continues with the state of its source; a policy that is reset has none.
    """
    for name, policy in plan.policies.items():
        if policy.config.frozen or not policy.workers or name in following.resets or name not in restore:
            continue
        source = following.forks[name].source if name in following.forks else name
        learned, folder = restore[name], run.folder.checkpoints_path(source)
        if learned.parent != folder:  # a checkpoint of another run, as `load:` names, has no private state
            continue
        for played in reversed(before):
            is_last = played.number == run.plan.round
            last = run.plan if is_last else plan_of(run.plan.config, played, run.folder, ranks=1)
            last = with_changes(last, run.changed_config or run.plan.config)  # seats are compared as they are now
            if last.policies[source].workers:  # the last round that the policy has played
                break
        else:
            continue
        known = run.leg.private_states if is_last else checkpoint.worker_states(folder, checkpoint.ticks_of(learned))
        for worker, other in match_workers(seats_of(plan, name), seats_of(last, source)):
            if other in known:
                yield worker, known[other]


def is_decided(run: Run, state: RunState) -> bool:
    """Whether a league that has played a round to its end is decided, though rounds are left."""
    config, known = run.plan.config, rounds_file.read(run.folder)
    knockouts = (isinstance(entry, Knockout) for entries in config.listed for entry in entries)
    if (config.league is None or config.league.decided is None) and not any(knockouts):
        return False  # the common case: no results need to be read
    return is_over(config, known[: run.plan.round + 1], _games_so_far(run, state).read(run.plan.round).timeline)


def ratings(run: Run, state: RunState) -> dict[str, float]:
    """The Elo of each policy that can be rated, as in the standings after the round that was played to its end."""
    found = league_table(_games_so_far(run, state).read(run.plan.round).timeline, {}, run.plan.config)
    elo = {row.player: row.elo for rows in found.tables for row in rows}
    return {name: elo[name] for name in run.plan.config.policies if name in elo}


def decided_lines(run: Run) -> list[str]:
    """A line where a league is over before its last round, as the order of its players is decided."""
    config, known = run.plan.config, rounds_file.read(run.folder)
    rule = None if config.league is None else config.league.decided
    if rule is None or len(known) == config.rounds:
        return []
    if not is_over(config, known, read(run.folder, last=run.plan.round).timeline):
        return []
    error = f"at an error of {rule.error:g}, differences below {rule.elo:g} Elo not counted"
    return [f"the order is decided after {len(known)} of {config.rounds} rounds, {error}"]


def league_champions(run: Run) -> list[Champion]:
    """The winners of the knockouts that are over."""
    return knockouts_won(run.folder, run.plan.config)


def again(run: Run, config: Config, tick: int) -> Run:
    """The run with the plan of the round that was played at a tick, or that has ended there.

    `run` is of the first round's plan. Raises ConfigError if the round is not on record.
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
    return rounds_file.ticks_before([line.start for line in lines], [len(line.planned) for line in lines])


def plan_of(config: Config, planned: Round, folder: RunFolder, *, ranks: int) -> Plan:
    """The plan of a round of a league whose snapshots are in a folder."""
    played = round_config(config, planned, partial(_weights, folder))
    return make_plan(played, ranks=ranks, number=planned.number, places=planned.places, whole=config)


def _weights(folder: RunFolder, player: str) -> Path:
    """The checkpoint of a snapshot."""
    found = player_of(player)
    return folder.snapshot_path(found.policy, found.tick)


def _forget_later(folder: RunFolder, planned: Sequence[Round]) -> None:
    """Removes the records of rounds that are planned again, with other pairings perhaps."""
    for later in planned:
        for recorded in (folder.samples, folder.replays):
            if (recorded / f"round-{later.number:04d}").exists():
                shutil.rmtree(recorded / f"round-{later.number:04d}")
        for player in later.snapshots:
            _weights(folder, player).unlink(missing_ok=True)
