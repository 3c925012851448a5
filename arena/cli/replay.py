"""`arena replay`: lists, plays again, verifies, and makes videos of episodes recorded with `record: replays`."""

from __future__ import annotations

import argparse
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from arena.cli.arguments import non_negative_int, number_up_to
from arena.cli.play.decisions import numbers_of
from arena.config import load_config
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, pluralize
from arena.game.api import BatchedEnv, Interface
from arena.game.labels import rows
from arena.game.spaces import row
from arena.game.units import UnitSpace
from arena.records import checksums
from arena.records.boundary import newest_tick
from arena.records.faults import process_faults
from arena.records.folder import RunFolder, lanes_in, start_and_lane
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.replay.playback import Event, ReplayDiffers
from arena.replay.reader import Episode, MatchReplays, Replays, read_replays
from arena.replay.verify import TEXT, events_of, rendered, rendering, verify
from arena.replay.video import check_video, write_episode
from arena.roles.status import RunStatus, planned_ticks, run_status
from arena.terminal.output import say

_FAILED = 1  # the exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Of a run with `record: replays`: lists the recorded episodes, or tells what happens in an episode."
    )
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--match", type=non_negative_int, metavar="M", help="this match (default: all)")
    parser.add_argument(
        "--episode", type=non_negative_int, metavar="E", help="this episode of it, as in episodes.jsonl"
    )
    parser.add_argument(
        "--lane", type=non_negative_int, metavar="L", help="of this lane (default: all, or for an episode 0)"
    )
    parser.add_argument(
        "--round", type=non_negative_int, metavar="R", help="of this round of a league (default: all, or 0)"
    )
    parser.add_argument("--video", metavar="FILE", help="write the episode's pictures: .mp4, .gif or .webp")
    parser.add_argument(
        "--per-second", type=number_up_to(240.0), metavar="N", help="ticks of the video (default: as the game says)"
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare with what was recorded; exit code 1: something differs"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists, verifies or shows recorded episodes; returns the exit status."""
    match, episode, round, lane = arguments.match, arguments.episode, arguments.round, arguments.lane
    target, video = arguments.run, arguments.video
    if video is not None and episode is None:
        raise ConfigError("a video is of one episode: name it with --match and --episode", path="--video")
    if video is not None:
        check_video(anchored(video))
    if episode is not None and match is None:
        raise ConfigError("an episode is counted within its match: name that with --match", path="--episode")
    checksums.check_folder(Path(target))
    if not RunFolder(Path(target)).replays.is_dir():
        RunFolder.existing(target)
    found = read_replays(target)
    folder = RunFolder(Path(target))
    if match is not None:
        matches = [found.match(match, round=round or 0)]
    else:
        matches = [one for one in found.matches if round in (None, one.manifest.round)]
        matches = matches or [found.match(0, round=round or 0)]  # its error names the rounds that there are
    try:
        if episode is not None:
            return _show(matches[0], matches[0].episode(episode, lane=lane or 0), arguments)
        if lane is not None and not any(lane in match.lanes for match in matches):
            matches[0].check_lane(lane)
        if arguments.verify:
            return _verify_all(found, matches, folder, arguments)
        _list(matches, folder, lane, one=match is not None)
        return 0
    except ReplayDiffers as error:
        say(str(error))
        return _FAILED


def _list(matches: Sequence[MatchReplays], folder: RunFolder, lane: int | None, *, one: bool) -> None:
    for match in matches:
        episodes = [episode for episode in match.episodes() if lane in (None, episode.lane)]
        if lane is not None:
            extent = pluralize(sum(part.ticks for part in match.recordings if lane in part.lanes), "tick")
        else:  # of all lanes, which share files
            size = sum(recording.path.stat().st_size for recording in match.recordings)
            ticks = sum(recording.ticks * len(recording.lanes) for recording in match.recordings)
            extent = f"{size / 1000:,.0f} kB for {ticks:,} ticks of lanes"
        say(f"{_title(match)}: {pluralize(len(episodes), 'episode')}, {extent}")
        if one:
            lines = {at: line for at, line in _lines_of(folder, match).items() if lane in (None, at[0])}
            for episode in episodes:
                say(f"  {_place(episode)}{_result(lines.pop((episode.lane, episode.number), None))}")
            if lines:
                say(f"  {pluralize(len(lines), 'more episode')} of episodes.jsonl without a replay")


def _title(match: MatchReplays) -> str:
    parts = dict[str, str]()  # by what has played, with the tick from which on it has
    for start, manifest in match.manifests.items():
        policies = dict(sorted((entity.seat, entity.policy) for entity in manifest.entities))
        parts.setdefault(f"{manifest.env}, {' '.join(policies.values())}", f"from tick {start} on " if parts else "")
    return "round {}, match {}: ".format(*match.place) + "; ".join(f"{since}{what}" for what, since in parts.items())


def _place(episode: Episode) -> str:
    span = f"ticks {episode.begin + 1} to {episode.end}" if episode.length > 1 else f"tick {episode.end}"
    return f"lane {episode.lane}, episode {episode.number}: {span}"


def _lines_of(folder: RunFolder, match: MatchReplays) -> dict[tuple[int, int], EpisodeRecord]:
    """The lines of a match in `episodes.jsonl`, by lane and episode."""
    place = match.place
    return {(line.lane, line.episode): line for line in _lines(folder) if (line.round, line.match) == place}


def _lines(folder: RunFolder) -> Iterator[EpisodeRecord]:
    """The lines of `episodes.jsonl`; none if the file is not there."""
    return JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True)


def _result(line: EpisodeRecord | None) -> str:
    if line is None:
        return ", not in episodes.jsonl"
    if line.cut:
        return ", cut by the end of the leg"
    described = []
    for seat in line.seats:
        earned = "took no part" if seat.return_ is None else f"{seat.return_:.6g}"
        described.append(f", {seat.policy} {' '.join(filter(None, [seat.outcome, earned]))}")
    return "".join(described)


def _verify_all(
    replays: Replays, matches: Sequence[MatchReplays], folder: RunFolder, arguments: argparse.Namespace
) -> int:
    """Plays these replays again (of one lane, if given) and compares; returns the exit status."""
    match, lane = arguments.match, arguments.lane
    round = arguments.round if match is None else arguments.round or 0
    recorded = {(*one.place, episode.lane, episode.number) for one in matches for episode in one.episodes()}
    missing = [
        line
        for line in _lines(folder)
        if match in (None, line.match) and round in (None, line.round) and lane in (None, line.lane)
        if (line.round, line.match, line.lane, line.episode) not in recorded
    ]
    since = min(
        (start_and_lane(path)[0] for one in replays.matches for path in lanes_in(one.path, "replay")), default=0
    )
    status, absent = 0, Counter((line.round, line.match) for line in missing)
    if (
        any(line.tick - line.length >= since for line in missing)
        and folder.config.is_file()
        and not process_faults(folder.faults)
    ):
        # The run must have ended with a replay of every episode if it records them, and no process has died.
        config = load_config(folder.config)
        known = config.round_count > 1 or planned_ticks(config) is not None  # it is not known when an evaluation ends
        if config.record == "replays" and known:
            ended = run_status(folder, config, played=newest_tick(folder) or 0) is RunStatus.FINISHED
            status = _FAILED if ended else 0
    for replayed in matches:
        episodes, ticks, differences = sum(lane in (None, one.lane) for one in replayed.episodes()), 0, 0
        for recording, found in verify(replayed, lane=lane):
            ticks += recording.ticks * (len(recording.lanes) if lane is None else 1)
            differences += len(found)
            for difference in found:
                say(str(difference))
        if differences:
            status = _FAILED
        else:
            say(f"{_title(replayed)}: {pluralize(episodes, 'episode')}, {ticks:,} ticks of lanes, all as recorded")
        if more := absent[replayed.place]:
            say(f"  {pluralize(more, 'more episode')} of episodes.jsonl without a replay")
    for place in sorted(absent.keys() - {replayed.place for replayed in matches}):
        episodes_on_record = pluralize(absent[place], "episode")
        say(f"round {place[0]}, match {place[1]}: no replays, though episodes.jsonl has {episodes_on_record}")
    return status


def _show(match: MatchReplays, episode: Episode, arguments: argparse.Namespace) -> int:
    target, video = arguments.run, arguments.video
    line = _lines_of(RunFolder(Path(target)), match).get((episode.lane, episode.number))
    say(f"{_title(match)}, {_place(episode)}{_result(line)}")
    if video is not None:
        speed = write_episode(anchored(video), match, episode, arguments.per_second)
        length = pluralize(episode.length, "tick")
        say(f"{video}: {anchored(video).stat().st_size / 1000:,.0f} kB, {length}, {speed:g} in a second")
    elif arguments.verify:
        ticks = sum(event.step is not None for event, _ in events_of(match, episode))
        say(f"{pluralize(ticks, 'tick')}, all as recorded")
    else:
        # Prints what happens, tick by tick; with the game's own text, if it has one.
        manifest = match.playable(episode.recording)
        written = TEXT in rendering(manifest).modes
        course = EpisodeActions()
        for event, game in events_of(match, episode, render_mode=TEXT if written else None):
            parts = []
            for entity, did in zip(manifest.entities, course.take(event, game), strict=False):
                earned = f"earns {did['reward']:.6g}" if did["reward"] else ""
                if texts := [*filter(None, (did.get("action"), earned, did["end"]))]:
                    parts.append(" ".join([entity.name, *texts]))
            if event.step is not None:
                say(f"tick {event.tick}: {', '.join(parts)}")
            if written and isinstance(text := rendered(manifest, game), str):
                say(text, styles=True)
    return 0


class EpisodeActions:
    """What the entities of an episode do, tick by tick.

    Attributes:
        seen: by entity, what it observes before the next tick; None: it does not act.
    """

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def take(self, event: Event, game: BatchedEnv) -> list[dict[str, Any]]:
        """By entity its `reward`, how it has come to its `end`, and where it has acted its `action` in words and its
        `choices`; nothing of the beginning of an episode."""
        interface, frame, step = game.interface, event.frame, event.step
        found: list[dict[str, Any]] = []
        for entity, observation in enumerate(self.seen if step is not None else ()):
            assert step is not None
            ends = "terminated" * bool(step.terminated[0, entity]) or "truncated" * bool(step.truncated[0, entity])
            found.append({"reward": float(step.rewards[0, entity]), "end": ends})
            if observation is not None:
                action = row(interface.action_spaces[entity], event.actions[entity], 0)
                found[-1]["action"] = action_text(interface, entity, observation, action)
                found[-1]["choices"] = numbers_of(interface.action_spaces[entity], action)
        self.seen = [
            copy.deepcopy(row(space, batch, 0)) if frame.active[0, entity] else None  # the game may reuse its arrays
            for entity, (space, batch) in enumerate(zip(interface.observation_spaces, frame.observations, strict=True))
        ]
        return found


def action_text(interface: Interface, entity: int, observation: Any, action: Any) -> str:
    """An action of an entity by its labels; `observation`: the one before it, which only units need."""
    seen, acted = interface.observation_spaces[entity], interface.action_spaces[entity]
    if isinstance(seen, UnitSpace):
        return "; ".join(seen.describe(observation, action))
    if names := interface.labels_of(entity).actions:
        found = rows(acted, names, action)
        return found[0][1] if isinstance(acted, Discrete) else " ".join(f"{name}={text}" for name, text in found)
    return _shown(action)


def _shown(action: Any) -> str:
    if isinstance(action, dict):
        return "{" + ", ".join(f"{key}: {_shown(part)}" for key, part in action.items()) + "}"
    if isinstance(action, tuple):
        return "(" + ", ".join(map(_shown, action)) + ")"
    return np.array2string(np.asarray(action), precision=3, separator=" ", threshold=16).replace("\n", "")
