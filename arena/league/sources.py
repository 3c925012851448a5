"""Where policies come from: configurations and runs, and the name of a policy in them, `RUN:POLICY@TICK`.

runs/duel:blue@5000    the policy `blue` of a run with its checkpoint or snapshot of tick 5000
runs/duel:blue@best    likewise `first`, `last`, `best`
runs/duel:blue         with its newest checkpoint
duel.yaml:blue         of a configuration, which has no checkpoints
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from arena import registry
from arena.config import Config, load_config, load_with_origin
from arena.config.load import load_data
from arena.config.matches import Match, reseated
from arena.config.schema import Policy
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError, Origin, located, nearest, shown
from arena.league import rounds_file
from arena.league.changes import with_newest_games
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder, numbered
from arena.records.formats import Round

AnyConfig: TypeAlias = Config | Mapping[str, Any] | Path | str
"""A configuration made in Python, the contents of a file, or the path of a file or run folder."""
_OPPONENT = "opponent"
FORM = "RUN:POLICY@TICK, as runs/duel:blue@5000 (or first, last, best)"


class Named(NamedTuple):
    """A policy of a source, by its name."""

    policy: str
    label: str  # of its checkpoint: `first`, `last`, `best`, or a tick; empty: none is named


class Source:
    """A configuration, or a run with its configuration, whose games have the arguments that they were last given.

    Attributes:
        path: of its file or folder, for messages; empty: it was made in Python.
        config: its configuration.
        folder: of the run; None: it is a configuration.
        origin: the path and the overrides, which errors name.
    """

    def __init__(
        self, config: Config, folder: RunFolder | None = None, path: str = "", origin: Origin | None = None
    ) -> None:
        self.config, self.folder, self.path = config, folder, path
        self.origin = origin or Origin(path)

    @classmethod
    def of(cls, target: AnyConfig, overrides: Sequence[str] = ()) -> Source:
        """The source that a path, or a configuration made in Python, is; ConfigError: there is no such file or run."""
        if not isinstance(target, (Config, Mapping)):
            check_path(target, "a configuration: the path of a file or run folder, its contents, or an arena.Config")
        path = "" if isinstance(target, (Config, Mapping)) else str(target)
        folder = RunFolder.of_target(path) if path else None
        config, origin = load_with_origin(target if folder is None else folder.config, overrides)
        config = config if folder is None else with_newest_games(config, folder, overrides)
        source = cls(config, folder, path, origin._replace(source=path))
        if folder is not None and overrides:
            kept = load_data(folder.config).get("policies", {})
            for name, policy in config.policies.items():
                if policy.load not in (None, kept.get(name, {}).get("load")) and source.files(name):
                    raise ConfigError(
                        "cannot be changed, as the weights of a run come from its checkpoints: name one of its "
                        f"checkpoints, or take {shown(folder.config)} with `load` of each policy",
                        path=f"policies.{name}.load",
                        source="--set",
                    )
        return source

    @cached_property
    def rounds(self) -> Sequence[Round]:
        """The rounds that were planned; none if there is only one."""
        return () if self.folder is None else rounds_file.read_played(self.folder, self.config)

    def files(self, policy: str) -> dict[int, Path]:
        """The checkpoints and snapshots of a policy, by ticks."""
        if self.folder is None:
            return {}
        best = [file] if (file := self.folder.checkpoints_path(policy) / checkpoint.BEST).exists() else []
        snapshots = checkpoint.list_checkpoints(self.folder.snapshots_path(policy))
        files = [*best, *snapshots, *boundary.checkpoints_of(self.folder, policy)]
        return {checkpoint.ticks_of(file): file for file in files}

    def labeled(self, policy: str) -> dict[str, Path]:
        """The same by their labels: `first`, `last`, `best` if there is one, and ticks; empty without a checkpoint."""
        if self.folder is None or not (kept := boundary.checkpoints_of(self.folder, policy)):
            return {}
        best = {"best": file} if (file := self.folder.checkpoints_path(policy) / checkpoint.BEST).exists() else {}
        ticks = {str(tick): file for tick, file in sorted(self.files(policy).items())}
        return {"first": kept[0], "last": kept[-1], **best, **ticks}

    def named(self, name: str, *, path: str = "") -> Named:
        """The policy that `POLICY` or `POLICY@TICK` means; `path` is the option, for errors."""
        if name in self.config.policies:  # also a snapshot that the configuration loads
            return Named(name, "")
        policy, at, label = name.rpartition("@")
        if at and not policy:
            known = ", ".join(self.config.policies)
            text = f"names no policy: say which of {known}, by {self.path}:POLICY{name}"
            raise ConfigError(text, path=path, source=self.path + name)
        if policy not in self.config.policies:
            known = nearest(policy or name, self.config.policies)
            raise ConfigError(f"there is no policy {policy or name!r}; {known}", path=path, source=self.path)
        return Named(policy, label)

    def frozen(self, named: Named, *, path: str = "") -> Policy:
        """A policy as it was at a checkpoint, the newest one without a label, with the options of that time.

        A policy without checkpoints, such as a scripted one, is as configured. `path`: see `named`.
        """
        name, label = named
        policy = self.config.policies[name]
        options, file = policy.options, None
        if label or self.files(name):
            file = self.checkpoint(named, path=path)
            options = rounds_file.options_at(self.rounds, checkpoint.ticks_of(file)).get(name, options)
        elif policy.load is not None:  # the policy may play under another name and elsewhere
            with located(path=f"policies.{name}.load", source=self.path):
                file = find_checkpoint(policy.load, name, self.folder)
        load = None if file is None else str(file.resolve())
        return msgspec.structs.replace(policy, frozen=True, load=load, options=options)

    def checkpoint(self, named: Named, *, path: str = "") -> Path:
        """The file of a checkpoint or snapshot of this run, the newest checkpoint without a label."""
        name, label = named.policy, named.label or "last"
        labeled = self.labeled(name)
        if label not in labeled:
            why = "; the key `best` of a configuration keeps one" if label == "best" else ""
            kept = f"; {checkpoint.KEPT_TEXT}" if label.isdecimal() and labeled else ""
            message = f"there is no checkpoint {label!r} of {name!r}{why}; {nearest(label, labeled)}{kept}"
            raise ConfigError(message, path=path, source=self.path)
        return labeled[label]


def split(text: Path | str) -> tuple[str, str]:
    """The path of a run, and `POLICY@TICK`, of `RUN:POLICY@TICK`; the latter is empty where no policy is named.

    Of `RUN@TICK`, where the policy is forgotten, it is `@TICK`, which `Source.named` refuses.
    """
    check_path(text, FORM)
    run, _, name = str(text).rpartition(":")
    if os.path.exists(anchored(text)):  # `os.path`: False also where no path can be so long
        return str(text), ""
    before, at, label = str(text).rpartition("@")
    if before and os.path.isfile(RunFolder(before).config):
        return before, at + label
    return (run, name) if run and name else (str(text), "")


def named_in_run(text: Path | str) -> tuple[Source, Named]:
    """The run, and the policy in it, of `RUN:POLICY@TICK`; ConfigError: there is no such run or policy."""
    run, name = split(text)
    folder = RunFolder.existing(run)
    source = Source(load_config(folder.config), folder, run)
    if not name and (only := only_policy(source.config)) is not None:
        return source, Named(only, "")
    if not name:
        known = ", ".join(source.config.policies)
        raise ConfigError(f"names no policy: say which of {known}, by {FORM}", source=str(text))
    return source, source.named(name)


def only_policy(config: Config) -> str | None:
    """The policy that is meant where none is named: the only one, or the only one that learns; None: there is none."""
    found = [*config.policies] if len(config.policies) == 1 else sorted(config.learners)
    return found[0] if len(found) == 1 else None


def find_checkpoint(load: str, policy: str, folder: RunFolder | None = None, *, via: tuple[str, ...] = ()) -> Path:
    """The file that `load:` of a policy means: `RUN:POLICY@TICK`, a run or a file.

    Of a run alone, the checkpoints of `policy` are meant. `folder` is that of the run whose policy it is: its own copy
    counts, whatever has become of the other run; None: of a configuration. `via` are the `load:` that have led here.

    Raises:
        ConfigError: there is no such thing, or no checkpoint of this policy in it, or it loads itself.
    """
    if folder is not None and (copy := folder.loaded_path(policy, load)).is_file():
        return copy
    run, name = split(load)
    if not os.path.isabs(run) and not os.path.exists(anchored(run)):
        raise ConfigError(
            f"there is no such checkpoint file, checkpoint folder or run folder in {anchored('')}: a relative path is "
            "meant from the folder in which a command or program starts",
            source=load,
        )
    if not name:
        return checkpoint.find(load, policy)
    source, named = named_in_run(load)
    loaded = source.config.policies[named.policy].load
    if loaded is not None and not (named.label or source.files(named.policy)):  # as in `frozen`
        if loaded in via:
            raise ConfigError(
                f"{load}: its `load` leads back to itself ({' -> '.join((*via, load))}); name a checkpoint"
            )
        return find_checkpoint(loaded, named.policy, source.folder, via=(*via, load))
    return source.checkpoint(named)


# who plays against the policies of a source


def opposed(config: Config, policy: str, opponent: Policy) -> Config | None:
    """The matches of a policy with others, all others' seats taken by one opponent; None if there is no such match.

    Where the policy has all seats, as in the first round of a league, it keeps the first of two or more sides.
    """
    name = next(name for name in numbered(_OPPONENT) if name not in config.policies)
    matches: list[Match] = []
    for _, entry in config.entries():
        kept = {place for place, seat in enumerate(entry.names) if seat == policy}
        if len(kept) == len(entry.seats) and entry.known_sides:
            kept = set(entry.known_sides[0])
        if 0 < len(kept) < len(entry.seats):
            seats = tuple(seat if at in kept else reseated(seat, name) for at, seat in enumerate(entry.seats))
            changed = msgspec.structs.replace(entry, seats=seats)
            if changed not in matches:
                matches.append(changed)
    if not matches:
        return None
    policies = {policy: config.policies[policy], name: opponent}
    return msgspec.structs.replace(config, policies=policies, matches=tuple(matches))


def other_policy(source: Source, text: str, *, path: str) -> Policy | None:
    """What `POLICY@TICK` of a source, or `RUN:POLICY@TICK` of another run of the same game, means; None: neither.

    Raises:
        ConfigError: there is no such run, policy or checkpoint, or the run plays another game.
    """
    run, name = split(text)
    if not name or (name[0] == "@" and run in source.config.policies):
        return source.frozen(source.named(text, path=path), path=path) if "@" in text else None
    if not ("@" in name or "/" in run or anchored(run).is_file() or RunFolder(run).config.is_file()):
        return None  # a class, as `package.module:Class`
    with located(path=path):
        other = Source.of(run)
        registry.import_plugins(other.config.imports)
        found = other.frozen(other.named(name))
        ours, theirs = ({env.make for env in one.config.envs.values()} for one in (source, other))
        if not ours & theirs:
            raise ConfigError(f"plays {', '.join(sorted(theirs))}, not {', '.join(sorted(ours))}", source=run)
    return found


def opponent_of(config: Config, source: Source, against: str, *, path: str = "--against") -> Policy:
    """A policy of a frozen configuration, one of its source or of another run (`other_policy`), or an algorithm.

    Raises:
        ConfigError: it is none of them, or the algorithm cannot act without options.
    """
    with located(path=path):
        check_path(against, f"a policy, an algorithm, or {FORM}")
    if against in config.policies:
        return config.policies[against]
    if (other := other_policy(source, against, path=path)) is not None:
        return other
    if ":" not in against and anchored(against).exists():
        raise ConfigError(f"{against!r} names no policy: say which, by {FORM}", path=path)
    added = [one.name for one in registry.added() if one.kind == "algorithm"]
    if against not in registry.ALGORITHMS and ":" not in against and against not in added:
        known = [*config.policies, *registry.ALGORITHMS, *added]
        raise ConfigError(f"{against!r} is no policy and no algorithm; {nearest(against, known)}", path=path)
    try:
        registry.algorithm(against)
    except ConfigError as error:
        no_run = f", and no run folder {split(against)[0]!r}" if ":" in against else ""
        raise ConfigError(error.message + no_run, path=path) from error
    try:
        registry.configured_algorithm(against, {}, acts=True, path="")
    except ConfigError as error:
        raise ConfigError(
            f"the algorithm {against!r} cannot take the other seats without options: {error.message}; make it a policy "
            "of the configuration, with its options, and name that one",
            path=path,
        ) from error
    return Policy(algorithm=against, frozen=True)
