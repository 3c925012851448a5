"""Checks a plan before the run starts: creates every environment once, and checks every algorithm on its seats.

    examine(plan)                      entities, faces, options, sizes; what `arena plan` needs. An algorithm with
                                       `from_spaces` is created once for its first seat, and loads its checkpoint
    examine(plan, later=...)           likewise the seats of later rounds and of evaluations
    examine(plan, conformance=print)   plays each environment through the checks of `arena.testing` too: `arena check`

Some checks are repeated when a run starts: an environment checks its idle action, a worker its seat's face
(`seat_face`), its group's spaces (`check_shared`) and its checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arena import registry
from arena.callbacks import made
from arena.config.schema import CallbackConfig
from arena.errors import ConfigError, GameError, located, pluralize, shown
from arena.game.api import Interface
from arena.game.spaces import as_action, check_unit_spaces
from arena.game.units import UnitActions
from arena.plan.plan import MatchPlan, Plan, PolicyPlan
from arena.plan.seats import check_seats
from arena.preflight.external import check_external
from arena.preflight.seats import (
    Learner,
    SeatSpaces,
    check_independence,
    check_shared,
    check_teams,
    learners_of,
    seat_face,
)
from arena.preflight.spec import AlgorithmSpec, spec_of

if TYPE_CHECKING:
    from pathlib import Path

    from arena.external.interface import ExternalGames
    from arena.game.api import BatchedEnv
    from arena.game.context import EnvContext
    from arena.records.checkpoint import Checkpoint

_PROBE_LANES = 1
_PATIENCE = 5.0  # seconds of the checks of an environment before a line reports them

_MOST_ROWS = 100_000  # of a seat for which an algorithm is created; more of them would need too much memory for a check


class PolicySummary(NamedTuple):
    """The findings about a policy and its seats."""

    faces: tuple[str, ...]  # of its seats, each once
    rows: tuple[int, ...]  # lanes x entities of each of its seats
    sizes: dict[str, int]  # what its algorithm derives from them, such as samples per update; may be empty
    schedule: str  # when its workers synchronize, see `arena.plan.deadlock`


@dataclass(frozen=True)
class Preflight:
    """The findings about a plan; `lines` lists what was checked."""

    interfaces: tuple[Interface, ...]  # [match]
    seats: tuple[tuple[tuple[int, ...], ...], ...]  # [match][seat]: entity indices
    policies: dict[str, PolicySummary]
    lines: tuple[str, ...]
    hints: Mapping[str, str] = field(default_factory=dict)  # by environment, what is unwise about its matches

    @property
    def schedules(self) -> dict[str, str]:
        """When the workers of each policy synchronize, see `arena.plan.deadlock`."""
        return {name: found.schedule for name, found in self.policies.items()}

    def entity_names(self, match: int, seat: int) -> tuple[str, ...]:
        """The entities of a seat by name."""
        return tuple(self.interfaces[match].entities[index] for index in self.seats[match][seat])


def examine(
    plan: Plan,
    *,
    later: Sequence[Plan] = (),
    conformance: Callable[[str], None] | None = None,
    known: dict[str, Interface] | None = None,
) -> Preflight:
    """Creates each distinct environment once, or twice to compare them, and checks seats and algorithms against it.

    Args:
        plan: of the run, or of its first round.
        later: plans with the seats of later rounds and of evaluations, see `arena.preflight.later_seats`.
        conformance: called with a line about an environment whose checks take long; None: environments are created,
            but not played through the checks of their interface.
        known: the interfaces of environments that were created for other plans, which are not created again; gets
            those of this plan.

    Raises:
        ConfigError: the first mistake, with its place in the configuration.
    """
    registry.import_plugins(plan.config.imports)
    for each in (plan, *later):
        check_external(each)
    lines: list[str] = []
    players = {name: _examine_algorithm(plan, policy, lines.append) for name, policy in plan.policies.items()}
    known = {} if known is None else known
    first = _layout(plan, known, conformance, lines.append)
    findings = {}
    for name, policy in plan.policies.items():
        player = players[name]
        faces = _check_seats(first, policy, player.cls)
        check_independence(player.cls, policy)
        rows = tuple(plan.matches[match].lanes * len(first.seats[match][seat]) for match, seat in policy.workers)
        sizes = _sizes(player, plan, policy, learners_of(player.cls, plan, policy))
        if policy.workers and player.spec.made_from_spaces:
            _try_out(first, policy, player, faces[0])
        findings[name] = PolicySummary(faces, rows, sizes, player.spec.sync_on)
    layouts = [first, *(_layout(each, known, conformance, lines.append) for each in later)]
    seated = _examine_later(layouts, players)
    for name, found in findings.items():
        takes = f"{pluralize(len(found.rows), 'seat')}, face {' and '.join(found.faces)}: can take their spaces"
        if not found.rows:
            takes = "has no seat in any match"
            if name in seated:
                takes = "has no seat in these matches, can take those of later rounds or of evaluations"
        lines.append(f"policy {name}: {takes}")
    made(plan.config.callbacks)
    for callback in map(CallbackConfig.of, plan.config.callbacks):
        lines.append(f"callback {callback.class_}: {pluralize(len(callback.options), 'option')}")
    return Preflight(first.interfaces, first.seats, findings, tuple(lines), first.hints)


class _ResolvedPolicy(NamedTuple):
    """The algorithm of a policy, and the checkpoint that it starts from."""

    cls: type[Any]
    spec: AlgorithmSpec
    options: dict[str, Any]  # in the types that the algorithm declares
    checkpoint: tuple[Path, Checkpoint] | None  # its path, and the loaded checkpoint


def _examine_algorithm(plan: Plan, policy: PolicyPlan, report: Callable[[str], None]) -> _ResolvedPolicy:
    path, config = f"policies.{policy.name}", policy.config
    cls, options = registry.configured_algorithm(
        config.algorithm, config.options, acts=plan.acts(policy), path=path, any_device=config.frozen
    )
    report(f"policy {policy.name}: algorithm {config.algorithm}, {pluralize(len(config.options), 'option')}")
    if config.load is None:
        return _ResolvedPolicy(cls, spec_of(cls), options, None)
    from arena.records import checkpoint

    with located(path=f"{path}.load"):
        found = checkpoint.find(config.load, policy.name)
        held = checkpoint.load_to_act(found)
        check_checkpoint(held, found, policy, cls)
    report(f"policy {policy.name}: begins with {shown(found)}")
    return _ResolvedPolicy(cls, spec_of(cls), options, (found, held))


def check_checkpoint(held: Checkpoint, path: Path, policy: PolicyPlan, cls: type[Any]) -> None:
    """Refuses a checkpoint that a policy's algorithm cannot load.

    Raises:
        ConfigError: it is another algorithm's, or this algorithm loads no checkpoints.
    """
    place = f"policies.{policy.name}.load"
    algorithm = policy.config.algorithm
    if held.algorithm != algorithm:
        raise ConfigError(
            f"the checkpoint {path} is of the algorithm {held.algorithm!r}, the policy uses {algorithm!r}",
            path=place,
        )
    if not spec_of(cls).loads:
        raise ConfigError(f"the algorithm {algorithm!r} has no load_state_dict()", path=place)


class _Layout(NamedTuple):
    """A plan with the interfaces of its environments and the entities of its seats."""

    plan: Plan
    interfaces: tuple[Interface, ...]  # [match]
    seats: tuple[tuple[tuple[int, ...], ...], ...]  # [match][seat]: entity indices
    hints: Mapping[str, str]  # see `Preflight`; of environments that were not known before

    def spaces(self, worker: tuple[int, int]) -> SeatSpaces:
        """Of the seat of a worker, as (match, seat)."""
        match, seat = worker
        return SeatSpaces.of(self.interfaces[match], self.seats[match][seat])


def _layout(
    plan: Plan,
    known: dict[str, Interface],
    conformance: Callable[[str], None] | None,
    report: Callable[[str], None],
) -> _Layout:
    """Creates the environments of a plan; one with the arguments of a known one is not created again."""
    hints: dict[str, str] = {}
    for match in plan.matches:
        key = _likeness(match)
        if key not in known:
            known[key], breaches, hint = _examine_environment(match, conformance)
            policies = [plan.policies[seat.policy].config for seat in match.seats]
            normalized = all(not one.learns or one.options.get("normalize_observations") for one in policies)
            if hint and (registry.external_kind(match.game.make) is not None or not normalized):
                hints[match.env] = hint
            entities = known[key].entities
            kwargs = f" with {match.game.kwargs}" if match.game.kwargs else ""
            keeps = ", keeps the interface" if conformance is not None and not breaches else ""
            report(
                f"environment {match.env} ({match.game.make}){kwargs}{wrapped_words(match)}: "
                f"{pluralize(len(entities), 'entity', 'entities')}: {', '.join(entities)}{keeps}"
            )
            for breach in breaches:
                report(f"warning: environment {match.env}: {breach}")
    interfaces = tuple(known[_likeness(match)] for match in plan.matches)
    seats = tuple(check_seats(match, interface) for match, interface in zip(plan.matches, interfaces, strict=True))
    return _Layout(plan, interfaces, seats, hints)


def _likeness(match: MatchPlan) -> str:
    return json.dumps([match.game.make, match.game.kwargs, match.game.wrapped_in, match.game.idle_action], default=repr)


def _examine_environment(
    match: MatchPlan, conformance: Callable[[str], None] | None
) -> tuple[Interface, Sequence[str], str]:
    """An environment's interface, the breaches of the contract that do not prevent a run, and what is unwise."""
    if registry.external_kind(match.game.make) is not None:
        games = _examined_games(match, opens=conformance is not None)
        return games.interface, (), games.hint(match.lanes) if hasattr(games, "hint") else ""
    if conformance is None:
        return interface_of(match), (), ""
    with (
        _reported_while_slow(f"environment {match.env}: still being made and checked", conformance),
        closing(make_game(match, _PROBE_LANES)) as game,
        closing(make_game(match, _PROBE_LANES)) as again,
    ):
        breaches, advice = _check_conformance(game, again, match)
        check_idle_action(match, game.interface)
        return game.interface, breaches, "\n".join(f"warning: environment {match.env}: {line}" for line in advice)


def interface_of(match: MatchPlan) -> Interface:
    """The interface of a match's games, which are made once.

    Raises:
        ConfigError: they cannot be made, or the match's `idle_action` is not theirs.
    """
    if registry.external_kind(match.game.make) is not None:
        return _examined_games(match, opens=False).interface
    with closing(make_game(match, _PROBE_LANES)) as game:
        check_idle_action(match, game.interface)
        return game.interface


def _examined_games(match: MatchPlan, *, opens: bool) -> ExternalGames:
    """The external games of a match, closed again; with `opens` they were opened, and tried out if they support it."""
    from arena.external.connection import wait_for_start  # imported where games are external

    with constructor_errors_reported(match):
        games = external_games(match)
        try:
            if opens:
                games.open(_PROBE_LANES, lambda: None)
                wait_for_start(games)
                if hasattr(games, "try_out"):
                    games.try_out()
        finally:
            games.close("over")
    check_idle_action(match, games.interface)
    return games


@contextmanager
def _reported_while_slow(words: str, report: Callable[[str], None]) -> Iterator[None]:
    """Reports after 5, 10, 20, ... seconds that something still takes time."""
    over = threading.Event()

    def watch() -> None:
        waited, due = 0.0, _PATIENCE
        while not over.wait(due - waited):
            report(f"{words}, after {due:g} s")
            waited, due = due, 2 * due

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def make_game(match: MatchPlan, lanes: int) -> BatchedEnv:
    """The environment of a match.

    Raises:
        ConfigError: it cannot be created; the message contains what its constructor raised.
    """
    with located(path=f"envs.{match.env}.make"):
        registry.environment_factory(match.game.make)
    with constructor_errors_reported(match):
        return adapted_game(match, lanes)


def external_games(match: MatchPlan) -> ExternalGames:
    """The external games of a match, not open yet.

    Raises:
        ConfigError: their class does not take the arguments.
    """
    with located(path=f"envs.{match.env}.make"):
        registry.environment_factory(match.game.make)
    make_games = registry.load_object("envs.adapters.sources:make_games")
    try:
        games: ExternalGames = make_games(match.game.make, match.game.kwargs, match.copy)
    except ConfigError as error:
        argument = f"{error.path}: " if error.path else ""
        raise ConfigError(f"environment {match.env!r}: {argument}{error.message}", path=match.path) from error
    return games


@contextmanager
def constructor_errors_reported(match: MatchPlan) -> Iterator[None]:
    """Converts errors of an environment's constructor to `ConfigError`: most often its arguments are wrong.

    Raises:
        ConfigError: in place of any other error, which is in the message and is the cause.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        hint = registry.load_object("envs.adapters.screen:screen_hint")(error)
        raise ConfigError(
            f"environment {match.env!r} could not be made with {match.game.kwargs}: "
            f"{type(error).__name__}: {error}{registry.where_raised(error)}{hint}",
            path=match.path,
        ) from error


def adapted_game(match: MatchPlan, lanes: int, contexts: Sequence[EnvContext] | None = None) -> BatchedEnv:
    """The environment of a match; what its constructor raises passes through.

    Args:
        match: the match.
        lanes: how many.
        contexts: per lane its place in the run; None: outside of a run.

    Raises:
        ConfigError: an argument that the environment does not take, or not with this value; or units whose actions are
            not those of their space.
    """
    try:
        game = registry.adapt_environment(
            match.game.make, match.game.kwargs, lanes, match.game.wrapped_in, contexts, screen=match.game.screen
        )
        check_unit_spaces(game.interface)
        return game
    except ConfigError as error:
        if error.path == "screen" or error.path.startswith("wrappers["):
            raise ConfigError(error.message, path=f"envs.{match.env}.{error.path}") from error
        argument = f"{error.path}: " if error.path in match.game.kwargs else ""
        raise ConfigError(f"environment {match.env!r}: {argument}{error.message}", path=match.path) from error


def _check_conformance(game: BatchedEnv, again: BatchedEnv, match: MatchPlan) -> tuple[Sequence[str], Sequence[str]]:
    """Plays two environments with the same arguments; returns the breaches that do not prevent a run, and advice."""
    from arena.testing import check_batched_env

    breaches: list[str] = []
    advice: list[str] = []
    try:
        check_batched_env(game, again=again, tolerate=breaches.append, advise=advice.append)
    except Exception as error:
        known = isinstance(error, (ConfigError, GameError))  # says it all
        found = error if known else f"{type(error).__name__}: {error}{registry.where_raised(error)}"
        raise ConfigError(
            f"environment {match.env!r} does not behave as the interface asks: {found}", path=match.path
        ) from error
    return breaches, advice


def check_idle_action(match: MatchPlan, interface: Interface) -> None:
    """Refuses an `idle_action` that is not in the action space of every entity.

    Raises:
        ConfigError: with the place in the configuration.
    """
    if match.game.idle_action is None:
        return
    for entity, space in zip(interface.entities, interface.action_spaces, strict=True):
        try:
            as_action(space, match.game.idle_action)
        except ValueError as error:
            why = f": {error}" if isinstance(space, UnitActions) else f", whose space is {space}"
            raise ConfigError(
                f"{match.game.idle_action!r} is no action of {entity}{why}",
                path=f"envs.{match.env}.idle_action",
            ) from error


def _examine_later(layouts: Sequence[_Layout], players: Mapping[str, _ResolvedPolicy]) -> set[str]:
    """Checks policies on their seats in all layouts but the first; returns all policies that have a seat in any.

    A policy without a seat in earlier layouts is created here, and its sizes are checked: per entry of `matches`, since
    the number of its matches in a round is not known.
    """
    seated = {name for name, policy in layouts[0].plan.policies.items() if policy.workers}
    for layout in layouts[1:]:
        found = {name: policy for name, policy in layout.plan.policies.items() if policy.workers}
        for name, policy in found.items():
            cls, faces = players[name].cls, _check_seats(layout, policy, players[name].cls)
            if name in seated:
                continue
            for entry in sorted({layout.plan.matches[match].entry for match, _ in policy.workers}):
                _sizes(players[name], layout.plan, policy, learners_of(cls, layout.plan, policy, entry=entry))
            if players[name].spec.made_from_spaces:
                _try_out(layout, policy, players[name], faces[0])
        seated |= found.keys()
    return seated


def _check_seats(layout: _Layout, policy: PolicyPlan, cls: type[Any]) -> tuple[str, ...]:
    """The faces of a policy's seats, each once; refuses seats that it cannot play."""
    plan = layout.plan
    faces: dict[str, None] = {}
    shared: SeatSpaces | None = None
    for worker in policy.workers:
        match, own = plan.matches[worker[0]], layout.spaces(worker)
        with located(path=match.seat_path(worker[1]), who=f"policy {policy.name!r} ({policy.config.algorithm})"):
            if shared is None or own != shared or match.lanes != plan.matches[policy.workers[0][0]].lanes:
                faces[seat_face(cls, own, lanes=match.lanes)] = None
            check_shared(cls, (shared or own).words(), own.words())
        shared = shared or own
    check_teams(cls, plan, policy)
    if policy.workers and policy.config.learns and not spec_of(cls).resumable:
        plan.refuse_fragile([policy.name])
    return tuple(faces)


def _try_out(layout: _Layout, policy: PolicyPlan, player: _ResolvedPolicy, face: str) -> None:
    """Creates a policy's algorithm for its first seat, without a game, and loads its checkpoint."""
    from arena.preflight.stubs import SpecParallelEnv, SpecVectorEnv, StubGroup, from_spaces

    plan, (number, seat) = layout.plan, policy.workers[0]
    interface, entities = layout.interfaces[number], layout.seats[number][seat]
    names, spaces = [interface.entities[index] for index in entities], layout.spaces(policy.workers[0])
    env: SpecVectorEnv | SpecParallelEnv = SpecParallelEnv(names, spaces.observations, spaces.actions)
    if face != "parallel":
        rows = plan.matches[number].lanes * len(entities)
        if rows > _MOST_ROWS:
            return
        masked = bool(interface.mask_sizes[entities[0]])
        env = SpecVectorEnv(spaces.observations[0], spaces.actions[0], rows=rows, entities=names, masked=masked)
    teams = plan.teams(policy)
    sync, seed = policy.config.sync, plan.config.seed
    group = StubGroup(policy.name, sync, seed, seed, len(policy.workers), team=teams[0], teams=teams)
    with located(inside=f"policies.{policy.name}"):
        try:
            made = from_spaces(player.cls, env, group, ticks=plan.horizon, options=player.options)
        except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError when memory is missing
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"the algorithm cannot be made with these options: {what}", path="options") from error
        if player.spec.tries_out and not policy.config.frozen:
            made.try_out()
    if player.checkpoint is not None:
        found, held = player.checkpoint
        with located(path=f"policies.{policy.name}.load", who=str(found)):
            made.load_state_dict(held.state)


def _sizes(player: _ResolvedPolicy, plan: Plan, policy: PolicyPlan, learners: Sequence[Learner]) -> dict[str, int]:
    """The sizes that the algorithm derives for a policy that learns; empty if its learners differ in rows.

    They are computed for each number of rows, as the algorithm may refuse one.
    """
    if policy.config.frozen or not player.spec.has_sizes:
        return {}
    sizes: list[dict[str, Any]] = []
    for rows in sorted({learner.rows for learner in learners}):
        with located(inside=f"policies.{policy.name}"), located(path="options"):
            sizes.append(player.cls.sizes(dict(player.options), rows=rows, ticks=plan.horizon, workers=len(learners)))
    return {str(name): int(size) for name, size in sizes[0].items()} if len(sizes) == 1 else {}


def wrapped_words(match: MatchPlan) -> str:
    """The wrappers of a match's environment in words, the innermost first; empty if there are none."""
    return f" wrapped in {', '.join(name for name, _ in match.game.wrapped_in)}" if match.game.wrapped_in else ""
