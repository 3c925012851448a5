"""A person at a page in the place of a worker, and the game whose pictures the pages show.

here:   {"kind": "state", "tick": 3}                       to all, with a picture or a `text`
        {"kind": "turn", "seat": 0, "turn": 7, ...}        what one person decides next
server: {"seat": 0, "turn": 7, "choices": [2]}
here:   {"kind": "told", "seat": 0, "text": ...}           why these are no choices; the turn goes on
        {"kind": "moves", "seat": 0, "moves": [...]}       at the end: what the opponents would have done
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from arena.board.pipes import game_pipe
from arena.cli.board_games import shown
from arena.cli.play.decisions import UNNAMED, Decision, Turn
from arena.cli.play.human import Advisor, Human
from arena.cli.play.shown_game import RenderedGame
from arena.errors import ConfigError
from arena.game.api import Frame
from arena.game.infos import fields_of
from arena.game.units import UnitSpace

_LOOK_S = 0.02  # between two looks whether there is an answer
_STATE_S = 0.05  # between two pictures while no person is asked


class Screen:
    """What the pages see of the game: not every tick, if many are played without them."""

    def __init__(self) -> None:
        self._tick, self._sent, self._pending = -1, 0.0, False
        self._picture: Any = None

    def show(self, picture: Any) -> None:
        """Takes the picture of the next tick; the first one is of tick 0."""
        self._picture, self._tick, self._pending = picture, self._tick + 1, True
        if time.monotonic() > self._sent + _STATE_S:
            self.flush()

    def flush(self) -> None:
        """Sends the newest picture, if it was not sent."""
        if self._pending:
            self._pending, self._sent = False, time.monotonic()
            text = {"text": self._picture} if isinstance(self._picture, str) else {}
            picture = self._picture if isinstance(self._picture, np.ndarray) else None
            game_pipe().say({"kind": "state", "tick": self._tick, **text}, picture)


@cache
def screen() -> Screen:
    """That of this process: its game and its people are roles of one run."""
    return Screen()


class PageGame(RenderedGame):
    """Another game, whose pictures are sent to the pages."""

    _begun = False

    def reset(self, *of_game: Any, **named: Any) -> Frame:
        """Begins an episode in some lanes."""
        screen().flush()  # the last picture stays, when the lane begins another episode at the end
        frame = self._game.reset(*of_game, **named)
        if not self._begun:
            screen().show(self._game.render())
        self._begun = True
        return frame

    def _shown(self, frame: Frame) -> Frame:
        screen().show(self._game.render())
        return frame


class PageHuman(Human):
    """As `Human`, at a page; `seats`: the number of the seat of each entity; `judges`: policies, as of `Advisor`."""

    dedicated_thread = False  # it waits by `group.pause`

    def __init__(
        self, env: Any, group: Any, *, seats: Mapping[str, int], judges: Sequence[Mapping[str, Any]], **of_human: Any
    ) -> None:
        super().__init__(env, group, **of_human)
        self.group, self.seat = group, seats.get(env.possible_agents[0], 0)
        self.seen: Any = None  # observation and mask of the turn
        self._judges = {agent: self._judges_of(agent, judges) for agent in env.possible_agents}
        self._moves: list[dict[str, Any]] = []

    def new_console(self) -> Any:
        """The page."""
        return _Page(self)

    def run(self) -> None:
        """Plays the episode, then says what the opponents would have done."""
        super().run()
        screen().flush()
        game_pipe().say({"kind": "moves", "seat": self.seat, "moves": self._moves})

    def _turn(self, agent: str, tick: int, reward: float, earned: float, observation: Any, info: Any) -> Turn:
        self.seen = observation, fields_of(info).action_mask
        return super()._turn(agent, tick, reward, earned, observation, info)

    def turn_fields(self, turn: Turn, number: int) -> dict[str, Any]:
        """A turn as the page gets it."""
        space, observation = self.env.observation_space(turn.entity), self.seen[0]
        labels, units = self._labels.get(turn.entity, UNNAMED), isinstance(space, UnitSpace)
        return {
            "kind": "turn",
            "seat": self.seat,
            "turn": number,
            **{name: getattr(turn, name) for name in ("entity", "tick", "reward", "earned", "value")},
            "units": shown.units(space, observation) if units else [],
            "actors": shown.actors(space, observation) if units else [],
            "tables": shown.tables(space, labels.observations, observation),
            "keys": labels.keys,
            "decisions": turn.decisions,
            "shares": turn.shares,
        }

    def note(self, turn: Turn, choices: Sequence[float]) -> None:
        """Keeps a move, with its probability by each judge."""
        did = [_named(decision, choice) for decision, choice in zip(turn.decisions, choices, strict=True)]
        by = {}
        for name, judge in self._judges[turn.entity].items():
            observation, mask = self.seen
            shares = judge.probabilities(observation, mask, turn.decisions)
            places = (
                [option.choice for option in decision.options].index(choice)
                for decision, choice in zip(turn.decisions, choices, strict=True)
            )
            by[name] = math.prod(share[at] for share, at in zip(shares, places, strict=True))
        self._moves.append({"tick": turn.tick, "entity": turn.entity, "did": ", ".join(did)[:200], "by": by})

    def _judges_of(self, agent: str, judges: Sequence[Mapping[str, Any]]) -> dict[str, Advisor]:
        """The policies that can be asked about the moves of an entity: those that choose, for spaces like its own."""
        found = {}
        for one in judges:
            try:
                found[one["name"]] = Advisor(
                    one["name"], one, self.env.observation_space(agent), self.env.action_space(agent)
                )
            except (ConfigError, ValueError, RuntimeError):  # it plays another kind of seat, or tells no probabilities
                continue
        return found


class _Page:
    """The console of `Human.run`: asks a page, and waits without holding up other people of the match."""

    def __init__(self, person: PageHuman) -> None:
        self._person, self._turns = person, 0

    def choices(self, turn: Turn) -> list[float]:
        """The choice of each decision, as the page gives them; others are refused, and asked for again."""
        person, pipe = self._person, game_pipe()
        self._turns += 1
        screen().flush()
        pipe.say(person.turn_fields(turn, self._turns))
        while True:
            while (answer := pipe.receive(person.seat)) is None:
                person.group.pause(_LOOK_S)
            if answer["turn"] != self._turns:
                continue  # of a turn that is over
            if not (wrong := _wrong(turn.decisions, answer["choices"])):
                person.note(turn, answer["choices"])
                return list(answer["choices"])
            pipe.say({"kind": "told", "seat": person.seat, "text": wrong})

    def end(self, entity: str, tick: int, earned: float, info: Mapping[str, Any]) -> None:
        """Nothing: the end is told to all, when the records are complete."""


def _wrong(decisions: Sequence[Decision], choices: Sequence[float]) -> str:
    """Why choices are not allowed; empty if they are."""
    if len(choices) != len(decisions):
        return f"{len(choices)} choices for {len(decisions)} decisions"
    for decision, choice in zip(decisions, choices, strict=True):
        fits = (
            decision.answered(repr(choice)) is not None
            if decision.bounds is not None
            else choice in [option.choice for option in decision.options]
        )
        if not fits:
            return f"{choice:g} is not allowed here: {decision.question()}"
    return ""


def _named(decision: Decision, choice: float) -> str:
    """A choice by its label."""
    label = next((option.label or str(option.number) for option in decision.options if option.choice == choice), "")
    text = label or f"{choice:.3g}"
    return text if decision.what == "action" else f"{decision.what} {text}"
