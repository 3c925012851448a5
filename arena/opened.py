"""What a run folder holds, as data: `arena.open_run`, `arena.standings`.

run = arena.open_run("runs/league")
run.standings()[0]["player"]
run.episodes().to_pandas().groupby("policy")["return"].mean()
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

import msgspec

from arena.config import Config, load_config
from arena.errors import ConfigError, in_python
from arena.records import best
from arena.records.folder import RunFolder
from arena.records.formats import EvaluationLine, GamesLine
from arena.records.journal import JournalReader
from arena.records.metrics import UPDATE_FIELDS, EpisodeRecord, SeatRecord
from arena.records.result_file import read_results
from arena.roles.status import planned_ticks

if TYPE_CHECKING:
    from arena.league.ratings.standings import LeagueTable
    from arena.league.read_results import ResultSet


class Table(list[dict[str, Any]]):
    """Rows as mappings from column to value, and as a frame of pandas or polars where these are installed.

    Args:
        rows: its rows.
        columns: those of its frames if it has no rows.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), *, columns: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self._columns = list(columns)

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...
    def __getitem__(self, key: SupportsIndex | slice) -> dict[str, Any] | Table:
        if isinstance(key, slice):
            return Table(super().__getitem__(key), columns=self[0] if self else self._columns)
        return super().__getitem__(key)

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return _frames("pandas").DataFrame(list(self), columns=None if self else self._columns)

    def to_polars(self) -> Any:
        """The rows as a `polars.DataFrame`."""
        schema = None if self else self._columns
        return _frames("polars").DataFrame(list(self), schema=schema, infer_schema_length=None)


def _frames(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(f"frames of {package} need the package {error.name}: pip install {error.name}") from error


class Standings(NamedTuple):
    """The ratings of a run at a tick."""

    table: LeagueTable
    counted: ResultSet
    tick: int  # the newest one, or the one that was asked for


class Run:
    """A run folder, which each method reads again; the run may be under way.

    Attributes:
        folder: its path.
        config: its configuration.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = RunFolder.existing(folder)
        self.folder: Path = self._folder.path
        self.config: Config = load_config(self._folder.config)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def episodes(self) -> Table:
        """A row for each seat of each finished episode, in the order in which they were written.

        Columns: `round`, `match`, `env`, `lane`, `episode`, `tick` of its end, `length` in ticks, `terminated`,
        `truncated`, `cut`, `ranked`, `contradicts`, `seat`, `policy`, `entities`, `return`, `outcome` (`win`, `draw`,
        `loss`; None without a winner), `idle_ticks`; with metrics of the game `metrics`; of external games `game`,
        `lost` and, of lost ones, `lost_reason`; of games of `arena serve` `checkpoint`, the tick of the weights.
        """
        excluded = {"seats", "began", "game", "lost"}
        of_episode = [name for name in EpisodeRecord.__struct_fields__ if name not in excluded]
        of_seat = [name for name in SeatRecord.__struct_encode_fields__ if name not in ("metrics", "checkpoint")]
        rows = Table(columns=[*of_episode, "seat", *of_seat])
        for episode in JournalReader(self._folder.episodes).lines(EpisodeRecord, missing_ok=True):
            whole = {name: getattr(episode, name) for name in of_episode}
            if episode.game is not None:
                reason = episode.lost if isinstance(episode.lost, str) else None
                whole |= {"game": episode.game, "lost": bool(episode.lost), "lost_reason": reason}
            for number, seat in enumerate(episode.seats):
                rows.append({**whole, "seat": number, **msgspec.to_builtins(seat)})
        return rows

    def results(self) -> Table:
        """A row for each line of `result.json`, the newest last, nested as the lines are; NaN for null.

        Columns, among others: `training_iteration`, `ticks`, `episodes_total`, `episode_reward_mean`, `done`;
        mappings by policy are `policy_reward_mean`, `policy_win_rate` and, in a league, `ratings`; `info` has what the
        algorithms log. `pandas.json_normalize` makes a column of each nested number.
        """
        return Table(read_results(self.folder))

    def games(self) -> Table:
        """A row for each line of `games.jsonl`, with counts of external games, such as `lost_by`: lost ones by reason.

        The columns are those of [the file](external-games.md).
        """
        return Table(JournalReader(self._folder.games).made(dict, missing_ok=True), columns=GamesLine.__struct_fields__)

    def metrics(self) -> Table:
        """A row for each update of a policy: `policy`, `update`, `ticks`, `samples`, `seconds`, and what was logged."""
        return Table(JournalReader(self._folder.metrics).made(dict, missing_ok=True), columns=UPDATE_FIELDS)

    def evaluations(self) -> Table:
        """A row for each policy of each evaluation during the run, in the order in which they were written.

        Columns: `ticks`, `policy`, `episodes`, `return`, `return_std`, `length`; `games` with a winner or a draw, and
        the shares of them `wins`, `draws`, `losses`, None without such games.
        """
        lines = JournalReader(self._folder.evaluations).lines(EvaluationLine, missing_ok=True)
        return Table(map(msgspec.to_builtins, lines), columns=EvaluationLine.__struct_encode_fields__)

    @property
    def best(self) -> dict[str, Any] | None:
        """`best.json`: `tick`, `metric`, `value` and `policies` of the best result so far; None without one."""
        found = best.read(self._folder)
        return None if found is None else msgspec.to_builtins(found)

    @in_python()
    def standings(self, at: int | None = None) -> Table:
        """A row for each player, the best first; empty if no two players have met in a game that counts.

        Columns: `rank` in its `table`, `player`, `elo`, `low` and `high` (95 %), `games`, `wins`, `draws`, `losses`,
        `score` (points per game), `score_interval` (95 %), `table` and `scale`: `elo` of one scale can be compared.
        Where they apply, `population`, and `began`: since when the record of a reset or copied policy counts.

        Args:
            at: the tick at which; None: the newest.

        Raises:
            ConfigError: no games of that tick, or no player learns, so that strengths do not depend on ticks.
        """
        from arena.terminal.standings import COLUMNS, table_data

        return Table(table_data(rated(self, at).table.tables), columns=COLUMNS)

    def payoffs(self, at: int | None = None) -> Table:
        """Who beats whom: two rows for each pair of players that has met, one as each of them sees it.

        Columns: `player`, `opponent`; `games`, `wins`, `draws`, `losses`: all that had a winner or a draw; `score`
        (expected points per game as the two are now, a draw is one half), `low` and `high` (95 %), and `counted`, the
        number of games on which the score rests: older ones of policies that learn count less, and after some rounds,
        or once a policy has started over, not at all. Without such games the score is None. For `at` and errors see
        `standings`.
        """
        from arena.league.metagame.payoff import Pair, pairs
        from arena.terminal.standings import payoffs_of

        table, counted, _ = rated(self, at)
        timeline = counted.timeline if at is None else counted.timeline.until(at)
        found = pairs(payoffs_of(table, timeline))
        return Table((pair._asdict() for pair in found), columns=Pair._fields)


def standings(run: Path | str, at: int | None = None) -> Table:
    """The standings of a run, as `arena standings`: see `Run.standings`."""
    return Run(run).standings(at)


def open_run(folder: Path | str) -> Run:
    """Opens a run folder for reading.

    Raises:
        ConfigError: there is no such run.
    """
    return Run(folder)


def rated(run: Run, at: int | None = None) -> Standings:
    """The ratings behind `Run.standings`, with the same `at`."""
    from arena.league.ratings.standings import standings_at  # imports scipy
    from arena.league.read_results import read

    found, learns = read(run._folder, people=True), planned_ticks(run.config) is not None
    end = found.timeline.end
    if at is not None and not learns:
        raise ConfigError(
            f"found {at}, but no player of this run learns, so that strengths do not depend on ticks; leave it out",
            path="--at",
        )
    if at is not None and (found.first is None or not found.first <= at <= end):
        games = "there are no games yet" if found.first is None else f"its games are from tick {found.first} to {end}"
        raise ConfigError(f"found {at}, but {games}", path="--at", source=str(run.folder))
    counted = found if at is None else read(run._folder, until=at, people=True)
    cut = counted.cut if learns else {}
    table = standings_at(found.timeline, counted.timeline, cut, run.config, at=at)
    table = table._replace(without_winner=found.without_winner, external=run._folder.games.exists())
    return Standings(table, counted, end if at is None else at)
