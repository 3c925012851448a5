"""Checkpoints of a policy: atomic, versioned, checked, and without a byte of code in them.

A checkpoint is one zip file, `checkpoints/<policy>/<boundary>.ckpt`:

    checkpoint.json   format version, policy, algorithm, boundary, ticks, update, the arena's version, and the state's
                      structure
    arrays/<n>.npy    the arrays of the state, see `arena.records.state_codec`
    sha256            over names and bytes of all other members, in the file's order

A file gets its name only when it is complete and on the disk, so a kill at any instant leaves the older ones. The state
belongs to the policy, not to its processes: it loads on any number of ranks, copies or lanes.

The own states of single workers, such as replay buffers, are beside it in a zip file per process that had such workers,
`<boundary>.workers-<rank>.ckpt`. Each worker adds its own at the end of the leg:

    match-<m>-seat-<s>.ckpt    a file of the form above, per worker
    sha256                     over the names of all other members and their own sha256, in the file's order

Checkpoints are named by the boundaries that all policies of a run share, the ends of its legs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, nearest
from arena.records.atomic import make_folder, part_of, refuse_links, regular, replacing

FORMAT_VERSION = 1
_HEADER, _DIGEST = "checkpoint.json", "sha256"
_NAME = re.compile(r"([0-9]{12,})\.ckpt")
_WORKERS_NAME = re.compile(r"[0-9]{12,}\.workers-[0-9]+\.ckpt")
_WORKER, _NUMBER = re.compile(r"match-[0-9]+-seat-[0-9]+\.ckpt"), re.compile("[0-9]+")
_NOT_A_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError, KeyError)
_NOT_A_STATE = (KeyError, IndexError, TypeError, ValueError, MemoryError, RecursionError, struct.error)
_OTHER_DIGEST = "is damaged: its content does not have the sha256 that was written with it"
BEST = "best.ckpt"
"""The name of the best checkpoint of a policy, which is not listed among the others."""
KEPT = 3
"""How many checkpoints stay beside the very first one."""
KEPT_TEXT = f"a run keeps the first and the last {KEPT} checkpoints of a policy; copy a file that you want for longer"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    state: Any  # what the algorithm saved
    policy: str
    algorithm: str  # its name in the configuration
    ticks: int  # that the writer's match had played: fewer than the boundary if the policy had left before it
    update: int  # how often the policy had logged
    boundary: int  # the tick from which a run continues with it


class StatePlace(NamedTuple):
    """Where the own state of a worker is: a part of a file."""

    path: str
    boundary: int
    start: int  # of its header in the zip file, in bytes
    bytes: int


StatesFile: TypeAlias = Generator[StatePlace | None, tuple[tuple[int, int], Checkpoint] | None, None]


class DamagedFile(ConfigError):
    """A file is not, or is no longer, a complete checkpoint."""


def save(
    folder: Path | str,
    state: Any,
    *,
    policy: str,
    algorithm: str,
    ticks: int,
    update: int,
    boundary: int | None = None,
) -> Path:
    """Writes a checkpoint, then removes old ones except the very first, with the initial weights, and the newest.

    Args:
        state: None, bool, int, float, str, arrays, tensors, and lists, tuples and dicts of these.
        boundary: names the file; None: the ticks.

    Raises:
        TypeError: a part of the state cannot be kept.
        OSError: the disk is full, or the folder cannot be written; older checkpoints stay as they are.
    """
    folder = Path(folder)
    content = Checkpoint(state, policy, algorithm, ticks, update, ticks if boundary is None else boundary)
    written = path_of(folder, content.boundary)
    write(written, content)
    # Incomplete files of workers' own states stay: they are being written, maybe for another boundary.
    present = list_checkpoints(folder)
    newest = present[-KEPT:]
    kept = {present[0], written, *newest}
    of_workers = [path for path in worker_files(folder) if ticks_of(path) < ticks_of(newest[0])]
    unfinished = [
        path for path in _unfinished(folder) if _NAME.fullmatch(path.name.removeprefix(".").removesuffix(".part"))
    ]
    for path in [*(path for path in present if path not in kept), *of_workers, *unfinished]:
        try:
            path.unlink()
        except OSError as error:
            _log.warning("an old checkpoint stays: %s", error)
    return written


def write(path: Path, content: Checkpoint) -> None:
    """Writes a checkpoint file at any path; removes no others; raises as `save`."""
    make_folder(path.parent)
    with replacing(path) as file:
        _write(file, content)


def _write(file: IO[bytes], content: Checkpoint) -> str:
    """Writes a checkpoint into a file, which needs no more than `write`; returns its digest."""
    from arena.records import state_codec  # needs NumPy, which a process that only looks for files does without

    structure, arrays = state_codec.encode(content.state)
    header = {
        "version": FORMAT_VERSION,
        "policy": content.policy,
        "algorithm": content.algorithm,
        "boundary": content.boundary,
        "ticks": content.ticks,
        "update": content.update,
        "arena": _arena_version(),
        "own_place": True,  # policy and boundary are those of its place, unlike in copies that earlier versions made
        "state": structure,
    }
    members = [(_HEADER, json.dumps(header).encode())]
    members += [(f"arrays/{number}.npy", array) for number, array in enumerate(arrays)]
    digest = _digest(members)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, member in (*members, (_DIGEST, digest.encode())):
            archive.writestr(zipfile.ZipInfo(name), member)  # ZipInfo has a fixed date: same state, same bytes
    return digest


def worker_states_file(path: Path) -> StatesFile:
    """Writes a file with the own states of workers: each is sent to it with its seat, as (match, seat).

    Yields the place of the state that was sent. None completes the file; until then an earlier one stays. One state at
    a time is in memory. Raises as `save`.
    """
    make_folder(path.parent)
    digests: list[tuple[str, bytes]] = []
    place = None
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        while (sent := (yield place)) is not None:
            (match, seat), content = sent
            info = zipfile.ZipInfo(f"match-{match}-seat-{seat}.ckpt")
            with archive.open(info, "w", force_zip64=True) as member:
                digests.append((info.filename, _write(member, content).encode()))
            place = _place(path, info)
        archive.writestr(zipfile.ZipInfo(_DIGEST), _digest(digests))


def worker_states(folder: Path, boundary: int) -> dict[tuple[int, int], StatePlace]:
    """The places of the own states of a policy's workers at a boundary, by (match, seat); raises as `load`."""
    found: dict[tuple[int, int], StatePlace] = {}
    for path in worker_files(folder, boundary):
        with _opened(path) as archive:
            for info in archive.infolist()[:-1]:
                match, seat = map(int, _NUMBER.findall(info.filename))
                found[match, seat] = _place(path, info)
    return found


def duplicate(source: Path, path: Path) -> None:
    """Gives a checkpoint, which is never modified, a second name, and replaces a file that has it; raises as `save`."""
    make_folder(path.parent)
    path.unlink(missing_ok=True)
    with suppress(OSError):
        os.link(source, path)
    if not path.exists():  # a file system without links
        with replacing(path) as file:
            file.write(source.read_bytes())


def path_of(folder: Path, boundary: int) -> Path:
    """Where a policy's checkpoint of a boundary is, if there is one."""
    return folder / f"{boundary:012d}.ckpt"


def worker_path_of(folder: Path, boundary: int, rank: int) -> Path:
    """Where the own states of a policy's workers on a rank are at a boundary, if there are any."""
    return folder / f"{boundary:012d}.workers-{rank}.ckpt"


def load(path: Path | str | StatePlace, *, tensors: bool = True) -> Checkpoint:
    """Reads a checkpoint file, or that of `newest_whole` in a policy's folder, or the own state of a worker.

    Tensors of the state come back as such, which imports torch, or as arrays.

    Raises:
        ConfigError: nothing there; not a checkpoint; damaged; or written by a newer arena.
    """
    if isinstance(path, StatePlace):
        return _read(Path(path.path), tensors, path)
    path = anchored(path)
    if _WORKERS_NAME.fullmatch(path.name):
        raise ConfigError("has the own states of workers; name the policy's checkpoint beside it", source=str(path))
    return _read(newest_whole(path) if path.is_dir() else path, tensors)


def newest_whole(folder: Path) -> Path:
    """The newest complete checkpoint in a policy's folder; a damaged file is skipped, with a warning in the log.

    Raises:
        ConfigError: there is none; or the newest was written by a newer arena.
    """
    for file in reversed(list_checkpoints(folder)):
        try:
            _read(file, False)
            return file
        except DamagedFile as error:
            _log.warning("passed over: %s", error)
    raise ConfigError("no whole checkpoint in this folder", source=str(folder))


def list_checkpoints(folder: Path | str) -> list[Path]:
    """The checkpoint files of a policy's folder, the oldest first; they are not checked for damage."""
    named = {path: match for path in Path(folder).glob("*.ckpt") if (match := _NAME.fullmatch(path.name))}
    return sorted(named, key=lambda path: int(named[path][1]))


def discard_after(folder: Path | str, ticks: int) -> None:
    """Removes all files newer than a tick, from which a run continues, and the incomplete files of killed saves.

    No process may be writing here.
    """
    for path in [*list_checkpoints(folder), *worker_files(Path(folder))]:
        if ticks_of(path) > ticks:
            path.unlink()
    for path in _unfinished(Path(folder)):
        path.unlink()


def worker_files(folder: Path, boundary: int | None = None) -> list[Path]:
    """The files with the own states of workers at a boundary; None: at any."""
    found = [path for path in folder.glob("*.workers-*.ckpt") if _WORKERS_NAME.fullmatch(path.name)]
    return [path for path in found if boundary is None or ticks_of(path) == boundary]


def find(path: Path | str, policy: str) -> Path:
    """The file that a `load:` in the configuration means: itself, or `newest_whole` of a policy's or run's folder.

    Of a run folder, the checkpoints of `policy` are meant.

    Raises:
        ConfigError: there is no such thing, or no checkpoint of this policy in it.
    """
    source, path = str(path), anchored(path)
    if not path.exists():
        raise ConfigError("there is no such checkpoint file, checkpoint folder or run folder", source=source)
    if (path / "config.yaml").is_file():
        refuse_links(path, {"checkpoints": None})
    if path.is_file():
        return path
    home = path / "checkpoints"
    for folder in (path, home / policy):
        if list_checkpoints(folder):
            return newest_whole(folder)
    others = [folder.name for folder in home.glob("*") if list_checkpoints(folder)]
    if others:
        raise ConfigError(
            f"no checkpoint of the policy {policy!r} in this run; {nearest(policy, others)}; "
            f"to load another policy's weights say {source}:{others[0]}",
            source=source,
        )
    raise ConfigError("no checkpoint in this folder", source=source)


@cache  # the look-up reads folders, and keeps a cache entry for each modification time of a folder
def _arena_version() -> str:
    from importlib import metadata  # would take a tenth of the start of a process

    try:
        return metadata.version("mpi-policy-arena")
    except metadata.PackageNotFoundError:  # used from a folder, not installed
        return "unknown"


def _digest(members: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in members:
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _unfinished(folder: Path) -> list[Path]:
    """Checkpoint files that are being written, or were when a process was killed."""
    return list(folder.glob(part_of(folder / "*.ckpt").name))


def algorithm_of(path: Path) -> str:
    """The name of the algorithm whose state a checkpoint has, as it was configured; the state is not read."""
    with _opened(path) as archive:
        return str(json.loads(archive.read(_HEADER))["algorithm"])


def ticks_of(path: Path) -> int:
    """The boundary of a checkpoint, in ticks: from its file name; from its content where that has another name."""
    return int(found[0]) if (found := re.match("[0-9]{12,}", path.name)) else _read(path, False).boundary


def _read(path: Path, tensors: bool, part: StatePlace | None = None) -> Checkpoint:
    from arena.records import state_codec  # as above

    with _opened(path, part) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if members.pop(_DIGEST) != _digest(members.items()).encode():
        raise DamagedFile(_OTHER_DIGEST, source=str(path))
    try:
        header = json.loads(members.pop(_HEADER))
        if header["version"] > FORMAT_VERSION:
            raise ConfigError(
                f"has format version {header['version']}, written by arena {header['arena']}; this arena reads up to "
                f"version {FORMAT_VERSION}: install a newer one",
                source=str(path),
            )
        state = state_codec.decode(header["state"], list(members.values()), tensors=tensors)
        ticks = header["ticks"]
        boundary = header.get("boundary", ticks)
        found = Checkpoint(state, header["policy"], header["algorithm"], ticks, header["update"], boundary)
    except _NOT_A_STATE as error:
        raise DamagedFile(f"is not a checkpoint: {error!r}", source=str(path)) from error
    # In `checkpoints/<policy>/` of a run the content must be what its place says. Elsewhere a checkpoint has any name:
    # a snapshot of a policy that was forked or loaded has the header of its source.
    place = path.absolute()
    in_run = place.parent.parent.name == "checkpoints" and (place.parents[2] / "config.yaml").is_file()
    if "own_place" in header and in_run:
        name, wrong = path.name.partition(".")[0], ""
        if found.policy != place.parent.name:
            wrong = f"is a checkpoint of the policy {found.policy!r}"
        elif name.isdecimal() and found.boundary != int(name):
            wrong = f"is the checkpoint of the boundary at tick {found.boundary}"
        if wrong:
            raise DamagedFile(f"{wrong}: the file was replaced or is damaged", source=str(place))
    return found


def check_mapping(found: Checkpoint, path: Path) -> None:
    """Refuses a checkpoint whose state is none of `state_dict()`; raises DamagedFile if its state is no mapping."""
    if not isinstance(found.state, dict):
        wrong = f"has a {type(found.state).__name__} in the place of the mapping that state_dict() returns"
        raise DamagedFile(wrong, source=str(path))


def load_to_act(path: Path) -> Checkpoint:
    """Reads a checkpoint with which a policy is to act.

    Raises:
        ConfigError: as `load`; or its state is no mapping, or has an array with numbers that are not finite.
    """
    found = load(path)
    check_mapping(found, path)
    if (name := _not_finite(found.state)) is not None:
        raise ConfigError(
            f"has numbers that are not finite in {name}, so the policy has diverged: take an earlier checkpoint, and "
            "train with a smaller learning rate; an algorithm that needs such numbers must store them in another form",
            source=str(path),
        )
    return found


def _not_finite(state: Any, name: str = "state") -> str | None:
    """The first array of a state, by its place, with a number that is not finite; None if there is none."""
    if hasattr(state, "detach"):  # a tensor
        state = state.detach().numpy()
    if isinstance(state, (dict, list, tuple)):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        return next((wrong for key, inner in items if (wrong := _not_finite(inner, f"{name}[{key!r}]"))), None)
    import numpy as np  # as above

    is_numbers = isinstance(state, np.ndarray) and state.ndim > 0 and state.dtype.kind in "fc"
    return name if is_numbers and not np.isfinite(state).all() else None


def written_digest(path: Path) -> str:
    """The digest that was written with the content of a checkpoint, or of a file of workers' states; no more is read.

    Raises:
        ConfigError: the file cannot be read, or is not a checkpoint.
    """
    with _opened(path) as archive:
        return archive.read(_DIGEST).decode("ascii")


def verified_digest(path: Path, part: StatePlace | None = None) -> str:
    """The digest of the content, which has it, of a checkpoint, or of a file of workers' states or a part of it.

    At most one worker's state, and one of its members, is in memory at a time.

    Raises:
        ConfigError: the file cannot be read, is not a checkpoint, or is damaged.
    """
    with _opened(path, part) as archive:
        several = part is None and _WORKERS_NAME.fullmatch(path.name)
        content = (
            (info.filename, verified_digest(path, _place(path, info)).encode() if several else archive.read(info))
            for info in archive.infolist()[:-1]
        )
        found, written = _digest(content), archive.read(_DIGEST)
    if written != found.encode():
        raise DamagedFile(_OTHER_DIGEST, source=str(path))
    return found


def _place(path: Path, member: zipfile.ZipInfo) -> StatePlace:
    return StatePlace(str(path), ticks_of(path), member.header_offset, member.file_size)


@contextmanager
def _opened(path: Path, part: StatePlace | None = None) -> Iterator[zipfile.ZipFile]:
    """Opens a checkpoint file, or a file of workers' states or a part of it; checks the members but their content."""
    try:
        file = open(path, "rb", opener=regular)  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    try:
        with file, zipfile.ZipFile(file if part is None else _member(file, part)) as archive:
            # Refuses a zip file that would need more memory than it has bytes: a bomb, packed or with members that
            # overlap.
            members = archive.infolist()
            names = [member.filename for member in members]
            expected = [_HEADER, *(f"arrays/{number}.npy" for number in range(len(names) - 2))]
            if part is None and _WORKERS_NAME.fullmatch(path.name):
                expected = [name for name in names if _WORKER.fullmatch(name)]
            if names != [*expected, _DIGEST]:
                raise DamagedFile("is not a checkpoint: a zip file of something else", source=str(path))
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > path.stat().st_size:
                raise DamagedFile("is not a checkpoint: its members are larger than the file", source=str(path))
            yield archive
    except (*_NOT_A_ZIP, MemoryError) as error:
        raise DamagedFile(f"is not a checkpoint, or is damaged: {error}", source=str(path)) from error


def _member(file: IO[bytes], place: StatePlace) -> BytesIO:
    """The member of a zip file that is not packed, of which the place begins with its header."""
    file.seek(place.start + 26)
    file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)  # its name, and a field with its size
    return BytesIO(file.read(place.bytes))
