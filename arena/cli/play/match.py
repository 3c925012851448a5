"""The match that a human plays: its configuration, who sits where, and who has won. The same for every console.

game = human_match(frozen, source, output, match=0, seats=[0], against=["random"], advice=None, options={})
prepare(game.config, ranks=1)    a run of it, in which `output.algorithm` plays the human's seats
game.players                     who plays each seat
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from arena import registry
from arena.cli.play.human import configured
from arena.config.matches import Match, policy_of, reseated
from arena.config.members import policy_of_player, seats_by_policy
from arena.config.schema import Config, Policy
from arena.errors import ConfigError, nearest, pluralize
from arena.game.api import Interface
from arena.league.sources import Source, opponent_of, other_policy
from arena.opened import Run
from arena.plan.build import make_plan
from arena.plan.seats import check_seats
from arena.preflight.examine import interface_of
from arena.preflight.spec import spec_of
from arena.records.atomic import make_folder, writing
from arena.records.folder import RunFolder, numbered
from arena.run.console import Output
from arena.serving.policy import first_seat

if TYPE_CHECKING:
    from arena.league.human_games import RatedGame

BEST = "best"
_NO_LIMIT = 31_536_000.0  # seconds: a human may think for a year


class Player(NamedTuple):
    """Who plays a seat."""

    seat: int
    entities: tuple[str, ...]
    policy: str
    algorithm: str
    human: bool

    @property
    def name(self) -> str:
        return "you" if self.human else self.policy

    def __str__(self) -> str:
        algorithm = "" if self.human or self.algorithm == self.policy else f" ({self.algorithm})"
        return f"seat {self.seat}, {', '.join(self.entities)}: {self.name}{algorithm}"


class HumanMatch(NamedTuple):
    """A match in which a human plays."""

    config: Config  # of one match in one lane
    interface: Interface  # of its game
    players: list[Player]  # by seat


class MatchOutput(Output, ABC):
    """What people see of a match besides their turns.

    Attributes:
        algorithm: in the seats of people, made as `arena.cli.play.human.Human`.
        modes: the render modes of pictures that it shows, the best one first.
        on_pages: then the records of a match with a run's policies are kept although it is not rated, and opponents are
            asked about the moves of people.
    """

    algorithm: str
    modes: Sequence[str]
    on_pages = False

    @abstractmethod
    def begin(self, game: HumanMatch) -> None:
        """Says who plays."""

    @abstractmethod
    def end(self, game: HumanMatch, records: RunFolder, rated: str, *, kept: bool) -> None:
        """Says who has won; `rated`: how the rating went; `kept`: whether the records stay."""


def as_adviser(name: str, policy: Policy, config: Config) -> dict[str, Any]:
    """A policy for the option `advice` or `judges`, with the entities of its `team` in a run of the configuration."""
    found = {"name": name, "algorithm": policy.algorithm, "options": dict(policy.options), "load": policy.load}
    team, own = 1, policy_of_player(name, config)
    if spec_of(registry.algorithm(policy.algorithm)).checks_team:
        if own is None:
            raise ConfigError(f"{name!r} learns as a team of another run: choose a policy of this one", path="--advice")
        team = first_seat(config, own).team
    return {**found, "team": team}


def places_in_team(policies: Sequence[str]) -> list[int]:
    """For each entity, in the order of seats, its place among those of its policy."""
    return [policies[:entity].count(policy) for entity, policy in enumerate(policies)]


def best_player(config: Config, folder: RunFolder | None, seat: int) -> str:
    """The player of a run with the highest rating among those that play this seat in some match."""
    if folder is None:
        raise ConfigError("a configuration has no ratings; name a run folder, or a policy", path="--against")
    suited = {name for name, seats in seats_by_policy(config).items() if seat in seats}
    rows = sorted(Run(folder.path).standings(), key=lambda row: -row["elo"])
    known: list[str] = [row["player"] for row in rows if policy_of_player(row["player"], config) in suited]
    if not known:
        raise ConfigError(f"no player of seat {seat} has a rating in this run; name a policy", path="--against")
    return known[0]


def opponents(
    config: Config, source: Source, entry: Match, seats: Sequence[int], against: Sequence[str]
) -> dict[int, tuple[str, Policy]]:
    """The name and policy that take other seats than `seats`: `POLICY` for all of them, `SEAT=POLICY` for one.

    `POLICY` is a policy, `blue@5000`, one of another run as `runs/a:blue@best`, an algorithm such as `random`, or
    `best`, the highest rated of a run.
    """
    others = [seat for seat in range(len(entry.seats)) if seat not in seats]
    chosen: dict[int, str] = {}
    for text in sorted(against, key=lambda one: "=" in one):  # one for all first
        number, equals, name = text.rpartition("=")
        if equals and number not in map(str, others):
            raise ConfigError(f"{number!r} is no other seat; they are {', '.join(map(str, others))}", path="--against")
        if not others:
            raise ConfigError("all seats are yours", path="--against")
        chosen |= dict.fromkeys([int(number)] if equals else others, name)
    found = {}
    for seat, name in chosen.items():
        if name == BEST and name not in config.policies:
            name = best_player(config, source.folder, seat)
        label = name
        if name not in config.policies and (":" in name or "@" not in name):  # not of this run
            label = re.sub("[:@/]", "-", name.rpartition(":")[2])
            label = next(one for one in numbered(label) if one not in config.policies)
        found[seat] = label, opponent_of(config, source, name)
    return found


def human_match(
    config: Config,
    source: Source,
    output: MatchOutput,
    *,
    match: int,
    seats: Sequence[int],
    against: Sequence[str],
    advice: str | None,
    options: Mapping[str, Any],
) -> HumanMatch:
    """The match of a frozen configuration, of a source, in which people have some seats; its game is made once."""
    entries = [entry for _, entry in config.entries()]
    if match >= len(entries):
        raise ConfigError(f"got {match}, but there are {len(entries)} matches; they count from 0", path="--match")
    entry = entries[match]
    for seat in seats:
        if seat >= len(entry.seats):
            raise ConfigError(
                f"got {seat}, but match {match} has {pluralize(len(entry.seats), 'seat')}; they count from 0",
                path="--seat",
            )
    chosen = opponents(config, source, entry, seats, against)
    policies = {**config.policies, **dict(chosen.values())}
    human = next(one for one in numbered("human") if one not in policies)
    taken = tuple(
        reseated(seat, human if place in seats else chosen[place][0] if place in chosen else policy_of(seat))
        for place, seat in enumerate(entry.seats)
    )
    alone: Match = msgspec.structs.replace(entry, seats=taken, lanes=1, copies=1, pipeline=1, env_kwargs={})
    policies = {name: policies[name] for name in dict.fromkeys(map(policy_of, taken)) if name != human}
    env = config.envs[entry.env]
    wrappers = [[name, argument] for name, argument in env.wrapped_in]
    kwargs = {"make": env.make, "kwargs": {**env.kwargs, **entry.env_kwargs}, "wrappers": wrappers}
    kwargs["modes"] = [*output.modes]
    shown = msgspec.structs.replace(env, make="arena.cli.play.shown_game:RenderedGame", kwargs=kwargs, wrappers=())
    options = {"seats": {}, "labels": {}, **options}
    if advice is not None:
        adviser = config.policies.get(advice) or other_policy(source, advice, path="--advice")
        if adviser is None:
            raise ConfigError(f"there is no player {advice!r}; {nearest(advice, config.policies)}", path="--advice")
        options["advice"] = as_adviser(advice, adviser, source.config)
        configured(advice, options["advice"])
    if output.on_pages:
        seats_of = seats_by_policy(config)
        options["judges"] = [
            {**as_adviser(name, policy, source.config), "seats": sorted(known)}
            for name, policy in policies.items()
            if policy.algorithm != "random" and (known := seats_of.get(policy_of_player(name, config) or ""))
        ]
    player = Policy(algorithm=output.algorithm, options=options)
    played = msgspec.structs.replace(
        config,
        policies={**policies, human: player},
        matches=(alone,),
        envs={entry.env: shown},
        watchdog_s=_NO_LIMIT,
        env_timeout_s=None,
    )
    plan = make_plan(played).matches[0]
    interface = interface_of(plan)
    players: list[Player] = []
    mine: dict[str, int] = {}
    seated: dict[str, str] = {}  # by entity the policy that has its seat in the run
    for number, (place, entities) in enumerate(zip(plan.seats, check_seats(plan, interface), strict=True)):
        names = tuple(interface.entities[entity] for entity in entities)
        kind = played.policies[place.policy].algorithm
        players.append(Player(number, names, place.policy, kind, place.policy == human))
        mine |= dict.fromkeys(names, number) if place.policy == human else {}
        seated |= dict.fromkeys(names, policy_of(entry.seats[number]))
    labels = {name: msgspec.to_builtins(interface.labels_of(interface.entities.index(name))) for name in mine}
    places = dict(zip(seated, places_in_team([*seated.values()]), strict=True))
    player = msgspec.structs.replace(player, options={**options, "seats": mine, "labels": labels, "places": places})
    return HumanMatch(msgspec.structs.replace(played, policies={**policies, human: player}), interface, players)


def rated_game(folder: RunFolder | None, config: Config, game: HumanMatch) -> RatedGame:
    """The game as one that is going to be rated in the run of a folder; ConfigError: it cannot be."""
    from arena.league.human_games import RatedGame  # imports scipy

    if folder is None:
        raise ConfigError("a configuration has no standings; name a run folder", path="--rated")
    others = [player.policy for player in game.players if not player.human]
    return RatedGame(folder, config, people=len(game.players) - len(others), opponents=others)


def place_for_records(folder: RunFolder) -> Path:
    """Makes the folder of the next game of a person against policies of a run; several may begin at once."""
    home = folder.path / "evaluations"
    make_folder(home)
    for number in count(1):
        with writing(home), suppress(FileExistsError):
            (path := home / f"human-{number:04d}").mkdir(mode=0o700)
            break
    return path
