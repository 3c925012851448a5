"""Makes the connection to the external games of a match from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena import registry
from arena.external.interface import ExternalGames
from envs.adapters.sources import check_call


def make_games(make: str, kwargs: Mapping[str, Any], copy: int = 0) -> ExternalGames:
    """The external games of a match, not open yet.

    Args:
        make: a name for which `registry.external_kind` is not None.
        kwargs: of the environment.
        copy: the number of the match among the copies of its description; each needs an address of its own.

    Raises:
        ConfigError: the arguments do not fit.
        Exception: raised by the class.
    """
    kind, factory = registry.external_kind(make), registry.environment_factory(make)
    assert kind is not None, f"{make} is an ordinary environment"
    if kind in registry.EXTERNAL:
        kwargs = {**kwargs, "copy": copy}
    check_call(factory, kwargs)
    made = factory(**kwargs)
    if kind == "thread":
        from arena.external.thread import ThreadGames

        return ThreadGames(made)
    if kind == "poll":
        from arena.external.poll import PolledGames

        return PolledGames(made)
    games: ExternalGames = made
    return games
