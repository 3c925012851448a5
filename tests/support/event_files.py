"""Reads TensorBoard's event files with another library's protocol buffers and checksums."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def events(path: Path) -> list[Any]:
    """The events of a file by tensorboardX's own definitions; checks the framing as well."""
    from tensorboardX.crc32c import crc32c  # type: ignore[import-untyped]
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]

    def check(data: bytes, masked: int) -> None:
        rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
        assert (rotated >> 17 | rotated << 15) & 0xFFFFFFFF == crc32c(data)

    found, content = [], path.read_bytes()
    while content:
        length, length_crc = struct.unpack("<QI", content[:12])
        data, (data_crc,) = content[12 : 12 + length], struct.unpack("<I", content[12 + length : 16 + length])
        check(content[:8], length_crc)
        check(data, data_crc)
        found.append(Event.FromString(data))
        content = content[16 + length :]
    return found


def points(folder: Path) -> dict[str, dict[int, float]]:
    """The points of each curve by step, as TensorBoard shows them: points of a resumed run replace earlier ones."""
    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.iterdir()):
        for event in events(path):
            if event.session_log.status == 1:  # START
                for own in found.values():
                    for step in [step for step in own if step >= event.step]:
                        del own[step]
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found
