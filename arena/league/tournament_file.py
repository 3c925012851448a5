"""`tournament.json`: how a tournament is played and when it is over, which is in no configuration."""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.config.league import Elo, Half
from arena.errors import ConfigError
from arena.records.atomic import replacing
from arena.records.folder import RunFolder

VERSION: Literal[1] = 1


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Args:
        greedy: whether players take their best actions.
        error: how probable it may be that some two players are in the wrong order; None: an older arena has not said.
        elo: the difference that the games are to resolve; None likewise.
    """

    version: Literal[1] = VERSION
    greedy: bool
    error: Half | None = None
    elo: Elo | None = None


def write(folder: RunFolder, terms: Terms) -> None:
    """Writes the terms of a tournament down, at once or not at all."""
    with replacing(folder.tournament) as file:
        file.write(msgspec.json.encode(terms) + b"\n")


def read(folder: RunFolder) -> Terms | None:
    """What `write` wrote; None where the run is no tournament, or an older arena has played its first batch alone.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena.
    """
    if not folder.tournament.exists():
        return None
    try:
        return msgspec.json.decode(folder.tournament.read_bytes(), type=Terms)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = f"is damaged, or of another version of the arena: {error}"
        raise ConfigError(reason, source=str(folder.tournament)) from error
