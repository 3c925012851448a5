"""Checks a plan before the run starts: creates every environment once, and checks every algorithm on its seats.

    examine(plan)                      entities, faces, options, sizes; what `arena plan` needs. An algorithm with
                                       `from_spaces` is created once for its first seat, and loads its checkpoint
    examine(plan, later=...)           likewise the seats of later rounds and of evaluations
    examine(plan, conformance=True)    plays each environment through the checks of `arena.testing` too: `arena check`

Some checks are repeated when a run starts: an environment checks its idle action and what is recorded, a worker its
seat's face (`seat_face`), its group's spaces (`check_shared`) and its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arena import registry
from arena.config.schema import CallbackEntry, TickRules
from arena.errors import ConfigError, GameError, located, pluralize, shown
from arena.game.api import Interface
from arena.game.spaces import as_action, check_unit_spaces
from arena.game.units import UnitActions
from arena.plan.plan import MatchPlan, Plan, PolicyPlan
from arena.plan.seats import check_seats
from arena.preflight.external import check_external
from arena.preflight.seats import check_independence, check_shared, check_teams, learners_of, seat_face, space_texts
from arena.preflight.spec import AlgorithmSpec, spec_of

if TYPE_CHECKING:
    from pathlib import Path

    from arena.external.interface import ExternalGames
    from arena.game.api import BatchedEnv
    from arena.game.context import EnvContext
    from arena.records.checkpoint import Checkpoint
    from arena.records.folder import RunFolder

_PROBE_LANES = 1
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
    conformance: bool = False,
    known: dict[str, Interface] | None = None,
    folder: RunFolder | None = None,
) -> Preflight:
    """Creates each distinct environment once, or twice to compare them, and checks seats and algorithms against it.

    Args:
        later: plans with the seats of later rounds and of evaluations, see `arena.preflight.later_seats`.
        conformance: whether environments are played through the checks of their interface.
        known: by `environment_key`, the interfaces of environments that were created for other plans, which are not
            created again; gets those of this plan.
        folder: of the run that goes on with the plan, see `find_checkpoint`.

    Raises:
        ConfigError: the first mistake, with its place in the configuration.
    """
    registry.import_plugins(plan.config.imports)
    for each in (plan, *later):
        check_external(each, each.matches)
    lines: list[str] = []
    players: dict[str, _ResolvedPolicy] = {}
    for name, policy in plan.policies.items():
        config, path = policy.config, f"policies.{name}"
        cls, options = registry.configured_algorithm(
            config.algorithm, config.options, acts=plan.acts(policy), path=path, any_device=config.frozen
        )
        lines.append(f"policy {name}: algorithm {config.algorithm}, {pluralize(len(config.options), 'option')}")
        loaded = None
        if config.load is not None:
            from arena.league.sources import find_checkpoint
            from arena.records import checkpoint

            with located(path=f"{path}.load"):
                found = find_checkpoint(config.load, name, folder)
                loaded = (found, checkpoint.load_to_act(found))
                check_checkpoint(loaded[1], found, policy, cls)
            lines.append(f"policy {name}: begins with {shown(found)}")
        players[name] = _ResolvedPolicy(cls, spec_of(cls), options, loaded)

    known = {} if known is None else known
    findings: dict[str, PolicySummary] = {}
    seated: set[str] = set()
    layouts: list[_Layout] = []
    for each in (plan, *later):
        layout = _Layout.of(each, known, lines.append, conformance=conformance)
        layouts.append(layout)
        for name, policy in each.policies.items():
            player = players[name]
            faces, sizes = layout.faces_of(policy, player.cls), dict[str, int]()
            if name not in seated:
                entries: list[int | None] = [None]
                if each is plan:
                    check_independence(player.cls, policy)
                else:  # the number of a policy's matches in a later round is not known
                    entries = [*sorted({each.matches[match].entry for match, _ in policy.workers})]
                for entry in entries:
                    sizes = layout.sizes(player, policy, entry)
                if policy.workers and player.spec.made_from_spaces:
                    warning = layout.try_out(policy, player, faces[0])
                    lines += [f"warning: policies.{name}.{warning}"] if warning else []
            if each is plan:
                rows = tuple(
                    each.matches[match].lanes * len(layout.seats[match][seat]) for match, seat in policy.workers
                )
                of_worker = sizes.get("samples per update", 0) // max(1, len(rows))  # of algorithms with rollouts
                for option in ("minibatch_size", "batch_size"):  # of a replay, more than it holds is refused
                    given = policy.config.options.get(option)
                    if isinstance(given, int) and 0 < of_worker < given:
                        lines.append(
                            f"warning: policies.{name}.options.{option}: {given} is more than the "
                            f"{pluralize(of_worker, 'sample')} that a worker collects per update (n_steps x rows), so "
                            f"each gradient step takes {of_worker}; raise n_steps or lanes, or lower {option}"
                        )
                findings[name] = PolicySummary(faces, rows, sizes, player.spec.sync_on)
        seated |= {name for name, policy in each.policies.items() if policy.workers}

    for name, summary in findings.items():
        takes = f"{pluralize(len(summary.rows), 'seat')}, face {' and '.join(summary.faces)}: can take their spaces"
        if not summary.rows:
            takes = "has no seat in any match"
            if name in seated:
                takes = "has no seat in these matches, can take those of later rounds or of evaluations"
        lines.append(f"policy {name}: {takes}")
    for callback in map(CallbackEntry.of, plan.config.callbacks):
        lines.append(f"callback {callback.class_}: {pluralize(len(callback.options), 'option')}")
    return Preflight(layouts[0].interfaces, layouts[0].seats, findings, tuple(lines), layouts[0].hints)


class _ResolvedPolicy(NamedTuple):
    """The algorithm of a policy, and the checkpoint that it starts from."""

    cls: type[Any]
    spec: AlgorithmSpec
    options: dict[str, Any]  # in the types that the algorithm declares
    checkpoint: tuple[Path, Checkpoint] | None  # its path, and the loaded checkpoint


def check_checkpoint(loaded: Checkpoint, path: Path, policy: PolicyPlan, cls: type[Any]) -> None:
    """Refuses a checkpoint that a policy's algorithm cannot load."""
    place, algorithm = f"policies.{policy.name}.load", policy.config.algorithm
    if loaded.algorithm != algorithm:
        raise ConfigError(
            f"the checkpoint {path} is of the algorithm {loaded.algorithm!r}, the policy uses {algorithm!r}; where "
            "that has changed, change `load` with it (null: new weights), and play against checkpoints since then",
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

    @classmethod
    def of(
        cls, plan: Plan, known: dict[str, Interface], report: Callable[[str], None], *, conformance: bool
    ) -> _Layout:
        """Creates the environments of a plan; one with the arguments of a known one is not created again."""
        hints: dict[str, str] = {}
        interfaces = []
        for match in plan.matches:
            game = match.game
            key = environment_key(match)
            if key not in known:
                is_external, hint = registry.external_kind(game.make) is not None, ""
                breaches, advice = list[str](), list[str]()
                if is_external:
                    games = _examined_games(match, opens=conformance)
                    known[key], hint = games.interface, games.hint(match.lanes) if hasattr(games, "hint") else ""
                elif not conformance:
                    known[key] = interface_of(match)
                else:
                    known[key] = _check_conformance(match, breaches, advice)
                    hint = "\n".join(f"warning: environment {match.env}: {line}" for line in advice)
                policies = [plan.policies[seat.policy].config for seat in match.seats]
                normalized = all(not one.learns or one.options.get("normalize_observations") for one in policies)
                if hint and (is_external or not normalized):
                    hints[match.env] = hint
                entities = known[key].entities
                kwargs = f" with {game.kwargs}" if game.kwargs else ""
                keeps = ", keeps the interface" if conformance and not breaches else ""
                report(
                    f"environment {match.env} ({game.make}){kwargs}{wrapped_text(match)}: "
                    f"{pluralize(len(entities), 'entity', 'entities')}: {', '.join(entities)}{keeps}"
                )
                for breach in breaches:
                    report(f"warning: environment {match.env}: {breach}")
            check_record(plan.config.record, match, known[key])
            interfaces.append(known[key])
        seats = tuple(check_seats(match, interface) for match, interface in zip(plan.matches, interfaces, strict=True))
        return cls(plan, tuple(interfaces), seats, hints)

    def seat(self, worker: tuple[int, int]) -> Interface:
        """Of the seat of a worker, as (match, seat)."""
        match, seat = worker
        return self.interfaces[match].part(self.seats[match][seat])

    def faces_of(self, policy: PolicyPlan, cls: type[Any]) -> tuple[str, ...]:
        """The faces of a policy's seats, each once; refuses seats that it cannot play."""
        plan = self.plan
        faces: dict[str, None] = {}
        first: Interface | None = None
        for worker in policy.workers:
            match, seat = plan.matches[worker[0]], self.seat(worker)
            with located(path=match.seat_path(worker[1]), who=f"policy {policy.name!r} ({policy.config.algorithm})"):
                lanes = plan.matches[policy.workers[0][0]].lanes
                if first is None or seat.spaces != first.spaces or match.lanes != lanes:
                    faces[seat_face(cls, seat, lanes=match.lanes)] = None
                first = first or seat
                check_shared(cls, space_texts(first), space_texts(seat))
        check_teams(cls, plan, policy)
        if policy.workers and policy.config.learns and not spec_of(cls).resumable:
            plan.refuse_fragile([policy.name])
        return tuple(faces)

    def sizes(self, player: _ResolvedPolicy, policy: PolicyPlan, entry: int | None) -> dict[str, int]:
        """The sizes that the algorithm derives for a policy that learns; empty if its learners differ in rows.

        They are computed for each number of rows, as the algorithm may refuse one; of all matches, or of those that are
        made from one entry.
        """
        if policy.config.frozen or not player.spec.has_sizes:
            return {}
        learners = learners_of(player.cls, self.plan, policy, entry=entry)
        sizes: list[dict[str, Any]] = []
        for rows in sorted({learner.rows for learner in learners}):
            options, ticks = dict(player.options), self.plan.horizon
            with located(inside=f"policies.{policy.name}"), located(path="options"):
                sizes.append(player.cls.sizes(options, rows=rows, ticks=ticks, workers=len(learners)))
        return {str(name): int(size) for name, size in sizes[0].items()} if len(sizes) == 1 else {}

    def try_out(self, policy: PolicyPlan, player: _ResolvedPolicy, face: str) -> str:
        """Creates a policy's algorithm for its first seat, without a game, and loads its checkpoint.

        Returns:
            the warning of its `try_out()`, if it has one.
        """
        from arena.preflight.stubs import SpecParallelEnv, SpecVectorEnv, StubGroup, from_spaces

        plan, seat = self.plan, self.seat(policy.workers[0])
        names, (observed, acted, masks) = seat.entities, seat.spaces
        env: SpecVectorEnv | SpecParallelEnv = SpecParallelEnv(names, observed, acted)
        if face != "parallel":
            rows = plan.matches[policy.workers[0][0]].lanes * len(names)
            if rows > _MOST_ROWS:
                return ""
            env = SpecVectorEnv(observed[0], acted[0], rows=rows, entities=names, masked=bool(masks[0]))
        teams = plan.teams[policy.name]
        sync, seed = policy.config.sync, plan.config.seed
        group = StubGroup(policy.name, sync, seed, seed, len(policy.workers), team=teams[0], teams=teams)
        with located(inside=f"policies.{policy.name}"):
            try:
                made = from_spaces(player.cls, env, group, ticks=plan.horizon, options=player.options)
            except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError when memory is missing
                what = (str(error).splitlines() or [type(error).__name__])[0]
                raise ConfigError(f"the algorithm cannot be made with these options: {what}", path="options") from error
            tries_out = player.spec.tries_out and not policy.config.frozen
            warning: str = (made.try_out() if tries_out else None) or ""
        if player.checkpoint is not None:
            found, loaded = player.checkpoint
            with located(path=f"policies.{policy.name}.load", who=str(found)):
                made.load_state_dict(loaded.state)
        return warning


def environment_key(match: MatchPlan) -> str:
    """The same for two matches whose environments are created in the same way."""
    game = match.game
    return json.dumps([game.make, game.kwargs, game.wrapped_in, game.idle_action], default=repr)


def interface_of(match: MatchPlan) -> Interface:
    """The interface of a match's games, which are made once; raises ConfigError as `make_game`, `check_idle_action`."""
    if registry.external_kind(match.game.make) is not None:
        return _examined_games(match, opens=False).interface
    with closing(_probe(match)) as game:
        check_idle_action(match, game.interface)
        return game.interface


def _probe(match: MatchPlan) -> BatchedEnv:
    """The environment of a match with one lane; a vector environment as large as a run has it, which tells more."""
    game = make_game(match, _PROBE_LANES)
    if game.interface.holds_lanes or len(match.blocks[0]) == game.lanes:
        return game
    game.close()
    return make_game(match, len(match.blocks[0]))


def _examined_games(match: MatchPlan, *, opens: bool) -> ExternalGames:
    """The external games of a match, closed again; with `opens` they were opened, and tried out if they support it."""
    from arena.external.connection import policies_of, wait_for_start  # imported where games are external
    from arena.external.interface import ExternalMatch

    with constructor_errors_reported(match):
        games = external_games(match)
        try:
            if opens:
                if (configure := getattr(games, "configure", None)) is not None:
                    rules, policies = match.game.external or TickRules(), policies_of(match, games.interface)
                    configure(ExternalMatch(0, rules, policies))
                games.open(_PROBE_LANES, lambda: None)
                wait_for_start(games)
                if hasattr(games, "try_out"):
                    games.try_out()
        finally:
            games.close("over")
    check_idle_action(match, games.interface)
    return games


def _check_conformance(match: MatchPlan, breaches: list[str], advice: list[str]) -> Interface:
    """Plays two environments with the same arguments; adds the breaches that do not prevent a run, and advice."""
    from arena.testing import ContractBroken, check_batched_env

    with closing(_probe(match)) as game, closing(_probe(match)) as again:
        try:
            check_batched_env(game, again=again, tolerate=breaches.append, advise=advice.append)
        except Exception as error:
            found = str(error)
            if isinstance(error, ContractBroken):
                where = registry.where_raised(error.__cause__ or error)
                method = "reset" if found.startswith("after reset") else "step"
                found += where or registry.where_defined(registry.environment_factory(match.game.make), method)
            elif not isinstance(error, (ConfigError, GameError)):  # which say it all
                found = f"{type(error).__name__}: {found}{registry.where_raised(error)}"
            text = f"environment {match.env!r} does not behave as the interface asks: {found}"
            raise ConfigError(text, path=match.path) from error
        check_idle_action(match, game.interface)
        if joint := game.interface.joint:
            breaches.append(f"its lanes are repeatable together alone: {joint}; `record: replays` is refused with it")
        return game.interface


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
    """The external games of a match, not open yet; raises ConfigError if their class does not take the arguments."""
    with located(path=f"envs.{match.env}.make"):
        registry.environment_factory(match.game.make)
    make_games = registry.load_object("envs.adapters.sources:make_games")
    try:
        games: ExternalGames = make_games(match.game.make, match.game.kwargs, match.copy)
    except ConfigError as error:
        raise _placed(match, error) from error
    return games


def argument_path(match: MatchPlan, path: str) -> str:
    """The key in the configuration of what an environment's constructor calls `path`; empty: it is no argument."""
    name = path.partition(".")[0].partition("[")[0]
    options = getattr(registry.environment_factory(match.game.make), "Options", None)
    if name not in match.game.kwargs and name not in getattr(options, "__struct_fields__", ()):
        return ""
    return f"{match.path}.env_kwargs.{path}" if name in match.config.env_kwargs else f"envs.{match.env}.kwargs.{path}"


def _placed(match: MatchPlan, error: ConfigError) -> ConfigError:
    """An error of an environment's constructor, with the key of the argument that it names, else of the match."""
    if path := argument_path(match, error.path):
        return ConfigError(error.message, path=path)
    return ConfigError(f"environment {match.env!r}: {error.message}", path=match.path)


@contextmanager
def constructor_errors_reported(match: MatchPlan) -> Iterator[None]:
    """Converts errors of an environment's constructor to `ConfigError`: most often its arguments are wrong."""
    try:
        yield
    except ConfigError as error:
        if argument_path(match, error.path):  # such as a port that is taken when the games are opened
            raise _placed(match, error) from error
        raise
    except (Exception, SystemExit) as error:
        hint = registry.load_object("envs.adapters.screen:screen_hint")(error)
        raise ConfigError(
            f"environment {match.env!r} could not be made with {match.game.kwargs}: "
            f"{type(error).__name__}: {error}{registry.where_raised(error)}{hint}",
            path=match.path,
        ) from error


def adapted_game(match: MatchPlan, lanes: int, contexts: Sequence[EnvContext] | None = None) -> BatchedEnv:
    """The environment of a match; what its constructor raises passes through. Outside of a run there are no `contexts`.

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
        raise _placed(match, error) from error
    except GameError as error:
        raise ConfigError(f"environment {match.env!r}: {error}", path=match.path) from error


def check_record(record: str, match: MatchPlan, interface: Interface) -> None:
    """Refuses replays of an environment whose lanes cannot be played again alone."""
    if record == "replays" and interface.joint:
        text = f"a replay plays each lane alone, and environment {match.env!r} cannot: {interface.joint}"
        raise ConfigError(f"{text}; set samples, or nothing", path="record")


def check_idle_action(match: MatchPlan, interface: Interface) -> None:
    """Refuses an `idle_action` that is not in the action space of every entity."""
    if match.game.idle_action is None:
        return
    for entity, space in zip(interface.entities, interface.action_spaces, strict=True):
        try:
            as_action(space, match.game.idle_action)
        except ValueError as error:
            why = f": {error}" if isinstance(space, UnitActions) else f", whose space is {space}"
            text = f"{match.game.idle_action!r} is no action of {entity}{why}"
            raise ConfigError(text, path=f"envs.{match.env}.idle_action") from error


def wrapped_text(match: MatchPlan) -> str:
    """The wrappers of a match's environment in words, the innermost first; empty if there are none."""
    return f" wrapped in {', '.join(name for name, _ in match.game.wrapped_in)}" if match.game.wrapped_in else ""
