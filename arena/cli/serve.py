"""`arena serve`: policies of a run or of a configuration answer games that ask for actions, without learning."""

from __future__ import annotations

import argparse
import gc
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Any

import msgspec

from arena import registry
from arena.cli.arguments import RemovedOption, add_overrides, non_negative_float, non_negative_int, positive_int
from arena.config.load import load_data, resolved_yaml
from arena.config.matches import Match
from arena.config.schema import Config, Env, TickRules
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, WriteError, located
from arena.external.connection import Connection
from arena.external.interface import ExternalGames
from arena.game.api import Interface
from arena.game.spaces import is_ragged
from arena.league.sources import Named, Source, split
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan, SeatPlan
from arena.plan.seats import check_seats, teams_of
from arena.preflight.examine import argument_path, external_games, interface_of
from arena.preflight.spec import spec_of
from arena.records import checkpoint, checksums
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.formats import plan_file, write_document
from arena.records.lock import refuse_locked
from arena.run.evaluation import result_text
from arena.serving.clones import Clones
from arena.serving.exported import Exporter, ExportFailed, Follower
from arena.serving.models import Model, PureModel, model_of
from arena.serving.player import Player
from arena.serving.policy import configured_policy, first_seat
from arena.serving.server import Server
from arena.terminal.output import complain, say

_SLOTS = 256
_DRAIN_S = 10.0  # of games that do not say
_OPTIONS = {  # by argument
    "port": "--http",
    "host": "--http",
    "token_file": "--token-file",
    "actor": "--actor",
    "command": "--simulator",
}
_GARBAGE = 10_000  # new objects between two collections: all requests of a batch are alive at the same time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Answers until it is ended by Ctrl-C or SIGTERM; then running games may go on for a while."
    parser.add_argument(
        "target",
        metavar="RUN_OR_CONFIG",
        help="a run's folder, or a configuration file; RUN:POLICY@TICK: games of one entity, which this policy plays",
    )
    add_overrides(parser, "change the configuration")
    parser.add_argument("--match", type=int, metavar="M", help="games with the entities of this match (default: 0)")
    parser.add_argument("--policy", action=RemovedOption, instead="name the policy as RUN:POLICY@TICK")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--http", metavar="[HOST:]PORT", help="listen for POST /step (default: as configured, or 8000)")
    where.add_argument("--socket", metavar="ADDRESS", help=argparse.SUPPRESS)  # of earlier versions
    where.add_argument("--simulator", metavar="COMMAND", help="start this program, which shares a file; no shell")
    where.add_argument("--attach", metavar="NAME", help="wait for a program that uses the shared file of this name")
    parser.add_argument("--actor", metavar="ACTOR", help="json, raw or package.module:Class (default: json)")
    parser.add_argument("--actor-config", metavar="FILE", help="a YAML file that each actor is given")
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="of a run: last, first, best, a number of ticks, or follow (default: last)",
    )
    parser.add_argument("--sample", action="store_true", help="sampled actions instead of the best ones")
    parser.add_argument(
        "--seed", type=non_negative_int, metavar="N", help="of sampled actions (default: the configuration's)"
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "torch", "onnx"),
        default="auto",
        help="what computes the policies; auto: torch until the exported model is verified, then the faster one",
    )
    parser.add_argument(
        "--slots",
        type=positive_int,
        metavar="N",
        help="games at the same time (default: 256; of external games the match's `lanes`)",
    )
    parser.add_argument("--games", type=positive_int, metavar="N", help="play N games, print their results and end")
    parser.add_argument(
        "--max-delay", type=non_negative_float, default=0.0, metavar="MS", help="wait so long for others that ask"
    )
    parser.add_argument("--max-batch", type=positive_int, default=256, metavar="N", help="rows computed together")
    parser.add_argument("--token-file", metavar="FILE", help="a token that clients have to send")
    parser.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        action="append",
        metavar="NAME",
        help="a further name of this server that the header Host of requests may have, such as a reverse proxy's",
    )
    parser.add_argument("--insecure", action="store_true", help="other machines may connect without a token")
    parser.add_argument("--records", metavar="DIR", help="write the results there, as in a run's folder")
    parser.add_argument(
        "--drain",
        type=non_negative_float,
        metavar="S",
        help="seconds for running games at the end; default: `drain_s` of the games, 10",
    )
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Serves; returns the exit status."""
    try:
        served = prepare(arguments)
    except ExportFailed as error:
        complain(f"arena: failed: {error}\n")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: served.server.stop())
    served.run()
    served.show_results(arguments.games)
    return 0


@dataclass
class RunningServer:
    """A server that listens, and what it serves."""

    server: Server
    players: Sequence[Player]
    exporter: Exporter | None
    exports: bool  # whether models that torch computes are exported, and replaced by the verified export
    itself: bool  # whether one policy plays all sides, two or more
    followers: list[Follower] = field(default_factory=list)

    def run(self) -> None:
        """Serves until the server is stopped; then all resources are free."""
        try:
            for follower in self.followers:
                follower.start()
            gc.freeze()  # the modules: to look through them would delay answers
            gc.set_threshold(_GARBAGE)
            self.server.run()
        finally:
            if self.exporter is not None:
                self.exporter.close()
            for follower in self.followers:
                follower.close()
            self.server.close()

    def show_results(self, games: int | None) -> None:
        """Prints the results of the games that have ended, of so many, as `arena evaluate` does."""
        ended, policies = self.server.table.counts.ended, self.server.scoreboard.policies
        fewer = "" if games is None or ended >= games else f"; {ended} of {games} games have ended"
        for player in self.players if ended or games is not None else ():
            versions = player.versions or {player.model.version}
            first, last = min(versions), max(versions)
            ticks = f"tick {last}" if first == last else f"ticks {first} to {last}"
            at = f" at {ticks}" if last >= 0 else ", as configured"
            say(f"{player.name}{at}: {result_text(policies[player.name], self.itself)}{fewer}")

    def announce(self, player: Player) -> None:
        """Says which model a player has."""
        model = player.model
        at = f" at tick {model.version}" if model.version >= 0 else " as configured"
        say(f"serving {player.name}{at} ({model.engine})")

    def upgrade(self, player: Player) -> None:
        """Begins to export what torch computes now, if that is asked for and possible."""
        model = player.model
        if self.exporter is None or not self.exports or not isinstance(model, PureModel) or model.version < 0:
            return
        installed = all(find_spec(package) is not None for package in ("onnx", "onnxruntime", "onnxscript"))
        if installed and getattr(model.algorithm, "exported", None) is not None:
            self.exporter.begin(player.name, model.version, len(player.entities), partial(self.swap, player))

    def swap(self, player: Player, model: Model) -> None:
        """Gives a player another model, in the server's own thread."""

        def take() -> None:
            if player.take(model):
                self.announce(player)
                self.upgrade(player)

        self.server.call(take)


def prepare(arguments: argparse.Namespace) -> RunningServer:
    """Loads the policies, and listens."""
    if arguments.socket is not None:
        raise ConfigError("is no longer supported: use --http [HOST:]PORT; PolicyClient speaks HTTP", path="--socket")
    say(f"loading {arguments.target}")  # PyTorch and the policies take seconds
    run, name = split(arguments.target)
    source = Source.of(run, arguments.overrides)
    folder, config, policy = source.folder, source.config, None
    registry.import_plugins(config.imports)
    if name:
        policy, label = source.named(name)
        if arguments.match is not None:
            raise ConfigError("is for a run or configuration alone: a policy serves any game", path="--match")
        if label and arguments.checkpoint is not None:
            raise ConfigError(f"{arguments.target} says it already; leave it out", path="--checkpoint")
        if label not in ("", "follow"):
            source.checkpoint(Named(policy, label))  # refuses it where the policy has no checkpoints
        arguments.checkpoint = label or arguments.checkpoint
    if folder is None and arguments.checkpoint is not None:
        raise ConfigError("a configuration has no checkpoints; name a run folder", path="--checkpoint")
    if folder is None and arguments.engine == "onnx":
        raise ConfigError("only policies of a run can be exported; name a run folder", path="--engine")
    exporter = None if folder is None or arguments.engine == "torch" else Exporter(folder, say)
    with source.origin.located():
        match, make_games = _match(config, policy, arguments)
        slots = arguments.slots or (match.lanes if registry.external_kind(match.game.make) else _SLOTS)
        rules = msgspec.structs.replace(
            match.game.external or TickRules(), max_delay_s=arguments.max_delay / 1000, min_asking=1
        )
        with _options_named(match, arguments):
            games = make_games()
            if (bind := getattr(games, "bind", None)) is not None:
                bind().close()  # a port that is taken is refused before policies are loaded
        if any(map(is_ragged, (*games.interface.observation_spaces, *games.interface.action_spaces))):
            raise ConfigError(
                "these games have observations or actions of any number of items, as of units, which no connection can "
                "carry: load the policy in Python with arena.serving.load_policy"
            )
        places = check_seats(match, games.interface)
        described = msgspec.structs.replace(match.config, lanes=slots, pipeline=1)
        game = msgspec.structs.replace(match.game, external=rules)
        match = replace(match, config=described, game=game)
        players, loads, teams_by_policy = [], {}, teams_of(match, places)
        ticks = _ticks(source, teams_by_policy, arguments.checkpoint)  # before policies are loaded, which takes seconds
        records = None if arguments.records is None else anchored(arguments.records)
        if records is not None:
            with located(path="--records"):
                _begin_records(RunFolder(records), None if policy else config)
        for name, teams in teams_by_policy.items():
            entities = [*chain(*teams)]
            load = partial(
                _model,
                config,
                folder,
                name,
                games.interface,
                entities,
                slots,
                greedy=not arguments.sample,
                exporter=exporter if arguments.engine == "onnx" else None,
            )
            loads[name], model = load, load(ticks[name])
            seed = None if not arguments.sample else config.seed if arguments.seed is None else arguments.seed
            player = Player(name, model, entities, games.interface, slots, seed=seed, max_batch=arguments.max_batch)
            players.append(player)
        if folder is not None and hasattr(games, "clone"):
            games.clone = Clones(
                folder,
                lambda link, tick: _model(
                    config, folder, link.policy, games.interface, [link.entity], 1, tick, greedy=True, exporter=None
                ),
            )
        with _options_named(match, arguments):
            connection = Connection(lambda: games, match, config.seed)
    drain_s = getattr(games, "drain_s", _DRAIN_S) if arguments.drain is None else arguments.drain
    server = Server(connection, match, players, drain_s=drain_s, games=arguments.games, records=records, say=say)

    itself = len(players) == 1 and len(match.seats) > 1 and len(match.sides) != 1
    served = RunningServer(server, players, exporter, exports=arguments.engine == "auto", itself=itself)
    for player in players:
        served.announce(player)
    if arguments.checkpoint == "follow":
        say(f"takes newer checkpoints as they are written; {checkpoint.KEPT_TEXT}")
    for player in players:
        served.upgrade(player)
        if arguments.checkpoint == "follow" and folder is not None:
            checkpoints, version = folder.checkpoints_path(player.name), player.model.version
            swap = partial(served.swap, player)
            served.followers.append(Follower(checkpoints, loads[player.name], swap, say, version))
    return served


def _begin_records(folder: RunFolder, config: Config | None) -> None:
    """Makes a folder for records which can be read as a run's; without a configuration, for the records alone."""
    text = None if config is None else resolved_yaml(config)
    if folder.checkpoints.exists() or (folder.config.exists() and folder.config.read_text() != text):
        raise ConfigError("holds a run, or records of another configuration; name another folder")
    checksums.check_folder(folder.path)
    refuse_locked(folder.path)
    try:
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        make_folder(folder.path)
        if config is not None and text is not None:
            folder.write_config(text)
            write_document(folder.plan, plan_file(make_plan(config, ranks=1)))
    except (OSError, WriteError) as error:
        raise ConfigError(f"the folder cannot be made, or written to: {error}") from error


def _match(
    config: Config, policy: str | None, arguments: argparse.Namespace
) -> tuple[MatchPlan, Callable[[], ExternalGames]]:
    """What is played, and what makes the connection to its games."""
    if policy is not None:
        first = first_seat(config, policy)
        as_team = spec_of(registry.algorithm(config.policies[policy].algorithm)).learns_as == "team"
        names = tuple(f"agent_{place}" for place in range(first.team if as_team else 1))
        interface = replace(first.interface.part([0] * len(names)), entities=names)
        seat = SeatPlan(0, policy, tuple(range(len(names))))
        described = Match(env=policy, seats=(policy,), lanes=_SLOTS)
        match = MatchPlan(0, 0, 0, described, Env(make=""), (seat,), path=policy)
        return match, partial(_http_games, interface, arguments)
    matches, number = make_plan(config, ranks=1).matches, arguments.match or 0
    if not 0 <= number < len(matches):
        raise ConfigError(f"there is no match {number}; known: 0 to {len(matches) - 1}", path="--match")
    match = matches[number]
    kind = registry.external_kind(match.game.make)
    if arguments.simulator is not None or arguments.attach is not None:  # another program, or one started by hand
        from arena.external.shared_memory.games import SharedMemoryGames

        for name in ("actor", "actor_config", "token_file", "allowed_hosts"):
            if getattr(arguments, name) is not None:
                raise ConfigError("is not for simulators", path=f"--{name.removesuffix('s').replace('_', '-')}")
        if arguments.attach is not None and kind != "shared_memory":
            raise ConfigError(f"match {match.match} ({match.game.make}) has no simulators", path="--attach")
        kwargs = dict(match.game.kwargs) if kind == "shared_memory" else {}
        command = None if arguments.simulator is None else shlex.split(arguments.simulator)
        kwargs |= {"command": command, "attach": arguments.attach}

        def simulators() -> ExternalGames:
            with located(path="--simulator" if arguments.attach is None else "--attach"):
                return SharedMemoryGames(**kwargs)

        return match, simulators
    if kind is None or (kind in registry.EXTERNAL and kind != "http" and arguments.http):
        return match, partial(_http_games, interface_of(match), arguments)
    kwargs = _connection_kwargs(arguments)
    if kind in registry.EXTERNAL:
        make = registry.environment_factory(match.game.make)
        return match, lambda: make(**{**match.game.kwargs, **kwargs})
    if kwargs:
        raise ConfigError(
            f"the games of match {match.match} ({match.game.make}) take no {', '.join(kwargs)}; "
            "`arena serve RUN:POLICY` serves a policy to other games",
            path="--match",
        )
    return match, lambda: external_games(match)


@contextmanager
def _options_named(match: MatchPlan, arguments: argparse.Namespace) -> Iterator[None]:
    """Names the option, or the key of the configuration, of an argument of the connection in errors."""
    try:
        yield
    except ConfigError as error:
        simulators = arguments.simulator is not None or arguments.attach is not None
        configured = not simulators and registry.external_kind(match.game.make) in registry.EXTERNAL
        path = argument_path(match, error.path) if configured else ""
        if not path or error.path in _connection_kwargs(arguments):
            path = _OPTIONS.get(error.path, error.path)
        raise ConfigError(error.message, path=path, source=error.source) from error


def _http_games(interface: Interface, arguments: argparse.Namespace) -> ExternalGames:
    """A connection to games with this interface."""
    games: ExternalGames = registry.environment_factory("http")(entities=interface, **_connection_kwargs(arguments))
    if games.interface.entities != interface.entities:
        found, expected = ", ".join(games.interface.entities), ", ".join(interface.entities)
        raise ConfigError(f"the actor plays {found}; the match has {expected}", path="--actor")
    for what in ("observation_spaces", "action_spaces"):
        pairs = zip(interface.entities, getattr(games.interface, what), getattr(interface, what), strict=True)
        for name, found, expected in pairs:
            if found != expected:
                raise ConfigError(f"{what} of {name!r}: the actor has {found}, the policy {expected}", path="--actor")
    return games


def _connection_kwargs(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the connection that the command line states."""
    kwargs: dict[str, Any] = {}
    if arguments.http is not None:
        host, _, port = arguments.http.rpartition(":")
        if not port.isdigit():
            raise ConfigError(f"{arguments.http!r}; expected [HOST:]PORT", path="--http")
        kwargs |= {"port": int(port)} | ({"host": host} if host else {})
    if arguments.actor_config is not None:
        with located(path="--actor-config"):
            kwargs["config"] = load_data(arguments.actor_config)
    kwargs |= {
        name: value
        for name in ("actor", "token_file", "allowed_hosts")
        if (value := getattr(arguments, name)) is not None
    }
    return kwargs | ({"insecure": True} if arguments.insecure else {})


def _model(
    config: Config,
    folder: RunFolder | None,
    name: str,
    interface: Interface,
    entities: Sequence[int],
    slots: int,
    tick: int | None,
    *,
    greedy: bool,
    exporter: Exporter | None,
) -> Model:
    """The model of a checkpoint (None: the newest one), for so many slots; an exported one if there is an exporter."""
    if exporter is not None and folder is not None and tick is not None:
        return exporter.model(name, tick, len(entities))
    spaces = interface.observation_spaces[entities[0]], interface.action_spaces[entities[0]]
    policy = configured_policy(config, folder, name, tick, observation_space=spaces[0], action_space=spaces[1])
    if policy.ticks is None and hasattr(policy.algorithm, "load_state_dict"):
        text = f"{name!r} learns and has no checkpoint: name the folder of a run that has one, or set `load`"
        raise ConfigError(text, path=f"policies.{name}")
    return model_of(policy, slots * len(entities), greedy=greedy)


def _ticks(source: Source, names: Iterable[str], label: str | None) -> dict[str, int | None]:
    """By policy the tick of the checkpoint that is meant, None if it has none; to follow, one that all of them have."""
    files = {name: source.files(name) for name in names}
    found: dict[str, int | None] = dict.fromkeys(files)
    for name in filter(files.get, files):
        named = Named(name, "" if label in (None, "follow") else label)
        found[name] = checkpoint.ticks_of(source.checkpoint(named, path="--checkpoint"))
    kept = [{*known} for known in files.values() if known]
    if label == "follow" and len({*found.values()} - {None}) > 1 and (shared := set.intersection(*kept)):
        newest = max(shared)
        say(f"begins at tick {newest}, the newest of which all policies have a checkpoint")
        return {name: newest if known else None for name, known in files.items()}
    return found
