"""Tracks the current episodes of one match: lengths, returns, idle ticks, and the record of an episode that ends.

`EpisodeTracker` is of games that the arena steps; their episodes begin and end with legs. `GameTracker` is of external
games: a game is recorded when it ends, and its account in the table of slots continues from leg to leg. For the
algorithms an episode still ends with the leg: `cut` truncates the rows of the games that continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum
from arena.external.slots import Game, Slots, Tick
from arena.game.api import Frame, Interface, Step
from arena.game.infos import mean_metrics, stated_metrics
from arena.plan.plan import MatchPlan
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome, outcomes, place_text, returns_text


class _Tracker:
    """What both trackers share: the records of a match, and the ticks in which its seats idle.

    Args:
        match: the match.
        seat_entities: per seat, the indices of its entities in the game.
        lanes: by their numbers in the match; arrays [L] hold them in this order.
        before: per lane, the number of episodes recorded before this leg; empty: none.
        round: of the league.
        rule: how the winner of an episode is determined; None: no episode has one.

    Attributes:
        episodes: int64 [L], the number of recorded episodes per lane, including `before`.
        cut_now: bool [L], whether the end of the leg has cut the lane's episode.
    """

    def __init__(
        self,
        match: MatchPlan,
        seat_entities: Sequence[tuple[int, ...]],
        lanes: range,
        before: Sequence[int] = (),
        *,
        round: int = 0,
        rule: OutcomeRule | None = None,
    ) -> None:
        self._match, self._rule, self._round, self._lanes = match, rule, round, lanes
        self._entities = seat_entities
        # All sides are ranked by their returns if there are more than two, and the higher return wins.
        self._ranked = rule == "higher_return" and len(match.sides or match.seats) > 2
        self.episodes = np.array(before or [0] * len(lanes), np.int64)
        self.cut_now = np.zeros(len(lanes), np.bool_)
        self._idle = np.zeros((len(lanes), len(seat_entities)), np.int64)

    def add_idle(self, seat: int, active: NDArray[np.bool_]) -> None:
        """Counts an idle tick in the lanes where the seat should have acted; `active` is [L, E] of the seat."""
        self._idle[:, seat] += active.any(axis=1)

    def _outcomes(
        self,
        lane: int,
        episode: int,
        returns: Sequence[float | None],
        stated: Sequence[str | None],
        entities: Sequence[int],
    ) -> tuple[Outcome | None, ...]:
        """Per seat the outcome of an episode by the rule of its game; arguments as of `outcomes`.

        Raises:
            NotZeroSum: the game is declared as zero-sum, and the episode was not.
        """
        match = self._match
        try:
            return outcomes(returns, stated, entities=entities, rule=self._rule, sides=match.sides)
        except NotZeroSum as error:
            place = place_text((self._round, match.match, self._lanes[lane], episode))
            taking = [(value, count) for value, count in zip(returns, entities, strict=True) if value is not None]
            found = returns_text([value * count for value, count in taking])  # of all entities of a seat
            key = f"`envs.{match.env}.outcome`"
            declared = f"{key} is zero_sum" if match.game.outcome else f"{match.game.make!r} declares zero_sum"
            raise NotZeroSum(
                f"{place} has the {found}, which do not add up to zero over two sides, but {declared}; set {key} to "
                "higher_return if the higher return wins, or to none"
            ) from error


class EpisodeTracker(_Tracker):
    """Accumulates rewards and ends per lane, and builds the records of episodes."""

    def __init__(
        self,
        match: MatchPlan,
        seat_entities: Sequence[tuple[int, ...]],
        lanes: range,
        before: Sequence[int] = (),
        *,
        round: int = 0,
        rule: OutcomeRule | None = None,
    ) -> None:
        super().__init__(match, seat_entities, lanes, before, round=round, rule=rule)
        self._entity_counts = [len(entities) for entities in seat_entities]
        self._columns = [np.array(entities, np.intp) for entities in seat_entities]
        self._policies = [seat.policy for seat in match.seats]
        self._seat_names = [seat.entities for seat in match.seats]
        self._no_lane = np.zeros(len(lanes), np.bool_)
        shape = (len(lanes), sum(self._entity_counts))
        self._ticks = 0  # played by each lane
        self._begun = np.zeros(len(lanes), np.int64)  # the value of `_ticks` at the beginning of each lane's episode
        self._returns = np.zeros(shape, np.float64)
        self._terminated, self._truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self._absent = np.zeros(shape, np.bool_)  # entities that were not active yet in this episode
        self._waiting = False  # whether any entity is absent
        self._stated: dict[tuple[int, int], str] = {}  # (lane, entity) -> the outcome that the game has stated
        self._metrics: dict[tuple[int, int], dict[str, float]] = {}  # likewise its metrics

    @property
    def playing(self) -> NDArray[np.bool_]:
        """[L, E] whether the entity has not ended in this episode."""
        playing: NDArray[np.bool_] = ~(self._terminated | self._truncated)
        return playing

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Takes the first frame of episodes in these lanes [L]."""
        self._absent[lanes] = ~frame.active[lanes]
        self._waiting = bool(np.count_nonzero(self._absent))

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
                if isinstance(outcome := info.get("outcome"), str):  # some games use this key for other types
                    self._stated[place] = outcome
                if "metrics" in info and (metrics := stated_metrics(info)) is not None:
                    self._metrics[place] = metrics
        return np.logical_and.reduce(self._terminated | self._truncated, axis=1), True

    def cut(self, step: Step) -> Step:
        """Truncates all entities that have not ended, on the last tick of a leg, before it is added.

        Episodes that end only because of this are recorded as cut and have no outcome.
        """
        ended = self._terminated | self._truncated | step.terminated | step.truncated
        self.cut_now = ~np.logical_and.reduce(ended, axis=1)
        return step._replace(truncated=step.truncated | ~ended)

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """Returns the records of the episodes that ended at `tick` in these lanes [L], and resets the lanes.

        Raises:
            NotZeroSum: the game is declared as zero-sum, and an episode was not.
        """
        over = lanes.nonzero()[0]
        columns = zip(
            over.tolist(),
            self.episodes[over].tolist(),
            (self._ticks - self._begun[over]).tolist(),
            np.logical_or.reduce(self._terminated[over], axis=1).tolist(),
            np.logical_or.reduce(self._truncated[over], axis=1).tolist(),
            self._seat_returns(over),
            self._idle[over].tolist(),
            self.cut_now[over].tolist(),
            strict=True,
        )
        records = []
        for lane, episode, length, terminated, truncated, returns, idle, cut in columns:
            ends: tuple[Outcome | None, ...] = (None,) * len(returns)
            if not cut and self._rule is not None:
                stated: list[str | None] = [None] * len(returns)
                if self._stated:
                    stated = [next(_of_seat(self._stated, lane, entities), None) for entities in self._entities]
                ends = self._outcomes(lane, episode, returns, stated, self._entity_counts)
            metrics: list[dict[str, float] | msgspec.UnsetType] = [msgspec.UNSET] * len(returns)
            if self._metrics and not cut:
                own = (_of_seat(self._metrics, lane, entities) for entities in self._entities)
                metrics = [mean_metrics(of_seat) or msgspec.UNSET for of_seat in own]
            record = EpisodeRecord(
                round=self._round,
                match=self._match.match,
                env=self._match.env,
                lane=self._lanes[lane],
                episode=episode,
                tick=tick,
                length=length,
                terminated=terminated,
                truncated=truncated,
                seats=tuple(map(SeatRecord, self._policies, self._seat_names, returns, ends, idle, metrics)),
                cut=cut,
                ranked=self._ranked and not cut,
            )
            records.append(record)
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
            seat_returns = [[None if value != value else value for value in own] for own in seat_returns]
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

    def __init__(
        self,
        games: GameSource,
        match: MatchPlan,
        seat_entities: Sequence[tuple[int, ...]],
        before: Sequence[int],
        *,
        round: int = 0,
        rule: OutcomeRule | None = None,
    ) -> None:
        super().__init__(match, seat_entities, range(match.lanes), before, round=round, rule=rule)
        self._games = games
        self.playing = np.zeros((match.lanes, len(games.interface.entities)), np.bool_)

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
            slot, lost = game.slot, bool(game.lost)  # a lost game has no result, like an episode that a leg has cut
            playing = [[entity for entity in entities if game.takes_part[entity]] for entities in self._entities]
            taken = [seat for seat, entities in enumerate(playing) if entities]
            returns = [float(game.returns[playing[seat]].mean()) for seat in taken]
            episode = int(self.episodes[slot])
            ends: tuple[Outcome | None, ...] = (None,) * len(taken)
            metrics: list[dict[str, float] | msgspec.UnsetType] = [msgspec.UNSET] * len(taken)
            if not lost:
                stated = [
                    next((game.outcomes[entity] for entity in playing[seat] if entity in game.outcomes), None)
                    for seat in taken
                ]
                ends = self._outcomes(slot, episode, returns, stated, [len(playing[seat]) for seat in taken])
                metrics = [
                    mean_metrics(game.metrics[entity] for entity in playing[seat] if entity in game.metrics)
                    or msgspec.UNSET
                    for seat in taken
                ]
            seats = [self._match.seats[seat] for seat in taken]
            policies, names = [seat.policy for seat in seats], [seat.entities for seat in seats]
            idle = self._idle[slot, taken].tolist()
            record = EpisodeRecord(
                round=self._round,
                match=self._match.match,
                env=self._match.env,
                lane=slot,
                episode=episode,
                tick=tick,
                length=int(game.lengths.max()),
                terminated=game.terminated,
                truncated=game.truncated,
                seats=tuple(map(SeatRecord, policies, names, returns, ends, idle, metrics)),
                cut=lost,
                ranked=self._ranked and not lost,
                game=game.name,
                lost=lost,
            )
            self.episodes[slot] += 1
            self._idle[slot] = 0
            records.append(record)
        return records


def _of_seat(of_game: Mapping[tuple[int, int], Any], lane: int, entities: Sequence[int]) -> Iterator[Any]:
    """What the game has stated for these entities of a lane."""
    return (of_game[lane, entity] for entity in entities if (lane, entity) in of_game)
