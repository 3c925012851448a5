"""Rank 0's part of a tournament: frozen players meet until their order is decided.

A tournament is a run of rounds in one folder, in which no policy learns. Each round is a batch of the games that say
most about the order. Every lane of a batch plays the same number of episodes, so that long games are not left out. When
a batch is over, the results so far determine the next one: over the same processes, with other random streams.

`--resume` goes on after the newest batch that is whole; the games of a later one are played again. The pairings of a
batch follow from the games before it, so a resumed tournament is the same as one that was never interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace

import msgspec
import numpy as np

from arena import registry
from arena.cli.players import players_of, read_sources, settings_of, sides_of
from arena.config import load_config
from arena.config.schema import Config
from arena.errors import ConfigError, located, percent, pluralize, shown
from arena.league import read_results, rounds_file
from arena.league.ratings.standings import populations_of
from arena.league.results import Results
from arena.league.tournament import (
    Batch,
    Rule,
    Table,
    distinct_settings,
    every_meeting,
    games_of_a_meeting,
    next_batch,
    read_terms,
    table,
    widened,
    write_terms,
)
from arena.plan.build import make_plan
from arena.plan.plan import UNBOUNDED_TICKS
from arena.preflight.outcomes import require_rules
from arena.records import boundary as boundaries
from arena.records import checkpoint
from arena.records.figures import repetition_text
from arena.records.folder import RunFolder
from arena.records.formats import Round, Terms
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Leg, Run, leg_at
from arena.roles.state import Display, RunState
from arena.run import rounds
from arena.run.evaluation import alike
from arena.run.lead import RunCommand
from arena.run.mpirun import Restart
from arena.run.planning import checked_plan
from arena.run.prepare import existing_folder, prepare
from arena.run.resume import GAME, SAME_MATCH, compared, initial_checkpoints, numbered
from arena.terminal.display import silent_display
from arena.terminal.standings import (
    contradiction_lines,
    elo_text,
    equal_lines,
    prior_lines,
    table_data,
    table_lines,
    unmet_lines,
)

_ERROR, _ELO = 0.05, 20.0  # defaults of --error and --elo
_STREAM = 0x746F7572  # separates a tournament's random streams from those of the configuration that it is made of
_MOST_BATCHES = 2**12  # each of them has UNBOUNDED_TICKS ticks, and all together fewer than 2^53
_PLAYER = ("algorithm", "options", "load")


class TournamentRun(RunCommand):
    """Rank 0's part of a tournament; `arguments` of `arena tournament`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments

    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Reads the players, and claims the run folder."""
        arguments, greedy = self._arguments, not self._arguments.sample
        config, batch = opening(arguments)
        for policy in config.policies.values():
            if policy.load is not None:
                checkpoint.load(policy.load, tensors=False)
        if arguments.resume:
            run = continued(config, ranks=ranks, run_dir=arguments.run_dir, greedy=greedy)
        else:
            run = prepare(config, ranks=ranks, run_dir=arguments.run_dir)
        players = pluralize(len(config.policies), "player")
        self._say(f"{config.name}: {players}, at most {pluralize(arguments.episodes, 'game')}")
        return replace(run, source=arguments.targets[0], episodes=batch.episodes, greedy=greedy)

    def next_stage(self, run: Run, state: RunState) -> Run | None:
        """The next batch; None if the order is decided or the budget is used."""
        rule = self._rule(run.folder)
        # With --resume, actions are chosen as they were before: see `continued`.
        write_terms(run.folder, Terms(greedy=not self._arguments.sample, error=rule.error, elo=rule.elo))
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
                progress += f", but the games of {_contradicting(found)} contradict the order"
            else:
                progress += f"; {len(found.open)} of {len(found.doubts)} neighbors are open"
        self._say(progress)
        if batch is None or len(before) >= config.round_count:
            return None
        following = Round(number=len(before), start=run.leg.start, matches=batch.matches)
        plan = rounds.plan_of(config, following, run.folder, ranks=run.plan.processes)
        rounds_file.keep(run.folder, before, following, plan)
        leg = Leg(start=run.leg.start, restore=initial_checkpoints(plan))
        return replace(run, plan=plan, leg=leg, episodes=batch.episodes)

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Prints the table, as text or JSON."""
        rule, batches = self._rule(run.folder), len(_whole(run.folder))
        played = read_results.read(run.folder, last=batches - 1)
        config = run.plan.config
        sides = populations_of(config, [*config.policies], tournament=True)
        found = table(played.results, [*config.policies], rule, sides=sides)
        lines_of_games = JournalReader(run.folder.episodes).lines(EpisodeRecord, missing_ok=True)
        interrupted = sum(line.round >= batches and not line.cut for line in lines_of_games)
        uncounted = {"without_winner": played.unrated, "cut_short": played.aborted, "interrupted": interrupted}
        if self._arguments.json:
            text = json.dumps(
                {
                    "players": table_data(found.tables),
                    "decided": found.decided,
                    "error": rule.error,
                    "elo": rule.elo,
                    "games": played.results.games,
                    "not_counted": uncounted,
                    "without_winner": played.without_winner,
                    "prior": found.prior,
                    "alike": alike(run),
                    "contradictions": [pair._asdict() for pair in found.contradictions],
                    "unmet": found.unmet,
                    "neighbors": [{**doubt._asdict(), "open": doubt in found.open} for doubt in found.doubts],
                    "run_dir": str(run.path),
                },
                indent=2,
            )
        else:
            lines = [*table_lines(found.tables), *prior_lines(prior=found.prior)]
            pairs = len(every_meeting(sides)) if sides else math.comb(len(found.rows), 2)
            lines += unmet_lines(found.unmet, pairs=pairs)
            lines += contradiction_lines(found.contradictions)
            reasons = "without a winner", "cut short", "of the batch that was interrupted"
            message = [f"{games} {reason}" for games, reason in zip(uncounted.values(), reasons, strict=True) if games]
            lines += [
                *verdict_lines(found, rule, played.results.games),
                *([f"not counted: {', '.join(message)}"] if message else []),
            ]
            lines += played.without_winner
            lines += repetition_text(alike(run), remedy="--sample")
            text = "\n".join([*lines, f"run folder: {shown(run.path)}"])
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def display(self) -> Display:
        """Shows nothing: a line for each batch is enough."""
        return silent_display()

    def _rule(self, folder: RunFolder) -> Rule:
        """When this tournament ends."""
        return rule_of(self._arguments, read_terms(folder) if self._arguments.resume else None)

    def _say(self, message: str) -> None:
        """Prints a line of progress; with --json stdout is for the result alone."""
        print(message, file=sys.stderr if self._arguments.json else sys.stdout, flush=True)


def rule_of(arguments: argparse.Namespace, before: Terms | None = None) -> Rule:
    """When a tournament ends; `before`: the terms with which it began, with --resume."""
    error, elo = (None, None) if before is None else (before.error, before.elo)
    return Rule(arguments.episodes, arguments.error or error or _ERROR, arguments.elo or elo or _ELO)


def opening(arguments: argparse.Namespace) -> tuple[Config, Batch]:
    """The configuration of a tournament, and its first batch, whose matches are those of the configuration."""
    sources, rule = read_sources(arguments.targets, arguments.overrides), rule_of(arguments)
    players = players_of(sources, arguments.checkpoints, arguments.players, untrained=arguments.untrained)
    envs, settings = settings_of(sources)
    sides = sides_of(sources, players)
    # Whether all players can play several lanes at once.
    classes = [
        registry.configured_algorithm(
            policy.algorithm, policy.options, acts=True, path=f"policies.{name}", any_device=True
        ).cls
        for name, policy in players.items()
    ]
    alone = all(isinstance(entry, str) for setting in settings for entry in setting.seats)
    if alone and all("vector" in ((cls.face,) if isinstance(cls.face, str) else cls.face) for cls in classes):
        settings = widened(settings, len(players), rule)
    first = next_batch(settings, [*players], Results(), rule, played=0, sides=sides)
    meeting = games_of_a_meeting(settings, sides=sides)
    if sides is not None and rule.games < meeting * max(map(len, sides)):
        raise ConfigError(
            f"found {rule.games}, but each of {len(sides.first)} players meets one of {len(sides.second)} of the other "
            f"population first, in {pluralize(meeting, 'game')}; ask for {meeting * max(map(len, sides))} or more",
            path="--episodes",
        )
    if first is None:
        raise ConfigError(
            f"found {rule.games}, but when two players meet they play {meeting}: {pluralize(meeting // 2, 'lane')} on "
            f"both sides; ask for {meeting} or more",
            path="--episodes",
        )
    for name in dict.fromkeys(setting.env for setting in settings):
        if envs[name].outcome == "none":
            raise ConfigError(
                "found none, so its games have no winners, and there is no order to find out; set higher_return, "
                "zero_sum or info",
                path=f"envs.{name}.outcome",
                source=sources[0].path,
            )
    base = sources[0].config
    config = msgspec.structs.replace(
        base.games_alone(),
        name=f"{base.name[:80]}-tournament",
        seed=int(np.random.SeedSequence([base.seed, _STREAM]).generate_state(1)[0]),
        ticks=UNBOUNDED_TICKS,
        rounds=min(_MOST_BATCHES, 1 + rule.games // meeting),
        envs={name: envs[name] for name in dict.fromkeys(setting.env for setting in settings)},
        policies=players,
        matches=first.matches,
        league=None,
        record="nothing",
        scale=False,
        restarts=0,
    )
    with located(source=sources[0].path):
        require_rules(config, make_plan(config), tournament=True)
    return config, first


def continued(config: Config, *, ranks: int, run_dir: str | None, greedy: bool) -> Run:
    """The run of a tournament as it continues; its folder is not changed. `config` is that of a new one."""
    folder = existing_folder(config, run_dir)
    before = load_config(folder.config)
    old, new = (numbered(distinct_settings([match for _, match in both.entries()])) for both in (before, config))
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
    leg = replace(leg_at(found, folder), restore=initial_checkpoints(plan))
    return Run(plan, folder.path, resumed=True, leg=leg)


def _whole(folder: RunFolder) -> list[Round]:
    """The batches that were played to their ends.

    Games of an unfinished batch do not count: it is played again, and short games are overrepresented in it.
    """
    found = boundaries.newest(folder)
    return rounds_file.begun_before(rounds_file.read(folder), 0 if found is None else found.tick)


def verdict_lines(found: Table, rule: Rule, played: int) -> list[str]:
    """Whether the order is decided after so many games, what keeps it open, and which players are equal."""
    games = pluralize(played, "game")
    what = f"differences below {rule.elo:g} Elo not counted"
    equal = equal_lines(found.equal)
    if found.decided:
        return [f"the order is decided after {games}, at an error of {rule.error:g}, {what}", *equal]
    if found.contradictions:
        return [f"the order is not decided after {games}: those of {_contradicting(found)} contradict it", *equal]
    pairs = []
    for pair in found.open:
        more = f", about {pluralize(pair.games_left, 'more game')}" if pair.games_left else ""
        pairs.append(f"{pair.upper} and {pair.lower} ({percent(pair.probability, 1)}{more})")
    together = ", together more than the error" if len(pairs) > 1 else ""
    return [
        f"the order is not decided after {games}, at an error of {rule.error:g}, {what}; open, with the probability "
        f"that it is the other way round: {', '.join(pairs)}{together}",
        *equal,
    ]


def _contradicting(found: Table) -> str:
    """The pairs whose own games contradict the order; of the first one the share, and that which is expected."""
    pair = found.contradictions[0]
    shares = f"({pair.lower} scores {percent(pair.score, 1)}, expected {percent(pair.expected, 1)})"
    first, more = f"{pair.upper} and {pair.lower} {shares}", len(found.contradictions)
    return first if more == 1 else f"{pluralize(more, 'pair')}, as {first},"
