"""Records the external games of a match: the counterpart of `EpisodeTracker`, whose episodes begin and end with legs.

A game is recorded when it ends; its account in the table of slots continues from leg to leg. For the algorithms an
episode still ends with the leg: `cut` truncates the rows of the games that continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.config.fields import OutcomeRule
from arena.external.slots import Game, Slots, Tick
from arena.game.api import Frame, Interface, Step
from arena.game.infos import mean_metrics
from arena.plan.plan import MatchPlan
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome
from arena.roles.environment.episodes import judged, ranks_sides


class GameSource(Protocol):
    """Where the accounts of games come from: the environment of a run, or a server."""

    interface: Interface
    tick: Tick

    @property
    def table(self) -> Slots: ...

    def take_finished(self) -> list[Game]: ...


class GameTracker:
    """Builds the records of external games.

    Args:
        games: of the match.
        match: the match.
        seat_entities: per seat, the indices of its entities in the game.
        before: per slot, the number of games recorded before this leg; empty: none.
        round: the league round of the match.
        rule: how the winner of a game is determined; None: no game has one.

    Attributes:
        episodes: int64 [L], the number of recorded games per slot, including `before`.
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
        self._games = games
        self._match, self._rule = match, rule
        self._seats = [list(entities) for entities in seat_entities]
        self._round = round
        slots = match.lanes
        self.episodes = np.array(before or [0] * slots, np.int64)
        self.playing = np.zeros((slots, len(games.interface.entities)), np.bool_)
        self._idle = np.zeros((slots, len(seat_entities)), np.int64)
        self._cut = np.zeros(slots, np.bool_)

    @property
    def cut_now(self) -> NDArray[np.bool_]:
        """[L] the slots whose game goes on, although the leg ends for the algorithms."""
        return self._cut

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Nothing: external games begin by themselves, and report which entities take part."""

    def add_idle(self, seat: int, active: NDArray[np.bool_]) -> None:
        """Counts an idle tick in the slots where the seat should have acted; `active` is [L, E] of the seat."""
        self._idle[:, seat] += active.any(axis=1)

    def tick(self, step: Step) -> tuple[NDArray[np.bool_], bool]:
        """The slots [L] whose game is over, or cut by the end of the leg; and whether any entity has ended."""
        ends = bool(np.count_nonzero(step.terminated | step.truncated))
        return self._games.tick.over | self._cut, ends

    def cut(self, step: Step) -> Step:
        """Truncates all rows whose game goes on, on the last tick of a leg."""
        goes_on, void = self._games.table.cut()
        self._cut[:] = goes_on.any(axis=1)
        outside = step.frame.outside
        assert outside is not None, "external games have it"
        frame = step.frame._replace(outside=outside._replace(void=outside.void | void))
        return step._replace(frame=frame, truncated=step.truncated | (goes_on & ~step.terminated))

    def restart(self, lanes: NDArray[np.intp]) -> None:
        """Nothing: a reset by a worker does not touch an external game."""

    def finish(self, lanes: NDArray[np.bool_], tick: int) -> list[EpisodeRecord]:
        """The records of all games that are over; a game that has never asked has none.

        Raises:
            NotZeroSum: the game is declared as zero-sum, and this one was not.
        """
        return [self._record(game, tick) for game in self._games.take_finished() if game.asked and game.name]

    def _record(self, game: Game, tick: int) -> EpisodeRecord:
        slot = game.slot
        playing = [[entity for entity in entities if game.takes_part[entity]] for entities in self._seats]
        taken = [seat for seat, entities in enumerate(playing) if entities]
        returns = [float(game.returns[playing[seat]].mean()) for seat in taken]
        episode = int(self.episodes[slot])
        ends: tuple[Outcome | None, ...] = (None,) * len(taken)
        if not game.lost:
            stated = [
                next((game.outcomes[entity] for entity in playing[seat] if entity in game.outcomes), None)
                for seat in taken
            ]
            place = (self._round, self._match.match, slot, episode)
            counts = [len(playing[seat]) for seat in taken]
            ends = judged(self._match, self._rule, place, returns, stated, counts)
        seats = [self._match.seats[seat] for seat in taken]
        stated_metrics = [
            (mean_metrics(game.metrics[one] for one in playing[seat] if one in game.metrics) or msgspec.UNSET)
            if not game.lost
            else msgspec.UNSET
            for seat in taken
        ]
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
            seats=tuple(
                SeatRecord(seat.policy, seat.entities, value, outcome, idle, metrics)
                for seat, value, outcome, idle, metrics in zip(
                    seats, returns, ends, self._idle[slot, taken].tolist(), stated_metrics, strict=True
                )
            ),
            cut=bool(game.lost),  # no result, as of an episode that the end of a leg has cut
            ranked=ranks_sides(self._match, self._rule) and not game.lost,
            game=game.name,
            lost=bool(game.lost),
        )
        self.episodes[slot] += 1
        self._idle[slot] = 0
        return record
