"""Refuses what a match of external games cannot do: they cannot be stepped by the arena, nor played again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from arena import registry
from arena.config.schema import TickRules
from arena.errors import ConfigError, located
from arena.plan.plan import MatchPlan, Plan

if TYPE_CHECKING:
    from arena.config import Config

EXTERNAL_GAMES_TEXT = "come from outside: no seeds, no replays, resume is not bit-exact"
"""What `arena plan` and the start of a run say of the games of a match."""


def kind_of(env: str, make: str) -> str | None:
    """How the external games of an entry of `envs` come in, see `registry.external_kind`; errors name its key."""
    with located(path=f"envs.{env}.make"):
        return registry.external_kind(make)


def external_kinds(matches: Iterable[MatchPlan]) -> dict[int, str]:
    """By match, how its external games come in, see `registry.external_kind`; ordinary matches are left out.

    Raises:
        ConfigError: an ordinary environment has the key `external`, or its name is unknown.
    """
    kinds = {}
    for match in matches:
        kind = kind_of(match.env, match.game.make)
        if kind is not None:
            kinds[match.match] = kind
        elif match.game.external is not None:
            raise ConfigError(
                f"{match.game.make} is an environment that the arena steps; this key is for external games, which ask "
                f"for actions ({', '.join([*registry.EXTERNAL, 'a class'])})",
                path=f"envs.{match.env}.external",
            )
    return kinds


def check_external(plan: Plan, matches: Iterable[MatchPlan]) -> None:
    """Refuses a plan that asks the external games among these of its matches for something that they cannot do.

    A command looks at all matches, or at those that are external by their name; the environment of a match, which
    alone imports a class, at this match.
    """
    kinds, listening = external_kinds(matches), dict[tuple[str, int], MatchPlan]()
    for match in (plan.matches[number] for number in kinds):
        rules, env = match.game.external or TickRules(), f"envs.{match.env}"
        if rules.min_asking > match.lanes:
            raise ConfigError(
                f"found {rules.min_asking}, but {match.path} has {match.lanes} lanes: so many games never ask at once",
                path=f"{env}.external.min_asking",
            )
        if match.game.wrapped_in:
            text = "wrappers cannot be put around external games; change observations and rewards where the game runs"
            raise ConfigError(text, path=f"{env}.wrappers")
        if match.config.pipeline > 1:
            raise ConfigError("external games have one block of lanes; set 1", path=f"{match.path}.pipeline")
        if plan.config.record == "replays":
            raise ConfigError("external games cannot be played again; set samples, or nothing", path="record")
        if plan.config.round_count > 1:
            raise ConfigError(f"a league cannot play the external games of {match.env!r}; set 1", path="rounds")
        if not match.path.endswith("]"):
            text = f"a generator cannot seat policies in the external games of {match.env!r}; list the matches"
            raise ConfigError(text, path=match.path)
        port = match.game.kwargs.get("port", 8000)
        if kinds[match.match] == "http" and isinstance(port, int) and port:  # hosts are not known yet
            host = str(match.game.kwargs.get("host", "127.0.0.1"))
            other = listening.setdefault((host, port + match.copy), match)
            if other is not match:
                free = 1 + max(taken for _, taken in listening)
                raise ConfigError(
                    f"listens at port {port + match.copy}, as {other.path} does; give it another one with "
                    f"`env_kwargs: {{port: {free}}}`, or `port: 0` for any free one",
                    path=match.path,
                )
        for seat in match.seats:
            algorithm = plan.policies[seat.policy].config.algorithm
            if algorithm.startswith("sb3:") and (match.lanes > 1 or len(seat.entities) > 1):
                raise ConfigError(
                    f"policy {seat.policy!r} ({algorithm}) acts in all rows at every tick, but external games ask one "
                    "by one; set `lanes: 1`, or use an algorithm of the arena",
                    path=match.seat_path(seat.index),
                )
        closed_loop = getattr(registry.environment_factory(match.game.make), "closed_loop", False)
        if len(plan.matches) > 1 and rules.idle_tick_s is None and not closed_loop:
            raise ConfigError(
                "is needed in a run of several matches: the others would wait for these games at every boundary and "
                "every collective call; set the seconds after which an empty tick is played",
                path=f"{env}.external.idle_tick_s",
            )
    if kinds and plan.config.evaluation is not None and len(external_kinds(plan.matches)) == len(plan.matches):
        text = "no match is left to evaluate: matches of external games take no part in evaluations; remove this key"
        raise ConfigError(text, path="evaluation")


def refuse_external(config: Config) -> None:
    """Refuses a configuration for a command that starts games by itself."""
    for path, entry in config.entries():
        if kind_of(entry.env, config.envs[entry.env].make) is not None:
            raise ConfigError(
                f"the games of {entry.env!r} come from outside and cannot be started here; `arena serve RUN --games N` "
                "evaluates policies in them",
                path=f"{path}.env",
            )
