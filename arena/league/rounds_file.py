"""`rounds.jsonl`: a line per round of a league, written when the round is planned, before any match of it starts.

A line holds the round itself, from which its plan can be made again, and the matches as numbered in the plan, for
readers of its records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arena.config.load import load_config
from arena.config.named import check_texts
from arena.config.schema import Config
from arena.errors import ConfigError, located
from arena.plan.plan import Plan
from arena.records import boundary, checksums
from arena.records.folder import RunFolder
from arena.records.formats import Round, plan_file, round_of
from arena.records.journal import JournalReader


def keep(folder: RunFolder, before: Sequence[Round], planned: Round, plan: Plan) -> None:
    """Writes the line of a round after those before it; later lines are removed.

    Args:
        folder: of the run.
        before: the rounds before it.
        planned: the round.
        plan: of it.
    """
    known = folder.rounds.read_bytes().splitlines(keepends=True)[: len(before)] if folder.rounds.exists() else []
    line = msgspec.structs.replace(planned, planned=plan_file(plan, {}).matches)
    checksums.replace(folder.rounds, b"".join([*known, msgspec.json.encode(line) + b"\n"]))


def read(folder: RunFolder) -> list[Round]:
    """The rounds that were planned, the first one first; none where the file is not there.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena; or it names what config.yaml does not.
    """
    found, config = [], None
    for line in lines_in(JournalReader(folder.rounds)):
        if not line.matches:
            raise ConfigError(f"is damaged: round {line.number} lacks `descriptions`", source=str(folder.rounds))
        options, kwargs = [*line.options.values()], [match.env_kwargs for match in line.matches]
        if any([*options, *kwargs]):
            config = config or load_config(folder.config)
            with located(path=f"round {line.number}", source=str(folder.rounds)):
                check_texts(options, config)
                check_texts(kwargs, config, free=bool(config.callbacks))  # which may propose matches
        found.append(line)
    return found


def read_played(folder: RunFolder, config: Config) -> list[Round]:
    """The rounds of a run that has played; if it has several rounds, all up to its newest boundary must be there.

    Args:
        folder: of the run.
        config: of the run.

    Raises:
        ConfigError: as `read`; or one is missing.
    """
    reached = boundary.newest_tick(folder) or 0  # first: a round is written down before it is played
    found = read(folder)
    needed = 1 + max(0, reached - 1) // config.ticks
    if config.rounds > 1 and len(found) < needed:
        why = f"it lacks round {needed - 1}" if folder.rounds.exists() else "it is missing"
        raise ConfigError(f"is damaged: {why}, though the run has come to tick {reached}", source=str(folder.rounds))
    return found


def lines_in(journal: JournalReader) -> list[Round]:
    """The lines of `rounds.jsonl`, one per round in their order; none where the file is not there.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena.
    """
    found = list(journal.made(round_of, missing_ok=True))
    for number, line in enumerate(found):
        if line.number != number:
            raise ConfigError(
                f"is damaged: the rounds are not numbered one after the other: {line.number} stands where {number} "
                "belongs",
                path=f"line {number + 1}",
                source=str(journal.path),
            )
    return found


def ticks_before(starts: Sequence[int], matches: Sequence[int]) -> int:
    """The ticks of all matches together of all rounds but the last one.

    Args:
        starts: per round the tick at which it begins, the first one first.
        matches: per round how many it has.
    """
    return sum(count * (end - start) for count, start, end in zip(matches, starts, starts[1:], strict=False))


def options_at(planned: Sequence[Round], tick: int) -> Mapping[str, dict[str, Any]]:
    """The options with which the policies of a checkpoint have learned, if they differ from the configuration.

    Args:
        planned: the rounds of a run, the first one first.
        tick: of a checkpoint. One at the end of a round is of that round, before policies become copies of others.
    """
    played = begun_before(planned, tick)
    return played[-1].options if played else {}


def begun_before(planned: Sequence[Round], tick: int) -> list[Round]:
    """The rounds that had begun before a tick."""
    return [one for one in planned if one.start < tick]
