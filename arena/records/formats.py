"""The files of a run folder: one struct for each line or document, which its writer and all its readers import.

The keys of two journals are open: metrics.jsonl has whatever an algorithm logs; what faults.jsonl has depends on the
kind of the fault and is written and read in `arena.records.faults` alone. Replays and samples have
`arena.replay.format` and `arena.dataset.format`.

Keys stand in a file in the order of the fields. Readers ignore keys that they do not know; a field with a default may
be missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from arena.config.fields import OutcomeRule
from arena.config.league import Elo, Half
from arena.config.matches import Match
from arena.errors import ConfigError, parser_text, percent, pluralize
from arena.plan.plan import Plan, RoleKind
from arena.records import checkpoint, checksums
from arena.records.atomic import regular
from arena.records.folder import RunFolder
from arena.records.metrics import UPDATE_FIELDS, Count, Ticks, UpdateRecord
from arena.records.outcome import Outcome

S = TypeVar("S")
G = TypeVar("G")


def document_text(document: PlanFile | ProfileFile | ExploitabilityFile | ModelFile | ExportReport) -> str:
    """The document as its file holds it: indented."""
    return json.dumps(msgspec.to_builtins(document), indent=2)


def write_document(path: Path, document: PlanFile | ProfileFile | ExploitabilityFile) -> None:
    """Writes a document atomically."""
    checksums.replace(path, document_text(document).encode() + b"\n")


def read_document(path: Path, kind: type[S]) -> S:
    """Reads a document of this form.

    Raises:
        ConfigError: the file cannot be read, is damaged, or is of another version of the arena.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            return msgspec.json.decode(file.read(), type=kind)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except (ValueError, RecursionError) as error:
        reason = f"is damaged, or of another version of the arena: {parser_text(error)}"
        raise ConfigError(reason, source=str(path)) from error


def digest_of(document: Boundary) -> str:
    """The SHA-256 of all fields of a document but its `sha256`, in the form in which they are read."""
    fields = msgspec.json.encode(msgspec.structs.replace(document, sha256=""))
    return hashlib.sha256(msgspec.json.encode(msgspec.json.decode(fields, type=Boundary))).hexdigest()


def update_line(record: UpdateRecord) -> dict[str, Any]:
    """The line of `metrics.jsonl`: the fixed fields first, then what the algorithm logged."""
    return {**{name: getattr(record, name) for name in UPDATE_FIELDS}, **record.values}


def update_of(line: Mapping[str, Any]) -> UpdateRecord:
    """The record that a line of `metrics.jsonl` was written from; values that are no numbers (null) are left out.

    Raises:
        msgspec.ValidationError: a fixed field is missing or of another type.
    """
    values = {
        name: value
        for name, value in line.items()
        if name not in UPDATE_FIELDS and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return msgspec.convert({**line, "values": values}, UpdateRecord)


class BestFile(msgspec.Struct, frozen=True):
    """`best.json`: the boundary with the best result so far."""

    tick: Ticks
    metric: str  # the name of the number by which it is the best
    value: float
    policies: tuple[str, ...] = ()  # whose checkpoints of the boundary are kept; () in files of older arenas


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """`changes.jsonl`: what a curriculum has changed at a boundary: values by key path; {} if nothing."""

    tick: Ticks
    set: dict[str, Any]


class ResumeLine(msgspec.Struct, frozen=True, kw_only=True):
    """`resumes.jsonl`: a value of the configuration that a resume from this tick has changed, as JSON."""

    tick: Ticks
    key: str
    was: str
    now: str


class MeasureLine(msgspec.Struct, frozen=True, kw_only=True):
    """`measures.jsonl`: measured by a callback: of an episode, or, without `match`, in the iteration of the tick."""

    tick: Ticks
    match: Count | msgspec.UnsetType = msgspec.UNSET
    lane: Count | msgspec.UnsetType = msgspec.UNSET
    episode: Ticks | msgspec.UnsetType = msgspec.UNSET
    metrics: dict[str, float]


class EvaluationLine(msgspec.Struct, frozen=True, kw_only=True):
    """`evaluations.jsonl`: how a policy did in an evaluation."""

    ticks: int
    policy: str
    episodes: int
    return_: float | None = msgspec.field(name="return")
    return_std: float | None
    length: float | None
    games: int | None = None  # that had a winner or were drawn; the following are shares of them
    wins: float | None = None
    draws: float | None = None
    losses: float | None = None


class HumanGameLine(msgspec.Struct, frozen=True, kw_only=True):
    """`human_games.jsonl`: a game of a person against players of the run, which counts for their ratings."""

    tick: Ticks  # of the run, at which the others had their weights
    first: tuple[str, ...]  # the players of the first side
    second: tuple[str, ...]
    outcome: Outcome  # for the first side
    folder: str  # of its records, in `evaluations`


class RoundExploitability(msgspec.Struct, frozen=True):
    """Of the mean strategies of a league when a round begins, in the game's units."""

    round: int
    tick: int
    players: int  # with a weight
    exploitability: float  # NashConv divided by the number of entities
    nash_conv: float


class ExploitabilityFile(msgspec.Struct, frozen=True):
    """`exploitability.json`: what `arena exploit --exact` has computed of a league."""

    rounds: tuple[RoundExploitability, ...]


class ExternalPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """`external.json`: where the external games of a match connect."""

    match: int
    copy: int
    kind: str  # thread, poll, http, ...
    address: str  # empty where games need none
    pid: int  # of the environment's process
    host: str
    slots: int
    files: list[str] = []  # of simulators: the first file of each, for `arena inspect`


class Waits(msgspec.Struct, frozen=True):
    """Times from a request to its answer, in milliseconds."""

    p50: float
    p99: float
    max: float


class LinkLine(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the link to one external simulator since the games were opened."""

    simulator: int  # its number in the match
    handovers: int
    changes: int  # of the file
    bytes_read: int
    bytes_written: int
    simulator_s: float  # seconds in which the simulator had the turn
    arena_s: float  # seconds in which the arena had it
    starts: int  # of the program
    lost: int  # agents whose games ended without a row with `done`
    never_asked: int  # rows that ended a life that had not begun
    max_step_without_done: int  # rows with `max_step` but without `done`
    first_rewards: int  # rewards that belong to no action, in first rows
    unknown_messages: int  # of side channels that are not known


class GamesLine(msgspec.Struct, frozen=True, kw_only=True):
    """`games.jsonl`: counts of the external games of a match since the run began or was resumed.

    At all times `begun = ended + lost + held`.
    """

    match: int
    tick: int
    seconds: float  # since the games were opened
    held: int  # games that are being played; in the last line, those that the end of the run drops
    begun: int
    ended: int
    lost: int  # games that ended without reporting it
    lost_by: dict[str, int] = {}  # the same by reason, as in `episodes.jsonl`; empty in lines of earlier versions
    refused: int  # requests that got an error; over HTTP, answers other than 200
    refused_by: dict[str, int] = {}  # the same by code; empty in lines of earlier versions
    asks: int
    given: int
    void: int
    ticks: int  # that were formed, empty ones included
    empty_ticks: int
    asking: int = 0
    rows_per_tick: float  # requests and given actions, in the mean over the ticks
    wait_ms: Waits | None = None  # of the requests since the last line; None: there were none
    links: list[LinkLine] | msgspec.UnsetType = msgspec.UNSET  # of external simulators, one for each
    reported: dict[str, dict[str, float]] | msgspec.UnsetType = msgspec.UNSET
    """Of external simulators by number, what they have reported since the last line, by key."""

    def text(self, slots: int) -> str:
        """The line about the games in the display of a run and in `arena watch`."""
        share = self.asking / max(1, self.ticks) / slots
        text = (
            f"games of match {self.match}: {self.held} of {slots} slots, {self.begun} begun and "
            f"{lost_and_refused(self.lost, self.lost_by, self.refused_by)} since the last start; "
            f"{percent(share)} of the slots ask per tick"
        )
        if isinstance(self.links, list) and self.seconds:
            handovers = sum(link.handovers for link in self.links) / self.seconds
            text += f"; {handovers:,.0f} hand-overs/s, {self.begun / self.seconds:,.0f} lives/s"
        return text


def lost_and_refused(lost: int, lost_by: Mapping[str, int], refused_by: Mapping[str, int]) -> str:
    """How many games were lost and why: `3 lost (2 expired, 1 timeout)`; then, if there are any, refused requests."""

    def with_reasons(text: str, reasons: Mapping[str, int]) -> str:
        each = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
        return f"{text} ({each})" if each else text

    found, refused = with_reasons(f"{lost} lost", lost_by), sum(refused_by.values())
    return f"{found}, {with_reasons(pluralize(refused, 'refused request'), refused_by)}" if refused else found


class PlannedSeat(msgspec.Struct, frozen=True):
    """A seat of a match, in `plan.json` and in `rounds.jsonl`."""

    policy: str
    entities: tuple[int | str, ...] = ()


class PlannedMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A match of a round, as the plan numbers it; in `plan.json` and in `rounds.jsonl`."""

    match: int
    env: str
    env_kwargs: dict[str, Any] = {}
    lanes: int = 1
    seats: tuple[PlannedSeat, ...]
    sides: tuple[tuple[int, ...], ...] | None = None  # None: written by another version of the arena
    external: str | msgspec.UnsetType = msgspec.UNSET  # how external games come in; ordinary matches lack it
    outcome: OutcomeRule | msgspec.UnsetType = msgspec.UNSET  # who wins; missing in `rounds.jsonl`, or without a rule

    @property
    def players(self) -> tuple[str, ...]:
        """The policies in its seats."""
        return tuple(seat.policy for seat in self.seats)


class PlannedRole(msgspec.Struct, frozen=True):
    """A role of a rank."""

    role: str
    match: int | None = None
    policy: str | None = None
    entities: tuple[int | str, ...] = ()


class PlannedRank(msgspec.Struct, frozen=True):
    """A rank with its roles."""

    rank: int
    roles: tuple[PlannedRole, ...] = ()


class PlanFile(msgspec.Struct, frozen=True):
    """`plan.json`."""

    name: str
    processes: int
    matches: tuple[PlannedMatch, ...]
    ranks: tuple[PlannedRank, ...]

    def __post_init__(self) -> None:
        if [match.match for match in self.matches] != list(range(len(self.matches))):
            raise ValueError("the matches are not numbered one after the other")
        seats = {(match.match, seat.policy, seat.entities) for match in self.matches for seat in match.seats}
        for role in (role for rank in self.ranks for role in rank.roles if role.match is not None):
            if role.match not in range(len(self.matches)):
                raise ValueError(f"there is no match {role.match}, of which a rank hosts a role")
            if role.role != "environment" and (role.match, role.policy, role.entities) not in seats:
                raise ValueError(f"match {role.match} has no seat of {role.policy!r} for {list(role.entities)}")


def rules_of(folder: RunFolder) -> dict[str, OutcomeRule]:
    """By game of `plan.json` with several seats, its rule of winners; empty where the file is missing.

    Games in shared memory have no winners: each is the life of one entity.
    """
    matches = read_document(folder.plan, PlanFile).matches if folder.plan.exists() else ()
    rated = (match for match in matches if match.external != "shared_memory" and len(match.sides or ()) > 1)
    return {match.env: match.outcome for match in rated if match.outcome}


def plan_file(
    plan: Plan, external: Mapping[int, str] | None = None, rules: Mapping[int, OutcomeRule | None] | None = None
) -> PlanFile:
    """What `plan.json` holds of a plan; by match, `external` says how external games come in, `rules` who wins."""
    matches = tuple(
        PlannedMatch(
            match=match.match,
            env=match.env,
            env_kwargs=dict(match.game.kwargs),
            lanes=match.lanes,
            seats=tuple(PlannedSeat(seat.policy, seat.entities) for seat in match.seats),
            sides=match.sides,
            external=(external or {}).get(match.match, msgspec.UNSET),
            outcome=(rules or {}).get(match.match) or msgspec.UNSET,
        )
        for match in plan.matches
    )
    ranks = []
    for rank, roles in enumerate(plan.ranks):
        planned = []
        for role in roles:
            seat = plan.seat(role) if role.kind is RoleKind.WORKER else None
            of_seat = () if seat is None else (seat.policy, seat.entities)
            planned.append(PlannedRole(role.kind.value, role.match, *of_seat))
        ranks.append(PlannedRank(rank, tuple(planned)))
    return PlanFile(plan.config.name, plan.processes, matches, tuple(ranks))


ROUNDS_VERSION = 1


class Player(msgspec.Struct, frozen=True):
    """A snapshot that plays: whose it is, and of which tick."""

    policy: str
    tick: int


class Fork(msgspec.Struct, frozen=True):
    """A policy has become a copy of another one, with other options."""

    source: str = msgspec.field(name="from")
    options: dict[str, Any] = {}  # those that were perturbed


class GateRecord(msgspec.Struct, frozen=True):
    """The result of a sequential test of a policy against its newest snapshot."""

    policy: str
    against: str
    verdict: str  # better | not_better | open
    llr: float  # log of the likelihood ratio, in nats
    games: int  # that it uses: equally many from each side


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """`rounds.jsonl`: one plan of matches of a league, written before it is played, and what happened before it."""

    version: int = ROUNDS_VERSION
    number: int = msgspec.field(name="round")
    start: int  # tick at which it begins
    planned: tuple[PlannedMatch, ...] = msgspec.field(default=(), name="matches")  # (): not planned yet
    players: dict[str, Player] = {}  # the snapshots that play, by name
    snapshots: tuple[str, ...] = ()  # that join
    dropped: tuple[str, ...] = ()  # that leave, for good
    forks: dict[str, Fork] = {}  # by policy
    resets: tuple[str, ...] = ()  # policies that start over
    gates: tuple[GateRecord, ...] = ()
    options: dict[str, dict[str, Any]] = {}  # of policies and snapshots that have others than the configuration says
    pairings: dict[str, tuple[tuple[str, ...], ...]] = {}  # of knockouts and Swiss, by their places; one alone: a bye
    equilibria: dict[
        str, tuple[dict[str, float], ...]
    ] = {}  # by place of a rule `nash`: the mixture of each population
    places: tuple[str, ...] = ()  # of the entry of the configuration that each match is made from; (): not known
    proposed_by: str = ""  # the callback that has proposed the matches; empty: the configuration says who meets whom
    # As the configuration describes them, from which the plan is made again; (): written by another version.
    matches: tuple[Match, ...] = msgspec.field(default=(), name="descriptions")

    def described(self, games: Mapping[int, G]) -> Iterator[tuple[Match, G]]:
        """The games of each match, with what the match was made of; its copies, and `scale: true`, repeat that."""
        copies = [match for match in self.matches for _ in range(match.copies)]
        return ((copies[number % len(copies)], found) for number, found in games.items())


def round_of(line: Mapping[str, Any]) -> Round:
    """The line of `rounds.jsonl` that this object is.

    Raises:
        ValueError: it is of another version, or a field is missing or of another type.
    """
    if line["version"] != ROUNDS_VERSION:
        raise ValueError(f"has a line of version {line['version']!r}, this arena reads {ROUNDS_VERSION}")
    return msgspec.convert(line, Round)


class ProfiledRole(msgspec.Struct, frozen=True, kw_only=True):
    """A role's time in seconds, as a whole, of the processor, and by activity."""

    rank: int
    role: str
    match: int | None = None
    policy: str | None = None
    wall: float
    cpu: float
    seconds: dict[str, float]


class ProfileFile(msgspec.Struct, frozen=True):
    """`profile.json`."""

    roles: tuple[ProfiledRole, ...] = ()


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """`tournament.json`: how a tournament is played and when it is over, which is in no configuration."""

    version: Literal[1] = 1
    greedy: bool  # whether players take their best actions
    error: Half | None = None
    """How probable it may be that some two players are in the wrong order; None: written by an older arena."""
    elo: Elo | None = None  # the difference that the games are to resolve; None likewise


BOUNDARY_VERSION = 3  # 1 had neither `files` nor `sha256`; 2 had the own state of each worker in a file

Worker = tuple[int, int]
"""The worker of a seat, as (match, seat)."""


class SeatKey(NamedTuple):
    """A worker's seat, and the properties with which another worker can take over its own state."""

    match: int
    seat: int
    policy: str
    game: str  # environment, its arguments, lanes, entities of the seat

    @property
    def worker(self) -> Worker:
        return self.match, self.seat


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """What a file is at a boundary: its bytes, of a journal the first ones, and their SHA-256.

    The SHA-256 of a checkpoint is the one that is written in it, over its content.
    """

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """`boundaries/*.json`: the state of a whole run at the end of a leg."""

    version: int = BOUNDARY_VERSION
    tick: int  # that all matches have played
    episodes: list[tuple[int, int, int]] = []  # match, lane, and the number of episodes on record
    updates: dict[str, int] = {}  # per policy, the number of updates that it has logged
    seconds: dict[str, float] = {}  # per policy, the `seconds` of its last update
    left: list[tuple[int, int]] = []  # the workers, as (match, seat), whose `run` has returned
    seats: list[SeatKey] = []
    """The seats of the workers, which name their own states; none: no policy learns in this round."""
    checkpoints: dict[str, int] = {}  # per policy that has checkpoints, the boundary of the one with its state
    journals: dict[str, int] = {}  # per journal, by its file's name, the number of bytes written
    files: dict[str, FileMark] = {}  # all that a run which continues from here reads, by their paths in the run folder
    sha256: str = ""  # of all other fields, so that a changed file is noticed

    def checkpoint(self, folder: RunFolder, policy: str) -> Path:
        """The path of a policy's checkpoint of this boundary."""
        return checkpoint.path_of(folder.checkpoints_path(policy), self.checkpoints[policy])


_Number = float | Literal["inf", "-inf"]  # JSON has no infinity
_Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


class _Decoding(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """How actions of this shape and dtype follow from the outputs; see `arena.serving.decoding`."""

    shape: tuple[Count, ...]
    dtype: str


class Categorical(_Decoding, frozen=True, kw_only=True, tag="categorical"):
    """A choice by its logits."""

    n: _Size
    start: int


class Values(_Decoding, frozen=True, kw_only=True, tag="values"):
    """A choice by what each is worth."""

    n: _Size
    start: int
    epsilon: Annotated[float, msgspec.Meta(ge=0, le=1)]


class MultiCategorical(_Decoding, frozen=True, kw_only=True, tag="multi_categorical"):
    """Several choices, whose logits stand side by side."""

    nvec: tuple[_Size, ...]
    start: tuple[int, ...]


class Bernoulli(_Decoding, frozen=True, kw_only=True, tag="bernoulli"):
    """Flags by their logits."""


class Gaussian(_Decoding, frozen=True, kw_only=True, tag="gaussian"):
    """Numbers by their mean; the deviations are the same for all observations."""

    low: tuple[_Number, ...]
    high: tuple[_Number, ...]
    log_std: tuple[_Number, ...]
    middle: tuple[float, ...] = ()  # the action of the number 0; empty: 0
    half_width: tuple[float, ...] = ()  # by how much the number 1 exceeds it; empty: 1


class SquashedGaussian(_Decoding, frozen=True, kw_only=True, tag="squashed_gaussian"):
    """Numbers between bounds, by means and deviations before tanh."""

    low: tuple[_Number, ...]
    high: tuple[_Number, ...]


class Deterministic(_Decoding, frozen=True, kw_only=True, tag="deterministic"):
    """Numbers between bounds, from -1 to 1."""

    low: tuple[_Number, ...]
    high: tuple[_Number, ...]


Decoding = Categorical | Values | MultiCategorical | Bernoulli | Gaussian | SquashedGaussian | Deterministic


class ModelTensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input or output of an exported network; `shape` is without the batch axis."""

    name: str
    dtype: str
    shape: tuple[Count, ...]
    path: tuple[str | int, ...] | None = None  # of the leaf of an observation that an input is
    n: _Size | None = None  # of an input that is a number from 0 to n - 1


class ModelMemory(msgspec.Struct, frozen=True):
    """What a row remembers from tick to tick."""

    size: Count


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """`models/<policy>/<tick>/model.json`: an exported network.

    All but the two sha256 is also in `model.onnx`, as its metadata `arena`.
    """

    format: Literal[1] = 1
    policy: str
    algorithm: str
    tick: Ticks
    engine: str  # which has been chosen
    run: str  # the run folder, relative to the folder of this file
    weights_sha256: str | None = None  # of the checkpoint
    onnx_sha256: str | None = None  # of model.onnx; null: there is none
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    memory: ModelMemory
    decoding: Decoding

    @property
    def metadata(self) -> dict[str, Any]:
        """What `model.onnx` has in its metadata."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if name not in ("weights_sha256", "onnx_sha256")}


class OutputFigures(msgspec.Struct, frozen=True):
    """How far an output of an engine is from the reference; the maximum over all batch sizes."""

    name: str  # of the output
    max_abs: float | None  # the greatest difference; null: not finite
    l1_relative: float | None  # the sum of differences, divided by that of the reference; null: not finite
    agreement: float | None  # share of rows with the same best choice; null: the output has no choices


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of exporting to an engine."""

    name: str  # `eager`: torch; `onnx`: ONNX Runtime
    bytes: int | None = None  # of its file; null: it has none
    seconds: float  # to make it
    verdict: Literal["ok", "mismatch", "failed"]  # compared with the reference
    reason: str = ""  # of another verdict than `ok`
    outputs: tuple[OutputFigures, ...] = ()  # how far each is from the reference
    latency_us: dict[str, float] = {}  # median of a call, by batch size


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """`models/<policy>/<tick>/report.json`: how an export was verified and timed."""

    format: Literal[1] = 1  # of the file
    policy: str  # its name
    algorithm: str  # its name
    tick: Ticks  # of the checkpoint
    torch: str  # its version
    onnxruntime: str | None  # likewise; null: it is not installed
    samples: int  # rows that the engines were verified with
    batch_sizes: tuple[int, ...]  # each row was in a batch of each size
    engines: tuple[EngineReport, ...]  # each way to compute the network
    chosen: str  # the name of the engine that the export uses
