"""Whether a later round of a league can deadlock, decided before anybody trains; and if one can, which matches do it.

The plan of a round is proved when it is known (`arena.plan.deadlock`). What it may be follows from the configuration
alone (`arena.config.chances`).

Claim. Where the first round cannot deadlock, a later one can be planned so that it can exactly if it may have one of
these:

    a match with two workers      of a policy of `episodes`
    two matches                   of the same two policies, one of which is of `episodes`
    a circle of more              of different policies, one of which is of `episodes`, in a row that closes: a match of
                                  each two that are next to each other, and none that excludes another one

For each is a circle of `arena.plan.deadlock`: no match and no group is in it twice. And such a circle in some plan is
one of
these: by each match it goes from one group to another, or stays in the one if it has no other match.

What is not looked at leads to a refusal too many, never to one too few: how one-sided results must be for the matches
to come together (see `chances`), and rounds of fewer ticks than it takes, which are two more than policies in a row of
which none is of `episodes`. More games, or longer rounds, would get such a run into the deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from arena.config import Config
from arena.config.chances import Chance, Twice, chances, generators_of, telling_rounds
from arena.errors import ConfigError
from arena.plan.circles import Drawing, Line, Node
from arena.plan.deadlock import EPISODES, League, find_circle, remedies

_FEWEST_TICKS = 2  # a worker waits for its group after one, and another match has at least one left to play


class Meeting(NamedTuple):
    """Two policies that have a worker each in a match; or one that has two."""

    path: str  # of the entry of `matches`
    one: str
    other: str


@dataclass(frozen=True)
class Standstill:
    """How a later round can deadlock.

    Args:
        round: its number.
        meetings: matches that it may have at once; the other of one is the one of the next.
        episodic: the policies whose workers meet at ends of episodes.
    """

    round: int
    meetings: tuple[Meeting, ...]
    episodic: frozenset[str]

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that are in it and meet at ends of episodes."""
        return tuple(sorted({meeting.one for meeting in self.meetings} & self.episodic))

    @property
    def league(self) -> League:
        """The matches alone, with no more workers than it takes, and as many ticks."""
        seated = [
            (name, (match, seat)) for match, (_, *pair) in enumerate(self.meetings) for seat, name in enumerate(pair)
        ]
        groups = {name: tuple(worker for other, worker in seated if other == name) for name, _ in seated}
        return League(groups, self.episodic & groups.keys(), len(groups) + 2)


def refuse_standstill(config: Config, schedules: Mapping[str, str], *, processes: int) -> None:
    """Refuses a league a later round of which can deadlock.

    Args:
        config: of the league.
        schedules: by policy, what its algorithm's class says; one that is not named counts as `ticks`.
        processes: how many the run has.

    Raises:
        ConfigError: with the place of an entry that depends on results, who may meet whom, and what helps.
    """
    found = foresee(config, schedules, processes=processes)
    if found is not None:
        adaptive = {path for path, generator in generators_of(config) if generator.adaptive}
        paths = [meeting.path for meeting in found.meetings]
        place = next((path for path in paths if path in adaptive), paths[0])
        raise ConfigError("\n".join(standstill_lines(config, found)), path=place)


def standstill_lines(config: Config, found: Standstill) -> Iterator[str]:
    """How a later round can deadlock, in words: why, each of the matches, and what helps."""
    yield (
        f"a later round can deadlock: the workers of {', '.join(found.policies)} may meet whenever an episode of "
        f"theirs is over, and round {found.round} of 0 to {config.rounds - 1} may have these matches, which can wait "
        "for each other:"
    )
    for path, one, other in found.meetings:
        who = f"two workers of {one!r} in a match" if one == other else f"{one!r} and {other!r}"
        yield f"  {who}, by {path}"
    yield f"What helps: {'`scale: false`; ' * config.scale}{remedies(found.policies)}"


def foresee(config: Config, schedules: Mapping[str, str], *, processes: int) -> Standstill | None:
    """How a later round can deadlock; None if none can. Its arguments are those of `refuse_standstill`."""
    episodic = frozenset(name for name in config.learners if schedules.get(name) == EPISODES)
    if not episodic or config.ticks < _FEWEST_TICKS:
        return None
    for number in telling_rounds(config):
        for brought in chances(config, number, processes=processes):
            if meetings := _circle(brought, episodic):
                found = Standstill(number, meetings, episodic)
                assert find_circle(found.league), f"{meetings} do not hold each other up"
                return found
    return None


def _circle(brought: Sequence[Chance], episodic: Collection[str]) -> tuple[Meeting, ...]:
    """Matches that hold each other up, as few as can be told at once; none if there are none."""
    for path, (one, other) in (chance for chance in brought if isinstance(chance, Twice)):
        if one in episodic or other in episodic:
            return (Meeting(path, one, other), Meeting(path, other, one))[: 1 if one == other else 2]
    drawing = Drawing([chance for chance in brought if isinstance(chance, Line)])
    circles = (_meetings(start, drawing.circle_through(start) or ()) for start in sorted(episodic))
    return next(filter(None, circles), ())


def _meetings(start: str, circle: Sequence[Line]) -> tuple[Meeting, ...]:
    """The matches along a circle that begins at a policy."""
    found: list[Meeting] = []
    one, node = start, cast(Node, start)
    for line in circle:
        (node,) = {*line.ends} - {node}
        if isinstance(node, str):
            found.append(Meeting(line.label, one, node))
            one = node
    return tuple(found)
