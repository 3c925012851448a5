"""`arena replay`: lists, plays again, verifies, and makes videos of episodes recorded with `record: replays`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.cli.arguments import non_negative_int, ticks_per_second
from arena.config import load_config
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, pluralize
from arena.game.spaces import row
from arena.game.units import UnitSpace
from arena.records import checksums
from arena.records.boundary import newest_tick
from arena.records.faults import process_faults
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.replay.format import files_in, start_and_lane
from arena.replay.playback import Event, ReplayDiffers
from arena.replay.reader import Episode, MatchReplays, Replays, read_replays
from arena.replay.verify import TEXT, events_of, pictures_of, pieces_of, rendered, rendering, verify
from arena.replay.video import Caption, Picture, Player, captioned, check_video, write_video
from arena.roles.status import RunStatus, planned_ticks, run_status
from arena.terminal.output import say

_FAILED = 1  # the exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
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
        "--per-second", type=ticks_per_second, metavar="N", help="ticks of the video (default: as the game says)"
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare with what was recorded; exit code 1: something differs"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists, verifies or shows recorded episodes; returns the exit status.

    Raises:
        ConfigError: the run has no such replay, a file is damaged, or the game is not as it was.
        WriteError: the video cannot be written.
    """
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
    matches, folder = _chosen(found, match, round), RunFolder(Path(target))
    try:
        if episode is None:
            if lane is not None and not any(lane in match.lanes for match in matches):
                matches[0].check_lane(lane)
            if not arguments.verify:
                return _list(matches, folder, lane, one=match is not None)
            # The selected episodes of `episodes.jsonl` without a replay.
            there = {(*one.manifest[:2], episode.lane, episode.number) for one in matches for episode in one.episodes()}
            rounds = round if match is None else round or 0
            missing = [
                line
                for line in _lines(folder)
                if match in (None, line.match) and rounds in (None, line.round) and lane in (None, line.lane)
                if (line.round, line.match, line.lane, line.episode) not in there
            ]
            starts = (start_and_lane(path)[0] for match in found.matches for path in files_in(match.path))
            since = min(starts, default=0)
            return _verify_all(
                matches,
                missing,
                lane,
                lost=any(line.tick - line.length >= since for line in missing) and _keeps_all(folder),
            )
        return _one(matches[0], matches[0].episode(episode, lane=lane or 0), arguments)
    except ReplayDiffers as error:
        say(str(error))
        return _FAILED


def _chosen(found: Replays, match: int | None, round: int | None) -> Sequence[MatchReplays]:
    if match is not None:
        return [found.match(match, round=round or 0)]
    chosen = [one for one in found.matches if round in (None, one.manifest.round)]
    return chosen or [found.match(0, round=round or 0)]  # its error names the rounds that there are


# ------------------------------------------------------------------------------------------------------ the list


def _list(matches: Sequence[MatchReplays], folder: RunFolder, lane: int | None, *, one: bool) -> int:
    for match in matches:
        episodes = [episode for episode in match.episodes() if lane in (None, episode.lane)]
        say(f"{_title(match)}: {pluralize(len(episodes), 'episode')}, {_size(match, lane)}")
        if one:
            lines = {at: line for at, line in _lines_of(folder, match).items() if lane in (None, at[0])}
            for episode in episodes:
                say(f"  {_place(episode)}{_result(lines.pop((episode.lane, episode.number), None))}")
            if lines:
                say(f"  {pluralize(len(lines), 'more episode')} of episodes.jsonl without a replay")
    return 0


def _title(match: MatchReplays) -> str:
    manifest = match.manifest
    policies = dict(sorted((entity.seat, entity.policy) for entity in manifest.entities))
    return f"round {manifest.round}, match {manifest.match}: {manifest.env}, {' '.join(policies.values())}"


def _size(match: MatchReplays, lane: int | None) -> str:
    """The bytes and ticks of all lanes, which share files; for one lane its ticks."""
    if lane is not None:
        return pluralize(sum(recording.ticks for recording in match.recordings if lane in recording.lanes), "tick")
    size = sum(recording.path.stat().st_size for recording in match.recordings)
    ticks = sum(recording.ticks * len(recording.lanes) for recording in match.recordings)
    return f"{size / 1000:,.0f} kB for {ticks:,} ticks of lanes"


def _place(episode: Episode) -> str:
    span = f"ticks {episode.begin + 1} to {episode.end}" if episode.length > 1 else f"tick {episode.end}"
    return f"lane {episode.lane}, episode {episode.number}: {span}"


def _lines_of(folder: RunFolder, match: MatchReplays) -> dict[tuple[int, int], EpisodeRecord]:
    """The lines of a match in `episodes.jsonl`, by lane and episode."""
    place = match.manifest[:2]
    return {(line.lane, line.episode): line for line in _lines(folder) if (line.round, line.match) == place}


def _lines(folder: RunFolder) -> Iterator[EpisodeRecord]:
    """The lines of `episodes.jsonl`; none if the file is not there."""
    return JournalReader(folder.episodes).lines(EpisodeRecord, missing_ok=True)


def _result(line: EpisodeRecord | None) -> str:
    if line is None:
        return ", not in episodes.jsonl"
    if line.cut:
        return ", cut by the end of the leg"
    return "".join(f", {seat.policy} {_seat_result(seat)}" for seat in line.seats)


def _seat_result(seat: SeatRecord) -> str:
    return " ".join(filter(None, [seat.outcome, "took no part" if seat.return_ is None else f"{seat.return_:.6g}"]))


# --------------------------------------------------------------------------------------------------- verification


def _verify_all(
    matches: Sequence[MatchReplays], missing: Sequence[EpisodeRecord], lane: int | None, *, lost: bool
) -> int:
    """Plays all replays again (of one lane, if given) and compares; returns the exit status."""
    status, absent = _FAILED if lost else 0, Counter((line.round, line.match) for line in missing)
    for match in matches:
        episodes, ticks, differences = sum(lane in (None, one.lane) for one in match.episodes()), 0, 0
        for recording, found in verify(match, lane=lane):
            ticks += recording.ticks * (len(recording.lanes) if lane is None else 1)
            differences += len(found)
            for difference in found:
                say(str(difference))
        if differences:
            status = _FAILED
        else:
            say(f"{_title(match)}: {pluralize(episodes, 'episode')}, {ticks:,} ticks of lanes, all as recorded")
        if more := absent[match.manifest[:2]]:
            say(f"  {pluralize(more, 'more episode')} of episodes.jsonl without a replay")
    for round, number in sorted(absent.keys() - {match.manifest[:2] for match in matches}):
        episodes_on_record = pluralize(absent[round, number], "episode")
        say(f"round {round}, match {number}: no replays, though episodes.jsonl has {episodes_on_record}")
    return status


def _keeps_all(folder: RunFolder) -> bool:
    """Whether the run must have ended with a replay of every episode: it records them, and no process has died."""
    if not folder.config.is_file() or process_faults(folder.faults):
        return False
    config = load_config(folder.config)
    known = config.rounds > 1 or planned_ticks(config) is not None  # it is not known when an evaluation ends
    if config.record != "replays" or not known:
        return False
    return run_status(folder, config, played=newest_tick(folder) or 0) is RunStatus.FINISHED


# ------------------------------------------------------------------------------------------------- one episode


def _one(match: MatchReplays, episode: Episode, arguments: argparse.Namespace) -> int:
    target, video = arguments.run, arguments.video
    line = _lines_of(RunFolder(Path(target)), match).get((episode.lane, episode.number))
    say(f"{_title(match)}, {_place(episode)}{_result(line)}")
    if video is not None:
        speed = arguments.per_second or rendering(match.playable).per_second
        write_video(anchored(video), _captioned(match, episode), per_second=speed)
        length = pluralize(episode.length, "tick")
        say(f"{video}: {anchored(video).stat().st_size / 1000:,.0f} kB, {length}, {speed:g} in a second")
    elif arguments.verify:
        ticks = sum(event.step is not None for event, _ in events_of(match, episode))
        say(f"{pluralize(ticks, 'tick')}, all as recorded")
    else:
        # Prints what happens, tick by tick; with the game's own text, if it has one.
        written = TEXT in rendering(match.playable).modes
        active: NDArray[np.bool_] | None = None
        seen: list[Any] = []  # by the entities before the tick; of units alone
        for event, game in events_of(match, episode, render_mode=TEXT if written else None):
            if event.step is not None and active is not None:
                say(f"tick {event.tick}: {', '.join(_deeds(match, event, active, seen))}")
            if written and isinstance(text := rendered(match.manifest, game), str):
                say(text, styles=True)
            active = event.frame.active[0].copy()
            sights = zip(game.interface.observation_spaces, event.frame.observations, strict=True)
            seen = [(space, row(space, batch, 0)) if isinstance(space, UnitSpace) else None for space, batch in sights]
    return 0


def _deeds(match: MatchReplays, event: Event, active: NDArray[np.bool_], seen: Sequence[Any]) -> Iterator[str]:
    """The actions, rewards and ends of the entities in one tick."""
    assert event.step is not None, "a tick was played"
    paid, over, cut = event.step.rewards[0], event.step.terminated[0], event.step.truncated[0]
    for e, entity in enumerate(match.manifest.entities):
        words = [entity.name]
        if active[e]:
            action = row(entity.action_space, event.actions[e], 0)
            words.append(_words(action) if seen[e] is None else "; ".join(seen[e][0].describe(seen[e][1], action)))
        if paid[e]:
            words.append(f"earns {paid[e]:.6g}")
        words += ["terminated"] * bool(over[e]) + ["truncated"] * bool(cut[e])
        if len(words) > 1:
            yield " ".join(words)


def _words(action: Any) -> str:
    if isinstance(action, dict):
        return "{" + ", ".join(f"{key}: {_words(part)}" for key, part in action.items()) + "}"
    if isinstance(action, tuple):
        return "(" + ", ".join(map(_words, action)) + ")"
    return np.array2string(np.asarray(action), precision=3, separator=" ", threshold=16).replace("\n", "")


def _captioned(match: MatchReplays, episode: Episode) -> Iterator[Picture]:
    """The pictures of an episode, with the return so far of each policy's entities of a color: the mean over these."""
    names = [entity.name for entity in match.manifest.entities]
    earned = np.zeros(len(names))
    for picture, event, game in pictures_of(match, episode):
        if event.step is not None:
            earned += event.step.rewards[0]
        players = [
            Player(piece.words, piece.color, float(np.mean(earned[[name in piece.entities for name in names]])))
            for piece in pieces_of(match.manifest, game.interface.colors)
        ]
        played = event.tick - episode.begin
        yield captioned(picture, Caption(players, f"{played} / {episode.length}", played / episode.length))
