"""Who may meet whom in a league: whether its players can be compared at all by what they have won and lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from arena.config.matches import MatchConfig, MatchmakingConfig, PastSelvesRule, generator_of

if TYPE_CHECKING:
    from arena.config.schema import Config


def comparable(config: Config) -> list[frozenset[str]]:
    """Policies in groups: two of one group can be compared, as they may meet, or others whom both of them may meet.

    Of two groups nobody ever plays a game that counts against anybody of the other; who plays none is in no group.
    """
    groups: list[frozenset[str]] = []
    for meeting in _meetings(config):
        apart = [group for group in groups if not group & meeting]
        groups = [*apart, meeting.union(*(group for group in groups if group & meeting))]
    return groups


def _meetings(config: Config) -> Iterator[frozenset[str]]:
    for _, entry in config.places():
        if isinstance(entry, MatchConfig):
            if entry.is_rated:
                yield frozenset(entry.names)
        elif isinstance(generator := generator_of(entry), MatchmakingConfig):
            yield from _matched(generator)
        else:
            yield frozenset(generator.members)


def _matched(entry: MatchmakingConfig) -> Iterator[frozenset[str]]:
    """Those who may be drawn for each other; nobody for a learner that meets itself alone."""
    if not entry.draws_others:
        return
    if isinstance(entry.rule, PastSelvesRule):
        yield from (frozenset({learner, *entry.against}) for learner in entry.policies)
    else:
        yield frozenset(entry.members)
