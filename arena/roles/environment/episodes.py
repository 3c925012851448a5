"""Tracks the current episodes of one match: lengths, returns, idle ticks, and the record of an episode that ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum
from arena.game.api import Frame, Step
from arena.game.infos import mean_metrics, stated_metrics
from arena.plan.plan import MatchPlan
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome, outcomes, place_words, returns_words


class EpisodeTracker:
    """Accumulates rewards and ends per lane, and builds the records of episodes.

    Args:
        match: the match.
        seat_entities: per seat, the indices of its entities in the game.
        lanes: the tracked lanes, by their numbers in the match; arrays [L] hold them in this order.
        before: per lane, the number of episodes recorded before this leg; 0 if not given.
        round: the league round of the match.
        rule: how the winner of an episode is determined; None: no episode has one.

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
        rule: OutcomeRule | None = None,
    ) -> None:
        self._match, self._rule = match, rule
        self._ranked = ranks_sides(match, rule)
        self._round = round
        self._seats = [np.array(entities, np.intp) for entities in seat_entities]
        self._entity_counts = [len(entities) for entities in seat_entities]
        self._policies = [seat.policy for seat in match.seats]
        self._seat_names = [seat.entities for seat in match.seats]
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
        self._cut = ~np.logical_and.reduce(ended, axis=1)
        return step._replace(truncated=step.truncated | ~ended)

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """Returns the records of the episodes that ended at `tick` in these lanes [L], and resets the lanes.

        Raises:
            NotZeroSum: the game is declared as zero-sum, and an episode was not.
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
                seats=self._seat_records(lane, episode, returns, idle),
                cut=bool(self._cut[lane]),
                ranked=self._ranked and not self._cut[lane],
            )
            for lane, episode, length, terminated, truncated, returns, idle in columns
        ]
        self.episodes[over] += 1
        self.restart(over)
        return records

    def _seat_returns(self, lanes: NDArray[np.intp]) -> list[list[float | None]]:
        """Per lane and seat, the mean return of the seat's entities; None if none of them has taken part.

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
        seat_returns: list[list[float | None]] = np.stack(means, axis=1).tolist()
        if self._waiting:
            seat_returns = [[None if value != value else value for value in own] for own in seat_returns]
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

    def _seat_records(
        self, lane: int, episode: int, returns: Sequence[float | None], idle: Sequence[int]
    ) -> tuple[SeatRecord, ...]:
        ends: tuple[Outcome | None, ...] = (None,) * len(returns)
        if not self._cut[lane] and self._rule is not None:
            place = (self._round, self._match.match, self._lanes[lane], episode)
            ends = judged(self._match, self._rule, place, returns, self._stated_of(lane), self._entity_counts)
        return tuple(map(SeatRecord, self._policies, self._seat_names, returns, ends, idle, self._metrics_of(lane)))

    def _metrics_of(self, lane: int) -> list[dict[str, float] | msgspec.UnsetType]:
        """Per seat, the mean of each metric over its entities; unset in an episode that was cut."""
        if not self._metrics or self._cut[lane]:
            return [msgspec.UNSET] * len(self._seats)
        stated = self._metrics
        return [
            mean_metrics(stated[lane, int(entity)] for entity in entities if (lane, int(entity)) in stated)
            or msgspec.UNSET
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


def ranks_sides(match: MatchPlan, rule: OutcomeRule | None) -> bool:
    """Whether all sides of a match are ranked by their returns: there are more than two, and the higher return wins."""
    return rule == "higher_return" and len(match.sides or match.seats) > 2


def judged(
    match: MatchPlan,
    rule: OutcomeRule | None,
    place: tuple[int, int, int, int],
    returns: Sequence[float | None],
    stated: Sequence[str | None],
    entities: Sequence[int],
) -> tuple[Outcome | None, ...]:
    """Per seat the outcome of an episode by the rule of its game.

    Args:
        match: the match.
        rule: of the configuration or the game.
        place: round, match, lane and episode.
        returns, stated, entities: per seat, as for `outcomes`.

    Raises:
        NotZeroSum: the game is declared as zero-sum, and the episode was not.
    """
    try:
        return outcomes(returns, stated, entities=entities, rule=rule, sides=match.sides)
    except NotZeroSum as error:
        taking = [(value, count) for value, count in zip(returns, entities, strict=True) if value is not None]
        found = returns_words([value * count for value, count in taking])  # of all entities of a seat
        key, game = f"`envs.{match.env}.outcome`", match.game
        declared = f"{key} is zero_sum" if game.outcome else f"{game.make!r} declares zero_sum"
        raise NotZeroSum(
            f"{place_words(place)} has the {found}, which do not add up to zero over two sides, but {declared}; set "
            f"{key} to higher_return if the higher return wins, or to none"
        ) from error
