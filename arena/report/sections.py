"""What each part of the page says, as plain numbers: the page shows nothing that is not in here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from arena import __version__
from arena.config.league import DecidedConfig
from arena.league.next_round import Champion, knockouts_won
from arena.league.read_results import read as read_encounters
from arena.records.formats import RoundExploitability
from arena.records.metrics import EpisodeRecord
from arena.report.colors import Colors
from arena.report.learning import (
    Evaluation,
    Learning,
    Lengths,
    LoggedValue,
    Rewards,
    evaluations,
    learning_curves,
    lengths,
    logged_values,
    rewards,
)
from arena.report.lineage import Lineage, lineage
from arena.report.read_run import RunFiles, Source
from arena.report.replays import RecordedEpisode, Replay, recorded_episodes
from arena.report.standings import Standings, standings
from arena.report.summary import PlanCards, PolicyRow, Summary, Timing, plan_cards, policy_rows, summarize, timing

MOST_RECORDED = 100  # episodes in the list of those that have a replay


class PageData(msgspec.Struct, frozen=True):
    """The whole page; `files` says from which bytes it was made, `without_winner` why games are not rated."""

    arena: str
    summary: Summary
    policies: list[PolicyRow]
    standings: Standings | None
    without_winner: list[str]
    learning: Learning
    rewards: Rewards | None
    logged: dict[str, dict[str, LoggedValue]]
    lengths: list[Lengths]
    evaluations: list[Evaluation]
    exploitability: list[RoundExploitability]
    lineage: Lineage
    champions: list[Champion]
    plan: PlanCards
    time: Timing | None
    faults: list[dict[str, Any]]
    replays: list[Replay]
    recorded: list[RecordedEpisode]
    recorded_left_out: int
    files: list[Source]


class Rated(NamedTuple):
    """The standings, None where nothing can be rated, and why games are not rated."""

    standings: Standings | None
    without_winner: Sequence[str]


def rated(files: RunFiles, *, meta: bool = True) -> Rated:
    """Rates the players of a run; `meta`: with the measures of the meta-game, which take longest."""
    reading = files.games.so_far()
    if files.terms is not None:  # games of a batch that is not over do not count
        reading = read_encounters(files.folder, last=files.rated_until, people=True, journal=files.journals.journal)
    # The rule that decides the order of the players; None if no decided order was asked for.
    terms = files.terms
    if terms is not None and terms.error is not None and terms.elo is not None:
        rule: DecidedConfig | None = DecidedConfig(error=terms.error, elo=terms.elo)
    else:
        rule = None if files.config.league is None else files.config.league.decided
    found = standings(reading, files.config, Colors(files.config), rule=rule, meta=meta)
    return Rated(found, reading.without_winner)


def page_data(files: RunFiles, replays: Sequence[Replay] | None = (), *, table: Rated | None = None) -> PageData:
    """All parts of the page of a run.

    Args:
        replays: that were chosen for it; None: the page says nothing about replays.
        table: of an earlier moment; None: it is made.
    """
    colors, summary, table = Colors(files.config), summarize(files), table or rated(files)
    recorded: list[RecordedEpisode] = []
    if replays is not None:
        lines = files.journals.journal(files.folder.episodes).lines(EpisodeRecord, missing_ok=True)
        recorded = recorded_episodes(files.folder, lines)
    return PageData(
        arena=__version__,
        summary=summary,
        policies=policy_rows(files, colors),
        standings=table.standings,
        without_winner=[*table.without_winner],
        learning=learning_curves(files, last=summary.ticks),
        rewards=rewards(files),
        logged=logged_values(files.updates),
        lengths=lengths(files.episodes, last=None if summary.ticks_planned is None else summary.ticks),
        evaluations=evaluations(files),
        exploitability=[] if files.exploitability is None else [*files.exploitability.rounds],
        lineage=lineage(files.rounds),
        champions=knockouts_won(files.folder, files.config, reached=files.boundary or 0),
        plan=plan_cards(files.plan),
        time=timing(files.profile),
        faults=[dict(fault) for fault in files.faults],
        replays=[
            msgspec.structs.replace(
                replay,
                result=next((one.text for one in recorded if one.place == replay.place), ""),
            )
            for replay in replays or ()
        ],
        recorded=recorded[:MOST_RECORDED],
        recorded_left_out=max(0, len(recorded) - MOST_RECORDED),
        files=list(files.sources),
    )
