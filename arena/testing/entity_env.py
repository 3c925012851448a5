"""The conformance check of games of the published interface (`arena.entity_env`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from arena.entity_env.environment import is_entity_env
from arena.errors import ConfigError, GameError
from arena.game.context import taken_by
from arena.registry import environment_factory, load_object
from arena.testing.batched_env import ContractBroken, check_batched_env, must

_LANES = 3


def check_entity_env(make: str | Callable[[], Any], ticks: int = 200, seed: int = 0) -> None:
    """Plays a game with random allowed actions as the arena does, and checks everything that it gives.

    If the game takes a seed, it must play the same twice. Games of the package `entity-gym` are checked alike. `make`
    may be a name as in a configuration, `package.module:Class`; `ticks` should let some episodes end.

    Raises:
        ContractBroken: at the first breach.
    """
    factory = environment_factory(make) if isinstance(make, str) else make
    one = factory()
    must(
        is_entity_env(one),
        f"{type(one).__module__}.{type(one).__qualname__} is no arena.entity_env.Environment",
        "a game of this interface derives from it",
    )
    seeded = "seed" in taken_by(one) or callable(getattr(one, "seed", None))
    one.close()
    adapt = load_object("envs.adapters:adapt")
    with ExitStack() as stack:
        try:
            games = [stack.enter_context(closing(adapt(factory, {}, _LANES))) for _ in range(2)]
            check_batched_env(games[0], ticks=ticks, seed=seed, repeatable=seeded, again=games[1])
        except (ConfigError, GameError) as error:
            raise ContractBroken(str(error)) from error
