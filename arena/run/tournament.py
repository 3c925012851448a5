"""Rank 0's part of a tournament: frozen players meet until their order is decided.

A tournament is a run of rounds in one folder, in which no policy learns. Each round is a batch of the games that say
most about the order. Every lane of a batch plays the same number of episodes, so that long games are not left out. When
a batch is over, the results so far determine the next one: over the same processes, with other random streams.

`--resume` goes on after the newest batch that is whole; the games of a later one are played again. The pairings of a
batch follow from the games before it, so a resumed tournament is the same as one that was never interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from arena import opened, registry
from arena.config import load_config
from arena.config.members import Sides
from arena.config.schema import Config
from arena.diagnostics.start_folder import check_path
from arena.errors import ConfigError, in_python, pluralize
from arena.league import read_results, rounds_file
from arena.league.ratings.ranking import OrderUncertainty
from arena.league.ratings.standings import populations_of
from arena.league.read_results import ResultSet
from arena.league.results import Results
from arena.league.sources import AnyConfig
from arena.league.tournament import (
    LANES,
    Batch,
    Rule,
    Table,
    distinct_settings,
    games_of_a_meeting,
    in_all_seats,
    in_lanes,
    next_batch,
    not_behind,
    read_terms,
    rows_of_returns,
    table,
    widened,
    write_terms,
)
from arena.plan.build import make_plan
from arena.plan.plan import UNBOUNDED_TICKS
from arena.preflight.outcomes import require_rules
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.records.formats import Round, Terms
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Leg, Run, leg_at
from arena.roles.state import Display, RunState
from arena.run import rounds
from arena.run.api import Listener, untouched_process
from arena.run.evaluation import check_episodes
from arena.run.lead import RunCommand
from arena.run.loop import run_single_process
from arena.run.mpirun import Restart
from arena.run.planning import checked_plan
from arena.run.players import players_of, read_sources, settings_of, sides_of
from arena.run.prepare import existing_folder, prepare
from arena.run.resume import GAME, SAME_MATCH, compared, initial_checkpoints, matches_by_number
from arena.terminal.display import silent_display
from arena.terminal.standings import contradicting, elo_text, table_data

_ERROR, _ELO = 0.05, 20.0  # defaults of --error and --elo
_GAMES, _ALONE = 10_000, 100  # of --episodes: in all, and of each player where players play alone
_STREAM = 0x746F7572  # separates a tournament's random streams from those of the configuration that it is made of
_MOST_BATCHES = 2**12  # each of them has UNBOUNDED_TICKS ticks, and all together fewer than 2^53
_PLAYER = ("algorithm", "options", "load")


@dataclass(frozen=True)
class Entry:
    """Who plays in a tournament and how; see `tournament`."""

    targets: Sequence[AnyConfig]
    overrides: Sequence[str] = ()
    episodes: int | None = None
    error: float | None = None
    elo: float | None = None
    checkpoints: Sequence[str] = ("last",)
    untrained: bool = False
    greedy: bool = True
    run_dir: str | None = None
    resume: bool = False


class Outcome(NamedTuple):
    """What the games of a tournament say."""

    table: Table
    played: ResultSet
    batches: int  # that were played to their ends
    rule: Rule
    sides: Sides | None  # of two populations


class ReturnsOutcome(NamedTuple):
    """The result of players that play alone."""

    rows: list[dict[str, Any]]  # see `rows_of_returns`

    @property
    def decided(self) -> bool:
        """Whether the first player is the best."""
        return not not_behind(self.rows)


class TournamentResult(NamedTuple):
    """The result of `tournament`.

    Args:
        standings: a row for each player, the best first: `rank`, `player`, `elo`, `low` and `high` (95 %), games and
            points. With two populations that only meet each other, the players of one after those of the other.
            Of players that play alone: `rank`, `player`, `games`, `return`, `return_low` and `return_high` (95 %);
            `difference`, the mean difference from the best player's return in the same game, `difference_low` and
            `difference_high` (95 % for all pairs of players together).
        decided: whether the order is certain up to `error`; of players that play alone whether the first is the best.
        games: that count.
        run_dir: the folder of the games, a run folder.
        undecided: a row for each two neighbors that keep the order open: `upper`, `lower`, `probability` that it is the
            other way round, `equal`, `games_left`: about how many more of their games settle it; 0: not known. Of
            players that play alone: `upper`, the best, and `lower`, each that may be as good.
    """

    standings: opened.Table
    decided: bool
    games: int
    run_dir: Path
    undecided: opened.Table


@in_python()
def tournament(
    players: AnyConfig | Sequence[AnyConfig],
    episodes: int | None = None,
    *,
    checkpoints: Sequence[str | int] | str = "last",
    error: float = 0.05,
    elo: float = 20.0,
    untrained: bool = False,
    greedy: bool = True,
    run_dir: Path | str | None = None,
) -> TournamentResult:
    """Lets frozen policies of runs and configurations play until their order is decided, as `arena tournament`.

    Plays in this process and prints nothing. In a game of one team, or of one seat, each player plays the same games
    alone, and returns are compared.

        arena.tournament(["runs/a:blue", "runs/b:red@500"]).standings[0]["player"]

    Args:
        players: policies as `RUN:POLICY@TICK`; all of a run folder, a configuration file, its contents or an
            `arena.Config`.
        episodes: at most so many games, by default 10,000; without opponents so many of each player, by default 100.
        checkpoints: of a policy without `@TICK`: `first`, `last`, `best`, or numbers of ticks.
        error: the games end when some two players are in the wrong order with at most this probability.
        elo: differences below it do not count.
        untrained: whether policies that learn and have no checkpoint play, with their first weights.
        greedy: the most likely actions rather than sampled ones.
        run_dir: the folder of the games; None: `runs/<name>-tournament`, or the next free name.

    Raises:
        ConfigError: a mistake of the user, such as a run of another game.
        RunFailed: a game has failed.
        KeyboardInterrupt: a signal, which it names, has ended it.
    """
    if episodes is not None:
        check_episodes(episodes)
    for name, value, most in (("error", error, 0.5), ("elo", elo, 4000)):
        if not 0 < value <= most:
            raise ConfigError(f"found {value}; expected a number above 0, at most {most}", path=name)
    results, listener = list[TournamentResult](), Listener(None)
    labels = [checkpoints] if isinstance(checkpoints, str) else [str(label) for label in checkpoints]
    entry = Entry(
        players if isinstance(players, Sequence) and not isinstance(players, str) else [players],
        episodes=episodes,
        error=error,
        elo=elo,
        checkpoints=labels,
        untrained=untrained,
        greedy=greedy,
        run_dir=None if run_dir is None else check_path(run_dir, "the path of a run folder"),
    )

    def keep(run: Run, outcome: Outcome | ReturnsOutcome) -> None:
        if isinstance(outcome, ReturnsOutcome):
            best, left = outcome.rows[0]["player"], not_behind(outcome.rows)
            pairs = opened.Table(({"upper": best, "lower": player} for player in left), columns=("upper", "lower"))
            games = sum(row["games"] for row in outcome.rows)
            results.append(TournamentResult(opened.Table(outcome.rows), outcome.decided, games, run.path, pairs))
            return
        found, games = outcome.table, outcome.played.results.games
        rows = opened.Table(table_data(found.tables))
        pairs = opened.Table((pair._asdict() for pair in found.open), columns=OrderUncertainty._fields)
        results.append(TournamentResult(rows, found.decided, games, run.path, pairs))

    with untouched_process():
        command = TournamentRun(entry, lambda _: None, keep)
        run = command.prepare(1)
        listener.check(
            run_single_process(
                run,
                command.present,
                command.display(),
                next_stage=command.next_stage,
                output=listener,
                watched=False,
            )
        )
    if not results:  # the games of players that play alone were interrupted, with exit status 0
        raise KeyboardInterrupt(signal.SIGUSR1.name)
    return results[0]


class TournamentRun(RunCommand):
    """Rank 0's part of a tournament; `say` takes a line for each batch, `present` the outcome."""

    def __init__(
        self, entry: Entry, say: Callable[[str], object], present: Callable[[Run, Outcome | ReturnsOutcome], object]
    ) -> None:
        self._entry, self._say, self._present = entry, say, present
        self._settings = 0  # in which players play alone

    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Reads the players, and claims the run folder."""
        entry = self._entry
        config, batch, self._settings = opening(entry)
        for policy in config.policies.values():
            if policy.load is not None:
                checkpoint.load(policy.load, tensors=False)
        if entry.resume:
            run = continued(config, ranks=ranks, run_dir=entry.run_dir, greedy=entry.greedy)
        else:
            run = prepare(config, ranks=ranks, run_dir=entry.run_dir)
        players = pluralize(len(config.policies), "player")
        if self._settings:  # games of the same setting have the same seeds
            matches = tuple(replace(match, entry=match.entry % self._settings) for match in run.plan.matches)
            run = replace(run, plan=replace(run.plan, matches=matches), seeded=True)
            games = batch.episodes * sum(match.lanes for match in matches[: self._settings])
            self._say(f"{config.name}: {players}, each alone in the same {pluralize(games, 'game')}")
        else:
            self._say(f"{config.name}: {players}, at most {pluralize(entry.episodes or _GAMES, 'game')}")
        first = entry.targets[0]
        source = str(first) if isinstance(first, (Path, str)) else ""
        return replace(run, source=source, episodes=batch.episodes, greedy=entry.greedy)

    def next_stage(self, run: Run, state: RunState) -> Run | None:
        """The next batch; None if the order is decided or the budget is used."""
        if self._settings:
            return None if run.begun else run
        rule = self._rule(run.folder)
        # With --resume, actions are chosen as they were before: see `continued`.
        write_terms(run.folder, Terms(greedy=self._entry.greedy, error=rule.error, elo=rule.elo))
        if not run.begun and run.leg.start == 0:
            return run
        before = _whole(run.folder)
        config, played = run.plan.config, read_results.read(run.folder, last=len(before) - 1)
        sides = populations_of(config, [*config.policies], tournament=True)
        settings = distinct_settings([match for _, match in config.known_matches()])
        batch = next_batch(settings, [*config.policies], played.results, rule, played=played.episodes, sides=sides)
        # Refuses results without a game that counts, after a whole batch, where others would follow.
        if played.episodes and not played.results.games and batch is not None:
            reasons = "".join(f"; {line}" for line in played.without_winner)
            raise ConfigError(
                f"none of {pluralize(played.episodes, 'game')} counts: {played.unrated} had no winner and no draw, "
                f"{played.aborted} were cut short{reasons}",
                source=run.source,
            )
        found = table(played.results, [*config.policies], rule, sides=sides)
        progress = pluralize(played.results.games, "game")
        if found.rows:
            best = found.rows[0]
            progress += f": {best.player} leads with {elo_text(best.elo)} [{elo_text(best.low)}, {elo_text(best.high)}]"
            if found.unmet:
                progress += f"; {pluralize(len(found.unmet), 'pair')} still to meet"
            elif any(pair.circle for pair in found.contradictions):
                progress += ", but players beat each other in a circle; its pairs play now"
            elif found.contradictions:
                progress += f", but the games of {contradicting(found)} contradict the order"
            else:
                progress += f"; {len(found.open)} of {len(found.doubts)} neighbors are open"
        self._say(progress)
        if batch is None or len(before) >= config.round_count:
            return None
        following = Round(number=len(before), start=run.leg.start, matches=batch.matches)
        plan = rounds.plan_of(config, following, run.folder, ranks=run.plan.processes)
        rounds_file.keep(run.folder, before, following, plan)
        leg = Leg(start=run.leg.start, restore=initial_checkpoints(plan, run.folder))
        return replace(run, plan=plan, leg=leg, episodes=batch.episodes)

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Gives the outcome to `present`."""
        if self._settings:
            if run.concluded:  # else the games were interrupted
                self._present(run, ReturnsOutcome(self._rows(run)))
            return
        batches, config = len(_whole(run.folder)), run.plan.config
        played = read_results.read(run.folder, last=batches - 1)
        rule, sides = self._rule(run.folder), populations_of(config, [*config.policies], tournament=True)
        found = table(played.results, [*config.policies], rule, sides=sides)
        self._present(run, Outcome(found, played, batches, rule, sides))

    def _rows(self, run: Run) -> list[dict[str, Any]]:
        """The table of players that have played alone, by the games in which all have a return."""
        returns: dict[str, dict[tuple[int, int, int], float]] = {name: {} for name in run.plan.config.policies}
        for line in JournalReader(run.folder.episodes).lines(EpisodeRecord, missing_ok=True):
            if not line.cut:
                place = line.match % self._settings, line.lane, line.episode
                if earned := [seat.return_ for seat in line.seats if seat.return_ is not None]:
                    returns[line.seats[0].policy][place] = fmean(earned)
        common = set.intersection(*map(set, returns.values()))
        if not common:
            raise ConfigError("there is no game in which all players have a return", source=run.source)
        return rows_of_returns({name: [games[place] for place in common] for name, games in returns.items()})

    def display(self) -> Display:
        """Shows nothing: a line for each batch is enough."""
        return silent_display()

    def _rule(self, folder: RunFolder) -> Rule:
        """When this tournament ends."""
        return rule_of(self._entry, read_terms(folder) if self._entry.resume else None)


def rule_of(entry: Entry, before: Terms | None = None) -> Rule:
    """When a tournament ends; `before`: the terms with which it began, with --resume."""
    error, elo = (None, None) if before is None else (before.error, before.elo)
    return Rule(entry.episodes or _GAMES, entry.error or error or _ERROR, entry.elo or elo or _ELO)


def opening(entry: Entry) -> tuple[Config, Batch, int]:
    """The configuration of a tournament, and its first batch, whose matches are those of the configuration.

    The last number is that of the settings in which each player plays alone, 0 where players meet.
    """
    given, rule = read_sources(entry.targets, entry.overrides), rule_of(entry)
    players = players_of(given, entry.checkpoints, untrained=entry.untrained)
    sources = [of.source for of in given]
    envs, settings, team = settings_of(sources)
    if entry.resume and team:
        raise ConfigError("players that play alone do so once: there is nothing to go on with", path="--resume")
    sides = None if team else sides_of(given, players)
    # Whether all players can play several lanes at once.
    classes = [
        registry.configured_algorithm(
            policy.algorithm, policy.options, acts=True, path=f"policies.{name}", any_device=True
        ).cls
        for name, policy in players.items()
    ]
    alone = all(isinstance(entry, str) for setting in settings for entry in setting.seats)
    wide = alone and all("vector" in ((cls.face,) if isinstance(cls.face, str) else cls.face) for cls in classes)
    first: Batch | None
    if team:
        episodes = entry.episodes or _ALONE
        settings = in_lanes(settings, min(LANES, episodes)) if wide else settings
        matches = tuple(in_all_seats(setting, player) for player in players for setting in settings)
        first, count = Batch(matches, -(-episodes // sum(setting.lanes for setting in settings))), 1
    else:
        settings = widened(settings, len(players), rule) if wide else settings
        first = next_batch(settings, [*players], Results(), rule, played=0, sides=sides)
        meeting = games_of_a_meeting(settings, sides=sides)
        if sides is not None and rule.games < meeting * max(map(len, sides)):
            raise ConfigError(
                f"found {rule.games}, but each of {len(sides.first)} players meets one of {len(sides.second)} of the "
                f"other population first, in {pluralize(meeting, 'game')}; ask for "
                f"{meeting * max(map(len, sides))} or more",
                path="--episodes",
            )
        if first is None:
            raise ConfigError(
                f"found {rule.games}, but when two players meet they play {meeting}: {pluralize(meeting // 2, 'lane')} "
                f"on both sides; ask for {meeting} or more",
                path="--episodes",
            )
        for name in dict.fromkeys(setting.env for setting in settings):
            if envs[name].outcome == "none":
                raise ConfigError(
                    "found none, so its games have no winners, and there is no order to find out; set higher_return, "
                    "zero_sum or info, or name players whose matches have one policy in all seats",
                    path=f"envs.{name}.outcome",
                    source=sources[0].path,
                )
        count = min(_MOST_BATCHES, 1 + rule.games // meeting)
    base = sources[0].config
    config = msgspec.structs.replace(
        base.games_alone(),
        name=f"{base.name[:80]}-tournament",
        seed=int(np.random.SeedSequence([base.seed, _STREAM]).generate_state(1)[0]),
        ticks=UNBOUNDED_TICKS,
        rounds=count,
        envs={name: envs[name] for name in dict.fromkeys(setting.env for setting in settings)},
        policies=players,
        imports=tuple(dict.fromkeys(module for source in sources for module in source.config.imports)),
        matches=first.matches,
        league=None,
        record="nothing",
        scale=False,
        restarts=0,
    )
    with sources[0].origin.located():
        require_rules(config, make_plan(config), tournament=not team)
    return config, first, len(settings) if team else 0


def continued(config: Config, *, ranks: int, run_dir: str | None, greedy: bool) -> Run:
    """The run of a tournament as it continues; its folder is not changed. `config` is that of a new one."""
    folder = existing_folder(config, run_dir)
    before = load_config(folder.config)
    old, new = (
        matches_by_number(distinct_settings([match for _, match in both.entries()])) for both in (before, config)
    )
    differences = [
        *compared("players", before.policies, config.policies, _PLAYER),
        *compared("envs", before.envs, config.envs, (*GAME, "outcome")),
        *compared("matches", old, new, SAME_MATCH),
    ]
    terms = read_terms(folder)
    if terms is not None and terms.greedy != greedy:
        differences.append("it was played without --sample" if terms.greedy else "it was played with --sample")
    if differences:
        raise ConfigError(
            f"--resume goes on with the same players in the same game, but {'; '.join(differences)}. Go back to that, "
            "or begin another tournament",
            source=str(folder.path),
        )
    found = boundaries.newest(folder)
    if found is None or not rounds_file.read(folder):
        raise ConfigError("there is no tournament to go on with: its files are damaged", source=str(folder.path))
    kept = msgspec.structs.replace(before, rounds=max(before.round_count, config.round_count))
    plan = checked_plan(kept, ranks=ranks)
    leg = replace(leg_at(found, folder), restore=initial_checkpoints(plan, folder))
    return Run(plan, folder.path, resumed=True, leg=leg)


def _whole(folder: RunFolder) -> list[Round]:
    """The batches that were played to their ends.

    Games of an unfinished batch do not count: it is played again, and short games are overrepresented in it.
    """
    found = boundaries.newest(folder)
    return rounds_file.begun_before(rounds_file.read(folder), 0 if found is None else found.tick)
