"""Tracks the current episodes of one match: lengths, returns, idle ticks, and the record of an episode that ends.

`EpisodeTracker` is of games that the arena steps; their episodes begin and end with legs. `GameTracker` is of external
games: a game is recorded when it ends, and its account in the table of slots continues from leg to leg. For the
algorithms an episode still ends with the leg: `cut` truncates the rows of the games that continue.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.config.fields import OutcomeRule
from arena.errors import GameError, NotZeroSum
from arena.external.slots import Game, Slots, Tick
from arena.game.api import Frame, Info, Interface, Step
from arena.game.infos import mean_metrics, stated_metrics
from arena.game.spaces import flatten, row
from arena.plan.plan import MatchPlan
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome, contradicts, outcomes, place_text, returns_text, stated_outcome


class Tracked(NamedTuple):
    """The match whose episodes a tracker follows."""

    match: MatchPlan
    seat_entities: Sequence[tuple[int, ...]]  # per seat, the indices of its entities in the game
    lanes: range  # by their numbers in the match; arrays [L] hold them in this order
    before: Sequence[int] = ()  # per lane, the number of episodes recorded before this leg; empty: none
    round: int = 0  # of the league
    rule: OutcomeRule | None = None  # how the winner of an episode is determined; None: no episode has one
    spaces: Sequence[Space[Any]] = ()  # per entity, of its observations, to record how an episode began; empty: not


class _Tracker:
    """What both trackers share: the records of a match, and the ticks in which its seats idle.

    Attributes:
        episodes: int64 [L], the number of recorded episodes per lane, including `before`.
        cut_now: bool [L], whether the end of the leg has cut the lane's episode.
    """

    def __init__(self, tracked: Tracked) -> None:
        self._match, self._entities, self._lanes, before, self._round, self._rule, self._spaces = tracked
        lanes = len(self._lanes)
        # All sides are ranked by their returns if there are more than two, and the higher return wins.
        self._ranked = self._rule == "higher_return" and len(self._match.sides or self._match.seats) > 2
        self.episodes = np.array(before or [0] * lanes, np.int64)
        self.cut_now = np.zeros(lanes, np.bool_)
        self._idle = np.zeros((lanes, len(self._entities)), np.int64)

    def add_idle(self, seat: int, active: NDArray[np.bool_]) -> None:
        """Counts an idle tick in the lanes where the seat should have acted; `active` is [L, E] of the seat."""
        self._idle[:, seat] += active.any(axis=1)

    def _record(
        self,
        ends: tuple[int, int, int, bool, bool],
        seats: tuple[Sequence[str], Sequence[tuple[int | str, ...]], Sequence[float | None], Sequence[int]],
        stated: Sequence[str | None],
        metrics: Sequence[dict[str, float] | msgspec.UnsetType],
        *,
        entities: Sequence[int],
        cut: bool,
        game: str | None = None,
        lost: bool | str = False,
        began: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> EpisodeRecord:
        """The record of an episode that has the `ends` lane, tick, length, terminated and truncated.

        The rest is per seat that took part: `seats` has policies, names of entities, returns, and idle ticks. Episodes
        that are `cut` have no outcome. Raises `NotZeroSum` if the game is declared as zero-sum, and the episode was
        not.
        """
        match, (lane, tick, length, terminated, truncated), (policies, names, returns, idle) = self._match, ends, seats
        episode = int(self.episodes[lane])
        found: tuple[Outcome | None, ...] = (None,) * len(returns)
        if not cut and self._rule is not None:
            try:
                found = outcomes(returns, stated, entities=entities, rule=self._rule, sides=match.sides)
            except NotZeroSum as error:
                place = place_text((self._round, match.match, self._lanes[lane], episode))
                taking = [(value, count) for value, count in zip(returns, entities, strict=True) if value is not None]
                sums = returns_text([value * count for value, count in taking])  # of all entities of a seat
                key = f"`envs.{match.env}.outcome`"
                declared = f"{key} is zero_sum" if match.game.outcome else f"{match.game.make!r} declares zero_sum"
                raise NotZeroSum(
                    f"{place} has the {sums}, which do not add up to zero over two sides, but {declared}; set {key} to "
                    "higher_return if the higher return wins, or to none"
                ) from error
        return EpisodeRecord(
            round=self._round,
            match=match.match,
            env=match.env,
            lane=self._lanes[lane],
            episode=episode,
            tick=tick,
            length=length,
            terminated=terminated,
            truncated=truncated,
            seats=tuple(map(SeatRecord, policies, names, returns, found, idle, metrics)),
            cut=cut,
            ranked=self._ranked and not cut,
            contradicts=self._rule == "info"
            and contradicts(found, match.sides or [(seat,) for seat in range(len(found))]),
            game=game,
            lost=lost,
            began=began,
        )


class EpisodeTracker(_Tracker):
    """Accumulates rewards and ends per lane, and builds the records of episodes."""

    def __init__(self, tracked: Tracked) -> None:
        super().__init__(tracked)
        self._entity_counts = [len(entities) for entities in self._entities]
        self._columns = [np.array(entities, np.intp) for entities in self._entities]
        self._policies = [seat.policy for seat in self._match.seats]
        self._seat_names = [seat.entities for seat in self._match.seats]
        self._no_lane = np.zeros(len(self._lanes), np.bool_)
        shape = (len(self._lanes), sum(self._entity_counts))
        self._ticks = 0  # played by each lane
        self._begun = np.zeros(len(self._lanes), np.int64)  # `_ticks` at the beginning of each lane's episode
        self._returns = np.zeros(shape, np.float64)
        self._terminated, self._truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self._absent = np.zeros(shape, np.bool_)  # entities that were not active yet in this episode
        self._waiting = False  # whether any entity is absent
        self._stated: dict[tuple[int, int], str] = {}  # (lane, entity) -> the outcome that the game has stated
        self._metrics: dict[tuple[int, int], dict[str, float]] = {}  # likewise its metrics
        self._began: dict[int, int] = {}  # by lane, see `EpisodeRecord.began`

    @property
    def playing(self) -> NDArray[np.bool_]:
        """[L, E] whether the entity has not ended in this episode."""
        playing: NDArray[np.bool_] = ~(self._terminated | self._truncated)
        return playing

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Takes the first frame of episodes in these lanes [L]."""
        self._absent[lanes] = ~frame.active[lanes]
        self._waiting = bool(np.count_nonzero(self._absent))
        if self._spaces:
            for lane in lanes.nonzero()[0].tolist():
                seen = [row(space, frame.observations[at], lane) for at, space in enumerate(self._spaces)]
                arrays = chain.from_iterable(map(flatten, self._spaces, seen))
                self._began[lane] = zlib.crc32(b"".join(array.tobytes() for array in arrays))

    def tick(self, step: Step) -> tuple[NDArray[np.bool_], bool]:
        """Adds one tick.

        Returns:
            the lanes [L] whose episode is over, because all their entities have ended; and whether any entity ended on
            this tick.
        """
        self._ticks += 1
        self._returns += step.rewards
        if self._waiting:
            self._absent &= ~step.frame.active
            self._waiting = bool(np.count_nonzero(self._absent))
        ended = step.terminated | step.truncated
        if not np.count_nonzero(ended):  # `any` takes three times as long on so few items
            return self._no_lane, False
        self._terminated |= step.terminated
        self._truncated |= step.truncated
        if step.frame.infos is not None:
            for lane, entity in zip(*np.nonzero(ended), strict=True):
                info, place = step.frame.infos[lane][entity], (int(lane), int(entity))
                if "outcome" in info:
                    self._state(place, info)
                if "metrics" in info and (metrics := stated_metrics(info)) is not None:
                    self._metrics[place] = metrics
        return np.logical_and.reduce(self._terminated | self._truncated, axis=1), True

    def _state(self, place: tuple[int, int], info: Info) -> None:
        """Keeps what the last info of a lane's entity says of how its episode has ended; raises `GameError`."""
        lane, index = place
        try:
            outcome = stated_outcome(info, self._rule)
        except ValueError as error:
            names = dict(zip(chain(*self._entities), chain(*self._seat_names), strict=True))
            raise GameError(str(error), entity=str(names[index]), lane=self._lanes[lane]) from error
        if outcome is not None:
            self._stated[place] = outcome

    def cut(self, step: Step) -> Step:
        """Truncates all entities that have not ended, on the last tick of a leg, before it is added.

        Episodes that end only because of this are recorded as cut and have no outcome.
        """
        ended = self._terminated | self._truncated | step.terminated | step.truncated
        self.cut_now = ~np.logical_and.reduce(ended, axis=1)
        return step._replace(truncated=step.truncated | ~ended)

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """Returns the records of the episodes that ended at `tick` in these lanes [L], and resets the lanes."""
        over = lanes.nonzero()[0]
        columns = zip(
            over.tolist(),
            (self._ticks - self._begun[over]).tolist(),
            np.logical_or.reduce(self._terminated[over], axis=1).tolist(),
            np.logical_or.reduce(self._truncated[over], axis=1).tolist(),
            self._seat_returns(over),
            self._idle[over].tolist(),
            self.cut_now[over].tolist(),
            strict=True,
        )
        records, counts = [], self._entity_counts
        no_outcomes: list[str | None] = [None] * len(counts)
        no_metrics: list[dict[str, float] | msgspec.UnsetType] = [msgspec.UNSET] * len(counts)
        for lane, length, terminated, truncated, returns, idle, cut in columns:
            stated, metrics = no_outcomes, no_metrics
            if self._stated and not cut:
                stated = [next(_of_seat(self._stated, lane, entities), None) for entities in self._entities]
            if self._metrics and not cut:
                reported = (_of_seat(self._metrics, lane, entities) for entities in self._entities)
                metrics = [mean_metrics(of_seat) or msgspec.UNSET for of_seat in reported]
            ends, seats = (lane, tick, length, terminated, truncated), (self._policies, self._seat_names, returns, idle)
            began = self._began.get(lane, msgspec.UNSET)
            records.append(self._record(ends, seats, stated, metrics, entities=counts, cut=cut, began=began))
        self.episodes[over] += 1
        self.restart(over)
        return records

    def _seat_returns(self, lanes: NDArray[np.intp]) -> list[list[float | None]]:
        """Per lane and seat, the mean return of the seat's entities; None if none of them has taken part.

        An entity takes part if it is active at least once, earns something, or has an outcome.
        """
        returns = self._returns[lanes]
        # Contiguous: the order of summation over many entities must not depend on how many lanes end at once.
        means = [np.ascontiguousarray(returns[:, entities]).mean(axis=1) for entities in self._columns]
        if self._waiting:
            absent = self._absent[lanes] & (returns == 0)
            for place, lane in enumerate(lanes.tolist()):
                absent[place, [entity for at, entity in self._stated if at == lane]] = False
            for mean, entities in zip(means, self._columns, strict=True):
                mean[absent[:, entities].all(axis=1)] = np.nan
        seat_returns: list[list[float | None]] = np.stack(means, axis=1).tolist()
        if self._waiting:
            seat_returns = [[None if value != value else value for value in of_lane] for of_lane in seat_returns]
        return seat_returns

    def restart(self, lanes: NDArray[np.intp]) -> None:
        """Drops the unfinished episodes of these lanes."""
        self._begun[lanes] = self._ticks
        for array in (self._returns, self._terminated, self._truncated, self._idle, self.cut_now):
            array[lanes] = 0
        dropped = {*lanes.tolist()} if self._stated or self._metrics else {}
        if self._stated:
            self._stated = {place: outcome for place, outcome in self._stated.items() if place[0] not in dropped}
        if self._metrics:
            self._metrics = {place: metrics for place, metrics in self._metrics.items() if place[0] not in dropped}


class GameSource(Protocol):
    """Where the accounts of games come from: the environment of a run, or a server."""

    interface: Interface
    tick: Tick

    @property
    def table(self) -> Slots: ...

    def take_finished(self) -> list[Game]: ...


class GameTracker(_Tracker):
    """Builds the records of external games; has the methods of `EpisodeTracker`.

    Attributes:
        playing: bool [L, E], always false: a failure of the connection ends its games by itself.
    """

    def __init__(self, games: GameSource, tracked: Tracked) -> None:
        super().__init__(tracked)
        self._games = games
        self.playing = np.zeros((len(self._lanes), len(games.interface.entities)), np.bool_)

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Nothing: external games begin by themselves, and report which entities take part."""

    def restart(self, lanes: NDArray[np.intp]) -> None:
        """Nothing: a reset by a worker does not touch an external game."""

    def tick(self, step: Step) -> tuple[NDArray[np.bool_], bool]:
        """The slots [L] whose game is over, or cut by the end of the leg; and whether any entity has ended."""
        ends = bool(np.count_nonzero(step.terminated | step.truncated))
        return self._games.tick.over | self.cut_now, ends

    def cut(self, step: Step) -> Step:
        """Truncates all rows whose game goes on, on the last tick of a leg."""
        goes_on, void = self._games.table.cut()
        self.cut_now[:] = goes_on.any(axis=1)
        external = step.frame.external
        assert external is not None, "external games have it"
        frame = step.frame._replace(external=external._replace(void=external.void | void))
        return step._replace(frame=frame, truncated=step.truncated | (goes_on & ~step.terminated))

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """As of `EpisodeTracker`, of all games that are over; a game that has never asked has no record."""
        records = []
        for game in self._games.take_finished():
            if not game.requested or not game.name:
                continue
            slot, lost = game.slot, game.lost  # a lost game has no result, like an episode that a leg has cut
            playing = [[entity for entity in entities if game.takes_part[entity]] for entities in self._entities]
            taken = [seat for seat, entities in enumerate(playing) if entities]
            playing = [playing[seat] for seat in taken]
            returns = [float(game.returns[entities].mean()) for entities in playing]
            stated = [next(_of_seat(game.outcomes, None, entities), None) for entities in playing]
            metrics: list[dict[str, float] | msgspec.UnsetType] = [msgspec.UNSET] * len(taken)
            if not lost:
                reported = (_of_seat(game.metrics, None, entities) for entities in playing)
                metrics = [mean_metrics(of_seat) or msgspec.UNSET for of_seat in reported]
            planned = [(self._match.seats[seat], [*self._entities[seat]]) for seat in taken]
            policies = [seat.policy for seat, _ in planned]
            names = [tuple(compress(seat.entities, game.takes_part[indices])) for seat, indices in planned]
            ends = (slot, tick, int(game.lengths.max()), game.terminated, game.truncated)
            seats, counts = (policies, names, returns, self._idle[slot, taken].tolist()), [*map(len, playing)]
            found = self._record(
                ends, seats, stated, metrics, entities=counts, cut=bool(lost), game=game.name, lost=lost or False
            )
            records.append(found)
            self.episodes[slot] += 1
            self._idle[slot] = 0
        return records


def _of_seat(of_game: Mapping[Any, Any], lane: int | None, entities: Sequence[int]) -> Iterator[Any]:
    """What a game has stated for these entities; by (lane, entity), or by entity if there is no lane."""
    places = entities if lane is None else [(lane, entity) for entity in entities]
    return (of_game[place] for place in places if place in of_game)
