"""Rounds as data, and the history of a league, from which the next round follows.

A round is written down before it is played, and from it alone its plan can be made again. Whatever a league has to
remember is in its rounds: which snapshots there are, whose options have changed, who has met whom in a tournament.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from arena.config.matches import MatchConfig, Pair
from arena.config.schema import Config
from arena.league.results import Encounter, Played
from arena.records.formats import Player, Round


def snapshot_name(policy: str, tick: int) -> str:
    """The name of a policy's snapshot; no name in a configuration has an '@'."""
    return f"{policy}@{tick}"


def player_of(name: str) -> Player:
    """The policy and the tick of a snapshot, by its name."""
    policy, _, tick = name.rpartition("@")
    return Player(policy, int(tick))


def names_of(match: MatchConfig) -> frozenset[str]:
    """The players of a match."""
    return frozenset(match.names)


def _policies_of(snapshots: Iterable[str]) -> set[str]:
    return {player_of(name).policy for name in snapshots}


class History:
    """The earlier rounds of a league, and what follows from them.

    Args:
        config: of the league.
        before: all rounds that were played, the first one first.
        played: their games; (): no game counts.

    Attributes:
        number: of the round to be made.
        snapshots: per policy its snapshots in the league, the oldest first.
        options: per policy its current ones.
    """

    def __init__(self, config: Config, before: Sequence[Round], played: Played = ()) -> None:
        self.number = len(before)
        self._rounds = tuple(before)
        self._played = played or [{} for _ in before]
        self.snapshots = _in_the_league(config, before)
        self._changed = before[-1].options if before else {}
        configured = {name: policy.options for name, policy in config.policies.items()}
        self.options: Mapping[str, dict[str, Any]] = {
            name: self._changed.get(name, options) for name, options in configured.items()
        }

    def changed_options(self) -> dict[str, dict[str, Any]]:
        """The options of policies and snapshots in the league that differ from the configuration."""
        gone = {name for played in self._rounds for name in played.dropped}
        return {name: options for name, options in self._changed.items() if name not in gone}

    def pairings(self, place: str) -> list[tuple[tuple[str, ...], ...]]:
        """Who met whom in a knockout or Swiss, round after round."""
        return [made.pairings[place] for made in self._rounds]

    def made_by(self, place: str) -> tuple[tuple[Pair, ...], ...]:
        """Per earlier round the pairings of one entry of the configuration, by its place."""
        return tuple(
            tuple(
                (match.team_of(0), match.team_of(1))
                for match, origin in zip(made.matches, made.places, strict=False)
                if origin == place
            )
            for made in self._rounds
        )

    def games(self) -> Iterator[list[tuple[MatchConfig, Sequence[Encounter]]]]:
        """Per round the games of each match, with what the match was made of."""
        return ([*made.described(games)] for made, games in zip(self._rounds, self._played, strict=True))

    def games_as_it_is(self, policy: str) -> Iterator[tuple[MatchConfig, Sequence[Encounter]]]:
        """The games of a policy, match after match, since it began anew or became a copy of another one, if it did."""
        for games in self.rounds_as_it_is(policy):
            yield from ((match, found) for match, found in games if policy in names_of(match))

    def rounds_as_it_is(self, policy: str) -> Iterator[list[tuple[MatchConfig, Sequence[Encounter]]]]:
        """Per round all games since a policy began anew or became a copy of another one, if it did."""
        changed = [made.number for made in self._rounds if policy in made.forks or policy in made.resets]
        return itertools.islice(self.games(), max(changed, default=0), None)

    def has_played(self, policy: str) -> bool:
        """Whether a policy has played since its newest snapshot joined; without one: at all."""
        joined = (played.number for played in self._rounds if policy in _policies_of(played.snapshots))
        since = self._rounds[max(joined, default=0) :]
        return any(policy in names_of(match) for played in since for match in played.matches)

    def age(self, policy: str) -> int:
        """For how many rounds a policy has learned since it began anew, or since its newest snapshot joined."""
        events = (
            played.number
            for played in self._rounds
            if policy in played.resets or policy in _policies_of(played.snapshots)
        )
        return self.number - max(events, default=0)


def _in_the_league(config: Config, before: Sequence[Round]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in config.policies}
    for played in before:
        for name in played.dropped:
            found[player_of(name).policy].remove(name)
        for name in played.snapshots:
            found[player_of(name).policy].append(name)
    return found
