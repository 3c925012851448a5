"""Going on with a run: from which boundary, with whose weights, after which records.

`resumed` only reads; `forget` forgets what came after the boundary, when everybody is ready to go on from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from arena.config import Config, load_config
from arena.config.schema import MatchConfig
from arena.errors import ConfigError
from arena.plan import ONLY_ACT, Plan, to_json
from arena.records import boundary as boundaries
from arena.records import checkpoint, evaluations
from arena.records.boundary import Boundary
from arena.records.folder import RunFolder
from arena.run import Run

_SAME_MATCH = ("env", "seats", "entities", "env_kwargs")
_ANEW = "start a new run; with `load:` its policies begin with checkpoints of this one"


def resumed(run: Run, config: Config) -> Run:
    """The run as it goes on: from the newest boundary of which everything is whole.

    Args:
        run: of the new plan, in the old run's folder.
        config: the new configuration.

    Raises:
        ConfigError: the new configuration describes another game; there is no such boundary; nothing is left to do.
    """
    folder = run.folder
    _check_same(load_config(folder.config), config, str(folder.config))
    found = boundaries.newest(folder)
    if found is None:
        raise ConfigError(
            "there is no tick to go on from: the run has not come to the end of a leg (every `checkpoint_every` ticks, "
            "or the last tick where some algorithm has no load_state_dict()), or its files are damaged. Leave --resume "
            f"out and {_ANEW}",
            source=str(folder.path),
        )
    if run.plan.rounds > 1:
        from arena.launch import rounds  # a run of one round has no use for what rates its players

        run = rounds.again(run, config, found.tick)
    over = found.tick >= run.plan.horizon
    if over and not (run.plan.evaluates_at(found.tick) and found.tick not in evaluations.evaluated(folder)):
        raise ConfigError(
            f"the run has played {found.tick} ticks, the configuration asks for {run.plan.horizon}: there is "
            f"nothing left to do; ask for more with {'--ticks' if run.plan.rounds == 1 else '--set rounds=...'}",
            source=str(folder.path),
        )
    words = (*_anew_words(run.plan, found), *_layout_words(folder, run.plan))
    leg = found.leg(folder)
    restore = {**run.leg.restore, **leg.restore}
    return replace(run, resumed=True, concluded=over, leg=replace(leg, restore=restore), words=words)


def forget(run: Run) -> None:
    """Brings the folder of a resumed run back to the boundary from which it goes on; twice is as good as once."""
    folder = run.folder
    boundaries.discard_after(folder, run.leg.start)
    found = boundaries.newest(folder)
    assert found is not None and found.tick == run.leg.start, "it was there when the run was prepared"
    for name in run.plan.policies:
        # The checkpoint of a policy that had left a leg which ended early is of the end that it knew of.
        checkpoint.discard_after(folder.checkpoints_path(name), found.checkpoints.get(name, run.leg.start))
    boundaries.cut_journals(folder, found)
    if folder.samples.exists():
        from arena.records import sample_format, sample_writer  # know spaces, which the root has no other use for

        for match in sample_format.matches_in(folder.samples):
            sample_writer.discard_after(match, run.leg.start)
    if folder.replays.exists():
        from arena.records import replay_format

        for match in folder.replays.glob("round-*/match-*"):
            replay_format.discard_after(match, run.leg.start)
    evaluations.forget_after(folder, run.leg.start)


def _anew_words(plan: Plan, found: Boundary) -> Iterator[str]:
    if found.tick == 0:  # everybody begins
        return
    for name, policy in plan.policies.items():
        if name not in found.checkpoints and not policy.frozen and policy.workers and policy.algorithm not in ONLY_ACT:
            yield f"policy {name!r} has no checkpoint: it begins anew"


def _layout_words(folder: RunFolder, plan: Plan) -> Iterator[str]:
    """What copies and lanes that have changed mean for the numbers in the records."""
    if plan.rounds > 1 or not folder.plan.exists():  # a round goes on as it was planned
        return
    try:
        before = json.loads(folder.plan.read_text())["matches"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"is damaged: {error!r}", source=str(folder.plan)) from error
    now = json.loads(json.dumps(to_json(plan)["matches"]))
    if before != now:
        yield (
            "copies or lanes have changed, so the matches have other numbers or lanes than before: each lane counts "
            "its episodes on from those that episodes.jsonl has of the same match and lane number"
        )


def _check_same(before: Config, now: Config, source: str) -> None:
    """Refuses a configuration of another game: its records and weights would be mixed up with the old ones."""
    differences = list(_differences(before, now))
    if differences:
        raise ConfigError(
            f"--resume goes on with the same policies, environments and matches, but {'; '.join(differences)}. "
            f"Go back to that, or {_ANEW}",
            source=source,
        )


def _differences(before: Config, now: Config) -> Iterator[str]:
    if before.rounds > 1 and before.ticks != now.ticks:
        yield f"ticks: a round had {before.ticks}, has {now.ticks}"
    if (before.rounds == 1) != (now.rounds == 1):
        yield f"rounds was {before.rounds}, is {now.rounds}"
    yield from _compared("policies", before.policies, now.policies, ("algorithm", "frozen"))
    yield from _compared("envs", before.envs, now.envs, ("make", "kwargs", "wrappers"))
    old, new = (tuple(entry for _, entry in config.entries()) for config in (before, now))
    if len(old) != len(new):
        yield f"matches: had {len(old)} descriptions, has {len(new)}"
        return
    yield from _compared("matches", _numbered(old), _numbered(new), _SAME_MATCH)


def _numbered(entries: Sequence[MatchConfig]) -> dict[str, MatchConfig]:
    return {str(number): entry for number, entry in enumerate(entries)}


def _compared(path: str, before: Mapping[str, Any], now: Mapping[str, Any], fields: Sequence[str]) -> Iterator[str]:
    for name in sorted(before.keys() - now.keys()):
        yield f"{path}.{name} is missing"
    for name in sorted(now.keys() - before.keys()):
        yield f"{path}.{name} is new"
    for name in sorted(before.keys() & now.keys()):
        for field in fields:
            old, new = getattr(before[name], field), getattr(now[name], field)
            if old != new:
                yield f"{path}.{name}.{field} was {_words(old)}, is {_words(new)}"


def _words(value: Any) -> str:
    return json.dumps(value, default=repr)
