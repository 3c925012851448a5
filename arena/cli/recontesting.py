"""Going on with a tournament: after the newest batch that is whole; the games of a later one are played anew.

Who plays whom in a batch follows from the games before it, so what goes on is the tournament that nobody interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from arena.config import Config, load_config, resolved_yaml
from arena.errors import ConfigError
from arena.league import rounds_file, tournament_file
from arena.league.tournament import distinct_settings
from arena.records import boundary as boundaries
from arena.records.folder import RunFolder
from arena.run.leg import leg_at
from arena.run.planning import checked_plan
from arena.run.prepare import existing_folder
from arena.run.resume import GAME, SAME_MATCH, checkpoints_given, compared, numbered
from arena.run.run import Run

_PLAYER = ("algorithm", "options", "load")
_SETTING = tuple(field for field in SAME_MATCH if field != "seats")


def continued(config: Config, *, ranks: int, run_dir: str | None, greedy: bool) -> Run:
    """The run of a tournament as it goes on; nothing in its folder is changed.

    Args:
        config: what the same tournament would begin with now.
        ranks: how many processes there are.
        run_dir: the folder; None: the newest one of this name.
        greedy: whether players take their best actions.

    Raises:
        ConfigError: there is no such tournament_file, or it has other players, another game, or other actions.
    """
    folder = existing_folder(config, run_dir)
    before = load_config(folder.config)
    differences = [*_differences(before, config), *_other_actions(folder, greedy=greedy)]
    if differences:
        raise ConfigError(
            f"--resume goes on with the same players in the same game, but {'; '.join(differences)}. Go back to that, "
            "or begin another tournament",
            source=str(folder.path),
        )
    found = boundaries.newest(folder)
    if found is None or not rounds_file.read(folder):
        raise ConfigError("there is no tournament to go on with: its files are damaged", source=str(folder.path))
    kept = msgspec.structs.replace(before, rounds=max(before.rounds, config.rounds))
    plan = checked_plan(kept, ranks=ranks)
    leg = replace(leg_at(found, folder), restore=checkpoints_given(plan))
    return Run(plan, folder.path, config=resolved_yaml(kept), resumed=True, leg=leg)


def _other_actions(folder: RunFolder, *, greedy: bool) -> Iterator[str]:
    terms = tournament_file.read(folder)
    if terms is not None and terms.greedy != greedy:
        yield "it was played without --sample" if terms.greedy else "it was played with --sample"


def _differences(before: Config, now: Config) -> Iterator[str]:
    yield from compared("players", before.policies, now.policies, _PLAYER)
    yield from compared("envs", before.envs, now.envs, (*GAME, "outcome"))
    old, new = (numbered(distinct_settings([match for _, match in config.entries()])) for config in (before, now))
    yield from compared("matches", old, new, _SETTING)
