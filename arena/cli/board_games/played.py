"""`arena play` with people at pages: `python -m arena.cli.board_games.played TARGET ...`, with the same arguments.

here:   {"kind": "match", "players": [...]}                who sits where
        {"kind": "state", "seat": 0, "tick": 3, ...}       with a picture or a text, as an `entity` of the seat sees it
        {"kind": "turn", "seat": 0, "turn": 7, ...}        what one person decides next
server: {"seat": 0, "turn": 7, "choices": [2]}
here:   {"kind": "told", "seat": 0, "text": ...}           why these are no choices; the turn goes on
        {"kind": "moves", "seat": 0, "moves": [...]}       at the end: what the opponents would have done
        {"kind": "over", "episode": {...}}                 the result, and where the records are
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena.cli.board_games.pipe import game_pipe, marks_of, run_program
from arena.cli.play.command import add_arguments, play
from arena.cli.play.decisions import Decision, Turn
from arena.cli.play.human import Human
from arena.cli.play.match import HumanMatch, MatchOutput
from arena.cli.play.shown_game import PICTURE
from arena.errors import shown
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.replay.verify import PICTURES, TEXT
from arena.roles.protocol import Failed

_LOOK_S = 0.02  # between two looks whether there is an answer
_STATE_S = 0.04  # between two pictures: the pace of ticks on which no person is asked
_OF_TURN = ("entity", "tick", "reward", "earned", "tables", "decisions", "advice")


class PageHuman(Human):
    """As `Human`, at a page."""

    dedicated_thread = False  # it waits by `group.pause`

    def __init__(self, env: Any, group: Any, *, seats: Mapping[str, int], **of_human: Any) -> None:
        super().__init__(env, group, seats=seats, **of_human)
        self.console = _Page(group, seats.get(env.possible_agents[0], 0))


class _Page:
    """The console of a seat: asks a page, and waits without holding up other people of the match."""

    def __init__(self, group: Any, seat: int) -> None:
        self._group, self._seat, self._turns = group, seat, 0
        self._moves: list[dict[str, Any]] = []
        self._seen_at = 0.0

    def see(self, tick: int, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Sends the pictures of a tick, no faster than people see them; what several entities see is sent once."""
        before: Any = None
        self._group.pause(max(0.0, self._seen_at + _STATE_S - time.monotonic()))
        self._seen_at = time.monotonic()
        for entity, info in infos.items():
            picture: Any = info.get(PICTURE)
            if before is None or not np.array_equal(picture, before):
                game_pipe().say({"kind": "state", "seat": self._seat, "tick": tick, "entity": entity}, picture)
            before = picture

    def choices(self, turn: Turn) -> list[float]:
        """The choice of each decision, as the page gives them; others are refused, and asked for again."""
        pipe, seat = game_pipe(), self._seat
        self._turns += 1
        pipe.say(
            {"kind": "turn", "seat": seat, "turn": self._turns, **{name: getattr(turn, name) for name in _OF_TURN}}
        )
        if turn.notices:
            pipe.say({"kind": "told", "seat": seat, "text": "; ".join(turn.notices)})
        while True:
            while (answer := pipe.receive(seat)) is None:
                self._group.pause(_LOOK_S)
            if answer["turn"] != self._turns:
                continue  # of a turn that is over
            choices: list[float] = answer["choices"]
            if not (wrong := refusal(turn.decisions, choices)):
                self._moves.append(_move(turn, choices))
                return choices
            pipe.say({"kind": "told", "seat": seat, "text": wrong})

    def end(self, entity: str, tick: int, earned: float) -> None:
        """Says what the opponents would have done."""
        mine = [move for move in self._moves if move["entity"] == entity]
        game_pipe().say({"kind": "moves", "seat": self._seat, "moves": mine})


def refusal(decisions: Sequence[Decision], choices: Sequence[float]) -> str:
    """Why choices are not allowed; empty if they are."""
    if len(choices) != len(decisions):
        return f"{len(choices)} choices for {len(decisions)} decisions"
    for decision, choice in zip(decisions, choices, strict=True):
        allowed = [option.choice for option in decision.options]
        if (decision.answered(repr(choice)) is None) if decision.bounds is not None else choice not in allowed:
            return f"{choice:g} is not allowed here: {decision.question()}"
    return ""


def _move(turn: Turn, choices: Sequence[float]) -> dict[str, Any]:
    """A move by its labels, with its probability by each opponent who can be asked."""
    did, places = [], []
    for decision, choice in zip(turn.decisions, choices, strict=True):
        place = next((at for at, option in enumerate(decision.options) if option.choice == choice), None)
        option = None if place is None else decision.options[place]
        text = f"{choice:.3g}" if option is None else option.label or str(option.number)
        did.append(text if decision.what == "action" else f"{decision.what} {text}")
        places.append(place or 0)
    by = {
        name: math.prod(share[at] for share, at in zip(filter(None, opinion.shares), places, strict=True))
        for name, opinion in turn.by.items()
        if None not in opinion.shares
    }
    return {"tick": turn.tick, "entity": turn.entity, "did": ", ".join(did)[:200], "by": by}


class _PageOutput(MatchOutput):
    """Says on the pages who plays, and how it ends."""

    algorithm, modes = "arena.cli.board_games.played:PageHuman", (PICTURES, TEXT)
    on_pages = True

    def say(self, text: str) -> None:
        """Nothing: what belongs to the result is in `over`."""

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        game_pipe().say({"kind": "error", "text": failure.message})

    def begin(self, game: HumanMatch) -> None:
        shown = dict(zip(game.interface.entities, marks_of(game.interface), strict=True))
        players = [{**player._asdict(), **shown[player.entities[0]]} for player in game.players]
        game_pipe().say({"kind": "match", "env": next(iter(game.config.envs)), "players": players})

    def end(self, game: HumanMatch, records: RunFolder, rated: str, *, kept: bool) -> None:
        (record,) = JournalReader(records.episodes).lines(EpisodeRecord)
        place, recorded = shown(records.path) if kept else "", kept and records.replays.is_dir()
        game_pipe().say({"kind": "over", "episode": record, "folder": place, "recorded": recorded, "rated": rated})


def main() -> None:
    """Plays what the command line says."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    play(parser.parse_args(), _PageOutput())


if __name__ == "__main__":
    from arena.cli.board_games import played  # the module that the run's configuration names

    run_program(played.main)
