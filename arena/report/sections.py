"""What each part of the page says, as plain numbers: the page shows nothing that is not in here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from arena import __version__
from arena.config.fields import flat
from arena.config.league import Decided
from arena.league.read_results import read as read_encounters
from arena.records.formats import RoundExploitability
from arena.records.metrics import EpisodeRecord
from arena.report.colors import Colors
from arena.report.episodes import Ints
from arena.report.learning import (
    Evaluation,
    Learning,
    Lengths,
    Series,
    evaluations,
    learning_curves,
    lengths,
    logged_values,
)
from arena.report.learning import results as of_results
from arena.report.lineage import Lineage, lineage
from arena.report.read_run import RunFiles
from arena.report.recorded import SideGames, recorded, records, result_text
from arena.report.replays import Place, Replay
from arena.report.summary import PlanCards, PolicyRow, Summary, Timing, plan_cards, policy_rows, summarize, timing

if TYPE_CHECKING:  # they import scipy
    from arena.league.next_round import Champion
    from arena.report.standings import Standings

MOST_CHANGES = 100  # likewise of the changes
MOST_RECORDED = 100  # episodes in the list of those that have a replay


class PageData(msgspec.Struct, frozen=True):
    """The whole page; `without_winner` says why games are not rated."""

    arena: str
    summary: Summary
    policies: list[PolicyRow]
    tournament: Tournament | None
    standings: Standings | None
    without_winner: list[str]
    learning: Learning
    results: dict[str, dict[str, Series]]
    logged: dict[str, dict[str, Series]]
    lengths: list[Lengths]
    evaluations: list[Evaluation]
    side_games: SideGames
    exploitability: list[RoundExploitability]
    lineage: Lineage
    champions: list[Champion]
    plan: PlanCards
    time: Timing | None
    changes: list[Change]
    faults: list[dict[str, Any]]
    replays: list[Replay]
    recorded: list[EpisodeRecord]
    recorded_left_out: int


class Change(msgspec.Struct, frozen=True):
    """What a curriculum, a program or a resume has changed."""

    tick: int
    key: str
    value: str  # as a configuration has it
    resumed: str | None = None  # the value before, if a resume has changed it


class Tournament(msgspec.Struct, frozen=True):
    """Which games of a tournament count."""

    batches: int  # so many of them
    unfinished: int  # games of the batch that is played now


class Rated(NamedTuple):
    """The standings, None where nothing can be rated; why games are not rated; and who has won knockouts."""

    standings: Standings | None = None
    without_winner: Sequence[str] = ()
    champions: Sequence[Champion] = ()


def rated(files: RunFiles) -> Rated:
    """Rates the players of a run."""
    from arena.league.next_round import knockouts_won
    from arena.report.standings import standings

    reading = files.games.so_far()
    if files.terms is not None:  # games of a batch that is not over do not count
        reading = read_encounters(files.folder, last=files.rated_until, people=True, journal=files.journals.journal)
    # The rule that decides the order of the players; None if no decided order was asked for.
    terms = files.terms
    if terms is not None and terms.error is not None and terms.elo is not None:
        rule: Decided | None = Decided(error=terms.error, elo=terms.elo)
    else:
        rule = None if files.config.league is None else files.config.league.decided
    found = standings(reading, files.config, rule=rule)
    champions = knockouts_won(files.folder, files.config, reached=files.boundary or 0)
    return Rated(found, reading.without_winner, champions)


def page_data(files: RunFiles, replays: Sequence[Replay] | None = (), *, ratings: Rated | None = None) -> PageData:
    """All parts of the page of a run.

    Args:
        replays: that were chosen for it; None: the page says nothing about replays.
        ratings: of an earlier moment; None: they are made.
    """
    colors, summary, folder = Colors(files.config), summarize(files), files.folder
    found = rated(files) if ratings is None else ratings
    last, tournament = files.rated_until, None
    if last is not None:
        newer = (files.episodes.round > last) & ~files.episodes.cut
        tournament = Tournament(last + 1, int(np.count_nonzero(newer)))
    known = recorded(folder, files.episodes, known=files.replays) if replays is not None else np.zeros(0, np.int64)
    results = _results(replays or (), files, known)
    return PageData(
        arena=__version__,
        summary=summary,
        policies=policy_rows(files, colors),
        tournament=tournament,
        standings=found.standings,
        without_winner=[*found.without_winner],
        learning=learning_curves(files, last=summary.ticks),
        results=of_results(files),
        logged=logged_values(files.updates),
        lengths=lengths(files.episodes, last=None if summary.ticks_planned is None else summary.ticks),
        evaluations=evaluations(files),
        side_games=files.side_games,
        exploitability=[] if files.exploitability is None else [*files.exploitability.rounds],
        lineage=lineage(files.rounds),
        champions=[*found.champions],
        plan=plan_cards(files.plan),
        time=timing(files.profile),
        changes=_changes(files),
        faults=[dict(fault) for fault in files.faults],
        replays=[msgspec.structs.replace(one, result=results.get(_place(one), "")) for one in replays or ()],
        recorded=[*records(folder, files.episodes, known[:MOST_RECORDED])],
        recorded_left_out=max(0, len(known) - MOST_RECORDED),
    )


def _changes(files: RunFiles) -> list[Change]:
    """Of each key when its value became another one; the newest changes."""
    found, values = [Change(line.tick, line.key, line.now, line.was) for line in files.resumes], flat(files.config)
    for line in files.changes:
        for key, value in flat(line.set).items():
            if values.get(key) != value:
                values[key] = value
                found.append(Change(line.tick, key, value))
    return sorted(found, key=lambda change: change.tick)[-MOST_CHANGES:]


def _results(replays: Sequence[Replay], files: RunFiles, known: Ints) -> dict[Place, str]:
    """The results of these replays, without those of episodes that are not on record."""
    wanted, found, table = {*map(_place, replays)}, dict[Place, str](), files.episodes
    matches = {place[:2] for place in wanted}
    rows = (row for row in known.tolist() if (table.round[row], table.match[row]) in matches)
    for one in records(files.folder, table, rows):  # a line each, until all are found
        if _place(one) in wanted:
            found[_place(one)] = result_text(one)
        if len(found) == len(wanted):
            break
    return found


def _place(of: Replay | EpisodeRecord) -> Place:
    return of.round, of.match, of.lane, of.episode
