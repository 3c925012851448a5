"""The keys of a configuration: types and ranges are declared on structs, one documented line per field.

The keys of matches are in `matches`, those of leagues in `league`. `load` reads a file into these structs, `decode`
walks the data and the structs together, and `check` refuses contradictions between fields.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from arena.config.fields import (
    ONLY_ACT,
    AnyOptions,
    ClassTarget,
    Color,
    Count,
    Keys,
    ListOf,
    MapOf,
    Natural,
    OutcomeRule,
    Seconds,
    Target,
    Text,
)
from arena.config.league import League
from arena.config.matches import GeneratorEntry, Match, MatchSeats, SeatEntry
from arena.config.result_keys import StopRule, stop_rules

WrapperEntry: TypeAlias = Target | MapOf[Any]
Entries = ListOf[Match | GeneratorEntry]
Schedule = Count | ListOf[Entries]


class TickRules(Keys, frozen=True, kw_only=True):
    """When external games form a tick, and when they are given up."""

    max_delay_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.002
    """a tick is formed so long after the first request"""
    min_asking: Count = 1
    """games that ask before a tick is formed sooner, at most the match's lanes"""
    idle_s: Seconds = 60.0
    """a game that owes a request is lost after so long without a word"""
    answer_s: Seconds = 30.0
    """a request that has no answer after so long ends its game"""
    idle_tick_s: Seconds | None = None
    """when nothing happens for so long, an empty tick is played; null: none is"""
    close_s: Seconds = 5.0
    """as long as games may take to leave at the end"""


class Env(Keys, frozen=True, kw_only=True):
    """One entry of `envs`."""

    make: Target
    """short name | gymnasium:ID, also gymnasium_vec, pettingzoo, envpool | package.module:callable"""
    kwargs: MapOf[Any] = {}
    """given to the environment when it is made"""
    wrappers: ListOf[WrapperEntry] = ()
    """around it, the innermost first: a name, or {name: its arguments}"""
    idle_action: Any = None
    """the action of an entity that no seat plays; null: the space's no-op"""
    screen: Literal["xvfb"] | None = None
    """a virtual one, for a game that opens windows; null: none"""
    outcome: OutcomeRule | None = None
    """who has won; null: as the game declares, or no side"""
    external: TickRules | None = None
    """only of external games, which ask for actions; null: the defaults"""

    @property
    def wrapped_in(self) -> tuple[tuple[str, Any], ...]:
        """Name and argument of each wrapper; None where it has none."""
        return tuple((item, None) if isinstance(item, str) else next(iter(item.items())) for item in self.wrappers)


class Policy(Keys, frozen=True, kw_only=True):
    """One entry of `policies`."""

    algorithm: Target
    """short name | package.module:Class"""
    options: AnyOptions = {}
    """of the algorithm"""
    color: Color | None = None
    """in displays and diagrams, as "#rrggbb" in quotes"""
    frozen: bool = False
    """plays, does not learn"""
    load: Text | None = None
    """checkpoint to begin with: RUN:POLICY@TICK, a run or a file, relative to the current directory"""
    sync: Literal["gradients", "samples"] = "gradients"
    """what the workers of the policy pool"""
    max_lag: Natural = 0
    """updates that a worker may be ahead, with sync: samples; 0: all wait for each other"""
    independent: bool = False
    """each worker learns alone, as a policy of its own: blue#0, blue#1, ..."""

    @property
    def learns(self) -> bool:
        """Whether its play changes from round to round."""
        return not self.frozen and self.algorithm not in ONLY_ACT


class Evaluation(MatchSeats, frozen=True, kw_only=True):
    """How the policies are evaluated while they learn: frozen copies of them play matches of their own."""

    every: Count
    """ticks; a multiple of checkpoint_every"""
    episodes: Natural = 20
    """at least so many of each policy; every lane plays the same number; 0: `function` alone"""
    seats: ListOf[SeatEntry] | None = None
    """who plays; null: as in each match"""
    env_kwargs: MapOf[Any] = {}
    """over the arguments of each match's game, such as another map"""
    greedy: bool = True
    """the most likely action rather than a sampled one"""
    function: Target | None = None
    """package.module:function, called with each evaluation; null: none"""
    options: MapOf[Any] = {}
    """given to the function"""


class Results(Keys, frozen=True, kw_only=True):
    """When a line of numbers about the run is written to `result.json`."""

    every: Count | None = None
    """ticks; a divisor or a multiple of checkpoint_every; null: about a fiftieth of the run"""
    smoothing: Count = 100
    """episodes of which the means of a result are, at least, if there were so many"""


class Best(Keys, frozen=True, kw_only=True):
    """Which checkpoints are kept as the best ones."""

    metric: Text
    """key of a result, such as policy_reward_mean/blue"""
    mode: Literal["max", "min"] = "max"
    """whether the highest or the lowest value is the best"""

    def is_better(self, value: float, before: float) -> bool:
        """Whether a value is better than an earlier one; equal values are not."""
        return value > before if self.mode == "max" else value < before


class CallbackEntry(Keys, frozen=True, kw_only=True):
    """One entry of `callbacks` or `loggers` that has options, or a curriculum."""

    class_: Target = msgspec.field(name="class")
    """package.module:Class"""
    options: MapOf[Any] = {}
    """given to the class when it is made"""

    @classmethod
    def of(cls, entry: ClassTarget | CallbackEntry) -> CallbackEntry:
        """An entry that may be the name of the class alone."""
        return entry if isinstance(entry, CallbackEntry) else cls(class_=entry)


class Config(Keys, frozen=True, kw_only=True):
    """A whole configuration.

    `to_yaml` writes its file, and `msgspec.structs.replace` makes another one with other keys. All other methods and
    properties are the arena's own, and may change.
    """

    name: str
    """of the run and its folder"""
    seed: Natural = 0
    """all random streams derive from it"""
    ticks: Count
    """of every match"""
    rounds: Schedule = 1
    """plans of matches in a row; or a list of these"""
    envs: MapOf[Env]
    """by name"""
    policies: MapOf[Policy]
    """by name"""
    matches: Entries | None = None
    """what is played; left out where `rounds` lists it"""
    league: League | None = None
    """what happens between two rounds; null: the defaults of its keys"""
    scale: bool = False
    """repeat all matches until the ranks are used up"""
    ranks: Literal["auto", "one_per_role"] | Count = "auto"
    """processes that `arena train` starts; auto: one per core"""
    checkpoint_every: Count = 10_000
    """ticks from one boundary to the next: everything is saved, and can go on from it"""
    results: Results = Results()
    """lines of numbers in result.json, one per iteration"""
    stop: MapOf[Any] = {}
    """ends the run when a result meets any of them: key of a result to a number, or at_most"""
    best: Best | None = None
    """keeps the checkpoints of the boundary with the best result; null: none"""
    curriculum: CallbackEntry | None = None
    """changes between two legs; null: none"""
    evaluation: Evaluation | None = None
    """while they learn; null: none"""
    imports: ListOf[Text] = ()
    """modules that every process imports before names are looked up: they register some"""
    callbacks: ListOf[ClassTarget | CallbackEntry] = ()
    """classes whose methods are called; or package.module:Class"""
    loggers: ListOf[ClassTarget | CallbackEntry] = ("csv", "tensorboard")
    """where results go beside result.json"""
    record: Literal["nothing", "samples", "replays"] = "nothing"
    """of all that is played: columns, or what replays it"""
    transport: Literal["auto", "mpi"] = "auto"
    """auto: shared memory within a node; mpi: MPI messages everywhere"""
    watchdog_s: Seconds = 60.0
    """when nothing has moved for so long, the run ends and says who waits for what"""
    env_timeout_s: Seconds | None = None
    """as long as one call of a game or an algorithm may take; null: watchdog_s"""
    on_env_error: Literal["stop", "restart"] = "stop"
    """restart: create a game that fails again, drop its episodes"""
    restarts: Natural = 4
    """times per leg that a run whose process died is started again from its newest boundary"""

    def to_yaml(self) -> str:
        """The contents of a YAML file, with every default written out.

        Raises:
            ConfigError: anything that is wrong.
        """
        reading = import_module("arena.config.load")  # which imports this module
        text: str = reading.resolved_yaml(reading.parse_config(self, source=""))
        return text

    @property
    def round_count(self) -> int:
        """The number of rounds."""
        return self.rounds if isinstance(self.rounds, int) else len(self.rounds)

    @property
    def call_limit(self) -> float:
        """The seconds that one call of a game or an algorithm may take."""
        return self.env_timeout_s or self.watchdog_s

    @property
    def call_limit_text(self) -> str:
        """What the limit is, and the key that changes it."""
        key = "watchdog_s" if self.env_timeout_s is None else "env_timeout_s"
        return f"one call of a game or an algorithm may take {self.call_limit:g} s; `{key}` can give it more"

    @property
    def listed(self) -> ListOf[Entries]:
        """The entries of each round where `rounds` lists them, else `matches` alone."""
        return (self.matches or (),) if isinstance(self.rounds, int) else self.rounds

    @property
    def roles(self) -> int:
        """Environments and workers of the round that has the most, without the root and without repetitions."""
        return max(sum(entry.roles for entry in entries) for entries in self.listed)

    @property
    def stop_rules(self) -> tuple[StopRule, ...]:
        """The rules of `stop`."""
        return stop_rules(self.stop)

    @property
    def result_keys(self) -> dict[str, str]:
        """The keys of results that `stop` and `best` name, by place."""
        best = {} if self.best is None else {"best.metric": self.best.metric}
        return {f"stop.{rule.key}": rule.key for rule in self.stop_rules} | best

    def games_alone(self) -> Config:
        """The same games and policies, without what only a training run has: its listeners and evaluations."""
        nothing = dict.fromkeys(("evaluation", "best", "curriculum"))
        loggers = tuple(entry for entry in self.loggers if entry == "tensorboard")
        return msgspec.structs.replace(self, callbacks=(), loggers=loggers, results=Results(), stop={}, **nothing)

    def entries(self, number: int = 0) -> tuple[tuple[str, Match], ...]:
        """Every match description of the first round, or of one that `rounds` lists, with its place."""
        learns = self.learners
        return tuple((path, match) for path, entry in self.places_of(number) for match in entry.matches(learns=learns))

    def known_matches(self) -> tuple[tuple[str, Match], ...]:
        """The match descriptions of all rounds that follow from the configuration alone, with their places."""
        return tuple(placed for number in range(len(self.listed)) for placed in self.entries(number))

    @property
    def learners(self) -> frozenset[str]:
        """The policies that learn."""
        return frozenset(name for name, policy in self.policies.items() if policy.learns)

    def places(self) -> tuple[tuple[str, Match | GeneratorEntry], ...]:
        """All items of `matches`, or of the listed `rounds`, with their places, as `matches[1].round_robin`."""
        return tuple(placed for number in range(len(self.listed)) for placed in self.places_of(number))

    def places_of(self, number: int) -> tuple[tuple[str, Match | GeneratorEntry], ...]:
        """The items of a round with their places; without a list of rounds all have the items of `matches`."""
        listed = not isinstance(self.rounds, int)
        place, entries = (f"rounds[{number}]", self.listed[number]) if listed else ("matches", self.matches or ())
        return tuple(
            (f"{place}[{index}]" if isinstance(entry, Match) else f"{place}[{index}].{entry.kind}", entry)
            for index, entry in enumerate(entries)
        )
