"""Plays a recorded episode again for a page: `python -m arena.cli.board_games.watched RUN ROUND MATCH LANE EPISODE`.

    server: {"from": 0, "to": 60, "advice": 1}         ticks that are to be shown, in the place of earlier wishes
    here:   {"kind": "episode", ...}                   once: who plays, how long
            {"kind": "frame", "tick": 0, ...}          with a picture, if the game draws one
            {"kind": "seeking", "tick": 4000}          while it plays ticks that are not shown
            {"kind": "error", "text": ...}             the last message

A game cannot go back: for an earlier tick it is played again from where the recording made it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arena.cli.board_games.pipe import game_pipe, marks_of, run_program
from arena.cli.play.decisions import decisions, tables
from arena.cli.play.human import Advisor, failure_text
from arena.cli.play.match import as_adviser, places_in_team
from arena.cli.replay import EpisodeActions
from arena.config import load_config
from arena.config.schema import Policy
from arena.errors import ConfigError
from arena.game.api import BatchedEnv, Interface
from arena.game.spaces import row
from arena.league.sources import Source
from arena.records.folder import RunFolder
from arena.registry import import_plugins
from arena.replay.playback import Event
from arena.replay.reader import read_replays
from arena.replay.verify import PICTURES, TEXT, events_of, rendered, rendering

_SEEKING_S = 0.3  # seconds between two messages


class WatchedEpisode:
    """An episode whose ticks are sent as they are asked for."""

    def __init__(self, run: str, place: tuple[int, int, int, int]) -> None:
        round_, match, lane, number = place
        folder = RunFolder(Path(run))
        self._config = load_config(folder.config)
        self._source = Source(self._config, folder, run)
        self._match = read_replays(run).match(match, round=round_)
        self._episode = self._match.episode(number, lane=lane)
        import_plugins(self._config.imports)
        self._manifest = self._match.playable(self._episode.recording)
        renders = rendering(self._manifest)
        self._mode = next((mode for mode in (PICTURES, TEXT) if mode in renders.modes), None)
        self._per_second = renders.per_second
        self._events: Iterator[tuple[Event, BatchedEnv]] = iter(())
        self._next = self._episode.length + 1  # the tick of the next event; too late: begins again
        self._course = EpisodeActions()
        self._returns = np.zeros(0)
        self._interface: Interface | None = None  # once the page knows who plays
        self._asks = False  # whether policies are asked, from the first tick on
        self._advisors: dict[int, Advisor | str] = {}  # by entity; or why there is none

    def serve(self) -> None:
        """Sends what is asked for, until the process is ended."""
        self._play({"from": 0, "to": 0, "advice": 0})
        while (wish := game_pipe().receive(wait=True)) is not None:
            while wish is not None:
                wish = self._play(wish)

    def _play(self, wish: dict[str, Any]) -> dict[str, Any] | None:
        """Sends the ticks of a wish; returns a newer wish, if one comes meanwhile."""
        begin, end = (min(max(int(wish[key]), 0), self._episode.length) for key in ("from", "to"))
        asks = bool(wish["advice"])
        entities = range(len(self._interface.entities) if self._interface is not None and asks > self._asks else 0)
        # Policies may remember what they have seen.
        if begin < self._next or any(one.remembers for entity in entities if (one := self._advisor(entity))):
            self._events, self._next = events_of(self._match, self._episode, render_mode=self._mode), 0
            for advisor in self._advisors.values():
                if not isinstance(advisor, str):
                    advisor.begin()
        self._asks, said = asks, time.monotonic()
        while self._next <= end:
            if (newer := game_pipe().receive()) is not None:
                return newer
            event, game = next(self._events)
            if self._interface is None:
                self._introduce(game)
            did, count = self._course.take(event, game), len(self._manifest.entities)
            self._returns = np.zeros(count) if event.step is None else self._returns + event.step.rewards[0]
            earned = zip(did or [{}] * count, self._returns.tolist(), strict=True)
            fields = [{**one, "return": total} for one, total in earned]
            if asks:
                self._advise(fields, event, game, shown=self._next >= begin)
            if self._next >= begin:
                self._show(fields, event, game)
            elif time.monotonic() > said + _SEEKING_S:
                said = time.monotonic()
                game_pipe().say({"kind": "seeking", "tick": self._next})
            self._next += 1
        return None

    def _introduce(self, game: BatchedEnv) -> None:
        self._interface, manifest, episode = game.interface, self._manifest, self._episode
        players = [
            {"name": entity.name, "policy": entity.policy, **marks}
            for entity, marks in zip(manifest.entities, marks_of(game.interface), strict=True)
        ]
        place = [manifest.round, manifest.match, episode.lane, episode.number]
        of_episode = {"env": manifest.env, "place": place, "ticks": episode.length, "end": episode.end}
        of_episode["per_second"] = self._per_second
        game_pipe().say({"kind": "episode", **of_episode, "entities": players})

    def _show(self, fields: list[dict[str, Any]], event: Event, game: BatchedEnv) -> None:
        interface, frame = game.interface, event.frame
        for entity, (space, batch) in enumerate(zip(interface.observation_spaces, frame.observations, strict=True)):
            names = interface.labels_of(entity).observations
            fields[entity]["tables"] = tables(space, names, row(space, batch, 0))
        picture = rendered(self._manifest, game)
        game_pipe().say({"kind": "frame", "tick": self._next, "entities": fields}, picture)

    def _advise(self, fields: list[dict[str, Any]], event: Event, game: BatchedEnv, *, shown: bool) -> None:
        """Adds what the policies think of the next choices of their entities; those that remember see every tick."""
        for entity, observation in enumerate(self._course.seen):
            if observation is None:
                continue
            if (advisor := self._advisor(entity)) is not None and (shown or advisor.remembers):
                mask = event.frame.masks[entity]
                mask = None if mask is None else mask[0]
                spaces = game.interface.observation_spaces[entity], game.interface.action_spaces[entity]
                decided, name = decisions(*spaces, observation, mask, game.interface.labels_of(entity)), advisor.name
                try:
                    opinion = advisor.advice(observation, mask, decided)
                    fields[entity]["advice"] = {"name": name, "decisions": decided, "opinion": opinion}
                except Exception as error:  # of an algorithm; the replay needs no opinion
                    self._advisors[entity] = failure_text(name, error)
            if isinstance(why := self._advisors[entity], str):
                fields[entity]["advice"] = {"why": why}

    def _advisor(self, entity: int) -> Advisor | None:
        assert self._interface is not None
        if entity not in self._advisors:
            manifest = self._manifest.entities
            in_order = sorted(range(len(manifest)), key=lambda place: manifest[place].seat)
            places = places_in_team([manifest[place].policy for place in in_order])
            name = manifest[entity].policy
            try:
                name, policy = self._policy_near(name)
                spaces = self._interface.observation_spaces[entity], self._interface.action_spaces[entity]
                self._advisors[entity] = Advisor(
                    name, as_adviser(name, policy, self._config), *spaces, places[in_order.index(entity)]
                )
            except (ConfigError, ValueError, RuntimeError) as error:  # it tells nothing, or its weights do not fit
                self._advisors[entity] = str(error)
            except Exception as error:  # of an algorithm
                self._advisors[entity] = failure_text(name, error)
        found = self._advisors[entity]
        return None if isinstance(found, str) else found

    def _policy_near(self, player: str) -> tuple[str, Policy]:
        """A player with the newest weights in the folder from before the episode, else the earliest ones."""
        if player in self._config.policies and (versions := self._source.files(player)):
            player = (
                f"{player}@{max((tick for tick in versions if tick <= self._episode.begin), default=min(versions))}"
            )
        return player, self._source.frozen(self._source.named(player))


def _watch() -> None:
    run, *place = sys.argv[1:]
    round_, match, lane, number = map(int, place)
    WatchedEpisode(run, (round_, match, lane, number)).serve()


if __name__ == "__main__":
    run_program(_watch)
