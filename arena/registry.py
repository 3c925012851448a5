"""The registry: built-in environments, wrappers and algorithms, and a user's own as `package.module:attribute`.

The arena imports `envs` and `policies` only through these names, when they are needed. A user's module may give names
to objects of its own with `register_environment` and the like; `import_plugins` imports such modules in every process.
An installed distribution gives names by entry points (`plugins`), whose modules are imported when a name is used.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, close_name, located, nearest, nearest_key, shown

if TYPE_CHECKING:
    from arena.game.api import BatchedEnv
    from arena.game.context import EnvContext


class Entry(NamedTuple):
    """A built-in: its target, a line of description, and the package that it needs, with the extra that installs it."""

    target: str
    description: str
    package: str = ""
    extra: str = ""


ENVIRONMENTS: dict[str, Entry] = {
    "touchdown": Entry("envs.touchdown:Touchdown", "two teams on a square; who crosses the far line first wins"),
    "cover": Entry("envs.cover:Cover", "players share the reward of covering all targets"),
    "matrix": Entry("envs.matrix:Matrix", "matrix games of two players with known optima"),
    "poker": Entry("envs.poker:Poker", "Kuhn and Leduc poker, two players in turns; known equilibria"),
    "minesweeper": Entry("envs.minesweeper:Minesweeper", "units: robots defuse mines on a board"),
    "multi_snake": Entry("envs.multi_snake:MultiSnake", "units: one player moves several snakes"),
    "skirmish": Entry("envs.skirmish:Skirmish", "units: two teams of soldiers fight"),
    "unit_task": Entry(
        "envs.unit_tasks:unit_task",
        "units: small tasks (cherry_pick, count, xor, not_hotdog, floor_is_lava, rock_paper_scissors, armed_bandit, "
        "matching_balls)",
    ),
}

SOURCES = ("gymnasium", "gymnasium_vec", "pettingzoo", "envpool")
"""Of games by their name in a library, as `gymnasium:CartPole-v1`."""

EXTERNAL: dict[str, Entry] = {
    "shared_memory": Entry(
        "arena.external.shared_memory.games:SharedMemoryGames", "simulators in any language that share a file"
    ),
    "http": Entry("arena.external.http:HttpGames", "games that call a server, POST /step", "httptools", "http"),
}
"""Kinds of connections to external games, which stand under `make` as environments do."""

ALGORITHMS: dict[str, Entry] = {
    "random": Entry("policies.random:Random", "uniform over the allowed actions; learns nothing"),
    "scripted": Entry("policies.scripted:Scripted", "a constant action, or a function of the observations"),
    "a2c": Entry("policies.a2c:A2C", "advantage actor-critic (Mnih et al. 2016)"),
    "impala": Entry("policies.impala:IMPALA", "actors that do not wait, V-trace (Espeholt et al. 2018)"),
    "ppo": Entry("policies.ppo:PPO", "proximal policy optimization (Schulman et al. 2017)"),
    "mappo": Entry("policies.mappo:MAPPO", "multi-agent PPO: the critic sees the whole team (Yu et al. 2022)"),
    "hppo": Entry("policies.hppo:HPPO", "hierarchical PPO: a manager picks an option for a while, a worker acts by it"),
    "bc": Entry("policies.bc:BehaviorCloning", "behavior cloning: imitates recorded samples (Pomerleau 1991)"),
    "iql": Entry("policies.iql:IQL", "implicit Q-learning from recorded samples (Kostrikov et al. 2021)"),
    "dqn": Entry("policies.dqn:DQN", "deep Q-learning: double, dueling, n-step, prioritized (Mnih et al. 2015)"),
    "ddpg": Entry("policies.ddpg:DDPG", "deep deterministic policy gradient (Lillicrap et al. 2016)"),
    "td3": Entry("policies.td3:TD3", "twin delayed deep deterministic policy gradient (Fujimoto et al. 2018)"),
    "sac": Entry("policies.sac:SAC", "soft actor-critic, of numbers or choices (Haarnoja et al. 2018)"),
    "maddpg": Entry("policies.maddpg:MADDPG", "multi-agent DDPG: critics see the whole team (Lowe et al. 2017)"),
    "masac": Entry("policies.masac:MASAC", "multi-agent SAC: critics see the whole team, actors keep their entropy"),
    "vdn": Entry("policies.vdn:VDN", "a team's value is the sum of its entities' values (Sunehag et al. 2018)"),
    "qmix": Entry("policies.qmix:QMIX", "VDN with a monotonic network of the state for the sum (Rashid et al. 2018)"),
    **{
        f"sb3:{name}": Entry(f"policies.sb3.member:{name}", f"{name} of Stable-Baselines3", "stable_baselines3", "sb3")
        for name in ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3")
    },
}

WRAPPERS: dict[str, Entry] = {
    "frame_stack": Entry("envs.adapters.wrappers:FrameStack", "the last N observations as one"),
    "grayscale": Entry("envs.adapters.wrappers:Grayscale", "pictures without color"),
    "resize": Entry("envs.adapters.wrappers:Resize", "pictures of another height and width"),
    "clip_reward": Entry("envs.adapters.wrappers:ClipReward", "rewards within a bound, or their sign"),
    "time_limit": Entry("envs.adapters.wrappers:TimeLimit", "episodes are truncated after N ticks"),
    "soft_time_limit": Entry(
        "envs.adapters.wrappers:SoftTimeLimit", "truncated after N ticks; the next episode goes on where the game is"
    ),
    "no_termination": Entry("envs.adapters.wrappers:NoTermination", "what terminates is truncated"),
    "state": Entry("envs.adapters.wrappers:State", "observations with the state of the whole game, for qmix"),
}

LOGGERS: dict[str, Entry] = {
    "csv": Entry("arena.loggers.csv_file:Csv", "results as a table: progress.csv"),
    "tensorboard": Entry("arena.loggers.tensorboard:TensorBoard", "results and curves for TensorBoard"),
    "mlflow": Entry("arena.loggers.mlflow:Mlflow", "results to MLflow", "mlflow", "mlflow"),
    "wandb": Entry("arena.loggers.wandb:WandB", "results to Weights & Biases", "wandb", "wandb"),
}

_OF_LEARNING_ON_GPU = ("precision", "deterministic", "cuda_graphs")  # refused where `device` is cpu

_KINDS = ("environment", "algorithm", "wrapper", "callback", "logger")
REGISTERED = SimpleNamespace(**{kind: SimpleNamespace() for kind in _KINDS})
"""What users have registered, as attributes by kind and name: the target of each is `arena.registry:REGISTERED...`."""

SCHEDULES = TICKS, EPISODES = "ticks", "episodes"
"""When the workers of a policy synchronize."""

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_NAME_RULE = "use lowercase letters, digits and '_', the first a letter"
_PACKAGES = ("envs", "policies")  # installed beside `arena`; a user's folder may have the same name
_HOME = Path(__file__).resolve().parent.parent
_LIBRARY = Path(importlib.__file__).parent
_NOT_THEIRS = *(f"{_HOME / part}/" for part in ("arena", "policies", "envs/adapters")), f"{_LIBRARY}/"
_INSTALLED = f"{_HOME / 'envs'}/", f"{_LIBRARY.parent}/"
_BY_PLACE = 2  # positional parameters of a worker: env, group
_OFFERED = {"environment": {**ENVIRONMENTS, **EXTERNAL}, "algorithm": ALGORITHMS, "logger": LOGGERS}  # kinds of plugins
_KIND_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}


def register_environment(name: str, factory: Callable[..., Any]) -> None:
    """Gives a name to a callable that creates an environment; then `make` may name it.

    Args:
        name: lowercase letters, digits and `_`, the first a letter.
        factory: called with the `kwargs` of the configuration; with `context` too, an `EnvContext`, if it takes that.

    Raises:
        ConfigError: the name is taken, or cannot be used.
    """
    _register("environment", {**ENVIRONMENTS, **EXTERNAL}, name, factory)


def register_algorithm(name: str, cls: type[Any]) -> None:
    """Gives a name to the class of an algorithm; as `register_environment`."""
    _register("algorithm", ALGORITHMS, name, cls)


def register_wrapper(name: str, wrapper: Callable[..., Any]) -> None:
    """Gives a name to a Gymnasium wrapper; as `register_environment`."""
    _register("wrapper", WRAPPERS, name, wrapper)


def register_callback(name: str, cls: type[Any]) -> None:
    """Gives a name to a class of callbacks; as `register_environment`."""
    _register("callback", {}, name, cls)


def register_logger(name: str, cls: type[Any]) -> None:
    """Gives a name to a class of loggers; as `register_environment`."""
    _register("logger", LOGGERS, name, cls)


def _register(kind: str, built_in: Mapping[str, Entry], name: str, found: Any) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigError(f"the name {name!r} of {_article(found)} cannot be used: {_NAME_RULE}")
    if not callable(found):
        raise ConfigError(f"{name!r} is {_article(found)}, which cannot be called")
    known = vars(getattr(REGISTERED, kind))
    before = known.get(name, found)
    places = [(getattr(one, "__module__", None), getattr(one, "__qualname__", "<")) for one in (before, found)]
    redefined = places[0] == places[1] and "<" not in places[0][1]  # the same definition runs again, as in a notebook
    if name in built_in or not (before is found or redefined):
        other = "built in" if name in built_in else _article(known[name])
        raise ConfigError(f"the {kind} {name!r} is there already: {other}; choose another name for {_article(found)}")
    known[name] = found


def registered_names(kind: str) -> Mapping[str, Any]:
    """The objects that users have registered as an environment, algorithm, wrapper, callback or logger, by name."""
    found: Mapping[str, Any] = vars(getattr(REGISTERED, kind))
    return found


def import_plugins(modules: Iterable[str]) -> None:
    """Imports the modules of the key `imports`, which register names.

    Raises:
        ConfigError: one cannot be imported; the message has its own error.
    """
    for index, module in enumerate(modules):
        with located(path=f"imports[{index}]"):
            _import(module, module)


class Plugin(NamedTuple):
    """A name that an installed distribution gives to an environment, an algorithm or a logger."""

    kind: str
    name: str
    target: str  # as `package.module:attribute`
    distribution: str  # with its version


def plugins() -> tuple[Plugin, ...]:
    """The entry points of the groups `arena.environments`, `arena.algorithms` and `arena.loggers`; imports nothing."""
    return _plugins(tuple(sys.path))


@cache
def _plugins(_: tuple[str, ...]) -> tuple[Plugin, ...]:
    from importlib.metadata import entry_points  # 20 ms, which most processes do without

    found = {
        Plugin(kind, one.name, one.value.partition("[")[0].strip(), f"{one.dist.name} {one.dist.version}")
        for kind in _OFFERED
        for one in entry_points(group=f"arena.{kind}s")
        if one.dist is not None
    }
    return tuple(sorted(found))


def added() -> list[Plugin]:
    """The names that users have registered, of no distribution, and those of plugins."""
    kinds = vars(REGISTERED)
    return [*(Plugin(kind, name, "", "") for kind in kinds for name in vars(kinds[kind])), *plugins()]


def load_plugin(plugin: Plugin) -> Any:
    """The object of a plugin.

    Raises:
        ConfigError: its name cannot be used, or as `load_object`.
    """
    built_in = plugin.name in _OFFERED.get(plugin.kind, ())
    if built_in or not _NAME.match(plugin.name):
        rule = "it is built in" if built_in else _NAME_RULE
        remedy = f"rename it in the entry points, or name {plugin.target!r}"
        raise ConfigError(f"the name {plugin.name!r} of {plugin.distribution} cannot be used: {rule}; {remedy}")
    return load_object(target_of(plugin.name, plugin.kind) or plugin.target)


def target_of(name: str, kind: str) -> str | None:
    """The target of a name that a user or a plugin has given to an object; None if there is no such name.

    Raises:
        ConfigError: several distributions give this name.
    """
    if name in registered_names(kind):
        return f"{__name__}:REGISTERED.{kind}.{name}"
    offered = [one for one in plugins() if (one.kind, one.name) == (kind, name)] if _NAME.match(name) else []
    if len(offered) > 1:
        places = " and ".join(f"{one.distribution} ({one.target})" for one in offered)
        raise ConfigError(f"the {kind} {name!r} is of {places}: uninstall one, or name its 'package.module:Name'")
    return offered[0].target if offered else None


def load_object(target: str) -> Any:
    """The object that `package.module:attribute` names; the attribute may have dots.

    Raises:
        ConfigError: not of this form; no such module or attribute; or an error during the import of the module, which
            is in the message, and is the cause.
    """
    module_name, colon, attribute = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not (colon and attribute and module_name and not module_name.startswith(".")):
        raise ConfigError(f"{target!r} is not of the form 'package.module:attribute'")
    found: Any = _import(module_name, target)
    for part in attribute.split("."):
        if not hasattr(found, part):
            if module_name == "__main__":
                raise ConfigError(
                    f"{target!r}: this program has no {part!r} at its top level; what several programs use has to be "
                    "in a module"
                )
            where = getattr(found, "__file__", None) or repr(found)
            can_be_called = [
                one for one in dir(found) if one[0] != "_" and callable(inspect.getattr_static(found, one, None))
            ]
            close = close_name(part, can_be_called)
            hint = "" if close is None else f"; did you mean {close!r}?"
            raise ConfigError(f"{target!r}: {where} has no {part!r}{hint}{_shadow_note(module_name)}")
        found = getattr(found, part)
    return found


def load_class(target: str) -> type[Any]:
    """The class that `package.module:Class` names.

    Raises:
        ConfigError: it is no class; or as `load_object`.
    """
    found = load_object(target)
    if not isinstance(found, type):
        raise ConfigError(f"{target!r} is a {type(found).__name__}; it has to be a class")
    return found


def check_method(cls: type[Any], name: str, arguments: Sequence[str]) -> None:
    """Refuses a method of a user's class that cannot be called with these arguments."""
    bound = inspect.getattr_static(cls, name).__get__(object.__new__(cls), cls)
    try:
        inspect.signature(bound).bind(*arguments)
    except TypeError as error:
        text = f"{cls.__name__}.{name} cannot be called with ({', '.join(arguments)}): {error}"
        raise ConfigError(f"{text}{where_defined(cls, name)}") from error


def made_object(cls: type[Any], options: Mapping[str, Any], *, path: str) -> Any:
    """An object of a user's class, whose options are the arguments of `__init__`, or its `Options`.

    Raises:
        ConfigError: it does not take the options, or has raised.
    """
    decoded = decode_options(cls, options, path=path, by_place=0)
    try:
        return cls(**decoded)
    except ConfigError as error:
        raise ConfigError(f"{cls.__name__}: {error.message}", path=f"{path}.options") from error
    except (Exception, SystemExit) as error:  # any error of the class: the options have caused it
        found = f"{cls.__name__}: {type(error).__name__}: {error}{where_raised(error)}"
        raise ConfigError(found, path=f"{path}.options") from error


def _import(module_name: str, target: str) -> ModuleType:
    try:
        with uncollected():
            return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # any error of the module, also one that ends a script
        # The missing module may also be one that the module itself imports.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{target!r}: there is no module {error.name!r}; install it, or start in the directory that "
                f"contains it{_shadow_note(module_name)}{_plugin_note(module_name)}"
            ) from error
        raise ConfigError(
            f"{target!r}: the module {module_name!r} was found, but importing it failed with "
            f"{type(error).__name__}: {error}{where_raised(error)}{_plugin_note(module_name)}"
        ) from error


def _plugin_note(module_name: str) -> str:
    """Of which installed distribution a module is, if it is of a plugin."""
    of = {one.distribution for one in plugins() if one.target.partition(":")[0] == module_name}
    return f"; it is of the installed {' and '.join(sorted(of))}" if of else ""


def where_raised(error: BaseException) -> str:
    """The innermost line of the user in a traceback, else of an installed package, as ` (file, line n)`, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not frame.filename.startswith(("<", *_NOT_THEIRS))]
    own = [one for one in others if not ("-packages/" in one.filename or one.filename.startswith(_INSTALLED))]
    last = next(reversed(own or others), None)
    return f" ({shown(last.filename)}, line {last.lineno})" if last else ""


def where_defined(cls: Callable[..., Any], method: str) -> str:
    """Where a method of a user's class is defined, as ` (file, line n)`; of a class without the method, or a compiled
    one, nothing."""
    code = getattr(inspect.unwrap(getattr(cls, method, cls)), "__code__", None)
    if code is None or code.co_filename.startswith(("<", *_NOT_THEIRS)):
        return ""
    return f" ({shown(code.co_filename)}, line {code.co_firstlineno})"


@contextmanager
def method_located(cls: type[Any], method: str) -> Iterator[None]:
    """Around a use of a user's method: errors that no line of the user has raised get the place of the method."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        if error.args == (str(error),) and not where_raised(error):  # not a UnicodeDecodeError, with five arguments
            error.args = (f"{error}{where_defined(cls, method)}",)
        raise


def _shadow_note(module_name: str) -> str:
    """A note about two packages of one name: the arena's own `envs` or `policies`, and a user's."""
    package = module_name.partition(".")[0]
    if package not in _PACKAGES:
        return ""
    module, other = sys.modules.get(package), anchored(package)
    here = None
    if module is not None:
        here = Path([*getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""][0]).resolve()
    if here is not None and here != _HOME / package:
        return f". The arena's own package {package!r} is hidden by {here}: rename that one"
    if other.exists() and other.resolve() != _HOME / package:
        return f". The name {package!r} belongs to the arena's own package in {_HOME}: rename your folder {other}"
    return ""


def hidden_packages() -> list[str]:
    """A line for each package of the arena that one of another origin hides from this process."""
    lines = []
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        found = f"missing in {_HOME}: install the arena again"
        if spec is not None:
            place = Path([*(spec.submodule_search_locations or ()), spec.origin or ""][0]).resolve()
            if place == _HOME / package:
                continue
            found = f"hidden by {place}: rename that one"
        lines.append(f"the arena's own package {package!r} is {found}")
    return lines


def environment_factory(make: str) -> Callable[..., Any]:
    """The factory of an environment, called as `factory(**kwargs)`.

    Args:
        make: a short name, `SOURCE:NAME` with one of `SOURCES`, or `package.module:callable`.

    Raises:
        ConfigError: the name is unknown, or is not a callable.
    """
    source, colon, name = make.partition(":")
    if colon and source in SOURCES:
        return cast("Callable[..., Any]", load_object(f"envs.adapters:{source}_factory")(name))
    return _callable(make, ENVIRONMENTS | EXTERNAL, "environment", "creates")


def _callable(name: str, known: Mapping[str, Entry], what: str, verb: str) -> Callable[..., Any]:
    _check_installed(name, known.get(name))
    found = load_object(_target(name, known, what))
    if not callable(found):
        raise ConfigError(f"{name!r} is {_article(found)}, not a callable that {verb} an environment")
    return cast("Callable[..., Any]", found)


_CONNECTION_METHODS = ("open", "poll", "answer", "drop", "pause", "close")
_POLLED_METHODS = ("poll", "send_actions", "try_reset", "stop")


def external_kind(make: str) -> str | None:
    """The kind of connection to the games of an external environment; None for an ordinary environment.

    A key of `EXTERNAL`; `thread` for a subclass of `ExternalEnv`, `poll` for a `PollEnv`, `games` for another class
    that is an `ExternalGames`, each given as `package.module:Class` or by its registered name.
    """
    if make in EXTERNAL:
        return make
    source, colon, _ = make.partition(":")
    if make in ENVIRONMENTS or source in SOURCES:
        return None
    if (target := make if colon else target_of(make, "environment")) is None:
        return None
    found = load_object(target)
    if not isinstance(found, type):
        return None
    if any((kind.__module__, kind.__name__) == ("arena.external.thread", "ExternalEnv") for kind in found.__mro__):
        return "thread"
    for kind, methods in (("games", _CONNECTION_METHODS), ("poll", _POLLED_METHODS)):
        if all(callable(getattr(found, name, None)) for name in methods):
            return kind
    return None


def game_arguments(make: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an environment that describe its games; other values of the rest may be given at a resume.

    The rest are the keys that say where and how external games are reached: those outside of `Options.GAME`.
    """
    options = getattr(environment_factory(make), "Options", None) if make in EXTERNAL else None
    return {key: value for key, value in arguments.items() if options is None or key in options.GAME}


def written_out(make: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an environment, and those that they leave at the defaults of its class or function."""
    try:
        parameters = inspect.signature(environment_factory(make)).parameters.values()
    except ValueError:  # a class in C that does not tell its parameters
        return dict(arguments)
    return {one.name: one.default for one in parameters if one.default is not one.empty} | dict(arguments)


def adapt_environment(
    make: str,
    kwargs: Mapping[str, Any],
    lanes: int,
    wrappers: Sequence[tuple[str, Any]] = (),
    contexts: Sequence[EnvContext] | None = None,
    *,
    screen: str | None = None,
) -> BatchedEnv:
    """Creates an environment of `lanes` lanes. Errors of its constructor pass through unchanged.

    Args:
        make: as for `environment_factory`.
        kwargs: arguments of the environment.
        lanes: the number of copies that step together.
        wrappers: name and argument of each, the innermost first.
        contexts: per lane its place in the run; None: outside of a run.
        screen: the kind of virtual screen that it needs; None: none.

    Raises:
        ConfigError: there is no such screen; the path is `screen`.
    """
    if screen is not None:
        load_object("envs.adapters.screen:open_screen")()
    adapt = load_object("envs.adapters:adapt")
    source, colon, _ = make.partition(":")
    of_source = bool(colon) and source in SOURCES
    made = adapt(environment_factory(make), dict(kwargs), lanes, wrappers, contexts, from_package=of_source)
    return cast("BatchedEnv", made)


def wrapper(name: str) -> Callable[..., Any]:
    """The class or function of a wrapper: a short name, or a user's own as `package.module:Wrapper`.

    Raises:
        ConfigError: the name is unknown, or is not a callable.
    """
    return _callable(name, WRAPPERS, "wrapper", "wraps")


def algorithm(name: str) -> type[Any]:
    """The class of an algorithm: a short name, or `package.module:Class`.

    Raises:
        ConfigError: the name is unknown, the package that it needs is not installed, or it is not a class with
            `face` and `run`.
    """
    _check_installed(name, ALGORITHMS.get(name))
    found = load_object(_target(name, ALGORITHMS, "algorithm"))
    if not isinstance(found, type):
        raise ConfigError(f"the algorithm {name!r} is {_article(found)}; it has to be a class")
    missing = [what for member, what in (("face", "`face`"), ("run", "run()")) if not hasattr(found, member)]
    if missing:
        raise ConfigError(
            f"the algorithm {name!r} has no {' and no '.join(missing)}: a worker is a class with a `face`, such as "
            '"gym", and a method run() that steps its environment'
        )
    return found


class ConfiguredAlgorithm(NamedTuple):
    """The class of a policy's algorithm, and the policy's options in the types that the class declares."""

    cls: type[Any]
    options: dict[str, Any]


def configured_algorithm(
    name: str, options: Mapping[str, Any], *, acts: bool, path: str, any_device: bool = False
) -> ConfiguredAlgorithm:
    """The class of a policy's algorithm, checked against the configuration, and its options.

    Args:
        name: a short name, or `package.module:Class`.
        options: from the configuration.
        acts: whether the policy plays without learning, always or at times.
        path: of the policy, such as `policies.blue`.
        any_device: whether a `device` other than cpu becomes `auto`, if the algorithm's struct `Options` knows that
            word: for a policy that never learns here, so that a policy trained on a GPU plays on any machine.

    Raises:
        ConfigError: there is no such class; it does not take the options, has another signature than the arena's calls,
            or plays without learning and has no `actor()`.
    """
    with located(path=f"{path}.algorithm"):
        cls = algorithm(name)
        if acts and not hasattr(cls, "actor"):
            raise ConfigError(f"to play without learning an algorithm needs actor(); {name!r} has none")
    declared = _declared_options(cls) if any_device and options.get("device", "cpu") != "cpu" else None
    if declared and _is_struct(declared):
        kind = get_type_hints(declared).get("device")
        if any("auto" in get_args(arm) for arm in (kind, *get_args(kind))):
            if isinstance(device := options["device"], Mapping):  # one for acting, one for learning
                device = device.get("act", "cpu")
                options = {name: value for name, value in options.items() if name not in _OF_LEARNING_ON_GPU}
            options = {**options, "device": "cpu" if device == "cpu" else "auto"}
    decoded = decode_options(cls, options, path=path)
    with located(path=f"{path}.algorithm"):
        try:
            inspect.signature(cls).bind(None, None, ticks=1, **decoded)
        except TypeError as error:
            how = "(env, group, *, ticks, **options), as for every worker"
            text = f"{cls.__name__}.__init__ cannot be called with {how}: {error}{where_defined(cls, '__init__')}"
            raise ConfigError(text) from error
        schedule_of(cls)
    return ConfiguredAlgorithm(cls, decoded)


def schedule_of(cls: type[Any]) -> str:
    """When the workers of an algorithm synchronize, by its `schedule`: `ticks` or `episodes` (the default).

    Raises:
        ConfigError: `schedule` has another value.
    """
    schedule = getattr(cls, "schedule", EPISODES)
    if schedule not in SCHEDULES:
        raise ConfigError(
            f"{cls.__name__}.schedule is {schedule!r}; it is {TICKS!r} if workers synchronize after the same ticks "
            f"of their matches, or {EPISODES!r} if they do after episodes; {nearest(str(schedule), SCHEDULES)}"
        )
    return str(schedule)


def callback_target(name: str) -> str:
    """The class of a callback, as `package.module:Class`; of a name that is not registered, the name itself."""
    return _target(name, {}, "callback") if name in registered_names("callback") else name


def logger_target(name: str) -> str:
    """The class of a logger, as `package.module:Class`.

    Raises:
        ConfigError: an unknown short name.
    """
    _check_installed(name, LOGGERS.get(name))
    return _target(name, LOGGERS, "logger")


def check_names(
    environments: Mapping[str, str], algorithms: Mapping[str, str], wrappers: Mapping[str, Sequence[str]]
) -> None:
    """Refuses unknown short names without importing anything: `make`, `algorithm` and `wrappers` of each entry."""
    for entry, make in environments.items():
        with located(path=f"envs.{entry}.make"):
            _target(make, ENVIRONMENTS | EXTERNAL, "environment")
    for entry, names in wrappers.items():
        for index, name in enumerate(names):
            with located(path=f"envs.{entry}.wrappers[{index}]"):
                _target(name, WRAPPERS, "wrapper")
    for policy, name in algorithms.items():
        with located(path=f"policies.{policy}.algorithm"):
            _target(name, ALGORITHMS, "algorithm")


def _target(name: str, known: Mapping[str, Entry], what: str) -> str:
    if name in known:
        return known[name].target
    if (target := target_of(name, what)) is not None:
        return target
    sources = {source for source, colon, _ in (other.partition(":") for other in known) if colon}
    if ":" in name and name.partition(":")[0] not in sources:
        return name
    if (what, name) == ("environment", "socket"):
        raise ConfigError("'socket' is no longer supported: set `http`; `PolicyClient` has the same methods over HTTP")
    hint, names = "", [*known, *(one.name for one in added() if one.kind == what)]
    version = re.search(r"([-_])v\d+$", name)  # a game of another library: `CartPole-v1`, `mpe2.simple_tag_v3`
    if what == "environment" and version is not None and ":" not in name:
        library, source = {"-": ("Gymnasium", "gymnasium"), "_": ("PettingZoo", "pettingzoo")}[version[1]]
        hint = f"write a game of {library} as '{source}:{name.removeprefix(f'{source}.')}'; "
    raise ConfigError(f"unknown {what} {name!r}; {hint}{nearest(name, names)}; or your own as 'package.module:Name'")


def _check_installed(name: str, entry: Entry | None) -> None:
    if entry is not None and entry.package and importlib.util.find_spec(entry.package) is None:
        raise ConfigError(
            f"{name!r} needs the package {entry.package!r}, which is not installed; it comes with the extra "
            f'{entry.extra!r}, as in: pip install "mpi-policy-arena[{entry.extra}]"'
        )


def _article(found: Any) -> str:
    return f"a {type(found).__name__} ({found!r:.60})"


class Parameters(NamedTuple):
    """The options that an algorithm takes."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    open: bool  # takes others as well (`**kwargs`)
    defaults: dict[str, Any]


def option_parameters(cls: type[Any], by_place: int = _BY_PLACE) -> Parameters:
    """The options of a class: the fields of its `Options` struct or dataclass, else the keywords of `__init__`.

    `by_place` is the number of arguments before the options, such as `env` and `group`.
    """
    options = _declared_options(cls)
    if options is not None:
        parameters = list(inspect.signature(options).parameters.values())
    else:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        of_class = enumerate(inspect.signature(cls).parameters.values())
        parameters = [item for place, item in of_class if place >= by_place or item.kind not in positional]
    named = [item for item in parameters if item.kind in (item.KEYWORD_ONLY, item.POSITIONAL_OR_KEYWORD)]
    named = [item for item in named if item.name != "ticks" or not by_place]  # an algorithm gets it from the arena
    return Parameters(
        names=tuple(item.name for item in named),
        required=tuple(item.name for item in named if item.default is item.empty),
        open=any(item.kind is item.VAR_KEYWORD for item in parameters),
        defaults={item.name: item.default for item in named if item.default is not item.empty},
    )


def _declared_options(cls: type[Any]) -> type[Any] | None:
    """The class `Options` of an algorithm, where it is a struct or a dataclass."""
    options = getattr(cls, "Options", None)
    declared = isinstance(options, type) and (dataclasses.is_dataclass(options) or _is_struct(options))
    return options if declared else None


def _is_struct(kind: type[Any]) -> bool:
    """Whether a class is a msgspec struct; does not import msgspec."""
    return hasattr(kind, "__struct_fields__")


def decode_options(
    cls: type[Any], options: Mapping[str, Any], *, path: str, by_place: int = _BY_PLACE
) -> dict[str, Any]:
    """The options of an algorithm in the types that it declares: the values of its `Options` struct.

    An algorithm without a struct gets the values unchanged, after a check by its `Options` dataclass or the annotations
    of its `__init__`. Last its classmethod `check_options(options)` is called, for instance to find a function or a
    device.

    Args:
        cls: the algorithm.
        options: from the configuration.
        path: of the policy, such as `policies.blue`.
        by_place: the number of arguments before the options, such as `env` and `group`.

    Raises:
        ConfigError: an unknown option, a missing one, or a wrong value, with the place in the configuration.
    """
    parameters = option_parameters(cls, by_place)
    for name in options:
        if (by_place and name == "ticks") or (name not in parameters.names and not parameters.open):
            target = f"{cls.__module__}:{cls.__qualname__}"
            listed = next((one for one, entry in ALGORITHMS.items() if entry.target == target), target)
            close = nearest_key(name, parameters.names, listing=f"arena list {listed}" if by_place else "")
            message = f"{cls.__name__} has no option {name!r}; {close}"
            raise ConfigError(message, path=f"{path}.options.{name}".removeprefix("."))
    missing = [name for name in parameters.required if name not in options]
    if missing:
        message = f"{cls.__name__} needs the option {missing[0]!r}, which has no default"
        message += "" if by_place else f". It takes: {', '.join(parameters.names)}"
        raise ConfigError(message, path=f"{path}.options".removeprefix("."))
    declared, decoded = _declared_options(cls), dict(options)
    with located(inside=path):
        try:
            if declared is None:
                check_kinds(cls, options)
            elif _is_struct(declared):
                from arena.config.decode import convert  # imported only for algorithms with a struct

                struct = convert(declared, options, "options")
                decoded = {name: getattr(struct, name) for name in options}
            else:
                declared(**options)
            if hasattr(cls, "check_options"):
                cls.check_options(dict(decoded))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{cls.__name__}: {error}", path="options") from error
    return decoded


def check_kinds(cls: type[Any], options: Mapping[str, Any]) -> None:
    """Checks values against the annotations of `__init__` that are numbers, text, booleans or None."""
    parameters = inspect.signature(cls.__init__).parameters
    names = getattr(cls.__init__, "__globals__", {})
    for name, value in options.items():
        if name not in parameters or (value is None and parameters[name].default is None):  # `rate: float = None`
            continue
        annotations = SimpleNamespace(__annotations__={"option": parameters[name].annotation})
        try:
            kind = get_type_hints(annotations, names)["option"]
        except Exception:  # an annotation may be anything; this one cannot be evaluated
            continue
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if not all(isinstance(one, type) and one in _KIND_WORDS for one in kinds):
            continue
        # A whole number is a number too, a boolean is not.
        if not any(
            one is bool if isinstance(value, bool) else isinstance(value, (int, float) if one is float else one)
            for one in kinds
        ):
            text = " or ".join(_KIND_WORDS[one] for one in kinds)
            raise ConfigError(f"got {value!r}, expected {text}", path=f"options.{name}")


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses the garbage collector, and excludes imported objects from later collections.

    Saves one tenth of the import time of big libraries, and a third of it when the process ends.
    """
    was_enabled, known = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:  # else this would only keep garbage
            gc.freeze()
        if was_enabled:
            gc.enable()
