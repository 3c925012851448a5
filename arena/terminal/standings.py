"""The standings as a table of plain text, and remarks on its numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from arena.config.schema import Config
from arena.errors import percent, pluralize
from arena.league.metagame.measures import in_matrix, measures
from arena.league.metagame.payoff import Payoff, pairs, payoff
from arena.league.next_round import Champion
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.intervals import of_share
from arena.league.ratings.ranking import OrderUncertainty
from arena.league.ratings.standings import ENOUGH, CutGamesBias, LeagueTable, Row
from arena.league.timeline import Timeline
from arena.league.tournament import Rule, Table, not_behind

MOST = 12  # lines
_MOST_PAIRS = 3
_UNCONNECTED = "no games connect these players with those above: their numbers cannot be compared"
_ONE_SCALE = (
    "these two tables have one scale: a player of the first side scores a half against one of the second with the same "
    "Elo; intervals are of distances within a table"
)


COLUMNS = (
    *("rank", "player", "elo", "low", "high", "games", "wins", "draws", "losses", "score", "score_interval"),
    *("table", "scale"),
)
"""The keys that every row of `table_data` has."""


def elo_text(value: float) -> str:
    """`+23`, `-7`; a value that is rounded to 0 is `+0`."""
    return f"{round(value):+d}"


def table_lines(tables: Sequence[Sequence[Row]], *, most: int | None = None, always: Collection[str] = ()) -> list[str]:
    """The tables one below the other, each as of `standings_lines`, and which of them have one scale."""
    lines: list[str] = []
    for _, group in groupby(tables, key=lambda rows: rows[0].scale):
        together = [*group]
        lines += [_UNCONNECTED] if lines else []
        for rows in together:
            lines += [f"{rows[0].population}:"] if rows[0].population else []
            lines += standings_lines(rows, most=most, always=always)
        lines += [_ONE_SCALE] if len(together) > 1 else []
    return lines


def table_data(tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The rows of all tables as JSON; `table` is the number of a player's table, and tables of one `scale` can be
    compared.
    """
    return [
        {
            "rank": row.rank,
            "player": row.player,
            **({"population": row.population} if row.population else {}),
            "elo": row.elo,
            "low": row.low,
            "high": row.high,
            "games": row.score.games,
            **row.score._asdict(),
            "score": row.share,
            "score_interval": None if row.share is None else of_share(row.score.points, row.score.games),
            "table": number,
            "scale": row.scale,
            **({"began": row.began._asdict()} if row.began else {}),
        }
        for number, rows in enumerate(tables)
        for row in rows
    ]


def payoffs_of(found: LeagueTable, timeline: Timeline) -> Payoff:
    """The payoffs of all players of the standings `found`; `timeline` has the games up to their tick."""
    return payoff(timeline, [row.player for rows in found.tables for row in rows])


def meta_game_data(found: LeagueTable, timeline: Timeline, config: Config) -> list[dict[str, Any]]:
    """The meta-game of players in one table as JSON; `timeline` as in `payoffs_of`."""
    scores = payoff(timeline, in_matrix([row.player for rows in found.tables for row in rows], config.policies))
    return [
        {
            "player": one.player,
            **{
                name: {"value": part.value, "interval": part[1:]}
                for name, part in (("nash", one.nash), ("skill", one.skill), ("alpha_rank", one.alpha_rank))
            },
        }
        for one in ([] if not scores.players or found.tables[0][0].population else measures(scores))
    ]


def pair_lines(scores: Payoff) -> list[str]:
    """A line for each pair that has met, the player that stands higher first, below the titles of the columns."""
    met = pairs(scores, once=True)
    cells: list[Sequence[str]] = [
        ("player", "opponent", "games", "won", "drawn", "lost", "counted", "score now", "95 % interval")
    ]
    for pair in met:
        now = "-", "-"
        if pair.score is not None and pair.low is not None and pair.high is not None:
            now = percent(pair.score, 1), f"[{percent(pair.low, 1)}, {percent(pair.high, 1)}]"
        cells.append((*pair[:2], *map(str, pair[2:7]), *now))
    if all(pair.counted for pair in met):
        return _aligned(cells, left=(0, 1))
    why = "counted 0: all games of the pair are too old, as a policy that learns has changed since, or has started over"
    return [*_aligned(cells, left=(0, 1)), why]


def _aligned(cells: Sequence[Sequence[str]], *, left: Collection[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if place in left else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def standings_lines(rows: Sequence[Row], *, most: int | None = None, always: Collection[str] = ()) -> list[str]:
    """A line for each player, the best first, below the titles of the columns.

    There are at most `most` rows, unless there are more of `always`, who are always shown, and the leader.
    """
    if not rows:
        return []
    chosen = {rows[0].player, *(row.player for row in rows if row.player in always)}
    others = [row.player for row in rows if row.player not in chosen]
    if most is not None and len(rows) > most + 1:  # a line for one that is left out is no shorter than its row
        others = others[: max(0, most - len(chosen))]
    chosen |= {*others}
    cells = [("rank", "player", "Elo", "95 % interval", "games", "score", "95 % interval")]
    for row in rows:
        if row.player in chosen:
            share, ends = "-", "-"
            if row.share is not None:
                low, high = of_share(row.score.points, row.score.games)
                share, ends = percent(row.share, 1), f"[{percent(low, 1)}, {percent(high, 1)}]"
            interval = f"[{elo_text(row.low)}, {elo_text(row.high)}]"
            cells.append((str(row.rank), row.player, elo_text(row.elo), interval, str(row.score.games), share, ends))
    lines = _aligned(cells, left=(1,))
    left_out = len(rows) + 1 - len(cells)
    return lines + ([f"and {left_out} more"] if left_out else [])


def returns_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each player that has played alone, by the rows of `rows_of_returns`, and who is the best."""
    cells = [("rank", "player", "games", "return", "95 % interval", "difference", "95 % interval")]
    for row in rows:
        parts = [
            ("-" if row[name] is None else f"{row[name]:.4g}", _ends(row, name)) for name in ("return", "difference")
        ]
        cells.append((str(row["rank"]), row["player"], str(row["games"]), *parts[0], *parts[1]))
    best, others = rows[0]["player"], not_behind(rows)
    verdict = f"{best} is the best" if not others else f"{' and '.join(others)} may be as good as {best}"
    return [
        *_aligned(cells, left=(1,)),
        f"{verdict}: differences are from {best} in the same games, their intervals hold for all pairs together",
    ]


def _ends(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if low is None else f"[{low:.4g}, {high:.4g}]"


def league_lines(found: LeagueTable, *, most: int | None = None, always: Collection[str] = ()) -> list[str]:
    """The standings of a league and remarks on them; arguments as of `standings_lines`."""
    lines = table_lines(found.tables, most=most, always=always)
    begun = [(row.player, row.began) for rows in found.tables for row in rows if row.began]  # since a tick
    again = [f"{name} is a copy of {began.source} since tick {began.tick}" for name, began in begun if began.source]
    again += [f"{name} started over at tick {began.tick}" for name, began in begun if not began.source]
    if again:
        lines.append(f"{', '.join(again)}: games and score count from then on")
    if found.unmet:
        lines.append(f"not met yet in a game that counts, so without a rating: {', '.join(found.unmet)}")
    if found.one_side:
        remedy = "`arena tournament RUN` plays both sides, as does `both_sides` of a generator"
        lines.append(
            "every player has kept to one side, so that strength cannot be told from what the side is worth, and "
            f"intervals are wide; {'list a second match with exchanged seats' if found.external else remedy}"
        )
    lines += [*found.without_winner, *equal_lines(found.equal), *prior_lines(prior=found.prior)]
    lines += [*curtailed_lines(found.curtailed), *contradiction_lines(found.contradictions)]
    if (narrow := found.narrow) is not None:
        remedy = "" if found.external else "; `arena tournament RUN` lets all meet"
        lines.append(
            f"the rating of {narrow.player}, which leads, rests on few opponents: nearly all of its games were against "
            f"{' and '.join(narrow.opponents)}, of {narrow.others} other players{remedy}"
        )
    return lines


def prior_lines(*, prior: bool) -> list[str]:
    """That strengths have a prior, as the games alone do not determine them; nothing where they do."""
    if not prior:
        return []
    return [
        "the strengths have a weak prior (a deviation of 400 Elo, about as heavy as one game), as some have won, "
        "lost or drawn all of their games against the others, or have not met them"
    ]


def equal_lines(equal: Sequence[OrderUncertainty]) -> list[str]:
    """The players that are as good as each other, and why; empty if there are none."""
    if not equal:
        return []
    pairs = ", ".join(f"{doubt.upper} and {doubt.lower}" for doubt in equal)
    return [f"as good as each other, as nearly all of their games are drawn, or won by the same side: {pairs}"]


def champion_lines(champions: Sequence[Champion]) -> list[str]:
    """Who has won each knockout, and by what."""
    lines = []
    for won in champions:
        final = f"{won.points:g} of {pluralize(won.games, 'point')} in the final against {won.against}"
        by = "the higher rating" if won.by == "rating" else "a coin, as the ratings are the same"
        how = f"with {final}" if won.by == "points" else f"by {by}, after {final}"
        lines.append(f"{won.player} has won {won.place}, {how}")
    return lines


def contradiction_lines(found: Sequence[Contradiction]) -> list[str]:
    """The pairs whose own games contradict the order, their circles, and where to read more; nothing if none do."""
    if not found:
        return []
    pairs = [
        f"{one.lower} scores {percent(one.score, 1)} [{percent(one.low, 1)}, {percent(one.high, 1)}] "
        f"against {one.upper}, which stands higher, where their strengths predict {percent(one.expected, 1)}"
        for one in found[:_MOST_PAIRS]
    ]
    circles = {frozenset(one.circle): one.circle for one in reversed(found) if one.circle}
    beaten = [" beats ".join([*circle, circle[0]]) for circle in reversed(circles.values())]
    lines = [f"the games of some pairs contradict the order: {'; '.join([*pairs, *_left_out(len(found), 'pair')])}"]
    if beaten:
        shown = "; ".join([*beaten[:_MOST_PAIRS], *_left_out(len(beaten), "circle")])
        lines.append(f"no order fits players that beat each other in a circle: {shown}")
    return [*lines, "see payoffs and Nash averaging in the report, which need no order"]


def unmet_lines(unmet: Sequence[tuple[str, str]], *, pairs: int) -> list[str]:
    """Which of the pairs that can meet, `pairs` in number, have not met; nothing where all have."""
    if not unmet:
        return []
    named = [f"{one} and {other}" for one, other in unmet[:_MOST_PAIRS]]
    return [
        f"{len(unmet)} of {pluralize(pairs, 'pair')} have not met in a game that counts: "
        f"{', '.join([*named, *_left_out(len(unmet), 'pair')])}"
    ]


def _left_out(count: int, what: str) -> list[str]:
    return [f"and {pluralize(count - _MOST_PAIRS, f'more {what}')}"] if count > _MOST_PAIRS else []


def curtailed_lines(found: CutGamesBias | None) -> list[str]:
    """That short games count too often, how few there are, and what helps; nothing where it hardly matters."""
    if found is None:
        return []
    return [
        f"short games count too often, and ratings favor who wins them: with {found.player} a lane finishes about "
        f"{found.games:.3g} games before the end of a {found.by} cuts one; set a larger `{found.key}`, for {ENOUGH} or "
        f"more{', in a new run' if found.by == 'round' else ''}"
    ]


def verdict_lines(found: Table, rule: Rule, played: int) -> list[str]:
    """Whether the order is decided after so many games, what keeps it open, and which players are equal."""
    games = pluralize(played, "game")
    what = f"differences below {rule.elo:g} Elo not counted"
    equal = equal_lines(found.equal)
    if found.decided:
        return [f"the order is decided after {games}, at an error of {rule.error:g}, {what}", *equal]
    if found.contradictions:
        return [f"the order is not decided after {games}: those of {contradicting(found)} contradict it", *equal]
    pairs = []
    for pair in found.open[:_MOST_PAIRS]:
        more = f", about {pluralize(pair.games_left, 'more game')}" if pair.games_left else ""
        pairs.append(f"{pair.upper} and {pair.lower} ({percent(pair.probability, 1)}{more})")
    pairs += _left_out(len(found.open), "pair")
    together = ", together more than the error" if len(pairs) > 1 else ""
    return [
        f"the order is not decided after {games}, at an error of {rule.error:g}, {what}; open, with the probability "
        f"that it is the other way round: {', '.join(pairs)}{together}",
        *equal,
    ]


def contradicting(found: Table) -> str:
    """The pairs whose own games contradict the order; of the first one the share, and that which is expected."""
    pair = found.contradictions[0]
    shares = f"({pair.lower} scores {percent(pair.score, 1)}, expected {percent(pair.expected, 1)})"
    first, more = f"{pair.upper} and {pair.lower} {shares}", len(found.contradictions)
    return first if more == 1 else f"{pluralize(more, 'pair')}, as {first},"
