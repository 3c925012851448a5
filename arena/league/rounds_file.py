"""`rounds.jsonl`: a line per round of a league, written when the round is planned, before any match of it starts.

A line holds the round itself, from which its plan can be made again, and the matches as numbered in the plan, for
readers of its records. Whatever a league has to remember is in its rounds, see `History`: which snapshots there are,
whose options have changed, who has met whom in a tournament.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from arena.config.load import load_config
from arena.config.matches import Match, Pair
from arena.config.named import check_texts
from arena.config.schema import Config
from arena.errors import ConfigError, located
from arena.league.results import Encounter, Played
from arena.plan.plan import Plan
from arena.records import boundary, checksums
from arena.records.folder import RunFolder
from arena.records.formats import Player, Round, plan_file, round_of
from arena.records.journal import JournalReader


def keep(folder: RunFolder, before: Sequence[Round], planned: Round, plan: Plan) -> None:
    """Writes the line of a round, with its plan, after those before it; later lines are removed."""
    known = folder.rounds.read_bytes().splitlines(keepends=True)[: len(before)] if folder.rounds.exists() else []
    line = msgspec.structs.replace(planned, planned=plan_file(plan).matches)
    checksums.replace(folder.rounds, b"".join([*known, msgspec.json.encode(line) + b"\n"]))


def read(folder: RunFolder) -> list[Round]:
    """The rounds that were planned, the first one first; none where the file is not there.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena; or it names what config.yaml does not.
    """
    found, config = [], None
    for line in lines_in(JournalReader(folder.rounds)):
        if not line.matches:
            raise ConfigError(f"is damaged: round {line.number} lacks `descriptions`", source=str(folder.rounds))
        options, kwargs = [*line.options.values()], [match.env_kwargs for match in line.matches]
        if any([*options, *kwargs]):
            config = config or load_config(folder.config)
            with located(path=f"round {line.number}", source=str(folder.rounds)):
                check_texts(options, config)
                check_texts(kwargs, config, free=bool(config.callbacks))  # which may propose matches
        found.append(line)
    return found


def read_played(folder: RunFolder, config: Config) -> list[Round]:
    """The rounds of a run that has played; if it has several rounds, all up to its newest boundary must be there.

    Raises:
        ConfigError: as `read`; or one is missing.
    """
    reached = boundary.newest_tick(folder) or 0  # first: a round is written down before it is played
    found = read(folder)
    needed = 1 + max(0, reached - 1) // config.ticks
    if config.round_count > 1 and len(found) < needed:
        why = f"it lacks round {needed - 1}" if folder.rounds.exists() else "it is missing"
        raise ConfigError(f"is damaged: {why}, though the run has come to tick {reached}", source=str(folder.rounds))
    return found


def lines_in(journal: JournalReader) -> list[Round]:
    """The lines of `rounds.jsonl`, one per round in their order; none where the file is not there.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena.
    """
    found = list(journal.made(round_of, missing_ok=True))
    for number, line in enumerate(found):
        if line.number != number:
            raise ConfigError(
                f"is damaged: the rounds are not numbered one after the other: {line.number} stands where {number} "
                "belongs",
                path=f"line {number + 1}",
                source=str(journal.path),
            )
    return found


def ticks_before(starts: Sequence[int], matches: Sequence[int]) -> int:
    """The ticks of all matches together of all rounds but the last one, by the start and the matches of each round."""
    return sum(count * (end - start) for count, start, end in zip(matches, starts, starts[1:], strict=False))


def options_at(planned: Sequence[Round], tick: int) -> Mapping[str, dict[str, Any]]:
    """The options with which the policies of a checkpoint have learned, if they differ from the configuration.

    A checkpoint at the tick at which a round ends is of that round, before policies become copies of others.
    """
    played = begun_before(planned, tick)
    return played[-1].options if played else {}


def begun_before(planned: Sequence[Round], tick: int) -> list[Round]:
    """The rounds that had begun before a tick."""
    return [one for one in planned if one.start < tick]


def snapshot_name(policy: str, tick: int) -> str:
    """The name of a policy's snapshot; no name in a configuration has an '@'."""
    return f"{policy}@{tick}"


def player_of(name: str) -> Player:
    """The policy and the tick of a snapshot, by its name."""
    policy, _, tick = name.rpartition("@")
    return Player(policy, int(tick))


class History:
    """The earlier rounds of a league, the first one first, and what follows from them; without games none counts.

    Attributes:
        number: of the round to be made.
        snapshots: per policy its snapshots in the league, the oldest first.
        options: per policy its current ones.
        changed: those of policies and snapshots in the league that differ from the configuration.
    """

    def __init__(self, config: Config, before: Sequence[Round], played: Played = ()) -> None:
        self.number = len(before)
        self._rounds = tuple(before)
        self._played = played or [{} for _ in before]
        self.snapshots: dict[str, list[str]] = {name: [] for name in config.policies}
        for made in before:
            for name in made.dropped:
                self.snapshots[player_of(name).policy].remove(name)
            for name in made.snapshots:
                self.snapshots[player_of(name).policy].append(name)
        changed = before[-1].options if before else {}
        gone = {name for made in before for name in made.dropped}
        self.changed = {name: options for name, options in changed.items() if name not in gone}
        self.options: Mapping[str, dict[str, Any]] = {
            name: changed.get(name, dict(policy.options)) for name, policy in config.policies.items()
        }

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

    def games(self) -> Iterator[list[tuple[Match, Sequence[Encounter]]]]:
        """Per round the games of each match, with what the match was made of."""
        return ([*made.described(games)] for made, games in zip(self._rounds, self._played, strict=True))

    def games_since_begun(self, policy: str) -> Iterator[list[tuple[Match, Sequence[Encounter]]]]:
        """Per round all games since a policy started over or became a copy of another one, if it did."""
        changed = [made.number for made in self._rounds if policy in made.forks or policy in made.resets]
        return itertools.islice(self.games(), max(changed, default=0), None)

    def has_played(self, policy: str) -> bool:
        """Whether a policy has played since its newest snapshot joined; without one: at all."""
        joined = (
            made.number for made in self._rounds if any(player_of(one).policy == policy for one in made.snapshots)
        )
        since = self._rounds[max(joined, default=0) :]
        return any(policy in match.names for made in since for match in made.matches)

    def age(self, policy: str) -> int:
        """For how many rounds a policy has learned since it started over, or since its newest snapshot joined."""
        events = (
            made.number
            for made in self._rounds
            if policy in made.resets or any(player_of(one).policy == policy for one in made.snapshots)
        )
        return self.number - max(events, default=0)
