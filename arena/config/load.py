"""Reading a configuration: the file, overrides of the command line, all checks, and YAML back from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.config import overrides as overriding
from arena.config import yaml
from arena.config.check import check, check_entries
from arena.config.decode import convert, convert_field, removed_text, show
from arena.config.fields import plain
from arena.config.independent import expanded
from arena.config.matches import Match
from arena.config.overrides import Override
from arena.config.plain_data import from_python
from arena.config.schema import Config
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError, Origin, close_name


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads, overrides (`key.path=value`, as `--set` takes them; later ones win) and checks a configuration file."""
    return load_with_origin(path, overrides)[0]


def load_with_origin(
    config: Config | Mapping[str, Any] | Path | str, overrides: Sequence[str | Override] = ()
) -> tuple[Config, Origin]:
    """Reads a file, or takes data that are in memory; the origin names the file or override in later errors."""
    if isinstance(config, (Config, Mapping)):
        return _parse(config, "", overrides)
    check_path(config, "a configuration: the path of a YAML file, its contents, or an arena.Config")
    data = load_data(config)
    if data is None:
        text = "the file is empty; a configuration needs ticks, envs, policies and matches"
        raise ConfigError(text, source=str(config))
    return _parse(data, str(config), overrides)


def load_data(path: str | Path) -> Any:
    """The plain data of a YAML file, unchecked; raises ConfigError if the file cannot be read, or is not YAML."""
    check_path(path, "the path of a YAML file")
    path, source = Path(path), str(path)
    try:
        with anchored(path).open("rb") as file:
            content = file.read(yaml.MOST_CHARACTERS + 1)  # a device has no end
            if content.startswith(yaml.WRITTEN.encode()):
                content += file.read()
            elif len(content) > yaml.MOST_CHARACTERS:
                raise ConfigError(f"is longer than {yaml.MOST_CHARACTERS} bytes", source=source)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        folder = anchored(path).parent
        others = {other.stem: other.name for pattern in ("*.yaml", "*.yml") for other in folder.glob(pattern)}
        close = close_name(path.stem, others)  # without the ending, which all share
        hint = "" if close is None else f"did you mean {others[close]!r}? "
        known = f"; {hint}known: {', '.join(sorted(others.values()))}" if others else ""
        raise ConfigError(f"there is no such file{known}", source=source) from error
    except IsADirectoryError as error:
        config = path / "config.yaml"
        hint = f", as {config}; `--resume --run-dir {path}` goes on with its run" if anchored(config).is_file() else ""
        raise ConfigError(f"is a directory; name a YAML file{hint}", source=source) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start} is wrong); convert it", source=source) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', error)}", source=source) from error
    data = yaml.load(text, source=source)
    return _without_removed(data, "") if text.startswith(yaml.WRITTEN) else data


def _without_removed(data: Any, path: str) -> Any:
    """The data that an earlier version has written, without the keys that were removed."""
    if not isinstance(data, Mapping):
        return data
    placed = {key: f"{path}.{key}" if path else str(key) for key in data}
    removed = "reduce" in placed and removed_text(placed["reduce"]) is not None
    if removed and (data["reduce"], data.get("sync")) != ("fast", "samples"):
        placed.pop("max_lag", None)  # it had no effect then, and was written with its default
    return {key: _without_removed(data[key], at) for key, at in placed.items() if removed_text(at) is None}


def parse_config(data: Config | Mapping[str, Any], *, source: str, overrides: Sequence[str | Override] = ()) -> Config:
    """Overrides and checks configuration data that is already in memory.

    Args:
        data: as the YAML file would give it, or a configuration made in Python; not changed.
        source: where it came from; its stem is the default of `name`.
        overrides: of the form `key.path=value`, or read already.

    Returns:
        the configuration, in which each worker of an independent policy is a policy of its own.

    Raises:
        ConfigError: anything that is wrong.
    """
    return _parse(data, source, overrides)[0]


def _parse(data: Any, source: str, overrides: Sequence[str | Override]) -> tuple[Config, Origin]:
    data = from_python(data)
    if not isinstance(data, Mapping):
        raise ConfigError(f"a configuration is a mapping of keys to values, found {show(data)}", source=source)
    if "run" in data and not data.keys() & {"envs", "policies", "matches"}:
        text = f"is an experiment, as it has the key 'run'; start it with `arena experiment {source}`"
        raise ConfigError(text, source=source)
    changed, places = overriding.apply(data, overrides)
    origin = Origin(source, places)
    with origin.located():
        config = convert(Config, {"name": Path(source).stem, **changed}, "")
        check(config)
        return expanded(config), origin


def parse_proposed(config: Config, data: Any, players: Mapping[str, str], *, path: str) -> tuple[Match, ...]:
    """The matches of a round that a program proposes, checked as those of a file.

    Args:
        config: of the run.
        data: entries of `matches`, as the YAML file would give them; generators whose matches follow from the
            configuration alone are written out.
        players: the snapshots that may play: the policy of each, by the snapshot's name.
        path: what proposes them, for messages.

    Raises:
        ConfigError: anything that is wrong.
    """
    entries = convert_field(Config, "matches", data, path)
    if not entries:
        raise ConfigError("is empty; a round has at least one match", path=path)
    policies = dict(config.policies)
    for name, policy in players.items():
        policies[name] = msgspec.structs.replace(config.policies[policy], frozen=True, load=name)
    whole = msgspec.structs.replace(config, matches=entries, rounds=config.round_count, policies=policies)
    placed = [(place.replace("matches", path, 1), entry) for place, entry in whole.places()]
    for place, entry in placed:
        if entry.adaptive:
            raise ConfigError("depends on results, and cannot be proposed; propose the matches themselves", path=place)
    check_entries(whole, placed)
    return tuple(match for _, match in whole.entries())


def resolved_yaml(config: Config) -> str:
    """The configuration as YAML with every default written out; it loads to an equal `Config`."""
    return yaml.WRITTEN + yaml.dump(plain(config))
