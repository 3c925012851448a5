"""Rules of matchmaking and generators of matches that are classes of the user's own.

    rule: "my_rules:Above"                                      matchmaking, `Above.opponents` draws for each learner
    pairings: {generator: "my_pairings:Ladder", ...}            `Ladder.pairings` says who meets whom

    class Above:
        def __init__(self, *, elo=100.0): ...                   the options, as those of an algorithm
        def opponents(self, learner, league, count, rng):       `count` names of `league.players`
            ...

    class Ladder:
        def pairings(self, league, rng):                        pairs of sides; a side is a name, or one for each seat
            ...

Both are pure: an object is created for each round, gets what is known of the league (`LeagueView`) and draws from
`rng` alone, a stream of the run's seed and the round. So a round that is planned again, by `--resume` or after a death,
is the same round. `arena.testing.check_rule` and `check_pairings` test a class.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from arena import registry
from arena.config.matches import Matchmaking, OwnRule, Pair, Pairings
from arena.config.schema import Config
from arena.errors import ConfigError, located, nearest
from arena.league.view import LeagueView

if TYPE_CHECKING:  # processes that only plan start without it
    import numpy as np


class OpponentRule(Protocol):
    """What a class at `rule` has to have."""

    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Sequence[str]:
        """The opponents of a learner, one of `league.policies`, in the next round: `count` names of players.

        Each is for a match of its own; one may be named several times, and the learner itself too. `rng` is for
        whatever is left to chance.
        """


class PairingGenerator(Protocol):
    """What a class at `generator` has to have."""

    def pairings(self, league: LeagueView, rng: np.random.Generator) -> Sequence[Sequence[str | Sequence[str]]]:
        """The pairings of the next round: pairs of sides, each the name of a player, or a name for each seat."""


def check_custom(config: Config) -> None:
    """Makes all rules and generators of the user's own once.

    Raises:
        ConfigError: a class cannot be imported, lacks its method, or does not take its options; with the place.
    """
    for path, entry in config.places():
        if isinstance(entry, Matchmaking) and isinstance(entry.rule, OwnRule):
            _made(entry.rule, path)
        elif isinstance(entry, Pairings):
            _made(entry, path)


def draw_opponents(
    entry: Matchmaking, learner: str, league: LeagueView, count: int, rng: np.random.Generator, *, path: str
) -> list[str]:
    """The opponents that a rule of the user's own draws for a learner; `path` is that of the entry.

    Raises:
        ConfigError: the rule raises, or returns something else than `count` names of players.
    """
    assert isinstance(entry.rule, OwnRule), entry.rule
    rule = _made(entry.rule, path)
    with located(path=f"{path}.rule"):
        found = _called(rule, "opponents", learner, league, count, rng)
        return checked_opponents(found, league.players, count, who=f"{type(rule).__name__}.opponents({learner!r})")


def make_pairings(entry: Pairings, league: LeagueView, rng: np.random.Generator, *, path: str) -> list[Pair]:
    """The pairings of the next round by a generator of the user's own; `path` is that of the entry.

    Raises:
        ConfigError: the generator raises, or returns something else than pairings of players, or too many.
    """
    generator = _made(entry, path)
    with located(path=f"{path}.generator"):
        found = _called(generator, "pairings", league, rng)
        who = f"{type(generator).__name__}.pairings()"
        return checked_pairings(found, league.players, entry, who=who)


def checked_opponents(found: Any, players: Collection[str], count: int, *, who: str) -> list[str]:
    """What a rule has returned, if it is `count` names of players.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(found, str) or not (isinstance(found, Sequence) or hasattr(found, "tolist")):  # or an array
        raise ConfigError(f"{who} returned {found!r:.80}; expected a list of {count} names of `league.players`")
    names = [_known(name, players, who) for name in found]
    if len(names) != count:
        raise ConfigError(f"{who} returned {len(names)} names; expected {count}, one for each match (`copies`)")
    return names


def checked_pairings(found: Any, players: Collection[str], entry: Pairings, *, who: str) -> list[Pair]:
    """What a generator has returned, if it is at least one pairing, and no more than the first round has.

    Raises:
        ConfigError: it is something else.
    """
    expected = "a list of pairs of sides, each a name of `league.players`, or a name for each of its seats"
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise ConfigError(f"{who} returned {found!r:.80}; expected {expected}")
    if not 1 <= len(found) <= entry.pairings:
        raise ConfigError(
            f"{who} returned {len(found)} pairings; at least 1, and at most {entry.pairings}, as many as the first "
            "round has: list more in `opening`"
        )
    pairs = []
    for one in found:
        if isinstance(one, str) or not isinstance(one, Sequence) or len(one) != 2:
            raise ConfigError(f"{who} returned the pairing {one!r:.80}; expected {expected}")
        teams = []
        for side, one_side in enumerate(one):
            if isinstance(one_side, str):
                teams.append(entry.team(_known(one_side, players, who), side))
            elif isinstance(one_side, Sequence) and len(one_side) == entry.sizes[side]:
                teams.append(tuple(_known(name, players, who) for name in one_side))
            else:
                size = entry.sizes[side]
                raise ConfigError(f"{who} returned the side {one_side!r:.80}; expected a name, or {size} of them")
        pairs.append((teams[0], teams[1]))
    return pairs


def _known(name: Any, players: Collection[str], who: str) -> str:
    if name not in players:
        raise ConfigError(f"{who} returned {str(name)!r:.80}, which may not play here; {nearest(str(name), players)}")
    return str(name)


def _made(entry: OwnRule | Pairings, path: str) -> Any:
    """An object of the class of a rule or a generator, which has the method of its interface."""
    if isinstance(entry, OwnRule):
        method, target, path = "opponents", entry.class_, f"{path}.rule"
        interface: Any = OpponentRule
    else:
        method, target, interface = "pairings", entry.generator, PairingGenerator
    with located(path=path):
        cls = registry.load_class(target)
        if not callable(getattr(cls, method, None)):
            raise ConfigError(f"{target!r} has no method {method}()")
        registry.check_method(cls, method, [*inspect.signature(getattr(interface, method)).parameters][1:])
    return registry.made_object(cls, entry.options, path=path)


def _called(made: Any, method: str, *arguments: Any) -> Any:
    try:
        return getattr(made, method)(*arguments)
    except (Exception, SystemExit) as error:  # any error of the user's code
        raise ConfigError(
            f"{type(made).__name__}.{method}() raised {type(error).__name__}: {error}{registry.where_raised(error)}"
        ) from error
