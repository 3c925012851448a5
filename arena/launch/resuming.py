"""Going on with a run: from which tick, with whose weights, after which records.

`resumed` only reads; `forget` forgets what came after the tick, when everybody is ready to go on from it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from arena.config import Config, load_config
from arena.config.schema import MatchConfig
from arena.errors import ConfigError
from arena.plan import ONLY_ACT, Plan, to_json
from arena.records import checkpoint
from arena.records.checkpoint import Checkpoint
from arena.records.folder import RunFolder
from arena.records.journal import Keep, cut, kept_lines
from arena.run import Past, Run

_SAME_MATCH = ("env", "seats", "entities", "env_kwargs")
_ANEW = "start a new run; with `load:` its policies begin with checkpoints of this one"

_log = logging.getLogger(__name__)


def resumed(run: Run, config: Config) -> Run:
    """The run as it goes on: from the newest boundary of which every policy that has checkpoints has a whole one.

    Args:
        run: of the new plan, in the old run's folder.
        config: the new configuration.

    Raises:
        ConfigError: the new configuration describes another game; there is no such boundary; nothing is left to do.
    """
    folder = run.folder
    _check_same(load_config(folder.config), config, str(folder.config))
    learning = [name for name, policy in run.plan.policies.items() if not policy.frozen]
    shelves = {name: _Shelf(folder.checkpoints_path(name)) for name in learning}
    start, found = _newest_common({name: shelf for name, shelf in shelves.items() if shelf.boundaries})
    if not start:
        has = "; ".join(f"{name} has {shelf.words()}" for name, shelf in shelves.items()) or "all policies are frozen"
        raise ConfigError(
            f"there is no tick but 0 of which all policies have a checkpoint to go on from: {has}. "
            f"Leave --resume out and {_ANEW}",
            source=str(folder.path),
        )
    if start >= run.plan.ticks:
        raise ConfigError(
            f"the run has played {start} ticks, the configuration asks for {run.plan.ticks}: there is nothing left "
            "to do; ask for more with --ticks",
            source=str(folder.path),
        )
    past = _past(folder, start, {name: place.update for name, place in found.items()})
    words = (*_anew_words(run.plan, found), *_layout_words(folder, run.plan))
    own = {name: place.path for name, place in found.items()}
    return replace(run, start_tick=start, restore={**run.restore, **own}, past=replace(past, words=words))


def forget(run: Run) -> None:
    """Brings the folder of a resumed run back to the tick from which it goes on; doing it twice is doing it once."""
    folder = run.folder
    for name in run.plan.policies:
        home = folder.checkpoints_path(name)
        path = run.restore.get(name)
        if path is not None and path.parent == home and checkpoint.ticks_of(path) != run.start_tick:
            checkpoint.copy_to(run.start_tick, path)
        checkpoint.discard_after(home, run.start_tick)
    cut(folder.episodes, _episodes_until(run.start_tick))
    cut(folder.metrics, lambda line: line["update"] <= run.past.updates.get(line["policy"], 0))


class _Place(NamedTuple):
    """A checkpoint that a policy goes on from."""

    path: Path
    update: int


class _Shelf:
    """The checkpoints of one policy.

    Args:
        folder: where they are; it need not be there.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {checkpoint.ticks_of(path): path for path in checkpoint.list_checkpoints(folder)}
        self._seen: dict[Path, Checkpoint | None] = {}

    @property
    def boundaries(self) -> list[int]:
        """What it has checkpoints of, whole or not."""
        return list(self._files)

    def at(self, boundary: int) -> _Place | None:
        """The whole checkpoint that stands for a boundary.

        A policy that left before the end of the run has learnt nothing after that: its last one stands for all
        boundaries from there on.
        """
        held = self._look(self._files.get(boundary))
        if held is not None:
            return _Place(self._files[boundary], held.update)
        last = self._files[max(self._files)]
        held = self._look(last)
        if held is not None and held.ticks <= boundary < held.boundary:
            return _Place(last, held.update)
        return None

    def words(self) -> str:
        return ", ".join(map(str, self._files)) or "none"

    def _look(self, path: Path | None) -> Checkpoint | None:
        """What a file says of itself, without its state; None if it is not whole."""
        if path is None:
            return None
        if path not in self._seen:
            try:
                self._seen[path] = replace(checkpoint.load(path), state=None)
            except checkpoint.Damaged as error:
                _log.warning("passed over: %s", error)
                self._seen[path] = None
        return self._seen[path]


def _newest_common(shelves: Mapping[str, _Shelf]) -> tuple[int, dict[str, _Place]]:
    """The newest boundary that all have, and which checkpoint of each that is; 0 if there is none."""
    boundaries = {boundary for shelf in shelves.values() for boundary in shelf.boundaries if boundary}
    for boundary in sorted(boundaries, reverse=True):
        places = {name: shelf.at(boundary) for name, shelf in shelves.items()}
        whole = {name: place for name, place in places.items() if place is not None}
        if len(whole) == len(shelves):
            return boundary, whole
    return 0, {}


def _episodes_until(tick: int) -> Keep:
    return lambda line: line["tick"] <= tick


def _past(folder: RunFolder, start: int, saved: Mapping[str, int]) -> Past:
    """What stays on record; `saved` has the number of updates that the policies' checkpoints have had."""
    episodes: dict[tuple[int, int], int] = {}

    def count(line: Mapping[str, Any]) -> bool:
        if line["tick"] <= start:
            place = (line["match"], line["lane"])
            episodes[place] = max(episodes.get(place, 0), line["episode"] + 1)
        return False

    list(kept_lines(folder.episodes, count))  # in there, so that a damaged line is told as one
    updates, seconds = dict(saved), dict[str, float]()

    def add(line: Mapping[str, Any]) -> bool:
        name = line["policy"]
        if line["update"] <= saved[name] if name in saved else line["ticks"] <= start:
            updates[name] = max(updates.get(name, 0), line["update"])
            seconds[name] = line["seconds"]
        return False

    list(kept_lines(folder.metrics, add))
    return Past(episodes=episodes, updates=updates, seconds=seconds)


def _anew_words(plan: Plan, found: Mapping[str, _Place]) -> Iterator[str]:
    for name, policy in plan.policies.items():
        if name not in found and not policy.frozen and policy.workers and policy.algorithm not in ONLY_ACT:
            yield f"policy {name!r} has no checkpoint: it begins anew"


def _layout_words(folder: RunFolder, plan: Plan) -> Iterator[str]:
    """What copies and lanes that have changed mean for the numbers in the records."""
    if not folder.plan.exists():
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
    yield from _compared("policies", before.policies, now.policies, ("algorithm", "frozen"))
    yield from _compared("envs", before.envs, now.envs, ("make", "kwargs"))
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
