"""The finished episodes of a run as columns, from which curves, lengths and results are computed.

A policy appears once in an episode, however many seats it had: with the mean return of its entities and its shares of
the result, as in the live display (`arena.records.figures`). Episodes that the end of a leg has cut are no
results.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.records.metrics import EpisodeRecord
from arena.records.outcome import Outcome

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_CODES: dict[Outcome | None, int] = {"win": 0, "draw": 1, "loss": 2, None: 3}


class Appearances(NamedTuple):
    """Which policy played in which episode, ordered by episode. A appearances.

    Args:
        episode: [A] row of the episode in the table.
        policy: [A] index in the table's policies.
        returns: [A] mean over the policy's entities; NaN where one was not finite.
        shares: [A, 3] of the game: won, drawn, lost; they add up to 1.
        decided: [A] whether all seats of the policy have won, drawn or lost; else the shares say nothing.
    """

    episode: Ints
    policy: Ints
    returns: Floats
    shares: Floats
    decided: Bools

    def of(self, policy: int) -> Appearances:
        """The appearances of one policy."""
        mine = self.policy == policy
        return Appearances(*(column[mine] for column in self))


class EpisodeTable(NamedTuple):
    """All episodes in the order of the file. E episodes.

    Args:
        envs: names, in the order in which they were first seen; policies likewise.
        env: [E] index in `envs`.
        round: [E] of the league; match: its number in that round.
        tick: [E] at which the episode ended; length: its ticks.
        terminated: [E] by the rules; truncated: from outside; cut: by the end of a leg, so that it is no result.
    """

    envs: tuple[str, ...]
    policies: tuple[str, ...]
    env: Ints
    round: Ints
    match: Ints
    tick: Ints
    length: Ints
    terminated: Bools
    truncated: Bools
    cut: Bools
    appearances: Appearances

    @property
    def results(self) -> int:
        """How many episodes are results."""
        return int(np.count_nonzero(~self.cut))

    @property
    def series(self) -> Ints:
        """[E] a number for each match of each round."""
        if not len(self.match):
            return self.match
        return self.round * (int(self.match.max()) + 1) + self.match

    @property
    def matches_at_once(self) -> float:
        """How many matches a round had, in the mean."""
        return len(np.unique(self.series)) / max(1, len(np.unique(self.round)))

    @property
    def seats_at_once(self) -> float:
        """How many policies sat in the matches of a round together, in the mean."""
        policies = len(self.appearances.episode) / max(1, self.results)  # of an episode
        return policies * self.matches_at_once


def tabulate(episodes: Iterable[EpisodeRecord]) -> EpisodeTable:
    """The table of episodes, which are read once.

    Raises:
        ConfigError: an episode is there twice.
    """
    envs, policies = _Names(), _Names()
    places, rows, seats = array("q"), array("q"), array("d")
    for number, episode in enumerate(episodes):
        places.extend((episode.round, episode.match, episode.lane, episode.episode))
        flags = (episode.terminated, episode.truncated, episode.cut)
        rows.extend((envs[episode.env], episode.round, episode.match, episode.tick, episode.length, *flags))
        for seat in () if episode.cut else episode.seats:
            gain = np.nan if seat.return_ is None else seat.return_
            seats.extend((number, policies[seat.policy], gain, len(seat.entities), _CODES[seat.outcome]))
    _check_once(np.array(places, np.int64).reshape(-1, 4))
    env, round_, match, tick, length, *flags_ = np.array(rows, np.int64).reshape(-1, 8).T
    terminated, truncated, cut = (flag.astype(np.bool_) for flag in flags_)
    seated = np.array(seats, np.float64).reshape(-1, 5)
    appearances = _appearances(seated, len(policies))
    return EpisodeTable(
        tuple(envs), tuple(policies), env, round_, match, tick, length, terminated, truncated, cut, appearances
    )


class _Names(dict[str, int]):
    """Numbers names in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


def _check_once(places: Ints) -> None:
    """Refuses an episode, given by round, match, lane and number [E, 4], that is there twice."""
    order = np.lexsort(places.T)  # and of equal ones the earlier line first
    found = places[order]
    again = order[1:][(found[1:] == found[:-1]).all(axis=1)]
    if again.size:
        line = int(again.min())
        round_, match, lane, number = places[line].tolist()
        episode = f"round {round_}, match {match}, lane {lane}, episode {number}"
        raise ConfigError(f"is damaged: {episode} is there twice", path=f"line {line + 1}")


def _appearances(seats: Floats, policies: int) -> Appearances:
    """Joins the seats of each policy in each episode; they are [S, 5]: episode, policy, return, entities, outcome."""
    episode, policy, returns, sizes, outcome = seats.T
    keys = episode.astype(np.int64) * max(policies, 1) + policy.astype(np.int64)
    found, place = np.unique(keys, return_inverse=True)

    def summed(values: Floats) -> Floats:
        return np.bincount(place, weights=values, minlength=len(found)).astype(np.float64, copy=False)

    entities = summed(sizes)
    shares = [summed(sizes * (outcome == code)) / entities for code in range(3)]
    return Appearances(
        episode=found // max(policies, 1),
        policy=found % max(policies, 1),
        returns=summed(returns * sizes) / entities,
        shares=np.stack(shares, axis=1),
        decided=summed((outcome == _CODES[None]).astype(np.float64)) == 0,
    )
