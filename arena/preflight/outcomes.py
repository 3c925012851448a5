"""Who wins in the games of a plan: the rule of the configuration, else the rule that the game declares.

A game declares its rule by an attribute `outcome`, or in its interface. A league in a game without a rule is refused
before it starts, with the rule that fits some episodes of random actions; `arena check` suggests it for other runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import cast, get_args

from arena import registry
from arena.config import Config
from arena.config.fields import OutcomeRule
from arena.config.members import needs_rules, needs_winners
from arena.errors import ConfigError, pluralize
from arena.game.api import BatchedEnv, Interface
from arena.plan.plan import MatchPlan, Plan
from arena.plan.seats import check_seats
from arena.preflight.examine import make_game
from arena.records.outcome import suggested

_EPISODES, _TICKS = 20, 2000  # of random actions, at most, from which a rule is suggested
_SECONDS = 20.0  # in which they are played, of a slow game fewer


def outcome_rule(match: MatchPlan, interface: Interface) -> OutcomeRule | None:
    """How the winner of an episode is determined; None: nothing says it. External games may report it themselves."""
    if interface.outcome is not None and interface.outcome not in get_args(OutcomeRule):
        raise ConfigError(
            f"the interface of {match.game.make!r} has the outcome {interface.outcome!r}; it can be "
            f"{', '.join(get_args(OutcomeRule))} or None",
            path=f"envs.{match.env}.make",
        )
    declared = cast("OutcomeRule | None", interface.outcome)
    return match.game.outcome or declared or ("info" if registry.external_kind(match.game.make) is not None else None)


def require_rules(config: Config, *plans: Plan, tournament: bool = False) -> None:
    """Refuses a game of which nothing says who has won, or that has no winners, where the run needs them.

    A league, a tournament and numbers of results such as `policy_win_rate` do. The error has the rule that fits.
    """
    if not tournament and not needs_rules(config):
        return

    def needs(match: MatchPlan) -> list[str]:
        return ["the tournament"] if tournament else needs_winners(config, match.env)

    rated = tournament or config.round_count > 1
    for match, rule, game in _games(plans, lambda match: bool(needs(match))):
        needed, path = needs(match), f"envs.{match.env}.outcome"
        what = f"{' and '.join(needed)} {'needs' if len(needed) == 1 else 'need'} winners"
        if rule is None and (rated or needed):
            fits, episodes = _suggestion(match, game)
            random = f"{pluralize(episodes, 'episode')} of random actions"
            found = f"set {fits}, which fits {random}" if fits else "set one"
            if fits == "none" and needed and not tournament:
                found = f"leave that out, as {random} had no winners, or set a rule"
            found += f" (--set {path}={fits or 'RULE'})" if tournament else ""
            why = "the players of a league are rated" if rated else what
            raise ConfigError(
                f"found null, and the game does not say who has won, but {why}: {found}. zero_sum: the returns of two "
                "sides add up to zero; higher_return: the side with the higher return wins; info: "
                '`info["outcome"]` says it; none: there are no winners and no ratings',
                path=path,
            )
        if rule == "none" and needed:
            raise ConfigError(
                f"found null, and {match.game.make!r} declares none, but {what}; set higher_return, zero_sum or info, "
                "or leave these out",
                path=path,
            )


def rule_lines(plan: Plan) -> list[str]:
    """A line for each game of several sides that does not say who has won: without a rule, with the one that fits."""
    lines = []
    for match, rule, game in _games([plan], configured="info"):
        if rule == "info":
            count, found = 0, False
            for _, stated in _episodes(game):
                count, found = count + 1, any(stated)
                if found:
                    break
            if count and not found:
                lines.append(
                    f"warning: environment {match.env}: its rule is info, but at the end of "
                    f"{pluralize(count, 'episode')} of random actions no info had the key `outcome`"
                )
        if rule is None:
            fits, episodes = _suggestion(match, game)
            text = f"; `outcome: {fits}` fits {pluralize(episodes, 'episode')} of random actions" if fits else ""
            lines.append(
                f"environment {match.env}: nothing says who has won, so there are returns and no winners{text}"
            )
    return lines


def _games(
    plans: Sequence[Plan],
    needs: Callable[[MatchPlan], bool] = lambda _: False,
    configured: OutcomeRule | None = None,
) -> Iterator[tuple[MatchPlan, OutcomeRule | None, BatchedEnv]]:
    """The games of several sides without a configured rule, or this one, each once: a match, the rule, and a game.

    Built-in games, which declare theirs, are made only where a match `needs` winners; `payoffs` are the user's own.
    """
    known = set[str]()
    for match in (match for plan in plans for match in plan.matches):
        place = json.dumps([match.env, match.game.kwargs], default=repr)
        one_side = len(match.seats) < 2 or len(match.sides) == 1
        if match.game.outcome not in (None, configured) or place in known or one_side:
            continue
        known.add(place)
        built_in = registry.ENVIRONMENTS.get(match.game.make)
        own = built_in is None or not built_in.target.startswith("envs.") or "payoffs" in match.game.kwargs
        custom = own or match.game.outcome is not None
        if registry.external_kind(match.game.make) is None and (custom or needs(match)):
            with closing(make_game(match, 1)) as game:
                yield match, outcome_rule(match, game.interface), game


def _episodes(game: BatchedEnv) -> Iterator[tuple[list[float], list[object]]]:
    """Some episodes of random actions."""
    from arena.testing.batched_env import episodes_of  # a run does not need it

    return episodes_of(game, episodes=_EPISODES, ticks=_TICKS, seconds=_SECONDS)


def _suggestion(match: MatchPlan, game: BatchedEnv) -> tuple[OutcomeRule | None, int]:
    """The rule that fits some episodes of random actions, and how many there were."""
    seats = check_seats(match, game.interface)
    played = [
        (
            [sum(returns[entity] for entity in seat) / len(seat) for seat in seats],
            [next((stated[entity] for entity in seat if stated[entity] is not None), None) for seat in seats],
        )
        for returns, stated in _episodes(game)
    ]
    return suggested(played, entities=[*map(len, seats)], sides=match.sides), len(played)
