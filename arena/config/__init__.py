"""The configuration of a run: a YAML file, read, overridden (`--set`), checked, frozen."""

from arena.config.schema import Config, load_config, parse_config, resolved_yaml

__all__ = ["Config", "load_config", "parse_config", "resolved_yaml"]
