"""Writes the replays of one block of lanes: begins of episodes, all actions, and digests of the results.

    begin       episodes begin in some lanes
    add         a tick: actions and results
    flush       writes the new ticks as a chunk; `add` does so when a chunk is full
    close       the leg has ended: flushes, and syncs the file to the disk

Chunks are small, so little is lost when the process is killed, and their size depends only on the match.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.ragged import Ragged
from arena.game.spaces import flatten
from arena.records import checksums
from arena.records.atomic import make_folder, private, replacing, writing
from arena.records.folder import lanes_in, lanes_path, manifest_path, manifests_in, match_path, start_and_lane
from arena.replay.digests import Digests
from arena.replay.format import Begin, Chunk, Manifest, framed

_MOST_TICKS = 256  # of a chunk
_MOST_BYTES = 2**16  # of a chunk before compression, unless a single tick needs more
_DIGEST_BYTES = 2
_LENGTH_BYTES = 4  # of a ragged leaf, per lane and tick

Flags = NDArray[np.bool_]


class ReplayWriter:
    """Writes the replays of some lanes, given by their numbers, of a match during the leg after tick `start`.

    The folder of the run's replays is created with the first chunk.
    """

    def __init__(self, replays: Path, manifest: Manifest, interface: Interface, *, lanes: range, start: int) -> None:
        self._replays = replays
        self._folder = match_path(replays, manifest.match, round=manifest.round)
        self._manifest = manifest.to_bytes()
        self._start = start
        self._path = lanes_path(self._folder, "replay", start=start, lane=lanes[0])
        self._lanes = lanes
        self._spaces = interface.action_spaces
        self._columns = manifest.columns()
        self._digests = Digests(interface, len(lanes), actions=self._columns)
        sizes = [_LENGTH_BYTES if column.ragged else column.item_bytes for of in self._columns for column in of]
        self._ticks = max(1, min(_MOST_TICKS, _MOST_BYTES // (len(lanes) * (sum(sizes) + _DIGEST_BYTES))))
        self._leaves: list[list[Any]] = []  # per tick of the chunk the leaves of all actions, as they are stored
        self._kept: list[NDArray[np.uint16]] = []  # per tick of the chunk the digests
        self._ragged_bytes = 0  # of the chunk
        self._active: Flags = np.zeros((len(lanes), len(interface.entities)), np.bool_)
        self._tick = start  # ticks played before the chunk
        self._begins: list[Begin] = []
        self._failed: list[int] = []
        self._begun = False  # whether the file exists

    def begin(
        self,
        frame: Frame,
        lanes: Flags,
        *,
        episodes: NDArray[np.int64],
        seeds: Sequence[int | None] | None,
        options: Mapping[str, Any] | None,
        new_game: bool,
    ) -> None:
        """Adds begins of episodes in the lanes [L], with the first observations.

        The numbers of the episodes [L] and the seeds (None: none were given) are those of all lanes; `options` are of
        the reset, and `new_game` says whether the game was made for this.
        """
        self._active[lanes] = frame.active[lanes]
        kept, lost = None, ""  # the options in a form that can be stored, or else their description
        if options is not None:
            mapping = dict(options)
            try:
                kept = mapping if msgspec.msgpack.decode(msgspec.msgpack.encode(mapping)) == mapping else None
            except (TypeError, ValueError, OverflowError, RecursionError):
                kept = None
            lost = "" if kept is mapping else f"{options!r:.200}"
        which = np.flatnonzero(lanes).tolist()
        begin = Begin(
            tick=self._tick + len(self._kept),
            lanes=which,
            episodes=episodes[lanes].tolist(),
            digests=self._digests.begin(frame, lanes)[lanes].tolist(),
            seeds=None if seeds is None else [None if (seed := seeds[lane]) is None else int(seed) for lane in which],
            options=kept,
            lost=lost,
            new_game=new_game,
        )
        self._begins.append(begin)

    def add(self, actions: Sequence[Any], step: Step | None) -> None:
        """Adds a tick: per entity a batched sample [L, ...], and the game's result; None: the game has failed."""
        if len(self._kept) == self._ticks or self._ragged_bytes > _MOST_BYTES:
            self.flush()
        leaves: list[Any] = []
        for entity, action in enumerate(actions):
            acting = self._active[:, entity]
            found = flatten(self._spaces[entity], action)
            for column, leaf in zip(self._columns[entity], found, strict=True):
                if column.ragged:
                    leaves.append(column.packed(leaf.kept(acting)).copy())
                    self._ragged_bytes += leaves[-1].values.nbytes
                else:
                    leaves.append(np.array(column.packed(leaf), column.dtype))
                    leaves[-1][~acting] = 0  # games ignore actions of entities that are not to act
        self._leaves.append(leaves)
        if step is None:
            self._kept.append(np.zeros(len(self._lanes), np.uint16))
            self._failed.append(self._tick + len(self._kept))
        else:
            self._kept.append(self._digests.add(leaves, step))
            self._active[...] = step.frame.active

    def flush(self) -> None:
        """Writes the ticks since the last chunk, if there are any."""
        if not self._kept:
            return
        stored: list[bytes] = []
        for ticks in zip(*self._leaves, strict=True):
            if isinstance(ticks[0], Ragged):
                rows = Ragged.concat(ticks)
                stored += [rows.lengths.astype(np.uint32).tobytes(), rows.values.tobytes()]
            else:
                stored.append(np.stack(ticks).tobytes())
        chunk = Chunk(
            lane=self._lanes[0],
            lanes=len(self._lanes),
            tick=self._tick,
            ticks=len(self._kept),
            begins=self._begins,
            failed=self._failed,
            actions=stored,
            digests=np.stack(self._kept).tobytes(),
        )
        # Appends to the file; on an error the file is left unchanged.
        data = framed(chunk)
        if not self._begun:
            # Creates folders and file; an older file of this name is of a leg that is played again.
            for folder in (self._replays, self._folder.parent, self._folder):
                make_folder(folder)
            # A manifest holds until the next one; later files are played again.
            files = lanes_in(self._folder, "replay")
            stays = any(start_and_lane(file)[0] < self._start for file in files)
            earlier = [path for start, path in manifests_in(self._folder).items() if stays and start < self._start]
            path = manifest_path(self._folder, self._start if earlier else 0)
            known = earlier[-1] if earlier else path
            if not known.exists() or known.read_bytes() != self._manifest:
                checksums.replace(path, self._manifest)
            with replacing(self._path):
                self._begun = True
        with writing(self._path):
            size = self._path.stat().st_size
            try:
                with open(self._path, "ab", opener=private) as file:
                    file.write(data)
            except OSError:
                with suppress(OSError):  # the first error is reported
                    os.truncate(self._path, size)
                raise
        self._tick += len(self._kept)
        self._leaves, self._kept, self._begins, self._failed, self._ragged_bytes = [], [], [], [], 0

    def close(self) -> None:
        """Flushes, and syncs the file to the disk."""
        self.flush()
        if self._begun:
            with writing(self._path), open(self._path, "rb", opener=private) as file:
                os.fsync(file.fileno())
