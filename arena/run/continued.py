"""A new run with the league of an earlier one: `arena train NEW.yaml --continue RUN`.

The configuration says all of it before anything is planned, so the run is resumed, restarted and reported as any other:

    policies of both runs     `load`: the newest checkpoint of the earlier run
    snapshots in its league   frozen policies (`blue-2000` for `blue@2000`), in `against` where `matchmaking` has `blue`
    its standings             `league.prior`

What does not fit the new games or algorithms stays behind, with a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import msgspec

from arena.config import Config
from arena.config.check import check
from arena.config.league import League
from arena.config.load import load_config
from arena.config.matches import GeneratorEntry, Match, Matchmaking
from arena.config.schema import Policy
from arena.errors import ConfigError, listed, located, pluralize, shown
from arena.game.api import Interface
from arena.league import rounds_file
from arena.league.ratings.standings import league_table
from arena.league.read_results import read
from arena.league.rounds_file import History, player_of, snapshot_name
from arena.preflight.examine import examine
from arena.preflight.later_seats import later_plans
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.formats import Player
from arena.records.lock import refuse_locked
from arena.run.planning import checked_plan

_OPTION = "--continue"


def continued(config: Config, run: Path | str) -> tuple[Config, list[str]]:
    """The configuration of a run whose policies begin as an earlier run has left them.

    Args:
        config: of the new run.
        run: the folder of the earlier one, into which no process writes.

    Returns:
        the configuration, and lines about what goes over and what does not.

    Raises:
        ConfigError: it is no run folder, or damaged, or a process writes into it; or no policy goes over.
    """
    with located(path=_OPTION):
        folder = RunFolder.existing(run)
        refuse_locked(folder.path)
        earlier = load_config(folder.config)
        snapshots = History(earlier, rounds_file.read_played(folder, earlier)).snapshots
        tables = league_table(read(folder).timeline, {}, earlier).tables
    loaded: dict[str, Policy] = {}  # the policies that begin with a checkpoint, by their names in the new run
    for name, policy in config.policies.items():
        checkpoints = boundary.checkpoints_of(folder, name)
        if checkpoints and policy.learns and policy.load is None:
            loaded[name] = msgspec.structs.replace(policy, load=str(checkpoints[-1].resolve()))
    # Entries whose policies can have past selves as opponents; entries of two populations cannot.
    matchmakings = [entry for entry in chain(*config.listed) if isinstance(entry, Matchmaking)]
    met = {policy for each in matchmakings if not each.versus for policy in (*each.policies, *each.against)}
    past: dict[str, Player] = {}  # the snapshots among them
    players = [*map(player_of, chain.from_iterable(snapshots.values()))]
    for player in players:
        name = f"{player.policy}-{player.tick}"
        if player.policy in loaded and player.policy in met and name not in config.policies:
            file, known = folder.snapshot_path(player.policy, player.tick), earlier.policies[player.policy]
            past[name] = player
            loaded[name] = msgspec.structs.replace(known, frozen=True, load=str(file.resolve()))
    lines: list[str] = []
    interfaces: dict[str, Interface] = {}
    while not loaded.keys() <= past.keys():
        made = _with_policies(config, loaded, {name: player for name, player in past.items() if name in loaded})
        try:
            check(made)
            examine(checked_plan(made, ranks=None), later=later_plans(made), known=interfaces)
        except ConfigError as error:
            name = error.path.removeprefix("policies.").removesuffix(".load")
            if error.path != f"policies.{name}.load" or name not in loaded:
                raise
            del loaded[name]
            lines.append(f"{name} {'stays behind' if name in past else 'starts over'}: {error.message}")
            continue
        names = {snapshot_name(player.policy, player.tick): name for name, player in past.items()}
        elo = {names.get(row.player, row.player): row.elo for row in chain(*tables[:1])}
        taken, count = len(loaded.keys() & past.keys()), pluralize(len(players), "snapshot")
        count = count if taken == len(players) else f"{taken} of {count}"
        begin = listed(sorted(loaded.keys() - past.keys()))
        prior = {name: round(found, 1) for name, found in elo.items() if name in made.policies}
        if made.round_count > 1 and len(prior) > 1:  # the ratings of a league begin with those of the earlier run
            league = msgspec.structs.replace(made.league or League(), prior=prior)
            made = msgspec.structs.replace(made, league=league)
        return made, [f"goes on with {shown(folder.path)}: {begin}; {count} of its league", *lines]
    raise ConfigError(
        f"no policy of {config.name} can begin as one of {shown(folder.path)}, which has "
        f"{listed(sorted(earlier.policies))}" + "".join(f"; {line}" for line in lines),
        path=_OPTION,
    )


def _with_policies(config: Config, loaded: Mapping[str, Policy], past: Mapping[str, Player]) -> Config:
    """The configuration with these policies; past snapshots join `against` in matchmakings that have their policies."""

    def met(entry: Match | GeneratorEntry) -> Match | GeneratorEntry:
        if not isinstance(entry, Matchmaking) or entry.versus:
            return entry
        joining = tuple(name for name, player in past.items() if player.policy in (*entry.policies, *entry.against))
        return msgspec.structs.replace(entry, against=(*entry.against, *joining))

    schedule = config.rounds
    return msgspec.structs.replace(
        config,
        policies={**config.policies, **loaded},
        matches=None if config.matches is None else tuple(map(met, config.matches)),
        rounds=schedule if isinstance(schedule, int) else tuple(tuple(map(met, entries)) for entries in schedule),
    )
