"""Tracks the current episodes of one match: lengths, returns, idle ticks, and the record of an episode that ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arena.errors import NotZeroSum
from arena.game.api import Frame, Info, Step
from arena.game.metrics import mean_metrics, stated_metrics
from arena.plan.plan import MatchPlan
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Verdict, outcomes, place_words, returns_words


class EpisodeTracker:
    """Accumulates rewards and ends per lane, and builds the records of episodes.

    Args:
        match: the match.
        seat_entities: per seat, the indices of its entities in the game.
        lanes: the tracked lanes, by their numbers in the match; arrays [L] hold them in this order.
        before: per lane, the number of episodes recorded before this leg; 0 if not given.
        round: the league round of the match.

    Attributes:
        episodes: int64 [L], the number of finished episodes per lane, including `before`.
    """

    def __init__(
        self,
        match: MatchPlan,
        seat_entities: Sequence[tuple[int, ...]],
        lanes: range,
        before: Sequence[int] | None = None,
        *,
        round: int = 0,
    ) -> None:
        self._match = match
        self._round = round
        self._seats = [np.array(entities, np.intp) for entities in seat_entities]
        self._entity_counts = [len(entities) for entities in seat_entities]
        self._lanes = lanes
        self._no_lane = np.zeros(len(lanes), np.bool_)
        shape = (len(lanes), sum(len(entities) for entities in seat_entities))
        self._ticks = 0  # played by each lane
        self._begun = np.zeros(len(lanes), np.int64)  # the value of `_ticks` at the beginning of each lane's episode
        self.episodes = np.array(before or [0] * len(lanes), np.int64)
        self._returns = np.zeros(shape, np.float64)
        self._terminated = np.zeros(shape, np.bool_)
        self._truncated = np.zeros(shape, np.bool_)
        self._idle = np.zeros((len(lanes), len(self._seats)), np.int64)
        self._absent = np.zeros(shape, np.bool_)  # entities that were not active yet in this episode
        self._waiting = False  # whether any entity is absent
        self._cut = np.zeros(len(lanes), np.bool_)  # whether the end of the leg has cut the lane's episode
        self._stated: dict[tuple[int, int], str] = {}  # (lane, entity) -> the outcome that the game has stated
        self._metrics: dict[tuple[int, int], dict[str, float]] = {}  # likewise its metrics

    @property
    def playing(self) -> NDArray[np.bool_]:
        """[L, E] whether the entity has not ended in this episode."""
        playing: NDArray[np.bool_] = ~(self._terminated | self._truncated)
        return playing

    @property
    def cut_now(self) -> NDArray[np.bool_]:
        """[L] whether the end of the leg has cut the lane's episode; cleared by `finish`."""
        return self._cut

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Takes the first frame of episodes in these lanes [L]."""
        self._absent[lanes] = ~frame.active[lanes]
        self._waiting = bool(np.count_nonzero(self._absent))

    def add_idle(self, seat: int, active: NDArray[np.bool_]) -> None:
        """Counts an idle tick in the lanes where the seat should have acted; `active` is [L, E] of the seat."""
        self._idle[:, seat] += active.any(axis=1)

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
            self._note_stated(step.frame.infos, ended)
        return np.logical_and.reduce(self._terminated | self._truncated, axis=1), True

    def cut(self, step: Step) -> Step:
        """Truncates all entities that have not ended, on the last tick of a leg, before it is added.

        Episodes that end only because of this are recorded as cut and have no outcome.
        """
        ended = self._terminated | self._truncated | step.terminated | step.truncated
        self._cut = ~np.logical_and.reduce(ended, axis=1)
        return step._replace(truncated=step.truncated | ~ended)

    def _note_stated(self, infos: Sequence[Sequence[Info]], ended: NDArray[np.bool_]) -> None:
        for lane, entity in zip(*np.nonzero(ended), strict=True):
            outcome = infos[lane][entity].get("outcome")
            if isinstance(outcome, str):  # some games use this key for values of other types
                self._stated[int(lane), int(entity)] = outcome
            if "metrics" in infos[lane][entity]:
                metrics = stated_metrics(infos[lane][entity])
                if metrics is not None:
                    self._metrics[int(lane), int(entity)] = metrics

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """Returns the records of the episodes that ended at `tick` in these lanes [L], and resets the lanes.

        Raises:
            NotZeroSum: the game is configured as zero-sum, and an episode was not.
        """
        over = lanes.nonzero()[0]
        numbers = over.tolist()
        columns = zip(
            numbers,
            self.episodes[over].tolist(),
            (self._ticks - self._begun[over]).tolist(),
            np.logical_or.reduce(self._terminated[over], axis=1).tolist(),
            np.logical_or.reduce(self._truncated[over], axis=1).tolist(),
            self._seat_returns(over),
            self._idle[over].tolist(),
            strict=True,
        )
        records = [
            EpisodeRecord(
                round=self._round,
                match=self._match.match,
                env=self._match.env,
                lane=self._lanes[lane],
                episode=episode,
                tick=tick,
                length=length,
                terminated=terminated,
                truncated=truncated,
                seats=self._seat_records(lane, verdict, returns, idle),
                cut=bool(self._cut[lane]),
                settled=verdict.settled,
            )
            for lane, episode, length, terminated, truncated, returns, idle in columns
            for verdict in (self._verdict(lane, episode, returns),)
        ]
        self.episodes[over] += 1
        self.restart(over)
        return records

    def _seat_returns(self, lanes: NDArray[np.intp]) -> list[list[float]]:
        """Per lane and seat, the mean return of the seat's entities; NaN if none of them has taken part.

        An entity takes part if it is active at least once, earns something, or has an outcome.
        """
        returns = self._returns[lanes]
        # Contiguous: the order of summation over many entities must not depend on how many lanes end at once.
        means = [np.ascontiguousarray(returns[:, entities]).mean(axis=1) for entities in self._seats]
        if self._waiting:
            absent = self._absent[lanes] & (returns == 0)
            for place, lane in enumerate(lanes.tolist()):
                absent[place, [entity for at, entity in self._stated if at == lane]] = False
            for mean, entities in zip(means, self._seats, strict=True):
                mean[absent[:, entities].all(axis=1)] = np.nan
        seat_returns: list[list[float]] = np.stack(means, axis=1).tolist()
        return seat_returns

    def restart(self, lanes: NDArray[np.intp]) -> None:
        """Drops the unfinished episodes of these lanes."""
        self._begun[lanes] = self._ticks
        for array in (self._returns, self._terminated, self._truncated, self._idle, self._cut):
            array[lanes] = 0
        if self._stated:
            dropped = {*lanes.tolist()}
            self._stated = {place: outcome for place, outcome in self._stated.items() if place[0] not in dropped}
        if self._metrics:
            dropped = {*lanes.tolist()}
            self._metrics = {place: metrics for place, metrics in self._metrics.items() if place[0] not in dropped}

    def _verdict(self, lane: int, episode: int, returns: Sequence[float]) -> Verdict:
        """The outcomes of an episode by the rule of the game."""
        if self._cut[lane]:
            return Verdict((None,) * len(returns), settled=False)
        place = (self._round, self._match.match, self._lanes[lane], episode)
        return verdict(self._match, place, returns, self._stated_of(lane), self._entity_counts)

    def _seat_records(
        self, lane: int, verdict: Verdict, returns: Sequence[float], idle: Sequence[int]
    ) -> tuple[SeatRecord, ...]:
        return tuple(
            SeatRecord(seat.policy, seat.entities, value, outcome, ticks, metrics)
            for seat, value, outcome, ticks, metrics in zip(
                self._match.seats, returns, verdict.outcomes, idle, self._metrics_of(lane), strict=True
            )
        )

    def _metrics_of(self, lane: int) -> list[dict[str, float] | None]:
        """Per seat, the mean of each metric over its entities; None in an episode that was cut."""
        if not self._metrics or self._cut[lane]:
            return [None] * len(self._seats)
        stated = self._metrics
        return [
            mean_metrics(stated[lane, int(entity)] for entity in entities if (lane, int(entity)) in stated)
            for entities in self._seats
        ]

    def _stated_of(self, lane: int) -> list[str | None]:
        """Per seat, the stated outcome of its first entity that has one."""
        if not self._stated:
            return [None] * len(self._seats)
        stated = self._stated
        return [
            next((stated[lane, int(entity)] for entity in entities if (lane, int(entity)) in stated), None)
            for entities in self._seats
        ]


def verdict(
    match: MatchPlan,
    place: tuple[int, int, int, int],
    returns: Sequence[float],
    stated: Sequence[str | None],
    entities: Sequence[int],
) -> Verdict:
    """The outcomes of an episode by the rule of the game.

    Args:
        match: the match.
        place: round, match, lane and episode.
        returns: per seat.
        stated: per seat, the outcome that the game has stated.
        entities: per seat, their number.

    Raises:
        NotZeroSum: the game is configured as zero-sum, and the episode was not.
    """
    try:
        return outcomes(returns, stated, entities=entities, rule=match.game.outcome, sides=match.sides)
    except NotZeroSum as error:
        raise NotZeroSum(
            f"{place_words(place)} has the {returns_words(returns)}, which do not add up to zero over two sides, but "
            f"`envs.{match.env}.outcome` is zero_sum; set higher_return if the higher return wins, or none"
        ) from error
